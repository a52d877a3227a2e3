/* A generation from its body to its last byte, with the engine and the socket in the input's hands. Every
 * frame that the server emits is read again by the strict gate, its pieces put together, and compared with
 * what the tokens decode to.
 *
 * Input: one byte (bit 0: chat), the body up to a NUL, then the script, an operation a byte: the low three
 * bits say what (table below), the others for which sequence. */
#include <math.h>

#include "base/arena.h"
#include "fuzz/check_decoding.h"
#include "fuzz/fuzz_api.h"
#define JSON_BYTES_ONE_IN 2 /* the script is no JSON */
#include "fuzz/json_mutator.h"
#include "server/api/json_gate.h"
#include "server/ip_address.h"

enum { NUM_SLOTS = 32, INDEX_MAX = NUM_SLOTS, STREAM_BYTES_MAX = 64 << 20 };

enum operation {
    PUBLISH,      /* a token; its id in the next two bytes */
    PUBLISH_TEXT, /* a token; the next byte is its byte */
    PUBLISH_TWO,  /* two tokens at once, from the next two bytes */
    WAKE,         /* the loop looks */
    FINISH,       /* stop, length, cancelled, error in turns: the next byte */
    TOGGLE_SLOW,  /* the client stops reading, or goes on */
    CLIENT_GOES,  /* ... for good, if the next byte is below 16 */
    OPERATION_COUNT = 7
};

static struct server server;
static uv_loop_t loop;

static bool json_place(const uint8_t *data, size_t size, size_t *begin, size_t *end)
{
    if (size < 2) return false;
    *begin = 1;
    *end = 1 + strnlen((const char *)data + 1, size - 1);
    return true;
}

/* ---- the engine ---- */

static int32_t submitted[NUM_SLOTS];
static int num_submitted;
static bool ended[NUM_SLOTS];
static struct token_list published[NUM_SLOTS]; /* slots are given back before all is compared */

void link_submit(struct link *l, int32_t slot_idx)
{
    (void)l;
    submitted[num_submitted++] = slot_idx;
}

void link_cancel(struct link *l, int32_t slot_idx)
{
    (void)l;
    atomic_store(&request_slots_get(server.slots, slot_idx)->cancel, true);
}

static void fill_logprobs(struct token_logprobs *lp, const struct request_slot_input *input, int32_t id)
{
    static const float values[] = {0, -0.5f, -1e-30f, -INFINITY, -123.456f};
    lp->logprob = values[id % 5];
    lp->num_top = max_of(input->sampling.num_logprobs, 0);
    for (int i = 0; i < lp->num_top; i++) {
        lp->top_ids[i] = (id + 7 * i) % fuzz_facts.vocab_size;
        lp->top_logprobs[i] = values[(id + i) % 5];
    }
}

static void publish(int which, int32_t id)
{
    struct request_slot *slot = request_slots_get(server.slots, submitted[which]);
    const struct request_slot_input *in = &slot->input;
    struct token_logprobs *lp = request_slots_logprobs(server.slots, submitted[which]);
    int32_t n = atomic_load(&slot->num_published), at = in->num_prompt_tokens + n;
    if (ended[which] || n == in->max_tokens) return;
    slot->scheduled_ns = slot->first_token_ns = 2;
    for (int32_t p = 1; n == 0 && in->prompt_logprobs && p < in->num_prompt_tokens; p++)
        fill_logprobs(&lp[p], in, p);
    if (in->sampling.num_logprobs >= 0) fill_logprobs(&lp[at], in, id);
    request_slots_tokens(server.slots, submitted[which])[at] = id;
    atomic_store(&slot->num_prompt_published, in->num_prompt_tokens);
    atomic_store(&slot->num_published, n + 1);
    published[which].ids[published[which].num_ids++] = id;
}

static void finish(int which, enum finish_reason reason)
{
    struct request_slot *slot = request_slots_get(server.slots, submitted[which]);
    if (ended[which]) return;
    if (atomic_load(&slot->cancel)) reason = FINISH_CANCELLED;
    if (slot->input.prompt_logprobs && atomic_load(&slot->num_prompt_published) == 0) {
        if (slot->input.max_tokens > 0 && reason <= FINISH_LENGTH) return; /* a token comes first */
        atomic_store(&slot->num_prompt_published, slot->input.num_prompt_tokens);
    }
    snprintf(slot->error_text, sizeof slot->error_text, "the \"reason\"");
    slot->stop_token_id = -1; /* whatever came last has a text */
    ended[which] = true;
    atomic_store(&slot->finish_reason, reason);
}

/* ---- the client ---- */

static struct client {
    struct exchange x;
    int http_status;
    bool streaming, gone, slow, done, failed;
    struct buffer text[INDEX_MAX]; /* by the choice's index */
    bool finished[INDEX_MAX];
} client;

static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 1000000, .max_keys = 4096};

/* A generated NUL is legal in an answer, but cJSON cuts texts there: both sides of the comparison turn it into
 * U+E000, which no token is. An escaped backslash may stand before what looks like one. */
#define NUL_REPLACEMENT "\xEE\x80\x80"

static char *replace_nuls(const char *text, size_t n)
{
    char *copy = strndup(text, n);
    for (char *at = copy; (at = strchr(at, '\\'));) {
        if (!strncmp(at, "\\u0000", 6)) at[2] = 'e';
        at += 2;
    }
    return copy;
}

static cJSON *read_json(const char *text, size_t n)
{
    struct error err = {0};
    char *copy = replace_nuls(text, n);
    if (json_gate_check(copy, n, &limits, &err) != 0) {
        fprintf(stderr, "%s:\n%s\n", err.text, copy);
        abort();
    }
    cJSON *json = cJSON_ParseWithLength(copy, n);
    assert_always(cJSON_IsObject(json));
    free(copy);
    return json;
}

static void take_choice(const cJSON *choice)
{
    const cJSON *idx = cJSON_GetObjectItemCaseSensitive(choice, "index");
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(choice, "text");
    const cJSON *delta = cJSON_GetObjectItemCaseSensitive(choice, client.streaming ? "delta" : "message");
    if (!text) text = cJSON_GetObjectItemCaseSensitive(delta, "content");
    assert_always(cJSON_IsNumber(idx) && idx->valueint >= 0 && idx->valueint < INDEX_MAX);
    if (cJSON_IsString(text)) {
        assert_always(!client.finished[idx->valueint] || !text->valuestring[0]);
        buffer_append_text(&client.text[idx->valueint], text->valuestring);
    }
    if (cJSON_IsString(cJSON_GetObjectItemCaseSensitive(choice, "finish_reason"))) {
        assert_always(!client.finished[idx->valueint]);
        client.finished[idx->valueint] = true;
    }
}

static void take_object(const char *text, size_t n)
{
    cJSON *json = read_json(text, n);
    const cJSON *choice, *choices = cJSON_GetObjectItemCaseSensitive(json, "choices");
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    assert_always(cJSON_IsArray(choices) != cJSON_IsObject(error));
    client.failed |= error != NULL;
    cJSON_ArrayForEach(choice, choices) take_choice(choice);
    cJSON_Delete(json);
}

/* One event: its lines, without the empty one behind it. */
static void take_event(const char *event, size_t n)
{
    assert_always(!client.done);
    if (n > 0 && event[0] == ':') return;
    assert_always(n > 6 && !memcmp(event, "data: ", 6) && !memchr(event, '\n', n) && !memchr(event, '\r', n));
    if (n == 12 && !memcmp(event, "data: [DONE]", 12))
        client.done = true;
    else
        take_object(event + 6, n - 6);
}

void exchange_start_stream(struct exchange *x, const char *content_type)
{
    (void)content_type;
    (void)x;
    assert_always(!client.gone && !client.streaming);
    client.streaming = true;
    client.http_status = 200;
}

bool exchange_write(struct exchange *x, const char *bytes, size_t n)
{
    (void)x;
    assert_always(client.streaming && !client.gone && n > 2 && !memcmp(bytes + n - 2, "\n\n", 2));
    for (size_t at = 0; at < n;) {
        const char *end = memmem(bytes + at, n - at, "\n\n", 2);
        take_event(bytes + at, (size_t)(end - bytes) - at);
        at = (size_t)(end - bytes) + 2;
    }
    return !client.slow;
}

void exchange_end(struct exchange *x)
{
    (void)x;
    assert_always(client.streaming && !client.gone && client.done);
    client.gone = true;
}

void exchange_reply(struct exchange *x, int http_status, const char *content_type, const char *body, size_t n)
{
    (void)x;
    (void)content_type;
    assert_always(!client.gone && !client.streaming);
    client.http_status = http_status;
    client.gone = true;
    take_object(body, n);
    assert_always(client.failed == (http_status >= 400));
}

void exchange_reply_json(struct exchange *x, struct buffer *body)
{
    exchange_reply(x, 200, "application/json", body->data, body->num_bytes);
}

void exchange_error(struct exchange *x, int http_status, const char *type, const char *code,
                    const char *param, int retry_after_seconds, const char *format, ...)
{
    (void)x;
    (void)code;
    (void)param;
    (void)retry_after_seconds;
    assert_always(!client.gone && !client.streaming && type && format[0] && http_status >= 400);
    client.http_status = http_status;
    client.gone = true;
}

void exchange_count_error(const struct exchange *x, int http_status, const char *code)
{
    (void)x;
    (void)code;
    assert_always(http_status >= 400);
}

void exchange_drop_request(struct exchange *x)
{
    x->body = x->path = x->query = NULL; /* nobody looks there any more */
}

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    (void)x;
    (void)name;
    (void)value;
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    (void)x;
    (void)name;
    return NULL;
}

void exchange_get_client(const struct exchange *x, struct ip_address *out)
{
    (void)x;
    *out = (struct ip_address){0};
}

/* ---- an input ---- */

/* What the client got of a choice is what its tokens say. */
static void check_text(int which)
{
    struct buffer decoded, expected;
    struct detokenizer d;
    const struct buffer *got = &client.text[which];
    buffer_init(&decoded, DECODED_BYTES_MAX);
    buffer_init(&expected, DECODED_BYTES_MAX * strlen(NUL_REPLACEMENT));
    detokenizer_init(&d, server.tokenizer, true);
    d.at_start = false;
    for (int32_t i = 0; i < published[which].num_ids; i++)
        detokenizer_push(&d, published[which].ids[i], &decoded);
    detokenizer_finish(&d, &decoded);
    for (size_t i = 0; i < decoded.num_bytes; i++)
        if (decoded.data[i])
            buffer_append_char(&expected, decoded.data[i]);
        else
            buffer_append_text(&expected, NUL_REPLACEMENT);
    assert_always(got->num_bytes == expected.num_bytes);
    assert_always(got->num_bytes == 0 || !memcmp(got->data, expected.data, got->num_bytes));
    buffer_deinit(&decoded);
    buffer_deinit(&expected);
}

/* Nothing comes between tokens and text, and no choice goes before another. */
static bool is_plain(const char *body)
{
    static const char *const words[] = {"stop", "echo", "skip", "best_of", "tools", "\\"};
    for (size_t i = 0; i < array_length(words); i++)
        if (strstr(body, words[i])) return false;
    return true;
}

static void run_operation(const uint8_t *at)
{
    int which = num_submitted ? (at[0] >> 3) % num_submitted : 0, vocab = fuzz_facts.vocab_size;
    static const enum finish_reason reasons[] = {FINISH_STOP, FINISH_LENGTH, FINISH_CANCELLED, FINISH_ERROR};
    if (num_submitted == 0) return;
    switch (at[0] % OPERATION_COUNT) {
    case PUBLISH:
        publish(which, (at[1] | at[2] << 8) % vocab);
        break;
    case PUBLISH_TEXT:
        publish(which, at[1]);
        break;
    case PUBLISH_TWO:
        publish(which, at[1]);
        publish(which, at[2]);
        break;
    case WAKE:
        api_on_engine_wake(&server);
        break;
    case FINISH:
        finish(which, reasons[at[1] % 4]);
        break;
    case TOGGLE_SLOW:
        client.slow = !client.slow;
        if (!client.slow && !client.gone && client.x.on_writable) client.x.on_writable(&client.x);
        break;
    case CLIENT_GOES:
        if (at[1] >= 16 || client.gone) break;
        client.gone = true;
        client.x.on_closed(&client.x);
        break;
    }
}

static void run_script(const uint8_t *script, size_t n)
{
    for (size_t i = 0; i + 2 < n; i += 3) run_operation(script + i);
}

/* The engine ends what is left, the client reads to the end; nothing may stay behind. */
static void end_all(void)
{
    for (int i = 0; i < num_submitted; i++) {
        publish(i, 'x');
        finish(i, FINISH_LENGTH);
    }
    if (client.slow && !client.gone) {
        client.slow = false;
        client.x.on_writable(&client.x);
    }
    api_on_engine_wake(&server);
    assert_always(client.gone && api_num_in_flight(&server) == 0);
    assert_always(request_slots_num_free(server.slots) == NUM_SLOTS && server.api->num_admitted == 0);
    assert_always(server.api->num_unread_bytes == 0);
}

static void start(void)
{
    fuzz_server_init(&server);
    for (int i = 0; i < NUM_SLOTS; i++) published[i].ids = malloc(FUZZ_MODEL_LEN * sizeof(int32_t));
    fuzz_api_open(&server, &loop, NUM_SLOTS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct json_gate_limits body_limits = {
        .max_depth = 64, .max_nodes = 10000, .max_keys = 4096};
    if (!server.config) start();
    if (size < 2 || size > 8000) return 0;
    size_t body_bytes = strnlen((const char *)data + 1, size - 1);
    if (json_gate_check((const char *)data + 1, body_bytes, &body_limits, NULL) != 0) return 0;
    char *body = strndup((const char *)data + 1, body_bytes);
    memset(&client, 0, sizeof client);
    for (int i = 0; i < INDEX_MAX; i++) buffer_init(&client.text[i], STREAM_BYTES_MAX);
    for (int i = 0; i < NUM_SLOTS; i++) published[i].num_ids = 0;
    memset(ended, 0, sizeof ended);
    num_submitted = 0;
    client.x = (struct exchange){.server = &server,
                                 .id = 1,
                                 .request_id = "req-1",
                                 .body = body,
                                 .body_bytes = body_bytes,
                                 .api_key_idx = -1,
                                 .arrival_ns = 1};
    if (data[0] & 1)
        endpoint_chat_completions(&client.x);
    else
        endpoint_completions(&client.x);
    uv_run(&loop, UV_RUN_DEFAULT); /* what the worker pool prepares */
    if (1 + body_bytes + 1 < size) run_script(data + 2 + body_bytes, size - 2 - body_bytes);
    end_all();
    for (int i = 0; i < num_submitted && is_plain(body); i++)
        if (client.finished[i]) check_text(i);
    for (int i = 0; i < INDEX_MAX; i++) buffer_deinit(&client.text[i]);
    arena_deinit(&client.x.arena);
    free(body);
    assert_always(arena_total_bytes() == fuzz_arena_bytes);
    return 0;
}
