#include "server/api/prompts.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/chat_messages.h"
#include "server/api/chat_turns.h"
#include "server/api/json_field.h"
#include "server/api/nul_text.h"
#include "text/rerank_template.h"

enum { ECHO_BYTES_MAX = 16 << 20 };

struct prompt_reader {
    const struct server *server;
    const struct params *params;
    struct arena *arena;
    struct prompts *out;
    struct api_error *err;
};

void prompts_deinit(struct prompts *p)
{
    for (int i = 0; i < p->count; i++) token_list_deinit(&p->items[i].tokens);
    p->count = 0;
    token_list_deinit(&p->prediction);
}

/* What the operator could do about it. */
static const char *remedy(const struct prompt_reader *r)
{
    const struct link_facts *facts = r->server->facts;
    return facts->max_model_len < facts->model_positions ? " (or raise --max-model-len)" : "";
}

static int refuse_too_long(const struct prompt_reader *r, const char *param, const char *amount,
                           int32_t num_tokens)
{
    bool answers = r->params->max_tokens != 0;
    if (r->params->ends_with_context) /* Messages: its clients know the sentence, and read the numbers */
        return api_error_invalid(r->err, "context_length_exceeded", param,
                                 "prompt is too long: %s%d tokens > %d maximum", amount, num_tokens,
                                 r->server->facts->max_model_len - answers);
    return api_error_invalid(
        r->err, "context_length_exceeded", param,
        "This model's maximum context length is %d tokens. However, the prompt has %s%d tokens%s; "
        "shorten the prompt%s",
        r->server->facts->max_model_len, amount, num_tokens,
        answers ? " and the answer needs at least one more" : "", remedy(r));
}

/* Also of a text that is longer than the model's context: it may be cut, and a refusal says by how much. */
static int32_t tokens_max(const struct prompt_reader *r)
{
    return max_of(r->server->facts->max_model_len, (int32_t)r->server->config->max_tokenize_tokens);
}

static int refuse_encoding(const struct prompt_reader *r, int status, const char *param, int32_t limit)
{
    if (status == STATUS_LIMIT) return refuse_too_long(r, param, "more than ", limit);
    return api_error_set(r->err, 500, "server_error", NULL, NULL, "tokenising: %s", status_text(status));
}

/* Appends the ids of one text. */
static int encode(struct prompt_reader *r, const char *text, size_t num_bytes,
                  const struct text_range *untrusted, int num_untrusted, unsigned flags, const char *param,
                  struct token_list *list)
{
    int32_t limit = tokens_max(r);
    int status =
        tokenizer_encode(r->server->tokenizer, text, num_bytes, untrusted, num_untrusted, flags, limit, list);
    return status < 0 ? refuse_encoding(r, status, param, limit) : 0;
}

/* What an encoder was made to see around a text stays there. */
struct list_ends {
    int32_t before, after;
};

static struct list_ends ends_of(const struct prompt_reader *r, unsigned flags)
{
    if (!r->server->facts->is_encoder || !(flags & TOKENIZER_ADD_SPECIAL)) return (struct list_ends){0, 0};
    return (struct list_ends){tokenizer_num_before(r->server->tokenizer),
                              tokenizer_num_after(r->server->tokenizer)};
}

static void cut_list(struct token_list *list, struct list_ends ends, int32_t num_left, bool cuts_right)
{
    const int32_t num_cut = list->num_ids - num_left, at = cuts_right ? num_left - ends.after : ends.before;
    memmove(list->ids + at, list->ids + at + num_cut, (size_t)(num_left - at) * sizeof *list->ids);
    list->num_ids = num_left;
}

/* truncate_prompt_tokens: the last so many stay, or the first (truncation_side); -1: as many as leave room for the answer. */
static void truncate_list(const struct prompt_reader *r, struct token_list *list, unsigned flags)
{
    struct list_ends ends = ends_of(r, flags);
    int32_t wanted = r->params->truncate_prompt_tokens;
    if (wanted < 0) wanted = r->server->facts->max_model_len - max_of(r->params->max_tokens, (int32_t)1);
    if (r->params->truncate_prompt_tokens == 0 || wanted < 1 || list->num_ids <= wanted) return;
    if (ends.before + ends.after > wanted) ends = (struct list_ends){0, 0};
    cut_list(list, ends, wanted, r->params->truncates_right);
}

/* An empty prompt is continued from the model's beginning-of-sequence token. */
static int add_bos_if_empty(struct prompt_reader *r, struct token_list *list, const char *param)
{
    int32_t bos = tokenizer_bos_id(r->server->tokenizer);
    if (list->num_ids > 0) return 0;
    if (bos < 0)
        return api_error_invalid(
            r->err, "invalid_value", param,
            "the prompt is empty, and this model has no beginning-of-sequence token to start from");
    if (!list->ids) list->ids = malloc(sizeof *list->ids);
    if (!list->ids) return api_error_no_memory(r->err);
    list->capacity = max_of(list->capacity, 1);
    list->ids[list->num_ids++] = bos;
    return 0;
}

static int check_length(struct prompt_reader *r, const struct token_list *list, const char *param)
{
    int32_t room = r->server->facts->max_model_len - list->num_ids, wanted = r->params->max_tokens;
    bool only_scores = wanted == 0;
    if (room < (only_scores ? 0 : 1)) return refuse_too_long(r, param, "", list->num_ids);
    if (wanted <= room || r->params->ends_with_context) return 0;
    return api_error_invalid(
        r->err, "context_length_exceeded", param,
        "This model's maximum context length is %d tokens. However, you requested %lld tokens (%d "
        "in the prompt, %d in the completion); ask for less%s",
        r->server->facts->max_model_len, (long long)list->num_ids + wanted, list->num_ids, wanted, remedy(r));
}

static int finish_prompt(struct prompt_reader *r, struct token_list *list, unsigned flags, const char *param)
{
    truncate_list(r, list, flags);
    int status = add_bos_if_empty(r, list, param);
    return status < 0 ? status : check_length(r, list, param);
}

static int allocate(struct prompt_reader *r, int count)
{
    r->out->items = arena_alloc_array(r->arena, (size_t)count, sizeof *r->out->items);
    if (!r->out->items) return api_error_no_memory(r->err);
    r->out->count = count;
    return 0;
}

/* ---- completions ---- */

static int keep_text(struct prompt_reader *r, struct prompt *p, const char *text, size_t n)
{
    p->text = arena_copy(r->arena, text, n);
    p->text_bytes = n;
    return p->text ? 0 : api_error_no_memory(r->err);
}

/* An empty text becomes what is added to every text. */
static int count_added(struct prompt_reader *r, struct prompt *p)
{
    struct token_list added = {0};
    if (!r->params->add_special_tokens) return 0;
    int status = encode(r, "", 0, NULL, 0, TOKENIZER_ADD_SPECIAL, "prompt", &added);
    while (p->num_added < min_of(added.num_ids, p->tokens.num_ids) &&
           added.ids[p->num_added] == p->tokens.ids[p->num_added])
        p->num_added++;
    token_list_deinit(&added);
    return status;
}

static int keep_client_text(struct prompt_reader *r, struct prompt *p, const char *text, size_t n)
{
    p->text_has_special = true;
    int status = count_added(r, p);
    return status == 0 ? keep_text(r, p, text, n) : status;
}

static int keep_decoded_text(struct prompt_reader *r, struct prompt *p)
{
    struct buffer text;
    p->text_has_special = !r->params->skip_special_tokens;
    buffer_init(&text, ECHO_BYTES_MAX);
    tokenizer_decode(r->server->tokenizer, p->tokens.ids, p->tokens.num_ids, r->params->skip_special_tokens,
                     &text);
    int status =
        buffer_failed(&text) ? api_error_no_memory(r->err) : keep_text(r, p, text.data, text.num_bytes);
    buffer_deinit(&text);
    return status;
}

static void note_reasoning(const struct server *server, const char *text, size_t num_bytes, struct prompt *p)
{
    const struct tool_format *f = server->tool_format;
    p->opens_reasoning = f && tool_format_opens_reasoning(f, text, num_bytes);
}

/* What each text begins with, of a model that has tasks for the one that is asked for: their adapters are its only ones. */
static const char *instruction_of(const struct prompt_reader *r)
{
    const struct tasks *tasks = &r->server->facts->tasks;
    const int task = r->params->input->lora;
    return tasks->num > 0 && task > 0 ? tasks->items[task - 1].instruction : "";
}

static char *instruct(struct prompt_reader *r, const char *instruction, const char *text, size_t *n)
{
    const size_t before = strlen(instruction);
    char *out = arena_alloc(r->arena, before + *n + 1);
    if (!out) return NULL;
    memcpy(out, instruction, before);
    memcpy(out + before, text, *n + 1);
    *n += before;
    return out;
}

static int read_text(struct prompt_reader *r, char *text, const char *path, struct prompt *p)
{
    unsigned flags = (r->params->add_special_tokens ? TOKENIZER_ADD_SPECIAL : 0u) |
                     (r->params->parse_special ? TOKENIZER_PARSE_SPECIAL : 0u);
    size_t n = strlen(text);
    if (r->params->has_nul) n = nul_text_restore(text, n);
    const char *instruction = instruction_of(r);
    if (instruction[0]) text = instruct(r, instruction, text, &n);
    if (!text) return api_error_no_memory(r->err);
    int status = encode(r, text, n, NULL, 0, flags, "prompt", &p->tokens);
    note_reasoning(r->server, text, n, p);
    if (status == 0) status = finish_prompt(r, &p->tokens, flags, path);
    return status == 0 && r->params->echo ? keep_client_text(r, p, text, n) : status;
}

static int append_id(struct prompt_reader *r, struct token_list *list, const cJSON *item, const char *path)
{
    int64_t id, last = r->server->facts->vocab_size - 1;
    if (!json_field_as_int(item, 0, last, &id))
        return api_error_invalid(r->err, "invalid_value", path,
                                 "%s must be a token id from 0 to %lld; got %.17g", path, (long long)last,
                                 item->valuedouble);
    const int32_t one = (int32_t)id;
    return token_list_append(list, &one, 1, INT32_MAX) < 0 ? api_error_no_memory(r->err) : 0;
}

/* A text among ids; what a tokenizer adds stands before the first item alone. */
static int append_text(struct prompt_reader *r, struct token_list *list, const cJSON *item, bool is_first)
{
    unsigned flags = (is_first && r->params->add_special_tokens ? TOKENIZER_ADD_SPECIAL : 0u) |
                     (r->params->parse_special ? TOKENIZER_PARSE_SPECIAL : 0u);
    size_t n = strlen(item->valuestring);
    if (r->params->has_nul) n = nul_text_restore(item->valuestring, n);
    return encode(r, item->valuestring, n, NULL, 0, flags, "prompt", list);
}

/* Whether a prompt may be ids and texts: not of embeddings, where a list of texts is as many of them. */
static bool may_mix(const struct params *params)
{
    return params->kind != API_POOLING;
}

/* Ids, and texts between them. */
static int read_ids(struct prompt_reader *r, const cJSON *array, const char *path, struct prompt *p)
{
    const cJSON *item;
    int i = 0, status = 0, count = cJSON_GetArraySize(array);
    if (count > r->server->facts->max_model_len && !r->params->truncate_prompt_tokens)
        return refuse_too_long(r, path, "", count);
    cJSON_ArrayForEach(item, array)
    {
        char item_path[64];
        if (status < 0) break;
        snprintf(item_path, sizeof item_path, "%s[%d]", path, i);
        if (cJSON_IsString(item) && may_mix(r->params))
            status = append_text(r, &p->tokens, item, i == 0);
        else if (cJSON_IsNumber(item))
            status = append_id(r, &p->tokens, item, item_path);
        else
            status = json_field_refuse_type(
                item, item_path,
                may_mix(r->params) ? "a token id (an integer) or a text" : "a token id (an integer)", r->err);
        i++;
    }
    if (status == 0) status = finish_prompt(r, &p->tokens, 0, path);
    return status == 0 && r->params->echo ? keep_decoded_text(r, p) : status;
}

static int read_list(struct prompt_reader *r, const cJSON *list)
{
    const cJSON *item;
    int i = 0, count = cJSON_GetArraySize(list);
    if (count > r->server->config->max_prompts)
        return api_error_invalid(r->err, "invalid_value", "prompt",
                                 "prompt must hold at most %lld prompts (--max-prompts)",
                                 (long long)r->server->config->max_prompts);
    int status = allocate(r, count);
    cJSON_ArrayForEach(item, list)
    {
        char path[32];
        if (status < 0) break;
        snprintf(path, sizeof path, "prompt[%d]", i);
        if (cJSON_IsString(item))
            status = read_text(r, item->valuestring, path, &r->out->items[i]);
        else if (cJSON_IsArray(item))
            status = read_ids(r, item, path, &r->out->items[i]);
        else
            status = json_field_refuse_type(item, path, "a string or an array of token ids", r->err);
        i++;
    }
    return status;
}

static int read_one(struct prompt_reader *r, const cJSON *prompt)
{
    int status = allocate(r, 1);
    if (status < 0) return status;
    if (cJSON_IsArray(prompt)) return read_ids(r, prompt, "prompt", &r->out->items[0]);
    if (cJSON_IsString(prompt)) return read_text(r, prompt->valuestring, "prompt", &r->out->items[0]);
    return finish_prompt(r, &r->out->items[0].tokens, 0, "prompt"); /* null */
}

/* A list with an id is one prompt, texts among its ids included. */
static bool has_number(const cJSON *list)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list) if (cJSON_IsNumber(item)) return true;
    return false;
}

int prompts_read_completions(const struct server *server, const struct params *params, const cJSON *body,
                             struct arena *arena, struct prompts *out, struct api_error *err)
{
    struct prompt_reader r = {server, params, arena, out, err};
    const cJSON *prompt = cJSON_GetObjectItemCaseSensitive(body, "prompt");
    *out = (struct prompts){0};
    if (!prompt)
        return api_error_invalid(
            err, "missing_required_parameter", "prompt",
            "prompt is missing: a string, an array of strings, of token ids, or of arrays of them");
    if (cJSON_IsNull(prompt) || cJSON_IsString(prompt)) return read_one(&r, prompt);
    if (!cJSON_IsArray(prompt))
        return json_field_refuse_type(prompt, "prompt", "a string, or an array of strings or token ids", err);
    if (!prompt->child)
        return api_error_invalid(err, "invalid_value", "prompt", "prompt must not be an empty array");
    const bool is_one = may_mix(params) ? has_number(prompt) : cJSON_IsNumber(prompt->child);
    return is_one ? read_one(&r, prompt) : read_list(&r, prompt);
}

/* ---- pairs ---- */

/* A text, or an object with one. */
static int read_pair_text(struct prompt_reader *r, const cJSON *item, const char *path,
                          struct rerank_text *out)
{
    const cJSON *text = cJSON_IsObject(item) ? json_field_find(item, "text") : item;
    if (!cJSON_IsString(text))
        return json_field_refuse_type(item, path, "a string, or an object with a text", r->err);
    size_t n = strlen(text->valuestring);
    if (r->params->has_nul) n = nul_text_restore(text->valuestring, n);
    *out = (struct rerank_text){text->valuestring, n};
    return 0;
}

/* One text, or several of them, in the arena. */
static int read_pair_texts(struct prompt_reader *r, const cJSON *body, const char *name,
                           struct rerank_text **out, int *count)
{
    const cJSON *value = json_field_find(body, name), *item;
    bool is_list = cJSON_IsArray(value);
    int64_t most = r->server->config->max_prompts;
    *count = is_list ? cJSON_GetArraySize(value) : 1;
    if (!value) return api_error_invalid(r->err, "missing_required_parameter", name, "%s is missing", name);
    if (*count == 0 || *count > most)
        return api_error_invalid(r->err, "invalid_value", name,
                                 "%s must hold 1 to %lld texts (--max-prompts); got %d", name,
                                 (long long)most, *count);
    *out = arena_alloc_array(r->arena, (size_t)*count, sizeof **out);
    if (!*out) return api_error_no_memory(r->err);
    if (!is_list) return read_pair_text(r, value, name, *out);
    int i = 0, status = 0;
    cJSON_ArrayForEach(item, value)
    {
        char path[32];
        snprintf(path, sizeof path, "%s[%d]", name, i);
        if (status == 0) status = read_pair_text(r, item, path, &(*out)[i++]);
    }
    return status;
}

/* A text has no more tokens than the prompt that it is part of. */
static int check_text_limit(struct prompt_reader *r, const struct prompt *p, const char *path,
                            const char *name, int32_t most)
{
    if (most == 0 || p->tokens.num_ids <= most) return 0;
    return api_error_invalid(r->err, "unsupported_value", name,
                             "%s is %d, and %s with its query has %lld tokens: this server cuts neither; "
                             "leave it out or send shorter texts",
                             name, most, path, (long long)p->tokens.num_ids);
}

static int encode_question(struct prompt_reader *r, const struct rerank_pair *pair, const char *path,
                           struct prompt *p)
{
    struct text_range untrusted[RERANK_RANGES_MAX];
    struct buffer text;
    buffer_init(&text, RERANK_RANGES_MAX * (size_t)r->server->config->max_body_bytes);
    int num_untrusted = rerank_template_render(r->server->reranker, pair, &text, untrusted);
    int status = buffer_failed(&text) ? api_error_no_memory(r->err)
                                      : encode(r, text.data, text.num_bytes, untrusted, num_untrusted,
                                               TOKENIZER_PARSE_SPECIAL, path, &p->tokens);
    buffer_deinit(&text);
    return status;
}

static int encode_pair(struct prompt_reader *r, const struct rerank_pair *pair, const char *path,
                       struct prompt *p)
{
    const struct tokenizer_pair texts = {{pair->query.text, pair->document.text},
                                         {pair->query.num_bytes, pair->document.num_bytes}};
    int32_t second_begin, limit = tokens_max(r);
    int status = tokenizer_encode_pair(r->server->tokenizer, &texts, limit, &p->tokens, &second_begin);
    if (r->server->facts->has_second_type) p->second_begin = second_begin;
    return status < 0 ? refuse_encoding(r, status, path, limit) : 0;
}

static int read_pair(struct prompt_reader *r, const struct rerank_pair *pair, const char *path,
                     struct prompt *p)
{
    int status = r->server->reranker ? encode_question(r, pair, path, p) : encode_pair(r, pair, path, p);
    if (status == 0) status = finish_prompt(r, &p->tokens, 0, path);
    const struct scoring_form *form = &r->params->scoring;
    if (status == 0)
        status = check_text_limit(r, p, path, "max_tokens_per_query", form->max_tokens_per_query);
    if (status == 0) status = check_text_limit(r, p, path, "max_tokens_per_doc", form->max_tokens_per_doc);
    if (status < 0 || !form->return_documents) return status;
    return keep_text(r, p, pair->document.text, pair->document.num_bytes);
}

/* The one query stands before each document: that must not make a small body a large one. */
static int check_pairs(struct prompt_reader *r, const struct rerank_text *queries, int num_queries,
                       int num_documents)
{
    enum { GROWTH_MAX = 4 };
    uint64_t most = GROWTH_MAX * r->server->config->max_body_bytes;
    if (num_queries != 1 && num_queries != num_documents)
        return api_error_invalid(
            r->err, "invalid_value", "documents",
            "documents must be as many as queries (%d), or there must be one query; got %d", num_queries,
            num_documents);
    if (num_queries != 1 || queries->num_bytes * (uint64_t)num_documents <= most) return 0;
    return api_error_invalid(r->err, "invalid_value", "documents",
                             "documents with the query before each have more than %llu bytes (four times "
                             "--max-body-bytes); send them in several requests",
                             (unsigned long long)most);
}

int prompts_read_pairs(const struct server *server, const struct params *params, const cJSON *body,
                       struct arena *arena, struct prompts *out, struct api_error *err)
{
    struct prompt_reader r = {server, params, arena, out, err};
    struct rerank_text *queries = NULL, *documents = NULL, instruction = {NULL, 0};
    const cJSON *given = json_field_find(body, "instruction");
    int num_queries = 0, num_documents = 0, status = 0;
    *out = (struct prompts){0};
    if (given && !server->reranker)
        return api_error_invalid(
            err, "unsupported_parameter", "instruction",
            "instruction is not supported: this model scores two texts and takes no other");
    if (given) status = read_pair_text(&r, given, "instruction", &instruction);
    if (status == 0) status = read_pair_texts(&r, body, "queries", &queries, &num_queries);
    if (status == 0) status = read_pair_texts(&r, body, "documents", &documents, &num_documents);
    if (status < 0 || !queries || !documents) return status;
    status = check_pairs(&r, queries, num_queries, num_documents);
    if (status == 0) status = allocate(&r, num_documents);
    for (int i = 0; status == 0 && i < num_documents; i++) {
        char path[32];
        snprintf(path, sizeof path, "documents[%d]", i);
        const struct rerank_pair pair = {instruction, queries[num_queries > 1 ? i : 0], documents[i]};
        status = read_pair(&r, &pair, path, &out->items[i]);
    }
    return status;
}

/* ---- chat ---- */

/* The last stretch of the client's own text: ranges that touch are one. */
static struct text_range last_untrusted(const struct text_range *untrusted, int num_untrusted)
{
    struct text_range last = {0, 0};
    if (num_untrusted > 0) last = untrusted[--num_untrusted];
    while (num_untrusted > 0 && untrusted[num_untrusted - 1].end == last.begin)
        last.begin = untrusted[--num_untrusted].begin;
    return last;
}

/* The template closed the last message; continuing it means to forget all that follows its text. What the
 * template wrote around it may hold the same letters, so that only the client's own text is searched. */
static int cut_after_final_message(const char *final, struct buffer *text, struct text_range *untrusted,
                                   int *num_untrusted, struct api_error *err)
{
    size_t n = strlen(final);
    while (n > 0 && strchr(" \t\r\n", final[n - 1])) n--;
    while (n > 0 && strchr(" \t\r\n", final[0])) final++, n--;
    struct text_range last = last_untrusted(untrusted, *num_untrusted);
    assert_debug(last.begin <= last.end && last.end <= text->num_bytes);
    size_t end = last.end;
    while (n > 0 && end >= last.begin + n && memcmp(text->data + end - n, final, n) != 0) end--;
    if (n == 0 || end < last.begin + n)
        return api_error_invalid(
            err, "invalid_value", "continue_final_message",
            "continue_final_message: the template's output does not hold the final message's text");
    text->num_bytes = end;
    while (*num_untrusted > 0 && untrusted[*num_untrusted - 1].begin >= end) --*num_untrusted;
    if (*num_untrusted > 0)
        untrusted[*num_untrusted - 1].end = min_of(untrusted[*num_untrusted - 1].end, end);
    return 0;
}

/* What is wrong with the tools and messages as they came is said where they are refused in any form. */
static int render_some(const struct server *server, struct chat_context *context, int64_t now_seconds,
                       struct buffer *out, struct text_range **untrusted, int *num_untrusted,
                       struct error *why)
{
    int status = chat_template_render(server->chat_template, context->json, chat_context_trusted, now_seconds,
                                      &chat_template_limits_default, out, untrusted, num_untrusted, why);
    for (int change = 0; change < NUM_CONTEXT_CHANGES; change++) {
        bool may_help = status == STATUS_TEMPLATE ||
                        (status == STATUS_LIMIT && chat_context_is_about_tools((enum context_change)change));
        if (!may_help || !chat_context_change(context, (enum context_change)change, now_seconds)) continue;
        if (chat_template_render(server->chat_template, context->json, chat_context_trusted, now_seconds,
                                 &chat_template_limits_default, out, untrusted, num_untrusted, NULL) == 0)
            return 0;
    }
    return status;
}

static int render(const struct server *server, const struct params *params, struct chat_context *context,
                  int64_t now_seconds, struct buffer *out, struct text_range **untrusted, int *num_untrusted,
                  struct api_error *err)
{
    struct error why = {0};
    int status = render_some(server, context, now_seconds, out, untrusted, num_untrusted, &why);
    if (status == STATUS_TEMPLATE || status == STATUS_LIMIT)
        return api_error_invalid(err, "invalid_value", "messages", "the model's chat template: %s", why.text);
    if (status < 0 || buffer_failed(out))
        return api_error_set(err, 500, "server_error", NULL, NULL, "the model's chat template failed: %s",
                             why.text);
    if (params->continue_final_message)
        status = cut_after_final_message(context->final_text, out, *untrusted, num_untrusted, err);
    if (params->has_nul) nul_text_restore_ranges(out, *untrusted, *num_untrusted);
    return status;
}

static int check_template(const struct server *server, struct api_error *err)
{
    if (server->chat_template) return 0;
    return api_error_invalid(err, NULL, "messages",
                             "this model has no chat template; start the server with --chat-template FILE, "
                             "or use /v1/completions");
}

int prompts_render_chat(const struct server *server, const struct params *params, cJSON *body,
                        int64_t now_seconds, struct buffer *out, struct text_range **untrusted,
                        int *num_untrusted, struct api_error *err)
{
    struct chat_context context;
    int status = check_template(server, err);
    if (status < 0) return status;
    status = chat_context_init(&context, server, params, body, now_seconds, err);
    if (status == 0)
        status = render(server, params, &context, now_seconds, out, untrusted, num_untrusted, err);
    chat_context_deinit(&context);
    return status;
}

/* echo: the last message's text, when the answer goes on in its role. */
static int keep_last_message(struct prompt_reader *r, const cJSON *body, struct prompt *p)
{
    const cJSON *messages = json_field_find(body, "messages");
    if (!r->params->echo || !cJSON_IsArray(messages) || !messages->child) return 0;
    const cJSON *last = messages->child->prev; /* cJSON: the first element's prev is the last element */
    const cJSON *role = json_field_find(last, "role");
    const char *own = chat_turns_text(last);
    bool is_answer = cJSON_IsString(role) && !strcmp(role->valuestring, "assistant");
    if (!own || (r->params->add_generation_prompt && !is_answer)) return 0;
    char *text = arena_copy(r->arena, own, strlen(own));
    if (!text) return api_error_no_memory(r->err);
    p->text = text;
    p->text_bytes = strlen(text);
    if (r->params->has_nul) p->text_bytes = nul_text_restore(text, p->text_bytes);
    return 0;
}

static int encode_chat(struct prompt_reader *r, struct chat_context *context, int64_t now_seconds,
                       struct prompt *p)
{
    struct buffer text;
    struct text_range *untrusted = NULL;
    int num_untrusted = 0;
    unsigned flags = TOKENIZER_PARSE_SPECIAL | (r->params->add_special_tokens ? TOKENIZER_ADD_SPECIAL : 0u);
    buffer_init(&text, chat_template_limits_default.output_bytes);
    p->tokens.num_ids = 0;
    int status =
        render(r->server, r->params, context, now_seconds, &text, &untrusted, &num_untrusted, r->err);
    const char *rendered = text.data ? text.data : "";
    if (status == 0)
        status = encode(r, rendered, text.num_bytes, untrusted, num_untrusted, flags, "messages", &p->tokens);
    if (status == 0) note_reasoning(r->server, rendered, text.num_bytes, p);
    buffer_deinit(&text);
    free(untrusted);
    return status;
}

/* Where nobody says how long the answer may be, it gets a quarter of the context. What has to go is reckoned from how many
 * tokens a byte has been so far; if that was too little several times, all goes that may. */
static int drop_turns(struct prompt_reader *r, struct chat_context *context, int64_t now_seconds,
                      struct prompt *p)
{
    enum { ROUNDS_MAX = 4 };
    const int32_t most = r->server->facts->max_model_len, answer = r->params->max_tokens;
    const int32_t wanted = most - (answer > 0 ? answer : most / 4);
    int status = 0;
    if (p->tokens.num_ids <= most - max_of(answer, (int32_t)1)) return 0;
    for (int round = 1; status == 0 && p->tokens.num_ids > wanted; round++) {
        double share = round < ROUNDS_MAX ? 1 - (double)wanted / (double)p->tokens.num_ids : 1;
        int num_dropped = chat_context_drop(context, share);
        if (num_dropped == 0) break; /* the refusal is check_length's */
        r->out->num_dropped += num_dropped;
        status = encode_chat(r, context, now_seconds, p);
    }
    return status;
}

int prompts_read_chat(const struct server *server, const struct params *params, cJSON *body,
                      int64_t now_seconds, struct arena *arena, struct prompts *out, struct api_error *err)
{
    struct prompt_reader r = {server, params, arena, out, err};
    struct chat_context context = {0};
    *out = (struct prompts){0};
    int status = check_template(server, err);
    if (status == 0) status = allocate(&r, 1);
    if (status == 0) status = keep_last_message(&r, body, &out->items[0]);
    if (status == 0) status = chat_context_init(&context, server, params, body, now_seconds, err);
    out->num_unseen = context.num_unseen;
    if (status == 0) status = encode_chat(&r, &context, now_seconds, &out->items[0]);
    if (status == 0 && params->drops_turns) status = drop_turns(&r, &context, now_seconds, &out->items[0]);
    if (status == 0) status = finish_prompt(&r, &out->items[0].tokens, 0, "messages");
    chat_context_deinit(&context);
    return status;
}
