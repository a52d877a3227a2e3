#include "sim/request.h"

#include <math.h>
#include <string.h>

#include "server/api/slot_fill.h"
#include "sim/form.h"

/* ---- by chance ---- */

static void make_prompts(struct request *r, struct rng *rng)
{
    r->num_prompts = has(FEATURE_many_choices) && rng_chance(rng, 15) ? PROMPTS_MAX : 1;
    for (int i = 0; i < r->num_prompts; i++) {
        int32_t longest = has(FEATURE_storms) ? 24 : PROMPT_MAX;
        int32_t count = 1 + (int32_t)rng_skewed(rng, (uint64_t)longest - 1);
        if (rng_chance(rng, 25)) count = BLOCK_SIZE * (1 + rng_below(rng, longest / BLOCK_SIZE));
        r->num_prompt[i] = count;
        memcpy(r->prompt[i], world.prefixes[rng_below(rng, NUM_PREFIXES)], sizeof r->prompt[i]);
        if (!has(FEATURE_shared_prefixes))
            for (int k = 0; k < count; k++) r->prompt[i][k] = rng_below(rng, FAKE_VOCAB);
        else if (rng_chance(rng, 50))
            r->prompt[i][rng_below(rng, count)] = rng_below(rng, FAKE_VOCAB);
        if (count < FAKE_HEADER || !has(FEATURE_answers) || !rng_chance(rng, 50)) continue;
        r->prompt[i][count - 2] = FAKE_HEADER_FIRST;
        r->prompt[i][count - 1] = FAKE_HEADER_LAST;
    }
}

static void make_stops(struct request *r, struct rng *rng)
{
    static const char *const texts[] = {"a", "ab", "aab", "Q", "cd", "\"", "\n", "bcdb", "za"};
    r->stop_token_id = -1;
    if (rng_chance(rng, 30)) r->stop_token_id = 4 + rng_below(rng, FAKE_VOCAB - 5);
    if (!has(FEATURE_stop_strings)) return;
    r->num_stops = rng_below(rng, STOPS_MAX + 1);
    for (int i = 0; i < r->num_stops; i++)
        snprintf(r->stops[i], sizeof r->stops[i], "%s", texts[rng_below(rng, (int32_t)array_length(texts))]);
    r->include_stop = rng_chance(rng, 20);
}

static void make_sampling(struct request *r, struct rng *rng)
{
    r->temperature = rng_chance(rng, 50) ? 0 : 0.5f;
    r->top_k = rng_below(rng, 3);
    r->repetition_penalty = 1;
    r->bias_id = -1;
    if (has(FEATURE_penalties)) {
        if (rng_chance(rng, 30)) r->frequency_penalty = 0.5f;
        if (rng_chance(rng, 20)) r->repetition_penalty = 1.25f;
        if (rng_chance(rng, 30)) r->bias_id = rng_below(rng, SILENT_ID);
        r->bias = 1 + rng_below(rng, 50);
    }
    r->has_seed = rng_chance(rng, 70);
    r->seed = (int64_t)(rng_next(rng) >> 20);
    /* One request in some has a row of logits that is not a number. */
    if (has(FEATURE_bad_rows) && rng_chance(rng, 8)) {
        r->has_seed = true;
        r->seed = (int64_t)fake_failing_seed(r->num_prompt[0] + rng_below(rng, 6));
    }
}

static void make_lengths(struct request *r, struct rng *rng)
{
    int32_t most = has(FEATURE_storms) ? MODEL_LEN - PROMPT_MAX : 40;
    r->max_tokens =
        1 + (rng_chance(rng, 60) ? rng_below(rng, most) : (int32_t)rng_skewed(rng, (uint64_t)most - 1));
    if (has(FEATURE_storms) && rng_chance(rng, 60)) r->max_tokens = most;
    r->ignore_eos = has(FEATURE_storms) ? rng_chance(rng, 90) : rng_chance(rng, 40);
    if (rng_chance(rng, 20)) r->min_tokens = rng_below(rng, r->max_tokens + 1);
    r->num_logprobs = -1;
    if (!has(FEATURE_logprobs)) return;
    if (rng_chance(rng, 40)) r->num_logprobs = rng_below(rng, 4);
    r->echo = rng_chance(rng, 25);
    if (r->echo && rng_chance(rng, 40)) r->max_tokens = r->min_tokens = 0;
}

/* The prompt is the one before with its answer, as in a conversation. */
static void continue_conversation(struct request *r, const struct request *before)
{
    struct expected_input input;
    struct solo solo;
    request_expected_input(before, 0, 0, (uint64_t)before->seed, &input);
    solo_run(&input, before->prompt[0], &solo);
    int32_t begin = before->num_prompt[0], num_new = min_of(solo.num_tokens, PROMPT_MAX - begin);
    memcpy(r->prompt[0], before->prompt[0], (size_t)begin * sizeof(int32_t));
    memcpy(r->prompt[0] + begin, solo.tokens, (size_t)num_new * sizeof(int32_t));
    r->num_prompt[0] = begin + num_new;
    r->key = before->key;
    r->salt = before->salt;
    mark(MARK_conversations_went_on);
}

static void make_poison(struct request *r, struct rng *rng)
{
    if (!has(FEATURE_engine_process) || !has(FEATURE_poison) || !rng_chance(rng, 5)) return;
    r->is_poison = true;
    r->kills_at_launch = rng_chance(rng, 50);
    r->fatal_offset =
        rng_chance(rng, 30) ? -1 - rng_below(rng, r->num_prompt[0]) : -1 + rng_below(rng, r->max_tokens + 1);
}

int32_t request_fatal_position(const struct request *r, int32_t num_prompt)
{
    return r->is_poison ? max_of(num_prompt + r->fatal_offset, 0) : -1;
}

/* When it is due, and when it is too late. */
static void make_terms(struct request *r)
{
    struct rng rng = rng_of(r->id, 0);
    if (has(FEATURE_priorities) && rng_chance(&rng, 40))
        r->priority = rng_chance(&rng, 80) ? rng_below(&rng, 5) - 2 : rng_below(&rng, 201) - 100;
    if (has(FEATURE_timeouts) && rng_chance(&rng, 30)) r->timeout_ms = 1 + (int32_t)rng_skewed(&rng, 4000);
}

/* What the answer will be, with mistakes, or what it will not. Without what has to be escaped. */
static void make_prediction(struct request *r)
{
    static struct solo solo;
    struct expected_input input;
    struct rng rng = rng_of(r->id, 2);
    if (!has(FEATURE_drafts) || r->embeds || !rng_chance(&rng, 40)) return;
    solo.num_tokens = 0;
    request_expected_input(r, 0, 0, (uint64_t)r->seed, &input);
    if (r->has_seed && rng_chance(&rng, 80)) solo_run(&input, r->prompt[0], &solo);
    size_t most = rng_chance(&rng, 80) ? 60 : PREDICTION_BYTES_MAX, n = 0;
    for (int32_t i = 0; n + 3 <= most; i++) {
        bool is_right = i < solo.num_tokens && rng_chance(&rng, 90);
        const char *word = word_of(is_right ? solo.tokens[i] : 4 + rng_below(&rng, 22));
        if (!strpbrk(word, "\"\\\n\t"))
            n += (size_t)snprintf(r->prediction + n, sizeof r->prediction - n, "%s", word);
    }
}

/* Instead of a completion. What is said of answers is not read then, a seed included. */
static void make_embedding(struct request *r)
{
    struct rng rng = rng_of(r->id, 1);
    if (!has(FEATURE_embeddings) || !rng_chance(&rng, 20)) return;
    r->embeds = true;
    r->max_tokens = r->min_tokens = r->top_k = r->num_stops = r->form = 0;
    r->stop_token_id = r->bias_id = r->num_logprobs = -1;
    r->temperature = r->repetition_penalty = 1;
    r->frequency_penalty = 0;
    r->stream = r->echo = r->ignore_eos = r->include_stop = r->has_seed = false;
    r->n = 1;
}

static void make_flaw(struct request *r, struct rng *rng)
{
    if (!has(FEATURE_bad_requests) || !rng_chance(rng, 15)) return;
    r->flaw = (enum request_flaw)(1 + rng_below(rng, 3));
    if (r->flaw == FLAW_BAD_KEY && !has(FEATURE_salts)) r->flaw = FLAW_BAD_FIELD;
    if (r->flaw == FLAW_TOO_LONG && r->embeds) r->flaw = FLAW_BAD_FIELD;
    if (r->flaw == FLAW_TOO_LONG) r->max_tokens = MODEL_LEN;
}

void request_make(struct request *r, struct rng *rng, int client_idx, int idx)
{
    *r = (struct request){.client_idx = client_idx, .idx = idx, .n = 1};
    snprintf(r->id, sizeof r->id, "c%dr%d", client_idx, idx);
    make_prompts(r, rng);
    make_lengths(r, rng);
    make_stops(r, rng);
    make_sampling(r, rng);
    if (has(FEATURE_many_choices) && rng_chance(rng, 40)) r->n = 1 + rng_below(rng, CHOICES_MAX);
    r->stream = rng_chance(rng, 60);
    r->include_usage = rng_chance(rng, 50);
    r->close_after = rng_chance(rng, 15);
    if (has(FEATURE_salts)) {
        r->key = rng_below(rng, 2);
        r->salt = rng_below(rng, 3);
    }
    if (has(FEATURE_long_bodies) && rng_chance(rng, 25)) r->padding_bytes = 7000 + rng_below(rng, 4000);
    if (idx > 0 && has(FEATURE_conversations) && rng_chance(rng, 70) && r[-1].has_seed &&
        r[-1].flaw == FLAW_NONE)
        continue_conversation(r, &r[-1]);
    if (has(FEATURE_constraints) && rng_chance(rng, 50)) r->form = 1 + rng_below(rng, NUM_FORMS - 1);
    make_poison(r, rng);
    make_terms(r);
    make_embedding(r);
    make_prediction(r);
    make_flaw(r, rng);
    int num_slots = world.max_num_seqs + (int)world.config.max_queued_requests;
    if (r->flaw == FLAW_NONE && request_num_sequences(r) > num_slots) r->flaw = FLAW_TOO_MANY;
    int64_t num_tokens = 0, most = world.config.max_queued_tokens;
    for (int i = 0; i < r->num_prompts; i++) num_tokens += (int64_t)r->n * r->num_prompt[i];
    if (r->flaw == FLAW_NONE && most > 0 && num_tokens > max_of(most, MODEL_LEN)) r->flaw = FLAW_TOO_MANY;
}

int request_num_sequences(const struct request *r)
{
    return r->num_prompts * r->n;
}

uint32_t request_tenant(const struct request *r)
{
    return 1 + (uint32_t)r->key * 16 + (uint32_t)r->salt;
}

/* ---- as HTTP ---- */

static void append_text(struct bytes *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append_text(struct bytes *out, const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert_always(n < (int)sizeof text);
    bytes_append(out, text, (size_t)n);
}

static void append_ids(const struct request *r, int prompt_idx, struct bytes *out)
{
    char text[3 * PROMPT_MAX + 2], *p = text;
    for (int32_t i = 0; i < r->num_prompt[prompt_idx]; i++) {
        int32_t id = r->prompt[prompt_idx][i];
        *p++ = i > 0 ? ',' : '[';
        if (id >= 10) *p++ = (char)('0' + id / 10);
        *p++ = (char)('0' + id % 10);
    }
    *p++ = ']';
    bytes_append(out, text, (size_t)(p - text));
}

static void append_stops(const struct request *r, struct bytes *out)
{
    append_text(out, ",\"stop\":[");
    for (int i = 0; i < r->num_stops; i++) {
        append_text(out, "%s\"", i > 0 ? "," : "");
        for (const char *p = r->stops[i]; *p; p++)
            append_text(out, *p == '"' ? "\\\"" : *p == '\n' ? "\\n" : "%c", *p);
        append_text(out, "\"");
    }
    append_text(out, "]");
}

static void append_prompts(const struct request *r, struct bytes *out)
{
    append_text(out, "{\"%s\":%s", r->embeds ? "input" : "prompt", r->num_prompts > 1 ? "[" : "");
    for (int i = 0; i < r->num_prompts; i++) {
        if (i > 0) append_text(out, ",");
        append_ids(r, i, out);
    }
    append_text(out, r->num_prompts > 1 ? "]" : "");
}

static void append_prediction(const struct request *r, struct bytes *out)
{
    append_text(out, ",\"prediction\":{\"type\":\"content\",\"content\":\"");
    bytes_append(out, r->prediction, strlen(r->prediction));
    append_text(out, "\"}");
}

static void append_answer_fields(const struct request *r, struct bytes *out)
{
    append_text(out, ",\"max_tokens\":%d,\"n\":%d,\"stream\":%s", r->max_tokens,
                r->flaw == FLAW_BAD_FIELD ? -1 : r->n, r->stream ? "true" : "false");
    append_text(out, ",\"temperature\":%g,\"top_k\":%d,\"frequency_penalty\":%g,\"repetition_penalty\":%g",
                (double)r->temperature, r->top_k, (double)r->frequency_penalty,
                (double)r->repetition_penalty);
    append_text(out, ",\"min_tokens\":%d,\"ignore_eos\":%s,\"echo\":%s,\"include_stop_str_in_output\":%s",
                r->min_tokens, r->ignore_eos ? "true" : "false", r->echo ? "true" : "false",
                r->include_stop ? "true" : "false");
    if (r->num_logprobs >= 0) append_text(out, ",\"logprobs\":%d", r->num_logprobs);
    if (r->has_seed) append_text(out, ",\"seed\":%lld", (long long)r->seed);
    if (r->num_stops > 0) append_stops(r, out);
    if (r->stop_token_id >= 0) append_text(out, ",\"stop_token_ids\":[%d]", r->stop_token_id);
    if (r->bias_id >= 0) append_text(out, ",\"logit_bias\":{\"%d\":%d}", r->bias_id, r->bias);
    if (r->form > 0) append_text(out, ",%s", form_members(r->form));
    if (r->prediction[0]) append_prediction(r, out);
    if (r->stream && r->include_usage) append_text(out, ",\"stream_options\":{\"include_usage\":true}");
}

static void append_body(const struct request *r, struct bytes *out)
{
    append_prompts(r, out);
    if (r->embeds)
        append_text(out, ",\"normalize\":false,\"dimensions\":%d",
                    r->flaw == FLAW_BAD_FIELD ? 0 : (int)FAKE_HIDDEN);
    else
        append_answer_fields(r, out);
    if (r->priority != 0) append_text(out, ",\"priority\":%d", r->priority);
    if (r->salt > 0) append_text(out, ",\"cache_salt\":\"salt %d\"", r->salt);
    if (r->padding_bytes > 0) {
        append_text(out, ",\"user\":\"");
        for (int i = 0; i < r->padding_bytes; i += 100) append_text(out, "%0100d", 0);
        append_text(out, "\"");
    }
    append_text(out, "}");
}

void request_append_http(const struct request *r, struct bytes *out)
{
    struct bytes body = {0};
    append_body(r, &body);
    append_text(out, "POST /v1/%s HTTP/1.1\r\nHost: sim\r\nContent-Type: application/json\r\n",
                r->embeds ? "embeddings" : "completions");
    append_text(out, "x-request-id: %s\r\nContent-Length: %zu\r\n", r->id, body.num);
    if (has(FEATURE_salts))
        append_text(out, "Authorization: Bearer %s%d\r\n", r->flaw == FLAW_BAD_KEY ? "wrong" : "key", r->key);
    if (r->close_after) append_text(out, "Connection: close\r\n");
    if (r->timeout_ms > 0) append_text(out, "x-request-timeout: %.3f\r\n", r->timeout_ms / 1000.0);
    append_text(out, "\r\n");
    bytes_append(out, body.data, body.num);
    keep_free(body.data);
}

/* ---- as the engine must see it ---- */

void request_expected_input(const struct request *r, int prompt_idx, int i, uint64_t seed,
                            struct expected_input *out)
{
    memset(out, 0, sizeof *out);
    struct request_slot_input *in = &out->input;
    in->num_prompt_tokens = r->num_prompt[prompt_idx];
    in->max_tokens = r->max_tokens;
    in->min_tokens = r->min_tokens;
    in->ignore_eos = r->ignore_eos;
    in->constrained = r->form > 0;
    if (r->embeds) in->pooling = has(FEATURE_mean_pooling) ? POOLING_MEAN : POOLING_LAST;
    out->form = r->form;
    in->prompt_logprobs = r->echo && (r->num_logprobs >= 0 || r->max_tokens == 0);
    in->sampling = (struct sampling){.temperature = r->temperature,
                                     .top_p = 1,
                                     .top_k = r->top_k,
                                     .frequency_penalty = r->frequency_penalty,
                                     .repetition_penalty = r->repetition_penalty,
                                     .num_logprobs = r->num_logprobs,
                                     .seed = slot_fill_seed(seed, r->has_seed, prompt_idx, i)};
    if (in->prompt_logprobs) in->sampling.num_logprobs = max_of(in->sampling.num_logprobs, 0);
    if (r->stop_token_id >= 0) in->stop_token_ids[in->num_stop_token_ids++] = r->stop_token_id;
    if (r->bias_id >= 0)
        out->logit_bias[in->num_logit_bias++] = (struct logit_bias){r->bias_id, (float)r->bias};
}
