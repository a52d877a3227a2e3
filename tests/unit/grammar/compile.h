/* compile.h - schemas for tests of grammars. */
#ifndef TESTS_UNIT_GRAMMAR_COMPILE_H
#define TESTS_UNIT_GRAMMAR_COMPILE_H

#include <string.h>

#include <cjson/cJSON.h>

#include "text/grammar/grammar.h"
#include "text/json_numbers.h"

/* The status of compiling; err has the sentence. */
static inline int try_schema_with(const char *text, const struct grammar_options *options,
                                  struct grammar **out, struct error *err)
{
    cJSON *schema = cJSON_Parse(text);
    if (!schema || json_keep_numbers(schema, text, strlen(text))) fail_msg("no JSON: %s", text);
    int status = grammar_from_json_schema(schema, options, out, err);
    cJSON_Delete(schema);
    return status;
}

static inline int try_schema(const char *text, struct grammar **out, struct error *err)
{
    return try_schema_with(text, &(struct grammar_options){.max_spaces = GRAMMAR_SPACES_DEFAULT}, out, err);
}

static inline struct grammar *compile_schema(const char *text)
{
    struct grammar *g = NULL;
    struct error err = {0};
    if (try_schema(text, &g, &err)) fail_msg("%s: %s", text, err.text);
    return g;
}

#endif
