/* token_offsets.h - where each token begins in the text of its choice: text_offset of completions.
 *
 * Counted in characters of the text that the client gets, so that text[offset:] begins with the token. A
 * token that goes on with a character begins where the character does; tokens that the text does not show
 * (an added BOS, control tokens that are skipped) take no room. Tokens are asked for in order, those of an
 * echoed prompt first. Thread: its owner's. */
#ifndef SERVER_API_TOKEN_OFFSETS_H
#define SERVER_API_TOKEN_OFFSETS_H

#include "server/api/prompts.h"

struct token_offsets {
    struct detokenizer detokenizer;
    struct buffer scratch; /* what one token decodes to */
    int64_t num_chars;     /* whole characters before the next token */
    int32_t num_hidden;    /* further tokens that the text does not show */
    int32_t num_prompt;    /* further tokens of the prompt; */
    int64_t prompt_chars;  /* all of its text */
    bool skip_special;     /* in the answer */
};

/* prompt->text NULL: the text begins with the answer. */
void token_offsets_init(struct token_offsets *o, const struct tokenizer *tokenizer,
                        const struct prompt *prompt, bool skip_special);
void token_offsets_deinit(struct token_offsets *o);

int64_t token_offsets_next(struct token_offsets *o, int32_t token_id);

/* Characters of valid UTF-8. */
int64_t count_characters(const char *text, size_t n);

#endif
