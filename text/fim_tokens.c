#include "text/fim_tokens.h"

#include <string.h>

#include "base/check.h"
#include "base/id_list.h"
#include "files/gguf.h"

/* The names that families gave them; the first row whose first two a tokenizer has is its own. */
static const struct family {
    const char *prefix, *suffix, *middle;
    bool suffix_first;
} families[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", false}, /* Qwen2.5-Coder, CodeGemma, Granite */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", false},       /* StarCoder, Granite Code, Yi-Coder */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>", false},       /* SantaCoder */
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", false}, /* DeepSeek-Coder */
    {"▁<PRE>", "▁<SUF>", "▁<MID>", false},                         /* CodeLlama */
    {"<PRE>", "<SUF>", "<MID>", false},
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>", false}, /* GLM */
    {"<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>", true},     /* Seed-Coder */
    {"[PREFIX]", "[SUFFIX]", "[MIDDLE]", true}, /* Codestral, whose answer begins behind what is before */
};

static const char *const repository_names[] = {"<|repo_name|>", "<repo_name>", "<reponame>", NULL};
static const char *const file_names[] = {"<|file_sep|>", "<file_sep>", "<|file_separator|>", NULL};
static const char *const end_names[] = {
    "<|fim_pad|>", "<fim_pad>", "<fim-pad>",     "<|endoftext|>", "<|EOT|>",    "<｜EOT｜>",
    "▁<EOT>",      "<EOT>",     "<|repo_name|>", "<|file_sep|>",  "<file_sep>", "<|file_separator|>",
    NULL};

static int32_t find(const struct tokenizer *t, const char *name)
{
    return tokenizer_find(t, name, strlen(name));
}

static int32_t find_first(const struct tokenizer *t, const char *const *names)
{
    int32_t id = -1;
    for (; *names && id < 0; names++) id = find(t, *names);
    return id;
}

static void add_end(struct fim_tokens *f, int32_t id)
{
    if (id < 0 || f->num_ends == FIM_ENDS_MAX || id_list_has(f->ends, f->num_ends, id)) return;
    f->ends[f->num_ends++] = id;
}

static void find_by_name(const struct tokenizer *t, struct fim_tokens *f)
{
    for (size_t i = 0; i < array_length(families) && f->prefix < 0; i++) {
        int32_t prefix = find(t, families[i].prefix), suffix = find(t, families[i].suffix);
        if (prefix < 0 || suffix < 0) continue;
        f->prefix = prefix;
        f->suffix = suffix;
        f->middle = find(t, families[i].middle);
        f->suffix_first = families[i].suffix_first;
    }
    if (f->suffix_first && f->prefix == find(t, "[PREFIX]")) f->middle = -1;
    f->repository = find_first(t, repository_names);
    f->file = find_first(t, file_names);
    for (const char *const *name = end_names; *name; name++) add_end(f, find(t, *name));
}

/* Of the newer key, or of the one that files had before. */
static void read_key(const struct tokenizer *t, const struct gguf *gguf, const char *key, const char *older,
                     int32_t *out)
{
    int64_t id;
    if (!gguf_find_int(gguf, key, &id) && !(older && gguf_find_int(gguf, older, &id))) return;
    if (id >= 0 && id < tokenizer_vocab_size(t)) *out = (int32_t)id;
}

#define KEY(name) "tokenizer.ggml." name "_token_id"

void fim_tokens_find(const struct tokenizer *t, const struct gguf *gguf, struct fim_tokens *out)
{
    int32_t pad = -1, end = -1;
    *out = (struct fim_tokens){.prefix = -1, .suffix = -1, .middle = -1, .repository = -1, .file = -1};
    find_by_name(t, out);
    if (!gguf) return;
    read_key(t, gguf, KEY("fim_pre"), KEY("prefix"), &out->prefix);
    read_key(t, gguf, KEY("fim_suf"), KEY("suffix"), &out->suffix);
    read_key(t, gguf, KEY("fim_mid"), KEY("middle"), &out->middle);
    read_key(t, gguf, KEY("fim_rep"), NULL, &out->repository);
    read_key(t, gguf, KEY("fim_sep"), NULL, &out->file);
    read_key(t, gguf, KEY("fim_pad"), NULL, &pad);
    read_key(t, gguf, KEY("eot"), NULL, &end);
    add_end(out, pad);
    add_end(out, end);
    add_end(out, out->repository);
    add_end(out, out->file);
}
