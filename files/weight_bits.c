#include "files/weight_bits.h"

#include <string.h>

#include "base/check.h"
#include "files/weight_codes.h"

/* Words that are stride apart, of which one may hold the end of a code that the one before began. */
struct stream {
    const uint8_t *words;
    int64_t stride;
    int bits;
};

static uint64_t word_at(const struct stream *s, int64_t i)
{
    uint32_t word;
    memcpy(&word, s->words + i * s->stride * 4, sizeof word);
    return word;
}

static int code_at(const struct stream *s, int64_t i)
{
    const int64_t first = i * s->bits, shift = first % 32;
    uint64_t words = word_at(s, first / 32);
    if (shift + s->bits > 32) words |= word_at(s, first / 32 + 1) << 32;
    return (int)(words >> shift & ((1u << s->bits) - 1));
}

static struct stream row_of(const struct weight_view *v, int64_t n)
{
    const int bits = v->codes.bits;
    const uint8_t *const data = v->data;
    if (v->codes.rows_lead) return (struct stream){data + n * div_up(v->cols * bits, 32) * 4, 1, bits};
    return (struct stream){data + n * 4, v->rows, bits};
}

static int zero_at(const struct weight_view *v, int64_t n, int64_t group)
{
    const struct weight_codes *c = &v->codes;
    const uint8_t *const data = c->zeros.data;
    if (!data) return 0;
    const struct stream zeros = c->rows_lead
                                    ? (struct stream){data + group * 4, c->zeros.cols, c->bits}
                                    : (struct stream){data + group * v->rows * c->bits / 8, 1, c->bits};
    return code_at(&zeros, n);
}

void weight_bits_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    const struct weight_codes *c = &v->codes;
    const int64_t n = v->slice.row_begin + row * v->slice.row_step;
    const struct stream codes = row_of(v, n);
    assert_debug(v->scheme == WEIGHT_BITS && col >= 0 && col + num <= v->cols);
    for (int64_t k = col; k < col + num; k++) {
        const int64_t group = weight_group_of(v, k);
        const float scale =
            c->rows_lead ? weight_scale_at(&c->scales, n, group) : weight_scale_at(&c->scales, group, n);
        out[k - col] = (float)(code_at(&codes, k) - zero_at(v, n, group) - c->zero) * scale;
    }
}
