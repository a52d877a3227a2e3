/* lab_cpu.c - the lab's kernels on one thread of the CPU. Tensors stay where they are. */
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "lab/attention/chip.h"
#include "lab/attention/lab_device.h"

enum { READ_BYTES = 256 << 20, READ_ROUNDS = 3 };

extern const struct lab_kernel lab_standard, lab_online_softmax, lab_flash1, lab_flash2, lab_flash2_backward,
    lab_flash_mask, lab_flash_decoding, lab_flash_decoding_plus;

static const struct lab_kernel *const kernels[NUM_LAB_ALGORITHMS] = {
    [LAB_STANDARD] = &lab_standard,
    [LAB_ONLINE_SOFTMAX] = &lab_online_softmax,
    [LAB_FLASH1] = &lab_flash1,
    [LAB_FLASH2] = &lab_flash2,
    [LAB_FLASH2_BACKWARD] = &lab_flash2_backward,
    [LAB_FLASH_MASK] = &lab_flash_mask,
    [LAB_FLASH_DECODING] = &lab_flash_decoding,
    [LAB_FLASH_DECODING_PLUS] = &lab_flash_decoding_plus,
};

struct lab_cpu {
    struct lab_device base;
    struct problem *problem;
};

static struct lab_cpu *cpu_of(struct lab_device *d)
{
    return (struct lab_cpu *)d;
}

static int cpu_load(struct lab_device *d, struct problem *p, struct error *err)
{
    (void)err;
    cpu_of(d)->problem = p;
    return STATUS_OK;
}

static int cpu_run(struct lab_device *d, enum lab_id id, int times, double *seconds, struct error *err)
{
    (void)err;
    uint64_t begin = clock_monotonic_ns();
    for (int i = 0; i < times; i++) kernels[id]->run(cpu_of(d)->problem);
    *seconds = (double)(clock_monotonic_ns() - begin) * 1e-9;
    return STATUS_OK;
}

static int cpu_count(struct lab_device *d, enum lab_id id, struct traffic *t, struct error *err)
{
    (void)err;
    *t = (struct traffic){.loaded = 0};
    kernels[id]->count(cpu_of(d)->problem, t);
    return STATUS_OK;
}

static int cpu_fetch(struct lab_device *d, enum lab_id id, struct error *err)
{
    (void)d, (void)id, (void)err;
    return STATUS_OK;
}

static void cpu_close(struct lab_device *d)
{
    free(d);
}

/* Of memory far larger than the caches; the best of some rounds. */
static double cpu_bytes_per_second(struct lab_device *d)
{
    (void)d;
    uint64_t *words = malloc(READ_BYTES), sum = 0;
    double best = 0;
    if (!words) return 0;
    memset(words, 1, READ_BYTES);
    for (int round = 0; round < READ_ROUNDS; round++) {
        uint64_t begin = clock_monotonic_ns();
        for (size_t i = 0; i < READ_BYTES / sizeof *words; i++) sum += words[i];
        __asm__ volatile("" : "+r"(sum)); /* or nothing would be read */
        best = max_of(best, READ_BYTES * 1e9 / (double)(clock_monotonic_ns() - begin));
    }
    free(words);
    return best;
}

int lab_cpu_open(struct lab_device **out, struct error *err)
{
    struct lab_cpu *c = calloc(1, sizeof *c);
    if (!c) return error_set(err, STATUS_NO_MEMORY, "no memory for the lab");
    c->base = (struct lab_device){.load = cpu_load, .run = cpu_run, .count = cpu_count};
    c->base.fetch = cpu_fetch;
    c->base.close = cpu_close;
    c->base.bytes_per_second = cpu_bytes_per_second;
    for (int i = 0; i < NUM_LAB_ALGORITHMS; i++)
        if (kernels[i])
            c->base.geometries[i] = (struct geometry){sizeof(float), sizeof(float), TILE, SPLIT_KEYS};
    *out = &c->base;
    return STATUS_OK;
}
