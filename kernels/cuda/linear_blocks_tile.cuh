/* linear_blocks_tile.cuh - a CTA's part of a product with a weight as a GGUF file has it, for up to 64 rows of x (linear_blocks.cu,
 * moe_blocks.cu).
 *
 * Warps unpack blocks to bf16 in registers, as operands of mma.sync (gguf_fragments.cuh), and multiply in the order of K. So the bits
 * are those of the same weights unpacked whole (blocks.cu), by whatever product.
 *
 *      W, parts of blocks    strip: 16 rows, of one part, or 8 of gate and 8 of up
 *      x [M][K]              chunk: 256 columns
 *
 * Some warps have the same strip and take turns along K, a chunk each: while one multiplies, others unpack theirs; the sums go from
 * warp to warp through shared memory. Without that a small W would have two warps an SM. The warps of a CTA's strips that
 * have the same chunks, a team, share those of x.
 *
 * Each warp copies its own blocks to its own stages, spans of 16 bytes that cover them. That begins ahead of the dependency. */
#ifndef KERNELS_CUDA_LINEAR_BLOCKS_TILE_CUH
#define KERNELS_CUDA_LINEAR_BLOCKS_TILE_CUH

#include <algorithm>

#include "kernels/cuda/gguf_fragments.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/linear.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace
{

enum {
    STRIP_ROWS = 16,
    HALF_ROWS = 8,
    UNIT = 16,            /* bytes of a copy */
    ROW_BYTES_MAX = 304,  /* of a row of W in a stage: 256 columns of Q8_0 from anywhere on */
    ROW_BYTES_SOME = 192, /* of most types */
    X_ROW_BYTES = CHUNK_COLUMNS * 2,
    WARPS_MAX = 16,
    STAGES_MAX = 4,
    CTA_RESERVED_BYTES = 1 << 10 /* of shared memory, the system's and the barriers' */
};

/* A weight, and how a CTA takes it. */
struct blocks_shape {
    struct block_part parts[LINEAR_PARTS_MAX];
    int32_t chunk_bytes[LINEAR_PARTS_MAX];
    int32_t k, num_chunks, num_strips;
    int32_t strips, teams; /* of a CTA */
    int32_t num_stages;
    /* Of a row of W in a stage: an odd number of units, so that eight rows lie in distinct banks. */
    int32_t row_bytes;
    bool alternate;
};

/* What is multiplied. */
struct blocks_operands {
    const unsigned char *packed;
    const __nv_bfloat16 *x; /* [M][K] */
    int32_t m;
};

/* Of an SM, by their registers, and so of a CTA at most. */
constexpr int32_t warps_max(int32_t columns)
{
    return columns == 64 ? WARPS_MAX / 2 : WARPS_MAX;
}

/* Eight rows of W. */
struct half_strip {
    int32_t part, first; /* of the part's rows, of which there may be fewer than eight left */
    int32_t first_n;     /* where the part's row 0 goes, were all rows one behind another */
};

/* Half 0 or 1 of a strip. */
__device__ __forceinline__ struct half_strip half_of(const blocks_shape &a, int32_t strip, int32_t half)
{
    int32_t part = 0, first_n = 0;
    if (a.alternate) return {half, strip * HALF_ROWS, (strip + half) * HALF_ROWS};
    for (; strip * STRIP_ROWS >= a.parts[part].num_rows; part++) {
        strip -= (a.parts[part].num_rows + STRIP_ROWS - 1) / STRIP_ROWS;
        first_n += a.parts[part].num_rows;
    }
    return {part, strip * STRIP_ROWS + half * HALF_ROWS, first_n};
}

/* Row i of a half, or the part's last one. */
__device__ __forceinline__ const unsigned char *row_of(const blocks_shape &a, const unsigned char *packed,
                                                       const struct half_strip &h, int32_t i)
{
    const struct block_part &p = a.parts[h.part];
    return packed + p.offset + (size_t)min(h.first + i, p.num_rows - 1) * p.row_bytes;
}

/* rows: of a stage, the lane's; begin: where W has the row's first chunk, of which a stage has all from a multiple of 16 bytes on. */
template <int DTYPE, int HALF>
__device__ __forceinline__ void unpack_half_as(uint32_t (&w)[CHUNK_STEPS][4], const unsigned char *rows,
                                               uint32_t begin, int32_t chunk, float *scales)
{
    const uint32_t first = (begin + (uint32_t)(chunk * gguf_chunk_bytes(DTYPE))) % UNIT;
    gguf_fragments<DTYPE, HALF>(w, rows + (gguf_is_aligned(DTYPE) ? 0 : first), scales, threadIdx.x % 4);
}

template <int HALF>
__device__ __forceinline__ void unpack_half(uint32_t (&w)[CHUNK_STEPS][4], int32_t dtype,
                                            const unsigned char *rows, uint32_t begin, int32_t chunk,
                                            float *scales)
{
    switch (dtype) {
#define UNPACK(DTYPE)                                                                                        \
    case DTYPE:                                                                                              \
        return unpack_half_as<DTYPE, HALF>(w, rows, begin, chunk, scales)
        GGUF_TYPES(UNPACK)
#undef UNPACK
    }
}

/* What is multiplied at a time of x, its N side: 16 columns, or 32 of eight rows. */
template <int COLS> struct x_fragments {
    static constexpr int STEPS = COLS == 8 ? 2 : 1;
    uint32_t r[(COLS + 8) / 16][4];

    /* at: of the row that the lane gives addresses of, and its chunk of 16 bytes in step 0 */
    __device__ __forceinline__ void load(uint32_t at, int step)
    {
        at = (at ^ (uint32_t)(step % 4) << 5) + (uint32_t)(step / 4) * 128;
#pragma unroll
        for (int j = 0; j < (COLS + 8) / 16; j++) load_matrix(r[j], at + (uint32_t)(16 * j * X_ROW_BYTES));
    }

    /* Eight rows of x. */
    __device__ __forceinline__ const uint32_t *column(int j, int step) const
    {
        return COLS == 8 ? r[0] + step % 2 * 2 : r[j / 2] + j % 2 * 2;
    }
};

/* Where a CTA's parts of shared memory are. */
struct places {
    unsigned char *x, *w;
    float *scales; /* of the warp */
    float4 *sums;  /* of the strip, and the lane */
};

__device__ __forceinline__ struct places places_of(unsigned char *shared, const blocks_shape &a, int cols,
                                                   int32_t warp)
{
    const int32_t num_warps = a.strips * a.teams, w_bytes = a.num_stages * STRIP_ROWS * a.row_bytes,
                  x_bytes = a.num_stages * cols * X_ROW_BYTES;
    unsigned char *x = shared, *w = x + a.teams * x_bytes, *scales = w + num_warps * w_bytes,
                  *sums = scales + num_warps * SCALES_BYTES;
    return {x + warp / a.strips * x_bytes, w + warp * w_bytes, (float *)(scales + warp * SCALES_BYTES),
            (float4 *)sums + warp % a.strips * (cols / 8 * 32) + threadIdx.x % 32};
}

int32_t shared_bytes_of(const blocks_shape &a, int32_t cols)
{
    return a.teams * a.num_stages * cols * X_ROW_BYTES +
           a.strips * a.teams * (a.num_stages * STRIP_ROWS * a.row_bytes + SCALES_BYTES) +
           a.strips * (cols / 8) * 32 * (int32_t)sizeof(float4);
}

/* Else the compiler computes an address again for each copy that may not take place. */
__device__ __forceinline__ const unsigned char *computed(const unsigned char *p)
{
    asm volatile("" : "+l"(p));
    return p;
}

/* All but so many of the thread's groups of copies. */
__device__ __forceinline__ void copies_wait(int32_t left)
{
    if (left == 0)
        copy_wait<0>();
    else if (left == 1)
        copy_wait<1>();
    else
        copy_wait<2>();
}

/* Before any warp has a turn; by all threads. */
__device__ __forceinline__ void turns_init(uint64_t *turns)
{
    if (threadIdx.x < WARPS_MAX) barrier_init(shared_address(turns + threadIdx.x), 1);
    __syncthreads();
}

template <int COLS> struct strip_warp {
    const blocks_shape &a;
    const blocks_operands &o;
    const places at;
    const int32_t lane, team, strip_of_cta;
    uint64_t *const turns;    /* [teams][strips]: the sums are the team's */
    uint32_t parity;          /* of its next turn */
    const unsigned char *row; /* that the lane copies */
    int32_t row_bytes, chunk_bytes;
    int32_t dtypes[2]; /* of both halves, and where the lane's rows of them begin */
    uint32_t begins[2];
    float sums[COLS / 8][4];

    /* shared: of the CTA; turns: [WARPS_MAX] in it. */
    __device__ __forceinline__ strip_warp(const blocks_shape &shape, const blocks_operands &operands,
                                          unsigned char *shared, uint64_t *turns, int32_t warp)
        : a(shape), o(operands), at(places_of(shared, shape, COLS, warp)), lane((int32_t)threadIdx.x % 32),
          team(warp / shape.strips), strip_of_cta(warp % shape.strips), turns(turns), parity(0)
    {
    }

    /* Every other unit of a row. */
    template <int FIRST, int END>
    static __device__ __forceinline__ void copy_units(uint32_t to, const unsigned char *from, int32_t left)
    {
#pragma unroll
        for (int i = FIRST; i < END; i += 2 * UNIT)
            if (i < left) copy_async(to + (uint32_t)i, from + i, true);
    }

    /* The warp's blocks of a chunk: two lanes have a row. */
    __device__ __forceinline__ void copy_w(int32_t chunk, int32_t stage)
    {
        const int32_t first = chunk * chunk_bytes, num_bytes = min(chunk_bytes, row_bytes - first),
                      before = (int32_t)((uintptr_t)(row + first) % UNIT);
        const unsigned char *from = computed(row + first - before + lane % 2 * UNIT);
        const uint32_t to =
            shared_address(at.w + (stage * STRIP_ROWS + lane / 2) * a.row_bytes) + lane % 2 * UNIT;
        const int32_t left = before + num_bytes - lane % 2 * UNIT;
        copy_units<0, ROW_BYTES_SOME>(to, from, left);
        if (a.row_bytes > ROW_BYTES_SOME) copy_units<ROW_BYTES_SOME, ROW_BYTES_MAX>(to, from, left);
    }

    /* The team's part of x: a warp copies some rows, swizzled as in linear_portable.cu. */
    __device__ __forceinline__ void copy_x(int32_t chunk, int32_t stage)
    {
        const int32_t column = chunk * CHUNK_COLUMNS + lane * 8;
        if (column >= a.k) return;
        for (int32_t m = strip_of_cta; m < o.m; m += a.strips)
            copy_async(shared_address(at.x + (stage * COLS + m) * X_ROW_BYTES + ((lane ^ m % 8) << 4)),
                       o.x + (size_t)m * a.k + column, true);
    }

    __device__ __forceinline__ void unpack(uint32_t (&w)[CHUNK_STEPS][4], int32_t chunk, int32_t stage) const
    {
        const int32_t g = lane / 4;
        const unsigned char *rows = at.w + (stage * STRIP_ROWS + g) * a.row_bytes;
        float *scales = at.scales + g * SCALES_PITCH;
        unpack_half<0>(w, dtypes[0], rows, begins[0], chunk, scales);
        unpack_half<1>(w, dtypes[1], rows + HALF_ROWS * a.row_bytes, begins[1], chunk, scales);
    }

    /* x: what the lane gives as the address of the first fragments. WHOLE: all steps are there. */
    template <bool WHOLE>
    __device__ __forceinline__ void add_products(const uint32_t (&w)[CHUNK_STEPS][4],
                                                 const x_fragments<COLS> &first, uint32_t x,
                                                 int32_t num_steps)
    {
        constexpr int STEPS = x_fragments<COLS>::STEPS;
        x_fragments<COLS> f[2] = {first};
#pragma unroll
        for (int step = 0; step < CHUNK_STEPS; step++) {
            const int now = step / STEPS % 2;
            if (step % STEPS == 0) {
                if (!WHOLE && step >= num_steps) break;
                if (step + STEPS < CHUNK_STEPS) f[1 - now].load(x, step + STEPS);
            }
#pragma unroll
            for (int j = 0; j < COLS / 8; j++) {
                const uint32_t *column = f[now].column(j, step);
                mma_bf16(sums[j], w[step], column[0], column[1]);
            }
        }
    }

    __device__ __forceinline__ void multiply(const uint32_t (&w)[CHUNK_STEPS][4], int32_t chunk,
                                             int32_t stage)
    {
        const int32_t num_steps = (a.k - chunk * CHUNK_COLUMNS) / 16,
                      row = COLS == 8 ? lane % 8 : lane % 8 + lane / 16 * 8,
                      unit = COLS == 8 ? lane / 8 : lane / 8 % 2;
        const uint32_t x =
            shared_address(at.x + (stage * COLS + row) * X_ROW_BYTES + ((unit ^ row % 8) << 4));
        x_fragments<COLS> first;
        first.load(x, 0);
        if (chunk > 0) take_sums();
        if (num_steps >= CHUNK_STEPS)
            add_products<true>(w, first, x, CHUNK_STEPS);
        else
            add_products<false>(w, first, x, num_steps);
    }

    __device__ __forceinline__ uint32_t turn_of(int32_t of_team) const
    {
        return shared_address(turns + of_team * a.strips + strip_of_cta);
    }

    __device__ __forceinline__ void take_sums(void)
    {
        barrier_wait(turn_of(team), parity);
        parity ^= 1;
#pragma unroll
        for (int j = 0; j < COLS / 8; j++) {
            float4 four = at.sums[j * 32];
            sums[j][0] = four.x;
            sums[j][1] = four.y;
            sums[j][2] = four.z;
            sums[j][3] = four.w;
        }
    }

    __device__ __forceinline__ void hand_sums(void) const
    {
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
            at.sums[j * 32] = make_float4(sums[j][0], sums[j][1], sums[j][2], sums[j][3]);
        __syncwarp();
        if (lane == 0) barrier_arrive(turn_of(team + 1 == a.teams ? 0 : team + 1));
    }

    /* Behind the last product. */
    __device__ __forceinline__ void end_sums(void)
    {
        const float factors[2] = {gguf_factor(dtypes[0]), gguf_factor(dtypes[1])};
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[j][i] *= factors[i / 2];
    }

    /* Its rows of W; the lane copies of one. */
    __device__ __forceinline__ void find_rows(int32_t strip)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const struct half_strip h = half_of(a, strip, i);
            dtypes[i] = a.parts[h.part].dtype;
            begins[i] = (uint32_t)(uintptr_t)row_of(a, o.packed, h, lane / 4);
            if (lane / 16 != i) continue;
            row = row_of(a, o.packed, h, lane / 2 % HALF_ROWS);
            row_bytes = (int32_t)a.parts[h.part].row_bytes;
            chunk_bytes = a.chunk_bytes[h.part];
        }
    }

    /* W does not wait for the dependency. */
    __device__ __forceinline__ void begin(void)
    {
        for (int32_t i = 0; i < a.num_stages - 1; i++)
            if (team + i * a.teams < a.num_chunks) copy_w(team + i * a.teams, i);
        dependents_launch();
        dependency_wait();
        for (int32_t i = 0; i < a.num_stages - 1; i++) {
            if (team + i * a.teams < a.num_chunks) copy_x(team + i * a.teams, i);
            copy_commit();
        }
    }

    /* store(): by the warp that has the last chunk, when sums are whole. */
    template <typename STORE> __device__ __forceinline__ void run(int32_t strip, STORE store)
    {
        uint32_t w[CHUNK_STEPS][4];
#pragma unroll
        for (int j = 0; j < COLS / 8; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) sums[j][i] = 0;
        find_rows(strip);
        begin();
        int32_t stage = 0, free_stage = a.num_stages - 1;
        for (int32_t chunk = team; chunk < a.num_chunks; chunk += a.teams) {
            copies_wait(a.num_stages - 2);
            named_barrier_sync(1 + team,
                               a.strips * 32); /* all of x is there, and all have read the free stage */
            const int32_t ahead = chunk + (a.num_stages - 1) * a.teams;
            if (ahead < a.num_chunks) {
                copy_w(ahead, free_stage);
                copy_x(ahead, free_stage);
            }
            copy_commit();
            unpack(w, chunk, stage);
            multiply(w, chunk, stage);
            if (chunk + 1 == a.num_chunks) {
                end_sums();
                store();
            } else {
                hand_sums();
            }
            free_stage = stage;
            stage = stage + 1 == a.num_stages ? 0 : stage + 1;
        }
        copy_wait<0>();
    }
};

/* ---- host ---- */

int32_t num_strips_of(const struct linear *w)
{
    int32_t num = 0;
    if (w->kind == LINEAR_GATE_UP) return w->n / STRIP_ROWS;
    for (const struct block_part &p : w->blocks) num += (p.num_rows + STRIP_ROWS - 1) / STRIP_ROWS;
    return num;
}

int32_t stage_row_bytes(const struct linear *w)
{
    int32_t units = 0;
    for (const struct block_part &p : w->blocks) {
        if (p.num_rows == 0) continue;
        const int32_t bytes = gguf_chunk_bytes(p.dtype), before = gguf_is_aligned(p.dtype) ? 0 : UNIT - 1;
        units = std::max(units, (before + bytes + UNIT - 1) / UNIT);
    }
    return (units | 1) * UNIT;
}

/* But for what is a CTA's. */
struct blocks_shape blocks_shape_of(const struct linear *w)
{
    struct blocks_shape a = {};
    std::copy(std::begin(w->blocks), std::end(w->blocks), a.parts);
    for (int i = 0; i < LINEAR_PARTS_MAX; i++)
        if (a.parts[i].num_rows > 0) a.chunk_bytes[i] = gguf_chunk_bytes(a.parts[i].dtype);
    a.k = w->k;
    a.num_chunks = (w->k + CHUNK_COLUMNS - 1) / CHUNK_COLUMNS;
    a.num_strips = num_strips_of(w);
    a.row_bytes = stage_row_bytes(w);
    a.alternate = w->kind == LINEAR_GATE_UP;
    return a;
}

/* Of shared memory, for each of an SM's CTAs. */
int32_t room_of_each(const struct cuda_device *d, int32_t num_ctas)
{
    return (d->cta_shared_bytes + CTA_RESERVED_BYTES) / num_ctas - 2 * CTA_RESERVED_BYTES;
}

/* As many stages as leave room for the other CTAs of an SM; where there is none for this one fewer teams. False: also of one. */
bool choose_stages(const struct cuda_device *d, blocks_shape *a, int32_t cols, int32_t num_ctas)
{
    for (int32_t stages = STAGES_MAX; stages > 2; stages--) {
        a->num_stages = stages;
        if (shared_bytes_of(*a, cols) <= room_of_each(d, num_ctas)) return true;
    }
    for (a->num_stages = 2; a->teams > 0; a->teams /= 2)
        if (shared_bytes_of(*a, cols) <= room_of_each(d, 1)) return true;
    return false;
}

} // namespace

#endif
