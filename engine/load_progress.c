#include "engine/load_progress.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

enum { LINE_NS = 1000000000, BAR_WIDTH = 24 };

void load_progress_begin(struct load_progress *p, bool wants_bar)
{
    *p = (struct load_progress){
        .at_terminal = wants_bar && isatty(STDERR_FILENO), .said_ns = clock_monotonic_ns(), .percent = -1};
}

/* A terminal that takes nothing now sees nothing: loading waits for nobody. */
static void put(const char *bytes, int n)
{
    struct pollfd terminal = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&terminal, 1, 0) == 1 && write(STDERR_FILENO, bytes, (size_t)n) != n) return;
}

/* Ends at the line's beginning: what the log writes next takes its place. */
static void draw(int percent)
{
    static const char full[] = "########################", empty[] = "........................";
    char line[64];
    int filled = percent * BAR_WIDTH / 100;
    int n = snprintf(line, sizeof line, "weights [%.*s%.*s] %3d %%\r", filled, full, BAR_WIDTH - filled,
                     empty, percent);
    put(line, n);
}

void load_progress_tell(void *context, double fraction)
{
    struct load_progress *p = context;
    int percent = (int)(100 * fraction);
    if (p->at_terminal) {
        if (percent != p->percent) draw(percent);
        p->percent = percent;
        return;
    }
    uint64_t now_ns = clock_monotonic_ns();
    if (now_ns - p->said_ns < LINE_NS) return;
    p->said_ns = now_ns;
    log_info("weights: %d %% are in", percent);
}

void load_progress_end(struct load_progress *p)
{
    static const char clear[] = "\033[K";
    if (p->at_terminal && p->percent >= 0) put(clear, sizeof clear - 1);
}
