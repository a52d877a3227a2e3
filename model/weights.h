/* weights.h - the weights that a model is made of: each one's names in files, its shape, and when it must
 * exist. Read-only. Thread: any. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

struct model_config;

/* With their shapes: V vocabulary, H hidden size, I intermediate size, Q and KV all heads' values, D
 * head_dim; of experts: E their number, J their intermediate size, S the shared one's. */
enum weight_role {
    WEIGHT_TOKEN_EMBEDDING, /* [V][H] */
    WEIGHT_OUTPUT_NORM,     /* [1][H] */
    WEIGHT_OUTPUT_NORM_BIAS,
    WEIGHT_LM_HEAD,      /* [V][H]; the embedding's view when tied */
    WEIGHT_LM_HEAD_BIAS, /* [1][V]; of Phi-3.5-MoE */
    /* of what a token adds to each layer; L layers of P values */
    WEIGHT_LAYER_EMBEDDING,       /* [V][L P] */
    WEIGHT_LAYER_PROJECTION,      /* [L P][H] */
    WEIGHT_LAYER_PROJECTION_NORM, /* [1][P] */
    /* of AltUp's streams but the first (device.h: altup_args) */
    WEIGHT_ALTUP_IN_1, /* [H][H]: of what stands in the first as it begins */
    WEIGHT_ALTUP_IN_2,
    WEIGHT_ALTUP_IN_3,
    WEIGHT_ALTUP_OUT_1, /* [H][H]: of what stands in it at the end */
    WEIGHT_ALTUP_OUT_2,
    WEIGHT_ALTUP_OUT_3,
    WEIGHT_ROPE_DIVISORS, /* [1][rotary_dim / 2]; divide the rotation's frequencies; only GGUF has it */
    /* of encoders; P positions, Y types */
    WEIGHT_POSITION_EMBEDDING,  /* [P][H] */
    WEIGHT_TYPE_EMBEDDING,      /* [Y][H] */
    WEIGHT_EMBEDDING_NORM,      /* [1][H] */
    WEIGHT_EMBEDDING_NORM_BIAS, /* [1][H] */
    WEIGHT_DISTANCE_BIAS,       /* [DISTANCE_BUCKETS][heads]: what scores gain (distance_bias.h) */
    /* of the head of a model that scores pairs (score_head.h) */
    WEIGHT_HEAD_DENSE,      /* [H][H] */
    WEIGHT_HEAD_DENSE_BIAS, /* [1][H] */
    WEIGHT_HEAD_NORM,       /* [1][H] */
    WEIGHT_HEAD_OUT,        /* [1][H] */
    WEIGHT_HEAD_OUT_BIAS,   /* [1][1] */
    /* per layer */
    WEIGHT_ATTENTION_NORM, /* [1][H] */
    WEIGHT_ATTENTION_NORM_BIAS,
    WEIGHT_Q,           /* [Q][H], or [2 Q][H] with a gate behind each head */
    WEIGHT_K,           /* [KV][H] */
    WEIGHT_V,           /* [KV][H] */
    WEIGHT_O,           /* [H][Q] */
    WEIGHT_REPLACEMENT, /* [H][H]: what stands in the place of attention */
    WEIGHT_Q_BIAS,      /* biases: [1][rows]; data NULL when absent */
    WEIGHT_K_BIAS,
    WEIGHT_V_BIAS,
    WEIGHT_O_BIAS,
    WEIGHT_ATTENTION_GATE, /* [Q][H], or [heads][H]: of the gates of attention's output, where they are not behind Q's heads */
    WEIGHT_SINKS,              /* [1][heads]: scores without a value (attention_args) */
    WEIGHT_Q_NORM,             /* [1][D], or [1][Q] */
    WEIGHT_K_NORM,             /* [1][D], or [1][KV] */
    WEIGHT_Q_NORM_BIAS,        /* [1][Q]: of LayerNorm */
    WEIGHT_K_NORM_BIAS,        /* [1][KV] */
    WEIGHT_ATTENTION_SUB_NORM, /* [1][Q]: of what O gets */
    WEIGHT_ATTENTION_POST_NORM, /* [1][H]: of what attention gives, before it is added; of encoders: of the sum */
    WEIGHT_ATTENTION_POST_NORM_BIAS,
    WEIGHT_ATTENTION_INNER_NORM, /* [1][H]: of the sum, which then is added to what attention has got, and normed by the former */
    WEIGHT_ATTENTION_INNER_NORM_BIAS,
    /* of latent attention (device.h: latent_desc) */
    WEIGHT_LATENT_Q_A,     /* [R][H] */
    WEIGHT_LATENT_Q_NORM,  /* [1][R] */
    WEIGHT_LATENT_Q_B,     /* [heads (Dn + Dr)][R] */
    WEIGHT_LATENT_KV_A,    /* [r + Dr][H] */
    WEIGHT_LATENT_KV_NORM, /* [1][r] */
    WEIGHT_LATENT_KV_B,    /* [heads (Dn + Dv)][r] */
    WEIGHT_LATENT_K_B,     /* [heads r][Dn] */
    WEIGHT_LATENT_V_B,     /* [heads Dv][r] */
    /* of a layer with a state, Gk heads of k and Gv of v (device.h: delta_desc); C channels, U all values of v */
    WEIGHT_DELTA_QKV,      /* [C][H]; or apart: */
    WEIGHT_DELTA_Q,        /* [Gk Dk][H] */
    WEIGHT_DELTA_K,        /* [Gk Dk][H] */
    WEIGHT_DELTA_V,        /* [U][H] */
    WEIGHT_DELTA_Z,        /* [U][H]; or of what the next makes of it [U][R] */
    WEIGHT_DELTA_Z_NARROW, /* [R][H] */
    WEIGHT_DELTA_F,        /* [Gv Dk][H], or [Gv Dk][R]: of decays of the rows of states */
    WEIGHT_DELTA_F_NARROW, /* [R][H] */
    WEIGHT_DELTA_QKVZ, /* [C + U][H]: both, by heads of k; of other kinds (delta_kind) all that is projected */
    WEIGHT_DELTA_B,    /* [Gv][H] */
    WEIGHT_DELTA_A,    /* [Gv][H] */
    WEIGHT_DELTA_BA,   /* [2 Gv][H]: both, by heads of k */
    WEIGHT_DELTA_CONVOLUTION,      /* [C][4]; or of q, then: */
    WEIGHT_DELTA_CONVOLUTION_K,    /* [Gk Dk][4] */
    WEIGHT_DELTA_CONVOLUTION_V,    /* [U][4] */
    WEIGHT_DELTA_CONVOLUTION_BIAS, /* [1][C] */
    WEIGHT_DELTA_SKIP,             /* [1][Gv]; of DELTA_SELECTIVE [1][U] */
    WEIGHT_DELTA_DECAY,            /* [1][Gv]; likewise [U][Dk] */
    WEIGHT_DELTA_DT_BIAS,          /* [1][Gv], or [1][Gv Dk]; likewise [1][U] */
    WEIGHT_DELTA_NORM,             /* [1][Dv] */
    WEIGHT_DELTA_SELECTION,        /* of DELTA_SELECTIVE: [R + 2 Dk][U], R ranks of steps */
    WEIGHT_DELTA_STEPS,            /* [U][R] */
    WEIGHT_DELTA_STEP_NORM,        /* [1][R] */
    WEIGHT_DELTA_K_NORM,           /* [1][Dk] */
    WEIGHT_DELTA_Q_NORM,           /* [1][Dk] */
    WEIGHT_DELTA_OUT,              /* [H][U] */
    /* of layers with AltUp, N streams, and of LAuReL, of rank B */
    WEIGHT_ALTUP_ROUTER,      /* [N][H] */
    WEIGHT_ALTUP_ROUTER_NORM, /* [1][H] */
    WEIGHT_ALTUP_PREDICT,     /* [N N][N] */
    WEIGHT_ALTUP_CORRECT,     /* [N][N] */
    WEIGHT_ALTUP_SCALE,       /* [1][H] */
    WEIGHT_LAUREL_NARROW,     /* [B][H] */
    WEIGHT_LAUREL,            /* [H][B] */
    WEIGHT_LAUREL_NORM,       /* [1][H]: of what it gives */
    WEIGHT_MLP_NORM,          /* [1][H] */
    WEIGHT_MLP_NORM_BIAS,
    WEIGHT_MLP_SUB_NORM, /* [1][I]: of what DOWN gets */
    WEIGHT_GATE,         /* [I][H] */
    WEIGHT_UP,           /* [I][H] */
    WEIGHT_DOWN,         /* [H][I] */
    WEIGHT_UP_BIAS,
    WEIGHT_DOWN_BIAS,
    WEIGHT_LAYER_INPUT_GATE, /* [P][H] */
    WEIGHT_LAYER_INPUT_OUT,  /* [H][P] */
    WEIGHT_LAYER_INPUT_NORM, /* [1][H]: of what it gives */
    WEIGHT_LAYER_SCALE,      /* [1][1]: what the layer leaves is multiplied by it */
    WEIGHT_XIELU_ABOVE,      /* [1][1]: device.h has a = softplus of it, b = c + softplus of the next, c */
    WEIGHT_XIELU_BELOW,      /* [1][1] */
    WEIGHT_XIELU_BETA,       /* [1][1] */
    WEIGHT_MLP_POST_NORM,    /* [1][H]: as WEIGHT_ATTENTION_POST_NORM */
    WEIGHT_MLP_POST_NORM_BIAS,
    WEIGHT_ROUTER,               /* [E][H] */
    WEIGHT_ROUTER_BIAS,          /* [1][E]: where experts are chosen */
    WEIGHT_ROUTER_SCALE,         /* [1][H]: of the norm before it */
    WEIGHT_SCORE_FACTORS,        /* [1][E]: of scores of those chosen */
    WEIGHT_EXPERTS_NORM,         /* [1][H]: before experts that an MLP is beside */
    WEIGHT_MLP_POST_NORM_BESIDE, /* [1][H]: of what that MLP gives, before both are added */
    WEIGHT_EXPERTS_POST_NORM,    /* [1][H]: of what they give */
    WEIGHT_ROUTER_LOGIT_BIAS,    /* [1][E]: of the router's product */
    WEIGHT_SHARED_GATE,          /* [S][H]: of the expert that all tokens have */
    WEIGHT_SHARED_UP,            /* [S][H] */
    WEIGHT_SHARED_DOWN,          /* [H][S] */
    WEIGHT_SHARED_WEIGHT,        /* [1][H]: its sigmoid weighs that expert */
    /* of experts with a space of their own, of L values, which is their H below (device.h: moe_desc) */
    WEIGHT_TO_EXPERTS,   /* [L][H] */
    WEIGHT_FROM_EXPERTS, /* [H][L] */
    WEIGHT_EXPERTS_BIAS, /* [1][H]: added to what experts make together */
    /* per expert */
    WEIGHT_EXPERT_GATE, /* [J][H] */
    WEIGHT_EXPERT_UP,   /* [J][H] */
    WEIGHT_EXPERT_DOWN, /* [H][J] */
    WEIGHT_EXPERT_GATE_BIAS,
    WEIGHT_EXPERT_UP_BIAS,
    WEIGHT_EXPERT_DOWN_BIAS,
    WEIGHT_ROLE_COUNT
};

enum weight_dimension {
    DIM_1, /* as rows: a vector */
    DIM_VOCAB,
    DIM_POSITIONS,
    DIM_TYPES,
    DIM_BUCKETS,
    DIM_HIDDEN,
    DIM_INTERMEDIATE,
    DIM_Q,
    DIM_GATED_Q,
    DIM_KV,
    DIM_V,        /* where values are shorter than keys */
    DIM_ATTENDED, /* what they make, of all heads */
    DIM_HEAD,
    DIM_NUM_HEADS,
    DIM_GATES, /* of attention's output: as many, or as Q has values */
    DIM_ROTATIONS,
    DIM_LAYER_VOCAB,
    DIM_LAYER_EMBEDDING,
    DIM_LAYER_EMBEDDINGS, /* of all layers */
    DIM_ALTUP,
    DIM_ALTUP_PAIRS, /* of streams */
    DIM_LAUREL,
    DIM_EXPERTS,
    DIM_EXPERT,
    DIM_EXPERT_HIDDEN, /* of their own space, if they have one */
    DIM_SHARED,
    DIM_LATENT_Q, /* all heads' values */
    DIM_LATENT_VALUES,
    DIM_LATENT_BOTH, /* of K that is not rotated, and of V */
    DIM_LATENT_RANK,
    DIM_LATENT_RANKS, /* one for each head */
    DIM_LATENT_KV,
    DIM_LATENT_Q_RANK,
    DIM_LATENT_PLAIN,
    DIM_DELTA_CHANNELS,
    DIM_DELTA_KEYS, /* all values of k */
    DIM_DELTA_DECAYS,
    DIM_DELTA_WIDTH,
    DIM_DELTA_BOTH, /* of these two */
    DIM_DELTA_HEADS,
    DIM_DELTA_RATES, /* twice as many */
    DIM_DELTA_HEAD,
    DIM_DELTA_TAPS,
    DIM_DELTA_PROJECTED, /* of other kinds */
    DIM_DELTA_KEY,
    DIM_DELTA_STEPS,     /* ranks of them */
    DIM_DELTA_SELECTION, /* these, and two keys */
    DIM_SHORT_TAPS,
};

/* When a weight must exist. Where it need not, the first three are used if they are there; all others are left alone
 * then, as they would change the mathematics. */
enum weight_presence {
    PRESENT_MAYBE,
    PRESENT_IF_QKV_BIAS,
    PRESENT_IF_O_BIAS,
    PRESENT_NEVER,
    PRESENT_ALWAYS,
    PRESENT_IF_QK_NORM,
    PRESENT_IF_NOT_TIED,
    PRESENT_IF_DENSE,  /* the layer has an MLP that is one */
    PRESENT_IF_SPARSE, /* it has experts */
    PRESENT_IF_MLP,    /* it has one of these */
    PRESENT_IF_ROUTER_BIAS,
    PRESENT_IF_OWN_SPACE, /* it has experts, in a space of their own */
    PRESENT_IF_SHARED,    /* one expert is every token's */
    PRESENT_IF_SHARED_WEIGHT,
    PRESENT_BEHIND_FIRST, /* the layer is not the first */
    PRESENT_IF_ATTENTION, /* the layer has K and V */
    PRESENT_IF_REPLACED,  /* or a product in their place */
    PRESENT_IF_MIXED,     /* or either, or a state */
    PRESENT_IF_OWN_KV,    /* it has a product of K's own (layer_config) */
    PRESENT_IF_OWN_V,     /* and of V's */
    PRESENT_IF_LAYER_EMBEDDINGS,
    PRESENT_IF_WINDOW,     /* the layer has a window */
    PRESENT_IF_STATE,      /* it has a state */
    PRESENT_IF_STATE_NORM, /* and what that gives is normed */
    /* of layers with attention */
    PRESENT_IF_Q_RANK,
    PRESENT_IF_NO_Q_RANK,
    PRESENT_IF_SPLIT, /* latent_config */
    PRESENT_IF_NOT_SPLIT,
};

/* Roles of one name lie stacked in one tensor, in their order. GGUF has all experts of a role in one tensor; so has a
 * directory unless its names have a * for the expert's number. So may those of other vectors, for the head's. */
struct weight_line {
    const char *
        gguf_name; /* of a layer: behind "blk.N."; with = in front a list among the keys, of a number a layer */
    const char
        *hf_name; /* of a layer: behind "layers.N."; from a / on: behind nothing, with no prefix either; NULL:
                              directories have no such weight */
    /* from a + on: of the layer behind, as a file counts them (family.h: mlps_are_layers) */
    enum weight_dimension rows, cols;
    enum weight_presence presence;
};

/* Where a family's weights differ from Llama's: up to the one whose role is WEIGHT_ROLE_COUNT. */
struct weight_change {
    enum weight_role role;
    struct weight_line line;
};

extern const struct weight_change weightless_norm_weights[], nanochat_weights[], gemma_weights[],
    vaultgemma_weights[], gpt2_weights[], gpt_neo_weights[], opt_weights[], bloom_weights[], mpt_weights[],
    falcon_serial_weights[], gptneox_weights[], exaone_weights[], internlm2_weights[], olmo_weights[],
    phi2_weights[], phi_weights[], mixtral_weights[], glm_weights[], gpt_oss_weights[], qwen3_next_weights[],
    qwen3_next_gguf_weights[], qwen3_5_weights[], stacked_weights[], llama4_weights[], latent_weights[],
    bert_weights[], bert_score_weights[], roberta_score_weights[], exaone4_weights[], olmoe_weights[],
    minimax_weights[], granite_moe_weights[], dots_weights[], seed_oss_weights[], ernie_moe_weights[],
    glm4_weights[], arcee_weights[], starcoder2_weights[], nemotron_weights[], stablelm_weights[],
    stablelm_parallel_weights[], cohere_weights[], cohere_moe_weights[], gate_up_weights[],
    granite_hybrid_weights[], nemotron_h_weights[], jais2_weights[], hunyuan_weights[], apertus_weights[],
    phimoe_weights[], lfm2_weights[], lfm3_weights[], modernbert_weights[], modernbert_score_weights[],
    nomic_weights[], nomic_moe_weights[], flash_roberta_weights[], flash_roberta_score_weights[],
    task_roberta_weights[], jina_weights[], jina_normed_weights[], gte_weights[], gte_score_weights[],
    hunyuan_moe_weights[], hy3_weights[], exaone_moe_weights[], hyperclovax_weights[], afmoe_weights[],
    laguna_weights[], muse_glimmer_weights[], falcon_h1_weights[], olmo_hybrid_weights[],
    kimi_linear_weights[], bailing_weights[], decilm_weights[], granite_swa_weights[],
    granite_moe_swa_weights[], gemma4_weights[], gemma3n_weights[], mimo_weights[], numbered_weights[],
    llama4_numbered_weights[], sparse_block_numbered_weights[], bailing_1_weights[], flint_weights[],
    axk1_weights[], gptj_weights[], falcon_weights[], falcon_40b_weights[], qwen_weights[],
    baichuan_weights[], phi4_mm_weights[], bitnet_weights[], bitnet_early_weights[], dbrx_weights[],
    plm_weights[], distilbert_weights[], distilbert_score_weights[], mpnet_weights[], mpnet_score_weights[],
    jamba_weights[], mamba_weights[], mamba2_weights[], decoder_score_weights[], gemma_score_weights[];

/* changes: NULL for none. */
const struct weight_line *weight_line(const struct weight_change *changes, enum weight_role role);
/* Whether any model of the family has it. */
bool weight_may_be(const struct weight_change *changes, enum weight_role role);
bool weight_is_norm(enum weight_role role);
/* What is added to the weight of a norm as it is read. */
float weight_norm_offset(const struct model_config *c, enum weight_role role);
static inline bool weight_is_of_expert(enum weight_role role)
{
    return role >= WEIGHT_EXPERT_GATE;
}

/* Of a layer; any for roles that are not per layer. */
int64_t weight_dimension(const struct model_config *c, enum weight_dimension dimension, int32_t layer);
/* Of a layer; any for roles that are not per layer. */
bool weight_is_required(const struct model_config *c, enum weight_presence presence, int32_t layer);
/* Whether it is used where it is there. */
bool weight_is_wanted(const struct model_config *c, enum weight_presence presence, int32_t layer);

#endif
