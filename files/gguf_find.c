#include "files/gguf_tables.h"

#include <stdlib.h>

#include "base/check.h"

const uint8_t gguf_type_bytes[TYPE_COUNT] = {
    [TYPE_U8] = 1,  [TYPE_I8] = 1,   [TYPE_U16] = 2, [TYPE_I16] = 2, [TYPE_U32] = 4, [TYPE_I32] = 4,
    [TYPE_F32] = 4, [TYPE_BOOL] = 1, [TYPE_U64] = 8, [TYPE_I64] = 8, [TYPE_F64] = 8,
};

static int compare_names(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int order = memcmp(a, b, min_of(a_bytes, b_bytes));
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

int gguf_compare_keys(const void *a, const void *b)
{
    const struct gguf_key *x = a, *y = b;
    return compare_names(x->name, x->name_bytes, y->name, y->name_bytes);
}

int gguf_compare_tensors(const void *a, const void *b)
{
    const struct gguf_tensor *x = a, *y = b;
    return compare_names(x->name, x->name_bytes, y->name, y->name_bytes);
}

static const struct gguf_key *find_key(const struct gguf *g, const char *name)
{
    if (!g->num_keys) return NULL;
    struct gguf_key wanted = {.name = name, .name_bytes = strlen(name)};
    return bsearch(&wanted, g->keys, g->num_keys, sizeof *g->keys, gguf_compare_keys);
}

/* ---- values ---- */

bool gguf_has_key(const struct gguf *g, const char *key)
{
    return find_key(g, key) != NULL;
}

static bool value_to_int(uint32_t type, const unsigned char *p, int64_t *value)
{
    switch (type) {
    case TYPE_U8:
        *value = p[0];
        return true;
    case TYPE_I8:
        *value = p[0] - 2 * (p[0] & 0x80);
        return true;
    case TYPE_U16:
        *value = p[0] | p[1] << 8;
        return true;
    case TYPE_I16:
        *value = (int16_t)(p[0] | p[1] << 8);
        return true;
    case TYPE_U32:
        *value = load_u32(p);
        return true;
    case TYPE_I32:
        *value = (int32_t)load_u32(p);
        return true;
    case TYPE_I64:
        *value = (int64_t)load_u64(p);
        return true;
    case TYPE_U64:
        if (load_u64(p) > INT64_MAX) return false;
        *value = (int64_t)load_u64(p);
        return true;
    default:
        return false;
    }
}

static bool value_to_real(uint32_t type, const unsigned char *p, double *value)
{
    int64_t integer;
    float f;
    if (type == TYPE_F32) {
        memcpy(&f, p, sizeof f);
        *value = (double)f;
    } else if (type == TYPE_F64) {
        memcpy(value, p, sizeof *value);
    } else if (value_to_int(type, p, &integer)) {
        *value = (double)integer;
    } else {
        return false;
    }
    return true;
}

bool gguf_find_text(const struct gguf *g, const char *key, const char **text, size_t *num_bytes)
{
    const struct gguf_key *k = find_key(g, key);
    if (!k || k->type != TYPE_TEXT) return false;
    *num_bytes = (size_t)load_u64(k->value);
    *text = (const char *)k->value + 8;
    return true;
}

bool gguf_find_int(const struct gguf *g, const char *key, int64_t *value)
{
    const struct gguf_key *k = find_key(g, key);
    return k && value_to_int(k->type, k->value, value);
}

bool gguf_find_real(const struct gguf *g, const char *key, double *value)
{
    const struct gguf_key *k = find_key(g, key);
    return k && value_to_real(k->type, k->value, value);
}

bool gguf_find_bool(const struct gguf *g, const char *key, bool *value)
{
    const struct gguf_key *k = find_key(g, key);
    if (!k || k->type != TYPE_BOOL) return false;
    *value = k->value[0] != 0;
    return true;
}

bool gguf_find_array(const struct gguf *g, const char *key, struct gguf_array *array)
{
    const struct gguf_key *k = find_key(g, key);
    if (!k || k->type != TYPE_ARRAY) return false;
    *array = (struct gguf_array){
        .num_items = load_u64(k->value + 4), .item_type = load_u32(k->value), .next = k->value + 12};
    return true;
}

bool gguf_array_next_text(struct gguf_array *array, const char **text, size_t *num_bytes)
{
    if (!array->num_items || array->item_type != TYPE_TEXT) return false;
    *num_bytes = (size_t)load_u64(array->next);
    *text = (const char *)array->next + 8;
    array->next += 8 + *num_bytes;
    array->num_items--;
    return true;
}

bool gguf_array_next_int(struct gguf_array *array, int64_t *value)
{
    if (!array->num_items) return false;
    if (array->item_type == TYPE_BOOL)
        *value = array->next[0] != 0;
    else if (!value_to_int(array->item_type, array->next, value))
        return false;
    array->next += gguf_type_bytes[array->item_type];
    array->num_items--;
    return true;
}

bool gguf_array_next_real(struct gguf_array *array, double *value)
{
    if (!array->num_items || !value_to_real(array->item_type, array->next, value)) return false;
    array->next += gguf_type_bytes[array->item_type];
    array->num_items--;
    return true;
}

/* ---- tensors ---- */

struct weight_view gguf_find_tensor(const struct gguf *g, const char *name)
{
    struct gguf_tensor wanted = {.name = name, .name_bytes = strlen(name)};
    const struct gguf_tensor *t = NULL;
    if (g->num_tensors)
        t = bsearch(&wanted, g->tensors, g->num_tensors, sizeof *g->tensors, gguf_compare_tensors);
    return t ? t->view : (struct weight_view){0};
}

uint64_t gguf_num_tensors(const struct gguf *g)
{
    return g->num_tensors;
}

uint64_t gguf_tensor_bytes(const struct gguf *g)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < g->num_tensors; i++) sum += g->tensors[i].num_bytes;
    return sum;
}
