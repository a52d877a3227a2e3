/* attention_decode_codes.cu - Flash-Decoding where K and V are e4m3 (kv_codes.cuh), on a Hopper: as attention_decode.cu cuts and walks
 * it, but a tile has 128 tokens, 8 pages as their chunks lie in the pool, and a group of four warps computes it with products of e4m3.
 *
 *   producer, a warp:  stages of a tile each (attention_decode_producer.cuh)
 *   consumers, four:   S = K Q (K the M side: 64 tokens an instruction), V turned by columns meanwhile | softmax |
 *                      O = V P (V the M side: 64 of its columns)
 *
 * e4m3 has four significant bits and bf16, in which queries and weights were before, eight: so each is the sum of two codes, a high one
 * and a low one that counts 1/16, exactly but for what is less than 2^-14 of a row's largest. A query head has two columns of a product's N side, one
 * for each, which one lane gets side by side. What e4m3 cannot hold stands in f32 beside it: a row of Q is multiplied by a power of two
 * that brings its largest to 128 or more, scores by its inverse and K's scale; weights are multiplied by V's scale over the largest of the
 * tile's, and the result by that one. The tensor cores add to some 14 bits (fp8.cuh), over a row of K and over a tile's tokens.
 *
 * Tiles are merged in order into a split's result, and those in order into a head's, in registers; from partial results in memory where
 * more than one CTA has splits of a head. So the bits are a function of the sequence alone. */
#include "kernels/cuda/attention_decode.cuh"
#include "kernels/cuda/attention_decode_merge.cuh"
#include "kernels/cuda/attention_decode_producer.cuh"
#include "kernels/cuda/fp8.cuh"
#include "kernels/cuda/kv_codes.cuh"
#include "kernels/cuda/launch.cuh"

namespace
{

enum {
    TILE_PAGES = 8,
    TILE_TOKENS = TILE_PAGES * BLOCK_SIZE,
    CONSUMER_WARPS = 4,
    CONSUMER_THREADS = CONSUMER_WARPS * 32,
    THREADS = CONSUMER_THREADS + 32,
    CONSUMER_BARRIER = 1
};

const float LOW_SCALE = 16, Q_LARGEST = 128, WEIGHT_LARGEST = 256;

/* COLUMNS: of a product, two for each query head. */
template <int D, int COLUMNS> struct code_traits {
    static constexpr int HEADS = COLUMNS / 2;
    static constexpr int OCTETS = COLUMNS / 8;    /* of columns; of each a lane has one head */
    static constexpr int STEPS = (D + 31) / 32;   /* products along a row of K; beyond D Q is zero */
    static constexpr int BLOCKS = (D + 63) / 64;  /* of V's columns; those beyond D are not used */
    static constexpr int VECTORS = (D + 63) / 64; /* pairs of a query that a lane loads */
    /* Products with sums of their own, as far as there are registers: of a row of K, and of a whole tile's tokens. */
    static constexpr int KEY_SUMS = COLUMNS > 8 ? 1 : STEPS;
    static constexpr bool VALUES_APART = COLUMNS == 8 && D <= 128;
    static constexpr int CHUNK_BYTES = kv_chunk<D>::BYTES;
    static constexpr int STAGE_BYTES = TILE_PAGES * CHUNK_BYTES;
    static constexpr int Q_OCTET_BYTES = STEPS * 2 * 128;  /* [16 columns of a row][8][16] */
    static constexpr int P_OCTET_BYTES = TILE_PAGES * 128; /* [page][8][16] */
};

/* What the consumers tell each other. */
template <int HEADS> struct exchange {
    float tops[HEADS][CONSUMER_WARPS], sums[HEADS][CONSUMER_WARPS]; /* of each warp's tokens */
    uint32_t v_scales[CONSUMER_WARPS];                              /* bits of the largest */
    float back[HEADS]; /* what a head's scores are multiplied by */
    int32_t is_last;
};

/* A CTA's shared memory, behind its stages. */
template <int D, int COLUMNS> struct code_shared {
    using T = code_traits<D, COLUMNS>;
    alignas(128) unsigned char q[T::OCTETS * T::Q_OCTET_BYTES], p[T::OCTETS * T::P_OCTET_BYTES];
    struct exchange<T::HEADS> x;
    struct kv_tile tiles[STAGES_MAX];
    alignas(8) unsigned char barriers[TEAM_BARRIERS * 8];
};

/* A pair of codes and what they leave, in units of 1 / LOW_SCALE. */
struct code_pair {
    uint32_t high, low;
};

__device__ __forceinline__ uint32_t code_pair_of(float x, float y)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, __NV_E4M3);
}

__device__ __forceinline__ struct code_pair split_pair(float x, float y)
{
    uint32_t high = code_pair_of(x, y);
    float2 v = kv_code_pair(high);
    return {high,
            code_pair_of(__fmul_rn(__fsub_rn(x, v.x), LOW_SCALE), __fmul_rn(__fsub_rn(y, v.y), LOW_SCALE))};
}

/* What a high and a low column's sums are together. */
__device__ __forceinline__ float join(float high, float low)
{
    return __fmaf_rn(low, 1 / LOW_SCALE, high);
}

/* A lane's part of a result: of the heads 4 n + t the columns 64 m + 16 warp + 2 g and the next one. Sums are of its tokens alone. */
template <int D, int COLUMNS> struct result {
    using T = code_traits<D, COLUMNS>;
    float maximum[T::OCTETS], sum[T::OCTETS]; /* maximum: in log2 units */
    float o[T::BLOCKS][T::OCTETS][2];

    /* x comes behind it in the sequence. */
    __device__ __forceinline__ void merge_in(const result &x)
    {
#pragma unroll
        for (int n = 0; n < T::OCTETS; n++) {
            struct merge_factors f = merge_factors_of(maximum[n], x.maximum[n]);
            maximum[n] = fmaxf(maximum[n], x.maximum[n]);
            sum[n] = merge(sum[n], x.sum[n], f);
#pragma unroll
            for (int m = 0; m < T::BLOCKS; m++)
#pragma unroll
                for (int i = 0; i < 2; i++) o[m][n][i] = merge(o[m][n][i], x.o[m][n][i], f);
        }
    }
};

/* Over the lanes that have the same heads, g = 0 to 7. */
__device__ __forceinline__ float heads_max(float x)
{
#pragma unroll
    for (int i = 4; i < 32; i *= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

__device__ __forceinline__ float heads_sum(float x)
{
#pragma unroll
    for (int i = 4; i < 32; i *= 2) x = __fadd_rn(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
}

__device__ __forceinline__ void consumers_meet(void)
{
    named_barrier_sync(CONSUMER_BARRIER, CONSUMER_THREADS);
}

/* The same, after writes that the tensor cores are to see. */
__device__ __forceinline__ void consumers_publish(void)
{
    shared_writes_fence();
    consumers_meet();
}

template <int D, int COLUMNS, bool EXTRA> struct code_consumer {
    using T = code_traits<D, COLUMNS>;
    const decode_args &a;
    struct code_shared<D, COLUMNS> &s;
    int warp, g, t;
    float back[T::OCTETS];
    result<D, COLUMNS> split, head;

    __device__ __forceinline__ int32_t head_of(int n) const { return 4 * n + t; }

    /* ---- queries ---- */

    /* Of one head, by a warp; a head that is not there is zero. */
    __device__ __forceinline__ void load_query(const __nv_bfloat16 *from, bool is_there, int h)
    {
        int lane = threadIdx.x % 32;
        float2 v[T::VECTORS];
        uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < T::VECTORS; i++) {
            int pair = lane + 32 * i;
            v[i] = unpack_bf16(is_there && pair < D / 2 ? ((const uint32_t *)from)[pair] : 0);
            most = max(most, max(__float_as_uint(fabsf(v[i].x)), __float_as_uint(fabsf(v[i].y))));
        }
        uint32_t exponent = __reduce_max_sync(0xffffffffu, most) >> 23;
        bool is_finite = exponent < 255;
        exponent = min(max(exponent, 8u), 253u);
        float to = __fmul_rn(__uint_as_float((254 - exponent) << 23), Q_LARGEST);
#pragma unroll
        for (int i = 0; i < T::VECTORS; i++) {
            int column = 2 * (lane + 32 * i);
            if (column >= D) continue;
            struct code_pair c = split_pair(__fmul_rn(v[i].x, to), __fmul_rn(v[i].y, to));
            unsigned char *at = s.q + h / 4 * T::Q_OCTET_BYTES + column / 16 * 128 + h % 4 * 32 + column % 16;
            *(uint16_t *)at = (uint16_t)c.high;
            *(uint16_t *)(at + 16) = (uint16_t)c.low;
        }
        if (lane == 0)
            s.x.back[h] = is_finite ? __fmul_rn(__uint_as_float(exponent << 23), 1 / Q_LARGEST)
                                    : __int_as_float(0x7fffffff);
    }

    __device__ __forceinline__ void load_queries(const struct kv_tile &tile)
    {
        int32_t row_heads = a.num_heads + 2 * a.num_kv_heads;
        const __nv_bfloat16 *from = a.qkv + ((size_t)tile.token * row_heads + tile.first_head) * D;
#pragma unroll
        for (int h = 0; h < T::HEADS; h += CONSUMER_WARPS)
            load_query(from + (h + warp) * D, h + warp < tile.num_heads, h + warp);
        consumers_publish();
#pragma unroll
        for (int n = 0; n < T::OCTETS; n++) back[n] = s.x.back[head_of(n)];
    }

    /* ---- a tile: a lane has the tokens 8 o + g of the pages 2 warp + i ---- */

    __device__ __forceinline__ const float *scales_of(const unsigned char *stage, int i, bool v) const
    {
        return (const float *)(stage + (2 * warp + i) * T::CHUNK_BYTES + kv_chunk<D>::SCALES_OFFSET) +
               (v ? BLOCK_SIZE : 0) + g;
    }

    /* sums[o]: of the pages' octets of tokens o. A product waits for the one before it with the same sums, so each has its own as far as
     * there are registers for them. */
    __device__ __forceinline__ void multiply_keys(float (&sums)[T::KEY_SUMS][2][COLUMNS / 2], uint32_t stage)
    {
        uint32_t q = shared_address(s.q);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < T::STEPS; k++)
#pragma unroll
            for (int o = 0; o < 2; o++)
                wgmma_e4m3(sums[k % T::KEY_SUMS][o],
                           wgmma_pieces_descriptor(stage + k * 2 * BLOCK_SIZE * 16 + o * 128, T::CHUNK_BYTES,
                                                   BLOCK_SIZE * 16),
                           wgmma_pieces_descriptor(q + k * 256, T::Q_OCTET_BYTES, 128), k >= T::KEY_SUMS);
        wgmma_commit();
    }

    /* The product of two pages and a block of V's columns. */
    __device__ __forceinline__ void multiply_pages(float (&sums)[COLUMNS / 2], uint32_t stage, int32_t page,
                                                   int m, int add)
    {
        wgmma_e4m3(sums,
                   wgmma_pieces_descriptor(stage + page * T::CHUNK_BYTES + kv_chunk<D>::V_OFFSET +
                                               m * 64 * BLOCK_SIZE,
                                           128, T::CHUNK_BYTES),
                   wgmma_pieces_descriptor(shared_address(s.p) + page * 128, T::P_OCTET_BYTES, 128), add);
    }

    /* Of a whole tile, each product with sums of its own. */
    __device__ __forceinline__ void multiply_all_values(float (&sums)[T::BLOCKS][COLUMNS / 2], uint32_t stage)
    {
        float parts[TILE_PAGES / 2][T::BLOCKS][COLUMNS / 2];
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < TILE_PAGES / 2; k++)
#pragma unroll
            for (int m = 0; m < T::BLOCKS; m++) multiply_pages(parts[k][m], stage, 2 * k, m, 0);
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int k = 0; k < TILE_PAGES / 2; k++)
#pragma unroll
            for (int m = 0; m < T::BLOCKS; m++) {
                wgmma_hold(parts[k][m]);
#pragma unroll
                for (int i = 0; i < COLUMNS / 2; i++)
                    sums[m][i] = k == 0 ? parts[k][m][i] : __fadd_rn(sums[m][i], parts[k][m][i]);
            }
    }

    __device__ __forceinline__ void multiply_values(float (&sums)[T::BLOCKS][COLUMNS / 2], uint32_t stage,
                                                    int32_t num_pages)
    {
        if (T::VALUES_APART && num_pages > TILE_PAGES - 2) {
            multiply_all_values(sums, stage);
            return;
        }
#pragma unroll 1
        for (int32_t page = 0; page < num_pages; page += 2) {
            wgmma_fence();
#pragma unroll
            for (int m = 0; m < T::BLOCKS; m++) multiply_pages(sums[m], stage, page, m, page > 0);
            wgmma_commit();
            wgmma_wait<0>();
        }
#pragma unroll
        for (int m = 0; m < T::BLOCKS; m++) wgmma_hold(sums[m]);
    }

    /* V of this warp's pages by columns, where it lies: of 16 columns the even ones, then the odd ones, each as the tokens 0, 1, 8, 9,
     * 2, 3, 10 ... Two codes are one element of 16 bits to ldmatrix. */
    __device__ __forceinline__ void turn_values(unsigned char *stage) const
    {
        constexpr int GROUPS = D / 16;
        int lane = threadIdx.x % 32, row = lane % 8, half = lane / 8 % 2, second = lane / 16;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t v = shared_address(stage + (2 * warp + i) * T::CHUNK_BYTES + kv_chunk<D>::V_OFFSET),
                     r[(GROUPS + 1) / 2][4];
#pragma unroll
            for (int n = 0; n < GROUPS; n += 2)
                load_matrix_transposed(
                    r[n / 2], v + kv_value_offset(D, row + 8 * half, 16 * min(n + second, GROUPS - 1)));
            __syncwarp();
#pragma unroll
            for (int n = 0; n < GROUPS; n += 2) {
                const uint32_t *pairs = r[n / 2];
                uint32_t columns[4] = {
                    __byte_perm(pairs[0], pairs[1], 0x6420), __byte_perm(pairs[0], pairs[1], 0x7531),
                    __byte_perm(pairs[2], pairs[3], 0x6420), __byte_perm(pairs[2], pairs[3], 0x7531)};
                store_matrix(v + min(n + second, GROUPS - 1) * 256 + half * 128 + row * 16, columns);
            }
        }
    }

    /* V's scales of tokens that are not seen are 0. Returns their largest's bits: none is negative, and what is no number is above all. */
    __device__ __forceinline__ uint32_t load_value_scales(float (&v)[2][2], const bool (&is_seen)[2][2],
                                                          const unsigned char *stage) const
    {
        uint32_t most = 0;
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int o = 0; o < 2; o++) {
                v[i][o] = is_seen[i][o] ? scales_of(stage, i, true)[8 * o] : 0.0f;
                most = max(most, __float_as_uint(v[i][o]));
            }
        return __reduce_max_sync(0xffffffffu, most);
    }

    /* Sums become scores, in sums[o][4 n + 2 i]. */
    __device__ __forceinline__ void scale_scores(float (&sums)[2][COLUMNS / 2], const bool (&is_seen)[2][2],
                                                 const unsigned char *stage) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int o = 0; o < 2; o++) {
                float k = scales_of(stage, i, false)[8 * o];
#pragma unroll
                for (int n = 0; n < T::OCTETS; n++) {
                    float *at = sums[o] + 4 * n + 2 * i,
                          score = __fmul_rn(__fmul_rn(join(at[0], at[1]), back[n]), k);
                    if (EXTRA && a.softcap > 0) score = softcap_score(score, a.softcap);
                    at[0] = is_seen[i][o] ? score : -INFINITY;
                }
            }
    }

    __device__ __forceinline__ void tell_maxima(const float (&sums)[2][COLUMNS / 2], uint32_t v_scale)
    {
#pragma unroll
        for (int n = 0; n < T::OCTETS; n++) {
            float top = heads_max(
                fmaxf(fmaxf(sums[0][4 * n], sums[0][4 * n + 2]), fmaxf(sums[1][4 * n], sums[1][4 * n + 2])));
            if (g == 0) s.x.tops[head_of(n)][warp] = top;
        }
        if (threadIdx.x % 32 == 0) s.x.v_scales[warp] = v_scale;
    }

    /* Weights of one octet's head, to the product's N side; r: where its maximum and sum go. inverse: of V's largest scale. */
    __device__ __forceinline__ void weigh(const float (&sums)[2][COLUMNS / 2], const float (&v)[2][2], int n,
                                          float inverse, result<D, COLUMNS> *r)
    {
        float4 tops = *(const float4 *)s.x.tops[head_of(n)];
        float top = fmaxf(fmaxf(tops.x, tops.y), fmaxf(tops.z, tops.w)),
              base = top == -INFINITY ? 0.0f : __fmul_rn(top, a.scale_log2); /* a row that sees nothing */
        r->maximum[n] = top == -INFINITY ? top : base;
        r->sum[n] = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float w[2];
#pragma unroll
            for (int o = 0; o < 2; o++) {
                float p = exp2_fast(__fmaf_rn(sums[o][4 * n + 2 * i], a.scale_log2, -base));
                r->sum[n] = __fadd_rn(r->sum[n], p);
                w[o] = __fmul_rn(p, __fmul_rn(__fmul_rn(v[i][o], inverse), WEIGHT_LARGEST));
            }
            struct code_pair c = split_pair(w[0], w[1]);
            unsigned char *at =
                s.p + n * T::P_OCTET_BYTES + (2 * warp + i) * 128 + 32 * t + g / 2 * 4 + g % 2;
            at[0] = (unsigned char)c.high;
            at[2] = (unsigned char)(c.high >> 8);
            at[16] = (unsigned char)c.low;
            at[18] = (unsigned char)(c.low >> 8);
        }
    }

    __device__ __forceinline__ void compute(const struct kv_tile &tile, unsigned char *memory)
    {
        uint32_t stage = (uint32_t)warp_uniform((int32_t)shared_address(memory));
        float parts[T::KEY_SUMS][2][COLUMNS / 2], v[2][2], values[T::BLOCKS][COLUMNS / 2];
        auto &sums = parts[0];
        bool is_seen[2][2];
        multiply_keys(parts, stage);
        turn_values(memory);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int o = 0; o < 2; o++) {
                int32_t token = (2 * warp + i) * BLOCK_SIZE + 8 * o + g;
                is_seen[i][o] = token < tile.num_valid && token >= tile.num_hidden;
            }
        uint32_t v_scale = load_value_scales(v, is_seen, memory);
        wgmma_wait<0>();
#pragma unroll
        for (int k = 0; k < T::KEY_SUMS; k++)
#pragma unroll
            for (int o = 0; o < 2; o++) {
                wgmma_hold(parts[k][o]);
#pragma unroll
                for (int i = 0; k > 0 && i < COLUMNS / 2; i++)
                    sums[o][i] = __fadd_rn(sums[o][i], parts[k][o][i]);
            }
        scale_scores(sums, is_seen, memory);
        tell_maxima(sums, v_scale);
        consumers_meet();
        uint4 scales = *(const uint4 *)s.x.v_scales;
        float most = __uint_as_float(max(max(scales.x, scales.y), max(scales.z, scales.w))),
              inverse = most == 0 ? 0.0f : reciprocal_fast(most);
        result<D, COLUMNS> r;
#pragma unroll
        for (int n = 0; n < T::OCTETS; n++) weigh(sums, v, n, inverse, &r);
        consumers_publish();
        multiply_values(values, stage, warp_uniform((tile.num_valid + BLOCK_SIZE - 1) / BLOCK_SIZE));
        float scale = __fmul_rn(most, 1 / WEIGHT_LARGEST);
#pragma unroll
        for (int m = 0; m < T::BLOCKS; m++)
#pragma unroll
            for (int n = 0; n < T::OCTETS; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float *at = values[m] + 4 * n + 2 * i;
                    r.o[m][n][i] = __fmul_rn(join(at[0], at[1]), scale);
                }
        if (tile.begins_split)
            split = r;
        else
            split.merge_in(r);
    }

    /* ---- a split's end ---- */

    /* Sums become those of all tokens. */
    __device__ __forceinline__ void add_sums(void)
    {
#pragma unroll
        for (int n = 0; n < T::OCTETS; n++) {
            float sum = heads_sum(split.sum[n]);
            if (g == 0) s.x.sums[head_of(n)][warp] = sum;
        }
        consumers_meet();
#pragma unroll
        for (int n = 0; n < T::OCTETS; n++) {
            float4 sums = *(const float4 *)s.x.sums[head_of(n)];
            split.sum[n] = __fadd_rn(__fadd_rn(sums.x, sums.y), __fadd_rn(sums.z, sums.w));
        }
    }

    /* A lane's columns, two at a time: write(the first one, values). */
    template <typename WRITE>
    __device__ __forceinline__ void for_each_column(const result<D, COLUMNS> &r, int n,
                                                    const WRITE &write) const
    {
#pragma unroll
        for (int m = 0; m < T::BLOCKS; m++) {
            int column = 64 * m + 16 * warp + 2 * g;
            if (column < D) write(column, make_float2(r.o[m][n][0], r.o[m][n][1]));
        }
    }

    __device__ __forceinline__ void write_out(const struct destination &to, int32_t num_heads) const
    {
#pragma unroll
        for (int n = 0; n < T::OCTETS; n++) {
            int32_t h = head_of(n);
            if (h >= num_heads) continue;
            float sum = head.sum[n];
            if (EXTRA) sum = softmax_with_sink(sum, head.maximum[n], a.sinks, to.first_head + h);
            float scale = 1.0f / sum;
            for_each_column(head, n, [&](int column, float2 v) {
                *(uint32_t *)(to.out + h * D + column) = pack_bf16(v.x * scale, v.y * scale);
            });
        }
    }

    __device__ __forceinline__ void write_partial(float *to, int32_t num_heads) const
    {
#pragma unroll
        for (int n = 0; n < T::OCTETS; n++) {
            int32_t h = head_of(n);
            if (h >= num_heads) continue;
            float *row = to + h * decode_traits<D>::ROW_FLOATS;
            for_each_column(split, n, [&](int column, float2 v) { __stcg((float2 *)(row + column), v); });
            if (warp == 0 && g == 0) __stcg((float2 *)(row + D), make_float2(split.maximum[n], split.sum[n]));
        }
    }

    /* The last CTA to come to the end of its splits of a head has the result of all. */
    __device__ __forceinline__ void merge_partials(const struct kv_tile &tile, const struct destination &to)
    {
        consumers_meet();
        if (threadIdx.x == 0) {
            int32_t arrived = add_acquire_release(to.counters, tile.num_mine) + tile.num_mine;
            s.x.is_last = arrived == tile.num_splits;
            if (s.x.is_last) *to.counters = 0;
        }
        consumers_meet();
        if (!s.x.is_last) return;
        struct partials p = {to.partial, a.partial_floats, tile.num_splits, tile.num_heads,
                             a.group,    a.num_heads,      to.row_floats};
#pragma unroll 1
        for (int row = warp; row < tile.num_heads; row += CONSUMER_WARPS)
            merge_row<D, SPLITS_FEW, SPLITS_MAX, EXTRA, false>(p, row, to.out, a.sinks, to.first_head);
    }

    __device__ __forceinline__ void close_split(const struct kv_tile &tile)
    {
        struct destination to = destination_of<D>(a, tile.seq, tile.head, tile.token, tile.first_head);
        add_sums();
        if (tile.num_mine == tile.num_splits) {
            if (tile.split == 0)
                head = split;
            else
                head.merge_in(split);
            if (tile.ends_mine) write_out(to, tile.num_heads);
        } else {
            write_partial(to.partial + (size_t)tile.split * a.partial_floats, tile.num_heads);
            if (tile.ends_mine) merge_partials(tile, to);
        }
    }

    __device__ __forceinline__ void run(const view &v)
    {
        int32_t seq = -1, last_head = -1;
        struct pipeline_state c = {0, 0};
        for (int i = threadIdx.x; i < (int)sizeof s.q / 4; i += CONSUMER_THREADS) ((uint32_t *)s.q)[i] = 0;
        consumers_meet();
        dependency_wait();
        for (;; c.advance(a.num_stages)) {
            barrier_wait(v.full(c.stage), c.parity);
            struct kv_tile tile = v.tiles[c.stage];
            if (tile.seq < 0) return;
            if (tile.seq != seq || tile.head != last_head) load_queries(tile);
            seq = tile.seq;
            last_head = tile.head;
            compute(tile, v.stages + c.stage * T::STAGE_BYTES);
            release(v.empty(c.stage));
            if (tile.ends_split) close_split(tile);
        }
    }
};

/* The chunks of a tile, and, so that all codes that a product of two pages reads are finite, its last one twice where their number is
 * odd. */
template <int D>
__device__ __forceinline__ void copy_chunks(const decode_args &a, const struct walk &w, int32_t block,
                                            uint32_t stage, uint32_t full)
{
    constexpr int BYTES = kv_chunk<D>::BYTES;
    int32_t lane = (int32_t)threadIdx.x % 32, num_pages = min(w.end_page - w.page, (int32_t)TILE_PAGES),
            num_copies = (num_pages + 1) / 2 * 2;
    block = __shfl_sync(0xffffffffu, block, min(lane, num_pages - 1));
    if (lane == 0) barrier_arrive_expect(full, (uint32_t)(num_copies * BYTES));
    __syncwarp();
    const uint8_t *from = (const uint8_t *)(a.pool + block * a.block_elements) + (size_t)w.kv_head * BYTES;
    if (lane < num_copies) bulk_stream(stage + lane * BYTES, from, full, BYTES);
}

template <int D, int COLUMNS, bool EXTRA>
__global__ void __launch_bounds__(THREADS, decode_teams_per_sm(D))
    decode_codes_kernel(const __grid_constant__ decode_args a)
{
    using T = code_traits<D, COLUMNS>;
    extern __shared__ __align__(128) unsigned char shared[];
    if (!HAS_COPY_ENGINE) return; /* not launched there */
    int warp = warp_uniform(threadIdx.x / 32);

    /* the step's arrays, and pages of earlier steps, were there before the first kernel of this step began */
    dependents_launch();
    struct walk w;
    int32_t num_ranges = walk_find_lists(a, &w);
    if ((int32_t)blockIdx.x >= num_ranges) return;
    auto &s = *(struct code_shared<D, COLUMNS> *)(shared + a.num_stages * T::STAGE_BYTES);
    view v = {shared_address(shared), shared_address(s.barriers), shared, s.tiles};
    if (warp == CONSUMER_WARPS) {
        walk_open<false>(a, &w, (int32_t)blockIdx.x);
        if (threadIdx.x % 32 == 0) ring_init(v.full(0), v.empty(0), a.num_stages, CONSUMER_THREADS);
    }
    __syncthreads();
    if (warp == CONSUMER_WARPS) {
        produce<TILE_PAGES, true, false>(
            a, v, w, num_ranges, [&](const struct walk &at, int32_t block, int32_t stage) {
                copy_chunks<D>(a, at, block, v.ring + stage * T::STAGE_BYTES, v.full(stage));
            });
    } else {
        int lane = threadIdx.x % 32;
        struct code_consumer<D, COLUMNS, EXTRA> consumer = {
            a, s, warp, lane / 4, lane % 4
        };
        consumer.run(v);
    }
}

/* ---- launch ---- */

template <int D, int COLUMNS> int32_t shared_bytes(int32_t num_stages)
{
    return num_stages * code_traits<D, COLUMNS>::STAGE_BYTES +
           (int32_t)sizeof(struct code_shared<D, COLUMNS>);
}

template <int D, int COLUMNS> void launch(struct cuda_device *d, decode_args *a)
{
    const int32_t teams = decode_teams_per_sm(D);
    a->num_stages = 1;
    while (a->num_stages < STAGES_MAX &&
           teams * (shared_bytes<D, COLUMNS>(a->num_stages + 1) + CTA_SHARED_RESERVED) <=
               d->cta_shared_bytes + CTA_SHARED_RESERVED)
        a->num_stages++;
    auto kernel = a->softcap > 0 || a->sinks ? decode_codes_kernel<D, COLUMNS, true>
                                             : decode_codes_kernel<D, COLUMNS, false>;
    launch_dependent(d, kernel, dim3((unsigned)(d->num_sms * teams)), dim3(THREADS),
                     (size_t)shared_bytes<D, COLUMNS>(a->num_stages), *a);
}

template <int D> void launch(struct cuda_device *d, decode_args *a)
{
    if (a->group <= 4)
        launch<D, 8>(d, a);
    else if (a->group <= 8)
        launch<D, 16>(d, a);
    else
        launch<D, 32>(d, a);
}

} // namespace

void cuda_attention_decode_codes(struct cuda_device *d, decode_args a, int32_t head_dim)
{
    a.num_teams = 1;
    switch (head_dim) {
    case 64:
        launch<64>(d, &a);
        break;
    case 80:
        launch<80>(d, &a);
        break;
    case 96:
        launch<96>(d, &a);
        break;
    case 128:
        launch<128>(d, &a);
        break;
    case 256:
        launch<256>(d, &a);
        break;
    }
}
