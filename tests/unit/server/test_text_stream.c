#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "server/api/text_stream.h"
#include "unit/server/fake_tokenizer.h"

struct fixture {
    struct arena arena;
    struct stop_strings stop;
    struct text_stream stream;
    struct buffer out;
};

static void open_stream(struct fixture *f, const char *const *stop, int num_stop, bool include)
{
    struct text texts[16];
    for (int i = 0; i < num_stop; i++) texts[i] = (struct text){stop[i], strlen(stop[i])};
    arena_init(&f->arena, 1 << 20);
    assert_true(stop_strings_init(&f->stop, &f->arena, texts, num_stop));
    assert_true(text_stream_init(&f->stream, NULL, true, &f->stop, include, 1 << 20, &f->arena));
    buffer_init(&f->out, 1 << 20);
    buffer_append(&f->out, "", 0);
}

static void close_stream(struct fixture *f)
{
    text_stream_deinit(&f->stream);
    buffer_deinit(&f->out);
    arena_deinit(&f->arena);
}

/* Feeds text byte by byte; returns true when a stop string ended it. */
static bool push_text(struct fixture *f, const char *text)
{
    for (; *text; text++)
        if (text_stream_push(&f->stream, (unsigned char)*text, true, &f->out)) return true;
    return false;
}

static void passes_text_on_at_once_without_stop_strings(void **state)
{
    (void)state;
    struct fixture f;
    open_stream(&f, NULL, 0, false);
    assert_false(push_text(&f, "abc"));
    assert_string_equal(f.out.data, "abc");
    assert_false(text_stream_push(&f.stream, FAKE_WORD, true, &f.out));
    assert_string_equal(f.out.data, "abchello");
    assert_false(text_stream_push(&f.stream, FAKE_EOS, true, &f.out));
    assert_false(text_stream_finish(&f.stream, &f.out));
    assert_string_equal(f.out.data, "abchello");
    close_stream(&f);
}

static void holds_back_no_more_than_the_longest_prefix(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const stop[] = {"STOP", "aab"};
    open_stream(&f, stop, 2, false);
    push_text(&f, "x");
    assert_string_equal(f.out.data, "x");
    push_text(&f, "S");
    assert_string_equal(f.out.data, "x");
    push_text(&f, "T");
    assert_string_equal(f.out.data, "x");
    push_text(&f, "S"); /* "ST" can no longer begin it, the new "S" can */
    assert_string_equal(f.out.data, "xST");
    push_text(&f, "!");
    assert_string_equal(f.out.data, "xSTS!");
    push_text(&f, "aaa"); /* "aa" may begin "aab" */
    assert_string_equal(f.out.data, "xSTS!a");
    assert_true(push_text(&f, "b"));
    assert_string_equal(f.out.data, "xSTS!a");
    assert_int_equal(f.stream.stop_idx, 1);
    close_stream(&f);
}

static void finish_releases_what_was_held(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const stop[] = {"abcdef"};
    open_stream(&f, stop, 1, false);
    assert_false(push_text(&f, "zabcde"));
    assert_string_equal(f.out.data, "z");
    assert_false(text_stream_finish(&f.stream, &f.out));
    assert_string_equal(f.out.data, "zabcde");
    close_stream(&f);
}

static void include_keeps_the_stop_string_and_nothing_behind_it(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const stop[] = {"wor"};
    open_stream(&f, stop, 1, true);
    assert_false(text_stream_push(&f.stream, FAKE_WORD, true, &f.out));
    assert_true(text_stream_push(&f.stream, FAKE_WORD + 1, true, &f.out)); /* " world" */
    assert_string_equal(f.out.data, "hello wor");
    close_stream(&f);
}

static void the_first_to_be_complete_wins_then_the_longest(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const stop[] = {"cde", "bc", "abc"};
    open_stream(&f, stop, 3, false);
    assert_true(push_text(&f, "xabcde"));
    assert_string_equal(f.out.data, "x");
    assert_int_equal(f.stream.stop_idx, 2);
    close_stream(&f);
}

static void text_before_min_tokens_is_no_part_of_a_match(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const stop[] = {"ab"};
    open_stream(&f, stop, 1, false);
    assert_false(text_stream_push(&f.stream, 'a', false, &f.out));
    assert_false(text_stream_push(&f.stream, 'b', false, &f.out));
    assert_false(text_stream_push(&f.stream, 'a', false, &f.out));
    assert_false(text_stream_push(&f.stream, 'b', true, &f.out)); /* its 'a' came too early */
    assert_string_equal(f.out.data, "abab");
    assert_true(push_text(&f, "ab"));
    assert_string_equal(f.out.data, "abab");
    close_stream(&f);
}

static void a_line_that_begins_too_far_left_ends_it(void **state)
{
    (void)state;
    static const struct {
        const char *text, *told;
        int min_indent;
        bool ends;
    } cases[] = {
        {"a\n  b\n  c", "a\n  b\n  c", 2, false},
        {"a\n  b\n c", "a\n  b\n ", 2, true},
        {"a\n\tb\nc", "a\n\tb\n", 1, true},
        {"a\n\nb", "a\n", 1, true},
        {"a\n b c\n d", "a\n b c\n d", 1, false},
        {"a\nb", "a\nb", 0, false},
        {"a\n  ", "a\n  ", 4, false},
        {"a\n  EN", "a\n  ", 4, true},
    };
    static const char *const stop[] = {"\n  END"};
    for (size_t i = 0; i < array_length(cases); i++) {
        struct fixture f;
        open_stream(&f, stop, 1, false);
        f.stream.min_indent = cases[i].min_indent;
        bool ends = push_text(&f, cases[i].text);
        if (!ends) assert_false(text_stream_finish(&f.stream, &f.out));
        assert_true(ends == cases[i].ends && f.stream.is_outdented == ends && f.stream.stop_idx < 0);
        assert_string_equal(f.out.data, cases[i].told);
        close_stream(&f);
    }
}

static void characters_stay_whole(void **state)
{
    (void)state;
    struct fixture f;
    static const char *const stop[] = {"\xF0\x9F\x98\x81"}; /* shares three bytes with the emoji below */
    open_stream(&f, stop, 1, false);
    assert_false(push_text(&f, "a\xF0\x9F\x98"));
    assert_string_equal(f.out.data, "a");
    assert_false(push_text(&f, "\x80"));
    assert_string_equal(f.out.data, "a\xF0\x9F\x98\x80");
    assert_true(push_text(&f, "\xF0\x9F\x98\x81"));
    assert_string_equal(f.out.data, "a\xF0\x9F\x98\x80");
    close_stream(&f);
}

/* ---- against a plain search over the whole text ---- */

static char random_letter(uint64_t round, uint64_t i)
{
    return (char)('a' + (int)(rng_uniform(11, i, round) * 3));
}

/* The first position at which any stop string is complete; returns where the text is cut, -1 without one. */
static int cut_of(const char *text, char stop[][8], int num_stop)
{
    for (int end = 1; text[end - 1]; end++) {
        int longest = 0;
        for (int s = 0; s < num_stop; s++) {
            int n = (int)strlen(stop[s]);
            if (n <= end && !memcmp(text + end - n, stop[s], (size_t)n) && n > longest) longest = n;
        }
        if (longest > 0) return end - longest;
    }
    return -1;
}

static void agrees_with_a_plain_search(void **state)
{
    (void)state;
    int num_cut = 0;
    for (uint64_t round = 0; round < 3000; round++) {
        char text[41], stop[4][8];
        const char *stops[4];
        int num_stop = 1 + (int)(rng_uniform(12, round, 0) * 4);
        for (int i = 0; i < 40; i++) text[i] = random_letter(round, (uint64_t)i);
        text[40] = '\0';
        for (int s = 0; s < num_stop; s++) {
            int n = 2 + (int)(rng_uniform(13, round, (uint64_t)s) * 5);
            for (int i = 0; i < n; i++) stop[s][i] = random_letter(round, (uint64_t)(1000 + 10 * s + i));
            stop[s][n] = '\0';
            stops[s] = stop[s];
        }
        struct fixture f;
        open_stream(&f, stops, num_stop, false);
        int cut = cut_of(text, stop, num_stop);
        bool stopped = push_text(&f, text);
        if (!stopped) stopped = text_stream_finish(&f.stream, &f.out);
        assert_int_equal(stopped, cut >= 0);
        assert_int_equal(f.out.num_bytes, cut >= 0 ? cut : 40);
        assert_memory_equal(f.out.data, text, f.out.num_bytes);
        num_cut += stopped;
        close_stream(&f);
    }
    assert_in_range(num_cut, 100, 2999); /* both ways were seen */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_text_on_at_once_without_stop_strings),
        cmocka_unit_test(holds_back_no_more_than_the_longest_prefix),
        cmocka_unit_test(finish_releases_what_was_held),
        cmocka_unit_test(include_keeps_the_stop_string_and_nothing_behind_it),
        cmocka_unit_test(the_first_to_be_complete_wins_then_the_longest),
        cmocka_unit_test(text_before_min_tokens_is_no_part_of_a_match),
        cmocka_unit_test(a_line_that_begins_too_far_left_ends_it),
        cmocka_unit_test(characters_stay_whole),
        cmocka_unit_test(agrees_with_a_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
