#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "cli/check_request.h"

enum {
    NUM_PROMPTS = 4,
    KINDS_MAX = 6,
    COPIES_MAX = 4,
    ALONE_MAX = NUM_PROMPTS * KINDS_MAX,
    NUM_CANARIES = 12
};

static const char *const prompts[NUM_PROMPTS] = {"Why is the sky blue?", "Name three rivers.",
                                                 "Count from one to twelve.", "What does a compiler do?"};

struct asker {
    const struct check *check;
    const char *path, *prompt, *members;
    struct check_answer answer;
    pthread_t thread;
    bool started;
};

static void *run_asker(void *context)
{
    struct asker *a = context;
    check_ask_prompt(a->check, a->path, a->prompt, a->members, &a->answer);
    return NULL;
}

/* Where there is no thread to be had, one after the other. */
static void ask_together(struct asker *askers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        askers[i].started = !pthread_create(&askers[i].thread, NULL, run_asker, &askers[i]);
    for (size_t i = 0; i < count; i++) {
        if (askers[i].started)
            pthread_join(askers[i].thread, NULL);
        else
            run_asker(&askers[i]);
    }
}

static void deinit(struct asker *askers, size_t count)
{
    for (size_t i = 0; i < count; i++) check_answer_deinit(&askers[i].answer);
}

/* ---- the same bytes alone and among others ---- */

struct kind {
    const char *path, *members;
};

/* Each prompt of each kind, one after the other; those of a kind that the server does not have are left out. Returns how many
 * there are. */
static size_t ask_alone(const struct check *c, const struct kind *kinds, size_t num_kinds,
                        struct asker *alone, int *status, struct error *why)
{
    size_t count = 0;
    for (size_t i = 0; i < num_kinds * NUM_PROMPTS && !*status; i++) {
        const struct kind *kind = &kinds[i % num_kinds];
        struct asker *a = &alone[count];
        *a = (struct asker){.check = c, kind->path, prompts[i / num_kinds], kind->members};
        run_asker(a);
        *status = check_is_offered(&a->answer, why);
        if (*status == STATUS_UNSUPPORTED) {
            check_answer_deinit(&a->answer);
            *status = STATUS_OK;
        } else {
            count++;
        }
    }
    return count;
}

static int compare_to_alone(const struct asker *alone, size_t num_alone, const struct asker *together,
                            size_t num_together, struct error *why)
{
    for (size_t i = 0; i < num_together; i++) {
        int status = check_is_answer(&together[i].answer, why);
        if (!status)
            status = check_is_same(&alone[i % num_alone].answer, &together[i].answer,
                                   "alone and among others", why);
        if (status) return status;
    }
    return STATUS_OK;
}

static int is_independent(const struct check *c, const struct kind *kinds, size_t num_kinds,
                          size_t num_copies, struct error *why)
{
    struct asker alone[ALONE_MAX], together[COPIES_MAX * ALONE_MAX];
    int status = STATUS_OK;
    size_t num_alone = ask_alone(c, kinds, num_kinds, alone, &status, why);
    size_t num_together = status ? 0 : num_alone * num_copies;
    for (size_t i = 0; i < num_together; i++) together[i] = alone[i % num_alone];
    ask_together(together, num_together);
    if (!status) status = compare_to_alone(alone, num_alone, together, num_together, why);
    if (!status && num_alone == 0) status = STATUS_UNSUPPORTED; /* why says what it answered */
    deinit(alone, num_alone);
    deinit(together, num_together);
    return status;
}

static int greedy_among_others(const struct check *c, struct error *why)
{
    static const struct kind kind = {CHAT, GREEDY};
    return is_independent(c, &kind, 1, COPIES_MAX, why);
}

static int seeded_among_others(const struct check *c, struct error *why)
{
    static const struct kind kind = {CHAT, "\"temperature\":1,\"seed\":7,\"max_tokens\":20"};
    return is_independent(c, &kind, 1, COPIES_MAX, why);
}

static int mixed_among_others(const struct check *c, struct error *why)
{
    static const struct kind kinds[] = {
        {CHAT, "\"temperature\":0,\"max_tokens\":9,\"stop\":[\"e \"]"},
        {CHAT, "\"temperature\":1,\"seed\":3,\"max_tokens\":12" STREAMED},
        {CHAT, "\"temperature\":0.8,\"seed\":5,\"top_p\":0.9,\"presence_penalty\":0.5,\"max_tokens\":16"},
        {CHAT, "\"temperature\":0,\"max_tokens\":7,\"logprobs\":true,\"top_logprobs\":2"},
        {COMPLETIONS, "\"temperature\":0,\"max_tokens\":14" STREAMED},
        {COMPLETIONS, "\"temperature\":1,\"seed\":9,\"max_tokens\":5,\"n\":2"}};
    return is_independent(c, kinds, array_length(kinds), 1, why);
}

/* ---- canaries ---- */

static int find_foreign(const struct asker *askers, char (*canaries)[16], struct error *why)
{
    for (size_t i = 0; i < NUM_CANARIES; i++) {
        int status = check_is_answer(&askers[i].answer, why);
        if (status) return status;
        for (size_t k = 0; k < NUM_CANARIES; k++)
            if (k != i && strstr(check_text(&askers[i].answer, 0), canaries[k]))
                return error_set(why, STATUS_INVALID, "who spoke of %s was told of %s: \"%.80s\"",
                                 canaries[i], canaries[k], check_text(&askers[i].answer, 0));
    }
    return STATUS_OK;
}

/* Each asks for its own word; half are streams. */
static int canaries_stay(const struct check *c, struct error *why)
{
    struct asker askers[NUM_CANARIES];
    char canaries[NUM_CANARIES][16], words[NUM_CANARIES][64];
    for (uint32_t i = 0; i < NUM_CANARIES; i++) {
        unsigned number = (i + 1) * 2654435761u;
        snprintf(canaries[i], sizeof canaries[i], "bird%08x", number);
        snprintf(words[i], sizeof words[i], "Repeat this name: bird%08x.", number);
        askers[i] = (struct asker){.check = c, CHAT, words[i], i % 2 ? GREEDY STREAMED : GREEDY};
    }
    ask_together(askers, NUM_CANARIES);
    int status = find_foreign(askers, canaries, why);
    deinit(askers, NUM_CANARIES);
    return status;
}

const struct check_row check_together_rows[] = {
    {"greedy: the same alone and among others", greedy_among_others},
    {"seeded: the same alone and among others", seeded_among_others},
    {"mixed: the same alone and among others", mixed_among_others},
    {"no answer has words of another's prompt", canaries_stay},
    {.name = NULL}};
