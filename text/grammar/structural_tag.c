/* Free text in which certain texts (triggers) begin a structure: {"triggers": [text], "structures": [{"begin": text,
 * "schema": schema, "end": text}]}, each begin with a trigger at its front. xgrammar's other notation of the same,
 * {"format": {"type": "triggered_tags", "triggers", "tags": [{"begin", "content": {"type": "json_schema", "json_schema"},
 * "end"}]}}, is read, too.
 *
 * The free text is an automaton that knows how much of which trigger stands at its end. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "text/grammar/builder.h"
#include "text/grammar/json_text.h"
#include "text/grammar/schema.h"

enum {
    TRIGGERS_MAX = 64,
    TRIGGER_BYTES_MAX = 256,
    STRUCTURES_MAX = 1024,
    NODES_MAX = TRIGGERS_MAX * TRIGGER_BYTES_MAX
};

struct tags {
    const cJSON *triggers, *structures;
    struct error *err;
    struct dfa text;      /* DFA_DEAD: none; start: nothing of a trigger stands there */
    uint32_t *fallbacks;  /* by state: the longest end of its text that another state's is */
    uint32_t *trigger_of; /* by state: the trigger that is complete there + 1 */
    struct builder b;
};

static int refuse(const struct tags *t, int status, const char *what, int index)
{
    if (index < 0) return error_set(t->err, status, "structural_tag: %s", what);
    return error_set(t->err, status, "structural_tag: entry %d %s", index, what);
}

static const char *text_of(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

/* ---- reading ---- */

static int read_parts(struct tags *t, const cJSON *tag)
{
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(tag, "format"), *from = format ? format : tag;
    const char *type = text_of(format, "type");
    if (format && (!type || strcmp(type, "triggered_tags") != 0))
        return refuse(t, STATUS_UNSUPPORTED, "the only format that is supported is triggered_tags", -1);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(from, "at_least_one")) ||
        cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(from, "stop_after_first")))
        return refuse(t, STATUS_UNSUPPORTED, "at_least_one and stop_after_first are not supported", -1);
    t->triggers = cJSON_GetObjectItemCaseSensitive(from, "triggers");
    t->structures = cJSON_GetObjectItemCaseSensitive(from, format ? "tags" : "structures");
    if (!cJSON_IsArray(t->triggers) || !cJSON_IsArray(t->structures) || !t->structures->child)
        return refuse(t, STATUS_INVALID, "\"triggers\" and \"structures\" must be lists that are not empty",
                      -1);
    if (cJSON_GetArraySize(t->triggers) > TRIGGERS_MAX || cJSON_GetArraySize(t->structures) > STRUCTURES_MAX)
        return refuse(t, STATUS_LIMIT, "there are more than 64 triggers or 1,024 structures", -1);
    return 0;
}

static const cJSON *schema_of(const cJSON *structure)
{
    const cJSON *content = cJSON_GetObjectItemCaseSensitive(structure, "content");
    const char *type = text_of(content, "type");
    if (content)
        return type && !strcmp(type, "json_schema") ? cJSON_GetObjectItemCaseSensitive(content, "json_schema")
                                                    : NULL;
    return cJSON_GetObjectItemCaseSensitive(structure, "schema");
}

/* The trigger (number + 1) that a text has at its front; 0: none. */
static uint32_t find_trigger(const struct tags *t, const char *text)
{
    uint32_t number = 1;
    for (const cJSON *k = t->triggers->child; k; k = k->next, number++)
        if (!strncmp(text, k->valuestring, strlen(k->valuestring))) return number;
    return 0;
}

static int check_structures(const struct tags *t)
{
    int i = 0;
    for (const cJSON *s = t->structures->child; s; s = s->next, i++) {
        const char *begin = text_of(s, "begin"), *end = text_of(s, "end");
        if (!begin || !end)
            return refuse(t, STATUS_INVALID, "of its structures needs the texts \"begin\" and \"end\"", i);
        if (!schema_of(s)) return refuse(t, STATUS_UNSUPPORTED, "of its structures has no JSON schema", i);
        if (!find_trigger(t, begin))
            return refuse(t, STATUS_INVALID, "of its structures begins with no trigger", i);
    }
    return 0;
}

/* One trigger within another would come before it. */
static int check_triggers(const struct tags *t)
{
    int i = 0;
    for (const cJSON *k = t->triggers->child; k; k = k->next, i++) {
        if (!cJSON_IsString(k) || !k->valuestring[0] || strlen(k->valuestring) > TRIGGER_BYTES_MAX)
            return refuse(t, STATUS_INVALID, "of its triggers must be a text of 1 to 256 bytes", i);
        for (const cJSON *other = t->triggers->child; other; other = other->next)
            if (other != k && cJSON_IsString(other) && strstr(k->valuestring, other->valuestring))
                return refuse(t, STATUS_INVALID, "of its triggers holds another one", i);
    }
    return 0;
}

/* ---- the free text ---- */

static void make_classes(struct tags *t)
{
    t->text.num_classes = 1; /* bytes of no trigger */
    for (const cJSON *k = t->triggers->child; k; k = k->next)
        for (const char *c = k->valuestring; *c; c++)
            if (!t->text.class_of[(uint8_t)*c])
                t->text.class_of[(uint8_t)*c] = (uint8_t)t->text.num_classes++;
}

static uint32_t *next_of(const struct tags *t, uint32_t state)
{
    return t->text.next + (size_t)state * t->text.num_classes;
}

/* The triggers as a tree; 0 is no state yet. */
static void make_tree(struct tags *t)
{
    uint32_t number = 1;
    t->text.start = 1;
    t->text.num_states = 2;
    for (const cJSON *k = t->triggers->child; k; k = k->next, number++) {
        uint32_t state = t->text.start;
        for (const char *c = k->valuestring; *c; c++) {
            uint32_t *next = next_of(t, state) + t->text.class_of[(uint8_t)*c];
            if (!*next) *next = t->text.num_states++;
            state = *next;
        }
        t->trigger_of[state] = number;
    }
}

/* Where a byte leads that no trigger goes on with: as from the longest end of the text that begins one. States come
 * in the order of their lengths (work). A complete trigger leads nowhere. */
static void close_tree(struct tags *t, uint32_t *work)
{
    uint32_t num_work = 0, start = t->text.start;
    t->fallbacks[start] = start;
    work[num_work++] = start;
    for (uint32_t i = 0; i < num_work; i++) {
        uint32_t state = work[i];
        t->text.labels[state] = !t->trigger_of[state];
        for (uint32_t c = 0; c < t->text.num_classes && !t->trigger_of[state]; c++) {
            uint32_t *next = next_of(t, state) + c,
                     other = state == start ? start : next_of(t, t->fallbacks[state])[c];
            if (*next) {
                t->fallbacks[*next] = other;
                work[num_work++] = *next;
            } else {
                *next = other;
            }
        }
    }
}

static int make_text(struct tags *t)
{
    size_t num_states = 2;
    for (const cJSON *k = t->triggers->child; k; k = k->next) num_states += strlen(k->valuestring);
    make_classes(t);
    t->text.next = calloc(num_states * t->text.num_classes, sizeof *t->text.next);
    t->text.labels = calloc(num_states, sizeof *t->text.labels);
    t->fallbacks = calloc(num_states, sizeof *t->fallbacks);
    t->trigger_of = calloc(num_states, sizeof *t->trigger_of);
    uint32_t *work = calloc(num_states, sizeof *work);
    int status = 0;
    if (t->text.next && t->text.labels && t->fallbacks && t->trigger_of && work) {
        make_tree(t);
        close_tree(t, work);
    } else {
        status = error_set(t->err, STATUS_NO_MEMORY, "no memory for a grammar");
    }
    free(work);
    return status;
}

/* ---- states ---- */

/* What takes a structure behind its trigger and goes on in the free text. */
static int structure_state(struct tags *t, const cJSON *structure, size_t trigger_bytes, uint32_t text,
                           uint32_t *out)
{
    const char *begin = text_of(structure, "begin") + trigger_bytes, *end = text_of(structure, "end");
    uint32_t rule;
    int status = schema_compile_into(&t->b, schema_of(structure), &rule, t->err);
    if (status) return status;
    uint32_t value = builder_state(&t->b, 0);
    builder_set_call(&t->b, value, rule, builder_text(&t->b, end, strlen(end), text));
    *out = builder_text(&t->b, begin, strlen(begin), value);
    return 0;
}

/* From the state in which a trigger is complete to the structures that begin with it. */
static int add_structures(struct tags *t, uint32_t number, uint32_t state, uint32_t text)
{
    struct rule_call *calls = calloc((size_t)cJSON_GetArraySize(t->structures), sizeof *calls);
    uint32_t n = 0;
    int status = 0;
    if (!calls) return error_set(t->err, STATUS_NO_MEMORY, "no memory for a grammar");
    size_t length = strlen(cJSON_GetArrayItem(t->triggers, (int)number - 1)->valuestring);
    for (const cJSON *s = t->structures->child; s && status == 0; s = s->next) {
        if (find_trigger(t, text_of(s, "begin")) != number) continue;
        calls[n].rule = RULE_EMPTY;
        status = structure_state(t, s, length, text, &calls[n++].back);
    }
    if (status == 0 && n == 0)
        status = refuse(t, STATUS_INVALID, "of its triggers begins no structure", (int)number - 1);
    if (status == 0) builder_set_calls(&t->b, state, calls, n);
    free(calls);
    return status;
}

static int build(struct tags *t, uint32_t *rule)
{
    int status = 0;
    *rule = builder_rule(&t->b);
    uint32_t text = builder_dfa(&t->b, &t->text, -1, NULL, 0);
    builder_set_start(&t->b, *rule, text);
    for (uint32_t s = 1; s < t->text.num_states && status == 0; s++)
        if (t->trigger_of[s]) status = add_structures(t, t->trigger_of[s], text - t->text.start + s, text);
    return status;
}

int grammar_from_structural_tag(const cJSON *tag, const struct grammar_options *options, struct grammar **out,
                                struct error *err)
{
    struct tags t = {.err = err};
    uint32_t rule;
    *out = NULL;
    int status = builder_init_for(&t.b, options, err);
    json_add_classes(&t.b);
    if (status == 0) status = read_parts(&t, tag);
    if (status == 0) status = check_triggers(&t);
    if (status == 0) status = check_structures(&t);
    if (status == 0) status = make_text(&t);
    if (status == 0) status = build(&t, &rule);
    if (status == 0) status = builder_finish(&t.b, rule, false, out, err);
    builder_deinit(&t.b);
    dfa_deinit(&t.text);
    free(t.fallbacks);
    free(t.trigger_of);
    return status;
}
