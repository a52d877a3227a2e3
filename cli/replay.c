#include "cli/replay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/again.h"
#include "cli/command.h"
#include "cli/journal_file.h"

enum { ANSWER_BYTES_MAX = 1 << 30 };

struct replay_options {
    struct again_options who;
    const char *journal, *request;
    bool all;
};

#define AT(field) offsetof(struct replay_options, field)

const struct flag replay_flags[] = {
    {"request", "id", "x-request-id, or the answer's id: shows this answer; of several the newest", FLAG_TEXT,
     AT(request), 0, 0},
    {"all", "", "checks every answer, in their order, and tells which are others", FLAG_SWITCH, AT(all), 0,
     0},
    {"model", "model", "computes here; FLASHD_... variables are its options", FLAG_TEXT, AT(who.model), 0, 0},
    {"url", "url", "of a server that runs with --receipts, instead of --model", FLAG_TEXT, AT(who.url), 0, 0},
    {"api-key-file", "file", "its first key [FLASHD_API_KEY]", FLAG_TEXT, AT(who.key_file), 0, 0},
    {.name = NULL},
};

static const char *text_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

/* ---- one ---- */

/* STATUS_NOT_FOUND: it has no complete answer, or its request went with an older file. */
static int read_entry(const struct journal_entry *e, char **body, cJSON **answer, struct error *why)
{
    *body = journal_entry_body(e);
    *answer = journal_entry_answer(e);
    if (!*body) return error_set(why, STATUS_NOT_FOUND, "its request is not in the journal any more");
    if (!*answer) return error_set(why, STATUS_NOT_FOUND, "it has no answer in the journal");
    if (cJSON_GetObjectItemCaseSensitive(*answer, "receipt")) return STATUS_OK;
    const char *outcome = text_of(*answer, "outcome");
    return error_set(why, STATUS_NOT_FOUND, "it has no complete answer: %s", outcome ? outcome : "unknown");
}

static enum again_verdict check_entry(const struct again *a, const struct journal_entry *e,
                                      struct buffer *answer, bool *has_answer, struct error *why)
{
    char *body = NULL;
    cJSON *line = NULL;
    enum again_verdict verdict = AGAIN_NONE;
    int status = read_entry(e, &body, &line, why);
    *has_answer = status != STATUS_NOT_FOUND;
    if (!status)
        verdict = again_check(a, cJSON_GetObjectItemCaseSensitive(line, "receipt"), body, answer, why);
    free(body);
    cJSON_Delete(line);
    return verdict;
}

static bool is_called(const struct journal_entry *e, const char *id)
{
    cJSON *head = journal_entry_head(e);
    const char *request_id = text_of(head, "request_id"), *answer_id = text_of(head, "id");
    bool found = (request_id && !strcmp(request_id, id)) || (answer_id && !strcmp(answer_id, id));
    cJSON_Delete(head);
    return found;
}

static const struct journal_entry *find_newest(const struct journal_file *j, const char *id)
{
    for (int i = j->num_entries - 1; i >= 0; i--)
        if (is_called(&j->entries[i], id)) return &j->entries[i];
    return NULL;
}

static int show(const struct again *a, const struct journal_entry *e, const char *id)
{
    struct buffer answer;
    struct error why = {0};
    bool has_answer;
    buffer_init(&answer, ANSWER_BYTES_MAX);
    enum again_verdict verdict = check_entry(a, e, &answer, &has_answer, &why);
    if (verdict != AGAIN_NONE) fwrite(answer.data, 1, answer.num_bytes, stdout);
    fflush(stdout);
    if (why.text[0]) fprintf(stderr, "flashd: %s: %s\n", id, why.text);
    buffer_deinit(&answer);
    return verdict == AGAIN_SAME ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- all ---- */

struct tally {
    int num_same, num_other, num_failed, num_without;
    char note[sizeof((struct error *)NULL)->text]; /* what is another though answers are the same */
};

static void tell(const struct journal_entry *e, const char *verdict, const struct error *why)
{
    cJSON *head = journal_entry_head(e);
    const char *id = text_of(head, "id");
    printf("%-5s %s: %s\n", verdict, id ? id : e->name, why->text);
    fflush(stdout);
    cJSON_Delete(head);
}

static void check_one(const struct again *a, const struct journal_entry *e, struct tally *t)
{
    struct buffer answer;
    struct error why = {0};
    bool has_answer;
    buffer_init(&answer, ANSWER_BYTES_MAX);
    enum again_verdict verdict = check_entry(a, e, &answer, &has_answer, &why);
    buffer_deinit(&answer);
    if (!has_answer) {
        t->num_without++;
        return;
    }
    *(verdict == AGAIN_SAME ? &t->num_same : verdict == AGAIN_OTHER ? &t->num_other : &t->num_failed) += 1;
    if (verdict != AGAIN_SAME)
        tell(e, verdict == AGAIN_OTHER ? "OTHER" : "FAIL", &why);
    else if (why.text[0])
        snprintf(t->note, sizeof t->note, "%s", why.text);
}

static int check_all(const struct again *a, const struct journal_file *j)
{
    struct tally t = {.num_same = 0};
    for (int i = 0; i < j->num_entries; i++) check_one(a, &j->entries[i], &t);
    if (t.note[0]) printf("%s\n", t.note);
    printf("%d are the same, %d are others, %d could not be computed; %d requests without a complete answer, "
           "%d lines "
           "that are cut off\n",
           t.num_same, t.num_other, t.num_failed, t.num_without, j->num_unreadable);
    return t.num_other + t.num_failed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- the command ---- */

static int replay(const struct replay_options *o, const struct journal_file *j)
{
    struct again again = {.own.pid = 0};
    struct error err = {0};
    if (j->num_entries == 0) {
        error_set(&err, STATUS_NOT_FOUND, "%s: no line of it is a journal's", o->journal);
        return command_fail(&err, EXIT_FAILURE);
    }
    const struct journal_entry *e = o->all ? NULL : find_newest(j, o->request);
    if (!o->all && !e) {
        error_set(&err, STATUS_NOT_FOUND, "%s: there is no request of this id in it", o->journal);
        return command_fail(&err, EXIT_FAILURE);
    }
    int status = again_open(&again, &o->who, &err), code;
    if (status)
        code = command_fail(&err, status == STATUS_INVALID ? EXIT_USAGE : EXIT_FAILURE);
    else
        code = e ? show(&again, e, o->request) : check_all(&again, j);
    again_close(&again);
    return code;
}

int replay_run(int num_args, char **args)
{
    struct replay_options o = {.all = false};
    struct journal_file journal;
    struct error err = {0};
    if (flags_load(replay_flags, &o, "replay", &o.journal, num_args, args, &err))
        return command_fail(&err, EXIT_USAGE);
    if (!o.journal || !o.request == !o.all) {
        error_set(&err, STATUS_INVALID,
                  "replay JOURNAL with --request ID or --all, and --model MODEL or --url URL, is expected");
        return command_fail(&err, EXIT_USAGE);
    }
    int code = journal_file_open(o.journal, &journal, &err) ? command_fail(&err, EXIT_FAILURE)
                                                            : replay(&o, &journal);
    journal_file_close(&journal);
    return code;
}
