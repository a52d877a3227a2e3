/* decoding.cu - Flash-Decoding and FlashDecoding++ on a GPU (flash_decoding.c, flash_decoding_plus.c): a CTA is one split of a
 * head; D / 8 lanes share a key, 8 elements each, and every such group of lanes has sums of its own until the end. */
#include "lab/attention/cuda/tile.cuh"

namespace
{

enum { KEYS_AT_ONCE = 4 }; /* of a group, fetched before any of them is used */

struct sums {
    float m, l, o[8];
};

__device__ __forceinline__ void unpack(float (&x)[8], uint4 raw)
{
    uint32_t pairs[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 pair = unpack_bf16(pairs[i]);
        x[2 * i] = pair.x;
        x[2 * i + 1] = pair.y;
    }
}

/* Rescales a to the larger maximum of both and adds b. */
__device__ __forceinline__ void add(sums &a, float m, float l, const float (&o)[8])
{
    float top = fmaxf(a.m, m), base = softmax_base(top), before = exp2_fast(a.m - base),
          now = exp2_fast(m - base);
    a.m = top;
    a.l = a.l * before + l * now;
#pragma unroll
    for (int i = 0; i < 8; i++) a.o[i] = a.o[i] * before + o[i] * now;
}

/* Keys [first, end) of a head: the sums of this lane's group. UNIFIED: in_range becomes false where a score is out of it. */
template <int D, bool UNIFIED, bool COUNT>
__device__ sums attend(const lab_problem &p, size_t head, int32_t first, int32_t end, bool &in_range,
                       counter<COUNT> &bytes)
{
    constexpr int LANES = D / 8, GROUPS = LAB_THREADS / LANES;
    const float range = 60 * 1.44269504f;
    int group = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    float q[8];
    unpack(q, *(const uint4 *)(p.q + head * D + lane * 8));
    if (group == 0) bytes.load(16);
    sums total = {UNIFIED ? p.unified_max * 1.44269504f : -INFINITY, 0, {}};
    for (int32_t j = first; j < end; j += GROUPS * KEYS_AT_ONCE) { /* all lanes together: they shuffle */
        uint4 k[KEYS_AT_ONCE], v[KEYS_AT_ONCE];
#pragma unroll
        for (int n = 0; n < KEYS_AT_ONCE; n++) {
            int32_t key = j + n * GROUPS + group;
            size_t at = (head * p.num_keys + min(key, end - 1)) * D + lane * 8;
            k[n] = *(const uint4 *)(p.k + at);
            v[n] = *(const uint4 *)(p.v + at);
            if (key < end) bytes.load(32);
        }
        float s[KEYS_AT_ONCE], top = total.m;
#pragma unroll
        for (int n = 0; n < KEYS_AT_ONCE; n++) {
            float x[8];
            unpack(x, k[n]);
            s[n] = 0;
#pragma unroll
            for (int i = 0; i < 8; i++) s[n] += q[i] * x[i];
#pragma unroll
            for (int offset = LANES / 2; offset > 0; offset /= 2) s[n] += __shfl_xor_sync(~0u, s[n], offset);
            s[n] = j + n * GROUPS + group < end ? s[n] * p.scale_log2 : -INFINITY;
            if (UNIFIED && s[n] != -INFINITY && fabsf(s[n] - total.m) >= range) in_range = false;
            top = UNIFIED ? top : fmaxf(top, s[n]);
        }
        float base = softmax_base(top), shrink = UNIFIED ? 1.0f : exp2_fast(total.m - base);
        total.m = top;
        total.l *= shrink;
#pragma unroll
        for (int i = 0; i < 8; i++) total.o[i] *= shrink;
#pragma unroll
        for (int n = 0; n < KEYS_AT_ONCE; n++) {
            float x[8], weight = exp2_fast(s[n] - base);
            unpack(x, v[n]);
            total.l += weight;
#pragma unroll
            for (int i = 0; i < 8; i++) total.o[i] += weight * x[i];
        }
    }
    return total;
}

/* Of all groups of the CTA; the result is right in group 0. */
template <int D> __device__ void add_groups(sums &total)
{
    constexpr int LANES = D / 8, GROUPS = LAB_THREADS / LANES;
    __shared__ sums of_groups[LAB_THREADS];
    of_groups[threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.x >= LANES) return;
    for (int group = 1; group < GROUPS; group++) {
        const sums &other = of_groups[group * LANES + threadIdx.x];
        add(total, other.m, other.l, other.o);
    }
}

template <int D, bool COUNT>
__device__ void store_output(const lab_problem &p, size_t head, const sums &total, counter<COUNT> &bytes)
{
    float inverse = total.l > 0 ? 1 / total.l : 0;
    for (int i = 0; i < 8; i += 2)
        *(uint32_t *)(p.out + head * D + threadIdx.x * 8 + i) =
            pack_bf16(total.o[i] * inverse, total.o[i + 1] * inverse);
    bytes.store(16);
}

/* A split leaves D + 1 floats: outputs divided by their sum and the log-sum-exp, or, UNIFIED, both sums. */
template <int D, bool UNIFIED, bool COUNT>
__global__ void __launch_bounds__(LAB_THREADS) run_split(lab_problem p)
{
    counter<COUNT> bytes;
    size_t head = blockIdx.y;
    int32_t first = blockIdx.x * LAB_SPLIT, end = min(first + LAB_SPLIT, p.num_keys);
    bool in_range = true;
    sums total = attend<D, UNIFIED>(p, head, first, end, in_range, bytes);
    if (UNIFIED && !in_range) p.fallbacks[head] = 1;
    add_groups<D>(total);
    if (threadIdx.x < D / 8) {
        float *to = p.partials + (head * gridDim.x + blockIdx.x) * (D + 1);
        float factor = UNIFIED ? 1.0f : 1 / total.l;
        for (int i = 0; i < 8; i++) to[threadIdx.x * 8 + i] = total.o[i] * factor;
        bytes.store(32);
        if (threadIdx.x == 0) {
            to[D] = UNIFIED ? total.l : total.m + log2f(total.l);
            bytes.store(4);
        }
    }
    bytes.finish(p);
}

/* One CTA: a head, an element a thread. */
template <int D, bool UNIFIED, bool COUNT>
__global__ void __launch_bounds__(D) merge_splits(lab_problem p, int num_splits)
{
    counter<COUNT> bytes;
    size_t head = blockIdx.x;
    const float *parts = p.partials + head * num_splits * (D + 1);
    float top = -INFINITY, sum = 0, o = 0;
    if (!(UNIFIED && p.fallbacks[head])) {
        for (int i = 0; i < num_splits && !UNIFIED; i++) top = fmaxf(top, parts[i * (D + 1) + D]);
        for (int i = 0; i < num_splits; i++) {
            float last = parts[i * (D + 1) + D], weight = UNIFIED ? 1.0f : exp2_fast(last - top);
            sum += UNIFIED ? last : weight;
            o += weight * parts[i * (D + 1) + threadIdx.x];
            bytes.load(threadIdx.x == 0 ? 8 : 4);
        }
        p.out[head * D + threadIdx.x] = __float2bfloat16(o / sum);
        bytes.store(2);
    }
    bytes.finish(p);
}

/* Heads that were out of range, with true maxima; the others end at once. */
template <int D, bool COUNT> __global__ void __launch_bounds__(LAB_THREADS) fall_back(lab_problem p)
{
    counter<COUNT> bytes;
    bool unused = true;
    if (!p.fallbacks[blockIdx.x]) return;
    sums total = attend<D, false>(p, blockIdx.x, 0, p.num_keys, unused, bytes);
    add_groups<D>(total);
    if (threadIdx.x < D / 8) store_output<D>(p, blockIdx.x, total, bytes);
    bytes.finish(p);
}

template <int D, bool COUNT> void launch_flash(const lab_problem &p)
{
    int splits = (p.num_keys + LAB_SPLIT - 1) / LAB_SPLIT;
    run_split<D, false, COUNT><<<dim3(splits, p.num_heads), LAB_THREADS>>>(p);
    merge_splits<D, false, COUNT><<<p.num_heads, D>>>(p, splits);
}

template <int D, bool COUNT> void launch_unified(const lab_problem &p)
{
    int splits = (p.num_keys + LAB_SPLIT - 1) / LAB_SPLIT;
    cudaMemsetAsync(p.fallbacks, 0, p.num_heads * sizeof *p.fallbacks);
    run_split<D, true, COUNT><<<dim3(splits, p.num_heads), LAB_THREADS>>>(p);
    merge_splits<D, true, COUNT><<<p.num_heads, D>>>(p, splits);
    fall_back<D, COUNT><<<p.num_heads, LAB_THREADS>>>(p);
}

} // namespace

void lab_launch_decoding(const struct lab_problem *p, int32_t head_dim, bool unified, bool count)
{
    if (unified)
        LAB_DISPATCH(head_dim, count, launch_unified);
    else
        LAB_DISPATCH(head_dim, count, launch_flash);
}
