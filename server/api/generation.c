#include "server/api/generation.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"
#include "config/api_keys.h"
#include "server/api/generation_output.h"
#include "server/api/journal_lines.h"
#include "server/api/loras.h"
#include "server/api/receipt.h"
#include "server/api/moved_stream.h"
#include "server/api/request_log.h"
#include "server/api/request_span.h"
#include "server/api/slot_fill.h"
#include "server/api/slow_readers.h"
#include "server/loop_watch.h"
#include "server/masks.h"
#include "server/span_export.h"

enum {
    INLINE_BODY_BYTES_MAX = 8 << 10, /* preparing longer ones would hold the loop up for milliseconds, */
    SHORT_BODY_BYTES_MAX = 64 << 10, /* and others on the pool for longer */
    ARENA_BYTES_MAX = 64 << 20,
    UNFINISHED_BYTES_MAX = 64 << 20,
    HTTP_STATUS_CLIENT_GONE = 499, /* in the log only */
    TIMEOUT_MAX_S = 1000000,
};

/* ---- birth and death ---- */

/* Kept where somebody asks for it: a header, or a collector. */
static struct request_trace *read_trace(struct generation *g, const struct exchange *x)
{
    enum { STREAM_TRACE = 0x74726163, STREAM_SPAN = 0x7370616e };
    const char *header = exchange_header(x, "traceparent");
    if (!header && !g->api->server->spans) return NULL;
    struct rng_block random[2] = {rng_philox(g->api->id_key, g->serial, STREAM_TRACE),
                                  rng_philox(g->api->id_key, g->serial, STREAM_SPAN)};
    struct request_trace *trace = arena_alloc(&g->arena, sizeof *trace);
    if (!trace) return NULL;
    *trace = (struct request_trace){.temperature = 1, .top_p = 1};
    bool taken = trace_context_read(header, (const uint8_t *)random, &trace->context);
    return taken || g->api->server->spans ? trace : NULL;
}

static struct generation *generation_create(struct exchange *x, const struct codec *codec)
{
    struct api *api = x->server->api;
    size_t id_chars = strlen(x->request_id) + 1;
    struct generation *g = calloc(1, sizeof *g + id_chars);
    if (!g) return NULL;
    g->api = api;
    g->x = x;
    g->answer.codec = codec;
    memcpy(g->request_id, x->request_id, id_chars);
    g->serial = x->id;
    g->api_key_idx = x->api_key_idx;
    g->arrival_ns = x->arrival_ns;
    exchange_get_client(x, &g->client);
    g->tenant = tenant_read(x);
    arena_init(&g->arena, ARENA_BYTES_MAX);
    g->trace = read_trace(g, x);
    g->next = api->generations;
    if (g->next) g->next->previous = g;
    api->generations = g;
    api->num_generations++;
    return g;
}

static void generation_free(struct generation *g)
{
    assert_always(!g->x && !g->preparing && !g->composing &&
                  !g->admitted); /* nobody will call back, and the ledger has it */
    if (g->previous)
        g->previous->next = g->next;
    else
        g->api->generations = g->next;
    if (g->next) g->next->previous = g->previous;
    g->api->num_generations--;
    if (g->api->offered == g) g->api->offered = NULL;
    if (g->api->readmitted == g) g->api->readmitted = NULL;
    stream_record_free(g->api, g->record);
    free(g->moved);
    for (int i = 0; i < g->num_choices; i++) choice_deinit(&g->choices[i], &g->context);
    if (g->answer.state && g->answer.codec->forget) g->answer.codec->forget(g->answer.state);
    grammars_release(g->api->server->grammars, g->params.form.grammar);
    token_limits_release(g->params.limits);
    loras_let_go(g->api->server->loras, g->params.lora);
    loras_pump(g->api->server->loras);
    cJSON_Delete(g->params.tools);
    tenant_forget(g);
    if (g->receipt) buffer_deinit(g->receipt);
    arena_deinit(&g->arena);
    free(g);
}

/* Of a generation that was never submitted here. */
static void end_slots(struct generation *g)
{
    for (int i = 0; i < g->num_choices; i++)
        if (g->choices[i].slot_idx >= 0)
            request_slot_finish(request_slots_get(g->api->server->slots, g->choices[i].slot_idx),
                                FINISH_CANCELLED, NULL);
}

/* Frees the generation if nobody needs it any more. */
static void free_if_over(struct generation *g)
{
    bool held = false;
    if (generation_is_live(g) || g->preparing || g->composing) return;
    if (g->moved) end_slots(g);
    for (int i = 0; i < g->num_choices; i++) held |= !choice_release_slot(&g->choices[i], &g->context);
    if (held) return;
    generation_free(g);
}

static void cancel_slots(struct generation *g)
{
    if (g->composing) return; /* they have all that they will */
    for (int i = 0; i < g->num_choices; i++)
        if (!choice_release_slot(&g->choices[i], &g->context))
            link_cancel(g->api->server->link, g->choices[i].slot_idx);
}

/* ---- the end of an admitted request ---- */

void generation_sum_usage(const struct generation *g, struct usage *u)
{
    *u = (struct usage){.cached_tokens = 0};
    if (g->num_choices > 0) u->cache_miss = g->choices[0].cache_miss;
    for (int i = 0; i < g->num_choices; i++) {
        const struct choice *c = &g->choices[i];
        u->completion_tokens += c->num_pulled;
        u->reasoning_tokens += c->num_reasoning;
        u->energy_uj += c->energy_uj;
        u->accepted_prediction_tokens += choice_num_predicted_accepted(c);
        u->rejected_prediction_tokens += c->num_predicted_rejected;
        if (i % g->params.n != 0) continue; /* a prompt counts once */
        u->prompt_tokens += c->num_prompt_tokens;
        u->cached_tokens += c->num_cached_tokens;
    }
}

/* Of what the engine has finished. */
static int64_t num_preemptions(const struct generation *g)
{
    int64_t sum = 0;
    for (int i = 0; i < g->num_choices; i++) sum += g->choices[i].num_preemptions;
    return sum;
}

static const char *finish_text(const struct generation *g, enum outcome outcome)
{
    return outcome == OUTCOME_DONE ? g->choices[0].finish_reason : outcome_names[outcome];
}

static void write_log(const struct generation *g, enum outcome outcome, int http_status, uint64_t now_ns)
{
    const struct choice *c = &g->choices[0];
    struct usage usage;
    char client[IP_ADDRESS_CHARS];
    if (!g->api->server->config->log_requests) return;
    ip_address_write(&g->client, client);
    generation_sum_usage(g, &usage);
    request_log_write(&(struct request_record){
        .request_id = g->request_id,
        .path = g->answer.codec->path,
        .client = client,
        .model = g->answer.model,
        .trace_id = g->trace ? g->trace->context.trace_id : NULL,
        .key = api_keys_name(g->api->server->config, g->api_key_idx),
        .http_status = http_status,
        .ignored_fields = g->params.ignored ? g->params.ignored->names : NULL,
        .finish_reason = finish_text(g, outcome),
        .stream = g->params.stream,
        .n = g->params.n,
        .constraint = constraint_kind_names[g->params.form.constraint.kind],
        .prompt_tokens = usage.prompt_tokens,
        .cached_tokens = usage.cached_tokens,
        .completion_tokens = usage.completion_tokens,
        .preemptions = num_preemptions(g),
        .seed = g->answer.seed,
        .queue_ns = c->scheduled_ns > g->arrival_ns ? c->scheduled_ns - g->arrival_ns : 0,
        .ttft_ns = c->first_token_ns > g->arrival_ns ? c->first_token_ns - g->arrival_ns : 0,
        .duration_ns = now_ns - g->arrival_ns,
    });
}

static void export_span(const struct generation *g, enum outcome outcome, int http_status, uint64_t now_ns)
{
    struct usage usage;
    if (!g->api->server->spans || !g->trace || !g->trace->context.sampled) return;
    generation_sum_usage(g, &usage);
    span_export_put(g->api->server->spans,
                    request_span_make(g, &usage, finish_text(g, outcome), http_status, now_ns));
}

void generation_conclude(struct generation *g, enum outcome outcome, int http_status)
{
    uint64_t now_ns = clock_monotonic_ns();
    int32_t most = 0;
    assert_always(g->admitted && g->api->num_admitted > 0); /* one outcome each */
    g->x = NULL;
    g->admitted = g->in_background = false;
    g->api->num_admitted--;
    for (int i = 0; i < g->num_choices && outcome != OUTCOME_MOVED; i++) {
        request_metrics_observe_choice(&g->choices[i], g->params.n, g->arrival_ns, now_ns, outcome);
        most = max_of(most, g->choices[i].num_pulled);
    }
    if (outcome == OUTCOME_DONE) admission_learn(&g->api->admission, g);
    request_metrics_count_finished(outcome, most);
    if (outcome == OUTCOME_MOVED) return; /* who goes on with it tells the rest */
    write_log(g, outcome, http_status, now_ns);
    journal_tell_answer(g, outcome_names[outcome]);
    export_span(g, outcome, http_status, now_ns);
}

/* ---- what happens to it from outside ---- */

/* Two processes have it: this one lets it rest. */
static bool is_on_its_way(const struct generation *g)
{
    return g->x && (g->moved || g->api->offered == g);
}

void generation_pump(struct generation *g)
{
    if (is_on_its_way(g) || g->composing) return;
    if (g->x && g->streaming)
        generation_pump_stream(g);
    else if (g->admitted && generation_is_live(g))
        generation_pump_whole(g);
    for (int i = 0; generation_is_live(g) && !g->composing && i < g->num_choices; i++)
        choice_let_go(&g->choices[i], &g->context);
    free_if_over(g);
}

/* Of an answer in the background: to its codec alone, or to who asks. */
static void tell_unfinished(struct generation *g, const struct api_error *error, struct exchange *x)
{
    struct buffer body;
    buffer_init(&body, UNFINISHED_BYTES_MAX);
    codec_append(&body, EVENT_UNFINISHED, &g->answer, &(struct event){.error = error});
    if (x) exchange_reply_page(x, "application/json", &body);
    buffer_deinit(&body);
}

void generation_tell_unfinished(struct generation *g, struct exchange *x)
{
    tell_unfinished(g, NULL, x);
}

/* It goes on without its client, who has its id. */
static void leave_client(struct generation *g)
{
    struct exchange *x = g->x;
    g->x = NULL;
    g->in_background = true;
    x->on_closed = x->on_writable = NULL;
    tell_unfinished(g, NULL, x);
}

void generation_abort(struct generation *g, const struct api_error *error, enum outcome outcome)
{
    struct exchange *x = g->x;
    if (!generation_is_live(g)) return;
    if (g->moved) {
        generation_drop(g);
        return;
    }
    if (g->api->offered == g) { /* it is kept after all */
        g->api->offered = NULL;
        exchange_thaw(x);
    }
    if (!g->admitted) {
        g->x = NULL;
        api_error_send(x, error);
        return;
    }
    cancel_slots(g);
    generation_conclude(g, outcome, g->streaming || !x ? 200 : error->http_status);
    if (x)
        generation_reply_error(g, x, error);
    else
        tell_unfinished(g, error, NULL);
}

static void on_writable(struct exchange *x)
{
    struct generation *g = x->context;
    g->blocked = false;
    generation_pump(g);
}

static void on_closed(struct exchange *x)
{
    struct generation *g = x->context;
    g->x = NULL;
    if (g->admitted) {
        cancel_slots(g);
        generation_conclude(g, OUTCOME_CLIENT_GONE, g->streaming ? 200 : HTTP_STATUS_CLIENT_GONE);
    }
    free_if_over(g);
}

/* ---- preparing and admission ---- */

/* From a body to filled-in slots; gone afterwards. */
struct preparation {
    struct pool_work work; /* first */
    struct generation *g;
    struct prepare_input in;
    struct request_slot_input input;
    struct request_payload payload;
    struct prompts prompts;
    int status;
    struct api_error error;
    char *body; /* our copy, while the worker reads it */
};

static const char *join(struct arena *arena, const char *a, const char *b)
{
    size_t n = strlen(a) + strlen(b) + 1;
    char *text = arena_alloc(arena, n);
    if (text) snprintf(text, n, "%s%s", a, b);
    return text;
}

static int make_answer(struct generation *g, struct preparation *p)
{
    enum { STREAM_ID = 0x6964 };
    const struct rng_block b = rng_philox(g->api->id_key, g->serial, STREAM_ID);
    struct answer *a = &g->answer;
    a->made_id = arena_alloc(&g->arena, MADE_ID_CHARS);
    if (!a->made_id) return api_error_no_memory(&p->error);
    snprintf(a->made_id, MADE_ID_CHARS, "%s%08x%08x%08x", a->codec->id_prefix, b.word[0], b.word[1],
             b.word[2]);
    if (g->replay && !strncmp(g->replay->id, a->codec->id_prefix, strlen(a->codec->id_prefix)))
        memcpy(a->made_id, g->replay->id, MADE_ID_CHARS);
    a->id = a->made_id;
    if (g->params.request_id && a->codec->tells_ids)
        a->id = join(&g->arena, a->codec->id_prefix, g->params.request_id);
    if (!a->id) return api_error_no_memory(&p->error);
    a->created = p->in.now_seconds;
    a->model =
        g->params.lora ? loras_name(g->api->server->loras, g->params.lora) : g->api->server->model_names[0];
    a->request_id = g->request_id;
    a->api_key_idx = g->api_key_idx;
    a->tenant = (uint32_t)g->tenant;
    a->arrival_ns = g->arrival_ns;
    a->reports_cached_tokens = g->api->server->config->report_cached_tokens;
    a->reports_prediction = g->params.predicts;
    a->reports_energy = g->api->server->facts->measures_energy;
    a->context = &g->context;
    a->choices = g->choices;
    a->num_choices = g->num_choices;
    if (a->codec->state_bytes == 0) return 0;
    a->state = arena_alloc(&g->arena, a->codec->state_bytes);
    if (!a->state) return api_error_no_memory(&p->error);
    memset(a->state, 0, a->codec->state_bytes);
    return 0;
}

/* A request without a seed gets the next of the server's (--seed), or the one that it had; the log names it. */
static void choose_seed(struct generation *g)
{
    enum { STREAM_SEED = 0x73656564 };
    g->answer.seed = g->replay ? g->replay->seed : (uint64_t)g->params.seed;
    if (g->params.has_seed || g->replay) return;
    const struct rng_block b =
        rng_philox((uint64_t)g->api->server->config->seed, g->api->num_unseeded++, STREAM_SEED);
    g->answer.seed = (uint64_t)b.word[0] << 32 | b.word[1];
}

static int make_choices(struct generation *g, struct preparation *p)
{
    int count = p->prompts.count * g->params.n;
    g->context = (struct choice_context){.server = g->api->server, .params = &g->params};
    g->choices = arena_alloc_array(&g->arena, (size_t)count, sizeof *g->choices);
    if (!g->choices) return api_error_no_memory(&p->error);
    for (int i = 0; i < count; i++) {
        struct choice *c = &g->choices[i];
        c->index = i;
        c->prompt_idx = i / g->params.n;
        g->num_choices++;
        if (!choice_init(c, &g->context, &p->prompts.items[c->prompt_idx], &g->arena))
            return api_error_no_memory(&p->error);
    }
    return 0;
}

static int acquire_slots(struct generation *g, struct api_error *err)
{
    int32_t *ids = arena_alloc_array(&g->arena, (size_t)g->num_choices, sizeof *ids);
    if (!ids || request_slots_acquire(g->api->server->slots, g->num_choices, ids) < 0)
        return api_error_no_memory(err); /* there are enough: admission has counted them */
    for (int i = 0; i < g->num_choices; i++) g->choices[i].slot_idx = ids[i];
    return 0;
}

/* A deadline that even an idle machine could not keep: the longest prompt, unless it may be cached, and the
 * tokens that the answer must have. */
static int check_timeout(struct generation *g, struct preparation *p)
{
    if (g->deadline_ns == 0) return 0;
    struct link_stats stats;
    link_stats(g->api->server->link, &stats);
    int32_t num_prompt = 0, num_answer = max_of(p->input.min_tokens, 1);
    for (int i = 0; i < p->prompts.count && !g->api->server->config->enable_prefix_caching; i++)
        num_prompt = max_of(num_prompt, p->prompts.items[i].tokens.num_ids);
    if (p->input.ignore_eos) num_answer = max_of(g->params.max_tokens, num_answer);
    double seconds =
        num_prompt * stats.prefill_seconds_per_token + num_answer * stats.decode_seconds_per_step;
    if (clock_monotonic_ns() + (uint64_t)(seconds * 1e9) <= g->deadline_ns) return 0;
    return api_error_set(&p->error, 504, "timeout_error", "deadline_exceeded", NULL,
                         "The answer takes %.3f s at least; x-request-timeout allows %.3f s", seconds,
                         (double)(g->deadline_ns - g->arrival_ns) * 1e-9);
}

/* It may have been lost while the request was prepared. */
static int check_lora(const struct generation *g, struct api_error *err)
{
    if (!g->params.lora || !loras_is_lost(g->api->server->loras, g->params.lora)) return 0;
    loras_refuse_lost(err);
    return STATUS_INVALID;
}

static int check_admission(struct generation *g, struct preparation *p)
{
    const struct server *server = g->api->server;
    int32_t num_sequences = p->prompts.count * g->params.n;
    uint64_t num_tokens = 0;
    for (int i = 0; i < p->prompts.count; i++)
        num_tokens += (uint64_t)g->params.n * (uint64_t)p->prompts.items[i].tokens.num_ids;
    int status = check_lora(g, &p->error);
    if (status == 0) status = tenant_check(g, num_sequences, num_tokens, &p->error);
    if (status == 0) status = check_timeout(g, p);
    if (status == 0) slow_readers_make_room(g->api, g->api_key_idx, g->tenant, num_sequences);
    if (status == 0)
        status = admission_check(&g->api->admission, server, num_sequences, num_tokens, &p->error);
    if (status == STATUS_LIMIT) tenant_note_refused(g->api, g->api_key_idx, g->tenant);
    if (status < 0) return status;
    status = make_choices(g, p);
    if (status == 0) status = make_answer(g, p);
    return status == 0 ? acquire_slots(g, &p->error) : status;
}

static void fill_slots(struct generation *g, const struct prompts *prompts)
{
    struct server *server = g->api->server;
    const char *key = g->api_key_idx >= 0 ? server->config->api_key.items[g->api_key_idx] : NULL;
    uint8_t salt[CACHE_SALT_BYTES];
    int64_t num_tokens = 0;
    for (int i = 0; i < prompts->count; i++) num_tokens += prompts->items[i].tokens.num_ids;
    const struct cache_salt_parts parts = {key, g->params.cache_salt, g->params.cache_salt_bytes,
                                           g->params.lora ? loras_files(server->loras, g->params.lora)
                                                          : NULL};
    slot_fill_cache_salt(&parts, salt);
    if (g->trace) {
        g->trace->temperature = (double)g->params.input->sampling.temperature;
        g->trace->top_p = (double)g->params.input->sampling.top_p;
    }
    for (int i = 0; i < g->num_choices; i++) {
        struct choice *c = &g->choices[i];
        slot_fill(g, c, prompts, num_tokens, salt);
        const struct mask_rules rules = {.grammar = g->params.form.grammar,
                                         .trigger = g->params.form.trigger,
                                         .must_begin = g->params.form.must_begin,
                                         .limits = g->params.limits};
        if (rules.grammar || rules.limits) masks_begin(server->masks, c->slot_idx, &rules);
    }
    g->params.input = NULL; /* each slot has them now */
    g->params.payload = NULL;
}

static void submit(struct generation *g)
{
    assert_always(!g->admitted && g->x);
    admission_count_submitted(&g->api->admission, g);
    for (int i = 0; i < g->num_choices; i++) link_submit(g->api->server->link, g->choices[i].slot_idx);
    g->submitted_ns = clock_monotonic_ns();
    g->api->num_admitted++;
    g->admitted = true;
    tenant_count(g);
    if (g->deadline_ns > 0) api_start_pings(g->api);
    request_metrics_count_admitted();
}

/* What the answer is made of again if another process takes this one's place. */
static void keep_record(struct generation *g, const char *body, size_t body_bytes)
{
    bool is_chained =
        g->api->server->makes_receipts || g->replay; /* receipts and journals are a process's own */
    if (g->num_choices <= RECORD_CHOICES_MAX && !is_chained)
        g->record = stream_record_create(g->api, body, body_bytes);
}

static void begin_stream(struct generation *g)
{
    g->streaming = true;
    keep_record(g, g->x->body, g->x->body_bytes);
    g->last_write_ns = clock_monotonic_ns();
    api_start_pings(g->api);
    exchange_start_stream(g->x, g->answer.codec->stream_type);
    if (g->answer.codec->starts_at_once) generation_write_start(g);
}

static void admit(struct generation *g, struct preparation *p)
{
    if (p->status == 0) p->status = check_admission(g, p);
    if (p->status < 0) {
        generation_abort(g, &p->error, OUTCOME_ABORTED);
        return;
    }
    choose_seed(g);
    fill_slots(g, &p->prompts);
    submit(g);
    journal_tell_request(g, g->x->body, g->x->body_bytes);
    if (g->params.warnings) exchange_add_header(g->x, "x-flashd-warning", g->params.warnings);
    if (g->params.stream) begin_stream(g);
    exchange_drop_request(g->x);
    if (g->params.in_background) leave_client(g);
}

/* ---- a stream of another process ---- */

static int take_slots(struct generation *g, struct preparation *p)
{
    int count = p->prompts.count * g->params.n;
    if (!g->params.stream || count != g->moved->head.num_choices ||
        request_slots_num_free(g->api->server->slots) < count)
        return STATUS_NO_SLOT;
    int status = make_choices(g, p);
    if (status == 0) status = make_answer(g, p);
    return status == 0 ? acquire_slots(g, &p->error) : status;
}

static void readmit(struct generation *g, struct preparation *p)
{
    struct moved_stream *m = g->moved;
    if (p->status == 0) p->status = take_slots(g, p);
    if (p->status == 0) {
        snprintf(g->answer.made_id, MADE_ID_CHARS, "%s", m->head.answer_id);
        g->answer.seed = m->head.seed;
        fill_slots(g, &p->prompts);
        keep_record(g, p->in.body, p->in.body_bytes);
    }
    m->on_prepared(g, p->status == 0 && g->record);
}

void generation_drop(struct generation *g)
{
    struct exchange *x = g->x;
    if (!x) return;
    g->x = NULL;
    exchange_let_go(x);
}

void generation_go_on(struct generation *g)
{
    submit(g);
    free(g->moved);
    g->moved = NULL;
    g->streaming = true;
    api_start_pings(g->api);
}

void generation_leave(struct generation *g)
{
    struct exchange *x = g->x;
    cancel_slots(g);
    generation_conclude(g, OUTCOME_MOVED, 200);
    exchange_let_go(x);
    free_if_over(g);
}

static void prepare(struct preparation *p)
{
    struct generation *g = p->g;
    g->params.input = &p->input;
    g->params.payload = &p->payload;
    p->status = prepare_run(&p->in, &g->arena, &g->params, &p->prompts, &p->error);
}

static void end_preparation(struct preparation *p)
{
    struct generation *g = p->g;
    assert_debug(!g->admitted && g->num_choices == 0);
    g->preparing = false;
    if (g->x && g->moved)
        readmit(g, p);
    else if (g->x)
        admit(g, p);
    prompts_deinit(&p->prompts);
    generation_pump(g);
}

/* With a copy of the body, as the exchange may go. */
static bool begin_prepare(struct pool_work *work)
{
    struct preparation *p = (struct preparation *)work;
    p->body = p->g->x ? malloc(p->in.body_bytes + 1) : NULL;
    if (!p->body) return false;
    memcpy(p->body, p->in.body, p->in.body_bytes + 1);
    p->in.body = p->body;
    return true;
}

static void run_prepare(struct pool_work *work)
{
    struct preparation *p = (struct preparation *)work;
    prepare(p);
    pool_work_note_bytes(work, p->in.body_bytes);
}

static void end_prepare(struct pool_work *work, bool has_run)
{
    loop_watch_enter("a prepared request");
    struct preparation *p = (struct preparation *)work;
    if (!has_run) p->status = api_error_no_memory(&p->error);
    end_preparation(p);
    free(p->body);
    free(p);
}

static bool queue_prepare(struct generation *g, const struct prepare_input *in)
{
    struct preparation *p = calloc(1, sizeof *p);
    if (!p) return false;
    p->work = (struct pool_work){.begin = begin_prepare,
                                 .run = run_prepare,
                                 .done = end_prepare,
                                 .is_long = in->body_bytes > SHORT_BODY_BYTES_MAX ||
                                            constraint_is_named(in->body, in->body_bytes),
                                 .api_key_idx = in->api_key_idx,
                                 .tenant = g->tenant};
    p->g = g;
    p->in = *in;
    g->preparing = work_queue_put(&g->api->server->works, g->api->server->loop, &p->work);
    if (!g->preparing) free(p->body);
    if (!g->preparing) free(p);
    return g->preparing;
}

void generation_check_deadline(struct generation *g, uint64_t now_ns)
{
    struct api_error error;
    if (!generation_is_live(g) || !g->admitted || g->deadline_ns == 0 || now_ns < g->deadline_ns) return;
    api_error_set(&error, 504, "timeout_error", "deadline_exceeded", NULL,
                  "The answer is not complete after the %.3f s that x-request-timeout allows",
                  (double)(g->deadline_ns - g->arrival_ns) * 1e-9);
    generation_abort(g, &error, OUTCOME_ABORTED);
}

/* Seconds, as a decimal number. */
static int read_timeout(const struct exchange *x, uint64_t *deadline_ns, struct api_error *err)
{
    const char *text = exchange_header(x, "x-request-timeout");
    *deadline_ns = 0;
    if (!text) return 0;
    char *end = NULL;
    double seconds = strtod(text, &end);
    if (strspn(text, "0123456789.") != strlen(text) || *end || !(seconds > 0 && seconds <= TIMEOUT_MAX_S))
        return api_error_invalid(err, "invalid_value", NULL,
                                 "x-request-timeout must be a number of seconds, above 0 and at most %d",
                                 TIMEOUT_MAX_S);
    *deadline_ns = x->arrival_ns + (uint64_t)(seconds * 1e9);
    return 0;
}

void generation_start(struct exchange *x, const struct codec *codec)
{
    struct api *api = x->server->api;
    struct api_error error;
    uint64_t deadline_ns;
    if (api->num_kept_slots > 0) slow_readers_make_room(api, x->api_key_idx, tenant_read(x), 1);
    if (admission_check_early(&api->admission, x->server, &error) < 0) {
        if (error.http_status == 429) tenant_note_refused(api, x->api_key_idx, tenant_read(x));
        api_error_send(x, &error);
        return;
    }
    if (read_timeout(x, &deadline_ns, &error) < 0) {
        api_error_send(x, &error);
        return;
    }
    struct generation *g = generation_create(x, codec);
    if (!g) {
        api_error_no_memory(&error);
        api_error_send(x, &error);
        return;
    }
    g->deadline_ns = deadline_ns;
    x->context = g;
    x->on_writable = on_writable;
    x->on_closed = on_closed;
    if (receipt_read_replay(x, &g->arena, &g->replay, &error) < 0) {
        generation_abort(g, &error, OUTCOME_ABORTED);
        free_if_over(g);
        return;
    }
    const struct prepare_input in = {.server = x->server,
                                     .codec = codec,
                                     .body = x->body,
                                     .body_bytes = x->body_bytes,
                                     .api_key_idx = x->api_key_idx,
                                     .now_seconds = g->replay ? g->replay->created
                                                              : (int64_t)(clock_wall_ns() / 1000000000)};
    /* A template and a grammar may take as long as they like within their limits, whatever the body's length. */
    bool is_long = codec->kind == API_CHAT || x->body_bytes > INLINE_BODY_BYTES_MAX ||
                   constraint_may_be_in(x->body, x->body_bytes);
    if (is_long && queue_prepare(g, &in)) return;
    struct preparation p = {.g = g, .in = in};
    prepare(&p);
    end_preparation(&p);
}

struct generation *generation_readmit(struct exchange *x, const struct codec *codec,
                                      struct moved_stream *moved)
{
    struct generation *g = generation_create(x, codec);
    if (!g) return NULL;
    g->deadline_ns = moved->head.deadline_ns;
    if (g->trace && moved->head.has_trace) g->trace->context = moved->head.trace;
    x->context = g;
    x->on_writable = on_writable;
    x->on_closed = on_closed;
    g->moved = moved;
    const struct prepare_input in = {.server = x->server,
                                     .codec = codec,
                                     .body = moved->body,
                                     .body_bytes = moved->head.body_bytes,
                                     .api_key_idx = x->api_key_idx,
                                     .now_seconds = moved->head.created};
    if (queue_prepare(g, &in)) return g;
    g->moved = NULL;
    g->x = NULL;
    generation_free(g);
    return NULL;
}
