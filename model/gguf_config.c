#include "model/gguf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "files/file_map.h"
#include "files/gguf.h"
#include "model/pooling_config.h"

enum { KEY_BYTES_MAX = 96 };

/* Looks keys up under the architecture's name; the first problem is kept in status. */
struct keys {
    const struct gguf *gguf;
    const char *path, *architecture;
    struct error *err;
    int status;
};

struct key_name {
    char text[KEY_BYTES_MAX];
};

static struct key_name key_name(const struct keys *k, const char *suffix)
{
    struct key_name name;
    int n = snprintf(name.text, sizeof name.text, "%s.%s", k->architecture, suffix);
    assert_always(n > 0 && n < KEY_BYTES_MAX); /* both are names in this program */
    return name;
}

#define fail(k, code, format, ...)                                                                           \
    ((k)->status ? (k)->status                                                                               \
                 : ((k)->status = error_set((k)->err, code, "%s: " format, (k)->path, ##__VA_ARGS__)))

static bool find_int(const struct keys *k, const char *suffix, int64_t *value)
{
    return gguf_find_int(k->gguf, key_name(k, suffix).text, value);
}

static bool find_real(const struct keys *k, const char *suffix, double *value)
{
    return gguf_find_real(k->gguf, key_name(k, suffix).text, value);
}

static bool find_text(const struct keys *k, const char *suffix, const char **text, size_t *num_bytes)
{
    return gguf_find_text(k->gguf, key_name(k, suffix).text, text, num_bytes);
}

static bool text_is(const char *text, size_t num_bytes, const char *wanted)
{
    return num_bytes == strlen(wanted) && !memcmp(text, wanted, num_bytes);
}

static int32_t required_int(struct keys *k, const char *suffix)
{
    int64_t value = 0;
    if (!find_int(k, suffix, &value))
        fail(k, STATUS_INVALID, "the key %s is missing", key_name(k, suffix).text);
    else if (value < 1 || value > INT32_MAX)
        fail(k, STATUS_INVALID, "the key %s has the impossible value %" PRId64, key_name(k, suffix).text,
             value);
    return k->status ? 1 : (int32_t)value;
}

/* A number, or a list with one number a layer, which must then be all the same. */
static int32_t int_of_all_layers(struct keys *k, const char *suffix, int32_t fallback)
{
    struct gguf_array array;
    int64_t first, other;
    if (!gguf_find_array(k->gguf, key_name(k, suffix).text, &array))
        return find_int(k, suffix, &first) || !fallback ? required_int(k, suffix) : fallback;
    if (!gguf_array_next_int(&array, &first) || first < 1 || first > INT32_MAX) {
        fail(k, STATUS_INVALID, "the key %s is no list of possible numbers", key_name(k, suffix).text);
        return 1;
    }
    while (gguf_array_next_int(&array, &other))
        if (other != first)
            fail(k, STATUS_UNSUPPORTED, "the key %s differs from layer to layer, which is not supported",
                 key_name(k, suffix).text);
    return (int32_t)first;
}

/* A number for all layers, or a list that has one for each; 0: of none. The next of it. */
struct layer_ints {
    struct gguf_array list;
    bool is_list;
    int64_t of_all;
};

static struct layer_ints layer_ints(struct keys *k, const char *suffix)
{
    struct layer_ints ints = {.is_list = gguf_find_array(k->gguf, key_name(k, suffix).text, &ints.list)};
    if (!ints.is_list) ints.of_all = required_int(k, suffix);
    return ints;
}

static int32_t next_int(struct keys *k, const char *suffix, struct layer_ints *ints)
{
    int64_t own = ints->of_all;
    const bool is_there = !ints->is_list || gguf_array_next_int(&ints->list, &own);
    if (is_there && own >= 0 && own <= INT32_MAX) return (int32_t)own;
    fail(k, STATUS_INVALID, "the key %s is no list of possible numbers", key_name(k, suffix).text);
    return 0;
}

/* A list with 0 for each layer of none, and one number for all others, which is given back; 1 where there are no others. */
static int32_t int_of_some_layers(struct keys *k, const char *suffix, int32_t num_layers,
                                  uint64_t *layers_of_none)
{
    struct layer_ints ints = {.is_list = true};
    int32_t number = 0;
    const bool is_list = gguf_find_array(k->gguf, key_name(k, suffix).text, &ints.list);
    if (!is_list || ints.list.num_items < (uint64_t)num_layers)
        fail(k, STATUS_INVALID, "the key %s has too few numbers", key_name(k, suffix).text);
    for (int32_t i = 0; i < num_layers && !k->status; i++) {
        const int32_t own = next_int(k, suffix, &ints);
        if (own == 0 && !k->status)
            bit_set_add(layers_of_none, (size_t)i);
        else if (number == 0)
            number = own;
        else if (own != number)
            fail(k, STATUS_UNSUPPORTED, "the key %s differs from layer to layer, which is not supported",
                 key_name(k, suffix).text);
    }
    return number > 0 ? number : 1;
}

/* Of families with a state space or a short convolution a list, in which layers that have one have 0. */
static int32_t read_kv_heads(struct keys *k, struct model_config *c)
{
    const char *suffix = "attention.head_count_kv";
    struct gguf_array array;
    if (c->family->delta_kind == DELTA_RULE || !gguf_find_array(k->gguf, key_name(k, suffix).text, &array))
        return int_of_all_layers(k, suffix, c->num_heads);
    return int_of_some_layers(k, suffix, c->num_layers, c->stateful_layers);
}

/* Of DeciLM: a layer without heads has no attention, one without K/V heads a product in its place, one of no width no MLP. */
static void read_layer_shapes(struct keys *k, struct model_config *c)
{
    static const char *const names[] = {"attention.head_count", "attention.head_count_kv",
                                        "feed_forward_length"};
    const int32_t num_layers = c->num_layers;
    struct layer_ints ints[array_length(names)];
    for (size_t i = 0; i < array_length(names); i++) ints[i] = layer_ints(k, names[i]);
    c->num_layers = c->num_heads = 0;
    for (int32_t i = 0; i < num_layers && !k->status; i++) {
        const int32_t heads = next_int(k, names[0], &ints[0]), kv_heads = next_int(k, names[1], &ints[1]);
        const struct layer_shape shape = {heads > 0 ? kv_heads : 0, next_int(k, names[2], &ints[2])};
        if (heads > 0 && c->num_heads > 0 && heads != c->num_heads)
            fail(k, STATUS_UNSUPPORTED,
                 "the key %s differs between layers with attention, which is not supported",
                 key_name(k, names[0]).text);
        c->num_heads = max_of(c->num_heads, heads);
        if (!k->status)
            k->status = model_config_add_layer(c, shape, heads > 0 && kv_heads == 0, k->path, k->err);
    }
    c->num_heads = max_of(c->num_heads, 1);
}

/* Layers with K and V have attention, those that are as wide as an MLP are one, or all are experts; others have a state. */
static int read_blocks(struct keys *k, struct model_config *c)
{
    int64_t num_experts = 0;
    uint64_t without_kv[LAYERS_MAX / 64] = {0}, without_mlp[LAYERS_MAX / 64] = {0};
    const int32_t num_blocks = c->num_layers;
    c->num_kv_heads = int_of_some_layers(k, "attention.head_count_kv", num_blocks, without_kv);
    c->intermediate_size = int_of_some_layers(k, "feed_forward_length", num_blocks, without_mlp);
    c->num_layers = 0;
    find_int(k, "expert_count", &num_experts);
    for (size_t i = 0; i < (size_t)num_blocks && !k->status; i++) {
        const bool has_kv = !bit_set_has(without_kv, i), is_mlp = !bit_set_has(without_mlp, i);
        if (has_kv && is_mlp)
            return fail(k, STATUS_UNSUPPORTED,
                        "a layer has both attention and an MLP, which is not supported");
        const enum layer_block mlp = num_experts > 0 ? BLOCK_EXPERTS : BLOCK_MLP,
                               other = is_mlp ? mlp : BLOCK_STATE;
        k->status = model_config_add_block(c, has_kv ? BLOCK_ATTENTION : other, k->path, k->err);
    }
    return k->status;
}

static int find_architecture(struct keys *k, const struct family **out)
{
    const char *text;
    size_t num_bytes;
    if (!gguf_find_text(k->gguf, "general.architecture", &text, &num_bytes))
        return fail(k, STATUS_INVALID, "the key general.architecture is missing");
    k->status = family_find(NAMES_GGUF, text, num_bytes, k->path, out, k->err);
    if (!k->status) k->architecture = (*out)->names[NAMES_GGUF];
    return k->status;
}

/* Keys that change the mathematics into something that is not computed here, unless they are 0 or 1. */
static int check_unsupported(struct keys *k, const struct family *family)
{
    const struct {
        const char *name;
        bool is_read;
    } keys[] = {
        {"attention.sliding_window_pattern", family->full_layer_period > 0 || family->only_windows_rotate},
        {"expert_count", family->has_experts || family->gguf_may_have_experts},
        {"attention.clamp_kqv", family->may_clip_qkv},
        {"attention.max_alibi_bias", family->has_alibi},
        {"attn_logit_softcapping", family->has_softcaps},
        {"final_logit_softcapping",
         family->has_softcaps || family->logit_softcap > 0 || family->may_cap_logits},
        {"attention.scale", family->has_multipliers},
        {"residual_scale", family->has_multipliers || family->has_depth_scale},
        {"embedding_scale", family->has_multipliers || family->has_depth_scale},
        {"logit_scale", family->has_multipliers || family->has_depth_scale || family->has_logit_scale},
        {"attention.temperature_scale", family->scales_queries},
        {"rope.scaling.yarn_log_multiplier", family->latent_attention},
        {"expert_group_count", family->latent_attention || family->router_scores == ROUTER_SIGMOID},
        {"moe_latent_size", family->mlps_are_layers},
    };
    double value;
    struct gguf_array array;
    for (size_t i = 0; i < array_length(keys); i++)
        if (!keys[i].is_read && ((find_real(k, keys[i].name, &value) && value != 0 && value != 1) ||
                                 gguf_find_array(k->gguf, key_name(k, keys[i].name).text, &array)))
            return fail(k, STATUS_UNSUPPORTED, "the key %s is set, which is not supported",
                        key_name(k, keys[i].name).text);
    return STATUS_OK;
}

/* Such files say nothing of chunks but that there are none. */
static void take_chunks(struct model_config *c, bool has_none)
{
    c->sliding_window = has_none ? 0 : 8192;
    c->windows_are_chunks = !has_none;
    if (has_none || !c->family->has_temperature) return;
    c->temperature_scale = 0.1f;
    c->temperature_floor = 8192;
}

static bool has_layer_tensor(const struct keys *k, int64_t layer, const char *tensor)
{
    char name[KEY_BYTES_MAX];
    snprintf(name, sizeof name, "blk.%" PRId64 ".%s", layer, tensor);
    return gguf_find_tensor(k->gguf, name).data;
}

/* Sizes of heads, and how many have K and V: of those that keep latents the file says both what is kept and what it stands
 * for (..._mla), or, if it is older, the latter alone. */
static int read_latent(struct keys *k, struct model_config *c)
{
    int64_t ignored, first = 0; /* of the layers with attention */
    while (first + 1 < c->num_layers && bit_set_has(c->stateful_layers, (size_t)first)) first++;
    const bool has_both = find_int(k, "attention.key_length_mla", &ignored);
    const int32_t key_dim = required_int(k, has_both ? "attention.key_length_mla" : "attention.key_length");
    const bool has_none = c->family->has_depth_scale && !find_int(k, "attention.value_length", &ignored);
    c->latent =
        (struct latent_config){.rank = required_int(k, "attention.kv_lora_rank"),
                               .q_rank = find_int(k, "attention.q_lora_rank", &ignored) && ignored != 0
                                             ? required_int(k, "attention.q_lora_rank")
                                             : 0,
                               .rotary_dim = required_int(k, "rope.dimension_count"),
                               .value_dim = has_none ? max_of(c->hidden_size / c->num_heads, 1)
                                                     : required_int(k, has_both ? "attention.value_length_mla"
                                                                                : "attention.value_length"),
                               .is_split = has_layer_tensor(k, first, "attn_k_b.weight")};
    c->latent.plain_dim = key_dim - c->latent.rotary_dim;
    if (c->latent.plain_dim < 1)
        return fail(k, STATUS_INVALID, "heads have %d values, of which %d are rotated", key_dim,
                    c->latent.rotary_dim);
    model_config_take_latent(c);
    return k->status;
}

static void read_head_dim(struct keys *k, struct model_config *c)
{
    int64_t value_length;
    c->head_dim = find_int(k, "attention.key_length", &value_length) ? required_int(k, "attention.key_length")
                                                                     : c->hidden_size / c->num_heads;
    if (find_int(k, "attention.value_length", &value_length) && value_length != c->head_dim)
        fail(k, STATUS_UNSUPPORTED,
             "keys have %d values a head and values %" PRId64 "; only equal ones are supported", c->head_dim,
             value_length);
}

/* Of RMSNorm, of LayerNorm; Nemotron-H's RMSNorm has LayerNorm's key, or its own, and Phi-3.5-MoE's LayerNorm RMSNorm's. */
static int read_norm_eps(struct keys *k, struct model_config *c)
{
    static const char *const keys[] = {"attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"};
    const bool is_layer_norm = c->family->has_embedding_norm || c->family->has_layer_norm;
    const bool has_other_key = c->family->mlps_are_layers || c->family->router_scores == ROUTER_SPARSE;
    const size_t first = is_layer_norm || has_other_key ? 0 : 1,
                 last = is_layer_norm && !has_other_key ? 0 : 1;
    double eps = 0;
    for (size_t i = first; i <= last; i++)
        if (find_real(k, keys[i], &eps)) {
            c->rms_norm_eps = (float)eps;
            return k->status;
        }
    return fail(k, STATUS_INVALID, "the key %s is missing", key_name(k, keys[first]).text);
}

/* Which layers have the window is a period, a list of booleans, or not said. */
static int read_layers(struct keys *k, struct model_config *c)
{
    const struct family *family = c->family;
    struct gguf_array list;
    int64_t period = family->has_chunks ? family->unrotated_layer_period : family->full_layer_period, value;
    bool all_rotate = family->has_chunks && !c->windows_are_chunks;
    find_int(k, "attention.sliding_window_pattern", &period);
    bool has_list = gguf_find_array(k->gguf, key_name(k, "attention.sliding_window_pattern").text, &list);
    if (period < 0 || period > INT32_MAX || (has_list && list.num_items < (uint64_t)c->num_layers))
        return fail(k, STATUS_INVALID, "the key %s is impossible",
                    key_name(k, "attention.sliding_window_pattern").text);
    for (size_t i = 0; has_list && i < (size_t)c->num_layers; i++) {
        if (!gguf_array_next_int(&list, &value))
            return fail(k, STATUS_INVALID, "the key %s is no list of booleans",
                        key_name(k, "attention.sliding_window_pattern").text);
        if (value) bit_set_add(c->windowed_layers, i);
    }
    if (c->sliding_window && !has_list) model_config_add_windows(c, (int32_t)period);
    for (int32_t i = family->unrotated_layer_period - 1;
         family->unrotated_layer_period && !all_rotate && i < c->num_layers;
         i += family->unrotated_layer_period)
        bit_set_add(c->unrotated_layers, (size_t)i);
    model_config_take_windows(c);
    if (family->has_prefix_size) model_config_rotate_dense_layers(c);
    return k->status;
}

/* A number for all layers, or a list that has one for those of a set and another for all others. */
static void ints_of_kinds(struct keys *k, const char *suffix, int32_t num_layers, const uint64_t *set,
                          int32_t *of_set, int32_t *of_others)
{
    struct gguf_array list;
    if (!gguf_find_array(k->gguf, key_name(k, suffix).text, &list)) {
        *of_set = *of_others = required_int(k, suffix);
        return;
    }
    *of_set = *of_others = 0;
    for (size_t i = 0; i < (size_t)num_layers && !k->status; i++) {
        int64_t own;
        int32_t *of = bit_set_has(set, i) ? of_set : of_others;
        if (!gguf_array_next_int(&list, &own) || own < 1 || own > INT32_MAX)
            fail(k, STATUS_INVALID, "the key %s is no list of possible numbers", key_name(k, suffix).text);
        else if (*of != 0 && *of != own)
            fail(k, STATUS_UNSUPPORTED,
                 "the key %s differs between layers of one kind, which is not supported",
                 key_name(k, suffix).text);
        else
            *of = (int32_t)own;
    }
    if (*of_set == 0) *of_set = *of_others;
    if (*of_others == 0) *of_others = *of_set;
}

/* What a token adds to each layer, and the last layers, which have no K and V. */
static void read_layer_embeddings(struct keys *k, struct model_config *c)
{
    const struct weight_view table = gguf_find_tensor(k->gguf, "per_layer_token_embd.weight");
    int64_t num_sharing = 0, dim = 0;
    find_int(k, "attention.shared_kv_layers", &num_sharing);
    find_int(k, "embedding_length_per_layer_input", &dim);
    c->num_kv_sharing_layers = (int32_t)min_of(max_of(num_sharing, (int64_t)0), (int64_t)c->num_layers);
    c->layer_embedding_dim = (int32_t)min_of(max_of(dim, (int64_t)0), (int64_t)INT32_MAX);
    c->layer_vocab_size = (int32_t)min_of(table.rows, (int64_t)INT32_MAX);
}

/* Of each layer how many deviations its gates begin above their mean; none, -infinity: it has all. */
static void read_sparse_gates(struct keys *k, struct model_config *c)
{
    const char *suffix = "activation_sparsity_scale";
    struct gguf_array list;
    bool is_first = true;
    double own;
    if (!gguf_find_array(k->gguf, key_name(k, suffix).text, &list)) return;
    for (size_t i = 0; i < (size_t)c->num_layers && !k->status; i++) {
        if (!gguf_array_next_real(&list, &own))
            fail(k, STATUS_INVALID, "the key %s is no list of possible numbers", key_name(k, suffix).text);
        else if (own == -INFINITY)
            continue;
        else if (!is_first && (float)own != c->gate_cut)
            fail(k, STATUS_UNSUPPORTED,
                 "the key %s differs between layers that have it, which is not supported",
                 key_name(k, suffix).text);
        c->gate_cut = (float)own;
        bit_set_add(c->sparse_gates, i);
        is_first = false;
    }
}

/* Of Gemma 3n. The rank of what is added beside attention has no key. */
static void read_altup(struct keys *k, struct model_config *c)
{
    int64_t num_streams = ALTUP_STREAMS, active = 0;
    const struct weight_view narrow = gguf_find_tensor(k->gguf, "blk.0.laurel_l.weight");
    find_int(k, "altup.num_inputs", &num_streams);
    find_int(k, "altup.active_idx", &active);
    if (num_streams != ALTUP_STREAMS || active != 0)
        fail(k, STATUS_UNSUPPORTED,
             "AltUp with other streams than %d, of which the first is computed with, is not supported",
             ALTUP_STREAMS);
    c->laurel_rank = (int32_t)min_of(narrow.rows, (int64_t)INT32_MAX);
    read_layer_embeddings(k, c);
    read_sparse_gates(k, c);
    c->intermediate_size = c->sharing_intermediate_size = int_of_all_layers(k, "feed_forward_length", 0);
    c->num_kv_heads = read_kv_heads(k, c);
}

/* Of Gemma 4: the last layers may have wider MLPs, and those with a window, which a list tells, other K/V heads. */
static void read_differing_layers(struct keys *k, struct model_config *c)
{
    uint64_t sharing[LAYERS_MAX / 64] = {0};
    read_layer_embeddings(k, c);
    for (int32_t i = max_of(c->num_layers - c->num_kv_sharing_layers, 0); i < c->num_layers; i++)
        bit_set_add(sharing, (size_t)i);
    c->sliding_window = required_int(k, "attention.sliding_window");
    if (k->status || read_layers(k, c)) return;
    ints_of_kinds(k, "feed_forward_length", c->num_layers, sharing, &c->sharing_intermediate_size,
                  &c->intermediate_size);
    ints_of_kinds(k, "attention.head_count_kv", c->num_layers, c->windowed_layers,
                  &c->window_heads.num_kv_heads, &c->num_kv_heads);
    for (int32_t i = 0; i < c->num_layers - c->num_kv_sharing_layers; i++)
        c->v_is_k |= !bit_set_has(c->windowed_layers, (size_t)i) && !has_layer_tensor(k, i, "attn_v.weight");
}

/* Of Laguna: layers with a window may have other heads of Q; as many gates as their product has rows. */
static void read_layer_heads(struct keys *k, struct model_config *c)
{
    int64_t window = 0;
    find_int(k, "attention.sliding_window", &window);
    c->sliding_window = (int32_t)min_of(max_of(window, (int64_t)0), (int64_t)INT32_MAX);
    if (read_layers(k, c)) return;
    ints_of_kinds(k, "attention.head_count", c->num_layers, c->windowed_layers, &c->num_window_heads,
                  &c->num_heads);
    if (c->sliding_window == 0) c->num_window_heads = 0;
    c->gates_by_head = gguf_find_tensor(k->gguf, "blk.0.attn_gate.weight").rows == c->num_heads;
}

static void read_window_head_dim(struct keys *k, struct model_config *c)
{
    int64_t v_dim = c->window_heads.head_dim = required_int(k, "attention.key_length_swa");
    find_int(k, "attention.value_length_swa", &v_dim);
    if (v_dim == c->window_heads.head_dim) return;
    fail(k, STATUS_UNSUPPORTED,
         "keys have %d values a head and values %" PRId64 "; only equal ones are supported",
         c->window_heads.head_dim, v_dim);
}

/* Heads, and widths of MLPs. */
static void read_layer_sizes(struct keys *k, struct model_config *c)
{
    if (c->family->has_layer_shapes) {
        read_layer_shapes(k, c);
        return;
    }
    if (c->family->has_states_alone) { /* what a file has is 0 */
        c->num_heads = c->family->num_heads;
        c->num_kv_heads = c->family->num_kv_heads;
        c->head_dim = c->family->head_dim;
        c->intermediate_size = 1;
        return;
    }
    if (c->family->has_layer_heads)
        read_layer_heads(k, c);
    else
        c->num_heads = int_of_all_layers(k, "attention.head_count", 0);
    if (c->family->mlps_are_layers)
        read_blocks(k, c);
    else if (c->family->has_global_heads)
        read_differing_layers(k, c);
    else if (c->family->has_altup)
        read_altup(k, c);
    else {
        c->intermediate_size = int_of_all_layers(k, "feed_forward_length", 0);
        c->num_kv_heads = read_kv_heads(k, c);
    }
}

/* Of the MLP's gate. Older files say nothing, and mean SiLU. */
static int read_activation(struct keys *k, struct model_config *c)
{
    const char *name = "silu";
    size_t num_bytes = strlen(name);
    c->gate = c->family->gate;
    if (!c->family->may_have_silu) return k->status;
    (void)find_text(k, "hidden_activation", &name, &num_bytes);
    if (num_bytes == 4 && !memcmp(name, "silu", 4))
        c->gate = GATE_SILU;
    else if (num_bytes != 5 || memcmp(name, "relu2", 5) != 0)
        return fail(k, STATUS_UNSUPPORTED, "the key %s is \"%s\", which is not supported; silu and relu2 are",
                    key_name(k, "hidden_activation").text, printable_from(name, num_bytes).text);
    return k->status;
}

static int read_shape(struct keys *k, struct model_config *c)
{
    int64_t window = 0, num_guessing;
    if (read_activation(k, c)) return k->status;
    if (c->family->if_parallel && !has_layer_tensor(k, 0, "ffn_norm.weight")) /* whatever a key says */
        c->family = c->family->if_parallel;
    c->is_parallel = c->family->is_parallel;
    if (!c->family->if_parallel && weight_may_be(c->family->weight_changes, WEIGHT_MLP_NORM))
        (void)gguf_find_bool(k->gguf, key_name(k, "use_parallel_residual").text, &c->is_parallel);
    c->hidden_size = required_int(k, "embedding_length");
    c->num_layers = required_int(k, "block_count");
    if (!k->status) k->status = model_config_check_num_layers(c, k->path, k->err);
    if (k->status) return k->status;
    /* the last ones may be there to guess tokens ahead, and are not run */
    if (find_int(k, "nextn_predict_layers", &num_guessing) && num_guessing > 0 &&
        num_guessing < c->num_layers)
        c->num_layers -= (int32_t)num_guessing;
    read_layer_sizes(k, c);
    c->max_position_embeddings = required_int(k, "context_length");
    if (read_norm_eps(k, c)) return k->status;
    if (c->family->intermediate_is_of_both) k->status = model_config_halve_intermediate(c, k->path, k->err);
    if (k->status) return k->status;
    assert_debug(c->num_heads > 0); /* also after a problem */
    if (c->family->latent_attention)
        read_latent(k, c);
    else
        read_head_dim(k, c);
    if (c->family->has_global_heads) read_window_head_dim(k, c);
    if (k->status) return k->status;
    bool has_window = find_int(k, "attention.sliding_window", &window);
    if ((c->family->window == WINDOW_HALF || c->family->window == WINDOW_LOCAL) && window > 0)
        window = window / 2 + 1;
    if (window > 0 && window <= INT32_MAX) c->sliding_window = (int32_t)window;
    if (c->family->has_chunks) take_chunks(c, has_window && window == 0);
    return k->status;
}

static void read_multiplier(struct keys *k, const char *suffix, float *out)
{
    double value;
    if (find_real(k, suffix, &value) && value != 0) *out = (float)value;
}

static void read_multipliers(struct keys *k, struct model_config *c)
{
    const struct family *family = c->family;
    float logit_divisor = 1;
    if (family->has_depth_scale) { /* older files, and all of MiniCPM 3, say nothing */
        c->embedding_scale = 12;
        c->residual_scale = (float)(1.4 / sqrt((double)c->num_layers));
        logit_divisor = (float)c->hidden_size / 256;
    }
    read_multiplier(k, "attention.scale", &c->attention_scale);
    if (family->may_clip_qkv) read_multiplier(k, "attention.clamp_kqv", &c->qkv_clip);
    if (family->has_alibi) read_multiplier(k, "attention.max_alibi_bias", &c->alibi_most);
    read_multiplier(k, "embedding_scale", &c->embedding_scale);
    read_multiplier(k, "residual_scale", &c->residual_scale);
    read_multiplier(k, "logit_scale", &logit_divisor);
    c->logit_scale = family->has_logit_scale ? logit_divisor : 1 / logit_divisor;
    if (family->logit_softcap > 0) c->logit_softcap = (float)family->logit_softcap;
    if (family->logit_softcap > 0 || family->may_cap_logits)
        read_multiplier(k, "final_logit_softcapping", &c->logit_softcap);
    if (family->has_softcaps) {
        c->attention_softcap = 50;
        c->logit_softcap = 30;
        read_multiplier(k, "attn_logit_softcapping", &c->attention_softcap);
        read_multiplier(k, "final_logit_softcapping", &c->logit_softcap);
    }
    if (c->num_layers == family->gguf_head_scalar_layers)
        c->attention_scale = (float)(1 / sqrt((double)c->hidden_size / c->num_heads));
}

/* Files of GLM-4.7-Flash do not say that scores are sigmoids: those that are have a bias. */
static bool has_router_bias(const struct keys *k, const struct model_config *c)
{
    int64_t first = 0;
    find_int(k, "leading_dense_block_count", &first);
    return first >= 0 && first < c->num_layers && has_layer_tensor(k, first, "exp_probs_b.bias");
}

/* How experts are chosen. */
static int read_choice(struct keys *k, struct model_config *c)
{
    enum { TELLS_SOFTMAX = 1, TELLS_SIGMOID = 2 };
    int64_t scores = 0, num_groups;
    c->router_scores = c->family->router_scores;
    c->has_router_bias = c->family->has_router_bias;
    if (c->router_scores == ROUTER_SPARSE) c->router_near = 2 * 0.01f; /* as published */
    find_int(k, "expert_gating_func", &scores);
    if (scores == 0 && c->family->gguf_tells_scores && has_router_bias(k, c)) scores = TELLS_SIGMOID;
    if (c->family->gguf_tells_scores && scores == TELLS_SIGMOID) {
        c->router_scores = ROUTER_SIGMOID;
        c->has_router_bias = true;
    }
    if (c->family->has_prefix_size) /* Cohere's, with no bias either way */
        c->router_scores = scores == TELLS_SOFTMAX ? ROUTER_SOFTMAX : ROUTER_SIGMOID;
    if (c->router_scores == ROUTER_SPARSE && c->num_chosen_experts != 2)
        return fail(k, STATUS_UNSUPPORTED, "the key %s is not supported unless it is 2",
                    key_name(k, "expert_used_count").text);
    if (scores != 0 && scores != (c->router_scores == ROUTER_SIGMOID ? TELLS_SIGMOID : TELLS_SOFTMAX))
        return fail(k, STATUS_UNSUPPORTED, "the key %s is %" PRId64 ", which is not supported",
                    key_name(k, "expert_gating_func").text, scores);
    if (!find_int(k, "expert_group_count", &num_groups) || num_groups < 2) return k->status;
    c->num_expert_groups = required_int(k, "expert_group_count");
    c->num_chosen_expert_groups = required_int(k, "expert_group_used_count");
    return k->status;
}

/* Nomic's. */
static int read_second_layers(struct keys *k, struct model_config *c)
{
    const int32_t period = required_int(k, "moe_every_n_layers");
    if (period < 2)
        return fail(k, STATUS_UNSUPPORTED, "the key %s is supported from 2 on",
                    key_name(k, "moe_every_n_layers").text);
    model_config_add_second_layers(c, period);
    return k->status;
}

static int read_experts(struct keys *k, struct model_config *c)
{
    int64_t num = 0, first = 0, step = 1, shared = 0, num_shared = 0, num_latents;
    double scale = 1;
    find_int(k, "expert_count", &num);
    if (c->family->mlps_are_layers && !model_config_has_sparse_layers(c)) return k->status;
    if (num == 0 &&
        (!c->family->has_experts || c->family->experts_may_be_none || c->family->mlp_beside_experts))
        return k->status;
    for (int64_t i = 0; i < c->num_layers && c->family->has_layer_periods; i++)
        if (has_layer_tensor(k, i, "ffn_gate_inp.weight")) bit_set_add(c->sparse_layers, (size_t)i);
    if (c->family->has_layer_periods && !model_config_has_sparse_layers(c)) return k->status;
    c->num_experts = required_int(k, "expert_count");
    c->num_chosen_experts = required_int(k, "expert_used_count");
    int64_t width = c->intermediate_size;
    find_int(k, "expert_feed_forward_length", &width);
    find_int(k, "expert_shared_count", &num_shared);
    shared = num_shared >= 0 && num_shared < 1024 && width < INT32_MAX ? num_shared * width : 0;
    if (c->family->has_shared_weight) shared = c->intermediate_size;
    if (c->family->has_dense_size) shared = width;
    find_int(k, "expert_shared_feed_forward_length", &shared);
    if (find_int(k, "moe_latent_size", &num_latents) && num_latents != 0)
        c->expert_hidden_size = required_int(k, "moe_latent_size");
    const bool tells_first = find_int(k, "leading_dense_block_count", &first);
    find_int(k, "interleave_moe_layer_step", &step);
    find_real(k, "expert_weights_scale", &scale);
    if (read_choice(k, c)) return k->status;
    c->expert_intermediate_size = (int32_t)min_of(max_of(width, (int64_t)0), (int64_t)INT32_MAX);
    c->shared_intermediate_size = (int32_t)min_of(max_of(shared, (int64_t)0), (int64_t)INT32_MAX);
    c->router_scale = scale == 0 ? 1 : (float)scale;
    c->router_normalizes = c->family->gguf_router_normalizes;
    (void)gguf_find_bool(k->gguf, key_name(k, "expert_weights_norm").text, &c->router_normalizes);
    if (c->family->has_prefix_size) {
        if (num_shared != 0)
            return fail(k, STATUS_UNSUPPORTED,
                        "shared experts that are averaged with the others are not supported");
        c->router_normalizes |= c->router_scores == ROUTER_SOFTMAX; /* of those chosen alone */
    }
    if (c->family->has_layer_periods) return k->status; /* they are known */
    if (find_int(k, "moe_every_n_layers", &step)) return read_second_layers(k, c);
    /* files of Hy3 do not say that the first layer has none */
    for (int64_t i = max_of(first, (int64_t)0); i < c->num_layers && !c->family->mlps_are_layers; i++)
        if ((step < 2 || (i + 1) % step == 0) &&
            (tells_first || i > 0 || has_layer_tensor(k, i, "ffn_gate_inp.weight")))
            bit_set_add(c->sparse_layers, (size_t)i);
    return k->status;
}

/* The class whose head a file of an encoder that ranks has; NULL: none that is known. */
static const char *scoring_class(const struct keys *k, const struct family *family)
{
    const char *tokenizer = "";
    size_t num_bytes = 0;
    if (weight_may_be(family->weight_changes, WEIGHT_POSITION_EMBEDDING)) {
        gguf_find_text(k->gguf, "tokenizer.ggml.model", &tokenizer, &num_bytes);
        return text_is(tokenizer, num_bytes, "bert") ? "BertForSequenceClassification"
                                                     : "XLMRobertaForSequenceClassification";
    }
    return family->window == WINDOW_LOCAL ? "ModernBertForSequenceClassification" : NULL;
}

/* A file of an encoder ranks where it says so, or has a head and says nothing. The converter drops the first product of BERT's own. */
static int take_score_head(struct keys *k, struct model_config *c)
{
    const struct weight_view out = gguf_find_tensor(k->gguf, "cls.output.weight");
    bool ranks = false;
    int64_t ignored;
    if (!c->family->is_encoder) return k->status;
    (void)pooling_config_read_gguf(k->gguf, k->architecture, POOLING_MEAN, &ranks);
    if (!ranks && (!out.data || find_int(k, "pooling_type", &ignored))) return k->status;
    const char *class = scoring_class(k, c->family);
    if (!class)
        return fail(k, STATUS_UNSUPPORTED, "a reranker of the architecture %s is not supported",
                    k->architecture);
    if (!out.data || !gguf_find_tensor(k->gguf, "cls.weight").data)
        return fail(k, STATUS_UNSUPPORTED, "a reranker without the tensor %s is not supported",
                    out.data ? "cls.weight" : "cls.output.weight");
    if (out.rows != 1 && out.cols != 1)
        return fail(k, STATUS_UNSUPPORTED,
                    "a head of %" PRId64 " labels is not supported; one of 1 is, which scores pairs of texts",
                    out.rows);
    return family_find(NAMES_HF_CLASS, class, strlen(class), k->path, &c->family, k->err);
}

/* Tables that are added to embeddings have as many rows as they have. */
static int read_tables(struct keys *k, struct model_config *c)
{
    const bool has_positions = weight_may_be(c->family->weight_changes, WEIGHT_POSITION_EMBEDDING),
               has_types = weight_may_be(c->family->weight_changes, WEIGHT_TYPE_EMBEDDING);
    const struct weight_view positions = gguf_find_tensor(k->gguf, "position_embd.weight"),
                             types = gguf_find_tensor(k->gguf, "token_types.weight");
    if ((has_positions && !positions.data) || (has_types && !types.data) || positions.rows > INT32_MAX ||
        types.rows > INT32_MAX)
        return fail(k, STATUS_INVALID, "the tensor position_embd.weight or token_types.weight is missing");
    if (has_positions) c->num_position_rows = (int32_t)positions.rows;
    if (has_types) c->num_type_rows = (int32_t)types.rows;
    c->has_second_type =
        c->family->scores_pairs && c->num_type_rows > 1 && !c->family->positions_follow_padding;
    /* no file says what the head gets: of ModernBERT's class it is the mean, as in GTE's */
    if (weight_may_be(c->family->weight_changes, WEIGHT_HEAD_NORM)) c->score_pooling = POOLING_MEAN;
    return k->status;
}

/* What ModernBERT's relatives may have in the place of its function. */
static int check_activation(struct keys *k, const struct family *family)
{
    const char *name, *own = "gelu";
    size_t num_bytes;
    if (family->window != WINDOW_LOCAL || !find_text(k, "hidden_activation", &name, &num_bytes) ||
        text_is(name, num_bytes, own))
        return k->status;
    return fail(k, STATUS_UNSUPPORTED, "the key %s is \"%s\", which is not supported; \"%s\" is",
                key_name(k, "hidden_activation").text, printable_from(name, num_bytes).text, own);
}

static int read_encoder(struct keys *k, struct model_config *c)
{
    bool is_causal = !c->family->is_encoder;
    (void)gguf_find_bool(k->gguf, key_name(k, "attention.causal").text, &is_causal);
    c->is_encoder = !is_causal;
    if (is_causal && c->family->is_encoder)
        return fail(k, STATUS_UNSUPPORTED, "the key %s is true, which is not supported",
                    key_name(k, "attention.causal").text);
    return check_activation(k, c->family);
}

static int expect_taps(struct keys *k, const char *suffix, int32_t num_taps)
{
    if (required_int(k, suffix) == num_taps) return k->status;
    return fail(k, STATUS_UNSUPPORTED, "the key %s is not supported unless it is %d",
                key_name(k, suffix).text, num_taps);
}

/* Of a state space, too. */
static int read_delta(struct keys *k, struct model_config *c)
{
    c->delta_k_heads = required_int(k, "ssm.group_count");
    c->delta_v_heads = required_int(k, "ssm.time_step_rank");
    c->delta_k_dim = required_int(k, "ssm.state_size");
    c->delta_v_dim = required_int(k, "ssm.inner_size") / c->delta_v_heads;
    c->delta_is_gguf = true;
    return expect_taps(k, "ssm.conv_kernel", DELTA_TAPS);
}

/* Of Mamba-1. */
static int read_selective(struct keys *k, struct model_config *c)
{
    const int32_t width = required_int(k, "ssm.inner_size");
    c->norms_selection = c->family->norms_selection;
    (void)gguf_find_bool(k->gguf, key_name(k, "ssm.dt_b_c_rms").text, &c->norms_selection);
    c->delta_k_heads = 1;
    c->delta_k_dim = required_int(k, "ssm.state_size");
    c->delta_step_rank = required_int(k, "ssm.time_step_rank");
    c->delta_v_dim = SELECTIVE_LANES;
    c->delta_v_heads = width / SELECTIVE_LANES;
    c->delta_is_gguf = true;
    if (width % SELECTIVE_LANES != 0 && !k->status)
        return fail(k, STATUS_UNSUPPORTED, "states of %d channels are not supported; multiples of %d are",
                    width, SELECTIVE_LANES);
    return expect_taps(k, "ssm.conv_kernel", DELTA_TAPS);
}

/* Layers with a state that is no delta rule's are known (read_kv_heads). */
static int read_states(struct keys *k, struct model_config *c)
{
    int64_t interval = c->family->full_attention_interval;
    bool rotates = true;
    if (c->family->has_states_alone) {
        model_config_add_layers(c->stateful_layers, c->num_layers, 0);
        model_config_add_layers(c->layers_without_mlp, c->num_layers, 0);
    }
    if (c->family->states_beside_attention) {
        model_config_add_layers(c->stateful_layers, c->num_layers, 0);
        c->states_have_no_norm = !has_layer_tensor(k, 0, "ssm_norm.weight");
        return read_delta(k, c);
    }
    if (c->family->delta_kind == DELTA_SELECTIVE) return read_selective(k, c);
    if (c->family->delta_kind == DELTA_STATE_SPACE) {
        (void)gguf_find_bool(k->gguf, key_name(k, "rope.scaling.finetuned").text, &rotates);
        for (int32_t i = 0; !rotates && i < c->num_layers; i++) bit_set_add(c->unrotated_layers, (size_t)i);
        return model_config_has_states(c) ? read_delta(k, c) : k->status;
    }
    if (c->family->delta_kind == DELTA_CHANNELS) {
        c->delta_k_heads = c->delta_v_heads = c->num_heads;
        c->delta_k_dim = c->delta_v_dim = required_int(k, "kda.head_dim");
        c->delta_is_gguf = true;
        model_config_add_layers(c->unrotated_layers, c->num_layers, 0);
        return expect_taps(k, "ssm.conv_kernel", DELTA_TAPS);
    }
    if (c->family->delta_kind == DELTA_CONVOLUTION) {
        c->delta_v_heads = 1;
        c->delta_v_dim = c->hidden_size;
        return expect_taps(k, "shortconv.l_cache", c->short_taps);
    }
    if (interval == 0) return k->status;
    if (find_int(k, "full_attention_interval", &interval))
        interval = required_int(k, "full_attention_interval");
    model_config_add_layers(c->stateful_layers, c->num_layers, (int32_t)interval);
    return read_delta(k, c);
}

/* vocab_size: rows of the embedding, which may be more than the tokenizer has tokens, never fewer. */
static int read_vocabulary(struct keys *k, struct model_config *c)
{
    struct weight_view embedding = gguf_find_tensor(k->gguf, "token_embd.weight");
    struct gguf_array tokens;
    if (!embedding.data) return fail(k, STATUS_INVALID, "the tensor token_embd.weight is missing");
    if (embedding.rows > INT32_MAX)
        return fail(k, STATUS_INVALID, "token_embd.weight has %" PRId64 " rows", embedding.rows);
    c->vocab_size = (int32_t)embedding.rows;
    c->tie_word_embeddings = !gguf_find_tensor(k->gguf, "output.weight").data;
    if (gguf_find_array(k->gguf, "tokenizer.ggml.tokens", &tokens) &&
        tokens.num_items > (uint64_t)embedding.rows)
        return fail(k, STATUS_INVALID,
                    "the tokenizer has %" PRIu64 " tokens, the embedding only %" PRId64 " rows",
                    tokens.num_items, embedding.rows);
    return STATUS_OK;
}

/* ---- rotation ---- */

static int read_rope_type(struct keys *k, struct rope_config *rope)
{
    const char *type;
    size_t num_bytes;
    if (!find_real(k, "rope.scaling.factor", &rope->factor)) find_real(k, "rope.scale_linear", &rope->factor);
    if (!find_text(k, "rope.scaling.type", &type, &num_bytes)) /* older files have no type */
        rope->type = rope->factor > 1 ? ROPE_LINEAR : ROPE_DEFAULT;
    else if (text_is(type, num_bytes, "none"))
        rope->type = ROPE_DEFAULT;
    else if (text_is(type, num_bytes, "linear"))
        rope->type = ROPE_LINEAR;
    else if (text_is(type, num_bytes, "yarn"))
        rope->type = ROPE_YARN;
    else
        return fail(k, STATUS_UNSUPPORTED,
                    "the rotation's scaling type \"%s\" is not supported; none, linear and yarn are",
                    printable_from(type, num_bytes).text);
    return STATUS_OK;
}

static int read_yarn(struct keys *k, const struct model_config *c, struct rope_config *rope)
{
    const double stretch = rope->factor > 1 ? log(rope->factor) : 0;
    const bool keeps_lengths = c->latent.rank > 0 || c->family->gguf_yarn_keeps_lengths;
    double attention_factor = 1, own_factor = keeps_lengths ? 1 : 0.1 * stretch + 1, ext_factor = 1,
           log_multiplier;
    int64_t original = c->max_position_embeddings;
    find_int(k, "rope.scaling.original_context_length", &original);
    if (original < 1 || original > INT32_MAX)
        return fail(k, STATUS_INVALID, "the key %s is impossible",
                    key_name(k, "rope.scaling.original_context_length").text);
    if (find_real(k, "rope.scaling.yarn_ext_factor", &ext_factor) && ext_factor != 1)
        return fail(k, STATUS_UNSUPPORTED, "the key %s is set, which is not supported",
                    key_name(k, "rope.scaling.yarn_ext_factor").text);
    rope->original_max_position = (int32_t)original;
    rope->yarn_keep_fractions = c->family->gguf_yarn_keeps_fractions;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    find_real(k, "rope.scaling.yarn_beta_fast", &rope->beta_fast);
    find_real(k, "rope.scaling.yarn_beta_slow", &rope->beta_slow);
    /* the second is in the place of yarn's own, the first comes on top */
    find_real(k, "rope.scaling.attn_factor", &attention_factor);
    find_real(k, "rope.scaling.yarn_attn_factor", &own_factor);
    rope->attention_factor = attention_factor * own_factor;
    if (c->latent.rank > 0 && find_real(k, "rope.scaling.yarn_log_multiplier", &log_multiplier))
        rope->score_factor = pow(1 + log_multiplier * stretch, 2);
    return STATUS_OK;
}

/* Divisors of frequencies, which are multiplied into periods here: the same but for a rounding. */
static int read_factors(struct keys *k, const char *name, const struct rope_config *rope, float *factors)
{
    struct weight_view view = gguf_find_tensor(k->gguf, name);
    if (!view.data || view.scheme != WEIGHT_PLAIN || view.rows != 1 || view.cols != rope->rotary_dim / 2 ||
        view.cols > ROTATIONS_MAX)
        return fail(k, STATUS_INVALID, "the tensor %s should have %d values", name, rope->rotary_dim / 2);
    dtype_row_to_f32(view.dtype, view.data, view.cols, factors);
    return k->status;
}

static int read_longrope(struct keys *k, const struct model_config *c, struct rope_config *rope)
{
    int64_t original = c->max_position_embeddings;
    find_int(k, "rope.scaling.original_context_length", &original);
    rope->type = ROPE_LONGROPE;
    rope->factor = 1;
    rope->original_max_position = (int32_t)max_of(min_of(original, (int64_t)INT32_MAX), (int64_t)0);
    find_real(k, "rope.scaling.attn_factor", &rope->attention_factor);
    int status = read_factors(k, "rope_factors_long.weight", rope, rope->long_factors);
    return status ? status : read_factors(k, "rope_factors_short.weight", rope, rope->short_factors);
}

static void read_window_rope(struct keys *k, struct model_config *c)
{
    if (c->family->window_theta == 0) return;
    c->window_rope = (struct rope_config){.type = ROPE_DEFAULT,
                                          .style = c->rope.style,
                                          .theta = c->family->window_theta,
                                          .factor = 1,
                                          .attention_factor = 1,
                                          .rotary_dim = c->rope.rotary_dim};
    find_real(k, "rope.freq_base_swa", &c->window_rope.theta);
    int64_t rotary_dim =
        model_config_has_window_heads(c) ? c->window_heads.head_dim : c->window_rope.rotary_dim;
    find_int(k, "rope.dimension_count_swa", &rotary_dim);
    c->window_rope.rotary_dim = (int32_t)min_of(max_of(rotary_dim, (int64_t)-1), (int64_t)INT32_MAX);
}

/* Of all layers. */
static int read_query_scaling(struct keys *k, struct model_config *c)
{
    const char *length_key = "attention.temperature_length";
    double scale = 0;
    int64_t floor = 0;
    if (!find_real(k, "attention.temperature_scale", &scale) || scale == 0) return k->status;
    if (!find_int(k, length_key, &floor)) {
        length_key = "rope.scaling.original_context_length";
        find_int(k, length_key, &floor);
    }
    if (floor < 1 || floor > INT32_MAX)
        return fail(k, STATUS_INVALID, "the key %s is impossible", key_name(k, length_key).text);
    c->temperature_scale = (float)scale;
    c->temperature_floor = (int32_t)floor;
    return k->status;
}

static int read_rope(struct keys *k, struct model_config *c)
{
    struct rope_config *rope = &c->rope;
    struct gguf_array sections;
    int64_t rotary_dim = c->head_dim;
    *rope = (struct rope_config){.style = c->family->gguf_rope_style,
                                 .theta = 10000,
                                 .factor = 1,
                                 .attention_factor = 1,
                                 .score_factor = 1};
    find_real(k, "rope.freq_base", &rope->theta);
    if (!c->family->mlps_are_layers) /* which do not rotate, whatever it says */
        find_int(k, "rope.dimension_count", &rotary_dim);
    if (rotary_dim < 1 || rotary_dim > c->head_dim)
        return fail(k, STATUS_INVALID, "the key %s is %" PRId64 "; heads have %d values",
                    key_name(k, "rope.dimension_count").text, rotary_dim, c->head_dim);
    rope->rotary_dim = (int32_t)rotary_dim;
    if (gguf_find_array(k->gguf, key_name(k, "rope.dimension_sections").text, &sections))
        rope->style =
            ROPE_HALVES; /* of text models beside images, whose converter reorders rows of Q and K for it */
    read_window_rope(k, c);
    if (gguf_find_tensor(k->gguf, "rope_factors_long.weight").data) return read_longrope(k, c, rope);
    int status = read_rope_type(k, rope);
    if (!status && rope->type == ROPE_YARN) status = read_yarn(k, c, rope);
    if (!status && c->family->scales_queries) status = read_query_scaling(k, c);
    return status;
}

/* ---- tokens that end a turn ---- */

/* The file has one EOS id; chat models end a turn with other tokens, known by name. */
static void add_eos_by_name(const struct keys *k, struct model_config *c)
{
    static const char *const names[] =
        {"<|im_end|>",         "<|eot_id|>",      "<|eom_id|>", "<|end_of_turn|>", "<end_of_turn>",
         "<|endoftext|>",      "<|end_of_text|>", "<|end|>",    "<EOT>",           "<|return|>",
         "<end_of_utterance>", "<eos>",           "<turn|>",    "<|tool_response>"},
                             *const harmony_names[] = {"<|endoftext|>", "<|return|>", "<|call|>"};
    const bool is_harmony = c->family->has_harmony_tokens;
    const char *const *own = is_harmony ? harmony_names : names;
    const size_t num_own = is_harmony ? array_length(harmony_names) : array_length(names);
    struct gguf_array tokens;
    const char *text;
    size_t num_bytes;
    if (!gguf_find_array(k->gguf, "tokenizer.ggml.tokens", &tokens)) return;
    for (int64_t id = 0; gguf_array_next_text(&tokens, &text, &num_bytes); id++) {
        if (num_bytes == 0 || text[0] != '<') continue;
        for (size_t i = 0; i < num_own; i++)
            if (text_is(text, num_bytes, own[i])) model_config_add_eos(c, id);
    }
}

static void read_special_ids(const struct keys *k, struct model_config *c)
{
    static const char *const names[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    int64_t id;
    for (size_t i = 0; i < array_length(names); i++)
        if (gguf_find_int(k->gguf, names[i], &id)) model_config_add_eos(c, id);
    add_eos_by_name(k, c);
    if (gguf_find_int(k->gguf, "tokenizer.ggml.bos_token_id", &id) && id >= 0 && id < c->vocab_size)
        c->bos_id = (int32_t)id;
}

int gguf_config_read(const struct gguf *g, const char *path, struct model_config *config, struct error *err)
{
    struct keys k = {.gguf = g, .path = path, .err = err};
    model_config_init(config);
    int status = find_architecture(&k, &config->family);
    if (!status) status = take_score_head(&k, config);
    if (!status) status = check_unsupported(&k, config->family);
    if (!status) status = read_shape(&k, config);
    if (!status) status = read_encoder(&k, config);
    if (!status) status = read_tables(&k, config);
    if (!status) status = read_experts(&k, config);
    if (!status) status = read_layers(&k, config);
    if (!status) status = read_states(&k, config);
    if (!status) status = read_vocabulary(&k, config);
    if (!status) status = read_rope(&k, config);
    if (status) return status;
    snprintf(config->architecture, sizeof config->architecture, "%s", k.architecture);
    const bool has_qk_norm = gguf_find_tensor(g, "blk.0.attn_q_norm.weight").data;
    if (config->family->has_layer_norm && !config->family->qk_norm_may_be && has_qk_norm)
        return fail(&k, STATUS_UNSUPPORTED, "LayerNorm of q and k is not supported");
    if (config->family->with_two_norms && gguf_find_tensor(g, "blk.0.attn_norm_2.weight").data)
        config->family = config->family->with_two_norms;
    if (config->family->with_qk_norms && has_qk_norm) config->family = config->family->with_qk_norms;
    config->qkv_bias = config->family->qkv_bias;
    read_multipliers(&k, config);
    if (config->latent.rank > 0) config->attention_scale *= (float)config->rope.score_factor;
    model_config_take_family(config);
    if (config->family->qk_norm_of_ones) config->qk_norm = config->num_experts != 128; /* it stands nowhere */
    if (config->family->qk_norm_may_be) config->qk_norm = has_qk_norm;
    status = model_config_validate(config, path, err);
    if (!status) read_special_ids(&k, config);
    config->pooling = pooling_config_read_gguf(
        g, k.architecture, config->is_encoder ? POOLING_MEAN : POOLING_LAST, &config->is_reranker);
    pooling_config_read_dense(g, &config->dense);
    return status;
}
