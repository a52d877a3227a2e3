#include "model/model_config.h"

#include <inttypes.h>
#include <math.h>

#include "base/check.h"

enum {
    LAYERS_MAX = 4096,
    WIDTH_MAX = 1 << 20, /* hidden, intermediate, heads * head_dim */
    VOCAB_MAX = 1 << 24,
    POSITIONS_MAX = 1 << 27,
    HEAD_DIM_MAX = 1024,
};

const struct generation_defaults generation_defaults_none = {
    .temperature = -1, .top_p = -1, .min_p = -1, .repetition_penalty = -1, .top_k = -1, .max_new_tokens = -1};

struct layer_config model_config_layer(const struct model_config *c, int32_t layer)
{
    assert_always(layer >= 0 && layer < c->num_layers);
    return (struct layer_config){.sliding_window = c->sliding_window,
                                 .attention_scale = (float)(1 / sqrt((double)c->head_dim)),
                                 .rope = &c->rope};
}

void model_config_add_eos(struct model_config *c, int64_t id)
{
    assert_debug(c->num_eos_ids >= 0 && c->num_eos_ids <= EOS_IDS_MAX);
    if (id < 0 || id >= c->vocab_size || c->num_eos_ids == EOS_IDS_MAX) return;
    for (int i = 0; i < c->num_eos_ids; i++)
        if (c->eos_ids[i] == id) return;
    c->eos_ids[c->num_eos_ids++] = (int32_t)id;
}

static int check_range(const char *source, const char *what, int64_t value, int64_t max, struct error *err)
{
    if (value >= 1 && value <= max) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: the %s is %" PRId64 "; 1 to %" PRId64 " are possible", source,
                     what, value, max);
}

static int check_rope(const struct model_config *c, const char *source, struct error *err)
{
    const struct rope_config *r = &c->rope;
    if (r->rotary_dim < 2 || r->rotary_dim % 2 || r->rotary_dim > c->head_dim)
        return error_set(err, STATUS_INVALID,
                         "%s: %d values of a head are rotated; an even number up to its size %d is "
                         "possible",
                         source, r->rotary_dim, c->head_dim);
    if (!(r->theta > 1)) /* also NaN */
        return error_set(err, STATUS_INVALID, "%s: the rotation's theta is %g; a number above 1 is expected",
                         source, r->theta);
    if (r->type != ROPE_DEFAULT && !(r->factor >= 1))
        return error_set(err, STATUS_INVALID,
                         "%s: the rotation's scaling factor is %g; a number of 1 or more is expected", source,
                         r->factor);
    if ((r->type == ROPE_LLAMA3 || r->type == ROPE_YARN) && r->original_max_position < 1)
        return error_set(err, STATUS_INVALID,
                         "%s: the original context length of the rotation's scaling is missing", source);
    if (r->type == ROPE_LLAMA3 && !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
        return error_set(err, STATUS_INVALID,
                         "%s: low_freq_factor %g and high_freq_factor %g should be positive and "
                         "ascending",
                         source, r->low_freq_factor, r->high_freq_factor);
    return STATUS_OK;
}

int model_config_validate(const struct model_config *c, const char *source, struct error *err)
{
    const struct {
        const char *what;
        int64_t value, max;
    } ranges[] = {
        {"number of layers", c->num_layers, LAYERS_MAX},
        {"hidden size", c->hidden_size, WIDTH_MAX},
        {"intermediate size", c->intermediate_size, WIDTH_MAX},
        {"number of attention heads", c->num_heads, WIDTH_MAX},
        {"number of K/V heads", c->num_kv_heads, c->num_heads},
        {"size of a head", c->head_dim, HEAD_DIM_MAX},
        {"width of all heads", (int64_t)c->num_heads * c->head_dim, WIDTH_MAX},
        {"vocabulary size", c->vocab_size, VOCAB_MAX},
        {"longest context", c->max_position_embeddings, POSITIONS_MAX},
    };
    for (size_t i = 0; i < array_length(ranges); i++) {
        int status = check_range(source, ranges[i].what, ranges[i].value, ranges[i].max, err);
        if (status) return status;
    }
    if (c->num_heads % c->num_kv_heads)
        return error_set(err, STATUS_INVALID, "%s: %d attention heads cannot share %d K/V heads evenly",
                         source, c->num_heads, c->num_kv_heads);
    if (!(c->rms_norm_eps >= 0 && c->rms_norm_eps < 1))
        return error_set(err, STATUS_INVALID,
                         "%s: the norm's epsilon is %g; a small positive number is expected", source,
                         (double)c->rms_norm_eps);
    return check_rope(c, source, err);
}

/* ---- sizes that follow from the shape ---- */

static int64_t qkv_width(const struct model_config *c)
{
    return ((int64_t)c->num_heads + 2 * (int64_t)c->num_kv_heads) * c->head_dim;
}

static int64_t linear_parameters_of_layer(const struct model_config *c)
{
    int64_t attention = qkv_width(c) + (int64_t)c->num_heads * c->head_dim;
    return c->hidden_size * (attention + 3 * (int64_t)c->intermediate_size);
}

uint64_t model_config_kv_bytes_per_token(const struct model_config *c, enum dtype kv_dtype)
{
    return 2 * (uint64_t)c->num_layers * (uint64_t)c->num_kv_heads *
           dtype_row_bytes(kv_dtype, (uint64_t)c->head_dim);
}

uint64_t model_config_num_parameters(const struct model_config *c)
{
    int64_t embedding = (int64_t)c->vocab_size * c->hidden_size;
    int64_t norms = 2 * (int64_t)c->hidden_size + (c->qk_norm ? 2 * (int64_t)c->head_dim : 0);
    int64_t biases = (c->qkv_bias ? qkv_width(c) : 0) + (c->o_bias ? c->hidden_size : 0);
    int64_t layer = linear_parameters_of_layer(c) + norms + biases;
    return (uint64_t)(embedding * (c->tie_word_embeddings ? 1 : 2) + layer * c->num_layers + c->hidden_size);
}
