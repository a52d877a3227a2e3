/* messages.h - Anthropic's Messages between its two halves: messages_body.c reads, messages.c writes. */
#ifndef SERVER_API_CODECS_MESSAGES_H
#define SERVER_API_CODECS_MESSAGES_H

#include "server/api/codec.h"

extern const struct codec_field messages_fields[];
extern const struct codec_name messages_names[];
/* Of what the fields have left behind. */
int messages_translate(struct translation *t) must_check;

#endif
