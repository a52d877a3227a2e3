#include "text/tokenizer/json_pipeline.h"

#include <string.h>

#include "base/check.h"
#include "files/json_read.h"
#include "text/tokenizer/bert_text.h"
#include "text/tokenizer/json_view.h"

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

/* strip_accents null: as lowercase. */
static int read_bert_normalizer(struct tokenizer *t, const cJSON *part, struct error *err)
{
    const bool lower = flag_member(part, "lowercase", true);
    const unsigned steps = (flag_member(part, "clean_text", true) ? BERT_CLEAN : 0u) |
                           (flag_member(part, "handle_chinese_chars", true) ? BERT_CHINESE : 0u) |
                           (flag_member(part, "strip_accents", lower) ? BERT_ACCENTS : 0u) |
                           (lower ? BERT_LOWER : 0u);
    return normalizer_add_bert(&t->normalizer, steps) ? 0 : unsupported(part, "normalizer", err);
}

/* There is one charsmap. */
static int read_charsmap(struct tokenizer *t, const cJSON *part, struct error *err)
{
    const char *text = text_member(part, "precompiled_charsmap");
    if (!text || t->charsmap.bytes || !normalizer_add_charsmap(&t->normalizer, &t->charsmap))
        return unsupported(part, "normalizer", err);
    return charsmap_read_base64(&t->charsmap, text, err);
}

static int read_strip_normalizer(struct tokenizer *t, const cJSON *part, struct error *err)
{
    struct normalizer *n = &t->normalizer;
    const bool left = flag_member(part, "strip_left", true), right = flag_member(part, "strip_right", true);
    if ((left && !normalizer_add(n, NORMALIZE_STRIP_LEFT, "", "")) ||
        (right && !normalizer_add(n, NORMALIZE_STRIP_RIGHT, "", "")))
        return unsupported(part, "normalizer", err);
    return 0;
}

static int read_replace(struct tokenizer *t, const cJSON *part, struct error *err)
{
    const char *regex = text_member(member(part, "pattern"), "Regex");
    const bool is_of_runs = regex && strcmp(regex, " {2,}") == 0;
    return add_step(&t->normalizer, is_of_runs ? NORMALIZE_RUNS : NORMALIZE_REPLACE,
                    is_of_runs ? "" : text_pattern(part), text_member(part, "content"), part, "normalizer",
                    err);
}

static int read_normalizer(struct tokenizer *t, const cJSON *part, struct error *err)
{
    struct normalizer *n = &t->normalizer;
    if (is_type(part, "NFC")) return add_step(n, NORMALIZE_NFC, "", "", part, "normalizer", err);
    if (is_type(part, "Prepend"))
        return add_step(n, NORMALIZE_PREPEND, "", text_member(part, "prepend"), part, "normalizer", err);
    if (is_type(part, "Replace")) return read_replace(t, part, err);
    if (is_type(part, "Precompiled")) return read_charsmap(t, part, err);
    if (is_type(part, "Strip")) return read_strip_normalizer(t, part, err);
    if (is_type(part, "BertNormalizer")) return read_bert_normalizer(t, part, err);
    return unsupported(part, "normalizer", err);
}

static int add_stage(struct tokenizer *t, enum pretokenizer_kind kind, const cJSON *part, struct error *err)
{
    return pretokenizer_add(&t->pretokenizer, kind) ? 0 : unsupported(part, "pre-tokenizer", err);
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
    if (!regex || !pretokenizer_add_regex(&t->pretokenizer, regex))
        return error_set(err, STATUS_UNSUPPORTED,
                         "tokenizer.json: the pre-tokenizer splits by a pattern that is not "
                         "supported: %.300s",
                         regex  ? regex
                         : text ? text
                                : "(none)");
    /* Where nothing is between the matches, nothing would be removed there. */
    bool removes = behavior && strcmp(behavior, "Removed") == 0;
    if (!behavior || (!removes && strcmp(behavior, "Isolated") != 0) ||
        flag_member(part, "invert", false) != removes ||
        (removes && !pretokenizer_leaves_nothing(&t->pretokenizer)))
        return unsupported(part, "pre-tokenizer", err);
    return 0;
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
    if (n->num_steps > 0) { /* behind WhitespaceSplit: its words are cut at their marks */
        if (n->num_steps > 1 || strcmp(scheme, "always") != 0 || !flag_member(part, "split", true))
            return unsupported(part, "pre-tokenizer", err);
        return add_stage(t, PRETOKENIZE_METASPACE, part, err);
    }
    bool fits = normalizer_add(n, NORMALIZE_REPLACE, " ", replacement);
    if (strcmp(scheme, "never") != 0)
        fits = fits && normalizer_add(n,
                                      strcmp(scheme, "first") == 0 ? NORMALIZE_PREPEND_MISSING_FIRST
                                                                   : NORMALIZE_PREPEND_MISSING,
                                      "", replacement);
    if (!fits) return unsupported(part, "pre-tokenizer", err);
    return flag_member(part, "split", true) ? add_stage(t, PRETOKENIZE_METASPACE, part, err) : 0;
}

/* Served with Metaspace behind it alone. */
static int read_whitespace_split(struct tokenizer *t, const cJSON *part, struct error *err)
{
    if (t->pretokenizer.num_stages > 0 || t->piece_rewrite.num_steps > 0 ||
        !normalizer_add(&t->piece_rewrite, NORMALIZE_WORDS, "", "\u2581"))
        return unsupported(part, "pre-tokenizer", err);
    return 0;
}

/* ASCII's punctuation and Unicode's, each character or each run. */
static int read_punctuation(struct tokenizer *t, const cJSON *part, struct error *err)
{
    const char *behavior = text_member(part, "behavior");
    const bool is_run = behavior && strcmp(behavior, "Contiguous") == 0;
    if (behavior && !is_run && strcmp(behavior, "Isolated") != 0)
        return unsupported(part, "pre-tokenizer", err);
    return add_stage(t, is_run ? PRETOKENIZE_PUNCTUATION_RUNS : PRETOKENIZE_PUNCTUATION, part, err);
}

static int read_pretokenizer(struct tokenizer *t, const cJSON *part, struct error *err)
{
    if (is_type(part, "Split")) return read_split(t, part, err);
    if (is_type(part, "ByteLevel")) return read_byte_level(t, part, err);
    if (is_type(part, "Metaspace")) return read_metaspace(t, part, err);
    if (is_type(part, "WhitespaceSplit")) return read_whitespace_split(t, part, err);
    if (is_type(part, "BertPreTokenizer")) return add_stage(t, PRETOKENIZE_BERT, part, err);
    if (is_type(part, "Punctuation")) return read_punctuation(t, part, err);
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

static int read_word_decoder(struct tokenizer *t, const cJSON *part, struct error *err)
{
    const char *prefix = text_member(part, "prefix");
    struct wordpiece *w = &t->wordpiece;
    if (!prefix || !prefix[0] || strlen(prefix) > sizeof w->prefix || t->decoder.rewrite.num_steps > 0)
        return unsupported(part, "decoder", err);
    w->prefix_bytes = strlen(prefix);
    memcpy(w->prefix, prefix, w->prefix_bytes);
    t->decoder.word_pieces = true;
    t->decoder.cleans_up = flag_member(part, "cleanup", true);
    return 0;
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
    if (d->num_strip > 0 || d->word_pieces) return unsupported(part, "decoder", err);
    if (is_type(part, "WordPiece")) return read_word_decoder(t, part, err);
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

int json_read_pipeline(struct tokenizer *t, const cJSON *root, struct error *err)
{
    const cJSON *decoder = member(root, "decoder");
    int status = for_each_part(t, member(root, "normalizer"), "normalizers", read_normalizer, err);
    if (!status)
        status = for_each_part(t, member(root, "pre_tokenizer"), "pretokenizers", read_pretokenizer, err);
    if (!status) status = for_each_part(t, decoder, "decoders", read_decoder, err);
    if (status) return status;
    if (!decoder)
        return error_set(err, STATUS_UNSUPPORTED, "tokenizer.json has no decoder, which is not supported.");
    if (t->piece_rewrite.num_steps == 1 && t->piece_rewrite.steps[0].kind == NORMALIZE_WORDS &&
        (t->pretokenizer.num_stages != 1 || t->pretokenizer.stages[0] != PRETOKENIZE_METASPACE))
        return unsupported(member(root, "pre_tokenizer"), "pre-tokenizer", err);
    if (t->decoder.num_strip > 0 && !is_fused_before_strip(decoder))
        return unsupported(decoder, "decoder", err);
    if (t->decoder.byte_level == t->bpe.byte_level) return 0;
    return error_set(err, STATUS_UNSUPPORTED,
                     "tokenizer.json: ByteLevel is supported only as both pre-tokenizer and decoder.");
}

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

/* The types of a pair's parts, in their order: 0s, then perhaps 1s. False: they are others. */
static bool take_type(struct pair_template *p, int place, int64_t type, bool *is_second)
{
    if (type < *is_second || type > 1) return false;
    if (*is_second || type == 0) return true;
    *is_second = true;
    p->num_first = p->num[1];
    return place == 1;
}

static bool take_pair_item(struct tokenizer *t, const cJSON *special_tokens, const cJSON *item, int *place,
                           bool *is_second)
{
    struct pair_template *p = &t->pair;
    const cJSON *sequence = member(item, "Sequence"), *token = member(item, "SpecialToken"), *id_item;
    const char *name = text_member(sequence ? sequence : token, "id");
    int64_t type = 0;
    json_is_int(member(sequence ? sequence : token, "type_id"), &type);
    if (!name || !take_type(p, *place, type, is_second)) return false;
    if (sequence) return *place < 2 && !strcmp(name, *place == 0 ? "A" : "B") && ++*place;
    cJSON_ArrayForEach(id_item, member(member(special_tokens, name), "ids"))
    {
        int32_t id;
        if (!read_id(id_item, &id) || !vocab_has(&t->vocab, id) || p->num[*place] == TEMPLATE_IDS_MAX)
            return false;
        p->ids[*place][p->num[*place]++] = id;
    }
    return true;
}

/* One that is of another form is none: texts alone are encoded as well. */
static void read_pair_template(struct tokenizer *t, const cJSON *part)
{
    const cJSON *item;
    int place = 0;
    bool is_good = true, is_second = false;
    t->pair = (struct pair_template){.num_first = -1};
    cJSON_ArrayForEach(item, member(part, "pair")) is_good =
        is_good && take_pair_item(t, member(part, "special_tokens"), item, &place, &is_second);
    t->pair.is_there = is_good && place == 2;
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
    read_pair_template(t, part);
    return 0;
}

/* "cls": ["[CLS]", 101], "sep": ["[SEP]", 102] around the text. */
static int read_bert_template(struct tokenizer *t, const cJSON *part, struct error *err)
{
    int32_t before, after;
    const cJSON *cls = member(part, "cls"), *sep = member(part, "sep");
    if (!cJSON_IsArray(cls) || !cJSON_IsArray(sep) || !read_id(cJSON_GetArrayItem(cls, 1), &before) ||
        !read_id(cJSON_GetArrayItem(sep, 1), &after) || !vocab_has(&t->vocab, before) ||
        !vocab_has(&t->vocab, after) || t->num_before == TEMPLATE_IDS_MAX || t->num_after == TEMPLATE_IDS_MAX)
        return unsupported(part, "post-processor", err);
    t->before[t->num_before++] = before;
    t->after[t->num_after++] = after;
    /* RoBERTa's have two ends between two texts, and one type */
    const bool has_types = is_type(part, "BertProcessing");
    t->pair = (struct pair_template){.is_there = true,
                                     .num_first = has_types ? 1 : -1,
                                     .ids = {{before}, {after, after}, {after}},
                                     .num = {1, has_types ? 1 : 2, 1}};
    return 0;
}

static int read_post_processor(struct tokenizer *t, const cJSON *part, struct error *err)
{
    if (is_type(part, "ByteLevel")) return 0; /* only moves offsets */
    if (is_type(part, "TemplateProcessing")) return read_template(t, part, err);
    if (is_type(part, "BertProcessing") || is_type(part, "RobertaProcessing"))
        return read_bert_template(t, part, err);
    return unsupported(part, "post-processor", err);
}

/* Two texts stand one behind the other unless a part says what is between them. */
int json_read_post_processor(struct tokenizer *t, const cJSON *root, struct error *err)
{
    t->pair = (struct pair_template){.is_there = true};
    return for_each_part(t, member(root, "post_processor"), "processors", read_post_processor, err);
}
