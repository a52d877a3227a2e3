/* ollama.h - Ollama's protocol between its two halves: ollama_body.c reads, ollama.c writes. */
#ifndef SERVER_API_CODECS_OLLAMA_H
#define SERVER_API_CODECS_OLLAMA_H

#include "server/api/codec.h"

extern const struct codec_field ollama_chat_fields[], ollama_generate_fields[];
extern const struct codec_name ollama_names[];
int ollama_translate_chat(struct translation *t) must_check;
int ollama_translate_generate(struct translation *t) must_check;

/* "2026-11-22T13:00:00.000000Z", as a JSON string. */
void ollama_append_time(struct buffer *out, uint64_t wall_ns);

#endif
