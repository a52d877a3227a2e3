#include "model/unpacked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/parallel.h"
#include "files/weight_bits.h"
#include "files/weight_bytes.h"
#include "files/weight_factors.h"
#include "files/weight_hqq.h"
#include "files/weight_nvfp4.h"
#include "files/weight_table.h"
#include "files/weight_ternary.h"
#include "files/weight_turned.h"

enum {
    CHUNK = 256 /* columns at a time */,
    LEAST_VALUES = 1 << 18 /* that are worth a thread */,
    FEW_VALUES = 1 << 21
};

struct unpacked_matrix {
    struct unpacked_matrix *next;
    _Alignas(16) uint8_t data[];
};

/* to: values of BF16, or codes, behind which lie scales. */
struct unpack_task {
    const struct weight_view *from;
    void *to;
    uint8_t *scales;
};

static void read_chunk(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    if (weight_has_factors(v)) {
        weight_factors_to_f32(v, row, col, num, out);
        return;
    }
    switch (v->scheme) {
    case WEIGHT_TABLE:
        weight_table_to_f32(v, row, col, num, out);
        return;
    case WEIGHT_BITS:
        weight_bits_to_f32(v, row, col, num, out);
        return;
    case WEIGHT_HQQ:
        weight_hqq_to_f32(v, row, col, num, out);
        return;
    case WEIGHT_NVFP4:
        weight_nvfp4_to_f32(v, row, col, num, out);
        return;
    case WEIGHT_TERNARY:
    case WEIGHT_TERNARY_FLOATS:
        weight_ternary_to_f32(v, row, col, num, out);
        return;
    case WEIGHT_SCALED:
        weight_bytes_to_f32(v, row, col, num, out);
        return;
    default:
        break;
    }
    const uint64_t begin = (uint64_t)row * dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    dtype_row_to_f32(v->dtype, (const uint8_t *)v->data + begin + dtype_row_bytes(v->dtype, (uint64_t)col),
                     num, out);
}

static void store_values(enum dtype dtype, void *to, int64_t first, int num, const float *values)
{
    for (int i = 0; i < num; i++) {
        if (dtype == DTYPE_F32)
            ((float *)to)[first + i] = values[i];
        else
            ((uint16_t *)to)[first + i] =
                dtype == DTYPE_BF16 ? dtype_f32_to_bf16(values[i]) : dtype_f32_to_f16(values[i]);
    }
}

/* Few values with offsets, as of a router, by which tokens choose their experts, lose nothing. */
static enum dtype rounded_dtype(const struct weight_view *view)
{
    const bool is_of_mlx = view->scheme == WEIGHT_BITS && view->codes.offsets.data && !view->codes.zero;
    return is_of_mlx && weight_view_num_rows(view) * view->cols <= FEW_VALUES ? DTYPE_F32 : DTYPE_BF16;
}

static void round_rows(void *context, int64_t begin, int64_t end)
{
    const struct unpack_task *t = context;
    const int64_t cols = t->from->cols;
    const enum dtype dtype = rounded_dtype(t->from);
    for (int64_t row = begin; row < end; row++) {
        for (int64_t col = 0; col < cols; col += CHUNK) {
            const int num = (int)min_of(cols - col, (int64_t)CHUNK);
            float values[CHUNK];
            read_chunk(t->from, row, col, num, values);
            store_values(dtype, t->to, row * cols + col, num, values);
        }
    }
}

static void split_rows(void *context, int64_t begin, int64_t end)
{
    const struct unpack_task *t = context;
    const int64_t cols = t->from->cols;
    for (int64_t row = begin; row < end; row++)
        weight_nvfp4_split(t->from, row, (uint8_t *)t->to + row * (cols / 2),
                           t->scales + row * (cols / NVFP4_SCALE_COLS));
}

/* Of values that do not lie one row after another. */
static void gather_rows(void *context, int64_t begin, int64_t end)
{
    const struct unpack_task *t = context;
    const struct weight_view *v = t->from;
    const bool is_turned = v->scheme == WEIGHT_TRANSPOSED;
    const uint64_t bytes = dtype_row_bytes(v->dtype, is_turned ? 1 : (uint64_t)v->cols);
    const int64_t num = is_turned ? v->cols : 1;
    for (int64_t row = begin; row < end; row++) {
        const int64_t file_row = weight_view_file_row(v, row);
        for (int64_t i = 0; i < num; i++)
            memcpy((uint8_t *)t->to + (uint64_t)(row * num + i) * bytes,
                   (const uint8_t *)v->data + (uint64_t)(i * v->rows + file_row) * bytes, bytes);
    }
}

static void turn_rows(void *context, int64_t begin, int64_t end)
{
    const struct unpack_task *t = context;
    weight_turned_codes(t->from, begin, end, t->to);
}

static bool is_ternary(const struct weight_view *view)
{
    return view->scheme == WEIGHT_TERNARY || view->scheme == WEIGHT_TERNARY_FLOATS;
}

static enum dtype block_dtype(const struct weight_view *view)
{
    return is_ternary(view) ? DTYPE_TQ2_0 : weight_bits_block_dtype(view);
}

static void block_rows(void *context, int64_t begin, int64_t end)
{
    const struct unpack_task *t = context;
    const uint64_t bytes = dtype_row_bytes(block_dtype(t->from), (uint64_t)t->from->cols);
    for (int64_t row = begin; row < end; row++) {
        uint8_t *const to = (uint8_t *)t->to + (uint64_t)row * bytes;
        if (is_ternary(t->from))
            weight_ternary_to_blocks(t->from, row, to);
        else
            weight_bits_to_blocks(t->from, row, to);
    }
}

bool unpacked_is_scattered(const struct weight_view *view)
{
    return view->data && (view->scheme == WEIGHT_TRANSPOSED || view->slice.row_run > 1);
}

bool unpacked_is_needed(const struct weight_view *view, bool has_rare_dtypes)
{
    if (!view->data) return false;
    return view->scheme == WEIGHT_TABLE || view->scheme == WEIGHT_BITS || view->scheme == WEIGHT_NVFP4 ||
           view->scheme == WEIGHT_TURNED || view->scheme == WEIGHT_HQQ || is_ternary(view) ||
           weight_bytes_are_fine(view) || weight_has_factors(view) ||
           (dtype_is_rare(view->dtype) && !has_rare_dtypes);
}

/* Codes of whole rows, with scales of their own. */
static struct weight_view scaled_view(const struct weight_view *from, const struct unpack_task *t)
{
    const int64_t rows = weight_view_num_rows(from);
    struct weight_view v = weight_view_plain(t->to, DTYPE_F4_E2M1, rows, from->cols);
    v.scheme = WEIGHT_SCALED;
    v.codes = from->codes;
    v.codes.scales.data = t->scales;
    v.codes.scales.rows = rows;
    return v;
}

/* What a view becomes. */
enum form { ROUNDED, SPLIT, GATHERED, TURNED, IN_BLOCKS };

static enum form form_of(const struct weight_view *view, bool takes_codes)
{
    if (view->scheme == WEIGHT_TURNED) return TURNED;
    if (is_ternary(view)) return weight_ternary_fits_blocks(view) ? IN_BLOCKS : ROUNDED;
    if (view->scheme == WEIGHT_BITS && weight_bits_fit_blocks(view)) return IN_BLOCKS;
    if (view->scheme == WEIGHT_NVFP4 && takes_codes) return SPLIT;
    return unpacked_is_scattered(view) ? GATHERED : ROUNDED;
}

static uint64_t bytes_of(const struct weight_view *view, enum form form)
{
    const uint64_t rows = (uint64_t)weight_view_num_rows(view), cols = (uint64_t)view->cols;
    switch (form) {
    case TURNED:
        return weight_turned_bytes(view);
    case SPLIT:
        return rows * weight_nvfp4_row_bytes(cols);
    case GATHERED:
        return rows * dtype_row_bytes(view->dtype, cols);
    case IN_BLOCKS:
        return rows * dtype_row_bytes(block_dtype(view), cols);
    case ROUNDED:
        break;
    }
    return rows * dtype_row_bytes(rounded_dtype(view), cols);
}

static struct weight_view made_view(const struct unpack_task *t, enum form form)
{
    const struct weight_view *from = t->from;
    if (form == TURNED) return weight_turned_view(from, t->to);
    if (form == SPLIT) return scaled_view(from, t);
    const enum dtype dtype = form == GATHERED    ? from->dtype
                             : form == IN_BLOCKS ? block_dtype(from)
                                                 : rounded_dtype(from);
    return weight_view_plain(t->to, dtype, weight_view_num_rows(from), from->cols);
}

static struct unpacked_matrix *add_matrix(struct unpacked *u, const struct weight_view *view,
                                          uint64_t num_bytes, struct error *err)
{
    struct unpacked_matrix *m = malloc(sizeof *m + num_bytes);
    if (!m) {
        (void)error_set(err, STATUS_NO_MEMORY, "no memory to unpack a weight of %lld x %lld",
                        (long long)weight_view_num_rows(view), (long long)view->cols);
        return NULL;
    }
    m->next = u->first;
    u->first = m;
    return m;
}

static int64_t rows_of_a_thread(int64_t cols)
{
    return max_of(LEAST_VALUES / max_of(cols, (int64_t)1), (int64_t)1);
}

struct sum_task {
    const struct weight_view *of;
    double *rows;
};

static void sum_rows(void *context, int64_t begin, int64_t end)
{
    const struct sum_task *t = context;
    for (int64_t n = begin; n < end; n++) t->rows[n] = weight_ternary_row_sum(t->of, n);
}

/* Of values that become ternary: their mean, in an order that depends on nothing. */
static int find_mean(struct weight_view *view, struct error *err)
{
    double sum = 0;
    struct sum_task task = {view, malloc((size_t)view->rows * sizeof *task.rows)};
    if (!task.rows) return error_set(err, STATUS_NO_MEMORY, "no memory for the sums of a weight's rows");
    parallel_ranges(view->rows, rows_of_a_thread(view->cols), sum_rows, &task);
    for (int64_t n = 0; n < view->rows; n++) sum += task.rows[n];
    free(task.rows);
    view->codes.scale_factor = weight_ternary_mean(view, sum);
    return STATUS_OK;
}

int unpacked_make(struct unpacked *u, struct weight_view *view, bool takes_codes, struct error *err)
{
    static void (*const make_rows[])(void *context, int64_t begin, int64_t end) = {[ROUNDED] = round_rows,
                                                                                   [SPLIT] = split_rows,
                                                                                   [GATHERED] = gather_rows,
                                                                                   [TURNED] = turn_rows,
                                                                                   [IN_BLOCKS] = block_rows};
    int status = view->scheme == WEIGHT_TERNARY_FLOATS ? find_mean(view, err) : STATUS_OK;
    if (status) return status;
    const enum form form = form_of(view, takes_codes);
    const int64_t rows = weight_view_num_rows(view), cols = view->cols;
    struct unpacked_matrix *m = add_matrix(u, view, bytes_of(view, form), err);
    if (!m) return STATUS_NO_MEMORY;
    struct unpack_task task = {.from = view, .to = m->data};
    if (form == SPLIT) task.scales = m->data + rows * (cols / 2);
    parallel_ranges(rows, rows_of_a_thread(cols), make_rows[form], &task);
    *view = made_view(&task, form);
    return STATUS_OK;
}

static float length_of_row(const struct weight_view *v, int64_t row)
{
    double squares = 0;
    float values[CHUNK];
    for (int64_t col = 0; col < v->cols; col += CHUNK) {
        const int num = (int)min_of(v->cols - col, (int64_t)CHUNK);
        read_chunk(v, row, col, num, values);
        for (int i = 0; i < num; i++) squares += (double)values[i] * (double)values[i];
    }
    return (float)sqrt(squares);
}

/* A row of zeros stays one. */
static void divide_rows(void *context, int64_t begin, int64_t end)
{
    const struct unpack_task *t = context;
    const struct weight_view *v = t->from;
    for (int64_t row = begin; row < end; row++) {
        const float length = fmaxf(length_of_row(v, row), 1e-12f);
        for (int64_t col = 0; col < v->cols; col += CHUNK) {
            const int num = (int)min_of(v->cols - col, (int64_t)CHUNK);
            float values[CHUNK];
            read_chunk(v, row, col, num, values);
            for (int i = 0; i < num; i++) values[i] /= length;
            store_values(v->dtype, t->to, row * v->cols + col, num, values);
        }
    }
}

int unpacked_make_unit_rows(struct unpacked *u, struct weight_view *view, struct error *err)
{
    const bool is_plain = view->scheme == WEIGHT_PLAIN &&
                          (view->dtype == DTYPE_F32 || view->dtype == DTYPE_F16 || view->dtype == DTYPE_BF16);
    if (!is_plain)
        return error_set(err, STATUS_UNSUPPORTED,
                         "a quantised head whose rows are to be divided by their lengths is not supported");
    const int64_t rows = weight_view_num_rows(view);
    struct unpacked_matrix *m =
        add_matrix(u, view, (uint64_t)rows * dtype_row_bytes(view->dtype, (uint64_t)view->cols), err);
    if (!m) return STATUS_NO_MEMORY;
    struct unpack_task task = {.from = view, .to = m->data};
    parallel_ranges(rows, rows_of_a_thread(view->cols), divide_rows, &task);
    *view = weight_view_plain(m->data, view->dtype, rows, view->cols);
    return STATUS_OK;
}

void unpacked_clear(struct unpacked *u)
{
    while (u->first) {
        struct unpacked_matrix *const m = u->first;
        u->first = m->next;
        free(m);
    }
}
