/* members.h - what the files of the group share: its members, and whose an argument is. */
#ifndef KERNELS_GROUP_MEMBERS_H
#define KERNELS_GROUP_MEMBERS_H

#include "kernels/group/group.h"

enum { GROUP_STEPS = 2 }; /* in flight, at most */

/* Device memory: of each member so many bytes. */
struct group_range {
    char *of[GROUP_MEMBERS_MAX];
    size_t bytes;
};

/* One of each member: of linears, experts, pools, batches, ... */
struct each_member {
    void *of[GROUP_MEMBERS_MAX];
};

/* Rows of a part that a member has. */
struct row_share {
    int64_t first, num;
};

struct group_linear {
    struct each_member linears; /* first */
    enum linear_split split;    /* as it was done */
    int num_parts;
    int32_t width; /* values that a member makes of a row */
    struct row_share shares[GROUP_MEMBERS_MAX][LINEAR_PARTS_MAX];
};

struct group_moe {
    struct each_member moes; /* first */
    int32_t width;   /* values of a row that a member makes; 0: of all of them, each has all experts' rows */
    bool has_shared; /* an expert that every token has */
};

struct group {
    struct device base;        /* first */
    struct kernel_table table; /* without what members have not */
    int num;
    struct device *members[GROUP_MEMBERS_MAX];
    struct group_range *ranges; /* by the first member's addresses */
    size_t num_ranges, ranges_room;
    void **owned; /* what the creators of weights have made; freed with the group */
    size_t num_owned, owned_room;
    bool by_heads; /* since prepare */
    struct step_limits limits;
    int32_t local_width;      /* values of the widest row that a member makes for all */
    int32_t local_logits;     /* of a row of logits; 0: each makes all of them */
    struct each_member local; /* (act) [T][local_width] or f32 [R][local_logits], since weights_done */
    struct each_member batches[GROUP_STEPS];
    int num_begun;
    struct sample_result *results; /* [num_logits] of the members but the first */
};

static inline struct group *group_of(struct device *d)
{
    return (struct group *)d;
}

/* One member after the other, which operations are meant for meanwhile. */
struct member {
    struct group *group;
    int idx;
    struct device *d;
    const struct kernel_table *ops;
};

static inline struct member member_at(struct group *g, int idx)
{
    struct member m = {.group = g, .idx = idx};
    if (idx == g->num) return m;
    m.d = g->members[idx];
    m.ops = m.d->ops;
    if (m.ops->select) m.ops->select(m.d);
    return m;
}

#define EACH_MEMBER(device, m)                                                                               \
    for (struct member m = member_at(group_of(device), 0); m.d; m = member_at(m.group, m.idx + 1))

/* What the group handed out as one thing: the member's. NULL is NULL. */
static inline void *own(const struct member *m, const void *thing)
{
    return thing ? ((const struct each_member *)thing)->of[m->idx] : NULL;
}

/* Device memory: where the first member's address is on this one. NULL is NULL. */
void *group_address(const struct member *m, const void *address);

/* A member's share of the heads. */
struct attention_args group_attention(const struct member *m, const struct attention_args *args);
int32_t group_kv_heads(const struct group *g, int32_t num_kv_heads);

/* Memory that is freed with the group; NULL: there is none. */
void *group_own(struct group *g, size_t bytes);

/* weights.c, step.c: entries of the table */
int group_linear_create(struct device *d, const struct linear_desc *desc, struct linear **out,
                        struct error *err) must_check;
uint64_t group_linear_bytes(struct device *d, const struct linear *l);
int group_lora_create(struct device *d, const struct linear *w, const struct lora_desc *desc,
                      struct lora **out, struct error *err) must_check;
int group_lora_set(struct device *d, const struct linear *w, struct lora *l, int32_t i,
                   const struct lora_part parts[LINEAR_PARTS_MAX], struct error *err) must_check;
int group_moe_create(struct device *d, const struct moe_desc *desc, struct moe **out,
                     struct error *err) must_check;
int group_latent_create(struct device *d, const struct latent_desc *desc, struct latent **out,
                        struct error *err) must_check;
int group_delta_net_create(struct device *d, const struct delta_desc *desc, struct delta_net **out,
                           struct error *err) must_check;
int group_weights_done(struct device *d, struct error *err) must_check;
void group_fill_step_table(struct kernel_table *t);

#endif
