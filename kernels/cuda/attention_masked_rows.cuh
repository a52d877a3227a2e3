/* attention_masked_rows.cuh - the tiles of query rows that the kernels of layers with masks, latents or wide heads compute, one after
 * another (attention_masked.cu says what rows a tile has): which keys they walk, and what they see of them. */
#ifndef KERNELS_CUDA_ATTENTION_MASKED_ROWS_CUH
#define KERNELS_CUDA_ATTENTION_MASKED_ROWS_CUH

#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/attention_masked.cuh"
#include "kernels/cuda/softmax.cuh"

struct masked_args {
    __nv_bfloat16 *out;
    const __nv_bfloat16 *qkv, *pool; /* pool: of the layer */
    const int32_t *counts, *base, *cu_seqlens_q, *seqlens_k, *table_offsets;
    const int32_t *sequence_masks;     /* NULL: none */
    float *partial;                    /* [S][splits_room][Hq][value_dim + PARTIAL_EXTRA]; NULL: prompts */
    size_t block_elements, v_elements; /* from a block's K to its V */
    int32_t first_seq, end_seq, tiles_per_seq; /* tiles_per_seq 0: prompts, whose tiles are counted */
    int32_t splits_most,
        splits_room;   /* of a decoding sequence (attention_decode.cuh); of one of max_model_len */
    int32_t row_heads; /* of a row of qkv */
    int32_t num_heads, num_kv_heads, group, head_dim, value_at,
        value_dim; /* values are columns [value_at, + value_dim) of V */
    struct mask_layer layer;
    float softcap, scale_log2; /* as in prefill_args */
    const float *sinks;
};

namespace
{

enum { TILE_ROWS = 64, PARTIAL_EXTRA = 4 };

/* Where a tile stands. */
struct rows {
    int32_t seq, first_token, num_tokens, seqlen,
        offset;           /* offset: the place of the step's first token of it */
    int32_t first, count; /* rows of the tile, of all that the sequence has for a K/V head */
    int32_t first_place, last_place;
    int32_t split, num_splits; /* of its keys; 0 of 1 */
    int32_t begin, end;        /* keys that are walked */
    int32_t first_key;         /* no row sees one before it */
    struct device_mask mask;
    bool is_causal; /* nothing but what comes later is hidden */
};

__device__ __forceinline__ int32_t tiles_of(const masked_args &a, int32_t seq)
{
    return ((a.cu_seqlens_q[seq + 1] - a.cu_seqlens_q[seq]) * a.group + TILE_ROWS - 1) / TILE_ROWS;
}

/* Of tile number tile, and of a decoding sequence's split. False where there is nothing to do. */
__device__ bool find_rows(const masked_args &a, int32_t tile, int32_t split, struct rows *r)
{
    r->seq = a.first_seq;
    if (a.tiles_per_seq > 0) {
        r->seq += tile / a.tiles_per_seq;
        tile %= a.tiles_per_seq;
    } else {
        for (; r->seq < a.end_seq && tile >= tiles_of(a, r->seq); r->seq++) tile -= tiles_of(a, r->seq);
        if (r->seq == a.end_seq) return false;
    }
    r->first_token = a.cu_seqlens_q[r->seq];
    r->num_tokens = a.cu_seqlens_q[r->seq + 1] - r->first_token;
    r->seqlen = a.seqlens_k[r->seq];
    if (r->seqlen == 0) return false; /* of padding */
    r->offset = r->seqlen - r->num_tokens;
    r->first = tile * TILE_ROWS;
    r->count = r->num_tokens * a.group;
    r->first_place = r->offset + r->first / a.group;
    r->last_place = r->offset + (min(r->first + TILE_ROWS, r->count) - 1) / a.group;
    int32_t words = a.sequence_masks ? a.sequence_masks[r->seq] : 0;
    r->mask = device_mask_at(a.base, words, r->seqlen);
    r->is_causal =
        words == 0 && a.layer.sliding_window == 0 && a.layer.chunk == 0 && a.layer.window_ahead == 0;
    r->first_key = first_key_of(a.layer, r->first_place);
    r->begin = r->first_key;
    r->end = words ? min(r->seqlen, end_key_of(a.layer, r->last_place)) : r->last_place + 1;
    r->split = 0;
    r->num_splits = 1;
    if (!a.partial) return true;
    struct cut c = cut_of(r->seqlen, 0, a.splits_most);
    r->split = split;
    r->num_splits = c.end_split;
    if (r->split >= r->num_splits) return false;
    r->begin = max(r->begin, r->split * c.pages_per_split * BLOCK_SIZE);
    r->end = min(r->end, (r->split + 1) * c.pages_per_split * BLOCK_SIZE);
    return true;
}

/* What the rows see of the kv tile from key first on. */
template <int KEYS>
__device__ __forceinline__ enum mask_class class_of(const masked_args &a, const struct rows &r, int32_t first)
{
    if (r.is_causal) return first + KEYS > r.first_place + 1 ? MASK_PARTIAL : MASK_WHOLE;
    struct mask_tile bounds = {};
    if (r.mask.keys) bounds = r.mask.tiles[first / MASK_TILE];
    return class_of_keys(a.layer, r.mask.keys ? &bounds : NULL, r.seqlen, first, KEYS, r.first_place,
                         r.last_place + 1);
}

/* What the scores of a row are multiplied by before the cap, and to log2 units. */
struct score_scale {
    float cap, to_log2;
};

__device__ __forceinline__ struct score_scale scale_of_row(const masked_args &a, int32_t place)
{
    float t = temperature_of(a.layer, place);
    return score_scale{a.softcap * t, a.softcap > 0 ? a.scale_log2 : a.scale_log2 * t};
}

/* The keys that a row at a place sees, but for what its sequence's mask hides: [begin, end). */
struct seen_keys {
    int32_t begin, end;
};

__device__ __forceinline__ struct seen_keys seen_keys_of(const masked_args &a, const struct rows &r,
                                                         int32_t place)
{
    const int32_t end = min(r.seqlen, end_key_of(a.layer, place));
    return seen_keys{first_key_of(a.layer, place), r.mask.keys ? end : min(end, place + 1)};
}

/* Scores of two rows, as of a product's C: i is of row i / 2 % 2 and of key first + i / 4 * 8 + i % 2. Of a kv tile that is not seen whole they
 * become -infinity where the row does not see the key. Those that are take one branch past all of this: with one for each score most of
 * a tile's time went by there. */
template <int N>
__device__ __forceinline__ void hide_scores(float (&scores)[N], const struct rows &r,
                                            const int32_t (&places)[2], const struct seen_keys (&seen)[2],
                                            int32_t first)
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int32_t key = first + i / 4 * 8 + i % 2, row = i / 2 % 2;
        if (key < seen[row].begin || key >= seen[row].end) scores[i] = -INFINITY;
    }
    if (!r.mask.keys) return;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const int32_t key = first + i / 4 * 8 + i % 2, place = places[i / 2 % 2];
        const struct mask_rows by = rows_of_key(r.mask, min(key, r.seqlen - 1));
        if (place < by.begin || place >= by.end) scores[i] = -INFINITY;
    }
}

/* As a soft cap leaves them. */
template <int N>
__device__ __forceinline__ void cap_scores(float (&scores)[N], const struct score_scale (&scale)[2])
{
#pragma unroll
    for (int i = 0; i < N; i++) scores[i] = softcap_score(scores[i], scale[i / 2 % 2].cap);
}

/* The first kv tile from there on that somebody sees. A causal layer hides none between a tile's begin and end. */
template <int KEYS>
__device__ __forceinline__ int32_t next_tile(const masked_args &a, const struct rows &r, int32_t first)
{
    if (r.is_causal) return first;
    while (first < r.end && class_of<KEYS>(a, r, first) == MASK_HIDDEN) first += KEYS;
    return first;
}

/* Where the partial result of a split goes, of its tile's row of this head. */
__device__ __forceinline__ float *partial_of(const masked_args &a, const struct rows &r, int32_t head)
{
    return a.partial + (((size_t)(r.seq - a.first_seq) * a.splits_room + r.split) * a.num_heads + head) *
                           (a.value_dim + PARTIAL_EXTRA);
}

} // namespace

/* attention_wide_hopper.cu: heads of 512, and latents of 512 or 256 beside 64 that are rotated. grid: as attention_masked.cu launches. */
bool wide_hopper_supports(const struct cuda_device *d, int32_t head_dim);
void wide_hopper_launch(struct cuda_device *d, const masked_args *args, const struct kv_pool *pool,
                        int32_t layer, dim3 grid);

#endif
