/* text_generation.h - the protocol of Text Generation Inference, /generate, /generate_stream and POST /, between its two
 * halves: text_generation_body.c reads, text_generation.c writes. */
#ifndef SERVER_API_CODECS_TEXT_GENERATION_H
#define SERVER_API_CODECS_TEXT_GENERATION_H

#include "server/api/codec.h"

/* params->kept; in the arena. */
struct text_generation_kept {
    const char *inputs; /* the prompt, which stands before the text where full_text says so; num_bytes */
    size_t num_bytes;
    bool full_text, details, is_list;
    bool samples;    /* do_sample */
    int64_t num_top; /* alternatives told of each token; 0: none */
};

extern const struct codec_field text_generation_fields[];
extern const struct codec_name text_generation_names[];
/* Before the fields: the answer is whole, a stream, or what stream says, and then whole as a list of one. */
int text_generation_begin_whole(struct translation *t) must_check;
int text_generation_begin_stream(struct translation *t) must_check;
int text_generation_begin_either(struct translation *t) must_check;
int text_generation_translate(struct translation *t) must_check;

#endif
