/* The tokens are kept sorted by their bytes. All that begin with the same bytes then stand side by side, the
 * shortest first, so that following a text byte by byte is a range of the array that narrows: the array is
 * its own trie. */
#include "text/tokenizer/added_tokens.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/tokenizer/unicode.h"

void added_tokens_init(struct added_tokens *a)
{
    *a = (struct added_tokens){0};
}

void added_tokens_deinit(struct added_tokens *a)
{
    for (int32_t i = 0; i < a->num_tokens; i++) free(a->tokens[i].content);
    free(a->tokens);
    *a = (struct added_tokens){0};
}

static int grow(struct added_tokens *a, struct error *err)
{
    int32_t capacity = max_of(16, a->capacity * 2);
    struct added_token *tokens = realloc(a->tokens, (size_t)capacity * sizeof *tokens);
    if (!tokens) return error_set(err, STATUS_NO_MEMORY, "No memory for %d added tokens.", capacity);
    a->tokens = tokens;
    a->capacity = capacity;
    return 0;
}

int added_tokens_add(struct added_tokens *a, const struct added_token *token, struct error *err)
{
    if (token->num_bytes == 0 || token->num_bytes > ADDED_TOKEN_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "The added token %d has %zu bytes; 1 to %d are possible.",
                         token->id, token->num_bytes, ADDED_TOKEN_BYTES_MAX);
    if (a->num_tokens == a->capacity) {
        int status = grow(a, err);
        if (status) return status;
    }
    char *content = malloc(token->num_bytes);
    if (!content) return error_set(err, STATUS_NO_MEMORY, "No memory for an added token.");
    memcpy(content, token->content, token->num_bytes);
    a->tokens[a->num_tokens] = *token;
    a->tokens[a->num_tokens++].content = content;
    return 0;
}

static int compare_bytes(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, min_of(a_bytes, b_bytes));
    if (order) return order;
    return (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static int compare_tokens(const void *x, const void *y)
{
    const struct added_token *a = x, *b = y;
    return compare_bytes(a->content, a->num_bytes, b->content, b->num_bytes);
}

int added_tokens_index(struct added_tokens *a, struct error *err)
{
    if (a->num_tokens > 0) qsort(a->tokens, (size_t)a->num_tokens, sizeof *a->tokens, compare_tokens);
    for (int32_t i = 1; i < a->num_tokens; i++) {
        if (compare_tokens(&a->tokens[i - 1], &a->tokens[i]) == 0)
            return error_set(err, STATUS_INVALID, "The added tokens %d and %d have the same text.",
                             a->tokens[i - 1].id, a->tokens[i].id);
    }
    int32_t at = 0;
    for (int byte = 0; byte < 256; byte++) {
        a->first[byte] = at;
        while (at < a->num_tokens && (unsigned char)a->tokens[at].content[0] == byte) at++;
    }
    a->first[256] = at;
    return 0;
}

int32_t added_tokens_find(const struct added_tokens *a, const char *content, size_t num_bytes)
{
    int32_t low = 0, high = a->num_tokens;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const struct added_token *token = &a->tokens[middle];
        int order = compare_bytes(token->content, token->num_bytes, content, num_bytes);
        if (order == 0) return token->id;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* The first token in low to high (all longer than depth) whose byte at depth is not below byte. */
static int32_t lower_bound(const struct added_tokens *a, int32_t low, int32_t high, size_t depth, int byte)
{
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if ((unsigned char)a->tokens[middle].content[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that text begins with, or NULL. */
static const struct added_token *match_here(const struct added_tokens *a, const unsigned char *text,
                                            size_t num_bytes)
{
    int32_t low = a->first[text[0]], high = a->first[text[0] + 1];
    const struct added_token *longest = NULL;
    for (size_t depth = 1; low < high; depth++) {
        if (a->tokens[low].num_bytes == depth) longest = &a->tokens[low++];
        if (depth == num_bytes) break;
        low = lower_bound(a, low, high, depth, text[depth]);
        high = lower_bound(a, low, high, depth, text[depth] + 1);
    }
    return longest;
}

static bool is_word(const unsigned char *p, const unsigned char *end)
{
    int num_bytes;
    return unicode_properties_at(p, end, &num_bytes) & UNICODE_WORD;
}

static bool is_space(const unsigned char *p, const unsigned char *end, int *num_bytes)
{
    return (unicode_properties_at(p, end, num_bytes) & UNICODE_CATEGORY) == CATEGORY_SPACE;
}

static bool stands_alone(const unsigned char *begin, const unsigned char *end, const unsigned char *from,
                         const unsigned char *to)
{
    if (from > begin && is_word(utf8_previous(begin, from), from)) return false;
    return to == end || !is_word(to, end);
}

static void swallow_spaces(const struct added_search *s, const struct added_token *token,
                           struct added_match *match)
{
    const unsigned char *text = (const unsigned char *)s->text;
    int num_bytes;
    while (token->lstrip && match->begin > s->swallow_begin) {
        const unsigned char *p = utf8_previous(text + s->swallow_begin, text + match->begin);
        if (!is_space(p, text + match->begin, &num_bytes)) break;
        match->begin = (size_t)(p - text);
    }
    while (token->rstrip && match->end < s->swallow_end &&
           is_space(text + match->end, text + s->swallow_end, &num_bytes))
        match->end += (size_t)num_bytes;
}

/* A token that is passed over still takes its text with it, as in the reference: no other is looked for
 * inside. */
bool added_search_next(struct added_search *s, struct added_match *match)
{
    const unsigned char *text = (const unsigned char *)s->text;
    while (s->at < s->end) {
        const int32_t *first = &s->tokens->first[text[s->at]];
        const struct added_token *token = NULL;
        if (first[0] < first[1]) token = match_here(s->tokens, text + s->at, s->end - s->at);
        if (!token) {
            s->at++;
            continue;
        }
        size_t from = s->at;
        s->at += token->num_bytes;
        if (token->special && s->skip_special) continue;
        if (token->single_word && !stands_alone(text + s->begin, text + s->end, text + from, text + s->at))
            continue;
        *match = (struct added_match){from, s->at, token->id};
        swallow_spaces(s, token, match);
        s->at = s->swallow_begin = match->end;
        return true;
    }
    return false;
}
