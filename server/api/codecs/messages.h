/* messages.h - Anthropic's Messages between its two halves: messages_body.c reads, messages.c writes. */
#ifndef SERVER_API_CODECS_MESSAGES_H
#define SERVER_API_CODECS_MESSAGES_H

#include "server/api/codecs/canonical.h"

extern const struct codec_field messages_fields[];
extern const struct codec_name messages_names[];
/* Of what the fields have left behind. */
int messages_translate(struct translation *t) must_check;

/* Documents and search results: a block that is one (messages_documents.c), as a part of text. */
bool messages_is_document(const cJSON *block);
int messages_add_document(const struct place *p, cJSON *parts, const cJSON *block, bool is_tools) must_check;

#endif
