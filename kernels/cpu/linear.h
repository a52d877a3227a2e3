/* linear.h - y = x W^T + bias on the CPU, over weights that stay packed.
 *
 * cpu_linear_create repacks a weight once into panels (panel.h) and picks, for each part, the kernel
 * of the instruction set and the dtype (linear_kernels.h). cpu_linear_run packs the activations once
 * into scratch, for all threads, and then shares the panels out among the threads. cpu_linear_argmax does the
 * same for greedy decoding, where of a row of logits only the place of the highest is wanted.
 *
 * The same bits: an output element is a function of its weight row, its activation row, N and K. Every
 * kernel walks K in one fixed order, whatever the number of rows; threads split N only.
 *
 * Thread: one at a time may create or run on a given pool; the pool's threads do the work. */
#ifndef KERNELS_CPU_LINEAR_H
#define KERNELS_CPU_LINEAR_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/cpu/argmax.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"

/* Takes the weight in; the views may go afterwards. On failure *out is NULL. */
int cpu_linear_create(const struct linear_desc *desc, enum cpu_isa_level isa, struct thread_pool *pool,
                      struct linear **out, struct error *err) must_check;
void cpu_linear_destroy(struct linear *l); /* NULL is fine */

/* Of its results, which are logits (linear_desc); 0: none. */
float cpu_linear_softcap(const struct linear *l);

/* Memory that l holds. */
uint64_t cpu_linear_bytes(const struct linear *l);

/* Scratch that cpu_linear_run needs for at most max_rows rows of at most max_k columns. */
size_t cpu_linear_scratch_bytes(int32_t max_rows, int32_t max_k);

/* out[num_rows][N] = x[num_rows][K] W^T + bias; LINEAR_GATE_UP: out[num_rows][N/2] = f(gate) * up.
 * scratch is aligned to 64; x, out and scratch do not overlap. A row of x that holds NaN or an infinity makes
 * its own row of out NaN or infinite, and no other. */
void cpu_linear_run(const struct linear *l, struct thread_pool *pool, void *scratch, int32_t num_rows,
                    const float *x, float *out);

/* The same with what adapters add (lora.h). */
struct lora_rows;
void cpu_linear_run_lora(const struct linear *l, struct thread_pool *pool, void *scratch, int32_t num_rows,
                         const float *x, float *out, const struct lora_rows *lora);

/* cols[row] = the column of the highest result of each row, the lowest of equal ones; -1 for a row with a NaN
 * or a +infinity, or with nothing but -infinity. The same results, which go nowhere. LINEAR_PLAIN of one part
 * only. shares: [threads of pool][num_rows], aligned to 64. forbidden: columns that count as -infinity unless they
 * spoil the row, a bit_set; NULL: none. */
void cpu_linear_argmax(const struct linear *l, struct thread_pool *pool, void *scratch, struct argmax *shares,
                       int32_t num_rows, const float *x, const uint64_t *forbidden, int32_t *cols);

/* out[K] = row of the stacked weight, exactly as dtype_row_to_f32 has it. */
void cpu_linear_embed_row(const struct linear *l, int32_t row, float *out);
int32_t cpu_linear_num_rows(const struct linear *l); /* of all parts */
int32_t cpu_linear_num_cols(const struct linear *l);

/* Of a set: gate[i] = f(gate[i]) * up[i]. */
void cpu_gate_mul(enum cpu_isa_level level, enum gate_function gate, int count, float *gates,
                  const float *ups);

#endif
