/* attention_prefill.cu - FlashAttention-2 forward over the paged pool: the portable kernel (sm_80 and newer).
 *
 * One CTA is 64 query rows of one head of one sequence: 4 warps of 16 rows, each over all keys, so that no
 * score is exchanged between warps. Q stays in registers. K and V come in kv tiles of 64 tokens through a
 * two-stage ring of asynchronous copies. Tiles beyond the diagonal are not visited, tiles below it run
 * without masks, those that cross it are masked. The output is divided by the sum once, at the end.
 *
 * Tiles begin at multiples of 64 keys whatever the chunk, and a row's sums run over tiles in order: a row's
 * bits depend on its position and the sequence's keys alone. A tile that a row does not see at all (the tile
 * crosses the diagonal of a later row) changes neither its maximum nor its sum: all its weights are exactly
 * 0.
 *
 * K and V of e4m3 (kv_codes.cuh) take this kernel on every machine: chunks come as they are through a ring of their own, and a
 * tile's codes are made bf16, which holds them exactly, once for the four warps. Scales of K multiply scores, those of V the
 * weights.
 *
 * Sources: Dao, "FlashAttention-2", 2023; the split over queries and the fragment reuse are described there.
 */
#include "kernels/cuda/attention_prefill.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/softmax.cuh"

namespace
{

enum { WARPS = 4, Q_TILE_ROWS = PORTABLE_PREFILL_ROWS, KV_TILE_TOKENS = 64, PAD_BYTES = 16 };

} // namespace

int32_t cuda_prefill_rows_per_tile(const struct cuda_device *d, int32_t head_dim)
{
    int32_t rows = prefill_hopper_rows_per_tile(d, head_dim);
    return rows ? rows : Q_TILE_ROWS;
}

namespace
{

template <int D> struct prefill_traits {
    static constexpr int PITCH = D * 2 + PAD_BYTES;
    static constexpr int TILE_BYTES = KV_TILE_TOKENS * PITCH;
    static constexpr int STAGES = D >= 256 ? 1 : 2;
    static constexpr int SHARED_BYTES = STAGES * 2 * TILE_BYTES;
    /* of e4m3: a tile of bf16, its scales of K and of V, two stages of chunks */
    static constexpr int TILE_PAGES = KV_TILE_TOKENS / BLOCK_SIZE;
    static constexpr int SCALES_OFFSET = 2 * TILE_BYTES;
    static constexpr int CODES_OFFSET = SCALES_OFFSET + 2 * KV_TILE_TOKENS * (int)sizeof(float);
    static constexpr int CODES_BYTES = TILE_PAGES * kv_chunk<D>::BYTES;
    static constexpr int CODES_SHARED_BYTES = CODES_OFFSET + 2 * CODES_BYTES;
};

/* Copies K and V of keys [first, first + 64); rows at or beyond seqlen become zero. */
template <int D>
__device__ void load_kv_tile(const prefill_args &a, const int32_t *table, int32_t kv_head, int32_t first,
                             int32_t seqlen, uint32_t stage)
{
    using T = prefill_traits<D>;
    constexpr int CHUNKS = D / 8;
    for (int i = threadIdx.x; i < KV_TILE_TOKENS * CHUNKS; i += WARPS * 32) {
        int row = i / CHUNKS, column = i % CHUNKS;
        int32_t token = first + row;
        bool valid = token < seqlen;
        const __nv_bfloat16 *k = a.pool;
        if (valid)
            k += table[token / BLOCK_SIZE] * a.block_elements +
                 ((size_t)kv_head * BLOCK_SIZE + token % BLOCK_SIZE) * D + column * 8;
        const __nv_bfloat16 *v = valid ? k + (size_t)a.num_kv_heads * BLOCK_SIZE * D : k;
        uint32_t to = stage + row * T::PITCH + column * 16;
        copy_async(to, k, valid);
        copy_async(to + T::TILE_BYTES, v, valid);
    }
}

/* Copies the chunks of keys [first, first + 64); zeros for pages at or beyond seqlen. */
template <int D>
__device__ void load_codes(const prefill_args &a, const int32_t *table, int32_t kv_head, int32_t first,
                           int32_t seqlen, uint32_t to)
{
    constexpr int VECTORS = kv_chunk<D>::BYTES / 16;
#pragma unroll 1
    for (int p = 0; p < prefill_traits<D>::TILE_PAGES; p++) {
        int32_t page = first / BLOCK_SIZE + p;
        bool valid = page * BLOCK_SIZE < seqlen;
        const char *from = (const char *)a.pool;
        if (valid) from += table[page] * a.block_elements * 2 + (size_t)kv_head * kv_chunk<D>::BYTES;
        for (int i = threadIdx.x; i < VECTORS; i += WARPS * 32)
            copy_async(to + p * kv_chunk<D>::BYTES + i * 16, valid ? from + i * 16 : from, valid);
    }
}

/* Chunks become a tile of bf16 and its scales; a token at or beyond seqlen has the scales 0. */
template <int D>
__device__ void unpack_codes(unsigned char *shared, const unsigned char *codes, int32_t first, int32_t seqlen)
{
    using T = prefill_traits<D>;
    float *scales = (float *)(shared + T::SCALES_OFFSET);
    for (int i = threadIdx.x; i < 2 * KV_TILE_TOKENS; i += WARPS * 32) {
        int token = i % KV_TILE_TOKENS, v = i / KV_TILE_TOKENS;
        const float *of_page =
            (const float *)(codes + token / BLOCK_SIZE * kv_chunk<D>::BYTES + kv_chunk<D>::SCALES_OFFSET);
        scales[i] = first + token < seqlen ? of_page[v * BLOCK_SIZE + token % BLOCK_SIZE] : 0.0f;
    }
    for (int i = threadIdx.x; i < 2 * KV_TILE_TOKENS * (D / 16); i += WARPS * 32) {
        int group = i % (D / 16), row = i / (D / 16), token = row % KV_TILE_TOKENS, v = row / KV_TILE_TOKENS;
        uint32_t offset = v ? kv_chunk<D>::V_OFFSET + kv_value_offset(D, token % BLOCK_SIZE, group * 16)
                            : kv_key_offset(token % BLOCK_SIZE, group * 16);
        uint4 packed = *(const uint4 *)(codes + token / BLOCK_SIZE * kv_chunk<D>::BYTES + offset);
        const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
        uint32_t pairs[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float2 pair = kv_code_pair(words[k / 2] >> k % 2 * 16);
            pairs[k] = pack_bf16(pair.x, pair.y);
        }
        uint4 *to = (uint4 *)(shared + v * T::TILE_BYTES + token * T::PITCH + group * 32);
        to[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
        to[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
    }
}

/* One K/V tile for this warp's 16 rows. row_position: position of row g; row g + 8 is 8 later. scales: of K, then
 * of V, where CODES. */
template <int D, bool EXTRA, bool CODES, bool MASKED>
__device__ void attend_kv_tile(const prefill_args &a, const uint32_t (*q)[4], float (*o)[4],
                               struct softmax_state (&s)[2], uint32_t stage, const float *scales,
                               int32_t first, int32_t row_position, int lane)
{
    using T = prefill_traits<D>;
    float p[KV_TILE_TOKENS / 8][4] = {};
    uint32_t k_row = stage + (lane % 8 + (lane / 16) * 8) * T::PITCH + ((lane / 8) % 2) * 16;
#pragma unroll
    for (int k = 0; k < D / 16; k++)
#pragma unroll
        for (int n = 0; n < KV_TILE_TOKENS / 16; n++) {
            uint32_t b[4];
            load_matrix(b, k_row + n * 16 * T::PITCH + k * 32);
            mma_bf16(p[2 * n], q[k], b[0], b[1]);
            mma_bf16(p[2 * n + 1], q[k], b[2], b[3]);
        }
    float top[2] = {s[0].maximum, s[1].maximum};
#pragma unroll
    for (int n = 0; n < KV_TILE_TOKENS / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (CODES) p[n][i] = __fmul_rn(p[n][i], scales[n * 8 + 2 * (lane % 4) + i % 2]);
            if (EXTRA && a.softcap > 0) p[n][i] = softcap_score(p[n][i], a.softcap);
            if (MASKED) {
                int32_t key = first + n * 8 + 2 * (lane % 4) + i % 2, position = row_position + 8 * (i / 2);
                if (key > position || (a.sliding_window > 0 && key <= position - a.sliding_window))
                    p[n][i] = -INFINITY;
            }
            top[i / 2] = fmaxf(top[i / 2], p[n][i]);
        }
    float base[2], rescale[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        top[i] = quad_max(top[i]);
        base[i] = softmax_base(top[i]) * a.scale_log2;
        rescale[i] = softmax_raise(&s[i], top[i], a.scale_log2);
        s[i].sum *= rescale[i];
    }
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) o[n][i] *= rescale[i / 2];
    uint32_t v_row = stage + T::TILE_BYTES + (lane % 16) * T::PITCH + (lane / 16) * 16;
#pragma unroll
    for (int k = 0; k < KV_TILE_TOKENS / 16; k++) {
        uint32_t pa[4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float *c = p[2 * k + h];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                c[i] = exp2_fast(c[i] * a.scale_log2 - base[i / 2]);
                s[i / 2].sum += c[i];
            }
            if (CODES)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    c[i] = __fmul_rn(c[i], scales[KV_TILE_TOKENS + (2 * k + h) * 8 + 2 * (lane % 4) + i % 2]);
            pa[2 * h] = pack_bf16(c[0], c[1]);
            pa[2 * h + 1] = pack_bf16(c[2], c[3]);
        }
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            uint32_t b[4];
            load_matrix_transposed(b, v_row + k * 16 * T::PITCH + n * 32);
            mma_bf16(o[2 * n], pa, b[0], b[1]);
            mma_bf16(o[2 * n + 1], pa, b[2], b[3]);
        }
    }
}

template <int D, bool EXTRA, bool CODES>
__global__ void __launch_bounds__(WARPS * 32) prefill_kernel(prefill_args a)
{
    using T = prefill_traits<D>;
    extern __shared__ __align__(128) unsigned char shared[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    struct prefill_tile tile = a.tiles[blockIdx.x];
    int32_t head = tile.first_kv_head * a.group + blockIdx.y, kv_head = head / a.group;
    int32_t first_token = a.cu_seqlens_q[tile.seq], num_rows = a.cu_seqlens_q[tile.seq + 1] - first_token;
    int32_t seqlen = a.seqlens_k[tile.seq],
            offset = seqlen - num_rows; /* position of the chunk's first row */
    const int32_t *table = a.tables + a.table_offsets[tile.seq];
    int32_t row = tile.first_row + warp * 16 + g; /* and row + 8 */

    uint32_t q[D / 16][4];
    int32_t row_heads = a.row_heads;
    const uint32_t *low =
        (const uint32_t *)(a.qkv + ((size_t)(first_token + row) * row_heads + head) * D) + t;
    const uint32_t *high = low + (size_t)8 * row_heads * D / 2;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        q[k][0] = row < num_rows ? low[8 * k] : 0;
        q[k][1] = row + 8 < num_rows ? high[8 * k] : 0;
        q[k][2] = row < num_rows ? low[8 * k + 4] : 0;
        q[k][3] = row + 8 < num_rows ? high[8 * k + 4] : 0;
    }

    int32_t last_position = offset + min(tile.first_row + Q_TILE_ROWS, num_rows) - 1;
    int32_t end_tile = last_position / KV_TILE_TOKENS + 1;
    int32_t full_end =
        (offset + tile.first_row + 1) / KV_TILE_TOKENS; /* tiles before it are seen whole by every row */
    int32_t begin_tile = 0, full_begin = 0;
    if (a.sliding_window > 0) {
        begin_tile = max(offset + tile.first_row - a.sliding_window + 1, 0) / KV_TILE_TOKENS;
        full_begin = (max(last_position - a.sliding_window + 1, 0) + KV_TILE_TOKENS - 1) / KV_TILE_TOKENS;
    }
    float o[D / 8][4] = {};
    struct softmax_state s[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
    uint32_t ring = shared_address(shared);
    const float *scales = (const float *)(shared + T::SCALES_OFFSET);
    if (CODES) {
        load_codes<D>(a, table, kv_head, begin_tile * KV_TILE_TOKENS, seqlen, ring + T::CODES_OFFSET);
        copy_commit();
    } else if (T::STAGES == 2) {
        load_kv_tile<D>(a, table, kv_head, begin_tile * KV_TILE_TOKENS, seqlen, ring);
        copy_commit();
    }
    for (int32_t n = begin_tile; n < end_tile; n++) {
        uint32_t stage = ring + (T::STAGES == 2 && !CODES ? ((n - begin_tile) % 2) * 2 * T::TILE_BYTES : 0);
        if (CODES) {
            int codes = T::CODES_OFFSET + (n - begin_tile) % 2 * T::CODES_BYTES,
                other = T::CODES_OFFSET + (n - begin_tile + 1) % 2 * T::CODES_BYTES;
            if (n + 1 < end_tile)
                load_codes<D>(a, table, kv_head, (n + 1) * KV_TILE_TOKENS, seqlen, ring + other);
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            unpack_codes<D>(shared, shared + codes, n * KV_TILE_TOKENS, seqlen);
        } else if (T::STAGES == 2) {
            uint32_t other = ring + ((n - begin_tile + 1) % 2) * 2 * T::TILE_BYTES;
            if (n + 1 < end_tile) load_kv_tile<D>(a, table, kv_head, (n + 1) * KV_TILE_TOKENS, seqlen, other);
            copy_commit();
            copy_wait<1>();
        } else {
            load_kv_tile<D>(a, table, kv_head, n * KV_TILE_TOKENS, seqlen, stage);
            copy_commit();
            copy_wait<0>();
        }
        __syncthreads();
        if (n >= full_begin && n < full_end)
            attend_kv_tile<D, EXTRA, CODES, false>(a, q, o, s, stage, scales, n * KV_TILE_TOKENS,
                                                   offset + row, lane);
        else
            attend_kv_tile<D, EXTRA, CODES, true>(a, q, o, s, stage, scales, n * KV_TILE_TOKENS, offset + row,
                                                  lane);
        __syncthreads();
    }
    copy_wait<0>();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = quad_sum(s[i].sum);
        if (EXTRA) sum = softmax_with_sink(sum, s[i].maximum * a.scale_log2, a.sinks, head);
        if (row + 8 * i >= num_rows) continue;
        float inverse = 1.0f / sum;
        uint32_t *to =
            (uint32_t *)(a.out + ((size_t)(first_token + row + 8 * i) * a.num_heads + head) * D) + t;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            to[4 * n] = pack_bf16(o[n][2 * i] * inverse, o[n][2 * i + 1] * inverse);
    }
}

template <int D, bool EXTRA, bool CODES>
void launch(struct cuda_device *d, const prefill_args &a, int32_t num_tiles)
{
    using T = prefill_traits<D>;
    constexpr int BYTES = CODES ? T::CODES_SHARED_BYTES : T::SHARED_BYTES;
    auto kernel = prefill_kernel<D, EXTRA, CODES>;
    if (!cuda_allow_shared(d, (const void *)kernel, BYTES)) return;
    dim3 grid((unsigned)num_tiles, (unsigned)a.heads_per_tile);
    kernel<<<checked_grid(grid), WARPS * 32, BYTES, d->stream>>>(a);
}

template <int D, bool CODES> void launch(struct cuda_device *d, const prefill_args &a, int32_t num_tiles)
{
    prefill_has_extra(a) ? launch<D, true, CODES>(d, a, num_tiles) : launch<D, false, CODES>(d, a, num_tiles);
}

} // namespace

struct prefill_args prefill_args_of(const struct batch *b, __nv_bfloat16 *out, const __nv_bfloat16 *qkv,
                                    const struct kv_pool *pool, int32_t layer,
                                    const struct attention_args *args)
{
    assert_always(b->num_prefill_tiles > 0 && args->num_kv_heads % b->prefill_kv_heads_per_tile == 0);
    prefill_args a = {};
    a.out = out;
    a.qkv = qkv;
    a.pool = kv_pool_layer(pool, layer, args->num_kv_heads, args->head_dim);
    a.cu_seqlens_q = b->cu_seqlens_q;
    a.seqlens_k = b->seqlens_k;
    a.table_offsets = b->kv_groups[args->kv_group].table_offsets;
    a.tables = b->prefill_tables;
    a.tiles = b->prefill_tiles;
    a.block_elements = pool->block_elements;
    a.num_heads = args->num_heads;
    a.num_kv_heads = args->num_kv_heads;
    a.group = args->num_heads / args->num_kv_heads;
    a.head_dim = args->head_dim;
    a.row_heads = cuda_row_heads(args);
    a.heads_per_tile = b->prefill_kv_heads_per_tile * a.group;
    a.sliding_window = args->sliding_window;
    a.scale_log2 = (args->softcap > 0 ? args->softcap : args->scale) * 1.4426950408889634f;
    a.softcap = args->softcap > 0 ? args->scale / args->softcap : 0;
    a.sinks = args->sinks;
    return a;
}

namespace
{

/* Over a layer of a pool. */
void attend(struct cuda_device *d, const struct batch *b, const prefill_args &a, const struct kv_pool *pool,
            int32_t layer, const struct attention_args *args)
{
    bool has_codes = kv_pool_has_codes(pool);
    if (prefill_hopper_rows_per_tile(d, args->head_dim)) {
        prefill_hopper_launch(d, &a, b, pool, layer);
        return;
    }
    switch (args->head_dim) { /* of the sizes without e4m3 it is widened */
    case 64:
        launch<64, false>(d, a, b->num_prefill_tiles);
        break;
    case 80:
        has_codes ? launch<80, true>(d, a, b->num_prefill_tiles)
                  : launch<80, false>(d, a, b->num_prefill_tiles);
        break;
    case 96:
        has_codes ? launch<96, true>(d, a, b->num_prefill_tiles)
                  : launch<96, false>(d, a, b->num_prefill_tiles);
        break;
    case 128:
        launch<128, false>(d, a, b->num_prefill_tiles);
        break;
    case 256:
        launch<256, false>(d, a, b->num_prefill_tiles);
        break;
    }
}

} // namespace

void cuda_attention_prefill_widened(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                                    const __nv_bfloat16 *qkv, const struct kv_pool *pool,
                                    const struct attention_args *args)
{
    prefill_args a = prefill_args_of(b, out, qkv, pool->widened, 0, args);
    a.tables = pool->widened_table - b->kv_groups[args->kv_group].prompts_begin;
    attend(d, b, a, pool->widened, 0, args);
}

void cuda_attention_prefill(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                            const __nv_bfloat16 *qkv, const struct kv_pool *pool, int32_t layer,
                            const struct attention_args *args)
{
    if (!pool->widened)
        attend(d, b, prefill_args_of(b, out, qkv, pool, layer, args), pool, layer, args);
    else if (cuda_kv_widen(d, b, pool, layer, args->kv_group))
        cuda_attention_prefill_widened(d, b, out, qkv, pool, args);
}
