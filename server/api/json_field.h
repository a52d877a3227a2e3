/* json_field.h - typed reading of one member of a JSON object, with the refusal that goes with it.
 *
 * null equals absent: readers leave *out alone and return 0. A text that is a number, or true or false, counts
 * as that, as in pydantic. A wrong type is invalid_type, a wrong value
 * invalid_value, each with the member's dotted path (`path`, or the name for a top-level member).
 * The text was checked by json_gate before cJSON parsed it. Thread: any. */
#ifndef SERVER_API_JSON_FIELD_H
#define SERVER_API_JSON_FIELD_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/api/api_error.h"

/* The member, or NULL when it is absent or null. Names are case-sensitive. */
const cJSON *json_field_find(const cJSON *object, const char *name);
const char *json_field_type_name(const cJSON *value); /* "a string", "an object", ... */

int json_field_bool(const cJSON *object, const char *name, bool *out, struct api_error *err) must_check;
int json_field_int(const cJSON *object, const char *name, int64_t min, int64_t max, int64_t *out,
                   struct api_error *err) must_check;
int json_field_real(const cJSON *object, const char *name, double min, double max, double *out,
                    struct api_error *err) must_check;

/* A number, or a text of one. False: neither. */
bool json_field_number(const cJSON *value, double *out);
/* A text of an integer, exactly. */
bool json_field_text_int64(const cJSON *value, int64_t *out);

/* Whether value is such a number without a fraction in [min, max]; min and max within +-2^53. */
bool json_field_as_int(const cJSON *value, int64_t min, int64_t max, int64_t *out);

/* Refuses value at path: "PATH must be WHAT, got a string". */
int json_field_refuse_type(const cJSON *value, const char *path, const char *what, struct api_error *err);

/* The integer that stands at a top-level member of text, exactly, where a double would round it: for int64
 * such as seed. text is an object that passed json_gate. Returns false when there is no such member (its name
 * written without escapes) or it is no integer in int64's range. */
bool json_field_raw_int64(const char *text, size_t n, const char *name, int64_t *out);

#endif
