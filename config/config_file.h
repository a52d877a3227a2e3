/* config_file.h - reads a flat YAML file of options into a config. */
#ifndef CONFIG_CONFIG_FILE_H
#define CONFIG_CONFIG_FILE_H

#include "config/config.h"

/* Keys are option names (dashes or underscores), values scalars, or sequences of scalars for lists.
 * An error names the file and the line. */
int config_file_load(struct config *c, const char *path, struct error *err) must_check;

#endif
