/* prefix_cache.c - an open-addressing map from hashes to blocks.
 *
 * A hash's first bytes choose the place, linear probing finds the place, and deletion shifts what follows
 * back, so there are no tombstones and the table never degrades. It has at least twice as many places as
 * there are blocks and never grows. */
#include "kvcache/prefix_cache.h"

#include <nettle/sha2.h>
#include <string.h>

#include "base/check.h"

/* Between the homes of one hash in two groups. */
static const uint32_t GROUP_STRIDE = 0x9E3779B1u;

enum { IDS_BYTES = BLOCK_SIZE * sizeof(int32_t) };

struct entry {
    struct block_hash hash, parent;
    int32_t group; /* groups.count: it is a state's */
    int32_t token_ids[BLOCK_SIZE];
};

struct prefix_cache {
    struct block_manager *bm;
    struct kv_groups groups;
    struct block_hash model; /* of the model's key */
    int32_t num_entries;
    uint32_t mask;       /* places - 1 */
    int32_t *places;     /* block ids, NO_BLOCK: empty */
    int32_t *successors; /* [places] by the parent's first bytes: the block that was last entered behind it */
    uint64_t *evicted;   /* [places] by a hash's first bytes, of any group: its next eight; 0: none */
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

static uint32_t home_place(const struct prefix_cache *pc, int32_t group, const struct block_hash *hash)
{
    uint32_t first;
    memcpy(&first, hash->bytes, sizeof(first));
    return (first + (uint32_t)group * GROUP_STRIDE) & pc->mask;
}

static bool entry_has(const struct entry *e, int32_t group, const struct block_hash *hash)
{
    return e->group == group && block_hash_equal(&e->hash, hash);
}

/* Where the hash is, or the empty place where it would go. */
static uint32_t find_place(const struct prefix_cache *pc, int32_t group, const struct block_hash *hash)
{
    uint32_t place = home_place(pc, group, hash);
    while (pc->places[place] != NO_BLOCK && !entry_has(&pc->entries[pc->places[place]], group, hash))
        place = (place + 1) & pc->mask;
    return place;
}

/* Closes the gap: each follower that may stand nearer to its home moves up. */
static void remove_place(struct prefix_cache *pc, uint32_t gap)
{
    for (uint32_t at = (gap + 1) & pc->mask; pc->places[at] != NO_BLOCK; at = (at + 1) & pc->mask) {
        const struct entry *e = &pc->entries[pc->places[at]];
        uint32_t home = home_place(pc, e->group, &e->hash);
        if (((at - home) & pc->mask) < ((at - gap) & pc->mask)) continue;
        pc->places[gap] = pc->places[at];
        gap = at;
    }
    pc->places[gap] = NO_BLOCK;
}

static void forget_block(struct prefix_cache *pc, int32_t block_id)
{
    uint32_t place = find_place(pc, pc->entries[block_id].group, &pc->entries[block_id].hash);
    assert_always(pc->places[place] == block_id);
    remove_place(pc, place);
    pc->num_entries--;
}

static bool has_states(const struct prefix_cache *pc)
{
    return block_manager_num_states(pc->bm) > 0;
}

/* The state that was kept at the end of this hash's block; NO_BLOCK: none was. */
static int32_t find_state(const struct prefix_cache *pc, const struct block_hash *hash)
{
    return has_states(pc) ? pc->places[find_place(pc, pc->groups.count, hash)] : NO_BLOCK;
}

/* What is known under this id is not found any more, whoever holds it. */
static void set_unknown(struct prefix_cache *pc, int32_t id)
{
    block_manager_share(pc->bm, id);
    prefix_cache_forget(pc, id);
    block_manager_release(pc->bm, 1, &id);
}

/* Nobody finds a state behind a block that is not found. */
static void forget_with_state(struct prefix_cache *pc, int32_t block_id)
{
    const struct entry *e = &pc->entries[block_id];
    int32_t state = e->group == 0 ? find_state(pc, &e->hash) : NO_BLOCK;
    forget_block(pc, block_id);
    if (state != NO_BLOCK) set_unknown(pc, state);
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
    const struct entry *e = &pc->entries[block_id];
    if (e->group < pc->groups.count) pc->evicted[home_place(pc, 0, &e->hash)] = mark_of(&e->hash);
    forget_with_state(pc, block_id);
}

int prefix_cache_create(struct block_manager *bm, const struct kv_groups *groups, const void *model_key,
                        size_t key_bytes, struct prefix_cache **out, struct error *err)
{
    size_t num_blocks = (size_t)(block_manager_num_blocks(bm) + block_manager_num_states(bm)), num_places = 4;
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
    pc->groups = *groups;
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

/* The group's block of these tokens behind the parent. */
static int32_t find_block(const struct prefix_cache *pc, int32_t group, const struct block_hash *parent,
                          const struct block_hash *hash, const int32_t *token_ids)
{
    int32_t id = pc->places[find_place(pc, group, hash)];
    return id != NO_BLOCK && entry_is(&pc->entries[id], parent, token_ids) ? id : NO_BLOCK;
}

/* The longest run of blocks that leaves out none which the token behind them sees, in any group, and that a state was kept
 * behind where it takes one; the ids of what was found on the way are written. */
static int32_t find_prefix(const struct prefix_cache *pc, const int32_t *token_ids, int32_t max_blocks,
                           struct block_hash *hash, int32_t *block_ids, int32_t stride,
                           struct state_match *state)
{
    struct block_hash parent, next = *hash;
    int32_t run[KV_GROUPS_MAX] = {0}; /* where the newest run of blocks of a group begins */
    int32_t num_hits = 0;
    for (int32_t i = 0; i < max_blocks; i++, token_ids += BLOCK_SIZE) {
        bool is_hit = true;
        parent = next;
        prefix_cache_extend(&next, token_ids);
        for (int32_t g = 0; g < pc->groups.count; g++) {
            const struct kv_group *group = &pc->groups.groups[g];
            int32_t id = find_block(pc, g, &parent, &next, token_ids);
            block_ids[(size_t)g * (size_t)stride + (size_t)i] = id;
            if (id == NO_BLOCK && group->window == 0) return num_hits;
            if (id == NO_BLOCK) run[g] = i + 1;
            is_hit = is_hit && run[g] <= kv_group_first_block(group, (i + 1) * BLOCK_SIZE);
        }
        if (!is_hit) continue;
        if (has_states(pc)) {
            state->num_blocks = i + 1;
            state->hash = next;
            int32_t id = find_block(pc, pc->groups.count, &parent, &next, token_ids);
            if (id == NO_BLOCK) continue;
            state->id = id;
        }
        num_hits = i + 1;
        *hash = next;
    }
    return num_hits;
}

int32_t prefix_cache_match(struct prefix_cache *pc, const int32_t *token_ids, int32_t max_blocks,
                           struct block_hash *hash, int32_t *block_ids, int32_t stride,
                           struct state_match *state)
{
    struct state_match found = {.id = NO_BLOCK, .hash = *hash};
    int32_t num_hits = find_prefix(pc, token_ids, max_blocks, hash, block_ids, stride, &found);
    assert_always(state || !has_states(pc));
    for (int32_t g = 0; g < pc->groups.count; g++, block_ids += stride)
        for (int32_t i = kv_group_first_block(&pc->groups.groups[g], num_hits * BLOCK_SIZE); i < num_hits;
             i++)
            block_manager_share(pc->bm, block_ids[i]);
    if (found.id != NO_BLOCK) block_manager_share(pc->bm, found.id);
    if (state) *state = found;
    return num_hits;
}

/* The newest block behind the parent, if it is still there. */
static const struct entry *find_successor(const struct prefix_cache *pc, const struct block_hash *parent)
{
    int32_t id = pc->successors[home_place(pc, 0, parent)];
    bool is_there = id != NO_BLOCK && block_manager_is_known(pc->bm, id);
    return is_there && block_hash_equal(&pc->entries[id].parent, parent) ? &pc->entries[id] : NULL;
}

struct cache_miss prefix_cache_explain(const struct prefix_cache *pc, const int32_t *token_ids,
                                       int32_t position, const struct block_hash *hash)
{
    struct block_hash next = *hash;
    int32_t n = 0;
    prefix_cache_extend(&next, token_ids);
    bool is_there = pc->places[find_place(pc, 0, &next)] != NO_BLOCK; /* and in another group it is not */
    if (is_there || pc->evicted[home_place(pc, 0, &next)] == mark_of(&next))
        return (struct cache_miss){CACHE_MISS_EVICTED, position};
    const struct entry *successor = find_successor(pc, hash);
    if (!successor) return (struct cache_miss){CACHE_MISS_NEW, position};
    while (n < BLOCK_SIZE - 1 && successor->token_ids[n] == token_ids[n]) n++;
    return (struct cache_miss){CACHE_MISS_DIFFERS, position + n};
}

static void insert_block(struct prefix_cache *pc, int32_t block_id, const struct entry *entry)
{
    uint32_t place = find_place(pc, entry->group, &entry->hash);
    if (pc->places[place] != NO_BLOCK) return;
    block_manager_set_known(pc->bm, block_id, true);
    pc->places[place] = block_id;
    if (entry->group < pc->groups.count) pc->successors[home_place(pc, 0, &entry->parent)] = block_id;
    pc->entries[block_id] = *entry;
    pc->num_entries++;
}

void prefix_cache_insert(struct prefix_cache *pc, const int32_t *block_ids, const int32_t *token_ids,
                         struct block_hash *hash)
{
    struct entry entry = {.parent = *hash};
    prefix_cache_extend(hash, token_ids);
    entry.hash = *hash;
    memcpy(entry.token_ids, token_ids, IDS_BYTES);
    for (; entry.group < pc->groups.count; entry.group++)
        if (block_ids[entry.group] != NO_BLOCK) insert_block(pc, block_ids[entry.group], &entry);
}

bool prefix_cache_wants_state(struct prefix_cache *pc, const struct block_hash *hash)
{
    if (!has_states(pc) || pc->places[find_place(pc, 0, hash)] == NO_BLOCK) return false;
    int32_t id = find_state(pc, hash);
    if (id == NO_BLOCK) return true;
    block_manager_share(pc->bm, id);
    block_manager_release(pc->bm, 1, &id);
    return false;
}

void prefix_cache_insert_state(struct prefix_cache *pc, int32_t id, const struct block_hash *hash)
{
    struct entry entry = pc->entries[pc->places[find_place(pc, 0, hash)]];
    entry.group = pc->groups.count;
    insert_block(pc, id, &entry);
}

void prefix_cache_drop_state(struct prefix_cache *pc, int32_t id, const struct block_hash *hash)
{
    if (find_state(pc, hash) == id && block_manager_ref_count(pc->bm, id) == 0) set_unknown(pc, id);
}

void prefix_cache_forget(struct prefix_cache *pc, int32_t block_id)
{
    if (!block_manager_is_known(pc->bm, block_id)) return;
    forget_with_state(pc, block_id);
    block_manager_set_known(pc->bm, block_id, false);
}

void prefix_cache_forget_chain(struct prefix_cache *pc, const int32_t *token_ids, int32_t num_blocks,
                               const struct block_hash *root)
{
    struct block_hash hash = *root;
    for (int32_t i = 0; i < num_blocks; i++, token_ids += BLOCK_SIZE) {
        prefix_cache_extend(&hash, token_ids);
        for (int32_t g = 0; g < pc->groups.count; g++) {
            int32_t id = pc->places[find_place(pc, g, &hash)];
            if (id != NO_BLOCK) set_unknown(pc, id);
        }
    }
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
        bool is_state = id >= block_manager_num_blocks(pc->bm);
        assert_always(e->group >= 0 && e->group < pc->groups.count + is_state);
        assert_always(is_state == (e->group == pc->groups.count));
        if (is_state) assert_always(pc->places[find_place(pc, 0, &e->hash)] != NO_BLOCK);
        assert_always(find_place(pc, e->group, &e->hash) == place);
        struct block_hash hash = e->parent;
        prefix_cache_extend(&hash, e->token_ids);
        assert_always(block_hash_equal(&hash, &e->hash));
    }
    int32_t num_ids = block_manager_num_blocks(pc->bm) + block_manager_num_states(pc->bm);
    for (int32_t id = 0; id < num_ids; id++) num_known += block_manager_is_known(pc->bm, id);
    assert_always(num_in_map == pc->num_entries && num_known == pc->num_entries);
}
