/* answer_rule.h - with which half of a step the K and V of a token are made, where the halves differ in bits: a function of the
 * tokens up to it, and of nothing else.
 *
 * What a model generates goes through decode. In the next turn of a conversation the same tokens are a prompt; were they
 * computed as prompts are, blocks of an answer could not be shared. So a prompt's tokens behind the answer header (the tokens
 * with which the chat template begins an answer) go through decode as well, up to the next end of generation:
 *
 *   ... user's words | header | answer ........ | end | ... user's words | header | ...
 *      prompt                   decode            prompt                          decode
 *
 * From token ANSWER_POSITION_MAX on all are of the prompt kind, since a run of decoding rows reads all before it for each row:
 * what is generated there is not shared. A rule without a header: so are all tokens. Pure. */
#ifndef SCHEDULER_ANSWER_RULE_H
#define SCHEDULER_ANSWER_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "link/sampling.h"

enum { ANSWER_POSITION_MAX = 8192 };

struct answer_rule {
    int32_t num_header, num_ends;
    int32_t header[ANSWER_HEADER_MAX], ends[EOS_IDS_MAX];
};

/* Tokens [begin, end) are of one kind, and in_answer says whether those before end leave an answer open. Zeros at first. */
struct answer_run {
    int32_t begin, end;
    bool decodes, in_answer;
};

/* Whether tokens[position] is of the decode kind. *in_answer: what the tokens before it leave open, and afterwards those up to
 * it; false before the first. */
bool answer_rule_push(const struct answer_rule *rule, const int32_t *tokens, int32_t position,
                      bool *in_answer);

/* Moves run to the one with the token at position, which ends at num_tokens at the latest: position < num_tokens, which is the
 * same for all calls. */
void answer_run_find(const struct answer_rule *rule, const int32_t *tokens, int32_t num_tokens,
                     int32_t position, struct answer_run *run);

#endif
