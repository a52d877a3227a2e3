/* A body at every route that takes one, from its handler to the last byte of the answer, under templates of several kinds:
 * a whole answer or the events of a stream, each of valid JSON; an error has a sentence, and is never ours. The engine answers with a
 * call of a tool, and with the body's own bytes. A response that is stored is asked for again. Nothing stays behind. */
#include "base/arena.h"
#include "fuzz/fuzz_api.h"
#include "fuzz/json_mutator.h"
#include "server/api/response_store.h"
#include "server/ip_address.h"
#include "server/router.h"

enum { NUM_SLOTS = 32, ANSWER_TOKENS_MAX = 96, OUT_BYTES_MAX = 64 << 20, BODY_BYTES_MAX = 8000 };

static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 1000000, .max_keys = 4096};
static const char call[] =
    "hm</think>so\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>";
static struct server server;
static uv_loop_t loop;

static bool json_place(const uint8_t *data, size_t size, size_t *begin, size_t *end)
{
    (void)data;
    *begin = 0;
    *end = size;
    return true;
}

/* ---- the engine ---- */

static int32_t submitted[NUM_SLOTS];
static int num_submitted;

void link_submit(struct link *l, int32_t slot_idx)
{
    (void)l;
    assert_always(num_submitted < NUM_SLOTS);
    submitted[num_submitted++] = slot_idx;
}

void link_cancel(struct link *l, int32_t slot_idx)
{
    (void)l;
    atomic_store(&request_slots_get(server.slots, slot_idx)->cancel, true);
}

static void fill_logprobs(struct token_logprobs *lp, const struct request_slot_input *in, int32_t id)
{
    lp->logprob = -0.5f;
    lp->num_top = max_of(in->sampling.num_logprobs, 0);
    for (int i = 0; i < lp->num_top; i++) {
        lp->top_ids[i] = (id + 7 * i) % fuzz_facts.vocab_size;
        lp->top_logprobs[i] = -0.5f - (float)i;
    }
}

static void publish(int32_t slot_idx, int32_t n, int32_t id)
{
    struct request_slot *slot = request_slots_get(server.slots, slot_idx);
    const struct request_slot_input *in = &slot->input;
    const int32_t at = in->num_prompt_tokens + n;
    if (in->sampling.num_logprobs >= 0)
        fill_logprobs(&request_slots_logprobs(server.slots, slot_idx)[at], in, id);
    request_slots_tokens(server.slots, slot_idx)[at] = id;
    atomic_store(&slot->num_published, n + 1);
}

static void publish_prompt(int32_t slot_idx)
{
    struct request_slot *slot = request_slots_get(server.slots, slot_idx);
    const struct request_slot_input *in = &slot->input;
    for (int32_t p = 1; in->prompt_logprobs && p < in->num_prompt_tokens; p++)
        fill_logprobs(&request_slots_logprobs(server.slots, slot_idx)[p], in, p);
    slot->scheduled_ns = slot->first_token_ns = 2;
    atomic_store(&slot->num_prompt_published, in->num_prompt_tokens);
}

static void publish_row(struct request_slot *slot, int32_t slot_idx)
{
    slot->num_row_floats =
        slot->input.pooling == POOLING_LOGITS ? slot->input.num_row_logits : fuzz_facts.embedding_size;
    for (int32_t i = 0; i < slot->num_row_floats; i++)
        request_slots_row(server.slots, slot_idx)[i] = (float)(i % 3) - 0.5f;
}

/* Half of an answer; the other half comes when the loop has looked. */
static void answer(int32_t slot_idx, const char *body, size_t body_bytes, bool to_its_end)
{
    struct request_slot *slot = request_slots_get(server.slots, slot_idx);
    const char *text = slot_idx % 2 ? body : call;
    int32_t n = (int32_t)(slot_idx % 2 ? body_bytes : strlen(call));
    n = min_of(min_of(n, ANSWER_TOKENS_MAX), slot->input.max_tokens);
    if (!to_its_end) publish_prompt(slot_idx);
    for (int32_t i = to_its_end ? n / 2 : 0; i < (to_its_end ? n : n / 2); i++)
        publish(slot_idx, i, (uint8_t)text[i]);
    if (!to_its_end) return;
    if (slot->input.pooling) publish_row(slot, slot_idx);
    slot->stop_token_id = -1;
    atomic_store(&slot->finish_reason, atomic_load(&slot->cancel)    ? FINISH_CANCELLED
                                       : n == slot->input.max_tokens ? FINISH_LENGTH
                                                                     : FINISH_STOP);
}

/* ---- the worker pool: this thread, in turn ---- */

static struct {
    uv_work_t *work;
    uv_work_cb run;
    uv_after_work_cb done;
} queued[NUM_SLOTS];
static int num_queued;

int uv_queue_work(uv_loop_t *l, uv_work_t *work, uv_work_cb run, uv_after_work_cb done)
{
    assert_always(num_queued < NUM_SLOTS);
    work->loop = l;
    queued[num_queued].work = work;
    queued[num_queued].run = run;
    queued[num_queued++].done = done;
    return 0;
}

static void run_queued(void)
{
    for (int i = 0; i < num_queued; i++) {
        queued[i].run(queued[i].work);
        queued[i].done(queued[i].work, 0);
    }
    num_queued = 0;
}

/* ---- the client ---- */

static struct client {
    struct exchange x;
    const struct route *route;
    int http_status;
    bool streaming, gone;
    struct buffer out;
} client;

static void check_json(const char *text, size_t n)
{
    struct error err = {0};
    /* Keys that a call has twice are its model's. */
    if (json_gate_check(text, n, &limits, &err) == 0 || strstr(err.text, "same key twice")) return;
    fprintf(stderr, "%s: %s\n%.*s\n", client.route->pattern, err.text, (int)n, text);
    abort();
}

static bool begins(const char *text, size_t n, const char *with)
{
    return n >= strlen(with) && !memcmp(text, with, strlen(with));
}

/* Lines of JSON, or of events. */
static void check_stream(const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *line = text + at, *end = memchr(line, '\n', n - at);
        assert_always(end); /* every line ends */
        size_t length = (size_t)(end - line);
        bool is_data = begins(line, length, "data: ");
        if (is_data && !begins(line, length, "data: [DONE]"))
            check_json(line + 6, length - 6);
        else if (length > 0 && line[0] == '{')
            check_json(line, length);
        else
            assert_always(length == 0 || is_data || line[0] == ':' || begins(line, length, "event: "));
        at += length + 1;
    }
}

/* No fault of ours: all memory is there. */
static void check_status(int http_status, const char *text, size_t n)
{
    if (http_status / 100 == 2 || http_status / 100 == 4) return;
    fprintf(stderr, "%s: %d %.*s\n", client.route->pattern, http_status, (int)n, text);
    abort();
}

void exchange_start_stream(struct exchange *x, const char *content_type)
{
    (void)x, (void)content_type;
    assert_always(!client.gone && !client.streaming);
    client.streaming = true;
    client.http_status = 200;
}

bool exchange_write(struct exchange *x, const char *bytes, size_t n)
{
    (void)x;
    assert_always(client.streaming && !client.gone);
    buffer_append(&client.out, bytes, n);
    return true;
}

void exchange_end(struct exchange *x)
{
    (void)x;
    assert_always(client.streaming && !client.gone);
    client.gone = true;
    check_stream(client.out.data, client.out.num_bytes);
}

void exchange_reply(struct exchange *x, int http_status, const char *content_type, const char *body, size_t n)
{
    (void)x, (void)content_type;
    assert_always(!client.gone && !client.streaming);
    client.gone = true;
    client.http_status = http_status;
    check_status(http_status, body, n);
    check_json(body, n);
    buffer_append(&client.out, body, n);
}

void exchange_reply_json(struct exchange *x, struct buffer *body)
{
    exchange_reply(x, 200, "application/json", body->data, body->num_bytes);
}

void exchange_error(struct exchange *x, int http_status, const char *type, const char *code,
                    const char *param, int retry_after_seconds, const char *format, ...)
{
    char text[1024];
    va_list args;
    (void)x, (void)code, (void)param, (void)retry_after_seconds;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_always(!client.gone && !client.streaming && type && strchr(text, ' '));
    client.gone = true;
    client.http_status = http_status;
    check_status(http_status, text, strlen(text));
}

void exchange_count_error(const struct exchange *x, int http_status, const char *code)
{
    (void)x, (void)code;
    assert_always(http_status >= 400);
}

void exchange_drop_request(struct exchange *x)
{
    x->body = x->path = x->query = NULL; /* nobody looks there any more */
}

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    (void)x, (void)name;
    assert_always(!strpbrk(value, "\r\n"));
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    (void)x, (void)name;
    return NULL;
}

void exchange_get_client(const struct exchange *x, struct ip_address *out)
{
    (void)x;
    *out = (struct ip_address){0};
}

/* ---- an input ---- */

static void begin(const struct route *route, const char *body, size_t n, const char *path_rest)
{
    client = (struct client){.route = route,
                             .x = {.server = &server,
                                   .id = 1,
                                   .request_id = "req-1",
                                   .method = route->method,
                                   .path = route->pattern,
                                   .query = "",
                                   .path_rest = path_rest,
                                   .body = body,
                                   .body_bytes = n,
                                   .api_key_idx = -1,
                                   .arrival_ns = 1}};
    buffer_init(&client.out, OUT_BYTES_MAX);
    num_submitted = 0;
    route->handler(&client.x);
}

static void end(void)
{
    if (!client.gone) {
        fprintf(stderr, "%s does not answer\n", client.route->pattern);
        abort();
    }
    assert_always(!buffer_failed(&client.out) && api_num_in_flight(&server) == 0);
    assert_always(request_slots_num_free(server.slots) == NUM_SLOTS && server.api->num_admitted == 0);
    buffer_deinit(&client.out);
    arena_deinit(&client.x.arena);
}

static void get(const char *path)
{
    bool exists;
    const char *rest;
    const struct route *route =
        router_find(server_routes, HTTP_METHOD_GET, path, strlen(path), &rest, &exists);
    begin(route, "", 0, rest);
    run_queued(); /* what is taken apart */
    end();
}

/* As those who go on with a stored response do: it itself, and what it answered. */
static void ask_again(const char *id)
{
    char path[96];
    snprintf(path, sizeof path, "/v1/responses/%s", id);
    get(path);
    strcat(path, "/input_items");
    get(path);
}

/* The id of a response that was answered whole; "": there is none. */
static void find_id(const struct buffer *out, char id[48])
{
    static const char before[] = "{\"id\":\"resp_";
    id[0] = '\0';
    if (begins(out->data, out->num_bytes, before))
        sscanf(out->data + strlen("{\"id\":\""), "%47[a-z_0-9]", id);
}

static void send_to(const struct route *route, const char *body, size_t n)
{
    char id[48] = "";
    begin(route, body, n, "");
    run_queued(); /* what is prepared */
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < num_submitted; i++) answer(submitted[i], body, n, half);
        api_on_engine_wake(&server);
        run_queued(); /* what is composed */
    }
    if (client.out.num_bytes > 0 && !strcmp(route->pattern, "/v1/responses")) find_id(&client.out, id);
    end();
    if (id[0]) ask_again(id);
}

/* Several routes have one handler. */
static bool is_first_of_its_handler(const struct route *route)
{
    for (const struct route *r = server_routes; r < route; r++)
        if (r->handler == route->handler) return false;
    return true;
}

static void keep_a_response(void)
{
    static const struct response_texts texts = {{"{}", "[{\"role\":\"user\",\"content\":\"a\"}]"}, {2, 31}};
    response_store_put(server.api->responses, -1, 1, "resp_1", &texts);
}

static void start(void)
{
    fuzz_server_init(&server);
    fuzz_server_open_reranker(&server);
    fuzz_config.response_store_bytes = 1 << 20;
    fuzz_api_open(&server, &loop, NUM_SLOTS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!server.config) start();
    if (size > BODY_BYTES_MAX || json_gate_check((const char *)data, size, &limits, NULL) != 0) return 0;
    char *body = strndup((const char *)data, size);
    for (int t = 0; t < FUZZ_NUM_TEMPLATES; t++) {
        fuzz_server_use_template(&server, t);
        keep_a_response();
        for (const struct route *r = server_routes; r->pattern; r++)
            if (r->flags & ROUTE_JSON && is_first_of_its_handler(r)) send_to(r, body, size);
    }
    free(body);
    assert_always(arena_total_bytes() == fuzz_arena_bytes);
    return 0;
}
