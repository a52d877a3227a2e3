/* logits.c - prints what a model computes, for the golden tests.
 *
 *   logits MODEL [--device cpu] [--isa portable] [--kv f32|fp8|int8] [--threads 2] [--chunk 512] [--greedy N] < ids
 *
 * Each input line is a sequence of token ids. Without --greedy: every position's logits, as raw f32, in
 * order. With --greedy N: for each line, N ids chosen greedily, as text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_session.h"

enum { LINE_BYTES_MAX = 1 << 20, TOKENS_MAX = 8192 };

static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 2; i + 1 < argc; i++)
        if (!strcmp(argv[i], name)) return argv[i + 1];
    return otherwise;
}

static enum dtype kv_dtype_of(const char *name)
{
    if (!strcmp(name, "f32")) return DTYPE_F32;
    if (!strcmp(name, "fp8")) return DTYPE_F8_E4M3;
    return !strcmp(name, "int8") ? DTYPE_I8 : DTYPE_BF16;
}

static int32_t read_ids(char *line, int32_t *ids)
{
    int32_t n = 0;
    for (char *word = strtok(line, " \n"); word && n < TOKENS_MAX; word = strtok(NULL, " \n"))
        ids[n++] = atoi(word);
    return n;
}

static void print_logits(struct session *s, const int32_t *ids, int32_t num_ids, int32_t chunk)
{
    int32_t vocab_size = model_config(s->model)->vocab_size;
    float *row = malloc((size_t)vocab_size * sizeof *row);
    for (int32_t done = 0; done < num_ids; done += chunk) {
        int32_t n = min_of(chunk, num_ids - done);
        struct session_part part = {
            .num_done = done, .num_tokens = n, .tokens = ids + done, .all_logits = true};
        session_step(s, &part, 1);
        for (int32_t r = 0; r < n; r++) {
            session_logits(s, r, row);
            fwrite(row, sizeof *row, (size_t)vocab_size, stdout);
        }
        session_finish_step(s);
    }
    free(row);
}

static void print_greedy(struct session *s, const int32_t *ids, int32_t num_ids, int32_t num_new)
{
    struct session_part part = {.num_tokens = num_ids, .tokens = ids};
    for (int32_t i = 0; i < num_new; i++) {
        session_step(s, &part, 1);
        session_finish_step(s);
        int32_t next = s->results[0].token_id;
        printf("%d%c", next, i + 1 < num_new ? ' ' : '\n');
        part = (struct session_part){
            .num_done = num_ids + i, .num_tokens = 1, .tokens = &s->results[0].token_id, .decode = true};
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    int32_t chunk = atoi(option(argc, argv, "--chunk", "512")),
            num_new = atoi(option(argc, argv, "--greedy", "0"));
    struct session_options options = {
        .model_path = argv[1],
        .device = option(argc, argv, "--device", "cpu"),
        .isa = option(argc, argv, "--isa", "auto"),
        .threads = atoi(option(argc, argv, "--threads", "0")),
        .kv_dtype = kv_dtype_of(option(argc, argv, "--kv", "bf16")),
        .num_seqs = 1,
        .max_model_len = 4096,
        .num_batched_tokens = max_of(chunk, 512),
        .num_logits = max_of(chunk, 1),
    };
    struct session s;
    session_open(&s, &options);
    char *line = malloc(LINE_BYTES_MAX);
    int32_t *ids = malloc(TOKENS_MAX * sizeof *ids);
    while (fgets(line, LINE_BYTES_MAX, stdin)) {
        int32_t n = read_ids(line, ids);
        if (n == 0) continue;
        if (num_new)
            print_greedy(&s, ids, n, num_new);
        else
            print_logits(&s, ids, n, chunk);
    }
    free(line);
    free(ids);
    session_close(&s);
    return 0;
}
