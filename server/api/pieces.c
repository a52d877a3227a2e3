#include "server/api/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/custom_tools.h"

enum { PIECES_BYTES_MAX = 64 << 20, CALLS_MAX = 1024 };

static void fail(struct pieces *p)
{
    p->failed = true;
}

/* ---- what the parser says ---- */

static void add_piece(struct pieces *p, enum piece_kind kind, const char *bytes, size_t n)
{
    size_t begin = p->bytes.num_bytes;
    struct piece *last = p->count > 0 ? &p->items[p->count - 1] : NULL;
    buffer_append(&p->bytes, bytes, n);
    if (last && last->kind == kind && kind != PIECE_CALL && last->call_idx == p->num_calls - 1) {
        last->end = p->bytes.num_bytes;
        return;
    }
    if (p->count == p->capacity) {
        int capacity = max_of(2 * p->capacity, 4);
        struct piece *items = realloc(p->items, (size_t)capacity * sizeof *items);
        if (!items) {
            fail(p);
            return;
        }
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->count++] = (struct piece){kind, p->num_calls - 1, begin, p->bytes.num_bytes};
}

static void add_call(struct pieces *p, const struct tool_event *e)
{
    struct call *calls = realloc(p->calls, ((size_t)p->num_calls + 1) * sizeof *calls);
    if (!calls || p->num_calls == CALLS_MAX) {
        if (calls) p->calls = calls;
        fail(p);
        return;
    }
    p->calls = calls;
    struct call *call = &calls[p->num_calls];
    *call = (struct call){.index = p->num_calls};
    memcpy(call->name, e->bytes, min_of(e->num_bytes, sizeof call->name - 1));
    memcpy(call->id, e->id, min_of(strlen(e->id), sizeof call->id - 1));
    call->is_custom = custom_tools_find(p->tools, call->name);
    p->num_calls++;
    add_piece(p, PIECE_CALL, "", 0);
}

static void add_arguments(struct pieces *p, const struct tool_event *e)
{
    struct call *call = &p->calls[p->num_calls - 1];
    struct buffer text;
    if (!call->is_custom) {
        add_piece(p, PIECE_ARGUMENTS, e->bytes, e->num_bytes);
        return;
    }
    buffer_init(&text, PIECES_BYTES_MAX);
    custom_input_take(&call->input, e->bytes, e->num_bytes, &text);
    if (buffer_failed(&text)) fail(p);
    if (text.num_bytes > 0) add_piece(p, PIECE_ARGUMENTS, text.data, text.num_bytes);
    buffer_deinit(&text);
}

static void on_event(void *context, const struct tool_event *e)
{
    struct pieces *p = context;
    if (p->failed) return;
    switch (e->kind) {
    case TOOL_TEXT:
        add_piece(p, PIECE_TEXT, e->bytes, e->num_bytes);
        break;
    case TOOL_REASONING:
        if (!p->hides_reasoning) add_piece(p, PIECE_REASONING, e->bytes, e->num_bytes);
        break;
    case TOOL_CALL_BEGIN:
        p->skips = p->num_calls > 0 && !p->is_parallel;
        if (!p->skips) add_call(p, e);
        break;
    case TOOL_ARGUMENTS:
        if (!p->skips) add_arguments(p, e);
        break;
    case TOOL_CALL_END:
        if (!p->skips) p->calls[p->num_calls - 1].breaks_off = !e->is_complete;
        break;
    }
}

/* ---- the public face ---- */

struct pieces *pieces_create(const struct tool_format *f, const cJSON *tools, enum tool_reasoning reasoning,
                             bool is_parallel)
{
    struct pieces *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->format = f;
    p->tools = tools;
    p->is_parallel = is_parallel;
    buffer_init(&p->bytes, PIECES_BYTES_MAX);
    if (tool_parser_new(f, tools, reasoning, on_event, p, &p->parser) == 0) return p;
    pieces_free(p);
    return NULL;
}

void pieces_free(struct pieces *p)
{
    if (!p) return;
    tool_parser_free(p->parser);
    buffer_deinit(&p->bytes);
    free(p->items);
    free(p->calls);
    free(p);
}

void pieces_take(struct pieces *p, struct buffer *text, bool is_last, bool is_cut)
{
    if (p->finished) return;
    if (text->num_bytes > 0 && tool_parser_push(p->parser, text->data, text->num_bytes) != 0) fail(p);
    if (is_last && tool_parser_finish(p->parser, is_cut) != 0) fail(p);
    p->finished = is_last;
    if (buffer_failed(text)) fail(p);
    buffer_clear(text);
    if (buffer_failed(&p->bytes)) fail(p);
}

void pieces_consume(struct pieces *p, size_t n)
{
    bool is_whole = n == p->items[0].end;
    buffer_consume(&p->bytes, n);
    if (is_whole) memmove(p->items, p->items + 1, (size_t)--p->count * sizeof *p->items);
    for (int i = 0; i < p->count; i++) {
        p->items[i].begin -= min_of(n, p->items[i].begin);
        p->items[i].end -= n;
    }
}

bool pieces_next_item(const struct pieces *p, int *at, struct piece *out, struct buffer *bytes)
{
    while (*at < p->count) {
        *out = p->items[(*at)++];
        if (out->kind == PIECE_CALL)
            while (*at < p->count && p->items[*at].kind == PIECE_ARGUMENTS) out->end = p->items[(*at)++].end;
        *bytes = (struct buffer){.num_bytes = out->end - out->begin};
        if (bytes->num_bytes > 0) bytes->data = p->bytes.data + out->begin;
        if (out->kind == PIECE_CALL || bytes->num_bytes > 0) return true;
    }
    return false;
}

bool pieces_have(const struct pieces *p, enum piece_kind kind)
{
    for (int i = 0; i < p->count; i++)
        if (p->items[i].kind == kind) return true;
    return false;
}

void pieces_collect(const struct pieces *p, enum piece_kind kind, int call_idx, struct buffer *out)
{
    for (int i = 0; i < p->count; i++) {
        const struct piece *piece = &p->items[i];
        bool is_other_call = kind == PIECE_ARGUMENTS && piece->call_idx != call_idx;
        if (piece->kind == kind && !is_other_call && piece->end > piece->begin)
            buffer_append(out, p->bytes.data + piece->begin, piece->end - piece->begin);
    }
}

bool pieces_call(const struct pieces *p)
{
    return p->num_calls > 0 && !p->calls[p->num_calls - 1].breaks_off;
}

bool pieces_want(const struct pieces *p, const char *text, size_t num_bytes)
{
    return tool_format_mentions(p->format, text, num_bytes);
}
