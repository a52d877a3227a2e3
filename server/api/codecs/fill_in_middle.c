#include "server/api/codecs/fill_in_middle.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "server/api/codecs/canonical.h"
#include "server/api/nul_text.h"
#include "text/fim_tokens.h"

struct reader {
    struct translation *t;
    const struct fim_tokens *fim;
    const char *param;
};

static int check_model(struct translation *t, const char *param)
{
    const struct fim_tokens *f = t->server->fim;
    if (f && fim_tokens_fill(f)) return 0;
    return api_error_invalid(t->err, "unsupported_value", param,
                             "this model does not fill in what is missing: its tokenizer has no token for "
                             "the%s%s%s",
                             f && f->prefix >= 0 ? "" : " prefix", f && f->suffix >= 0 ? "" : " suffix",
                             f && f->middle >= 0 ? "" : " middle");
}

/* ---- texts as tokens ---- */

/* What a prompt of any model has at most; what is longer would be cut to less. */
static int32_t tokens_max(const struct reader *r)
{
    return max_of(r->t->server->facts->max_model_len, (int32_t)r->t->server->config->max_tokenize_tokens);
}

static int encode(struct reader *r, const char *text, size_t n, unsigned flags, struct token_list *list)
{
    int status = tokenizer_encode(r->t->server->tokenizer, text, n, NULL, 0, flags, tokens_max(r), list);
    if (status == STATUS_LIMIT)
        return api_error_invalid(r->t->err, "context_length_exceeded", r->param,
                                 "what stands around the gap has more than %d tokens", tokens_max(r));
    return status < 0 ? api_error_no_memory(r->t->err) : 0;
}

static int encode_text(struct reader *r, const cJSON *text, struct token_list *list)
{
    size_t n = text ? strlen(text->valuestring) : 0;
    if (n == 0) return 0;
    if (r->t->has_nul) n = nul_text_restore(text->valuestring, n);
    return encode(r, text->valuestring, n, 0, list);
}

static int append(struct reader *r, struct token_list *list, const int32_t *ids, int32_t n)
{
    return token_list_append(list, ids, n, INT32_MAX) < 0 ? api_error_no_memory(r->t->err) : 0;
}

static int append_token(struct reader *r, struct token_list *list, int32_t id)
{
    return id >= 0 ? append(r, list, &id, 1) : 0;
}

/* ---- what stands beside ---- */

static int read_chunk(struct reader *r, const cJSON *chunk, int idx, struct token_list *list)
{
    static const char unnamed[] = "file";
    struct place at = {.t = r->t};
    const cJSON *name = json_field_find(chunk, "filename"), *text = json_field_find(chunk, "text");
    int status = 0;
    snprintf(at.path, sizeof at.path, "input_extra[%d]", idx);
    if (!cJSON_IsObject(chunk) || !cJSON_IsString(text) || (name && !cJSON_IsString(name)))
        return canonical_refuse_type(&at, chunk,
                                     "an object with a text and perhaps a filename, both strings");
    if (r->fim->file >= 0) {
        status = append_token(r, list, r->fim->file);
        if (status == 0)
            status = name ? encode_text(r, name, list) : encode(r, unnamed, strlen(unnamed), 0, list);
    }
    if (status == 0) status = encode(r, "\n", 1, 0, list);
    return status == 0 ? encode_text(r, text, list) : status;
}

/* A name that says nothing, behind the token that announces one. */
static int append_name(struct reader *r, struct token_list *list, int32_t token, const char *name)
{
    int status = append_token(r, list, token);
    return status == 0 && token >= 0 ? encode(r, name, strlen(name), 0, list) : status;
}

static void reverse(struct token_list *list)
{
    for (int32_t i = 0, j = list->num_ids - 1; i < j; i++, j--) {
        int32_t id = list->ids[i];
        list->ids[i] = list->ids[j];
        list->ids[j] = id;
    }
}

/* The newest of them that have room; whole ones. They come newest first, and so do their tokens, until all are there. */
static int collect_newest(struct reader *r, const cJSON *extra, int32_t room, struct token_list *newest)
{
    struct token_list chunk = {0};
    int status = 0, idx = cJSON_GetArraySize(extra) - 1;
    bool fits = true;
    for (const cJSON *item = extra->child->prev; status == 0 && idx >= 0; idx--, item = item->prev) {
        chunk.num_ids = 0;
        status = read_chunk(r, item, idx, &chunk); /* all are checked, whether there is room or not */
        fits = fits && newest->num_ids + chunk.num_ids <= room;
        if (status < 0 || !fits) continue;
        reverse(&chunk);
        status = append(r, newest, chunk.ids, chunk.num_ids);
    }
    reverse(newest);
    token_list_deinit(&chunk);
    return status;
}

/* With the names around them, where any have room. */
static int append_extra(struct reader *r, const cJSON *extra, int32_t room, struct token_list *out)
{
    struct token_list head = {0}, newest = {0}, tail = {0};
    int status = append_name(r, &head, r->fim->repository, "project\n");
    if (status == 0) status = append_name(r, &tail, r->fim->file, "file\n");
    if (status == 0) status = collect_newest(r, extra, room - head.num_ids - tail.num_ids, &newest);
    const struct token_list *parts[] = {&head, &newest, &tail};
    for (size_t i = 0; i < array_length(parts) && newest.num_ids > 0 && status == 0; i++)
        status = append(r, out, parts[i]->ids, parts[i]->num_ids);
    token_list_deinit(&head);
    token_list_deinit(&newest);
    token_list_deinit(&tail);
    return status;
}

/* ---- the prompt ---- */

/* What is left for a prompt beside the answer: as many tokens as it asks for, or a quarter of the context. */
static int32_t room_for_prompt(const struct translation *t)
{
    const int32_t most = t->server->facts->max_model_len;
    const char *const names[] = {"n_predict", "max_tokens"};
    int64_t answer = most / 4;
    for (size_t i = 0; i < array_length(names); i++) {
        const cJSON *value = json_field_find(t->body, names[i]);
        if (value) json_field_as_int(value, 0, most - 1, &answer);
    }
    return most - (int32_t)max_of(answer, (int64_t)1);
}

/* How many tokens on either side stay. */
struct cut {
    int32_t before, behind;
};

static struct cut cut_sides(int32_t before, int32_t behind, int32_t room)
{
    int32_t least = max_of(room / 4, room - before);
    struct cut cut = {.behind = max_of(min_of(behind, least), (int32_t)0)};
    cut.before = max_of(min_of(before, room - cut.behind), (int32_t)0);
    return cut;
}

static int append_side(struct reader *r, struct token_list *out, int32_t mark, const int32_t *ids, int32_t n)
{
    int status = append_token(r, out, mark);
    return status == 0 ? append(r, out, ids, n) : status;
}

/* Around the gap. */
struct sides {
    struct token_list before, behind, begun;
};

static int join(struct reader *r, const cJSON *extra, const struct sides *s, struct token_list *out)
{
    enum { NUM_MARKS = 3 };
    const struct fim_tokens *f = r->fim;
    int32_t room = room_for_prompt(r->t) - NUM_MARKS - s->begun.num_ids;
    int status = encode(r, "", 0, TOKENIZER_ADD_SPECIAL, out);
    out->num_ids = min_of(out->num_ids, tokenizer_num_before(r->t->server->tokenizer));
    room -= out->num_ids;
    struct cut cut = cut_sides(s->before.num_ids, s->behind.num_ids, room);
    if (status == 0 && extra && extra->child)
        status = append_extra(r, extra, room - cut.before - cut.behind, out);
    const int32_t *nearest = s->before.ids + (s->before.num_ids - cut.before);
    if (status == 0 && f->suffix_first) status = append_side(r, out, f->suffix, s->behind.ids, cut.behind);
    if (status == 0) status = append_side(r, out, f->prefix, nearest, cut.before);
    if (status == 0 && !f->suffix_first) status = append_side(r, out, f->suffix, s->behind.ids, cut.behind);
    return status == 0 ? append_side(r, out, f->middle, s->begun.ids, s->begun.num_ids) : status;
}

static int put_prompt(struct reader *r, const struct token_list *list)
{
    return codec_put(r->t, r->t->body, "prompt", cJSON_CreateIntArray(list->ids, list->num_ids));
}

/* Beside those of the client's own. */
static int put_ends(struct reader *r)
{
    cJSON *body = r->t->body, *ids = cJSON_GetObjectItemCaseSensitive(body, "stop_token_ids");
    if (!ids || cJSON_IsNull(ids))
        return codec_put(r->t, body, "stop_token_ids", cJSON_CreateIntArray(r->fim->ends, r->fim->num_ends));
    for (int i = 0; cJSON_IsArray(ids) && i < r->fim->num_ends; i++)
        if (!cJSON_AddItemToArray(ids, cJSON_CreateNumber(r->fim->ends[i])))
            return api_error_no_memory(r->t->err);
    return 0; /* what it is otherwise the validator says */
}

int fill_in_middle(struct translation *t, const struct gap *gap, const char *param)
{
    struct reader r = {t, t->server->fim, param};
    struct sides s = {0};
    struct token_list prompt = {0};
    int status = check_model(t, param);
    if (status == 0) status = encode_text(&r, gap->before, &s.before);
    if (status == 0) status = encode_text(&r, gap->behind, &s.behind);
    if (status == 0) status = encode_text(&r, gap->begun, &s.begun);
    if (status == 0) status = join(&r, gap->extra, &s, &prompt);
    if (status == 0) status = put_prompt(&r, &prompt);
    if (status == 0) status = put_ends(&r);
    token_list_deinit(&s.before);
    token_list_deinit(&s.behind);
    token_list_deinit(&s.begun);
    token_list_deinit(&prompt);
    return status;
}

int fill_in_middle_read_suffix(struct translation *t)
{
    cJSON *suffix = cJSON_DetachItemFromObjectCaseSensitive(t->body, "suffix");
    const cJSON *prompt = json_field_find(t->body, "prompt"), *echo = json_field_find(t->body, "echo");
    int status = 0;
    if (suffix && !cJSON_IsNull(suffix) && !cJSON_IsString(suffix))
        status = json_field_refuse_type(suffix, "suffix", "a string", t->err);
    else if (!suffix || !cJSON_IsString(suffix) || !suffix->valuestring[0])
        status = 0;
    else if (prompt && !cJSON_IsString(prompt))
        status = api_error_invalid(t->err, "invalid_value", "suffix",
                                   "suffix needs a prompt that is a string: what stands before the gap");
    else if (cJSON_IsTrue(echo))
        status = api_error_invalid(t->err, "invalid_value", "echo", "echo beside a suffix must be false");
    else
        status = fill_in_middle(t, &(struct gap){.before = prompt, .behind = suffix}, "suffix");
    cJSON_Delete(suffix);
    return status;
}
