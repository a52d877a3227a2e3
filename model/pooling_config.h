/* pooling_config.h - what a model's files say about how an embedding is made of hidden states. Thread: any. */
#ifndef MODEL_POOLING_CONFIG_H
#define MODEL_POOLING_CONFIG_H

#include "files/gguf.h"
#include "model/model_config.h"

/* sentence-transformers' modules.json of a Hugging Face directory, and the folders of its pooling and of the dense layers behind it.
 * Without one, and where it cannot be read: otherwise. *dense: none unless the pooling is known. */
enum pooling pooling_config_read_hf(const char *directory, enum pooling otherwise, struct dense_chain *dense);

/* Tokens of the longest text that it is for, as sentence_bert_config.json says; 0: nobody says. */
int64_t pooling_config_longest_hf(const char *directory);

/* GGUF's pooling_type of this architecture; where it says nothing: otherwise. *is_reranker: it is that of one. */
enum pooling pooling_config_read_gguf(const struct gguf *g, const char *architecture, enum pooling otherwise,
                                      bool *is_reranker);
/* Those layers, of a GGUF file. */
void pooling_config_read_dense(const struct gguf *g, struct dense_chain *dense);

#endif
