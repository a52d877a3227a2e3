/* tool_variants.h - what a function's schema says of its parameters together, each alternative as a schema that lists all of them.
 *
 * For calls whose parameters are written one by one. What alternatives exclude of each other (oneOf) is not said, nor not, if and
 * what depends on others; an alternative's own alternatives are left out. Thread: pure functions. */
#ifndef TEXT_TOOLS_TOOL_VARIANTS_H
#define TEXT_TOOLS_TOOL_VARIANTS_H

struct cJSON;

/* The anyOf or oneOf of its parameters, which has some; NULL: none. */
const struct cJSON *tool_variants_alternatives(const struct cJSON *function);

/* A function whose parameters' properties and required are those of the schema itself, of each part of its allOf and of one alternative
 * (NULL: none), with its definitions; of the caller. NULL: no memory. */
struct cJSON *tool_variants_make(const struct cJSON *function, const struct cJSON *alternative);

#endif
