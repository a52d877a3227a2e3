/* model_files.c - finds each weight under the name that its kind of file gives it, and checks its shape.
 *
 * The family's table of weights (weights.h) has both names, the shape as the config gives it, and when the
 * weight must exist. GGUF files, directories and dummy weights differ in one function each (find_in_*). */
#include "model/model_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "model/dummy_weights.h"
#include "files/file_map.h"
#include "files/gguf.h"
#include "model/gguf_config.h"
#include "model/gguf_sampling.h"
#include "model/hf_config.h"
#include "model/gguf_scales.h"
#include "model/lora_files.h"
#include "model/mlx_names.h"
#include "model/quantised_stack.h"
#include "model/quantised_tensors.h"
#include "model/task_embedding.h"
#include "files/json_read.h"
#include "files/safetensors.h"

enum {
    PATH_BYTES_MAX = 4096,
    NAME_BYTES_MAX = 128,
    FIRST_LAYER_ROLE = WEIGHT_ATTENTION_NORM,
    ROLES_PER_LAYER = WEIGHT_EXPERT_GATE - FIRST_LAYER_ROLE,
    ROLES_PER_EXPERT = WEIGHT_ROLE_COUNT - WEIGHT_EXPERT_GATE,
};

#define FUSED_EXPERTS "ffn_gate_up_exps.weight"
#define FUSED_QKV "attn_qkv.weight"

/* A vector that a directory has in pieces. */
struct joined {
    struct joined *next;
    float values[];
};

struct model_files {
    char *path;
    struct model_config config;
    struct generation_defaults defaults;
    bool has_transposed_experts, has_fused_experts, has_stacked_experts, has_numbered_experts, has_fused_qkv;
    bool has_fused_gate;
    struct mlx_experts mlx_experts;
    struct gguf *gguf; /* one of these three */
    struct safetensors *safetensors;
    struct dummy_weights *dummy;
    struct dense_files dense;
    struct joined *joined;
    struct lora_files **loras;
    int32_t num_loras, lora_rank;
    struct task_embedding *task_embedding;
    struct weight_view
        *views; /* [FIRST_LAYER_ROLE + num_layers * views_per_layer]; dummy: filled in when asked for */
    uint64_t weight_bytes;
};

static size_t views_per_layer(const struct model_files *f)
{
    return ROLES_PER_LAYER + (size_t)f->config.num_experts * ROLES_PER_EXPERT;
}

static size_t num_views(const struct model_files *f)
{
    return FIRST_LAYER_ROLE + (size_t)f->config.num_layers * views_per_layer(f);
}

static size_t view_idx(const struct model_files *f, enum weight_role role, int32_t layer, int32_t expert)
{
    return (int)role < FIRST_LAYER_ROLE
               ? role
               : (size_t)role + (size_t)layer * views_per_layer(f) + (size_t)expert * ROLES_PER_EXPERT;
}

/* How many weights of a role a layer has. */
static int32_t num_of_role(const struct model_files *f, enum weight_role role)
{
    return weight_is_of_expert(role) ? f->config.num_experts : 1;
}

static const struct weight_line *line_of(const struct model_files *f, enum weight_role role)
{
    const struct family *family = f->config.family;
    if (f->mlx_experts.is_there && weight_is_of_expert(role))
        return &f->mlx_experts.lines[role - WEIGHT_EXPERT_GATE];
    if (role == WEIGHT_EXPERT_GATE || role == WEIGHT_EXPERT_UP || role == WEIGHT_EXPERT_DOWN) {
        if (f->has_stacked_experts) return weight_line(stacked_weights, role);
        if (f->has_numbered_experts) return weight_line(family->hf_numbered_experts, role);
    }
    return weight_line(family->weight_changes, role);
}

/* Some GGUF files have gate and up of all experts in one tensor, an expert's gate before its up, some Q, K and V of a layer. */
static const char *gguf_name(const struct model_files *f, enum weight_role role)
{
    if (f->has_fused_qkv && role >= WEIGHT_Q && role <= WEIGHT_V) return FUSED_QKV;
    if (f->has_fused_qkv && role >= WEIGHT_Q_BIAS && role <= WEIGHT_V_BIAS) return "attn_qkv.bias";
    if (f->has_fused_gate && role == WEIGHT_GATE) role = WEIGHT_UP;
    const bool is_fused = role == WEIGHT_EXPERT_GATE || role == WEIGHT_EXPERT_UP;
    return f->has_fused_experts && is_fused ? FUSED_EXPERTS : line_of(f, role)->gguf_name;
}

static const char *name_in_file(const struct model_files *f, enum weight_role role)
{
    return f->gguf ? gguf_name(f, role) : line_of(f, role)->hf_name;
}

struct matrix_shape {
    int64_t rows, cols;
};

static bool is_vector_of_expert(const struct model_files *f, enum weight_role role)
{
    return weight_is_of_expert(role) && line_of(f, role)->rows == DIM_1;
}

/* Whether both are of a layer, or neither, and have one name. */
static bool share_name(const struct model_files *f, enum weight_role a, enum weight_role b)
{
    const char *name_of_a = name_in_file(f, a), *name_of_b = name_in_file(f, b);
    const bool are_alike = ((int)a < FIRST_LAYER_ROLE) == ((int)b < FIRST_LAYER_ROLE);
    return are_alike && name_of_a && name_of_b && !strcmp(name_of_a, name_of_b);
}

/* Vectors of one name lie one behind the other. */
static bool is_part_of_vector(const struct model_files *f, enum weight_role role)
{
    int count = 0;
    if (line_of(f, role)->rows != DIM_1 || weight_is_of_expert(role)) return false;
    for (int other = 0; other < WEIGHT_ROLE_COUNT; other++)
        count += share_name(f, role, (enum weight_role)other);
    return count > 1;
}

/* What is cut out of a tensor by rows, and so is looked at as a column. */
static bool is_column(const struct model_files *f, enum weight_role role)
{
    return is_vector_of_expert(f, role) || is_part_of_vector(f, role);
}

static struct matrix_shape shape_of(const struct model_files *f, enum weight_role role, int32_t layer)
{
    const struct weight_line *line = line_of(f, role);
    const int64_t rows = weight_dimension(&f->config, line->rows, layer),
                  cols = weight_dimension(&f->config, line->cols, layer);
    return is_column(f, role) ? (struct matrix_shape){cols, 1} : (struct matrix_shape){rows, cols};
}

/* Of values that stand by themselves; those of blocks stay as they are, and do not fit. */
static struct weight_view as_column(const struct weight_view *v)
{
    if (!v->data || dtype_infos[v->dtype].block_values != 1) return *v;
    return weight_view_plain(v->data, v->dtype, v->rows * v->cols, 1);
}

static struct weight_view as_one_row(const struct weight_view *v)
{
    if (!v->data || dtype_infos[v->dtype].block_values != 1) return *v;
    return weight_view_plain(v->data, v->dtype, 1, v->rows * v->cols);
}

/* What each head has of its own. */
static bool is_norm_of_heads(enum weight_role role)
{
    return role == WEIGHT_Q_NORM || role == WEIGHT_K_NORM;
}

/* Whether each head has a tensor, of its number. */
static bool is_in_pieces(const struct model_files *f, enum weight_role role)
{
    const char *own = name_in_file(f, role);
    return f->safetensors && is_norm_of_heads(role) && own && strchr(own, '*');
}

/* ---- the three kinds of source: each gives a view (data NULL: not there) ---- */

static struct weight_view find_in_gguf(const struct model_files *f, enum weight_role role, const char *name)
{
    struct weight_view view = gguf_find_tensor(f->gguf, name);
    if (view.scheme != WEIGHT_PLAIN) return view; /* no vector is */
    if (is_column(f, role)) return as_column(&view);
    if (line_of(f, role)->rows == DIM_1 && view.cols == 1) /* n x 1 is a vector too */
        return weight_view_plain(view.data, view.dtype, 1, view.rows);
    if ((role == WEIGHT_DELTA_NORM || is_norm_of_heads(role)) && view.rows > 1) /* by groups, or heads */
        return as_one_row(&view);
    return view;
}

static bool is_among_keys(const struct model_files *f, enum weight_role role)
{
    return f->gguf && gguf_name(f, role)[0] == '=';
}

/* A layer's number of a list among the keys. */
static struct weight_view find_among_keys(const struct model_files *f, const char *name, int32_t layer)
{
    enum { TYPE_F32 = 6 };
    struct gguf_array list;
    const bool is_there = gguf_find_array(f->gguf, name, &list) && list.item_type == TYPE_F32 &&
                          list.num_items > (uint64_t)layer;
    return is_there ? weight_view_plain(list.next + sizeof(float) * (size_t)layer, DTYPE_F32, 1, 1)
                    : (struct weight_view){0};
}

/* Whether a matrix may have three dimensions, those of all experts or heads one below the other. */
static bool is_of_many(enum weight_role role)
{
    return weight_is_of_expert(role) || role == WEIGHT_LATENT_K_B || role == WEIGHT_LATENT_V_B;
}

/* n x m x 1, as MLX has convolutions. */
static bool is_column_by_column(const struct safetensor *t, enum weight_role role)
{
    return t->num_dims == 3 && t->dims[2] == 1 && !is_of_many(role);
}

/* Of a matrix, 2; n x 1 x m is one, too. */
static int num_dims_of_matrix(const struct safetensor *t, enum weight_role role)
{
    return t->num_dims == 3 && (t->dims[1] == 1 || is_of_many(role)) ? 3 : 2;
}

/* Of a tensor all of whose dimensions are 1 but one; else 0. */
static int64_t num_values_in_a_row(const struct safetensor *t)
{
    uint64_t num = 1;
    for (int i = 0; i < t->num_dims; i++) {
        if (num != 1 && t->dims[i] != 1) return 0;
        if (t->dims[i] != 1) num = t->dims[i];
    }
    return num <= INT64_MAX ? (int64_t)num : 0; /* all bytes are there */
}

/* LayerNorm of BERT's first checkpoints has gamma and beta. */
static const struct safetensor *find_tensor(const struct model_files *f, const char *name)
{
    static const char *const endings[][2] = {{"LayerNorm.weight", "gamma"}, {"LayerNorm.bias", "beta"}};
    const struct safetensor *t = safetensors_find(f->safetensors, name);
    const size_t num_bytes = strlen(name);
    for (size_t i = 0; i < array_length(endings) && !t; i++) {
        const size_t end = strlen(endings[i][0]), kept = num_bytes - end + strlen("LayerNorm.");
        char own[NAME_BYTES_MAX];
        if (num_bytes < end || strcmp(name + num_bytes - end, endings[i][0]) != 0) continue;
        snprintf(own, sizeof own, "%.*s%s", (int)kept, name, endings[i][1]);
        t = safetensors_find(f->safetensors, own);
    }
    return t;
}

/* rows, cols: of the whole tensor. */
static int find_in_safetensors(const struct model_files *f, enum weight_role role, const char *name,
                               int64_t rows, int64_t cols, struct weight_view *out, struct error *err)
{
    const struct weight_line *line = line_of(f, role);
    const struct safetensor *t = find_tensor(f, name);
    if (line->rows != DIM_1 || role == WEIGHT_SHARED_WEIGHT) { /* that is a product, too */
        int status =
            quantised_find(&f->config.quantisation, f->safetensors, f->path, name, rows, cols, out, err);
        if (status || out->data) return status;
    }
    if (!t) return STATUS_OK;
    bool is_row = t->num_dims == 2 && t->dims[0] == 1; /* 1 x n is a vector too */
    bool is_vector = line->rows == DIM_1 && !is_row && !is_vector_of_expert(f, role);
    int num_dims = is_vector ? 1 : num_dims_of_matrix(t, role);
    if (t->dtype < 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: tensor %s is of type %s; F32, F16 and BF16 are supported", f->path, name,
                         t->dtype_text);
    if (is_vector && t->num_dims > 2 && num_values_in_a_row(t) > 0) { /* 1 x 1 x n x 1 */
        *out = weight_view_plain(t->data, (enum dtype)t->dtype, 1, num_values_in_a_row(t));
        return STATUS_OK;
    }
    if (is_norm_of_heads(role) && t->num_dims == 2 && t->num_bytes > 0) {
        *out = weight_view_plain(t->data, (enum dtype)t->dtype, 1, (int64_t)(t->dims[0] * t->dims[1]));
        return STATUS_OK;
    }
    if (t->num_dims == 0 && is_vector && t->num_bytes > 0) { /* a scalar is a vector of one */
        *out = weight_view_plain(t->data, (enum dtype)t->dtype, 1, 1);
        return STATUS_OK;
    }
    if (is_column_by_column(t, role) && t->dims[0] <= INT64_MAX && t->dims[1] <= INT64_MAX && t->num_bytes) {
        *out = weight_view_plain(t->data, (enum dtype)t->dtype, (int64_t)t->dims[0], (int64_t)t->dims[1]);
        return STATUS_OK;
    }
    if (t->num_dims != num_dims)
        return error_set(err, STATUS_INVALID, "%s: tensor %s has %d dimensions where %d are expected",
                         f->path, name, t->num_dims, num_dims);
    if (t->dims[0] > INT64_MAX || t->dims[num_dims - 1] > INT64_MAX || t->num_bytes == 0)
        return error_set(err, STATUS_INVALID, "%s: tensor %s has an impossible shape", f->path, name);
    if (num_dims == 3 && weight_is_of_expert(role) && t->dims[1] != 1 &&
        t->dims[0] != (uint64_t)f->config.num_experts)
        return error_set(err, STATUS_INVALID,
                         "%s: tensor %s has %" PRIu64 " matrices where the config has %d experts", f->path,
                         name, t->dims[0], f->config.num_experts);
    uint64_t num_rows = num_dims == 1   ? 1
                        : num_dims == 2 ? t->dims[0]
                                        : t->dims[0] * t->dims[1]; /* all bytes are there */
    *out =
        weight_view_plain(t->data, (enum dtype)t->dtype, (int64_t)num_rows, (int64_t)t->dims[num_dims - 1]);
    if (is_column(f, role)) *out = as_column(out);
    return STATUS_OK;
}

static bool is_transposed(const struct model_files *f, enum weight_role role)
{
    if (f->mlx_experts.is_there && weight_is_of_expert(role)) return false;
    if (role == WEIGHT_EXPERT_DOWN && f->safetensors && f->config.family->hf_downs_transposed) return true;
    if (weight_is_of_expert(role)) return f->has_transposed_experts && !is_vector_of_expert(f, role);
    return f->safetensors && f->config.family->hf_layers_transposed && (int)role >= FIRST_LAYER_ROLE &&
           line_of(f, role)->rows != DIM_1;
}

/* A matrix [columns][rows], or one expert's of a tensor of all of them, [E][columns][rows] or [E columns][rows]. */
static int find_transposed(const struct model_files *f, enum weight_role role, const char *name,
                           int32_t expert, struct weight_view *out, struct error *err)
{
    const struct safetensor *t = safetensors_find(f->safetensors, name);
    const bool is_expert = weight_is_of_expert(role);
    if (!t) return STATUS_OK;
    if (t->dtype < 0 || dtype_infos[t->dtype].block_values != 1 || dtype_is_code((enum dtype)t->dtype))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: tensor %s is of type %s; what lies transposed may be F32, F16 and BF16",
                         f->path, name, t->dtype_text);
    const bool is_stack = is_expert && f->config.family->hf_downs_transposed;
    const uint64_t num_experts = is_expert ? (uint64_t)f->config.num_experts : 1;
    const int num_dims = is_expert && !is_stack ? 3 : 2;
    if (is_expert && !is_stack && (t->num_dims != 3 || t->dims[0] != num_experts))
        return error_set(err, STATUS_INVALID, "%s: tensor %s should have three dimensions, %d experts first",
                         f->path, name, f->config.num_experts);
    if (is_stack && (t->num_dims != 2 || t->dims[0] % num_experts != 0))
        return error_set(err, STATUS_INVALID,
                         "%s: tensor %s should have two dimensions, the first of %d experts", f->path, name,
                         f->config.num_experts);
    const uint64_t *last = t->dims + num_dims - 2,
                   dims[] = {is_stack ? last[0] / num_experts : last[0], last[1]};
    if (t->num_dims != num_dims || dims[0] > INT64_MAX || dims[1] > INT64_MAX || t->num_bytes == 0)
        return error_set(err, STATUS_INVALID, "%s: tensor %s has an impossible shape", f->path, name);
    const uint64_t row_bytes = dtype_row_bytes((enum dtype)t->dtype, dims[1]);
    *out = weight_view_transposed((const char *)t->data + (uint64_t)expert * dims[0] * row_bytes,
                                  (enum dtype)t->dtype, (int64_t)dims[1], (int64_t)dims[0]);
    return STATUS_OK;
}

/* Embeddings, the head and routers stay as they are in checkpoints, too. */
static bool is_quantised(enum weight_role role)
{
    return role != WEIGHT_TOKEN_EMBEDDING && role != WEIGHT_LAYER_EMBEDDING && role != WEIGHT_LM_HEAD &&
           role != WEIGHT_ROUTER && role != WEIGHT_SHARED_WEIGHT && role != WEIGHT_DELTA_A &&
           role != WEIGHT_DELTA_B && role != WEIGHT_DELTA_BA && role != WEIGHT_DELTA_CONVOLUTION &&
           role != WEIGHT_ALTUP_ROUTER && role != WEIGHT_ALTUP_PREDICT && role != WEIGHT_ALTUP_CORRECT;
}

static bool is_dummy_bytes(const struct model_files *f, enum weight_role role)
{
    return f->config.quantisation.format == QUANT_BYTES && is_quantised(role);
}

static bool is_dummy_u4(const struct model_files *f, enum weight_role role, int64_t rows)
{
    const struct quantisation *q = &f->config.quantisation;
    const bool has_four_bits =
        q->format == QUANT_AWQ || q->format == QUANT_GPTQ || (q->format == QUANT_PACKED && q->bits == 4);
    return has_four_bits && rows % 8 == 0 && is_quantised(role);
}

/* GPTQ's are made as AWQ has them, too. */
static struct weight_view make_dummy_u4(const struct model_files *f, uint64_t stream, int64_t rows,
                                        int64_t cols)
{
    const struct quantisation *q = &f->config.quantisation;
    const int64_t group = q->group_size ? q->group_size : cols;
    return q->format == QUANT_PACKED && !q->has_zeros
               ? dummy_weights_symmetric(f->dummy, stream, rows, cols, group)
               : dummy_weights_awq(f->dummy, stream, rows, cols, group);
}

static bool is_dummy_mxfp4(const struct model_files *f, enum weight_role role, int64_t cols)
{
    const enum quant_format format = f->config.quantisation.format;
    return cols % 32 == 0 && (format == QUANT_MXFP4_BLOCKS ? weight_is_of_expert(role)
                                                           : format == QUANT_MXFP4 && is_quantised(role));
}

static struct weight_view make_dummy(const struct model_files *f, enum weight_role role, int32_t layer,
                                     int32_t expert)
{
    const struct weight_line *line = line_of(f, role);
    int64_t rows = weight_dimension(&f->config, line->rows, layer),
            cols = weight_dimension(&f->config, line->cols, layer);
    uint64_t stream = view_idx(f, role, layer, expert);
    if (!weight_is_required(&f->config, line->presence, layer)) return (struct weight_view){0};
    if (line->rows != DIM_1 && is_dummy_bytes(f, role)) {
        const struct quantisation *q = &f->config.quantisation;
        return dummy_weights_bytes(f->dummy, q->has_integers ? DTYPE_I8 : DTYPE_F8_E4M3, stream, rows, cols,
                                   q->block_rows ? q->block_rows : 1, q->block_rows ? q->block_cols : cols);
    }
    if (line->rows != DIM_1 && is_dummy_u4(f, role, rows)) return make_dummy_u4(f, stream, rows, cols);
    if (line->rows != DIM_1 && is_dummy_mxfp4(f, role, cols))
        return dummy_weights_mxfp4(f->dummy, stream, rows, cols);
    if (line->rows != DIM_1) return dummy_weights_matrix(f->dummy, stream, rows, cols);
    float mean = weight_is_norm(role) ? 1 - weight_norm_offset(&f->config, role)
                 : role == WEIGHT_DELTA_NORM || role == WEIGHT_DELTA_SKIP || role == WEIGHT_LAYER_SCALE ||
                         role == WEIGHT_ROUTER_SCALE || role == WEIGHT_SCORE_FACTORS ||
                         role == WEIGHT_ALTUP_SCALE
                     ? 1
                     : 0;
    return dummy_weights_vector(f->dummy, stream, cols, mean);
}

/* ---- resolving all weights ---- */

/* Of the names of a checkpoint, and of its head's. */
struct prefix {
    const char *all, *head;
};

/* Checkpoints saved from the base class have none; those of models with images or speech have the text model's deeper down. */
static const struct prefix *hf_prefix(const struct model_files *f)
{
    static const struct prefix none = {"", ""}, prefixes[] = {{"model.", ""},
                                                              {"language_model.model.", "language_model."},
                                                              {"thinker.model.", "thinker."},
                                                              {"model.language_model.", ""},
                                                              {"model.decoder.", ""},
                                                              {"model.text_model.", ""},
                                                              {"bert.", ""},
                                                              {"roberta.", ""},
                                                              {"distilbert.", ""},
                                                              {"electra.", ""},
                                                              {"mpnet.", ""},
                                                              {"new.", ""},
                                                              {"gte.", ""},
                                                              {"backbone.", ""},
                                                              {"transformer.", ""},
                                                              {"gpt_neox.", ""}};
    const bool has_last_norm = weight_may_be(f->config.family->weight_changes, WEIGHT_OUTPUT_NORM) &&
                               !f->config.family->has_embedding_norm;
    const char *known = line_of(f, has_last_norm ? WEIGHT_OUTPUT_NORM : WEIGHT_TOKEN_EMBEDDING)->hf_name;
    char name[NAME_BYTES_MAX];
    for (size_t i = 0; i < array_length(prefixes); i++) {
        snprintf(name, sizeof name, "%s%s", prefixes[i].all, known);
        if (safetensors_find(f->safetensors, name)) return &prefixes[i];
    }
    return &none;
}

static const char *hf_layers(const struct model_files *f)
{
    const char *own = f->config.family->hf_layers;
    return own ? own : "layers";
}

static void name_weight(const struct model_files *f, enum weight_role role, int32_t layer, int32_t expert,
                        char name[NAME_BYTES_MAX])
{
    const struct weight_line *line = line_of(f, role);
    const char *star = f->gguf ? NULL : strchr(line->hf_name, '*');
    char numbered[NAME_BYTES_MAX];
    if (star)
        snprintf(numbered, sizeof numbered, "%.*s%d%s", (int)(star - line->hf_name), line->hf_name, expert,
                 star + 1);
    const char *own = star ? numbered : name_in_file(f, role);
    const struct prefix *known = f->gguf ? NULL : hf_prefix(f);
    const char *prefix = !known ? "" : role == WEIGHT_LM_HEAD ? known->head : known->all;
    if (own[0] == '/') {
        own++;
        prefix = "";
    }
    const bool is_behind = own[0] == '+';
    if (is_behind) own++;
    if (is_among_keys(f, role)) {
        snprintf(name, NAME_BYTES_MAX, "%s", own + 1);
        return;
    }
    int n = (int)role < FIRST_LAYER_ROLE
                ? snprintf(name, NAME_BYTES_MAX, "%s%s", prefix, own)
                : snprintf(name, NAME_BYTES_MAX, "%s%s.%d.%s", prefix, f->gguf ? "blk" : hf_layers(f),
                           model_config_layer_in_file(&f->config, layer) + is_behind, own);
    assert_always(n > 0 && n < NAME_BYTES_MAX); /* the families' tables have short names */
    const char *other = f->mlx_experts.is_there ? mlx_other_name(own) : NULL;
    if (!other || safetensors_find(f->safetensors, name)) return;
    const int kept = n - (int)strlen(own);
    snprintf(name + kept, (size_t)(NAME_BYTES_MAX - kept), "%s", other);
}

/* Roles that a layer has under one name, and all experts that share a tensor: all their rows, and where role's own are: runs of so many from
 * first_row on, one in each step rows; step 1: all one after another. Vectors of experts are columns. */
struct stack {
    int64_t rows, first_row, step, run;
};

/* Where the roles of a tensor take turns: how often each of them has one. */
static int64_t num_turns(const struct model_files *f, enum weight_role role, int32_t layer)
{
    const struct family *family = f->config.family;
    const bool is_of_heads =
        (role >= WEIGHT_Q && role <= WEIGHT_V) || (role >= WEIGHT_Q_BIAS && role <= WEIGHT_V_BIAS);
    if (f->gguf) return 1;
    if (weight_is_of_expert(role) && family->hf_experts_alternate && !f->mlx_experts.is_there)
        return shape_of(f, role, layer).rows;
    return is_of_heads && f->config.qkv_by_heads ? f->config.num_kv_heads : 1;
}

/* In a tensor of both. */
static bool comes_before(const struct model_files *f, enum weight_role a, enum weight_role b)
{
    const bool up_leads = f->config.family->up_leads && (a == WEIGHT_GATE || a == WEIGHT_UP) &&
                          (b == WEIGHT_GATE || b == WEIGHT_UP);
    return up_leads ? a > b : a < b;
}

/* is_alone: an expert's rows are looked at by themselves, wherever they lie. */
static struct stack stack_of(const struct model_files *f, enum weight_role role, int32_t layer,
                             int32_t expert, bool is_alone)
{
    struct stack stack = {.step = 1, .run = 1};
    const char *own = name_in_file(f, role);
    for (int other = 0; other < WEIGHT_ROLE_COUNT; other++) {
        if (!share_name(f, role, (enum weight_role)other)) continue;
        if (!weight_is_wanted(&f->config, line_of(f, (enum weight_role)other)->presence, layer)) continue;
        if (comes_before(f, (enum weight_role)other, role))
            stack.first_row += shape_of(f, (enum weight_role)other, layer).rows;
        stack.rows += shape_of(f, (enum weight_role)other, layer).rows;
    }
    const int64_t turns = num_turns(f, role, layer);
    if (turns > 1) {
        stack.step = stack.rows / turns;
        stack.run = shape_of(f, role, layer).rows / turns;
        stack.first_row /= turns;
    }
    if (!weight_is_of_expert(role) || strchr(own, '*') || is_alone) return stack;
    stack.first_row += stack.rows * expert;
    stack.rows *= f->config.num_experts;
    return stack;
}

static struct weight_view rows_of(const struct weight_view *all, const struct stack *stack, int64_t rows)
{
    const int64_t idx = stack->first_row % stack->step;
    if (stack->step == 1) return weight_view_rows(all, stack->first_row, rows);
    const struct weight_view turns =
        weight_view_rows(all, stack->first_row - idx, rows / stack->run * stack->step);
    return weight_view_runs(&turns, idx, stack->step, stack->run);
}

/* Whether the family itself multiplies by what lies beside the matrix (Gemma 4's experts). */
static bool has_scale_of_its_own(const struct model_files *f, enum weight_role role)
{
    const char *own = name_in_file(f, role), *end = strrchr(own, '.');
    for (int other = 0; other < WEIGHT_ROLE_COUNT; other++) {
        const char *name = name_in_file(f, (enum weight_role)other);
        if (name && end && !strncmp(name, own, (size_t)(end - own)) && !strcmp(name + (end - own), ".scale"))
            return true;
    }
    return false;
}

static bool is_in_quantised_stack(const struct model_files *f, enum weight_role role, const char *name)
{
    return f->safetensors && weight_is_of_expert(role) && !is_vector_of_expert(f, role) &&
           quantised_is_stack(&f->config.quantisation, f->safetensors, name);
}

/* All that has the name, or the expert's part of it. */
static int find_in_directory(const struct model_files *f, enum weight_role role, const char *name,
                             const struct expert_place *place, struct weight_view *out, struct error *err)
{
    if (is_in_quantised_stack(f, role, name))
        return quantised_find_in_stack(&f->config.quantisation, f->safetensors, f->path, name, place, out,
                                       err);
    return place->is_transposed ? find_transposed(f, role, name, place->idx, out, err)
                                : find_in_safetensors(f, role, name, place->rows, place->cols, out, err);
}

/* A vector of num values in memory that the files own. NULL: there is no room. */
static float *add_joined(struct model_files *f, int64_t num)
{
    struct joined *own = malloc(sizeof *own + (size_t)num * sizeof own->values[0]);
    if (!own) return NULL;
    own->next = f->joined;
    f->joined = own;
    return own->values;
}

/* The pieces of all heads, one behind the other. */
static int find_in_pieces(struct model_files *f, enum weight_role role, int32_t layer,
                          struct weight_view *out, struct error *err)
{
    const int64_t num = shape_of(f, role, layer).cols, size = weight_dimension(&f->config, DIM_HEAD, layer);
    float *values = add_joined(f, num);
    if (!values) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", f->path);
    for (int64_t at = 0; at < num; at += size) {
        struct weight_view piece = {0};
        char name[NAME_BYTES_MAX];
        name_weight(f, role, layer, (int32_t)(at / size), name);
        int status = find_in_safetensors(f, role, name, 1, size, &piece, err);
        if (status) return status;
        if (!piece.data || piece.cols != size)
            return error_set(err, STATUS_INVALID, "%s: tensor %s is missing, or has not %" PRId64 " values",
                             f->path, name, size);
        dtype_row_to_f32(piece.dtype, piece.data, size, values + at);
    }
    *out = weight_view_plain(values, DTYPE_F32, 1, num);
    return STATUS_OK;
}

static int resolve_weight(struct model_files *f, enum weight_role role, int32_t layer, int32_t expert,
                          struct error *err)
{
    const struct weight_line *line = line_of(f, role);
    const struct model_config *c = &f->config;
    struct weight_view view = {0};
    char name[NAME_BYTES_MAX];
    if (!weight_is_wanted(c, line->presence, layer) || !name_in_file(f, role)) return STATUS_OK;
    name_weight(f, role, layer, expert, name);
    const bool is_alone = is_transposed(f, role) || is_in_quantised_stack(f, role, name);
    const struct stack stack = stack_of(f, role, layer, expert, is_alone);
    const struct matrix_shape shape = shape_of(f, role, layer);
    const struct expert_place place = {c->num_experts, expert, stack.rows, shape.cols,
                                       is_transposed(f, role)};
    int status = STATUS_OK;
    if (is_among_keys(f, role))
        view = find_among_keys(f, name, layer);
    else if (f->gguf)
        view = find_in_gguf(f, role, name);
    else if (is_in_pieces(f, role))
        status = find_in_pieces(f, role, layer, &view, err);
    else
        status = find_in_directory(f, role, name, &place, &view, err);
    if (status) return status;
    if (!view.data) {
        if (!weight_is_required(c, line->presence, layer)) return STATUS_OK;
        return error_set(err, STATUS_INVALID, "%s: tensor %s is missing", f->path, name);
    }
    if (view.rows != stack.rows || view.cols != shape.cols)
        return error_set(err, STATUS_INVALID,
                         "%s: tensor %s is %" PRId64 " x %" PRId64 " where the config asks for %" PRId64
                         " x %" PRId64 " (rows x values)",
                         f->path, name, view.rows, view.cols, stack.rows, shape.cols);
    if (stack.run > 1 && weight_view_has_codes(&view))
        return error_set(
            err, STATUS_UNSUPPORTED,
            "%s: tensor %s is quantised and has rows of Q, K and V by heads, which is not supported", f->path,
            name);
    view = rows_of(&view, &stack, shape.rows);
    if ((view.scheme == WEIGHT_NVFP4 || (f->gguf && c->family->gguf_may_scale)) &&
        !has_scale_of_its_own(f, role)) {
        status = gguf_scales_apply(f->gguf, f->path, name, expert, num_of_role(f, role), &view, err);
        if (status) return status;
    }
    if (is_part_of_vector(f, role) && stack.step == 1)
        view = weight_view_plain(view.data, view.dtype, 1, shape.rows);
    assert_debug(!f->views[view_idx(f, role, layer, expert)].data); /* each place is one weight's */
    f->views[view_idx(f, role, layer, expert)] = view;
    f->weight_bytes += weight_view_bytes(&view);
    return STATUS_OK;
}

/* All of a role in a layer. */
static int resolve_role(struct model_files *f, enum weight_role role, int32_t layer, struct error *err)
{
    int status = STATUS_OK;
    for (int32_t i = 0; i < num_of_role(f, role) && !status; i++)
        status = resolve_weight(f, role, layer, i, err);
    return status;
}

static int resolve_all(struct model_files *f, struct error *err)
{
    int status = STATUS_OK;
    for (int role = 0; role < FIRST_LAYER_ROLE && !status; role++)
        status = resolve_role(f, (enum weight_role)role, 0, err);
    for (int32_t layer = 0; layer < f->config.num_layers && !status; layer++)
        for (int role = FIRST_LAYER_ROLE; role < WEIGHT_ROLE_COUNT && !status; role++)
            status = resolve_role(f, (enum weight_role)role, layer, err);
    return status;
}

/* ---- opening ---- */

/* num_layers: no layer has experts. */
static int32_t first_sparse_layer(const struct model_files *f)
{
    int32_t layer = 0;
    while (layer < f->config.num_layers && !weight_is_wanted(&f->config, PRESENT_IF_SPARSE, layer)) layer++;
    return layer;
}

/* Whether the directory has all experts in one tensor, of a family that has names for each. */
static void find_stacked_experts(struct model_files *f)
{
    const char *own = line_of(f, WEIGHT_EXPERT_DOWN)->hf_name;
    const int32_t layer = first_sparse_layer(f);
    char name[NAME_BYTES_MAX];
    if (!own || !strchr(own, '*') || layer == f->config.num_layers) return;
    snprintf(name, sizeof name, "%s%s.%d.%s", hf_prefix(f)->all, hf_layers(f), layer,
             weight_line(stacked_weights, WEIGHT_EXPERT_DOWN)->hf_name);
    f->has_stacked_experts = safetensors_find(f->safetensors, name);
}

/* Whether there is a matrix of this name, which ends in "weight", quantised or not. */
static bool has_matrix(const struct model_files *f, const char *name)
{
    static const char *const endings[] = {"weight",  "weight_packed", "weight_scale",
                                          "qweight", "_weight_qdata", "W_q"};
    const int base = (int)(strlen(name) - strlen("weight"));
    char own[NAME_BYTES_MAX + 16];
    for (size_t i = 0; i < array_length(endings); i++) {
        snprintf(own, sizeof own, "%.*s%s", base, name, endings[i]);
        if (safetensors_find(f->safetensors, own)) return true;
    }
    return false;
}

/* Whether the directory has each expert by itself, of a family whose tensors have all, or under names of their own. */
static void find_numbered_experts(struct model_files *f)
{
    const int32_t layer = first_sparse_layer(f);
    char name[NAME_BYTES_MAX];
    if (!f->config.family->hf_numbered_experts || layer == f->config.num_layers) return;
    f->has_numbered_experts = true; /* for their names */
    name_weight(f, WEIGHT_EXPERT_DOWN, layer, 0, name);
    f->has_numbered_experts = has_matrix(f, name);
}

/* Whether they do, of a family whose published files have them so: what newer programs save has rows, and MXFP4 other names. Told by a
 * matrix that is not square. */
static void find_transposed_experts(struct model_files *f)
{
    const struct model_config *c = &f->config;
    const int32_t layer = first_sparse_layer(f);
    const enum weight_role role =
        c->hidden_size != c->expert_intermediate_size ? WEIGHT_EXPERT_DOWN : WEIGHT_EXPERT_GATE;
    const int64_t rows =
        role == WEIGHT_EXPERT_DOWN ? c->hidden_size : 2 * (int64_t)c->expert_intermediate_size;
    char name[NAME_BYTES_MAX];
    if (!c->family->hf_experts_transposed || f->has_numbered_experts || f->mlx_experts.is_there ||
        layer == c->num_layers)
        return;
    name_weight(f, role, layer, 0, name);
    const struct safetensor *t = safetensors_find(f->safetensors, name);
    f->has_transposed_experts = t && (t->num_dims != 3 || t->dims[1] != (uint64_t)rows);
}

/* The tensor of a role in the first layer that wants it; NULL: there is none. */
static const struct safetensor *find_in_first_layer(const struct model_files *f, enum weight_role role)
{
    const struct weight_line *line = line_of(f, role);
    int32_t layer = 0;
    char name[NAME_BYTES_MAX];
    while (layer < f->config.num_layers && !weight_is_wanted(&f->config, line->presence, layer)) layer++;
    if (layer == f->config.num_layers || !line->hf_name) return NULL;
    name_weight(f, role, layer, 0, name);
    return safetensors_find(f->safetensors, name);
}

static bool has_turned_convolution(const struct model_files *f)
{
    const struct safetensor *t = find_in_first_layer(f, WEIGHT_DELTA_CONVOLUTION);
    return t && is_column_by_column(t, WEIGHT_DELTA_CONVOLUTION) && t->dims[1] > 1;
}

/* Whether the directory is of MLX's programs: of experts in modules of theirs, of latents whose halves lie apart, and beside a convolution
 * whose sides they have changed of norms to which they have added 1. STATUS_UNSUPPORTED where they have multiplied weights as well. */
static int find_mlx(struct model_files *f, struct error *err)
{
    struct model_config *c = &f->config;
    f->mlx_experts.is_there = true; /* for their names */
    for (int module = 0; module < MLX_NUM_MODULES; module++) {
        mlx_experts_name(&f->mlx_experts, c->family->weight_changes, module);
        if (find_in_first_layer(f, WEIGHT_EXPERT_DOWN)) break;
    }
    f->mlx_experts.is_there = find_in_first_layer(f, WEIGHT_EXPERT_DOWN);
    c->latent.is_split = true;
    c->latent.is_split = find_in_first_layer(f, WEIGHT_LATENT_K_B);
    if (!has_turned_convolution(f)) return STATUS_OK;
    c->norm_offset = 0;
    if (!c->family->has_branch_scales) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s: weights that MLX has multiplied by the config's multipliers are not supported",
                     f->path);
}

/* Of the same shape; their first and last bytes stand for all. */
static bool may_be_copies(const struct safetensor *a, const struct safetensor *b)
{
    enum { BYTES_COMPARED = 1 << 20 };
    const uint64_t num = min_of(a->num_bytes, (uint64_t)BYTES_COMPARED), last = a->num_bytes - num;
    return a->dtype == b->dtype && !memcmp(a->data, b->data, num) &&
           !memcmp((const char *)a->data + last, (const char *)b->data + last, num);
}

/* A head that is no copy of the embedding goes before a config.json that says so: it is trained further, or quantised. */
static void find_own_head(struct model_files *f)
{
    struct model_config *c = &f->config;
    char name[NAME_BYTES_MAX], own[NAME_BYTES_MAX];
    if (!c->tie_word_embeddings || c->is_encoder) return;
    name_weight(f, WEIGHT_TOKEN_EMBEDDING, 0, 0, name);
    name_weight(f, WEIGHT_LM_HEAD, 0, 0, own);
    const struct safetensor *embedding = safetensors_find(f->safetensors, name),
                            *head = safetensors_find(f->safetensors, own);
    if (!head || head->dtype < 0 || dtype_is_code((enum dtype)head->dtype)) {
        c->tie_word_embeddings = !has_matrix(f, own);
        return;
    }
    const bool is_whole = head->num_dims == 2 && head->dims[0] == (uint64_t)c->vocab_size &&
                          head->dims[1] == (uint64_t)c->hidden_size;
    if (is_whole && embedding)
        c->tie_word_embeddings = head->num_bytes == embedding->num_bytes && may_be_copies(head, embedding);
}

static void find_fused_qkv(struct model_files *f)
{
    f->has_fused_qkv =
        f->config.family->gguf_may_fuse_qkv && gguf_find_tensor(f->gguf, "blk.0." FUSED_QKV).data;
}

static void find_fused_gate(struct model_files *f)
{
    f->has_fused_gate =
        f->config.family->gguf_may_fuse_gate && !gguf_find_tensor(f->gguf, "blk.0.ffn_gate.weight").data;
}

/* Whether the directory has what the family calls so, of the first layer or of none. */
static bool has_weight_of(struct model_files *f, const struct family *family, enum weight_role role)
{
    const struct family *own = f->config.family;
    char name[NAME_BYTES_MAX];
    f->config.family = family;
    name_weight(f, role, 0, 0, name);
    f->config.family = own;
    return safetensors_find(f->safetensors, name);
}

/* A directory does not say that it has norms of q and k. */
static void find_qk_norms(struct model_files *f)
{
    const struct family *other = f->config.family->with_qk_norms;
    if (!other || !has_weight_of(f, other, WEIGHT_Q_NORM)) return;
    f->config.family = other;
    f->config.qk_norm = true;
}

/* Nor that its names are another family's. */
static void find_names(struct model_files *f)
{
    const struct family *other = f->config.family->if_named;
    if (!other || !has_weight_of(f, other, WEIGHT_EMBEDDING_NORM) ||
        !has_weight_of(f, other, WEIGHT_TOKEN_EMBEDDING))
        return;
    f->config.family = other;
}

static int add_lora(struct model_files *f, struct lora_files *opened, struct error *err)
{
    struct lora_files **list = realloc(f->loras, ((size_t)f->num_loras + 1) * sizeof(struct lora_files *));
    if (!list) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", f->path);
    f->loras = list;
    list[f->num_loras++] = opened;
    return STATUS_OK;
}

static int open_tasks(struct model_files *f, struct error *err)
{
    int status = STATUS_OK;
    if (!f->config.family->has_tasks) f->config.tasks.num = 0;
    for (int32_t i = 0; i < f->config.tasks.num && !status; i++) {
        struct error why = {0};
        struct lora_files *opened = NULL;
        status = lora_files_open_task(f, i, &opened, &why);
        if (status) return error_set(err, status, "%s: %s", f->path, why.text);
        status = add_lora(f, opened, err);
        if (status) lora_files_close(opened);
    }
    return status ? status : task_embedding_create(f, &f->task_embedding, err);
}

static void find_fused_experts(struct model_files *f)
{
    const int32_t layer = first_sparse_layer(f);
    char name[NAME_BYTES_MAX];
    snprintf(name, sizeof name, "blk.%d." FUSED_EXPERTS, layer);
    f->has_fused_experts = layer < f->config.num_layers && gguf_find_tensor(f->gguf, name).data;
}

static int allocate_views(struct model_files *f, struct error *err)
{
    f->views = calloc(num_views(f), sizeof *f->views);
    return f->views ? STATUS_OK : error_set(err, STATUS_NO_MEMORY, "%s: no memory", f->path);
}

static int open_dense(struct model_files *f, struct error *err)
{
    int status = dense_files_open(&f->dense, &f->config, f->path, f->gguf, err);
    f->weight_bytes += dense_files_bytes(&f->dense);
    return status;
}

static int open_gguf(struct model_files *f, struct error *err)
{
    int status = gguf_open(f->path, &f->gguf, err);
    if (!status) status = gguf_config_read(f->gguf, f->path, &f->config, err);
    if (!status) status = gguf_sampling_read(f->gguf, f->path, &f->defaults, err);
    if (!status) status = allocate_views(f, err);
    if (!status) find_fused_experts(f);
    if (!status) find_fused_qkv(f);
    if (!status) find_fused_gate(f);
    if (!status) status = resolve_all(f, err);
    return status ? status : open_dense(f, err);
}

static int open_dummy(struct model_files *f, struct error *err)
{
    f->dummy = dummy_weights_create(0);
    if (!f->dummy) return error_set(err, STATUS_NO_MEMORY, "%s: no memory for dummy weights", f->path);
    f->weight_bytes = model_config_num_parameters(&f->config) * (uint64_t)dtype_infos[DTYPE_BF16].block_bytes;
    for (int32_t i = 0; i < f->config.dense.num_layers; i++) {
        const struct dense_layer *layer = &f->config.dense.layers[i];
        f->dense.matrices[i] =
            dummy_weights_matrix(f->dummy, num_views(f) + (uint64_t)i, layer->num_out, layer->num_in);
    }
    return STATUS_OK;
}

static int open_directory(struct model_files *f, bool is_dummy, struct error *err)
{
    int status = hf_config_read(f->path, &f->config, &f->defaults, err);
    if (status == STATUS_NOT_FOUND)
        return error_set(err, status,
                         "%s: has no config.json; a Hugging Face directory or a GGUF file is expected",
                         f->path);
    if (!status) status = allocate_views(f, err);
    if (status) return status;
    if (is_dummy) return open_dummy(f, err);
    status = safetensors_open(f->path, &f->safetensors, err);
    if (status) return status;
    find_qk_norms(f);
    find_names(f);
    find_stacked_experts(f);
    find_numbered_experts(f);
    status = find_mlx(f, err);
    if (status) return status;
    find_transposed_experts(f);
    find_own_head(f);
    status = resolve_all(f, err);
    if (!status) status = open_tasks(f, err);
    return status ? status : open_dense(f, err);
}

static int open_any(struct model_files *f, const char *load_format, struct error *err)
{
    struct stat st;
    bool is_dummy = !strcmp(load_format, "dummy");
    if (!is_dummy && strcmp(load_format, "auto") != 0)
        return error_set(err, STATUS_INVALID, "--load-format is \"%s\"; \"auto\" or \"dummy\" is expected",
                         load_format);
    if (strlen(f->path) > PATH_BYTES_MAX - 64)
        return error_set(err, STATUS_INVALID, "the model's path is too long");
    if (stat(f->path, &st)) return error_set(err, STATUS_NOT_FOUND, "%s: no such file or directory", f->path);
    if (S_ISDIR(st.st_mode)) return open_directory(f, is_dummy, err);
    if (is_dummy)
        return error_set(err, STATUS_INVALID, "%s: --load-format dummy needs a directory with a config.json",
                         f->path);
    return open_gguf(f, err);
}

int model_files_open(const char *path, const char *load_format, struct model_files **out, struct error *err)
{
    struct model_files *f = calloc(1, sizeof *f);
    if (f) f->path = strdup(path);
    if (!f || !f->path) {
        free(f);
        return error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
    }
    int status = open_any(f, load_format, err);
    if (status) {
        model_files_close(f);
        return status;
    }
    assert_debug((f->gguf != NULL) + (f->safetensors != NULL) + (f->dummy != NULL) == 1);
    *out = f;
    return STATUS_OK;
}

void model_files_close(struct model_files *f)
{
    if (!f) return;
    gguf_close(f->gguf);
    safetensors_close(f->safetensors);
    dense_files_close(&f->dense);
    dummy_weights_destroy(f->dummy);
    for (struct joined *next; f->joined; f->joined = next) {
        next = f->joined->next;
        free(f->joined);
    }
    for (int32_t i = 0; i < f->num_loras; i++) lora_files_close(f->loras[i]);
    free(f->loras);
    task_embedding_destroy(f->task_embedding);
    free(f->views);
    free(f->path);
    free(f);
}

const struct model_config *model_files_config(const struct model_files *f)
{
    return &f->config;
}

const struct generation_defaults *model_files_generation_defaults(const struct model_files *f)
{
    return &f->defaults;
}

struct weight_view model_files_weight(const struct model_files *f, enum weight_role role, int32_t layer)
{
    if (num_of_role(f, role) == 0) return (struct weight_view){.data = NULL};
    return model_files_expert(f, role, layer, 0);
}

struct weight_view model_files_expert(const struct model_files *f, enum weight_role role, int32_t layer,
                                      int32_t expert)
{
    assert_always(role < WEIGHT_ROLE_COUNT && layer >= 0 && layer < f->config.num_layers && expert >= 0 &&
                  expert < num_of_role(f, role));
    if (role == WEIGHT_LM_HEAD && f->config.tie_word_embeddings) role = WEIGHT_TOKEN_EMBEDDING;
    struct weight_view *view = &f->views[view_idx(f, role, layer, expert)];
    if (f->dummy && !view->data) *view = make_dummy(f, role, layer, expert);
    return *view;
}

/* As if the model were one; what its files are does not count. */
static struct model_files as_directory(const struct model_files *f)
{
    return (struct model_files){.config = f->config};
}

bool model_files_in_directory(const struct model_files *f, enum weight_role role, int32_t layer,
                              struct matrix_in_directory *out)
{
    const struct model_files there = as_directory(f);
    const struct weight_line *line = line_of(&there, role);
    if (!weight_is_wanted(&f->config, line->presence, layer) || !line->hf_name) return false;
    const bool is_behind = line->hf_name[0] == '+';
    *out = (struct matrix_in_directory){
        line->hf_name + is_behind, model_config_layer_in_file(&f->config, layer) + is_behind,
        stack_of(&there, role, layer, 0, false).rows, shape_of(&there, role, layer).cols};
    return true;
}

struct weight_view model_files_cut(const struct model_files *f, enum weight_role role, int32_t layer,
                                   const struct weight_view *tensor)
{
    const struct model_files there = as_directory(f);
    const struct stack stack = stack_of(&there, role, layer, 0, false);
    return rows_of(tensor, &stack, shape_of(&there, role, layer).rows);
}

int model_files_add_lora(struct model_files *f, const char *path, struct error *err)
{
    struct lora_files *opened = NULL;
    int status = path[0] ? lora_files_open(path, f, &opened, err) : STATUS_OK;
    if (!status) status = add_lora(f, opened, err);
    if (status) lora_files_close(opened);
    return status;
}

const struct safetensor *model_files_beside(const struct model_files *f, enum weight_role role, int32_t layer,
                                            const char *ending)
{
    static const char original[] = "original";
    char name[NAME_BYTES_MAX], own[NAME_BYTES_MAX + 16];
    const struct weight_line *line = line_of(f, role);
    if (!f->safetensors || !line->hf_name || !weight_is_wanted(&f->config, line->presence, layer))
        return NULL;
    name_weight(f, role, layer, 0, name);
    const size_t n = strlen(name), end = strlen(original);
    if (n < end || strcmp(name + n - end, original) != 0) return NULL;
    snprintf(own, sizeof own, "%.*s%s", (int)(n - end), name, ending);
    return safetensors_find(f->safetensors, own);
}

const struct task_embedding *model_files_task_embedding(const struct model_files *f)
{
    return f->task_embedding;
}

void model_files_set_lora_rank(struct model_files *f, int32_t max_rank)
{
    f->lora_rank = max_rank;
}

int32_t model_files_lora_rank(const struct model_files *f)
{
    return f->lora_rank;
}

int32_t model_files_num_loras(const struct model_files *f)
{
    return f->num_loras;
}

const struct lora_files *model_files_lora(const struct model_files *f, int32_t i)
{
    assert_debug(i >= 0 && i < f->num_loras);
    return f->loras[i];
}

uint64_t model_files_lora_bytes(const struct model_files *f)
{
    const uint64_t most = lora_files_most_bytes(f, f->lora_rank);
    const struct weight_view table =
        f->task_embedding ? task_embedding_table(f->task_embedding) : (struct weight_view){.data = NULL};
    uint64_t bytes = weight_view_bytes(&table);
    for (int32_t i = 0; i < f->num_loras; i++)
        bytes += max_of(most, f->loras[i] ? lora_files_bytes(f->loras[i]) : 0);
    return bytes;
}

const struct dense_files *model_files_dense(const struct model_files *f)
{
    return &f->dense;
}

void model_files_prefetch(const struct model_files *f, int32_t layer)
{
    assert_debug(layer >= 0);
    if (f->dummy || layer >= f->config.num_layers) return;
    const struct weight_view *first = &f->views[view_idx(f, (enum weight_role)FIRST_LAYER_ROLE, layer, 0)];
    for (const struct weight_view *view = first; view < first + views_per_layer(f); view++)
        if (view->data)
            file_map_prefetch(view->data,
                              (size_t)view->rows * dtype_row_bytes(view->dtype, (uint64_t)view->cols));
}

void model_files_drop_weights(const struct model_files *f)
{
    if (f->gguf) gguf_drop_pages(f->gguf);
    if (f->safetensors) safetensors_drop_pages(f->safetensors);
    if (!f->dummy) return;
    dummy_weights_clear(f->dummy);
    memset(f->views, 0, num_views(f) * sizeof *f->views);
}

bool model_files_is_gguf(const struct model_files *f)
{
    return f->gguf != NULL;
}

uint64_t model_files_weight_bytes(const struct model_files *f)
{
    return f->weight_bytes;
}
