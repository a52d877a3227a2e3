/* tool_types.h - what a request's list of tools says of a parameter. Thread: pure functions. */
#ifndef TEXT_TOOLS_TOOL_TYPES_H
#define TEXT_TOOLS_TOOL_TYPES_H

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* The function of this name, NULL when there is none. */
const struct cJSON *tool_find(const struct cJSON *tools, const char *name, size_t num_bytes);
/* Whether some function's name begins with it. */
bool tool_any_begins(const struct cJSON *tools, const char *name, size_t num_bytes);
/* The types (enum literal_type, or-ed) that the schema allows a parameter; 0: it does not say. */
unsigned tool_parameter_types(const struct cJSON *function, const char *key, size_t num_bytes);

#endif
