#include "engine/load_files.h"

#include "config/lora_modules.h"

/* "": there is none. */
static const char *lora_path(const struct config *config, const struct link *link, int place)
{
    if (link && link_is_inherited(link)) return link_lora(link, place);
    return place <= config->lora_modules.num_items ? lora_module_path(config, place) : "";
}

int load_files_open(const struct config *config, const struct link *link, struct model_files **out,
                    struct error *err)
{
    const int num_places = lora_modules_num_places(config);
    *out = NULL;
    int status = model_files_open(config_model_path(config), config->load_format, out, err);
    if (status) return status;
    struct error why = {0};
    if (config->lora_dir) model_files_set_lora_rank(*out, (int32_t)config->max_lora_rank);
    for (int i = 1; i <= num_places && !status; i++)
        status = model_files_add_lora(*out, lora_path(config, link, i), &why);
    if (status) {
        error_set(err, status, "--lora-modules %s", why.text);
        model_files_close(*out);
        *out = NULL;
    }
    return status;
}
