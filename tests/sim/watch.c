/* watch.c - looks at everything after each turn of the engine.
 *
 * The program's own walks (scheduler_check and below) say that its bookkeeping is consistent; what they
 * cannot know is what each request was meant to be. So each submitted slot is compared with what its client
 * asked for, each published token with what the request gives alone, each launched step with who may read
 * what. */
#include "sim/watch.h"

#include <math.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "scheduler/scheduler_internal.h"
#include "server/api/api.h"
#include "server/api/generation.h"
#include "sim/client.h"
#include "sim/device.h"
#include "sim/form.h"
#include "sim/wraps.h"

enum { BATCH_SLOTS_MAX = 64, HEAVY_WORK = 5 << 20 };
enum { PATIENCE_STEPS = 4, PREEMPTIONS_MAX = 400, KILLS_MAX = 5, DEADLINE_SLACK_NS = 1000000000 };

struct watch watches[SLOTS_MAX];
static uint32_t *tenant_of_place; /* [num_blocks * BLOCK_SIZE]: who wrote it */
static uint32_t *tenant_of_saved; /* [num_host_blocks * BLOCK_SIZE] */
static uint32_t tenant_of_slot[BATCH_SLOTS_MAX], tenant_of_state[BATCH_SLOTS_MAX]; /* whose state is in it */
static int32_t head_waits_for;
static uint64_t head_arrival, num_delivered, last_steps;
static bool is_publishing; /* the engine, results of a step */

static struct request_slot *slot_of(int32_t slot_idx)
{
    return request_slots_get(world.server->slots, slot_idx);
}

struct request_slot *watch_slot(int32_t slot_idx)
{
    return __real_request_slots_get(world.server->slots, slot_idx);
}

bool watch_is_unfinished(int32_t slot_idx)
{
    return watches[slot_idx].active && atomic_load(&watch_slot(slot_idx)->finish_reason) == FINISH_NONE;
}

/* ---- submission ---- */

/* What may come next, and whether anything may. */
static void look_at_form(struct watch *w)
{
    const struct request_slot_input *in = &w->expected.input;
    if (w->expected.form == 0 || w->due != FINISH_NONE) return;
    w->ref.allowed = form_allowed(w->expected.form, in, w->tokens + in->num_prompt_tokens, w->num_seen);
    if (w->ref.allowed > 0) return;
    w->ends_by_form = form_is_whole(w->expected.form, w->tokens + in->num_prompt_tokens, w->num_seen);
    w->due = w->ends_by_form ? FINISH_STOP : FINISH_ERROR;
}

static struct generation *find_generation(int32_t slot_idx, int *choice_idx)
{
    for (struct generation *g = world.server->api->generations; g; g = g->next)
        for (int i = 0; i < g->num_choices; i++)
            if (g->choices[i].slot_idx == slot_idx) {
                *choice_idx = i;
                return g;
            }
    sim_fail(__FILE__, __LINE__, "slot %d was submitted and is no request's", slot_idx);
}

/* The tokens of its text, as many as there is room for. */
static bool is_predicted(const struct request *r, int32_t slot_idx)
{
    const int32_t *ids = request_slots_predicted(world.server->slots, slot_idx);
    int32_t num = slot_of(slot_idx)->input.num_predicted;
    size_t at = 0, all = world.server->facts->num_guess_tokens > 0 ? strlen(r->prediction) : 0;
    for (int32_t i = 0; i < num; at += strlen(word_of(ids[i++])))
        if (strncmp(r->prediction + at, word_of(ids[i]), strlen(word_of(ids[i]))) != 0) return false;
    return at == all || (at < all && num == world.server->facts->max_model_len);
}

static bool inputs_equal(const struct expected_input *expected, int32_t slot_idx)
{
    const struct request_slot_input *a = &expected->input, *b = &slot_of(slot_idx)->input;
    const struct logit_bias *biases = request_slots_payload(world.server->slots, slot_idx)->logit_bias;
    for (int i = 0; i < a->num_logit_bias; i++)
        if (expected->logit_bias[i].token_id != biases[i].token_id ||
            expected->logit_bias[i].bias != biases[i].bias)
            return false;
    return a->num_prompt_tokens == b->num_prompt_tokens && a->max_tokens == b->max_tokens &&
           a->min_tokens == b->min_tokens && a->ignore_eos == b->ignore_eos &&
           a->prompt_logprobs == b->prompt_logprobs && a->constrained == b->constrained &&
           a->pooling == b->pooling && a->num_row_logits == b->num_row_logits &&
           !memcmp(&a->sampling, &b->sampling, sizeof a->sampling) &&
           a->num_logit_bias == b->num_logit_bias && a->num_stop_token_ids == b->num_stop_token_ids &&
           !memcmp(a->stop_token_ids, b->stop_token_ids, sizeof a->stop_token_ids);
}

/* One client's salt in another client's words would let it read the other's cache. */
static void check_salt(const struct watch *w, const struct request_slot_input *input)
{
    for (int i = 0; i < SLOTS_MAX; i++) {
        const struct watch *other = &watches[i];
        if (!other->active || other == w) continue;
        bool equal = !memcmp(input->cache_salt, slot_of(i)->input.cache_salt, CACHE_SALT_BYTES);
        expect(equal == (other->tenant == w->tenant), "%s and %s: salts %s", w->request->id,
               other->request->id, equal ? "are equal" : "differ");
        if (!equal && !memcmp(w->prompt, other->prompt, BLOCK_SIZE * sizeof(int32_t)))
            mark(MARK_equal_prompts_other_salt);
    }
}

static const uint64_t BULK = 1ull << 63;

/* An address is a tenant among those of its key, or has a part of its own where there are no keys; many answers are one beside
 * the rest of its. */
static void check_tenant(const struct request *r, const struct request_slot_input *input)
{
    bool is_bulk = r->priority >= 0 && request_num_sequences(r) > 1 &&
                   16 * request_num_sequences(r) > world.max_num_seqs && !r->embeds;
    uint64_t tenant = input->tenant_id & ~BULK, owner = has(FEATURE_salts) ? (uint64_t)r->key + 1 : tenant;
    expect(input->owner_id == owner && input->leaves_places == is_bulk, "%s: the slot is another owner's",
           r->id);
    expect((input->tenant_id != tenant) == is_bulk, "%s: the slot is another tenant's", r->id);
    for (int i = 0; i < SLOTS_MAX; i++) {
        const struct request *other = watches[i].request;
        if (!watches[i].active || other == r) continue;
        bool is_same_key = !has(FEATURE_salts) || other->key == r->key;
        bool is_same = is_same_key && client_address(other->client_idx) == client_address(r->client_idx);
        expect(is_same == ((slot_of(i)->input.tenant_id & ~BULK) == tenant), "%s and %s: %s tenant", r->id,
               other->id, is_same ? "not the same" : "the same");
    }
}

static void check_terms(const struct request *r, const struct request_slot_input *input)
{
    double weight = has(FEATURE_salts) ? world.key_weights[r->key] : 1;
    uint64_t least_ns = r->timeout_ms > 0 ? r->sent_ns + (uint64_t)r->timeout_ms * 1000000 : 0;
    expect(input->priority == r->priority, "%s: the slot has another priority", r->id);
    expect(input->weight == weight || (input->weight == 0 && weight == 1), "%s: weight %g instead of %g",
           r->id, input->weight, weight);
    expect((input->deadline_ns > 0) == (least_ns > 0) && input->deadline_ns + 1000000 >= least_ns,
           "%s: another deadline", r->id);
}

void __wrap_link_submit(struct link *l, int32_t slot_idx)
{
    int choice_idx = 0;
    const struct generation *g = find_generation(slot_idx, &choice_idx);
    struct request *r = request_find(g->request_id);
    struct watch *w = &watches[slot_idx];
    int prompt_idx = choice_idx / r->n;
    expect(!w->active, "slot %d is submitted twice", slot_idx);
    *w = (struct watch){.active = true, .request = r, .tenant = request_tenant(r)};
    r->was_submitted = true;
    r->used_seed = g->answer.seed;
    request_expected_input(r, prompt_idx, choice_idx % r->n, r->has_seed ? (uint64_t)r->seed : g->answer.seed,
                           &w->expected);
    expect(inputs_equal(&w->expected, slot_idx), "%s: the slot's input is not the request's", r->id);
    expect(is_predicted(r, slot_idx), "%s: the slot has another prediction than the request", r->id);
    memcpy(w->prompt, r->prompt[prompt_idx], sizeof w->prompt);
    w->ref = (struct reference){.prefill_decode_equal = !has(FEATURE_unequal_halves),
                                .has_states = has(FEATURE_states),
                                .has_answers = WORLD_HAS_ANSWERS,
                                .window = world.window,
                                .window_is_chunk = world.window_is_chunk,
                                .num_prompt = w->expected.input.num_prompt_tokens,
                                .logit_bias = w->expected.logit_bias,
                                .forbidden = SILENT_IDS};
    memcpy(w->tokens, w->prompt, (size_t)w->expected.input.num_prompt_tokens * sizeof(int32_t));
    w->first_answer = INT32_MAX;
    for (int32_t p = 0; p < w->expected.input.num_prompt_tokens; p++) {
        reference_push(&w->ref, w->prompt[p]);
        if (w->ref.has_answers && w->ref.in_answer) w->first_answer = min_of(w->first_answer, p);
    }
    if (w->expected.input.max_tokens == 0) w->due = FINISH_LENGTH;
    look_at_form(w);
    check_tenant(r, &slot_of(slot_idx)->input);
    check_terms(r, &slot_of(slot_idx)->input);
    check_salt(w, &slot_of(slot_idx)->input);
    trace((uint64_t)slot_idx << 32 ^ (uint64_t)choice_idx);
    __real_link_submit(l, slot_idx);
    if (world.engine && !link_is_holding(l)) w->submitted_ns = now_ns();
    thread_pause();
}

/* ---- slots ---- */

struct request_slot *__wrap_request_slots_get(struct request_slots *s, int32_t slot_idx)
{
    thread_pause();
    return __real_request_slots_get(s, slot_idx);
}

/* S5: nothing of the last request is left. */
static void check_initial(struct request_slots *s, int32_t slot_idx)
{
    static const struct request_slot zero;
    const struct request_slot *slot = __real_request_slots_get(s, slot_idx);
    const int32_t *tokens = request_slots_tokens(s, slot_idx);
    const int32_t *predicted = request_slots_predicted(s, slot_idx);
    const struct token_logprobs *logprobs = request_slots_logprobs(s, slot_idx);
    static const struct token_logprobs no_logprobs;
    expect(!memcmp(slot, &zero, sizeof zero), "a fresh slot is not in its initial state");
    for (int32_t p = 0; p < MODEL_LEN; p++)
        expect(tokens[p] == 0 && predicted[p] == 0 && !memcmp(&logprobs[p], &no_logprobs, sizeof no_logprobs),
               "a fresh slot has tokens or log probabilities of another request");
}

int __wrap_request_slots_acquire(struct request_slots *s, int32_t count, int32_t *slot_ids)
{
    int status = __real_request_slots_acquire(s, count, slot_ids);
    for (int32_t i = 0; i < count && status == 0; i++) {
        expect(!watches[slot_ids[i]].active, "slot %d is acquired while it runs", slot_ids[i]);
        check_initial(s, slot_ids[i]);
    }
    return status;
}

/* New tokens, one by one, against the request alone. */
static void look_at_tokens(struct watch *w, int32_t slot_idx)
{
    const struct request_slot *slot = __real_request_slots_get(world.server->slots, slot_idx);
    const int32_t *tokens = request_slots_tokens(world.server->slots, slot_idx);
    const struct token_logprobs *logprobs = request_slots_logprobs(world.server->slots, slot_idx);
    int32_t published = atomic_load(&slot->num_published), num_prompt = w->expected.input.num_prompt_tokens;
    expect(published >= w->num_seen && published <= w->expected.input.max_tokens, "%s: %d tokens published",
           w->request->id, published);
    while (w->num_seen < published) {
        expect(w->due == FINISH_NONE, "%s: a token after the end", w->request->id);
        struct sample_result row = reference_row(&w->ref, &w->expected.input, w->tokens, -1);
        int32_t p = num_prompt + w->num_seen, id = tokens[p];
        expect(!row.failed && id == row.token_id, "%s: token %d is %d, alone it is %d", w->request->id,
               w->num_seen, id, row.token_id);
        expect(id != SILENT_ID, "%s: an id without text was drawn", w->request->id);
        if (w->expected.input.sampling.num_logprobs >= 0)
            expect(logprobs_equal(&logprobs[p], &row), "%s: log probabilities at %d", w->request->id, p);
        w->tokens[p] = id;
        reference_push(&w->ref, id);
        trace((uint64_t)id << 32 ^ (uint64_t)p);
        report->num_tokens++;
        if (w->num_seen + 1 == w->expected.input.max_tokens) w->due = FINISH_LENGTH;
        if (reference_is_stop(&w->expected.input, id)) w->due = FINISH_STOP;
        w->num_seen++;
        look_at_form(w);
    }
}

static void check_prompt_logprobs(const struct watch *w, int32_t slot_idx)
{
    const struct token_logprobs *logprobs = request_slots_logprobs(world.server->slots, slot_idx);
    struct reference ref = {.prefill_decode_equal = w->ref.prefill_decode_equal,
                            .has_states = w->ref.has_states,
                            .has_answers = w->ref.has_answers,
                            .window = w->ref.window,
                            .window_is_chunk = w->ref.window_is_chunk,
                            .num_prompt = w->expected.input.num_prompt_tokens,
                            .logit_bias = w->expected.logit_bias,
                            .forbidden = SILENT_IDS};
    for (int32_t p = 0; p + 1 < w->expected.input.num_prompt_tokens; p++) {
        reference_push(&ref, w->prompt[p]);
        struct sample_result row = reference_row(&ref, &w->expected.input, w->prompt, w->prompt[p + 1]);
        expect(logprobs_equal(&logprobs[p + 1], &row), "%s: the prompt's log probabilities at %d",
               w->request->id, p + 1);
    }
}

/* Of a thread it is the process's end; of a process, its own. */
static void note_device_failure(void)
{
    if (world.exit_code || !engine_failed(world.engine)) return;
    mark(sim_device_history_failed() ? MARK_history_failed : MARK_device_failed);
    if (!has(FEATURE_engine_process)) world.exit_code = 70;
}

static void look_at_finish(struct watch *w, int32_t slot_idx)
{
    const struct request_slot *slot = __real_request_slots_get(world.server->slots, slot_idx);
    enum finish_reason reason = (enum finish_reason)atomic_load(&slot->finish_reason);
    const struct request_slot_input *in = &w->expected.input;
    if (reason == FINISH_NONE) return;
    look_at_tokens(w, slot_idx);
    switch (reason) {
    case FINISH_STOP:
    case FINISH_LENGTH:
        expect(reason == w->due, "%s: finish %d instead of %d", w->request->id, reason, w->due);
        if (reason == FINISH_STOP && w->ends_by_form)
            expect(slot->stop_token_id == -1, "%s: a stop token where nothing may follow", w->request->id);
        else if (reason == FINISH_STOP)
            expect(slot->stop_token_id == w->tokens[in->num_prompt_tokens + w->num_seen - 1],
                   "%s: the stop token", w->request->id);
        if (in->prompt_logprobs) {
            expect(atomic_load(&slot->num_prompt_published) == in->num_prompt_tokens, "%s: prompt positions",
                   w->request->id);
            check_prompt_logprobs(w, slot_idx);
        }
        break;
    case FINISH_CANCELLED:
        expect(atomic_load(&slot->cancel) || world.ending, "%s: cancelled by nobody", w->request->id);
        break;
    case FINISH_ERROR: {
        struct solo solo;
        if (w->failed_by_recovery) break;
        if (atomic_load(&slot->mask_state) == MASK_FAILED && heap_num_failed() > 0) {
            mark(MARK_masks_failed);
            break;
        }
        solo_run(&w->expected, w->prompt, &solo);
        expect(solo.end == SOLO_TOO_BIG ||
                   ((solo.end == SOLO_BAD_ROW || solo.end == SOLO_STUCK) && solo.num_tokens == w->num_seen),
               "%s: failed for no reason: %s", w->request->id, slot->error_text);
        break;
    }
    default:
        expect(!has(FEATURE_engine_process), "%s: FINISH_DEVICE of a process", w->request->id);
        note_device_failure();
        expect(world.exit_code == 70, "%s: FINISH_DEVICE", w->request->id);
    }
}

void __wrap_request_slots_release(struct request_slots *s, int32_t slot_idx)
{
    struct watch *w = &watches[slot_idx];
    if (w->active) {
        const struct request_slot *slot = __real_request_slots_get(s, slot_idx);
        expect(atomic_load(&slot->finish_reason) != FINISH_NONE, "%s: its slot is released while it runs",
               w->request->id);
        look_at_finish(w, slot_idx);
        num_delivered += (uint64_t)w->num_seen;
        w->request->num_preemptions += slot->num_preemptions;
        report->most_preemptions = max_of(report->most_preemptions, (uint64_t)slot->num_preemptions);
        expect(slot->num_preemptions <= PREEMPTIONS_MAX, "%s: preempted for ever", w->request->id);
        w->active = false;
    }
    __real_request_slots_release(s, slot_idx);
}

/* ---- log lines: the ledger ---- */

void __wrap_request_log_write(const struct request_record *record)
{
    struct request *r = request_find(record->request_id);
    r->num_records++;
    expect(record->seed == r->used_seed, "%s: the log names another seed", r->id);
    snprintf(r->record_reason, sizeof r->record_reason, "%s", record->finish_reason);
    say("log: %s %s", r->id, record->finish_reason);
    trace((uint64_t)record->finish_reason[0] << 8 ^ (uint64_t)record->completion_tokens);
}

/* ---- what the transport does to clients ---- */

bool __wrap_exchange_write(struct exchange *x, const char *bytes, size_t n)
{
    const struct connection *c = x->connection;
    bool goes_on = __real_exchange_write(x, bytes, n);
    /* H4, S14: what is kept for a client is bounded. */
    expect(output_unsent_bytes(&c->output) <= world.config.stream_buffer_hard + n + 64,
           "%zu bytes are unsent", output_unsent_bytes(&c->output));
    if (!goes_on) mark(MARK_streams_paused);
    return goes_on;
}

void __wrap_http_metrics_count_cut_off(void)
{
    mark(MARK_cut_off_by_timeout);
}

void __wrap_http_metrics_count_displaced(void)
{
    mark(MARK_displaced);
}

int __wrap_listener_open(struct listener *l, struct server *server, const struct route *routes,
                         struct error *err)
{
    world.listener = l;
    return __real_listener_open(l, server, routes, err);
}

/* Connections of one list; adds up what they hold. */
static int check_connections(const struct connection_list *list, bool waiting, int *num_open, uint64_t *held)
{
    int count = 0;
    const struct connection *previous = NULL;
    for (const struct connection *c = list->first; c; previous = c, c = c->next, count++) {
        bool waits = c->state == CONNECTION_READING || c->state == CONNECTION_LINGERING;
        expect(waits == waiting && c->previous == previous, "a connection in the wrong list");
        expect(!previous || previous->since_ms <= c->since_ms, "a list of connections is out of order");
        *num_open += c->state != CONNECTION_CLOSED;
        *held += c->num_buffered_bytes;
    }
    expect(list->last == previous, "a list of connections has another end");
    return count;
}

static void check_listener(const struct listener *l)
{
    int num_open = 0;
    uint64_t held = 0;
    int count = check_connections(&l->waiting, true, &num_open, &held) +
                check_connections(&l->others, false, &num_open, &held);
    expect(count == l->num_connections && num_open == l->num_open, "%d connections, %d open; counted %d, %d",
           count, num_open, l->num_connections, l->num_open);
    expect(num_open <= l->max_connections + CONNECTION_RESERVE, "%d connections are open", num_open);
    expect(held == l->num_buffered_bytes, "%llu bytes are held, %llu counted", (unsigned long long)held,
           (unsigned long long)l->num_buffered_bytes);
}

/* ---- blocks, and markers ---- */

/* Whether the row that the sequence fails on is the one that alone it fails on, too. */
static bool engine_is_failing_alone(const struct sequence *seq)
{
    const struct watch *w = &watches[seq->slot_idx];
    struct solo solo;
    if (w->expected.input.sampling.seed >> 48 != 0xFA11 || atomic_load(&slot_of(seq->slot_idx)->cancel))
        return false;
    solo_run(&w->expected, w->prompt, &solo);
    return solo.end == SOLO_BAD_ROW && seq->num_tokens - seq->num_prompt == solo.num_tokens &&
           !engine_failed(world.engine) && !world.ending && !world.aborted;
}

/* What a failed request computed may be wrong: nobody may find it. */
void __wrap_scheduler_finish(struct scheduler *s, int32_t seq_id, bool reusable)
{
    engine_may_die(50);
    int32_t blocks[KV_GROUPS_MAX * (MODEL_LEN / BLOCK_SIZE + 1)], num_blocks = 0;
    const struct sequence *seq = &s->sequences[seq_id];
    bool failed = watches[seq->slot_idx].active && engine_is_failing_alone(seq);
    for (int32_t g = 0; g < s->options.kv_groups.count && seq->state == SEQUENCE_RUNNING; g++) {
        const struct kv_table *table = kv_tables_get(s->tables, seq->batch_slot, g);
        for (int32_t i = table->begin; i < table->end; i++) blocks[num_blocks++] = table->block_ids[i];
    }
    __real_scheduler_finish(s, seq_id, reusable);
    for (int32_t i = 0; i < num_blocks && failed; i++)
        expect(!block_manager_is_known(s->blocks, blocks[i]), "blocks of a failed request can be found");
}

static bool in_turn; /* the engine is at work: slots and counters change one after the other */

static void (*real_evict)(void *context, int32_t block_id);

static void evict(void *context, int32_t block_id)
{
    mark(block_id < world.num_blocks ? MARK_evictions : MARK_states_evicted);
    real_evict(context, block_id);
}

void __wrap_block_manager_on_evict(struct block_manager *bm, void (*f)(void *context, int32_t block_id),
                                   void *context)
{
    real_evict = f;
    __real_block_manager_on_evict(bm, evict, context);
}

/* ---- launched steps ---- */

static void note_places(const struct step *step, int32_t seq_idx, uint32_t tenant)
{
    for (int32_t g = 0; g < step_num_kv_groups(step); g++)
        for (int32_t t = step->cu_seqlens_q[seq_idx]; t < step->cu_seqlens_q[seq_idx + 1]; t++)
            tenant_of_place[step_slot_mapping(step, g)[t]] = tenant;
}

/* Of one group: whoever writes a block or sees a token in it holds the block, and has all of it from its own tenant. */
static void check_places(const struct step *step, int32_t seq_idx, int32_t group, const struct watch *w)
{
    const struct block_manager *blocks = world.engine->scheduler->blocks;
    const int32_t *table =
        step_block_tables(step, group) + (size_t)seq_idx * (size_t)step->block_table_stride;
    int32_t window = world.kv_groups.groups[group].window,
            first = step->positions[step->cu_seqlens_q[seq_idx]];
    bool is_chunk = world.kv_groups.groups[group].is_chunk;
    int32_t p = window == 0 ? 0 : is_chunk ? first - first % window : max_of(first + 1 - window, 0);
    if (p >= BLOCK_SIZE) mark(is_chunk ? MARK_chunks_moved_on : MARK_windows_moved_on);
    for (; p < step->seqlens_k[seq_idx]; p++) {
        int32_t block_id = table[p / BLOCK_SIZE];
        expect(block_manager_ref_count(blocks, block_id) >= 1, "%s: block %d of group %d is nobody's",
               w->request->id, p / BLOCK_SIZE, group);
        expect(tenant_of_place[block_id * BLOCK_SIZE + p % BLOCK_SIZE] == w->tenant,
               "%s: position %d is another tenant's", w->request->id, p);
    }
}

/* S10, B9: none that was cancelled before the turn; nobody reads what another tenant wrote. */
static void check_entry(const struct step *step, int32_t seq_idx, const struct plan_entry *entry)
{
    const struct scheduler *s = world.engine->scheduler;
    const struct sequence *seq = &s->sequences[entry->seq_id];
    const struct watch *w = &watches[seq->slot_idx];
    expect(w->active, "a step for a slot that nobody waits for");
    expect(!w->cancelled_before_turn, "%s: a step after it was cancelled", w->request->id);
    expect(seq->state == SEQUENCE_RUNNING, "%s: a step in state %d", w->request->id, seq->state);
    if (world.window > 0 && entry->admitted && seq->num_cached_tokens > world.window) mark(MARK_window_hits);
    for (int32_t g = 0; g < world.kv_groups.count; g++) check_places(step, seq_idx, g, w);
    if (entry->position == 0) tenant_of_slot[seq->batch_slot] = w->tenant;
    expect(world.num_states == 0 || tenant_of_slot[seq->batch_slot] == w->tenant,
           "%s goes on from another tenant's state", w->request->id);
    trace((uint64_t)entry->seq_id << 48 ^ (uint64_t)entry->position << 16 ^ (uint64_t)entry->num_tokens);
}

void watch_copy(bool save, const int32_t *block_ids, const int32_t *host_ids, int32_t num_blocks)
{
    size_t bytes = BLOCK_SIZE * sizeof(uint32_t);
    if (!tenant_of_saved) tenant_of_saved = keep_alloc((size_t)world.num_host_blocks * bytes);
    for (int32_t i = 0; i < num_blocks; i++) {
        uint32_t *place = &tenant_of_place[block_ids[i] * BLOCK_SIZE],
                 *saved = &tenant_of_saved[host_ids[i] * BLOCK_SIZE];
        memcpy(save ? saved : place, save ? place : saved, bytes);
        if (save) continue;
        expect(block_manager_ref_count(world.engine->scheduler->blocks, block_ids[i]) >= 1,
               "K and V come back into a block that nobody holds");
        mark(MARK_work_restored);
    }
}

void watch_state_copies(const struct state_copy *copies, int32_t num_copies)
{
    for (int32_t i = 0; i < num_copies; i++) {
        const struct state_copy *c = &copies[i];
        expect(c->position > 0 && c->position <= MODEL_LEN, "a state of %d tokens", c->position);
        uint32_t *slot = &tenant_of_slot[c->batch_slot], *state = &tenant_of_state[c->state];
        *(c->keeps ? state : slot) = *(c->keeps ? slot : state);
        mark(c->keeps ? MARK_states_kept : MARK_states_went_on);
    }
}

bool watch_plan_is_fatal(const struct plan *plan, bool at_launch)
{
    for (int32_t i = 0; i < plan_num_entries(plan); i++) {
        const struct plan_entry *e = plan_get_entry(plan, i);
        struct watch *w = &watches[scheduler_sequence(world.engine->scheduler, e->seq_id)->slot_idx];
        const struct request *r = w->request;
        int32_t p = w->active ? request_fatal_position(r, w->expected.input.num_prompt_tokens) : -1;
        if (p < e->position || p >= e->position + e->num_tokens || at_launch != r->kills_at_launch) continue;
        say("%s kills", r->id);
        w->num_kills++;
        expect(w->num_kills <= KILLS_MAX || has(FEATURE_engine_deaths) || world.device_may_fail,
               "%s has killed %d engines", r->id, w->num_kills);
        return true;
    }
    return false;
}

/* A decoding row may read blocks ahead of what a step's other rows write, where no prompt is among them: it shares none of theirs
 * that is new to it. */
static void check_early_reads(const struct step *step, int32_t seq_idx)
{
    int32_t num_blocks = (step->seqlens_k[seq_idx] - 1) / BLOCK_SIZE, slot = step->batch_slots[seq_idx];
    for (int32_t g = 0; g < step_num_kv_groups(step); g++) {
        const int32_t *table = step_block_tables(step, g) + (int64_t)seq_idx * step->block_table_stride,
                      *places = step_slot_mapping(step, g);
        for (int32_t other = 0; other < step->num_seqs; other++)
            for (int32_t t = step->cu_seqlens_q[other]; t < step->cu_seqlens_q[other + 1]; t++)
                for (int32_t i = 0; i < num_blocks && step->batch_slots[other] != slot; i++)
                    expect(places[t] / BLOCK_SIZE != table[i], "a decoding row reads what another writes");
    }
}

static void mark_shared_answers(const struct scheduler *s, const struct plan *plan)
{
    for (int32_t i = 0; i < plan_num_entries(plan); i++) {
        const struct sequence *seq = &s->sequences[plan_get_entry(plan, i)->seq_id];
        if (seq->state == SEQUENCE_RUNNING && seq->num_cached_tokens > watches[seq->slot_idx].first_answer)
            mark(MARK_answers_shared);
    }
}

/* A run of an entry, whose sequences of the step begin with seq_idx. */
struct run_place {
    const struct plan_entry *entry;
    const struct plan_run *run;
    int32_t position, seq_idx, num_seqs;
};

static void note_run(const struct step *step, const struct run_place *r)
{
    int32_t slot_idx = world.engine->scheduler->sequences[r->entry->seq_id].slot_idx;
    for (int32_t k = 0; k < r->num_seqs; k++) note_places(step, r->seq_idx + k, watches[slot_idx].tenant);
}

static void check_run(const struct step *step, const struct run_place *r)
{
    const struct sequence *seq = &world.engine->scheduler->sequences[r->entry->seq_id];
    int32_t end = r->position + r->run->num_tokens;
    expect(step->seqlens_k[r->seq_idx + r->num_seqs - 1] == end, "a run is somewhere else");
    for (int32_t k = 0; k < r->num_seqs; k++) check_entry(step, r->seq_idx + k, r->entry);
    if (!r->run->decodes) return;
    if (r->entry->admitted && step->num_prefill_seqs == 0) check_early_reads(step, r->seq_idx);
    if (r->run->num_tokens > 1) mark(MARK_replayed_in_runs);
    if (r->position < seq->num_prompt) mark(MARK_answers_replayed);
    if (r->position + 1 < seq->num_tokens && seq->num_preemptions > 0) mark(MARK_replayed_by_decode);
}

/* The step has all runs of one kind, then those of the other. */
static void visit_runs(const struct step *step, const struct plan *plan,
                       void (*visit)(const struct step *step, const struct run_place *r))
{
    struct run_place r = {0};
    for (int decodes = 0; decodes < 2; decodes++)
        for (int32_t i = 0; i < plan_num_entries(plan); i++) {
            r.entry = plan_get_entry(plan, i);
            r.position = r.entry->position;
            if (r.entry->num_runs > 1) mark(MARK_runs_mixed);
            for (int32_t k = 0; k < r.entry->num_runs; k++, r.position += r.run->num_tokens) {
                r.run = &plan->runs[r.entry->first_run + k];
                if (r.run->decodes != decodes) continue;
                r.num_seqs = decodes ? r.run->num_tokens : 1;
                visit(step, &r);
                r.seq_idx += r.num_seqs;
            }
        }
    expect(r.seq_idx == step->num_seqs, "the step has other sequences than its plan");
}

const struct plan *watch_step(const struct step *step)
{
    const struct engine *e = world.engine;
    int newest = (e->oldest_flight + e->num_in_flight - 1) % e->limits.num_steps_in_flight;
    const struct plan *plan = &e->flights[newest].plan;
    if (!tenant_of_place)
        tenant_of_place = keep_alloc((size_t)world.num_blocks * BLOCK_SIZE * sizeof(uint32_t));
    visit_runs(step, plan, note_run);
    visit_runs(step, plan, check_run);
    mark_shared_answers(e->scheduler, plan);
    if (e->scheduler->closing.count > 0) mark(MARK_closing_sequences);
    judge_launch(e, plan);
    return plan;
}

/* ---- after a turn ---- */

/* Of those who wait the one that nobody may pass, or that is due first. */
static const struct sequence *first_waiting(const struct scheduler *s)
{
    const struct sequence *first = s->urgent.count > 0 ? &s->sequences[s->urgent.head] : NULL;
    for (int32_t i = 0; i < s->num_active && s->urgent.count == 0; i++) {
        int32_t id = s->tenants[s->active[i]].waiting.head;
        if (id != NO_SEQUENCE && (!first || policy_is_due_before(&s->sequences[id], first)))
            first = &s->sequences[id];
    }
    return first;
}

/* Blocks that must remain when it comes in: of those who were preempted, for a while. */
static int32_t room_beside(const struct scheduler *s, const struct sequence *head)
{
    int32_t each = head->num_preemptions > 0 ? ROOM_BLOCKS * (s->running.count + 1) : s->running.count;
    return each * world.kv_groups.count;
}

/* Places that its tenant and its owner leave to others while they have some; none of an urgent one's. */
static int32_t places_left_free(const struct scheduler *s, const struct sequence *head)
{
    return s->urgent.count > 0 ? 0 : tenants_places_left_free(s, head->tenant, 0);
}

/* S8: the head of the queue is not left waiting while there is room for it. A step in which another owner's, that had nothing
 * running, passed an urgent one does not count: that one may have had the last place and have ended already. */
static void check_work_conservation(const struct engine *e)
{
    const struct scheduler *s = e->scheduler;
    const struct sequence *head = first_waiting(s);
    uint64_t steps = atomic_load(&e->counters->num_steps);
    int newest = (e->oldest_flight + max_of(e->num_in_flight, 1) - 1) % e->limits.num_steps_in_flight;
    const struct plan *plan = &e->flights[newest].plan;
    bool fits = head && s->running.count + places_left_free(s, head) < s->options.max_num_seqs &&
                s->num_free_batch_slots > 0 && plan->num_tokens < s->options.max_num_batched_tokens &&
                plan->num_logits < s->options.max_num_logits && isinf(plan->us_left) &&
                plan_num_step_seqs(plan) < s->options.max_num_rows &&
                block_manager_num_available(s->blocks) >=
                    kv_groups_num_blocks_max(&world.kv_groups, head->num_tokens) + room_beside(s, head);
    if (!fits || head->arrival != head_arrival || policy_urgent_was_passed()) head_waits_for = 0;
    if (fits) head_arrival = head->arrival;
    if (steps == last_steps) return;
    last_steps = steps;
    expect(head_waits_for++ < PATIENCE_STEPS, "the oldest waiting request fits and is not admitted");
}

/* S9: who was passed over too often is passed over no more; a preempted one never. */
static void check_aging(const struct scheduler *s)
{
    for (int32_t id = 0; id < s->num_sequences; id++) {
        const struct sequence *seq = &s->sequences[id];
        if (seq->state != SEQUENCE_WAITING) continue;
        if (seq->num_bypassed > 0 && seq->num_preemptions == 0) mark(MARK_bypassed);
        if (seq->num_bypassed >= BYPASS_MAX && seq->num_preemptions == 0) mark(MARK_aged);
        expect(seq->num_bypassed <= BYPASS_MAX, "a request was bypassed %d times", seq->num_bypassed);
        expect(seq->num_preemptions == 0 || watches[seq->slot_idx].is_displaced ||
                   seq->num_bypassed == BYPASS_MAX,
               "a preempted one was bypassed");
    }
}

/* L2, B1 as the metrics see them. */
static void check_stats(const struct link *link)
{
    static struct link_stats before;
    struct link_stats s;
    link_stats(link, &s);
    expect(s.num_free_blocks + s.num_cached_blocks + s.num_held_blocks == world.num_blocks, "blocks");
    uint64_t on_the_way = 0;
    for (int i = 0; i < SLOTS_MAX; i++)
        if (watches[i].active) on_the_way += (uint64_t)watches[i].num_seen;
    expect(s.generated_tokens == num_delivered + on_the_way + s.discarded_tokens,
           "%llu tokens generated, %llu delivered, %llu on the way, %llu discarded",
           (unsigned long long)s.generated_tokens, (unsigned long long)num_delivered,
           (unsigned long long)on_the_way, (unsigned long long)s.discarded_tokens);
    expect(s.num_free_host_blocks >= 0 && s.num_free_host_blocks <= world.num_host_blocks, "host blocks");
    report->markers[MARK_preemptions] += s.num_preemptions - before.num_preemptions;
    report->markers[MARK_prefix_hits] += s.prefix_hit_tokens - before.prefix_hit_tokens;
    report->markers[MARK_rows_withheld] += s.num_withheld - before.num_withheld;
    report->markers[MARK_drafts_accepted] += s.accepted_tokens - before.accepted_tokens;
    if (has(FEATURE_states))
        report->markers[MARK_states_drafted] += s.accepted_tokens - before.accepted_tokens;
    report->markers[MARK_drafts_rejected] +=
        s.draft_tokens - before.draft_tokens - (s.accepted_tokens - before.accepted_tokens);
    report->markers[MARK_discarded_tokens] += s.discarded_tokens - before.discarded_tokens;
    if (s.num_free_blocks + s.num_cached_blocks == 0) mark(MARK_full_pools);
    before = s;
}

/* What admission takes for waiting is what has had no step. */
static void check_waiting(void)
{
    const struct admission *a = &world.server->api->admission;
    uint64_t num_waiting = 0, num_tokens = 0, limit = world.server->facts->max_queued_tokens;
    if (!world.server->slots) return;
    struct link_stats stats;
    link_stats(world.server->link, &stats);
    for (int32_t i = 0; i < request_slots_count(world.server->slots); i++) {
        const struct request_slot *slot = __real_request_slots_get(world.server->slots, i);
        if (!watches[i].active || slot->scheduled_ns > 0 || atomic_load(&slot->finish_reason) != FINISH_NONE)
            continue;
        num_waiting++;
        num_tokens += (uint64_t)slot->input.num_prompt_tokens;
    }
    uint64_t counted = a->submitted_prompt_tokens - stats.dequeued_prompt_tokens;
    bool changes = in_turn || !world.engine; /* one that has died is counted anew once that is known */
    expect(changes || (num_waiting == admission_num_waiting(a, &stats) && num_tokens == counted),
           "admission counts %llu sequences with %llu tokens, there are %llu with %llu",
           (unsigned long long)admission_num_waiting(a, &stats), (unsigned long long)counted,
           (unsigned long long)num_waiting, (unsigned long long)num_tokens);
    expect(limit == 0 || counted <= max_of(limit, MODEL_LEN), "%llu tokens wait, at most %llu may",
           (unsigned long long)counted, (unsigned long long)limit);
}

/* The loop's side. */
static void check_loop(void)
{
    const struct api *api = world.server->api;
    int num_generations = 0, num_admitted = 0, num_acquired = 0;
    for (const struct generation *g = api->generations; g; g = g->next) {
        num_generations++;
        num_admitted += g->admitted;
        expect(!g->admitted || g->x, "an admitted request without a client");
        for (int i = 0; i < g->num_choices; i++) {
            int32_t slot_idx = g->choices[i].slot_idx;
            num_acquired += slot_idx >= 0;
            if (g->x || slot_idx < 0 || !watches[slot_idx].active) continue;
            const struct request_slot *slot = __real_request_slots_get(world.server->slots, slot_idx);
            expect(atomic_load(&slot->cancel) || atomic_load(&slot->finish_reason) != FINISH_NONE,
                   "%s: the client is gone and the engine goes on", watches[slot_idx].request->id);
        }
    }
    expect(num_generations == api->num_generations && num_admitted == api->num_admitted, "the ledger");
    expect(num_generations > 0 || api->num_unread_bytes == 0, "copies of slots are left");
    expect(num_generations > 0 || api->num_kept_slots == 0, "%d slots count as kept", api->num_kept_slots);
    int num_slots = request_slots_count(world.server->slots);
    expect(num_acquired == num_slots - request_slots_num_free(world.server->slots), "slots are lost");
    check_waiting();
}

void watch_loop(void)
{
    if (world.server && world.server->api) check_loop();
    if (world.listener && !world.ending) check_listener(world.listener);
}

/* One that waits at the front is not the engine's to end. */
static void begin_turn(void)
{
    in_turn = true;
    for (int i = 0; i < SLOTS_MAX && world.server; i++)
        watches[i].cancelled_before_turn =
            watches[i].active && watch_slot(i)->with_engine && atomic_load(&watch_slot(i)->cancel);
}

/* The loop looks at deadlines a few times a second; what it cancels, the engine ends within a turn. */
static void check_deadline(const struct watch *w, int32_t slot_idx)
{
    const struct request_slot *slot = watch_slot(slot_idx);
    uint64_t deadline_ns = slot->input.deadline_ns;
    if (deadline_ns == 0 || atomic_load(&slot->cancel)) return;
    expect(now_ns() < deadline_ns + DEADLINE_SLACK_NS, "%s runs %.3f s after its deadline", w->request->id,
           (double)(now_ns() - deadline_ns) * 1e-9);
}

static void end_turn(const struct engine *e)
{
    in_turn = false;
    int32_t num_slots = world.server ? request_slots_count(world.server->slots) : 0;
    bool gives_up = engine_failed(e) && e->options.leaves_requests; /* everything stays as it is */
    for (int32_t i = 0; i < num_slots; i++) {
        struct watch *w = &watches[i];
        if (!w->active) continue;
        check_deadline(w, i);
        look_at_tokens(w, i);
        look_at_finish(w, i);
        bool finished = atomic_load(&__real_request_slots_get(world.server->slots, i)->finish_reason);
        expect(!w->cancelled_before_turn || finished || gives_up,
               "%s: cancelled and not finished within a turn", w->request->id);
        if (w->cancelled_before_turn) mark(MARK_finished_within_a_turn);
    }
    if (!gives_up) engine_check(e);
    check_work_conservation(e);
    check_aging(e->scheduler);
    if (world.server) check_stats(e->link);
}

/* ---- after a death ---- */

/* The counter and the count that it counts are stored together. */
static void look_for_the_last_time(struct watch *w, int32_t slot_idx)
{
    look_at_tokens(w, slot_idx);
    look_at_finish(w, slot_idx);
    w->cancelled_before_turn = false;
    w->submitted_ns = 0;
    w->num_passed = 0;
    if (!watch_is_unfinished(slot_idx)) return;
    if (w->due != FINISH_NONE && w->num_seen > 0) mark(MARK_left_over_finish);
    if (w->num_seen > 0) w->request->was_handed_over = true;
}

void watch_death(void)
{
    if (is_publishing) mark(MARK_engine_died_while_publishing);
    is_publishing = in_turn = false;
    head_waits_for = 0;
    policy_forget();
    tenants_forget();
    if (tenant_of_place)
        memset(tenant_of_place, 0, (size_t)world.num_blocks * BLOCK_SIZE * sizeof(*tenant_of_place));
    for (int32_t i = 0; i < SLOTS_MAX; i++)
        if (watches[i].active) look_for_the_last_time(&watches[i], i);
    if (world.server) check_stats(world.server->link);
}

static void mark_form_draft(const struct plan_entry *entry)
{
    if (entry->num_drafted == 0) return;
    if (entry->num_accepted > 0) mark(MARK_form_drafts_accepted);
    if (entry->num_accepted < entry->num_verified) mark(MARK_form_drafts_rejected);
    if (entry->num_verified < entry->num_drafted && !entry->withheld) mark(MARK_form_drafts_cut);
    if (entry->withheld) mark(MARK_form_drafts_withheld);
}

void __wrap_engine_publish_entry(struct engine *e, struct plan_entry *entry, const struct sample_result *rows)
{
    const struct sequence *seq = scheduler_sequence(e->scheduler, entry->seq_id);
    bool is_formed = e->drafters[seq->slot_idx].source == DRAFTER_IS_TOLD,
         is_predicted = e->drafters[seq->slot_idx].num_predicted > 0;
    is_publishing = true;
    __real_engine_publish_entry(e, entry, rows);
    if (is_predicted && entry->num_accepted > 0) mark(MARK_predictions_accepted);
    if (is_predicted && entry->num_accepted < entry->num_verified) mark(MARK_predictions_rejected);
    is_publishing = false;
    if (is_formed) mark_form_draft(entry);
    judge_published();
}

/* The token is stored and not published. */
void __wrap_scheduler_append_token(struct scheduler *s, int32_t seq_id)
{
    if (thread_is_engine()) engine_may_die(20);
    __real_scheduler_append_token(s, seq_id);
}

/* It is published and nobody is asked what may follow. */
void __wrap_link_want_mask(struct link *l, int32_t slot_idx)
{
    engine_may_die(20);
    __real_link_want_mask(l, slot_idx);
}

/* Many of the masks are as much work as those of the dearest forms. */
uint64_t __wrap_mask_maker_work(const struct mask_maker *m)
{
    const uint64_t work = __real_mask_maker_work(m);
    return has(FEATURE_heavy_masks) && work < 8 ? work + HEAVY_WORK : work;
}

/* They are made one by one, in turns: who gets the next one has had no more of it than its tenant's others. */
void __wrap_mask_turns_take(struct mask_turns *t, struct mask_turn *turn, uint64_t work, size_t num)
{
    const uint64_t before = t->tenants[turn->tenant];
    __real_mask_turns_take(t, turn, work, num);
    expect(t->tenants[turn->tenant] >= before + work && t->last >= before,
           "a tenant's masks cost it nothing");
    if (num > 1) mark(MARK_heavy_masks_took_turns);
}

/* An engine that has nothing to do shows it. */
static void check_idle(const struct engine *e)
{
    struct link_stats s;
    link_stats(e->link, &s);
    expect(s.num_running == 0 && s.num_waiting == 0 && s.num_held_blocks == 0,
           "an idle engine shows %d sequences that run, %d that wait, %d blocks held", s.num_running,
           s.num_waiting, s.num_held_blocks);
}

bool __wrap_engine_step(struct engine *e)
{
    uint64_t steps = atomic_load(&e->counters->num_steps);
    begin_turn();
    heap_forbid(!world.exit_code && !world.device_may_fail);
    bool worked = __real_engine_step(e);
    heap_forbid(false);
    note_device_failure();
    end_turn(e);
    sim_device_spoil_freed(e->scheduler->blocks);
    report->num_turns++;
    report->num_steps += atomic_load(&e->counters->num_steps) - steps;
    report->now_ns = now_ns();
    trace(now_ns());
    if (!worked && !engine_failed(e)) check_idle(e);
    if (!worked) thread_linger(); /* the moment before it sleeps */
    thread_pause();
    return worked;
}
