#include "text/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>

/* What goes wrong after an allocation failed goes wrong because of it. */
static bool failed_before(struct run *r, int status)
{
    if (r->heap.failed && status == STATUS_TEMPLATE) run_charge(r, 0);
    return r->status != 0;
}

struct value run_fail(struct run *r, int status, const char *format, ...)
{
    if (failed_before(r, status)) return value_undefined();
    char sentence[384];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    r->status = error_set(r->err, status, "chat template, line %d: %s", r->line, sentence);
    return value_undefined();
}

struct value run_raise(struct run *r, const struct text *message)
{
    if (failed_before(r, STATUS_TEMPLATE)) return value_undefined();
    bool is_empty = message->num_bytes == 0 || message->bytes[0] == '\0';
    r->status = is_empty
                    ? error_set(r->err, STATUS_TEMPLATE, "the chat template refuses this without saying why")
                    : error_set(r->err, STATUS_TEMPLATE, "%.*s",
                                (int)min_of(message->num_bytes, (size_t)4096), message->bytes);
    return value_undefined();
}

bool run_charge(struct run *r, size_t work)
{
    if (r->status != 0) return false;
    if (heap_charge(&r->heap, work)) return true;
    if (r->heap.out_of_memory) {
        run_fail(r, STATUS_NO_MEMORY, "out of memory");
        return false;
    }
    run_fail(r, STATUS_LIMIT,
             r->heap.work_left == 0 ? "too many steps" : "the prompt or a value in it is too large");
    return false;
}

bool run_enter(struct run *r)
{
    if (r->status != 0 || !run_charge(r, WORK_OF_NODE)) return false;
    if (r->depth_left <= 0) {
        run_fail(r, STATUS_LIMIT, "nested too deeply");
        return false;
    }
    r->depth_left--;
    return true;
}
