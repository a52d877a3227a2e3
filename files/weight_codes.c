#include "files/weight_codes.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { WORD_CODES = 8 }; /* of four bits in 32 */

/* Where AWQ has the code of row n % 8 in its word. */
static const uint8_t awq_places[WORD_CODES] = {0, 4, 1, 5, 2, 6, 3, 7};

static uint32_t word_at(const void *data, int64_t i)
{
    uint32_t word;
    memcpy(&word, (const uint8_t *)data + i * 4, sizeof word);
    return word;
}

static uint8_t nibble_of(uint32_t word, int place)
{
    return (uint8_t)(word >> (4 * place) & 15);
}

static int64_t file_row(const struct code_block *b, int r)
{
    return b->view->slice.row_begin + (b->row + r) * b->view->slice.row_step;
}

static int64_t file_col(const struct code_block *b, int64_t col)
{
    return b->order ? b->order[col] : col;
}

/* ---- codes ---- */

static const uint8_t *file_line(const struct code_block *b, int r, int64_t row_bytes)
{
    return (const uint8_t *)b->view->data + file_row(b, r) * row_bytes;
}

/* MXFP4's own blocks of 17 bytes: see dtype.h. */
static uint8_t mxfp4_at(const uint8_t *row, int64_t col)
{
    const uint8_t *const block = row + col / 32 * 17 + 1;
    const int in_block = (int)(col % 32);
    return in_block < 16 ? block[in_block] & 15 : block[in_block - 16] >> 4;
}

static void read_mxfp4(const struct code_block *b, int64_t col, int num_cols, uint8_t (*codes)[CODE_ROWS])
{
    for (int r = 0; r < b->num_rows; r++) {
        const uint8_t *const row = file_line(b, r, b->view->cols / 32 * 17);
        for (int c = 0; c < num_cols; c++) codes[c][r] = mxfp4_at(row, col + c);
    }
}

static void read_bytes(const struct code_block *b, int64_t col, int num_cols, uint8_t (*codes)[CODE_ROWS])
{
    for (int r = 0; r < b->num_rows; r++) {
        const uint8_t *const row = file_line(b, r, b->view->cols);
        for (int c = 0; c < num_cols; c++) codes[c][r] = row[file_col(b, col + c)] ^ b->view->codes.flip;
    }
}

static void read_nibbles(const struct code_block *b, int64_t col, int num_cols, uint8_t (*codes)[CODE_ROWS])
{
    for (int r = 0; r < b->num_rows; r++) {
        const uint8_t *const row = file_line(b, r, b->view->cols / 2);
        for (int c = 0; c < num_cols; c++) {
            const int64_t k = file_col(b, col + c);
            codes[c][r] = row[k / 2] >> (4 * (k % 2)) & 15;
        }
    }
}

static void read_rows(const struct code_block *b, int64_t col, int num_cols, uint8_t (*codes)[CODE_ROWS])
{
    const struct weight_view *v = b->view;
    if (v->dtype == DTYPE_MXFP4 && v->scheme == WEIGHT_PLAIN)
        read_mxfp4(b, col, num_cols, codes);
    else if (v->dtype == DTYPE_F8_E4M3 || v->dtype == DTYPE_I8)
        read_bytes(b, col, num_cols, codes);
    else
        read_nibbles(b, col, num_cols, codes);
}

static void read_gptq(const struct code_block *b, int64_t col, int num_cols, uint8_t (*codes)[CODE_ROWS])
{
    for (int c = 0; c < num_cols; c++) {
        const int64_t k = file_col(b, col + c), line = k / WORD_CODES * b->view->rows;
        for (int r = 0; r < b->num_rows; r++)
            codes[c][r] = nibble_of(word_at(b->view->data, line + file_row(b, r)), (int)(k % WORD_CODES));
    }
}

static void read_awq(const struct code_block *b, int64_t col, int num_cols, uint8_t (*codes)[CODE_ROWS])
{
    for (int c = 0; c < num_cols; c++) {
        const int64_t line = (col + c) * (b->view->rows / WORD_CODES);
        for (int r = 0; r < b->num_rows; r++) {
            const int64_t n = file_row(b, r);
            codes[c][r] =
                nibble_of(word_at(b->view->data, line + n / WORD_CODES), awq_places[n % WORD_CODES]);
        }
    }
}

void weight_read_codes(const struct code_block *b, int64_t col, int num_cols, uint8_t (*codes)[CODE_ROWS])
{
    assert_debug(col >= 0 && col + num_cols <= b->view->cols && b->num_rows <= CODE_ROWS);
    switch (b->view->scheme) {
    case WEIGHT_PLAIN:
    case WEIGHT_TRANSPOSED:
    case WEIGHT_SCALED:
        read_rows(b, col, num_cols, codes);
        break;
    case WEIGHT_GPTQ:
        read_gptq(b, col, num_cols, codes);
        break;
    case WEIGHT_AWQ:
        read_awq(b, col, num_cols, codes);
        break;
    case WEIGHT_BITS: /* weight_check refuses these */
    case WEIGHT_TABLE:
    case WEIGHT_TURNED:
    case WEIGHT_NVFP4:
    case WEIGHT_HQQ:
    case WEIGHT_TERNARY:
    case WEIGHT_TERNARY_FLOATS:
        assert_always(false);
    }
}

/* ---- scales ---- */

float weight_scale_at(const struct weight_side *s, int64_t row, int64_t col)
{
    const int64_t at = row * s->cols + col;
    uint16_t half;
    float f;
    assert_debug(row >= 0 && row < s->rows && col >= 0 && col < s->cols);
    switch (s->type) {
    case SCALE_F32:
        memcpy(&f, (const uint8_t *)s->data + at * 4, sizeof f);
        return f;
    case SCALE_F16:
    case SCALE_BF16:
        memcpy(&half, (const uint8_t *)s->data + at * 2, sizeof half);
        return s->type == SCALE_F16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
    case SCALE_E4M3:
        return dtype_e4m3_to_f32(((const uint8_t *)s->data)[at]);
    case SCALE_E8M0:
        return dtype_e8m0_to_f32(((const uint8_t *)s->data)[at]);
    }
    return 0;
}

int64_t weight_group_of(const struct weight_view *v, int64_t col)
{
    return v->codes.groups ? (int32_t)word_at(v->codes.groups, col) : col / v->codes.scale_cols;
}

/* scale and zero point of (n, k) */
static void read_scale(const struct weight_view *v, int64_t n, int64_t k, float *scale, uint8_t *zero)
{
    const struct weight_codes *c = &v->codes;
    const struct weight_side *z = &c->zeros;
    const int64_t group = weight_group_of(v, k);
    if (v->scheme == WEIGHT_SCALED) {
        *scale = weight_scale_at(&c->scales, n / c->scale_rows, group);
        *zero = z->data ? nibble_of(word_at(z->data, n / WORD_CODES * z->cols + group), (int)(n % WORD_CODES))
                        : 0;
    } else {
        const int place = v->scheme == WEIGHT_AWQ ? awq_places[n % WORD_CODES] : (int)(n % WORD_CODES);
        *scale = weight_scale_at(&c->scales, group, n);
        *zero = z->data ? nibble_of(word_at(z->data, (group * z->cols + n) / WORD_CODES), place) : 0;
    }
    *scale = *scale * c->scale_factor / c->scale_divisor;
    *zero = (uint8_t)(*zero + c->zero);
}

void weight_read_scales(const struct code_block *b, int64_t col, float *scales, uint8_t *zeros)
{
    const struct weight_view *v = b->view;
    assert_debug(col >= 0 && col < v->cols);
    for (int r = 0; r < b->num_rows; r++) {
        if (v->scheme != WEIGHT_PLAIN) {
            read_scale(v, file_row(b, r), file_col(b, col), &scales[r], &zeros[r]);
            continue;
        }
        const uint8_t *const row = (const uint8_t *)v->data + file_row(b, r) * (v->cols / 32 * 17);
        scales[r] = v->dtype == DTYPE_MXFP4 ? dtype_e8m0_to_f32(row[col / 32 * 17]) : 1;
        zeros[r] = 0;
    }
}

/* ---- groups of columns ---- */

bool weight_groups_ascend(const struct weight_view *v)
{
    for (int64_t k = 0; v->codes.groups && k < v->cols; k++)
        if (weight_group_of(v, k) != k / v->codes.scale_cols) return false;
    return true;
}

/* Until a group is full, the last of its places counts what it has. */
void weight_order_columns(const struct weight_view *v, int32_t *order)
{
    const int64_t size = v->codes.scale_cols;
    memset(order, 0, (size_t)v->cols * sizeof *order);
    for (int64_t k = 0; k < v->cols; k++) {
        const int64_t begin = weight_group_of(v, k) * size, last = min_of(begin + size, v->cols) - 1;
        const int64_t next = begin + order[last];
        assert_debug(next <= last);
        if (next < last) order[last]++;
        order[next] = (int32_t)k;
    }
}

int weight_check_groups(const struct weight_view *v, struct error *err)
{
    const int64_t num_groups = div_up(v->cols, v->codes.scale_cols);
    int64_t *const left = calloc((size_t)num_groups, sizeof *left), wrong = -1;
    if (!left) return error_set(err, STATUS_NO_MEMORY, "has groups for which there is no memory");
    for (int64_t g = 0; g < num_groups; g++)
        left[g] = min_of(v->codes.scale_cols, v->cols - g * v->codes.scale_cols);
    for (int64_t k = 0; k < v->cols && wrong < 0; k++) {
        const int64_t group = weight_group_of(v, k);
        if (group < 0 || group >= num_groups || left[group]-- == 0) wrong = k;
    }
    free(left);
    if (wrong < 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "puts column %lld into group %lld, which is full or none",
                     (long long)wrong, (long long)weight_group_of(v, wrong));
}

int weight_check(const struct weight_view *v, struct error *err)
{
    const struct weight_codes *c = &v->codes;
    if (!weight_view_has_codes(v)) return weight_view_check_whole(v, err);
    if (v->scheme == WEIGHT_TABLE || v->scheme == WEIGHT_BITS || v->scheme == WEIGHT_TURNED ||
        v->scheme == WEIGHT_HQQ || v->dtype < DTYPE_MXFP4 || !c->scales.data || c->scale_rows < 1 ||
        c->scale_cols < 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "weights of type %s have no scales of their own, or are to be unpacked before",
                         dtype_infos[v->dtype].text);
    if (v->slice.col_begin != 0 || v->slice.col_end != v->cols)
        return error_set(err, STATUS_UNSUPPORTED, "some columns of a quantised weight are no weight");
    return c->groups ? weight_check_groups(v, err) : STATUS_OK;
}
