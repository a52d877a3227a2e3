#include "files/model_path.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "files/file_map.h"

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

/* ORG/NAME, as a model's name on the Hugging Face hub, and no file in a folder that is there. */
static bool is_hub_name(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char folder[NAME_MAX + 1];
    struct stat st;
    size_t n = strspn(path, letters), rest = path[n] == '/' ? strspn(path + n + 1, letters) : 0;
    if (n == 0 || n > NAME_MAX || rest == 0 || path[n + 1 + rest] || path[0] == '.') return false;
    snprintf(folder, sizeof folder, "%.*s", (int)n, path);
    return stat(folder, &st) != 0;
}

static int fail_absent(const char *path, struct error *err)
{
    int reason = errno;
    if (!is_hub_name(path)) return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(reason));
    const char *name = strchr(path, '/') + 1;
    return error_set(err, STATUS_NOT_FOUND,
                     "%s: no such file here, and flashd fetches none; of a model on the Hugging Face hub, "
                     "`hf download %s --local-dir %s` fetches the files, then serve %s",
                     path, path, name, name);
}

int model_path_check(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st)) return fail_absent(path, err);
    return S_ISDIR(st.st_mode) ? check_directory(path, err) : check_file(path, err);
}
