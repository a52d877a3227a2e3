/* chat_tools.h - the list of tools with what templates read of it and a request may leave out. Thread: any. */
#ifndef SERVER_API_CHAT_TOOLS_H
#define SERVER_API_CHAT_TOOLS_H

#include <cjson/cJSON.h>
#include <stdbool.h>

/* What is done, one after the other, for a template that refuses a list of tools. */
enum chat_tools_change {
    TOOLS_WHOLE, /* a tool has a type, a description and parameters, these and objects in them properties, each of which has a
                    description; arrays have items, objects additionalProperties: empty ones where there was none */
    TOOLS_PLAIN, /* and of several types a schema has the first that is not null, and none that JSON Schema does not know; of
                    a list of items' schemas the first; true and false in place of a schema are {} */
};

/* False: nothing has changed, or there was no memory; the list is whole in any case. */
bool chat_tools_change(cJSON *tools, enum chat_tools_change change);

#endif
