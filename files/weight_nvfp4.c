#include "files/weight_nvfp4.h"

#include "base/check.h"

enum { SCALES = NVFP4_COLS / NVFP4_SCALE_COLS, HALF = NVFP4_SCALE_COLS / 2, NOT_A_NUMBER = 0x7f };

uint64_t weight_nvfp4_row_bytes(uint64_t cols)
{
    uint64_t bytes = 0;
    if (cols % NVFP4_COLS || !checked_mul(cols / NVFP4_COLS, (uint64_t)NVFP4_BYTES, &bytes)) return 0;
    return bytes;
}

struct weight_view weight_nvfp4_view(const void *data, int64_t rows, int64_t cols)
{
    struct weight_view v = weight_view_plain(data, DTYPE_F4_E2M1, rows, cols);
    v.scheme = WEIGHT_NVFP4;
    v.codes = (struct weight_codes){
        .scales = {.type = SCALE_E4M3, .rows = rows, .cols = cols / NVFP4_SCALE_COLS}, /* inside of blocks */
        .scale_rows = 1,
        .scale_cols = NVFP4_SCALE_COLS,
        .scale_factor = 1,
        .scale_divisor = 1};
    return v;
}

static const uint8_t *block_at(const struct weight_view *v, int64_t row, int64_t col)
{
    const int64_t file_row = v->slice.row_begin + row * v->slice.row_step;
    assert_debug(v->scheme == WEIGHT_NVFP4 && file_row < v->slice.row_end && col < v->cols);
    return (const uint8_t *)v->data + (file_row * v->cols + col) / NVFP4_COLS * NVFP4_BYTES;
}

static uint8_t scale_of(const uint8_t *block, int i)
{
    const uint8_t code = block[i] & 0x7f;
    return code == NOT_A_NUMBER ? 0 : code;
}

/* Of column i of 64. */
static uint8_t code_of(const uint8_t *block, int i)
{
    const int within = i % NVFP4_SCALE_COLS;
    const uint8_t pair = block[SCALES + i / NVFP4_SCALE_COLS * HALF + within % HALF];
    return within < HALF ? pair & 15 : pair >> 4;
}

void weight_nvfp4_split(const struct weight_view *v, int64_t row, uint8_t *codes, uint8_t *scales)
{
    for (int64_t col = 0; col < v->cols; col += NVFP4_COLS) {
        const uint8_t *const block = block_at(v, row, col);
        for (int i = 0; i < SCALES; i++) *scales++ = scale_of(block, i);
        for (int i = 0; i < NVFP4_COLS; i += 2)
            *codes++ = (uint8_t)(code_of(block, i) | code_of(block, i + 1) << 4);
    }
}

void weight_nvfp4_to_f32(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    assert_debug(col % NVFP4_COLS == 0 && num % NVFP4_COLS == 0);
    for (int i = 0; i < num; i++) {
        const uint8_t *const block = block_at(v, row, col + i);
        const float scale = dtype_e4m3_to_f32(scale_of(block, i % NVFP4_COLS / NVFP4_SCALE_COLS));
        out[i] = dtype_e2m1_values[code_of(block, i % NVFP4_COLS)] * (scale * v->codes.scale_factor);
    }
}
