#include "config/lora_modules.h"

#include <string.h>

/* Up to the first =. */
static size_t name_bytes(const char *item)
{
    return strcspn(item, "=");
}

static bool are_named_alike(const char *a, const char *b)
{
    return name_bytes(a) == name_bytes(b) && !memcmp(a, b, name_bytes(a));
}

int lora_modules_check(const struct config *config, struct error *err)
{
    const struct text_list *list = &config->lora_modules;
    if (list->num_items > LORA_MODULES_MAX)
        return error_set(err, STATUS_INVALID, "--lora-modules: %d adapters; up to %d are served",
                         list->num_items, (int)LORA_MODULES_MAX);
    if (list->num_items > lora_modules_num_places(config))
        return error_set(err, STATUS_INVALID, "--lora-modules: %d adapters are more than --max-loras %d",
                         list->num_items, (int)config->max_loras);
    for (int i = 0; i < list->num_items; i++) {
        const char *item = list->items[i];
        const size_t n = name_bytes(item);
        if (n == 0 || !item[n] || !item[n + 1] || n >= LORA_NAME_BYTES || item[n - 1] == '*')
            return error_set(
                err, STATUS_INVALID,
                "--lora-modules \"%.100s\": NAME=PATH is expected, with a name of 1 to %d bytes that does "
                "not end in *",
                item, (int)LORA_NAME_BYTES - 1);
        for (int k = 0; k < i; k++)
            if (are_named_alike(item, list->items[k]))
                return error_set(err, STATUS_INVALID, "--lora-modules: two adapters have the name \"%.*s\"",
                                 (int)n, item);
    }
    return STATUS_OK;
}

int lora_modules_num_places(const struct config *config)
{
    return config->lora_dir ? (int)config->max_loras : config->lora_modules.num_items;
}

const char *lora_module_path(const struct config *config, int i)
{
    const char *item = config->lora_modules.items[i - 1];
    return item + name_bytes(item) + 1;
}

void lora_module_name(const struct config *config, int i, char name[LORA_NAME_BYTES])
{
    const char *item = config->lora_modules.items[i - 1];
    const size_t n = name_bytes(item);
    memcpy(name, item, n);
    name[n] = 0;
}
