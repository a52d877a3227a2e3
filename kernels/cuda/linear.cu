/* linear.cu - a matrix product x W^T, by the kernel that linear_plan.cu has chosen for its shape and its number of rows: an own one, for few
 * rows (linear_small.cu) or many (linear_large.cu), or cuBLASLt with algorithms that do not split K. Packed weights have kernels for few
 * rows (linear_packed.cu, linear_relay.cu; in a GGUF file's blocks linear_blocks.cu) and are bf16 for many, where that is faster: a copy
 * that is kept, or one that is made before the product, all in one memory. All walk K in order, so the bits of an output element do not
 * depend on which of them it was, nor on the number of rows (kernels/README.md, "The same bits").
 *
 * Those are of sm_90. Elsewhere, or where it is asked for, own kernels that every GPU from sm_80 on can run compute
 * bf16 products of few rows and of many (linear_portable.cu). */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_blas.cuh"
#include "kernels/cuda/linear_blocks.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/linear_large.cuh"
#include "kernels/cuda/linear_packed.cuh"
#include "kernels/cuda/linear_plain.cuh"
#include "kernels/cuda/linear_plan.cuh"
#include "kernels/cuda/linear_portable.cuh"
#include "kernels/cuda/linear_row.cuh"
#include "kernels/cuda/linear_small.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/packed.cuh"

namespace
{

enum { SILU_THREADS = 256 };

__global__ void add_bias_kernel(__nv_bfloat16 *out, const float *bias, int32_t n)
{
    __nv_bfloat16 *row = out + (size_t)blockIdx.x * n;
    for (int i = threadIdx.x; i < n; i += SILU_THREADS)
        row[i] = __float2bfloat16_rn(__bfloat162float(row[i]) + bias[i]);
}

void add_bias(struct cuda_device *d, int32_t rows, void *out, const struct linear *w)
{
    if (w->bias)
        add_bias_kernel<<<(unsigned)rows, SILU_THREADS, 0, d->stream>>>((__nv_bfloat16 *)out, w->bias, w->n);
}

/* Of any shape that linear_plain.cu can. */
void run_portable(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    struct linear_choice c = cuda_linear_portable_choice(rows);
    if (cuda_linear_portable(d, &c, rows, out, x, w, false)) return;
    cuda_linear_plain(d, rows, out, x, w);
    add_bias(d, rows, out, w);
}

void run_blas(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    const bool is_usable = !d->is_portable && cuda_blas_is_compared(w);
    if (!is_usable || !cuda_blas(d, &w->plan->blas, rows, out, x, w)) return run_portable(d, rows, out, x, w);
    add_bias(d, rows, out, w);
}

/* Gate and up alternate in groups of 8 columns. */
template <enum gate_function GATE>
__global__ void gate_mul_kernel(__nv_bfloat16 *out, const __nv_bfloat16 *gate_up, int32_t num_out)
{
    const __nv_bfloat16 *from = gate_up + (size_t)blockIdx.x * 2 * num_out;
    int i = (blockIdx.y * SILU_THREADS + threadIdx.x) * 8;
    if (i >= num_out) return;
    uint4 g = *(const uint4 *)(from + 2 * i), u = *(const uint4 *)(from + 2 * i + 8);
    uint4 o = make_uint4(gate_mul<GATE>(g.x, u.x), gate_mul<GATE>(g.y, u.y), gate_mul<GATE>(g.z, u.z),
                         gate_mul<GATE>(g.w, u.w));
    *(uint4 *)(out + (size_t)blockIdx.x * num_out + i) = o;
}

/* Whether d->fp8_rows has them. */
bool are_quantised(const struct cuda_device *d, int32_t rows, int32_t k, const void *x, enum byte_form form)
{
    const struct linears *l = d->linears;
    return l->quantised == x && l->num_quantised == rows && k == l->after_norm_k &&
           form == l->after_norm_form;
}

/* Of d->fp8_rows. */
struct fp8_product fp8_product_of(const struct cuda_device *d, int32_t rows, void *out,
                                  const struct linear *w, bool silu_mul)
{
    const struct fp8_rows *quantised = &d->fp8_rows;
    struct fp8_product p = {};
    p.out = out;
    p.bias = w->bias;
    p.rows = rows;
    p.n = w->n;
    p.k = w->k;
    p.x = quantised->codes;
    p.x_scales = quantised->scales;
    p.x_pitch = quantised->pitch;
    p.w = w->fp8.codes;
    p.w_scales = w->fp8.scales;
    p.w_pitch = w->fp8.pitch;
    p.form = w->fp8.form;
    p.silu_mul = silu_mul;
    return p;
}

bool run_fp8(struct cuda_device *d, const struct linear_choice &c, int32_t rows, void *out, const void *x,
             const struct linear *w, bool silu_mul)
{
    const struct fp8_product p = fp8_product_of(d, rows, out, w, silu_mul);
    if (rows == 1 && c.kernel == LINEAR_SMALL && w->k <= ROW_VALUES_MAX &&
        !are_quantised(d, rows, w->k, x, p.form)) {
        struct row_args row = {};
        row.row = (const __nv_bfloat16 *)x;
        row.k = w->k;
        return cuda_linear_fp8_small(d, c.tile_rows, &p, &row);
    }
    if (!cuda_fp8_rows(d, rows, w->k, x, p.form)) return false;
    return c.kernel == LINEAR_SMALL ? cuda_linear_fp8_small(d, c.tile_rows, &p)
                                    : cuda_linear_fp8_large(d, c.tile_rows, &p);
}

/* The product alone, but for SiLU where the kernel has that in its epilogue (silu_mul). False where the kernel cannot. */
bool run_product(struct cuda_device *d, const struct linear_choice &c, int32_t rows, void *out, const void *x,
                 const struct linear *w, bool silu_mul)
{
    if (w->format == LINEAR_FP8) return run_fp8(d, c, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_LARGE)
        return cuda_linear_large_fits(d, w) && cuda_linear_large(d, c.cluster, 0, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_PACKED)
        return cuda_linear_packed(d, c.tile_rows, c.columns, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_RELAY) return cuda_linear_relay(d, c.tile_rows, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_OF_BLOCKS) return cuda_linear_blocks(d, c.tile_rows, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_PORTABLE) return cuda_linear_portable(d, &c, rows, out, x, w, silu_mul);
    if (c.kernel == LINEAR_SMALL)
        return cuda_linear_small_fits(d, w, rows) &&
               cuda_linear_small(d, c.tile_rows, rows, out, x, w, silu_mul);
    run_blas(d, rows, out, x, w);
    return true;
}

void run_gate_mul(struct cuda_device *d, int32_t rows, void *out, const struct linear *w)
{
    int32_t num_out = w->n / 2;
    dim3 grid((unsigned)rows, (unsigned)((num_out / 8 + SILU_THREADS - 1) / SILU_THREADS));
    auto kernel = w->gate == GATE_SILU           ? gate_mul_kernel<GATE_SILU>
                  : w->gate == GATE_GELU         ? gate_mul_kernel<GATE_GELU>
                  : w->gate == GATE_RELU_SQUARED ? gate_mul_kernel<GATE_RELU_SQUARED>
                                                 : gate_mul_kernel<GATE_GELU_TANH>;
    kernel<<<checked_grid(grid), SILU_THREADS, 0, d->stream>>>((__nv_bfloat16 *)out, d->gate_up, num_out);
}

/* Of sums that are rounded to bf16, in place: LINEAR_UP. */
template <enum gate_function GATE>
__global__ void gate_alone_kernel(uint32_t *out, size_t num_pairs, float3 values)
{
    size_t i = blockIdx.x * (size_t)SILU_THREADS + threadIdx.x;
    if (i >= num_pairs) return;
    float2 x = unpack_bf16(out[i]);
    out[i] = pack_bf16(gate_alone<GATE>(x.x, values), gate_alone<GATE>(x.y, values));
}

const struct linear *unpack(struct cuda_device *d, const struct linear *w)
{
    if (!w->unpacked->is_rewritten) return w->unpacked;
    if (w->format == LINEAR_BLOCKS)
        blocks_unpack(d, w, 1, w->unpacked->weight);
    else
        packed_unpack(d, w, w->unpacked->weight);
    return w->unpacked;
}

bool run_chosen(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w,
                bool gates);

} // namespace

bool cuda_linear_run(struct cuda_device *d, const struct linear_choice &c, int32_t rows, void *out,
                     const void *x, const struct linear *w, bool gates)
{
    bool is_gated = gates && w->kind == LINEAR_GATE_UP,
         in_epilogue =
             is_gated && w->gate == GATE_SILU && (c.kernel != LINEAR_BLAS || w->format == LINEAR_FP8);
    if (c.kernel == LINEAR_UNPACKED) return run_chosen(d, rows, out, x, unpack(d, w), gates);
    if (!run_product(d, c, rows, is_gated && !in_epilogue ? d->gate_up : out, x, w, in_epilogue))
        return false;
    if (gates && !in_epilogue) cuda_linear_gate(d, rows, out, w);
    return true;
}

void cuda_linear_gate(struct cuda_device *d, int32_t rows, void *out, const struct linear *w)
{
    if (w->kind == LINEAR_GATE_UP) run_gate_mul(d, rows, out, w);
    if (w->kind == LINEAR_UP) cuda_gate_alone(d, out, (size_t)rows * w->n, w->gate, w->gate_values);
}

namespace
{

/* By the kernel that was chosen, or where that cannot by what always can. */
bool run_chosen(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w,
                bool gates)
{
    const struct linear_choice otherwise = {w->unpacked ? LINEAR_UNPACKED : LINEAR_BLAS, 0, 0, 0};
    return cuda_linear_run(d, cuda_linear_choice(w, rows), rows, out, x, w, gates) ||
           cuda_linear_run(d, otherwise, rows, out, x, w, gates);
}

/* Logits of weights in blocks: as many rows at a time as the kernel has. */
bool run_in_parts(struct cuda_device *d, int32_t rows, float *out, const __nv_bfloat16 *x,
                  const struct linear *w)
{
    for (int32_t first = 0; first < rows; first += LINEAR_BLOCKS_ROWS) {
        const int32_t num = min(rows - first, (int32_t)LINEAR_BLOCKS_ROWS);
        if (!cuda_linear_run(d, cuda_linear_choice(w, num), num, out + (size_t)first * w->n,
                             x + (size_t)first * w->k, w))
            return false;
    }
    return true;
}

} // namespace

void cuda_linear_rows(struct cuda_device *d, int32_t rows, void *out, const void *x, const struct linear *w)
{
    if (w->packed && !w->unpacked) {
        if (!run_in_parts(d, rows, (float *)out, (const __nv_bfloat16 *)x, w))
            cuda_check(d, cudaErrorNotSupported, "logits of weights in blocks");
        return;
    }
    if (!run_chosen(d, rows, out, x, w, true)) cuda_check(d, cudaErrorNotSupported, "a product of bytes");
    cuda_fp8_target_forget(d); /* what comes next may write x, or quantise other rows */
}

void cuda_linear_ungated(struct cuda_device *d, int32_t rows, void *out, const void *x,
                         const struct linear *w)
{
    if (!run_chosen(d, rows, out, x, w, false)) cuda_check(d, cudaErrorNotSupported, "a product of bytes");
    cuda_fp8_target_forget(d);
}

struct fp8_target cuda_fp8_target(struct cuda_device *d, int32_t rows, int32_t k, const void *x)
{
    struct linears *l = d->linears;
    if (!l || l->after_norm_k != k) return {};
    l->quantised = x;
    l->num_quantised = rows;
    return {d->fp8_rows.codes, d->fp8_rows.scales, d->fp8_rows.pitch, l->after_norm_form};
}

void cuda_fp8_rows_expect(struct cuda_device *d, int32_t k, enum byte_form form)
{
    if (!d->linears) d->linears = new struct linears();
    d->linears->after_norm_k = k;
    d->linears->after_norm_form = form;
}

const struct fp8_rows *cuda_fp8_rows(struct cuda_device *d, int32_t rows, int32_t k, const void *x,
                                     enum byte_form form)
{
    const struct fp8_rows *r = &d->fp8_rows;
    const bool ok = are_quantised(d, rows, k, x, form) ||
                    cuda_quantise_rows(d, rows, k, x, r->codes, r->scales, r->pitch, form);
    return ok ? r : NULL;
}

void cuda_fp8_target_forget(struct cuda_device *d)
{
    if (d->linears) d->linears->quantised = NULL;
}

void cuda_gate_alone(struct cuda_device *d, void *out, size_t count, enum gate_function gate, float3 values)
{
    dim3 grid((unsigned)((count / 2 + SILU_THREADS - 1) / SILU_THREADS));
    auto kernel = gate == GATE_GELU        ? gate_alone_kernel<GATE_GELU>
                  : gate == GATE_GELU_TANH ? gate_alone_kernel<GATE_GELU_TANH>
                  : gate == GATE_XIELU     ? gate_alone_kernel<GATE_XIELU>
                  : gate == GATE_RELU      ? gate_alone_kernel<GATE_RELU>
                                           : gate_alone_kernel<GATE_RELU_SQUARED>;
    kernel<<<checked_grid(grid), SILU_THREADS, 0, d->stream>>>((uint32_t *)out, count / 2, values);
}

void cuda_linear(struct device *device, const struct batch *b, enum row_set rows, void *out, const void *x,
                 const struct linear *w)
{
    struct cuda_device *d = cuda_of(device);
    cuda_linear_rows(d, cuda_linear_padded(w, batch_num_rows(b, rows), d->limits.num_tokens), out, x, w);
}

bool cuda_norm_linear(struct device *device, const struct batch *b, enum row_set rows, void *out, void *sum,
                      const void *x, const void *delta, const struct norm_args *norm, const struct linear *w)
{
    struct cuda_device *d = cuda_of(device);
    const bool is_plain = norm->weight && !norm->delta_weight && !norm->is_layer_norm,
               is_gated = w->kind == LINEAR_GATE_UP,
               has_kernel = w->format != LINEAR_BLOCKS && w->kind != LINEAR_UP && !w->wide_output &&
                            (!is_gated || w->gate == GATE_SILU);
    if (batch_num_rows(b, rows) != 1 || !is_plain || !has_kernel || w->k > ROW_NORM_MAX) return false;
    const struct linear_choice c = cuda_linear_choice(w, 1);
    struct row_args row = {};
    row.x = (const float *)x;
    row.delta = (const __nv_bfloat16 *)delta;
    row.sum = (float *)sum;
    row.weight = norm->weight;
    row.delta_scale = norm->delta_scale;
    row.eps = norm->eps;
    row.k = w->k;
    row.inverse_k = 1.0f / (float)w->k;
    if (c.kernel == LINEAR_PACKED)
        return cuda_linear_packed(d, c.tile_rows, c.columns, 1, out, NULL, w, is_gated, &row);
    if (c.kernel == LINEAR_RELAY) return cuda_linear_relay(d, c.tile_rows, 1, out, NULL, w, is_gated, &row);
    if (c.kernel != LINEAR_SMALL) return false;
    if (w->format == LINEAR_BF16) return cuda_linear_small(d, c.tile_rows, 1, out, NULL, w, is_gated, &row);
    const struct fp8_product p = fp8_product_of(d, 1, out, w, is_gated);
    return cuda_linear_fp8_small(d, c.tile_rows, &p, &row);
}
