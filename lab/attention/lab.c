#include "lab/attention/lab.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kernels/device.h"
#include "lab/attention/flat_products.h"
#include "lab/attention/reference.h"

enum { TRIES = 3, TIMES_MAX = 10000, NUM_SIZES = 4, DOCUMENTS = 4, SEED = 1 };

static const double SECONDS = 0.02; /* of each try of a timing */

/* ---- devices ---- */

static int open_cuda(struct lab_device **out, struct error *err)
{
    lab_device_open_function *open_function;
    void *library = device_load_library("libflashd_lab.so", err); /* stays until the process ends */
    if (!library) return STATUS_UNSUPPORTED;
    *(void **)&open_function = dlsym(library, LAB_CUDA_OPEN_SYMBOL);
    if (!open_function)
        return error_set(err, STATUS_UNSUPPORTED, "the lab's CUDA kernels are not of this version");
    return open_function(out, err);
}

int lab_open(struct lab *lab, const char *device, int32_t num_heads, int32_t head_dim, int32_t num_tokens_max,
             struct error *err)
{
    *lab = (struct lab){.num_heads = num_heads, .head_dim = head_dim};
    int status = strcmp(device, "cpu") ? open_cuda(&lab->own, err) : lab_cpu_open(&lab->own, err);
    if (!status) status = server_rows_open(device, num_heads, head_dim, num_tokens_max, &lab->server, err);
    if (status) lab_close(lab);
    return status;
}

int lab_measure_roof(struct lab *lab, struct error *err)
{
    lab->bytes_per_second = lab->own->bytes_per_second(lab->own);
    return server_rows_measure_products(lab->server, &lab->flops_per_second, err);
}

void lab_close(struct lab *lab)
{
    if (lab->own) lab->own->close(lab->own); /* before the server's, which resets a GPU */
    if (lab->server) server_rows_close(lab->server);
}

bool lab_has(const struct lab *lab, enum lab_id id)
{
    return algorithm_is_servers(id) || lab->own->geometries[id].element_bytes > 0;
}

struct geometry lab_geometry(const struct lab *lab, enum lab_id id)
{
    return algorithm_is_servers(id) ? server_rows_geometry(lab->server) : lab->own->geometries[id];
}

/* ---- one row ---- */

static int load_row(struct lab *lab, enum lab_id id, struct problem *p, struct error *err)
{
    double unused;
    if (algorithm_is_servers(id)) return server_rows_load(lab->server, p, err);
    int status = lab->own->load(lab->own, p, err);
    if (!status && (lab_algorithms[id].supports & LAB_BACKWARD))
        status = lab->own->run(lab->own, LAB_FLASH2, 1, &unused, err);
    return status;
}

static int run_row(struct lab *lab, enum lab_id id, struct problem *p, int times, double *seconds,
                   struct error *err)
{
    return algorithm_is_servers(id) ? server_rows_run(lab->server, p, times, seconds, err)
                                    : lab->own->run(lab->own, id, times, seconds, err);
}

static int fetch_row(struct lab *lab, enum lab_id id, struct problem *p, struct error *err)
{
    return algorithm_is_servers(id) ? server_rows_fetch(lab->server, p, err)
                                    : lab->own->fetch(lab->own, id, err);
}

/* The best of some tries, each of as many runs as take about so many seconds. */
static int measure_time(struct lab *lab, enum lab_id id, struct problem *p, double seconds, double *best,
                        struct error *err)
{
    double once, all;
    int status = run_row(lab, id, p, 1, &once, err);
    int times = (int)fmin(fmax(seconds / once, 1), TIMES_MAX);
    *best = once;
    for (int i = 0; i < TRIES && !status; i++) {
        status = run_row(lab, id, p, times, &all, err);
        *best = fmin(*best, all / times);
    }
    return status;
}

static int check_row(struct lab *lab, enum lab_id id, struct problem *p, double *error, struct error *err)
{
    bool backward = lab_algorithms[id].supports & LAB_BACKWARD;
    struct reference r;
    int status = fetch_row(lab, id, p, err);
    if (!status) status = reference_init(&r, p, 0, backward, err);
    if (status) return status;
    *error = backward ? reference_backward_error(&r, p, 0) : reference_forward_error(&r, p, 0);
    reference_free(&r);
    return STATUS_OK;
}

int lab_measure(struct lab *lab, enum lab_id id, struct problem *p, bool check, double seconds,
                struct measurement *m, struct error *err)
{
    struct geometry g = lab_geometry(lab, id);
    struct traffic t = {.loaded = 0};
    *m = (struct measurement){.id = id, .shape = p->shape, .counted = NAN, .error = NAN};
    m->flops = algorithm_flops(&lab_algorithms[id], p);
    m->formula = lab_algorithms[id].bytes(p, &g);
    int status = load_row(lab, id, p, err);
    if (!status) status = run_row(lab, id, p, 1, &m->seconds, err);
    if (!status && check) status = check_row(lab, id, p, &m->error, err);
    if (!status && !algorithm_is_servers(id)) {
        status = lab->own->count(lab->own, id, &t, err);
        m->counted = (double)(t.loaded + t.stored);
    }
    if (!status && seconds > 0) status = measure_time(lab, id, p, seconds, &m->seconds, err);
    return status;
}

double lab_tolerance(const struct lab *lab, enum lab_id id)
{
    return lab_geometry(lab, id).element_bytes == 2 ? 0x1p-6 : 2e-5;
}

double lab_roof(const struct lab *lab, double flops, double bytes)
{
    return fmin(lab->flops_per_second, lab->bytes_per_second * flops / bytes);
}

/* ---- the table ---- */

static double bytes_of(const struct measurement *m)
{
    return isnan(m->counted) ? m->formula : m->counted;
}

static void print_row(const struct lab *lab, const struct measurement *m, FILE *out)
{
    double rate = m->flops / m->seconds;
    char counted[32] = "-", error[32] = "";
    if (!isnan(m->counted)) snprintf(counted, sizeof counted, "%.2f", m->counted / 1e6);
    if (!isnan(m->error)) snprintf(error, sizeof error, "%.1e", m->error);
    fprintf(out, "  %-26s %7d %10.3f %9.1f %10s %10.2f %8.1f %6.1f  %s\n", lab_algorithms[m->id].title,
            m->shape.num_keys, m->seconds * 1e3, rate / 1e9, counted, m->formula / 1e6,
            m->flops / bytes_of(m), 100 * rate / lab_roof(lab, m->flops, bytes_of(m)), error);
}

static void print_head(const struct lab *lab, FILE *out)
{
    fprintf(out,
            "Attention on %s, %d heads of %d, prompts causal (FlashMask: %d documents)\n"
            "roof: %.1f GFLOP/s (the server's matrix products), %.1f GB/s (reading)\n\n"
            "  %-26s %7s %10s %9s %10s %10s %8s %6s  %s\n",
            server_rows_description(lab->server), lab->num_heads, lab->head_dim, (int)DOCUMENTS,
            lab->flops_per_second / 1e9, lab->bytes_per_second / 1e9, "", "N", "ms", "GFLOP/s", "MB",
            "formula", "FLOP/B", "% roof", "error");
}

/* ---- everything ---- */

static struct shape shape_of(const struct lab *lab, enum lab_id id, int32_t n)
{
    struct shape s = {lab->num_heads, n, n, lab->head_dim, MASK_CAUSAL, 0};
    if (id == LAB_FLASH_MASK || id == LAB_DEVICE_DOCUMENTS) s.mask = MASK_DOCUMENTS;
    s.document = max_of(n / DOCUMENTS, 1);
    if (lab_algorithms[id].supports & LAB_DECODING) {
        s.num_queries = 1;
        s.mask = MASK_NONE;
    }
    return s;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->num_keys == b->num_keys && a->num_queries == b->num_queries && a->mask == b->mask;
}

/* p: the problem of the row before, which is replaced where the shape is another one. */
static int measure_one(struct lab *lab, enum lab_id id, int32_t n, bool check, struct problem *p,
                       struct measurement *m, struct error *err)
{
    struct shape shape = shape_of(lab, id, n);
    int status = STATUS_OK;
    if (!p->memory || !same_shape(&p->shape, &shape)) {
        problem_free(p);
        status = problem_init(p, &shape, SEED, err);
    }
    if (!status) status = lab_measure(lab, id, p, check, SECONDS, m, err);
    if (!status && check && !(m->error <= lab_tolerance(lab, id)))
        status = error_set(err, STATUS_DEVICE, "%s is wrong: off by %g of the largest result",
                           lab_algorithms[id].title, m->error);
    return status;
}

/* A picture's file, there before anything is measured. */
struct plot {
    const char *path;
    FILE *file; /* NULL: none */
};

static int fail_plot(const struct plot *plot, struct error *err)
{
    return error_set(err, STATUS_IO, "--plot %s: %s", plot->path, strerror(errno));
}

static int open_plot(const char *path, struct plot *plot, struct error *err)
{
    *plot = (struct plot){path, path ? fopen(path, "w") : NULL};
    return path && !plot->file ? fail_plot(plot, err) : STATUS_OK;
}

static int write_plot(const struct lab *lab, const struct plot *plot, const struct measurement *m, int count,
                      struct error *err)
{
    lab_plot(lab, m, count, plot->file);
    bool written = fflush(plot->file) == 0 && !ferror(plot->file);
    return written ? STATUS_OK : fail_plot(plot, err);
}

static int by_algorithm(const void *a, const void *b)
{
    const struct measurement *x = a, *y = b;
    return x->id != y->id ? (int)x->id - (int)y->id : x->shape.num_keys - y->shape.num_keys;
}

static int run_all(struct lab *lab, int32_t longest, const struct plot *plot, FILE *out, struct error *err)
{
    struct measurement m[NUM_LAB_ALGORITHMS * NUM_SIZES];
    struct problem p = {.memory = NULL};
    int count = 0, status = STATUS_OK;
    print_head(lab, out);
    for (int i = 0; i < NUM_SIZES && !status; i++) {
        for (enum lab_id id = 0; id < NUM_LAB_ALGORITHMS && !status; id++) {
            if (!lab_has(lab, id)) continue;
            status = measure_one(lab, id, longest >> (NUM_SIZES - 1 - i), i == 0, &p, &m[count], err);
            if (!status) print_row(lab, &m[count++], out);
        }
        fprintf(out, "\n");
        fflush(out);
    }
    problem_free(&p);
    qsort(m, (size_t)count, sizeof *m, by_algorithm);
    if (!status && plot->file) status = write_plot(lab, plot, m, count, err);
    return status;
}

int lab_run(const struct lab_options *o, FILE *out, struct error *err)
{
    bool gpu = !strcmp(o->device, "cuda");
    int32_t longest = o->longest ? (int32_t)o->longest : gpu ? 4096 : 2048;
    int32_t heads = o->heads ? (int32_t)o->heads : gpu ? 64 : 2;
    struct lab lab;
    struct plot plot;
    int status = lab_open(&lab, o->device, heads, gpu ? 128 : 64, longest, err);
    if (status) return status;
    status = open_plot(o->plot, &plot, err);
    if (!status) status = lab_measure_roof(&lab, err);
    if (!status) status = run_all(&lab, longest, &plot, out, err);
    if (!status && !gpu) status = flat_products_print(out, err);
    if (plot.file) fclose(plot.file);
    lab_close(&lab);
    return status;
}
