/* device.h - what a device can do: the table of operations that the CPU and the CUDA device implement.
 *
 * Everything above this table (scheduler, K/V bookkeeping, API) is one code for both. A device owns
 * its memory, its threads or streams, and its layouts: weights are handed over as the file has them
 * and may be repacked; the K/V pool's inner order is the device's own business.
 *
 * Shapes and names: T tokens, S sequences, R logit rows (step.h); H hidden size; Hq query heads;
 * Hk K/V heads; D head_dim; V vocabulary; N x K a weight with N output rows of K values.
 * "act" is the device's activation type (act_bytes each), "res" its residual type (res_bytes).
 *
 * Life: device_open, then prepare, then weights and pools, then seal; after seal nothing is
 * allocated. Thread: one thread (the engine's) uses a device at a time; load may use another before.
 *
 * Order and errors: math operations are queued in order and return nothing. A CPU runs them at
 * once; a GPU queues them. A fault shows up in step_end as STATUS_DEVICE with a sentence; after it
 * the device is unusable.
 *
 * The same bits: what an operation computes for a row, a token or a sequence depends on that row,
 * token or sequence alone, never on T, S, R or a neighbour. Reduction orders are functions of
 * (N, K), of the model's heads, and of token positions. On devices with prefill_decode_equal a token's result
 * does not depend either on whether it went through the prefill or the decode half of a step. */
#ifndef KERNELS_DEVICE_H
#define KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "files/weight_view.h"
#include "kernels/step.h"

enum { LINEAR_PARTS_MAX = 3, GATE_VALUES = 3 };

enum linear_kind {
    LINEAR_PLAIN,   /* parts are stacked: N = sum of rows (q, k, v in one; or a single matrix) */
    LINEAR_GATE_UP, /* exactly two parts of equal shape, gate then up; for linear_gated only */
    LINEAR_UP,      /* one part, whose results become what gate makes of them; for linear_gated only */
};

/* What a gate becomes before up is multiplied by it. */
enum gate_function {
    GATE_SILU,
    GATE_GELU_TANH,     /* GELU by its approximation with tanh */
    GATE_CLAMPED_SWISH, /* gpt-oss: gate up to 7 becomes gate / (1 + e^(-1.702 gate)), up within -7 to 7 plus 1 */
    GATE_GELU,          /* GELU itself */
    GATE_RELU_SQUARED, /* x^2 above 0, 0 below */
    GATE_RELU,         /* x above 0, 0 below */
    GATE_XIELU, /* of an MLP without a gate: a x^2 + c x above 0, b (e^x - 1 - x) + c x below, of gate_values a, b, c */
    GATE_FUNCTION_COUNT
};

/* What of a matrix each device of a group has (kernels/group); alone a device has all of it. */
enum linear_split {
    SPLIT_NOT,      /* all of it, and all of the results */
    SPLIT_BY_ROWS,  /* a share of each part's rows where they can be shared out; all get the results of all */
    SPLIT_BY_HEADS, /* the rows of its share of the heads (part_heads); results stay where they are made */
};

/* y = x W^T + bias for stacked parts that share K; parts may differ in dtype. */
struct linear_desc {
    enum linear_kind kind;
    enum linear_split split;
    int32_t part_heads[LINEAR_PARTS_MAX]; /* SPLIT_BY_HEADS: of each part */
    int num_parts;
    struct weight_view parts[LINEAR_PARTS_MAX];
    struct weight_view
        biases[LINEAR_PARTS_MAX]; /* vectors of the part's N (weight_view.h); data NULL: none */
    enum gate_function gate;      /* LINEAR_GATE_UP, LINEAR_UP */
    float gate_values[GATE_VALUES];
    bool
        quantise_input; /* the model was made for rows of x that are quantised as its weights of e4m3 or int8 are; a device may
                            take them as they are */
    bool wide_output;    /* results are f32 logits (lm_head): for logits, not for other operations */
    float softcap;       /* wide_output: logits become softcap tanh(logit / softcap); 0: they stay */
    bool also_embedding; /* the same matrix serves embed (tied embeddings): store it once */
};

struct linear; /* device's own */

enum { LORA_RANK_MAX = 512 };

/* What one adapter of low rank (Hu et al., "LoRA", 2021) adds to a part of a linear: scale * up (down x), of rank r. */
struct lora_part {
    struct weight_view down, up; /* A [r][K], B [N][r], plain; down.data NULL: it adds nothing */
    float scale;
};

/* Adapters of one linear: [num_adapters][parts of the linear]. */
struct lora_desc {
    int32_t num_adapters;
    const struct lora_part (*parts)[LINEAR_PARTS_MAX];
    int32_t max_rank; /* of each part that lora_set may put in an adapter's place; 0: nothing is put there */
};

struct lora; /* device's own */

/* How a router's logits become scores, by which experts are chosen and weighed. */
enum router_scores {
    ROUTER_SOFTMAX, /* over all experts */
    ROUTER_SIGMOID, /* each by itself */
    /* Phi-3.5-MoE: logits are the scores. A chosen one's weight is softmax's over those not chosen before it whose logits are
     * near: (best - logit) / max(|logit|, best) is at most moe_desc.near. */
    ROUTER_SPARSE,
};

/* Of a mixture. */
enum moe_experts {
    EXPERTS_CHOSEN, /* by the router */
    EXPERTS_SHARED, /* that every token has */
};

struct expert_desc {
    struct weight_view gate, up, down; /* [I][H], [I][H], [H][I]; gate.data NULL: it has none */
    struct weight_view gate_bias, up_bias, down_bias; /* [I], [I], [H]; data NULL: none */
};

enum { MOE_GROUPS_MAX = 64 };

/* A mixture of experts: of each token's E scores the num_chosen largest, of equal ones those of the lower experts; what
 * these experts make of the token, times their scores, is added in the order of experts, so that it does not depend on
 * who else has chosen them. A shared expert is chosen by every token and comes last. Where experts are in groups, of equal
 * size, one after the other, those of the num_chosen_groups best are chosen from: a group is as good as its best score, or
 * as its best two (groups_by_two). Experts may have a space of their own, of L values, which the router and the shared one know nothing
 * of: then they get x to_experts^T, and what they have made together is multiplied by from_experts^T. */
struct moe_desc {
    int32_t num_experts, num_chosen;       /* E */
    int32_t num_groups, num_chosen_groups; /* num_groups 0 or 1: none */
    bool groups_by_two;
    enum router_scores scores;
    bool normalize; /* the scores of those chosen are divided by their sum */
    float scale;    /* and multiplied by this */
    float near;     /* ROUTER_SPARSE */
    bool
        quantise_input; /* as in linear_desc, of the experts' products; the shared one's are linears of their own */
    bool
        scale_input; /* an expert's input is multiplied by the score, not what it makes; the shared one's by nothing */
    enum gate_function gate;          /* of the product with gate, or of that with up where there is none */
    struct weight_view router;        /* [E][H] */
    struct weight_view router_bias;   /* [1][E]: of its logits; data NULL: none */
    struct weight_view choice_bias;   /* [1][E]: added to scores where experts are chosen; data NULL: none */
    struct weight_view score_factors; /* [1][E]: of those chosen, behind scale; data NULL: none */
    struct weight_view
        out_bias; /* [1][H]: what they make is added to it; data NULL: to 0. None with a space of their own */
    const struct expert_desc *experts; /* [E]; of L in the place of H where they have a space of their own */
    struct weight_view to_experts, from_experts; /* [L][H], [H][L]; data NULL: they have not */
    struct expert_desc shared;                   /* up.data NULL: none */
    struct weight_view shared_gate; /* [1][H]: the shared one is weighed by its sigmoid; data NULL: by 1 */
};

struct moe; /* device's own */

/* Latent attention (DeepSeek-AI, "DeepSeek-V2", 2024): K and V of a token are products of one vector c of rank r, its
 * latent, and it is c that is kept. Of x come q = x q^T, or RMSNorm(x q_a^T) q_b^T, Hq heads of Dn + Dr, and x kv_a^T, of
 * r + Dr; c = RMSNorm of the first r. A head's K and V are k = [k_b c | the last Dr] and v = v_b c, where the Dr values are rotated. As
 *
 *   q . k = (k_b^T q_n) . c + q_r . k_r        sum of p v = v_b (sum of p c)
 *
 * that is attention of Hq heads of D = Dr + r over one K/V head, K = [k_r | c], V = [c | zeros]. */
struct latent_desc {
    int32_t num_heads, plain_dim, rotary_dim, value_dim, rank; /* Hq, Dn, Dr, Dv, r */
    float norm_eps;
    struct weight_view q;        /* [Hq (Dn + Dr)][H]; data NULL: q_a, q_norm and q_b */
    struct weight_view q_a, q_b; /* [R][H], [Hq (Dn + Dr)][R] */
    struct weight_view q_norm;   /* [1][R] */
    struct weight_view kv_a;     /* [r + Dr][H] */
    struct weight_view kv_norm;  /* [1][r] */
    struct weight_view
        kv_b; /* [Hq (Dn + Dv)][r]: k_b and v_b of a head, then of the next; data NULL: k_b, v_b */
    struct weight_view k_b, v_b; /* [Hq r][Dn]: transposed heads; [Hq Dv][r] */
};

enum { SELECTIVE_LANES = 16, SELECTIVE_K_DIM_MAX = 256 }; /* of DELTA_SELECTIVE */
enum { DELTA_TAPS = 4, SHORT_TAPS_MAX = 7, DELTA_CONVOLUTION_PARTS = 3 };

/* What a layer does with its state. */
enum delta_kind {
    DELTA_RULE,
    DELTA_CONVOLUTION,
    DELTA_STATE_SPACE,
    DELTA_CHANNELS,
    DELTA_SELECTIVE,
};

/* A layer that has a state in the place of K and V.
 *
 * DELTA_RULE: linear attention by a gated delta rule, as Qwen3-Next has it. Of each token's projections q and k, Gk heads of Dk, and v, Gv heads of Dv, first go through a causal convolution over DELTA_TAPS
 * tokens and SiLU; q and k become unit vectors, q / sqrt(Dk) then. A head of v, which goes with head h Gk / Gv of k, has a
 * state S [Dk][Dv], zeros before the first token:
 *
 *   S <- e^(-e^decay softplus(a + dt_bias)) S;   S <- S + k (sigmoid(b) (v - S^T k))^T;   o = S^T q
 *
 * and gives RMSNorm(o) * norm * SiLU(z). b may count more than once (beta_scale).
 *
 * DELTA_CHANNELS (Kimi Team, "Kimi Linear", 2025: KDA): the same with a decay for each of Dk rows of S, which comes of Gv Dk values f in the
 * place of a, e^(-e^decay softplus(f + dt_bias)), or, with decay_floor, e^(decay_floor sigmoid(e^decay (f + dt_bias))). Gk is Gv.
 *
 * DELTA_CONVOLUTION (LFM2, LFM3): the state is the convolution's alone. Of Dv channels each b, c and x are projected, in a row, and it
 * gives c times the convolution of b x over as many tokens as that has columns, 3 or 7. Gk and Dk are 0, Gv is 1, there are no rates.
 *
 * DELTA_STATE_SPACE (Dao and Gu, "Transformers are SSMs", 2024: Mamba-2): z and v, Gv heads of Dv, k and q (B and C there), Gk
 * heads of Dk, and Gv steps t are projected, in a row. v, k and q, in that order, go through a convolution with a bias, and
 *
 *   d = softplus(t + dt_bias);   S <- e^(-e^decay d) S + k (d v)^T;   o = S^T q + skip v
 *
 * give the RMSNorm of o SiLU(z) over the heads that share k and q, times norm, or o SiLU(z) where norm.data is NULL. There are no
 * rates.
 *
 * DELTA_SELECTIVE (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", 2023: Mamba-1): v and z, Gv Dv channels each,
 * are projected, in a row. v goes through a convolution, maybe with a bias; the product selection of what that gives is R narrow steps, k and q
 * (B and C there), which all channels share, each of the three normed if norms_selection; t is the product steps of the first. Each channel has
 * a row of decay, Dk values, and a state of as many,
 *
 *   d = softplus(t + dt_bias);   S <- e^(-e^decay d) S + k (d v);   o = S q + skip v
 *
 * and gives o SiLU(z). Gk is 1, Dv is 16; there are no rates. */
struct delta_desc {
    enum delta_kind kind;
    int32_t num_k_heads, num_v_heads, k_dim, v_dim; /* Gk, Gv, Dk, Dv */
    bool by_k_head,
        rates_by_k_head;  /* rows of the projections, or of b and a, come by heads of k, not by what they are
                                        (delta) */
    bool tiled;           /* head h of v goes with head h % Gk of k */
    bool z_is_apart;      /* not among the projections (delta_inputs) */
    bool gate_is_sigmoid; /* of z, in the place of SiLU; of the rule, and of channels */
    float beta_scale;     /* 0: 1 */
    float decay_floor;    /* of DELTA_CHANNELS; 0: none */
    bool has_rates;       /* decay holds -e^decay, as GGUF files have it */
    float norm_eps;
    /* [2 Gk Dk + Gv Dv][DELTA_TAPS]: of q, k and v, newest token last, in one or one for each; DELTA_CONVOLUTION: [Dv][3 or 7], and no
     * other weight */
    struct weight_view convolution[DELTA_CONVOLUTION_PARTS];
    struct weight_view decay, dt_bias; /* [1][Gv]; of DELTA_CHANNELS dt_bias [1][Gv Dk] */
    struct weight_view norm;           /* [1][Dv]; DELTA_STATE_SPACE: [1][Gv Dv] */
    /* of DELTA_STATE_SPACE; what v, k, q and t are multiplied by as they are projected: 0: by nothing */
    float v_scale, k_scale, q_scale, step_scale;
    struct weight_view convolution_bias; /* [1][2 Gk Dk + Gv Dv] */
    struct weight_view skip;             /* [1][Gv]; DELTA_SELECTIVE: [1][Gv Dv] */
    /* of DELTA_SELECTIVE, which has decay [Gv Dv][Dk] and dt_bias [1][Gv Dv]; Dk up to SELECTIVE_K_DIM_MAX */
    struct weight_view selection, steps;          /* [R + 2 Dk][Gv Dv] [Gv Dv][R] */
    bool norms_selection;                         /* by norm_eps, times: */
    struct weight_view step_norm, k_norm, q_norm; /* [1][R] [1][Dk] [1][Dk]; data NULL: 1 */
};

struct delta_net; /* device's own; with the state of each batch_slot */

/* What has been projected for a layer with a state: act, a row for each token. */
struct delta_inputs {
    /* q, k, v and z: all heads of one after those of the other, or q, k, v, z (by_k_head) of one head of k after the other; or what
     * another kind has in a row */
    const void *projected;
    const void *z; /* [Gv Dv]: with z_is_apart */
    const void *
        rates; /* b and a: all of one after those of the other, or b, a (rates_by_k_head) of one head of k after the other; of
                           DELTA_CHANNELS b; or NULL */
    const void *decays; /* [Gv Dk]: f of DELTA_CHANNELS */
};

struct kv_other_layers {
    int32_t num_layers, num_kv_heads, head_dim;
};

struct kv_shape {
    int32_t num_layers; /* of a block: those of a group, where layers have block tables of their own */
    int32_t num_blocks, num_kv_heads, head_dim;
    enum dtype dtype;        /* DTYPE_BF16; with kv_any_dtype also others: kv_pool_create */
    int32_t num_host_blocks; /* host memory for saved blocks, taken when it is needed */
    /* What a block holds of groups whose layers have other heads: a block is as large as the larger of both. num_layers 0: no
     * group has. */
    struct kv_other_layers others;
};

struct
    kv_pool; /* device's own: K and V of a block's layers, [block][kv_head][BLOCK_SIZE][head_dim] in spirit */

struct latent; /* device's own (latent_desc) */

enum rope_style {
    ROPE_HALVES, /* rotate (i, i + D/2): Hugging Face, GPT-NeoX */
    ROPE_PAIRS,  /* rotate (2i, 2i + 1): GGUF files of the llama architecture */
};

/* What stands between two products: the residual stream x takes in what the product before has made, delta, and the next
 * one gets its norm. Device memory [H]. */
struct norm_args {
    const float *weight; /* NULL: x goes on as it is */
    const float
        *delta_weight;    /* delta becomes its own RMSNorm times this before it is added; NULL: it does not */
    float delta_scale;    /* what delta is multiplied by as it is added, 1 if by nothing */
    float sum_scale;      /* what x is multiplied by when delta has been added; 0: by nothing */
    float eps, delta_eps; /* delta_eps: of delta's own; 0: eps */
    int32_t hidden_size;
    int32_t num_parts; /* that a row has, each of hidden_size and with a norm of its own; 0: 1 */
    /* Where the device has embed_positions: LayerNorm, (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, in the place of
     * RMSNorm. */
    bool is_layer_norm;
    bool replaces; /* x itself becomes its norm; of RMSNorm without delta_weight */
    bool begins;   /* x, whatever it is, becomes what would be added to it; of a delta with delta_weight */
    const float *bias; /* of LayerNorm; NULL: none */
};

/* A layer's step between the QKV product and attention. Layers may differ in Hq; in their K/V heads and these heads' sizes where
 * their groups do (kv_shape.others). */
struct rope_args {
    int32_t num_heads, num_kv_heads, head_dim;
    int32_t kv_group;   /* whose slot_mapping (step.h) */
    int32_t rotary_dim; /* <= head_dim, even; 0: nothing is rotated */
    enum rope_style style;
    const float
        *cos_sin; /* device memory [max_model_len][rotary_dim/2][2]: cos, sin, any scaling folded in */
    const float *q_norm,
        *k_norm;         /* device memory [D]: RMSNorm over each head before the rotation; NULL: none */
    bool norm_all_heads; /* it is over all of a token's q, and over all of its k: [Hq D], [Hk D] */
    const float *q_norm_bias, *k_norm_bias; /* then it is LayerNorm, with these; NULL: RMSNorm */
    bool norm_by_head;   /* it is LayerNorm over each head, with weights of its own: [Hq D], [Hk D] */
    bool norm_follows;   /* it is over each head behind the rotation */
    const float *v_norm; /* device memory [D]: RMSNorm over each head of v; NULL: none */
    float clip;          /* before all this q, k and v are held within -clip and clip; 0: they are not */
    int32_t
        v_dim; /* of a head of v: qkv[T][(Hq + Hk) D + Hk v_dim]; less than D: zeros follow in the pool; 0: D */
    float v_scale; /* what v is multiplied by; 0: by nothing */
    bool q_alone;  /* qkv is q alone, and nothing is written: K and V are those of a layer before */
    float norm_eps;
};

/* A layer's attention: shapes, as in rope_args, and what is its own. */
struct attention_args {
    int32_t num_heads, num_kv_heads, head_dim;
    int32_t kv_group;              /* whose block tables (step.h) */
    bool q_alone;                  /* as in rope_args */
    int32_t v_dim;                 /* the same; out[T][Hq v_dim] */
    float scale;                   /* 1/sqrt(D) unless the model says otherwise */
    int32_t sliding_window, chunk; /* what its tokens see of those before them (mask_first_key) */
    bool window_of_both_sides;     /* and, where masks let them, of those behind them (mask_end_key) */
    /* The query at place p is multiplied by 1 + temperature_scale ln(1 + floor((p + temperature_offset) / temperature_floor));
     * floor 0: it is not. The offset is 0 or 1. */
    float temperature_scale;
    int32_t temperature_floor, temperature_offset;
    float softcap; /* scaled scores become softcap tanh(score / softcap); 0: they stay */
    /* ALiBi (alibi.h): what a scaled score loses for each place between key and query is its head's slope times alibi_scale; alibi_most 0:
     * nothing. Without softcap. */
    float alibi_most, alibi_scale;
    /* What a scaled score gains by how far its key is behind the query: device memory [Hq][2 distance_reach + 1], a head's values from the
     * distance -distance_reach on; what is farther away gains as much as what is that far. Reach 0: nothing. Without softcap and
     * ALiBi. */
    const float *distance_bias;
    int32_t distance_reach;
    const float
        *sinks;    /* device memory [Hq]: a score that counts in each head's softmax and has no value; NULL */
    bool is_gated; /* apply_gates comes behind it */
    bool
        by_heads; /* each device of a group has its share of the heads, and of K and V; the same in all layers */
    /* Of the model, where this device has a share of them: results are as if it had all. 0: it has */
    int32_t all_heads, all_kv_heads;
    bool gates_by_head, gates_are_softplus; /* apply_gates */
    int32_t latent_k_dim,
        latent_v_dim;            /* where D is that of latents, what they stand for: Dn + Dr, Dv; else 0 */
    const struct latent *latent; /* the layer's, once it is made; NULL: attention is over what is kept */
};

enum { ALTUP_STREAMS = 4 };

/* AltUp (Baykal et al., "Alternating Updates for Efficient Transformers", 2023): a token has n = ALTUP_STREAMS residual streams x_0 to
 * x_3, of which a layer computes with the first and guesses the others. Of a row v the router makes n values,
 *
 *   m = tanh(router RMSNorm(v))
 *
 * before the layer of x_0: p_i = x_i + sum_j (predict_i m)_j x_j; and behind it, of what the layer has made of p_0:
 * x_i = p_i + (1 + correct_i m) (v - p_0). */
struct altup_args {
    int32_t hidden_size;
    float eps;
    /* device memory, f32 */
    const float *router;       /* [n][H]: times the weight of its norm */
    const float *predict;      /* [n][n][n]: of stream i, what of m counts for stream j */
    const float *correct;      /* [n][n] */
    const float *out_scale;    /* [H]: of what altup_correct gives */
    const float *delta_weight; /* [H]: of the norm of altup_predict's delta */
};

/* x[n][..][H] (res), stride values from one to the next. */
struct altup_streams {
    void *x;
    int64_t stride;
};

/* Which rows of a step an operation that works row by row computes. */
enum row_set {
    ROWS_TOKENS, /* all T tokens */
    ROWS_LOGITS, /* the R that pick_logit_rows has put together */
};

/* Device-memory mirror of struct step, filled by step_begin; opaque to the model code. */
struct batch;

struct device_options {
    const char *cpu_isa; /* "auto": the best that the machine has; or the name of a set (cpu/isa.h) */
    int num_threads;     /* CPU device: 0 = as many as the process may use */
    int cuda_device;     /* ordinal; of a group the first one's */
    int num_devices;     /* that compute as one (kernels/group); 0: 1 */
    bool on_one_gpu;     /* for tests: all of them are the GPU cuda_device */
    bool cuda_portable;  /* on a Hopper, too, nothing but the kernels that every GPU from sm_80 on can run */
    int step_timeout_ms; /* CUDA device: a step that takes longer has failed; 0: none is too long */
};

struct device {
    const struct kernel_table *ops;
    const char *name; /* "cpu" or "cuda" */
    char description
        [128]; /* "AVX-512, 2 threads", "NVIDIA H200, 139 GiB": of a group each member's, as results do not tell them apart */
    int act_bytes, res_bytes;    /* bytes of an activation and of a residual element */
    int num_steps_in_flight_max; /* 1: step_begin computes; 2: the next step may be scheduled meanwhile */
    bool prefill_decode_equal;   /* see "The same bits" */
    int32_t
        prefill_tile; /* since prepare: queries of a prompt that attention works on together; a chunk that ends inside a
                             tile takes the time of a whole one */
    int32_t
        prefill_keys_max; /* since kv_pool_create: of a step's prompts in all, each of which counts whole blocks of what its
                                 last token sees and one more; 0: any */
    bool kv_any_dtype;
    int32_t norm_values_max; /* of a row that rms_norm takes; 0: any */
    bool has_rare_dtypes;    /* takes weights of dtype_is_rare as they are; else they come as BF16 */
    /* Set before the first weight: those in a GGUF file's blocks stay so where the device can, as there is no room for
     * more. */
    bool keeps_packed;
    bool keeps_copies; /* as early: what stays packed is there as bf16, too, for products of many rows */
    bool is_gpu;       /* has memory of its own, which is the K/V cache's, and a first step that is slow */
    uint8_t
        decode_bundle; /* since kv_pool_create: decoding rows of one sequence that read keys together; 0 is 1 */
    uint64_t gpu_bytes; /* of that memory, whoever uses it */
    int num_members;    /* of a group of devices; 0: it is none */
    /* Of a member of a group, before weights_done: what it chooses by measuring it takes from this one, which has linears of the same
     * shapes and has chosen. NULL: it measures. */
    struct device *chooser;
};

struct kernel_table {
    void (*close)(struct device *d);

    /* ---- memory: device memory unless said otherwise; freed with close ---- */

    /* Bytes that could be allocated now. */
    uint64_t (*free_bytes)(struct device *d);
    /* Zeroed, aligned to 256. what names the use in the memory plan. NULL when there is no room. */
    void *(*alloc)(struct device *d, size_t bytes, const char *what);
    int (*upload)(struct device *d, void *to_device, const void *from_host, size_t bytes) must_check;
    int (*download)(struct device *d, void *to_host, const void *from_device, size_t bytes) must_check;
    /* Scratch for the largest step of a model of these shapes. layers: each layer's attention; they differ in their windows,
     * groups and Hq, and in K/V heads and head sizes where the device can: else STATUS_UNSUPPORTED. Called once, before seal. */
    int (*prepare)(struct device *d, const struct step_limits *limits, int32_t vocab_size,
                   int32_t hidden_size, int32_t intermediate_size, const struct attention_args *layers,
                   int32_t num_layers, struct error *err) must_check;
    void (*seal)(struct device *d);

    /* ---- weights ---- */

    /* Takes the weight in, repacking or converting as the device likes; *out lives until close.
     * STATUS_UNSUPPORTED for a scheme or a slice of a part that the device does not know. */
    int (*linear_create)(struct device *d, const struct linear_desc *desc, struct linear **out,
                         struct error *err) must_check;
    /* Bytes that a linear keeps on the device beyond the mapped file (0 when used in place). */
    uint64_t (*linear_bytes)(struct device *d, const struct linear *l);
    /* As linear_create: of one that was made before. NULL where the device has none, and linear_lora. */
    int (*lora_create)(struct device *d, const struct linear *w, const struct lora_desc *desc,
                       struct lora **out, struct error *err) must_check;
    /* Adapter i, from 0 on, becomes these parts, each a rank of desc.max_rank at most; data NULL: it adds nothing. After seal, too; no
     * sequence of a step in flight has it. When this fails it is to be set again before one has. */
    int (*lora_set)(struct device *d, const struct linear *w, struct lora *l, int32_t i,
                    const struct lora_part parts[LINEAR_PARTS_MAX], struct error *err) must_check;
    /* As linear_create, for a mixture of experts. NULL where the device has none. */
    int (*moe_create)(struct device *d, const struct moe_desc *desc, struct moe **out,
                      struct error *err) must_check;
    /* As linear_create, for latent attention. NULL where the device has none, and of the two operations of it. */
    int (*latent_create)(struct device *d, const struct latent_desc *desc, struct latent **out,
                         struct error *err) must_check;
    /* As linear_create, for a layer with a state; the states of all batch_slots come with it, and limits.num_states places for
     * kept ones. NULL where the device has none, and of the four operations on them. */
    int (*delta_net_create)(struct device *d, const struct delta_desc *desc, struct delta_net **out,
                            struct error *err) must_check;
    /* Whether a step may have drafts where layers have states [k_dim][v_dim] (state_runs.h). NULL: of none. */
    bool (*delta_takes_drafts)(struct device *d, int32_t k_dim, int32_t v_dim);
    /* Once, when all weights are in: e.g. times the GEMM candidates. */
    int (*weights_done)(struct device *d, struct error *err) must_check;

    /* ---- K/V pool ---- */

    /* Since prepare: of all that kv_pool_create takes, but for its host blocks. So many for each block, and so many however
     * few there are. */
    uint64_t (*kv_pool_bytes)(struct device *d, const struct kv_shape *shape);
    int (*kv_pool_create)(struct device *d, const struct kv_shape *shape, struct kv_pool **out,
                          struct error *err) must_check;
    /* Copies blocks of all their layers, block_ids[i] to host block host_ids[i], or back. Behind the steps begun so far; done
     * on return. */
    int (*kv_blocks_save)(struct device *d, struct kv_pool *pool, const int32_t *block_ids,
                          const int32_t *host_ids, int num_blocks) must_check;
    int (*kv_blocks_load)(struct device *d, struct kv_pool *pool, const int32_t *block_ids,
                          const int32_t *host_ids, int num_blocks) must_check;

    /* Copies of this layer's states, one after the other. Behind the steps begun so far, before those begun later. What is kept
     * is what the batch_slot's last step has left, or was there before that step's last token. */
    int (*states_copy)(struct device *d, struct delta_net *net, const struct state_copy *copies,
                       int num_copies) must_check;

    /* ---- one step ---- */

    /* Copies the step in and returns the device's view of it, valid until the step's step_end. */
    struct batch *(*step_begin)(struct device *d, const struct step *step);
    /* Waits for the oldest step begun and writes its num_logits results, in row order. */
    int (*step_end)(struct device *d, struct sample_result *results, struct error *err) must_check;
    /* Whether step_end would not have to wait. There is a step that was begun and not ended. */
    bool (*step_has_ended)(struct device *d);
    /* GPU graphs; a CPU has NULL in all of them. replay returns true when this batch's whole forward, logits
     * included, was launched from a recorded graph; otherwise the caller runs the forward between
     * record_begin and record_end (which may or may not record). */
    bool (*replay)(struct device *d, struct batch *b);
    void (*record_begin)(struct device *d, struct batch *b);
    void (*record_end)(struct device *d, struct batch *b);
    /* The number of decoding sequences, n or more, for which a step of n of them is recorded (and padded to). A
     * CPU has NULL. */
    int32_t (*graph_size)(const struct device *d, int32_t n);
    /* While it is on, a step that is recorded is not run, and has no results. A CPU has NULL. */
    void (*rehearse)(struct device *d, bool on);

    /* Ids that no row may draw from now on, whatever it asks for: a bit_set (base/bit_set.h). Once for a model,
     * while no step is in flight, before or after seal. Host memory, copied. */
    void (*forbid)(struct device *d, const uint64_t *ids);

    /* Tokens that count for penalties. Sets slot's history to prompt tokens [0, num_prompt) and generated
     * ones after them; every token sampled for the slot is put at its position by sample itself, so that what was drawn
     * behind a draft that did not come true is overwritten later. Needed only for sequences with penalties. Host memory,
     * copied. */
    int (*history_set)(struct device *d, int32_t batch_slot, const int32_t *token_ids, int32_t num_prompt,
                       int32_t num_tokens) must_check;

    /* ---- math, all over the batch b ---- */

    /* out[T][H] (res) = table[token_ids] * scale, of an id that the table has no row for the first. table is a linear made with
     * also_embedding or a plain one; H is its own. */
    void (*embed)(struct device *d, const struct batch *b, void *out, const struct linear *table,
                  float scale);

    /* x[T][H] (res) += table[positions] (f32). NULL where the device has not what encoders need: this, norms with a bias,
     * LINEAR_UP. */
    void (*embed_positions)(struct device *d, const struct batch *b, void *x, const float *table);

    /* x[T][width] (act) *= y[T][stride] (act), the first width of each row; T is R with ROWS_LOGITS. NULL where the device has it
     * not, and no norm_args.num_parts. */
    void (*multiply)(struct device *d, const struct batch *b, enum row_set rows, void *x, const void *y,
                     int32_t width, int32_t stride);

    /* out[R] = x[logit_rows], rows of row_bytes, a multiple of 8 on a GPU. What comes after attention in the
     * last layer is computed for these rows alone: nothing reads the others. */
    void (*pick_logit_rows)(struct device *d, const struct batch *b, void *out, const void *x,
                            size_t row_bytes);

    /* In rms_norm and the products T is R with ROWS_LOGITS. */

    /* out[T][H] (act) = RMSNorm(x[T][H] (res)) * weight[H] (f32), sums in a fixed order over H. delta[T][H]
     * (act), unless NULL, is added to x first, in place. */
    void (*rms_norm)(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                     const void *delta, const struct norm_args *args);

    /* out[T][N] (act) = x[T][K] (act) W^T + bias. In both products x and out have room for limits.num_tokens
     * rows, and those behind T may be read and overwritten. */
    void (*linear)(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                   const struct linear *w);
    /* out[T][N/2] (act) = gate_function(gate) * up, for LINEAR_GATE_UP; out[T][N] = gate_function(x W^T + bias), for
     * LINEAR_UP. */
    void (*linear_gated)(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                         const struct linear *w);

    /* linear or linear_gated, as the linear's kind has it, in a step with adapters: to rows whose sequence has one (step.loras) what that
     * adds is added, before a gate. Those of other sequences have the bits that they have without. */
    void (*linear_lora)(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                        const struct linear *w, const struct lora *lora);

    /* rms_norm of x[T][H] (res) and delta[T][H] (act), and the product of what that gives, linear's or linear_gated's out, in
     * one, with the same bits. Unless delta is NULL the sum of both goes to sum[T][H] (res), which is not x. False, and nothing is
     * done: the device would not be faster so. NULL: it never is. */
    bool (*norm_linear)(struct device *d, const struct batch *b, enum row_set rows, void *out, void *sum,
                        const void *x, const void *delta, const struct norm_args *norm,
                        const struct linear *w);

    /* out[T][I] (act) = gelu(max(gate - (mean + cut deviation), 0)) up, of x[T][2 I] (act), gate then up; GELU by its approximation with
     * tanh, mean and standard deviation of the row's gate. NULL where the device has it not, and of the four operations behind it. */
    void (*sparse_gelu)(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                        int32_t width, float cut);

    /* The streams of x[T][H] (res): itself, and of others[n - 1][..][H] (act), as far apart as streams, each with x's root mean
     * square. */
    void (*altup_begin)(struct device *d, const struct batch *b, const struct altup_streams *streams,
                        const void *x, const void *others, int32_t hidden_size);
    /* RMSNorm(delta[T][H] (act)) * delta_weight, unless delta is NULL, is added to all streams but the first; then they become what
     * is predicted of them. x[T][H] (res) = the first. */
    void (*altup_predict)(struct device *d, const struct batch *b, enum row_set rows,
                          const struct altup_streams *streams, void *x, const void *delta,
                          const struct altup_args *args);
    /* Streams become what is corrected of them by x[T][H] (res). out[T][H] (act) = the first, times out_scale. */
    void (*altup_correct)(struct device *d, const struct batch *b, enum row_set rows, void *out,
                          const struct altup_streams *streams, const void *x, const struct altup_args *args);
    /* x[T][H] (res) = the mean of the first stream and of others[n - 1][..][H] (act), as far apart as streams, each with its root mean
     * square. */
    void (*altup_end)(struct device *d, const struct batch *b, enum row_set rows, void *x,
                      const struct altup_streams *streams, const void *others, int32_t hidden_size);

    /* out[T][H] (act) = what the experts that are chosen by seen[T][H] (act), mostly x itself, make of x[T][H] (act). */
    void (*moe)(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                const void *seen, const struct moe *moe);

    /* In place on qkv[T][(Hq + 2 Hk) D] (act): optional q/k norm, rotation of q and k at positions;
     * then k and v are written to the pool at the group's slot_mapping, for this layer of its blocks. */
    void (*rope_kv_write)(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                          int32_t layer, const struct rope_args *args);

    /* out[T][Hq D] (act). Over the paged pool: a token sees itself and those before it, as far as the layer's window and
     * chunk reach, or what its sequence's mask says (mask.h). Prefill half by FlashAttention-2, decode half by Flash-Decoding. */
    void (*attention)(struct device *d, const struct batch *b, void *out, const void *qkv,
                      const struct kv_pool *pool, int32_t layer, const struct attention_args *args);

    /* Before rope_kv_write, qkv[T][(Hq + 2) D] (act) of x[T][H] (act): each head of q and the one of K as [Dr | r], V as
     * [r | zeros]. Behind attention, out[T][Hq Dv] (act) = v_b times the first r of each head of x[T][Hq D] (act). */
    void (*latent_qkv)(struct device *d, const struct batch *b, void *qkv, const void *x,
                       const struct latent *latent);
    void (*latent_values)(struct device *d, const struct batch *b, void *out, const void *x,
                          const struct latent *latent);

    /* out[T][Gv Dv] (act). A sequence whose first token here has position 0 begins with zeros; one goes on where its last step ended,
     * or with that step's last token again, or behind a state that has come back. Where it has a draft, with any of the run's tokens again,
     * or behind the last (state_runs.h). */
    void (*delta)(struct device *d, const struct batch *b, void *out, const struct delta_inputs *in,
                  struct delta_net *net);
    /* Attention whose output is gated: projected[T][(2 Hq + 2 Hk) D] (act) has a gate behind each head of q; qkv gets the rest,
     * gates[T][Hq D] the gates. Behind attention, x[T][Hq D] (act) *= sigmoid(gates), or softplus(gates); of gates[T][Hq], with
     * gates_by_head, each is its head's. */
    void (*split_gates)(struct device *d, const struct batch *b, void *qkv, void *gates,
                        const void *projected, const struct attention_args *args);
    void (*apply_gates)(struct device *d, const struct batch *b, void *x, const void *gates,
                        const struct attention_args *args);

    /* Rows of x[R][H] (act) that pool join their batch_slots' sums, in the order of R, in double; the others are left
     * alone. Of a row that holds a NaN or an infinity the result says failed. Where num_pooled > 0. */
    void (*pool)(struct device *d, const struct batch *b, const void *x);

    /* The forward's last operation, unless all rows pool: logits[R][V] f32 in device scratch = x[R][H] W^T, where x has
     * room for limits.num_logits rows. A device may keep less than the logits where the rows' parameters say that
     * nobody reads them. */
    void (*logits)(struct device *d, const struct batch *b, const void *x, const struct linear *lm_head);

    /* Behind the forward, once for each step, before another step begins: applies each row's sample_params and
     * keeps the results for step_end. It is here that allowed and withheld are read; what a step without
     * constrained rows draws may have been drawn before. */
    void (*sample)(struct device *d, struct batch *b);

    /* What a row has left for its batch_slot (step.h), once step_end has told of it: H floats, or num_row_logits. Host
     * memory, there until the batch_slot has another sequence. */
    const float *(*row)(struct device *d, int32_t batch_slot);

    /* ---- as a member of a group (kernels/group); NULL where the device cannot be one ---- */

    /* Once, when all of them are open: members reach each other's memory from now on. This one is members[idx]. */
    int (*join)(struct device *d, struct device *const *members, int num, int idx,
                struct error *err) must_check;
    /* The calls of this thread that follow, up to those of another member, are this one's. NULL: they need not know. */
    void (*select)(struct device *d);
    /* Rows of from[T], of row_bytes, a multiple of 16 that is the same for all, become this one's part of each member's to[T], a row of
     * which has all members' parts, to[i] of members[i], when nobody reads what is there any more. */
    void (*share)(struct device *d, const struct batch *b, enum row_set rows, void *const *to,
                  const void *from, int64_t row_bytes);
    /* What comes behind it waits until the others' rows are there, of as many calls of share as this member has had. NULL: they
     * are. */
    void (*share_end)(struct device *d);
    /* logits in two parts, of a head that was made of a share of its rows: out[R][n] f32, which goes to where each member has its
     * logits[R][V]; then, when all are there, the rest. */
    void (*logits_begin)(struct device *d, const struct batch *b, void *out, const void *x,
                         const struct linear *lm_head);
    float *(*logits_memory)(struct device *d);
    void (*logits_end)(struct device *d, const struct batch *b);
    /* moe in parts, of a mixture that was made of a share of the rows of each expert's gate and up, and of down: what gate and up make;
     * then, of each kind of experts, what of it this member gives the others, and what all of them gave; out[T][this one's share of H].
     * moe_begin is NULL: members have whole ones. moe_share is NULL: what has been computed is there for all. */
    void (*moe_begin)(struct device *d, const struct batch *b, enum row_set rows, const void *x,
                      const void *seen, const struct moe *moe);
    void (*moe_share)(struct device *d, const struct batch *b, enum row_set rows, const struct moe *moe,
                      enum moe_experts which);
    void (*moe_gather)(struct device *d, const struct batch *b, enum row_set rows, const struct moe *moe,
                       enum moe_experts which);
    void (*moe_end)(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                    const struct moe *moe);

    /* ---- for tests and tools ---- */

    /* Copies row r of the raw logits of the oldest step begun to host (V floats). */
    int (*read_logits)(struct device *d, int32_t row, float *out) must_check;
    /* Converts between f32 host memory and act (res = false) or res (res = true) device memory. */
    int (*write_f32)(struct device *d, void *to_device, const float *from, size_t count, bool res) must_check;
    int (*read_f32)(struct device *d, float *to, const void *from_device, size_t count, bool res) must_check;
};

/* Opens "cpu", "cuda", or "auto" (cuda when it can be used, else cpu, with one log line saying why).
 * CUDA is loaded from the shared object libflashd_cuda.so beside the program or in its lib folder. */
int device_open(const char *name, const struct device_options *options, struct device **out,
                struct error *err) must_check;

/* Once, before there are other threads: what drivers read from the environment, unless the operator has set
 * it. */
void device_set_environment(void);

/* One of flashd's own shared objects, found beside the program or in its lib folder. NULL: err says why. */
void *device_load_library(const char *name, struct error *err) must_check;

/* Entry of the CPU device, and the symbol that the CUDA shared object exports. */
int cpu_device_open(const struct device_options *options, struct device **out, struct error *err) must_check;
typedef int device_open_function(const struct device_options *options, struct device **out,
                                 struct error *err);
#define CUDA_DEVICE_OPEN_SYMBOL "cuda_device_open"

#endif
