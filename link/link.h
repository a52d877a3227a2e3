/* link.h - the border between front and engine: one shared mapping, and all that crosses it.
 *
 *   front (sockets, HTTP, text)                          engine (device, weights, K/V)
 *   link_create                                          link_attach, or the front's own struct link
 *       <------------------------- facts, slots ---------- link_open        LOADING -> READY
 *   link_join, link_set_text
 *   link_submit, link_cancel ------- submit ring, bits ---> link_next_submission, link_next_cancelled
 *   request slots <------------- tokens, finish reasons --- link_wake_front
 *   link_next_wanted <------- a token of an answer with a form --- link_want_mask
 *   masks in the slots ---------------------------------> link_sleep_until_made
 *   link_stats, link_facts
 *
 * The mapping is a memory file without pointers in it, so that the engine may be a thread of this process or
 * a process of its own. A struct link is one process's view of it; where the engine is a thread, both sides
 * use the same.
 *
 *   | header: state, facts, counters, ring's ends | ring's items | cancel bits | mask bits | silent ids |
 *   | request slots ... |
 *
 * When an engine dies the region stays: link_reset puts back what was the engine's, each slot that had been
 * submitted and is not finished is handed to the next engine with what it has published (link_hand_over), and
 * totals go on. What an engine of a known region resolves must be what the first one did: the facts stay.
 *
 * Threads: [loop] and [engine] name the side that may call, [mask] the front's threads that make masks. */
#ifndef LINK_LINK_H
#define LINK_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "link/counters.h"
#include "link/facts.h"
#include "link/request_slots.h"

struct link;

enum link_state {
    LINK_LOADING,
    LINK_READY,
    LINK_REFUSED, /* the engine could not start; link_error_text says why */
    LINK_FAILED,  /* its device failed */
};

/* ---- life ---- */

int link_create(struct link **out, struct error *err) must_check;         /* [loop] a new region */
int link_attach(int fd, struct link **out, struct error *err) must_check; /* [engine] takes fd over */
int link_fd(const struct link *l);
void link_destroy(struct link *l);

/* [engine] Publishes the facts and makes room for the slots. The state is still LOADING after it. A region
 * that another engine had opened is taken as it is: STATUS_INVALID when the facts' sizes differ. */
int link_open(struct link *l, const struct link_facts *facts, struct error *err) must_check;
/* True when another engine has opened the region before: link_facts are the limits to keep to. */
bool link_is_inherited(const struct link *l);
/* [loop] Once the state was READY: maps what the engine made room for, unless it is mapped. */
int link_join(struct link *l, struct error *err) must_check;

enum link_state link_state(const struct link *l);
/* [engine] text: NULL for none. Wakes the front. */
void link_set_state(struct link *l, enum link_state state, const char *text);
const char *link_error_text(const struct link *l);

const struct link_facts *link_facts(const struct link *l);
/* [engine] writes each before READY: [LOAD_PHASES]. */
double *link_phase_seconds(struct link *l);
struct request_slots *link_slots(struct link *l); /* after link_open or link_join */
struct link_counters *link_counters(struct link *l);
void link_stats(const struct link *l, struct link_stats *out);

/* [loop] What only the tokenizer knows: its own end token (-1: none). Before the first submission. */
void link_set_text(struct link *l, int32_t tokenizer_eos_id);
int32_t link_tokenizer_eos_id(const struct link *l); /* [engine] */
/* [loop] The tokens with which the chat template begins an answer, at most ANSWER_HEADER_MAX; none at first. Before the first
 * submission. */
void link_set_answer_header(struct link *l, const int32_t *ids, int32_t num_ids);
/* [engine] Their number. ids: [ANSWER_HEADER_MAX] */
int32_t link_answer_header(const struct link *l, int32_t *ids);
/* Ids below vocab_size that stand for no text and are never drawn: bit id % 64 of word id / 64. None at first;
 * [loop] sets them before the first submission, [engine] reads. After link_open or link_join. */
uint64_t *link_silent_ids(struct link *l);

/* ---- to the engine ---- */

/* [loop] Hands a filled-in slot over. Never fails: the ring holds as many entries as there are slots. While
 * submissions are held, as after an engine's death, it waits for link_hand_over. */
void link_submit(struct link *l, int32_t slot_idx);
/* [loop] The engine finishes it within one step; FINISH_CANCELLED (or what came first) is then published. */
void link_cancel(struct link *l, int32_t slot_idx);
/* [loop] The engine ends: it cancels what is left, and its thread or process returns. */
void link_stop(struct link *l);

/* [engine] */
bool link_next_submission(struct link *l, int32_t *slot_idx);
/* Starts with *slot_idx = -1. The bit may be left over from a request that has finished. */
bool link_next_cancelled(struct link *l, int32_t *slot_idx);
bool link_is_stopping(const struct link *l);
/* Sleeps until there was a call after seen = link_num_calls(), at once if there was. */
uint32_t link_num_calls(const struct link *l);
void link_sleep(struct link *l, uint32_t seen);
void link_sleep_at_most(struct link *l, uint32_t seen, uint64_t timeout_ns);

/* ---- adapters that come and go while the engine serves (config/lora_modules.h) ---- */

enum { LORA_PLACES_MAX = 64, LORA_PATH_BYTES = 4096 /* with its NUL */ };

/* [loop] The adapter in a place, from 1 on, is the one in this folder, "": none; the next engine begins with what was told last. */
void link_tell_lora(struct link *l, int32_t place, const char *path);
const char *link_lora(const struct link *l, int32_t place); /* [engine] */
/* [loop] This engine is to take in what was told of the place, of which no request is the engine's. One order at a time. */
void link_order_lora(struct link *l, int32_t place);
/* [loop] True, once: what became of the order. status: 0, or text says why not. */
bool link_hear_lora(struct link *l, int *status, const char **text);
/* [engine] The place that an order is of; 0: there is none. */
int32_t link_ordered_lora(const struct link *l);
void link_answer_lora(struct link *l, int status, const char *text); /* [engine] */

/* ---- to the front ---- */

/* [engine] What it computes is what it dies of. Async-signal-safe. */
void link_note_fault(struct link *l);
bool link_has_fault(const struct link *l); /* [loop] until link_reset */

/* How this side wakes the other: uv_async_send, or a byte down a pipe. Any thread; calls may merge. */
void link_set_front_wake(struct link *l, void (*wake)(void *context), void *context);
void link_wake_front(struct link *l); /* [engine] */

/* ---- masks: what may be drawn next, for slots that are constrained (request_slots.h) ---- */

/* [engine] The slot's next token is to be drawn. Also for one that another engine may have asked for. */
void link_want_mask(struct link *l, int32_t slot_idx);
/* [mask] Starts with *slot_idx = -1. The bit may be left over from a request that has finished. */
bool link_next_wanted(struct link *l, int32_t *slot_idx);
/* [mask] As link_sleep. */
uint32_t link_num_wanted(const struct link *l);
void link_sleep_until_wanted(struct link *l, uint32_t seen);
/* [loop] Wakes one of them for something else. */
void link_call_mask_threads(struct link *l);
/* [mask] The slot's mask was written. */
void link_say_mask_is_made(struct link *l);
/* [engine] Sleeps until a mask was made after seen = link_num_made(), at most timeout_ns. */
uint32_t link_num_made(const struct link *l);
void link_sleep_until_made(struct link *l, uint32_t seen, uint64_t timeout_ns);

/* ---- [loop] when an engine has died ---- */

/* Ring and sleeper as at the beginning, LOADING, an order of an adapter failed; every slot that is the engine's, and what is submitted from
 * now on, waits for link_hand_over or link_let_through. Nobody may be attached. */
void link_reset(struct link *l);
/* Slots that were submitted, in that order, and are neither finished nor with an engine: the first after
 * slot_idx, -1 to begin with; -1 at the end. One walk at a time, from its beginning. */
int32_t link_next_waiting(struct link *l, int32_t slot_idx);
void link_hand_over(struct link *l, int32_t slot_idx);
/* Hands over all that waits; submissions go through from now on. */
void link_let_through(struct link *l);
bool link_is_holding(const struct link *l);
/* Ends a waiting slot in the engine's place. */
void link_finish_waiting(struct link *l, int32_t slot_idx, enum finish_reason reason, const char *error_text);

#endif
