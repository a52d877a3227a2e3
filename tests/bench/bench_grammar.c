/* bench_grammar WORK TOKENIZER [MAX_SPACES] - compiles schemas and follows instances token by token, as
 * MaskBench does.
 *
 * WORK: a line of JSON for each schema, {"id", "schema": text, "tests": [{"valid", "text"}]} (maskbench.py
 * writes it). TOKENIZER: a directory with tokenizer.json. For each schema a line of JSON comes out: the
 * compile time, what happened, and the microseconds of every mask with its commit. One thread; the masks of a
 * schema are cached while it is tested, nothing is kept between schemas. */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "text/grammar/grammar.h"
#include "text/grammar/mask.h"
#include "text/tokenizer.h"

struct bench {
    struct tokenizer *tokenizer;
    struct vocabulary *vocabulary;
    struct mask_maker *maker;
    uint64_t *words;
    struct grammar_options options;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* not what neighbours on the machine take */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static const char *token_bytes(const void *context, int32_t id, size_t *num_bytes)
{
    const struct tokenizer *t = context;
    *num_bytes = 0;
    return tokenizer_is_special(t, id) ? NULL : tokenizer_token_bytes(t, id, num_bytes);
}

static void make_vocabulary(struct bench *b)
{
    int32_t end = tokenizer_eos_id(b->tokenizer);
    struct vocabulary_source source = {.num_ids = tokenizer_vocab_size(b->tokenizer),
                                       .end_ids = &end,
                                       .num_end_ids = end >= 0,
                                       .token_bytes = token_bytes,
                                       .context = b->tokenizer};
    struct error err = {0};
    double begin = now_us();
    assert_always(vocabulary_make(&source, &b->vocabulary, &err) == 0);
    fprintf(stderr, "vocabulary: %d ids, %.0f ms, %.1f MB\n", source.num_ids, (now_us() - begin) / 1000,
            (double)vocabulary_bytes(b->vocabulary) / 1e6);
    assert_always(mask_maker_new(b->vocabulary, &b->maker) == 0);
    b->words = malloc(vocabulary_num_words(b->vocabulary) * sizeof *b->words);
    assert_always(b->words);
}

/* Whether the whole text was allowed and may end there; prints a time for each token. */
static bool follow(struct bench *b, const struct grammar *g, struct mask_cache *cache, const char *text,
                   int *rejected_at)
{
    struct matcher *m;
    struct token_list tokens = {0};
    bool ok = true;
    assert_always(matcher_new(g, &m) == 0);
    assert_always(tokenizer_encode(b->tokenizer, text, strlen(text), NULL, 0, 0, INT32_MAX, &tokens) == 0);
    *rejected_at = -1;
    for (int32_t i = 0; i < tokens.num_ids && ok; i++) {
        size_t n;
        const char *bytes = tokenizer_token_bytes(b->tokenizer, tokens.ids[i], &n);
        double begin = now_us();
        ok = mask_fill(b->maker, m, cache, b->words) == 0 &&
             b->words[tokens.ids[i] / 64] >> (tokens.ids[i] & 63) & 1;
        if (ok) ok = matcher_accept(m, bytes, n) == 0;
        double us = now_us() - begin;
        printf("%s%.2f", i ? "," : "", us);
        if (us > 1000 && getenv("BENCH_SLOW"))
            fprintf(stderr, "slow %.0f at token %d of %.60s\n", us, i, text);
        if (!ok) *rejected_at = i;
    }
    ok = ok && matcher_can_end(m);
    token_list_deinit(&tokens);
    matcher_free(m);
    return ok;
}

static void run_tests(struct bench *b, const struct grammar *g, const cJSON *tests)
{
    int i = 0;
    struct mask_cache *cache;
    assert_always(mask_cache_new(g, b->vocabulary, MASK_CACHE_BYTES_DEFAULT, &cache) == 0);
    printf(",\"tests\":[");
    for (const cJSON *t = tests->child; t; t = t->next, i++) {
        int rejected_at;
        printf("%s{\"us\":[", i ? "," : "");
        bool ok = follow(b, g, cache, cJSON_GetObjectItem(t, "text")->valuestring, &rejected_at);
        printf("],\"accepted\":%s,\"at\":%d}", ok ? "true" : "false", rejected_at);
    }
    printf("]");
    mask_cache_free(cache);
}

static void run_schema(struct bench *b, const cJSON *line)
{
    const char *text = cJSON_GetObjectItem(line, "schema")->valuestring;
    struct grammar *g = NULL;
    struct error err = {0};
    double begin = now_us();
    cJSON *schema = cJSON_Parse(text);
    assert_always(schema);
    int status = grammar_from_json_schema(schema, &b->options, &g, &err);
    cJSON_Delete(schema);
    double us = now_us() - begin;
    cJSON *sentence = cJSON_CreateString(status ? err.text : "");
    char *quoted = cJSON_PrintUnformatted(sentence);
    printf("{\"id\":\"%s\",\"compile_us\":%.2f,\"status\":%d,\"error\":%s,\"bytes\":%zu",
           cJSON_GetObjectItem(line, "id")->valuestring, us, status, quoted, g ? grammar_bytes(g) : 0);
    if (status == 0) run_tests(b, g, cJSON_GetObjectItem(line, "tests"));
    printf("}\n");
    fflush(stdout);
    free(quoted);
    cJSON_Delete(sentence);
    grammar_free(g);
}

int main(int argc, char **argv)
{
    struct bench b = {.options = {.max_spaces = argc > 3 ? atoi(argv[3]) : GRAMMAR_SPACES_DEFAULT}};
    struct error err = {0};
    FILE *work = argc > 2 ? fopen(argv[1], "r") : NULL;
    char *line = NULL;
    size_t capacity = 0;
    if (!work) {
        fprintf(stderr, "usage: bench_grammar WORK TOKENIZER [MAX_SPACES]\n");
        return 2;
    }
    if (tokenizer_open_directory(argv[2], &b.tokenizer, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    make_vocabulary(&b);
    while (getline(&line, &capacity, work) > 0) {
        cJSON *item = cJSON_Parse(line);
        assert_always(item);
        run_schema(&b, item);
        cJSON_Delete(item);
    }
    free(line);
    fclose(work);
    free(b.words);
    mask_maker_free(b.maker);
    vocabulary_free(b.vocabulary);
    tokenizer_close(b.tokenizer);
    return 0;
}
