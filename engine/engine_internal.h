/* engine_internal.h - what the engine's files share.
 *
 *   engine.c          life, and the loop around the turns
 *   engine_step.c     the turn: drain, schedule, forward, publish
 *   engine_pace.c     when the turn is
 *   engine_draft.c    what may follow
 *   engine_guess.c    what a form lets follow, as the front guesses it
 *   engine_masks.c    what constrained rows may draw
 *   engine_loras.c    adapters that come and go
 *   engine_copies.c   K/V blocks to host memory and back, and states
 *   engine_publish.c  results into request slots, and how a request ends
 *   engine_energy.c   what of the device's energy each of them took
 *   engine_stats.c    the counters */
#ifndef ENGINE_ENGINE_INTERNAL_H
#define ENGINE_ENGINE_INTERNAL_H

#include "engine/drafter.h"
#include "engine/engine.h"
#include "scheduler/scheduler.h"
#include "engine/step_builder.h"
#include "engine/step_pace.h"
#include "engine/step_rates.h"

enum { FLIGHTS_MAX = STEPS_IN_FLIGHT_MAX };

/* A step that was begun and not ended; its index is also that of its step buffer. */
struct flight {
    struct plan plan;
    uint64_t begin_ns;
    double host_us; /* from when it was to be planned until it was begun */
};

/* Since the counters were read last; without a meter all zero. */
struct energy_window {
    uint64_t begin_uj, begin_ns;
    int64_t num_tokens;      /* of all steps that have ended, */
    int32_t *tokens_of_slot; /* and of each slot that is in them */
    int32_t *slots;          /* those slots: num_slots of them */
    int32_t num_slots;
};

/* An order of an adapter that is under way. */
struct lora_exchange {
    struct lora_files *files; /* NULL: the place becomes empty, or it has not begun */
    int32_t num_layers;       /* that are in the place */
};

struct engine {
    struct model *model;
    struct link *link;
    struct request_slots *slots; /* the link's */
    struct engine_options options;
    struct step_limits limits;

    struct scheduler *scheduler;
    struct step_builder *builder;
    struct sample_result *results; /* [limits.num_logits] */
    struct flight flights[FLIGHTS_MAX];
    int oldest_flight, num_in_flight;
    uint64_t turn_ns;         /* when this turn's step was to be planned */
    int32_t *seq_of_slot;     /* NO_SEQUENCE: not the engine's */
    struct drafter *drafters; /* of each slot */
    uint64_t ended_ns;        /* when the newest step that has ended was seen to have */
    double
        gap_us; /* that the device waits where a step is begun when the one before has ended; 0: not known */
    double guess_us; /* that what the front guesses is waited for, where it is; 0: not known */
    bool published;  /* something the loop has not been woken for */
    bool failed;
    int32_t eos_ids[EOS_IDS_MAX], num_eos_ids; /* the model's and, with the first request, the tokenizer's */
    bool knows_text;
    struct link_counters *counters;
    struct link_stats inherited; /* what counters said when this engine was made */
    struct step_rates rates;
    struct step_cost cost;
    struct step_pace pace;
    struct energy_window energy;
    struct lora_exchange lora;
};

/* engine.c */
/* Unless it is there, outside the vocabulary, or one too many. */
void engine_add_eos(struct engine *e, int32_t id);

/* engine_step.c */
void engine_drain(struct engine *e);
/* Ends the steps in flight, or forgets them when the device is dead; what they drew goes nowhere. */
void engine_abandon_flights(struct engine *e);

/* engine_pace.c */
/* On the device: when the one before had ended, or when it was begun. */
uint64_t engine_flight_start_ns(const struct engine *e, const struct flight *flight);
/* Until then the only step in flight keeps the device busy for certain, and there is time to begin another. 0: nothing
 * is certain, or another may not be begun beside it. */
uint64_t engine_busy_until_ns(const struct engine *e);
/* The turn is now when the step that it was to wait for has ended before its time. */
void engine_notice_end(struct engine *e, uint64_t now_ns);
/* The oldest step has ended, for which the engine has waited since then; it is still counted as in flight. */
void engine_learn_pace(struct engine *e, uint64_t wait_begin_ns);

/* engine_draft.c */
/* Sequences whose newest token is in flight are expected to save more by drafts than it takes to wait for it. */
bool engine_wants_to_draft(struct engine *e);
/* Drafts of those of which nothing is in flight, for the next plan. */
void engine_draft(struct engine *e);
/* The device has waited for a step that begins now. */
void engine_learn_gap(struct engine *e, uint64_t begin_ns);

/* engine_guess.c */
/* Of an answer that must have a form: its drafter follows its tokens, and is told what is guessed of the next ones, if that is
 * known. Returns whether it is told. */
bool engine_hear_guess(struct engine *e, const struct sequence *seq);
/* Behind a token that was published, before its mask is asked for: what the drafter has found. */
void engine_offer_guess(struct engine *e, const struct sequence *seq);
/* Asks for guesses of num tokens at most, behind each token that is published from now on. */
void engine_want_guess(struct engine *e, const struct sequence *seq, int32_t num);
/* Hears what is guessed of the sequence, and waits for it until then. */
void engine_await_guess(struct engine *e, const struct sequence *seq, uint64_t deadline_ns);

/* engine_masks.c */
/* Before the tokens of the newest flight, the only one, are drawn: gives each constrained row its mask. Waits as long
 * as the device is busy anyway for those that are not there; after that the row is withheld. */
void engine_settle_masks(struct engine *e, int flight_idx);
/* The sequence's row was withheld: because nothing may follow, or nothing is known? */
void engine_end_if_masked(struct engine *e, int32_t seq_id);

/* engine_loras.c */
/* A part of what the front has ordered. False when there is nothing to do. */
bool engine_exchange_lora(struct engine *e);
void engine_drop_lora(struct engine *e);

/* engine_copies.c */
/* What the plan wants copied before its step; says what became of those who were preempted. num_before: steps in
 * flight that were begun earlier. */
int engine_copy(struct engine *e, const struct plan *plan, int num_before);

/* engine_publish.c */
/* Takes a slot in: queues a sequence for it, or finishes it at once. */
void engine_accept(struct engine *e, int32_t slot_idx);
/* What one entry of a step brought: rows are its rows of results. */
void engine_publish_entry(struct engine *e, struct plan_entry *entry, const struct sample_result *rows);
/* Hands the sequence's slot back to the loop. error_text: NULL for none. */
void engine_finish(struct engine *e, int32_t seq_id, enum finish_reason reason, const char *error_text);
void engine_finish_all(struct engine *e, enum finish_reason reason, const char *error_text);

/* engine_energy.c */
int engine_energy_init(struct engine *e) must_check;
void engine_energy_deinit(struct engine *e);
/* It is counted as in flight, and nothing of it was computed. */
void engine_energy_begin_step(struct engine *e);
/* Before anything of it is published. */
void engine_energy_end_step(struct engine *e, const struct plan *plan);
/* Gives each slot what is known to be its own: due before one ends. */
void engine_energy_settle(struct engine *e);

/* engine_stats.c */
void engine_count_step(struct engine *e, const struct flight *flight);
void engine_copy_scheduler_stats(struct engine *e);
/* Once for each slot: its first step begins, or it ends without one. */
void engine_count_dequeued(struct engine *e, const struct request_slot *slot);
/* Once for each slot: what its prompt found in the prefix cache when its first step began. */
void engine_count_lookup(struct engine *e, const struct sequence *seq);

#endif
