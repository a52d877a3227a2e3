#include "cli/journal_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char body_mark[] = ",\"body\":"; /* in no text before the body: quotes are escaped there */

/* ---- lines ---- */

/* Answers follow soon: those of the newest requests are looked for first. */
static struct journal_entry *find(const struct journal_file *j, const char *name)
{
    for (int i = j->num_entries - 1; i >= 0; i--)
        if (!strcmp(j->entries[i].name, name)) return &j->entries[i];
    return NULL;
}

static struct journal_entry *add(struct journal_file *j, const char *name)
{
    bool is_full = (j->num_entries & (j->num_entries - 1)) == 0; /* room is for powers of two */
    size_t room = j->num_entries ? (size_t)j->num_entries * 2 : 1;
    struct journal_entry *entries = is_full ? realloc(j->entries, room * sizeof *entries) : j->entries;
    if (!entries) return NULL;
    j->entries = entries;
    struct journal_entry *e = &entries[j->num_entries++];
    *e = (struct journal_entry){.request.text = NULL};
    snprintf(e->name, sizeof e->name, "%s", name);
    return e;
}

static int take_line(struct journal_file *j, const char *text, size_t n, struct error *err)
{
    char head[128], type[8], name[48];
    snprintf(head, sizeof head, "%.*s", (int)(n < sizeof head ? n : sizeof head - 1), text);
    bool whole = n > 0 && text[n - 1] == '}';
    if (!whole || sscanf(head, "{\"type\":\"%7[a-z]\",\"entry\":\"%47[0-9a-f-]\"", type, name) != 2) {
        j->num_unreadable += n > 0;
        return STATUS_OK;
    }
    bool is_answer = !strcmp(type, "answer");
    struct journal_entry *e = is_answer ? find(j, name) : NULL;
    if (!e) e = add(j, name);
    if (!e) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    *(is_answer ? &e->answer : &e->request) = (struct journal_line){text, n};
    return STATUS_OK;
}

static int take_lines(struct journal_file *j, const struct file_map *map, struct error *err)
{
    const char *line = (const char *)map->data, *end = line + map->num_bytes;
    int status = STATUS_OK;
    while (map->data && line < end && !status) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        status = take_line(j, line, (size_t)((stop ? stop : end) - line), err);
        line = stop ? stop + 1 : end;
    }
    return status;
}

/* ---- files ---- */

int journal_file_open(const char *path, struct journal_file *out, struct error *err)
{
    char older[4096 + 2];
    struct error ignored;
    *out = (struct journal_file){.num_entries = 0};
    snprintf(older, sizeof older, "%s.1", path);
    int status = file_map_open(older, &out->maps[0], &ignored);
    if (status && status != STATUS_NOT_FOUND) return error_set(err, status, "%s", ignored.text);
    status = file_map_open(path, &out->maps[1], err);
    for (int i = 0; i < 2 && !status; i++) status = take_lines(out, &out->maps[i], err);
    return status;
}

void journal_file_close(struct journal_file *j)
{
    file_map_close(&j->maps[0]);
    file_map_close(&j->maps[1]);
    free(j->entries);
    *j = (struct journal_file){.num_entries = 0};
}

/* ---- entries ---- */

static const char *find_body(const struct journal_entry *e)
{
    const struct journal_line *line = &e->request;
    return line->text ? memmem(line->text, line->num_bytes, body_mark, strlen(body_mark)) : NULL;
}

cJSON *journal_entry_head(const struct journal_entry *e)
{
    const char *end = find_body(e);
    size_t n = end ? (size_t)(end - e->request.text) : 0;
    char *text = end ? malloc(n + 2) : NULL;
    if (!text) return NULL;
    memcpy(text, e->request.text, n);
    memcpy(text + n, "}", 2);
    cJSON *head = cJSON_Parse(text);
    free(text);
    return head;
}

char *journal_entry_body(const struct journal_entry *e)
{
    const char *begin = find_body(e);
    if (!begin) return NULL;
    begin += strlen(body_mark);
    return strndup(begin, (size_t)(e->request.text + e->request.num_bytes - begin) - 1);
}

cJSON *journal_entry_answer(const struct journal_entry *e)
{
    return e->answer.text ? cJSON_ParseWithLength(e->answer.text, e->answer.num_bytes) : NULL;
}
