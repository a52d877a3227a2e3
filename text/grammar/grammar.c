#include <stdlib.h>

#include "base/check.h"
#include "text/grammar/builder.h"
#include "text/grammar/json_text.h"
#include "text/grammar/regex.h"
#include "text/grammar/repetition.h"
#include "text/grammar/symbol_states.h"
#include "text/grammar/text_tree.h"

/* A grammar of one rule, which begins in start. */
static int finish(struct builder *b, uint32_t start, struct grammar **out, struct error *err)
{
    uint32_t rule = builder_rule(b);
    builder_set_start(b, rule, start);
    int status = builder_finish(b, rule, false, out, err);
    builder_deinit(b);
    return status;
}

static int from_repetition(const struct regex_repetition *r, struct grammar **out, struct error *err)
{
    struct builder b;
    builder_init(&b, 0);
    json_add_classes(&b);
    return finish(&b, repetition_state(&b, r), out, err);
}

static int from_pattern(const char *pattern, size_t num_bytes, struct grammar **out, struct error *err)
{
    const struct regex_options options = {.text = REGEX_UTF8, .whole = true};
    struct builder b;
    uint32_t start;
    builder_init(&b, 0);
    json_add_classes(&b);
    int status = symbol_states_of_pattern(&b, pattern, num_bytes, &options, -1, BUILDER_FINAL, &start, err);
    if (status == 0 && start == STATE_DEAD && !builder_status(&b))
        status = error_set(err, STATUS_INVALID, "no text matches");
    if (status == 0) return finish(&b, start, out, err);
    builder_deinit(&b);
    return status;
}

int grammar_from_regex(const char *pattern, size_t num_bytes, struct grammar **out, struct error *err)
{
    struct regex_repetition repetition;
    *out = NULL;
    if (!regex_is_repetition(pattern, num_bytes, REGEX_UTF8, true, &repetition))
        return from_pattern(pattern, num_bytes, out, err);
    int status = from_repetition(&repetition, out, err);
    dfa_deinit(&repetition.one);
    return status;
}

int grammar_from_choices(const char *const *texts, const size_t *num_bytes, int num_choices,
                         struct grammar **out, struct error *err)
{
    struct builder b;
    struct tree_text *choices = calloc((size_t)max_of(num_choices, 1), sizeof *choices);
    *out = NULL;
    if (!choices) return error_set(err, STATUS_NO_MEMORY, "no memory for the choices");
    if (num_choices == 0) {
        free(choices);
        return error_set(err, STATUS_INVALID, "there are no choices");
    }
    for (int i = 0; i < num_choices; i++) choices[i] = (struct tree_text){texts[i], num_bytes[i]};
    builder_init(&b, 0);
    uint32_t start = text_tree_state(&b, choices, (uint32_t)num_choices);
    free(choices);
    if (builder_status(&b) != STATUS_LIMIT) return finish(&b, start, out, err);
    builder_deinit(&b);
    return error_set(err, STATUS_LIMIT, "the choices are too long: more than %d bytes together",
                     GRAMMAR_STATES_MAX);
}

void grammar_free(struct grammar *g)
{
    if (!g) return;
    free(g->states);
    free(g->edges);
    free(g->calls);
    free(g->loops);
    free(g->classes);
    free(g->entries);
    free(g->objects);
    free(g->keys);
    free(g->rules);
    free(g->spaces);
    free(g);
}

size_t grammar_bytes(const struct grammar *g)
{
    return g->num_bytes;
}
