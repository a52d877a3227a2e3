/* latent_prompts.cu - latent attention of prompts by K and V of all heads, made of the latents that are kept.
 *
 * Over latents a query and a key of a head are Dr + 2 r products and sums; of what they stand for Dn + Dr + Dv. Of DeepSeek V2's and GLM's sizes that is
 * a half to a third, and the kernels for heads of 64, 128 and 256 do it. So what the prompts of a step see of a layer is expanded first, some
 * keys at a time, and laid out as a pool of such heads (kv_widen.cu does the like of e4m3):
 *
 *   pages | gather: c | kv_b | pack: K = [k_b c | k_r | 0], V = [v_b c | 0] of each head
 *
 * Sizes are rounded up to one that kernels have: zeros change no sum. A key's K and V are of its latent alone, so a row's bits do not depend on
 * which chunk of its prompt has expanded them; decoding, which reads each key for one row, stays over latents (latent.cu). */
#include "kernels/cuda/attention_prefill.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/latent.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear.cuh"

namespace
{

enum {
    THREADS = 128,
    KEYS_AT_A_TIME = 2048, /* what is expanded of them stays in the L2 until it is packed */
    PART_OF_GPU = 16       /* of its memory, at most, for all that prompts see of a layer */
};

/* A head of K or V as it is packed; 0: there is no kernel for such. */
int32_t packed_dim(const struct attention_args *a)
{
    const int32_t dim = std::max(a->latent_k_dim, a->latent_v_dim);
    return a->latent_k_dim == 0 || dim > 256 ? 0 : dim <= 64 ? 64 : dim <= 128 ? 128 : 256;
}

/* All that attention may be asked for, and its kernels for prompts have. */
bool is_plain(const struct attention_args *a)
{
    return a->sliding_window == 0 && a->chunk == 0 && a->temperature_floor == 0 && !a->window_of_both_sides;
}

int32_t keys_at_a_time(const struct cuda_device *d)
{
    return std::max(std::min(d->limits.num_tokens, (int32_t)KEYS_AT_A_TIME) / BLOCK_SIZE * BLOCK_SIZE,
                    (int32_t)BLOCK_SIZE);
}

template <typename T> bool allocate(struct cuda_device *d, T **out, size_t count)
{
    return (*out = (T *)cuda_alloc(&d->base, count * sizeof(T), "activations")) != NULL;
}

} // namespace

void cuda_latent_plan(struct cuda_device *d, const struct attention_args *layers, int32_t num_layers)
{
    struct attention_args a = d->attention;
    const int32_t dim = packed_dim(&a);
    bool fits = dim > 0 && !d->limits.has_masks;
    for (int32_t i = 0; i < num_layers; i++)
        fits = fits && is_plain(&layers[i]) && packed_dim(&layers[i]) == dim &&
               layers[i].num_heads == a.num_heads;
    const uint64_t bytes = (uint64_t)cuda_kv_widened_keys(d) * (uint64_t)a.num_heads * (uint64_t)dim * 4;
    if (!fits || bytes > d->base.gpu_bytes / PART_OF_GPU) return;
    d->expands_latents = true;
    a.num_kv_heads = a.num_heads;
    a.head_dim = dim;
    d->prompt_attention = a;
}

bool cuda_latent_prompts_reserve(struct cuda_device *d, const struct latent *l)
{
    struct latent_scratch *s = d->latent_scratch;
    const size_t tokens = (size_t)d->limits.num_tokens, heads = (size_t)l->num_heads,
                 keys = (size_t)keys_at_a_time(d);
    if (!d->expands_latents) return true;
    return allocate(d, &s->prompt_q, tokens * heads * (size_t)d->prompt_attention.head_dim) &&
           allocate(d, &s->prompt_k, tokens * (size_t)(l->rotary_dim + l->rank)) &&
           allocate(d, &s->latents, keys * (size_t)l->rank) &&
           allocate(d, &s->expanded, keys * heads * (size_t)(l->plain_dim + l->value_dim));
}

/* ---- the weight ---- */

namespace
{

/* absorb and expand (struct latent) to kv_b [Hq][Dn + Dv][r]: a CTA a row. */
__global__ void __launch_bounds__(THREADS)
    join_kernel(__nv_bfloat16 *kv_b, const __nv_bfloat16 *absorb, const __nv_bfloat16 *expand,
                int32_t plain_dim, int32_t value_dim, int32_t rank)
{
    const int32_t row = blockIdx.x % (plain_dim + value_dim);
    const size_t head = blockIdx.x / (plain_dim + value_dim);
    __nv_bfloat16 *to = kv_b + (size_t)blockIdx.x * rank;
    for (int32_t i = threadIdx.x; i < rank; i += THREADS)
        to[i] = row < plain_dim ? absorb[(head * rank + i) * plain_dim + row]
                                : expand[(head * value_dim + row - plain_dim) * rank + i];
}

/* kv_b of absorb and expand, on the host, whence all weights come. */
bool join(struct cuda_device *d, const struct latent *l, std::vector<uint16_t> *bits)
{
    const int32_t rows = l->num_heads * (l->plain_dim + l->value_dim);
    __nv_bfloat16 *joined = NULL;
    bits->resize((size_t)rows * (size_t)l->rank);
    if (!CUDA_CHECK(d, cudaMalloc((void **)&joined, bits->size() * 2))) return false;
    join_kernel<<<(unsigned)rows, THREADS, 0, d->stream>>>(joined, l->absorb, l->expand, l->plain_dim,
                                                           l->value_dim, l->rank);
    bool ok = CUDA_CHECK(d, cudaStreamSynchronize(d->stream)) &&
              cuda_download(&d->base, bits->data(), joined, bits->size() * 2) == STATUS_OK;
    cudaFree(joined);
    return ok;
}

} // namespace

bool cuda_latent_prompts_take(struct cuda_device *d, struct latent *l, const struct latent_desc *desc)
{
    const struct weight_view *kv_b = &desc->kv_b;
    std::vector<uint16_t> bits;
    struct error err = {};
    struct linear_desc product = {};
    if (!d->expands_latents) return true;
    product.num_parts = 1;
    product.parts[0] = *kv_b;
    if (!kv_b->data || kv_b->dtype != DTYPE_BF16 || weight_view_has_codes(kv_b)) {
        if (!join(d, l, &bits)) return false;
        product.parts[0] =
            weight_view_plain(bits.data(), DTYPE_BF16, l->num_heads * (l->plain_dim + l->value_dim), l->rank);
    }
    return cuda_linear_create(&d->base, &product, &l->kv_b, &err) == STATUS_OK;
}

struct latent_rows cuda_latent_prompt_rows(const struct cuda_device *d, const struct batch *b)
{
    const struct latent_scratch *s = d->latent_scratch;
    const struct attention_args *heads = &d->prompt_attention;
    struct latent_rows rows = {};
    if (!d->expands_latents) return rows;
    rows.q = s->prompt_q;
    rows.k = s->prompt_k;
    rows.q_token = (size_t)heads->num_heads * (size_t)heads->head_dim;
    rows.k_token = (size_t)d->attention.head_dim;
    rows.q_head = heads->head_dim;
    rows.rotary_at = s->plain_dim;
    rows.num_tokens = b->num_prefill_tokens;
    return rows;
}

/* ---- what prompts see ---- */

namespace
{

struct expand_args {
    __nv_bfloat16 *latents, *out; /* out: pages of K and V, from the first of them on */
    const __nv_bfloat16 *pool, *expanded;
    const int32_t *table; /* the pages' */
    size_t block_elements;
    int32_t num_heads, plain_dim, rotary_dim, value_dim, rank, dim; /* dim: of a head in out */
};

/* A CTA a page: its latents, one after another. */
__global__ void __launch_bounds__(THREADS) gather_kernel(expand_args a)
{
    dependents_launch();
    dependency_wait();
    const int32_t vectors = a.rank / 8, row = a.rotary_dim + a.rank;
    const __nv_bfloat16 *page = a.pool + a.table[blockIdx.x] * a.block_elements;
    __nv_bfloat16 *to = a.latents + (size_t)blockIdx.x * BLOCK_SIZE * a.rank;
    for (int32_t i = threadIdx.x; i < BLOCK_SIZE * vectors; i += THREADS)
        *(uint4 *)(to + (size_t)i * 8) =
            *(const uint4 *)(page + (size_t)(i / vectors) * row + a.rotary_dim + i % vectors * 8);
}

/* Grid: pages, heads. */
__global__ void __launch_bounds__(THREADS) pack_kernel(expand_args a)
{
    dependents_launch();
    dependency_wait();
    const int32_t vectors = a.dim / 8, head = blockIdx.y, head_row = a.plain_dim + a.value_dim;
    const size_t row = (size_t)a.num_heads * head_row;
    const __nv_bfloat16 *rotated = a.pool + a.table[blockIdx.x] * a.block_elements,
                        *made = a.expanded + (size_t)blockIdx.x * BLOCK_SIZE * row + (size_t)head * head_row;
    const size_t part = (size_t)BLOCK_SIZE * a.dim;
    __nv_bfloat16 *keys = a.out + ((size_t)blockIdx.x * 2 * a.num_heads + head) * part,
                  *values = keys + a.num_heads * part;
    for (int32_t i = threadIdx.x; i < BLOCK_SIZE * vectors; i += THREADS) {
        const int32_t token = i / vectors, column = i % vectors * 8, turned = column - a.plain_dim;
        const __nv_bfloat16 *from = made + token * row;
        uint4 k = make_uint4(0, 0, 0, 0), v = k;
        if (turned < 0)
            k = *(const uint4 *)(from + column);
        else if (turned < a.rotary_dim)
            k = *(const uint4 *)(rotated + (size_t)token * (a.rotary_dim + a.rank) + turned);
        if (column < a.value_dim) v = *(const uint4 *)(from + a.plain_dim + column);
        *(uint4 *)(keys + (size_t)token * a.dim + column) = k;
        *(uint4 *)(values + (size_t)token * a.dim + column) = v;
    }
}

/* All that the step's prompts see of a layer, into pool->widened: entry i of the group's tables is its block i - prompts_begin. */
bool expand(struct cuda_device *d, const struct batch *b, const struct kv_pool *pool, int32_t layer,
            const struct attention_args *args)
{
    const struct batch_kv_group *group = &b->kv_groups[args->kv_group];
    const struct latent *l = args->latent;
    const int32_t num_pages = group->prompts_end - group->prompts_begin,
                  at_a_time = keys_at_a_time(d) / BLOCK_SIZE;
    if (num_pages > pool->widened->shape.num_blocks)
        return cuda_check(d, cudaErrorInvalidValue, "more keys for a step's prompts than prefill_keys_max");
    expand_args a = {};
    a.latents = d->latent_scratch->latents;
    a.expanded = d->latent_scratch->expanded;
    a.pool = pool->data + layer * pool->layer_elements;
    a.block_elements = pool->block_elements;
    a.num_heads = l->num_heads;
    a.plain_dim = l->plain_dim;
    a.rotary_dim = l->rotary_dim;
    a.value_dim = l->value_dim;
    a.rank = l->rank;
    a.dim = d->prompt_attention.head_dim;
    for (int32_t first = 0; first < num_pages; first += at_a_time) {
        const int32_t num = std::min(num_pages - first, at_a_time);
        const int32_t rows = cuda_linear_padded(l->kv_b, num * BLOCK_SIZE, keys_at_a_time(d));
        a.table = b->prefill_tables + group->prompts_begin + first;
        a.out = pool->widened->data + (size_t)first * pool->widened->block_elements;
        if (!launch_dependent(d, gather_kernel, dim3((unsigned)num), dim3(THREADS), 0, a)) return false;
        cuda_linear_rows(d, rows, d->latent_scratch->expanded, a.latents, l->kv_b);
        if (!launch_dependent(d, pack_kernel, dim3((unsigned)num, (unsigned)l->num_heads), dim3(THREADS), 0,
                              a))
            return false;
    }
    return true;
}

/* Grid: tokens. The first value_dim of each head's dim columns. */
__global__ void __launch_bounds__(THREADS) values_kernel(__nv_bfloat16 *out, const __nv_bfloat16 *made,
                                                         int32_t num_heads, int32_t value_dim, int32_t dim)
{
    dependents_launch();
    dependency_wait();
    const int32_t vectors = value_dim / 8;
    const __nv_bfloat16 *from = made + (size_t)blockIdx.x * num_heads * dim;
    __nv_bfloat16 *to = out + (size_t)blockIdx.x * num_heads * value_dim;
    for (int32_t i = threadIdx.x; i < num_heads * vectors; i += THREADS)
        *(uint4 *)(to + (size_t)i * 8) =
            *(const uint4 *)(from + (size_t)(i / vectors) * dim + i % vectors * 8);
}

} // namespace

/* A tile's queries of a head are read by none but it, and by all of its pieces before the last of them stores: so results go where queries
 * were. */
void cuda_latent_prompts(struct cuda_device *d, const struct batch *b, const struct kv_pool *pool,
                         int32_t layer, const struct attention_args *args)
{
    struct attention_args heads = *args;
    __nv_bfloat16 *q = d->latent_scratch->prompt_q;
    if (!expand(d, b, pool, layer, args)) return;
    heads.num_kv_heads = d->prompt_attention.num_kv_heads;
    heads.head_dim = d->prompt_attention.head_dim;
    heads.q_alone = true;
    cuda_attention_prefill_widened(d, b, q, q, pool, &heads);
}

void cuda_latent_prompt_values(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                               const struct latent *l)
{
    launch_dependent(d, values_kernel, dim3((unsigned)b->num_prefill_tokens), dim3(THREADS), 0, out,
                     (const __nv_bfloat16 *)d->latent_scratch->prompt_q, l->num_heads, l->value_dim,
                     d->prompt_attention.head_dim);
}
