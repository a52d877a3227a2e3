/* test_tool_grammar.c - grammars of calls: what templates write is let in, what a schema does not allow is
 * not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "text/grammar/matcher.h"
#include "text/tools/tool_grammar.h"
#include "unit/tools/tool_answers.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{"
    "\"city\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"},\"unit\":{\"type\":\"string\",\"enum\":["
    "\"C\",\"F\"]},"
    "\"at\":{\"$ref\":\"#/$defs/place\"}},\"required\":[\"city\"],\"additionalProperties\":false,"
    "\"$defs\":{\"place\":{\"type\":\"array\",\"items\":{\"type\":\"number\"},\"minItems\":2}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"ping\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{},"
    "\"additionalProperties\":false}}}]";

struct rig {
    struct tool_format *format;
    cJSON *tools;
    struct tool_demand demand;
    struct grammar *grammar;
};

static void set_up_tools(struct rig *r, int format, const char *tools, struct tool_demand demand)
{
    const struct grammar_options options = {.max_spaces = 4};
    struct error err = {0};
    *r = (struct rig){
        .format = format_of(format_templates[format]), .tools = cJSON_Parse(tools), .demand = demand};
    r->demand.tools = r->tools;
    if (tool_grammar_make(r->format, &r->demand, &options, &r->grammar, &err) != 0) fail_msg("%s", err.text);
}

static void set_up(struct rig *r, int format, struct tool_demand demand)
{
    set_up_tools(r, format, tools_text, demand);
}

static void tear_down(struct rig *r)
{
    grammar_free(r->grammar);
    cJSON_Delete(r->tools);
    tool_format_free(r->format);
}

/* Byte by byte, as the shortest tokens would come. */
static bool accepts(const struct rig *r, const char *text)
{
    struct matcher *m;
    bool fits = true;
    assert_int_equal(matcher_new(r->grammar, &m), 0);
    for (const char *c = text; *c && fits; c++) fits = matcher_accept(m, c, 1) == 0;
    fits = fits && matcher_can_end(m);
    matcher_free(m);
    return fits;
}

#define HERMES(name, arguments)                                                                              \
    "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static void calls_in_json(void **state)
{
    (void)state;
    struct rig r;
    set_up(&r, FORMAT_JSON, (struct tool_demand){.is_parallel = true});
    assert_true(accepts(
        &r, HERMES("look", "{\"city\": \"a\\\"b\", \"days\": 3, \"unit\": \"F\", \"at\": [1.5, 2]}")));
    assert_true(accepts(&r, HERMES("look", "{\"city\": \"a\"}") "\n" HERMES("ping", "{}")));
    assert_false(accepts(&r, HERMES("look", "{}")));
    assert_false(accepts(&r, HERMES("look", "{\"city\": 3}")));
    assert_false(accepts(&r, HERMES("look", "{\"city\": \"a\", \"at\": [1]}")));
    assert_false(accepts(&r, HERMES("other", "{}")));
    assert_false(accepts(&r, "Well: " HERMES("ping", "{}")));
    tear_down(&r);
    set_up(&r, FORMAT_JSON, (struct tool_demand){.name = "ping"});
    assert_true(accepts(&r, HERMES("ping", "{}")));
    assert_false(accepts(&r, HERMES("look", "{\"city\": \"a\"}")));
    assert_false(accepts(&r, HERMES("ping", "{}") "\n" HERMES("ping", "{}")));
    tear_down(&r);
}

/* "nothing" is no type. */
static void calls_whose_arguments_are_free(void **state)
{
    (void)state;
    static const char tools[] =
        "[{\"function\":{\"name\":\"look\",\"parameters\":{\"properties\":{\"a\":{\"enum\":[1]}},"
        "\"additionalProperties\":false}}},"
        "{\"function\":{\"name\":\"ping\",\"parameters\":{\"properties\":{\"b\":{\"type\":\"nothing\"}}}}}]";
    static const bool is_free[] = {false, true};
    struct rig r;
    set_up_tools(&r, FORMAT_JSON, tools, (struct tool_demand){.is_free = is_free});
    assert_true(accepts(&r, HERMES("ping", "{\"b\": [1], \"c\": 2}")));
    assert_true(accepts(&r, HERMES("look", "{\"a\": 1}")));
    assert_false(accepts(&r, HERMES("look", "{\"a\": 2}")));
    tear_down(&r);
    set_up_tools(&r, FORMAT_RAW, tools, (struct tool_demand){.is_free = is_free});
    assert_true(accepts(&r, "<calls>\n<invoke=ping>\n<parameter=b>\nx\n</parameter>\n</invoke>\n</calls>"));
    assert_false(accepts(&r, "<calls>\n<invoke=look>\n<parameter=a>\n2\n</parameter>\n</invoke>\n</calls>"));
    tear_down(&r);
}

static void calls_behind_a_trigger(void **state)
{
    (void)state;
    struct rig r;
    set_up(&r, FORMAT_JSON, (struct tool_demand){.is_parallel = true, .behind_trigger = true});
    assert_string_equal(tool_grammar_trigger(r.format), "<tool_call>\n{\"name\": \"");
    assert_true(
        accepts(&r, "ping\", \"arguments\": {}}\n</tool_call>\n" HERMES("look", "{\"city\": \"a\"}")));
    assert_false(accepts(&r, HERMES("ping", "{}")));
    tear_down(&r);
    cJSON *allowed = cJSON_Parse("[{\"type\":\"function\",\"name\":\"ping\"}]");
    set_up(&r, FORMAT_JSON,
           (struct tool_demand){.is_parallel = true, .behind_trigger = true, .allowed = allowed});
    assert_true(accepts(&r, "ping\", \"arguments\": {}}\n</tool_call>\n" HERMES("ping", "{}")));
    assert_false(
        accepts(&r, "ping\", \"arguments\": {}}\n</tool_call>\n" HERMES("look", "{\"city\": \"a\"}")));
    assert_false(accepts(&r, "look\", \"arguments\": {\"city\": \"a\"}}\n</tool_call>"));
    tear_down(&r);
    cJSON_Delete(allowed);
    set_up(&r, FORMAT_NUMBERED, (struct tool_demand){.is_parallel = true, .behind_trigger = true});
    assert_string_equal(tool_grammar_trigger(r.format), "<begin>");
    assert_true(accepts(&r, "<call>ping:0<arguments>{}</call><call>ping:1<arguments>{}</call><finish>"));
    tear_down(&r);
}

/* Calls that begin with a bracket, which a text may have: the whole answer is one or the other. */
static void calls_or_text(void **state)
{
    (void)state;
    struct rig r;
    set_up(&r, FORMAT_PYTHON_LIST, (struct tool_demand){.is_parallel = true, .behind_trigger = true});
    assert_null(tool_grammar_trigger(r.format));
    assert_true(accepts(&r, "[look(city=\"a\"), ping()]"));
    assert_true(accepts(&r, ""));
    assert_true(accepts(&r, "\nSee [1], and [look(a=1)]."));
    assert_false(accepts(&r, "[1]"));
    assert_false(accepts(&r, " [look]"));
    tear_down(&r);
}

static void calls_in_parameters(void **state)
{
    (void)state;
    struct rig r;
    set_up(&r, FORMAT_RAW, (struct tool_demand){.is_parallel = true});
    assert_true(accepts(
        &r, "<calls>\n<invoke=look>\n<parameter=city>\na <b> "
            "\"c\"\n\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
            "<parameter=unit>\nF\n</parameter>\n<parameter=at>\n[1, 2]\n</parameter>\n</invoke>\n</calls>"));
    assert_true(accepts(&r, "<calls>\n<invoke=look>\n<parameter=city>\nx\n</parameter>\n</"
                            "invoke>\n<invoke=ping>\n</invoke>\n</calls>"));
    assert_false(accepts(&r, "<calls>\n<invoke=look>\n</invoke>\n</calls>"));
    assert_false(accepts(&r, "<calls>\n<invoke=look>\n<parameter=city>\nx\n</"
                             "parameter>\n<parameter=days>\nsoon\n</parameter>\n</invoke>\n</calls>"));
    assert_false(accepts(&r, "<calls>\n<invoke=look>\n<parameter=city>\nx\n</"
                             "parameter>\n<parameter=unit>\nK\n</parameter>\n</invoke>\n</calls>"));
    assert_false(
        accepts(&r, "<calls>\n<invoke=look>\n<parameter=town>\nx\n</parameter>\n</invoke>\n</calls>"));
    tear_down(&r);
    set_up(&r, FORMAT_TYPED, (struct tool_demand){.is_parallel = true});
    assert_true(accepts(&r,
                        "<|open|>call=look<|sep|><|open|>key=city:type=string<|sep|>a b<|close|>key<|sep|>"
                        "<|open|>key=days:type=number<|sep|>3<|close|>key<|sep|><|close|>call<|sep|>"));
    assert_false(accepts(&r, "<|open|>call=look<|sep|><|open|>key=city:type=number<|sep|>3<|close|>key<|sep|>"
                             "<|close|>call<|sep|>"));
    assert_false(accepts(&r, "<|open|>call=look<|sep|><|open|>key=city:type=string<|sep|>x<|close|>key<|sep|>"
                             "<|open|>key=days:type=word<|sep|>3<|close|>key<|sep|><|close|>call<|sep|>"));
    tear_down(&r);
    set_up(&r, FORMAT_PYTHON, (struct tool_demand){.is_parallel = true});
    assert_true(accepts(&r, "<|run|>[look(city=\"a, b)\", days=3), ping()]"));
    assert_true(accepts(&r, "<|run|>[look(city=\"a\", at=[1, 2])]"));
    assert_false(accepts(&r, "<|run|>[look(days=3)]"));
    assert_false(accepts(&r, "<|run|>[look(, city=\"a\")]"));
    tear_down(&r);
    set_up(&r, FORMAT_BARE, (struct tool_demand){.is_parallel = true});
    assert_true(accepts(&r, "{\"name\": \"ping\", \"parameters\": {}}"));
    tear_down(&r);
}

#define GO(parameters) "<calls>\n<invoke=go>\n" parameters "</invoke>\n</calls>"
#define PARAMETER(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"

/* As Pydantic and zod write them: the parameters themselves, models, enums and what may be null. */
static void parameters_whose_schemas_refer(void **state)
{
    (void)state;
    static const char tools[] =
        "[{\"function\":{\"name\":\"go\",\"parameters\":{\"$ref\":\"#/definitions/"
        "go\",\"definitions\":{\"go\":{"
        "\"type\":\"object\",\"properties\":{\"at\":{\"$ref\":\"#/definitions/place\"},"
        "\"unit\":{\"$ref\":\"#/definitions/unit\"},\"maybe\":{\"anyOf\":[{\"$ref\":\"#/definitions/unit\"},"
        "{\"type\":\"null\"}]},\"all\":{\"allOf\":[{\"$ref\":\"#/definitions/"
        "place\"}]},\"both\":{\"allOf\":[{\"$ref\":\"#/definitions/"
        "place\"},{\"maxProperties\":1}]}},\"required\":[\"at\"]},"
        "\"place\":{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"],"
        "\"additionalProperties\":false},\"unit\":{\"type\":\"string\",\"enum\":[\"C\",\"F\"]}}}}}]";
    struct rig r;
    set_up_tools(&r, FORMAT_RAW, tools, (struct tool_demand){.is_parallel = true});
    assert_true(accepts(&r, GO(PARAMETER("at", "{\"x\": 1}") PARAMETER("unit", "F") PARAMETER("maybe", "C")
                                   PARAMETER("all", "{\"x\": 2}"))));
    assert_true(accepts(&r, GO(PARAMETER("at", "{\"x\": 1}") PARAMETER("maybe", "null"))));
    assert_false(accepts(&r, GO(PARAMETER("at", "here"))));
    assert_false(accepts(&r, GO(PARAMETER("at", "{\"y\": 1}"))));
    assert_false(accepts(&r, GO("")));
    assert_false(accepts(&r, GO(PARAMETER("at", "{\"x\": 1}") PARAMETER("unit", "K"))));
    assert_false(accepts(&r, GO(PARAMETER("at", "{\"x\": 1}") PARAMETER("maybe", "K"))));
    assert_false(accepts(&r, GO(PARAMETER("at", "{\"x\": 1}") PARAMETER("all", "K"))));
    assert_true(accepts(&r, GO(PARAMETER("at", "{\"x\": 1}") PARAMETER("both", "{\"x\": 3}"))));
    assert_false(accepts(&r, GO(PARAMETER("at", "{\"x\": 1}") PARAMETER("both", "K"))));
    tear_down(&r);
}

#define PROPERTIES_A_B "\"properties\":{\"a\":{\"type\":\"string\"},\"b\":{\"type\":\"integer\"}}"

/* What a schema says of parameters together is held of one object; so are those of an object that lists none. */
static void parameters_that_depend_on_each_other(void **state)
{
    (void)state;
    static const char tools[] =
        "[{\"function\":{\"name\":\"go\",\"strict\":true,\"parameters\":{\"type\":\"object\"," PROPERTIES_A_B
        ",\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}}},"
        "{\"function\":{\"name\":\"run\",\"parameters\":{\"type\":\"object\",\"additionalProperties\":{"
        "\"type\":"
        "\"integer\"}}}},{\"function\":{\"name\":\"ping\",\"parameters\":{\"type\":\"object\"}}}]";
    struct rig r;
    set_up_tools(&r, FORMAT_RAW, tools, (struct tool_demand){.is_parallel = true});
    assert_true(accepts(&r, GO("{\"b\": 1}\n")));
    assert_true(accepts(&r, GO("{\"a\": \"x\", \"b\": 1}")));
    assert_false(accepts(&r, GO("{}\n")));
    assert_false(accepts(&r, GO("")));
    assert_false(accepts(&r, GO(PARAMETER("b", "1"))));
    assert_true(accepts(&r, "<calls>\n<invoke=run>\n{\"any\": 1}\n</invoke>\n</calls>"));
    assert_false(accepts(&r, "<calls>\n<invoke=run>\n{\"any\": \"1\"}\n</invoke>\n</calls>"));
    assert_true(accepts(&r, "<calls>\n<invoke=ping>\n</invoke>\n</calls>"));
    tear_down(&r);
    /* Beside what need not be called, functions that are not strict have their parameters. */
    cJSON *answer = cJSON_Parse("{\"type\":\"null\"}"), *list = cJSON_Parse(tools);
    cJSON_DeleteItemFromObject(cJSON_GetObjectItem(list->child, "function"), "strict");
    char *loose = cJSON_PrintUnformatted(list);
    set_up_tools(&r, FORMAT_RAW, loose, (struct tool_demand){.answer = answer});
    assert_true(accepts(&r, GO(PARAMETER("b", "[1]"))));
    assert_true(accepts(&r, "<calls>\n<invoke=run>\n{\"any\": \"1\"}\n</invoke>\n</calls>"));
    tear_down(&r);
    cJSON_free(loose);
    cJSON_Delete(list);
    cJSON_Delete(answer);
}

/* Where arguments are literals each alternative is a call of its own, with what the schema itself says. */
static void alternatives_of_literals(void **state)
{
    (void)state;
    static const char tools[] =
        "[{\"function\":{\"name\":\"go\",\"parameters\":{\"type\":\"object\"," PROPERTIES_A_B
        ",\"anyOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"],\"properties\":{\"b\":{\"minimum\":3}}}]}}}"
        ","
        "{\"function\":{\"name\":\"pet\",\"parameters\":{\"oneOf\":[{\"$ref\":\"#/$defs/cat\"},{\"$ref\":\"#/"
        "$defs/"
        "dog\"}],"
        "\"$defs\":{\"cat\":{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"cat\"},\"lives\":{\"$"
        "ref\":"
        "\"#/$defs/"
        "number\"}},\"required\":[\"kind\",\"lives\"]},\"dog\":{\"type\":\"object\",\"properties\":{\"kind\":"
        "{\"const\":\"dog\"}},\"required\":[\"kind\"]},\"number\":{\"type\":\"integer\"}}}}},"
        "{\"function\":{\"name\":\"all\",\"parameters\":{\"allOf\":[{\"properties\":{\"x\":{\"type\":"
        "\"integer\"}},"
        "\"required\":[\"x\"]},{\"properties\":{\"y\":{\"type\":\"boolean\"}}}]}}}]";
    struct rig r;
    set_up_tools(&r, FORMAT_PYTHON, tools, (struct tool_demand){.is_parallel = true});
    assert_true(accepts(&r, "<|run|>[go(a=\"x\")]"));
    assert_true(accepts(&r, "<|run|>[go(b=3)]"));
    assert_true(accepts(&r, "<|run|>[go(a=\"x\", b=1)]"));
    assert_false(accepts(&r, "<|run|>[go(b=1)]"));
    assert_false(accepts(&r, "<|run|>[go()]"));
    assert_true(accepts(&r, "<|run|>[pet(kind=\"cat\", lives=9)]"));
    assert_true(accepts(&r, "<|run|>[pet(kind=\"dog\"), go(b=4)]"));
    assert_false(accepts(&r, "<|run|>[pet(kind=\"cat\")]"));
    assert_false(accepts(&r, "<|run|>[pet(kind=\"cat\", lives=\"9\")]"));
    assert_false(accepts(&r, "<|run|>[pet()]"));
    assert_true(accepts(&r, "<|run|>[all(x=1)]"));
    assert_false(accepts(&r, "<|run|>[all(y=true)]"));
    tear_down(&r);
    set_up_tools(&r, FORMAT_QUOTED, tools, (struct tool_demand){.name = "pet"});
    assert_true(accepts(&r, "<|tool>call:pet{kind:<|q|>dog<|q|>}<tool|>"));
    assert_false(accepts(&r, "<|tool>call:pet{kind:<|q|>cow<|q|>}<tool|>"));
    assert_false(accepts(&r, "<|tool>call:pet{}<tool|>"));
    tear_down(&r);
}

/* Where strings are told from other values, by a name or quotes, what may be both has either as what it is. */
static void strings_or_others(void **state)
{
    (void)state;
    static const char tools[] =
        "[{\"function\":{\"name\":\"go\",\"parameters\":{\"type\":\"object\",\"properties\":{"
        "\"note\":{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},"
        "\"pick\":{\"enum\":[1,\"two\",null]},\"size\":{\"$ref\":\"#/$defs/size\"}},"
        "\"$defs\":{\"size\":{\"type\":[\"string\",\"integer\"],\"maxLength\":3,\"maximum\":5}}}}}]";
    static const struct {
        const char *typed, *quoted;
        bool fits;
    } cases[] = {
        {"note:type=null<|sep|>null", "note:null", true},
        {"note:type=string<|sep|>null", "note:<|q|>null<|q|>", true}, /* a text */
        {"pick:type=number<|sep|>1", "pick:1", true},
        {"pick:type=string<|sep|>two", "pick:<|q|>two<|q|>", true},
        {"pick:type=string<|sep|>1", "pick:<|q|>1<|q|>", false},
        {"pick:type=number<|sep|>2", "pick:2", false},
        {"size:type=number<|sep|>5", "size:5", true},
        {"size:type=string<|sep|>6", "size:<|q|>6<|q|>", true},
        {"size:type=number<|sep|>6", "size:6", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[160];
        struct rig r;
        set_up_tools(&r, FORMAT_TYPED, tools, (struct tool_demand){0});
        snprintf(text, sizeof text,
                 "<|open|>call=go<|sep|><|open|>key=%s<|close|>key<|sep|><|close|>call<|sep|>",
                 cases[i].typed);
        if (accepts(&r, text) != cases[i].fits) fail_msg("%s", text);
        tear_down(&r);
        set_up_tools(&r, FORMAT_QUOTED, tools, (struct tool_demand){0});
        snprintf(text, sizeof text, "<|tool>call:go{%s}<tool|>", cases[i].quoted);
        if (accepts(&r, text) != cases[i].fits) fail_msg("%s", text);
        tear_down(&r);
    }
}

static void calls_or_an_answer(void **state)
{
    (void)state;
    struct rig r;
    cJSON *schema = cJSON_Parse("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
                                "\"required\":[\"a\"],\"additionalProperties\":false}");
    set_up(&r, FORMAT_JSON, (struct tool_demand){.answer = schema});
    assert_true(accepts(&r, "{\"a\": 3}"));
    assert_true(accepts(&r, HERMES("ping", "{}")));
    assert_true(accepts(&r, HERMES("look", "{\"town\": 3}"))); /* not strict */
    assert_false(accepts(&r, "{\"a\": \"3\"}"));
    assert_false(accepts(&r, "{\"a\": 3}" HERMES("ping", "{}")));
    assert_false(accepts(&r, "Well."));
    tear_down(&r);
    set_up(&r, FORMAT_RAW, (struct tool_demand){.answer = schema});
    assert_true(accepts(&r, "{\"a\": 3}"));
    assert_true(accepts(&r, "<calls>\n<invoke=ping>\n</invoke>\n</calls>"));
    tear_down(&r);
    cJSON_Delete(schema);
}

static void null_parameters_are_absent(void **state)
{
    (void)state;
    static const char *const tools[] = {"[{\"function\":{\"name\":\"f\"}}]",
                                        "[{\"function\":{\"name\":\"f\",\"parameters\":null}}]"};
    for (size_t i = 0; i < 2; i++) {
        struct rig r;
        set_up_tools(&r, FORMAT_JSON, tools[i], (struct tool_demand){.is_parallel = true});
        assert_true(accepts(&r, HERMES("f", "{}")));
        assert_true(accepts(&r, HERMES("f", "{\"a\": [1]}")));
        assert_false(accepts(&r, HERMES("f", "null")));
        tear_down(&r);
    }
}

/* Beside text that is free a function that is not strict may have a schema that no grammar can be made of. */
static void strict_functions_bind_no_others(void **state)
{
    (void)state;
    static const char tools[] =
        "[{\"function\":{\"name\":\"s\",\"strict\":true,\"parameters\":{\"type\":\"object\",\"properties\":"
        "{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"],\"additionalProperties\":false}}},"
        "{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":"
        "{\"l\":{\"type\":\"array\",\"uniqueItems\":true}}}}}]";
    struct rig r;
    set_up_tools(&r, FORMAT_JSON, tools, (struct tool_demand){.behind_trigger = true});
    assert_true(accepts(&r, "s\", \"arguments\": {\"a\": 1}}\n</tool_call>"));
    assert_false(accepts(&r, "s\", \"arguments\": {}}\n</tool_call>"));
    assert_true(accepts(&r, "f\", \"arguments\": {\"l\": [1, 1], \"m\": 2}}\n</tool_call>"));
    assert_false(accepts(&r, "f\", \"arguments\": 3}\n</tool_call>"));
    tear_down(&r);
    set_up_tools(&r, FORMAT_RAW, tools, (struct tool_demand){.behind_trigger = true});
    assert_string_equal(tool_grammar_trigger(r.format), "<calls>");
    assert_true(accepts(&r, "\n<invoke=f>\n<parameter=l>\n[1, 1]\n</parameter>\n</invoke>\n</calls>"));
    assert_false(accepts(&r, "\n<invoke=s>\n<parameter=a>\n[1, 1]\n</parameter>\n</invoke>\n</calls>"));
    tear_down(&r);
}

/* What was let in, parsed. */
static void check_call(const struct rig *r, const char *text, const char *expected)
{
    struct buffer out;
    assert_true(accepts(r, text));
    parse_joined(r->format, false, text, strlen(text), 0, &out);
    assert_string_equal(out.data, expected);
    buffer_deinit(&out);
}

/* Arguments as a string, and values with a family's quotes: JSON where a call is forced. */
static void calls_in_other_notations(void **state)
{
    (void)state;
    struct rig r;
    set_up(&r, FORMAT_STRING, (struct tool_demand){.name = "look"});
    check_call(&r, "[CALL]look[ID]abcdefgh1[ARGS]{\"city\": \"a\", \"at\": [1, 2]}",
               "C(look|abcdefgh1)A({\"city\": \"a\", \"at\": [1, 2]})E(whole)");
    assert_false(accepts(&r, "[CALL]look[ID]abcdefgh1[ARGS]{\"city\": 1}"));
    tear_down(&r);
    static const char tools[] = "[{\"function\":{\"name\":\"look\",\"parameters\":{\"type\":\"object\","
                                "\"properties\":{\"city\":{\"type\":"
                                "\"string\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},"
                                "\"minItems\":1},\"where\":{\"type\":"
                                "\"object\",\"properties\":{\"x\":{\"type\":\"number\"}},\"required\":[\"x\"]"
                                ",\"additionalProperties\":false}},"
                                "\"required\":[\"city\"]}}}]";
    set_up_tools(&r, FORMAT_QUOTED, tools, (struct tool_demand){.name = "look"});
    check_call(
        &r, "<|tool>call:look{city:<|q|>a \"b\"<|q|>,tags:[\"<|\", \"}\"],where:{\"x\": 1.5}}<tool|>",
        "C(look)A({\"city\": \"a \\\"b\\\"\", \"tags\": [\"<|\", \"}\"], \"where\": {\"x\": 1.5}})E(whole)");
    assert_false(accepts(&r, "<|tool>call:look{city:<|q|>a<|q|>,tags:[]}<tool|>"));
    assert_false(accepts(&r, "<|tool>call:look{city:<|q|>a<|q|>,where:{\"y\": 1}}<tool|>"));
    tear_down(&r);
}

#define VALUE(value) "<calls>\n<invoke=f>\n<parameter=a>\n" value "\n</parameter>\n</invoke>\n</calls>"

/* Patterns, formats and lengths of raw strings; characters are counted. */
static void raw_strings_are_held(void **state)
{
    (void)state;
    static const struct {
        const char *schema, *good[3], *bad[4];
    } cases[] = {
        {"\"pattern\":\"^[a-c/]+$\"", {"a/b"}, {"", "d", "ad"}},
        {"\"pattern\":\"b|\\\\d\"", {"abc", "x1"}, {"ac", ""}},
        {"\"minLength\":2,\"maxLength\":3",
         {"ab", "\xC3\xA9\xC3\xA9\xC3\xA9", "a\nb"},
         {"a", "abcd", "", "null"}},
        {"\"minLength\":300", {}, {"a", ""}},
        {"\"maxLength\":5000", {"", "a", "</parameter"}, {}},
        {"\"format\":\"date\"", {"2024-02-29"}, {"2023-02-29", "soon", "x 2024-02-29"}},
        {"\"format\":\"none\",\"maxLength\":1", {"a"}, {"ab"}},
        {"\"pattern\":\"^a\",\"format\":\"email\",\"maxLength\":6", {"a@b.cd"}, {"b@b.cd", "a@b.cde"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int nullable = 0; nullable < 2; nullable++) {
            char tools[512], text[256];
            struct rig r;
            snprintf(tools, sizeof tools,
                     "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":%s,%s}},"
                     "\"required\":[\"a\"]}}}]",
                     nullable ? "[\"string\",\"null\"]" : "\"string\"", cases[i].schema);
            set_up_tools(&r, FORMAT_RAW, tools, (struct tool_demand){.name = "f"});
            for (int k = 0; k < 3 && cases[i].good[k]; k++) {
                snprintf(text, sizeof text, VALUE("%s"), cases[i].good[k]);
                assert_true(accepts(&r, text));
            }
            for (int k = 0; k < 4 && cases[i].bad[k]; k++) {
                snprintf(text, sizeof text, VALUE("%s"), cases[i].bad[k]);
                assert_int_equal(accepts(&r, text), nullable && !strcmp(cases[i].bad[k], "null"));
            }
            if (nullable) assert_true(accepts(&r, VALUE("null")));
            tear_down(&r);
        }
    }
}

static void raw_strings_of_every_format(void **state)
{
    (void)state;
    static const char *const formats[] = {
        "date", "time", "date-time",     "duration",     "email", "hostname",     "ipv4",
        "ipv6", "uri",  "uri-reference", "uri-template", "uuid",  "json-pointer", "relative-json-pointer",
        "regex"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        char tools[256];
        struct rig r;
        snprintf(tools, sizeof tools,
                 "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"type\":\"string\","
                 "\"format\":"
                 "\"%s\"}},\"required\":[\"a\"]}}}]",
                 formats[i]);
        set_up_tools(&r, FORMAT_RAW, tools, (struct tool_demand){.name = "f"});
        assert_false(accepts(&r, VALUE("\n")));
        tear_down(&r);
    }
}

/* As zod writes schemas that are there twice. */
static void references_to_other_parameters(void **state)
{
    (void)state;
    static const char tools[] =
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":"
        "\"object\","
        "\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"],\"additionalProperties\":false},"
        "\"b\":{"
        "\"$ref\":\"#/properties/a\"},\"c\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/properties/"
        "b\"}},\"d\":{"
        "\"$ref\":\"#/properties/a/properties/x\"}}}}}]";
    struct rig r;
    set_up_tools(&r, FORMAT_RAW, tools, (struct tool_demand){.name = "f"});
#define PARAMETER_OF(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"
#define INVOKE(parameters) "<calls>\n<invoke=f>\n" parameters "</invoke>\n</calls>"
    assert_true(accepts(&r, INVOKE(PARAMETER_OF("b", "{\"x\": 1}") PARAMETER_OF("c", "[{\"x\": 2}]")
                                       PARAMETER_OF("d", "3"))));
    assert_false(accepts(&r, INVOKE(PARAMETER_OF("b", "{\"y\": 1}"))));
    assert_false(accepts(&r, INVOKE(PARAMETER_OF("c", "[{\"x\": true}]"))));
    assert_false(accepts(&r, INVOKE(PARAMETER_OF("d", "true"))));
    tear_down(&r);
}

static void what_cannot_be_held_is_refused(void **state)
{
    (void)state;
    const struct grammar_options options = {.max_spaces = 4};
    struct grammar *g;
    struct error err = {0};
    cJSON *tools = cJSON_Parse(tools_text);
    struct tool_format *f = format_of(format_templates[FORMAT_JSON]);
    assert_int_equal(
        tool_grammar_make(f, &(struct tool_demand){.tools = tools, .name = "no"}, &options, &g, &err),
        STATUS_INVALID);
    tool_format_free(f);
    cJSON_Delete(tools);
}

/* A refusal is about a field of the request. */
static void refusals_name_the_field(void **state)
{
    static const char bad[] = "[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\",\"parameters\":"
                              "{\"properties\":{\"a\":{\"type\":"
                              "\"string\"},\"b\":{\"type\":\"integer\",\"minimum\":\"\"}}}}}]";
    static const struct {
        int format;
        const char *path;
    } cases[] = {{FORMAT_JSON, "tools[1].function.parameters"},
                 {FORMAT_RAW, "tools[1].function.parameters.properties.b"}};
    const struct grammar_options options = {.max_spaces = 4};
    cJSON *tools = cJSON_Parse(bad);
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tool_format *f = format_of(format_templates[cases[i].format]);
        struct grammar *g;
        struct error err = {0};
        char path[112];
        assert_int_equal(tool_grammar_make(f, &(struct tool_demand){.tools = tools}, &options, &g, &err),
                         STATUS_INVALID);
        const char *rest = tool_grammar_find_field(tools, err.text, path, sizeof path);
        assert_string_equal(path, cases[i].path);
        assert_ptr_equal(strstr(rest, "\"minimum\""), rest);
        tool_format_free(f);
    }
    cJSON_Delete(tools);
}

/* As it is written, where it becomes a part of a larger one, too. */
static void a_refused_pattern_is_that_of_its_parameter(void **state)
{
    (void)state;
    static const char tools_with[] = "[{\"function\":{\"name\":\"ping\"}},{\"function\":{\"name\":\"go\","
                                     "\"parameters\":{\"properties\":{\"a\":{},"
                                     "\"b\":{\"type\":\"string\",\"pattern\":\"^(x)\\\\1$\"}}}}}]";
    const struct grammar_options options = {.max_spaces = 4};
    cJSON *tools = cJSON_Parse(tools_with);
    struct tool_format *f = format_of(format_templates[FORMAT_RAW]);
    struct grammar *g;
    struct error err = {0};
    char path[112];
    assert_int_equal(tool_grammar_make(f, &(struct tool_demand){.tools = tools}, &options, &g, &err),
                     STATUS_UNSUPPORTED);
    const char *rest = tool_grammar_find_field(tools, err.text, path, sizeof path);
    assert_string_equal(path, "tools[1].function.parameters.properties.b");
    assert_non_null(strstr(rest, "the pattern \"^(x)\\1$\" has a back reference"));
    tool_format_free(f);
    cJSON_Delete(tools);
}

/* Each parameter that refers to definitions is a document with all of them. */
static void many_references_to_much_are_refused(void **state)
{
    (void)state;
    const struct grammar_options options = {.max_spaces = 4};
    struct grammar *g;
    struct error err = {0};
    struct buffer text;
    buffer_init(&text, 1 << 20);
    buffer_append_text(&text, "[{\"function\":{\"name\":\"f\",\"parameters\":{\"$defs\":{\"a\":{\"enum\":[0");
    for (int i = 0; i < 40000; i++) buffer_append_text(&text, ",1");
    buffer_append_text(&text,
                       "]},\"b\":{\"type\":\"integer\"}},\"type\":\"object\",\"properties\":{\"p\":{}");
    for (int i = 0; i < 40; i++) buffer_printf(&text, ",\"p%d\":{\"$ref\":\"#/$defs/b\"}", i);
    buffer_append_text(&text, "}}}}]");
    cJSON *tools = cJSON_ParseWithLength(text.data, text.num_bytes);
    assert_non_null(tools);
    struct tool_format *f = format_of(format_templates[FORMAT_RAW]);
    assert_int_equal(tool_grammar_make(f, &(struct tool_demand){.tools = tools}, &options, &g, &err),
                     STATUS_LIMIT);
    tool_format_free(f);
    cJSON_Delete(tools);
    buffer_deinit(&text);
}

/* Names that are required are as many as a body has room for, and no parameter's. */
static void required_names_are_found_among_many(void **state)
{
    (void)state;
    enum { NUM_PARAMETERS = 2000, NUM_REQUIRED = 700000 };
    struct error err = {0};
    struct buffer text, ebnf;
    buffer_init(&text, 8 << 20);
    buffer_init(&ebnf, 8 << 20);
    buffer_append_text(&text, "[{\"function\":{\"name\":\"f\",\"parameters\":{\"required\":[\"p1\",3");
    for (int i = 0; i < NUM_REQUIRED; i++) buffer_append_text(&text, ",\"pp\"");
    buffer_append_text(&text, "],\"properties\":{\"p0\":{}");
    for (int i = 1; i < NUM_PARAMETERS; i++) buffer_printf(&text, ",\"p%d\":{}", i);
    buffer_append_text(&text, "}}}}]");
    cJSON *tools = cJSON_ParseWithLength(text.data, text.num_bytes), *schemas = cJSON_CreateObject();
    assert_true(tools && schemas);
    struct tool_format *f = format_of(format_templates[FORMAT_RAW]);
    assert_int_equal(tool_grammar_write(f, &(struct tool_demand){.tools = tools}, &ebnf, schemas, &err), 0);
    assert_non_null(strstr(ebnf.data, "none-1-0 ::= value-1-0 more-1-1 | none-1-1 \n"));
    assert_non_null(strstr(ebnf.data, "none-1-1 ::= value-1-1 more-1-2 \n"));
    tool_format_free(f);
    cJSON_Delete(tools);
    cJSON_Delete(schemas);
    buffer_deinit(&text);
    buffer_deinit(&ebnf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(required_names_are_found_among_many),
                                       cmocka_unit_test(calls_in_json),
                                       cmocka_unit_test(calls_whose_arguments_are_free),
                                       cmocka_unit_test(calls_behind_a_trigger),
                                       cmocka_unit_test(calls_or_text),
                                       cmocka_unit_test(calls_in_parameters),
                                       cmocka_unit_test(parameters_whose_schemas_refer),
                                       cmocka_unit_test(parameters_that_depend_on_each_other),
                                       cmocka_unit_test(alternatives_of_literals),
                                       cmocka_unit_test(strings_or_others),
                                       cmocka_unit_test(calls_or_an_answer),
                                       cmocka_unit_test(null_parameters_are_absent),
                                       cmocka_unit_test(strict_functions_bind_no_others),
                                       cmocka_unit_test(calls_in_other_notations),
                                       cmocka_unit_test(raw_strings_are_held),
                                       cmocka_unit_test(raw_strings_of_every_format),
                                       cmocka_unit_test(references_to_other_parameters),
                                       cmocka_unit_test(what_cannot_be_held_is_refused),
                                       cmocka_unit_test(refusals_name_the_field),
                                       cmocka_unit_test(a_refused_pattern_is_that_of_its_parameter),
                                       cmocka_unit_test(many_references_to_much_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
