#include "text/tokenizer/unicode.h"

#include "text/tokenizer/unicode_table.h"

enum { BLOCK_POINTS = sizeof unicode_blocks[0] };

unsigned unicode_properties(uint32_t code_point)
{
    uint32_t block = code_point / BLOCK_POINTS;
    if (block >= sizeof unicode_index) return CATEGORY_OTHER;
    return unicode_blocks[unicode_index[block]][code_point % BLOCK_POINTS];
}
