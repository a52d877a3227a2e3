#include "kvcache/kv_tables.h"

#include "base/check.h"

struct kv_tables {
    struct block_manager *blocks;
    struct prefix_cache *prefixes;
    struct kv_groups groups;
    int32_t stride;
    struct kv_table *tables; /* [num_rows][groups.count] */
    int32_t *block_ids;      /* [num_rows][groups.count][stride] */
};

static struct kv_table *table_of(const struct kv_tables *t, int32_t row, int32_t group)
{
    return &t->tables[(size_t)row * (size_t)t->groups.count + (size_t)group];
}

int kv_tables_create(struct block_manager *blocks, struct prefix_cache *prefixes,
                     const struct kv_groups *groups, int32_t num_rows, int32_t max_model_len,
                     struct kv_tables **out, struct error *err)
{
    assert_always(groups->count >= 1 && groups->count <= KV_GROUPS_MAX);
    size_t num_tables = (size_t)num_rows * (size_t)groups->count,
           stride = (size_t)div_up(max_model_len, BLOCK_SIZE);
    struct kv_tables *t = calloc(1, sizeof(*t));
    if (t) {
        t->tables = calloc(num_tables, sizeof(t->tables[0]));
        t->block_ids = calloc(num_tables * stride, sizeof(t->block_ids[0]));
    }
    if (!t || !t->tables || !t->block_ids) {
        kv_tables_destroy(t);
        return error_set(err, STATUS_NO_MEMORY, "no memory for the block tables of %d sequences", num_rows);
    }
    t->blocks = blocks;
    t->prefixes = prefixes;
    t->groups = *groups;
    t->stride = (int32_t)stride;
    for (size_t i = 0; i < num_tables; i++) t->tables[i].block_ids = t->block_ids + i * stride;
    *out = t;
    return 0;
}

void kv_tables_destroy(struct kv_tables *t)
{
    if (!t) return;
    free(t->tables);
    free(t->block_ids);
    free(t);
}

const struct kv_groups *kv_tables_groups(const struct kv_tables *t)
{
    return &t->groups;
}

const struct kv_table *kv_tables_get(const struct kv_tables *t, int32_t row, int32_t group)
{
    return table_of(t, row, group);
}

int32_t kv_tables_num_places(const struct kv_tables *t, int32_t row)
{
    int32_t end = INT32_MAX / BLOCK_SIZE;
    for (int32_t g = 0; g < t->groups.count; g++) end = min_of(end, table_of(t, row, g)->end);
    return end * BLOCK_SIZE;
}

int32_t kv_tables_num_held(const struct kv_tables *t, int32_t row)
{
    int32_t count = 0;
    for (int32_t g = 0; g < t->groups.count; g++)
        count += table_of(t, row, g)->end - table_of(t, row, g)->begin;
    return count;
}

int32_t kv_tables_match(struct kv_tables *t, int32_t row, const int32_t *token_ids, int32_t max_blocks,
                        struct block_hash *hash, struct state_match *state)
{
    int32_t num_hits = prefix_cache_match(t->prefixes, token_ids, max_blocks, hash,
                                          table_of(t, row, 0)->block_ids, t->stride, state);
    for (int32_t g = 0; g < t->groups.count; g++) {
        struct kv_table *table = table_of(t, row, g);
        assert_debug(table->begin == 0 && table->end == 0);
        table->begin = kv_group_first_block(&t->groups.groups[g], num_hits * BLOCK_SIZE);
        table->end = num_hits;
    }
    return num_hits;
}

static int32_t num_missing(const struct kv_tables *t, int32_t row, int32_t group, int32_t num_tokens)
{
    const struct kv_table *table = table_of(t, row, group);
    int32_t most = kv_group_num_blocks_max(&t->groups, group, t->stride * BLOCK_SIZE);
    int32_t end = min_of((int32_t)div_up(num_tokens, BLOCK_SIZE), table->begin + most);
    return max_of(end - table->end, 0);
}

int32_t kv_tables_num_missing(const struct kv_tables *t, int32_t row, int32_t num_tokens)
{
    int32_t count = 0;
    for (int32_t g = 0; g < t->groups.count; g++) count += num_missing(t, row, g, num_tokens);
    return count;
}

int kv_tables_hold(struct kv_tables *t, int32_t row, int32_t num_tokens)
{
    assert_debug(num_tokens <= t->stride * BLOCK_SIZE);
    if (kv_tables_num_missing(t, row, num_tokens) > block_manager_num_available(t->blocks))
        return STATUS_NO_BLOCKS;
    for (int32_t g = 0; g < t->groups.count; g++) {
        struct kv_table *table = table_of(t, row, g);
        int32_t count = num_missing(t, row, g, num_tokens);
        int status = block_manager_hold(t->blocks, count, table->block_ids + table->end);
        assert_always(status == 0);
        table->end += count;
    }
    return 0;
}

bool kv_tables_is_behind(const struct kv_tables *t, int32_t row, int32_t position)
{
    for (int32_t g = 0; g < t->groups.count; g++)
        if (table_of(t, row, g)->begin < kv_group_first_block(&t->groups.groups[g], position)) return true;
    return false;
}

/* [table->begin, begin), whether held or not. */
static void give_back(struct kv_tables *t, struct kv_table *table, int32_t begin)
{
    int32_t num_held = min_of(begin, table->end) - table->begin;
    if (num_held > 0) block_manager_release(t->blocks, num_held, table->block_ids + table->begin);
    table->begin = max_of(table->begin, begin);
    table->end = max_of(table->end, table->begin);
}

void kv_tables_pass(struct kv_tables *t, int32_t row, int32_t position)
{
    for (int32_t g = 0; g < t->groups.count; g++)
        give_back(t, table_of(t, row, g), kv_group_first_block(&t->groups.groups[g], position));
}

void kv_tables_release(struct kv_tables *t, int32_t row)
{
    for (int32_t g = 0; g < t->groups.count; g++) {
        struct kv_table *table = table_of(t, row, g);
        give_back(t, table, table->end);
        table->begin = table->end = 0;
    }
}

void kv_tables_insert(struct kv_tables *t, int32_t row, int32_t i, const int32_t *token_ids,
                      struct block_hash *hash)
{
    int32_t block_ids[KV_GROUPS_MAX];
    for (int32_t g = 0; g < t->groups.count; g++) {
        const struct kv_table *table = table_of(t, row, g);
        block_ids[g] = i >= table->begin && i < table->end ? table->block_ids[i] : NO_BLOCK;
    }
    prefix_cache_insert(t->prefixes, block_ids, token_ids, hash);
}

void kv_tables_forget(struct kv_tables *t, int32_t row, const int32_t *token_ids, int32_t num_hashed,
                      const struct block_hash *root)
{
    /* A state may be this sequence's behind a block that another had entered before. */
    int32_t num_passed = block_manager_num_states(t->blocks) > 0 ? num_hashed : 0;
    for (int32_t g = 0; g < t->groups.count; g++) {
        const struct kv_table *table = table_of(t, row, g);
        num_passed = max_of(num_passed, table->begin);
        for (int32_t i = table->begin; i < table->end; i++)
            prefix_cache_forget(t->prefixes, table->block_ids[i]);
    }
    prefix_cache_forget_chain(t->prefixes, token_ids, num_passed, root);
}
