#include "kvcache/host_blocks.h"

#include "base/check.h"

struct host_blocks {
    int32_t num_blocks, num_free;
    int32_t free;   /* a chain like the others */
    int32_t next[]; /* [num_blocks] */
};

int host_blocks_create(int32_t num_blocks, struct host_blocks **out, struct error *err)
{
    assert_always(num_blocks >= 0);
    struct host_blocks *hb = malloc(sizeof(*hb) + (size_t)num_blocks * sizeof(hb->next[0]));
    if (!hb)
        return error_set(err, STATUS_NO_MEMORY, "no memory for the bookkeeping of %d saved blocks",
                         num_blocks);
    *hb = (struct host_blocks){.num_blocks = num_blocks, .num_free = num_blocks};
    for (int32_t id = 0; id < num_blocks; id++) hb->next[id] = id + 1 < num_blocks ? id + 1 : NO_HOST_BLOCK;
    hb->free = num_blocks > 0 ? 0 : NO_HOST_BLOCK;
    *out = hb;
    return 0;
}

void host_blocks_destroy(struct host_blocks *hb)
{
    free(hb);
}

int32_t host_blocks_take(struct host_blocks *hb, int32_t count)
{
    assert_always(count >= 1 && count <= hb->num_free);
    int32_t head = hb->free, last = head;
    for (int32_t i = 1; i < count; i++) last = hb->next[last];
    hb->free = hb->next[last];
    hb->next[last] = NO_HOST_BLOCK;
    hb->num_free -= count;
    return head;
}

int32_t host_blocks_next(const struct host_blocks *hb, int32_t id)
{
    assert_always(id >= 0 && id < hb->num_blocks);
    return hb->next[id];
}

void host_blocks_give_back(struct host_blocks *hb, int32_t head)
{
    if (head == NO_HOST_BLOCK) return;
    int32_t last = head, count = 1;
    for (; hb->next[last] != NO_HOST_BLOCK; last = hb->next[last]) count++;
    hb->next[last] = hb->free;
    hb->free = head;
    hb->num_free += count;
    assert_always(hb->num_free <= hb->num_blocks);
}

int32_t host_blocks_num_free(const struct host_blocks *hb)
{
    return hb->num_free;
}
