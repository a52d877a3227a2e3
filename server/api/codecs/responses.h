/* responses.h - OpenAI's Responses between its parts: responses_body.c reads, responses.c writes, responses_echo.c tells again. */
#ifndef SERVER_API_CODECS_RESPONSES_H
#define SERVER_API_CODECS_RESPONSES_H

#include "server/api/codecs/response_namespaces.h"

/* What the answer tells of its request; in the request's arena. */
struct responses_request {
    char *echo;              /* its fields as the members of an object, beginning with a comma */
    char *history;           /* the messages that it continues, a JSON array; NULL: they are not kept */
    size_t referenced_bytes; /* of the stored responses that items of the input were looked for in */
    const struct namespaced_tool *namespaced; /* the tools of namespaces */
};

extern const struct codec_field responses_fields[];
extern const struct codec_name responses_names[];
int responses_begin(struct translation *t) must_check;
/* Whether what is told of body, as it came, can be; and telling it, beginning with a comma. */
int responses_check_echo(struct translation *t) must_check;
void responses_append_echo(struct buffer *out, const cJSON *body);
int responses_translate(struct translation *t) must_check;

#endif
