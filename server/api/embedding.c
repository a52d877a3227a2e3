#include "server/api/embedding.h"

#include <math.h>
#include <nettle/base64.h>
#include <string.h>

#include "base/check.h"
#include "server/api/json_field.h"

/* ---- what is asked for ---- */

/* A field that is one of two words, or the first alone where the second is NULL; without it the first. */
static int read_word(const cJSON *body, const char *name, const char *const words[2], bool *is_second,
                     struct api_error *err)
{
    const cJSON *value = json_field_find(body, name);
    const char *word = value ? cJSON_GetStringValue(value) : words[0];
    if (!word) return json_field_refuse_type(value, name, "a string", err);
    *is_second = words[1] && !strcmp(word, words[1]);
    if (*is_second || !strcmp(word, words[0])) return 0;
    return api_error_invalid(err, "invalid_value", name, "%s must be \"%s\"%s%s%s", name, words[0],
                             words[1] ? " or \"" : "", words[1] ? words[1] : "", words[1] ? "\"" : "");
}

/* The bytes of a number, and how many tokens a text has. */
static int read_words(const cJSON *body, struct embedding_form *out, struct api_error *err)
{
    static const char *const encodings[] = {"float", "base64"}, *const types[] = {"float32", NULL},
                             *const output_types[] = {"float", NULL}, *const orders[] = {"native", "little"},
                             *const paddings[] = {"do_not_pad", NULL};
    bool ignored, jinas = false;
    int status = read_word(body, "encoding_format", encodings, &out->base64, err);
    if (status == 0) status = read_word(body, "embedding_type", encodings, &jinas, err);
    out->base64 |= jinas;
    if (status == 0) status = read_word(body, "embed_dtype", types, &ignored, err);
    if (status == 0) status = read_word(body, "output_dtype", output_types, &ignored, err); /* Voyage's */
    if (status == 0) status = read_word(body, "endianness", orders, &ignored, err);
    return status < 0 ? status : read_word(body, "padding", paddings, &ignored, err);
}

int embedding_form_read(const struct server *server, const cJSON *body, struct embedding_form *out,
                        struct api_error *err)
{
    int64_t dimensions = server->facts->embedding_size;
    *out = (struct embedding_form){.normalized = true};
    int status = read_words(body, out, err);
    if (status == 0) status = json_field_int(body, "output_dimension", 1, dimensions, &dimensions, err);
    if (status == 0)
        status = json_field_int(body, "dimensions", 1, server->facts->embedding_size, &dimensions, err);
    if (status == 0) status = json_field_bool(body, "normalize", &out->normalized, err);
    if (status == 0) status = json_field_bool(body, "use_activation", &out->normalized, err);
    out->dimensions = (int32_t)dimensions;
    return status;
}

/* ---- numbers ---- */

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10,
                                       1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21,
                                       1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31, 1e32,
                                       1e33, 1e34, 1e35, 1e36, 1e37, 1e38, 1e39, 1e40, 1e41, 1e42, 1e43,
                                       1e44, 1e45, 1e46, 1e47, 1e48, 1e49, 1e50, 1e51, 1e52, 1e53};

static double scaled(double x, int exponent)
{
    assert_debug(exponent < (int)array_length(powers_of_ten) && -exponent < (int)array_length(powers_of_ten));
    return exponent >= 0 ? x * powers_of_ten[exponent] : x / powers_of_ten[-exponent];
}

/* x > 0 as digits * 10^(*exponent - 8), digits of 9 places. */
static int64_t nine_digits(double x, int *exponent)
{
    int64_t digits;
    *exponent = (int)floor(log10(x));
    digits = llrint(scaled(x, 8 - *exponent));
    if (digits < 100000000) digits = llrint(scaled(x, 8 - --*exponent));
    if (digits < 1000000000) return digits;
    ++*exponent;
    return digits / 10;
}

/* The digits without zeros at their end; returns how many. */
static int write_digits(char out[9], int64_t digits)
{
    int num = 9;
    for (int i = 8; i >= 0; i--, digits /= 10) out[i] = (char)('0' + digits % 10);
    while (num > 1 && out[num - 1] == '0') num--;
    return num;
}

static size_t write_exponent(char *out, int exponent)
{
    size_t n = 0;
    out[n++] = 'e';
    if (exponent < 0) out[n++] = '-';
    if (exponent < 0) exponent = -exponent;
    if (exponent >= 10) out[n++] = (char)('0' + exponent / 10);
    out[n++] = (char)('0' + exponent % 10);
    return n;
}

size_t embedding_write_float(char out[FLOAT_CHARS_MAX], float x)
{
    char digits[9];
    int exponent = 0, zeros;
    size_t n = 0;
    if (signbit(x)) out[n++] = '-';
    if (x == 0) {
        out[n++] = '0';
        return n;
    }
    int num = write_digits(digits, nine_digits(fabs((double)x), &exponent));
    bool is_plain = exponent < 0 && exponent >= -5;
    if (is_plain) {
        out[n++] = '0';
        out[n++] = '.';
        for (zeros = exponent + 1; zeros < 0; zeros++) out[n++] = '0';
        memcpy(out + n, digits, (size_t)num);
        return n + (size_t)num;
    }
    out[n++] = digits[0];
    if (num > 1) out[n++] = '.';
    memcpy(out + n, digits + 1, (size_t)num - 1);
    n += (size_t)num - 1;
    return exponent == 0 ? n : n + write_exponent(out + n, exponent);
}

/* ---- the embedding ---- */

static double scale_of(const float *row, const struct embedding_form *form)
{
    double sum = 0;
    if (!form->normalized) return 1;
    for (int32_t i = 0; i < form->dimensions; i++) sum += (double)row[i] * (double)row[i];
    return sum > 0 ? 1 / sqrt(sum) : 1;
}

static void append_numbers(struct buffer *out, const float *row, int32_t n, double scale)
{
    char *at = buffer_reserve(out, 2 + (size_t)n * (FLOAT_CHARS_MAX + 1)), *begin = at;
    if (!at) return;
    *at++ = '[';
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) *at++ = ',';
        at += embedding_write_float(at, (float)((double)row[i] * scale));
    }
    *at++ = ']';
    buffer_commit(out, (size_t)(at - begin));
}

/* In pieces of three floats, which are whole letters. */
static void append_base64(struct buffer *out, const float *row, int32_t n, double scale)
{
    enum {
        PIECE = 3,
        PIECE_BYTES = PIECE * sizeof(float),
        PIECE_LETTERS = BASE64_ENCODE_RAW_LENGTH(PIECE_BYTES)
    };
    char *at = buffer_reserve(out, 2 + ((size_t)n / PIECE + 1) * PIECE_LETTERS), *begin = at;
    if (!at) return;
    *at++ = '"';
    for (int32_t i = 0; i < n; i += PIECE) {
        float values[PIECE];
        size_t num = (size_t)min_of((int32_t)PIECE, n - i);
        for (size_t k = 0; k < num; k++) values[k] = (float)((double)row[i + (int32_t)k] * scale);
        base64_encode_raw(at, num * sizeof(float), (const uint8_t *)values);
        at += BASE64_ENCODE_RAW_LENGTH(num * sizeof(float));
    }
    *at++ = '"';
    buffer_commit(out, (size_t)(at - begin));
}

void embedding_append(struct buffer *out, const float *row, const struct embedding_form *form)
{
    double scale = scale_of(row, form);
    (form->base64 ? append_base64 : append_numbers)(out, row, form->dimensions, scale);
}
