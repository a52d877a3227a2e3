#include "server/masks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "base/log.h"
#include "base/thread_limit.h"
#include "server/constrained_answer.h"
#include "server/mask_turns.h"
#include "server/tenant_group.h"
#include "text/grammar/mask.h"

enum {
    THREADS_LEAST = 2,
    THREADS_MOST = 8,
    ROUND_TOKENS = 64,   /* followed at once; the mutex is held while they are copied */
    SLOW_WORK = 4 << 20, /* of a mask (text/grammar/mask.h): 5 to 20 ms */
    LEARN_FROM_MASKS = 8,
};

/* One slot's answer on its way. Its thread's while is_busy, else under the mutex. */
struct follower {
    struct constrained_answer answer;
    bool is_busy, asked_again;
    bool is_dropped;    /* while busy: the slot is gone */
    int32_t mask_state; /* as published last */
    int failure;        /* MASK_FAILED: why */
    int32_t num_prompt_tokens;
    struct mask_turn turn; /* of slow ones */
};

struct worker {
    struct masks *masks;
    pthread_t thread;
    struct mask_scratch scratch;
};

struct masks {
    struct link *link;
    struct request_slots *slots;
    struct mask_language language;
    pthread_mutex_t mutex;
    struct follower **followers; /* by slot */
    uint64_t *ahead;             /* slots whose guess has masks to be made: a bit_set */
    uint64_t *slow; /* slots that wait among themselves, since their masks take long: a bit_set */
    int num_slow_busy, slow_busy_most;
    struct mask_turns turns;             /* of slow ones */
    uint64_t tenant_work[TENANT_GROUPS]; /* of a mask, lately: what a new answer's first one may take */
    struct worker workers[THREADS_MOST];
    int num_workers;
    _Atomic bool stopping;
    _Atomic uint64_t num_made;
};

/* ---- one slot: under the mutex ---- */

static void free_follower(struct masks *m, struct follower *f)
{
    constrained_answer_deinit(&f->answer, &m->language);
    free(f);
}

/* The next published tokens that were not taken: one at most, since the next needs its mask, but for an answer that
 * another process began. */
static int32_t copy_untaken(struct masks *m, const struct follower *f, int32_t slot_idx,
                            int32_t ids[ROUND_TOKENS])
{
    const struct request_slot *slot = request_slots_get(m->slots, slot_idx);
    int32_t published = atomic_load_explicit(&slot->num_published, memory_order_acquire);
    int32_t count = min_of(published - f->answer.num_taken, (int32_t)ROUND_TOKENS);
    memcpy(ids, request_slots_tokens(m->slots, slot_idx) + f->num_prompt_tokens + f->answer.num_taken,
           (size_t)count * sizeof *ids);
    return count;
}

static void copy_mask(struct masks *m, const struct worker *w, int32_t slot_idx, int32_t k)
{
    memcpy(request_slots_mask(m->slots, slot_idx, k), w->scratch.words,
           m->language.num_words * sizeof(uint64_t));
    atomic_fetch_add_explicit(&m->num_made, 1, memory_order_relaxed);
}

/* The token before it was published: nobody reads the last mask any more. What was made ahead is in its place. */
static void publish(struct masks *m, const struct worker *w, struct follower *f, int32_t slot_idx,
                    int32_t state)
{
    struct request_slot *slot = request_slots_get(m->slots, slot_idx);
    if (state > 0 && !f->answer.has_mask) copy_mask(m, w, slot_idx, state - 1);
    f->mask_state = state;
    atomic_store_explicit(&slot->mask_state, state, memory_order_release);
}

/* As the masks: nobody reads the last guess any more. */
static void publish_guess(struct masks *m, const struct follower *f, int32_t slot_idx)
{
    struct slot_guess *guess = &request_slots_get(m->slots, slot_idx)->guess;
    memcpy(guess->tokens, f->answer.guess, (size_t)f->answer.num_guessed * sizeof guess->tokens[0]);
    guess->is_offered = f->answer.is_offered;
    atomic_store_explicit(&guess->num_tokens, f->answer.num_guessed, memory_order_relaxed);
    atomic_store_explicit(&guess->num_masks_ahead, f->answer.num_ahead, memory_order_relaxed);
    atomic_store_explicit(&guess->state, f->answer.num_taken + 1, memory_order_release);
}

/* Kept for masks_failure. What a client's form brings about is the request's own line, and its error's metric. */
static void note_failure(const struct masks *m, int32_t slot_idx, struct follower *f, int status)
{
    f->failure = status;
    if (status == STATUS_LIMIT || status == STATUS_NOT_FOUND) return;
    log_error("request %llu: its answer cannot be followed behind token %d: %s",
              (unsigned long long)request_slots_get(m->slots, slot_idx)->input.request_id,
              f->answer.num_taken, status_text(status));
}

/* What the engine expects of generated token k and those behind it. */
static struct answer_offer read_offer(const struct slot_guess *guess, int32_t k)
{
    struct answer_offer offer = {0};
    if (atomic_load_explicit(&guess->offer_state, memory_order_acquire) != k + 1) return offer;
    int32_t num = atomic_load_explicit(&guess->num_offered, memory_order_relaxed);
    offer.num = max_of(min_of(num, (int32_t)GUESS_TOKENS_MAX), 0);
    for (int32_t i = 0; i < offer.num; i++)
        offer.ids[i] = atomic_load_explicit(&guess->offered[i], memory_order_relaxed);
    return offer;
}

/* The tokens are taken, and what may follow is guessed. Tells the engine so before it is told what may. */
static int take(struct worker *w, struct follower *f, int32_t slot_idx, const int32_t *ids, int32_t count)
{
    struct masks *m = w->masks;
    const struct slot_guess *guess = &request_slots_get(m->slots, slot_idx)->guess;
    int32_t num_wanted = min_of(atomic_load_explicit(&guess->num_wanted, memory_order_relaxed),
                                request_slots_num_guess_tokens(m->slots));
    const struct answer_offer offer = read_offer(guess, f->answer.num_taken + count);
    pthread_mutex_unlock(&m->mutex);
    int status = constrained_answer_take(&f->answer, &m->language, ids, count);
    if (status == 0) constrained_answer_guess(&f->answer, &m->language, num_wanted, &offer);
    pthread_mutex_lock(&m->mutex);
    if (status || f->is_dropped) return status;
    publish_guess(m, f, slot_idx);
    if (num_wanted > 0) link_say_mask_is_made(m->link);
    return 0;
}

static void learn_work(struct masks *m, const struct follower *f, uint64_t work)
{
    uint64_t *mean = &m->tenant_work[f->turn.tenant];
    if (f->answer.shared) *mean += work / LEARN_FROM_MASKS - *mean / LEARN_FROM_MASKS;
}

static int make(struct worker *w, struct follower *f, int32_t *state)
{
    struct masks *m = w->masks;
    const uint64_t work_before = f->answer.work;
    *state = f->answer.num_taken + 1;
    if (f->answer.has_mask) return 0;
    pthread_mutex_unlock(&m->mutex);
    int status = constrained_answer_make(&f->answer, &m->language, &w->scratch, state);
    pthread_mutex_lock(&m->mutex);
    learn_work(m, f, f->answer.work - work_before);
    return status;
}

/* One round of a follower that this thread is busy with. */
static void serve_round(struct worker *w, struct follower *f, int32_t slot_idx)
{
    struct masks *m = w->masks;
    int32_t ids[ROUND_TOKENS], count = copy_untaken(m, f, slot_idx, ids), state = MASK_NONE;
    f->asked_again = count == ROUND_TOKENS; /* there may be more */
    /* Another engine asks again for what is there; and what has failed stays so. */
    if ((count == 0 && f->mask_state != MASK_NONE) || f->mask_state == MASK_FAILED) return;
    int status = take(w, f, slot_idx, ids, count);
    if (status == 0 && !f->is_dropped) status = make(w, f, &state);
    if (f->is_dropped) return;
    if (status) note_failure(m, slot_idx, f, status);
    publish(m, w, f, slot_idx, status ? MASK_FAILED : state);
}

/* Of its next mask. */
static uint64_t expected_work(const struct masks *m, const struct follower *f)
{
    return f->mask_state == MASK_NONE ? m->tenant_work[f->turn.tenant] : f->answer.last_work;
}

static bool is_slow(const struct masks *m, const struct follower *f)
{
    return expected_work(m, f) > SLOW_WORK;
}

static void let_wait(struct masks *m, struct follower *f, int32_t slot_idx)
{
    mask_turns_join(&m->turns, &f->turn);
    bit_set_add(m->slow, (size_t)slot_idx);
}

static bool may_go_ahead(const struct masks *m, const struct follower *f)
{
    return f->answer.num_ahead < f->answer.num_guessed && f->mask_state > 0 && !is_slow(m, f);
}

/* Of a follower that this thread is busy with, whatever is asked for, of a slow one a round; then somebody may go ahead. */
static void serve_rounds(struct worker *w, struct follower *f, int32_t slot_idx)
{
    bool has_more = f->asked_again;
    while (has_more && !f->is_dropped) {
        serve_round(w, f, slot_idx);
        has_more = f->asked_again && !is_slow(w->masks, f);
    }
    f->is_busy = false;
    if (f->is_dropped)
        free_follower(w->masks, f);
    else if (f->asked_again)
        let_wait(w->masks, f, slot_idx);
    else if (may_go_ahead(w->masks, f))
        bit_set_add(w->masks->ahead, (size_t)slot_idx);
}

static void serve(struct worker *w, int32_t slot_idx)
{
    struct masks *m = w->masks;
    pthread_mutex_lock(&m->mutex);
    struct follower *f = m->followers[slot_idx];
    if (f) f->asked_again = true;
    if (f && !f->is_busy && is_slow(m, f)) {
        let_wait(m, f, slot_idx);
    } else if (f && !f->is_busy) {
        f->is_busy = true;
        serve_rounds(w, f, slot_idx);
    }
    pthread_mutex_unlock(&m->mutex);
    if (f) link_say_mask_is_made(m->link);
}

/* ---- slow ones, one thread less than there are, so that whose masks take long keeps no other answer waiting ---- */

/* A bit may be left over from another answer. */
static int32_t take_slow(struct masks *m)
{
    const size_t num_words = bit_set_words((size_t)request_slots_count(m->slots));
    struct follower *next = NULL;
    size_t next_idx = 0, num = (size_t)m->num_slow_busy;
    for (size_t i = 0; (i = bit_set_next(m->slow, num_words, i)) < num_words * 64; i++) {
        struct follower *f = m->followers[i];
        if (!f || f->is_busy || !f->asked_again) {
            bit_set_remove(m->slow, i);
            continue;
        }
        num++;
        if (next && !mask_turns_is_before(&m->turns, &f->turn, &next->turn)) continue;
        next = f;
        next_idx = i;
    }
    if (!next) return -1;
    bit_set_remove(m->slow, next_idx);
    mask_turns_take(&m->turns, &next->turn, expected_work(m, next), num);
    return (int32_t)next_idx;
}

/* One round. False: there is none, or its turn is when another thread has ended one. */
static bool serve_slow(struct worker *w)
{
    struct masks *m = w->masks;
    pthread_mutex_lock(&m->mutex);
    int32_t slot_idx = m->num_slow_busy < m->slow_busy_most ? take_slow(m) : -1;
    if (slot_idx >= 0) {
        struct follower *f = m->followers[slot_idx];
        m->num_slow_busy++;
        f->is_busy = true;
        serve_rounds(w, f, slot_idx);
        m->num_slow_busy--;
    }
    pthread_mutex_unlock(&m->mutex);
    if (slot_idx >= 0) link_say_mask_is_made(m->link);
    return slot_idx >= 0;
}

/* ---- ahead, while nothing is asked for ---- */

static void make_ahead(struct worker *w, struct follower *f, int32_t slot_idx)
{
    struct masks *m = w->masks;
    struct slot_guess *guess = &request_slots_get(m->slots, slot_idx)->guess;
    pthread_mutex_unlock(&m->mutex);
    bool is_made = constrained_answer_go_ahead(&f->answer, &m->language, &w->scratch);
    pthread_mutex_lock(&m->mutex);
    if (f->is_dropped) return;
    if (is_made) copy_mask(m, w, slot_idx, f->answer.num_taken + f->answer.num_ahead);
    atomic_store_explicit(&guess->num_tokens, f->answer.num_guessed, memory_order_relaxed);
    atomic_store_explicit(&guess->num_masks_ahead, f->answer.num_ahead, memory_order_release);
}

/* The bit may be left over from another answer. */
static int32_t take_ahead(struct masks *m)
{
    const size_t num_words = bit_set_words((size_t)request_slots_count(m->slots));
    const size_t i = bit_set_next(m->ahead, num_words, 0);
    if (i == num_words * 64) return -1;
    bit_set_remove(m->ahead, i);
    return (int32_t)i;
}

/* One mask. False: there is none to be made. */
static bool go_ahead(struct worker *w)
{
    struct masks *m = w->masks;
    pthread_mutex_lock(&m->mutex);
    int32_t slot_idx = take_ahead(m);
    struct follower *f = slot_idx >= 0 ? m->followers[slot_idx] : NULL;
    if (f && !f->is_busy && may_go_ahead(m, f)) {
        f->is_busy = true;
        make_ahead(w, f, slot_idx);
        serve_rounds(w, f, slot_idx);
    }
    pthread_mutex_unlock(&m->mutex);
    if (f) link_say_mask_is_made(m->link);
    return slot_idx >= 0;
}

/* ---- threads ---- */

static void *work(void *context)
{
    struct worker *w = context;
    struct masks *m = w->masks;
    pthread_setname_np(pthread_self(), "masks");
    while (!atomic_load(&m->stopping)) {
        uint32_t seen = link_num_wanted(m->link);
        int32_t slot_idx = -1;
        bool any = false;
        for (; link_next_wanted(m->link, &slot_idx); any = true) serve(w, slot_idx);
        any = serve_slow(w) || go_ahead(w) || any;
        if (!any && !atomic_load(&m->stopping)) link_sleep_until_wanted(m->link, seen);
    }
    return NULL;
}

/* A mask of a state that is new may take a thousand times as long as one that is known: then other threads go on. */
static int num_threads_wanted(void)
{
    int half = thread_limit_usable() / 2;
    return min_of(max_of(half, (int)THREADS_LEAST), (int)THREADS_MOST);
}

static int start(struct masks *m, struct error *err)
{
    const int num = num_threads_wanted();
    m->slow_busy_most = num - 1;
    for (; m->num_workers < num; m->num_workers++) {
        struct worker *w = &m->workers[m->num_workers];
        w->masks = m;
        w->scratch.words = malloc(m->language.num_words * sizeof(uint64_t));
        if (w->scratch.words && pthread_create(&w->thread, NULL, work, w) == 0) continue;
        free(w->scratch.words);
        return error_set(err, STATUS_NO_MEMORY, "cannot start a thread for masks");
    }
    return 0;
}

int masks_create(struct link *link, struct grammars *grammars, struct masks **out, struct error *err)
{
    struct masks *m = calloc(1, sizeof *m);
    if (!m) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    m->link = link;
    m->slots = link_slots(link);
    m->language.grammars = grammars;
    m->language.num_end_ids = grammars_end_ids(grammars, &m->language.end_ids);
    m->language.num_words = (size_t)request_slots_mask_words(m->slots);
    m->followers = calloc((size_t)request_slots_count(m->slots), sizeof(struct follower *));
    m->ahead = calloc(bit_set_words((size_t)request_slots_count(m->slots)), sizeof m->ahead[0]);
    m->slow = calloc(bit_set_words((size_t)request_slots_count(m->slots)), sizeof m->slow[0]);
    pthread_mutex_init(&m->mutex, NULL);
    int status = m->followers && m->ahead && m->slow ? start(m, err)
                                                     : error_set(err, STATUS_NO_MEMORY, "out of memory");
    if (status) {
        masks_destroy(m);
        return status;
    }
    *out = m;
    return 0;
}

void masks_destroy(struct masks *m)
{
    if (!m) return;
    atomic_store(&m->stopping, true);
    for (int i = 0; i < m->num_workers; i++) link_call_mask_threads(m->link);
    for (int i = 0; i < m->num_workers; i++) {
        pthread_join(m->workers[i].thread, NULL);
        mask_maker_free(m->workers[i].scratch.maker);
        free(m->workers[i].scratch.words);
    }
    free(m->followers);
    free(m->ahead);
    free(m->slow);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

/* ---- the loop's ---- */

static struct follower *make_follower(struct masks *m, const struct request_slot_input *input,
                                      const struct mask_rules *rules)
{
    struct follower *f = calloc(1, sizeof *f);
    if (!f || constrained_answer_init(&f->answer, &m->language, input, rules)) {
        free(f);
        return NULL;
    }
    f->num_prompt_tokens = input->num_prompt_tokens;
    f->turn.tenant = tenant_group(input->tenant_id);
    return f;
}

void masks_begin(struct masks *m, int32_t slot_idx, const struct mask_rules *rules)
{
    struct request_slot *slot = request_slots_get(m->slots, slot_idx);
    struct follower *f = make_follower(m, &slot->input, rules);
    assert_always(slot->input.constrained);
    if (!f) atomic_store_explicit(&slot->mask_state, MASK_FAILED, memory_order_release);
    pthread_mutex_lock(&m->mutex);
    assert_always(!m->followers[slot_idx]);
    m->followers[slot_idx] = f;
    pthread_mutex_unlock(&m->mutex);
}

void masks_end(struct masks *m, int32_t slot_idx)
{
    pthread_mutex_lock(&m->mutex);
    struct follower *f = m->followers[slot_idx];
    m->followers[slot_idx] = NULL;
    if (f && f->is_busy)
        f->is_dropped = true;
    else if (f)
        free_follower(m, f);
    pthread_mutex_unlock(&m->mutex);
}

int masks_failure(struct masks *m, int32_t slot_idx)
{
    pthread_mutex_lock(&m->mutex);
    const struct follower *f = m->followers[slot_idx];
    int status = f ? f->failure : STATUS_NO_MEMORY;
    pthread_mutex_unlock(&m->mutex);
    return status;
}

uint64_t masks_num_made(const struct masks *m)
{
    return atomic_load_explicit(&m->num_made, memory_order_relaxed);
}
