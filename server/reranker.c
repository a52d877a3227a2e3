#include "server/reranker.h"

#include <string.h>

#include "base/log.h"

static bool is_a_rerankers(const char *name)
{
    return name && strcasestr(name, "reranker");
}

static bool names_a_reranker(const struct config *config)
{
    const struct text_list *served = &config->served_model_name;
    bool found = is_a_rerankers(config->model);
    for (int i = 0; i < served->num_items; i++) found = found || is_a_rerankers(served->items[i]);
    return found;
}

static int open_file(const char *path, const struct tokenizer *tokenizer, struct rerank_template **out,
                     struct error *err)
{
    struct error why = {0};
    int status = rerank_template_open(path, tokenizer, out, &why);
    return status ? error_set(err, status, "--rerank-template: %s", why.text) : STATUS_OK;
}

/* A template has one text, encoders with a head were trained on two. Of decoders the name alone is not enough: others' rerankers were trained
 * on texts of their own. */
static int open_for_head(const struct config *config, const struct link_facts *facts,
                         const struct tokenizer *tokenizer, struct rerank_template **out, struct error *err)
{
    const char *option = config->rerank_template;
    const bool is_auto = !strcmp(option, "auto"), is_file = !is_auto && strcmp(option, "off") != 0;
    if (facts->is_encoder && is_file)
        return error_set(err, STATUS_INVALID,
                         "--rerank-template is for decoders; this encoder has a head that scores two texts");
    if (is_file) return open_file(option, NULL, out, err);
    if (is_auto && !strcmp(facts->family, "qwen3") && names_a_reranker(config))
        return rerank_template_open(NULL, NULL, out, err);
    if (tokenizer_has_pairs(tokenizer)) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the model scores pairs of texts, but its tokenizer has no form for pairs");
}

int reranker_open(const struct config *config, const struct link_facts *facts,
                  const struct tokenizer *tokenizer, struct rerank_template **out, struct error *err)
{
    const char *option = config->rerank_template;
    bool is_file = strcmp(option, "auto") != 0 && strcmp(option, "off") != 0;
    *out = NULL;
    if (facts->scores_pairs) return open_for_head(config, facts, tokenizer, out, err);
    if (is_file) return open_file(option, tokenizer, out, err);
    if (!strcmp(option, "off") || (!facts->is_reranker && !names_a_reranker(config))) return STATUS_OK;
    int status = rerank_template_open(NULL, tokenizer, out, err);
    if (status != STATUS_UNSUPPORTED) return status;
    log_warning("the model seems to be a reranker, but %s", err->text);
    return STATUS_OK;
}
