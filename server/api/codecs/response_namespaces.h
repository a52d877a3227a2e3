/* response_namespaces.h - tools that OpenAI's Responses group in a namespace, as Codex does those of each MCP server.
 *
 * To the model each is a tool by the names of both, as MCP's hosts write them: `read` of `mcp__files` is mcp__files__read. Calls
 * tell the two apart again. Owner: all texts are the arena's, the request's. Thread: any. */
#ifndef SERVER_API_CODECS_RESPONSE_NAMESPACES_H
#define SERVER_API_CODECS_RESPONSE_NAMESPACES_H

#include "server/api/codec.h"

struct namespaced_tool {
    const char *joined, *space, *name;
    const struct namespaced_tool *next;
};

/* NULL: no memory. */
char *response_namespaces_join(struct arena *arena, const char *space, const char *name);
/* Gives a tool the joined name, where it has one, and puts it in front of the list. */
int response_namespaces_add(struct translation *t, const struct namespaced_tool **list, const char *space,
                            cJSON *tool) must_check;
/* The tool that the model knows by this name; NULL: it is of no namespace. */
const struct namespaced_tool *response_namespaces_find(const struct namespaced_tool *list,
                                                       const char *joined);
/* The one that a client names by its own name alone; NULL: there are none or several. */
const struct namespaced_tool *response_namespaces_find_own(const struct namespaced_tool *list,
                                                           const char *name);
/* The own name within a joined one. */
const char *response_namespaces_own_name(const char *space, const char *joined);

#endif
