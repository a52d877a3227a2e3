#include "server/engine_process.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "config/config_args.h"

int engine_process_args(const struct config *config, struct text_list *args, struct error *err)
{
    char front[16];
    snprintf(front, sizeof front, "%d", (int)getpid());
    const char *const first[] = {"flashd-engine", ENGINE_COMMAND, front};
    int status = 0;
    for (size_t i = 0; i < array_length(first) && !status; i++)
        status = text_list_append(args, first[i], strlen(first[i]));
    if (!status) status = config_append_args(config, args, err);
    if (!status) status = text_list_append(args, NULL, 0);
    return status ? error_set(err, status, "out of memory") : 0;
}
