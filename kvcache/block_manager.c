/* block_manager.c - one array of blocks, those of K and V before those of states; of each pool free and cached ones hang in
 * two lists inside it.
 *
 * Free blocks are a stack (the one last used is the one whose memory is still warm), cached ones a queue in
 * the order of their release, which is the order of eviction. Held blocks are in no list. */
#include "kvcache/block_manager.h"

#include "base/check.h"

struct block {
    int32_t ref_count;
    int32_t prev, next;      /* in the free or the cached list; NO_BLOCK at the ends and when held */
    bool known;              /* to the prefix cache */
    uint64_t released_order; /* of the last release to the cached list; ascends along it */
};

struct block_list {
    int32_t head, tail, count;
};

struct block_pool {
    int32_t begin, end; /* ids */
    int32_t num_held;
    struct block_list free, cached;
};

enum { KV, STATES, NUM_POOLS };

struct block_manager {
    struct block_pool pools[NUM_POOLS];
    uint64_t num_releases;
    void (*evict)(void *context, int32_t block_id);
    void *evict_context;
    struct block blocks[];
};

static void list_append(struct block_manager *bm, struct block_list *list, int32_t id)
{
    struct block *b = &bm->blocks[id];
    b->prev = list->tail;
    b->next = NO_BLOCK;
    if (list->tail == NO_BLOCK)
        list->head = id;
    else
        bm->blocks[list->tail].next = id;
    list->tail = id;
    list->count++;
}

static void list_remove(struct block_manager *bm, struct block_list *list, int32_t id)
{
    struct block *b = &bm->blocks[id];
    if (b->prev == NO_BLOCK)
        list->head = b->next;
    else
        bm->blocks[b->prev].next = b->next;
    if (b->next == NO_BLOCK)
        list->tail = b->prev;
    else
        bm->blocks[b->next].prev = b->prev;
    b->prev = b->next = NO_BLOCK;
    list->count--;
}

static struct block_pool *pool_of(struct block_manager *bm, int32_t id)
{
    assert_always(id >= 0 && id < bm->pools[STATES].end);
    return &bm->pools[id >= bm->pools[STATES].begin ? STATES : KV];
}

int block_manager_create(int32_t num_blocks, int32_t num_states, struct block_manager **out,
                         struct error *err)
{
    assert_always(num_blocks >= 1 && num_states >= 0 && num_blocks <= INT32_MAX - num_states);
    int32_t num_ids = num_blocks + num_states;
    struct block_manager *bm = malloc(sizeof(*bm) + (size_t)num_ids * sizeof(bm->blocks[0]));
    if (!bm)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the bookkeeping of %d K/V blocks", num_blocks);
    const struct block_list none = {NO_BLOCK, NO_BLOCK, 0};
    *bm = (struct block_manager){
        .pools = {[KV] = {0, num_blocks, 0, none, none}, [STATES] = {num_blocks, num_ids, 0, none, none}}};
    for (int32_t id = num_ids - 1; id >= 0; id--) {
        bm->blocks[id] = (struct block){0};
        list_append(bm, &pool_of(bm, id)->free, id);
    }
    *out = bm;
    return 0;
}

void block_manager_destroy(struct block_manager *bm)
{
    free(bm);
}

void block_manager_on_evict(struct block_manager *bm, void (*evict)(void *context, int32_t block_id),
                            void *context)
{
    bm->evict = evict;
    bm->evict_context = context;
}

static int32_t take_block(struct block_manager *bm, struct block_pool *pool)
{
    int32_t id = pool->free.tail;
    if (id != NO_BLOCK) {
        list_remove(bm, &pool->free, id);
        return id;
    }
    id = pool->cached.head;
    list_remove(bm, &pool->cached, id);
    bm->evict(bm->evict_context, id);
    bm->blocks[id].known = false;
    return id;
}

static int hold(struct block_manager *bm, struct block_pool *pool, int32_t count, int32_t *ids)
{
    if (count > pool->free.count + pool->cached.count) return STATUS_NO_BLOCKS;
    for (int32_t i = 0; i < count; i++) {
        int32_t id = take_block(bm, pool);
        assert_always(bm->blocks[id].ref_count == 0);
        bm->blocks[id].ref_count = 1;
        ids[i] = id;
    }
    pool->num_held += count;
    return 0;
}

int block_manager_hold(struct block_manager *bm, int32_t count, int32_t *block_ids)
{
    return hold(bm, &bm->pools[KV], count, block_ids);
}

int block_manager_hold_state(struct block_manager *bm, int32_t *id)
{
    return hold(bm, &bm->pools[STATES], 1, id);
}

void block_manager_share(struct block_manager *bm, int32_t block_id)
{
    struct block_pool *pool = pool_of(bm, block_id);
    struct block *b = &bm->blocks[block_id];
    assert_always(b->known);
    if (b->ref_count++ == 0) {
        list_remove(bm, &pool->cached, block_id);
        pool->num_held++;
    }
}

static void release_block(struct block_manager *bm, int32_t id)
{
    struct block_pool *pool = pool_of(bm, id);
    struct block *b = &bm->blocks[id];
    assert_always(b->ref_count >= 1);
    if (--b->ref_count > 0) return;
    pool->num_held--;
    b->released_order = ++bm->num_releases;
    list_append(bm, b->known ? &pool->cached : &pool->free, id);
}

void block_manager_release(struct block_manager *bm, int32_t count, const int32_t *block_ids)
{
    for (int32_t i = count - 1; i >= 0; i--) release_block(bm, block_ids[i]);
}

void block_manager_set_known(struct block_manager *bm, int32_t block_id, bool known)
{
    assert_always(bm->blocks[block_id].ref_count >= 1 && bm->blocks[block_id].known != known);
    bm->blocks[block_id].known = known;
}

bool block_manager_is_known(const struct block_manager *bm, int32_t block_id)
{
    return bm->blocks[block_id].known;
}

int32_t block_manager_ref_count(const struct block_manager *bm, int32_t block_id)
{
    return bm->blocks[block_id].ref_count;
}

int32_t block_manager_num_blocks(const struct block_manager *bm)
{
    return bm->pools[KV].end;
}

int32_t block_manager_num_free(const struct block_manager *bm)
{
    return bm->pools[KV].free.count;
}

int32_t block_manager_num_cached(const struct block_manager *bm)
{
    return bm->pools[KV].cached.count;
}

int32_t block_manager_num_held(const struct block_manager *bm)
{
    return bm->pools[KV].num_held;
}

int32_t block_manager_num_available(const struct block_manager *bm)
{
    return bm->pools[KV].free.count + bm->pools[KV].cached.count;
}

int32_t block_manager_num_states(const struct block_manager *bm)
{
    return bm->pools[STATES].end - bm->pools[STATES].begin;
}

int32_t block_manager_num_free_states(const struct block_manager *bm)
{
    return bm->pools[STATES].free.count;
}

int32_t block_manager_num_cached_states(const struct block_manager *bm)
{
    return bm->pools[STATES].cached.count;
}

int32_t block_manager_num_held_states(const struct block_manager *bm)
{
    return bm->pools[STATES].num_held;
}

/* Length as counted, links both ways, members as the list's rule says; a cycle overruns the count. */
static void check_list(const struct block_manager *bm, const struct block_pool *pool, bool known)
{
    const struct block_list *list = known ? &pool->cached : &pool->free;
    int32_t prev = NO_BLOCK, count = 0;
    uint64_t order = 0;
    for (int32_t id = list->head; id != NO_BLOCK; id = bm->blocks[id].next) {
        const struct block *b = &bm->blocks[id];
        assert_always(++count <= list->count && id >= pool->begin && id < pool->end);
        assert_always(b->ref_count == 0 && b->known == known && b->prev == prev);
        assert_always(!known || b->released_order > order);
        order = b->released_order;
        prev = id;
    }
    assert_always(count == list->count && list->tail == prev);
}

static void check_pool(const struct block_manager *bm, const struct block_pool *pool)
{
    check_list(bm, pool, false);
    check_list(bm, pool, true);
    int32_t num_held = 0;
    for (int32_t id = pool->begin; id < pool->end; id++) {
        const struct block *b = &bm->blocks[id];
        assert_always(b->ref_count >= 0);
        if (b->ref_count == 0) continue;
        assert_always(b->prev == NO_BLOCK && b->next == NO_BLOCK);
        num_held++;
    }
    assert_always(num_held == pool->num_held);
    assert_always(pool->free.count + pool->cached.count + pool->num_held == pool->end - pool->begin);
}

void block_manager_check(const struct block_manager *bm)
{
    for (int i = 0; i < NUM_POOLS; i++) check_pool(bm, &bm->pools[i]);
}
