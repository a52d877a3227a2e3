/* lexer.h - a template's source as tokens, with jinja2's rules for white space around tags.
 *
 * trim_blocks: the newline right after a block or comment end is dropped. lstrip_blocks: white space between
 * the start of a line and a block or comment begin is dropped. `-` strips all white space on its side, `+`
 * keeps it. Newlines become \n, and one at the very end of the template is dropped. */
#ifndef TEXT_JINJA_LEXER_H
#define TEXT_JINJA_LEXER_H

#include "text/jinja/ast.h"

enum token_kind {
    TOKEN_DATA,
    TOKEN_VARIABLE_BEGIN,
    TOKEN_VARIABLE_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_OPERATOR,
    TOKEN_END,
};

struct token {
    enum token_kind kind : 8;
    char op[3]; /* operator: its one or two characters */
    int line;
    const char *bytes; /* data, name, string (escapes resolved) */
    size_t num_bytes;
    int64_t integer;
    double real;
};

/* Ends with TOKEN_END. */
int lexer_run(struct heap *h, const char *source, size_t num_bytes, struct token **tokens, int *num_tokens,
              struct error *err) must_check;

#endif
