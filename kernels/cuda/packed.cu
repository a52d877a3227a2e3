/* packed.cu - weights of four bits into the layout of packed.cuh, and out of it into bf16 for products of many rows. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/weight_codes.cuh"

namespace
{

enum { PACK_THREADS = 256, ROW_WORDS = 16 /* of a block */, UNPACK_THREADS = 128, SYMMETRIC_ZERO = 8 };

/* Where a row's part of a block lies. */
struct layout {
    unsigned char *data;
    int32_t num_blocks; /* along K */
    int32_t scales;
};

__host__ __device__ size_t block_at(const layout &l, int32_t row, int32_t block)
{
    size_t quad = (size_t)(row / (PACKED_ROWS * PACKED_STRIPS));
    int32_t strip = row / PACKED_ROWS % PACKED_STRIPS;
    return ((quad * l.num_blocks + block) * PACKED_STRIPS + strip) * packed_block_bytes(l.scales);
}

int32_t num_blocks_of(int32_t k)
{
    return (k + 2 * PACKED_COLUMNS - 1) / (2 * PACKED_COLUMNS) * 2;
}

layout layout_of(const struct linear *w)
{
    return {w->packed, num_blocks_of(w->k), w->packed_scales};
}

/* Whether every code with this scale becomes what it should, in every place of a word. A zero's sign does not matter where it is +0. */
template <int FORMAT, int SCALES> __device__ bool is_exact(uint32_t word, float scale, int32_t zero)
{
    constexpr bool IS_SYMMETRIC = FORMAT == LINEAR_INT4_SYMMETRIC;
    const auto s = packed_scale<FORMAT, SCALES>::of(word);
    bool exact = true;
    for (uint32_t at = 0; at < 16 * 4; at++) {
        const uint32_t code = at / 4;
        float value = code_value(is_packed_integer(FORMAT) ? DTYPE_U4 : DTYPE_F4_E2M1, (int32_t)code, zero);
        float wanted = __bfloat162float(__float2bfloat16_rn(__fmul_rn(value, scale)));
        uint32_t got = s.pair(packed_code<FORMAT>(code, at % 4), at % 4) << 16;
        float product = __uint_as_float(got) * packed_factor(FORMAT);
        exact &= IS_SYMMETRIC ? product == wanted : __float_as_uint(product) == __float_as_uint(wanted);
    }
    return exact;
}

/* The rest of the scale behind its first eight bits is rounded, down or up, to the bits that there are for it. Of same_sign both
 * parts have the scale's sign, also where one is 0: so has 0 times them. */
template <int FORMAT, int SCALES>
__device__ uint32_t scale_word_of_parts(float scale, int32_t zero, bool same_sign, int32_t *inexact)
{
    constexpr uint32_t STEP = FORMAT == LINEAR_INT4 ? 32 : 1;
    constexpr float FACTOR = FORMAT == LINEAR_INT4 ? 128 : 0x1p126f;
    float first = same_sign ? __uint_as_float(__float_as_uint(scale) & 0xffff0000u) : scale;
    __nv_bfloat16 high = __float2bfloat16_rn(first);
    float behind = scale - __bfloat162float(high);
    if (same_sign) behind = copysignf(behind, scale);
    uint32_t rest = __bfloat16_as_ushort(__float2bfloat16_rn(behind * FACTOR));
    uint32_t top = (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(__bfloat162float(high) * FACTOR)) << 16;
    for (int i = 0; i < 3; i++) {
        uint32_t low = (rest & ~(STEP - 1)) + (i == 2 ? 0u - STEP : i * STEP);
        uint32_t word = top | (low & 0xffff) | (FORMAT == LINEAR_INT4 ? (uint32_t)zero : 0);
        if (is_exact<FORMAT, SCALES>(word, scale, zero)) return word;
    }
    *inexact = 1;
    return 0;
}

template <int SCALES> __device__ uint32_t scale_word_symmetric(float scale, int32_t *inexact)
{
    uint32_t word = (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(scale * 0x1p126f)) << 16 |
                    __bfloat16_as_ushort(__float2bfloat16_rn(-scale / 16));
    if (!is_exact<LINEAR_INT4_SYMMETRIC, SCALES>(word, scale, SYMMETRIC_ZERO)) *inexact = 1;
    return word;
}

template <int FORMAT, int SCALES>
__device__ uint32_t scale_word(float scale, int32_t zero, bool same_sign, int32_t *inexact)
{
    if constexpr (FORMAT == LINEAR_INT4_SYMMETRIC)
        return scale_word_symmetric<SCALES>(scale, inexact);
    else
        return scale_word_of_parts<FORMAT, SCALES>(scale, zero, same_sign, inexact);
}

template <int FORMAT>
__device__ uint32_t codes_word(const struct device_codes &c, int32_t n, int32_t first_k, int32_t t)
{
    uint32_t word = 0;
    for (int i = 0; i < 4; i++) {
        int32_t k = first_k + 8 * i + 2 * t;
        if (k < c.view.cols) word |= packed_code<FORMAT>((uint32_t)code_at(c, n, k), i);
        if (k + 1 < c.view.cols) word |= packed_code<FORMAT>((uint32_t)code_at(c, n, k + 1), i) << 16;
    }
    return word;
}

__device__ int32_t placed_row(int64_t first_row, int32_t row, int alternate, int part)
{
    return (int32_t)(alternate ? row / 8 * 16 + part * 8 + row % 8 : first_row + row);
}

/* A thread has a word. */
template <int FORMAT>
__global__ void pack_codes_kernel(const layout l, const struct device_codes codes, int64_t first_row,
                                  int alternate, int part)
{
    int32_t row = (int32_t)blockIdx.x, to = placed_row(first_row, row, alternate, part);
    int32_t word = (int32_t)(blockIdx.y * PACK_THREADS + threadIdx.x), block = word / ROW_WORDS;
    if (block >= l.num_blocks) return;
    uint32_t *words = (uint32_t *)(l.data + block_at(l, to, block));
    int32_t i = word % ROW_WORDS, t = i / 4, j = i % 4, g = to % PACKED_ROWS;
    words[(4 * g + t) * 4 + j] =
        codes_word<FORMAT>(codes, file_row(codes, row), block * PACKED_COLUMNS + 32 * j, t);
}

template <int FORMAT, int SCALES>
__global__ void pack_scales_kernel(const layout l, const struct device_codes codes, int64_t first_row,
                                   int alternate, int part, int32_t *inexact)
{
    int32_t row = (int32_t)blockIdx.x, n = file_row(codes, row),
            to = placed_row(first_row, row, alternate, part);
    int32_t at = (int32_t)(blockIdx.y * PACK_THREADS + threadIdx.x), block = at / l.scales, i = at % l.scales;
    if (block >= l.num_blocks) return;
    uint32_t *words = (uint32_t *)(l.data + block_at(l, to, block)), scale = 0;
    int32_t k = block * PACKED_COLUMNS + i * (PACKED_COLUMNS / l.scales);
    if (k < codes.view.cols) {
        int32_t group = group_of(codes, k);
        scale = scale_word<FORMAT, SCALES>(scale_at(codes, n, group), zero_at(codes, n, group),
                                           codes.view.dtype == DTYPE_Q4_0, inexact);
    }
    words[PACKED_CODES_BYTES / 4 + to % PACKED_ROWS * l.scales + i] = scale;
}

template <int FORMAT> __device__ uint32_t whole_pair(uint32_t pair)
{
    if constexpr (packed_factor(FORMAT) == 1) return pair;
    return bits_of_pair(__hmul2(bf16_pair(pair), __float2bfloat162_rn(packed_factor(FORMAT))));
}

/* A thread has eight columns of every 32 of a row in a block: four threads write 64 bytes that lie together. */
template <int FORMAT, int SCALES>
__global__ void __launch_bounds__(UNPACK_THREADS)
    unpack_kernel(__nv_bfloat16 *out, const layout l, int32_t num_rows, int32_t num_columns)
{
    int32_t at = (int32_t)(blockIdx.y * UNPACK_THREADS + threadIdx.x), block = at / 32;
    int32_t g = at % 32 / 4, pair = at % 4, row = (int32_t)blockIdx.x * PACKED_ROWS + g;
    if (block >= l.num_blocks || row >= num_rows) return;
    const uint32_t *words = (const uint32_t *)(l.data + block_at(l, row, block));
    const uint32_t *scales = words + PACKED_CODES_BYTES / 4 + g * l.scales;
    uint4 codes[4]; /* of lanes 4 g + t */
#pragma unroll
    for (int t = 0; t < 4; t++) codes[t] = ((const uint4 *)words)[4 * g + t];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int32_t k = block * PACKED_COLUMNS + 32 * j + 8 * pair;
        const auto scale = packed_scale<FORMAT, SCALES>::of(scales[(2 * j + pair / 2) * l.scales / 8]);
        uint32_t pairs[4];
#pragma unroll
        for (int t = 0; t < 4; t++) pairs[t] = whole_pair<FORMAT>(scale.pair((&codes[t].x)[j], pair));
        if (k < num_columns) /* a multiple of 8 */
            *(uint4 *)(out + (size_t)row * num_columns + k) =
                make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    }
}

bool is_integer(const struct weight_view *v)
{
    return v->dtype == DTYPE_U4 || v->dtype == DTYPE_Q4_0;
}

bool is_symmetric(const struct weight_view *v)
{
    const struct weight_codes *c = &v->codes;
    return v->dtype == DTYPE_U4 && c->scales.type == SCALE_BF16 && !c->zeros.data &&
           c->zero == SYMMETRIC_ZERO && c->scale_factor == 1 && c->scale_divisor == 1;
}

/* Of a row of a block: 1, 4 or 8; 0: there is no such layout. */
int32_t scales_of(const struct weight_view *v)
{
    int64_t columns = v->codes.scale_cols;
    bool is_half = v->codes.scales.type == SCALE_F16 || v->codes.scales.type == SCALE_BF16;
    if (v->scheme == WEIGHT_PLAIN) return v->dtype == DTYPE_MXFP4 || v->dtype == DTYPE_Q4_0 ? 4 : 0;
    if (v->codes.groups) return 0;
    if (v->dtype == DTYPE_U4 && !is_half) return 0;
    if (v->dtype == DTYPE_U4)
        return columns >= v->cols || columns % PACKED_COLUMNS == 0 ? 1
               : columns == 32 || columns == 64                    ? 4
                                                                   : 0;
    bool is_float = v->dtype == DTYPE_MXFP4 || v->dtype == DTYPE_F4_E2M1;
    return is_float && columns == 32 ? 4 : is_float && columns == 16 ? 8 : 0;
}

} // namespace

enum linear_format packed_format(const struct cuda_device *d, const struct linear_desc *desc, int32_t *scales)
{
    bool fits = d->is_hopper && !desc->wide_output && !desc->also_embedding;
    bool symmetric = true;
    int64_t n = 0;
    *scales = 1;
    for (int i = 0; i < desc->num_parts && fits; i++) {
        const struct weight_view *v = &desc->parts[i];
        fits = scales_of(v) > 0 && is_integer(v) == is_integer(&desc->parts[0]);
        symmetric = symmetric && is_symmetric(v);
        *scales = max(*scales, scales_of(v));
        n += weight_view_num_rows(v);
    }
    fits = fits && desc->parts[0].cols % 8 == 0 && n % 16 == 0;
    if (!fits) return LINEAR_BF16;
    if (!is_integer(&desc->parts[0])) return LINEAR_E2M1;
    return symmetric ? LINEAR_INT4_SYMMETRIC : LINEAR_INT4;
}

size_t packed_bytes(const struct linear *w)
{
    return block_at(layout_of(w), (w->n + PACKED_TILE_ROWS - 1) / PACKED_TILE_ROWS * PACKED_TILE_ROWS, 0);
}

size_t packed_offset(const struct linear *w, int32_t row)
{
    return block_at(layout_of(w), row, 0);
}

namespace
{

/* A row of CTAs for each of the part's, with so many threads for a block. */
dim3 grid_of(const layout &l, const struct device_codes *codes, int32_t threads_per_block)
{
    const int32_t num_threads = l.num_blocks * threads_per_block;
    return dim3((unsigned)weight_view_num_rows(&codes->view),
                (unsigned)((num_threads + PACK_THREADS - 1) / PACK_THREADS));
}

} // namespace

void packed_put_codes(struct cuda_device *d, const struct linear *w, const struct device_codes *codes,
                      int64_t first_row, bool alternate, int part)
{
    layout l = layout_of(w);
    auto kernel = with_packed_form(w, [](auto format, auto) { return &pack_codes_kernel<format.value>; });
    kernel<<<checked_grid(grid_of(l, codes, ROW_WORDS)), PACK_THREADS, 0, d->stream>>>(l, *codes, first_row,
                                                                                       alternate, part);
}

void packed_put_scales(struct cuda_device *d, const struct linear *w, const struct device_codes *codes,
                       int64_t first_row, bool alternate, int part, int32_t *inexact)
{
    layout l = layout_of(w);
    auto kernel = with_packed_form(
        w, [](auto format, auto scales) { return &pack_scales_kernel<format.value, scales.value>; });
    kernel<<<checked_grid(grid_of(l, codes, l.scales)), PACK_THREADS, 0, d->stream>>>(
        l, *codes, first_row, alternate, part, inexact);
}

void packed_unpack(struct cuda_device *d, const struct linear *w, __nv_bfloat16 *out)
{
    layout l = layout_of(w);
    dim3 grid((unsigned)((w->n + PACKED_ROWS - 1) / PACKED_ROWS),
              (unsigned)((l.num_blocks * 32 + UNPACK_THREADS - 1) / UNPACK_THREADS));
    auto kernel = with_packed_form(
        w, [](auto format, auto scales) { return &unpack_kernel<format.value, scales.value>; });
    kernel<<<checked_grid(grid), UNPACK_THREADS, 0, d->stream>>>(out, l, w->n, w->k);
}
