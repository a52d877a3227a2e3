/* gguf_tables.h - what gguf.c leaves behind after it checked a file, for the look-ups of gguf_find.c. */
#ifndef FILES_GGUF_TABLES_H
#define FILES_GGUF_TABLES_H

#include <string.h>

#include "files/file_map.h"
#include "files/gguf.h"

enum value_type {
    TYPE_U8,
    TYPE_I8,
    TYPE_U16,
    TYPE_I16,
    TYPE_U32,
    TYPE_I32,
    TYPE_F32,
    TYPE_BOOL,
    TYPE_TEXT,
    TYPE_ARRAY,
    TYPE_U64,
    TYPE_I64,
    TYPE_F64,
    TYPE_COUNT
};

/* 0: not of a fixed size */
extern const uint8_t gguf_type_bytes[TYPE_COUNT];

struct gguf_key {
    const char *name;
    size_t name_bytes;
    uint32_t type;
    const unsigned char *value;
};

struct gguf_tensor {
    const char *name;
    size_t name_bytes;
    struct weight_view view;
    uint64_t offset, num_bytes;
};

struct gguf {
    struct file_map *parts;
    int num_parts;
    struct gguf_key *keys; /* sorted by name, as tensors are */
    uint64_t num_keys;
    struct gguf_tensor *tensors;
    uint64_t num_tensors;
};

static inline uint32_t load_u32(const unsigned char *p)
{
    uint32_t n;
    memcpy(&n, p, sizeof n);
    return n;
}

static inline uint64_t load_u64(const unsigned char *p)
{
    uint64_t n;
    memcpy(&n, p, sizeof n);
    return n;
}

bool gguf_has_key(const struct gguf *g, const char *key);

/* Orders of the two tables, for qsort and bsearch. */
int gguf_compare_keys(const void *a, const void *b);
int gguf_compare_tensors(const void *a, const void *b);

#endif
