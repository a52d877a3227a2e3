/* blocks.cu - weights in a GGUF file's blocks: where they lie, and how they become bf16. */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/gguf_values.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum { UNPACK_THREADS = 128, PART_ALIGNMENT = 256 };

struct block_parts {
    struct block_part parts[LINEAR_PARTS_MAX];
    const unsigned char *data;
    size_t bytes; /* of one weight */
    int32_t num_columns;
    bool alternate; /* of 16 rows 8 are of the first part, 8 of the second */
};

/* A CTA has a row of one of the weights. */
__global__ void __launch_bounds__(UNPACK_THREADS)
    unpack_kernel(__nv_bfloat16 *out, const __grid_constant__ struct block_parts w)
{
    int32_t row = (int32_t)blockIdx.x, part = 0;
    out += ((size_t)blockIdx.y * gridDim.x + row) * w.num_columns;
    if (w.alternate) {
        part = row / 8 % 2;
        row = row / 16 * 8 + row % 8;
    } else {
        while (row >= w.parts[part].num_rows) row -= w.parts[part++].num_rows;
    }
    const struct block_part &p = w.parts[part];
    const unsigned char *rows = w.data + blockIdx.y * w.bytes + p.offset;
    gguf_unpack_row(p.dtype, out, rows + (size_t)row * p.row_bytes, w.num_columns);
}

} // namespace

bool blocks_are_wanted(const struct cuda_device *d)
{
    const char *text = getenv("FLASHD_CUDA_KEEP_PACKED");
    return d->base.keeps_packed || (text && strcmp(text, "1") == 0);
}

bool blocks_fit(const struct linear_desc *desc)
{
    for (int i = 0; i < desc->num_parts; i++) {
        const struct weight_view *v = &desc->parts[i];
        bool in_blocks = dtype_infos[v->dtype].block_values >= 32 && !dtype_is_code(v->dtype);
        if (v->scheme != WEIGHT_PLAIN || !in_blocks || weight_view_num_rows(v) != v->rows) return false;
    }
    return true;
}

void blocks_place(struct linear *w, const struct linear_desc *desc)
{
    size_t offset = 0;
    for (int i = 0; i < desc->num_parts; i++) {
        const struct weight_view *v = &desc->parts[i];
        size_t row_bytes = dtype_row_bytes(v->dtype, (uint64_t)v->cols);
        w->blocks[i] = {v->dtype, (int32_t)v->rows, row_bytes, offset};
        offset += align_up((size_t)v->rows * row_bytes, (size_t)PART_ALIGNMENT);
    }
}

size_t blocks_bytes(const struct linear *w)
{
    size_t bytes = 0;
    for (const struct block_part &p : w->blocks)
        bytes += align_up((size_t)p.num_rows * p.row_bytes, (size_t)PART_ALIGNMENT);
    return bytes;
}

void blocks_unpack(struct cuda_device *d, const struct linear *w, int32_t num_weights, __nv_bfloat16 *out)
{
    struct block_parts parts = {};
    for (int i = 0; i < LINEAR_PARTS_MAX; i++) parts.parts[i] = w->blocks[i];
    parts.data = w->packed;
    parts.bytes = blocks_bytes(w);
    parts.num_columns = w->k;
    parts.alternate = w->kind == LINEAR_GATE_UP;
    dim3 grid((unsigned)w->n, (unsigned)num_weights);
    unpack_kernel<<<checked_grid(grid), UNPACK_THREADS, 0, d->stream>>>(out, parts);
}
