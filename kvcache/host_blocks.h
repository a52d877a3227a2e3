/* host_blocks.h - which blocks of host memory hold the K and V of preempted sequences. Bookkeeping only: the
 * memory and the copies are the engine's.
 *
 * A chain has the blocks of one sequence, in order; its head names it. At all times the chains' blocks and the
 * free ones add up to num_blocks. Thread: the engine's. */
#ifndef KVCACHE_HOST_BLOCKS_H
#define KVCACHE_HOST_BLOCKS_H

#include <stdint.h>

#include "base/status.h"

enum { NO_HOST_BLOCK = -1 };

struct host_blocks;

/* num_blocks >= 0. */
int host_blocks_create(int32_t num_blocks, struct host_blocks **out, struct error *err) must_check;
void host_blocks_destroy(struct host_blocks *hb);

/* A chain of count >= 1 blocks, of which num_free has as many. The one used last goes first: memory that was never
 * needed is never touched. */
int32_t host_blocks_take(struct host_blocks *hb, int32_t count);
int32_t host_blocks_next(const struct host_blocks *hb, int32_t id); /* NO_HOST_BLOCK behind the last one */
void host_blocks_give_back(struct host_blocks *hb, int32_t head);   /* the whole chain; NO_HOST_BLOCK: none */

int32_t host_blocks_num_free(const struct host_blocks *hb);

#endif
