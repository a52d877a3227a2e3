/* attention_masked.cuh - what attention under masks asks on a GPU: what a layer and a sequence's mask (kernels/mask.h) hide, tile by
 * tile and key by key. Masks of sequences are words of the step's buffer.
 *
 * struct batch, sequence_masks: for each sequence where its words begin, counted from struct batch, tables; 0: it is causal.
 *
 *   words:   [num_keys] struct mask_rows | [num_tiles] struct mask_tile     num_keys: seqlens_k; from an even word on */
#ifndef KERNELS_CUDA_ATTENTION_MASKED_CUH
#define KERNELS_CUDA_ATTENTION_MASKED_CUH

#include "kernels/cuda/device.cuh"

enum {
    MASK_KEY_WORDS = sizeof(struct mask_rows) / 4,
    MASK_TILE_WORDS = sizeof(struct mask_tile) / 4,
    SEQUENCE_MASK_WORDS_MAX = 16 << 20 /* of a step */
};

static inline size_t sequence_mask_words(int32_t num_keys)
{
    return (size_t)num_keys * MASK_KEY_WORDS + (size_t)mask_num_tiles(num_keys) * MASK_TILE_WORDS;
}

/* What a layer hides, and what it multiplies queries by. */
struct mask_layer {
    int32_t sliding_window, chunk;
    int32_t window_ahead; /* keys behind a token that it may see, itself included; 0: all */
    float temperature_scale;
    int32_t temperature_floor, temperature_offset;
};

static inline struct mask_layer mask_layer_of(const struct attention_args *a)
{
    return mask_layer{a->sliding_window,
                      a->chunk,
                      a->window_of_both_sides ? a->sliding_window : 0,
                      a->temperature_scale,
                      a->temperature_floor,
                      a->temperature_offset};
}

/* Of a sequence, keys NULL: causal. */
struct device_mask {
    const struct mask_rows *keys;
    const struct mask_tile *tiles;
};

/* at: where its words begin, 0: it has none. */
static __device__ __forceinline__ struct device_mask device_mask_at(const int32_t *base, int32_t at,
                                                                    int32_t num_keys)
{
    const struct mask_rows *keys = (const struct mask_rows *)(base + at);
    return at ? device_mask{keys, (const struct mask_tile *)(keys + num_keys)} : device_mask{NULL, NULL};
}

/* mask_first_key, mask_end_key and mask_class_of of kernels/mask.h, which the compiler of device code does not take from there. */
static __device__ __forceinline__ int32_t first_key_of(const struct mask_layer &l, int32_t place)
{
    int32_t of_window = l.sliding_window > 0 ? max(place - l.sliding_window + 1, 0) : 0;
    return max(of_window, l.chunk > 0 ? place / l.chunk * l.chunk : 0);
}

static __device__ __forceinline__ int32_t end_key_of(const struct mask_layer &l, int32_t place)
{
    return l.window_ahead > 0 && l.window_ahead < MASK_END - place ? place + l.window_ahead : MASK_END;
}

static __device__ __forceinline__ enum mask_class class_by_bounds(const struct mask_tile &t, int32_t begin,
                                                                  int32_t end)
{
    if (end <= t.least.begin || begin >= t.most.end) return MASK_HIDDEN;
    return begin >= t.most.begin && end <= t.least.end ? MASK_WHOLE : MASK_PARTIAL;
}

/* Aligned, as step.cu has them. */
static __device__ __forceinline__ struct mask_rows mask_rows_at(const struct mask_rows *from)
{
    int2 x = *(const int2 *)from;
    return mask_rows{x.x, x.y};
}

/* The bounds of keys [first, first + COUNT), and of those beside them in a tile. Some of them are there. */
template <int COUNT>
static __device__ __forceinline__ struct mask_tile bounds_of_keys(const struct device_mask &m,
                                                                  int32_t num_keys, int32_t first)
{
    constexpr int TILES = COUNT % MASK_TILE == 0 ? COUNT / MASK_TILE : COUNT / MASK_TILE + 2;
    int32_t last = (min(first + COUNT, num_keys) - 1) / MASK_TILE;
    struct mask_rows least[TILES], most[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i++) { /* reads that are under way together */
        const struct mask_tile *t = &m.tiles[min(first / MASK_TILE + i, last)];
        least[i] = mask_rows_at(&t->least);
        most[i] = mask_rows_at(&t->most);
    }
    struct mask_tile all = {least[0], most[0]};
#pragma unroll
    for (int i = 1; i < TILES; i++) {
        all.least = mask_rows{min(all.least.begin, least[i].begin), min(all.least.end, least[i].end)};
        all.most = mask_rows{max(all.most.begin, most[i].begin), max(all.most.end, most[i].end)};
    }
    return all;
}

/* What the rows at places [begin, end), at least one, see of the keys [first, first + count). bounds: of at least these; NULL: causal.
 * Where it says partial, they may see nothing of them all the same. */
static __device__ __forceinline__ enum mask_class class_of_keys(const struct mask_layer &l,
                                                                const struct mask_tile *bounds,
                                                                int32_t num_keys, int32_t first,
                                                                int32_t count, int32_t begin, int32_t end)
{
    int32_t behind = min(num_keys, end_key_of(l, end - 1));
    if (first >= behind || first + count <= first_key_of(l, begin)) return MASK_HIDDEN;
    enum mask_class c = first >= end ? MASK_HIDDEN : first + count > begin + 1 ? MASK_PARTIAL : MASK_WHOLE;
    if (bounds) c = class_by_bounds(*bounds, begin, end);
    bool layer_hides =
        first < first_key_of(l, end - 1) || first + count > min(num_keys, end_key_of(l, begin));
    return c == MASK_WHOLE && layer_hides ? MASK_PARTIAL : c;
}

static __device__ __forceinline__ struct mask_rows rows_of_key(const struct device_mask &m, int32_t key)
{
    return mask_rows_at(&m.keys[key]);
}

/* The rows r, without those that the layer hides the key from: an interval, too. */
static __device__ __forceinline__ struct mask_rows rows_that_see(const struct mask_layer &l,
                                                                 struct mask_rows r, int32_t key)
{
    int32_t num_left = r.end - key; /* from its own on */
    if (l.sliding_window > 0) num_left = min(num_left, l.sliding_window);
    if (l.chunk > 0) num_left = min(num_left, l.chunk - key % l.chunk);
    r.end = key + num_left;
    if (l.window_ahead > 0) r.begin = max(r.begin, key - l.window_ahead + 1);
    return r;
}

static __device__ __forceinline__ float temperature_of(const struct mask_layer &l, int32_t place)
{
    if (l.temperature_floor <= 0) return 1;
    return 1.0f + l.temperature_scale * log1pf((float)((place + l.temperature_offset) / l.temperature_floor));
}

/* attention_masked_hopper.cu: the prompts of a step, where there is a kernel for the head size. */
bool masked_hopper_supports(const struct cuda_device *d, int32_t head_dim);
void masked_hopper_launch(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                          const __nv_bfloat16 *qkv, const struct kv_pool *pool, int32_t layer,
                          const struct attention_args *args);

#endif
