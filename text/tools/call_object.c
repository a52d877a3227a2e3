#include "text/tools/call_object.h"

#include <string.h>

#include "text/tools/match.h"

enum { KEY_BYTES_MAX = 16 };

struct reader {
    const char *at, *end;
    struct call_object *out;
    bool is_inner; /* within "function" */
};

static void skip_spaces(struct reader *r)
{
    while (r->at < r->end && match_is_space(*r->at)) r->at++;
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'';
}

/* At the opening quote, JSON's or Python's: what stands in front of the closing one, which is taken. */
static enum call_object_state read_string(struct reader *r, struct slice *out)
{
    const char quote = *r->at++, *begin = r->at;
    if (quote == '\'') r->out->is_python = true;
    for (; r->at < r->end && *r->at != quote; r->at++)
        if (*r->at == '\\' && ++r->at == r->end) break;
    *out = slice_of(begin, r->at);
    return r->at++ < r->end ? CALL_OBJECT_WHOLE : CALL_OBJECT_MORE;
}

/* An object or a list, by its brackets alone; the first of them is there. */
static enum call_object_state skip_brackets(struct reader *r)
{
    struct slice text;
    int depth = 0;
    while (r->at < r->end) {
        char c = *r->at;
        if (is_quote(c) && read_string(r, &text) != CALL_OBJECT_WHOLE) return CALL_OBJECT_MORE;
        r->at += !is_quote(c);
        if (c == '{' || c == '[') depth++;
        if ((c == '}' || c == ']') && --depth == 0) return CALL_OBJECT_WHOLE;
    }
    return CALL_OBJECT_MORE;
}

static enum call_object_state skip_word(struct reader *r)
{
    const char *begin = r->at;
    while (r->at < r->end && !match_is_space(*r->at) && (!*r->at || !strchr(",}]:\"'{[", *r->at))) r->at++;
    if (r->at == r->end) return CALL_OBJECT_MORE;
    return r->at > begin ? CALL_OBJECT_WHOLE : CALL_OBJECT_NOT;
}

static bool is(struct slice key, const char *text)
{
    return slice_equal(key, slice_text(text));
}

static enum call_object_state read_object(struct reader *r);

static enum call_object_state read_name(struct reader *r)
{
    if (!is_quote(*r->at) || r->out->name.n > 0) return CALL_OBJECT_NOT;
    enum call_object_state state = read_string(r, &r->out->name);
    r->out->name_is_whole = state == CALL_OBJECT_WHOLE;
    return state;
}

static enum call_object_state read_arguments(struct reader *r)
{
    struct slice *out = &r->out->arguments;
    const char *begin = r->at;
    enum call_object_state state;
    if (r->out->has_arguments) return CALL_OBJECT_NOT;
    r->out->has_arguments = true;
    if (is_quote(*r->at)) {
        r->out->is_string = true;
        return read_string(r, out);
    }
    if (*r->at == '{') {
        state = skip_brackets(r);
        *out = slice_of(begin, r->at);
        return state;
    }
    state = skip_word(r);
    const struct slice word = slice_of(begin, r->at);
    return state != CALL_OBJECT_WHOLE || is(word, "null") || is(word, "None") ? state : CALL_OBJECT_NOT;
}

/* Its first byte is there. */
static enum call_object_state read_value(struct reader *r, struct slice key)
{
    struct slice text;
    if (is(key, "name") || is(key, "tool_name")) return read_name(r);
    if (is(key, "arguments") || is(key, "parameters")) return read_arguments(r);
    if (is(key, "function") && *r->at == '{' && !r->is_inner) {
        r->is_inner = true;
        enum call_object_state state = read_object(r);
        r->is_inner = false;
        return state;
    }
    if (is(key, "function")) return read_name(r);
    if (!is(key, "type") && !is(key, "id") && !is(key, "index")) return CALL_OBJECT_NOT;
    if (!is_quote(*r->at)) return skip_word(r);
    return read_string(r, &text);
}

static enum call_object_state read_member(struct reader *r)
{
    struct slice key;
    if (!is_quote(*r->at)) return CALL_OBJECT_NOT;
    enum call_object_state state = read_string(r, &key);
    if (key.n > KEY_BYTES_MAX) return CALL_OBJECT_NOT;
    if (state != CALL_OBJECT_WHOLE) return state;
    skip_spaces(r);
    if (r->at < r->end && *r->at++ != ':') return CALL_OBJECT_NOT;
    skip_spaces(r);
    return r->at < r->end ? read_value(r, key) : CALL_OBJECT_MORE;
}

static enum call_object_state read_object(struct reader *r)
{
    for (r->at++;; r->at++) { /* the bracket, then commas */
        skip_spaces(r);
        if (r->at == r->end) return CALL_OBJECT_MORE;
        enum call_object_state state = read_member(r);
        if (state != CALL_OBJECT_WHOLE) return state;
        skip_spaces(r);
        if (r->at == r->end) return CALL_OBJECT_MORE;
        if (*r->at == '}') break;
        if (*r->at != ',') return CALL_OBJECT_NOT;
    }
    r->at++;
    return CALL_OBJECT_WHOLE;
}

enum call_object_state call_object_read(const char *text, size_t num_bytes, struct call_object *out)
{
    struct reader r = {.at = text, .end = text + num_bytes, .out = out};
    *out = (struct call_object){.name = {"", 0}, .arguments = {"", 0}};
    enum call_object_state state = read_object(&r);
    out->num_bytes = (size_t)(r.at - text);
    bool is_call = out->name.n > 0 && !memchr(out->name.bytes, '\\', out->name.n);
    return state == CALL_OBJECT_WHOLE && !is_call ? CALL_OBJECT_NOT : state;
}
