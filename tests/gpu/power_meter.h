/* power_meter.h - what a run on the GPU draws: energy, power and clock, by NVML, which comes with the driver and is looked up when
 * it is first asked for.
 *
 * The counter of energy moves every 20 to 100 ms, so a run should take a second or more. The card is CUDA's device 0 where
 * nothing hides others; one thread. Source: NVML API reference, nvmlDeviceGetTotalEnergyConsumption. */
#ifndef TESTS_GPU_POWER_METER_H
#define TESTS_GPU_POWER_METER_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { NVML_CLOCK_SM = 1 };

struct power_meter {
    void *device;
    int (*energy)(void *device, unsigned long long *millijoules);
    int (*limit)(void *device, unsigned *milliwatts);
    int (*clock)(void *device, int type, unsigned *megahertz);
    double clock_sum;
    int num_clocks;
};

/* False where there is no NVML, or where the card has no counter of its energy: said on standard error. */
static bool power_meter_open(struct power_meter *m)
{
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    memset(m, 0, sizeof *m);
    if (nvml) {
        int (*init)(void) = (int (*)(void))dlsym(nvml, "nvmlInit_v2");
        int (*by_index)(unsigned, void **) =
            (int (*)(unsigned, void **))dlsym(nvml, "nvmlDeviceGetHandleByIndex_v2");
        m->energy = (int (*)(void *, unsigned long long *))dlsym(nvml, "nvmlDeviceGetTotalEnergyConsumption");
        m->limit = (int (*)(void *, unsigned *))dlsym(nvml, "nvmlDeviceGetEnforcedPowerLimit");
        m->clock = (int (*)(void *, int, unsigned *))dlsym(nvml, "nvmlDeviceGetClockInfo");
        unsigned long long millijoules;
        if (init && by_index && m->energy && m->limit && m->clock && !init() && !by_index(0, &m->device) &&
            !m->energy(m->device, &millijoules))
            return true;
    }
    fprintf(stderr, "no meter of the card's energy\n");
    return false;
}

/* Joules since some beginning. */
static double power_meter_joules(const struct power_meter *m)
{
    unsigned long long millijoules = 0;
    m->energy(m->device, &millijoules);
    return (double)millijoules / 1e3;
}

/* Watts that the card may draw. */
static double power_meter_limit(const struct power_meter *m)
{
    unsigned milliwatts = 0;
    m->limit(m->device, &milliwatts);
    return milliwatts / 1e3;
}

/* Looks at the clock; power_meter_clock is the mean of all looks since it was last asked, in MHz. */
static void power_meter_look(struct power_meter *m)
{
    unsigned megahertz = 0;
    m->clock(m->device, NVML_CLOCK_SM, &megahertz);
    m->clock_sum += megahertz;
    m->num_clocks++;
}

static double power_meter_clock(struct power_meter *m)
{
    double mean = m->num_clocks ? m->clock_sum / m->num_clocks : 0;
    m->clock_sum = m->num_clocks = 0;
    return mean;
}

#endif
