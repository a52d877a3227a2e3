#include "server/masks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "base/id_list.h"
#include "base/log.h"
#include "base/thread_limit.h"
#include "text/grammar/mask.h"
#include "text/grammar/matcher.h"
#include "text/tokenizer.h"

enum {
    THREADS_LEAST = 2,
    THREADS_MOST = 8,
    ROUND_TOKENS = 64, /* followed at once; the mutex is held while they are copied */
};

/* One slot's answer on its way. Its thread's while is_busy, else under the mutex. */
struct follower {
    const struct shared_grammar *shared; /* NULL: the answer has no form, */
    const struct token_limits *limits;   /* NULL: all tokens may be in it; not both */
    int32_t *last;                       /* generated tokens, as far as the limits reach */
    int32_t num_last;
    struct matcher *matcher; /* NULL: nothing was asked yet */
    bool is_busy, asked_again;
    bool is_dropped;    /* while busy: the slot is gone */
    int32_t num_taken;  /* generated tokens */
    int32_t mask_state; /* as published last */
    int failure;        /* MASK_FAILED: why */
    int32_t num_prompt_tokens, min_tokens;
    bool ignore_eos;
    int32_t num_stop_token_ids;
    int32_t stop_token_ids[STOP_TOKEN_IDS_MAX];
    size_t trigger_bytes, matched_bytes; /* equal: the grammar has begun */
    char trigger[TRIGGER_BYTES_MAX];
};

struct worker {
    struct masks *masks;
    pthread_t thread;
    struct mask_maker *maker; /* NULL: no mask was made yet */
    uint64_t *words;
};

struct masks {
    struct link *link;
    struct request_slots *slots;
    struct grammars *grammars;
    const int32_t *end_ids;
    int32_t num_end_ids;
    size_t num_words; /* of a mask */
    pthread_mutex_t mutex;
    struct follower **followers; /* by slot */
    struct worker workers[THREADS_MOST];
    int num_workers;
    _Atomic bool stopping;
    _Atomic uint64_t num_made;
};

/* ---- what may come next: the follower's thread, without the mutex ---- */

/* The engine ends the answer with it. */
static bool is_stop(const struct masks *m, const struct follower *f, int32_t id)
{
    return (!f->ignore_eos && id_list_has(m->end_ids, m->num_end_ids, id)) ||
           id_list_has(f->stop_token_ids, f->num_stop_token_ids, id);
}

static bool is_empty(const uint64_t *words, size_t num_words)
{
    for (size_t i = 0; i < num_words; i++)
        if (words[i]) return false;
    return true;
}

/* How many bytes of a free text's begin complete the trigger; num_bytes + 1: it is not there yet. */
static size_t find_trigger(struct follower *f, const char *bytes, size_t num_bytes)
{
    for (size_t i = 0; i < num_bytes; i++) {
        /* A trigger is short: what was matched is looked through again where it fails. */
        while (f->matched_bytes > 0 && f->trigger[f->matched_bytes] != bytes[i]) {
            size_t shorter = f->matched_bytes - 1;
            while (shorter > 0 && memcmp(f->trigger, f->trigger + f->matched_bytes - shorter, shorter) != 0)
                shorter--;
            f->matched_bytes = shorter;
        }
        if (f->trigger[f->matched_bytes] == bytes[i]) f->matched_bytes++;
        if (f->matched_bytes == f->trigger_bytes) return i + 1;
    }
    return num_bytes + 1;
}

static bool is_free(const struct follower *f)
{
    return f->matched_bytes < f->trigger_bytes;
}

static void keep_last(struct follower *f, int32_t id)
{
    int32_t reach = f->limits ? token_limits_reach(f->limits) : 0;
    if (reach == 0) return;
    if (f->num_last == reach) memmove(f->last, f->last + 1, (size_t)--f->num_last * sizeof *f->last);
    f->last[f->num_last++] = id;
}

static int take_token(const struct masks *m, struct follower *f, int32_t id)
{
    size_t num_bytes, skip = 0;
    const char *bytes = tokenizer_token_bytes(grammars_tokenizer(m->grammars), id, &num_bytes);
    f->num_taken++;
    keep_last(f, id);
    if (!f->shared || is_stop(m, f, id)) return 0;
    if (is_free(f)) skip = find_trigger(f, bytes, num_bytes);
    return skip < num_bytes ? matcher_accept(f->matcher, bytes + skip, num_bytes - skip) : 0;
}

/* What ends an answer, beside the grammar. */
static void add_ends(const struct masks *m, const struct follower *f, uint64_t *words)
{
    bool may_stop = f->num_taken >= f->min_tokens;
    bool may_end = may_stop && matcher_can_end(f->matcher);
    for (int32_t i = 0; i < m->num_end_ids && may_end && !f->ignore_eos; i++)
        bit_set_add(words, (size_t)m->end_ids[i]);
    for (int32_t i = 0; i < f->num_stop_token_ids; i++) {
        size_t id = (size_t)f->stop_token_ids[i];
        if (!may_stop) bit_set_remove(words, id);
        if (may_end) bit_set_add(words, id);
    }
}

/* The engine draws none of them before min_tokens, so that with them alone nothing is left. */
static void remove_ends(const struct masks *m, const struct follower *f, uint64_t *words)
{
    if (f->num_taken >= f->min_tokens) return;
    for (int32_t i = 0; i < m->num_end_ids; i++) bit_set_remove(words, (size_t)m->end_ids[i]);
    for (int32_t i = 0; i < f->num_stop_token_ids; i++) bit_set_remove(words, (size_t)f->stop_token_ids[i]);
}

static int make_mask(const struct masks *m, struct worker *w, struct follower *f, int32_t *state)
{
    if (!f->shared || is_free(f)) {
        memset(w->words, 0xFF, m->num_words * sizeof *w->words);
    } else {
        if (!w->maker && mask_maker_new(f->shared->vocabulary, &w->maker)) return STATUS_NO_MEMORY;
        int status = mask_fill(w->maker, f->matcher, f->shared->masks, w->words);
        if (status) return status;
        add_ends(m, f, w->words);
    }
    if (f->limits) {
        remove_ends(m, f, w->words);
        token_limits_apply(f->limits, f->last, f->num_last, w->words);
    }
    *state = is_empty(w->words, m->num_words) ? MASK_ENDED : f->num_taken + 1;
    return 0;
}

static int follow(const struct masks *m, struct worker *w, struct follower *f, const int32_t *ids,
                  int32_t count, int32_t *state)
{
    int status = f->matcher || !f->shared ? 0 : matcher_new(f->shared->grammar, &f->matcher);
    for (int32_t i = 0; i < count && status == 0; i++) status = take_token(m, f, ids[i]);
    return status ? status : make_mask(m, w, f, state);
}

/* ---- one slot: under the mutex ---- */

static void free_follower(struct masks *m, struct follower *f)
{
    matcher_free(f->matcher);
    grammars_release(m->grammars, f->shared);
    token_limits_release(f->limits);
    free(f->last);
    free(f);
}

/* The next published tokens that were not taken: one at most, since the next needs its mask, but for an answer that
 * another process began. */
static int32_t copy_untaken(struct masks *m, const struct follower *f, int32_t slot_idx,
                            int32_t ids[ROUND_TOKENS])
{
    const struct request_slot *slot = request_slots_get(m->slots, slot_idx);
    int32_t published = atomic_load_explicit(&slot->num_published, memory_order_acquire);
    int32_t count = min_of(published - f->num_taken, (int32_t)ROUND_TOKENS);
    memcpy(ids, request_slots_tokens(m->slots, slot_idx) + f->num_prompt_tokens + f->num_taken,
           (size_t)count * sizeof *ids);
    return count;
}

/* The token before it was published: nobody reads the last mask any more. */
static void publish(struct masks *m, const struct worker *w, struct follower *f, int32_t slot_idx,
                    int32_t state)
{
    struct request_slot *slot = request_slots_get(m->slots, slot_idx);
    if (state > 0)
        memcpy(request_slots_mask(m->slots, slot_idx, state - 1), w->words, m->num_words * sizeof *w->words);
    f->mask_state = state;
    atomic_store_explicit(&slot->mask_state, state, memory_order_release);
    atomic_fetch_add_explicit(&m->num_made, 1, memory_order_relaxed);
}

/* Also kept, for masks_failure. */
static void log_failure(const struct masks *m, int32_t slot_idx, struct follower *f, int status)
{
    f->failure = status;
    log_error("request %llu: its answer cannot be followed behind token %d: %s",
              (unsigned long long)request_slots_get(m->slots, slot_idx)->input.request_id, f->num_taken,
              status_text(status));
}

/* One round of a follower that this thread is busy with. */
static void serve_round(struct worker *w, struct follower *f, int32_t slot_idx)
{
    struct masks *m = w->masks;
    int32_t ids[ROUND_TOKENS], count = copy_untaken(m, f, slot_idx, ids), state = MASK_NONE;
    f->asked_again = count == ROUND_TOKENS; /* there may be more */
    /* Another engine asks again for what is there; and what has failed stays so. */
    if ((count == 0 && f->mask_state != MASK_NONE) || f->mask_state == MASK_FAILED) return;
    pthread_mutex_unlock(&m->mutex);
    int status = follow(m, w, f, ids, count, &state);
    pthread_mutex_lock(&m->mutex);
    if (f->is_dropped) return;
    if (status) log_failure(m, slot_idx, f, status);
    publish(m, w, f, slot_idx, status ? MASK_FAILED : state);
}

static void serve(struct worker *w, int32_t slot_idx)
{
    struct masks *m = w->masks;
    pthread_mutex_lock(&m->mutex);
    struct follower *f = m->followers[slot_idx];
    if (f && f->is_busy) {
        f->asked_again = true;
    } else if (f) {
        f->is_busy = f->asked_again = true;
        while (f->asked_again && !f->is_dropped) serve_round(w, f, slot_idx);
        f->is_busy = false;
        if (f->is_dropped) free_follower(m, f);
    }
    pthread_mutex_unlock(&m->mutex);
    if (f) link_say_mask_is_made(m->link);
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
    for (int num = num_threads_wanted(); m->num_workers < num; m->num_workers++) {
        struct worker *w = &m->workers[m->num_workers];
        w->masks = m;
        w->words = malloc(m->num_words * sizeof *w->words);
        if (w->words && pthread_create(&w->thread, NULL, work, w) == 0) continue;
        free(w->words);
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
    m->grammars = grammars;
    m->num_end_ids = grammars_end_ids(grammars, &m->end_ids);
    m->num_words = (size_t)request_slots_mask_words(m->slots);
    m->followers = calloc((size_t)request_slots_count(m->slots), sizeof(struct follower *));
    pthread_mutex_init(&m->mutex, NULL);
    int status = m->followers ? start(m, err) : error_set(err, STATUS_NO_MEMORY, "out of memory");
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
        mask_maker_free(m->workers[i].maker);
        free(m->workers[i].words);
    }
    free(m->followers);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

/* ---- the loop's ---- */

static struct follower *make_follower(struct masks *m, const struct request_slot_input *input,
                                      const struct mask_rules *rules)
{
    const char *trigger = rules->trigger;
    struct follower *f = calloc(1, sizeof *f);
    int32_t reach = rules->limits ? token_limits_reach(rules->limits) : 0;
    if (f && reach > 0) f->last = malloc((size_t)reach * sizeof *f->last);
    if (!f || (reach > 0 && !f->last)) {
        free(f);
        return NULL;
    }
    f->shared = rules->grammar ? grammars_hold(m->grammars, rules->grammar) : NULL;
    f->limits = token_limits_hold(rules->limits);
    f->num_prompt_tokens = input->num_prompt_tokens;
    f->min_tokens = input->min_tokens;
    f->ignore_eos = input->ignore_eos;
    f->num_stop_token_ids = input->num_stop_token_ids;
    memcpy(f->stop_token_ids, input->stop_token_ids, sizeof f->stop_token_ids);
    f->trigger_bytes = trigger ? strlen(trigger) : 0;
    assert_always(f->trigger_bytes <= TRIGGER_BYTES_MAX);
    memcpy(f->trigger, trigger ? trigger : "", f->trigger_bytes);
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
