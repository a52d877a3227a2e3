/* prepare.h - from a body to params and token ids: parse, translate, validate, render, tokenise,
 * compile.
 *
 * One pure function of the body and of the server's immutable tables, so that a long body runs on the worker
 * pool and a short one inline, through the same code. Nothing of the parsed tree is left when it returns.
 * Thread: any. */
#ifndef SERVER_API_PREPARE_H
#define SERVER_API_PREPARE_H

#include "server/api/codec.h"
#include "server/api/prompts.h"

struct prepare_input {
    const struct server *server;
    const struct codec *codec;
    const char *body; /* passed json_gate */
    size_t body_bytes;
    int64_t now_seconds;
    int api_key_idx;
};

/* prompts_deinit is due on failure too; params->form.grammar, unless NULL, is to be released. */
int prepare_run(const struct prepare_input *in, struct arena *arena, struct params *params,
                struct prompts *prompts, struct api_error *err) must_check;

/* The body as a tree; NULL with err filled in. */
cJSON *prepare_parse(const char *body, size_t body_bytes, struct api_error *err);

#endif
