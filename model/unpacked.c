#include "model/unpacked.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/parallel.h"

enum { BLOCK_VALUES = 256, LEAST_BLOCKS = 1024 /* that are worth a thread */ };

struct unpacked_matrix {
    struct unpacked_matrix *next;
    uint16_t values[];
};

struct unpack_task {
    const struct weight_view *from;
    uint16_t *to;
};

/* Rows follow one another, so a matrix is one row of blocks. */
static void unpack_blocks(void *context, int64_t begin, int64_t end)
{
    const struct unpack_task *t = context;
    const uint64_t block_bytes = dtype_row_bytes(t->from->dtype, BLOCK_VALUES);
    const uint8_t *block = (const uint8_t *)t->from->data + (uint64_t)begin * block_bytes;
    uint16_t *to = t->to + begin * BLOCK_VALUES;
    for (int64_t i = begin; i < end; i++, block += block_bytes, to += BLOCK_VALUES) {
        float values[BLOCK_VALUES];
        dtype_row_to_f32(t->from->dtype, block, BLOCK_VALUES, values);
        for (int k = 0; k < BLOCK_VALUES; k++) to[k] = dtype_f32_to_bf16(values[k]);
    }
}

int unpacked_make(struct unpacked *u, struct weight_view *view, struct error *err)
{
    const uint64_t num_values = (uint64_t)view->rows * (uint64_t)view->cols;
    assert_always(view->scheme == WEIGHT_PLAIN && view->cols % BLOCK_VALUES == 0);
    struct unpacked_matrix *m = malloc(sizeof *m + num_values * sizeof *m->values);
    if (!m)
        return error_set(err, STATUS_NO_MEMORY, "no memory to make BF16 of a weight of type %s",
                         dtype_infos[view->dtype].text);
    m->next = u->first;
    u->first = m;
    parallel_ranges((int64_t)(num_values / BLOCK_VALUES), LEAST_BLOCKS, unpack_blocks,
                    &(struct unpack_task){.from = view, .to = m->values});
    view->data = m->values;
    view->dtype = DTYPE_BF16;
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
