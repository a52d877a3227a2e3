#include "model/hf_parts.h"

#include <string.h>

#include "base/check.h"
#include "files/file_map.h"
#include "model/distance_bias.h"

const char *hf_own_key(const struct json_reader *r, const struct family *family, const char *key)
{
    static const char *const gpt2_keys[][2] = {{"hidden_size", "n_embd"},
                                               {"hidden_size", "n_embed"},
                                               {"hidden_size", "d_model"},
                                               {"num_attention_heads", "n_heads"},
                                               {"num_hidden_layers", "n_layers"},
                                               {"max_position_embeddings", "max_seq_len"},
                                               {"intermediate_size", "n_inner"},
                                               {"num_hidden_layers", "n_layer"},
                                               {"num_attention_heads", "n_head"},
                                               {"max_position_embeddings", "n_positions"},
                                               {"hidden_size", "dim"},
                                               {"intermediate_size", "hidden_dim"}},
                             *const other_keys[][2] = {{"num_hidden_layers", "num_layers"},
                                                       {"num_attention_heads", "num_heads"},
                                                       {"num_key_value_heads", "num_kv_heads"},
                                                       {"intermediate_size", "ffn_hidden_size"},
                                                       {"intermediate_size", "ffn_dim"}};
    for (size_t i = 0; i < array_length(gpt2_keys) && family->has_gpt2_keys; i++)
        if (!strcmp(key, gpt2_keys[i][0]) && json_find(r, gpt2_keys[i][1])) return gpt2_keys[i][1];
    for (size_t i = 0; i < array_length(other_keys) && !json_find(r, key); i++)
        if (!strcmp(key, other_keys[i][0]) && json_find(r, other_keys[i][1])) return other_keys[i][1];
    return key;
}

/* How sentence-transformers makes a score of what the head gives: by its sigmoid unless the file says otherwise. */
static int read_activation(struct json_reader *r, struct model_config *c)
{
    struct json_reader own = *r;
    own.object = json_find(r, "sentence_transformers");
    const char *old = json_text(r, "sbert_ce_default_activation_function", ""),
               *name = json_text(&own, "activation_fn", old), *last = strrchr(name, '.');
    last = last ? last + 1 : name;
    c->scores_are_plain = !strcmp(last, "Identity");
    if (own.status) r->status = own.status;
    if (c->scores_are_plain || !name[0] || !strcmp(last, "Sigmoid")) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: scores by the function \"%s\" are not supported; Sigmoid and Identity are", r->path,
                     printable_from(name, strlen(name)).text);
}

/* Of a class whose head has a norm: what it gets of a text, and what it does with that. */
static int read_head(struct json_reader *r, struct model_config *c)
{
    const char *pooling = json_text(r, "classifier_pooling", "cls"),
               *activation = json_text(r, "classifier_activation", "gelu");
    if (!weight_may_be(c->family->weight_changes, WEIGHT_HEAD_NORM)) return STATUS_OK;
    if (!strcmp(pooling, "mean")) c->score_pooling = POOLING_MEAN;
    if (strcmp(pooling, "mean") != 0 && strcmp(pooling, "cls") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: classifier_pooling \"%s\" is not supported; \"cls\" and \"mean\" are", r->path,
                         printable_from(pooling, strlen(pooling)).text);
    if (!strcmp(activation, "gelu")) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: classifier_activation \"%s\" is not supported; \"gelu\" is", r->path,
                     printable_from(activation, strlen(activation)).text);
}

/* A class with a head has two labels where nothing is said. A decoder's last token has seen all others. */
static int read_score_head(struct json_reader *r, struct model_config *c)
{
    const cJSON *labels = json_find(r, "id2label");
    if (!c->family->scores_pairs) return r->status;
    int64_t num_labels = json_int(r, "num_labels", 2, 0, INT32_MAX);
    if (!c->family->is_encoder) c->score_pooling = POOLING_LAST;
    if (cJSON_IsObject(labels)) num_labels = cJSON_GetArraySize(labels);
    if (num_labels != 1)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: a head of %d labels is not supported; one of 1 is, which scores pairs of texts",
                         r->path, (int)num_labels);
    c->has_second_type = c->num_type_rows > 1 && !c->family->positions_follow_padding;
    int status = read_head(r, c);
    return status ? status : read_activation(r, c);
}

void hf_read_norm_eps(struct json_reader *r, struct model_config *c)
{
    static const char *const keys[] = {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon",
                                       "norm_eps"};
    c->rms_norm_eps = (float)c->family->norm_eps;
    for (size_t i = 0; i < array_length(keys); i++)
        c->rms_norm_eps = (float)json_real(r, keys[i], (double)c->rms_norm_eps, 0, 1);
}

/* What belongs to the keys of GPT-2's kind. Where the rotation is to be stretched beyond the length that the model was made for,
 * by how long each text is, that length is the longest. */
static int read_gpt2_keys(struct json_reader *r, struct model_config *c)
{
    const char *own = c->family->gate == GATE_GELU ? "gelu" : "swiglu",
               *activation = json_text(r, "activation_function", own);
    const int64_t made_for = json_int(r, "max_trained_positions", INT32_MAX, 1, INT32_MAX),
                  multiple = json_int(r, "pad_vocab_size_multiple", 1, 1, 1 << 20);
    if (!c->family->has_gpt2_keys) return STATUS_OK;
    if (json_find(r, "rotary_scaling_factor"))
        c->max_position_embeddings = (int32_t)min_of(made_for, (int64_t)c->max_position_embeddings);
    c->vocab_size = (int32_t)min_of(div_up(c->vocab_size, multiple) * multiple, (int64_t)INT32_MAX);
    if (json_real(r, "rotary_emb_fraction", 1, 0, 1e9) != 1 || json_find(r, "rotary_emb_scale_base"))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: rotary_emb_fraction or rotary_emb_scale_base is set, which is not supported",
                         r->path);
    if (!strcmp(activation, own)) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED, "%s: activation_function \"%s\" is not supported; \"%s\" is",
                     r->path, printable_from(activation, strlen(activation)).text, own);
}

/* Nomic's products have biases all, or none. */
static int check_biases(struct json_reader *r, const struct family *family)
{
    static const char *const keys[] = {"qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"};
    const bool has_biases = weight_may_be(family->weight_changes, WEIGHT_UP_BIAS);
    if (!has_biases) return hf_want_false(r, keys, array_length(keys));
    for (size_t i = 0; i < array_length(keys); i++)
        if (!json_bool(r, keys[i], true))
            return error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is false, which is not supported", r->path,
                             keys[i]);
    return r->status;
}

/* Fields that change what an encoder is into something that is not computed here. */
static int check_encoder(struct json_reader *r, const struct family *family)
{
    static const char *const must_be_false[] = {"norm_bias",
                                                "attention_bias",
                                                "prenorm",
                                                "parallel_block",
                                                "rotary_emb_interleaved",
                                                "use_rms_norm",
                                                "causal",
                                                "scale_attn_by_inverse_layer_idx",
                                                "logn_attention_scale",
                                                "use_reg_tokens"};
    if (strcmp(json_text(r, "layer_norm_type", "layer_norm"), "layer_norm") != 0 ||
        !json_bool(r, "pack_qkv", true))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: layer_norm_type or pack_qkv is not supported; \"layer_norm\" and true are",
                         r->path);
    if (strcmp(json_text(r, "feed_forward_type", "geglu"), "geglu") != 0)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: feed_forward_type is not supported unless it is \"geglu\"", r->path);
    int status = hf_want_false(r, must_be_false, array_length(must_be_false));
    return status ? status : check_biases(r, family);
}

/* Tables of rows that are added to the embedding: of types of tokens, and of places unless it rotates. */
static int read_tables(struct json_reader *r, struct model_config *c)
{
    const bool has_positions = weight_may_be(c->family->weight_changes, WEIGHT_POSITION_EMBEDDING);
    const char *own = c->family->has_alibi ? "alibi"
                      : has_positions      ? "absolute"
                                           : "rope",
               *positions = json_text(r, "position_embedding_type", own);
    if (weight_may_be(c->family->weight_changes, WEIGHT_TYPE_EMBEDDING))
        c->num_type_rows = hf_size(r, "type_vocab_size", 2);
    if (json_int(r, "relative_attention_num_buckets", DISTANCE_BUCKETS, 0, INT32_MAX) != DISTANCE_BUCKETS)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: relative_attention_num_buckets is not supported unless it is %d", r->path,
                         DISTANCE_BUCKETS);
    if (json_int(r, "embedding_size", c->hidden_size, 0, INT32_MAX) != c->hidden_size)
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: embedding_size is not supported unless it is hidden_size, %d", r->path,
                         c->hidden_size);
    c->first_position_row = c->family->first_position_row;
    if (has_positions) c->num_position_rows = c->max_position_embeddings + c->first_position_row;
    if (c->family->positions_follow_padding) {
        c->first_position_row = (int32_t)json_int(r, "pad_token_id", 1, 0, INT32_MAX / 2) + 1;
        c->max_position_embeddings -= c->first_position_row;
    }
    if (!strcmp(positions, own) || (!strcmp(own, "rope") && !strcmp(positions, "rotary"))) return STATUS_OK;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: position_embedding_type \"%s\" is not supported; \"%s\" is", r->path,
                     printable_from(positions, strlen(positions)).text, own);
}

/* Gemma's config.json says which way its tokens see. */
static int check_sides(struct json_reader *r, const struct family *family)
{
    const bool both = json_bool(r, "use_bidirectional_attention", family->is_encoder && !family->says_sides);
    if (both == family->is_encoder) return r->status;
    return error_set(r->err, STATUS_UNSUPPORTED,
                     "%s: use_bidirectional_attention is %s, which is not supported for this class", r->path,
                     both ? "true" : "false");
}

/* "": nothing is said; NULL: it is no text. */
static const char *json_text_of(const cJSON *object, const char *name)
{
    const cJSON *text = cJSON_GetObjectItemCaseSensitive(object, name);
    return !text || cJSON_IsNull(text) ? "" : cJSON_GetStringValue(text);
}

static int add_task(struct json_reader *r, struct model_config *c, const cJSON *item, const cJSON *texts)
{
    const char *name = cJSON_GetStringValue(item), *text = name ? json_text_of(texts, name) : NULL;
    struct task *task = &c->tasks.items[c->tasks.num];
    if (!name || !name[0] || !text || strlen(name) >= TASK_NAME_BYTES || strlen(text) >= TASK_TEXT_BYTES ||
        c->tasks.num == TASKS_MAX)
        return error_set(
            r->err, STATUS_UNSUPPORTED,
            "%s: lora_adaptations is supported as a list of %d names at most, each of less than %d "
            "bytes, with an instruction of less than %d",
            r->path, TASKS_MAX, TASK_NAME_BYTES, TASK_TEXT_BYTES);
    snprintf(task->name, sizeof task->name, "%s", name);
    snprintf(task->instruction, sizeof task->instruction, "%s", text);
    c->tasks.num++;
    return STATUS_OK;
}

/* Jina's: which tasks there are adapters for, and what a text begins with. */
static int read_tasks(struct json_reader *r, struct model_config *c)
{
    const struct family *other = c->family->if_named;
    const cJSON *item, *names = json_find(r, "lora_adaptations"), *texts = json_find(r, "task_instructions");
    int status = STATUS_OK;
    if (!other || !other->has_tasks || !names) return r->status;
    const int64_t rank = json_int(r, "lora_rank", 4, 1, LORA_RANK_MAX);
    c->task_scale = (float)(json_real(r, "lora_alpha", 1, -1e6, 1e6) / (double)rank);
    if (!cJSON_IsArray(names)) return add_task(r, c, names, texts);
    cJSON_ArrayForEach(item, names) if (!status) status = add_task(r, c, item, texts);
    return status ? status : r->status;
}

/* Of those with LayerNorm behind the embedding, which are encoders. */
static int read_own_fields(struct json_reader *r, struct model_config *c)
{
    int status = check_encoder(r, c->family);
    if (status) return status;
    hf_read_norm_eps(r, c);
    status = read_tables(r, c);
    if (!status) status = read_tasks(r, c);
    return status ? status : read_gpt2_keys(r, c);
}

int hf_read_encoder(struct json_reader *r, struct model_config *c)
{
    int status = check_sides(r, c->family);
    if (!status && c->family->has_embedding_norm) status = read_own_fields(r, c);
    return status ? status : read_score_head(r, c);
}

/* MPT's: what its attention is, and how wide the MLP. */
static int read_mpt(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_false[] = {"qk_ln", "prefix_lm", "rope"}, *const usual_heads =
                                                                                   "multihead_attention";
    const cJSON *attention = json_find(r, "attn_config");
    struct json_reader own = *r;
    if (!c->family->has_mpt_keys) return r->status;
    own.object = cJSON_IsObject(attention) ? attention : NULL;
    const int64_t ratio = json_int(r, "expansion_ratio", 4, 1, 1024);
    c->intermediate_size = (int32_t)min_of(ratio * c->hidden_size, (int64_t)INT32_MAX);
    c->alibi_most = (float)json_real(&own, "alibi_bias_max", 8, 1e-3, 1e3);
    c->qkv_clip = (float)json_real(&own, "clip_qkv", 0, 0, 1e9);
    if (!json_bool(&own, "alibi", true) ||
        strcmp(json_text(&own, "attn_type", usual_heads), usual_heads) != 0 ||
        json_find(&own, "softmax_scale") || json_find(r, "logit_scale") || !json_bool(r, "no_bias", true))
        return error_set(
            r->err, STATUS_UNSUPPORTED,
            "%s: attention without alibi, attn_type but \"%s\", softmax_scale, logit_scale and biases "
            "are not supported",
            r->path, usual_heads);
    return own.status ? own.status : hf_want_false(&own, must_be_false, array_length(must_be_false));
}

/* Scores are divided by the root of head_dim and by nothing else; norms are ahead of attention and MLP, and have weights; embeddings are as
 * wide as all else. */
int hf_read_gpt2(struct json_reader *r, struct model_config *c)
{
    static const char *const must_be_false[] = {"scale_attn_by_inverse_layer_idx", "_remove_final_layer_norm",
                                                "apply_residual_connection_post_layernorm"},
                             *const must_be_true[] = {"scale_attn_weights", "do_layer_norm_before",
                                                      "enable_bias", "layer_norm_elementwise_affine"};
    if (!c->family->has_gpt2_keys || c->family->is_encoder) return r->status;
    int status = hf_want_false(r, must_be_false, array_length(must_be_false));
    for (size_t i = 0; i < array_length(must_be_true) && !status; i++)
        if (!json_bool(r, must_be_true[i], true))
            status = error_set(r->err, STATUS_UNSUPPORTED, "%s: %s is false, which is not supported", r->path,
                               must_be_true[i]);
    if (!status && json_int(r, "word_embed_proj_dim", c->hidden_size, 0, INT32_MAX) != c->hidden_size)
        status = error_set(r->err, STATUS_UNSUPPORTED,
                           "%s: word_embed_proj_dim is not supported unless it is hidden_size, %d", r->path,
                           c->hidden_size);
    if (!status) status = read_mpt(r, c);
    return status ? status : read_tables(r, c);
}
