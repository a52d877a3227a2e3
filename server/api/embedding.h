/* embedding.h - the form in which a client wants its embedding, and the embedding in it. Thread: any. */
#ifndef SERVER_API_EMBEDDING_H
#define SERVER_API_EMBEDDING_H

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "server/api/api_error.h"
#include "server/server.h"

struct embedding_form {
    bool base64;        /* of little-endian floats, instead of numbers */
    bool normalized;    /* to length 1 */
    int32_t dimensions; /* the first so many, 1 to the model's hidden size; cut before they are normalized */
};

/* encoding_format, dimensions and normalize of a canonical body. */
int embedding_form_read(const struct server *server, const cJSON *body, struct embedding_form *out,
                        struct api_error *err) must_check;

/* The first form->dimensions values of row as JSON: an array of numbers that read as the same floats, or a string.
 * A row of zeros has no direction and stays one of zeros. */
void embedding_append(struct buffer *out, const float *row, const struct embedding_form *form);

#endif
