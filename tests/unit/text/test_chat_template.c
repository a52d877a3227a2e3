/* test_chat_template.c - rendering, trust marks, limits and errors. Equality with jinja2 over real templates
 * is tests/golden/compare_templates.py. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <cmocka.h>
#include <cjson/cJSON.h>

#include "base/arena.h"
#include "base/check.h"
#include "base/rng.h"
#include "text/chat_template.h"
#include "text/json_numbers.h"

static const char smollm2[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}"
    "{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

static const char *const trusted_names[] = {"bos_token", "eos_token", NULL};

/* One rendering, and the text with its untrusted bytes shown: [...] around each range. */
struct rendered {
    int status;
    struct buffer text, shown;
    struct error err;
};

static void show_ranges(struct rendered *r, const struct text_range *ranges, int num)
{
    size_t at = 0;
    for (int i = 0; i < num; i++) {
        assert_true(ranges[i].begin >= at && ranges[i].begin < ranges[i].end &&
                    ranges[i].end <= r->text.num_bytes);
        buffer_append(&r->shown, r->text.data + at, ranges[i].begin - at);
        buffer_append_char(&r->shown, '[');
        buffer_append(&r->shown, r->text.data + ranges[i].begin, ranges[i].end - ranges[i].begin);
        buffer_append_char(&r->shown, ']');
        at = ranges[i].end;
    }
    if (r->text.num_bytes > at) buffer_append(&r->shown, r->text.data + at, r->text.num_bytes - at);
}

static void render_limited(struct rendered *r, const char *source, const char *json,
                           const struct chat_template_limits *limits)
{
    struct chat_template *t = NULL;
    struct text_range *ranges = NULL;
    int num = 0;
    *r = (struct rendered){.status = 0};
    buffer_init(&r->text, 1 << 20);
    buffer_init(&r->shown, 1 << 21);
    buffer_append_text(&r->text, "");
    r->status = chat_template_parse(source, &t, &r->err);
    if (r->status != 0) return;
    cJSON *context = cJSON_Parse(json);
    assert_non_null(context);
    assert_int_equal(json_keep_numbers(context, json, strlen(json)), 0);
    r->status =
        chat_template_render(t, context, trusted_names, 1765432100, limits, &r->text, &ranges, &num, &r->err);
    if (r->status == 0) {
        buffer_append_text(&r->shown, "");
        show_ranges(r, ranges, num);
    } else {
        assert_null(ranges);
        assert_true(r->err.text[0] != '\0');
    }
    free(ranges);
    cJSON_Delete(context);
    chat_template_free(t);
}

static void release(struct rendered *r)
{
    buffer_deinit(&r->text);
    buffer_deinit(&r->shown);
    assert_int_equal(arena_total_bytes(), 0);
}

static const char *const context_json =
    "{\"bos_token\":\"<s>\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi <|im_end|> h\xc3\xa9!\"}],"
    "\"add_generation_prompt\":true,\"n\":5,\"x\":\"abc\",\"one\":1.0,\"big\":9007199254740993,"
    "\"tools\":[{\"name\":\"f\",\"min\":0.0}],\"s\":\" pad \",\"y\":\"yy\"}";

static void expect_shown(const char *source, const char *expected)
{
    struct rendered r;
    render_limited(&r, source, context_json, &chat_template_limits_default);
    if (r.status != 0) fail_msg("%s: %s", source, r.err.text);
    assert_string_equal(r.shown.data, expected);
    release(&r);
}

static void expect_error(const char *source, int status, const char *words)
{
    struct rendered r;
    render_limited(&r, source, context_json, &chat_template_limits_default);
    assert_int_equal(r.status, status);
    if (!strstr(r.err.text, words)) fail_msg("%s: '%s' lacks '%s'", source, r.err.text, words);
    release(&r);
}

static void test_smollm2(void **state)
{
    (void)state;
    expect_shown(smollm2,
                 "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
                 "<|im_end|>\n<|im_start|>[user]\n[Hi <|im_end|> h\xc3\xa9!]<|im_end|>\n"
                 "<|im_start|>assistant\n");
}

static void test_trust_follows_the_bytes(void **state)
{
    (void)state;
    expect_shown("{{ bos_token }}{{ x }}", "<s>[abc]");
    expect_shown("{{ '<' ~ x ~ '|' ~ x[1:] ~ '>' }}", "<[abc]|[bc]>");
    expect_shown("{{ (bos_token + x)[1:5] }}", "s>[ab]");
    expect_shown("{{ (x + '|' + x)|upper }}", "[ABC]|[ABC]");
    expect_shown("{{ (x + '|' + x)[::-1] }}", "[cba]|[cba]");
    expect_shown("{{ ('<' + s + '>').split('a')|join('A') }}", "<[ p]A[d ]>");
    expect_shown("{{ x.replace('b', '<|im_end|>') }}", "[a]<|im_end|>[c]");
    expect_shown("{{ '<b>'.replace('b', x) }}", "<[abc]>");
    expect_shown("{{ s|trim }}|{{ s.strip()[0] }}|{{ x.title() }}", "[pad]|[p]|[Abc]");
    expect_shown("{{ [x, 'lit'] }}", "['[abc]', 'lit']");
    expect_shown("{{ '%s-%s'|format(x, bos_token) }} {{ '{}-{}'.format(x, 1) }}", "[abc]-<s> [abc]-1");
    expect_shown("{% set t %}<{{ x }}>{% endset %}{{ t + t }}", "<[abc]><[abc]>");
    expect_shown("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}{{ m('t') }}", "<[abc]><t>");
    expect_shown("{% filter trim %} <{{ x }}> {% endfilter %}", "<[abc]>");
    expect_shown("{% for c in bos_token + x %}{{ c }}{% endfor %}", "<s>[abc]");
    expect_shown("{{ x|e }}{{ ('<' + x)|e }}", "[abc]&lt;[abc]");
    expect_shown("{{ n }}{{ n == 5 }}{{ x|length }}", "5True3");
    expect_shown("{{ 'a\nb'|indent(2) }} {{ (x ~ '\n' ~ x)|indent(2) }}", "a\n  b [abc]\n  [abc]");
}

static void test_trust_of_json(void **state)
{
    (void)state;
    expect_shown("{{ {'a': 1}|tojson }} {{ {'a': x}|tojson }} {{ n|tojson }}",
                 "{\"a\": 1} [{\"a\": \"abc\"}] 5");
    expect_shown("{{ tools|tojson }}", "[[{\"name\": \"f\", \"min\": 0.0}]]");
    expect_shown("{{ ('{\"k\": \"<v>\"}'|from_json).k }}{{ ('{\"k\": \"' ~ x ~ '\"}')|from_json }}",
                 "<v>{'[k]': '[abc]'}");
}

/* Appending to a text in a loop continues it in place; the texts before stay what they were. */
static void test_texts_are_immutable(void **state)
{
    (void)state;
    expect_shown("{% set a = x + '1' %}{% set b = a + '2' %}{% set c = a + y %}{% set d = b + x %}"
                 "{{ a }} {{ b }} {{ c }} {{ d }} {{ a + a }} {{ b[2:] }}",
                 "[abc]1 [abc]12 [abc]1[yy] [abc]12[abc] [abc]1[abc]1 [c]12");
    expect_shown("{% set ns = namespace(t='') %}{% for i in range(4) %}{% set ns.t = ns.t + x[i:i+1] %}"
                 "{{ ns.t }};{% endfor %}{% set u = ns.t + 'z' %}{{ ns.t }}{{ u }}",
                 "[a];[ab];[abc];[abc];[abcabc]z");
    expect_shown(
        "{% set a = x ~ 1 %}{% set b = a ~ 2 %}{% set c = a ~ y %}{% set d = b ~ x %}"
        "{{ a }} {{ b }} {{ c }} {{ d }} {{ a ~ a }} {{ b[2:] }} {{ a ~ none ~ [x] ~ (x|safe ~ '<')|e }}",
        "[abc]1 [abc]12 [abc]1[yy] [abc]12[abc] [abc]1[abc]1 [c]12 [abc]1None['[abc]'][abc]&lt;");
}

/* With either operator: 20,000 texts of 50 letters, which copies of what was there would make 10 GB of. */
static void test_a_text_grows_without_copies(void **state)
{
    (void)state;
    expect_shown("{% set ns = namespace(a='', b='', t=x*0 + 'x'*50) %}{% for i in range(20000) %}"
                 "{% set ns.a = ns.a + ns.t %}{% set ns.b = ns.b ~ ns.t %}{% endfor %}"
                 "{{ ns.a|length }} {{ ns.a == ns.b }}",
                 "1000000 True");
}

static void test_numbers_keep_their_form(void **state)
{
    (void)state;
    expect_shown("{{ one }} {{ big }} {{ n }} {{ one + 1 }} {{ big + 1 }}",
                 "1.0 9007199254740993 5 2.0 9007199254740994");
    cJSON *tree = cJSON_Parse("{\"a\":[1.0,\"2.0 \\\" 3\",-4e2],\"b\":7}");
    assert_int_equal(json_keep_numbers(tree, "{\"a\":[1.0,\"2.0 \\\" 3\",-4e2],\"b\":7}", 33), 0);
    cJSON *copy = cJSON_Duplicate(tree, true), *a = cJSON_GetObjectItemCaseSensitive(copy, "a");
    assert_string_equal(cJSON_GetArrayItem(a, 0)->valuestring, "1.0");
    assert_string_equal(cJSON_GetArrayItem(a, 2)->valuestring, "-4e2");
    assert_null(cJSON_GetObjectItemCaseSensitive(copy, "b")->valuestring);
    cJSON_Delete(copy);
    cJSON_Delete(tree);
}

static void test_appends_behind_what_is_there(void **state)
{
    (void)state;
    struct chat_template *t;
    struct text_range *ranges;
    struct buffer out;
    struct error err;
    int num;
    buffer_init(&out, 100);
    buffer_append_text(&out, "before ");
    cJSON *context = cJSON_Parse("{\"x\":\"abc\"}");
    assert_int_equal(chat_template_parse("<{{ x }}>", &t, &err), 0);
    assert_int_equal(chat_template_render(t, context, trusted_names, 0, &chat_template_limits_default, &out,
                                          &ranges, &num, &err),
                     0);
    assert_string_equal(out.data, "before <abc>");
    assert_int_equal(num, 1);
    assert_int_equal(ranges[0].begin, 8);
    assert_int_equal(ranges[0].end, 11);
    free(ranges);
    chat_template_free(t);
    cJSON_Delete(context);
    buffer_deinit(&out);
}

static void test_errors(void **state)
{
    (void)state;
    expect_error("{{ raise_exception('Only ' + messages[0].role) }}", STATUS_TEMPLATE, "Only user");
    expect_error("{{ raise_exception(nope) }}", STATUS_TEMPLATE, "without saying why");
    expect_error("{{ raise_exception('\\x00') }}", STATUS_TEMPLATE, "without saying why");
    expect_error("a\n\n{{ nope.x }}", STATUS_TEMPLATE, "line 3: 'nope' is undefined");
    expect_error("{{ messages[0].x.y }}", STATUS_TEMPLATE, "'dict object' has no attribute 'x'");
    expect_error("{{ 1 / 0 }}", STATUS_TEMPLATE, "division by zero");
    expect_error("{{ x.nope() }}", STATUS_TEMPLATE, "'str object' has no attribute 'nope'");
    expect_error("{{ 'a' + 1 }}", STATUS_TEMPLATE, "unsupported operand");
    expect_error("\n{{ x|nope }}", STATUS_INVALID, "line 2: no filter named 'nope'");
    expect_error("{% if x %}", STATUS_INVALID, "line 1: expected a tag 'elif'");
    expect_error("{% nope %}", STATUS_INVALID, "unknown or unsupported tag near 'nope'");
    expect_error("{{ 'a }}", STATUS_INVALID, "a string does not end");
    expect_error("{# a", STATUS_INVALID, "missing end of comment");
    expect_error("{{ (1] }}", STATUS_INVALID, "a bracket does not match");
}

static void expect_limit(const char *source, struct chat_template_limits limits)
{
    struct rendered r;
    render_limited(&r, source, context_json, &limits);
    if (r.status != STATUS_LIMIT) fail_msg("%s: %d %s", source, r.status, r.err.text);
    release(&r);
}

static void test_limits(void **state)
{
    (void)state;
    struct chat_template_limits few = chat_template_limits_default, brief = few, small = few, shallow = few,
                                lean = few;
    const char *forever = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}";
    few.num_steps = 1000;
    expect_limit(forever, few);
    brief.num_steps = 300000;
    expect_limit(forever, brief);
    expect_limit("{% set l = [1] %}{% for i in l %}{% set _ = l.append(i) %}{% endfor %}", few);
    /* two lists that hold lists that hold lists, two each: 2^300 comparisons, none of them a node of its own
     */
    expect_limit("{% set ns = namespace(a=[], b=[]) %}{% for i in range(300) %}{% set ns.a = [ns.a, ns.a] %}"
                 "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
                 chat_template_limits_default);
    expect_limit("{% set l = range(90000)|list %}{% for i in l %}{{ -1 in l }}{% endfor %}", brief);
    small.output_bytes = 1000;
    expect_limit("{% for i in range(1000) %}xx{% endfor %}", small);
    expect_limit("{{ 'x' * 1001 }}", small);
    expect_limit("{% for i in range(1001) %}x{% endfor %}", small);
    expect_limit("{{ '%9999d' % 1 }}", small);
    shallow.depth = 50;
    expect_limit("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", shallow);
    expect_limit("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}", shallow);
    expect_limit("{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}", shallow);
    lean.memory_bytes = 100000;
    expect_limit("{% set l = [] %}{% for i in range(9999) %}{% set _ = l.append([i, i, i]) %}{% endfor %}",
                 lean);
    expect_limit("{% set x = 'abcdefgh' * 1000 %}{% set y = [x + 'a', x + 'b', x + 'c'] * 10000 %}", lean);
}

/* The deepest recursion that the limits allow fits in an ordinary stack, also with the sanitizers. */
static void test_depth_is_safe(void **state)
{
    (void)state;
    expect_limit("{% macro m(a) %}{% if a %}{% for i in [1] %}{{ [m(a)|trim|string] ~ (m(a) if a else 1) "
                 "}}{% endfor %}"
                 "{% endif %}{% endmacro %}{{ m(1) }}",
                 chat_template_limits_default);
    struct buffer deep;
    buffer_init(&deep, 1 << 20);
    buffer_append_text(&deep, "{{ ");
    for (int i = 0; i < 5000; i++) buffer_append_text(&deep, "not ");
    buffer_append_text(&deep, "x }}");
    expect_error(deep.data, STATUS_INVALID, "nested deeper");
    buffer_clear(&deep);
    buffer_append_text(&deep, "{{ f(");
    for (int i = 0; i < 200; i++) buffer_append_text(&deep, "not ");
    buffer_append_text(&deep, "x) }}");
    expect_error(deep.data, STATUS_INVALID, "nested deeper");
    buffer_clear(&deep);
    for (int i = 0; i < 5000; i++) buffer_append_text(&deep, "{% if x %}");
    expect_error(deep.data, STATUS_INVALID, "nested deeper");
    buffer_clear(&deep);
    buffer_append_text(&deep, "{{ x");
    for (int i = 0; i < 5000; i++) buffer_append_text(&deep, "|trim");
    buffer_append_text(&deep, "}}");
    expect_error(deep.data, STATUS_LIMIT, "nested too deeply");
    buffer_deinit(&deep);
}

/* Whichever allocation is the one that fails: a status, nothing lost, and either the whole text or none. */
static void test_every_allocation_fails(void **state)
{
    (void)state;
    const char *source =
        "{% macro m(a, b=1) %}{{ a|upper|tojson }}{{ varargs }}{% endmacro %}{% set ns = namespace(t='') %}"
        "{% for m in messages %}{% set ns.t = ns.t + m.content %}{{ m|dictsort }}{{ loop.index }}{% endfor %}"
        "{{ m(x, 2, y) }}{{ (x ~ y)[::-1].split('c')|map('title')|join('-') }}{{ '%s %d' % (x, n) }}{{ ns }}"
        "{{ '{} {a}'.format(x, a=tools) }}{{ x|replace('b', 'BB')|indent(2) }}{{ '[1, {\"a\": 2}]'|from_json "
        "}}";
    struct rendered whole, r;
    struct chat_template_limits limits = chat_template_limits_default;
    render_limited(&whole, source, context_json, &limits);
    assert_int_equal(whole.status, 0);
    bool succeeded = false;
    for (limits.memory_bytes = 0; !succeeded; limits.memory_bytes += 16) {
        render_limited(&r, source, context_json, &limits);
        succeeded = r.status == 0;
        if (!succeeded) assert_int_equal(r.status, STATUS_LIMIT);
        assert_string_equal(r.text.data, succeeded ? whole.text.data : "");
        release(&r);
        assert_true(limits.memory_bytes < 100000);
    }
    release(&whole);
}

static void expect_parts(const char *source, bool expected)
{
    struct chat_template *t;
    struct error err;
    assert_int_equal(chat_template_parse(source, &t, &err), 0);
    if (chat_template_wants_parts(t) != expected) fail_msg("wants_parts of %s", source);
    chat_template_free(t);
}

static void test_wants_parts(void **state)
{
    (void)state;
    expect_parts(smollm2, false);
    expect_parts("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% endif %}{% endfor %}",
                 false);
    expect_parts("{% for m in messages %}{% for l in m.content.split('x') %}{% endfor %}{% endfor %}", false);
    expect_parts("{% for m in messages %}{% for p in m['content'] %}{{ p.text }}{% endfor %}{% endfor %}",
                 true);
    expect_parts("{% set ms = messages[1:] %}{% for m in ms|list %}{% set c = m.get('content') or [] %}"
                 "{% for p in c %}{% endfor %}{% endfor %}",
                 true);
    expect_parts("{% macro r(c) %}{% for p in c %}{% endfor %}{% endmacro %}"
                 "{% for m in messages %}{{ r(m.content) }}{% endfor %}",
                 true);
    expect_parts("{% macro r(c) %}{% for p in c %}{% endfor %}{% endmacro %}{{ r(c=messages[0].content) }}",
                 true);
    expect_parts("{% for t in tools %}{% for p in t.content %}{% endfor %}{% endfor %}", false);
}

/* Of both kinds: some know lists in the user's messages alone, and print others as lists. */
static void test_strings_are_preferred(void **state)
{
    (void)state;
#define BOTH                                                                                                 \
    "{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor "    \
    "%}{% endif %}"
    expect_parts("{% for m in messages %}" BOTH "{% endfor %}", false);
    expect_parts("{{ messages[0].content | trim }}{% for m in messages[1:] %}" BOTH "{% endfor %}", false);
    expect_parts("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
                 "{% for m in messages %}" BOTH "{% endfor %}",
                 false);
    expect_parts("{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no') }}{% endif %}" BOTH
                 "{% endfor %}",
                 false);
    expect_parts(
        "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}{{ p.text }}{% endfor %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}",
        true);
    expect_parts(
        "{% for m in messages %}{% if m.role == 'tool' %}{% for p in m.content %}{{ p.text }}{% endfor %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}",
        true);
    expect_parts("{% for m in messages %}" BOTH "{% endfor %}{{ raise_exception('no') }}", true);
}

/* Broken and shuffled templates: any status will do, but no crash, no leak, and ranges that are in order. */
static void test_mutated_templates(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        smollm2,
        "{%- macro m(a, b=[1, 'x'], *c) -%}{{ a|tojson(indent=2) }}{%- endmacro -%}{{ m({'k': messages}) }}",
        "{% for m in messages[::-1] %}{% set ns = namespace(a=1) %}{% set ns.a = ns.a + loop.index0 %}"
        "{{ '%5.2f|%s' % (ns.a, m.content) }}{{ '{:>9}{x!r}'.format(m.role, x=m) }}{% endfor %}",
        "{% set x %}{{ x.split('b', 1)|map('upper')|join('-') }}{% endset %}{{ x[-2:] ~ tools|length // 2 ** "
        "3 }}",
        "{{ messages|selectattr('role', 'eq', "
        "'user')|map(attribute='content')|sort(reverse=true)|unique|list }}",
    };
    static const char *const pieces[] = {
        "{{", "}}",   "{%",   "%}",   "-", "'",        "|",           ".", "(", ")", "[", "]",    "{#",
        "#}", " in ", " if ", "loop", "x", "messages", "99999999999", "*", "~", ":", "%", "\xff", "\n"};
    struct buffer source;
    buffer_init(&source, 1 << 16);
    struct chat_template_limits limits = {200000, 1 << 16, 100, 1 << 22};
    for (uint64_t i = 0; i < 20000; i++) {
        const char *seed = seeds[i % array_length(seeds)];
        size_t n = strlen(seed), at = 0;
        buffer_clear(&source);
        for (int k = 0; k < 4; k++) {
            struct rng_block random = rng_philox(1, i, (uint64_t)k);
            size_t cut = at + random.word[0] % (n - at + 1), skip = random.word[1] % 8;
            buffer_append(&source, seed + at, cut - at);
            buffer_append_text(&source, pieces[random.word[2] % array_length(pieces)]);
            at = min_of(cut + (random.word[3] % 2 ? skip : 0), n);
        }
        buffer_append(&source, seed + at, n - at);
        struct rendered r;
        render_limited(&r, source.data, context_json, &limits);
        release(&r);
    }
    buffer_deinit(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_smollm2),
        cmocka_unit_test(test_trust_follows_the_bytes),
        cmocka_unit_test(test_trust_of_json),
        cmocka_unit_test(test_texts_are_immutable),
        cmocka_unit_test(test_numbers_keep_their_form),
        cmocka_unit_test(test_appends_behind_what_is_there),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_a_text_grows_without_copies),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_depth_is_safe),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_wants_parts),
        cmocka_unit_test(test_strings_are_preferred),
        cmocka_unit_test(test_mutated_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
