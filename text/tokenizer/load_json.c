/* tokenizer.json as Hugging Face's tokenizers writes it, and tokenizer_config.json beside it for the names of
 * BOS and EOS. What is around the model in it is json_pipeline.c's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "files/file_map.h"
#include "text/tokenizer/json_pipeline.h"
#include "text/tokenizer/json_view.h"
#include "text/tokenizer/scores_text.h"
#include "text/tokenizer/tables.h"
#include "text/tokenizer/unicode.h"

enum { FILE_BYTES_MAX = 512 << 20 };

/* ---- the file ---- */

/* cJSON would cut a string off there. */
static bool has_escaped_nul(const char *text, size_t num_bytes)
{
    const char *end = text + num_bytes;
    while ((text = memchr(text, '\\', (size_t)(end - text)))) {
        if (end - text >= 6 && memcmp(text, "\\u0000", 6) == 0) return true;
        if (end - text < 2) break;
        text += 2;
    }
    return false;
}

/* text_out: the file's text too, which is the caller's then; NULL: not wanted. */
static int parse_file(const char *path, cJSON **root, char **text_out, struct error *err)
{
    char *text = NULL;
    size_t num_bytes = 0;
    int status = file_read_text(path, FILE_BYTES_MAX, &text, &num_bytes, err);
    if (status) return status;
    if (!utf8_is_valid((const unsigned char *)text, num_bytes))
        status = error_set(err, STATUS_INVALID, "%s is not UTF-8.", path);
    else if (memchr(text, '\0', num_bytes) || has_escaped_nul(text, num_bytes))
        status =
            error_set(err, STATUS_UNSUPPORTED, "%s holds a NUL character, which is not supported.", path);
    else if (!(*root = cJSON_ParseWithLengthOpts(text, num_bytes + 1, NULL, true)) || !cJSON_IsObject(*root))
        status = error_set(err, STATUS_INVALID, "%s is not a JSON object.", path);
    if (status && *root) cJSON_Delete(*root);
    if (!status && text_out) {
        *text_out = text;
        return 0;
    }
    free(text);
    return status;
}

/* ---- the model ---- */

static bool has_text(const cJSON *object, const char *name)
{
    const char *text = text_member(object, name);
    return text && text[0];
}

static bool has_bert_pieces(const struct tokenizer *t)
{
    return t->pretokenizer.num_stages > 0 && t->pretokenizer.stages[0] == PRETOKENIZE_BERT;
}

/* The pieces of BERT's pre-tokenizer, whose white space is nobody's, go with word pieces alone. */
static int read_wordpiece(struct tokenizer *t, const cJSON *model, struct error *err)
{
    struct wordpiece *w = &t->wordpiece;
    const char *prefix = text_member(model, "continuing_subword_prefix");
    const cJSON *most = member(model, "max_input_chars_per_word");
    const int32_t max_characters = cJSON_IsNumber(most) ? most->valueint : 100;
    if (!prefix) prefix = "##";
    if (!has_bert_pieces(t) || t->pretokenizer.num_stages > 1 || !t->decoder.word_pieces ||
        strlen(prefix) != w->prefix_bytes || memcmp(prefix, w->prefix, w->prefix_bytes) != 0 ||
        max_characters < 1 || max_characters > WORD_CHARACTERS_MAX || !has_text(model, "unk_token"))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "tokenizer.json: the model WordPiece is supported with BertPreTokenizer, a WordPiece "
            "decoder of the same prefix, an unk_token, and words of at most %d characters.",
            WORD_CHARACTERS_MAX);
    w->is_used = true;
    w->max_characters = max_characters;
    return 0;
}

static int read_unigram(struct tokenizer *t, const cJSON *model, struct error *err)
{
    struct unigram *u = &t->unigram;
    const cJSON *vocab = member(model, "vocab");
    const int num_tokens = cJSON_IsArray(vocab) ? cJSON_GetArraySize(vocab) : 0;
    if (t->bpe.byte_level || has_bert_pieces(t) || t->decoder.word_pieces ||
        !read_id(member(model, "unk_id"), &u->unknown_id) || u->unknown_id >= num_tokens)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tokenizer.json: the model Unigram is supported with an unk_id that is a token, and "
                         "with neither bytes nor BERT's pieces before it.");
    u->is_used = true;
    u->byte_fallback = flag_member(model, "byte_fallback", false);
    return 0;
}

static int read_settings(struct tokenizer *t, const cJSON *model, struct error *err)
{
    const char *type = text_member(model, "type");
    const bool has_word_length = member(model, "max_input_chars_per_word"); /* older files have no type */
    if (type ? strcmp(type, "WordPiece") == 0 : has_word_length) return read_wordpiece(t, model, err);
    const bool has_score_list = cJSON_IsArray(member(model, "vocab")); /* likewise */
    if (type ? strcmp(type, "Unigram") == 0 : has_score_list) return read_unigram(t, model, err);
    if (has_bert_pieces(t) || t->decoder.word_pieces)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tokenizer.json: BertPreTokenizer and the decoder WordPiece are supported with the "
                         "model WordPiece only.");
    if (!cJSON_IsObject(model) || (type && strcmp(type, "BPE") != 0))
        return error_set(err, STATUS_UNSUPPORTED,
                         "tokenizer.json: the model %s is not supported; BPE, WordPiece and Unigram are.",
                         type ? type : "without a type");
    const cJSON *dropout = member(model, "dropout");
    if (has_text(model, "continuing_subword_prefix") || has_text(model, "end_of_word_suffix") ||
        (dropout && dropout->valuedouble != 0))
        return error_set(err, STATUS_UNSUPPORTED,
                         "tokenizer.json: a continuing_subword_prefix, an end_of_word_suffix "
                         "or dropout is not supported.");
    t->bpe.byte_fallback = flag_member(model, "byte_fallback", false);
    t->bpe.fuse_unknown = flag_member(model, "fuse_unk", false);
    t->bpe.ignore_merges = flag_member(model, "ignore_merges", false);
    if (t->bpe.byte_fallback && t->bpe.byte_level)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tokenizer.json: byte_fallback with ByteLevel is not supported.");
    return 0;
}

static int read_vocab(struct tokenizer *t, const cJSON *model, struct error *err)
{
    const cJSON *vocab = member(model, "vocab"), *item;
    if (!cJSON_IsObject(vocab))
        return error_set(err, STATUS_INVALID, "tokenizer.json: model.vocab is no object.");
    cJSON_ArrayForEach(item, vocab)
    {
        int32_t id;
        if (!read_id(item, &id))
            return error_set(err, STATUS_INVALID,
                             "tokenizer.json: the id of the token \"%.100s\" is no number from 0 "
                             "to %d.",
                             item->string, TOKEN_ID_MAX);
        int status = tables_add_token(t, id, item->string, strlen(item->string), 0, err);
        if (status) return status;
    }
    return 0;
}

static int read_scored_vocab(struct tokenizer *t, const cJSON *model, const char *text, struct error *err)
{
    const cJSON *vocab = member(model, "vocab"), *item;
    struct unigram *u = &t->unigram;
    const int32_t num = cJSON_GetArraySize(vocab);
    u->scores = calloc((size_t)num, sizeof *u->scores);
    if (!u->scores) return error_set(err, STATUS_NO_MEMORY, "No memory for a tokenizer.");
    u->num_scores = num;
    if (!scores_text_read(text, u->scores, num))
        return error_set(err, STATUS_INVALID, "tokenizer.json: model.vocab is no list of names and scores.");
    int32_t id = 0;
    cJSON_ArrayForEach(item, vocab)
    {
        const cJSON *name = cJSON_GetArrayItem(item, 0);
        if (!cJSON_IsString(name))
            return error_set(err, STATUS_INVALID, "tokenizer.json: the token %d has no name.", id);
        int status = tables_add_token(t, id++, name->valuestring, strlen(name->valuestring), 0, err);
        if (status) return status;
    }
    return 0;
}

/* DeepSeek's files call few of their control tokens special; all are spelled <\uFF5C...\uFF5C>. */
static bool is_spelled_as_control(const char *content)
{
    static const char begin[] = "<\uFF5C", end[] = "\uFF5C>";
    size_t num_bytes = strlen(content);
    return num_bytes >= sizeof begin + sizeof end - 2 && strncmp(content, begin, sizeof begin - 1) == 0 &&
           strcmp(content + num_bytes - (sizeof end - 1), end) == 0;
}

static int read_added_token(struct tokenizer *t, const cJSON *item, struct error *err)
{
    const char *content = text_member(item, "content");
    struct added_token token = {.content = (char *)content, .num_bytes = content ? strlen(content) : 0};
    if (!content || !read_id(member(item, "id"), &token.id))
        return error_set(err, STATUS_INVALID,
                         "tokenizer.json: an added token lacks its content or a usable id.");
    int32_t same = tables_find_name(t, content, token.num_bytes);
    if (same >= 0) token.id = same; /* as in the reference, whatever the file says */
    const bool is_special = flag_member(item, "special", false);
    token.special = is_special || is_spelled_as_control(content);
    token.shown = !is_special;
    token.single_word = flag_member(item, "single_word", false);
    token.lstrip = flag_member(item, "lstrip", false);
    token.rstrip = flag_member(item, "rstrip", false);
    return tables_add_added(t, &token, flag_member(item, "normalized", !is_special), err);
}

static int read_added_tokens(struct tokenizer *t, const cJSON *root, struct error *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, member(root, "added_tokens"))
    {
        int status = read_added_token(t, item, err);
        if (status) return status;
    }
    return 0;
}

/* "left right", or ["left", "right"]. False when it is neither. */
static bool split_merge(const cJSON *item, const char **left, size_t *left_bytes, const char **right)
{
    if (cJSON_IsArray(item)) {
        const cJSON *a = item->child, *b = a ? a->next : NULL;
        if (!cJSON_IsString(a) || !b || !cJSON_IsString(b) || b->next) return false;
        *left = a->valuestring;
        *left_bytes = strlen(*left);
        *right = b->valuestring;
        return true;
    }
    const char *space = cJSON_IsString(item) ? strchr(item->valuestring, ' ') : NULL;
    if (!space || strchr(space + 1, ' ')) return false;
    *left = item->valuestring;
    *left_bytes = (size_t)(space - *left);
    *right = space + 1;
    return true;
}

static int read_merges(struct tokenizer *t, const cJSON *model, struct error *err)
{
    const cJSON *merges = member(model, "merges"), *item;
    if (!cJSON_IsArray(merges))
        return error_set(err, STATUS_INVALID, "tokenizer.json: model.merges is no list.");
    int status = bpe_reserve(&t->bpe, (uint64_t)cJSON_GetArraySize(merges), err);
    uint32_t rank = 0;
    cJSON_ArrayForEach(item, merges)
    {
        const char *left, *right;
        size_t left_bytes;
        if (status) return status;
        if (cJSON_IsString(item) && item->valuestring[0] == '#' &&
            strncmp(item->valuestring, "#version", 8) == 0)
            continue;
        if (!split_merge(item, &left, &left_bytes, &right))
            return error_set(err, STATUS_INVALID, "tokenizer.json: merge %u is no pair of tokens.", rank);
        status = tables_add_merge(t, left, left_bytes, right, strlen(right), rank++, err);
    }
    return status;
}

static int read_unknown(struct tokenizer *t, const cJSON *model, struct error *err)
{
    const char *name = text_member(model, "unk_token");
    if (!name) return 0;
    t->bpe.unknown_id = t->wordpiece.unknown_id = tables_find_name(t, name, strlen(name));
    if (t->bpe.unknown_id >= 0) return 0;
    return error_set(err, STATUS_INVALID, "tokenizer.json: the unk_token \"%.100s\" does not exist.", name);
}

/* ---- BOS and EOS ---- */

/* "bos_token": "<s>" or {"content": "<s>", ...}; -1 when there is none. */
static int32_t find_named(const struct tokenizer *t, const cJSON *config, const char *name)
{
    const char *text = text_member(config, name);
    if (!text) text = text_member(member(config, name), "content");
    return text ? tokenizer_find(t, text, strlen(text)) : -1;
}

static int read_config(struct tokenizer *t, const char *directory, struct error *err)
{
    char path[4096];
    cJSON *config = NULL;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", directory);
    int status = parse_file(path, &config, NULL, err);
    if (status == STATUS_NOT_FOUND) {
        if (t->num_before > 0) t->bos_id = t->before[0];
        if (err) *err = (struct error){0};
        return 0;
    }
    if (status) return status;
    t->bos_id = find_named(t, config, "bos_token");
    t->eos_id = find_named(t, config, "eos_token");
    cJSON_Delete(config);
    return 0;
}

static int read_root(struct tokenizer *t, const cJSON *root, const char *text, struct error *err)
{
    const cJSON *model = member(root, "model");
    int status = json_read_pipeline(t, root, err);
    if (!status) status = read_settings(t, model, err);
    if (!status)
        status = t->unigram.is_used ? read_scored_vocab(t, model, text, err) : read_vocab(t, model, err);
    if (!status) status = tables_index(t, false, err);
    if (!status) status = read_added_tokens(t, root, err);
    if (!status) status = read_unknown(t, model, err);
    if (!status && !t->wordpiece.is_used && !t->unigram.is_used) status = read_merges(t, model, err);
    if (!status) status = json_read_post_processor(t, root, err);
    return status ? status : tables_finish(t, err);
}

int tokenizer_open_directory(const char *directory, struct tokenizer **out, struct error *err)
{
    char path[4096];
    char *text = NULL;
    cJSON *root = NULL;
    if (snprintf(path, sizeof path, "%s/tokenizer.json", directory) >= (int)sizeof path - 16)
        return error_set(err, STATUS_INVALID, "The name of the model directory is too long.");
    int status = parse_file(path, &root, &text, err);
    if (status) return status;
    struct tokenizer *t = tokenizer_create();
    if (!t) {
        cJSON_Delete(root);
        free(text);
        return error_set(err, STATUS_NO_MEMORY, "No memory for a tokenizer.");
    }
    status = read_root(t, root, text, err);
    cJSON_Delete(root);
    free(text);
    if (!status) status = read_config(t, directory, err);
    if (status) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return 0;
}
