/* delta_net.cu - layers with a state: their memory, kept states, and which kernels a step takes (delta_net.cuh). */
#include "kernels/cuda/delta_net.cuh"

#include <algorithm>
#include <vector>

namespace
{

enum { COPY_THREADS = 256 };

/* Rows before a position from a batch_slot's ring to a kept state's, or back. */
template <typename T> __device__ void copy_rows(const delta_net &n, T *rows, const state_copy &copy)
{
    const size_t width = (size_t)num_channels(n), step = (size_t)gridDim.x * COPY_THREADS;
    for (size_t i = (size_t)blockIdx.x * COPY_THREADS + threadIdx.x; i < n.num_before * width; i += step) {
        const int32_t row = (int32_t)(i / width), position = copy.position - n.num_before + row;
        if (position < 0) continue;
        T *ring = rows + ring_row(n, copy.batch_slot, position) * width + i % width,
          *kept = rows + (kept_row(n, copy.state) + row) * width + i % width;
        *(copy.keeps ? kept : ring) = *(copy.keeps ? ring : kept);
    }
}

__global__ void __launch_bounds__(COPY_THREADS)
    copy_kernel(const __grid_constant__ delta_net n, state_copy copy, bool has_state)
{
    const size_t slot = which_state(copy.batch_slot, copy.position), kept = kept_state(n, copy.state),
                 from = copy.keeps ? slot : kept, to = copy.keeps ? kept : slot,
                 first = (size_t)blockIdx.x * COPY_THREADS + threadIdx.x,
                 step = (size_t)gridDim.x * COPY_THREADS;
    if (n.kind == DELTA_CONVOLUTION) {
        copy_rows(n, n.states, copy);
        return;
    }
    for (size_t i = first; has_state && i < state_floats(n); i += step)
        n.states[to * state_floats(n) + i] = n.states[from * state_floats(n) + i];
    copy_rows(n, n.inputs, copy);
}

/* For all layers of a model, which are alike. */
bool alloc_scratch(struct cuda_device *d, const struct delta_net *n)
{
    const size_t tokens = (size_t)d->limits.num_tokens;
    if (d->delta_mixed || n->kind == DELTA_CONVOLUTION) return true;
    d->delta_mixed = (float *)cuda_alloc(&d->base, tokens * num_channels(*n) * sizeof(float), "states");
    d->delta_rates = (float2 *)cuda_alloc(&d->base, tokens * n->num_v_heads * sizeof(float2), "states");
    if (n->kind == DELTA_CHANNELS)
        d->delta_decays = (float *)cuda_alloc(&d->base, tokens * k_width(*n) * sizeof(float), "states");
    return d->delta_mixed && d->delta_rates && (d->delta_decays || n->kind != DELTA_CHANNELS);
}

size_t norm_width(const struct delta_net &n)
{
    return (size_t)(n.kind == DELTA_STATE_SPACE ? v_width(n) : n.v_dim);
}

bool alloc_net(struct cuda_device *d, struct delta_net *n, const struct delta_desc *desc)
{
    const bool has_norm = desc->norm.data != NULL;
    const size_t channels = (size_t)num_channels(*n), slots = (size_t)n->num_batch_slots,
                 num_states = slots * 2 + (size_t)d->limits.num_states,
                 num_rows = slots * n->num_ring_rows + (size_t)(d->limits.num_states * n->num_before),
                 num_logged = d->limits.num_draft_tokens > 0 ? slots * n->num_ring_rows : 0;
    auto floats = [d](size_t count) {
        return (float *)cuda_alloc(&d->base, count * sizeof(float), "states");
    };
    n->taps = floats(channels * (size_t)delta_desc_num_taps(desc));
    n->states = floats(n->kind == DELTA_CONVOLUTION ? num_rows * channels : num_states * state_floats(*n));
    if (n->kind == DELTA_CONVOLUTION) return n->taps && n->states;
    n->decay = floats((size_t)n->num_v_heads);
    n->dt_bias = floats((size_t)delta_desc_num_decays(desc));
    if (has_norm) n->norm = floats(norm_width(*n));
    if (n->kind == DELTA_STATE_SPACE) {
        n->bias = floats(channels);
        n->skip = floats((size_t)n->num_v_heads);
        if (!n->bias || !n->skip) return false;
    }
    n->inputs = (__nv_bfloat16 *)cuda_alloc(&d->base, num_rows * channels * 2, "states");
    if (num_logged > 0) {
        n->log_rates = (float2 *)floats(num_logged * (size_t)n->num_v_heads * 2);
        if (n->kind == DELTA_CHANNELS) n->log_decays = floats(num_logged * (size_t)k_width(*n));
        if (!n->log_rates || (n->kind == DELTA_CHANNELS && !n->log_decays)) return false;
    }
    return n->taps && n->decay && n->dt_bias && (n->norm || !has_norm) && n->states && n->inputs;
}

int check_desc(const struct delta_desc *desc, struct error *err)
{
    const int32_t k_dim_max = desc->kind == DELTA_CHANNELS ? DELTA_K_DIM_MAX / 2 : DELTA_K_DIM_MAX;
    if (desc->kind == DELTA_SELECTIVE)
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device has no states of Mamba-1, whose decays are each channel's own");
    if (desc->k_dim > k_dim_max || desc->k_dim % 4 != 0 ||
        (desc->kind != DELTA_CONVOLUTION && desc->v_dim % 4 != 0))
        return error_set(err, STATUS_UNSUPPORTED,
                         "the CUDA device has states of at most %d rows, and of rows and columns that four "
                         "divides, not %d x %d",
                         k_dim_max, desc->k_dim, desc->v_dim);
    return delta_desc_check(desc, err);
}

int upload_vector(struct cuda_device *d, float *to, const struct weight_view *v, size_t count, float *scratch)
{
    weight_view_vector_to_f32(v, scratch);
    return cuda_upload(&d->base, to, scratch, count * sizeof(float));
}

/* scratch: room for the largest of the layer's weights, on the host. */
int upload_weights(struct cuda_device *d, struct delta_net *n, const struct delta_desc *desc, float *scratch)
{
    const size_t channels = (size_t)num_channels(*n), heads = (size_t)n->num_v_heads;
    delta_desc_read_taps(desc, scratch);
    int status =
        cuda_upload(&d->base, n->taps, scratch, channels * (size_t)delta_desc_num_taps(desc) * sizeof(float));
    if (status || n->kind == DELTA_CONVOLUTION) return status;
    delta_desc_read_decay(desc, scratch);
    status = cuda_upload(&d->base, n->decay, scratch, heads * sizeof(float));
    if (!status)
        status = upload_vector(d, n->dt_bias, &desc->dt_bias, (size_t)delta_desc_num_decays(desc), scratch);
    if (!status && n->norm) status = upload_vector(d, n->norm, &desc->norm, norm_width(*n), scratch);
    if (status || n->kind != DELTA_STATE_SPACE) return status;
    status = upload_vector(d, n->bias, &desc->convolution_bias, channels, scratch);
    return status ? status : upload_vector(d, n->skip, &desc->skip, heads, scratch);
}

} // namespace

int cuda_delta_net_create(struct device *device, const struct delta_desc *desc, struct delta_net **out,
                          struct error *err)
{
    struct cuda_device *d = cuda_of(device);
    int status = check_desc(desc, err);
    if (status) return status;
    struct delta_net *n = new struct delta_net();
    d->delta_nets.push_back(n);
    n->num_batch_slots = d->limits.num_batch_slots;
    n->num_k_heads = desc->num_k_heads;
    n->num_v_heads = desc->num_v_heads;
    n->k_dim = desc->k_dim;
    n->v_dim = desc->v_dim;
    n->by_k_head = desc->by_k_head;
    n->rates_by_k_head = desc->rates_by_k_head;
    n->tiled = desc->tiled;
    n->z_is_apart = desc->z_is_apart;
    n->gate_is_sigmoid = desc->gate_is_sigmoid;
    n->beta_scale = desc->beta_scale > 0 ? desc->beta_scale : 1;
    n->decay_floor = desc->decay_floor;
    n->kind = desc->kind;
    n->norm_eps = desc->norm_eps;
    n->step_scale = desc->step_scale > 0 ? desc->step_scale : 1;
    const int32_t run_max = d->limits.num_draft_tokens + 1; /* of tokens that may not count */
    n->num_before = delta_desc_num_taps(desc) - 1;
    n->num_ring_rows = n->num_before + 2 * run_max;
    n->num_left = std::max(n->num_before + 1, run_max);
    std::vector<float> scratch((size_t)num_channels(*n) * std::max((int)DELTA_TAPS, (int)SHORT_TAPS_MAX));
    if (!alloc_net(d, n, desc) || !alloc_scratch(d, n))
        return error_set(err, STATUS_NO_MEMORY,
                         "no memory for the states of %d sequences: lower --max-num-seqs",
                         d->limits.num_batch_slots);
    if (upload_weights(d, n, desc, scratch.data()))
        return error_set(err, STATUS_DEVICE, "a layer's convolution did not reach the device");
    *out = n;
    return STATUS_OK;
}

void cuda_delta_nets_forget(struct cuda_device *d)
{
    for (struct delta_net *n : d->delta_nets) delete n;
    d->delta_nets.clear();
}

namespace
{

/* Prompts, then what decodes, where that has drafts. */
void run_apart(struct cuda_device *d, struct delta_args a, const struct batch *b)
{
    const int32_t num_tokens = a.num_tokens, num_seqs = a.num_seqs;
    a.num_tokens = b->num_prefill_tokens;
    a.num_seqs = b->num_prefill_seqs;
    cuda_delta_tokens(d, &a);
    a.runs += a.num_seqs;
    a.first_token = a.num_tokens;
    a.num_tokens = num_tokens - a.num_tokens;
    a.num_seqs = num_seqs - a.num_seqs;
    cuda_delta_by_token(d, &a);
}

} // namespace

bool cuda_delta_takes_drafts(struct device *device, int32_t k_dim, int32_t v_dim)
{
    return k_dim == 0 || cuda_delta_has_by_token(cuda_of(device), k_dim, v_dim); /* 0: a convolution's */
}

void cuda_delta(struct device *device, const struct batch *b, void *out, const struct delta_inputs *in,
                struct delta_net *n)
{
    struct cuda_device *d = cuda_of(device);
    struct delta_args a = {};
    a.n = *n;
    a.projected = (const __nv_bfloat16 *)in->projected;
    a.z = (const __nv_bfloat16 *)in->z;
    a.rates = (const __nv_bfloat16 *)in->rates;
    a.inputs_of_decays = (const __nv_bfloat16 *)in->decays;
    a.out = (__nv_bfloat16 *)out;
    a.mixed = d->delta_mixed;
    a.decay_beta = d->delta_rates;
    a.decays = d->delta_decays;
    a.runs = b->state_runs;
    a.num_tokens = b->num_tokens;
    a.num_seqs = b->num_seqs;
    if (n->kind == DELTA_CONVOLUTION)
        cuda_short_convolution(d, &a);
    else if (b->num_tokens == b->num_seqs && cuda_delta_has_by_token(d, n->k_dim, n->v_dim))
        cuda_delta_by_token(d, &a);
    else if (b->has_drafts)
        run_apart(d, a, b);
    else
        cuda_delta_tokens(d, &a);
}

namespace
{

/* The state behind tokens of the log goes to its place right away; false: it is there already. */
bool keep_logged(struct cuda_device *d, struct delta_net *n, const struct state_copy *copy)
{
    const struct slot_state *slot = &d->slot_states[(size_t)copy->batch_slot];
    if (!copy->keeps || !slot->had_draft || copy->position == slot->position || n->kind == DELTA_CONVOLUTION)
        return false;
    struct delta_args a = {};
    a.n = *n;
    a.alone = {0, 0, copy->batch_slot, copy->position, slot->position, false};
    a.alone_to = (int32_t)kept_state(*n, copy->state);
    a.num_seqs = 1;
    cuda_delta_by_token(d, &a);
    return true;
}

} // namespace

int cuda_states_copy(struct device *device, struct delta_net *n, const struct state_copy *copies,
                     int num_copies)
{
    struct cuda_device *d = cuda_enter(device);
    const size_t most = std::max(state_floats(*n), (size_t)n->num_before * num_channels(*n));
    const unsigned ctas = (unsigned)std::min(div_up((int64_t)most, COPY_THREADS), (int64_t)2 * d->num_sms);
    bool ok = true;
    for (int i = 0; i < num_copies && ok; i++) {
        const bool has_state = !keep_logged(d, n, &copies[i]);
        ok = launch_after_all(d, copy_kernel, dim3(ctas), dim3(COPY_THREADS), *n, copies[i], has_state);
        if (!copies[i].keeps) d->slot_states[(size_t)copies[i].batch_slot].is_loaded = true;
    }
    return ok ? STATUS_OK : STATUS_DEVICE;
}
