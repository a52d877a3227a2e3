/* packed.cuh - weights of four bits as products read them: one layout, whatever file they came from.
 *
 *      quad: 32 rows of W |  k: 128 columns |  strip: 8 rows |  block
 *
 * A block has a word of codes for each lane and 32 columns, [lane][4], and behind them the scales of its rows, [8][scales].
 * Lane 4 g + t has row g, and in a word the columns 2 t and 2 t + 1 (+ 8, + 16, + 24), which are its part of an A operand
 * (mma.cuh): pair i where packed_code puts it in the word's halves. A whole row of K is as long as two blocks divide it; what
 * there is not is 0.
 *
 * A weight becomes bf16 in few instructions, and has the bits of (code - zero) * scale, rounded to f32 and then to bf16: a
 * scale is the sum of two numbers of bf16, high and low, such that d * low is exact, and d * high + d * low rounded once.
 * That is so for scales of f16 and bf16, and tried for all values that a code can have when a weight is packed. A float's scale for 32
 * columns has no low part: MXFP4's are powers of two. */
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

/* a & b | c in one instruction: of two constants the compiler makes two. */
static __device__ __forceinline__ uint32_t mask_and_set(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

/* A scale as it lies beside codes: high << 16 | low. Of integers the lowest five bits of low are the zero point. */
struct packed_scale {
    uint32_t high, low, zero; /* twice each; zero as 128 + zero */
};

template <int FORMAT> static __device__ __forceinline__ struct packed_scale packed_scale_of(uint32_t word)
{
    struct packed_scale s;
    s.high = __byte_perm(word, 0, 0x3232);
    s.low = __byte_perm(FORMAT == LINEAR_INT4 ? word & 0xffffffe0u : word, 0, 0x1010);
    s.zero = FORMAT == LINEAR_INT4 ? (word & 31) * 0x00010001u + 0x43004300u : 0;
    return s;
}

/* A code of pair i in half a word. Integers lie one behind another. A float's sign goes to bit 15 and its magnitude to bits 6 to 8 of a
 * number of bf16, for 2^-126 times its value: those of three pairs lie so that one shift does that, the last one's in what is left. */
template <int FORMAT> static __device__ __forceinline__ uint32_t packed_code(uint32_t code, int i)
{
    if (FORMAT == LINEAR_INT4) return code << (4 * i);
    if (i < 3) return (code >> 3) << (15 - 3 * i) | (code & 7) << (6 - 3 * i);
    return (code >> 3) << 14 | (code >> 2 & 1) << 13 | (code & 3) << 10;
}

static __device__ __forceinline__ __nv_bfloat162 bf16_pair(uint32_t bits)
{
    return *(const __nv_bfloat162 *)&bits;
}

/* Pair i of a word of floats, 2^-126 times their values. */
static __device__ __forceinline__ uint32_t float_pair(uint32_t word, int i)
{
    if (i < 3) return word << (3 * i) & 0x81c081c0u;
    return (word << 1 & 0x80008000u) | (word >> 5 & 0x01000100u) | (word >> 4 & 0x00c000c0u);
}

/* Pair i of a word, in bf16. SCALES: of a row of a block. */
template <int FORMAT, int SCALES>
static __device__ __forceinline__ uint32_t unpack_pair(uint32_t word, int i, const struct packed_scale &s)
{
    __nv_bfloat162 d, v;
    if (FORMAT == LINEAR_INT4)
        d = __hsub2(bf16_pair(mask_and_set(word >> (4 * i), 0x000f000fu, 0x43004300u)), bf16_pair(s.zero));
    else
        d = bf16_pair(float_pair(word, i)); /* the scale has the factor back */
    if (FORMAT == LINEAR_E2M1 && SCALES == 4)
        v = __hmul2(d, bf16_pair(s.high));
    else
        v = __hfma2(d, bf16_pair(s.high), __hmul2(d, bf16_pair(s.low)));
    return *(const uint32_t *)&v;
}

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
    using e2m1 = std::integral_constant<int, LINEAR_E2M1>;
    if (w->format == LINEAR_INT4 && w->packed_scales == 1)
        return call(int4(), std::integral_constant<int, 1>());
    if (w->format == LINEAR_INT4) return call(int4(), std::integral_constant<int, 4>());
    if (w->packed_scales == 4) return call(e2m1(), std::integral_constant<int, 4>());
    return call(e2m1(), std::integral_constant<int, 8>());
}
/* All of w as bf16, [N][K]. */
void packed_unpack(struct cuda_device *d, const struct linear *w, __nv_bfloat16 *out);

#endif
