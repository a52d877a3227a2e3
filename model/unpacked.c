#include "model/unpacked.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/parallel.h"
#include "files/weight_bits.h"
#include "files/weight_table.h"

enum { CHUNK = 256 /* columns at a time */, LEAST_VALUES = 1 << 18 /* that are worth a thread */ };

struct unpacked_matrix {
    struct unpacked_matrix *next;
    uint16_t values[];
};

struct unpack_task {
    const struct weight_view *from;
    uint16_t *to;
};

static void read_chunk(const struct weight_view *v, int64_t row, int64_t col, int num, float *out)
{
    if (v->scheme == WEIGHT_TABLE) {
        weight_table_to_f32(v, row, col, num, out);
        return;
    }
    if (v->scheme == WEIGHT_BITS) {
        weight_bits_to_f32(v, row, col, num, out);
        return;
    }
    const uint64_t begin = (uint64_t)row * dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    dtype_row_to_f32(v->dtype, (const uint8_t *)v->data + begin + dtype_row_bytes(v->dtype, (uint64_t)col),
                     num, out);
}

static void unpack_rows(void *context, int64_t begin, int64_t end)
{
    const struct unpack_task *t = context;
    const int64_t cols = t->from->cols;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t col = 0; col < cols; col += CHUNK) {
            const int num = (int)min_of(cols - col, (int64_t)CHUNK);
            uint16_t *const to = t->to + row * cols + col;
            float values[CHUNK];
            read_chunk(t->from, row, col, num, values);
            for (int i = 0; i < num; i++) to[i] = dtype_f32_to_bf16(values[i]);
        }
    }
}

bool unpacked_is_needed(const struct weight_view *view, bool has_rare_dtypes)
{
    if (!view->data) return false;
    return view->scheme == WEIGHT_TABLE || view->scheme == WEIGHT_BITS ||
           (dtype_is_rare(view->dtype) && !has_rare_dtypes);
}

int unpacked_make(struct unpacked *u, struct weight_view *view, struct error *err)
{
    const int64_t rows = weight_view_num_rows(view);
    struct unpacked_matrix *m = malloc(sizeof *m + (uint64_t)rows * (uint64_t)view->cols * sizeof *m->values);
    if (!m)
        return error_set(err, STATUS_NO_MEMORY, "no memory to make BF16 of a weight of %lld x %lld",
                         (long long)rows, (long long)view->cols);
    m->next = u->first;
    u->first = m;
    parallel_ranges(rows, max_of(LEAST_VALUES / max_of(view->cols, (int64_t)1), (int64_t)1), unpack_rows,
                    &(struct unpack_task){.from = view, .to = m->values});
    *view = weight_view_plain(m->values, DTYPE_BF16, rows, view->cols);
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
