/* rerank_template.h - how a model is asked whether a document answers a query: a text with places for both, and the
 * tokens that say yes and no. Immutable once made. Thread: any. */
#ifndef TEXT_RERANK_TEMPLATE_H
#define TEXT_RERANK_TEMPLATE_H

#include "base/buffer.h"
#include "text/tokenizer.h"

struct rerank_template;

/* path: a file with {query} and {document}, perhaps {instruction}, each as often as is wanted; NULL: what
 * Qwen3-Reranker was trained on. tokenizer NULL: of a model whose head scores, for which there are no tokens of yes and of no.
 * STATUS_UNSUPPORTED: "yes" and "no" are no single tokens here. */
int rerank_template_open(const char *path, const struct tokenizer *tokenizer, struct rerank_template **out,
                         struct error *err) must_check;
void rerank_template_close(struct rerank_template *t);

/* The tokens of yes and of no. */
enum { RERANK_IDS = 2 };
const int32_t *rerank_template_ids(const struct rerank_template *t);
/* Yes's share of both, by the logits behind the prompt. */
double rerank_score(const float logits[RERANK_IDS]);

struct rerank_text {
    const char *text;
    size_t num_bytes;
};

struct rerank_pair {
    struct rerank_text instruction; /* text NULL: to search the web */
    struct rerank_text query, document;
};

enum { RERANK_RANGES_MAX = 16 };

/* Appends the prompt of a pair. untrusted: where the client's texts stand in it; returns how many. */
int rerank_template_render(const struct rerank_template *t, const struct rerank_pair *pair,
                           struct buffer *out, struct text_range untrusted[RERANK_RANGES_MAX]);

#endif
