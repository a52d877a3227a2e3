/* tool_params.h - tools and tool_choice of a chat body, and what they demand of an answer. Thread: any. */
#ifndef SERVER_API_TOOL_PARAMS_H
#define SERVER_API_TOOL_PARAMS_H

#include "server/api/params.h"

/* Checks both; sets uses_tools, must_call, strict_calls and tool_name. */
int tool_params_read(const cJSON *body, struct arena *arena, struct params *out,
                     struct api_error *err) must_check;

/* Calls that must come, or must fulfil a schema, make the form of the answer: p->form. Of calls that may come,
 * the form begins with what a call begins with; where the answer has a form of its own, it is that or calls. */
int tool_params_demand(const struct server *server, const cJSON *body, struct arena *arena, struct params *p,
                       struct api_error *err) must_check;

#endif
