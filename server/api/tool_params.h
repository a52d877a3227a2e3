/* tool_params.h - tools and tool_choice of a chat body, and what they demand of an answer. Thread: any. */
#ifndef SERVER_API_TOOL_PARAMS_H
#define SERVER_API_TOOL_PARAMS_H

#include "server/api/params.h"

/* Checks both; sets uses_tools, must_call, strict_calls and tool_name. */
int tool_params_read(const cJSON *body, struct arena *arena, struct params *out,
                     struct api_error *err) must_check;

/* Calls that must come, or must fulfil a schema, make the form of the answer: p->form. Of calls that may come,
 * the form begins with what a call begins with; where the answer has a form of its own, it is that or calls. is_free: of
 * tool_demand. */
int tool_params_demand(const struct server *server, const cJSON *body, const bool *is_free,
                       struct arena *arena, struct params *p, struct api_error *err) must_check;
/* Of a refusal of that form, or of its grammar: the place of the tool whose schema it is about, which is not strict; -1: of none. */
int tool_params_find_loose(const cJSON *tools, const struct api_error *refusal);

#endif
