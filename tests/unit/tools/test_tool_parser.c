/* test_tool_parser.c - answers as events: calls, reasoning, what only looks like them, what breaks off. Whole
 * templates are tests/golden/test_tools.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "text/tools/match.h"
#include "text/tools/literal_json.h"
#include "text/tools/tool_types.h"
#include "unit/tools/tool_answers.h"

static struct tool_format *formats[NUM_FORMATS];

static int derive_all(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_FORMATS; i++) formats[i] = format_of(format_templates[i]);
    return 0;
}

static int free_all(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_FORMATS; i++) tool_format_free(formats[i]);
    return 0;
}

/* In one piece and in pieces of 1 to 9 bytes. */
static void check_from(int format, bool in_reasoning, const char *text, const char *expected)
{
    for (size_t step = 0; step < 10; step++) {
        struct buffer out;
        parse_joined(formats[format], in_reasoning, text, strlen(text), step, &out);
        assert_string_equal(out.data, expected);
        buffer_deinit(&out);
    }
}

static void check(int format, const char *text, const char *expected)
{
    check_from(format, false, text, expected);
}

static void derived(void **state)
{
    (void)state;
    for (int i = 0; i < NUM_FORMATS; i++)
        assert_int_equal(tool_format_origin(formats[i]), i >= FORMAT_CHANNELS ? TOOLS_FAMILY : TOOLS_DERIVED);
    assert_false(tool_format_is_parallel(formats[FORMAT_BARE]));
    assert_true(tool_format_is_parallel(formats[FORMAT_RAW]));
    assert_int_equal(tool_format_content_beside_calls(formats[FORMAT_JSON]), CONTENT_KEPT);
}

static void calls(void **state)
{
    (void)state;
    check(FORMAT_JSON,
          "Let me see.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"city\": "
          "\"a}\\\"b\"}}\n</tool_call>",
          "T(Let me see.)C(look)A({\"city\": \"a}\\\"b\"})E(whole)");
    check(FORMAT_JSON,
          "<tool_call>{ \"name\":\"look\",\"arguments\":{} }</tool_call>\n\n<tool_call>\n{\"name\": "
          "\"look_up\", "
          "\"arguments\": {\"a\":\n[1]}}\n</tool_call>\n",
          "C(look)A({})E(whole)C(look_up)A({\"a\":\n[1]})E(whole)");
    check(FORMAT_STRING, "[CALL]look[ID]ab-12[ARGS]\"{\\\"city\\\": \\\"x\\\\ny\\\"}\"",
          "C(look|ab-12)A({\"city\": \"x\\ny\"})E(whole)");
    check(FORMAT_NUMBERED,
          "<begin><call>look:0<arguments>{}</call><call>look_up:1<arguments>{}</call><finish>and so on",
          "C(look)A({})E(whole)C(look_up)A({})E(whole)T(and so on)");
    check(FORMAT_BARE, "{\"name\": \"look\", \"parameters\": {}}", "C(look)A({})E(whole)");
}

#define PARAMETER(name, value) "<parameter=" name ">\n" value "\n</parameter>\n"

/* What a parameter's schema refers to decides as the schema itself does. */
static void parameters_whose_schemas_refer(void **state)
{
    (void)state;
    check(FORMAT_RAW,
          "<calls>\n<invoke=refer>\n" PARAMETER("code", "1") PARAMETER("same", "true") PARAMETER("maybe", "2")
              PARAMETER("all", "[3]") PARAMETER("second", "4") PARAMETER("any", "5") PARAMETER("back", "6")
                  PARAMETER("maybe", "null") "</invoke>\n</calls>",
          "C(refer)A({\"code\": \"1\", \"same\": \"true\", \"maybe\": \"2\", \"all\": \"[3]\", \"second\": "
          "\"4\", "
          "\"any\": 5, \"back\": 6, \"maybe\": null})E(whole)");
}

static void parameters(void **state)
{
    (void)state;
    check(FORMAT_RAW,
          "<calls>\n<invoke=look>\n<parameter=city>\n\n17 "
          "\"x\"\n\n</parameter>\n<parameter=days>\n17\n</parameter>\n"
          "<parameter=note>\n[1, {\"a\": null}]\n</parameter>\n</invoke>\n</calls>",
          "C(look)A({\"city\": \"\\n17 \\\"x\\\"\\n\", \"days\": 17, \"note\": [1, {\"a\": null}]})E(whole)");
    /* What is no number stays what was written; without line breaks; without parameters. */
    check(FORMAT_RAW,
          "<calls><invoke=look><parameter=days>soon</parameter></invoke><invoke=look_up></invoke></calls>",
          "C(look)A({\"days\": \"soon\"})E(whole)C(look_up)A({})E(whole)");
    check(FORMAT_PYTHON, "<|run|>[look(city=\"a, b)\", days=3, note={'k': [True, None]}), look_up()]",
          "C(look)A({\"city\": \"a, b)\", \"days\": 3, \"note\": {\"k\": [true, "
          "null]}})E(whole)C(look_up)A({})E(whole)");
}

/* What stands behind a value's end tells whether it is one. */
static void marks_in_parameters(void **state)
{
    (void)state;
    check(FORMAT_RAW,
          "<calls>\n<invoke=look>\n<parameter=city>\na\n</parameter>\nb</parameter> <c>\n</parameter>\n"
          "<parameter=days>\n3\n</parameter>\n</invoke>\n</calls>",
          "C(look)A({\"city\": \"a\\n</parameter>\\nb</parameter> <c>\", \"days\": 3})E(whole)");
    check(FORMAT_RAW,
          "<calls><invoke=look><parameter=note>\n[\"</parameter>\", 1]\n</parameter></invoke></calls>",
          "C(look)A({\"note\": [\"</parameter>\", 1]})E(whole)");
    check(
        FORMAT_TYPED,
        "<|open|>call=look<|sep|><|open|>key=city:type=string<|sep|>a<|close|>key<|sep|>b<|close|>key<|sep|>"
        "<|close|>call<|sep|>",
        "C(look)A({\"city\": \"a<|close|>key<|sep|>b\"})E(whole)");
    /* Cut off behind the end, and within what is behind it; a mark is missing. */
    check(FORMAT_RAW, "<calls><invoke=look><parameter=city>\na\n</parameter>",
          "C(look)A({\"city\": \"a\"})E(whole)");
    check(FORMAT_RAW, "<calls><invoke=look><parameter=city>\na\n</parameter>\n</inv",
          "C(look)A({\"city\": \"a\")E(broken)T(\n</inv)");
    check(FORMAT_RAW,
          "<calls><invoke=look><parameter=city>\na\n</parameter>\n</calls>\n<calls><invoke=look_up></"
          "invoke></calls>",
          "C(look)A({\"city\": \"a\")E(broken)T(\n</calls>)C(look_up)A({})E(whole)");
}

static void reasoning(void **state)
{
    (void)state;
    check(FORMAT_JSON, "<think>\nhm <b>\n\nso\n</think>\n\nYes.", "R(hm <b>\n\nso)T(Yes.)");
    check_from(FORMAT_JSON, true,
               "\nhm</think>\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>",
               "R(hm)C(look)A({})E(whole)");
    check_from(FORMAT_JSON, true, "never ends \n", "R(never ends)");
    check(FORMAT_JSON, "</think>\n\nYes.", "T(Yes.)");
}

static void mentions(void **state)
{
    (void)state;
    check(FORMAT_JSON, "Use <tool_call> and </tool_call>, <think",
          "T(Use <tool_call> and </tool_call>, <think)");
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"argument\": 1}",
          "T(<tool_call>\n{\"name\": \"look\", \"argument\": 1})");
    check(FORMAT_JSON, "a  \n", "T(a  \n)");
    check(FORMAT_PYTHON, "<|run|>[look", "T(<|run|>[look)");
    check(FORMAT_BARE, "{\"name\": \"other\", \"parameters\": {}}",
          "T({\"name\": \"other\", \"parameters\": {}})");
    check(FORMAT_BARE, "So: {\"name\": \"look\", \"parameters\": {}}",
          "T(So: {\"name\": \"look\", \"parameters\": {}})");
}

static void broken(void **state)
{
    (void)state;
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": [1}} tail",
          "C(look)A({\"a\": [1)E(broken)T(}} tail)");
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": \"b",
          "C(look)A({\"a\": \"b)E(broken)");
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {}", "C(look)A({})E(whole)");
    /* Cut within the end of a call; what only begins like it. */
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_",
          "C(look)A({})E(whole)");
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tail",
          "C(look)A({})E(whole)T(</tail)");
    /* Without the bracket behind the arguments, as small models write it. */
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": 1}\n</tool_call>\nWell.",
          "C(look)A({\"a\": 1})E(whole)T(Well.)");
    check(
        FORMAT_JSON,
        "<tool_call>\n{\"name\": \"look\", \"arguments\": {}</tool_call>\n<tool_call>\n{\"name\": \"look\", "
        "\"arguments\": {}}\n</tool_call>",
        "C(look)A({})E(whole)C(look)A({})E(whole)");
    check(FORMAT_RAW, "<calls><invoke=look><parameter=city>x</parameter>oops",
          "C(look)A({\"city\": \"x</parameter>oops)E(broken)");
    check(FORMAT_PYTHON, "<|run|>[look(days=3, note=?)]",
          "C(look)A({\"days\": 3, \"note\": )E(broken)T(?)])");
}

/* Within the beginning of a call, which is no text for that. */
static void cut_off(void **state)
{
    (void)state;
    answers_are_cut = true;
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"lo", "");
    check(FORMAT_JSON, "Well, <tool_call>\n{\"na", "T(Well,)");
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>\n<to",
          "C(look)A({})E(whole)");
    check(FORMAT_PYTHON, "<|run|>[look", "");
    check(FORMAT_RAW, "<calls><invoke=lo", "");
    check(FORMAT_JSON, "a <too", "T(a <too)");
    check(FORMAT_JSON, "Use <tool_call> and", "T(Use <tool_call> and)");
    check(FORMAT_RAW, "<calls><invoke=look><parameter=city>Bern</parameter>",
          "C(look)A({\"city\": \"Bern\")E(broken)");
    check(FORMAT_RAW, "<calls><invoke=look>\n", "");
    check(FORMAT_RAW, "<calls><invoke=look><parameter=city>Bern</parameter></invoke>",
          "C(look)A({\"city\": \"Bern\"})E(whole)");
    check(FORMAT_PYTHON, "<|run|>[look(city=\"Bern\", ", "C(look)A({\"city\": \"Bern\")E(broken)");
    /* What there is of a value is the call's, and what begins another nobody's. */
    check(FORMAT_RAW, "<calls><invoke=look><parameter=days>\n1", "C(look)A({\"days\": 1)E(broken)");
    check(FORMAT_RAW, "<calls><invoke=look><parameter=city>Bern</para",
          "C(look)A({\"city\": \"Bern</para)E(broken)");
    check(FORMAT_RAW, "<calls><invoke=look><parameter=city>Bern</parameter><para",
          "C(look)A({\"city\": \"Bern\")E(broken)");
    check(FORMAT_QUOTED, "<|tool>call:look{note:[1, <|q|>a", "C(look)A({\"note\": [1, <|q|>a)E(broken)");
    check(FORMAT_PYTHON, "<|run|>[look(note=[True, ", "C(look)A({\"note\": [True, )E(broken)");
    answers_are_cut = false;
    check(FORMAT_PYTHON, "<|run|>[look(note=[True, ", "C(look)A({\"note\": [True, )E(broken)");
}

/* Objects with other keys, in another order, with arguments of other types; each is a call of look. */
static void objects(void **state)
{
    (void)state;
    static const struct {
        const char *object, *arguments;
    } cases[] = {
        {"{\"arguments\": {\"a\": [1, \"}\"]}, \"name\": \"look\"}", "{\"a\": [1, \"}\"]}"},
        {"{\"name\": \"look\", \"parameters\": {\"a\": 1}}", "{\"a\": 1}"},
        {"{\"name\": \"look\", \"arguments\": {\"a\": 1}, \"id\": \"x}\"}", "{\"a\": 1}"},
        {"{\"id\": 7, \"name\": \"look\", \"arguments\": {\"a\": 1}}", "{\"a\": 1}"},
        {"{\"type\": \"function\", \"function\": {\"name\": \"look\", \"arguments\": {\"a\": 1}}}",
         "{\"a\": 1}"},
        {"{\"function\": \"look\", \"parameters\": {\"a\": 1}}", "{\"a\": 1}"},
        {"{\"name\": \"look\", \"arguments\": \"{\\\"a\\\": \\\"b\\\\nc\\\"}\"}", "{\"a\": \"b\\nc\"}"},
        {"{\"name\": \"look\", \"arguments\": \"\"}", "{}"},
        {"{\"name\": \"look\", \"arguments\": null}", "{}"},
        {"{\"name\": \"look\"}", "{}"},
        /* What is no object is the client's to judge. */
        {"{\"name\": \"look\", \"arguments\": \"soon\"}", "soon"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256], expected[256];
        snprintf(expected, sizeof expected, "C(look)A(%s)E(whole)", cases[i].arguments);
        if (strstr(cases[i].object, "arguments") || strstr(cases[i].object, "parameters"))
            check(FORMAT_BARE, cases[i].object, expected);
        snprintf(text, sizeof text, "<calls>[%s]</calls>", cases[i].object);
        check(FORMAT_LISTED, text, expected);
        snprintf(text, sizeof text, "<calls>%s</calls>", cases[i].object);
        check(FORMAT_LISTED, text, expected);
        snprintf(text, sizeof text, "Now.\n<tool_call>\n%s\n</tool_call>\nWell.", cases[i].object);
        snprintf(expected, sizeof expected, "T(Now.)C(look)A(%s)E(whole)T(\nWell.)", cases[i].arguments);
        check(FORMAT_JSON, text, expected);
    }
    check(FORMAT_LISTED, "<calls>[{\"arguments\": {}, \"name\": \"look\"}, {\"name\": \"look_up\"}]</calls>",
          "C(look)A({})E(whole)C(look_up)A({})E(whole)");
    check(FORMAT_BARE,
          "{\"name\": \"look\", \"parameters\": {}}; {\"parameters\": {}, \"name\": \"look_up\"}",
          "C(look)A({})E(whole)C(look_up)A({})E(whole)");
    check(FORMAT_BARE, "{\"name\": \"look\", \"parameters\": {}}; and", "C(look)A({})E(whole)T(; and)");
}

static void objects_that_are_no_calls(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"name\": \"John\", \"age\": 3}",
        "{\"name\": \"need\"}",
        "{\"name\": \"look\", \"age\": 3}",
        "{\"arguments\": {}, \"name\": \"other\"}",
        "{\"arguments\": {}}",
        "{\"name\": \"look\", \"name\": \"look\"}",
        "{\"name\": \"look\", \"parameters\": [1]}",
        "{\"name\": \"look\", \"parameters\": {}",
        "{\"name\": \"lo\\u006fk\"}",
        "{}",
        "{\"type\": \"function\", \"function\": {\"function\": {\"name\": \"look\"}}}",
        "{\"name\": \"look\"} is one",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char expected[256];
        bool has_begun = i == 7; /* its arguments are whole */
        snprintf(expected, sizeof expected, "T(%s)", texts[i]);
        check(FORMAT_BARE, texts[i], has_begun ? "C(look)A({})E(whole)" : expected);
    }
    check(FORMAT_JSON, "<tool_call>\n{\"arguments\": {}, \"name\": \"",
          "T(<tool_call>\n{\"arguments\": {}, \"name\": \")");
}

/* JSON as models write it. */
static void mended_arguments(void **state)
{
    (void)state;
    check(FORMAT_JSON,
          "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": \"b\n\tTrue,}\", \"c\": [True, False, "
          "None, ], "
          "\"d\": 1e5 ,}}\n</tool_call>",
          "C(look)A({\"a\": \"b\\n\\tTrue,}\", \"c\": [true, false, null ], \"d\": 1e5 })E(whole)");
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": 1,",
          "C(look)A({\"a\": 1,)E(broken)");
    check(FORMAT_JSON, "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": Tr",
          "C(look)A({\"a\": Tr)E(broken)");
    check(FORMAT_STRING, "[CALL]look[ID]ab-12[ARGS]\"{\\\"a\\\": \\", "C(look|ab-12)A({\"a\": )E(broken)");
    check(FORMAT_NUMBERED, "<begin><call>look:0<arguments></call><finish>", "C(look)A({})E(whole)");
    check(FORMAT_NUMBERED, "<begin> <call>look:0 <arguments> {\"a\": 1} </call> <finish>",
          "C(look)A({\"a\": 1})E(whole)");
    check(FORMAT_RAW,
          "<calls><invoke=look><parameter=days>\n\"3\"\n</parameter><parameter=note>[1,{\"a\":2,},]</"
          "parameter></"
          "invoke></calls>",
          "C(look)A({\"days\": 3, \"note\": [1, {\"a\": 2}]})E(whole)");
    check(FORMAT_RAW,
          "<calls><invoke=look><parameter=days>None</parameter><parameter=days>3.0</parameter></invoke>",
          "C(look)A({\"days\": null, \"days\": 3.0})E(whole)");
    check(FORMAT_QUOTED, "<|tool>call:look{\"city\": Paris by night, <|q|>days<|q|>:3}<tool|>",
          "C(look)A({\"city\": \"Paris by night\", \"days\": 3})E(whole)");
    check(FORMAT_QUOTED, "<|tool>call:look{at:{a key : 1,src/\u00e9.c:[{$x (1):<|q|>y<|q|>}]}}<tool|>",
          "C(look)A({\"at\": {\"a key\": 1, \"src/\u00e9.c\": [{\"$x (1)\": \"y\"}]}})E(whole)");
}

/* Names that the function has may have any bytes in them. */
static void parameters_with_odd_names(void **state)
{
    (void)state;
    static const char said[] = "C(look)A({\"page[size]\": \"9\", \"a:b=\\\"\": 1})E(whole)";
    check(FORMAT_RAW,
          "<calls>\n<invoke=look>\n" PARAMETER("page[size]", "9")
              PARAMETER("a:b=\"", "1") "</invoke>\n</calls>",
          said);
    check(FORMAT_PYTHON, "<|run|>[look(page[size]=\"9\", a:b=\"=1)]", said);
    check(FORMAT_QUOTED, "<|tool>call:look{page[size]:<|q|>9<|q|>,a:b=\":1}<tool|>", said);
    check(FORMAT_RAW, "<calls>\n<invoke=look>\n" PARAMETER("page[no]", "9") "</invoke>\n</calls>",
          "C(look)E(broken)T(\n<parameter=page[no]>\n9\n</parameter>\n</invoke>\n</calls>)");
}

/* Each in its alternative; of two types its look decides. Of several schemas at once each says something of the type. */
static void parameters_of_alternatives(void **state)
{
    (void)state;
    check(FORMAT_RAW,
          "<calls>\n<invoke=either>\n" PARAMETER("id", "17") PARAMETER("at", "3") PARAMETER("of", "5")
              PARAMETER("both", "7") "</invoke>\n</calls>",
          "C(either)A({\"id\": \"17\", \"at\": 3, \"of\": 5, \"both\": \"7\"})E(whole)");
}

/* Objects in Python's quotes. */
static void single_quotes(void **state)
{
    (void)state;
    check(FORMAT_JSON,
          "<tool_call>\n{'name': 'look', 'arguments': {'city': \"it's\", 'a': [True, None, 'x\"y\\'z'], "
          "'\u00e9': {}}}\n</tool_call>",
          "C(look)A({\"city\": \"it's\", \"a\": [true, null, \"x\\\"y'z\"], \"\u00e9\": {}})E(whole)");
    check(FORMAT_JSON, "<tool_call>{'name': 'look', 'arguments': '{\"city\": \"Rome\"}'}</tool_call>",
          "C(look)A({\"city\": \"Rome\"})E(whole)");
    check(FORMAT_JSON, "<tool_call>{'name': 'look', 'arguments': None}</tool_call>", "C(look)A({})E(whole)");
    check(FORMAT_LISTED,
          "<calls>[{'name': 'look', 'arguments': {}}, {\"name\": \"look_up\", \"arguments\": {}}]</calls>",
          "C(look)A({})E(whole)C(look_up)A({})E(whole)");
    check(FORMAT_BARE, "{'name': 'look', 'parameters': {'a': 1}}", "C(look)A({\"a\": 1})E(whole)");
    check(FORMAT_BARE, "{'name': 'nobody', 'parameters': {}}", "T({'name': 'nobody', 'parameters': {}})");
}

/* A fence or a list around objects that the template does not have, and several objects within the marks of one. */
static void wrapped_objects(void **state)
{
    (void)state;
    check(FORMAT_JSON, "<tool_call>\n```json\n{\"name\": \"look\", \"arguments\": {}}\n```\n</tool_call>",
          "C(look)A({})E(whole)");
    check(FORMAT_JSON,
          "<tool_call>\n[{\"name\": \"look\", \"arguments\": {\"a\": [1]}},\n {\"name\": \"look_up\", "
          "\"arguments\": {}}]\n</tool_call> tail",
          "C(look)A({\"a\": [1]})E(whole)C(look_up)A({})E(whole)T(tail)");
    check(FORMAT_JSON,
          "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n{\"name\": \"look_up\", \"arguments\": "
          "{\"a\": 1}}"
          "\n</tool_call>\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>",
          "C(look)A({})E(whole)C(look_up)A({\"a\": 1})E(whole)C(look)A({})E(whole)");
    check(FORMAT_JSON,
          "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n{\"name\": \"nobody\", \"arguments\": {}}",
          "C(look)A({})E(whole)T({\"name\": \"nobody\", \"arguments\": {}})");
    check(FORMAT_BARE, "```json\n{\"name\": \"look\", \"parameters\": {}}\n```", "C(look)A({})E(whole)");
    check(FORMAT_BARE, "```json\n{\"name\": \"Ada\", \"parameters\": {}}\n```",
          "T(```json\n{\"name\": \"Ada\", \"parameters\": {}}\n```)");
    check(FORMAT_BARE,
          "[{\"name\": \"look\", \"parameters\": {}}, {\"name\": \"look_up\", \"parameters\": {\"a\": {}}}]",
          "C(look)A({})E(whole)C(look_up)A({\"a\": {}})E(whole)");
    check(FORMAT_BARE, "[1, 2]", "T([1, 2])");
    check(FORMAT_NUMBERED, "<begin><call>look:0<arguments>```json\n{\"a\": 1}\n```</call><finish>",
          "C(look)A({\"a\": 1})E(whole)");
}

/* In another notation than the template's, within its marks. */
static void other_notations(void **state)
{
    (void)state;
    check(FORMAT_NESTED,
          "<tool_call>\n<function=look>\n{\"city\": \"Rome\", \"days\": 2}\n</function>\n</tool_call>",
          "C(look)A({\"city\": \"Rome\", \"days\": 2})E(whole)");
    check(FORMAT_NESTED, "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"days\": 2}}\n</tool_call> tail",
          "C(look)A({\"days\": 2})E(whole)T(tail)");
    check(FORMAT_NESTED, "<tool_call>\n<function=nobody>\n{\"a\": 1}",
          "T(<tool_call>\n<function=nobody>\n{\"a\": 1})");
    check(FORMAT_NUMBERED, "<begin><call>look<arguments>{}</call><finish>", "C(look)A({})E(whole)");
    check(FORMAT_NUMBERED, "<begin><call>{\"name\": \"look\", \"arguments\": {}}</call><finish>",
          "C(look)A({})E(whole)");
    check(FORMAT_CHANNELS, "<|channel|>commentary to=look <|constrain|>json<|message|>{}",
          "C(look)A({})E(whole)");
    check(FORMAT_CHANNELS, "<|channel|>commentary to=functions.look <|constrain|>json<|message|>",
          "C(look)A({})E(whole)");
}

/* Mistral's and DeepSeek's marks come and go with their versions. */
static void marks_of_other_versions(void **state)
{
    static const char mistral[] =
        TEMPLATE("", "{%- for c in m.tool_calls %}{{ '[TOOL_CALLS]' + c.function.name + '[ARGS]' }}"
                     "{{ c.function.arguments | tojson }}{% endfor %}");
    static const char deepseek[] = TEMPLATE(
        "", "{{ '<｜tool▁calls▁begin｜>' }}{%- for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>' + "
            "c.function.name + "
            "'<｜tool▁sep｜>' }}{{ c.function.arguments | tojson }}{{ '<｜tool▁call▁end｜>' }}{% endfor %}"
            "{{ '<｜tool▁calls▁end｜>' }}");
    static const struct {
        const char *source, *text;
    } cases[] = {
        {mistral, "[TOOL_CALLS]look[ARGS]{}"},
        {mistral, "[TOOL_CALLS]look{}"},
        {mistral, "[TOOL_CALLS] look [CALL_ID]abcdefghi[ARGS] {}"},
        {mistral, "[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {}}]"},
        {mistral, "[TOOL_CALLS]look[ARGS]"},
        {deepseek,
         "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>look<｜tool▁sep｜>```json\n{}\n```<｜tool▁call▁end｜>"
         "<｜tool▁calls▁end｜>"},
        {deepseek, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>look\n```json\n{}\n```<"
                   "｜tool▁call▁end｜>"
                   "<｜tool▁calls▁end｜>"},
    };
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct tool_format *f = format_of(cases[i].source);
        for (size_t step = 0; step < 10; step++) {
            struct buffer out;
            parse_joined(f, false, cases[i].text, strlen(cases[i].text), step, &out);
            const char *id = strstr(out.data, "|abcdefghi");
            if (strcmp(out.data, id ? "C(look|abcdefghi)A({})E(whole)" : "C(look)A({})E(whole)") != 0)
                fail_msg("%s: %s", cases[i].text, out.data);
            buffer_deinit(&out);
        }
        tool_format_free(f);
    }
}

/* An answer that is nothing but objects with tools' names is calls, whatever marks the format has. */
static void objects_alone(void **state)
{
    (void)state;
    static const int marked[] = {FORMAT_JSON, FORMAT_RAW, FORMAT_STRING, FORMAT_NUMBERED, FORMAT_NESTED};
    check(FORMAT_BARE, "{\"name\": \"look\"}", "C(look)A({})E(whole)");
    check(FORMAT_BARE, "```json\n{\"name\": \"look\"}\n```\n", "C(look)A({})E(whole)");
    for (size_t i = 0; i < array_length(marked); i++) {
        check(marked[i], "{\"name\": \"look\", \"arguments\": {\"days\": 2}}",
              "C(look)A({\"days\": 2})E(whole)");
        check(marked[i], "\n```json\n{\"name\": \"need\", \"parameters\": {\"city\": \"a\"}}\n```",
              "C(need)A({\"city\": \"a\"})E(whole)");
        check(marked[i], "[{\"name\": \"look\"}, {\"name\": \"look_up\", \"arguments\": {}}]",
              "C(look)A({})E(whole)C(look_up)A({})E(whole)");
        check(marked[i], "{\"name\": \"look\", \"arguments\": {}}\n{\"name\": \"look\", \"arguments\": {}}",
              "C(look)A({})E(whole)C(look)A({})E(whole)");
        static const char *const texts[] = {
            "{\"name\": \"look\", \"arguments\": {}} calls it",
            "{\"name\": \"other\", \"arguments\": {}}",
            "{\"name\": \"look\", \"arguments\": {}}\n{\"name\": \"other\", \"arguments\": {}}",
            "So: {\"name\": \"look\", \"arguments\": {}}",
            "{\"name\": \"need\"}",
            "{\"name\": \"look\", \"arguments\": {\"days\": 2}",
        };
        for (size_t j = 0; j < array_length(texts); j++) {
            char expected[128];
            snprintf(expected, sizeof expected, "T(%s)", texts[j]);
            check(marked[i], texts[j], expected);
        }
    }
}

/* Llama 3 beside its template's objects, Qwen2.5-Coder, DeepSeek: marks that stand in no rendering of theirs. */
static void marks_of_no_template(void **state)
{
#define OBJECTS(rest)                                                                                        \
    TEMPLATE("", "{{ '{\"name\": \"' + m.tool_calls[0].function.name + '\", \"parameters\": ' }}"            \
                 "{{ m.tool_calls[0].function.arguments | tojson }}{{ '}' }}")                               \
    rest
    static const char llama[] = OBJECTS("{# <|python_tag|> #}"), *hermes = format_templates[FORMAT_JSON];
    static const char coder[] = "{# <tools> #}" TEMPLATE(
        "", "{%- for c in m.tool_calls %}{{ '\n<tool_call>\n{\"name\": \"' + c.function.name + '\", "
            "\"arguments\": ' }}"
            "{{ c.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}");
    static const char deepseek[] = TEMPLATE(
        "", "{{ '<｜DSML｜tool_calls>\n' }}{%- for c in m.tool_calls %}{{ '<｜DSML｜invoke name=\"' + "
            "c.function.name + '\">\n' }}"
            "{%- for k, v in c.function.arguments.items() %}{{ '<｜DSML｜parameter name=\"' + k + '\" "
            "string=\"' }}"
            "{{ 'true' if v is string else 'false' }}{{ '\">' }}{{ v if v is string else v | tojson }}"
            "{{ '</｜DSML｜parameter>\n' }}{% endfor %}{{ '</｜DSML｜invoke>\n' }}{% endfor %}{{ "
            "'</｜DSML｜tool_calls>' }}");
    static const struct {
        const char *source, *text, *expected;
    } cases[] = {
        {llama, "<function=look>{\"days\": 2}</function>", "C(look)A({\"days\": 2})E(whole)"},
        {llama, "So.\n<function=look>{}</function>\n<function=look_up>{}</function> Done.",
         "T(So.)C(look)A({})E(whole)C(look_up)A({})E(whole)T( Done.)"},
        {llama, "<function=look{\"days\": 2}</function>", "C(look)A({\"days\": 2})E(whole)"},
        {llama, "<function=look></function>", "C(look)A({})E(whole)"},
        {llama, "<function=look>{}", "C(look)A({})E(whole)"},
        {llama, "<function=other>{}</function>", "T(<function=other>{}</function>)"},
        {llama, "So.<|python_tag|>{\"name\": \"look\", \"parameters\": {}}", "T(So.)C(look)A({})E(whole)"},
        {llama, "So: {\"name\": \"look\", \"parameters\": {}}",
         "T(So: {\"name\": \"look\", \"parameters\": {}})"},
        {coder, "<tools>\n{\"name\": \"look\", \"arguments\": {}}\n</tools>", "C(look)A({})E(whole)"},
        {coder, "<tools>\n{\"name\": \"other\", \"arguments\": {}}\n</tools>",
         "T(<tools>\n{\"name\": \"other\", \"arguments\": {}}\n</tools>)"},
        {NULL, "<tools>\n{\"name\": \"look\", \"arguments\": {}}\n</tools>",
         "T(<tools>\n{\"name\": \"look\", \"arguments\": {}}\n</tools>)"},
        {deepseek,
         "So.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"look\">\n<｜DSML｜parameter name=\"days\" "
         "string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke "
         "name=\"look_up\">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
         "T(So.)C(look)A({\"days\": 2})E(whole)C(look_up)A({})E(whole)"},
    };
    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct tool_format *f = format_of(cases[i].source ? cases[i].source : hermes);
        for (size_t step = 0; step < 10; step++) {
            struct buffer out;
            parse_joined(f, false, cases[i].text, strlen(cases[i].text), step, &out);
            if (strcmp(out.data, cases[i].expected) != 0) fail_msg("%s: %s", cases[i].text, out.data);
            buffer_deinit(&out);
        }
        tool_format_free(f);
    }
}

/* Known by an example in the instructions: Llama 3.2 and 4, Gemma 3. */
static void python_of_a_family(void **state)
{
    (void)state;
    check(FORMAT_PYTHON_LIST, "[look(city=\"Z\", days=2)]",
          "C(look)A({\"city\": \"Z\", \"days\": 2})E(whole)");
    check(FORMAT_PYTHON_LIST, "[look(city='it\\'s', note=None), look_up()]",
          "C(look)A({\"city\": \"it's\", \"note\": null})E(whole)C(look_up)A({})E(whole)");
    check(FORMAT_PYTHON_LIST, "<|python_start|>[look(days=2)]<|python_end|>",
          "C(look)A({\"days\": 2})E(whole)");
    check(FORMAT_PYTHON_LIST, "```tool_code\n[look(note=[True])]\n```",
          "C(look)A({\"note\": [true]})E(whole)");
    check(FORMAT_PYTHON_LIST, "Now.\n<|python_start|>[look(days=2)]<|python_end|>",
          "T(Now.)C(look)A({\"days\": 2})E(whole)");
    check(FORMAT_PYTHON_LIST, "[other(a=1)]", "T([other(a=1)])");
    check(FORMAT_PYTHON_LIST, "So: [look(days=2)]", "T(So: [look(days=2)])");
    check(FORMAT_PYTHON_LIST, "[1] says so", "T([1] says so)");
}

static void forgotten_marks(void **state)
{
    (void)state;
#define PARIS "<parameter=city>\nParis\n</parameter>\n"
    check(FORMAT_NESTED, "Now.\n<function=look>\n" PARIS "</function>\n</tool_call>",
          "T(Now.)C(look)A({\"city\": \"Paris\"})E(whole)");
    check(FORMAT_NESTED, "<tool_call>\n<function=look>\n" PARIS "</function>",
          "C(look)A({\"city\": \"Paris\"})E(whole)");
    check(FORMAT_NESTED, "<tool_call>\n<function=look>\n" PARIS, "C(look)A({\"city\": \"Paris\"})E(whole)");
    check(FORMAT_NESTED, "<tool_call>\n<function=look>\n<parameter=city>\nParis\n</function>\n</tool_call>",
          "C(look)A({\"city\": \"Paris\"})E(whole)");
    check(FORMAT_NESTED,
          "<tool_call>\n<function=look>\n<parameter=days>\n3\n</function>\n</tool_call>\n"
          "<tool_call>\n<function=look_up>\n</function>\n</tool_call>",
          "C(look)A({\"days\": 3})E(whole)C(look_up)A({})E(whole)");
    check(FORMAT_NESTED, "It is <function=name>\n<parameter=x>.", "T(It is <function=name>\n<parameter=x>.)");
    /* What only looks like the call's end is a part of the value. */
    check(FORMAT_NESTED,
          "<tool_call>\n<function=look>\n<parameter=city>\na\n</function>\n</tool_call> b\n</parameter>\n"
          "</function>\n</tool_call>",
          "C(look)A({\"city\": \"a\\n</function>\\n</tool_call> b\"})E(whole)");
    check(
        FORMAT_NESTED,
        "<tool_call>\n<function=look>\n<parameter=city>\n<function>\n<parameter>a</parameter>\n</function>\n"
        "</file>\n</parameter>\n</function>\n</tool_call>",
        "C(look)A({\"city\": \"<function>\\n<parameter>a</parameter>\\n</function>\\n</file>\"})E(whole)");
    check(FORMAT_NESTED,
          "<tool_call>\n<function=look>\n" PARIS "</function>\n<function=look>\n" PARIS "</function>",
          "C(look)A({\"city\": \"Paris\"})E(whole)C(look)A({\"city\": \"Paris\"})E(whole)");
    check(FORMAT_NUMBERED, "<call>look:0<arguments>{}</call>", "C(look)A({})E(whole)");
    check(FORMAT_QUOTED, "<|tool>call:look{days:3}", "C(look)A({\"days\": 3})E(whole)");
    check(FORMAT_QUOTED, "<|tool>look{days:3}<tool|>", "C(look)A({\"days\": 3})E(whole)");
    /* A call of a function that is there ends reasoning that was not ended. */
    check_from(FORMAT_JSON, true, "hm\n<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>",
               "R(hm)C(look)A({})E(whole)");
    check_from(FORMAT_JSON, true,
               "hm\n<tool_call>\n{\"name\": \"no\", \"arguments\": {}}\n</tool_call></think>So.",
               "R(hm\n<tool_call>\n{\"name\": \"no\", \"arguments\": {}}\n</tool_call>)T(So.)");
}

/* Schemas and references: a hundred of both are looked at for a parameter, not chains of them for each alternative. */
static void references_are_counted(void **state)
{
    (void)state;
    static const struct {
        const char *alternative;
        int count;
        unsigned types;
    } cases[] = {{"#/$defs/g", 60, LITERAL_STRING}, {"#/$defs/a", 10, LITERAL_STRING}, {"#/$defs/a", 60, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cJSON *function = cJSON_Parse("{\"parameters\":{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/"
                                      "b\"},\"b\":{\"$ref\":\"#/$defs/c\"},\"c\":{\"$ref\":"
                                      "\"#/$defs/d\"},\"d\":{\"$ref\":\"#/$defs/e\"},\"e\":{\"$ref\":\"#/"
                                      "$defs/f\"},\"f\":{\"$ref\":\"#/$defs/g\"},"
                                      "\"g\":{\"type\":\"string\"}}}}");
        cJSON *property = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(property, "anyOf");
        for (int n = 0; n < cases[i].count; n++) {
            cJSON *item = cJSON_CreateObject();
            cJSON_AddStringToObject(item, "$ref", cases[i].alternative);
            cJSON_AddItemToArray(list, item);
        }
        assert_int_equal(tool_schema_types(function, property), cases[i].types);
        cJSON_Delete(property);
        cJSON_Delete(function);
    }
}

static void channels(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "<|channel|>commentary to=functions.look <|constrain|>json<|message|>",
        "<|channel|>commentary to=functions.look <|constrain|>json <|message|>",
        "<|channel|>commentary to=functions.look json<|message|>",
        "<|channel|>commentary to=functions.look code<|message|>",
        "<|channel|>commentary to=functions.look<|message|>",
        "<|channel|>analysis to=functions.look code<|message|>",
        " to=functions.look<|channel|>commentary json<|message|>",
        " to=functions.look<|channel|>commentary <|constrain|>json<|message|>",
        " to=functions.look<|channel|>analysis<|message|>",
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char text[256];
        snprintf(text, sizeof text, "<|channel|>analysis<|message|>hm<|end|><|start|>assistant%s{\"a\": 1}",
                 heads[i]);
        check(FORMAT_CHANNELS, text, "R(hm)C(look)A({\"a\": 1})E(whole)");
    }
    check(FORMAT_CHANNELS,
          "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
          "to=functions.look "
          "<|constrain|>json<|message|>{}",
          "T(I look.)C(look)A({})E(whole)");
    check(FORMAT_CHANNELS, "<|channel|>final <|constrain|>json<|message|>{\"a\": 1}", "T({\"a\": 1})");
    check(FORMAT_CHANNELS, "<|channel|>final and <|message|", "T(<|channel|>final and <|message|)");
}

/* Text that mentions a trigger waits for no more than 64 bytes behind it. */
static void released(void **state)
{
    (void)state;
    static const char text[] = "<tool_call>\n{\"name\": \"";
    cJSON *tools = cJSON_Parse(tools_of_answers);
    for (int i = 0; i < NUM_FORMATS; i++) {
        struct joined j;
        struct tool_parser *p;
        size_t n = 0;
        joined_init(&j);
        assert_int_equal(tool_parser_new(formats[i], tools, false, join, &j, &p), 0);
        assert_int_equal(tool_parser_push(p, text, strlen(text)), 0);
        for (; j.out.num_bytes < strlen("T(") + strlen(text) && n <= 64; n++)
            assert_int_equal(tool_parser_push(p, "x", 1), 0);
        assert_true(n <= 64);
        tool_parser_free(p);
        buffer_deinit(&j.out);
    }
    cJSON_Delete(tools);
}

/* An answer in JSON is no longer held back when a name in it is no tool's. */
static void other_objects_are_released(void **state)
{
    (void)state;
    static const char text[] = "{\"name\": \"lx";
    cJSON *tools = cJSON_Parse(tools_of_answers);
    for (int i = 0; i < NUM_FORMATS; i++) {
        struct joined j;
        struct tool_parser *p;
        joined_init(&j);
        assert_int_equal(tool_parser_new(formats[i], tools, false, join, &j, &p), 0);
        assert_int_equal(tool_parser_push(p, text, strlen(text)), 0);
        assert_int_equal(j.out.num_bytes, strlen("T(") + strlen(text));
        tool_parser_free(p);
        buffer_deinit(&j.out);
    }
    cJSON_Delete(tools);
}

/* More white space than stands around marks is text at once. */
static void spaces_are_released(void **state)
{
    static const char *const texts[] = {"<tool_call>", "<tool_call>```json", "<tool_call>["};
    (void)state;
    cJSON *tools = cJSON_Parse(tools_of_answers);
    for (size_t i = 0; i < array_length(texts); i++) {
        struct joined j;
        struct tool_parser *p;
        joined_init(&j);
        assert_int_equal(tool_parser_new(formats[FORMAT_JSON], tools, false, join, &j, &p), 0);
        assert_int_equal(tool_parser_push(p, texts[i], strlen(texts[i])), 0);
        for (int n = 0; n < 4 * MATCH_SPACES_MAX; n++) assert_int_equal(tool_parser_push(p, "\n", 1), 0);
        if (j.out.num_bytes < 2 * MATCH_SPACES_MAX) fail_msg("%s: %zu bytes", texts[i], j.out.num_bytes);
        tool_parser_free(p);
        buffer_deinit(&j.out);
    }
    cJSON_Delete(tools);
}

/* Every split in two, and bytes that mean nothing. */
static void splits(void **state)
{
    (void)state;
    static const char *const pieces[] = {"<tool_call>",
                                         "\n{\"name\": \"look\", \"arguments\": ",
                                         "{\"a\": 1}",
                                         "}\n</tool_call>",
                                         "<calls>\n<invoke=look>",
                                         "<parameter=city>",
                                         "x\n</parameter>",
                                         "</invoke>",
                                         "</calls>",
                                         "<|run|>[look(",
                                         "city='a'",
                                         ", ",
                                         ")]",
                                         "<think>",
                                         "</think>",
                                         " ",
                                         "\n",
                                         "text",
                                         "[CALL]look[ID]7[ARGS]",
                                         "\"{}\"",
                                         "<begin><call>look:0<arguments>",
                                         "{}</call>",
                                         "<finish>",
                                         "{\"name\": \"look\"",
                                         ", \"arguments\": \"{}\"",
                                         ", \"id\": 1}",
                                         "<calls>[",
                                         "<tool_call>\n<function=look>",
                                         "</function>\n</tool_call>",
                                         "<|tool>call:look{days:",
                                         "True,",
                                         "<|q|>",
                                         "}<tool|>",
                                         "<|channel|>commentary",
                                         " to=functions.look",
                                         "<|message|>",
                                         "<|end|><|start|>assistant",
                                         "\xC3",
                                         "\xA9",
                                         "{",
                                         "}"};
    uint32_t random = 1;
    for (int round = 0; round < 600; round++) {
        char text[512] = "";
        for (int i = 0; i < 12; i++) {
            random = random * 1664525u + 1013904223u;
            strcat(text, pieces[(random >> 8) % (sizeof pieces / sizeof *pieces)]);
        }
        for (int f = 0; f < NUM_FORMATS; f++) {
            struct buffer whole, cut;
            parse_joined(formats[f], round & 1, text, strlen(text), 0, &whole);
            parse_joined(formats[f], round & 1, text, strlen(text), 1 + (size_t)round % 7, &cut);
            assert_string_equal(whole.data, cut.data);
            buffer_deinit(&whole);
            buffer_deinit(&cut);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(derived),
        cmocka_unit_test(calls),
        cmocka_unit_test(parameters),
        cmocka_unit_test(parameters_whose_schemas_refer),
        cmocka_unit_test(marks_in_parameters),
        cmocka_unit_test(reasoning),
        cmocka_unit_test(mentions),
        cmocka_unit_test(broken),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(objects),
        cmocka_unit_test(objects_that_are_no_calls),
        cmocka_unit_test(mended_arguments),
        cmocka_unit_test(parameters_with_odd_names),
        cmocka_unit_test(parameters_of_alternatives),
        cmocka_unit_test(single_quotes),
        cmocka_unit_test(wrapped_objects),
        cmocka_unit_test(other_notations),
        cmocka_unit_test(marks_of_other_versions),
        cmocka_unit_test(objects_alone),
        cmocka_unit_test(marks_of_no_template),
        cmocka_unit_test(python_of_a_family),
        cmocka_unit_test(forgotten_marks),
        cmocka_unit_test(references_are_counted),
        cmocka_unit_test(channels),
        cmocka_unit_test(released),
        cmocka_unit_test(other_objects_are_released),
        cmocka_unit_test(spaces_are_released),
        cmocka_unit_test(splits),
    };
    return cmocka_run_group_tests(tests, derive_all, free_all);
}
