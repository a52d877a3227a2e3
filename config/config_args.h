/* config_args.h - a configuration as a command line that gives it again, without environment or file. */
#ifndef CONFIG_CONFIG_ARGS_H
#define CONFIG_CONFIG_ARGS_H

#include "config/config.h"

/* Appends `--name=value` for each option that is not at its default, then MODEL. Clients' keys are left out:
 * a command line can be read by others. The caller frees with text_list_deinit. */
int config_append_args(const struct config *c, struct text_list *args, struct error *err) must_check;

#endif
