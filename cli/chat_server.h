/* chat_server.h - a server of one's own: a child on a Unix socket in a folder that only its user may enter. It ends
 * with its parent, whatever ends that. Thread: the only one. */
#ifndef CLI_CHAT_SERVER_H
#define CLI_CHAT_SERVER_H

#include <sys/types.h>

#include "base/status.h"

struct chat_server {
    pid_t pid;
    char folder[64], url[96]; /* url: unix:PATH, for http_client_init */
};

/* Starts `serve` with these arguments and waits until it is ready; a terminal sees how long. */
int chat_server_start(struct chat_server *s, int num_args, char **args, struct error *err) must_check;
void chat_server_stop(struct chat_server *s);

#endif
