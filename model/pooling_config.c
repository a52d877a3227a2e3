#include "model/pooling_config.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "files/json_read.h"

enum { PATH_BYTES_MAX = 4096, MODULES_BYTES_MAX = 1 << 20, KEY_BYTES_MAX = 96 };

/* ---- sentence-transformers ---- */

/* NULL: there is no such file, or nothing that can be read. */
static cJSON *read_json(const char *directory, const char *folder, const char *name)
{
    char path[PATH_BYTES_MAX];
    struct error ignored;
    cJSON *root = NULL;
    if (snprintf(path, sizeof path, "%s/%s%s", directory, folder, name) >= (int)sizeof path) return NULL;
    return json_file_read(path, MODULES_BYTES_MAX, &root, &ignored) ? NULL : root;
}

/* Newer files name one mode; older ones have a flag for each. More than one is a mode of its own. */
static enum pooling mode_of(const cJSON *config)
{
    const char *mode = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "pooling_mode"));
    bool last = mode && !strcmp(mode, "lasttoken"), mean = mode && !strcmp(mode, "mean"),
         first = mode && !strcmp(mode, "cls");
    int num_modes = mode != NULL;
    const cJSON *item;
    cJSON_ArrayForEach(item, config)
    {
        if (!cJSON_IsTrue(item) || !item->string || strncmp(item->string, "pooling_mode_", 13) != 0) continue;
        num_modes++;
        last |= !strcmp(item->string, "pooling_mode_lasttoken");
        mean |= !strcmp(item->string, "pooling_mode_mean_tokens");
        first |= !strcmp(item->string, "pooling_mode_cls_token");
    }
    if (num_modes > 1 || !(last || mean || first)) return POOLING_NONE;
    return last ? POOLING_LAST : mean ? POOLING_MEAN : POOLING_FIRST;
}

/* A folder of the directory itself. */
static bool folder_of(const cJSON *module, char folder[FOLDER_BYTES_MAX])
{
    const char *path = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(module, "path"));
    if (!path || strstr(path, "..") || path[0] == '/') return false;
    return snprintf(folder, FOLDER_BYTES_MAX, "%s%s", path, path[0] ? "/" : "") < FOLDER_BYTES_MAX;
}

static enum pooling pooling_of(const char *directory, const cJSON *module)
{
    char folder[FOLDER_BYTES_MAX];
    cJSON *config = folder_of(module, folder) ? read_json(directory, folder, "config.json") : NULL;
    enum pooling pooling = mode_of(config);
    cJSON_Delete(config);
    return pooling;
}

static bool type_ends_with(const cJSON *module, const char *name)
{
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(module, "type"));
    size_t n = type ? strlen(type) : 0, tail = strlen(name);
    return n >= tail && !strcmp(type + n - tail, name);
}

int64_t pooling_config_longest_hf(const char *directory)
{
    cJSON *config = read_json(directory, "", "sentence_bert_config.json");
    int64_t longest = 0;
    if (!json_is_int(cJSON_GetObjectItemCaseSensitive(config, "max_seq_length"), &longest)) longest = 0;
    cJSON_Delete(config);
    return max_of(longest, (int64_t)0);
}

static bool read_dense_layer(const char *directory, const cJSON *module, struct dense_layer *layer)
{
    if (!folder_of(module, layer->folder)) return false;
    cJSON *config = read_json(directory, layer->folder, "config.json");
    struct error ignored = {0};
    struct json_reader r = {.object = config, .path = layer->folder, .err = &ignored};
    layer->num_in = (int32_t)json_int_required(&r, "in_features", 1, 1 << 20);
    layer->num_out = (int32_t)json_int_required(&r, "out_features", 1, 1 << 20);
    layer->has_bias = json_bool(&r, "bias", true);
    const char *function = json_text(&r, "activation_function", "torch.nn.modules.activation.Tanh"),
               *last = strrchr(function, '.');
    last = last ? last + 1 : function;
    layer->is_tanh = !strcmp(last, "Tanh");
    const bool known = r.status == STATUS_OK && (layer->is_tanh || !strcmp(last, "Identity"));
    cJSON_Delete(config);
    return known;
}

static bool add_dense_layer(const char *directory, const cJSON *module, struct dense_chain *dense)
{
    return dense->num_layers < DENSE_LAYERS_MAX &&
           read_dense_layer(directory, module, &dense->layers[dense->num_layers++]);
}

enum pooling pooling_config_read_hf(const char *directory, enum pooling otherwise, struct dense_chain *dense)
{
    cJSON *modules = read_json(directory, "", "modules.json");
    enum pooling pooling = otherwise;
    const cJSON *module;
    bool known = true, is_pooled = false, is_normalized = false;
    *dense = (struct dense_chain){0};
    cJSON_ArrayForEach(module, modules)
    {
        if (type_ends_with(module, ".Pooling")) {
            pooling = pooling_of(directory, module);
            is_pooled = true;
        } else if (type_ends_with(module, ".Dense")) {
            known &= is_pooled && !is_normalized && add_dense_layer(directory, module, dense);
        } else if (type_ends_with(module, ".Normalize")) {
            is_normalized = true;
        } else {
            known &= type_ends_with(module, ".Transformer");
        }
    }
    cJSON_Delete(modules);
    if (!known) pooling = POOLING_NONE;
    if (pooling == POOLING_NONE) dense->num_layers = 0;
    return pooling;
}

/* ---- GGUF ---- */

enum pooling pooling_config_read_gguf(const struct gguf *g, const char *architecture, enum pooling otherwise,
                                      bool *is_reranker)
{
    enum { NONE = 0, MEAN = 1, FIRST = 2, LAST = 3, RANK = 4 };
    char key[KEY_BYTES_MAX];
    int64_t type = NONE;
    snprintf(key, sizeof key, "%s.pooling_type", architecture);
    gguf_find_int(g, key, &type);
    *is_reranker = type == RANK;
    if (type == NONE) return otherwise;
    if (type == MEAN) return POOLING_MEAN;
    if (type == FIRST) return POOLING_FIRST;
    return type == LAST || type == RANK ? POOLING_LAST : POOLING_NONE;
}

void pooling_config_read_dense(const struct gguf *g, struct dense_chain *dense)
{
    static const char *const names[] = {"dense_2.weight", "dense_3.weight"};
    *dense = (struct dense_chain){0};
    for (size_t i = 0; i < array_length(names); i++) {
        const struct weight_view view = gguf_find_tensor(g, names[i]);
        if (!view.data) continue;
        struct dense_layer *layer = &dense->layers[dense->num_layers++];
        *layer = (struct dense_layer){.num_in = (int32_t)min_of(view.cols, (int64_t)INT32_MAX),
                                      .num_out = (int32_t)min_of(view.rows, (int64_t)INT32_MAX)};
        snprintf(layer->folder, sizeof layer->folder, "%s", names[i]);
    }
}
