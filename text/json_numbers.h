/* json_numbers.h - how a number was written in a JSON text, which cJSON forgets: it keeps a double, so that 1.0 and 1
 * look alike and long integers are rounded. Thread: any; no shared state. */
#ifndef TEXT_JSON_NUMBERS_H
#define TEXT_JSON_NUMBERS_H

#include <stddef.h>

#include "base/status.h"

struct cJSON;

/* Keeps the text of every number that is not a short plain integer in its item's valuestring, which cJSON copies
 * and frees with it and ignores otherwise. text: what tree was parsed from. 0 or STATUS_NO_MEMORY. */
int json_keep_numbers(struct cJSON *tree, const char *text, size_t num_bytes) must_check;

/* The text of a whole number that is kept and that a double may not hold; NULL: the double is all of it. */
const char *json_long_integer(const struct cJSON *item);

/* As cJSON_PrintUnformatted (cJSON_free frees it), but long integers digit by digit. */
char *json_print_exactly(const struct cJSON *tree);

#endif
