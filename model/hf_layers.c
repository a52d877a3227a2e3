#include "model/hf_parts.h"

#include <stdio.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "files/file_map.h"

static const struct hf_layer_kind *find_kind(const struct hf_layer_kind *kinds, size_t num_kinds,
                                             const char *name)
{
    for (size_t i = 0; i < num_kinds; i++)
        if (!strcmp(kinds[i].name, name)) return &kinds[i];
    return NULL;
}

int hf_read_layer_kinds(struct json_reader *r, const char *key, int32_t num_layers,
                        const struct hf_layer_kind *kinds, size_t num_kinds)
{
    const cJSON *types = json_find(r, key), *type;
    size_t layer = 0;
    if (cJSON_GetArraySize(types) != num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: %s has %d entries for %d layers", r->path, key,
                         cJSON_GetArraySize(types), num_layers);
    cJSON_ArrayForEach(type, types)
    {
        const char *text = cJSON_IsString(type) ? type->valuestring : "";
        const struct hf_layer_kind *kind = find_kind(kinds, num_kinds, text);
        if (!kind)
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s has \"%s\"; \"%s\" and \"%s\" are supported",
                             r->path, key, printable_from(text, strlen(text)).text, kinds[0].name,
                             kinds[1].name);
        if (kind->layers) bit_set_add(kind->layers, layer);
        layer++;
    }
    return STATUS_OK;
}

int hf_read_layer_flags(struct json_reader *r, const char *key, int32_t num_layers, uint64_t *layers)
{
    const cJSON *list = json_find(r, key), *item;
    size_t layer = 0;
    int64_t flag;
    if (cJSON_GetArraySize(list) != num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: %s has %d entries for %d layers", r->path, key,
                         cJSON_GetArraySize(list), num_layers);
    cJSON_ArrayForEach(item, list)
    {
        if (!json_is_int(item, &flag) || flag < 0 || flag > 1)
            return error_set(r->err, STATUS_INVALID, "%s: %s has an entry that is neither 0 nor 1", r->path,
                             key);
        if (flag) bit_set_add(layers, layer);
        layer++;
    }
    return STATUS_OK;
}

/* Chunks and windows are one field of the model's. */
static int read_windowed_layers(struct json_reader *r, struct model_config *c)
{
    const struct hf_layer_kind kinds[] = {
        {"full_attention", NULL},
        {c->family->has_chunks ? "chunked_attention" : "sliding_attention", c->windowed_layers},
        {"conv", NULL}}; /* where a layer may be one, it is known to be (hf_read_states) */
    const size_t num_kinds = array_length(kinds) - (c->family->delta_kind == DELTA_CONVOLUTION ? 0 : 1);
    return hf_read_layer_kinds(r, "layer_types", c->num_layers, kinds, num_kinds);
}

/* GPT-Neo's. */
static int read_local_layers(struct json_reader *r, struct model_config *c)
{
    const struct hf_layer_kind kinds[] = {{"global", NULL}, {"local", c->windowed_layers}};
    return hf_read_layer_kinds(r, "attention_layers", c->num_layers, kinds, array_length(kinds));
}

/* 0: there is none, whatever the layers. */
static int32_t read_window(struct json_reader *r, const struct family *family)
{
    bool is_null = cJSON_GetObjectItemCaseSensitive(r->object, "sliding_window");
    if (family->window == WINDOW_LOCAL)
        return (int32_t)json_int(r, "local_attention", 128, 0, INT32_MAX) / 2 + 1;
    if (family->window == WINDOW_IF_LOCAL) return (int32_t)json_int(r, "window_size", 256, 1, INT32_MAX);
    if (family->has_window_heads && json_find(r, "sliding_window_size")) /* of what is seen beside itself */
        return (int32_t)json_int(r, "sliding_window_size", 0, 1, INT32_MAX - 1) + 1;
    int fallback = family->has_window_heads                            ? 129
                   : family->window == WINDOW_DEFAULT_4096 && !is_null ? 4096
                   : family->short_taps > 0                            ? 256
                   : family->window == WINDOW_IF_LISTED                ? 512
                                                                       : 0;
    int32_t window = (int32_t)json_int(r, "sliding_window", fallback, 0, INT32_MAX);
    if (family->window == WINDOW_HALF) return window > 0 ? window / 2 + 1 : 0;
    bool is_used = family->window == WINDOW_IF_USED     ? json_bool(r, "use_sliding_window", false)
                   : family->window == WINDOW_IF_LISTED ? json_find(r, "layer_types") != NULL
                                                        : family->window != WINDOW_NEVER;
    return is_used ? window : 0;
}

/* unrotated_layers are known. */
static int read_chunks(struct json_reader *r, struct model_config *c)
{
    bool is_null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(r->object, "attention_chunk_size"));
    c->sliding_window = (int32_t)json_int(r, "attention_chunk_size", is_null ? 0 : 8192, 0, INT32_MAX);
    c->windows_are_chunks = c->sliding_window > 0;
    if (!c->windows_are_chunks) return r->status;
    if (json_find(r, "layer_types")) return read_windowed_layers(r, c);
    for (int32_t i = 0; i < c->num_layers; i++)
        if (!bit_set_has(c->unrotated_layers, (size_t)i)) bit_set_add(c->windowed_layers, (size_t)i);
    return r->status;
}

static int read_sliding_window(struct json_reader *r, struct model_config *c)
{
    const struct family *family = c->family;
    c->sliding_window = read_window(r, family);
    if (family->window == WINDOW_IF_LISTED && family->only_windows_rotate && !json_find(r, "layer_types"))
        return error_set(r->err, STATUS_INVALID, "%s: layer_types is missing", r->path);
    if (c->sliding_window == 0) return r->status;
    if (family->window == WINDOW_IF_LOCAL) return read_local_layers(r, c);
    if (json_find(r, "layer_types")) return read_windowed_layers(r, c);
    if (family->has_window_heads && json_find(r, "hybrid_layer_pattern"))
        return hf_read_layer_flags(r, "hybrid_layer_pattern", c->num_layers, c->windowed_layers);
    const char *key =
        family->window == WINDOW_LOCAL ? "global_attn_every_n_layers" : "sliding_window_pattern";
    int32_t period =
        family->full_layer_period ? (int32_t)json_int(r, key, family->full_layer_period, 1, INT32_MAX) : 0;
    model_config_add_windows(c, period);
    if (family->has_window_heads) bit_set_remove(c->windowed_layers, 0);
    int64_t first = family->window == WINDOW_IF_USED ? json_int(r, "max_window_layers", 28, 0, INT32_MAX) : 0;
    for (int64_t i = 0; i < min_of(first, (int64_t)LAYERS_MAX); i++)
        bit_set_remove(c->windowed_layers, (size_t)i);
    return r->status;
}

int hf_read_windows(struct json_reader *r, struct model_config *c)
{
    return c->family->has_chunks ? read_chunks(r, c) : read_sliding_window(r, c);
}

/* A list with 1 for each layer that rotates, or every so many one that does not. */
int hf_read_unrotated_layers(struct json_reader *r, struct model_config *c)
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
        for (int64_t i = period - 1; i < c->num_layers; i += period)
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

/* A theta for each layer, 0 where it does not rotate: those with a window rotate by one, the others do not. Windows are
 * known. */
static bool is_theta_of_windows(const struct model_config *c, size_t layer, double theta)
{
    return theta == (bit_set_has(c->windowed_layers, layer) ? c->rope.theta : 0);
}

/* All that rotate do so by one theta, which is the model's then. */
static bool take_theta(struct model_config *c, size_t layer, double theta, bool is_first)
{
    if (theta == 0) bit_set_add(c->unrotated_layers, layer);
    if (theta > 0 && is_first) c->rope.theta = theta;
    return theta == 0 || theta == c->rope.theta;
}

int hf_read_layer_thetas(struct json_reader *r, struct model_config *c)
{
    const cJSON *list = json_find(r, "layer_rope_theta"), *item;
    const struct family *family = c->family;
    bool is_first = true;
    size_t layer = 0;
    if (!list || !(family->only_windows_rotate || family->has_layer_thetas)) return r->status;
    cJSON_ArrayForEach(item, list)
    {
        const double own = cJSON_IsNumber(item) ? item->valuedouble : -1;
        const bool is_known =
            layer < (size_t)c->num_layers && (family->has_layer_thetas ? take_theta(c, layer, own, is_first)
                                                                       : is_theta_of_windows(c, layer, own));
        if (!is_known)
            return error_set(
                r->err, STATUS_UNSUPPORTED,
                "%s: layer_rope_theta is not supported unless it is %s in layers %s and 0 in the "
                "others",
                r->path, family->has_layer_thetas ? "the same" : "rope_theta",
                family->has_layer_thetas ? "that rotate" : "with a window");
        is_first = is_first && own == 0;
        layer++;
    }
    return r->status;
}

static int64_t int_of(const cJSON *object, const char *key, int64_t fallback)
{
    int64_t value;
    return json_is_int(cJSON_GetObjectItemCaseSensitive(object, key), &value) ? value : fallback;
}

int hf_check_layer_heads(struct json_reader *r, const struct model_config *c)
{
    const cJSON *layers = json_find(r, "per_layer_config"), *own;
    int32_t num_full = 0, num_right = 0;
    if (!c->family->has_global_heads) return r->status;
    if (c->sliding_window == 0)
        return error_set(r->err, STATUS_INVALID, "%s: sliding_window is missing", r->path);
    for (int32_t i = 0; i < c->num_layers; i++) {
        char name[16];
        if (bit_set_has(c->windowed_layers, (size_t)i)) continue;
        snprintf(name, sizeof name, "%d", i);
        own = cJSON_GetObjectItemCaseSensitive(layers, name);
        num_right += own && int_of(own, "head_dim", c->window_heads.head_dim) == c->head_dim &&
                     int_of(own, "num_key_value_heads", c->window_heads.num_kv_heads) == c->num_kv_heads;
        num_full++;
    }
    if (!layers || (num_right == num_full && num_right == cJSON_GetArraySize(layers))) return r->status;
    return error_set(
        r->err, STATUS_UNSUPPORTED,
        "%s: per_layer_config is not supported unless all layers without a window have the same in it, "
        "and no others anything",
        r->path);
}

int hf_read_layer_heads(struct json_reader *r, struct model_config *c)
{
    const char *key = "num_attention_heads_per_layer";
    const cJSON *list = json_find(r, key), *item;
    int32_t of_kind[2] = {0, 0}, layer = 0;
    int64_t own;
    if (!c->family->has_layer_heads || !list) return r->status;
    if (cJSON_GetArraySize(list) != c->num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: %s has %d entries for %d layers", r->path, key,
                         cJSON_GetArraySize(list), c->num_layers);
    cJSON_ArrayForEach(item, list)
    {
        const bool windowed = bit_set_has(c->windowed_layers, (size_t)layer);
        int32_t *of = &of_kind[windowed];
        if (!json_is_int(item, &own) || own < 1 || own > INT32_MAX)
            return error_set(r->err, STATUS_INVALID, "%s: %s is no list of possible numbers", r->path, key);
        if (*of != 0 && *of != own)
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: %s differs between layers of one kind, which is not supported", r->path,
                             key);
        *of = (int32_t)own;
        layer++;
    }
    c->num_heads = of_kind[0] > 0 ? of_kind[0] : of_kind[1];
    c->num_window_heads = of_kind[1];
    return r->status;
}

/* What a layer has for attention: K/V heads, one product, or nothing. */
static int read_attention_shape(struct json_reader *r, int32_t num_heads, struct layer_shape *shape,
                                bool *is_replaced)
{
    static const char *const must_be_absent[] = {"window_length", "num_sink_tokens", "mamba", "llama4",
                                                 "parallel_blocks"};
    *is_replaced = json_bool(r, "replace_with_linear", false);
    for (size_t i = 0; i < array_length(must_be_absent); i++)
        if (json_find(r, must_be_absent[i]))
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: %s is set in block_configs, which is not supported", r->path,
                             must_be_absent[i]);
    if (*is_replaced || json_bool(r, "no_op", false)) return r->status;
    const int32_t group = hf_size(r, "n_heads_in_group", 0);
    if (!r->status && num_heads % group)
        return error_set(r->err, STATUS_INVALID,
                         "%s: n_heads_in_group is %d in block_configs for %d attention heads", r->path, group,
                         num_heads);
    shape->num_kv_heads = r->status ? 0 : num_heads / group;
    return r->status;
}

/* Two thirds of so many times the hidden size, up to a multiple of 256; or it is given. */
static int read_mlp_shape(struct json_reader *r, int32_t hidden_size, struct layer_shape *shape)
{
    static const char *const must_be_false[] = {"replace_with_linear"};
    int status = hf_want_false(r, must_be_false, array_length(must_be_false));
    if (!status && (json_find(r, "moe") || json_find(r, "parallel_blocks")))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: moe or parallel_blocks is set in block_configs, which is not supported",
                         r->path);
    if (status || json_bool(r, "no_op", false)) return status;
    const double times = json_real(r, "ffn_mult", 0, 0, 1e3);
    const int64_t scaled = (int64_t)(2 * times * hidden_size / 3), whole = div_up(scaled, 256) * 256;
    shape->intermediate_size = json_find(r, "intermediate_size") || whole == 0
                                   ? hf_size(r, "intermediate_size", 0)
                                   : (int32_t)min_of(whole, (int64_t)INT32_MAX);
    return r->status;
}

/* Of DeciLM 6B and 7B, whose layers differ in their K/V heads alone. */
static int read_listed_kv_heads(struct json_reader *r, const cJSON *list, struct model_config *c)
{
    const int32_t num_layers = c->num_layers, width = c->intermediate_size;
    const cJSON *item;
    int64_t own;
    int status = STATUS_OK;
    if (cJSON_GetArraySize(list) != num_layers)
        return error_set(r->err, STATUS_INVALID,
                         "%s: num_key_value_heads_per_layer has %d entries for %d layers", r->path,
                         cJSON_GetArraySize(list), num_layers);
    c->num_layers = c->num_kv_heads = c->intermediate_size = 0;
    cJSON_ArrayForEach(item, list)
    {
        const bool is_good =
            json_is_int(item, &own) && own >= 1 && own <= c->num_heads && c->num_heads % own == 0;
        if (status) break;
        status =
            is_good
                ? model_config_add_layer(c, (struct layer_shape){(int32_t)own, width}, false, r->path, r->err)
                : error_set(r->err, STATUS_INVALID,
                            "%s: num_key_value_heads_per_layer is no list of parts of %d attention heads",
                            r->path, c->num_heads);
    }
    return status;
}

int hf_read_layer_shapes(struct json_reader *r, struct model_config *c)
{
    const cJSON *list = json_find(r, "block_configs"),
                *kv_heads = json_find(r, "num_key_value_heads_per_layer"), *item;
    const int32_t num_layers = c->num_layers;
    int status = STATUS_OK;
    if (!c->family->has_layer_shapes) return r->status;
    if (!list && cJSON_IsArray(kv_heads)) return read_listed_kv_heads(r, kv_heads, c);
    if (cJSON_GetArraySize(list) != num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: block_configs has %d entries for %d layers", r->path,
                         cJSON_GetArraySize(list), num_layers);
    c->num_layers = c->num_kv_heads = c->intermediate_size = 0;
    cJSON_ArrayForEach(item, list)
    {
        struct json_reader attention = *r, mlp = *r;
        struct layer_shape shape = {0, 0};
        bool is_replaced = false;
        attention.object = cJSON_GetObjectItemCaseSensitive(item, "attention");
        mlp.object = cJSON_GetObjectItemCaseSensitive(item, "ffn");
        if (!status) status = read_attention_shape(&attention, c->num_heads, &shape, &is_replaced);
        if (!status) status = read_mlp_shape(&mlp, c->hidden_size, &shape);
        if (!status) status = model_config_add_layer(c, shape, is_replaced, r->path, r->err);
    }
    return status;
}

/* Older files have a number for true. */
void hf_read_temperature(struct json_reader *r, struct model_config *c)
{
    const cJSON *item = json_find(r, "attn_temperature_tuning");
    if (!c->family->has_temperature) return;
    bool is_on =
        cJSON_IsNumber(item) ? item->valuedouble != 0 : json_bool(r, "attn_temperature_tuning", true);
    if (!is_on) return;
    c->temperature_scale = (float)json_real(r, "attn_scale", 0.1, -1e6, 1e6);
    c->temperature_floor = (int32_t)json_int(r, "floor_scale", 8192, 1, INT32_MAX);
}
