#include "files/weight_ternary.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

enum {
    FOLDS = 4, /* rows that share a byte */
    BLOCK_VALUES = 256,
    LINE_VALUES = 32,  /* of TQ2_0: of so many bytes the lowest bits, then the next ones */
    GROUP_VALUES = 32, /* of I2_S: as many bytes, the highest bits first */
    GGUF_SCALE_BYTES = 32,
    CODE_BYTES = BLOCK_VALUES / 4,
    BLOCK_BYTES = CODE_BYTES + 2
};

#define LEAST_MEAN 1e-5f
#define LEAST_F16 0x1p-14f /* that has all its digits */
#define LARGEST_F16 65504.0f

uint64_t weight_ternary_gguf_bytes(uint64_t rows, uint64_t cols)
{
    uint64_t values, bytes = 0;
    if (cols % TERNARY_GGUF_COLS || !checked_mul(rows, cols, &values) ||
        !checked_add(values / 4, GGUF_SCALE_BYTES, &bytes))
        return 0;
    return bytes;
}

struct weight_view weight_ternary_gguf_view(int64_t rows, int64_t cols)
{
    struct weight_view v = weight_view_plain(NULL, DTYPE_I8, rows, cols);
    v.scheme = WEIGHT_TERNARY;
    v.codes = (struct weight_codes){.scale_factor = 1, .scale_divisor = 1, .rows_lead = true};
    return v;
}

bool weight_ternary_gguf_take_scale(struct weight_view *v)
{
    memcpy(&v->codes.scale_factor, (const uint8_t *)v->data + v->rows * v->cols / 4,
           sizeof v->codes.scale_factor);
    return isfinite(v->codes.scale_factor) && v->codes.scale_factor != 0;
}

static bool has_floats(const struct weight_view *v)
{
    return v->scheme == WEIGHT_TERNARY_FLOATS;
}

/* Row n of all. */
static void read_floats(const struct weight_view *v, int64_t n, int64_t col, int num, float *out)
{
    const uint64_t at = (uint64_t)(n * v->cols + col) * dtype_row_bytes(v->dtype, 1);
    dtype_row_to_f32(v->dtype, (const uint8_t *)v->data + at, num, out);
}

double weight_ternary_row_sum(const struct weight_view *v, int64_t n)
{
    double sum = 0;
    float values[BLOCK_VALUES];
    assert_debug(has_floats(v) && n < v->rows);
    for (int64_t col = 0; col < v->cols; col += BLOCK_VALUES) {
        const int num = (int)min_of(v->cols - col, (int64_t)BLOCK_VALUES);
        read_floats(v, n, col, num, values);
        for (int i = 0; i < num; i++) sum += fabs((double)values[i]);
    }
    return sum;
}

float weight_ternary_mean(const struct weight_view *v, double sum)
{
    return fmaxf((float)(sum / ((double)v->rows * (double)v->cols)), LEAST_MEAN);
}

static float scale_of(const struct weight_view *v)
{
    const float scale = v->codes.scale_factor / v->codes.scale_divisor;
    if (!has_floats(v) || v->dtype == DTYPE_F32) return scale;
    return v->dtype == DTYPE_BF16 ? dtype_bf16_to_f32(dtype_f32_to_bf16(scale))
                                  : dtype_f16_to_f32(dtype_f32_to_f16(scale));
}

/* What is no number becomes 0. */
static void round_floats(const struct weight_view *v, int64_t n, int64_t col, int num, uint8_t *codes)
{
    const float inverse = 1 / v->codes.scale_factor;
    float values[BLOCK_VALUES];
    read_floats(v, n, col, num, values);
    for (int i = 0; i < num; i++) {
        const float x = values[i] * inverse;
        codes[i] = (uint8_t)(1 + (x > 0.5f) - (x < -0.5f));
    }
}

static void read_groups(const struct weight_view *v, int64_t n, int64_t col, int num, uint8_t *codes)
{
    const uint8_t *const from = (const uint8_t *)v->data + n * v->cols / 4;
    for (int i = 0; i < num; i++) {
        const int64_t at = (col + i) / TERNARY_GGUF_COLS, within = (col + i) % TERNARY_GGUF_COLS;
        const int shift = (int)(6 - 2 * (within / GROUP_VALUES));
        codes[i] = from[at * GROUP_VALUES + within % GROUP_VALUES] >> shift & 3;
    }
}

static void read_codes(const struct weight_view *v, int64_t row, int64_t col, int num, uint8_t *codes)
{
    const int64_t n = weight_view_file_row(v, row), fold_rows = v->rows / FOLDS;
    assert_debug(num <= BLOCK_VALUES && col >= 0 && col + num <= v->cols && n < v->rows);
    if (has_floats(v)) {
        round_floats(v, n, col, num, codes);
        return;
    }
    if (v->codes.rows_lead) {
        read_groups(v, n, col, num, codes);
        return;
    }
    const uint8_t *const from = (const uint8_t *)v->data + n % fold_rows * v->cols + col;
    const int shift = (int)(2 * (n / fold_rows));
    for (int i = 0; i < num; i++) codes[i] = from[i] >> shift & 3;
}

bool weight_ternary_fits_blocks(const struct weight_view *v)
{
    const float scale = fabsf(scale_of(v));
    return v->cols % BLOCK_VALUES == 0 && scale >= LEAST_F16 && scale <= LARGEST_F16;
}

void weight_ternary_to_blocks(const struct weight_view *v, int64_t row, uint8_t *out)
{
    const uint16_t scale = dtype_f32_to_f16(scale_of(v));
    uint8_t codes[BLOCK_VALUES];
    for (int64_t col = 0; col < v->cols; col += BLOCK_VALUES, out += BLOCK_BYTES) {
        read_codes(v, row, col, BLOCK_VALUES, codes);
        for (int i = 0; i < CODE_BYTES; i++) {
            const uint8_t *const c = codes + i / LINE_VALUES * 4 * LINE_VALUES + i % LINE_VALUES;
            out[i] =
                (uint8_t)(c[0] | c[LINE_VALUES] << 2 | c[2 * LINE_VALUES] << 4 | c[3 * LINE_VALUES] << 6);
        }
        memcpy(out + CODE_BYTES, &scale, sizeof scale);
    }
}

void weight_ternary_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    const float scale = scale_of(v);
    uint8_t codes[BLOCK_VALUES];
    read_codes(v, row, col, num, codes);
    for (int i = 0; i < num; i++) out[i] = (float)(codes[i] - 1) * scale;
}
