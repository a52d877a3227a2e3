/* forward.h - the parts of a model on a device, and its forward pass over one batch.
 *
 * Shapes: T tokens, R logit rows, H hidden size, Q = heads x head_dim, I intermediate size. act and res are
 * the device's element types (device.h). Thread: the engine's. */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H

#include "kernels/device.h"
#include "model/kv_layout.h"

/* Of rows of x, or of what narrow makes of them. */
struct product {
    struct linear *narrow, *wide; /* narrow NULL: x itself */
};

struct layer {
    struct norm_args attention_norm, mlp_norm; /* before each; with what the one before it leaves */
    struct norm_args o_norm, down_norm; /* of what o and down get; without delta_weight there is none */
    struct norm_args
        inner_norm; /* of the sum behind attention, which is added to what attention has got; without a weight there is none */
    struct norm_args sum; /* where there are both delta_net and qkv: what adds attention */
    /* qkv NULL where there is delta_net alone, or attention.latent; o alone: it is what stands in their place; both NULL: nothing does */
    struct linear *qkv, *o;
    struct linear *projections; /* of delta_net: q, k, v and z */
    struct linear *state_o;     /* of delta_net beside attention; else o is its */
    struct linear *gates; /* of delta_net b and a, or b; of attention with gates of its own those; or NULL */
    struct product z, decays; /* of delta_net: where they are apart (delta_inputs); wide NULL: they are not */
    struct delta_net *delta_net;                               /* NULL: the layer has attention alone */
    struct linear *gate_up, *down;                             /* NULL where there is moe alone */
    struct lora *qkv_lora, *o_lora, *gate_up_lora, *down_lora; /* NULL: no adapter adds to it */
    struct moe *moe; /* NULL: the layer has one MLP; with down both, side by side */
    /* where the MLP is beside experts: before the router, before them, and behind both, where the sum of both begins. seen_norm: also before an
     * MLP beside attention, where that has one of its own; else it has no weight */
    struct norm_args seen_norm, experts_norm, mlp_sum, experts_sum;
    struct product laurel;        /* of what attention gets, which is added with it; wide NULL: nothing is */
    struct norm_args laurel_norm; /* of no weight: it is added */
    struct altup_args altup;
    float gate_cut; /* sparse_gelu; of layers with has_sparse_gate */
    bool has_sparse_gate;
    int32_t intermediate_size;
    struct norm_args input_norm;           /* of no weight: what the MLP leaves is added */
    struct linear *input_gate, *input_out; /* of what a token adds to the layer; NULL: it adds nothing */
    struct rope_args rope;                 /* with the layer's q and k norms */
    struct attention_args attention;
    int32_t kv_layer;    /* of the blocks of its group */
    int32_t mixed_width; /* of what o multiplies: Q, or all values of a delta_net or of latent attention */
};

struct model {
    struct device *device;
    struct model_config config;
    struct kv_layout kv_layout;
    struct layer *layers;
    struct norm_args output_norm, embedding_norm; /* embedding_norm: without a weight there is none */
    float embedding_scale;
    /* of what a token adds to each of L layers, P values; NULL: nothing */
    struct linear *layer_embedding, *layer_projection;
    struct norm_args layer_inputs_norm; /* of the projection, which is added to the embeddings */
    float layer_embedding_scale;
    /* of AltUp: products that make its streams but the first of that, and at the end what is added to that; NULL: there is one stream */
    struct linear *altup_in[ALTUP_STREAMS - 1], *altup_out[ALTUP_STREAMS - 1];
    struct norm_args altup_norm; /* of no weight: what the last layer's token adds joins a stream */
    const float
        *positions; /* device memory [max_model_len][H]: what is added to embeddings; as many rows more
                       where there is a second type of tokens; NULL */
    /* of tasks (task_embedding.h): what their adapters add to embeddings; NULL: there are none */
    struct linear *task_table, *task_zeros;
    struct lora *task_lora;
    void *task_rows, *task_values; /* [T][width] (res) [T][width] (act) */
    int32_t task_width;
    struct score_head *score_head;      /* NULL: it does not score pairs */
    struct dense_layers *dense;         /* NULL: embeddings are what pooling gives */
    struct linear *embedding, *lm_head; /* one and the same when tied */
    struct kv_pool *kv_pool;
    struct batch *batch; /* of the step begun last */
    bool step_has_loras; /* it has sequences with adapters */
    /* device memory for the largest step */
    void *residual;                              /* [T + 1][H] (res) */
    void *normed, *qkv, *attended, *delta, *mlp; /* (act) [T][H] [T][Q+2KV] [T][Q] [T][H] [T][I] */
    /* (act) NULL where no layer needs them: what attention with gates, or a delta_net, is made of, or what latent attention
     * leaves; gates, or rates */
    void *projected, *gates;
    void *z, *decays,
        *narrow; /* (act) of delta_nets: delta_inputs, and what products' narrow ones make; NULL where there are none */
    void *state_mixed; /* (act) [T][U] what a delta_net beside attention gives; NULL where there is none */
    void *seen,
        *both; /* of an MLP beside experts: [T][H] (act) what the router gets, [T][H] (res) their sum; seen is room for experts beside attention */
    void *sub_normed; /* [T][Q or I] (res): room for norms of what o and down get; NULL: there are none */
    void *layer_rows, *layer_inputs, *layer_logit_inputs; /* [T][L P] (res) [T][L P] (act) [R][L P] (act) */
    struct altup_streams streams, logit_streams;          /* [N][T][H] (res) [N][R][H] (res) */
    void *altup_others, *gate_and_up; /* [N - 1][T][H] (act) [T][2 I] (act): of gates that are cut */
    void *logit_residual;             /* [R + 1][H] (res) */
    void *logit_rows;                 /* [R][H] (act) */
};

/* Queues one step, up to the logits. */
void forward(const struct model *m, const struct batch *b, const struct step *step);

#endif
