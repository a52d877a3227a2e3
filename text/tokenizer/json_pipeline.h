/* json_pipeline.h - the parts of tokenizer.json around the model: normalizer, pre-tokenizer, decoder,
 * post-processor.
 *
 * Only known shapes are understood; for any other there is a sentence that names what is not supported. */
#ifndef TEXT_TOKENIZER_JSON_PIPELINE_H
#define TEXT_TOKENIZER_JSON_PIPELINE_H

#include <cjson/cJSON.h>

#include "text/tokenizer/tables.h"

/* Before the tokens are added: how they are spelled depends on it. */
int json_read_pipeline(struct tokenizer *t, const cJSON *root, struct error *err) must_check;

/* After the tokens are there: it names some. */
int json_read_post_processor(struct tokenizer *t, const cJSON *root, struct error *err) must_check;

#endif
