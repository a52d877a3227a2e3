/* lora_modules.h - adapters that are served beside the model (--lora-modules NAME=PATH): names that requests ask for as their model, and
 * directories. Each has a place, counted from 1 in the order in which they are said; 0 is the model alone. With --lora-dir there are places
 * for others, too, which come and go while the server runs. Thread: any. */
#ifndef CONFIG_LORA_MODULES_H
#define CONFIG_LORA_MODULES_H

#include "config/config.h"

enum { LORA_MODULES_MAX = 64, LORA_NAME_BYTES = 128 /* with its NUL */ };

/* Each has a name, which no other has, a path, and a place; else an error that says which. */
int lora_modules_check(const struct config *config, struct error *err) must_check;

int lora_modules_num_places(const struct config *config);
/* Of the i-th, from 1 on. */
const char *lora_module_path(const struct config *config, int i);
void lora_module_name(const struct config *config, int i, char name[LORA_NAME_BYTES]);

#endif
