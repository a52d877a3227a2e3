#include "model/dense_layers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { COLUMNS = 4 }; /* at once */

struct dense_layers {
    struct dense_chain chain;
    float *matrices[DENSE_LAYERS_MAX]; /* [num_in, up to a multiple of COLUMNS][num_out]: transposed */
    float *biases[DENSE_LAYERS_MAX];   /* [num_out] */
    float *rows[2];                    /* [widest]: what a layer takes, and what it gives */
};

static size_t padded(int32_t num_in)
{
    return (size_t)div_up(num_in, COLUMNS) * COLUMNS;
}

static bool take_layer(struct dense_layers *d, const struct dense_files *files, int32_t i)
{
    const struct dense_layer *layer = &d->chain.layers[i];
    const size_t num_in = (size_t)layer->num_in, num_out = (size_t)layer->num_out;
    d->matrices[i] = calloc(padded(layer->num_in) * num_out, sizeof(float));
    d->biases[i] = calloc(num_out, sizeof(float));
    if (!d->matrices[i] || !d->biases[i]) return false;
    for (size_t row = 0; row < num_out && files->matrices[i].data; row++) {
        weight_view_row_to_f32(&files->matrices[i], (int64_t)row, d->rows[0]);
        for (size_t col = 0; col < num_in; col++) d->matrices[i][col * num_out + row] = d->rows[0][col];
    }
    if (files->biases[i].data) weight_view_row_to_f32(&files->biases[i], 0, d->biases[i]);
    return true;
}

static bool take_all(struct dense_layers *d, const struct dense_files *files)
{
    size_t widest = COLUMNS;
    for (int32_t i = 0; i < d->chain.num_layers; i++)
        widest =
            max_of(widest, max_of(padded(d->chain.layers[i].num_in), (size_t)d->chain.layers[i].num_out));
    for (int i = 0; i < 2; i++) d->rows[i] = calloc(widest, sizeof(float));
    if (!d->rows[0] || !d->rows[1]) return false;
    for (int32_t i = 0; i < d->chain.num_layers; i++)
        if (!take_layer(d, files, i)) return false;
    return true;
}

int dense_layers_create(const struct model_files *files, struct dense_layers **out, struct error *err)
{
    struct dense_layers *d = calloc(1, sizeof *d);
    if (d) d->chain = model_files_config(files)->dense;
    if (!d || !take_all(d, model_files_dense(files))) {
        dense_layers_destroy(d);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the dense layers behind the pooling");
    }
    *out = d;
    return STATUS_OK;
}

void dense_layers_destroy(struct dense_layers *d)
{
    if (!d) return;
    for (int i = 0; i < DENSE_LAYERS_MAX; i++) {
        free(d->matrices[i]);
        free(d->biases[i]);
    }
    for (int i = 0; i < 2; i++) free(d->rows[i]);
    free(d);
}

/* x: [num_in], and what follows it up to a multiple of COLUMNS. */
static void apply_layer(const struct dense_layers *d, int32_t i, const float *x, float *y)
{
    const struct dense_layer *layer = &d->chain.layers[i];
    const size_t num_out = (size_t)layer->num_out;
    memcpy(y, d->biases[i], num_out * sizeof *y);
    for (size_t col = 0; col < padded(layer->num_in); col += COLUMNS) {
        const float *w0 = d->matrices[i] + col * num_out, *w1 = w0 + num_out, *w2 = w1 + num_out,
                    *w3 = w2 + num_out;
        const float x0 = x[col], x1 = x[col + 1], x2 = x[col + 2], x3 = x[col + 3];
        for (size_t row = 0; row < num_out; row++)
            y[row] += (w0[row] * x0 + w1[row] * x1) + (w2[row] * x2 + w3[row] * x3);
    }
    for (size_t row = 0; row < num_out && layer->is_tanh; row++) y[row] = tanhf(y[row]);
}

const float *dense_layers_apply(struct dense_layers *d, const float *x)
{
    int from = 0;
    memcpy(d->rows[0], x, (size_t)d->chain.layers[0].num_in * sizeof *x);
    for (int32_t i = 0; i < d->chain.num_layers; i++, from = !from) {
        const int32_t num_in = d->chain.layers[i].num_in;
        for (size_t k = (size_t)num_in; k < padded(num_in); k++) d->rows[from][k] = 0;
        apply_layer(d, i, d->rows[from], d->rows[!from]);
    }
    return d->rows[from];
}
