/* weights.h - the weights that a model is made of: each one's names in files, its shape, and when it must
 * exist. Read-only. Thread: any. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

struct model_config;

/* With their shapes: V vocabulary, H hidden size, I intermediate size, Q and KV all heads' values, D
 * head_dim. */
enum weight_role {
    WEIGHT_TOKEN_EMBEDDING, /* [V][H] */
    WEIGHT_OUTPUT_NORM,     /* [1][H] */
    WEIGHT_LM_HEAD,         /* [V][H]; the embedding's view when tied */
    WEIGHT_ROPE_DIVISORS,   /* [1][rotary_dim / 2]; divide the rotation's frequencies; only GGUF has it */
    /* per layer */
    WEIGHT_ATTENTION_NORM, /* [1][H] */
    WEIGHT_Q,              /* [Q][H] */
    WEIGHT_K,              /* [KV][H] */
    WEIGHT_V,              /* [KV][H] */
    WEIGHT_O,              /* [H][Q] */
    WEIGHT_Q_BIAS,         /* biases: [1][rows]; data NULL when absent */
    WEIGHT_K_BIAS,
    WEIGHT_V_BIAS,
    WEIGHT_O_BIAS,
    WEIGHT_Q_NORM,              /* [1][D], or [1][Q] */
    WEIGHT_K_NORM,              /* [1][D], or [1][KV] */
    WEIGHT_ATTENTION_POST_NORM, /* [1][H]: of what attention gives, before it is added */
    WEIGHT_MLP_NORM,            /* [1][H] */
    WEIGHT_GATE,                /* [I][H] */
    WEIGHT_UP,                  /* [I][H] */
    WEIGHT_DOWN,                /* [H][I] */
    WEIGHT_MLP_POST_NORM,       /* [1][H]: as WEIGHT_ATTENTION_POST_NORM */
    WEIGHT_ROLE_COUNT
};

enum weight_dimension {
    DIM_1, /* as rows: a vector */
    DIM_VOCAB,
    DIM_HIDDEN,
    DIM_INTERMEDIATE,
    DIM_Q,
    DIM_KV,
    DIM_HEAD,
    DIM_ROTATIONS,
};

/* When a weight must exist. Where it need not, it is used if it is there: but for the last two, which are
 * left alone then, as they would change the mathematics. */
enum weight_presence {
    PRESENT_NEVER,
    PRESENT_MAYBE,
    PRESENT_ALWAYS,
    PRESENT_IF_QKV_BIAS,
    PRESENT_IF_O_BIAS,
    PRESENT_IF_QK_NORM,
    PRESENT_IF_NOT_TIED,
};

/* Roles of one name lie stacked in one tensor, in their order. */
struct weight_line {
    const char *gguf_name; /* of a layer: behind "blk.N." */
    const char *hf_name;   /* of a layer: behind "layers.N."; NULL: directories have no such weight */
    enum weight_dimension rows, cols;
    enum weight_presence presence;
};

/* Where a family's weights differ from Llama's: up to the one whose role is WEIGHT_ROLE_COUNT. */
struct weight_change {
    enum weight_role role;
    struct weight_line line;
};

extern const struct weight_change gemma_weights[], olmo_weights[], phi_weights[];

/* changes: NULL for none. */
const struct weight_line *weight_line(const struct weight_change *changes, enum weight_role role);
bool weight_is_norm(enum weight_role role);

int64_t weight_dimension(const struct model_config *c, enum weight_dimension dimension);
bool weight_is_required(const struct model_config *c, enum weight_presence presence);
/* Whether it is used where it is there. */
bool weight_is_wanted(const struct model_config *c, enum weight_presence presence);

#endif
