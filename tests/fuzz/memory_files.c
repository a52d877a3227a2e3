#include "tests/fuzz/memory_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "files/file_map.h"

static struct memory_file {
    char name[64];
    char *bytes;
    size_t num_bytes;
} files[MEMORY_FILES_MAX];

static struct memory_file *find(const char *name)
{
    for (int i = 0; i < MEMORY_FILES_MAX; i++)
        if (files[i].bytes && !strcmp(files[i].name, name)) return &files[i];
    return NULL;
}

static struct memory_file *find_path(const char *path)
{
    size_t n = strlen(MEMORY_DIRECTORY);
    return !strncmp(path, MEMORY_DIRECTORY "/", n + 1) ? find(path + n + 1) : NULL;
}

static struct memory_file *take_place(const char *name)
{
    struct memory_file *file = find(name);
    for (int i = 0; !file && i < MEMORY_FILES_MAX; i++)
        if (!files[i].bytes) file = &files[i];
    return file;
}

void memory_files_add(const char *name, const void *bytes, size_t num_bytes, size_t num_zeros)
{
    struct memory_file *file = take_place(name);
    if (!file || strlen(name) >= sizeof file->name) return;
    free(file->bytes);
    strcpy(file->name, name);
    file->num_bytes = num_bytes + num_zeros;
    file->bytes = malloc(file->num_bytes);
    assert_always(file->bytes);
    if (num_bytes) memcpy(file->bytes, bytes, num_bytes);
    memset(file->bytes + num_bytes, 0, num_zeros);
}

void memory_files_clear(void)
{
    for (int i = 0; i < MEMORY_FILES_MAX; i++) {
        free(files[i].bytes);
        files[i].bytes = NULL;
    }
}

/* ---- an input of several files ---- */

enum { ZEROS_MAX = 1 << 20 };

static const char *find_mark(const char *from, const char *end)
{
    const char *at = from;
    while ((at = memmem(at, (size_t)(end - at), "== ", 3))) {
        if (at == from || at[-1] == '\n') return at;
        at++;
    }
    return NULL;
}

static void add_part(const char *name, size_t name_bytes, const char *text, size_t num_bytes)
{
    char copy[64];
    if (name_bytes >= sizeof copy || memchr(name, '\0', name_bytes)) return;
    memcpy(copy, name, name_bytes);
    copy[name_bytes] = '\0';
    char *plus = strchr(copy, '+');
    if (!plus) {
        memory_files_add(copy, text, num_bytes, 0);
        return;
    }
    *plus = '\0';
    uint64_t size = num_bytes, num_zeros = strtoull(plus + 1, NULL, 10);
    char *whole = malloc(sizeof size + num_bytes);
    assert_always(whole);
    memcpy(whole, &size, sizeof size);
    memcpy(whole + sizeof size, text, num_bytes);
    memory_files_add(copy, whole, sizeof size + num_bytes, min_of(num_zeros, (uint64_t)ZEROS_MAX));
    free(whole);
}

void memory_files_add_parts(const uint8_t *data, size_t size)
{
    const char *end = (const char *)data + size, *at = find_mark((const char *)data, end);
    while (at) {
        const char *next = find_mark(at + 3, end), *part_end = next ? next : end;
        const char *line_end = memchr(at, '\n', (size_t)(part_end - at));
        if (line_end) {
            size_t num_bytes = (size_t)(part_end - line_end - 1);
            num_bytes -= num_bytes > 0 && part_end[-1] == '\n'; /* the mark's own line begins there */
            add_part(at + 3, (size_t)(line_end - at - 3), line_end + 1, num_bytes);
        }
        at = next;
    }
}

/* ---- what the program calls ---- */

int __wrap_file_map_open(const char *path, struct file_map *out, struct error *err);
void __wrap_file_map_close(struct file_map *m);
void __wrap_file_map_drop_pages(const struct file_map *m);
void __wrap_file_map_prefetch(const void *data, size_t num_bytes);
int __wrap_file_read_text(const char *path, size_t bytes_max, char **text, size_t *num_bytes,
                          struct error *err);
FILE *__wrap_fopen(const char *path, const char *mode);
int __wrap_stat(const char *path, struct stat *st);
FILE *__real_fopen(const char *path, const char *mode);
int __real_stat(const char *path, struct stat *st);

/* libFuzzer's own calls come here too; they come between inputs, when there are no files. */
static bool is_between_inputs(void)
{
    for (int i = 0; i < MEMORY_FILES_MAX; i++)
        if (files[i].bytes) return false;
    return true;
}

int __wrap_file_map_open(const char *path, struct file_map *out, struct error *err)
{
    const struct memory_file *file = find_path(path);
    *out = (struct file_map){0};
    if (!file) return error_set(err, STATUS_NOT_FOUND, "%s: no such file", path);
    if (file->num_bytes) *out = (struct file_map){(unsigned char *)file->bytes, file->num_bytes};
    return STATUS_OK;
}

void __wrap_file_map_close(struct file_map *m)
{
    *m = (struct file_map){0};
}

void __wrap_file_map_drop_pages(const struct file_map *m)
{
    (void)m;
}

void __wrap_file_map_prefetch(const void *data, size_t num_bytes)
{
    (void)data;
    (void)num_bytes;
}

int __wrap_file_read_text(const char *path, size_t bytes_max, char **text, size_t *num_bytes,
                          struct error *err)
{
    const struct memory_file *file = find_path(path);
    *num_bytes = 0;
    if (!file) return error_set(err, STATUS_NOT_FOUND, "%s: no such file", path);
    if (file->num_bytes > bytes_max) return error_set(err, STATUS_LIMIT, "%s: too long", path);
    *text = malloc(file->num_bytes + 1);
    assert_always(*text);
    memcpy(*text, file->bytes, file->num_bytes);
    (*text)[file->num_bytes] = '\0';
    *num_bytes = file->num_bytes;
    return STATUS_OK;
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
    const struct memory_file *file = find_path(path);
    if (file && file->num_bytes) return fmemopen(file->bytes, file->num_bytes, mode);
    if (file) return __real_fopen("/dev/null", mode);
    if (is_between_inputs()) return __real_fopen(path, mode);
    errno = ENOENT;
    return NULL;
}

int __wrap_stat(const char *path, struct stat *st)
{
    if (is_between_inputs()) return __real_stat(path, st);
    memset(st, 0, sizeof *st);
    st->st_mode = !strcmp(path, MEMORY_DIRECTORY) ? S_IFDIR : find_path(path) ? S_IFREG : 0;
    if (!st->st_mode) errno = ENOENT;
    return st->st_mode ? 0 : -1;
}
