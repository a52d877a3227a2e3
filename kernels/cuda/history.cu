/* history.cu - histories on their way to the device, where sampling reads them and adds what it draws. */
#include <string.h>

#include <algorithm>

#include "kernels/cuda/history.cuh"
#include "kernels/cuda/pinned.cuh"

namespace
{

enum { STAGING_WORDS_MIN = 1 << 19 };

/* Room for so many words until the stream has passed what is queued next. Waits only where more than a half has been asked
 * for since the stream was last here. */
int32_t *staging_take(struct cuda_device *d, struct staging *s, size_t words)
{
    if (s->taken + words > s->half_words) {
        CUDA_CHECK(d, cudaEventRecord(s->copied[s->current], d->stream));
        s->current ^= 1;
        s->taken = 0;
        CUDA_CHECK(d, cudaEventSynchronize(s->copied[s->current]));
    }
    int32_t *at = s->halves[s->current] + s->taken;
    s->taken += words;
    return at;
}

} // namespace

int cuda_history_prepare(struct cuda_device *d, struct error *err)
{
    struct history *h = new struct history();
    struct device *base = &d->base;
    size_t slots = (size_t)d->limits.num_batch_slots, history_words = (size_t)d->limits.max_model_len;
    d->history = h;
    h->tokens = (int32_t *)base->ops->alloc(base, slots * history_words * 4, "sampling");
    h->num_prompts = (int32_t *)base->ops->alloc(base, slots * 4, "sampling");
    if (!h->tokens || !h->num_prompts)
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for %zu histories of %zu tokens", slots,
                         history_words);
    struct staging *t = &h->staging;
    t->half_words = std::max(history_words, (size_t)STAGING_WORDS_MIN) + 1;
    for (int i = 0; i < 2; i++)
        if (!(t->halves[i] = (int32_t *)cuda_pinned_alloc(d, t->half_words * 4)) ||
            !CUDA_CHECK(d, cudaEventCreateWithFlags(&t->copied[i], cudaEventDisableTiming)))
            return error_set(err, STATUS_NO_MEMORY, "no pinned memory for histories of %zu tokens",
                             t->half_words);
    return STATUS_OK;
}

void cuda_history_forget(struct cuda_device *d)
{
    delete d->history;
    d->history = NULL;
}

/* In the stream's order: steps before this one may still add to the slot. */
int cuda_history_set(struct device *device, int32_t batch_slot, const int32_t *token_ids, int32_t num_prompt,
                     int32_t num_tokens)
{
    struct cuda_device *d = cuda_enter(device);
    struct history *h = d->history;
    assert_always(batch_slot >= 0 && batch_slot < d->limits.num_batch_slots);
    assert_always(num_prompt <= num_tokens && num_tokens <= d->limits.max_model_len);
    int32_t *to = h->tokens + (size_t)batch_slot * (size_t)d->limits.max_model_len;
    int32_t *from = staging_take(d, &h->staging, (size_t)num_tokens + 1);
    if (num_tokens > 0) memcpy(from, token_ids, (size_t)num_tokens * 4);
    from[num_tokens] = num_prompt;
    bool ok =
        CUDA_CHECK(d, cudaMemcpyAsync(to, from, (size_t)num_tokens * 4, cudaMemcpyHostToDevice, d->stream)) &&
        CUDA_CHECK(d, cudaMemcpyAsync(h->num_prompts + batch_slot, from + num_tokens, 4,
                                      cudaMemcpyHostToDevice, d->stream));
    return ok ? STATUS_OK : STATUS_DEVICE;
}
