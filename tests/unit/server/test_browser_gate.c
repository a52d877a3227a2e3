/* test_browser_gate.c - which pages and which names a server takes requests from: with and without keys, on
 * loopback and elsewhere; and what the answers tell browsers. */
#include "tests/unit/server/http_rig.h"

#include "server/browser_gate.h"

static void set(struct config *config, const char *name, const char *value)
{
    struct error err = {0};
    if (config_set(config, name, value, "test", &err)) fail_msg("%s", err.text);
}

/* options: name, value, ... up to NULL. bound: an address, or NULL for a Unix socket. */
static struct browser_gate open_gate(struct config *config, const char *bound, const char *const *options)
{
    struct error err = {0};
    struct browser_gate gate;
    struct sockaddr_storage address = {0};
    assert_int_equal(config_init(config, &err), 0);
    for (; *options; options += 2) set(config, options[0], options[1]);
    if (bound && uv_ip4_addr(bound, 80, (struct sockaddr_in *)&address))
        assert_int_equal(uv_ip6_addr(bound, 80, (struct sockaddr_in6 *)&address), 0);
    assert_int_equal(browser_gate_init(&gate, config, bound ? (struct sockaddr *)&address : NULL, &err), 0);
    return gate;
}

#define OPTIONS(...)                                                                                         \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }
#define NO_OPTIONS                                                                                           \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        NULL                                                                                                 \
    }

static void test_hosts(void **state)
{
    (void)state;
    static const char *const loopback[] = {"127.0.0.1", "127.0.0.5", "::1", "::ffff:127.0.0.1"};
    static const char *const own[] = {"localhost",  "LocalHost:8000", "localhost.",         "x.localhost",
                                      "127.0.0.1",  "127.0.0.1:1",    "127.255.255.255",    "[::1]",
                                      "[::1]:8000", "[0::1]",         "[::ffff:127.0.0.1]", ""};
    static const char *const foreign[] = {"evil.example",     "evil.example:8000", "localhost.evil.example",
                                          "notlocalhost",     "127.0.0.1.x",       "126.0.0.1",
                                          "0.0.0.0",          "10.0.0.1",          "[::2]",
                                          "[::ffff:1.2.3.4]", "0177.0.0.1",        "127.1",
                                          "2130706433",       "localhost..",       "127.0.0.1."};
    struct config config;
    for (size_t k = 0; k < array_length(loopback); k++) {
        struct browser_gate gate = open_gate(&config, loopback[k], NO_OPTIONS);
        for (size_t i = 0; i < array_length(own); i++)
            assert_true(browser_gate_takes_host(&gate, own[i], strlen(own[i])));
        for (size_t i = 0; i < array_length(foreign); i++)
            if (browser_gate_takes_host(&gate, foreign[i], strlen(foreign[i]))) fail_msg("%s", foreign[i]);
        config_deinit(&config);
    }
    static const struct {
        const char *bound, *name, *value;
        bool takes, shows_page;
    } others[] = {
        {"0.0.0.0", NULL, NULL, true, false},
        {"10.1.2.3", NULL, NULL, true, false},
        {"::", NULL, NULL, true, false},
        {NULL, NULL, NULL, true, false},
        {"0.0.0.0", "allowed-origin", "*", true, false},
        {"0.0.0.0", "api-key", "k", true, true},
        {NULL, "api-key", "k", true, true},
        {"127.0.0.1", "api-key", "k", true, true}, /* pages do not know it */
        {"127.0.0.1", "allowed-host", "evil.example", true, true},
        {"127.0.0.1", "allowed-host", "EVIL.example", true, true},
        {"127.0.0.1", "allowed-host", "EVIL.example.", true, true},
        {"127.0.0.1", "allowed-host", "*", true, true},
        {"127.0.0.1", "allowed-host", "example", false, true},
        {"127.0.0.1", "allowed-origin", "*", false, true},
    };
    for (size_t i = 0; i < array_length(others); i++) {
        struct browser_gate gate =
            open_gate(&config, others[i].bound, OPTIONS(others[i].name, others[i].value));
        assert_int_equal(browser_gate_takes_host(&gate, "evil.example:8000", 17), others[i].takes);
        assert_int_equal(gate.shows_page, others[i].shows_page);
        config_deinit(&config);
    }
}

static void expect_origin(const char *const *options, const char *origin, const char *host, bool takes,
                          const char *allow)
{
    struct config config;
    const char *got;
    struct browser_gate gate = open_gate(&config, "0.0.0.0", options);
    assert_int_equal(browser_gate_takes_origin(&gate, origin, host, strlen(host), &got), takes);
    if (allow)
        assert_string_equal(got, allow);
    else
        assert_null(got);
    config_deinit(&config);
}

static void test_origins(void **state)
{
    (void)state;
    const char *const *none = NO_OPTIONS, *const *key = OPTIONS("api-key", "k"),
                      *const *any = OPTIONS("allowed-origin", "*"),
                      *const *two = OPTIONS("allowed-origin", "https://a", "allowed-origin", "http://b:3000"),
                      *const *both = OPTIONS("api-key", "k", "allowed-origin", "https://a");
    expect_origin(none, NULL, "h", true, NULL);
    expect_origin(none, "https://a", "h", false, NULL);
    expect_origin(none, "null", "h", false, NULL);
    expect_origin(none, "", "h", false, NULL);
    expect_origin(none, "http://h:8000", "h:8000", true, NULL); /* its own */
    expect_origin(none, "https://H", "h", true, NULL);          /* behind TLS of a proxy */
    expect_origin(none, "http://h:8001", "h:8000", false, NULL);
    expect_origin(none, "http://h.evil", "h", false, NULL);
    expect_origin(none, "://", "", false, NULL);
    expect_origin(key, NULL, "h", true, "*");
    expect_origin(key, "https://a", "h", true, "*");
    expect_origin(any, "https://a", "h", true, "*");
    expect_origin(any, "null", "h", true, "*");
    expect_origin(two, "https://a", "h", true, "https://a");
    expect_origin(two, "HTTP://B:3000", "h", true, "http://b:3000");
    expect_origin(two, "http://a", "h", false, NULL);
    expect_origin(two, "https://a:443", "h", false, NULL);
    expect_origin(two, NULL, "h", true, NULL);
    expect_origin(both, "https://a", "h", true, "https://a");
    expect_origin(both, "https://c", "h", false, NULL);
    expect_origin(OPTIONS("allowed-origin", "null"), "null", "h", true, "null");
}

static void test_names_that_end_with_a_dot(void **state)
{
    (void)state;
    struct config config;
    static const char *const asked[] = {"llm.example", "LLM.example.", "llm.example.:8000", "[fd00::1]:8000"};
    struct browser_gate gate =
        open_gate(&config, "127.0.0.1", OPTIONS("allowed-host", "llm.example", "allowed-host", "[fd00::1]"));
    for (size_t i = 0; i < array_length(asked); i++)
        if (!browser_gate_takes_host(&gate, asked[i], strlen(asked[i]))) fail_msg("%s", asked[i]);
    assert_false(browser_gate_takes_host(&gate, "llm.example..", 13));
    config_deinit(&config);
}

static void expect_refused(const char *option, const char *value)
{
    struct config config;
    struct error err = {0};
    struct browser_gate gate;
    assert_int_equal(config_init(&config, &err), 0);
    set(&config, option, value);
    if (browser_gate_init(&gate, &config, NULL, &err) != STATUS_INVALID) fail_msg("%s", value);
    char begin[64];
    snprintf(begin, sizeof begin, "--%s %s: ", option, value);
    assert_memory_equal(err.text, begin, strlen(begin));
    config_deinit(&config);
}

static void test_what_is_no_origin(void **state)
{
    (void)state;
    static const char *const wrong[] = {"a",    "http://",    "http://a/", "http://a/b",
                                        "://a", "http://a b", "**"};
    for (size_t i = 0; i < array_length(wrong); i++) expect_refused("allowed-origin", wrong[i]);
}

/* Those that no Host header could ever match. */
static void test_what_is_no_host(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "llm.example:8000", "http://llm.example", "*.example", "**", "llm.example/",
        "fd00::1",          "[fd00::1",           "[::1]:80",  "a b"};
    for (size_t i = 0; i < array_length(wrong); i++) expect_refused("allowed-host", wrong[i]);
}

/* ---- on the wire ---- */

static void expect(const struct rig *rig, const char *fields, const char *request, int status,
                   const char *has, const char *lacks)
{
    char text[512];
    snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n%s\r\n", request, fields);
    char *answer = client_ask_text(rig, text);
    if (status_of(answer) != status || (has && !strstr(answer, has)) || (lacks && strstr(answer, lacks)))
        fail_msg("expected %d for:\n%s\ngot:\n%s", status, text, answer);
    free(answer);
}

#define PREFLIGHT(origin)                                                                                    \
    "Origin: " origin "\r\nAccess-Control-Request-Method: POST\r\n"                                          \
    "Access-Control-Request-Headers: authorization, content-type\r\n"

static void test_by_default_no_page_may_ask(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig_start(&rig);
    expect(&rig, "", "GET /ok", 200, NULL, "Access-Control");
    expect(&rig, "Origin: https://evil\r\n", "GET /ok", 403, "--allowed-origin", "Access-Control");
    expect(&rig, "Origin: null\r\n", "GET /ok", 403, NULL, "Access-Control");
    expect(&rig, "Origin: https://evil\r\n", "GET /open", 403, NULL, NULL);
    expect(&rig, "Origin: https://evil\r\nContent-Length: 2\r\n", "POST /echo", 403, NULL, NULL);
    expect(&rig, PREFLIGHT("https://evil"), "OPTIONS /echo", 403, NULL, "Access-Control");
    expect(&rig, "Origin: http://a\r\n", "GET /ok", 200, NULL, "Access-Control");
    expect(&rig, "Origin: https://evil\r\n", "GET http://evil/ok", 421, "--allowed-host", NULL);
    assert_int_equal(num_handled, 2);
    rig_end(&rig);
}

static void test_pages_that_are_named(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    set(&rig.config, "allowed-origin", "https://page");
    rig_start(&rig);
    expect(&rig, "Origin: https://page\r\n", "GET /ok", 200, "Access-Control-Allow-Origin: https://page\r\n",
           NULL);
    expect(&rig, "Origin: https://page\r\n", "GET /ok", 200, "Vary: Origin\r\n", NULL);
    expect(&rig, "", "GET /ok", 200, "Vary: Origin\r\n", "Access-Control");
    expect(&rig, "Origin: https://page\r\n", "GET /none", 404,
           "Access-Control-Allow-Origin: https://page\r\n", NULL);
    expect(&rig, "Origin: https://page\r\n", "GET /stream", 200,
           "Access-Control-Allow-Origin: https://page\r\n", NULL);
    expect(&rig, PREFLIGHT("https://page"), "OPTIONS /echo", 204,
           "Access-Control-Allow-Origin: https://page\r\n", NULL);
    expect(&rig, PREFLIGHT("https://page"), "OPTIONS /echo", 204,
           "Access-Control-Allow-Headers: authorization, content-type\r\n", NULL);
    expect(&rig, PREFLIGHT("https://other"), "OPTIONS /echo", 403, "Vary: Origin\r\n", "Access-Control");
    rig_end(&rig);
}

static void test_with_a_key_any_page_may_ask(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    set(&rig.config, "api-key", "k");
    rig_start(&rig);
    expect(&rig, "Origin: https://page\r\n", "GET /ok", 401, "Access-Control-Allow-Origin: *\r\n", "Vary");
    expect(&rig, "Origin: https://page\r\nAuthorization: Bearer k\r\n", "GET /ok", 200,
           "Access-Control-Allow-Origin: *\r\n", "Vary");
    expect(&rig, PREFLIGHT("https://page"), "OPTIONS /echo", 204, "Access-Control-Allow-Origin: *\r\n", NULL);
    expect(&rig, "Expect: x\r\n", "GET /ok", 417, "Access-Control-Allow-Origin: *\r\n", NULL);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_what_is_no_origin),
        cmocka_unit_test(test_names_that_end_with_a_dot),
        cmocka_unit_test(test_what_is_no_host),
        cmocka_unit_test(test_by_default_no_page_may_ask),
        cmocka_unit_test(test_pages_that_are_named),
        cmocka_unit_test(test_with_a_key_any_page_may_ask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
