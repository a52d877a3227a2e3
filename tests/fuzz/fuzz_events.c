/* What the core tells of an answer, in every protocol: whole frames of valid JSON, named as they say, whose texts together are
 * what was told; and its error, in the protocol's own shape.
 *
 * Input: one byte (which protocol, how it ends), then pieces: a byte (low two bits: the kind; 4: a sign of life goes before
 * it; the rest: how many bytes) and its text. */
#include "fuzz/fuzz_server.h"
#include "server/api/codec.h"
#include "server/api/codecs/llama.h"
#include "server/api/codecs/responses.h"
#include "server/api/json_gate.h"

enum { OUT_BYTES_MAX = 64 << 20, STATE_BYTES_MAX = 4096, ENDS = 4 };

static const struct codec *const codecs[] = {
    &codec_chat,        &codec_completions,     &codec_messages,        &codec_responses,
    &codec_ollama_chat, &codec_ollama_generate, &codec_llama_completion};
static struct server server;

/* ---- reading ---- */

static const cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

/* The text that an event's data has; NULL: none. */
static const char *text_in(const cJSON *data)
{
    const cJSON *choice = cJSON_GetArrayItem(get(data, "choices"), 0), *delta = get(data, "delta");
    const char *type = cJSON_GetStringValue(get(data, "type"));
    if (choice) {
        const cJSON *text = get(choice, "text");
        return cJSON_GetStringValue(text ? text : get(get(choice, "delta"), "content"));
    }
    if (type && !strcmp(type, "content_block_delta")) return cJSON_GetStringValue(get(delta, "text"));
    if (type) return strcmp(type, "response.output_text.delta") ? NULL : cJSON_GetStringValue(delta);
    if (get(data, "content")) return cJSON_GetStringValue(get(data, "content"));
    return cJSON_GetStringValue(get(data, "message") ? get(get(data, "message"), "content")
                                                     : get(data, "response"));
}

static cJSON *read_json(const char *text, size_t n)
{
    static const struct json_gate_limits limits = {.max_depth = 64, .max_nodes = 1000000, .max_keys = 4096};
    struct error err = {0};
    /* Keys that a call has twice are its model's. */
    if (json_gate_check(text, n, &limits, &err) != 0 && !strstr(err.text, "same key twice")) {
        fprintf(stderr, "%s: %.*s\n", err.text, (int)n, text);
        abort();
    }
    cJSON *data = cJSON_ParseWithLength(text, n);
    assert_always(data);
    return data;
}

static void take_data(const char *text, size_t n, const char *name, size_t name_bytes, struct buffer *texts)
{
    cJSON *data = read_json(text, n);
    const char *part = text_in(data);
    if (part) buffer_append_text(texts, part);
    if (name) {
        const char *type = cJSON_GetStringValue(get(data, "type"));
        assert_always(type && strlen(type) == name_bytes && !memcmp(type, name, name_bytes));
    }
    cJSON_Delete(data);
}

static bool begins(const char *text, size_t n, const char *with)
{
    return n >= strlen(with) && !memcmp(text, with, strlen(with));
}

/* "event: NAME", where the protocol has names, and "data: JSON"; or a comment. */
static void take_frame(const char *text, size_t n, struct buffer *texts)
{
    const char *name = NULL;
    size_t name_bytes = 0;
    if (begins(text, n, ":") || (n == 12 && begins(text, n, "data: [DONE]"))) return;
    if (begins(text, n, "event: ")) {
        const char *end = memchr(text, '\n', n);
        assert_always(end);
        name = text + 7;
        name_bytes = (size_t)(end - name);
        n -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    assert_always(begins(text, n, "data: ") && !memchr(text, '\n', n));
    take_data(text + 6, n - 6, name, name_bytes, texts);
}

static void take_stream(const struct buffer *out, bool has_lines, struct buffer *texts)
{
    const char *border = has_lines ? "\n" : "\n\n";
    for (size_t at = 0; at < out->num_bytes;) {
        const char *text = out->data + at, *end = memmem(text, out->num_bytes - at, border, strlen(border));
        assert_always(end); /* every frame ends */
        size_t n = (size_t)(end - text);
        if (has_lines)
            take_data(text, n, NULL, 0, texts);
        else
            take_frame(text, n, texts);
        at += n + strlen(border);
    }
}

/* ---- telling ---- */

/* Whole characters alone, as the core hands them out; no NUL, which cJSON would end a text with. */
static void append_characters(struct buffer *out, const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n;) {
        int length = utf8_length(bytes + i, bytes + n);
        if (length > 0 && bytes[i]) buffer_append(out, (const char *)bytes + i, (size_t)length);
        i += (size_t)max_of(length, 1);
    }
}

struct teller {
    struct answer answer;
    struct choice choice;
    struct call call;
    enum piece_kind last;
    struct buffer out, text, told;
};

static void tell(struct teller *t, enum event_kind kind, struct event e)
{
    static const struct usage usage = {5, 7, 2, 1, {CACHE_MISS_DIFFERS, 2}, 0, 3, 1};
    e.choice = &t->choice;
    e.usage = &usage;
    codec_append(&t->out, kind, &t->answer, &e);
}

/* Arguments follow their call; who knows no pieces gets text. */
static enum piece_kind settle(const struct teller *t, enum piece_kind kind)
{
    bool in_call = t->last == PIECE_CALL || t->last == PIECE_ARGUMENTS;
    if (!t->answer.codec->tells_pieces) return PIECE_TEXT;
    return kind == PIECE_ARGUMENTS && !in_call ? PIECE_CALL : kind;
}

static size_t tell_piece(struct teller *t, const uint8_t *data, size_t size)
{
    enum piece_kind kind = settle(t, (enum piece_kind)(data[0] & 3));
    size_t n = min_of((size_t)(data[0] >> 3), size - 1);
    if (data[0] & 4) tell(t, EVENT_PING, (struct event){0});
    buffer_clear(&t->text);
    append_characters(&t->text, data + 1, n);
    if (kind == PIECE_CALL) {
        t->call.index += t->last != PIECE_TEXT || t->call.name[0];
        snprintf(t->call.name, sizeof t->call.name, "f%d", t->call.index);
        snprintf(t->call.id, sizeof t->call.id, "%s", n % 2 ? "" : "idA");
        buffer_clear(&t->text);
    }
    t->last = kind;
    if (kind == PIECE_TEXT && t->text.num_bytes > 0) buffer_append(&t->told, t->text.data, t->text.num_bytes);
    tell(t, EVENT_DELTA,
         (struct event){.piece = kind,
                        .text = t->text.num_bytes > 0 ? t->text.data : "",
                        .text_bytes = t->text.num_bytes,
                        .call = kind >= PIECE_CALL ? &t->call : NULL});
    return n + 1;
}

static void end(struct teller *t, int how)
{
    static const char *const reasons[] = {"stop", "length", "tool_calls"};
    struct api_error error;
    if (how == 3) {
        api_error_set(&error, 500, "server_error", NULL, NULL, "it \"failed\"\n");
        tell(t, EVENT_ERROR, (struct event){.error = &error});
        return;
    }
    t->choice.finish_reason = reasons[how];
    t->choice.ended = true;
    tell(t, EVENT_DELTA, (struct event){.text = "", .finish_reason = reasons[how]});
    tell(t, EVENT_DONE, (struct event){0});
}

static void check_error(const struct codec *codec, const struct buffer *message)
{
    struct buffer out;
    struct api_error error;
    buffer_init(&out, OUT_BYTES_MAX);
    api_error_set(&error, 400, "t", NULL, NULL, "%.*s", (int)min_of(message->num_bytes, (size_t)64),
                  message->num_bytes > 0 ? message->data : "");
    const struct failure failure = api_error_failure(&error, "r");
    codec->append_error(&out, &failure);
    cJSON *body = read_json(out.data, out.num_bytes);
    assert_always(get(body, "error"));
    cJSON_Delete(body);
    buffer_deinit(&out);
}

static void teller_init(struct teller *t, const struct codec *codec, const struct choice_context *context,
                        void *state)
{
    static char made_id[MADE_ID_CHARS];
    *t = (struct teller){.choice = {.slot_idx = -1, .num_prompt_tokens = 5, .text.stop_idx = -1}};
    t->answer = (struct answer){.codec = codec,
                                .created = 7,
                                .model = "m\"x",
                                .request_id = "r",
                                .context = context,
                                .choices = &t->choice,
                                .num_choices = 1,
                                .reports_cached_tokens = true,
                                .state = state};
    snprintf(made_id, sizeof made_id, "%s0123456789abcdef01234567", codec->id_prefix);
    t->answer.id = t->answer.made_id = made_id;
    buffer_init(&t->out, OUT_BYTES_MAX);
    buffer_init(&t->text, OUT_BYTES_MAX);
    buffer_init(&t->told, OUT_BYTES_MAX);
    buffer_init(&t->choice.ready, OUT_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char echo[] = ",\"tools\":[]";
    static const struct responses_request kept = {.echo = echo};
    static const struct llama_kept all_fields = {.num_response_fields = -1};
    static const struct sampling sampling = {.temperature = 0.7F, .top_p = 0.9F, .top_k = 40};
    static _Alignas(64) char state[STATE_BYTES_MAX];
    if (!server.config) fuzz_server_init(&server);
    if (size == 0) return 0;
    const struct codec *codec = codecs[data[0] / ENDS % array_length(codecs)];
    bool is_llama = codec == &codec_llama_completion;
    const struct params params = {.n = 1,
                                  .kind = codec->kind,
                                  .num_prompt_logprobs = -1,
                                  .include_usage = data[0] & 0x80,
                                  .timings = data[0] & 0x40,
                                  .sampling = is_llama ? &sampling : NULL,
                                  .kept = is_llama ? (const void *)&all_fields : &kept};
    const struct choice_context context = {.server = &server, .params = &params};
    struct teller t;
    assert_always(codec->state_bytes <= sizeof state);
    memset(state, 0, sizeof state);
    teller_init(&t, codec, &context, state);
    if (is_llama) t.choice.num_prompt_tokens = 0; /* it tells the prompt, and there is no slot */
    tell(&t, EVENT_STARTED, (struct event){0});
    for (size_t at = 1; at < size;) at += tell_piece(&t, data + at, size - at);
    end(&t, data[0] % ENDS);
    assert_always(!buffer_failed(&t.out));
    buffer_clear(&t.text);
    take_stream(&t.out, !strstr(codec->stream_type, "event-stream"), &t.text);
    assert_always(t.text.num_bytes == t.told.num_bytes &&
                  (t.told.num_bytes == 0 || !memcmp(t.text.data, t.told.data, t.told.num_bytes)));
    check_error(codec, &t.told);
    if (codec->forget) codec->forget(state);
    buffer_deinit(&t.out);
    buffer_deinit(&t.text);
    buffer_deinit(&t.told);
    buffer_deinit(&t.choice.ready);
    return 0;
}
