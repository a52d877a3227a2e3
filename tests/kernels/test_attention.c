/* test_attention.c - attention against an untiled double-precision reference, and its bits against
 * themselves. Masks of sequences and chunks: test_masks.c.
 *
 *   FLASHD_TEST_HEAD_DIM=256 test_attention [PATTERN]   that head size alone; of those tests alone (an emulated GPU takes its time) */
#include "attention_rig.h"

static bool is_wanted(const struct rig_shape *shape)
{
    const char *head_dim = getenv("FLASHD_TEST_HEAD_DIM");
    return !head_dim || atoi(head_dim) == shape->head_dim;
}

/* Head sizes from 64 on of which a GPU's kernels have code of their own, for tests that a CPU has done with the first. */
static const int32_t gpu_head_dims[] = {64, 128, 256};

static size_t num_head_dims(void)
{
    return getenv("FLASHD_TEST_DEVICE") ? array_length(gpu_head_dims) : 1;
}

/* The type of K and V to test in the place of one that a GPU does not keep. */
static enum dtype kv_of(enum dtype dtype)
{
    if (!getenv("FLASHD_TEST_DEVICE")) return dtype;
    return dtype_is_code(dtype) ? DTYPE_F8_E4M3 : DTYPE_BF16;
}

/* cached[s] tokens are in the pool already; the rest of each sequence is one step's work. Sequences with one
 * token left decode when they stand at the end. */
static void check_against_reference(const char *isa, const struct rig_shape *shape, const int32_t *cached,
                                    struct random *random)
{
    int32_t num_tokens = 0, longest = 0;
    if (!is_wanted(shape)) return;
    for (int32_t s = 0; s < shape->num_seqs; s++) {
        num_tokens += shape->lengths[s] - cached[s];
        longest = max_of(longest, cached[s]);
    }
    struct rig *r = rig_new(isa, 1 + random_below(random, 4), shape, max_of(num_tokens, longest), random);
    if (!r) {
        printf("(head_dim %d is not supported)\n", shape->head_dim);
        return;
    }
    struct rig_part parts[RIG_SEQS_MAX];
    int32_t first_decode = shape->num_seqs;
    while (first_decode > 0 && shape->lengths[first_decode - 1] - cached[first_decode - 1] == 1)
        first_decode--;
    for (int32_t s = 0; s < shape->num_seqs; s++) {
        struct rig_part before = {.seq = s, .count = cached[s]};
        if (cached[s] > 0) rig_run(r, &before, 1);
        int32_t count = shape->lengths[s] - cached[s];
        parts[s] =
            (struct rig_part){.seq = s, .first = cached[s], .count = count, .decode = s >= first_decode};
        parts[s].out = malloc((size_t)(count * shape->num_heads * shape->head_dim) * sizeof(float));
    }
    rig_run(r, parts, shape->num_seqs);
    rig_check(r, parts, shape->num_seqs, random);
    for (int32_t i = 0; i < shape->num_seqs; i++) free(parts[i].out);
    rig_free(r);
}

/* Lengths around a block and a tile, nothing cached, some cached, all but one cached. */
static void mixed_lengths(const char *isa)
{
    static const int32_t lengths[] = {17, 16, 15, 64, 65, 130, 33, 1, 1, 15, 16, 17, 63, 64, 65, 129};
    static const int32_t cached[] = {0, 0, 0, 0, 1, 100, 16, 0, 0, 14, 15, 16, 62, 63, 64, 128};
    static const int32_t dims[] = {64, 80, 96, 128, 256}, groups[] = {1, 3, 4, 8, 12, 20};
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_F32, DTYPE_I8};
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(dims); i++) {
        for (size_t j = i % 2; j < array_length(groups); j += 2) {
            int32_t num_kv_heads = groups[j] > 8 ? 1 : 1 + (int32_t)(j % 2);
            struct rig_shape shape =
                rig_shape_of(groups[j], num_kv_heads, dims[i], kv_of(dtypes[(i + j / 2) % 4]));
            shape.num_seqs = (int32_t)array_length(lengths);
            memcpy(shape.lengths, lengths, sizeof lengths);
            check_against_reference(isa, &shape, cached, &random);
        }
    }
}

/* Scores far above the cap, about it and far below. */
static void soft_caps(const char *isa)
{
    static const int32_t lengths[] = {130, 65, 17, 64, 300}, cached[] = {0, 30, 16, 63, 299};
    static const float caps[] = {0.3f, 5, 50, 5};
    static const int32_t head_dims[] = {64, 256, 128, 256};
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(caps); i++) {
        struct rig_shape shape = rig_shape_of(2, 2, head_dims[i],
                                              kv_of(i == 1   ? DTYPE_F32
                                                    : i >= 2 ? DTYPE_I8
                                                             : DTYPE_BF16));
        shape.softcap = caps[i];
        shape.num_seqs = (int32_t)array_length(lengths);
        memcpy(shape.lengths, lengths, sizeof lengths);
        check_against_reference(isa, &shape, cached, &random);
    }
}

static void test_soft_caps(void **state)
{
    (void)state;
    for_each_isa(soft_caps);
}

/* Sinks above, about and below the scores, with and without a window, in one split and in several. */
static void sinks(const char *isa)
{
    static const int32_t lengths[] = {130, 65, 1, 64, 700}, cached[] = {0, 30, 0, 63, 699};
    struct random random = {.seed = test_seed()};
    static const int32_t head_dims[] = {64, 128, 64, 64, 256};
    for (int i = 0; i < 5; i++) {
        bool has_codes = i == 2 || i == 3;
        struct rig_shape shape = rig_shape_of(3, 2, head_dims[i], has_codes ? DTYPE_F8_E4M3 : DTYPE_BF16);
        shape.has_sinks = true;
        shape.sliding_window = shape.other_window = i >= 3 ? 40 : 0;
        shape.num_seqs = (int32_t)array_length(lengths);
        memcpy(shape.lengths, lengths, sizeof lengths);
        check_against_reference(isa, &shape, cached, &random);
    }
}

static void test_sinks(void **state)
{
    (void)state;
    for_each_isa(sinks);
}

/* Scores that fall with the distance: of numbers of heads that are powers of 2 and of others, with and without groups, in one split and in
 * several. */
static struct rig_shape alibi_shape(int i)
{
    static const int32_t lengths[] = {130, 65, 1, 64, 700}, groups[] = {1, 3, 2, 1},
                         kv_heads[] = {8, 2, 6, 5}, head_dims[] = {64, 128, 96, 256};
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_BF16, DTYPE_F32, DTYPE_I8};
    struct rig_shape shape = rig_shape_of(groups[i], kv_heads[i], head_dims[i], kv_of(dtypes[i]));
    shape.alibi_most = i == 1 ? 16 : 8;
    shape.has_sinks = i == 2;
    shape.num_seqs = (int32_t)array_length(lengths);
    memcpy(shape.lengths, lengths, sizeof lengths);
    return shape;
}

static void alibi(const char *isa)
{
    static const int32_t cached[] = {0, 30, 0, 63, 699};
    struct random random = {.seed = test_seed()};
    for (int i = 0; i < 4; i++) {
        const struct rig_shape shape = alibi_shape(i);
        check_against_reference(isa, &shape, cached, &random);
    }
}

static void test_alibi(void **state)
{
    (void)state;
    for_each_isa(alibi);
}

/* Scores that gain something by the distance: the same shapes, distances to which the table goes and those behind it. */
static void distance_bias(const char *isa)
{
    static const int32_t cached[] = {0, 30, 0, 63, 699}, reaches[] = {128, 1, 20, 600};
    struct random random = {.seed = test_seed()};
    for (int i = 0; i < 4; i++) {
        struct rig_shape shape = alibi_shape(i);
        shape.alibi_most = 0;
        shape.distance_reach = reaches[i];
        check_against_reference(isa, &shape, cached, &random);
    }
}

static void test_distance_bias(void **state)
{
    (void)state;
    for_each_isa(distance_bias);
}

static void test_mixed_lengths(void **state)
{
    (void)state;
    for_each_isa(mixed_lengths);
}

static void sliding_windows(const char *isa)
{
    static const int32_t lengths[] = {300, 64, 5, 270, 600}, cached[] = {0, 32, 0, 269, 599},
                         windows[] = {1, 7, 16, 64, 100, 257};
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < num_head_dims() * array_length(windows); i++) {
        size_t k = i % array_length(windows);
        int32_t head_dim = gpu_head_dims[i / array_length(windows)];
        struct rig_shape shape =
            rig_shape_of(3, 1, head_dim, k % 2 && head_dim == 64 ? DTYPE_F8_E4M3 : DTYPE_BF16);
        shape.sliding_window = windows[k];
        shape.num_seqs = (int32_t)array_length(lengths);
        memcpy(shape.lengths, lengths, sizeof lengths);
        shape.has_groups = i % 2;
        check_against_reference(isa, &shape, cached, &random); /* the other layer sees all */
        shape.sliding_window = 0;
        shape.other_window = windows[k];
        shape.has_groups = !shape.has_groups;
        check_against_reference(isa, &shape, cached, &random);
    }
}

static void test_sliding_windows(void **state)
{
    (void)state;
    for_each_isa(sliding_windows);
}

/* One long sequence, several splits of it, among many short ones: as a prompt and in decoding. */
static void one_long(const char *isa)
{
    struct random random = {.seed = test_seed()};
    for (int decode = 0; decode < 2; decode++) {
        struct rig_shape shape = rig_shape_of(2, 2, 64, decode ? DTYPE_F8_E4M3 : DTYPE_BF16);
        int32_t cached[RIG_SEQS_MAX];
        shape.num_seqs = 20;
        for (int32_t s = 0; s < shape.num_seqs; s++) {
            shape.lengths[s] = 1 + random_below(&random, 20);
            cached[s] = shape.lengths[s] - 1;
        }
        int32_t which = decode ? random_below(&random, shape.num_seqs) : 0;
        shape.lengths[which] = 1000 + random_below(&random, 100);
        cached[which] = decode ? shape.lengths[which] - 1 : random_below(&random, 700);
        check_against_reference(isa, &shape, cached, &random);
    }
}

static void test_one_long_among_short(void **state)
{
    (void)state;
    for_each_isa(one_long);
}

/* Prompts whose keys a GPU cuts into pieces, of 8,192 or of 8,160 keys, at the cuts and behind them. A CPU has nothing like it. */
static void long_prompts(const char *isa)
{
    static const int32_t lengths[] = {16450, 8250, 8192, 25000, 40, 8193},
                         cached[] = {16300, 8150, 8100, 24936, 0, 8192},
                         windows[] = {0, 0, 300, 9000, 0, 300, 9000},
                         head_dims[] = {128, 64, 128, 64, 256, 256, 256};
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(windows); i++) {
        struct rig_shape shape = rig_shape_of(2, 1, head_dims[i], DTYPE_BF16);
        shape.sliding_window = windows[i];
        shape.has_groups = i == 3;
        shape.has_sinks = i == 1;
        shape.softcap = i == 4 ? 5 : 0;
        shape.num_seqs = (int32_t)array_length(lengths);
        memcpy(shape.lengths, lengths, sizeof lengths);
        check_against_reference(isa, &shape, cached, &random);
        shape.kv_dtype = DTYPE_F8_E4M3;
        check_against_reference(isa, &shape, cached, &random);
    }
}

static void test_long_prompts(void **state)
{
    (void)state;
    if (getenv("FLASHD_TEST_DEVICE")) for_each_isa(long_prompts);
}

static void long_decodes_of(const char *isa, int32_t num_seqs, int32_t num_kv_heads, struct random *random)
{
    struct rig_shape shape = rig_shape_of(3, num_kv_heads, 64, DTYPE_BF16);
    int32_t cached[RIG_SEQS_MAX];
    shape.num_seqs = num_seqs;
    for (int32_t s = 0; s < num_seqs; s++) {
        shape.lengths[s] = 500 + random_below(random, 800) + (num_seqs == 2 && s == 1 ? 9000 : 0);
        cached[s] = shape.lengths[s] - 1;
    }
    check_against_reference(isa, &shape, cached, random);
    shape.kv_dtype = DTYPE_F8_E4M3;
    check_against_reference(isa, &shape, cached, random);
}

/* A few long sequences decode together: each is split among threads, and each into its own place. A GPU cuts
 * those of many heads into fewer splits; for a CPU it would be the same again, at length. */
static void long_decodes(const char *isa)
{
    struct random random = {.seed = test_seed()};
    for (int32_t num_seqs = 1; num_seqs <= 4; num_seqs++) long_decodes_of(isa, num_seqs, 1, &random);
    if (!getenv("FLASHD_TEST_DEVICE")) return;
    long_decodes_of(isa, 2, 12, &random);
    long_decodes_of(isa, 2, 32, &random);
}

static void test_long_decodes(void **state)
{
    (void)state;
    for_each_isa(long_decodes);
}

/* ---- the same bits ---- */

#ifdef FLASHD_DEBUG
enum { BITS_LENGTH = 300 }; /* two splits: a sanitized build takes a minute more for three */
#else
enum { BITS_LENGTH = 600 }; /* three splits */
#endif

/* The whole first sequence in chunks of this many tokens; 0: all but the first token by decoding. neighbours:
 * the others run beside it, at their own pace. */
static void run_in_chunks(struct rig *r, int32_t chunk, bool neighbours, struct random *random, float *out)
{
    size_t out_row = (size_t)(r->shape.num_heads * r->shape.head_dim);
    int32_t length = r->shape.lengths[0], done[RIG_SEQS_MAX] = {0};
    float *unused = malloc(64 * out_row * sizeof *unused);
    while (done[0] < length) {
        struct rig_part parts[RIG_SEQS_MAX];
        int num_parts = 0;
        bool decode = chunk == 0 && done[0] > 0;
        int32_t count = chunk == 0 ? 1 : min_of(chunk, length - done[0]);
        struct rig_part mine = {0, done[0], count, decode, out + (size_t)done[0] * out_row};
        if (!decode) parts[num_parts++] = mine;
        for (int32_t s = 1; neighbours && s < r->shape.num_seqs; s++) {
            int32_t left = r->shape.lengths[s] - done[s], n = 1 + random_below(random, 40);
            if (left == 0) continue;
            n = min_of(n, left);
            parts[num_parts++] = (struct rig_part){s, done[s], n, false, unused};
            done[s] += n;
        }
        if (decode) parts[num_parts++] = mine;
        rig_run(r, parts, num_parts);
        done[0] += count;
    }
    free(unused);
}

static void same_bits_of(const char *isa, const struct rig_shape *shape)
{
    static const int32_t chunks[] = {BITS_LENGTH, 1, 16, 17, 64, 0};
    if (!is_wanted(shape)) return;
    struct random random = {.seed = test_seed()};
    size_t count = (size_t)shape->lengths[0] * (size_t)(shape->num_heads * shape->head_dim);
    float *first = malloc(count * sizeof *first), *other = malloc(count * sizeof *other);
    for (int num_threads = 1; num_threads <= 3; num_threads++) {
        random.counter = 0; /* the same data for every number of threads */
        struct rig *r = rig_new(isa, num_threads, shape, BITS_LENGTH + RIG_SEQS_MAX * 40, &random);
        if (!r) break;
        for (size_t i = 0; i < array_length(chunks); i++) {
            bool is_first = num_threads == 1 && i == 0;
            if (chunks[i] == 0 && !r->d->prefill_decode_equal) continue;
            if (num_threads > 1 && (i + (size_t)num_threads) % 2) continue; /* half of them, to save time */
            rig_shuffle_blocks(r, &random);
            run_in_chunks(r, chunks[i], !is_first && i % 2, &random, is_first ? first : other);
            if (is_first) continue;
            int64_t different = num_bits_different(first, other, count);
            if (different)
                fail_msg("%s: %lld of %zu bits patterns differ in chunks of %d", r->d->description,
                         (long long)different, count, chunks[i]);
        }
        rig_free(r);
    }
    free(first);
    free(other);
}

/* The end of a prompt that was run at once, in chunks: large steps walk all of its keys in one piece of work, small ones do not, and some
 * those of some rows. */
static void same_bits_of_long(const char *isa, const struct rig_shape *shape)
{
    if (!is_wanted(shape)) return;
    static const struct {
        int32_t first, chunk;
    } ways[] = {{0, 5000}, {8000, 1000}, {12000, 1152}, {13000, 1700}, {16100, 137}, {16400, 16}, {16440, 1}};
    struct random random = {.seed = test_seed()};
    int32_t length = shape->lengths[0];
    size_t out_row = (size_t)(shape->num_heads * shape->head_dim);
    struct rig *r = rig_new(isa, 1, shape, length, &random);
    if (!r) return;
    float *whole = malloc((size_t)length * out_row * sizeof *whole),
          *chunk = malloc(5000 * out_row * sizeof *chunk);
    rig_run(r, &(struct rig_part){.count = length, .out = whole}, 1);
    for (size_t i = 0; i < array_length(ways); i++)
        for (int32_t first = ways[i].first; first < length; first += ways[i].chunk) {
            int32_t count = min_of(ways[i].chunk, length - first);
            rig_run(r, &(struct rig_part){.first = first, .count = count, .out = chunk}, 1);
            int64_t different =
                num_bits_different(whole + (size_t)first * out_row, chunk, (size_t)count * out_row);
            if (different)
                fail_msg("%lld values differ at %d in chunks of %d", (long long)different, first,
                         ways[i].chunk);
        }
    free(whole);
    free(chunk);
    rig_free(r);
}

static void test_same_bits_of_long(void **state)
{
    (void)state;
    static const int32_t windows[] = {0, 9000};
    if (!getenv("FLASHD_TEST_DEVICE")) return;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < num_head_dims(); k++) {
            struct rig_shape shape = rig_shape_of(8, 2, gpu_head_dims[k], DTYPE_BF16);
            shape.sliding_window = windows[i];
            shape.num_seqs = 1;
            shape.lengths[0] = 16500;
            same_bits_of_long("auto", &shape);
            if (gpu_head_dims[k] == 256) continue;
            shape.kv_dtype = DTYPE_F8_E4M3;
            same_bits_of_long("auto", &shape);
        }
}

/* Rows of the first sequence from first on, one in each step (run 1) or so many, with rows of others before and behind them.
 * The rest of it is in the pool, and in its other blocks what was there before. */
static void run_decodes(struct rig *r, int32_t first, int32_t run, struct random *random, float *out)
{
    size_t out_row = (size_t)(r->shape.num_heads * r->shape.head_dim);
    float *unused = malloc(3 * out_row * sizeof *unused);
    rig_shuffle_blocks(r, random);
    for (int32_t s = 0; s < r->shape.num_seqs; s++)
        rig_run(r, &(struct rig_part){.seq = s, .count = s ? r->shape.lengths[s] - 1 : first}, 1);
    for (int32_t at = first; at < r->shape.lengths[0];) {
        struct rig_part parts[RIG_SEQS_MAX];
        int n = 0;
        int32_t end = min_of(at + run, r->shape.lengths[0]), last[3];
        for (int32_t s = 1; s < 4; s++) last[s - 1] = r->shape.lengths[s] - 1;
        if (run > 1) parts[n++] = (struct rig_part){1, last[0], 1, false, unused};
        if (run > 1) parts[n++] = (struct rig_part){2, last[1], 1, true, unused + out_row};
        for (; at < end; at++)
            parts[n++] = (struct rig_part){0, at, 1, true, out + (size_t)(at - first) * out_row};
        if (run > 1) parts[n++] = (struct rig_part){3, last[2], 1, true, unused + 2 * out_row};
        rig_run(r, parts, n);
    }
    free(unused);
}

static void decode_runs_of(const char *isa, const struct rig_shape *shape, int32_t first)
{
    if (!is_wanted(shape)) return;
    static const int32_t runs[] = {2, 17, 60};
    struct random random = {.seed = test_seed()};
    struct rig *r = rig_new(isa, 2, shape, shape->lengths[0], &random);
    size_t count = (size_t)(shape->lengths[0] - first) * (size_t)(shape->num_heads * shape->head_dim);
    if (!r) return;
    float *alone = malloc(count * sizeof *alone), *together = malloc(count * sizeof *together);
    run_decodes(r, first, 1, &random, alone);
    for (size_t i = 0; i < array_length(runs); i++) {
        run_decodes(r, first, runs[i], &random, together);
        int64_t different = num_bits_different(alone, together, count);
        if (different)
            fail_msg("%s: %lld of %zu bit patterns differ in runs of %d rows", r->d->description,
                     (long long)different, count, runs[i]);
    }
    free(alone);
    free(together);
    rig_free(r);
}

/* The last tokens of the first sequence in runs that go by turns through prefill and decode, in one step. */
enum { MIXED = 130, MIXED_RUNS = 5, MIXED_PARTS = 60 };

static int add_run(struct rig_part *parts, int n, int i, int32_t first, float *out, size_t out_row)
{
    static const int32_t ends[MIXED_RUNS] = {30, 53, 90, 117, MIXED};
    bool decodes = i % 2;
    for (int32_t at = i ? ends[i - 1] : 0, count; at < ends[i]; at += count) {
        count = decodes ? 1 : ends[i] - at;
        parts[n++] = (struct rig_part){0, first + at, count, decodes, out + (size_t)at * out_row};
    }
    return n;
}

static void mixed_runs_of(const char *isa, const struct rig_shape *shape)
{
    if (!is_wanted(shape)) return;
    struct random random = {.seed = test_seed()};
    struct rig *r = rig_new(isa, 2, shape, shape->lengths[0] + 50, &random);
    size_t out_row = (size_t)(shape->num_heads * shape->head_dim);
    int32_t first = shape->lengths[0] - MIXED, last = shape->lengths[3] - 1;
    if (!r) return;
    float *alone = malloc(MIXED * out_row * sizeof *alone), *mixed = malloc(MIXED * out_row * sizeof *mixed);
    float *unused = malloc((size_t)shape->lengths[2] * out_row * sizeof *unused);
    struct rig_part parts[MIXED_PARTS];
    for (int together = 0; together < 2; together++) {
        int n = 0;
        rig_shuffle_blocks(r, &random);
        rig_run(r, &(struct rig_part){.count = first}, 1);
        rig_run(r, &(struct rig_part){.seq = 3, .count = last}, 1);
        for (int i = 0; i < MIXED_RUNS && !together; i++) n = add_run(parts, n, i, first, alone, out_row);
        for (int i = 0; i < n; i++) rig_run(r, &parts[i], 1);
        if (!together) continue;
        parts[n++] = (struct rig_part){1, 0, shape->lengths[1], false, unused};
        for (int i = 0; i < MIXED_RUNS; i += 2) n = add_run(parts, n, i, first, mixed, out_row);
        parts[n++] = (struct rig_part){3, last, 1, true, unused};
        for (int i = 1; i < MIXED_RUNS; i += 2) n = add_run(parts, n, i, first, mixed, out_row);
        rig_run(r, parts, n);
    }
    int64_t different = num_bits_different(alone, mixed, MIXED * out_row);
    if (different) fail_msg("%s: %lld bit patterns differ", r->d->description, (long long)different);
    free(alone);
    free(mixed);
    free(unused);
    rig_free(r);
}

/* Rows of one sequence decode in one step as they do one step after the other: an answer is computed again so. */
static void decode_runs(const char *isa)
{
    static const int32_t windows[] = {0, 40, 0, 300, 0}, head_dims[] = {128, 64, 256, 128, 64};
    for (int i = 0; i < 5; i++) {
        struct rig_shape shape =
            rig_shape_of(i == 1 ? 3 : 4, 2, head_dims[i], i == 4 ? DTYPE_F8_E4M3 : DTYPE_BF16);
        shape.sliding_window = windows[i];
        shape.has_groups = i % 2;
        shape.has_sinks = i == 1;
        shape.num_seqs = 4;
        shape.lengths[0] = i == 3 ? 1500 : BITS_LENGTH;
        shape.lengths[1] = 33;
        shape.lengths[2] = 300;
        shape.lengths[3] = 16;
        decode_runs_of(isa, &shape, shape.lengths[0] - 130);
        mixed_runs_of(isa, &shape);
    }
}

static void test_decode_runs(void **state)
{
    (void)state;
    for_each_isa(decode_runs);
}

static void same_bits(const char *isa)
{
    static const enum dtype codes[] = {DTYPE_F8_E4M3, DTYPE_I8};
    struct rig_shape shape = rig_shape_of(3, 2, 64, DTYPE_BF16);
    shape.num_seqs = 4;
    shape.lengths[0] = BITS_LENGTH;
    shape.lengths[1] = 100;
    shape.lengths[2] = 400;
    shape.lengths[3] = 30;
    same_bits_of(isa, &shape);
    for (size_t i = 0; i < array_length(codes); i++) {
        if (kv_of(codes[i]) != codes[i]) continue;
        shape = rig_shape_of(2, 1, 64, codes[i]);
        shape.num_seqs = 2;
        shape.lengths[0] = 270;
        shape.lengths[1] = 60;
        same_bits_of(isa, &shape);
    }
    for (size_t i = 1; i < num_head_dims(); i++) {
        shape = rig_shape_of(2, 1, gpu_head_dims[i], DTYPE_BF16);
        shape.sliding_window = i == 1 ? 90 : 0;
        shape.num_seqs = 2;
        shape.lengths[0] = 330;
        shape.lengths[1] = 100;
        same_bits_of(isa, &shape);
    }
    shape = rig_shape_of(3, 2, 64, DTYPE_BF16);
    shape.alibi_most = 8;
    shape.num_seqs = 2;
    shape.lengths[0] = 330;
    shape.lengths[1] = 100;
    same_bits_of(isa, &shape);
    shape.alibi_most = 0;
    shape.distance_reach = 60;
    same_bits_of(isa, &shape);
    shape = rig_shape_of(4, 2, 80, kv_of(DTYPE_F32));
    shape.sliding_window = 150;
    shape.num_seqs = 2;
    shape.lengths[0] = 300;
    shape.lengths[1] = 100;
    same_bits_of(isa, &shape);
}

static void test_same_bits(void **state)
{
    (void)state;
    for_each_isa(same_bits);
}

/* The last token of each of some sequences, decoded alone and then, twice, among all the others. */
static void decodes_among_others_of(const char *isa, const struct rig_shape *shape, struct random *random)
{
    if (!is_wanted(shape)) return;
    struct rig *r = rig_new(isa, 2, shape, 1500, random);
    if (!r) return;
    size_t out_row = (size_t)(shape->num_heads * shape->head_dim), count = (size_t)shape->num_seqs * out_row;
    float *alone = malloc(count * sizeof *alone), *together = malloc(count * sizeof *together);
    struct rig_part parts[RIG_SEQS_MAX];
    for (int32_t s = 0; s < shape->num_seqs; s++) {
        struct rig_part before = {.seq = s, .count = shape->lengths[s] - 1};
        rig_run(r, &before, 1);
        parts[s] = (struct rig_part){s, shape->lengths[s] - 1, 1, true, alone + (size_t)s * out_row};
        rig_run(r, &parts[s], 1);
        parts[s].out = together + (size_t)s * out_row;
    }
    for (int i = 0; i < 2; i++) {
        rig_run(r, parts, shape->num_seqs);
        assert_int_equal(num_bits_different(alone, together, count), 0);
    }
    free(alone);
    free(together);
    rig_free(r);
}

/* The last shape has more items than a GPU has SMs. */
static void decodes_among_others(const char *isa)
{
    static const struct {
        int32_t num_seqs, num_kv_heads, head_dim;
    } shapes[] = {{24, 1, 64}, {24, 3, 128}, {48, 6, 64}};
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(shapes); i++) {
        int32_t group = 1 + random_below(&random, i == 2 ? 2 : 8);
        struct rig_shape shape = rig_shape_of(group, shapes[i].num_kv_heads, shapes[i].head_dim, DTYPE_BF16);
        shape.num_seqs = shapes[i].num_seqs;
        for (int32_t s = 0; s < shape.num_seqs; s++)
            shape.lengths[s] = 2 + random_below(&random, s % 8 == 0 ? 1500 : 200);
        decodes_among_others_of(isa, &shape, &random);
        shape.kv_dtype = DTYPE_F8_E4M3;
        decodes_among_others_of(isa, &shape, &random);
    }
}

static void test_decodes_among_others(void **state)
{
    (void)state;
    for_each_isa(decodes_among_others);
}

/* The first tokens of the first sequence, so many as a prompt, and the next one by decoding. */
static void run_and_decode(struct rig *r, int32_t length, float *out)
{
    size_t out_row = (size_t)(r->shape.num_heads * r->shape.head_dim);
    struct rig_part prompt = {.count = length, .out = out},
                    next = {0, length, 1, true, out + (size_t)length * out_row};
    rig_run(r, &prompt, 1);
    rig_run(r, &next, 1);
}

/* What another request left in a block's unused slots, a NaN even, must not reach this one. */
static void stale_blocks_of(const char *isa, int32_t head_dim, enum dtype kv_dtype)
{
    struct random random = {.seed = test_seed()};
    struct rig_shape shape = rig_shape_of(3, 1, head_dim, kv_dtype);
    if (!is_wanted(&shape)) return;
    shape.num_seqs = 2;
    shape.lengths[0] = shape.lengths[1] = 70;
    struct rig *r = rig_new(isa, 2, &shape, 70, &random);
    if (!r) return;
    size_t out_row = (size_t)(shape.num_heads * shape.head_dim);
    float *clean = malloc(70 * out_row * sizeof *clean), *dirty = malloc(70 * out_row * sizeof *dirty);
    for (size_t i = 0; i < 70 * r->row; i++) r->data[1][i] = NAN;
    for (int32_t length = 1; length < 70; length += 13) {
        struct rig_part poison = {.seq = 1, .count = 70};
        run_and_decode(r, length, clean);
        int32_t *blocks = r->blocks[1];
        r->blocks[1] = r->blocks[0];
        rig_run(r, &poison, 1);
        r->blocks[1] = blocks;
        run_and_decode(r, length, dirty);
        size_t count = (size_t)(length + 1) * out_row;
        assert_int_equal(num_bits_different(clean, dirty, count), 0);
        for (size_t i = 0; i < count; i++) assert_false(isnan(dirty[i]));
    }
    free(clean);
    free(dirty);
    rig_free(r);
}

static void stale_blocks(const char *isa)
{
    for (size_t i = 0; i < num_head_dims(); i++) stale_blocks_of(isa, gpu_head_dims[i], DTYPE_BF16);
    stale_blocks_of(isa, 64, DTYPE_F8_E4M3);
}

static void test_stale_blocks(void **state)
{
    (void)state;
    for_each_isa(stale_blocks);
}

/* Blocks that were saved to host memory and brought back, to others: the next token's bits stay. */
static void saved_blocks(const char *isa)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_F8_E4M3};
    enum { LENGTH = 100, BLOCKS = 7 };
    struct random random = {.seed = test_seed()};
    for (size_t i = 0; i < array_length(dtypes); i++) {
        struct rig_shape shape = rig_shape_of(3, 2, 64, dtypes[i]);
        shape.num_seqs = 2;
        shape.lengths[0] = shape.lengths[1] = LENGTH;
        shape.num_host_blocks = BLOCKS + 2;
        shape.other_window = 5; /* so that the other layer is written, too */
        if (!is_wanted(&shape)) continue;
        struct rig *r = rig_new(isa, 2, &shape, LENGTH, &random);
        if (!r) continue;
        int32_t host_ids[BLOCKS], *blocks = r->blocks[0];
        float out[2][6 * 64];
        struct rig_part prompt = {.count = LENGTH - 1},
                        next = {.first = LENGTH - 1, .count = 1, .decode = true, .out = out[0]};
        rig_run(r, &prompt, 1);
        rig_run(r, &next, 1);
        for (int32_t b = 0; b < BLOCKS; b++) host_ids[b] = (b * 5 + 1) % (BLOCKS + 2);
        assert_int_equal(r->d->ops->kv_blocks_save(r->d, r->pool, blocks, host_ids, BLOCKS), 0);
        assert_int_equal(r->d->ops->kv_blocks_load(r->d, r->pool, r->blocks[1], host_ids, BLOCKS), 0);
        r->blocks[0] = r->blocks[1];
        next.out = out[1];
        rig_run(r, &next, 1);
        assert_int_equal(num_bits_different(out[0], out[1], array_length(out[0])), 0);
        r->blocks[0] = blocks;
        rig_free(r);
    }
}

static void test_saved_blocks(void **state)
{
    (void)state;
    for_each_isa(saved_blocks);
}

int main(int argc, char **argv)
{
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mixed_lengths),     cmocka_unit_test(test_soft_caps),
        cmocka_unit_test(test_sliding_windows),   cmocka_unit_test(test_one_long_among_short),
        cmocka_unit_test(test_long_decodes),      cmocka_unit_test(test_long_prompts),
        cmocka_unit_test(test_same_bits),         cmocka_unit_test(test_decode_runs),
        cmocka_unit_test(test_same_bits_of_long), cmocka_unit_test(test_decodes_among_others),
        cmocka_unit_test(test_stale_blocks),      cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_saved_blocks),      cmocka_unit_test(test_alibi),
        cmocka_unit_test(test_distance_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
