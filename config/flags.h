/* flags.h - options of one command of the program, as a table: read into a struct, and listed for help, man and shells.
 *
 *   --streams 8   --streams=8   --json   --no-ignore-eos
 *
 * Those of `serve` are config.h's, which come from files and the environment, too. Thread: none of its own. */
#ifndef CONFIG_FLAGS_H
#define CONFIG_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

enum flag_type { FLAG_TEXT, FLAG_COUNT, FLAG_REAL, FLAG_SWITCH };

/* A list of them ends with a name of NULL. */
struct flag {
    const char *name, *unit, *help; /* unit "": a switch; with | between them: choices */
    enum flag_type type;
    size_t offset;      /* into the command's struct: const char * (of args), int64_t, double or bool */
    double least, most; /* of numbers */
};

/* Sets the fields of into; at most one argument that is no option goes to *operand, which may be NULL: none is
 * expected. command is for the message. */
int flags_load(const struct flag *flags, void *into, const char *command, const char **operand, int num_args,
               char **args, struct error *err) must_check;

void flags_print_help(const struct flag *flags, FILE *out);

#endif
