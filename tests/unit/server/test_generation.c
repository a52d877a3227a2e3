/* The life of a generation with the engine and the socket in the test's hands: what is published when, what
 * the client reads, when it leaves, how the engine fails. The engine and the transport are the test's own
 * functions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/metrics.h"
#include "server/api/generation.h"
#include "server/ip_address.h"
#include "unit/link/link_rig.h"
#include "unit/server/fake_tokenizer.h"

enum { NUM_SLOTS = 4, MAX_MODEL_LEN = 64 };

static struct server server;

/* ---- the engine ---- */

static int32_t submitted[64], num_submitted;
static int num_cancels;

void link_submit(struct link *l, int32_t slot_idx)
{
    (void)l;
    submitted[num_submitted++] = slot_idx;
}

/* Its first step begins. */
static void dequeue(int which)
{
    struct link_counters *c = link_counters(server.link);
    c->num_dequeued++;
    c->dequeued_prompt_tokens +=
        (uint64_t)request_slots_get(server.slots, submitted[which])->input.num_prompt_tokens;
    c->num_running++;
}

void link_cancel(struct link *l, int32_t slot_idx)
{
    (void)l;
    (void)slot_idx;
    num_cancels++;
}

/* ---- the client ---- */

static struct client {
    struct exchange x;
    struct buffer stream;
    int http_status, retry_after;
    char body[8192];
    bool streaming, gone, slow; /* slow: nothing fits into the socket any more */
    int num_writes;
} client;

void exchange_drop_request(struct exchange *x)
{
    x->body = x->path = x->query = NULL; /* nobody looks there any more */
}

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    (void)x;
    if (!strcmp(name, "Retry-After")) client.retry_after = atoi(value);
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

void exchange_reply(struct exchange *x, int http_status, const char *content_type, const char *body, size_t n)
{
    assert_ptr_equal(x, &client.x);
    assert_false(client.gone || client.streaming);
    assert_string_equal(content_type, "application/json");
    assert_true(n < sizeof client.body);
    memcpy(client.body, body, n);
    client.body[n] = '\0';
    client.http_status = http_status;
    client.gone = true;
}

void exchange_reply_json(struct exchange *x, struct buffer *body)
{
    exchange_reply(x, 200, "application/json", body->data, body->num_bytes);
}

void exchange_error(struct exchange *x, int http_status, const char *type, const char *code,
                    const char *param, int retry_after_seconds, const char *format, ...)
{
    (void)code;
    (void)param;
    assert_true(!client.gone && !client.streaming && type);
    (void)x;
    va_list args;
    va_start(args, format);
    vsnprintf(client.body, sizeof client.body, format, args);
    va_end(args);
    client.http_status = http_status;
    client.retry_after = retry_after_seconds;
    client.gone = true;
}

void exchange_count_error(const struct exchange *x, int http_status, const char *code)
{
    (void)x;
    (void)code;
    assert_true(http_status >= 400);
}

void exchange_start_stream(struct exchange *x, const char *content_type)
{
    (void)content_type;
    assert_ptr_equal(x, &client.x);
    assert_false(client.gone || client.streaming);
    client.streaming = true;
    client.http_status = 200;
}

bool exchange_write(struct exchange *x, const char *bytes, size_t n)
{
    (void)x;
    assert_true(client.streaming && !client.gone);
    assert_true(n > 2 && !memcmp(bytes + n - 2, "\n\n", 2));
    buffer_append(&client.stream, bytes, n);
    client.num_writes++;
    return !client.slow;
}

void exchange_end(struct exchange *x)
{
    (void)x;
    assert_true(client.streaming && !client.gone);
    client.gone = true;
}

/* ---- the server ---- */

static struct config config;
static struct link_facts facts = {.vocab_size = FAKE_LOGITS_WIDTH,
                                  .eos_ids = {FAKE_EOS},
                                  .num_eos_ids = 1,
                                  .generation = {-1, -1, -1, -1, -1, -1},
                                  .max_model_len = MAX_MODEL_LEN,
                                  .max_num_batched_tokens = 512,
                                  .num_blocks = 8};
static const char *const names[] = {"m"};
static uv_loop_t loop;

static int set_up_for(int32_t max_model_len)
{
    static char tokenizer;
    static const char *const phases[] = {"all"};
    static const double seconds[] = {1};
    uv_loop_init(&loop);
    log_configure(LOG_ERROR, false);
    if (config_init(&config, NULL) < 0) return -1;
    server = (struct server){.loop = &loop,
                             .config = &config,
                             .state = SERVER_READY,
                             .facts = &facts,
                             .tokenizer = (const struct tokenizer *)&tokenizer,
                             .model_names = names,
                             .num_model_names = 1};
    num_submitted = num_cancels = 0;
    facts.max_model_len = max_model_len;
    server.link = link_rig_create(NUM_SLOTS, max_model_len);
    server.slots = link_slots(server.link);
    atomic_store(&link_counters(server.link)->prefill_seconds_per_token, 0.001);
    atomic_store(&link_counters(server.link)->decode_seconds_per_step, 0.1);
    facts.max_queued_tokens = 0;
    if (api_init(&server, NULL) < 0) return -1;
    api_on_loaded(&server, phases, seconds, 1);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    return set_up_for(MAX_MODEL_LEN);
}

static int set_up_long(void **state)
{
    (void)state;
    return set_up_for(2048);
}

/* Whatever a test did, nothing may be left. */
static int tear_down(void **state)
{
    (void)state;
    bool clean = api_num_in_flight(&server) == 0 && request_slots_num_free(server.slots) == NUM_SLOTS &&
                 server.api->num_admitted == 0 && server.api->num_unread_bytes == 0;
    api_deinit(&server);
    clean = uv_loop_close(&loop) == 0 && clean;
    link_destroy(server.link);
    metrics_reset();
    config_deinit(&config);
    buffer_deinit(&client.stream);
    arena_deinit(&client.x.arena);
    clean = arena_total_bytes() == 0 && clean;
    return clean ? 0 : -1;
}

static void begin_request(const char *body)
{
    buffer_deinit(&client.stream);
    arena_deinit(&client.x.arena);
    memset(&client, 0, sizeof client);
    buffer_init(&client.stream, 1 << 20);
    client.x = (struct exchange){.server = &server,
                                 .id = 1,
                                 .request_id = "req-1",
                                 .body = body,
                                 .body_bytes = strlen(body),
                                 .api_key_idx = -1,
                                 .arrival_ns = 1};
}

static void request(const char *body)
{
    begin_request(body);
    endpoint_completions(&client.x);
}

static void request_chat(const char *body)
{
    begin_request(body);
    endpoint_chat_completions(&client.x);
}

/* What the engine does: publishes text token by token, or ends a sequence. */
static void publish(int which, const char *text)
{
    struct request_slot *slot = request_slots_get(server.slots, submitted[which]);
    int32_t *tokens = request_slots_tokens(server.slots, submitted[which]) + slot->input.num_prompt_tokens;
    int32_t n = atomic_load(&slot->num_published);
    slot->scheduled_ns = slot->first_token_ns = 2;
    for (; *text; text++) tokens[n++] = (unsigned char)*text;
    atomic_store(&slot->num_published, n);
}

static void finish(int which, enum finish_reason reason)
{
    struct request_slot *slot = request_slots_get(server.slots, submitted[which]);
    snprintf(slot->error_text, sizeof slot->error_text, "the reason");
    atomic_store(&slot->finish_reason, reason);
}

static void wake(void)
{
    api_on_engine_wake(&server);
}

static int count(const char *what)
{
    int found = 0;
    for (const char *at = client.stream.data; at && (at = strstr(at, what)); at++) found++;
    return found;
}

static bool has(const char *what)
{
    return count(what) > 0;
}

/* ---- tests ---- */

static void a_stream_from_begin_to_end(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stream\":true}");
    assert_int_equal(num_submitted, 1);
    assert_int_equal(api_num_in_flight(&server), 1);
    publish(0, "ab");
    wake();
    assert_true(has("\"text\":\"ab\"")); /* two tokens, one wake-up, one event */
    wake();
    assert_int_equal(client.num_writes, 1);
    publish(0, "c");
    finish(0, FINISH_LENGTH);
    wake();
    assert_true(has("\"text\":\"c\"") && has("\"finish_reason\":\"length\"") && has("data: [DONE]\n\n"));
    assert_true(client.gone);
}

static void a_whole_answer_waits_for_all_choices(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"n\":2}");
    assert_int_equal(num_submitted, 2);
    publish(0, "x");
    finish(0, FINISH_STOP);
    wake();
    assert_false(client.gone);
    publish(1, "yz");
    finish(1, FINISH_LENGTH);
    wake();
    assert_int_equal(client.http_status, 200);
    assert_non_null(strstr(client.body, "\"text\":\"x\",\"logprobs\":null,\"finish_reason\":\"stop\""));
    assert_non_null(strstr(client.body, "\"text\":\"yz\",\"logprobs\":null,\"finish_reason\":\"length\""));
    assert_non_null(strstr(client.body, "\"prompt_tokens\":2,\"completion_tokens\":3"));
}

static void a_slow_client_leaves_tokens_in_the_slot(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stream\":true,\"max_tokens\":50}");
    client.slow = true;
    publish(0, "a");
    wake();
    assert_int_equal(client.num_writes, 1);
    publish(0, "bcdefghijklm");
    wake();
    wake();
    assert_int_equal(client.num_writes, 1); /* nothing is written, and nothing is kept elsewhere */
    assert_int_equal(request_slots_num_free(server.slots), NUM_SLOTS - 1);
    assert_int_equal(server.api->num_unread_bytes, 0);
    publish(0, "nopqrstuvwxyz");
    finish(0, FINISH_LENGTH);
    client.slow = false;
    client.x.on_writable(&client.x);
    assert_true(has("\"text\":\"bcdefghijklmnopqrstuvwxyz\"") && has("[DONE]"));
}

/* Who reads slowly holds up nobody: what the engine has finished is another's slot. */
static void a_finished_slot_does_not_wait_for_its_reader(void **state)
{
    (void)state;
    static const char *const bodies[] = {
        "{\"prompt\":\"p\",\"stream\":true,\"max_tokens\":50,\"stop\":[\"zz\"]}",
        "{\"prompt\":\"p\",\"stream\":true,\"max_tokens\":50,\"logprobs\":2,\"echo\":true}"};
    for (int i = 0; i < 2; i++) {
        num_submitted = 0;
        request(bodies[i]);
        publish(0, "a");
        wake();
        client.slow = true;
        publish(0, "b");
        wake();
        publish(0, "cdefghijklmnopqrstuvwxy");
        struct token_logprobs *last = &request_slots_logprobs(server.slots, submitted[0])[2 + 24];
        if (i == 1) last->logprob = -2.5f;
        wake();
        assert_int_equal(request_slots_num_free(server.slots), NUM_SLOTS - 1);
        finish(0, FINISH_LENGTH);
        wake();
        assert_int_equal(request_slots_num_free(server.slots), NUM_SLOTS);
        assert_true(server.api->num_unread_bytes > 0);
        assert_int_equal(api_num_in_flight(&server), 1);
        client.slow = false;
        client.x.on_writable(&client.x);
        assert_true(client.gone && has("[DONE]") && count("\"finish_reason\":\"length\"") == 1);
        assert_true(i == 0 ? has("\"text\":\"cdefghijklmnopqrstuvwxy\"")
                           : has("\"text\":\"wxy\"") && has("-2.5]"));
        assert_int_equal(server.api->num_unread_bytes, 0);
    }
}

/* Copies have a budget; past it a slot waits as it always did, and goes once there is room. */
static void the_copies_of_slots_are_bounded(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stream\":true,\"max_tokens\":50}");
    publish(0, "a");
    client.slow = true;
    wake();
    publish(0, "bc");
    finish(0, FINISH_LENGTH);
    server.api->num_unread_bytes += 64 << 20;
    wake();
    assert_int_equal(request_slots_num_free(server.slots), NUM_SLOTS - 1);
    server.api->num_unread_bytes -= 64 << 20;
    wake();
    assert_int_equal(request_slots_num_free(server.slots), NUM_SLOTS);
    client.gone = true;
    client.x.on_closed(&client.x);
    assert_int_equal(server.api->num_unread_bytes, 0);
}

/* One choice of a whole answer is done long before the others. */
static void a_choice_that_is_done_gives_its_slot_back(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"n\":2,\"logprobs\":1,\"prompt_logprobs\":0}");
    publish(0, "xy");
    request_slots_logprobs(server.slots, submitted[0])[3] = (struct token_logprobs){.logprob = -1.5f};
    finish(0, FINISH_LENGTH);
    wake();
    assert_int_equal(request_slots_num_free(server.slots), NUM_SLOTS - 1);
    publish(1, "z");
    finish(1, FINISH_LENGTH);
    wake();
    assert_non_null(strstr(client.body, "\"tokens\":[\"x\",\"y\"],\"token_logprobs\":[0,-1.5]"));
    assert_non_null(strstr(client.body, "\"text_offset\":[0,1]"));
    assert_non_null(strstr(client.body, "\"prompt_logprobs\":[null,{\"112\":{\"logprob\":0,\"rank\":null,"
                                        "\"decoded_token\":\"p\"}}]}"));
}

/* The first chunk means the first token, each step with tokens has one, the last has the finish_reason. */
static void chunks_are_steps(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stream\":true,\"echo\":true,\"stop\":\"yz\",\"max_tokens\":6}");
    wake();
    assert_int_equal(client.num_writes, 0);
    publish(0, "a");
    wake();
    assert_true(client.num_writes == 1 && has("\"text\":\"pa\""));
    publish(0, "y"); /* held back: it may begin the stop string */
    wake();
    assert_int_equal(client.num_writes, 2);
    assert_int_equal(count("\"text\":\"\""), 1);
    publish(0, "b");
    wake();
    assert_true(client.num_writes == 3 && has("\"text\":\"yb\""));
    publish(0, "cde"); /* the sixth token, but not yet the finish */
    wake();
    assert_true(client.num_writes == 4 && has("\"text\":\"cd\"") && !has("\"length\""));
    finish(0, FINISH_LENGTH);
    wake();
    assert_true(has("\"text\":\"e\",\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\ndata: [DONE]"));
    assert_int_equal(count("data: "), 6);
}

static void a_stop_string_comes_with_its_finish(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stream\":true,\"stop\":\"yz\"}");
    publish(0, "ay");
    wake();
    publish(0, "z");
    wake();
    assert_true(has("\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]"));
    assert_int_equal(count("data: "), 3);
    finish(0, FINISH_CANCELLED);
    wake();
}

static void a_client_that_leaves_cancels(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"n\":3}");
    publish(0, "a");
    finish(0, FINISH_STOP);
    wake();
    client.gone = true;
    client.x.on_closed(&client.x);
    assert_int_equal(num_cancels, 2); /* the first had ended */
    assert_int_equal(server.api->num_admitted, 0);
    assert_int_equal(api_num_in_flight(&server), 1); /* until the engine has let go */
    finish(1, FINISH_CANCELLED);
    wake();
    assert_int_equal(api_num_in_flight(&server), 1);
    finish(2, FINISH_CANCELLED);
    wake();
    assert_int_equal(api_num_in_flight(&server), 0);
}

static void a_client_that_leaves_while_its_body_is_prepared(void **state)
{
    (void)state;
    static char body[20000];
    snprintf(body, sizeof body, "{\"prompt\":\"p\",\"user\":\"%0*d\"}", 16000, 0);
    request(body);
    assert_int_equal(num_submitted, 0);
    memset(body, 'x', sizeof body); /* the transport's buffer is gone with the exchange */
    client.gone = true;
    client.x.on_closed(&client.x);
    assert_int_equal(api_num_in_flight(&server), 1);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(api_num_in_flight(&server), 0);
    assert_int_equal(num_submitted, 0);
}

/* A template decides itself how long it takes: the loop does not wait for it, nor for a short body's. */
static void a_chat_is_rendered_off_the_loop(void **state)
{
    (void)state;
    static const char template_text[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    struct chat_template *template;
    assert_int_equal(chat_template_parse(template_text, &template, NULL), 0);
    server.chat_template = template;
    request_chat(
        "{\"messages\":[{\"role\":\"user\",\"content\":\"p\"}],\"stream\":true,\"n\":2,\"max_tokens\":2}");
    assert_int_equal(num_submitted, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(num_submitted, 2);
    assert_int_equal(client.num_writes, 0);
    publish(1, "a"); /* the roles come first and in order, whoever is first */
    wake();
    assert_int_equal(client.num_writes, 1);
    const char *first = strstr(client.stream.data, "{\"index\":0,\"delta\":{\"role\"");
    const char *second = strstr(client.stream.data, "{\"index\":1,\"delta\":{\"role\"");
    assert_true(first && second && first < second);
    assert_true(second < strstr(client.stream.data, "{\"index\":1,\"delta\":{\"content\":\"a\"}"));
    publish(0, "bc");
    publish(1, "d");
    for (int i = 0; i < 2; i++) finish(i, FINISH_LENGTH);
    wake();
    assert_true(client.gone && count("\"role\"") == 2 && count("\"finish_reason\":\"length\"") == 2);
    chat_template_free(template);
}

/* ---- calls and reasoning ---- */

static struct chat_template *calling_template;
static struct tool_format *calling_format;

static int set_up_calls(void **state)
{
    static const char text[] =
        "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ '<' + m.role + '>' }}"
        "{% if m.reasoning_content %}{{ '<think>' + m.reasoning_content + '</think>' }}{% endif %}{{ "
        "m.content }}"
        "{% for c in m.tool_calls or [] %}{{ '<call>' + c.function.name + ' ' + c.function.arguments | "
        "tojson }}"
        "{{ '</call>' }}{% endfor %}{{ '<end>' }}{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' "
        "}}{% endif %}";
    if (set_up_long(state) || chat_template_parse(text, &calling_template, NULL) ||
        tool_format_derive(calling_template, NULL, &calling_format, NULL))
        return -1;
    server.chat_template = calling_template;
    server.tool_format = calling_format;
    return 0;
}

static int tear_down_calls(void **state)
{
    tool_format_free(calling_format);
    chat_template_free(calling_template);
    return tear_down(state);
}

#define TOOLS                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":{\"type\":\"object\"}" \
    "}}]"
#define ASK "\"messages\":[{\"role\":\"user\",\"content\":\"p\"}]"

/* The engine's answer, a wake-up for each part. */
static void answer_chat(const char *body, const char *const *parts, int num_parts)
{
    num_submitted = 0;
    request_chat(body);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(num_submitted, 1);
    for (int i = 0; i < num_parts; i++) {
        publish(0, parts[i]);
        wake();
    }
    finish(0, FINISH_STOP);
    wake();
    assert_true(client.gone);
}

static bool body_has(const char *what)
{
    return strstr(client.body, what) != NULL;
}

static void calls_are_streamed(void **state)
{
    (void)state;
    static const char *const parts[] = {
        "<think>why", " not</th", "ink>So: <ca", "ll>look {\"a\"", ": 1}</call><call>look {}", "</call>"};
    answer_chat("{" ASK "," TOOLS ",\"stream\":true}", parts, 6);
    assert_true(has("\"delta\":{\"reasoning_content\":\"why\",\"reasoning\":\"why\"}"));
    assert_true(has("\"delta\":{\"content\":\"So:\"}"));
    assert_int_equal(count("\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"\"}}]}"),
                     2);
    assert_true(has("{\"tool_calls\":[{\"index\":0,\"id\":\"call_"));
    assert_true(has("{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\"\"}}]}"));
    assert_true(has("{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{}\"}}]}"));
    assert_true(has("\"delta\":{},\"logprobs\":null,\"finish_reason\":\"tool_calls\""));
    assert_int_equal(count("\"finish_reason\":\"tool_calls\""), 1);
    assert_false(has("<call") || has("think>") || has("<think"));
}

static void calls_of_a_whole_answer(void **state)
{
    (void)state;
    static const char *const parts[] = {"<think>hm</think><call>look {\"a\": 1}</call><call>look {}</call>"};
    answer_chat("{" ASK "," TOOLS "}", parts, 1);
    assert_true(body_has(
        "\"content\":null,\"refusal\":null,\"annotations\":[],\"reasoning_content\":\"hm\",\"reasoning\":"
        "\"hm\",\"tool_calls\":["));
    assert_true(body_has("\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"a\\\": 1}\"}}"));
    assert_true(body_has("\"finish_reason\":\"tool_calls\""));
    answer_chat("{" ASK "," TOOLS ",\"parallel_tool_calls\":false}", parts, 1);
    assert_true(body_has("\\\"a\\\": 1") && !body_has("\"arguments\":\"{}\""));
    /* Nobody asked for calls: text. */
    answer_chat("{" ASK "," TOOLS ",\"tool_choice\":\"none\"}", parts, 1);
    assert_true(body_has("\"content\":\"<call>look") && body_has("\"finish_reason\":\"stop\""));
    answer_chat("{" ASK ",\"separate_reasoning\":false}", parts, 1);
    assert_true(body_has("\"content\":\"<think>hm</think><call>look"));
}

static void broken_calls_and_mentions(void **state)
{
    (void)state;
    static const char *const mention[] = {"Say <call>", "nobody", "? "}, *const broken[] = {
                                                                             "<call>look {\"a\": ]"};
    answer_chat("{" ASK "," TOOLS ",\"stream\":true}", mention, 3);
    assert_true(has("\"finish_reason\":\"stop\"") && !has("tool_calls"));
    answer_chat("{" ASK "," TOOLS "}", broken, 1);
    assert_true(body_has("\"arguments\":\"{\\\"a\\\": \"") && body_has("\"content\":\"]\""));
}

/* The prompt of a request, as far as the test's tokenizer goes: a token a byte. */
static const char *prompt_of(const char *body)
{
    static char text[2048];
    num_submitted = 0;
    request_chat(body);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(num_submitted, 1);
    const struct request_slot *slot = request_slots_get(server.slots, submitted[0]);
    const int32_t *tokens = request_slots_tokens(server.slots, submitted[0]);
    for (int i = 0; i < slot->input.num_prompt_tokens; i++) text[i] = (char)tokens[i];
    text[slot->input.num_prompt_tokens] = '\0';
    finish(0, FINISH_STOP);
    wake();
    return text;
}

static void earlier_calls_and_reasoning_are_rendered(void **state)
{
    (void)state;
    const char *prompt = prompt_of(
        "{" TOOLS ",\"messages\":[{\"role\":\"user\",\"content\":\"p\"},"
        "{\"role\":\"assistant\",\"content\":null,\"reasoning\":\"hm\",\"tool_calls\":[{\"id\":\"x\","
        "\"type\":\"function\",\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"a\\\":1.0}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"x\",\"content\":\"r\"}]}");
    assert_non_null(strstr(prompt, "\"name\": \"look\""));
    assert_non_null(strstr(
        prompt, "<user>p<end><assistant><think>hm</think><call>look {\"a\": 1.0}</call><end><tool>r<end>"
                "<assistant>"));
    assert_null(strstr(prompt_of("{" ASK "," TOOLS ",\"tool_choice\":\"none\"}"), "look"));
}

static void tools_are_checked(void **state)
{
    (void)state;
    static const char *const refused[][2] = {
        {"{" ASK ",\"tools\":{}}", "tools must be an array"},
        {"{" ASK ",\"tools\":[{\"type\":\"web_search\"}]}", "tools[0].type"},
        {"{" ASK ",\"tools\":[{\"type\":\"function\",\"function\":{}}]}",
         "tools[0].function.name is missing"},
        {"{" ASK ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]}",
         "tools[0].function.name must have"},
        {"{" ASK ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":[]}}]}",
         "JSON schema"},
        {"{" ASK "," TOOLS ",\"tool_choice\":\"sometimes\"}", "tool_choice must be"},
        {"{" ASK "," TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"no\"}}}",
         "none of the tools"},
        {"{" ASK ",\"tool_choice\":\"required\"}", "needs tools"},
        {"{" ASK ",\"tool_choice\":7}", "tool_choice must be a string or an object"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        num_submitted = 0;
        request_chat(refused[i][0]);
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(num_submitted, 0);
        assert_int_equal(client.http_status, 400);
        if (!body_has(refused[i][1])) fail_msg("%s: %s", refused[i][0], client.body);
    }
}

static void a_long_body_is_prepared_on_the_pool(void **state)
{
    (void)state;
    static char body[20000];
    snprintf(body, sizeof body, "{\"prompt\":\"p\",\"user\":\"%0*d\"}", 16000, 0);
    request(body);
    assert_int_equal(num_submitted, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(num_submitted, 1);
    publish(0, "a");
    finish(0, FINISH_LENGTH);
    wake();
    assert_int_equal(client.http_status, 200);
}

static void a_stop_string_ends_before_the_engine_does(void **state)
{
    (void)state;
    request(
        "{\"prompt\":\"p\",\"stream\":true,\"stop\":\"END\",\"stream_options\":{\"include_usage\":true}}");
    publish(0, "abE");
    wake();
    assert_true(has("\"text\":\"ab\""));
    publish(0, "NDxyz");
    wake();
    assert_true(has("\"finish_reason\":\"stop\"") && has("[DONE]") && client.gone);
    assert_true(has("\"completion_tokens\":5")); /* up to the one that completed it */
    assert_false(has("xyz") || has("\"text\":\"E"));
    assert_int_equal(num_cancels, 1);
    assert_int_equal(request_slots_num_free(server.slots), NUM_SLOTS - 1);
    finish(0, FINISH_CANCELLED);
    wake();
}

/* Many tokens that decode to nothing, and no further wake-up after them. */
static void tokens_without_text_do_not_hold_up_the_end(void **state)
{
    (void)state;
    request("{\"prompt\":[97],\"stream\":true,\"ignore_eos\":true,\"max_tokens\":60}");
    struct request_slot *slot = request_slots_get(server.slots, submitted[0]);
    for (int i = 0; i < 60; i++) request_slots_tokens(server.slots, submitted[0])[1 + i] = FAKE_EOS;
    slot->scheduled_ns = slot->first_token_ns = 2;
    atomic_store(&slot->num_published, 60);
    finish(0, FINISH_LENGTH);
    wake();
    assert_true(client.gone && has("\"finish_reason\":\"length\"") && has("[DONE]"));
}

/* The value of a series of the metrics page. */
static double series(const char *name)
{
    struct buffer page;
    buffer_init(&page, 1 << 20);
    metrics_render(&page, 0);
    const char *line = strstr(page.data, name);
    assert_non_null(line);
    double value = strtod(line + strlen(name) + strcspn(line + strlen(name), " "), NULL);
    buffer_deinit(&page);
    return value;
}

static void publish_at(const char *text, uint64_t first_ns, uint64_t last_ns)
{
    struct request_slot *slot = request_slots_get(server.slots, submitted[0]);
    atomic_store(&slot->last_token_ns, last_ns);
    publish(0, text);
    slot->first_token_ns = first_ns;
}

/* The engine's second 1 to 3; the client reads whenever it likes. */
static void a_slow_reader_does_not_spoil_the_engines_times(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stream\":true,\"max_tokens\":5}");
    client.slow = true;
    publish_at("a", 1000000000, 1000000000);
    wake();
    publish_at("b", 1000000000, 1500000000);
    wake();
    publish_at("cde", 1000000000, 3000000000);
    finish(0, FINISH_LENGTH);
    wake();
    assert_int_equal(client.num_writes, 1);
    assert_int_equal(request_slots_num_free(server.slots), NUM_SLOTS); /* what is unread was copied */
    client.slow = false;
    client.x.on_writable(&client.x);
    assert_true(client.gone && has("\"finish_reason\":\"length\""));
    assert_float_equal(series("\nvllm:time_to_first_token_seconds_sum"), 1, 1e-6);
    assert_float_equal(series("\nvllm:inter_token_latency_seconds_sum"), 2, 1e-6);
    assert_float_equal(series("\nvllm:inter_token_latency_seconds_count"), 4, 0);
    assert_float_equal(series("\nvllm:request_decode_time_seconds_sum"), 2, 1e-6);
    assert_float_equal(series("\nflashd_stream_first_write_seconds_count"), 1, 0);
    assert_float_equal(series("\nflashd_stream_write_gap_seconds_count"), 4, 0);
}

/* It takes some of what there is: the rest keeps its share of the time. */
static void tokens_taken_in_parts_keep_their_times(void **state)
{
    (void)state;
    char text[66] = {0};
    memset(text, 'a', 65);
    request("{\"prompt\":\"p\",\"stream\":true,\"max_tokens\":100}");
    publish_at(text, 1000000000, 65000000000);
    client.slow = true;
    wake();
    assert_int_equal(client.num_writes, 1);
    assert_float_equal(series("\nvllm:inter_token_latency_seconds_count"), 31, 0);
    assert_float_equal(series("\nvllm:inter_token_latency_seconds_sum"), 31, 1e-6);
    client.slow = false;
    client.x.on_writable(&client.x);
    assert_float_equal(series("\nvllm:inter_token_latency_seconds_sum"), 64, 1e-6);
    finish(0, FINISH_LENGTH);
    wake();
}

static void a_stop_token_leaves_no_text(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stop_token_ids\":[113]}"); /* 'q' */
    publish(0, "aq");
    request_slots_get(server.slots, submitted[0])->stop_token_id = 'q';
    finish(0, FINISH_STOP);
    wake();
    assert_non_null(strstr(client.body, "\"text\":\"a\""));
    assert_non_null(strstr(client.body, "\"completion_tokens\":2"));
}

static void a_request_fails_alone_and_says_so(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"n\":2,\"stream\":true}");
    publish(0, "a");
    publish(1, "b");
    wake();
    finish(1, FINISH_ERROR);
    wake();
    assert_true(client.gone &&
                has("data: {\"error\":{\"message\":\"The engine failed this request: the reason\""));
    assert_true(has("\"type\":\"server_error\""));
    assert_string_equal(client.stream.data + client.stream.num_bytes - 14, "data: [DONE]\n\n");
    assert_int_equal(num_cancels, 1);
    finish(0, FINISH_CANCELLED);
    wake();

    num_submitted = 0;
    request("{\"prompt\":\"p\"}");
    finish(0, FINISH_DEVICE);
    wake();
    assert_int_equal(client.http_status, 500);
    assert_non_null(strstr(client.body, "\"type\":\"server_error\""));
}

static void aborting_answers_everyone(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stream\":true}");
    publish(0, "a");
    wake();
    api_abort_all(&server, 503, "service_unavailable_error", "the end");
    assert_true(client.gone && has("\"message\":\"the end\"") && has("[DONE]"));
    finish(0, FINISH_CANCELLED);
    wake();

    num_submitted = 0;
    request("{\"prompt\":\"p\"}");
    api_abort_all(&server, 503, "service_unavailable_error", "the end");
    assert_int_equal(client.http_status, 503);
    assert_int_equal(client.retry_after, 1);
    finish(0, FINISH_CANCELLED);
    wake();
}

static void a_full_server_says_when_to_come_back(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"n\":4,\"max_tokens\":52}");
    for (int i = 0; i < 4; i++) dequeue(i);
    struct client first = client;
    memset(&client, 0, sizeof client);
    request("{\"prompt\":\"p\"}");
    assert_int_equal(client.http_status, 429);
    assert_int_equal(client.retry_after, 6); /* 52 steps of a tenth of a second */
    request("{\"prompt\":\"p\",\"n\":5}");
    assert_int_equal(client.http_status, 429); /* before its body is looked at */
    struct exchange *second = &client.x;
    arena_deinit(&second->arena);
    buffer_deinit(&client.stream);
    client = first;
    for (int i = 0; i < 4; i++) finish(i, FINISH_LENGTH);
    wake();
    assert_int_equal(client.http_status, 200);
    request("{\"prompt\":\"p\",\"n\":5}");
    assert_int_equal(client.http_status, 400);
}

/* What runs takes nobody's place in the queue, however much it may still generate. */
static void only_what_waits_is_limited(void **state)
{
    (void)state;
    facts.max_queued_tokens = 70;
    request("{\"prompt\":\"1234567890123456789012345678901234567890\",\"max_tokens\":20}"); /* 41 tokens */
    struct client first = client;
    memset(&client, 0, sizeof client);
    request("{\"prompt\":\"123456789012345678901234567890\",\"max_tokens\":20}");
    assert_int_equal(client.http_status, 429);
    assert_non_null(strstr(client.body, "0 sequences run and 1 wait with 41 prompt tokens"));
    assert_non_null(strstr(client.body, "--max-queued-tokens"));
    dequeue(0);
    request("{\"prompt\":\"123456789012345678901234567890\",\"max_tokens\":20}");
    assert_int_equal(num_submitted, 2);
    assert_int_equal(client.http_status, 0);
    dequeue(1);
    for (int i = 0; i < 2; i++) finish(i, FINISH_LENGTH);
    struct client second = client;
    client = first;
    generation_pump(server.api->generations->next);
    assert_int_equal(client.http_status, 200);
    arena_deinit(&client.x.arena);
    buffer_deinit(&client.stream);
    client = second;
    wake();
    /* Alone it may be as long as the context, but a batch that could never wait is told so. */
    facts.max_queued_tokens = 5;
    request("{\"prompt\":\"1234567890123456789012345678901234567890\",\"max_tokens\":20}");
    dequeue(2);
    finish(2, FINISH_LENGTH);
    wake();
    assert_int_equal(client.http_status, 200);
    request("{\"prompt\":\"1234567890123456789012345678901234567890\",\"max_tokens\":20,\"n\":2}");
    assert_int_equal(client.http_status, 400);
    facts.max_queued_tokens = 0;
    request("{\"prompt\":\"1234567890123456789012345678901234567890\",\"max_tokens\":20,\"n\":4}");
    for (int i = 3; i < 7; i++) finish(i, FINISH_LENGTH);
    wake();
    assert_int_equal(client.http_status, 200);
}

static uint64_t fake_now_ns;

static uint64_t fake_now(void)
{
    return fake_now_ns;
}

/* The monotonic clock begins with the machine: what lies an interval back may lie before it. */
static void pings_keep_their_interval_on_a_young_machine(void **state)
{
    (void)state;
    static const uint64_t second = 1000000000, interval = 15 * second;
    static const struct clock_source source = {fake_now, fake_now, NULL};
    clock_set_source(&source);
    fake_now_ns = second;
    request("{\"prompt\":\"p\",\"stream\":true}");
    for (int i = 0; i < 14; i++, fake_now_ns += second)
        generation_ping(server.api->generations, fake_now_ns, interval);
    assert_int_equal(count(": ping\n\n"), 0);
    fake_now_ns = second + interval;
    generation_ping(server.api->generations, fake_now_ns, interval);
    generation_ping(server.api->generations, fake_now_ns + second, interval);
    assert_int_equal(count(": ping\n\n"), 1);
    clock_set_source(NULL);
    publish(0, "a");
    finish(0, FINISH_LENGTH);
    wake();
}

static void states_refuse(void **state)
{
    (void)state;
    static const enum server_state states[] = {SERVER_LOADING, SERVER_DRAINING, SERVER_FAILED};
    for (int i = 0; i < 3; i++) {
        server.state = states[i];
        request("{\"prompt\":\"p\"}");
        assert_int_equal(client.http_status, 503);
        assert_in_range(client.retry_after, 1, 60);
    }
}

static void silence_is_pinged(void **state)
{
    (void)state;
    request("{\"prompt\":\"p\",\"stream\":true}");
    struct generation *g = server.api->generations;
    generation_ping(g, g->last_write_ns + 4, 5);
    assert_int_equal(client.num_writes, 0);
    generation_ping(g, g->last_write_ns + 5, 5);
    assert_string_equal(client.stream.data, ": ping\n\n");
    client.slow = true;
    generation_ping(g, UINT64_MAX, 5);
    generation_ping(g, UINT64_MAX, 5); /* a client that does not read gets no more of them */
    assert_int_equal(client.num_writes, 2);
    client.gone = true;
    client.x.on_closed(&client.x);
    finish(0, FINISH_CANCELLED);
    wake();
}

static void slots_get_what_was_asked_for(void **state)
{
    (void)state;
    request("{\"prompt\":[97,98],\"n\":2,\"seed\":-5,\"max_tokens\":7,\"min_tokens\":2,\"temperature\":0.5,"
            "\"logprobs\":3,"
            "\"logit_bias\":{\"9\":1.5,\"265\":7},\"stop_token_ids\":[4]}");
    const struct request_slot_input *first = &request_slots_get(server.slots, submitted[0])->input;
    const struct request_slot_input *second = &request_slots_get(server.slots, submitted[1])->input;
    assert_true(first->sampling.seed == (uint64_t)-5 && second->sampling.seed != first->sampling.seed);
    assert_int_equal(first->num_prompt_tokens, 2);
    assert_int_equal(request_slots_tokens(server.slots, submitted[1])[1], 98);
    assert_int_equal(first->max_tokens, 7);
    assert_int_equal(first->min_tokens, 2);
    assert_int_equal(first->sampling.num_logprobs, 3);
    assert_true(first->sampling.temperature == 0.5f);
    const struct logit_bias *biases = request_slots_payload(server.slots, submitted[0])->logit_bias;
    assert_int_equal(first->num_logit_bias, 2);
    assert_true(biases[0].token_id == 9 && biases[0].bias == 1.5f);
    assert_true(biases[1].token_id == 265 && biases[1].bias == 7.0f);
    /* The ids without a token, 262 to 269, are never drawn, whatever the client wants. */
    for (int32_t id = 0; id < 270; id++)
        assert_int_equal(link_silent_ids(server.link)[id / 64] >> id % 64 & 1, id >= 262);
    finish(0, FINISH_LENGTH);
    finish(1, FINISH_LENGTH);
    wake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_stream_from_begin_to_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_whole_answer_waits_for_all_choices, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slow_client_leaves_tokens_in_the_slot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_finished_slot_does_not_wait_for_its_reader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_copies_of_slots_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_choice_that_is_done_gives_its_slot_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(chunks_are_steps, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_string_comes_with_its_finish, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_cancels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_leaves_while_its_body_is_prepared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_chat_is_rendered_off_the_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_long_body_is_prepared_on_the_pool, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_string_ends_before_the_engine_does, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tokens_without_text_do_not_hold_up_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slow_reader_does_not_spoil_the_engines_times, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tokens_taken_in_parts_keep_their_times, set_up_long, tear_down),
        cmocka_unit_test_setup_teardown(a_stop_token_leaves_no_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_request_fails_alone_and_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(aborting_answers_everyone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_server_says_when_to_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_what_waits_is_limited, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pings_keep_their_interval_on_a_young_machine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(states_refuse, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silence_is_pinged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(calls_are_streamed, set_up_calls, tear_down_calls),
        cmocka_unit_test_setup_teardown(calls_of_a_whole_answer, set_up_calls, tear_down_calls),
        cmocka_unit_test_setup_teardown(broken_calls_and_mentions, set_up_calls, tear_down_calls),
        cmocka_unit_test_setup_teardown(earlier_calls_and_reasoning_are_rendered, set_up_calls,
                                        tear_down_calls),
        cmocka_unit_test_setup_teardown(tools_are_checked, set_up_calls, tear_down_calls),
        cmocka_unit_test_setup_teardown(slots_get_what_was_asked_for, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
