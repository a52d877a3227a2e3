/* weights.cu - weights on their way in: streamed from the mapped file through some pinned buffers, so that reading the
 * page cache and the bus overlap, and unpacked to bf16 on the device. A weight whose scales lie apart travels whole, since
 * a row of it may need bytes from anywhere; GGUF's types travel by rows.
 *
 * A part's rows keep their order, except for gate and up: 8 rows of gate alternate with 8 rows of up, so that one tile of
 * the matrix product holds both halves of each output and SiLU-mul needs no second pass. */
#include <string.h>

#include <vector>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/copy_threads.cuh"
#include "kernels/cuda/gguf_values.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/pinned.cuh"
#include "kernels/cuda/weight_codes.cuh"

extern "C" {
#include "files/weight_codes.h"
}

namespace
{

enum { STAGE_BYTES = 16 << 20, STAGES = 4, UNPACK_THREADS = 128, CODES_ALIGNMENT = 256 };
enum { INT8_COLS_MAX = 1 << 17 }; /* whose sum fits 32 bits */

struct stage {
    unsigned char *host, *device;
    cudaEvent_t free;
};

} // namespace

struct weight_stages {
    struct stage stages[STAGES];
    int next;
    struct copy_threads *copiers;
    unsigned char *codes; /* one weight as its file has it, whose scales lie apart */
    size_t codes_bytes;
    int32_t *inexact,
        *told_inexact; /* device, pinned: 1, a packed weight has a scale that its layout cannot hold */
    cudaEvent_t told;  /* told_inexact is what inexact was */
    bool is_told;
};

namespace
{

bool open_stages(struct cuda_device *d)
{
    if (d->weight_stages) return true;
    struct weight_stages *w = d->weight_stages = new struct weight_stages();
    w->copiers = copy_threads_begin();
    for (struct stage &s : w->stages)
        if (!(s.host = (unsigned char *)cuda_pinned_alloc(d, STAGE_BYTES)) ||
            !CUDA_CHECK(d, cudaMalloc((void **)&s.device, STAGE_BYTES)) ||
            !CUDA_CHECK(d, cudaEventCreateWithFlags(&s.free, cudaEventDisableTiming)))
            return false;
    return CUDA_CHECK(d, cudaMalloc((void **)&w->inexact, sizeof *w->inexact)) &&
           CUDA_CHECK(d, cudaEventCreateWithFlags(&w->told, cudaEventDisableTiming)) &&
           (w->told_inexact = (int32_t *)cuda_pinned_alloc(d, sizeof *w->told_inexact));
}

} // namespace

void cuda_weights_close_stages(struct cuda_device *d)
{
    if (!d->weight_stages) return;
    CUDA_CHECK(d, cudaStreamSynchronize(d->stream));
    for (struct stage &s : d->weight_stages->stages) {
        cuda_pinned_free(d, s.host);
        cudaFree(s.device);
        if (s.free) cudaEventDestroy(s.free);
    }
    cudaFree(d->weight_stages->codes);
    cudaFree(d->weight_stages->inexact);
    cuda_pinned_free(d, d->weight_stages->told_inexact);
    if (d->weight_stages->told) cudaEventDestroy(d->weight_stages->told);
    copy_threads_end(d->weight_stages->copiers);
    delete d->weight_stages;
    d->weight_stages = NULL;
}

namespace
{

/* Where row r of a part goes: to row (r / 8) * stride + offset + r % 8 when gate and up alternate (stride 16). */
__device__ int64_t placed_row(int64_t row, int alternate, int part)
{
    return alternate ? row / 8 * 16 + part * 8 + row % 8 : row;
}

/* A CTA has a row. */
__global__ void unpack_kernel(__nv_bfloat16 *out, const unsigned char *stage, int dtype, size_t row_bytes,
                              int32_t cols, int64_t first_row, int alternate, int part)
{
    int64_t to = placed_row(first_row + blockIdx.x, alternate, part);
    gguf_unpack_row(dtype, out + to * cols, stage + (size_t)blockIdx.x * row_bytes, cols);
}

/* (code - zero) * scale, in f32 and rounded, then to bf16. */
__global__ void unpack_codes_kernel(__nv_bfloat16 *out, const struct device_codes codes, int alternate,
                                    int part)
{
    int32_t row = (int32_t)blockIdx.x, n = file_row(codes, row), cols = (int32_t)codes.view.cols;
    int64_t to = placed_row(row, alternate, part);
    for (int32_t k = threadIdx.x; k < cols; k += blockDim.x) {
        int32_t group = group_of(codes, k);
        float value = code_value(codes.view.dtype, code_at(codes, n, k), zero_at(codes, n, group));
        out[to * cols + k] = __float2bfloat16_rn(__fmul_rn(value, scale_at(codes, n, group)));
    }
}

/* Codes as they are; the scale of a row, or of its eight and each block of columns. */
__global__ void place_fp8_kernel(struct fp8_weight out, int64_t first_row, const struct device_codes codes,
                                 int alternate, int part)
{
    int32_t row = (int32_t)blockIdx.x, n = file_row(codes, row), num_vectors = (int32_t)codes.view.cols / 16;
    int64_t to = first_row + placed_row(row, alternate, part);
    const uint4 *from = (const uint4 *)codes.view.data + (n - codes.first_row) * num_vectors;
    for (int32_t i = threadIdx.x; i < num_vectors; i += blockDim.x)
        ((uint4 *)out.codes)[to * num_vectors + i] = from[i];
    const bool in_blocks = out.form == E4M3_OF_BLOCKS;
    if (!in_blocks && threadIdx.x == 0) out.scales[to] = scale_at(codes, n, 0);
    if (!in_blocks || row % 8 != 0) return;
    for (int32_t i = threadIdx.x; i < num_vectors / 8; i += blockDim.x)
        out.scales[(size_t)i * out.pitch + to / 8] = scale_at(codes, n, i);
}

bool upload_bias(struct cuda_device *d, float *out, const struct weight_view *bias, int64_t n)
{
    std::vector<float> values((size_t)n);
    dtype_row_to_f32(bias->dtype, bias->data, n, values.data());
    return CUDA_CHECK(
               d, cudaMemcpyAsync(out, values.data(), (size_t)n * 4, cudaMemcpyHostToDevice, d->stream)) &&
           CUDA_CHECK(d, cudaStreamSynchronize(d->stream));
}

} // namespace

bool cuda_upload_staged(struct cuda_device *d, void *to, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += STAGE_BYTES) {
        size_t n = min(bytes - at, (size_t)STAGE_BYTES);
        struct stage *s = &d->weight_stages->stages[d->weight_stages->next++ % STAGES];
        CUDA_CHECK(d, cudaEventSynchronize(s->free));
        copy_threads_copy(d->weight_stages->copiers, s->host, (const unsigned char *)from + at, n);
        CUDA_CHECK(d,
                   cudaMemcpyAsync((unsigned char *)to + at, s->host, n, cudaMemcpyHostToDevice, d->stream));
        CUDA_CHECK(d, cudaEventRecord(s->free, d->stream));
    }
    return d->first_error == cudaSuccess;
}

namespace
{

/* A stretch of a file. */
struct stretch {
    const void *data;
    size_t bytes;
};

/* One that a weight is read from, by the pointer to it that becomes one to device memory. */
struct source {
    const void **pointer;
    size_t bytes;
};

size_t scales_bytes(const struct weight_side *s)
{
    size_t size = s->type == SCALE_F32 ? 4 : s->type == SCALE_F16 || s->type == SCALE_BF16 ? 2 : 1;
    return (size_t)s->rows * (size_t)s->cols * size;
}

/* In words of eight; those of GPTQ and AWQ hold neighbours of a row, the others' of a column. */
size_t zeros_bytes(const struct weight_view *v)
{
    const struct weight_side *z = &v->codes.zeros;
    return v->scheme == WEIGHT_SCALED ? (size_t)div_up(z->rows, 8) * (size_t)z->cols * 4
                                      : (size_t)z->rows * (size_t)div_up(z->cols, 8) * 4;
}

/* Rows of a file whose rows are blocks, bytes or nibbles, one after another; all of a transposed one. */
size_t select_codes(struct device_codes *c)
{
    struct weight_view *v = &c->view;
    bool is_byte = v->dtype == DTYPE_F8_E4M3 || v->dtype == DTYPE_I8;
    size_t row_bytes = v->scheme == WEIGHT_PLAIN ? dtype_row_bytes(v->dtype, (uint64_t)v->cols)
                                                 : (size_t)v->cols / (is_byte ? 1 : 2);
    if (v->scheme == WEIGHT_GPTQ || v->scheme == WEIGHT_AWQ) return (size_t)v->rows * row_bytes;
    c->first_row = v->slice.row_begin;
    v->data = (const unsigned char *)v->data + (size_t)c->first_row * row_bytes;
    return (size_t)(v->slice.row_end - c->first_row) * row_bytes;
}

bool reserve_codes(struct cuda_device *d, size_t bytes)
{
    struct weight_stages *stages = d->weight_stages;
    if (bytes <= stages->codes_bytes) return true;
    CUDA_CHECK(d, cudaStreamSynchronize(d->stream));
    cudaFree(stages->codes);
    stages->codes = NULL;
    stages->codes_bytes = bytes;
    return CUDA_CHECK(d, cudaMalloc((void **)&stages->codes, bytes));
}

/* Scales, zero points and groups, until the next weight; what is left to be fetched is data, to where c says that it is. */
bool upload_sides(struct cuda_device *d, struct device_codes *c, struct stretch *data)
{
    struct weight_codes *w = &c->view.codes;
    const size_t data_bytes = select_codes(c);
    size_t at = align_up(data_bytes, CODES_ALIGNMENT), total = at;
    const struct source sources[] = {{&w->scales.data, scales_bytes(&w->scales)},
                                     {&w->zeros.data, zeros_bytes(&c->view)},
                                     {&w->groups, (size_t)c->view.cols * 4}};
    for (const struct source &s : sources) total += align_up(s.bytes, CODES_ALIGNMENT);
    if (!open_stages(d) || !reserve_codes(d, total)) return false;
    for (const struct source &s : sources) {
        if (!*s.pointer) continue;
        unsigned char *to = d->weight_stages->codes + at;
        if (!cuda_upload_staged(d, to, *s.pointer, s.bytes)) return false;
        *s.pointer = to;
        at += align_up(s.bytes, CODES_ALIGNMENT);
    }
    *data = {c->view.data, data_bytes};
    c->view.data = d->weight_stages->codes;
    return true;
}

bool upload_data(struct cuda_device *d, const struct stretch &data)
{
    return cuda_upload_staged(d, d->weight_stages->codes, data.data, data.bytes);
}

bool upload_codes(struct cuda_device *d, struct device_codes *c)
{
    struct stretch data;
    return upload_sides(d, c, &data) && upload_data(d, data);
}

bool upload_weight_of_codes(struct cuda_device *d, __nv_bfloat16 *out, const struct weight_view *v,
                            bool alternate, int part)
{
    struct device_codes codes = {*v, 0};
    if (!upload_codes(d, &codes)) return false;
    unpack_codes_kernel<<<(unsigned)weight_view_num_rows(v), UNPACK_THREADS, 0, d->stream>>>(out, codes,
                                                                                             alternate, part);
    return CUDA_CHECK(d, cudaPeekAtLastError());
}

} // namespace

namespace
{

/* A row of what lies transposed is a column: values first, first + step, ... of it to so many rows of out. */
__global__ void transpose_kernel(__nv_bfloat16 *out, const unsigned char *stage, int dtype, size_t row_bytes,
                                 int32_t cols, int64_t first_col, int64_t first, int64_t step,
                                 int64_t num_rows, int alternate, int part)
{
    const unsigned char *from = stage + (size_t)blockIdx.x * row_bytes;
    for (int64_t i = threadIdx.x; i < num_rows; i += blockDim.x) {
        float v = plain_value(dtype, from + (first + i * step) * (dtype == DTYPE_F32 ? 4 : 2));
        out[placed_row(i, alternate, part) * cols + first_col + blockIdx.x] = __float2bfloat16_rn(v);
    }
}

bool upload_transposed(struct cuda_device *d, __nv_bfloat16 *out, const struct weight_view *v, bool alternate,
                       int part)
{
    size_t row_bytes = dtype_row_bytes(v->dtype, (uint64_t)v->rows);
    int64_t cols_per_stage = STAGE_BYTES / (int64_t)row_bytes;
    if (cols_per_stage == 0 || !open_stages(d)) return false;
    for (int64_t col = 0; col < v->cols; col += cols_per_stage) {
        int64_t n = min(v->cols - col, cols_per_stage);
        struct stage *s = &d->weight_stages->stages[d->weight_stages->next++ % STAGES];
        CUDA_CHECK(d, cudaEventSynchronize(s->free));
        copy_threads_copy(d->weight_stages->copiers, s->host,
                          (const unsigned char *)v->data + (size_t)col * row_bytes, (size_t)n * row_bytes);
        CUDA_CHECK(
            d, cudaMemcpyAsync(s->device, s->host, (size_t)n * row_bytes, cudaMemcpyHostToDevice, d->stream));
        transpose_kernel<<<(unsigned)n, UNPACK_THREADS, 0, d->stream>>>(
            out, s->device, v->dtype, row_bytes, (int32_t)v->cols, col, v->slice.row_begin, v->slice.row_step,
            weight_view_num_rows(v), alternate, part);
        CUDA_CHECK(d, cudaEventRecord(s->free, d->stream));
    }
    return d->first_error == cudaSuccess;
}

} // namespace

bool cuda_upload_weight(struct cuda_device *d, __nv_bfloat16 *out, const struct weight_view *v,
                        bool alternate, int part)
{
    if (v->scheme == WEIGHT_TRANSPOSED) return upload_transposed(d, out, v, alternate, part);
    if (v->scheme != WEIGHT_PLAIN || dtype_is_code(v->dtype))
        return upload_weight_of_codes(d, out, v, alternate, part);
    size_t row_bytes = dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    int64_t rows_per_stage = STAGE_BYTES / (int64_t)row_bytes;
    if (rows_per_stage == 0 || !open_stages(d)) return false;
    for (int64_t row = 0; row < v->rows; row += rows_per_stage) {
        int64_t n = v->rows - row < rows_per_stage ? v->rows - row : rows_per_stage;
        struct stage *s = &d->weight_stages->stages[d->weight_stages->next++ % STAGES];
        CUDA_CHECK(d, cudaEventSynchronize(s->free));
        copy_threads_copy(d->weight_stages->copiers, s->host,
                          (const unsigned char *)v->data + (size_t)row * row_bytes, (size_t)n * row_bytes);
        CUDA_CHECK(
            d, cudaMemcpyAsync(s->device, s->host, (size_t)n * row_bytes, cudaMemcpyHostToDevice, d->stream));
        unpack_kernel<<<(unsigned)n, UNPACK_THREADS, 0, d->stream>>>(out, s->device, v->dtype, row_bytes,
                                                                     (int32_t)v->cols, row, alternate, part);
        CUDA_CHECK(d, cudaEventRecord(s->free, d->stream));
    }
    return d->first_error == cudaSuccess;
}

bool cuda_packed_begin(struct cuda_device *d)
{
    if (!open_stages(d)) return false;
    d->weight_stages->is_told = false;
    return CUDA_CHECK(d, cudaMemsetAsync(d->weight_stages->inexact, 0, sizeof(int32_t), d->stream));
}

namespace
{

void tell_inexact(struct cuda_device *d)
{
    struct weight_stages *s = d->weight_stages;
    CUDA_CHECK(d, cudaMemcpyAsync(s->told_inexact, s->inexact, sizeof *s->inexact, cudaMemcpyDeviceToHost,
                                  d->stream));
    CUDA_CHECK(d, cudaEventRecord(s->told, d->stream));
    s->is_told = true;
}

} // namespace

/* Scales first where they lie apart: what they are is known, then, while the codes are still being copied. */
bool cuda_upload_packed(struct cuda_device *d, const struct linear *w, const struct weight_view *v,
                        int64_t first_row, bool alternate, int part, bool is_last)
{
    struct device_codes codes = {*v, 0};
    struct stretch data;
    const bool is_apart = v->scheme != WEIGHT_PLAIN;
    if (!is_apart) codes.view.codes.scale_cols = GGUF_COLUMNS;
    if (v->dtype == DTYPE_Q4_0) codes.view.codes.zero = 8;
    if (!upload_sides(d, &codes, &data)) return false;
    if (!is_apart && !upload_data(d, data)) return false;
    packed_put_scales(d, w, &codes, first_row, alternate, part, d->weight_stages->inexact);
    if (is_last) tell_inexact(d);
    if (is_apart && !upload_data(d, data)) return false;
    packed_put_codes(d, w, &codes, first_row, alternate, part);
    return CUDA_CHECK(d, cudaPeekAtLastError());
}

bool cuda_packed_is_exact(struct cuda_device *d)
{
    if (!d->weight_stages->is_told) tell_inexact(d);
    CUDA_CHECK(d, cudaEventSynchronize(d->weight_stages->told));
    return *d->weight_stages->told_inexact == 0;
}

bool cuda_upload_blocks(struct cuda_device *d, const struct linear *w, const struct linear_desc *desc,
                        unsigned char *to)
{
    bool ok = open_stages(d);
    for (int i = 0; i < desc->num_parts && ok; i++) {
        const struct block_part *part = &w->blocks[i];
        assert_always(desc->parts[i].dtype == part->dtype && desc->parts[i].rows == part->num_rows);
        ok = cuda_upload_staged(d, to + part->offset, desc->parts[i].data,
                                (size_t)part->num_rows * part->row_bytes);
    }
    return ok;
}

namespace
{

int check_linear(const struct linear_desc *desc, bool *any_bias, struct error *err)
{
    bool is_gated = desc->kind == LINEAR_GATE_UP;
    for (int i = 0; i < desc->num_parts; i++) {
        int status = weight_check(&desc->parts[i], err);
        if (!status) status = weight_view_check_plain(&desc->biases[i], err);
        if (status) return status;
        *any_bias |= desc->biases[i].data != NULL;
    }
    if (is_gated && weight_view_num_rows(&desc->parts[0]) % 8 != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device wants an intermediate size that is a multiple of 8");
    if (desc->kind == LINEAR_UP && (desc->gate == GATE_SILU || desc->gate == GATE_CLAMPED_SWISH))
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device has an MLP without a gate with GELU, ReLU, squared ReLU or xIELU");
    if (is_gated && *any_bias)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device does not add biases to the gate and up products");
    return STATUS_OK;
}

} // namespace

enum byte_form cuda_byte_form(const struct weight_view *v)
{
    const bool has_blocks = v->codes.scale_cols < v->cols;
    return v->dtype == DTYPE_I8 ? INT8_OF_ROWS : has_blocks ? E4M3_OF_BLOCKS : E4M3_OF_ROWS;
}

/* Of blocks, eight rows have one scale. */
bool cuda_fp8_fits(const struct weight_view *v)
{
    const struct weight_codes *c = &v->codes;
    const bool has_blocks = c->scale_cols < v->cols;
    if (v->scheme != WEIGHT_SCALED || c->zeros.data || c->groups || c->flip || c->zero) return false;
    if (v->dtype != DTYPE_F8_E4M3 && (v->dtype != DTYPE_I8 || has_blocks || v->cols > INT8_COLS_MAX))
        return false;
    if (v->cols % FP8_BLOCK != 0 || weight_view_num_rows(v) % 16 != 0) return false;
    return !has_blocks || (c->scale_cols == FP8_BLOCK && c->scale_rows % 8 == 0 &&
                           v->slice.row_begin % 8 == 0 && v->slice.row_step == 1);
}

namespace
{

/* Kernels fetch scales of blocks a tile at a time, also behind the last row. */
size_t fp8_scales_bytes(const struct fp8_weight *w, int64_t n, int32_t k)
{
    const size_t tile = 64;
    return ((w->form == E4M3_OF_BLOCKS ? (size_t)(k / FP8_BLOCK) * w->pitch : (size_t)n) + tile) * 4;
}

} // namespace

bool cuda_alloc_fp8(struct cuda_device *d, struct fp8_weight *w, int64_t n, int32_t k, enum byte_form form)
{
    w->form = form;
    w->pitch = (int32_t)((n / 8 + 3) / 4 * 4);
    w->codes = (uint8_t *)cuda_alloc(&d->base, (size_t)n * k, "weights");
    w->scales = (float *)cuda_alloc(&d->base, fp8_scales_bytes(w, n, k), "weights");
    return w->codes && w->scales;
}

bool cuda_upload_fp8(struct cuda_device *d, const struct fp8_weight *w, const struct weight_view *v,
                     int64_t first_row, bool alternate, int part)
{
    struct device_codes codes = {*v, 0};
    if (!upload_codes(d, &codes)) return false;
    place_fp8_kernel<<<(unsigned)weight_view_num_rows(v), UNPACK_THREADS, 0, d->stream>>>(
        *w, first_row, codes, alternate, part);
    return CUDA_CHECK(d, cudaPeekAtLastError());
}

namespace
{

/* LINEAR_BF16: all else. */
enum linear_format format_of(const struct cuda_device *d, const struct linear_desc *desc)
{
    if (!d->is_hopper || !desc->quantise_input || desc->wide_output || desc->also_embedding)
        return LINEAR_BF16;
    for (int i = 0; i < desc->num_parts; i++)
        if (!cuda_fp8_fits(&desc->parts[i]) ||
            cuda_byte_form(&desc->parts[i]) != cuda_byte_form(&desc->parts[0]))
            return LINEAR_BF16;
    return LINEAR_FP8;
}

bool alloc_weight(struct cuda_device *d, struct linear *l, const struct linear_desc *desc)
{
    if (l->format == LINEAR_BF16) {
        l->weight = (__nv_bfloat16 *)cuda_alloc(&d->base, (size_t)l->n * l->k * 2, "weights");
        return l->weight != NULL;
    }
    return cuda_alloc_fp8(d, &l->fp8, l->n, l->k, cuda_byte_form(&desc->parts[0]));
}

/* row: of the stacked parts, where this one begins. */
bool upload_part(struct cuda_device *d, const struct linear *l, const struct weight_view *v, int64_t row,
                 int part)
{
    bool alternate = l->kind == LINEAR_GATE_UP;
    int64_t first_row = alternate ? 0 : row;
    if (l->format == LINEAR_BF16)
        return cuda_upload_weight(d, l->weight + first_row * l->k, v, alternate, part);
    return cuda_upload_fp8(d, &l->fp8, v, first_row, alternate, part);
}

/* As bf16 or bytes. */
bool upload_parts(struct cuda_device *d, struct linear *l, const struct linear_desc *desc)
{
    int64_t row = 0;
    bool ok = alloc_weight(d, l, desc);
    for (int i = 0; i < desc->num_parts && ok; i++) {
        ok = upload_part(d, l, &desc->parts[i], row, i);
        row += weight_view_num_rows(&desc->parts[i]);
    }
    return ok;
}

/* True also where the weight turns out to have a scale that the layout cannot hold: *inexact. */
bool upload_packed(struct cuda_device *d, struct linear *l, const struct linear_desc *desc, bool *inexact)
{
    bool alternate = desc->kind == LINEAR_GATE_UP;
    int64_t row = 0;
    l->packed = (unsigned char *)cuda_alloc(&d->base, packed_bytes(l), "weights");
    if (!l->packed || !cuda_packed_begin(d)) return false;
    for (int i = 0; i < desc->num_parts; i++) {
        if (!cuda_upload_packed(d, l, &desc->parts[i], row, alternate, i, i == desc->num_parts - 1))
            return false;
        row += weight_view_num_rows(&desc->parts[i]);
    }
    *inexact = !cuda_packed_is_exact(d);
    return d->first_error == cudaSuccess;
}

bool upload_blocks(struct cuda_device *d, struct linear *l, const struct linear_desc *desc)
{
    blocks_place(l, desc);
    l->packed = (unsigned char *)cuda_alloc(&d->base, blocks_bytes(l), "weights");
    return l->packed && cuda_upload_blocks(d, l, desc, l->packed);
}

/* In blocks where that is wanted, or as bf16 or e4m3. */
bool upload_unpacked(struct cuda_device *d, struct linear *l, const struct linear_desc *desc)
{
    if (l->format == LINEAR_BF16 && blocks_are_wanted(d) && blocks_fit(desc)) l->format = LINEAR_BLOCKS;
    return l->format == LINEAR_BLOCKS ? upload_blocks(d, l, desc) : upload_parts(d, l, desc);
}

/* e4m3 or packed where that is possible, in blocks or bf16 otherwise. */
bool upload_linear(struct cuda_device *d, struct linear *l, const struct linear_desc *desc)
{
    bool inexact = true;
    l->format = format_of(d, desc);
    if (l->format == LINEAR_BF16) l->format = packed_format(d, desc, &l->packed_scales);
    if (l->format == LINEAR_BF16 || l->format == LINEAR_FP8) return upload_unpacked(d, l, desc);
    if (!upload_packed(d, l, desc, &inexact)) return false;
    if (!inexact) return true;
    cudaFree(l->packed);
    l->packed = NULL;
    l->format = LINEAR_BF16;
    return upload_unpacked(d, l, desc);
}

bool upload_biases(struct cuda_device *d, struct linear *l, const struct linear_desc *desc)
{
    int64_t row = 0;
    float *bias = (float *)cuda_alloc(&d->base, (size_t)l->n * 4, "weights");
    bool ok = bias != NULL;
    (l->wide_output ? l->logit_bias : l->bias) = bias;
    for (int i = 0; i < desc->num_parts && ok; i++) {
        int64_t rows = weight_view_num_rows(&desc->parts[i]);
        if (desc->biases[i].data) ok = upload_bias(d, bias + row, &desc->biases[i], rows);
        row += rows;
    }
    return ok;
}

} // namespace

int cuda_linear_create(struct device *device, const struct linear_desc *desc, struct linear **out,
                       struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    bool any_bias = false;
    int status = check_linear(desc, &any_bias, err);
    if (status) return status;
    struct linear *l = new struct linear();
    l->num_parts = desc->num_parts;
    for (int i = 0; i < desc->num_parts; i++) {
        l->part_rows[i] = (int32_t)weight_view_num_rows(&desc->parts[i]);
        l->n += l->part_rows[i];
    }
    l->k = (int32_t)desc->parts[0].cols;
    l->kind = desc->kind;
    l->gate = desc->gate;
    l->gate_values = make_float3(desc->gate_values[0], desc->gate_values[1], desc->gate_values[2]);
    l->wide_output = desc->wide_output;
    l->softcap = desc->softcap;
    if (!upload_linear(d, l, desc) || (any_bias && !upload_biases(d, l, desc))) {
        delete l;
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for the weights (%s)",
                         cudaGetErrorString(d->first_error));
    }
    if (!desc->also_embedding || desc->wide_output)
        cuda_linear_plan_create(d, l); /* else rows are looked up, no more */
    *out = l;
    return STATUS_OK;
}

uint64_t cuda_linear_bytes(struct device *device, const struct linear *l)
{
    (void)device;
    uint64_t num = (uint64_t)l->n * (uint64_t)l->k,
             bias_bytes = l->bias || l->logit_bias ? (uint64_t)l->n * 4 : 0;
    uint64_t weight_bytes = l->format == LINEAR_BF16     ? num * 2
                            : l->format == LINEAR_FP8    ? num + fp8_scales_bytes(&l->fp8, l->n, l->k)
                            : l->format == LINEAR_BLOCKS ? blocks_bytes(l)
                                                         : packed_bytes(l);
    return weight_bytes + bias_bytes;
}
