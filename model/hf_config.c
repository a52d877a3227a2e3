#include "model/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "files/file_map.h"
#include "files/json_read.h"
#include "model/hf_parts.h"
#include "model/pooling_config.h"

enum { PATH_BYTES_MAX = 4096, CONFIG_BYTES_MAX = 16 << 20 };

/* text: where the text model's own fields are, whose type may be what says which family it is. */
static int find_text(struct json_reader *r, struct json_reader *text, struct model_config *c)
{
    struct json_reader whole = *r;
    if (cJSON_IsObject(json_find(r, "thinker_config"))) whole.object = json_find(r, "thinker_config");
    const cJSON *own = c->family->is_in_text_config ? json_find(&whole, "text_config") : NULL;
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

/* A program saves a model of one type by the class of another that computes the same, under the names of its own type. What brings its class
 * along is that, whatever its type. */
static void take_type(struct json_reader *r, const char *model_type, struct model_config *c)
{
    const struct family *own;
    struct error none = {0};
    if (json_find(r, "auto_map") || !strcmp(c->family->names[NAMES_HF_TYPE], model_type)) return;
    if (!family_find(NAMES_HF_TYPE, model_type, strlen(model_type), r->path, &own, &none)) c->family = own;
}

static int find_family(struct json_reader *r, struct json_reader *text, struct model_config *c)
{
    const cJSON *list = json_find(r, "architectures");
    const char *model_type = json_text(r, "model_type", "");
    const char *class = cJSON_IsArray(list) && cJSON_IsString(list->child) ? list->child->valuestring : "";
    int status =
        class[0] ? family_find(NAMES_HF_CLASS, class, strlen(class), r->path, &c->family, r->err)
                 : family_find(NAMES_HF_TYPE, model_type, strlen(model_type), r->path, &c->family, r->err);
    if (!status && class[0]) take_type(r, model_type, c);
    if (!status) status = find_text(r, text, c);
    if (status) return status;
    const char *name = c->family->names[NAMES_HF_CLASS];
    snprintf(c->architecture, sizeof c->architecture, "%s", name ? name : family_name(c->family));
    return status;
}

/* Of the MLP's gate, under each name that a class has for it; of the two kinds of GELU the file says which. */
static int read_activation(struct json_reader *r, struct model_config *c)
{
    static const char *const
        keys[] = {"hidden_act", "hidden_activation", "mlp_hidden_act", "activation", "activation_function"},
        *const names[] = {
            [GATE_SILU] = "silu", [GATE_GELU_TANH] = "gelu_pytorch_tanh", [GATE_CLAMPED_SWISH] = "silu",
            [GATE_GELU] = "gelu", [GATE_RELU_SQUARED] = "relu2",          [GATE_XIELU] = "xielu",
            [GATE_RELU] = "relu"};
    const struct family *family = c->family;
    const bool is_gelu = family->gate == GATE_GELU || family->gate == GATE_GELU_TANH;
    const size_t num_keys =
        array_length(keys) - family->is_encoder; /* an encoder's last one: read_gpt2_keys */
    for (size_t i = 0; i < num_keys; i++) {
        const char *own = names[c->gate], *act = json_text(r, keys[i], own);
        if (!strcmp(act, "swish")) act = "silu"; /* one function, two names */
        if (!strcmp(act, "gelu_new") || !strcmp(act, "gelu_fast")) act = names[GATE_GELU_TANH];
        if (!strcmp(act, "gelu") && family->gate == GATE_GELU_TANH && family->norms_add_one)
            act = own; /* as Gemma's first files say */
        if (is_gelu && !strcmp(act, names[GATE_GELU])) c->gate = GATE_GELU;
        if (is_gelu && !strcmp(act, names[GATE_GELU_TANH])) c->gate = GATE_GELU_TANH;
        if (family->may_have_silu && !strcmp(act, names[GATE_SILU])) c->gate = GATE_SILU;
        own = names[c->gate];
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

int32_t hf_size(struct json_reader *r, const char *key, int32_t fallback)
{
    return (int32_t)(fallback ? json_int(r, key, fallback, 1, INT32_MAX)
                              : json_int_required(r, key, 1, INT32_MAX));
}

int hf_want_false(struct json_reader *r, const char *const *keys, size_t num_keys)
{
    for (size_t i = 0; i < num_keys; i++)
        if (json_bool(r, keys[i], false))
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", r->path,
                             keys[i]);
    return STATUS_OK;
}

/* Fields that change the mathematics into something that is not computed here. */
static int check_unsupported(struct json_reader *r, const struct model_config *c)
{
    const struct family *family = c->family;
    static const char *const must_be_absent[] = {"num_local_experts", "num_experts", "clip_qkv",
                                                 "attn_logit_softcapping", "final_logit_softcapping"},
                             *const must_be_false[] = {"mlp_bias",
                                                       "bias",
                                                       "qkv_bias",
                                                       "use_bias",
                                                       "use_cla",
                                                       "is_decoder",
                                                       "add_cross_attention",
                                                       "alibi",
                                                       "norm_head"};
    const bool has_biases = weight_line(family->weight_changes, WEIGHT_UP_BIAS)->presence == PRESENT_ALWAYS;
    size_t begin = family->has_experts ? 2 : 0,
           end = array_length(must_be_absent) - (family->has_softcaps                                  ? 2
                                                 : family->logit_softcap > 0 || family->may_cap_logits ? 1
                                                                                                       : 0);
    for (size_t i = begin; i < end; i++)
        if (!(family->may_clip_qkv && !strcmp(must_be_absent[i], "clip_qkv")) &&
            json_find(r, must_be_absent[i]) && json_real(r, must_be_absent[i], 1, -1e18, 1e18) != 0)
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", r->path,
                             must_be_absent[i]);
    for (size_t i = 0; i < array_length(must_be_false); i++)
        if (json_bool(r, must_be_false[i], false) &&
            !(has_biases && (!strcmp(must_be_false[i], "use_bias") || !strcmp(must_be_false[i], "mlp_bias") ||
                             !strcmp(must_be_false[i], "bias"))) &&
            !(family->may_have_alibi && !strcmp(must_be_false[i], "alibi")) &&
            !(family->qkv_bias && !strcmp(must_be_false[i], "qkv_bias")))
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", r->path,
                             must_be_false[i]);
    return r->status;
}

static int32_t read_head_dim(struct json_reader *r, const struct model_config *c)
{
    if (c->family->latent_attention) return 1; /* read_latent says what it is */
    if (c->family->head_dim)
        return hf_size(r, json_find(r, "attention_head_dim") ? "attention_head_dim" : "head_dim",
                       c->family->head_dim);
    if (!json_find(r, "head_dim") && c->hidden_size % c->num_heads && !r->status)
        r->status = error_set(r->err, STATUS_INVALID,
                              "%s: head_dim is missing, and hidden_size %d is no multiple of "
                              "num_attention_heads %d",
                              r->path, c->hidden_size, c->num_heads);
    return (int32_t)json_int(r, "head_dim", c->hidden_size / c->num_heads, 1, INT32_MAX);
}

/* A number, or a list with one for each layer, which must then be all the same. */
static int32_t int_of_all_layers(struct json_reader *r, const char *key, int32_t fallback)
{
    const cJSON *list = json_find(r, key), *item;
    int64_t first = 0, own;
    if (!cJSON_IsArray(list)) return (int32_t)json_int(r, key, fallback, 0, INT32_MAX);
    cJSON_ArrayForEach(item, list)
    {
        const bool is_size = json_is_int(item, &own) && own >= 0 && own <= INT32_MAX;
        if (is_size && item == list->child) first = own;
        if (r->status || (is_size && own == first)) continue;
        r->status = error_set(r->err, is_size ? STATUS_UNSUPPORTED : STATUS_INVALID,
                              is_size ? "%s: %s differs from layer to layer, which is not supported"
                                      : "%s: %s is no list of possible numbers",
                              r->path, key);
    }
    return (int32_t)first;
}

static void read_shape(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    c->hidden_size = hf_size(r, hf_own_key(r, family, "hidden_size"), 0);
    const bool has_experts_alone =
        family->has_experts && !family->has_gpt2_keys && !json_find(r, "intermediate_size");
    const char *width =
        has_experts_alone ? "moe_intermediate_size" : hf_own_key(r, family, "intermediate_size");
    const int64_t four_times = min_of(4 * (int64_t)c->hidden_size, (int64_t)INT32_MAX);
    const int32_t usual = family->has_gpt2_keys && !family->is_encoder ? (int32_t)four_times
                          : family->delta_kind == DELTA_CONVOLUTION    ? 12288
                          : family->has_layer_shapes                   ? 1
                          : family->has_states_alone                   ? 1
                                                                       : 0;
    c->intermediate_size =
        cJSON_IsArray(json_find(r, width)) ? int_of_all_layers(r, width, 0) : hf_size(r, width, usual);
    c->num_layers = hf_size(r, hf_own_key(r, family, "num_hidden_layers"), family->mlps_are_layers ? 1 : 0);
    if (!r->status) r->status = model_config_check_num_layers(c, r->path, r->err);
    c->num_heads = hf_size(r, hf_own_key(r, family, "num_attention_heads"), family->num_heads);
    c->vocab_size = hf_size(r, "vocab_size", family->vocab_size);
    c->num_kv_heads = hf_size(r, hf_own_key(r, family, "num_key_value_heads"),
                              family->kv_heads_may_be_missing ? c->num_heads : family->num_kv_heads);
    assert_debug(c->num_heads > 0); /* also after a problem */
    c->head_dim = read_head_dim(r, c);
    c->max_position_embeddings =
        hf_size(r,
                json_find(r, "max_position_embeddings") || !json_find(r, "model_max_length")
                    ? hf_own_key(r, family, "max_position_embeddings")
                    : "model_max_length",
                family->max_position_embeddings);
    c->rms_norm_eps =
        (float)json_real(r, json_find(r, "rms_norm_eps") ? "rms_norm_eps" : "layer_norm_epsilon",
                         family->norm_eps > 0 ? family->norm_eps : 1e-6, 0, 1);
    c->tie_word_embeddings = json_bool(r, "tie_word_embeddings", family->is_tied);
    bool attention_bias = json_bool(r, "attention_bias", family->attention_bias);
    c->qkv_bias = (family->qkv_bias && json_bool(r, "qkv_bias", true)) || attention_bias ||
                  json_bool(r, "use_qkv_bias", false);
    c->o_bias = attention_bias && !family->no_o_bias;
    c->norm_offset = family->norms_add_one ? 1 : 0;
    if (family->may_clip_qkv) c->qkv_clip = (float)json_real(r, "clip_qkv", 0, 0, 1e9);
    const bool has_one = family->has_multi_query && json_bool(r, "multi_query", true) &&
                         !(family->may_have_new_decoder && json_bool(r, "new_decoder_architecture", false));
    if (has_one) c->num_kv_heads = 1;
    c->qkv_by_heads = family->hf_qkv_by_heads && !has_one;
}

/* What was read of heads is of layers with a window; of the others the file has its own, or newer ones have it among what each
 * layer has, which must be all the same (hf_check_layer_heads). */
static void read_global_heads(struct json_reader *r, struct model_config *c)
{
    const cJSON *layers = json_find(r, "per_layer_config");
    struct json_reader own = *r;
    own.object = cJSON_IsObject(layers) ? layers->child : NULL;
    c->window_heads = (struct head_config){.num_kv_heads = c->num_kv_heads, .head_dim = c->head_dim};
    c->v_is_k = json_bool(r, "attention_k_eq_v", false);
    c->head_dim = own.object ? hf_size(&own, "head_dim", c->head_dim) : hf_size(r, "global_head_dim", 512);
    if (own.object)
        c->num_kv_heads = hf_size(&own, "num_key_value_heads", c->num_kv_heads);
    else if (c->v_is_k)
        c->num_kv_heads = hf_size(r, "num_global_key_value_heads", c->num_kv_heads);
    if (own.status) r->status = own.status;
}

/* What was read of heads is of layers without a window. */
static int read_window_heads(struct json_reader *r, struct model_config *c)
{
    const bool is_null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(r->object, "attention_value_scale"));
    if (!c->family->has_window_heads) return r->status;
    c->v_dim = hf_size(r, "v_head_dim", 128);
    c->v_scale = is_null ? 0 : (float)json_real(r, "attention_value_scale", 0.707, -1e9, 1e9);
    const int64_t twice = min_of(2 * (int64_t)c->num_kv_heads, (int64_t)INT32_MAX);
    c->window_heads =
        (struct head_config){.num_kv_heads = hf_size(r, "swa_num_key_value_heads", (int32_t)twice),
                             .head_dim = hf_size(r, "swa_head_dim", c->head_dim),
                             .v_dim = hf_size(r, "swa_v_head_dim", c->v_dim)};
    if (json_int(r, "swa_num_attention_heads", c->num_heads, 1, INT32_MAX) != c->num_heads ||
        json_bool(r, "add_full_attention_sink_bias", false) ||
        !json_bool(r, "add_swa_attention_sink_bias", true))
        return error_set(
            r->err, STATUS_UNSUPPORTED,
            "%s: layers with another number of heads, sinks of layers without a window and windows "
            "without sinks are not supported",
            r->path);
    return r->status;
}

/* What a token adds to each layer, and the last layers, which have no K and V. */
static void read_layer_embeddings(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    c->layer_embedding_dim =
        (int32_t)json_int(r, "hidden_size_per_layer_input", family->layer_embedding_dim, 0, INT32_MAX);
    c->layer_vocab_size = hf_size(r, "vocab_size_per_layer_input", 262144);
    c->num_kv_sharing_layers =
        (int32_t)json_int(r, "num_kv_shared_layers", family->num_kv_sharing_layers, 0, INT32_MAX);
    c->sharing_intermediate_size = c->intermediate_size;
}

static int read_gemma_3n(struct json_reader *r, struct model_config *c)
{
    if (!c->family->has_altup) return r->status;
    read_layer_embeddings(r, c);
    return hf_read_altup(r, c);
}

static int read_gemma_4(struct json_reader *r, struct model_config *c)
{
    if (!c->family->has_global_heads) return r->status;
    read_global_heads(r, c);
    if (!json_find(r, "rope_parameters"))
        return error_set(r->err, STATUS_INVALID, "%s: rope_parameters is missing", r->path);
    if (strcmp(json_text(r, "use_bidirectional_attention", "vision"), "vision") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: use_bidirectional_attention is supported for \"vision\" alone", r->path);
    read_layer_embeddings(r, c);
    if (json_bool(r, "use_double_wide_mlp", false))
        c->sharing_intermediate_size = (int32_t)min_of(2 * (int64_t)c->intermediate_size, (int64_t)INT32_MAX);
    return r->status;
}

/* Laguna's: how many gates a layer has; what its experts may have beside. */
static int read_gates(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_false[] = {"moe_apply_router_weight_on_input"};
    const cJSON *gating = json_find(r, "gating");
    const char *text = cJSON_IsString(gating) ? gating->valuestring : "";
    if (!c->family->gates_are_softplus) return r->status;
    c->gates_by_head = !gating || cJSON_IsTrue(gating) || !strcmp(text, "per-head");
    if (!c->gates_by_head && strcmp(text, "per-element") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: gating is not supported unless it is true, \"per-head\" or \"per-element\"",
                         r->path);
    if (!json_find(r, "rope_parameters"))
        return error_set(r->err, STATUS_INVALID, "%s: rope_parameters is missing", r->path);
    if (json_real(r, "moe_router_logit_softcapping", 0, -1e9, 1e9) > 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: moe_router_logit_softcapping is set, which is not supported", r->path);
    return hf_want_false(r, must_be_false, array_length(must_be_false));
}

/* Of Qwen 1: what it does with longer texts than seq_length is not computed. */
static int take_both(struct json_reader *r, struct model_config *c)
{
    if (!c->family->intermediate_is_of_both) return r->status;
    const int32_t longest = (int32_t)json_int(r, "seq_length", c->max_position_embeddings, 1, INT32_MAX);
    c->max_position_embeddings = min_of(c->max_position_embeddings, longest);
    return model_config_halve_intermediate(c, r->path, r->err);
}

/* What decoders with LayerNorm may have beside. */
static int read_layer_norm(struct json_reader *r, struct model_config *c)
{
    static const char *const norms[] = {"use_qk_norm", "qk_layernorm"}, *const sides[] = {
                                                                            "use_parallel_residual"};
    const bool may_be_serial = c->is_parallel && weight_may_be(c->family->weight_changes, WEIGHT_MLP_NORM);
    int status = STATUS_OK;
    if (!c->family->has_layer_norm) return r->status;
    hf_read_norm_eps(r, c);
    if (may_be_serial) c->is_parallel = json_bool(r, sides[0], true);
    if (!c->family->qk_norm_may_be) status = hf_want_false(r, norms, array_length(norms));
    if (!status && !may_be_serial && !c->family->if_parallel)
        status = hf_want_false(r, sides, array_length(sides));
    if (!status && c->family->if_parallel && json_bool(r, sides[0], false)) {
        c->family = c->family->if_parallel;
        c->is_parallel = true;
    }
    return status;
}

static bool read_qk_norm(struct json_reader *r, const struct family *family)
{
    const bool usual = json_bool(r, "qk_layernorm", family->qk_norm_of_ones || family->qk_norm);
    return json_bool(r, "use_qk_norm", usual);
}

/* In the place of K/V heads. */
static int read_latent(struct json_reader *r, struct model_config *c)
{
    const bool has_no_q_rank = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(r->object, "q_lora_rank"));
    if (!c->family->latent_attention) return STATUS_OK;
    const int32_t value_dim =
        c->family->has_depth_scale ? max_of(c->hidden_size / c->num_heads, 1) : 128; /* MiniCPM3's */
    c->latent = (struct latent_config){.rank = hf_size(r, "kv_lora_rank", 512),
                                       .q_rank = has_no_q_rank ? 0 : hf_size(r, "q_lora_rank", 1536),
                                       .plain_dim = hf_size(r, "qk_nope_head_dim", 128),
                                       .rotary_dim = hf_size(r, "qk_rope_head_dim", 64),
                                       .value_dim = hf_size(r, "v_head_dim", value_dim)};
    model_config_take_latent(c);
    if (c->qkv_bias)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: attention_bias is set, which is not supported",
                         r->path);
    return r->status;
}

/* The first of some keys that is there. */
static int32_t int_of_first(struct json_reader *r, const char *const *keys, int32_t num_keys,
                            int32_t fallback)
{
    for (int32_t i = 0; i < num_keys; i++)
        if (json_find(r, keys[i])) return int_of_all_layers(r, keys[i], 0);
    return fallback;
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

/* Nomic's. */
static int read_second_layers(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_false[] = {"moe_normalize_expert_weights", "expert_choice_router"};
    const int32_t period = hf_size(r, "moe_every_n_layers", 2);
    if (period < 2)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: moe_every_n_layers is supported from 2 on",
                         r->path);
    model_config_add_second_layers(c, period);
    return hf_want_false(r, must_be_false, array_length(must_be_false));
}

/* Which layers have experts: a list says of each, or those of a list have, or all but the first ones, every so many, and not those
 * of another list. */
static int read_sparse_layers(struct json_reader *r, struct model_config *c)
{
    const struct hf_layer_kind kinds[] = {{"dense", NULL}, {"sparse", c->sparse_layers}};
    const cJSON *sparse = json_find(r, "moe_layers");
    static const char *const names_of_first[] = {"first_k_dense_replace", "moe_layer_start_index",
                                                 "num_dense_layers"},
                             *const names_of_step[] = {"decoder_sparse_step", "interleave_moe_layer_step",
                                                       "moe_layer_interval"};
    if (json_find(r, "moe_every_n_layers")) return read_second_layers(r, c);
    if (c->family->has_layer_periods)
        return hf_read_period(r, "expert_layer", 2, 1, c->num_layers, c->sparse_layers);
    if (cJSON_IsArray(json_find(r, "moe_layer_freq")))
        return hf_read_layer_flags(r, "moe_layer_freq", c->num_layers, c->sparse_layers);
    if (json_find(r, "mlp_layer_types"))
        return hf_read_layer_kinds(r, "mlp_layer_types", c->num_layers, kinds, array_length(kinds));
    int64_t first =
                int_of_first(r, names_of_first, array_length(names_of_first), c->family->num_dense_layers),
            step = max_of(int_of_first(r, names_of_step, array_length(names_of_step), 0), 1),
            last = json_int(r, "moe_layer_end_index", -1, -1, INT32_MAX);
    change_layers(sparse, c->sparse_layers, true);
    for (int64_t i = first; i < c->num_layers && !sparse; i++)
        if ((i + 1) % step == 0 && (last < 0 || i <= last)) bit_set_add(c->sparse_layers, (size_t)i);
    change_layers(json_find(r, "mlp_only_layers"), c->sparse_layers, false);
    return r->status;
}

/* Groups of experts, and how a model says that it chooses. */
static int read_choice(struct json_reader *r, struct model_config *c)
{
    const bool is_sigmoid = c->router_scores == ROUTER_SIGMOID;
    const char *scores = is_sigmoid ? "sigmoid" : "softmax",
               *method = is_sigmoid ? "noaux_tc" : "group_limited_greedy",
               *own_scores = json_text(
                   r, "scoring_func",
                   json_text(r, "moe_router_activation_func", json_text(r, "score_function", scores))),
               *own_method = json_text(r, "topk_method", is_sigmoid ? method : "greedy");
    const bool has_groups = !strcmp(own_method, method);
    if (strcmp(own_scores, scores) != 0 || (!has_groups && (is_sigmoid || strcmp(own_method, "greedy") != 0)))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: experts chosen by scoring_func \"%s\" and topk_method \"%s\" are not supported",
                         r->path, printable_from(own_scores, strlen(own_scores)).text,
                         printable_from(own_method, strlen(own_method)).text);
    if (!cJSON_IsArray(json_find(r, "moe_layer_freq")) && json_int(r, "moe_layer_freq", 1, 1, INT32_MAX) != 1)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: moe_layer_freq is set, which is not supported",
                         r->path);
    if (!has_groups) return r->status;
    c->num_expert_groups = hf_size(r, json_find(r, "num_expert_group") ? "num_expert_group" : "n_group", 1);
    c->num_chosen_expert_groups = hf_size(r, "topk_group", 1);
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

/* Of an expert, and of the shared one, whose width is given or is that of so many experts. */
static void read_expert_widths(struct json_reader *r, struct model_config *c)
{
    static const char *const names_of_shared[] = {"n_shared_experts", "moe_num_shared_experts",
                                                  "num_shared_experts", "num_shared_expert"},
                             *const names_of_width[] = {"shared_expert_intermediate_size",
                                                        "moe_shared_expert_intermediate_size",
                                                        "shared_intermediate_size"};
    c->expert_intermediate_size = int_of_all_layers(r, "moe_intermediate_size", c->intermediate_size);
    int64_t num_shared = min_of(int_of_first(r, names_of_shared, array_length(names_of_shared),
                                             c->family->num_shared_experts),
                                1024),
            shared = int_of_first(r, names_of_width, array_length(names_of_width), 0);
    if (shared == 0) shared = num_shared * c->expert_intermediate_size;
    c->shared_intermediate_size = (int32_t)min_of(shared, (int64_t)INT32_MAX);
    if (!c->family->has_dense_size) return;
    c->shared_intermediate_size = c->expert_intermediate_size;
    c->intermediate_size = hf_size(r, "intermediate_size_mlp", 16384);
}

/* Cohere's. */
static int read_prefix(struct json_reader *r, struct model_config *c)
{
    const char *scores = json_text(r, "expert_selection_fn", "softmax"),
               *sum = json_text(r, "shared_expert_combination_strategy", "average");
    if (!c->family->has_prefix_size) return r->status;
    c->intermediate_size = hf_size(r, "prefix_dense_intermediate_size", c->intermediate_size);
    if (!json_find(r, "rms_norm_eps"))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: rms_norm_eps is missing, and LayerNorm beside experts is not supported",
                         r->path);
    if (json_bool(r, "use_qk_norm", false))
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: use_qk_norm is set, which is not supported",
                         r->path);
    if (!json_find(r, "layer_types"))
        return error_set(r->err, STATUS_INVALID, "%s: layer_types is missing", r->path);
    if (c->shared_intermediate_size > 0 && strcmp(sum, "sum") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: shared_expert_combination_strategy is not supported unless it is \"sum\"",
                         r->path);
    if (strcmp(scores, "softmax") != 0 && strcmp(scores, "sigmoid") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: expert_selection_fn is not supported unless it is \"softmax\" or \"sigmoid\"",
                         r->path);
    c->router_scores = !strcmp(scores, "sigmoid") ? ROUTER_SIGMOID : ROUTER_SOFTMAX;
    if (c->router_scores == ROUTER_SOFTMAX) c->router_normalizes = true; /* of those chosen alone */
    return r->status;
}

static void rotate_prefix(struct json_reader *r, struct model_config *c)
{
    if (c->family->has_prefix_size &&
        json_int(r, "prefix_dense_sliding_window_pattern", 1, 1, INT32_MAX) == 1)
        model_config_rotate_dense_layers(c);
}

static int read_experts(struct json_reader *r, struct model_config *c)
{
    static const char *const names_of_number[] = {"num_experts", "num_local_experts", "n_routed_experts",
                                                  "moe_num_experts"},
                             *const names_of_chosen[] = {
                                 "num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk",
                                 "moe_top_k",           "top_k_experts"};
    if (!c->family->has_experts) return STATUS_OK;
    if (c->family->mlp_beside_experts && !json_bool(r, "enable_moe_block", false)) return r->status;
    if (c->family->mlps_are_layers && !model_config_has_sparse_layers(c)) return STATUS_OK;
    c->num_experts = int_of_first(r, names_of_number, array_length(names_of_number), 0);
    if (c->num_experts == 0 && c->family->experts_may_be_none && json_find(r, "num_local_experts")) {
        c->intermediate_size = hf_size(r, "shared_intermediate_size", 1024);
        return r->status;
    }
    if (c->family->has_layer_periods && c->num_experts == 1) { /* it is an MLP */
        c->num_experts = 0;
        return r->status;
    }
    if (c->num_experts == 0)
        return error_set(r->err, STATUS_INVALID, "%s: the number of experts is missing", r->path);
    c->num_chosen_experts = int_of_first(r, names_of_chosen, array_length(names_of_chosen), 0);
    read_expert_widths(r, c);
    c->router_normalizes =
        json_bool(r, "norm_topk_prob", json_bool(r, "moe_renormalize", c->family->router_normalizes));
    static const char *const names_of_scale[] = {"routed_scaling_factor", "router_scaling_factor",
                                                 "moe_routed_scaling_factor", "route_scale"};
    for (size_t i = 0; i < array_length(names_of_scale); i++)
        c->router_scale = (float)json_real(r, names_of_scale[i], (double)c->router_scale, 0, 1e9);
    c->router_scores = c->family->router_scores;
    c->has_router_bias = c->family->has_router_bias && json_bool(r, "use_expert_bias", true) &&
                         json_bool(r, "moe_router_enable_expert_bias", true);
    int status = c->family->mlps_are_layers ? r->status : read_sparse_layers(r, c);
    if (!status) status = read_prefix(r, c);
    if (status) return status;
    return c->router_scores == ROUTER_SPARSE ? read_sparse_mixer(r, c) : read_choice(r, c);
}

/* null is none. */
static float read_softcap(struct json_reader *r, const char *key, double fallback)
{
    bool is_null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(r->object, key));
    return is_null ? 0 : (float)json_real(r, key, fallback, 0, 1e9);
}

static double read_factor(struct json_reader *r, const char *key)
{
    return json_real(r, key, 1, 1e-9, 1e9);
}

/* All of a list, 1 where there is none. */
static void read_factors(struct json_reader *r, const char *key, double *out, int32_t num)
{
    const cJSON *list = json_find(r, key), *item = cJSON_IsArray(list) ? list->child : NULL;
    bool is_good = !list || cJSON_GetArraySize(list) == num;
    for (int32_t i = 0; i < num; i++, item = item ? item->next : NULL) {
        out[i] = item && cJSON_IsNumber(item) ? item->valuedouble : 1;
        is_good = is_good && (!list || cJSON_IsNumber(item)) && out[i] >= 1e-9 && out[i] <= 1e9;
    }
    if (!is_good && !r->status)
        r->status = error_set(r->err, STATUS_INVALID, "%s: %s should be a list of %d positive numbers",
                              r->path, key, num);
}

/* Falcon-H1's. */
static void read_branch_scales(struct json_reader *r, struct model_config *c)
{
    enum { OF_Z, OF_V, OF_K, OF_Q, OF_STEPS, NUM_OF_STATE };
    enum { OF_GATE, OF_DOWN, NUM_OF_MLP };
    double of_state[NUM_OF_STATE], of_mlp[NUM_OF_MLP];
    read_factors(r, "ssm_multipliers", of_state, NUM_OF_STATE);
    read_factors(r, "mlp_multipliers", of_mlp, NUM_OF_MLP);
    const double norm = read_factor(r, "ssm_in_multiplier") * of_state[OF_Z],
                 attention = read_factor(r, "attention_in_multiplier") / norm;
    c->scales = (struct branch_scales){
        .norm = (float)norm,
        .mlp_norm = (float)of_mlp[OF_GATE],
        .attention = (float)(attention * read_factor(r, "attention_out_multiplier")),
        .state = (float)read_factor(r, "ssm_out_multiplier"),
        .mlp = (float)(of_mlp[OF_DOWN] / of_mlp[OF_GATE]),
        .v = (float)(of_state[OF_V] / of_state[OF_Z]),
        .k = (float)(of_state[OF_K] / of_state[OF_Z]),
        .q = (float)(of_state[OF_Q] / of_state[OF_Z]),
        .steps = (float)(of_state[OF_STEPS] / of_state[OF_Z]),
    };
    c->attention_scale =
        (float)(attention * attention * read_factor(r, "key_multiplier") / sqrt((double)c->head_dim));
    c->embedding_scale = (float)read_factor(r, "embedding_multiplier");
    c->logit_scale = (float)read_factor(r, "lm_head_multiplier");
}

/* null is by nothing. */
static void read_depth_scale(struct json_reader *r, struct model_config *c)
{
    const cJSON *root = r->object;
    const bool has_no_depth = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(root, "scale_depth")),
               has_no_base = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(root, "dim_model_base"));
    const double depth = json_real(r, "scale_depth", 1.4, 1e-9, 1e9),
                 base = json_real(r, "dim_model_base", 256, 1e-9, 1e9);
    c->embedding_scale = (float)json_real(r, "scale_emb", 12, 1e-9, 1e9);
    if (!has_no_depth) c->residual_scale = (float)(depth / sqrt((double)c->num_layers));
    if (!has_no_base) c->logit_scale = (float)(base / c->hidden_size);
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
    if (family->logit_softcap > 0)
        c->logit_softcap = read_softcap(r, "final_logit_softcapping", family->logit_softcap);
    if (family->may_cap_logits) c->logit_softcap = read_softcap(r, "final_logit_softcapping", 0);
    if (family->post_norm_eps > 0)
        c->post_norm_eps = (float)json_real(r, "post_norm_eps", family->post_norm_eps, 0, 1);
    if (family->scales_q) {
        c->attention_scale =
            (float)(json_real(r, "qk_scale_factor", 3.87, 1e-9, 1e9) / sqrt((double)c->head_dim));
        c->logit_scale = (float)json_real(r, "output_multiplier", 0.19611613513818404, 1e-9, 1e9);
    }
    if (family->has_logit_scale && !family->scales_q)
        c->logit_scale = (float)json_real(r, "logit_scale", 0.0625, 1e-9, 1e9);
    if (family->has_branch_scales) read_branch_scales(r, c);
    if (family->has_depth_scale) read_depth_scale(r, c);
    if (!family->has_multipliers) return;
    if (family->multiplies_logits && !json_bool(r, "use_post_norm", true) && !r->status)
        r->status = error_set(r->err, STATUS_UNSUPPORTED,
                              "%s: use_post_norm is false, which is not supported", r->path);
    const double logits = json_real(r, "logits_scaling", 1, 1e-9, 1e9);
    c->attention_scale =
        (float)json_real(r, "attention_multiplier", family->multiplies_logits ? 0 : 1, 1e-9, 1e9);
    c->embedding_scale = (float)json_real(r, "embedding_multiplier", 1, 1e-9, 1e9);
    c->residual_scale = (float)json_real(r, "residual_multiplier", 1, 1e-9, 1e9);
    c->logit_scale = (float)(family->multiplies_logits ? logits : 1 / logits);
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

/* Falcon's: attention and MLP are side by side, of one norm or, in the new decoder, maybe of two; or one behind the other. */
static void take_decoder(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    const bool is_new = json_bool(r, "new_decoder_architecture", false);
    if (!family->may_have_new_decoder) return;
    if (is_new && json_int(r, "num_ln_in_parallel_attn", 2, 1, 2) == 2) c->family = family->with_two_norms;
    if (!is_new && !json_bool(r, "parallel_attn", true)) c->family = family->if_serial;
    if (json_bool(r, "alibi", false)) c->alibi_most = 8;
}

/* Nomic's. */
static void take_mixture(struct json_reader *r, struct model_config *c)
{
    const bool has_experts = json_int(r, "moe_every_n_layers", 0, 0, INT32_MAX) > 0;
    if (has_experts && c->family->with_experts) c->family = c->family->with_experts;
}

/* Jina's XLM-RoBERTas, by the name of another class. */
static void take_rotary(struct json_reader *r, struct model_config *c)
{
    const bool is_rotary = !strcmp(json_text(r, "position_embedding_type", ""), "rotary");
    if (is_rotary && c->family->if_rotary) c->family = c->family->if_rotary;
}

static int read_text_config(struct json_reader *r, struct model_config *c)
{
    take_decoder(r, c);
    take_mixture(r, c);
    take_rotary(r, c);
    c->gate = c->family->gate;
    c->is_parallel = c->family->is_parallel;
    c->is_encoder = c->family->is_encoder || !json_bool(r, "is_causal", true);
    int status = check_unsupported(r, c);
    if (!status) status = read_activation(r, c);
    if (status) return status;
    read_shape(r, c);
    read_multipliers(r, c);
    if (r->status) return r->status;
    status = hf_read_layer_shapes(r, c);
    if (!status) status = take_both(r, c);
    if (!status) status = read_gemma_4(r, c);
    if (!status) status = read_gemma_3n(r, c);
    if (!status) status = read_window_heads(r, c);
    if (!status) status = read_gates(r, c);
    if (!status) status = hf_read_encoder(r, c);
    if (!status) status = hf_read_gpt2(r, c);
    if (!status) status = read_layer_norm(r, c);
    if (!status) status = read_latent(r, c);
    if (status) return status;
    model_config_take_family(c);
    if (c->family->scales_if_mup && !json_bool(r, "mup_enabled", false)) c->embedding_scale = 1;
    if (c->family->qk_norm_may_be || c->family->qk_norm_of_ones) c->qk_norm = read_qk_norm(r, c->family);
    status = hf_read_states(r, c);
    if (!status) status = read_experts(r, c);
    if (!status) status = hf_read_unrotated_layers(r, c);
    if (!status) status = hf_read_windows(r, c);
    model_config_take_windows(c);
    rotate_prefix(r, c);
    hf_read_temperature(r, c);
    if (!status) status = hf_read_layer_heads(r, c);
    if (!status) status = hf_check_layer_heads(r, c);
    if (!status) status = hf_read_rope(r, c);
    if (!status) status = hf_read_layer_thetas(r, c);
    if (!status) status = r->status;
    c->has_unit_head =
        c->family->vocab_size_with_unit_head > 0 &&
        (c->vocab_size == c->family->vocab_size_with_unit_head || json_find(r, "z_loss_weight"));
    return status ? status : model_config_validate(c, r->path, r->err);
}

/* What a class makes of its matrices though no quantization_config says so. */
static int take_ternary(struct json_reader *r, struct model_config *c)
{
    if (!c->family->is_ternary || c->quantisation.format != QUANT_NONE) return r->status;
    if (json_int(r, "weight_bits", 1, 1, 32) != 1)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: weight_bits is not supported unless it is 1",
                         r->path);
    c->quantisation =
        (struct quantisation){.format = QUANT_TERNARY, .name = "ternary when loaded", .has_floats = true};
    return r->status;
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
    /* of a model with images the whole one's counts; a head that is there nevertheless is found (model_files.c) */
    if (text.object != r->object) c->tie_word_embeddings |= json_bool(r, "tie_word_embeddings", false);
    const bool is_outside = json_find(r, "quantization_config") || json_find(r, "quantization");
    status = quantisation_read(is_outside ? r : &text, &c->quantisation);
    if (!status) status = take_ternary(r, c);
    if (status) return status;
    add_eos_ids(&text, c);
    add_eos_ids(r, c);
    c->bos_id = read_bos_id(&text, c);
    return STATUS_OK;
}

/* How one is made, and of how long a text. */
static void take_embedding(const char *directory, struct model_config *c)
{
    const int64_t longest = c->is_encoder ? pooling_config_longest_hf(directory) : 0;
    c->pooling = pooling_config_read_hf(directory, c->is_encoder ? POOLING_MEAN : POOLING_LAST, &c->dense);
    if (longest > 0 && longest < c->max_position_embeddings) c->max_position_embeddings = (int32_t)longest;
}

/* What ModelOpt says beside a config.json that says nothing. */
static int read_quant_config(const char *directory, struct quantisation *q, struct error *err)
{
    char path[PATH_BYTES_MAX];
    cJSON *root = NULL;
    struct error own = {0};
    snprintf(path, sizeof path, "%s/hf_quant_config.json", directory);
    int status = json_file_read(path, CONFIG_BYTES_MAX, &root, &own);
    if (status == STATUS_NOT_FOUND) return STATUS_OK;
    if (status) return error_set(err, status, "%s", own.text);
    struct json_reader r = {.object = root, .path = path, .err = err};
    status = quantisation_read_modelopt(&r, q);
    cJSON_Delete(root);
    return status;
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
    if (!status && config->quantisation.format == QUANT_NONE)
        status = read_quant_config(directory, &config->quantisation, err);
    if (!status) take_embedding(directory, config);
    return status ? status : read_generation_config(directory, config, defaults, err);
}
