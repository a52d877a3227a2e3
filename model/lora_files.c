#include "model/lora_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "files/json_read.h"
#include "files/safetensors.h"
#include "model/model_files.h"

enum { PATH_BYTES_MAX = 4096, CONFIG_BYTES_MAX = 1 << 20, ALPHA_MAX = 1 << 20 };

static const enum weight_role adapted_roles[] = {WEIGHT_Q,    WEIGHT_K,  WEIGHT_V,   WEIGHT_O,
                                                 WEIGHT_GATE, WEIGHT_UP, WEIGHT_DOWN};

enum { NUM_ROLES = sizeof adapted_roles / sizeof adapted_roles[0] };

/* A tensor by what its name says: the number of a layer, and behind it a matrix. */
struct entry {
    const struct safetensor *tensor;
    const char *matrix;
    size_t matrix_bytes;
    int64_t layer;
    bool is_up, is_used;
};

struct lora_files {
    const char *path; /* while it is opened */
    struct safetensors *tensors;
    cJSON *config;
    double alpha;
    bool by_root; /* of the rank */
    struct entry *entries;
    uint64_t num_entries;
    struct lora_part *parts;      /* [num_layers][NUM_ROLES] */
    struct lora_part token, type; /* of a task: what is added to embeddings */
    void **turned;                /* rows in another order: [num_layers][NUM_ROLES], NULL: as they are */
    size_t num_parts;
};

/* ---- adapter_config.json ---- */

/* Fields that change what an adapter computes, and what they say where it is what is computed here. */
static const char *const must_be_false[] = {"use_dora", "lora_bias", "use_qalora"},
                         *const must_be_absent[] = {"modules_to_save",   "layer_replication",
                                                    "target_parameters", "trainable_token_indices",
                                                    "megatron_config",   "alora_invocation_tokens",
                                                    "arrow_config"};

static bool is_empty(const cJSON *value)
{
    return !value || ((cJSON_IsArray(value) || cJSON_IsObject(value)) && !value->child);
}

/* Those that changed the matrices themselves: what is saved goes with matrices that nobody has. */
static bool changes_matrices(const char *init)
{
    static const char *const ways[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};
    for (size_t i = 0; i < array_length(ways); i++)
        if (!strncmp(init, ways[i], strlen(ways[i]))) return true;
    return false;
}

static int refuse(struct json_reader *r, const char *key, const char *why)
{
    r->status = error_set(r->err, STATUS_UNSUPPORTED, "%s: %s %s", r->path, key, why);
    return r->status;
}

static int check_config(struct json_reader *r)
{
    const char *type = json_text(r, "peft_type", "LORA"), *bias = json_text(r, "bias", "none");
    const cJSON *init = json_find(r, "init_lora_weights");
    if (r->status) return r->status;
    if (strcmp(type, "LORA") != 0) return refuse(r, "peft_type", "is not LORA, which alone is supported");
    if (strcmp(bias, "none") != 0) return refuse(r, "bias", "is not \"none\", which alone is supported");
    if (cJSON_IsString(init) && changes_matrices(init->valuestring))
        return refuse(r, "init_lora_weights",
                      "names a way that changes the model's own matrices; convert the adapter to plain LoRA "
                      "(path_initial_model_for_weight_conversion of PEFT's save_pretrained)");
    for (size_t i = 0; i < array_length(must_be_false); i++)
        if (json_bool(r, must_be_false[i], false) && !r->status)
            return refuse(r, must_be_false[i], "is true, which is not supported");
    for (size_t i = 0; i < array_length(must_be_absent); i++)
        if (!is_empty(json_find(r, must_be_absent[i])))
            return refuse(r, must_be_absent[i], "is there, which is not supported");
    return r->status;
}

static bool is_plain_name(const char *name)
{
    return name && name[0] &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.")];
}

static int check_alphas(struct json_reader *r)
{
    const cJSON *item, *alphas = json_find(r, "alpha_pattern");
    if (alphas && !cJSON_IsObject(alphas)) return refuse(r, "alpha_pattern", "is no object");
    cJSON_ArrayForEach(item, alphas)
    {
        if (!is_plain_name(item->string))
            return refuse(r, "alpha_pattern", "has a name that is a pattern; names of modules are supported");
        if (!cJSON_IsNumber(item) || !(fabs(item->valuedouble) <= ALPHA_MAX))
            return refuse(r, "alpha_pattern", "has something that is no number in its range");
    }
    return r->status;
}

static int read_config(struct lora_files *f, struct error *err)
{
    char path[PATH_BYTES_MAX];
    if (snprintf(path, sizeof path, "%s/adapter_config.json", f->path) >= (int)sizeof path)
        return error_set(err, STATUS_INVALID, "the adapter's path is too long");
    int status = json_file_read(path, CONFIG_BYTES_MAX, &f->config, err);
    if (status == STATUS_NOT_FOUND)
        return error_set(err, status,
                         "%s: no adapter: it has no adapter_config.json, which PEFT's save_pretrained writes",
                         f->path);
    if (status) return status;
    struct json_reader r = {.object = f->config, .path = path, .err = err};
    if (!cJSON_IsObject(f->config)) return error_set(err, STATUS_INVALID, "%s: it is no JSON object", path);
    status = check_config(&r);
    if (!status) status = check_alphas(&r);
    f->alpha = json_real(&r, "lora_alpha", 8, -ALPHA_MAX, ALPHA_MAX);
    f->by_root = json_bool(&r, "use_rslora", false);
    return status ? status : r.status;
}

/* A key of alpha_pattern is a module's name, or the end of it behind a dot. */
static bool is_of_module(const char *key, const char *module, size_t module_bytes)
{
    const size_t n = strlen(key);
    return n <= module_bytes && !memcmp(module + module_bytes - n, key, n) &&
           (n == module_bytes || module[module_bytes - n - 1] == '.');
}

static float scale_of(const struct lora_files *f, const struct entry *e, int64_t rank)
{
    const char *name = e->tensor->name;
    const size_t module_bytes = (size_t)(e->matrix - name) + e->matrix_bytes;
    const cJSON *item;
    double alpha = f->alpha;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(f->config, "alpha_pattern"))
    {
        if (!is_of_module(item->string, name, module_bytes)) continue;
        alpha = item->valuedouble;
        break;
    }
    return (float)(alpha / (f->by_root ? sqrt((double)rank) : (double)rank));
}

/* ---- tensors ---- */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), tail = strlen(end);
    return n > tail && !strcmp(name + n - tail, end);
}

/* The first part of a name that is a number is the layer's. */
static bool read_name(const struct safetensor *t, struct entry *e)
{
    static const char down[] = ".lora_A.weight", up[] = ".lora_B.weight";
    const size_t n = strlen(t->name);
    *e = (struct entry){.tensor = t, .is_up = ends_with(t->name, up)};
    if (!e->is_up && !ends_with(t->name, down)) return false;
    for (const char *dot = strchr(t->name, '.'); dot; dot = strchr(dot + 1, '.')) {
        const size_t digits = strspn(dot + 1, "0123456789");
        if (digits == 0 || digits > 6 || dot[1 + digits] != '.') continue;
        e->layer = strtoll(dot + 1, NULL, 10);
        e->matrix = dot + digits + 2;
        const char *end = t->name + n - strlen(up);
        if (e->matrix >= end) return false;
        e->matrix_bytes = (size_t)(end - e->matrix);
        return true;
    }
    return false;
}

static int refuse_tensor(const struct lora_files *f, const struct safetensor *t, struct error *err)
{
    return error_set(
        err, STATUS_UNSUPPORTED,
        "%s: tensor %.150s is not of a matrix that adapters work on here: q, k, v, o of attention and "
        "gate, up, down of an MLP of this model",
        f->path, t->name);
}

static int list_entries(struct lora_files *f, struct error *err)
{
    f->num_entries = safetensors_num_tensors(f->tensors);
    f->entries = calloc((size_t)f->num_entries + 1, sizeof *f->entries);
    if (!f->entries) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", f->path);
    for (uint64_t i = 0; i < f->num_entries; i++) {
        const struct safetensor *t = safetensors_tensor(f->tensors, i);
        if (!read_name(t, &f->entries[i])) {
            refuse_tensor(f, t, err);
            return STATUS_UNSUPPORTED;
        }
    }
    return STATUS_OK;
}

static struct entry *find_entry(struct lora_files *f, const struct matrix_in_directory *m, bool is_up)
{
    const size_t n = strlen(m->name) - (ends_with(m->name, ".weight") ? strlen(".weight") : 0);
    for (uint64_t i = 0; i < f->num_entries; i++) {
        struct entry *e = &f->entries[i];
        if (e->is_up == is_up && e->layer == m->layer && e->matrix_bytes == n &&
            !memcmp(e->matrix, m->name, n))
            return e;
    }
    return NULL;
}

/* rows or cols 0: any up to LORA_RANK_MAX. */
static int view_of(const struct lora_files *f, const struct entry *e, int64_t rows, int64_t cols,
                   struct weight_view *out, struct error *err)
{
    const struct safetensor *t = e->tensor;
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: tensor %.150s is of type %s; F32, F16 and BF16 are supported", f->path, t->name,
                         t->dtype_text);
    const uint64_t rank = t->num_dims == 2 ? t->dims[rows ? 1 : 0] : 0;
    if (rank == 0 || rank > LORA_RANK_MAX ||
        (rows ? t->dims[0] : t->dims[1]) != (uint64_t)(rows ? rows : cols))
        return error_set(err, STATUS_INVALID,
                         "%s: tensor %.150s does not fit the model: %" PRId64
                         " values and a rank of 1 to %d are expected",
                         f->path, t->name, rows ? rows : cols, (int)LORA_RANK_MAX);
    *out = weight_view_plain(t->data, (enum dtype)t->dtype, (int64_t)t->dims[0], (int64_t)t->dims[1]);
    return STATUS_OK;
}

/* Rows of Q or K as llama.cpp's converter leaves those of its heads for a rotation of neighbours: row 2 i of a head was row i, row
 * 2 i + 1 was row D / 2 + i. */
static void *turn_rows(const struct weight_view *v, int64_t num_heads)
{
    const size_t row_bytes = (size_t)dtype_row_bytes(v->dtype, (uint64_t)v->cols);
    const int64_t num_rows = weight_view_num_rows(v), dim = num_rows / num_heads;
    char *out = malloc((size_t)num_rows * row_bytes);
    for (int64_t row = 0; row < num_rows && out; row++) {
        const int64_t in_head = row % dim, from = row - in_head + in_head % 2 * (dim / 2) + in_head / 2;
        memcpy(out + (size_t)row * row_bytes,
               (const char *)v->data + (size_t)weight_view_file_row(v, from) * row_bytes, row_bytes);
    }
    return out;
}

static bool is_turned(const struct model_files *model, enum weight_role role)
{
    const struct family *family = model_files_config(model)->family;
    return (role == WEIGHT_Q || role == WEIGHT_K) && model_files_is_gguf(model) &&
           family->gguf_rope_style == ROPE_PAIRS && family->hf_rope_style == ROPE_HALVES;
}

/* As one piece of its own, if its rows are to lie otherwise than they do. */
static int place_rows(struct lora_files *f, const struct model_files *model, enum weight_role role,
                      int32_t layer, size_t i, struct weight_view *up, struct error *err)
{
    const struct layer_config l = model_config_layer(model_files_config(model), layer);
    const int64_t num_rows = weight_view_num_rows(up);
    const bool turns = is_turned(model, role);
    if (!turns && num_rows == up->rows) return STATUS_OK;
    f->turned[i] = turn_rows(up, turns ? (role == WEIGHT_Q ? l.num_heads : l.num_kv_heads) : num_rows);
    if (!f->turned[i]) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", f->path);
    *up = weight_view_plain(f->turned[i], up->dtype, num_rows, up->cols);
    return STATUS_OK;
}

/* Projections of latent attention are none of those that adapters work on. */
static bool find_matrix(const struct model_files *model, enum weight_role role, int32_t layer,
                        struct matrix_in_directory *m)
{
    const bool has_latents = model_files_config(model)->latent.rank > 0;
    return (!has_latents || role > WEIGHT_O) && model_files_in_directory(model, role, layer, m);
}

static int find_part(struct lora_files *f, const struct model_files *model, int32_t layer, int role_idx,
                     struct error *err)
{
    const enum weight_role role = adapted_roles[role_idx];
    const size_t i = (size_t)layer * NUM_ROLES + (size_t)role_idx;
    struct lora_part *part = &f->parts[i];
    struct matrix_in_directory m;
    if (!find_matrix(model, role, layer, &m)) return STATUS_OK;
    struct entry *down = find_entry(f, &m, false), *up = find_entry(f, &m, true);
    if (!down && !up) return STATUS_OK;
    if (!down || !up)
        return error_set(err, STATUS_INVALID, "%s: tensor %.150s has no other half", f->path,
                         (down ? down : up)->tensor->name);
    down->is_used = up->is_used = true;
    int status = view_of(f, down, 0, m.cols, &part->down, err);
    if (!status) status = view_of(f, up, m.rows, 0, &part->up, err);
    if (!status && part->down.rows != part->up.cols)
        status = error_set(err, STATUS_INVALID, "%s: tensor %.150s has another rank than its other half",
                           f->path, up->tensor->name);
    if (status) return status;
    part->scale = scale_of(f, down, part->down.rows);
    part->up = model_files_cut(model, role, layer, &part->up);
    return place_rows(f, model, role, layer, i, &part->up, err);
}

static int find_parts(struct lora_files *f, const struct model_files *model, struct error *err)
{
    const struct model_config *c = model_files_config(model);
    int status = STATUS_OK;
    f->num_parts = (size_t)c->num_layers * NUM_ROLES;
    f->parts = calloc(f->num_parts, sizeof *f->parts);
    f->turned = calloc(f->num_parts, sizeof *f->turned);
    if (!f->parts || !f->turned) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", f->path);
    for (int32_t layer = 0; layer < c->num_layers && !status; layer++)
        for (int i = 0; i < NUM_ROLES && !status; i++) status = find_part(f, model, layer, i, err);
    for (uint64_t i = 0; i < f->num_entries && !status; i++)
        if (!f->entries[i].is_used) status = refuse_tensor(f, f->entries[i].tensor, err);
    return status;
}

static int open_all(struct lora_files *f, const struct model_files *model, struct error *err)
{
    if (model_files_config(model)->is_encoder)
        return error_set(err, STATUS_UNSUPPORTED, "%s: an encoder has no adapters here", f->path);
    int status = read_config(f, err);
    if (!status) status = safetensors_open_file(f->path, "adapter_model.safetensors", &f->tensors, err);
    if (!status) status = list_entries(f, err);
    if (!status && f->num_entries == 0)
        status = error_set(err, STATUS_INVALID, "%s: its adapter_model.safetensors has no tensor", f->path);
    return status ? status : find_parts(f, model, err);
}

int lora_files_open(const char *path, const struct model_files *model, struct lora_files **out,
                    struct error *err)
{
    struct lora_files *f = calloc(1, sizeof *f);
    if (!f) return error_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
    f->path = path;
    int status = open_all(f, model, err);
    f->path = NULL;
    free(f->entries);
    f->entries = NULL;
    if (status)
        lora_files_close(f);
    else
        *out = f;
    return status;
}

/* ---- tasks ---- */

/* A task's part of a tensor of those of all: [tasks][rows][cols]; rows or cols 0: any rank. */
static int view_of_task(const struct model_files *model, const struct safetensor *t, int32_t task,
                        int64_t rows, int64_t cols, struct weight_view *out, struct error *err)
{
    const int64_t num = model_files_config(model)->tasks.num;
    const bool has_shape = t->num_dims == 3 && t->dims[0] == (uint64_t)num;
    const uint64_t rank = has_shape ? t->dims[rows ? 2 : 1] : 0;
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return error_set(err, STATUS_UNSUPPORTED,
                         "tensor %.150s is of type %s; F32, F16 and BF16 are supported", t->name,
                         t->dtype_text);
    if (rank == 0 || rank > LORA_RANK_MAX || t->dims[rows ? 1 : 2] != (uint64_t)(rows ? rows : cols))
        return error_set(err, STATUS_INVALID,
                         "tensor %.150s does not fit the model: %" PRId64 " tasks, %" PRId64
                         " values and a rank of 1 to %d are expected",
                         t->name, num, rows ? rows : cols, (int)LORA_RANK_MAX);
    const char *data = t->data;
    data += t->num_bytes / (uint64_t)num * (uint64_t)task;
    *out = weight_view_plain(data, (enum dtype)t->dtype, (int64_t)t->dims[1], (int64_t)t->dims[2]);
    return STATUS_OK;
}

/* rows, cols: of what A is beside. An embedding's A is looked up, so that it has the ranks as columns. */
static int find_task_part(const struct model_files *model, enum weight_role role, int32_t layer, int32_t task,
                          int64_t rows, int64_t cols, struct lora_part *part, struct error *err)
{
    const bool is_embedding = role < WEIGHT_ATTENTION_NORM;
    const struct safetensor *a = model_files_beside(model, role, layer, "0.lora_A"),
                            *b = model_files_beside(model, role, layer, "0.lora_B");
    if (!a && !b) return STATUS_OK;
    if (!a || !b) return error_set(err, STATUS_INVALID, "tensor %.150s has no other half", (a ? a : b)->name);
    int status = view_of_task(model, a, task, is_embedding ? rows : 0, cols, &part->down, err);
    if (!status) status = view_of_task(model, b, task, is_embedding ? 0 : rows, cols, &part->up, err);
    if (status) return status;
    if ((is_embedding ? part->down.cols : part->down.rows) != (is_embedding ? part->up.rows : part->up.cols))
        return error_set(err, STATUS_INVALID, "tensor %.150s has another rank than its other half", b->name);
    part->scale = model_files_config(model)->task_scale;
    if (!is_embedding) part->up = model_files_cut(model, role, layer, &part->up);
    return STATUS_OK;
}

static int find_task_parts(struct lora_files *f, const struct model_files *model, int32_t task,
                           struct error *err)
{
    const struct model_config *c = model_files_config(model);
    struct matrix_in_directory m;
    int status =
        find_task_part(model, WEIGHT_TOKEN_EMBEDDING, 0, task, c->vocab_size, c->hidden_size, &f->token, err);
    if (!status)
        status = find_task_part(model, WEIGHT_TYPE_EMBEDDING, 0, task, c->num_type_rows, c->hidden_size,
                                &f->type, err);
    f->num_parts = (size_t)c->num_layers * NUM_ROLES;
    f->parts = calloc(f->num_parts, sizeof *f->parts);
    if (!f->parts) return error_set(err, STATUS_NO_MEMORY, "no memory for tasks");
    for (size_t i = 0; i < f->num_parts && !status; i++) {
        const enum weight_role role = adapted_roles[i % NUM_ROLES];
        const int32_t layer = (int32_t)(i / NUM_ROLES);
        if (model_files_in_directory(model, role, layer, &m))
            status = find_task_part(model, role, layer, task, m.rows, m.cols, &f->parts[i], err);
    }
    return status;
}

int lora_files_open_task(const struct model_files *model, int32_t task, struct lora_files **out,
                         struct error *err)
{
    struct lora_files *f = calloc(1, sizeof *f);
    if (!f) return error_set(err, STATUS_NO_MEMORY, "no memory for tasks");
    int status = find_task_parts(f, model, task, err);
    if (status)
        lora_files_close(f);
    else
        *out = f;
    return status;
}

void lora_files_close(struct lora_files *f)
{
    if (!f) return;
    for (size_t i = 0; i < f->num_parts && f->turned; i++) free(f->turned[i]);
    free(f->turned);
    free(f->parts);
    safetensors_close(f->tensors);
    cJSON_Delete(f->config);
    free(f);
}

uint64_t lora_files_bytes(const struct lora_files *f)
{
    uint64_t bytes = weight_view_bytes(&f->token.down) + weight_view_bytes(&f->token.up) +
                     weight_view_bytes(&f->type.down) + weight_view_bytes(&f->type.up);
    for (size_t i = 0; i < f->num_parts; i++)
        bytes += weight_view_bytes(&f->parts[i].down) + weight_view_bytes(&f->parts[i].up);
    return bytes;
}

int32_t lora_files_rank(const struct lora_files *f)
{
    int64_t rank = 0;
    for (size_t i = 0; i < f->num_parts; i++) rank = max_of(rank, f->parts[i].down.rows);
    return (int32_t)rank;
}

bool lora_files_may_add(const struct model_files *model, enum weight_role role, int32_t layer)
{
    struct matrix_in_directory m;
    for (int i = 0; i < NUM_ROLES; i++)
        if (adapted_roles[i] == role) return find_matrix(model, role, layer, &m);
    return false;
}

uint64_t lora_files_most_bytes(const struct model_files *model, int32_t rank)
{
    const struct model_config *c = model_files_config(model);
    struct matrix_in_directory m;
    uint64_t values = 0;
    for (int32_t layer = 0; layer < c->num_layers && !c->is_encoder; layer++)
        for (int i = 0; i < NUM_ROLES; i++)
            if (find_matrix(model, adapted_roles[i], layer, &m)) values += (uint64_t)(m.rows + m.cols);
    return values * (uint64_t)rank * dtype_infos[DTYPE_BF16].block_bytes;
}

struct lora_part lora_files_part(const struct lora_files *f, enum weight_role role, int32_t layer)
{
    if (f && role == WEIGHT_TOKEN_EMBEDDING) return f->token;
    if (f && role == WEIGHT_TYPE_EMBEDDING) return f->type;
    for (int i = 0; i < NUM_ROLES && f; i++)
        if (adapted_roles[i] == role) return f->parts[(size_t)layer * NUM_ROLES + (size_t)i];
    return (struct lora_part){.scale = 0};
}
