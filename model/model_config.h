/* model_config.h - the shape of a model and its generation defaults, whichever file they came from.
 * Filled in once at load (config.json or GGUF keys), validated, then read-only. Thread: any. */
#ifndef MODEL_MODEL_CONFIG_H
#define MODEL_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/device.h"
#include "link/sampling.h"
#include "link/tasks.h"
#include "model/family.h"
#include "model/quantisation.h"

enum rope_type { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_LONGROPE, ROPE_PROPORTIONAL };

enum { LAYERS_MAX = 4096, ROTATIONS_MAX = 256, HEAD_DIM_MAX = 1024 };

struct rope_config {
    enum rope_type type;
    enum rope_style style;
    double theta, factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn, longrope: resolved */
    double short_attention_factor;            /* longrope: of a model that does not go beyond; 0: the same */
    double score_factor;                      /* yarn of latent attention: scores are multiplied by it */
    bool turns_back;                          /* by the same angles the other way */
    bool yarn_keep_fractions;                 /* the ramp's ends are not rounded to whole dimensions */
    int32_t original_max_position;            /* llama3, yarn, longrope */
    int32_t rotary_dim;                       /* 0: nothing is rotated */
    int32_t num_turning; /* proportional: of rotary_dim / 2 pairs the first ones; the others stay */
    /* longrope: what periods are multiplied by in a model that goes beyond original_max_position, and in one that does
     * not */
    float long_factors[ROTATIONS_MAX], short_factors[ROTATIONS_MAX];
};

enum { DENSE_LAYERS_MAX = 4, FOLDER_BYTES_MAX = 64 };

/* What an embedding goes through behind its pooling (dense_layers.h). */
struct dense_chain {
    int32_t num_layers;
    struct dense_layer {
        int32_t num_in, num_out;
        bool has_bias, is_tanh;
        char folder[FOLDER_BYTES_MAX]; /* of the directory, with a / at its end; of a GGUF file the tensor */
    } layers[DENSE_LAYERS_MAX];
};

struct model_config {
    char architecture[64]; /* as the file says, e.g. "LlamaForCausalLM" or "llama" */
    const struct family *family;
    int32_t hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
    int32_t num_window_heads; /* of Q, of windowed_layers; 0: as of all others */
    struct head_config {
        int32_t num_kv_heads, head_dim, v_dim;
    } window_heads; /* of windowed_layers; head_dim 0: as of all others */
    bool v_is_k;    /* of layers without a window: V is what K is made of */
    int32_t v_dim;  /* of a head of V; 0: as of K */
    float v_scale;  /* what V is multiplied by; 0: by nothing */
    /* The last ones, which see K and V of the last layer of their kind before them all; their MLPs are so wide. */
    int32_t num_kv_sharing_layers, sharing_intermediate_size;
    int32_t layer_embedding_dim, layer_vocab_size; /* of what a token adds to each layer; 0: nothing */
    int32_t laurel_rank; /* of the family with AltUp: of what is added beside attention; else 0 */
    float gate_cut; /* of sparse_gates: how many standard deviations above their mean an MLP's gates begin */
    int32_t vocab_size; /* rows of the embedding: the width of the logits */
    int32_t max_position_embeddings;
    int32_t num_position_rows, num_type_rows; /* of tables that are added to embeddings; 0: it has none */
    int32_t first_position_row; /* of the first token; as many rows as max_position_embeddings follow it */
    /* of sparse_layers: each token has num_chosen_experts of num_experts, and the shared one */
    int32_t num_experts, num_chosen_experts, expert_intermediate_size, shared_intermediate_size;
    int32_t expert_hidden_size; /* of a space of experts' own (device.h: moe_desc); 0: they have none */
    int32_t num_expert_groups, num_chosen_expert_groups; /* device.h: moe_desc; 1: none */
    enum router_scores router_scores;
    bool router_normalizes, has_router_bias;
    float router_scale, router_near; /* device.h: moe_desc */
    float
        temperature_scale; /* of queries, in layers that do not rotate unless the family scales all (attention_args) */
    int32_t temperature_floor;
    bool gates_by_head; /* attention's gates have one value for each head, not one for each of its values */
    int32_t sliding_window;  /* of windowed_layers; 0: none */
    bool windows_are_chunks; /* they do not slide, but begin at multiples of their size */
    int32_t delta_k_heads, delta_v_heads, delta_k_dim,
        delta_v_dim;          /* of stateful_layers (device.h: delta_desc) */
    int32_t delta_step_rank;  /* of DELTA_SELECTIVE */
    bool norms_selection;     /* likewise (device.h: delta_desc) */
    int32_t short_taps;       /* of DELTA_CONVOLUTION */
    bool states_have_no_norm; /* of state spaces: what they give is not normed */
    float delta_beta_scale;   /* 1 unless the file says otherwise */
    bool delta_is_gguf; /* rates stand in the place of decays; heads of v are tiled but for Qwen3-Next */
    /* device.h: latent_desc. rank 0: attention is not latent; else there is one K/V head, of rotary_dim + rank */
    struct latent_config {
        int32_t rank, q_rank, plain_dim, rotary_dim, value_dim; /* q_rank 0: q comes of x at once */
        bool is_split;                                          /* k_b and v_b lie apart */
    } latent;
    float rms_norm_eps,
        post_norm_eps; /* post_norm_eps: of norms behind attention and MLP; 0: as all others */
    float norm_offset; /* is added to norm weights */
    bool is_encoder;   /* the family is one, or the file says that its tokens see both sides */
    bool tie_word_embeddings, qk_norm;
    struct tasks tasks; /* of embeddings: what lies beside the matrices, each multiplied by task_scale */
    float task_scale;
    bool has_unit_head; /* of a directory: the head's rows are divided by their lengths */
    float embedding_scale, residual_scale, logit_scale; /* what these are multiplied by */
    float attention_scale;                              /* of q k^T */
    float attention_softcap, logit_softcap;             /* 0: none */
    float alibi_most, alibi_scale;                      /* device.h: attention_args; alibi_most 0: none */
    float qkv_clip;                                     /* device.h: rope_args, clip */
    /* What a directory of Falcon-H1 multiplies beside, all else 1. The norm before attention and state has what their z wants, the MLP's
     * what its gate does; what else follows is made up for behind: attention's part in attention_scale and attention. */
    struct branch_scales {
        float norm, mlp_norm;        /* these norms' weights */
        float attention, state, mlp; /* what each of these gives, as it is added */
        float v, k, q, steps;        /* of a state (device.h: delta_desc) */
    } scales;
    enum gate_function gate; /* of the MLP */
    bool is_parallel;        /* attention and MLP are side by side, of one sum */
    bool qkv_by_heads; /* of a directory's tensor of Q, K and V: each K/V head has its rows of all three */
    bool qkv_bias, o_bias; /* the family needs them (others are used where the file has them) */
    struct rope_config rope, window_rope; /* window_rope: of windowed_layers */
    /* bit sets */
    uint64_t windowed_layers[LAYERS_MAX / 64], unrotated_layers[LAYERS_MAX / 64],
        sparse_layers[LAYERS_MAX / 64], stateful_layers[LAYERS_MAX / 64], layers_without_mlp[LAYERS_MAX / 64],
        layers_without_attention[LAYERS_MAX / 64], sparse_gates[LAYERS_MAX / 64];
    uint64_t
        replaced_layers[LAYERS_MAX / 64]; /* of those without attention: one product stands in its place */
    /* Of a family whose layers differ one by one: each one's own, of which num_kv_heads and intermediate_size are the largest. */
    struct layer_shape {
        int32_t num_kv_heads, intermediate_size; /* 0: as of all */
    } layer_shapes[LAYERS_MAX];
    int32_t eos_ids[EOS_IDS_MAX], num_eos_ids; /* of config, generation_config, tokenizer, and by name */
    int32_t bos_id;                            /* -1: none */
    struct quantisation quantisation;          /* of a directory's matrices */
    enum pooling
        pooling; /* how an embedding is made, FIRST, LAST or MEAN; NONE: in a way that is not known here */
    struct dense_chain dense;
    bool is_reranker; /* the file says so */
    /* of a family that scores pairs: a score is what the head gives, not its sigmoid; the second text's tokens are of type 1 */
    bool scores_are_plain, has_second_type;
    enum pooling score_pooling; /* what the head gets: FIRST or MEAN, of a decoder LAST */
};

/* What may differ from layer to layer. */
struct layer_config {
    int32_t num_heads, num_kv_heads, head_dim, v_dim;
    bool v_is_k;      /* there is no product of V's own */
    bool shares_kv;   /* nor of K's: both are those of layer kv_layer */
    int32_t kv_layer; /* else itself */
    int32_t intermediate_size;
    bool has_sparse_gate;
    int32_t sliding_window;    /* 0: none */
    bool is_chunk;             /* windows_are_chunks */
    int32_t temperature_floor; /* 0: none */
    bool qk_norm;
    float attention_scale; /* of q k^T */
    const struct rope_config
        *rope; /* in the model's config; layers that rotate alike have the same. NULL: none */
};

/* What multiplies is 1, no layer has a window. Before a reader fills it in. */
void model_config_init(struct model_config *c);

/* That there is at least one layer and at most LAYERS_MAX: known before anything is said of one. source: the file, for the sentence. */
int model_config_check_num_layers(const struct model_config *c, const char *source,
                                  struct error *err) must_check;

/* What follows from the family and the shape; before, the file's own facts: then it leaves them. */
void model_config_take_family(struct model_config *c);

/* Of families whose files count gate and up together. source: the file, for the sentence. */
int model_config_halve_intermediate(struct model_config *c, const char *source, struct error *err) must_check;

/* The next layer, and what it has of its own; 0: it has no attention, or no MLP. is_replaced: it has a product where attention would be, and
 * no K/V heads. num_layers, num_kv_heads and intermediate_size begin with 0. source: the file, for the sentence. */
int model_config_add_layer(struct model_config *c, struct layer_shape shape, bool is_replaced,
                           const char *source, struct error *err) must_check;

/* What a file counts as a layer where MLPs are some (family.h: mlps_are_layers). */
enum layer_block { BLOCK_STATE, BLOCK_ATTENTION, BLOCK_MLP, BLOCK_EXPERTS, LAYER_BLOCK_COUNT };

/* The next one in the file, which does not rotate: a layer, or what the layer before has as its MLP or its experts. num_layers begins with 0. source:
 * the file, for the sentence. */
int model_config_add_block(struct model_config *c, enum layer_block kind, const char *source,
                           struct error *err) must_check;

/* All layers have the window but every period-th, the last of each period or, in families where it leads, the first; period 0: all. */
void model_config_add_windows(struct model_config *c, int32_t period);

/* What follows from windowed_layers for unrotated_layers. */
void model_config_take_windows(struct model_config *c);
/* Layers without experts rotate, with a window or without. Which have experts and windows is known. */
void model_config_rotate_dense_layers(struct model_config *c);

/* What follows from c->latent, whose sizes are positive: the one K/V head, and what scores are multiplied by. */
void model_config_take_latent(struct model_config *c);

/* Of every period layers the second has experts; period > 1. */
void model_config_add_second_layers(struct model_config *c, int32_t period);

/* Layers [0, num_layers) but for every period-th; period 0: all. */
void model_config_add_layers(uint64_t *layers, int32_t num_layers, int32_t period);

/* 0 <= layer < num_layers. */
struct layer_config model_config_layer(const struct model_config *c, int32_t layer);

/* The sizes of K and V differ between layers that have a window and those that have none. */
bool model_config_has_window_heads(const struct model_config *c);

/* Some layers have experts. */
bool model_config_has_sparse_layers(const struct model_config *c);

/* Some layers have a state, most of them in the place of K and V: what was computed cannot be gone back to. */
bool model_config_has_states(const struct model_config *c);
int32_t model_config_num_stateful_layers(const struct model_config *c);

/* The layer has attention, and so K and V. */
bool model_config_has_attention(const struct model_config *c, int32_t layer);

/* The layer has attention, a state, or what stands in their place. */
bool model_config_is_mixed(const struct model_config *c, int32_t layer);

/* Layers differ in their K/V heads, one by one. */
bool model_config_has_layer_heads(const struct model_config *c);

/* Layers before layer that have it. */
int32_t model_config_num_attention_layers(const struct model_config *c, int32_t layer);

/* The number that a layer has in a file, with MLPs counted where they are layers. */
int32_t model_config_layer_in_file(const struct model_config *c, int32_t layer);

/* Adds an id to eos_ids unless it is there, outside the vocabulary, or one too many. */
void model_config_add_eos(struct model_config *c, int64_t id);

/* That sizes are possible, fit together, and that their products fit in 32 bits. source: the file, for the
 * sentence. */
int model_config_validate(const struct model_config *c, const char *source, struct error *err) must_check;

extern const struct generation_defaults generation_defaults_none; /* nothing given */

/* Of Q, in the layer that has most. */
int32_t model_config_most_heads(const struct model_config *c);
/* Of the largest head. */
int32_t model_config_widest_head(const struct model_config *c);
/* Of what attention's output product takes, or that of a layer's state where there is no attention, or what stands in the place of both. */
int64_t model_config_mixed_width(const struct model_config *c, int32_t layer);
/* Values of an embedding. */
int32_t model_config_embedding_size(const struct model_config *c);
/* Of the widest MLP, shared or chosen. */
int32_t model_config_mlp_width(const struct model_config *c);

/* Of what a layer with a state makes of its input: q, k and v; and of v alone. 0 where no layer has one. */
int64_t model_config_delta_channels(const struct model_config *c);
int64_t model_config_delta_width(const struct model_config *c);
/* With z, where it is not apart; or b, c and x of a short convolution. */
int64_t model_config_projected_width(const struct model_config *c);
/* b and a of a layer with a state, or b; 0 where it has none. */
int64_t model_config_num_rates(const struct model_config *c);
/* Of a layer with a state: one for each of its heads, or for each row of their states. */
int64_t model_config_num_decays(const struct model_config *c);
/* One state of all layers that have one, in f32. A running sequence has two of them (kernels/cpu/delta_net.c). */
uint64_t model_config_state_bytes(const struct model_config *c);
/* What a running sequence takes beside its states, at most, where a step may have drafts of so many tokens (kernels/state_runs.h). */
uint64_t model_config_draft_bytes(const struct model_config *c, int32_t num_draft_tokens);

/* Bytes of K and V a token: of one layer, of all; all weights. */
uint64_t model_config_kv_layer_bytes(const struct model_config *c, int32_t layer, enum dtype kv_dtype);
uint64_t model_config_kv_bytes_per_token(const struct model_config *c, enum dtype kv_dtype);
uint64_t model_config_num_parameters(const struct model_config *c);
/* Weights of the largest product of an MLP: gate and up, of all experts of a layer. */
uint64_t model_config_largest_product(const struct model_config *c);

#endif
