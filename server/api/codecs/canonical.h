/* canonical.h - pieces of a canonical body, for codecs that build it out of something else.
 *
 * All of them allocate; what fails for lack of memory has filled t->err in, or returns NULL where said.
 * Thread: any. */
#ifndef SERVER_API_CODECS_CANONICAL_H
#define SERVER_API_CODECS_CANONICAL_H

#include "server/api/codec.h"
#include "server/api/json_field.h"

/* Something in the body that is read, and where it stands. */
struct place {
    struct translation *t;
    char path[96];
};

/* A member's string; NULL when it is absent or something else. object may be anything. */
const char *canonical_text(const cJSON *object, const char *name);
/* Whether an object's type is this one. */
bool canonical_is(const cJSON *object, const char *type);
int canonical_refuse_type(const struct place *p, const cJSON *value, const char *what);

/* A message at the end of messages, with an empty array of parts; NULL: out of memory. */
cJSON *canonical_add_message(cJSON *messages, const char *role, cJSON **parts);
int canonical_add_part(const struct place *p, cJSON *parts, const char *text) must_check;
/* A part of a tool's message that is no text, of which its type stays: unseen_parts.h. */
int canonical_add_unseen(const struct place *p, cJSON *parts, const char *type) must_check;
/* A message has at least one part. */
int canonical_fill(const struct place *p, cJSON *parts) must_check;

/* Behind the reasoning that an assistant's message has. */
int canonical_add_reasoning(struct translation *t, cJSON *message, const char *text) must_check;
/* When all messages are there: what was added to each becomes its reasoning, a line for each piece. */
int canonical_join_reasoning(struct translation *t) must_check;
/* A call of an assistant's message. Takes arguments (an object, or its text). */
int canonical_add_call(struct translation *t, cJSON *message, const char *id, const char *name,
                       cJSON *arguments) must_check;

/* A tool with the name, description and strict of flat. Takes schema (may be NULL). */
int canonical_add_tool(struct translation *t, cJSON *tools, const cJSON *flat, cJSON *schema) must_check;
/* The last of tools comes from p, unless its place is known: for errors. */
int canonical_keep_place(const struct place *p, const cJSON *tools) must_check;
/* One of a list of tools, an object: adds what it is in the canonical body to tools. */
typedef int canonical_tool_reader(const struct place *p, cJSON *tools, cJSON *tool);
/* The body's tools, out of a list of objects that read_tool knows. */
int canonical_read_tools(struct translation *t, const cJSON *value,
                         canonical_tool_reader *read_tool) must_check;
/* The protocol has one answer: n may say so. */
int canonical_read_n(struct translation *t, cJSON *value);
/* {"type":"function","function":{"name":NAME}}; NULL: out of memory. */
cJSON *canonical_named_choice(const char *name);

/* The body's response_format: an answer that follows schema, which is taken. */
int canonical_put_schema(struct translation *t, const char *name, cJSON *schema) must_check;

#endif
