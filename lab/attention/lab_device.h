/* lab_device.h - what runs the lab's own kernels: the CPU, or a GPU behind libflashd_lab.so.
 *
 * One problem at a time is on the device: load puts it there, run and count compute with it, fetch brings a row's results
 * back into the problem's tensors. Thread: one. */
#ifndef LAB_ATTENTION_LAB_DEVICE_H
#define LAB_ATTENTION_LAB_DEVICE_H

#include "lab/attention/algorithms.h"
#include "lab/attention/traffic.h"

struct lab_device {
    struct geometry geometries[NUM_LAB_ALGORITHMS];   /* element_bytes 0: it has no such row */
    double (*bytes_per_second)(struct lab_device *d); /* read from slow memory, measured now */
    int (*load)(struct lab_device *d, struct problem *p, struct error *err);
    /* The backward pass needs what the forward pass has left: LAB_FLASH2 has been run. seconds: of all times together. */
    int (*run)(struct lab_device *d, enum lab_id id, int times, double *seconds, struct error *err);
    int (*count)(struct lab_device *d, enum lab_id id, struct traffic *t, struct error *err);
    int (*fetch)(struct lab_device *d, enum lab_id id, struct error *err);
    void (*close)(struct lab_device *d);
};

/* Entries of the CPU, and of the shared object of the GPU. Released by its close. */
typedef int lab_device_open_function(struct lab_device **out, struct error *err);
lab_device_open_function lab_cpu_open;
#define LAB_CUDA_OPEN_SYMBOL "lab_cuda_open"

#endif
