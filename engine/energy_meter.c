#include "engine/energy_meter.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

enum { ZONES_MAX = 64, BOARDS_MAX = 16, UJ_PER_MJ = 1000 };

typedef int nvml_get_energy(void *device, unsigned long long *millijoules);

/* A counter that goes from 0 to range_uj and begins anew. */
struct zone {
    int fd;
    uint64_t range_uj, last_uj;
};

/* A GPU's. */
struct board {
    void *nvml_device;
    unsigned long long last_mj;
};

struct energy_meter {
    uint64_t sum_uj;
    struct zone zones[ZONES_MAX]; /* of a CPU */
    int num_zones;
    nvml_get_energy *get_energy; /* of GPUs; else NULL */
    struct board boards[BOARDS_MAX];
    int num_boards;
};

/* ---- a CPU's zones ---- */

static bool read_number(int fd, uint64_t *out)
{
    char text[32] = "", *end;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0 || text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\n' || *end == '\0');
}

static int open_file(const char *folder, const char *zone, const char *name)
{
    char path[512];
    int n = snprintf(path, sizeof path, "%s/%s/%s", folder, zone, name);
    if (n >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Packages, and memory, which is in no package; cores and graphics are in theirs, and "psys" is all of it again. */
static bool is_counted(const char *folder, const char *zone)
{
    char name[32] = "";
    int fd = open_file(folder, zone, "name");
    if (fd < 0) return false;
    ssize_t n = read(fd, name, sizeof name - 1);
    close(fd);
    return n > 0 && (!strncmp(name, "package-", 8) || !strcmp(name, "dram\n"));
}

static int open_zone(const char *folder, const char *name, struct zone *z, struct error *err)
{
    int range_fd = open_file(folder, name, "max_energy_range_uj");
    bool has_range = range_fd >= 0 && read_number(range_fd, &z->range_uj);
    if (range_fd >= 0) close(range_fd);
    z->fd = open_file(folder, name, "energy_uj");
    if (z->fd < 0) return error_set(err, STATUS_IO, "%s/%s/energy_uj: %s", folder, name, strerror(errno));
    if (has_range && read_number(z->fd, &z->last_uj)) return STATUS_OK;
    close(z->fd);
    return error_set(err, STATUS_INVALID, "%s/%s: its energy_uj or max_energy_range_uj is no number", folder,
                     name);
}

/* The controller of the same packages by another way (intel-rapl-mmio:0) would count them twice. */
static int open_zones(struct energy_meter *m, const char *path, DIR *folder, struct error *err)
{
    int status = STATUS_OK;
    struct dirent *entry;
    while (!status && m->num_zones < ZONES_MAX && (entry = readdir(folder))) {
        if (strncmp(entry->d_name, "intel-rapl:", 11) != 0 || !is_counted(path, entry->d_name)) continue;
        status = open_zone(path, entry->d_name, &m->zones[m->num_zones], err);
        m->num_zones += !status;
    }
    if (status || m->num_zones > 0) return status;
    return error_set(err, STATUS_NOT_FOUND, "%s shows no package of a CPU", path);
}

int energy_meter_open_cpu(const char *path, struct energy_meter **out, struct error *err)
{
    struct energy_meter *m = calloc(1, sizeof *m);
    if (!m) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    DIR *folder = opendir(path);
    int status = folder ? open_zones(m, path, folder, err)
                        : error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    if (folder) closedir(folder);
    if (status)
        energy_meter_close(m);
    else
        *out = m;
    return status;
}

static uint64_t read_zone(struct zone *z)
{
    uint64_t now_uj, before_uj = z->last_uj;
    if (!read_number(z->fd, &now_uj)) return 0;
    z->last_uj = now_uj;
    if (now_uj >= before_uj) return now_uj - before_uj;
    return before_uj <= z->range_uj ? z->range_uj - before_uj + now_uj : 0;
}

/* ---- GPUs ---- */

/* NVML counts devices in another order, and those that CUDA does not see, too: the bus says which one it is. */
static int find_bus_id(int cuda_device, char *bus_id, int size, struct error *err)
{
    int device, (*get)(int *, int), (*get_bus_id)(char *, int, int);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) return error_set(err, STATUS_NOT_FOUND, "there is no NVIDIA driver here (libcuda.so.1)");
    *(void **)&get = dlsym(driver, "cuDeviceGet");
    *(void **)&get_bus_id = dlsym(driver, "cuDeviceGetPCIBusId");
    bool found = get && get_bus_id && get(&device, cuda_device) == 0 && get_bus_id(bus_id, size, device) == 0;
    dlclose(driver);
    return found ? STATUS_OK : error_set(err, STATUS_NOT_FOUND, "the driver does not say where the GPU is");
}

static int open_nvml(struct energy_meter *m, void *nvml, struct error *err)
{
    int (*init)(void);
    *(void **)&init = dlsym(nvml, "nvmlInit_v2");
    *(void **)&m->get_energy = dlsym(nvml, "nvmlDeviceGetTotalEnergyConsumption");
    if (!init || !m->get_energy)
        return error_set(err, STATUS_UNSUPPORTED, "NVML of this driver counts no energy");
    const int result = init();
    return result ? error_set(err, STATUS_UNSUPPORTED, "NVML answers with error %d", result) : STATUS_OK;
}

static int add_board(struct energy_meter *m, void *nvml, int cuda_device, struct error *err)
{
    char bus_id[32] = "";
    int result = -1, (*by_bus_id)(const char *, void **),
        status = find_bus_id(cuda_device, bus_id, sizeof bus_id, err);
    struct board *b = &m->boards[m->num_boards];
    if (status) return status;
    *(void **)&by_bus_id = dlsym(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
    if (by_bus_id) result = by_bus_id(bus_id, &b->nvml_device);
    if (!result) result = m->get_energy(b->nvml_device, &b->last_mj);
    m->num_boards += !result;
    return result ? error_set(err, STATUS_UNSUPPORTED, "NVML answers with error %d", result) : STATUS_OK;
}

/* The library stays loaded until the process ends. */
int energy_meter_open_gpus(int cuda_device, int num, struct energy_meter **out, struct error *err)
{
    assert_always(num <= BOARDS_MAX);
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!nvml) return error_set(err, STATUS_NOT_FOUND, "there is no NVML here (libnvidia-ml.so.1)");
    struct energy_meter *m = calloc(1, sizeof *m);
    if (!m) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    int status = open_nvml(m, nvml, err);
    for (int i = 0; i < num && !status; i++) status = add_board(m, nvml, cuda_device + i, err);
    if (status)
        energy_meter_close(m);
    else
        *out = m;
    return status;
}

static uint64_t read_board(const struct energy_meter *m, struct board *b)
{
    unsigned long long now_mj, before_mj = b->last_mj;
    if (m->get_energy(b->nvml_device, &now_mj) != 0 || now_mj < before_mj) return 0;
    b->last_mj = now_mj;
    return (uint64_t)(now_mj - before_mj) * UJ_PER_MJ;
}

/* ---- both ---- */

uint64_t energy_meter_read_uj(struct energy_meter *m)
{
    for (int i = 0; i < m->num_zones; i++) m->sum_uj += read_zone(&m->zones[i]);
    for (int i = 0; i < m->num_boards; i++) m->sum_uj += read_board(m, &m->boards[i]);
    return m->sum_uj;
}

void energy_meter_close(struct energy_meter *m)
{
    if (!m) return;
    for (int i = 0; i < m->num_zones; i++) close(m->zones[i].fd);
    free(m);
}
