/* endpoint_tokenizer_info.h - what clients of several servers ask of the template. Thread: loop. */
#ifndef SERVER_API_ENDPOINT_TOKENIZER_INFO_H
#define SERVER_API_ENDPOINT_TOKENIZER_INFO_H

struct buffer;
struct server;

/* "bos_token":..., "eos_token":..., "chat_template":..., each null where there is none. */
void append_template_and_tokens(struct buffer *out, const struct server *server);

#endif
