#include "files/model_path.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "files/file_map.h"
#include "files/hub_cache.h"

/* The first GGUF file in the folder, by its name; "" if there is none. */
static void find_gguf(const char *folder, char first[NAME_MAX + 1])
{
    static const char ending[] = ".gguf";
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    first[0] = '\0';
    while (dir && (entry = readdir(dir))) {
        size_t n = strlen(entry->d_name);
        if (n < sizeof ending || strcmp(entry->d_name + n - strlen(ending), ending) != 0) continue;
        if (!first[0] || strcmp(entry->d_name, first) < 0) snprintf(first, NAME_MAX + 1, "%s", entry->d_name);
    }
    if (dir) closedir(dir);
}

static int check_directory(const char *path, struct error *err)
{
    char name[PATH_MAX], gguf[NAME_MAX + 1];
    struct stat st;
    int n = snprintf(name, sizeof name, "%s/config.json", path);
    if (n < (int)sizeof name && stat(name, &st) == 0) return STATUS_OK;
    find_gguf(path, gguf);
    if (gguf[0])
        return error_set(
            err, STATUS_NOT_FOUND,
            "%s: a directory without a config.json; of its GGUF files one is to be named, such as %s%s%s",
            path, path, path[strlen(path) - 1] == '/' ? "" : "/", gguf);
    return error_set(
        err, STATUS_NOT_FOUND,
        "%s: a directory without a config.json; a GGUF file or a Hugging Face directory is expected", path);
}

static int check_file(const char *path, struct error *err)
{
    static const char magic[] = "GGUF";
    struct file_map map;
    int status = file_map_open(path, &map, err);
    if (status) return status;
    bool begins = map.num_bytes >= strlen(magic) && !memcmp(map.data, magic, strlen(magic));
    file_map_close(&map);
    if (begins) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "%s: no GGUF file; a GGUF file or a Hugging Face directory is expected", path);
}

/* Whether the folder in front of the slash is there: then the text is a path. */
static bool has_folder(const char *text)
{
    char folder[NAME_MAX + 1];
    struct stat st;
    size_t n = strcspn(text, "/");
    snprintf(folder, sizeof folder, "%.*s", (int)n, text);
    return n <= NAME_MAX && stat(folder, &st) == 0;
}

static int fail_absent(const struct hub_name *name, struct error *err)
{
    char cache[PATH_MAX];
    bool known = hub_cache_folder(cache, sizeof cache);
    bool is_main = !strcmp(name->revision, "main");
    return error_set(
        err, STATUS_NOT_FOUND,
        "%s: no such file here, nor is it in the Hugging Face cache%s%s, and flashd fetches none; "
        "`hf download %s%s%s` does, then serve it by this name",
        name->model, known ? " " : "", known ? cache : "", name->model, is_main ? "" : " --revision ",
        is_main ? "" : name->revision);
}

static int find_in_cache(const char *text, char **path, struct error *err)
{
    int reason = errno;
    struct hub_name name;
    if (!hub_name_parse(text, &name) || has_folder(text))
        return error_set(err, STATUS_NOT_FOUND, "%s: %s", text, strerror(reason));
    err->text[0] = '\0';
    int status = hub_cache_find(&name, path, err);
    return status == STATUS_NOT_FOUND && !err->text[0] ? fail_absent(&name, err) : status;
}

static int check(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st)) return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? check_directory(path, err) : check_file(path, err);
}

int model_path_find(const char *model, char **path, struct error *err)
{
    struct stat st;
    *path = NULL;
    int status = stat(model, &st) ? find_in_cache(model, path, err) : STATUS_OK;
    if (!status && !*path) *path = strdup(model);
    if (!status && !*path) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    return status ? status : check(*path, err);
}
