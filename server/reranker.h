/* reranker.h - whether the model is a reranker, and how it is asked then. Thread: the loop's. */
#ifndef SERVER_RERANKER_H
#define SERVER_RERANKER_H

#include "config/config.h"
#include "link/facts.h"
#include "text/rerank_template.h"

/* By --rerank-template: a file; or, where the model's file or its name says that it is one, the template of
 * Qwen3-Reranker. *out is NULL when it is none, and when it has a head that scores pairs and is asked with both texts
 * alone, for which the tokenizer must have a form: so are all encoders, and decoders without a file but for Qwen3-Reranker. */
int reranker_open(const struct config *config, const struct link_facts *facts,
                  const struct tokenizer *tokenizer, struct rerank_template **out,
                  struct error *err) must_check;

#endif
