/* attention.cu - attention of a step: its prefill half and its decode half, each by kernels of its own; where the layer or a mask wants
 * it, or the sequences of a step have masks, both by another (attention_masked.cu). A model has masks in all of its steps or in none, so
 * a sequence has one kernel whatever its neighbours are.
 *
 * Decode attention fetches pages ahead of the end of the kernel before it (attention_decode_producer.cuh). In a step with prompts some
 * of these may be what rope has just written for rows of the same sequence. They are there all the same: the kernel before it is then
 * prefill attention, which waits for rope, and lets nobody begin before it has ended. No prefill kernel may call dependents_launch. */
#include "kernels/cuda/device.cuh"

bool cuda_attention_supports(int32_t head_dim)
{
    return head_dim == 64 || head_dim == 80 || head_dim == 96 || head_dim == 128 || head_dim == 256;
}

bool cuda_attention_has_different(int32_t head_dim)
{
    return head_dim == 64 || head_dim == 128 || head_dim == 256;
}

void cuda_attention(struct device *device, const struct batch *b, void *out, const void *qkv,
                    const struct kv_pool *pool, int32_t layer, const struct attention_args *args)
{
    struct cuda_device *d = cuda_of(device);
    if (b->sequence_masks || cuda_attention_is_masked(d, args)) {
        cuda_attention_masked(d, b, (__nv_bfloat16 *)out, (const __nv_bfloat16 *)qkv, pool, layer, args);
        return;
    }
    if (b->num_prefill_seqs > 0)
        cuda_attention_prefill(d, b, (__nv_bfloat16 *)out, (const __nv_bfloat16 *)qkv, pool, layer, args);
    if (b->num_seqs > b->num_prefill_seqs)
        cuda_attention_decode(d, b, (__nv_bfloat16 *)out, (const __nv_bfloat16 *)qkv, pool, layer, args);
}
