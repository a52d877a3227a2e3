/* bench_steps.c - times of whole steps of a model on the GPU, below the scheduler: two steps in flight,
 * tokens stay on the device, as the engine runs them.
 *
 *   bench_steps MODEL [--load-format dummy] [--kv-cache-dtype fp8] [--max-model-len N] [--one-table] [--copies] [first | decode |
 *               sampling | mixed | prefill | long | chunks | replay | energy]
 *
 * Prompts are random tokens. First: the warm-up, and how much longer the first two decode steps of a size take than
 * later ones, which they should not. Decode: milliseconds a step, the mean of 32 after 8. Sampling: what the ways to
 * sample add to greedy decoding, in percent of its step. Mixed: the same for steps
 * that hold prompts beside decoding sequences, 1,024 tokens in all. Prefill: tokens a second, best of 3; one
 * prompt first, while the card is not yet at its power limit. Long, only when named: decoding behind contexts whose K and V are
 * whatever the memory holds. Chunks, only when named: steps that hold nothing but the next
 * few tokens of a long prompt. Replay, only when named: an answer whose tokens are known is computed again, in runs of so many
 * decoding rows a step, and whether the last row's logits have the bits that one row a step gives. Energy, only when named: seconds
 * of equal steps, what one takes of the card's energy, and how long that is at the power it may draw. One-table: layers that see a
 * window share the block tables of the others, as they do not in a server. Copies: weights of four bits are kept as bf16, too, as in a
 * server where these are small beside the memory. Max-model-len: what is allowed, 2,048 by default and
 * 131,072 for long ones; a server allows what the model was made for, and planning for that must not take time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/warm_up.h"
#include "model_session.h"
#include "power_meter.h"

enum {
    TOKENS_MAX = 8192,
    SEQS_MAX = 256,
    CONTEXT_MAX = 2048,
    LONG_CONTEXT_MAX = 131072,
    WARM_STEPS = 8,
    TIMED_STEPS = 32,
    MIXED_TOKENS = 1024,
    MIXED_PROMPTS = 2, /* a step */
    STEPS_MAX = WARM_STEPS + TIMED_STEPS,
    POOL_BLOCKS = (140 * (1024 + STEPS_MAX) + BLOCK_SIZE - 1) / BLOCK_SIZE /* 18.7 GiB of Llama-3.1-8B's */
};

static int32_t prompt[CONTEXT_MAX +
                      SEQS_MAX]; /* sequence i's from i on: a mixture sends equal ones to the same experts */

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
            parts[n++] = (struct session_part){.seq = i, .num_tokens = length, .tokens = prompt + i};
        session_step(s, parts, n);
        if (in_flight++ > 0) session_finish_step(s);
    }
    session_finish_step(s);
    return seconds_since(begin_ns);
}

/* Sequences of so many tokens from now on. */
static void set_length(struct session *s, int32_t num_tokens)
{
    s->seq_blocks = (int32_t)div_up(num_tokens, BLOCK_SIZE);
}

/* One token of each of num_seqs sequences from context on, and before them MIXED_PROMPTS prompts of
 * prompt_tokens each, if any. */
static double steps_ms(struct session *s, int num_seqs, int32_t context, int32_t prompt_tokens)
{
    struct session_part parts[SEQS_MAX];
    int32_t last[SEQS_MAX];
    uint64_t begin_ns = 0;
    for (int i = 0; i < num_seqs; i++) last[i] = ~i; /* the token sampled last for slot i */
    for (int step = 0; step < STEPS_MAX; step++) {
        int n = 0;
        for (int i = 0; i < MIXED_PROMPTS && prompt_tokens > 0; i++)
            parts[n++] =
                (struct session_part){.seq = num_seqs + i, .num_tokens = prompt_tokens, .tokens = prompt + i};
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

/* The same with sequences that are there already. */
static double decode_ms(struct session *s, int num_seqs, int32_t context, int32_t prompt_tokens)
{
    set_length(s, max_of(context, prompt_tokens) + STEPS_MAX);
    if (num_seqs > 0) prefill(s, num_seqs, context);
    return steps_ms(s, num_seqs, context, prompt_tokens);
}

/* The slowest of two steps, one at a time. */
static double slower_of_two_ms(struct session *s, int num_seqs, int32_t context)
{
    struct session_part parts[SEQS_MAX];
    double slowest = 0;
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < num_seqs; i++)
            parts[i] = (struct session_part){
                .seq = i, .num_done = context + step, .num_tokens = 1, .tokens = prompt, .decode = true};
        uint64_t begin_ns = clock_monotonic_ns();
        session_step(s, parts, num_seqs);
        session_finish_step(s);
        slowest = max_of(slowest, seconds_since(begin_ns) * 1e3);
    }
    return slowest;
}

/* Before anything else has run. */
static void print_first(struct session *s)
{
    static const int sizes[] = {1, 2, 3, 5, 13, 30, 47, 64, 111, 200, 256};
    struct error err = {0};
    struct warm_up_times times;
    uint64_t begin_ns = clock_monotonic_ns();
    for (int i = 0; i < 2; i++) session_check(model_warm_up(s->model, 128, &times, &err), &err);
    printf("warm-up: %.3f s; ", seconds_since(begin_ns));
    begin_ns = clock_monotonic_ns();
    session_check(model_record_graphs(s->model, SEQS_MAX, &err), &err);
    printf("graphs: %.3f s\n", seconds_since(begin_ns));
    set_length(s, 512 + 6);
    for (size_t i = 0; i < array_length(sizes); i++) {
        double first = slower_of_two_ms(s, sizes[i], 512), later = slower_of_two_ms(s, sizes[i], 514);
        printf("first steps of %3d: %7.3f ms, later ones %7.3f\n", sizes[i], first,
               min_of(later, slower_of_two_ms(s, sizes[i], 516)));
    }
    fflush(stdout);
}

static const struct {
    const char *name;
    struct sampling sampling;
    bool masks;
} samplings[] = {
    {.name = "masks, each its own",
     .sampling = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1},
     .masks = true},
    {.name = "temperature 1",
     .sampling = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .num_logprobs = -1}},
    {.name = "top_k 20, top_p 0.95",
     .sampling =
         {.temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .repetition_penalty = 1, .num_logprobs = -1}},
    {.name = "top_p 0.9",
     .sampling = {.temperature = 0.6f, .top_p = 0.9f, .repetition_penalty = 1, .num_logprobs = -1}},
    {.name = "min_p 0.05",
     .sampling = {.temperature = 1, .top_p = 1, .min_p = 0.05f, .repetition_penalty = 1, .num_logprobs = -1}},
    {.name = "5 log probabilities", .sampling = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = 5}},
    {.name = "20 log probabilities", .sampling = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = 20}},
    {.name = "penalties",
     .sampling = {.temperature = 1,
                  .top_p = 1,
                  .presence_penalty = 0.5f,
                  .repetition_penalty = 1.1f,
                  .num_logprobs = -1}},
};

/* Half of the ids for each sequence. */
static uint64_t *make_masks(const struct session *s)
{
    size_t num_words = (size_t)SEQS_MAX * bit_set_words((size_t)model_config(s->model)->vocab_size);
    uint64_t *masks = calloc(num_words, sizeof *masks);
    assert_always(masks);
    for (size_t i = 0; i < num_words; i++) {
        struct rng_block b = rng_philox(1, i, 0);
        masks[i] = (uint64_t)b.word[0] << 32 | b.word[1];
    }
    return masks;
}

/* Greedy between all others: the card's clock moves more than some of the differences. */
static void print_samplings(struct session *s, int num_seqs, int32_t context)
{
    const struct sampling greedy = s->sampling;
    uint64_t *masks = make_masks(s);
    set_length(s, context + STEPS_MAX);
    prefill(s, num_seqs, context);
    steps_ms(s, num_seqs, context, 0);
    for (size_t i = 0; i < array_length(samplings); i++) {
        double plain = steps_ms(s, num_seqs, context, 0);
        s->sampling = samplings[i].sampling;
        s->masks = samplings[i].masks ? masks : NULL;
        double ms = steps_ms(s, num_seqs, context, 0);
        s->sampling = greedy;
        s->masks = NULL;
        plain = (plain + steps_ms(s, num_seqs, context, 0)) / 2;
        printf("sampling %3d at %4d: greedy %7.3f ms, %-22s %+7.1f us, %+5.2f %%\n", num_seqs, context, plain,
               samplings[i].name, (ms - plain) * 1e3, (ms / plain - 1) * 100);
        fflush(stdout);
    }
    free(masks);
}

static void print_prefill(struct session *s, int num_seqs, int32_t length)
{
    double best = 1e30;
    set_length(s, length);
    for (int run = 0; run < 4; run++) {
        double seconds = prefill(s, num_seqs, length);
        if (run > 0 && seconds < best) best = seconds;
    }
    printf("prefill %3d x %5d: %7.3f ms, %8.0f tokens/s\n", num_seqs, length, best * 1e3,
           num_seqs * length / best);
    fflush(stdout);
}

static double chunk_ms(struct session *s, int32_t num_done, int32_t num_tokens)
{
    enum { WARM = 2, TIMED = 4 };
    const struct session_part part = {.num_done = num_done, .num_tokens = num_tokens, .tokens = prompt};
    uint64_t begin_ns = 0;
    for (int i = 0; i < WARM + TIMED; i++) {
        if (i == WARM) begin_ns = clock_monotonic_ns();
        session_step(s, &part, 1);
        session_finish_step(s);
    }
    return seconds_since(begin_ns) * 1e3 / TIMED;
}

static void print_chunks(struct session *s)
{
    static const int32_t dones[] = {0, 8000, 16000, 32000, 64000, 100000},
                         sizes[] = {16, 64, 128, 256, 512, 640, 768, 1024};
    set_length(s, LONG_CONTEXT_MAX);
    for (size_t i = 0; i < array_length(dones); i++) {
        printf("chunk behind %6d tokens, ms:", dones[i]);
        for (size_t k = 0; k < array_length(sizes); k++)
            printf("  %4d: %7.3f", sizes[k], chunk_ms(s, dones[i], sizes[k]));
        printf("\n");
        fflush(stdout);
    }
}

static bool wanted(const char *what, const char *name)
{
    return !*what || !strcmp(what, name);
}

enum { REPLAY_PROMPT = 48, REPLAY_TOKENS = CONTEXT_MAX - REPLAY_PROMPT, REPLAY_ROWS = 512 };

/* Milliseconds from a prompt's last token, which is there, to the answer's; its logits. */
static double replay_ms(struct session *s, int32_t run, float *logits)
{
    struct session_part parts[REPLAY_ROWS] = {{0}};
    uint64_t begin_ns = clock_monotonic_ns();
    for (int32_t at = REPLAY_PROMPT; at < CONTEXT_MAX;) {
        int32_t n = 0;
        for (; n < run && at < CONTEXT_MAX; n++, at++)
            parts[n] = (struct session_part){.num_done = at,
                                             .num_tokens = 1,
                                             .tokens = prompt + at,
                                             .decode = true,
                                             .no_logits = at + 1 < CONTEXT_MAX && n + 1 < run};
        session_step(s, parts, n);
        if (at == CONTEXT_MAX) session_logits(s, 0, logits);
        session_finish_step(s);
    }
    return seconds_since(begin_ns) * 1e3;
}

static void print_replay(struct session *s)
{
    static const int32_t runs[] = {1, 16, 64, 128, 256, REPLAY_ROWS};
    size_t bytes = (size_t)model_config(s->model)->vocab_size * sizeof(float);
    float *alone = malloc(bytes), *together = malloc(bytes);
    set_length(s, CONTEXT_MAX);
    prefill(s, 1, REPLAY_PROMPT);
    for (size_t i = 0; i < array_length(runs); i++) {
        double ms = replay_ms(s, runs[i], i == 0 ? alone : together);
        if (i > 0) ms = min_of(ms, replay_ms(s, runs[i], together));
        printf("replay  %d tokens, %3d rows a step: %8.1f ms, %s\n", REPLAY_TOKENS, runs[i], ms,
               i == 0                                ? "alone"
               : memcmp(alone, together, bytes) == 0 ? "the same bits"
                                                     : "OTHER BITS");
        fflush(stdout);
    }
    free(alone);
    free(together);
}

/* The same step again and again, two in flight; returns how many. */
static int repeat_step(struct session *s, const struct session_part *parts, int num_parts, double seconds,
                       struct power_meter *meter)
{
    int num_steps = 0;
    uint64_t begin_ns = clock_monotonic_ns();
    for (; seconds_since(begin_ns) < seconds; num_steps++) {
        session_step(s, parts, num_parts);
        if (num_steps > 0) session_finish_step(s);
        power_meter_look(meter);
    }
    session_finish_step(s);
    return num_steps;
}

/* Each of num_seqs sequences gets num_tokens behind context. */
static void print_energy(struct session *s, struct power_meter *meter, int num_seqs, int32_t context,
                         int32_t num_tokens)
{
    static const double WARM_SECONDS = 1, TIMED_SECONDS = 2;
    struct session_part parts[SEQS_MAX];
    for (int i = 0; i < num_seqs; i++)
        parts[i] = (struct session_part){.seq = i,
                                         .num_done = context,
                                         .num_tokens = num_tokens,
                                         .tokens = prompt + i,
                                         .decode = num_tokens == 1};
    set_length(s, context + num_tokens);
    repeat_step(s, parts, num_seqs, WARM_SECONDS, meter);
    power_meter_clock(meter);
    double joules = power_meter_joules(meter), limit = power_meter_limit(meter);
    uint64_t begin_ns = clock_monotonic_ns();
    int num_steps = repeat_step(s, parts, num_seqs, TIMED_SECONDS, meter);
    double seconds = seconds_since(begin_ns);
    joules = power_meter_joules(meter) - joules;
    printf("energy %3d x %4d behind %4d: %7.3f ms a step, %7.3f J, %.0f W of %.0f, %.0f MHz; J over the "
           "limit %7.3f ms\n",
           num_seqs, num_tokens, context, seconds * 1e3 / num_steps, joules / num_steps, joules / seconds,
           limit, power_meter_clock(meter), joules / num_steps / limit * 1e3);
    fflush(stdout);
}

static void print_energies(struct session *s)
{
    static const struct {
        int num_seqs;
        int32_t context, num_tokens;
    } steps[] = {{1, 16, 1},   {1, 1024, 1},  {64, 16, 1}, {64, 576, 1}, {64, 1024, 1},
                 {256, 16, 1}, {256, 512, 1}, {1, 0, 512}, {4, 0, 2048}};
    struct power_meter meter;
    if (!power_meter_open(&meter)) return;
    for (size_t i = 0; i < array_length(steps); i++)
        print_energy(s, &meter, steps[i].num_seqs, steps[i].context, steps[i].num_tokens);
}

int main(int argc, char **argv)
{
    const char *load_format = "auto", *what = "";
    enum dtype kv_dtype = DTYPE_BF16;
    bool one_table = false, copies = false;
    int32_t max_model_len = 0;
    if (argc < 2) return 2;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--load-format") && i + 1 < argc)
            load_format = argv[++i];
        else if (!strcmp(argv[i], "--kv-cache-dtype") && i + 1 < argc)
            kv_dtype = strcmp(argv[++i], "fp8") ? DTYPE_BF16 : DTYPE_F8_E4M3;
        else if (!strcmp(argv[i], "--max-model-len") && i + 1 < argc)
            max_model_len = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--one-table"))
            one_table = true;
        else if (!strcmp(argv[i], "--copies"))
            copies = true;
        else
            what = argv[i];
    }
    if (max_model_len == 0)
        max_model_len = !strcmp(what, "chunks") || !strcmp(what, "long") ? LONG_CONTEXT_MAX : CONTEXT_MAX;
    struct session_options options = {
        .model_path = argv[1],
        .load_format = load_format,
        .device = "cuda",
        .isa = "auto",
        .kv_dtype = kv_dtype,
        .num_seqs = strcmp(what, "replay") ? SEQS_MAX : REPLAY_ROWS,
        .max_model_len = max_model_len,
        .num_batched_tokens = TOKENS_MAX,
        .num_logits = SEQS_MAX,
        .num_blocks = POOL_BLOCKS,
        .has_groups = !one_table,
        .keeps_copies = copies,
    };
    struct session s;
    session_open(&s, &options);
    const uint32_t num_ids = (uint32_t)min_of(model_config(s.model)->vocab_size - 1000, 40000);
    for (int i = 0; i < CONTEXT_MAX + SEQS_MAX; i++)
        prompt[i] = 1000 + (int32_t)((uint32_t)i * 7919u % num_ids);
    static const struct {
        int num_seqs, context;
    } decodes[] = {{1, 1024},  {8, 1024},   {32, 1024}, {64, 1024},
                   {96, 1024}, {128, 1024}, {192, 512}, {256, 512}},
      longs[] = {{1, 8000}, {1, 32000}, {1, 130000}, {8, 16000}, {32, 4000}, {64, 2000}},
      mixed[] = {{0, 0}, {32, 576}, {64, 576}, {128, 576}}, sampled[] = {{1, 1024}, {64, 1024}, {256, 512}};
    if (!strcmp(what, "chunks")) print_chunks(&s);
    if (!strcmp(what, "replay")) print_replay(&s);
    if (!strcmp(what, "energy")) print_energies(&s);
    if (wanted(what, "first")) print_first(&s);
    if (wanted(what, "prefill")) print_prefill(&s, 1, 512);
    for (size_t i = 0; i < array_length(decodes) && wanted(what, "decode"); i++) {
        double ms = decode_ms(&s, decodes[i].num_seqs, decodes[i].context, 0);
        printf("decode  %3d at %4d: %7.3f ms a step, %8.0f tokens/s\n", decodes[i].num_seqs,
               decodes[i].context, ms, decodes[i].num_seqs / ms * 1e3);
        fflush(stdout);
    }
    for (size_t i = 0; i < array_length(longs) && !strcmp(what, "long"); i++) {
        set_length(&s, longs[i].context + STEPS_MAX);
        printf("decode  %3d at %6d: %7.3f ms a step\n", longs[i].num_seqs, longs[i].context,
               steps_ms(&s, longs[i].num_seqs, longs[i].context, 0));
        fflush(stdout);
    }
    for (size_t i = 0; i < array_length(sampled) && wanted(what, "sampling"); i++)
        print_samplings(&s, sampled[i].num_seqs, sampled[i].context);
    for (size_t i = 0; i < array_length(mixed) && wanted(what, "mixed"); i++) {
        int32_t prompt_tokens = (MIXED_TOKENS - mixed[i].num_seqs) / MIXED_PROMPTS;
        double ms = decode_ms(&s, mixed[i].num_seqs, mixed[i].context, prompt_tokens);
        printf("mixed   %3d at %4d and %d prompts of %3d: %7.3f ms a step\n", mixed[i].num_seqs,
               mixed[i].context, MIXED_PROMPTS, prompt_tokens, ms);
        fflush(stdout);
    }
    if (wanted(what, "prefill")) print_prefill(&s, 16, 2048);
    session_close(&s);
    return 0;
}
