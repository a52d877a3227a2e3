/* bench_ceilings.c - what this machine allows at best, for the figures of bench_model.
 *
 *   bench_ceilings MODEL [THREADS]
 *
 * Measured: bytes read a second, and multiply-adds a second of the widest int8 and f32 instructions here
 * (int8: vpdpbusd where there is VNNI, else vpmaddubsw and an addition of words), on that many threads at
 * once. A step takes no less than its weights and K/V over the first, and its products over the second:
 * quantised weights at the int8 rate, others and attention at the f32 rate. Prints one line of JSON: the
 * rates, and tokens per second at that limit. */
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "kernels/cpu/isa.h"
#include "model/model_files.h"

enum { THREADS_MAX = 64, CHAINS = 12, ROUNDS = 2000000, READ_BYTES = 256 << 20, READ_ROUNDS = 4 };

struct worker {
    double (*work)(struct worker *);
    const uint8_t *data;
    uint64_t num_bytes;
    float sink;
    double done; /* bytes, or multiply-adds */
};

#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define TARGET_VNNI __attribute__((target("avx512f,avx512bw,avx512vnni")))
#define TARGET_AVX2 __attribute__((target("avx2,fma")))

/* CHAINS independent sums in registers; `step` adds to one of them. */
#define RUN_CHAINS(type, zero, step, macs_a_step)                                                            \
    type sums[CHAINS];                                                                                       \
    for (int c = 0; c < CHAINS; c++) sums[c] = (zero);                                                       \
    for (int i = 0; i < ROUNDS; i++)                                                                         \
        for (int c = 0; c < CHAINS; c++) {                                                                   \
            __asm__ volatile("" : "+v"(a)); /* or the compiler would multiply once */                        \
            sums[c] = (step);                                                                                \
        }                                                                                                    \
    memcpy(&w->sink, &sums[CHAINS - 1], sizeof(float));                                                      \
    for (int c = 0; c < CHAINS; c++) __asm__ volatile("" : "+v"(sums[c]));                                   \
    return (double)ROUNDS * CHAINS * (macs_a_step)

TARGET_VNNI static double int8_vnni(struct worker *w)
{
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    RUN_CHAINS(__m512i, _mm512_setzero_si512(), _mm512_dpbusd_epi32(sums[c], a, b), 64);
}

TARGET_AVX512 static double int8_avx512(struct worker *w)
{
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
    RUN_CHAINS(__m512i, _mm512_setzero_si512(), _mm512_add_epi16(sums[c], _mm512_maddubs_epi16(a, b)), 64);
}

TARGET_AVX2 static double int8_avx2(struct worker *w)
{
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(5);
    RUN_CHAINS(__m256i, _mm256_setzero_si256(), _mm256_add_epi16(sums[c], _mm256_maddubs_epi16(a, b)), 32);
}

TARGET_AVX512 static double f32_avx512(struct worker *w)
{
    __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
    RUN_CHAINS(__m512, a, _mm512_fmadd_ps(sums[c], a, b), 16);
}

TARGET_AVX2 static double f32_avx2(struct worker *w)
{
    __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
    RUN_CHAINS(__m256, a, _mm256_fmadd_ps(sums[c], a, b), 8);
}

static double scalar(struct worker *w)
{
    float a = 0.5f;
    RUN_CHAINS(float, a, sums[c] * a + 0.25f, 1);
}

static double read_all(struct worker *w)
{
    uint64_t sums[8] = {0};
    const uint64_t *words = (const uint64_t *)w->data;
    for (int round = 0; round < READ_ROUNDS; round++)
        for (uint64_t i = 0; i < w->num_bytes / 8; i += 8) {
            __builtin_prefetch(words + i + 512);
            for (int k = 0; k < 8; k++) sums[k] += words[i + (uint64_t)k];
        }
    for (int k = 1; k < 8; k++) sums[0] += sums[k];
    w->sink = (float)sums[0];
    return (double)w->num_bytes * READ_ROUNDS;
}

static void *run_worker(void *argument)
{
    struct worker *w = argument;
    w->done = w->work(w);
    return NULL;
}

/* What all threads together do a second: the best of three tries. */
static double rate(double (*work)(struct worker *), int num_threads, const uint8_t *data)
{
    double best = 0;
    for (int attempt = 0; attempt < 3; attempt++) {
        pthread_t threads[THREADS_MAX];
        struct worker workers[THREADS_MAX];
        uint64_t part_bytes = (uint64_t)READ_BYTES / (uint64_t)num_threads / 64 * 64;
        uint64_t begin_ns = clock_monotonic_ns();
        for (int i = 0; i < num_threads; i++) {
            workers[i] = (struct worker){work, data + (uint64_t)i * part_bytes, part_bytes, 0, 0};
            if (pthread_create(&threads[i], NULL, run_worker, &workers[i])) abort();
        }
        double done = 0;
        for (int i = 0; i < num_threads; i++) {
            pthread_join(threads[i], NULL);
            done += workers[i].done;
        }
        best = max_of(best, done * 1e9 / (double)(clock_monotonic_ns() - begin_ns));
    }
    return best;
}

/* What a token costs: products by the rate they run at, weights read once a step. */
struct cost {
    double int8_macs, f32_macs, head_int8_macs, head_f32_macs, bytes;
};

static void add_weight(struct cost *cost, struct weight_view v, bool head)
{
    if (!v.data) return;
    bool quantised = v.dtype != DTYPE_F32 && v.dtype != DTYPE_F16 && v.dtype != DTYPE_BF16;
    double macs = (double)v.rows * (double)v.cols;
    double *sum = head        ? quantised ? &cost->head_int8_macs : &cost->head_f32_macs
                  : quantised ? &cost->int8_macs
                              : &cost->f32_macs;
    *sum += macs;
    cost->bytes += (double)v.rows * (double)dtype_row_bytes(v.dtype, (uint64_t)v.cols);
}

static struct cost cost_of(const struct model_files *files)
{
    static const enum weight_role roles[] = {WEIGHT_Q,    WEIGHT_K,  WEIGHT_V,   WEIGHT_O,
                                             WEIGHT_GATE, WEIGHT_UP, WEIGHT_DOWN};
    struct cost cost = {0};
    for (int32_t layer = 0; layer < model_files_config(files)->num_layers; layer++)
        for (size_t i = 0; i < array_length(roles); i++)
            add_weight(&cost, model_files_weight(files, roles[i], layer), false);
    add_weight(&cost, model_files_weight(files, WEIGHT_LM_HEAD, 0), true);
    return cost;
}

struct machine {
    double bytes, int8, f32; /* a second */
};

/* Tokens a second of steps with num_tokens tokens, num_logits of them through the head, at that mean context.
 */
static double limit(const struct model_config *c, struct cost cost, struct machine m, double num_tokens,
                    double num_logits, double num_seqs, double context)
{
    double attention = 2.0 * c->num_heads * c->head_dim * c->num_layers * context * num_tokens;
    double products = (num_tokens * cost.int8_macs + num_logits * cost.head_int8_macs) / m.int8 +
                      (num_tokens * cost.f32_macs + num_logits * cost.head_f32_macs + attention) / m.f32;
    double bytes = cost.bytes + num_seqs * context * (double)model_config_kv_bytes_per_token(c, DTYPE_BF16);
    return num_tokens / max_of(products, bytes / m.bytes);
}

static struct machine measure(int num_threads)
{
    uint8_t *data = malloc(READ_BYTES);
    if (!data) exit(1);
    memset(data, 1, READ_BYTES);
    enum cpu_isa_level isa = cpu_isa_detect();
    double (*int8)(struct worker *) = isa >= CPU_ISA_AVX512_VNNI ? int8_vnni
                                      : isa == CPU_ISA_AVX512    ? int8_avx512
                                      : isa >= CPU_ISA_AVX2      ? int8_avx2
                                                                 : scalar;
    double (*f32)(struct worker *) = isa >= CPU_ISA_AVX512 ? f32_avx512
                                     : isa >= CPU_ISA_AVX2 ? f32_avx2
                                                           : scalar;
    struct machine m = {rate(read_all, num_threads, data), rate(int8, num_threads, data),
                        rate(f32, num_threads, data)};
    free(data);
    return m;
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    int num_threads = argc > 2 ? min_of(max_of(atoi(argv[2]), 1), (int)THREADS_MAX) : 2;
    struct model_files *files;
    struct error err = {0};
    if (model_files_open(argv[1], "auto", &files, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const struct model_config *c = model_files_config(files);
    struct cost cost = cost_of(files);
    struct machine m = measure(num_threads);
    printf("{\"read_gb_s\": %.1f, \"int8_gmac_s\": %.1f, \"f32_gmac_s\": %.1f, ", m.bytes / 1e9, m.int8 / 1e9,
           m.f32 / 1e9);
    printf("\"prefill_512\": %.1f, ", limit(c, cost, m, 512, 1, 1, 256));
    printf("\"decode_1_at_16\": %.1f, ", limit(c, cost, m, 1, 1, 1, 40));
    printf("\"decode_1_at_512\": %.1f, ", limit(c, cost, m, 1, 1, 1, 536));
    printf("\"decode_8\": %.1f, ", limit(c, cost, m, 8, 8, 8, 40));
    printf("\"decode_32\": %.1f}\n", limit(c, cost, m, 32, 32, 32, 40));
    model_files_close(files);
    return 0;
}
