#include "kernels/delta_desc.h"

#include <math.h>

#include "base/check.h"

int64_t delta_desc_num_channels(const struct delta_desc *desc)
{
    const int64_t width = (int64_t)desc->num_v_heads * desc->v_dim;
    return desc->kind == DELTA_SELECTIVE ? width : 2 * (int64_t)desc->num_k_heads * desc->k_dim + width;
}

int32_t delta_desc_num_taps(const struct delta_desc *desc)
{
    return desc->kind == DELTA_CONVOLUTION ? (int32_t)desc->convolution[0].cols : DELTA_TAPS;
}

int64_t delta_desc_num_decays(const struct delta_desc *desc)
{
    return (int64_t)desc->num_v_heads * (desc->kind == DELTA_CHANNELS ? desc->k_dim : 1);
}

static int check_short(const struct delta_desc *desc, struct error *err)
{
    assert_always(desc->num_v_heads == 1 && desc->num_k_heads == 0);
    const int64_t num_taps = desc->convolution[0].cols;
    if (desc->convolution[0].rows == desc->v_dim && (num_taps == 3 || num_taps == SHORT_TAPS_MAX))
        return weight_view_check_whole(&desc->convolution[0], err);
    return error_set(err, STATUS_INVALID, "a convolution's shape is not that of its channels");
}

/* What it has beside the rule's. */
static int check_state_space(const struct delta_desc *desc, struct error *err)
{
    int status = weight_view_check_vector(&desc->convolution_bias, delta_desc_num_channels(desc), err);
    if (!status) status = weight_view_check_vector(&desc->skip, desc->num_v_heads, err);
    return status ? status
                  : weight_view_check_vector(&desc->norm, (int64_t)desc->num_v_heads * desc->v_dim, err);
}

static int check_convolution(const struct delta_desc *desc, struct error *err)
{
    int64_t rows = delta_desc_num_channels(desc);
    int status = STATUS_OK;
    for (int i = 0; i < DELTA_CONVOLUTION_PARTS && desc->convolution[i].data && !status; i++) {
        rows -= desc->convolution[i].rows;
        status = desc->convolution[i].cols == DELTA_TAPS ? weight_view_check_whole(&desc->convolution[i], err)
                                                         : STATUS_INVALID;
    }
    if (status == STATUS_INVALID || rows != 0)
        return error_set(err, STATUS_INVALID, "a convolution's shape is not that of its channels");
    return status;
}

static int check_shape(const struct weight_view *view, int64_t rows, int64_t cols, struct error *err)
{
    if (weight_view_num_rows(view) == rows && view->cols == cols) return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     "a weight of a layer with a state has another shape than its others");
}

static int check_selective(const struct delta_desc *desc, struct error *err)
{
    const struct weight_view *norms[] = {&desc->step_norm, &desc->k_norm, &desc->q_norm};
    const int64_t width = delta_desc_num_channels(desc), rank = desc->steps.cols;
    const int64_t sizes[] = {rank, desc->k_dim, desc->k_dim};
    assert_always(desc->num_k_heads == 1 && desc->v_dim == SELECTIVE_LANES &&
                  desc->k_dim <= SELECTIVE_K_DIM_MAX);
    int status = check_convolution(desc, err);
    if (!status && desc->convolution_bias.data)
        status = weight_view_check_vector(&desc->convolution_bias, width, err);
    if (!status) status = check_shape(&desc->selection, rank + 2 * (int64_t)desc->k_dim, width, err);
    if (!status) status = check_shape(&desc->steps, width, rank, err);
    if (!status) status = check_shape(&desc->decay, width, desc->k_dim, err);
    if (!status) status = weight_view_check_whole(&desc->decay, err);
    if (!status) status = weight_view_check_vector(&desc->dt_bias, width, err);
    if (!status) status = weight_view_check_vector(&desc->skip, width, err);
    for (size_t i = 0; i < array_length(norms) && !status; i++)
        if (norms[i]->data) status = weight_view_check_vector(norms[i], sizes[i], err);
    return status;
}

int delta_desc_check(const struct delta_desc *desc, struct error *err)
{
    if (desc->kind == DELTA_CONVOLUTION) return check_short(desc, err);
    if (desc->kind == DELTA_SELECTIVE) return check_selective(desc, err);
    assert_always(desc->num_v_heads % desc->num_k_heads == 0);
    assert_always(desc->kind != DELTA_CHANNELS ||
                  (desc->num_v_heads == desc->num_k_heads && desc->z_is_apart));
    int status = check_convolution(desc, err);
    if (!status) status = weight_view_check_vector(&desc->decay, desc->num_v_heads, err);
    if (!status) status = weight_view_check_vector(&desc->dt_bias, delta_desc_num_decays(desc), err);
    if (desc->kind == DELTA_STATE_SPACE) return status ? status : check_state_space(desc, err);
    return status ? status : weight_view_check_vector(&desc->norm, desc->v_dim, err);
}

/* What a channel of a state space is multiplied by before the convolution. */
static float scale_of_channel(const struct delta_desc *desc, int64_t channel)
{
    const int64_t v = (int64_t)desc->num_v_heads * desc->v_dim, k = (int64_t)desc->num_k_heads * desc->k_dim;
    const float scale = channel < v ? desc->v_scale : channel < v + k ? desc->k_scale : desc->q_scale;
    return desc->kind == DELTA_STATE_SPACE && scale > 0 ? scale : 1;
}

void delta_desc_read_taps(const struct delta_desc *desc, float *out)
{
    const int num = delta_desc_num_taps(desc);
    const int64_t num_channels = delta_desc_num_channels(desc);
    int64_t channel = 0;
    for (int part = 0; part < DELTA_CONVOLUTION_PARTS && desc->convolution[part].data; part++) {
        const struct weight_view *taps = &desc->convolution[part];
        const size_t row_bytes = dtype_row_bytes(taps->dtype, (uint64_t)num);
        for (int64_t i = 0; i < taps->rows; i++, channel++) {
            float row[SHORT_TAPS_MAX];
            dtype_row_to_f32(taps->dtype, (const char *)taps->data + (size_t)i * row_bytes, num, row);
            for (int j = 0; j < num; j++)
                out[j * num_channels + channel] = row[j] * scale_of_channel(desc, channel);
        }
    }
}

void delta_desc_read_decay(const struct delta_desc *desc, float *out)
{
    weight_view_vector_to_f32(&desc->decay, out);
    for (int32_t h = 0; h < desc->num_v_heads; h++) out[h] = desc->has_rates ? -out[h] : expf(out[h]);
}
