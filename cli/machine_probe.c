#include "cli/machine_probe.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/thread_limit.h"
#include "kernels/device.h"
#include "lab/attention/lab.h"
#include "model/unpacked.h"

enum {
    ROWS_CPU = 256,
    ROWS_GPU = 2048,
    CALLS_MAX = 64,
    TRIES = 8,
    READ_BYTES = 256 << 20, /* far more than caches hold */
    THREADS_MAX = 256,
};

static const double CALL_FLOPS = 5e8; /* of the calls of a try: less would measure a step's beginning */

/* ---- reading ---- */

struct reader {
    pthread_t thread;
    const uint64_t *words;
    size_t count;
    uint64_t sum; /* or nothing would be read */
};

static void *read_words(void *context)
{
    struct reader *r = context;
    uint64_t sum = 0;
    for (size_t i = 0; i < r->count; i++) sum += r->words[i];
    r->sum = sum;
    return NULL;
}

static double read_once(const uint64_t *words, int num_threads)
{
    static struct reader readers[THREADS_MAX];
    size_t count = READ_BYTES / sizeof *words / (size_t)num_threads;
    int started = 0;
    uint64_t begin = clock_monotonic_ns();
    for (; started < num_threads; started++) {
        readers[started] = (struct reader){.words = words + (size_t)started * count, .count = count};
        if (pthread_create(&readers[started].thread, NULL, read_words, &readers[started])) break;
    }
    for (int i = 0; i < started; i++) pthread_join(readers[i].thread, NULL);
    double seconds = (double)(clock_monotonic_ns() - begin) * 1e-9;
    return (double)started * (double)count * sizeof *words / seconds;
}

static double cpu_bytes_per_second(int num_threads)
{
    double best = 0;
    uint64_t *words = malloc(READ_BYTES);
    if (!words) return 0;
    memset(words, 1, READ_BYTES);
    for (int i = 0; i < TRIES; i++)
        best = max_of(best, read_once(words, min_of(num_threads, (int)THREADS_MAX)));
    free(words);
    return best;
}

/* By the lab's kernels, where they are installed. */
static double gpu_bytes_per_second(void)
{
    struct lab lab;
    struct error err;
    if (lab_open(&lab, "cuda", 8, 128, ROWS_GPU, &err)) return 0;
    double rate = lab.own->bytes_per_second(lab.own);
    lab_close(&lab);
    return rate;
}

/* ---- products ---- */

/* Of the first layer that has one. */
static struct weight_view largest_matrix(const struct model_files *f)
{
    static const enum weight_role roles[] = {WEIGHT_Q,    WEIGHT_O,  WEIGHT_DELTA_QKV, WEIGHT_DELTA_QKVZ,
                                             WEIGHT_GATE, WEIGHT_UP, WEIGHT_DOWN};
    struct weight_view best = {0};
    for (int32_t layer = 0; layer < model_files_config(f)->num_layers && !best.data; layer++)
        for (size_t i = 0; i < array_length(roles); i++) {
            struct weight_view v = model_files_weight(f, roles[i], layer);
            if (v.data && weight_view_num_rows(&v) * v.cols > weight_view_num_rows(&best) * best.cols)
                best = v;
        }
    return best;
}

struct probe {
    struct device *d;
    int32_t rows;
    struct linear *product;
    double flops; /* of one call */
    void *x, *out;
    int32_t *zeros, *places; /* [rows]: 0 each; 0, 1, 2, ... */
};

/* One prompt; nothing of it but its number of rows matters to a product. */
static double seconds_of_calls(struct probe *p, int calls, struct error *err)
{
    const int32_t cu_seqlens[2] = {0, p->rows};
    const struct sample_params sample = {0};
    const struct step step = {.num_tokens = p->rows,
                              .num_seqs = 1,
                              .num_prefill_tokens = p->rows,
                              .num_prefill_seqs = 1,
                              .block_table_stride = (int32_t)div_up(p->rows, BLOCK_SIZE),
                              .token_ids = p->zeros,
                              .positions = p->places,
                              .slot_mapping = p->places,
                              .cu_seqlens_q = cu_seqlens,
                              .seqlens_k = &p->rows,
                              .block_tables = p->places,
                              .logit_rows = p->zeros,
                              .sample = &sample};
    uint64_t begin = clock_monotonic_ns();
    struct batch *b = p->d->ops->step_begin(p->d, &step);
    for (int i = 0; i < calls; i++) p->d->ops->linear(p->d, b, ROWS_TOKENS, p->out, p->x, p->product);
    if (p->d->ops->step_end(p->d, NULL, err)) return 0;
    return (double)(clock_monotonic_ns() - begin) * 1e-9;
}

static int fill_input(struct probe *p, int32_t cols)
{
    float *row = malloc((size_t)max_of(cols, 1) * sizeof *row);
    int status = row ? STATUS_OK : STATUS_NO_MEMORY;
    for (int32_t k = 0; k < cols && !status; k++)
        row[k] = (float)((uint32_t)k * 2654435761u >> 16) / 65536.0f - 0.5f; /* a GPU is faster with zeros */
    for (int32_t i = 0; i < p->rows && !status; i++) {
        char *to = (char *)p->x + (size_t)i * (size_t)cols * (size_t)p->d->act_bytes;
        status = p->d->ops->write_f32(p->d, to, row, (size_t)cols, false);
    }
    free(row);
    return status;
}

/* The product of w, in the form in which the device takes it. */
static int create_product(struct probe *p, const struct model_config *c, struct weight_view w,
                          struct error *err)
{
    struct device *d = p->d;
    struct unpacked unpacked = {0};
    struct linear_desc desc = {.num_parts = 1, .quantise_input = c->quantisation.wants_quantised_activations};
    int status = STATUS_OK;
    while (!status && unpacked_is_needed(&w, d->has_rare_dtypes))
        status = unpacked_make(&unpacked, &w, true, err);
    desc.parts[0] = w;
    if (!status) status = d->ops->linear_create(d, &desc, &p->product, err);
    if (!status) status = d->ops->weights_done(d, err);
    unpacked_clear(&unpacked);
    return status;
}

static int prepare(struct probe *p, const struct model_config *c, struct weight_view w, struct error *err)
{
    struct device *d = p->d;
    int32_t num_out = (int32_t)weight_view_num_rows(&w), widest = max_of(num_out, (int32_t)w.cols);
    const struct step_limits limits = {.num_tokens = p->rows,
                                       .num_seqs = 1,
                                       .num_logits = 1,
                                       .num_batch_slots = 1,
                                       .max_model_len = p->rows,
                                       .num_steps_in_flight = 1};
    const struct attention_args attention = {.num_heads = c->num_heads,
                                             .num_kv_heads = c->num_kv_heads,
                                             .head_dim = c->head_dim,
                                             .scale = c->attention_scale};
    int status = d->ops->prepare(d, &limits, 32, widest, widest, &attention, 1, err);
    if (!status) status = create_product(p, c, w, err);
    if (status) return status;
    p->flops = 2.0 * p->rows * num_out * (double)w.cols;
    p->zeros = calloc((size_t)p->rows, sizeof *p->zeros);
    p->places = calloc((size_t)p->rows, sizeof *p->places);
    p->x = d->ops->alloc(d, (size_t)p->rows * (size_t)w.cols * (size_t)d->act_bytes, "the probe's input");
    p->out = d->ops->alloc(d, (size_t)p->rows * (size_t)num_out * (size_t)d->act_bytes, "the probe's output");
    if (!p->zeros || !p->places || !p->x || !p->out || fill_input(p, (int32_t)w.cols))
        return error_set(err, STATUS_NO_MEMORY, "no memory for a product of %d rows", p->rows);
    for (int32_t i = 0; i < p->rows; i++) p->places[i] = i;
    return STATUS_OK;
}

static int measure_products(struct probe *p, double *flops_per_second, struct error *err)
{
    int calls = (int)min_of(max_of(CALL_FLOPS / p->flops, 1.0), (double)CALLS_MAX);
    for (int i = 0; i < TRIES; i++) {
        double seconds = seconds_of_calls(p, calls, err);
        if (seconds == 0) return STATUS_DEVICE;
        *flops_per_second = max_of(*flops_per_second, calls * p->flops / seconds);
    }
    return STATUS_OK;
}

static int probe_device(struct device *d, const struct model_files *files, struct machine *out,
                        struct error *err)
{
    struct probe p = {.d = d, .rows = d->is_gpu ? ROWS_GPU : ROWS_CPU};
    snprintf(out->description, sizeof out->description, "%s (%s)", d->name, d->description);
    int status = prepare(&p, model_files_config(files), largest_matrix(files), err);
    if (!status) status = measure_products(&p, &out->flops_per_second, err);
    free(p.zeros);
    free(p.places);
    return status;
}

/* Measured on one of several GPUs, which do as much each; what they give each other takes time that no roof knows of. */
static void share_out(struct machine *m, int num)
{
    char one[sizeof m->description];
    if (num < 2) return;
    memcpy(one, m->description, sizeof one);
    snprintf(m->description, sizeof m->description, "%d times %.100s", num, one);
    m->flops_per_second *= num;
    m->bytes_per_second *= num;
}

int machine_probe(const struct config *config, const struct model_files *files, struct machine *out,
                  struct error *err)
{
    const struct device_options options = {.cpu_isa = config->cpu_isa,
                                           .num_threads = (int)config->threads,
                                           .cuda_device = (int)config->cuda_device,
                                           .cuda_portable = strcmp(config->cuda_path, "portable") == 0};
    struct device *d;
    *out = (struct machine){.flops_per_second = 0};
    int status = device_open(config->device, &options, &d, err);
    if (status) return status;
    bool is_gpu = d->is_gpu;
    status = probe_device(d, files, out, err);
    d->ops->close(d);
    if (status) return status;
    int num_threads = config->threads ? (int)config->threads : thread_limit_usable();
    out->bytes_per_second = is_gpu ? gpu_bytes_per_second() : cpu_bytes_per_second(num_threads);
    if (is_gpu) share_out(out, (int)config->tensor_parallel_size);
    return STATUS_OK;
}
