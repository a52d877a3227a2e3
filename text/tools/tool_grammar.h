/* tool_grammar.h - answers that must be calls, or calls or JSON, as a grammar.
 *
 * Names and arguments are those of the request's tools: JSON by each function's schema, tagged parameters in the
 * schema's order, each by its own. A raw string is one of its enum, or a text without its closing mark that its pattern,
 * format and lengths allow. Where a model writes arguments as a string, or lists and objects with quotes of its own, a call
 * has them as JSON, which the parser reads, too.
 * Refused with a sentence: many parameters that refer to large definitions, and what grammar.h refuses.
 * Thread: pure functions. */
#ifndef TEXT_TOOLS_TOOL_GRAMMAR_H
#define TEXT_TOOLS_TOOL_GRAMMAR_H

#include "text/grammar/grammar.h"
#include "text/tools/tool_format.h"

struct tool_demand {
    const struct cJSON *tools;
    const char *name; /* the one function that may be called; NULL: any */
    const struct cJSON
        *allowed;     /* objects that name functions, as tools do: no other may be called; NULL: any */
    bool is_parallel; /* more than one call */
    /* A tool's by its place, also where calls must come: unless strict, its arguments are any object, or have any values. NULL: none */
    const bool *is_free;
    /* The answer's text is free until tool_grammar_trigger, the grammar begins behind it. Where there is no trigger the grammar
     * is that of the whole answer: calls, or a text that begins otherwise. */
    bool behind_trigger;
    /* The schema of an answer that calls nothing; NULL: it must call, behind a trigger if there is one. Where it need not
     * call, the arguments of functions that are not strict are any object, or have any values. */
    const struct cJSON *answer;
};

/* What a call begins with and plain text does not; never empty. NULL: calls begin with one character ("[" of a list), which any
 * text may have. */
const char *tool_grammar_trigger(const struct tool_format *f);

/* The EBNF's text and the schemas that it names (an empty object, which is filled). */
int tool_grammar_write(const struct tool_format *f, const struct tool_demand *demand, struct buffer *ebnf,
                       struct cJSON *schemas, struct error *err) must_check;
/* What a refusal of it, or of that grammar, says of a schema, without the name that it begins with. path: the request's field that the
 * schema is; "": none of a tool. */
const char *tool_grammar_find_field(const struct cJSON *tools, const char *refusal, char *path,
                                    size_t capacity);
/* Both, compiled. */
int tool_grammar_make(const struct tool_format *f, const struct tool_demand *demand,
                      const struct grammar_options *options, struct grammar **out,
                      struct error *err) must_check;

#endif
