#include "model/kv_layout.h"

#include "base/check.h"

static int32_t num_groups(int32_t num_layers, int32_t layers_per_block)
{
    return (int32_t)div_up(num_layers, layers_per_block);
}

static bool is_windowed(const struct model_config *c, int32_t layer)
{
    return model_config_layer(c, layer).sliding_window > 0;
}

/* Layers before the layer that have a window if it has one, or have none if it has none. */
static int32_t num_alike(const struct model_config *c, int32_t before, bool windowed)
{
    int32_t count = 0;
    for (int32_t i = 0; i < before; i++) count += is_windowed(c, i) == windowed;
    return count;
}

struct kv_layout kv_layout_single(const struct model_config *c)
{
    return (struct kv_layout){.layers_per_block = model_config_num_attention_layers(c, c->num_layers),
                              .num_full = 1};
}

struct kv_layout kv_layout_of(const struct model_config *c, int32_t max_model_len)
{
    int32_t num_windowed = num_alike(c, c->num_layers, true), num_full = c->num_layers - num_windowed;
    int32_t least = INT32_MAX;
    struct kv_layout best = kv_layout_single(c);
    if (num_windowed == 0 || c->sliding_window >= max_model_len) return best;
    for (int32_t n = max_of(num_full, num_windowed); n >= 1; n--) {
        int32_t full = num_groups(num_full, n), windowed = num_groups(num_windowed, n),
                num_places = (full + windowed) * n;
        if (full + windowed > KV_LAYOUT_GROUPS_MAX || num_places >= least) continue;
        least = num_places;
        best = (struct kv_layout){n, full, windowed, c->sliding_window, c->windows_are_chunks};
    }
    return best;
}

struct kv_place kv_layout_place(const struct kv_layout *l, const struct model_config *c, int32_t layer)
{
    if (l->window == 0) return (struct kv_place){0, model_config_num_attention_layers(c, layer)};
    bool windowed = is_windowed(c, layer);
    int32_t n = num_alike(c, layer, windowed);
    return (struct kv_place){(windowed ? l->num_full : 0) + n / l->layers_per_block, n % l->layers_per_block};
}
