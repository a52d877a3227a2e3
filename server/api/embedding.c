#include "server/api/embedding.h"

#include <math.h>
#include <nettle/base64.h>
#include <string.h>

#include "base/check.h"
#include "server/api/json_field.h"
#include "server/api/number_text.h"

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
    char *at = buffer_reserve(out, 2 + (size_t)n * (NUMBER_CHARS_MAX + 1)), *begin = at;
    if (!at) return;
    *at++ = '[';
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) *at++ = ',';
        at += number_write_float(at, (float)((double)row[i] * scale));
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
