#include "model/hf_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "files/file_map.h"
#include "files/json_read.h"

enum { PATH_BYTES_MAX = 4096, CONFIG_BYTES_MAX = 16 << 20 };

static int find_family(struct json_reader *r, struct model_config *c)
{
    const cJSON *list = json_find(r, "architectures");
    const char *model_type = json_text(r, "model_type", "");
    const char *class = cJSON_IsArray(list) && cJSON_IsString(list->child) ? list->child->valuestring : "";
    int status =
        class[0] ? family_find(NAMES_HF_CLASS, class, strlen(class), r->path, &c->family, r->err)
                 : family_find(NAMES_HF_TYPE, model_type, strlen(model_type), r->path, &c->family, r->err);
    if (!status) snprintf(c->architecture, sizeof c->architecture, "%s", c->family->names[NAMES_HF_CLASS]);
    return status;
}

/* Fields that change the mathematics into something that no forward pass here computes. */
static int check_unsupported(struct json_reader *r, const struct family *family)
{
    static const char *const must_be_absent[] = {
        "quantization_config",    "num_local_experts",       "num_experts",
        "attn_logit_softcapping", "final_logit_softcapping", "no_rope_layers"};
    for (size_t i = 0; i < array_length(must_be_absent); i++)
        if (json_find(r, must_be_absent[i]))
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is set, which is not supported", r->path,
                             must_be_absent[i]);
    const char *act = json_text(r, "hidden_act", family->hidden_act);
    if (!strcmp(act, "swish")) act = "silu"; /* one function, two names */
    if (strcmp(act, family->hidden_act) != 0)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: hidden_act \"%s\" is not supported; \"%s\" is",
                         r->path, printable_from(act, strlen(act)).text, family->hidden_act);
    if (json_bool(r, "mlp_bias", false))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: mlp_bias is set: biases of gate, up and down are not supported", r->path);
    return STATUS_OK;
}

static void read_shape(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    c->hidden_size = (int32_t)json_int_required(r, "hidden_size", 1, INT32_MAX);
    c->intermediate_size = (int32_t)json_int_required(r, "intermediate_size", 1, INT32_MAX);
    c->num_layers = (int32_t)json_int_required(r, "num_hidden_layers", 1, INT32_MAX);
    c->num_heads = (int32_t)json_int_required(r, "num_attention_heads", 1, INT32_MAX);
    c->vocab_size = (int32_t)json_int_required(r, "vocab_size", 1, INT32_MAX);
    c->num_kv_heads = family->kv_heads_may_be_missing
                          ? (int32_t)json_int(r, "num_key_value_heads", c->num_heads, 1, INT32_MAX)
                          : (int32_t)json_int_required(r, "num_key_value_heads", 1, INT32_MAX);
    assert_debug(c->num_heads > 0); /* also after a problem */
    if (!json_find(r, "head_dim") && c->hidden_size % c->num_heads && !r->status)
        r->status = error_set(r->err, STATUS_INVALID,
                              "%s: head_dim is missing, and hidden_size %d is no multiple of "
                              "num_attention_heads %d",
                              r->path, c->hidden_size, c->num_heads);
    c->head_dim = (int32_t)json_int(r, "head_dim", c->hidden_size / c->num_heads, 1, INT32_MAX);
    c->max_position_embeddings =
        (int32_t)json_int(r, "max_position_embeddings", family->max_position_embeddings, 1, INT32_MAX);
    c->rms_norm_eps = (float)json_real(r, "rms_norm_eps", 1e-6, 0, 1);
    c->tie_word_embeddings = json_bool(r, "tie_word_embeddings", false);
    c->qk_norm = family->qk_norm;
    bool attention_bias = json_bool(r, "attention_bias", false);
    c->qkv_bias = family->qkv_bias || attention_bias;
    c->o_bias = attention_bias;
}

/* ---- sliding window: for all layers or for none ---- */

static int count_layer_types(struct json_reader *r, int32_t num_layers, int *num_sliding)
{
    const cJSON *types = json_find(r, "layer_types"), *type;
    *num_sliding = 0;
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        if (!strcmp(text, "sliding_attention"))
            ++*num_sliding;
        else if (strcmp(text, "full_attention") != 0)
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: layer_types has \"%s\"; \"full_attention\" and "
                             "\"sliding_attention\" are supported",
                             r->path, printable_from(text, strlen(text)).text);
    }
    if (cJSON_GetArraySize(types) != num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: layer_types has %d entries for %d layers", r->path,
                         cJSON_GetArraySize(types), num_layers);
    return STATUS_OK;
}

static int read_sliding_window(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    int num_sliding = c->num_layers;
    int fallback = family->window == WINDOW_DEFAULT_4096 &&
                           !cJSON_GetObjectItemCaseSensitive(r->object, "sliding_window")
                       ? 4096
                       : 0;
    int32_t window = (int32_t)json_int(r, "sliding_window", fallback, 0, INT32_MAX);
    if (family->window == WINDOW_NEVER) window = 0;
    if (family->window == WINDOW_IF_USED) {
        if (!json_bool(r, "use_sliding_window", false)) window = 0;
        int64_t first = json_int(r, "max_window_layers", 28, 0, INT32_MAX);
        num_sliding = c->num_layers - (int)min_of(first, (int64_t)c->num_layers);
    }
    if (window && json_find(r, "layer_types")) {
        int status = count_layer_types(r, c->num_layers, &num_sliding);
        if (status) return status;
    }
    if (window && num_sliding && num_sliding != c->num_layers)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: %d of %d layers use a sliding window; all or none is supported", r->path,
                         num_sliding, c->num_layers);
    c->sliding_window = num_sliding ? window : 0;
    return STATUS_OK;
}

/* ---- rotation ---- */

static int find_rope_type(struct json_reader *r, enum rope_type *type)
{
    static const char *const names[] = {
        [ROPE_DEFAULT] = "default", [ROPE_LINEAR] = "linear", [ROPE_LLAMA3] = "llama3", [ROPE_YARN] = "yarn"};
    const char *text = json_text(r, "rope_type", json_text(r, "type", "default"));
    for (size_t i = 0; i < array_length(names); i++) {
        if (strcmp(names[i], text) != 0) continue;
        *type = (enum rope_type)i;
        return STATUS_OK;
    }
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: the rotation type \"%s\" is not supported; default, linear, llama3 "
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
    rope->attention_factor = json_real(r, "attention_factor", fallback, 0, 1e9);
    rope->beta_fast = json_real(r, "beta_fast", 32, 0, 1e9);
    rope->beta_slow = json_real(r, "beta_slow", 1, 0, 1e9);
    if (rope->beta_fast == 0) rope->beta_fast = 32; /* transformers takes 0 for "not given" */
    if (rope->beta_slow == 0) rope->beta_slow = 1;
    rope->yarn_keep_fractions = !json_bool(r, "truncate", true);
}

/* r reads rope_parameters or rope_scaling. */
static int read_scaling(struct json_reader *r, const struct model_config *c, struct rope_config *rope)
{
    int status = find_rope_type(r, &rope->type);
    if (status) return status;
    if (json_real(r, "partial_rotary_factor", 1, 0, 1) != 1)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: partial_rotary_factor is set, which is not supported", r->path);
    if (rope->type == ROPE_DEFAULT) return r->status;
    if (!json_find(r, "factor"))
        return error_set(r->err, STATUS_INVALID, "%s: the factor of the rotation's scaling is missing",
                         r->path);
    rope->factor = json_real(r, "factor", 1, 0, 1e9);
    if (rope->type == ROPE_LINEAR) return r->status;
    rope->original_max_position =
        (int32_t)json_int(r, "original_max_position_embeddings",
                          rope->type == ROPE_YARN ? c->max_position_embeddings : 0, 0, INT32_MAX);
    rope->low_freq_factor = json_real(r, "low_freq_factor", 0, 0, 1e9);
    rope->high_freq_factor = json_real(r, "high_freq_factor", 0, 0, 1e9);
    if (rope->type == ROPE_YARN) read_yarn(r, rope);
    return r->status;
}

/* rope_parameters may hold one object per type of layer; here all layers are of one type. */
static const cJSON *rope_object(const struct json_reader *r, const struct model_config *c)
{
    const cJSON *object = json_find(r, "rope_parameters");
    if (!object) return json_find(r, "rope_scaling");
    const cJSON *of_layers =
        cJSON_GetObjectItemCaseSensitive(object, c->sliding_window ? "sliding_attention" : "full_attention");
    return cJSON_IsObject(of_layers) ? of_layers : object;
}

static int read_rope(struct json_reader *r, struct model_config *c)
{
    struct rope_config *rope = &c->rope;
    *rope = (struct rope_config){.type = ROPE_DEFAULT,
                                 .style = ROPE_HALVES,
                                 .factor = 1,
                                 .attention_factor = 1,
                                 .rotary_dim = c->head_dim};
    struct json_reader inner = *r;
    inner.object = rope_object(r, c);
    if (inner.object && !cJSON_IsObject(inner.object))
        return error_set(r->err, STATUS_INVALID, "%s: rope_parameters or rope_scaling should be an object",
                         r->path);
    rope->theta = json_real(&inner, "rope_theta", json_real(r, "rope_theta", 10000, 0, 1e18), 0, 1e18);
    if (json_real(r, "partial_rotary_factor", 1, 0, 1) != 1)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: partial_rotary_factor is set, which is not supported", r->path);
    return read_scaling(&inner, c, rope);
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

static int read_config(struct json_reader *r, struct model_config *c)
{
    if (!cJSON_IsObject(r->object))
        return error_set(r->err, STATUS_INVALID, "%s: not a JSON object", r->path);
    int status = find_family(r, c);
    if (!status) status = check_unsupported(r, c->family);
    if (status) return status;
    read_shape(r, c);
    if (r->status) return r->status;
    status = read_sliding_window(r, c);
    if (!status) status = read_rope(r, c);
    if (!status) status = r->status;
    if (!status) status = model_config_validate(c, r->path, r->err);
    if (status) return status;
    add_eos_ids(r, c);
    c->bos_id = read_bos_id(r, c);
    return STATUS_OK;
}

int hf_config_read(const char *directory, struct model_config *config, struct generation_defaults *defaults,
                   struct error *err)
{
    char path[PATH_BYTES_MAX];
    cJSON *root = NULL;
    *config = (struct model_config){.bos_id = -1};
    *defaults = generation_defaults_none;
    if (snprintf(path, sizeof path, "%s/config.json", directory) >= (int)sizeof path - 32)
        return error_set(err, STATUS_INVALID, "%s: the path is too long", directory);
    int status = json_file_read(path, CONFIG_BYTES_MAX, &root, err);
    if (status) return status;
    struct json_reader r = {.object = root, .path = path, .err = err};
    status = read_config(&r, config);
    cJSON_Delete(root);
    return status ? status : read_generation_config(directory, config, defaults, err);
}
