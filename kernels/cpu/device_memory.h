/* device_memory.h - the CPU device's memory: allocations that live until the device is closed.
 * Thread: the one that uses the device. */
#ifndef KERNELS_CPU_DEVICE_MEMORY_H
#define KERNELS_CPU_DEVICE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct device_memory {
    void **allocations;
    int num_allocations;
};

/* Zeroed, aligned to 256; pages cost nothing until they are written. NULL when there is no room. */
void *device_memory_alloc(struct device_memory *m, size_t bytes);
/* count elements, also NULL when the size overflows. */
void *device_memory_alloc_array(struct device_memory *m, uint64_t count, uint64_t element_bytes);
void device_memory_free_all(struct device_memory *m);

#endif
