#include "server/api/codec.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include "base/clock.h"
#include "server/api/codecs/canonical.h"
#include "server/api/custom_tools.h"
#include "server/api/json_gate.h"

const struct codec *const all_codecs[NUM_CODECS] = {
    &codec_chat,
    &codec_completions,
    &codec_messages,
    &codec_responses,
    &codec_ollama_chat,
    &codec_ollama_generate,
    &codec_ollama_embed,
    &codec_ollama_embeddings,
    &codec_embeddings,
    &codec_score,
    &codec_rerank,
    &codec_llama_completion,
    &codec_llama_infill,
    &codec_llama_embedding,
    &codec_cohere_embed,
    &codec_cohere_embed_v1,
    &codec_embed_rows,
    &codec_text_generation,
    &codec_text_generation_stream,
    &codec_text_generation_root,
};

/* ---- fields in ---- */

int codec_put(struct translation *t, cJSON *object, const char *name, cJSON *item)
{
    cJSON_DeleteItemFromObjectCaseSensitive(object, name);
    if (item && cJSON_AddItemToObject(object, name, item)) return 0;
    cJSON_Delete(item);
    return api_error_no_memory(t->err);
}

static int take_field(struct translation *t, const struct codec_field *f)
{
    cJSON *value = cJSON_DetachItemFromObjectCaseSensitive(t->body, f->name);
    if (value && !cJSON_IsNull(value) && f->canonical) return codec_put(t, t->body, f->canonical, value);
    int status = value && !cJSON_IsNull(value) && f->read ? f->read(t, value) : 0;
    cJSON_Delete(value);
    return status;
}

/* The member that a path begins with. */
static const cJSON *find_outermost(const cJSON *body, const char *path)
{
    char member[64];
    snprintf(member, sizeof member, "%.*s", (int)strcspn(path, ".["), path);
    return cJSON_GetObjectItemCaseSensitive(body, member);
}

/* Those of codec's names that the client went past by sending the canonical member itself, or another name's. */
static uint32_t find_unused_names(const struct codec *codec, const cJSON *body)
{
    uint32_t unused = 0;
    for (int i = 0; codec->names && codec->names[i].name; i++) {
        const struct codec_name *n = &codec->names[i];
        const cJSON *own = find_outermost(body, n->name), *canonical = find_outermost(body, n->canonical);
        if ((canonical && canonical != own) || (n->if_sent && !own)) unused |= 1u << i;
    }
    return unused;
}

int codec_translate(const struct codec *codec, struct translation *t)
{
    t->unused_names = find_unused_names(codec, t->body);
    int status = codec->begin ? codec->begin(t) : 0;
    for (const struct codec_field *f = codec->fields; f && f->name && status == 0; f++)
        status = take_field(t, f);
    if (status == 0 && codec->translate) status = codec->translate(t);
    if (status == 0) status = canonical_join_reasoning(t);
    if (status == 0 && t->messages)
        status = codec_put(t, t->body, "messages", t->messages);
    else
        cJSON_Delete(t->messages);
    return status || !codec->tells_custom ? status : custom_tools_become_functions(t);
}

void translation_warn(struct translation *t, const char *format, ...)
{
    size_t n = strlen(t->warnings), room = sizeof t->warnings - n;
    va_list args;
    va_start(args, format);
    if (n > 0) n += (size_t)snprintf(t->warnings + n, room, "; ");
    if (n < sizeof t->warnings) vsnprintf(t->warnings + n, sizeof t->warnings - n, format, args);
    va_end(args);
}

cJSON *translation_messages(struct translation *t)
{
    if (!t->messages) t->messages = cJSON_CreateArray();
    return t->messages;
}

/* How much of path is name, or 0: path is neither that nor something inside it. */
static size_t num_chars_of(const char *path, const char *name)
{
    const char *at = path;
    for (; *name; name++, at++) {
        if (*name == ']' && name[-1] == '[') at += strspn(at, "0123456789"); /* any place in an array */
        if (*at != *name) return 0;
    }
    return !*at || strchr(".[ :", *at) ? (size_t)(at - path) : 0;
}

/* name instead of the canonical one at the beginning of text, with the same place in an array. */
static void rename_start(char *text, size_t capacity, const char *canonical, const char *name)
{
    char renamed[sizeof((struct api_error *)NULL)->text];
    size_t n = num_chars_of(text, canonical), before = strcspn(name, "]");
    if (n == 0) return;
    const char *place = name[before] ? strchr(text, '[') + 1 : "";
    snprintf(renamed, sizeof renamed, "%.*s%.*s%s%s", (int)before, name, (int)strspn(place, "0123456789"),
             place, name + before, text + n);
    snprintf(text, capacity, "%s", renamed);
}

/* Whether it was about this member. */
static bool rename_error(struct api_error *err, const char *canonical, const char *name)
{
    if (!canonical || num_chars_of(err->param, canonical) == 0) return false;
    rename_start(err->param, sizeof err->param, canonical, name);
    rename_start(err->text, sizeof err->text, canonical, name);
    return true;
}

/* "path ..." instead of "tools[i] ...", of which start has num_chars. */
static void replace_start(char *text, size_t capacity, const char *start, size_t num_chars, const char *path)
{
    char replaced[sizeof((struct api_error *)NULL)->text];
    if (strncmp(text, start, num_chars) != 0) return;
    snprintf(replaced, sizeof replaced, "%s%s", path, text + num_chars);
    snprintf(text, capacity, "%s", replaced);
}

static void place_tool(const struct translation *t)
{
    const struct tool_place *place = t->tool_places;
    struct api_error *err = t->err;
    char start[32];
    int index, n = 0;
    if (sscanf(err->param, "tools[%d]%n", &index, &n) != 1 || n == 0) return;
    while (place && place->index != index) place = place->next;
    if (!place) return;
    snprintf(start, sizeof start, "%.*s", n, err->param);
    replace_start(err->text, sizeof err->text, start, (size_t)n, place->path);
    replace_start(err->param, sizeof err->param, start, (size_t)n, place->path);
}

static void name_error(const struct codec *codec, const struct translation *t)
{
    for (int i = 0; codec->names && codec->names[i].name; i++)
        if (!(t->unused_names >> i & 1) &&
            rename_error(t->err, codec->names[i].canonical, codec->names[i].name))
            return;
    for (const struct codec_field *f = codec->fields; f && f->name; f++)
        if (rename_error(t->err, f->canonical, f->name)) return;
}

void codec_name_error(const struct codec *codec, const struct translation *t)
{
    name_error(codec, t);
    place_tool(t);
}

/* ---- events out ---- */

void codec_begin_event(struct buffer *out, const char *name)
{
    buffer_printf(out, "event: %s\ndata: {\"type\":\"%s\"", name, name);
}

void codec_end_event(struct buffer *out)
{
    buffer_append_text(out, "}\n\n");
}

/* Line breaks of JSON to the letter stand between its tokens; they would end a frame of Server-Sent Events, or a line. */
static void append_in_one_line(struct buffer *out, const char *json, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t part = 0;
        while (at + part < n && json[at + part] != '\n' && json[at + part] != '\r') part++;
        buffer_append(out, json + at, part);
        at += part;
        if (at < n) buffer_append(out, " ", 1);
        at++;
    }
}

/* As the model wrote them where that is JSON to the letter, in one line. cJSON takes more than that: line breaks in a string, what
 * stands behind the object. */
static void append_object(struct buffer *out, const char *text, size_t n, const cJSON *object)
{
    static const struct json_gate_limits any = {JSON_GATE_DEPTH_MAX, INT_MAX, INT_MAX};
    struct error why = {0};
    bool is_json = json_gate_check(text, n, &any, &why) == 0;
    char *printed = is_json ? NULL : cJSON_PrintUnformatted(object);
    if (is_json)
        append_in_one_line(out, text, n);
    else if (printed)
        buffer_append_text(out, printed);
    else
        out->failed = true;
    cJSON_free(printed);
}

void codec_append_arguments(struct buffer *out, const struct buffer *arguments)
{
    const char *text = arguments->data ? arguments->data : "";
    struct buffer whole;
    buffer_init(&whole, SIZE_MAX / 2);
    buffer_append(&whole, text, arguments->num_bytes);
    if (whole.num_bytes > 0) json_gate_mend(whole.data, whole.num_bytes);
    cJSON *object = cJSON_ParseWithLength(whole.data, whole.num_bytes);
    if (cJSON_IsObject(object)) {
        append_object(out, whole.data, whole.num_bytes, object);
    } else if (cJSON_IsNull(object) || arguments->num_bytes == 0) {
        buffer_append_text(out, "{}");
    } else {
        buffer_append_text(out, "{\"arguments\":");
        buffer_append_json(out, text, arguments->num_bytes);
        buffer_append_char(out, '}');
    }
    cJSON_Delete(object);
    if (buffer_failed(&whole)) out->failed = true;
    buffer_deinit(&whole);
}

void codec_append_ping(struct buffer *out, struct answer *a, const struct event *e)
{
    (void)a, (void)e;
    buffer_append_text(out, ": ping\n\n");
}

void codec_append_receipt(struct buffer *out, const struct answer *a)
{
    if (!a->receipt) return;
    buffer_append_text(out, ",\"receipt\":");
    buffer_append(out, a->receipt->data, a->receipt->num_bytes);
    if (buffer_failed(a->receipt)) out->failed = true;
}

void codec_append_energy(struct buffer *out, const struct answer *a, const struct usage *u)
{
    if (a->reports_energy && u->energy_uj > 0)
        buffer_printf(out, ",\"energy_joules\":%.6f", (double)u->energy_uj * 1e-6);
}

void codec_append_ids(struct buffer *out, const struct answer *a, const struct choice *c, int32_t begin,
                      int32_t end)
{
    const int32_t *ids = choice_tokens(c, a->context, begin);
    buffer_append_char(out, '[');
    for (int32_t i = 0; i < end - begin; i++) buffer_printf(out, i > 0 ? ",%d" : "%d", ids[i]);
    buffer_append_char(out, ']');
}

void codec_append_prompt(struct buffer *out, const struct answer *a, const struct choice *c)
{
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    tokenizer_decode(a->context->server->tokenizer, choice_tokens(c, a->context, 0), c->num_prompt_tokens,
                     false, &text);
    buffer_append_json(out, text.data, text.num_bytes);
    if (buffer_failed(&text)) out->failed = true;
    buffer_deinit(&text);
}

static double ms_between(uint64_t begin_ns, uint64_t end_ns)
{
    return begin_ns > 0 && end_ns > begin_ns ? (double)(end_ns - begin_ns) / 1e6 : 0;
}

/* NAME_n, NAME_ms and the two quotients of them. */
static void append_pace(struct buffer *out, const char *name, int32_t count, uint64_t begin_ns,
                        uint64_t end_ns)
{
    double ms = ms_between(begin_ns, end_ns);
    buffer_printf(out, ",\"%s_n\":%d,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f", name,
                  count, name, ms, name, count > 0 ? ms / count : 0, name, ms > 0 ? count * 1e3 / ms : 0);
}

void codec_append_timings(struct buffer *out, const struct answer *a, const struct choice *c)
{
    int32_t cached = a->reports_cached_tokens ? c->num_cached_tokens : 0;
    buffer_printf(out, "\"timings\":{\"queue_ms\":%.3f,\"cache_n\":%d",
                  ms_between(a->arrival_ns, c->scheduled_ns), cached);
    append_pace(out, "prompt", c->num_prompt_tokens - cached, c->scheduled_ns, c->first_token_ns);
    append_pace(out, "predicted", c->num_pulled, c->first_token_ns, clock_monotonic_ns());
    buffer_append_char(out, '}');
}

void codec_append(struct buffer *out, enum event_kind kind, struct answer *a, const struct event *e)
{
    if (a->codec->events[kind]) a->codec->events[kind](out, a, e);
}

void codec_append_call_id(struct buffer *out, const struct answer *a, const struct choice *c,
                          const struct call *call)
{
    const char *answer = a->id + strlen(a->codec->id_prefix);
    if (*call->id)
        buffer_append_json_text(out, call->id);
    else
        buffer_printf(out, "\"call_%.16s%04x%04x\"", answer, (unsigned)c->index, (unsigned)call->index);
}
