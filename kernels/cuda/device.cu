/* device.cu - the CUDA device: opening it, its memory, and its table of operations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <new>

#include "kernels/cuda/attention_masked.cuh"
#include "kernels/cuda/attention_prefill.cuh"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/kv_pool.cuh"
#include "kernels/cuda/latent.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_blas.cuh"
#include "kernels/cuda/pinned.cuh"
#include "kernels/cuda/share.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

enum { BLAS_WORKSPACE_BYTES = 32 << 20, SM_MIN = 80 };

} // namespace

bool cuda_check(struct cuda_device *d, cudaError_t result, const char *where)
{
    if (result == cudaSuccess) return true;
    if (d->first_error == cudaSuccess) {
        d->first_error = result;
        snprintf(d->first_error_where, sizeof d->first_error_where, "%s", where);
    }
    return false;
}

namespace
{

void close_device(struct device *device)
{
    struct cuda_device *d = cuda_enter(device);
    if (d->hangs)
        return; /* whatever asks the device for anything would wait for the step that does not end */
    cudaDeviceSynchronize();
    cuda_blas_loaded(d);
    if (d->blas) cublasLtDestroy(d->blas);
    cuda_weights_close_stages(d);
    cuda_linears_forget(d);
    cuda_moe_forget(d);
    cuda_loras_forget(d);
    cuda_delta_nets_forget(d);
    cuda_latents_forget(d);
    cuda_steps_forget(d);
    cuda_sampler_forget(d);
    cuda_history_forget(d);
    tensor_maps_close(d);
    cuda_launches_close(d);
    cuda_pinned_forget(d);
    const bool is_needed = cuda_is_needed_by_others(d);
    cuda_membership_forget(d);
    if (!is_needed)
        cudaDeviceReset(); /* nobody in this process uses this GPU: everything on it goes at once */
    delete d;
}

/* What scratch is for: of each number the largest. */
struct attention_args widest_of(const struct attention_args *layers, int32_t num_layers)
{
    struct attention_args widest = layers[0];
    for (int32_t i = 1; i < num_layers; i++) {
        widest.num_heads = max(widest.num_heads, layers[i].num_heads);
        widest.num_kv_heads = max(widest.num_kv_heads, layers[i].num_kv_heads);
        widest.head_dim = max(widest.head_dim, layers[i].head_dim);
    }
    return widest;
}

/* Of the splits of all sequences of a step, whichever layer computes them. */
size_t partial_floats(const struct cuda_device *d, const struct step_limits *limits,
                      const struct attention_args *layers, int32_t num_layers)
{
    const struct attention_args widest = widest_of(layers, num_layers);
    size_t most = cuda_decode_partial_floats(limits, &widest);
    for (int32_t i = 0; i < num_layers; i++)
        if (limits->has_masks || cuda_attention_is_masked(d, &layers[i]))
            most = max(most, cuda_masked_partial_floats(d, limits, &layers[i]));
    return most;
}

/* Whose heads steps are planned for: of those that have the same ones of K and V the layer with most query heads. */
const struct attention_args *planned(const struct attention_args *layers, int32_t num_layers)
{
    const struct attention_args *first = NULL, *most;
    for (int32_t i = 0; i < num_layers && !first; i++)
        if (cuda_attention_has_different(layers[i].head_dim)) first = &layers[i];
    most = first = first ? first : &layers[0];
    for (int32_t i = 0; i < num_layers; i++)
        if (cuda_all_kv_heads(&layers[i]) == cuda_all_kv_heads(first) &&
            layers[i].head_dim == first->head_dim && layers[i].num_heads > most->num_heads)
            most = &layers[i];
    return most;
}

int prepare(struct device *device, const struct step_limits *limits, int32_t vocab_size, int32_t hidden_size,
            int32_t intermediate_size, const struct attention_args *layers, int32_t num_layers,
            struct error *err)
{
    const struct attention_args widest = widest_of(layers, num_layers),
                                *attention = planned(layers, num_layers);
    struct cuda_device *d = cuda_enter(device);
    for (int32_t i = 0; i < num_layers; i++)
        if (layers[i].v_dim > 0 && layers[i].v_dim != layers[i].head_dim)
            return error_set(err, STATUS_UNSUPPORTED,
                             "the CUDA device has no values of another size than keys: take --device cpu");
    for (int32_t i = 0; i < num_layers; i++)
        d->layers_differ = d->layers_differ ||
                           cuda_all_kv_heads(&layers[i]) != cuda_all_kv_heads(&layers[0]) ||
                           layers[i].head_dim != layers[0].head_dim || layers[i].q_alone;
    if (hidden_size % 8 != 0 || intermediate_size % 8 != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device wants hidden and intermediate sizes that are multiples "
                         "of 8, got %d and %d",
                         hidden_size, intermediate_size);
    if (hidden_size > HIDDEN_MAX)
        return error_set(err, STATUS_UNSUPPORTED, "the CUDA device wants a hidden size of at most %d, got %d",
                         (int)HIDDEN_MAX, hidden_size);
    for (int32_t i = 0; i < num_layers; i++)
        if (!cuda_attention_supports(layers[i].head_dim) &&
            !cuda_attention_masked_supports(d, layers[i].head_dim))
            return error_set(err, STATUS_UNSUPPORTED,
                             "the CUDA device has attention for head sizes 64, 80, 96, 128 and 256, not %d",
                             layers[i].head_dim);
    d->limits = *limits;
    d->vocab_size = vocab_size;
    d->hidden_size = hidden_size;
    d->intermediate_size = intermediate_size;
    d->attention = d->prompt_attention = *attention;
    cuda_latent_plan(d, layers, num_layers);
    d->base.prefill_tile = cuda_prefill_rows_per_tile(d, d->prompt_attention.head_dim);
    cuda_tables_prepare(d, layers, num_layers);
    for (int32_t i = 0; i < num_layers; i++)
        d->needs_masked = d->needs_masked || cuda_attention_is_masked(d, &layers[i]);
    if (limits->has_masks)
        d->sequence_mask_words =
            min((size_t)limits->num_seqs * (sequence_mask_words(limits->max_model_len) + 2),
                (size_t)SEQUENCE_MASK_WORDS_MAX);
    for (int32_t i = 0; i < num_layers; i++)
        if (!cuda_window_add(d, layers[i].sliding_window))
            return error_set(err, STATUS_UNSUPPORTED,
                             "the CUDA device has decode attention for at most %d different windows",
                             (int)WINDOWS_MAX);
    d->logits = (float *)cuda_alloc(device, (size_t)limits->num_logits * vocab_size * 4, "logits");
    d->attention_partial =
        (float *)cuda_alloc(device, partial_floats(d, limits, layers, num_layers) * 4, "attention");
    d->attention_counters =
        (int32_t *)cuda_alloc(device, cuda_decode_counters(limits, &widest) * 4, "attention");
    d->gate_up = (__nv_bfloat16 *)cuda_alloc(device, (size_t)limits->num_tokens * 2 * intermediate_size * 2,
                                             "activations");
    d->last_tokens = (int32_t *)cuda_alloc(device, (size_t)limits->num_batch_slots * 4, "sampling");
    if (!d->logits || !d->attention_partial || !d->attention_counters || !d->gate_up || !d->last_tokens ||
        !cuda_rows_prepare(d) ||
        !prefill_hopper_prepare(d, d->prompt_attention.head_dim, limits->max_model_len))
        return error_set(err, STATUS_NO_MEMORY, "the GPU has no room for the activations of %d tokens a step",
                         limits->num_tokens);
    int status = cuda_steps_prepare(d, err);
    return status ? status : cuda_sampler_prepare(d, err);
}

void seal(struct device *device)
{
    cuda_of(device)->is_sealed = true;
}

int weights_done(struct device *device, struct error *err)
{
    struct cuda_device *d = cuda_enter(device);
    cuda_weights_close_stages(d);
    return cuda_linear_plans(d, err);
}

int read_logits(struct device *device, int32_t row, float *out)
{
    struct cuda_device *d = cuda_of(device);
    return cuda_download(device, out, d->logits + (size_t)row * d->vocab_size, (size_t)d->vocab_size * 4);
}

constexpr struct kernel_table make_table()
{
    struct kernel_table t = {};
    t.close = close_device;
    t.free_bytes = cuda_free_bytes;
    t.alloc = cuda_alloc;
    t.upload = cuda_upload;
    t.download = cuda_download;
    t.prepare = prepare;
    t.seal = seal;
    t.linear_create = cuda_linear_create;
    t.linear_bytes = cuda_linear_bytes;
    t.lora_create = cuda_lora_create;
    t.lora_set = cuda_lora_set;
    t.moe_create = cuda_moe_create;
    t.weights_done = weights_done;
    t.kv_pool_bytes = cuda_kv_pool_bytes;
    t.kv_pool_create = cuda_kv_pool_create;
    t.kv_blocks_save = cuda_kv_blocks_save;
    t.kv_blocks_load = cuda_kv_blocks_load;
    t.step_begin = cuda_step_begin;
    t.step_end = cuda_step_end;
    t.step_has_ended = cuda_step_has_ended;
    t.replay = cuda_replay;
    t.record_begin = cuda_record_begin;
    t.record_end = cuda_record_end;
    t.graph_size = cuda_graph_size;
    t.rehearse = cuda_rehearse;
    t.forbid = cuda_forbid;
    t.history_set = cuda_history_set;
    t.embed = cuda_embed;
    t.pick_logit_rows = cuda_pick_logit_rows;
    t.rms_norm = cuda_rms_norm;
    t.linear = cuda_linear;
    t.linear_gated = cuda_linear;
    t.linear_lora = cuda_linear_lora;
    t.norm_linear = cuda_norm_linear;
    t.sparse_gelu = cuda_sparse_gelu;
    t.altup_begin = cuda_altup_begin;
    t.altup_predict = cuda_altup_predict;
    t.altup_correct = cuda_altup_correct;
    t.altup_end = cuda_altup_end;
    t.moe = cuda_moe;
    t.embed_positions = cuda_embed_positions;
    t.multiply = cuda_multiply;
    t.latent_create = cuda_latent_create;
    t.latent_qkv = cuda_latent_qkv;
    t.latent_values = cuda_latent_values;
    t.delta_net_create = cuda_delta_net_create;
    t.delta_takes_drafts = cuda_delta_takes_drafts;
    t.states_copy = cuda_states_copy;
    t.delta = cuda_delta;
    t.split_gates = cuda_split_gates;
    t.apply_gates = cuda_apply_gates;
    t.rope_kv_write = cuda_rope_kv_write;
    t.attention = cuda_attention;
    t.pool = cuda_pool;
    t.logits = cuda_logits;
    t.sample = cuda_sample;
    t.row = cuda_row;
    t.join = cuda_join;
    t.select = cuda_select;
    t.share = cuda_share;
    t.share_end = cuda_share_end;
    t.logits_begin = cuda_logits_begin;
    t.logits_memory = cuda_logits_memory;
    t.logits_end = cuda_logits_end;
    t.moe_begin = cuda_moe_begin;
    t.moe_share = cuda_moe_share;
    t.moe_gather = cuda_moe_gather;
    t.moe_end = cuda_moe_end;
    t.read_logits = read_logits;
    t.write_f32 = cuda_write_f32;
    t.read_f32 = cuda_read_f32;
    return t;
}

constexpr struct kernel_table table = make_table();

__global__ void any_kernel(void) {}

/* What is compiled for older machines leaves out what launches on sm_90 count on. */
int check_build(struct cuda_device *d, const cudaDeviceProp *p, struct error *err)
{
    cudaFuncAttributes a;
    bool has_code = CUDA_CHECK(d, cudaFuncGetAttributes(&a, any_kernel));
    if (has_code && (!d->is_hopper || a.ptxVersion >= 90)) return STATUS_OK;
    return error_set(
        err, STATUS_UNSUPPORTED,
        "libflashd_cuda.so was built without code for %s (compute capability %d.%d): build it with "
        "CUDA_ARCHS=\"-gencode=arch=compute_%d%d%s,code=sm_%d%d%s\"",
        p->name, p->major, p->minor, p->major, p->minor, d->is_hopper ? "a" : "", p->major, p->minor,
        d->is_hopper ? "a" : "");
}

int open_gpu(struct cuda_device *d, int ordinal, struct error *err)
{
    int count = 0;
    cudaError_t result = cudaGetDeviceCount(&count);
    if (result != cudaSuccess || count == 0)
        return error_set(err, STATUS_NOT_FOUND, "no NVIDIA GPU can be used: %s",
                         result != cudaSuccess ? cudaGetErrorString(result) : "none was found");
    if (ordinal >= count)
        return error_set(err, STATUS_NOT_FOUND, "--cuda-device %d: there are %d GPUs, counted from 0",
                         ordinal, count);
    cudaDeviceProp p;
    if (!CUDA_CHECK(d, cudaSetDevice(ordinal)) || !CUDA_CHECK(d, cudaGetDeviceProperties(&p, ordinal)))
        return error_set(err, STATUS_DEVICE, "the GPU %d cannot be opened: %s", ordinal,
                         cudaGetErrorString(d->first_error));
    if (p.major * 10 + p.minor < SM_MIN)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s has compute capability %d.%d; flashd needs 8.0 or newer", p.name, p.major,
                         p.minor);
    d->ordinal = ordinal;
    d->num_sms = p.multiProcessorCount;
    d->cta_shared_bytes = (int32_t)p.sharedMemPerBlockOptin;
    d->is_hopper = p.major == 9 && !d->is_portable;
    int status = check_build(d, &p, err);
    if (status) return status;
    d->base.gpu_bytes = p.totalGlobalMem;
    snprintf(d->base.description, sizeof d->base.description, "%s, %.0f GiB, %d SMs", p.name,
             (double)p.totalGlobalMem / (1 << 30), d->num_sms);
    cuda_launches_open(d);
    tensor_maps_open(d);
    bool ok = CUDA_CHECK(d, cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking)) &&
              CUDA_CHECK(d, cudaMalloc(&d->blas_workspace, BLAS_WORKSPACE_BYTES)) &&
              (d->queues = (struct work_queues *)cuda_alloc(&d->base, sizeof *d->queues, "queues"));
    d->blas_workspace_bytes = BLAS_WORKSPACE_BYTES;
    if (!ok || cublasLtCreate(&d->blas) != CUBLAS_STATUS_SUCCESS)
        return error_set(err, STATUS_DEVICE, "the GPU %d cannot be opened: %s", ordinal,
                         cudaGetErrorString(d->first_error));
    return STATUS_OK;
}

} // namespace

extern "C" __attribute__((visibility("default"))) int cuda_device_open(const struct device_options *options,
                                                                       struct device **out, struct error *err)
{
    struct cuda_device *d = new struct cuda_device();
    d->base.ops = &table;
    d->base.name = "cuda";
    d->base.act_bytes = 2;
    d->base.res_bytes = 4;
    d->base.num_steps_in_flight_max = 2;
    d->base.is_gpu = true;
    d->base.norm_values_max = HIDDEN_MAX;
    d->is_portable = options->cuda_portable;
    d->base.kv_any_dtype = true; /* not all: kv_pool.cu */
    int status = open_gpu(d, options->cuda_device, err);
    if (status) {
        tensor_maps_close(d);
        cuda_launches_close(d);
        delete d;
        return status;
    }
    d->step_timeout_ms = options->step_timeout_ms;
    *out = &d->base;
    return STATUS_OK;
}
