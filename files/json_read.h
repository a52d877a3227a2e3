/* json_read.h - reads fields of a JSON file that has to make sense: one sticky status, so that the caller
 * asks for all fields and checks once.
 *
 * A field that is missing or null gives the fallback. One of the wrong type or out of range gives the
 * fallback too and sets status and the sentence (the first problem stays). Thread: one. */
#ifndef FILES_JSON_READ_H
#define FILES_JSON_READ_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Whole file, one JSON value, nothing after it; Infinity is a number. *out is freed with cJSON_Delete. */
int json_file_read(const char *path, size_t bytes_max, cJSON **out, struct error *err) must_check;

struct json_reader {
    const cJSON *object; /* NULL reads as an empty object */
    const char *path;    /* for sentences */
    struct error *err;
    int status;
};

/* The field, or NULL when it is missing or null. */
const cJSON *json_find(const struct json_reader *r, const char *key);

int64_t json_int(struct json_reader *r, const char *key, int64_t fallback, int64_t min, int64_t max);
int64_t json_int_required(struct json_reader *r, const char *key, int64_t min, int64_t max);
double json_real(struct json_reader *r, const char *key, double fallback, double min, double max);
bool json_bool(struct json_reader *r, const char *key, bool fallback);
const char *json_text(struct json_reader *r, const char *key, const char *fallback);

/* A number that is an integer which a double holds exactly. */
bool json_is_int(const cJSON *item, int64_t *value);

#endif
