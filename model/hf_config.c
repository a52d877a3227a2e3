#include "model/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "files/file_map.h"
#include "files/json_read.h"
#include "model/pooling_config.h"

enum { PATH_BYTES_MAX = 4096, CONFIG_BYTES_MAX = 16 << 20 };

/* text: where the text model's own fields are, whose type may be what says which family it is. */
static int find_text(struct json_reader *r, struct json_reader *text, struct model_config *c)
{
    const cJSON *own = c->family->is_in_text_config ? json_find(r, "text_config") : NULL;
    *text = *r;
    if (own) text->object = own;
    if (!c->family->is_of_text_type) return STATUS_OK;
    const char *type = own ? json_text(text, "model_type", "") : "";
    int status = family_find(NAMES_HF_TYPE, type, strlen(type), r->path, &c->family, r->err);
    if (!status && c->family->is_of_text_type)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: text_config has no text model of a known type",
                         r->path);
    return status;
}

static int find_family(struct json_reader *r, struct json_reader *text, struct model_config *c)
{
    const cJSON *list = json_find(r, "architectures");
    const char *model_type = json_text(r, "model_type", "");
    const char *class = cJSON_IsArray(list) && cJSON_IsString(list->child) ? list->child->valuestring : "";
    int status =
        class[0] ? family_find(NAMES_HF_CLASS, class, strlen(class), r->path, &c->family, r->err)
                 : family_find(NAMES_HF_TYPE, model_type, strlen(model_type), r->path, &c->family, r->err);
    if (!status) status = find_text(r, text, c);
    if (!status) snprintf(c->architecture, sizeof c->architecture, "%s", c->family->names[NAMES_HF_CLASS]);
    return status;
}

/* Of the MLP's gate, under each name that a class has for it. */
static int check_activation(struct json_reader *r, const struct family *family)
{
    static const char *const
        keys[] = {"hidden_act", "hidden_activation"},
        *const names[] = {
            [GATE_SILU] = "silu", [GATE_GELU_TANH] = "gelu_pytorch_tanh", [GATE_CLAMPED_SWISH] = "silu",
            [GATE_GELU] = "gelu", [GATE_RELU_SQUARED] = "relu2",          [GATE_XIELU] = "xielu"};
    for (size_t i = 0; i < array_length(keys); i++) {
        const char *own = names[family->gate], *act = json_text(r, keys[i], own);
        if (!strcmp(act, "swish")) act = "silu"; /* one function, two names */
        if (!strcmp(act, "gelu") && family->gate == GATE_GELU_TANH && family->norms_add_one)
            act = own; /* as Gemma's first files say */
        if (strcmp(act, own) != 0)
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s \"%s\" is not supported; \"%s\" is", r->path,
                             keys[i], printable_from(act, strlen(act)).text, own);
    }
    if (json_real(r, "swiglu_alpha", 1.702, -1e9, 1e9) != 1.702 ||
        json_real(r, "swiglu_limit", 7, -1e9, 1e9) != 7)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: swiglu_alpha or swiglu_limit is not supported; 1.702 and 7 are", r->path);
    return STATUS_OK;
}

/* Fields that change the mathematics into something that is not computed here. */
static int check_unsupported(struct json_reader *r, const struct family *family)
{
    static const char *const must_be_absent[] = {"num_local_experts", "num_experts", "clip_qkv",
                                                 "attn_logit_softcapping", "final_logit_softcapping"},
                             *const must_be_false[] = {"mlp_bias",   "bias",
                                                       "qkv_bias",   "use_bias",
                                                       "use_cla",    "use_bidirectional_attention",
                                                       "is_decoder", "add_cross_attention"};
    const bool has_biases = weight_line(family->weight_changes, WEIGHT_UP_BIAS)->presence == PRESENT_ALWAYS;
    size_t begin = family->has_experts ? 2 : 0,
           end = array_length(must_be_absent) - (family->has_softcaps ? 2 : 0);
    for (size_t i = begin; i < end; i++)
        if (json_find(r, must_be_absent[i]) && json_real(r, must_be_absent[i], 1, -1e18, 1e18) != 0)
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", r->path,
                             must_be_absent[i]);
    for (size_t i = 0; i < array_length(must_be_false); i++)
        if (json_bool(r, must_be_false[i], false) &&
            !(has_biases && (!strcmp(must_be_false[i], "use_bias") || !strcmp(must_be_false[i], "mlp_bias"))))
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", r->path,
                             must_be_false[i]);
    return check_activation(r, family);
}

/* By the name that the file has for it. */
static const char *own_key(const struct json_reader *r, const struct family *family, const char *key)
{
    static const char *const gpt2_keys[][2] = {{"hidden_size", "n_embd"},
                                               {"intermediate_size", "n_inner"},
                                               {"num_hidden_layers", "n_layer"},
                                               {"num_attention_heads", "n_head"},
                                               {"max_position_embeddings", "n_positions"}};
    for (size_t i = 0; i < array_length(gpt2_keys) && family->has_gpt2_keys; i++)
        if (!strcmp(key, gpt2_keys[i][0]) && json_find(r, gpt2_keys[i][1])) return gpt2_keys[i][1];
    return key;
}

/* fallback 0: it must be there. */
static int32_t size_of(struct json_reader *r, const char *key, int32_t fallback)
{
    return (int32_t)(fallback ? json_int(r, key, fallback, 1, INT32_MAX)
                              : json_int_required(r, key, 1, INT32_MAX));
}

static int32_t read_head_dim(struct json_reader *r, const struct model_config *c)
{
    if (c->family->head_dim) return size_of(r, "head_dim", c->family->head_dim);
    if (!json_find(r, "head_dim") && c->hidden_size % c->num_heads && !r->status)
        r->status = error_set(r->err, STATUS_INVALID,
                              "%s: head_dim is missing, and hidden_size %d is no multiple of "
                              "num_attention_heads %d",
                              r->path, c->hidden_size, c->num_heads);
    return (int32_t)json_int(r, "head_dim", c->hidden_size / c->num_heads, 1, INT32_MAX);
}

static void read_shape(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    c->hidden_size = size_of(r, own_key(r, family, "hidden_size"), 0);
    c->intermediate_size = size_of(r, own_key(r, family, "intermediate_size"),
                                   family->delta_kind == DELTA_CONVOLUTION ? 12288 : 0);
    c->num_layers = size_of(r, own_key(r, family, "num_hidden_layers"), 0);
    c->num_heads = size_of(r, own_key(r, family, "num_attention_heads"), family->num_heads);
    c->vocab_size = size_of(r, "vocab_size", family->vocab_size);
    c->num_kv_heads = size_of(r, "num_key_value_heads",
                              family->kv_heads_may_be_missing ? c->num_heads : family->num_kv_heads);
    assert_debug(c->num_heads > 0); /* also after a problem */
    c->head_dim = read_head_dim(r, c);
    c->max_position_embeddings =
        size_of(r, own_key(r, family, "max_position_embeddings"), family->max_position_embeddings);
    c->rms_norm_eps =
        (float)json_real(r, "rms_norm_eps", family->norm_eps > 0 ? family->norm_eps : 1e-6, 0, 1);
    c->tie_word_embeddings = json_bool(r, "tie_word_embeddings", family->is_tied);
    bool attention_bias = json_bool(r, "attention_bias", family->attention_bias);
    c->qkv_bias = family->qkv_bias || attention_bias;
    c->o_bias = attention_bias && !family->no_o_bias;
    c->norm_offset = family->norms_add_one ? 1 : 0;
}

/* How sentence-transformers makes a score of what the head gives: by its sigmoid unless the file says otherwise. */
static int read_activation(struct json_reader *r, struct model_config *c)
{
    struct json_reader own = *r;
    own.object = json_find(r, "sentence_transformers");
    const char *old = json_text(r, "sbert_ce_default_activation_function", ""),
               *name = json_text(&own, "activation_fn", old), *last = strrchr(name, '.');
    last = last ? last + 1 : name;
    c->scores_are_plain = !strcmp(last, "Identity");
    if (own.status) r->status = own.status;
    if (c->scores_are_plain || !name[0] || !strcmp(last, "Sigmoid")) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: scores by the function \"%s\" are not supported; Sigmoid and Identity are", r->path,
                     printable_from(name, strlen(name)).text);
}

/* Of a class whose head has a norm: what it gets of a text, and what it does with that. */
static int read_head(struct json_reader *r, struct model_config *c)
{
    const char *pooling = json_text(r, "classifier_pooling", "cls"),
               *activation = json_text(r, "classifier_activation", "gelu");
    if (!weight_may_be(c->family->weight_changes, WEIGHT_HEAD_NORM)) return STATUS_OK;
    if (!strcmp(pooling, "mean")) c->score_pooling = POOLING_MEAN;
    if (strcmp(pooling, "mean") != 0 && strcmp(pooling, "cls") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: classifier_pooling \"%s\" is not supported; \"cls\" and \"mean\" are", r->path,
                         printable_from(pooling, strlen(pooling)).text);
    if (!strcmp(activation, "gelu")) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: classifier_activation \"%s\" is not supported; \"gelu\" is", r->path,
                     printable_from(activation, strlen(activation)).text);
}

/* A class with a head has two labels where nothing is said. */
static int read_score_head(struct json_reader *r, struct model_config *c)
{
    const cJSON *labels = json_find(r, "id2label");
    int64_t num_labels = json_int(r, "num_labels", 2, 0, INT32_MAX);
    if (!c->family->scores_pairs) return r->status;
    if (cJSON_IsObject(labels)) num_labels = cJSON_GetArraySize(labels);
    if (num_labels != 1)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: a head of %d labels is not supported; one of 1 is, which scores pairs of texts",
                         r->path, (int)num_labels);
    c->has_second_type = c->num_type_rows > 1 && !c->family->positions_follow_padding;
    int status = read_head(r, c);
    return status ? status : read_activation(r, c);
}

/* Of encoders and of decoders, under each name that a class has for it. */
static void read_norm_eps(struct json_reader *r, struct model_config *c)
{
    static const char *const keys[] = {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon",
                                       "norm_eps"};
    c->rms_norm_eps = (float)c->family->norm_eps;
    for (size_t i = 0; i < array_length(keys); i++)
        c->rms_norm_eps = (float)json_real(r, keys[i], (double)c->rms_norm_eps, 0, 1);
}

/* What belongs to the keys of GPT-2's kind. Where the rotation is to be stretched beyond the length that the model was made for,
 * by how long each text is, that length is the longest. */
static int read_gpt2_keys(struct json_reader *r, struct model_config *c)
{
    const char *activation = json_text(r, "activation_function", "swiglu");
    const int64_t made_for = json_int(r, "max_trained_positions", INT32_MAX, 1, INT32_MAX),
                  multiple = json_int(r, "pad_vocab_size_multiple", 1, 1, 1 << 20);
    if (!c->family->has_gpt2_keys) return STATUS_OK;
    if (json_find(r, "rotary_scaling_factor"))
        c->max_position_embeddings = (int32_t)min_of(made_for, (int64_t)c->max_position_embeddings);
    c->vocab_size = (int32_t)min_of(div_up(c->vocab_size, multiple) * multiple, (int64_t)INT32_MAX);
    if (json_real(r, "rotary_emb_fraction", 1, 0, 1e9) != 1 || json_find(r, "rotary_emb_scale_base"))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: rotary_emb_fraction or rotary_emb_scale_base is set, which is not supported",
                         r->path);
    if (!strcmp(activation, "swiglu")) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: activation_function \"%s\" is not supported; \"swiglu\" is", r->path,
                     printable_from(activation, strlen(activation)).text);
}

/* What only encoders have. */
static int read_encoder(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_false[] = {"norm_bias",
                                                "attention_bias",
                                                "prenorm",
                                                "parallel_block",
                                                "rotary_emb_interleaved",
                                                "qkv_proj_bias",
                                                "mlp_fc1_bias",
                                                "mlp_fc2_bias",
                                                "use_rms_norm",
                                                "causal",
                                                "scale_attn_by_inverse_layer_idx",
                                                "logn_attention_scale"};
    const bool has_positions = weight_may_be(c->family->weight_changes, WEIGHT_POSITION_EMBEDDING);
    const char *own = has_positions ? "absolute" : "rope",
               *positions = json_text(r, "position_embedding_type", own),
               *norm = json_text(r, "layer_norm_type", "layer_norm");
    if (!c->family->is_encoder) return STATUS_OK;
    if (strcmp(norm, "layer_norm") != 0 || !json_bool(r, "pack_qkv", true))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: layer_norm_type or pack_qkv is not supported; \"layer_norm\" and true are",
                         r->path);
    for (size_t i = 0; i < array_length(must_be_false); i++)
        if (json_bool(r, must_be_false[i], false))
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", r->path,
                             must_be_false[i]);
    read_norm_eps(r, c);
    if (weight_may_be(c->family->weight_changes, WEIGHT_TYPE_EMBEDDING))
        c->num_type_rows = size_of(r, "type_vocab_size", 2);
    if (has_positions) c->num_position_rows = c->max_position_embeddings;
    if (c->family->positions_follow_padding) {
        c->first_position_row = (int32_t)json_int(r, "pad_token_id", 1, 0, INT32_MAX / 2) + 1;
        c->max_position_embeddings -= c->first_position_row;
    }
    if (strcmp(positions, own) != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: position_embedding_type \"%s\" is not supported; \"%s\" is", r->path,
                         printable_from(positions, strlen(positions)).text, own);
    int status = read_gpt2_keys(r, c);
    return status ? status : read_score_head(r, c);
}

/* What decoders with LayerNorm may have beside. */
static int read_layer_norm(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_false[] = {"use_qk_norm", "qk_layernorm", "use_parallel_residual"};
    if (!c->family->has_layer_norm) return r->status;
    read_norm_eps(r, c);
    for (size_t i = 0; i < array_length(must_be_false); i++)
        if (json_bool(r, must_be_false[i], false))
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", r->path,
                             must_be_false[i]);
    return r->status;
}

/* In the place of K/V heads. */
static int read_latent(struct json_reader *r, struct model_config *c)
{
    const bool has_no_q_rank = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(r->object, "q_lora_rank"));
    if (!c->family->latent_attention) return STATUS_OK;
    c->latent = (struct latent_config){.rank = size_of(r, "kv_lora_rank", 512),
                                       .q_rank = has_no_q_rank ? 0 : size_of(r, "q_lora_rank", 1536),
                                       .plain_dim = size_of(r, "qk_nope_head_dim", 128),
                                       .rotary_dim = size_of(r, "qk_rope_head_dim", 64),
                                       .value_dim = size_of(r, "v_head_dim", 128)};
    model_config_take_latent(c);
    if (c->qkv_bias)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: attention_bias is set, which is not supported",
                         r->path);
    return r->status;
}

/* The first of some keys that is there; 0: none is. */
static int32_t int_of_first(struct json_reader *r, const char *const *keys, int32_t num_keys)
{
    for (int32_t i = 0; i < num_keys; i++)
        if (json_find(r, keys[i])) return (int32_t)json_int(r, keys[i], 0, 0, INT32_MAX);
    return 0;
}

/* Adds the layers of a list to a bit set, or takes them away. */
static void change_layers(const cJSON *list, uint64_t *layers, bool add)
{
    const cJSON *item;
    int64_t layer;
    cJSON_ArrayForEach(item, list)
    {
        if (!json_is_int(item, &layer) || layer < 0 || layer >= LAYERS_MAX) continue;
        if (add)
            bit_set_add(layers, (size_t)layer);
        else
            bit_set_remove(layers, (size_t)layer);
    }
}

/* Which layers have experts: those of a list, or all but the first ones, every so many, and not those of another list. */
static void read_sparse_layers(struct json_reader *r, struct model_config *c)
{
    const cJSON *sparse = json_find(r, "moe_layers");
    static const char *const names_of_first[] = {"first_k_dense_replace", "moe_layer_start_index",
                                                 "num_dense_layers"},
                             *const names_of_step[] = {"decoder_sparse_step", "interleave_moe_layer_step",
                                                       "moe_layer_interval"};
    int64_t first = int_of_first(r, names_of_first, array_length(names_of_first)),
            step = max_of(int_of_first(r, names_of_step, array_length(names_of_step)), 1),
            last = json_int(r, "moe_layer_end_index", -1, -1, INT32_MAX);
    change_layers(sparse, c->sparse_layers, true);
    for (int64_t i = first; i < min_of(c->num_layers, LAYERS_MAX) && !sparse; i++)
        if ((i + 1) % step == 0 && (last < 0 || i <= last)) bit_set_add(c->sparse_layers, (size_t)i);
    change_layers(json_find(r, "mlp_only_layers"), c->sparse_layers, false);
}

/* Groups of experts, and how a model says that it chooses. */
static int read_choice(struct json_reader *r, struct model_config *c)
{
    const bool is_sigmoid = c->router_scores == ROUTER_SIGMOID;
    const char *scores = is_sigmoid ? "sigmoid" : "softmax",
               *method = is_sigmoid ? "noaux_tc" : "group_limited_greedy",
               *own_scores = json_text(r, "scoring_func", scores),
               *own_method = json_text(r, "topk_method", is_sigmoid ? method : "greedy");
    const bool has_groups = !strcmp(own_method, method);
    if (strcmp(own_scores, scores) != 0 || (!has_groups && (is_sigmoid || strcmp(own_method, "greedy") != 0)))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: experts chosen by scoring_func \"%s\" and topk_method \"%s\" are not supported",
                         r->path, printable_from(own_scores, strlen(own_scores)).text,
                         printable_from(own_method, strlen(own_method)).text);
    if (json_int(r, "moe_layer_freq", 1, 1, INT32_MAX) != 1)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: moe_layer_freq is set, which is not supported",
                         r->path);
    if (!has_groups) return r->status;
    c->num_expert_groups = size_of(r, "n_group", 1);
    c->num_chosen_expert_groups = size_of(r, "topk_group", 1);
    return r->status;
}

/* Phi-3.5-MoE's. */
static int read_sparse_mixer(struct json_reader *r, struct model_config *c)
{
    c->router_near = (float)(2 * json_real(r, "router_jitter_noise", 0.01, 0, 1e9));
    if (c->num_chosen_experts == 0) c->num_chosen_experts = 2;
    if (c->num_chosen_experts == 2) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED, "%s: num_experts_per_tok is not supported unless it is 2",
                     r->path);
}

static int read_experts(struct json_reader *r, struct model_config *c)
{
    static const char *const names_of_number[] = {"num_experts", "num_local_experts", "n_routed_experts",
                                                  "moe_num_experts"},
                             *const names_of_chosen[] = {"num_experts_per_tok", "moe_k"},
                             *const names_of_shared[] = {"n_shared_experts", "moe_num_shared_experts"},
                             *const names_of_width[] = {"shared_expert_intermediate_size",
                                                        "shared_intermediate_size"};
    if (!c->family->has_experts) return STATUS_OK;
    c->num_experts = int_of_first(r, names_of_number, array_length(names_of_number));
    if (c->num_experts == 0 && c->family->experts_may_be_none && json_find(r, "num_local_experts")) {
        c->intermediate_size = size_of(r, "shared_intermediate_size", 1024);
        return r->status;
    }
    if (c->num_experts == 0)
        return error_set(r->err, STATUS_INVALID, "%s: the number of experts is missing", r->path);
    c->num_chosen_experts = int_of_first(r, names_of_chosen, array_length(names_of_chosen));
    c->expert_intermediate_size = size_of(r, "moe_intermediate_size", c->intermediate_size);
    int64_t num_shared = min_of(int_of_first(r, names_of_shared, array_length(names_of_shared)), 1024),
            shared = int_of_first(r, names_of_width, array_length(names_of_width));
    if (shared == 0) shared = num_shared * c->expert_intermediate_size;
    c->shared_intermediate_size = (int32_t)min_of(shared, (int64_t)INT32_MAX);
    if (c->family->has_dense_size) {
        c->shared_intermediate_size = c->expert_intermediate_size;
        c->intermediate_size = size_of(r, "intermediate_size_mlp", 16384);
    }
    c->router_normalizes = json_bool(r, "norm_topk_prob", c->family->router_normalizes);
    c->router_scale = (float)json_real(r, "routed_scaling_factor", 1, 0, 1e9);
    c->router_scores = c->family->router_scores;
    c->has_router_bias = c->family->has_router_bias && json_bool(r, "use_expert_bias", true);
    read_sparse_layers(r, c);
    return c->router_scores == ROUTER_SPARSE ? read_sparse_mixer(r, c) : read_choice(r, c);
}

/* null is none. */
static float read_softcap(struct json_reader *r, const char *key, double fallback)
{
    bool is_null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(r->object, key));
    return is_null ? 0 : (float)json_real(r, key, fallback, 0, 1e9);
}

static void read_multipliers(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    if (family->has_query_scalar)
        c->attention_scale =
            (float)(1 / sqrt(json_real(r, "query_pre_attn_scalar", family->query_scalar, 1e-6, 1e9)));
    if (family->has_softcaps) {
        c->attention_softcap = read_softcap(r, "attn_logit_softcapping", 50);
        c->logit_softcap = read_softcap(r, "final_logit_softcapping", 30);
    }
    if (family->has_logit_scale) c->logit_scale = (float)json_real(r, "logit_scale", 0.0625, 1e-9, 1e9);
    if (!family->has_multipliers) return;
    c->attention_scale = (float)json_real(r, "attention_multiplier", 1, 1e-9, 1e9);
    c->embedding_scale = (float)json_real(r, "embedding_multiplier", 1, 1e-9, 1e9);
    c->residual_scale = (float)json_real(r, "residual_multiplier", 1, 1e-9, 1e9);
    c->logit_scale = (float)(1 / json_real(r, "logits_scaling", 1, 1e-9, 1e9));
}

/* ---- which layers have a sliding window, and which do not rotate ---- */

/* Fills in windowed_layers. Chunks and windows are one field of the model's. */
static int read_layer_types(struct json_reader *r, const cJSON *types, struct model_config *c)
{
    const char *windowed = c->family->has_chunks ? "chunked_attention" : "sliding_attention";
    const cJSON *type;
    size_t layer = 0;
    if (cJSON_GetArraySize(types) != c->num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: layer_types has %d entries for %d layers", r->path,
                         cJSON_GetArraySize(types), c->num_layers);
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        if (!strcmp(text, windowed) && layer < LAYERS_MAX)
            bit_set_add(c->windowed_layers, layer);
        else if (strcmp(text, "full_attention") != 0)
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: layer_types has \"%s\"; \"full_attention\" and \"%s\" are supported",
                             r->path, printable_from(text, strlen(text)).text, windowed);
        layer++;
    }
    return STATUS_OK;
}

/* 0: there is none, whatever the layers. */
static int32_t read_window(struct json_reader *r, const struct family *family)
{
    bool is_null = cJSON_GetObjectItemCaseSensitive(r->object, "sliding_window");
    if (family->window == WINDOW_LOCAL)
        return (int32_t)json_int(r, "local_attention", 128, 0, INT32_MAX) / 2 + 1;
    int fallback = family->window == WINDOW_DEFAULT_4096 && !is_null ? 4096 : 0;
    int32_t window = (int32_t)json_int(r, "sliding_window", fallback, 0, INT32_MAX);
    bool is_used = family->window == WINDOW_IF_USED ? json_bool(r, "use_sliding_window", false)
                                                    : family->window != WINDOW_NEVER;
    return is_used ? window : 0;
}

/* Which layers have a state in the place of K and V, and its shape. */
static int read_states(struct json_reader *r, struct model_config *c)
{
    const cJSON *types = json_find(r, "layer_types"), *type;
    int64_t layer = 0, interval = c->family->full_attention_interval;
    if (interval == 0) return STATUS_OK;
    interval = json_int(r, "full_attention_interval", interval, 1, INT32_MAX);
    if (types && cJSON_GetArraySize(types) != c->num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: layer_types has %d entries for %d layers", r->path,
                         cJSON_GetArraySize(types), c->num_layers);
    if (!types) model_config_add_layers(c->stateful_layers, c->num_layers, (int32_t)interval);
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        if (!strcmp(text, "linear_attention") && layer < LAYERS_MAX)
            bit_set_add(c->stateful_layers, (size_t)layer);
        else if (strcmp(text, "full_attention") != 0)
            return error_set(
                r->err, STATUS_UNSUPPORTED,
                "%s: layer_types has \"%s\"; \"full_attention\" and \"linear_attention\" are supported",
                r->path, printable_from(text, strlen(text)).text);
        layer++;
    }
    c->delta_k_heads = size_of(r, "linear_num_key_heads", 16);
    c->delta_v_heads = size_of(r, "linear_num_value_heads", 32);
    c->delta_k_dim = size_of(r, "linear_key_head_dim", 128);
    c->delta_v_dim = size_of(r, "linear_value_head_dim", 128);
    if (json_int(r, "linear_conv_kernel_dim", DELTA_TAPS, 1, INT32_MAX) != DELTA_TAPS)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: linear_conv_kernel_dim is not supported unless it is %d", r->path, DELTA_TAPS);
    if (!json_bool(r, "attn_output_gate", true))
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: attn_output_gate is false, which is not supported",
                         r->path);
    return r->status;
}

/* LFM2's MLPs are narrower than intermediate_size says, unless block_auto_adjust_ff_dim is false. */
static void read_lfm2_width(struct json_reader *r, struct model_config *c)
{
    const int64_t multiple = json_int(r, "block_multiple_of", 256, 1, INT32_MAX);
    const double factor = json_real(r, "block_ffn_dim_multiplier", 1, 0, 1e6);
    const int64_t given = json_int(r, "block_ff_dim", c->intermediate_size, 1, INT32_MAX),
                  scaled = (int64_t)(factor * (double)(int64_t)(2 * (double)given / 3)),
                  whole = (scaled + multiple - 1) / multiple * multiple,
                  width = json_bool(r, "block_auto_adjust_ff_dim", true) ? whole : given;
    c->intermediate_size = (int32_t)min_of(width, (int64_t)INT32_MAX);
}

static bool is_in_list(const cJSON *list, int64_t value)
{
    const cJSON *item;
    int64_t own;
    cJSON_ArrayForEach(item, list) if (json_is_int(item, &own) && own == value) return true;
    return false;
}

/* Which layers have one in the place of attention: layer_types, or full_attn_idxs, name them. */
static int read_short_convolutions(struct json_reader *r, struct model_config *c)
{
    const cJSON *types = json_find(r, "layer_types"), *full = json_find(r, "full_attn_idxs");
    if (c->family->delta_kind != DELTA_CONVOLUTION) return STATUS_OK;
    if (types && cJSON_GetArraySize(types) != c->num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: layer_types has %d entries for %d layers", r->path,
                         cJSON_GetArraySize(types), c->num_layers);
    for (int32_t i = 0; i < min_of(c->num_layers, LAYERS_MAX) && (types || full); i++) {
        const cJSON *type = cJSON_GetArrayItem(types, i);
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        const bool is_conv = types ? !strcmp(text, "conv") : !is_in_list(full, i);
        if (is_conv)
            bit_set_add(c->stateful_layers, (size_t)i);
        else if (types && strcmp(text, "full_attention") != 0)
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: layer_types has \"%s\"; \"full_attention\" and \"conv\" are supported",
                             r->path, printable_from(text, strlen(text)).text);
    }
    if (!c->family->has_experts) read_lfm2_width(r, c);
    c->rms_norm_eps = (float)json_real(r, "norm_eps", c->family->norm_eps, 0, 1);
    c->tie_word_embeddings = json_bool(r, "tie_embedding", c->tie_word_embeddings);
    c->delta_v_heads = 1;
    c->delta_v_dim = c->hidden_size;
    if (json_int(r, "conv_L_cache", SHORT_TAPS, 1, INT32_MAX) != SHORT_TAPS)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: conv_L_cache is not supported unless it is %d",
                         r->path, SHORT_TAPS);
    if (json_bool(r, "conv_bias", false))
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: conv_bias is set, which is not supported", r->path);
    return r->status;
}

/* Granite 4: of a layer with a state, its shape. */
static int read_state_space_shape(struct json_reader *r, struct model_config *c)
{
    const cJSON *head = json_find(r, "mamba_d_head");
    const int64_t width = json_int(r, "mamba_expand", 2, 1, 1024) * c->hidden_size;
    c->delta_v_heads = size_of(r, "mamba_n_heads", 128);
    c->delta_k_heads = size_of(r, "mamba_n_groups", 1);
    c->delta_k_dim = size_of(r, "mamba_d_state", 256);
    if (r->status) return r->status;
    const bool is_auto = !head || (cJSON_IsString(head) && !strcmp(head->valuestring, "auto"));
    c->delta_v_dim = is_auto ? (int32_t)(width / c->delta_v_heads) : size_of(r, "mamba_d_head", 0);
    if (model_config_delta_width(c) != width)
        return error_set(r->err, STATUS_INVALID,
                         "%s: mamba_n_heads and mamba_d_head are not mamba_expand times hidden_size",
                         r->path);
    if (json_int(r, "mamba_d_conv", DELTA_TAPS, 1, INT32_MAX) != DELTA_TAPS)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: mamba_d_conv is not supported unless it is %d",
                         r->path, DELTA_TAPS);
    if (!json_bool(r, "mamba_conv_bias", true) || json_bool(r, "mamba_proj_bias", false))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: mamba_conv_bias must be true and mamba_proj_bias false", r->path);
    return r->status;
}

/* Which layers have one: layer_types name them. Those with attention rotate all, or none. */
static int read_state_spaces(struct json_reader *r, struct model_config *c)
{
    const cJSON *types = json_find(r, "layer_types");
    if (c->family->delta_kind != DELTA_STATE_SPACE) return STATUS_OK;
    const char *positions = json_text(r, "position_embedding_type", "nope");
    if (cJSON_GetArraySize(types) != c->num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: layer_types has %d entries for %d layers", r->path,
                         cJSON_GetArraySize(types), c->num_layers);
    for (int32_t i = 0; i < min_of(c->num_layers, LAYERS_MAX); i++) {
        const cJSON *type = cJSON_GetArrayItem(types, i);
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        if (strcmp(positions, "rope") != 0) bit_set_add(c->unrotated_layers, (size_t)i);
        if (!strcmp(text, "mamba") || !strcmp(text, "linear_attention"))
            bit_set_add(c->stateful_layers, (size_t)i);
        else if (strcmp(text, "attention") != 0 && strcmp(text, "full_attention") != 0)
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: layer_types has \"%s\"; \"attention\" and \"mamba\" are supported", r->path,
                             printable_from(text, strlen(text)).text);
    }
    if (strcmp(positions, "rope") != 0 && strcmp(positions, "nope") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: position_embedding_type \"%s\" is not supported; \"rope\" and \"nope\" are",
                         r->path, printable_from(positions, strlen(positions)).text);
    return model_config_has_states(c) ? read_state_space_shape(r, c) : r->status;
}

/* unrotated_layers are known. */
static int read_chunks(struct json_reader *r, struct model_config *c)
{
    const cJSON *types = json_find(r, "layer_types");
    bool is_null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(r->object, "attention_chunk_size"));
    c->sliding_window = (int32_t)json_int(r, "attention_chunk_size", is_null ? 0 : 8192, 0, INT32_MAX);
    c->windows_are_chunks = c->sliding_window > 0;
    if (!c->windows_are_chunks) return r->status;
    if (types) return read_layer_types(r, types, c);
    for (int32_t i = 0; i < min_of(c->num_layers, LAYERS_MAX); i++)
        if (!bit_set_has(c->unrotated_layers, (size_t)i)) bit_set_add(c->windowed_layers, (size_t)i);
    return r->status;
}

static int read_sliding_window(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    const cJSON *types = json_find(r, "layer_types");
    c->sliding_window = read_window(r, family);
    if (c->sliding_window == 0) return r->status;
    if (types) return read_layer_types(r, types, c);
    const char *key =
        family->window == WINDOW_LOCAL ? "global_attn_every_n_layers" : "sliding_window_pattern";
    int32_t period =
        family->full_layer_period ? (int32_t)json_int(r, key, family->full_layer_period, 1, INT32_MAX) : 0;
    model_config_add_layers(c->windowed_layers, c->num_layers, family->full_layer_leads ? 0 : period);
    for (int64_t i = 0; i < min_of(c->num_layers, LAYERS_MAX) && family->full_layer_leads; i += period)
        bit_set_remove(c->windowed_layers, (size_t)i);
    int64_t first = family->window == WINDOW_IF_USED ? json_int(r, "max_window_layers", 28, 0, INT32_MAX) : 0;
    for (int64_t i = 0; i < min_of(first, (int64_t)LAYERS_MAX); i++)
        bit_set_remove(c->windowed_layers, (size_t)i);
    return r->status;
}

/* A list with 1 for each layer that rotates, or every so many one that does not. */
static int read_unrotated_layers(struct json_reader *r, struct model_config *c)
{
    const cJSON *list = json_find(r, "no_rope_layers"), *item;
    if (cJSON_IsArray(list) && !list->child) list = NULL; /* an empty one says nothing */
    size_t layer = 0;
    if (!c->family->unrotated_layer_period) {
        if (!list) return STATUS_OK;
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: no_rope_layers is set, which is not supported",
                         r->path);
    }
    if (json_bool(r, "use_sliding_window", false))
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: use_sliding_window is set, which is not supported",
                         r->path);
    if (!list) {
        int64_t period =
            json_int(r, "no_rope_layer_interval", c->family->unrotated_layer_period, 1, INT32_MAX);
        for (int64_t i = period - 1; i < min_of(c->num_layers, LAYERS_MAX); i += period)
            bit_set_add(c->unrotated_layers, (size_t)i);
        return r->status;
    }
    if (cJSON_GetArraySize(list) < c->num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: no_rope_layers has %d entries for %d layers", r->path,
                         cJSON_GetArraySize(list), c->num_layers);
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsNumber(item) && item->valuedouble == 0 && layer < LAYERS_MAX)
            bit_set_add(c->unrotated_layers, layer);
        layer++;
    }
    return STATUS_OK;
}

/* Older files have a number for true. */
static void read_temperature(struct json_reader *r, struct model_config *c)
{
    const cJSON *item = json_find(r, "attn_temperature_tuning");
    if (!c->family->has_temperature) return;
    bool is_on =
        cJSON_IsNumber(item) ? item->valuedouble != 0 : json_bool(r, "attn_temperature_tuning", true);
    if (!is_on) return;
    c->temperature_scale = (float)json_real(r, "attn_scale", 0.1, -1e6, 1e6);
    c->temperature_floor = (int32_t)json_int(r, "floor_scale", 8192, 1, INT32_MAX);
}

/* ---- rotation ---- */

static int find_rope_type(struct json_reader *r, bool has_ntk, enum rope_type *type)
{
    static const struct {
        const char *name;
        enum rope_type type;
    } names[] =
        {
            {"default", ROPE_DEFAULT}, {"linear", ROPE_LINEAR},     {"llama3", ROPE_LLAMA3},
            {"yarn", ROPE_YARN},       {"longrope", ROPE_LONGROPE}, {"su", ROPE_LONGROPE},
            {"dynamic", ROPE_DEFAULT}, /* it differs beyond max_position_embeddings only */
            {"mrope", ROPE_DEFAULT},   /* it differs for images only */
        };
    const char *text = json_text(r, "rope_type", json_text(r, "type", "default"));
    if (has_ntk && !strcmp(text, "ntk")) text = "linear"; /* take_ntk */
    for (size_t i = 0; i < array_length(names); i++) {
        if (strcmp(names[i].name, text) != 0) continue;
        *type = names[i].type;
        return STATUS_OK;
    }
    return error_set(
        r->err, STATUS_UNSUPPORTED,
        "%s: the rotation type \"%s\" is not supported; default, dynamic, linear, llama3, longrope "
        "and yarn are",
        r->path, printable_from(text, strlen(text)).text);
}

static double yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static void read_yarn(struct json_reader *r, struct rope_config *rope)
{
    double mscale = json_real(r, "mscale", 0, 0, 1e9),
           mscale_all_dim = json_real(r, "mscale_all_dim", 0, 0, 1e9);
    double fallback = yarn_mscale(rope->factor, 1);
    if (mscale != 0 && mscale_all_dim != 0)
        fallback = yarn_mscale(rope->factor, mscale) / yarn_mscale(rope->factor, mscale_all_dim);
    rope->score_factor = mscale_all_dim == 0 ? 1 : pow(yarn_mscale(rope->factor, mscale_all_dim), 2);
    rope->attention_factor = json_real(r, "attention_factor", fallback, 0, 1e9);
    rope->beta_fast = json_real(r, "beta_fast", 32, 0, 1e9);
    rope->beta_slow = json_real(r, "beta_slow", 1, 0, 1e9);
    if (rope->beta_fast == 0) rope->beta_fast = 32; /* transformers takes 0 for "not given" */
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    rope->yarn_keep_fractions = !json_bool(r, "truncate", true);
}

static int read_factors(struct json_reader *r, const char *key, const struct rope_config *rope,
                        float *factors)
{
    const cJSON *list = json_find(r, key), *item;
    int i = 0;
    if (cJSON_GetArraySize(list) != rope->rotary_dim / 2 || rope->rotary_dim / 2 > ROTATIONS_MAX)
        return error_set(r->err, STATUS_INVALID, "%s: %s has %d entries; %d values of a head are rotated",
                         r->path, key, cJSON_GetArraySize(list), rope->rotary_dim);
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item) || !(item->valuedouble > 0) || item->valuedouble > 1e9)
            return error_set(r->err, STATUS_INVALID, "%s: %s has an entry that is no positive number",
                             r->path, key);
        factors[i++] = (float)item->valuedouble;
    }
    return STATUS_OK;
}

/* root: the model's own fields, where older files have what belongs to the rotation. */
static int read_longrope(struct json_reader *r, struct json_reader *root, const struct model_config *c,
                         struct rope_config *rope)
{
    int64_t original =
        json_int(root, "original_max_position_embeddings", c->max_position_embeddings, 2, INT32_MAX);
    rope->original_max_position =
        (int32_t)json_int(r, "original_max_position_embeddings", original, 2, INT32_MAX);
    double stretch = (double)c->max_position_embeddings / rope->original_max_position,
           factor = json_real(r, "factor", stretch, 0, 1e9),
           fallback = factor > 1 ? sqrt(1 + log(factor) / log(rope->original_max_position)) : 1;
    rope->factor = 1; /* what is stretched is in the lists */
    fallback = json_real(r, "attention_factor", fallback, 0, 1e9);
    rope->attention_factor = json_real(r, "long_mscale", fallback, 0, 1e9);
    rope->short_attention_factor = json_real(r, "short_mscale", fallback, 0, 1e9);
    int status = read_factors(r, "long_factor", rope, rope->long_factors);
    if (!status) status = read_factors(r, "short_factor", rope, rope->short_factors);
    return status ? status : r->status;
}

/* Of families that have_ntk, which have no other scaling but one of every frequency alike. */
static int take_ntk(struct json_reader *r, struct rope_config *rope)
{
    const char *type = json_text(r, "rope_type", json_text(r, "type", "default"));
    if (rope->type != ROPE_LINEAR || json_find(r, "mixed_b"))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: this rotation is not supported in this class; default, linear and ntk without "
                         "mixed_b are",
                         r->path);
    if (strcmp(type, "ntk") != 0) return r->status;
    rope->theta *= rope->factor;
    rope->factor = pow(rope->factor, 2.0 / rope->rotary_dim);
    return r->status;
}

/* r reads rope_parameters or rope_scaling. */
static int read_scaling(struct json_reader *r, struct json_reader *root, const struct model_config *c,
                        struct rope_config *rope)
{
    int status = find_rope_type(r, c->family->has_ntk, &rope->type);
    if (status || rope->type == ROPE_DEFAULT) return status ? status : r->status;
    if (rope->type == ROPE_LONGROPE) return read_longrope(r, root, c, rope);
    if (!json_find(r, "factor"))
        return error_set(r->err, STATUS_INVALID, "%s: the factor of the rotation's scaling is missing",
                         r->path);
    rope->factor = json_real(r, "factor", 1, 0, 1e9);
    if (c->family->has_ntk) return take_ntk(r, rope);
    if (rope->type == ROPE_LINEAR) return r->status;
    rope->original_max_position =
        (int32_t)json_int(r, "original_max_position_embeddings",
                          rope->type == ROPE_YARN ? c->max_position_embeddings : 0, 0, INT32_MAX);
    rope->low_freq_factor = json_real(r, "low_freq_factor", 0, 0, 1e9);
    rope->high_freq_factor = json_real(r, "high_freq_factor", 0, 0, 1e9);
    if (rope->type == ROPE_YARN) read_yarn(r, rope);
    return r->status;
}

/* rope_parameters may hold one object per type of layer. *has_types: it does. */
static const cJSON *rope_object(const struct json_reader *r, const char *layer_type, bool *has_types)
{
    const cJSON *object = json_find(r, "rope_parameters");
    *has_types = false;
    if (!object) return json_find(r, "rope_scaling");
    const cJSON *of_layers = cJSON_GetObjectItemCaseSensitive(object, layer_type);
    *has_types = cJSON_IsObject(of_layers);
    return *has_types ? of_layers : object;
}

static int read_rotary_dim(struct json_reader *r, struct json_reader *inner, const struct model_config *c,
                           int32_t *rotary_dim)
{
    *rotary_dim = c->latent.rotary_dim;
    if (c->latent.rank > 0) return STATUS_OK;
    double fallback = c->family->rotary_part > 0 ? c->family->rotary_part : 1,
           part = json_real(inner, "partial_rotary_factor",
                            json_real(r, "partial_rotary_factor", fallback, 0, 1), 0, 1);
    if (c->family->partial_rotary && json_find(r, "rotary_dim")) { /* of MiniMax's */
        *rotary_dim = (int32_t)json_int(r, "rotary_dim", 0, 0, INT32_MAX);
        return r->status;
    }
    *rotary_dim = (int32_t)(c->head_dim * part);
    if (part == 1 || c->family->partial_rotary) return STATUS_OK;
    return error_set(r->err, STATUS_UNSUPPORTED, "%s: partial_rotary_factor is set, which is not supported",
                     r->path);
}

/* Of HunYuan's, whose "dynamic" rotation is the same for all lengths. */
static void stretch_theta(struct json_reader *r, struct rope_config *rope)
{
    const double alpha = json_real(r, "alpha", 0, 0, 1e9), dim = rope->rotary_dim;
    const char *type = json_text(r, "rope_type", json_text(r, "type", "default"));
    if (alpha > 0 && dim > 2 && !strcmp(type, "dynamic")) rope->theta *= pow(alpha, dim / (dim - 2));
}

static int read_rope_of(struct json_reader *r, const struct model_config *c, const char *layer_type,
                        struct rope_config *rope)
{
    struct json_reader inner = *r;
    bool has_types;
    double theta = c->family->theta ? c->family->theta : 10000;
    *rope = (struct rope_config){.type = ROPE_DEFAULT,
                                 .style = c->family->hf_rope_style,
                                 .factor = 1,
                                 .attention_factor = 1,
                                 .score_factor = 1};
    if (c->latent.rank > 0 && !json_bool(r, "rope_interleave", true)) rope->style = ROPE_HALVES;
    inner.object = rope_object(r, layer_type, &has_types);
    if (inner.object && !cJSON_IsObject(inner.object))
        return error_set(r->err, STATUS_INVALID, "%s: rope_parameters or rope_scaling should be an object",
                         r->path);
    if (c->family->is_encoder)
        theta =
            json_real(r, c->family->has_gpt2_keys ? "rotary_emb_base" : "global_rope_theta", theta, 0, 1e18);
    rope->theta = json_real(&inner, "rope_theta", json_real(r, "rope_theta", theta, 0, 1e18), 0, 1e18);
    int status = read_rotary_dim(r, &inner, c, &rope->rotary_dim);
    if (!status) status = read_scaling(&inner, r, c, rope);
    if (c->family->scales_theta) stretch_theta(&inner, rope);
    return status ? status : inner.status;
}

/* Of layers with a window, where they do not rotate as all others do: older files have their theta and no more. */
static int read_window_rope(struct json_reader *r, struct model_config *c)
{
    bool has_types;
    (void)rope_object(r, "sliding_attention", &has_types);
    if (has_types) return read_rope_of(r, c, "sliding_attention", &c->window_rope);
    c->window_rope = (struct rope_config){.type = ROPE_DEFAULT,
                                          .style = ROPE_HALVES,
                                          .factor = 1,
                                          .attention_factor = 1,
                                          .rotary_dim = c->rope.rotary_dim};
    c->window_rope.theta = json_real(r, c->family->is_encoder ? "local_rope_theta" : "rope_local_base_freq",
                                     c->family->window_theta, 0, 1e18);
    return r->status;
}

/* Of all layers, among the rotation's fields. */
static int read_query_scaling(struct json_reader *r, struct model_config *c)
{
    struct json_reader inner = *r;
    bool has_types;
    if (!c->family->scales_queries) return STATUS_OK;
    inner.object = rope_object(r, "full_attention", &has_types);
    c->temperature_scale = (float)json_real(&inner, "llama_4_scaling_beta", 0, -1e6, 1e6);
    if (c->temperature_scale == 0) return inner.status;
    c->temperature_floor = c->rope.original_max_position;
    if (c->temperature_floor > 0) return inner.status;
    return error_set(r->err, STATUS_INVALID,
                     "%s: llama_4_scaling_beta is given without original_max_position_embeddings", r->path);
}

static int read_rope(struct json_reader *r, struct model_config *c)
{
    bool all_windowed = c->sliding_window && c->family->window_theta == 0;
    int status = read_rope_of(r, c, all_windowed ? "sliding_attention" : "full_attention", &c->rope);
    if (c->latent.rank > 0) c->attention_scale *= (float)c->rope.score_factor;
    if (!status && c->family->qk_norm_of_ones && c->qk_norm && c->rope.attention_factor != 1)
        return error_set(
            r->err, STATUS_UNSUPPORTED,
            "%s: a norm behind a rotation that changes lengths (yarn, longrope) is not supported", r->path);
    if (!status) status = read_query_scaling(r, c);
    return status || c->family->window_theta == 0 ? status : read_window_rope(r, c);
}

/* ---- tokens and defaults ---- */

/* An integer or a list of integers. */
static void add_eos_ids(struct json_reader *r, struct model_config *c)
{
    const cJSON *item = json_find(r, "eos_token_id"), *one;
    int64_t id;
    if (json_is_int(item, &id)) model_config_add_eos(c, id);
    cJSON_ArrayForEach(one, item) if (json_is_int(one, &id)) model_config_add_eos(c, id);
}

static int32_t read_bos_id(struct json_reader *r, const struct model_config *c)
{
    const cJSON *item = json_find(r, "bos_token_id");
    int64_t id;
    if (cJSON_IsArray(item)) item = item->child;
    return json_is_int(item, &id) && id >= 0 && id < c->vocab_size ? (int32_t)id : -1;
}

static int read_generation_config(const char *directory, struct model_config *c,
                                  struct generation_defaults *d, struct error *err)
{
    char path[PATH_BYTES_MAX];
    cJSON *root = NULL;
    snprintf(path, sizeof path, "%s/generation_config.json", directory);
    int status = json_file_read(path, CONFIG_BYTES_MAX, &root, err);
    if (status == STATUS_NOT_FOUND) return STATUS_OK;
    if (status) return status;
    struct json_reader r = {.object = root, .path = path, .err = err};
    add_eos_ids(&r, c);
    d->temperature = (float)json_real(&r, "temperature", -1, 0, 1e6);
    d->top_p = (float)json_real(&r, "top_p", -1, 0, 1);
    if (d->top_p == 0) d->top_p = 1e-6f; /* keeps the most likely token, as 0 does; requests have (0, 1] */
    d->min_p = (float)json_real(&r, "min_p", -1, 0, 1);
    d->repetition_penalty = (float)json_real(&r, "repetition_penalty", -1, 1e-3, 1e6);
    d->top_k = (int32_t)json_int(&r, "top_k", -1, -1, INT32_MAX);
    d->max_new_tokens = (int32_t)json_int(&r, "max_new_tokens", -1, 0, INT32_MAX);
    cJSON_Delete(root);
    return r.status;
}

static int read_text_config(struct json_reader *r, struct model_config *c)
{
    int status = check_unsupported(r, c->family);
    if (status) return status;
    read_shape(r, c);
    read_multipliers(r, c);
    if (r->status) return r->status;
    status = read_encoder(r, c);
    if (!status) status = read_layer_norm(r, c);
    if (!status) status = read_latent(r, c);
    if (status) return status;
    model_config_take_family(c);
    if (c->family->qk_norm_may_be || c->family->qk_norm_of_ones)
        c->qk_norm = json_bool(r, "use_qk_norm", c->family->qk_norm_of_ones);
    status = read_experts(r, c);
    if (!status) status = read_states(r, c);
    if (!status) status = read_state_spaces(r, c);
    if (!status) status = read_short_convolutions(r, c);
    if (!status) status = read_unrotated_layers(r, c);
    if (!status) status = c->family->has_chunks ? read_chunks(r, c) : read_sliding_window(r, c);
    model_config_take_windows(c);
    read_temperature(r, c);
    if (!status) status = read_rope(r, c);
    if (!status) status = r->status;
    return status ? status : model_config_validate(c, r->path, r->err);
}

static int read_config(struct json_reader *r, struct model_config *c)
{
    if (!cJSON_IsObject(r->object))
        return error_set(r->err, STATUS_INVALID, "%s: not a JSON object", r->path);
    struct json_reader text = *r;
    int status = find_family(r, &text, c);
    if (!status) status = read_text_config(&text, c);
    if (status) return status;
    if (!json_find(&text, "tie_word_embeddings"))
        c->tie_word_embeddings = json_bool(r, "tie_word_embeddings", c->tie_word_embeddings);
    status = quantisation_read(json_find(r, "quantization_config") ? r : &text, &c->quantisation);
    if (status) return status;
    add_eos_ids(&text, c);
    add_eos_ids(r, c);
    c->bos_id = read_bos_id(&text, c);
    return STATUS_OK;
}

/* How one is made, and of how long a text. */
static void take_embedding(const char *directory, struct model_config *c)
{
    const bool is_encoder = c->family->is_encoder;
    const int64_t longest = is_encoder ? pooling_config_longest_hf(directory) : 0;
    c->pooling = pooling_config_read_hf(directory, is_encoder ? POOLING_MEAN : POOLING_LAST);
    if (longest > 0 && longest < c->max_position_embeddings) c->max_position_embeddings = (int32_t)longest;
}

int hf_config_read(const char *directory, struct model_config *config, struct generation_defaults *defaults,
                   struct error *err)
{
    char path[PATH_BYTES_MAX];
    cJSON *root = NULL;
    model_config_init(config);
    *defaults = generation_defaults_none;
    if (snprintf(path, sizeof path, "%s/config.json", directory) >= (int)sizeof path - 32)
        return error_set(err, STATUS_INVALID, "%s: the path is too long", directory);
    int status = json_file_read(path, CONFIG_BYTES_MAX, &root, err);
    if (status) return status;
    struct json_reader r = {.object = root, .path = path, .err = err};
    status = read_config(&r, config);
    cJSON_Delete(root);
    if (!status) take_embedding(directory, config);
    return status ? status : read_generation_config(directory, config, defaults, err);
}
