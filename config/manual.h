/* manual.h - the table of options for man and for shells. Thread: none of its own. */
#ifndef CONFIG_MANUAL_H
#define CONFIG_MANUAL_H

#include <stdio.h>

#include "base/status.h"
#include "config/flags.h"

/* What may stand behind the program's name; a list of them ends with a name of NULL. */
struct command {
    const char *name, *arguments, *help; /* arguments "": none */
    const struct flag *flags;            /* its own options; NULL: none, or those of `serve` */
    bool serves;                         /* takes the options of `serve` beside its own */
};

/* flashd(1), in man(7)'s macros. */
void manual_print(const struct command *commands, const char *version, FILE *out);

/* shell: bash, zsh or fish; an error for another one. */
int manual_print_completion(const char *shell, const struct command *commands, FILE *out,
                            struct error *err) must_check;

#endif
