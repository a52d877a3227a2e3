/* Templates of rerankers: what stands where, whose text it is, and which cannot be used. */
#include "unit/text/small_tokenizer.h"

#include <math.h>

#include "text/rerank_template.h"

static const struct small_merge merges[] = {{"y", "e"}, {"ye", "s"}, {"n", "o"}};

static struct tokenizer *open_answering(int num_merges)
{
    return open_small(true, merges, num_merges, NULL, 0, NULL);
}

/* The file's text; NULL: no file. */
static int open_text(const char *text, int num_merges, struct rerank_template **out, struct error *err)
{
    char directory[TEST_PATH_BYTES], path[TEST_PATH_BYTES];
    struct tokenizer *t = open_answering(num_merges);
    make_directory(directory);
    if (text) write_text(directory, "template", text);
    int status = rerank_template_open(join_path(path, directory, "template"), t, out, err);
    remove_directory(directory);
    tokenizer_close(t);
    return status;
}

static void test_places(void **state)
{
    (void)state;
    struct rerank_template *t;
    struct error err = {0};
    struct text_range ranges[RERANK_RANGES_MAX];
    struct buffer out;
    assert_int_equal(open_text("<{document}|{query}|{document}{instruction}{other}>", 3, &t, &err), 0);
    const struct rerank_pair pair = {
        .instruction = {"in", 2}, .query = {"{document}", 10}, .document = {"d", 1}};
    buffer_init(&out, 1 << 10);
    assert_int_equal(rerank_template_render(t, &pair, &out, ranges), 4);
    assert_string_equal(out.data, "<d|{document}|din{other}>"); /* what is filled in is not a place */
    static const struct text_range expected[] = {{1, 2}, {3, 13}, {14, 15}, {15, 17}};
    assert_memory_equal(ranges, expected, sizeof expected);
    buffer_deinit(&out);
    rerank_template_close(t);
}

static void test_the_usual_one(void **state)
{
    (void)state;
    struct rerank_template *t;
    struct error err = {0};
    struct text_range ranges[RERANK_RANGES_MAX];
    struct buffer out;
    struct tokenizer *tokenizer = open_answering(3);
    assert_int_equal(rerank_template_open(NULL, tokenizer, &t, &err), 0);
    assert_int_equal(rerank_template_ids(t)[0], tokenizer_find(tokenizer, "yes", 3));
    assert_int_equal(rerank_template_ids(t)[1], tokenizer_find(tokenizer, "no", 2));
    buffer_init(&out, 1 << 12);
    assert_int_equal(rerank_template_render(t, &(struct rerank_pair){.query = {"Q", 1}, .document = {"D", 1}},
                                            &out, ranges),
                     3);
    assert_non_null(strstr(out.data,
                           "<Instruct>: Given a web search query, retrieve relevant passages that answer the "
                           "query\n<Query>: Q\n<Document>: D<|im_end|>\n"));
    buffer_deinit(&out);
    rerank_template_close(t);
    tokenizer_close(tokenizer);
}

static void test_refusals(void **state)
{
    (void)state;
    struct rerank_template *t;
    struct error err = {0};
    assert_int_equal(open_text("{query}", 3, &t, &err), STATUS_INVALID);
    assert_int_equal(open_text("{document}", 3, &t, &err), STATUS_INVALID);
    assert_int_equal(open_text("{query}{document}\xff", 3, &t, &err), STATUS_INVALID);
    assert_int_equal(open_text(NULL, 3, &t, &err), STATUS_NOT_FOUND);
    assert_int_equal(open_text("{query}{document}", 2, &t, &err), STATUS_UNSUPPORTED); /* no "no" */
}

static void test_scores(void **state)
{
    (void)state;
    assert_float_equal(rerank_score((float[]){3, 3}), 0.5, 0);
    assert_float_equal(rerank_score((float[]){1, -1}), 1 / (1 + exp(-2)), 0);
    assert_float_equal(rerank_score((float[]){-1e30f, 1e30f}), 0, 0);
    assert_float_equal(rerank_score((float[]){1e30f, -1e30f}), 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_places), cmocka_unit_test(test_the_usual_one),
                                       cmocka_unit_test(test_refusals), cmocka_unit_test(test_scores)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
