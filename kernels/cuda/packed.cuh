/* packed.cuh - weights of four bits as products read them: one layout, whatever file they came from.
 *
 *      quad: 32 rows of W |  k: 128 columns |  strip: 8 rows |  block
 *
 * A block has a word of codes for each lane and 32 columns, [lane][4], and behind them the scales of its rows, [8][scales].
 * Lane 4 g + t has row g, and in a word the columns 2 t and 2 t + 1 (+ 8, + 16, + 24), which are its part of an A operand
 * (mma.cuh): pair i in the nibbles i and i + 4. A whole row of K is as long as two blocks divide it; what there is not is 0.
 *
 * A weight becomes bf16 in few instructions, and has the bits of (code - zero) * scale, rounded to f32 and then to bf16: a
 * scale is the sum of two numbers of bf16, high and low, such that d * low is exact, and d * high + d * low rounded once.
 * That is so for scales of f16 and bf16, and tried for all values that a code can have when a weight is packed. */
#ifndef KERNELS_CUDA_PACKED_CUH
#define KERNELS_CUDA_PACKED_CUH

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

static __device__ __forceinline__ __nv_bfloat162 bf16_pair(uint32_t bits)
{
    return *(const __nv_bfloat162 *)&bits;
}

/* Pair i of a word, in bf16. */
template <int FORMAT>
static __device__ __forceinline__ uint32_t unpack_pair(uint32_t word, int i, const struct packed_scale &s)
{
    __nv_bfloat162 d;
    if (FORMAT == LINEAR_INT4) {
        d = __hsub2(bf16_pair((word >> (4 * i) & 0x000f000fu) | 0x43004300u), bf16_pair(s.zero));
    } else { /* 2^-126 times the value: the scale has it back */
        uint32_t sign = word << (12 - 4 * i) & 0x80008000u;
        uint32_t magnitude = (i < 2 ? word << (6 - 4 * i) : word >> (4 * i - 6)) & 0x01c001c0u;
        d = bf16_pair(sign | magnitude);
    }
    __nv_bfloat162 v = __hfma2(d, bf16_pair(s.high), __hmul2(d, bf16_pair(s.low)));
    return *(const uint32_t *)&v;
}

#endif

/* Whether the device can keep these parts packed, and as what: LINEAR_BF16 where it cannot; scales: of a row of a block. */
enum linear_format packed_format(const struct cuda_device *d, const struct linear_desc *desc,
                                 int32_t *scales);

struct device_codes;
/* Puts a part whose codes are on the device into w, from its row first_row on, or as part 0 or 1 of gate and up. *inexact becomes
 * 1, in device memory, where a scale cannot be had in two parts. */
void packed_put(struct cuda_device *d, const struct linear *w, const struct device_codes *codes,
                int64_t first_row, bool alternate, int part, int32_t *inexact);
enum { PACKED_TILE_ROWS = 128 }; /* of the largest tile */
size_t packed_bytes(const struct linear *w);
/* Where a row that is a multiple of a quad's begins. */
size_t packed_offset(const struct linear *w, int32_t row);
/* weights.cu: packed_put of a part where its file has it. */
bool cuda_upload_packed(struct cuda_device *d, const struct linear *w, const struct weight_view *v,
                        int64_t first_row, bool alternate, int part, int32_t *inexact);
/* All of w as bf16, [N][K]. */
void packed_unpack(struct cuda_device *d, const struct linear *w, __nv_bfloat16 *out);

#endif
