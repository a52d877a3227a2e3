#include "files/hub_cache.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names ---- */

/* Copies the letters of a name on the hub from *at on and moves it behind them. False: there is none, or it is too long. */
static bool take_word(const char **at, char *out, size_t capacity)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = strspn(*at, letters);
    if (n == 0 || n >= capacity || **at == '.') return false;
    memcpy(out, *at, n);
    out[n] = '\0';
    *at += n;
    return true;
}

bool hub_name_parse(const char *text, struct hub_name *out)
{
    *out = (struct hub_name){.revision = "main"};
    if (!take_word(&text, out->model, sizeof out->model) || *text++ != '/') return false;
    size_t n = strlen(out->model);
    out->model[n++] = '/';
    if (n >= sizeof out->model || !take_word(&text, out->model + n, sizeof out->model - n)) return false;
    if (*text == '@' && (text++, !take_word(&text, out->revision, sizeof out->revision))) return false;
    if (*text == ':' && (text++, !take_word(&text, out->quant, sizeof out->quant))) return false;
    return *text == '\0';
}

/* ---- folders ---- */

static bool print_path(char path[PATH_MAX], const char *folder, const char *name)
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static bool is_there(const char *folder, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    return print_path(path, folder, name) && stat(path, &st) == 0;
}

bool hub_cache_folder(char *folder, size_t capacity)
{
    static const struct {
        const char *variable, *below;
    } places[] = {{"HF_HUB_CACHE", ""},
                  {"HF_HOME", "/hub"},
                  {"XDG_CACHE_HOME", "/huggingface/hub"},
                  {"HOME", "/.cache/huggingface/hub"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *value = getenv(places[i].variable);
        if (value && *value)
            return snprintf(folder, capacity, "%s%s", value, places[i].below) < (int)capacity;
    }
    return false;
}

/* The commit that the revision is: what refs/REVISION says, or the revision itself. */
static bool read_commit(const char *repository, const char *revision, char commit[HUB_TAG_BYTES])
{
    char path[PATH_MAX], name[HUB_TAG_BYTES + 8];
    snprintf(name, sizeof name, "refs/%s", revision);
    FILE *file = print_path(path, repository, name) ? fopen(path, "r") : NULL;
    snprintf(commit, HUB_TAG_BYTES, "%s", revision);
    if (!file) return true;
    bool read = fgets(commit, HUB_TAG_BYTES, file) != NULL;
    fclose(file);
    commit[strcspn(commit, "\r\n")] = '\0';
    return read && commit[0] && commit[0] != '.' && !strchr(commit, '/');
}

static bool find_snapshot(const struct hub_name *name, char path[PATH_MAX])
{
    char cache[PATH_MAX], repository[PATH_MAX], commit[HUB_TAG_BYTES];
    struct stat st;
    const char *slash = strchr(name->model, '/');
    if (!hub_cache_folder(cache, sizeof cache)) return false;
    int n = snprintf(repository, sizeof repository, "%s/models--%.*s--%s", cache, (int)(slash - name->model),
                     name->model, slash + 1);
    if (n >= (int)sizeof repository || !read_commit(repository, name->revision, commit)) return false;
    n = snprintf(path, PATH_MAX, "%s/snapshots/%s", repository, commit);
    return n < PATH_MAX && stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* ---- GGUF files ---- */

struct choice {
    const char *quant;
    char best[PATH_MAX]; /* "": none yet */
    bool best_is_wanted; /* it is of the quant, or of the usual one where none is said */
    char names[400];     /* of those that are there, as many as fit */
};

static void add_name(struct choice *c, const char *file)
{
    size_t n = strlen(c->names), num_bytes = strlen(file);
    if (n + 2 + num_bytes >= sizeof c->names) return;
    if (n > 0) {
        memcpy(c->names + n, ", ", 2);
        n += 2;
    }
    memcpy(c->names + n, file, num_bytes + 1);
}

/* How long the name of a GGUF file is without its ending, and without the part's number: model-00001-of-00002.gguf. */
static size_t stem_bytes(const char *file, unsigned *part)
{
    unsigned num_parts;
    int used = 0;
    size_t n = strlen(file) - strlen(".gguf"), suffix = strlen("-00001-of-00002");
    if (n > suffix && sscanf(file + n - suffix, "-%5u-of-%5u.gguf%n", part, &num_parts, &used) == 2 && used)
        return n - suffix;
    *part = 1;
    return n;
}

/* model-Q4_K_M.gguf is of Q4_K_M. */
static bool is_of_quant(const char *file, size_t stem, const char *quant)
{
    size_t n = strlen(quant);
    return stem > n && strchr("-._", file[stem - n - 1]) && !strncasecmp(file + stem - n, quant, n);
}

static bool is_gguf(const char *file)
{
    size_t n = strlen(file);
    return n > 5 && !strcmp(file + n - 5, ".gguf") && strncmp(file, "mmproj", 6) != 0; /* what sees images */
}

static void consider(struct choice *c, const char *folder, const char *file)
{
    char path[PATH_MAX];
    unsigned part;
    if (!is_gguf(file) || !print_path(path, folder, file)) return;
    size_t stem = stem_bytes(file, &part);
    if (part != 1) return;
    add_name(c, file);
    bool is_wanted = is_of_quant(file, stem, c->quant[0] ? c->quant : "Q4_K_M");
    if (c->quant[0] && !is_wanted) return;
    if (c->best[0] &&
        (c->best_is_wanted > is_wanted || (c->best_is_wanted == is_wanted && strcmp(path, c->best) > 0)))
        return;
    c->best_is_wanted = is_wanted;
    memcpy(c->best, path, sizeof path);
}

/* The folder's files and those of its folders: large quantisations have one of their own. */
static void consider_folder(struct choice *c, const char *folder, int num_levels)
{
    char path[PATH_MAX];
    struct stat st;
    DIR *dir = opendir(folder);
    for (const struct dirent *entry; dir && (entry = readdir(dir));) {
        if (entry->d_name[0] == '.' || !print_path(path, folder, entry->d_name) || stat(path, &st)) continue;
        if (!S_ISDIR(st.st_mode))
            consider(c, folder, entry->d_name);
        else if (num_levels > 1)
            consider_folder(c, path, num_levels - 1);
    }
    if (dir) closedir(dir);
}

static int find_gguf(const struct hub_name *name, char snapshot[PATH_MAX], struct error *err)
{
    struct choice c = {.quant = name->quant};
    consider_folder(&c, snapshot, 2);
    if (!c.names[0])
        return error_set(err, STATUS_NOT_FOUND, "%s: its folder %s has neither a config.json nor a GGUF file",
                         name->model, snapshot);
    if (!c.best[0])
        return error_set(err, STATUS_NOT_FOUND, "%s: %s has no GGUF file of %s; there are %s", name->model,
                         snapshot, name->quant, c.names);
    memcpy(snapshot, c.best, sizeof c.best);
    return STATUS_OK;
}

int hub_cache_find(const struct hub_name *name, char **path, struct error *err)
{
    char found[PATH_MAX];
    *path = NULL;
    if (!find_snapshot(name, found)) return STATUS_NOT_FOUND;
    int status = !name->quant[0] && is_there(found, "config.json") ? STATUS_OK : find_gguf(name, found, err);
    if (status) return status;
    *path = strdup(found);
    return *path ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "out of memory");
}
