#include "engine/load_files.h"

#include "config/lora_modules.h"

int load_files_open(const struct config *config, struct model_files **out, struct error *err)
{
    *out = NULL;
    int status = model_files_open(config_model_path(config), config->load_format, out, err);
    if (status) return status;
    struct error why = {0};
    for (int i = 1; i <= config->lora_modules.num_items && !status; i++)
        status = model_files_add_lora(*out, lora_module_path(config, i), &why);
    if (status) {
        error_set(err, status, "--lora-modules %s", why.text);
        model_files_close(*out);
        *out = NULL;
    }
    return status;
}
