#include "files/weight_bits.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "files/weight_codes.h"

enum {
    BLOCK_VALUES = 32,
    TILE_ROWS = 8,
    TILE_COLS = 128,
    TILE_COLS_MULTIPLE = 1024,
    TILE_LANES = 32,
    TILE_WORD_COLS = 32
};

#define LARGEST_ERROR 0x1p-12f /* of the largest weight */
#define LEAST_EXACT 0x1p-17f   /* whose eight digits in BF16 are some of F16's */
#define LARGEST_F16 65504.0f

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

int64_t weight_bits_tiles_of_row(int64_t cols)
{
    return div_up(cols, (int64_t)TILE_COLS_MULTIPLE) * (TILE_COLS_MULTIPLE / TILE_COLS);
}

static int tiled_code_at(const struct weight_view *v, int64_t n, int64_t k)
{
    const struct stream words = {v->data, 1, 4};
    const int64_t tile = n / TILE_ROWS * weight_bits_tiles_of_row(v->cols) + k / TILE_COLS,
                  lane = n % TILE_ROWS * 4 + k % 8 / 2, word = k % TILE_COLS / TILE_WORD_COLS;
    const int place = (int)(k % TILE_WORD_COLS / 8 + k % 2 * 4);
    return (int)(word_at(&words, (tile * TILE_LANES + lane) * 4 + word) >> (4 * place) & 15);
}

static int paired_code_at(const struct weight_view *v, int64_t n, int64_t k)
{
    return ((const uint8_t *)v->data)[n / 2 * v->cols + k] >> (n % 2 ? 4 : 0) & 15;
}

/* A scale or an offset. */
static float side_at(const struct weight_view *v, const struct weight_side *side, int64_t n, int64_t group)
{
    const struct weight_codes *c = &v->codes;
    if (c->is_tiled) return weight_scale_at(side, group, 2 * n);
    return c->rows_lead && !c->sides_turned ? weight_scale_at(side, n, group)
                                            : weight_scale_at(side, group, n);
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
        const int stored = c->is_tiled    ? tiled_code_at(v, n, k)
                           : c->is_paired ? paired_code_at(v, n, k)
                                          : code_at(&codes, k),
                  code = stored ^ c->flip;
        const float product =
            (float)(code - zero_at(v, n, group) - c->zero) * side_at(v, &c->scales, n, group);
        out[k - col] = c->offsets.data ? product + side_at(v, &c->offsets, n, group) : product;
    }
}

/* ---- as blocks ---- */

enum dtype weight_bits_block_dtype(const struct weight_view *v)
{
    return v->codes.bits == 5 ? DTYPE_Q5_1 : DTYPE_Q4_1;
}

static float error_in_f16(enum scale_type type, float x)
{
    const float size = fabsf(x);
    if (type == SCALE_F16 || (type == SCALE_BF16 && size >= LEAST_EXACT && size <= LARGEST_F16)) return 0;
    return fabsf(dtype_f16_to_f32(dtype_f32_to_f16(x)) - x);
}

bool weight_bits_fit_blocks(const struct weight_view *v)
{
    const struct weight_codes *c = &v->codes;
    const float last_code = (float)((1 << c->bits) - 1);
    float largest = 0, error = 0;
    if (!c->offsets.data || c->zero || c->bits > 5 || c->scale_cols % BLOCK_VALUES) return false;
    for (int64_t row = 0; row < weight_view_num_rows(v); row++) {
        const int64_t n = weight_view_file_row(v, row);
        for (int64_t group = 0; group < c->scales.cols; group++) {
            const float scale = weight_scale_at(&c->scales, n, group),
                        offset = weight_scale_at(&c->offsets, n, group);
            const float own =
                error_in_f16(c->scales.type, scale) * last_code + error_in_f16(c->offsets.type, offset);
            largest = fmaxf(largest, fmaxf(fabsf(offset), fabsf(offset + scale * last_code)));
            if (!isfinite(own)) return false;
            error = fmaxf(error, own);
        }
    }
    return error <= LARGEST_ERROR * largest;
}

/* The fifth bits are behind the scale and the offset, those of four of the first half and of the second share a byte. */
static void put_block(enum dtype dtype, const uint16_t *scale_and_offset, const uint8_t *codes, uint8_t *out)
{
    uint32_t fifth = 0;
    for (int i = 0; i < BLOCK_VALUES; i++) fifth |= (uint32_t)(codes[i] >> 4) << i;
    memcpy(out, scale_and_offset, 4);
    out += 4;
    if (dtype == DTYPE_Q5_1) {
        memcpy(out, &fifth, sizeof fifth);
        out += sizeof fifth;
    }
    for (int i = 0; i < BLOCK_VALUES / 2; i++)
        out[i] = (uint8_t)((codes[i] & 15) | (codes[i + BLOCK_VALUES / 2] & 15) << 4);
}

void weight_bits_to_blocks(const struct weight_view *v, int64_t row, uint8_t *out)
{
    const struct weight_codes *c = &v->codes;
    const int64_t n = weight_view_file_row(v, row);
    const struct stream stream = row_of(v, n);
    const enum dtype dtype = weight_bits_block_dtype(v);
    for (int64_t col = 0; col < v->cols; col += BLOCK_VALUES, out += dtype_infos[dtype].block_bytes) {
        const int64_t group = weight_group_of(v, col);
        const uint16_t sides[] = {dtype_f32_to_f16(weight_scale_at(&c->scales, n, group)),
                                  dtype_f32_to_f16(weight_scale_at(&c->offsets, n, group))};
        uint8_t codes[BLOCK_VALUES];
        for (int i = 0; i < BLOCK_VALUES; i++) codes[i] = (uint8_t)code_at(&stream, col + i);
        put_block(dtype, sides, codes, out);
    }
}
