/* linear_portable.cu - products x W^T on any GPU from sm_80 on: mma.sync m16n8k16 over K in order, one f32 accumulator for
 * each output, operands from a ring of stages that cp.async fills. The bits are those of linear_plain.cu.
 *
 * The warps of a CTA share its tile of the result, never K. Fragments are read from shared memory one step of 16 columns ahead
 * of their products, across stages, too, and a part of a later stage is asked for in each step.
 *
 * Few rows of x: what counts is how much of W is on its way from memory. A CTA owns 16, 32 or 64 rows of W, its M side, and
 * all rows of x, its N side. Several CTAs fit an SM, so that the end of one is the middle of another.
 *
 * Many rows: x is the M side, W the N side; a CTA is 4 or 8 warps, each of up to 64 x 64 of the result. Results go through
 * shared memory, so that what is stored of a row is 64 bytes or more.
 *
 * Rows of a stage are 64 or 128 columns, in chunks of 16 bytes, swizzled so that 8 rows of a column of chunks lie in
 * distinct banks. What lies outside of x, W or K is zero in shared memory and adds exactly nothing. */
#include <algorithm>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_portable.cuh"
#include "kernels/cuda/linear_store.cuh"

namespace
{

enum {
    CHUNK = 8, /* values of 16 bytes */
    FEW_WARPS = 4,
    BAND = 16 /* rows of tiles that are walked column by column: x stays in the L2 while W passes by */
};

struct product_args {
    const __nv_bfloat16 *x, *w;
    struct store_args out; /* m: rows of x, n: rows of W */
    int32_t k;
};

/* A CTA's tile of the result, ROWS on the M side and COLUMNS on the N side, and a warp's part of that. */
template <int ROWS_, int COLUMNS_, int WARP_ROWS_, int WARP_COLUMNS_, int WARPS_, int STAGE_K_, int STAGES_>
struct tile_traits {
    static constexpr int ROWS = ROWS_, COLUMNS = COLUMNS_, WARP_ROWS = WARP_ROWS_,
                         WARP_COLUMNS = WARP_COLUMNS_;
    static constexpr int WARPS = WARPS_, STAGE_K = STAGE_K_, STAGES = STAGES_;
    static constexpr int THREADS = WARPS * 32, ROW_WARPS = ROWS / WARP_ROWS;
    static constexpr int CHUNKS = STAGE_K / CHUNK, ROW_BYTES = STAGE_K * 2, STEPS = STAGE_K / 16;
    static constexpr int ROWS_BYTES = ROWS * ROW_BYTES, STAGE_BYTES = ROWS_BYTES + COLUMNS * ROW_BYTES;
    static constexpr int SHARED_BYTES = STAGES * STAGE_BYTES;
    static_assert(ROW_WARPS * (COLUMNS / WARP_COLUMNS) <= WARPS, "every part of the tile has a warp");
};

/* Where a chunk of a row lies among rows of T, in bytes. */
template <typename T> __device__ __forceinline__ uint32_t place_of(int row, int chunk)
{
    return (uint32_t)(row * T::ROW_BYTES + ((chunk ^ row % 8) << 4));
}

/* What a thread copies of COUNT rows of an operand: its chunk of every STEP-th row. */
template <typename T, int COUNT> struct operand {
    static constexpr int STEP = T::THREADS / T::CHUNKS, NUM = (COUNT + STEP - 1) / STEP;
    static_assert(COUNT % STEP == 0 && STEP % 8 == 0 && NUM <= 32, "threads share the rows evenly");
    const unsigned char *next; /* of the stage that is filled: the first row, then those behind it */
    uint32_t rows;             /* bit j: row j is there */
    uint32_t step;             /* bytes from row to row */
    uint32_t to;               /* in a stage */

    __device__ __forceinline__ operand(const __nv_bfloat16 *matrix, int32_t num_rows, int32_t k,
                                       int32_t first, uint32_t offset)
    {
        int row = threadIdx.x / T::CHUNKS, chunk = threadIdx.x % T::CHUNKS;
        next = (const unsigned char *)(matrix + (size_t)(first + row) * k + chunk * CHUNK);
        step = (uint32_t)(STEP * k * 2);
        to = offset + place_of<T>(row, chunk);
        rows = 0;
#pragma unroll
        for (int j = 0; j < NUM; j++) rows |= (uint32_t)(first + row + j * STEP < num_rows) << j;
    }

    /* Part `part` of T::STEPS parts of a stage; inside: the thread's columns are. What is not there is zeros. */
    __device__ __forceinline__ void copy(int part, uint32_t stage, bool inside)
    {
#pragma unroll
        for (int j = 0; j < NUM; j++) {
            if (j < NUM * part / T::STEPS || j >= NUM * (part + 1) / T::STEPS) continue;
            copy_async(stage + to + (uint32_t)(j * STEP * T::ROW_BYTES), next, inside && (rows >> j & 1));
            next += step;
        }
        if (part == T::STEPS - 1) next += (int64_t)T::ROW_BYTES - (int64_t)NUM * step;
    }
};

/* What a warp multiplies in a step of 16 columns. */
template <typename T> struct fragments {
    uint32_t rows[T::WARP_ROWS / 16][4], columns[T::WARP_COLUMNS / 8][2];

    /* rows_at, columns_at: the places of what the lane gives addresses of, in step 0 */
    __device__ __forceinline__ void load(uint32_t stage, uint32_t rows_at, uint32_t columns_at, int step)
    {
        uint32_t at = stage + (rows_at ^ (uint32_t)step << 5);
#pragma unroll
        for (int i = 0; i < T::WARP_ROWS / 16; i++)
            load_matrix(rows[i], at + (uint32_t)(16 * i * T::ROW_BYTES));
        at = stage + (columns_at ^ (uint32_t)step << 5);
#pragma unroll
        for (int j = 0; j < (T::WARP_COLUMNS + 8) / 16; j++) {
            uint32_t r[4];
            load_matrix(r, at + (uint32_t)(16 * j * T::ROW_BYTES));
            columns[2 * j][0] = r[0];
            columns[2 * j][1] = r[1];
            if (T::WARP_COLUMNS == 8) break; /* the other half is the same rows again */
            columns[2 * j + 1][0] = r[2];
            columns[2 * j + 1][1] = r[3];
        }
    }
};

template <typename T> struct tile_sums {
    float at[T::WARP_ROWS / 16][T::WARP_COLUMNS / 8][4];
    __device__ __forceinline__ void add(const fragments<T> &f)
    {
#pragma unroll
        for (int i = 0; i < T::WARP_ROWS / 16; i++)
#pragma unroll
            for (int j = 0; j < T::WARP_COLUMNS / 8; j++)
                mma_bf16(at[i][j], f.rows[i], f.columns[j][0], f.columns[j][1]);
    }
};

/* The sums of the warp's part of the tile, from `row` and `column` on; a warp that has none only copies. */
template <typename T>
__device__ __forceinline__ void multiply(tile_sums<T> &sums, uint32_t ring, operand<T, T::ROWS> a,
                                         operand<T, T::COLUMNS> b, int32_t k, int row, int column)
{
    int lane = threadIdx.x % 32;
    constexpr bool ALL = T::ROW_WARPS * (T::COLUMNS / T::WARP_COLUMNS) == T::WARPS;
    bool has_part = ALL || column < T::COLUMNS;
    int32_t num_k = (k + T::STAGE_K - 1) / T::STAGE_K, first_k = threadIdx.x % T::CHUNKS * CHUNK;
    uint32_t rows_at = place_of<T>(row + lane % 16, lane / 16),
             columns_at =
                 T::ROWS_BYTES +
                 place_of<T>(column + lane % 8 + (T::WARP_COLUMNS == 8 ? 0 : lane / 16 * 8), lane / 8 % 2);
    for (int i = 0; i < T::STAGES - 1; i++) {
#pragma unroll
        for (int part = 0; part < T::STEPS; part++) {
            a.copy(part, ring + i * T::STAGE_BYTES, first_k < k);
            b.copy(part, ring + i * T::STAGE_BYTES, first_k < k);
        }
        copy_commit();
        first_k += T::STAGE_K;
    }
    copy_wait<T::STAGES - 2>();
    __syncthreads();
    fragments<T> f[2];
    if (has_part) f[0].load(ring, rows_at, columns_at, 0);
    uint32_t from = ring, free_stage = ring + (T::STAGES - 1) * T::STAGE_BYTES,
             end = ring + T::STAGES * T::STAGE_BYTES;
    for (int32_t i = 0; i < num_k; i++) {
        uint32_t next = from + T::STAGE_BYTES == end ? ring : from + T::STAGE_BYTES;
#pragma unroll
        for (int step = 0; step < T::STEPS; step++) {
            /* part of a stage each step, to where all have read: the barrier of the round before says so */
            a.copy(step, free_stage, first_k < k);
            b.copy(step, free_stage, first_k < k);
            if (step == T::STEPS - 1) {
                copy_commit();
                copy_wait<T::STAGES - 2>();
                __syncthreads(); /* the next stage is there; this one's last fragments are in registers */
            }
            if (has_part) {
                f[(step + 1) % 2].load(step == T::STEPS - 1 ? next : from, rows_at, columns_at,
                                       (step + 1) % T::STEPS);
                sums.add(f[step % 2]);
            }
        }
        first_k += T::STAGE_K;
        free_stage = from;
        from = next;
    }
    copy_wait<0>();
}

/* ---- few rows of x ---- */

static constexpr int few_stages(int rows, int columns, int stage_k)
{
    int fit = (columns <= 16 ? 72 << 10 : 96 << 10) / ((rows + columns) * stage_k * 2);
    return fit < 8 ? fit : 8;
}

/* Of ROWS rows of W and COLUMNS of x, a warp's part: as many warps as there are rows for, then columns. */
static constexpr int few_warp_rows(int rows, int columns)
{
    return rows == 64 && columns == 64 ? 32 : 16;
}

static constexpr int few_warp_columns(int rows, int columns)
{
    int parts = FEW_WARPS * few_warp_rows(rows, columns) / rows;
    return columns / parts < 8 ? 8 : columns / parts;
}

template <int ROWS, int COLUMNS, int STAGE_K = COLUMNS <= 32 ? 128 : 64>
using few_traits = tile_traits<ROWS, COLUMNS, few_warp_rows(ROWS, COLUMNS), few_warp_columns(ROWS, COLUMNS),
                               FEW_WARPS, STAGE_K, few_stages(ROWS, COLUMNS, STAGE_K)>;

template <int ROWS, int COLUMNS, int EPILOGUE>
__global__ void __launch_bounds__(FEW_WARPS * 32) few_kernel(product_args a)
{
    using T = few_traits<ROWS, COLUMNS>;
    extern __shared__ __align__(128) unsigned char shared[];
    dependency_wait();
    int warp = threadIdx.x / 32, row = warp % T::ROW_WARPS * T::WARP_ROWS,
        column = warp / T::ROW_WARPS * T::WARP_COLUMNS;
    int32_t first_n = blockIdx.x * ROWS;
    tile_sums<T> sums = {};
    multiply<T>(sums, shared_address(shared), operand<T, ROWS>(a.w, a.out.n, a.k, first_n, 0),
                operand<T, COLUMNS>(a.x, a.out.m, a.k, 0, T::ROWS_BYTES), a.k, row, column);
    if (column >= COLUMNS) return;
#pragma unroll
    for (int i = 0; i < T::WARP_ROWS / 16; i++)
        store_columns<T::WARP_COLUMNS, EPILOGUE, 2>(a.out, (const float(&)[T::WARP_COLUMNS / 2]) sums.at[i],
                                                    column, first_n + row + 16 * i);
}

/* ---- many rows of x ---- */

static constexpr int many_warp_rows(int rows, int columns)
{
    return columns == 224 ? 32 : rows / 2;
}

static constexpr int many_warp_columns(int columns)
{
    return columns == 224 ? 112 : columns == 64 ? 32 : columns == 96 ? 48 : 64;
}

template <int ROWS, int COLUMNS>
using many_traits = tile_traits<ROWS, COLUMNS, many_warp_rows(ROWS, COLUMNS), many_warp_columns(COLUMNS),
                                COLUMNS >= 224 ? 8 : 4, 64, COLUMNS == 64 ? 4 : 3>;

/* A row of a warp's results on their way. */
template <typename T> constexpr int OUT_PITCH = T::WARP_COLUMNS * 2 + 16;

/* Two neighbouring columns. */
__device__ __forceinline__ uint32_t rounded_pair(const store_args &a, int32_t n, float x, float y)
{
    uint32_t sums = pack_bf16(x, y);
    if (!a.bias || n >= a.n) return sums;
    float2 rounded = unpack_bf16(sums);
    return pack_bf16(rounded.x + a.bias[n], rounded.y + a.bias[n + 1]);
}

template <typename T>
__device__ __forceinline__ void store_wide(const store_args &a, const tile_sums<T> &s, int32_t m, int32_t n)
{
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < T::WARP_ROWS / 8; i++)
#pragma unroll
        for (int j = 0; j < T::WARP_COLUMNS / 8; j++)
            store_pair<EPILOGUE_F32>(a, m + 8 * i + g, n + 8 * j + 2 * t, s.at[i / 2][j][i % 2 * 2],
                                     s.at[i / 2][j][i % 2 * 2 + 1]);
}

/* A warp's results, from row m and column n of the product on, by way of its own shared memory. Gate and up alternate in
 * groups of 8 columns. */
template <typename T, int EPILOGUE>
__device__ __forceinline__ void store_rounded(const store_args &a, const tile_sums<T> &s, int32_t m,
                                              int32_t n, unsigned char *shared)
{
    constexpr bool GATED = EPILOGUE == EPILOGUE_SILU_MUL;
    constexpr int WIDTH = GATED ? T::WARP_COLUMNS / 2 : T::WARP_COLUMNS, CHUNKS = WIDTH / CHUNK;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int32_t out_n = GATED ? a.n / 2 : a.n, first = GATED ? n / 2 : n;
#pragma unroll
    for (int i = 0; i < T::WARP_ROWS / 8; i++)
#pragma unroll
        for (int j = 0; j < WIDTH / 8; j++) {
            const float *sums = s.at[i / 2][GATED ? 2 * j : j] + i % 2 * 2,
                        *up = s.at[i / 2][GATED ? 2 * j + 1 : j] + i % 2 * 2;
            *(uint32_t *)(shared + (8 * i + g) * OUT_PITCH<T> + j * 16 + t * 4) =
                GATED ? silu_mul(pack_bf16(sums[0], sums[1]), pack_bf16(up[0], up[1]))
                      : rounded_pair(a, n + 8 * j + 2 * t, sums[0], sums[1]);
        }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < T::WARP_ROWS * CHUNKS / 32; i++) {
        int row = (i * 32 + lane) / CHUNKS, chunk = (i * 32 + lane) % CHUNKS;
        int32_t column = first + chunk * CHUNK;
        if (m + row < a.m && column < out_n)
            *(uint4 *)((__nv_bfloat16 *)a.out + (size_t)(m + row) * out_n + column) =
                *(const uint4 *)(shared + row * OUT_PITCH<T> + chunk * 16);
    }
}

/* Tiles in bands of rows, in each column by column. */
__device__ __forceinline__ void tile_of(int32_t index, int32_t num_rows, int32_t num_columns, int32_t *row,
                                        int32_t *column)
{
    int32_t first = index / (BAND * num_columns) * BAND, within = index - first * num_columns,
            rows = min((int32_t)BAND, num_rows - first);
    *row = first + within % rows;
    *column = within / rows;
}

template <int ROWS, int COLUMNS, int EPILOGUE>
__global__ void __launch_bounds__(many_traits<ROWS, COLUMNS>::THREADS, COLUMNS >= 224 ? 1 : 2)
    many_kernel(product_args a)
{
    using T = many_traits<ROWS, COLUMNS>;
    static_assert(T::WARPS * T::WARP_ROWS * OUT_PITCH<T> <= T::SHARED_BYTES,
                  "the results fit where the ring was");
    extern __shared__ __align__(128) unsigned char shared[];
    dependency_wait();
    int warp = threadIdx.x / 32, row = warp % T::ROW_WARPS * T::WARP_ROWS,
        column = warp / T::ROW_WARPS * T::WARP_COLUMNS;
    int32_t tile_row, tile_column;
    tile_of(blockIdx.x, (a.out.m + ROWS - 1) / ROWS, (a.out.n + COLUMNS - 1) / COLUMNS, &tile_row,
            &tile_column);
    int32_t first_m = tile_row * ROWS, first_n = tile_column * COLUMNS;
    tile_sums<T> sums = {};
    multiply<T>(sums, shared_address(shared), operand<T, ROWS>(a.x, a.out.m, a.k, first_m, 0),
                operand<T, COLUMNS>(a.w, a.out.n, a.k, first_n, T::ROWS_BYTES), a.k, row, column);
    __syncthreads(); /* all have read the ring */
    if (EPILOGUE == EPILOGUE_F32)
        store_wide<T>(a.out, sums, first_m + row, first_n + column);
    else
        store_rounded<T, EPILOGUE>(a.out, sums, first_m + row, first_n + column,
                                   shared + warp * T::WARP_ROWS * OUT_PITCH<T>);
}

/* ---- launch ---- */

template <int ROWS, int COLUMNS, int EPILOGUE> bool launch_few(struct cuda_device *d, const product_args &a)
{
    return launch_dependent(d, few_kernel<ROWS, COLUMNS, EPILOGUE>,
                            dim3((unsigned)((a.out.n + ROWS - 1) / ROWS)), dim3(FEW_WARPS * 32),
                            few_traits<ROWS, COLUMNS>::SHARED_BYTES, a);
}

template <int COLUMNS, int EPILOGUE>
bool launch_few(struct cuda_device *d, int32_t tile_rows, const product_args &a)
{
    return tile_rows == 16   ? launch_few<16, COLUMNS, EPILOGUE>(d, a)
           : tile_rows == 32 ? launch_few<32, COLUMNS, EPILOGUE>(d, a)
                             : launch_few<64, COLUMNS, EPILOGUE>(d, a);
}

template <int ROWS, int COLUMNS, int EPILOGUE> bool launch_many(struct cuda_device *d, const product_args &a)
{
    using T = many_traits<ROWS, COLUMNS>;
    int32_t num_rows = (a.out.m + ROWS - 1) / ROWS, num_columns = (a.out.n + COLUMNS - 1) / COLUMNS;
    if (T::SHARED_BYTES > d->cta_shared_bytes) return false;
    return launch_dependent(d, many_kernel<ROWS, COLUMNS, EPILOGUE>, dim3((unsigned)(num_rows * num_columns)),
                            dim3(T::THREADS), T::SHARED_BYTES, a);
}

template <int EPILOGUE>
bool launch(struct cuda_device *d, const struct linear_choice *c, const product_args &a)
{
    if (c->columns == 0)
        return a.out.m <= 8    ? launch_few<8, EPILOGUE>(d, c->tile_rows, a)
               : a.out.m <= 16 ? launch_few<16, EPILOGUE>(d, c->tile_rows, a)
               : a.out.m <= 32 ? launch_few<32, EPILOGUE>(d, c->tile_rows, a)
                               : launch_few<64, EPILOGUE>(d, c->tile_rows, a);
    if (c->columns == 64) return launch_many<64, 64, EPILOGUE>(d, a);
    return c->tile_rows == 64    ? launch_many<128, 64, EPILOGUE>(d, a)
           : c->tile_rows == 96  ? launch_many<128, 96, EPILOGUE>(d, a)
           : c->tile_rows == 128 ? launch_many<128, 128, EPILOGUE>(d, a)
           : c->tile_rows == 224 ? launch_many<128, 224, EPILOGUE>(d, a)
                                 : launch_many<128, 256, EPILOGUE>(d, a);
}

} // namespace

struct linear_choice cuda_linear_portable_choice(int32_t rows)
{
    if (rows <= LINEAR_PORTABLE_ROWS) return {LINEAR_PORTABLE, 32, 0, 0};
    return {LINEAR_PORTABLE, 128, 0, 128};
}

bool cuda_linear_portable(struct cuda_device *d, const struct linear_choice *c, int32_t rows, void *out,
                          const void *x, const struct linear *w, bool silu_mul)
{
    bool too_many = c->columns == 0 && rows > LINEAR_PORTABLE_ROWS;
    if (w->format != LINEAR_BF16 || too_many || w->k % CHUNK != 0 || w->n % (silu_mul ? 16 : CHUNK) != 0)
        return false;
    product_args a = {(const __nv_bfloat16 *)x, w->weight, {out, w->bias, rows, w->n}, w->k};
    if (silu_mul) return launch<EPILOGUE_SILU_MUL>(d, c, a);
    return w->wide_output ? launch<EPILOGUE_F32>(d, c, a) : launch<EPILOGUE_BF16>(d, c, a);
}
