#include "files/model_path.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "files/file_map.h"

static int check_directory(const char *path, struct error *err)
{
    char name[PATH_MAX];
    struct stat st;
    int n = snprintf(name, sizeof name, "%s/config.json", path);
    if (n < (int)sizeof name && stat(name, &st) == 0) return STATUS_OK;
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

int model_path_check(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st)) return error_set(err, STATUS_NOT_FOUND, "%s: %s", path, strerror(errno));
    return S_ISDIR(st.st_mode) ? check_directory(path, err) : check_file(path, err);
}
