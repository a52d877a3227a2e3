/* thread_place.h - which CPU each thread of a pool stays on.
 *
 * A pool with as many threads as there are physical cores in the affinity mask, or more, leaves nothing to
 * choose: then its threads are pinned, to distinct cores first and to the cores' other hardware threads
 * after, so that no two ever wait for one CPU while another idles. A smaller pool, or one whose control group
 * grants less than the mask, shares the machine with others that pins would not know of (two servers of four
 * threads would sit on the same four cores): its threads are the kernel's to place. Thread: any. */
#ifndef KERNELS_CPU_THREAD_PLACE_H
#define KERNELS_CPU_THREAD_PLACE_H

#include <sched.h>
#include <stdbool.h>

/* Fills cpus[num_threads]; false: no thread is to be pinned. granted: CPUs that the control group grants, 0:
 * all. topology: as /sys/devices/system/cpu; a CPU that is not described there counts as a core. */
bool thread_place_choose(const cpu_set_t *mask, const char *topology, int granted, int num_threads,
                         int *cpus);

/* The calling thread stays on that CPU from now on. Quietly does nothing where that is not allowed. */
void thread_place_pin(int cpu);
/* The calling thread may run on all of mask again. */
void thread_place_unpin(const cpu_set_t *mask);

#endif
