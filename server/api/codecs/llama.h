/* llama.h - llama.cpp's own protocol, /completion and /infill: what llama_body.c keeps of a body, and the members that a
 * client picks out of an answer. */
#ifndef SERVER_API_CODECS_LLAMA_H
#define SERVER_API_CODECS_LLAMA_H

#include "server/api/codec.h"

enum { RESPONSE_FIELDS_MAX = 256 };

/* params->kept; in the arena. */
struct llama_kept {
    const char *const *response_fields; /* paths of members, their names with '/' between; they differ */
    int num_response_fields;            /* at most RESPONSE_FIELDS_MAX; -1: all of the answer */
};

extern const struct codec_field llama_completion_fields[], llama_infill_fields[];
extern const struct codec_name llama_names[], llama_infill_names[];
int llama_translate_completion(struct translation *t) must_check;
int llama_translate_infill(struct translation *t) must_check;

/* Appends an object of the members of object, which is JSON of our own, that the paths lead to, each named by its path. */
void llama_pick_fields(struct buffer *out, const char *object, const struct llama_kept *kept);

#endif
