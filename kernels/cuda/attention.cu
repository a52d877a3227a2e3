/* attention.cu - attention of a step: its prefill half and its decode half, each by kernels of its own. */
#include "kernels/cuda/device.cuh"

bool cuda_attention_supports(int32_t head_dim)
{
    return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

void cuda_attention(struct device *device, const struct batch *b, void *out, const void *qkv,
                    const struct kv_pool *pool, int32_t layer, const struct attention_args *args)
{
    struct cuda_device *d = cuda_of(device);
    if (b->num_prefill_seqs > 0)
        cuda_attention_prefill(d, b, (__nv_bfloat16 *)out, (const __nv_bfloat16 *)qkv, pool, layer, args);
    if (b->num_seqs > b->num_prefill_seqs)
        cuda_attention_decode(d, b, (__nv_bfloat16 *)out, (const __nv_bfloat16 *)qkv, pool, layer, args);
}
