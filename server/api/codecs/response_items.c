#include "server/api/codecs/response_items.h"

#include <string.h>

enum { OUTPUT_BYTES_MAX = 64 << 20 };

void response_output_init(struct response_output *o)
{
    struct buffer *const buffers[] = {&o->items, &o->said, &o->reasoning, &o->calls};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) buffer_init(buffers[i], OUTPUT_BYTES_MAX);
    o->num_items = 0;
}

void response_output_deinit(struct response_output *o)
{
    buffer_deinit(&o->items);
    buffer_deinit(&o->said);
    buffer_deinit(&o->reasoning);
    buffer_deinit(&o->calls);
}

bool response_output_failed(const struct response_output *o)
{
    return buffer_failed(&o->items) || buffer_failed(&o->said) || buffer_failed(&o->reasoning) ||
           buffer_failed(&o->calls);
}

/* ---- an item ---- */

void response_item_append_id(struct buffer *out, const struct answer *a, const struct response_item *item)
{
    static const char *const prefixes[] = {
        [PIECE_TEXT] = "msg", [PIECE_REASONING] = "rs", [PIECE_CALL] = "fc", [PIECE_ARGUMENTS] = "fc"};
    buffer_printf(out, "\"%s_%s_%d\"", prefixes[item->kind], a->id + strlen(a->codec->id_prefix),
                  item->index);
}

void response_item_append_part(struct buffer *out, const struct response_item *item, const char *text,
                               size_t n, const struct logprobs_part *logprobs)
{
    if (item->kind == PIECE_REASONING) {
        buffer_append_text(out, "{\"type\":\"reasoning_text\",\"text\":");
    } else {
        buffer_append_text(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":");
        if (logprobs)
            logprobs_append_entries(out, logprobs);
        else
            buffer_append_text(out, "[]");
        buffer_append_text(out, ",\"text\":");
    }
    buffer_append_json(out, text, n);
    buffer_append_char(out, '}');
}

static void append_call_members(struct buffer *out, const struct answer *a, const struct response_item *item,
                                const struct buffer *arguments)
{
    buffer_append_text(out, ",\"type\":\"function_call\",\"call_id\":");
    codec_append_call_id(out, a, &a->choices[0], &item->call);
    buffer_append_text(out, ",\"name\":");
    buffer_append_json_text(out, item->call.name);
    buffer_append_text(out, ",\"arguments\":");
    buffer_append_json(out, arguments ? arguments->data : "", arguments ? arguments->num_bytes : 0);
}

static void append_text_members(struct buffer *out, const struct response_item *item,
                                const struct buffer *text, const struct logprobs_part *logprobs)
{
    buffer_append_text(out, item->kind == PIECE_REASONING
                                ? ",\"type\":\"reasoning\",\"summary\":[],\"content\":["
                                : ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
    if (text) response_item_append_part(out, item, text->data, text->num_bytes, logprobs);
    buffer_append_char(out, ']');
}

void response_item_append(struct buffer *out, const struct answer *a, const struct response_item *item,
                          const char *status, const struct buffer *text, const struct logprobs_part *logprobs)
{
    buffer_append_text(out, "{\"id\":");
    response_item_append_id(out, a, item);
    if (item->kind == PIECE_ARGUMENTS)
        append_call_members(out, a, item, text);
    else
        append_text_members(out, item, text, logprobs);
    buffer_printf(out, ",\"status\":\"%s\"}", status);
}

/* ---- the output ---- */

static void append_canonical_call(struct buffer *out, const struct answer *a, const struct call *call,
                                  const struct buffer *arguments)
{
    if (out->num_bytes > 0) buffer_append_char(out, ',');
    buffer_append_text(out, "{\"type\":\"function\",\"id\":");
    codec_append_call_id(out, a, &a->choices[0], call);
    buffer_append_text(out, ",\"function\":{\"name\":");
    buffer_append_json_text(out, call->name);
    buffer_append_text(out, ",\"arguments\":");
    buffer_append_json(out, arguments->data, arguments->num_bytes);
    buffer_append_text(out, "}}");
}

void response_output_add(struct response_output *o, const struct answer *a, const struct response_item *item,
                         const char *status, const struct buffer *text, const struct logprobs_part *logprobs)
{
    if (o->num_items++ > 0) buffer_append_char(&o->items, ',');
    response_item_append(&o->items, a, item, status, text, logprobs);
    if (item->kind == PIECE_ARGUMENTS)
        append_canonical_call(&o->calls, a, &item->call, text);
    else
        buffer_append(item->kind == PIECE_REASONING ? &o->reasoning : &o->said, text->data, text->num_bytes);
}

static void add_pieces(struct response_output *o, const struct answer *a, enum piece_kind kind, int call_idx,
                       const char *status)
{
    const struct pieces *p = a->choices[0].pieces;
    struct response_item item = {.kind = kind, .index = o->num_items};
    if (call_idx >= 0) item.call = p->calls[call_idx];
    struct buffer text;
    buffer_init(&text, OUTPUT_BYTES_MAX);
    pieces_collect(p, kind, call_idx, &text);
    if (text.num_bytes > 0 || call_idx >= 0) response_output_add(o, a, &item, status, &text, NULL);
    if (buffer_failed(&text)) o->items.failed = true;
    buffer_deinit(&text);
}

void response_output_add_all(struct response_output *o, const struct answer *a, const char *status,
                             const struct logprobs_part *logprobs)
{
    const struct choice *c = &a->choices[0];
    const struct response_item message = {.kind = PIECE_TEXT};
    if (c->pieces) {
        add_pieces(o, a, PIECE_REASONING, -1, status);
        add_pieces(o, a, PIECE_TEXT, -1, status);
        for (int i = 0; i < c->pieces->num_calls; i++) add_pieces(o, a, PIECE_ARGUMENTS, i, status);
    }
    if (o->num_items == 0)
        response_output_add(o, a, &message, status, c->pieces ? &o->said : &c->ready, logprobs);
}

void response_output_append_message(struct buffer *out, const struct response_output *o)
{
    buffer_append_text(out, "{\"role\":\"assistant\",\"content\":");
    if (o->said.num_bytes > 0 || o->calls.num_bytes == 0) {
        buffer_append_text(out, "[{\"type\":\"text\",\"text\":");
        buffer_append_json(out, o->said.data, o->said.num_bytes);
        buffer_append_text(out, "}]");
    } else {
        buffer_append_text(out, "null");
    }
    if (o->reasoning.num_bytes > 0) {
        buffer_append_text(out, ",\"reasoning_content\":");
        buffer_append_json(out, o->reasoning.data, o->reasoning.num_bytes);
    }
    if (o->calls.num_bytes > 0) {
        buffer_append_text(out, ",\"tool_calls\":[");
        buffer_append(out, o->calls.data, o->calls.num_bytes);
        buffer_append_char(out, ']');
    }
    buffer_append_char(out, '}');
}
