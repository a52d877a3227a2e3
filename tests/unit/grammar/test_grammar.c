/* What grammars accept and refuse, and the sentences; a matcher's life. That masks are right is shown by
 * test_grammar_masks.c, that schemas mean what JSON Schema says by tests/golden/test_grammar.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/check.h"
#include "text/grammar/matcher.h"
#include "text/grammar/regex.h"
#include "unit/grammar/compile.h"

static bool accepts(const struct grammar *g, const char *text)
{
    struct matcher *m;
    assert_int_equal(matcher_new(g, &m), 0);
    bool ok = matcher_accept(m, text, strlen(text)) == 0 && matcher_can_end(m);
    matcher_free(m);
    return ok;
}

/* Texts until NULL; those behind a "!" must not be accepted. */
static void assert_accepts(const struct grammar *g, const char *what, const char *const *texts)
{
    for (; *texts; texts++) {
        bool expected = **texts != '!';
        if (accepts(g, *texts + !expected) != expected) fail_msg("%s: %s", what, *texts);
    }
}

static void schemas_accept_their_values(void **state)
{
    static const struct {
        const char *schema;
        const char *texts[12];
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"}},"
         "\"required\":[\"b\"]}",
         {"{\"b\":1}", "{ \"a\" : \"x\\u00e9\\n\" ,\n\t\"b\" : -5 }", "{\"b\":1,\"c\":[1,{\"d\":null}]}",
          "!{\"a\":\"x\"}", "!{\"b\":1.5}", "!{\"b\":1,\"a\":\"x\"}", "!{\"b\":1,\"\\u0061\":1}",
          "!{\"b\":01}"}},
        {"{\"type\":\"string\"}",
         {"\"\"", "\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\"", "!\"\\ud83d\"", "!\"\n\"",
          "!\"\xED\xA0\x80\"", "!\"\\x\"", "! \"a\"", "!\"a\" "}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xC3\xA9\xC3\xA9\xC3\xA9\"", "\"\\ud83d\\ude00a\"", "!\"a\"", "!\"abcd\""}},
        {"{\"enum\":[\"a\",\"ab\",1,12,[1,2],{\"k\":\"v\"}]}",
         {"\"ab\"", "12", "[1, 2]", "{ \"k\" : \"v\"}", "!\"b\"", "!2", "![1]", "!123"}},
        {"{\"items\":{\"type\":\"integer\"},\"maxItems\":2}",
         {"[]", "[1]", "[ 1 , 2 ]", "\"x\"", "![1,2,3]", "![1,]", "![\"x\"]"}},
        {"{\"type\":\"integer\",\"minimum\":-5,\"maximum\":120}",
         {"-5", "0", "99", "120", "!-6", "!121", "!-0", "!1e2", "!007"}},
        {"{\"type\":\"integer\",\"minimum\":9007199254740993,\"exclusiveMaximum\":9223372036854775807}",
         {"9007199254740993", "9223372036854775806", "!9007199254740992", "!9223372036854775807", "!5"}},
        {"{\"type\":\"integer\",\"exclusiveMinimum\":-9223372036854775808,\"maximum\":18446744073709551615}",
         {"-9223372036854775807", "18446744073709551615", "!-9223372036854775808", "!18446744073709551616"}},
        {"{\"type\":\"integer\",\"not\":{\"minimum\":9007199254740993}}",
         {"9007199254740992", "!9007199254740993"}},
        {"{\"type\":\"integer\",\"minimum\":-1e300,\"maximum\":1e25}",
         {"10000000000000000000000000", "!20000000000000000000000000"}},
        {"{\"enum\":[9007199254740993,\"a\"]}", {"9007199254740993", "!9007199254740992"}},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0.5}",
         {"0.51", "1", "100.0", "!0.5", "!0.50", "!-1", "!0.49999"}},
        {"{\"items\":{\"type\":[\"string\",\"null\"]},\"uniqueItems\":true}",
         {"[null,\"null\"]", "[\"a\" , null , \"b\"]", "![null,null]", "![null, \"a\", null]",
          "![\"a\",null,\"a\"]"}},
        {"{\"items\":{\"type\":\"integer\"},\"uniqueItems\":true}",
         {"[1,10,-1,0]", "[ 2 , 3 ]", "![1,1]", "![0,-0]", "![1 ,10, 1]", "![0,0]"}},
        {"{\"items\":{\"type\":\"number\"},\"uniqueItems\":true}",
         {"[1,10,1.5,-1,0.1,0.01,1e-7,12]", "[1e2,1e1]", "[1e999,1e998]", "![1,1.0]", "![0.5,5e-1]",
          "![100, 1E2]", "![0,-0.0e5]", "![1.5 ,2,1.50]", "![-2.5e+3,-2500]", "![0.10,0.1]"}},
        {"{\"items\":{\"type\":[\"string\",\"number\",\"boolean\",\"null\"]},\"uniqueItems\":true}",
         {"[1,\"1\",true,\"true\",null,\"null\",false]", "[\",\",12,\",1\"]", "[\"a\",1.5,\"b\"]",
          "![1,\"1\",1]", "![true,1,true]", "![null, \"a\",null]", "![\"a\",1,\"a\"]", "![\",\",1,1.0]",
          "![false ,false]"}},
        {"{\"items\":{\"anyOf\":[{\"type\":\"string\",\"maxLength\":3},{\"type\":\"integer\"},{\"const\":"
         "null}]},\"uniqueItems\":true}",
         {"[1,\"1\",null,10]", "![null,null]", "![1,null,1]", "![\"a\",\"a\"]", "![\"abcd\"]", "![1.5]"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"k\",\"l\"]},\"additionalProperties\":{\"type\":"
         "\"integer\"}}",
         {"!{\"k\":1,\"l\":2,\"l\":3}", "{\"l\":1,\"k\":1}", "{}", "{\"k\":1}", "!{\"m\":1}",
          "!{\"k\":\"\"}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"k\",\"l\",\"m\"]},\"additionalProperties\":{"
         "\"type\":\"integer\"},\"minProperties\":2}",
         {"{\"k\":1,\"l\":2}", "!{\"l\":1}", "{\"k\":1,\"l\":2,\"m\":3}", "{\"m\":3,\"k\":4}"}},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"],"
         "\"propertyNames\":{\"enum\":[\"k\",\"a\"]},\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{\"a\":\"\",\"k\":2}", "{\"a\":\"\"}", "!{\"k\":1}", "!{\"a\":\"\",\"k\":1,\"k\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"k\",\"l\"]},\"additionalProperties\":false}",
         {"{}", "!{\"k\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"enum\":[\"k\",\"l\"]},\"patternProperties\":{\"k\":{"
         "\"type\":\"string\"}},\"additionalProperties\":{\"type\":\"integer\"},\"maxProperties\":1}",
         {"{\"k\":\"\"}", "{\"l\":1}", "!{\"l\":1,\"k\":\"\"}", "!{\"k\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"const\":\"k\\\"q\"},\"additionalProperties\":{\"type\":"
         "\"integer\"}}",
         {"{\"k\\\"q\":1}"}},
        {"{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/"
         "C\"},\"$defs\":{\"C\":{\"enum\":[\"red\",\"green\"],\"type\":\"string\"}},\"additionalProperties\":"
         "{\"type\":\"integer\"}}",
         {"{\"green\":1,\"red\":2}"}},
        {"{\"type\":\"string\",\"pattern\":\"^\\\\p{L}[\\\\p{L} ]{1,50}$\",\"minLength\":3,\"maxLength\":5}",
         {"\"Abc\"", "\"\xC3\xA9 \xC3\xA9\xC3\xA9\xC3\xA9\"", "!\"ab\"", "!\"abcdef\""}},
        {"{\"properties\":{\"next\":{\"$ref\":\"#\"},\"none\":{\"type\":\"object\",\"properties\":{\"a\":"
         "false},"
         "\"additionalProperties\":false}}}",
         {"{\"none\":{}}", "{\"next\":{\"none\":{ }}}", "!{\"none\":{\"a\":1}}"}},
        {"{\"const\":1.5}", {"1.5", "!1.50", "!1"}},
        {"{\"oneOf\":[{\"const\":\"a\"},{\"const\":1},{\"const\":1.0},{\"const\":\"c\"},{\"type\":\"string\","
         "\"maxLength\":1,"
         "\"pattern\":\"[ab]\"},{\"const\":true},{\"type\":\"null\"}]}",
         {"\"b\"", "\"c\"", "true", "null", "!\"a\"", "!1"}},
        {"{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"}},\"required\":[\"k\"],\"type\":\"object\"},{"
         "\"const\":\"a\"},{"
         "\"properties\":{\"k\":{\"enum\":[\"b\",\"c\"]}},\"required\":[\"k\"],\"type\":\"object\"},{"
         "\"properties\":{\"k\":"
         "{\"enum\":[\"c\",\"d\"]},\"z\":{\"type\":\"integer\"}},\"required\":[\"k\"],\"type\":\"object\"}]}",
         {"{\"k\":\"a\"}", "\"a\"", "{\"k\":\"b\"}", "{\"k\":\"d\"}", "{\"k\":\"c\",\"z\":\"\"}",
          "!{\"k\":\"c\"}", "!{\"k\":1}"}},
        {"{\"not\":{\"oneOf\":[{\"const\":1},{\"const\":2},{\"enum\":[2,3]}]},\"type\":\"integer\"}",
         {"4", "2", "!1", "!3"}},
        {"{\"type\":\"string\",\"pattern\":\"^a.*b$\",\"minLength\":3,\"maxLength\":4}",
         {"\"axb\"",
          "\"a\xC3\xA9\xF0\x9F\x98\x80"
          "b\"",
          "\"a\\\\\\tb\"", "!\"ab\"", "!\"axxxb\"", "!\"axbx\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\",\"maxLength\":100}", {"\"aba\"", "\"b\"", "!\"aa\""}},
        {"{\"type\":\"string\",\"pattern\":\"b\",\"minLength\":2,\"not\":{\"pattern\":\"c\"}}",
         {"\"ab\"", "\"bbbb\"", "!\"b\"", "!\"abc\"", "!\"aa\""}},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3,\"not\":{\"pattern\":\"c\"}}",
         {"\"ab\"", "\"abb\"", "!\"a\"", "!\"ac\"", "!\"abbb\""}},
        {"{\"type\":\"string\",\"enum\":[\"a\",\"bb\",\"ccc\"],\"maxLength\":2}",
         {"\"a\"", "\"bb\"", "!\"ccc\""}},
        {"{\"type\":\"array\",\"uniqueItems\":true,\"items\":{\"enum\":[1,12,true,[1,2]]},\"minItems\":2,"
         "\"maxItems\":3}",
         {"[12, 1]", "[true,[1,2],1]", "[[1, 2],12]", "![1]", "![1,1]", "![12,1,12", "![1,12,true,",
          "![[1,2],[1,2]"}},
        {"{\"items\":{\"anyOf\":[{\"const\":\"x\"},{\"type\":\"null\"},{\"type\":\"integer\",\"minimum\":1,"
         "\"maximum\":2}]},"
         "\"uniqueItems\":true,\"type\":\"array\"}",
         {"[]", "[2,null,\"x\",1]", "![2,null,2", "![3"}},
        {"{\"enum\":[[1,1],[1,2]],\"uniqueItems\":true}", {"[1,2]", "![1,1]"}},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"minItems\":2,\"maxItems\":3}",
         {"[\"a\",1]", "[1,2,\"a\"]", "[\"a\",\"a\"]", "![\"a\"]", "![1,2,3", "![1,2,\"a\","}},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"minContains\":0,\"maxContains\":1,"
         "\"maxItems\":2}",
         {"[]", "[1,\"a\"]", "[1,2]", "![\"a\",\"b\"", "![1,2,"}},
        {"{\"type\":\"array\",\"contains\":true,\"maxContains\":2,\"minItems\":2}",
         {"[1,2]", "![1]", "![1,2,"}},
        {"{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"allOf\":[{\"contains\":{\"type\":"
         "\"integer\"}}],"
         "\"maxItems\":3}",
         {"[\"a\",1]", "[1,null,\"a\"]", "[\"a\",\"b\",2]", "[null,1,\"a\"]", "![\"a\"]", "![null,null",
          "![1,2,3", "![1,\"a\",2,", "![]"}},
        {"{\"type\":\"array\",\"contains\":{\"minLength\":2},\"allOf\":[{\"contains\":{\"maxLength\":3}},"
         "{\"contains\":{\"const\":\"ab\"}}],\"items\":{\"type\":\"string\"},\"minItems\":2}",
         {"[\"ab\",\"x\"]", "[\"abcd\",\"\",\"ab\"]", "![\"ab\"]", "![\"abc\",\"abc\"]"}},
        {"{\"type\":\"array\",\"contains\":{\"enum\":[1,2]},\"allOf\":[{\"contains\":{\"enum\":[2,3]}},"
         "{\"contains\":{\"const\":3}}],\"maxItems\":2}",
         {"[1,3]", "[2,3]", "[3,2]", "[3,1]", "![2,2", "![3,3", "![1]", "![3]", "![4"}},
        {"{\"type\":\"string\",\"format\":\"regex\"}",
         {"\"^a(b|[a-z]{2,})*\\\\d?$\"", "\"\"", "!\"(\"", "!\"a{3,2}\"", "!\"a**\"", "!\"[z-a]\""}},
        {"false", {"!1"}},
    };
    (void)state;
    for (size_t i = 0; i + 1 < array_length(cases); i++) {
        struct grammar *g = compile_schema(cases[i].schema);
        assert_accepts(g, cases[i].schema, cases[i].texts);
        grammar_free(g);
    }
}

/* A string of n characters: begin, then filling, then end. */
static const char *text_of(const char *begin, const char *filling, const char *end, size_t n)
{
    static char text[4096];
    size_t length = strlen(begin) + strlen(end);
    strcat(strcpy(text, "\""), begin);
    for (; length < n; length++) strcat(text, filling);
    return strcat(strcat(text, end), "\"");
}

#define LABEL "a23456789-123456789-123456789-123456789-123456789-123456789-123."

/* As many as clients write beside a pattern or format, though an automaton with all lengths would be too large. */
static void lengths_beside_patterns(void **state)
{
    static const struct {
        const char *schema, *begin, *filling, *end;
        size_t most;
    } cases[] = {
        {"{\"type\":\"string\",\"format\":\"email\",\"maxLength\":254}", "a", "a", "@b.c", 254},
        {"{\"type\":\"string\",\"format\":\"uri\",\"minLength\":1,\"maxLength\":2083}", "https://a/", "b",
         "?c", 2083},
        {"{\"type\":\"string\",\"pattern\":\"\\\\S\",\"minLength\":3,\"maxLength\":500}", " ", "\xC3\xA9",
         "\\n\\u0001", 506}, /* whose end has two characters */
        {"{\"type\":\"string\",\"pattern\":\"^(?=.{1,253}$)(?:(?!-)[a-z0-9-]{1,63}(?<!-)[.])+[a-z]{2,63}$\"}",
         LABEL LABEL LABEL, "b", ".org", 253},
        {"{\"type\":\"string\",\"pattern\":\"x\",\"maxLength\":500,\"not\":{\"pattern\":\"y\"}}", "x", "z",
         "x", 500},
    };
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct grammar *g = compile_schema(cases[i].schema);
        size_t most = cases[i].most;
        for (size_t n = most - 2; n <= most + 1; n++)
            if (accepts(g, text_of(cases[i].begin, cases[i].filling, cases[i].end, n)) != (n <= most))
                fail_msg("%s: %zu", cases[i].schema, n);
        grammar_free(g);
    }
    struct grammar *g = compile_schema(cases[2].schema);
    static const char *const texts[] = {"\"xxx\"", "\"  \xC3\xA9\"", "!\"xx\"", "!\"   \"", NULL};
    assert_accepts(g, cases[2].schema, texts);
    grammar_free(g);
}

/* Each place of such a pattern has the letters of all languages: they share them. Of addresses most states are alike. */
static void patterns_of_names_and_addresses(void **state)
{
    static const struct {
        const char *pattern;
        const char *texts[8];
    } cases[] = {
        {"^\\\\p{Lu}\\\\p{L}{1,20}$",
         {"\"\xC3\x84rger\"", "\"Abcdefghijklmnopqrstu\"", "\"\xD0\x96\xD1\x8F\"",
          "!\"Abcdefghijklmnopqrstuv\"", "!\"A\"", "!\"\xC3\xA4rger\"", "!\"A1\""}},
        {"^\\\\p{L}[\\\\p{L} ]{0,20}$", {"\"\xE4\xB8\xAD a\"", "\"x\"", "!\" x\"", "!\"x-\"", "!\"\""}},
        {"^[A-Z][\\\\p{L} ]{1,50}$", {"\"A\xC3\xA9\"", "!\"\xC3\x84\xC3\xA9\"", "!\"A\""}},
        {"^\\\\p{L}[\\\\p{L}\\\\p{M}'\\\\- ]{1,50}$", {"\"O'Neill-\xE0\xA4\x95\xE0\xA4\xBF\"", "!\"'a\""}},
        {"^https?://"
         "(www\\\\.)?[-a-zA-Z0-9@:%._+~#=]{1,256}\\\\.[a-zA-Z0-9()]{1,6}\\\\b([-a-zA-Z0-9()@:%_+.~#?&/=]*)$",
         {"\"https://www.example.com/a?b=c\"", "\"http://a.b-\"", "!\"http://example\"", "!\"https://a.()\"",
          "!\"ftp://a.b\""}},
        {"^\\\\p{L}{1,20}[ \\\"\\\\n]\\\\p{L}{1,20}(, \\\\p{Lu}\\\\.)?$",
         {"\"a b\"", "\"\xC3\xA9\\\"b, \xC3\x89.\"", "\"a\\nb\"", "!\"a\\u000ab\"", "!\"a b, e.\"",
          "!\"a\\tb\""}},
    };
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        char schema[200];
        snprintf(schema, sizeof schema, "{\"type\":\"string\",\"pattern\":\"%s\"}", cases[i].pattern);
        struct grammar *g = compile_schema(schema);
        assert_accepts(g, schema, cases[i].texts);
        if (grammar_bytes(g) > 400000) fail_msg("%s: %zu bytes", schema, grammar_bytes(g));
        grammar_free(g);
    }
    struct grammar *g;
    struct error err = {0};
    const char *pattern = "\\p{Lu}\\p{L}{1,20}( \\p{L}{1,20})?";
    static const char *const texts[] = {"\xC3\x84rger", "Ab \xC3\xA9", "!\xC3\xA4rger", "!A", "!Ab \"",
                                        "!\"Ab\"",      NULL};
    assert_int_equal(grammar_from_regex(pattern, strlen(pattern), &g, &err), 0);
    assert_accepts(g, pattern, texts);
    grammar_free(g);
}

static void least_lengths_beside_patterns(void **state)
{
    static const struct {
        const char *schema, *begin, *filling, *end;
        size_t least;
    } cases[] = {
        {"{\"type\":\"string\",\"pattern\":\"\\\\S\",\"minLength\":3500}", "a", " ", " ", 3500},
        {"{\"type\":\"string\",\"pattern\":\"^(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9]).+$\",\"minLength\":1500,"
         "\"maxLength\":9000}",
         "a", "A", "1", 1500},
        {"{\"type\":\"string\",\"minLength\":1500,\"not\":{\"pattern\":\"aaa|bbb\"}}", "", "\xC3\xA9", "",
         1500},
    };
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct grammar *g = compile_schema(cases[i].schema);
        size_t least = cases[i].least;
        for (size_t n = least - 3; n <= least + 3; n++)
            if (accepts(g, text_of(cases[i].begin, cases[i].filling, cases[i].end, n)) != (n >= least))
                fail_msg("%s: %zu", cases[i].schema, n);
        grammar_free(g);
    }
}

static void white_space_is_as_the_pattern_says(void **state)
{
    static const struct {
        const char *pattern;
        const char *texts[8];
    } cases[] = {
        {"[ ]?", {"[1,2]", "[ 1 , 2 ]", "![  1", "![\n1"}},
        {"( \\n?)?", {"[1, \n2]", "![\n", "![ \n\n"}},
        {"\\s*", {"[1,     \n\t\r  2]"}},
        {"", {"[1,2]", "![ 1"}},
    };
    (void)state;
    cJSON *schema = cJSON_Parse("{\"items\":{\"type\":\"integer\"},\"type\":\"array\"}");
    for (size_t i = 0; i < array_length(cases); i++) {
        const struct grammar_options options = {.whitespace_pattern = cases[i].pattern};
        struct grammar *g;
        assert_int_equal(grammar_from_json_schema(schema, &options, &g, NULL), 0);
        assert_accepts(g, cases[i].pattern, cases[i].texts);
        grammar_free(g);
    }
    static const char *const bad[] = {" ", "(  )*", "a", "[", "(\\n )?"};
    for (size_t i = 0; i < array_length(bad); i++) {
        const struct grammar_options options = {.whitespace_pattern = bad[i]};
        struct grammar *g;
        struct error err = {0};
        assert_int_not_equal(grammar_from_json_schema(schema, &options, &g, &err), 0);
        assert_non_null(strstr(err.text, "whitespace_pattern"));
    }
    cJSON_Delete(schema);
}

static int try_tag(const char *text, struct grammar **out, struct error *err)
{
    const struct grammar_options options = {.max_spaces = 2};
    cJSON *tag = cJSON_Parse(text);
    assert_non_null(tag);
    int status = grammar_from_structural_tag(tag, &options, out, err);
    cJSON_Delete(tag);
    return status;
}

static void text_is_free_until_a_trigger(void **state)
{
    static const char *const tags[] = {
        "{\"type\":\"structural_tag\",\"triggers\":[\"<f=\",\"aab\"],\"structures\":["
        "{\"begin\":\"<f=x>\",\"schema\":{\"type\":\"integer\"},\"end\":\"</f>\"},"
        "{\"begin\":\"<f=y>\",\"schema\":{\"const\":[]},\"end\":\"</f>\"},"
        "{\"begin\":\"aab\",\"schema\":true,\"end\":\"\"}]}",
        "{\"type\":\"structural_tag\",\"format\":{\"type\":\"triggered_tags\",\"triggers\":[\"<f=\",\"aab\"],"
        "\"tags\":["
        "{\"begin\":\"<f=x>\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"type\":\"integer\"}},"
        "\"end\":\"</f>\"},"
        "{\"begin\":\"<f=y>\",\"content\":{\"type\":\"json_schema\",\"json_schema\":{\"const\":[]}},\"end\":"
        "\"</f>\"},"
        "{\"begin\":\"aab\",\"content\":{\"type\":\"json_schema\",\"json_schema\":true},\"end\":\"\"}]}}"};
    static const char *const texts[] = {"",
                                        "any <text> \xC3\xA9 <f",
                                        "<f=x>12</f>",
                                        "so <<f=x>3</f> and <f=y>[ ]</f>",
                                        "aaab{\"a\":1}aa",
                                        "aabtrueaabnull",
                                        "!<f=x>a",
                                        "!<f=z",
                                        "!<f=x>1</f",
                                        "!aaabx",
                                        "!<f=",
                                        NULL};
    (void)state;
    for (size_t i = 0; i < array_length(tags); i++) {
        struct grammar *g = NULL;
        struct error err = {0};
        if (try_tag(tags[i], &g, &err)) fail_msg("%s", err.text);
        assert_accepts(g, tags[i], texts);
        grammar_free(g);
    }
}

/* Each rule ends only where another does that stands on the other side of all that have been told of: a look at all states tells of one rule. */
static void deep_rules_take_no_longer_than_they_may(void **state)
{
    enum { NUM_RULES = 4000, RULE_BYTES = 80 };
    static char text[(NUM_RULES + 2) * RULE_BYTES];
    struct grammar *g = NULL;
    struct error err = {0};
    int n = sprintf(text, "root ::= r0\nall ::=");
    (void)state;
    for (int i = 0; i < NUM_RULES; i++) n += sprintf(text + n, " r%d", i);
    for (int i = 0; i < NUM_RULES; i++)
        n += sprintf(text + n, "\nr%d ::= \"%.30s\" %c%d", i, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                     i == NUM_RULES / 2 ? 'e' : 'r', i < NUM_RULES / 2 ? NUM_RULES - 1 - i : NUM_RULES - i);
    n += sprintf(text + n, "\ne%d ::= \"e\"\n", NUM_RULES / 2);
    assert_int_equal(grammar_from_ebnf(text, (size_t)n, &g, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "nested too deeply"));
}

/* Each rule waits for the next one. */
static void a_long_chain_of_rules(void **state)
{
    enum { NUM_RULES = 16000, RULE_BYTES = 32 };
    static char text[(NUM_RULES + 1) * RULE_BYTES], answer[NUM_RULES + 2];
    char *at = text;
    struct grammar *g = NULL;
    struct error err = {0};
    (void)state;
    for (int i = 0; i < NUM_RULES; i++) at += sprintf(at, "r%d ::= \"a\" r%d\n", i, i + 1);
    at += sprintf(at, "r%d ::= \"b\"", NUM_RULES);
    if (grammar_from_ebnf(text, (size_t)(at - text), &g, &err)) fail_msg("%s", err.text);
    memset(answer, 'a', NUM_RULES);
    answer[NUM_RULES] = 'b';
    assert_true(accepts(g, answer));
    answer[NUM_RULES - 1] = 'b';
    assert_false(accepts(g, answer));
    grammar_free(g);
}

/* As many tools with many parameters have. */
static void many_rules(void **state)
{
    enum { NUM_RULES = 12000, RULE_BYTES = 40 };
    static char text[(2 * NUM_RULES + 2) * RULE_BYTES];
    char *at = text;
    struct grammar *g = NULL;
    (void)state;
    at += sprintf(at, "root ::= r0");
    for (int i = 1; i < NUM_RULES; i++) at += sprintf(at, " r%d", i);
    for (int i = 0; i < NUM_RULES; i++) at += sprintf(at, "\nr%d ::= \"%d\" [a-z]", i, i);
    struct error err = {0};
    if (grammar_from_ebnf(text, (size_t)(at - text), &g, &err)) fail_msg("%s", err.text);
    grammar_free(g);
}

/* What patterns take is limited for all of a grammar: each of these takes an eighth of it. */
static void parts_share_the_work_of_patterns(void **state)
{
    char tag[4096], rules[4096];
    int tag_bytes = sprintf(tag, "{\"triggers\":[\"a\"],\"structures\":["), rule_bytes = 0;
    struct grammar *g = NULL;
    struct error err = {0};
    (void)state;
    for (int i = 0; i < 12; i++) {
        tag_bytes += sprintf(tag + tag_bytes,
                             "%s{\"begin\":\"a%c\",\"end\":\"\",\"schema\":{\"type\":\"string\",\"pattern\":"
                             "\"^(%c?){2000}$\"}}",
                             i > 0 ? "," : "", 'a' + i, 'a' + i);
        rule_bytes += sprintf(rules + rule_bytes, "%s /(%c?){2000}/", i > 0 ? "" : "root ::=", 'a' + i);
    }
    sprintf(tag + tag_bytes, "]}");
    assert_int_equal(try_tag(tag, &g, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "too many states"));
    assert_int_equal(grammar_from_ebnf(rules, (size_t)rule_bytes, &g, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "too many states"));
}

/* And what schemas take: 2^10 ways to choose, each looked at, and one of them allowed. */
static void parts_share_the_work_of_schemas(void **state)
{
    enum { STRUCTURES = 24, CHOICES = 10 };
    struct grammar *g = NULL;
    struct error err = {0};
    struct buffer tag;
    (void)state;
    for (int n = 1; n <= STRUCTURES; n += STRUCTURES - 1) {
        buffer_init(&tag, 1 << 20);
        buffer_append_text(&tag, "{\"triggers\":[\"a\"],\"structures\":[");
        for (int i = 0; i < n; i++) {
            buffer_printf(&tag, "%s{\"begin\":\"a%c%c\",\"end\":\"\",\"schema\":{\"allOf\":[", i ? "," : "",
                          'a' + i / 26, 'a' + i % 26);
            for (int k = 0; k < CHOICES; k++)
                buffer_printf(&tag, "%s{\"anyOf\":[{\"minimum\":%d},{\"maximum\":%d}]}", k ? "," : "", k,
                              50 + k);
            buffer_append_text(&tag, "],\"type\":\"integer\"}}");
        }
        buffer_append(&tag, "]}", 3);
        int status = try_tag(tag.data, &g, &err);
        if (status != (n == 1 ? 0 : STATUS_LIMIT)) fail_msg("%d structures: %d %s", n, status, err.text);
        if (n > 1) assert_non_null(strstr(err.text, "the schema is too large"));
        grammar_free(g);
        g = NULL;
        buffer_deinit(&tag);
    }
}

static void structural_tags_are_refused_with_sentences(void **state)
{
    static const struct {
        const char *tag, *sentence;
    } cases[] = {
        {"{}", "must be lists"},
        {"{\"triggers\":[1],\"structures\":[{}]}", "entry 0 of its triggers"},
        {"{\"triggers\":[\"a\",\"bac\"],\"structures\":[{}]}", "entry 1 of its triggers holds another one"},
        {"{\"triggers\":[\"a\"],\"structures\":[{\"begin\":\"a\"}]}", "needs the texts"},
        {"{\"triggers\":[\"a\"],\"structures\":[{\"begin\":\"a\",\"end\":\"\"}]}", "no JSON schema"},
        {"{\"triggers\":[\"a\"],\"structures\":[{\"begin\":\"b\",\"end\":\"\",\"schema\":{}}]}",
         "begins with no trigger"},
        {"{\"triggers\":[\"a\",\"b\"],\"structures\":[{\"begin\":\"b\",\"end\":\"\",\"schema\":{}}]}",
         "entry 0 of its triggers begins no structure"},
        {"{\"triggers\":[\"a\"],\"structures\":[{\"begin\":\"a\",\"end\":\"\",\"schema\":false}]}",
         "no value fulfils"},
        {"{\"format\":{\"type\":\"sequence\"}}", "triggered_tags"},
        {"{\"triggers\":[\"a\"],\"structures\":[{}],\"at_least_one\":true}", "at_least_one"},
    };
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct grammar *g = NULL;
        struct error err = {0};
        assert_int_not_equal(try_tag(cases[i].tag, &g, &err), 0);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("%s: \"%s\"", cases[i].tag, err.text);
    }
}

/* Closed answers are open ones, too: texts behind a "-" are of the open grammar alone. */
static void objects_that_list_properties_are_closed(void **state)
{
    static const struct {
        const char *schema;
        const char *texts[10];
    } cases[] = {
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{}},\"required\":[\"a\"]}",
         {"{\"a\":1}", "{\"a\":1,\"b\":{\"x\":1}}", "-{\"a\":1,\"c\":1}", "-{\"a\":1,\"ab\":1}", "!{}"}},
        {"{\"properties\":{}}", {"{}", "[]", "-{\"a\":1}"}},
        {"{\"type\":\"object\",\"oneOf\":[{\"properties\":{\"a\":{}},\"additionalProperties\":false},"
         "{\"properties\":{\"a\":{},\"b\":{}}}]}",
         {"{\"b\":1}", "{\"a\":1,\"b\":1}", "!{\"a\":1}", "!{}", "-{\"b\":1,\"c\":1}"}},
        {"{\"type\":\"object\"}", {"{}", "{\"a\":{\"b\":1}}"}},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"minProperties\":2}",
         {"{\"a\":1,\"b\":1}", "!{\"a\":1}"}},
        {"{\"properties\":{\"a\":{}},\"required\":[\"b\"]}",
         {"{\"b\":1}", "{\"a\":1,\"b\":2}", "-{\"b\":1,\"c\":1}", "!{\"a\":1}"}},
        {"{\"properties\":{\"a\":{}},\"additionalProperties\":true}", {"{\"a\":1,\"c\":1}", "{\"c\":1}"}},
        {"{\"properties\":{\"a\":{}},\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{\"a\":\"\",\"c\":1}", "!{\"c\":\"\"}"}},
        {"{\"properties\":{\"a\":{}},\"unevaluatedProperties\":true}", {"{\"a\":1,\"c\":1}"}},
        {"{\"properties\":{\"a\":{}},\"unevaluatedProperties\":{\"type\":\"integer\"}}",
         {"{\"c\":1}", "!{\"c\":\"\"}"}},
        {"{\"patternProperties\":{\"^s_\":{\"type\":\"integer\"}},\"properties\":{\"a\":{}}}",
         {"{\"a\":1,\"s_1\":1}", "{\"s_1\":1}", "-{\"t\":1}", "!{\"s_1\":\"\"}"}},
        {"{\"patternProperties\":{\"^s_\":{}}}", {"{\"s_1\":1}", "-{\"t\":1}"}},
        {"{\"properties\":{\"a\":{},\"b\":{}},\"minProperties\":2}", {"!{\"a\":1}"}},
        {"{\"properties\":{\"a\":{}},\"minProperties\":1}", {"{\"a\":1}", "-{\"c\":1}", "!{}"}},
        {"{\"properties\":{\"a\":{}},\"required\":[\"a\"],\"minProperties\":2}",
         {"{\"a\":1,\"b\":1}", "!{\"a\":1}"}},
        {"{\"properties\":{\"a\":{}},\"propertyNames\":{\"maxLength\":2}}",
         {"{\"a\":1}", "-{\"b\":1}", "!{\"abc\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}}}]}",
         {"{\"a\":1,\"b\":1}", "{\"a\":1}", "-{\"a\":1,\"c\":1}", "!{\"b\":1}"}},
        {"{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}},\"additionalProperties\":true}]"
         "}",
         {"{\"a\":1,\"c\":1}"}},
        {"{\"properties\":{\"a\":{}},\"anyOf\":[{\"properties\":{\"b\":{}},\"required\":[\"b\"]},{"
         "\"required\":"
         "[\"c\"]}]}",
         {"{\"a\":1,\"b\":1}", "{\"c\":1}", "-{\"b\":1,\"d\":1}", "!{\"a\":1}"}},
        {"{\"properties\":{\"k\":{\"enum\":[1,2]}},\"required\":[\"k\"],\"if\":{\"properties\":{\"k\":{"
         "\"const\":1}}"
         "},\"then\":{\"properties\":{\"x\":{}},\"required\":[\"x\"]},\"else\":{\"required\":[\"y\"]}}",
         {"{\"k\":1,\"x\":1}", "{\"k\":2,\"y\":1}", "-{\"k\":1,\"x\":1,\"z\":1}",
          "-{\"k\":2,\"y\":1,\"z\":1}", "!{\"k\":1}"}},
        {"{\"properties\":{\"a\":{}},\"not\":{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]"
         "}}",
         {"{}", "{\"a\":1}", "-{\"b\":1}", "!{\"a\":null}"}},
        {"{\"type\":\"object\",\"not\":{\"required\":[\"a\"]}}", {"{}", "{\"b\":1}", "!{\"a\":1}"}},
        {"{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}",
         {"{}", "{\"c\":1}", "{\"a\":1,\"b\":1,\"c\":1}", "!{\"a\":1}"}},
        {"{\"$ref\":\"#/$defs/"
         "t\",\"$defs\":{\"t\":{\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"$ref\":"
         "\"#/$defs/t\"}},\"required\":[\"v\"]}}}",
         {"{\"v\":1,\"next\":{\"v\":2}}", "-{\"v\":1,\"x\":1}", "-{\"v\":1,\"next\":{\"v\":2,\"x\":1}}"}},
        {"{\"properties\":{\"a\":{}},\"enum\":[{\"a\":1,\"b\":2}]}", {"{\"a\":1,\"b\":2}", "!{\"a\":1}"}},
        {"{\"oneOf\":[{\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"properties\":{\"b\":{}},"
         "\"required\":[\"b\"]}"
         "]}",
         {"{\"a\":1}", "{\"b\":1}", "-{\"a\":1,\"c\":1}", "!{\"a\":1,\"b\":1}"}},
        {"{\"oneOf\":[{\"properties\":{\"a\":{\"type\":\"string\"}},\"required\":[\"a\"]},{\"properties\":{"
         "\"b\":{}},\"required\":[\"b\"]}]}",
         {"{\"a\":\"\"}", "{\"b\":1}", "-{\"b\":1,\"a\":1}", "!{\"a\":\"\",\"b\":1}"}},
        {"{\"properties\":{\"a\":{}},\"dependentRequired\":{\"a\":[\"b\"]}}",
         {"{}", "{\"a\":1,\"b\":1}", "!{\"a\":1}"}},
    };
    const struct grammar_options closes = {.max_spaces = 2, .closes_objects = true};
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct grammar *open = NULL, *closed;
        struct error err = {0};
        if (try_schema_with(cases[i].schema, &closes, &closed, &err))
            fail_msg("%s: %s", cases[i].schema, err.text);
        if (try_schema(cases[i].schema, &open, &err))
            open = NULL; /* names that are not listed could repeat */
        for (const char *const *t = cases[i].texts; *t; t++) {
            bool is_bad = **t == '!', is_open = **t == '-';
            const char *text = *t + (is_bad || is_open);
            if (accepts(closed, text) != (!is_bad && !is_open))
                fail_msg("closed %s: %s", cases[i].schema, *t);
            if (open && accepts(open, text) == is_bad) fail_msg("%s: %s", cases[i].schema, *t);
        }
        grammar_free(open);
        grammar_free(closed);
    }
}

/* oneOf of n objects: "kind" is k0, k1, ...; the grammar takes each and none that two could be. */
static int try_variants(int n, const char *required, struct grammar **out, struct error *err)
{
    struct buffer text;
    buffer_init(&text, 1 << 20);
    buffer_append_text(&text, "{\"oneOf\":[{\"type\":\"null\"}");
    for (int i = 0; i < n; i++)
        buffer_printf(
            &text,
            ",{\"type\":\"object\",\"properties\":{\"v\":{\"const\":1},\"kind\":{\"enum\":[\"k%d\",%d]},"
            "\"x\":{\"type\":\"integer\"}},\"required\":[%s]}",
            i, i, required);
    buffer_append_text(&text, "]}");
    int status = try_schema(text.data, out, err);
    buffer_deinit(&text);
    return status;
}

static void alternatives_are_told_by_their_constants(void **state)
{
    static const char *const texts[] = {"{\"v\":1,\"kind\":\"k0\"}",
                                        "{\"v\":1,\"kind\":499,\"x\":1}",
                                        "null",
                                        "!{\"v\":1,\"kind\":\"k500\"}",
                                        "!{\"kind\":\"k1\"}",
                                        NULL};
    struct grammar *g;
    struct error err = {0};
    (void)state;
    if (try_variants(500, "\"v\",\"kind\"", &g, &err)) fail_msg("%s", err.text);
    assert_accepts(g, "500 variants", texts);
    grammar_free(g);
    assert_int_equal(try_variants(300, "\"v\"", &g, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "told apart"));
    assert_null(strstr(err.text, "references"));
}

/* More names than a set of bits: each once, in their order. */
static void many_names_stand_once(void **state)
{
    static const char *const texts[] = {"{\"k1\":1,\"k39\":2}", "{}", "!{\"k1\":1,\"k1\":1}", "!{\"k40\":1}",
                                        NULL};
    struct buffer text;
    (void)state;
    buffer_init(&text, 1 << 20);
    buffer_append_text(&text, "{\"type\":\"object\",\"propertyNames\":{\"enum\":[");
    for (int i = 0; i < 40; i++) buffer_printf(&text, "%s\"k%d\"", i ? "," : "", i);
    buffer_append_text(&text, "]}}");
    struct grammar *g = compile_schema(text.data);
    assert_accepts(g, text.data, texts);
    grammar_free(g);
    buffer_deinit(&text);
}

static int try_patterns(int n, struct grammar **out, struct error *err)
{
    struct buffer text;
    buffer_init(&text, 1 << 20);
    buffer_append_text(&text, "{\"type\":\"string\",\"allOf\":[{\"minLength\":1}");
    for (int i = 0; i < n; i++) buffer_printf(&text, ",{\"pattern\":\"^(?!x%02d)\"}", i);
    buffer_append_text(&text, "]}");
    int status = try_schema(text.data, out, err);
    buffer_deinit(&text);
    return status;
}

/* A schema of two lists of n values. */
static int try_lists(int n, const char *const parts[3], struct grammar **out, struct error *err)
{
    struct buffer text;
    buffer_init(&text, 16 << 20);
    buffer_append_text(&text, parts[0]);
    for (int i = 0; i < n; i++) buffer_printf(&text, ",%d", i);
    buffer_append_text(&text, parts[1]);
    for (int i = 1; i <= n; i++) buffer_printf(&text, ",-%d", i);
    buffer_append_text(&text, parts[2]);
    int status = try_schema(text.data, out, err);
    buffer_deinit(&text);
    return status;
}

/* Each value with each. */
static void comparing_values_is_work(void **state)
{
    static const char *const schemas[][3] = {{"{\"allOf\":[{\"enum\":[null", "]},{\"enum\":[null", "]}]}"},
                                             {"{\"enum\":[null", "],\"not\":{\"enum\":[true", "]}}"},
                                             {"{\"uniqueItems\":true,\"const\":[null", ",true", "]}"}};
    (void)state;
    for (size_t i = 0; i < array_length(schemas); i++) {
        struct grammar *g = NULL;
        struct error err = {0};
        if (try_lists(200, schemas[i], &g, &err)) fail_msg("%s: %s", schemas[i][0], err.text);
        grammar_free(g);
        assert_int_equal(try_lists(30000, schemas[i], &g, &err), STATUS_LIMIT);
        assert_non_null(strstr(err.text, i == 1 ? "must be told apart" : "the schema is too large"));
    }
}

static void following_references_is_work(void **state)
{
    struct buffer text;
    struct grammar *g = NULL;
    struct error err = {0};
    (void)state;
    buffer_init(&text, 16 << 20);
    buffer_append_text(&text, "{\"properties\":{");
    for (int i = 0; i < 10000; i++)
        buffer_printf(&text, "%s\"p%d\":{\"$ref\":\"#/$defs/%d\"}", i ? "," : "", i, i);
    buffer_append_text(&text, "},\"$defs\":{");
    for (int i = 100000; i-- > 0;) buffer_printf(&text, "\"%d\":{}%s", i, i ? "," : "");
    buffer_append_text(&text, "}}");
    assert_int_equal(try_schema(text.data, &g, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "the schema is too large"));
    buffer_deinit(&text);
}

/* As many as can be followed; none of more is passed over. */
static void all_patterns_of_a_string_count(void **state)
{
    static const char *const texts[] = {"\"x24\"", "\"a\"", "!\"x00\"", "!\"x23\"", "!\"\"", NULL};
    struct grammar *g;
    struct error err = {0};
    (void)state;
    if (try_patterns(24, &g, &err)) fail_msg("%s", err.text);
    assert_accepts(g, "24 patterns", texts);
    grammar_free(g);
    for (int n = 25; n < 70; n += 7) {
        assert_int_equal(try_patterns(n, &g, &err), STATUS_LIMIT);
        assert_non_null(strstr(err.text, "patterns; at most 24"));
    }
}

static void refusals_have_sentences(void **state)
{
    static const struct {
        const char *schema;
        int status;
        const char *sentence; /* a part of it */
    } cases[] = {
        {"false", STATUS_INVALID, "no value fulfils the schema"},
        {"3", STATUS_INVALID, "an object or a boolean"},
        {"{\"properties\":{\"a\":{\"type\":\"array\",\"uniqueItems\":true}}}", STATUS_UNSUPPORTED,
         "\"uniqueItems\" at #/properties/a"},
        {"{\"items\":{\"type\":\"number\",\"minimum\":0},\"uniqueItems\":true}", STATUS_UNSUPPORTED,
         "numbers with limits"},
        {"{\"items\":{\"anyOf\":[{\"const\":1},{\"type\":\"string\"}]},\"uniqueItems\":true}",
         STATUS_UNSUPPORTED, "\"uniqueItems\""},
        {"{\"$ref\":\"#/nowhere\"}", STATUS_INVALID, "\"$ref\" at the top points to \"#/nowhere\""},
        {"{\"$ref\":\"http://example.com/x\"}", STATUS_UNSUPPORTED, "another document"},
        {"{\"type\":\"strin\"}", STATUS_INVALID, "\"type\" at the top"},
        {"{\"pattern\":\"a(\"}", STATUS_INVALID, "a ( without its )"},
        {"{\"pattern\":\"(a)\\\\1\"}", STATUS_UNSUPPORTED, "back reference"},
        {"{\"pattern\":\"(?<=a(?=b))\"}", STATUS_UNSUPPORTED, "a look-ahead within a look-behind"},
        {"{\"pattern\":\"(?i)\xC3\xA9\"}", STATUS_UNSUPPORTED, "not ASCII"},
        {"{\"pattern\":\"(?i)[\xC3\xA9]\"}", STATUS_UNSUPPORTED, "not ASCII"},
        {"{\"pattern\":\"(?i)\\\\p{Lu}\"}", STATUS_UNSUPPORTED, "a Unicode property"},
        {"{\"pattern\":\"(?s).\"}", STATUS_UNSUPPORTED, "a kind of group"},
        {"{\"pattern\":\"(?<!\\\\b)\"}", STATUS_UNSUPPORTED, "a word boundary within a look-behind"},
        {"{\"pattern\":\"(?<!$)\"}", STATUS_UNSUPPORTED, "a $ within a look-behind"},
        {"{\"pattern\":\"(?=(?!(?=(?!(?=a)))))\"}", STATUS_LIMIT, "nested too deeply"},
        {"{\"pattern\":\"(?<=a.{14})b\"}", STATUS_LIMIT, "too many states"},
        {"{\"pattern\":\"^(a?){20000}$\"}", STATUS_LIMIT, "too many states"},
        {"{\"pattern\":\"^a*b?$\",\"minLength\":9000}", STATUS_LIMIT, "beside \"minLength\" 9000"},
        {"{\"pattern\":\"^(ab)*$\",\"minLength\":9001,\"maxLength\":9001}", STATUS_LIMIT,
         "beside \"minLength\" 9001"},
        {"{\"type\":\"array\",\"prefixItems\":[true],\"contains\":true}", STATUS_UNSUPPORTED,
         "\"contains\" at the top"},
        {"{\"type\":\"array\",\"contains\":true,\"allOf\":[{\"contains\":{\"type\":\"null\"},\"maxContains\":"
         "1}]}",
         STATUS_UNSUPPORTED, "\"contains\" at #/allOf/0"},
        {"{\"properties\":{\"a\":1}}", STATUS_INVALID, "#/properties/a is no schema"},
        {"{\"type\":\"object\",\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}", STATUS_INVALID,
         "never comes to an end"},
        {"{\"pattern\":\"^(a{1,2000}b){1,2000}$\"}", STATUS_LIMIT, "too many states"},
        {"{\"minLength\":-1}", STATUS_INVALID, "\"minLength\" at the top must be"},
        {"{\"required\":\"a\"}", STATUS_INVALID, "a list of names"},
        {"{\"type\":\"object\",\"minProperties\":4}", STATUS_UNSUPPORTED, "\"minProperties\" 4"},
        {"{\"multipleOf\":123456}", STATUS_UNSUPPORTED, "\"multipleOf\""},
    };
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct grammar *g = NULL;
        struct error err = {0};
        int status = try_schema(cases[i].schema, &g, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].sentence) || g)
            fail_msg("%s: status %d, \"%s\"", cases[i].schema, status, err.text);
    }
}

static void patterns_match_as_ecma_says(void **state)
{
    static const struct {
        const char *pattern;
        const char *texts[10];
    } cases[] = {
        {"^[]a]?$", {"", "!]", "!a"}}, /* in ECMA [] is the empty set, and ]a]? then stands for itself */
        {"^a|b$", {"ax", "xb", "a", "!xa", "!bx"}},
        {"", {"", "anything"}},
        {"^$", {"", "!a"}},
        {"a.c", {"xabcx", "!ac", "!a\nc"}},
        {"^[^a-c\\d]+$", {"xyz", "\xC3\xA9", "!xa", "!1"}},
        {"^\\w{2,3}?$", {"ab", "a_9", "!a", "!abcd", "!a-"}},
        {"^(?!foo)(?=.*x).*$", {"bax", "!foox", "!ba"}},
        {"^(?!\\s*$).+", {"a", " a ", "!", "! ", "!\xC2\xA0\t"}},
        {"^(?:(?!ab).)*$", {"", "ba", "aa", "!ab", "!cabc"}},
        {"^(?!a)b|c", {"b", "ac", "!ab", "!a"}},
        {"x(?=y)|z$", {"axy", "z", "!x", "!zx"}},
        {"(?<=\\$)\\d+(?!\\d|\\.)", {"a$12", "$1x", "!12", "!$1.5", "!$a1"}},
        {"^[a-z-]+(?<!-)$", {"a-b", "!a-", "!"}},
        {"(?<!(?<=b)a)c$", {"ac", "c", "bc", "!bac", "!bacd"}},
        {"(?<=^|,)a+(?=,|$)", {"a", "b,aa", "b,a,", "!ba", "!ab"}},
        {"\\bfoo\\b", {"foo", "a foo.", "-foo", "foo\xC3\xA9", "!foob", "!_foo", "!xfoo"}},
        {"^\\b.*\\b$", {"a", "a b", "!", "! a", "!a "}},
        {"^\\Ba?\\B$", {"", "!a"}},
        {"^(?=(?!ab|(?=c\\b)).*d)", {"ad", "ccd", "!abd", "!c d"}},
        {"^(?=a)?b", {"b", "!ab"}},
        {"(?i)^yes|no$", {"YES!", "yes", "oh NO", "!ye", "!on"}},
        {"^(?i:ab)c$", {"aBc", "ABc", "!ABC"}},
        {"^((?i)a|b)c$", {"Ac", "Bc", "!AC"}},
        {"(?i)^[a-f0-9]{2}\\w\\d$", {"aFZ1", "!gFZ1"}},
        {"(?i)^[^k]$", {"a", "!k", "!K", "!\xE2\x84\xAA"}},
        {"(?i)^k$", {"k", "K", "!\xE2\x84\xAA"}},
        {"(?i)^(?!s)(?=.*X)", {"ax", "!Sx", "!sx", "!\xC5\xBFx", "!a"}},
        {"^$^", {"", "!a"}},
        {"\\A\\d{2}\\Z", {"12", "!1", "!123", "!a12"}}, /* Python's; \z is Rust's */
        {"a\\z|\\Ab", {"xa", "bx", "!ax", "!xb"}},
        {"^\\u00e9[\\u{1F600}-\\u{1F64F}]$", {"\xC3\xA9\xF0\x9F\x98\x80", "!e"}},
        {"^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$",
         {"\xF0\x9F\x99\x82", "\xE2\x9D\xA4\xEF\xB8\x8F", "\xF0\x9F\x87\xA8\xF0\x9F\x87\xAD",
          "\xF0\x9F\x91\xA9\xF0\x9F\x8F\xBD\xE2\x80\x8D\xF0\x9F\x9A\x80", "1", "!a", "!\xC3\xA9", "!"}},
        {"^\\p{Lu}\\p{Ll}+$", {"Abc", "\xC3\x89\xC3\xA9", "!abc", "!A1"}},
        {"^a{2}{$", {"aa{", "!aa"}},
        {"^(a|ab)(c|bcd)(d*)$", {"abcd", "abcdd", "ac", "!ab"}},
    };
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        const struct regex_options options = {.text = REGEX_UTF8};
        struct dfa d;
        struct error err = {0};
        int status = regex_compile(cases[i].pattern, strlen(cases[i].pattern), &options, &d, &err);
        if (i == 0) {
            assert_int_equal(status, 0);
            dfa_deinit(&d);
            continue;
        }
        if (status) fail_msg("%s: %s", cases[i].pattern, err.text);
        for (const char *const *text = cases[i].texts; *text; text++) {
            bool expected = **text != '!';
            if ((dfa_run(&d, *text + !expected, strlen(*text) - !expected) != 0) != expected)
                fail_msg("%s: %s", cases[i].pattern, *text);
        }
        dfa_deinit(&d);
    }
}

static void other_notations_have_sentences(void **state)
{
    static const char *const wrong[] = {"",
                                        "root",
                                        "root ::= a",
                                        "root ::= \"a",
                                        "root ::= root \"a\"",
                                        "root ::= (\"a\"",
                                        "root ::= \"a\"{3,1}",
                                        "root ::= [a",
                                        "root ::= \"x\" root",
                                        "root ::= \"\\q\"",
                                        "root ::= \"a\"\nroot ::= \"b\"",
                                        "root ::= b* \"c\"\nb ::= b \"x\" | \"\""};
    (void)state;
    for (size_t i = 0; i < array_length(wrong); i++) {
        struct grammar *g = NULL;
        struct error err = {0};
        if (grammar_from_ebnf(wrong[i], strlen(wrong[i]), &g, &err) == 0 || !err.text[0] || g)
            fail_msg("%s: \"%s\"", wrong[i], err.text);
    }
    struct grammar *g = NULL;
    struct error err = {0};
    assert_int_not_equal(grammar_from_regex("(a)\\1", 5, &g, &err), 0);
    assert_int_not_equal(grammar_from_choices(NULL, NULL, 0, &g, &err), 0);
}

/* Texts as a client may send them: many, long ones that begin alike, and each a beginning of the next. */
static void choices_and_enums_of_any_length(void **state)
{
    (void)state;
    enum { NUM = 3000, LONG = 200000 };
    char *a = malloc(LONG + 2);
    const char **texts = calloc(NUM, sizeof *texts);
    size_t *sizes = calloc(NUM, sizeof *sizes);
    struct grammar *g = NULL;
    struct error err = {0};
    memset(a, 'a', LONG);
    memcpy(a + LONG, "b", 2);
    for (int i = 0; i < NUM; i++) {
        texts[i] = a;
        sizes[i] = (size_t)i + 1;
    }
    texts[NUM - 1] = a;
    sizes[NUM - 1] = LONG + 1;
    assert_int_equal(grammar_from_choices(texts, sizes, NUM, &g, &err), 0);
    assert_true(accepts(g, a));
    assert_true(accepts(g, a + LONG - 2) == false && accepts(g, "a"));
    grammar_free(g);
    cJSON *schema = cJSON_CreateObject(), *values = cJSON_AddArrayToObject(schema, "enum");
    cJSON_AddItemToArray(values, cJSON_CreateString(a));
    a[LONG] = 'c';
    cJSON_AddItemToArray(values, cJSON_CreateString(a));
    assert_int_equal(grammar_from_json_schema(schema, &(struct grammar_options){0}, &g, &err), 0);
    grammar_free(g);
    cJSON_Delete(schema);
    free(texts);
    free(sizes);
    free(a);
}

static void patterns_stand_between_slashes(void **state)
{
    (void)state;
    static const char text[] = "root ::= \"<\" /.{2}\\/|[^x]+/ \">\"";
    struct grammar *g = NULL;
    assert_int_equal(grammar_from_ebnf(text, sizeof text - 1, &g, NULL), 0);
    assert_accepts(g, text, (const char *const[]){"<ab/>", "<abc>", "!<xb>", "!<>", "!<ab/", "<xy/>", NULL});
    grammar_free(g);
}

static void a_grammar_may_end_with_what_is_optional(void **state)
{
    (void)state;
    static const char *const texts[] = {"root ::= \"a\" \"b\"?", "root ::= \"a\" b\nb ::= \"c\"*",
                                        "root ::= \"a\" (/b+/ | \"c\"){0,2}"};
    for (size_t i = 0; i < array_length(texts); i++) {
        struct grammar *g = NULL;
        struct matcher *m;
        assert_int_equal(grammar_from_ebnf(texts[i], strlen(texts[i]), &g, NULL), 0);
        assert_int_equal(matcher_new(g, &m), 0);
        assert_false(matcher_can_end(m));
        assert_int_equal(matcher_accept(m, "a", 1), 0);
        assert_true(matcher_can_end(m));
        matcher_free(m);
        grammar_free(g);
    }
}

/* {"anyOf": num objects of one property each, k0, k1 ...} */
static int try_alternatives(int num, struct grammar **out, struct error *err)
{
    char *text = malloc(64 + (size_t)num * 96), *at = text;
    assert_non_null(text);
    at += sprintf(at, "{\"anyOf\":[");
    for (int i = 0; i < num; i++)
        at += sprintf(at, "%s{\"type\":\"object\",\"properties\":{\"k%d\":{}},\"required\":[\"k%d\"]}",
                      i ? "," : "", i, i);
    sprintf(at, "]}");
    int status = try_schema(text, out, err);
    free(text);
    return status;
}

static void a_thousand_alternatives_are_followed(void **state)
{
    struct grammar *g = NULL;
    struct error err = {0};
    (void)state;
    assert_int_equal(try_alternatives(1000, &g, &err), 0);
    assert_true(accepts(g, "{ \"k0\": 1}"));
    assert_true(accepts(g, "{\n\"k999\": [true], \"more\": 1}"));
    assert_false(accepts(g, "{\"k1000\": 1}"));
    grammar_free(g);
    g = NULL;
    assert_int_equal(try_alternatives(1100, &g, &err), STATUS_LIMIT);
    assert_string_equal(err.text, "more than 1024 alternatives begin alike");
    assert_null(g);
}

/* Repetitions in a row, each of which may be the one that goes on. */
static struct matcher *match_ambiguous(int num_repetitions)
{
    static char text[8192];
    struct grammar *g = NULL;
    struct matcher *m;
    struct error err = {0};
    int n = sprintf(text, "root ::=");
    for (int i = 0; i < num_repetitions; i++) n += sprintf(text + n, " [^\\n]{1,9}");
    if (grammar_from_ebnf(text, (size_t)n, &g, &err)) fail_msg("%s", err.text);
    assert_int_equal(matcher_new(g, &m), 0);
    return m;
}

static void free_with_grammar(struct matcher *m)
{
    const struct grammar *g = matcher_grammar(m);
    matcher_free(m);
    grammar_free((struct grammar *)g);
}

static void ambiguous_texts_are_followed_up_to_a_limit(void **state)
{
    char token[225];
    (void)state;
    memset(token, 'x', sizeof token);
    struct matcher *m = match_ambiguous(100);
    for (int i = 0; i < 4; i++) assert_int_equal(matcher_accept(m, token, sizeof token), 0);
    assert_true(matcher_can_end(m));
    assert_int_equal(matcher_accept(m, "x", 1), STATUS_INVALID);
    free_with_grammar(m);
    m = match_ambiguous(300);
    assert_int_equal(matcher_accept(m, token, sizeof token), STATUS_LIMIT);
    assert_int_equal(matcher_accept(m, token, 20), 0);
    free_with_grammar(m);
}

static void matchers_go_back_and_copy(void **state)
{
    struct grammar *g = compile_schema("{\"type\":\"array\",\"items\":{\"type\":\"array\"}}");
    struct matcher *m, *copy;
    (void)state;
    assert_int_equal(matcher_new(g, &m), 0);
    for (int i = 0; i < 100; i++) assert_int_equal(matcher_accept(m, "[", 1), 0);
    assert_int_equal(matcher_copy(m, &copy), 0);
    assert_int_equal(matcher_accept(m, "}", 1), STATUS_INVALID);
    assert_int_equal(matcher_rollback(m, MATCHER_ROLLBACK_MAX + 1), STATUS_INVALID);
    assert_int_equal(matcher_rollback(m, 10), 0);
    for (int i = 0; i < 90; i++) assert_int_equal(matcher_accept(m, "]", 1), 0);
    assert_true(matcher_can_end(m));
    assert_false(matcher_can_end(copy));
    assert_int_equal(matcher_rollback(m, 1), 0);
    assert_false(matcher_can_end(m));
    for (int i = 0; i < 1000; i++)
        if (matcher_accept(copy, "[", 1)) break; /* nesting is limited, not fatal */
    assert_int_equal(matcher_accept(copy, "]", 1), 0);
    matcher_free(m);
    matcher_free(copy);
    grammar_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schemas_accept_their_values),
        cmocka_unit_test(objects_that_list_properties_are_closed),
        cmocka_unit_test(alternatives_are_told_by_their_constants),
        cmocka_unit_test(many_names_stand_once),
        cmocka_unit_test(comparing_values_is_work),
        cmocka_unit_test(following_references_is_work),
        cmocka_unit_test(all_patterns_of_a_string_count),
        cmocka_unit_test(refusals_have_sentences),
        cmocka_unit_test(lengths_beside_patterns),
        cmocka_unit_test(patterns_of_names_and_addresses),
        cmocka_unit_test(least_lengths_beside_patterns),
        cmocka_unit_test(white_space_is_as_the_pattern_says),
        cmocka_unit_test(text_is_free_until_a_trigger),
        cmocka_unit_test(deep_rules_take_no_longer_than_they_may),
        cmocka_unit_test(a_long_chain_of_rules),
        cmocka_unit_test(many_rules),
        cmocka_unit_test(parts_share_the_work_of_patterns),
        cmocka_unit_test(parts_share_the_work_of_schemas),
        cmocka_unit_test(structural_tags_are_refused_with_sentences),
        cmocka_unit_test(patterns_match_as_ecma_says),
        cmocka_unit_test(other_notations_have_sentences),
        cmocka_unit_test(choices_and_enums_of_any_length),
        cmocka_unit_test(patterns_stand_between_slashes),
        cmocka_unit_test(a_grammar_may_end_with_what_is_optional),
        cmocka_unit_test(a_thousand_alternatives_are_followed),
        cmocka_unit_test(ambiguous_texts_are_followed_up_to_a_limit),
        cmocka_unit_test(matchers_go_back_and_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
