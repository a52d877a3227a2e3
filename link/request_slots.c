/* request_slots.c - one reservation, three arrays in it: slots, tokens, log probabilities.
 *
 *   | slot 0 | slot 1 | ... | tokens of 0 | tokens of 1 | ... | logprobs of 0 | logprobs of 1 | ... |
 *
 * Each slot's tokens and log probabilities begin on a page, so that a release can give whole pages back. A
 * release puts all that was touched back to zero: short ranges by writing zeros (the pages stay, the next
 * request finds them warm), long ones and those of slots that never ran by madvise. */
#include "link/request_slots.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"

enum { PAGE_BYTES = 4096, KEEP_BYTES_MAX = 16 * PAGE_BYTES };

struct request_slots {
    int32_t num_slots, max_model_len;
    uint64_t slot_stride, tokens_stride, logprobs_stride; /* bytes */
    uint64_t tokens_offset, logprobs_offset, region_bytes;
    char *region;
    int32_t num_free;
    bool *acquired;     /* [num_slots] */
    int32_t free_ids[]; /* a stack: the slot used last is used next */
};

/* Up to the last bias that is there. */
static size_t input_used_bytes(const struct request_slot_input *input)
{
    return offsetof(struct request_slot_input, logit_bias) +
           (size_t)input->num_logit_bias * sizeof(input->logit_bias[0]);
}

void request_slot_input_copy(struct request_slot_input *to, const struct request_slot_input *from)
{
    memcpy(to, from, input_used_bytes(from));
}

/* A slot of zeros becomes a fresh one. */
static void slot_init(struct request_slot *slot)
{
    slot->stop_token_id = -1;
}

static void slot_clear(struct request_slot *slot, bool ran)
{
    memset(slot, 0,
           ran ? offsetof(struct request_slot, input) + input_used_bytes(&slot->input) : sizeof(*slot));
    slot_init(slot);
}

/* False when the region would not fit into 64 bits. */
static bool region_plan(struct request_slots *s)
{
    uint64_t count = (uint64_t)s->num_slots, slots, tokens, logprobs;
    s->slot_stride = align_up(sizeof(struct request_slot), 64);
    s->tokens_stride = align_up((size_t)s->max_model_len * sizeof(int32_t), PAGE_BYTES);
    s->logprobs_stride = align_up((size_t)s->max_model_len * sizeof(struct token_logprobs), PAGE_BYTES);
    if (!checked_mul(s->slot_stride, count, &slots) || !checked_mul(s->tokens_stride, count, &tokens) ||
        !checked_mul(s->logprobs_stride, count, &logprobs))
        return false;
    s->tokens_offset = align_up(slots, PAGE_BYTES);
    return checked_add(s->tokens_offset, tokens, &s->logprobs_offset) &&
           checked_add(s->logprobs_offset, logprobs, &s->region_bytes);
}

int request_slots_create(int32_t num_slots, int32_t max_model_len, struct request_slots **out,
                         struct error *err)
{
    assert_always(num_slots >= 1 && max_model_len >= 1);
    struct request_slots *s = calloc(1, sizeof(*s) + (size_t)num_slots * (sizeof(int32_t) + sizeof(bool)));
    if (!s) return error_set(err, STATUS_NO_MEMORY, "no memory for %d request slots", num_slots);
    s->num_slots = num_slots;
    s->max_model_len = max_model_len;
    s->acquired = (bool *)(s->free_ids + num_slots);
    s->region = MAP_FAILED;
    if (region_plan(s))
        s->region = mmap(NULL, s->region_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (s->region == MAP_FAILED) {
        free(s);
        return error_set(err, STATUS_NO_MEMORY,
                         "cannot reserve address space for %d request slots of %d tokens: %s (fewer with "
                         "--max-num-seqs, --max-queued-requests or --max-model-len)",
                         num_slots, max_model_len, strerror(errno));
    }
    for (int32_t i = 0; i < num_slots; i++) {
        slot_init(request_slots_get(s, i));
        s->free_ids[i] = num_slots - 1 - i;
    }
    s->num_free = num_slots;
    *out = s;
    return 0;
}

void request_slots_destroy(struct request_slots *s)
{
    if (!s) return;
    munmap(s->region, s->region_bytes);
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

struct request_slot *request_slots_get(struct request_slots *s, int32_t slot_idx)
{
    assert_always(slot_idx >= 0 && slot_idx < s->num_slots);
    return (struct request_slot *)(s->region + (uint64_t)slot_idx * s->slot_stride);
}

int32_t *request_slots_tokens(struct request_slots *s, int32_t slot_idx)
{
    assert_always(slot_idx >= 0 && slot_idx < s->num_slots);
    return (int32_t *)(s->region + s->tokens_offset + (uint64_t)slot_idx * s->tokens_stride);
}

struct token_logprobs *request_slots_logprobs(struct request_slots *s, int32_t slot_idx)
{
    assert_always(slot_idx >= 0 && slot_idx < s->num_slots);
    return (struct token_logprobs *)(s->region + s->logprobs_offset +
                                     (uint64_t)slot_idx * s->logprobs_stride);
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
    struct request_slot fresh = {0};
    slot_init(&fresh);
    assert_always(memcmp(request_slots_get(s, slot_idx), &fresh, sizeof(fresh)) == 0);
    assert_always(
        is_zero(request_slots_tokens(s, slot_idx), min_of(s->tokens_stride, (uint64_t)KEEP_BYTES_MAX)));
    assert_always(
        is_zero(request_slots_logprobs(s, slot_idx), min_of(s->logprobs_stride, (uint64_t)KEEP_BYTES_MAX)));
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
    if (used_bytes <= KEEP_BYTES_MAX) {
        memset(data, 0, used_bytes);
        return;
    }
    int status = madvise(data, stride, MADV_DONTNEED);
    assert_always(status == 0);
}

void request_slots_release(struct request_slots *s, int32_t slot_idx)
{
    struct request_slot *slot = request_slots_get(s, slot_idx);
    assert_always(s->acquired[slot_idx]);
    bool ran = atomic_load_explicit(&slot->finish_reason, memory_order_acquire) != FINISH_NONE;
    uint64_t used = (uint64_t)slot->input.num_prompt_tokens +
                    (uint64_t)atomic_load_explicit(&slot->num_published, memory_order_relaxed);
    bool logprobs = slot->input.num_logprobs >= 0 || slot->input.prompt_logprobs;
    clear_range(request_slots_tokens(s, slot_idx), ran ? used * sizeof(int32_t) : s->tokens_stride,
                s->tokens_stride);
    if (!ran || logprobs)
        clear_range(request_slots_logprobs(s, slot_idx),
                    ran ? used * sizeof(struct token_logprobs) : s->logprobs_stride, s->logprobs_stride);
    slot_clear(slot, ran);
    s->acquired[slot_idx] = false;
    s->free_ids[s->num_free++] = slot_idx;
}
