/* policy.c - the scheduler alone over traces, on machines that take what their prices say: which requests keep their limits at
 * which load, and what tenants get under a flood. Nothing here depends on the machine that it runs on.
 *
 *   policy [--machine cpu|gpu] [--trace conversation|code|mooncake] [--requests N] [--seed S] [--flood SECONDS] [--late US]
 *          [--beside TOKENS] [--guest SECONDS]
 *
 * Two policies over the same requests: flashd's; and vLLM's as its documents have it (decoding first, prompts in chunks, first
 * come first served, a fixed number of tokens a step, which the target has time for, preempted ones compute again), which is
 * the same scheduler without prices. A request keeps its limits when its first token comes within five times what its prompt takes alone and two
 * steps, and all but one in a hundred of its gaps are at most twice the target. Time to first token of short prompts (under
 * half of the median) beside it. --flood: tenants of weights 3:1 and 4:2:1 that always have requests waiting, of different
 * kinds, and their shares of the machine's time and of tokens. --late: a step is planned so long before the one in flight ends,
 * instead of when the engine would plan it; -1: as soon as that has begun. --beside: first tokens of short prompts alone and
 * beside clients that keep sending prompts of so many tokens, gaps of streams beside these, and prompt tokens a second.
 * --guest: first tokens and gaps of a tenant that has one short chat after the other, alone and beside another's flood. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/load_trace.h"
#include "engine/step_pace.h"
#include "scheduler/scheduler.h"

enum { REQUESTS_MAX = 4096, TENANTS_MAX = 3, FLIGHTS_MAX = 2, GAPS_MAX = 100000 };
enum { LEARNED = -2, AT_ONCE = -1 }; /* for late_us */
static const double HOST_US = 400;   /* what the engine would see of its host */

struct machine {
    const char *name;
    struct step_prices prices;
    double target_us, scale; /* scale: of a trace's lengths */
    int32_t max_num_seqs, max_num_batched_tokens, max_model_len, num_blocks;
    int num_flights;
    bool prefill_decode_equal;
};

/* SmolLM2-135M on two processors, an 8B model on an H200; roughly. */
static const struct machine machines[] = {
    {"cpu", {550, 0.12, 3000, 550, 0.1, 4700, 90, 0, 0, 1, 0, 0}, 50000, 0.25, 64, 512, 8192, 4096, 1, true},
    {"gpu",
     {22, 0.0008, 2000, 8, 0.033, 3800, 200, 0, 0, 128, 0, 0},
     25000,
     1,
     256,
     1024,
     131072,
     40000,
     2,
     false},
};

struct request {
    double arrival_us, first_us, last_us;
    int32_t num_prompt, num_answer, group, tenant;
    int32_t num_tokens, num_late; /* drawn; gaps over the limit */
    int32_t *tokens;
};

/* One run: a scheduler, a device, time. */
struct run {
    const struct machine *machine;
    struct scheduler *scheduler;
    struct plan plans[FLIGHTS_MAX];
    double end_us[FLIGHTS_MAX], device_us, now_us, late_us;
    struct step_pace pace;
    int oldest, num_flights;
    struct request *requests;
    int num_requests, next, num_finished;
    void (*on_finish)(struct run *r, struct request *request);    /* may be NULL */
    void (*on_gap)(struct run *r, const struct request *request); /* a token but the first; may be NULL */
    double gaps_ms[GAPS_MAX];
    int num_gaps;
    double weights[TENANTS_MAX], service_us[TENANTS_MAX], tokens[TENANTS_MAX];
    int num_tenants;
};

/* What a step without context has time for: how a fixed number of tokens is chosen for a target. */
static int32_t fixed_tokens(const struct machine *m)
{
    int32_t num_tokens = (int32_t)((m->target_us - m->prices.prompt_step) / m->prices.prompt_token);
    return max_of(min_of(num_tokens, m->max_num_batched_tokens), m->max_num_seqs);
}

static void create(struct run *r, const struct machine *m, bool has_prices)
{
    struct scheduler_options options = {.max_num_seqs = m->max_num_seqs,
                                        .max_num_batched_tokens =
                                            has_prices ? m->max_num_batched_tokens : fixed_tokens(m),
                                        .max_num_rows = m->max_num_seqs,
                                        .max_num_logits = m->max_num_seqs,
                                        .max_model_len = m->max_model_len,
                                        .num_batch_slots = m->max_num_seqs * m->num_flights,
                                        .max_num_sequences = REQUESTS_MAX,
                                        .kv_groups = {.count = 1},
                                        .num_blocks = m->num_blocks,
                                        .num_host_blocks = has_prices ? m->num_blocks / 4 : 0,
                                        .target_us = has_prices ? m->target_us : 0,
                                        .enable_prefix_caching = true,
                                        .prefill_decode_equal = m->prefill_decode_equal,
                                        .model_key = "",
                                        .model_key_bytes = 0};
    *r = (struct run){.machine = m, .late_us = LEARNED};
    step_pace_init(&r->pace);
    assert_always(scheduler_create(&options, &r->scheduler, NULL) == 0);
    for (int i = 0; i < FLIGHTS_MAX; i++)
        assert_always(plan_init(&r->plans[i], m->max_num_seqs, m->max_num_seqs, options.num_host_blocks) ==
                      0);
    if (has_prices) scheduler_set_prices(r->scheduler, &m->prices);
}

static void destroy(struct run *r)
{
    for (int i = 0; i < FLIGHTS_MAX; i++) plan_deinit(&r->plans[i]);
    for (int i = 0; i < r->num_requests; i++) free(r->requests[i].tokens);
    free(r->requests);
    scheduler_destroy(r->scheduler);
}

/* Prompts of a group begin alike, as far as its prefix goes. */
static void make_tokens(struct request *q, int idx, int32_t prefix)
{
    int32_t count = q->num_prompt + q->num_answer;
    q->tokens = malloc((size_t)count * sizeof *q->tokens);
    assert_always(q->tokens);
    for (int32_t i = 0; i < count; i++)
        q->tokens[i] = (i < prefix ? q->group : 1000 + idx) * 65536 + i % 65536;
}

static void submit(struct run *r, int idx)
{
    const struct request *q = &r->requests[idx];
    struct sequence_input input = {.slot_idx = idx,
                                   .tokens = q->tokens,
                                   .num_prompt = q->num_prompt,
                                   .max_tokens = q->num_answer,
                                   .salt = "",
                                   .tenant_id = (uint64_t)q->tenant,
                                   .weight = r->weights[q->tenant],
                                   .owner_leaves_places = r->num_tenants > 1,
                                   .arrival_us = (uint64_t)q->arrival_us};
    int32_t seq_id;
    assert_always(scheduler_add(r->scheduler, &input, &seq_id) == 0);
}

static void submit_due(struct run *r)
{
    while (r->next < r->num_requests && r->requests[r->next].arrival_us <= r->now_us) submit(r, r->next++);
}

static void end_entry(struct run *r, const struct plan_entry *e)
{
    const struct sequence *seq = scheduler_sequence(r->scheduler, e->seq_id);
    struct request *q = &r->requests[seq->slot_idx];
    if (!scheduler_end_entry(r->scheduler, e)) return;
    if (!e->samples) return;
    scheduler_append_token(r->scheduler, e->seq_id);
    if (q->num_tokens++ == 0)
        q->first_us = r->now_us;
    else
        q->num_late += r->now_us - q->last_us > 2 * r->machine->target_us;
    if (q->num_tokens > 1 && r->on_gap) r->on_gap(r, q);
    q->last_us = r->now_us;
    r->tokens[q->tenant] += q->num_tokens == 1 ? q->num_prompt + 1 : 1;
    if (q->num_tokens < q->num_answer) return;
    scheduler_finish(r->scheduler, e->seq_id, true);
    r->num_finished++;
    if (r->on_finish) r->on_finish(r, q);
}

static void end_step(struct run *r)
{
    const struct plan *plan = &r->plans[r->oldest];
    r->now_us = fmax(r->now_us, r->end_us[r->oldest]);
    r->oldest = (r->oldest + 1) % FLIGHTS_MAX;
    r->num_flights--;
    scheduler_end_step(r->scheduler);
    for (int32_t i = 0; i < plan->num_prefills; i++) end_entry(r, &plan->prefills[i]);
    for (int32_t i = 0; i < plan->num_decodes; i++) end_entry(r, &plan->decodes[i]);
}

/* Time that an entry takes of its own, and its part of what the step takes in any case. */
static void count_service(struct run *r, const struct plan *plan, double us)
{
    const struct step_prices *p = &r->machine->prices;
    double own = 0, mine[TENANTS_MAX] = {0};
    for (int32_t i = 0; i < plan_num_entries(plan); i++) {
        bool decodes = i >= plan->num_prefills;
        const struct plan_entry *e = plan_get_entry(plan, i);
        double entry_us = decodes ? step_prices_decode_us(p, e->position, e->num_tokens)
                                  : step_prices_prompt_us(p, e->position, e->num_tokens);
        mine[r->requests[scheduler_sequence(r->scheduler, e->seq_id)->slot_idx].tenant] += entry_us;
        own += entry_us;
    }
    for (int i = 0; i < TENANTS_MAX; i++) r->service_us[i] += mine[i] / own * us;
}

static void begin_step(struct run *r)
{
    int idx = (r->oldest + r->num_flights++) % FLIGHTS_MAX;
    const struct plan *plan = &r->plans[idx];
    double us = step_prices_us(&r->machine->prices, &plan->work) +
                r->machine->prices.block_copy * (plan->saves.count + plan->loads.count);
    count_service(r, plan, us);
    r->device_us = r->end_us[idx] = fmax(r->now_us, r->device_us) + us;
}

/* Until the next plan is made, beside a step in flight. */
static void wait_for_turn(struct run *r)
{
    double us = r->plans[r->oldest].us, late_us = r->late_us;
    if (r->num_flights != 1 || late_us == AT_ONCE || r->machine->num_flights == 1) return;
    if (late_us == LEARNED) {
        late_us = us - fmax(step_pace_wait_us(&r->pace, us), 0);
        step_pace_learn(&r->pace, HOST_US, us, us, false);
    }
    r->now_us = fmax(r->now_us, r->device_us - late_us);
}

static void run_until(struct run *r, double us)
{
    while (r->now_us < us && (r->next < r->num_requests || !scheduler_is_empty(r->scheduler))) {
        wait_for_turn(r);
        submit_due(r);
        struct plan *plan = &r->plans[(r->oldest + r->num_flights) % FLIGHTS_MAX];
        bool is_full = r->num_flights == r->machine->num_flights;
        if (!is_full && scheduler_plan(r->scheduler, plan) == SCHEDULE_STEP)
            begin_step(r);
        else if (r->num_flights > 0)
            end_step(r);
        else if (r->next < r->num_requests)
            r->now_us = r->requests[r->next].arrival_us;
    }
}

/* ---- limits over load ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double alone_us(const struct machine *m, const struct request *q)
{
    double num_steps = ceil((double)q->num_prompt / m->max_num_batched_tokens);
    return step_prices_prompt_us(&m->prices, 0, q->num_prompt) + num_steps * m->prices.prompt_step;
}

static bool keeps_limits(const struct machine *m, const struct request *q)
{
    bool first = q->first_us - q->arrival_us <= 5 * alone_us(m, q) + 2 * m->target_us;
    return first && q->num_late <= q->num_tokens / 100;
}

static int32_t length(const struct machine *m, uint64_t *state, double median, double spread)
{
    int tokens = trace_length(state, median * m->scale, spread);
    return min_of(tokens, m->max_model_len / 2);
}

static void make_requests(struct run *r, const struct trace_shape *shape, double rate, int count,
                          uint64_t seed)
{
    const struct machine *m = r->machine;
    uint64_t state = seed * 7919 + 1;
    double at_s = 0;
    r->requests = calloc((size_t)count, sizeof *r->requests);
    r->num_requests = count;
    for (int i = 0; i < count; i++) {
        struct request *q = &r->requests[i];
        at_s += trace_gap(&state, rate, shape->burst);
        q->arrival_us = at_s * 1e6;
        q->num_prompt = length(m, &state, shape->input, shape->input_spread);
        q->num_answer = length(m, &state, shape->output, shape->output_spread);
        q->group = shape->num_groups > 0 ? (int32_t)(trace_uniform(&state) * shape->num_groups) : 0;
        make_tokens(q, i, (int32_t)(shape->prefix * m->scale));
    }
}

struct outcome {
    double kept, short_p99_ms, tokens_per_second;
    uint64_t num_preemptions;
};

static struct outcome outcome_of(struct run *r, const struct trace_shape *shape)
{
    double *first_ms = calloc((size_t)r->num_requests, sizeof *first_ms), num_tokens = 0;
    int num_short = 0, num_kept = 0;
    for (int i = 0; i < r->num_requests; i++) {
        const struct request *q = &r->requests[i];
        num_kept += keeps_limits(r->machine, q);
        num_tokens += q->num_tokens;
        if (q->num_prompt < 0.5 * shape->input * r->machine->scale)
            first_ms[num_short++] = (q->first_us - q->arrival_us) / 1000;
    }
    qsort(first_ms, (size_t)num_short, sizeof *first_ms, compare);
    struct scheduler_stats stats;
    scheduler_stats(r->scheduler, &stats);
    struct outcome o = {100.0 * num_kept / r->num_requests,
                        num_short > 0 ? first_ms[(int)(0.99 * (num_short - 1) + 0.5)] : NAN,
                        num_tokens / (r->now_us / 1e6), stats.num_preemptions};
    free(first_ms);
    return o;
}

static struct outcome measure(const struct machine *m, const struct trace_shape *shape, double rate,
                              int count, uint64_t seed, bool has_prices, double late_us)
{
    struct run r;
    create(&r, m, has_prices);
    r.late_us = late_us;
    make_requests(&r, shape, rate, count, seed);
    run_until(&r, INFINITY);
    assert_always(r.num_finished == count);
    struct outcome o = outcome_of(&r, shape);
    destroy(&r);
    return o;
}

/* Requests a second that the machine's time would suffice for, were each computed in full steps. */
static double full_rate(const struct machine *m, const struct trace_shape *shape)
{
    double input = shape->input * exp(shape->input_spread * shape->input_spread / 2) * m->scale,
           output = shape->output * exp(shape->output_spread * shape->output_spread / 2) * m->scale;
    if (shape->num_groups > 0) input = fmax(input - shape->prefix * m->scale, input / 4);
    double prompt_us = step_prices_prompt_us(&m->prices, (int32_t)(input / 2), (int32_t)input);
    double token_us = step_prices_decode_us(&m->prices, (int32_t)input - 1, 1) + m->prices.decode_step / 16;
    return 1e6 / (prompt_us + output * token_us);
}

static void print_loads(const struct machine *m, const struct trace_shape *shape, int count, uint64_t seed,
                        double late_us)
{
    printf(
        "%s, %s, %d requests: limits kept, %%; first token of short prompts p99, ms; tokens/s; preemptions\n",
        m->name, shape->name, count);
    for (double load = 0.3; load < 1.25; load += 0.1) {
        double rate = load * full_rate(m, shape);
        printf("  %6.2f requests/s", rate);
        for (int i = 0; i < 2; i++) {
            struct outcome o = measure(m, shape, rate, count, seed, i == 0, late_us);
            printf("   %s %5.1f %9.0f %7.0f %4llu", i ? "fixed steps" : "flashd", o.kept, o.short_p99_ms,
                   o.tokens_per_second, (unsigned long long)o.num_preemptions);
        }
        printf("\n");
    }
}

/* ---- beside long prompts ---- */

enum { SHORT_PROMPT = 100, NUM_SHORT = 500, STREAM_PROMPT = 256, LONG_MOST = 3 };

static void ask(struct run *r, int idx, double arrival_us, int32_t num_prompt, int32_t num_answer)
{
    struct request *q = &r->requests[idx];
    free(q->tokens);
    *q = (struct request){.arrival_us = arrival_us, .num_prompt = num_prompt, .num_answer = num_answer};
    make_tokens(q, idx + (int)fmod(arrival_us, 30000), 0);
}

/* Streams and long prompts never end: who had one has another one. */
static void go_on(struct run *r, struct request *q)
{
    int idx = (int)(q - r->requests);
    if (idx < NUM_SHORT) return;
    ask(r, idx, r->now_us, q->num_prompt, q->num_answer);
    submit(r, idx);
}

static void note_gap(struct run *r, const struct request *q)
{
    if (q - r->requests < NUM_SHORT + LONG_MOST || r->num_gaps == GAPS_MAX) return;
    r->gaps_ms[r->num_gaps++] = (r->now_us - q->last_us) / 1000;
}

static void print_beside(const struct machine *m, int32_t num_tokens, int num_long, int num_streams,
                         double late_us)
{
    static double first_ms[NUM_SHORT];
    struct run r;
    uint64_t state = 3;
    double at_us = 1e6;
    create(&r, m, true);
    r.late_us = late_us;
    r.on_finish = go_on;
    r.on_gap = note_gap;
    r.requests = calloc(NUM_SHORT + LONG_MOST + (size_t)num_streams, sizeof *r.requests);
    r.num_requests = NUM_SHORT;
    r.weights[0] = 1;
    double every_s = 12 * step_prices_prompt_us(&m->prices, 0, SHORT_PROMPT) / 1e6;
    for (int i = 0; i < NUM_SHORT; i++, at_us += 1e6 * trace_gap(&state, 1 / every_s, 1))
        ask(&r, i, at_us, SHORT_PROMPT, 1);
    for (int i = 0; i < num_long + num_streams; i++) {
        int idx = NUM_SHORT + i + (i < num_long ? 0 : LONG_MOST - num_long);
        ask(&r, idx, 0, i < num_long ? num_tokens : STREAM_PROMPT, i < num_long ? 1 : 1000);
        submit(&r, idx);
    }
    run_until(&r, at_us);
    for (int i = 0; i < NUM_SHORT; i++)
        first_ms[i] = (r.requests[i].first_us - r.requests[i].arrival_us) / 1000;
    qsort(first_ms, NUM_SHORT - 20, sizeof *first_ms, compare);
    qsort(r.gaps_ms, (size_t)r.num_gaps, sizeof *r.gaps_ms, compare);
    printf("%s, %d clients of %d tokens, %2d streams: first token of %d tokens %5.0f ms median, %5.0f p99",
           m->name, num_long, num_tokens, num_streams, SHORT_PROMPT, first_ms[NUM_SHORT / 2],
           first_ms[(NUM_SHORT - 20) * 99 / 100]);
    printf("; gaps %5.1f median, %5.1f p99; %6.0f tokens/s\n", r.num_gaps ? r.gaps_ms[r.num_gaps / 2] : 0,
           r.num_gaps ? r.gaps_ms[r.num_gaps * 99 / 100] : 0, r.tokens[0] / r.now_us * 1e6);
    r.num_requests = NUM_SHORT + LONG_MOST + num_streams;
    destroy(&r);
}

/* ---- shares under a flood ---- */

struct kind {
    const char *name;
    int32_t prompt, prompt_most, answer, answer_most;
};

static const struct kind kinds[] = {{"mixed", 50, 400, 4, 40},
                                    {"prompts", 800, 1600, 1, 4},
                                    {"answers", 10, 40, 100, 200},
                                    {"stories", 10, 40, 1000, 2000}};

static uint64_t flood_state;
static const struct kind *flood_kinds[TENANTS_MAX];

static int32_t between(int32_t least, int32_t most)
{
    return least + (int32_t)(trace_uniform(&flood_state) * (most - least + 1));
}

static void renew(struct request *q, double arrival_us)
{
    const struct kind *kind = flood_kinds[q->tenant];
    free(q->tokens);
    *q = (struct request){.arrival_us = arrival_us, .tenant = q->tenant};
    q->num_prompt = between(kind->prompt, kind->prompt_most);
    q->num_answer = between(kind->answer, kind->answer_most);
    make_tokens(q, (int)(trace_uniform(&flood_state) * 30000), 0);
}

/* Its client asks again at once. */
static void ask_again(struct run *r, struct request *q)
{
    renew(q, r->now_us);
    submit(r, (int)(q - r->requests));
}

static void print_shares(const struct machine *m, const double *weights, int num_tenants,
                         const int *tenant_kinds, int num_clients, double seconds)
{
    struct machine small = *m;
    small.max_num_seqs = 8;
    struct run r;
    double before_us[TENANTS_MAX], before_tokens[TENANTS_MAX], us = 0, tokens = 0, sum = 0;
    create(&r, &small, true);
    r.on_finish = ask_again;
    r.num_tenants = num_tenants;
    r.num_requests = r.next = num_tenants * num_clients;
    r.requests = calloc((size_t)r.num_requests, sizeof *r.requests);
    for (int i = 0; i < num_tenants; i++) {
        r.weights[i] = weights[i];
        flood_kinds[i] = &kinds[tenant_kinds[i]];
        sum += weights[i];
    }
    for (int i = 0; i < r.num_requests; i++) {
        r.requests[i].tenant = i % num_tenants;
        ask_again(&r, &r.requests[i]);
    }
    run_until(&r, seconds * 0.2e6);
    memcpy(before_us, r.service_us, sizeof before_us);
    memcpy(before_tokens, r.tokens, sizeof before_tokens);
    run_until(&r, seconds * 1.2e6);
    for (int i = 0; i < num_tenants; i++) us += r.service_us[i] - before_us[i];
    for (int i = 0; i < num_tenants; i++) tokens += r.tokens[i] - before_tokens[i];
    printf("  %3d clients each:", num_clients);
    for (int i = 0; i < num_tenants; i++)
        printf("   %s, weight %g: %.1f %% of time (%.1f), %.1f %% of tokens", flood_kinds[i]->name,
               weights[i], 100 * (r.service_us[i] - before_us[i]) / us, 100 * weights[i] / sum,
               100 * (r.tokens[i] - before_tokens[i]) / tokens);
    printf("\n");
    destroy(&r);
}

static void print_flood(const struct machine *m, double seconds)
{
    static const double two[] = {3, 1}, three[] = {4, 2, 1};
    static const int mixes[][3] = {{0, 0, 0}, {1, 2, 0}, {2, 1, 0}, {1, 1, 2}, {2, 2, 1}};
    printf("%s, 8 places, %.0f s\n", m->name, seconds);
    for (size_t i = 0; i < array_length(mixes); i++)
        for (int clients = 6; clients <= 24; clients += 18) {
            print_shares(m, two, 2, mixes[i], clients, seconds);
            print_shares(m, three, 3, mixes[i], clients, seconds);
        }
}

/* ---- one chat beside a flood ---- */

static const struct kind chat = {"chat", 60, 100, 16, 16};
enum { GUEST = 1, CHATS_MAX = 10000 };
static double chats_first_ms[CHATS_MAX];
static int num_chats;

static void note_guests_gap(struct run *r, const struct request *q)
{
    if (q->tenant == GUEST && r->num_gaps < GAPS_MAX)
        r->gaps_ms[r->num_gaps++] = (r->now_us - q->last_us) / 1000;
}

static const double THINKING_US = 200000; /* twice the mean: before its next chat it has nothing running */

static void note_chat(struct run *r, struct request *q)
{
    if (q->tenant != GUEST) {
        ask_again(r, q);
        return;
    }
    if (num_chats < CHATS_MAX) chats_first_ms[num_chats++] = (q->first_us - q->arrival_us) / 1000;
    renew(q, r->now_us + THINKING_US * trace_uniform(&flood_state));
    r->next = (int)(q - r->requests);
}

/* num_clients of the flood; 0: the chats are alone. */
static void print_guest(const struct machine *m, const struct kind *kind, int num_clients, double seconds)
{
    struct run r;
    create(&r, m, true);
    r.on_finish = note_chat;
    r.on_gap = note_guests_gap;
    r.num_tenants = 2;
    r.weights[0] = r.weights[GUEST] = 1;
    r.num_requests = r.next = num_clients + 1;
    r.requests = calloc((size_t)r.num_requests, sizeof *r.requests);
    flood_kinds[0] = kind;
    flood_kinds[GUEST] = &chat;
    num_chats = 0;
    for (int i = 0; i <= num_clients; i++) {
        r.requests[i].tenant = i == num_clients;
        ask_again(&r, &r.requests[i]);
    }
    run_until(&r, seconds * 1e6);
    qsort(chats_first_ms, (size_t)num_chats, sizeof *chats_first_ms, compare);
    qsort(r.gaps_ms, (size_t)r.num_gaps, sizeof *r.gaps_ms, compare);
    struct scheduler_stats stats;
    scheduler_stats(r.scheduler, &stats);
    printf("  %3d clients with %-8s first token %5.0f ms median, %5.0f p99; gaps %5.1f median, %5.1f p99; "
           "chats %5d; %6.0f tokens/s and %llu preemptions of the flood\n",
           num_clients, num_clients ? kind->name : "nothing", chats_first_ms[num_chats / 2],
           chats_first_ms[num_chats * 99 / 100], r.gaps_ms[r.num_gaps / 2], r.gaps_ms[r.num_gaps * 99 / 100],
           num_chats, r.tokens[0] / seconds, (unsigned long long)stats.num_preemptions);
    destroy(&r);
}

static void print_guests(const struct machine *m, double seconds)
{
    struct machine few_places = *m, few_blocks = *m;
    few_places.max_num_seqs = 4;
    few_blocks.num_blocks = 256;
    few_blocks.max_model_len = 256 * BLOCK_SIZE;
    printf("%s, a chat of 60 to 100 tokens and 16 after the other beside a flood of another tenant, %.0f s\n",
           m->name, seconds);
    print_guest(m, &kinds[0], 0, seconds);
    for (size_t i = 0; i < array_length(kinds); i++)
        for (int num_clients = 24; num_clients <= 4 * 24; num_clients *= 4)
            print_guest(m, &kinds[i], num_clients, seconds);
    printf(" 4 places\n");
    for (size_t i = 0; i < array_length(kinds); i++) print_guest(&few_places, &kinds[i], 24, seconds);
    printf(" 256 blocks\n");
    for (size_t i = 0; i < array_length(kinds); i++) print_guest(&few_blocks, &kinds[i], 24, seconds);
}

int main(int argc, char **argv)
{
    const struct machine *machine = NULL;
    const struct trace_shape *shape = NULL;
    int count = 400;
    uint64_t seed = 1;
    double flood_s = 0, guest_s = 0, late_us = LEARNED;
    int32_t beside = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--machine")) machine = &machines[!strcmp(value, "gpu")];
        if (!strcmp(name, "--trace")) shape = trace_shape_find(value);
        if (!strcmp(name, "--requests")) count = min_of(atoi(value), (int)REQUESTS_MAX);
        if (!strcmp(name, "--seed")) seed = strtoull(value, NULL, 10);
        if (!strcmp(name, "--flood")) flood_s = atof(value);
        if (!strcmp(name, "--guest")) guest_s = atof(value);
        if (!strcmp(name, "--late")) late_us = atof(value);
        if (!strcmp(name, "--beside")) beside = atoi(value);
    }
    for (size_t i = 0; i < array_length(machines); i++) {
        if (machine && machine != &machines[i]) continue;
        if (flood_s > 0) print_flood(&machines[i], flood_s);
        if (guest_s > 0) print_guests(&machines[i], guest_s);
        for (int num_long = 0; num_long <= LONG_MOST && beside > 0; num_long++)
            for (int streams = 0; streams <= 32; streams += 16)
                print_beside(&machines[i], beside, num_long, streams, late_us);
        for (const struct trace_shape *one = trace_shapes; one->name && flood_s + guest_s == 0 && beside == 0;
             one++)
            if (!shape || shape == one) print_loads(&machines[i], one, count, seed, late_us);
    }
    return 0;
}
