/* device.c - chooses the device. The CUDA one is a shared object that is loaded only when asked for, so that
 * the program starts on machines that have no CUDA libraries. */
#include "kernels/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define CUDA_LIBRARY "libflashd_cuda.so"

static void program_folder(char folder[PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    folder[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
}

/* Beside the program after a build, in the lib folder after an installation; otherwise wherever the dynamic
 * loader looks. */
static void find_library(const char *name, char path[PATH_MAX + 64])
{
    char folder[PATH_MAX];
    program_folder(folder);
    snprintf(path, PATH_MAX + 64, "%s/%s", folder, name);
    if (access(path, F_OK) == 0) return;
    snprintf(path, PATH_MAX + 64, "%s/../lib/flashd/%s", folder, name);
    if (access(path, F_OK) == 0) return;
    snprintf(path, PATH_MAX + 64, "%s", name);
}

void *device_load_library(const char *name, struct error *err)
{
    char path[PATH_MAX + 64];
    find_library(name, path);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) error_set(err, STATUS_UNSUPPORTED, "the CUDA device could not be loaded: %s", dlerror());
    return library;
}

/* Asks the driver itself, which is small, before the libraries that compute, which take more than a second to
 * load. */
static int check_driver(struct error *err)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) return error_set(err, STATUS_NOT_FOUND, "there is no NVIDIA driver here (libcuda.so.1)");
    int (*init)(unsigned), (*get_count)(int *), count = 0;
    *(void **)&init = dlsym(driver, "cuInit");
    *(void **)&get_count = dlsym(driver, "cuDeviceGetCount");
    int result = init && get_count ? init(0) : -1;
    if (result == 0) result = get_count(&count);
    dlclose(driver);
    if (result != 0)
        return error_set(err, STATUS_NOT_FOUND, "the NVIDIA driver answers with error %d", result);
    if (count == 0) return error_set(err, STATUS_NOT_FOUND, "the NVIDIA driver finds no GPU");
    return STATUS_OK;
}

/* The library stays loaded: its device's code runs until the process ends. */
static int cuda_open(const struct device_options *options, struct device **out, struct error *err)
{
    int status = check_driver(err);
    if (status) return status;
    void *library = device_load_library(CUDA_LIBRARY, err);
    if (!library) return STATUS_UNSUPPORTED;
    device_open_function *open_function;
    *(void **)&open_function = dlsym(library, CUDA_DEVICE_OPEN_SYMBOL);
    if (!open_function) {
        dlclose(library);
        return error_set(err, STATUS_UNSUPPORTED, "%s has no %s; it is not of this version", CUDA_LIBRARY,
                         CUDA_DEVICE_OPEN_SYMBOL);
    }
    status = open_function(options, out, err);
    if (status) dlclose(library);
    return status;
}

/* One stream computes, so one hardware queue is enough; the usual eight cost 47 MB of host memory. */
void device_set_environment(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 0);
}

int device_open(const char *name, const struct device_options *options, struct device **out,
                struct error *err)
{
    if (strcmp(name, "cpu") == 0) return cpu_device_open(options, out, err);
    if (strcmp(name, "cuda") == 0) return cuda_open(options, out, err);
    if (strcmp(name, "auto") != 0)
        return error_set(err, STATUS_INVALID, "no device \"%s\"; --device is auto, cpu or cuda", name);
    struct error reason = {0};
    if (cuda_open(options, out, &reason) == STATUS_OK) return STATUS_OK;
    log_info("no GPU is used, the CPU computes: %s", reason.text);
    return cpu_device_open(options, out, err);
}
