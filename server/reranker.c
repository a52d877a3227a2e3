#include "server/reranker.h"

#include <string.h>

#include "base/log.h"

static bool names_a_reranker(const struct config *config)
{
    if (strcasestr(config->model, "reranker")) return true;
    for (int i = 0; i < config->served_model_name.num_items; i++)
        if (strcasestr(config->served_model_name.items[i], "reranker")) return true;
    return false;
}

int reranker_open(const struct config *config, const struct link_facts *facts,
                  const struct tokenizer *tokenizer, struct rerank_template **out, struct error *err)
{
    const char *option = config->rerank_template;
    *out = NULL;
    if (strcmp(option, "auto") != 0 && strcmp(option, "off") != 0)
        return rerank_template_open(option, tokenizer, out, err);
    if (!strcmp(option, "off") || (!facts->is_reranker && !names_a_reranker(config))) return STATUS_OK;
    int status = rerank_template_open(NULL, tokenizer, out, err);
    if (status != STATUS_UNSUPPORTED) return status;
    log_warning("the model seems to be a reranker, but %s", err->text);
    return STATUS_OK;
}
