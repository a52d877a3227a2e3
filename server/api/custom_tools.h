/* custom_tools.h - OpenAI's custom tools: those that take a text, where a function takes an object.
 *
 * To the model a custom tool is a function with one parameter, `input`, a string; a regular expression as its format is that
 * parameter's pattern and is held. A Lark grammar is told to the model and not held, which the answer's head says. Of a call's
 * arguments the client sees the input alone. Thread: any but where it says otherwise. */
#ifndef SERVER_API_CUSTOM_TOOLS_H
#define SERVER_API_CUSTOM_TOOLS_H

#include "server/api/codec.h"

/* Tools, tool_choice and earlier calls of a canonical chat become functions'; t->custom_tools has their names. */
int custom_tools_become_functions(struct translation *t) must_check;

/* Marks those of the tools that were custom, for custom_tools_find. */
int custom_tools_mark(cJSON *tools, const cJSON *names) must_check;
bool custom_tools_find(const cJSON *tools, const char *name);

/* {"input": TEXT}, as JSON; the caller frees it with cJSON_free. NULL: no memory. */
char *custom_tools_print_input(const char *input);

#endif
