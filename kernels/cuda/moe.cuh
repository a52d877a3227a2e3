/* moe.cuh - what the files of a mixture of experts share. A pair is a token and one of the experts that it chose; P = T K of them. Pairs are
 * grouped: each expert's stand one after another in rows of their own, whose number is rounded up to GROUP_ROWS, so that no 16 rows that
 * a kernel stores at a time meet two experts. Rows without a pair hold what was there before, or nobody's results. */
#ifndef KERNELS_CUDA_MOE_CUH
#define KERNELS_CUDA_MOE_CUH

#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/linear_fp8.cuh"

enum { MOE_EXPERTS_MAX = 1024, MOE_CHOSEN_MAX = 32, MOE_GROUP_ROWS = 16 };

/* Rows [first, first + count), all of one expert. */
struct moe_tile {
    int32_t expert, first, count;
};

struct moe {
    int32_t num_experts, num_chosen, hidden, inner; /* E, K, H, I; hidden: of what experts get */
    int32_t own_inner,
        own_hidden; /* rows of gate and up, and of down; a member of a group has a share of I and of H */
    int32_t router_hidden; /* of x: hidden unless experts have a space of their own */
    enum router_scores scores;
    enum gate_function gate;
    bool has_gate; /* else it is of up alone */
    bool normalize;
    float scale, near;
    bool scale_input;
    int32_t num_groups, num_chosen_groups; /* of experts; num_groups 0 or 1: none */
    bool groups_by_two;
    float *router;              /* [E][H], then the shared expert's gate if it has one; or */
    __nv_bfloat16 *router_bf16; /* the same where the file has it so */
    float *router_bias, *choice_bias, *score_factors; /* [E] or NULL */
    /* [E][2 I][H], gate and up alternate as in struct linear, or of up alone [E][I][H]; [E][H][I]; or */
    __nv_bfloat16 *gate_up, *down;
    /* the same in four bits (packed.cuh), E 2 I and E H rows; or in a GGUF file's blocks (blocks.cuh), of 2 I and H rows, those of
     * all experts one after another; else packed is NULL; or */
    struct linear packed_gate_up, packed_down;
    struct fp8_weight fp8_gate_up, fp8_down; /* in e4m3, as many rows; else codes is NULL */
    float *gate_up_bias, *down_bias; /* [E][2 I], [E][H]; NULL: none, as with any gate but the clamped one */
    struct linear *shared_gate_up, *shared_down; /* NULL: no shared expert */
    int32_t shared_inner;                        /* S of it */
    struct linear *to_experts, *from_experts;    /* NULL: experts have no space of their own */
    bool has_shared_gate;
};

/* Of one expert's product with gate and up, or with up alone. */
static inline int32_t moe_rows_of_gate_up(const struct moe *m)
{
    return (m->has_gate ? 2 : 1) * m->own_inner;
}

/* Whether other members of a group have rows of it, too. */
static inline bool moe_is_shared_out(const struct moe *m)
{
    return m->own_inner != m->inner;
}

/* Device memory for the largest step; layers take turns. */
struct moe_scratch {
    int32_t num_experts, num_chosen, inner, shared_inner; /* what there is room for */
    float *logits;                                        /* [T][E + 1] */
    int32_t *choices;                                     /* [P] experts, ascending for each token */
    float *weights;                                       /* [P] */
    float *shared_weight;                                 /* [T] */
    int32_t *counts;                                      /* [E] pairs of an expert; 0 between layers */
    int32_t *next;                                        /* [E] the next free row */
    int32_t *rows;                                        /* [P] */
    struct moe_tile *tiles;
    int32_t *num_tiles;
    float *few_logits;                       /* [MOE_SHARED_TOKENS][E + 1], all bits set between launches */
    __nv_bfloat16 *gathered;                 /* [rows][H]: x, and when that has been read, results */
    __nv_bfloat16 *mid;                      /* [rows][I] */
    __nv_bfloat16 *shared_mid, *shared_made; /* [T][S] [T][H] */
    __nv_bfloat16 *own_mid,
        *own_shared_mid; /* of a member of a group: its columns of both; NULL: it has all */
    __nv_bfloat16 *own, *own_made, *widened; /* [T][L] [T][L] [T][H] of experts' own space */
    int32_t own_hidden;                      /* L that there is room for */
    struct fp8_rows fp8;                     /* [rows][H or I], x, then mid; codes NULL: no experts of e4m3 */
    int32_t fp8_columns;                     /* that there is room for */
};

/* Rows of x that are fetched of a tile's, where the copy engine brings boxes of so many. */
enum { MOE_X_BOX_ROWS = 8 };
static __device__ __forceinline__ int32_t moe_rows_in_boxes(int32_t count, int32_t box_rows = MOE_X_BOX_ROWS)
{
    return (count + box_rows - 1) / box_rows * box_rows;
}

/* Rows that so many pairs may take. */
static inline int32_t moe_rows_max(int32_t num_pairs, int32_t num_experts)
{
    int32_t groups = min(num_pairs, num_experts);
    return (num_pairs + groups * (MOE_GROUP_ROWS - 1)) / MOE_GROUP_ROWS * MOE_GROUP_ROWS;
}

static inline int32_t moe_tiles_max(int32_t num_pairs, int32_t num_experts, int32_t tile_rows)
{
    return num_pairs / tile_rows + min(num_pairs, num_experts);
}

/* One of the products of all experts: out = x W^T for each tile's rows, or f(gate) * up. */
struct moe_product {
    __nv_bfloat16 *out;              /* [rows][N], or [rows][N / 2] of gate and up */
    const __nv_bfloat16 *x, *weight; /* [x_rows][K]; [E][N][K] */
    const struct moe_tile *tiles;
    const int32_t *num_tiles;
    int32_t x_rows, num_rows, num_pairs, num_experts, n, k;
    bool shares_x;     /* row i of any tile is row i of x */
    int32_t tiles_max; /* *num_tiles is not more */
    bool knows_tiles;  /* what launched before the kernel before made them */
    bool is_short;     /* both products' rings share an SM */
    bool is_gated;
    enum gate_function gate;
    const float *bias; /* [E][N] or NULL; always with GATE_CLAMPED_SWISH */
    const struct linear
        *packed; /* moe_packed.cu, moe_blocks.cu: in the place of weight; packed->packed NULL: none */
    struct fp8_product
        fp8; /* moe_fp8_*.cu: in the place of x and weight, whose E N rows are as one matrix's; w NULL: none */
};

/* What sums become as they are stored: kernels are made for each, so that mixtures without biases pay nothing for them. */
enum moe_epilogue {
    MOE_SUMS,
    MOE_SUMS_BIAS,
    MOE_SILU,
    MOE_GELU,    /* not of e4m3 */
    MOE_CLAMPED, /* with biases */
};

static inline enum moe_epilogue moe_epilogue_of(const struct moe_product *p)
{
    if (!p->is_gated) return p->bias ? MOE_SUMS_BIAS : MOE_SUMS;
    return p->gate == GATE_SILU ? MOE_SILU : p->gate == GATE_GELU_TANH ? MOE_GELU : MOE_CLAMPED;
}

static __host__ __device__ constexpr bool moe_is_gated(enum moe_epilogue e)
{
    return e != MOE_SUMS && e != MOE_SUMS_BIAS;
}

static __host__ __device__ constexpr bool moe_has_bias(enum moe_epilogue e)
{
    return e == MOE_SUMS_BIAS || e == MOE_CLAMPED;
}

/* moe_weights.cu: into m, whose sizes are known. False: there is no room. */
bool cuda_moe_upload_experts(struct cuda_device *d, struct moe *m, const struct moe_desc *desc);

/* moe_routing.cu: the step's choices, which seen makes, their weights, the rows and tiles of at most tile_rows of them; of_experts, which is x
 * unless they have a space of their own, gathered, or quantised, the same rows in e4m3, which then is what is gathered. */
void cuda_moe_route(struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *seen,
                    const __nv_bfloat16 *of_experts, const struct fp8_rows *quantised, int32_t num_tokens,
                    int32_t tile_rows);

/* The same for at most MOE_SHARED_TOKENS tokens, with router_bf16: an expert's tile has a row for each token, and x is not gathered. */
enum { MOE_SHARED_TOKENS = 8 };
void cuda_moe_route_few(struct cuda_device *d, const struct moe *m, const __nv_bfloat16 *seen,
                        int32_t num_tokens);

/* moe_plain.cu, on any machine: tiles of MOE_PLAIN_ROWS. */
enum { MOE_PLAIN_ROWS = 64 };
void cuda_moe_plain(struct cuda_device *d, const struct moe_product *p);

/* moe_small.cu, sm_90: few rows an expert, tiles of 8, 32 or 64. False where the driver cannot. */
enum { MOE_RING_BYTES = 225 << 10 }; /* of an SM */
bool cuda_moe_small(struct cuda_device *d, int32_t tile_rows, const struct moe_product *p);

/* moe_packed.cu, sm_90: the same with weights of four bits, p->packed. */
bool cuda_moe_packed(struct cuda_device *d, int32_t tile_rows, const struct moe_product *p);

/* moe_blocks.cu, on any machine: few rows an expert, tiles of 8, 16, 32 or 64, with weights in a GGUF file's blocks, p->packed. */
bool cuda_moe_blocks(struct cuda_device *d, int32_t tile_rows, const struct moe_product *p);

/* moe_large.cu, sm_90: many rows an expert, tiles of MOE_LARGE_ROWS. False where the driver cannot. */
enum { MOE_LARGE_ROWS = 128 };
bool cuda_moe_large(struct cuda_device *d, const struct moe_product *p);

/* moe_fp8_small.cu, moe_fp8_large.cu, sm_90: the same in e4m3, p->fp8; N is a multiple of 32. */
bool cuda_moe_fp8_small(struct cuda_device *d, int32_t tile_rows, const struct moe_product *p);
bool cuda_moe_fp8_large(struct cuda_device *d, const struct moe_product *p);

#endif
