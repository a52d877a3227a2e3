/* request_slots.c - one region, seven arrays in it: slots, payloads, masks, rows, tokens, predicted tokens, log probabilities.
 *
 *   | slot 0 | slot 1 | ... | payloads | masks | rows | tokens of 0 | tokens of 1 | ... | predicted | logprobs of 0 | ... |
 *
 * Each slot's payload, mask, row, both kinds of tokens and log probabilities begin on a page, so that a release can give whole pages
 * back. A release puts all that was touched back to zero: short ranges by writing zeros (the pages stay, the
 * next request finds them warm), long ones and those of slots that never ran by madvise. */
#include "link/request_slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bit_set.h"
#include "base/check.h"

enum { PAGE_BYTES = 4096, KEEP_BYTES_MAX = 16 * PAGE_BYTES, ROW_STRIDE = ROW_FLOATS_MAX * sizeof(float) };

struct layout {
    uint64_t slot_stride, payload_stride, mask_stride, tokens_stride, logprobs_stride; /* bytes */
    uint64_t payloads_offset, masks_offset, rows_offset, tokens_offset, predicted_offset, logprobs_offset,
        bytes;
    int32_t mask_words, num_masks; /* of a mask; of a slot */
};

struct request_slots {
    int32_t num_slots;
    struct layout layout;
    char *region;
    int32_t num_free;
    bool *acquired;     /* [num_slots] */
    int32_t free_ids[]; /* a stack: the slot used last is used next */
};

/* Appends num_slots strides at *end and moves it. */
static bool layout_add(uint64_t *end, uint64_t num_slots, uint64_t stride, uint64_t *offset)
{
    uint64_t bytes;
    *offset = *end;
    return checked_mul(stride, num_slots, &bytes) && checked_add(*end, align_up(bytes, PAGE_BYTES), end) &&
           *end <= INT64_MAX;
}

static bool layout_plan(struct layout *l, const struct request_slots_sizes *sizes)
{
    uint64_t count = (uint64_t)sizes->num_slots, slots_offset;
    int32_t max_model_len = sizes->max_model_len;
    l->slot_stride = align_up(sizeof(struct request_slot), 64);
    l->payload_stride = align_up(sizeof(struct request_payload), PAGE_BYTES);
    l->mask_words = (int32_t)bit_set_words((size_t)sizes->vocab_size);
    l->num_masks = 1 + sizes->num_guess_tokens;
    l->mask_stride = align_up((size_t)l->num_masks * (size_t)l->mask_words * sizeof(uint64_t), PAGE_BYTES);
    l->tokens_stride = align_up((size_t)max_model_len * sizeof(int32_t), PAGE_BYTES);
    l->logprobs_stride = align_up((size_t)max_model_len * sizeof(struct token_logprobs), PAGE_BYTES);
    l->bytes = 0;
    return layout_add(&l->bytes, count, l->slot_stride, &slots_offset) &&
           layout_add(&l->bytes, count, l->payload_stride, &l->payloads_offset) &&
           layout_add(&l->bytes, count, l->mask_stride, &l->masks_offset) &&
           layout_add(&l->bytes, count, ROW_STRIDE, &l->rows_offset) &&
           layout_add(&l->bytes, count, l->tokens_stride, &l->tokens_offset) &&
           layout_add(&l->bytes, count, l->tokens_stride, &l->predicted_offset) &&
           layout_add(&l->bytes, count, l->logprobs_stride, &l->logprobs_offset);
}

uint64_t request_slots_bytes(const struct request_slots_sizes *sizes)
{
    struct layout layout;
    assert_always(sizes->num_slots >= 1 && sizes->max_model_len >= 1 && sizes->vocab_size >= 0);
    assert_always(sizes->num_guess_tokens >= 0 && sizes->num_guess_tokens <= GUESS_TOKENS_MAX);
    return layout_plan(&layout, sizes) ? layout.bytes : 0;
}

int request_slots_create(void *region, const struct request_slots_sizes *sizes, struct request_slots **out,
                         struct error *err)
{
    int32_t num_slots = sizes->num_slots;
    struct request_slots *s = calloc(1, sizeof(*s) + (size_t)num_slots * (sizeof(int32_t) + sizeof(bool)));
    if (!s) return error_set(err, STATUS_NO_MEMORY, "no memory for %d request slots", num_slots);
    s->num_slots = s->num_free = num_slots;
    s->region = region;
    s->acquired = (bool *)(s->free_ids + num_slots);
    assert_always(layout_plan(&s->layout, sizes));
    for (int32_t i = 0; i < num_slots; i++) s->free_ids[i] = num_slots - 1 - i;
    *out = s;
    return 0;
}

void request_slots_destroy(struct request_slots *s)
{
    free(s);
}

int32_t request_slots_count(const struct request_slots *s)
{
    return s->num_slots;
}

int32_t request_slots_num_free(const struct request_slots *s)
{
    return s->num_free;
}

static void *part_of(struct request_slots *s, uint64_t offset, uint64_t stride, int32_t slot_idx)
{
    assert_always(slot_idx >= 0 && slot_idx < s->num_slots);
    return s->region + offset + (uint64_t)slot_idx * stride;
}

struct request_slot *request_slots_get(struct request_slots *s, int32_t slot_idx)
{
    return part_of(s, 0, s->layout.slot_stride, slot_idx);
}

struct request_payload *request_slots_payload(struct request_slots *s, int32_t slot_idx)
{
    return part_of(s, s->layout.payloads_offset, s->layout.payload_stride, slot_idx);
}

static uint64_t *masks_of(struct request_slots *s, int32_t slot_idx)
{
    return part_of(s, s->layout.masks_offset, s->layout.mask_stride, slot_idx);
}

uint64_t *request_slots_mask(struct request_slots *s, int32_t slot_idx, int32_t k)
{
    assert_debug(k >= 0);
    return masks_of(s, slot_idx) + (int64_t)(k % s->layout.num_masks) * s->layout.mask_words;
}

float *request_slots_row(struct request_slots *s, int32_t slot_idx)
{
    return part_of(s, s->layout.rows_offset, ROW_STRIDE, slot_idx);
}

int32_t request_slots_mask_words(const struct request_slots *s)
{
    return s->layout.mask_words;
}

int32_t request_slots_num_guess_tokens(const struct request_slots *s)
{
    return s->layout.num_masks - 1;
}

int32_t *request_slots_tokens(struct request_slots *s, int32_t slot_idx)
{
    return part_of(s, s->layout.tokens_offset, s->layout.tokens_stride, slot_idx);
}

int32_t *request_slots_predicted(struct request_slots *s, int32_t slot_idx)
{
    return part_of(s, s->layout.predicted_offset, s->layout.tokens_stride, slot_idx);
}

struct token_logprobs *request_slots_logprobs(struct request_slots *s, int32_t slot_idx)
{
    return part_of(s, s->layout.logprobs_offset, s->layout.logprobs_stride, slot_idx);
}

void request_slot_finish(struct request_slot *slot, enum finish_reason reason, const char *error_text)
{
    if (error_text) snprintf(slot->error_text, sizeof(slot->error_text), "%s", error_text);
    atomic_store_explicit(&slot->finish_reason, reason, memory_order_release);
}

#ifdef FLASHD_DEBUG
static bool is_zero(const void *data, size_t bytes)
{
    const char *p = data;
    for (size_t i = 0; i < bytes; i++)
        if (p[i]) return false;
    return true;
}

/* The whole slot, and as much of its arrays as can be walked on every request. */
static void assert_initial(struct request_slots *s, int32_t slot_idx)
{
    const struct layout *l = &s->layout;
    uint64_t most = KEEP_BYTES_MAX;
    assert_always(is_zero(request_slots_get(s, slot_idx), sizeof(struct request_slot)));
    assert_always(is_zero(masks_of(s, slot_idx), min_of(l->mask_stride, most)));
    assert_always(is_zero(request_slots_row(s, slot_idx), min_of((uint64_t)ROW_STRIDE, most)));
    assert_always(is_zero(request_slots_tokens(s, slot_idx), min_of(l->tokens_stride, most)));
    assert_always(is_zero(request_slots_predicted(s, slot_idx), min_of(l->tokens_stride, most)));
    assert_always(is_zero(request_slots_logprobs(s, slot_idx), min_of(l->logprobs_stride, most)));
}
#else
static void assert_initial(struct request_slots *s, int32_t slot_idx)
{
    (void)s;
    (void)slot_idx;
}
#endif

int request_slots_acquire(struct request_slots *s, int32_t count, int32_t *slot_ids)
{
    if (count > s->num_free) return STATUS_NO_SLOT;
    for (int32_t i = 0; i < count; i++) {
        int32_t slot_idx = s->free_ids[--s->num_free];
        assert_initial(s, slot_idx);
        assert_always(!s->acquired[slot_idx]);
        s->acquired[slot_idx] = true;
        slot_ids[i] = slot_idx;
    }
    return 0;
}

static void clear_range(void *data, uint64_t used_bytes, uint64_t stride)
{
    used_bytes = min_of(used_bytes, stride);
    if (used_bytes <= KEEP_BYTES_MAX) {
        memset(data, 0, used_bytes);
        return;
    }
    int status = madvise(data, stride, MADV_REMOVE);
    assert_always(status == 0);
}

void request_slots_release(struct request_slots *s, int32_t slot_idx)
{
    const struct layout *l = &s->layout;
    struct request_slot *slot = request_slots_get(s, slot_idx);
    assert_always(s->acquired[slot_idx]);
    bool ran = atomic_load_explicit(&slot->finish_reason, memory_order_acquire) != FINISH_NONE;
    /* An engine leaves drafts, and one that died one entry more than it has published. */
    uint64_t used = (uint64_t)slot->input.num_prompt_tokens + 1 +
                    (uint64_t)atomic_load_explicit(&slot->num_published, memory_order_relaxed);
    uint64_t token_bytes = ran ? (used + DRAFT_TOKENS_MAX) * sizeof(int32_t) : l->tokens_stride;
    bool logprobs = slot->input.sampling.num_logprobs >= 0 || slot->input.prompt_logprobs;
    clear_range(request_slots_tokens(s, slot_idx), token_bytes, l->tokens_stride);
    if (!ran || logprobs)
        clear_range(request_slots_logprobs(s, slot_idx),
                    ran ? used * sizeof(struct token_logprobs) : l->logprobs_stride, l->logprobs_stride);
    clear_range(request_slots_payload(s, slot_idx),
                (uint64_t)slot->input.num_logit_bias * sizeof(struct logit_bias), l->payload_stride);
    clear_range(request_slots_predicted(s, slot_idx), (uint64_t)slot->input.num_predicted * sizeof(int32_t),
                l->tokens_stride);
    memset(request_slots_payload(s, slot_idx)->logprob_ids, 0,
           (size_t)slot->input.num_logprob_ids * sizeof(int32_t));
    memset(request_slots_payload(s, slot_idx)->row_logits, 0,
           (size_t)slot->input.num_row_logits * sizeof(int32_t));
    clear_range(request_slots_row(s, slot_idx), (uint64_t)slot->num_row_floats * sizeof(float), ROW_STRIDE);
    if (slot->input.constrained) clear_range(masks_of(s, slot_idx), l->mask_stride, l->mask_stride);
    memset(slot, 0, sizeof(*slot));
    s->acquired[slot_idx] = false;
    s->free_ids[s->num_free++] = slot_idx;
}
