/* chat.h - `flashd chat`: a conversation on the terminal. */
#ifndef CLI_CHAT_H
#define CLI_CHAT_H

#include "config/flags.h"

extern const struct flag chat_flags[]; /* with --url */

/* MODEL and options of `serve`: a server is started for it. --url URL [--model NAME] [--api-key-file FILE]: with
 * a server that runs. Returns the process's exit code: 0, 1, 2 (usage). */
int chat_run(int num_args, char **args);

#endif
