/* lab.h - `flashd bench attention`: every algorithm of the family, timed, counted, checked, and set beside the roof.
 *
 * Thread: one. */
#ifndef LAB_ATTENTION_LAB_H
#define LAB_ATTENTION_LAB_H

#include <stdio.h>

#include "lab/attention/algorithms.h"
#include "lab/attention/lab_device.h"
#include "lab/attention/server_rows.h"

enum { LAB_SIZES_MAX = 12 };

/* An algorithm over N tokens. */
struct measurement {
    enum lab_id id;
    struct shape shape;
    double seconds, flops;   /* of one run; what the problem takes at least */
    double counted, formula; /* bytes; counted NAN: nobody counts in the server's kernels */
    double error; /* against double precision, of the largest result; NAN: not checked at this size */
};

/* A device of both kinds, and its roof: 0 until it is measured. */
struct lab {
    struct lab_device *own;
    struct server_rows *server;
    int32_t num_heads, head_dim;
    double bytes_per_second, flops_per_second;
};

int lab_open(struct lab *lab, const char *device, int32_t num_heads, int32_t head_dim, int32_t num_tokens_max,
             struct error *err) must_check;
void lab_close(struct lab *lab);
int lab_measure_roof(struct lab *lab, struct error *err) must_check;

bool lab_has(const struct lab *lab, enum lab_id id);
/* What the device has chosen for it. */
struct geometry lab_geometry(const struct lab *lab, enum lab_id id);

/* check: against the reference, too, in head 0. p has the shape; seconds above 0 are spent on timing. */
int lab_measure(struct lab *lab, enum lab_id id, struct problem *p, bool check, double seconds,
                struct measurement *m, struct error *err) must_check;

/* The largest error that a row may have and be right, by its elements. */
double lab_tolerance(const struct lab *lab, enum lab_id id);

/* Of the attainable: products' rate, or bytes' rate times operations a byte where that is less. */
double lab_roof(const struct lab *lab, double flops, double bytes);

/* A picture: time and bytes over N, and the roofline with each algorithm at its largest N. Measurements of an algorithm
 * are neighbours, by N. */
void lab_plot(const struct lab *lab, const struct measurement *m, int count, FILE *out);

struct lab_options {
    const char *device, *plot; /* plot NULL: none */
    int64_t longest, heads;    /* N from an eighth of it to it; 0: the device's */
};

/* Prints the table. An error when some row is wrong, too. */
int lab_run(const struct lab_options *o, FILE *out, struct error *err) must_check;

#endif
