/* step.h - where a text stands in a grammar, and what one more byte does to that.
 *
 * A thread is a state with its counter, on top of a stack of frames: the states to come back to. Frames are
 * shared and never change, so a stack is an index. Several threads at once are the ways in which the text so
 * far can be read. Bounds: THREADS_MAX threads, FRAMES_MAX frames, STACK_DEPTH_MAX of them on each other;
 * what would go beyond is not entered (too deep) or fails (too many). */
#ifndef TEXT_GRAMMAR_STEP_H
#define TEXT_GRAMMAR_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "text/grammar/byte_set.h"
#include "text/grammar/program.h"

enum {
    THREADS_MAX = 1024,
    FRAMES_MAX = 1 << 16,
    RECENT_FRAMES = 512,
    STACK_DEPTH_MAX = 400,
    STACK_BOTTOM = 0
};

struct thread {
    uint32_t state, count, stack, spaces; /* spaces: a state of the grammar's white space */
};

struct frame {
    uint32_t state, count, parent, depth;
};

/* frames[0] is the bottom. */
struct frames {
    struct frame *items;
    uint32_t count, capacity;
    uint32_t touched; /* the lowest depth of a frame that was returned to; 0: the bottom mattered */
    int status;       /* STATUS_NO_MEMORY, or STATUS_LIMIT: no place; sticky */
    uint16_t recent[RECENT_FRAMES]; /* where frames were put last, by what they hold */
    const char *text; /* that of the answer, with the byte that is taken; NULL: elements are not compared */
    size_t text_bytes;
    uint64_t work; /* threads that were looked at; whoever bounds it sets it to 0 */
};

bool frames_init(struct frames *f);
void frames_deinit(struct frames *f);
bool frames_reserve(struct frames *f, uint32_t capacity);

/* Writes the threads behind one more byte to out (THREADS_MAX of room); returns how many, -1 when there are
 * too many or frames failed. New frames are appended. */
int step_threads(const struct grammar *g, struct frames *f, const struct thread *from, int n, uint8_t byte,
                 struct thread *out);

/* A superset of the bytes that lead on. */
void step_first_bytes(const struct grammar *g, struct frames *f, const struct thread *from, int n,
                      struct byte_set *out);

/* Whether the text may end here. */
bool step_can_end(const struct grammar *g, const struct frames *f, const struct thread *from, int n);

/* Passes an entry: whether it holds for *count, which it may change. */
bool step_enter(const struct grammar *g, uint32_t entry, uint32_t *count);

bool step_same_stack(const struct frames *f, uint32_t a, uint32_t b);

#endif
