/* step.cu - a step's way to the device and its results' way back.
 *
 * step_begin packs everything that the kernels read into one pinned buffer and queues one copy, on a stream of its own: the
 * buffer's last step has ended, so the copy need not wait for the one that runs. Offsets are functions
 * of the size class (few tokens, or many), so a recorded graph finds each array where it was; the lists of variable
 * length stand last, so only the used part is copied. Decode-only steps are padded up to a bucket: padding tokens are
 * id 0 at position 0, write to the pool's spare block, and belong to sequences of length 0, which attention skips.
 *
 * Graphs: one for each bucket and buffer, recorded the first time that the bucket is met after seal, which is before the first
 * request (model/warm_up.h). Steps with constrained rows have two, recorded when the first such step of a bucket comes: the forward
 * pass, and the sampler behind it, since what these rows may draw is learned while the forward runs; their masks follow in a
 * copy of their own, whose place is the buffer's too. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>

#include "kernels/cuda/attention_masked.cuh"
#include "kernels/cuda/attention_prefill.cuh"
#include "kernels/cuda/linear_fp8.cuh"
#include "kernels/cuda/pinned.cuh"
#include "kernels/cuda/share.cuh"

extern "C" {
#include "kernels/state_runs.h"
}

namespace
{

const size_t PREFILL_TILE_WORDS = sizeof(struct prefill_tile) / 4, RUN_WORDS = sizeof(struct device_run) / 4;

/* Word offsets of the arrays inside the packed buffer. */
struct step_layout {
    int32_t num_tokens, num_seqs, num_logits; /* capacities */
    size_t slot_stride, offset_stride;        /* from one group's slots and table offsets to the next one's */
    size_t counts, token_ids, positions, slot_mapping, cu_seqlens_q, seqlens_k, state_runs, table_offsets,
        logit_rows, loras, sample,
        tail; /* prefill tiles, lists, block tables, decode ranges: of variable length */
};

/* Of one kind, by bucket. */
struct step_graphs {
    struct {
        cudaGraphExec_t exec;
        int32_t bucket;
    } items[GRAPH_BUCKETS_MAX];
    int num;
};

struct step_buffer {
    int32_t *host; /* pinned */
    int32_t *device;
    struct sample_result *results; /* pinned */
    cudaEvent_t copied, done;
    struct batch batch;
    bool launched;        /* done is queued */
    int32_t *mask_places; /* device: [R], and behind them the masks, in one piece */
    /* A step without constrained rows is one graph; one with them is a forward pass, and when its masks are there the
     * sampling. */
    struct step_graphs whole, forward, sampling;
    struct step_graphs lora_whole,
        lora_forward; /* of steps with adapters: recorded when the first of a bucket comes */
};

} // namespace

struct steps {
    struct step_buffer buffers[STEP_BUFFERS];
    struct step_layout small, large;
    size_t buffer_words;
    cudaStream_t copies; /* beside the device's: a step's arrays arrive while the step before runs */
    int32_t *masks;      /* pinned: what a buffer's mask_places gets, of one step after the other */
    cudaEvent_t masks_copied;
    size_t mask_places_words, mask_words; /* of all rows; of one mask */
    int begin, end;                       /* counts of steps begun and ended */
    int fault_step,
        hang_step; /* for tests: the step that breaks the device for good, and the one that takes a minute */
    bool recording, rehearses;
    int32_t spare_block, zero_block; /* set when the pool is made */
    struct prefill_plan prefill;
    std::vector<struct state_run> runs; /* of a step, on the host: [num_seqs] */
};

namespace
{

/* 16-byte aligned */
size_t words_of(size_t words)
{
    return (words + 3) / 4 * 4;
}

size_t take(size_t *cursor, size_t words)
{
    size_t at = *cursor;
    *cursor += words_of(words);
    return at;
}

struct step_layout make_layout(const struct cuda_device *d, int32_t num_tokens, int32_t num_seqs)
{
    struct step_layout l = {};
    l.num_tokens = num_tokens;
    l.num_seqs = num_seqs;
    l.num_logits = d->limits.num_logits;
    size_t cursor = 0;
    l.slot_stride = words_of((size_t)num_tokens);
    l.offset_stride = words_of((size_t)l.num_seqs);
    l.counts = take(&cursor, COUNT_WORDS);
    l.token_ids = take(&cursor, (size_t)num_tokens);
    l.positions = take(&cursor, (size_t)num_tokens);
    l.slot_mapping = take(&cursor, d->num_kv_groups * l.slot_stride);
    l.cu_seqlens_q = take(&cursor, (size_t)l.num_seqs + 1);
    l.seqlens_k = take(&cursor, (size_t)l.num_seqs);
    l.state_runs = take(&cursor, (size_t)l.num_seqs * RUN_WORDS);
    l.table_offsets = take(&cursor, d->num_kv_groups * l.offset_stride);
    l.logit_rows = take(&cursor, (size_t)l.num_logits);
    l.loras = take(&cursor, (size_t)num_tokens);
    l.sample = take(&cursor, (size_t)l.num_logits * sizeof(struct device_sample_params) / 4);
    l.tail = cursor;
    return l;
}

/* Most words behind tail: prefill tiles, lists, block tables. */
size_t tail_words_max(const struct cuda_device *d)
{
    size_t tiles = (size_t)d->limits.num_tokens / 64 + (size_t)d->limits.num_seqs;
    tiles *= (size_t)d->prompt_attention.num_kv_heads;
    size_t lists = (size_t)d->limits.num_logits * (2 * LOGIT_BIAS_MAX + 128);
    size_t ranges = (size_t)d->num_windows * (size_t)cuda_decode_ranges_max(d, &d->attention);
    tiles += (size_t)d->num_prefill_slots;
    return PREFILL_TILE_WORDS * tiles + lists + cuda_tables_words_max(d) + 4 * ranges +
           d->sequence_mask_words + 64;
}

/* Allocates for as many masks as there may be rows. */
bool prepare_masks(struct cuda_device *d, struct steps *s)
{
    size_t cursor = 0, rows = (size_t)d->limits.num_logits;
    take(&cursor, rows);
    s->mask_places_words = cursor;
    s->mask_words = 2 * bit_set_words((size_t)d->vocab_size);
    size_t bytes = (s->mask_places_words + rows * s->mask_words) * 4;
    bool ok = (s->masks = (int32_t *)cuda_pinned_alloc(d, bytes)) &&
              CUDA_CHECK(d, cudaEventCreateWithFlags(&s->masks_copied, cudaEventDisableTiming));
    for (int i = 0; i < STEP_BUFFERS && ok; i++)
        ok = CUDA_CHECK(d, cudaMalloc((void **)&s->buffers[i].mask_places, bytes));
    return ok;
}

/* Of a variable of the environment; 0 where it is not set. */
int number_of(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

} // namespace

int cuda_steps_prepare(struct cuda_device *d, struct error *err)
{
    struct steps *s = new struct steps();
    d->steps = s;
    s->fault_step = number_of("FLASHD_CUDA_FAULT_STEP");
    s->hang_step = number_of("FLASHD_CUDA_HANG_STEP");
    int32_t num_running = step_limits_num_running(&d->limits);
    s->small = make_layout(d, num_running, num_running);
    s->large = make_layout(d, d->limits.num_tokens, d->limits.num_seqs);
    s->buffer_words = s->large.tail + tail_words_max(d);
    s->spare_block = s->zero_block = -1;
    cuda_prefill_plan_prepare(d, &s->prefill);
    s->runs.resize((size_t)s->large.num_seqs);
    d->slot_states.resize((size_t)d->limits.num_batch_slots);
    size_t results_bytes = (size_t)d->limits.num_logits * sizeof(struct sample_result);
    if (!CUDA_CHECK(d, cudaStreamCreateWithFlags(&s->copies, cudaStreamNonBlocking)))
        return error_set(err, STATUS_DEVICE, "no stream for copies: %s", cudaGetErrorString(d->first_error));
    for (int i = 0; i < STEP_BUFFERS; i++) {
        struct step_buffer *b = &s->buffers[i];
        if (!(b->host = (int32_t *)cuda_pinned_alloc(d, s->buffer_words * 4)) ||
            !CUDA_CHECK(d, cudaMalloc((void **)&b->device, s->buffer_words * 4)) ||
            !(b->results = (struct sample_result *)cuda_pinned_alloc(d, results_bytes)) ||
            !CUDA_CHECK(d, cudaEventCreateWithFlags(&b->copied, cudaEventDisableTiming)) ||
            !CUDA_CHECK(d, cudaEventCreateWithFlags(&b->done, cudaEventDisableTiming)))
            return error_set(err, STATUS_NO_MEMORY, "no memory for step buffers of %zu bytes",
                             s->buffer_words * 4);
    }
    if (!prepare_masks(d, s))
        return error_set(err, STATUS_NO_MEMORY, "no memory for the masks of %d rows", d->limits.num_logits);
    return STATUS_OK;
}

void cuda_steps_forget(struct cuda_device *d)
{
    delete d->steps;
    d->steps = NULL;
}

void cuda_steps_set_spare_blocks(struct cuda_device *d, int32_t spare, int32_t zeros)
{
    d->steps->spare_block = spare;
    d->steps->zero_block = zeros;
}

namespace
{

/* Decode batches run at these sizes. A padding row costs little up to 64, where weights are what is waited for, but each size
 * costs two graphs of some 2 MB of host memory. */
int32_t bucket_of(int32_t n)
{
    if (n <= 2) return n;
    int32_t step = n <= 4 ? 4 : n <= 32 ? 8 : n <= 256 ? 16 : 32;
    return (n + step - 1) / step * step;
}

} // namespace

int32_t cuda_graph_size(const struct device *device, int32_t n)
{
    return std::min(bucket_of(n), step_limits_num_running(&((const struct cuda_device *)device)->limits));
}

namespace
{

uint32_t sample_flags(const struct cuda_device *d, const struct sample_params *p)
{
    const struct sampling *s = &p->sampling;
    bool samples = p->score_token_id < 0, draws = samples && s->temperature >= SAMPLING_GREEDY_BELOW;
    bool penalties = s->repetition_penalty != 1 || s->presence_penalty != 0 || s->frequency_penalty != 0;
    return (samples && (p->num_logit_bias > 0 || p->num_banned > 0) ? SAMPLE_BIAS : 0) |
           (samples && penalties ? SAMPLE_PENALTIES : 0) | (samples && d->forbids ? SAMPLE_FORBIDDEN : 0) |
           (samples && p->constrained ? SAMPLE_CONSTRAINED : 0) | (draws ? SAMPLE_DRAW : 0) |
           (draws && s->top_k > 0 ? SAMPLE_TOP_K : 0) | (draws && s->top_p < 1 ? SAMPLE_TOP_P : 0) |
           (s->num_logprobs >= 0 ? SAMPLE_LOGPROB : 0) |
           (s->num_logprobs > 0 && p->num_logprob_ids == 0 ? SAMPLE_ALTERNATIVES : 0);
}

void pack_sample(const struct cuda_device *d, int32_t *words, const struct step_layout *l,
                 const struct step *step, int32_t *lists, size_t *num_list_words)
{
    struct device_sample_params *out = (struct device_sample_params *)(words + l->sample);
    size_t at = 0;
    for (int32_t r = 0; r < step->num_logits; r++) {
        const struct sample_params *p = &step->sample[r];
        struct device_sample_params o = {};
        o.flags = sample_flags(d, p);
        o.batch_slot = p->batch_slot;
        o.position = p->position;
        o.num_drafted = p->num_drafted;
        o.score_token_id = p->score_token_id;
        o.top_k = p->sampling.top_k;
        o.num_top_logprobs = p->sampling.num_logprobs;
        o.temperature = p->sampling.temperature;
        o.top_p = p->sampling.top_p;
        o.min_p = p->sampling.min_p;
        o.presence_penalty = p->sampling.presence_penalty;
        o.frequency_penalty = p->sampling.frequency_penalty;
        o.repetition_penalty = p->sampling.repetition_penalty;
        o.seed_low = (uint32_t)p->sampling.seed;
        o.seed_high = (uint32_t)(p->sampling.seed >> 32);
        o.bias_offset = (int32_t)at;
        o.num_bias = p->num_logit_bias;
        memcpy(lists + at, p->logit_bias, (size_t)p->num_logit_bias * sizeof(struct logit_bias));
        at += (size_t)p->num_logit_bias * 2;
        o.banned_offset = (int32_t)at;
        o.num_banned = p->num_banned;
        memcpy(lists + at, p->banned, (size_t)p->num_banned * 4);
        at += (size_t)p->num_banned;
        o.row_logits_offset = (int32_t)at;
        o.num_row_logits = p->num_row_logits;
        memcpy(lists + at, p->row_logits, (size_t)p->num_row_logits * 4);
        at += (size_t)p->num_row_logits;
        o.logprob_ids_offset = (int32_t)at;
        o.num_logprob_ids = p->num_logprob_ids;
        memcpy(lists + at, p->logprob_ids, (size_t)p->num_logprob_ids * 4);
        at += (size_t)p->num_logprob_ids;
        o.pool_begin = p->pool_begin;
        o.pool_end = p->pool_end;
        out[r] = o;
    }
    *num_list_words = at;
}

/* Token arrays, padded from T to padded_tokens. */
void pack_tokens(int32_t *words, const struct step_layout *l, const struct step *step, int32_t padded_tokens)
{
    size_t bytes = (size_t)step->num_tokens * 4;
    memcpy(words + l->token_ids, step->token_ids, bytes);
    memcpy(words + l->positions, step->positions, bytes);
    for (int32_t t = step->num_tokens; t < padded_tokens; t++) {
        words[l->token_ids + t] = 0;
        words[l->positions + t] = 0;
    }
}

/* Of each token, where the step has any. */
void pack_loras(int32_t *words, const struct step_layout *l, const struct step *step, int32_t padded_tokens)
{
    int32_t *to = words + l->loras;
    for (int32_t s = 0; s < step->num_seqs && step->loras; s++)
        std::fill(to + step->cu_seqlens_q[s], to + step->cu_seqlens_q[s + 1], step->loras[s]);
    if (step->loras) std::fill(to + step->num_tokens, to + padded_tokens, 0);
}

/* Returns the longest context. */
int32_t pack_seqs(int32_t *words, const struct step_layout *l, const struct step *step, int32_t padded_seqs)
{
    int32_t seqlen_max = 0;
    memcpy(words + l->cu_seqlens_q, step->cu_seqlens_q, ((size_t)step->num_seqs + 1) * 4);
    memcpy(words + l->seqlens_k, step->seqlens_k, (size_t)step->num_seqs * 4);
    for (int32_t s = 0; s < step->num_seqs; s++) seqlen_max = std::max(seqlen_max, step->seqlens_k[s]);
    for (int32_t s = step->num_seqs; s < padded_seqs; s++) {
        words[l->cu_seqlens_q + s + 1] = step->num_tokens + (s + 1 - step->num_seqs);
        words[l->seqlens_k + s] = 0;
    }
    return seqlen_max;
}

/* Where the run goes on from, and where its batch_slot is then. */
struct device_run place_run(struct slot_state *slot, const struct state_run *run)
{
    const bool goes_on = slot->had_draft && !slot->is_loaded && run->position > 0;
    const int32_t from = goes_on ? slot->position : run->position;
    assert_always(run->position >= from);
    *slot = {run->has_draft ? run->position : run->position + run->end - run->begin, run->has_draft, false};
    return {run->begin, run->end, run->batch_slot, run->position, from, run->has_draft};
}

/* Where no layer has a state a batch_slot says nothing: a sequence behind cached tokens begins anywhere in one that others had. */
void pack_runs(struct cuda_device *d, struct batch *b, int32_t *words, const struct step_layout *l,
               const struct step *step, int32_t padded_seqs)
{
    struct device_run *to = (struct device_run *)(words + l->state_runs);
    std::vector<struct state_run> &runs = d->steps->runs;
    const int32_t num_runs = d->delta_nets.empty() ? 0 : state_runs_find(step, runs.data());
    for (int32_t i = 0; i < num_runs; i++) {
        to[i] = place_run(&d->slot_states[runs[i].batch_slot], &runs[i]);
        b->has_drafts = b->has_drafts || to[i].has_draft || to[i].from < to[i].position;
        assert_always(i >= step->num_prefill_seqs || to[i].from == to[i].position);
    }
    for (int32_t i = num_runs; i < padded_seqs; i++)
        to[i] = {step->num_tokens, step->num_tokens, 0, 0, 0, false};
}

/* What is a group's own; returns the number of words of all tables. */
size_t pack_kv_groups(const struct cuda_device *d, struct batch *b, int32_t *words,
                      const struct step_layout *l, const struct step *step, int32_t padded_tokens,
                      int32_t padded_seqs, int32_t *tables)
{
    const struct steps *s = d->steps;
    size_t at = 0;
    assert_always(step_num_kv_groups(step) == d->num_kv_groups);
    for (int32_t g = 0; g < d->num_kv_groups; g++) {
        int32_t *slots = words + l->slot_mapping + g * l->slot_stride,
                *offsets = words + l->table_offsets + g * l->offset_stride;
        memcpy(slots, step_slot_mapping(step, g), (size_t)step->num_tokens * 4);
        for (int32_t t = step->num_tokens; t < padded_tokens; t++) slots[t] = s->spare_block * BLOCK_SIZE;
        b->kv_groups[g].prompts_begin = (int32_t)at;
        at = cuda_tables_pack(d, step, g, s->zero_block, offsets, tables, at);
        int32_t last = step->num_prefill_seqs - 1;
        b->kv_groups[g].prompts_end =
            last < 0 ? b->kv_groups[g].prompts_begin
                     : offsets[last] + (int32_t)div_up(step->seqlens_k[last], BLOCK_SIZE);
        for (int32_t i = step->num_seqs; i < padded_seqs; i++) offsets[i] = 0;
    }
    return at;
}

/* Words of the sequences' masks from words + at on, and before them where each begins. Returns where they end. */
size_t pack_sequence_masks(const struct cuda_device *d, int32_t *words, size_t at, const struct step *step)
{
    int32_t *begins = words + at;
    const size_t end = at + d->sequence_mask_words;
    at += (size_t)step->num_seqs;
    for (int32_t s = 0; s < step->num_seqs; s++) {
        const struct sequence_mask *mask = &step->masks[s];
        size_t num_keys = (size_t)step->seqlens_k[s];
        at += at % 2; /* keys and bounds are read by pairs of words */
        begins[s] = mask->keys ? (int32_t)at : 0;
        if (!mask->keys) continue;
        assert_always(at + sequence_mask_words(step->seqlens_k[s]) <= end);
        memcpy(words + at, mask->keys, num_keys * sizeof *mask->keys);
        at += num_keys * MASK_KEY_WORDS;
        size_t tile_bytes = (size_t)mask_num_tiles(step->seqlens_k[s]) * sizeof *mask->tiles;
        memcpy(words + at, mask->tiles, tile_bytes);
        at += tile_bytes / 4;
    }
    return at;
}

void point_batch(struct batch *b, const int32_t *base, const struct step_layout *l, int32_t num_kv_groups)
{
    b->counts = base + l->counts;
    b->token_ids = base + l->token_ids;
    b->positions = base + l->positions;
    b->cu_seqlens_q = base + l->cu_seqlens_q;
    b->seqlens_k = base + l->seqlens_k;
    b->state_runs = (const struct device_run *)(base + l->state_runs);
    for (int32_t g = 0; g < num_kv_groups; g++) {
        b->kv_groups[g].slot_mapping = base + l->slot_mapping + g * l->slot_stride;
        b->kv_groups[g].table_offsets = base + l->table_offsets + g * l->offset_stride;
    }
    b->logit_rows = base + l->logit_rows;
    b->loras = b->step->loras ? base + l->loras : NULL;
    b->sample = (const struct device_sample_params *)(base + l->sample);
}

__global__ void trap_kernel(void)
{
    asm volatile("trap;");
}

__global__ void hang_kernel(void)
{
    for (int second = 0; second < 60; second++)
        for (int64_t begin = clock64(); clock64() - begin < 1500000000;) continue;
}

} // namespace

/* The variable tail has no fixed offsets; kernels find its parts through the counts words. */
struct batch *cuda_step_begin(struct device *device, const struct step *step)
{
    struct cuda_device *d = cuda_enter(device);
    struct steps *s = d->steps;
    struct step_buffer *buffer = &s->buffers[s->begin++ % STEP_BUFFERS];
    struct batch *b = &buffer->batch;
    bool small = step->num_tokens <= s->small.num_tokens && step->num_prefill_seqs == 0;
    bool decode_only = small && step->num_logits == step->num_tokens;
    const struct step_layout *l = small ? &s->small : &s->large;
    int32_t padded = decode_only ? cuda_graph_size(device, step->num_tokens) : step->num_tokens;
    int32_t padding = padded - step->num_tokens;
    int32_t *words = buffer->host;
    assert_always(step->num_tokens > 0 && step->num_tokens <= l->num_tokens && padded <= l->num_tokens);
    assert_always(step->num_seqs + padding <= l->num_seqs && step->num_logits + padding <= l->num_logits);
    *b = batch{};
    cuda_fp8_target_forget(d);
    cuda_share_step(d);
    buffer->launched = false;
    b->num_tokens = padded;
    b->num_seqs = step->num_seqs + padding;
    b->num_logits = step->num_logits + padding;
    b->num_real_logits = step->num_logits;
    b->num_prefill_tokens = step->num_prefill_tokens;
    b->num_prefill_seqs = step->num_prefill_seqs;
    b->decode_bundle = cuda_decode_bundle(d, step);
    b->graph_candidate = decode_only && d->is_sealed && b->decode_bundle == 1 &&
                         !step->masks && /* whose places differ */
                         !d->shares_gpu; /* a member's whole step would be waited for */
    b->results = buffer->results;
    b->step = step;
    for (int32_t r = 0; r < step->num_logits; r++)
        b->is_constrained = b->is_constrained || step->sample[r].constrained;

    pack_tokens(words, l, step, padded);
    pack_loras(words, l, step, padded);
    size_t tail = l->tail, n;
    struct prefill_tile *tiles = (struct prefill_tile *)(words + tail);
    b->num_prefill_tiles =
        cuda_prefill_plan(d, step, &d->steps->prefill, tiles, &b->prefill_kv_heads_per_tile);
    size_t tiles_at = tail;
    tail += ((size_t)b->num_prefill_tiles * PREFILL_TILE_WORDS + 3) / 4 * 4;
    size_t lists_at = tail;
    pack_sample(d, words, l, step, words + tail, &n);
    tail += (n + 3) / 4 * 4;
    size_t tables_at = tail;
    b->seqlen_k_max = pack_seqs(words, l, step, b->num_seqs);
    pack_runs(d, b, words, l, step, b->num_seqs);
    tail += pack_kv_groups(d, b, words, l, step, padded, b->num_seqs, words + tail);
    memcpy(words + l->logit_rows, step->logit_rows, (size_t)step->num_logits * 4);
    for (int32_t r = step->num_logits; r < b->num_logits; r++) {
        struct device_sample_params idle = {};
        idle.score_token_id = 0; /* so that nothing remembers it */
        idle.num_top_logprobs = -1;
        words[l->logit_rows + r] = step->num_tokens + (r - step->num_logits);
        ((struct device_sample_params *)(words + l->sample))[r] = idle;
    }
    tail = (tail + 3) / 4 * 4;
    int32_t *counts = words + l->counts;
    for (int i = 0; i < d->num_windows; i++) {
        int32_t *plan = counts + COUNT_DECODE_PLANS + 2 * i;
        plan[0] =
            cuda_decode_plan(d, step, d->windows[i], b->decode_bundle, (struct decode_range *)(words + tail));
        plan[1] = (int32_t)tail;
        tail += (size_t)plan[0] * 4;
    }
    size_t masks_at = tail;
    if (step->masks) tail = pack_sequence_masks(d, words, tail, step);
    counts[COUNT_LISTS] = (int32_t)lists_at;
    counts[COUNT_TABLES] = (int32_t)tables_at;
    counts[COUNT_PREFILL_TILES] = (int32_t)tiles_at;
    counts[COUNT_REAL_LOGITS] = b->num_real_logits;
    counts[COUNT_LONGEST] = 0;
    for (int32_t i = step->num_prefill_seqs; i < step->num_seqs; i++)
        counts[COUNT_LONGEST] = std::max(counts[COUNT_LONGEST], step->seqlens_k[i]);
    assert_always(tail <= s->buffer_words);

    point_batch(b, buffer->device, l, d->num_kv_groups);
    b->prefill_tiles = (const struct prefill_tile *)(buffer->device + tiles_at);
    b->prefill_tables = buffer->device + tables_at;
    b->lists = buffer->device;
    b->tables = buffer->device;
    b->sequence_masks = step->masks ? buffer->device + masks_at : NULL;
    b->mask_places = buffer->mask_places;
    b->masks = (const uint32_t *)(buffer->mask_places + s->mask_places_words);
    CUDA_CHECK(d, cudaMemcpyAsync(buffer->device, words, tail * 4, cudaMemcpyHostToDevice, s->copies));
    CUDA_CHECK(d, cudaEventRecord(buffer->copied, s->copies));
    CUDA_CHECK(d, cudaStreamWaitEvent(d->stream, buffer->copied, 0));
    if (s->begin == s->fault_step) trap_kernel<<<1, 1, 0, d->stream>>>();
    if (s->begin == s->hang_step) hang_kernel<<<1, 1, 0, d->stream>>>();
    return b;
}

namespace
{

struct step_buffer *buffer_of(struct cuda_device *d, const struct batch *b)
{
    for (int i = 0; i < STEP_BUFFERS; i++)
        if (&d->steps->buffers[i].batch == b) return &d->steps->buffers[i];
    check_failed("the batch is of a step that has begun", __FILE__, __LINE__);
}

void finish_launch(struct cuda_device *d, struct step_buffer *buffer)
{
    CUDA_CHECK(d, cudaGetLastError());
    CUDA_CHECK(d, cudaEventRecord(buffer->done, d->stream));
    buffer->launched = true;
}

/* ---- graphs ---- */

bool replay(struct cuda_device *d, const struct step_graphs *graphs, const struct batch *b)
{
    for (int i = 0; b->graph_candidate && i < graphs->num; i++)
        if (graphs->items[i].bucket == b->num_tokens)
            return CUDA_CHECK(d, cudaGraphLaunch(graphs->items[i].exec, d->stream));
    return false;
}

void record_begin(struct cuda_device *d, const struct step_graphs *graphs, const struct batch *b)
{
    if (!b->graph_candidate || graphs->num == GRAPH_BUCKETS_MAX) return;
    /* what the first member of a group has recorded is made a graph while the others' streams are still recorded */
    const cudaStreamCaptureMode mode =
        d->membership ? cudaStreamCaptureModeRelaxed : cudaStreamCaptureModeThreadLocal;
    d->steps->recording = CUDA_CHECK(d, cudaStreamBeginCapture(d->stream, mode));
}

/* And launches what was recorded; what is not to run goes to the device. */
void record_end(struct cuda_device *d, struct step_graphs *graphs, const struct batch *b)
{
    if (!d->steps->recording) return;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t *exec = &graphs->items[graphs->num].exec;
    d->steps->recording = false;
    if (CUDA_CHECK(d, cudaStreamEndCapture(d->stream, &graph)) &&
        CUDA_CHECK(d, cudaGraphInstantiate(exec, graph, 0))) {
        graphs->items[graphs->num++].bucket = b->num_tokens;
        CUDA_CHECK(d, d->steps->rehearses ? cudaGraphUpload(*exec, d->stream)
                                          : cudaGraphLaunch(*exec, d->stream));
    }
    if (graph) cudaGraphDestroy(graph);
}

struct step_graphs *graphs_of(struct cuda_device *d, const struct batch *b)
{
    struct step_buffer *buffer = buffer_of(d, b);
    if (b->loras) return b->is_constrained ? &buffer->lora_forward : &buffer->lora_whole;
    return b->is_constrained ? &buffer->forward : &buffer->whole;
}

} // namespace

bool cuda_replay(struct device *device, struct batch *b)
{
    struct cuda_device *d = cuda_of(device);
    return replay(d, graphs_of(d, b), b);
}

void cuda_record_begin(struct device *device, struct batch *b)
{
    struct cuda_device *d = cuda_of(device);
    record_begin(d, graphs_of(d, b), b);
}

void cuda_record_end(struct device *device, struct batch *b)
{
    struct cuda_device *d = cuda_of(device);
    record_end(d, graphs_of(d, b), b);
}

void cuda_rehearse(struct device *device, bool on)
{
    cuda_of(device)->steps->rehearses = on;
}

namespace
{

/* ---- sampling ---- */

/* Places of all rows and the masks of those that have one, in one copy, which the sampler waits for. The copy before it has
 * long ended: it waited for nothing. */
void send_masks(struct cuda_device *d, struct step_buffer *buffer)
{
    struct steps *s = d->steps;
    const struct step *step = buffer->batch.step;
    int32_t *places = s->masks, num = 0;
    CUDA_CHECK(d, cudaEventSynchronize(s->masks_copied));
    for (int32_t r = 0; r < step->num_logits; r++) {
        const struct sample_params *p = &step->sample[r];
        places[r] = p->withheld ? MASK_WITHHELD : MASK_NONE;
        if (p->withheld || !p->allowed) continue;
        places[r] = num++;
        memcpy(s->masks + s->mask_places_words + (size_t)places[r] * s->mask_words, p->allowed,
               s->mask_words * 4);
    }
    size_t words = s->mask_places_words + (size_t)num * s->mask_words;
    CUDA_CHECK(d,
               cudaMemcpyAsync(buffer->mask_places, s->masks, words * 4, cudaMemcpyHostToDevice, s->copies));
    CUDA_CHECK(d, cudaEventRecord(s->masks_copied, s->copies));
    CUDA_CHECK(d, cudaStreamWaitEvent(d->stream, s->masks_copied, 0));
}

} // namespace

void cuda_sample(struct device *device, struct batch *b)
{
    struct cuda_device *d = cuda_of(device);
    struct step_buffer *buffer = buffer_of(d, b);
    if (b->is_constrained && b->num_logits > 0) {
        send_masks(d, buffer);
        if (!replay(d, &buffer->sampling, b)) {
            record_begin(d, &buffer->sampling, b);
            cuda_sampler_launch(d, b, false);
            record_end(d, &buffer->sampling, b);
        }
    }
    finish_launch(d, buffer);
}

namespace
{

/* ---- the end ---- */

/* False when the deadline has passed. A step that hangs is not an error of CUDA's: nothing but a clock ends it. */
bool wait_for(struct cuda_device *d, cudaEvent_t done)
{
    if (d->step_timeout_ms <= 0) {
        CUDA_CHECK(d, cudaEventSynchronize(done));
        return true;
    }
    auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(d->step_timeout_ms);
    cudaError_t result;
    while ((result = cudaEventQuery(done)) == cudaErrorNotReady) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        sched_yield();
    }
    CUDA_CHECK(d, result);
    return true;
}

} // namespace

int cuda_step_end(struct device *device, struct sample_result *results, struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    struct step_buffer *buffer = &d->steps->buffers[d->steps->end++ % STEP_BUFFERS];
    if (!buffer->launched)
        finish_launch(d, buffer); /* a caller that samples nothing, with one step at a time */
    d->hangs = d->hangs || !wait_for(d, buffer->done);
    if (d->hangs)
        return error_set(err, STATUS_DEVICE, "a step has not ended on the GPU within %d ms",
                         d->step_timeout_ms);
    if (d->first_error != cudaSuccess)
        return error_set(err, STATUS_DEVICE, "CUDA error %d (%s) in %s", (int)d->first_error,
                         cudaGetErrorString(d->first_error), d->first_error_where);
    memcpy(results, buffer->results, (size_t)buffer->batch.num_real_logits * sizeof *results);
    return STATUS_OK;
}

/* A fault counts as an end, which step_end tells of. */
bool cuda_step_has_ended(struct device *device)
{
    struct cuda_device *d = cuda_enter(device);
    const struct step_buffer *buffer = &d->steps->buffers[d->steps->end % STEP_BUFFERS];
    return buffer->launched && cudaEventQuery(buffer->done) != cudaErrorNotReady;
}
