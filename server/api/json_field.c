#include "server/api/json_field.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NUMBER_BYTES_MAX = 32 };

const cJSON *json_field_find(const cJSON *object, const char *name)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNull(value) ? NULL : value;
}

const char *json_field_type_name(const cJSON *value)
{
    if (cJSON_IsString(value)) return "a string";
    if (cJSON_IsNumber(value)) return "a number";
    if (cJSON_IsBool(value)) return "a boolean";
    if (cJSON_IsArray(value)) return "an array";
    if (cJSON_IsObject(value)) return "an object";
    return "null";
}

int json_field_refuse_type(const cJSON *value, const char *path, const char *what, struct api_error *err)
{
    return api_error_invalid(err, "invalid_type", path, "%s must be %s; got %s", path, what,
                             json_field_type_name(value));
}

static bool read_truth(const char *text, bool *out)
{
    *out = !strcasecmp(text, "true");
    return *out || !strcasecmp(text, "false");
}

int json_field_bool(const cJSON *object, const char *name, bool *out, struct api_error *err)
{
    const cJSON *value = json_field_find(object, name);
    if (!value) return 0;
    if (cJSON_IsString(value) && read_truth(value->valuestring, out)) return 0;
    if (!cJSON_IsBool(value)) return json_field_refuse_type(value, name, "a boolean", err);
    *out = cJSON_IsTrue(value);
    return 0;
}

static bool is_int(double v, int64_t min, int64_t max, int64_t *out)
{
    if (!(v >= (double)min && v <= (double)max) || v != trunc(v)) return false;
    *out = (int64_t)v;
    return true;
}

bool json_field_as_int(const cJSON *value, int64_t min, int64_t max, int64_t *out)
{
    double number;
    return json_field_number(value, &number) && is_int(number, min, max, out);
}

/* A text that is a number and nothing else, but for white space around it: pydantic takes it, and so do clients'
 * older bodies. */
static bool read_number_text(const char *text, char out[NUMBER_BYTES_MAX + 1])
{
    static const char spaces[] = " \t\r\n";
    text += strspn(text, spaces);
    size_t n = strspn(text, "+-.0123456789eE");
    if (n == 0 || n > NUMBER_BYTES_MAX || text[n + strspn(text + n, spaces)]) return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

bool json_field_number(const cJSON *value, double *out)
{
    char text[NUMBER_BYTES_MAX + 1], *end;
    *out = value->valuedouble;
    if (cJSON_IsNumber(value)) return true;
    if (!cJSON_IsString(value) || !read_number_text(value->valuestring, text)) return false;
    *out = strtod(text, &end);
    return *end == '\0';
}

bool json_field_text_int64(const cJSON *value, int64_t *out)
{
    char text[NUMBER_BYTES_MAX + 1], *end;
    if (!cJSON_IsString(value) || !read_number_text(value->valuestring, text)) return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return *end == '\0' && errno == 0;
}

int json_field_int(const cJSON *object, const char *name, int64_t min, int64_t max, int64_t *out,
                   struct api_error *err)
{
    const cJSON *value = json_field_find(object, name);
    double number;
    if (!value) return 0;
    if (!json_field_number(value, &number)) return json_field_refuse_type(value, name, "an integer", err);
    if (!is_int(number, min, max, out))
        return api_error_invalid(err, "invalid_value", name,
                                 "%s must be an integer from %lld to %lld; got %.17g", name, (long long)min,
                                 (long long)max, number);
    return 0;
}

int json_field_real(const cJSON *object, const char *name, double min, double max, double *out,
                    struct api_error *err)
{
    const cJSON *value = json_field_find(object, name);
    if (!value) return 0;
    double v;
    if (!json_field_number(value, &v)) return json_field_refuse_type(value, name, "a number", err);
    if (!(v >= min && v <= max))
        return api_error_invalid(err, "invalid_value", name, "%s must be a number from %g to %g; got %.9g",
                                 name, min, max, v);
    *out = v;
    return 0;
}

/* ---- the text of a top-level member ---- */

static size_t skip_space(const char *text, size_t n, size_t i)
{
    while (i < n && strchr(" \t\r\n", text[i]) && text[i]) i++;
    return i;
}

/* i is at an opening quote; returns the index after the closing one. */
static size_t skip_string(const char *text, size_t n, size_t i)
{
    for (i++; i < n && text[i] != '"'; i++)
        if (text[i] == '\\') i++;
    return i + 1;
}

/* Skips a value at i up to the ',' or '}' of the enclosing object. */
static size_t skip_value(const char *text, size_t n, size_t i)
{
    int depth = 0;
    while (i < n) {
        char c = text[i];
        if (depth == 0 && (c == ',' || c == '}')) break;
        if (c == '"') {
            i = skip_string(text, n, i);
            continue;
        }
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        i++;
    }
    return i;
}

/* The range of the value of the member, or false. */
static bool find_member(const char *text, size_t n, const char *name, size_t *begin, size_t *end)
{
    size_t name_bytes = strlen(name), i = skip_space(text, n, 0);
    if (i >= n || text[i] != '{') return false;
    i = skip_space(text, n, i + 1);
    while (i < n && text[i] == '"') {
        size_t key = i + 1, after = skip_string(text, n, i);
        i = skip_space(text, n, skip_space(text, n, after) + 1); /* past the colon */
        *begin = i;
        *end = i = skip_value(text, n, i);
        if (after - 1 - key == name_bytes && !memcmp(text + key, name, name_bytes)) return true;
        if (i >= n || text[i] != ',') return false;
        i = skip_space(text, n, i + 1);
    }
    return false;
}

bool json_field_raw_int64(const char *text, size_t n, const char *name, int64_t *out)
{
    size_t begin = 0, end = 0;
    char number[32];
    if (!find_member(text, n, name, &begin, &end)) return false;
    while (end > begin && strchr(" \t\r\n", text[end - 1])) end--;
    if (end == begin || end - begin >= sizeof number) return false;
    memcpy(number, text + begin, end - begin);
    number[end - begin] = '\0';
    char *stop;
    errno = 0;
    long long value = strtoll(number, &stop, 10);
    if (errno || *stop) return false;
    *out = value;
    return true;
}
