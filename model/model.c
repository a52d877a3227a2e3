#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "base/log.h"
#include "model/distance_bias.h"
#include "model/forward.h"
#include "model/lora_files.h"
#include "model/rope_table.h"
#include "model/task_embedding.h"
#include "model/dense_layers.h"
#include "model/score_head.h"
#include "model/unpacked.h"

/* ---- building: one struct for what every step of it needs; the first problem is kept in status ---- */

struct builder {
    struct model *m;
    const struct model_files *files;
    const struct step_limits *limits;
    int32_t allowed_len; /* model.h */
    void (*progress)(void *context, double fraction);
    void *progress_context;
    struct error *err;
    int status;
    bool all_copied;          /* the device reads no weight from the file any more */
    struct unpacked unpacked; /* of the layer that is being built */
    const float *ones; /* [widest head], or [hidden_size] if that is more; device memory; NULL: not yet */
    const float *distance_bias; /* [heads][DISTANCE_ROW]; device memory; NULL: not yet, or none */
};

static void *alloc(struct builder *b, uint64_t count, uint64_t element_bytes, const char *what)
{
    uint64_t bytes;
    if (b->status) return NULL;
    void *memory = checked_mul(count, element_bytes, &bytes)
                       ? b->m->device->ops->alloc(b->m->device, bytes, what)
                       : NULL;
    if (!memory)
        b->status = error_set(b->err, STATUS_NO_MEMORY,
                              "no device memory for %s: lower --max-num-batched-tokens or "
                              "--max-model-len, or take a smaller model",
                              what);
    return memory;
}

static void *alloc_act(struct builder *b, int64_t rows, int64_t width, const char *what)
{
    return alloc(b, (uint64_t)rows, (uint64_t)width * (uint64_t)b->m->device->act_bytes, what);
}

static void upload(struct builder *b, void *to, const void *from, size_t bytes, const char *what)
{
    if (b->status) return;
    b->status = b->m->device->ops->upload(b->m->device, to, from, bytes);
    if (b->status) error_set(b->err, b->status, "%s could not be copied to the device", what);
}

/* Whether a weight is a matrix of products alone, whose codes may have scales apart from them. */
static bool takes_codes(const struct builder *b, enum weight_role role)
{
    return weight_line(b->m->config.family->weight_changes, role)->rows != DIM_1 &&
           role != WEIGHT_TOKEN_EMBEDDING && role != WEIGHT_LAYER_EMBEDDING;
}

static struct weight_view find_expert(struct builder *b, enum weight_role role, int32_t layer, int32_t expert)
{
    struct weight_view view = model_files_expert(b->files, role, layer, expert);
    const struct model_config *c = &b->m->config;
    /* files were checked when they were opened, so only dummy weights can be missing here */
    if (!view.data && weight_is_required(c, weight_line(c->family->weight_changes, role)->presence, layer) &&
        !b->status)
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for the model's dummy weights");
    /* devices take experts that lie transposed as they are */
    const bool is_scattered = !weight_is_of_expert(role) && unpacked_is_scattered(&view);
    if (!b->status && is_scattered)
        b->status = unpacked_make(&b->unpacked, &view, takes_codes(b, role), b->err);
    while (!b->status && unpacked_is_needed(&view, b->m->device->has_rare_dtypes))
        b->status = unpacked_make(&b->unpacked, &view, takes_codes(b, role), b->err);
    return view;
}

static struct weight_view find_weight(struct builder *b, enum weight_role role, int32_t layer)
{
    return find_expert(b, role, layer, 0);
}

/* (A vector + offset) * scale in device memory; NULL when the model has none. */
static const float *create_vector(struct builder *b, enum weight_role role, int32_t layer, float offset,
                                  float scale)
{
    struct weight_view view = find_weight(b, role, layer);
    if (b->status || !view.data) return NULL;
    assert_always(view.rows == 1);
    float *host = malloc((size_t)view.cols * sizeof *host);
    float *vector = alloc(b, (uint64_t)view.cols, sizeof *vector, "vectors of weights");
    if (!host && !b->status)
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for vectors of weights");
    if (!b->status && host) {
        dtype_row_to_f32(view.dtype, view.data, view.cols, host);
        for (int64_t i = 0; i < view.cols; i++) host[i] = (host[i] + offset) * scale;
        upload(b, vector, host, (size_t)view.cols * sizeof *host, "vectors of weights");
    }
    free(host);
    return vector;
}

/* A norm without a weight is a norm of ones. Behind a rotation it gives what it gives before: lengths stay. */
static const float *create_ones(struct builder *b)
{
    const size_t num = (size_t)max_of(model_config_widest_head(&b->m->config), b->m->config.hidden_size);
    if (b->ones) return b->ones;
    float *ones = alloc(b, num, sizeof *ones, "vectors of weights"), *host = malloc(num * sizeof *host);
    if (!host && !b->status)
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for vectors of weights");
    for (size_t i = 0; i < num && host; i++) host[i] = 1;
    if (host) upload(b, ones, host, num * sizeof *host, "vectors of weights");
    free(host);
    return b->ones = ones;
}

static const float *create_norm(struct builder *b, enum weight_role role, int32_t layer, float scale)
{
    const bool is_of_ones =
        b->m->config.family->norms_have_no_weight &&
        (role == WEIGHT_ATTENTION_NORM || role == WEIGHT_MLP_NORM || role == WEIGHT_OUTPUT_NORM);
    if (is_of_ones) return create_ones(b);
    return create_vector(b, role, layer, weight_norm_offset(&b->m->config, role), scale);
}

/* LayerNorm, whose bias has the next role. */
static void create_layer_norm(struct builder *b, enum weight_role role, int32_t layer, float scale,
                              struct norm_args *norm)
{
    norm->weight = create_norm(b, role, layer, scale);
    norm->bias = create_vector(b, (enum weight_role)(role + 1), layer, 0, scale);
}

static void create_qk_norms(struct builder *b, int32_t i, struct rope_args *rope)
{
    if (b->m->config.family->qk_norm_of_ones) {
        rope->q_norm = rope->k_norm = model_config_layer(&b->m->config, i).qk_norm ? create_ones(b) : NULL;
        return;
    }
    rope->q_norm = create_norm(b, WEIGHT_Q_NORM, i, 1);
    rope->k_norm = create_norm(b, WEIGHT_K_NORM, i, 1);
    rope->q_norm_bias = create_vector(b, WEIGHT_Q_NORM_BIAS, i, 0, 1);
    rope->k_norm_bias = create_vector(b, WEIGHT_K_NORM_BIAS, i, 0, 1);
    if (b->m->config.family->norms_v) rope->v_norm = create_ones(b);
    if (!b->m->config.family->scales_q) return;
    if (!rope->q_norm) rope->q_norm = create_ones(b);
    if (!rope->k_norm) rope->k_norm = create_ones(b);
}

static void add_part(struct builder *b, struct linear_desc *desc, enum weight_role role, int32_t layer)
{
    assert_always(desc->num_parts < LINEAR_PARTS_MAX);
    desc->parts[desc->num_parts++] = find_weight(b, role, layer);
}

/* rows and cols are what the activations have room for (create_activations); the files were held to them. */
static struct linear *create_linear(struct builder *b, const struct linear_desc *desc, int64_t rows,
                                    int64_t cols)
{
    struct device *d = b->m->device;
    struct linear_desc whole = *desc;
    struct linear *linear = NULL;
    if (b->status) return NULL;
    whole.quantise_input = b->m->config.quantisation.wants_quantised_activations;
    for (int i = 0; i < desc->num_parts; i++) {
        assert_always(desc->parts[i].cols == cols);
        rows -= weight_view_num_rows(&desc->parts[i]);
    }
    assert_always(rows == 0);
    b->status = d->ops->linear_create(d, &whole, &linear, b->err);
    if (!b->status && d->ops->linear_bytes(d, linear) == 0) b->all_copied = false;
    return linear;
}

/* Whether the family has such a weight. */
static bool may_be(const struct model *m, enum weight_role role)
{
    return weight_may_be(m->config.family->weight_changes, role);
}

/* A linear that adapters may add to. */
struct lora_place {
    struct lora **lora;
    const struct linear *linear;
    enum weight_role roles[LINEAR_PARTS_MAX]; /* of its parts */
    int num_roles;
};

enum { LORA_LINEARS_MAX = 4 };

/* Of a layer. Returns how many. */
static int lora_places(struct model *m, int32_t i, struct lora_place places[LORA_LINEARS_MAX])
{
    const struct layer_config l = model_config_layer(&m->config, i);
    const enum weight_role v = l.v_is_k ? WEIGHT_K : WEIGHT_V;
    struct layer *layer = &m->layers[i];
    int num = 0;
    if (layer->qkv) {
        places[num++] = (struct lora_place){
            &layer->qkv_lora, layer->qkv, {WEIGHT_Q, WEIGHT_K, v}, l.shares_kv ? 1 : LINEAR_PARTS_MAX};
        places[num++] = (struct lora_place){&layer->o_lora, layer->o, {WEIGHT_O}, 1};
    }
    if (layer->gate_up && may_be(m, WEIGHT_GATE))
        places[num++] =
            (struct lora_place){&layer->gate_up_lora, layer->gate_up, {WEIGHT_GATE, WEIGHT_UP}, 2};
    else if (layer->gate_up)
        places[num++] = (struct lora_place){&layer->gate_up_lora, layer->gate_up, {WEIGHT_UP}, 1};
    if (layer->down) places[num++] = (struct lora_place){&layer->down_lora, layer->down, {WEIGHT_DOWN}, 1};
    return num;
}

/* What it adds there. Returns whether it is anything; f NULL: nothing. */
static bool find_lora_parts(const struct lora_files *f, const struct lora_place *p, int32_t layer,
                            struct lora_part parts[LINEAR_PARTS_MAX])
{
    bool is_any = false;
    for (int part = 0; part < p->num_roles; part++) {
        parts[part] = lora_files_part(f, p->roles[part], layer);
        is_any |= parts[part].down.data != NULL;
    }
    return is_any;
}

/* Whether adapters that come later may add to it. */
static bool may_be_added_to(const struct model_files *files, const struct lora_place *p, int32_t layer)
{
    bool may = false;
    for (int part = 0; part < p->num_roles && model_files_lora_rank(files) > 0; part++)
        may |= lora_files_may_add(files, p->roles[part], layer);
    return may;
}

/* What adapters add to a linear; none where nothing is added, nor ever will be. */
static void create_lora(struct builder *b, const struct lora_place *p, int32_t layer)
{
    struct device *d = b->m->device;
    const int32_t num = model_files_num_loras(b->files);
    if (b->status || num == 0) return;
    struct lora_part(*parts)[LINEAR_PARTS_MAX] = calloc((size_t)num, sizeof *parts);
    if (!parts) {
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for a list of adapters");
        return;
    }
    bool is_any = may_be_added_to(b->files, p, layer);
    for (int32_t i = 0; i < num; i++)
        is_any |= find_lora_parts(model_files_lora(b->files, i), p, layer, parts[i]);
    const struct lora_desc desc = {num, (const struct lora_part(*)[LINEAR_PARTS_MAX])parts,
                                   model_files_lora_rank(b->files)};
    if (is_any && !d->ops->lora_create)
        b->status = error_set(b->err, STATUS_UNSUPPORTED, "the device %s has no adapters", d->name);
    else if (is_any)
        b->status = d->ops->lora_create(d, p->linear, &desc, p->lora, b->err);
    free(parts);
}

static void create_loras(struct builder *b, int32_t i)
{
    struct lora_place places[LORA_LINEARS_MAX];
    const int num = lora_places(b->m, i, places);
    for (int k = 0; k < num; k++) create_lora(b, &places[k], i);
}

int model_lora_set(struct model *m, int32_t place, const struct lora_files *f, int32_t layer,
                   struct error *err)
{
    struct lora_place places[LORA_LINEARS_MAX];
    const int num = lora_places(m, layer, places);
    int status = STATUS_OK;
    for (int k = 0; k < num && !status; k++) {
        struct lora_part parts[LINEAR_PARTS_MAX] = {{.scale = 0}};
        find_lora_parts(f, &places[k], layer, parts);
        if (*places[k].lora)
            status =
                m->device->ops->lora_set(m->device, places[k].linear, *places[k].lora, place, parts, err);
    }
    return status;
}

static int64_t q_width(const struct model_config *c, int32_t layer)
{
    const struct layer_config l = model_config_layer(c, layer);
    return (int64_t)l.num_heads * l.head_dim;
}

/* Of Q, K and V; without gates. */
static int64_t heads_width(const struct model_config *c, int32_t layer)
{
    const struct layer_config l = model_config_layer(c, layer);
    return q_width(c, layer) + (l.shares_kv ? 0 : (int64_t)l.num_kv_heads * (l.head_dim + l.v_dim));
}

/* Of the gates of attention's output. */
static int64_t gates_width(const struct model_config *c, int32_t layer)
{
    return c->gates_by_head ? model_config_layer(c, layer).num_heads : q_width(c, layer);
}

/* Of what their product gives. */
static int64_t qkv_width(const struct model_config *c, int32_t layer)
{
    return heads_width(c, layer) + (c->family->gated_attention ? q_width(c, layer) : 0);
}

/* Of all layers. */
static int64_t widest(const struct model_config *c, int64_t (*width)(const struct model_config *, int32_t))
{
    int64_t most = 0;
    for (int32_t i = 0; i < c->num_layers; i++) most = max_of(most, width(c, i));
    return most;
}

static struct linear *create_o(struct builder *b, int32_t layer)
{
    const struct model_config *c = &b->m->config;
    struct linear_desc desc = {.kind = LINEAR_PLAIN, .split = SPLIT_BY_ROWS};
    add_part(b, &desc, WEIGHT_O, layer);
    desc.biases[0] = find_weight(b, WEIGHT_O_BIAS, layer);
    return create_linear(b, &desc, c->hidden_size, model_config_mixed_width(c, layer));
}

static struct linear *create_down(struct builder *b, int32_t layer)
{
    const struct model_config *c = &b->m->config;
    struct linear_desc desc = {.kind = LINEAR_PLAIN, .split = SPLIT_BY_ROWS};
    add_part(b, &desc, WEIGHT_DOWN, layer);
    desc.biases[0] = find_weight(b, WEIGHT_DOWN_BIAS, layer);
    return create_linear(b, &desc, c->hidden_size, model_config_layer(c, layer).intermediate_size);
}

static enum linear_split by_heads(const struct model *m, int32_t layer)
{
    return m->layers[layer].attention.by_heads ? SPLIT_BY_HEADS : SPLIT_NOT;
}

static struct linear *create_qkv(struct builder *b, int32_t layer)
{
    const struct model_config *c = &b->m->config;
    const struct layer_config l = model_config_layer(c, layer);
    struct linear_desc desc = {.kind = LINEAR_PLAIN,
                               .split = by_heads(b->m, layer),
                               .part_heads = {l.num_heads, l.num_kv_heads, l.num_kv_heads}};
    const int num_parts = l.shares_kv ? 1 : 3;
    for (int i = 0; i < num_parts; i++) {
        const int own = i == 2 && l.v_is_k ? 1 : i;
        add_part(b, &desc, (enum weight_role)(WEIGHT_Q + own), layer);
        desc.biases[i] = find_weight(b, (enum weight_role)(WEIGHT_Q_BIAS + own), layer);
    }
    return create_linear(b, &desc, qkv_width(c, layer), c->hidden_size);
}

static struct linear *create_gate_up(struct builder *b, int32_t layer)
{
    const struct model_config *c = &b->m->config;
    struct linear_desc desc = {.kind = LINEAR_GATE_UP, .split = SPLIT_BY_ROWS, .gate = c->gate};
    if (b->m->layers[layer].has_sparse_gate) desc.kind = LINEAR_PLAIN; /* the gate is a pass of its own */
    add_part(b, &desc, WEIGHT_GATE, layer);
    add_part(b, &desc, WEIGHT_UP, layer);
    return create_linear(b, &desc, 2 * (int64_t)model_config_layer(c, layer).intermediate_size,
                         c->hidden_size);
}

static double softplus(double x)
{
    return x > 20 ? x : log1p(exp(x));
}

static float scalar(struct builder *b, enum weight_role role, int32_t layer)
{
    const struct weight_view view = find_weight(b, role, layer);
    float value = 0;
    if (view.data && !b->status) dtype_row_to_f32(view.dtype, view.data, 1, &value);
    return value;
}

static void add_xielu(struct builder *b, struct linear_desc *desc, int32_t layer)
{
    const double beta = (double)scalar(b, WEIGHT_XIELU_BETA, layer);
    desc->gate_values[0] = (float)softplus((double)scalar(b, WEIGHT_XIELU_ABOVE, layer));
    desc->gate_values[1] = (float)(beta + softplus((double)scalar(b, WEIGHT_XIELU_BELOW, layer)));
    desc->gate_values[2] = (float)beta;
}

static struct linear *create_up(struct builder *b, int32_t layer)
{
    const struct model_config *c = &b->m->config;
    struct linear_desc desc = {.kind = LINEAR_UP, .split = SPLIT_BY_ROWS, .gate = c->gate};
    if (desc.gate == GATE_XIELU) add_xielu(b, &desc, layer);
    add_part(b, &desc, WEIGHT_UP, layer);
    desc.biases[0] = find_weight(b, WEIGHT_UP_BIAS, layer);
    return create_linear(b, &desc, model_config_layer(c, layer).intermediate_size, c->hidden_size);
}

/* ---- experts ---- */

/* data NULL where all of it is 0. */
static struct weight_view find_nonzero(struct builder *b, enum weight_role role, int32_t layer)
{
    const struct weight_view view = find_weight(b, role, layer);
    const unsigned char *bytes = view.data;
    const uint64_t num = view.data ? weight_view_bytes(&view) : 0;
    for (uint64_t i = 0; i < num; i++)
        if (bytes[i] != 0) return view;
    return (struct weight_view){0};
}

static struct moe_desc describe_moe(struct builder *b, int32_t layer)
{
    const struct model_config *c = &b->m->config;
    return (struct moe_desc){.num_experts = c->num_experts,
                             .num_chosen = c->num_chosen_experts,
                             .num_groups = c->num_expert_groups,
                             .num_chosen_groups = c->num_chosen_expert_groups,
                             .groups_by_two = c->router_scores == ROUTER_SIGMOID,
                             .scores = c->router_scores,
                             .normalize = c->router_normalizes,
                             .scale = c->router_scale,
                             .near = c->router_near,
                             .quantise_input = c->quantisation.wants_quantised_activations,
                             .scale_input = c->family->scales_expert_input,
                             .gate = c->gate,
                             .router = find_weight(b, WEIGHT_ROUTER, layer),
                             .router_bias = find_weight(b, WEIGHT_ROUTER_LOGIT_BIAS, layer),
                             .choice_bias = find_weight(b, WEIGHT_ROUTER_BIAS, layer),
                             .to_experts = find_weight(b, WEIGHT_TO_EXPERTS, layer),
                             .from_experts = find_weight(b, WEIGHT_FROM_EXPERTS, layer),
                             .score_factors = find_weight(b, WEIGHT_SCORE_FACTORS, layer),
                             .out_bias = find_nonzero(b, WEIGHT_EXPERTS_BIAS, layer),
                             .shared = {.gate = find_weight(b, WEIGHT_SHARED_GATE, layer),
                                        .up = find_weight(b, WEIGHT_SHARED_UP, layer),
                                        .down = find_weight(b, WEIGHT_SHARED_DOWN, layer)},
                             .shared_gate = find_weight(b, WEIGHT_SHARED_WEIGHT, layer)};
}

static struct moe *create_moe(struct builder *b, int32_t layer)
{
    struct device *d = b->m->device;
    const struct model_config *c = &b->m->config;
    struct moe *moe = NULL;
    if (!b->status && !d->ops->moe_create)
        b->status =
            error_set(b->err, STATUS_UNSUPPORTED, "the device %s has no mixtures of experts", d->name);
    struct expert_desc *experts = calloc((size_t)c->num_experts, sizeof *experts);
    if (!experts && !b->status)
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for a list of experts");
    for (int32_t e = 0; e < c->num_experts && experts && !b->status; e++)
        experts[e] = (struct expert_desc){.gate = find_expert(b, WEIGHT_EXPERT_GATE, layer, e),
                                          .up = find_expert(b, WEIGHT_EXPERT_UP, layer, e),
                                          .down = find_expert(b, WEIGHT_EXPERT_DOWN, layer, e),
                                          .gate_bias = find_expert(b, WEIGHT_EXPERT_GATE_BIAS, layer, e),
                                          .up_bias = find_expert(b, WEIGHT_EXPERT_UP_BIAS, layer, e),
                                          .down_bias = find_expert(b, WEIGHT_EXPERT_DOWN_BIAS, layer, e)};
    if (!b->status) {
        struct moe_desc desc = describe_moe(b, layer);
        desc.experts = experts;
        if (!b->status) b->status = d->ops->moe_create(d, &desc, &moe, b->err);
    }
    free(experts);
    return moe;
}

/* ---- layers with a state ---- */

/* Of the parts that the family has. */
static struct linear *create_stacked(struct builder *b, int32_t layer, const enum weight_role *roles,
                                     int num_roles, int64_t rows, int64_t cols)
{
    struct linear_desc desc = {.kind = LINEAR_PLAIN};
    for (int i = 0; i < num_roles; i++)
        if (may_be(b->m, roles[i])) add_part(b, &desc, roles[i], layer);
    return create_linear(b, &desc, rows, cols);
}

static struct delta_net *create_delta_net(struct builder *b, int32_t layer)
{
    struct device *d = b->m->device;
    const struct model_config *c = &b->m->config;
    struct delta_net *net = NULL;
    if (!d->ops->delta_net_create) {
        if (!b->status)
            b->status =
                error_set(b->err, STATUS_UNSUPPORTED, "the device %s has no linear attention", d->name);
        return NULL;
    }
    const enum delta_kind kind = c->family->delta_kind;
    const struct delta_desc desc = {
        .kind = kind,
        .num_k_heads = c->delta_k_heads,
        .num_v_heads = c->delta_v_heads,
        .k_dim = c->delta_k_dim,
        .v_dim = c->delta_v_dim,
        .by_k_head = c->family->delta_by_k_head,
        .rates_by_k_head = c->family->delta_rates_by_k_head,
        .tiled = kind == DELTA_RULE && c->delta_is_gguf && !c->family->delta_rates_by_k_head,
        .has_rates = c->delta_is_gguf,
        .z_is_apart = c->family->delta_z_is_apart,
        .gate_is_sigmoid = c->family->delta_is_gated_by_sigmoid,
        .beta_scale = c->delta_beta_scale,
        .norm_eps = c->family->delta_norm_eps > 0 ? (float)c->family->delta_norm_eps : c->rms_norm_eps,
        .v_scale = c->scales.v,
        .k_scale = c->scales.k,
        .q_scale = c->scales.q,
        .step_scale = c->scales.steps,
        .convolution = {find_weight(b, WEIGHT_DELTA_CONVOLUTION, layer),
                        find_weight(b, WEIGHT_DELTA_CONVOLUTION_K, layer),
                        find_weight(b, WEIGHT_DELTA_CONVOLUTION_V, layer)},
        .decay = find_weight(b, WEIGHT_DELTA_DECAY, layer),
        .dt_bias = find_weight(b, WEIGHT_DELTA_DT_BIAS, layer),
        .norm = find_weight(b, WEIGHT_DELTA_NORM, layer),
        .convolution_bias = find_weight(b, WEIGHT_DELTA_CONVOLUTION_BIAS, layer),
        .skip = find_weight(b, WEIGHT_DELTA_SKIP, layer),
        .selection = find_weight(b, WEIGHT_DELTA_SELECTION, layer),
        .steps = find_weight(b, WEIGHT_DELTA_STEPS, layer),
        .norms_selection = c->norms_selection,
        .step_norm = find_weight(b, WEIGHT_DELTA_STEP_NORM, layer),
        .k_norm = find_weight(b, WEIGHT_DELTA_K_NORM, layer),
        .q_norm = find_weight(b, WEIGHT_DELTA_Q_NORM, layer)};
    if (!b->status) b->status = d->ops->delta_net_create(d, &desc, &net, b->err);
    return net;
}

/* Of one weight, or of that and a narrow one of rank rows; where the family has none nothing. */
static struct product create_product(struct builder *b, int32_t layer, enum weight_role role,
                                     enum weight_role narrow_role, int64_t rows, int64_t rank)
{
    const struct model_config *c = &b->m->config;
    const bool is_narrow = may_be(b->m, narrow_role);
    struct product p = {NULL, NULL};
    if (!may_be(b->m, role)) return p;
    if (is_narrow) p.narrow = create_stacked(b, layer, &narrow_role, 1, rank, c->hidden_size);
    p.wide = create_stacked(b, layer, &role, 1, rows, is_narrow ? rank : c->hidden_size);
    return p;
}

static void create_state_layer(struct builder *b, int32_t i)
{
    /* the last one is not there where it is apart */
    static const enum weight_role projections[] = {WEIGHT_DELTA_QKV, WEIGHT_DELTA_Q,    WEIGHT_DELTA_K,
                                                   WEIGHT_DELTA_V,   WEIGHT_DELTA_QKVZ, WEIGHT_DELTA_Z},
                                  rates[] = {WEIGHT_DELTA_B, WEIGHT_DELTA_A, WEIGHT_DELTA_BA},
                                  outs[] = {WEIGHT_DELTA_OUT};
    const struct model_config *c = &b->m->config;
    struct layer *layer = &b->m->layers[i];
    const bool is_apart = c->family->delta_z_is_apart;
    int64_t width = model_config_delta_width(c);
    layer->projections = create_stacked(b, i, projections, (int)array_length(projections) - is_apart,
                                        model_config_projected_width(c), c->hidden_size);
    if (c->family->delta_kind == DELTA_RULE || c->family->delta_kind == DELTA_CHANNELS)
        layer->gates = create_stacked(b, i, rates, 3, model_config_num_rates(c), c->hidden_size);
    if (is_apart)
        layer->z = create_product(b, i, WEIGHT_DELTA_Z, WEIGHT_DELTA_Z_NARROW, width, c->delta_v_dim);
    layer->decays = create_product(b, i, WEIGHT_DELTA_F, WEIGHT_DELTA_F_NARROW, model_config_num_decays(c),
                                   c->delta_v_dim);
    struct linear *out = create_stacked(b, i, outs, 1, c->hidden_size, width);
    if (model_config_has_attention(c, i))
        layer->state_o = out;
    else
        layer->o = out;
    layer->delta_net = create_delta_net(b, i);
}

/* ---- layers with attention ---- */

/* Of all layers. */
static const float *create_distance_bias(struct builder *b)
{
    const struct weight_view buckets = find_weight(b, WEIGHT_DISTANCE_BIAS, 0);
    if (!b->status && buckets.scheme != WEIGHT_PLAIN)
        b->status = error_set(b->err, STATUS_UNSUPPORTED, "quantised scores by distance are not supported");
    if (b->status || !buckets.data || b->distance_bias) return b->distance_bias;
    const size_t num = (size_t)buckets.cols * DISTANCE_ROW;
    float *table = alloc(b, num, sizeof *table, "scores by distance"),
          *host = malloc((num + (size_t)buckets.cols) * sizeof *host);
    if (!host && !b->status)
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for scores by distance");
    if (host) distance_bias_fill(&buckets, host + num, host);
    if (host) upload(b, table, host, num * sizeof *host, "scores by distance");
    free(host);
    return b->distance_bias = table;
}

static struct latent *create_latent(struct builder *b, int32_t layer)
{
    struct device *d = b->m->device;
    const struct model_config *c = &b->m->config;
    struct latent *latent = NULL;
    if (!d->ops->latent_create) {
        if (!b->status)
            b->status =
                error_set(b->err, STATUS_UNSUPPORTED, "the device %s has no latent attention", d->name);
        return NULL;
    }
    const struct latent_desc desc = {
        .num_heads = c->num_heads,
        .plain_dim = c->latent.plain_dim,
        .rotary_dim = c->latent.rotary_dim,
        .value_dim = c->latent.value_dim,
        .rank = c->latent.rank,
        .norm_eps = c->family->latent_norm_eps > 0 ? (float)c->family->latent_norm_eps : c->rms_norm_eps,
        .q = find_weight(b, WEIGHT_Q, layer),
        .q_a = find_weight(b, WEIGHT_LATENT_Q_A, layer),
        .q_norm = find_weight(b, WEIGHT_LATENT_Q_NORM, layer),
        .q_b = find_weight(b, WEIGHT_LATENT_Q_B, layer),
        .kv_a = find_weight(b, WEIGHT_LATENT_KV_A, layer),
        .kv_norm = find_weight(b, WEIGHT_LATENT_KV_NORM, layer),
        .kv_b = find_weight(b, WEIGHT_LATENT_KV_B, layer),
        .k_b = find_weight(b, WEIGHT_LATENT_K_B, layer),
        .v_b = find_weight(b, WEIGHT_LATENT_V_B, layer)};
    if (!b->status) b->status = d->ops->latent_create(d, &desc, &latent, b->err);
    return latent;
}

/* What stands in the place of attention. */
static struct linear *create_replacement(struct builder *b, int32_t layer)
{
    static const enum weight_role roles[] = {WEIGHT_REPLACEMENT};
    const int64_t h = b->m->config.hidden_size;
    return create_stacked(b, layer, roles, 1, h, h);
}

static struct linear *create_attention_gates(struct builder *b, int32_t layer)
{
    const struct model_config *c = &b->m->config;
    struct linear_desc desc = {.kind = LINEAR_PLAIN,
                               .split = by_heads(b->m, layer),
                               .part_heads = {model_config_layer(c, layer).num_heads}};
    add_part(b, &desc, WEIGHT_ATTENTION_GATE, layer);
    return create_linear(b, &desc, gates_width(c, layer), c->hidden_size);
}

static void create_attention_layer(struct builder *b, int32_t i)
{
    const struct model_config *c = &b->m->config;
    struct layer *layer = &b->m->layers[i];
    if (c->latent.rank > 0) {
        layer->attention.latent = create_latent(b, i);
        layer->o = create_o(b, i);
        return;
    }
    create_qk_norms(b, i, &layer->rope);
    layer->attention.sinks = create_vector(b, WEIGHT_SINKS, i, 0, 1);
    layer->attention.distance_bias = create_distance_bias(b);
    layer->qkv = create_qkv(b, i);
    if (may_be(b->m, WEIGHT_ATTENTION_GATE)) layer->gates = create_attention_gates(b, i);
    layer->o = create_o(b, i);
}

static float layer_scale(struct builder *b, int32_t layer)
{
    const float scale = scalar(b, WEIGHT_LAYER_SCALE, layer);
    if (!b->status && (scale == 0 || !isfinite(scale)))
        b->status = error_set(b->err, STATUS_INVALID, "layer %d is multiplied by %g", layer, (double)scale);
    return scale;
}

/* A layer's last norm is where the next one begins. An encoder's first one is that of the embedding, which goes on as it. */
static void create_norms(struct builder *b, int32_t i)
{
    struct model *m = b->m;
    struct layer *layer = &m->layers[i];
    struct norm_args *next = i + 1 < m->config.num_layers ? &layer[1].attention_norm : &m->output_norm;
    if (m->config.family->has_embedding_norm && i == 0) {
        create_layer_norm(b, WEIGHT_EMBEDDING_NORM, 0, 1, &layer->attention_norm);
        layer->attention_norm.replaces = true;
    }
    if (m->config.family->norms_sums) {
        create_layer_norm(b, WEIGHT_ATTENTION_INNER_NORM, i, 1, &layer->inner_norm);
        create_layer_norm(b, WEIGHT_ATTENTION_POST_NORM, i, 1, &layer->mlp_norm);
        create_layer_norm(b, WEIGHT_MLP_POST_NORM, i, 1, next);
        return;
    }
    if (layer->mlp_norm.is_layer_norm) {
        if (!m->config.family->has_embedding_norm || i > 0)
            create_layer_norm(b, WEIGHT_ATTENTION_NORM, i, 1, &layer->attention_norm);
        create_layer_norm(b, WEIGHT_MLP_NORM, i, 1,
                          m->config.is_parallel ? &layer->seen_norm : &layer->mlp_norm);
        return;
    }
    layer->attention_norm.weight = create_norm(b, WEIGHT_ATTENTION_NORM, i, m->config.scales.norm);
    layer->mlp_norm.weight = create_norm(b, WEIGHT_MLP_NORM, i, m->config.scales.mlp_norm);
    layer->mlp_norm.delta_weight = create_norm(b, WEIGHT_ATTENTION_POST_NORM, i, 1);
    next->delta_weight = create_norm(b, WEIGHT_MLP_POST_NORM, i, 1);
    if (m->config.layer_embedding_dim > 0) {
        layer->input_norm.delta_weight = next->delta_weight;
        next->delta_weight = create_norm(b, WEIGHT_LAYER_INPUT_NORM, i, 1);
    }
    if (may_be(m, WEIGHT_LAYER_SCALE)) next->sum_scale = layer_scale(b, i);
}

/* Of what o and down get. */
static void create_sub_norms(struct builder *b, int32_t i)
{
    struct layer *layer = &b->m->layers[i];
    layer->o_norm.delta_weight = create_norm(b, WEIGHT_ATTENTION_SUB_NORM, i, 1);
    layer->down_norm.delta_weight = create_norm(b, WEIGHT_MLP_SUB_NORM, i, 1);
}

/* The router's input is divided by the root of H. */
static void create_norms_beside(struct builder *b, int32_t i)
{
    struct layer *layer = &b->m->layers[i];
    const float scale = (float)(1 / sqrt((double)b->m->config.hidden_size));
    layer->seen_norm.weight = create_vector(b, WEIGHT_ROUTER_SCALE, i, 0, scale);
    layer->experts_norm.weight = create_norm(b, WEIGHT_EXPERTS_NORM, i, 1);
    layer->mlp_sum.delta_weight = create_norm(b, WEIGHT_MLP_POST_NORM_BESIDE, i, 1);
    layer->experts_sum.delta_weight = create_norm(b, WEIGHT_EXPERTS_POST_NORM, i, 1);
    layer->mlp_sum.begins = true;
}

static void create_layer_input(struct builder *b, int32_t i)
{
    static const enum weight_role outs[] = {WEIGHT_LAYER_INPUT_OUT};
    const struct model_config *c = &b->m->config;
    struct layer *layer = &b->m->layers[i];
    struct linear_desc gate = {.kind = LINEAR_UP, .gate = c->gate};
    if (c->layer_embedding_dim == 0) return;
    add_part(b, &gate, WEIGHT_LAYER_INPUT_GATE, i);
    layer->input_gate = create_linear(b, &gate, c->layer_embedding_dim, c->hidden_size);
    layer->input_out = create_stacked(b, i, outs, 1, c->hidden_size, c->layer_embedding_dim);
}

/* Both parts of a sum are multiplied by the root of a half as they are made; a product that would be divided by the root of H before its
 * norm has a norm that knows it. */
static void create_layer_inputs(struct builder *b)
{
    static const enum weight_role projections[] = {WEIGHT_LAYER_PROJECTION};
    struct model *m = b->m;
    const struct model_config *c = &m->config;
    const int64_t tokens = b->limits->num_tokens, width = (int64_t)c->num_layers * c->layer_embedding_dim;
    struct linear_desc table = {.kind = LINEAR_PLAIN, .also_embedding = true};
    if (width == 0) return;
    if (!m->device->ops->multiply && !b->status)
        b->status = error_set(b->err, STATUS_UNSUPPORTED, "the device %s has no embeddings of each layer",
                              m->device->name);
    add_part(b, &table, WEIGHT_LAYER_EMBEDDING, 0);
    m->layer_embedding = create_linear(b, &table, c->layer_vocab_size, width);
    m->layer_projection = create_stacked(b, 0, projections, 1, width, c->hidden_size);
    m->layer_embedding_scale = (float)sqrt(c->layer_embedding_dim / 2.0);
    m->layer_inputs_norm =
        (struct norm_args){.delta_weight = create_norm(b, WEIGHT_LAYER_PROJECTION_NORM, 0, (float)M_SQRT1_2),
                           .delta_scale = 1,
                           .delta_eps = c->rms_norm_eps * (float)c->hidden_size,
                           .hidden_size = c->layer_embedding_dim,
                           .num_parts = c->num_layers};
    m->layer_rows =
        alloc(b, (uint64_t)tokens, (uint64_t)width * (uint64_t)m->device->res_bytes, "embeddings of layers");
    m->layer_inputs = alloc_act(b, tokens, width, "embeddings of layers");
    m->layer_logit_inputs = alloc_act(b, b->limits->num_logits, width, "embeddings of layers");
}

/* ---- tasks ---- */

/* One for each place of an adapter: those of tasks are the first. */
static void create_task_lora(struct builder *b, const struct task_embedding *e)
{
    const int32_t num = model_files_num_loras(b->files), num_tasks = b->m->config.tasks.num;
    struct lora_part(*parts)[LINEAR_PARTS_MAX] = calloc((size_t)num, sizeof *parts);
    if (!parts && !b->status) b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for tasks");
    for (int32_t i = 0; i < num_tasks && !b->status; i++) parts[i][0] = task_embedding_part(e, i);
    const struct lora_desc desc = {num, (const struct lora_part(*)[LINEAR_PARTS_MAX])parts, 0};
    if (!b->status)
        b->status =
            b->m->device->ops->lora_create(b->m->device, b->m->task_zeros, &desc, &b->m->task_lora, b->err);
    free(parts);
}

static void create_tasks(struct builder *b)
{
    const struct task_embedding *e = model_files_task_embedding(b->files);
    struct model *m = b->m;
    if (!e || b->status) return;
    if (!m->device->ops->lora_create) {
        b->status = error_set(b->err, STATUS_UNSUPPORTED, "the device %s has no adapters", m->device->name);
        return;
    }
    const struct weight_view table = task_embedding_table(e), zeros = task_embedding_zeros(e);
    const struct linear_desc embedding = {
        .kind = LINEAR_PLAIN, .also_embedding = true, .num_parts = 1, .parts = {table}};
    const struct linear_desc product = {.kind = LINEAR_PLAIN, .num_parts = 1, .parts = {zeros}};
    const int64_t tokens = b->limits->num_tokens;
    m->task_width = (int32_t)table.cols;
    m->task_table = create_linear(b, &embedding, table.rows, table.cols);
    m->task_zeros = create_linear(b, &product, zeros.rows, zeros.cols);
    m->task_rows = alloc(b, (uint64_t)tokens, (uint64_t)table.cols * (uint64_t)m->device->res_bytes,
                         "tasks' embeddings");
    m->task_values = alloc_act(b, tokens, table.cols, "tasks' embeddings");
    create_task_lora(b, e);
}

/* ---- AltUp and LAuReL ---- */

/* Rows of a matrix in f32, rows[k][j] * by[j]; by NULL: 1. The same in device memory. */
static const float *create_floats(struct builder *b, enum weight_role role, int32_t layer, const float *by)
{
    const struct weight_view view = find_weight(b, role, layer);
    if (b->status) return NULL;
    const size_t rows = (size_t)weight_view_num_rows(&view), cols = (size_t)view.cols;
    float *host = malloc(rows * cols * sizeof *host),
          *out = alloc(b, rows * cols, sizeof *out, "vectors of weights");
    if (!host && !b->status)
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for vectors of weights");
    for (size_t i = 0; i < rows && host && !b->status; i++) {
        weight_view_row_to_f32(&view, (int64_t)i, host + i * cols);
        for (size_t j = 0; j < cols && by; j++) host[i * cols + j] *= by[j];
    }
    if (host) upload(b, out, host, rows * cols * sizeof *host, "vectors of weights");
    free(host);
    return out;
}

/* The router's norm is in its rows, and so is that its input is divided by H. */
static const float *create_altup_router(struct builder *b, int32_t layer)
{
    const struct weight_view norm = find_weight(b, WEIGHT_ALTUP_ROUTER_NORM, layer);
    const float *router = NULL;
    if (b->status) return NULL;
    float *by = malloc((size_t)norm.cols * sizeof *by);
    if (!by) b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for vectors of weights");
    if (by) {
        dtype_row_to_f32(norm.dtype, norm.data, norm.cols, by);
        for (int64_t i = 0; i < norm.cols; i++) by[i] /= (float)norm.cols;
        router = create_floats(b, WEIGHT_ALTUP_ROUTER, layer, by);
    }
    free(by);
    return router;
}

/* What the token adds to a layer joins the streams where the next begins. */
static void create_altup_layer(struct builder *b, int32_t i)
{
    struct model *m = b->m;
    struct layer *layer = &m->layers[i];
    struct norm_args *next = i + 1 < m->config.num_layers ? &layer[1].attention_norm : &m->output_norm;
    if (!m->config.family->has_altup) return;
    layer->altup.router = create_altup_router(b, i);
    layer->altup.predict = create_floats(b, WEIGHT_ALTUP_PREDICT, i, NULL);
    layer->altup.correct = create_floats(b, WEIGHT_ALTUP_CORRECT, i, NULL);
    layer->altup.out_scale = create_vector(b, WEIGHT_ALTUP_SCALE, i, 0, 1);
    if (i + 1 < m->config.num_layers)
        layer[1].altup.delta_weight = next->delta_weight;
    else
        m->altup_norm.delta_weight = next->delta_weight;
    next->delta_weight = NULL;
    layer->laurel = create_product(b, i, WEIGHT_LAUREL, WEIGHT_LAUREL_NARROW, m->config.hidden_size,
                                   m->config.laurel_rank);
    layer->laurel_norm.delta_weight = create_norm(b, WEIGHT_LAUREL_NORM, i, 1);
    layer->mlp_norm.sum_scale = (float)M_SQRT1_2;
}

static struct altup_streams create_streams(struct builder *b, int64_t rows)
{
    const int64_t stride = rows * b->m->config.hidden_size;
    return (struct altup_streams){
        alloc(b, (uint64_t)stride * ALTUP_STREAMS, (uint64_t)b->m->device->res_bytes, "residual streams"),
        stride};
}

static void create_altup(struct builder *b)
{
    struct model *m = b->m;
    const int32_t h = m->config.hidden_size;
    if (!m->config.family->has_altup) return;
    if (!m->device->ops->altup_predict && !b->status)
        b->status = error_set(b->err, STATUS_UNSUPPORTED, "the device %s has no several residual streams",
                              m->device->name);
    for (int i = 0; i < ALTUP_STREAMS - 1; i++) {
        const enum weight_role in = (enum weight_role)(WEIGHT_ALTUP_IN_1 + i),
                               out = (enum weight_role)(WEIGHT_ALTUP_OUT_1 + i);
        m->altup_in[i] = create_stacked(b, 0, &in, 1, h, h);
        m->altup_out[i] = create_stacked(b, 0, &out, 1, h, h);
    }
    m->streams = create_streams(b, b->limits->num_tokens);
    m->logit_streams = create_streams(b, min_of(b->limits->num_logits, b->limits->num_tokens));
    m->altup_others =
        alloc_act(b, (ALTUP_STREAMS - 1) * (int64_t)b->limits->num_tokens, h, "residual streams");
}

static void create_layer(struct builder *b, int32_t i)
{
    struct model *m = b->m;
    struct layer *layer = &m->layers[i];
    create_norms(b, i);
    create_sub_norms(b, i);
    create_layer_input(b, i);
    create_altup_layer(b, i);
    if (bit_set_has(m->config.stateful_layers, (size_t)i)) create_state_layer(b, i);
    if (model_config_has_attention(&m->config, i)) create_attention_layer(b, i);
    if (bit_set_has(m->config.replaced_layers, (size_t)i)) layer->o = create_replacement(b, i);
    if (bit_set_has(m->config.sparse_layers, (size_t)i)) {
        layer->moe = create_moe(b, i);
        if (!m->config.family->mlp_beside_experts) return;
        create_norms_beside(b, i);
    }
    if (bit_set_has(m->config.layers_without_mlp, (size_t)i)) return;
    layer->gate_up = may_be(m, WEIGHT_GATE) ? create_gate_up(b, i) : create_up(b, i);
    layer->down = create_down(b, i);
}

static void create_embedding_and_lm_head(struct builder *b)
{
    struct model *m = b->m;
    bool tied = m->config.tie_word_embeddings;
    struct linear_desc desc = {.kind = LINEAR_PLAIN, .wide_output = tied, .also_embedding = true};
    if (tied) desc.softcap = m->config.logit_softcap;
    if (tied) desc.biases[0] = find_weight(b, WEIGHT_LM_HEAD_BIAS, 0);
    add_part(b, &desc, WEIGHT_TOKEN_EMBEDDING, 0);
    m->embedding = m->lm_head = create_linear(b, &desc, m->config.vocab_size, m->config.hidden_size);
    if (tied) return;
    desc = (struct linear_desc){.kind = LINEAR_PLAIN,
                                .split = SPLIT_BY_ROWS,
                                .wide_output = true,
                                .softcap = m->config.logit_softcap};
    add_part(b, &desc, WEIGHT_LM_HEAD, 0);
    if (m->config.has_unit_head && !b->status)
        b->status = unpacked_make_unit_rows(&b->unpacked, &desc.parts[0], b->err);
    desc.biases[0] = find_weight(b, WEIGHT_LM_HEAD_BIAS, 0);
    m->lm_head = create_linear(b, &desc, m->config.vocab_size, m->config.hidden_size);
}

/* Learned ones, if it has them, each with what a token's type adds, if it adds anything: rows of type 0, and where there is another
 * behind them those of 1. */
static const float *create_positions(struct builder *b)
{
    const int64_t h = b->m->config.hidden_size;
    const int32_t first = b->m->config.first_position_row;
    const struct weight_view rows = find_weight(b, WEIGHT_POSITION_EMBEDDING, 0),
                             types = find_weight(b, WEIGHT_TYPE_EMBEDDING, 0);
    if (!b->status && (rows.scheme != WEIGHT_PLAIN || types.scheme != WEIGHT_PLAIN))
        b->status = error_set(b->err, STATUS_UNSUPPORTED, "quantised positions are not supported");
    if (b->status) return NULL;
    const int32_t num_types = b->m->config.has_second_type ? 2 : 1,
                  num = num_types * b->limits->max_model_len;
    float *table = alloc(b, (uint64_t)num, (uint64_t)h * sizeof *table, "positions");
    float *row = calloc(2 * (size_t)h, sizeof *row);
    if (!row && !b->status) b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for positions");
    for (int32_t i = 0; row && i < num && !b->status; i++) {
        const int32_t type = i / b->limits->max_model_len, position = i % b->limits->max_model_len;
        if (rows.data) weight_view_row_to_f32(&rows, position + first, row);
        if (types.data) weight_view_row_to_f32(&types, type, row + h);
        for (int64_t j = 0; j < h; j++) row[j] = rows.data ? row[j] + row[h + j] : row[h + j];
        upload(b, table + i * h, row, (size_t)h * sizeof *row, "positions");
    }
    free(row);
    return table;
}

/* ---- rotation ---- */

enum { ROPE_CHUNK_POSITIONS = 16384 }; /* computed and copied at a time */

static void fill_rope_table(struct builder *b, const struct rope_config *rope, const float *frequencies,
                            float *table)
{
    size_t row_bytes = (size_t)rope->rotary_dim * sizeof *table;
    float *host = malloc(ROPE_CHUNK_POSITIONS * row_bytes);
    if (!host) b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for the rotary table");
    for (int32_t first = 0; first < b->limits->max_model_len && !b->status; first += ROPE_CHUNK_POSITIONS) {
        int32_t n = min_of((int32_t)ROPE_CHUNK_POSITIONS, b->limits->max_model_len - first);
        rope_table_fill(rope, frequencies, rope_table_scale(rope, b->allowed_len), first, n, host);
        upload(b, (char *)table + (size_t)first * row_bytes, host, (size_t)n * row_bytes, "the rotary table");
    }
    free(host);
}

static const float *create_rope_table(struct builder *b, const struct rope_config *rope)
{
    /* where kinds of layers rotate other numbers of values, divisors are of those that see all */
    const bool has_divisors = rope == &b->m->config.rope || !model_config_has_window_heads(&b->m->config);
    const struct weight_view none = {0}, view = has_divisors ? find_weight(b, WEIGHT_ROPE_DIVISORS, 0) : none;
    size_t n = (size_t)rope->rotary_dim / 2;
    assert_always(!view.data || (view.rows == 1 && view.cols == (int64_t)n)); /* written to divisors */
    float *table = alloc(b, (uint64_t)b->limits->max_model_len, (uint64_t)rope->rotary_dim * sizeof *table,
                         "the rotary table");
    float *frequencies = calloc(2 * n, sizeof *frequencies), *divisors = frequencies + n;
    if (!frequencies && !b->status)
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for the rotary table");
    if (!b->status) {
        if (view.data) dtype_row_to_f32(view.dtype, view.data, view.cols, divisors);
        rope_table_frequencies(rope, b->allowed_len, view.data ? divisors : NULL, frequencies);
        fill_rope_table(b, rope, frequencies, table);
    }
    free(frequencies);
    return table;
}

/* Layers that rotate alike share a table. */
static const float *rope_table_of_layer(struct builder *b, int32_t i)
{
    const struct rope_config *rope = model_config_layer(&b->m->config, i).rope;
    if (!rope) return NULL;
    for (int32_t j = 0; j < i; j++)
        if (model_config_layer(&b->m->config, j).rope == rope) return b->m->layers[j].rope.cos_sin;
    return create_rope_table(b, rope);
}

/* ---- activations ---- */

static void alloc_if_any(struct builder *b, void **out, int64_t width, const char *what)
{
    if (width > 0) *out = alloc_act(b, b->limits->num_tokens, width, what);
}

/* What states, and attention with gates or latents, are made of, and what states beside attention give. */
static void create_inputs(struct builder *b)
{
    struct model *m = b->m;
    const struct model_config *c = &m->config;
    const bool has_states = model_config_has_states(c), is_gated = c->family->gated_attention,
               has_gates = is_gated || may_be(m, WEIGHT_ATTENTION_GATE),
               is_narrow = may_be(m, WEIGHT_DELTA_Z_NARROW) || may_be(m, WEIGHT_DELTA_F_NARROW);
    const int64_t of_states = has_states ? model_config_projected_width(c) : 0,
                  of_attention = is_gated             ? widest(c, qkv_width)
                                 : c->latent.rank > 0 ? widest(c, q_width)
                                                      : 0;
    alloc_if_any(b, &m->projected, max_of(of_states, of_attention), "projections");
    alloc_if_any(b, &m->gates, max_of(has_gates ? widest(c, gates_width) : 0, model_config_num_rates(c)),
                 "gates");
    alloc_if_any(b, &m->z, c->family->delta_z_is_apart ? model_config_delta_width(c) : 0, "gates of states");
    alloc_if_any(b, &m->decays, may_be(m, WEIGHT_DELTA_F) ? model_config_num_decays(c) : 0, "decays");
    alloc_if_any(b, &m->narrow, max_of(is_narrow ? c->delta_v_dim : 0, c->laurel_rank), "narrow products");
    alloc_if_any(b, &m->gate_and_up, c->family->has_altup ? 2 * (int64_t)c->intermediate_size : 0,
                 "gates that are cut");
    alloc_if_any(b, &m->state_mixed, c->family->states_beside_attention ? model_config_delta_width(c) : 0,
                 "what states give");
}

/* Room for the norms of what o and down get. */
static void create_sub_normed(struct builder *b, int64_t width)
{
    const struct device *d = b->m->device;
    if (!b->status && d->norm_values_max > 0 && width > d->norm_values_max)
        b->status =
            error_set(b->err, STATUS_UNSUPPORTED,
                      "the device %s has norms of at most %d values; attention or an MLP gives %" PRId64,
                      d->name, d->norm_values_max, width);
    b->m->sub_normed = alloc(b, (uint64_t)b->limits->num_tokens, (uint64_t)width * (uint64_t)d->res_bytes,
                             "norms inside attention and MLP");
}

static void create_activations(struct builder *b)
{
    struct model *m = b->m;
    const struct model_config *c = &m->config;
    int64_t tokens = b->limits->num_tokens;
    m->residual = alloc(b, (uint64_t)tokens + 1, (uint64_t)c->hidden_size * (uint64_t)m->device->res_bytes,
                        "the residual stream");
    m->normed = alloc_act(b, tokens, c->hidden_size, "normed activations");
    int64_t mixed_width =
        max_of(widest(c, q_width), model_config_delta_width(c)); /* of latent attention it is less */
    mixed_width = max_of(mixed_width, widest(c, model_config_mixed_width));
    m->qkv = alloc_act(b, tokens, max_of(widest(c, heads_width), mixed_width), "q, k and v");
    m->attended = alloc_act(b, tokens, mixed_width, "attention's output");
    create_inputs(b);
    if ((c->family->mlp_beside_experts || c->is_parallel) && model_config_has_sparse_layers(c))
        m->seen = alloc_act(b, tokens, c->hidden_size, "what the router gets");
    if (c->family->mlp_beside_experts && model_config_has_sparse_layers(c)) {
        m->both = alloc(b, (uint64_t)tokens, (uint64_t)c->hidden_size * (uint64_t)m->device->res_bytes,
                        "sums of MLP and experts");
    }
    if (may_be(m, WEIGHT_ATTENTION_SUB_NORM) || may_be(m, WEIGHT_MLP_SUB_NORM))
        create_sub_normed(b, max_of(mixed_width, (int64_t)model_config_mlp_width(c)));
    m->delta = alloc_act(b, tokens, c->hidden_size, "linear outputs");
    m->mlp = alloc_act(b, tokens, model_config_mlp_width(c), "MLP activations");
    m->logit_residual = alloc(b, (uint64_t)b->limits->num_logits + 1,
                              (uint64_t)c->hidden_size * (uint64_t)m->device->res_bytes, "logit rows");
    m->logit_rows = alloc_act(b, b->limits->num_logits, c->hidden_size, "logit rows");
}

/* ---- the whole ---- */

/* Without weights yet. */
static struct norm_args norm_args(const struct model_config *c)
{
    return (struct norm_args){.delta_scale = c->residual_scale,
                              .eps = c->rms_norm_eps,
                              .delta_eps = c->post_norm_eps,
                              .hidden_size = c->hidden_size,
                              .is_layer_norm = c->family->has_embedding_norm || c->family->has_layer_norm,
                              .replaces = c->family->norms_sums};
}

/* Of a row that becomes its norm. */
static struct norm_args sub_norm_args(const struct model_config *c, int32_t width)
{
    return (struct norm_args){.delta_scale = 1, .eps = c->rms_norm_eps, .hidden_size = width, .begins = true};
}

/* Where no sequence is so long that queries would be multiplied by anything but 1, there is none. */
static int32_t temperature_floor(const struct layer_config *layer, int32_t max_model_len)
{
    return layer->temperature_floor > max_model_len ? 0 : layer->temperature_floor;
}

static int32_t distance_reach(const struct model_config *c)
{
    return weight_may_be(c->family->weight_changes, WEIGHT_DISTANCE_BIAS) ? DISTANCE_REACH : 0;
}

static void describe_layer(const struct model_config *c, const struct kv_layout *layout,
                           int32_t max_model_len, int32_t i, struct layer *layer)
{
    const struct kv_place place = kv_layout_place(layout, c, i);
    const struct layer_config config = model_config_layer(c, i);
    assert_debug(config.sliding_window >= 0 && config.attention_scale > 0);
    assert_debug(!config.rope || config.rope->rotary_dim <= config.head_dim);
    layer->kv_layer = place.layer;
    layer->mixed_width = (int32_t)model_config_mixed_width(c, i);
    layer->attention_norm = layer->mlp_norm = layer->inner_norm = layer->sum = layer->input_norm =
        layer->laurel_norm = norm_args(c);
    layer->o_norm = sub_norm_args(c, layer->mixed_width);
    layer->down_norm = sub_norm_args(c, config.intermediate_size);
    layer->altup = (struct altup_args){.hidden_size = c->hidden_size, .eps = c->rms_norm_eps};
    layer->intermediate_size = config.intermediate_size;
    layer->has_sparse_gate = config.has_sparse_gate;
    layer->gate_cut = c->gate_cut;
    layer->attention_norm.delta_scale *= c->scales.mlp;
    layer->mlp_norm.delta_scale *= c->scales.state;
    layer->sum.delta_scale *= c->scales.attention;
    layer->seen_norm = layer->experts_norm = layer->mlp_sum = layer->experts_sum = norm_args(c);
    layer->attention =
        (struct attention_args){.num_heads = config.num_heads,
                                .num_kv_heads = config.num_kv_heads,
                                .head_dim = config.head_dim,
                                .kv_group = place.group,
                                .q_alone = config.shares_kv,
                                .v_dim = config.v_dim,
                                .scale = config.attention_scale,
                                .sliding_window = config.is_chunk ? 0 : config.sliding_window,
                                .window_of_both_sides = c->is_encoder,
                                .chunk = config.is_chunk ? config.sliding_window : 0,
                                .temperature_scale = c->temperature_scale,
                                .temperature_floor = temperature_floor(&config, max_model_len),
                                .temperature_offset = c->family->scales_queries ? 0 : 1,
                                .softcap = c->attention_softcap,
                                .alibi_most = c->alibi_most,
                                .alibi_scale = c->alibi_scale,
                                .distance_reach = distance_reach(c),
                                .is_gated = c->family->gated_attention ||
                                            weight_may_be(c->family->weight_changes, WEIGHT_ATTENTION_GATE),
                                .gates_by_head = c->gates_by_head,
                                .gates_are_softplus = c->family->gates_are_softplus};
    if (c->latent.rank > 0) {
        layer->attention.latent_k_dim = c->latent.plain_dim + c->latent.rotary_dim;
        layer->attention.latent_v_dim = c->latent.value_dim;
    }
    layer->rope = (struct rope_args){.num_heads = config.num_heads,
                                     .num_kv_heads = config.num_kv_heads,
                                     .head_dim = config.head_dim,
                                     .kv_group = place.group,
                                     .q_alone = config.shares_kv,
                                     .v_dim = config.v_dim,
                                     .v_scale = c->v_scale,
                                     .rotary_dim = config.rope ? config.rope->rotary_dim : 0,
                                     .style = c->rope.style,
                                     .norm_all_heads = c->family->qk_norm_all_heads,
                                     .norm_follows = c->family->qk_norm_follows,
                                     .clip = c->qkv_clip,
                                     .norm_by_head = c->qk_norm && c->family->has_layer_norm,
                                     .norm_eps = c->rms_norm_eps};
}

/* Each device of a group gets whole heads of its own, and what goes with them. */
static bool can_share_heads(const struct model *m, int num)
{
    const struct model_config *c = &m->config;
    const bool are_parts =
        model_config_has_layer_heads(c); /* a layer's heads in a block, of those of the widest one */
    if (c->latent.rank > 0 || c->alibi_most > 0 || may_be(m, WEIGHT_DISTANCE_BIAS)) return false;
    for (int32_t i = 0; i < c->num_layers; i++) {
        const struct rope_args *r = &m->layers[i].rope;
        const bool fits = r->num_heads % num == 0 &&
                          (r->num_kv_heads % num == 0 || (num % r->num_kv_heads == 0 && !are_parts));
        if (!fits || r->norm_all_heads || r->norm_by_head) return false;
    }
    return true;
}

static void share_heads(struct model *m)
{
    const int num = m->device->num_members;
    if (num < 2) return;
    if (!can_share_heads(m, num))
        log_info("attention is not shared out among %d devices: each computes all of its heads, and keeps K "
                 "and V of all",
                 num);
    else
        for (int32_t i = 0; i < m->config.num_layers; i++) m->layers[i].attention.by_heads = true;
}

static void prepare_device(struct builder *b)
{
    struct device *d = b->m->device;
    const struct model_config *c = &b->m->config;
    struct attention_args *attention = calloc((size_t)c->num_layers, sizeof *attention);
    if (!attention) {
        b->status = error_set(b->err, STATUS_NO_MEMORY, "no memory for a model of %d layers", c->num_layers);
        return;
    }
    share_heads(b->m);
    for (int32_t i = 0; i < c->num_layers; i++) attention[i] = b->m->layers[i].attention;
    int32_t width = max_of(model_config_mlp_width(c), (int32_t)model_config_delta_width(c));
    width = max_of(width, max_of(c->latent.q_rank, c->latent.plain_dim));
    width = max_of(width, c->expert_hidden_size);
    b->status =
        d->ops->prepare(d, b->limits, c->vocab_size, c->hidden_size, width, attention, c->num_layers, b->err);
    free(attention);
}

/* Of decoders: what the embedding goes on as. */
static void create_embedding_norm(struct builder *b)
{
    struct model *m = b->m;
    const struct family *family = m->config.family;
    const bool has_weight = may_be(m, WEIGHT_EMBEDDING_NORM) && !family->has_embedding_norm;
    if (!has_weight && !family->norms_embeddings) return;
    m->embedding_norm = norm_args(&m->config);
    m->embedding_norm.replaces = true;
    if (has_weight)
        create_layer_norm(b, WEIGHT_EMBEDDING_NORM, 0, 1, &m->embedding_norm);
    else
        m->embedding_norm.weight = create_ones(b);
}

static void create_weights(struct builder *b)
{
    struct model *m = b->m;
    model_files_prefetch(b->files, 0);
    create_embedding_and_lm_head(b);
    create_layer_inputs(b);
    create_altup(b);
    create_tasks(b);
    unpacked_clear(&b->unpacked);
    for (int32_t i = 0; i < m->config.num_layers; i++) m->layers[i].rope.cos_sin = rope_table_of_layer(b, i);
    for (int32_t i = 0; i < m->config.num_layers && !b->status; i++) {
        model_files_prefetch(b->files, i + 1);
        create_layer(b, i);
        create_loras(b, i);
        unpacked_clear(&b->unpacked);
        if (b->progress && !b->status)
            b->progress(b->progress_context, (double)(i + 1) / m->config.num_layers);
    }
    create_embedding_norm(b);
    /* what logits are multiplied by is in their norm */
    if (may_be(m, WEIGHT_POSITION_EMBEDDING) || may_be(m, WEIGHT_TYPE_EMBEDDING))
        m->positions = create_positions(b);
    if (may_be(m, WEIGHT_OUTPUT_NORM) || m->config.family->norms_have_no_weight)
        create_layer_norm(b, WEIGHT_OUTPUT_NORM, 0, m->config.logit_scale, &m->output_norm);
    if (m->config.family->scores_pairs && !b->status)
        b->status = score_head_create(b->files, &m->score_head, b->err);
    if (m->config.dense.num_layers > 0 && !b->status)
        b->status = dense_layers_create(b->files, &m->dense, b->err);
    if (!b->status) b->status = m->device->ops->weights_done(m->device, b->err);
    if (!b->status && b->all_copied) model_files_drop_weights(b->files);
}

int model_create(struct device *device, const struct model_files *files, const struct step_limits *limits,
                 int32_t allowed_len, void (*progress)(void *context, double fraction), void *context,
                 struct model **out, struct error *err)
{
    const struct model_config *c = model_files_config(files);
    struct model *m = calloc(1, sizeof *m);
    if (m) m->layers = calloc((size_t)c->num_layers, sizeof *m->layers);
    assert_always(c->num_layers > 0 && c->num_heads % c->num_kv_heads == 0); /* model_config_validate */
    if (!m || !m->layers) {
        free(m);
        return error_set(err, STATUS_NO_MEMORY, "no memory for a model of %d layers", c->num_layers);
    }
    m->device = device;
    m->config = *c;
    /* where there are several groups, no window is as long as the longest sequence */
    m->kv_layout = limits->num_kv_groups > 1 ? kv_layout_of(c, INT32_MAX) : kv_layout_single(c);
    assert_always(kv_layout_num_groups(&m->kv_layout) == max_of(limits->num_kv_groups, 1));
    m->embedding_scale = c->embedding_scale;
    m->output_norm = m->altup_norm = norm_args(c);
    m->output_norm.delta_scale *= c->scales.mlp;
    for (int32_t i = 0; i < c->num_layers; i++)
        describe_layer(&m->config, &m->kv_layout, limits->max_model_len, i, &m->layers[i]);
    struct builder b = {.m = m,
                        .files = files,
                        .limits = limits,
                        .allowed_len = allowed_len,
                        .progress = progress,
                        .progress_context = context,
                        .err = err,
                        .all_copied = true};
    prepare_device(&b);
    create_activations(&b);
    if (!b.status) create_weights(&b);
    unpacked_clear(&b.unpacked);
    if (b.status)
        model_destroy(m);
    else
        *out = m;
    return b.status;
}

/* Device memory goes with the device. */
void model_destroy(struct model *m)
{
    if (!m) return;
    score_head_destroy(m->score_head);
    dense_layers_destroy(m->dense);
    free(m->layers);
    free(m);
}

const struct model_config *model_config(const struct model *m)
{
    return &m->config;
}

int32_t model_num_kv_groups(const struct model *m)
{
    return kv_layout_num_groups(&m->kv_layout);
}

struct device *model_device(struct model *m)
{
    return m->device;
}

/* ---- K/V pool ---- */

static struct kv_shape kv_shape(const struct model *m, int32_t num_blocks, enum dtype kv_dtype)
{
    const struct model_config *c = &m->config;
    const struct kv_other_layers none = {0},
                                 windowed = {.num_layers = m->kv_layout.windowed_per_block,
                                             .num_kv_heads = c->window_heads.num_kv_heads,
                                             .head_dim = c->window_heads.head_dim},
                                 parts = {.num_layers = m->kv_layout.layers_per_block,
                                          .num_kv_heads = c->num_kv_heads,
                                          .head_dim = c->head_dim};
    return (struct kv_shape){.num_layers = m->kv_layout.layers_per_block,
                             .num_blocks = num_blocks,
                             .num_kv_heads = m->config.num_kv_heads,
                             .head_dim = m->config.head_dim,
                             .dtype = kv_dtype,
                             .others = model_config_has_window_heads(c)  ? windowed
                                       : model_config_has_layer_heads(c) ? parts
                                                                         : none};
}

int model_kv_pool_create(struct model *m, int32_t num_blocks, int32_t num_host_blocks, enum dtype kv_dtype,
                         struct error *err)
{
    struct kv_shape shape = kv_shape(m, num_blocks, kv_dtype);
    shape.num_host_blocks = num_host_blocks;
    assert_always(!m->kv_pool);
    return m->device->ops->kv_pool_create(m->device, &shape, &m->kv_pool, err);
}

static uint64_t kv_pool_bytes(const struct model *m, int32_t num_blocks, enum dtype kv_dtype)
{
    struct kv_shape shape = kv_shape(m, num_blocks, kv_dtype);
    return m->device->ops->kv_pool_bytes(m->device, &shape);
}

uint64_t model_kv_block_bytes(const struct model *m, enum dtype kv_dtype)
{
    return kv_pool_bytes(m, 1, kv_dtype) - model_kv_beside_bytes(m, kv_dtype);
}

uint64_t model_kv_beside_bytes(const struct model *m, enum dtype kv_dtype)
{
    return kv_pool_bytes(m, 0, kv_dtype);
}

int model_kv_save(struct model *m, const int32_t *block_ids, const int32_t *host_ids, int32_t num_blocks)
{
    if (num_blocks == 0) return STATUS_OK;
    return m->device->ops->kv_blocks_save(m->device, m->kv_pool, block_ids, host_ids, num_blocks);
}

int model_kv_load(struct model *m, const int32_t *block_ids, const int32_t *host_ids, int32_t num_blocks)
{
    if (num_blocks == 0) return STATUS_OK;
    return m->device->ops->kv_blocks_load(m->device, m->kv_pool, block_ids, host_ids, num_blocks);
}

/* ---- states ---- */

int model_states_copy(struct model *m, const struct state_copy *copies, int32_t num_copies)
{
    int status = STATUS_OK;
    for (int32_t i = 0; i < m->config.num_layers && num_copies > 0 && !status; i++)
        if (m->layers[i].delta_net)
            status = m->device->ops->states_copy(m->device, m->layers[i].delta_net, copies, num_copies);
    return status;
}

/* ---- steps ---- */

void model_step_begin(struct model *m, const struct step *step)
{
    struct device *d = m->device;
    assert_always(m->kv_pool && !m->batch);
    assert_debug(step->num_tokens > 0 && step->num_logits <= step->num_tokens);
    struct batch *b = m->batch = d->ops->step_begin(d, step);
    m->step_has_loras = step->loras != NULL;
    if (d->ops->replay && d->ops->replay(d, b)) return;
    if (d->ops->record_begin) d->ops->record_begin(d, b);
    forward(m, b, step);
    if (d->ops->record_end) d->ops->record_end(d, b);
}

void model_step_sample(struct model *m)
{
    assert_always(m->batch);
    m->device->ops->sample(m->device, m->batch);
    m->batch = NULL;
}

int model_step_end(struct model *m, struct sample_result *results, struct error *err)
{
    return m->device->ops->step_end(m->device, results, err);
}

bool model_step_has_ended(struct model *m)
{
    return m->device->ops->step_has_ended(m->device);
}

const float *model_row(struct model *m, int32_t batch_slot)
{
    return m->device->ops->row(m->device, batch_slot);
}

const float *model_embedding(struct model *m, int32_t batch_slot)
{
    const float *row = model_row(m, batch_slot);
    return m->dense ? dense_layers_apply(m->dense, row) : row;
}

float model_score(struct model *m, int32_t batch_slot)
{
    return score_head_apply(m->score_head, model_row(m, batch_slot));
}
