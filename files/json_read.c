#include "files/json_read.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/file_map.h"

/* Python's programs write a number that is too large for JSON as a word; as many bytes that stand for it take its place. */
static void replace_infinities(char *text)
{
    static const char word[] = "Infinity", number[] = "1e9999  ";
    bool is_text = false;
    for (char *at = text; *at; at++) {
        if (is_text && *at == '\\' && at[1])
            at++;
        else if (*at == '"')
            is_text = !is_text;
        else if (!is_text && !strncmp(at, word, sizeof word - 1))
            memcpy(at, number, sizeof number - 1);
    }
}

int json_file_read(const char *path, size_t bytes_max, cJSON **out, struct error *err)
{
    char *text;
    size_t num_bytes;
    int status = file_read_text(path, bytes_max, &text, &num_bytes, err);
    if (status) return status;
    const char *end = NULL;
    replace_infinities(text);
    *out = cJSON_ParseWithLengthOpts(text, num_bytes + 1, &end, true);
    if (!*out)
        status = error_set(err, STATUS_INVALID, "%s: not JSON from byte %td on", path,
                           end ? end - text : (ptrdiff_t)0);
    free(text);
    return status;
}

const cJSON *json_find(const struct json_reader *r, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(r->object, key);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

bool json_is_int(const cJSON *item, int64_t *value)
{
    if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= 0x1p53) ||
        item->valuedouble != floor(item->valuedouble))
        return false;
    *value = (int64_t)item->valuedouble;
    return true;
}

static void note_wrong(struct json_reader *r, const char *key, const char *expected)
{
    if (!r->status)
        r->status = error_set(r->err, STATUS_INVALID, "%s: %s should be %s", r->path, key, expected);
}

int64_t json_int(struct json_reader *r, const char *key, int64_t fallback, int64_t min, int64_t max)
{
    const cJSON *item = json_find(r, key);
    int64_t value;
    if (!item) return fallback;
    if (json_is_int(item, &value) && value >= min && value <= max) return value;
    char expected[96];
    snprintf(expected, sizeof expected, "an integer from %" PRId64 " to %" PRId64, min, max);
    note_wrong(r, key, expected);
    return fallback;
}

int64_t json_int_required(struct json_reader *r, const char *key, int64_t min, int64_t max)
{
    if (!json_find(r, key) && !r->status)
        r->status = error_set(r->err, STATUS_INVALID, "%s: %s is missing", r->path, key);
    return json_int(r, key, min, min, max);
}

double json_real(struct json_reader *r, const char *key, double fallback, double min, double max)
{
    const cJSON *item = json_find(r, key);
    if (!item) return fallback;
    if (cJSON_IsNumber(item) && item->valuedouble >= min && item->valuedouble <= max)
        return item->valuedouble;
    char expected[96];
    snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    note_wrong(r, key, expected);
    return fallback;
}

bool json_bool(struct json_reader *r, const char *key, bool fallback)
{
    const cJSON *item = json_find(r, key);
    if (!item) return fallback;
    if (!cJSON_IsBool(item)) note_wrong(r, key, "true or false");
    return cJSON_IsTrue(item);
}

const char *json_text(struct json_reader *r, const char *key, const char *fallback)
{
    const cJSON *item = json_find(r, key);
    if (!item) return fallback;
    if (cJSON_IsString(item)) return item->valuestring;
    note_wrong(r, key, "a text");
    return fallback;
}
