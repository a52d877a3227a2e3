/* tool_params.h - tools and tool_choice of a chat body. Thread: any. */
#ifndef SERVER_API_TOOL_PARAMS_H
#define SERVER_API_TOOL_PARAMS_H

#include "server/api/params.h"

/* Checks both; sets out->uses_tools. */
int tool_params_read(const cJSON *body, struct params *out, struct api_error *err) must_check;

#endif
