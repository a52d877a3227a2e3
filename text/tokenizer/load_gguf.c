/* The tokenizer keys of a GGUF file. Five models: "gpt2", byte-level BPE with a list of merges and the name of
 * a pre-tokenizer; "llama", sentencepiece BPE, which has a score a token and no merges; "gemma4", the same with merges and no scores; "t5", Unigram with its scores and rules of normalisation; and "bert", word pieces, whose names have
 * U+2581 where a word begins in the place of "##" where it goes on, and capitals are small.
 *
 * With scores, the pair to merge next is the one whose product has the highest score, of equals the leftmost.
 * That is a list of merges too: every way to cut a token into two tokens, ranked by the token's score. So it
 * is made into one. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/check.h"
#include "files/gguf.h"
#include "text/tokenizer/bert_text.h"
#include "text/tokenizer/tables.h"
#include "text/tokenizer/unicode.h"

enum { NAME_BYTES_MAX = 1024, WORD_CHARACTERS = 100, CHARSMAP_BYTES_MAX = 1 << 24 };

enum token_type { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

static bool text_is(const char *text, size_t num_bytes, const char *other)
{
    return strlen(other) == num_bytes && memcmp(text, other, num_bytes) == 0;
}

/* ---- tokens ---- */

static int add_token(struct tokenizer *t, int32_t id, const char *name, size_t num_bytes, int64_t type,
                     struct error *err)
{
    /* A text-level token that is no plain text must not be found by the merges. */
    bool is_hidden =
        !t->bpe.byte_level && type != TYPE_NORMAL && type != TYPE_USER_DEFINED && type != TYPE_BYTE;
    int status = tables_add_token(t, id, name, num_bytes, is_hidden ? TOKEN_NO_KEY : 0, err);
    bool is_special = type == TYPE_CONTROL || type == TYPE_UNKNOWN;
    if (status || (!is_special && type != TYPE_USER_DEFINED)) return status;
    struct added_token token = {
        .content = (char *)name, .num_bytes = num_bytes, .id = id, .special = is_special};
    return tables_add_added(t, &token, false, err);
}

/* By the names that word pieces have elsewhere. */
static int add_word_piece(struct tokenizer *t, int32_t id, const char *name, size_t num_bytes, int64_t type,
                          struct error *err)
{
    char whole[NAME_BYTES_MAX + WORD_PREFIX_BYTES_MAX];
    const bool begins = num_bytes >= 3 && memcmp(name, "\u2581", 3) == 0;
    const size_t prefix_bytes = t->wordpiece.prefix_bytes;
    if (type == TYPE_CONTROL || type == TYPE_UNKNOWN) return add_token(t, id, name, num_bytes, type, err);
    if (begins) return add_token(t, id, name + 3, num_bytes - 3, type, err);
    if (num_bytes > NAME_BYTES_MAX)
        return error_set(err, STATUS_INVALID, "The name of the token %d is too long.", id);
    memcpy(whole, t->wordpiece.prefix, prefix_bytes);
    memcpy(whole + prefix_bytes, name, num_bytes);
    return add_token(t, id, whole, prefix_bytes + num_bytes, type, err);
}

static int read_tokens(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_array names, types = {0};
    if (!gguf_find_array(g, "tokenizer.ggml.tokens", &names) || names.num_items > TOKEN_ID_MAX)
        return error_set(err, STATUS_INVALID, "The GGUF file has no usable tokenizer.ggml.tokens.");
    bool has_types = gguf_find_array(g, "tokenizer.ggml.token_type", &types);
    uint64_t num_names = names.num_items;
    for (uint64_t i = 0; i < num_names; i++) {
        const char *name;
        size_t num_bytes;
        int64_t type = TYPE_NORMAL;
        if (!gguf_array_next_text(&names, &name, &num_bytes))
            return error_set(err, STATUS_INVALID, "tokenizer.ggml.tokens is not a list of texts.");
        if (has_types && !gguf_array_next_int(&types, &type))
            return error_set(err, STATUS_INVALID,
                             "tokenizer.ggml.token_type is shorter than the list of tokens.");
        int status = t->wordpiece.is_used ? add_word_piece(t, (int32_t)i, name, num_bytes, type, err)
                                          : add_token(t, (int32_t)i, name, num_bytes, type, err);
        if (status) return status;
    }
    return tables_index(t, true, err);
}

/* ---- byte-level models ---- */

/* What a tokenizer.json of these models has. DeepSeek's CJK is Hangul, too, and whatever lies between. */
#define DEEPSEEK_CJK "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"

static const char *const deepseek_llm[] = {
    "[\r\n]",
    "\\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF"
    "\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5"
    "\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA"
    "\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45"
    "\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE"
    "\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC"
    "\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3"
    "\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06"
    "\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3"
    "\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF"
    "\U0001E900-\U0001E943"
    "]+",
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+",
    "\\s+$",
    DEEPSEEK_CJK,
    NULL,
};
static const char *const deepseek_coder[] = {"[\r\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", DEEPSEEK_CJK, NULL};
static const char *const youtu[] = {
    "[\uAC00-\uD7A3\u3131-\u318E]+",
    "[\uFF01\u2026\u201C\u201D\u2018\u2019\u2014\uFF1A\uFF1B\uFF0C\u3001-\u303F\uFE30-\uFE4F]+",
    "[\u3105-\u312F]+",
    "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    NULL,
};
static const char *const afmoe[] = {
    "[\u4E00-\u9FFF\u3400-\u4DBF\uF900-\uFAFF\u3040-\u309F\u30A0-\u30FF\uFF65-\uFF9F\u2F00-\u2FDF"
    "\u0E40-\u0E7F\u0E80-\u0EFF\u1780-\u17FF\u1000-\u109F\uAA60-\uAA7F\uA9E0-\uA9FF\uAC00-\uD7AF"
    "\u1100-\u11FF]+",
    NULL,
};
static const char *const sentence_marks[] = {" ?[^(\\s|.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C)]+",
                                             NULL};
static const char *const fallback[] = {
    "[\\p{P}\\$\\+<=>\\^~\\|]+",
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "\\p{N}+",
    NULL,
};
static const char *const spark[] = {"\\p{N}", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", NULL};
static const char *const numbers[] = {"\\p{N}+", NULL};
static const char *const laguna[] = {"[\n]+", NULL};
static const char *const minicpm5[] = {"\\p{N}{1,3}", NULL};
static const char *const deepseek_v3[] = {"\\p{N}{1,3}", "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+", NULL};

static const struct {
    const char *name;
    const char *const *regexes; /* the stages before the last one of stages; NULL: none */
    enum pretokenizer_kind stages[3];
    int num_stages;
    bool ignore_merges, add_bos, nfc;
} known_pretokenizers[] = {
#define GPT_2 NULL, {PRETOKENIZE_GPT2}, 1
#define DIGITS_GPT_2 NULL, {PRETOKENIZE_DIGITS, PRETOKENIZE_GPT2}, 2
#define LLAMA_3 NULL, {PRETOKENIZE_LLAMA3}, 1
#define QWEN_2 NULL, {PRETOKENIZE_QWEN2}, 1
#define O200K NULL, {PRETOKENIZE_O200K}, 1
#define FALCON NULL, {PRETOKENIZE_PUNCTUATION_RUNS, PRETOKENIZE_GPT2, PRETOKENIZE_THREE_DIGITS}, 3
#define DEEPSEEK_V3 deepseek_v3, {PRETOKENIZE_DEEPSEEK3}, 1
#define SENTENCE_MARKS sentence_marks, {0}, 0
#define TINY_AYA NULL, {PRETOKENIZE_WORD_THREES, PRETOKENIZE_O200K}, 2
    {"gpt-2", GPT_2, false, false, false},
    {"olmo", GPT_2, false, false, false}, /* GPT-NeoX, too */
    {"phi-2", GPT_2, false, false, false},
    {"gigachat", GPT_2, false, false, false},
    {"a.x-4.0", GPT_2, false, false, false}, /* a Qwen 2 */
    {"mellum", GPT_2, false, false, false},
    {"exaone4", GPT_2, false, false, false},
    {"trillion", GPT_2, false, false, false},
    {"granite-docling", GPT_2, false, false, false},
    {"mpt", GPT_2, false, false, false},
    {"jais", GPT_2, false, false, false},
    {"modern-bert", GPT_2, false, false, true},
    {"roberta-bpe", GPT_2, false, false, false},
    {"jina-v1-en", GPT_2, false, false, false},
    {"jina-v2-code", GPT_2, false, false, false},
    {"jina-es", GPT_2, false, false, false},
    {"jina-de", GPT_2, false, false, false},
    {"jina-v2-es", GPT_2, false, false, false},
    {"jina-v2-de", GPT_2, false, false, false},
    {"smollm", DIGITS_GPT_2, false, false, false},
    {"mellum2", DIGITS_GPT_2, false, false, false},
    {"refact", DIGITS_GPT_2, false, false, false}, /* Granite 3 */
    {"starcoder", DIGITS_GPT_2, false, false, false},
    {"minerva-7b", DIGITS_GPT_2, false, false, false}, /* a Mistral */
    {"command-r", DIGITS_GPT_2, false, false, false},
    {"exaone", DIGITS_GPT_2, false, false, false},
    {"codeshell", DIGITS_GPT_2, false, false, false},
    {"llama-bpe", LLAMA_3, true, true, false},
    {"llama3", LLAMA_3, true, true, false},
    {"llama-v3", LLAMA_3, true, true, false},
    {"falcon3", LLAMA_3, true, true, false},
    {"falcon-h1", LLAMA_3, true, true, false},
    {"pixtral", LLAMA_3, true, true, false}, /* Nemotron-H, Nemotron Nano 2 and 3 */
    {"midm-2.0", LLAMA_3, true, true, false},
    {"lfm2", LLAMA_3, true, true, false},
    {"jina-v5-nano", LLAMA_3, true, true, false},
    {"dbrx", LLAMA_3, false, false, false},      /* Phi-4, OLMo 2 and 3, Granite 4 */
    {"smaug-bpe", LLAMA_3, false, false, false}, /* SmolLM3 */
    {"glm4", LLAMA_3, true, false, false},
    {"glm5", LLAMA_3, true, false, false},
    {"chatglm-bpe", LLAMA_3, false, false, false},
    {"qwen2", QWEN_2, false, false, true},
    {"f2llmv2", QWEN_2, false, false, true}, /* a Qwen 3 */
    {"deepseek-r1-qwen", QWEN_2, false, false, false},
    {"megrez", QWEN_2, false, false, false},
    {"kormo", QWEN_2, false, false, false},
    {"hunyuan", QWEN_2, false, false, false},
    {"solar-open", QWEN_2, false, false, false},
    {"bailingmoe", QWEN_2, false, false, false}, /* Ling */
    {"bailingmoe2", QWEN_2, false, false, false},
    {"llada-moe", QWEN_2, false, false, false},
    {"grok-2", QWEN_2, false, false, false},
    {"stablelm2", QWEN_2, false, false, false},
    {"qwen35", NULL, {PRETOKENIZE_QWEN35}, 1, false, false, true},
    {"tekken", NULL, {PRETOKENIZE_TEKKEN}, 1, true, true, false},
    {"kimi-k2", NULL, {PRETOKENIZE_KIMI}, 1, false, false, false},
    {"youtu", youtu, {PRETOKENIZE_YOUTU}, 1, true, false, false},
    {"exaone-moe", NULL, {PRETOKENIZE_EXAONE_MOE}, 1, false, false, false},
    {"afmoe", afmoe, {PRETOKENIZE_THREES, PRETOKENIZE_DEEPSEEK3}, 2, false, false, false},
    {"laguna", laguna, {PRETOKENIZE_QWEN2}, 1, false, false, false},
    {"minicpm5", minicpm5, {PRETOKENIZE_MINICPM5}, 1, true, false, false},
    {"falcon", FALCON, false, false, false},
    {"seed-coder", NULL, {PRETOKENIZE_SEED}, 1, false, false, false},
    {"gpt-4o", O200K, false, false, false}, /* Phi-4-mini, gpt-oss */
    {"llama4", O200K, false, false, false},
    {"minimax-m2", O200K, false, false, false},
    {"talkie", O200K, false, false, false},
    {"granite-embed-multi-97m", O200K, true, false, false},
    {"tiny_aya", TINY_AYA, false, false, false},
    {"cohere2moe", TINY_AYA, false, false, false},                                /* North Mini Code */
    {"kanana2", O200K, false, false, false},                                      /* a DeepSeek V3 */
    {"deepseek-llm", deepseek_llm, {PRETOKENIZE_DIGITS}, 1, false, false, false}, /* V2 too */
    {"deepseek-coder", deepseek_coder, {PRETOKENIZE_DIGITS}, 1, false, false, false},
    {"deepseek-v3", DEEPSEEK_V3, false, false, false},
    {"joyai-llm", DEEPSEEK_V3, false, false, false},
    {"hy_v4", DEEPSEEK_V3, false, false, false},
    {"spark2_5", spark, {PRETOKENIZE_SPARK}, 1, false, false, false},
    {"jais-2", NULL, {PRETOKENIZE_JAIS2}, 1, false, false, false},
    {"ufakzeka", NULL, {PRETOKENIZE_UFAKZEKA}, 1, false, false, false},
    {"superbpe", numbers, {PRETOKENIZE_DECIMAL_THREES}, 1, false, false, false}, /* words are not cut apart */
    {"bloom", SENTENCE_MARKS, false, false, false},
    {"poro-chat", SENTENCE_MARKS, false, false, false},
    {"gpt3-finnish", SENTENCE_MARKS, false, false, false},
    {"viking", sentence_marks, {PRETOKENIZE_DIGITS}, 1, false, false, false},
    {"default",
     fallback,
     {PRETOKENIZE_THREE_DIGITS},
     1,
     false,
     false,
     false}, /* of a file whose maker knew no name */
    {"hunyuan-dense", DEEPSEEK_V3, false, false, false},
};

static bool add_stages(struct pretokenizer *p, const char *const *regexes,
                       const enum pretokenizer_kind *stages, int num_stages)
{
    for (int i = 0; i + 1 < num_stages; i++)
        if (!pretokenizer_add(p, stages[i])) return false;
    for (; regexes && *regexes; regexes++)
        if (!pretokenizer_add_regex(p, *regexes)) return false;
    return num_stages == 0 || pretokenizer_add(p, stages[num_stages - 1]);
}

/* Files of BitNet as its makers' program has them (bitnet-b1.58, bitnet-25) do not name theirs, which is Llama 3's. */
static bool find_pretokenizer(const struct gguf *g, const char **name, size_t *num_bytes)
{
    static const char makers[] = "bitnet-", llama_3[] = "llama-bpe";
    if (gguf_find_text(g, "tokenizer.ggml.pre", name, num_bytes)) return true;
    if (!gguf_find_text(g, "general.architecture", name, num_bytes) || *num_bytes < sizeof makers ||
        memcmp(*name, makers, sizeof makers - 1) != 0)
        return false;
    *name = llama_3;
    *num_bytes = sizeof llama_3 - 1;
    return true;
}

static int set_up_byte_level(struct tokenizer *t, const struct gguf *g, bool *add_bos, struct error *err)
{
    const char *name;
    size_t num_bytes;
    if (!find_pretokenizer(g, &name, &num_bytes))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "The GGUF file does not name its pre-tokenizer (tokenizer.ggml.pre); it must be converted anew.");
    size_t i = 0;
    while (i < array_length(known_pretokenizers) && !text_is(name, num_bytes, known_pretokenizers[i].name))
        i++;
    if (i == array_length(known_pretokenizers))
        return error_set(err, STATUS_UNSUPPORTED, "The pre-tokenizer \"%.*s\" is not supported.",
                         (int)min_of(num_bytes, (size_t)64), name);
    t->bpe.byte_level = t->decoder.byte_level = true;
    t->bpe.ignore_merges = known_pretokenizers[i].ignore_merges;
    *add_bos = known_pretokenizers[i].add_bos;
    /* GGUF has no key for the normalizer; the models of this family have NFC in their own files. */
    if (!add_stages(&t->pretokenizer, known_pretokenizers[i].regexes, known_pretokenizers[i].stages,
                    known_pretokenizers[i].num_stages) ||
        (known_pretokenizers[i].nfc && !normalizer_add(&t->normalizer, NORMALIZE_NFC, "", "")))
        return error_set(err, STATUS_LIMIT, "The tokenizer has too many steps.");
    bool prefix_space = false;
    if (gguf_find_bool(g, "tokenizer.ggml.add_space_prefix", &prefix_space) && prefix_space)
        return error_set(err, STATUS_UNSUPPORTED,
                         "add_space_prefix with a byte-level tokenizer is not supported.");
    return 0;
}

static int read_merges(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_array merges;
    if (!gguf_find_array(g, "tokenizer.ggml.merges", &merges) || merges.num_items >= UINT32_MAX)
        return error_set(err, STATUS_INVALID, "The GGUF file has no usable tokenizer.ggml.merges.");
    uint64_t num_merges = merges.num_items;
    int status = bpe_reserve(&t->bpe, num_merges, err);
    for (uint64_t rank = 0; !status && rank < num_merges; rank++) {
        const char *text, *space;
        size_t num_bytes;
        /* A space at the very start belongs to the left token's name. */
        if (!gguf_array_next_text(&merges, &text, &num_bytes) || num_bytes < 3 ||
            !(space = memchr(text + 1, ' ', num_bytes - 1)))
            return error_set(err, STATUS_INVALID, "Merge %llu of the GGUF file is no pair of tokens.",
                             (unsigned long long)rank);
        size_t left_bytes = (size_t)(space - text);
        status =
            tables_add_merge(t, text, left_bytes, space + 1, num_bytes - left_bytes - 1, (uint32_t)rank, err);
    }
    return status;
}

/* ---- models with scores ---- */

struct scored_merge {
    float score; /* of the product */
    int32_t left, right, product;
};

struct merge_list {
    struct scored_merge *items;
    size_t num_items, capacity;
};

static bool merge_list_add(struct merge_list *list, struct scored_merge merge)
{
    if (list->num_items == list->capacity) {
        size_t capacity = max_of(list->capacity * 2, (size_t)1024);
        struct scored_merge *items = realloc(list->items, capacity * sizeof *items);
        if (!items) return false;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->num_items++] = merge;
    return true;
}

/* A token that merging may make or start from: found by its key, and text. */
static int32_t find_mergeable(const struct vocab *v, const char *key, size_t key_bytes)
{
    int32_t id = vocab_find(v, key, key_bytes);
    return id >= 0 && (vocab_flags(v, id) & (TOKEN_SPECIAL | TOKEN_BYTE)) ? -1 : id;
}

/* Every cut of the token between two code points whose halves are tokens. */
static bool list_cuts(const struct vocab *v, int32_t id, float score, struct merge_list *list)
{
    size_t num_bytes;
    const char *key = vocab_key(v, id, &num_bytes);
    if (find_mergeable(v, key, num_bytes) != id) return true;
    for (size_t cut = 1; cut < num_bytes; cut++) {
        if (((unsigned char)key[cut] & 0xC0) == 0x80) continue;
        int32_t left = find_mergeable(v, key, cut), right = find_mergeable(v, key + cut, num_bytes - cut);
        if (left >= 0 && right >= 0 && !merge_list_add(list, (struct scored_merge){score, left, right, id}))
            return false;
    }
    return true;
}

static int compare_scores(const void *x, const void *y)
{
    const struct scored_merge *a = x, *b = y;
    return (a->score < b->score) - (a->score > b->score);
}

static int add_scored_merges(struct tokenizer *t, struct merge_list *list, struct error *err)
{
    int status = bpe_reserve(&t->bpe, list->num_items, err);
    if (status) return status;
    if (list->num_items > 0) qsort(list->items, list->num_items, sizeof *list->items, compare_scores);
    uint32_t rank = 0;
    for (size_t i = 0; i < list->num_items; i++) {
        const struct scored_merge *m = &list->items[i];
        if (i > 0 && m->score != list->items[i - 1].score) rank++;
        bpe_add_merge(&t->bpe, m->left, m->right, rank, m->product);
    }
    return 0;
}

static int read_scores(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_array scores;
    struct merge_list list = {0};
    int status = 0;
    if (!gguf_find_array(g, "tokenizer.ggml.scores", &scores))
        return error_set(err, STATUS_INVALID, "The GGUF file has no tokenizer.ggml.scores.");
    for (int32_t id = 0; !status && id < t->vocab.num_ids; id++) {
        double score;
        if (!gguf_array_next_real(&scores, &score) || score != score)
            status = error_set(err, STATUS_INVALID, "tokenizer.ggml.scores lacks a number for token %d.", id);
        else if (!list_cuts(&t->vocab, id, (float)score, &list))
            status = error_set(err, STATUS_NO_MEMORY, "No memory for the merges of the tokenizer.");
    }
    if (!status) status = add_scored_merges(t, &list, err);
    free(list.items);
    return status;
}

/* prefix_space: where the file does not say. */
static int set_up_spaces(struct tokenizer *t, const struct gguf *g, bool prefix_space, struct error *err)
{
    (void)gguf_find_bool(g, "tokenizer.ggml.add_space_prefix", &prefix_space);
    t->bpe.byte_fallback = t->bpe.fuse_unknown = true;
    if (tables_use_meta_spaces(t, prefix_space)) return 0;
    return error_set(err, STATUS_LIMIT, "The tokenizer has too many steps.");
}

/* ---- word pieces ---- */

static int set_up_words(struct tokenizer *t, struct error *err)
{
    t->wordpiece = (struct wordpiece){.is_used = true,
                                      .prefix = "##",
                                      .prefix_bytes = 2,
                                      .max_characters = WORD_CHARACTERS,
                                      .unknown_id = -1};
    t->decoder.word_pieces = t->decoder.cleans_up = true;
    t->pretokenizer.stages[t->pretokenizer.num_stages++] = PRETOKENIZE_BERT;
    if (normalizer_add_bert(&t->normalizer, BERT_CLEAN | BERT_CHINESE | BERT_ACCENTS | BERT_LOWER)) return 0;
    return error_set(err, STATUS_LIMIT, "The tokenizer has too many steps.");
}

/* ---- Unigram ---- */

/* Signed or not. */
static int read_charsmap(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct gguf_array bytes;
    int64_t byte;
    if (!gguf_find_array(g, "tokenizer.ggml.precompiled_charsmap", &bytes) || bytes.num_items == 0) return 0;
    struct buffer all;
    buffer_init(&all, CHARSMAP_BYTES_MAX);
    while (!buffer_failed(&all) && gguf_array_next_int(&bytes, &byte)) buffer_append_char(&all, (char)byte);
    int status = buffer_failed(&all) || !normalizer_add_charsmap(&t->normalizer, &t->charsmap)
                     ? error_set(err, STATUS_LIMIT, "The tokenizer's precompiled_charsmap is too long.")
                     : charsmap_read(&t->charsmap, all.data ? all.data : "", all.num_bytes, err);
    buffer_deinit(&all);
    return status;
}

/* As a tokenizer.json has it for XLM-RoBERTa. */
static int set_up_unigram(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct normalizer *const rewrite = &t->piece_rewrite;
    bool prefix_space = true, drops_spaces = true;
    (void)gguf_find_bool(g, "tokenizer.ggml.add_space_prefix", &prefix_space);
    (void)gguf_find_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &drops_spaces);
    if (!prefix_space)
        return error_set(err, STATUS_UNSUPPORTED,
                         "The tokenizer model t5 is supported with add_space_prefix.");
    t->unigram.is_used = true;
    t->decoder.drop_first_meta = true;
    t->pretokenizer.stages[t->pretokenizer.num_stages++] = PRETOKENIZE_METASPACE;
    const bool fits = (drops_spaces ? normalizer_add(rewrite, NORMALIZE_WORDS, "", "\u2581")
                                    : normalizer_add(rewrite, NORMALIZE_REPLACE, " ", "\u2581") &&
                                          normalizer_add(rewrite, NORMALIZE_PREPEND_MISSING, "", "\u2581")) &&
                      normalizer_add(&t->decoder.rewrite, NORMALIZE_REPLACE, "\u2581", " ");
    return fits ? read_charsmap(t, g, err)
                : error_set(err, STATUS_LIMIT, "The tokenizer has too many steps.");
}

/* What only fills the vocabulary up has a score that says nothing. */
static int read_unigram_scores(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    struct unigram *u = &t->unigram;
    struct gguf_array scores, types = {0};
    const bool has_types = gguf_find_array(g, "tokenizer.ggml.token_type", &types);
    if (!gguf_find_array(g, "tokenizer.ggml.scores", &scores))
        return error_set(err, STATUS_INVALID, "The GGUF file has no tokenizer.ggml.scores.");
    u->scores = calloc((size_t)t->vocab.num_ids + 1, sizeof *u->scores);
    if (!u->scores) return error_set(err, STATUS_NO_MEMORY, "No memory for a tokenizer.");
    u->num_scores = t->vocab.num_ids;
    for (int32_t id = 0; id < u->num_scores; id++) {
        int64_t type = TYPE_NORMAL;
        if (!gguf_array_next_real(&scores, &u->scores[id]) || !isfinite(u->scores[id]))
            return error_set(err, STATUS_INVALID, "tokenizer.ggml.scores lacks a number for token %d.", id);
        if (!has_types || !gguf_array_next_int(&types, &type) || type != TYPE_UNUSED) continue;
        u->scores[id] = 0;
        t->vocab.tokens[id].flags |= TOKEN_NO_KEY;
    }
    return 0;
}

/* ---- all ---- */

/* -1 when there is no such key; an id that is no token is an error. */
static int read_id(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t *id,
                   struct error *err)
{
    int64_t value;
    *id = -1;
    if (!gguf_find_int(g, key, &value)) return 0;
    if (!vocab_has(&t->vocab, value))
        return error_set(err, STATUS_INVALID, "%s is %lld, which is no token.", key, (long long)value);
    *id = (int32_t)value;
    return 0;
}

/* add_bos, add_eos: where the file says nothing. */
static int read_ends(struct tokenizer *t, const struct gguf *g, bool add_bos, bool add_eos, struct error *err)
{
    (void)gguf_find_bool(g, "tokenizer.ggml.add_bos_token", &add_bos);
    (void)gguf_find_bool(g, "tokenizer.ggml.add_eos_token", &add_eos);
    int status = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos_id, err);
    if (!status) status = read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos_id, err);
    if (!status && !t->bpe.byte_level)
        status = read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->bpe.unknown_id, err);
    if (add_bos && t->bos_id >= 0) t->before[t->num_before++] = t->bos_id;
    if (add_eos && t->eos_id >= 0) t->after[t->num_after++] = t->eos_id;
    return status;
}

/* One token before the first text, num_separators ends between both, and one behind: BERT's way with one, RoBERTa's with two. */
static void set_up_pairs(struct tokenizer *t, int num_separators)
{
    if (num_separators == 0 || t->num_before != 1 || t->num_after != 1) return;
    t->pair = (struct pair_template){.is_there = true,
                                     .num_first = t->wordpiece.is_used ? 1 : -1,
                                     .ids = {{t->bos_id}, {t->eos_id, t->eos_id}, {t->eos_id}},
                                     .num = {1, num_separators, 1}};
}

/* Of an encoder's byte-level tokenizer; 0: it is no encoder's. Such files need not say that a text has ends. */
static int num_separators(const struct gguf *g)
{
    static const struct {
        const char *pre;
        int num;
    } known[] = {{"modern-bert", 1}, {"roberta-bpe", 2}, {"jina-v1-en", 2}, {"jina-v2-code", 2},
                 {"jina-es", 2},     {"jina-de", 2},     {"jina-v2-es", 2}, {"jina-v2-de", 2}};
    const char *pre;
    size_t num_bytes;
    if (!gguf_find_text(g, "tokenizer.ggml.pre", &pre, &num_bytes)) return 0;
    for (size_t i = 0; i < array_length(known); i++)
        if (text_is(pre, num_bytes, known[i].pre)) return known[i].num;
    return 0;
}

/* [CLS] and [SEP] are around every text; the key of the latter is spelled so. */
static int read_word_ends(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    int status = read_id(t, g, "tokenizer.ggml.cls_token_id", &t->bos_id, err);
    if (!status && t->bos_id < 0) status = read_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos_id, err);
    if (!status) status = read_id(t, g, "tokenizer.ggml.seperator_token_id", &t->eos_id, err);
    if (!status && t->eos_id < 0) status = read_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos_id, err);
    if (!status) status = read_id(t, g, "tokenizer.ggml.unknown_token_id", &t->wordpiece.unknown_id, err);
    if (status) return status;
    if (t->bos_id < 0) t->bos_id = tokenizer_find(t, "[CLS]", 5);
    if (t->eos_id < 0) t->eos_id = tokenizer_find(t, "[SEP]", 5);
    if (t->wordpiece.unknown_id < 0) t->wordpiece.unknown_id = tokenizer_find(t, "[UNK]", 5);
    if (t->bos_id < 0 || t->eos_id < 0 || t->wordpiece.unknown_id < 0)
        return error_set(err, STATUS_INVALID,
                         "The GGUF file does not say which tokens are [CLS], [SEP] and [UNK].");
    t->before[t->num_before++] = t->bos_id;
    t->after[t->num_after++] = t->eos_id;
    set_up_pairs(t, 1);
    return 0;
}

static int read_words(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    int status = set_up_words(t, err);
    if (!status) status = read_tokens(t, g, err);
    if (!status) status = read_word_ends(t, g, err);
    return status ? status : tables_finish(t, err);
}

static int read_unigram(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    int status = set_up_unigram(t, g, err);
    if (!status) status = read_tokens(t, g, err);
    if (!status) status = read_unigram_scores(t, g, err);
    if (!status) status = read_ends(t, g, true, true, err);
    if (status) return status;
    set_up_pairs(t, 2);
    t->unigram.unknown_id = t->bpe.unknown_id;
    if (t->unigram.unknown_id < 0 || t->unigram.num_scores == 0)
        return error_set(err, STATUS_INVALID, "The GGUF file does not say which token is the unknown one.");
    return tables_finish(t, err);
}

/* Whether the tokens are text with U+2581 for a space: no bytes. Sarvam's is a gpt2 by its model. */
static bool has_meta_spaces(const struct gguf *g, const char *model, size_t num_bytes)
{
    const char *pre;
    size_t pre_bytes;
    return !text_is(model, num_bytes, "gpt2") || (gguf_find_text(g, "tokenizer.ggml.pre", &pre, &pre_bytes) &&
                                                  text_is(pre, pre_bytes, "sarvam-moe"));
}

static int read_all(struct tokenizer *t, const struct gguf *g, struct error *err)
{
    const char *model;
    size_t num_bytes;
    if (!gguf_find_text(g, "tokenizer.ggml.model", &model, &num_bytes))
        return error_set(err, STATUS_INVALID, "The GGUF file has no tokenizer (tokenizer.ggml.model).");
    if (text_is(model, num_bytes, "bert")) return read_words(t, g, err);
    if (text_is(model, num_bytes, "t5")) return read_unigram(t, g, err);
    bool is_scored = text_is(model, num_bytes, "llama"), has_spaces = has_meta_spaces(g, model, num_bytes),
         add_bos = !text_is(model, num_bytes, "gpt2");
    if (add_bos && !is_scored && !text_is(model, num_bytes, "gemma4"))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "The tokenizer model \"%.*s\" is not supported; gpt2, llama, gemma4, t5 and bert are.",
            (int)min_of(num_bytes, (size_t)64), model);
    int status = has_spaces ? set_up_spaces(t, g, is_scored, err) : set_up_byte_level(t, g, &add_bos, err);
    if (!status) status = read_tokens(t, g, err);
    if (!status) status = is_scored ? read_scores(t, g, err) : read_merges(t, g, err);
    const int separators = has_spaces ? 0 : num_separators(g);
    if (!status) status = read_ends(t, g, add_bos || separators > 0, separators > 0, err);
    if (status) return status;
    set_up_pairs(t, separators);
    return tables_finish(t, err);
}

int tokenizer_open_gguf(const struct gguf *gguf, struct tokenizer **out, struct error *err)
{
    struct tokenizer *t = tokenizer_create();
    if (!t) return error_set(err, STATUS_NO_MEMORY, "No memory for a tokenizer.");
    int status = read_all(t, gguf, err);
    if (status) {
        tokenizer_close(t);
        return status;
    }
    *out = t;
    return 0;
}
