/* process_metrics.c - read from /proc when the page is asked for; what cannot be read is 0. */
#include "server/process_metrics.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/metrics.h"

/* Of /proc/PID/stat (proc(5)). */
struct usage_of_process {
    double cpu_seconds, start_seconds, virtual_bytes, resident_bytes; /* start: since the system's */
};

/* The name, in brackets, may hold anything: what counts begins behind the last one. */
static struct usage_of_process parse(const char *text)
{
    unsigned long long utime = 0, stime = 0, start = 0, virtual_bytes = 0;
    long long num_pages = 0;
    double ticks = (double)sysconf(_SC_CLK_TCK);
    const char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 1,
                        " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %*d %*d %*d %*d %*d %*d %llu "
                        "%llu %lld",
                        &utime, &stime, &start, &virtual_bytes, &num_pages) != 5)
        return (struct usage_of_process){0};
    return (struct usage_of_process){.cpu_seconds = (double)(utime + stime) / ticks,
                                     .start_seconds = (double)start / ticks,
                                     .virtual_bytes = (double)virtual_bytes,
                                     .resident_bytes = (double)num_pages * (double)sysconf(_SC_PAGESIZE)};
}

/* pid 0: this process. */
static struct usage_of_process usage_of(pid_t pid)
{
    char path[64] = "/proc/self/stat", text[1024] = "";
    if (pid > 0) snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return (struct usage_of_process){0};
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return parse(text);
}

/* ---- the front ---- */

static double cpu_seconds(const void *context)
{
    (void)context;
    return usage_of(0).cpu_seconds;
}

static double resident_bytes(const void *context)
{
    (void)context;
    return usage_of(0).resident_bytes;
}

static double virtual_bytes(const void *context)
{
    (void)context;
    return usage_of(0).virtual_bytes;
}

/* In Unix time, which the system's start has too. */
static double start_seconds(const void *context)
{
    (void)context;
    char line[128];
    double boot_seconds = 0;
    FILE *file = fopen("/proc/stat", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "btime %lf", &boot_seconds) == 1) break;
    if (file) fclose(file);
    return boot_seconds + usage_of(0).start_seconds;
}

/* Newer kernels say how many in the folder's size; one by one they are thousands. */
static double num_open_descriptors(const void *context)
{
    (void)context;
    struct stat st;
    double count = 0;
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0) return (double)st.st_size;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return 0;
    while (readdir(folder)) count++;
    closedir(folder);
    return count - 3; /* ".", ".." and the folder's own */
}

static double most_descriptors(const void *context)
{
    (void)context;
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) ? 0 : (double)limit.rlim_cur;
}

/* ---- the engine ---- */

static struct usage_of_process usage_of_engine(const struct engine_host *host)
{
    pid_t pid = engine_host_pid(host);
    return pid > 0 ? usage_of(pid) : (struct usage_of_process){0};
}

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Children that have ended are engines that were before it. */
static double engine_cpu_seconds(const void *context)
{
    struct rusage ended;
    double before =
        getrusage(RUSAGE_CHILDREN, &ended) ? 0 : seconds_of(ended.ru_utime) + seconds_of(ended.ru_stime);
    return before + usage_of_engine(context).cpu_seconds;
}

static double engine_resident_bytes(const void *context)
{
    return usage_of_engine(context).resident_bytes;
}

void process_metrics_register(const struct engine_host *host)
{
    static const struct {
        enum metric_type type;
        const char *name, *help;
        double (*read)(const void *context);
    } metrics[] = {
        {METRIC_COUNTER, "process_cpu_seconds_total", "Processor time of the front.", cpu_seconds},
        {METRIC_GAUGE, "process_resident_memory_bytes", "Memory of the front that is in RAM.",
         resident_bytes},
        {METRIC_GAUGE, "process_virtual_memory_bytes", "Address space of the front.", virtual_bytes},
        {METRIC_GAUGE, "process_start_time_seconds", "When the front began, in Unix time.", start_seconds},
        {METRIC_GAUGE, "process_open_fds", "Open descriptors of the front.", num_open_descriptors},
        {METRIC_GAUGE, "process_max_fds", "Descriptors that it may open.", most_descriptors},
        {METRIC_COUNTER, "flashd_engine_cpu_seconds_total",
         "Processor time of the engine's process and of those before it; 0 where it is a thread of the "
         "front.",
         engine_cpu_seconds},
        {METRIC_GAUGE, "flashd_engine_resident_memory_bytes",
         "Memory of the engine's process that is in RAM, the mapped model included.", engine_resident_bytes},
    };
    for (size_t i = 0; i < array_length(metrics); i++)
        metric_register_read(metrics[i].type, metrics[i].name, metrics[i].help, metrics[i].read, host);
}
