/* embed.cu - rows that are picked: of the embedding table for the tokens of a step, of the residual stream for its logits. */
#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/gguf_values.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear.cuh"

namespace
{

enum { EMBED_THREADS = 256 };

/* Of the CTA's token. A negative id names a sequence slot whose last sampled token is meant. */
__device__ __forceinline__ int32_t token_row(const int32_t *token_ids, const int32_t *last_tokens,
                                             int32_t num_rows)
{
    int32_t id = token_ids[blockIdx.x];
    if (id < 0) id = last_tokens[~id];
    return id < num_rows ? id : 0;
}

/* The first kernel of a step. */
__global__ void embed_kernel(float *out, const __nv_bfloat16 *table, const int32_t *token_ids,
                             const int32_t *last_tokens, int32_t num_rows, int32_t hidden_size, float scale)
{
    dependents_launch();
    const __nv_bfloat16 *from = table + (size_t)token_row(token_ids, last_tokens, num_rows) * hidden_size;
    float *to = out + (size_t)blockIdx.x * hidden_size;
    for (int i = threadIdx.x; i < hidden_size / 4; i += blockDim.x) {
        float4 v = load_bf16x4(from + 4 * i);
        ((float4 *)to)[i] = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
    }
}

/* The same of a table in blocks. */
__global__ void embed_blocks_kernel(float *out, const unsigned char *table, struct block_part part,
                                    const int32_t *token_ids, const int32_t *last_tokens, int32_t num_rows,
                                    int32_t hidden_size, float scale)
{
    dependents_launch();
    const unsigned char *from =
        table + part.offset + (size_t)token_row(token_ids, last_tokens, num_rows) * part.row_bytes;
    float *to = out + (size_t)blockIdx.x * hidden_size;
    gguf_for_runs(part.dtype, from, hidden_size, [=](uint32_t k, const float(&v)[GGUF_RUN]) {
#pragma unroll
        for (int j = 0; j < GGUF_RUN; j++) to[k + j] = __bfloat162float(__float2bfloat16_rn(v[j])) * scale;
    });
}

} // namespace

void cuda_embed(struct device *d, const struct batch *b, void *out, const struct linear *table, float scale)
{
    if (table->format == LINEAR_BLOCKS) {
        launch_after_all(cuda_of(d), embed_blocks_kernel, dim3((unsigned)b->num_tokens), dim3(EMBED_THREADS),
                         (float *)out, table->packed, table->blocks[0], b->token_ids, cuda_of(d)->last_tokens,
                         table->n, table->k, scale);
        return;
    }
    launch_after_all(cuda_of(d), embed_kernel, dim3((unsigned)b->num_tokens), dim3(EMBED_THREADS),
                     (float *)out, table->weight, b->token_ids, cuda_of(d)->last_tokens, table->n, table->k,
                     scale);
}

namespace
{

__global__ void pick_kernel(uint2 *out, const uint2 *x, const int32_t *rows, int32_t row_vectors)
{
    dependents_launch();
    const uint2 *from = x + (size_t)rows[blockIdx.x] * row_vectors;
    uint2 *to = out + (size_t)blockIdx.x * row_vectors;
    dependency_wait();
    for (int i = threadIdx.x; i < row_vectors; i += EMBED_THREADS) to[i] = from[i];
}

} // namespace

namespace
{

__global__ void positions_kernel(float *x, const float *table, const int32_t *positions, int32_t hidden_size)
{
    dependents_launch();
    const float4 *from = (const float4 *)(table + (size_t)positions[blockIdx.x] * hidden_size);
    float4 *to = (float4 *)(x + (size_t)blockIdx.x * hidden_size);
    dependency_wait();
    for (int i = threadIdx.x; i < hidden_size / 4; i += EMBED_THREADS) {
        float4 v = to[i], p = from[i];
        to[i] = make_float4(v.x + p.x, v.y + p.y, v.z + p.z, v.w + p.w);
    }
}

} // namespace

namespace
{

/* A CTA a row. */
__global__ void multiply_kernel(__nv_bfloat16 *x, const __nv_bfloat16 *y, int32_t width, int32_t stride)
{
    dependents_launch();
    __nv_bfloat16 *to = x + (size_t)blockIdx.x * width;
    const __nv_bfloat16 *by = y + (size_t)blockIdx.x * stride;
    dependency_wait();
    for (int i = threadIdx.x; i < width; i += EMBED_THREADS)
        to[i] = __float2bfloat16_rn(__bfloat162float(to[i]) * __bfloat162float(by[i]));
}

} // namespace

void cuda_multiply(struct device *d, const struct batch *b, enum row_set rows, void *x, const void *y,
                   int32_t width, int32_t stride)
{
    launch_dependent(cuda_of(d), multiply_kernel, dim3((unsigned)batch_num_rows(b, rows)),
                     dim3(EMBED_THREADS), 0, (__nv_bfloat16 *)x, (const __nv_bfloat16 *)y, width, stride);
}

void cuda_embed_positions(struct device *d, const struct batch *b, void *x, const float *table)
{
    launch_dependent(cuda_of(d), positions_kernel, dim3((unsigned)b->num_tokens), dim3(EMBED_THREADS), 0,
                     (float *)x, table, b->positions, cuda_of(d)->hidden_size);
}

void cuda_pick_logit_rows(struct device *d, const struct batch *b, void *out, const void *x, size_t row_bytes)
{
    launch_dependent(cuda_of(d), pick_kernel, dim3((unsigned)b->num_logits), dim3(EMBED_THREADS), 0,
                     (uint2 *)out, (const uint2 *)x, b->logit_rows, (int32_t)(row_bytes / sizeof(uint2)));
}
