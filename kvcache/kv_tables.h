/* kv_tables.h - which blocks each running sequence holds, group by group.
 *
 * A row belongs to one sequence. In each group it holds the blocks [begin, end) of its sequence, of which block i has the
 * tokens from i BLOCK_SIZE on:
 *
 *   full     |0|1|2|3|4|5|6|7|          begin is 0; end as far as tokens are known
 *   window           |4|5|6|7|          begin is the first block that the oldest step not yet ended sees; end, too, is
 *             passed  begin   end       no farther from it than steps in flight may reach
 *
 * Where a window moves on, a row gives back what lies behind and may then hold as much ahead, so that a long prompt
 * never has more of it than kv_group_num_blocks_max. What is given back stays in the prefix cache as long as there is
 * room. Thread: the engine's. */
#ifndef KVCACHE_KV_TABLES_H
#define KVCACHE_KV_TABLES_H

#include "kvcache/prefix_cache.h"

struct kv_tables;

/* Of one group of a row. block_ids outside [begin, end) mean nothing. */
struct kv_table {
    int32_t begin, end;
    int32_t *block_ids;
};

/* prefixes: NULL where blocks are not shared. Both live longer than the tables. */
int kv_tables_create(struct block_manager *blocks, struct prefix_cache *prefixes,
                     const struct kv_groups *groups, int32_t num_rows, int32_t max_model_len,
                     struct kv_tables **out, struct error *err) must_check;
void kv_tables_destroy(struct kv_tables *t);

const struct kv_groups *kv_tables_groups(const struct kv_tables *t);
const struct kv_table *kv_tables_get(const struct kv_tables *t, int32_t row, int32_t group);
/* Tokens from the beginning that have blocks in every group, or had them. */
int32_t kv_tables_num_places(const struct kv_tables *t, int32_t row);
int32_t kv_tables_num_held(const struct kv_tables *t, int32_t row); /* blocks, of all groups */

/* An empty row takes what the prefix cache has (prefix_cache_match). Returns the number of blocks of tokens. A state stays
 * the caller's. */
int32_t kv_tables_match(struct kv_tables *t, int32_t row, const int32_t *token_ids, int32_t max_blocks,
                        struct block_hash *hash, struct state_match *state);

/* Blocks that the row lacks for its first num_tokens tokens, as far as windows reach. */
int32_t kv_tables_num_missing(const struct kv_tables *t, int32_t row, int32_t num_tokens);
/* Holds them. All or nothing: on STATUS_NO_BLOCKS nothing changed. */
int kv_tables_hold(struct kv_tables *t, int32_t row, int32_t num_tokens) must_check;

/* Whether kv_tables_pass would give back anything. */
bool kv_tables_is_behind(const struct kv_tables *t, int32_t row, int32_t position);
/* No token before position will be computed any more: gives back what those from there on do not see. */
void kv_tables_pass(struct kv_tables *t, int32_t row, int32_t position);
void kv_tables_release(struct kv_tables *t, int32_t row);

/* Tells the prefix cache of block i, full of these tokens. */
void kv_tables_insert(struct kv_tables *t, int32_t row, int32_t i, const int32_t *token_ids,
                      struct block_hash *hash);
/* Nobody finds the row's blocks any more, nor states of theirs. token_ids, root: of the sequence, of which num_hashed blocks
 * were inserted, for those that were given back. */
void kv_tables_forget(struct kv_tables *t, int32_t row, const int32_t *token_ids, int32_t num_hashed,
                      const struct block_hash *root);

#endif
