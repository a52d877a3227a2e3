#include "cli/model_cost.h"

#include <math.h>
#include <string.h>

#include "base/bit_set.h"
#include "base/check.h"

const char *const model_operation_names[NUM_OPERATIONS] = {"q, k, v", "attention output", "gate, up",
                                                           "down",    "router",           "LM head"};

enum { KV_ELEMENT_BYTES = 2 };

/* ---- sums over the weights ---- */

static double size_of(struct weight_view v)
{
    return v.data ? (double)weight_view_num_rows(&v) * (double)v.cols : 0;
}

static double bytes_of(struct weight_view v)
{
    return v.data ? (double)weight_view_bytes(&v) : 0;
}

static void add_layer(struct operation_cost costs[NUM_OPERATIONS], const struct model_files *f, int32_t layer)
{
    static const struct {
        enum weight_role role;
        enum model_operation operation;
    } shared[] = {{WEIGHT_Q, OPERATION_QKV},
                  {WEIGHT_K, OPERATION_QKV},
                  {WEIGHT_V, OPERATION_QKV},
                  {WEIGHT_ATTENTION_GATE, OPERATION_QKV},
                  {WEIGHT_O, OPERATION_ATTENTION_OUTPUT},
                  {WEIGHT_REPLACEMENT, OPERATION_ATTENTION_OUTPUT},
                  {WEIGHT_LATENT_Q_A, OPERATION_QKV},
                  {WEIGHT_LATENT_Q_B, OPERATION_QKV},
                  {WEIGHT_LATENT_KV_A, OPERATION_QKV},
                  {WEIGHT_LATENT_KV_B, OPERATION_QKV}, /* half of it is behind attention */
                  {WEIGHT_LATENT_K_B, OPERATION_QKV},
                  {WEIGHT_LATENT_V_B, OPERATION_ATTENTION_OUTPUT},
                  {WEIGHT_DELTA_QKV, OPERATION_QKV},
                  {WEIGHT_DELTA_Z, OPERATION_QKV},
                  {WEIGHT_DELTA_QKVZ, OPERATION_QKV},
                  {WEIGHT_DELTA_B, OPERATION_QKV},
                  {WEIGHT_DELTA_A, OPERATION_QKV},
                  {WEIGHT_DELTA_BA, OPERATION_QKV},
                  {WEIGHT_DELTA_OUT, OPERATION_ATTENTION_OUTPUT},
                  {WEIGHT_GATE, OPERATION_GATE_UP},
                  {WEIGHT_UP, OPERATION_GATE_UP},
                  {WEIGHT_DOWN, OPERATION_DOWN},
                  {WEIGHT_LAUREL_NARROW, OPERATION_QKV},
                  {WEIGHT_LAUREL, OPERATION_ATTENTION_OUTPUT},
                  {WEIGHT_LAYER_INPUT_GATE, OPERATION_GATE_UP},
                  {WEIGHT_LAYER_INPUT_OUT, OPERATION_DOWN},
                  {WEIGHT_ROUTER, OPERATION_ROUTER},
                  {WEIGHT_SHARED_GATE, OPERATION_GATE_UP},
                  {WEIGHT_SHARED_UP, OPERATION_GATE_UP},
                  {WEIGHT_SHARED_DOWN, OPERATION_DOWN},
                  {WEIGHT_TO_EXPERTS, OPERATION_GATE_UP},
                  {WEIGHT_FROM_EXPERTS, OPERATION_DOWN}},
      expert[] = {{WEIGHT_EXPERT_GATE, OPERATION_GATE_UP},
                  {WEIGHT_EXPERT_UP, OPERATION_GATE_UP},
                  {WEIGHT_EXPERT_DOWN, OPERATION_DOWN}};
    for (size_t i = 0; i < array_length(shared); i++) {
        struct weight_view v = model_files_weight(f, shared[i].role, layer);
        costs[shared[i].operation].parameters += size_of(v);
        costs[shared[i].operation].bytes += bytes_of(v);
    }
    for (size_t i = 0; i < array_length(expert) && model_files_config(f)->num_experts > 0; i++) {
        struct weight_view v = model_files_expert(f, expert[i].role, layer, 0);
        costs[expert[i].operation].expert_parameters += size_of(v);
        costs[expert[i].operation].expert_bytes += bytes_of(v);
    }
}

static void add_costs(struct operation_cost *to, const struct operation_cost *more)
{
    for (int o = 0; o < NUM_OPERATIONS; o++) {
        to[o].parameters += more[o].parameters;
        to[o].bytes += more[o].bytes;
        to[o].expert_parameters += more[o].expert_parameters;
        to[o].expert_bytes += more[o].expert_bytes;
    }
}

/* Layers of the same kinds have weights of the same shapes. */
static bool are_alike(const struct model_config *c, int32_t a, int32_t b)
{
    return model_config_layer(c, a).shares_kv == model_config_layer(c, b).shares_kv &&
           bit_set_has(c->sparse_layers, (size_t)a) == bit_set_has(c->sparse_layers, (size_t)b) &&
           bit_set_has(c->windowed_layers, (size_t)a) == bit_set_has(c->windowed_layers, (size_t)b) &&
           bit_set_has(c->stateful_layers, (size_t)a) == bit_set_has(c->stateful_layers, (size_t)b) &&
           bit_set_has(c->layers_without_mlp, (size_t)a) == bit_set_has(c->layers_without_mlp, (size_t)b) &&
           bit_set_has(c->replaced_layers, (size_t)a) == bit_set_has(c->replaced_layers, (size_t)b) &&
           c->layer_shapes[a].num_kv_heads == c->layer_shapes[b].num_kv_heads &&
           c->layer_shapes[a].intermediate_size == c->layer_shapes[b].intermediate_size;
}

static void sum_layers(struct model_cost *m, const struct model_files *f, bool is_dummy)
{
    struct operation_cost costs[NUM_OPERATIONS] = {0};
    for (int32_t layer = 0; layer < m->config->num_layers; layer++) {
        bool is_known = is_dummy && layer > 0 && are_alike(m->config, layer, layer - 1);
        if (!is_known) {
            memset(costs, 0, sizeof costs);
            add_layer(costs, f, layer);
        }
        add_costs(m->operations, costs);
        if (is_dummy) model_files_drop_weights(f);
    }
}

void model_cost_init(struct model_cost *m, const struct model_files *f, bool is_dummy)
{
    *m = (struct model_cost){.config = model_files_config(f)};
    struct weight_view head = model_files_weight(f, WEIGHT_LM_HEAD, 0);
    m->operations[OPERATION_LM_HEAD] =
        (struct operation_cost){.parameters = size_of(head), .bytes = bytes_of(head)};
    double embedding_bytes =
        m->config->tie_word_embeddings ? 0 : bytes_of(model_files_weight(f, WEIGHT_TOKEN_EMBEDDING, 0));
    sum_layers(m, f, is_dummy);
    m->parameters = m->active_parameters = (double)model_config_num_parameters(m->config);
    m->bytes = is_dummy ? embedding_bytes : (double)model_files_weight_bytes(f);
    for (int o = 0; o < NUM_OPERATIONS; o++) {
        m->active_parameters -= operation_parameters(m, o) - operation_active_parameters(m, o);
        if (is_dummy) m->bytes += operation_bytes(m, o);
    }
}

double operation_active_parameters(const struct model_cost *m, enum model_operation o)
{
    const struct operation_cost *c = &m->operations[o];
    return c->parameters + m->config->num_chosen_experts * c->expert_parameters;
}

double operation_active_bytes(const struct model_cost *m, enum model_operation o)
{
    const struct operation_cost *c = &m->operations[o];
    return c->bytes + m->config->num_chosen_experts * c->expert_bytes;
}

double operation_parameters(const struct model_cost *m, enum model_operation o)
{
    const struct operation_cost *c = &m->operations[o];
    return c->parameters + m->config->num_experts * c->expert_parameters;
}

double operation_bytes(const struct model_cost *m, enum model_operation o)
{
    const struct operation_cost *c = &m->operations[o];
    return c->bytes + m->config->num_experts * c->expert_bytes;
}

/* ---- a step ---- */

static double num_experts_read(const struct model_config *c, double num_tokens)
{
    if (c->num_experts == 0) return 0;
    double e = c->num_experts;
    return e * (1 - pow(1 - c->num_chosen_experts / e, num_tokens));
}

/* A state is multiplied by k (by the delta rule alone), changed, and multiplied by q for each token; a step reads and writes it
 * once. */
static void add_state(const struct model_config *c, int32_t num_new, struct step_work *w)
{
    double values = (double)model_config_delta_width(c) * c->delta_k_dim;
    w->flops += 2 * (c->family->delta_kind == DELTA_RULE ? 3 : 2) * values * num_new;
    w->bytes += 2 * sizeof(float) * values;
}

/* Keys that a sequence's new tokens see in a layer, together; and those of them that are read. */
static void add_attention(const struct model_cost *m, int32_t layer, int32_t num_new, int32_t num_done,
                          struct step_work *w)
{
    const struct model_config *c = m->config;
    struct layer_config l = model_config_layer(c, layer);
    double window = l.sliding_window > 0 ? l.sliding_window : INFINITY, pairs = 0;
    for (int32_t i = 1; i <= num_new; i++) {
        int32_t place = num_done + i - 1;
        pairs += l.is_chunk ? place % l.sliding_window + 1 : fmin(window, place + 1);
    }
    w->flops += 4.0 * l.num_heads * l.head_dim * pairs; /* q k^T and p v */
    w->bytes +=
        2.0 * KV_ELEMENT_BYTES * l.num_kv_heads * l.head_dim * fmin(window + num_new, num_done + num_new);
}

struct step_work model_cost_step(const struct model_cost *m, int32_t num_seqs, int32_t num_new,
                                 int32_t num_done)
{
    struct step_work w = {0, 0};
    double num_tokens = (double)num_seqs * num_new;
    for (int32_t layer = 0; layer < m->config->num_layers; layer++) {
        if (bit_set_has(m->config->stateful_layers, (size_t)layer)) add_state(m->config, num_new, &w);
        if (model_config_has_attention(m->config, layer)) add_attention(m, layer, num_new, num_done, &w);
    }
    w.flops *= num_seqs;
    w.bytes *= num_seqs;
    for (int o = 0; o < NUM_OPERATIONS; o++) {
        double rows = o == OPERATION_LM_HEAD ? num_seqs : num_tokens; /* a prompt's last row alone */
        w.flops += 2 * rows * operation_active_parameters(m, o);
        w.bytes +=
            m->operations[o].bytes + num_experts_read(m->config, num_tokens) * m->operations[o].expert_bytes;
    }
    return w;
}
