/* device.c - chooses the device. The CUDA one is a shared object that is loaded only when asked for, so that
 * the program starts on machines that have no CUDA libraries. */
#include "kernels/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "kernels/group/group.h"

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

/* What is asked of the driver itself: whether there is a GPU, before the libraries that compute are loaded, and to make the GPU's context
 * meanwhile. Both take a tenth of a second. */
struct driver {
    void *library;
    int (*init)(unsigned flags), (*get_count)(int *count), (*get_device)(int *device, int ordinal),
        (*retain_context)(void **context, int device), (*release_context)(int device);
    int ordinal;
    pthread_t thread;
    bool has_thread, has_context;
};

static int open_driver(struct driver *d, struct error *err)
{
    int count = 0;
    d->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!d->library) return error_set(err, STATUS_NOT_FOUND, "there is no NVIDIA driver here (libcuda.so.1)");
    *(void **)&d->init = dlsym(d->library, "cuInit");
    *(void **)&d->get_count = dlsym(d->library, "cuDeviceGetCount");
    *(void **)&d->get_device = dlsym(d->library, "cuDeviceGet");
    *(void **)&d->retain_context = dlsym(d->library, "cuDevicePrimaryCtxRetain");
    *(void **)&d->release_context = dlsym(d->library, "cuDevicePrimaryCtxRelease_v2");
    int result = d->init && d->get_count ? d->init(0) : -1;
    if (result == 0) result = d->get_count(&count);
    if (result != 0)
        return error_set(err, STATUS_NOT_FOUND, "the NVIDIA driver answers with error %d", result);
    if (count == 0) return error_set(err, STATUS_NOT_FOUND, "the NVIDIA driver finds no GPU");
    return STATUS_OK;
}

/* Where this fails the library makes it, and says why it cannot. */
static void *retain_context(void *argument)
{
    struct driver *d = argument;
    void *context;
    int device;
    d->has_context = d->get_device(&device, d->ordinal) == 0 && d->retain_context(&context, device) == 0;
    return NULL;
}

static void begin_context(struct driver *d, int ordinal)
{
    d->ordinal = ordinal;
    if (d->get_device && d->retain_context && d->release_context)
        d->has_thread = pthread_create(&d->thread, NULL, retain_context, d) == 0;
}

static void finish_context(struct driver *d)
{
    if (d->has_thread) pthread_join(d->thread, NULL);
    d->has_thread = false;
}

/* The library holds the context itself by now. */
static void close_driver(struct driver *d)
{
    int device;
    if (d->has_context && d->get_device(&device, d->ordinal) == 0) d->release_context(device);
    if (d->library) dlclose(d->library);
}

static int open_in_library(void *library, const struct device_options *options, struct device **out,
                           struct error *err)
{
    device_open_function *open_function;
    *(void **)&open_function = dlsym(library, CUDA_DEVICE_OPEN_SYMBOL);
    if (!open_function)
        return error_set(err, STATUS_UNSUPPORTED, "%s has no %s; it is not of this version", CUDA_LIBRARY,
                         CUDA_DEVICE_OPEN_SYMBOL);
    return open_function(options, out, err);
}

/* The library stays loaded: its device's code runs until the process ends. */
static int cuda_open(const struct device_options *options, struct device **out, struct error *err)
{
    struct driver driver = {0};
    int status = open_driver(&driver, err);
    if (!status) {
        begin_context(&driver, options->cuda_device);
        void *library = device_load_library(CUDA_LIBRARY, err);
        finish_context(&driver);
        status = library ? open_in_library(library, options, out, err) : STATUS_UNSUPPORTED;
        if (library && status) dlclose(library);
    }
    close_driver(&driver);
    return status;
}

/* One stream computes, so one hardware queue is enough; the usual eight cost 47 MB of host memory. */
void device_set_environment(void)
{
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 0);
}

static int open_one(const char *name, const struct device_options *options, struct device **out,
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

int device_open(const char *name, const struct device_options *options, struct device **out,
                struct error *err)
{
    return options->num_devices > 1 ? group_open(open_one, name, options, out, err)
                                    : open_one(name, options, out, err);
}
