/* device.h - the CPU behind kernel_table: what its parts (attention.c, norm.c, rope.c ...) share.
 *
 * Activations and residuals are f32. Every operation has finished when it returns. All scratch is allocated
 * by prepare and kv_pool_create, so that a step allocates nothing. */
#ifndef KERNELS_CPU_DEVICE_H
#define KERNELS_CPU_DEVICE_H

#include "kernels/cpu/attention.h"
#include "kernels/cpu/device_memory.h"
#include "kernels/cpu/history.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/sample_row.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/device.h"
#include "kernels/state_runs.h"

struct batch {
    const struct step *step;
    int32_t *token_ids; /* [T] the step's, with "the token last sampled" looked up */
    int32_t *loras;     /* [T] each token's adapter, where the step has any */
    struct state_run *state_runs;
    int32_t num_state_runs;
    struct attention_plan attention;
};

static inline int32_t batch_num_rows(const struct batch *b, enum row_set rows)
{
    return rows == ROWS_LOGITS ? b->step->num_logits : b->step->num_tokens;
}

struct cpu_device {
    struct device base;
    enum cpu_isa_level level;
    const struct cpu_isa *isa;
    struct thread_pool *pool;
    struct device_memory memory;
    bool sealed;
    int num_members, member_idx; /* of its group; num_members 0: it is in none */
    struct device *const *members;

    struct linear **linears; /* destroyed with the device */
    int num_linears;
    struct moe_scratch *moe_scratch;       /* moe.c: of the largest; NULL: no experts */
    struct delta_scratch *delta_scratch;   /* delta_net.c; NULL: no layer has a state */
    struct latent_scratch *latent_scratch; /* latent.c; NULL: no layer has latent attention */
    struct lora **loras;                   /* lora.c; destroyed with the device */
    int num_loras;
    struct lora_scratch *lora_scratch; /* NULL: no linear has adapters */

    struct step_limits limits;
    int32_t vocab_size, hidden_size;
    struct batch batch; /* of the one step in flight */
    bool in_step;
    void *linear_scratch;
    float *logits;          /* [R][V] */
    struct argmax *argmax;  /* [threads][R] */
    int32_t *greedy_tokens; /* [R] */
    uint64_t *forbidden;    /* a bit_set */
    bool forbids;           /* any */
    /* Of a greedy step, which writes no logits: what they are the product of. read_logits computes a row
     * again, with the same bits. NULL: logits are written. */
    const struct linear *greedy_head;
    const float *greedy_rows;
    struct sample_result *results;
    struct history history;
    double *sums;  /* [num_batch_slots][H] */
    float *floats; /* [num_batch_slots][row_floats] what rows have left */
    int32_t row_floats;
    struct sampling_scratch *sampling; /* one a thread */
    struct attention_workspace attention;
};

static inline struct cpu_device *cpu_device_of(struct device *d)
{
    return (struct cpu_device *)d;
}

/* Ids that no row may draw; NULL: there are none. */
static inline const uint64_t *cpu_forbidden(const struct cpu_device *c)
{
    return c->forbids ? c->forbidden : NULL;
}

/* Runs the task on all threads if its work (values touched, roughly) is worth waking them for. */
void cpu_device_run(struct cpu_device *c, int64_t work,
                    void (*task)(void *context, int thread_idx, int num_threads), void *context);

/* step.c, embed.c, norm.c, altup.c, sparse_gelu.c, rope.c, attention.c, latent.c, lora.c, moe.c, delta_net.c, sample.c, pool.c, device.c: entries of the table */
struct batch *cpu_step_begin(struct device *d, const struct step *step);
int cpu_step_end(struct device *d, struct sample_result *results, struct error *err) must_check;
bool cpu_step_has_ended(struct device *d);
void cpu_rms_norm(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                  const void *delta, const struct norm_args *args);
void cpu_embed(struct device *d, const struct batch *b, void *out, const struct linear *table, float scale);
void cpu_embed_positions(struct device *d, const struct batch *b, void *x, const float *table);
void cpu_multiply(struct device *d, const struct batch *b, enum row_set rows, void *x, const void *y,
                  int32_t width, int32_t stride);
void cpu_sparse_gelu(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                     int32_t width, float cut);
void cpu_altup_begin(struct device *d, const struct batch *b, const struct altup_streams *streams,
                     const void *x, const void *others, int32_t hidden_size);
void cpu_altup_predict(struct device *d, const struct batch *b, enum row_set rows,
                       const struct altup_streams *streams, void *x, const void *delta,
                       const struct altup_args *args);
void cpu_altup_correct(struct device *d, const struct batch *b, enum row_set rows, void *out,
                       const struct altup_streams *streams, const void *x, const struct altup_args *args);
void cpu_altup_end(struct device *d, const struct batch *b, enum row_set rows, void *x,
                   const struct altup_streams *streams, const void *others, int32_t hidden_size);
void cpu_rope_kv_write(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                       int32_t layer, const struct rope_args *args);
void cpu_attention(struct device *d, const struct batch *b, void *out, const void *qkv,
                   const struct kv_pool *pool, int32_t layer, const struct attention_args *args);
void cpu_pick_logit_rows(struct device *d, const struct batch *b, void *out, const void *x, size_t row_bytes);
void cpu_forbid(struct device *d, const uint64_t *ids);
int cpu_linear_take(struct device *d, const struct linear_desc *desc, struct linear **out,
                    struct error *err) must_check;
int cpu_lora_create(struct device *d, const struct linear *w, const struct lora_desc *desc, struct lora **out,
                    struct error *err) must_check;
int cpu_lora_set(struct device *d, const struct linear *w, struct lora *l, int32_t i,
                 const struct lora_part parts[LINEAR_PARTS_MAX], struct error *err) must_check;
void cpu_linear_lora(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                     const struct linear *w, const struct lora *lora);
void cpu_loras_destroy(struct cpu_device *c);
int cpu_moe_create(struct device *d, const struct moe_desc *desc, struct moe **out,
                   struct error *err) must_check;
void cpu_moe(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
             const void *seen, const struct moe *moe);
void cpu_moe_begin(struct device *d, const struct batch *b, enum row_set rows, const void *x,
                   const void *seen, const struct moe *moe);
void cpu_moe_gather(struct device *d, const struct batch *b, enum row_set rows, const struct moe *moe,
                    enum moe_experts which);
void cpu_moe_end(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                 const struct moe *moe);
int cpu_latent_create(struct device *d, const struct latent_desc *desc, struct latent **out,
                      struct error *err) must_check;
void cpu_latent_qkv(struct device *d, const struct batch *b, void *qkv, const void *x,
                    const struct latent *latent);
void cpu_latent_values(struct device *d, const struct batch *b, void *out, const void *x,
                       const struct latent *latent);
int cpu_delta_net_create(struct device *d, const struct delta_desc *desc, struct delta_net **out,
                         struct error *err) must_check;
bool cpu_delta_takes_drafts(struct device *d, int32_t k_dim, int32_t v_dim);
void cpu_delta(struct device *d, const struct batch *b, void *out, const struct delta_inputs *in,
               struct delta_net *net);
int cpu_states_copy(struct device *d, struct delta_net *n, const struct state_copy *copies,
                    int num_copies) must_check;
void cpu_split_gates(struct device *d, const struct batch *b, void *qkv, void *gates, const void *projected,
                     const struct attention_args *args);
void cpu_apply_gates(struct device *d, const struct batch *b, void *x, const void *gates,
                     const struct attention_args *args);
void cpu_logits(struct device *d, const struct batch *b, const void *x, const struct linear *lm_head);
void cpu_logits_begin(struct device *d, const struct batch *b, void *out, const void *x,
                      const struct linear *lm_head);
float *cpu_logits_memory(struct device *d);
void cpu_logits_end(struct device *d, const struct batch *b);
void cpu_sample(struct device *d, struct batch *b);
void cpu_pool(struct device *d, const struct batch *b, const void *x);
/* Of the rows that want some logits told. */
void cpu_keep_logits(struct cpu_device *c, const struct step *step);
const float *cpu_row(struct device *d, int32_t batch_slot);

#endif
