/* delta_update.cu - the states of a step that has prompts, between convolution and norm: see delta_prefill.cu and delta_net.cuh.
 *
 * A CTA has some columns of a head of a run, of which each thread has up to five, and the tokens go through them: v of a token becomes what
 * the state answers. q, k and v come to a ring in shared memory, a warp a token at a time, three tiles ahead. The state goes through a
 * thread's hands once for each token: what it holds at the next token's key is summed where it is made. Then what the next convolution
 * begins with. */
#include "kernels/cuda/delta_net.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum {
    TILE = 4,  /* tokens that are asked for together */
    TILES = 4, /* in shared memory */
    WARPS = 4,
    RULE_WARPS = 3, /* that an SM should have, of all CTAs; a state space's wait more */
    SPACE_WARPS = 6,
    STRIP = 4 * WARP,                          /* values that a warp copies at a time */
    MANY_ROWS = DELTA_K_DIM_MAX / DELTA_LANES, /* of a column in a thread */
    FEW_ROWS = MANY_ROWS / 2
};

template <int COLUMNS> __device__ void load_columns(const float *from, float (&to)[COLUMNS])
{
    if (COLUMNS == 4)
        *(float4 *)to = *(const float4 *)from;
    else
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) to[c] = from[c];
}

template <int COLUMNS> __device__ void store_columns(float *to, const float (&from)[COLUMNS])
{
    if (COLUMNS == 4)
        *(float4 *)to = *(const float4 *)from;
    else
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) to[c] = from[c];
}

__device__ float4 load4(const float *from)
{
    return *(const float4 *)from;
}

/* Of the threads of a column, as sum_over_column, of all columns at once. */
template <int COLUMNS> __device__ void sum_over_threads(float (&x)[COLUMNS])
{
#pragma unroll
    for (int distance = WARP_GROUPS; distance < WARP; distance *= 2)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) x[c] += __shfl_xor_sync(~0u, x[c], distance);
}

/* ---- tokens ---- */

/* What a token brings, aligned to 16 bytes. Of a CTA's columns the first may be any. */
template <int ROWS, int COLUMNS, delta_kind KIND> struct token_values {
    static constexpr int K_DIM = ROWS * DELTA_LANES, CTA_COLUMNS = WARPS * WARP_GROUPS * COLUMNS,
                         NUM_DECAYS = KIND == DELTA_CHANNELS ? K_DIM : DELTA_ROWS;
    float q[K_DIM], k[K_DIM], v[CTA_COLUMNS], decays[NUM_DECAYS];

    /* Beyond k_dim nothing comes. By one thread. */
    __device__ void clear(int32_t row)
    {
        q[row] = k[row] = 0;
        if (KIND == DELTA_CHANNELS) decays[row % NUM_DECAYS] = 0;
    }
};

/* Where a head's values are in a token's rows. */
struct token_places {
    int32_t q, k, v, decays, num_columns;
};

__device__ token_places places_of(const delta_net &n, int32_t head, int32_t cta_columns)
{
    const int32_t k_head = k_head_of(n, head) * n.k_dim, first = blockIdx.x * cta_columns;
    return token_places{before_q(n) + k_head, before_k(n) + k_head, before_v(n) + head * n.v_dim + first,
                        head * n.k_dim, min(cta_columns, n.v_dim - first)};
}

/* A warp's; a lane has four values that follow each other. */
template <class TOKEN, delta_kind KIND>
__device__ void copy_token(const delta_args &a, const token_places &places, int32_t token, TOKEN *to)
{
    const float *from = a.mixed + (size_t)token * num_channels(a.n);
    const int32_t mine = threadIdx.x % WARP * 4;
#pragma unroll
    for (int32_t strip = 0; strip < TOKEN::K_DIM; strip += STRIP) {
        const int32_t i = strip + mine;
        if (i >= a.n.k_dim) break;
        copy_async(shared_address(to->q + i), from + places.q + i, true);
        copy_async(shared_address(to->k + i), from + places.k + i, true);
        if (KIND == DELTA_CHANNELS)
            copy_async(shared_address(to->decays + i),
                       a.decays + (size_t)token * k_width(a.n) + places.decays + i, true);
    }
#pragma unroll
    for (int32_t strip = 0; strip < TOKEN::CTA_COLUMNS; strip += STRIP) {
        const int32_t i = strip + mine;
        if (i < places.num_columns) copy_async(shared_address(to->v + i), from + places.v + i, true);
    }
}

/* ---- states ---- */

/* A thread's part of a state. Of rows beyond k_dim nothing is read: they are zeros and stay so. */
template <int ROWS, int COLUMNS, delta_kind KIND> struct state_part {
    typedef token_values<ROWS, COLUMNS, KIND> token;
    alignas(16) float x[ROWS][COLUMNS];

    static __device__ int32_t first_row(int32_t i) /* of four */
    {
        return DELTA_ROWS * (DELTA_LANES * i + (int32_t)threadIdx.x % WARP / WARP_GROUPS);
    }

    __device__ void load(const float *from, int32_t k_dim, int32_t v_dim, bool is_mine)
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int32_t row = first_row(r / DELTA_ROWS) + r % DELTA_ROWS;
            if (is_mine && row < k_dim)
                load_columns<COLUMNS>(from + (size_t)row * v_dim, x[r]);
            else
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) x[r][c] = 0;
        }
    }

    __device__ void store(float *to, int32_t k_dim, int32_t v_dim, bool is_mine) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const int32_t row = first_row(r / DELTA_ROWS) + r % DELTA_ROWS;
            if (is_mine && row < k_dim) store_columns<COLUMNS>(to + (size_t)row * v_dim, x[r]);
        }
    }

    /* What a token's key asks each row for. */
    static __device__ float4 asked_by(const token &t, int i)
    {
        const float4 keys = load4(t.k + first_row(i));
        return KIND == DELTA_CHANNELS ? multiply4(keys, load4(t.decays + first_row(i))) : keys;
    }

    /* Each column's part of this thread: what the state holds at a token's key. */
    __device__ void remember(const token &t, float (&memory)[COLUMNS]) const
    {
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const float key = part_of(asked_by(t, r / DELTA_ROWS), r % DELTA_ROWS);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) memory[c] = fmaf(x[r][c], key, memory[c]);
        }
    }

    /* A token changes the state, which answers it, and is remembered at the key of the next. */
    __device__ void take_in(const token &t, const token &next, const float (&change)[COLUMNS], float decay,
                            float (&answer)[COLUMNS], float (&memory)[COLUMNS])
    {
#pragma unroll
        for (int i = 0; i < ROWS / DELTA_ROWS; i++) {
            const float4 keys = load4(t.k + first_row(i)), queries = load4(t.q + first_row(i)),
                         decays = KIND == DELTA_CHANNELS ? load4(t.decays + first_row(i))
                                                         : make_float4(decay, decay, decay, decay),
                         asked = corrects(KIND) ? asked_by(next, i) : make_float4(0, 0, 0, 0);
#pragma unroll
            for (int e = 0; e < DELTA_ROWS; e++)
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    float &now = x[DELTA_ROWS * i + e][c];
                    now = fmaf(change[c], part_of(keys, e), now * part_of(decays, e));
                    answer[c] = fmaf(now, part_of(queries, e), answer[c]);
                    if (corrects(KIND)) memory[c] = fmaf(now, part_of(asked, e), memory[c]);
                }
        }
    }
};

/* ---- what the next convolutions begin with ---- */

__device__ void leave_inputs(const delta_args &a, const device_run &s, int32_t channel)
{
    for (int32_t token = max(s.begin, s.end - a.n.num_left); token < s.end; token++)
        leave_input(a, s, s.position + token - s.begin, channel, projected_of(a, token, channel));
}

/* Those of a CTA: its columns of v and, where it is the first of a head that owns them, q and k. */
__device__ void leave_all_inputs(const delta_args &a, const device_run &s, int32_t head,
                                 const token_places &places)
{
    for (int32_t c = threadIdx.x; c < places.num_columns; c += blockDim.x) leave_inputs(a, s, places.v + c);
    if (blockIdx.x > 0 || !owns_k_head(a.n, head)) return;
    for (int32_t i = threadIdx.x; i < a.n.k_dim; i += blockDim.x) {
        leave_inputs(a, s, places.q + i);
        leave_inputs(a, s, places.k + i);
    }
}

/* ROWS: of a column in a thread. */
template <int ROWS, int COLUMNS, delta_kind KIND>
__global__ void __launch_bounds__(WARPS *WARP, 2) update_kernel(const __grid_constant__ delta_args a)
{
    typedef token_values<ROWS, COLUMNS, KIND> token_type;
    __shared__ __align__(16) token_type ring[TILES][TILE];
    __shared__ float2 rates[TILES][TILE];
    const delta_net &n = a.n;
    const int32_t head = blockIdx.y, k_dim = n.k_dim, v_dim = n.v_dim, warp = threadIdx.x / WARP,
                  num_warps = blockDim.x / WARP,
                  mine = (warp * WARP_GROUPS + threadIdx.x % WARP_GROUPS) * COLUMNS,
                  column = blockIdx.x * token_type::CTA_COLUMNS + mine;
    const bool is_mine = column < v_dim, answers = is_mine && threadIdx.x % WARP < WARP_GROUPS;
    dependents_launch();
    const device_run s = a.runs[blockIdx.z];
    const int32_t last = s.end - 1;
    const token_places places = places_of(n, head, token_type::CTA_COLUMNS);
    auto state_behind = [&](int32_t token) {
        const size_t which = which_state(s.batch_slot, s.position + token - s.begin);
        return head_state(n, which, head) + column;
    };
    state_part<ROWS, COLUMNS, KIND> state;
    if (s.begin < s.end) state.load(state_behind(s.begin), k_dim, v_dim, is_mine && s.position > 0);
    for (int32_t row = k_dim + threadIdx.x; row < token_type::K_DIM; row += blockDim.x)
        for (int32_t t = 0; t < TILES * TILE; t++) ring[t / TILE][t % TILE].clear(row);
    dependency_wait();
    if (s.begin == s.end) return;
    const float skip = KIND == DELTA_STATE_SPACE ? n.skip[head] : 0;
    const int32_t last_tile = (last - s.begin + TILE - 1) / TILE; /* the last token alone */
    auto first_of = [&](int32_t tile) { return min(s.begin + tile * TILE, last); };
    auto end_of = [&](int32_t tile) {
        return tile < last_tile ? first_of(tile + 1) : tile == last_tile ? s.end : last;
    };
    float2 asked = {}; /* rates of a thread's token of the tile that was asked for last */
    auto copy_tile = [&](int32_t tile) {
        token_type *values = ring[tile % TILES];
        const int32_t first = first_of(tile);
        if (threadIdx.x < TILE) {
            rates[(tile + TILES - 1) % TILES][threadIdx.x] = asked;
            asked = a.decay_beta[(size_t)min(first + (int32_t)threadIdx.x, last) * n.num_v_heads + head];
        }
        for (int32_t i = warp; first + i < end_of(tile); i += num_warps)
            copy_token<token_type, KIND>(a, places, first + i, values + i);
        copy_commit();
    };
#pragma unroll
    for (int tile = 0; tile < TILES - 1; tile++) copy_tile(tile);
    float memory[COLUMNS] = {};
    if (corrects(KIND)) {
        copy_wait<TILES - 2>();
        __syncthreads();
        state.remember(ring[0][0], memory);
        sum_over_threads(memory);
    }
    for (int32_t tile = 0; tile <= last_tile; tile++) {
        copy_wait<TILES - 3>(); /* this tile and the next are there */
        __syncthreads();        /* and all are done with the one before */
        copy_tile(tile + TILES - 1);
        if (tile == last_tile && tile > 0) state.store(state_behind(last), k_dim, v_dim, is_mine);
        const token_type *t = ring[tile % TILES];
        const float2 *now = rates[tile % TILES];
        const int32_t end = end_of(tile);
        for (int32_t token = first_of(tile); token < end; token++, t++, now++) {
            float value[COLUMNS], change[COLUMNS], answer[COLUMNS] = {};
            load_columns<COLUMNS>(t->v + mine, value);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                change[c] = corrects(KIND) ? change_of(value[c], memory[c], *now) : value[c] * now->y;
                memory[c] = 0;
            }
            state.take_in(*t, token + 1 < end ? t[1] : *ring[(tile + 1) % TILES], change, now->x, answer,
                          memory);
            if (corrects(KIND)) sum_over_threads(memory);
            sum_over_threads(answer);
#pragma unroll
            for (int c = 0; c < COLUMNS; c++)
                if (KIND == DELTA_STATE_SPACE) answer[c] = fmaf(value[c], skip, answer[c]);
            if (answers)
                store_columns<COLUMNS>(a.mixed + (size_t)token * num_channels(n) + places.v + mine, answer);
        }
    }
    state.store(state_behind(s.end), k_dim, v_dim, is_mine);
    leave_all_inputs(a, s, head, places);
}

/* ---- host ---- */

/* Shared memory for nothing but this: no SM can have more of the CTAs than its share. Launched ahead of their dependency they would come to
 * be two on an SM where another one, which the kernel before still fills, would have none. */
size_t spreading_bytes(const struct cuda_device *d, int64_t num_ctas, size_t static_bytes)
{
    const size_t sm_bytes = (size_t)d->cta_shared_bytes + CTA_SHARED_RESERVED,
                 for_one_more = sm_bytes / (size_t)(div_up(num_ctas, d->num_sms) + 1) + 1,
                 has = static_bytes + CTA_SHARED_RESERVED;
    return for_one_more > has ? for_one_more - has : 0;
}

template <int ROWS, int COLUMNS, delta_kind KIND>
void launch_kind(struct cuda_device *d, const struct delta_args &a)
{
    typedef token_values<ROWS, COLUMNS, KIND> token;
    const dim3 grid((unsigned)div_up(a.n.v_dim, token::CTA_COLUMNS), (unsigned)a.n.num_v_heads,
                    (unsigned)a.num_seqs);
    const int64_t warps = div_up(std::min(a.n.v_dim, token::CTA_COLUMNS), WARP_GROUPS * COLUMNS);
    const size_t spreading = spreading_bytes(d, (int64_t)grid.x * grid.y * grid.z,
                                             (sizeof(token) + sizeof(float2)) * TILES * TILE);
    launch_dependent(d, update_kernel<ROWS, COLUMNS, KIND>, grid, dim3((unsigned)(warps * WARP)), spreading,
                     a);
}

template <int ROWS, int COLUMNS> void launch_update(struct cuda_device *d, const struct delta_args &a)
{
    constexpr int RULE_COLUMNS = COLUMNS <= 4 ? COLUMNS : 1; /* of the rule there are no more */
    if (a.n.kind == DELTA_CHANNELS)
        launch_kind<FEW_ROWS, RULE_COLUMNS, DELTA_CHANNELS>(d, a);
    else if (a.n.kind == DELTA_RULE)
        launch_kind<ROWS, RULE_COLUMNS, DELTA_RULE>(d, a);
    else
        launch_kind<ROWS, COLUMNS, DELTA_STATE_SPACE>(d, a);
}

} // namespace

/* More columns in a thread read shared memory less often; fewer give more warps: as many columns as leave an SM so many. Five where they
 * give whole warps, and a state space leaves registers for them. */
void cuda_delta_update(struct cuda_device *d, const struct delta_args *a)
{
    const delta_net &n = a->n;
    const bool is_space = n.kind == DELTA_STATE_SPACE,
               takes_five = is_space && n.v_dim % (5 * WARP_GROUPS) == 0;
    auto fills = [&](int32_t columns) {
        const int64_t warps = (int64_t)n.num_v_heads * a->num_seqs * div_up(n.v_dim, WARP_GROUPS * columns);
        return warps >= (is_space ? SPACE_WARPS : RULE_WARPS) * d->num_sms;
    };
    if (n.k_dim > DELTA_K_DIM_MAX / 2)
        fills(2) ? launch_update<MANY_ROWS, 2>(d, *a) : launch_update<MANY_ROWS, 1>(d, *a);
    else if (takes_five && fills(5))
        launch_update<FEW_ROWS, 5>(d, *a);
    else if (!takes_five && fills(4))
        launch_update<FEW_ROWS, 4>(d, *a);
    else
        fills(2) ? launch_update<FEW_ROWS, 2>(d, *a) : launch_update<FEW_ROWS, 1>(d, *a);
}
