#include "scheduler/answer_rule.h"

#include <string.h>

#include "base/check.h"

static bool is_end(const struct answer_rule *rule, int32_t id)
{
    for (int32_t i = 0; i < rule->num_ends; i++)
        if (rule->ends[i] == id) return true;
    return false;
}

static bool follows_header(const struct answer_rule *rule, const int32_t *tokens, int32_t position)
{
    int32_t n = rule->num_header;
    if (n == 0 || position < n || tokens[position - 1] != rule->header[n - 1]) return false;
    return memcmp(tokens + position - n, rule->header, (size_t)n * sizeof(tokens[0])) == 0;
}

bool answer_rule_push(const struct answer_rule *rule, const int32_t *tokens, int32_t position,
                      bool *in_answer)
{
    bool open = *in_answer || follows_header(rule, tokens, position);
    *in_answer = open && !is_end(rule, tokens[position]);
    return *in_answer && position < ANSWER_POSITION_MAX;
}

void answer_run_find(const struct answer_rule *rule, const int32_t *tokens, int32_t num_tokens,
                     int32_t position, struct answer_run *run)
{
    assert_always(position < num_tokens);
    if (position < run->begin) *run = (struct answer_run){0};
    while (run->end <= position) {
        bool in_answer = run->in_answer;
        run->begin = run->end;
        run->decodes = answer_rule_push(rule, tokens, run->end++, &run->in_answer);
        for (; run->end < num_tokens; run->end++) {
            in_answer = run->in_answer;
            if (answer_rule_push(rule, tokens, run->end, &in_answer) != run->decodes) break;
            run->in_answer = in_answer;
        }
    }
}
