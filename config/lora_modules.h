/* lora_modules.h - adapters that are served beside the model (--lora-modules NAME=PATH): names that requests ask for as their model, and
 * directories. They are counted from 1 in the order in which they are said; 0 is the model alone. Thread: any. */
#ifndef CONFIG_LORA_MODULES_H
#define CONFIG_LORA_MODULES_H

#include "config/config.h"

enum { LORA_MODULES_MAX = 64, LORA_NAME_BYTES = 128 /* with its NUL */ };

/* Each has a name, which no other has, and a path; else an error that says which. */
int lora_modules_check(const struct config *config, struct error *err) must_check;

/* Of the i-th, from 1 on. */
const char *lora_module_path(const struct config *config, int i);
void lora_module_name(const struct config *config, int i, char name[LORA_NAME_BYTES]);

#endif
