#include "server/constrained_answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "base/id_list.h"
#include "base/utf8.h"
#include "text/grammar/forecast.h"
#include "text/grammar/mask.h"
#include "text/grammar/matcher.h"
#include "text/tokenizer.h"

/* The engine ends the answer with it. */
static bool is_stop(const struct mask_language *l, const struct constrained_answer *a, int32_t id)
{
    return (!a->ignore_eos && id_list_has(l->end_ids, l->num_end_ids, id)) ||
           id_list_has(a->stop_token_ids, a->num_stop_token_ids, id);
}

static bool is_empty(const uint64_t *words, size_t num_words)
{
    for (size_t i = 0; i < num_words; i++)
        if (words[i]) return false;
    return true;
}

/* How many bytes of a free text's begin complete the trigger; num_bytes + 1: it is not there yet. */
static size_t find_trigger(struct constrained_answer *a, const char *bytes, size_t num_bytes)
{
    size_t matched = a->place.matched_bytes, i = 0;
    while (i < num_bytes && matched < a->trigger_bytes) {
        /* A trigger is short: what was matched is looked through again where it fails. */
        while (matched > 0 && a->trigger[matched] != bytes[i]) {
            size_t shorter = matched - 1;
            while (shorter > 0 && memcmp(a->trigger, a->trigger + matched - shorter, shorter) != 0) shorter--;
            matched = shorter;
        }
        matched += a->trigger[matched] == bytes[i++];
    }
    a->place.matched_bytes = matched;
    return matched == a->trigger_bytes ? i : num_bytes + 1;
}

static bool is_free(const struct constrained_answer *a)
{
    return a->place.matched_bytes < a->trigger_bytes;
}

/* What counts for the grammar: behind the trigger. Nothing has changed where that does not take it. */
static int move_on(const struct mask_language *l, struct constrained_answer *a, int32_t id)
{
    const struct answer_place place = a->place;
    size_t num_bytes, skip = 0;
    const char *bytes = tokenizer_token_bytes(grammars_tokenizer(l->grammars), id, &num_bytes);
    if (!a->shared) return 0;
    if (is_free(a)) skip = find_trigger(a, bytes, num_bytes);
    if (is_free(a) || (skip > 0 && skip == num_bytes)) return 0;
    int status = matcher_accept(a->matcher, bytes + skip, num_bytes - skip);
    a->place.num_accepted++;
    spacing_take(&a->place.spacing, bytes + skip, num_bytes - skip);
    if (status) a->place = place;
    return status;
}

/* The token has come, those ahead are behind it. */
static void keep_last(struct constrained_answer *a, int32_t id)
{
    int32_t reach = a->limits ? token_limits_reach(a->limits) : 0;
    if (reach == 0) return;
    a->last[a->num_last++] = id;
    if (a->num_last <= reach) return;
    a->num_last = reach;
    memmove(a->last, a->last + 1, (size_t)(reach + a->num_ahead) * sizeof *a->last);
}

static void go_back(struct constrained_answer *a, int32_t num_ahead)
{
    if (a->num_ahead == num_ahead) return;
    const struct answer_place *to = &a->before[num_ahead];
    int32_t num = a->place.num_accepted - to->num_accepted;
    int status = num > 0 ? matcher_rollback(a->matcher, num) : 0;
    assert_always(status == 0);
    a->place = *to;
    a->num_ahead = num_ahead;
}

static void forget_guess(struct constrained_answer *a)
{
    go_back(a, 0);
    a->num_guessed = 0;
}

/* The first guessed token has come. */
static void pass_guess(struct constrained_answer *a)
{
    memmove(a->guess, a->guess + 1, (size_t)--a->num_guessed * sizeof a->guess[0]);
    if (a->num_ahead == 0) return;
    memmove(a->before, a->before + 1, (size_t)--a->num_ahead * sizeof a->before[0]);
}

static int take_token(const struct mask_language *l, struct constrained_answer *a, int32_t id)
{
    bool came_true = a->num_guessed > 0 && a->guess[0] == id;
    a->has_mask = came_true && a->num_ahead > 0;
    if (came_true)
        pass_guess(a);
    else
        forget_guess(a);
    a->num_taken++;
    keep_last(a, id);
    return a->has_mask || is_stop(l, a, id) ? 0 : move_on(l, a, id);
}

/* What ends an answer, beside the grammar. */
static void add_ends(const struct mask_language *l, const struct constrained_answer *a, uint64_t *words)
{
    bool may_stop = a->num_taken + a->num_ahead >= a->min_tokens;
    bool may_end = may_stop && matcher_can_end(a->matcher);
    for (int32_t i = 0; i < l->num_end_ids && may_end && !a->ignore_eos; i++)
        bit_set_add(words, (size_t)l->end_ids[i]);
    for (int32_t i = 0; i < a->num_stop_token_ids; i++) {
        size_t id = (size_t)a->stop_token_ids[i];
        if (!may_stop) bit_set_remove(words, id);
        if (may_end) bit_set_add(words, id);
    }
}

/* An answer that has to come does not end in front of it; a client's own stops end it anywhere. */
static void remove_model_ends(const struct mask_language *l, uint64_t *words)
{
    for (int32_t i = 0; i < l->num_end_ids; i++) bit_set_remove(words, (size_t)l->end_ids[i]);
}

/* The engine draws none of them before min_tokens, so that with them alone nothing is left. */
static void remove_ends(const struct mask_language *l, const struct constrained_answer *a, uint64_t *words)
{
    if (a->num_taken + a->num_ahead >= a->min_tokens) return;
    remove_model_ends(l, words);
    for (int32_t i = 0; i < a->num_stop_token_ids; i++) bit_set_remove(words, (size_t)a->stop_token_ids[i]);
}

/* Behind those that are gone ahead of. */
static int32_t num_last(const struct constrained_answer *a)
{
    return token_limits_reach(a->limits) > 0 ? a->num_last + a->num_ahead : 0;
}

/* What the form wants next has no token, or none that the limits leave. */
static bool is_stuck(const struct constrained_answer *a)
{
    return a->shared && !is_free(a) && !matcher_can_end(a->matcher);
}

int constrained_answer_make(struct constrained_answer *a, const struct mask_language *l,
                            struct mask_scratch *scratch, int32_t *state)
{
    if (!a->shared || is_free(a)) {
        memset(scratch->words, 0xFF, l->num_words * sizeof *scratch->words);
        if (a->shared && a->must_begin) remove_model_ends(l, scratch->words);
    } else {
        if (!scratch->maker && mask_maker_new(a->shared->vocabulary, &scratch->maker))
            return STATUS_NO_MEMORY;
        int status = mask_fill(scratch->maker, a->matcher, a->shared->masks, scratch->words);
        a->last_work = mask_maker_work(scratch->maker);
        a->work += a->last_work;
        if (status) return status;
        add_ends(l, a, scratch->words);
    }
    if (a->limits) {
        remove_ends(l, a, scratch->words);
        token_limits_apply(a->limits, a->last, num_last(a), scratch->words);
    }
    const bool has_ended = is_empty(scratch->words, l->num_words);
    *state = has_ended ? MASK_ENDED : a->num_taken + 1;
    return has_ended && is_stuck(a) ? STATUS_NOT_FOUND : 0;
}

int constrained_answer_take(struct constrained_answer *a, const struct mask_language *l, const int32_t *ids,
                            int32_t num_ids)
{
    int status = a->matcher || !a->shared ? 0 : matcher_new(a->shared->grammar, &a->matcher);
    for (int32_t i = 0; i < num_ids && status == 0; i++) status = take_token(l, a, ids[i]);
    return status;
}

/* ---- what will come next ---- */

/* The first ids that stand for the text's first bytes: a tokenizer may put something before a text. Returns how many. */
static int32_t num_that_fit(const struct mask_language *l, const struct token_list *list, const char *text,
                            size_t num_bytes)
{
    int32_t num = 0;
    for (size_t at = 0, n; num < list->num_ids; at += n, num++) {
        const char *bytes = tokenizer_token_bytes(grammars_tokenizer(l->grammars), list->ids[num], &n);
        if (n == 0 || n > num_bytes - at || memcmp(bytes, text + at, n) != 0) break;
    }
    return num;
}

/* A model goes on as its tokenizer would. */
static int32_t tokenize(const struct mask_language *l, const struct constrained_answer *a, const char *text,
                        size_t num_bytes, int32_t *ids, int32_t max)
{
    struct token_list list = {0};
    (void)!tokenizer_encode(grammars_tokenizer(l->grammars), text, num_bytes, NULL, 0, 0, max, &list);
    int32_t num = num_that_fit(l, &list, text, num_bytes);
    if (num > 0) memcpy(ids, list.ids, (size_t)num * sizeof ids[0]);
    token_list_deinit(&list);
    return num > 0 ? num : forecast_tokens(a->shared->vocabulary, text, num_bytes, ids, max);
}

/* Of a text that may end within a character. */
static size_t whole_characters(const char *text, size_t num_bytes)
{
    while (num_bytes > 0 && !utf8_is_valid((const unsigned char *)text, num_bytes)) num_bytes--;
    return num_bytes;
}

/* Where there is a form that leaves no choice. Returns how many ids. */
static int32_t guess_by_form(struct constrained_answer *a, const struct mask_language *l, int32_t max_tokens)
{
    char text[FORECAST_BYTES_MAX];
    if (!a->shared || is_free(a)) return 0;
    size_t num_bytes = whole_characters(text, forecast_text(a->matcher, &a->place.spacing, text));
    return num_bytes > 0 ? tokenize(l, a, text, num_bytes, a->guess, max_tokens) : 0;
}

void constrained_answer_guess(struct constrained_answer *a, const struct mask_language *l, int32_t max_tokens,
                              const struct answer_offer *offer)
{
    if (max_tokens == 0 || a->num_guessed > 0) return;
    int32_t num = guess_by_form(a, l, max_tokens);
    a->is_offered = num == 0;
    if (a->is_offered) {
        num = min_of(offer->num, max_tokens);
        memcpy(a->guess, offer->ids, (size_t)num * sizeof a->guess[0]);
    }
    while (a->num_guessed < num && !is_stop(l, a, a->guess[a->num_guessed])) a->num_guessed++;
}

/* Past the next guessed token. False: it may not come. */
static bool step_ahead(const struct mask_language *l, struct constrained_answer *a)
{
    int32_t id = a->guess[a->num_ahead];
    const struct answer_place before = a->place;
    if (a->limits && !token_limits_let(a->limits, a->last, num_last(a), id)) return false;
    if (move_on(l, a, id)) return false;
    if (a->limits && token_limits_reach(a->limits) > 0) a->last[num_last(a)] = id;
    a->before[a->num_ahead++] = before;
    return true;
}

bool constrained_answer_go_ahead(struct constrained_answer *a, const struct mask_language *l,
                                 struct mask_scratch *scratch)
{
    int32_t state = MASK_NONE, num_ahead = a->num_ahead;
    if (step_ahead(l, a)) {
        if (constrained_answer_make(a, l, scratch, &state) == 0 && state != MASK_ENDED) return true;
        go_back(a, num_ahead);
    }
    a->num_guessed = num_ahead;
    return false;
}

/* ---- life ---- */

int constrained_answer_init(struct constrained_answer *a, const struct mask_language *l,
                            const struct request_slot_input *input, const struct mask_rules *rules)
{
    const char *trigger = rules->trigger;
    int32_t reach = rules->limits ? token_limits_reach(rules->limits) : 0;
    *a = (struct constrained_answer){.min_tokens = input->min_tokens,
                                     .ignore_eos = input->ignore_eos,
                                     .must_begin = rules->must_begin,
                                     .num_stop_token_ids = input->num_stop_token_ids,
                                     .trigger_bytes = trigger ? strlen(trigger) : 0};
    assert_always(a->trigger_bytes <= TRIGGER_BYTES_MAX);
    spacing_init(&a->place.spacing);
    memcpy(a->stop_token_ids, input->stop_token_ids, sizeof a->stop_token_ids);
    memcpy(a->trigger, trigger ? trigger : "", a->trigger_bytes);
    if (reach > 0 && !(a->last = malloc((size_t)(reach + GUESS_TOKENS_MAX) * sizeof *a->last)))
        return STATUS_NO_MEMORY;
    a->shared = rules->grammar ? grammars_hold(l->grammars, rules->grammar) : NULL;
    a->limits = token_limits_hold(rules->limits);
    return 0;
}

void constrained_answer_deinit(struct constrained_answer *a, const struct mask_language *l)
{
    matcher_free(a->matcher);
    grammars_release(l->grammars, a->shared);
    token_limits_release(a->limits);
    free(a->last);
}
