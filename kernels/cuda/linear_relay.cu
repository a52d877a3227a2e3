/* linear_relay.cu - products of few rows (M <= 64) with weights of four bits on sm_90a, where there are few tiles of W: one for an SM,
 * whose chain of products along K is what takes the time.
 *
 * The groups of a CTA's warps have all of its rows and take turns along K. While one multiplies, the other unpacks the columns of its
 * next turn into registers; then the sums go from warp to warp through shared memory, and the products go on in the order of K. So
 * the bits are those of linear_packed.cu, where one group does both one after another. Of one row both groups can make it, as there. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_packed.cuh"
#include "kernels/cuda/linear_packed_tile.cuh"
#include "kernels/cuda/tensor_map.cuh"

namespace
{

/* A turn is a stage, or two: of eight rows of W a warp, an operand's sixteen are those of two stages, which are multiplied one after
 * another with the x of each; what the other's rows add up to is nobody's. So a turn has twice the columns in as many registers. */
template <int SCALES, int HALVES, int COLS>
struct relay_traits : packed_tile_traits<SCALES, HALVES, HALVES, COLS, COLS <= 8 ? 2 : 1> {
    static constexpr int TURN_STAGES = HALVES == 1 ? 2 : 1;
    static constexpr int GROUPS = 2, GROUP_THREADS = GROUP_WARPS * 32;
    static constexpr int THREADS = GROUPS * GROUP_THREADS + 32;
    /* Of an SM: the next kernel fills its ring beside this one. */
    static constexpr int CTAS = 2;
    static constexpr int WARPS = GROUPS * GROUP_WARPS;
    static constexpr int SUMS =
        (is_row(COLS) ? 8 : COLS) / 4 * HALVES; /* of a lane: those of rows that there are */
    static constexpr int HANDED = SUMS / 2 * GROUP_THREADS;
};

/* Registers hold whatever they held. */
template <int N> __device__ __forceinline__ void any_values(uint32_t (&registers)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "=r"(registers[i]));
}

/* A group of warps. */
template <int FORMAT, typename T> struct relay_consumer : packed_consumer<FORMAT, T> {
    using base = packed_consumer<FORMAT, T>;
    static constexpr int STEPS = T::STAGE_BLOCKS * PACKED_COLUMNS / 16;
    float2 *handed; /* shared, [SUMS / 2][warp's lanes]: of the same warp of all groups */

    __device__ __forceinline__ void take_sums(void)
    {
#pragma unroll
        for (int i = 0; i < T::SUMS / 2; i++) {
            float2 two = handed[i * T::GROUP_THREADS];
            int at = T::HALVES == 2 ? 2 * i : 4 * i;
            this->d[at] = two.x;
            this->d[at + 1] = two.y;
        }
    }

    __device__ __forceinline__ void hand_sums(void) const
    {
#pragma unroll
        for (int i = 0; i < T::SUMS / 2; i++) {
            int at = T::HALVES == 2 ? 2 * i : 4 * i;
            handed[i * T::GROUP_THREADS] = make_float2(this->d[at], this->d[at + 1]);
        }
    }

    /* at: of HALVES 1 the eight rows of the operand that the stage's become. */
    __device__ __forceinline__ void unpack_stage(uint32_t (&operand)[4 * STEPS], int32_t stage, int at) const
    {
        typename base::codes c[T::STAGE_BLOCKS];
#pragma unroll
        for (int block = 0; block < T::STAGE_BLOCKS; block++) this->load(c[block], stage, block);
#pragma unroll
        for (int i = 0; i < STEPS / BOX_STEPS; i++)
#pragma unroll
            for (int h = 0; h < T::HALVES; h++)
                this->unpack_strip(operand + i * 4 * BOX_STEPS, at + h, c[i / BLOCK_BOXES], h,
                                   i % BLOCK_BOXES);
    }

    /* From eight rows of the operand to the other eight. */
    __device__ __forceinline__ void move_sums(int from, int to)
    {
#pragma unroll
        for (int i = 0; i < T::SUMS / 2; i++) {
            this->d[4 * i + to] = this->d[4 * i + from];
            this->d[4 * i + to + 1] = this->d[4 * i + from + 1];
        }
    }

    __device__ __forceinline__ void multiply_stage(const uint32_t (&operand)[4 * STEPS], uint32_t x, int add)
    {
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STEPS; i++)
            wgmma_registers<0>(this->d, operand + 4 * i,
                               base::x_part(x + i / BOX_STEPS * this->x_box() + i % BOX_STEPS * 2),
                               add || i > 0);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(this->d);
    }

    /* Gate and up are in neighbouring warps: that of gate gets the sums of the other, as of its own other eight rows. By the group that
     * has the sums. */
    __device__ __forceinline__ void join_gate_and_up(bool is_gate)
    {
        if (!is_gate) hand_sums();
        named_barrier_sync(1 + T::GROUPS, T::GROUP_THREADS);
        if (!is_gate) return;
#pragma unroll
        for (int i = 0; i < T::SUMS / 2; i++) {
            float2 two = handed[i * T::GROUP_THREADS + 32];
            this->d[4 * i + 2] = two.x;
            this->d[4 * i + 3] = two.y;
        }
    }

    /* The group's turns. True: it had the last one, and has the sums. */
    __device__ __forceinline__ bool run(int32_t group)
    {
        constexpr int TURN = T::TURN_STAGES;
        const packed_args &a = this->a;
        uint32_t operand[4 * STEPS];
        if (T::HALVES == 1) any_values(operand);
        pipeline_state p = {group * TURN, 0};
        for (int32_t k = group * TURN; k < a.num_k; k += T::GROUPS * TURN) {
            const bool has_second = TURN == 2 && k + 1 < a.num_k;
            pipeline_state second = p;
            if (TURN == 2) second.advance(a.num_stages);
            barrier_wait(this->r.full + 8 * p.stage, p.parity);
            unpack_stage(operand, p.stage, 0);
            if (has_second) {
                barrier_wait(this->r.full + 8 * second.stage, second.parity);
                unpack_stage(operand, second.stage, 1);
            }
            if (k > 0) {
                named_barrier_sync(1 + group, 2 * T::GROUP_THREADS);
                take_sums();
            }
            multiply_stage(operand, this->x_of(k, p.stage), k > 0);
            if (has_second) {
                move_sums(0, 2);
                multiply_stage(operand, this->x_of(k + 1, second.stage), 1);
                move_sums(2, 0);
            }
            if (k + TURN >= a.num_k) {
                this->end_sums();
                return true;
            }
            hand_sums();
            named_barrier_arrive(1 + (group + 1) % T::GROUPS, 2 * T::GROUP_THREADS);
            if (threadIdx.x % 32 == 0) {
                barrier_arrive(this->r.empty + 8 * p.stage);
                if (TURN == 2) barrier_arrive(this->r.empty + 8 * second.stage);
            }
            for (int i = 0; i < T::GROUPS * TURN; i++) p.advance(a.num_stages);
        }
        return false;
    }
};

/* What a CTA does. row, or x_map. */
template <int FORMAT, int SCALES, int HALVES, int COLS>
__device__ __forceinline__ void multiply_tile(const linear_packed_args &a, const CUtensorMap *x_map,
                                              const row_args *row)
{
    using T = relay_traits<SCALES, HALVES, COLS>;
    extern __shared__ unsigned char shared[];
    __shared__ uint64_t barriers[2 * STAGES_MAX];
    __shared__ int32_t is_over;
    __shared__ float2 handed[T::HANDED];
    const packed_ring r = ring_of_tile<T>(a, shared, barriers, &is_over, x_map, GROUP_WARPS);
    int32_t warp = warp_uniform(threadIdx.x / 32), group = warp / GROUP_WARPS;
    if (group == T::GROUPS) {
        if (elect_lane()) fill_packed_ring(packed_producer<T>{a, r, x_map});
        return;
    }
    wait_or_make_row<T, T::WARPS>(a, r, shared, row);
    int32_t strip = warp % GROUP_WARPS * HALVES; /* of the tile */
    relay_consumer<FORMAT, T> c{{a, r, packed_strip_offset<T>(strip), {}},
                                handed + threadIdx.x % T::GROUP_THREADS};
    if (!c.run(group)) return;
    int32_t n = (int32_t)blockIdx.x * T::ROWS + strip * PACKED_ROWS;
    if (!a.silu_mul) {
        store_columns<T::N, EPILOGUE_BF16, HALVES>(a, c.d, 0, n);
        return;
    }
    bool is_gate = HALVES == 2 || strip % 2 == 0;
    if (HALVES == 1) c.join_gate_and_up(is_gate);
    if (is_gate) store_columns<T::N, EPILOGUE_SILU_MUL, 2>(a, c.d, 0, n);
}

template <int FORMAT, int SCALES, int HALVES, int COLS>
__global__ void __launch_bounds__((relay_traits<SCALES, HALVES, COLS>::THREADS),
                                  (relay_traits<SCALES, HALVES, COLS>::CTAS))
    relay_kernel(linear_packed_args a, const __grid_constant__ CUtensorMap x_map)
{
    multiply_tile<FORMAT, SCALES, HALVES, COLS>(a, &x_map, NULL);
}

template <int FORMAT, int SCALES, int HALVES, int COLS>
__global__ void __launch_bounds__((relay_traits<SCALES, HALVES, COLS>::THREADS),
                                  (relay_traits<SCALES, HALVES, COLS>::CTAS))
    relay_row_kernel(linear_packed_args a, row_args row)
{
    multiply_tile<FORMAT, SCALES, HALVES, COLS>(a, NULL, &row);
}

/* ---- host ---- */

template <int FORMAT, int SCALES, int HALVES, int COLS>
bool launch(struct cuda_device *d, linear_packed_args a, const void *x, const row_args *row,
            const struct linear *w)
{
    using T = relay_traits<SCALES, HALVES, COLS>;
    int32_t num_tiles = (w->n + T::ROWS - 1) / T::ROWS;
    size_t shared_bytes =
        fit_packed_ring<T>(&a, w, SHARED_BYTES / T::CTAS - 2048 - (int32_t)sizeof(float2) * T::HANDED);
    if (a.num_stages < std::min((int32_t)T::GROUPS * T::TURN_STAGES, a.num_k)) return false;
    a.pause = cuda_pause_ahead(d, T::W_BYTES);
    /* they begin where the kernel before has ended first: two at a time, and half of the SMs would have none */
    if (num_tiles <= d->num_sms) shared_bytes = std::max(shared_bytes, (size_t)ALONE_BYTES);
    const dim3 grid((unsigned)num_tiles), block(T::THREADS);
    if constexpr (T::IS_ROW) {
        return launch_dependent(d, relay_row_kernel<FORMAT, SCALES, HALVES, COLS>, grid, block, shared_bytes,
                                a, *row);
    } else {
        const CUtensorMap *x_map = tensor_map_of_matrix(d, x, a.m, w->k, a.x_there);
        return x_map && launch_dependent(d, relay_kernel<FORMAT, SCALES, HALVES, COLS>, grid, block,
                                         shared_bytes, a, *x_map);
    }
}

template <int FORMAT, int SCALES, int HALVES>
bool launch_rows(struct cuda_device *d, const linear_packed_args &a, const void *x, const row_args *row,
                 const struct linear *w)
{
    if (row)
        return w->k <= row_norm_max(1) ? launch<FORMAT, SCALES, HALVES, 1>(d, a, NULL, row, w)
                                       : launch<FORMAT, SCALES, HALVES, 2>(d, a, NULL, row, w);
    if (a.m <= 8) return launch<FORMAT, SCALES, HALVES, 8>(d, a, x, NULL, w);
    if (a.m <= 16) return launch<FORMAT, SCALES, HALVES, 16>(d, a, x, NULL, w);
    if (a.m <= 32) return launch<FORMAT, SCALES, HALVES, 32>(d, a, x, NULL, w);
    if (a.m <= 64) return launch<FORMAT, SCALES, HALVES, 64>(d, a, x, NULL, w);
    return false;
}

template <int FORMAT, int SCALES>
bool launch_tiles(struct cuda_device *d, int32_t tile_rows, const linear_packed_args &a, const void *x,
                  const row_args *row, const struct linear *w)
{
    if (tile_rows == 64) return launch_rows<FORMAT, SCALES, 2>(d, a, x, row, w);
    return launch_rows<FORMAT, SCALES, 1>(d, a, x, row, w);
}

} // namespace

bool cuda_linear_relay(struct cuda_device *d, int32_t tile_rows, int32_t rows, void *out, const void *x,
                       const struct linear *w, bool silu_mul, const struct row_args *row)
{
    const linear_packed_args a = packed_args_of(rows, out, w, silu_mul);
    return with_packed_form(w, [&](auto format, auto scales) {
        return launch_tiles<format.value, scales.value>(d, tile_rows, a, x, row, w);
    });
}
