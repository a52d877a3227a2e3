/* quantised_cases.h - matrices of fresh random codes in every layout that checkpoints have, as a file has them and number by
 * number. Who includes it says how large they get, CASE_ROWS_MAX and CASE_COLS_MAX, and defines draw_between. */
#ifndef TESTS_KERNELS_QUANTISED_CASES_H
#define TESTS_KERNELS_QUANTISED_CASES_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "files/weight_view.h"
#include "tests/kernels/e4m3.h"

enum { CODES_MAX = CASE_ROWS_MAX * CASE_COLS_MAX };

/* A random number. */
static float draw_between(float low, float high);

/* Codes, scales and zero points as numbers, one for each weight; and as a file has them. */
struct quantised {
    struct weight_view view;
    int rows, cols;
    uint8_t codes[CODES_MAX], zeros[CODES_MAX];
    float scales[CODES_MAX];
    uint8_t data[CODES_MAX], zero_data[CODES_MAX], scale_data[4 * CODES_MAX];
    int32_t groups[CASE_COLS_MAX];
    float scale_values[CODES_MAX];
};

static int draw_below(int n)
{
    const int drawn = (int)draw_between(0, (float)n); /* n itself where it was rounded up */
    return min_of(drawn, n - 1);
}

static uint8_t random_code(enum dtype dtype)
{
    const int bits = dtype == DTYPE_F8_E4M3 || dtype == DTYPE_I8 ? 256 : 16;
    uint8_t code;
    do code = (uint8_t)draw_below(bits);
    while (dtype == DTYPE_F8_E4M3 && (code & 127) == 127);
    return code;
}

/* ---- the layouts, written apart from their readers ---- */

static void put_nibble(uint8_t *data, int64_t word, int place, uint8_t code)
{
    uint8_t *const byte = data + word * 4 + place / 2;
    *byte = (uint8_t)(*byte | code << (4 * (place % 2)));
}

static void put_code(struct quantised *q, int n, int k, uint8_t code)
{
    static const int awq_place[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t rows = q->rows, cols = q->cols;
    switch (q->view.scheme) {
    case WEIGHT_GPTQ:
        put_nibble(q->data, k / 8 * rows + n, k % 8, code);
        break;
    case WEIGHT_AWQ:
        put_nibble(q->data, k * rows / 8 + n / 8, awq_place[n % 8], code);
        break;
    default:
        if (q->view.dtype == DTYPE_F8_E4M3 || q->view.dtype == DTYPE_I8)
            q->data[n * cols + k] = code ^ q->view.codes.flip;
        else
            put_nibble(q->data, 0, (int)(n * cols + k), code);
    }
}

/* One place of the matrix of zero points, of which those of GPTQ and AWQ are transposed. */
static void put_zero(struct quantised *q, int n, int group, uint8_t zero)
{
    static const int awq_place[] = {0, 4, 1, 5, 2, 6, 3, 7};
    const int64_t num_groups = q->view.codes.zeros.cols;
    if (q->view.scheme == WEIGHT_SCALED)
        put_nibble(q->zero_data, n / 8 * num_groups + group, n % 8, zero);
    else
        put_nibble(q->zero_data, (group * q->rows + n) / 8,
                   q->view.scheme == WEIGHT_AWQ ? awq_place[n % 8] : n % 8, zero);
}

struct layout {
    const char *name;
    enum weight_scheme scheme;
    enum dtype dtype;
    int scale_rows, scale_cols; /* 0: all */
    bool zeros, ordered;
    uint8_t flip;
    enum scale_type scale_type;
};

static const struct layout layouts[] = {
    {"fp8, blocks", WEIGHT_SCALED, DTYPE_F8_E4M3, 128, 128, false, false, 0, SCALE_F32},
    {"fp8, rows", WEIGHT_SCALED, DTYPE_F8_E4M3, 1, 0, false, false, 0, SCALE_F32},
    {"fp8, one scale", WEIGHT_SCALED, DTYPE_F8_E4M3, 0, 0, false, false, 0, SCALE_F32},
    {"int8, rows", WEIGHT_SCALED, DTYPE_I8, 1, 0, false, false, 0, SCALE_F32},
    {"8 bits, groups of 128", WEIGHT_SCALED, DTYPE_I8, 1, 128, false, false, 0x80, SCALE_F32},
    {"4 bits, groups of 32", WEIGHT_SCALED, DTYPE_U4, 1, 32, false, false, 0, SCALE_F32},
    {"4 bits, groups of 64, zeros", WEIGHT_SCALED, DTYPE_U4, 1, 64, true, false, 0, SCALE_F32},
    {"4 bits, groups of 128, zeros", WEIGHT_SCALED, DTYPE_U4, 1, 128, true, false, 0, SCALE_F32},
    {"4 bits, rows", WEIGHT_SCALED, DTYPE_U4, 1, 0, false, false, 0, SCALE_F32},
    {"4 bits, groups of 32 in no order", WEIGHT_SCALED, DTYPE_U4, 1, 32, true, true, 0, SCALE_F32},
    {"nvfp4", WEIGHT_SCALED, DTYPE_F4_E2M1, 1, 16, false, false, 0, SCALE_F32},
    {"mxfp4", WEIGHT_SCALED, DTYPE_MXFP4, 1, 32, false, false, 0, SCALE_F32},
    {"gptq", WEIGHT_GPTQ, DTYPE_U4, 1, 128, true, false, 0, SCALE_F32},
    {"gptq, in no order", WEIGHT_GPTQ, DTYPE_U4, 1, 64, true, true, 0, SCALE_F32},
    {"awq", WEIGHT_AWQ, DTYPE_U4, 1, 128, true, false, 0, SCALE_F32},
    {"gptq, scales of f16", WEIGHT_GPTQ, DTYPE_U4, 1, 128, true, false, 0, SCALE_F16},
    {"awq, scales of f16", WEIGHT_AWQ, DTYPE_U4, 1, 128, true, false, 0, SCALE_F16},
    {"4 bits, groups of 32, scales of bf16", WEIGHT_SCALED, DTYPE_U4, 1, 32, false, false, 0, SCALE_BF16},
    {"4 bits, groups of 128, scales of bf16", WEIGHT_SCALED, DTYPE_U4, 1, 128, false, false, 0, SCALE_BF16},
    {"4 bits, rows, scales of bf16", WEIGHT_SCALED, DTYPE_U4, 1, 0, false, false, 0, SCALE_BF16},
    {"4 bits, groups of 128, zeros, scales of bf16", WEIGHT_SCALED, DTYPE_U4, 1, 128, true, false, 0,
     SCALE_BF16},
};

static int group_of(const struct quantised *q, int k)
{
    return q->view.codes.groups ? q->groups[k] : k / (int)q->view.codes.scale_cols;
}

static void shuffle_groups(struct quantised *q, int size)
{
    for (int k = 0; k < q->cols; k++) q->groups[k] = k / size;
    for (int k = q->cols - 1; k > 0; k--) {
        const int other = draw_below(k + 1), group = q->groups[k];
        q->groups[k] = q->groups[other];
        q->groups[other] = group;
    }
    q->view.codes.groups = q->groups;
}

/* One scale, rounded to its type, and as a file has it. */
static void put_scale(struct quantised *q, int i, float scale)
{
    const bool is_f16 = q->view.codes.scales.type == SCALE_F16;
    const uint16_t half = is_f16 ? dtype_f32_to_f16(scale) : dtype_f32_to_bf16(scale);
    if (q->view.codes.scales.type != SCALE_F32) {
        scale = is_f16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
        memcpy(q->scale_data + 2 * i, &half, sizeof half);
    } else
        memcpy(q->scale_data + 4 * i, &scale, sizeof scale);
    q->scale_values[i] = scale;
}

/* Of those without zero points some are negative. */
static void set_scales(struct quantised *q, enum scale_type type, int side_rows, int side_cols,
                       bool has_zeros)
{
    const int num_signs = type == SCALE_BF16 && !has_zeros ? 2 : 1;
    struct weight_side *s = &q->view.codes.scales;
    *s = (struct weight_side){q->scale_data, type, side_rows, side_cols};
    for (int i = 0; i < side_rows * side_cols; i++)
        put_scale(q, i, draw_between(0.001f, 0.01f) * (draw_below(num_signs) ? -1 : 1));
    if (q->view.dtype == DTYPE_F4_E2M1) q->view.codes.scale_divisor = 3.7f;
    if (q->view.dtype != DTYPE_MXFP4) return;
    s->type = SCALE_E8M0;
    for (int i = 0; i < side_rows * side_cols; i++) q->scale_data[i] = (uint8_t)(115 + draw_below(8));
}

/* What the file means, number by number. */
static float scale_of(const struct quantised *q, int n, int k)
{
    const struct weight_codes *c = &q->view.codes;
    const bool transposed = q->view.scheme != WEIGHT_SCALED;
    const int group = group_of(q, k);
    const int64_t at = transposed ? (int64_t)group * q->rows + n : n / c->scale_rows * c->scales.cols + group;
    if (c->scales.type == SCALE_E8M0) return ldexpf(1, q->scale_data[at] - 127);
    return q->scale_values[at] / c->scale_divisor;
}

static void fill(struct quantised *q, const struct layout *l, int rows, int cols)
{
    const int scale_rows = l->scale_rows ? l->scale_rows : rows,
              scale_cols = l->scale_cols ? l->scale_cols : cols;
    const int num_groups = (int)div_up(cols, scale_cols);
    memset(q, 0, sizeof *q);
    q->rows = rows;
    q->cols = cols;
    q->view = weight_view_plain(q->data, l->dtype, rows, cols);
    q->view.scheme = l->scheme;
    q->view.codes = (struct weight_codes){.scale_rows = scale_rows,
                                          .scale_cols = scale_cols,
                                          .scale_factor = 1,
                                          .scale_divisor = 1,
                                          .flip = l->flip,
                                          .zero = l->dtype == DTYPE_U4 ? l->zeros ? 1 : 8 : 0};
    if (l->ordered) shuffle_groups(q, scale_cols);
    if (l->scheme == WEIGHT_SCALED)
        set_scales(q, l->scale_type, (int)div_up(rows, scale_rows), num_groups, l->zeros);
    else
        set_scales(q, l->scale_type, num_groups, rows, l->zeros);
    if (l->zeros)
        q->view.codes.zeros = l->scheme == WEIGHT_SCALED
                                  ? (struct weight_side){q->zero_data, 0, rows, num_groups}
                                  : (struct weight_side){q->zero_data, 0, num_groups, rows};
    uint8_t zeros[CASE_ROWS_MAX][CASE_COLS_MAX];
    for (int n = 0; n < rows; n++)
        for (int g = 0; g < num_groups && l->zeros; g++)
            put_zero(q, n, g, zeros[n][g] = (uint8_t)draw_below(16));
    for (int n = 0; n < rows; n++)
        for (int k = 0; k < cols; k++) {
            const int64_t at = (int64_t)n * cols + k;
            put_code(q, n, k, q->codes[at] = random_code(l->dtype));
            q->scales[at] = scale_of(q, n, k);
            q->zeros[at] = (uint8_t)((l->zeros ? zeros[n][group_of(q, k)] : 0) + q->view.codes.zero);
        }
}

static double value_of(const struct quantised *q, int n, int k)
{
    static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const int64_t at = (int64_t)n * q->cols + k;
    const uint8_t code = q->codes[at];
    switch (q->view.dtype) {
    case DTYPE_F8_E4M3:
        return e4m3_value(code);
    case DTYPE_I8:
        return (int8_t)code;
    case DTYPE_U4:
        return code - q->zeros[at];
    default:
        return code & 8 ? -e2m1[code & 7] : e2m1[code & 7];
    }
}

#endif
