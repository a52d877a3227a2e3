/* engine_loras.c - an adapter is taken in while others are computed: a layer each turn, so that a stream's tokens are milliseconds late at
 * most, however large the adapter is. The front has read its files before, so that they are in memory, and hands no request over that has the
 * place. */
#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_internal.h"
#include "model/lora_files.h"

static int open_files(struct engine *e, const char *path, struct error *err)
{
    const struct model_files *model = e->options.files;
    if (!model) return error_set(err, STATUS_UNSUPPORTED, "this engine has no places for adapters");
    int status = lora_files_open(path, model, &e->lora.files, err);
    if (status) return status;
    const int32_t rank = lora_files_rank(e->lora.files), most = model_files_lora_rank(model);
    if (rank <= most) return STATUS_OK;
    return error_set(err, STATUS_LIMIT, "%s: its rank is %d, more than --max-lora-rank %d", path, rank, most);
}

void engine_drop_lora(struct engine *e)
{
    lora_files_close(e->lora.files);
    e->lora = (struct lora_exchange){.files = NULL};
}

/* What had come of it goes. */
static void empty_place(struct engine *e, int32_t place)
{
    struct error err = {0};
    for (int32_t layer = 0; layer < e->lora.num_layers; layer++)
        if (model_lora_set(e->model, place - 1, NULL, layer, &err)) log_error("%s", err.text);
}

bool engine_exchange_lora(struct engine *e)
{
    const int32_t place = link_ordered_lora(e->link), num_layers = model_config(e->model)->num_layers;
    struct lora_exchange *x = &e->lora;
    struct error err = {0};
    int status = STATUS_OK;
    if (place == 0) return false;
    const char *path = link_lora(e->link, place);
    if (path[0] && !x->files) status = open_files(e, path, &err);
    if (!status) status = model_lora_set(e->model, place - 1, x->files, x->num_layers++, &err);
    if (!status && x->num_layers < num_layers) return true;
    if (status) empty_place(e, place);
    engine_drop_lora(e);
    link_answer_lora(e->link, status, err.text);
    return true;
}
