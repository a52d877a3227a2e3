/* upgrade.h - another process takes this one's place without a refused connection or a cut stream.
 *
 *   SIGUSR2 -> the program at this one's path starts with the same command line and the listening socket
 *           -> it loads, while this process serves as before
 *           -> it serves, and says so down a pair of sockets: on_taken_over; streams go on there (handover.h)
 *           or it ends before that: on_failed, and nothing has happened
 *
 * Both have an engine for a while, with weights and K/V of its own. Thread: the loop's. */
#ifndef SERVER_UPGRADE_H
#define SERVER_UPGRADE_H

#include <stdbool.h>

#include <uv.h>

#include "config/text_list.h"
#include "server/identity.h"

enum { UPGRADE_PATH_BYTES = 4096 };

struct upgrade {
    /* set by the caller */
    uv_loop_t *loop;
    /* fd: to hand streams over with, the callee's. identity: what it answers with; NULL: it does not say, an older one */
    void (*on_taken_over)(void *context, int fd, const uint8_t *identity);
    void (*on_failed)(void *context, const char *why);
    void *context;
    /* its own */
    char program[UPGRADE_PATH_BYTES]; /* "": unknown */
    uv_process_t process;
    uv_poll_t told;
    int told_fd;        /* our end; -1: none */
    int num_open;       /* of process and told: handles that are not closed yet */
    bool is_under_way;  /* the other process loads */
    bool is_taken_over; /* it serves */
};

/* The path that this process was started by, links in it as they stand: what is there later is what starts. At the start. */
void upgrade_note_program(struct upgrade *u);
/* arguments: this process's, without its own name and the command's. more: variables for the other's environment
 * beside this one's. */
int upgrade_start(struct upgrade *u, int listen_fd, bool belongs_to_systemd,
                  const struct text_list *arguments, const struct text_list *more,
                  struct error *err) must_check;
/* This process was told to end: the other one is not to come. */
void upgrade_call_off(struct upgrade *u);
/* Closes the handles; nothing is called afterwards, and the other process goes on. */
void upgrade_close(struct upgrade *u);

#endif
