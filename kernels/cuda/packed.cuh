/* packed.cuh - weights of four bits as products read them: one layout, whatever file they came from.
 *
 *      quad: 32 rows of W |  k: 128 columns |  strip: 8 rows |  block
 *
 * A block has a word of codes for each lane and 32 columns, [lane][4], and behind them the scales of its rows, [8][scales].
 * Lane 4 g + t has row g, and in a word the columns 2 t and 2 t + 1 (+ 8, + 16, + 24), which are its part of an A operand
 * (mma.cuh): pair i where packed_code puts it in the word's halves. A whole row of K is as long as two blocks divide it; what
 * there is not is 0.
 *
 * A weight becomes bf16 in few instructions, and has the bits of (code - zero) * scale, rounded to f32 and then to bf16, which is
 * tried for all values that a code can have when a weight is packed. Subnormal numbers of bf16, and the normal ones below 2^-125, lie
 * 2^-133 apart: bits 0 to 7 of such a number are an integer, so that a code is a number where it lies.
 *
 * LINEAR_INT4: d, code less zero point, is exact. A scale is the sum of two numbers, high and low, such that d * low is exact, and
 * d * high + d * low rounded once; that is so for scales of f16.
 * LINEAR_INT4_SYMMETRIC: the zero point is 8 and the scale a number of bf16, so that 8 * scale is one, and code * scale - 8 * scale is
 * rounded once. What is multiplied is the weight over packed_factor, since bf16 has no number for scale * 2^133; the sums get it back.
 * A weight of 0 is +0, whatever its scale's sign.
 * LINEAR_E2M1: a scale for 16 columns has two parts; one for 32 has a single one, MXFP4's being powers of two. */
#ifndef KERNELS_CUDA_PACKED_CUH
#define KERNELS_CUDA_PACKED_CUH

#include <type_traits>

#include "kernels/cuda/linear.cuh"

enum {
    PACKED_ROWS = 8,         /* of a strip */
    PACKED_STRIPS = 4,       /* of a quad */
    PACKED_COLUMNS = 128,    /* of a block */
    PACKED_CODES_BYTES = 512 /* of a block */
};

static __host__ __device__ constexpr int packed_block_bytes(int scales)
{
    return PACKED_CODES_BYTES + PACKED_ROWS * 4 * scales;
}

#ifdef __CUDACC__

/* What products of such weights are to be multiplied by. */
static __host__ __device__ constexpr float packed_factor(int format)
{
    return format == LINEAR_INT4_SYMMETRIC ? 128 : 1;
}

static __host__ __device__ constexpr bool is_packed_integer(int format)
{
    return format == LINEAR_INT4 || format == LINEAR_INT4_SYMMETRIC;
}

static __device__ __forceinline__ __nv_bfloat162 bf16_pair(uint32_t bits)
{
    return *(const __nv_bfloat162 *)&bits;
}

static __device__ __forceinline__ uint32_t bits_of_pair(__nv_bfloat162 pair)
{
    return *(const uint32_t *)&pair;
}

/* A power of two, twice. */
static __device__ __forceinline__ __nv_bfloat162 power_pair(int exponent)
{
    return bf16_pair((uint32_t)(exponent + 127) << 7 | (uint32_t)(exponent + 127) << 23);
}

/* A code of pair i in half a word. Integers lie one behind another. A float's sign goes to bit 15 and its magnitude to bits 6 to 8 of a
 * number of bf16, for 2^-126 times its value: those of three pairs lie so that one shift does that, the last one's in what is left. */
template <int FORMAT> static __device__ __forceinline__ uint32_t packed_code(uint32_t code, int i)
{
    if (is_packed_integer(FORMAT)) return code << (4 * i);
    if (i < 3) return (code >> 3) << (15 - 3 * i) | (code & 7) << (6 - 3 * i);
    return (code >> 3) << 14 | (code >> 2 & 1) << 13 | (code & 3) << 10;
}

/* Integers of pair i of a word: times 2^-133 where i is even, else 2^-129. */
static __device__ __forceinline__ __nv_bfloat162 code_pair(uint32_t word, int i)
{
    return bf16_pair((i < 2 ? word : word >> 8) & (i % 2 == 0 ? 0x000f000fu : 0x00f000f0u));
}

/* Pair i of a word of floats, 2^-126 times their values. */
static __device__ __forceinline__ uint32_t float_pair(uint32_t word, int i)
{
    if (i < 3) return word << (3 * i) & 0x81c081c0u;
    return (word << 1 & 0x80008000u) | (word >> 5 & 0x01000100u) | (word >> 4 & 0x00c000c0u);
}

/* A scale as it lies beside codes, each part twice: of(word), and a pair of a word of codes by it. SCALES: of a row of a block. */
template <int FORMAT, int SCALES> struct packed_scale;

/* high << 16 | low, 128 times as large; the lowest five bits of low are the zero point. */
template <int SCALES> struct packed_scale<LINEAR_INT4, SCALES> {
    uint32_t high, low, minus_zero; /* the zero point over 128 */

    static __device__ __forceinline__ packed_scale of(uint32_t word)
    {
        __nv_bfloat162 minus = bf16_pair((word & 31) * 0x00010001u | 0x80008000u); /* times 2^-133 */
        return {__byte_perm(word, 0, 0x3232), __byte_perm(word & 0xffffffe0u, 0, 0x1010),
                bits_of_pair(__hmul2(minus, power_pair(126)))};
    }

    __device__ __forceinline__ uint32_t pair(uint32_t word, int i) const
    {
        __nv_bfloat162 d =
            __hfma2(code_pair(word, i), power_pair(i % 2 == 0 ? 126 : 122), bf16_pair(minus_zero));
        return bits_of_pair(__hfma2(d, bf16_pair(high), __hmul2(d, bf16_pair(low))));
    }
};

/* scale * 2^126 << 16 | -scale / 16. */
template <int SCALES> struct packed_scale<LINEAR_INT4_SYMMETRIC, SCALES> {
    uint32_t even, odd, minus_eight; /* of pairs; 8 * scale over 128 */

    static __device__ __forceinline__ packed_scale of(uint32_t word)
    {
        const uint32_t scale = __byte_perm(word, 0, 0x3232);
        return {scale, bits_of_pair(__hmul2(bf16_pair(scale), power_pair(-4))), __byte_perm(word, 0, 0x1010)};
    }

    __device__ __forceinline__ uint32_t pair(uint32_t word, int i) const
    {
        return bits_of_pair(
            __hfma2(code_pair(word, i), bf16_pair(i % 2 == 0 ? even : odd), bf16_pair(minus_eight)));
    }
};

/* high << 16 | low, 2^126 times as large. */
template <int SCALES> struct packed_scale<LINEAR_E2M1, SCALES> {
    uint32_t high, low;

    static __device__ __forceinline__ packed_scale of(uint32_t word)
    {
        return {__byte_perm(word, 0, 0x3232), __byte_perm(word, 0, 0x1010)};
    }

    __device__ __forceinline__ uint32_t pair(uint32_t word, int i) const
    {
        __nv_bfloat162 d = bf16_pair(float_pair(word, i));
        if (SCALES == 4) return bits_of_pair(__hmul2(d, bf16_pair(high)));
        return bits_of_pair(__hfma2(d, bf16_pair(high), __hmul2(d, bf16_pair(low))));
    }
};

#endif

/* Whether the device can keep these parts packed, and as what: LINEAR_BF16 where it cannot; scales: of a row of a block. */
enum linear_format packed_format(const struct cuda_device *d, const struct linear_desc *desc,
                                 int32_t *scales);

struct device_codes;
/* Put a part's codes and scales, which are on the device, into w, from its row first_row on, or as part 0 or 1 of gate and up. *inexact
 * becomes 1, in device memory, where a scale cannot be had in two parts. */
void packed_put_codes(struct cuda_device *d, const struct linear *w, const struct device_codes *codes,
                      int64_t first_row, bool alternate, int part);
void packed_put_scales(struct cuda_device *d, const struct linear *w, const struct device_codes *codes,
                       int64_t first_row, bool alternate, int part, int32_t *inexact);
enum { PACKED_TILE_ROWS = 128 }; /* of the largest tile */
size_t packed_bytes(const struct linear *w);
/* Where a row that is a multiple of a quad's begins. */
size_t packed_offset(const struct linear *w, int32_t row);
/* weights.cu: both, of parts that their file has, behind cuda_packed_begin. Whether all scales are exact is known before the last part's
 * codes are in, where is_last says which that is. */
bool cuda_packed_begin(struct cuda_device *d);
bool cuda_upload_packed(struct cuda_device *d, const struct linear *w, const struct weight_view *v,
                        int64_t first_row, bool alternate, int part, bool is_last);
bool cuda_packed_is_exact(struct cuda_device *d);
/* What w is packed as: call(FORMAT, SCALES), both as types whose value is known when it is compiled. */
template <typename CALL> auto with_packed_form(const struct linear *w, CALL call)
{
    using int4 = std::integral_constant<int, LINEAR_INT4>;
    using symmetric = std::integral_constant<int, LINEAR_INT4_SYMMETRIC>;
    using e2m1 = std::integral_constant<int, LINEAR_E2M1>;
    using one = std::integral_constant<int, 1>;
    using four = std::integral_constant<int, 4>;
    const bool has_one = w->packed_scales == 1;
    if (w->format == LINEAR_INT4) return has_one ? call(int4(), one()) : call(int4(), four());
    if (w->format == LINEAR_INT4_SYMMETRIC)
        return has_one ? call(symmetric(), one()) : call(symmetric(), four());
    if (w->packed_scales == 4) return call(e2m1(), four());
    return call(e2m1(), std::integral_constant<int, 8>());
}
/* All of w as bf16, [N][K]. */
void packed_unpack(struct cuda_device *d, const struct linear *w, __nv_bfloat16 *out);

#endif
