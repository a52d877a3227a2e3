/* /tokenize and /detokenize: what is too much, and whose turn it is. The transport is the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/api.h"
#include "server/ip_address.h"
#include "unit/server/fake_tokenizer.h"

enum { CLIENTS = 6 };

static struct client {
    struct exchange x;
    int http_status;
    bool gone;
    char body[4096];
} clients[CLIENTS];

static struct config config;
static struct link_facts facts = {
    .vocab_size = FAKE_LOGITS_WIDTH, .max_model_len = 8, .generation = {-1, -1, -1, -1, -1, -1}};
static const char *const names[] = {"m"};
static uv_loop_t loop;
static struct server server;
static char long_body[20000];

void exchange_reply(struct exchange *x, int http_status, const char *content_type, const char *body, size_t n)
{
    struct client *c = (struct client *)x;
    (void)content_type;
    assert_false(c->gone);
    c->gone = true;
    c->http_status = http_status;
    snprintf(c->body, sizeof c->body, "%.*s", (int)n, body);
}

void exchange_reply_json(struct exchange *x, struct buffer *body)
{
    exchange_reply(x, 200, "application/json", body->data, body->num_bytes);
}

void exchange_error(struct exchange *x, int http_status, const char *type, const char *code,
                    const char *param, int retry_after_seconds, const char *format, ...)
{
    struct client *c = (struct client *)x;
    (void)code;
    (void)param;
    (void)retry_after_seconds;
    assert_true(!c->gone && type);
    c->gone = true;
    c->http_status = http_status;
    va_list args;
    va_start(args, format);
    vsnprintf(c->body, sizeof c->body, format, args);
    va_end(args);
}

/* ---- nothing here streams ---- */

void exchange_count_error(const struct exchange *x, int http_status, const char *code)
{
    (void)x;
    (void)http_status;
    (void)code;
}

void exchange_drop_request(struct exchange *x)
{
    (void)x;
    fail();
}

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    (void)x;
    (void)name;
    (void)value;
    fail();
}

void exchange_get_client(const struct exchange *x, struct ip_address *out)
{
    (void)x;
    *out = (struct ip_address){0};
}

const char *exchange_header(const struct exchange *x, const char *name)
{
    (void)x;
    (void)name;
    return NULL;
}

void exchange_start_stream(struct exchange *x, const char *content_type)
{
    (void)content_type;
    (void)x;
    fail();
}

bool exchange_write(struct exchange *x, const char *bytes, size_t n)
{
    (void)x;
    (void)bytes;
    (void)n;
    return false;
}

void exchange_end(struct exchange *x)
{
    (void)x;
    fail();
}

/* ---- the server ---- */

static int set_up(void **state)
{
    (void)state;
    static char tokenizer;
    memset(clients, 0, sizeof clients);
    uv_loop_init(&loop);
    if (config_init(&config, NULL) < 0) return -1;
    config.max_tokenize_tokens = 10;
    server = (struct server){.loop = &loop,
                             .config = &config,
                             .state = SERVER_READY,
                             .facts = &facts,
                             .tokenizer = (const struct tokenizer *)&tokenizer,
                             .model_names = names,
                             .num_model_names = 1};
    snprintf(long_body, sizeof long_body, "{\"prompt\":\"abc\",\"user\":\"%0*d\"}", 16000, 0);
    return api_init(&server, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    bool clean = api_num_in_flight(&server) == 0 && server.works.num_long == 0;
    api_deinit(&server);
    clean = uv_loop_close(&loop) == 0 && clean;
    config_deinit(&config);
    return clean ? 0 : -1;
}

static void send_to(void (*endpoint)(struct exchange *x), int which, const char *body)
{
    clients[which].x = (struct exchange){.server = &server, .body = body, .body_bytes = strlen(body)};
    clients[which].gone = false;
    endpoint(&clients[which].x);
}

static void expect(void (*endpoint)(struct exchange *x), const char *body, int http_status, const char *says)
{
    send_to(endpoint, 0, body);
    uv_run(&loop, UV_RUN_DEFAULT);
    if (clients[0].http_status != http_status || !strstr(clients[0].body, says))
        fail_msg("%s: %d %s", body, clients[0].http_status, clients[0].body);
}

static void tokens_are_bounded(void **state)
{
    (void)state;
    expect(endpoint_tokenize, "{\"prompt\":\"123456789\"}", 200, "\"count\":10");
    expect(endpoint_tokenize, "{\"prompt\":\"1234567890\"}", 413, "--max-tokenize-tokens");
    expect(endpoint_detokenize, "{\"tokens\":[49,49,49,49,49,49,49,49,49,49]}", 200, "1111111111");
    expect(endpoint_detokenize, "{\"tokens\":[49,49,49,49,49,49,49,49,49,49,49]}", 413,
           "--max-tokenize-tokens");
    facts.max_model_len = 12; /* a prompt that can be answered can be tokenised */
    expect(endpoint_tokenize, "{\"prompt\":\"12345678901\"}", 200, "\"count\":12");
    facts.max_model_len = 8;
}

/* Clients send what they send to the other endpoints, too. */
static void fields_of_generation_are_read_and_do_nothing(void **state)
{
    (void)state;
    expect(endpoint_tokenize,
           "{\"prompt\":\"a\",\"logit_bias\":{\"5\":1,\"4\":2},\"stop\":[\"x\"],\"stop_token_ids\":[4]}", 200,
           "\"count\":2");
}

static void token_strings_stand_beside_the_ids(void **state)
{
    (void)state;
    expect(endpoint_tokenize, "{\"prompt\":\"a</s>\\\"\",\"return_token_strs\":true}", 200,
           "\"tokens\":[260,97,261,34],\"token_strs\":[\"<s>\",\"a\",\"</s>\",\"\\\"\"]}");
}

/* Two at once; the others wait without a copy of their bodies, and short ones and chats overtake them. */
static void long_texts_leave_the_pool_to_others(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) send_to(endpoint_tokenize, i, long_body);
    assert_int_equal(server.works.num_long, 2);
    assert_int_equal(api_num_in_flight(&server), 5);
    send_to(endpoint_tokenize, 5, "{\"prompt\":\"a\"}");
    assert_int_equal(server.works.num_long, 2);
    clients[3].gone = true; /* in the queue */
    clients[3].x.on_closed(&clients[3].x);
    clients[0].gone = true; /* on the pool */
    clients[0].x.on_closed(&clients[0].x);
    assert_int_equal(api_num_in_flight(&server), 5);
    uv_run(&loop, UV_RUN_DEFAULT);
    static const int answered[] = {1, 2, 4, 5};
    for (size_t i = 0; i < 4; i++) assert_int_equal(clients[answered[i]].http_status, 200);
    assert_int_equal(clients[0].http_status + clients[3].http_status, 0);
}

static void waiting_texts_are_aborted(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) send_to(endpoint_tokenize, i, long_body);
    api_abort_all(&server, 503, "service_unavailable_error", "the end");
    assert_int_equal(clients[2].http_status, 503);
    assert_int_equal(clients[3].http_status, 503);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(clients[1].http_status, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tokens_are_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fields_of_generation_are_read_and_do_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(token_strings_stand_beside_the_ids, set_up, tear_down),
        cmocka_unit_test_setup_teardown(long_texts_leave_the_pool_to_others, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waiting_texts_are_aborted, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
