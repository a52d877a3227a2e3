/* safetensors.h - the weights of a Hugging Face directory: model.safetensors, or model.safetensors.index.json
 * and the files that it names; mapped, and validated before open returns.
 *
 * Of each file: the header is at most 100 MB of JSON with distinct names, each tensor's bytes are what its
 * shape and dtype need, and the tensors fill the data from its first to its last byte without holes or
 * overlaps. All pointers live until close. Thread: read-only, any. */
#ifndef FILES_SAFETENSORS_H
#define FILES_SAFETENSORS_H

#include <stdint.h>

#include "base/status.h"
#include "files/weight_view.h"

struct safetensors;

enum { SAFETENSORS_DIMS_MAX = 8 };

struct safetensor {
    const char *name;
    const char *dtype_text; /* as the file says, e.g. "BF16" or "F8_E4M3" */
    int dtype;              /* enum dtype, or -1 when kernels have none such */
    int num_dims;           /* 0: a scalar */
    uint64_t dims[SAFETENSORS_DIMS_MAX];
    const void *data; /* may be unaligned */
    uint64_t num_bytes;
};

int safetensors_open(const char *directory, struct safetensors **out, struct error *err) must_check;
/* One file of a directory alone. */
int safetensors_open_file(const char *directory, const char *file_name, struct safetensors **out,
                          struct error *err) must_check;
void safetensors_close(struct safetensors *s);
void safetensors_drop_pages(
    const struct safetensors *s); /* gives resident memory back; everything stays readable */

const struct safetensor *safetensors_find(const struct safetensors *s,
                                          const char *name); /* NULL: no such tensor */

/* All of them, sorted by name. */
uint64_t safetensors_num_tensors(const struct safetensors *s);
const struct safetensor *safetensors_tensor(const struct safetensors *s, uint64_t i);

#endif
