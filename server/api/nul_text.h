/* nul_text.h - U+0000 in a client's texts.
 *
 * JSON has it as \u0000; cJSON and the templates keep texts as C strings, which it would cut. So a body is
 * parsed with a stand-in at its place, U+10FFFF, which is no character and means nothing in any text, and
 * NULs are put back where texts become bytes for the tokenizer. A body that has both is refused. So are
 * arguments of a tool call with \u0000 in their own JSON: a template writes them as JSON again (tojson), where the
 * stand-in would have to become the escape and not the character. Thread: any. */
#ifndef SERVER_API_NUL_TEXT_H
#define SERVER_API_NUL_TEXT_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/buffer.h"
#include "text/tokenizer.h"

/* Whether JSON that passed the gate has a NUL in a text. */
bool nul_text_is_in(const char *json, size_t n);

/* Parses JSON that passed the gate. NULL: out of memory, or the stand-in is there beside a NUL (*conflict).
 */
cJSON *nul_text_parse(const char *json, size_t n, bool *conflict);

/* Puts NULs back in place; returns how many bytes there are then. */
size_t nul_text_restore(char *text, size_t n);
/* Likewise, with ascending ranges of the text that move with it. */
void nul_text_restore_ranges(struct buffer *text, struct text_range *ranges, int num_ranges);

#endif
