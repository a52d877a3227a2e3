/* tiny_model.h - writes a Hugging Face directory of a very small model whose weights are functions of their
 * names' order, so that make_tiny_goldens.py can build the same model in transformers. */
#ifndef TESTS_UNIT_MODEL_TINY_MODEL_H
#define TESTS_UNIT_MODEL_TINY_MODEL_H

#include <math.h>

#include "model_bytes.h"

enum {
    TINY_HIDDEN = 64,
    TINY_INTERMEDIATE = 96,
    TINY_LAYERS = 2,
    TINY_HEADS = 4,
    TINY_KV_HEADS = 2,
    TINY_VOCAB = 96,
};

struct tiny_model {
    const char *config; /* the whole config.json */
    int head_dim;
    bool qkv_bias, o_bias, qk_norm, tied;
    bool has_copy;      /* of the embedding, as its head */
    int padding;        /* spaces after the header: an odd number leaves the weights unaligned */
    const char *prefix; /* "model." */
};

struct tiny_writer {
    const struct tiny_model *model;
    struct safetensors_builder tensors;
    uint64_t num_tensors; /* the next one's seed */
};

static inline void tiny_put_matrix(struct tiny_writer *w, const char *name, uint64_t rows, uint64_t cols)
{
    safetensors_put(&w->tensors, name, rows, cols, ++w->num_tensors, 0, (float)(2 / sqrt((double)cols)));
}

static inline void tiny_put_vector(struct tiny_writer *w, const char *name, uint64_t cols, float center)
{
    safetensors_put(&w->tensors, name, 0, cols, ++w->num_tensors, center, 0.5f);
}

static inline void tiny_put_layer(struct tiny_writer *w, int layer)
{
    const struct tiny_model *m = w->model;
    const uint64_t q = (uint64_t)TINY_HEADS * (uint64_t)m->head_dim,
                   kv = (uint64_t)TINY_KV_HEADS * (uint64_t)m->head_dim;
    char name[128];
#define NAME(text) (snprintf(name, sizeof name, "%slayers.%d." text, m->prefix, layer), name)
    tiny_put_vector(w, NAME("input_layernorm.weight"), TINY_HIDDEN, 1);
    tiny_put_matrix(w, NAME("self_attn.q_proj.weight"), q, TINY_HIDDEN);
    tiny_put_matrix(w, NAME("self_attn.k_proj.weight"), kv, TINY_HIDDEN);
    tiny_put_matrix(w, NAME("self_attn.v_proj.weight"), kv, TINY_HIDDEN);
    tiny_put_matrix(w, NAME("self_attn.o_proj.weight"), TINY_HIDDEN, q);
    if (m->qkv_bias) {
        tiny_put_vector(w, NAME("self_attn.q_proj.bias"), q, 0);
        tiny_put_vector(w, NAME("self_attn.k_proj.bias"), kv, 0);
        tiny_put_vector(w, NAME("self_attn.v_proj.bias"), kv, 0);
    }
    if (m->o_bias) tiny_put_vector(w, NAME("self_attn.o_proj.bias"), TINY_HIDDEN, 0);
    if (m->qk_norm) {
        tiny_put_vector(w, NAME("self_attn.q_norm.weight"), (uint64_t)m->head_dim, 1);
        tiny_put_vector(w, NAME("self_attn.k_norm.weight"), (uint64_t)m->head_dim, 1);
    }
    tiny_put_vector(w, NAME("post_attention_layernorm.weight"), TINY_HIDDEN, 1);
    tiny_put_matrix(w, NAME("mlp.gate_proj.weight"), TINY_INTERMEDIATE, TINY_HIDDEN);
    tiny_put_matrix(w, NAME("mlp.up_proj.weight"), TINY_INTERMEDIATE, TINY_HIDDEN);
    tiny_put_matrix(w, NAME("mlp.down_proj.weight"), TINY_HIDDEN, TINY_INTERMEDIATE);
#undef NAME
}

static inline void tiny_model_write(const struct tiny_model *m, const char *directory)
{
    struct tiny_writer w = {.model = m};
    struct buffer file;
    char name[64];
    safetensors_builder_init(&w.tensors);
    snprintf(name, sizeof name, "%sembed_tokens.weight", m->prefix);
    tiny_put_matrix(&w, name, TINY_VOCAB, TINY_HIDDEN);
    for (int layer = 0; layer < TINY_LAYERS; layer++) tiny_put_layer(&w, layer);
    snprintf(name, sizeof name, "%snorm.weight", m->prefix);
    tiny_put_vector(&w, name, TINY_HIDDEN, 1);
    if (m->has_copy) w.num_tensors = 0;
    if (!m->tied) tiny_put_matrix(&w, "lm_head.weight", TINY_VOCAB, TINY_HIDDEN);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    safetensors_finish(&w.tensors, m->padding, &file);
    write_file(directory, "model.safetensors", file.data, file.num_bytes);
    write_text(directory, "config.json", m->config);
    buffer_deinit(&file);
    safetensors_builder_deinit(&w.tensors);
}

#endif
