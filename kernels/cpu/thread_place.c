#include "kernels/cpu/thread_place.h"

#include <limits.h>
#include <stdio.h>

/* A physical core is known by the first of its hardware threads; the file reads "0,4" or "0-1". */
static int core_of(const char *topology, int cpu)
{
    char path[PATH_MAX];
    int first = cpu;
    snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", topology, cpu);
    FILE *f = fopen(path, "re");
    if (!f) return cpu;
    if (fscanf(f, "%d", &first) != 1 || first < 0 || first >= CPU_SETSIZE) first = cpu;
    fclose(f);
    return first;
}

/* The mask's CPUs: one of each core, then the second ones, and so on; returns the number of cores. */
static int order_by_core(const cpu_set_t *mask, const char *topology, int order[CPU_SETSIZE])
{
    int core[CPU_SETSIZE], num = 0, num_cores = 0;
    cpu_set_t left = *mask;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) core[cpu] = CPU_ISSET(cpu, mask) ? core_of(topology, cpu) : 0;
    while (CPU_COUNT(&left) > 0) {
        cpu_set_t taken;
        CPU_ZERO(&taken);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (!CPU_ISSET(cpu, &left) || CPU_ISSET(core[cpu], &taken)) continue;
            CPU_SET(core[cpu], &taken);
            CPU_CLR(cpu, &left);
            order[num++] = cpu;
        }
        if (num_cores == 0) num_cores = num;
    }
    return num_cores;
}

bool thread_place_choose(const cpu_set_t *mask, const char *topology, int granted, int num_threads, int *cpus)
{
    const int num_cpus = CPU_COUNT(mask);
    int order[CPU_SETSIZE];
    if (num_threads < 2 || num_threads > num_cpus || (granted > 0 && granted < num_cpus)) return false;
    if (num_threads < order_by_core(mask, topology, order)) return false;
    for (int i = 0; i < num_threads; i++) cpus[i] = order[i];
    return true;
}

void thread_place_pin(int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

void thread_place_unpin(const cpu_set_t *mask)
{
    (void)sched_setaffinity(0, sizeof *mask, mask);
}
