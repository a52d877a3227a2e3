/* tiny_gguf.h - the model of tiny_goldens.h's first case (llama, tied, llama3's rotation) as a GGUF file.
 *
 * As llama.cpp's converter writes it: row 2i + h of a Q or K head is row h * D/2 + i of Hugging Face's, so
 * that the rotation pairs neighbours; the stretched frequencies become a tensor of divisors. */
#ifndef TESTS_UNIT_MODEL_TINY_GGUF_H
#define TESTS_UNIT_MODEL_TINY_GGUF_H

#include "model/hf_config.h"
#include "model/rope_table.h"
#include "tiny_model.h"

struct tiny_gguf {
    struct gguf_builder builder;
    uint64_t num_tensors; /* in the order of tiny_model.h, which seeds the values */
};

/* heads 0: rows stay in order. rows 0: a vector. */
static inline void tiny_gguf_put(struct tiny_gguf *t, const char *name, uint64_t rows, uint64_t cols,
                                 uint64_t heads)
{
    uint64_t num_rows = max_of(rows, (uint64_t)1);
    uint16_t *values = (uint16_t *)malloc(num_rows * cols * sizeof *values);
    if (rows)
        fill_values(values, rows * cols, ++t->num_tensors, 0, (float)(2 / sqrt((double)cols)));
    else
        fill_values(values, cols, ++t->num_tensors, 1, 0.5f);
    gguf_put_tensor_info(&t->builder, name, DTYPE_BF16, cols, rows);
    for (uint64_t row = 0; row < num_rows; row++) {
        uint64_t head_dim = heads ? rows / heads : 1, in_head = row % head_dim;
        uint64_t from = heads ? row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2 : row;
        buffer_append(&t->builder.data, values + from * cols, cols * sizeof *values);
    }
    free(values);
}

static inline void tiny_gguf_put_layer(struct tiny_gguf *t, int layer, uint64_t head_dim)
{
    char name[64];
#define NAME(text) (snprintf(name, sizeof name, "blk.%d." text, layer), name)
    tiny_gguf_put(t, NAME("attn_norm.weight"), 0, TINY_HIDDEN, 0);
    tiny_gguf_put(t, NAME("attn_q.weight"), TINY_HEADS * head_dim, TINY_HIDDEN, TINY_HEADS);
    tiny_gguf_put(t, NAME("attn_k.weight"), TINY_KV_HEADS * head_dim, TINY_HIDDEN, TINY_KV_HEADS);
    tiny_gguf_put(t, NAME("attn_v.weight"), TINY_KV_HEADS * head_dim, TINY_HIDDEN, 0);
    tiny_gguf_put(t, NAME("attn_output.weight"), TINY_HIDDEN, TINY_HEADS * head_dim, 0);
    tiny_gguf_put(t, NAME("ffn_norm.weight"), 0, TINY_HIDDEN, 0);
    tiny_gguf_put(t, NAME("ffn_gate.weight"), TINY_INTERMEDIATE, TINY_HIDDEN, 0);
    tiny_gguf_put(t, NAME("ffn_up.weight"), TINY_INTERMEDIATE, TINY_HIDDEN, 0);
    tiny_gguf_put(t, NAME("ffn_down.weight"), TINY_HIDDEN, TINY_INTERMEDIATE, 0);
#undef NAME
}

/* The config's rotation, as divisors of the plain one. */
static inline void tiny_gguf_put_divisors(struct tiny_gguf *t, const struct rope_config *rope)
{
    struct rope_config plain = *rope;
    float stretched[64], frequencies[64];
    int n = rope->rotary_dim / 2;
    plain.type = ROPE_DEFAULT;
    rope_table_frequencies(rope, 1, NULL, stretched);
    rope_table_frequencies(&plain, 1, NULL, frequencies);
    for (int i = 0; i < n; i++) frequencies[i] /= stretched[i];
    gguf_put_tensor_info(&t->builder, "rope_freqs.weight", DTYPE_F32, (uint64_t)n, 0);
    buffer_append(&t->builder.data, frequencies, (size_t)n * sizeof *frequencies);
}

static inline void tiny_gguf_put_keys(struct gguf_builder *g, const struct model_config *c)
{
    gguf_put_text(g, "general.architecture", "llama");
    gguf_put_u32(g, "llama.embedding_length", TINY_HIDDEN);
    gguf_put_u32(g, "llama.feed_forward_length", TINY_INTERMEDIATE);
    gguf_put_u32(g, "llama.block_count", TINY_LAYERS);
    gguf_put_u32(g, "llama.attention.head_count", TINY_HEADS);
    gguf_put_u32(g, "llama.attention.head_count_kv", TINY_KV_HEADS);
    gguf_put_u32(g, "llama.context_length", (uint32_t)c->max_position_embeddings);
    gguf_put_f32(g, "llama.attention.layer_norm_rms_epsilon", c->rms_norm_eps);
    gguf_put_f32(g, "llama.rope.freq_base", (float)c->rope.theta);
}

/* Writes m.gguf into directory (and uses its config.json for the way there). */
static inline void tiny_gguf_write(const struct tiny_model *m, const char *directory)
{
    struct tiny_gguf t = {0};
    struct model_config c;
    struct generation_defaults defaults;
    struct buffer file;
    write_text(directory, "config.json", m->config);
    assert_int_equal(hf_config_read(directory, &c, &defaults, NULL), 0);
    gguf_builder_init(&t.builder);
    tiny_gguf_put_keys(&t.builder, &c);
    tiny_gguf_put(&t, "token_embd.weight", TINY_VOCAB, TINY_HIDDEN, 0);
    for (int layer = 0; layer < TINY_LAYERS; layer++) tiny_gguf_put_layer(&t, layer, (uint64_t)m->head_dim);
    tiny_gguf_put(&t, "output_norm.weight", 0, TINY_HIDDEN, 0);
    tiny_gguf_put_divisors(&t, &c.rope);
    buffer_init(&file, TEST_FILE_BYTES_MAX);
    gguf_finish(&t.builder, &file);
    write_file(directory, "m.gguf", file.data, file.num_bytes);
    buffer_deinit(&file);
    gguf_builder_deinit(&t.builder);
}

#endif
