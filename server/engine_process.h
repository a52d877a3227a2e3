/* engine_process.h - how the front starts an engine as a process: `flashd-engine engine FRONT_PID OPTIONS
 * MODEL` with two descriptors open. An agreement between engine_host.c and the command line; nobody types it.
 */
#ifndef SERVER_ENGINE_PROCESS_H
#define SERVER_ENGINE_PROCESS_H

#include "config/config.h"

#define ENGINE_COMMAND "engine"

enum {
    ENGINE_LINK_FD = 3, /* the region (link_attach) */
    ENGINE_WAKE_FD = 4, /* a byte wakes the front */
};

/* Its whole command line, NULL at the end; the caller frees with text_list_deinit. */
int engine_process_args(const struct config *config, struct text_list *args, struct error *err) must_check;

#endif
