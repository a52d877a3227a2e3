/* load.c - phases in their order: files, tokenizer and template, device, weights, K/V pool and engine.
 *
 * What the options leave open is decided here, once, and printed as the memory plan. A machine that cannot
 * hold the plan is told so before anything is served. */
#include "engine/load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "model/warm_up.h"

const char *const load_phase_names[LOAD_PHASES] = {"files", "tokenizer", "device", "weights", "engine"};

enum {
    CPU_NUM_SEQS = 64,
    CPU_BATCHED_TOKENS = 512,
    GPU_NUM_SEQS = 256,
    GPU_BATCHED_TOKENS_MIN = 512,
    GPU_BATCHED_TOKENS_MAX = 8192,
    CPU_TYPICAL_TOKENS = 1024, /* of one sequence, when a CPU's K/V cache is sized by default */
    LOGIT_ROWS_MIN = 64,       /* room for prompt log probabilities in a step */
    TEMPLATE_BYTES_MAX = 1 << 20,
    WARM_UP_TOKENS = 128,
    PROGRESS_LINE_NS = 1000000000,
};

/* Tokens times parameters: some 25 ms of an H200, and a stream's pause while others' prompts are computed. */
static const uint64_t GPU_STEP_WORK = 9000000000000;

static bool is_cuda(const struct load *load)
{
    return !strcmp(load->device->name, "cuda");
}

static int read_template_file(const char *path, char **text, struct error *err)
{
    FILE *file = fopen(path, "rb");
    if (!file) return error_set(err, STATUS_IO, "--chat-template %s: %s", path, strerror(errno));
    char *data = malloc(TEMPLATE_BYTES_MAX + 1);
    size_t n = data ? fread(data, 1, TEMPLATE_BYTES_MAX + 1, file) : 0;
    fclose(file);
    if (!data) return error_set(err, STATUS_NO_MEMORY, "out of memory");
    if (n > TEMPLATE_BYTES_MAX) {
        free(data);
        return error_set(err, STATUS_LIMIT, "--chat-template %s: more than %d bytes", path,
                         TEMPLATE_BYTES_MAX);
    }
    data[n] = '\0';
    *text = data;
    return STATUS_OK;
}

/* A template given by the operator must parse; a model's own that does not is a warning, so that completions
 * work. */
static int load_template(struct load *load, struct error *err)
{
    if (load->config->chat_template) {
        char *text = NULL;
        int status = read_template_file(load->config->chat_template, &text, err);
        if (status) return status;
        status = chat_template_parse(text, &load->chat_template, err);
        free(text);
        return status;
    }
    const char *text = model_files_chat_template(load->files);
    if (!text) return STATUS_OK;
    struct error why = {0};
    if (chat_template_parse(text, &load->chat_template, &why)) {
        load->chat_template = NULL;
        log_warning("the model's chat template cannot be used, chat completions are off: %s", why.text);
    }
    return STATUS_OK;
}

static int open_tokenizer(struct load *load, struct error *err)
{
    const struct gguf *gguf = model_files_gguf(load->files);
    if (gguf) return tokenizer_open_gguf(gguf, &load->tokenizer, err);
    int status = tokenizer_open_directory(model_files_directory(load->files), &load->tokenizer, err);
    if (status != STATUS_NOT_FOUND || strcmp(load->config->load_format, "dummy") != 0) return status;
    log_info("random weights without a tokenizer.json: bytes are the tokens of a prompt, words are made up");
    *err = (struct error){0};
    return tokenizer_open_plain(model_files_config(load->files)->vocab_size, &load->tokenizer, err);
}

static int load_tokenizer(struct load *load, struct error *err)
{
    int status = open_tokenizer(load, err);
    if (status) return status;
    const struct model_config *c = model_files_config(load->files);
    if (tokenizer_vocab_size(load->tokenizer) > c->vocab_size)
        return error_set(err, STATUS_INVALID,
                         "%s: the tokenizer has ids up to %d, but the model has %d rows of logits",
                         load->config->model, tokenizer_vocab_size(load->tokenizer) - 1, c->vocab_size);
    model_files_add_eos(load->files, tokenizer_eos_id(load->tokenizer));
    return load_template(load, err);
}

/* Powers of two, which fill the tiles of matrix products. */
static int32_t gpu_batched_tokens(const struct model_config *c)
{
    uint64_t num_parameters = model_config_num_parameters(c);
    int32_t num_tokens = GPU_BATCHED_TOKENS_MAX;
    while (num_tokens > GPU_BATCHED_TOKENS_MIN && (uint64_t)num_tokens * num_parameters > GPU_STEP_WORK)
        num_tokens /= 2;
    return num_tokens;
}

static int load_device(struct load *load, struct error *err)
{
    const struct config *config = load->config;
    struct device_options options = {.cpu_isa = config->cpu_isa,
                                     .num_threads = (int)config->threads,
                                     .cuda_device = (int)config->cuda_device};
    int status = device_open(config->device, &options, &load->device, err);
    if (status) return status;
    const struct model_config *c = model_files_config(load->files);
    bool cuda = is_cuda(load);
    load->max_num_seqs = config->max_num_seqs ? (int32_t)config->max_num_seqs
                         : cuda               ? GPU_NUM_SEQS
                                              : CPU_NUM_SEQS;
    load->max_num_batched_tokens = config->max_num_batched_tokens ? (int32_t)config->max_num_batched_tokens
                                   : cuda                         ? gpu_batched_tokens(c)
                                                                  : CPU_BATCHED_TOKENS;
    load->max_num_batched_tokens = max_of(load->max_num_batched_tokens, load->max_num_seqs);
    if (config->max_model_len > c->max_position_embeddings)
        return error_set(err, STATUS_INVALID,
                         "--max-model-len %lld is more than the %d positions that the model was made for",
                         (long long)config->max_model_len, c->max_position_embeddings);
    load->max_model_len = config->max_model_len ? (int32_t)config->max_model_len : c->max_position_embeddings;
    return STATUS_OK;
}

static struct engine_options engine_options_of(const struct load *load)
{
    return (struct engine_options){
        .max_model_len = load->max_model_len,
        .max_num_seqs = load->max_num_seqs,
        .max_num_batched_tokens = load->max_num_batched_tokens,
        .max_num_logits = max_of(load->max_num_seqs, LOGIT_ROWS_MIN),
        .num_blocks = load->num_blocks,
        .enable_prefix_caching = load->config->enable_prefix_caching,
        .wake_loop = load->wake_loop,
        .wake_context = load->wake_context,
    };
}

/* context: when the last line was written. */
static void log_progress(void *context, double fraction)
{
    uint64_t *said_ns = context, now_ns = clock_monotonic_ns();
    if (now_ns - *said_ns < PROGRESS_LINE_NS) return;
    *said_ns = now_ns;
    log_info("weights: %.0f %% are in", 100 * fraction);
}

static int load_weights(struct load *load, struct error *err)
{
    struct engine_options options = engine_options_of(load);
    struct step_limits limits;
    engine_step_limits(&options, load->device, &limits);
    uint64_t said_ns = clock_monotonic_ns();
    return model_create(load->device, load->files, &limits, log_progress, &said_ns, &load->model, err);
}

static int choose_kv_dtype(const struct load *load, enum dtype *dtype, struct error *err)
{
    *dtype = !strcmp(load->config->kv_cache_dtype, "f32") ? DTYPE_F32 : DTYPE_BF16;
    if (*dtype == DTYPE_F32 && !load->device->kv_f32_allowed)
        return error_set(err, STATUS_UNSUPPORTED, "--kv-cache-dtype f32 is for the CPU device");
    return STATUS_OK;
}

/* Bytes for the K/V pool: as told, else what typical sequences need (CPU) or what is left (GPU). */
static uint64_t choose_kv_bytes(const struct load *load, uint64_t block_bytes)
{
    uint64_t free_bytes = load->device->ops->free_bytes(load->device);
    if (load->config->kv_cache_memory_bytes) return load->config->kv_cache_memory_bytes;
    if (is_cuda(load)) return (uint64_t)((double)free_bytes * load->config->gpu_memory_utilization);
    uint64_t tokens =
        (uint64_t)load->max_num_seqs * (uint64_t)min_of(load->max_model_len, CPU_TYPICAL_TOKENS);
    uint64_t typical = (uint64_t)div_up((int64_t)tokens, BLOCK_SIZE) * block_bytes;
    uint64_t longest = (uint64_t)div_up(load->max_model_len, BLOCK_SIZE) * block_bytes;
    return min_of(max_of(typical, longest), free_bytes / 2);
}

/* Room for at least one sequence: of the length asked for, or shortened to what fits when none was asked for.
 */
static int fit_max_model_len(struct load *load, uint64_t block_bytes, struct error *err)
{
    int64_t tokens = (int64_t)load->num_blocks * BLOCK_SIZE;
    if (tokens >= load->max_model_len) return STATUS_OK;
    if (load->config->max_model_len || tokens < BLOCK_SIZE)
        return error_set(
            err, STATUS_LIMIT,
            "the K/V cache holds %lld tokens, but one sequence may have %d: raise --kv-cache-memory-bytes "
            "to at least %llu or lower --max-model-len",
            (long long)tokens, load->max_model_len,
            (unsigned long long)((uint64_t)div_up(load->max_model_len, BLOCK_SIZE) * block_bytes));
    load->max_model_len = (int32_t)tokens;
    return STATUS_OK;
}

static void log_memory_plan(const struct load *load, uint64_t block_bytes)
{
    double mib = 1.0 / (double)MIB;
    log_info("memory plan: weights %.1f MiB, K/V cache %.1f MiB (%d blocks of %d tokens, %s), longest "
             "sequence %d tokens, "
             "%d sequences and %d tokens a step",
             (double)model_files_weight_bytes(load->files) * mib,
             (double)block_bytes * load->num_blocks * mib, load->num_blocks, BLOCK_SIZE, load->kv_dtype_text,
             load->max_model_len, load->max_num_seqs, load->max_num_batched_tokens);
}

/* A CPU has nothing to load or to choose that would be worth a step. */
static int warm_up(const struct load *load, struct error *err)
{
    int64_t most = min_of((int64_t)load->num_blocks * BLOCK_SIZE, (int64_t)load->max_model_len) - 1;
    int32_t num_tokens = (int32_t)min_of(most, (int64_t)min_of(load->max_num_batched_tokens, WARM_UP_TOKENS));
    return is_cuda(load) && num_tokens > 0 ? model_warm_up(load->model, num_tokens, err) : STATUS_OK;
}

static int load_engine(struct load *load, struct error *err)
{
    enum dtype dtype;
    int status = choose_kv_dtype(load, &dtype, err);
    if (status) return status;
    uint64_t block_bytes = model_kv_block_bytes(load->model, dtype);
    uint64_t num_blocks = choose_kv_bytes(load, block_bytes) / max_of(block_bytes, (uint64_t)1);
    load->num_blocks = (int32_t)min_of(num_blocks, (uint64_t)INT32_MAX / BLOCK_SIZE);
    load->kv_dtype_text = dtype_infos[dtype].text;
    status = fit_max_model_len(load, block_bytes, err);
    if (!status) status = model_kv_pool_create(load->model, load->num_blocks, dtype, err);
    if (status) return status;
    log_memory_plan(load, block_bytes);
    load->max_queued_tokens = load->config->max_queued_tokens ? (uint64_t)load->config->max_queued_tokens
                                                              : 64u * (uint64_t)load->max_num_batched_tokens +
                                                                    (uint64_t)load->num_blocks * BLOCK_SIZE;
    int32_t num_slots = load->max_num_seqs + (int32_t)load->config->max_queued_requests;
    status = request_slots_create(num_slots, load->max_model_len, &load->slots, err);
    if (status) return status;
    struct engine_options options = engine_options_of(load);
    options.kv_dtype = dtype;
    status = engine_create(load->model, load->slots, &options, &load->engine, err);
    if (status) return status;
    load->device->ops->seal(load->device);
    status = warm_up(load, err);
    return status ? status : engine_start(load->engine, err);
}

static int load_files(struct load *load, struct error *err)
{
    return model_files_open(load->config->model, load->config->load_format, &load->files, err);
}

int load_run(struct load *load, struct error *err)
{
    static int (*const phases[LOAD_PHASES])(struct load *, struct error *) = {
        load_files, load_tokenizer, load_device, load_weights, load_engine};
    for (int i = 0; i < LOAD_PHASES; i++) {
        uint64_t begin_ns = clock_monotonic_ns();
        int status = phases[i](load, err);
        load->phase_seconds[i] = (double)(clock_monotonic_ns() - begin_ns) / 1e9;
        if (status) return status;
        log_debug("load: %s took %.3f s", load_phase_names[i], load->phase_seconds[i]);
    }
    const struct model_config *c = model_files_config(load->files);
    log_info("model %s: %s, %.1f million parameters, on %s (%s)", load->config->model, c->family,
             (double)model_config_num_parameters(c) / 1e6, load->device->name, load->device->description);
    return STATUS_OK;
}

void load_release(struct load *load)
{
    if (load->engine) {
        engine_stop(load->engine);
        engine_destroy(load->engine);
    }
    if (load->slots) request_slots_destroy(load->slots);
    if (load->model) model_destroy(load->model);
    if (load->device) load->device->ops->close(load->device);
    if (load->chat_template) chat_template_free(load->chat_template);
    if (load->tokenizer) tokenizer_close(load->tokenizer);
    if (load->files) model_files_close(load->files);
    load->engine = NULL;
    load->slots = NULL;
    load->model = NULL;
    load->device = NULL;
    load->chat_template = NULL;
    load->tokenizer = NULL;
    load->files = NULL;
}
