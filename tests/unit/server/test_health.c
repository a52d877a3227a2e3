/* /livez and /health with the clock, the engine and the transport in the test's hands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "server/server.h"

static const uint64_t second_ns = 1000000000;

static uint64_t now_ns, owed_since_ns;
static struct link_stats stats;
static int http_status;
static char reason[128];

static uint64_t get_now(void)
{
    return now_ns;
}

uint64_t api_engine_owes_since_ns(const struct server *server)
{
    (void)server;
    return owed_since_ns;
}

void link_stats(const struct link *l, struct link_stats *out)
{
    (void)l;
    *out = stats;
}

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    (void)x;
    (void)name;
    (void)value;
}

void exchange_reply(struct exchange *x, int status, const char *content_type, const char *body, size_t n)
{
    (void)x;
    (void)content_type;
    (void)body;
    (void)n;
    http_status = status;
    reason[0] = '\0';
}

void exchange_reply_json(struct exchange *x, struct buffer *body)
{
    exchange_reply(x, 200, "application/json", body->data, body->num_bytes);
}

void exchange_error(struct exchange *x, int status, const char *type, const char *code, const char *param,
                    int retry_after_seconds, const char *format, ...)
{
    va_list args;
    (void)x;
    (void)type;
    (void)code;
    (void)param;
    (void)retry_after_seconds;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    http_status = status;
}

static struct config config;
static struct link_facts facts;
static struct server server;
static struct exchange x;

static int set_up(void **state)
{
    static const struct clock_source clock = {get_now, get_now, NULL};
    (void)state;
    clock_set_source(&clock);
    facts = (struct link_facts){.max_num_batched_tokens = 500};
    server = (struct server){.config = &config, .state = SERVER_READY, .facts = &facts};
    x = (struct exchange){.server = &server};
    now_ns = 1000 * second_ns;
    owed_since_ns = 0;
    stats = (struct link_stats){.tokens_per_second = 100}; /* the longest step: 5 s */
    return 0;
}

static int livez(void)
{
    endpoint_livez(&x);
    return http_status;
}

/* With a look a second, as who waits has; the last one at the end. */
static void pass(uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++) {
        (void)livez();
        now_ns += second_ns;
    }
}

static void idle_is_alive_however_long(void **state)
{
    (void)state;
    stats.last_step_end_ns = second_ns;
    assert_int_equal(livez(), 200);
    now_ns += 100000 * second_ns;
    assert_int_equal(livez(), 200);
}

static void new_work_after_a_long_rest_is_no_standstill(void **state)
{
    (void)state;
    stats.last_step_end_ns = second_ns;
    assert_int_equal(livez(), 200);
    owed_since_ns = now_ns; /* the first request for a quarter of an hour, no step has ended yet */
    assert_int_equal(livez(), 200);
}

static void busy_is_not_dead(void **state)
{
    (void)state;
    owed_since_ns = now_ns;
    for (int i = 0; i < 100; i++) { /* a long answer, in long steps */
        now_ns += 40 * second_ns;
        stats.last_step_end_ns = now_ns - second_ns;
        assert_int_equal(livez(), 200);
    }
}

static void an_engine_that_ends_no_step_is_stuck(void **state)
{
    (void)state;
    owed_since_ns = now_ns;
    stats.last_step_end_ns = now_ns - second_ns;
    pass(49); /* ten of its longest steps take 50 s */
    assert_int_equal(livez(), 200);
    pass(2);
    assert_int_equal(livez(), 503);
    assert_string_equal(reason, "the engine is stuck");
    endpoint_health(&x);
    assert_int_equal(http_status, 503);
    stats.last_step_end_ns = now_ns; /* it was only slow */
    assert_int_equal(livez(), 200);
}

/* A machine that was suspended, or a container: nobody has looked, and the engine was stopped, too. */
static void a_process_that_was_stopped_does_not_blame_its_engine(void **state)
{
    (void)state;
    owed_since_ns = now_ns;
    stats.last_step_end_ns = now_ns;
    pass(10);
    now_ns += 600 * second_ns;
    assert_int_equal(livez(), 200);
    pass(50); /* as long as it may take, from there on */
    assert_int_equal(livez(), 200);
    pass(1);
    assert_int_equal(livez(), 503);
    server.engine_is_down = true; /* and as it loads */
    server.engine_load_seconds = 1;
    server.engine_start_ns = now_ns;
    pass(10);
    now_ns += 600 * second_ns;
    assert_int_equal(livez(), 200);
}

static void patience_may_be_told(void **state)
{
    (void)state;
    config.step_timeout = 3;
    owed_since_ns = now_ns;
    pass(3);
    assert_int_equal(livez(), 200);
    now_ns += second_ns / 10;
    assert_int_equal(livez(), 503);
    config.step_timeout = 0;
    assert_int_equal(livez(), 200);
}

static void an_engine_that_never_took_the_work_is_stuck(void **state)
{
    (void)state;
    stats = (struct link_stats){.tokens_per_second = 1e6};
    owed_since_ns = now_ns;
    pass(29);
    assert_int_equal(livez(), 200);
    pass(2);
    assert_int_equal(livez(), 503);
}

/* Ten of its longest loads, at least half a minute. */
static void an_engine_that_never_gets_ready_again_is_stuck(void **state)
{
    static const struct {
        double load_seconds;
        uint64_t patience;
    } cases[] = {{0.3, 30}, {5, 50}, {200, 600}};
    (void)state;
    server.engine_is_down = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        server.engine_load_seconds = cases[i].load_seconds;
        server.engine_start_ns = now_ns;
        pass(cases[i].patience - 1);
        assert_int_equal(livez(), 200);
        pass(2);
        assert_int_equal(livez(), 503);
        assert_string_equal(reason, "the engine is stuck");
    }
}

static void the_first_load_takes_as_long_as_it_takes(void **state)
{
    (void)state;
    server = (struct server){.config = &config, .state = SERVER_LOADING, .engine_is_down = true};
    server.engine_start_ns = now_ns;
    now_ns += 100000 * second_ns;
    assert_int_equal(livez(), 200);
}

static void states(void **state)
{
    (void)state;
    server.state = SERVER_LOADING;
    endpoint_health(&x);
    assert_int_equal(http_status, 503);
    assert_int_equal(livez(), 200);
    for (enum server_state s = SERVER_LAME_DUCK; s <= SERVER_DRAINING; s++) {
        server.state = s;
        endpoint_health(&x);
        assert_int_equal(http_status, 503);
        assert_int_equal(livez(), 200);
    }
    server.state = SERVER_READY;
    endpoint_health(&x);
    assert_int_equal(http_status, 200);
    server.engine_is_down = true;
    endpoint_health(&x);
    assert_int_equal(http_status, 503);
    assert_int_equal(livez(), 200);
    server.state = SERVER_FAILED;
    assert_int_equal(livez(), 503);
    assert_string_equal(reason, "the device failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(idle_is_alive_however_long, set_up),
        cmocka_unit_test_setup(new_work_after_a_long_rest_is_no_standstill, set_up),
        cmocka_unit_test_setup(busy_is_not_dead, set_up),
        cmocka_unit_test_setup(an_engine_that_ends_no_step_is_stuck, set_up),
        cmocka_unit_test_setup(a_process_that_was_stopped_does_not_blame_its_engine, set_up),
        cmocka_unit_test_setup(an_engine_that_never_took_the_work_is_stuck, set_up),
        cmocka_unit_test_setup(an_engine_that_never_gets_ready_again_is_stuck, set_up),
        cmocka_unit_test_setup(the_first_load_takes_as_long_as_it_takes, set_up),
        cmocka_unit_test_setup(patience_may_be_told, set_up),
        cmocka_unit_test_setup(states, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
