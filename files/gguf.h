/* gguf.h - a GGUF v2/v3 file, mapped and validated: its keys, and its tensors as weight views.
 *
 * gguf_open checks every length, count, type, offset and size against the file (overflow-safe) before it
 * returns, so that the look-ups below cannot fail on a hostile file; they only say whether a key exists with
 * a usable type. All pointers point into the mapping and live until gguf_close. Thread: read-only, any. */
#ifndef FILES_GGUF_H
#define FILES_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "files/weight_view.h"

struct gguf;

int gguf_open(const char *path, struct gguf **out, struct error *err) must_check;
void gguf_close(struct gguf *g);
void gguf_drop_pages(const struct gguf *g); /* gives resident memory back; everything stays readable */

/* False when the key is missing or of another type. Texts are not NUL-terminated. Integers of any width and
 * sign are accepted where they fit; reals also from f32. */
bool gguf_find_text(const struct gguf *g, const char *key, const char **text, size_t *num_bytes);
bool gguf_find_int(const struct gguf *g, const char *key, int64_t *value);
bool gguf_find_real(const struct gguf *g, const char *key, double *value);
bool gguf_find_bool(const struct gguf *g, const char *key, bool *value);

/* An array in the file, walked from its first item to its last. */
struct gguf_array {
    uint64_t num_items; /* left */
    uint32_t item_type; /* GGUF's value type: 8 = text */
    const unsigned char *next;
};
bool gguf_find_array(const struct gguf *g, const char *key, struct gguf_array *array);
/* Each takes the next item; false at the end or when items are of another type. A boolean is an integer, 0 or 1. */
bool gguf_array_next_text(struct gguf_array *array, const char **text, size_t *num_bytes);
bool gguf_array_next_int(struct gguf_array *array, int64_t *value);
bool gguf_array_next_real(struct gguf_array *array, double *value);

/* data is NULL when there is no such tensor. A 1-D tensor of n values is a view of 1 row and n cols. */
struct weight_view gguf_find_tensor(const struct gguf *g, const char *name);
uint64_t gguf_num_tensors(const struct gguf *g);
uint64_t gguf_tensor_bytes(const struct gguf *g); /* of all tensors */

#endif
