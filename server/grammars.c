#include "server/grammars.h"

#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/id_list.h"
#include "text/grammar/grammar.h"
#include "text/grammar/mask_cache.h"
#include "text/grammar/vocabulary.h"
#include "text/json_numbers.h"
#include "text/tokenizer.h"

enum {
    KEPT_BYTES_MAX = 64 << 20, /* of all grammars while some are held by nobody */
    MASK_BYTES_MAX = 2 << 20,  /* of one grammar's masks */
    ENTRIES_MAX = 1024,        /* while some are held by nobody: they are searched one by one */
    CHOICES_MAX = 65536,
};

const char *const constraint_kind_names[NUM_CONSTRAINT_KINDS] = {
    [CONSTRAINT_JSON_OBJECT] = "json_object",
    [CONSTRAINT_JSON_SCHEMA] = "json_schema",
    [CONSTRAINT_REGEX] = "regex",
    [CONSTRAINT_CHOICE] = "choice",
    [CONSTRAINT_EBNF] = "grammar",
    [CONSTRAINT_STRUCTURAL_TAG] = "structural_tag",
    [CONSTRAINT_CALLS] = "tool_calls",
};

struct entry {
    struct shared_grammar shared; /* first */
    struct entry *newer, *older;  /* by their last use */
    int32_t num_holders;
    size_t num_bytes; /* without the masks */
    enum constraint_kind kind;
    int max_spaces;
    char *whitespace_pattern; /* or NULL */
    size_t num_text_bytes;
    char text[];
};

struct grammars {
    const struct tokenizer *tokenizer;
    int32_t num_ids; /* the logits' width */
    int32_t end_ids[EOS_IDS_MAX + 1], num_end_ids;
    pthread_mutex_t mutex;
    struct entry *newest, *oldest;
    int32_t num_entries;
    struct vocabulary *vocabulary; /* NULL: not yet */
    size_t held_bytes;             /* of entries with holders */
    struct grammars_stats stats;
};

static bool is_end(const struct grammars *g, int32_t token_id)
{
    return id_list_has(g->end_ids, g->num_end_ids, token_id);
}

/* ---- life ---- */

int grammars_create(const struct tokenizer *tokenizer, const struct link_facts *facts, struct grammars **out,
                    struct error *err)
{
    struct grammars *g = calloc(1, sizeof *g);
    if (!g) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    g->tokenizer = tokenizer;
    g->num_ids = facts->vocab_size;
    memcpy(g->end_ids, facts->eos_ids, (size_t)facts->num_eos_ids * sizeof g->end_ids[0]);
    g->num_end_ids = facts->num_eos_ids;
    int32_t own = tokenizer_eos_id(tokenizer);
    if (own >= 0 && own < g->num_ids && !is_end(g, own)) g->end_ids[g->num_end_ids++] = own;
    pthread_mutex_init(&g->mutex, NULL);
    *out = g;
    return 0;
}

static void free_entry(struct entry *e)
{
    mask_cache_free(e->shared.masks);
    grammar_free(e->shared.grammar);
    free(e->whitespace_pattern);
    free(e);
}

void grammars_destroy(struct grammars *g)
{
    if (!g) return;
    for (struct entry *e = g->newest, *older; e; e = older) {
        older = e->older;
        assert_always(e->num_holders == 0);
        free_entry(e);
    }
    vocabulary_free(g->vocabulary);
    pthread_mutex_destroy(&g->mutex);
    free(g);
}

int32_t grammars_end_ids(const struct grammars *g, const int32_t **ids)
{
    *ids = g->end_ids;
    return g->num_end_ids;
}

const struct tokenizer *grammars_tokenizer(const struct grammars *g)
{
    return g->tokenizer;
}

/* ---- the vocabulary ---- */

/* Control tokens are no text; where an answer may end, who uses the masks knows. */
static const char *token_bytes(const void *context, int32_t id, size_t *num_bytes)
{
    const struct grammars *g = context;
    *num_bytes = 0;
    if (id >= tokenizer_vocab_size(g->tokenizer) || tokenizer_is_special(g->tokenizer, id) || is_end(g, id))
        return "";
    return tokenizer_token_bytes(g->tokenizer, id, num_bytes);
}

/* Two that come at once make it twice, and one is thrown away. */
static int need_vocabulary(struct grammars *g, struct error *err)
{
    const struct vocabulary_source source = {.num_ids = g->num_ids, .token_bytes = token_bytes, .context = g};
    struct vocabulary *made;
    pthread_mutex_lock(&g->mutex);
    bool is_there = g->vocabulary != NULL;
    pthread_mutex_unlock(&g->mutex);
    if (is_there) return 0;
    int status = vocabulary_make(&source, &made, err);
    if (status) return status;
    pthread_mutex_lock(&g->mutex);
    if (!g->vocabulary) {
        g->vocabulary = made;
        made = NULL;
    }
    pthread_mutex_unlock(&g->mutex);
    vocabulary_free(made);
    return 0;
}

/* ---- compiling ---- */

static bool is_one_of(const char *name, const char *const *names)
{
    while (*names && strcmp(*names, name) != 0) names++;
    return *names != NULL;
}

/* Keywords that are null are absent: so Go's marshaller writes empty lists and maps. Values keep theirs. */
static void drop_null_keywords(cJSON *schema)
{
    static const char *const values[] = {"enum", "const", "default", "example", "examples", NULL};
    static const char *const maps[] = {"properties",       "patternProperties", "$defs", "definitions",
                                       "dependentSchemas", "dependencies",      NULL};
    for (cJSON *part = schema->child, *next, *member; part; part = next) {
        next = part->next;
        bool is_null = part->string && cJSON_IsNull(part) && strcmp(part->string, "const") != 0;
        if (!is_null && part->string && is_one_of(part->string, values)) continue;
        if (is_null) {
            cJSON_Delete(cJSON_DetachItemViaPointer(schema, part));
        } else if (part->string && is_one_of(part->string, maps)) {
            cJSON_ArrayForEach(member, part) drop_null_keywords(member);
        } else {
            drop_null_keywords(part);
        }
    }
}

/* A text that was checked, as a tree of the caller; NULL: no memory. */
static cJSON *parse(const struct constraint *c)
{
    cJSON *json = cJSON_ParseWithLength(c->text, c->num_bytes);
    if (json && !json_keep_numbers(json, c->text, c->num_bytes)) return json;
    cJSON_Delete(json);
    return NULL;
}

typedef int compile_json(const cJSON *json, const struct grammar_options *options, struct grammar **out,
                         struct error *err);

static int compile_parsed(const struct constraint *c, compile_json *compile,
                          const struct grammar_options *options, struct grammar **out, struct error *err)
{
    cJSON *json = parse(c);
    if (!json) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    drop_null_keywords(json);
    int status = compile(json, options, out, err);
    cJSON_Delete(json);
    return status;
}

static int compile_choice(const struct constraint *c, struct grammar **out, struct error *err)
{
    cJSON *list = cJSON_ParseWithLength(c->text, c->num_bytes), *item;
    int count = min_of(cJSON_GetArraySize(list), (int)CHOICES_MAX), i = 0;
    const char **texts = calloc((size_t)count + 1, sizeof *texts);
    size_t *num_bytes = calloc((size_t)count + 1, sizeof *num_bytes);
    int status = error_set(err, STATUS_NO_MEMORY, "out of memory");
    if (cJSON_GetArraySize(list) > CHOICES_MAX) {
        status = error_set(err, STATUS_LIMIT, "there are more than %d choices", CHOICES_MAX);
    } else if (list && texts && num_bytes) {
        cJSON_ArrayForEach(item, list)
        {
            texts[i] = item->valuestring;
            num_bytes[i] = strlen(item->valuestring);
            i++;
        }
        status = grammar_from_choices(texts, num_bytes, count, out, err);
    }
    free(texts);
    free(num_bytes);
    cJSON_Delete(list);
    return status;
}

static int compile_calls(const struct constraint *c, const struct grammar_options *options,
                         struct grammar **out, struct error *err)
{
    cJSON *both = parse(c), *schema;
    if (!both) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(both, "ebnf"));
    const cJSON *schemas = cJSON_GetObjectItemCaseSensitive(both, "schemas");
    cJSON_ArrayForEach(schema, schemas) drop_null_keywords(schema);
    int status = grammar_from_ebnf_with_schemas(text, strlen(text), schemas, options, out, err);
    cJSON_Delete(both);
    return status;
}

static int compile(const struct constraint *c, struct grammar **out, struct error *err)
{
    const struct grammar_options options = {
        .max_spaces = c->max_spaces, .whitespace_pattern = c->whitespace_pattern, .closes_objects = true};
    switch (c->kind) {
    case CONSTRAINT_JSON_OBJECT:
        return grammar_from_json_object(&options, out, err);
    case CONSTRAINT_JSON_SCHEMA:
        return compile_parsed(c, grammar_from_json_schema, &options, out, err);
    case CONSTRAINT_STRUCTURAL_TAG:
        return compile_parsed(c, grammar_from_structural_tag, &options, out, err);
    case CONSTRAINT_REGEX:
        return grammar_from_regex(c->text, c->num_bytes, out, err);
    case CONSTRAINT_CHOICE:
        return compile_choice(c, out, err);
    case CONSTRAINT_EBNF:
        return grammar_from_ebnf(c->text, c->num_bytes, out, err);
    case CONSTRAINT_CALLS:
        return compile_calls(c, &options, out, err);
    default:
        return error_set(err, STATUS_INVALID, "no constraint");
    }
}

static int make_entry(struct grammars *g, const struct constraint *c, struct entry **out, struct error *err)
{
    struct entry *e = calloc(1, sizeof *e + c->num_bytes);
    if (!e) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    e->kind = c->kind;
    e->max_spaces = c->max_spaces;
    e->num_text_bytes = c->num_bytes;
    if (c->num_bytes > 0) memcpy(e->text, c->text, c->num_bytes);
    e->shared.vocabulary = g->vocabulary;
    if (c->whitespace_pattern && !(e->whitespace_pattern = strdup(c->whitespace_pattern))) {
        free_entry(e);
        return error_set(err, STATUS_NO_MEMORY, "out of memory");
    }
    int status = compile(c, &e->shared.grammar, err);
    if (status == 0 && mask_cache_new(e->shared.grammar, g->vocabulary, MASK_BYTES_MAX, &e->shared.masks))
        status = error_set(err, STATUS_NO_MEMORY, "out of memory");
    if (status) {
        free_entry(e);
        return status;
    }
    e->num_bytes = sizeof *e + c->num_bytes + grammar_bytes(e->shared.grammar);
    *out = e;
    return 0;
}

/* ---- what is known: under the mutex ---- */

static bool is_of(const struct entry *e, const struct constraint *c)
{
    return e->kind == c->kind && e->max_spaces == c->max_spaces &&
           !strcmp(e->whitespace_pattern ?: "", c->whitespace_pattern ?: "") &&
           !e->whitespace_pattern == !c->whitespace_pattern && e->num_text_bytes == c->num_bytes &&
           (c->num_bytes == 0 || !memcmp(e->text, c->text, c->num_bytes));
}

static void unlink_entry(struct grammars *g, struct entry *e)
{
    if (e->newer)
        e->newer->older = e->older;
    else
        g->newest = e->older;
    if (e->older)
        e->older->newer = e->newer;
    else
        g->oldest = e->newer;
    e->newer = e->older = NULL;
    g->num_entries--;
}

static void link_newest(struct grammars *g, struct entry *e)
{
    e->older = g->newest;
    if (g->newest)
        g->newest->newer = e;
    else
        g->oldest = e;
    g->newest = e;
    g->num_entries++;
}

static size_t bytes_of(const struct entry *e)
{
    return e->num_bytes + mask_cache_bytes(e->shared.masks);
}

/* What nobody holds goes, until all fits. */
static void make_room(struct grammars *g)
{
    size_t total = 0;
    for (const struct entry *e = g->newest; e; e = e->older) total += bytes_of(e);
    for (struct entry *e = g->oldest, *newer; e; e = newer) {
        newer = e->newer;
        if (total <= KEPT_BYTES_MAX && g->num_entries <= ENTRIES_MAX) break;
        if (e->num_holders > 0) continue;
        total -= bytes_of(e);
        unlink_entry(g, e);
        free_entry(e);
    }
    g->stats.num_bytes = total;
}

static void hold(struct grammars *g, struct entry *e)
{
    if (e->num_holders++ == 0) g->held_bytes += e->num_bytes;
}

static struct entry *find(struct grammars *g, const struct constraint *c)
{
    for (struct entry *e = g->newest; e; e = e->older) {
        if (!is_of(e, c)) continue;
        unlink_entry(g, e);
        link_newest(g, e);
        hold(g, e);
        g->stats.num_found++;
        return e;
    }
    return NULL;
}

/* ---- what others call ---- */

static void count_compiled(struct grammars *g, uint64_t ns, int status)
{
    g->stats.compile_seconds += (double)ns / 1e9;
    *(status == 0 ? &g->stats.num_compiled : &g->stats.num_refused) += 1;
}

int grammars_get(struct grammars *g, const struct constraint *c, const struct shared_grammar **out,
                 struct error *err)
{
    *out = NULL;
    int status = need_vocabulary(g, err);
    if (status) return status;
    pthread_mutex_lock(&g->mutex);
    struct entry *e = find(g, c);
    bool is_full = g->held_bytes > GRAMMARS_HELD_BYTES_MAX;
    pthread_mutex_unlock(&g->mutex);
    if (e) {
        *out = &e->shared;
        return 0;
    }
    if (is_full) return error_set(err, STATUS_NO_SLOT, "too many large grammars are in use at once");
    uint64_t begin_ns = clock_monotonic_ns();
    status = make_entry(g, c, &e, err);
    uint64_t ns = clock_monotonic_ns() - begin_ns;
    pthread_mutex_lock(&g->mutex);
    count_compiled(g, ns, status);
    if (e) {
        link_newest(g, e);
        hold(g, e);
        make_room(g);
        *out = &e->shared;
    }
    pthread_mutex_unlock(&g->mutex);
    return status;
}

const struct shared_grammar *grammars_hold(struct grammars *g, const struct shared_grammar *shared)
{
    pthread_mutex_lock(&g->mutex);
    hold(g, (struct entry *)(uintptr_t)shared);
    pthread_mutex_unlock(&g->mutex);
    return shared;
}

void grammars_release(struct grammars *g, const struct shared_grammar *shared)
{
    struct entry *e = (struct entry *)(uintptr_t)shared;
    if (!e) return;
    pthread_mutex_lock(&g->mutex);
    assert_always(e->num_holders > 0);
    if (--e->num_holders == 0) g->held_bytes -= e->num_bytes;
    pthread_mutex_unlock(&g->mutex);
}

size_t grammars_held_bytes(struct grammars *g)
{
    pthread_mutex_lock(&g->mutex);
    size_t num_bytes = g->held_bytes;
    pthread_mutex_unlock(&g->mutex);
    return num_bytes;
}

size_t grammars_part_bytes(struct grammars *g, const struct shared_grammar *shared)
{
    const struct entry *e = (const struct entry *)shared;
    pthread_mutex_lock(&g->mutex);
    size_t num_bytes = e->num_bytes / (size_t)e->num_holders;
    pthread_mutex_unlock(&g->mutex);
    return num_bytes;
}

void grammars_stats(struct grammars *g, struct grammars_stats *out)
{
    pthread_mutex_lock(&g->mutex);
    *out = g->stats;
    pthread_mutex_unlock(&g->mutex);
}
