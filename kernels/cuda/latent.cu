/* latent.cu - what latent attention (device.h: latent_desc) has before and behind attention over one K/V head.
 *
 *   q, or q_a, norm, q_b | kv_a | place: K = [k_r | norm(c)], V, q_r | absorb: k_b^T q_n of each head
 *   rope: q_r and k_r are rotated, K goes to the pool, which has no V: it is K without its first columns
 *   behind attention (attention_masked.cu), expand: v_b of each head
 *
 * Prompts may go another way from q and kv_a on (latent_prompts.cu).
 *
 * Products of heads take a head's columns where they are and leave its results where they go; their sums go along K in order, so a
 * token's bits are its own.
 *
 * Source: DeepSeek-AI, "DeepSeek-V2: a strong, economical, and efficient mixture-of-experts language model", 2024. */
#include "kernels/cuda/bf16.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/latent.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/plain_tile.cuh"

namespace
{

static_assert(THREADS == 128, "of kernels that have a CTA for a token, too");

/* ---- creation ---- */

template <typename T> bool allocate(struct cuda_device *d, T **out, size_t count, const char *what)
{
    *out = (T *)cuda_alloc(&d->base, max(count, (size_t)1) * sizeof(T), what);
    return *out != NULL;
}

/* kv_b [Hq][Dn + Dv][r] to absorb [Hq][r][Dn] and expand [Hq][Dv][r]: a CTA a row. */
__global__ void split_kernel(__nv_bfloat16 *absorb, __nv_bfloat16 *expand, const __nv_bfloat16 *kv_b,
                             int32_t plain_dim, int32_t value_dim, int32_t rank)
{
    int32_t row = blockIdx.x % (plain_dim + value_dim);
    size_t head = blockIdx.x / (plain_dim + value_dim);
    const __nv_bfloat16 *from = kv_b + (size_t)blockIdx.x * rank;
    for (int32_t i = threadIdx.x; i < rank; i += THREADS)
        if (row < plain_dim)
            absorb[(head * rank + i) * plain_dim + row] = from[i];
        else
            expand[(head * value_dim + row - plain_dim) * rank + i] = from[i];
}

bool take_heads(struct cuda_device *d, struct latent *l, const struct latent_desc *desc)
{
    const size_t heads = (size_t)l->num_heads, rank = (size_t)l->rank;
    const size_t rows = heads * (size_t)(l->plain_dim + l->value_dim);
    __nv_bfloat16 *kv_b = NULL;
    if (!allocate(d, &l->absorb, heads * rank * (size_t)l->plain_dim, "weights") ||
        !allocate(d, &l->expand, heads * rank * (size_t)l->value_dim, "weights"))
        return false;
    if (!desc->kv_b.data)
        return cuda_upload_weight(d, l->absorb, &desc->k_b, false, 0) &&
               cuda_upload_weight(d, l->expand, &desc->v_b, false, 0);
    if (!CUDA_CHECK(d, cudaMalloc((void **)&kv_b, rows * rank * 2))) return false;
    bool ok = cuda_upload_weight(d, kv_b, &desc->kv_b, false, 0);
    if (ok)
        split_kernel<<<(unsigned)rows, THREADS, 0, d->stream>>>(l->absorb, l->expand, kv_b, l->plain_dim,
                                                                l->value_dim, l->rank);
    ok = ok && CUDA_CHECK(d, cudaStreamSynchronize(d->stream));
    cudaFree(kv_b);
    return ok;
}

bool take_norm(struct cuda_device *d, float **out, const struct weight_view *view)
{
    std::vector<float> values((size_t)max(view->cols, (int64_t)1));
    if (view->data) dtype_row_to_f32(view->dtype, view->data, view->cols, values.data());
    return allocate(d, out, values.size(), "weights") &&
           !cuda_upload(&d->base, *out, values.data(), values.size() * sizeof(float));
}

int take_linear(struct device *device, const struct weight_view *view, struct linear **out, struct error *err)
{
    struct linear_desc desc = {};
    desc.num_parts = 1;
    desc.parts[0] = *view;
    return cuda_linear_create(device, &desc, out, err);
}

/* Layers are alike. */
bool reserve_scratch(struct cuda_device *d, const struct latent *l)
{
    if (d->latent_scratch) return true;
    struct latent_scratch *s = d->latent_scratch = new struct latent_scratch();
    s->plain_dim = l->plain_dim;
    const size_t tokens = (size_t)d->limits.num_tokens, heads = (size_t)l->num_heads;
    return allocate(d, &s->low, tokens * (size_t)l->q_rank, "activations") &&
           allocate(d, &s->q, tokens * heads * (size_t)(l->plain_dim + l->rotary_dim), "activations") &&
           allocate(d, &s->kv, tokens * (size_t)(l->rank + l->rotary_dim), "activations") &&
           cuda_latent_prompts_reserve(d, l);
}

} // namespace

int cuda_latent_create(struct device *device, const struct latent_desc *desc, struct latent **out,
                       struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    const int32_t dim = desc->rotary_dim + desc->rank;
    if (desc->rank % 8 != 0 || desc->plain_dim % 8 != 0 || desc->rotary_dim % 8 != 0 ||
        desc->value_dim % 8 != 0 || !cuda_attention_masked_supports(d, dim) ||
        (dim > 256 && desc->rotary_dim != 64))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "the CUDA device has latents of 512 or 256 beside 64 that are rotated, or of less than 256 "
            "together, all sizes multiples of 8");
    struct latent *l = new struct latent();
    l->num_heads = desc->num_heads;
    l->plain_dim = desc->plain_dim;
    l->rotary_dim = desc->rotary_dim;
    l->value_dim = desc->value_dim;
    l->rank = desc->rank;
    l->q_rank = desc->q.data ? 0 : (int32_t)desc->q_b.cols;
    l->norm_eps = desc->norm_eps;
    d->latent_rotary_dim = desc->rotary_dim;
    d->needs_masked = true;
    int status = take_linear(device, &desc->kv_a, &l->kv_a, err);
    if (!status && l->q_rank > 0) status = take_linear(device, &desc->q_a, &l->q_a, err);
    if (!status) status = take_linear(device, l->q_rank > 0 ? &desc->q_b : &desc->q, &l->q, err);
    if (!status && !(take_norm(d, &l->q_norm, &desc->q_norm) && take_norm(d, &l->kv_norm, &desc->kv_norm) &&
                     take_heads(d, l, desc) && reserve_scratch(d, l) && cuda_latent_prompts_take(d, l, desc)))
        status = error_set(err, STATUS_NO_MEMORY, "the GPU has no room for latent attention (%s)",
                           cudaGetErrorString(d->first_error));
    if (status)
        delete l;
    else
        *out = l;
    return status;
}

void cuda_latents_forget(struct cuda_device *d)
{
    delete d->latent_scratch;
    d->latent_scratch = NULL;
}

/* ---- a step ---- */

namespace
{

/* By a CTA: out = RMSNorm(x) * norm, n values, a multiple of 8; in place, too. */
__device__ void norm_row(__nv_bfloat16 *out, const __nv_bfloat16 *x, const float *norm, float eps, int32_t n)
{
    __shared__ float partial[THREADS / 32];
    float sum = 0;
    for (int32_t i = threadIdx.x * 8; i < n; i += THREADS * 8) {
        const uint4 v = *(const uint4 *)(x + i);
        const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 two = unpack_bf16(pairs[k]);
            sum += two.x * two.x + two.y * two.y;
        }
    }
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < THREADS / 32; w++) sum += partial[w];
    const float scale = rsqrtf(sum / n + eps);
    for (int32_t i = threadIdx.x * 8; i < n; i += THREADS * 8) {
        const uint4 v = *(const uint4 *)(x + i);
        const uint32_t pairs[4] = {v.x, v.y, v.z, v.w};
        uint32_t made[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const float2 two = unpack_bf16(pairs[k]), by = *(const float2 *)(norm + i + 2 * k);
            made[k] = pack_bf16(two.x * scale * by.x, two.y * scale * by.y);
        }
        *(uint4 *)(out + i) = make_uint4(made[0], made[1], made[2], made[3]);
    }
}

__global__ void __launch_bounds__(THREADS)
    norm_low_kernel(__nv_bfloat16 *low, const float *norm, float eps, int32_t n)
{
    dependents_launch();
    dependency_wait();
    norm_row(low + (size_t)blockIdx.x * n, low + (size_t)blockIdx.x * n, norm, eps, n);
}

struct place_args {
    struct latent_rows to;
    const __nv_bfloat16 *q, *kv; /* of the first token */
    const float *kv_norm;
    int32_t num_heads, plain_dim, rotary_dim, rank;
    float eps;
    bool is_whole; /* heads of q with what is not rotated, and zeros behind it; else V behind K */
};

/* count elements, a multiple of 8. */
__device__ __forceinline__ void copy_row(__nv_bfloat16 *to, const __nv_bfloat16 *from, int32_t count)
{
    for (int32_t i = threadIdx.x * 8; i < count; i += THREADS * 8)
        *(uint4 *)(to + i) = *(const uint4 *)(from + i);
}

/* Vectors of 8 of a head of q: those of what is rotated, or all of them. */
__device__ __forceinline__ void place_queries(const place_args &a, __nv_bfloat16 *to, const __nv_bfloat16 *q)
{
    const int32_t q_dim = a.plain_dim + a.rotary_dim, first = a.is_whole ? 0 : a.plain_dim,
                  columns = a.is_whole ? a.to.q_head : a.rotary_dim, vectors = columns / 8;
    for (int32_t i = threadIdx.x; i < a.num_heads * vectors; i += THREADS) {
        const int32_t head = i / vectors, column = i % vectors * 8;
        *(uint4 *)(to + (size_t)head * a.to.q_head + column) =
            first + column < q_dim ? *(const uint4 *)(q + (size_t)head * q_dim + first + column)
                                   : make_uint4(0, 0, 0, 0);
    }
}

/* Of a token: q's heads, K and V. */
__global__ void __launch_bounds__(THREADS) place_kernel(place_args a)
{
    const int32_t q_dim = a.plain_dim + a.rotary_dim, dim = a.rotary_dim + a.rank;
    const size_t token = blockIdx.x;
    const __nv_bfloat16 *kv = a.kv + token * dim;
    __nv_bfloat16 *k = a.to.k + token * a.to.k_token, *v = k + dim;
    dependents_launch();
    dependency_wait();
    place_queries(a, a.to.q + token * a.to.q_token, a.q + token * a.num_heads * q_dim);
    copy_row(k, kv + a.rank, a.rotary_dim);
    norm_row(k + a.rotary_dim, kv, a.kv_norm, a.eps, a.rank);
    if (a.is_whole) return;
    for (int32_t i = threadIdx.x * 8; i < a.rotary_dim; i += THREADS * 8)
        *(uint4 *)(v + a.rank + i) = make_uint4(0, 0, 0, 0);
    copy_row(v, k + a.rotary_dim, a.rank); /* each thread what it has written */
}

/* For each head of each token: n columns of out, of k columns of x and the head's weight [n][k]. */
struct heads_args {
    __nv_bfloat16 *out;
    const __nv_bfloat16 *x, *weight;
    size_t out_token, out_head, x_token, x_head; /* elements from one to the next */
    int32_t num_tokens, n, k;
};

/* Grid: tiles of tokens, of columns; heads. */
__global__ void __launch_bounds__(THREADS) heads_kernel(heads_args a)
{
    extern __shared__ __align__(128) unsigned char shared[];
    const int32_t first = blockIdx.x * TILE_ROWS, first_n = blockIdx.y * TILE_COLUMNS,
                  warp_first = first + threadIdx.x / 32 * 16;
    const size_t head = blockIdx.z;
    const __nv_bfloat16 *weight = a.weight + (head * a.n + first_n) * a.k,
                        *x = a.x + first * a.x_token + head * a.x_head;
    float sums[TILE_COLUMNS / 8][4] = {};
    struct stage_rows rows;
    dependents_launch();
    dependency_wait();
    find_rows(
        &rows, [&](int32_t row) { return first + row < a.num_tokens ? x + row * a.x_token : NULL; },
        [&](int32_t row) { return first_n + row < a.n ? weight + (size_t)row * a.k : NULL; });
    multiply_tile(sums, rows, a.k, warp_first < a.num_tokens, shared_address(shared));
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int32_t token = warp_first + lane / 4 + 8 * i;
        if (token >= a.num_tokens) continue;
        __nv_bfloat16 *out = a.out + token * a.out_token + head * a.out_head + first_n + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < TILE_COLUMNS / 8; j++)
            if (first_n + 8 * j < a.n)
                *(uint32_t *)(out + 8 * j) = pack_bf16(sums[j][2 * i], sums[j][2 * i + 1]);
    }
}

void multiply_heads(struct cuda_device *d, const heads_args &a, int32_t num_heads)
{
    const dim3 grid((unsigned)div_up(a.num_tokens, TILE_ROWS), (unsigned)div_up(a.n, TILE_COLUMNS),
                    (unsigned)num_heads);
    launch_dependent(d, heads_kernel, grid, dim3(THREADS), RING_BYTES, a);
}

/* Of the tokens behind the prompts that have theirs in scratch (latent_prompts.cu): in the rows of qkv. */
struct latent_rows rows_of(const struct cuda_device *d, const struct batch *b, void *qkv, int32_t num_heads,
                           int32_t dim)
{
    struct latent_rows rows = {};
    rows.first_token = cuda_latent_prompt_rows(d, b).num_tokens;
    rows.num_tokens = b->num_tokens - rows.first_token;
    rows.q_token = rows.k_token = (size_t)(num_heads + 2) * dim;
    rows.q_head = dim;
    rows.q = (__nv_bfloat16 *)qkv + rows.first_token * rows.q_token;
    rows.k = rows.q + (size_t)num_heads * dim;
    return rows;
}

void place(struct cuda_device *d, const struct latent *l, const struct latent_rows &rows, bool is_whole)
{
    const struct latent_scratch *s = d->latent_scratch;
    const size_t first = (size_t)rows.first_token;
    place_args a = {};
    if (rows.num_tokens == 0) return;
    a.to = rows;
    a.q = s->q + first * l->num_heads * (l->plain_dim + l->rotary_dim);
    a.kv = s->kv + first * (l->rank + l->rotary_dim);
    a.kv_norm = l->kv_norm;
    a.num_heads = l->num_heads;
    a.plain_dim = l->plain_dim;
    a.rotary_dim = l->rotary_dim;
    a.rank = l->rank;
    a.eps = l->norm_eps;
    a.is_whole = is_whole;
    launch_dependent(d, place_kernel, dim3((unsigned)rows.num_tokens), dim3(THREADS), 0, a);
}

void absorb_queries(struct cuda_device *d, const struct latent *l, const struct latent_rows &rows)
{
    heads_args a = {};
    if (rows.num_tokens == 0) return;
    a.out = rows.q + l->rotary_dim;
    a.out_token = rows.q_token;
    a.out_head = rows.q_head;
    a.x_head = l->plain_dim + l->rotary_dim;
    a.x_token = l->num_heads * a.x_head;
    a.x = d->latent_scratch->q + rows.first_token * a.x_token;
    a.weight = l->absorb;
    a.num_tokens = rows.num_tokens;
    a.n = l->rank;
    a.k = l->plain_dim;
    multiply_heads(d, a, l->num_heads);
}

} // namespace

void cuda_latent_qkv(struct device *device, const struct batch *b, void *qkv, const void *x,
                     const struct latent *l)
{
    struct cuda_device *d = cuda_of(device);
    const struct latent_scratch *s = d->latent_scratch;
    const struct latent_rows rows = rows_of(d, b, qkv, l->num_heads, l->rotary_dim + l->rank);
    if (l->q_rank > 0) {
        cuda_linear(device, b, ROWS_TOKENS, s->low, x, l->q_a);
        launch_dependent(d, norm_low_kernel, dim3((unsigned)b->num_tokens), dim3(THREADS), 0, s->low,
                         (const float *)l->q_norm, l->norm_eps, l->q_rank);
    }
    cuda_linear(device, b, ROWS_TOKENS, s->q, l->q_rank > 0 ? s->low : x, l->q);
    cuda_linear(device, b, ROWS_TOKENS, s->kv, x, l->kv_a);
    place(d, l, cuda_latent_prompt_rows(d, b), true);
    place(d, l, rows, false);
    absorb_queries(d, l, rows);
}

void cuda_latent_values(struct device *device, const struct batch *b, void *out, const void *x,
                        const struct latent *l)
{
    struct cuda_device *d = cuda_of(device);
    const int32_t prompts = cuda_latent_prompt_rows(d, b).num_tokens;
    heads_args expand = {};
    if (prompts > 0) cuda_latent_prompt_values(d, b, (__nv_bfloat16 *)out, l);
    if (prompts == b->num_tokens) return;
    expand.out_token = (size_t)l->num_heads * l->value_dim;
    expand.out_head = l->value_dim;
    expand.out = (__nv_bfloat16 *)out + prompts * expand.out_token;
    expand.x_head = l->rotary_dim + l->rank;
    expand.x_token = l->num_heads * expand.x_head;
    expand.x = (const __nv_bfloat16 *)x + prompts * expand.x_token;
    expand.weight = l->expand;
    expand.num_tokens = b->num_tokens - prompts;
    expand.n = l->value_dim;
    expand.k = l->rank;
    multiply_heads(d, expand, l->num_heads);
}

/* ---- between them ---- */

namespace
{

struct rotate_args {
    struct latent_rows rows;
    __nv_bfloat16 *pool; /* of the layer */
    const float2 *cos_sin;
    const int32_t *positions, *slot_mapping; /* of all tokens */
    size_t block_elements;
    int32_t num_heads, head_dim, rotary_dim; /* head_dim: of K */
    enum rope_style style;
};

/* A CTA a token: pairs of q's heads and of K are rotated, and K goes to the pool. */
__global__ void __launch_bounds__(THREADS) rotate_kernel(rotate_args a)
{
    const struct latent_rows &r = a.rows;
    const int32_t half = a.rotary_dim / 2, token = r.first_token + (int32_t)blockIdx.x,
                  slot = a.slot_mapping[token];
    __nv_bfloat16 *q = r.q + blockIdx.x * r.q_token + r.rotary_at, *k = r.k + blockIdx.x * r.k_token;
    const float2 *cos_sin = a.cos_sin + (size_t)a.positions[token] * half;
    dependents_launch();
    dependency_wait();
    for (int32_t i = threadIdx.x; i < (a.num_heads + 1) * half; i += THREADS) {
        __nv_bfloat16 *head = i / half < a.num_heads ? q + (size_t)(i / half) * r.q_head : k;
        int32_t pair = i % half, low = a.style == ROPE_HALVES ? pair : 2 * pair,
                high = a.style == ROPE_HALVES ? pair + half : 2 * pair + 1;
        float x = (float)head[low], y = (float)head[high];
        float2 c = cos_sin[pair];
        head[low] = __float2bfloat16_rn(x * c.x - y * c.y);
        head[high] = __float2bfloat16_rn(y * c.x + x * c.y);
    }
    __syncthreads();
    __nv_bfloat16 *to =
        a.pool + slot / BLOCK_SIZE * a.block_elements + (size_t)(slot % BLOCK_SIZE) * a.head_dim;
    for (int32_t i = threadIdx.x; i < a.head_dim / 8; i += THREADS) ((uint4 *)to)[i] = ((const uint4 *)k)[i];
}

} // namespace

void cuda_latent_rotate(struct cuda_device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                        int32_t layer, const struct rope_args *args)
{
    rotate_args a = {};
    assert_always(args->num_kv_heads == 1 && !args->q_norm && !args->k_norm);
    a.pool = pool->data + layer * pool->layer_elements;
    a.cos_sin = (const float2 *)args->cos_sin;
    a.positions = b->positions;
    a.slot_mapping = b->kv_groups[args->kv_group].slot_mapping;
    a.block_elements = pool->block_elements;
    a.num_heads = args->num_heads;
    a.head_dim = args->head_dim;
    a.rotary_dim = args->rotary_dim;
    a.style = args->style;
    for (const struct latent_rows &rows :
         {cuda_latent_prompt_rows(d, b), rows_of(d, b, qkv, args->num_heads, args->head_dim)}) {
        a.rows = rows;
        if (rows.num_tokens > 0)
            launch_dependent(d, rotate_kernel, dim3((unsigned)rows.num_tokens), dim3(THREADS), 0, a);
    }
}
