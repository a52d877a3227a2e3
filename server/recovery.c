#include "server/recovery.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/digest.h"
#include "base/log.h"

enum { DEATHS_TO_SUSPECT = 2, DEATHS_TO_FAIL = 3 };

int recovery_init(struct recovery *r, struct link *link, int32_t max_deaths, struct error *err)
{
    *r = (struct recovery){.link = link, .max_deaths = max_deaths, .alone = -1};
    r->victims = calloc((size_t)link_facts(link)->num_slots, sizeof *r->victims);
    return r->victims ? 0 : error_set(err, STATUS_NO_MEMORY, "out of memory");
}

void recovery_deinit(struct recovery *r)
{
    free(r->victims);
    r->victims = NULL;
}

/* ---- who was on board ---- */

static int32_t num_published(const struct request_slot *slot)
{
    return atomic_load_explicit(&slot->num_published, memory_order_acquire);
}

/* The tokens that the steps which never ended were to compute; false: none. Forgets them. */
static bool take_place(struct request_slot *slot, uint64_t num_steps_ended, int32_t *begin, int32_t *end)
{
    *begin = INT32_MAX;
    *end = 0;
    for (int i = 0; i < STEPS_IN_FLIGHT_MAX; i++) {
        struct step_part *part = &slot->parts[i];
        if (atomic_exchange(&part->step, 0) <= num_steps_ended) continue;
        *begin = min_of(*begin, atomic_load(&part->begin));
        *end = max_of(*end, atomic_load(&part->end));
    }
    return *end > 0;
}

static void count_death(struct victim *v, const struct request_slot *slot, int32_t begin, int32_t end)
{
    struct victim now = {.serial = slot->serial,
                         .num_deaths = 1,
                         .num_published = num_published(slot),
                         .begin = begin,
                         .end = end};
    bool same_place = v->serial == now.serial && v->num_published == now.num_published &&
                      v->begin < now.end && now.begin < v->end;
    if (same_place) now.num_deaths = v->num_deaths + 1;
    *v = now;
}

static bool is_suspect(const struct recovery *r, int32_t slot_idx)
{
    const struct victim *v = &r->victims[slot_idx];
    const struct request_slot *slot = request_slots_get(link_slots(r->link), slot_idx);
    return v->serial == slot->serial && v->num_deaths >= DEATHS_TO_SUSPECT &&
           v->num_published == num_published(slot);
}

/* Of the prompt's ids and of how it samples: enough to know the request again, nothing of its text. */
static struct digest_text digest_request(const struct recovery *r, int32_t slot_idx)
{
    struct request_slots *slots = link_slots(r->link);
    const struct request_slot_input *input = &request_slots_get(slots, slot_idx)->input;
    struct sha256_ctx hash;
    sha256_init(&hash);
    sha256_update(&hash, (size_t)input->num_prompt_tokens * sizeof(int32_t),
                  (const uint8_t *)request_slots_tokens(slots, slot_idx));
    sha256_update(&hash, sizeof input->sampling, (const uint8_t *)&input->sampling);
    return digest_end(&hash);
}

static void fail_killer(struct recovery *r, int32_t slot_idx)
{
    const struct digest_text digest = digest_request(r, slot_idx);
    log_error("request %llu ended the engine %d times, the last time alone: it fails (sha256 of prompt and "
              "sampling %s)",
              (unsigned long long)request_slots_get(link_slots(r->link), slot_idx)->input.request_id,
              r->victims[slot_idx].num_deaths, digest.text);
    link_finish_waiting(r->link, slot_idx, FINISH_ERROR, "the engine dies of this request");
}

/* After link_reset everybody unfinished waits. */
static void look_at_victims(struct recovery *r, bool accuses, uint64_t num_steps_ended)
{
    int32_t num_on_board = 0, num_waiting = 0, alone = r->alone;
    for (int32_t i = -1; (i = link_next_waiting(r->link, i)) >= 0;) {
        struct request_slot *slot = request_slots_get(link_slots(r->link), i);
        num_waiting++;
        int32_t begin, end;
        if (!take_place(slot, num_steps_ended, &begin, &end)) continue;
        num_on_board++;
        if (accuses) count_death(&r->victims[i], slot, begin, end);
    }
    r->alone = -1;
    log_warning("%d sequences are handed to the next engine, %d of them were on board", num_waiting,
                num_on_board);
    /* Beside it there may be suspects that had got through: then it is tried again. */
    if (accuses && alone >= 0 && num_on_board == 1 && is_suspect(r, alone) &&
        r->victims[alone].num_deaths >= DEATHS_TO_FAIL)
        fail_killer(r, alone);
}

static bool are_too_many(const struct recovery *r, uint64_t now_ns)
{
    uint64_t window_ns = RECOVERY_WINDOW_S * 1000000000ull;
    int32_t num_recent = 0;
    for (uint64_t i = 0; i < min_of(r->num_deaths, (uint64_t)RECOVERY_DEATHS_MAX); i++)
        num_recent += now_ns - r->deaths_ns[i] < window_ns;
    return r->max_deaths > 0 && num_recent >= r->max_deaths;
}

bool recovery_on_death(struct recovery *r, bool accuses, uint64_t now_ns)
{
    struct link_stats stats;
    r->deaths_ns[r->num_deaths++ % RECOVERY_DEATHS_MAX] = now_ns;
    link_stats(r->link, &stats);
    link_reset(r->link);
    look_at_victims(r, accuses, stats.num_steps);
    return !are_too_many(r, now_ns);
}

/* ---- whose turn it is ---- */

static bool is_through(const struct recovery *r, int32_t slot_idx)
{
    const struct request_slot *slot = request_slots_get(link_slots(r->link), slot_idx);
    return !is_suspect(r, slot_idx) || atomic_load(&slot->finish_reason) != FINISH_NONE;
}

static int32_t next_suspect(const struct recovery *r)
{
    int32_t i = -1;
    while ((i = link_next_waiting(r->link, i)) >= 0)
        if (is_suspect(r, i)) break;
    return i;
}

void recovery_on_progress(struct recovery *r)
{
    if (!link_is_holding(r->link) || (r->alone >= 0 && !is_through(r, r->alone))) return;
    r->alone = next_suspect(r);
    if (r->alone >= 0)
        link_hand_over(r->link, r->alone);
    else
        link_let_through(r->link);
}
