/* block_manager.h - who holds which K/V block, and which kept state. Bookkeeping only: no device memory.
 *
 * There are two pools: blocks of K and V, with ids from 0 to num_blocks, and places for states of layers that have a
 * state instead (device.h: delta_desc), with the num_states ids behind them. Of what follows all goes for both, each
 * by itself. A block is
 *   free     ref_count 0, not known to the prefix cache
 *   cached   ref_count 0, known to the prefix cache; may be evicted, least recently released first
 *   held     ref_count >= 1; running sequences, or steps still on the device, use its contents
 * and at all times  num_free + num_cached + num_held == num_blocks, or num_states.
 *
 * A block is written by the one sequence that got it from block_manager_hold. block_manager_share is only for
 * blocks that are full and never written again, so copy-on-write does not exist. Thread: the engine's. */
#ifndef KVCACHE_BLOCK_MANAGER_H
#define KVCACHE_BLOCK_MANAGER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { NO_BLOCK = -1 }; /* in place of a block's id */

struct block_manager;

/* num_blocks >= 1, num_states >= 0. */
int block_manager_create(int32_t num_blocks, int32_t num_states, struct block_manager **out,
                         struct error *err) must_check;
void block_manager_destroy(struct block_manager *bm);

/* Called for each block that is evicted, just before it is handed out again: the prefix cache forgets it. */
void block_manager_on_evict(struct block_manager *bm, void (*evict)(void *context, int32_t block_id),
                            void *context);

/* Holds count blocks whose contents are undefined: free ones first, then evicted ones. All or nothing: on
 * STATUS_NO_BLOCKS nothing changed. */
int block_manager_hold(struct block_manager *bm, int32_t count, int32_t *block_ids) must_check;
/* The same for one place of a state. */
int block_manager_hold_state(struct block_manager *bm, int32_t *id) must_check;
/* One more reference to a held or cached block. */
void block_manager_share(struct block_manager *bm, int32_t block_id);
/* Drops one reference to each, the last of the array first: of a chain that nobody holds any more, the end is
 * evicted before what it hangs on. */
void block_manager_release(struct block_manager *bm, int32_t count, const int32_t *block_ids);

/* Whether the prefix cache knows this held block: then it becomes cached, not free, when released. */
void block_manager_set_known(struct block_manager *bm, int32_t block_id, bool known);
bool block_manager_is_known(const struct block_manager *bm, int32_t block_id);

int32_t block_manager_ref_count(const struct block_manager *bm, int32_t block_id);
int32_t block_manager_num_blocks(const struct block_manager *bm); /* of K and V, as what follows */
int32_t block_manager_num_free(const struct block_manager *bm);
int32_t block_manager_num_cached(const struct block_manager *bm);
int32_t block_manager_num_held(const struct block_manager *bm);
/* What block_manager_hold could give now: free and cached. */
int32_t block_manager_num_available(const struct block_manager *bm);

int32_t block_manager_num_states(const struct block_manager *bm);
int32_t block_manager_num_free_states(const struct block_manager *bm);
int32_t block_manager_num_cached_states(const struct block_manager *bm);
int32_t block_manager_num_held_states(const struct block_manager *bm);

/* Walks everything and asserts the law above, list order and list lengths. */
void block_manager_check(const struct block_manager *bm);

#endif
