#include "model/hf_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "files/file_map.h"

/* What stands for sizes that are missing: 0: twice that of k. */
static void read_delta_shape(struct json_reader *r, struct model_config *c, int32_t k_heads, int32_t v_heads,
                             int32_t k_dim, int32_t v_dim)
{
    c->delta_k_heads = hf_size(r, "linear_num_key_heads", k_heads);
    c->delta_v_heads = hf_size(r, "linear_num_value_heads", v_heads);
    c->delta_k_dim = hf_size(r, "linear_key_head_dim", k_dim);
    c->delta_v_dim =
        hf_size(r, "linear_value_head_dim", v_dim > 0 ? v_dim : 2 * min_of(c->delta_k_dim, HEAD_DIM_MAX));
}

/* OLMo Hybrid's, whose attention does not rotate where theta is null. */
static void read_olmo_deltas(struct json_reader *r, struct model_config *c)
{
    const cJSON *rope = json_find(r, "rope_parameters"),
                *own = cJSON_GetObjectItemCaseSensitive(rope, "rope_theta"),
                *theta = own ? own : cJSON_GetObjectItemCaseSensitive(r->object, "rope_theta");
    const int32_t k_heads = hf_size(r, "linear_num_key_heads", c->num_heads);
    read_delta_shape(r, c, c->num_heads, c->num_heads, max_of((int32_t)(0.75 * c->hidden_size / k_heads), 1),
                     0);
    if (json_bool(r, "linear_allow_neg_eigval", true)) c->delta_beta_scale = 2;
    for (int32_t i = 0; i < c->num_layers && cJSON_IsNull(theta); i++)
        bit_set_add(c->unrotated_layers, (size_t)i);
}

/* The delta rule: which layers have a state in the place of K and V, and its shape. */
static int read_deltas(struct json_reader *r, struct model_config *c)
{
    const struct hf_layer_kind kinds[] = {{"full_attention", NULL}, {"linear_attention", c->stateful_layers}};
    const int64_t interval =
        json_int(r, "full_attention_interval", c->family->full_attention_interval, 1, INT32_MAX);
    int status = STATUS_OK;
    if (json_find(r, "layer_types"))
        status = hf_read_layer_kinds(r, "layer_types", c->num_layers, kinds, array_length(kinds));
    else
        model_config_add_layers(c->stateful_layers, c->num_layers, (int32_t)interval);
    if (status) return status;
    if (c->family->gated_attention)
        read_delta_shape(r, c, 16, 32, 128, 128);
    else
        read_olmo_deltas(r, c);
    if (json_int(r, "linear_conv_kernel_dim", DELTA_TAPS, 1, INT32_MAX) != DELTA_TAPS)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: linear_conv_kernel_dim is not supported unless it is %d", r->path, DELTA_TAPS);
    if (c->family->gated_attention && !json_bool(r, "attn_output_gate", true))
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: attn_output_gate is false, which is not supported",
                         r->path);
    return r->status;
}

/* LFM2's MLPs are narrower than intermediate_size says, unless block_auto_adjust_ff_dim is false. */
static void read_lfm2_width(struct json_reader *r, struct model_config *c)
{
    const int64_t multiple = json_int(r, "block_multiple_of", 256, 1, INT32_MAX);
    const double factor = json_real(r, "block_ffn_dim_multiplier", 1, 0, 1e6);
    const int64_t given = json_int(r, "block_ff_dim", c->intermediate_size, 1, INT32_MAX),
                  scaled = (int64_t)(factor * (double)(int64_t)(2 * (double)given / 3)),
                  whole = (scaled + multiple - 1) / multiple * multiple,
                  width = json_bool(r, "block_auto_adjust_ff_dim", true) ? whole : given;
    c->intermediate_size = (int32_t)min_of(width, (int64_t)INT32_MAX);
}

static bool is_in_list(const cJSON *list, int64_t value)
{
    const cJSON *item;
    int64_t own;
    cJSON_ArrayForEach(item, list) if (json_is_int(item, &own) && own == value) return true;
    return false;
}

/* Which layers have a short convolution in the place of attention: layer_types, or full_attn_idxs, name them. */
static int read_convolved_layers(struct json_reader *r, struct model_config *c)
{
    const struct hf_layer_kind kinds[] = {
        {"full_attention", NULL}, {"conv", c->stateful_layers}, {"sliding_attention", NULL}};
    const size_t num_kinds = array_length(kinds) - (c->family->short_taps > 0 ? 0 : 1);
    const cJSON *full = json_find(r, "full_attn_idxs");
    if (json_find(r, "layer_types"))
        return hf_read_layer_kinds(r, "layer_types", c->num_layers, kinds, num_kinds);
    if (c->family->short_taps > 0)
        return error_set(r->err, STATUS_INVALID, "%s: layer_types is missing", r->path);
    for (int32_t i = 0; i < c->num_layers && full; i++)
        if (!is_in_list(full, i)) bit_set_add(c->stateful_layers, (size_t)i);
    return STATUS_OK;
}

/* LFM3's. */
static int read_lfm3(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_true[] = {"use_attention_gate", "use_sandwich_norm"};
    if (c->family->short_taps == 0) return r->status;
    for (size_t i = 0; i < array_length(must_be_true); i++)
        if (!json_bool(r, must_be_true[i], true))
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is false, which is not supported", r->path,
                             must_be_true[i]);
    if (!json_find(r, "rope_parameters"))
        return error_set(r->err, STATUS_INVALID, "%s: rope_parameters is missing", r->path);
    c->short_taps = c->family->short_taps;
    c->gates_by_head = true;
    return r->status;
}

static int read_short_convolutions(struct json_reader *r, struct model_config *c)
{
    int status = read_convolved_layers(r, c);
    if (!status) status = read_lfm3(r, c);
    if (status) return status;
    if (!c->family->has_experts && c->family->short_taps == 0) read_lfm2_width(r, c);
    c->rms_norm_eps = (float)json_real(r, "norm_eps", c->family->norm_eps, 0, 1);
    c->tie_word_embeddings = json_bool(r, "tie_embedding", c->tie_word_embeddings);
    c->delta_v_heads = 1;
    c->delta_v_dim = c->hidden_size;
    if (json_int(r, "conv_L_cache", c->short_taps, 1, INT32_MAX) != c->short_taps)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: conv_L_cache is not supported unless it is %d",
                         r->path, c->short_taps);
    if (json_bool(r, "conv_bias", false))
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: conv_bias is set, which is not supported", r->path);
    return r->status;
}

/* Of steps of the state; time_step_min and time_step_max are of the values that training begins with. */
static bool has_step_limit(struct json_reader *r)
{
    const cJSON *limits = json_find(r, "time_step_limit"), *low = cJSON_GetArrayItem(limits, 0),
                *high = cJSON_GetArrayItem(limits, 1);
    return (cJSON_IsNumber(low) && low->valuedouble > 0) ||
           (cJSON_IsNumber(high) && isfinite(high->valuedouble));
}

static int check_step_limit(struct json_reader *r)
{
    if (!has_step_limit(r)) return STATUS_OK;
    return error_set(r->err, STATUS_UNSUPPORTED, "%s: time_step_limit is set, which is not supported",
                     r->path);
}

/* Values of all heads of v. Falcon-H1 has a key for it, which may be null. */
static int64_t read_state_width(struct json_reader *r, const struct model_config *c)
{
    const bool is_null = cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(r->object, "mamba_d_ssm"));
    if (c->family->states_beside_attention && !is_null) return json_int(r, "mamba_d_ssm", 1024, 1, INT32_MAX);
    return json_int(r, "mamba_expand", 2, 1, 1024) * c->hidden_size;
}

/* Granite 4 and Falcon-H1: of a layer with a state, its shape. */
static int read_state_space_shape(struct json_reader *r, struct model_config *c)
{
    const cJSON *head = json_find(r, "mamba_d_head");
    const int64_t width = read_state_width(r, c);
    c->delta_v_heads = hf_size(r, "mamba_n_heads", 128);
    c->delta_k_heads = hf_size(r, "mamba_n_groups", 1);
    c->delta_k_dim = hf_size(r, "mamba_d_state", 256);
    if (r->status) return r->status;
    const bool is_auto = !head || (cJSON_IsString(head) && !strcmp(head->valuestring, "auto"));
    c->delta_v_dim = is_auto ? (int32_t)(width / c->delta_v_heads) : hf_size(r, "mamba_d_head", 0);
    if (model_config_delta_width(c) != width)
        return error_set(r->err, STATUS_INVALID,
                         "%s: mamba_n_heads times mamba_d_head should be %" PRId64
                         ", mamba_d_ssm or mamba_expand times hidden_size",
                         r->path, width);
    if (json_int(r, "mamba_d_conv", DELTA_TAPS, 1, INT32_MAX) != DELTA_TAPS)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: mamba_d_conv is not supported unless it is %d",
                         r->path, DELTA_TAPS);
    if (!json_bool(r, "mamba_conv_bias", true) || json_bool(r, "mamba_proj_bias", false))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: mamba_conv_bias must be true and mamba_proj_bias false", r->path);
    int status = check_step_limit(r);
    return status ? status : r->status;
}

/* Falcon-H1's, in all layers beside attention. */
static int read_states_beside_attention(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_false[] = {"projectors_bias", "attention_bias"};
    const bool has_norm = json_bool(r, "mamba_rms_norm", false);
    int status = hf_want_false(r, must_be_false, array_length(must_be_false));
    if (status) return status;
    if (has_norm && json_bool(r, "mamba_norm_before_gate", true))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: mamba_norm_before_gate is true, which is not supported", r->path);
    c->states_have_no_norm = !has_norm;
    model_config_add_layers(c->stateful_layers, c->num_layers, 0);
    return read_state_space_shape(r, c);
}

/* Bamba's. */
static int read_states_but_listed(struct json_reader *r, struct model_config *c)
{
    const cJSON *list = json_find(r, "attn_layer_indices");
    for (int32_t i = 0; i < c->num_layers; i++)
        if (!is_in_list(list, i)) bit_set_add(c->stateful_layers, (size_t)i);
    return read_state_space_shape(r, c);
}

/* Which layers have one: layer_types name them. Those with attention rotate all, or none. */
static int read_state_spaces(struct json_reader *r, struct model_config *c)
{
    const struct hf_layer_kind kinds[] = {{"attention", NULL},
                                          {"mamba", c->stateful_layers},
                                          {"full_attention", NULL},
                                          {"linear_attention", c->stateful_layers}};
    const char *positions = json_text(r, "position_embedding_type", "nope");
    const bool rotates = !strcmp(positions, "rope");
    int status = hf_read_layer_kinds(r, "layer_types", c->num_layers, kinds, array_length(kinds));
    if (status) return status;
    if (!rotates && strcmp(positions, "nope") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: position_embedding_type \"%s\" is not supported; \"rope\" and \"nope\" are",
                         r->path, printable_from(positions, strlen(positions)).text);
    for (int32_t i = 0; i < c->num_layers && !rotates; i++) bit_set_add(c->unrotated_layers, (size_t)i);
    return model_config_has_states(c) ? read_state_space_shape(r, c) : r->status;
}

/* Nemotron-H's kinds of layers; LAYER_BLOCK_COUNT: none of them. */
static enum layer_block kind_of_letter(char letter)
{
    static const char letters[LAYER_BLOCK_COUNT] = {
        [BLOCK_STATE] = 'M', [BLOCK_ATTENTION] = '*', [BLOCK_MLP] = '-', [BLOCK_EXPERTS] = 'E'};
    enum layer_block kind = 0;
    while (kind < LAYER_BLOCK_COUNT && letters[kind] != letter) kind++;
    return kind;
}

static enum layer_block kind_of_name(const char *name)
{
    static const struct {
        const char *name;
        enum layer_block kind;
    } kinds[] = {{"mamba", BLOCK_STATE},
                 {"linear_attention", BLOCK_STATE},
                 {"attention", BLOCK_ATTENTION},
                 {"full_attention", BLOCK_ATTENTION},
                 {"mlp", BLOCK_MLP},
                 {"moe", BLOCK_EXPERTS}};
    for (size_t i = 0; i < array_length(kinds); i++)
        if (!strcmp(kinds[i].name, name)) return kinds[i].kind;
    return LAYER_BLOCK_COUNT;
}

static int add_block(struct json_reader *r, struct model_config *c, enum layer_block kind, const char *name)
{
    if (kind == LAYER_BLOCK_COUNT)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: layers of the kind \"%s\" are not supported; mamba (M), attention (*), mlp (-) "
                         "and moe (E) are",
                         r->path, printable_from(name, strlen(name)).text);
    return model_config_add_block(c, kind, r->path, r->err);
}

/* By their names, or by a letter each. */
static int read_blocks(struct json_reader *r, struct model_config *c)
{
    const char *key = json_find(r, "layers_block_type") ? "layers_block_type" : "layer_types";
    const cJSON *list = json_find(r, key), *item;
    const char *letters = list ? "" : json_text(r, "hybrid_override_pattern", "");
    const int64_t expected = json_int(r, "num_hidden_layers", 0, 0, INT32_MAX),
                  num = list ? cJSON_GetArraySize(list) : (int64_t)strlen(letters);
    int status = r->status;
    c->num_layers = 0;
    if (!status && (num == 0 || (expected > 0 && expected != num)))
        status = error_set(r->err, STATUS_INVALID, "%s: %s has %d entries for %d layers", r->path,
                           list ? key : "hybrid_override_pattern", (int)num, (int)expected);
    cJSON_ArrayForEach(item, list)
    {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        if (!status) status = add_block(r, c, kind_of_name(name), name);
    }
    for (; *letters && !status; letters++) status = add_block(r, c, kind_of_letter(*letters), letters);
    return status;
}

static int read_nemotron_h(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_false[] = {"mamba_proj_bias", "attention_bias"};
    int status = read_blocks(r, c);
    if (!status) status = hf_want_false(r, must_be_false, array_length(must_be_false));
    if (status) return status;
    hf_read_norm_eps(r, c);
    c->delta_v_heads = hf_size(r, "mamba_num_heads", 128);
    c->delta_v_dim = hf_size(r, "mamba_head_dim", 64);
    c->delta_k_heads = hf_size(r, "n_groups", 8);
    c->delta_k_dim = hf_size(r, "ssm_state_size", 128);
    if (json_int(r, "conv_kernel", DELTA_TAPS, 1, INT32_MAX) != DELTA_TAPS)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: conv_kernel is not supported unless it is %d",
                         r->path, DELTA_TAPS);
    if (!json_bool(r, "use_conv_bias", true) || strcmp(json_text(r, "mamba_hidden_act", "silu"), "silu") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: use_conv_bias must be true and mamba_hidden_act \"silu\"", r->path);
    status = check_step_limit(r);
    if (status) return status;
    if (json_find(r, "moe_latent_size")) c->expert_hidden_size = hf_size(r, "moe_latent_size", 0);
    return r->status;
}

/* Kimi Linear's layers with attention: layer_types name them, or a list whose numbers begin with 1, or each fourth is one, but for the
 * first. */
static int read_kimi_layers(struct json_reader *r, const struct json_reader *linear, struct model_config *c)
{
    const struct hf_layer_kind kinds[] = {{"full_attention", NULL}, {"linear_attention", c->stateful_layers}};
    const cJSON *full = json_find(linear, "full_attn_layers");
    if (json_find(r, "layer_types"))
        return hf_read_layer_kinds(r, "layer_types", c->num_layers, kinds, array_length(kinds));
    for (int32_t i = 0; i < c->num_layers; i++)
        if (full ? !is_in_list(full, i + 1) : i == 0 || i % 4 != 0)
            bit_set_add(c->stateful_layers, (size_t)i);
    return STATUS_OK;
}

/* Kimi Linear's, in an object of their own, or beside all else. Attention does not rotate. */
static int read_channel_deltas(struct json_reader *r, struct model_config *c)
{
    struct json_reader linear = *r;
    const cJSON *own = json_find(r, "linear_attn_config");
    if (own) linear.object = own;
    int status = read_kimi_layers(r, &linear, c);
    if (status) return status;
    c->delta_k_heads = c->delta_v_heads = hf_size(&linear, own ? "num_heads" : "linear_num_heads", 32);
    c->delta_k_dim = c->delta_v_dim = hf_size(&linear, own ? "head_dim" : "linear_head_dim", 128);
    const char *taps = own ? "short_conv_kernel_size" : "linear_conv_kernel_dim";
    if (json_int(&linear, taps, DELTA_TAPS, 1, INT32_MAX) != DELTA_TAPS)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is not supported unless it is %d", r->path, taps,
                         DELTA_TAPS);
    if (!json_bool(r, "mla_use_nope", true))
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: mla_use_nope is false, which is not supported",
                         r->path);
    for (int32_t i = 0; i < c->num_layers; i++) bit_set_add(c->unrotated_layers, (size_t)i);
    return linear.status ? linear.status : r->status;
}

int hf_read_period(struct json_reader *r, const char *name, int64_t period, int64_t offset,
                   int32_t num_layers, uint64_t *layers)
{
    char key[2][48];
    snprintf(key[0], sizeof key[0], "%s_period", name);
    snprintf(key[1], sizeof key[1], "%s_offset", name);
    period = json_int(r, key[0], period, 1, INT32_MAX);
    offset = json_int(r, key[1], offset, 0, INT32_MAX);
    for (int64_t i = offset; i < num_layers; i += period) bit_set_add(layers, (size_t)i);
    if (r->status || offset < period) return r->status;
    return error_set(r->err, STATUS_INVALID, "%s: %s should be less than %s", r->path, key[1], key[0]);
}

/* Mamba-1's shape; "auto" ranks are a sixteenth of the hidden size. */
static int read_selective_shape(struct json_reader *r, struct model_config *c, int64_t width,
                                const char *rank_key)
{
    const cJSON *rank = json_find(r, rank_key);
    const bool is_auto = !rank || (cJSON_IsString(rank) && !strcmp(rank->valuestring, "auto"));
    c->delta_step_rank = is_auto ? (int32_t)div_up(c->hidden_size, 16) : hf_size(r, rank_key, 0);
    c->delta_k_heads = 1;
    c->delta_v_dim = SELECTIVE_LANES;
    c->delta_v_heads = (int32_t)(width / SELECTIVE_LANES);
    if (width % SELECTIVE_LANES == 0 && width < INT32_MAX) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: states of %" PRId64 " channels are not supported; multiples of %d are", r->path,
                     width, SELECTIVE_LANES);
}

static int check_selective(struct json_reader *r, const char *taps, const char *bias, const char *others)
{
    if (json_int(r, taps, DELTA_TAPS, 1, INT32_MAX) != DELTA_TAPS)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is not supported unless it is %d", r->path, taps,
                         DELTA_TAPS);
    if (json_bool(r, bias, true) && !json_bool(r, others, false)) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s must be true and %s false", r->path, bias, others);
}

/* Jamba's. */
static int read_jamba(struct json_reader *r, struct model_config *c)
{
    uint64_t with_attention[LAYERS_MAX / 64] = {0};
    int status = hf_read_period(r, "attn_layer", 8, 4, c->num_layers, with_attention);
    for (int32_t i = 0; i < c->num_layers; i++)
        if (!bit_set_has(with_attention, (size_t)i)) bit_set_add(c->stateful_layers, (size_t)i);
    if (!status) status = check_selective(r, "mamba_d_conv", "mamba_conv_bias", "mamba_proj_bias");
    if (status) return status;
    c->norms_selection = c->family->norms_selection;
    c->delta_k_dim = hf_size(r, "mamba_d_state", 16);
    return read_selective_shape(r, c, json_int(r, "mamba_expand", 2, 1, 1024) * c->hidden_size,
                                "mamba_dt_rank");
}

/* Mamba 2's. */
static int read_mamba2(struct json_reader *r, struct model_config *c)
{
    const int64_t width = json_int(r, "expand", 2, 1, 1024) * c->hidden_size;
    c->delta_v_heads = hf_size(r, "num_heads", 128);
    c->delta_v_dim = hf_size(r, "head_dim", 64);
    c->delta_k_heads = hf_size(r, "n_groups", 8);
    c->delta_k_dim = hf_size(r, "state_size", 128);
    if (model_config_delta_width(c) != width)
        return error_set(r->err, STATUS_INVALID,
                         "%s: num_heads times head_dim should be %" PRId64 ", expand times hidden_size",
                         r->path, width);
    int status = check_step_limit(r);
    return status ? status : r->status;
}

/* No layer has anything else. */
static int read_states_alone(struct json_reader *r, struct model_config *c)
{
    const int64_t expanded = json_int(r, "expand", 2, 1, 1024) * c->hidden_size,
                  width = json_int(r, "intermediate_size", expanded, 1, INT32_MAX);
    int status = check_selective(r, "conv_kernel", "use_conv_bias", "use_bias");
    if (status) return status;
    model_config_add_layers(c->stateful_layers, c->num_layers, 0);
    model_config_add_layers(c->layers_without_mlp, c->num_layers, 0);
    c->num_heads = c->family->num_heads;
    c->head_dim = c->family->head_dim;
    if (c->family->delta_kind == DELTA_STATE_SPACE) return read_mamba2(r, c);
    c->norms_selection = c->family->norms_selection;
    c->delta_k_dim = hf_size(r, "state_size", 16);
    if (c->norms_selection &&
        json_real(r, "mixer_rms_eps", c->family->delta_norm_eps, 0, 1) != c->family->delta_norm_eps)
        return error_set(r->err, STATUS_UNSUPPORTED, "%s: mixer_rms_eps is not supported unless it is %g",
                         r->path, c->family->delta_norm_eps);
    return read_selective_shape(r, c, width, "time_step_rank");
}

int hf_read_states(struct json_reader *r, struct model_config *c)
{
    if (c->family->has_layer_periods) return read_jamba(r, c);
    if (c->family->has_states_alone) return read_states_alone(r, c);
    if (c->family->delta_kind == DELTA_CHANNELS) return read_channel_deltas(r, c);
    if (c->family->full_attention_interval > 0) return read_deltas(r, c);
    if (c->family->mlps_are_layers) return read_nemotron_h(r, c);
    if (c->family->states_beside_attention) return read_states_beside_attention(r, c);
    if (c->family->lists_attention_layers) return read_states_but_listed(r, c);
    if (c->family->delta_kind == DELTA_STATE_SPACE) return read_state_spaces(r, c);
    if (c->family->delta_kind == DELTA_CONVOLUTION) return read_short_convolutions(r, c);
    return STATUS_OK;
}
