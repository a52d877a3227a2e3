#include "base/parallel.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/check.h"
#include "base/thread_limit.h"

enum { THREADS_MAX = 32 };

struct part {
    pthread_t thread;
    bool has_thread;
    void (*run)(void *context, int64_t begin, int64_t end);
    void *context;
    int64_t begin, end;
};

static void *run_part(void *argument)
{
    const struct part *p = argument;
    p->run(p->context, p->begin, p->end);
    return NULL;
}

void parallel_ranges(int64_t count, int64_t least, void (*run)(void *context, int64_t begin, int64_t end),
                     void *context)
{
    struct part parts[THREADS_MAX];
    assert_debug(count >= 0 && least > 0);
    int64_t num_parts = min_of((int64_t)THREADS_MAX, count / least);
    if (num_parts > 1) num_parts = min_of(num_parts, (int64_t)thread_limit_usable());
    num_parts = max_of(num_parts, (int64_t)1);
    for (int64_t i = 0; i < num_parts; i++) {
        parts[i] = (struct part){.run = run,
                                 .context = context,
                                 .begin = count * i / num_parts,
                                 .end = count * (i + 1) / num_parts};
        parts[i].has_thread = i > 0 && pthread_create(&parts[i].thread, NULL, run_part, &parts[i]) == 0;
    }
    for (int64_t i = 0; i < num_parts; i++)
        if (!parts[i].has_thread) run_part(&parts[i]);
    for (int64_t i = 0; i < num_parts; i++)
        if (parts[i].has_thread) pthread_join(parts[i].thread, NULL);
}
