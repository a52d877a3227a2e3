/* responses.h - OpenAI's Responses between its two halves: responses_body.c reads, responses.c writes. */
#ifndef SERVER_API_CODECS_RESPONSES_H
#define SERVER_API_CODECS_RESPONSES_H

#include "server/api/codec.h"

/* What the answer tells of its request; in the request's arena. */
struct responses_request {
    char *echo;    /* its fields as the members of an object, beginning with a comma */
    char *history; /* the messages that it continues, a JSON array; NULL: they are not kept */
};

extern const struct codec_field responses_fields[];
extern const struct codec_name responses_names[];
int responses_begin(struct translation *t) must_check;
int responses_translate(struct translation *t) must_check;

#endif
