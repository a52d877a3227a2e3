/* latent.cuh - what latent.cu and latent_prompts.cu share of latent attention. */
#ifndef KERNELS_CUDA_LATENT_CUH
#define KERNELS_CUDA_LATENT_CUH

#include "kernels/cuda/device.cuh"

struct latent {
    int32_t num_heads, plain_dim, rotary_dim, value_dim, rank, q_rank; /* q_rank 0: q comes at once */
    float norm_eps;
    struct linear *q_a, *q, *kv_a; /* q: of x, or of what q_a makes of it */
    float *q_norm, *kv_norm;
    __nv_bfloat16 *absorb, *expand; /* [Hq][r][Dn]: k_b^T, [Hq][Dv][r]: v_b */
    struct linear *kv_b;            /* [Hq (Dn + Dv)][r], for prompts; NULL: they do without */
};

/* For the largest step; layers take turns. E: keys that are expanded at a time, D: prompt_attention's head_dim. */
struct latent_scratch {
    __nv_bfloat16 *low, *q, *kv;        /* [T][R] [T][Hq (Dn + Dr)] [T][r + Dr] */
    __nv_bfloat16 *prompt_q, *prompt_k; /* [T][Hq][D] [T][Dr + r]; NULL: prompts are as all tokens are */
    __nv_bfloat16 *latents, *expanded;  /* [E][r] [E][Hq (Dn + Dv)] */
    int32_t plain_dim;
};

/* Where some of a step's tokens have q and K, one after another. */
struct latent_rows {
    __nv_bfloat16 *q, *k;      /* of the first of them */
    size_t q_token, k_token;   /* elements from one token to the next */
    int32_t q_head, rotary_at; /* from one head to the next; where in it what is rotated begins */
    int32_t first_token, num_tokens;
};

/* ---- latent_prompts.cu ---- */

/* Before scratch is reserved: whether prompts have K and V expanded, and what they are planned for then. */
void cuda_latent_plan(struct cuda_device *d, const struct attention_args *layers, int32_t num_layers);
/* Scratch, of all layers; and of one what its products need. True at once where prompts have nothing expanded. */
bool cuda_latent_prompts_reserve(struct cuda_device *d, const struct latent *l);
bool cuda_latent_prompts_take(struct cuda_device *d, struct latent *l, const struct latent_desc *desc);
/* The step's prompts, which have it expanded; none: num_tokens 0. */
struct latent_rows cuda_latent_prompt_rows(const struct cuda_device *d, const struct batch *b);
/* Attention of the step's prompts, whose result stays in prompt_q until cuda_latent_prompt_values copies it to out [T][Hq Dv]. */
void cuda_latent_prompts(struct cuda_device *d, const struct batch *b, const struct kv_pool *pool,
                         int32_t layer, const struct attention_args *args);
void cuda_latent_prompt_values(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                               const struct latent *l);

#endif
