/* server_rows.h - the server's own attention as rows of the lab, entered through the kernel table that serves requests:
 * FlashAttention-2 (on a Hopper GPU FlashAttention-3) for prompts, Flash-Decoding for decoding, over its paged K/V.
 *
 * A device is opened for one number of heads and one head_dim. What it reads and writes is not counted. Thread: one. */
#ifndef LAB_ATTENTION_SERVER_ROWS_H
#define LAB_ATTENTION_SERVER_ROWS_H

#include "lab/attention/algorithms.h"

struct server_rows;

/* device: "cpu" (one thread) or "cuda". */
int server_rows_open(const char *device, int32_t num_heads, int32_t head_dim, int32_t num_tokens_max,
                     struct server_rows **out, struct error *err) must_check;
void server_rows_close(struct server_rows *r);

const char *server_rows_description(const struct server_rows *r);
struct geometry server_rows_geometry(const struct server_rows *r);

/* Writes the problem's keys and values into the pool, the others as run will want them. */
int server_rows_load(struct server_rows *r, const struct problem *p, struct error *err) must_check;
/* All queries of the problem, times over; seconds of all together. */
int server_rows_run(struct server_rows *r, const struct problem *p, int times, double *seconds,
                    struct error *err) must_check;
/* The outputs of the last run. */
int server_rows_fetch(struct server_rows *r, struct problem *p, struct error *err) must_check;

/* Floating-point operations a second of the server's matrix products: the roof over its attention. */
int server_rows_measure_products(struct server_rows *r, double *flops_per_second,
                                 struct error *err) must_check;

#endif
