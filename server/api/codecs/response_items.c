#include "server/api/codecs/response_items.h"

#include <string.h>

#include "server/api/codecs/responses.h"

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

/* ---- log probabilities ---- */

void response_logprobs_add(struct buffer *logprobs, const struct logprobs_part *part)
{
    size_t seam = logprobs->num_bytes;
    logprobs_append_entries(logprobs, part);
    if (seam == 0 || buffer_failed(logprobs)) return;
    char *bytes = logprobs->data; /* "][" becomes a comma */
    bytes[seam - 1] = ',';
    memmove(bytes + seam, bytes + seam + 1, logprobs->num_bytes - seam - 1);
    logprobs->num_bytes--;
}

void response_logprobs_append(struct buffer *out, const struct buffer *logprobs)
{
    buffer_append_text(out, ",\"logprobs\":");
    if (logprobs->num_bytes > 0)
        buffer_append(out, logprobs->data, logprobs->num_bytes);
    else
        buffer_append_text(out, "[]");
}

/* ---- an item ---- */

void response_item_append_id(struct buffer *out, const struct answer *a, const struct response_item *item)
{
    static const char *const prefixes[] = {
        [PIECE_TEXT] = "msg", [PIECE_REASONING] = "rs", [PIECE_CALL] = "fc", [PIECE_ARGUMENTS] = "fc"};
    bool is_custom = item->kind == PIECE_ARGUMENTS && item->call.is_custom;
    buffer_printf(out, "\"%s_%s_%d\"", is_custom ? "ctc" : prefixes[item->kind],
                  a->id + strlen(a->codec->id_prefix), item->index);
}

void response_item_append_part(struct buffer *out, const struct response_item *item, const char *text,
                               size_t n, const struct buffer *logprobs)
{
    if (item->kind == PIECE_REASONING) {
        buffer_append_text(out, "{\"type\":\"reasoning_text\",\"text\":");
    } else {
        buffer_append_text(out, "{\"type\":\"output_text\",\"annotations\":[]");
        response_logprobs_append(out, logprobs);
        buffer_append_text(out, ",\"text\":");
    }
    buffer_append_json(out, text, n);
    buffer_append_char(out, '}');
}

/* NULL: the call is of a tool of no namespace. */
static const struct namespaced_tool *find_namespaced(const struct answer *a, const struct call *call)
{
    const struct responses_request *request = a->context->params->kept;
    return response_namespaces_find(request->namespaced, call->name);
}

static void append_namespace(struct buffer *out, const struct namespaced_tool *own)
{
    if (!own) return;
    buffer_append_text(out, ",\"namespace\":");
    buffer_append_json_text(out, own->space);
}

void response_item_append_name(struct buffer *out, const struct answer *a, const struct call *call,
                               bool tells_space)
{
    const struct namespaced_tool *own = find_namespaced(a, call);
    buffer_append_text(out, ",\"name\":");
    buffer_append_json_text(out, own ? own->name : call->name);
    if (tells_space) append_namespace(out, own);
}

static void append_call_members(struct buffer *out, const struct answer *a, const struct response_item *item,
                                const struct buffer *arguments)
{
    bool is_custom = item->call.is_custom;
    buffer_printf(out, ",\"type\":\"%s\",\"call_id\":", is_custom ? "custom_tool_call" : "function_call");
    codec_append_call_id(out, a, &a->choices[0], &item->call);
    response_item_append_name(out, a, &item->call, true);
    buffer_printf(out, ",\"%s\":", is_custom ? "input" : "arguments");
    buffer_append_json(out, arguments ? arguments->data : "", arguments ? arguments->num_bytes : 0);
}

static void append_text_members(struct buffer *out, const struct response_item *item,
                                const struct buffer *text, const struct buffer *logprobs)
{
    buffer_append_text(out, item->kind == PIECE_REASONING
                                ? ",\"type\":\"reasoning\",\"summary\":[],\"content\":["
                                : ",\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
    if (text) response_item_append_part(out, item, text->data, text->num_bytes, logprobs);
    buffer_append_char(out, ']');
}

const char *response_item_status(const struct answer *a, const struct response_item *item, const char *status)
{
    const struct pieces *p = a->choices[0].pieces;
    bool breaks_off = p && item->kind == PIECE_ARGUMENTS && p->calls[item->call.index].breaks_off;
    return breaks_off ? "incomplete" : status;
}

void response_item_append(struct buffer *out, const struct answer *a, const struct response_item *item,
                          const char *status, const struct buffer *text, const struct buffer *logprobs)
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

/* As the model wrote them: the text of a custom tool is an argument. */
static void append_canonical_arguments(struct buffer *out, const struct call *call,
                                       const struct buffer *arguments)
{
    struct buffer object;
    if (!call->is_custom) {
        buffer_append_json(out, arguments->data, arguments->num_bytes);
        return;
    }
    buffer_init(&object, OUTPUT_BYTES_MAX);
    buffer_append_text(&object, "{\"input\":");
    buffer_append_json(&object, arguments->data, arguments->num_bytes);
    buffer_append_char(&object, '}');
    buffer_append_json(out, object.data, object.num_bytes);
    if (buffer_failed(&object)) out->failed = true;
    buffer_deinit(&object);
}

static void append_canonical_call(struct buffer *out, const struct answer *a, const struct call *call,
                                  const struct buffer *arguments)
{
    if (out->num_bytes > 0) buffer_append_char(out, ',');
    buffer_append_text(out, "{\"type\":\"function\",\"id\":");
    codec_append_call_id(out, a, &a->choices[0], call);
    buffer_append_text(out, ",\"function\":{\"name\":");
    buffer_append_json_text(out, call->name);
    buffer_append_text(out, ",\"arguments\":");
    append_canonical_arguments(out, call, arguments);
    buffer_append_char(out, '}');
    append_namespace(out, find_namespaced(a, call));
    buffer_append_char(out, '}');
}

void response_output_add(struct response_output *o, const struct answer *a, const struct response_item *item,
                         const char *status, const struct buffer *text, const struct buffer *logprobs)
{
    if (o->num_items++ > 0) buffer_append_char(&o->items, ',');
    response_item_append(&o->items, a, item, status, text, logprobs);
    if (item->kind == PIECE_ARGUMENTS)
        append_canonical_call(&o->calls, a, &item->call, text);
    else
        buffer_append(item->kind == PIECE_REASONING ? &o->reasoning : &o->said, text->data, text->num_bytes);
}

static const struct buffer no_logprobs; /* of pieces: their tokens are of all of them together */

static void add_piece(struct response_output *o, const struct answer *a, const struct piece *piece,
                      const struct buffer *bytes, const char *status)
{
    bool is_call = piece->kind == PIECE_CALL;
    struct response_item item = {.kind = is_call ? PIECE_ARGUMENTS : piece->kind, .index = o->num_items};
    if (is_call) item.call = a->choices[0].pieces->calls[piece->call_idx];
    response_output_add(o, a, &item, response_item_status(a, &item, status), bytes, &no_logprobs);
}

void response_output_add_all(struct response_output *o, const struct answer *a, const char *status,
                             const struct buffer *logprobs)
{
    const struct choice *c = &a->choices[0];
    const struct response_item message = {.kind = PIECE_TEXT};
    struct piece piece, next_piece;
    struct buffer bytes, next_bytes;
    int at = 0;
    bool more = c->pieces && pieces_next_item(c->pieces, &at, &next_piece, &next_bytes);
    while (more) {
        piece = next_piece;
        bytes = next_bytes;
        more = pieces_next_item(c->pieces, &at, &next_piece, &next_bytes);
        add_piece(o, a, &piece, &bytes, more ? "completed" : status);
    }
    if (o->num_items == 0)
        response_output_add(o, a, &message, status, c->pieces ? &o->said : &c->ready,
                            c->pieces ? &no_logprobs : logprobs);
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
