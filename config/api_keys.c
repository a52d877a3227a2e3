#include "config/api_keys.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "config/closest.h"

static const char digest_prefix[] = "sha256:";

enum {
    FILE_BYTES_MAX = 64 << 10,
    KEY_BYTES_MAX = 512,
    SOURCE_BYTES_MAX = 300,
    TERM_BYTES_MAX = 64, /* that an error shows */
    PREFIX_BYTES = sizeof digest_prefix - 1
};

static bool is_digest(const char *key)
{
    return !strncmp(key, digest_prefix, PREFIX_BYTES);
}

static int check_key(const char *key, const char *source, int number, struct error *err)
{
    size_t n = strlen(key);
    bool visible = n > 0 && n <= KEY_BYTES_MAX;
    for (size_t i = 0; i < n && visible; i++) visible = key[i] > ' ' && key[i] <= '~' && key[i] != ',';
    if (!visible)
        return error_set(
            err, STATUS_INVALID,
            "%s: api-key: key %d must be 1 to %d visible ASCII characters without blanks and commas", source,
            number, KEY_BYTES_MAX);
    if (is_digest(key) && (n != PREFIX_BYTES + 64 || strspn(key + PREFIX_BYTES, "0123456789abcdef") != 64))
        return error_set(
            err, STATUS_INVALID,
            "%s: api-key: key %d begins with sha256: but 64 small hexadecimal digits do not follow", source,
            number);
    if (!strcasecmp(key, "null"))
        return error_set(err, STATUS_INVALID,
                         "%s: api-key: key %d is \"%s\", as if it had been left out by mistake", source,
                         number, key);
    return STATUS_OK;
}

static int read_text(const char *path, char text[FILE_BYTES_MAX + 1], struct error *err)
{
    FILE *file = fopen(path, "rb");
    text[0] = '\0';
    if (!file) return error_set(err, STATUS_IO, "--api-key-file %s: %s", path, strerror(errno));
    size_t n = fread(text, 1, FILE_BYTES_MAX + 1, file);
    int problem = ferror(file) ? errno : 0;
    fclose(file);
    if (problem) return error_set(err, STATUS_IO, "--api-key-file %s: %s", path, strerror(problem));
    if (n > FILE_BYTES_MAX)
        return error_set(err, STATUS_LIMIT, "--api-key-file %s: more than %d bytes", path, FILE_BYTES_MAX);
    text[n] = '\0';
    if (strlen(text) != n) return error_set(err, STATUS_INVALID, "--api-key-file %s: not a text", path);
    return STATUS_OK;
}

static int read_file(struct config *config, struct error *err)
{
    char text[FILE_BYTES_MAX + 1];
    const char *path = config->api_key_file;
    int status = read_text(path, text, err), num_before = config->api_key.num_items;
    if (status) return status;
    const char *line = text;
    for (int number = 1; *line; number++) {
        char source[SOURCE_BYTES_MAX];
        size_t n = strcspn(line, "\r\n");
        snprintf(source, sizeof source, "%s:%d", path, number);
        if (n > 0 && text_list_append_from(&config->api_key, line, n, source))
            return error_set(err, STATUS_NO_MEMORY, "out of memory");
        line += n;
        line += strncmp(line, "\r\n", 2) ? *line != '\0' : 2;
    }
    if (config->api_key.num_items == num_before)
        return error_set(err, STATUS_INVALID, "--api-key-file %s: there is no key in it", path);
    return STATUS_OK;
}

/* ---- what stands behind a key ---- */

static const struct api_key_terms default_terms = {.weight = 1};

static bool read_count(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !errno && end != text && !*end && *out >= 1;
}

static bool read_weight(const char *text, double *out)
{
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && *out >= 0.001 && *out <= 1000;
}

static bool read_name(const char *text, struct api_key_terms *terms)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = strspn(text, allowed);
    if (n == 0 || text[n] || n >= sizeof terms->name) return false;
    memcpy(terms->name, text, n + 1);
    return true;
}

enum term { TERM_ADMIN, TERM_NAME, TERM_WEIGHT, TERM_MAX_SEQS, TERM_MAX_TOKENS, NUM_TERMS };
static const char *const term_names[NUM_TERMS] = {"admin", "name", "weight", "max-seqs", "max-tokens"};

/* NUM_TERMS: none. */
static enum term find_term(const char *word)
{
    size_t n = strcspn(word, "=");
    int term = 0;
    while (term < NUM_TERMS && (strlen(term_names[term]) != n || strncmp(term_names[term], word, n) != 0))
        term++;
    return term;
}

static bool read_term(const char *word, struct api_key_terms *terms)
{
    enum term term = find_term(word);
    const char *value = strchr(word, '=');
    if (term == TERM_ADMIN) return terms->admin = !value;
    if (!value) return false;
    value++;
    if (term == TERM_NAME) return read_name(value, terms);
    if (term == TERM_WEIGHT) return read_weight(value, &terms->weight);
    if (term == TERM_MAX_SEQS) return read_count(value, &terms->max_seqs);
    return term == TERM_MAX_TOKENS && read_count(value, &terms->max_tokens);
}

/* A word is shown where it is near one of these; what else stands there may be a key. */
static int refuse_term(const char *word, const char *source, int number, struct error *err)
{
    size_t n = strcspn(word, "=");
    bool may_show = strlen(word) <= TERM_BYTES_MAX && closest_word(word, n, term_names, NUM_TERMS);
    return error_set(
        err, STATUS_INVALID,
        "%s: api-key: behind key %d stands %s; name=NAME, weight=0.001..1000, max-seqs=N "
        "(sequences in flight), max-tokens=N (tokens of prompts in flight) and admin may stand there",
        source, number, may_show ? word : "a word that is none of these");
}

static int read_terms(char *rest, const char *source, int number, struct api_key_terms *terms,
                      struct error *err)
{
    unsigned seen = 0;
    for (const char *word; (word = strtok_r(NULL, " \t", &rest));) {
        if (!read_term(word, terms)) return refuse_term(word, source, number, err);
        unsigned term = 1U << find_term(word);
        if (seen & term)
            return error_set(err, STATUS_INVALID, "%s: api-key: behind key %d %s stands twice", source,
                             number, term_names[find_term(word)]);
        seen |= term;
    }
    return STATUS_OK;
}

/* Cuts an entry into its key, which stays, and its terms. */
static int read_entry(char *entry, const char *source, int number, struct api_key_terms *terms,
                      struct error *err)
{
    char *rest = NULL;
    *terms = default_terms;
    strtok_r(entry, " \t", &rest); /* leaves the key in place: an entry begins with it */
    int status = read_terms(rest, source, number, terms, err);
    if (!status) status = check_key(entry, source, number, err);
    if (status) return status;
    if (is_digest(entry))
        memcpy(terms->digest.text, entry + PREFIX_BYTES, sizeof terms->digest.text);
    else
        terms->digest = digest_of(entry, strlen(entry));
    return STATUS_OK;
}

/* ---- no key and no name stands twice ---- */

static bool is_same_key(const struct api_key_terms *a, const struct api_key_terms *b)
{
    return !strcmp(a->digest.text, b->digest.text);
}

static int refuse_second(const struct config *c, int first, int second, const char *what, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s: api-key: key %d %s key %d (%s)", c->api_key.sources[second],
                     second + 1, what, first + 1, c->api_key.sources[first]);
}

static int check_apart(const struct config *c, int i, int j, struct error *err)
{
    const struct api_key_terms *first = &c->api_key_terms[i], *second = &c->api_key_terms[j];
    if (is_same_key(first, second)) return refuse_second(c, i, j, "is the same as", err);
    if (second->name[0] && !strcmp(first->name, second->name))
        return refuse_second(c, i, j, "has the name of", err);
    return STATUS_OK;
}

int api_keys_load(struct config *config, struct error *err)
{
    int status = config->api_key_file ? read_file(config, err) : STATUS_OK;
    int num_keys = config->api_key.num_items;
    if (status || num_keys == 0) return status;
    config->api_key_terms = calloc((size_t)num_keys, sizeof *config->api_key_terms);
    if (!config->api_key_terms) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    for (int i = 0; i < num_keys && !status; i++)
        status = read_entry(config->api_key.items[i], config->api_key.sources[i], i + 1,
                            &config->api_key_terms[i], err);
    for (int j = 1; j < num_keys && !status; j++)
        for (int i = 0; i < j && !status; i++) status = check_apart(config, i, j, err);
    return status;
}

struct api_key_terms api_keys_terms(const struct config *config, int key_idx)
{
    return key_idx >= 0 && config->api_key_terms ? config->api_key_terms[key_idx] : default_terms;
}

/* ---- while the server runs ---- */

static int find_key(const struct config *config, const struct api_key_terms *terms)
{
    for (int i = 0; i < config->api_key.num_items; i++)
        if (is_same_key(&config->api_key_terms[i], terms)) return i;
    return -1;
}

/* Room for all of fresh, so that nothing can fail in the middle. */
static int append_new_keys(struct config *config, const struct config *fresh, bool *changed)
{
    int num_most = config->api_key.num_items + fresh->api_key.num_items;
    struct api_key_terms *terms = realloc(config->api_key_terms, (size_t)num_most * sizeof *terms);
    if (!terms) return STATUS_NO_MEMORY;
    config->api_key_terms = terms;
    for (int i = 0; i < fresh->api_key.num_items; i++) {
        const char *key = fresh->api_key.items[i];
        if (find_key(config, &fresh->api_key_terms[i]) >= 0) continue;
        if (text_list_append(&config->api_key, key, strlen(key))) return STATUS_NO_MEMORY;
        terms[config->api_key.num_items - 1] = fresh->api_key_terms[i];
        *changed = true;
    }
    return STATUS_OK;
}

static bool is_same(const struct api_key_terms *a, const struct api_key_terms *b)
{
    return a->weight == b->weight && a->max_seqs == b->max_seqs && a->max_tokens == b->max_tokens &&
           !strcmp(a->name, b->name) && a->revoked == b->revoked && a->admin == b->admin;
}

int api_keys_merge(struct config *config, const struct config *fresh, bool *changed, struct error *err)
{
    *changed = false;
    if ((config->api_key.num_items == 0) != (fresh->api_key.num_items == 0))
        return error_set(err, STATUS_INVALID,
                         "api-key: whether a server has keys at all is decided when it starts");
    if (fresh->api_key.num_items == 0) return STATUS_OK;
    if (append_new_keys(config, fresh, changed)) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    for (int i = 0; i < config->api_key.num_items; i++) {
        int at = find_key(fresh, &config->api_key_terms[i]);
        struct api_key_terms terms = at >= 0 ? fresh->api_key_terms[at] : config->api_key_terms[i];
        terms.revoked = at < 0;
        *changed |= !is_same(&terms, &config->api_key_terms[i]);
        config->api_key_terms[i] = terms;
    }
    return STATUS_OK;
}

const char *api_keys_name(const struct config *config, int key_idx)
{
    if (key_idx < 0 || !config->api_key_terms || !config->api_key_terms[key_idx].name[0]) return NULL;
    return config->api_key_terms[key_idx].name;
}

static void hide(char *text)
{
    memset(text, 'x', strlen(text));
}

void api_keys_hide(const struct config *config, int num_args, char **args)
{
    static const char name[] = "--api-key";
    bool is_key = false;
    for (int i = 0; i < num_args; i++) {
        if (!strncmp(args[i], "--api-key=", sizeof name)) hide(args[i] + sizeof name);
        if (!strncmp(args[i], "--", 2))
            is_key = !strcmp(args[i], name);
        else if (is_key && !(config->model && !strcmp(args[i], config->model)))
            hide(args[i]);
    }
}
