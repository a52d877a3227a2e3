/* linear_memory.h - memory for packed weights, from regions of huge pages that many weights share.
 *
 * A decode step reads every weight once, front to back, and most weights of a small model are smaller than a
 * huge page; with 4 KiB pages the same loop reads 14 % slower (kernels/notebook/cpu_linear.md). Regions are taken from the
 * system as needed, filled from the bottom, and returned when the last weight in them is freed; a model's
 * weights come and go together.
 *
 * Thread: any; one mutex. */
#ifndef KERNELS_CPU_LINEAR_MEMORY_H
#define KERNELS_CPU_LINEAR_MEMORY_H

#include <stddef.h>

/* Aligned to 64. NULL when there is no memory. */
void *linear_memory_alloc(size_t bytes);
void linear_memory_free(void *memory); /* NULL is fine */

#endif
