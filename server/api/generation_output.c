/* From slots to the client: a stream event by event, for as long as the client reads; a whole answer once it
 * is complete.
 *
 * A stream's first event comes with its first token, and what its codec begins with before it. After that each step's
 * tokens make an event, with or without text, and the last one has the finish_reason. The choices take turns,
 * one event each. An event is bounded in text and in tokens, so that a client that comes back after a while
 * gets what waited in pieces that its buffer can hold. */
#include "server/api/generation_output.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "server/api/receipt.h"
#include "server/loop_watch.h"
#include "server/masks.h"

enum {
    EVENT_TEXT_BYTES = 8 << 10,
    EVENT_TOKENS = 32,              /* pulled for one event; */
    EVENT_TOKENS_WITH_LOGPROBS = 4, /* each may be 2 KiB of log probabilities */
    PULL_ALL = 1 << 30,
    ANSWER_BYTES_MAX = 256 << 20,
    INLINE_LOGPROBS_MAX = 2048, /* 16 x 1,000 tokens with 20 each would hold the loop up for 0.6 s */
};

static void fail(struct generation *g, const struct choice *c);

/* ---- writing a stream ---- */

/* Whoever makes an event again makes it at another time. */
static void record_event(struct generation *g, const char *bytes, size_t n)
{
    const char *end = bytes + n, *clock = g->answer.codec->clock, *mark;
    while (clock && (mark = memmem(bytes, (size_t)(end - bytes), clock, strlen(clock)))) {
        mark += strlen(clock);
        stream_record_bytes(g->record, bytes, (size_t)(mark - bytes));
        bytes = memchr(mark, '"', (size_t)(end - mark)) ?: end;
    }
    stream_record_bytes(g->record, bytes, (size_t)(end - bytes));
}

/* Sends what stands in api->event. */
void generation_flush_event(struct generation *g)
{
    struct buffer *event = &g->api->event;
    g->broken |= buffer_failed(event);
    if (event->num_bytes > 0 && !g->broken) {
        record_event(g, event->data, event->num_bytes);
        if (!g->moved) g->blocked = !exchange_write(g->x, event->data, event->num_bytes);
    }
    g->last_write_ns = clock_monotonic_ns();
    buffer_clear(event);
}

static void finish_stream(struct generation *g)
{
    struct exchange *x = g->x;
    struct buffer *event = &g->api->event;
    struct usage usage;
    generation_sum_usage(g, &usage);
    codec_append(event, EVENT_DONE, &g->answer, &(struct event){.usage = &usage});
    generation_flush_event(g);
    if (g->broken) {
        fail(g, &g->choices[0]);
        return;
    }
    generation_conclude(g, OUTCOME_DONE, 200);
    exchange_end(x);
}

/* At most n bytes, whole characters. */
static size_t take_text(const struct buffer *ready, size_t n)
{
    if (ready->num_bytes <= n) return ready->num_bytes;
    while (n > 0 && ((unsigned char)ready->data[n] & 0xC0) == 0x80) n--;
    return n;
}

static void append_start(struct generation *g)
{
    if (!g->begun) codec_append(&g->api->event, EVENT_STARTED, &g->answer, &(struct event){0});
    g->begun = true;
}

/* What of a choice is told next: text, where it is not taken apart. */
struct part {
    enum piece_kind kind;
    const struct call *call;
    const char *text;
    size_t num_bytes;
    bool is_last; /* of what is known */
};

static struct part next_part(const struct choice *c)
{
    const struct pieces *p = c->pieces;
    if (!p) {
        size_t n = take_text(&c->ready, EVENT_TEXT_BYTES);
        return (struct part){.text = c->ready.data, .num_bytes = n, .is_last = n == c->ready.num_bytes};
    }
    if (p->count == 0) return (struct part){.is_last = true};
    const struct buffer text = {.data = p->bytes.data, .num_bytes = p->items[0].end};
    const struct call *call = p->items[0].call_idx >= 0 ? &p->calls[p->items[0].call_idx] : NULL;
    return (struct part){p->items[0].kind, call, p->bytes.data, take_text(&text, EVENT_TEXT_BYTES), false};
}

static void consume_part(struct choice *c, size_t num_bytes)
{
    if (!c->pieces)
        buffer_consume(&c->ready, num_bytes);
    else if (c->pieces->count > 0)
        pieces_consume(c->pieces, num_bytes);
}

void generation_write_start(struct generation *g)
{
    append_start(g);
    generation_flush_event(g);
    stream_record_step(g->api, &g->record, 0, STEP_START);
}

/* Choices whose last event was not written. */
static int num_left(const struct generation *g)
{
    int count = 0;
    for (int i = 0; i < g->num_choices; i++) count += !g->choices[i].ended;
    return count;
}

static void append_delta(struct generation *g, struct choice *c, const struct part *part,
                         const struct logprobs_part *logprobs, const char *finish_reason)
{
    struct usage usage = {c->num_prompt_tokens,
                          c->num_pulled,
                          c->num_cached_tokens,
                          c->num_reasoning,
                          c->cache_miss,
                          finish_reason ? c->energy_uj : 0,
                          choice_num_predicted_accepted(c),
                          c->num_predicted_rejected};
    assert_debug(!c->ended && logprobs->begin == c->num_reported);
    if (finish_reason && num_left(g) == 1) receipt_make(g);
    append_start(g);
    const struct event event = {
        .usage = &usage,
        .choice = c,
        .text = part->text,
        .text_bytes = part->num_bytes,
        .piece = part->kind,
        .call = part->call,
        .logprobs = logprobs->begin < logprobs->end ? logprobs : NULL,
        .finish_reason = finish_reason,
        .ids_begin = c->num_ids_told,
        .ids_end = c->num_prompt_tokens + c->num_pulled,
    };
    codec_append(&g->api->event, EVENT_DELTA, &g->answer, &event);
    consume_part(c, part->num_bytes);
    c->num_reported = logprobs->end;
    c->num_ids_told = event.ids_end;
    c->ended = finish_reason != NULL;
}

/* What the client sees of a stream. */
static void observe_write(const struct generation *g, struct choice *c, int num_new)
{
    if (num_new == 0) return;
    request_metrics_observe_write(num_new, c->last_write_ns, g->arrival_ns, g->last_write_ns);
    c->last_write_ns = g->last_write_ns;
}

static void count_prompt(struct generation *g, struct choice *c)
{
    if (c->prompt_counted || c->index % g->params.n != 0) return;
    c->prompt_counted = true;
    request_metrics_count_prompt(c->num_prompt_tokens, c->num_cached_tokens);
}

/* Returns how many tokens came. */
static int pull(struct generation *g, struct choice *c, int max_tokens)
{
    bool is_first = c->num_pulled == 0;
    uint64_t previous_ns = c->last_token_ns;
    int num_new = choice_pull(c, &g->context, max_tokens);
    if (num_new > 0 || c->finish_reason) count_prompt(g, c);
    if (num_new == 0) return 0;
    if (is_first) request_metrics_observe_first_token(g->arrival_ns, c->first_token_ns);
    request_metrics_count_tokens(num_new, is_first ? num_new - 1 : num_new,
                                 is_first ? c->first_token_ns : previous_ns, c->last_token_ns);
    return num_new;
}

/* The form of the answer, which the client chose, and not the engine: asked again, it would come to the same end. 0: it is not that. */
static int form_failure(const struct generation *g, const struct choice *c)
{
    const struct server *server = g->api->server;
    struct request_slot *slot = request_slots_get(server->slots, c->slot_idx);
    const bool has_failed = g->params.form.grammar && atomic_load(&slot->mask_state) == MASK_FAILED;
    return has_failed ? masks_failure(server->masks, c->slot_idx) : 0;
}

static void describe_engine_failure(const struct generation *g, const struct choice *c,
                                    struct api_error *error)
{
    const char *param = g->params.form.param;
    switch (form_failure(g, c)) {
    case STATUS_LIMIT:
        api_error_invalid(
            error, "form_too_large", param,
            "The form that %s asks for went past a limit of this server behind %d tokens of the "
            "answer: too many alternatives that begin alike, or too deep a nesting. Sent again it "
            "may do so again: tell its alternatives apart by what they begin with, or bound its "
            "recursion",
            param, c->num_pulled);
        break;
    case STATUS_NOT_FOUND:
        api_error_invalid(error, "form_out_of_reach", param,
                          "No token goes on with the form that %s asks for behind %d tokens of the answer: "
                          "allowed_token_ids and bad_words must leave what it wants",
                          param, c->num_pulled);
        break;
    default:
        api_error_set(error, 500, "server_error", NULL, NULL, "The engine failed this request: %s",
                      request_slots_get(g->api->server->slots, c->slot_idx)->error_text);
    }
}

static void fail(struct generation *g, const struct choice *c)
{
    struct api_error error;
    if (!c->failed)
        api_error_no_memory(&error);
    else if (c->failure == FINISH_ERROR)
        describe_engine_failure(g, c, &error);
    else if (c->failure == FINISH_DEVICE)
        api_error_set(&error, 500, "server_error", NULL, NULL, "The device failed; the server is restarting");
    else
        api_error_set(&error, 503, "service_unavailable_error", NULL, NULL, "The server is shutting down");
    error.may_pass = c->failed && c->failure == FINISH_DEVICE;
    bool is_fault = !(c->failed && c->failure == FINISH_CANCELLED) && error.http_status == 500;
    generation_abort(g, &error, is_fault ? OUTCOME_ENGINE_FAULT : OUTCOME_ABORTED);
}

/* A prompt's log probabilities come before the answer goes on. */
static bool is_behind(const struct generation *g, const struct choice *c)
{
    bool owes_logprobs = g->params.logprobs && c->num_reported < c->num_prompt_tokens + c->num_pulled;
    size_t waiting = c->pieces ? c->pieces->bytes.num_bytes : c->ready.num_bytes;
    return c->num_pulled > 0 && (owes_logprobs || waiting > EVENT_TEXT_BYTES);
}

/* stream_interval: a chunk waits for so many tokens, but the first one does not. */
static bool is_due(const struct generation *g, const struct choice *c, int most)
{
    int32_t wanted = min_of(g->params.stream_interval, (int32_t)most);
    return wanted == 1 || c->num_pulled == 0 || choice_has(c, &g->context, wanted);
}

static int most_tokens_of_event(const struct generation *g)
{
    return g->params.logprobs ? EVENT_TOKENS_WITH_LOGPROBS : EVENT_TOKENS;
}

/* Writes one event, num_new tokens behind the last. False: there is nothing to be written. */
static bool write_more(struct generation *g, struct choice *c, int num_new)
{
    if (c->failed || choice_is_broken(c)) return false; /* nothing is sent after a gap */
    if (c->num_pulled == 0 && !c->finish_reason)
        return false; /* an echoed prompt waits for the first token */
    const struct logprobs_part logprobs = choice_next_logprobs(c, &g->context, most_tokens_of_event(g));
    const struct part part = next_part(c);
    bool has_part = part.num_bytes > 0 || part.kind == PIECE_CALL;
    bool is_last = c->finish_reason && part.is_last &&
                   (!g->params.logprobs || logprobs.end == c->num_prompt_tokens + c->num_pulled);
    if (num_new == 0 && !has_part && logprobs.begin == logprobs.end && !is_last) return false;
    append_delta(g, c, &part, &logprobs, is_last ? c->finish_reason : NULL);
    generation_flush_event(g);
    stream_record_step(g->api, &g->record, c->index, num_new);
    return true;
}

/* Takes up some tokens of a choice and writes one event. False: nothing came and nothing is to be written. */
static bool step_choice(struct generation *g, struct choice *c)
{
    int num_new = 0, most = most_tokens_of_event(g);
    if (c->ended) return false;
    if (!is_behind(g, c) && is_due(g, c, most)) num_new = pull(g, c, most);
    if (!write_more(g, c, num_new)) return false;
    observe_write(g, c, num_new);
    return true;
}

void generation_pump_stream(struct generation *g)
{
    bool progress = true;
    while (progress && !g->blocked) {
        int num_ended = 0;
        progress = false;
        for (int i = 0; i < g->num_choices && !g->blocked; i++) {
            struct choice *c = &g->choices[i];
            progress |= step_choice(g, c);
            g->broken |= choice_is_broken(c);
            if (c->failed || g->broken) {
                fail(g, c);
                return;
            }
            num_ended += c->ended;
        }
        if (num_ended == g->num_choices) {
            finish_stream(g);
            return;
        }
    }
}

/* ---- a whole answer ---- */

static bool any_choice_is_broken(const struct generation *g)
{
    for (int i = 0; i < g->num_choices; i++)
        if (choice_is_broken(&g->choices[i])) return true;
    return false;
}

/* A token of it, in the mean. */
static double likelihood(const struct choice *c)
{
    return c->num_pulled > 0 ? c->sum_logprob / c->num_pulled : 0;
}

/* How many of its prompt's are likelier, or as likely and stand before it. */
static int32_t place_of(const struct generation *g, const struct choice *c)
{
    const struct choice *first = &g->choices[c->prompt_idx * g->params.n];
    int32_t place = 0;
    for (const struct choice *o = first; o < first + g->params.n; o++)
        place += likelihood(o) > likelihood(c) || (likelihood(o) == likelihood(c) && o < c);
    return place;
}

/* The answer shows copies of those that are the likeliest, in their order. */
static bool pick_likeliest(struct generation *g)
{
    int32_t n = g->params.n, num_returned = g->params.num_returned, num_prompts = g->num_choices / n;
    if (n == num_returned) return true;
    struct choice *shown = arena_alloc_array(&g->arena, (size_t)(num_prompts * num_returned), sizeof *shown);
    if (!shown) return false;
    for (int32_t i = 0; i < g->num_choices; i++) {
        int32_t place = place_of(g, &g->choices[i]), index = i / n * num_returned + place;
        if (place >= num_returned) continue;
        shown[index] = g->choices[i];
        shown[index].index = index;
    }
    g->answer.choices = shown;
    g->answer.num_choices = num_prompts * num_returned;
    return true;
}

static void send_whole(struct generation *g, struct buffer *body)
{
    struct exchange *x = g->x;
    if (g->broken || any_choice_is_broken(g) || buffer_failed(body)) {
        struct api_error error;
        api_error_set(&error, 500, "server_error", NULL, NULL,
                      "The answer is too large to send whole; ask for less, or with stream: true");
        generation_abort(g, &error, OUTCOME_ENGINE_FAULT);
    } else {
        if (g->answer.codec->keep) g->answer.codec->keep(&g->answer, body);
        generation_conclude(g, OUTCOME_DONE, 200);
        if (x) exchange_reply_json(x, body);
    }
}

/* A whole answer in the making. */
struct composition {
    struct pool_work work; /* first */
    struct generation *g;
    struct usage usage;
    struct buffer body;
};

static void compose(struct composition *c)
{
    codec_append(&c->body, EVENT_WHOLE, &c->g->answer, &(struct event){.usage = &c->usage});
}

static void run_compose(struct pool_work *work)
{
    compose((struct composition *)work);
}

static void end_compose(struct pool_work *work, bool has_run)
{
    loop_watch_enter("a composed answer");
    struct composition *c = (struct composition *)work;
    struct generation *g = c->g;
    g->composing = false;
    if (!has_run) c->body.failed = true;
    if (g->admitted && generation_is_live(g)) send_whole(g, &c->body);
    buffer_deinit(&c->body);
    free(c);
    generation_pump(g);
}

/* Whether writing it would hold the loop up. */
static bool is_long(const struct generation *g)
{
    const bool tells_prompt = g->params.num_prompt_logprobs >= 0;
    int64_t num_tokens = 0;
    for (const struct choice *c = g->answer.choices; c < g->answer.choices + g->answer.num_choices; c++)
        num_tokens +=
            c->num_prompt_tokens + c->num_pulled - c->num_reported + tells_prompt * c->num_prompt_tokens;
    const int num_each = 1 + max_of(g->params.num_top_logprobs, g->params.num_prompt_logprobs);
    const bool has_logprobs = g->params.logprobs || tells_prompt;
    return has_logprobs && num_tokens * num_each > INLINE_LOGPROBS_MAX;
}

static bool queue_compose(struct generation *g, const struct usage *usage)
{
    struct composition *c = calloc(1, sizeof *c);
    if (!c) return false;
    *c = (struct composition){.work = {.run = run_compose,
                                       .done = end_compose,
                                       .is_long = true,
                                       .api_key_idx = g->api_key_idx,
                                       .tenant = g->tenant},
                              .g = g,
                              .usage = *usage};
    buffer_init(&c->body, ANSWER_BYTES_MAX);
    g->composing = work_queue_put(&g->api->server->works, g->api->server->loop, &c->work);
    if (!g->composing) free(c);
    return g->composing;
}

static void reply_whole(struct generation *g)
{
    struct composition here = {.g = g};
    generation_sum_usage(g, &here.usage);
    receipt_make(g);
    g->broken |= !pick_likeliest(g);
    if (!g->broken && is_long(g) && queue_compose(g, &here.usage)) return;
    buffer_init(&here.body, ANSWER_BYTES_MAX);
    compose(&here);
    send_whole(g, &here.body);
    buffer_deinit(&here.body);
}

void generation_pump_whole(struct generation *g)
{
    int num_complete = 0;
    for (int i = 0; i < g->num_choices; i++) {
        struct choice *c = &g->choices[i];
        pull(g, c, PULL_ALL);
        if (c->failed) {
            fail(g, c);
            return;
        }
        num_complete += c->finish_reason != NULL;
    }
    if (num_complete == g->num_choices) reply_whole(g);
}

/* ---- errors and pings ---- */

void generation_reply_error(struct generation *g, struct exchange *x, const struct api_error *error)
{
    struct buffer *out = &g->api->event;
    buffer_clear(out);
    exchange_count_error(x, error->http_status, error->code);
    if (g->streaming) {
        codec_append(out, EVENT_ERROR, &g->answer, &(struct event){.error = error});
        exchange_write(x, out->data, out->num_bytes);
        buffer_clear(out);
        exchange_end(x);
        return;
    }
    /* exchange_error would leave a refusal's log line beside this request's own. */
    const struct failure f = api_error_failure(error, g->request_id);
    g->answer.codec->append_error(out, &f);
    if (error->retry_after_seconds > 0) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", error->retry_after_seconds);
        exchange_add_header(x, "Retry-After", seconds);
    }
    if (response_error_repeats(error->http_status) && !error->may_pass)
        exchange_add_header(x, "x-should-retry", "false");
    exchange_reply(x, error->http_status, "application/json", out->data, out->num_bytes);
    buffer_clear(out);
}

static void write_ping(struct generation *g)
{
    codec_append(&g->api->event, EVENT_PING, &g->answer, &(struct event){0});
    generation_flush_event(g);
    stream_record_step(g->api, &g->record, 0, STEP_PING);
}

void generation_ping(struct generation *g, uint64_t now_ns, uint64_t interval_ns)
{
    if (!g->x || !g->streaming || g->blocked || g->api->offered == g) return;
    if (now_ns - g->last_write_ns >= interval_ns) write_ping(g);
}

/* ---- a stream of another process ---- */

static void replay_step(struct generation *g, struct choice *c, int step)
{
    if (step == STEP_START) {
        generation_write_start(g);
    } else if (step == STEP_PING) {
        write_ping(g);
    } else {
        if (step > 0) choice_pull(c, &g->context, step);
        write_more(g, c, step);
    }
}

void generation_replay(struct generation *g, const uint8_t *steps, size_t num_bytes)
{
    assert_always(g->moved); /* nothing reaches the client */
    int choice = 0;
    for (size_t i = 0; i + 1 < num_bytes && choice < g->num_choices; i += 2) {
        if (steps[i] == STEP_CHOICE)
            choice = steps[i + 1];
        else
            for (int k = 0; k < steps[i + 1] && g->record; k++) replay_step(g, &g->choices[choice], steps[i]);
    }
}
