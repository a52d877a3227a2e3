/* prefix_cache.c - an open-addressing map from hashes to blocks.
 *
 * A hash's first bytes choose the place, linear probing finds the place, and deletion shifts what follows
 * back, so there are no tombstones and the table never degrades. It has at least twice as many places as
 * there are blocks and never grows. */
#include "kvcache/prefix_cache.h"

#include <nettle/sha2.h>
#include <string.h>

#include "base/check.h"

enum { NO_BLOCK = -1, IDS_BYTES = BLOCK_SIZE * sizeof(int32_t) };

struct entry {
    struct block_hash hash, parent;
    int32_t token_ids[BLOCK_SIZE];
};

struct prefix_cache {
    struct block_manager *bm;
    struct block_hash model; /* of the model's key */
    int32_t num_entries;
    uint32_t mask;       /* places - 1 */
    int32_t *places;     /* block ids, NO_BLOCK: empty */
    int32_t *successors; /* [places] by the parent's first bytes: the block that was last entered behind it */
    uint64_t *evicted;   /* [places] by a hash's first bytes: its next eight; 0: none */
    struct entry *entries; /* by block id; meaningful where the block manager says known */
};

static bool block_hash_equal(const struct block_hash *a, const struct block_hash *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

static struct block_hash block_hash_of(const struct block_hash *parent, const void *data, size_t bytes)
{
    struct block_hash out;
    struct sha256_ctx sha;
    sha256_init(&sha);
    sha256_update(&sha, sizeof(*parent), parent->bytes);
    sha256_update(&sha, bytes, data);
    sha256_digest(&sha, sizeof(out), out.bytes);
    return out;
}

static uint32_t home_place(const struct prefix_cache *pc, const struct block_hash *hash)
{
    uint32_t first;
    memcpy(&first, hash->bytes, sizeof(first));
    return first & pc->mask;
}

/* Where the hash is, or the empty place where it would go. */
static uint32_t find_place(const struct prefix_cache *pc, const struct block_hash *hash)
{
    uint32_t place = home_place(pc, hash);
    while (pc->places[place] != NO_BLOCK && !block_hash_equal(&pc->entries[pc->places[place]].hash, hash))
        place = (place + 1) & pc->mask;
    return place;
}

/* Closes the gap: each follower that may stand nearer to its home moves up. */
static void remove_place(struct prefix_cache *pc, uint32_t gap)
{
    for (uint32_t at = (gap + 1) & pc->mask; pc->places[at] != NO_BLOCK; at = (at + 1) & pc->mask) {
        uint32_t home = home_place(pc, &pc->entries[pc->places[at]].hash);
        if (((at - home) & pc->mask) < ((at - gap) & pc->mask)) continue;
        pc->places[gap] = pc->places[at];
        gap = at;
    }
    pc->places[gap] = NO_BLOCK;
}

static void forget_block(struct prefix_cache *pc, int32_t block_id)
{
    uint32_t place = find_place(pc, &pc->entries[block_id].hash);
    assert_always(pc->places[place] == block_id);
    remove_place(pc, place);
    pc->num_entries--;
}

static uint64_t mark_of(const struct block_hash *hash)
{
    uint64_t mark;
    memcpy(&mark, hash->bytes + sizeof(uint32_t), sizeof mark);
    return mark;
}

static void on_evict(void *context, int32_t block_id)
{
    struct prefix_cache *pc = context;
    const struct block_hash *hash = &pc->entries[block_id].hash;
    pc->evicted[home_place(pc, hash)] = mark_of(hash);
    forget_block(pc, block_id);
}

int prefix_cache_create(struct block_manager *bm, const void *model_key, size_t key_bytes,
                        struct prefix_cache **out, struct error *err)
{
    size_t num_blocks = (size_t)block_manager_num_blocks(bm), num_places = 4;
    while (num_places < 2 * num_blocks) num_places *= 2;
    struct prefix_cache *pc = calloc(1, sizeof(*pc));
    if (pc) {
        pc->places = malloc(num_places * sizeof(pc->places[0]));
        pc->entries = calloc(num_blocks, sizeof(pc->entries[0]));
        pc->successors = malloc(num_places * sizeof(pc->successors[0]));
        pc->evicted = calloc(num_places, sizeof(pc->evicted[0]));
    }
    if (!pc || !pc->places || !pc->entries || !pc->successors || !pc->evicted) {
        prefix_cache_destroy(pc);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the prefix cache of %zu blocks", num_blocks);
    }
    for (size_t i = 0; i < num_places; i++) pc->places[i] = pc->successors[i] = NO_BLOCK;
    pc->bm = bm;
    pc->mask = (uint32_t)num_places - 1;
    pc->model = block_hash_of(&(struct block_hash){{0}}, model_key, key_bytes);
    block_manager_on_evict(bm, on_evict, pc);
    *out = pc;
    return 0;
}

void prefix_cache_destroy(struct prefix_cache *pc)
{
    if (!pc) return;
    free(pc->places);
    free(pc->successors);
    free(pc->evicted);
    free(pc->entries);
    free(pc);
}

void prefix_cache_root(const struct prefix_cache *pc, const void *salt, size_t salt_bytes,
                       struct block_hash *root)
{
    *root = block_hash_of(&pc->model, salt, salt_bytes);
}

void prefix_cache_extend(struct block_hash *hash, const int32_t *token_ids)
{
    *hash = block_hash_of(hash, token_ids, IDS_BYTES);
}

static bool entry_is(const struct entry *e, const struct block_hash *parent, const int32_t *token_ids)
{
    return block_hash_equal(&e->parent, parent) && memcmp(e->token_ids, token_ids, IDS_BYTES) == 0;
}

int32_t prefix_cache_match(struct prefix_cache *pc, const int32_t *token_ids, int32_t max_blocks,
                           struct block_hash *hash, int32_t *block_ids)
{
    int32_t n = 0;
    for (; n < max_blocks; n++, token_ids += BLOCK_SIZE) {
        struct block_hash next = *hash;
        prefix_cache_extend(&next, token_ids);
        int32_t id = pc->places[find_place(pc, &next)];
        if (id == NO_BLOCK || !entry_is(&pc->entries[id], hash, token_ids)) break;
        block_manager_share(pc->bm, id);
        block_ids[n] = id;
        *hash = next;
    }
    return n;
}

/* The newest block behind the parent, if it is still there. */
static const struct entry *find_successor(const struct prefix_cache *pc, const struct block_hash *parent)
{
    int32_t id = pc->successors[home_place(pc, parent)];
    bool is_there = id != NO_BLOCK && block_manager_is_known(pc->bm, id);
    return is_there && block_hash_equal(&pc->entries[id].parent, parent) ? &pc->entries[id] : NULL;
}

struct cache_miss prefix_cache_explain(const struct prefix_cache *pc, const int32_t *token_ids,
                                       int32_t position, const struct block_hash *hash)
{
    struct block_hash next = *hash;
    int32_t n = 0;
    prefix_cache_extend(&next, token_ids);
    if (pc->evicted[home_place(pc, &next)] == mark_of(&next))
        return (struct cache_miss){CACHE_MISS_EVICTED, position};
    const struct entry *successor = find_successor(pc, hash);
    if (!successor) return (struct cache_miss){CACHE_MISS_NEW, position};
    while (n < BLOCK_SIZE - 1 && successor->token_ids[n] == token_ids[n]) n++;
    return (struct cache_miss){CACHE_MISS_DIFFERS, position + n};
}

void prefix_cache_insert(struct prefix_cache *pc, int32_t block_id, const int32_t *token_ids,
                         struct block_hash *hash)
{
    struct block_hash parent = *hash;
    prefix_cache_extend(hash, token_ids);
    uint32_t place = find_place(pc, hash);
    if (pc->places[place] != NO_BLOCK) return;
    block_manager_set_known(pc->bm, block_id, true);
    pc->places[place] = block_id;
    pc->successors[home_place(pc, &parent)] = block_id;
    pc->entries[block_id] = (struct entry){.hash = *hash, .parent = parent};
    memcpy(pc->entries[block_id].token_ids, token_ids, IDS_BYTES);
    pc->num_entries++;
}

void prefix_cache_forget(struct prefix_cache *pc, int32_t block_id)
{
    if (!block_manager_is_known(pc->bm, block_id)) return;
    forget_block(pc, block_id);
    block_manager_set_known(pc->bm, block_id, false);
}

int32_t prefix_cache_num_entries(const struct prefix_cache *pc)
{
    return pc->num_entries;
}

void prefix_cache_check(const struct prefix_cache *pc)
{
    int32_t num_in_map = 0, num_known = 0;
    for (uint32_t place = 0; place <= pc->mask; place++) {
        int32_t id = pc->places[place];
        if (id == NO_BLOCK) continue;
        const struct entry *e = &pc->entries[id];
        num_in_map++;
        assert_always(block_manager_is_known(pc->bm, id));
        assert_always(find_place(pc, &e->hash) == place);
        struct block_hash hash = e->parent;
        prefix_cache_extend(&hash, e->token_ids);
        assert_always(block_hash_equal(&hash, &e->hash));
    }
    for (int32_t id = 0; id < block_manager_num_blocks(pc->bm); id++)
        num_known += block_manager_is_known(pc->bm, id);
    assert_always(num_in_map == pc->num_entries && num_known == pc->num_entries);
}
