/* tokenizer.json as Hugging Face's tokenizers writes it, and tokenizer_config.json beside it for the names of
 * BOS and EOS. The file is a description of a pipeline of which only known shapes are understood; for any
 * other there is a sentence that names what is not supported, never a guess. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/check.h"
#include "model/file_map.h"
#include "model/tokenizer/tables.h"
#include "model/tokenizer/unicode.h"

enum { FILE_BYTES_MAX = 512 << 20 };

/* ---- the file ---- */

/* cJSON would cut a string off there. */
static bool has_escaped_nul(const char *text, size_t num_bytes)
{
    for (size_t i = 0; i + 1 < num_bytes; i++) {
        if (text[i] != '\\') continue;
        if (num_bytes - i >= 6 && memcmp(text + i, "\\u0000", 6) == 0) return true;
        i++;
    }
    return false;
}

static int parse_file(const char *path, cJSON **root, struct error *err)
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
    free(text);
    return status;
}

/* ---- looking at JSON ---- */

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    return item && !cJSON_IsNull(item) ? item : NULL;
}

static const char *text_member(const cJSON *object, const char *name)
{
    const cJSON *item = member(object, name);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static bool flag_member(const cJSON *object, const char *name, bool otherwise)
{
    const cJSON *item = member(object, name);
    return cJSON_IsBool(item) ? cJSON_IsTrue(item) : otherwise;
}

static bool is_type(const cJSON *object, const char *type)
{
    const char *name = text_member(object, "type");
    return name && strcmp(name, type) == 0;
}

/* False unless item is a number that is an id. */
static bool read_id(const cJSON *item, int32_t *id)
{
    if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0) || item->valuedouble > TOKEN_ID_MAX) return false;
    *id = (int32_t)item->valuedouble;
    return *id == item->valuedouble;
}

static int unsupported(const cJSON *part, const char *what, struct error *err)
{
    const char *type = text_member(part, "type");
    return error_set(err, STATUS_UNSUPPORTED,
                     "tokenizer.json: the %s %s is not supported as it is set up there.", what,
                     type ? type : "without a type");
}

/* Calls each for the parts of a "Sequence" (whose list has this name), or for part itself. */
typedef int part_reader(struct tokenizer *t, const cJSON *part, struct error *err);

static int for_each_part(struct tokenizer *t, const cJSON *part, const char *list_name, part_reader *each,
                         struct error *err)
{
    if (!part) return 0;
    if (!is_type(part, "Sequence")) return each(t, part, err);
    const cJSON *item;
    cJSON_ArrayForEach(item, member(part, list_name))
    {
        int status = each(t, item, err);
        if (status) return status;
    }
    return 0;
}

/* {"pattern": {"String": "..."}}; NULL for a regular expression. */
static const char *text_pattern(const cJSON *part)
{
    return text_member(member(part, "pattern"), "String");
}

static int add_step(struct normalizer *n, enum normalizer_kind kind, const char *from, const char *to,
                    const cJSON *part, const char *what, struct error *err)
{
    bool usable = from && to && (kind != NORMALIZE_REPLACE || from[0]);
    return usable && normalizer_add(n, kind, from, to) ? 0 : unsupported(part, what, err);
}

/* ---- the pipeline ---- */

static int read_normalizer(struct tokenizer *t, const cJSON *part, struct error *err)
{
    struct normalizer *n = &t->normalizer;
    if (is_type(part, "NFC")) return add_step(n, NORMALIZE_NFC, "", "", part, "normalizer", err);
    if (is_type(part, "Prepend"))
        return add_step(n, NORMALIZE_PREPEND, "", text_member(part, "prepend"), part, "normalizer", err);
    if (is_type(part, "Replace"))
        return add_step(n, NORMALIZE_REPLACE, text_pattern(part), text_member(part, "content"), part,
                        "normalizer", err);
    return unsupported(part, "normalizer", err);
}

static int add_stage(struct tokenizer *t, enum pretokenizer_kind kind, const cJSON *part, struct error *err)
{
    struct pretokenizer *p = &t->pretokenizer;
    if (p->num_stages == PRETOKENIZER_STAGES_MAX) return unsupported(part, "pre-tokenizer", err);
    p->stages[p->num_stages++] = kind;
    return 0;
}

static bool replaces_spaces(const struct normalizer *n)
{
    for (int i = 0; i < n->num_steps; i++) {
        const struct normalizer_step *step = &n->steps[i];
        if (step->kind == NORMALIZE_REPLACE && step->from_bytes == 1 && step->from[0] == ' ') return true;
    }
    return false;
}

static int read_split(struct tokenizer *t, const cJSON *part, struct error *err)
{
    const char *regex = text_member(member(part, "pattern"), "Regex"), *text = text_pattern(part);
    const char *behavior = text_member(part, "behavior");
    if (text && strcmp(text, " ") == 0 && replaces_spaces(&t->normalizer)) return 0; /* there are none left */
    enum pretokenizer_kind kind;
    if (!regex || !pretokenizer_kind_of_regex(regex, &kind))
        return error_set(err, STATUS_UNSUPPORTED,
                         "tokenizer.json: the pre-tokenizer splits by a pattern that is not "
                         "supported: %.300s",
                         regex  ? regex
                         : text ? text
                                : "(none)");
    /* Each of these matches everywhere, so there is nothing between the matches that would be removed. */
    if (!behavior || (strcmp(behavior, "Isolated") != 0 && strcmp(behavior, "Removed") != 0) ||
        flag_member(part, "invert", false) != (strcmp(behavior, "Removed") == 0))
        return unsupported(part, "pre-tokenizer", err);
    return add_stage(t, kind, part, err);
}

static int read_byte_level(struct tokenizer *t, const cJSON *part, struct error *err)
{
    t->bpe.byte_level = true;
    if (flag_member(part, "add_prefix_space", true) &&
        (t->pretokenizer.num_stages > 0 ||
         !normalizer_add(&t->piece_rewrite, NORMALIZE_PREPEND_MISSING, "", " ")))
        return unsupported(part, "pre-tokenizer", err);
    return flag_member(part, "use_regex", true) ? add_stage(t, PRETOKENIZE_GPT2, part, err) : 0;
}

static int read_metaspace(struct tokenizer *t, const cJSON *part, struct error *err)
{
    const char *replacement = text_member(part, "replacement"), *scheme = text_member(part, "prepend_scheme");
    if (!replacement || strcmp(replacement, "\u2581") != 0 || t->pretokenizer.num_stages > 0)
        return unsupported(part, "pre-tokenizer", err);
    if (!scheme) scheme = flag_member(part, "add_prefix_space", true) ? "always" : "never";
    struct normalizer *n = &t->piece_rewrite;
    bool fits = normalizer_add(n, NORMALIZE_REPLACE, " ", replacement);
    if (strcmp(scheme, "never") != 0)
        fits = fits && normalizer_add(n,
                                      strcmp(scheme, "first") == 0 ? NORMALIZE_PREPEND_MISSING_FIRST
                                                                   : NORMALIZE_PREPEND_MISSING,
                                      "", replacement);
    if (!fits) return unsupported(part, "pre-tokenizer", err);
    return flag_member(part, "split", true) ? add_stage(t, PRETOKENIZE_METASPACE, part, err) : 0;
}

static int read_pretokenizer(struct tokenizer *t, const cJSON *part, struct error *err)
{
    if (is_type(part, "Split")) return read_split(t, part, err);
    if (is_type(part, "ByteLevel")) return read_byte_level(t, part, err);
    if (is_type(part, "Metaspace")) return read_metaspace(t, part, err);
    if (is_type(part, "Digits"))
        return add_stage(
            t, flag_member(part, "individual_digits", false) ? PRETOKENIZE_DIGITS : PRETOKENIZE_NUMBERS, part,
            err);
    return unsupported(part, "pre-tokenizer", err);
}

static int read_strip(struct tokenizer *t, const cJSON *part, struct error *err)
{
    struct decoder *d = &t->decoder;
    const char *content = text_member(part, "content");
    const cJSON *start = member(part, "start"), *stop = member(part, "stop");
    size_t num_bytes = content ? strlen(content) : 0;
    if (num_bytes == 0 || num_bytes > sizeof d->strip_char || !cJSON_IsNumber(start) || start->valueint < 0 ||
        !cJSON_IsNumber(stop) || stop->valueint != 0)
        return unsupported(part, "decoder", err);
    memcpy(d->strip_char, content, num_bytes);
    d->strip_char_bytes = num_bytes;
    d->num_strip = start->valueint;
    return 0;
}

static int read_metaspace_decoder(struct tokenizer *t, const cJSON *part, struct error *err)
{
    const char *replacement = text_member(part, "replacement"), *scheme = text_member(part, "prepend_scheme");
    if (!replacement || strcmp(replacement, "\u2581") != 0 || t->decoder.rewrite.num_steps > 0)
        return unsupported(part, "decoder", err);
    t->decoder.drop_first_meta =
        scheme ? strcmp(scheme, "never") != 0 : flag_member(part, "add_prefix_space", true);
    return add_step(&t->decoder.rewrite, NORMALIZE_REPLACE, replacement, " ", part, "decoder", err);
}

/* In this order only: rewriting each token, joining bytes, joining tokens, stripping the whole. */
static int read_decoder(struct tokenizer *t, const cJSON *part, struct error *err)
{
    struct decoder *d = &t->decoder;
    if (is_type(part, "ByteLevel")) {
        d->byte_level = true;
        return 0;
    }
    if (is_type(part, "Fuse")) return 0;
    if (is_type(part, "Strip")) return read_strip(t, part, err);
    if (d->num_strip > 0) return unsupported(part, "decoder", err);
    if (is_type(part, "ByteFallback")) {
        d->byte_fallback = true;
        return 0;
    }
    if (d->byte_fallback) return unsupported(part, "decoder", err);
    if (is_type(part, "Metaspace")) return read_metaspace_decoder(t, part, err);
    if (is_type(part, "Replace"))
        return add_step(&d->rewrite, NORMALIZE_REPLACE, text_pattern(part), text_member(part, "content"),
                        part, "decoder", err);
    return unsupported(part, "decoder", err);
}

static bool is_fused_before_strip(const cJSON *decoder)
{
    bool fused = false;
    const cJSON *item;
    cJSON_ArrayForEach(item, member(decoder, "decoders"))
    {
        if (is_type(item, "Fuse")) fused = true;
        if (is_type(item, "Strip") && !fused) return false;
    }
    return true;
}

static int read_pipeline(struct tokenizer *t, const cJSON *root, struct error *err)
{
    const cJSON *decoder = member(root, "decoder");
    int status = for_each_part(t, member(root, "normalizer"), "normalizers", read_normalizer, err);
    if (!status)
        status = for_each_part(t, member(root, "pre_tokenizer"), "pretokenizers", read_pretokenizer, err);
    if (!status) status = for_each_part(t, decoder, "decoders", read_decoder, err);
    if (status) return status;
    if (!decoder)
        return error_set(err, STATUS_UNSUPPORTED, "tokenizer.json has no decoder, which is not supported.");
    if (t->decoder.num_strip > 0 && !is_fused_before_strip(decoder))
        return unsupported(decoder, "decoder", err);
    if (t->decoder.byte_level == t->bpe.byte_level) return 0;
    return error_set(err, STATUS_UNSUPPORTED,
                     "tokenizer.json: ByteLevel is supported only as both pre-tokenizer and decoder.");
}

/* ---- the model ---- */

static bool has_text(const cJSON *object, const char *name)
{
    const char *text = text_member(object, name);
    return text && text[0];
}

static int read_settings(struct tokenizer *t, const cJSON *model, struct error *err)
{
    const char *type = text_member(model, "type");
    if (!cJSON_IsObject(model) || (type && strcmp(type, "BPE") != 0))
        return error_set(err, STATUS_UNSUPPORTED,
                         "tokenizer.json: the model %s is not supported, only BPE is.",
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

static int read_added_token(struct tokenizer *t, const cJSON *item, struct error *err)
{
    const char *content = text_member(item, "content");
    struct added_token token = {.content = (char *)content, .num_bytes = content ? strlen(content) : 0};
    if (!content || !read_id(member(item, "id"), &token.id))
        return error_set(err, STATUS_INVALID,
                         "tokenizer.json: an added token lacks its content or a usable id.");
    int32_t same = tables_find_name(t, content, token.num_bytes);
    if (same >= 0) token.id = same; /* as in the reference, whatever the file says */
    token.special = flag_member(item, "special", false);
    token.single_word = flag_member(item, "single_word", false);
    token.lstrip = flag_member(item, "lstrip", false);
    token.rstrip = flag_member(item, "rstrip", false);
    return tables_add_added(t, &token, flag_member(item, "normalized", !token.special), err);
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
        if (!cJSON_IsString(a) || !cJSON_IsString(b) || b->next) return false;
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
        if (cJSON_IsString(item) && strncmp(item->valuestring, "#version", 8) == 0) continue;
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
    t->bpe.unknown_id = tables_find_name(t, name, strlen(name));
    if (t->bpe.unknown_id >= 0) return 0;
    return error_set(err, STATUS_INVALID, "tokenizer.json: the unk_token \"%.100s\" does not exist.", name);
}

/* ---- BOS and EOS ---- */

static int add_template_ids(struct tokenizer *t, const cJSON *list, bool before, struct error *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        int32_t id, *count = before ? &t->num_before : &t->num_after;
        if (!read_id(item, &id) || !vocab_has(&t->vocab, id) || *count == TEMPLATE_IDS_MAX)
            return error_set(err, STATUS_INVALID,
                             "tokenizer.json: TemplateProcessing names an id that is no token, "
                             "or more than %d.",
                             TEMPLATE_IDS_MAX);
        (before ? t->before : t->after)[(*count)++] = id;
    }
    return 0;
}

static int read_template(struct tokenizer *t, const cJSON *part, struct error *err)
{
    bool before = true;
    const cJSON *item;
    cJSON_ArrayForEach(item, member(part, "single"))
    {
        const char *name = text_member(member(item, "SpecialToken"), "id");
        if (member(item, "Sequence")) {
            if (!before) return unsupported(part, "post-processor", err);
            before = false;
            continue;
        }
        const cJSON *ids = name ? member(member(member(part, "special_tokens"), name), "ids") : NULL;
        if (!cJSON_IsArray(ids)) return unsupported(part, "post-processor", err);
        int status = add_template_ids(t, ids, before, err);
        if (status) return status;
    }
    return 0;
}

static int read_post_processor(struct tokenizer *t, const cJSON *part, struct error *err)
{
    if (is_type(part, "ByteLevel")) return 0; /* only moves offsets */
    if (is_type(part, "TemplateProcessing")) return read_template(t, part, err);
    return unsupported(part, "post-processor", err);
}

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
    int status = parse_file(path, &config, err);
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

static int read_root(struct tokenizer *t, const cJSON *root, struct error *err)
{
    const cJSON *model = member(root, "model");
    int status = read_pipeline(t, root, err);
    if (!status) status = read_settings(t, model, err);
    if (!status) status = read_vocab(t, model, err);
    if (!status) status = tables_index(t, false, err);
    if (!status) status = read_added_tokens(t, root, err);
    if (!status) status = read_unknown(t, model, err);
    if (!status) status = read_merges(t, model, err);
    if (!status)
        status = for_each_part(t, member(root, "post_processor"), "processors", read_post_processor, err);
    return status ? status : tables_finish(t, err);
}

int tokenizer_open_directory(const char *directory, struct tokenizer **out, struct error *err)
{
    char path[4096];
    cJSON *root = NULL;
    if (snprintf(path, sizeof path, "%s/tokenizer.json", directory) >= (int)sizeof path - 16)
        return error_set(err, STATUS_INVALID, "The name of the model directory is too long.");
    int status = parse_file(path, &root, err);
    if (status) return status;
    struct tokenizer *t = tokenizer_create();
    status = t ? read_root(t, root, err) : error_set(err, STATUS_NO_MEMORY, "No memory for a tokenizer.");
    cJSON_Delete(root);
    if (!status) status = read_config(t, directory, err);
    if (status) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return 0;
}
