/* device.cuh - what the files of the CUDA device share: the device, a step's arrays on it, and one launcher for
 * each operation of the kernel table (kernels/device.h).
 *
 * Types: activations are bf16, the residual stream is f32, K and V are bf16, logits are f32.
 *
 * A step travels to the device as one packed copy of int32 words into a buffer whose offsets depend on its size class
 * only, so that a recorded graph finds every array where it was (struct step_layout). Two buffers alternate, so that
 * the next step may be prepared while one runs; everything runs on one stream.
 *
 * Errors: launches are checked once, in step_end; the first CUDA error is kept and is final. */
#ifndef KERNELS_CUDA_DEVICE_CUH
#define KERNELS_CUDA_DEVICE_CUH

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include <vector>

#include "base/check.h"

extern "C" {
#include "kernels/device.h"
}

enum { STEP_BUFFERS = 2, WINDOWS_MAX = 4, GRAPH_BUCKETS_MAX = 64, HIDDEN_MAX = 16384 };
enum { CTA_SHARED_RESERVED = 1024 }; /* of an SM's shared memory, for each CTA */

/* What a row asks of the sampler: in one word, so that a kernel need not read the others one after another to learn it. */
enum sample_flag {
    SAMPLE_BIAS = 1, /* bias or bans */
    SAMPLE_PENALTIES = 2,
    SAMPLE_DRAW = 4, /* not greedy */
    SAMPLE_TOP_K = 8,
    SAMPLE_TOP_P = 16,
    SAMPLE_LOGPROB = 32,
    SAMPLE_ALTERNATIVES = 64, /* log probabilities of the best tokens too */
    SAMPLE_FORBIDDEN = 128,   /* there are ids that no row may draw */
    SAMPLE_CONSTRAINED = 256, /* a mask, or nothing to be drawn: known when the forward has been queued */
};

/* Where a constrained row's mask is, counted from the step's first one; or one of these. */
enum { MASK_NONE = -1, MASK_WITHHELD = -2 };

/* One row's sampling parameters as the device sees them. */
struct device_sample_params {
    uint32_t flags;
    int32_t batch_slot, position, num_drafted, score_token_id, top_k, num_top_logprobs;
    float temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
    uint32_t seed_low, seed_high;
    int32_t bias_offset, num_bias;     /* into the step's bias words: id, float bits */
    int32_t banned_offset, num_banned; /* into the same words: ids */
    int32_t row_logits_offset, num_row_logits;
    int32_t logprob_ids_offset, num_logprob_ids;
    int32_t pool_begin, pool_end; /* pool_end 0: a row of logits */
};

/* The items of decode attention that one CTA walks, from this one on (attention_decode.cu). */
struct decode_range {
    int32_t seq, head, split, num_items;
};

/* One tile of prefill attention, for all query heads of prefill_kv_heads_per_tile K/V heads from first_kv_head on (attention_prefill.cu): layers may have other
 * numbers of query heads. */
struct prefill_tile {
    int32_t seq, first_row; /* row of the sequence's chunk */
    int32_t first_kv_head;
    int32_t piece, num_pieces; /* of its keys, where each piece is an item; else 0 of 1 */
    int32_t first_slot;        /* the first query head's, of num_pieces slots a head */
};

/* Words at the head of a step's buffer: sizes, and where the parts of variable length begin (word offsets). */
enum count_word {
    COUNT_LISTS,
    COUNT_TABLES,
    COUNT_PREFILL_TILES,
    COUNT_REAL_LOGITS,
    COUNT_LONGEST,      /* tokens of the longest decoding sequence */
    COUNT_DECODE_PLANS, /* for each window: the number of ranges, and where they begin */
    COUNT_WORDS = COUNT_DECODE_PLANS + 2 * WINDOWS_MAX
};

/* A step's arrays of one group of layers (struct step, G). */
struct batch_kv_group {
    const int32_t *slot_mapping;        /* [T] */
    const int32_t *table_offsets;       /* [S] into tables: of the block of token 0, be it there or not */
    int32_t prompts_begin, prompts_end; /* entries of tables that are of the sequences that prefill */
};

/* A run of tokens through states (kernels/state_runs.h). Two vectors of 16 bytes. */
struct alignas(16) device_run {
    int32_t begin, end; /* tokens; as many: none */
    int32_t batch_slot;
    int32_t position; /* of the first */
    int32_t
        from; /* tokens that the state which it goes on from has seen: the rest is in the log (delta_net.cuh) */
    bool has_draft;
};

/* Where the newest state of a batch_slot is, as of the steps begun so far. */
struct slot_state {
    int32_t position;
    bool had_draft; /* tokens from there on are in the log */
    bool is_loaded; /* but a kept state has come since, in the place of it */
};

/* Device view of one step. Pointers are device memory. Counts are padded to the bucket when padded is true. */
struct batch {
    int32_t num_tokens, num_seqs, num_logits, num_prefill_tokens, num_prefill_seqs; /* padded */
    int32_t num_real_logits;
    int32_t seqlen_k_max;
    bool graph_candidate; /* decode only */
    const int32_t *token_ids, *positions, *cu_seqlens_q, *seqlens_k;
    const struct device_run
        *state_runs; /* [S], behind the last one empty; in place of what the step says of sequences */
    bool has_drafts; /* a run has one, or goes on behind one */
    struct batch_kv_group kv_groups[KV_GROUPS_MAX];
    const int32_t
        *tables; /* + counts[COUNT_TABLES]: block ids of all sequences, one after another, group by group */
    const int32_t *logit_rows;
    const int32_t *loras; /* [T] each token's adapter; NULL: the step has none */
    const struct device_sample_params *sample;
    const int32_t *lists;                     /* + counts[COUNT_LISTS]: bias and banned words */
    const struct prefill_tile *prefill_tiles; /* these three are exact: steps with prefill are not recorded */
    const int32_t *prefill_tables;            /* as tables, offset included */
    int32_t num_prefill_tiles, prefill_kv_heads_per_tile;
    const int32_t *sequence_masks; /* [S] attention_masked.cuh; NULL: the step has no masks of sequences */
    const struct step *step;       /* the host's */
    bool is_constrained;           /* some row is */
    const int32_t *mask_places;    /* [R] of constrained rows: see MASK_NONE */
    const uint32_t *masks;         /* [constrained rows][mask_words] */
    const int32_t *counts;         /* device words that recorded kernels read: see enum count_word */
    struct sample_result *results; /* pinned host memory that the sampler writes to */
    int32_t decode_bundle; /* attention_decode.cuh: rows that are computed together, at most; 1: none are */
};

/* Padded, too. */
static inline int32_t batch_num_rows(const struct batch *b, enum row_set rows)
{
    return rows == ROWS_LOGITS ? b->num_logits : b->num_tokens;
}

/* Rows of x in bytes, as linear_fp8.cuh has them. */
struct fp8_rows {
    uint8_t *codes; /* [T][largest K]; NULL: no product is of bytes */
    float *scales;  /* [largest K / 128][pitch] */
    int32_t pitch;
};

/* In device memory: what CTAs that stay on their SM have taken of a launch's work so far. All 0 between launches: whoever is
 * the last to come sets it back. Apart, since a kernel may begin before the one ahead of it has ended. */
struct work_queues {
    alignas(128) int32_t linear_tiles;   /* linear_small.cu */
    alignas(128) int32_t decode_ranges;  /* attention_decode_producer.cuh */
    alignas(128) uint32_t prefill_items; /* attention_prefill_hopper.cuh */
    uint32_t prefill_ctas_gone;
};

/* What a group's layers see of the keys before a token (kernels/mask.h); zeros: all, or not all of them the same. */
struct kv_reach {
    int32_t sliding_window, chunk;
};

struct cuda_device {
    struct device base; /* first */
    int ordinal;
    int32_t step_timeout_ms; /* step_end gives up on a step after so long; 0: never */
    bool hangs;              /* it has */
    bool is_sealed;          /* nothing is allocated any more */
    cudaStream_t stream;
    cublasLtHandle_t blas;
    void *blas_workspace;
    size_t blas_workspace_bytes;
    int num_sms;
    int32_t cta_shared_bytes; /* at most */
    bool is_hopper; /* sm_90, unless the portable kernels are asked for: bulk copies, dependent launch */
    bool
        shares_gpu; /* with other members of its group: a kernel that began early would keep theirs from the SMs */
    bool is_portable; /* they are: no product is cuBLASLt's, either */
    cudaError_t first_error;
    char first_error_where[96];
    struct step_limits limits;
    int32_t vocab_size, hidden_size, intermediate_size;
    struct attention_args
        attention; /* what steps are planned for: all layers', or that of those which need no masks */
    struct attention_args
        prompt_attention; /* the same of prompts, which may be over what latents stand for */
    bool layers_differ;   /* in K/V heads, head sizes, or as some see K and V of others */
    struct kv_reach kv_reach[KV_GROUPS_MAX]; /* by group */
    int32_t num_kv_groups;
    int32_t windows[WINDOWS_MAX], num_windows; /* the layers' different ones */
    struct work_queues *queues;
    struct launches *launches;           /* launch.cu: what kernels have been allowed */
    struct tensor_maps *tensor_maps;     /* tensor_map.cu: the driver's encoder, and maps of matrices */
    struct weight_stages *weight_stages; /* weights.cu: while weights come in */
    struct linears *linears;             /* linear.cu: choices of kernels */
    struct steps *steps;                 /* step.cu: buffers, events, graphs */
    struct history *history;             /* history.cu */
    struct sampler *sampler;             /* sample.cu: scratch */
    struct moe_scratch *moe_scratch;     /* moe.cu: of the largest mixture; NULL: no experts */
    std::vector<struct delta_net *> delta_nets;
    std::vector<struct slot_state> slot_states; /* [num_batch_slots] */
    float *delta_mixed; /* delta_net.cu: scratch of a layer's step, NULL: none has states */
    float2 *delta_rates;
    float *delta_decays; /* of states with a decay for each row; else NULL */
    std::vector<struct lora *> loras;
    float *lora_narrow; /* lora.cu: of the product under way; NULL: no linear has adapters */
    size_t lora_narrow_bytes;
    float *logits;              /* [R][V] */
    size_t sequence_mask_words; /* room for those of a step */
    bool needs_masked;          /* some layer's attention is attention_masked.cu's */
    int32_t
        latent_rotary_dim; /* of latent attention, whose V is K without its first so many columns; 0: there is none */
    bool expands_latents;                  /* for prompts: latent_prompts.cu */
    struct latent_scratch *latent_scratch; /* latent.cu; NULL: not yet */
    float *attention_partial;              /* decode: split outputs and log-sum-exps */
    int32_t *attention_counters;           /* decode: arrivals per (sequence, head, merger) */
    float *prefill_slots;                  /* prefill: results of pieces of keys, or NULL */
    int32_t *prefill_arrivals;             /* prefill: arrivals per (slot, warp) */
    int32_t num_prefill_slots;             /* prefill: for items; every CTA has one besides */
    __nv_bfloat16 *gate_up;                /* [T][2 * intermediate] for the products that do not fuse */
    struct fp8_rows fp8_rows;              /* linear.cu: of the product under way */
    /* A packed weight as bf16, or that of all experts, for the product under way; the count: of the largest one. */
    __nv_bfloat16 *unpacked;
    size_t unpacked_count;
    int32_t *last_tokens; /* [num_batch_slots] last sampled token of each slot */
    bool forbids;         /* there are ids that no row may draw */
    double *sums;         /* [num_batch_slots][hidden]: pool.cu */
    float *floats;        /* pinned: [num_batch_slots][row_floats] what rows have left */
    int32_t row_floats;
    struct blas_loader *blas_loader; /* while weights come */
    struct membership *membership;   /* share.cu: of a group; NULL: it is in none */
    struct pinned *pinned;
};

static inline struct cuda_device *cuda_of(struct device *d)
{
    return (struct cuda_device *)d;
}

/* For operations that do not belong to a step, and for the step's first and last: CUDA's current device is the thread's. */
static inline struct cuda_device *cuda_enter(struct device *d)
{
    cudaSetDevice(cuda_of(d)->ordinal);
    return cuda_of(d);
}

/* Keeps the first error. Returns true when result is a success. */
bool cuda_check(struct cuda_device *d, cudaError_t result, const char *where);
#define CUDA_CHECK(d, call) cuda_check(d, call, #call)

/* device_memory.cu */
uint64_t cuda_free_bytes(struct device *d);
void *cuda_alloc(struct device *d, size_t bytes, const char *what);
int cuda_upload(struct device *d, void *to, const void *from, size_t bytes);
int cuda_download(struct device *d, void *to, const void *from, size_t bytes);
int cuda_write_f32(struct device *d, void *to, const float *from, size_t count, bool res);
int cuda_read_f32(struct device *d, float *to, const void *from, size_t count, bool res);

/* ---- one launcher for each operation; see kernels/device.h for shapes ---- */
void cuda_embed(struct device *d, const struct batch *b, void *out, const struct linear *table, float scale);
void cuda_embed_positions(struct device *d, const struct batch *b, void *x, const float *table);
void cuda_multiply(struct device *d, const struct batch *b, enum row_set rows, void *x, const void *y,
                   int32_t width, int32_t stride);
void cuda_sparse_gelu(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                      int32_t width, float cut);
void cuda_altup_begin(struct device *d, const struct batch *b, const struct altup_streams *streams,
                      const void *x, const void *others, int32_t hidden_size);
void cuda_altup_predict(struct device *d, const struct batch *b, enum row_set rows,
                        const struct altup_streams *streams, void *x, const void *delta,
                        const struct altup_args *args);
void cuda_altup_correct(struct device *d, const struct batch *b, enum row_set rows, void *out,
                        const struct altup_streams *streams, const void *x, const struct altup_args *args);
void cuda_altup_end(struct device *d, const struct batch *b, enum row_set rows, void *x,
                    const struct altup_streams *streams, const void *others, int32_t hidden_size);
void cuda_rms_norm(struct device *d, const struct batch *b, enum row_set rows, void *out, void *x,
                   const void *delta, const struct norm_args *args);
void cuda_pick_logit_rows(struct device *d, const struct batch *b, void *out, const void *x,
                          size_t row_bytes);
void cuda_rope_kv_write(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                        int32_t layer, const struct rope_args *args);

void cuda_attention(struct device *d, const struct batch *b, void *out, const void *qkv,
                    const struct kv_pool *pool, int32_t layer, const struct attention_args *args);
void cuda_attention_prefill(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                            const __nv_bfloat16 *qkv, const struct kv_pool *pool, int32_t layer,
                            const struct attention_args *args);
void cuda_attention_decode(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                           const __nv_bfloat16 *qkv, const struct kv_pool *pool, int32_t layer,
                           const struct attention_args *args);
bool cuda_attention_supports(int32_t head_dim);
/* Also where layers differ in their heads. */
bool cuda_attention_has_different(int32_t head_dim);
/* Heads of a row of qkv. */
static inline int32_t cuda_row_heads(const struct attention_args *a)
{
    return a->num_heads + (a->q_alone ? 0 : 2 * a->num_kv_heads);
}
/* Where attention needs what the kernels of prompts and of decoding do not have: masks of sequences, chunks, temperatures, other
 * head sizes, latents, other heads than those of most layers. */
bool cuda_attention_is_masked(const struct cuda_device *d, const struct attention_args *args);
void cuda_attention_masked(struct cuda_device *d, const struct batch *b, __nv_bfloat16 *out,
                           const __nv_bfloat16 *qkv, const struct kv_pool *pool, int32_t layer,
                           const struct attention_args *args);
bool cuda_attention_masked_supports(const struct cuda_device *d, int32_t head_dim);
/* Host side of decode attention: rows of a bundle at most, whatever the step and in this one, and who walks what. Returns the number
 * of ranges. */
int32_t cuda_decode_bundle_max(const struct attention_args *args, bool has_codes);
int32_t cuda_decode_bundle(const struct cuda_device *d, const struct step *step);
int32_t cuda_decode_plan(const struct cuda_device *d, const struct step *step, int32_t window, int32_t bundle,
                         struct decode_range *ranges);
/* Plans are made for each window that layers have: false where there are too many. */
bool cuda_window_add(struct cuda_device *d, int32_t window);
int32_t cuda_decode_teams(const struct cuda_device *d, const struct attention_args *args);
int32_t cuda_decode_ranges_max(const struct cuda_device *d, const struct attention_args *args);
int32_t cuda_decode_heads(const struct attention_args *args);
/* As the model has it, where this device has a share of its heads: what computes a layer, and how a sequence is split, depends on that. */
static inline struct attention_args cuda_attention_of_all(const struct attention_args *a)
{
    struct attention_args all = *a;
    if (a->all_heads == 0) return all;
    all.num_heads = a->all_heads;
    all.num_kv_heads = a->all_kv_heads;
    return all;
}
static inline int32_t cuda_all_kv_heads(const struct attention_args *a)
{
    return cuda_attention_of_all(a).num_kv_heads;
}
int32_t cuda_all_decode_heads(const struct attention_args *args);
size_t cuda_decode_partial_floats(const struct step_limits *limits, const struct attention_args *args);
size_t cuda_masked_partial_floats(const struct cuda_device *d, const struct step_limits *limits,
                                  const struct attention_args *args);
size_t cuda_decode_counters(const struct step_limits *limits, const struct attention_args *args);
/* Of K/V in bf16: base.prefill_tile has what the pool's type wants. */
int32_t cuda_prefill_rows_per_tile(const struct cuda_device *d, int32_t head_dim);

/* weights.cu */
int cuda_linear_create(struct device *d, const struct linear_desc *desc, struct linear **out,
                       struct error *err);
uint64_t cuda_linear_bytes(struct device *d, const struct linear *l);
/* While weights come: through their stages. from may change when it returns. */
bool cuda_upload_staged(struct cuda_device *d, void *to, const void *from, size_t bytes);
void cuda_weights_close_stages(struct cuda_device *d);

/* lora.cu */
int cuda_lora_create(struct device *d, const struct linear *w, const struct lora_desc *desc,
                     struct lora **out, struct error *err);
int cuda_lora_set(struct device *d, const struct linear *w, struct lora *l, int32_t i,
                  const struct lora_part parts[LINEAR_PARTS_MAX], struct error *err);
void cuda_linear_lora(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                      const struct linear *w, const struct lora *l);

void cuda_loras_forget(struct cuda_device *d);

/* moe.cu */
int cuda_moe_create(struct device *d, const struct moe_desc *desc, struct moe **out, struct error *err);
void cuda_moe(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
              const void *seen, const struct moe *moe);
void cuda_moe_begin(struct device *d, const struct batch *b, enum row_set rows, const void *x,
                    const void *seen, const struct moe *moe);
void cuda_moe_share(struct device *d, const struct batch *b, enum row_set rows, const struct moe *moe,
                    enum moe_experts which);
void cuda_moe_gather(struct device *d, const struct batch *b, enum row_set rows, const struct moe *moe,
                     enum moe_experts which);
void cuda_moe_end(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                  const struct moe *moe);
void cuda_moe_forget(struct cuda_device *d);

/* latent.cu */
int cuda_latent_create(struct device *d, const struct latent_desc *desc, struct latent **out,
                       struct error *err);
void cuda_latent_qkv(struct device *d, const struct batch *b, void *qkv, const void *x,
                     const struct latent *latent);
void cuda_latent_values(struct device *d, const struct batch *b, void *out, const void *x,
                        const struct latent *latent);
/* In the place of cuda_rope_kv_write. */
void cuda_latent_rotate(struct cuda_device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                        int32_t layer, const struct rope_args *args);
void cuda_latents_forget(struct cuda_device *d);

/* delta_net.cu; gates: attention_gates.cu */
bool cuda_delta_takes_drafts(struct device *d, int32_t k_dim, int32_t v_dim);
int cuda_delta_net_create(struct device *d, const struct delta_desc *desc, struct delta_net **out,
                          struct error *err);
void cuda_delta(struct device *d, const struct batch *b, void *out, const struct delta_inputs *in,
                struct delta_net *n);
int cuda_states_copy(struct device *d, struct delta_net *n, const struct state_copy *copies, int num_copies);
void cuda_split_gates(struct device *d, const struct batch *b, void *qkv, void *gates, const void *projected,
                      const struct attention_args *args);
void cuda_apply_gates(struct device *d, const struct batch *b, void *x, const void *gates,
                      const struct attention_args *args);
void cuda_delta_nets_forget(struct cuda_device *d);

/* Each file's forget lets go of what it has on the host; memory, events and graphs go with the device. */

/* history.cu */
void cuda_history_forget(struct cuda_device *d);
int cuda_history_set(struct device *d, int32_t batch_slot, const int32_t *token_ids, int32_t num_prompt,
                     int32_t num_tokens);

/* sample.cu */
int cuda_sampler_prepare(struct cuda_device *d, struct error *err);
void cuda_sampler_forget(struct cuda_device *d);
void cuda_logits(struct device *d, const struct batch *b, const void *x, const struct linear *lm_head);
void cuda_logits_begin(struct device *d, const struct batch *b, void *out, const void *x,
                       const struct linear *lm_head);
float *cuda_logits_memory(struct device *d);
void cuda_logits_end(struct device *d, const struct batch *b);
/* follows: the stream's last kernel is of the same step and the first one may begin before that ends. */
void cuda_sampler_launch(struct cuda_device *d, const struct batch *b, bool follows);
void cuda_forbid(struct device *d, const uint64_t *ids);

/* pool.cu */
bool cuda_rows_prepare(struct cuda_device *d);
void cuda_pool(struct device *d, const struct batch *b, const void *x);
const float *cuda_row(struct device *d, int32_t batch_slot);

/* step_tables.cu */
/* A decoding sequence whose newest token follows that of the one before, in the same block or the next: another row of it, as a
 * group in which it sees that token says. */
bool cuda_goes_on(const struct cuda_device *d, const struct step *step, int32_t seq);
void cuda_tables_prepare(struct cuda_device *d, const struct attention_args *layers, int32_t num_layers);
size_t cuda_tables_words_max(const struct cuda_device *d); /* of all groups */
/* A group's tables, from tables + at on, and where each sequence's is. zeros: a block that holds nothing else. Returns where they
 * end. */
size_t cuda_tables_pack(const struct cuda_device *d, const struct step *step, int32_t group, int32_t zeros,
                        int32_t *offsets, int32_t *tables, size_t at);

/* step.cu */
int cuda_steps_prepare(struct cuda_device *d, struct error *err);
void cuda_steps_forget(struct cuda_device *d);
struct batch *cuda_step_begin(struct device *d, const struct step *step);
int cuda_step_end(struct device *d, struct sample_result *results, struct error *err);
bool cuda_step_has_ended(struct device *d);
bool cuda_replay(struct device *d, struct batch *b);
void cuda_sample(struct device *d, struct batch *b);
void cuda_record_begin(struct device *d, struct batch *b);
void cuda_record_end(struct device *d, struct batch *b);
int32_t cuda_graph_size(const struct device *d, int32_t n);
void cuda_rehearse(struct device *d, bool on);
/* Blocks of the pool: where padding tokens write, and one of zeros. */
void cuda_steps_set_spare_blocks(struct cuda_device *d, int32_t spare, int32_t zeros);

#endif
