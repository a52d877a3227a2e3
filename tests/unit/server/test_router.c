/* test_router.c - which handler a method and a path find, and that every route but the known ones needs a
 * key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "server/auth.h"
#include "server/router.h"

static void endpoint_a(struct exchange *x)
{
    (void)x;
}

static void endpoint_b(struct exchange *x)
{
    (void)x;
}

static const struct route routes[] = {
    {HTTP_METHOD_GET, "/a", 0, .handler = endpoint_a},
    {HTTP_METHOD_POST, "/a", 0, .handler = endpoint_b},
    {HTTP_METHOD_GET, "/m", 0, .handler = endpoint_a},
    {HTTP_METHOD_GET, "/m/*", 0, .handler = endpoint_b},
    {HTTP_METHOD_POST, "/p", 0, .handler = endpoint_b},
    {HTTP_METHOD_DELETE, "/p", 0, .handler = endpoint_b},
    {HTTP_METHOD_POST, "/v1/q", ROUTE_BARE, .handler = endpoint_a},
    {HTTP_METHOD_GET, "/v1/q/*", ROUTE_BARE, .handler = endpoint_b},
    {HTTP_METHOD_GET, "/v1/r", 0, .handler = endpoint_b},
    {.pattern = NULL},
};

static void expect(enum http_method method, const char *path, void (*handler)(struct exchange *),
                   const char *rest, bool exists)
{
    const char *got_rest;
    bool got_exists;
    const struct route *r = router_find(routes, method, path, strlen(path), &got_rest, &got_exists);
    assert_ptr_equal(r ? r->handler : NULL, handler);
    assert_string_equal(got_rest, rest);
    assert_int_equal(got_exists, exists);
}

static void append_other(struct buffer *out, const struct failure *f)
{
    (void)out;
    (void)f;
}

static void test_shapes_of_errors(void **state)
{
    static const struct route mixed[] = {{HTTP_METHOD_GET, "/v1/a", 0, .handler = endpoint_a},
                                         {HTTP_METHOD_POST, "/v1/m", 0, endpoint_a, append_other},
                                         {HTTP_METHOD_POST, "/v1/m/c", 0, endpoint_a, append_other},
                                         {HTTP_METHOD_POST, "/api/x", 0, endpoint_a, append_other},
                                         {HTTP_METHOD_GET, "/", 0, .handler = endpoint_a},
                                         {.pattern = NULL}};
    static const char *const own[] = {"/", "/v1/a", "/v1/b", "/v1/mm", "/ap", "/nothing", "", "api/x"};
    static const char *const other[] = {"/v1/m", "/v1/m/", "/v1/m/batches", "/api/", "/api/pull", "/api/x"};
    (void)state;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        assert_ptr_equal(router_error_shape(mixed, own[i]), response_append_error);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        assert_ptr_equal(router_error_shape(mixed, other[i]), append_other);
}

static void test_find(void **state)
{
    (void)state;
    expect(HTTP_METHOD_GET, "/a", endpoint_a, "", true);
    expect(HTTP_METHOD_HEAD, "/a", endpoint_a, "", true);
    expect(HTTP_METHOD_POST, "/a", endpoint_b, "", true);
    expect(HTTP_METHOD_DELETE, "/a", NULL, "", true);
    expect(HTTP_METHOD_HEAD, "/p", NULL, "", true);
    expect(HTTP_METHOD_GET, "/m", endpoint_a, "", true);
    expect(HTTP_METHOD_GET, "/m/", NULL, "", false);
    expect(HTTP_METHOD_GET, "/m/x", endpoint_b, "x", true);
    expect(HTTP_METHOD_GET, "/m/x/y/../z", endpoint_b, "x/y/../z", true);
    static const char *const unknown[] = {"", "/", "a", "/A", "/a/", "//a", "/a ", "/ab", "/mx", "/a/../a"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        expect(HTTP_METHOD_GET, unknown[i], NULL, "", false);
}

static void test_paths_without_v1(void **state)
{
    (void)state;
    expect(HTTP_METHOD_POST, "/v1/q", endpoint_a, "", true);
    expect(HTTP_METHOD_POST, "/q", endpoint_a, "", true);
    expect(HTTP_METHOD_GET, "/q", NULL, "", true);
    expect(HTTP_METHOD_GET, "/q/x", endpoint_b, "x", true);
    expect(HTTP_METHOD_GET, "/q/", NULL, "", false);
    expect(HTTP_METHOD_GET, "/r", NULL, "", false);
    expect(HTTP_METHOD_GET, "/v1/v1/q/x", NULL, "", false);
    char methods[64];
    router_list_methods(routes, "/q/x", methods);
    assert_string_equal(methods, "GET, HEAD, OPTIONS");
}

/* A path that means something of its own is no other route's without /v1. */
static void test_no_route_is_hidden(void **state)
{
    (void)state;
    const char *rest;
    bool exists;
    for (const struct route *r = server_routes; r->pattern; r++) {
        assert_true(!(r->flags & ROUTE_BARE) || !strncmp(r->pattern, "/v1/", 4));
        assert_ptr_equal(router_find(server_routes, r->method, r->pattern, SIZE_MAX, &rest, &exists), r);
    }
}

/* A slash that was sent as %2F is a byte like others: of the text that an asterisk matches only. */
static void test_escaped_slashes(void **state)
{
    (void)state;
    const char *rest;
    bool exists;
    assert_null(router_find(routes, HTTP_METHOD_GET, "/a", 0, &rest, &exists));
    assert_null(router_find(routes, HTTP_METHOD_GET, "/m/x", 2, &rest, &exists));
    assert_null(router_find(routes, HTTP_METHOD_GET, "/m/x", 0, &rest, &exists));
    assert_non_null(router_find(routes, HTTP_METHOD_GET, "/m/x/y", 4, &rest, &exists));
    assert_string_equal(rest, "x/y");
}

static void test_suggestions(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *meant;
    } cases[] = {
        {"/messages", "/v1/messages"},
        {"/v1/models/", "/v1/models"},
        {"/v1/v1/models", "/v1/models"},
        {"/openai/v1/chat/completions", "/v1/chat/completions"},
        {"//v1/models", "/v1/models"},
        {"/v1/livez", "/livez"},
        {"/v1/tokenize", "/tokenize"},
        {"/metrics/", "/metrics"},
        {"/", NULL},
        {"/v1", NULL},
        {"/v1/images", NULL},
        {"/nothing", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *meant = router_suggest(server_routes, cases[i].asked);
        if (cases[i].meant)
            assert_string_equal(meant, cases[i].meant);
        else
            assert_null(meant);
    }
}

static void test_list(void **state)
{
    (void)state;
    char text[128];
    assert_true(router_list(routes, text, sizeof text));
    assert_string_equal(
        text, "GET /a, POST /a, GET /m, GET /m/*, POST /p, DELETE /p, POST /v1/q, GET /v1/q/*, GET /v1/r");
    for (size_t n = 1; n < sizeof text; n++) { /* cut between two, never beyond */
        char small[128];
        memset(small, 'x', sizeof small);
        assert_true(router_list(routes, small, n) == (n > strlen(text)));
        size_t size = strlen(small);
        assert_true(size < n && !strncmp(small, text, size) &&
                    (size == 0 || !text[size] || text[size] == ','));
    }
}

static void expect_methods(const char *path, const char *expected)
{
    char text[64];
    router_list_methods(routes, path, text);
    assert_string_equal(text, expected);
}

static void test_methods(void **state)
{
    (void)state;
    expect_methods("/a", "GET, HEAD, POST, OPTIONS");
    expect_methods("/m/x", "GET, HEAD, OPTIONS");
    expect_methods("/p", "POST, DELETE, OPTIONS");
    expect_methods("*", "GET, HEAD, POST, DELETE, OPTIONS");
    expect_methods("/none", "OPTIONS");
}

static void test_every_route_but_the_known_ones_needs_a_key(void **state)
{
    (void)state;
    static const char *const open[] = {"/",      "/health",  "/v1/health", "/readyz",      "/ping",
                                       "/livez", "/version", "/metrics",   "/openapi.json"};
    size_t num_open = 0;
    for (const struct route *r = server_routes; r->pattern; r++) {
        bool known = false;
        for (size_t i = 0; i < sizeof open / sizeof *open; i++)
            known = known || (r->method == HTTP_METHOD_GET && !strcmp(open[i], r->pattern));
        assert_int_equal((r->flags & ROUTE_OPEN) != 0, known);
        bool is_debug = !strncmp(r->pattern, "/debug/", strlen("/debug/"));
        bool changes_adapters = strstr(r->pattern, "load_lora_adapter") != NULL;
        assert_int_equal((r->flags & ROUTE_ADMIN) != 0, is_debug || changes_adapters);
        assert_int_equal((r->flags & ROUTE_ALWAYS) != 0, known || is_debug);
        bool has_body = r->method == HTTP_METHOD_POST && strcmp(r->pattern, "/v1/responses/*") != 0 &&
                        strcmp(r->pattern, "/slots/*") != 0;
        assert_int_equal((r->flags & ROUTE_JSON) != 0, has_body);
        assert_non_null(r->handler);
        num_open += known;
    }
    assert_int_equal(num_open, sizeof open / sizeof *open);
}

static void test_auth(void **state)
{
    (void)state;
    char *items[] = {"first-key", "second", "first-key"};
    struct text_list keys = {.items = items, .num_items = 3};
    struct auth auth;
    struct error err = {0};
    assert_int_equal(auth_init(&auth, &keys, &err), 0);
    assert_int_equal(auth_find_key(&auth, "Bearer first-key", NULL), 0);
    assert_int_equal(auth_find_key(&auth, "bEARER   second", NULL), 1);
    assert_int_equal(auth_find_key(&auth, NULL, "second"), 1);
    assert_int_equal(auth_find_key(&auth, "Basic c2Vjb25k", "second"), 1);
    assert_int_equal(auth_find_key(&auth, "Bearer wrong", "second"), -1);
    static const char *const wrong[] = {
        "",          "Bearer",           "Bearer ",          "Bearer firs", "Bearer first-key ",
        "first-key", "Bearer First-key", "Bearer first-keys"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(auth_find_key(&auth, wrong[i], NULL), -1);
    assert_int_equal(auth_find_key(&auth, NULL, NULL), -1);
    auth_deinit(&auth);
    items[1] = "";
    assert_int_equal(auth_init(&auth, &keys, &err), STATUS_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find),
        cmocka_unit_test(test_shapes_of_errors),
        cmocka_unit_test(test_paths_without_v1),
        cmocka_unit_test(test_no_route_is_hidden),
        cmocka_unit_test(test_escaped_slashes),
        cmocka_unit_test(test_suggestions),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_every_route_but_the_known_ones_needs_a_key),
        cmocka_unit_test(test_auth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
