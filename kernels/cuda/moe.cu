/* moe.cu - a mixture of experts: who chooses whom is found on the device, so that a step can be recorded.
 *
 *   routing    each token's experts, rows for its pairs, tiles of rows of one expert (moe_routing.cu)
 *   products   gate and up, or up alone, then down, of each tile (moe_small.cu, moe_packed.cu, moe_blocks.cu, moe_large.cu, moe_plain.cu)
 *   combine    a token's pairs, times their scores, in the order of experts; the shared expert's, an ordinary MLP, last
 *
 * Where experts have a space of their own, a product before routing makes what they get, and another one behind their combine brings
 * it back, to which a combine of that alone adds the shared expert's. */
#include <vector>

#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/share.cuh"

extern "C" {
#include "files/weight_codes.h"
}

namespace
{

enum {
    SCALE_THREADS = 128,
    GATHER_THREADS = 128,
    COMBINE_THREADS = 256,
    COMBINE_PAIRS = 8,
    COMBINE_COLUMNS = 8 * COMBINE_THREADS,
    TILE_ROWS_MIN = 8,
    LARGE_PAIRS = 48,          /* an expert, on average: from so many on there are tiles of many rows */
    PACKED_WIDE_PAIRS = 52,    /* of weights of four bits: tiles of twice as many rows as otherwise */
    PACKED_LARGE_PAIRS = 1200, /* where weights must be unpacked for that */
    BLOCKS_LARGE_PAIRS = 64,   /* the same of blocks */
};

/* ---- the sum ---- */

struct combine_args {
    __nv_bfloat16 *out;
    const __nv_bfloat16 *made, *shared_made; /* shared_made: NULL: no shared expert */
    const int32_t *rows;                     /* NULL: a token's one pair is the row of its number, times 1 */
    const float *weights, *shared_weight;    /* shared_weight: NULL: 1 */
    int32_t num_chosen, hidden;
};

__device__ __forceinline__ void add(float (&sum)[8], uint4 row, float weight)
{
    const uint32_t pairs[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 pair = unpack_bf16(pairs[i]);
        sum[2 * i] = __fmaf_rn(pair.x, weight, sum[2 * i]);
        sum[2 * i + 1] = __fmaf_rn(pair.y, weight, sum[2 * i + 1]);
    }
}

/* The pairs from first on, COMBINE_PAIRS of them at most: all is read before it is wanted, in two turns. Without __syncwarp the compiler
 * keeps loads for later, one latency behind another. */
__device__ __forceinline__ void add_pairs(float (&sum)[8], const combine_args &a, size_t token, int first,
                                          int32_t column)
{
    const size_t pair = token * a.num_chosen + first;
    int32_t at[COMBINE_PAIRS];
    uint4 rows[COMBINE_PAIRS];
    float weights[COMBINE_PAIRS];
#pragma unroll
    for (int c = 0; c < COMBINE_PAIRS; c++) {
        if (first + c >= a.num_chosen) continue;
        at[c] = a.rows ? a.rows[pair + c] : (int32_t)pair;
        weights[c] = a.rows ? a.weights[pair + c] : 1.0f;
    }
    __syncwarp();
#pragma unroll
    for (int c = 0; c < COMBINE_PAIRS; c++)
        if (first + c < a.num_chosen) rows[c] = *(const uint4 *)(a.made + (size_t)at[c] * a.hidden + column);
    __syncwarp();
#pragma unroll
    for (int c = 0; c < COMBINE_PAIRS; c++)
        if (first + c < a.num_chosen) add(sum, rows[c], weights[c]);
}

/* A CTA a token and COMBINE_COLUMNS columns. */
__global__ void __launch_bounds__(COMBINE_THREADS) combine_kernel(combine_args a)
{
    size_t token = blockIdx.x;
    int32_t column = blockIdx.y * COMBINE_COLUMNS + 8 * threadIdx.x;
    const bool is_inside = column < a.hidden;
    if (!is_inside) column = 0; /* a warp's lanes stay together */
    dependents_launch();
    dependency_wait();
    float sum[8] = {};
    for (int first = 0; first < a.num_chosen; first += COMBINE_PAIRS) add_pairs(sum, a, token, first, column);
    if (a.shared_made)
        add(sum, *(const uint4 *)(a.shared_made + token * a.hidden + column),
            a.shared_weight ? a.shared_weight[token] : 1.0f);
    if (is_inside)
        *(uint4 *)(a.out + token * a.hidden + column) =
            make_uint4(pack_bf16(sum[0], sum[1]), pack_bf16(sum[2], sum[3]), pack_bf16(sum[4], sum[5]),
                       pack_bf16(sum[6], sum[7]));
}

/* ---- host: creation ---- */

int32_t rows_max(const struct cuda_device *d)
{
    return max(d->limits.num_tokens, d->limits.num_logits);
}

/* A matrix as f32. */
bool upload_f32(struct cuda_device *d, float *out, const struct weight_view *v)
{
    std::vector<float> values((size_t)v->rows * (size_t)v->cols);
    size_t row_bytes = dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    for (int64_t row = 0; row < v->rows; row++)
        dtype_row_to_f32(v->dtype, (const char *)v->data + (size_t)row * row_bytes, v->cols,
                         values.data() + row * v->cols);
    return cuda_upload(&d->base, out, values.data(), values.size() * 4) == STATUS_OK;
}

template <typename T> bool allocate(struct cuda_device *d, T **out, size_t count, const char *what)
{
    *out = (T *)cuda_alloc(&d->base, count * sizeof(T), what);
    return *out != NULL;
}

/* What is too small is left for the device to free. */
bool reserve_scratch(struct cuda_device *d, const struct moe *m, int32_t shared_inner)
{
    if (!d->moe_scratch) d->moe_scratch = new struct moe_scratch();
    struct moe_scratch *s = d->moe_scratch;
    if (m->num_experts <= s->num_experts && m->num_chosen <= s->num_chosen && m->inner <= s->inner &&
        shared_inner <= s->shared_inner && (!moe_is_shared_out(m) || s->own_mid))
        return true;
    s->num_experts = max(s->num_experts, m->num_experts);
    s->num_chosen = max(s->num_chosen, m->num_chosen);
    s->inner = max(s->inner, m->inner);
    s->shared_inner = max(s->shared_inner, shared_inner);
    size_t rows = (size_t)rows_max(d), pairs = rows * (size_t)s->num_chosen, experts = (size_t)s->num_experts;
    size_t group_rows = (size_t)moe_rows_max((int32_t)pairs, s->num_experts);
    size_t num_few = MOE_SHARED_TOKENS * (experts + 1);
    const char *what = "experts";
    bool ok =
        allocate(d, &s->logits, rows * ((size_t)s->num_experts + 1), what) &&
        allocate(d, &s->choices, pairs, what) && allocate(d, &s->weights, pairs, what) &&
        allocate(d, &s->shared_weight, rows, what) && allocate(d, &s->counts, experts, what) &&
        allocate(d, &s->next, experts, what) && allocate(d, &s->rows, pairs, what) &&
        allocate(d, &s->tiles, (size_t)moe_tiles_max((int32_t)pairs, s->num_experts, TILE_ROWS_MIN), what) &&
        allocate(d, &s->num_tiles, 1, what) && allocate(d, &s->few_logits, num_few, what) &&
        allocate(d, &s->gathered, group_rows * (size_t)m->hidden, what) &&
        allocate(d, &s->mid, group_rows * (size_t)s->inner, what) &&
        CUDA_CHECK(d, cudaMemsetAsync(s->few_logits, 0xff, num_few * sizeof *s->few_logits, d->stream));
    if (ok && s->shared_inner > 0)
        ok = allocate(d, &s->shared_mid, rows * (size_t)s->shared_inner, what) &&
             allocate(d, &s->shared_made, rows * (size_t)m->router_hidden, what);
    s->own_mid = s->own_shared_mid = NULL; /* too small, if they were there */
    if (ok && moe_is_shared_out(m))
        ok = allocate(d, &s->own_mid, group_rows * (size_t)s->inner, what) &&
             (s->shared_inner == 0 || allocate(d, &s->own_shared_mid, rows * (size_t)s->shared_inner, what));
    return ok;
}

/* Of experts' own space. */
bool reserve_own(struct cuda_device *d, const struct moe_desc *desc)
{
    struct moe_scratch *s = d->moe_scratch;
    const size_t rows = (size_t)rows_max(d);
    const int32_t own = (int32_t)weight_view_num_rows(&desc->to_experts);
    if (own <= s->own_hidden) return true;
    s->own_hidden = own;
    return allocate(d, &s->own, rows * (size_t)own, "experts") &&
           allocate(d, &s->own_made, rows * (size_t)own, "experts") &&
           allocate(d, &s->widened, rows * (size_t)desc->router.cols, "experts");
}

/* Tensor cores have its logits then. */
bool router_is_bf16(const struct moe_desc *desc)
{
    return desc->router.dtype == DTYPE_BF16 &&
           (!desc->shared_gate.data || desc->shared_gate.dtype == DTYPE_BF16);
}

bool upload_router_bf16(struct cuda_device *d, struct moe *m, const struct moe_desc *desc, size_t count)
{
    return allocate(d, &m->router_bf16, count + (size_t)m->router_hidden, "weights") &&
           cuda_upload(&d->base, m->router_bf16, desc->router.data, count * 2) == STATUS_OK &&
           (!m->has_shared_gate || cuda_upload(&d->base, m->router_bf16 + count, desc->shared_gate.data,
                                               (size_t)m->router_hidden * 2) == STATUS_OK);
}

bool upload_router(struct cuda_device *d, struct moe *m, const struct moe_desc *desc)
{
    size_t count = (size_t)m->num_experts * (size_t)m->router_hidden;
    bool ok = router_is_bf16(desc) ? upload_router_bf16(d, m, desc, count)
                                   : allocate(d, &m->router, count + (size_t)m->router_hidden, "weights") &&
                                         upload_f32(d, m->router, &desc->router);
    if (ok && m->router && m->has_shared_gate) ok = upload_f32(d, m->router + count, &desc->shared_gate);
    if (ok && desc->router_bias.data)
        ok = allocate(d, &m->router_bias, (size_t)m->num_experts, "weights") &&
             upload_f32(d, m->router_bias, &desc->router_bias);
    if (ok && desc->choice_bias.data)
        ok = allocate(d, &m->choice_bias, (size_t)m->num_experts, "weights") &&
             upload_f32(d, m->choice_bias, &desc->choice_bias);
    if (ok && desc->score_factors.data)
        ok = allocate(d, &m->score_factors, (size_t)m->num_experts, "weights") &&
             upload_f32(d, m->score_factors, &desc->score_factors);
    return ok;
}

int create_shared(struct device *device, struct moe *m, const struct moe_desc *desc, struct error *err)
{
    struct linear_desc gate_up = {}, down = {};
    bool has_gate = desc->shared.gate.data != NULL;
    gate_up.kind = has_gate ? LINEAR_GATE_UP : LINEAR_UP;
    gate_up.gate = desc->gate;
    gate_up.quantise_input = down.quantise_input = desc->quantise_input;
    if (has_gate) gate_up.parts[gate_up.num_parts++] = desc->shared.gate;
    gate_up.parts[gate_up.num_parts++] = desc->shared.up;
    down.num_parts = 1;
    down.parts[0] = desc->shared.down;
    int status = cuda_linear_create(device, &gate_up, &m->shared_gate_up, err);
    return status ? status : cuda_linear_create(device, &down, &m->shared_down, err);
}

int create_own(struct device *device, struct moe *m, const struct moe_desc *desc, struct error *err)
{
    struct linear_desc to = {}, from = {};
    to.num_parts = from.num_parts = 1;
    to.parts[0] = desc->to_experts;
    from.parts[0] = desc->from_experts;
    to.quantise_input = from.quantise_input = desc->quantise_input;
    int status = cuda_linear_create(device, &to, &m->to_experts, err);
    return status ? status : cuda_linear_create(device, &from, &m->from_experts, err);
}

bool has_biases(const struct expert_desc *e)
{
    return e->gate_bias.data || e->up_bias.data || e->down_bias.data;
}

/* What lies transposed: Llama 4's. */
int check_weight(const struct weight_view *v, struct error *err)
{
    return v->scheme == WEIGHT_TRANSPOSED ? STATUS_OK : weight_check(v, err);
}

int check_expert(const struct expert_desc *e, struct error *err)
{
    int64_t inner = weight_view_num_rows(&e->up), hidden = weight_view_num_rows(&e->down);
    int status = e->gate.data ? check_weight(&e->gate, err) : STATUS_OK;
    if (!status) status = check_weight(&e->up, err);
    if (!status) status = check_weight(&e->down, err);
    if (!status) status = weight_view_check_vector(&e->gate_bias, inner, err);
    if (!status) status = weight_view_check_vector(&e->up_bias, inner, err);
    return status ? status : weight_view_check_vector(&e->down_bias, hidden, err);
}

/* Without a gate those of cuda_gate_alone, of which xIELU wants numbers. */
bool has_gate_function(const struct moe_desc *desc)
{
    enum gate_function gate = desc->gate;
    if (!desc->experts[0].gate.data)
        return gate == GATE_RELU_SQUARED || gate == GATE_GELU || gate == GATE_GELU_TANH;
    return gate == GATE_SILU || gate == GATE_GELU_TANH || gate == GATE_CLAMPED_SWISH;
}

/* STATUS_UNSUPPORTED for what the kernels have no room for. */
int check_desc(const struct cuda_device *d, const struct moe_desc *desc, struct error *err)
{
    const struct expert_desc *e = &desc->experts[0];
    if (desc->num_experts > MOE_EXPERTS_MAX || desc->num_chosen > MOE_CHOSEN_MAX)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the CUDA device has mixtures of at most %d experts, %d of them chosen, not of %d and %d",
            (int)MOE_EXPERTS_MAX, (int)MOE_CHOSEN_MAX, desc->num_experts, desc->num_chosen);
    if (weight_view_num_rows(&e->up) % 8 != 0 || desc->router.cols % 8 != 0 || e->up.cols % 8 != 0)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the CUDA device wants experts whose hidden and intermediate sizes are multiples of 8");
    if (!has_gate_function(desc))
        return error_set(err, STATUS_UNSUPPORTED, "the CUDA device has no experts of such a gate function");
    bool is_clamped = desc->gate == GATE_CLAMPED_SWISH;
    if ((is_clamped && desc->shared.up.data) || (!is_clamped && has_biases(&desc->experts[0])))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the CUDA device has clamped gates and biases for experts that have both, and no shared "
            "expert (gpt-oss); the CPU device has others");
    if (desc->out_bias.data)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device has no bias of what experts make together");
    if (desc->scores == ROUTER_SPARSE && desc->num_groups > 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device does not choose experts of groups by their logits");
    int status = STATUS_OK;
    for (int32_t i = 0; i < desc->num_experts && !status; i++) status = check_expert(&desc->experts[i], err);
    return status;
}

} // namespace

int cuda_moe_create(struct device *device, const struct moe_desc *desc, struct moe **out, struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    int status = check_desc(d, desc, err);
    if (status) return status;
    struct moe *m = new struct moe();
    m->num_experts = desc->num_experts;
    m->num_chosen = desc->num_chosen;
    m->hidden = (int32_t)desc->experts[0].up.cols;
    m->router_hidden = (int32_t)desc->router.cols;
    m->inner = (int32_t)desc->experts[0].down.cols;
    m->own_inner = (int32_t)weight_view_num_rows(&desc->experts[0].up);
    m->own_hidden = (int32_t)weight_view_num_rows(&desc->experts[0].down);
    m->scores = desc->scores;
    m->gate = desc->gate;
    m->has_gate = desc->experts[0].gate.data != NULL;
    m->normalize = desc->normalize;
    m->scale = desc->scale;
    m->near = desc->near;
    m->scale_input = desc->scale_input;
    m->num_groups = desc->num_groups;
    m->num_chosen_groups = desc->num_chosen_groups;
    m->groups_by_two = desc->groups_by_two;
    m->has_shared_gate = desc->shared_gate.data != NULL;
    m->shared_inner = desc->shared.up.data ? (int32_t)desc->shared.down.cols : 0;
    if (!reserve_scratch(d, m, m->shared_inner) || !reserve_own(d, desc) || !upload_router(d, m, desc) ||
        !cuda_moe_upload_experts(d, m, desc))
        status = error_set(err, STATUS_NO_MEMORY, "the GPU has no room for the experts (%s)",
                           cudaGetErrorString(d->first_error));
    if (!status && desc->shared.up.data) status = create_shared(device, m, desc, err);
    if (!status && desc->to_experts.data) status = create_own(device, m, desc, err);
    if (status)
        delete m;
    else
        *out = m;
    return status;
}

void cuda_moe_forget(struct cuda_device *d)
{
    delete d->moe_scratch;
    d->moe_scratch = NULL;
}

/* ---- host: a step ---- */

namespace
{

/* Where an expert's input is scaled: a pair's row of x times its weight, which becomes 1. */
__global__ void __launch_bounds__(SCALE_THREADS)
    scale_kernel(__nv_bfloat16 *gathered, const int32_t *rows, float *weights, int32_t hidden)
{
    dependents_launch();
    dependency_wait();
    uint32_t *row = (uint32_t *)(gathered + (size_t)rows[blockIdx.x] * hidden);
    float weight = weights[blockIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) weights[blockIdx.x] = 1;
    for (int i = threadIdx.x; i < hidden / 2; i += SCALE_THREADS) {
        float2 x = unpack_bf16(row[i]);
        row[i] = pack_bf16(x.x * weight, x.y * weight);
    }
}

/* Where members of a group have columns each of what gate and up have made: a pair's of all of them. */
struct gather_mid_args {
    const uint4 *from[GROUP_MEMBERS_MAX];        /* [rows][num_vectors] */
    const int32_t *from_rows[GROUP_MEMBERS_MAX]; /* [P]; NULL: the pair's number */
    uint4 *to;                                   /* [rows][num_members][num_vectors] */
    const int32_t *to_rows;                      /* as from_rows */
    int32_t num_members, num_vectors;
};

/* A CTA a pair. */
__global__ void __launch_bounds__(GATHER_THREADS) gather_mid_kernel(gather_mid_args a)
{
    const size_t pair = blockIdx.x;
    dependents_launch();
    dependency_wait();
    uint4 *to = a.to + (a.to_rows ? a.to_rows[pair] : pair) * a.num_members * a.num_vectors;
    for (int32_t i = threadIdx.x; i < a.num_members * a.num_vectors; i += GATHER_THREADS) {
        const int32_t member = i / a.num_vectors;
        const size_t row = a.from_rows[member] ? a.from_rows[member][pair] : pair;
        to[i] = a.from[member][row * a.num_vectors + i % a.num_vectors];
    }
}

/* What computes a step's products: it changes the speed and nothing else. */
enum method { METHOD_PLAIN, METHOD_BLOCKS, METHOD_SHARED, METHOD_SMALL, METHOD_LARGE };

struct plan {
    enum method method;
    int32_t tile_rows;
};

/* Rows of a tile that is multiplied by blocks, where an expert has so many pairs. */
int32_t blocks_tile_rows(int32_t num_tokens, int32_t pairs)
{
    return num_tokens <= 8 || pairs <= 4 ? 8 : pairs <= 8 ? 16 : pairs <= 16 ? 32 : 64;
}

/* Tiles are as narrow as twice the average allows: most experts have one then. */
struct plan plan_of(const struct cuda_device *d, const struct moe *m, int32_t num_tokens)
{
    int32_t pairs = num_tokens * m->num_chosen / m->num_experts; /* an expert, on average */
    const bool in_blocks = m->packed_down.format == LINEAR_BLOCKS, is_packed = m->packed_down.packed;
    if (in_blocks && pairs < BLOCKS_LARGE_PAIRS) return {METHOD_BLOCKS, blocks_tile_rows(num_tokens, pairs)};
    if (!d->is_hopper) return {METHOD_PLAIN, MOE_PLAIN_ROWS};
    if (in_blocks) return {METHOD_LARGE, MOE_LARGE_ROWS};
    if (num_tokens <= MOE_SHARED_TOKENS && m->router_bf16 && !m->scale_input && m->num_groups <= 1)
        return {METHOD_SHARED, MOE_SHARED_TOKENS};
    if (num_tokens <= 8) return {METHOD_SMALL, 8};
    if (num_tokens <= 32 || pairs < 20) return {METHOD_SMALL, 32};
    if (num_tokens <= 64 || pairs < (is_packed ? PACKED_WIDE_PAIRS : LARGE_PAIRS)) return {METHOD_SMALL, 64};
    if (is_packed && pairs < PACKED_LARGE_PAIRS) return {METHOD_SMALL, 128};
    return {METHOD_LARGE, MOE_LARGE_ROWS};
}

bool run_hopper(struct cuda_device *d, const struct plan &plan, const struct moe_product *p)
{
    bool is_large = plan.method == METHOD_LARGE;
    if (p->fp8.w) return is_large ? cuda_moe_fp8_large(d, p) : cuda_moe_fp8_small(d, plan.tile_rows, p);
    if (is_large) return cuda_moe_large(d, p);
    return p->packed->packed ? cuda_moe_packed(d, plan.tile_rows, p) : cuda_moe_small(d, plan.tile_rows, p);
}

/* For products of many rows, which take bf16. */
void unpack(struct cuda_device *d, struct moe_product *p)
{
    if (p->packed->format == LINEAR_BLOCKS)
        blocks_unpack(d, p->packed, p->num_experts, d->unpacked);
    else
        packed_unpack(d, p->packed, d->unpacked);
    p->weight = d->unpacked;
}

void run_product(struct cuda_device *d, const struct plan &plan, struct moe_product *p)
{
    bool takes_bf16 = plan.method == METHOD_PLAIN || plan.method == METHOD_LARGE, ok = true;
    if (takes_bf16 && p->packed->packed) unpack(d, p);
    if (plan.method == METHOD_PLAIN)
        cuda_moe_plain(d, p);
    else
        ok = plan.method == METHOD_BLOCKS ? cuda_moe_blocks(d, plan.tile_rows, p) : run_hopper(d, plan, p);
    if (!ok) cuda_check(d, cudaErrorUnknown, "experts");
}

/* W and, in the place of p->x, the rows in e4m3. */
void use_fp8(struct moe_product *p, const struct fp8_weight &w, const struct fp8_rows *x)
{
    struct fp8_product *to = &p->fp8;
    to->out = p->out;
    to->rows = p->x_rows;
    to->n = p->num_experts * p->n;
    to->k = p->k;
    to->x = x->codes;
    to->x_scales = x->scales;
    to->x_pitch = x->pitch;
    to->w = w.codes;
    to->w_scales = w.scales;
    to->w_pitch = w.pitch;
    to->form = w.form;
}

/* What gate and up have made, of the rows that are pairs'. */
void quantise_mid(struct cuda_device *d, const struct moe *m, int32_t num_pairs)
{
    const struct moe_scratch *s = d->moe_scratch;
    if (!cuda_quantise_rows(d, num_pairs, m->inner, s->mid, s->fp8.codes, s->fp8.scales, s->fp8.pitch,
                            m->fp8_down.form, s->rows))
        cuda_check(d, cudaErrorUnknown, "experts");
}

/* What both products have. */
struct moe_product product_of(struct cuda_device *d, const struct moe *m, const struct plan &plan,
                              int32_t num_tokens)
{
    const struct moe_scratch *s = d->moe_scratch;
    const int32_t num_pairs = num_tokens * m->num_chosen;
    struct moe_product p = {};
    p.tiles = s->tiles;
    p.num_tiles = s->num_tiles;
    p.num_rows = moe_rows_max(num_pairs, m->num_experts);
    p.num_pairs = num_pairs;
    p.num_experts = m->num_experts;
    p.tiles_max = moe_tiles_max(num_pairs, m->num_experts, plan.tile_rows);
    /* where the second product's weights are no more than what the rings of all SMs hold, as of a token alone */
    const int64_t bytes = (int64_t)num_pairs * m->own_hidden * m->inner * (m->fp8_down.codes ? 1 : 2);
    p.is_short = plan.tile_rows <= TILE_ROWS_MIN && bytes <= (int64_t)d->num_sms * MOE_RING_BYTES;
    p.gate = m->gate;
    return p;
}

/* By gate and up. quantised: x in bytes, where the experts are; else NULL. */
void multiply_up(struct cuda_device *d, const struct moe *m, const struct plan &plan, const __nv_bfloat16 *x,
                 const struct fp8_rows *quantised, int32_t num_tokens)
{
    const struct moe_scratch *s = d->moe_scratch;
    struct moe_product p = product_of(d, m, plan, num_tokens);
    p.shares_x = plan.method == METHOD_SHARED;
    p.out = moe_is_shared_out(m) ? s->own_mid : s->mid;
    p.x = p.shares_x ? x : s->gathered;
    p.x_rows = p.shares_x ? num_tokens : p.num_rows;
    p.weight = m->gate_up;
    p.packed = &m->packed_gate_up;
    p.bias = m->gate_up_bias;
    p.n = moe_rows_of_gate_up(m);
    p.k = m->hidden;
    p.is_gated = m->has_gate;
    if (quantised) use_fp8(&p, m->fp8_gate_up, p.shares_x ? quantised : &s->fp8);
    run_product(d, plan, &p);
    if (!m->has_gate) cuda_gate_alone(d, p.out, (size_t)p.num_rows * (size_t)m->own_inner, m->gate, {});
}

void multiply_down(struct cuda_device *d, const struct moe *m, const struct plan &plan, int32_t num_tokens)
{
    const struct moe_scratch *s = d->moe_scratch;
    struct moe_product p = product_of(d, m, plan, num_tokens);
    p.out = s->gathered;
    p.x = s->mid;
    p.x_rows = p.num_rows;
    p.weight = m->down;
    p.packed = &m->packed_down;
    p.bias = m->down_bias;
    p.n = m->own_hidden;
    p.k = m->inner;
    p.knows_tiles = true;
    if (m->fp8_down.codes) {
        quantise_mid(d, m, p.num_pairs);
        use_fp8(&p, m->fp8_down, &s->fp8);
    }
    run_product(d, plan, &p);
}

void launch_combine(struct cuda_device *d, const combine_args &a, int32_t num_tokens)
{
    launch_dependent(
        d, combine_kernel,
        dim3((unsigned)num_tokens, (unsigned)((a.hidden + COMBINE_COLUMNS - 1) / COMBINE_COLUMNS)),
        dim3(COMBINE_THREADS), 0, a);
}

/* Of the experts that were chosen. */
combine_args combine_args_of(const struct cuda_device *d, const struct moe *m, void *out)
{
    const struct moe_scratch *s = d->moe_scratch;
    combine_args a = {};
    a.out = (__nv_bfloat16 *)out;
    a.made = s->gathered;
    a.rows = s->rows;
    a.weights = s->weights;
    a.num_chosen = m->num_chosen;
    a.hidden = m->own_hidden;
    return a;
}

void add_shared(const struct cuda_device *d, const struct moe *m, combine_args *a)
{
    const struct moe_scratch *s = d->moe_scratch;
    a->shared_made = m->shared_down ? s->shared_made : NULL;
    a->shared_weight = m->has_shared_gate ? s->shared_weight : NULL;
}

/* Of experts with a space of their own. */
void combine_own(struct device *device, const struct batch *b, enum row_set rows, const struct moe *m,
                 void *out, int32_t num_tokens)
{
    struct cuda_device *d = cuda_of(device);
    struct moe_scratch *s = d->moe_scratch;
    launch_combine(d, combine_args_of(d, m, s->own_made), num_tokens);
    cuda_linear(device, b, rows, m->shared_down ? s->widened : out, s->own_made, m->from_experts);
    if (!m->shared_down) return;
    combine_args a = {};
    a.out = (__nv_bfloat16 *)out;
    a.made = s->widened;
    a.num_chosen = 1;
    a.hidden = m->router_hidden;
    add_shared(d, m, &a);
    launch_combine(d, a, num_tokens);
}

void combine(struct device *device, const struct batch *b, enum row_set rows, const struct moe *m, void *out,
             int32_t num_tokens)
{
    struct cuda_device *d = cuda_of(device);
    if (m->to_experts) {
        combine_own(device, b, rows, m, out, num_tokens);
        return;
    }
    combine_args a = combine_args_of(d, m, out);
    add_shared(d, m, &a);
    launch_combine(d, a, num_tokens);
}

} // namespace

void cuda_moe_begin(struct device *device, const struct batch *b, enum row_set rows, const void *x,
                    const void *seen, const struct moe *m)
{
    struct cuda_device *d = cuda_of(device);
    struct moe_scratch *s = d->moe_scratch;
    int32_t num_tokens = batch_num_rows(b, rows);
    const struct plan plan = plan_of(d, m, num_tokens);
    const struct fp8_rows *quantised = NULL;
    const __nv_bfloat16 *of_experts = m->to_experts ? s->own : (const __nv_bfloat16 *)x;
    if (m->to_experts) cuda_linear(device, b, rows, s->own, x, m->to_experts);
    if (m->fp8_down.codes) {
        quantised = cuda_fp8_rows(d, num_tokens, m->hidden, of_experts, m->fp8_gate_up.form);
        if (!quantised) {
            cuda_check(d, cudaErrorUnknown, "experts");
            return;
        }
    }
    if (plan.method == METHOD_SHARED)
        cuda_moe_route_few(d, m, (const __nv_bfloat16 *)seen, num_tokens);
    else
        cuda_moe_route(d, m, (const __nv_bfloat16 *)seen, of_experts, quantised, num_tokens, plan.tile_rows);
    if (m->scale_input)
        launch_dependent(d, scale_kernel, dim3((unsigned)(num_tokens * m->num_chosen)), dim3(SCALE_THREADS),
                         0, s->gathered, (const int32_t *)s->rows, s->weights, m->hidden);
    multiply_up(d, m, plan, of_experts, quantised, num_tokens);
    if (moe_is_shared_out(m) && m->shared_down)
        cuda_linear(device, b, rows, s->own_shared_mid, x, m->shared_gate_up);
}

namespace
{

/* What gate and up of a kind of experts have made on one device. */
struct own_mid {
    const __nv_bfloat16 *from; /* this device's columns */
    __nv_bfloat16 *to;         /* all of them */
    const int32_t *rows;       /* where the i-th is; NULL: it is the i-th */
    int32_t num;
    int64_t row_bytes; /* of from */
};

struct own_mid own_mid_of(const struct cuda_device *d, const struct moe *m, enum moe_experts which,
                          int32_t num_tokens)
{
    const struct moe_scratch *s = d->moe_scratch;
    struct device *const *members;
    const int64_t bytes = (int64_t)sizeof *s->mid;
    if (which == EXPERTS_CHOSEN)
        return {s->own_mid, s->mid, s->rows, num_tokens * m->num_chosen, m->own_inner * bytes};
    return {s->own_shared_mid, s->shared_mid, NULL, num_tokens,
            m->shared_inner / cuda_members(d, &members) * bytes};
}

} // namespace

void cuda_moe_share(struct device *device, const struct batch *b, enum row_set rows, const struct moe *m,
                    enum moe_experts which)
{
    struct cuda_device *d = cuda_of(device);
    const struct own_mid mid = own_mid_of(d, m, which, batch_num_rows(b, rows));
    if (cuda_share_is_little(mid.num, mid.row_bytes))
        cuda_share_placed(d, mid.num, mid.to, mid.from, mid.row_bytes, mid.rows);
    else
        cuda_share_nothing(d);
}

/* Much is read where it lies, when all members have come as far. */
void cuda_moe_gather(struct device *device, const struct batch *b, enum row_set rows, const struct moe *m,
                     enum moe_experts which)
{
    struct cuda_device *d = cuda_of(device);
    struct device *const *members;
    const int32_t num_tokens = batch_num_rows(b, rows);
    const struct own_mid mid = own_mid_of(d, m, which, num_tokens);
    gather_mid_args a = {};
    cuda_share_end(device);
    if (cuda_share_is_little(mid.num, mid.row_bytes)) return;
    a.num_members = cuda_members(d, &members);
    for (int i = 0; i < a.num_members; i++) {
        const struct own_mid of = own_mid_of(cuda_of(members[i]), m, which, num_tokens);
        a.from[i] = (const uint4 *)of.from;
        a.from_rows[i] = of.rows;
    }
    a.to = (uint4 *)mid.to;
    a.to_rows = mid.rows;
    a.num_vectors = (int32_t)(mid.row_bytes / (int64_t)sizeof *a.to);
    launch_dependent(d, gather_mid_kernel, dim3((unsigned)mid.num), dim3(GATHER_THREADS), 0, a);
}

void cuda_moe_end(struct device *device, const struct batch *b, enum row_set rows, void *out, const void *x,
                  const struct moe *m)
{
    struct cuda_device *d = cuda_of(device);
    const struct moe_scratch *s = d->moe_scratch;
    const int32_t num_tokens = batch_num_rows(b, rows);
    multiply_down(d, m, plan_of(d, m, num_tokens), num_tokens);
    if (m->shared_down) {
        if (!moe_is_shared_out(m)) cuda_linear(device, b, rows, s->shared_mid, x, m->shared_gate_up);
        cuda_linear(device, b, rows, s->shared_made, s->shared_mid, m->shared_down);
    }
    combine(device, b, rows, m, out, num_tokens);
    cuda_fp8_target_forget(d);
    cuda_check(d, cudaPeekAtLastError(), "experts");
}

void cuda_moe(struct device *device, const struct batch *b, enum row_set rows, void *out, const void *x,
              const void *seen, const struct moe *m)
{
    cuda_moe_begin(device, b, rows, x, seen, m);
    cuda_moe_end(device, b, rows, out, x, m);
}
