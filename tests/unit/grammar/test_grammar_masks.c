/* A mask equals trying every token byte by byte; whatever it lets in can be finished; taking back tokens gives
 * what was before. On random walks through schemas that meet every kind of state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/rng.h"
#include "unit/grammar/compile.h"
#include "unit/grammar/small_vocabulary.h"

static const char *const schemas[] = {
    "true",
    "{\"type\":\"object\"}",
    "{\"type\":\"string\"}",
    "{\"type\":\"string\",\"minLength\":2,\"maxLength\":5}",
    "{\"type\":\"string\",\"maxLength\":40}",
    "{\"type\":\"string\",\"minLength\":3}",
    "{\"type\":\"number\"}",
    "{\"type\":\"integer\",\"minimum\":-12,\"maximum\":1234}",
    "{\"type\":\"number\",\"minimum\":-0.25,\"exclusiveMaximum\":10.5}",
    "{\"type\":\"integer\",\"multipleOf\":7}",
    "{\"enum\":[\"foo\",\"foobar\",\"f\\\"q\",12,123,null,true,{\"a\":[1,\"x\"]},\"caf\\u00e9\"]}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},"
    "\"ab\":{},"
    "\"abc\":{\"type\":\"null\"}},\"required\":[\"age\"]}",
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{\"type\":\"integer\"},"
    "\"caf\\u00e9\":"
    "{\"type\":\"boolean\"},\"a\\\"b\":{},\"na\\u00efve\":{}},\"additionalProperties\":{\"type\":\"number\"}"
    "}",
    "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"id\":{},\"ids\":{}},\"additionalProperties\":"
    "false,"
    "\"minProperties\":2,\"maxProperties\":3}",
    "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"},\"xx$\":{\"minimum\":5}},"
    "\"properties\":"
    "{\"xxx\":{\"maximum\":50}},\"additionalProperties\":{\"type\":\"string\"}}",
    "{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"foo\",\"foobar\",\"na\\u00efve\",\"a\"]},"
    "\"minProperties\":2,"
    "\"additionalProperties\":{\"type\":\"integer\"}}",
    "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-c]+$\"},\"maxProperties\":2}",
    "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":1,\"maxItems\":3}",
    "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"number\"}],\"items\":{\"type\":"
    "\"null\"},"
    "\"minItems\":1}",
    "{\"type\":\"array\",\"contains\":{\"const\":\"foo\"}}",
    "{\"type\":\"array\",\"contains\":{\"const\":\"foo\"},\"allOf\":[{\"contains\":{\"type\":\"string\"}},{"
    "\"contains\":{\"const\":1}}],"
    "\"maxItems\":3}",
    "{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"maxContains\":2,\"minItems\":2,\"maxItems\":4}",
    "{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[\"a\",\"ab\",1,12,null,{\"a\":[1]}]},"
    "\"maxItems\":4}",
    "{\"type\":\"string\",\"pattern\":\"^[a-z]{1,40}$\"}",
    "{\"type\":\"string\",\"pattern\":\"^(?!foo)[a-z\\\"\\\\n\\u00e9]+$\",\"maxLength\":6}",
    "{\"type\":\"string\",\"pattern\":\"^\\\\p{Lu}?[\\\\p{L} \\\"\\n]{1,200}(!|\\u00e9\\\\p{L})?$\"}",
    "{\"type\":\"string\",\"pattern\":\"^(\\\\p{Lu}\\\\p{L}{1,9}|[\\\\p{L}\\\\p{M}]{3,12}o|[a-z\\\\n]+) "
    "\\\\p{L}{2,5}$\","
    "\"minLength\":6}",
    "{\"items\":{\"type\":\"string\",\"pattern\":\"^\\\\p{L}[\\\\p{L} "
    "]{0,20}$\"},\"maxItems\":3}",
    "{\"type\":\"string\",\"pattern\":\"b.r\"}",
    "{\"type\":\"string\",\"pattern\":\"^[a-z\\u00e9\\\"\\n]{2,300}$\",\"maxLength\":280}",
    "{\"type\":\"string\",\"pattern\":\"^(.*)$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[^a]*$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[^\\u2026]*$\"}",
    "{\"type\":\"string\",\"pattern\":\"^[^a]+$\",\"maxLength\":50}",
    "{\"type\":\"string\",\"pattern\":\"^.*x$\"}",
    "{\"type\":\"string\",\"pattern\":\"[0-9]+\",\"minLength\":3,\"maxLength\":9}",
    "{\"type\":\"string\",\"pattern\":\"^(a|b)*a(a|b){9}$\",\"maxLength\":16}",
    "{\"type\":\"string\",\"pattern\":\"^\\\\S+@\\\\S+\\\\.[^ ]+$\",\"minLength\":4,\"maxLength\":43}",
    "{\"type\":\"string\",\"format\":\"email\",\"maxLength\":42}",
    "{\"type\":\"string\",\"pattern\":\"^\\\\S+@\\\\S+\\\\.[^ ]+$\",\"maxLength\":2000}",
    "{\"type\":\"string\",\"minLength\":40,\"not\":{\"pattern\":\"a[^b]{7}c\"}}",
    "{\"type\":\"string\",\"minLength\":30,\"maxLength\":2000,\"not\":{\"pattern\":\"a[^b]{7}c\"}}",
    "{\"type\":\"string\",\"pattern\":\"\\\\bfoo\\\\b\",\"maxLength\":12}",
    "{\"type\":\"string\",\"pattern\":\"^(?=.*[a-c])(?=.*[0-9])(?!.*  ).{4,20}(?<! )$\"}",
    "{\"type\":\"string\",\"pattern\":\"^((?!foo|\\\\\\\\).)*$\"}",
    "{\"type\":\"string\",\"oneOf\":[{\"pattern\":\"maker\"},{\"pattern\":\"foo\"},{\"pattern\":\"true\"}]}",
    "{\"anyOf\":[{\"type\":\"string\",\"pattern\":\"^[a-z "
    "]{2,9}$\"},{\"items\":{\"type\":\"string\",\"pattern\":\"^[a-f]+$\"}},"
    "{\"type\":\"string\",\"pattern\":\"^\\\\w.*\"}]}",
    "{\"type\":\"string\",\"format\":\"date-time\"}",
    "{\"type\":\"string\",\"format\":\"ipv6\"}",
    "{\"type\":\"string\",\"format\":\"email\"}",
    "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"]},{"
    "\"type\":"
    "\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"required\":[\"b\"]},{\"type\":"
    "\"string\"},"
    "{\"type\":\"string\",\"maxLength\":3}]}",
    "{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"value\":{\"type\":"
    "\"integer\"},\"x\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/node\"}}},\"required\":[\"value\"],"
    "\"additionalProperties\":false}}}",
    "{\"type\":\"object\",\"properties\":{\"type\":{\"enum\":[\"a\",\"b\"]},\"value\":{}},\"required\":["
    "\"type\"],"
    "\"if\":{\"properties\":{\"type\":{\"const\":\"a\"}}},\"then\":{\"required\":[\"value\"]},\"else\":{"
    "\"properties\":"
    "{\"value\":false}}}",
    "{\"not\":{\"enum\":[\"foo\",\"bar\",12,null]}}",
    "{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}],\"type\":\"object\",\"properties\":{\"a\":{"
    "\"type\":"
    "\"integer\"},\"b\":{\"type\":\"integer\"}}}",
};

#ifdef FLASHD_DEBUG
enum { WALKS = 8, TAG_WALKS = 30, UNLIKE_WALKS = 8 }; /* a sanitized build takes its time */
#else
enum { WALKS = 24, TAG_WALKS = 100, UNLIKE_WALKS = 20 };
#endif

struct walk {
    struct vocabulary *v;
    struct mask_maker *maker;
    uint64_t counter;
};

static uint32_t draw(struct walk *w, uint32_t below)
{
    return rng_philox(5, w->counter++, 0).word[0] % below;
}

static int32_t pick(struct walk *w, const uint64_t *words, int count)
{
    uint32_t index = draw(w, (uint32_t)count);
    for (int32_t id = 0; id < SMALL_IDS; id++)
        if (mask_has(words, id) && index-- == 0) return id;
    fail();
    return -1;
}

static void assert_same_mask(const char *schema, const char *text, const uint64_t *fast, const uint64_t *slow)
{
    for (int32_t id = 0; id < SMALL_IDS; id++) {
        size_t n;
        const char *bytes = small_token(NULL, id, &n);
        if (mask_has(fast, id) != mask_has(slow, id))
            fail_msg("%s behind <%s>: token %d <%.*s> is %s", schema, text, id, (int)n, n ? bytes : "",
                     mask_has(fast, id) ? "let in" : "kept out");
    }
}

static void assert_rollback(struct matcher *m, const char *bytes, size_t n, const uint64_t *before)
{
    uint64_t words[(SMALL_IDS + 63) / 64];
    assert_int_equal(matcher_accept(m, bytes, n), 0);
    assert_int_equal(matcher_rollback(m, 1), 0);
    slow_mask(m, words);
    assert_memory_equal(words, before, sizeof words);
}

static void walk_schema(struct walk *w, const char *schema, const struct grammar *g, struct mask_cache *cache,
                        int num_tokens)
{
    uint64_t fast[(SMALL_IDS + 63) / 64], slow[(SMALL_IDS + 63) / 64];
    char text[8192] = "";
    struct matcher *m;
    assert_int_equal(matcher_new(g, &m), 0);
    for (int i = 0; i < num_tokens; i++) {
        int count = slow_mask(m, slow);
        assert_int_equal(mask_fill(w->maker, m, NULL, fast), 0);
        assert_same_mask(schema, text, fast, slow);
        assert_int_equal(mask_fill(w->maker, m, cache, fast), 0);
        assert_same_mask(schema, text, fast, slow);
        if (count == 0) fail_msg("%s: a dead end behind <%s>", schema, text);
        int32_t id = pick(w, slow, count);
        if (id == SMALL_END) break;
        size_t n;
        const char *bytes = small_token(NULL, id, &n);
        if (i % 8 == 3) assert_rollback(m, bytes, n, slow);
        assert_int_equal(matcher_accept(m, bytes, n), 0);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s", (int)n, bytes);
    }
    matcher_free(m);
}

/* Takes the grammar. */
static void walk_grammar(struct walk *w, const char *name, struct grammar *g, int num_walks)
{
    struct mask_cache *cache;
    assert_int_equal(mask_cache_new(g, w->v, 20000, &cache), 0);
    for (int walk = 0; walk < num_walks; walk++) walk_schema(w, name, g, cache, 24);
    mask_cache_free(cache);
    grammar_free(g);
}

static void masks_equal_the_slow_reference(void **state)
{
    struct walk w = {.v = make_small_vocabulary()};
    (void)state;
    assert_int_equal(mask_maker_new(w.v, &w.maker), 0);
    for (size_t i = 0; i < array_length(schemas); i++)
        walk_grammar(&w, schemas[i], compile_schema(schemas[i]), WALKS);
    mask_maker_free(w.maker);
    vocabulary_free(w.v);
}

static void masks_of_free_text_with_structures(void **state)
{
    static const char text[] = "{\"triggers\":[\"tru\",\"{\\\"\",\"fo\"],\"structures\":[{\"begin\":\"true\","
                               "\"schema\":{\"type\":\"array\"},\"end\":\"]\"},"
                               "{\"begin\":\"{\\\"\",\"schema\":{\"type\":\"integer\"},\"end\":\"\\\": \"},"
                               "{\"begin\":\"foo\",\"schema\":{\"enum\":[null,true]},\"end\":\"\"}]}";
    const struct grammar_options options = {.whitespace_pattern = "( \n?)?"};
    struct walk w = {.v = make_small_vocabulary()};
    struct error err = {0};
    struct grammar *g;
    cJSON *tag = cJSON_Parse(text);
    (void)state;
    assert_non_null(tag);
    assert_int_equal(mask_maker_new(w.v, &w.maker), 0);
    if (grammar_from_structural_tag(tag, &options, &g, &err)) fail_msg("%s", err.text);
    walk_grammar(&w, text, g, TAG_WALKS);
    mask_maker_free(w.maker);
    vocabulary_free(w.v);
    cJSON_Delete(tag);
}

static const char *const notations[] = {
    "root ::= \"a\" root \"b\" | \"x\"",
    "root ::= item (\", \" item)* \"\\n\"?\nitem ::= [a-z\\u00e9]{2,4} | \"\\\"\" [^\"]* \"\\\"\" # texts\n",
    "list ::= \"[\" (list (\",\" list)*)? \"]\" | . | empty\nempty ::= (\"\" | [0-9]?)* \"e\"",
    "root ::= a a a\na ::= \"x\"? \"xx\"*",
    "root ::= (\"foo\" | \"foobar\" | \"f\")+ bad?\nbad ::= \"z\" bad",
    "root ::= (\"x\" [a-z ]{9,4000} [^\\n]{2,3} .*)+ \"e\"",
    "root ::= \"a\" [a-z]{3,90} (\"x\" [a-zA-Z ]{2,70})* (\"z\"? \"o\"){0,80} (\"z\"?){0,5} \".\"",
};

static void masks_of_other_notations(void **state)
{
    static const char *const patterns[] = {"(a|ab)*c?",
                                           "[^\\n]{0,5}x",
                                           "(hello|Hello) ?world|\\d{1,3}(\\.\\d{1,3}){3}",
                                           "[a-z ]{3,9}",
                                           ".{0,40}",
                                           ".{20,4000}",
                                           "^[\\s\\S]{2,}$",
                                           "x?[a-z ]{20,400}\\.",
                                           "([a-c]x|of ?){40,70}e"};
    static const char *const choices[] = {"true",        "false",         "foo", "foobar",
                                          "caf\xC3\xA9", "{\"name\": 1}", ""};
    struct walk w = {.v = make_small_vocabulary()};
    size_t sizes[array_length(choices)];
    struct error err = {0};
    struct grammar *g;
    (void)state;
    assert_int_equal(mask_maker_new(w.v, &w.maker), 0);
    for (size_t i = 0; i < array_length(choices); i++) sizes[i] = strlen(choices[i]);
    for (size_t i = 0; i < array_length(notations) + array_length(patterns) + 1; i++) {
        size_t pattern = i - array_length(notations);
        const char *text = i < array_length(notations)        ? notations[i]
                           : pattern < array_length(patterns) ? patterns[pattern]
                                                              : "";
        int status = i < array_length(notations) ? grammar_from_ebnf(text, strlen(text), &g, &err)
                     : *text                     ? grammar_from_regex(text, strlen(text), &g, &err)
                             : grammar_from_choices(choices, sizes, array_length(choices), &g, &err);
        if (status) fail_msg("%s: %s", text, err.text);
        walk_grammar(&w, text, g, WALKS);
    }
    mask_maker_free(w.maker);
    vocabulary_free(w.v);
}

/* Elements that differ are compared by their texts, which masks do not know: tokens that hold several are kept out, too. */
static void walk_unlike(struct walk *w, const char *schema, const struct grammar *g, struct mask_cache *cache)
{
    uint64_t fast[(SMALL_IDS + 63) / 64], slow[(SMALL_IDS + 63) / 64];
    char text[8192] = "";
    struct matcher *m, *copy;
    assert_int_equal(matcher_new(g, &m), 0);
    for (int i = 0; i < 60; i++) {
        int count = 0;
        (void)slow_mask(m, slow);
        assert_int_equal(mask_fill(w->maker, m, i % 2 ? cache : NULL, fast), 0);
        for (int32_t id = 0; id < SMALL_IDS; id++) {
            bool is_char = id < 128 && !strchr("ntf0123456789-", id);
            count += mask_has(fast, id);
            if (mask_has(fast, id) && !mask_has(slow, id))
                fail_msg("%s behind <%s>: token %d is let in", schema, text, id);
            if (is_char && !mask_has(fast, id) && mask_has(slow, id) && !strstr(schema, "pattern"))
                fail_msg("%s behind <%s>: %c is kept out", schema, text, id);
        }
        if (count == 0) fail_msg("%s: a dead end behind <%s>", schema, text);
        int32_t id = pick(w, fast, count);
        if (id == SMALL_END) break;
        size_t n;
        const char *bytes = small_token(NULL, id, &n);
        if (i % 8 == 3) assert_rollback(m, bytes, n, slow);
        assert_int_equal(matcher_accept(m, bytes, n), 0);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%.*s", (int)n, bytes);
        if (i % 8 != 5) continue;
        assert_int_equal(matcher_copy(m, &copy), 0);
        matcher_free(m);
        m = copy;
    }
    matcher_free(m);
}

static void masks_of_elements_that_differ(void **state)
{
    static const char *const unlike[] = {
        "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^[abc]{2}$\"},\"uniqueItems\":true,"
        "\"maxItems\":3}",
        "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"pattern\":\"^x+$\"},\"uniqueItems\":true,"
        "\"minItems\":2}",
        "{\"type\":\"array\",\"items\":{\"type\":[\"string\",\"null\"]},\"uniqueItems\":true,\"minItems\":3}",
        "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"uniqueItems\":true,\"minItems\":3}",
        "{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"uniqueItems\":true,\"minItems\":3}",
        "{\"type\":\"array\",\"items\":{\"type\":[\"string\",\"number\",\"boolean\",\"null\"]},"
        "\"uniqueItems\":true,"
        "\"minItems\":5}",
        "{\"type\":\"array\",\"items\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"integer\"},"
        "{\"type\":\"null\"}]},\"uniqueItems\":true,\"minItems\":4}",
        "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":-5,\"maximum\":1200},"
        "\"uniqueItems\":true}",
        "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"array\","
        "\"items\":{\"type\":\"string\"},"
        "\"uniqueItems\":true},\"b\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"uniqueItems\":"
        "true}},\"required\":[\"a\"],"
        "\"additionalProperties\":false}}",
    };
    struct walk w = {.v = make_small_vocabulary()};
    (void)state;
    assert_int_equal(mask_maker_new(w.v, &w.maker), 0);
    for (size_t i = 0; i < array_length(unlike); i++) {
        struct grammar *g = compile_schema(unlike[i]);
        struct mask_cache *cache;
        assert_int_equal(mask_cache_new(g, w.v, 20000, &cache), 0);
        for (int walk = 0; walk < UNLIKE_WALKS; walk++) walk_unlike(&w, unlike[i], g, cache);
        mask_cache_free(cache);
        grammar_free(g);
    }
    mask_maker_free(w.maker);
    vocabulary_free(w.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(masks_equal_the_slow_reference),
                                       cmocka_unit_test(masks_of_free_text_with_structures),
                                       cmocka_unit_test(masks_of_other_notations),
                                       cmocka_unit_test(masks_of_elements_that_differ)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
