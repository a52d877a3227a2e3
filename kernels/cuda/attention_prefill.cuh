/* attention_prefill.cuh - what the portable and the Hopper prefill kernels share. */
#ifndef KERNELS_CUDA_ATTENTION_PREFILL_CUH
#define KERNELS_CUDA_ATTENTION_PREFILL_CUH

#include <vector>

#include "kernels/cuda/device.cuh"

enum {
    PORTABLE_PREFILL_ROWS = 64, /* of a tile */
    PREFILL_KV_TILE_MAX = 128   /* keys of one */
};

/* Keys that the Hopper kernel walks before it merges: whole kv tiles, which have 80 tokens for head_dim 256, and 128 for others. */
static constexpr __host__ __device__ int32_t prefill_piece_tokens(int32_t head_dim)
{
    return head_dim == 256 ? 8160 : 8192;
}

struct prefill_args {
    __nv_bfloat16 *out;
    const __nv_bfloat16 *qkv, *pool; /* the layer's part of the pool */
    const int32_t *cu_seqlens_q, *seqlens_k, *table_offsets, *tables;
    const struct prefill_tile *tiles;
    size_t block_elements;
    int32_t num_heads, num_kv_heads, group, head_dim, sliding_window, heads_per_tile;
    int32_t row_heads;  /* of a row of qkv */
    float scale_log2;   /* from scores, or from capped ones, to log2 units */
    float softcap;      /* scores become tanh(score * softcap); 0: they stay */
    const float *sinks; /* [num_heads] or NULL */
};

struct prefill_args prefill_args_of(const struct batch *b, __nv_bfloat16 *out, const __nv_bfloat16 *qkv,
                                    const struct kv_pool *pool, int32_t layer,
                                    const struct attention_args *args);

/* Attention of the step's prompts over pool->widened, which has what they see of a layer. */
void cuda_attention_prefill_widened(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                                    const __nv_bfloat16 *qkv, const struct kv_pool *pool,
                                    const struct attention_args *args);

/* Kernels are made twice: models without soft caps and sinks pay nothing for those of others. */
static inline bool prefill_has_extra(const struct prefill_args &a)
{
    return a.softcap > 0 || a.sinks;
}

/* attention_prefill_plan.cu. Scratch of the plan of a step, with room for all that one needs. */
struct prefill_cta {
    int64_t at; /* when it begins with the item that it took last */
    int32_t item;
};
struct prefill_plan {
    std::vector<int32_t> order;
    std::vector<int32_t> num_whole; /* by sequence: the first of its tiles, which are not cut */
    std::vector<struct prefill_cta> ctas;
};
void cuda_prefill_plan_prepare(const struct cuda_device *d, struct prefill_plan *plan);
/* Writes a step's tiles in the order of the queue and returns how many there are; each is as many items as kv_heads_per_tile K/V heads
 * have query heads. */
int32_t cuda_prefill_plan(const struct cuda_device *d, const struct step *step, struct prefill_plan *plan,
                          struct prefill_tile *tiles, int32_t *kv_heads_per_tile);

/* attention_prefill_hopper.cu. Rows of a tile, or 0 where the portable kernel is to be used. */
int32_t prefill_hopper_rows_per_tile(const struct cuda_device *d, int32_t head_dim);
/* Room for the results of pieces, once what a step may hold is known. */
bool prefill_hopper_prepare(struct cuda_device *d, int32_t head_dim, int32_t max_model_len);
bool prefill_hopper_launch(struct cuda_device *d, const struct prefill_args *args, const struct batch *b,
                           const struct kv_pool *pool, int32_t layer);

#endif
