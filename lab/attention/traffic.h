/* traffic.h - the border between slow memory and what lies on chip, and who counts at it.
 *
 * An algorithm of the lab reaches q, k, v, its results and its work in slow memory through load and store alone.
 * Everything else that it touches is on chip: a few tiles and some numbers a row. LAB_KERNEL compiles it twice, without
 * a counter and with one, so that what is timed counts nothing. Thread: none of its own. */
#ifndef LAB_ATTENTION_TRAFFIC_H
#define LAB_ATTENTION_TRAFFIC_H

#include <stdint.h>

struct traffic {
    uint64_t loaded, stored; /* bytes */
};

/* Elements at from, read now; NULL: nobody counts. */
static inline const float *load(struct traffic *t, const float *from, int64_t count)
{
    if (t) t->loaded += (uint64_t)count * sizeof *from;
    return from;
}

/* Elements at to, written now. */
static inline float *store(struct traffic *t, float *to, int64_t count)
{
    if (t) t->stored += (uint64_t)count * sizeof *to;
    return to;
}

struct problem;

/* An algorithm as a device runs it. rows, keys: its tile; what it keeps on chip is a function of them. */
struct lab_kernel {
    void (*run)(struct problem *p);
    void (*count)(struct problem *p, struct traffic *t);
};

/* static void NAME(struct problem *p, struct traffic *t) becomes lab_NAME. */
#define LAB_KERNEL(name)                                                                                     \
    __attribute__((flatten)) static void name##_run(struct problem *p)                                       \
    {                                                                                                        \
        name(p, NULL);                                                                                       \
    }                                                                                                        \
    __attribute__((flatten)) static void name##_count(struct problem *p, struct traffic *t)                  \
    {                                                                                                        \
        name(p, t);                                                                                          \
    }                                                                                                        \
    const struct lab_kernel lab_##name = {name##_run, name##_count}

#endif
