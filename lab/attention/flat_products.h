/* flat_products.h - the other half of FlashDecoding++: products of few rows, three ways to compute them, and the table
 * that says which one is the fastest for a shape. Thread: any. */
#ifndef LAB_ATTENTION_FLAT_PRODUCTS_H
#define LAB_ATTENTION_FLAT_PRODUCTS_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "lab/attention/traffic.h"

/* out[m][n] = x[m][k] w[n][k]^T. */
struct flat_product {
    int32_t m, n, k;
    const float *x, *w;
    float *out;
};

enum dataflow {
    DATAFLOW_VECTOR, /* the paper's ImplA: a row of x at a time; w is read m times */
    DATAFLOW_FLAT,   /* ImplB: rows in groups of 8, padded to that; w is read once for each group */
    DATAFLOW_TILES,  /* ImplC: rows in tiles of 64, padded to that, as large products are computed */
    NUM_DATAFLOWS
};

void flat_product_run(const struct flat_product *p, enum dataflow way, struct traffic *t);

/* Bytes by the formula: w as often as it passes by, x and out once. */
double flat_product_bytes(const struct flat_product *p, enum dataflow way);

/* The paper's table of dataflows for one shape: each number of rows, what each way takes, which one is chosen. */
int flat_products_print(FILE *out, struct error *err) must_check;

#endif
