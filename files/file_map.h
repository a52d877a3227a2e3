/* file_map.h - files of a model: big ones mapped read-only, small ones read whole.
 *
 * A map's size is the file's at open; everything read through it must be checked against num_bytes first.
 * What cannot be checked is a file that someone cuts short while it is read, or a disk that fails: see
 * file_map_guard_process. Once a model is ready nothing reads its files. Thread: read-only after open, any.
 */
#ifndef FILES_FILE_MAP_H
#define FILES_FILE_MAP_H

#include <stddef.h>

#include "base/status.h"

struct file_map {
    const unsigned char *data; /* NULL when the file is empty */
    size_t num_bytes;
};

int file_map_open(const char *path, struct file_map *out, struct error *err) must_check;
void file_map_close(struct file_map *m); /* also of a zeroed one */

/* From here on reading from a map what its file has no more ends the process with a sentence and code 1,
 * instead of by SIGBUS. Once, before there are other threads. */
void file_map_guard_process(void);

/* Gives resident memory back to the system; the file stays mapped, and what is read again is read from disk.
 */
void file_map_drop_pages(const struct file_map *m);

/* A hint that this part of some map will be read soon. */
void file_map_prefetch(const void *data, size_t num_bytes);

/* *text is malloc'd and NUL-terminated (the NUL is not counted). STATUS_NOT_FOUND when there is no such file.
 */
int file_read_text(const char *path, size_t bytes_max, char **text, size_t *num_bytes,
                   struct error *err) must_check;

/* Bytes from a file as text for a message: not more than fits, everything but printable ASCII as '?'. */
struct printable {
    char text[72];
};
struct printable printable_from(const char *bytes, size_t num_bytes);

#endif
