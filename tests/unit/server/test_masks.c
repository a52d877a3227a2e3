/* Masks of constrained slots: the test is the engine, which publishes tokens and asks for what may follow. The
 * tokens are bytes and a few words (fake_tokenizer.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/step.h"
#include "server/masks.h"
#include "unit/server/fake_tokenizer.h"

enum { NUM_SLOTS = 4, MAX_MODEL_LEN = 512, NUM_PROMPT = 2 };

static struct link *link_;
static struct grammars *grammars;
static struct masks *masks;
static struct tokenizer *const tokenizer = (struct tokenizer *)(uintptr_t)1;

static int set_up(void **state)
{
    (void)state;
    struct error err;
    const struct link_facts facts = {.num_slots = NUM_SLOTS,
                                     .max_model_len = MAX_MODEL_LEN,
                                     .vocab_size = FAKE_LOGITS_WIDTH,
                                     .num_guess_tokens = GUESS_TOKENS_MAX,
                                     .eos_ids = {FAKE_EOS},
                                     .num_eos_ids = 1};
    assert_int_equal(link_create(&link_, &err), 0);
    assert_int_equal(link_open(link_, &facts, &err), 0);
    assert_int_equal(grammars_create(tokenizer, &facts, &grammars, &err), 0);
    assert_int_equal(masks_create(link_, grammars, &masks, &err), 0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    masks_destroy(masks);
    grammars_destroy(grammars);
    link_destroy(link_);
    return 0;
}

static struct request_slot *slot_of(int32_t slot_idx)
{
    return request_slots_get(link_slots(link_), slot_idx);
}

static const struct shared_grammar *regex(const char *pattern)
{
    struct error err;
    const struct shared_grammar *g;
    const struct constraint c = {.kind = CONSTRAINT_REGEX, .text = pattern, .num_bytes = strlen(pattern)};
    if (grammars_get(grammars, &c, &g, &err)) fail_msg("%s", err.text);
    return g;
}

static int32_t begin_with(struct mask_rules rules, struct request_slot_input input)
{
    int32_t slot_idx;
    assert_int_equal(request_slots_acquire(link_slots(link_), 1, &slot_idx), 0);
    input.constrained = true;
    input.num_prompt_tokens = NUM_PROMPT;
    slot_of(slot_idx)->input = input;
    masks_begin(masks, slot_idx, &rules);
    return slot_idx;
}

static int32_t begin(const char *pattern, const char *trigger, struct request_slot_input input)
{
    const struct shared_grammar *g = regex(pattern);
    int32_t slot_idx = begin_with((struct mask_rules){.grammar = g, .trigger = trigger}, input);
    grammars_release(grammars, g); /* the slot holds it */
    return slot_idx;
}

static int32_t begin_limited(struct token_limits *limits, struct request_slot_input input)
{
    int32_t slot_idx = begin_with((struct mask_rules){.limits = limits}, input);
    token_limits_release(limits); /* the slot holds them */
    return slot_idx;
}

static struct token_limits *allow(const char *ids, bool with_end)
{
    struct token_limits *l;
    assert_int_equal(token_limits_new(FAKE_LOGITS_WIDTH, &l), 0);
    for (; *ids; ids++) assert_int_equal(token_limits_allow(l, *ids), 0);
    if (with_end) assert_int_equal(token_limits_allow(l, FAKE_EOS), 0);
    return l;
}

static void end(int32_t slot_idx)
{
    masks_end(masks, slot_idx);
    request_slot_finish(slot_of(slot_idx), FINISH_STOP, NULL);
    request_slots_release(link_slots(link_), slot_idx);
}

/* What is known of the next token, once somebody has looked. */
static int32_t ask(int32_t slot_idx)
{
    int32_t next = atomic_load(&slot_of(slot_idx)->num_published) + 1, state;
    link_want_mask(link_, slot_idx);
    for (;;) {
        uint32_t seen = link_num_made(link_);
        state = atomic_load(&slot_of(slot_idx)->mask_state);
        if (state == next || state < 0) return state;
        link_sleep_until_made(link_, seen, 1000000);
    }
}

static void publish(int32_t slot_idx, int32_t token_id)
{
    struct request_slot *slot = slot_of(slot_idx);
    int32_t count = atomic_load(&slot->num_published);
    request_slots_tokens(link_slots(link_), slot_idx)[NUM_PROMPT + count] = token_id;
    atomic_store(&slot->num_published, count + 1);
}

/* The ids that token k may be, as a text: bytes as they are, words by their number, the end as $. */
static const char *mask_text(int32_t slot_idx, int32_t k)
{
    static char text[FAKE_LOGITS_WIDTH + 1];
    size_t n = 0;
    const uint64_t *mask = request_slots_mask(link_slots(link_), slot_idx, k);
    for (int32_t id = 0; id < FAKE_LOGITS_WIDTH; id++)
        if (bit_set_has(mask, (size_t)id))
            text[n++] = id < FAKE_WORD ? (char)id : id == FAKE_EOS ? '$' : (char)('0' + id - FAKE_WORD);
    text[n] = '\0';
    return text;
}

/* Those that may come next. */
static const char *allowed(int32_t slot_idx)
{
    int32_t state = ask(slot_idx);
    if (state == MASK_ENDED) return "ended";
    if (state == MASK_FAILED) return "failed";
    return mask_text(slot_idx, state - 1);
}

static struct slot_guess *guess_of(int32_t slot_idx)
{
    return &slot_of(slot_idx)->guess;
}

/* As an engine does that drafts. */
static int32_t begin_guessed(const char *pattern, struct request_slot_input input)
{
    int32_t slot_idx = begin(pattern, NULL, input);
    atomic_store(&guess_of(slot_idx)->num_wanted, GUESS_TOKENS_MAX);
    return slot_idx;
}

/* Waits until the masks behind the guess are there; returns how many tokens it has. */
static int32_t ask_ahead(int32_t slot_idx)
{
    const struct slot_guess *guess = guess_of(slot_idx);
    int32_t state = ask(slot_idx);
    if (state > 0) assert_int_equal(atomic_load(&guess->state), state);
    for (;;) {
        uint32_t seen = link_num_made(link_);
        int32_t num_ahead = atomic_load(&guess->num_masks_ahead);
        if (state < 0 || num_ahead >= atomic_load(&guess->num_tokens)) return num_ahead;
        link_sleep_until_made(link_, seen, 1000000);
    }
}

static void a_mask_for_each_token(void **state)
{
    (void)state;
    int32_t slot = begin("hello( world)?!", NULL, (struct request_slot_input){0});
    assert_string_equal(allowed(slot), "h0");
    publish(slot, FAKE_WORD);
    assert_string_equal(allowed(slot), " !1");
    publish(slot, FAKE_WORD + 1);
    assert_string_equal(allowed(slot), "!");
    publish(slot, '!');
    assert_string_equal(allowed(slot), "$");
    publish(slot, FAKE_EOS);
    end(slot);
}

static void asked_again_by_another_engine(void **state)
{
    (void)state;
    int32_t slot = begin("ab|cd", NULL, (struct request_slot_input){0});
    assert_string_equal(allowed(slot), "ac");
    publish(slot, 'c'); /* and dies before it asks */
    assert_string_equal(allowed(slot), "d");
    for (int i = 0; i < 3; i++) assert_string_equal(allowed(slot), "d");
    assert_int_equal(masks_num_made(masks), 2);
    end(slot);
}

/* As when the process before has made what is published. */
static void followed_from_the_middle(void **state)
{
    (void)state;
    static const int counts[] = {1, 63, 64, 65, 128, 300};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int32_t slot = begin("(ab)+!", NULL, (struct request_slot_input){0});
        for (int k = 0; k < counts[i]; k++) publish(slot, k % 2 ? 'b' : 'a');
        assert_string_equal(allowed(slot), counts[i] % 2 ? "b" : "!a");
        publish(slot, counts[i] % 2 ? 'b' : 'a');
        assert_string_equal(allowed(slot), counts[i] % 2 ? "!a" : "b");
        end(slot);
    }
}

static void what_ends_an_answer(void **state)
{
    (void)state;
    int32_t slot = begin("ab?", NULL, (struct request_slot_input){.min_tokens = 2});
    publish(slot, (allowed(slot), 'a'));
    assert_string_equal(allowed(slot), "b"); /* before min_tokens */
    publish(slot, 'b');
    assert_string_equal(allowed(slot), "$");
    end(slot);
    slot = begin("a", NULL, (struct request_slot_input){.min_tokens = 2});
    publish(slot, (allowed(slot), 'a'));
    assert_string_equal(allowed(slot), "ended");
    end(slot);
    slot = begin("ab?", NULL, (struct request_slot_input){.ignore_eos = true});
    publish(slot, (allowed(slot), 'a'));
    assert_string_equal(allowed(slot), "b");
    publish(slot, 'b');
    assert_string_equal(allowed(slot), "ended");
    end(slot);
    slot = begin("ab?", NULL,
                 (struct request_slot_input){.num_stop_token_ids = 2, .stop_token_ids = {FAKE_BOS, 'x'}});
    assert_string_equal(allowed(slot), "a");
    publish(slot, 'a');
    assert_string_equal(allowed(slot), "bx4$"); /* <s> is id 260 */
    end(slot);
}

static void free_until_a_trigger(void **state)
{
    (void)state;
    int32_t slot = begin("ab", "</t>", (struct request_slot_input){0});
    for (const char *p = "x</</t"; *p; p++) {
        assert_true(bit_set_has(request_slots_mask(link_slots(link_), slot, ask(slot) - 1), FAKE_EOS));
        publish(slot, *p);
    }
    assert_int_equal(ask(slot), 7);
    publish(slot, '>');
    assert_string_equal(allowed(slot), "a");
    end(slot);
}

static void a_trigger_that_must_come(void **state)
{
    (void)state;
    const struct shared_grammar *g = regex("a?");
    int32_t slot = begin_with((struct mask_rules){.grammar = g, .trigger = "</t>", .must_begin = true},
                              (struct request_slot_input){.num_stop_token_ids = 1, .stop_token_ids = {'x'}});
    grammars_release(grammars, g);
    for (const char *p = "y</t>"; *p; p++) {
        const uint64_t *mask = request_slots_mask(link_slots(link_), slot, ask(slot) - 1);
        assert_false(bit_set_has(mask, FAKE_EOS));
        assert_true(bit_set_has(mask, 'x') && bit_set_has(mask, (size_t)*p));
        publish(slot, *p);
    }
    assert_string_equal(allowed(slot), "ax$");
    end(slot);
}

/* What must come is told, and may be drawn: k is the number of the token that is guessed first. */
static void expect_guess(int32_t slot_idx, int32_t k, const int32_t *ids, int32_t num_ids,
                         const char *const *masks_ahead)
{
    assert_int_equal(ask_ahead(slot_idx), num_ids);
    assert_int_equal(atomic_load(&guess_of(slot_idx)->num_tokens), num_ids);
    for (int32_t i = 0; i < num_ids; i++) {
        assert_int_equal(guess_of(slot_idx)->tokens[i], ids[i]);
        assert_string_equal(mask_text(slot_idx, k + 1 + i), masks_ahead[i]);
    }
}

/* As its tokenizer would say it: in bytes. */
static void what_is_guessed(void **state)
{
    (void)state;
    static const int32_t text[] = {'h', 'e', 'l', 'l', 'o', ' ', 'w', 'o', 'r', 'l', 'd', '!'};
    static const char *const behind[] = {"e", "l", "l", "o", " 1", "w", "o", "r", "l", "d", "!", "$"};
    int32_t slot = begin_guessed("[pq]hello world!", (struct request_slot_input){0});
    expect_guess(slot, 0, NULL, 0, NULL);
    assert_string_equal(allowed(slot), "pq");
    publish(slot, 'p');
    expect_guess(slot, 1, text, 7, behind);
    assert_string_equal(allowed(slot), "h0");
    uint64_t num_made = masks_num_made(masks);
    for (int32_t k = 2; k < 4; k++) { /* as it was guessed: no mask is made again */
        publish(slot, text[k - 2]);
        expect_guess(slot, k, text + k - 1, 8 - k, behind + k - 1);
        assert_string_equal(allowed(slot), behind[k - 2]);
    }
    assert_int_equal(masks_num_made(masks), num_made);
    for (int i = 2; i < 5; i++) publish(slot, text[i]); /* at once */
    expect_guess(slot, 6, text + 5, 2, behind + 5);
    publish(slot, FAKE_WORD + 1); /* as it may be too */
    expect_guess(slot, 7, text + 11, 1, behind + 11);
    assert_string_equal(allowed(slot), "!");
    end(slot);
}

static void offer(int32_t slot_idx, int32_t k, const int32_t *ids, int32_t num_ids)
{
    struct slot_guess *guess = guess_of(slot_idx);
    for (int32_t i = 0; i < num_ids; i++) atomic_store(&guess->offered[i], ids[i]);
    atomic_store(&guess->num_offered, num_ids);
    atomic_store(&guess->offer_state, k + 1);
}

/* Where the form leaves a choice, as far as it lets that through. */
static void what_is_offered(void **state)
{
    (void)state;
    static const int32_t ids[] = {'x', 'y', 'z', '3'}, form[] = {'3'};
    static const char *const xyz[] = {"3wxyz", "3wxyz", "3wxyz"}, *const end_[] = {"$"};
    int32_t slot = begin_guessed("[w-z]+3", (struct request_slot_input){0});
    offer(slot, 0, ids, 3);
    expect_guess(slot, 0, ids, 3, xyz);
    assert_true(guess_of(slot)->is_offered);
    publish(slot, 'x');
    offer(slot, 1, ids, 4); /* something is guessed already */
    expect_guess(slot, 1, ids + 1, 2, xyz);
    publish(slot, 'w');
    offer(slot, 1, ids, 4); /* late */
    expect_guess(slot, 2, NULL, 0, NULL);
    publish(slot, 'w');
    offer(slot, 3, (const int32_t[]){'z', 'a', 'z'}, 3);
    expect_guess(slot, 3, (const int32_t[]){'z'}, 1, xyz);
    publish(slot, 'z');
    offer(slot, 4, (const int32_t[]){FAKE_EOS, FAKE_LOGITS_WIDTH - 1}, 2); /* no text at all */
    expect_guess(slot, 4, NULL, 0, NULL);
    end(slot);
    slot = begin_guessed("[w-z]3", (struct request_slot_input){0});
    publish(slot, 'w');
    offer(slot, 1, ids, 4);
    expect_guess(slot, 1, form, 1, end_); /* the form knows better */
    assert_false(guess_of(slot)->is_offered);
    end(slot);
}

static void where_guesses_end(void **state)
{
    (void)state;
    static const int32_t a[] = {'a'};
    static const char *const b[] = {"b"};
    int32_t slot = begin_guessed("ab", (struct request_slot_input){.min_tokens = 3});
    expect_guess(slot, 0, a, 1, b); /* nothing may follow b */
    end(slot);
    slot = begin_guessed("ab", (struct request_slot_input){.num_stop_token_ids = 1, .stop_token_ids = {'b'}});
    expect_guess(slot, 0, a, 1, b); /* b ends the answer, whatever it stands for */
    end(slot);
    slot = begin("ab", NULL, (struct request_slot_input){0}); /* nobody wants to know */
    expect_guess(slot, 0, NULL, 0, NULL);
    end(slot);
    slot = begin_guessed("ab", (struct request_slot_input){0});
    assert_int_equal(ask_ahead(slot), 2);
    publish(slot, 'z'); /* no engine draws it */
    assert_string_equal(allowed(slot), "failed");
    end(slot);
}

static int32_t pick(const uint64_t *mask, uint32_t *random)
{
    for (;;) {
        *random = *random * 1664525 + 1013904223;
        int32_t id = (int32_t)(*random >> 8) % FAKE_LOGITS_WIDTH;
        if (bit_set_has(mask, (size_t)id)) return id;
    }
}

/* Somewhere in it; much of it is not what the rules let through. */
static void offer_some(int32_t slot_idx, int32_t k, uint32_t *random)
{
    static const char said[] = "a hellob</thello world</t>a</t>a hellobcdhello worldxabab";
    int32_t ids[GUESS_TOKENS_MAX], at = (int32_t)(*random >> 8) % (int32_t)(sizeof said - 1), num = 0;
    while (num < GUESS_TOKENS_MAX && said[at + num]) ids[num] = said[at + num], num++;
    offer(slot_idx, k, ids, num);
}

/* One answer twice, with guesses and without, whether they come true or not: each mask is the same, and so are those ahead when
 * their tokens come. Returns how many masks were made ahead of their tokens. */
static int follow_twice(struct mask_rules rules, struct request_slot_input input, uint32_t *random)
{
    uint64_t seen[GUESS_TOKENS_MAX + 1][(FAKE_LOGITS_WIDTH + 63) / 64];
    int32_t slots[] = {begin_with(rules, input), begin_with(rules, input)}, num_seen = 0, num_true = 0;
    int num_ahead = 0;
    atomic_store(&guess_of(slots[0])->num_wanted, GUESS_TOKENS_MAX);
    offer_some(slots[0], 0, random);
    for (int32_t k = 0; k < 100 && ask(slots[0]) > 0; k++) {
        const uint64_t *guessed = request_slots_mask(link_slots(link_), slots[0], k),
                       *alone = request_slots_mask(link_slots(link_), slots[1], (ask(slots[1]), k));
        assert_memory_equal(guessed, alone, sizeof seen[0]);
        if (num_true < num_seen) assert_memory_equal(seen[num_true], alone, sizeof seen[0]);
        num_ahead += num_true > 0 && num_true < num_seen;
        int32_t num_guessed = ask_ahead(slots[0]), id = pick(alone, random);
        num_seen = num_guessed + 1;
        for (int32_t i = 0; i < num_seen; i++)
            memcpy(seen[i], request_slots_mask(link_slots(link_), slots[0], k + i), sizeof seen[0]);
        int32_t next = guess_of(slots[0])->tokens[0];
        if (num_guessed > 0 && bit_set_has(alone, (size_t)next) && *random % 100 < 80) id = next;
        num_true = num_guessed > 0 && id == next ? 1 : num_seen;
        offer_some(slots[0], k + 1, random);
        for (int i = 0; i < 2; i++) publish(slots[i], id);
        if (id == FAKE_EOS) break;
    }
    for (int i = 0; i < 2; i++) end(slots[i]);
    return num_ahead;
}

static void guesses_change_no_mask(void **state)
{
    (void)state;
    uint32_t random = 1;
    const struct shared_grammar *g = regex("(a( hello|hello)?(b|bcd|\\n)(hello world){1,3}x?){2,9}");
    struct token_limits *l = allow("abcdehlorwx </t>", true);
    assert_int_equal(token_limits_forbid(l, (int32_t[]){'l', 'd'}, 2), 0);
    assert_int_equal(token_limits_forbid(l, (int32_t[]){'a', ' ', 'h', 'e'}, 4), 0);
    assert_int_equal(token_limits_forbid(l, (int32_t[]){'x'}, 1), 0);
    const struct mask_rules rules[] = {{.grammar = g},
                                       {.grammar = g, .trigger = "</t>"},
                                       {.limits = l},
                                       {.grammar = g, .limits = l},
                                       {.grammar = g, .limits = l, .trigger = "</t>"}};
    for (size_t i = 0; i < array_length(rules); i++) {
        int num_ahead = 0;
        for (int32_t round = 0; round < 100; round++)
            num_ahead +=
                follow_twice(rules[i], (struct request_slot_input){.min_tokens = round % 7}, &random);
        assert_true(num_ahead > 300);
    }
    grammars_release(grammars, g);
    token_limits_release(l);
}

static void limits_without_a_form(void **state)
{
    (void)state;
    struct token_limits *l = allow("abc", true);
    assert_int_equal(token_limits_forbid(l, (int32_t[]){'a', 'b', 'c'}, 3), 0);
    assert_int_equal(token_limits_forbid(l, (int32_t[]){'c'}, 1), 0);
    assert_int_equal(token_limits_forbid(l, (int32_t[]){'b', 'b'}, 2), 0);
    int32_t slot = begin_limited(l, (struct request_slot_input){0});
    const char *const expected[] = {"ab$", "ab$", "ab$", "a$", "ab$"};
    for (int i = 0; i < 5; i++) {
        assert_string_equal(allowed(slot), expected[i]);
        publish(slot, "aabab"[i]);
    }
    end(slot);
    l = allow("abcd", false);
    assert_int_equal(token_limits_forbid(l, (int32_t[]){'a', 'b', 'c'}, 3), 0);
    slot = begin_limited(l, (struct request_slot_input){0});
    for (const char *p = "abdaab"; *p; p++) {
        assert_string_equal(allowed(slot), !strncmp(p, "daab", 4) ? "abd" : "abcd");
        publish(slot, *p);
    }
    assert_string_equal(allowed(slot), "abd");
    end(slot);
}

/* Before min_tokens the engine draws no end, and where nothing else is left the answer is whole. */
static void limits_that_leave_nothing(void **state)
{
    (void)state;
    int32_t slot = begin_limited(allow("", true), (struct request_slot_input){.min_tokens = 1});
    assert_string_equal(allowed(slot), "ended");
    end(slot);
    slot = begin_limited(allow("", true), (struct request_slot_input){0});
    assert_string_equal(allowed(slot), "$");
    end(slot);
}

static void failures_stay_with_their_slot(void **state)
{
    (void)state;
    int32_t bad = begin("ab", NULL, (struct request_slot_input){0});
    int32_t good = begin("ab", NULL, (struct request_slot_input){0});
    assert_string_equal(allowed(bad), "a");
    publish(bad, 'z'); /* no engine draws it */
    assert_string_equal(allowed(bad), "failed");
    assert_string_equal(allowed(bad), "failed");
    publish(good, (allowed(good), 'a'));
    assert_string_equal(allowed(good), "b");
    end(bad);
    end(good);
}

static void a_slot_is_used_again(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        char pattern[] = "?[0-9]{1,9}";
        pattern[0] = (char)('a' + i % 20);
        int32_t slot = begin(pattern, NULL, (struct request_slot_input){0});
        if (i % 3 > 0) assert_int_equal(allowed(slot)[0], pattern[0]);
        link_want_mask(link_, slot); /* is on its way when the slot goes */
        end(slot);
    }
}

static void grammars_are_shared_and_kept(void **state)
{
    (void)state;
    struct error err;
    struct grammars_stats stats;
    const struct shared_grammar *a = regex("a"), *b = regex("b"), *again = regex("a"), *none;
    assert_ptr_equal(a, again);
    assert_ptr_not_equal(a, b);
    const struct constraint bad = {.kind = CONSTRAINT_REGEX, .text = "(", .num_bytes = 1};
    assert_int_equal(grammars_get(grammars, &bad, &none, &err), STATUS_INVALID);
    assert_null(none);
    const struct constraint choice = {.kind = CONSTRAINT_CHOICE, .text = "[\"a\"]", .num_bytes = 5};
    assert_int_equal(grammars_get(grammars, &choice, &none, &err), 0);
    grammars_release(grammars, none);
    for (int i = 0; i < 3; i++) grammars_release(grammars, i < 2 ? a : b);
    assert_ptr_equal(regex("a"), a); /* though nobody held it */
    grammars_release(grammars, a);
    grammars_stats(grammars, &stats);
    assert_int_equal(stats.num_compiled, 3);
    assert_int_equal(stats.num_refused, 1);
    assert_int_equal(stats.num_found, 2);
    assert_true(stats.num_bytes > 0 && stats.compile_seconds > 0);
}

/* More than are kept: the oldest go, those that are held stay. */
static void old_grammars_go(void **state)
{
    (void)state;
    struct grammars_stats stats;
    const struct shared_grammar *held = regex("held");
    for (int i = 0; i < 1100; i++) {
        char pattern[16];
        snprintf(pattern, sizeof pattern, "p%d", i);
        grammars_release(grammars, regex(pattern));
    }
    grammars_release(grammars, regex("p0"));
    assert_ptr_equal(regex("held"), held);
    grammars_release(grammars, held);
    grammars_release(grammars, held);
    grammars_stats(grammars, &stats);
    assert_int_equal(stats.num_compiled, 1102); /* p0 twice */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mask_for_each_token, set_up, tear_down),
        cmocka_unit_test_setup_teardown(asked_again_by_another_engine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(followed_from_the_middle, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_ends_an_answer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(free_until_a_trigger, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_trigger_that_must_come, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_guessed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_offered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(where_guesses_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(guesses_change_no_mask, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_without_a_form, set_up, tear_down),
        cmocka_unit_test_setup_teardown(limits_that_leave_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(failures_stay_with_their_slot, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slot_is_used_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(grammars_are_shared_and_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(old_grammars_go, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
