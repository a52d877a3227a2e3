/* test_proxies.c - whose a request is, by X-Forwarded-For and by who is trusted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "server/proxies.h"

static struct ip_address address(const char *text)
{
    struct ip_address a = {0};
    if (text[0] && !ip_address_parse(text, strlen(text), &a)) fail_msg("%s", text);
    return a;
}

/* trusted: up to NULL. */
static struct proxies make(const char *const *trusted)
{
    struct text_list list = {0};
    struct proxies p;
    struct error err;
    for (; *trusted; trusted++) assert_int_equal(text_list_append(&list, *trusted, strlen(*trusted)), 0);
    assert_int_equal(proxies_init(&p, &list, &err), 0);
    text_list_deinit(&list);
    return p;
}

struct asked {
    const char *peer;     /* "": a Unix socket */
    const char *lines[3]; /* of X-Forwarded-For */
    const char *client;
};

static void expect(const struct proxies *p, const struct asked *asked, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        struct http_request_header headers[8] = {{"host", "9.9.9.9"}};
        int num_headers = 1;
        for (int k = 0; k < 3 && asked[i].lines[k]; k++) {
            headers[num_headers++] = (struct http_request_header){"x-forwarded-for", asked[i].lines[k]};
            headers[num_headers++] = (struct http_request_header){"forwarded", "for=9.9.9.9"};
        }
        struct ip_address peer = address(asked[i].peer), wanted = address(asked[i].client),
                          found = proxies_find_client(p, &peer, headers, num_headers);
        if (!ip_address_is_same(&found, &wanted))
            fail_msg("%s %s", asked[i].peer, asked[i].lines[0] ? asked[i].lines[0] : "");
    }
}

static void test_as_far_as_proxies_are_trusted(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {"203.0.113.1", {"1.1.1.1"}, "203.0.113.1"}, /* it is none */
        {"10.0.0.1", {NULL}, "10.0.0.1"},
        {"10.0.0.1", {"1.1.1.1"}, "1.1.1.1"},
        {"10.0.0.1", {"6.6.6.6, 1.1.1.1"}, "1.1.1.1"},
        {"10.0.0.1", {"6.6.6.6,1.1.1.1\t, 10.0.0.2"}, "1.1.1.1"},
        {"10.0.0.1", {"6.6.6.6", "1.1.1.1"}, "1.1.1.1"}, /* lines are one list */
        {"10.0.0.1", {"6.6.6.6, 1.1.1.1", "10.0.0.2", "10.0.0.3 , 10.0.0.4"}, "1.1.1.1"},
        {"10.0.0.1", {"10.0.0.9, 10.0.0.2"}, "10.0.0.9"}, /* all are trusted */
        {"10.0.0.1", {"garbage, 1.1.1.1"}, "1.1.1.1"},    /* before who has added the last one */
        {"fd00::1", {"2001:db8::1"}, "2001:db8::1"},
        {"fd00::2", {"2001:db8::1"}, "fd00::2"},
        {"10.0.0.1", {"[2001:db8::1]"}, "2001:db8::1"},
        {"10.0.0.1", {"[2001:db8::1]:65535"}, "2001:db8::1"},
        {"10.0.0.1", {"1.1.1.1:80"}, "1.1.1.1"},
        {"::ffff:10.0.0.1", {"::ffff:1.1.1.1"}, "1.1.1.1"},
        {"", {"1.1.1.1"}, ""},
    };
    struct proxies p = make((const char *const[]){"10.0.0.0/8", "fd00::1", NULL});
    expect(&p, asked, array_length(asked));
    proxies_deinit(&p);
}

/* What a proxy would not have written is nobody's address: the request counts for the peer. */
static void test_what_is_no_address(void **state)
{
    (void)state;
    static const char *const none[] = {"",
                                       " ",
                                       ",",
                                       "1.1.1.1,",
                                       "unknown",
                                       "_hidden",
                                       "1.1.1",
                                       "1.1.1.1:",
                                       "1.1.1.1:x",
                                       "1.1.1.1:123456",
                                       "[1.1.1.1",
                                       "1.1.1.1]",
                                       "[::1]x",
                                       "[::1",
                                       "[::1]:",
                                       "[]",
                                       "\"1.1.1.1\"",
                                       "::1, [::1]:x",
                                       "1.1.1.1 2.2.2.2",
                                       "localhost",
                                       "1.1.1.1, unknown, 10.0.0.2",
                                       ":80",
                                       "]:80"};
    struct proxies p = make((const char *const[]){"10.0.0.0/8", NULL});
    for (size_t i = 0; i < array_length(none); i++)
        expect(&p, &(struct asked){"10.0.0.1", {none[i]}, "10.0.0.1"}, 1);
    proxies_deinit(&p);
}

static void test_unix_sockets(void **state)
{
    (void)state;
    static const struct asked asked[] = {
        {"", {"1.1.1.1"}, "1.1.1.1"}, {"", {NULL}, ""}, {"1.2.3.4", {"1.1.1.1"}, "1.2.3.4"}};
    struct proxies p = make((const char *const[]){"unix", NULL}), nobody = make((const char *const[]){NULL});
    expect(&p, asked, array_length(asked));
    expect(&nobody, &(struct asked){"", {"1.1.1.1"}, ""}, 1);
    proxies_deinit(&p);
    proxies_deinit(&nobody);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_far_as_proxies_are_trusted),
        cmocka_unit_test(test_what_is_no_address),
        cmocka_unit_test(test_unix_sockets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
