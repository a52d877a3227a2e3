/* load.c - phases in their order: files, device, weights, K/V pool and engine.
 *
 * A machine that cannot hold the plan is told so before anything is served. */
#include "engine/load.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory_limit.h"
#include "engine/energy_meter.h"
#include "engine/load_files.h"
#include "engine/load_progress.h"
#include "model/warm_up.h"

enum {
    CPU_NUM_SEQS = 64,
    CPU_BATCHED_TOKENS = 512,
    GPU_NUM_SEQS = 256,
    GPU_BATCHED_TOKENS_MIN = 512,
    GPU_BATCHED_TOKENS_MAX = 8192,
    CPU_TYPICAL_TOKENS = 1024, /* of one sequence, when a CPU's K/V cache is sized by default */
    LOGIT_ROWS_MIN = 64,       /* room for prompt log probabilities in a step */
    REPLAY_ROWS = 1024,        /* of a step, for known tokens that go through decode, and sequences */
    REPLAY_SPLITS = 32,        /* of a row's attention, at most: each leaves a row of floats */
    WIDE_HEAD = 256,           /* of heads of more columns, latents too, there are few, in more splits: */
    REPLAY_SPLITS_WIDE = 128,
    GPU_WARM_UP_TOKENS = 128,
    CPU_WARM_UP_TOKENS = 16,
    CPU_TARGET_ITL_MS = 50,
    GPU_TARGET_ITL_MS = 25,
    ACTIVATIONS_PART = 64, /* of a GPU's memory, beside weights: a guess */
    COPIES_PART = 8,       /* of that, for copies of weights of four bits as bf16 */
    STATES_OF_SLOT = 2,
    STATES_BESIDE = 8,  /* kept for prompts that begin alike, beside one of each running sequence */
    QUEUED_MAX = 65536, /* --max-queued-requests 0: what nobody reaches, as slots cost address space only */
};

/* Tokens times parameters: some 25 ms of an H200, and a stream's pause while others' prompts are computed. */
static const uint64_t GPU_STEP_WORK = 9000000000000;

/* For what rows beyond the sequences leave of their attention. */
static const uint64_t REPLAY_BYTES = 512 * MIB;
static const uint64_t FRONT_WORK_BYTES = 64 * MIB; /* for the server to parse, tokenize and make forms in */

/* Powers of two, which fill the tiles of matrix products. */
static int32_t gpu_batched_tokens(const struct model_config *c)
{
    uint64_t num_parameters = model_config_num_parameters(c);
    int32_t num_tokens = GPU_BATCHED_TOKENS_MAX;
    while (num_tokens > GPU_BATCHED_TOKENS_MIN && (uint64_t)num_tokens * num_parameters > GPU_STEP_WORK)
        num_tokens /= 2;
    return num_tokens;
}

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

static enum pooling choose_pooling(const struct config *config, const struct model_config *c)
{
    if (c->hidden_size > ROW_FLOATS_MAX || c->family->scores_pairs) return POOLING_NONE;
    if (!strcmp(config->pooling, "auto")) return c->pooling;
    if (!strcmp(config->pooling, "first")) return POOLING_FIRST;
    return !strcmp(config->pooling, "mean") ? POOLING_MEAN : POOLING_LAST;
}

static void take_model_facts(struct link_facts *facts, const struct config *config,
                             const struct model_files *files)
{
    const struct model_config *c = model_files_config(files);
    facts->embedding_size = model_config_embedding_size(c);
    facts->pooling = choose_pooling(config, c);
    facts->tasks = c->tasks;
    facts->is_reranker = c->is_reranker;
    facts->is_encoder = c->is_encoder;
    facts->scores_pairs = c->family->scores_pairs;
    facts->scores_are_plain = c->scores_are_plain;
    facts->has_second_type = c->has_second_type;
    facts->score_pooling = c->score_pooling;
    copy_text(facts->family, sizeof facts->family, family_name(c->family));
    facts->num_parameters = model_config_num_parameters(c);
    facts->is_gguf = model_files_is_gguf(files);
    facts->vocab_size = c->vocab_size;
    facts->num_eos_ids = c->num_eos_ids;
    memcpy(facts->eos_ids, c->eos_ids, sizeof facts->eos_ids);
    facts->generation = *model_files_generation_defaults(files);
}

static bool has_states(const struct load *load)
{
    return model_config_has_states(model_files_config(load->files));
}

/* Of a sequence in a step. Not where the device has no drafts beside states of this shape. */
static int32_t num_draft_tokens(const struct load *load)
{
    const struct model_config *c = model_files_config(load->files);
    struct device *d = load->device;
    bool takes = !has_states(load) || (d->ops->delta_takes_drafts &&
                                       d->ops->delta_takes_drafts(d, c->delta_k_dim, c->delta_v_dim));
    return takes && !load->facts.is_encoder ? (int32_t)load->config->num_speculative_tokens : 0;
}

/* Of a group of devices, over all of which sizes are sums; else 1. */
static uint64_t num_members(const struct load *load)
{
    return (uint64_t)max_of(load->device->num_members, 1);
}

/* Of a sequence, on each of the members. */
static uint64_t bytes_of_a_state(const struct load *load)
{
    return model_config_state_bytes(model_files_config(load->files)) * num_members(load);
}

/* That a batch_slot takes beside its states. */
static uint64_t draft_bytes(const struct load *load)
{
    return model_config_draft_bytes(model_files_config(load->files), num_draft_tokens(load)) *
           num_members(load);
}

/* That a running sequence takes: a batch_slot's, of which it has one for each step in flight. */
static uint64_t running_bytes(uint64_t bytes_of_a_state, uint64_t bytes_of_drafts, int32_t num_steps)
{
    return (STATES_OF_SLOT * bytes_of_a_state + bytes_of_drafts) * (uint64_t)num_steps;
}

int32_t load_num_seqs(uint64_t room, uint64_t bytes_of_a_state, uint64_t bytes_of_drafts, int32_t num_steps,
                      int32_t most)
{
    const uint64_t kept = max_of(bytes_of_a_state, (uint64_t)1), beside = STATES_BESIDE * kept,
                   each = running_bytes(kept, bytes_of_drafts, num_steps) + kept,
                   running = room > beside ? (room - beside) / each : 0;
    return (int32_t)max_of(min_of(running, (uint64_t)most), (uint64_t)1);
}

/* Of all weights as bf16. */
static uint64_t bf16_bytes(const struct load *load)
{
    return model_config_num_parameters(model_files_config(load->files)) *
           (uint64_t)dtype_infos[DTYPE_BF16].block_bytes;
}

/* On a GPU, about, with adapters. What stays packed becomes bf16 before products of many rows, one product's at a time unless copies are kept. */
static uint64_t weight_bytes(const struct load *load)
{
    const uint64_t adapters = model_files_lora_bytes(load->files),
                   as_they_are = model_files_weight_bytes(load->files),
                   unpacked = model_config_largest_product(model_files_config(load->files)) *
                              (uint64_t)dtype_infos[DTYPE_BF16].block_bytes;
    const bool is_of_blocks = model_files_is_gguf(load->files) ||
                              model_files_config(load->files)->quantisation.format == QUANT_MLX,
               may_be_packed = load->facts.keeps_packed || !is_of_blocks;
    if (load->facts.keeps_copies) return adapters + as_they_are + bf16_bytes(load);
    return adapters + (may_be_packed ? min_of(bf16_bytes(load), as_they_are + unpacked) : bf16_bytes(load));
}

/* Of --kv-cache-memory-bytes, which is each device's of a group; 0: it is not said. */
static uint64_t told_kv_bytes(const struct load *load)
{
    return (uint64_t)load->config->kv_cache_memory_bytes * num_members(load);
}

/* As many as run by default, or fewer where a GPU's memory has not room for the states of all: these get half of what weights leave, K and V
 * the rest. */
static int32_t num_seqs_of_gpu(const struct load *load)
{
    const struct device *device = load->device;
    const struct config *config = load->config;
    const uint64_t each = bytes_of_a_state(load), kv_bytes = told_kv_bytes(load),
                   free_now = device->ops->free_bytes(load->device),
                   room = kv_bytes ? free_now
                                   : load_kv_bytes_left(device->gpu_bytes, free_now,
                                                        config->gpu_memory_utilization),
                   taken = weight_bytes(load) + device->gpu_bytes / ACTIVATIONS_PART + kv_bytes,
                   left = room > taken ? room - taken : 0;
    const int32_t num_steps = engine_num_steps(device),
                  num = load_num_seqs(kv_bytes ? left : left / 2, each, draft_bytes(load), num_steps,
                                      GPU_NUM_SEQS);
    if (num < GPU_NUM_SEQS)
        log_info(
            "%d sequences run at most: each takes %.1f MiB for its states and %.1f for one that is kept; "
            "--max-num-seqs would have another number",
            num, (double)running_bytes(each, draft_bytes(load), num_steps) / (double)MIB,
            (double)each / (double)MIB);
    return num;
}

/* Tokens of the longest sequence that the options and the model allow, whether it fits or not: what the next engine over this
 * link chooses, too. */
static int32_t allowed_len(const struct load *load)
{
    const int64_t told = load->config->max_model_len;
    return told ? (int32_t)told : model_files_config(load->files)->max_position_embeddings;
}

/* What follows from the options and the device alone. */
static int choose_limits(struct load *load, struct error *err)
{
    const struct config *config = load->config;
    const struct model_config *c = model_files_config(load->files);
    struct link_facts *facts = &load->facts;
    bool gpu = load->device->is_gpu;
    if (config->max_model_len > c->max_position_embeddings)
        return error_set(err, STATUS_INVALID,
                         "--max-model-len %lld is more than the %d positions that the model was made for",
                         (long long)config->max_model_len, c->max_position_embeddings);
    facts->model_positions = c->max_position_embeddings;
    facts->max_model_len = allowed_len(load);
    if (config->max_num_seqs)
        facts->max_num_seqs = (int32_t)config->max_num_seqs;
    else if (gpu)
        facts->max_num_seqs = has_states(load) ? num_seqs_of_gpu(load) : GPU_NUM_SEQS;
    else
        facts->max_num_seqs = CPU_NUM_SEQS;
    facts->max_num_batched_tokens = config->max_num_batched_tokens ? (int32_t)config->max_num_batched_tokens
                                    : gpu                          ? gpu_batched_tokens(c)
                                                                   : CPU_BATCHED_TOKENS;
    facts->max_num_batched_tokens = max_of(facts->max_num_batched_tokens, facts->max_num_seqs);
    if (c->is_encoder) /* whose texts are computed in one step */
        facts->max_num_batched_tokens = max_of(facts->max_num_batched_tokens, facts->max_model_len);
    int32_t num_queued = config->max_queued_requests ? (int32_t)config->max_queued_requests : QUEUED_MAX;
    facts->num_slots = facts->max_num_seqs + num_queued;
    facts->num_guess_tokens = min_of(num_draft_tokens(load), (int32_t)GUESS_TOKENS_MAX);
    facts->block_size = BLOCK_SIZE;
    return STATUS_OK;
}

bool load_has_room(uint64_t gpu_bytes, uint64_t free_now, double utilization, uint64_t kv_bytes,
                   uint64_t weight_bytes)
{
    uint64_t room = kv_bytes ? free_now : load_kv_bytes_left(gpu_bytes, free_now, utilization);
    return weight_bytes + kv_bytes + gpu_bytes / ACTIVATIONS_PART <= room;
}

bool load_has_room_for_copies(uint64_t gpu_bytes, uint64_t free_now, double utilization, uint64_t kv_bytes,
                              uint64_t packed_bytes, uint64_t copy_bytes)
{
    uint64_t room = load_kv_bytes_left(gpu_bytes, free_now, utilization);
    return packed_bytes < copy_bytes / 2 && copy_bytes <= room / COPIES_PART &&
           load_has_room(gpu_bytes, free_now, utilization, kv_bytes, packed_bytes + copy_bytes);
}

/* What the device is to do with weights that are not of bf16, for this engine and those after it. */
static void choose_weight_forms(struct load *load)
{
    struct device *device = load->device;
    const struct config *config = load->config;
    const uint64_t free_at_all = device->is_gpu ? device->ops->free_bytes(device) : 0,
                   free_now = free_at_all - min_of(free_at_all, model_files_lora_bytes(load->files)),
                   kv_bytes = told_kv_bytes(load);
    load->facts.keeps_packed =
        device->is_gpu && !load_has_room(device->gpu_bytes, free_now, config->gpu_memory_utilization,
                                         kv_bytes, bf16_bytes(load));
    load->facts.keeps_copies =
        device->is_gpu &&
        load_has_room_for_copies(device->gpu_bytes, free_now, config->gpu_memory_utilization, kv_bytes,
                                 model_files_weight_bytes(load->files), bf16_bytes(load));
}

static void take_weight_forms(struct load *load)
{
    load->device->keeps_packed = load->facts.keeps_packed;
    load->device->keeps_copies = load->facts.keeps_copies;
}

static int load_device(struct load *load, struct error *err)
{
    const struct config *config = load->config;
    struct device_options options = {.cpu_isa = config->cpu_isa,
                                     .num_threads = (int)config->threads,
                                     .cuda_device = (int)config->cuda_device,
                                     .num_devices = (int)config->tensor_parallel_size,
                                     .cuda_portable = strcmp(config->cuda_path, "portable") == 0,
                                     .step_timeout_ms = (int)config->step_timeout * 1000};
    int status = device_open(config->device, &options, &load->device, err);
    if (status) return status;
    if (link_is_inherited(load->link)) {
        load->facts = *link_facts(load->link);
        take_weight_forms(load);
        return STATUS_OK;
    }
    choose_weight_forms(load);
    take_weight_forms(load);
    take_model_facts(&load->facts, config, load->files);
    snprintf(load->facts.device, sizeof load->facts.device, "%s (%s)", load->device->name,
             load->device->description);
    return choose_limits(load, err);
}

/* Of what the model and the options say, not of what fits: the next engine over this link has to choose the same. */
static void choose_kv_layout(struct load *load)
{
    const struct model_config *c = model_files_config(load->files);
    /* an encoder's texts are computed in one step, which needs all of their blocks */
    load->kv_layout = c->is_encoder ? kv_layout_single(c) : kv_layout_of(c, allowed_len(load));
}

/* Of a device that can keep them. */
static void choose_num_states(struct load *load)
{
    bool can_keep = has_states(load) && load->device->ops->states_copy;
    load->num_states = can_keep ? load->facts.max_num_seqs + (int32_t)STATES_BESIDE : 0;
}

/* Of every sequence that may run, and kept ones. */
static uint64_t state_bytes(const struct load *load)
{
    uint64_t each = bytes_of_a_state(load);
    return running_bytes(each, draft_bytes(load), engine_num_steps(load->device)) *
               (uint64_t)load->facts.max_num_seqs +
           each * (uint64_t)load->num_states;
}

static double target_us(const struct load *load)
{
    int64_t ms = load->config->target_itl ? load->config->target_itl
                 : load->device->is_gpu   ? GPU_TARGET_ITL_MS
                                          : CPU_TARGET_ITL_MS;
    return 1000.0 * (double)ms;
}

/* Of a step, where it takes more than its sequences: for answers of earlier turns, and what a dead engine has drawn. */
static int32_t max_num_rows(const struct load *load)
{
    const struct model_config *c = model_files_config(load->files);
    const int32_t widest = model_config_widest_head(c),
                  splits = widest > WIDE_HEAD ? REPLAY_SPLITS_WIDE : REPLAY_SPLITS;
    const uint64_t row_bytes =
        (uint64_t)model_config_most_heads(c) * (uint64_t)(widest * splits) * sizeof(float);
    bool replays = !load->device->prefill_decode_equal && !has_states(load) && !load->facts.is_encoder;
    int32_t num_drafted = num_draft_tokens(load), num_replayed = 0;
    if (replays) num_replayed = (int32_t)min_of((uint64_t)REPLAY_ROWS, REPLAY_BYTES / row_bytes);
    return num_drafted > 0 ? max_of(num_replayed, load->facts.max_num_seqs + num_drafted) : num_replayed;
}

static struct engine_options engine_options_of(const struct load *load)
{
    return (struct engine_options){
        .max_model_len = load->facts.max_model_len,
        .num_positions = load->num_positions,
        .max_num_seqs = load->facts.max_num_seqs,
        .max_num_batched_tokens = load->facts.max_num_batched_tokens,
        .max_num_logits = load->facts.is_encoder
                              ? load->facts.max_num_batched_tokens /* all may be pooled */
                              : max_of(load->facts.max_num_seqs + num_draft_tokens(load), LOGIT_ROWS_MIN),
        .max_num_rows = max_num_rows(load),
        .num_draft_tokens = num_draft_tokens(load),
        .kv_layout = load->kv_layout,
        .num_blocks = load->facts.num_blocks,
        .num_states = load->num_states,
        .num_host_blocks = load->num_host_blocks,
        .kv_block_bytes = load->kv_block_bytes,
        .target_us = target_us(load),
        .enable_prefix_caching = load->config->enable_prefix_caching &&
                                 (!has_states(load) || load->num_states > 0) && !load->facts.is_encoder,
        .whole_prompts = load->facts.is_encoder,
        .decode_runs = !has_states(load),
        .leaves_requests = load->leaves_requests,
        .kv_dtype = load->kv_dtype,
        .energy_meter = load->energy_meter,
        .files = load->files,
    };
}

/* A bar is for people: of a log in JSON, or one that tells warnings alone, nobody watches the beginning. */
static bool wants_bar(const struct config *config)
{
    return !strcmp(config->log_format, "text") && log_level_of(config->log_level) <= LOG_INFO;
}

static enum dtype kv_dtype_of(const char *name)
{
    if (!strcmp(name, "f32")) return DTYPE_F32;
    if (!strcmp(name, "fp8")) return DTYPE_F8_E4M3;
    return !strcmp(name, "int8") ? DTYPE_I8 : DTYPE_BF16;
}

static int choose_kv_dtype(struct load *load, struct error *err)
{
    const char *name = load->config->kv_cache_dtype;
    load->kv_dtype = kv_dtype_of(name);
    if (load->facts.is_encoder && !strcmp(name, "auto") && !load->device->is_gpu)
        load->kv_dtype = DTYPE_F32; /* of one step */
    if (load->kv_dtype != DTYPE_BF16 && !load->device->kv_any_dtype)
        return error_set(err, STATUS_UNSUPPORTED, "--kv-cache-dtype %s is for the CPU device", name);
    return STATUS_OK;
}

uint64_t load_kv_bytes_left(uint64_t gpu_bytes, uint64_t free_now, double utilization)
{
    uint64_t kept_free = (uint64_t)((double)gpu_bytes * (1 - utilization));
    return free_now > kept_free ? free_now - kept_free : 0;
}

/* Of the blocks that one sequence holds at most. */
static uint64_t bytes_of_one(const struct load *load, int32_t num_tokens, uint64_t block_bytes)
{
    return (uint64_t)kv_groups_num_blocks_max(&load->kv_groups, num_tokens) * block_bytes;
}

static int32_t num_blocks_of(uint64_t bytes, uint64_t block_bytes)
{
    return (int32_t)min_of(bytes / max_of(block_bytes, (uint64_t)1), (uint64_t)INT32_MAX / BLOCK_SIZE);
}

/* Tokens of the longest sequence that fits into a pool of so many blocks, up to max_model_len. */
static int32_t longest_that_fits(const struct load *load, int32_t num_blocks)
{
    int32_t fits = 0, too_long = load->facts.max_model_len + 1;
    while (too_long - fits > 1) {
        int32_t half = fits + (too_long - fits) / 2;
        bool is_room = kv_groups_num_blocks_max(&load->kv_groups, half) <= num_blocks;
        *(is_room ? &fits : &too_long) = half;
    }
    return fits;
}

/* Of host memory, when clients have made the server hold for them what it may; some in any case. */
static uint64_t host_bytes_left(const struct load *load)
{
    const struct config *config = load->config;
    const uint64_t free_now = memory_limit_now().free,
                   held = config->max_buffered_bytes + config->response_store_bytes + FRONT_WORK_BYTES;
    return max_of(free_now - min_of(free_now, held), free_now / 4);
}

/* What of a CPU's memory is left when all states are in use, which take none before; some in any case. */
static uint64_t free_beside_states(const struct load *load, uint64_t free_bytes)
{
    const uint64_t bytes = state_bytes(load), least = free_bytes / 4;
    return bytes + least <= free_bytes ? free_bytes - bytes : least;
}

static void warn_of_states(const struct load *load, uint64_t free_bytes)
{
    const uint64_t bytes = state_bytes(load);
    if (bytes + free_bytes / 4 <= free_bytes) return;
    log_warning("the states of %d sequences and %d kept ones come to %.1f MiB, and %.1f are free: "
                "--max-num-seqs says how many run",
                load->facts.max_num_seqs, load->num_states, (double)bytes / (double)MIB,
                (double)free_bytes / (double)MIB);
}

/* What the pool takes however few blocks it has. */
static uint64_t kv_beside_bytes(const struct load *load)
{
    return model_kv_beside_bytes(load->model, load->kv_dtype);
}

/* That the K/V pool's blocks may take: as told, else what is left beside so many bytes of a GPU, or half of what a CPU has. */
static uint64_t most_kv_bytes(const struct load *load, uint64_t beside_bytes)
{
    const struct device *d = load->device;
    if (load->config->kv_cache_memory_bytes) return told_kv_bytes(load);
    if (!d->is_gpu) return free_beside_states(load, host_bytes_left(load)) / 2;
    const uint64_t free_bytes = d->ops->free_bytes(load->device);
    return load_kv_bytes_left(d->gpu_bytes, free_bytes - min_of(free_bytes, beside_bytes),
                              load->config->gpu_memory_utilization);
}

/* Of the K/V pool: all that it may take, of a CPU no more than typical sequences need. */
static uint64_t choose_kv_bytes(const struct load *load, uint64_t block_bytes)
{
    const uint64_t most = most_kv_bytes(load, kv_beside_bytes(load));
    if (load->config->kv_cache_memory_bytes || load->device->is_gpu) return most;
    warn_of_states(load, host_bytes_left(load));
    int32_t typical_len = min_of(load->facts.max_model_len, (int32_t)CPU_TYPICAL_TOKENS);
    uint64_t typical = (uint64_t)load->facts.max_num_seqs * bytes_of_one(load, typical_len, block_bytes);
    uint64_t longest = bytes_of_one(load, load->facts.max_model_len, block_bytes);
    return min_of(max_of(typical, longest), most);
}

static struct step_limits step_limits_of(const struct load *load)
{
    const struct engine_options options = engine_options_of(load);
    struct step_limits limits;
    engine_step_limits(&options, load->device, &limits);
    return limits;
}

/* That a block takes at least, whatever the device: what latents have for V may lie in their K. */
static uint64_t least_block_bytes(const struct load *load)
{
    const struct model_config *c = model_files_config(load->files);
    const uint64_t both = BLOCK_SIZE * kv_layout_block_bytes(&load->kv_layout, c, load->kv_dtype);
    return c->latent.rank > 0 ? both / 2 : both;
}

/* At most, before anything is in memory: so that nothing is made for positions that no sequence reaches. */
static void choose_num_positions(struct load *load)
{
    const int32_t most =
        longest_that_fits(load, num_blocks_of(most_kv_bytes(load, 0), least_block_bytes(load)));
    if (!link_is_inherited(load->link) && !load->config->max_model_len)
        load->facts.max_model_len = max_of(most, (int32_t)1);
    load->num_positions = load->facts.max_model_len;
}

static int load_weights(struct load *load, struct error *err)
{
    int status = choose_kv_dtype(load, err);
    if (status) return status;
    choose_kv_layout(load);
    choose_num_states(load);
    struct step_limits limits = step_limits_of(load);
    load->kv_groups = engine_kv_groups(&load->kv_layout, &limits);
    choose_num_positions(load);
    limits = step_limits_of(load);
    struct load_progress progress;
    load_progress_begin(&progress, wants_bar(load->config));
    status = model_create(load->device, load->files, &limits, allowed_len(load), load_progress_tell,
                          &progress, &load->model, err);
    load_progress_end(&progress);
    return status;
}

/* Room for at least one sequence: of the length asked for, or shortened to what fits when none was asked for.
 */
static int fit_max_model_len(struct load *load, uint64_t block_bytes, struct error *err)
{
    const int32_t tokens = longest_that_fits(load, load->facts.num_blocks), allowed = allowed_len(load);
    if (tokens >= allowed) return STATUS_OK;
    const uint64_t wanted = bytes_of_one(load, allowed, block_bytes) / num_members(load);
    if (load->config->max_model_len || tokens < BLOCK_SIZE)
        return error_set(
            err, STATUS_LIMIT,
            "the K/V cache holds %d tokens, but one sequence may have %d: raise --kv-cache-memory-bytes "
            "to at least %llu or lower --max-model-len",
            tokens, allowed, (unsigned long long)wanted);
    log_warning("the K/V cache holds %d tokens: no sequence can be longer, though the model allows %d; "
                "--kv-cache-memory-bytes %llu would hold one",
                tokens, allowed, (unsigned long long)wanted);
    load->facts.max_model_len = tokens;
    return STATUS_OK;
}

static void log_states(const struct load *load)
{
    const uint64_t each = bytes_of_a_state(load);
    log_info("layers with a state: %.1f MiB, %.1f for each of %d running sequences and %.1f for each of %d "
             "that are "
             "kept for prompts that begin alike and for preempted sequences",
             (double)state_bytes(load) / (double)MIB,
             (double)running_bytes(each, draft_bytes(load), engine_num_steps(load->device)) / (double)MIB,
             load->facts.max_num_seqs, (double)each / (double)MIB, load->num_states);
}

/* A CPU takes memory as they come. */
static void log_adapters(const struct load *load)
{
    const double mib = (double)model_files_lora_bytes(load->files) / (double)MIB;
    const int32_t num = model_files_num_loras(load->files), rank = model_files_lora_rank(load->files);
    if (rank == 0)
        log_info("%d adapters beside the weights: %.1f MiB", num, mib);
    else if (load->device->is_gpu)
        log_info("places for %d adapters up to rank %d beside the weights: %.1f MiB", num, rank, mib);
    else
        log_info("places for %d adapters, of which those that come later have a rank up to %d", num, rank);
}

static void log_memory_plan(const struct load *load, uint64_t block_bytes)
{
    double mib = 1.0 / (double)MIB;
    log_info("memory plan: weights %.1f MiB, K/V cache %.1f MiB (%d blocks of %d tokens, %s), longest "
             "sequence %d tokens, "
             "%d sequences and %d tokens a step; at most %.1f MiB of host memory for preempted ones",
             (double)model_files_weight_bytes(load->files) * mib,
             (double)block_bytes * load->facts.num_blocks * mib, load->facts.num_blocks, BLOCK_SIZE,
             dtype_infos[load->kv_dtype].text, load->facts.max_model_len, load->facts.max_num_seqs,
             load->facts.max_num_batched_tokens, (double)block_bytes * load->num_host_blocks * mib);
    if (model_files_num_loras(load->files) > 0) log_adapters(load);
    if (kv_beside_bytes(load) > MIB)
        log_info("beside the K/V cache: %.1f MiB, for padding and for what prompts read of codes or latents",
                 (double)kv_beside_bytes(load) * mib);
    if (has_states(load)) log_states(load);
    if (load->kv_layout.window == 0) return;
    log_info("K/V groups: %d of %d layers whose tokens take %.1f KiB each, %d that keep no more than the %d "
             "tokens of a "
             "window and those of the steps in flight",
             load->kv_layout.num_full, load->kv_layout.layers_per_block,
             (double)block_bytes / BLOCK_SIZE / 1024, load->kv_layout.num_windowed, load->kv_layout.window);
}

/* Of attention over a key to all products of a token, in operations. */
static double pair_per_token(const struct model_config *c)
{
    return 2.0 * c->num_layers * c->num_heads * c->head_dim / (double)model_config_num_parameters(c);
}

/* A GPU loads and chooses much in its first steps, so that the second ones are measured. A CPU has nothing of
 * the kind: it makes two small steps when nobody has told what steps take. */
static int warm_up(const struct load *load, struct error *err)
{
    bool gpu = load->device->is_gpu;
    int64_t most =
        min_of((int64_t)load->facts.num_blocks * BLOCK_SIZE, (int64_t)load->facts.max_model_len) - 1;
    int32_t wanted = min_of(load->facts.max_num_batched_tokens,
                            gpu ? (int32_t)GPU_WARM_UP_TOKENS : (int32_t)CPU_WARM_UP_TOKENS);
    int32_t num_tokens = (int32_t)min_of(most, (int64_t)wanted);
    if (num_tokens < 2 || (!gpu && engine_knows_prices(load->engine))) return STATUS_OK;
    struct warm_up_times times;
    int status = STATUS_OK;
    for (int i = 0; i < (gpu ? 2 : 1) && !status; i++)
        status = model_warm_up(load->model, num_tokens, &times, err);
    if (!status)
        status =
            model_record_graphs(load->model, min_of(load->facts.max_num_seqs, load->facts.num_blocks), err);
    if (status) return status;
    struct step_prices prices = step_prices_guess(times.prompt_us, num_tokens, times.token_us,
                                                  pair_per_token(model_files_config(load->files)));
    engine_guess_prices(load->engine, &prices);
    return STATUS_OK;
}

/* What is left on the device decides the number of blocks, unless an engine before this one has decided. */
static int choose_num_blocks(struct load *load, uint64_t block_bytes, struct error *err)
{
    if (link_is_inherited(load->link)) return STATUS_OK;
    load->facts.num_blocks = num_blocks_of(choose_kv_bytes(load, block_bytes), block_bytes);
    load->facts.max_queued_tokens = (uint64_t)load->config->max_queued_tokens;
    return fit_max_model_len(load, block_bytes, err);
}

/* Blocks of preempted sequences: as many as the pool has at most, and as what it leaves of host memory. */
static int32_t choose_num_host_blocks(const struct load *load, uint64_t block_bytes)
{
    const uint64_t left = host_bytes_left(load),
                   pool = load->device->is_gpu ? 0 : (uint64_t)load->facts.num_blocks * block_bytes,
                   room = min_of(left - min_of(left, pool), load->config->kv_offload_bytes);
    return (int32_t)min_of(room / max_of(block_bytes, (uint64_t)1), (uint64_t)load->facts.num_blocks);
}

static int load_pool(struct load *load, struct error *err)
{
    uint64_t block_bytes = model_kv_block_bytes(load->model, load->kv_dtype);
    int status = choose_num_blocks(load, block_bytes, err);
    if (status) return status;
    load->kv_block_bytes = block_bytes;
    if (!has_states(load) || load->num_states > 0)
        load->num_host_blocks = choose_num_host_blocks(load, block_bytes);
    struct error why = {0};
    status = model_kv_pool_create(load->model, load->facts.num_blocks, load->num_host_blocks, load->kv_dtype,
                                  &why);
    if (status)
        return error_set(err, status, "%s%s", why.text,
                         status == STATUS_NO_MEMORY ? " (--kv-cache-memory-bytes, --kv-offload-bytes)" : "");
    log_memory_plan(load, block_bytes);
    return STATUS_OK;
}

/* Whoever asks for it and cannot have it is served without. */
static void open_energy_meter(struct load *load)
{
    struct error why = {0};
    const struct config *config = load->config;
    if (!config->report_energy) return;
    int status = load->device->is_gpu
                     ? energy_meter_open_gpus((int)config->cuda_device, (int)config->tensor_parallel_size,
                                              &load->energy_meter, &why)
                     : energy_meter_open_cpu(config->powercap, &load->energy_meter, &why);
    if (status) log_warning("usage says nothing of energy: %s", why.text);
    if (!link_is_inherited(load->link)) load->facts.measures_energy = status == STATUS_OK;
}

static int load_engine(struct load *load, struct error *err)
{
    open_energy_meter(load);
    int status = link_open(load->link, &load->facts, err);
    if (status) return status;
    struct engine_options options = engine_options_of(load);
    status = engine_create(load->model, load->link, &options, &load->engine, err);
    if (status) return status;
    load->device->ops->seal(load->device);
    return warm_up(load, err);
}

static int load_files(struct load *load, struct error *err)
{
    return load_files_open(load->config, load->link, &load->files, err);
}

int load_run(struct load *load, struct error *err)
{
    static const struct phase {
        const char *name;
        int (*run)(struct load *, struct error *);
    } phases[LOAD_PHASES] = {[LOAD_FILES] = {"files", load_files},
                             [LOAD_DEVICE] = {"device", load_device},
                             [LOAD_WEIGHTS] = {"weights", load_weights},
                             [LOAD_POOL] = {"K/V pool", load_pool},
                             [LOAD_ENGINE] = {"engine", load_engine}};
    for (int i = 0; i < LOAD_PHASES; i++) {
        uint64_t begin_ns = clock_monotonic_ns();
        int status = phases[i].run(load, err);
        if (status) return status;
        double seconds = (double)(clock_monotonic_ns() - begin_ns) / 1e9;
        link_phase_seconds(load->link)[i] = seconds;
        log_debug("load: %s took %.3f s", phases[i].name, seconds);
    }
    const struct model_config *c = model_files_config(load->files);
    char times[24] = "";
    if (load->device->num_members > 1) snprintf(times, sizeof times, "%d times ", load->device->num_members);
    log_info("model %s: %s, %.1f million parameters, on %s%s", config_model_path(load->config),
             family_name(c->family), (double)model_config_num_parameters(c) / 1e6, times, load->facts.device);
    return STATUS_OK;
}

void load_release(struct load *load)
{
    if (load->engine) engine_destroy(load->engine);
    energy_meter_close(load->energy_meter);
    if (load->model) model_destroy(load->model);
    if (load->device) load->device->ops->close(load->device);
    if (load->files) model_files_close(load->files);
    load->engine = NULL;
    load->energy_meter = NULL;
    load->model = NULL;
    load->device = NULL;
    load->files = NULL;
}
