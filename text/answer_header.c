#include "text/answer_header.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static bool add_token(cJSON *context, const char *name, const struct tokenizer *t, int32_t id)
{
    size_t num_bytes = 0;
    const char *bytes = id >= 0 ? tokenizer_token_bytes(t, id, &num_bytes) : "";
    char *text = calloc(1, num_bytes + 1);
    if (text && num_bytes > 0) memcpy(text, bytes, num_bytes);
    bool added = text && cJSON_AddStringToObject(context, name, text);
    free(text);
    return added;
}

/* A question, with the beginning of an answer behind it or without. */
static cJSON *make_context(const struct tokenizer *t, bool begins, bool thinks)
{
    cJSON *context = cJSON_CreateObject(), *messages = cJSON_AddArrayToObject(context, "messages"),
          *user = cJSON_CreateObject();
    bool all = context && messages && user && cJSON_AddStringToObject(user, "role", "user") &&
               cJSON_AddStringToObject(user, "content", "Question") && cJSON_AddItemToArray(messages, user);
    if (!all) cJSON_Delete(user);
    all = all && cJSON_AddBoolToObject(context, "add_generation_prompt", begins) &&
          cJSON_AddBoolToObject(context, "enable_thinking", thinks) &&
          add_token(context, "bos_token", t, tokenizer_bos_id(t)) &&
          add_token(context, "eos_token", t, tokenizer_eos_id(t));
    if (all) return context;
    cJSON_Delete(context);
    return NULL;
}

static bool render(const struct model_text *text, bool begins, bool thinks, struct buffer *out)
{
    static const char *const trusted[] = {"bos_token", "eos_token", NULL};
    struct text_range *untrusted = NULL;
    int num_untrusted;
    struct error why;
    cJSON *context = make_context(text->tokenizer, begins, thinks);
    buffer_init(out, chat_template_limits_default.output_bytes);
    int status =
        context ? chat_template_render(text->chat_template, context, trusted, 0,
                                       &chat_template_limits_default, out, &untrusted, &num_untrusted, &why)
                : STATUS_NO_MEMORY;
    free(untrusted);
    cJSON_Delete(context);
    return status == 0;
}

/* What stands behind without's text in with's. */
static bool encode_rest(const struct tokenizer *t, const struct buffer *without, const struct buffer *with,
                        int32_t max_ids, struct token_list *list)
{
    size_t n = without->num_bytes;
    if (n == 0 || with->num_bytes <= n || memcmp(without->data, with->data, n) != 0) return false;
    return tokenizer_encode(t, with->data + n, with->num_bytes - n, NULL, 0, TOKENIZER_PARSE_SPECIAL, max_ids,
                            list) == 0;
}

static bool encode_header(const struct model_text *text, bool thinks, struct token_list *list)
{
    enum { LONGEST = 256 };
    struct buffer without, with;
    bool rendered = render(text, false, thinks, &without);
    bool both = render(text, true, thinks, &with) && rendered;
    bool found = both && encode_rest(text->tokenizer, &without, &with, LONGEST, list);
    buffer_deinit(&without);
    buffer_deinit(&with);
    return found;
}

static int32_t num_common(const struct token_list *a, const struct token_list *b)
{
    int32_t n = 0;
    while (n < a->num_ids && n < b->num_ids && a->ids[n] == b->ids[n]) n++;
    return n;
}

int32_t answer_header_find(const struct model_text *text, int32_t *ids, int32_t max_ids)
{
    struct token_list thinking = {0}, plain = {0};
    int32_t count = 0;
    bool is_marked = false;
    if (!text->chat_template || !text->tokenizer) return 0;
    if (encode_header(text, true, &thinking) && encode_header(text, false, &plain))
        count = num_common(&thinking, &plain);
    if (count > max_ids) count = 0;
    for (int32_t i = 0; i < count; i++) {
        ids[i] = plain.ids[i];
        is_marked = is_marked || tokenizer_is_special(text->tokenizer, ids[i]);
    }
    token_list_deinit(&thinking);
    token_list_deinit(&plain);
    return is_marked ? count : 0;
}
