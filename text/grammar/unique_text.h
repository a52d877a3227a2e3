/* unique_text.h - the elements of an array whose elements differ, read backwards from the end of an answer.
 *
 * For arrays of strings, numbers, booleans and null, strings written without needless escapes: so these are equal when their texts are,
 * numbers when their values are, exactly, and the quote that begins a string is the last one without a backslash in front of it. Thread: pure
 * functions. */
#ifndef TEXT_GRAMMAR_UNIQUE_TEXT_H
#define TEXT_GRAMMAR_UNIQUE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Whether a number may go on with it. */
bool unique_text_in_number(char c);
/* Where the element that ends at end begins; of one that is not whole yet, too, if it is known to be a string. */
size_t unique_text_begin(const char *text, size_t end, bool is_string);
/* From an element, or where one may begin, to the one before it. False: it is the first. */
bool unique_text_previous(const char *text, size_t *begin, size_t *end);
/* Whether text[a .. a + a_bytes - 1] is that of an element equal to b. */
bool unique_text_equal(const char *a, size_t a_bytes, const char *b, size_t b_bytes);
/* Whether the element that ends at end is equal to none before it. */
bool unique_text_is_new(const char *text, size_t end);

#endif
