/* work_queue.h - work for libuv's pool, on which long ones are few at a time, so that a short one never waits until they have
 * ended, and all not many. What is beyond that waits here, with nothing but what its owner keeps for it: keys take turns, of a
 * key its tenants (api/tenant.h), and of a tenant the oldest is first.
 *
 *   put -> begin (loop) -> run (a worker's thread) -> done (loop)
 *
 * Thread: the loop's, but for run. */
#ifndef SERVER_WORK_QUEUE_H
#define SERVER_WORK_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

enum {
    LONG_WORKS_MAX = 2, /* of the pool's four threads */
    POOL_WORKS_MAX = 8, /* no thread is idle until the loop has seen what it did */
};

/* A part of its owner, who keeps it until done was called: once, unless it was refused or taken back. */
struct pool_work {
    bool (*begin)(struct pool_work *w); /* false: not wanted any more, or out of memory. NULL: always */
    void (*run)(struct pool_work *w);
    void (*done)(struct pool_work *w, bool has_run);
    bool is_long;
    bool was_large;  /* pool_work_note_bytes */
    int api_key_idx; /* whose it is, */
    uint64_t tenant; /* of a key's */
    /* the queue's own */
    bool waits;
    uint64_t key_turn, tenant_turn; /* when its key, and its tenant, last had one */
    struct pool_work *next;
    struct work_queue *queue;
    uv_work_t uv;
};

/* Zeros: nothing is there. */
struct work_queue {
    uv_loop_t *loop;
    int num_long, num_all; /* on the pool */
    uint64_t num_turns;
    struct pool_work *first; /* of those that wait */
    uv_timer_t trim_timer;
    uv_work_t trim;
    bool has_trim_timer, trim_waits, trims; /* the memory of large ones is given back: soon, now */
};

/* False: it does not begin, and nothing is called of it. */
bool work_queue_put(struct work_queue *q, uv_loop_t *loop, struct pool_work *w);
/* Of one that was put. False: it does not wait. Otherwise nothing is called of it any more. */
bool work_queue_take_back(struct pool_work *w);

/* In run: it has read so many bytes of JSON. Many become forty times as much memory for a while, in a million pieces: what is free
 * again is put together here, not on the loop, and goes back to the system for all that end within a second at once, in nobody's time. Thread: the worker's. */
void pool_work_note_bytes(struct pool_work *w, size_t num_bytes);

/* Before the loop ends: what is free then stays. */
void work_queue_close(struct work_queue *q);

#endif
