#include "model/hf_parts.h"

#include <math.h>
#include <string.h>

#include "base/check.h"
#include "files/file_map.h"

static int find_rope_type(struct json_reader *r, bool has_ntk, enum rope_type *type)
{
    static const struct {
        const char *name;
        enum rope_type type;
    } names[] = {
        {"default", ROPE_DEFAULT},
        {"linear", ROPE_LINEAR},
        {"llama3", ROPE_LLAMA3},
        {"yarn", ROPE_YARN},
        {"deepseek_yarn", ROPE_YARN},
        {"longrope", ROPE_LONGROPE},
        {"su", ROPE_LONGROPE},
        {"dynamic", ROPE_DEFAULT}, /* it differs beyond max_position_embeddings only */
        {"mrope", ROPE_DEFAULT},   /* it differs for images only */
        {"proportional", ROPE_PROPORTIONAL},
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
        "%s: the rotation type \"%s\" is not supported; default, dynamic, linear, llama3, longrope, "
        "proportional and yarn are",
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
    if (rope->type == ROPE_PROPORTIONAL) rope->factor = json_real(r, "factor", 1, 0, 1e9);
    if (rope->type == ROPE_PROPORTIONAL) return r->status;
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

/* rope_parameters may hold one object per type of layer. *has_types: it does. Otherwise rope_scaling goes before, as where somebody has
 * added it by hand to make texts longer. */
static const cJSON *rope_object(const struct json_reader *r, const char *layer_type, bool *has_types)
{
    const cJSON *object = json_find(r, "rope_parameters"), *scaling = json_find(r, "rope_scaling"),
                *of_layers = cJSON_GetObjectItemCaseSensitive(object, layer_type);
    *has_types = cJSON_IsObject(of_layers);
    if (*has_types) return of_layers;
    return !object || cJSON_GetArraySize(scaling) > 0 ? scaling : object;
}

/* Where rope_scaling says nothing of it. */
static double theta_beside(struct json_reader *r, double otherwise)
{
    struct json_reader parameters = *r;
    parameters.object = json_find(r, "rope_parameters");
    return json_real(r, "rope_theta", json_real(&parameters, "rope_theta", otherwise, 0, 1e18), 0, 1e18);
}

/* Of a proportional rotation part of the pairs turn, at the speeds that they have where all do. */
static int read_rotary_dim(struct json_reader *r, struct json_reader *inner, const struct model_config *c,
                           int32_t head_dim, struct rope_config *rope)
{
    int32_t *rotary_dim = &rope->rotary_dim;
    *rotary_dim = c->latent.rotary_dim;
    if (c->latent.rank > 0) return STATUS_OK;
    double fallback = c->family->rotary_part > 0 ? c->family->rotary_part : 1,
           part = json_real(r, "rotary_pct", fallback, 0, 1);
    part = json_real(inner, "partial_rotary_factor", json_real(r, "partial_rotary_factor", part, 0, 1), 0, 1);
    if (c->family->partial_rotary && json_find(r, "rotary_dim")) { /* of MiniMax's */
        *rotary_dim = (int32_t)json_int(r, "rotary_dim", 0, 0, INT32_MAX);
        return r->status;
    }
    const bool is_proportional = !strcmp(json_text(inner, "rope_type", "default"), "proportional");
    *rotary_dim = is_proportional ? head_dim : (int32_t)(head_dim * part);
    rope->num_turning = is_proportional ? (int32_t)(head_dim * part / 2) : 0;
    if (is_proportional) return r->status;
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
                                 .turns_back = c->family->rotates_back,
                                 .factor = 1,
                                 .attention_factor = 1,
                                 .score_factor = 1};
    if (c->latent.rank > 0 && !json_bool(r, "rope_interleave", true)) rope->style = ROPE_HALVES;
    inner.object = rope_object(r, layer_type, &has_types);
    if (inner.object && !cJSON_IsObject(inner.object))
        return error_set(r->err, STATUS_INVALID, "%s: rope_parameters or rope_scaling should be an object",
                         r->path);
    theta = json_real(r, "rotary_emb_base", theta, 0, 1e18);
    if (c->family->has_embedding_norm) theta = json_real(r, "global_rope_theta", theta, 0, 1e18);
    rope->theta = json_real(&inner, "rope_theta", theta_beside(r, theta), 0, 1e18);
    const bool has_window = !strcmp(layer_type, "sliding_attention") && model_config_has_window_heads(c);
    int status = read_rotary_dim(r, &inner, c, has_window ? c->window_heads.head_dim : c->head_dim, rope);
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
    if (model_config_has_window_heads(c)) {
        const int status = read_rotary_dim(r, r, c, c->window_heads.head_dim, &c->window_rope);
        if (status) return status;
    }
    c->window_rope.theta = json_real(r,
                                     c->family->has_embedding_norm ? "local_rope_theta"
                                     : c->family->has_window_heads ? "swa_rope_theta"
                                                                   : "rope_local_base_freq",
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

int hf_read_rope(struct json_reader *r, struct model_config *c)
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
