/* json_text.h - the parts of JSON's notation as states and rules of a program. */
#ifndef TEXT_GRAMMAR_JSON_TEXT_H
#define TEXT_GRAMMAR_JSON_TEXT_H

#include "text/grammar/builder.h"

/* Makes the classes of characters of a string, CLASS_ANY and CLASS_CANONICAL; called first. */
void json_add_classes(struct builder *b);

/* A string of min to max characters (NO_LIMIT: any number), with its quotes. */
uint32_t json_string_rule(struct builder *b, uint32_t min, uint32_t max);

uint32_t json_integer_rule(struct builder *b);
uint32_t json_number_rule(struct builder *b);
/* Any value, any object. */
struct json_any {
    uint32_t value, object;
};
struct json_any json_any_rules(struct builder *b);

#endif
