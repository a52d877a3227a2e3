/* prefix_cache.h - finds the K/V blocks that an earlier prompt with the same beginning left behind.
 *
 * Every full block has a hash: the SHA-256 of its parent's hash and its token ids; the first block's parent
 * is the root, the SHA-256 of the model's key and the request's salt. So a hash stands for everything before
 * it, under one model and one salt. The cache maps hashes, in each group of layers, to blocks, one to one; of
 * two blocks with the same hash the first stays.
 *
 *   root(salt) <- hash 0 <- hash 1 <- hash 2 ...
 *                 16 ids    16 ids    16 ids
 *
 * A hit is as long as every group allows: of a group with a window, only the blocks that the token behind the
 * hit sees have to be there. It is not taken on the hash's word: each block's own token ids are compared and its recorded parent
 * must be the block matched before. Blocks are entered when a step that fills them is planned, not when it
 * ends: steps run in order and a step writes all K and V of a layer before it reads any, so equal prompts in
 * one step share already.
 *
 * Where some layers have a state instead, a hit ends where a state was kept, too: of a chain few blocks have one
 * (scheduler.h says which). It has the hash of the last block before it and leaves the cache with that block.
 *
 *   root(salt) <- hash 0 <- hash 1 <- ... <- hash 7 <- hash 8 <- hash 9
 *                                            state
 *
 * Which cached block goes first, and which state, is the block manager's business. Thread: the engine's. */
#ifndef KVCACHE_PREFIX_CACHE_H
#define KVCACHE_PREFIX_CACHE_H

#include <stddef.h>

#include "kernels/step.h"
#include "kvcache/block_manager.h"
#include "kvcache/kv_groups.h"

struct block_hash {
    uint8_t bytes[32];
};

struct prefix_cache;

/* What a lookup says of states. */
struct state_match {
    int32_t id;             /* of the hit, held; NO_BLOCK: nothing was found */
    int32_t num_blocks;     /* that K and V alone would have given, at least as many as the hit has */
    struct block_hash hash; /* of the last of them */
};

/* model_key: whatever distinguishes the K/V contents of one model, type and
 * layout from another's. Registers itself with bm for evictions; destroy it before bm. Where bm has places for states, a hit
 * needs one. */
int prefix_cache_create(struct block_manager *bm, const struct kv_groups *groups, const void *model_key,
                        size_t key_bytes, struct prefix_cache **out, struct error *err) must_check;
void prefix_cache_destroy(struct prefix_cache *pc);

/* The parent of first blocks under this salt. */
void prefix_cache_root(const struct prefix_cache *pc, const void *salt, size_t salt_bytes,
                       struct block_hash *root);

/* From the parent's hash to the hash of the block of these BLOCK_SIZE tokens. */
void prefix_cache_extend(struct block_hash *hash, const int32_t *token_ids);

/* Follows token_ids block by block, at most max_blocks, from *hash, a root; *hash becomes the hash of the last
 * block of the hit. Returns the number n of its blocks. Of group g it holds block_ids[g stride + i] for i from
 * kv_group_first_block(n BLOCK_SIZE) to n; other ids up to max_blocks are overwritten. state: NULL where there are none. */
int32_t prefix_cache_match(struct prefix_cache *pc, const int32_t *token_ids, int32_t max_blocks,
                           struct block_hash *hash, int32_t *block_ids, int32_t stride,
                           struct state_match *state);

/* Why no block is found for the BLOCK_SIZE tokens that come behind *hash, at a position of their sequence. Of what went on
 * from there the newest is remembered, of what was evicted about as much as there are blocks: what has been forgotten is
 * new. */
struct cache_miss prefix_cache_explain(const struct prefix_cache *pc, const int32_t *token_ids,
                                       int32_t position, const struct block_hash *hash);

/* Enters held blocks, one of each group (NO_BLOCK: of that none), whose contents are (or will be, once the
 * steps begun so far have run) the K and V of these block_size tokens after the parent *hash. *hash becomes the
 * blocks' own. A hash that is taken stays with the block that has it. */
void prefix_cache_insert(struct prefix_cache *pc, const int32_t *block_ids, const int32_t *token_ids,
                         struct block_hash *hash);

/* Whether a state of all tokens up to the end of this hash's block would be found and is not there yet. One that is
 * there counts as used. */
bool prefix_cache_wants_state(struct prefix_cache *pc, const struct block_hash *hash);
/* Enters a held state that is wanted. */
void prefix_cache_insert_state(struct prefix_cache *pc, int32_t id, const struct block_hash *hash);
/* Forgets the state if it is still that of this hash and nobody holds it. */
void prefix_cache_drop_state(struct prefix_cache *pc, int32_t id, const struct block_hash *hash);

/* The block, held, is not found any more; no effect when it was not entered. */
void prefix_cache_forget(struct prefix_cache *pc, int32_t block_id);
/* The same for whatever blocks and states there are, in any group, for the first num_blocks blocks of these tokens. */
void prefix_cache_forget_chain(struct prefix_cache *pc, const int32_t *token_ids, int32_t num_blocks,
                               const struct block_hash *root);

int32_t prefix_cache_num_entries(const struct prefix_cache *pc);

/* Walks everything: map and blocks are one to one, each hash is that of its parent and ids. */
void prefix_cache_check(const struct prefix_cache *pc);

#endif
