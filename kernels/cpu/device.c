#include "kernels/cpu/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/memory_limit.h"
#include "kernels/cpu/kv_pool.h"
#include "kernels/cpu/linear.h"

/* Below this many values one thread is done before others are awake; measured with 2 threads on a Skylake
 * server, where a run on spinning threads costs 1 to 2 us. */
enum { PARALLEL_WORK_MIN = 16384 };

void cpu_device_run(struct cpu_device *c, int64_t work,
                    void (*task)(void *context, int thread_idx, int num_threads), void *context)
{
    if (work < PARALLEL_WORK_MIN)
        task(context, 0, 1);
    else
        thread_pool_run(c->pool, task, context);
}

/* ---- memory ---- */

static void cpu_close(struct device *d)
{
    struct cpu_device *c = cpu_device_of(d);
    for (int i = 0; i < c->num_linears; i++) cpu_linear_destroy(c->linears[i]);
    free(c->linears);
    cpu_loras_destroy(c);
    thread_pool_destroy(c->pool);
    device_memory_free_all(&c->memory);
    free(c);
}

static uint64_t cpu_free_bytes(struct device *d)
{
    (void)d;
    return memory_limit_now().free;
}

static void *cpu_alloc(struct device *d, size_t bytes, const char *what)
{
    (void)what;
    struct cpu_device *c = cpu_device_of(d);
    assert_always(!c->sealed);
    return device_memory_alloc(&c->memory, bytes);
}

static int cpu_copy(struct device *d, void *to, const void *from, size_t bytes)
{
    (void)d;
    memcpy(to, from, bytes);
    return STATUS_OK;
}

static int cpu_write_f32(struct device *d, void *to_device, const float *from, size_t count, bool res)
{
    (void)res;
    return cpu_copy(d, to_device, from, count * sizeof *from);
}

static int cpu_read_f32(struct device *d, float *to, const void *from_device, size_t count, bool res)
{
    (void)res;
    return cpu_copy(d, to, from_device, count * sizeof *to);
}

static bool alloc_step(struct cpu_device *c, const struct step_limits *l, int32_t max_rows, int32_t max_k)
{
    struct device_memory *m = &c->memory;
    c->batch.token_ids = device_memory_alloc_array(m, (uint64_t)l->num_tokens, sizeof *c->batch.token_ids);
    c->batch.state_runs = device_memory_alloc_array(m, (uint64_t)l->num_seqs, sizeof *c->batch.state_runs);
    c->linear_scratch = device_memory_alloc(m, cpu_linear_scratch_bytes(max_rows, max_k));
    c->logits =
        device_memory_alloc_array(m, (uint64_t)l->num_logits * (uint64_t)c->vocab_size, sizeof *c->logits);
    c->results = device_memory_alloc_array(m, (uint64_t)l->num_logits, sizeof *c->results);
    c->greedy_tokens = device_memory_alloc_array(m, (uint64_t)l->num_logits, sizeof *c->greedy_tokens);
    c->argmax = device_memory_alloc_array(
        m, (uint64_t)l->num_logits * (uint64_t)thread_pool_num_threads(c->pool), sizeof *c->argmax);
    c->forbidden = device_memory_alloc_array(m, bit_set_words((size_t)c->vocab_size), sizeof *c->forbidden);
    return c->batch.token_ids && c->batch.state_runs && c->linear_scratch && c->logits && c->results &&
           c->greedy_tokens && c->argmax && c->forbidden;
}

static bool alloc_history(struct cpu_device *c, const struct step_limits *l)
{
    struct history *h = &c->history;
    h->num_slots = l->num_batch_slots;
    h->max_tokens = l->max_model_len;
    h->slots = device_memory_alloc_array(&c->memory, (uint64_t)h->num_slots, sizeof *h->slots);
    h->tokens = device_memory_alloc_array(&c->memory, (uint64_t)h->num_slots * (uint64_t)h->max_tokens,
                                          sizeof *h->tokens);
    return h->slots && h->tokens;
}

static bool alloc_rows(struct cpu_device *c, const struct step_limits *l)
{
    uint64_t num_slots = (uint64_t)l->num_batch_slots;
    c->row_floats = max_of(c->hidden_size, (int32_t)ROW_LOGITS_MAX);
    c->sums = device_memory_alloc_array(&c->memory, num_slots * (uint64_t)c->hidden_size, sizeof *c->sums);
    c->floats = device_memory_alloc_array(&c->memory, num_slots * (uint64_t)c->row_floats, sizeof *c->floats);
    return c->sums && c->floats;
}

static bool alloc_sampling(struct cpu_device *c)
{
    struct device_memory *m = &c->memory;
    int num_threads = thread_pool_num_threads(c->pool);
    uint64_t vocab_size = (uint64_t)c->vocab_size;
    c->sampling = device_memory_alloc_array(m, (uint64_t)num_threads, sizeof *c->sampling);
    if (!c->sampling) return false;
    for (int i = 0; i < num_threads; i++) {
        struct sampling_scratch *s = &c->sampling[i];
        s->values = device_memory_alloc_array(m, vocab_size, sizeof *s->values);
        s->ids = device_memory_alloc_array(m, vocab_size, sizeof *s->ids);
        s->counts = device_memory_alloc_array(m, vocab_size, sizeof *s->counts);
        s->segment_sums = device_memory_alloc_array(m, (uint64_t)sampling_num_segments(c->vocab_size),
                                                    sizeof *s->segment_sums);
        if (!s->values || !s->ids || !s->counts || !s->segment_sums) return false;
    }
    return true;
}

static int cpu_prepare(struct device *d, const struct step_limits *limits, int32_t vocab_size,
                       int32_t hidden_size, int32_t intermediate_size, const struct attention_args *layers,
                       int32_t num_layers, struct error *err)
{
    struct cpu_device *c = cpu_device_of(d);
    int32_t q_width = 0;
    for (int32_t i = 0; i < num_layers; i++)
        q_width = max_of(q_width, max_of(layers[i].all_heads, layers[i].num_heads) * layers[i].head_dim);
    assert_always(!c->sealed && !c->logits);
    c->limits = *limits;
    c->vocab_size = vocab_size;
    c->hidden_size = hidden_size;
    int32_t max_k = max_of(max_of(hidden_size, intermediate_size), q_width);
    int32_t max_rows = max_of(limits->num_tokens, limits->num_logits);
    if (!alloc_step(c, limits, max_rows, max_k) || !alloc_history(c, limits) || !alloc_sampling(c) ||
        !alloc_rows(c, limits))
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for the scratch of a step of %d tokens and %d logit rows",
                         limits->num_tokens, limits->num_logits);
    return attention_workspace_create(&c->attention, &c->memory, thread_pool_num_threads(c->pool), limits,
                                      layers, num_layers, err);
}

static void cpu_seal(struct device *d)
{
    cpu_device_of(d)->sealed = true;
}

/* ---- weights and pools ---- */

int cpu_linear_take(struct device *d, const struct linear_desc *desc, struct linear **out, struct error *err)
{
    struct cpu_device *c = cpu_device_of(d);
    struct linear **list = realloc(c->linears, ((size_t)c->num_linears + 1) * sizeof *list);
    if (!list) return error_set(err, STATUS_NO_MEMORY, "no memory for the list of weights");
    c->linears = list;
    int status = cpu_linear_create(desc, c->level, c->pool, out, err);
    if (status == STATUS_OK) c->linears[c->num_linears++] = *out;
    return status;
}

static uint64_t cpu_linear_size(struct device *d, const struct linear *l)
{
    (void)d;
    return cpu_linear_bytes(l);
}

static int cpu_weights_done(struct device *d, struct error *err)
{
    (void)d;
    (void)err;
    return STATUS_OK;
}

static uint64_t cpu_kv_pool_bytes(struct device *d, const struct kv_shape *shape)
{
    (void)d;
    return kv_pool_bytes(shape);
}

static int cpu_kv_pool_create(struct device *d, const struct kv_shape *shape, struct kv_pool **out,
                              struct error *err)
{
    assert_always(!cpu_device_of(d)->sealed);
    return kv_pool_create(&cpu_device_of(d)->memory, shape, out, err);
}

static int cpu_kv_blocks_save(struct device *d, struct kv_pool *pool, const int32_t *block_ids,
                              const int32_t *host_ids, int num_blocks)
{
    (void)d;
    kv_pool_save(pool, block_ids, host_ids, num_blocks);
    return STATUS_OK;
}

static int cpu_kv_blocks_load(struct device *d, struct kv_pool *pool, const int32_t *block_ids,
                              const int32_t *host_ids, int num_blocks)
{
    (void)d;
    kv_pool_load(pool, block_ids, host_ids, num_blocks);
    return STATUS_OK;
}

/* ---- history, products, logits ---- */

static int cpu_history_set(struct device *d, int32_t batch_slot, const int32_t *token_ids, int32_t num_prompt,
                           int32_t num_tokens)
{
    history_set(&cpu_device_of(d)->history, batch_slot, token_ids, num_prompt, num_tokens);
    return STATUS_OK;
}

static int cpu_read_logits(struct device *d, int32_t row, float *out)
{
    struct cpu_device *c = cpu_device_of(d);
    assert_debug(row >= 0 && row < c->limits.num_logits);
    if (!c->greedy_head)
        return cpu_copy(d, out, c->logits + (int64_t)row * c->vocab_size,
                        (size_t)c->vocab_size * sizeof *out);
    cpu_linear_run(c->greedy_head, c->pool, c->linear_scratch, 1,
                   c->greedy_rows + (int64_t)row * c->hidden_size, out);
    return STATUS_OK;
}

static void cpu_linear(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                       const struct linear *w)
{
    struct cpu_device *c = cpu_device_of(d);
    cpu_linear_run(w, c->pool, c->linear_scratch, batch_num_rows(b, rows), x, out);
}

/* ---- as a member of a group ---- */

static int cpu_join(struct device *d, struct device *const *members, int num, int idx, struct error *err)
{
    (void)err;
    cpu_device_of(d)->num_members = num;
    cpu_device_of(d)->members = members;
    cpu_device_of(d)->member_idx = idx;
    return STATUS_OK;
}

/* What has been computed is there at once. */
static void cpu_share(struct device *d, const struct batch *b, enum row_set rows, void *const *to,
                      const void *from, int64_t row_bytes)
{
    const struct cpu_device *c = cpu_device_of(d);
    const size_t bytes = (size_t)row_bytes;
    for (int32_t row = 0; row < batch_num_rows(b, rows); row++)
        for (int i = 0; i < c->num_members; i++)
            memcpy((char *)to[i] + (size_t)(row * c->num_members + c->member_idx) * bytes,
                   (const char *)from + (size_t)row * bytes, bytes);
}

static const struct kernel_table cpu_kernel_table = {
    .close = cpu_close,
    .free_bytes = cpu_free_bytes,
    .alloc = cpu_alloc,
    .upload = cpu_copy,
    .download = cpu_copy,
    .prepare = cpu_prepare,
    .seal = cpu_seal,
    .linear_create = cpu_linear_take,
    .linear_bytes = cpu_linear_size,
    .lora_create = cpu_lora_create,
    .lora_set = cpu_lora_set,
    .moe_create = cpu_moe_create,
    .latent_create = cpu_latent_create,
    .delta_net_create = cpu_delta_net_create,
    .delta_takes_drafts = cpu_delta_takes_drafts,
    .weights_done = cpu_weights_done,
    .kv_pool_bytes = cpu_kv_pool_bytes,
    .kv_pool_create = cpu_kv_pool_create,
    .kv_blocks_save = cpu_kv_blocks_save,
    .kv_blocks_load = cpu_kv_blocks_load,
    .step_begin = cpu_step_begin,
    .step_end = cpu_step_end,
    .step_has_ended = cpu_step_has_ended,
    .forbid = cpu_forbid,
    .history_set = cpu_history_set,
    .embed = cpu_embed,
    .embed_positions = cpu_embed_positions,
    .multiply = cpu_multiply,
    .pick_logit_rows = cpu_pick_logit_rows,
    .rms_norm = cpu_rms_norm,
    .linear = cpu_linear,
    .linear_gated = cpu_linear, /* the linear knows its kind */
    .linear_lora = cpu_linear_lora,
    .sparse_gelu = cpu_sparse_gelu,
    .altup_begin = cpu_altup_begin,
    .altup_predict = cpu_altup_predict,
    .altup_correct = cpu_altup_correct,
    .altup_end = cpu_altup_end,
    .moe = cpu_moe,
    .rope_kv_write = cpu_rope_kv_write,
    .attention = cpu_attention,
    .states_copy = cpu_states_copy,
    .latent_qkv = cpu_latent_qkv,
    .latent_values = cpu_latent_values,
    .delta = cpu_delta,
    .split_gates = cpu_split_gates,
    .apply_gates = cpu_apply_gates,
    .pool = cpu_pool,
    .logits = cpu_logits,
    .sample = cpu_sample,
    .row = cpu_row,
    .join = cpu_join,
    .share = cpu_share,
    .logits_begin = cpu_logits_begin,
    .logits_memory = cpu_logits_memory,
    .logits_end = cpu_logits_end,
    .moe_begin = cpu_moe_begin,
    .moe_gather = cpu_moe_gather,
    .moe_end = cpu_moe_end,
    .read_logits = cpu_read_logits,
    .write_f32 = cpu_write_f32,
    .read_f32 = cpu_read_f32,
};

int cpu_device_open(const struct device_options *options, struct device **out, struct error *err)
{
    enum cpu_isa_level level;
    int status = cpu_isa_parse(options->cpu_isa ? options->cpu_isa : "auto", &level, err);
    if (status) return status;
    struct cpu_device *c = calloc(1, sizeof *c);
    if (!c) return error_set(err, STATUS_NO_MEMORY, "no memory for the CPU device");
    status = thread_pool_create(options->num_threads, &c->pool, err);
    if (status) {
        free(c);
        return status;
    }
    c->level = level;
    c->isa = cpu_isa_kernels(level);
    c->base = (struct device){
        .ops = &cpu_kernel_table,
        .name = "cpu",
        .act_bytes = sizeof(float),
        .res_bytes = sizeof(float),
        .num_steps_in_flight_max = 1,
        .prefill_decode_equal = !getenv("FLASHD_CPU_UNEQUAL_HALVES"), /* for tests: as if they were not */
        .prefill_tile = 1,
        .kv_any_dtype = true,
        .has_rare_dtypes = true,
    };
    int num_threads = thread_pool_num_threads(c->pool);
    snprintf(c->base.description, sizeof c->base.description, "%s, %d thread%s", cpu_isa_text(level),
             num_threads, num_threads == 1 ? "" : "s");
    *out = &c->base;
    return STATUS_OK;
}
