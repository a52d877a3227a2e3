/* bench_model.c - speed of the forward pass itself, as llama-bench measures it: no HTTP, no scheduler,
 * greedy.
 *
 *   bench_model MODEL [--load-format auto] [--device cpu] [--isa auto] [--threads N] [--clock wall]
 *
 * Prints one line of JSON: tokens per second of a prefill of 512, and of decoding with 1 sequence at 16 and
 * at 512 tokens of context, and with 8 and 32 sequences at 16. --clock process: of processor time, which other programs
 * disturb less; for one thread of the CPU device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model_session.h"

enum { PREFILL_TOKENS = 512, SHORT_CONTEXT = 16, DECODE_STEPS = 48, BATCH_STEPS = 16, SEQS_MAX = 32 };

static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 2; i + 1 < argc; i++)
        if (!strcmp(argv[i], name)) return argv[i + 1];
    return otherwise;
}

static void fill_prompt(int32_t *ids, int32_t n)
{
    for (int32_t i = 0; i < n; i++) ids[i] = 1000 + (i * 7919) % 40000;
}

static clockid_t the_clock = CLOCK_MONOTONIC;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(the_clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double prefill(struct session *s, int32_t num_tokens)
{
    int32_t ids[PREFILL_TOKENS];
    fill_prompt(ids, num_tokens);
    struct session_part part = {.num_tokens = num_tokens, .tokens = ids};
    double begin_s = now_s();
    session_step(s, &part, 1);
    session_finish_step(s);
    return num_tokens / (now_s() - begin_s);
}

static double decode(struct session *s, int num_seqs, int32_t context)
{
    int32_t ids[PREFILL_TOKENS], next[SEQS_MAX];
    struct session_part parts[SEQS_MAX];
    fill_prompt(ids, context);
    for (int i = 0; i < num_seqs; i++) {
        struct session_part part = {.seq = i, .num_tokens = context, .tokens = ids};
        session_step(s, &part, 1);
        session_finish_step(s);
        next[i] = s->results[0].token_id;
    }
    int32_t num_steps = num_seqs == 1 ? DECODE_STEPS : BATCH_STEPS;
    double begin_s = now_s();
    for (int32_t step = 0; step < num_steps; step++) {
        for (int i = 0; i < num_seqs; i++)
            parts[i] = (struct session_part){
                .seq = i, .num_done = context + step, .num_tokens = 1, .tokens = &next[i], .decode = true};
        session_step(s, parts, num_seqs);
        session_finish_step(s);
        for (int i = 0; i < num_seqs; i++) next[i] = s->results[i].token_id;
    }
    return num_steps * num_seqs / (now_s() - begin_s);
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    struct session_options options = {
        .model_path = argv[1],
        .load_format = option(argc, argv, "--load-format", "auto"),
        .device = option(argc, argv, "--device", "cpu"),
        .isa = option(argc, argv, "--isa", "auto"),
        .threads = atoi(option(argc, argv, "--threads", "0")),
        .kv_dtype = DTYPE_BF16,
        .num_seqs = SEQS_MAX,
        .max_model_len = PREFILL_TOKENS + DECODE_STEPS,
        .num_batched_tokens = PREFILL_TOKENS,
        .num_logits = SEQS_MAX,
    };
    if (!strcmp(option(argc, argv, "--clock", "wall"), "process")) the_clock = CLOCK_PROCESS_CPUTIME_ID;
    struct session s;
    session_open(&s, &options);
    prefill(&s, PREFILL_TOKENS);
    decode(&s, 1, SHORT_CONTEXT);
    printf("{\"prefill_512\": %.1f, ", prefill(&s, PREFILL_TOKENS));
    printf("\"decode_1_at_16\": %.1f, ", decode(&s, 1, SHORT_CONTEXT));
    printf("\"decode_1_at_512\": %.1f, ", decode(&s, 1, PREFILL_TOKENS));
    printf("\"decode_8\": %.1f, ", decode(&s, 8, SHORT_CONTEXT));
    printf("\"decode_32\": %.1f}\n", decode(&s, SEQS_MAX, SHORT_CONTEXT));
    session_close(&s);
    return 0;
}
