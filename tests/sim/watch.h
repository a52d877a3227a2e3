/* watch.h - the checks of each turn and of each death; what they hook into is in watch.c and judge.c. */
#ifndef TESTS_SIM_WATCH_H
#define TESTS_SIM_WATCH_H

#include "scheduler/scheduler.h"
#include "sim/request.h"

enum { SLOTS_MAX = 128 };

/* A submitted slot, and what is known of its request. */
struct watch {
    bool active, cancelled_before_turn;
    struct request *request;
    uint32_t tenant;
    struct expected_input expected;
    struct reference ref;
    int32_t prompt[PROMPT_MAX], tokens[MODEL_LEN];
    int32_t num_seen, num_passed;
    bool is_displaced;      /* by its last preemption */
    uint64_t submitted_ns;  /* to the engine that runs; 0: just now, or to another */
    enum finish_reason due; /* FINISH_STOP, FINISH_LENGTH once the tokens say so */
    bool ends_by_form;      /* FINISH_STOP since nothing may follow */
    /* judge.c: the deaths in a row that it was on board of, at one place, and the last one's */
    int num_deaths;
    int32_t death_published, death_begin, death_end;
    int num_kills;
    int32_t first_answer; /* the prompt's first token that goes through decode; INT32_MAX: none */
    bool was_tried;       /* alone, by the engine that runs */
    bool failed_by_recovery;
};
extern struct watch watches[SLOTS_MAX];

struct request_slot *watch_slot(int32_t slot_idx); /* of the front, without a yield */
bool watch_is_unfinished(int32_t slot_idx);        /* submitted and without a finish reason */

/* device.c calls it for each launched step; its plan. */
const struct plan *watch_step(const struct step *step);
/* Whether it computes the token that its request kills with, then or when it runs. */
bool watch_plan_is_fatal(const struct plan *plan, bool at_launch);
/* The loop is between two callbacks. */
void watch_loop(void);
/* The engine is dead: what it has published is looked at for the last time. */
void watch_death(void);

/* device.c: K and V go to host memory, or come back. */
void watch_copy(bool save, const int32_t *block_ids, const int32_t *host_ids, int32_t num_blocks);

/* The same for states that are kept, or come back. */
void watch_state_copies(const struct state_copy *copies, int32_t num_copies);

/* ---- policy.c ---- */

void policy_forget(void); /* the engine is dead */
bool policy_is_due_before(const struct sequence *a, const struct sequence *b);
/* Somebody came in before the first urgent one in the last step's plan, as tenants_may_pass_urgent. */
bool policy_urgent_was_passed(void);

/* ---- tenants.c ---- */

void tenants_forget(void); /* the engine is dead */
/* Its owner had nothing running, and the first urgent one's had. */
bool tenants_may_pass_urgent(const struct scheduler *s, const struct sequence *seq);
/* Places that a tenant and its owner leave to others, given what runs less so many of the tenant's. */
int32_t tenants_places_left_free(const struct scheduler *s, int32_t tenant, int32_t num_new);
void tenants_before_plan(const struct scheduler *s);
void tenants_after_plan(const struct scheduler *s, const struct plan *plan);

/* ---- pace.c ---- */

void pace_check_arrivals(const struct engine *e); /* it plans */

/* ---- judge.c ---- */

void judge_engine(const struct engine *e); /* a new one */
void judge_launch(const struct engine *e, const struct plan *plan);
void judge_published(void); /* an entry of the oldest launch */
/* e NULL: it was not made yet. accuses: it died of what it was computing. */
void judge_death(const struct engine *e, bool accuses);

#endif
