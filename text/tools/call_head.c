#include "text/tools/call_head.h"

#include <string.h>

#include "text/tools/tool_types.h"

/* A name that no tool has is held back no longer than the first; a call that is looked at whole, again with each of its bytes,
 * than the second. */
enum { UNKNOWN_NAME_MAX = 48, OBJECT_BYTES_MAX = 1 << 16 };

bool call_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("_-./", c)) || (c & 0x80);
}

static ssize_t match_name(const struct answer_view *v, size_t at)
{
    const char *name = v->held.bytes + at;
    size_t n = 0, left = v->held.num_bytes - at;
    while (n < left && n <= TOOL_NAME_MAX && call_name_byte(name[n])) n++;
    bool may_be_known = tool_any_begins(v->tools, name, n);
    if (n > (may_be_known ? (size_t)TOOL_NAME_MAX : (size_t)UNKNOWN_NAME_MAX)) return MATCH_NOT;
    if (v->format->is_bare && !may_be_known) return MATCH_NOT;
    if (n == left) return match_more(v->held);
    if (n == 0 || (v->format->is_bare && !tool_find(v->tools, name, n))) return MATCH_NOT;
    return (ssize_t)n;
}

const char *call_end_mark(const struct tool_format *f)
{
    return f->call_end + strspn(f->call_end, "}])` \n");
}

/* Whether the name in head is a tool's. */
static bool is_of_tool(const struct answer_view *v, const struct call_head *head)
{
    return tool_find(v->tools, v->held.bytes + head->name_at, head->name_bytes);
}

/* An object behind a fence that the format does not have: the fence's length, none included. */
static ssize_t match_fenced_object(const struct answer_view *v, size_t at, struct call_head *head)
{
    ssize_t fence = match_fence(span_from(v->held, at));
    if (fence <= 0) return fence;
    if (at + (size_t)fence == v->held.num_bytes) return match_more(v->held);
    head->is_fenced = true;
    return v->held.bytes[at + (size_t)fence] == '{' ? fence : MATCH_NOT;
}

/* What arguments that are one object begin with. There may be none, where the call ends, or the answer does. */
static ssize_t match_object_begin(const struct answer_view *v, size_t at, struct call_head *head)
{
    const struct tool_format *f = v->format;
    bool ends_itself = f->notation == ARGUMENTS_JSON && !*f->call_end && !f->is_bare;
    if (at == v->held.num_bytes) return ends_itself && is_of_tool(v, head) ? 0 : MATCH_NOT;
    ssize_t fence = match_fenced_object(v, at, head);
    if (fence != 0) return fence;
    if (v->held.bytes[at] == '{') return 0;
    if (v->held.bytes[at] == '"' && f->notation == ARGUMENTS_JSON_STRING) return 0;
    const char *call_end = head->end ? head->end : f->call_end;
    bool may_end = f->notation == ARGUMENTS_JSON && *call_end && !strchr("}]) \n", *call_end);
    ssize_t end = may_end ? match_text(call_end, span_from(v->held, at), NULL) : MATCH_NOT;
    return end < 0 ? end : 0;
}

/* What arguments begin with, so that a call is known to be one before it is announced. */
static ssize_t match_arguments_begin(const struct answer_view *v, size_t at, struct call_head *head)
{
    const struct tool_format *f = v->format;
    ssize_t spaces = match_spaces(span_from(v->held, at));
    if (spaces < 0) return spaces;
    if (spaces > MATCH_SPACES_MAX) return MATCH_NOT;
    if (f->notation != ARGUMENTS_TAGGED || head->has_bracket) {
        ssize_t n = match_object_begin(v, at + (size_t)spaces, head);
        return n < 0 ? n : spaces + n;
    }
    ssize_t key = match_text(f->key_begin, span_from(v->held, at + (size_t)spaces), NULL);
    ssize_t end = match_text(f->call_end, span_from(v->held, at + (size_t)spaces), NULL);
    if (key >= 0 || end >= 0) return 0;
    if (key == MATCH_MORE || end == MATCH_MORE) return MATCH_MORE;
    /* An object in place of parameters by themselves. */
    if (f->values != VALUES_RAW || !is_of_tool(v, head) || at + (size_t)spaces == v->held.num_bytes)
        return MATCH_NOT;
    if (v->held.bytes[at + (size_t)spaces] == '{') return spaces;
    ssize_t fence = match_fenced_object(v, at + (size_t)spaces, head);
    return fence > 0 ? spaces + fence : fence < 0 ? fence : MATCH_NOT;
}

/* begin NAME name_end and what must follow; the length up to the arguments. */
static ssize_t match_head(const struct answer_view *v, size_t at, const char *first, const char *begin,
                          const char *name_end, struct call_head *head)
{
    const char *parts[] = {first, begin};
    head->id.text[0] = '\0';
    for (int i = 0; i < 2; i++) {
        ssize_t n = match_text(parts[i], span_from(v->held, at), &head->id);
        if (n < 0) return n;
        at += (size_t)n;
        /* White space that the text ends with is still to be taken. */
        if (*parts[i]) {
            n = match_spaces(span_from(v->held, at));
            if (n < 0 || n > MATCH_SPACES_MAX) return n < 0 ? n : MATCH_NOT;
            at += (size_t)n;
        }
    }
    ssize_t name = match_name(v, at);
    if (name < 0) return name;
    head->name_at = at;
    head->name_bytes = (size_t)name;
    at += (size_t)name;
    ssize_t n = 0;
    if (*name_end == '<' || *name_end == '[') { /* a mark by itself */
        n = match_spaces(span_from(v->held, at));
        if (n < 0 || n > MATCH_SPACES_MAX) return n < 0 ? n : MATCH_NOT;
        at += (size_t)n;
    }
    n = match_text(name_end, span_from(v->held, at), &head->id);
    if (n < 0) return n;
    at += (size_t)n;
    n = match_arguments_begin(v, at, head);
    return n < 0 ? n : (ssize_t)(at + (size_t)n);
}

/* Whether a name that may go on can be a tool's, or one that a model has made up where that may stand. */
static bool may_be_name(const struct answer_view *v, struct slice name, bool is_whole, bool is_tools)
{
    for (size_t i = 0; i < name.n; i++)
        if (!call_name_byte(name.bytes[i])) return false;
    if (is_whole && tool_find(v->tools, name.bytes, name.n)) return true;
    if (!is_whole && tool_any_begins(v->tools, name.bytes, name.n)) return true;
    return !is_tools && name.n <= UNKNOWN_NAME_MAX;
}

/* An object that is a call, looked at whole. is_tools: its name must be a tool's. */
static ssize_t match_whole(const struct answer_view *v, size_t at, bool is_tools, struct call_head *head)
{
    head->is_object = false;
    struct call_object *o = &head->object;
    const struct span here = span_from(v->held, at);
    if (here.num_bytes == 0) return match_more(v->held);
    if (*here.bytes != '{') return MATCH_NOT;
    enum call_object_state state = call_object_read(here.bytes, here.num_bytes, o);
    if (state == CALL_OBJECT_NOT || o->num_bytes > OBJECT_BYTES_MAX) return MATCH_NOT;
    if (o->name.n > 0 && !may_be_name(v, o->name, o->name_is_whole, is_tools)) return MATCH_NOT;
    if (state == CALL_OBJECT_MORE) return match_more(v->held);
    head->is_object = true;
    head->name_at = (size_t)(o->name.bytes - v->held.bytes);
    head->name_bytes = o->name.n;
    return (ssize_t)o->num_bytes;
}

/* What models put in front of objects: a fence, the bracket of a list. */
static ssize_t match_wrapping(const struct answer_view *v, size_t at, struct call_head *head)
{
    ssize_t fence = match_fence(span_from(v->held, at));
    if (fence < 0) return fence;
    head->is_fenced = fence > 0;
    at += (size_t)fence;
    head->is_listed = at < v->held.num_bytes && v->held.bytes[at] == '[';
    if (!head->is_listed) return fence;
    ssize_t spaces = match_spaces(span_from(v->held, at + 1));
    return spaces < 0 ? spaces : fence + 1 + spaces;
}

/* first, begin up to its bracket, and such an object: the length of all. */
static ssize_t match_object(const struct answer_view *v, size_t at, const char *first, const char *begin,
                            struct call_head *head)
{
    const char *bracket = strchr(begin, '{');
    char front[TOOL_LITERAL_MAX + 1];
    if (!head->has_bracket) return MATCH_NOT;
    memcpy(front, begin, (size_t)(bracket - begin));
    front[bracket - begin] = '\0';
    const char *const parts[] = {first, front};
    for (int i = 0; i < 2; i++) {
        ssize_t n = match_text(parts[i], span_from(v->held, at), &head->id);
        if (n >= 0) at += (size_t)n;
        if (n >= 0 && *parts[i]) n = match_spaces(span_from(v->held, at));
        if (n < 0 || n > MATCH_SPACES_MAX) return n < 0 ? n : MATCH_NOT;
        if (*parts[i]) at += (size_t)n;
    }
    ssize_t wrapping = match_wrapping(v, at, head);
    if (wrapping < 0) return wrapping;
    ssize_t n = match_whole(v, at + (size_t)wrapping, v->format->is_bare, head);
    if (n >= 0 && v->format->is_bare && !head->object.has_arguments)
        return MATCH_NOT; /* any may have a name */
    return n < 0 ? n : (ssize_t)at + wrapping + n;
}

ssize_t call_head_match_next(const struct answer_view *v, size_t at, struct call_head *head)
{
    *head = (struct call_head){.name_at = 0};
    ssize_t n = match_whole(v, at, v->format->is_bare, head);
    if (n >= 0 && !is_of_tool(v, head)) return MATCH_NOT;
    return n < 0 ? n : (ssize_t)at + n;
}

/* Such an object with a tool's name, which has no arguments only where none are required. */
static ssize_t match_plain(const struct answer_view *v, size_t at, struct call_head *head)
{
    ssize_t n = match_whole(v, at, true, head);
    if (n < 0) return n;
    const struct cJSON *function = tool_find(v->tools, v->held.bytes + head->name_at, head->name_bytes);
    bool is_call = function && (head->object.has_arguments || !tool_requires_any(function));
    return is_call ? n : MATCH_NOT;
}

/* Whether from here on there are further such objects at most, and what ends a list or a fence. */
static ssize_t match_rest_alone(const struct answer_view *v, size_t at)
{
    struct call_head further;
    while (at < v->held.num_bytes) {
        const char c = v->held.bytes[at];
        ssize_t n = c == '{' ? match_plain(v, at, &further) : match_is_space(c) || (c && strchr(",;]`", c));
        if (n <= 0) return n < 0 ? n : MATCH_NOT;
        at += (size_t)n;
    }
    return v->held.is_whole ? 0 : MATCH_MORE;
}

ssize_t call_head_match_alone(const struct answer_view *v, size_t at, struct call_head *head)
{
    *head = (struct call_head){.name_at = 0};
    if (!v->tools) return MATCH_NOT;
    ssize_t wrapping = match_wrapping(v, at, head);
    ssize_t n = wrapping < 0 ? wrapping : match_plain(v, at + (size_t)wrapping, head);
    if (n < 0) return n;
    ssize_t rest = match_rest_alone(v, at + (size_t)(wrapping + n));
    return rest < 0 ? rest : wrapping + n;
}

/* As the format has it, or else as an object with other keys. */
static ssize_t match_begin(const struct answer_view *v, size_t at, const char *first, const char *begin,
                           const char *name_end, struct call_head *head)
{
    head->is_object = head->is_fenced = head->is_listed = false;
    bool is_tagged = begin == v->format->call_begin && v->format->notation == ARGUMENTS_TAGGED;
    head->has_bracket = strchr(begin, '{') && !is_tagged;
    ssize_t n = match_head(v, at, first, begin, name_end, head);
    return n == MATCH_NOT ? match_object(v, at, first, begin, head) : n;
}

ssize_t call_head_match(const struct answer_view *v, size_t at, const char *first, bool may_be_bare,
                        struct call_head *head)
{
    const struct tool_format *f = v->format;
    ssize_t n = MATCH_NOT;
    head->end = NULL;
    if (!v->tools) return MATCH_NOT;
    if (may_be_bare || !f->is_bare) n = match_begin(v, at, first, f->call_begin, f->name_end, head);
    for (int i = 0; i < f->num_others && n == MATCH_NOT; i++) {
        const struct other_begin *o = &f->others[i];
        if (!may_be_bare && f->is_bare && *o->begin != '<') continue;
        head->end = o->end;
        n = match_begin(v, at, o->in_section ? first : "", o->begin, o->name_end, head);
        if (n >= 0 && o->needs_tool && !is_of_tool(v, head)) n = MATCH_NOT;
    }
    return n;
}
