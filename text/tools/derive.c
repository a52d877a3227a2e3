/* derive.c - from renderings of marked words to a format. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tools/format.h"
#include "text/tools/match.h"
#include "text/tools/probe.h"
#include "text/tools/slice.h"
#include "text/tools/verify.h"

#define VALUE_1 "va1ue"
#define VALUE_2 "va2ue"
#define ARGUMENTS "{\"key_one\": \"va1ue\", \"key_two\": \"va2ue\"}"
#define ARGUMENTS_OF_NUMBERS "{\"key_one\": 17171, \"key_two\": 18181}"
#define ARGUMENTS_OF_BOOLEANS "{\"key_one\": true}"

struct derivation {
    struct probe probe;
    struct buffer scratch;
    struct arena arena; /* of the renderings */
    struct tool_format *format;
    bool failed;         /* no memory */
    bool shows_content;  /* beside calls */
    const char *content; /* what answers with calls say beside them; NULL: nothing */
};

static const char *keep(struct derivation *d, struct slice s)
{
    char *copy = s.n > TOOL_LITERAL_MAX ? NULL : arena_copy(&d->format->arena, s.bytes, s.n);
    if (!copy) d->failed = true;
    return copy ? copy : "";
}

/* The same for what stands around an answer, which may be long. */
static const char *keep_turn(struct derivation *d, struct slice s)
{
    char *copy = arena_copy(&d->format->arena, s.bytes, s.n);
    if (!copy) d->failed = true;
    return copy ? copy : "";
}

/* ---- renderings ---- */

static void replace_all(char *text, const char *word, char slot)
{
    size_t n = strlen(word);
    for (char *at = text; (at = strstr(at, word));) {
        *at = slot;
        memmove(at + 1, at + n, strlen(at + n) + 1);
    }
}

/* What is rendered behind the question, ids as slots; "" when the template refuses. */
static const char *rendering(struct derivation *d, const struct probe_answer *answer)
{
    if (!probe_render(&d->probe, answer, &d->scratch)) return "";
    char *text = arena_copy(&d->arena, d->scratch.data, d->scratch.num_bytes);
    if (!text) {
        d->failed = true;
        return "";
    }
    replace_all(text, PROBE_ID_1, SLOT_ID);
    replace_all(text, PROBE_ID_2, SLOT_ID);
    return text;
}

/* Behind the word, NULL when it is not there (or text is NULL). */
static const char *behind(const char *text, const char *word)
{
    const char *found = text ? strstr(text, word) : NULL;
    return found ? found + strlen(word) : NULL;
}

/* ---- the turn and its reasoning ---- */

struct turn {
    struct slice header, lead; /* between the question and the content: the turn's, the answer's */
    struct slice end;
    struct slice prompt_rest; /* what the prompt has behind the header */
};

static bool read_turn(struct derivation *d, struct turn *t)
{
    const char *prompt = rendering(d, NULL);
    const char *plain = rendering(d, &(struct probe_answer){.content = PROBE_CONTENT});
    const char *content = strstr(plain, PROBE_CONTENT);
    if (!content) return false;
    struct slice before = slice_of(plain, content);
    size_t n = slice_common_begin(before, slice_text(prompt)), of_prompt = n;
    if (slice_strip(slice_text(prompt + n)).n > 0)
        n = slice_common_begin_loosely(before, slice_text(prompt), &of_prompt);
    t->prompt_rest = slice_strip(slice_text(prompt + of_prompt));
    if (slice_strip(slice_from(before, n)).n == 0)
        n = before.n; /* white space that the answer does not say */
    t->header = (struct slice){plain, n};
    t->lead = slice_strip(slice_from(before, n));
    t->end = slice_text(content + strlen(PROBE_CONTENT));
    return true;
}

/* "</x>" and "[/x]": the mark that it closes is the end of the text; its length, 0 if not. */
static size_t opening_mark(struct slice text, struct slice close)
{
    text = slice_strip(text);
    if (close.n < 3 || close.bytes[1] != '/' || text.n < close.n - 1) return 0;
    const char *mark = text.bytes + text.n - (close.n - 1);
    return mark[0] == close.bytes[0] && !memcmp(mark + 1, close.bytes + 2, close.n - 2) ? close.n - 1 : 0;
}

#define MARK_OPENS "<|open|>"
#define MARK_CLOSES "<|close|>"
enum { MARK_OPENS_BYTES = sizeof MARK_OPENS - 1, MARK_CLOSES_BYTES = sizeof MARK_CLOSES - 1 };

/* "<|close|>x<|sep|>": likewise; close is cut to its mark. */
static size_t opening_word(struct slice text, struct slice *close)
{
    if (!slice_begins(*close, slice_text(MARK_CLOSES))) return 0;
    struct slice name = slice_from(*close, MARK_CLOSES_BYTES);
    text = slice_strip(text);
    for (size_t n = 0; n + MARK_OPENS_BYTES <= text.n && n <= name.n; n++) {
        struct slice mark = slice_from(text, text.n - n - MARK_OPENS_BYTES);
        if (!slice_begins(mark, slice_text(MARK_OPENS))) continue;
        if (!slice_begins(name, slice_from(mark, MARK_OPENS_BYTES))) return 0;
        close->n = MARK_CLOSES_BYTES + n;
        return mark.n;
    }
    return 0;
}

/* What stands behind reasoning's end is the content's mark, which the turn's end may begin with the end of. */
static void read_content_marks(struct derivation *d, struct turn *t, struct slice open)
{
    struct slice close = t->end;
    size_t n = opening_word(open, &close);
    d->format->content_open = keep(d, open);
    if (n == 0) return;
    d->format->content_close = keep(d, close);
    t->end = slice_from(t->end, close.n);
}

static void read_reasoning_marks(struct derivation *d, struct turn *t, const char *text)
{
    struct tool_format *f = d->format;
    const char *content = strstr(text, PROBE_CONTENT), *reasoning = strstr(text, PROBE_REASONING);
    if (!content || !reasoning || reasoning > content) return;
    struct slice before = slice_of(text, reasoning);
    struct slice open = slice_strip(slice_from(before, slice_common_begin(before, t->header)));
    struct slice close = slice_strip(slice_of(reasoning + strlen(PROBE_REASONING), content));
    if (t->lead.n > 0 && t->lead.n < close.n && slice_ends(close, t->lead)) {
        f->content_open = keep(d, t->lead);
        close = slice_strip(slice_without_end(close, t->lead.n));
    }
    if (open.n == 0) open = t->prompt_rest;
    struct slice all = close;
    size_t n = opening_mark(t->header, close);
    if (n == 0) n = opening_word(t->header, &close);
    if (close.n < all.n) read_content_marks(d, t, slice_strip(slice_from(all, close.n)));
    if (open.n == 0 && n > 0) {
        struct slice header = slice_strip(t->header);
        open = slice_from(header, header.n - n);
        t->header.n = (size_t)(open.bytes - t->header.bytes);
    }
    if (open.n == 0 || close.n == 0) return;
    f->think_open = keep(d, open);
    f->think_close = keep(d, close);
}

/* A template that only takes such marks out of earlier answers. */
static void find_known_marks(struct derivation *d)
{
    static const char *const marks[][2] = {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}};
    const char *source = chat_template_source(d->probe.template);
    for (size_t i = 0; i < sizeof marks / sizeof *marks && !*d->format->think_close; i++) {
        if (!strstr(source, marks[i][1])) continue;
        d->format->think_open = marks[i][0];
        d->format->think_close = marks[i][1];
    }
}

static bool read_reasoning(struct derivation *d, struct turn *t)
{
    const struct probe_answer answer = {.content = PROBE_CONTENT, .reasoning = PROBE_REASONING};
    struct tool_format *f = d->format;
    for (int thinks = 0; thinks < 2 && !*f->think_close; thinks++) {
        d->probe.thinks = thinks;
        if (read_turn(d, t)) read_reasoning_marks(d, t, rendering(d, &answer));
    }
    d->probe.thinks = *f->think_close && d->probe.thinks;
    if (!*f->think_close) find_known_marks(d);
    if (!*f->think_close && !read_turn(d, t)) return false;
    bool is_mark = t->lead.n > 0 && !slice_holds(t->lead, "think");
    if (!*f->content_open && is_mark && !slice_equal(t->lead, slice_text(f->think_close)))
        f->content_open = keep(d, t->lead);
    f->header = keep_turn(d, t->header);
    f->answer_end = keep_turn(d, t->end);
    return true;
}

/* ---- how arguments are written ---- */

/* The end of a JSON value that begins at text; NULL when it is none. */
static const char *json_end(const char *text)
{
    const char *end = NULL;
    cJSON *value = cJSON_ParseWithOpts(text, &end, false);
    cJSON_Delete(value);
    return value ? end : NULL;
}

/* The place of arguments behind a name; false when they are not JSON. Indented JSON begins with white space
 * behind its bracket. */
static bool find_json(const char *name_end, struct slice *arguments, enum argument_notation *notation)
{
    const char *key = strstr(name_end, PROBE_KEY_1);
    if (!key || key - name_end < 2 || key[-1] != '"') return false;
    bool is_string = key[-2] == '\\';
    const char *begin = key - (is_string ? 2 : 1);
    while (begin > name_end && match_is_space(begin[-1])) begin--;
    if (begin == name_end || *--begin != '{') return false;
    if (is_string && (begin == name_end || *--begin != '"')) return false;
    const char *end = json_end(begin);
    if (!end) return false;
    *arguments = slice_of(begin, end);
    *notation = is_string ? ARGUMENTS_JSON_STRING : ARGUMENTS_JSON;
    return true;
}

/* Content that stands in a turn of its own, in front of that with the calls. */
static bool ends_turn_behind_content(const struct derivation *d, const char *text, const char *name)
{
    struct slice end = slice_strip(slice_text(d->format->answer_end));
    const char *content = behind(text, PROBE_CONTENT);
    return content && content < name && end.n > 0 &&
           memmem(content, (size_t)(name - content), end.bytes, end.n);
}

/* A rendering with one call that shows name and arguments; "" when the template refuses. */
static const char *render_call(struct derivation *d, const char *arguments)
{
    const struct probe_answer answer = {.content = d->content, .arguments = {arguments}};
    const char *text = rendering(d, &answer), *name = behind(text, PROBE_NAME_1);
    if (!behind(name, PROBE_KEY_1) || ends_turn_behind_content(d, text, name)) return "";
    if (strstr(name, PROBE_CONTENT)) return ""; /* content behind the calls would look like their end */
    if (strstr(text, PROBE_CONTENT)) d->shows_content = true;
    return text;
}

/* Tries what an answer with calls may say beside them, and both ways to hand arguments over. */
static const char *find_call(struct derivation *d)
{
    static const char *const contents[] = {PROBE_CONTENT, "", NULL};
    const char *found = "";
    for (int are_text = 0; are_text < 2; are_text++) {
        for (int i = 0; i < 3; i++) {
            const char *content = d->content;
            bool were_text = d->probe.arguments_are_text;
            d->probe.arguments_are_text = are_text;
            d->content = contents[i];
            const char *text = render_call(d, ARGUMENTS), *name = behind(text, PROBE_NAME_1);
            struct slice place;
            enum argument_notation notation;
            bool is_json = name && find_json(name, &place, &notation);
            bool is_printed = name && strstr(name, "'" PROBE_KEY_1 "'");
            /* As text it must be better than what was there. */
            if (name && !is_printed &&
                (!*found || (are_text && is_json && !strstr(found, "\"" PROBE_KEY_1)))) {
                if (!are_text || is_json) return text;
            }
            d->content = content;
            d->probe.arguments_are_text = were_text;
        }
    }
    return found;
}

/* The parts of a call's notation that stand around its values. */
struct parameters {
    struct slice before_key, before_value, between, behind;
};

static bool read_parameters(const char *name_end, const char *value_1, const char *value_2,
                            struct parameters *out)
{
    const char *key_1 = strstr(name_end, PROBE_KEY_1), *begin_1 = behind(key_1, PROBE_KEY_1);
    const char *at_1 = begin_1 ? strstr(begin_1, value_1) : NULL, *end_1 = behind(at_1, value_1);
    const char *key_2 = end_1 ? strstr(end_1, PROBE_KEY_2) : NULL, *begin_2 = behind(key_2, PROBE_KEY_2);
    const char *at_2 = begin_2 ? strstr(begin_2, value_2) : NULL, *end_2 = behind(at_2, value_2);
    if (!end_2) return false;
    *out = (struct parameters){slice_of(name_end, key_1), slice_of(begin_1, at_1), slice_of(end_1, key_2),
                               slice_text(end_2)};
    return true;
}

/* What strings stand in and other values do not. */
static bool read_quote(struct derivation *d, struct parameters *strings, const struct parameters *numbers)
{
    struct tool_format *f = d->format;
    f->values = VALUES_RAW;
    if (!slice_begins(strings->before_value, numbers->before_value)) return true;
    struct slice quote = slice_from(strings->before_value, numbers->before_value.n);
    if (quote.n == 0) return true;
    if (!slice_begins(strings->between, quote) || !slice_begins(strings->behind, quote)) return false;
    f->values = VALUES_LITERAL;
    f->quote = quote.n > 1 ? keep(d, quote) : "";
    strings->before_value = numbers->before_value;
    strings->between = slice_from(strings->between, quote.n);
    strings->behind = slice_from(strings->behind, quote.n);
    return true;
}

/* What stands behind the key of a value that is no string: where strings have their type's name, any may stand. */
static const char *keep_key_end(struct derivation *d, struct slice of_string, struct slice of_number)
{
    static const char string[] = "string", number[] = "number";
    enum { WORD_BYTES = sizeof string - 1 };
    const char *word = memmem(of_string.bytes, of_string.n, string, WORD_BYTES);
    size_t at = word ? (size_t)(word - of_string.bytes) : 0;
    bool names_type =
        word && of_string.n == of_number.n && !memcmp(of_string.bytes, of_number.bytes, at) &&
        !memcmp(of_number.bytes + at, number, WORD_BYTES) &&
        slice_equal(slice_from(of_string, at + WORD_BYTES), slice_from(of_number, at + WORD_BYTES));
    const char *text = keep(d, of_number);
    if (!names_type || !*text) return text;
    char *slot = (char *)text + at;
    *slot = SLOT_TYPE;
    memmove(slot + 1, slot + WORD_BYTES, strlen(slot + WORD_BYTES) + 1);
    return text;
}

/* On success rest is what stands behind the last parameter. */
static bool read_tagged(struct derivation *d, const char *text, struct slice *rest)
{
    struct tool_format *f = d->format;
    struct parameters strings, numbers;
    const char *name = behind(text, PROBE_NAME_1);
    const char *other = behind(render_call(d, ARGUMENTS_OF_NUMBERS), PROBE_NAME_1);
    if (!name || !other || !read_parameters(name, VALUE_1, VALUE_2, &strings) ||
        !read_parameters(other, "17171", "18181", &numbers) || !read_quote(d, &strings, &numbers))
        return false;
    size_t end = f->values == VALUES_RAW ? slice_common_begin(strings.between, strings.behind) : 0;
    struct slice between = slice_from(strings.between, end);
    size_t begin = min_of(slice_common_end(strings.before_key, between), between.n);
    struct slice separator = slice_strip(slice_without_end(between, begin));
    f->notation = ARGUMENTS_TAGGED;
    f->value_end = keep(d, (struct slice){strings.between.bytes, end});
    f->key_begin = keep(d, slice_strip(slice_from(between, between.n - begin)));
    f->parameter_separator = keep(d, separator);
    f->name_end = keep(d, slice_strip(slice_without_end(strings.before_key, begin)));
    f->key_end[FOR_STRING] = keep(d, strings.before_value);
    f->key_end[FOR_OTHER] = keep_key_end(d, strings.before_value, numbers.before_value);
    f->is_python = strstr(render_call(d, ARGUMENTS_OF_BOOLEANS), "True");
    *rest = slice_from(strings.behind, end);
    return f->values == VALUES_LITERAL || slice_strip(slice_text(f->value_end)).n > 0;
}

/* ---- what stands around calls ---- */

/* Without what ends the turn: what ends an answer without calls, and control tokens that only end. */
static struct slice without_turn_end(const struct derivation *d, struct slice s)
{
    static const char *const ends[] = {"<|eom_id|>", "<|eot_id|>",     "<|call|>", "<|calls|>",
                                       "<|end|>",    "<|im_end|>",     "</s>",     "<|return|>",
                                       "<eos>",      "<|end_of_text|>"};
    size_t n = slice_common_end(s, slice_text(d->format->answer_end));
    s = slice_without_end(s, n);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct slice end = slice_text(ends[i]), stripped = slice_strip(s);
        if (slice_ends(stripped, end)) s = slice_of(s.bytes, stripped.bytes + stripped.n - end.n);
    }
    return s;
}

/* A call's place in a rendering. */
struct place {
    struct slice before; /* from the end of the call before it, or of the content */
    const char *name_end, *arguments_end;
};

static const char *arguments_end(const struct derivation *d, const char *name_end)
{
    const struct tool_format *f = d->format;
    struct slice json;
    enum argument_notation notation;
    if (f->notation != ARGUMENTS_TAGGED)
        return find_json(name_end, &json, &notation) ? json.bytes + json.n : NULL;
    const char *end = behind(name_end, VALUE_2);
    if (f->values == VALUES_LITERAL && end) end += *f->quote ? strlen(f->quote) : 1;
    return end && slice_begins(slice_text(end), slice_text(f->value_end)) ? end + strlen(f->value_end) : NULL;
}

/* Where the first call's text begins: behind the content, or behind the header and empty reasoning. */
static const char *section_start(const struct derivation *d, const char *text, const char *name)
{
    const struct tool_format *f = d->format;
    const char *content = behind(text, PROBE_CONTENT);
    if (content && content < name) return content;
    size_t of_header;
    const char *begin =
        text + slice_common_begin_loosely(slice_of(text, name), slice_text(f->header), &of_header);
    const char *close = *f->think_close ? behind(begin, f->think_close) : NULL;
    if (close && close <= name) begin = close;
    return slice_begins(slice_of(begin, name), slice_text(f->content_open)) ? begin + strlen(f->content_open)
                                                                            : begin;
}

static bool read_place(const struct derivation *d, const char *from, const char *word, struct place *out)
{
    const char *name = strstr(from, word);
    if (!name) return false;
    out->before = slice_of(from, name);
    out->name_end = name + strlen(word);
    out->arguments_end = arguments_end(d, out->name_end);
    return out->arguments_end;
}

/* Numbers that run: 0 in one text where the other has 1, or 1 where it has 2. */
static void replace_index(struct slice first, struct slice second, bool from_end)
{
    for (size_t i = 0; i < first.n && i < second.n; i++) {
        char *a = (char *)first.bytes + (from_end ? first.n - 1 - i : i);
        char *b = (char *)second.bytes + (from_end ? second.n - 1 - i : i);
        if ((*a == '0' || *a == '1') && *b == *a + 1) *a = *b = SLOT_INDEX;
        if (*a != *b) return;
    }
}

static bool read_two_calls(struct derivation *d, struct place places[2], struct slice *end)
{
    const struct probe_answer answer = {.content = d->content, .arguments = {ARGUMENTS, ARGUMENTS}};
    const char *text = rendering(d, &answer), *name = strstr(text, PROBE_NAME_1);
    if (!name || !read_place(d, section_start(d, text, name), PROBE_NAME_1, &places[0]) ||
        !read_place(d, places[0].arguments_end, PROBE_NAME_2, &places[1]))
        return false;
    *end = slice_text(places[1].arguments_end);
    replace_index(slice_of(places[0].name_end, places[0].arguments_end),
                  slice_of(places[1].name_end, places[1].arguments_end), false);
    replace_index(places[0].before, places[1].before, true);
    return true;
}

/* behind: what stands behind the last arguments. */
static void split_section(struct derivation *d, struct slice first, const struct slice *second,
                          struct slice last)
{
    struct tool_format *f = d->format;
    struct slice section = without_turn_end(d, last);
    f->calls_end = keep_turn(d, slice_from(last, section.n));
    first = slice_strip(first);
    if (!second) {
        f->call_begin = keep(d, first);
        f->call_end = keep(d, slice_strip(section));
        return;
    }
    size_t end = slice_common_begin(*second, section);
    struct slice between = slice_from(*second, end);
    size_t begin = min_of(slice_common_end(first, between), between.n);
    f->call_end = keep(d, slice_strip((struct slice){second->bytes, end}));
    f->call_begin = keep(d, slice_strip(slice_from(first, first.n - begin)));
    f->section_begin = keep(d, slice_strip(slice_without_end(first, begin)));
    f->call_separator = keep(d, slice_strip(slice_without_end(between, begin)));
    f->section_end = keep(d, slice_strip(slice_from(section, end)));
}

static bool is_bare(const struct tool_format *f)
{
    const char *begin = *f->section_begin ? f->section_begin : f->call_begin;
    return strcspn(begin, "{[(") == 0 && !strchr(begin, ']') &&
           (*begin != '[' || begin[1] == '{' || !begin[1]);
}

/* From now on the template is told to let the model think, which may change what stands around an answer. */
static void think(struct derivation *d)
{
    struct turn turn;
    d->probe.thinks = true;
    if (!read_turn(d, &turn)) return;
    d->format->header = keep_turn(d, turn.header);
    d->format->answer_end = keep_turn(d, turn.end);
}

/* The first mark of a text. */
static struct slice first_mark(struct slice s)
{
    const char *end = s.n > 0 ? memchr(s.bytes, s.bytes[0] == '[' ? ']' : '>', s.n) : NULL;
    return end ? slice_of(s.bytes, end + 1) : s;
}

/* Reasoning that is only shown in front of calls. Without any its block may stand there empty. */
static void read_reasoning_of_calls(struct derivation *d, struct slice first)
{
    struct tool_format *f = d->format;
    const struct probe_answer answer = {
        .content = d->content, .reasoning = PROBE_REASONING, .arguments = {ARGUMENTS}};
    const char *text = rendering(d, &answer), *name = strstr(text, PROBE_NAME_1);
    const char *reasoning = strstr(text, PROBE_REASONING);
    if (*f->think_close || !name || !reasoning || reasoning > name) return;
    const char *content = strstr(reasoning, PROBE_CONTENT);
    struct slice before = slice_of(text, reasoning),
                 close = slice_of(reasoning + strlen(PROBE_REASONING), name);
    struct slice open = slice_strip(slice_from(before, slice_common_begin(before, slice_text(f->header))));
    first = slice_strip(first);
    struct slice mark = first_mark(slice_strip(close));
    bool is_empty_block =
        open.n > 0 && slice_begins(first, open) && slice_begins(slice_strip(slice_from(first, open.n)), mark);
    if (!is_empty_block && (!slice_ends(close, first) || (content && content < name))) return;
    f->think_open = keep(d, open);
    f->think_close = keep(d, is_empty_block ? mark : slice_strip(slice_without_end(close, first.n)));
    if (is_empty_block) think(d);
}

static void read_json(struct derivation *d, const char *text)
{
    struct slice json;
    enum argument_notation notation;
    const char *name_end = behind(text, PROBE_NAME_1);
    if (!find_json(name_end, &json, &notation)) return;
    d->format->notation = notation;
    d->format->name_end = keep(d, slice_of(name_end, json.bytes));
}

static bool read_calls(struct derivation *d, const char *text)
{
    struct tool_format *f = d->format;
    struct place place, places[2];
    struct slice json, end;
    enum argument_notation notation;
    const char *name = strstr(text, PROBE_NAME_1);
    if (find_json(behind(text, PROBE_NAME_1), &json, &notation))
        read_json(d, text);
    else if (!read_tagged(d, text, &end))
        return false;
    if (read_two_calls(d, places, &end)) {
        f->is_parallel = true;
        struct slice after =
            slice_of(places[0].name_end, places[0].arguments_end); /* its index is a slot now */
        if (f->notation != ARGUMENTS_TAGGED) {
            find_json(places[0].name_end, &json, &notation);
            f->name_end = keep(d, slice_of(after.bytes, json.bytes));
        } else {
            after = slice_strip(after);
            f->name_end = keep(d, (struct slice){after.bytes, min_of(after.n, strlen(f->name_end))});
        }
        read_reasoning_of_calls(d, places[0].before);
        if (!read_two_calls(d, places, &end)) return false; /* behind an empty block */
        split_section(d, places[0].before, &places[1].before, end);
    } else if (read_place(d, section_start(d, text, name), PROBE_NAME_1, &place)) {
        split_section(d, place.before, NULL, slice_text(place.arguments_end));
    } else {
        return false;
    }
    f->wants_argument_text = d->probe.arguments_are_text;
    f->is_bare = is_bare(f);
    if (!d->shows_content || f->is_bare) f->content_beside_calls = d->content ? CONTENT_EMPTY : CONTENT_NULL;
    return *f->call_begin || *f->section_begin;
}

/* ---- the whole ---- */

static void clear(struct tool_format *f)
{
    const char **texts[] = {
        &f->think_open,  &f->think_close,         &f->content_open, &f->content_close, &f->section_begin,
        &f->section_end, &f->call_begin,          &f->name_end,     &f->call_end,      &f->call_separator,
        &f->key_begin,   &f->key_end[0],          &f->key_end[1],   &f->value_end,     &f->header,
        &f->answer_end,  &f->parameter_separator, &f->quote,        &f->calls_end};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) *texts[i] = "";
}

/* The notation of calls from the table, around the turn that was derived. */
static void take_notation(struct tool_format *f, const struct tool_format *from)
{
    struct tool_format turn = *f;
    *f = *from;
    f->arena = turn.arena;
    f->header = turn.header;
    f->answer_end = turn.answer_end;
    if (!*f->calls_end) f->calls_end = turn.answer_end;
    if (*f->think_open) return;
    f->think_open = turn.think_open;
    f->think_close = turn.think_close;
    f->content_open = turn.content_open;
    f->content_close = turn.content_close;
}

static void derive(struct derivation *d)
{
    struct tool_format *f = d->format;
    struct turn turn = {.lead = {.n = 0}};
    d->probe.hides_tools = !*rendering(d, NULL);
    bool has_turn = read_reasoning(d, &turn);
    const struct tool_format *family = tool_family_find(chat_template_source(d->probe.template));
    bool renders_tools = !d->probe.hides_tools && probe_shows_tools(&d->probe);
    const char *text = has_turn && !family ? find_call(d) : "";
    f->renders_calls = true;
    if (!*text || !read_calls(d, text) || !tool_format_verify(f, &d->probe))
        take_notation(f, family ? family : &tool_format_generic);
    f->renders_tools = renders_tools;
    f->loses_results = !f->renders_calls && probe_loses_results(&d->probe);
    f->loses_system = probe_loses_system(&d->probe);
    if (tool_format_add_others(f, chat_template_source(d->probe.template)) != 0) d->failed = true;
}

int tool_format_derive(const struct chat_template *t, const cJSON *variables, struct tool_format **out,
                       struct error *err)
{
    struct derivation d = {.format = calloc(1, sizeof *d.format)};
    enum { FORMAT_BYTES_MAX = 1 << 20, RENDERINGS_BYTES_MAX = 64 << 20 };
    *out = d.format;
    if (!d.format) return error_set(err, STATUS_NO_MEMORY, "no memory for the format of tool calls");
    clear(d.format);
    arena_init(&d.format->arena, FORMAT_BYTES_MAX);
    arena_init(&d.arena, RENDERINGS_BYTES_MAX);
    buffer_init(&d.scratch, chat_template_limits_default.output_bytes);
    int status = probe_init(&d.probe, t, variables);
    if (status == 0) derive(&d);
    probe_deinit(&d.probe);
    buffer_deinit(&d.scratch);
    arena_deinit(&d.arena);
    return status;
}

void tool_format_free(struct tool_format *f)
{
    if (!f) return;
    arena_deinit(&f->arena);
    free(f);
}
