/* machine_probe.h - what this machine can do at most, measured in a second: the roof over what a model can reach here. */
#ifndef CLI_MACHINE_PROBE_H
#define CLI_MACHINE_PROBE_H

#include "config/config.h"
#include "model/model_files.h"

struct machine {
    char description[160]; /* of the device */
    double
        flops_per_second; /* in products of many rows with the largest matrix of the model's first layer, as it is stored */
    double bytes_per_second; /* read from the device's memory; 0: not known */
};

/* The device is the one that config names, and closed again. */
int machine_probe(const struct config *config, const struct model_files *files, struct machine *out,
                  struct error *err) must_check;

#endif
