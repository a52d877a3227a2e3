/* bench_linear.c - times the CPU's matrix products: not a test, prints figures.
 *
 *   bench_linear [isa [threads]]             the products of SmolLM2-135M Q4_1, one whole forward pass
 *   bench_linear isa threads DTYPE N K       one shape, as many copies as exceed the caches
 *
 * Per number of rows: milliseconds, GFLOP/s and GB/s of packed weights; minima over repetitions, since other
 * programs only ever add time. With one thread the time is the processor's, which a busy machine disturbs
 * less. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/check.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/row_kernels.h"
#include "tests/kernels/random_weight.h"

enum { MAX_ROWS = 512, MAX_LINEARS = 512 };

struct bench {
    struct thread_pool *pool;
    enum cpu_isa_level isa;
    struct random_source random;
    int num_linears;
    struct linear *linears[MAX_LINEARS];
    double values, bytes;
    int max_n, max_k;
    double load_s;
};

static clockid_t the_clock = CLOCK_MONOTONIC;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(the_clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(int status, const struct error *err)
{
    if (!status) return;
    fprintf(stderr, "%s\n", err->text);
    exit(1);
}

static void add_linear(struct bench *b, enum linear_kind kind, enum dtype dtype, int num_parts,
                       const int *rows, int cols)
{
    struct linear_desc desc = {.kind = kind, .num_parts = num_parts};
    const uint64_t row_bytes = dtype_row_bytes(dtype, (uint64_t)cols);
    struct error err;
    int n = 0;
    for (int i = 0; i < num_parts; i++) {
        uint8_t *data = malloc((size_t)rows[i] * row_bytes);
        random_weight(&b->random, dtype, rows[i], cols, data);
        desc.parts[i] = weight_view_plain(data, dtype, rows[i], cols);
        n += rows[i];
    }
    const double start_s = now_s();
    must(cpu_linear_create(&desc, b->isa, b->pool, &b->linears[b->num_linears], &err), &err);
    b->load_s += now_s() - start_s;
    b->values += (double)n * cols;
    b->bytes += (double)cpu_linear_bytes(b->linears[b->num_linears++]);
    b->max_n = max_of(b->max_n, n);
    b->max_k = max_of(b->max_k, cols);
    for (int i = 0; i < num_parts; i++) free((void *)(uintptr_t)desc.parts[i].data);
}

static void add_smollm2(struct bench *b)
{
    for (int layer = 0; layer < 30; layer++) {
        add_linear(b, LINEAR_PLAIN, DTYPE_Q4_1, 3, (int[]){576, 192, 192}, 576);
        add_linear(b, LINEAR_PLAIN, DTYPE_Q4_1, 1, (int[]){576}, 576);
        add_linear(b, LINEAR_GATE_UP, DTYPE_Q4_1, 2, (int[]){1536, 1536}, 576);
        add_linear(b, LINEAR_PLAIN, DTYPE_Q4_1, 1, (int[]){576}, 1536);
    }
}

static enum dtype parse_dtype(const char *text)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (!strcmp(dtype_infos[i].text, text)) return i;
    fprintf(stderr, "unknown dtype %s\n", text);
    exit(1);
}

/* What follows the products of a greedy step: the token of each row, by the way of writing the logits. */
static void choose_tokens(const struct bench *b, int rows, const float *logits, int32_t *ids)
{
    const struct row_kernels *const k = cpu_isa_kernels(b->isa)->rows;
    for (int r = 0; r < rows; r++) {
        bool has_nan;
        const float max = k->max(logits + (int64_t)r * b->max_n, b->max_n, &has_nan);
        k->gather(logits + (int64_t)r * b->max_n, b->max_n, max, &ids[r], 1);
    }
}

/* The head and the choice of the highest logit, written first or not; b holds one linear. */
static void measure_greedy(struct bench *b)
{
    const int rows_list[] = {1, 8, 32};
    enum { ROWS = 32 };
    const size_t num_threads = (size_t)thread_pool_num_threads(b->pool);
    float *x = aligned_alloc(64, align_up(ROWS * (size_t)b->max_k * sizeof *x, 64));
    float *logits = aligned_alloc(64, align_up(ROWS * (size_t)b->max_n * sizeof *logits, 64));
    struct argmax *shares = aligned_alloc(64, ROWS * num_threads * sizeof *shares);
    void *scratch = aligned_alloc(64, align_up(cpu_linear_scratch_bytes(ROWS, b->max_k), 64));
    for (int i = 0; i < ROWS * b->max_k; i++) x[i] = random_normal(&b->random);
    for (size_t i = 0; i < array_length(rows_list); i++) {
        double best_s[2] = {1e9, 1e9};
        for (int repeat = 0; repeat < 60; repeat++) {
            int32_t ids[ROWS];
            const double start_s = now_s();
            if (repeat % 2) {
                cpu_linear_argmax(b->linears[0], b->pool, scratch, shares, rows_list[i], x, NULL, ids);
            } else {
                cpu_linear_run(b->linears[0], b->pool, scratch, rows_list[i], x, logits);
                choose_tokens(b, rows_list[i], logits, ids);
            }
            best_s[repeat % 2] = min_of(best_s[repeat % 2], now_s() - start_s);
        }
        printf("  greedy, %2d rows: %.3f ms with logits, %.3f ms without\n", rows_list[i], best_s[0] * 1e3,
               best_s[1] * 1e3);
    }
    free(x);
    free(logits);
    free(shares);
    free(scratch);
}

static void measure(struct bench *b, const char *what)
{
    const int rows_list[] = {1, 2, 4, 8, 16, 32, 64, 512};
    float *x = aligned_alloc(64, align_up((size_t)MAX_ROWS * (size_t)b->max_k * sizeof *x, 64));
    float *out = aligned_alloc(64, align_up((size_t)MAX_ROWS * (size_t)b->max_n * sizeof *out, 64));
    void *scratch = aligned_alloc(64, align_up(cpu_linear_scratch_bytes(MAX_ROWS, b->max_k), 64));
    for (int i = 0; i < MAX_ROWS * b->max_k; i++) x[i] = random_normal(&b->random);
    memset(out, 0, (size_t)MAX_ROWS * (size_t)b->max_n * sizeof *out);
    printf("%s: %.1f MB packed in %.0f ms, %s, %d threads\n", what, b->bytes / 1e6, b->load_s * 1e3,
           cpu_isa_text(b->isa), thread_pool_num_threads(b->pool));
    for (size_t i = 0; i < array_length(rows_list); i++) {
        const int rows = rows_list[i];
        double best_s = 1e9, total_s = 0;
        for (int repeat = 0; repeat < 3 || (total_s < 0.6 && repeat < 200); repeat++) {
            const double start_s = now_s();
            for (int n = 0; n < b->num_linears; n++)
                cpu_linear_run(b->linears[n], b->pool, scratch, rows, x, out);
            const double s = now_s() - start_s;
            best_s = min_of(best_s, s);
            total_s += s;
        }
        printf("  %4d rows  %9.3f ms  %8.1f GFLOP/s  %7.2f GB/s  %9.1f rows/s\n", rows, best_s * 1e3,
               2e-9 * b->values * rows / best_s, 1e-9 * b->bytes / best_s, rows / best_s);
    }
    free(x);
    free(out);
    free(scratch);
}

static void clear(struct bench *b)
{
    for (int i = 0; i < b->num_linears; i++) cpu_linear_destroy(b->linears[i]);
    b->num_linears = 0;
    b->values = b->bytes = b->load_s = 0;
    b->max_n = b->max_k = 0;
}

int main(int argc, char **argv)
{
    static struct bench b;
    struct error err;
    must(cpu_isa_parse(argc > 1 ? argv[1] : "auto", &b.isa, &err), &err);
    must(thread_pool_create(argc > 2 ? atoi(argv[2]) : 0, &b.pool, &err), &err);
    b.random = random_source_new();
    if (thread_pool_num_threads(b.pool) == 1) the_clock = CLOCK_THREAD_CPUTIME_ID;
    if (argc > 5) {
        const enum dtype dtype = parse_dtype(argv[3]);
        const int n = atoi(argv[4]), k = atoi(argv[5]);
        const double bytes = (double)n * (double)dtype_row_bytes(dtype, (uint64_t)k);
        const int copies = (int)min_of(1 + 100e6 / bytes, (double)MAX_LINEARS);
        for (int i = 0; i < copies; i++) add_linear(&b, LINEAR_PLAIN, dtype, 1, (int[]){n}, k);
        measure(&b, argv[3]);
    } else {
        add_smollm2(&b);
        measure(&b, "SmolLM2 layers, Q4_1");
        clear(&b);
        add_linear(&b, LINEAR_PLAIN, DTYPE_Q8_0, 1, (int[]){49152}, 576);
        measure(&b, "SmolLM2 head, Q8_0");
        measure_greedy(&b);
    }
    clear(&b);
    thread_pool_destroy(b.pool);
}
