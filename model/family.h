/* family.h - what a model's name means: one row a family, for GGUF files and Hugging Face directories alike.
 *
 * A file tells one model's facts: sizes, theta, a window. What its class computes with them stands in none;
 * the readers (gguf_config.h, hf_config.h) take it from here. Families with a row are decoders, but for is_encoder: norms
 * around attention and MLP, grouped-query attention or a state, an MLP or experts that are one; forward.c is one for all. One
 * more is a row, and a table of changes if it names its weights in its own way. Read-only. Thread: any. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/device.h"
#include "model/weights.h"

/* Where a family is named. */
enum family_namespace {
    NAMES_GGUF,     /* general.architecture, which also begins the file's keys */
    NAMES_HF_CLASS, /* config.json: architectures */
    NAMES_HF_TYPE,  /* config.json: model_type */
    NAMESPACE_COUNT
};

/* When sliding_window of a config.json counts. */
enum window_rule {
    WINDOW_NEVER,
    WINDOW_IF_USED,      /* with use_sliding_window, from layer max_window_layers on */
    WINDOW_IF_GIVEN,     /* always; a missing one is none */
    WINDOW_IF_LISTED,    /* of layers that layer_types has it for; a missing one is 512 */
    WINDOW_DEFAULT_4096, /* always; a missing one is 4096, null is none */
    WINDOW_IF_LOCAL,     /* window_size, of layers that attention_layers has as local */
    WINDOW_LOCAL,        /* of encoders: half of local_attention on either side, in the place of it */
    WINDOW_HALF,         /* of encoders: half of sliding_window on either side */
};

/* score_head.h: what of the first product goes on. */
enum score_function { SCORE_TANH, SCORE_GELU, SCORE_RELU };

/* Where nothing is said: false, 0, NULL, and 1 of what multiplies. */
struct family {
    const char *names[NAMESPACE_COUNT]; /* NULL: it has none of its own there */
    /* All tokens of a text see each other, so that they are computed in one step and nothing is generated. */
    bool is_encoder;
    bool
        says_sides; /* of encoders: a config.json must have use_bidirectional_attention, as decoders share it */
    bool norms_embeddings; /* of decoders: RMSNorm without a weight */
    bool
        has_embedding_norm; /* of encoders: LayerNorm, behind the embedding too, which is what the first layer's attention gets */
    bool
        norms_sums; /* of encoders: it is of the sums behind attention and MLP, which go on as it; else before them */
    bool has_gpt2_keys; /* n_embd, n_layer and so on in its config.json, and what goes with them */
    bool
        scores_pairs; /* a head makes one number of an encoder's first token's hidden state, or of the mean, of a decoder's last token's, and nothing else is made */
    enum score_function score_function;
    bool
        positions_follow_padding; /* the first token's row of positions is that behind the padding token's id */
    int32_t first_position_row;   /* of decoders: it is this, and as many rows as positions follow */
    const char *hf_layers;        /* what a layer's number follows in a directory; NULL: "layers" */
    bool hf_layers_transposed;    /* its matrices lie [columns][rows] there */
    bool hf_qkv_by_heads;         /* model_config.h: qkv_by_heads */
    bool has_multi_query;      /* one head of K and V, whose rows come last, unless a config.json says no */
    bool may_have_new_decoder; /* of those with it new_decoder_architecture says no, too */
    const struct family
        *if_serial; /* where parallel_attn is false, and attention and MLP have biases: this in its place */
    bool may_clip_qkv; /* clip_qkv of a config.json counts */
    bool
        has_mpt_keys; /* what attention is stands in an object of its own, attn_config, and the MLP's width in expansion_ratio */
    const struct family
        *with_two_norms; /* where attention and the MLP beside it have one each: this in its place */
    const struct family *with_qk_norms; /* where a file has norms of q and k: this in its place */
    bool has_tasks; /* beside its matrices lie what adapters of tasks add to them (lora_files.h) */
    const struct family *if_rotary; /* where position_embedding_type is "rotary": this in its place */
    const struct family
        *if_named; /* where a directory has the names that this one has of the embedding and of its
                                      norm: this in its place */
    const struct family *if_parallel; /* where a file has both side by side, of one norm: this in its place */
    bool gguf_may_fuse_qkv;           /* some of its GGUF files have Q, K and V in one tensor */
    bool is_in_text_config;           /* its config.json may have the text model's in an object of its own */
    bool is_of_text_type; /* that object's model_type is what the text model is; this row says no more */
    const struct weight_change *weight_changes;     /* NULL: none */
    enum rope_style hf_rope_style, gguf_rope_style; /* gguf: as its converter leaves the rows of Q and K */
    bool qkv_bias, qk_norm;
    bool no_o_bias; /* attention_bias is of Q, K and V only */
    bool
        qk_norm_may_be; /* use_qk_norm or qk_layernorm of a config.json says so, the weights of a GGUF file do; with has_layer_norm it is
                            LayerNorm, each head's by itself */
    bool
        qk_norm_of_ones; /* it has no weight, follows the rotation, is of layers that rotate, and where nothing is said */
    bool qk_norm_all_heads; /* it is over all heads of Q, and of K */
    bool qk_norm_follows;   /* it has a weight and follows the rotation */
    bool norms_v;           /* RMSNorm of each head of V, without a weight */
    bool
        has_global_heads; /* layers without a window have global_head_dim and num_global_key_value_heads, attention_k_eq_v is of them */
    bool
        scales_theta; /* alpha among the rotation's fields stretches it by alpha^(d / (d - 2)), d values rotated */
    bool has_ntk;            /* a rotation "ntk" by factor s: frequencies of theta s, divided by s^(2 / d) */
    enum gate_function gate; /* of the MLP */
    bool may_have_silu;      /* where a config.json says so, and where a GGUF file says nothing */
    bool
        is_ternary; /* a directory's matrices of layers are floats that become so, though its config.json does not say it */
    bool gguf_may_scale; /* some of its GGUF files multiply plain matrices by a number, and are refused */
    bool norms_have_no_weight; /* those before attention and MLP, and the last; nor biases */
    bool rotates_back;         /* by the same angles the other way */
    bool norms_add_one;        /* a directory's norm weights are to be counted from 1; GGUF's are not */
    bool output_norm_is_whole; /* but for the last one's */
    double post_norm_eps;      /* of norms behind attention and MLP; 0: as all others */
    bool scaled_embeddings;    /* by the root of the hidden size */
    bool scales_if_mup;        /* if mup_enabled of a config.json says so */
    bool
        has_altup; /* Gemma 3n's: residual streams beside the first, LAuReL beside attention, gates that are cut */
    bool has_softcaps;      /* of scores and of logits */
    double logit_softcap;   /* of logits alone: it, where none is given; 0: there is none */
    bool may_cap_logits;    /* of logits alone, where it is given */
    bool has_multipliers;   /* of embeddings, residuals, scores and logits */
    bool multiplies_logits; /* logits_scaling is what they are multiplied by, not divided */
    bool
        has_depth_scale; /* MiniCPM's: scale_emb of embeddings, scale_depth of all residuals together, dim_model_base of logits */
    bool has_query_scalar;  /* scores are divided by the root of query_pre_attn_scalar */
    double attention_scale; /* of scores; 0: one by the root of head_dim */
    bool
        has_window_heads; /* MiMo's: layers with a window have swa_num_key_value_heads, values a size and a factor of their own */
    bool partial_rotary;    /* partial_rotary_factor counts */
    double rotary_part;     /* it, where none is given; 0: 1 */
    bool latent_attention;  /* kernels/device.h: latent_desc */
    double latent_norm_eps; /* of latents; 0: as all others */
    bool gated_attention;   /* each head of q has a gate of attention's output behind it */
    bool
        gates_are_softplus; /* gates of attention's output have a product of their own, and are no sigmoids; gating says how many there are */
    bool
        has_layer_shapes; /* each layer says whether it has attention, an MLP, how many K/V heads and how wide (block_configs) */
    bool has_layer_heads; /* num_attention_heads_per_layer: layers with a window may have other heads of Q */
    int32_t
        full_attention_interval; /* every so many layers one has attention, the others a state; 0: all have attention */
    enum delta_kind delta_kind;   /* of the layers that have a state */
    bool states_beside_attention; /* each layer has both, of one norm, and what they make is added */
    bool
        lists_attention_layers; /* attn_layer_indices are the layers with attention, which rotate; the others have a state */
    bool
        has_layer_periods; /* attn_layer_period and expert_layer_period, with offsets: which layers have attention, and experts */
    bool norms_selection; /* of DELTA_SELECTIVE (device.h: delta_desc); a GGUF file may say otherwise */
    bool
        has_states_alone; /* no layer has attention or an MLP; K/V blocks are of one small layer, which nobody writes */
    bool has_branch_scales; /* model_config.h: branch_scales */
    bool
        mlps_are_layers; /* a file counts an MLP, or experts, as a layer behind the one that it is of, which may have none */
    int32_t
        short_taps; /* of DELTA_CONVOLUTION; 0: 3. With another number: layers with attention that have windows, and gates by head */
    bool delta_z_is_apart; /* device.h: delta_desc */
    bool delta_is_gated_by_sigmoid;
    double delta_norm_eps; /* of what a state gives; 0: as all others */
    bool delta_by_k_head,
        delta_rates_by_k_head; /* projections of a layer with a state, or b and a, come by heads of k */
    bool has_chunks;           /* attention_chunk_size, of layers that rotate unless layer_types says which */
    bool has_temperature; /* of layers that do not rotate: attn_temperature_tuning, attn_scale, floor_scale */
    bool scales_queries;  /* of all layers, by a temperature that begins at the rotation's original length */
    bool has_layer_norm;  /* in the place of RMSNorm */
    bool is_parallel; /* attention and MLP are side by side, of one norm, or, unless a file says no, of two */
    bool has_logit_scale; /* logits are multiplied by logit_scale */
    bool
        scales_q; /* norms of q and k have no weight in a directory; qk_scale_factor and output_multiplier are there */
    bool has_harmony_tokens; /* <|return|> and <|call|> end a turn, <|end|> does not */
    int32_t
        full_layer_period; /* every so many layers one sees all, those before it have a window; 0: all have one */
    bool full_layer_leads;          /* those behind it have, the first layer sees all */
    int32_t unrotated_layer_period; /* every so many layers one does not rotate; 0: none */
    bool has_layer_thetas;          /* layer_rope_theta: of each layer its theta, 0: it does not rotate */
    bool only_windows_rotate;       /* where some layers have a window, the others do not rotate */
    /* intermediate_size, and GGUF's, is of gate and up together; seq_length goes before longer positions */
    bool intermediate_is_of_both;
    bool has_alibi;      /* scores fall with the distance (kernels/alibi.h), and nothing rotates */
    bool may_have_alibi; /* where alibi of a config.json says so; what a score loses is scaled as it is */
    int32_t hidden_size_with_alibi; /* it alone says so */
    int32_t
        vocab_size_with_unit_head; /* so does z_loss_weight: the head's rows are divided by their lengths */
    /* a mixture of experts */
    bool has_experts, gguf_may_have_experts; /* gguf_may: a GGUF file of that name may, a directory not */
    bool experts_may_be_none;                /* then the shared one is the MLP */
    bool
        has_prefix_size; /* Cohere's: intermediate_size is of experts, prefix_dense_intermediate_size of other layers, which may rotate without a window */
    bool mlp_beside_experts;  /* each with norms of its own; a config.json has enable_moe_block for experts */
    int32_t num_dense_layers; /* of the first ones, where a config.json does not say */
    enum router_scores router_scores;
    bool router_normalizes; /* unless a config.json says otherwise */
    bool has_router_bias, has_shared_weight;
    bool gguf_tells_scores; /* how the router's logits become scores, and whether it has a bias */
    bool up_leads;          /* where the rows of gate and up are in one tensor, those of up come first */
    bool
        gguf_may_fuse_gate; /* some of its GGUF files have gate and up in one tensor, which is called as that of up */
    const struct weight_change *
        hf_numbered_experts; /* names where a directory has each expert by itself, of a family whose tensors have all, or by other names */
    bool hf_experts_alternate; /* the rows of gate and up take turns in the tensor that has both */
    bool
        hf_experts_transposed; /* tensors of all experts are [E][columns][rows], or of newer files [E][rows][columns] */
    bool hf_downs_transposed; /* those of what experts make lie [E columns][rows] there */
    const struct family *
        with_experts; /* where moe_every_n_layers of a config.json says that there are some: this in its place */
    bool scales_expert_input; /* by the score, not what an expert makes of it */
    bool
        has_dense_size; /* intermediate_size is of experts, shared or not, intermediate_size_mlp of other layers */
    double window_theta; /* layers with a window rotate by it, with no scaling; 0: as all do */
    /* where a config.json is silent */
    bool kv_heads_may_be_missing; /* then as many as attention heads */
    bool is_tied, attention_bias;
    int32_t num_heads, num_kv_heads, head_dim, vocab_size; /* 0: it must not be */
    int32_t num_shared_experts;                            /* as wide as one each */
    int32_t layer_embedding_dim,
        num_kv_sharing_layers; /* hidden_size_per_layer_input, num_kv_shared_layers */
    int32_t max_position_embeddings;
    int32_t query_scalar;
    double theta;    /* 0: 10,000 */
    double norm_eps; /* 0: 1e-6 */
    enum window_rule window;
    /* where a GGUF file always is */
    bool gguf_router_normalizes; /* where it has no key for it */
    bool gguf_yarn_keeps_fractions, gguf_yarn_keeps_lengths;
    int32_t
        gguf_head_scalar_layers; /* the query scalar of the model of so many layers is H / Hq, not D; 0: of none */
};

/* STATUS_UNSUPPORTED for a name without a row; the sentence begins with path and says what that model would
 * need, where it is known. name need not end in NUL. */
int family_find(enum family_namespace where, const char *name, size_t num_bytes, const char *path,
                const struct family **out, struct error *err) must_check;

/* For people and logs. */
static inline const char *family_name(const struct family *f)
{
    return f->names[f->names[NAMES_HF_TYPE] ? NAMES_HF_TYPE : NAMES_GGUF];
}

#endif
