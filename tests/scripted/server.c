/* server.c - the real server before a model that says what a script says, for tests of clients.
 *
 * The arguments are `serve`'s. FLASHD_SCRIPT names a JSON file, read for each request: [{"when": text, "say":
 * text}, ...]. Of the rules whose `when` stands in the prompt the one that stands furthest behind in it speaks (of
 * equals the first); without any the answer is empty. Tokens, control tokens in `say` included, are published
 * one by one as an engine does; then comes the end token. Model files are needed for their text only. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_writer.h"
#include "cli/process.h"
#include "config/config.h"
#include "files/json_read.h"
#include "server/server.h"
#include "text/model_text.h"

enum { TEXT_BYTES_MAX = 16 << 20, NUM_SLOTS = 64, MODEL_LEN = 1 << 16, BLOCK_TOKENS = 16 };

struct speaker {
    struct link *link;
    struct model_text text;
};

/* ---- what to say ---- */

static const char *find_last(const char *text, const char *word)
{
    const char *found = NULL;
    for (const char *at = text; *word && (at = strstr(at, word)); at++) found = at;
    return found;
}

static const char *choose(const cJSON *rules, const char *prompt)
{
    const char *say = "", *furthest = NULL;
    const cJSON *rule;
    cJSON_ArrayForEach(rule, rules)
    {
        const char *when = cJSON_GetStringValue(cJSON_GetObjectItem(rule, "when"));
        const char *at = when ? find_last(prompt, when) : NULL;
        if (!at || (furthest && at <= furthest)) continue;
        furthest = at;
        say = cJSON_GetStringValue(cJSON_GetObjectItem(rule, "say"));
    }
    return say ? say : "";
}

/* The tokens of the answer to a prompt. */
static void find_answer(const struct speaker *s, const int32_t *prompt, int32_t num_tokens,
                        struct token_list *out)
{
    const char *file = getenv("FLASHD_SCRIPT");
    struct buffer text;
    struct error err = {0};
    cJSON *rules = NULL;
    buffer_init(&text, TEXT_BYTES_MAX);
    buffer_append(&text, "", 0);
    tokenizer_decode(s->text.tokenizer, prompt, num_tokens, false, &text);
    if (!file || json_file_read(file, TEXT_BYTES_MAX, &rules, &err)) log_error("FLASHD_SCRIPT: %s", err.text);
    const char *say = choose(rules, text.data ? text.data : "");
    int status = tokenizer_encode(s->text.tokenizer, say, strlen(say), NULL, 0, TOKENIZER_PARSE_SPECIAL,
                                  MODEL_LEN, out);
    assert_always(status == 0);
    cJSON_Delete(rules);
    buffer_deinit(&text);
}

/* ---- the engine ---- */

static void publish(const struct speaker *s, struct request_slot *slot, int32_t slot_idx, int32_t i,
                    int32_t token)
{
    request_slots_tokens(link_slots(s->link), slot_idx)[slot->input.num_prompt_tokens + i] = token;
    if (i == 0) slot->scheduled_ns = slot->first_token_ns = clock_monotonic_ns();
    atomic_store_explicit(&slot->num_published, i + 1, memory_order_release);
    link_wake_front(s->link);
}

static void answer(const struct speaker *s, int32_t slot_idx)
{
    struct request_slot *slot = request_slots_get(link_slots(s->link), slot_idx);
    int32_t n = slot->input.num_prompt_tokens, eos = tokenizer_eos_id(s->text.tokenizer);
    struct token_list list = {0};
    find_answer(s, request_slots_tokens(link_slots(s->link), slot_idx), n, &list);
    int32_t count = min_of(list.num_ids, slot->input.max_tokens);
    for (int32_t i = 0; i < count; i++) publish(s, slot, slot_idx, i, list.ids[i]);
    enum finish_reason reason = FINISH_LENGTH;
    if (count < slot->input.max_tokens) {
        publish(s, slot, slot_idx, count, eos);
        slot->stop_token_id = eos;
        reason = FINISH_STOP;
    }
    link_counters(s->link)->num_dequeued++;
    link_counters(s->link)->dequeued_prompt_tokens += (uint64_t)n;
    atomic_store_explicit(&slot->finish_reason, reason, memory_order_release);
    link_wake_front(s->link);
    token_list_deinit(&list);
}

static void serve_requests(const struct speaker *s)
{
    while (!link_is_stopping(s->link)) {
        uint32_t seen = link_num_calls(s->link);
        int32_t slot_idx;
        while (link_next_submission(s->link, &slot_idx)) answer(s, slot_idx);
        if (!link_is_stopping(s->link)) link_sleep(s->link, seen);
    }
}

static void speak(struct link *link, const struct config *config)
{
    struct speaker s = {.link = link};
    struct error err = {0};
    struct link_facts facts = {.family = "scripted",
                               .num_eos_ids = 1,
                               .generation = {-1, -1, -1, -1, -1, -1},
                               .num_slots = NUM_SLOTS,
                               .max_model_len = MODEL_LEN,
                               .max_num_seqs = NUM_SLOTS,
                               .max_num_batched_tokens = MODEL_LEN,
                               .block_size = BLOCK_TOKENS,
                               .num_blocks = NUM_SLOTS * MODEL_LEN / BLOCK_TOKENS,
                               .device = "script"};
    int status = model_text_open(config->model, config->chat_template, &s.text, &err);
    if (status == 0) {
        facts.vocab_size = tokenizer_vocab_size(s.text.tokenizer);
        facts.eos_ids[0] = tokenizer_eos_id(s.text.tokenizer);
        status = link_open(link, &facts, &err);
    }
    link_set_state(link, status ? LINK_REFUSED : LINK_READY, status ? err.text : NULL);
    if (status == 0) serve_requests(&s);
    model_text_close(&s.text);
}

int main(int argc, char **argv)
{
    extern char **environ;
    struct config config;
    struct error err = {0};
    if (argc < 2 || config_init(&config, &err) || config_load(&config, argc - 2, argv + 2, environ, &err) ||
        config_set(&config, "engine", "thread", "the test", &err) || process_start_workers(&err) ||
        log_writer_start(&err)) {
        fprintf(stderr, "scripted server: %s\n", argc < 2 ? "serve MODEL [options]" : err.text);
        return EXIT_FAILURE;
    }
    int code = server_run(&config, speak);
    log_writer_stop();
    config_deinit(&config);
    return code;
}
