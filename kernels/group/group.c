#include "kernels/group/members.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"

/* ---- memory ---- */

/* The first range that begins behind address. */
static size_t range_behind(const struct group *g, const char *address)
{
    size_t low = 0, high = g->num_ranges;
    while (low < high) {
        const size_t half = low + (high - low) / 2;
        if (g->ranges[half].of[0] <= address)
            low = half + 1;
        else
            high = half;
    }
    return low;
}

void *group_address(const struct member *m, const void *address)
{
    const struct group *g = m->group;
    if (!address || m->idx == 0) return (void *)address;
    const size_t behind = range_behind(g, address);
    assert_always(behind > 0);
    const struct group_range *r = &g->ranges[behind - 1];
    const size_t offset = (size_t)((const char *)address - r->of[0]);
    assert_always(offset < r->bytes);
    return r->of[m->idx] + offset;
}

void *group_own(struct group *g, size_t bytes)
{
    if (g->num_owned == g->owned_room) {
        const size_t room = 2 * g->owned_room + 64;
        void **owned = realloc(g->owned, room * sizeof *owned);
        if (!owned) return NULL;
        g->owned = owned;
        g->owned_room = room;
    }
    void *memory = calloc(1, bytes);
    if (memory) g->owned[g->num_owned++] = memory;
    return memory;
}

static bool reserve_range(struct group *g)
{
    if (g->num_ranges < g->ranges_room) return true;
    const size_t room = 2 * g->ranges_room + 256;
    struct group_range *ranges = realloc(g->ranges, room * sizeof *ranges);
    if (!ranges) return false;
    g->ranges = ranges;
    g->ranges_room = room;
    return true;
}

static void *group_alloc(struct device *d, size_t bytes, const char *what)
{
    struct group *g = group_of(d);
    struct group_range r = {.bytes = max_of(bytes, (size_t)1)};
    if (!reserve_range(g)) return NULL;
    EACH_MEMBER(d, m) if (!(r.of[m.idx] = m.ops->alloc(m.d, bytes, what))) return NULL;
    const size_t at = range_behind(g, r.of[0]);
    memmove(g->ranges + at + 1, g->ranges + at, (g->num_ranges++ - at) * sizeof *g->ranges);
    g->ranges[at] = r;
    return r.of[0];
}

/* As much as each of them has. */
static uint64_t group_free_bytes(struct device *d)
{
    uint64_t least = UINT64_MAX;
    EACH_MEMBER(d, m) least = min_of(least, m.ops->free_bytes(m.d));
    return least * (uint64_t)group_of(d)->num;
}

static int group_upload(struct device *d, void *to_device, const void *from_host, size_t bytes)
{
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    if (!status) status = m.ops->upload(m.d, group_address(&m, to_device), from_host, bytes);
    return status;
}

static int group_write_f32(struct device *d, void *to_device, const float *from, size_t count, bool res)
{
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    if (!status) status = m.ops->write_f32(m.d, group_address(&m, to_device), from, count, res);
    return status;
}

static struct member first_member(struct device *d)
{
    const struct member m = member_at(group_of(d), 0);
    assert_always(m.d);
    return m;
}

static int group_download(struct device *d, void *to_host, const void *from_device, size_t bytes)
{
    const struct member m = first_member(d);
    return m.ops->download(m.d, to_host, from_device, bytes);
}

static int group_read_f32(struct device *d, float *to, const void *from_device, size_t count, bool res)
{
    const struct member m = first_member(d);
    return m.ops->read_f32(m.d, to, from_device, count, res);
}

static int group_read_logits(struct device *d, int32_t row, float *out)
{
    const struct member m = first_member(d);
    return m.ops->read_logits(m.d, row, out);
}

/* ---- before steps ---- */

/* What members find out about themselves. */
static void take_facts(struct group *g)
{
    const struct device *first = g->members[0];
    g->base.prefill_tile = first->prefill_tile;
    g->base.prefill_keys_max = first->prefill_keys_max;
    g->base.decode_bundle = first->decode_bundle;
}

int32_t group_kv_heads(const struct group *g, int32_t num_kv_heads)
{
    return g->by_heads ? max_of(num_kv_heads / g->num, 1) : num_kv_heads;
}

struct attention_args group_attention(const struct member *m, const struct attention_args *args)
{
    struct attention_args a = *args;
    a.latent = own(m, args->latent);
    a.sinks = group_address(m, args->sinks);
    a.distance_bias = group_address(m, args->distance_bias);
    if (!args->by_heads) return a;
    a.all_heads = args->num_heads;
    a.all_kv_heads = args->num_kv_heads;
    a.num_heads /= m->group->num;
    a.num_kv_heads = group_kv_heads(m->group, args->num_kv_heads);
    if (a.sinks) a.sinks += m->idx * a.num_heads;
    return a;
}

static int group_prepare(struct device *d, const struct step_limits *limits, int32_t vocab_size,
                         int32_t hidden_size, int32_t intermediate_size, const struct attention_args *layers,
                         int32_t num_layers, struct error *err)
{
    struct group *g = group_of(d);
    struct attention_args *own_layers = calloc((size_t)num_layers, sizeof *own_layers);
    g->results = group_own(g, (size_t)max_of(limits->num_logits, 1) * sizeof *g->results);
    if (!own_layers || !g->results) {
        free(own_layers);
        return error_set(err, STATUS_NO_MEMORY, "no memory for a group of devices");
    }
    g->by_heads = layers[0].by_heads;
    g->limits = *limits;
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    {
        for (int32_t i = 0; i < num_layers; i++) {
            own_layers[i] = group_attention(&m, &layers[i]);
            if (g->by_heads)
                g->local_width = max_of(g->local_width, own_layers[i].num_heads * own_layers[i].head_dim);
        }
        if (!status)
            status = m.ops->prepare(m.d, limits, vocab_size, hidden_size, intermediate_size, own_layers,
                                    num_layers, err);
    }
    free(own_layers);
    take_facts(g);
    return status;
}

static void group_seal(struct device *d)
{
    EACH_MEMBER(d, m) m.ops->seal(m.d);
}

static struct kv_shape own_shape(const struct group *g, const struct kv_shape *shape)
{
    struct kv_shape s = *shape;
    s.num_kv_heads = group_kv_heads(g, shape->num_kv_heads);
    if (s.others.num_layers > 0) s.others.num_kv_heads = group_kv_heads(g, shape->others.num_kv_heads);
    return s;
}

static uint64_t group_kv_pool_bytes(struct device *d, const struct kv_shape *shape)
{
    const struct kv_shape s = own_shape(group_of(d), shape);
    uint64_t bytes = 0;
    EACH_MEMBER(d, m) bytes += m.ops->kv_pool_bytes(m.d, &s);
    return bytes;
}

static int group_kv_pool_create(struct device *d, const struct kv_shape *shape, struct kv_pool **out,
                                struct error *err)
{
    struct group *g = group_of(d);
    const struct kv_shape s = own_shape(g, shape);
    struct each_member *pools = group_own(g, sizeof *pools);
    int status = STATUS_OK;
    if (!pools) return error_set(err, STATUS_NO_MEMORY, "no memory for a group of devices");
    EACH_MEMBER(d, m)
    if (!status) status = m.ops->kv_pool_create(m.d, &s, (struct kv_pool **)&pools->of[m.idx], err);
    take_facts(g);
    *out = (struct kv_pool *)pools;
    return status;
}

static int group_kv_blocks_save(struct device *d, struct kv_pool *pool, const int32_t *block_ids,
                                const int32_t *host_ids, int num_blocks)
{
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    if (!status) status = m.ops->kv_blocks_save(m.d, own(&m, pool), block_ids, host_ids, num_blocks);
    return status;
}

static int group_kv_blocks_load(struct device *d, struct kv_pool *pool, const int32_t *block_ids,
                                const int32_t *host_ids, int num_blocks)
{
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    if (!status) status = m.ops->kv_blocks_load(m.d, own(&m, pool), block_ids, host_ids, num_blocks);
    return status;
}

static int group_states_copy(struct device *d, struct delta_net *net, const struct state_copy *copies,
                             int num_copies)
{
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    if (!status) status = m.ops->states_copy(m.d, own(&m, net), copies, num_copies);
    return status;
}

static bool group_delta_takes_drafts(struct device *d, int32_t k_dim, int32_t v_dim)
{
    const struct member m = first_member(d);
    return m.ops->delta_takes_drafts(m.d, k_dim, v_dim);
}

static int32_t group_graph_size(const struct device *d, int32_t n)
{
    const struct device *first = ((const struct group *)d)->members[0];
    return first->ops->graph_size(first, n);
}

static void group_rehearse(struct device *d, bool on)
{
    EACH_MEMBER(d, m) m.ops->rehearse(m.d, on);
}

static void group_forbid(struct device *d, const uint64_t *ids)
{
    EACH_MEMBER(d, m) m.ops->forbid(m.d, ids);
}

static int group_history_set(struct device *d, int32_t batch_slot, const int32_t *token_ids,
                             int32_t num_prompt, int32_t num_tokens)
{
    int status = STATUS_OK;
    EACH_MEMBER(d, m)
    if (!status) status = m.ops->history_set(m.d, batch_slot, token_ids, num_prompt, num_tokens);
    return status;
}

static const float *group_row(struct device *d, int32_t batch_slot)
{
    const struct member m = first_member(d);
    return m.ops->row(m.d, batch_slot);
}

/* ---- life ---- */

static void group_close(struct device *d)
{
    struct group *g = group_of(d);
    for (int i = 0; i < g->num; i++)
        if (g->members[i]) g->members[i]->ops->close(g->members[i]);
    for (size_t i = 0; i < g->num_owned; i++) free(g->owned[i]);
    free(g->owned);
    free(g->ranges);
    free(g);
}

static struct kernel_table full_table(void)
{
    struct kernel_table t = {.close = group_close,
                             .free_bytes = group_free_bytes,
                             .alloc = group_alloc,
                             .upload = group_upload,
                             .download = group_download,
                             .prepare = group_prepare,
                             .seal = group_seal,
                             .linear_create = group_linear_create,
                             .linear_bytes = group_linear_bytes,
                             .lora_create = group_lora_create,
                             .lora_set = group_lora_set,
                             .moe_create = group_moe_create,
                             .latent_create = group_latent_create,
                             .delta_net_create = group_delta_net_create,
                             .delta_takes_drafts = group_delta_takes_drafts,
                             .weights_done = group_weights_done,
                             .kv_pool_bytes = group_kv_pool_bytes,
                             .kv_pool_create = group_kv_pool_create,
                             .kv_blocks_save = group_kv_blocks_save,
                             .kv_blocks_load = group_kv_blocks_load,
                             .states_copy = group_states_copy,
                             .graph_size = group_graph_size,
                             .rehearse = group_rehearse,
                             .forbid = group_forbid,
                             .history_set = group_history_set,
                             .row = group_row,
                             .read_logits = group_read_logits,
                             .write_f32 = group_write_f32,
                             .read_f32 = group_read_f32};
    group_fill_step_table(&t);
    return t;
}

/* What members may lack, the group lacks, too. */
static struct kernel_table table_of(const struct kernel_table *members)
{
    struct kernel_table t = full_table();
#define AS_MEMBERS(operation)                                                                                \
    if (!members->operation) t.operation = NULL
    AS_MEMBERS(lora_create);
    AS_MEMBERS(lora_set);
    AS_MEMBERS(moe_create);
    AS_MEMBERS(latent_create);
    AS_MEMBERS(delta_net_create);
    AS_MEMBERS(delta_takes_drafts);
    AS_MEMBERS(states_copy);
    AS_MEMBERS(replay);
    AS_MEMBERS(record_begin);
    AS_MEMBERS(record_end);
    AS_MEMBERS(graph_size);
    AS_MEMBERS(rehearse);
    AS_MEMBERS(embed_positions);
    AS_MEMBERS(multiply);
    AS_MEMBERS(norm_linear);
    AS_MEMBERS(sparse_gelu);
    AS_MEMBERS(altup_begin);
    AS_MEMBERS(altup_predict);
    AS_MEMBERS(altup_correct);
    AS_MEMBERS(altup_end);
#undef AS_MEMBERS
    return t;
}

static int open_members(struct group *g, group_open_member *open_member, const char *name,
                        const struct device_options *options, struct error *err)
{
    struct device_options own_options = *options;
    int status = STATUS_OK;
    own_options.num_devices = 1;
    for (; g->num < options->num_devices && !status; g->num++) {
        own_options.cuda_device = options->cuda_device + (options->on_one_gpu ? 0 : g->num);
        status = open_member(name, &own_options, &g->members[g->num], err);
    }
    return status;
}

/* Kernels of another kind would have other bits. */
static int check_members(const struct group *g, struct error *err)
{
    const struct device *first = g->members[0];
    assert_always(first);
    for (int i = 1; i < g->num; i++) {
        if (g->members[i]->ops != first->ops)
            return error_set(err, STATUS_UNSUPPORTED,
                             "%d devices are to compute as one, and not all are GPUs", g->num);
        if (strcmp(g->members[i]->description, first->description) != 0)
            return error_set(err, STATUS_UNSUPPORTED,
                             "devices that compute as one must be of one kind, not %s and %s",
                             first->description, g->members[i]->description);
    }
    if (first->ops->join) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED, "several devices %s cannot compute as one", first->name);
}

static int join_members(struct group *g, struct error *err)
{
    int status = check_members(g, err);
    for (int i = 0; i < g->num && !status; i++) {
        struct device *d = g->members[i];
        assert_always(d && d->ops->join); /* check_members */
        status = d->ops->join(d, g->members, g->num, i, err);
    }
    return status;
}

int group_open(group_open_member *open_member, const char *name, const struct device_options *options,
               struct device **out, struct error *err)
{
    if (options->num_devices > GROUP_MEMBERS_MAX)
        return error_set(err, STATUS_INVALID, "at most %d devices compute as one, not %d",
                         (int)GROUP_MEMBERS_MAX, options->num_devices);
    struct group *g = calloc(1, sizeof *g);
    if (!g) return error_set(err, STATUS_NO_MEMORY, "no memory for a group of devices");
    int status = open_members(g, open_member, name, options, err);
    if (!status) status = join_members(g, err);
    if (status) {
        group_close(&g->base);
        return status;
    }
    if (!g->members[0]->is_gpu)
        log_warning("%d devices of a CPU compute one after the other: that is for tests, and no faster",
                    g->num);
    g->base = *g->members[0];
    g->table = table_of(g->base.ops);
    g->base.ops = &g->table;
    g->base.num_members = g->num;
    g->base.gpu_bytes *= (uint64_t)g->num;
    for (int i = 1; i < g->num; i++) g->members[i]->chooser = g->members[0];
    *out = &g->base;
    return STATUS_OK;
}
