/* energy_meter.h - what the device has used, off the counters that its hardware keeps.
 *
 *   a CPU   the kernel's powercap folder (RAPL): its packages and the memory beside them
 *   a GPU   NVML's counter of the whole board
 *
 * Both count everything that runs there, not this process alone. Counters that begin anew are followed, as long as
 * they do so once at most between two readings. Thread: one at a time. */
#ifndef ENGINE_ENERGY_METER_H
#define ENGINE_ENERGY_METER_H

#include <stdint.h>

#include "base/status.h"

struct energy_meter;

/* folder: /sys/class/powercap, or what stands in its place. */
int energy_meter_open_cpu(const char *folder, struct energy_meter **out, struct error *err) must_check;
/* Of num of them, from the driver's ordinal cuda_device on; CUDA is in use in this process. */
int energy_meter_open_gpus(int cuda_device, int num, struct energy_meter **out, struct error *err) must_check;
void energy_meter_close(struct energy_meter *m); /* NULL is fine */

/* Microjoules since it was opened; what cannot be read any more adds nothing. */
uint64_t energy_meter_read_uj(struct energy_meter *m);

#endif
