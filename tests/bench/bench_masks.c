/* bench_masks.c - times the CPU's attention under masks: not a test, prints figures.
 *
 *   bench_masks [tokens [rounds]]      one prompt of so many tokens (16384), one thread
 *
 * Rounds go through all rows in turn; the least time of each is printed, and how many times as fast as "dense" it is: the
 * same kernel where no tile's bounds say anything, so that every tile is computed and each of its pairs asks the mask,
 * as with a dense mask in FlashAttention-2's place. */
#include "tests/kernels/attention_rig.h"

enum { NUM_ROWS = 6, ROUNDS = 3 };

struct row {
    const char *name;
    int32_t sliding_window, chunk;
    void (*fill)(struct mask_rows *keys, int32_t num_tokens); /* NULL: no mask of the sequence */
    bool without_bounds;
};

static void two_documents(struct mask_rows *keys, int32_t n)
{
    mask_join(keys, 0, n / 2);
    mask_join(keys, n / 2, n);
    mask_close(keys, 0, n / 2);
}

static void eight_documents(struct mask_rows *keys, int32_t n)
{
    for (int i = 0; i < 8; i++) mask_close(keys, i * (n / 8), (i + 1) * (n / 8));
}

static void causal(struct mask_rows *keys, int32_t n)
{
    (void)keys;
    (void)n;
}

static void all(struct mask_rows *keys, int32_t n)
{
    mask_join(keys, 0, n);
}

static const struct row rows[NUM_ROWS] = {
    {"dense", .fill = all, .without_bounds = true},
    {"two documents, each sees itself (half empty)", .fill = two_documents},
    {"eight documents, causal", .fill = eight_documents},
    {"causal as a mask (half empty)", .fill = causal},
    {"causal", .fill = NULL},
    {"causal, window of 4096", .sliding_window = 4096},
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void set_mask(struct rig *r, const struct row *row)
{
    int32_t n = r->shape.lengths[0], num_tiles = mask_num_tiles(n);
    const struct mask_tile anything = {{0, 0}, {MASK_END, MASK_END}};
    free((void *)r->masks[0].keys);
    free((void *)r->masks[0].tiles);
    r->masks[0] = (struct sequence_mask){.keys = NULL};
    r->has_masks = false;
    if (!row->fill) return;
    row->fill(rig_mask(r, 0), n);
    rig_mask_done(r, 0);
    for (int32_t i = 0; row->without_bounds && i < num_tiles; i++)
        ((struct mask_tile *)(void *)r->masks[0].tiles)[i] = anything;
}

static double time_row(struct rig *r, const struct row *row)
{
    struct device *d = r->d;
    struct attention_args args = r->attention;
    args.sliding_window = row->sliding_window;
    args.chunk = row->chunk;
    set_mask(r, row);
    r->step->step.masks = r->has_masks ? r->masks : NULL;
    struct batch *b = d->ops->step_begin(d, &r->step->step);
    double begin = now_s();
    d->ops->attention(d, b, r->out, r->qkv, r->pool, 1, &args);
    double seconds = now_s() - begin;
    test_step_end(d, NULL);
    return seconds;
}

int main(int argc, char **argv)
{
    struct random random = {.seed = 7};
    struct rig_shape shape = rig_shape_of(3, 1, 64, DTYPE_BF16);
    int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS;
    double best[NUM_ROWS];
    shape.num_seqs = 1;
    shape.lengths[0] = argc > 1 ? atoi(argv[1]) : 16384;
    struct rig *r = rig_new("auto", 1, &shape, shape.lengths[0], &random);
    rig_run(r, &(struct rig_part){.count = shape.lengths[0]}, 1);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < NUM_ROWS; i++) {
            double seconds = time_row(r, &rows[i]);
            best[i] = round == 0 || seconds < best[i] ? seconds : best[i];
        }
    printf("%s, %d tokens, %d heads of %d\n", r->d->description, shape.lengths[0], shape.num_heads,
           shape.head_dim);
    for (int i = 0; i < NUM_ROWS; i++)
        printf("  %-46s %9.1f ms  %6.2fx\n", rows[i].name, best[i] * 1e3, best[0] / best[i]);
    rig_free(r);
    return 0;
}
