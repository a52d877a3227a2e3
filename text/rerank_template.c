#include "text/rerank_template.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "files/file_map.h"

static const char qwen3_template[] =
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the "
    "Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: "
    "{instruction}\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n"
    "</think>\n\n";

static const char default_instruction[] =
    "Given a web search query, retrieve relevant passages that answer the query";

enum { TEMPLATE_BYTES_MAX = 1 << 16 };

struct rerank_template {
    char *text; /* NUL-terminated */
    int32_t ids[RERANK_IDS];
};

static const struct placeholder {
    const char *text;
    size_t offset; /* of what stands there, in a pair */
} placeholders[] = {{"{instruction}", offsetof(struct rerank_pair, instruction)},
                    {"{query}", offsetof(struct rerank_pair, query)},
                    {"{document}", offsetof(struct rerank_pair, document)}};

/* The first one from text on; NULL: none. */
static const char *next_placeholder(const char *text, const struct placeholder **which)
{
    const char *first = NULL;
    for (size_t i = 0; i < array_length(placeholders); i++) {
        const char *at = strstr(text, placeholders[i].text);
        if (!at || (first && at > first)) continue;
        first = at;
        *which = &placeholders[i];
    }
    return first;
}

int rerank_template_render(const struct rerank_template *t, const struct rerank_pair *pair,
                           struct buffer *out, struct text_range untrusted[RERANK_RANGES_MAX])
{
    const struct placeholder *which = NULL;
    const char *text = t->text, *at;
    int num_untrusted = 0;
    while ((at = next_placeholder(text, &which))) {
        const struct rerank_text *part = (const void *)((const char *)pair + which->offset);
        buffer_append(out, text, (size_t)(at - text));
        size_t begin = out->num_bytes;
        if (part->text)
            buffer_append(out, part->text, part->num_bytes);
        else
            buffer_append_text(out, default_instruction);
        assert_always(num_untrusted < RERANK_RANGES_MAX); /* check_template */
        untrusted[num_untrusted++] = (struct text_range){begin, out->num_bytes};
        text = at + strlen(which->text);
    }
    buffer_append_text(out, text);
    return num_untrusted;
}

double rerank_score(const float logits[RERANK_IDS])
{
    return 1 / (1 + exp((double)logits[1] - (double)logits[0]));
}

const int32_t *rerank_template_ids(const struct rerank_template *t)
{
    return t->ids;
}

/* ---- opening ---- */

static int check_template(const char *text, size_t num_bytes, const char *path, struct error *err)
{
    const struct placeholder *which;
    int count = 0;
    if (!utf8_is_valid((const unsigned char *)text, num_bytes) || strlen(text) != num_bytes)
        return error_set(err, STATUS_INVALID, "%s: it is no UTF-8 text", path);
    if (!strstr(text, "{query}") || !strstr(text, "{document}"))
        return error_set(err, STATUS_INVALID, "%s: {query} and {document} must stand in it", path);
    for (const char *at = text; (at = next_placeholder(at, &which)); at++) count++;
    if (count <= RERANK_RANGES_MAX) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: there are more than %d places to fill in", path,
                     (int)RERANK_RANGES_MAX);
}

static int read_template(const char *path, char **out, struct error *err)
{
    size_t num_bytes = 0;
    if (!path) {
        *out = strdup(qwen3_template);
        return *out ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "no memory for a template");
    }
    int status = file_read_text(path, TEMPLATE_BYTES_MAX, out, &num_bytes, err);
    return status ? status : check_template(*out, num_bytes, path, err);
}

/* The id of a text that is one token. */
static int find_token(const struct tokenizer *t, const char *text, int32_t *id, struct error *err)
{
    struct token_list list = {0};
    int status = tokenizer_encode(t, text, strlen(text), NULL, 0, 0, 16, &list);
    bool is_one = status == 0 && list.num_ids == 1;
    if (is_one) *id = list.ids[0];
    token_list_deinit(&list);
    if (is_one) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED, "the tokenizer has no token for \"%s\", so this is no reranker",
                     text);
}

int rerank_template_open(const char *path, const struct tokenizer *tokenizer, struct rerank_template **out,
                         struct error *err)
{
    struct rerank_template *t = calloc(1, sizeof *t);
    if (!t) return error_set(err, STATUS_NO_MEMORY, "no memory for a template");
    int status = read_template(path, &t->text, err);
    if (!status && tokenizer) status = find_token(tokenizer, "yes", &t->ids[0], err);
    if (!status && tokenizer) status = find_token(tokenizer, "no", &t->ids[1], err);
    if (status)
        rerank_template_close(t);
    else
        *out = t;
    return status;
}

void rerank_template_close(struct rerank_template *t)
{
    if (!t) return;
    free(t->text);
    free(t);
}
