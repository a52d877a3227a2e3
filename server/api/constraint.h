/* constraint.h - what a request says of its answers' form, and the grammar that comes of it.
 *
 *   response_format       {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}} or a structural_tag
 *   structured_outputs    {json | regex | choice | grammar | json_object | structural_tag, disable_any_whitespace, whitespace_pattern,
 *                         disable_additional_properties}
 *   guided_json, guided_regex, guided_choice, guided_grammar, guided_json_object
 *   guided_whitespace_pattern, json_schema, grammar, regex, ebnf
 *
 * One of them at most; another beside it is refused, as is what would change the answer and is not known. However
 * it was written, it becomes one struct constraint. Thread: any. */
#ifndef SERVER_API_CONSTRAINT_H
#define SERVER_API_CONSTRAINT_H

#include <cjson/cJSON.h>

#include "base/arena.h"
#include "server/api/api_error.h"
#include "server/grammars.h"
#include "server/server.h"

/* What answers must look like. */
struct answer_form {
    struct constraint constraint;
    const char *param;                    /* where it stands in the body; static text */
    const struct shared_grammar *grammar; /* NULL: none */
    const char *trigger; /* NULL: from the first token; else the form begins behind this text */
    bool must_begin;     /* with a trigger: the answer does not end before it has come */
};

/* Whether the body's members probably name one, whose preparation may be much work. */
bool constraint_is_named(const char *body, size_t num_bytes);
/* False only when they name none. */
bool constraint_may_be_in(const char *body, size_t num_bytes);

/* has_nul: nul_text.h. Text goes into the arena. */
int constraint_read(const struct server *server, const cJSON *body, bool has_nul, struct arena *arena,
                    struct answer_form *out, struct api_error *err) must_check;

/* Sets form->grammar; grammars_release is due. opens_reasoning: so does what the answers go on from; the form begins
 * behind that block. tools: the body's, or NULL, one of which a refusal may be about. */
int constraint_compile(const struct server *server, const cJSON *tools, bool opens_reasoning,
                       struct answer_form *form, struct api_error *err) must_check;

#endif
