/* grammar.h - what an answer must look like, compiled once and followed byte by byte.
 *
 * A grammar is made from a JSON schema, a regular expression, a list of choices or an EBNF text. It is
 * immutable: any number of matchers on any threads may follow it at once. Every failure is a status and a
 * sentence that a client can act on: STATUS_INVALID (not a schema, not a pattern), STATUS_UNSUPPORTED (names
 * the keyword and where it stands; nothing that changes the meaning is ignored), STATUS_LIMIT,
 * STATUS_NO_MEMORY.
 *
 * Bounds: the work and memory of compiling are limited by the constants below whatever the input. */
#ifndef TEXT_GRAMMAR_GRAMMAR_H
#define TEXT_GRAMMAR_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum {
    GRAMMAR_STATES_MAX = 1 << 19, /* of all rules together */
    GRAMMAR_RULES_MAX = 1 << 16,
    GRAMMAR_SPACES_DEFAULT = 64,
};

struct grammar;
struct cJSON;

struct grammar_options {
    /* The most white space between two tokens of JSON; 0: none, the most compact form. */
    int max_spaces;
    /* Instead of it, unless NULL: a regular expression of the white space (spaces.h). */
    const char *whitespace_pattern;
    /* Objects whose schema lists properties (properties, patternProperties) and says nothing of others have those that are
     * listed and those that are required, and no others. JSON Schema leaves them open: such an answer is valid, too, and
     * ends sooner. */
    bool closes_objects;
};

/* schema: an object or a boolean, already parsed. Draft 2020-12, and what older drafts spelled differently.
 */
int grammar_from_json_schema(const struct cJSON *schema, const struct grammar_options *options,
                             struct grammar **out, struct error *err) must_check;
/* Any JSON object. */
int grammar_from_json_object(const struct grammar_options *options, struct grammar **out,
                             struct error *err) must_check;
/* The whole answer matches the pattern (regex.h). */
int grammar_from_regex(const char *pattern, size_t num_bytes, struct grammar **out,
                       struct error *err) must_check;
/* The answer is one of the texts. */
int grammar_from_choices(const char *const *texts, const size_t *num_bytes, int num_choices,
                         struct grammar **out, struct error *err) must_check;
/* A text in the notation of ebnf.h. */
int grammar_from_ebnf(const char *text, size_t num_bytes, struct grammar **out, struct error *err) must_check;

/* The same; a name without a rule of its own is a member of schemas, an object of JSON schemas. */
int grammar_from_ebnf_with_schemas(const char *text, size_t num_bytes, const struct cJSON *schemas,
                                   const struct grammar_options *options, struct grammar **out,
                                   struct error *err) must_check;

/* Free text in which structures of JSON begin behind certain texts (structural_tag.c). */
int grammar_from_structural_tag(const struct cJSON *tag, const struct grammar_options *options,
                                struct grammar **out, struct error *err) must_check;

void grammar_free(struct grammar *g);

/* What it holds in memory. */
size_t grammar_bytes(const struct grammar *g);

#endif
