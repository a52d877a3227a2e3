/* answer.c - what each request gives alone, computed from its tokens, and whether its client got exactly
 * that.
 *
 * A complete answer must be equal; one that was cut short must be a beginning of it; a refusal or an error
 * must have a reason that the simulator knows of. */
#include <math.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/digest.h"
#include "server/api/slot_fill.h"
#include "sim/client.h"
#include "sim/form.h"

enum { TEXT_MAX = 1024 };

/* ---- alone ---- */

void solo_run(const struct expected_input *expected, const int32_t *prompt, struct solo *out)
{
    int32_t all[MODEL_LEN + 1];
    const struct request_slot_input *input = &expected->input;
    struct reference ref = {.prefill_decode_equal = !has(FEATURE_unequal_halves),
                            .has_states = has(FEATURE_states),
                            .has_answers = WORLD_HAS_ANSWERS,
                            .window = world.window,
                            .window_is_chunk = world.window_is_chunk,
                            .num_prompt = input->num_prompt_tokens,
                            .logit_bias = expected->logit_bias,
                            .forbidden = SILENT_IDS};
    int64_t most = (int64_t)input->num_prompt_tokens + max_of(input->max_tokens - 1, 0);
    out->num_tokens = 0;
    out->by_form = false;
    out->end = SOLO_TOO_BIG;
    if (kv_groups_num_blocks_max(&world.kv_groups, (int32_t)most) > world.num_blocks) return;
    out->end = SOLO_BAD_ROW;
    memset(out->row, 0, sizeof out->row);
    memcpy(all, prompt, (size_t)input->num_prompt_tokens * sizeof(all[0]));
    for (int32_t p = 0; p < input->num_prompt_tokens; p++) {
        reference_push(&ref, prompt[p]);
        if (input->pooling) reference_pool(&ref, input, NULL, out->row);
        if (!input->prompt_logprobs || p + 1 == input->num_prompt_tokens) continue;
        struct sample_result row = reference_row(&ref, input, all, prompt[p + 1]);
        if (row.failed) return;
        out->logprobs[p + 1] = row.logprobs.logprob;
    }
    out->end = SOLO_LENGTH;
    while (out->num_tokens < input->max_tokens) {
        if (expected->form > 0)
            ref.allowed = form_allowed(expected->form, input, out->tokens, out->num_tokens);
        if (expected->form > 0 && ref.allowed == 0) {
            out->by_form = form_is_whole(expected->form, out->tokens, out->num_tokens);
            out->end = out->by_form ? SOLO_STOP : SOLO_STUCK;
            return;
        }
        struct sample_result row = reference_row(&ref, input, all, -1);
        if (row.failed) out->end = SOLO_BAD_ROW;
        if (row.failed) return;
        all[ref.num_tokens] = out->tokens[out->num_tokens++] = row.token_id;
        out->logprobs[ref.num_tokens] = row.logprobs.logprob;
        reference_push(&ref, row.token_id);
        if (!reference_is_stop(input, row.token_id)) continue;
        out->end = SOLO_STOP;
        return;
    }
}

/* A choice as the client must see it. */
struct expected {
    bool fails;
    char text[TEXT_MAX];
    size_t num_bytes, num_echo_bytes;
    const char *finish_reason;
    int32_t num_tokens, num_prompt, first_logprob;
    struct solo solo;
};

static void append_word(struct expected *e, const char *word)
{
    size_t n = strlen(word);
    assert_always(e->num_bytes + n < TEXT_MAX);
    memcpy(e->text + e->num_bytes, word, n + 1);
    e->num_bytes += n;
}

/* Naively: whether any stop string, not reaching back before from, ends at the end of the first n bytes. */
static const char *stop_ending_at(const struct request *r, const struct expected *e, size_t from, size_t n)
{
    const char *found = NULL;
    for (int i = 0; i < r->num_stops; i++) {
        size_t bytes = strlen(r->stops[i]);
        if (n < from + bytes || memcmp(e->text + n - bytes, r->stops[i], bytes) != 0) continue;
        if (!found || bytes > strlen(found)) found = r->stops[i];
    }
    return found;
}

/* Appends a token's text. True when a stop string ends the answer there. */
static bool push_token(const struct request *r, struct expected *e, int32_t id, size_t *look_from)
{
    size_t before = e->num_bytes;
    append_word(e, word_of(id));
    if (e->num_tokens <= r->min_tokens) {
        *look_from = e->num_bytes;
        return false;
    }
    for (size_t n = before + 1; n <= e->num_bytes; n++) {
        const char *stop = stop_ending_at(r, e, *look_from, n);
        if (!stop) continue;
        e->num_bytes = n - (r->include_stop ? 0 : strlen(stop));
        e->text[e->num_bytes] = '\0';
        return true;
    }
    return false;
}

static void expect_choice(const struct request *r, int choice_idx, struct expected *e)
{
    struct expected_input input;
    int prompt_idx = choice_idx / r->n;
    uint64_t seed = r->has_seed ? (uint64_t)r->seed : r->used_seed;
    request_expected_input(r, prompt_idx, choice_idx % r->n, seed, &input);
    solo_run(&input, r->prompt[prompt_idx], &e->solo);
    e->num_bytes = 0;
    e->text[0] = '\0';
    e->num_tokens = 0;
    e->num_prompt = input.input.num_prompt_tokens;
    e->first_logprob = input.input.prompt_logprobs ? 0 : input.input.num_prompt_tokens;
    for (int32_t i = 0; r->echo && i < input.input.num_prompt_tokens; i++)
        append_word(e, word_of(r->prompt[prompt_idx][i]));
    size_t look_from = e->num_bytes;
    e->num_echo_bytes = e->num_bytes;
    e->finish_reason = e->solo.end == SOLO_STOP ? "stop" : "length";
    e->fails = e->solo.end == SOLO_BAD_ROW || e->solo.end == SOLO_TOO_BIG || e->solo.end == SOLO_STUCK;
    for (int32_t i = 0; i < e->solo.num_tokens; i++) {
        int32_t id = e->solo.tokens[i];
        e->num_tokens++;
        if (reference_is_stop(&input.input, id) && !r->include_stop) continue;
        if (!push_token(r, e, id, &look_from)) continue;
        e->finish_reason = "stop";
        e->fails = false;
        mark(MARK_ended_by_stop_string);
        return;
    }
}

/* ---- as it came ---- */

struct seen {
    char text[TEXT_MAX];
    size_t num_bytes;
    char finish_reason[8];
    int32_t num_parts, num_logprobs;
    double logprobs[MODEL_LEN + 1]; /* NAN: null */
};

/* Of a receipt. */
struct seen_receipt {
    bool is_there;
    struct digest_text answer;
    int32_t tokens[PROMPTS_MAX * CHOICES_MAX][MODEL_LEN], num_tokens[PROMPTS_MAX * CHOICES_MAX];
};

struct seen_answer {
    struct seen choices[PROMPTS_MAX * CHOICES_MAX];
    bool done, has_error, has_usage;
    int64_t prompt_tokens, completion_tokens, cached_tokens, total_tokens;
    bool has_predicted;
    int64_t num_predicted_accepted;
    struct seen_receipt receipt;
};

static const cJSON *get(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static void see_logprobs(struct seen *s, const cJSON *logprobs)
{
    const cJSON *item;
    if (!cJSON_IsObject(logprobs)) return;
    int count = cJSON_GetArraySize(get(logprobs, "tokens"));
    expect(count == cJSON_GetArraySize(get(logprobs, "top_logprobs")) &&
               count == cJSON_GetArraySize(get(logprobs, "text_offset")),
           "logprobs of different lengths");
    cJSON_ArrayForEach(item, get(logprobs, "token_logprobs"))
    {
        expect(s->num_logprobs <= MODEL_LEN, "too many logprobs");
        s->logprobs[s->num_logprobs++] = cJSON_IsNull(item) ? NAN : item->valuedouble;
    }
}

static void see_choice(struct seen_answer *a, const struct request *r, const cJSON *choice)
{
    int index = get(choice, "index")->valueint;
    expect(index >= 0 && index < request_num_sequences(r), "choice %d", index);
    struct seen *s = &a->choices[index];
    const cJSON *text = get(choice, "text"), *finish = get(choice, "finish_reason");
    expect(!s->finish_reason[0], "something comes after a choice's end");
    size_t n = strlen(text->valuestring);
    expect(s->num_bytes + n < TEXT_MAX, "an endless answer");
    memcpy(s->text + s->num_bytes, text->valuestring, n + 1);
    s->num_bytes += n;
    s->num_parts++;
    see_logprobs(s, get(choice, "logprobs"));
    if (cJSON_IsString(finish))
        snprintf(s->finish_reason, sizeof s->finish_reason, "%s", finish->valuestring);
}

static void see_receipt(struct seen_answer *a, const struct request *r, const cJSON *receipt)
{
    struct seen_receipt *seen = &a->receipt;
    const cJSON *ids, *id;
    int i = 0;
    if (!receipt) return;
    expect(has(FEATURE_receipts) && !seen->is_there, "%s: a receipt that nobody wants", r->id);
    seen->is_there = true;
    snprintf(seen->answer.text, sizeof seen->answer.text, "%s", get(receipt, "answer")->valuestring);
    expect(cJSON_GetArraySize(get(receipt, "tokens")) == request_num_sequences(r), "%s: receipt", r->id);
    cJSON_ArrayForEach(ids, get(receipt, "tokens"))
    {
        expect(cJSON_GetArraySize(ids) <= MODEL_LEN, "%s: a receipt of too many tokens", r->id);
        cJSON_ArrayForEach(id, ids) seen->tokens[i][seen->num_tokens[i]++] = id->valueint;
        i++;
    }
}

static void see_object(struct seen_answer *a, const struct request *r, const char *json, size_t n)
{
    cJSON *root = cJSON_ParseWithLength(json, n);
    const cJSON *choice, *usage = get(root, "usage");
    expect(root && !a->done, "%s: not JSON, or after [DONE]: %.*s ... %.*s", r->id,
           (int)min_of(n, (size_t)200), json, (int)min_of(n, (size_t)200), json + n - min_of(n, (size_t)200));
    a->has_error |= get(root, "error") != NULL;
    cJSON_ArrayForEach(choice, get(root, "choices")) see_choice(a, r, choice);
    see_receipt(a, r, get(root, "receipt"));
    if (cJSON_IsObject(usage)) {
        a->has_usage = true;
        a->prompt_tokens = get(usage, "prompt_tokens")->valueint;
        a->completion_tokens = get(usage, "completion_tokens")->valueint;
        a->total_tokens = get(usage, "total_tokens")->valueint;
        const cJSON *predicted = cJSON_GetObjectItemCaseSensitive(
            cJSON_GetObjectItemCaseSensitive(usage, "completion_tokens_details"),
            "accepted_prediction_tokens");
        a->has_predicted = predicted != NULL;
        a->num_predicted_accepted = predicted ? predicted->valueint : 0;
        a->cached_tokens = get(get(usage, "prompt_tokens_details"), "cached_tokens")->valueint;
    }
    cJSON_Delete(root);
}

/* Whole events; what is left of a connection that was cut may end with part of one. */
static void see_events(struct seen_answer *a, const struct request *r, const struct bytes *body)
{
    const char *at = body->data, *end = at + body->num;
    while (at < end) {
        const char *stop = memmem(at, (size_t)(end - at), "\n\n", 2);
        if (!stop) return;
        size_t n = (size_t)(stop - at);
        if (at[0] == ':') {
            if (n == 6 && !memcmp(at, ": ping", 6)) mark(MARK_pings);
        } else {
            expect(n > 6 && !memcmp(at, "data: ", 6), "%s: not an event: %.*s", r->id, (int)n, at);
            if (n == 12 && !memcmp(at + 6, "[DONE]", 6))
                a->done = true;
            else
                see_object(a, r, at + 6, n - 6);
        }
        at = stop + 2;
    }
}

/* ---- both ---- */

static void compare_logprobs(const struct request *r, const struct expected *e, const struct seen *s)
{
    for (int32_t i = 0; i < s->num_logprobs; i++) {
        int32_t p = e->first_logprob + i;
        expect(p < e->num_prompt + e->solo.num_tokens, "%s: more logprobs than tokens", r->id);
        bool equal = p == 0 ? isnan(s->logprobs[i]) : (float)s->logprobs[i] == e->solo.logprobs[p];
        expect(equal, "%s: the logprob at %d is %g, alone it is %g", r->id, p, s->logprobs[i],
               (double)e->solo.logprobs[p]);
    }
}

/* Whether its fatal token is computed for certain: of a prompt it may be in the prefix cache, and behind the
 * last token but one it is computed only if the engine does not know the end yet. */
static bool must_kill(const struct request *r, const struct expected *e)
{
    int32_t p = request_fatal_position(r, e->num_prompt);
    return p >= e->num_prompt - 1 && p < e->num_prompt + e->num_tokens - 1;
}

static void compare_choice(const struct request *r, int index, const struct seen *s, bool whole)
{
    struct expected e;
    expect_choice(r, index, &e);
    expect(s->num_bytes <= e.num_bytes && !memcmp(s->text, e.text, s->num_bytes),
           "%s: choice %d is \"%s\", alone it is \"%s\"", r->id, index, s->text, e.text);
    compare_logprobs(r, &e, s);
    if (!whole) return;
    expect(!e.fails, "%s: choice %d was answered and must fail", r->id, index);
    expect(!must_kill(r, &e), "%s: choice %d was answered and must kill", r->id, index);
    expect(s->num_bytes == e.num_bytes, "%s: choice %d ends early: \"%s\" of \"%s\"", r->id, index, s->text,
           e.text);
    expect(!strcmp(s->finish_reason, e.finish_reason), "%s: choice %d: finish_reason %s instead of %s", r->id,
           index, s->finish_reason, e.finish_reason);
    int32_t num_logprobs = r->num_logprobs < 0 ? 0 : e.num_prompt + e.num_tokens - e.first_logprob;
    expect(s->num_logprobs == num_logprobs, "%s: choice %d: %d logprobs instead of %d", r->id, index,
           s->num_logprobs, num_logprobs);
    /* A chunk has tokens, so that clients can count them; a prompt's log probabilities come in pieces. */
    if (e.first_logprob > 0 || r->num_logprobs < 0)
        expect(s->num_parts <= max_of(e.num_tokens, 1) + e.solo.by_form,
               "%s: choice %d: %d chunks for %d tokens", r->id, index, s->num_parts, e.num_tokens);
    if (e.first_logprob == 0) mark(MARK_prompts_scored);
    if (!strcmp(e.finish_reason, "length")) mark(MARK_ended_by_length);
    if (r->form > 0) mark(MARK_constrained_answers);
    if (e.solo.by_form) mark(MARK_ended_by_form);
    if (r->form > 0 && r->was_handed_over) mark(MARK_constrained_handed_over);
    if (e.solo.end == SOLO_STOP) mark(MARK_ended_by_eos_or_stop_id);
}

static void compare_usage(const struct request *r, const struct seen_answer *a)
{
    int64_t prompt = 0, completion = 0;
    for (int i = 0; i < request_num_sequences(r); i++) {
        struct expected e;
        expect_choice(r, i, &e);
        completion += e.num_tokens;
        if (i % r->n == 0) prompt += e.num_prompt;
    }
    expect(a->prompt_tokens == prompt && a->completion_tokens == completion &&
               a->total_tokens == prompt + completion,
           "%s: usage %lld + %lld, alone %lld + %lld", r->id, (long long)a->prompt_tokens,
           (long long)a->completion_tokens, (long long)prompt, (long long)completion);
    expect(a->has_predicted == (r->prediction[0] != '\0') && a->num_predicted_accepted <= completion,
           "%s: usage of a prediction", r->id);
    expect(a->cached_tokens >= 0 && a->cached_tokens < prompt && a->cached_tokens % BLOCK_SIZE == 0,
           "%s: %lld cached tokens of %lld", r->id, (long long)a->cached_tokens, (long long)prompt);
}

/* Equal to one that is made of the request alone (server/api/receipt.h). */
static void compare_receipt(const struct request *r, const struct seen_answer *a)
{
    struct sha256_ctx answer;
    sha256_init(&answer);
    expect(a->receipt.is_there == has(FEATURE_receipts), "%s: no receipt", r->id);
    if (!a->receipt.is_there) return;
    for (int i = 0; i < request_num_sequences(r); i++) {
        struct expected e;
        expect_choice(r, i, &e);
        size_t num_bytes = (size_t)e.num_tokens * sizeof(int32_t);
        expect(a->receipt.num_tokens[i] == e.num_tokens &&
                   !memcmp(a->receipt.tokens[i], e.solo.tokens, num_bytes),
               "%s: the receipt has other tokens of choice %d", r->id, i);
        digest_add_text(&answer, e.finish_reason);
        digest_add_int(&answer, e.num_tokens);
        digest_add_text(&answer, digest_of(e.solo.tokens, num_bytes).text);
        digest_add_text(&answer, digest_of(e.text + e.num_echo_bytes, e.num_bytes - e.num_echo_bytes).text);
    }
    expect(!strcmp(digest_end(&answer).text, a->receipt.answer.text), "%s: the receipt is of another answer",
           r->id);
    mark(MARK_receipts_seen);
}

/* ---- refusals and errors ---- */

static bool must_fail(const struct request *r)
{
    bool fails = false;
    for (int i = 0; i < request_num_sequences(r); i++) {
        struct expected e;
        expect_choice(r, i, &e);
        fails |= e.fails;
        if (e.solo.end == SOLO_TOO_BIG) mark(MARK_too_big_for_the_pool);
        if (e.fails && e.solo.end == SOLO_BAD_ROW) mark(MARK_bad_rows_failed_alone);
        if (e.fails && e.solo.end == SOLO_STUCK) mark(MARK_forms_out_of_reach);
    }
    return fails;
}

/* An allocation has failed since it was sent, perhaps its own. */
static bool starved(const struct request *r)
{
    return heap_num_failed() > r->failed_allocations_before;
}

static bool deadline_has_passed(const struct request *r)
{
    return r->timeout_ms > 0 && now_ns() >= r->sent_ns + (uint64_t)r->timeout_ms * 1000000;
}

static bool may_fail(const struct request *r)
{
    if (starved(r)) {
        mark(MARK_failed_by_allocation);
        return true;
    }
    if (world.exit_code || world.aborted || r->failed_by_recovery) return true;
    if (deadline_has_passed(r)) {
        mark(MARK_deadlines_passed);
        return true;
    }
    return r->was_submitted && must_fail(r);
}

/* An error object, or nothing at all when memory ran out. */
static void check_error_body(const struct request *r, const struct response *response)
{
    if (response->body.num == 0) {
        expect(starved(r), "%s: status %d without a body", r->id, response->http_status);
        return;
    }
    cJSON *root = cJSON_ParseWithLength(response->body.data, response->body.num);
    expect(cJSON_IsString(get(get(root, "error"), "message")), "%s: not an error object: %.*s", r->id,
           (int)response->body.num, response->body.data);
    cJSON_Delete(root);
}

static bool body_says(const struct response *response, const char *text)
{
    return response->body.num > 0 && memmem(response->body.data, response->body.num, text, strlen(text));
}

static bool refused_for_room(const struct response *response)
{
    bool places = has(FEATURE_few_places) && body_says(response, "--max-connections");
    bool buffers = has(FEATURE_small_buffers) && body_says(response, "--max-buffered-bytes");
    if (places) mark(MARK_refused_503_places);
    if (buffers) mark(MARK_refused_503_buffers);
    return places || buffers;
}

static void check_refusal(const struct request *r, const struct response *response)
{
    check_error_body(r, response);
    switch (response->http_status) {
    case 400:
        if (body_says(response, "form_out_of_reach")) {
            expect(must_fail(r), "%s: its form is in reach: %.*s", r->id, (int)response->body.num,
                   response->body.data);
            break;
        }
        expect(r->flaw == FLAW_TOO_LONG || r->flaw == FLAW_BAD_FIELD || r->flaw == FLAW_TOO_MANY,
               "%s: 400 for a good request: %.*s", r->id, (int)response->body.num, response->body.data);
        mark(MARK_refused_400);
        break;
    case 401:
        expect(r->flaw == FLAW_BAD_KEY, "%s: 401 with a good key", r->id);
        mark(MARK_refused_401);
        break;
    case 408:
        expect(client_drips(r->client_idx), "%s: 408 for a client that did not wait", r->id);
        break;
    case 429: /* whether there was room was looked at when it was sent: client.c */
        expect(response->has_retry_after || starved(r), "%s: 429 without Retry-After", r->id);
        if (body_says(response, "max-queued-requests")) mark(MARK_refused_429_slots);
        if (body_says(response, "max-queued-tokens")) mark(MARK_refused_429_tokens);
        if (body_says(response, "max-connections-per-address")) mark(MARK_refused_429_address);
        break;
    case 503:
        expect(response->has_retry_after || starved(r), "%s: 503 without Retry-After", r->id);
        if (world.server && !world.drain_sent && !world.exit_code && world.server->state == SERVER_READY &&
            !body_says(response, "loading") && !refused_for_room(response))
            expect(may_fail(r), "%s: 503 for no reason", r->id);
        if (body_says(response, "loading")) mark(MARK_refused_503_loading);
        if (world.drain_sent) mark(MARK_refused_503_draining);
        break;
    case 500:
        expect(may_fail(r), "%s: 500 for no reason: %.*s", r->id, (int)response->body.num,
               response->body.data);
        break;
    case 504:
        if (body_says(response, "at least")) mark(MARK_deadlines_hopeless);
        if (body_says(response, "is not complete"))
            expect(may_fail(r), "%s: 504 before its deadline", r->id);
        else
            expect(r->timeout_ms > 0, "%s: 504 without a deadline", r->id);
        break;
    default:
        expect(false, "%s: status %d", r->id, response->http_status);
    }
}

static void check_stream(const struct request *r, const struct response *response)
{
    struct seen_answer *a = keep_alloc(sizeof *a);
    bool complete = response->state == RESPONSE_COMPLETE;
    see_events(a, r, &response->body);
    if (complete) expect(a->done, "%s: a stream ended without [DONE]", r->id);
    if (a->has_error) {
        expect(may_fail(r), "%s: an error event for no reason: %.*s", r->id, (int)response->body.num,
               response->body.data);
        mark(MARK_error_events);
    }
    bool whole = complete && !a->has_error;
    for (int i = 0; i < request_num_sequences(r); i++) compare_choice(r, i, &a->choices[i], whole);
    if (whole) {
        mark(MARK_answers_streamed);
        expect(a->has_usage == r->include_usage, "%s: usage", r->id);
        if (a->has_usage) compare_usage(r, a);
        compare_receipt(r, a);
    }
    keep_free(a);
}

static void check_whole(const struct request *r, const struct response *response)
{
    struct seen_answer *a = keep_alloc(sizeof *a);
    see_object(a, r, response->body.data, response->body.num);
    for (int i = 0; i < request_num_sequences(r); i++) compare_choice(r, i, &a->choices[i], true);
    compare_usage(r, a);
    compare_receipt(r, a);
    mark(MARK_answers_whole);
    keep_free(a);
}

static void compare_row(const struct request *r, int index, const cJSON *embedding)
{
    struct expected e;
    expect_choice(r, index, &e);
    expect(!e.fails, "%s: row %d was answered and must fail", r->id, index);
    expect(cJSON_GetArraySize(embedding) == FAKE_HIDDEN, "%s: row %d is of another width", r->id, index);
    for (int i = 0; i < FAKE_HIDDEN; i++) {
        float seen = (float)cJSON_GetArrayItem(embedding, i)->valuedouble;
        expect(seen == e.solo.row[i], "%s: row %d has %g at %d, alone it is %g", r->id, index, (double)seen,
               i, (double)e.solo.row[i]);
    }
}

static void check_rows(const struct request *r, const struct response *response)
{
    cJSON *root = cJSON_ParseWithLength(response->body.data, response->body.num);
    const cJSON *data = get(root, "data"), *usage = get(root, "usage");
    int64_t num_tokens = 0;
    expect(cJSON_GetArraySize(data) == r->num_prompts, "%s: %d rows", r->id, cJSON_GetArraySize(data));
    for (int i = 0; i < r->num_prompts; i++) {
        num_tokens += r->num_prompt[i];
        compare_row(r, i, get(cJSON_GetArrayItem(data, i), "embedding"));
    }
    expect(get(usage, "prompt_tokens")->valueint == num_tokens &&
               get(usage, "total_tokens")->valueint == num_tokens,
           "%s: usage of %lld tokens", r->id, (long long)num_tokens);
    cJSON_Delete(root);
    mark(MARK_embeddings_answered);
    if (has(FEATURE_mean_pooling)) mark(MARK_means_answered);
}

void answer_check(const struct request *r, const struct response *response)
{
    if (response->state == RESPONSE_HEAD) return;
    bool complete = response->state == RESPONSE_COMPLETE;
    if (response->http_status != 200) {
        if (complete) check_refusal(r, response);
        return;
    }
    expect(r->flaw == FLAW_NONE, "%s: a flawed request was answered", r->id);
    if (r->stream)
        check_stream(r, response);
    else if (complete && r->embeds)
        check_rows(r, response);
    else if (complete)
        check_whole(r, response);
    if (complete && r->stream && r->was_handed_over) mark(MARK_handed_over_streams_equal);
    if (complete && r->num_preemptions > 0) mark(MARK_preempted_and_answered);
}
