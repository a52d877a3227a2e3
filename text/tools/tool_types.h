/* tool_types.h - what a request's list of tools says of a parameter. Thread: pure functions. */
#ifndef TEXT_TOOLS_TOOL_TYPES_H
#define TEXT_TOOLS_TOOL_TYPES_H

#include "text/tools/match.h"

struct cJSON;

/* Of a tool, which may be the function itself. */
const struct cJSON *tool_function(const struct cJSON *tool);
/* The function of this name, NULL when there is none. */
const struct cJSON *tool_find(const struct cJSON *tools, const char *name, size_t num_bytes);
/* Whether some function's name begins with it. */
bool tool_any_begins(const struct cJSON *tools, const char *name, size_t num_bytes);
/* What a schema within a function's parameters stands for: where its $ref leads, or its allOf of one schema. NULL: nowhere. */
const struct cJSON *tool_schema_follow(const struct cJSON *function, const struct cJSON *schema);
/* The function's parameters, likewise. */
const struct cJSON *tool_parameters(const struct cJSON *function);
/* The types (enum literal_type, or-ed) that such a schema allows; 0: it does not say. */
unsigned tool_schema_types(const struct cJSON *function, const struct cJSON *schema);
bool tool_requires_any(const struct cJSON *function); /* of its parameters */
/* The longest name of a parameter that stands at a place, or a MATCH_. */
ssize_t tool_match_parameter(const struct cJSON *function, struct span at);
bool tool_has_parameter(const struct cJSON *function, const char *key, size_t num_bytes);
/* The types of a parameter; of one that only alternatives of the parameters list, those of all that do. */
unsigned tool_parameter_types(const struct cJSON *function, const char *key, size_t num_bytes);

#endif
