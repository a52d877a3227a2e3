/* bench_steps.c - times of whole steps of a model on the GPU, below the scheduler: two steps in flight,
 * tokens stay on the device, as the engine runs them.
 *
 *   bench_steps MODEL [--load-format dummy] [decode | mixed | prefill]
 *
 * Prompts are random tokens. Decode: milliseconds a step, the mean of 32 after 8. Mixed: the same for steps
 * that hold prompts beside decoding sequences, 1,024 tokens in all. Prefill: tokens a second, best of 3; one
 * prompt first, while the card is not yet at its power limit. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "model_session.h"

enum {
    TOKENS_MAX = 8192,
    SEQS_MAX = 256,
    CONTEXT_MAX = 2048,
    WARM_STEPS = 8,
    TIMED_STEPS = 32,
    MIXED_TOKENS = 1024,
    MIXED_PROMPTS = 2 /* a step */
};

static int32_t prompt[CONTEXT_MAX];

static double seconds_since(uint64_t begin_ns)
{
    return (double)(clock_monotonic_ns() - begin_ns) / 1e9;
}

/* Prompts of num_seqs sequences, as many at a time as a step takes; returns seconds. */
static double prefill(struct session *s, int num_seqs, int32_t length)
{
    struct session_part parts[SEQS_MAX];
    int per_step = TOKENS_MAX / length, in_flight = 0;
    uint64_t begin_ns = clock_monotonic_ns();
    for (int first = 0; first < num_seqs; first += per_step) {
        int n = 0;
        for (int i = first; i < num_seqs && n < per_step; i++)
            parts[n++] = (struct session_part){.seq = i, .num_tokens = length, .tokens = prompt};
        session_step(s, parts, n);
        if (in_flight++ > 0) session_finish_step(s);
    }
    session_finish_step(s);
    return seconds_since(begin_ns);
}

/* One token of each of num_seqs sequences, and before them MIXED_PROMPTS prompts of prompt_tokens each, if
 * any. */
static double steps_ms(struct session *s, int num_seqs, int32_t context, int32_t prompt_tokens)
{
    struct session_part parts[SEQS_MAX];
    int32_t last[SEQS_MAX];
    uint64_t begin_ns = 0;
    if (num_seqs > 0) prefill(s, num_seqs, context);
    for (int i = 0; i < num_seqs; i++) last[i] = ~i; /* the token sampled last for slot i */
    for (int step = 0; step < WARM_STEPS + TIMED_STEPS; step++) {
        int n = 0;
        for (int i = 0; i < MIXED_PROMPTS && prompt_tokens > 0; i++)
            parts[n++] =
                (struct session_part){.seq = SEQS_MAX - 1 - i, .num_tokens = prompt_tokens, .tokens = prompt};
        for (int i = 0; i < num_seqs; i++)
            parts[n++] = (struct session_part){
                .seq = i, .num_done = context + step, .num_tokens = 1, .tokens = &last[i], .decode = true};
        session_step(s, parts, n);
        if (step > 0) session_finish_step(s);
        if (step == WARM_STEPS) begin_ns = clock_monotonic_ns();
    }
    session_finish_step(s);
    return seconds_since(begin_ns) * 1e3 / TIMED_STEPS;
}

static void print_prefill(struct session *s, int num_seqs, int32_t length)
{
    double best = 1e30;
    for (int run = 0; run < 4; run++) {
        double seconds = prefill(s, num_seqs, length);
        if (run > 0 && seconds < best) best = seconds;
    }
    printf("prefill %3d x %5d: %7.3f ms, %8.0f tokens/s\n", num_seqs, length, best * 1e3,
           num_seqs * length / best);
    fflush(stdout);
}

static bool wanted(const char *what, const char *name)
{
    return !*what || !strcmp(what, name);
}

int main(int argc, char **argv)
{
    const char *load_format = "auto", *what = "";
    if (argc < 2) return 2;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--load-format") && i + 1 < argc)
            load_format = argv[++i];
        else
            what = argv[i];
    }
    struct session_options options = {
        .model_path = argv[1],
        .load_format = load_format,
        .device = "cuda",
        .isa = "auto",
        .kv_dtype = DTYPE_BF16,
        .num_seqs = SEQS_MAX,
        .max_model_len = CONTEXT_MAX,
        .num_batched_tokens = TOKENS_MAX,
        .num_logits = SEQS_MAX,
    };
    struct session s;
    for (int i = 0; i < CONTEXT_MAX; i++) prompt[i] = 1000 + (int32_t)((uint32_t)i * 7919u % 40000u);
    session_open(&s, &options);
    static const struct {
        int num_seqs, context;
    } decodes[] = {{1, 1024},  {8, 1024},   {32, 1024}, {64, 1024},
                   {96, 1024}, {128, 1024}, {192, 512}, {256, 512}},
      mixed[] = {{0, 0}, {32, 576}, {64, 576}, {128, 576}};
    if (wanted(what, "prefill")) print_prefill(&s, 1, 512);
    for (size_t i = 0; i < array_length(decodes) && wanted(what, "decode"); i++) {
        double ms = steps_ms(&s, decodes[i].num_seqs, decodes[i].context, 0);
        printf("decode  %3d at %4d: %7.3f ms a step, %8.0f tokens/s\n", decodes[i].num_seqs,
               decodes[i].context, ms, decodes[i].num_seqs / ms * 1e3);
        fflush(stdout);
    }
    for (size_t i = 0; i < array_length(mixed) && wanted(what, "mixed"); i++) {
        int32_t prompt_tokens = (MIXED_TOKENS - mixed[i].num_seqs) / MIXED_PROMPTS;
        double ms = steps_ms(&s, mixed[i].num_seqs, mixed[i].context, prompt_tokens);
        printf("mixed   %3d at %4d and %d prompts of %3d: %7.3f ms a step\n", mixed[i].num_seqs,
               mixed[i].context, MIXED_PROMPTS, prompt_tokens, ms);
        fflush(stdout);
    }
    if (wanted(what, "prefill")) print_prefill(&s, 16, 2048);
    session_close(&s);
    return 0;
}
