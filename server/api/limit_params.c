#include "server/api/limit_params.h"

#include <stdint.h>
#include <string.h>

#include "server/api/json_field.h"
#include "server/api/nul_text.h"
#include "text/tokenizer.h"

struct reader {
    const struct server *server;
    bool has_nul;
    struct token_limits *limits;
    struct api_error *err;
};

/* ---- allowed_token_ids ---- */

static int read_id(struct reader *r, const cJSON *item, int idx)
{
    char path[48];
    int64_t id, last = r->server->facts->vocab_size - 1;
    snprintf(path, sizeof path, "allowed_token_ids[%d]", idx);
    double number;
    if (!json_field_number(item, &number)) return json_field_refuse_type(item, path, "an integer", r->err);
    if (!json_field_as_int(item, 0, last, &id))
        return api_error_invalid(r->err, "invalid_value", path,
                                 "%s must be a token id from 0 to %lld; got %.17g", path, (long long)last,
                                 number);
    return token_limits_allow(r->limits, (int32_t)id) ? api_error_no_memory(r->err) : 0;
}

static int read_allowed(struct reader *r, const cJSON *list)
{
    const cJSON *item;
    int idx = 0, status = 0;
    if (!cJSON_IsArray(list))
        return json_field_refuse_type(list, "allowed_token_ids", "an array of integers", r->err);
    if (!list->child)
        return api_error_invalid(r->err, "invalid_value", "allowed_token_ids",
                                 "allowed_token_ids must not be empty: no answer would be left");
    cJSON_ArrayForEach(item, list)
    {
        if (status < 0) break;
        status = read_id(r, item, idx++);
    }
    return status;
}

/* ---- bad_words ---- */

/* As prefix and word, without what texts are begun with. */
static int encode(struct reader *r, const char *path, const char *prefix, const struct text *word,
                  struct token_list *list)
{
    struct buffer text;
    buffer_init(&text, SIZE_MAX / 2);
    buffer_append_text(&text, prefix);
    buffer_append(&text, word->bytes, word->num_bytes);
    int status = buffer_failed(&text)
                     ? STATUS_NO_MEMORY
                     : tokenizer_encode(r->server->tokenizer, text.data, text.num_bytes, NULL, 0,
                                        TOKENIZER_PARSE_SPECIAL, WORD_TOKENS_MAX, list);
    buffer_deinit(&text);
    if (status == STATUS_NO_MEMORY) return api_error_no_memory(r->err);
    if (status == 0 && list->num_ids > 0) return 0;
    return api_error_invalid(r->err, "invalid_value", path, "%s must have 1 to %d tokens", path,
                             (int)WORD_TOKENS_MAX);
}

static int forbid(struct reader *r, const struct token_list *list)
{
    return token_limits_forbid(r->limits, list->ids, list->num_ids) ? api_error_no_memory(r->err) : 0;
}

/* At the beginning of an answer and within it a word has other tokens. */
static int forbid_word(struct reader *r, const char *path, const struct text *word)
{
    struct token_list bare = {0}, spaced = {0};
    int status = encode(r, path, "", word, &bare);
    if (status == 0) status = forbid(r, &bare);
    if (status == 0) status = encode(r, path, " ", word, &spaced);
    if (status == 0) status = forbid(r, &spaced);
    token_list_deinit(&bare);
    token_list_deinit(&spaced);
    return status;
}

static int read_word(struct reader *r, const cJSON *item, const char *path)
{
    if (!cJSON_IsString(item)) return json_field_refuse_type(item, path, "a string", r->err);
    size_t n = strlen(item->valuestring), num_spaces = strspn(item->valuestring, " ");
    if (r->has_nul) n = nul_text_restore(item->valuestring, n);
    const struct text word = {item->valuestring + num_spaces, n - num_spaces};
    if (word.num_bytes == 0)
        return api_error_invalid(r->err, "invalid_value", path, "%s must hold more than spaces", path);
    return forbid_word(r, path, &word);
}

static int read_bad_words(struct reader *r, const cJSON *list)
{
    const cJSON *item;
    int idx = 0, status = 0;
    if (!cJSON_IsArray(list)) return json_field_refuse_type(list, "bad_words", "an array of strings", r->err);
    cJSON_ArrayForEach(item, list)
    {
        char path[32];
        if (status < 0) break;
        if (idx == BAD_WORDS_MAX)
            return api_error_invalid(r->err, "invalid_value", "bad_words",
                                     "bad_words must have at most %d strings", (int)BAD_WORDS_MAX);
        snprintf(path, sizeof path, "bad_words[%d]", idx++);
        status = read_word(r, item, path);
    }
    return status;
}

int limit_params_read(const struct server *server, const cJSON *body, bool has_nul,
                      const struct token_limits **out, struct api_error *err)
{
    const cJSON *allowed = json_field_find(body, "allowed_token_ids"),
                *words = json_field_find(body, "bad_words");
    struct reader r = {.server = server, .has_nul = has_nul, .err = err};
    *out = NULL;
    if (cJSON_IsArray(words) && !words->child) words = NULL;
    if (!allowed && !words) return 0;
    if (token_limits_new(server->facts->vocab_size, &r.limits)) return api_error_no_memory(err);
    int status = allowed ? read_allowed(&r, allowed) : 0;
    if (status == 0 && words) status = read_bad_words(&r, words);
    if (status == 0)
        *out = r.limits;
    else
        token_limits_release(r.limits);
    return status;
}
