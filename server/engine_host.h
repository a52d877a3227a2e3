/* engine_host.h - what the engine runs in: a thread of this process, or a process of its own.
 *
 * A thread is this process's life: it ends with link_stop or never, and a device failure is the link's state.
 * A process may die of anything; on_end then says how, and engine_host_start may be called again over the
 * same link. Either way what there is to know stands in the link, and on_wake says that it is worth a look.
 * Thread: the loop's. */
#ifndef SERVER_ENGINE_HOST_H
#define SERVER_ENGINE_HOST_H

#include <uv.h>

#include "config/config.h"
#include "link/link.h"

/* Loads what config names and serves over the link until link_stop; engine/run.h has it. */
typedef void engine_main(struct link *link, const struct config *config);

enum { ENGINE_SPARES = 8 };

struct engine_end {
    int exit_code, signal; /* signal 0: it exited */
    char text[96];         /* "signal 11 (Segmentation fault)", "exit code 1" */
};

struct engine_host {
    /* set by the caller */
    uv_loop_t *loop;
    struct link *link;
    const struct config *config;
    engine_main *main; /* NULL: a process */
    void (*on_wake)(void *context);
    void (*on_end)(void *context, const struct engine_end *end); /* never for a thread */
    void *context;
    /* its own */
    uv_async_t wake;
    uv_thread_t thread;
    uv_process_t process;
    uv_pipe_t wake_pipe;
    struct engine_end end;
    int spares[ENGINE_SPARES]; /* descriptors that a start needs and nobody else may take; -1: none */
    int num_open;              /* of process and wake_pipe: handles that are not closed yet */
    bool inited, runs;
};

void engine_host_init(struct engine_host *h);
int engine_host_start(struct engine_host *h, struct error *err) must_check;
/* Of a process that runs; 0: there is none. */
pid_t engine_host_pid(const struct engine_host *h);
/* Ends a process at once; on_end follows. */
void engine_host_kill(struct engine_host *h);
/* Closes the handles; nothing is called afterwards. The engine is left running. */
void engine_host_close(struct engine_host *h);
/* After the loop's end: link_stop, and waits for the engine. */
void engine_host_join(struct engine_host *h);

#endif
