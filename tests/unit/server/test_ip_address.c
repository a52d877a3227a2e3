/* test_ip_address.c - addresses and networks as texts say them, and what is one client. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/check.h"
#include "server/ip_address.h"

static struct ip_address address(const char *text)
{
    struct ip_address a;
    if (!ip_address_parse(text, strlen(text), &a)) fail_msg("%s", text);
    return a;
}

static void test_addresses(void **state)
{
    (void)state;
    static const char *const none[] = {"",
                                       "1.2.3",
                                       "1.2.3.4.5",
                                       "1.2.3.256",
                                       "1.2.3.4:80",
                                       "01.2.3.4",
                                       " 1.2.3.4",
                                       "[::1]",
                                       ":::",
                                       "unknown",
                                       "::1%lo",
                                       "1.2.3.4 ",
                                       "0000:0000:0000:0000:0000:0000:0000:0000:0000"};
    struct ip_address a;
    for (size_t i = 0; i < array_length(none); i++)
        if (ip_address_parse(none[i], strlen(none[i]), &a)) fail_msg("%s", none[i]);
    assert_false(ip_address_parse("::1\0", 4, &a));
    assert_true(ip_address_parse("1.2.3.45", 7, &a));
    struct ip_address mapped = address("::ffff:1.2.3.4"), other = address("1.2.3.5");
    assert_true(ip_address_is_same(&a, &mapped));
    assert_false(ip_address_is_same(&a, &other));
    assert_false(ip_address_of(NULL, &a));
    assert_false(ip_address_of(&(struct sockaddr){.sa_family = AF_UNIX}, &a));
    assert_true(ip_address_is_same(&a, &(struct ip_address){0}));
}

static void test_written(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"192.0.2.1", "192.0.2.1"},
        {"::ffff:192.0.2.1", "192.0.2.1"},
        {"2001:DB8:0::1", "2001:db8::1"},
        {"::1", "::1"},
        {"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fff0"},
        {"::", "unix"}};
    char text[IP_ADDRESS_CHARS];
    for (size_t i = 0; i < array_length(texts); i++) {
        const struct ip_address a = address(texts[i][0]);
        ip_address_write(&a, text);
        assert_string_equal(text, texts[i][1]);
    }
}

static void test_networks(void **state)
{
    (void)state;
    static const struct {
        const char *network, *address;
        bool has;
    } cases[] = {
        {"10.0.0.0/8", "10.255.0.1", true},
        {"10.0.0.0/8", "11.0.0.1", false},
        {"10.0.0.0/8", "a00::", false},
        {"0.0.0.0/0", "203.0.113.9", true},
        {"0.0.0.0/0", "2001:db8::1", false},
        {"::/0", "203.0.113.9", true},
        {"192.0.2.7", "192.0.2.7", true},
        {"192.0.2.7/32", "192.0.2.6", false},
        {"192.0.2.4/31", "192.0.2.5", true},
        {"192.0.2.4/31", "192.0.2.6", false},
        {"10.0.0.0/8", "::ffff:10.1.1.1", true},
        {"::ffff:10.0.0.0/104", "10.1.1.1", true},
        {"2001:db8::/33", "2001:db8:7fff::", true},
        {"2001:db8::/33", "2001:db8:8000::", false},
        {"fd00::1", "fd00::1", true},
        {"fd00::1/128", "fd00::2", false},
    };
    static const char *const none[] = {"10.0.0.0/33",  "10.0.0.0/",   "10.0.0.0/-1", "10.0.0.1/8",
                                       "::/129",       "::1/64",      "/8",          "10.0.0.0/8/8",
                                       "10.0.0.0/0x8", "10.0.0.0/ 8", "localhost",   "10.0.0.0/0008"};
    struct ip_network network;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct ip_address a = address(cases[i].address);
        assert_true(ip_network_parse(cases[i].network, strlen(cases[i].network), &network));
        if (ip_network_has(&network, &a) != cases[i].has)
            fail_msg("%s %s", cases[i].network, cases[i].address);
    }
    for (size_t i = 0; i < array_length(none); i++)
        if (ip_network_parse(none[i], strlen(none[i]), &network)) fail_msg("%s", none[i]);
}

static void test_clients(void **state)
{
    (void)state;
    struct ip_address household = address("2001:db8:1:2::"), a = address("2001:db8:1:2:3:4:5:6"),
                      v4 = address("203.0.113.9");
    a = ip_address_of_client(&a);
    assert_true(ip_address_is_same(&a, &household));
    a = ip_address_of_client(&v4);
    assert_true(ip_address_is_same(&a, &v4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_written),
        cmocka_unit_test(test_networks),
        cmocka_unit_test(test_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
