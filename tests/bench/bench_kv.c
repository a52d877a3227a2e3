/* bench_kv.c - times the CPU's attention over each type of K/V: not a test, prints figures.
 *
 *   bench_kv [isa [context [rounds]]]
 *
 * One thread, 6 sequences of SmolLM2's heads, whose K and V are more than a cache holds: microseconds for a decoded
 * token, and for each token of a prompt of 512. Rounds go through the types in turn; the least time of each is printed,
 * and how many times as fast as bf16 it is. */
#include "tests/kernels/attention_rig.h"

enum { NUM_TYPES = 4, NUM_SEQS = 6, PROMPT = 512, CONTEXT = 8192, ROUNDS = 5 };

static const enum dtype types[NUM_TYPES] = {DTYPE_BF16, DTYPE_F32, DTYPE_F8_E4M3, DTYPE_I8};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* All of every sequence into the pool, without attention. */
static struct rig *new_rig(const char *isa, enum dtype dtype, int32_t context)
{
    struct random random = {.seed = 1};
    struct rig_shape shape = rig_shape_of(3, 3, 64, dtype);
    shape.num_seqs = NUM_SEQS;
    for (int32_t s = 0; s < NUM_SEQS; s++) shape.lengths[s] = context;
    struct rig *r = rig_new(isa, 1, &shape, max_of(context, (int32_t)PROMPT), &random);
    for (int32_t s = 0; s < NUM_SEQS; s++) rig_run(r, &(struct rig_part){.seq = s, .count = context}, 1);
    return r;
}

static double time_of(struct rig *r, const struct rig_part *parts, int num_parts)
{
    double begin = now_s();
    rig_run(r, parts, num_parts);
    return now_s() - begin;
}

static double decode(struct rig *r, float *out, int32_t context)
{
    struct rig_part parts[NUM_SEQS];
    for (int32_t s = 0; s < NUM_SEQS; s++) parts[s] = (struct rig_part){s, context - 1, 1, true, out};
    return time_of(r, parts, NUM_SEQS) / NUM_SEQS;
}

int main(int argc, char **argv)
{
    const char *isa = argc > 1 ? argv[1] : "auto";
    int32_t context = argc > 2 ? atoi(argv[2]) : CONTEXT;
    int rounds = argc > 3 ? atoi(argv[3]) : ROUNDS;
    double decodes[NUM_TYPES], prompts[NUM_TYPES];
    struct rig *rigs[NUM_TYPES];
    float *out = malloc((size_t)PROMPT * 9 * 64 * sizeof *out);
    for (int i = 0; i < NUM_TYPES; i++) {
        rigs[i] = new_rig(isa, types[i], context);
        decodes[i] = prompts[i] = INFINITY;
    }
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < NUM_TYPES; i++) {
            decodes[i] = fmin(decodes[i], decode(rigs[i], out, context));
            prompts[i] = fmin(prompts[i], time_of(rigs[i], &(struct rig_part){0, 0, PROMPT, false, out}, 1));
        }
    for (int i = 0; i < NUM_TYPES; i++)
        printf("%-8s decode at %d: %8.1f us, %.2f times bf16's speed; prompt of %d: %6.2f us a token, %.2f\n",
               dtype_infos[types[i]].text, context, decodes[i] * 1e6, decodes[0] / decodes[i], PROMPT,
               prompts[i] * 1e6 / PROMPT, prompts[0] / prompts[i]);
    for (int i = 0; i < NUM_TYPES; i++) rig_free(rigs[i]);
    free(out);
    return 0;
}
