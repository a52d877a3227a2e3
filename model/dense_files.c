#include "model/dense_files.h"

#include <inttypes.h>
#include <stdio.h>

#include "link/sampling.h"

enum { PATH_BYTES_MAX = 4096 + FOLDER_BYTES_MAX };

static int find_tensor(const struct safetensors *s, const char *folder, const char *name, int64_t rows,
                       int64_t cols, struct weight_view *out, struct error *err)
{
    const struct safetensor *t = safetensors_find(s, name);
    const bool is_vector = rows == 1;
    if (!t) return error_set(err, STATUS_INVALID, "%s: tensor %s is missing", folder, name);
    if (t->dtype < 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: tensor %s is of type %s; F32, F16 and BF16 are supported", folder, name,
                         t->dtype_text);
    if (t->num_dims != (is_vector ? 1 : 2) || t->dims[0] != (uint64_t)(is_vector ? cols : rows) ||
        (!is_vector && t->dims[1] != (uint64_t)cols))
        return error_set(err, STATUS_INVALID,
                         "%s: tensor %s has a shape other than the %" PRId64 " x %" PRId64
                         " of its config.json (rows x values)",
                         folder, name, rows, cols);
    *out = weight_view_plain(t->data, (enum dtype)t->dtype, rows, cols);
    return STATUS_OK;
}

static int open_folder(struct dense_files *d, const struct dense_layer *layer, int32_t i, const char *path,
                       struct error *err)
{
    char folder[PATH_BYTES_MAX];
    snprintf(folder, sizeof folder, "%s/%s", path, layer->folder);
    int status = safetensors_open(folder, &d->opened[i], err);
    if (!status)
        status = find_tensor(d->opened[i], folder, "linear.weight", layer->num_out, layer->num_in,
                             &d->matrices[i], err);
    if (!status && layer->has_bias)
        status = find_tensor(d->opened[i], folder, "linear.bias", 1, layer->num_out, &d->biases[i], err);
    return status;
}

static int find_in_gguf(struct dense_files *d, const struct dense_layer *layer, int32_t i, const char *path,
                        const struct gguf *gguf, struct error *err)
{
    d->matrices[i] = gguf_find_tensor(gguf, layer->folder);
    if (d->matrices[i].scheme == WEIGHT_PLAIN) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s: tensor %s is of a type that is supported of products alone", path, layer->folder);
}

/* What one layer gives is what the next one takes. */
static int check_widths(const struct dense_chain *chain, int32_t hidden_size, const char *path,
                        struct error *err)
{
    int32_t width = hidden_size;
    for (int32_t i = 0; i < chain->num_layers; i++) {
        const struct dense_layer *layer = &chain->layers[i];
        if (layer->num_in != width)
            return error_set(err, STATUS_INVALID,
                             "%s: a dense layer behind the pooling takes %d values where there are %d", path,
                             layer->num_in, width);
        if (layer->num_out > ROW_FLOATS_MAX)
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s: a dense layer behind the pooling gives %d values; up to %d are supported",
                             path, layer->num_out, ROW_FLOATS_MAX);
        width = layer->num_out;
    }
    return STATUS_OK;
}

int dense_files_open(struct dense_files *d, const struct model_config *c, const char *path,
                     const struct gguf *gguf, struct error *err)
{
    int status = check_widths(&c->dense, c->hidden_size, path, err);
    for (int32_t i = 0; i < c->dense.num_layers && !status; i++) {
        const struct dense_layer *layer = &c->dense.layers[i];
        if (gguf)
            status = find_in_gguf(d, layer, i, path, gguf, err);
        else
            status = open_folder(d, layer, i, path, err);
    }
    return status;
}

void dense_files_close(struct dense_files *d)
{
    for (int32_t i = 0; i < DENSE_LAYERS_MAX; i++) safetensors_close(d->opened[i]);
}

uint64_t dense_files_bytes(const struct dense_files *d)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < DENSE_LAYERS_MAX; i++)
        bytes += weight_view_bytes(&d->matrices[i]) + weight_view_bytes(&d->biases[i]);
    return bytes;
}
