/* region.h - how the shared mapping begins, and one side's view of it; the link's own files only. */
#ifndef LINK_REGION_H
#define LINK_REGION_H

#include <stdatomic.h>

#include "base/check.h"
#include "base/ring.h"
#include "link/link.h"
#include "link/wake_word.h"

enum { ERROR_TEXT_BYTES = 512 };

/* An order of an adapter: answered once both numbers are equal. */
struct lora_order {
    _Atomic uint32_t num_asked, num_answered;
    int32_t place, status;
    char text[ERROR_TEXT_BYTES]; /* written before num_answered */
};

struct region {
    struct link_facts facts; /* valid once num_opened > 0 */
    _Atomic int32_t num_opened;
    _Atomic int32_t state; /* enum link_state */
    _Atomic int32_t tokenizer_eos_id;
    _Atomic int32_t num_answer_header;
    int32_t answer_header[ANSWER_HEADER_MAX]; /* written before the number */
    _Atomic bool fault;
    double phase_seconds[LOAD_PHASES];
    char error_text[ERROR_TEXT_BYTES]; /* written before the state */
    struct link_counters counters;

    /* from the loop */
    struct wake_word calls; /* the engine sleeps on it */
    _Atomic bool stopping;
    struct ring_ends submitted;
    struct lora_order lora_order;
    char loras[LORA_PLACES_MAX][LORA_PATH_BYTES]; /* of place i the one at i - 1 */

    struct wake_word masks_wanted; /* the mask threads sleep on it, */
    struct wake_word masks_made;   /* the engine on this one */
};

struct link {
    int fd;
    char *base;
    uint64_t bytes; /* mapped */
    struct region *region;
    struct ring submitted;
    _Atomic uint64_t *cancel_bits; /* one a slot: look at its cancel flag */
    _Atomic uint64_t *mask_bits;   /* likewise: it wants a mask */
    uint64_t *silent_ids;          /* [vocab_size bits] */
    struct request_slots *slots;
    void (*wake_front)(void *context);
    void *wake_context;
    bool inherited;
    /* the front's */
    int32_t *listed; /* [num_slots]: a walk over what waits; link_next_waiting */
    int32_t num_listed, list_at;
    uint64_t last_serial;
    uint32_t num_loras_heard;
    bool holding;
};

/* A set of slots that one side adds to and the other takes from. What was written before a bit was set is seen
 * by who takes it. */
static inline void link_set_bit(_Atomic uint64_t *bits, int32_t slot_idx)
{
    atomic_fetch_or_explicit(&bits[slot_idx / 64], 1ull << (slot_idx % 64), memory_order_release);
}

/* The first one after *slot_idx; any number may take at once. */
static inline bool link_take_bit(const struct link *l, _Atomic uint64_t *all_bits, int32_t *slot_idx)
{
    int32_t num_words = (int32_t)div_up(l->region->facts.num_slots, 64);
    for (int32_t word = (*slot_idx + 1) / 64; word < num_words; word++) {
        uint64_t bits = atomic_load_explicit(&all_bits[word], memory_order_relaxed);
        int32_t first = *slot_idx + 1 - word * 64;
        if (first > 0) bits &= ~0ull << first;
        if (bits == 0) continue;
        uint64_t bit = bits & -bits;
        *slot_idx = word * 64 + __builtin_ctzll(bit);
        if (atomic_fetch_and_explicit(&all_bits[word], ~bit, memory_order_acquire) & bit) return true;
        word = (*slot_idx + 1) / 64 - 1; /* somebody else took it */
    }
    return false;
}

#endif
