/* sample.cu - from logits to tokens on the device, with the semantics of kernels/cpu/sample_row.h.
 *
 * Three launches, whatever the rows ask for, since they stand in recorded graphs:
 *
 *   scan:  many CTAs a row. Its maximum, the sum of its exponentials, and, where the row wants them, bias, bans,
 *          penalties and masks (into a copy) and the highest logit of each tile (sample_scan.cuh)
 *   weigh: many CTAs a row. Weights of its tiles, if it is drawn from without top_k (sample_scan.cuh)
 *   draw:  one CTA a row. Where it is cut, the draw, the report (sample_draw.cuh)
 *
 * Sums of weights are integers: a weight in [0, 1] counts as w * 2^40. Integer addition is associative, so a draw has the
 * same bits whoever adds first. A token of less than 2^-41 of the best one's weight cannot be drawn.
 *
 * An example: 8 ids, tiles of 2, top_k 3, top_p 0.8, temperature 1; weights below in hundredths instead of 2^-40.
 *
 *   logits   2.0  0.0 | 1.0  3.0 | 2.9 -5.0 | 1.5  2.0
 *   scan     peaks 2.0 | 3.0 | 2.9 | 2.0, best 3.0
 *   draw     the third highest peak is 2.0: no token below it is among the best three
 *            shortlist, sorted: (3.0, id 3) (2.9, id 4) (2.0, id 0) (2.0, id 7); the third is the cut of top_k
 *            weights from there up, by tiles: 37 | 100 | 90 | 0, together 227; top_p wants 181
 *            running totals of the shortlist: 100, 190: the second, (2.9, id 4), is the cut of top_p
 *            weights from there up, by tiles: 0 | 100 | 90 | 0, together 190
 *            u = 0.6: target 114, 14 into the third tile, whose first token has 90: id 4 */
#include <algorithm>
#include <vector>

#include "kernels/cuda/history.cuh"
#include "kernels/cuda/sample_draw.cuh"
#include "kernels/cuda/sample_scan.cuh"

struct sampler {
    struct sample_args args; /* what is the same for every step */
};

int cuda_sampler_prepare(struct cuda_device *d, struct error *err)
{
    struct sampler *s = new struct sampler();
    struct sample_args *a = &s->args;
    struct device *base = &d->base;
    size_t rows = (size_t)d->limits.num_logits, v = (size_t)d->vocab_size;
    d->sampler = s;
    if (d->vocab_size > TILES_MAX * TILE_IDS_MAX)
        return error_set(err, STATUS_UNSUPPORTED, "the CUDA device samples from at most %d tokens, not %d",
                         TILES_MAX * TILE_IDS_MAX, d->vocab_size);
    for (a->tile_shift = 7; TILES_MAX << a->tile_shift < d->vocab_size;) a->tile_shift++;
    a->num_tiles = (d->vocab_size + (1 << a->tile_shift) - 1) >> a->tile_shift;
    a->num_chunks = (d->vocab_size + SCAN_CHUNK - 1) / SCAN_CHUNK;
    a->vocab_size = d->vocab_size;
    a->max_model_len = d->limits.max_model_len;
    a->logits = d->logits;
    a->last_tokens = d->last_tokens;
    a->floats = d->floats;
    a->row_floats = d->row_floats;
    size_t tiles = rows * (size_t)a->num_tiles;
    a->adjusted = (float *)base->ops->alloc(base, rows * v * 4, "sampling");
    a->stats =
        (struct chunk_stats *)base->ops->alloc(base, rows * a->num_chunks * sizeof *a->stats, "sampling");
    a->peaks = (uint32_t *)base->ops->alloc(base, tiles * 4, "sampling");
    a->raw_peaks = (uint32_t *)base->ops->alloc(base, tiles * 4, "sampling");
    a->masses = (mass *)base->ops->alloc(base, tiles * sizeof *a->masses, "sampling");
    int status = cuda_history_prepare(d, err);
    if (status) return status;
    a->history = d->history->tokens;
    a->num_prompts = d->history->num_prompts;
    a->mask_words = 2 * (int32_t)bit_set_words((size_t)d->vocab_size);
    a->forbidden = (uint32_t *)base->ops->alloc(base, (size_t)a->mask_words * 4, "sampling");
    a->chunk_forbids = (int32_t *)base->ops->alloc(base, (size_t)a->num_chunks * 4, "sampling");
    if (!a->adjusted || !a->stats || !a->peaks || !a->raw_peaks || !a->masses || !a->forbidden ||
        !a->chunk_forbids)
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for the sampler of %zu rows of %zu",
                         rows, v);
    return STATUS_OK;
}

void cuda_sampler_forget(struct cuda_device *d)
{
    delete d->sampler;
    d->sampler = NULL;
}

/* A fault shows up in the next step_end. */
void cuda_forbid(struct device *device, const uint64_t *ids)
{
    struct cuda_device *d = cuda_enter(device);
    const struct sample_args *a = &d->sampler->args;
    const struct kernel_table *ops = device->ops;
    std::vector<int32_t> chunks((size_t)a->num_chunks);
    bool any = false;
    for (int32_t id = 0; id < d->vocab_size; id++)
        if (bit_set_has(ids, (size_t)id)) any = chunks[(size_t)(id / SCAN_CHUNK)] = true;
    d->forbids = any && !ops->upload(device, (void *)a->forbidden, ids, (size_t)a->mask_words * 4) &&
                 !ops->upload(device, (void *)a->chunk_forbids, chunks.data(), chunks.size() * 4);
}

namespace
{

enum { FINISH_THREADS = 256, FINISH_BLOCKS_MAX = 4096 };

/* bias: [n] or NULL. softcap 0: none. */
__global__ void finish_logits_kernel(float *logits, size_t count, const float *bias, int32_t n, float softcap)
{
    for (size_t i = blockIdx.x * (size_t)FINISH_THREADS + threadIdx.x; i < count;
         i += gridDim.x * (size_t)FINISH_THREADS) {
        float logit = logits[i];
        if (bias) logit += bias[i % (size_t)n];
        logits[i] = softcap > 0 ? softcap * tanhf(logit / softcap) : logit;
    }
}

/* A pass of its own: of models alone that have soft caps or a bias. */
void finish_logits(struct cuda_device *d, float *logits, int32_t num_rows, const struct linear *lm_head)
{
    size_t count = (size_t)num_rows * lm_head->n, blocks = (count + FINISH_THREADS - 1) / FINISH_THREADS;
    dim3 grid((unsigned)std::min(blocks, (size_t)FINISH_BLOCKS_MAX));
    finish_logits_kernel<<<grid, FINISH_THREADS, 0, d->stream>>>(logits, count, lm_head->logit_bias,
                                                                 lm_head->n, lm_head->softcap);
}

} // namespace

void cuda_logits_begin(struct device *device, const struct batch *b, void *out, const void *x,
                       const struct linear *lm_head)
{
    struct cuda_device *d = cuda_of(device);
    if (b->num_logits == 0) return;
    cuda_linear_rows(d, cuda_linear_padded(lm_head, b->num_logits, d->limits.num_logits), out, x, lm_head);
    if (lm_head->softcap > 0 || lm_head->logit_bias) finish_logits(d, (float *)out, b->num_logits, lm_head);
}

float *cuda_logits_memory(struct device *device)
{
    return cuda_of(device)->logits;
}

void cuda_logits_end(struct device *device, const struct batch *b)
{
    if (b->num_logits > 0 && !b->is_constrained) cuda_sampler_launch(cuda_of(device), b, true);
}

void cuda_logits(struct device *device, const struct batch *b, const void *x, const struct linear *lm_head)
{
    cuda_logits_begin(device, b, cuda_of(device)->logits, x, lm_head);
    cuda_logits_end(device, b);
}

void cuda_sampler_launch(struct cuda_device *d, const struct batch *b, bool follows)
{
    unsigned rows = (unsigned)b->num_logits;
    sample_args a = d->sampler->args;
    a.results = b->results;
    a.params = b->sample;
    a.token_ids = b->token_ids;
    a.logit_rows = b->logit_rows;
    a.lists = b->lists;
    a.step_counts = b->counts;
    a.mask_places = b->mask_places;
    a.masks = b->masks;
    a.num_rows = b->num_logits;
    unsigned chunks = rows * (unsigned)a.num_chunks, weigh_ctas = (unsigned)(d->num_sms * WEIGH_CTAS_PER_SM);
    if (follows)
        launch_dependent(d, scan_kernel, dim3(chunks), dim3(SCAN_THREADS), 0, a);
    else
        launch_after_all(d, scan_kernel, dim3(chunks), dim3(SCAN_THREADS), a);
    launch_dependent(d, weigh_kernel, dim3(std::min(chunks, weigh_ctas)), dim3(SCAN_THREADS), 0, a);
    launch_dependent(d, draw_kernel, dim3(rows), dim3(DRAW_THREADS), 0, a);
}
