/* tool_parser.c - the state machine. Every step looks at the bytes that are held and either takes some of
 * them, for a reason that more bytes would not change, or asks for more. */
#include "text/tools/tool_parser.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "text/tools/argument_text.h"
#include "text/tools/call_head.h"
#include "text/tools/format.h"
#include "text/tools/literal_json.h"
#include "text/tools/match.h"
#include "text/tools/tool_types.h"

enum state {
    IN_REASONING,
    IN_TEXT,
    AFTER_CALL,
    IN_JSON,        /* ARGUMENTS_JSON */
    IN_JSON_STRING, /* ARGUMENTS_JSON_STRING */
    BEFORE_KEY,
    IN_STRING,  /* of VALUES_RAW, known to be one */
    IN_VALUE,   /* of VALUES_RAW, looked at whole */
    IN_LITERAL, /* of VALUES_LITERAL */
    AFTER_VALUE,
    AFTER_ARGUMENTS,
};

/* An answer that is cut off behind so many bytes of what a call begins with was so within one, or behind any, behind a call. */
enum { BEGUN_BYTES_MIN = 5 };

struct tool_parser {
    const struct tool_format *format;
    const cJSON *tools, *function;
    tool_sink *sink;
    void *context;
    enum state state;
    bool keeps_reasoning, is_whole, is_cut, failed, has_text, has_calls, is_start, has_parameters;
    bool drops_spaces; /* white space at the front belongs to a mark that has been taken */
    bool is_open;      /* the last call's end mark has not come: further objects may */
    bool is_wrapped;   /* more than arguments ends it */
    bool has_bracket, is_fenced, is_listed; /* by what stood in front of the call, as call_head.h has it */
    const char *other_end;                  /* of the last call, until it has come; NULL: there is none */
    unsigned types;                         /* of the parameter */
    struct argument_scan json;
    struct literal_scan literal;
    size_t num_scanned; /* bytes of held that were looked at already */
    size_t num_begun;   /* bytes at the end of held that a call has begun with */
    struct buffer held, out;
};

int tool_parser_new(const struct tool_format *f, const cJSON *tools, enum tool_reasoning reasoning,
                    tool_sink *sink, void *context, struct tool_parser **out)
{
    struct tool_parser *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return STATUS_NO_MEMORY;
    p->format = f;
    p->tools = cJSON_GetArraySize(tools) > 0 ? tools : NULL;
    p->sink = sink;
    p->context = context;
    p->state = reasoning == TOOL_REASONING_OPEN ? IN_REASONING : IN_TEXT;
    p->keeps_reasoning = reasoning == TOOL_REASONING_IN_TEXT;
    p->is_start = p->drops_spaces = true;
    if (reasoning != TOOL_REASONING_OPEN) p->drops_spaces = *f->think_open || *f->content_open;
    buffer_init(&p->held, SIZE_MAX / 2);
    buffer_init(&p->out, SIZE_MAX / 2);
    return 0;
}

void tool_parser_free(struct tool_parser *p)
{
    if (!p) return;
    buffer_deinit(&p->held);
    buffer_deinit(&p->out);
    free(p);
}

bool tool_parser_in_reasoning(const struct tool_parser *p)
{
    return p->state == IN_REASONING;
}

bool tool_parser_in_call(const struct tool_parser *p)
{
    return p->state > AFTER_CALL;
}

/* ---- events ---- */

static void emit(struct tool_parser *p, enum tool_event_kind kind, const char *bytes, size_t n)
{
    const struct tool_event event = {.kind = kind, .bytes = bytes, .num_bytes = n};
    if (n > 0) p->sink(p->context, &event);
}

static void take(struct tool_parser *p, size_t n)
{
    buffer_consume(&p->held, n);
    p->num_scanned -= min_of(n, p->num_scanned);
}

static void emit_held(struct tool_parser *p, enum tool_event_kind kind, size_t n)
{
    emit(p, kind, p->held.data, n);
    take(p, n);
}

static void emit_arguments(struct tool_parser *p)
{
    emit(p, TOOL_ARGUMENTS, p->out.data, p->out.num_bytes);
    if (buffer_failed(&p->out)) p->failed = true;
    buffer_clear(&p->out);
}

static void end_call(struct tool_parser *p, bool is_complete, enum state next)
{
    const struct tool_event event = {.kind = TOOL_CALL_END, .bytes = "", .is_complete = is_complete};
    p->sink(p->context, &event);
    p->state = next;
    p->drops_spaces = false;
}

/* A call that broke off: what follows is text. */
static void break_call(struct tool_parser *p)
{
    end_call(p, false, IN_TEXT);
    p->num_scanned = 0;
}

static struct span held_from(const struct tool_parser *p, size_t n)
{
    return (struct span){p->held.data + n, p->held.num_bytes - n, p->is_whole};
}

/* Where the next part begins behind white space; false when that is not known yet. More white space than is
 * skipped is not skipped at all. */
static bool skip_spaces(const struct tool_parser *p, size_t *at)
{
    size_t n = 0;
    while (n < p->held.num_bytes && match_is_space(p->held.data[n])) n++;
    *at = n <= MATCH_SPACES_MAX ? n : 0;
    return n < p->held.num_bytes || n > MATCH_SPACES_MAX || p->is_whole;
}

/* ---- the head of a call ---- */

static ssize_t match_call(const struct tool_parser *p, size_t at, const char *first, bool may_be_bare,
                          struct call_head *head)
{
    const struct answer_view view = {p->format, p->tools, held_from(p, 0)};
    return call_head_match(&view, at, first, may_be_bare, head);
}

static ssize_t match_alone(const struct tool_parser *p, size_t at, struct call_head *head)
{
    const struct answer_view view = {p->format, p->tools, held_from(p, 0)};
    return call_head_match_alone(&view, at, head);
}

/* What stands between the quotes of a string, which are around it. */
static void append_unquoted_string(const struct slice s, bool is_python, struct buffer *out)
{
    struct buffer json;
    bool ended;
    buffer_init(&json, SIZE_MAX / 2);
    if (!is_python || literal_to_json(s.bytes - 1, s.n + 2, "", &json) != LITERAL_STRING)
        argument_unescape(s.bytes, s.n, &ended, out);
    else
        argument_unescape(json.data + 1, json.num_bytes - 1, &ended, out);
    if (buffer_failed(&json)) out->failed = true;
    buffer_deinit(&json);
}

/* The arguments of a call that was read whole. */
static void emit_object_arguments(struct tool_parser *p, const struct call_object *o)
{
    struct argument_scan scan = {.depth = 0};
    enum argument_state state = ARGUMENT_BROKEN;
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    if (o->is_string)
        append_unquoted_string(o->arguments, o->is_python, &text);
    else if (!o->is_python || !literal_to_json(o->arguments.bytes, o->arguments.n, "", &text))
        buffer_append(&text, o->arguments.bytes, o->arguments.n);
    if (text.num_bytes > 0 && text.data[0] == '{')
        argument_scan(&scan, text.data, text.num_bytes, &state, &p->out);
    if (text.num_bytes == 0) buffer_append_text(&p->out, "{}");
    if (state != ARGUMENT_WHOLE && text.num_bytes > 0) { /* the client's to judge */
        buffer_clear(&p->out);
        buffer_append(&p->out, text.data, text.num_bytes);
    }
    if (buffer_failed(&text)) p->failed = true;
    buffer_deinit(&text);
    emit_arguments(p);
}

static void begin_call(struct tool_parser *p, const struct call_head *head, size_t num_bytes)
{
    static const enum state states[] = {[ARGUMENTS_JSON] = IN_JSON,
                                        [ARGUMENTS_JSON_STRING] = IN_JSON_STRING,
                                        [ARGUMENTS_TAGGED] = BEFORE_KEY};
    const char *name = p->held.data + head->name_at;
    const struct tool_event event = {
        .kind = TOOL_CALL_BEGIN, .bytes = name, .num_bytes = head->name_bytes, .id = head->id.text};
    p->has_calls = true;
    p->has_parameters = false;
    p->num_scanned = 0;
    p->is_fenced = head->is_fenced || (p->is_open && p->is_fenced);
    p->is_listed = head->is_listed || (p->is_open && p->is_listed);
    p->is_open = false;
    p->is_wrapped = head->is_object || head->has_bracket || head->is_fenced;
    p->has_bracket = head->has_bracket && !head->is_object;
    if (head->end) p->other_end = head->end;
    p->function = tool_find(p->tools, name, head->name_bytes);
    p->sink(p->context, &event);
    if (head->is_object) {
        emit_object_arguments(p, &head->object);
        take(p, num_bytes);
        p->state = AFTER_ARGUMENTS;
        return;
    }
    take(p, num_bytes);
    p->state = states[p->format->notation];
    p->json = (struct argument_scan){.depth = 0};
    bool may_be_json = p->format->values == VALUES_RAW || head->has_bracket;
    if (may_be_json && p->held.num_bytes > 0 && p->held.data[0] == '{')
        p->state = IN_JSON; /* as a forced call has them, or one in another notation */
    else if (p->state == IN_JSON_STRING)
        take(p, 1); /* the quote */
}

/* ---- text and reasoning ---- */

enum mark { MARK_NONE, MARK_THINK_OPEN, MARK_THINK_CLOSE, MARK_DROP, MARK_CALL, MARK_CALL_ALONE };

static bool stands(const char *text, struct span at, ssize_t *length)
{
    if (!*text) return false;
    *length = match_text(text, at, NULL);
    return *length != MATCH_NOT;
}

/* The white space that ends before at, as far as it is held back. */
static size_t spaces_before(const struct tool_parser *p, size_t at)
{
    size_t n = 0;
    while (n < at && n < MATCH_SPACES_MAX && match_is_space(p->held.data[at - 1 - n])) n++;
    return n;
}

/* A call of a function that is there, behind marks of its own: models forget to end their reasoning. */
static bool ends_reasoning(const struct tool_parser *p, size_t at, ssize_t *length, struct call_head *head)
{
    if (p->format->is_bare) return false;
    *length = match_call(p, at, p->format->section_begin, true, head);
    if (*length < 0) return *length == MATCH_MORE;
    return tool_find(p->tools, p->held.data + head->name_at, head->name_bytes);
}

/* The mark at a place, with its length or MATCH_MORE. */
static enum mark mark_at(const struct tool_parser *p, size_t at, ssize_t *length, struct call_head *head)
{
    const struct tool_format *f = p->format;
    const struct span here = held_from(p, at);
    if (p->state == IN_REASONING && stands(f->think_close, here, length)) return MARK_THINK_CLOSE;
    if (p->state == IN_REASONING) return ends_reasoning(p, at, length, head) ? MARK_CALL : MARK_NONE;
    bool at_start = !p->has_text && spaces_before(p, at) == at;
    *length = match_call(p, at, f->section_begin, at_start, head);
    if (*length != MATCH_NOT) return MARK_CALL;
    *length = at_start ? match_alone(p, at, head) : MATCH_NOT;
    if (*length != MATCH_NOT) return MARK_CALL_ALONE;
    if (p->keeps_reasoning) return MARK_NONE;
    if (stands(f->think_open, here, length)) return MARK_THINK_OPEN;
    if ((at_start || *f->content_open) && stands(f->think_close, here, length)) return MARK_DROP;
    if (stands(f->content_open, here, length) || stands(f->content_close, here, length)) return MARK_DROP;
    return MARK_NONE;
}

static void take_mark(struct tool_parser *p, enum mark mark, size_t length, const struct call_head *head)
{
    if (mark == MARK_CALL || mark == MARK_CALL_ALONE) {
        begin_call(p, head, length);
        return;
    }
    take(p, length);
    p->num_scanned = 0;
    p->drops_spaces = true;
    if (mark == MARK_THINK_OPEN) p->state = IN_REASONING;
    if (mark == MARK_THINK_CLOSE) p->state = IN_TEXT;
}

static void emit_plain(struct tool_parser *p, size_t n)
{
    if (n == 0) return;
    if (p->state == IN_TEXT) p->has_text = true;
    emit_held(p, p->state == IN_TEXT ? TOOL_TEXT : TOOL_REASONING, n);
}

static size_t begun_bytes(const struct tool_parser *p, enum mark mark, size_t at)
{
    size_t n = p->held.num_bytes - at;
    bool is_call = mark == MARK_CALL && !p->format->is_bare && (p->has_calls || n >= BEGUN_BYTES_MIN);
    return is_call ? n : 0;
}

/* At the end white space that might have been a mark's is the text's after all, and a call that has only begun is not. */
static void emit_rest(struct tool_parser *p)
{
    if (p->num_begun > 0) {
        size_t n = p->held.num_bytes - min_of(p->num_begun, p->held.num_bytes);
        emit_plain(p, n - spaces_before(p, n));
        take(p, p->held.num_bytes);
        return;
    }
    bool keeps = p->state == IN_TEXT && !p->has_calls;
    size_t spaces = keeps ? 0 : spaces_before(p, p->held.num_bytes);
    emit_plain(p, p->held.num_bytes - spaces);
    take(p, p->held.num_bytes);
}

static bool step_plain(struct tool_parser *p)
{
    struct call_head head;
    ssize_t length = 0;
    if (!p->is_whole) p->num_begun = 0;
    if (p->drops_spaces) {
        size_t n = 0;
        while (n < p->held.num_bytes && match_is_space(p->held.data[n])) n++;
        take(p, n);
        if (p->held.num_bytes == 0) return false;
        p->drops_spaces = false;
        p->num_scanned = 0;
    }
    for (size_t at = p->num_scanned; at < p->held.num_bytes; at++) {
        enum mark mark = mark_at(p, at, &length, &head);
        if (mark == MARK_NONE) continue;
        /* Text in front of it goes out first: lengths are counted from the front. */
        size_t before = at - spaces_before(p, at);
        if (length < 0) {
            p->num_begun = begun_bytes(p, mark, at);
            emit_plain(p, before);
            p->num_scanned = at - before;
            return false;
        }
        if (at > 0) {
            emit_plain(p, before);
            take(p, at - before);
            p->num_scanned = 0;
            return true;
        }
        take_mark(p, mark, (size_t)length, &head);
        return true;
    }
    if (p->is_whole) {
        emit_rest(p);
        return false;
    }
    emit_plain(p, p->held.num_bytes - spaces_before(p, p->held.num_bytes));
    p->num_scanned = p->held.num_bytes;
    return false;
}

/* ---- between calls ---- */

/* The section's end, also without the bracket of its list. */
static ssize_t match_section_end(const struct tool_parser *p, size_t at)
{
    const char *end = p->format->section_end, *mark = end + strspn(end, "]");
    ssize_t n = *end ? match_text(end, held_from(p, at), NULL) : MATCH_NOT;
    return n == MATCH_NOT && *mark && mark > end ? match_text(mark, held_from(p, at), NULL) : n;
}

/* Calls that are bare objects may have a semicolon between them (Llama 3). */
static bool skip_semicolon(const struct tool_parser *p, size_t *at)
{
    if (!p->format->is_bare || *at == p->held.num_bytes || p->held.data[*at] != ';') return true;
    ssize_t n = match_spaces(held_from(p, *at + 1));
    if (n >= 0 && n <= MATCH_SPACES_MAX && *at + 1 + (size_t)n < p->held.num_bytes) *at += 1 + (size_t)n;
    return n >= 0;
}

/* A further object within the marks of the last call, with a comma in front of it or none. */
static ssize_t match_next_object(const struct tool_parser *p, size_t at, struct call_head *head)
{
    const struct answer_view view = {p->format, p->tools, held_from(p, 0)};
    if (!p->is_open || at == p->held.num_bytes) return MATCH_NOT;
    if (p->held.data[at] == ',') {
        ssize_t n = match_spaces(held_from(p, at + 1));
        if (n < 0) return n;
        at += 1 + (size_t)n;
    }
    return call_head_match_next(&view, at, head);
}

/* What ends the call's list, fence and marks, all of which may stand there or not; MATCH_NOT: nothing does. */
static ssize_t match_open_end(const struct tool_parser *p, size_t begin)
{
    const char *last = strrchr(p->format->call_end, '<');
    const struct {
        const char *text;
        bool may_stand;
    } parts[] = {{"]", p->is_listed},
                 {"```", p->is_fenced},
                 {call_end_mark(p->format), true},
                 {last ? last : "", true}};
    size_t at = begin;
    if (!p->is_open) return MATCH_NOT;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!parts[i].may_stand || !*parts[i].text) continue;
        const ssize_t spaces = match_spaces(held_from(p, at));
        const ssize_t n =
            spaces < 0 ? spaces : match_text(parts[i].text, held_from(p, at + (size_t)spaces), NULL);
        if (n == MATCH_MORE) return n;
        if (n > 0) at += (size_t)(spaces + n);
    }
    return at > begin ? (ssize_t)(at - begin) : MATCH_NOT;
}

/* What else ends the calls that began so; MATCH_NOT: it does not stand here. An answer that is over within it has it. */
static ssize_t match_other_end(const struct tool_parser *p, size_t at)
{
    const struct span rest = {p->held.data + at, p->held.num_bytes - at, .is_whole = false};
    if (!p->other_end || rest.num_bytes == 0) return MATCH_NOT;
    ssize_t n = match_text(p->other_end, rest, NULL);
    return n == MATCH_MORE && p->is_whole ? (ssize_t)rest.num_bytes : n;
}

static bool step_after_call(struct tool_parser *p)
{
    const struct tool_format *f = p->format;
    struct call_head head;
    size_t at, behind;
    if (!skip_spaces(p, &at)) return false;
    behind = at;
    if (!skip_semicolon(p, &behind)) return false;
    ssize_t call = *f->call_begin || *f->call_separator
                       ? match_call(p, behind, f->call_separator, true, &head)
                       : MATCH_NOT;
    if (call == MATCH_NOT) call = match_next_object(p, at, &head);
    if (call >= 0) {
        begin_call(p, &head, (size_t)call);
        return true;
    }
    ssize_t other = call == MATCH_NOT ? match_other_end(p, at) : MATCH_NOT;
    if (other >= 0) {
        take(p, at + (size_t)other);
        p->other_end = NULL;
        return true;
    }
    ssize_t end = match_section_end(p, at);
    ssize_t open_end = end == MATCH_NOT ? match_open_end(p, at) : MATCH_NOT;
    p->num_begun = p->is_whole ? p->num_begun : call == MATCH_MORE ? p->held.num_bytes - at : 0;
    if (call == MATCH_MORE || end == MATCH_MORE || open_end == MATCH_MORE || other == MATCH_MORE)
        return false;
    p->is_open = false;
    if (open_end > 0) {
        take(p, at + (size_t)open_end);
        return true;
    }
    if (end >= 0) take(p, at + (size_t)end);
    if (end > 0 && p->other_end) return true; /* it may stand behind */
    p->state = IN_TEXT;
    p->other_end = NULL;
    p->drops_spaces = !p->has_text;
    p->num_scanned = 0;
    return true;
}

/* Further members of an object behind the arguments say nothing: moves at to the bracket behind them. False: more bytes are
 * needed to tell. */
static bool skip_members(const struct tool_parser *p, size_t *at)
{
    const struct tool_format *f = p->format;
    const char *text = p->held.data + *at;
    size_t left = min_of(p->held.num_bytes - *at, (size_t)TOOL_LITERAL_MAX), n = 1;
    bool in_string = false;
    if (f->notation == ARGUMENTS_TAGGED || !strchr(f->call_begin, '{') || left == 0 || *text != ',')
        return true;
    while (n < left && match_is_space(text[n])) n++;
    if (n < left && text[n] != '"') return true;
    for (; n < left && (in_string || text[n] != '}'); n++) {
        if (text[n] == '"') in_string = !in_string;
        if (text[n] == '\\' && in_string) n++;
    }
    if (n < left) *at += n;
    return n < left || left == TOOL_LITERAL_MAX || p->is_whole;
}

/* The first mark of a text, up to a slot; of no bytes: there is none. */
static struct slice first_mark(const char *text)
{
    size_t n = strcspn(text, ">\x01\x02\x03");
    return slice_strip((struct slice){text, n + (text[n] == '>')});
}

static ssize_t match_mark(const char *text, struct span at)
{
    const struct slice mark = first_mark(text);
    return mark.n > 0 ? match_exact(mark.bytes, mark.n, at) : MATCH_NOT;
}

/* What follows the first mark of a text that has further ones; "": there is none. */
static const char *next_mark(const char *text)
{
    const struct slice mark = first_mark(text);
    const char *next = mark.bytes + mark.n;
    return first_mark(next).n > 0 ? next : "";
}

/* The first of several marks that end a call, where the others were forgotten: a function's, in front of another one. */
static ssize_t match_half_end(const struct tool_format *f, struct span at)
{
    const char *end = f->call_end;
    if (f->notation != ARGUMENTS_TAGGED || !*next_mark(end) || strncmp(first_mark(end).bytes, "</", 2) != 0)
        return MATCH_NOT;
    return match_mark(end, at);
}

/* call_end, or its mark where a bracket was forgotten. */
static ssize_t match_call_end(const struct tool_parser *p, size_t at)
{
    const struct span rest = {p->held.data + at, p->held.num_bytes - at, .is_whole = false};
    const char *mark = call_end_mark(p->format);
    ssize_t n = match_text(p->format->call_end, rest, NULL);
    if (n == MATCH_NOT && *mark) n = match_text(mark, rest, NULL);
    if (n == MATCH_NOT) n = match_half_end(p->format, rest);
    if (n == MATCH_MORE && p->is_whole)
        n = (ssize_t)rest.num_bytes; /* cut within the mark, which is no text for that */
    return n;
}

static bool step_after_arguments(struct tool_parser *p)
{
    size_t at, bracket;
    if (!skip_spaces(p, &at)) return false;
    ssize_t n = match_call_end(p, at);
    bracket = at;
    if (n == MATCH_NOT && !skip_members(p, &bracket)) return false;
    if (bracket > at) {
        at = bracket;
        n = match_call_end(p, at);
        if (n == MATCH_NOT) n = 1;
    }
    if (n == MATCH_MORE) return false;
    p->is_open = p->is_wrapped && (n == MATCH_NOT || !*p->format->call_end);
    if (p->is_open && p->has_bracket && at < p->held.num_bytes && p->held.data[at] == '}') n = 1;
    if (n >= 0) take(p, at + (size_t)n);
    end_call(p, true, AFTER_CALL);
    return true;
}

/* ---- arguments as JSON ---- */

static bool step_json(struct tool_parser *p)
{
    if (p->json.depth == 0 && p->held.data[0] != '{') { /* the call ends without any */
        emit(p, TOOL_ARGUMENTS, "{}", 2);
        p->state = AFTER_ARGUMENTS;
        return true;
    }
    enum argument_state state;
    size_t n = argument_scan(&p->json, p->held.data, p->held.num_bytes, &state, &p->out);
    emit_arguments(p);
    take(p, n);
    if (state == ARGUMENT_BROKEN)
        break_call(p);
    else if (state == ARGUMENT_WHOLE)
        p->state = AFTER_ARGUMENTS;
    return state != ARGUMENT_MORE;
}

static bool step_json_string(struct tool_parser *p)
{
    bool ended;
    size_t n = argument_unescape(p->held.data, p->held.num_bytes, &ended, &p->out);
    emit_arguments(p);
    take(p, n);
    if (ended) p->state = AFTER_ARGUMENTS;
    return ended;
}

/* ---- tagged arguments ---- */

static bool is_key_byte(char c)
{
    return call_name_byte(c) || c == ' ' || c == '$' || c == '@';
}

static void begin_value(struct tool_parser *p, const char *key, size_t n, bool is_string, bool is_told)
{
    buffer_append_text(&p->out, p->has_parameters ? ", " : "{");
    buffer_append_json(&p->out, key, n);
    buffer_append_text(&p->out, ": ");
    emit_arguments(p);
    p->has_parameters = true;
    p->types = is_told ? (is_string ? LITERAL_STRING : ~(unsigned)LITERAL_STRING)
                       : tool_parameter_types(p->function, key, n);
    p->num_scanned = 0;
    p->literal = (struct literal_scan){.quote = p->format->quote};
    p->state = IN_LITERAL;
    if (p->format->values == VALUES_RAW) p->state = p->types == LITERAL_STRING ? IN_STRING : IN_VALUE;
    if (p->state == IN_STRING) emit(p, TOOL_ARGUMENTS, "\"", 1);
}

/* White space that a text ends with is taken as far as it stands there; MATCH_MORE while it may still. */
static ssize_t match_tail(const struct tool_parser *p, const char *text, size_t at)
{
    size_t n = strlen(text), begin = n;
    while (begin > 0 && match_is_space(text[begin - 1])) begin--;
    ssize_t length = match_exact(text + begin, n - begin, held_from(p, at));
    return length == MATCH_NOT ? 0 : length;
}

/* A quote around the name of a parameter whose value is a literal: its length, none included. */
static ssize_t match_quote(const struct tool_parser *p, size_t at)
{
    const struct tool_format *f = p->format;
    if (f->values != VALUES_LITERAL || at == p->held.num_bytes) return 0;
    if (p->held.data[at] == '"') return 1;
    ssize_t n = *f->quote ? match_exact(f->quote, strlen(f->quote), held_from(p, at)) : MATCH_NOT;
    return n == MATCH_NOT ? 0 : n;
}

/* The end of a key that does not say whether its value is a string, where the format's do: "> for " string="true">. */
static ssize_t match_key_without_type(const struct tool_parser *p, size_t at)
{
    const char *const *ends = p->format->key_end;
    size_t n = strcspn(ends[FOR_STRING], " ");
    if (!strcmp(ends[FOR_STRING], ends[FOR_OTHER]) || n == 0 || !ends[FOR_STRING][n]) return MATCH_NOT;
    ssize_t quote = match_exact(ends[FOR_STRING], n, held_from(p, at));
    ssize_t end = quote < 0 ? quote : match_exact(">", 1, held_from(p, at + n));
    return end < 0 ? end : (ssize_t)(at + n) + end;
}

/* How many bytes of a key stand here: of what keys are made of, or of a name that the function has with others in it, as
 * filter[name]; or MATCH_MORE. */
static ssize_t match_key_bytes(const struct tool_parser *p, size_t at)
{
    size_t n = 0;
    ssize_t own = tool_match_parameter(p->function, held_from(p, at));
    while (at + n < p->held.num_bytes && n <= TOOL_LITERAL_MAX && is_key_byte(p->held.data[at + n])) n++;
    return own == MATCH_MORE || own > (ssize_t)n ? own : (ssize_t)n;
}

/* KEY key_end: where the key is, the length of all, and which of the two ends it was. */
static ssize_t match_key(const struct tool_parser *p, size_t at, struct slice *key, int *kind)
{
    const struct tool_format *f = p->format;
    ssize_t best = MATCH_NOT, quote = match_quote(p, at);
    if (quote < 0) return quote;
    at += (size_t)quote;
    const ssize_t key_bytes = match_key_bytes(p, at);
    if (key_bytes == MATCH_MORE) return MATCH_MORE;
    const size_t n = (size_t)key_bytes;
    if (n == 0 || n > TOOL_LITERAL_MAX)
        return at == p->held.num_bytes ? match_more(held_from(p, at)) : MATCH_NOT;
    if (at + n == p->held.num_bytes) return match_more(held_from(p, at));
    *key = (struct slice){p->held.data + at, n};
    if (quote > 0) {
        quote = match_quote(p, at + n);
        if (quote <= 0) return quote < 0 ? quote : MATCH_NOT;
        at += (size_t)quote;
        if (at + n == p->held.num_bytes) return match_more(held_from(p, at));
    }
    for (*kind = FOR_STRING; *kind < NUM_VALUE_KINDS; ++*kind) {
        best = match_text(f->key_end[*kind], held_from(p, at + n), NULL);
        if (best != MATCH_NOT) break;
    }
    if (best == MATCH_NOT) return match_key_without_type(p, at + n);
    if (best < 0) return best;
    at += n + (size_t)best;
    ssize_t tail = match_tail(p, f->key_end[*kind], at);
    return tail < 0 ? tail : (ssize_t)at + tail;
}

static void end_parameters(struct tool_parser *p, size_t num_bytes)
{
    emit(p, TOOL_ARGUMENTS, "{}", p->has_parameters ? 0 : 2);
    emit(p, TOOL_ARGUMENTS, "}", p->has_parameters ? 1 : 0);
    take(p, num_bytes);
    p->state = AFTER_ARGUMENTS;
}

/* Whether an answer is over behind the first mark of what ends a call, or by itself where only white space stands. */
static bool match_begun_end(const struct tool_parser *p, size_t at)
{
    const struct span rest = {p->held.data + at, p->held.num_bytes - at, .is_whole = false};
    if (rest.num_bytes == 0) return !p->is_cut;
    return match_mark(p->format->call_end, rest) >= 0 &&
           match_text(p->format->call_end, rest, NULL) == MATCH_MORE;
}

/* A key, or the end of the call, which is left for the next state. */
static bool step_before_key(struct tool_parser *p)
{
    const struct tool_format *f = p->format;
    size_t at;
    if (!skip_spaces(p, &at)) return false;
    ssize_t end = match_text(f->call_end, held_from(p, at), NULL);
    if (end == MATCH_NOT) end = match_half_end(f, held_from(p, at));
    if (end >= 0) {
        end_parameters(p, at);
        return true;
    }
    if (end == MATCH_MORE && !*f->key_begin) return false;
    ssize_t n = match_text(f->key_begin, held_from(p, at), NULL), key = MATCH_NOT;
    struct slice name = {"", 0};
    int kind = 0;
    if (n >= 0) key = match_key(p, at + (size_t)n, &name, &kind);
    if (n == MATCH_MORE || key == MATCH_MORE || (n < 0 && end == MATCH_MORE)) return false;
    if (key < 0 && p->is_whole && match_begun_end(p, at)) {
        end_parameters(p, at);
        return true;
    }
    if (key < 0 && at < p->held.num_bytes && p->held.data[at] == *f->call_end &&
        strchr("})", *f->call_end)) { /* without its mark */
        end_parameters(p, at + 1);
        return true;
    }
    if (key < 0 && p->is_cut) return false; /* what has only begun */
    if (key < 0) {
        break_call(p);
        return true;
    }
    bool is_told = strcmp(f->key_end[FOR_STRING], f->key_end[FOR_OTHER]) != 0 && kind < NUM_VALUE_KINDS;
    begin_value(p, name.bytes, name.n, kind == FOR_STRING, is_told);
    take(p, (size_t)key);
    return true;
}

/* Where the value ends: value_end with all the white space in front of it, or without. */
static ssize_t match_value_end(const struct tool_parser *p, size_t at, size_t *value_bytes)
{
    const char *text = p->format->value_end, *core = text;
    size_t n = strlen(text);
    while (match_is_space(*core)) core++, n--;
    while (n > 0 && match_is_space(core[n - 1])) n--;
    size_t lead = (size_t)(core - text);
    *value_bytes = at;
    ssize_t length = lead > 0 ? match_exact(text, lead + n, held_from(p, at)) : MATCH_NOT;
    if (length == MATCH_NOT) length = match_exact(core, n, held_from(p, at));
    return length;
}

/* The text whose first mark stands behind white space at *at, which moves behind it; MATCH_MORE or MATCH_NOT: none does (yet). */
static ssize_t find_mark(const struct tool_parser *p, const char *const *texts, size_t count, size_t *at)
{
    ssize_t found = MATCH_NOT;
    while (*at < p->held.num_bytes && match_is_space(p->held.data[*at])) ++*at;
    const struct span rest = {p->held.data + *at, p->held.num_bytes - *at, .is_whole = false};
    for (size_t i = 0; i < count; i++) {
        ssize_t n = match_mark(texts[i], rest);
        if (n == MATCH_MORE) found = MATCH_MORE;
        if (n < 0) continue;
        *at += (size_t)n;
        return (ssize_t)i;
    }
    return found;
}

/* Whether what stands behind a value's end goes on with the call or ends it, or begins another: else the end is a part of the
 * value. So is one in front of a call's end that has several marks and is not gone on with. An answer may end there. */
static ssize_t match_behind_value(const struct tool_parser *p, size_t at)
{
    const struct tool_format *f = p->format;
    const char *texts[] = {f->call_end,      "",           f->section_end,   f->call_begin,
                           f->section_begin, f->key_begin, f->call_separator};
    enum { CALL_END, INNER_BEGIN, NUM_TEXTS = sizeof texts / sizeof *texts };
    if (*f->parameter_separator || !*f->key_begin || !*f->call_end) return 0;
    ssize_t found = find_mark(p, texts, NUM_TEXTS, &at);
    if (found == CALL_END && *next_mark(f->call_end)) {
        texts[CALL_END] = next_mark(f->call_end);
        texts[INNER_BEGIN] = next_mark(f->call_begin);
        found = find_mark(p, texts, NUM_TEXTS, &at);
    }
    if (found == MATCH_MORE) return p->is_whole ? 0 : MATCH_MORE;
    return found == MATCH_NOT ? MATCH_NOT : 0;
}

/* An end that was forgotten in front of the call's: the white space there, where behind the call's end comes another call, the
 * section's end, or nothing. */
static ssize_t match_forgotten_end(const struct tool_parser *p, size_t at)
{
    const struct tool_format *f = p->format;
    const char *const texts[] = {f->section_end, f->call_begin, f->section_begin, f->call_separator};
    if (*f->parameter_separator || !*f->key_begin || !*f->call_end) return MATCH_NOT;
    const ssize_t spaces = (ssize_t)match_count_spaces(held_from(p, at));
    size_t behind = at + (size_t)spaces;
    const ssize_t end = match_text(f->call_end, held_from(p, behind), NULL);
    if (spaces > MATCH_SPACES_MAX || end < 0) return spaces > MATCH_SPACES_MAX ? MATCH_NOT : end;
    behind += (size_t)end;
    const ssize_t more = match_spaces(held_from(p, behind));
    if (more < 0) return more;
    behind += (size_t)more;
    if (behind == p->held.num_bytes) return spaces;
    ssize_t best = MATCH_NOT;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ssize_t n = match_mark(texts[i], held_from(p, behind));
        if (n >= 0) return spaces;
        if (n == MATCH_MORE) best = MATCH_MORE;
    }
    return best;
}

/* An end that was forgotten in front of another parameter, which the function has: the white space there. */
static ssize_t match_next_parameter(const struct tool_parser *p, size_t at)
{
    const struct tool_format *f = p->format;
    struct slice key = {"", 0};
    int kind;
    if (*f->parameter_separator || !*f->key_begin) return MATCH_NOT;
    const size_t spaces = match_count_spaces(held_from(p, at));
    ssize_t n = match_text(f->key_begin, held_from(p, at + spaces), NULL);
    if (n < 0) return n;
    n = match_key(p, at + spaces + (size_t)n, &key, &kind);
    if (n < 0) return n;
    return tool_has_parameter(p->function, key.bytes, key.n) ? (ssize_t)spaces : MATCH_NOT;
}

/* Looks for the end from where it looked last: the bytes of the value so far, and in *end the length of
 * value_end behind them, or a MATCH_. */
static size_t find_value_end(struct tool_parser *p, ssize_t *end)
{
    size_t value_bytes;
    for (size_t at = p->num_scanned; at < p->held.num_bytes; at++) {
        *end = match_value_end(p, at, &value_bytes);
        ssize_t goes_on = *end >= 0 ? match_behind_value(p, at + (size_t)*end) : *end;
        if (goes_on < 0) *end = goes_on;
        if (*end == MATCH_NOT) *end = match_forgotten_end(p, at);
        if (*end == MATCH_NOT) *end = match_next_parameter(p, at);
        if (*end == MATCH_NOT) continue;
        p->num_scanned = at;
        return at;
    }
    p->num_scanned = p->held.num_bytes;
    *end = MATCH_NOT;
    return p->held.num_bytes;
}

static bool step_string(struct tool_parser *p)
{
    ssize_t end;
    size_t n = find_value_end(p, &end);
    literal_append_escaped(&p->out, p->held.data, n);
    if (end >= 0) buffer_append_char(&p->out, '"');
    emit_arguments(p);
    take(p, n + (size_t)max_of(end, (ssize_t)0));
    if (end >= 0) p->state = AFTER_VALUE;
    return end >= 0;
}

/* A boolean however it is written: TRUE, true\n. */
static enum literal_type append_boolean(const char *text, size_t n, struct buffer *out)
{
    static const char *const words[] = {"true", "false"};
    struct slice s = slice_strip((struct slice){text, n});
    for (int i = 0; i < 2; i++) {
        if (s.n != strlen(words[i]) || strncasecmp(s.bytes, words[i], s.n) != 0) continue;
        buffer_append_text(out, words[i]);
        return LITERAL_BOOLEAN;
    }
    return LITERAL_NONE;
}

/* What stands in a string's quotes, where it is of a type that the parameter may have and the string is not: "3". */
static enum literal_type take_quotes_off(unsigned types, struct buffer *json)
{
    struct buffer inner;
    buffer_init(&inner, SIZE_MAX / 2);
    enum literal_type type = literal_to_json(json->data + 1, json->num_bytes - 2, "", &inner);
    if (type & types) {
        buffer_clear(json);
        buffer_append(json, inner.data, inner.num_bytes);
    }
    if (buffer_failed(&inner)) json->failed = true;
    buffer_deinit(&inner);
    return type & types ? type : LITERAL_STRING;
}

/* A value that is no string where its schema or its look says so; else a string. */
static void append_value(struct tool_parser *p, const char *text, size_t n)
{
    struct buffer json;
    buffer_init(&json, SIZE_MAX / 2);
    enum literal_type type = literal_to_json(text, n, p->format->quote, &json);
    bool may_be_text = p->types == 0 || (p->types & LITERAL_STRING);
    bool allowed = p->types == 0 || (p->types & type);
    if (type == LITERAL_NONE && (p->types & LITERAL_BOOLEAN) && !may_be_text)
        type = append_boolean(text, n, &json);
    if (type == LITERAL_STRING && !may_be_text) type = take_quotes_off(p->types, &json);
    if (type != LITERAL_NONE && (may_be_text ? type != LITERAL_STRING && allowed : true)) {
        buffer_append(&p->out, json.data, json.num_bytes);
    } else {
        buffer_append_char(&p->out, '"');
        literal_append_escaped(&p->out, text, n);
        buffer_append_char(&p->out, '"');
    }
    if (buffer_failed(&json)) p->failed = true;
    buffer_deinit(&json);
}

static bool step_value(struct tool_parser *p)
{
    ssize_t end;
    size_t n = find_value_end(p, &end);
    if (end >= 0) {
        append_value(p, p->held.data, n);
        emit_arguments(p);
        take(p, n + (size_t)end);
        p->state = AFTER_VALUE;
    } else if (n > TOOL_VALUE_MAX) {
        emit(p, TOOL_ARGUMENTS, "\"", 1);
        p->num_scanned = 0;
        p->state = IN_STRING;
    }
    return end >= 0 || n > TOOL_VALUE_MAX;
}

/* Words that a family's quotes were forgotten around. */
static enum literal_type append_unquoted(const char *text, size_t n, struct buffer *out)
{
    struct slice s = slice_strip((struct slice){text, n});
    for (size_t i = 0; i < s.n; i++)
        if (!s.bytes[i] || strchr("{}[]()<>\"'", s.bytes[i])) return LITERAL_NONE;
    if (s.n == 0) return LITERAL_NONE;
    buffer_append_char(out, '"');
    literal_append_escaped(out, s.bytes, s.n);
    buffer_append_char(out, '"');
    return LITERAL_STRING;
}

static bool step_literal(struct tool_parser *p)
{
    bool ended;
    const char *at = p->held.data + p->num_scanned;
    p->num_scanned += literal_scan(&p->literal, at, p->held.num_bytes - p->num_scanned, &ended);
    if (!ended && p->num_scanned <= TOOL_VALUE_MAX) return false;
    enum literal_type type = LITERAL_NONE;
    if (ended) type = literal_to_json(p->held.data, p->num_scanned, p->format->quote, &p->out);
    if (ended && type == LITERAL_NONE && *p->format->quote)
        type = append_unquoted(p->held.data, p->num_scanned, &p->out);
    if (type == LITERAL_NONE) {
        break_call(p);
        return true;
    }
    emit_arguments(p);
    take(p, p->num_scanned);
    p->num_scanned = 0;
    p->state = AFTER_VALUE;
    return true;
}

/* The separator, when there is one, or the end. */
static bool step_after_value(struct tool_parser *p)
{
    const struct tool_format *f = p->format;
    if (*f->parameter_separator) {
        size_t at;
        if (!skip_spaces(p, &at)) return false;
        ssize_t n = match_text(f->parameter_separator, held_from(p, at), NULL);
        if (n == MATCH_MORE) return false;
        if (n >= 0) take(p, at + (size_t)n);
    }
    p->state = BEFORE_KEY;
    return true;
}

/* ---- the whole ---- */

/* False when more bytes are needed. */
static bool step(struct tool_parser *p)
{
    switch (p->state) {
    case IN_REASONING:
    case IN_TEXT:
        return step_plain(p);
    case AFTER_CALL:
        return step_after_call(p);
    case IN_JSON:
        return step_json(p);
    case IN_JSON_STRING:
        return step_json_string(p);
    case BEFORE_KEY:
        return step_before_key(p);
    case IN_STRING:
        return step_string(p);
    case IN_VALUE:
        return step_value(p);
    case IN_LITERAL:
        return step_literal(p);
    case AFTER_VALUE:
        return step_after_value(p);
    case AFTER_ARGUMENTS:
        return step_after_arguments(p);
    }
    return false;
}

static int run(struct tool_parser *p)
{
    while (!p->failed && p->held.num_bytes > 0 && step(p)) {
    }
    return p->failed ? STATUS_NO_MEMORY : 0;
}

int tool_parser_push(struct tool_parser *p, const char *bytes, size_t num_bytes)
{
    buffer_append(&p->held, bytes, num_bytes);
    if (buffer_failed(&p->held)) p->failed = true;
    return run(p);
}

/* The answer ended within a call: what is left of it. */
static void finish_call(struct tool_parser *p)
{
    if (p->state == AFTER_ARGUMENTS) {
        end_call(p, true, AFTER_CALL);
        return;
    }
    if (p->state == IN_JSON && p->json.depth == 0 && p->held.num_bytes == 0 && !p->is_cut) {
        emit(p, TOOL_ARGUMENTS, "{}", 2);
        end_call(p, true, AFTER_CALL);
        return;
    }
    bool is_value = p->state == IN_JSON || p->state == IN_VALUE || p->state == IN_LITERAL;
    if (is_value) emit_held(p, TOOL_ARGUMENTS, p->held.num_bytes);
    if (p->state == IN_JSON_STRING || p->is_cut) take(p, p->held.num_bytes);
    bool is_parameters = (p->state == BEFORE_KEY || p->state == AFTER_VALUE) && !p->is_cut;
    if (is_parameters && p->held.num_bytes == spaces_before(p, p->held.num_bytes) && !p->failed) {
        take(p, p->held.num_bytes);
        end_parameters(p, 0);
        end_call(p, true, AFTER_CALL);
        return;
    }
    break_call(p);
}

int tool_parser_finish(struct tool_parser *p, bool is_cut)
{
    p->is_whole = true;
    p->is_cut = is_cut;
    if (!is_cut) p->num_begun = 0;
    int status = run(p);
    if (tool_parser_in_call(p)) {
        finish_call(p);
        status = run(p);
    }
    return status;
}
