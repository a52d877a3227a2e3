/* What leaves the API: log probabilities, chunks, whole answers; and what goes to the engine: seeds, salts,
 * bans. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "server/api/codec.h"
#include "server/api/number_text.h"
#include "server/api/slot_fill.h"
#include "unit/server/fake_tokenizer.h"

static const struct token_logprobs two_tops = {
    .logprob = -0.5f, .num_top = 2, .top_ids = {FAKE_WORD, 'a'}, .top_logprobs = {-0.5f, -1.25f}};

static char some_tokenizer;
static const struct tokenizer *const tokenizer = (const struct tokenizer *)&some_tokenizer;

/* Positions begin.. of a sequence, as text; offsets as the answer's unless given. */
static const char *as_json(enum api_kind kind, const struct logprobs_part *part)
{
    static struct buffer out;
    struct token_offsets offsets;
    struct logprobs_part copy = *part;
    copy.tokenizer = tokenizer;
    token_offsets_init(&offsets, tokenizer, &(struct prompt){0}, false);
    if (!copy.offsets) copy.offsets = &offsets;
    buffer_deinit(&out);
    buffer_init(&out, 1 << 16);
    logprobs_append(&out, kind, &copy);
    token_offsets_deinit(&offsets);
    return out.data;
}

static void chat_logprobs(void **state)
{
    (void)state;
    const int32_t tokens[] = {FAKE_WORD, 0xF0 /* the first byte of an emoji alone */};
    const struct token_logprobs logprobs[] = {two_tops, {.logprob = -INFINITY}};
    struct logprobs_part part = {
        .num_top = 20, .begin = 7, .end = 9, .first = 7, .tokens = tokens, .logprobs = logprobs};
    assert_string_equal(as_json(API_CHAT, &part),
                        "{\"content\":[{\"token\":\"hello\",\"logprob\":-0.5,\"bytes\":[104,101,"
                        "108,108,111],\"top_logprobs\":["
                        "{\"token\":\"hello\",\"logprob\":-0.5,\"bytes\":[104,101,108,108,111]},"
                        "{\"token\":\"a\",\"logprob\":-1.25,\"bytes\":[97]}]},"
                        "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-9999,\"bytes\":[240],\"top_"
                        "logprobs\":[]}],\"refusal\":null}");
    part.begin = 9;
    assert_string_equal(as_json(API_CHAT, &part), "{\"content\":[],\"refusal\":null}");
    part.begin = 7;
    part.end = 8;
    part.num_top = 0; /* the engine was asked for more, for the prompt's sake */
    assert_non_null(strstr(as_json(API_CHAT, &part), "\"top_logprobs\":[]}]"));
}

static void completion_logprobs(void **state)
{
    (void)state;
    const int32_t tokens[] = {FAKE_WORD + 2 /* one character of four bytes */, FAKE_WORD, 'a'};
    const struct token_logprobs logprobs[] = {
        {0}, two_tops, {.logprob = -3, .num_top = 1, .top_ids = {'b'}, .top_logprobs = {-0.25f}}};
    struct token_offsets offsets;
    token_offsets_init(&offsets, tokenizer, &(struct prompt){0}, false);
    struct logprobs_part part = {
        .num_top = 20, .offsets = &offsets, .end = 2, .tokens = tokens, .logprobs = logprobs};
    assert_string_equal(as_json(API_COMPLETIONS, &part),
                        "{\"tokens\":[\"\xF0\x9F\x98\x80\",\"hello\"],\"token_logprobs\":[null,-0.5],"
                        "\"top_logprobs\":[null,{\"hello\":-0.5,\"a\":-1.25}],\"text_offset\":[0,1]}");
    part.begin = 2; /* the token itself comes after the top entries */
    part.end = 3;
    assert_string_equal(
        as_json(API_COMPLETIONS, &part),
        "{\"tokens\":[\"a\"],\"token_logprobs\":[-3],\"top_logprobs\":[{\"b\":-0.25,\"a\":-3}],"
        "\"text_offset\":[6]}");
    token_offsets_deinit(&offsets);
}

static void expect_offsets(const struct prompt *prompt, bool skip_special, const int32_t *ids,
                           const int64_t *offsets, int count)
{
    struct token_offsets o;
    token_offsets_init(&o, tokenizer, prompt, skip_special);
    for (int i = 0; i < count; i++) assert_int_equal(token_offsets_next(&o, ids[i]), offsets[i]);
    token_offsets_deinit(&o);
}

/* text[offset:] begins with the token, whatever the text does not show and however a character is cut. */
static void offsets_are_the_texts(void **state)
{
    (void)state;
    const struct prompt none = {0};
    /* An emoji in four tokens is one character. */
    expect_offsets(&none, true, (int32_t[]){'a', 0xF0, 0x9F, 0x98, 0x80, 'b', FAKE_WORD + 2, 'c'},
                   (int64_t[]){0, 1, 1, 1, 1, 2, 3, 4}, 8);
    /* A control token has room where the text shows it. */
    expect_offsets(&none, true, (int32_t[]){'a', FAKE_EOS, 'b'}, (int64_t[]){0, 1, 1}, 3);
    expect_offsets(&none, false, (int32_t[]){'a', FAKE_EOS, 'b'}, (int64_t[]){0, 1, 5}, 3);
    /* An added BOS is in no text; one that the client wrote is. */
    int32_t added[] = {FAKE_BOS, 'x', 'y', 'z'}, written[] = {FAKE_BOS, FAKE_EOS, 'y', 'z'};
    const struct prompt text = {
        .tokens = {added, 3, 3}, .text = "xy", .text_bytes = 2, .num_added = 1, .text_has_special = true};
    expect_offsets(&text, true, added, (int64_t[]){0, 0, 1, 2}, 4);
    const struct prompt raw = {.tokens = {written, 3, 3},
                               .text = "</s>y",
                               .text_bytes = 5,
                               .num_added = 1,
                               .text_has_special = true};
    expect_offsets(&raw, true, written, (int64_t[]){0, 0, 4, 5}, 4);
    /* Ids are decoded without control tokens. */
    const struct prompt ids = {.tokens = {written, 3, 3}, .text = "y", .text_bytes = 1};
    expect_offsets(&ids, true, written, (int64_t[]){0, 0, 0, 1}, 4);
}

/* Different bytes with the same text: an object has a key once. */
static void equal_texts_stand_once(void **state)
{
    (void)state;
    const int32_t token = 0xF2;
    const struct token_logprobs lp = {
        .logprob = -2, .num_top = 3, .top_ids = {0xF0, 0xF1, 'x'}, .top_logprobs = {-0.5f, -1, -1.5f}};
    struct logprobs_part part = {
        .num_top = 20, .begin = 1, .end = 2, .first = 1, .tokens = &token, .logprobs = &lp};
    assert_non_null(
        strstr(as_json(API_COMPLETIONS, &part), "\"top_logprobs\":[{\"\xEF\xBF\xBD\":-0.5,\"x\":-1.5}]"));
    part.token_ids_as_text = true;
    assert_non_null(
        strstr(as_json(API_COMPLETIONS, &part),
               "[{\"token_id:240\":-0.5,\"token_id:241\":-1,\"token_id:120\":-1.5,\"token_id:242\":-2}]"));
}

static void prompt_logprobs_are_vllms(void **state)
{
    (void)state;
    const int32_t tokens[] = {'z', 'a', 'q'};
    const struct token_logprobs logprobs[] = {
        {0}, two_tops, {.logprob = -7, .num_top = 1, .top_ids = {'b'}, .top_logprobs = {-0.25f}}};
    struct logprobs_part part = {
        .tokenizer = tokenizer, .num_top = 20, .end = 3, .tokens = tokens, .logprobs = logprobs};
    struct buffer out;
    buffer_init(&out, 4096);
    prompt_logprobs_append(&out, &part);
    assert_string_equal(out.data, "[null,{\"97\":{\"logprob\":-0.5,\"rank\":2,\"decoded_token\":\"a\"},"
                                  "\"256\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"hello\"}},"
                                  "{\"113\":{\"logprob\":-7,\"rank\":null,\"decoded_token\":\"q\"},"
                                  "\"98\":{\"logprob\":-0.25,\"rank\":1,\"decoded_token\":\"b\"}}]");
    buffer_deinit(&out);
}

static const struct link_facts on_cpu = {.device = "cpu (AVX-512 VNNI, 2 threads)"};

/* Which is a build's own, but for the kernels. */
static const char *without_fingerprint(char *text)
{
    static const char name[] = "\"system_fingerprint\":\"fp_", kernels[] = "_cpu_AVX512_VNNI\",";
    for (char *at = text; (at = strstr(at, name));) {
        char *end = strchr(at, ',') + 1;
        assert_memory_equal(end - strlen(kernels), kernels, strlen(kernels));
        memmove(at, end, strlen(end) + 1);
    }
    return text;
}

static void chunks(void **state)
{
    (void)state;
    struct buffer out;
    const struct choice choice = {.index = 1};
    struct params params = {.include_usage = false};
    struct server server = {.facts = &on_cpu};
    const struct choice_context context = {.server = &server, .params = &params};
    struct answer a = {.codec = &codec_chat,
                       .id = "chatcmpl-1",
                       .created = 7,
                       .model = "m\"x",
                       .reports_cached_tokens = true,
                       .context = &context,
                       .choices = &choice,
                       .num_choices = 1};
    buffer_init(&out, 4096);
    codec_append(&out, EVENT_STARTED, &a, &(struct event){0});
    codec_append(&out, EVENT_DELTA, &a, &(struct event){.choice = &choice, .text = "a\nb", .text_bytes = 2});
    params.include_usage = true;
    codec_append(&out, EVENT_DELTA, &a, &(struct event){.choice = &choice, .finish_reason = "stop"});
    codec_append(&out, EVENT_DONE, &a,
                 &(struct event){.usage = &(struct usage){3, 4, 2, 1, {CACHE_MISS_NONE, 0}, 0, 0, 0}});
#define HEAD                                                                                                 \
    "data: "                                                                                                 \
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\\\"x\","        \
    "\"choices\":["
    assert_string_equal(
        without_fingerprint(out.data), HEAD
        "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,"
        "\"finish_reason\":null}]}\n\n" HEAD
        "{\"index\":1,\"delta\":{\"content\":\"a\\n\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n" HEAD
        "{\"index\":1,\"delta\":{\"content\":\"\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":"
        "null}\n\n" HEAD "],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2},\"completion_tokens_details\":{\"reasoning_tokens\":"
        "1}}}\n\ndata: [DONE]\n\n");
    buffer_deinit(&out);
}

static void whole_answers(void **state)
{
    (void)state;
    struct buffer out;
    struct choice choices[2] = {{.index = 0, .finish_reason = "stop"},
                                {.index = 1, .finish_reason = "length"}};
    buffer_init(&out, 4096);
    buffer_init(&choices[0].ready, 16);
    buffer_init(&choices[1].ready, 16);
    buffer_append_text(&choices[0].ready, "x\ty");
    const struct params params = {.num_prompt_logprobs = -1};
    struct server server = {.tokenizer = tokenizer, .facts = &on_cpu};
    const struct choice_context context = {.server = &server, .params = &params};
    choices[0].slot_idx = choices[1].slot_idx = -1;
    struct answer a = {.codec = &codec_completions,
                       .id = "cmpl-1",
                       .created = 7,
                       .model = "m",
                       .context = &context,
                       .choices = choices,
                       .num_choices = 2};
    codec_append(&out, EVENT_WHOLE, &a,
                 &(struct event){.usage = &(struct usage){1, 2, 0, 0, {CACHE_MISS_NONE, 0}, 0, 0, 0}});
    assert_string_equal(
        without_fingerprint(out.data),
        "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":7,\"model\":\"m\",\"choices\":["
        "{\"index\":0,\"text\":\"x\\ty\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
        "{\"index\":1,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}],"
        "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3,"
        "\"prompt_tokens_details\":null}}");
    buffer_deinit(&choices[0].ready);
    buffer_deinit(&choices[1].ready);
    buffer_deinit(&out);
}

/* Blocks of Messages follow the pieces: thinking, text, and one for each call. */
static void blocks_of_messages(void **state)
{
    (void)state;
    char memory[64] = {0};
    struct buffer out;
    const struct choice choice = {.num_prompt_tokens = 5, .text.stop_idx = -1};
    const struct params params = {.n = 1};
    const struct choice_context context = {.params = &params};
    const struct call calls[] = {{.index = 0, .name = "f", .id = "x"}, {.index = 1, .name = "g", .id = "y"}};
    struct answer a = {.codec = &codec_messages,
                       .id = "msg_1",
                       .model = "m",
                       .context = &context,
                       .choices = &choice,
                       .num_choices = 1,
                       .state = memory};
    const struct event events[] = {
        {.piece = PIECE_REASONING, .text = "hm", .text_bytes = 2},
        {.piece = PIECE_TEXT, .text = "Let me", .text_bytes = 6},
        {.piece = PIECE_TEXT, .text = " see", .text_bytes = 4},
        {.piece = PIECE_CALL, .call = &calls[0]},
        {.piece = PIECE_ARGUMENTS, .call = &calls[0], .text = "{\"a\":", .text_bytes = 5},
        {.piece = PIECE_ARGUMENTS, .call = &calls[0], .text = "1}", .text_bytes = 2},
        {.piece = PIECE_CALL, .call = &calls[1]},
        {.piece = PIECE_TEXT,
         .finish_reason = "tool_calls",
         .usage = &(struct usage){5, 9, 0, 0, {CACHE_MISS_NONE, 0}, 0, 0, 0}},
    };
    assert_true(codec_messages.state_bytes <= sizeof memory);
    buffer_init(&out, 1 << 16);
    for (size_t i = 0; i < array_length(events); i++) {
        struct event e = events[i];
        e.choice = &choice;
        codec_append(&out, EVENT_DELTA, &a, &e);
    }
    const char *at = out.data;
    static const char *const expected[] = {
        "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",",
        "\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}",
        "{\"type\":\"content_block_stop\",\"index\":0}",
        "\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\",\"citations\":null}}",
        "\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Let me\"}}",
        "\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\" see\"}}",
        "{\"type\":\"content_block_stop\",\"index\":1}",
        "\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"x\",\"name\":\"f\",\"caller\":{"
        "\"type\":\"direct\"},\"input\":{}}}",
        "\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\":\"}}",
        "\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"1}\"}}",
        "{\"type\":\"content_block_stop\",\"index\":2}",
        "\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"id\":\"y\",\"name\":\"g\",\"caller\":{"
        "\"type\":\"direct\"},\"input\":{}}}",
        "{\"type\":\"content_block_stop\",\"index\":3}",
        "\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null,\"stop_details\":null,\"container\":"
        "null}",
    };
    for (size_t i = 0; i < array_length(expected); i++) {
        at = strstr(at, expected[i]);
        if (!at) fail_msg("%s is not in %s", expected[i], out.data);
    }
    buffer_clear(&out);
    codec_messages.append_error(&out,
                                &(struct failure){.http_status = 500, .message = "m", .request_id = "r"});
    assert_string_equal(
        out.data,
        "{\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"m\"},\"request_id\":\"r\"}");
    buffer_deinit(&out);
}

/* A model's arguments stand in an answer as they are, if they are JSON; what is nearly that becomes it, and what is not stands
 * there as a text. */
static void arguments_are_json(void **state)
{
    (void)state;
    static const struct {
        const char *said, *told;
    } cases[] = {{"{\"a\": 1}", "{\"a\": 1}"},
                 {"{\"a\":\"x\ny\"}", "{\"a\":\"x\\ny\"}"},
                 {"{\"a\":\x14 9}", "{\"a\":9}"},
                 {"{\"a\":9}{b}", "{\"a\":9}"},
                 {"{\"a\":", "{\"arguments\":\"{\\\"a\\\":\"}"},
                 {"[1]", "{\"arguments\":\"[1]\"}"},
                 {"null", "{}"},
                 {"", "{}"}};
    for (size_t i = 0; i < array_length(cases); i++) {
        struct buffer said, told;
        buffer_init(&said, 100);
        buffer_init(&told, 100);
        buffer_append_text(&said, cases[i].said);
        codec_append_arguments(&told, &said);
        assert_string_equal(told.data, cases[i].told);
        buffer_deinit(&said);
        buffer_deinit(&told);
    }
}

/* What the cache held is nobody's business but who says so. */
static void cached_tokens_can_be_kept_secret(void **state)
{
    (void)state;
    struct buffer out;
    const struct params params = {.include_usage = true};
    struct server server = {.facts = &on_cpu};
    const struct choice_context context = {.server = &server, .params = &params};
    struct answer a = {
        .codec = &codec_chat, .id = "chatcmpl-1", .created = 7, .model = "m", .context = &context};
    buffer_init(&out, 4096);
    codec_append(&out, EVENT_DONE, &a,
                 &(struct event){.usage = &(struct usage){3, 4, 2, 0, {CACHE_MISS_NONE, 0}, 0, 0, 0}});
    assert_non_null(strstr(out.data, "\"total_tokens\":7,\"prompt_tokens_details\":null,"));
    buffer_deinit(&out);
}

static void seeds(void **state)
{
    (void)state;
    /* A client's seed: choice i draws the same whichever prompt of a batch it belongs to. */
    assert_true(slot_fill_seed(42, true, 0, 0) == 42);
    assert_true(slot_fill_seed(42, true, 5, 0) == 42);
    assert_true(slot_fill_seed(42, true, 5, 2) == slot_fill_seed(42, true, 0, 2));
    assert_true(slot_fill_seed(42, true, 0, 1) != slot_fill_seed(42, true, 0, 2));
    assert_true(slot_fill_seed(42, true, 0, 1) != slot_fill_seed(43, true, 0, 1));
    /* Our own: every sequence differs, and the first repeats with the seed that the log names. */
    assert_true(slot_fill_seed(42, false, 0, 0) == 42);
    assert_true(slot_fill_seed(42, false, 1, 0) != 42);
    assert_true(slot_fill_seed(42, false, 1, 1) != slot_fill_seed(42, false, 0, 1));
}

static void salts(void **state)
{
    (void)state;
    static const struct cache_salt_parts cases[] = {
        {NULL, NULL, 0, NULL}, {"a", NULL, 0, NULL},  {NULL, "a", 1, NULL},
        {"a", "b", 1, NULL},   {"ab", NULL, 0, NULL}, {NULL, "ab", 2, NULL},
        {"b", "a", 1, NULL},   {"a", "b", 1, "c"},    {"a", "b", 1, "d"}};
    uint8_t salt[array_length(cases)][CACHE_SALT_BYTES], again[CACHE_SALT_BYTES];
    for (size_t i = 0; i < array_length(cases); i++) {
        slot_fill_cache_salt(&cases[i], salt[i]);
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(salt[i], salt[k], CACHE_SALT_BYTES);
    }
    slot_fill_cache_salt(&cases[3], again);
    assert_memory_equal(again, salt[3], CACHE_SALT_BYTES);
}

static void max_tokens(void **state)
{
    (void)state;
    struct config config;
    assert_int_equal(config_init(&config, NULL), 0);
    struct link_facts facts = {.generation = {-1, -1, -1, -1, -1, 50}, .max_model_len = 1000};
    struct server server = {.config = &config, .facts = &facts};
    struct params p = {.kind = API_CHAT, .max_tokens = MAX_TOKENS_DEFAULT};
    assert_int_equal(slot_fill_max_tokens(&server, &p, 100), 50);
    assert_int_equal(slot_fill_max_tokens(&server, &p, 990), 10);
    facts.generation.max_new_tokens = -1;
    assert_int_equal(slot_fill_max_tokens(&server, &p, 100), 900);
    p.kind = API_COMPLETIONS;
    assert_int_equal(slot_fill_max_tokens(&server, &p, 100), 16);
    assert_int_equal(slot_fill_max_tokens(&server, &p, 995), 5);
    p.max_tokens = 700;
    assert_int_equal(slot_fill_max_tokens(&server, &p, 100), 700);
    config_deinit(&config);
}

/* ---- embeddings ---- */

/* As few digits as there are, nine at most, and the same float again. */
static void check_float(float x)
{
    char text[NUMBER_CHARS_MAX + 1] = {0};
    size_t n = number_write_float(text, x);
    assert_in_range(n, 1, NUMBER_CHARS_MAX);
    float again = strtof(text, NULL);
    if (memcmp(&again, &x, sizeof x) != 0) fail_msg("%a is written as %s", (double)x, text);
}

static void floats_read_as_they_were(void **state)
{
    (void)state;
    static const struct {
        float x;
        const char *text;
    } cases[] = {{0, "0"},
                 {-0.0f, "-0"},
                 {1, "1"},
                 {-2.5f, "-2.5"},
                 {0.1f, "0.100000001"},
                 {1e-5f, "9.99999975e-6"},
                 {10, "10"},
                 {9.5e-7f, "9.50000015e-7"},
                 {16384, "16384"},
                 {-14.25f, "-14.25"},
                 {1234567.5f, "1234567.5"},
                 {999999936, "999999936"},
                 {1e9f, "1e9"},
                 {1e30f, "1.00000002e30"},
                 {-1e-30f, "-1e-30"}};
    for (size_t i = 0; i < array_length(cases); i++) {
        char text[NUMBER_CHARS_MAX + 1] = {0};
        number_write_float(text, cases[i].x);
        assert_string_equal(text, cases[i].text);
        check_float(cases[i].x);
    }
    for (uint64_t i = 0; i < 300000; i++) { /* any bits; infinities and NaN are never told */
        uint32_t bits = rng_philox(7, i, 0).word[0];
        float x;
        memcpy(&x, &bits, sizeof x);
        if (isfinite(x)) check_float(x);
    }
    for (int i = -149; i <= 127; i++) {
        check_float(ldexpf(1, i));
        check_float(nextafterf(ldexpf(1, i), 0));
    }
    check_float(FLT_MAX);
}

static const char *as_embedding(const float *row, struct embedding_form form)
{
    static struct buffer out;
    buffer_deinit(&out);
    buffer_init(&out, 1 << 12);
    embedding_append(&out, row, &form);
    assert_false(buffer_failed(&out));
    return out.data;
}

static void embeddings_in_their_forms(void **state)
{
    (void)state;
    static const float row[] = {3, -4, 12, 84}, zeros[4];
    assert_string_equal(as_embedding(row, (struct embedding_form){.dimensions = 4}), "[3,-4,12,84]");
    assert_string_equal(as_embedding(row, (struct embedding_form){.dimensions = 2, .normalized = true}),
                        "[0.600000024,-0.800000012]");
    assert_string_equal(as_embedding(zeros, (struct embedding_form){.dimensions = 2, .normalized = true}),
                        "[0,0]");
    assert_string_equal(as_embedding(row, (struct embedding_form){.dimensions = 1, .base64 = true}),
                        "\"AABAQA==\"");
    assert_string_equal(as_embedding(row, (struct embedding_form){.dimensions = 3, .base64 = true}),
                        "\"AABAQAAAgMAAAEBB\"");
    assert_string_equal(as_embedding(row, (struct embedding_form){.dimensions = 4, .base64 = true}),
                        "\"AABAQAAAgMAAAEBBAACoQg==\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_logprobs),
        cmocka_unit_test(completion_logprobs),
        cmocka_unit_test(offsets_are_the_texts),
        cmocka_unit_test(equal_texts_stand_once),
        cmocka_unit_test(prompt_logprobs_are_vllms),
        cmocka_unit_test(chunks),
        cmocka_unit_test(blocks_of_messages),
        cmocka_unit_test(whole_answers),
        cmocka_unit_test(cached_tokens_can_be_kept_secret),
        cmocka_unit_test(arguments_are_json),
        cmocka_unit_test(seeds),
        cmocka_unit_test(salts),
        cmocka_unit_test(max_tokens),
        cmocka_unit_test(floats_read_as_they_were),
        cmocka_unit_test(embeddings_in_their_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
