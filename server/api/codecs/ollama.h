/* ollama.h - Ollama's protocol between its two halves: ollama_body.c reads, ollama.c writes. */
#ifndef SERVER_API_CODECS_OLLAMA_H
#define SERVER_API_CODECS_OLLAMA_H

#include "server/api/codec.h"

extern const struct codec_field ollama_chat_fields[], ollama_generate_fields[];
int ollama_translate_chat(struct translation *t) must_check;
int ollama_translate_generate(struct translation *t) must_check;

#endif
