#include "kernels/cpu/panel_grid.h"

#include <string.h>

#include "files/grid_codes.h"

#define CODE(x, bits, k) ((uint32_t)((x) >> ((bits) * (k)) & ((1u << (bits)) - 1)))
#define FOUR(x, bits, k)                                                                                     \
    (CODE(x, bits, k) | CODE(x, bits, (k) + 1) << 8 | CODE(x, bits, (k) + 2) << 16 |                         \
     CODE(x, bits, (k) + 3) << 24)
#define WORD_OF_EIGHT(x) FOUR(x, 2, 0) | FOUR(x, 2, 4) << 4,
#define WORD_OF_FOUR(x) FOUR(x, 4, 0),

const uint32_t panel_grid_iq2_xxs[256] = {GRID_IQ2_XXS(WORD_OF_EIGHT)};
const uint32_t panel_grid_iq2_xs[512] = {GRID_IQ2_XS(WORD_OF_EIGHT)};
const uint32_t panel_grid_iq2_s[1024] = {GRID_IQ2_S(WORD_OF_EIGHT)};
const uint32_t panel_grid_iq3_xxs[256] = {GRID_IQ3_XXS(WORD_OF_FOUR)};
const uint32_t panel_grid_iq3_s[512] = {GRID_IQ3_S(WORD_OF_FOUR)};
const uint32_t panel_grid_iq1[2048] = {GRID_IQ1_S(WORD_OF_EIGHT)};

const uint8_t panel_grid_iq2_values[16] = {
    43 + 8, 43 + 25, 43 + 43, [8] = 43 - 8, [9] = 43 - 25, [10] = 43 - 43};
const uint8_t panel_grid_iq3_xxs_values[16] = {66, 74, 82, 90, 98, 106, 114, 124,
                                               58, 50, 42, 34, 26, 18,  10,  0};
const uint8_t panel_grid_iq3_s_values[16] = {16, 18, 20, 22, 24, 26, 28, 30, 14, 12, 10, 8, 6, 4, 2, 0};

/* A row's upper bits of all entries. */
static uint16_t load_upper(enum dtype dtype, const uint8_t *block, int row)
{
    const uint8_t *const high = block + panel_layout_of(dtype).high_bits;
    uint16_t word = high[row];
    if (panel_grid_adds_one(dtype)) memcpy(&word, high + 2 * row, sizeof word);
    return word;
}

static void store_upper(enum dtype dtype, uint8_t *block, int row, uint16_t word)
{
    uint8_t *const high = block + panel_layout_of(dtype).high_bits;
    if (panel_grid_adds_one(dtype))
        memcpy(high + 2 * row, &word, sizeof word);
    else
        high[row] = (uint8_t)word;
}

static bool has_signs(enum dtype dtype)
{
    return !panel_grid_adds_one(dtype);
}

void panel_grid_put(enum dtype dtype, uint8_t *block, int row, const struct grid_group *g)
{
    const int num = panel_grid_num_entries(dtype), upper_bits = panel_grid_upper_bits(dtype);
    uint8_t *const signs = block + panel_grid_signs(dtype);
    uint16_t upper = 0;
    for (int j = 0; j < num; j++) {
        const uint16_t sign = has_signs(dtype) ? 0 : (uint16_t)(g->signs >> (8 * j) & 1) << 3;
        block[j * PANEL_ROWS + row] = (uint8_t)g->entries[j];
        upper |= (uint16_t)((g->entries[j] >> 8 | sign) << (j * upper_bits));
    }
    if (upper_bits) store_upper(dtype, block, row, upper);
    for (int i = 0; i < 8 && has_signs(dtype); i++)
        signs[i * 8 + row / 2] |= (uint8_t)((g->signs >> (4 * i) & 15) << (row % 2 * 4));
    block[panel_layout_of(dtype).scales + row] = (uint8_t)(g->scales[0] | g->scales[1] << 4);
}

struct grid_group panel_grid_get(enum dtype dtype, const uint8_t *block, int row)
{
    const int num = panel_grid_num_entries(dtype), upper_bits = panel_grid_upper_bits(dtype);
    const uint16_t upper = upper_bits ? load_upper(dtype, block, row) : 0;
    const uint8_t *const signs = block + panel_grid_signs(dtype),
                         scales = block[panel_layout_of(dtype).scales + row];
    struct grid_group g = {.scales = {scales & 15, scales >> 4}};
    for (int j = 0; j < num; j++) {
        const int bits = upper >> (j * upper_bits);
        g.entries[j] = block[j * PANEL_ROWS + row];
        if (upper_bits) g.entries[j] |= (uint16_t)((bits & panel_grid_upper_mask(dtype)) << 8);
        if (!has_signs(dtype) && bits & 8) g.signs |= 0xffu << (8 * j);
    }
    for (int i = 0; i < 8 && has_signs(dtype); i++)
        g.signs |= (uint32_t)(signs[i * 8 + row / 2] >> (row % 2 * 4) & 15) << (4 * i);
    return g;
}
