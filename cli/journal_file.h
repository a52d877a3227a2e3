/* journal_file.h - what a journal holds (server/api/journal_lines.h), the file before it (FILE.1) first. Lines that are
 * cut off, or anything else, are passed over and counted. Thread: the only one. */
#ifndef CLI_JOURNAL_FILE_H
#define CLI_JOURNAL_FILE_H

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/status.h"
#include "files/file_map.h"

struct journal_line {
    const char *text; /* in the file; NULL: there is none */
    size_t num_bytes;
};

struct journal_entry {
    char name[48];
    struct journal_line request, answer;
};

struct journal_file {
    struct file_map maps[2];
    struct journal_entry *entries; /* by their first line */
    int num_entries;
    int num_unreadable; /* lines */
};

/* journal_file_close also after a failure. */
int journal_file_open(const char *path, struct journal_file *out, struct error *err) must_check;
void journal_file_close(struct journal_file *j);

/* What stands before a request's body; NULL: it cannot be read. The caller frees it. */
cJSON *journal_entry_head(const struct journal_entry *e);
/* The body, NUL-terminated; NULL: it cannot be read. free(). */
char *journal_entry_body(const struct journal_entry *e);
/* {"outcome": ..., "receipt": ...}; NULL: there is none, or it cannot be read. The caller frees it. */
cJSON *journal_entry_answer(const struct journal_entry *e);

#endif
