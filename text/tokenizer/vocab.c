#include "text/tokenizer/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

void vocab_init(struct vocab *v)
{
    *v = (struct vocab){0};
    buffer_init(&v->bytes, UINT32_MAX - 1);
}

void vocab_deinit(struct vocab *v)
{
    free(v->tokens);
    free(v->slots);
    buffer_deinit(&v->bytes);
    *v = (struct vocab){0};
}

static int grow_ids(struct vocab *v, int32_t num_ids, struct error *err)
{
    if (num_ids > v->capacity) {
        int32_t capacity = max_of(num_ids, v->capacity * 2);
        struct vocab_token *tokens = realloc(v->tokens, (size_t)capacity * sizeof *tokens);
        if (!tokens)
            return error_set(err, STATUS_NO_MEMORY, "No memory for a vocabulary of %d tokens.", capacity);
        v->tokens = tokens;
        v->capacity = capacity;
    }
    if (num_ids > v->num_ids) {
        memset(v->tokens + v->num_ids, 0, (size_t)(num_ids - v->num_ids) * sizeof *v->tokens);
        v->num_ids = num_ids;
    }
    return 0;
}

static uint32_t store_bytes(struct vocab *v, const char *bytes, size_t num_bytes)
{
    uint32_t begin = (uint32_t)v->bytes.num_bytes;
    buffer_append(&v->bytes, bytes, num_bytes);
    return begin;
}

int vocab_add(struct vocab *v, int64_t id, const char *key, size_t key_bytes, const char *text,
              size_t text_bytes, unsigned flags, struct error *err)
{
    if (id < 0 || id > TOKEN_ID_MAX)
        return error_set(err, STATUS_INVALID, "The token id %lld is outside 0 to %d.", (long long)id,
                         TOKEN_ID_MAX);
    if (vocab_has(v, id))
        return error_set(err, STATUS_INVALID, "The token id %lld is there twice.", (long long)id);
    int status = grow_ids(v, (int32_t)id + 1, err);
    if (status) return status;
    bool same = key_bytes == text_bytes && memcmp(key, text, key_bytes) == 0;
    uint32_t key_begin = store_bytes(v, key, key_bytes);
    uint32_t text_begin = same ? key_begin : store_bytes(v, text, text_bytes);
    if (buffer_failed(&v->bytes)) return error_set(err, STATUS_NO_MEMORY, "No memory for the tokens' texts.");
    v->tokens[id] = (struct vocab_token){key_begin, (uint32_t)key_bytes, text_begin, (uint32_t)text_bytes,
                                         flags | TOKEN_EXISTS};
    return 0;
}

int vocab_set_text(struct vocab *v, int32_t id, const char *text, size_t text_bytes, struct error *err)
{
    uint32_t text_begin = store_bytes(v, text, text_bytes);
    if (buffer_failed(&v->bytes)) return error_set(err, STATUS_NO_MEMORY, "No memory for the tokens' texts.");
    v->tokens[id].text_begin = text_begin;
    v->tokens[id].text_bytes = (uint32_t)text_bytes;
    return 0;
}

const char *vocab_key(const struct vocab *v, int32_t id, size_t *num_bytes)
{
    const struct vocab_token *token = &v->tokens[id];
    *num_bytes = token->key_bytes;
    return v->bytes.data + token->key_begin;
}

const char *vocab_text(const struct vocab *v, int32_t id, size_t *num_bytes)
{
    const struct vocab_token *token = &v->tokens[id];
    *num_bytes = token->text_bytes;
    return v->bytes.data + token->text_begin;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t load_8(const char *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return x;
}

static uint64_t load_4(const char *p)
{
    uint32_t x;
    memcpy(&x, p, 4);
    return x;
}

/* Up to 8 bytes as one number; the caller hashes the length too. */
static uint64_t load_tail(const char *p, size_t n)
{
    if (n >= 4) return load_4(p) << 32 | load_4(p + n - 4);
    if (n == 0) return 0;
    return (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[n / 2] << 8 |
           (unsigned char)p[n - 1];
}

/* The keys are the model's, fixed at load, so nobody who sends text can choose what collides. */
static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = 0x9E3779B97F4A7C15u ^ n;
    while (n > 8) {
        h = mix(h ^ load_8(p), 0xD6E8FEB86659FD93u);
        p += 8;
        n -= 8;
    }
    return mix(h ^ (n == 8 ? load_8(p) : load_tail(p, n)), 0xA0761D6478BD642Fu);
}

static bool key_equals(const struct vocab *v, int32_t id, const char *key, size_t key_bytes)
{
    const struct vocab_token *token = &v->tokens[id];
    return token->key_bytes == key_bytes && memcmp(v->bytes.data + token->key_begin, key, key_bytes) == 0;
}

/* The slot that holds key, or the empty one where it would go. */
static struct vocab_slot *find_slot(const struct vocab *v, const char *key, size_t key_bytes, uint32_t *tag)
{
    uint64_t h = hash_bytes(key, key_bytes);
    *tag = (uint32_t)(h >> 32);
    for (uint32_t at = (uint32_t)h & v->slot_mask;; at = (at + 1) & v->slot_mask) {
        struct vocab_slot *slot = &v->slots[at];
        if (slot->id < 0 || (slot->tag == *tag && key_equals(v, slot->id, key, key_bytes))) return slot;
    }
}

static int index_token(struct vocab *v, int32_t id, bool tolerant, struct error *err)
{
    size_t key_bytes;
    uint32_t tag;
    const char *key = vocab_key(v, id, &key_bytes);
    struct vocab_slot *slot = find_slot(v, key, key_bytes, &tag);
    if (slot->id < 0) {
        *slot = (struct vocab_slot){tag, id};
        return 0;
    }
    v->tokens[id].flags |= TOKEN_NO_KEY;
    if (tolerant) return 0;
    return error_set(err, STATUS_INVALID, "The tokens %d and %d stand for the same text.", slot->id, id);
}

int vocab_index(struct vocab *v, bool tolerant, struct error *err)
{
    uint32_t num_slots = 16;
    while (num_slots < (uint32_t)v->num_ids * 2) num_slots *= 2;
    v->slots = malloc(num_slots * sizeof *v->slots);
    if (!v->slots)
        return error_set(err, STATUS_NO_MEMORY, "No memory for a vocabulary of %d tokens.", v->num_ids);
    memset(v->slots, 0xFF, num_slots * sizeof *v->slots);
    v->slot_mask = num_slots - 1;
    for (int32_t id = 0; id < v->num_ids; id++) {
        if (!(v->tokens[id].flags & TOKEN_EXISTS) || (v->tokens[id].flags & TOKEN_NO_KEY)) continue;
        int status = index_token(v, id, tolerant, err);
        if (status) return status;
    }
    return 0;
}

int32_t vocab_find(const struct vocab *v, const char *key, size_t key_bytes)
{
    uint32_t tag;
    return find_slot(v, key, key_bytes, &tag)->id;
}
