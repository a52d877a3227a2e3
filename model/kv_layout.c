#include "model/kv_layout.h"

#include "base/bit_set.h"
#include "base/check.h"

static int32_t num_groups(int32_t num_layers, int32_t layers_per_block)
{
    return (int32_t)div_up(num_layers, layers_per_block);
}

static bool is_windowed(const struct model_config *c, int32_t layer)
{
    return c->sliding_window > 0 && bit_set_has(c->windowed_layers, (size_t)layer);
}

/* Those that do not share others'. */
static int32_t num_with_kv(const struct model_config *c)
{
    return c->num_layers - c->num_kv_sharing_layers;
}

/* Layers before the layer that have K and V of their own and a window, or none. */
static int32_t num_alike(const struct model_config *c, int32_t before, bool windowed)
{
    int32_t count = 0;
    for (int32_t i = 0; i < min_of(before, num_with_kv(c)); i++) count += is_windowed(c, i) == windowed;
    return count;
}

/* Values of K and V a token of a layer of a kind. */
static int64_t size_of(const struct model_config *c, bool windowed)
{
    const bool own = windowed && model_config_has_window_heads(c);
    const struct head_config all = {c->num_kv_heads, c->head_dim, c->v_dim},
                             heads = own ? c->window_heads : all;
    return max_of((int64_t)heads.num_kv_heads * heads.head_dim, (int64_t)1);
}

/* In blocks that n layers of a kind fill. Returns what groups of both kinds take, or INT64_MAX: there are too many, or none has room. */
static int64_t fill_blocks(const struct model_config *c, int32_t n, bool windowed, int32_t num_windowed,
                           struct kv_layout *l)
{
    const int64_t full_size = size_of(c, false), windowed_size = size_of(c, true),
                  room = n * (windowed ? windowed_size : full_size);
    l->layers_per_block = (int32_t)(room / full_size);
    l->windowed_per_block = (int32_t)(room / windowed_size);
    if (l->layers_per_block == 0 || l->windowed_per_block == 0) return INT64_MAX;
    l->num_full = num_groups(num_with_kv(c) - num_windowed, l->layers_per_block);
    l->num_windowed = num_groups(num_windowed, l->windowed_per_block);
    return kv_layout_num_groups(l) > KV_LAYOUT_GROUPS_MAX ? INT64_MAX : kv_layout_num_groups(l) * room;
}

static struct kv_layout best_layout(const struct model_config *c)
{
    struct kv_layout best = {0}, next = {.window = c->sliding_window, .is_chunk = c->windows_are_chunks};
    const int32_t num_windowed = num_alike(c, c->num_layers, true);
    int64_t least = INT64_MAX;
    for (int32_t n = num_with_kv(c); n >= 1; n--)
        for (int windowed = 0; windowed < 2; windowed++) {
            const int64_t taken = fill_blocks(c, n, windowed, num_windowed, &next);
            if (taken >= least) continue;
            least = taken;
            best = next;
        }
    return best;
}

struct kv_layout kv_layout_single(const struct model_config *c)
{
    /* with states alone blocks are of a layer that nobody writes: the places of tokens, by which beginnings are known */
    const int32_t n = max_of(model_config_num_attention_layers(c, num_with_kv(c)), 1);
    if (model_config_has_window_heads(c)) return best_layout(c);
    return (struct kv_layout){.layers_per_block = n, .windowed_per_block = n, .num_full = 1};
}

struct kv_layout kv_layout_of(const struct model_config *c, int32_t max_model_len)
{
    /* what keeps states keeps whole beginnings of texts with them */
    const bool has_windows = num_alike(c, c->num_layers, true) > 0 && c->sliding_window < max_model_len &&
                             !model_config_has_states(c);
    return has_windows ? best_layout(c) : kv_layout_single(c);
}

uint64_t kv_layout_block_bytes(const struct kv_layout *l, const struct model_config *c, enum dtype kv_dtype)
{
    uint64_t most = 0;
    for (int32_t i = 0; i < c->num_layers; i++) {
        const int32_t n = is_windowed(c, i) ? l->windowed_per_block : l->layers_per_block;
        most = max_of(most, (uint64_t)n * model_config_kv_layer_bytes(c, i, kv_dtype));
    }
    return most;
}

struct kv_place kv_layout_place(const struct kv_layout *l, const struct model_config *c, int32_t layer)
{
    layer = model_config_layer(c, layer).kv_layer;
    const int32_t own = c->layer_shapes[layer].num_kv_heads, parts = own > 0 ? c->num_kv_heads / own : 1;
    if (l->window == 0) return (struct kv_place){0, parts * model_config_num_attention_layers(c, layer)};
    bool windowed = is_windowed(c, layer);
    int32_t n = num_alike(c, layer, windowed),
            per_block = windowed ? l->windowed_per_block : l->layers_per_block;
    return (struct kv_place){(windowed ? l->num_full : 0) + n / per_block, n % per_block};
}
