#include "model/score_head.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

struct score_head {
    int32_t hidden_size;
    float *dense_bias, *norm, *out, *sums; /* [H] */
    float *dense; /* [H][H], transposed: a column's products go to sums that do not wait for each other */
    float out_bias, norm_eps;
    enum score_function function;
    bool has_dense, is_normed;
};

static const enum weight_role roles[] = {WEIGHT_HEAD_DENSE, WEIGHT_HEAD_DENSE_BIAS, WEIGHT_HEAD_NORM,
                                         WEIGHT_HEAD_OUT, WEIGHT_HEAD_OUT_BIAS};

/* What there need not be leaves out as it is. */
static void read_row(const struct model_files *files, enum weight_role role, int64_t row, float *out)
{
    const struct weight_view view = model_files_weight(files, role, 0);
    if (view.data) weight_view_row_to_f32(&view, row, out);
}

static void read_weights(const struct model_files *files, struct score_head *h)
{
    const size_t size = (size_t)h->hidden_size;
    for (size_t i = 0; i < size && h->has_dense; i++) {
        read_row(files, WEIGHT_HEAD_DENSE, (int64_t)i, h->sums);
        for (size_t j = 0; j < size; j++) h->dense[j * size + i] = h->sums[j];
    }
    read_row(files, WEIGHT_HEAD_DENSE_BIAS, 0, h->dense_bias);
    read_row(files, WEIGHT_HEAD_NORM, 0, h->norm);
    read_row(files, WEIGHT_HEAD_OUT, 0, h->out);
    read_row(files, WEIGHT_HEAD_OUT_BIAS, 0, &h->out_bias);
}

static int check_weights(const struct model_files *files, struct error *err)
{
    const struct model_config *c = model_files_config(files);
    for (size_t i = 0; i < array_length(roles); i++) {
        const struct weight_view view = model_files_weight(files, roles[i], 0);
        const enum weight_presence presence = weight_line(c->family->weight_changes, roles[i])->presence;
        if (!view.data && weight_is_required(c, presence, 0))
            return error_set(err, STATUS_NO_MEMORY, "no memory for the model's dummy weights");
        if (view.scheme != WEIGHT_PLAIN)
            return error_set(err, STATUS_UNSUPPORTED, "a quantised head that scores pairs is not supported");
    }
    return STATUS_OK;
}

int score_head_create(const struct model_files *files, struct score_head **out, struct error *err)
{
    const struct model_config *c = model_files_config(files);
    const bool has_dense = weight_may_be(c->family->weight_changes, WEIGHT_HEAD_DENSE);
    const size_t size = (size_t)c->hidden_size;
    int status = check_weights(files, err);
    if (status) return status;
    struct score_head *h = calloc(1, sizeof *h);
    if (h) h->dense_bias = calloc(size * (has_dense ? size + 4 : 4), sizeof *h->dense_bias);
    if (!h || !h->dense_bias) {
        free(h);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the head that scores pairs");
    }
    h->hidden_size = c->hidden_size;
    h->norm_eps = c->rms_norm_eps;
    h->function = c->family->score_function;
    h->has_dense = has_dense;
    h->is_normed = weight_may_be(c->family->weight_changes, WEIGHT_HEAD_NORM);
    h->norm = h->dense_bias + size;
    h->out = h->norm + size;
    h->sums = h->out + size;
    h->dense = h->sums + size;
    read_weights(files, h);
    *out = h;
    return STATUS_OK;
}

void score_head_destroy(struct score_head *h)
{
    if (!h) return;
    free(h->dense_bias);
    free(h);
}

static float value_of(enum score_function function, float x)
{
    if (function == SCORE_GELU) return 0.5f * x * (1 + erff(x * (float)M_SQRT1_2));
    return function == SCORE_RELU ? fmaxf(x, 0) : tanhf(x);
}

static void apply_norm(const struct score_head *h, float *x, size_t n)
{
    double mean = 0, variance = 0;
    for (size_t i = 0; i < n; i++) mean += (double)x[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++) variance += ((double)x[i] - mean) * ((double)x[i] - mean);
    const double inverse = 1 / sqrt(variance / (double)n + (double)h->norm_eps);
    for (size_t i = 0; i < n; i++) x[i] = (float)(((double)x[i] - mean) * inverse) * h->norm[i];
}

/* f of the first product, in sums. */
static const float *apply_dense(struct score_head *h, const float *x)
{
    const size_t size = (size_t)h->hidden_size;
    for (size_t i = 0; i < size; i++) h->sums[i] = h->dense_bias[i];
    for (size_t j = 0; j < size; j++) {
        const float *column = h->dense + j * size;
        for (size_t i = 0; i < size; i++) h->sums[i] += column[i] * x[j];
    }
    for (size_t i = 0; i < size; i++) h->sums[i] = value_of(h->function, h->sums[i]);
    if (h->is_normed) apply_norm(h, h->sums, size);
    return h->sums;
}

float score_head_apply(struct score_head *h, const float *x)
{
    const size_t size = (size_t)h->hidden_size;
    float score = h->out_bias;
    if (h->has_dense) x = apply_dense(h, x);
    for (size_t i = 0; i < size; i++) score += h->out[i] * x[i];
    return score;
}
