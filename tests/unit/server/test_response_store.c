/* Finished responses: found by their own key alone, the oldest of who holds most makes room, the bytes stay within the
 * limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/response_store.h"

static void put_for(struct response_store *s, int key, uint64_t tenant, const char *id, const char *body,
                    const char *history)
{
    const struct response_texts texts = {.bytes = {body, history},
                                         .num_bytes = {strlen(body), strlen(history)}};
    response_store_put(s, key, tenant, id, &texts);
}

static void put(struct response_store *s, int key, const char *id, const char *body, const char *history)
{
    put_for(s, key, 1, id, body, history);
}

static void expect(struct response_store *s, int key, const char *id, enum response_text which,
                   const char *expected)
{
    size_t n = 0;
    char *text = response_store_get(s, key, id, which, &n);
    if (!expected) {
        assert_null(text);
        return;
    }
    assert_string_equal(text, expected);
    assert_int_equal(n, strlen(expected));
    free(text);
}

static void found_by_their_key_alone(void **state)
{
    (void)state;
    struct response_store *s = response_store_create(1 << 20);
    put(s, 0, "resp_a", "body", "[]");
    expect(s, 0, "resp_a", RESPONSE_BODY, "body");
    expect(s, 0, "resp_a", RESPONSE_HISTORY, "[]");
    expect(s, 1, "resp_a", RESPONSE_BODY, NULL);
    assert_false(response_store_remove(s, 1, "resp_a"));
    assert_true(response_store_remove(s, 0, "resp_a"));
    assert_false(response_store_remove(s, 0, "resp_a"));
    expect(s, 0, "resp_a", RESPONSE_BODY, NULL);
    response_store_destroy(s);
}

static void the_oldest_makes_room(void **state)
{
    (void)state;
    static char body[1000];
    char id[32];
    struct response_store *s = response_store_create(20000);
    memset(body, 'x', sizeof body - 1);
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        put(s, -1, id, body, "");
    }
    expect(s, -1, "resp_0", RESPONSE_BODY, NULL);
    expect(s, -1, "resp_50", RESPONSE_BODY, NULL);
    expect(s, -1, "resp_99", RESPONSE_BODY, body);
    expect(s, -1, "resp_90", RESPONSE_BODY, body);
    assert_true(response_store_remove(s, -1, "resp_95")); /* from the middle */
    for (int i = 100; i < 200; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        put(s, -1, id, body, "");
    }
    expect(s, -1, "resp_99", RESPONSE_BODY, NULL);
    expect(s, -1, "resp_199", RESPONSE_BODY, body);
    response_store_destroy(s);
}

static void who_floods_it_makes_room(void **state)
{
    (void)state;
    static char body[1000], large[12000];
    char id[32];
    struct response_store *s = response_store_create(20000);
    memset(body, 'x', sizeof body - 1);
    memset(large, 'x', sizeof large - 1);
    put(s, 1, "resp_a", body, "");
    put(s, 1, "resp_b", body, "");
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "resp_%d", i);
        put(s, 0, id, body, "");
    }
    expect(s, 1, "resp_a", RESPONSE_BODY, body);
    expect(s, 0, "resp_99", RESPONSE_BODY, body);
    expect(s, 0, "resp_50", RESPONSE_BODY, NULL);

    for (int i = 0; i < 100; i++) { /* what is theirs by now is no more than half */
        snprintf(id, sizeof id, "resp_%d", i);
        put(s, 1, id, body, "");
    }
    expect(s, 1, "resp_a", RESPONSE_BODY, NULL);
    expect(s, 1, "resp_93", RESPONSE_BODY, body);
    expect(s, 0, "resp_93", RESPONSE_BODY, body);

    put(s, 2, "resp_large", large, "");
    expect(s, 2, "resp_large", RESPONSE_BODY, NULL);
    expect(s, 0, "resp_99", RESPONSE_BODY, body);
    expect(s, 1, "resp_99", RESPONSE_BODY, body);
    assert_true(response_store_remove(s, 0, "resp_99"));
    response_store_destroy(s);
}

/* Of a key that has most of it, the tenant that has most of that; with keys and without. */
static void a_tenant_that_floods_it_makes_room(void **state)
{
    (void)state;
    static char body[1000];
    char id[32];
    memset(body, 'x', sizeof body - 1);
    for (int key = -1; key <= 0; key++) {
        struct response_store *s = response_store_create(20000);
        put(s, 1, "resp_other", body, "");
        put_for(s, key, 3, "resp_a", body, "");
        put_for(s, key, 3, "resp_b", body, "");
        for (int i = 0; i < 100; i++) {
            snprintf(id, sizeof id, "resp_%d", i);
            put_for(s, key, 5, id, body, "");
        }
        expect(s, key, "resp_a", RESPONSE_BODY, body);
        expect(s, key, "resp_b", RESPONSE_BODY, body);
        expect(s, key, "resp_99", RESPONSE_BODY, body);
        expect(s, key, "resp_50", RESPONSE_BODY, NULL);
        expect(s, 1, "resp_other", RESPONSE_BODY, body);
        for (int i = 0; i < 100; i++) { /* each keeps its newest */
            snprintf(id, sizeof id, "resp_c%d", i);
            put_for(s, key, 3, id, body, "");
        }
        expect(s, key, "resp_a", RESPONSE_BODY, NULL);
        expect(s, key, "resp_c95", RESPONSE_BODY, body);
        expect(s, key, "resp_99", RESPONSE_BODY, body);
        assert_true(response_store_remove(s, key, "resp_c97"));
        assert_true(response_store_remove(s, key, "resp_99"));
        response_store_destroy(s);
    }
}

static void what_is_too_large_is_not_kept(void **state)
{
    (void)state;
    struct response_store *none = response_store_create(0), *small = response_store_create(500);
    put(none, 0, "resp_a", "", "");
    expect(none, 0, "resp_a", RESPONSE_BODY, NULL);
    put(small, 0, "resp_a", "one", "[1]");
    static char large[600];
    memset(large, 'y', sizeof large - 1);
    put(small, 0, "resp_b", large, "");
    expect(small, 0, "resp_a", RESPONSE_BODY, "one");
    expect(small, 0, "resp_b", RESPONSE_BODY, NULL);
    put(small, 0, "resp_a", "two", "[2]"); /* the same again */
    expect(small, 0, "resp_a", RESPONSE_HISTORY, "[2]");
    response_store_destroy(none);
    response_store_destroy(small);
}

static void take(struct response_store *s, const char *id, const char *texts)
{
    struct stored_response r;
    assert_true(response_store_take(s, &r));
    assert_string_equal(r.id, id);
    assert_int_equal(r.num_bytes[RESPONSE_BODY] + r.num_bytes[RESPONSE_HISTORY], strlen(texts));
    assert_memory_equal(r.bytes, texts, strlen(texts));
    free(r.bytes);
}

/* The oldest first, once, unless it is put again; what is not there any more is not told. */
static void taken_once(void **state)
{
    (void)state;
    struct response_store *s = response_store_create(1 << 20);
    struct stored_response r;
    put(s, 0, "resp_a", "body a", "[a]");
    put(s, 0, "resp_b", "body b", "[b]");
    put(s, 0, "resp_c", "body c", "");
    assert_true(response_store_remove(s, 0, "resp_a"));
    expect(s, 0, "resp_c", RESPONSE_HISTORY, NULL);
    assert_int_equal(response_store_num_untaken(s), 2);
    assert_int_equal(response_store_num_unfinished(s), 1);
    take(s, "resp_b", "body b[b]");
    take(s, "resp_c", "body c");
    assert_false(response_store_take(s, &r));
    put(s, 0, "resp_c", "body d", "[c]");
    assert_true(response_store_remove(s, 0, "resp_b"));
    assert_int_equal(response_store_num_untaken(s), 1);
    assert_int_equal(response_store_num_unfinished(s), 0);
    take(s, "resp_c", "body d[c]");
    assert_false(response_store_take(s, &r));
    expect(s, 0, "resp_c", RESPONSE_BODY, "body d");
    response_store_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_by_their_key_alone),      cmocka_unit_test(the_oldest_makes_room),
        cmocka_unit_test(who_floods_it_makes_room),      cmocka_unit_test(a_tenant_that_floods_it_makes_room),
        cmocka_unit_test(what_is_too_large_is_not_kept), cmocka_unit_test(taken_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
