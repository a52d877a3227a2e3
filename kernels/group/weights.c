/* weights.c - who has which rows of a weight. */
#include <stdlib.h>

#include "base/check.h"
#include "kernels/group/members.h"

enum {
    ROWS_UNIT = 16,  /* of a matrix whose rows stand for themselves */
    CODES_UNIT = 128 /* of one whose rows share scales, or whose codes lie in words of several rows */
};

/* What a device is to do with weights is said to the group. */
static void pass_forms_on(struct group *g)
{
    for (int i = 0; i < g->num; i++) {
        g->members[i]->keeps_packed = g->base.keeps_packed;
        g->members[i]->keeps_copies = g->base.keeps_copies;
    }
}

static int64_t unit_of(const struct weight_view *v)
{
    return weight_view_has_own_rows(v) ? ROWS_UNIT : CODES_UNIT;
}

static bool is_multiple(const struct group *g, const struct weight_view *v)
{
    return weight_view_num_rows(v) % (g->num * unit_of(v)) == 0;
}

/* Not of results whose columns would not be one piece of each row. */
static bool can_share_rows(const struct group *g, const struct linear_desc *desc)
{
    if (desc->kind == LINEAR_PLAIN && desc->num_parts > 1) return false;
    for (int i = 0; i < desc->num_parts; i++)
        if (!is_multiple(g, &desc->parts[i])) return false;
    return true;
}

static struct row_share share_of_rows(const struct member *m, const struct weight_view *v)
{
    const int64_t each = weight_view_num_rows(v) / m->group->num;
    return (struct row_share){m->idx * each, each};
}

static struct row_share share_of_heads(const struct member *m, int32_t num_heads, int64_t num_rows)
{
    const int32_t num = m->group->num, each = max_of(num_heads / num, 1), first = m->idx * num_heads / num;
    return (struct row_share){first * num_rows / num_heads, each * num_rows / num_heads};
}

static struct row_share share_of(const struct member *m, const struct linear_desc *desc, int part,
                                 enum linear_split split)
{
    const int64_t rows = weight_view_num_rows(&desc->parts[part]);
    if (split == SPLIT_BY_HEADS) return share_of_heads(m, desc->part_heads[part], rows);
    return split == SPLIT_BY_ROWS ? share_of_rows(m, &desc->parts[part]) : (struct row_share){0, rows};
}

static struct weight_view rows_of(const struct weight_view *v, struct row_share share)
{
    const bool is_all = share.num == weight_view_num_rows(v);
    return is_all || !v->data ? *v : weight_view_rows(v, share.first, share.num);
}

/* Of a vector of plain values. */
static struct weight_view values_of(const struct weight_view *v, struct row_share share)
{
    if (!v->data || v->cols == 1) return rows_of(v, share);
    if (v->rows != 1 || v->cols == share.num || weight_view_has_codes(v)) return *v;
    return weight_view_plain((const char *)v->data + dtype_row_bytes(v->dtype, (uint64_t)share.first),
                             v->dtype, 1, share.num);
}

static enum linear_split split_of(const struct group *g, const struct linear_desc *desc)
{
    const bool is_shared_out = desc->split == SPLIT_BY_ROWS && can_share_rows(g, desc);
    return desc->split == SPLIT_BY_HEADS ? SPLIT_BY_HEADS : is_shared_out ? SPLIT_BY_ROWS : SPLIT_NOT;
}

/* The member's desc, and what it has of it. */
static struct linear_desc own_desc(const struct member *m, const struct linear_desc *desc,
                                   struct group_linear *l)
{
    struct linear_desc o = *desc;
    for (int i = 0; i < desc->num_parts; i++) {
        const struct row_share share = share_of(m, desc, i, l->split);
        o.parts[i] = rows_of(&desc->parts[i], share);
        o.biases[i] = values_of(&desc->biases[i], share);
        l->shares[m->idx][i] = share;
    }
    return o;
}

/* Values of a row of results that the first member makes, which are as many as any other's. */
static int32_t own_width(const struct group_linear *l, const struct linear_desc *desc)
{
    int64_t width = 0;
    for (int i = 0; i < desc->num_parts; i++) width += l->shares[0][i].num;
    return (int32_t)(desc->kind == LINEAR_GATE_UP ? width / 2 : width);
}

int group_linear_create(struct device *d, const struct linear_desc *desc, struct linear **out,
                        struct error *err)
{
    struct group *g = group_of(d);
    struct group_linear *l = group_own(g, sizeof *l);
    int status = STATUS_OK;
    if (!l) return error_set(err, STATUS_NO_MEMORY, "no memory for a group of devices");
    pass_forms_on(g);
    l->split = split_of(g, desc);
    l->num_parts = desc->num_parts;
    EACH_MEMBER(d, m)
    {
        const struct linear_desc o = own_desc(&m, desc, l);
        if (!status) status = m.ops->linear_create(m.d, &o, (struct linear **)&l->linears.of[m.idx], err);
    }
    l->width = own_width(l, desc);
    if (l->split == SPLIT_BY_ROWS) {
        int32_t *widest = desc->wide_output ? &g->local_logits : &g->local_width;
        *widest = max_of(*widest, l->width);
    }
    *out = (struct linear *)l;
    return status;
}

uint64_t group_linear_bytes(struct device *d, const struct linear *l)
{
    uint64_t bytes = 0;
    EACH_MEMBER(d, m) bytes += m.ops->linear_bytes(m.d, own(&m, l));
    return bytes;
}

/* An adapter's rows go where the linear's are. */
static void own_parts(const struct member *m, const struct group_linear *l,
                      const struct lora_part from[LINEAR_PARTS_MAX], struct lora_part to[LINEAR_PARTS_MAX])
{
    for (int part = 0; part < l->num_parts; part++) {
        to[part] = from[part];
        to[part].up = rows_of(&from[part].up, l->shares[m->idx][part]);
    }
}

int group_lora_create(struct device *d, const struct linear *w, const struct lora_desc *desc,
                      struct lora **out, struct error *err)
{
    struct group *g = group_of(d);
    const struct group_linear *l = (const struct group_linear *)w;
    const size_t num = (size_t)max_of(desc->num_adapters, 1);
    struct each_member *loras = group_own(g, sizeof *loras);
    struct lora_part(*parts)[LINEAR_PARTS_MAX] = calloc(num, sizeof *parts);
    if (!loras || !parts) {
        free(parts);
        return error_set(err, STATUS_NO_MEMORY, "no memory for a list of adapters");
    }
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    {
        for (int32_t i = 0; i < desc->num_adapters; i++) own_parts(&m, l, desc->parts[i], parts[i]);
        const struct lora_desc o = {desc->num_adapters, (const struct lora_part(*)[LINEAR_PARTS_MAX])parts,
                                    desc->max_rank};
        if (!status) status = m.ops->lora_create(m.d, own(&m, w), &o, (struct lora **)&loras->of[m.idx], err);
    }
    free(parts);
    *out = (struct lora *)loras;
    return status;
}

int group_lora_set(struct device *d, const struct linear *w, struct lora *lora, int32_t i,
                   const struct lora_part parts[LINEAR_PARTS_MAX], struct error *err)
{
    const struct group_linear *l = (const struct group_linear *)w;
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    {
        struct lora_part o[LINEAR_PARTS_MAX] = {{.scale = 0}};
        own_parts(&m, l, parts, o);
        if (!status) status = m.ops->lora_set(m.d, own(&m, w), own(&m, lora), i, o, err);
    }
    return status;
}

/* Whole ones of each member. */
#define CREATE_EACH(operation, type)                                                                         \
    struct group *g = group_of(d);                                                                           \
    struct each_member *all = group_own(g, sizeof *all);                                                     \
    int status = STATUS_OK;                                                                                  \
    if (!all) return error_set(err, STATUS_NO_MEMORY, "no memory for a group of devices");                   \
    pass_forms_on(g);                                                                                        \
    EACH_MEMBER(d, m)                                                                                        \
    if (!status) status = m.ops->operation(m.d, desc, (type **)&all->of[m.idx], err);                        \
    *out = (type *)all;                                                                                      \
    return status

static bool can_share_expert(const struct group *g, const struct expert_desc *e)
{
    const struct weight_view *views[] = {&e->gate, &e->up, &e->down};
    for (size_t i = 0; i < array_length(views); i++)
        if (views[i]->scheme == WEIGHT_TRANSPOSED || !is_multiple(g, views[i])) return false;
    return true;
}

/* Where experts have a space of their own, what follows them is a product over all of it. */
static bool can_share_experts(const struct group *g, const struct moe_desc *desc)
{
    if (!g->members[0]->ops->moe_begin || desc->to_experts.data || desc->out_bias.data) return false;
    for (int32_t i = 0; i < desc->num_experts; i++)
        if (!can_share_expert(g, &desc->experts[i])) return false;
    return !desc->shared.up.data || can_share_expert(g, &desc->shared);
}

static struct expert_desc own_expert(const struct member *m, const struct expert_desc *e)
{
    const struct row_share inner = share_of_rows(m, &e->up), hidden = share_of_rows(m, &e->down);
    return (struct expert_desc){.gate = rows_of(&e->gate, inner),
                                .up = rows_of(&e->up, inner),
                                .down = rows_of(&e->down, hidden),
                                .gate_bias = values_of(&e->gate_bias, inner),
                                .up_bias = values_of(&e->up_bias, inner),
                                .down_bias = values_of(&e->down_bias, hidden)};
}

int group_moe_create(struct device *d, const struct moe_desc *desc, struct moe **out, struct error *err)
{
    struct group *g = group_of(d);
    struct group_moe *all = group_own(g, sizeof *all);
    struct expert_desc *experts = calloc((size_t)desc->num_experts, sizeof *experts);
    int status = STATUS_OK;
    if (!all || !experts) {
        free(experts);
        return error_set(err, STATUS_NO_MEMORY, "no memory for a group of devices");
    }
    pass_forms_on(g);
    if (can_share_experts(g, desc)) all->width = (int32_t)(desc->router.cols / g->num);
    all->has_shared = desc->shared.up.data != NULL;
    EACH_MEMBER(d, m)
    {
        struct moe_desc o = *desc;
        if (status) continue;
        for (int32_t i = 0; i < desc->num_experts && all->width > 0; i++)
            experts[i] = own_expert(&m, &desc->experts[i]);
        if (all->width > 0) {
            o.experts = experts;
            o.shared = own_expert(&m, &desc->shared);
        }
        status = m.ops->moe_create(m.d, &o, (struct moe **)&all->moes.of[m.idx], err);
    }
    free(experts);
    if (!status) g->local_width = max_of(g->local_width, all->width);
    *out = (struct moe *)all;
    return status;
}

int group_latent_create(struct device *d, const struct latent_desc *desc, struct latent **out,
                        struct error *err)
{
    CREATE_EACH(latent_create, struct latent);
}

int group_delta_net_create(struct device *d, const struct delta_desc *desc, struct delta_net **out,
                           struct error *err)
{
    CREATE_EACH(delta_net_create, struct delta_net);
}

static size_t local_bytes(const struct group *g)
{
    const int64_t rows = max_of(g->limits.num_tokens, g->limits.num_logits),
                  of_acts = rows * max_of(g->local_width, 1) * g->base.act_bytes,
                  of_logits = (int64_t)g->limits.num_logits * g->local_logits * (int64_t)sizeof(float);
    return (size_t)max_of(of_acts, of_logits);
}

int group_weights_done(struct device *d, struct error *err)
{
    struct group *g = group_of(d);
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    {
        g->local.of[m.idx] = m.ops->alloc(m.d, local_bytes(g), "a share of results");
        if (!g->local.of[m.idx])
            return error_set(err, STATUS_NO_MEMORY, "no device memory for shares of results");
        if (!status) status = m.ops->weights_done(m.d, err);
    }
    return status;
}
