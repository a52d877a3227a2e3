/* flat_products.c - see flat_products.h.
 *
 * Decoding multiplies few rows, one a sequence, by each matrix of weights. Tiles made for prompts pad 8 rows to 64 and
 * compute eight times as much as is asked for; a row at a time computes nothing in vain and reads the matrix as often as
 * there are rows. In between rows are padded to 8. Which one wins depends on the rows, the shape and the machine: so it is
 * timed once for each shape, and looked up afterwards.
 *
 * Source: Hong, Dai et al., "FlashDecoding++", 2023, sections 4 and 5. */
#include "lab/attention/flat_products.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rng.h"

enum { LANES = 8, COLUMNS = 4, TILE_ROWS = 64, SIZE = 1024, TRIES = 3 };

static void run_vector(const struct flat_product *p, struct traffic *t)
{
    for (int32_t i = 0; i < p->m; i++) {
        const float *x = load(t, p->x + (int64_t)i * p->k, p->k), *w = load(t, p->w, (int64_t)p->n * p->k);
        float *out = store(t, p->out + (int64_t)i * p->n, p->n);
        for (int32_t n = 0; n < p->n; n++, w += p->k) {
            float sums[LANES] = {0}, sum = 0;
            for (int32_t k = 0; k < p->k; k += LANES)
                for (int lane = 0; lane < LANES; lane++) sums[lane] += x[k + lane] * w[k + lane];
            for (int lane = 0; lane < LANES; lane++) sum += sums[lane];
            out[n] = sum;
        }
    }
}

/* Rows [first, first + count) as groups of LANES, each turned to [k][LANES]; what is beyond them is zero. */
static void turn_rows(const struct flat_product *p, int32_t first, int32_t count, int padded, float *turned,
                      struct traffic *t)
{
    const float *x = load(t, p->x + (int64_t)first * p->k, (int64_t)count * p->k);
    for (int i = 0; i < padded; i++) {
        float *to = turned + i / LANES * LANES * p->k + i % LANES;
        for (int32_t k = 0; k < p->k; k++) to[k * LANES] = i < count ? x[(int64_t)i * p->k + k] : 0.0f;
    }
}

/* sums of one group of rows and COLUMNS columns of out: enough that no addition waits for the one before it. */
static inline void multiply_group(float sums[COLUMNS][LANES], const float *turned, const float *w,
                                  int32_t k_size)
{
    memset(sums, 0, COLUMNS * sizeof sums[0]);
    for (int32_t k = 0; k < k_size; k++)
        for (int c = 0; c < COLUMNS; c++)
            for (int i = 0; i < LANES; i++) sums[c][i] += turned[k * LANES + i] * w[c * k_size + k];
}

static void run_padded(const struct flat_product *p, int padded, struct traffic *t)
{
    static float turned[SIZE * TILE_ROWS];
    assert_always(p->k <= SIZE && p->n % COLUMNS == 0);
    for (int32_t first = 0; first < p->m; first += padded) {
        int32_t count = min_of(p->m - first, padded);
        turn_rows(p, first, count, padded, turned, t);
        const float *w = load(t, p->w, (int64_t)p->n * p->k);
        float *out = store(t, p->out + (int64_t)first * p->n, (int64_t)count * p->n);
        for (int32_t n = 0; n < p->n; n += COLUMNS)
            for (int32_t group = 0; group < padded; group += LANES) {
                float sums[COLUMNS][LANES];
                multiply_group(sums, turned + group * p->k, w + (int64_t)n * p->k, p->k);
                for (int32_t i = group; i < min_of(count, group + LANES); i++)
                    for (int c = 0; c < COLUMNS; c++) out[(int64_t)i * p->n + n + c] = sums[c][i - group];
            }
    }
}

void flat_product_run(const struct flat_product *p, enum dataflow way, struct traffic *t)
{
    assert_always(p->k % LANES == 0);
    if (way == DATAFLOW_VECTOR) run_vector(p, t);
    if (way == DATAFLOW_FLAT) run_padded(p, LANES, t);
    if (way == DATAFLOW_TILES) run_padded(p, TILE_ROWS, t);
}

double flat_product_bytes(const struct flat_product *p, enum dataflow way)
{
    static const int32_t rows[] = {
        [DATAFLOW_VECTOR] = 1, [DATAFLOW_FLAT] = LANES, [DATAFLOW_TILES] = TILE_ROWS};
    double m = p->m, n = p->n, k = p->k;
    return sizeof(float) * (m * k + m * n + (double)div_up(p->m, rows[way]) * n * k);
}

static double seconds_of(const struct flat_product *p, enum dataflow way)
{
    double best = 1e9;
    for (int i = 0; i < TRIES; i++) {
        uint64_t begin = clock_monotonic_ns();
        flat_product_run(p, way, NULL);
        best = min_of(best, (double)(clock_monotonic_ns() - begin) * 1e-9);
    }
    return best;
}

static void print_table(struct flat_product *p, FILE *out)
{
    static const char *const names[] = {"a row at a time", "8 rows", "64 rows"};
    fprintf(out, "FlashDecoding++, products of few rows by %d x %d, ms\n  %5s %16s %9s %9s   %s\n", p->n,
            p->k, "rows", names[0], names[1], names[2], "dataflow");
    for (p->m = 1; p->m <= TILE_ROWS; p->m *= 2) {
        double seconds[NUM_DATAFLOWS];
        int best = 0;
        for (int way = 0; way < NUM_DATAFLOWS; way++) {
            seconds[way] = seconds_of(p, (enum dataflow)way);
            if (seconds[way] < seconds[best]) best = way;
        }
        fprintf(out, "  %5d %16.3f %9.3f %9.3f   %s\n", p->m, seconds[0] * 1e3, seconds[1] * 1e3,
                seconds[2] * 1e3, names[best]);
    }
}

int flat_products_print(FILE *out, struct error *err)
{
    int64_t weights = (int64_t)SIZE * SIZE, rows = (int64_t)TILE_ROWS * SIZE;
    float *memory = malloc((size_t)(weights + 2 * rows) * sizeof *memory);
    if (!memory) return error_set(err, STATUS_NO_MEMORY, "no memory for products of few rows");
    for (int64_t i = 0; i < weights + rows; i++) memory[i] = rng_uniform(1, (uint64_t)i, 0) - 0.5f;
    struct flat_product p = {
        .n = SIZE, .k = SIZE, .w = memory, .x = memory + weights, .out = memory + weights + rows};
    print_table(&p, out);
    free(memory);
    return STATUS_OK;
}
