#include "model/model_config.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"

enum {
    WIDTH_MAX = 1 << 20, /* hidden, intermediate, heads * head_dim */
    VOCAB_MAX = 1 << 24,
    POSITIONS_MAX = 1 << 27,
    EXPERTS_MAX = 4096,
};

const struct generation_defaults generation_defaults_none = {
    .temperature = -1, .top_p = -1, .min_p = -1, .repetition_penalty = -1, .top_k = -1, .max_new_tokens = -1};

/* Of those with K and V of their own the last one that has a window if the layer has one; -1: there is none. */
static int32_t last_alike(const struct model_config *c, int32_t layer)
{
    const bool windowed = bit_set_has(c->windowed_layers, (size_t)layer);
    int32_t i = c->num_layers - c->num_kv_sharing_layers - 1;
    while (i >= 0 && bit_set_has(c->windowed_layers, (size_t)i) != windowed) i--;
    return i;
}

struct layer_config model_config_layer(const struct model_config *c, int32_t layer)
{
    assert_always(layer >= 0 && layer < c->num_layers);
    bool windowed = bit_set_has(c->windowed_layers, (size_t)layer),
         rotated = !bit_set_has(c->unrotated_layers, (size_t)layer);
    const bool has_own_heads = windowed && model_config_has_window_heads(c),
               shares_kv = layer >= c->num_layers - c->num_kv_sharing_layers;
    const struct layer_shape own = c->layer_shapes[layer];
    const int32_t all_kv_heads = has_own_heads ? c->window_heads.num_kv_heads : c->num_kv_heads,
                  all_widths = shares_kv ? c->sharing_intermediate_size : c->intermediate_size;
    const int32_t head_dim = has_own_heads ? c->window_heads.head_dim : c->head_dim,
                  v_dim = has_own_heads ? c->window_heads.v_dim : c->v_dim;
    return (struct layer_config){
        .num_heads = windowed && c->num_window_heads > 0 ? c->num_window_heads : c->num_heads,
        .num_kv_heads = own.num_kv_heads > 0 ? own.num_kv_heads : all_kv_heads,
        .head_dim = head_dim,
        .v_dim = v_dim > 0 ? v_dim : head_dim,
        .v_is_k = c->v_is_k && !windowed,
        .shares_kv = shares_kv,
        .kv_layer = shares_kv ? last_alike(c, layer) : layer,
        .intermediate_size = own.intermediate_size > 0 ? own.intermediate_size : all_widths,
        .has_sparse_gate = bit_set_has(c->sparse_gates, (size_t)layer),
        .sliding_window = windowed ? c->sliding_window : 0,
        .is_chunk = windowed && c->windows_are_chunks,
        .attention_scale = c->attention_scale,
        .temperature_floor =
            c->temperature_floor == 0 || (rotated && !c->family->scales_queries) ? 0 : c->temperature_floor,
        .qk_norm = c->qk_norm && (rotated || !c->family->qk_norm_of_ones),
        .rope = !rotated                                    ? NULL
                : windowed && c->window_rope.rotary_dim > 0 ? &c->window_rope
                                                            : &c->rope};
}

void model_config_init(struct model_config *c)
{
    memset(c, 0, sizeof *c);
    c->embedding_scale = c->residual_scale = c->logit_scale = c->router_scale = c->delta_beta_scale = 1;
    c->num_expert_groups = c->num_chosen_expert_groups = 1;
    c->short_taps = 3;
    c->scales = (struct branch_scales){1, 1, 1, 1, 1, 1, 1, 1, 1};
    c->score_pooling = POOLING_FIRST;
    c->bos_id = -1;
}

int32_t model_config_embedding_size(const struct model_config *c)
{
    return c->dense.num_layers ? c->dense.layers[c->dense.num_layers - 1].num_out : c->hidden_size;
}

void model_config_add_layers(uint64_t *layers, int32_t num_layers, int32_t period)
{
    for (int32_t i = 0; i < num_layers; i++)
        if (period == 0 || (i + 1) % period != 0) bit_set_add(layers, (size_t)i);
}

void model_config_add_second_layers(struct model_config *c, int32_t period)
{
    for (int64_t i = 1; i < c->num_layers; i += period) bit_set_add(c->sparse_layers, (size_t)i);
}

int model_config_halve_intermediate(struct model_config *c, const char *source, struct error *err)
{
    const int32_t both = c->intermediate_size;
    c->intermediate_size /= 2;
    if (both % 2 == 0) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: gate and up have %d rows together, which is odd", source,
                     both);
}

void model_config_add_windows(struct model_config *c, int32_t period)
{
    const bool leads = c->family->full_layer_leads && period > 0;
    model_config_add_layers(c->windowed_layers, c->num_layers, leads ? 0 : period);
    for (int64_t i = 0; leads && i < c->num_layers; i += period)
        bit_set_remove(c->windowed_layers, (size_t)i);
}

/* Of a family that has it, and of others where it is known already. */
static void take_alibi(struct model_config *c)
{
    const struct family *f = c->family;
    const bool has_it =
        f->has_alibi || (f->hidden_size_with_alibi > 0 && c->hidden_size == f->hidden_size_with_alibi);
    if (c->alibi_most == 0 && has_it) c->alibi_most = 8;
    if (c->alibi_most == 0) return;
    c->alibi_scale = f->may_have_alibi ? c->attention_scale : 1;
    model_config_add_layers(c->unrotated_layers, c->num_layers, 0);
}

void model_config_take_family(struct model_config *c)
{
    const struct family *f = c->family;
    c->qk_norm = f->qk_norm;
    if (c->is_encoder || f->scores_pairs) c->tie_word_embeddings = true; /* there is no head of words */
    if (c->post_norm_eps == 0) c->post_norm_eps = (float)f->post_norm_eps;
    if (f->scaled_embeddings) c->embedding_scale = (float)sqrt((double)c->hidden_size);
    if (c->attention_scale == 0) c->attention_scale = (float)f->attention_scale;
    if (c->attention_scale == 0) c->attention_scale = (float)(1 / sqrt((double)c->head_dim));
    take_alibi(c);
}

void model_config_take_windows(struct model_config *c)
{
    for (int32_t i = 0; i < c->num_layers && c->sliding_window > 0; i++)
        if (c->family->only_windows_rotate && !bit_set_has(c->windowed_layers, (size_t)i))
            bit_set_add(c->unrotated_layers, (size_t)i);
}

void model_config_rotate_dense_layers(struct model_config *c)
{
    for (size_t i = 0; i < (size_t)c->num_layers; i++)
        if (!bit_set_has(c->sparse_layers, i)) bit_set_remove(c->unrotated_layers, i);
}

int model_config_add_layer(struct model_config *c, struct layer_shape shape, bool is_replaced,
                           const char *source, struct error *err)
{
    const size_t layer = (size_t)c->num_layers;
    assert_debug(!is_replaced || shape.num_kv_heads == 0);
    if (layer == LAYERS_MAX)
        return error_set(err, STATUS_INVALID, "%s: there are more than %d layers", source, LAYERS_MAX);
    if (shape.num_kv_heads == 0) bit_set_add(c->layers_without_attention, layer);
    if (is_replaced) bit_set_add(c->replaced_layers, layer);
    if (shape.intermediate_size == 0) bit_set_add(c->layers_without_mlp, layer);
    c->layer_shapes[layer] = shape;
    c->num_kv_heads = max_of(c->num_kv_heads, shape.num_kv_heads);
    c->intermediate_size = max_of(c->intermediate_size, shape.intermediate_size);
    c->num_layers++;
    return STATUS_OK;
}

int model_config_add_block(struct model_config *c, enum layer_block kind, const char *source,
                           struct error *err)
{
    const size_t layer = (size_t)c->num_layers, last = layer - 1;
    if (kind == BLOCK_MLP || kind == BLOCK_EXPERTS) {
        if (layer == 0 || !bit_set_has(c->layers_without_mlp, last))
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s: an MLP follows neither attention nor a state, which is not supported",
                             source);
        bit_set_remove(c->layers_without_mlp, last);
        if (kind == BLOCK_EXPERTS) bit_set_add(c->sparse_layers, last);
        return STATUS_OK;
    }
    if (layer == LAYERS_MAX)
        return error_set(err, STATUS_INVALID, "%s: there are more than %d layers", source, LAYERS_MAX);
    if (kind == BLOCK_STATE) bit_set_add(c->stateful_layers, layer);
    bit_set_add(c->layers_without_mlp, layer);
    bit_set_add(c->unrotated_layers, layer);
    c->num_layers++;
    return STATUS_OK;
}

void model_config_take_latent(struct model_config *c)
{
    const struct latent_config *l = &c->latent;
    c->num_kv_heads = 1;
    c->head_dim = (int32_t)min_of((int64_t)l->rank + l->rotary_dim, (int64_t)INT32_MAX);
    c->attention_scale = (float)(1 / sqrt((double)l->plain_dim + (double)l->rotary_dim));
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

static int check_rope(const struct rope_config *r, int32_t head_dim, const char *source, struct error *err)
{
    if (r->rotary_dim < 2 || r->rotary_dim % 2 || r->rotary_dim > head_dim ||
        r->rotary_dim > 2 * ROTATIONS_MAX)
        return error_set(err, STATUS_INVALID,
                         "%s: %d values of a head are rotated; an even number up to its size %d is "
                         "possible",
                         source, r->rotary_dim, head_dim);
    if (!(r->theta > 1)) /* also NaN */
        return error_set(err, STATUS_INVALID, "%s: the rotation's theta is %g; a number above 1 is expected",
                         source, r->theta);
    if (r->type != ROPE_DEFAULT && !(r->factor >= 1))
        return error_set(err, STATUS_INVALID,
                         "%s: the rotation's scaling factor is %g; a number of 1 or more is expected", source,
                         r->factor);
    if ((r->type == ROPE_LLAMA3 || r->type == ROPE_YARN || r->type == ROPE_LONGROPE) &&
        r->original_max_position < 1)
        return error_set(err, STATUS_INVALID,
                         "%s: the original context length of the rotation's scaling is missing", source);
    if (r->type == ROPE_LLAMA3 && !(r->low_freq_factor > 0 && r->high_freq_factor >= r->low_freq_factor))
        return error_set(err, STATUS_INVALID,
                         "%s: low_freq_factor %g and high_freq_factor %g should be positive and "
                         "ascending",
                         source, r->low_freq_factor, r->high_freq_factor);
    return STATUS_OK;
}

int model_config_check_num_layers(const struct model_config *c, const char *source, struct error *err)
{
    return check_range(source, "number of layers", c->num_layers, LAYERS_MAX, err);
}

/* The best two of a group count where scores are sigmoids. */
static int check_groups(const struct model_config *c, const char *source, struct error *err)
{
    const int32_t size = c->num_expert_groups > 0 ? c->num_experts / c->num_expert_groups : 0;
    int status =
        check_range(source, "number of groups of experts", c->num_expert_groups, MOE_GROUPS_MAX, err);
    if (!status)
        status = check_range(source, "number of groups of a token", c->num_chosen_expert_groups,
                             c->num_expert_groups, err);
    if (status) return status;
    if (size * c->num_expert_groups != c->num_experts || size < 2 ||
        c->num_chosen_experts > size * c->num_chosen_expert_groups)
        return error_set(err, STATUS_INVALID, "%s: %d of %d experts cannot come from %d of %d groups", source,
                         c->num_chosen_experts, c->num_experts, c->num_chosen_expert_groups,
                         c->num_expert_groups);
    return STATUS_OK;
}

static int check_latent(const struct model_config *c, const char *source, struct error *err)
{
    const struct latent_config *l = &c->latent;
    const struct {
        const char *what;
        int64_t value, max;
    } ranges[] = {
        {"rank of K and V", l->rank, HEAD_DIM_MAX},
        {"rank of Q", l->q_rank > 0 ? l->q_rank : 1, WIDTH_MAX},
        {"number of values of a head that are not rotated", l->plain_dim, HEAD_DIM_MAX},
        {"number of values of a head that are rotated", l->rotary_dim, HEAD_DIM_MAX},
        {"size of a head of values", l->value_dim, l->rank},
        {"width of all heads", c->num_heads * ((int64_t)l->plain_dim + l->rotary_dim), WIDTH_MAX},
    };
    int status = STATUS_OK;
    for (size_t i = 0; i < array_length(ranges) && !status; i++)
        status = check_range(source, ranges[i].what, ranges[i].value, ranges[i].max, err);
    assert_always(status || (c->num_kv_heads == 1 && c->head_dim == l->rank + l->rotary_dim &&
                             c->rope.rotary_dim == l->rotary_dim));
    return status;
}

static int check_experts(const struct model_config *c, const char *source, struct error *err)
{
    int status = check_range(source, "number of experts", c->num_experts, EXPERTS_MAX, err);
    if (!status)
        status =
            check_range(source, "number of experts of a token", c->num_chosen_experts, c->num_experts, err);
    if (!status)
        status =
            check_range(source, "intermediate size of experts", c->expert_intermediate_size, WIDTH_MAX, err);
    if (!status && c->shared_intermediate_size != 0)
        status = check_range(source, "intermediate size of the shared expert", c->shared_intermediate_size,
                             WIDTH_MAX, err);
    if (!status && c->expert_hidden_size != 0)
        status = check_range(source, "size of what experts get", c->expert_hidden_size, WIDTH_MAX, err);
    if (!status && c->num_expert_groups != 1) status = check_groups(c, source, err);
    if (!status && !(isfinite(c->router_scale) && c->router_scale > 0))
        status = error_set(err, STATUS_INVALID, "%s: the experts' scale is %g; a positive number is expected",
                           source, (double)c->router_scale);
    return status;
}

/* Of layers with a state. */
static int check_delta(const struct model_config *c, const char *source, struct error *err)
{
    int status =
        check_range(source, "number of key heads of linear attention", c->delta_k_heads, WIDTH_MAX, err);
    if (!status)
        status = check_range(source, "number of value heads of linear attention", c->delta_v_heads, WIDTH_MAX,
                             err);
    if (!status)
        status =
            check_range(source, "size of a key head of linear attention", c->delta_k_dim, HEAD_DIM_MAX, err);
    if (!status)
        status = check_range(source, "size of a value head of linear attention", c->delta_v_dim, HEAD_DIM_MAX,
                             err);
    if (!status)
        status =
            check_range(source, "width of linear attention", model_config_delta_channels(c), WIDTH_MAX, err);
    if (status) return status;
    if (c->delta_v_heads % c->delta_k_heads)
        return error_set(err, STATUS_INVALID, "%s: %d value heads cannot share %d key heads evenly", source,
                         c->delta_v_heads, c->delta_k_heads);
    if (c->delta_v_dim % 16)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: value heads of linear attention have %d values; multiples of 16 are supported",
                         source, c->delta_v_dim);
    return STATUS_OK;
}

static int check_states(const struct model_config *c, const char *source, struct error *err)
{
    if (c->family->delta_kind == DELTA_CONVOLUTION) return STATUS_OK;
    int status = check_delta(c, source, err);
    if (!status && c->family->delta_kind == DELTA_SELECTIVE)
        status = check_range(source, "rank of steps of a state", c->delta_step_rank, WIDTH_MAX, err);
    if (!status && c->family->delta_kind == DELTA_SELECTIVE)
        status = check_range(source, "size of a channel's state", c->delta_k_dim, SELECTIVE_K_DIM_MAX, err);
    return status;
}

/* Those that differ take places of the largest, of which they fill a part. */
static int check_layers(const struct model_config *c, const char *source, struct error *err)
{
    if (model_config_num_attention_layers(c, c->num_layers) == 0 && !c->family->has_states_alone)
        return error_set(err, STATUS_UNSUPPORTED, "%s: no layer has attention, which is not supported",
                         source);
    for (int32_t i = 0; i < c->num_layers; i++) {
        const int32_t own = c->layer_shapes[i].num_kv_heads;
        if (own > 0 && (c->num_kv_heads % own || c->num_heads % own))
            return error_set(
                err, STATUS_UNSUPPORTED,
                "%s: layer %d has %d K/V heads; divisors of %d, which others have, are supported", source, i,
                own, c->num_kv_heads);
    }
    return STATUS_OK;
}

/* What is added to them. */
static int check_embeddings(const struct model_config *c, const char *source, struct error *err)
{
    const struct weight_change *changes = c->family->weight_changes;
    const bool has_positions = weight_may_be(changes, WEIGHT_POSITION_EMBEDDING);
    int status = STATUS_OK;
    if (has_positions)
        status = check_range(source, "number of rows of positions", c->num_position_rows, POSITIONS_MAX, err);
    if (!status && weight_may_be(changes, WEIGHT_TYPE_EMBEDDING))
        status = check_range(source, "number of token types", c->num_type_rows, POSITIONS_MAX, err);
    if (!status && has_positions && c->num_position_rows < c->first_position_row + c->max_position_embeddings)
        status = error_set(err, STATUS_INVALID, "%s: there are %d rows of positions for %d positions", source,
                           c->num_position_rows, c->first_position_row + c->max_position_embeddings);
    return status;
}

static int check_kv_sharing(const struct model_config *c, const char *source, struct error *err)
{
    if (c->num_kv_sharing_layers == 0) return STATUS_OK;
    for (int32_t i = 0; i < c->num_layers; i++)
        if (model_config_layer(c, i).kv_layer < 0)
            return error_set(err, STATUS_INVALID, "%s: there are no K and V that layer %d could share",
                             source, i);
    return check_range(source, "intermediate size of the last layers", c->sharing_intermediate_size,
                       WIDTH_MAX, err);
}

/* What a token adds to each layer has a row for each token, too. */
static int check_layer_embeddings(const struct model_config *c, const char *source, struct error *err)
{
    if (c->layer_embedding_dim == 0) return STATUS_OK;
    int status = check_range(source, "width of all layers' embeddings",
                             (int64_t)c->num_layers * c->layer_embedding_dim, WIDTH_MAX, err);
    if (status) return status;
    if (c->layer_vocab_size >= (c->family->has_altup ? 1 : c->vocab_size) && c->layer_vocab_size <= VOCAB_MAX)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "%s: layers have embeddings of %d tokens where there are %d",
                     source, c->layer_vocab_size, c->vocab_size);
}

static int check_altup(const struct model_config *c, const char *source, struct error *err)
{
    if (!c->family->has_altup) return STATUS_OK;
    if (!isfinite(c->gate_cut))
        return error_set(err, STATUS_INVALID, "%s: how far gates are cut is no number", source);
    if (c->layer_embedding_dim < 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: layers without embeddings of their own are not supported", source);
    return check_range(source, "rank of what is added beside attention", c->laurel_rank, WIDTH_MAX, err);
}

/* A decoder whose tokens see both sides. */
static int check_sides(const struct model_config *c, const char *source, struct error *err)
{
    if (!c->is_encoder || c->family->is_encoder ||
        (c->sliding_window == 0 && c->latent.rank == 0 && c->num_kv_sharing_layers == 0 &&
         !model_config_has_states(c)))
        return STATUS_OK;
    return error_set(
        err, STATUS_UNSUPPORTED,
        "%s: tokens that see those behind them (is_causal is false) are supported without windows, "
        "latents and states",
        source);
}

int model_config_validate(const struct model_config *c, const char *source, struct error *err)
{
    const struct head_config all = {c->num_kv_heads, c->head_dim, c->v_dim},
                             window = model_config_has_window_heads(c) ? c->window_heads : all;
    const int32_t num_window_heads = c->num_window_heads != 0 ? c->num_window_heads : c->num_heads;
    const struct {
        const char *what;
        int64_t value, max;
    } ranges[] = {
        {"hidden size", c->hidden_size, WIDTH_MAX},
        {"intermediate size", c->intermediate_size, WIDTH_MAX},
        {"number of attention heads", c->num_heads, WIDTH_MAX},
        {"number of attention heads with a window", num_window_heads, WIDTH_MAX},
        {"number of K/V heads", c->num_kv_heads, min_of(c->num_heads, num_window_heads)},
        {"size of a head", c->head_dim, HEAD_DIM_MAX},
        {"number of K/V heads with a window", window.num_kv_heads, c->num_heads},
        {"size of a head with a window", window.head_dim, HEAD_DIM_MAX},
        {"size of a head of values", c->v_dim > 0 ? c->v_dim : 1, c->head_dim},
        {"size of a head of values with a window", window.v_dim > 0 ? window.v_dim : 1, window.head_dim},
        {"width of all heads", model_config_most_heads(c) * (int64_t)model_config_widest_head(c), WIDTH_MAX},
        {"vocabulary size", c->vocab_size, VOCAB_MAX},
        {"longest context", c->max_position_embeddings, POSITIONS_MAX},
        {"number of layers with K and V of their own", (int64_t)c->num_layers - c->num_kv_sharing_layers,
         c->num_layers},
    };
    int status = model_config_check_num_layers(c, source, err);
    for (size_t i = 0; i < array_length(ranges) && !status; i++)
        status = check_range(source, ranges[i].what, ranges[i].value, ranges[i].max, err);
    if (status) return status;
    if (!(c->alibi_most >= 0 && c->alibi_most <= 1000 && c->qkv_clip >= 0 && isfinite(c->qkv_clip)))
        return error_set(
            err, STATUS_INVALID,
            "%s: the largest slope of ALiBi is of %g, Q, K and V are held within %g, which is impossible",
            source, (double)c->alibi_most, (double)c->qkv_clip);
    status = check_embeddings(c, source, err);
    if (!status) status = check_sides(c, source, err);
    if (!status) status = check_kv_sharing(c, source, err);
    if (!status) status = check_layer_embeddings(c, source, err);
    if (!status) status = check_altup(c, source, err);
    if (!status && c->num_experts) status = check_experts(c, source, err);
    if (!status && model_config_has_states(c)) status = check_states(c, source, err);
    if (!status) status = check_layers(c, source, err);
    if (!status && c->latent.rank != 0) status = check_latent(c, source, err);
    if (status) return status;
    if (c->num_heads % c->num_kv_heads || num_window_heads % window.num_kv_heads)
        return error_set(err, STATUS_INVALID, "%s: %d attention heads cannot share %d K/V heads evenly",
                         source, c->num_heads % c->num_kv_heads ? c->num_heads : num_window_heads,
                         c->num_heads % c->num_kv_heads ? c->num_kv_heads : window.num_kv_heads);
    if (!(c->rms_norm_eps >= 0 && c->rms_norm_eps < 1 && c->post_norm_eps >= 0 && c->post_norm_eps < 1))
        return error_set(err, STATUS_INVALID,
                         "%s: the norm's epsilon is %g; a small positive number is expected", source,
                         (double)c->rms_norm_eps);
    if (!(fabsf(c->attention_scale) > 0 && fabsf(c->embedding_scale) > 0 && fabsf(c->logit_scale) > 0) ||
        !isfinite(c->attention_scale * c->embedding_scale * c->logit_scale * c->residual_scale))
        return error_set(err, STATUS_INVALID, "%s: a multiplier is 0 or no number", source);
    if (!isfinite(c->v_scale))
        return error_set(err, STATUS_INVALID, "%s: what values are multiplied by is no number", source);
    if (!(c->attention_softcap >= 0 && c->logit_softcap >= 0) ||
        !isfinite(c->attention_softcap + c->logit_softcap))
        return error_set(err, STATUS_INVALID, "%s: a soft cap is no positive number", source);
    status = check_rope(&c->rope, c->head_dim, source, err);
    return status || c->window_rope.rotary_dim == 0
               ? status
               : check_rope(&c->window_rope, window.head_dim, source, err);
}

/* ---- sizes that follow from the shape ---- */

int32_t model_config_num_attention_layers(const struct model_config *c, int32_t layer)
{
    int32_t count = 0;
    for (int32_t i = 0; i < layer; i++) count += model_config_has_attention(c, i);
    return count;
}

bool model_config_has_attention(const struct model_config *c, int32_t layer)
{
    if (bit_set_has(c->layers_without_attention, (size_t)layer)) return false;
    return !bit_set_has(c->stateful_layers, (size_t)layer) || c->family->states_beside_attention;
}

bool model_config_is_mixed(const struct model_config *c, int32_t layer)
{
    return !bit_set_has(c->layers_without_attention, (size_t)layer) ||
           bit_set_has(c->replaced_layers, (size_t)layer);
}

bool model_config_has_layer_heads(const struct model_config *c)
{
    for (int32_t i = 0; i < c->num_layers; i++) {
        const int32_t own = c->layer_shapes[i].num_kv_heads;
        if (own > 0 && own != c->num_kv_heads) return true;
    }
    return false;
}

int32_t model_config_num_stateful_layers(const struct model_config *c)
{
    int32_t count = 0;
    for (int32_t i = 0; i < c->num_layers; i++) count += bit_set_has(c->stateful_layers, (size_t)i);
    return count;
}

int32_t model_config_layer_in_file(const struct model_config *c, int32_t layer)
{
    int32_t num_mlps = 0;
    for (int32_t i = 0; i < layer && c->family->mlps_are_layers; i++)
        num_mlps += !bit_set_has(c->layers_without_mlp, (size_t)i);
    return layer + num_mlps;
}

bool model_config_has_sparse_layers(const struct model_config *c)
{
    for (int32_t i = 0; i < c->num_layers; i++)
        if (bit_set_has(c->sparse_layers, (size_t)i)) return true;
    return false;
}

bool model_config_has_states(const struct model_config *c)
{
    return model_config_num_stateful_layers(c) > 0;
}

int64_t model_config_projected_width(const struct model_config *c)
{
    const int64_t width = model_config_delta_width(c),
                  both = model_config_delta_channels(c) + (c->family->delta_z_is_apart ? 0 : width);
    switch (c->family->delta_kind) {
    case DELTA_CONVOLUTION:
        return 3 * width;
    case DELTA_STATE_SPACE:
        return both + c->delta_v_heads;
    default:
        return both;
    }
}

int64_t model_config_delta_width(const struct model_config *c)
{
    return (int64_t)c->delta_v_heads * c->delta_v_dim;
}

int64_t model_config_num_rates(const struct model_config *c)
{
    const enum delta_kind kind = c->family->delta_kind;
    return (int64_t)c->delta_v_heads * (kind == DELTA_RULE ? 2 : kind == DELTA_CHANNELS ? 1 : 0);
}

int64_t model_config_num_decays(const struct model_config *c)
{
    return (int64_t)c->delta_v_heads * (c->family->delta_kind == DELTA_CHANNELS ? c->delta_k_dim : 1);
}

uint64_t model_config_state_bytes(const struct model_config *c)
{
    const int32_t taps = c->family->delta_kind == DELTA_CONVOLUTION ? c->short_taps : DELTA_TAPS;
    uint64_t floats = (uint64_t)model_config_delta_width(c) * (uint64_t)c->delta_k_dim +
                      (uint64_t)(taps - 1) * (uint64_t)model_config_delta_channels(c);
    return sizeof(float) * floats * (uint64_t)model_config_num_stateful_layers(c);
}

uint64_t model_config_draft_bytes(const struct model_config *c, int32_t num_draft_tokens)
{
    if (num_draft_tokens == 0 || !model_config_has_states(c)) return 0;
    const enum delta_kind kind = c->family->delta_kind;
    const bool has_rates = kind != DELTA_CONVOLUTION && kind != DELTA_SELECTIVE;
    const int64_t rates = !has_rates ? 0 : (kind == DELTA_RULE ? 2 : 1) * c->delta_v_heads,
                  decays = kind == DELTA_CHANNELS ? model_config_num_decays(c) : 0;
    const uint64_t floats = (uint64_t)(model_config_delta_channels(c) + rates + decays);
    return sizeof(float) * floats * (uint64_t)(num_draft_tokens + 1) *
           (uint64_t)model_config_num_stateful_layers(c);
}

int64_t model_config_delta_channels(const struct model_config *c)
{
    const bool has_keys = c->family->delta_kind != DELTA_SELECTIVE;
    return (has_keys ? 2 * (int64_t)c->delta_k_heads * c->delta_k_dim : 0) + model_config_delta_width(c);
}

bool model_config_has_window_heads(const struct model_config *c)
{
    return c->window_heads.head_dim > 0;
}

int32_t model_config_most_heads(const struct model_config *c)
{
    return max_of(c->num_heads, c->num_window_heads);
}

int32_t model_config_widest_head(const struct model_config *c)
{
    return max_of(c->head_dim, c->window_heads.head_dim);
}

uint64_t model_config_kv_layer_bytes(const struct model_config *c, int32_t layer, enum dtype kv_dtype)
{
    uint64_t scale = dtype_is_code(kv_dtype) ? sizeof(float) : 0;
    const struct layer_config l = model_config_layer(c, layer);
    const bool is_for_nobody = layer == 0 && model_config_num_attention_layers(c, c->num_layers) == 0;
    if (!is_for_nobody && (!model_config_has_attention(c, layer) || l.shares_kv)) return 0;
    return 2 * (uint64_t)l.num_kv_heads * (dtype_row_bytes(kv_dtype, (uint64_t)l.head_dim) + scale);
}

uint64_t model_config_kv_bytes_per_token(const struct model_config *c, enum dtype kv_dtype)
{
    uint64_t bytes = 0;
    for (int32_t i = 0; i < c->num_layers; i++) bytes += model_config_kv_layer_bytes(c, i, kv_dtype);
    return bytes;
}

int64_t model_config_mixed_width(const struct model_config *c, int32_t layer)
{
    if (bit_set_has(c->replaced_layers, (size_t)layer)) return c->hidden_size;
    if (!model_config_has_attention(c, layer)) return model_config_delta_width(c);
    const struct layer_config l = model_config_layer(c, layer);
    return (int64_t)l.num_heads * (c->latent.rank > 0 ? c->latent.value_dim : l.v_dim);
}

int32_t model_config_mlp_width(const struct model_config *c)
{
    int32_t width = c->shared_intermediate_size;
    for (int32_t i = 0; i < c->num_layers; i++) {
        bool is_sparse = bit_set_has(c->sparse_layers, (size_t)i);
        if (is_sparse) width = max_of(width, c->expert_intermediate_size);
        if (!is_sparse || c->family->mlp_beside_experts)
            width = max_of(width, model_config_layer(c, i).intermediate_size);
    }
    return max_of(width, c->layer_embedding_dim);
}

/* Of the roles [begin, end) in a layer. */
static uint64_t num_parameters(const struct model_config *c, int begin, int end, int32_t layer)
{
    uint64_t num = 0;
    for (int role = begin; role < end; role++) {
        const struct weight_line *line = weight_line(c->family->weight_changes, (enum weight_role)role);
        if (!weight_is_required(c, line->presence, layer)) continue;
        num += (uint64_t)weight_dimension(c, line->rows, layer) *
               (uint64_t)weight_dimension(c, line->cols, layer) *
               (uint64_t)(weight_is_of_expert((enum weight_role)role) ? c->num_experts : 1);
    }
    return num;
}

uint64_t model_config_num_parameters(const struct model_config *c)
{
    uint64_t num = num_parameters(c, 0, WEIGHT_ATTENTION_NORM, 0);
    for (int32_t i = 0; i < c->num_layers; i++)
        num += num_parameters(c, WEIGHT_ATTENTION_NORM, WEIGHT_ROLE_COUNT, i);
    return num;
}

uint64_t model_config_largest_product(const struct model_config *c)
{
    uint64_t largest = 0;
    for (int32_t i = 0; i < c->num_layers; i++) {
        largest = max_of(largest, num_parameters(c, WEIGHT_GATE, WEIGHT_DOWN, i));
        largest = max_of(largest, num_parameters(c, WEIGHT_EXPERT_GATE, WEIGHT_EXPERT_DOWN, i));
    }
    return largest;
}
