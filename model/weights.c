#include "model/weights.h"

#include "base/bit_set.h"
#include "model/distance_bias.h"
#include "model/model_config.h"

/* Of Llama and all that keep its names. */
static const struct weight_line llama_weights[WEIGHT_ROLE_COUNT] = {
    [WEIGHT_TOKEN_EMBEDDING] = {"token_embd.weight", "embed_tokens.weight", DIM_VOCAB, DIM_HIDDEN,
                                PRESENT_ALWAYS},
    [WEIGHT_OUTPUT_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_LM_HEAD_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_ATTENTION_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_MLP_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_OUTPUT_NORM] = {"output_norm.weight", "norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS},
    [WEIGHT_LM_HEAD] = {"output.weight", "lm_head.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_IF_NOT_TIED},
    [WEIGHT_ROPE_DIVISORS] = {"rope_freqs.weight", NULL, DIM_1, DIM_ROTATIONS, PRESENT_MAYBE},
    [WEIGHT_POSITION_EMBEDDING] = {.presence = PRESENT_NEVER},
    [WEIGHT_TYPE_EMBEDDING] = {.presence = PRESENT_NEVER},
    [WEIGHT_EMBEDDING_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_EMBEDDING_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_DISTANCE_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_SELECTION] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_STEPS] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_STEP_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_K_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_Q_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_HEAD_DENSE] = {.presence = PRESENT_NEVER},
    [WEIGHT_HEAD_DENSE_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_HEAD_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_HEAD_OUT] = {.presence = PRESENT_NEVER},
    [WEIGHT_HEAD_OUT_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAYER_EMBEDDING] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAYER_PROJECTION] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAYER_PROJECTION_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAYER_INPUT_GATE] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAYER_INPUT_OUT] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAYER_INPUT_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAYER_SCALE] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_IN_1] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_IN_2] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_IN_3] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_OUT_1] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_OUT_2] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_OUT_3] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_ROUTER] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_ROUTER_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_PREDICT] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_CORRECT] = {.presence = PRESENT_NEVER},
    [WEIGHT_ALTUP_SCALE] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAUREL_NARROW] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAUREL] = {.presence = PRESENT_NEVER},
    [WEIGHT_LAUREL_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_XIELU_ABOVE] = {.presence = PRESENT_NEVER},
    [WEIGHT_XIELU_BELOW] = {.presence = PRESENT_NEVER},
    [WEIGHT_XIELU_BETA] = {.presence = PRESENT_NEVER},
    [WEIGHT_ATTENTION_NORM] = {"attn_norm.weight", "input_layernorm.weight", DIM_1, DIM_HIDDEN,
                               PRESENT_ALWAYS},
    [WEIGHT_Q] = {"attn_q.weight", "self_attn.q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS},
    [WEIGHT_K] = {"attn_k.weight", "self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS},
    [WEIGHT_V] = {"attn_v.weight", "self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS},
    [WEIGHT_O] = {"attn_output.weight", "self_attn.o_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS},
    [WEIGHT_ATTENTION_SUB_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_MLP_SUB_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_REPLACEMENT] = {.presence = PRESENT_NEVER},
    [WEIGHT_Q_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_K_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_ATTENTION_INNER_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_ATTENTION_INNER_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_Q_BIAS] = {"attn_q.bias", "self_attn.q_proj.bias", DIM_1, DIM_Q, PRESENT_IF_QKV_BIAS},
    [WEIGHT_K_BIAS] = {"attn_k.bias", "self_attn.k_proj.bias", DIM_1, DIM_KV, PRESENT_IF_QKV_BIAS},
    [WEIGHT_V_BIAS] = {"attn_v.bias", "self_attn.v_proj.bias", DIM_1, DIM_KV, PRESENT_IF_QKV_BIAS},
    [WEIGHT_O_BIAS] = {"attn_output.bias", "self_attn.o_proj.bias", DIM_1, DIM_HIDDEN, PRESENT_IF_O_BIAS},
    [WEIGHT_ATTENTION_GATE] = {.presence = PRESENT_NEVER},
    [WEIGHT_SINKS] = {.presence = PRESENT_NEVER},
    [WEIGHT_LATENT_Q_A] = {.presence = PRESENT_NEVER},
    [WEIGHT_LATENT_Q_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_LATENT_Q_B] = {.presence = PRESENT_NEVER},
    [WEIGHT_LATENT_KV_A] = {.presence = PRESENT_NEVER},
    [WEIGHT_LATENT_KV_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_LATENT_KV_B] = {.presence = PRESENT_NEVER},
    [WEIGHT_LATENT_K_B] = {.presence = PRESENT_NEVER},
    [WEIGHT_LATENT_V_B] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_QKV] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_Q] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_K] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_V] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_Z] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_Z_NARROW] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_F] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_F_NARROW] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_QKVZ] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_B] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_A] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_BA] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_CONVOLUTION] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_CONVOLUTION_K] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_CONVOLUTION_V] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_CONVOLUTION_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_SKIP] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_DECAY] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_DT_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_DELTA_OUT] = {.presence = PRESENT_NEVER},
    [WEIGHT_Q_NORM] = {"attn_q_norm.weight", "self_attn.q_norm.weight", DIM_1, DIM_HEAD, PRESENT_IF_QK_NORM},
    [WEIGHT_K_NORM] = {"attn_k_norm.weight", "self_attn.k_norm.weight", DIM_1, DIM_HEAD, PRESENT_IF_QK_NORM},
    [WEIGHT_MLP_NORM] = {"ffn_norm.weight", "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN,
                         PRESENT_ALWAYS},
    [WEIGHT_GATE] = {"ffn_gate.weight", "mlp.gate_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN,
                     PRESENT_IF_DENSE},
    [WEIGHT_UP] = {"ffn_up.weight", "mlp.up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE},
    [WEIGHT_DOWN] = {"ffn_down.weight", "mlp.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE,
                     PRESENT_IF_DENSE},
    [WEIGHT_UP_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_DOWN_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_ATTENTION_POST_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_ATTENTION_POST_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_MLP_POST_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_MLP_POST_NORM_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_ROUTER] = {"ffn_gate_inp.weight", "mlp.gate.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE},
    [WEIGHT_ROUTER_BIAS] = {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias", DIM_1, DIM_EXPERTS,
                            PRESENT_IF_ROUTER_BIAS},
    [WEIGHT_ROUTER_LOGIT_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_ROUTER_SCALE] = {.presence = PRESENT_NEVER},
    [WEIGHT_SCORE_FACTORS] = {.presence = PRESENT_NEVER},
    [WEIGHT_EXPERTS_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_MLP_POST_NORM_BESIDE] = {.presence = PRESENT_NEVER},
    [WEIGHT_EXPERTS_POST_NORM] = {.presence = PRESENT_NEVER},
    [WEIGHT_SHARED_GATE] = {"ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight", DIM_SHARED,
                            DIM_HIDDEN, PRESENT_IF_SHARED},
    [WEIGHT_SHARED_UP] = {"ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight", DIM_SHARED, DIM_HIDDEN,
                          PRESENT_IF_SHARED},
    [WEIGHT_SHARED_DOWN] = {"ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight", DIM_HIDDEN,
                            DIM_SHARED, PRESENT_IF_SHARED},
    [WEIGHT_SHARED_WEIGHT] = {"ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", DIM_1, DIM_HIDDEN,
                              PRESENT_IF_SHARED_WEIGHT},
    [WEIGHT_TO_EXPERTS] = {.presence = PRESENT_NEVER},
    [WEIGHT_FROM_EXPERTS] = {.presence = PRESENT_NEVER},
    [WEIGHT_EXPERT_GATE] = {"ffn_gate_exps.weight", "mlp.experts.*.gate_proj.weight", DIM_EXPERT, DIM_HIDDEN,
                            PRESENT_IF_SPARSE},
    [WEIGHT_EXPERT_UP] = {"ffn_up_exps.weight", "mlp.experts.*.up_proj.weight", DIM_EXPERT, DIM_HIDDEN,
                          PRESENT_IF_SPARSE},
    [WEIGHT_EXPERT_DOWN] = {"ffn_down_exps.weight", "mlp.experts.*.down_proj.weight", DIM_HIDDEN, DIM_EXPERT,
                            PRESENT_IF_SPARSE},
    [WEIGHT_EXPERTS_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_EXPERT_GATE_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_EXPERT_UP_BIAS] = {.presence = PRESENT_NEVER},
    [WEIGHT_EXPERT_DOWN_BIAS] = {.presence = PRESENT_NEVER},
};

/* What several families have. */
/* clang-format off */
#define NORMS_OF_ALL_HEADS \
    {WEIGHT_Q_NORM, {"attn_q_norm.weight", "self_attn.q_norm.weight", DIM_1, DIM_Q, PRESENT_ALWAYS}}, \
    {WEIGHT_K_NORM, {"attn_k_norm.weight", "self_attn.k_norm.weight", DIM_1, DIM_KV, PRESENT_ALWAYS}}
#define NORMS_BEHIND_ALONE \
    {WEIGHT_ATTENTION_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_ATTENTION_POST_NORM, {"post_attention_norm.weight", "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_MLP_POST_NORM, {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}
#define GEMMA_NORMS \
    {WEIGHT_ATTENTION_POST_NORM, {"post_attention_norm.weight", "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "pre_feedforward_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_MLP_POST_NORM, {"post_ffw_norm.weight", "post_feedforward_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}
#define SHARED_KV_AND_LAYER_EMBEDDINGS \
    {WEIGHT_K, {"attn_k.weight", "self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_OWN_KV}}, \
    {WEIGHT_V, {"attn_v.weight", "self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_OWN_V}}, \
    {WEIGHT_K_NORM, {"attn_k_norm.weight", "self_attn.k_norm.weight", DIM_1, DIM_HEAD, PRESENT_IF_OWN_KV}}, \
    {WEIGHT_LAYER_EMBEDDING, {"per_layer_token_embd.weight", "embed_tokens_per_layer.weight", DIM_LAYER_VOCAB, DIM_LAYER_EMBEDDINGS, PRESENT_IF_LAYER_EMBEDDINGS}}, \
    {WEIGHT_LAYER_PROJECTION, {"per_layer_model_proj.weight", "per_layer_model_projection.weight", DIM_LAYER_EMBEDDINGS, DIM_HIDDEN, PRESENT_IF_LAYER_EMBEDDINGS}}, \
    {WEIGHT_LAYER_PROJECTION_NORM, {"per_layer_proj_norm.weight", "per_layer_projection_norm.weight", DIM_1, DIM_LAYER_EMBEDDING, PRESENT_IF_LAYER_EMBEDDINGS}}, \
    {WEIGHT_LAYER_INPUT_GATE, {"inp_gate.weight", "per_layer_input_gate.weight", DIM_LAYER_EMBEDDING, DIM_HIDDEN, PRESENT_IF_LAYER_EMBEDDINGS}}, \
    {WEIGHT_LAYER_INPUT_OUT, {"proj.weight", "per_layer_projection.weight", DIM_HIDDEN, DIM_LAYER_EMBEDDING, PRESENT_IF_LAYER_EMBEDDINGS}}, \
    {WEIGHT_LAYER_INPUT_NORM, {"post_norm.weight", "post_per_layer_input_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_LAYER_EMBEDDINGS}}
#define ALTUP_SIDES(i, place) \
    {WEIGHT_ALTUP_IN_##i, {"altup_proj.weight", "altup_projections." place ".weight", DIM_HIDDEN, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_ALTUP_OUT_##i, {"altup_unembd_proj.weight", "altup_unembed_projections." place ".weight", DIM_HIDDEN, DIM_HIDDEN, PRESENT_ALWAYS}}
#define GATE_UP_IN_ONE \
    {WEIGHT_GATE, {"ffn_up.weight", "mlp.gate_up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}}, \
    {WEIGHT_UP, {"ffn_up.weight", "mlp.gate_up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}}
#define SPARSE_BLOCK \
    {WEIGHT_ROUTER, {"ffn_gate_inp.weight", "block_sparse_moe.gate.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}}, \
    {WEIGHT_EXPERT_GATE, {"ffn_gate_exps.weight", "block_sparse_moe.experts.*.w1.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}}, \
    {WEIGHT_EXPERT_UP, {"ffn_up_exps.weight", "block_sparse_moe.experts.*.w3.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}}, \
    {WEIGHT_EXPERT_DOWN, {"ffn_down_exps.weight", "block_sparse_moe.experts.*.w2.weight", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}}
#define SHARED_EXPERTS \
    {WEIGHT_SHARED_GATE, {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight", DIM_SHARED, DIM_HIDDEN, PRESENT_IF_SHARED}}, \
    {WEIGHT_SHARED_UP, {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight", DIM_SHARED, DIM_HIDDEN, PRESENT_IF_SHARED}}, \
    {WEIGHT_SHARED_DOWN, {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight", DIM_HIDDEN, DIM_SHARED, PRESENT_IF_SHARED}}
#define NORM_BIASES \
    {WEIGHT_OUTPUT_NORM_BIAS, {"output_norm.bias", "norm.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_ATTENTION_NORM_BIAS, {"attn_norm.bias", "input_layernorm.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_MLP_NORM_BIAS, {"ffn_norm.bias", "post_attention_layernorm.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}
#define NO_GATE {WEIGHT_GATE, {.presence = PRESENT_NEVER}}
#define MLP_NORM_OF_OTHER_NAME \
    {WEIGHT_MLP_NORM, {"post_attention_norm.weight", "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}
/* clang-format on */

/* clang-format off */
#define NO_NORM_WEIGHTS \
    {WEIGHT_OUTPUT_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_ATTENTION_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}
/* clang-format on */

/* Norms of what O and DOWN get. */
const struct weight_change bitnet_weights[] = {
    {WEIGHT_ATTENTION_SUB_NORM,
     {"attn_sub_norm.weight", "self_attn.attn_sub_norm.weight", DIM_1, DIM_Q, PRESENT_ALWAYS}},
    {WEIGHT_MLP_SUB_NORM,
     {"ffn_sub_norm.weight", "mlp.ffn_sub_norm.weight", DIM_1, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change bitnet_early_weights[] = {
    {WEIGHT_ATTENTION_SUB_NORM, {NULL, "self_attn.inner_attn_ln.weight", DIM_1, DIM_Q, PRESENT_ALWAYS}},
    {WEIGHT_MLP_SUB_NORM, {NULL, "mlp.ffn_layernorm.weight", DIM_1, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change weightless_norm_weights[] = {
    NO_NORM_WEIGHTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change nanochat_weights[] = {
    NO_NORM_WEIGHTS,
    {WEIGHT_Q_NORM, {.presence = PRESENT_NEVER}},
    {WEIGHT_K_NORM, {.presence = PRESENT_NEVER}},
    NO_GATE,
    {WEIGHT_UP, {"ffn_up.weight", "mlp.fc1.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.fc2.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Norms before and behind attention and MLP. */
const struct weight_change gemma_weights[] = {
    GEMMA_NORMS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* Of decoders: one product of the last token's hidden state. */
#define DECODER_HEAD                                                                                         \
    {                                                                                                        \
        WEIGHT_HEAD_OUT,                                                                                     \
        {                                                                                                    \
            NULL, "/score.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS                                         \
        }                                                                                                    \
    }

const struct weight_change decoder_score_weights[] = {
    DECODER_HEAD,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change gemma_score_weights[] = {
    GEMMA_NORMS,
    DECODER_HEAD,
    {.role = WEIGHT_ROLE_COUNT},
};

/* One before each, of another name. */
const struct weight_change vaultgemma_weights[] = {
    {WEIGHT_MLP_NORM,
     {"ffn_norm.weight", "pre_feedforward_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change gemma4_weights[] = {
    GEMMA_NORMS,
    SHARED_KV_AND_LAYER_EMBEDDINGS,
    {WEIGHT_GATE, {"ffn_gate.weight", "mlp.gate_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP, {"ffn_up.weight", "mlp.up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {WEIGHT_ROUTER,
     {"ffn_gate_inp.weight", "router.proj.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_ROUTER_SCALE, {"ffn_gate_inp.scale", "router.scale", DIM_1, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_SCORE_FACTORS,
     {"ffn_down_exps.scale", "router.per_expert_scale", DIM_1, DIM_EXPERTS, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERTS_NORM,
     {"pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_MLP_POST_NORM_BESIDE,
     {"post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERTS_POST_NORM,
     {"post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_GATE,
     {"ffn_gate_exps.weight", "experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_UP,
     {"ffn_up_exps.weight", "experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN,
     {"ffn_down_exps.weight", "experts.down_proj", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {WEIGHT_LAYER_SCALE, {"layer_output_scale.weight", "layer_scalar", DIM_1, DIM_1, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
/* Several residual streams, and what is added beside attention. */
const struct weight_change gemma3n_weights[] = {
    GEMMA_NORMS,
    SHARED_KV_AND_LAYER_EMBEDDINGS,
    ALTUP_SIDES(1, "0"),
    ALTUP_SIDES(2, "1"),
    ALTUP_SIDES(3, "2"),
    {WEIGHT_ALTUP_ROUTER, {"altup_router.weight", "altup.modality_router.weight", DIM_ALTUP, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ALTUP_ROUTER_NORM, {"altup_router_norm.weight", "altup.router_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ALTUP_PREDICT, {"altup_predict_coef.weight", "altup.prediction_coefs.weight", DIM_ALTUP_PAIRS, DIM_ALTUP, PRESENT_ALWAYS}},
    {WEIGHT_ALTUP_CORRECT, {"altup_correct_coef.weight", "altup.correction_coefs.weight", DIM_ALTUP, DIM_ALTUP, PRESENT_ALWAYS}},
    {WEIGHT_ALTUP_SCALE, {"altup_correct_scale.weight", "altup.correct_output_scale", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_LAUREL_NARROW, {"laurel_l.weight", "laurel.linear_left.weight", DIM_LAUREL, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_LAUREL, {"laurel_r.weight", "laurel.linear_right.weight", DIM_HIDDEN, DIM_LAUREL, PRESENT_ALWAYS}},
    {WEIGHT_LAUREL_NORM, {"laurel_post_norm.weight", "laurel.post_laurel_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};
/* clang-format on */

/* Values are shorter than keys, and layers with a window have sinks. */
const struct weight_change mimo_weights[] = {
    {WEIGHT_V, {"attn_v.weight", "self_attn.v_proj.weight", DIM_V, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_O, {"attn_output.weight", "self_attn.o_proj.weight", DIM_HIDDEN, DIM_ATTENDED, PRESENT_ALWAYS}},
    {WEIGHT_SINKS,
     {"attn_sinks.weight", "self_attn.attention_sink_bias", DIM_1, DIM_NUM_HEADS, PRESENT_IF_WINDOW}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Norms behind them only, and over all heads of Q and of K, or over each. */
const struct weight_change olmo_weights[] = {
    NORMS_OF_ALL_HEADS,
    NORMS_BEHIND_ALONE,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change exaone4_weights[] = {
    NORMS_BEHIND_ALONE,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change olmoe_weights[] = {
    NORMS_OF_ALL_HEADS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* Layers without attention, or with one product in its place; layers without an MLP. */
const struct weight_change decilm_weights[] = {
    {WEIGHT_ATTENTION_NORM,
     {"attn_norm.weight", "input_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_MIXED}},
    {WEIGHT_Q, {"attn_q.weight", "self_attn.q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_K, {"attn_k.weight", "self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_V, {"attn_v.weight", "self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_O, {"attn_output.weight", "self_attn.o_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_IF_ATTENTION}},
    {WEIGHT_REPLACEMENT,
     {"attn_output.weight", "self_attn.linear_attn.weight", DIM_HIDDEN, DIM_HIDDEN, PRESENT_IF_REPLACED}},
    {WEIGHT_MLP_NORM,
     {"ffn_norm.weight", "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_MLP}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Q, K and V in one tensor, gate and up in another. */
const struct weight_change phi_weights[] = {
    {WEIGHT_Q, {"attn_qkv.weight", "self_attn.qkv_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {"attn_qkv.weight", "self_attn.qkv_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {"attn_qkv.weight", "self_attn.qkv_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    GATE_UP_IN_ONE,
    {.role = WEIGHT_ROLE_COUNT},
};

/* The same beside adapters for images and speech, which texts do without. */
const struct weight_change phi4_mm_weights[] = {
    {WEIGHT_Q, {NULL, "self_attn.qkv_proj.base_layer.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {NULL, "self_attn.qkv_proj.base_layer.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {NULL, "self_attn.qkv_proj.base_layer.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_O, {NULL, "self_attn.o_proj.base_layer.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    {WEIGHT_GATE, {NULL, "mlp.gate_up_proj.base_layer.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP, {NULL, "mlp.gate_up_proj.base_layer.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {NULL, "mlp.down_proj.base_layer.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change mixtral_weights[] = {
    SPARSE_BLOCK,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change phimoe_weights[] = {
    NORM_BIASES,
    SPARSE_BLOCK,
    {WEIGHT_LM_HEAD_BIAS, {"output.bias", "/lm_head.bias", DIM_1, DIM_VOCAB, PRESENT_MAYBE}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change minimax_weights[] = {
    NORMS_OF_ALL_HEADS,
    SPARSE_BLOCK,
    {WEIGHT_ROUTER_BIAS,
     {"exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias", DIM_1, DIM_EXPERTS,
      PRESENT_IF_ROUTER_BIAS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define GRANITE_EXPERTS \
    {WEIGHT_ROUTER, {"ffn_gate_inp.weight", "block_sparse_moe.router.layer.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}}, \
    {WEIGHT_EXPERT_GATE, {"ffn_gate_exps.weight", "block_sparse_moe.input_linear.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}}, \
    {WEIGHT_EXPERT_UP, {"ffn_up_exps.weight", "block_sparse_moe.input_linear.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}}, \
    {WEIGHT_EXPERT_DOWN, {"ffn_down_exps.weight", "block_sparse_moe.output_linear.weight", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}}, \
    {WEIGHT_SHARED_GATE, {"ffn_gate_shexp.weight", "shared_mlp.input_linear.weight", DIM_SHARED, DIM_HIDDEN, PRESENT_IF_SHARED}}, \
    {WEIGHT_SHARED_UP, {"ffn_up_shexp.weight", "shared_mlp.input_linear.weight", DIM_SHARED, DIM_HIDDEN, PRESENT_IF_SHARED}}, \
    {WEIGHT_SHARED_DOWN, {"ffn_down_shexp.weight", "shared_mlp.output_linear.weight", DIM_HIDDEN, DIM_SHARED, PRESENT_IF_SHARED}}
/* clang-format on */

/* All experts' gate and up in one tensor, and those of the shared one. */
const struct weight_change granite_moe_weights[] = {
    GRANITE_EXPERTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change granite_swa_weights[] = {
    {WEIGHT_SINKS, {NULL, "self_attn.sinks", DIM_1, DIM_NUM_HEADS, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Experts by the names of newer classes. */
const struct weight_change granite_moe_swa_weights[] = {
    {WEIGHT_SINKS, {NULL, "self_attn.sinks", DIM_1, DIM_NUM_HEADS, PRESENT_ALWAYS}},
    {WEIGHT_ROUTER, {NULL, "block_sparse_moe.router.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_GATE,
     {NULL, "block_sparse_moe.experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_UP,
     {NULL, "block_sparse_moe.experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN,
     {NULL, "block_sparse_moe.experts.down_proj", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}},
    GRANITE_EXPERTS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define STATE_SPACE_AND_ATTENTION(attention, mamba) \
    {WEIGHT_Q, {"attn_q.weight", attention "q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_IF_ATTENTION}}, \
    {WEIGHT_K, {"attn_k.weight", attention "k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}}, \
    {WEIGHT_V, {"attn_v.weight", attention "v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}}, \
    {WEIGHT_O, {"attn_output.weight", attention "o_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_IF_ATTENTION}}, \
    {WEIGHT_DELTA_QKVZ, {"ssm_in.weight", mamba "in_proj.weight", DIM_DELTA_PROJECTED, DIM_HIDDEN, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_CONVOLUTION, {"ssm_conv1d.weight", mamba "conv1d.weight", DIM_DELTA_CHANNELS, DIM_DELTA_TAPS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_CONVOLUTION_BIAS, {"ssm_conv1d.bias", mamba "conv1d.bias", DIM_1, DIM_DELTA_CHANNELS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_DECAY, {"ssm_a", mamba "A_log", DIM_1, DIM_DELTA_HEADS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_DT_BIAS, {"ssm_dt.bias", mamba "dt_bias", DIM_1, DIM_DELTA_HEADS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_SKIP, {"ssm_d", mamba "D", DIM_1, DIM_DELTA_HEADS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_NORM, {"ssm_norm.weight", mamba "norm.weight", DIM_1, DIM_DELTA_WIDTH, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_OUT, {"ssm_out.weight", mamba "out_proj.weight", DIM_HIDDEN, DIM_DELTA_WIDTH, PRESENT_IF_STATE}}
/* clang-format on */

/* A state in some layers; where there are no experts, what all tokens share is the MLP. */
const struct weight_change granite_hybrid_weights[] = {
    GRANITE_EXPERTS,
    {WEIGHT_GATE,
     {"ffn_gate.weight", "shared_mlp.input_linear.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_UP,
     {"ffn_up.weight", "shared_mlp.input_linear.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_DOWN,
     {"ffn_down.weight", "shared_mlp.output_linear.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_IF_DENSE}},
    STATE_SPACE_AND_ATTENTION("self_attn.", "mamba."),
    {.role = WEIGHT_ROLE_COUNT},
};

/* A state, whose norm may not be, beside attention in each layer. */
/* clang-format off */
/* Of Mamba-1: another shape of what Mamba-2 has, too. */
#define SELECTIVE_STATE(mamba) \
    {WEIGHT_DELTA_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_DELTA_DECAY, {"ssm_a", mamba "A_log", DIM_DELTA_WIDTH, DIM_DELTA_KEY, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_DT_BIAS, {"ssm_dt.bias", mamba "dt_proj.bias", DIM_1, DIM_DELTA_WIDTH, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_SKIP, {"ssm_d", mamba "D", DIM_1, DIM_DELTA_WIDTH, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_SELECTION, {"ssm_x.weight", mamba "x_proj.weight", DIM_DELTA_SELECTION, DIM_DELTA_WIDTH, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_STEPS, {"ssm_dt.weight", mamba "dt_proj.weight", DIM_DELTA_WIDTH, DIM_DELTA_STEPS, PRESENT_IF_STATE}}, \
    STATE_SPACE_AND_ATTENTION("self_attn.", mamba)

#define MAMBA_WEIGHTS \
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "norm_f.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_ATTENTION_NORM, {"attn_norm.weight", "norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}

const struct weight_change mamba_weights[] = {
    MAMBA_WEIGHTS,
    SELECTIVE_STATE("mixer."),
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change mamba2_weights[] = {
    MAMBA_WEIGHTS,
    STATE_SPACE_AND_ATTENTION("self_attn.", "mixer."),
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change jamba_weights[] = {
    {WEIGHT_DELTA_STEP_NORM, {"ssm_dt_norm.weight", "mamba.dt_layernorm.weight", DIM_1, DIM_DELTA_STEPS, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_K_NORM, {"ssm_b_norm.weight", "mamba.b_layernorm.weight", DIM_1, DIM_DELTA_KEY, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_Q_NORM, {"ssm_c_norm.weight", "mamba.c_layernorm.weight", DIM_1, DIM_DELTA_KEY, PRESENT_IF_STATE}},
    SELECTIVE_STATE("mamba."),
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "final_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "pre_ff_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_GATE, {"ffn_gate.weight", "feed_forward.gate_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_UP, {"ffn_up.weight", "feed_forward.up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_DOWN, {"ffn_down.weight", "feed_forward.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_IF_DENSE}},
    {WEIGHT_ROUTER, {"ffn_gate_inp.weight", "feed_forward.router.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_GATE, {"ffn_gate_exps.weight", "feed_forward.experts.*.gate_proj.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_UP, {"ffn_up_exps.weight", "feed_forward.experts.*.up_proj.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN, {"ffn_down_exps.weight", "feed_forward.experts.*.down_proj.weight", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {.role = WEIGHT_ROLE_COUNT},
};
/* clang-format on */

const struct weight_change falcon_h1_weights[] = {
    {WEIGHT_DELTA_NORM,
     {"ssm_norm.weight", "mamba.norm.weight", DIM_1, DIM_DELTA_WIDTH, PRESENT_IF_STATE_NORM}},
    STATE_SPACE_AND_ATTENTION("self_attn.", "mamba."),
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "final_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm", "pre_ff_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_GATE,
     {"ffn_gate.weight", "feed_forward.gate_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP,
     {"ffn_up.weight", "feed_forward.up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN,
     {"ffn_down.weight", "feed_forward.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change glm_weights[] = {
    MLP_NORM_OF_OTHER_NAME,
    SHARED_EXPERTS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* Q, K and V in one, and other names. */
const struct weight_change bailing_weights[] = {
    {WEIGHT_TOKEN_EMBEDDING,
     {"token_embd.weight", "word_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_Q, {"attn_qkv.weight", "attention.query_key_value.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {"attn_qkv.weight", "attention.query_key_value.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {"attn_qkv.weight", "attention.query_key_value.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_O, {"attn_output.weight", "attention.dense.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    {WEIGHT_Q_NORM,
     {"attn_q_norm.weight", "attention.query_layernorm.weight", DIM_1, DIM_HEAD, PRESENT_IF_QK_NORM}},
    {WEIGHT_K_NORM,
     {"attn_k_norm.weight", "attention.key_layernorm.weight", DIM_1, DIM_HEAD, PRESENT_IF_QK_NORM}},
    {WEIGHT_ROUTER_BIAS,
     {"exp_probs_b.bias", "mlp.gate.expert_bias", DIM_1, DIM_EXPERTS, PRESENT_IF_ROUTER_BIAS}},
    SHARED_EXPERTS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* The same of Ling 1, whose converter takes q, k and v apart. */
const struct weight_change bailing_1_weights[] = {
    {WEIGHT_TOKEN_EMBEDDING,
     {"token_embd.weight", "word_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_Q, {"attn_q.weight", "attention.query_key_value.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {"attn_k.weight", "attention.query_key_value.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {"attn_v.weight", "attention.query_key_value.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_O, {"attn_output.weight", "attention.dense.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    SHARED_EXPERTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change flint_weights[] = {
    {WEIGHT_SINKS, {NULL, "self_attn.softmax_offset", DIM_1, DIM_NUM_HEADS, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change dots_weights[] = {
    SHARED_EXPERTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change seed_oss_weights[] = {
    MLP_NORM_OF_OTHER_NAME,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change ernie_moe_weights[] = {
    SHARED_EXPERTS,
    {WEIGHT_ROUTER_BIAS,
     {"exp_probs_b.bias", "mlp.moe_statics.e_score_correction_bias", DIM_1, DIM_EXPERTS,
      PRESENT_IF_ROUTER_BIAS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define QK_NORMS_OF_OTHER_NAMES \
    {WEIGHT_Q_NORM, {"attn_q_norm.weight", "self_attn.query_layernorm.weight", DIM_1, DIM_HEAD, PRESENT_IF_QK_NORM}}, \
    {WEIGHT_K_NORM, {"attn_k_norm.weight", "self_attn.key_layernorm.weight", DIM_1, DIM_HEAD, PRESENT_IF_QK_NORM}}
/* clang-format on */

const struct weight_change hunyuan_weights[] = {
    QK_NORMS_OF_OTHER_NAMES,
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define SHARED_MLP \
    {WEIGHT_SHARED_GATE, {"ffn_gate_shexp.weight", "mlp.shared_mlp.gate_proj.weight", DIM_SHARED, DIM_HIDDEN, PRESENT_IF_SHARED}}, \
    {WEIGHT_SHARED_UP, {"ffn_up_shexp.weight", "mlp.shared_mlp.up_proj.weight", DIM_SHARED, DIM_HIDDEN, PRESENT_IF_SHARED}}, \
    {WEIGHT_SHARED_DOWN, {"ffn_down_shexp.weight", "mlp.shared_mlp.down_proj.weight", DIM_HIDDEN, DIM_SHARED, PRESENT_IF_SHARED}}
/* clang-format on */

const struct weight_change hunyuan_moe_weights[] = {
    QK_NORMS_OF_OTHER_NAMES,
    {WEIGHT_ROUTER,
     {"ffn_gate_inp.weight", "mlp.gate.wg.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    SHARED_MLP,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change hy3_weights[] = {
    {WEIGHT_ROUTER,
     {"ffn_gate_inp.weight", "mlp.router.gate.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_ROUTER_BIAS, {"exp_probs_b", "mlp.expert_bias", DIM_1, DIM_EXPERTS, PRESENT_IF_ROUTER_BIAS}},
    SHARED_MLP,
    {.role = WEIGHT_ROLE_COUNT},
};

/* Gates of attention's output, norms before and behind attention and MLP. */
const struct weight_change afmoe_weights[] = {
    {WEIGHT_ATTENTION_GATE,
     {"attn_gate.weight", "self_attn.gate_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_POST_NORM,
     {"post_attention_norm.weight", "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "pre_mlp_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_POST_NORM,
     {"post_ffw_norm.weight", "post_mlp_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    SHARED_EXPERTS,
    {WEIGHT_ROUTER,
     {"ffn_gate_inp.weight", "mlp.router.gate.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_ROUTER_BIAS, {"exp_probs_b.bias", "mlp.expert_bias", DIM_1, DIM_EXPERTS, PRESENT_IF_ROUTER_BIAS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change laguna_weights[] = {
    {WEIGHT_ATTENTION_GATE,
     {"attn_gate.weight", "self_attn.g_proj.weight", DIM_GATES, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ROUTER_BIAS,
     {"exp_probs_b.bias", "mlp.experts.e_score_correction_bias", DIM_1, DIM_EXPERTS, PRESENT_IF_ROUTER_BIAS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Seven taps, norms behind both, a gate for each head. */
const struct weight_change lfm3_weights[] = {
    {WEIGHT_OUTPUT_NORM, {NULL, "embedding_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_NORM, {NULL, "operator_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_POST_NORM, {NULL, "post_operator_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {NULL, "ffn_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_POST_NORM, {NULL, "post_ffn_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_Q, {NULL, "self_attn.q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_K, {NULL, "self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_V, {NULL, "self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_ATTENTION_GATE,
     {NULL, "self_attn.gate_proj.weight", DIM_GATES, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_O, {NULL, "self_attn.o_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_IF_ATTENTION}},
    {WEIGHT_Q_NORM, {NULL, "self_attn.q_norm.weight", DIM_1, DIM_HEAD, PRESENT_IF_ATTENTION}},
    {WEIGHT_K_NORM, {NULL, "self_attn.k_norm.weight", DIM_1, DIM_HEAD, PRESENT_IF_ATTENTION}},
    {WEIGHT_GATE, {NULL, "feed_forward.w1.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_UP, {NULL, "feed_forward.w3.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_DOWN, {NULL, "feed_forward.w2.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_IF_DENSE}},
    {WEIGHT_DELTA_QKVZ, {NULL, "conv.in_proj.weight", DIM_DELTA_PROJECTED, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_CONVOLUTION, {NULL, "conv.conv.weight", DIM_DELTA_WIDTH, DIM_SHORT_TAPS, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_OUT, {NULL, "conv.out_proj.weight", DIM_HIDDEN, DIM_DELTA_WIDTH, PRESENT_IF_STATE}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Gates of attention's output, norms as Gemma names them, those of q and k in GGUF files alone, with what q is multiplied by. */
const struct weight_change muse_glimmer_weights[] = {
    {WEIGHT_ATTENTION_GATE,
     {"attn_gate.weight", "self_attn.gate_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_Q_NORM, {"attn_q_norm.weight", NULL, DIM_1, DIM_HEAD, PRESENT_MAYBE}},
    {WEIGHT_K_NORM, {"attn_k_norm.weight", NULL, DIM_1, DIM_HEAD, PRESENT_MAYBE}},
    GEMMA_NORMS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* The choice's bias is not the router's in a directory. */
const struct weight_change exaone_moe_weights[] = {
    SHARED_EXPERTS,
    {WEIGHT_ROUTER_BIAS,
     {"exp_probs_b.bias", "mlp.e_score_correction_bias", DIM_1, DIM_EXPERTS, PRESENT_IF_ROUTER_BIAS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Norms behind attention and MLP, too. */
const struct weight_change hyperclovax_weights[] = {
    {WEIGHT_ATTENTION_POST_NORM, {NULL, "post_norm1.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_POST_NORM, {NULL, "post_norm2.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change gate_up_weights[] = {
    GATE_UP_IN_ONE,
    {.role = WEIGHT_ROLE_COUNT},
};

/* Norms before and behind, gate and up in one tensor. */
const struct weight_change glm4_weights[] = {
    GATE_UP_IN_ONE,
    {WEIGHT_ATTENTION_POST_NORM,
     {"post_attention_norm.weight", "post_self_attn_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_POST_NORM,
     {"post_ffw_norm.weight", "post_mlp_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Sinks, and experts in one tensor, gate and up in turns, all with biases. */
const struct weight_change gpt_oss_weights[] = {
    {WEIGHT_SINKS, {"attn_sinks.weight", "self_attn.sinks", DIM_1, DIM_NUM_HEADS, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM,
     {"post_attention_norm.weight", "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ROUTER, {"ffn_gate_inp.weight", "mlp.router.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_ROUTER_LOGIT_BIAS,
     {"ffn_gate_inp.bias", "mlp.router.bias", DIM_1, DIM_EXPERTS, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_GATE,
     {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_UP,
     {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN,
     {"ffn_down_exps.weight", "mlp.experts.down_proj", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_GATE_BIAS,
     {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", DIM_1, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_UP_BIAS,
     {"ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias", DIM_1, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN_BIAS,
     {"ffn_down_exps.bias", "mlp.experts.down_proj_bias", DIM_1, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Attention in some layers, whose q has gates, a state in the others. */
#define HYBRID_WEIGHTS                                                                                       \
    {WEIGHT_Q, {"attn_q.weight", "self_attn.q_proj.weight", DIM_GATED_Q, DIM_HIDDEN, PRESENT_IF_ATTENTION}}, \
        {WEIGHT_K, {"attn_k.weight", "self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},  \
        {WEIGHT_V, {"attn_v.weight", "self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},  \
        {WEIGHT_O,                                                                                           \
         {"attn_output.weight", "self_attn.o_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_IF_ATTENTION}},        \
        {WEIGHT_Q_NORM,                                                                                      \
         {"attn_q_norm.weight", "self_attn.q_norm.weight", DIM_1, DIM_HEAD, PRESENT_IF_ATTENTION}},          \
        {WEIGHT_K_NORM,                                                                                      \
         {"attn_k_norm.weight", "self_attn.k_norm.weight", DIM_1, DIM_HEAD, PRESENT_IF_ATTENTION}},          \
        {WEIGHT_DELTA_CONVOLUTION,                                                                           \
         {"ssm_conv1d.weight", "linear_attn.conv1d.weight", DIM_DELTA_CHANNELS, DIM_DELTA_TAPS,              \
          PRESENT_IF_STATE}},                                                                                \
        {WEIGHT_DELTA_DECAY, {"ssm_a", "linear_attn.A_log", DIM_1, DIM_DELTA_HEADS, PRESENT_IF_STATE}},      \
        {WEIGHT_DELTA_DT_BIAS,                                                                               \
         {"ssm_dt.bias", "linear_attn.dt_bias", DIM_1, DIM_DELTA_HEADS, PRESENT_IF_STATE}},                  \
        {WEIGHT_DELTA_NORM,                                                                                  \
         {"ssm_norm.weight", "linear_attn.norm.weight", DIM_1, DIM_DELTA_HEAD, PRESENT_IF_STATE}},           \
    {                                                                                                        \
        WEIGHT_DELTA_OUT,                                                                                    \
        {                                                                                                    \
            "ssm_out.weight", "linear_attn.out_proj.weight", DIM_HIDDEN, DIM_DELTA_WIDTH, PRESENT_IF_STATE   \
        }                                                                                                    \
    }

const struct weight_change lfm2_weights[] = {
    {WEIGHT_OUTPUT_NORM,
     {"token_embd_norm.weight", "embedding_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_NORM, {"attn_norm.weight", "operator_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "ffn_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_Q, {"attn_q.weight", "self_attn.q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_K, {"attn_k.weight", "self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_V, {"attn_v.weight", "self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_O, {"attn_output.weight", "self_attn.out_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_IF_ATTENTION}},
    {WEIGHT_Q_NORM,
     {"attn_q_norm.weight", "self_attn.q_layernorm.weight", DIM_1, DIM_HEAD, PRESENT_IF_ATTENTION}},
    {WEIGHT_K_NORM,
     {"attn_k_norm.weight", "self_attn.k_layernorm.weight", DIM_1, DIM_HEAD, PRESENT_IF_ATTENTION}},
    {WEIGHT_GATE,
     {"ffn_gate.weight", "feed_forward.w1.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_UP, {"ffn_up.weight", "feed_forward.w3.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_DOWN,
     {"ffn_down.weight", "feed_forward.w2.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_IF_DENSE}},
    {WEIGHT_DELTA_QKVZ,
     {"shortconv.in_proj.weight", "conv.in_proj.weight", DIM_DELTA_PROJECTED, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_CONVOLUTION,
     {"shortconv.conv.weight", "conv.conv.weight", DIM_DELTA_WIDTH, DIM_SHORT_TAPS, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_OUT,
     {"shortconv.out_proj.weight", "conv.out_proj.weight", DIM_HIDDEN, DIM_DELTA_WIDTH, PRESENT_IF_STATE}},
    {WEIGHT_ROUTER,
     {"ffn_gate_inp.weight", "feed_forward.gate.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_ROUTER_BIAS,
     {"exp_probs_b.bias", "feed_forward.expert_bias", DIM_1, DIM_EXPERTS, PRESENT_IF_ROUTER_BIAS}},
    {WEIGHT_EXPERT_GATE,
     {"ffn_gate_exps.weight", "feed_forward.experts.*.w1.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_UP,
     {"ffn_up_exps.weight", "feed_forward.experts.*.w3.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN,
     {"ffn_down_exps.weight", "feed_forward.experts.*.w2.weight", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change qwen3_next_weights[] = {
    HYBRID_WEIGHTS,
    {WEIGHT_DELTA_QKVZ,
     {NULL, "linear_attn.in_proj_qkvz.weight", DIM_DELTA_BOTH, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_BA, {NULL, "linear_attn.in_proj_ba.weight", DIM_DELTA_RATES, DIM_HIDDEN, PRESENT_IF_STATE}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define SPLIT_HYBRID_WEIGHTS \
    HYBRID_WEIGHTS, \
    {WEIGHT_MLP_NORM, {"post_attention_norm.weight", "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_DELTA_QKV, {"attn_qkv.weight", "linear_attn.in_proj_qkv.weight", DIM_DELTA_CHANNELS, DIM_HIDDEN, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_Z, {"attn_gate.weight", "linear_attn.in_proj_z.weight", DIM_DELTA_WIDTH, DIM_HIDDEN, PRESENT_IF_STATE}}
/* clang-format on */

/* The converter takes q, k, v and z apart, and leaves b and a by heads of k. */
const struct weight_change qwen3_next_gguf_weights[] = {
    SPLIT_HYBRID_WEIGHTS,
    {WEIGHT_DELTA_BA, {"ssm_ba.weight", NULL, DIM_DELTA_RATES, DIM_HIDDEN, PRESENT_IF_STATE}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change qwen3_5_weights[] = {
    SPLIT_HYBRID_WEIGHTS,
    {WEIGHT_DELTA_B,
     {"ssm_beta.weight", "linear_attn.in_proj_b.weight", DIM_DELTA_HEADS, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_A,
     {"ssm_alpha.weight", "linear_attn.in_proj_a.weight", DIM_DELTA_HEADS, DIM_HIDDEN, PRESENT_IF_STATE}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
/* q, k and v of a state apart, and their convolutions. */
#define PARTED_STATE(delta) \
    {WEIGHT_DELTA_Q, {"attn_q.weight", delta "q_proj.weight", DIM_DELTA_KEYS, DIM_HIDDEN, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_K, {"attn_k.weight", delta "k_proj.weight", DIM_DELTA_KEYS, DIM_HIDDEN, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_V, {"attn_v.weight", delta "v_proj.weight", DIM_DELTA_WIDTH, DIM_HIDDEN, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_B, {"ssm_beta.weight", delta "b_proj.weight", DIM_DELTA_HEADS, DIM_HIDDEN, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_CONVOLUTION, {"ssm_conv1d_q.weight", delta "q_conv1d.weight", DIM_DELTA_KEYS, DIM_DELTA_TAPS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_CONVOLUTION_K, {"ssm_conv1d_k.weight", delta "k_conv1d.weight", DIM_DELTA_KEYS, DIM_DELTA_TAPS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_CONVOLUTION_V, {"ssm_conv1d_v.weight", delta "v_conv1d.weight", DIM_DELTA_WIDTH, DIM_DELTA_TAPS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_DECAY, {"ssm_a", delta "A_log", DIM_1, DIM_DELTA_HEADS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_DT_BIAS, {"ssm_dt.bias", delta "dt_bias", DIM_1, DIM_DELTA_DECAYS, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_NORM, {"ssm_norm.weight", delta "o_norm.weight", DIM_1, DIM_DELTA_HEAD, PRESENT_IF_STATE}}, \
    {WEIGHT_DELTA_OUT, {"attn_output.weight", delta "o_proj.weight", DIM_HIDDEN, DIM_DELTA_WIDTH, PRESENT_IF_STATE}}
/* clang-format on */

/* Norms before a state and the MLP behind it, but behind attention and the MLP there. */
const struct weight_change olmo_hybrid_weights[] = {
    PARTED_STATE("linear_attn."),
    {WEIGHT_DELTA_A, {NULL, "linear_attn.a_proj.weight", DIM_DELTA_HEADS, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_Z, {NULL, "linear_attn.g_proj.weight", DIM_DELTA_WIDTH, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_Q, {NULL, "self_attn.q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_K, {NULL, "self_attn.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_V, {NULL, "self_attn.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_O, {NULL, "self_attn.o_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_IF_ATTENTION}},
    {WEIGHT_Q_NORM, {NULL, "self_attn.q_norm.weight", DIM_1, DIM_Q, PRESENT_IF_ATTENTION}},
    {WEIGHT_K_NORM, {NULL, "self_attn.k_norm.weight", DIM_1, DIM_KV, PRESENT_IF_ATTENTION}},
    {WEIGHT_ATTENTION_NORM, {NULL, "attention_layer_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_MLP_NORM, {NULL, "feedforward_layer_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_ATTENTION_POST_NORM,
     {NULL, "post_attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {WEIGHT_MLP_POST_NORM,
     {NULL, "post_feedforward_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_ATTENTION}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* A directory's experts in two tensors. */
const struct weight_change stacked_weights[] = {
    {WEIGHT_EXPERT_GATE,
     {"ffn_gate_exps.weight", "mlp.experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_UP,
     {"ffn_up_exps.weight", "mlp.experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN,
     {"ffn_down_exps.weight", "mlp.experts.down_proj", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* The same where each expert has its own, as programs that quantise write them. */
/* clang-format off */
#define NUMBERED(mlp) \
    {WEIGHT_EXPERT_GATE, {"ffn_gate_exps.weight", mlp ".experts.*.gate_proj.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}}, \
    {WEIGHT_EXPERT_UP, {"ffn_up_exps.weight", mlp ".experts.*.up_proj.weight", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}}, \
    {WEIGHT_EXPERT_DOWN, {"ffn_down_exps.weight", mlp ".experts.*.down_proj.weight", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}}, \
    {.role = WEIGHT_ROLE_COUNT}
/* clang-format on */
const struct weight_change numbered_weights[] = {NUMBERED("mlp")};
const struct weight_change llama4_numbered_weights[] = {NUMBERED("feed_forward")};
const struct weight_change sparse_block_numbered_weights[] = {NUMBERED("block_sparse_moe")};

/* feed_forward for mlp, norms of Q and K without weights, experts in one tensor each. */
const struct weight_change llama4_weights[] = {
    {WEIGHT_Q_NORM, {.presence = PRESENT_NEVER}},
    {WEIGHT_K_NORM, {.presence = PRESENT_NEVER}},
    {WEIGHT_GATE,
     {"ffn_gate.weight", "feed_forward.gate_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_UP,
     {"ffn_up.weight", "feed_forward.up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_DOWN,
     {"ffn_down.weight", "feed_forward.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_IF_DENSE}},
    {WEIGHT_ROUTER,
     {"ffn_gate_inp.weight", "feed_forward.router.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_SHARED_GATE,
     {"ffn_gate_shexp.weight", "feed_forward.shared_expert.gate_proj.weight", DIM_SHARED, DIM_HIDDEN,
      PRESENT_IF_SHARED}},
    {WEIGHT_SHARED_UP,
     {"ffn_up_shexp.weight", "feed_forward.shared_expert.up_proj.weight", DIM_SHARED, DIM_HIDDEN,
      PRESENT_IF_SHARED}},
    {WEIGHT_SHARED_DOWN,
     {"ffn_down_shexp.weight", "feed_forward.shared_expert.down_proj.weight", DIM_HIDDEN, DIM_SHARED,
      PRESENT_IF_SHARED}},
    {WEIGHT_EXPERT_GATE,
     {"ffn_gate_exps.weight", "feed_forward.experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN,
      PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_UP,
     {"ffn_up_exps.weight", "feed_forward.experts.gate_up_proj", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN,
     {"ffn_down_exps.weight", "feed_forward.experts.down_proj", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* K and V from a latent; MLPs as GLM names them. */
/* clang-format off */
#define LATENTS \
    {WEIGHT_Q, {"attn_q.weight", "self_attn.q_proj.weight", DIM_LATENT_Q, DIM_HIDDEN, PRESENT_IF_NO_Q_RANK}}, \
    {WEIGHT_K, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_V, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_O, {"attn_output.weight", "self_attn.o_proj.weight", DIM_HIDDEN, DIM_LATENT_VALUES, PRESENT_IF_ATTENTION}}, \
    {WEIGHT_LATENT_Q_A, {"attn_q_a.weight", "self_attn.q_a_proj.weight", DIM_LATENT_Q_RANK, DIM_HIDDEN, PRESENT_IF_Q_RANK}}, \
    {WEIGHT_LATENT_Q_NORM, {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight", DIM_1, DIM_LATENT_Q_RANK, PRESENT_IF_Q_RANK}}, \
    {WEIGHT_LATENT_Q_B, {"attn_q_b.weight", "self_attn.q_b_proj.weight", DIM_LATENT_Q, DIM_LATENT_Q_RANK, PRESENT_IF_Q_RANK}}, \
    {WEIGHT_LATENT_KV_A, {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight", DIM_LATENT_KV, DIM_HIDDEN, PRESENT_IF_ATTENTION}}, \
    {WEIGHT_LATENT_KV_NORM, {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight", DIM_1, DIM_LATENT_RANK, PRESENT_IF_ATTENTION}}, \
    {WEIGHT_LATENT_KV_B, {"attn_kv_b.weight", "self_attn.kv_b_proj.weight", DIM_LATENT_BOTH, DIM_LATENT_RANK, PRESENT_IF_NOT_SPLIT}}, \
    {WEIGHT_LATENT_K_B, {"attn_k_b.weight", "self_attn.embed_q.weight", DIM_LATENT_RANKS, DIM_LATENT_PLAIN, PRESENT_IF_SPLIT}}, \
    {WEIGHT_LATENT_V_B, {"attn_v_b.weight", "self_attn.unembed_out.weight", DIM_LATENT_VALUES, DIM_LATENT_RANK, PRESENT_IF_SPLIT}}
/* clang-format on */

const struct weight_change latent_weights[] = {
    LATENTS,
    SHARED_EXPERTS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* Without experts, and an MLP without a gate. */
const struct weight_change plm_weights[] = {
    LATENTS,
    NO_GATE,
    {.role = WEIGHT_ROLE_COUNT},
};

/* A norm behind experts, which published files have of all layers, and a bias that they do not have. */
const struct weight_change axk1_weights[] = {
    LATENTS,
    SHARED_EXPERTS,
    {WEIGHT_ROUTER_BIAS, {NULL, "mlp.gate.e_score_correction_bias", DIM_1, DIM_EXPERTS, PRESENT_MAYBE}},
    {WEIGHT_MLP_POST_NORM, {NULL, "post_mlp_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define SPARSE_SHARED(part, own) \
    {part, {"ffn_" own "_shexp.weight", "block_sparse_moe.shared_experts." own "_proj.weight", DIM_SHARED, DIM_HIDDEN, PRESENT_IF_SHARED}}
/* clang-format on */

/* Latents in some layers, in the others a state whose z and decays are made in two products. */
const struct weight_change kimi_linear_weights[] = {
    LATENTS,
    PARTED_STATE("self_attn."),
    {WEIGHT_DELTA_Z,
     {"ssm_g_b.weight", "self_attn.g_b_proj.weight", DIM_DELTA_WIDTH, DIM_DELTA_HEAD, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_Z_NARROW,
     {"ssm_g_a.weight", "self_attn.g_a_proj.weight", DIM_DELTA_HEAD, DIM_HIDDEN, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_F,
     {"ssm_f_b.weight", "self_attn.f_b_proj.weight", DIM_DELTA_DECAYS, DIM_DELTA_HEAD, PRESENT_IF_STATE}},
    {WEIGHT_DELTA_F_NARROW,
     {"ssm_f_a.weight", "self_attn.f_a_proj.weight", DIM_DELTA_HEAD, DIM_HIDDEN, PRESENT_IF_STATE}},
    SPARSE_BLOCK,
    {WEIGHT_ROUTER_BIAS,
     {"exp_probs_b.bias", "block_sparse_moe.gate.e_score_correction_bias", DIM_1, DIM_EXPERTS,
      PRESENT_IF_ROUTER_BIAS}},
    SPARSE_SHARED(WEIGHT_SHARED_GATE, "gate"),
    SPARSE_SHARED(WEIGHT_SHARED_UP, "up"),
    {WEIGHT_SHARED_DOWN,
     {"ffn_down_shexp.weight", "block_sparse_moe.shared_experts.down_proj.weight", DIM_HIDDEN, DIM_SHARED,
      PRESENT_IF_SHARED}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change arcee_weights[] = {
    NO_GATE,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change apertus_weights[] = {
    NO_GATE,
    {WEIGHT_ATTENTION_NORM,
     {"attn_norm.weight", "attention_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "feedforward_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_XIELU_ABOVE, {"=xielu.alpha_p", "mlp.act_fn.alpha_p", DIM_1, DIM_1, PRESENT_ALWAYS}},
    {WEIGHT_XIELU_BELOW, {"=xielu.alpha_n", "mlp.act_fn.alpha_n", DIM_1, DIM_1, PRESENT_ALWAYS}},
    {WEIGHT_XIELU_BETA, {"=xielu.beta", "mlp.act_fn.beta", DIM_1, DIM_1, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change starcoder2_weights[] = {
    NORM_BIASES,
    NO_GATE,
    {WEIGHT_UP, {"ffn_up.weight", "mlp.c_fc.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP_BIAS, {"ffn_up.bias", "mlp.c_fc.bias", DIM_1, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.c_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {WEIGHT_DOWN_BIAS, {"ffn_down.bias", "mlp.c_proj.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change nemotron_weights[] = {
    NORM_BIASES,
    NO_GATE,
    {.role = WEIGHT_ROLE_COUNT},
};

/* An MLP, or experts, are a layer of their own in the file, whose norm and matrices have the names that those of other layers have. No
 * gates. */
const struct weight_change nemotron_h_weights[] = {
    NO_GATE,
    {WEIGHT_TOKEN_EMBEDDING,
     {"token_embd.weight", "embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "norm_f.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_NORM, {"attn_norm.weight", "norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"+attn_norm.weight", "+norm.weight", DIM_1, DIM_HIDDEN, PRESENT_IF_MLP}},
    {WEIGHT_UP, {"+ffn_up.weight", "+mixer.up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_DOWN,
     {"+ffn_down.weight", "+mixer.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_IF_DENSE}},
    {WEIGHT_ROUTER,
     {"+ffn_gate_inp.weight", "+mixer.gate.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_ROUTER_BIAS,
     {"+exp_probs_b.bias", "+mixer.gate.e_score_correction_bias", DIM_1, DIM_EXPERTS,
      PRESENT_IF_ROUTER_BIAS}},
    {WEIGHT_SHARED_GATE, {.presence = PRESENT_NEVER}},
    {WEIGHT_SHARED_UP,
     {"+ffn_up_shexp.weight", "+mixer.shared_experts.up_proj.weight", DIM_SHARED, DIM_HIDDEN,
      PRESENT_IF_SHARED}},
    {WEIGHT_SHARED_DOWN,
     {"+ffn_down_shexp.weight", "+mixer.shared_experts.down_proj.weight", DIM_HIDDEN, DIM_SHARED,
      PRESENT_IF_SHARED}},
    {WEIGHT_EXPERT_GATE, {.presence = PRESENT_NEVER}},
    {WEIGHT_EXPERT_UP,
     {"+ffn_up_exps.weight", "+mixer.experts.*.up_proj.weight", DIM_EXPERT, DIM_EXPERT_HIDDEN,
      PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN,
     {"+ffn_down_exps.weight", "+mixer.experts.*.down_proj.weight", DIM_EXPERT_HIDDEN, DIM_EXPERT,
      PRESENT_IF_SPARSE}},
    {WEIGHT_TO_EXPERTS,
     {"+ffn_latent_down.weight", "+mixer.fc1_latent_proj.weight", DIM_EXPERT_HIDDEN, DIM_HIDDEN,
      PRESENT_IF_OWN_SPACE}},
    {WEIGHT_FROM_EXPERTS,
     {"+ffn_latent_up.weight", "+mixer.fc2_latent_proj.weight", DIM_HIDDEN, DIM_EXPERT_HIDDEN,
      PRESENT_IF_OWN_SPACE}},
    STATE_SPACE_AND_ATTENTION("mixer.", "mixer."),
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change jais2_weights[] = {
    NORM_BIASES,
    NO_GATE,
    {WEIGHT_UP_BIAS, {"ffn_up.bias", "mlp.up_proj.bias", DIM_1, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {WEIGHT_DOWN_BIAS, {"ffn_down.bias", "mlp.down_proj.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
/* gguf: one weight a head, for all that it has; stablelm's directories have each in a tensor of its own. */
#define NORMS_OF_EACH_HEAD(q, k) \
    {WEIGHT_Q_NORM, {"attn_q_norm.weight", q, DIM_1, DIM_Q, PRESENT_IF_QK_NORM}}, \
    {WEIGHT_K_NORM, {"attn_k_norm.weight", k, DIM_1, DIM_KV, PRESENT_IF_QK_NORM}}
#define STABLELM_QK_NORMS \
    NORMS_OF_EACH_HEAD("self_attn.q_layernorm.norms.*.weight", "self_attn.k_layernorm.norms.*.weight")
/* clang-format on */

const struct weight_change stablelm_weights[] = {
    NORM_BIASES,
    STABLELM_QK_NORMS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* One norm for attention and MLP. */
const struct weight_change stablelm_parallel_weights[] = {
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}},
    {WEIGHT_MLP_NORM_BIAS, {.presence = PRESENT_NEVER}},
    NORM_BIASES,
    STABLELM_QK_NORMS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* One norm for attention and MLP, biases everywhere, an MLP without a gate. */
const struct weight_change phi2_weights[] = {
    NO_GATE,
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "final_layernorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_OUTPUT_NORM_BIAS,
     {"output_norm.bias", "final_layernorm.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_LM_HEAD_BIAS, {"output.bias", "/lm_head.bias", DIM_1, DIM_VOCAB, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_NORM_BIAS,
     {"attn_norm.bias", "input_layernorm.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}},
    {WEIGHT_O, {"attn_output.weight", "self_attn.dense.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    {WEIGHT_O_BIAS, {"attn_output.bias", "self_attn.dense.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP, {"ffn_up.weight", "mlp.fc1.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP_BIAS, {"ffn_up.bias", "mlp.fc1.bias", DIM_1, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.fc2.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {WEIGHT_DOWN_BIAS, {"ffn_down.bias", "mlp.fc2.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* One norm for attention and MLP. */
const struct weight_change cohere_weights[] = {
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}},
    NORMS_OF_EACH_HEAD("self_attn.q_norm.weight", "self_attn.k_norm.weight"),
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change cohere_moe_weights[] = {
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}},
    SHARED_EXPERTS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define QKV_IN_ONE(gguf, hf) \
    {WEIGHT_Q, {gguf, hf, DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_K, {gguf, hf, DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_V, {gguf, hf, DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}}
#define QKV_BIASES_IN_ONE(gguf, hf) \
    {WEIGHT_Q_BIAS, {gguf, hf, DIM_1, DIM_Q, PRESENT_IF_QKV_BIAS}}, \
    {WEIGHT_K_BIAS, {gguf, hf, DIM_1, DIM_KV, PRESENT_IF_QKV_BIAS}}, \
    {WEIGHT_V_BIAS, {gguf, hf, DIM_1, DIM_KV, PRESENT_IF_QKV_BIAS}}
#define NORM_AND_BIAS(role, gguf, hf) \
    {role, {gguf ".weight", hf ".weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {role##_BIAS, {gguf ".bias", hf ".bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}
#define O_AND_BIAS(hf) \
    {WEIGHT_O, {"attn_output.weight", hf ".weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}}, \
    {WEIGHT_O_BIAS, {"attn_output.bias", hf ".bias", DIM_1, DIM_HIDDEN, PRESENT_IF_O_BIAS}}
#define PLAIN_MLP(up, down) \
    NO_GATE, \
    {WEIGHT_UP, {"ffn_up.weight", up ".weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_UP_BIAS, {"ffn_up.bias", up ".bias", DIM_1, DIM_INTERMEDIATE, PRESENT_ALWAYS}}, \
    {WEIGHT_DOWN, {"ffn_down.weight", down ".weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}}, \
    {WEIGHT_DOWN_BIAS, {"ffn_down.bias", down ".bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}
/* clang-format on */

const struct weight_change dbrx_weights[] = {
    QKV_IN_ONE("attn_qkv.weight", NULL),
    {WEIGHT_MLP_NORM, {"attn_output_norm.weight", NULL, DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
/* Learned positions. */
#define GPT_2_WEIGHTS \
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "wte.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_POSITION_EMBEDDING, {"position_embd.weight", "wpe.weight", DIM_POSITIONS, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    NORM_AND_BIAS(WEIGHT_OUTPUT_NORM, "output_norm", "ln_f"), \
    NORM_AND_BIAS(WEIGHT_ATTENTION_NORM, "attn_norm", "ln_1"), \
    NORM_AND_BIAS(WEIGHT_MLP_NORM, "ffn_norm", "ln_2"), \
    PLAIN_MLP("mlp.c_fc", "mlp.c_proj")
/* clang-format on */

/* Biases everywhere, q, k and v in one tensor. */
const struct weight_change gpt2_weights[] = {
    GPT_2_WEIGHTS,
    QKV_IN_ONE("attn_qkv.weight", "attn.c_attn.weight"),
    QKV_BIASES_IN_ONE("attn_qkv.bias", "attn.c_attn.bias"),
    O_AND_BIAS("attn.c_proj"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* The same; q, k and v are apart, and have no biases. */
const struct weight_change gpt_neo_weights[] = {
    GPT_2_WEIGHTS,
    {WEIGHT_Q, {NULL, "attn.attention.q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {NULL, "attn.attention.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {NULL, "attn.attention.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    O_AND_BIAS("attn.attention.out_proj"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* The same by names of its own. */
const struct weight_change opt_weights[] = {
    {WEIGHT_POSITION_EMBEDDING, {NULL, "embed_positions.weight", DIM_POSITIONS, DIM_HIDDEN, PRESENT_ALWAYS}},
    NORM_AND_BIAS(WEIGHT_OUTPUT_NORM, "output_norm", "final_layer_norm"),
    NORM_AND_BIAS(WEIGHT_ATTENTION_NORM, "attn_norm", "self_attn_layer_norm"),
    NORM_AND_BIAS(WEIGHT_MLP_NORM, "ffn_norm", "final_layer_norm"),
    O_AND_BIAS("self_attn.out_proj"),
    PLAIN_MLP("fc1", "fc2"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* Llama's by the names of GPT-2. */
const struct weight_change exaone_weights[] = {
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "wte.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "ln_f.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_NORM, {"attn_norm.weight", "ln_1.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_Q, {"attn_q.weight", "attn.attention.q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {"attn_k.weight", "attn.attention.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {"attn_v.weight", "attn.attention.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_O, {"attn_output.weight", "attn.attention.out_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "ln_2.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_GATE, {"ffn_gate.weight", "mlp.c_fc_0.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP, {"ffn_up.weight", "mlp.c_fc_1.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.c_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Llama's by other names; q, k and v in one tensor of a directory. */
const struct weight_change internlm2_weights[] = {
    {WEIGHT_TOKEN_EMBEDDING,
     {"token_embd.weight", "tok_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_LM_HEAD, {"output.weight", "output.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_IF_NOT_TIED}},
    {WEIGHT_ATTENTION_NORM, {"attn_norm.weight", "attention_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_Q, {"attn_q.weight", "attention.wqkv.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {"attn_k.weight", "attention.wqkv.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {"attn_v.weight", "attention.wqkv.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_O, {"attn_output.weight", "attention.wo.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "ffn_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_GATE,
     {"ffn_gate.weight", "feed_forward.w1.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP, {"ffn_up.weight", "feed_forward.w3.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN,
     {"ffn_down.weight", "feed_forward.w2.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define ONE_NORM_BY_NAMES_OF_GPT_2(norm) \
    NORM_AND_BIAS(WEIGHT_OUTPUT_NORM, "output_norm", "ln_f"), \
    NORM_AND_BIAS(WEIGHT_ATTENTION_NORM, "attn_norm", norm), \
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}
/* clang-format on */

/* One norm for attention and MLP; biases of the MLP and of the head. */
const struct weight_change gptj_weights[] = {
    {WEIGHT_TOKEN_EMBEDDING, {NULL, "wte.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    ONE_NORM_BY_NAMES_OF_GPT_2("ln_1"),
    {WEIGHT_Q, {NULL, "attn.q_proj.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {NULL, "attn.k_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {NULL, "attn.v_proj.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_O, {NULL, "attn.out_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    PLAIN_MLP("mlp.fc_in", "mlp.fc_out"),
    {WEIGHT_LM_HEAD_BIAS, {NULL, "/lm_head.bias", DIM_1, DIM_VOCAB, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
/* No biases but the norms'. */
#define FALCON_WEIGHTS \
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "word_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    QKV_IN_ONE("attn_qkv.weight", "self_attention.query_key_value.weight"), \
    {WEIGHT_O, {"attn_output.weight", "self_attention.dense.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}}, \
    NO_GATE, \
    {WEIGHT_UP, {"ffn_up.weight", "mlp.dense_h_to_4h.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.dense_4h_to_h.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}}
/* clang-format on */

/* One norm for attention and MLP. */
const struct weight_change falcon_weights[] = {
    FALCON_WEIGHTS,
    ONE_NORM_BY_NAMES_OF_GPT_2("input_layernorm"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* One each; GGUF's first is the MLP's. */
const struct weight_change falcon_40b_weights[] = {
    FALCON_WEIGHTS,
    NORM_AND_BIAS(WEIGHT_OUTPUT_NORM, "output_norm", "ln_f"),
    NORM_AND_BIAS(WEIGHT_ATTENTION_NORM, "attn_norm_2", "ln_attn"),
    NORM_AND_BIAS(WEIGHT_MLP_NORM, "attn_norm", "ln_mlp"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* As GPT-2 by other names; what stands for positions has no weights. */
#define BLOOM_WEIGHTS                                                                                        \
    {WEIGHT_TOKEN_EMBEDDING,                                                                                 \
     {"token_embd.weight", "word_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},                \
        NORM_AND_BIAS(WEIGHT_OUTPUT_NORM, "output_norm", "ln_f"),                                            \
        NORM_AND_BIAS(WEIGHT_ATTENTION_NORM, "attn_norm", "input_layernorm"),                                \
        NORM_AND_BIAS(WEIGHT_MLP_NORM, "ffn_norm", "post_attention_layernorm"),                              \
        QKV_IN_ONE("attn_qkv.weight", "self_attention.query_key_value.weight"),                              \
        QKV_BIASES_IN_ONE("attn_qkv.bias", "self_attention.query_key_value.bias"),                           \
        O_AND_BIAS("self_attention.dense"), PLAIN_MLP("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")

const struct weight_change falcon_serial_weights[] = {
    BLOOM_WEIGHTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change bloom_weights[] = {
    NORM_AND_BIAS(WEIGHT_EMBEDDING_NORM, "token_embd_norm", "word_embeddings_layernorm"),
    BLOOM_WEIGHTS,
    {.role = WEIGHT_ROLE_COUNT},
};

/* No biases, q, k and v in one tensor. */
const struct weight_change mpt_weights[] = {
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "wte.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "norm_f.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_NORM, {"attn_norm.weight", "norm_1.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "norm_2.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    QKV_IN_ONE("attn_qkv.weight", "attn.Wqkv.weight"),
    {WEIGHT_O, {"attn_output.weight", "attn.out_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    NO_GATE,
    {WEIGHT_UP, {"ffn_up.weight", "ffn.up_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {"ffn_down.weight", "ffn.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Llama's by the names of GPT-2; q, k and v in one tensor, with biases. */
const struct weight_change qwen_weights[] = {
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "wte.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "ln_f.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_ATTENTION_NORM, {"attn_norm.weight", "ln_1.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    QKV_IN_ONE("attn_qkv.weight", "attn.c_attn.weight"),
    QKV_BIASES_IN_ONE("attn_qkv.bias", "attn.c_attn.bias"),
    {WEIGHT_O, {"attn_output.weight", "attn.c_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "ln_2.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_GATE, {"ffn_gate.weight", "mlp.w2.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP, {"ffn_up.weight", "mlp.w1.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.c_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* Llama's; q, k and v in one tensor of a directory. */
const struct weight_change baichuan_weights[] = {
    {WEIGHT_Q, {"attn_q.weight", "self_attn.W_pack.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_K, {"attn_k.weight", "self_attn.W_pack.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_V, {"attn_v.weight", "self_attn.W_pack.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* As GPT-2 by other names; it rotates. */
const struct weight_change gptneox_weights[] = {
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "embed_in.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_LM_HEAD, {"output.weight", "embed_out.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_IF_NOT_TIED}},
    NORM_AND_BIAS(WEIGHT_OUTPUT_NORM, "output_norm", "final_layer_norm"),
    NORM_AND_BIAS(WEIGHT_ATTENTION_NORM, "attn_norm", "input_layernorm"),
    NORM_AND_BIAS(WEIGHT_MLP_NORM, "ffn_norm", "post_attention_layernorm"),
    QKV_IN_ONE("attn_qkv.weight", "attention.query_key_value.weight"),
    QKV_BIASES_IN_ONE("attn_qkv.bias", "attention.query_key_value.bias"),
    O_AND_BIAS("attention.dense"),
    PLAIN_MLP("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* Norms behind attention and MLP and behind the embedding, biases everywhere, an MLP without a gate. */
#define BERT_WEIGHTS                                                                                         \
    {WEIGHT_TOKEN_EMBEDDING,                                                                                 \
     {"token_embd.weight", "embeddings.word_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}},     \
        {WEIGHT_POSITION_EMBEDDING,                                                                          \
         {"position_embd.weight", "embeddings.position_embeddings.weight", DIM_POSITIONS, DIM_HIDDEN,        \
          PRESENT_ALWAYS}},                                                                                  \
        {WEIGHT_TYPE_EMBEDDING,                                                                              \
         {"token_types.weight", "embeddings.token_type_embeddings.weight", DIM_TYPES, DIM_HIDDEN,            \
          PRESENT_ALWAYS}},                                                                                  \
        {WEIGHT_EMBEDDING_NORM,                                                                              \
         {"token_embd_norm.weight", "embeddings.LayerNorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},      \
        {WEIGHT_EMBEDDING_NORM_BIAS,                                                                         \
         {"token_embd_norm.bias", "embeddings.LayerNorm.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},          \
        {WEIGHT_OUTPUT_NORM, {.presence = PRESENT_NEVER}},                                                   \
        {WEIGHT_ATTENTION_NORM, {.presence = PRESENT_NEVER}},                                                \
        {WEIGHT_Q, {"attn_q.weight", "attention.self.query.weight", DIM_Q, DIM_HIDDEN, PRESENT_ALWAYS}},     \
        {WEIGHT_K, {"attn_k.weight", "attention.self.key.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},      \
        {WEIGHT_V, {"attn_v.weight", "attention.self.value.weight", DIM_KV, DIM_HIDDEN, PRESENT_ALWAYS}},    \
        {WEIGHT_O,                                                                                           \
         {"attn_output.weight", "attention.output.dense.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}},        \
        {WEIGHT_Q_BIAS, {"attn_q.bias", "attention.self.query.bias", DIM_1, DIM_Q, PRESENT_ALWAYS}},         \
        {WEIGHT_K_BIAS, {"attn_k.bias", "attention.self.key.bias", DIM_1, DIM_KV, PRESENT_ALWAYS}},          \
        {WEIGHT_V_BIAS, {"attn_v.bias", "attention.self.value.bias", DIM_1, DIM_KV, PRESENT_ALWAYS}},        \
        {WEIGHT_O_BIAS,                                                                                      \
         {"attn_output.bias", "attention.output.dense.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},            \
        {WEIGHT_ATTENTION_POST_NORM,                                                                         \
         {"attn_output_norm.weight", "attention.output.LayerNorm.weight", DIM_1, DIM_HIDDEN,                 \
          PRESENT_ALWAYS}},                                                                                  \
        {WEIGHT_ATTENTION_POST_NORM_BIAS,                                                                    \
         {"attn_output_norm.bias", "attention.output.LayerNorm.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},   \
        {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}, {WEIGHT_GATE, {.presence = PRESENT_NEVER}},          \
        {WEIGHT_UP,                                                                                          \
         {"ffn_up.weight", "intermediate.dense.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},      \
        {WEIGHT_UP_BIAS,                                                                                     \
         {"ffn_up.bias", "intermediate.dense.bias", DIM_1, DIM_INTERMEDIATE, PRESENT_ALWAYS}},               \
        {WEIGHT_DOWN,                                                                                        \
         {"ffn_down.weight", "output.dense.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},          \
        {WEIGHT_DOWN_BIAS, {"ffn_down.bias", "output.dense.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},       \
        {WEIGHT_MLP_POST_NORM,                                                                               \
         {"layer_output_norm.weight", "output.LayerNorm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},        \
    {                                                                                                        \
        WEIGHT_MLP_POST_NORM_BIAS,                                                                           \
        {                                                                                                    \
            "layer_output_norm.bias", "output.LayerNorm.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS             \
        }                                                                                                    \
    }

/* dense, out: what a directory has before .weight and .bias. */
#define SCORE_HEAD(dense, out)                                                                               \
    {WEIGHT_HEAD_DENSE, {"cls.weight", dense ".weight", DIM_HIDDEN, DIM_HIDDEN, PRESENT_ALWAYS}},            \
        {WEIGHT_HEAD_DENSE_BIAS, {"cls.bias", dense ".bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},            \
        {WEIGHT_HEAD_OUT, {"cls.output.weight", out ".weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},          \
    {                                                                                                        \
        WEIGHT_HEAD_OUT_BIAS,                                                                                \
        {                                                                                                    \
            "cls.output.bias", out ".bias", DIM_1, DIM_1, PRESENT_ALWAYS                                     \
        }                                                                                                    \
    }

const struct weight_change bert_weights[] = {
    BERT_WEIGHTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change bert_score_weights[] = {
    BERT_WEIGHTS,
    SCORE_HEAD("pooler.dense", "/classifier"),
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change roberta_score_weights[] = {
    BERT_WEIGHTS,
    SCORE_HEAD("/classifier.dense", "/classifier.out_proj"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define NAMED(role, name, rows, cols) \
    {role, {NULL, name ".weight", rows, cols, PRESENT_ALWAYS}}, \
    {role##_BIAS, {NULL, name ".bias", DIM_1, (rows) == DIM_1 ? (cols) : (rows), PRESENT_ALWAYS}}
/* BERT's without types, under other names; before_qkv: what q, k and v have before their letter, and behind_qkv behind it. */
#define NAMED_BERT_WEIGHTS(before_qkv, behind_qkv, o, o_norm, up, down, down_norm) \
    {WEIGHT_TOKEN_EMBEDDING, {NULL, "embeddings.word_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_POSITION_EMBEDDING, {NULL, "embeddings.position_embeddings.weight", DIM_POSITIONS, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    NAMED(WEIGHT_EMBEDDING_NORM, "embeddings.LayerNorm", DIM_1, DIM_HIDDEN), \
    {WEIGHT_OUTPUT_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_ATTENTION_NORM, {.presence = PRESENT_NEVER}}, \
    NAMED(WEIGHT_Q, before_qkv "q" behind_qkv, DIM_Q, DIM_HIDDEN), \
    NAMED(WEIGHT_K, before_qkv "k" behind_qkv, DIM_KV, DIM_HIDDEN), \
    NAMED(WEIGHT_V, before_qkv "v" behind_qkv, DIM_KV, DIM_HIDDEN), \
    NAMED(WEIGHT_O, o, DIM_HIDDEN, DIM_Q), \
    NAMED(WEIGHT_ATTENTION_POST_NORM, o_norm, DIM_1, DIM_HIDDEN), \
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_GATE, {.presence = PRESENT_NEVER}}, \
    NAMED(WEIGHT_UP, up, DIM_INTERMEDIATE, DIM_HIDDEN), \
    NAMED(WEIGHT_DOWN, down, DIM_HIDDEN, DIM_INTERMEDIATE), \
    NAMED(WEIGHT_MLP_POST_NORM, down_norm, DIM_1, DIM_HIDDEN)
#define DISTILBERT_WEIGHTS \
    NAMED_BERT_WEIGHTS("attention.", "_lin", "attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm")
#define MPNET_WEIGHTS \
    NAMED_BERT_WEIGHTS("attention.attn.", "", "attention.attn.o", "attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"), \
    {WEIGHT_DISTANCE_BIAS, {NULL, "encoder.relative_attention_bias.weight", DIM_BUCKETS, DIM_NUM_HEADS, PRESENT_ALWAYS}}
/* clang-format on */

const struct weight_change distilbert_weights[] = {
    DISTILBERT_WEIGHTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change distilbert_score_weights[] = {
    DISTILBERT_WEIGHTS,
    SCORE_HEAD("/pre_classifier", "/classifier"),
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change mpnet_weights[] = {
    MPNET_WEIGHTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change mpnet_score_weights[] = {
    MPNET_WEIGHTS,
    SCORE_HEAD("/classifier.dense", "/classifier.out_proj"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
/* Norms before attention and MLP, but for the first layer's attention, behind the embedding and at the end, none with a bias. */
#define MODERNBERT_WEIGHTS \
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "embeddings.tok_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_EMBEDDING_NORM, {"token_embd_norm.weight", "embeddings.norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_OUTPUT_NORM, {"output_norm.weight", "final_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_ATTENTION_NORM, {"attn_norm.weight", "attn_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_BEHIND_FIRST}}, \
    QKV_IN_ONE("attn_qkv.weight", "attn.Wqkv.weight"), \
    {WEIGHT_O, {"attn_output.weight", "attn.Wo.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}}, \
    {WEIGHT_MLP_NORM, {"ffn_norm.weight", "mlp_norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_GATE, {"ffn_up.weight", "mlp.Wi.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_UP, {"ffn_up.weight", "mlp.Wi.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.Wo.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}}
/* clang-format on */

const struct weight_change modernbert_weights[] = {
    MODERNBERT_WEIGHTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change modernbert_score_weights[] = {
    MODERNBERT_WEIGHTS,
    {WEIGHT_HEAD_DENSE, {"cls.weight", "/head.dense.weight", DIM_HIDDEN, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_HEAD_DENSE_BIAS, {"cls.bias", "/head.dense.bias", DIM_1, DIM_HIDDEN, PRESENT_MAYBE}},
    {WEIGHT_HEAD_NORM, {"cls.norm.weight", "/head.norm.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_HEAD_OUT, {"cls.output.weight", "/classifier.weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_HEAD_OUT_BIAS, {"cls.output.bias", "/classifier.bias", DIM_1, DIM_1, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* clang-format off */
#define NOMIC_NORM(role, gguf, hf) \
    {role, {gguf ".weight", hf ".weight", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {role##_BIAS, {gguf ".bias", hf ".bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}
/* Norms where BERT has them; attention: what a directory calls it. */
#define NOMIC_WEIGHTS(attention) NOMIC_NAMED_WEIGHTS(attention, ".weight")
#define NOMIC_NAMED_WEIGHTS(attention, matrix) \
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "embeddings.word_embeddings" matrix, DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_TYPE_EMBEDDING, {"token_types.weight", "embeddings.token_type_embeddings" matrix, DIM_TYPES, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    NOMIC_NORM(WEIGHT_EMBEDDING_NORM, "token_embd_norm", "emb_ln"), \
    {WEIGHT_OUTPUT_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_ATTENTION_NORM, {.presence = PRESENT_NEVER}}, \
    QKV_IN_ONE("attn_qkv.weight", attention ".Wqkv" matrix), \
    {WEIGHT_O, {"attn_output.weight", attention ".out_proj" matrix, DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}}, \
    NOMIC_NORM(WEIGHT_ATTENTION_POST_NORM, "attn_output_norm", "norm1"), \
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}, \
    NOMIC_NORM(WEIGHT_MLP_POST_NORM, "layer_output_norm", "norm2")
/* And biases of all products, of which none has a gate. */
#define NOMIC_BIASES(attention) \
    {WEIGHT_Q_BIAS, {"attn_qkv.bias", attention ".Wqkv.bias", DIM_1, DIM_Q, PRESENT_ALWAYS}}, \
    {WEIGHT_K_BIAS, {"attn_qkv.bias", attention ".Wqkv.bias", DIM_1, DIM_KV, PRESENT_ALWAYS}}, \
    {WEIGHT_V_BIAS, {"attn_qkv.bias", attention ".Wqkv.bias", DIM_1, DIM_KV, PRESENT_ALWAYS}}, \
    {WEIGHT_O_BIAS, {"attn_output.bias", attention ".out_proj.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_GATE, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_UP_BIAS, {"ffn_up.bias", "mlp.fc1.bias", DIM_1, DIM_INTERMEDIATE, PRESENT_IF_DENSE}}, \
    {WEIGHT_DOWN_BIAS, {"ffn_down.bias", "mlp.fc2.bias", DIM_1, DIM_HIDDEN, PRESENT_IF_DENSE}}

/* The only biases are norms', and the MLP has a gate. */
const struct weight_change nomic_weights[] = {
    NOMIC_WEIGHTS("attn"),
    {WEIGHT_GATE, {"ffn_gate.weight", "mlp.fc12.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_UP, {"ffn_up.weight", "mlp.fc11.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}},
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.fc2.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}},
    {.role = WEIGHT_ROLE_COUNT},
};

/* All products have biases but experts', of which a directory has one together, and none has a gate. */
const struct weight_change nomic_moe_weights[] = {
    NOMIC_WEIGHTS("attn"),
    NOMIC_BIASES("attn"),
    {WEIGHT_UP, {"ffn_up.weight", "mlp.fc1.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_IF_DENSE}},
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.fc2.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_IF_DENSE}},
    {WEIGHT_ROUTER, {"ffn_gate_inp.weight", "mlp.router.layer.weight", DIM_EXPERTS, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERTS_BIAS, {NULL, "mlp.experts.bias", DIM_1, DIM_HIDDEN, PRESENT_MAYBE}},
    {WEIGHT_EXPERT_GATE, {.presence = PRESENT_NEVER}},
    {WEIGHT_EXPERT_UP, {"ffn_up_exps.weight", "mlp.experts.mlp.w1", DIM_EXPERT, DIM_HIDDEN, PRESENT_IF_SPARSE}},
    {WEIGHT_EXPERT_DOWN, {"ffn_down_exps.weight", "mlp.experts.mlp.w2", DIM_HIDDEN, DIM_EXPERT, PRESENT_IF_SPARSE}},
    {.role = WEIGHT_ROLE_COUNT},
};

#define FLASH_ROBERTA_WEIGHTS(matrix) \
    NOMIC_NAMED_WEIGHTS("mixer", matrix), \
    NOMIC_BIASES("mixer"), \
    {WEIGHT_UP, {"ffn_up.weight", "mlp.fc1" matrix, DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_DOWN, {"ffn_down.weight", "mlp.fc2" matrix, DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}}

/* Jina's XLM-RoBERTas. */
const struct weight_change flash_roberta_weights[] = {
    FLASH_ROBERTA_WEIGHTS(".weight"),
    {.role = WEIGHT_ROLE_COUNT},
};

/* Beside whose matrices are those of tasks. */
const struct weight_change task_roberta_weights[] = {
    FLASH_ROBERTA_WEIGHTS(".parametrizations.weight.original"),
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change flash_roberta_score_weights[] = {
    FLASH_ROBERTA_WEIGHTS(".weight"),
    {WEIGHT_POSITION_EMBEDDING, {"position_embd.weight", "embeddings.position_embeddings.weight", DIM_POSITIONS, DIM_HIDDEN, PRESENT_ALWAYS}},
    SCORE_HEAD("/classifier.dense", "/classifier.out_proj"),
    {.role = WEIGHT_ROLE_COUNT},
};
/* clang-format on */

/* clang-format off */
#define WITH_BIAS(role, gguf, hf, rows, cols) \
    {role, {gguf ".weight", hf ".weight", rows, cols, PRESENT_ALWAYS}}, \
    {role##_BIAS, {gguf ".bias", hf ".bias", DIM_1, (rows) == DIM_1 ? (cols) : (rows), PRESENT_ALWAYS}}
/* BERT's without positions; gate_up, down, out: what a directory calls the MLP's two products and the norm behind it. Older GGUF files have gate and up
 * apart. */
#define JINA_WEIGHTS(gate_up, down, out) \
    {WEIGHT_TOKEN_EMBEDDING, {"token_embd.weight", "embeddings.word_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_TYPE_EMBEDDING, {"token_types.weight", "embeddings.token_type_embeddings.weight", DIM_TYPES, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    WITH_BIAS(WEIGHT_EMBEDDING_NORM, "token_embd_norm", "embeddings.LayerNorm", DIM_1, DIM_HIDDEN), \
    {WEIGHT_OUTPUT_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_ATTENTION_NORM, {.presence = PRESENT_NEVER}}, \
    WITH_BIAS(WEIGHT_Q, "attn_q", "attention.self.query", DIM_Q, DIM_HIDDEN), \
    WITH_BIAS(WEIGHT_K, "attn_k", "attention.self.key", DIM_KV, DIM_HIDDEN), \
    WITH_BIAS(WEIGHT_V, "attn_v", "attention.self.value", DIM_KV, DIM_HIDDEN), \
    WITH_BIAS(WEIGHT_O, "attn_output", "attention.output.dense", DIM_HIDDEN, DIM_Q), \
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_GATE, {"ffn_gate.weight", gate_up ".weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_UP, {"ffn_up.weight", gate_up ".weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    WITH_BIAS(WEIGHT_DOWN, "ffn_down", down, DIM_HIDDEN, DIM_INTERMEDIATE), \
    WITH_BIAS(WEIGHT_MLP_POST_NORM, "layer_output_norm", out, DIM_1, DIM_HIDDEN)

const struct weight_change jina_weights[] = {
    JINA_WEIGHTS("mlp.gated_layers", "mlp.wo", "mlp.layernorm"),
    WITH_BIAS(WEIGHT_ATTENTION_POST_NORM, "attn_output_norm", "attention.output.LayerNorm", DIM_1, DIM_HIDDEN),
    {.role = WEIGHT_ROLE_COUNT},
};

/* Norms of q and k, and two behind attention. */
const struct weight_change jina_normed_weights[] = {
    JINA_WEIGHTS("mlp.up_gated_layer", "mlp.down_layer", "layer_norm_2"),
    WITH_BIAS(WEIGHT_Q_NORM, "attn_q_norm", "attention.self.layer_norm_q", DIM_1, DIM_Q),
    WITH_BIAS(WEIGHT_K_NORM, "attn_k_norm", "attention.self.layer_norm_k", DIM_1, DIM_KV),
    WITH_BIAS(WEIGHT_ATTENTION_INNER_NORM, "attn_output_norm", "attention.output.LayerNorm", DIM_1, DIM_HIDDEN),
    WITH_BIAS(WEIGHT_ATTENTION_POST_NORM, "attn_norm_2", "layer_norm_1", DIM_1, DIM_HIDDEN),
    {.role = WEIGHT_ROLE_COUNT},
};

#define LAYER_NORM(role, name) NAMED(role, name, DIM_1, DIM_HIDDEN)
/* As BERT, with q, k and v in one tensor, biases too, up and gate in another. */
#define GTE_WEIGHTS \
    {WEIGHT_TOKEN_EMBEDDING, {NULL, "embeddings.word_embeddings.weight", DIM_VOCAB, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_TYPE_EMBEDDING, {NULL, "embeddings.token_type_embeddings.weight", DIM_TYPES, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    LAYER_NORM(WEIGHT_EMBEDDING_NORM, "embeddings.LayerNorm"), \
    {WEIGHT_OUTPUT_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_ATTENTION_NORM, {.presence = PRESENT_NEVER}}, \
    QKV_IN_ONE(NULL, "attention.qkv_proj.weight"), \
    {WEIGHT_Q_BIAS, {NULL, "attention.qkv_proj.bias", DIM_1, DIM_Q, PRESENT_ALWAYS}}, \
    {WEIGHT_K_BIAS, {NULL, "attention.qkv_proj.bias", DIM_1, DIM_KV, PRESENT_ALWAYS}}, \
    {WEIGHT_V_BIAS, {NULL, "attention.qkv_proj.bias", DIM_1, DIM_KV, PRESENT_ALWAYS}}, \
    {WEIGHT_O, {NULL, "attention.o_proj.weight", DIM_HIDDEN, DIM_Q, PRESENT_ALWAYS}}, \
    {WEIGHT_O_BIAS, {NULL, "attention.o_proj.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    LAYER_NORM(WEIGHT_ATTENTION_POST_NORM, "attn_ln"), \
    {WEIGHT_MLP_NORM, {.presence = PRESENT_NEVER}}, \
    {WEIGHT_GATE, {NULL, "mlp.up_gate_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_UP, {NULL, "mlp.up_gate_proj.weight", DIM_INTERMEDIATE, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    {WEIGHT_DOWN, {NULL, "mlp.down_proj.weight", DIM_HIDDEN, DIM_INTERMEDIATE, PRESENT_ALWAYS}}, \
    {WEIGHT_DOWN_BIAS, {NULL, "mlp.down_proj.bias", DIM_1, DIM_HIDDEN, PRESENT_ALWAYS}}, \
    LAYER_NORM(WEIGHT_MLP_POST_NORM, "mlp_ln")
/* clang-format on */

const struct weight_change gte_weights[] = {
    GTE_WEIGHTS,
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_change gte_score_weights[] = {
    GTE_WEIGHTS,
    SCORE_HEAD("pooler.dense", "/classifier"),
    {.role = WEIGHT_ROLE_COUNT},
};

const struct weight_line *weight_line(const struct weight_change *changes, enum weight_role role)
{
    for (; changes && changes->role != WEIGHT_ROLE_COUNT; changes++)
        if (changes->role == role) return &changes->line;
    return &llama_weights[role];
}

bool weight_may_be(const struct weight_change *changes, enum weight_role role)
{
    return weight_line(changes, role)->presence != PRESENT_NEVER;
}

bool weight_is_norm(enum weight_role role)
{
    return role == WEIGHT_EMBEDDING_NORM || role == WEIGHT_HEAD_NORM || role == WEIGHT_OUTPUT_NORM ||
           role == WEIGHT_ATTENTION_NORM || role == WEIGHT_Q_NORM || role == WEIGHT_K_NORM ||
           role == WEIGHT_LATENT_Q_NORM || role == WEIGHT_LATENT_KV_NORM || role == WEIGHT_EXPERTS_NORM ||
           role == WEIGHT_MLP_POST_NORM_BESIDE || role == WEIGHT_EXPERTS_POST_NORM ||
           role == WEIGHT_LAYER_PROJECTION_NORM || role == WEIGHT_LAUREL_NORM ||
           role == WEIGHT_ALTUP_ROUTER_NORM || role == WEIGHT_LAYER_INPUT_NORM ||
           role == WEIGHT_ATTENTION_SUB_NORM || role == WEIGHT_MLP_SUB_NORM ||
           role == WEIGHT_ATTENTION_POST_NORM || role == WEIGHT_ATTENTION_INNER_NORM ||
           role == WEIGHT_MLP_NORM || role == WEIGHT_MLP_POST_NORM;
}

float weight_norm_offset(const struct model_config *c, enum weight_role role)
{
    return role == WEIGHT_OUTPUT_NORM && c->family->output_norm_is_whole ? 0 : c->norm_offset;
}

int64_t weight_dimension(const struct model_config *c, enum weight_dimension dimension, int32_t layer)
{
    const struct layer_config l = model_config_layer(c, layer);
    switch (dimension) {
    case DIM_1:
        return 1;
    case DIM_VOCAB:
        return c->vocab_size;
    case DIM_POSITIONS:
        return c->num_position_rows;
    case DIM_TYPES:
        return c->num_type_rows;
    case DIM_BUCKETS:
        return DISTANCE_BUCKETS;
    case DIM_HIDDEN:
        return c->hidden_size;
    case DIM_INTERMEDIATE:
        return l.intermediate_size;
    case DIM_LAYER_VOCAB:
        return c->layer_vocab_size;
    case DIM_LAYER_EMBEDDING:
        return c->layer_embedding_dim;
    case DIM_LAYER_EMBEDDINGS:
        return (int64_t)c->num_layers * c->layer_embedding_dim;
    case DIM_Q:
        return (int64_t)l.num_heads * l.head_dim;
    case DIM_GATED_Q:
        return 2 * (int64_t)l.num_heads * l.head_dim;
    case DIM_KV:
        return (int64_t)l.num_kv_heads * l.head_dim;
    case DIM_V:
        return (int64_t)l.num_kv_heads * l.v_dim;
    case DIM_ATTENDED:
        return (int64_t)l.num_heads * l.v_dim;
    case DIM_HEAD:
        return l.head_dim;
    case DIM_NUM_HEADS:
        return l.num_heads;
    case DIM_GATES:
        return (int64_t)l.num_heads * (c->gates_by_head ? 1 : l.head_dim);
    case DIM_ROTATIONS:
        return c->rope.rotary_dim / 2;
    case DIM_ALTUP:
        return ALTUP_STREAMS;
    case DIM_ALTUP_PAIRS:
        return ALTUP_STREAMS * ALTUP_STREAMS;
    case DIM_LAUREL:
        return c->laurel_rank;
    case DIM_EXPERTS:
        return c->num_experts;
    case DIM_EXPERT:
        return c->expert_intermediate_size;
    case DIM_EXPERT_HIDDEN:
        return c->expert_hidden_size > 0 ? c->expert_hidden_size : c->hidden_size;
    case DIM_SHARED:
        return c->shared_intermediate_size;
    case DIM_LATENT_Q:
        return (int64_t)c->num_heads * (c->latent.plain_dim + c->latent.rotary_dim);
    case DIM_LATENT_VALUES:
        return (int64_t)c->num_heads * c->latent.value_dim;
    case DIM_LATENT_BOTH:
        return (int64_t)c->num_heads * (c->latent.plain_dim + c->latent.value_dim);
    case DIM_LATENT_RANK:
        return c->latent.rank;
    case DIM_LATENT_RANKS:
        return (int64_t)c->num_heads * c->latent.rank;
    case DIM_LATENT_KV:
        return c->latent.rank + c->latent.rotary_dim;
    case DIM_LATENT_Q_RANK:
        return c->latent.q_rank;
    case DIM_LATENT_PLAIN:
        return c->latent.plain_dim;
    case DIM_DELTA_CHANNELS:
        return model_config_delta_channels(c);
    case DIM_DELTA_KEYS:
        return (int64_t)c->delta_k_heads * c->delta_k_dim;
    case DIM_DELTA_DECAYS:
        return model_config_num_decays(c);
    case DIM_DELTA_WIDTH:
        return model_config_delta_width(c);
    case DIM_DELTA_BOTH:
        return model_config_delta_channels(c) + model_config_delta_width(c);
    case DIM_DELTA_HEADS:
        return c->delta_v_heads;
    case DIM_DELTA_RATES:
        return 2 * (int64_t)c->delta_v_heads;
    case DIM_DELTA_HEAD:
        return c->delta_v_dim;
    case DIM_DELTA_TAPS:
        return DELTA_TAPS;
    case DIM_DELTA_PROJECTED:
        return model_config_projected_width(c);
    case DIM_DELTA_KEY:
        return c->delta_k_dim;
    case DIM_DELTA_STEPS:
        return c->delta_step_rank;
    case DIM_DELTA_SELECTION:
        return c->delta_step_rank + 2 * (int64_t)c->delta_k_dim;
    case DIM_SHORT_TAPS:
        return c->short_taps;
    }
    return 0;
}

bool weight_is_required(const struct model_config *c, enum weight_presence presence, int32_t layer)
{
    bool is_sparse = bit_set_has(c->sparse_layers, (size_t)layer);
    switch (presence) {
    case PRESENT_NEVER:
    case PRESENT_MAYBE:
        return false;
    case PRESENT_ALWAYS:
        return true;
    case PRESENT_IF_QKV_BIAS:
        return c->qkv_bias;
    case PRESENT_IF_O_BIAS:
        return c->o_bias;
    case PRESENT_IF_QK_NORM:
        return c->qk_norm;
    case PRESENT_IF_NOT_TIED:
        return !c->tie_word_embeddings;
    case PRESENT_IF_DENSE:
        return !is_sparse && !bit_set_has(c->layers_without_mlp, (size_t)layer);
    case PRESENT_IF_SPARSE:
        return is_sparse;
    case PRESENT_IF_MLP:
        return !bit_set_has(c->layers_without_mlp, (size_t)layer);
    case PRESENT_IF_ROUTER_BIAS:
        return is_sparse && c->has_router_bias;
    case PRESENT_IF_OWN_SPACE:
        return is_sparse && c->expert_hidden_size > 0;
    case PRESENT_IF_SHARED:
        return is_sparse && c->shared_intermediate_size > 0;
    case PRESENT_BEHIND_FIRST:
        return layer > 0;
    case PRESENT_IF_ATTENTION:
        return model_config_has_attention(c, layer);
    case PRESENT_IF_REPLACED:
        return bit_set_has(c->replaced_layers, (size_t)layer);
    case PRESENT_IF_MIXED:
        return model_config_is_mixed(c, layer);
    case PRESENT_IF_WINDOW:
        return model_config_layer(c, layer).sliding_window > 0;
    case PRESENT_IF_OWN_V:
        return !model_config_layer(c, layer).v_is_k && !model_config_layer(c, layer).shares_kv;
    case PRESENT_IF_OWN_KV:
        return !model_config_layer(c, layer).shares_kv;
    case PRESENT_IF_LAYER_EMBEDDINGS:
        return c->layer_embedding_dim > 0;
    case PRESENT_IF_STATE:
        return bit_set_has(c->stateful_layers, (size_t)layer);
    case PRESENT_IF_STATE_NORM:
        return bit_set_has(c->stateful_layers, (size_t)layer) && !c->states_have_no_norm;
    case PRESENT_IF_Q_RANK:
        return c->latent.q_rank > 0 && model_config_has_attention(c, layer);
    case PRESENT_IF_NO_Q_RANK:
        return c->latent.q_rank == 0 && model_config_has_attention(c, layer);
    case PRESENT_IF_SPLIT:
        return c->latent.is_split && model_config_has_attention(c, layer);
    case PRESENT_IF_NOT_SPLIT:
        return !c->latent.is_split && model_config_has_attention(c, layer);
    case PRESENT_IF_SHARED_WEIGHT:
        return is_sparse && c->shared_intermediate_size > 0 && c->family->has_shared_weight;
    }
    return false;
}

bool weight_is_wanted(const struct model_config *c, enum weight_presence presence, int32_t layer)
{
    return presence == PRESENT_MAYBE || presence == PRESENT_IF_QKV_BIAS || presence == PRESENT_IF_O_BIAS ||
           weight_is_required(c, presence, layer);
}
