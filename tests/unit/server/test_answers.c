/* What leaves the API: log probabilities, chunks, whole answers; and what goes to the engine: seeds, salts,
 * bans. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/admission.h"
#include "server/api/answer_json.h"
#include "server/api/slot_fill.h"
#include "unit/server/fake_tokenizer.h"

static const struct token_logprobs two_tops = {
    .logprob = -0.5f, .num_top = 2, .top_ids = {FAKE_WORD, 'a'}, .top_logprobs = {-0.5f, -1.25f}};

static void chat_logprobs(void **state)
{
    (void)state;
    struct logprobs_text t;
    struct buffer out;
    const struct token_logprobs none = {.logprob = -INFINITY};
    buffer_init(&out, 4096);
    logprobs_text_init(&t, API_CHAT, NULL, false, 4096);
    logprobs_text_add(&t, FAKE_WORD, &two_tops);
    logprobs_text_add(&t, 0xF0, &none); /* the first byte of an emoji alone */
    logprobs_text_append(&t, &out);
    assert_string_equal(out.data, "{\"content\":[{\"token\":\"hello\",\"logprob\":-0.5,\"bytes\":[104,101,"
                                  "108,108,111],\"top_logprobs\":["
                                  "{\"token\":\"hello\",\"logprob\":-0.5,\"bytes\":[104,101,108,108,111]},"
                                  "{\"token\":\"a\",\"logprob\":-1.25,\"bytes\":[97]}]},"
                                  "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-9999,\"bytes\":[240],\"top_"
                                  "logprobs\":[]}],\"refusal\":null}");
    buffer_clear(&out);
    logprobs_text_append(&t, &out);
    assert_string_equal(out.data, "{\"content\":[],\"refusal\":null}");
    logprobs_text_deinit(&t);
    buffer_deinit(&out);
}

static void completion_logprobs(void **state)
{
    (void)state;
    struct logprobs_text t;
    struct buffer out;
    const struct token_logprobs apart = {
        .logprob = -3, .num_top = 1, .top_ids = {'b'}, .top_logprobs = {-0.25f}};
    buffer_init(&out, 4096);
    logprobs_text_init(&t, API_COMPLETIONS, NULL, false, 4096);
    logprobs_text_add(&t, FAKE_WORD + 2, NULL); /* one character of four bytes */
    logprobs_text_add(&t, FAKE_WORD, &two_tops);
    logprobs_text_append(&t, &out);
    assert_string_equal(out.data,
                        "{\"tokens\":[\"\xF0\x9F\x98\x80\",\"hello\"],\"token_logprobs\":[null,-0.5],"
                        "\"top_logprobs\":[null,{\"hello\":-0.5,\"a\":-1.25}],\"text_offset\":[0,1]}");
    buffer_clear(&out);
    logprobs_text_add(&t, 'a', &apart); /* the token itself comes after the top entries */
    logprobs_text_append(&t, &out);
    assert_string_equal(
        out.data, "{\"tokens\":[\"a\"],\"token_logprobs\":[-3],\"top_logprobs\":[{\"b\":-0.25,\"a\":-3}],"
                  "\"text_offset\":[6]}");
    logprobs_text_deinit(&t);
    buffer_deinit(&out);
}

/* Different bytes with the same text: an object has a key once. */
static void equal_texts_stand_once(void **state)
{
    (void)state;
    struct logprobs_text t;
    struct buffer out;
    const struct token_logprobs lp = {
        .logprob = -2, .num_top = 3, .top_ids = {0xF0, 0xF1, 'x'}, .top_logprobs = {-0.5f, -1, -1.5f}};
    buffer_init(&out, 4096);
    logprobs_text_init(&t, API_COMPLETIONS, NULL, false, 4096);
    logprobs_text_add(&t, 0xF2, &lp);
    logprobs_text_append(&t, &out);
    assert_non_null(strstr(out.data, "\"top_logprobs\":[{\"\xEF\xBF\xBD\":-0.5,\"x\":-1.5}]"));
    buffer_clear(&out);
    logprobs_text_deinit(&t);
    logprobs_text_init(&t, API_COMPLETIONS, NULL, true, 4096);
    logprobs_text_add(&t, 0xF2, &lp);
    logprobs_text_append(&t, &out);
    assert_non_null(strstr(
        out.data, "[{\"token_id:240\":-0.5,\"token_id:241\":-1,\"token_id:120\":-1.5,\"token_id:242\":-2}]"));
    logprobs_text_deinit(&t);
    buffer_deinit(&out);
}

static void chunks(void **state)
{
    (void)state;
    struct buffer out;
    struct answer_head head = {
        .kind = API_CHAT, .id = "chatcmpl-1", .created = 7, .model = "m\"x", .reports_cached_tokens = true};
    buffer_init(&out, 4096);
    answer_append_chunk(&out, &head, &(struct chunk){.index = 0, .is_first = true});
    answer_append_chunk(&out, &head, &(struct chunk){.index = 1, .text = "a\nb", .text_bytes = 2});
    head.usage_in_chunks = true;
    answer_append_chunk(&out, &head, &(struct chunk){.index = 1, .finish_reason = "stop"});
    answer_append_usage_chunk(&out, &head, &(struct usage){3, 4, 2});
    answer_append_done(&out);
#define HEAD                                                                                                 \
    "data: "                                                                                                 \
    "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\\\"x\","        \
    "\"choices\":["
    assert_string_equal(
        out.data, HEAD
        "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"logprobs\":null,"
        "\"finish_reason\":null}]}\n\n" HEAD
        "{\"index\":1,\"delta\":{\"content\":\"a\\n\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n" HEAD
        "{\"index\":1,\"delta\":{},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":null}\n\n" HEAD
        "],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":7,"
        "\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n");
    buffer_deinit(&out);
}

static void whole_answers(void **state)
{
    (void)state;
    struct buffer out;
    struct choice choices[2] = {{.index = 0, .finish_reason = "stop"},
                                {.index = 1, .finish_reason = "length"}};
    struct answer_head head = {.kind = API_COMPLETIONS, .id = "cmpl-1", .created = 7, .model = "m"};
    buffer_init(&out, 4096);
    buffer_init(&choices[0].ready, 16);
    buffer_init(&choices[1].ready, 16);
    buffer_append_text(&choices[0].ready, "x\ty");
    answer_append_whole(&out, &head, choices, 2, false, &(struct usage){1, 2, 0});
    assert_string_equal(
        out.data,
        "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":7,\"model\":\"m\",\"choices\":["
        "{\"index\":0,\"text\":\"x\\ty\",\"logprobs\":null,\"finish_reason\":\"stop\"},"
        "{\"index\":1,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}],"
        "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3,"
        "\"prompt_tokens_details\":null}}");
    buffer_deinit(&choices[0].ready);
    buffer_deinit(&choices[1].ready);
    buffer_deinit(&out);
}

/* What the cache held is nobody's business but who says so. */
static void cached_tokens_can_be_kept_secret(void **state)
{
    (void)state;
    struct buffer out;
    struct answer_head head = {.kind = API_CHAT, .id = "chatcmpl-1", .created = 7, .model = "m"};
    buffer_init(&out, 4096);
    answer_append_usage_chunk(&out, &head, &(struct usage){3, 4, 2});
    assert_non_null(strstr(out.data, "\"total_tokens\":7,\"prompt_tokens_details\":null}}\n\n"));
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
    static const struct {
        const char *key, *salt;
    } cases[] = {{NULL, NULL}, {"a", NULL}, {NULL, "a"}, {"a", "b"}, {"ab", NULL}, {NULL, "ab"}, {"b", "a"}};
    uint8_t salt[array_length(cases)][CACHE_SALT_BYTES], again[CACHE_SALT_BYTES];
    for (size_t i = 0; i < array_length(cases); i++) {
        const char *s = cases[i].salt;
        slot_fill_cache_salt(cases[i].key, s, s ? strlen(s) : 0, salt[i]);
        for (size_t k = 0; k < i; k++) assert_memory_not_equal(salt[i], salt[k], CACHE_SALT_BYTES);
    }
    slot_fill_cache_salt("a", "b", 1, again);
    assert_memory_equal(again, salt[3], CACHE_SALT_BYTES);
}

static void bans(void **state)
{
    (void)state;
    static struct request_slot_input input;
    static struct request_payload payload;
    static const int32_t silent[] = {5, 9, 10};
    payload.logit_bias[0] = (struct logit_bias){3, 1};
    payload.logit_bias[1] = (struct logit_bias){9, 100};
    payload.logit_bias[2] = (struct logit_bias){20, -1};
    input.num_logit_bias = 3;
    assert_true(slot_fill_ban(&input, &payload, silent, 3));
    static const int32_t ids[] = {3, 5, 9, 10, 20};
    assert_int_equal(input.num_logit_bias, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(payload.logit_bias[i].token_id, ids[i]);
        assert_int_equal(isinf(payload.logit_bias[i].bias) != 0, i >= 1 && i <= 3);
    }
    for (int i = 0; i < LOGIT_BIAS_MAX; i++) payload.logit_bias[i] = (struct logit_bias){100 + i, 0};
    input.num_logit_bias = LOGIT_BIAS_MAX;
    assert_false(slot_fill_ban(&input, &payload, silent, 1));
    input.num_logit_bias = LOGIT_BIAS_MAX - 1;
    assert_true(slot_fill_ban(&input, &payload, silent, 1));
    assert_int_equal(input.num_logit_bias, LOGIT_BIAS_MAX);
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
    assert_int_equal(slot_fill_num_tokens(&server, &p, 100), 100 + TYPICAL_ANSWER_TOKENS);
    p.kind = API_COMPLETIONS;
    assert_int_equal(slot_fill_max_tokens(&server, &p, 100), 16);
    assert_int_equal(slot_fill_max_tokens(&server, &p, 995), 5);
    p.max_tokens = 700;
    assert_int_equal(slot_fill_max_tokens(&server, &p, 100), 700);
    assert_int_equal(slot_fill_num_tokens(&server, &p, 100), 800);
    config_deinit(&config);
}

static void retry_after(void **state)
{
    (void)state;
    const struct admission a = {.num_sequences = 10, .num_tokens = 5000};
    assert_int_equal(admission_retry_after(&a, 1, 0, 100), 5); /* 500 tokens a sequence */
    assert_int_equal(admission_retry_after(&a, 2, 0, 100), 10);
    assert_int_equal(admission_retry_after(&a, 0, 1200, 100), 12);
    assert_int_equal(admission_retry_after(&a, 0, 50, 100), 1);
    assert_int_equal(admission_retry_after(&a, 10, 0, 1), 60);
    assert_int_equal(admission_retry_after(&a, 1, 0, 0), 1);
    assert_int_equal(admission_retry_after(&(struct admission){0}, 1, 0, 100), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_logprobs),
        cmocka_unit_test(completion_logprobs),
        cmocka_unit_test(equal_texts_stand_once),
        cmocka_unit_test(chunks),
        cmocka_unit_test(whole_answers),
        cmocka_unit_test(cached_tokens_can_be_kept_secret),
        cmocka_unit_test(seeds),
        cmocka_unit_test(salts),
        cmocka_unit_test(bans),
        cmocka_unit_test(max_tokens),
        cmocka_unit_test(retry_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
