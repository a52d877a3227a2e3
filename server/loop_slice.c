#include "server/loop_slice.h"

#include <linux/sched.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SLICE_NS = 100 * 1000 };

void loop_slice_shorten(void)
{
    struct sched_attr attr = {.size = sizeof attr};
    if (syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0) < 0) return;
    /* What resets children would also take a negative nice value from them. */
    if (attr.sched_policy != 0 || attr.sched_nice < 0) return;
    attr.sched_flags = SCHED_FLAG_RESET_ON_FORK;
    attr.sched_runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}
