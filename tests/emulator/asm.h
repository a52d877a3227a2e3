/* asm.h - the functions of kernels/cuda that are an instruction, or a few, by their names there. Layouts of operands stand in
 * mma.cuh and wgmma.cuh. Sums of products are made in double precision and rounded once an instruction. */
#ifndef EMULATOR_ASM_H
#define EMULATOR_ASM_H

#include "tests/emulator/machine.h"

namespace emulated
{

/* ---- packed.cuh, linear_relay.cu ---- */

/* NaNs: they must go nowhere. */
template <int N> void any_values(uint32_t (&registers)[N])
{
    for (int32_t i = 0; i < N; i++) registers[i] = 0x7fc07fc0;
}

static inline uint32_t mask_and_set(uint32_t a, uint32_t b, uint32_t c)
{
    return (a & b) | c;
}

/* ---- gguf_fragments.cuh, linear_blocks.cu ---- */

static inline const unsigned char *computed(const unsigned char *p)
{
    return p;
}

static inline uint32_t mask_and_flip(uint32_t a, uint32_t b, uint32_t c)
{
    return (a & b) ^ c;
}
static inline uint32_t choose_bits(uint32_t mask, uint32_t a, uint32_t b)
{
    return (mask & a) | (~mask & b);
}

/* ---- mma.cuh ---- */

static inline double bf16_at(const void *p)
{
    uint16_t bits;
    memcpy(&bits, p, 2);
    return (double)emulated_bits<float>((uint32_t)bits << 16);
}

/* Values of A and of B come as floats: of registers 2 i and 2 i + 1 of a thread what they hold is columns 2 t, 2 t + 1 of K. */
template <float (*VALUE)(uint32_t bits)>
void multiply(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    float mine[12];
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    for (int32_t i = 0; i < 12; i++) mine[i] = VALUE(words[i / 2] >> 16 * (i % 2) & 0xffff);
    const struct brought *all = meet(~0u, mine, sizeof mine);
    const int32_t g = lane() / 4, t = lane() % 4;
    double sums[4] = {c[0], c[1], c[2], c[3]};
    for (int32_t half = 0; half < 2; half++)
        for (int32_t owner = 0; owner < 4; owner++) {
            const float *of_a = (const float *)all->words[g * 4 + owner] + half * 4, *of_b[2];
            for (int32_t j = 0; j < 2; j++)
                of_b[j] = (const float *)all->words[(2 * t + j) * 4 + owner] + 8 + half * 2;
            for (int32_t i = 0; i < 4; i++)
                for (int32_t k = 0; k < 2; k++)
                    sums[i] += (double)of_a[i / 2 * 2 + k] * (double)of_b[i % 2][k];
        }
    for (int32_t i = 0; i < 4; i++) c[i] = (float)sums[i];
}

static inline float bf16_of(uint32_t bits)
{
    return emulated_bits<float>(bits << 16);
}
static inline float half_of(uint32_t bits)
{
    return __half2float(emulated_bits<__half>((uint16_t)bits));
}
static inline void mma_bf16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    multiply<bf16_of>(c, a, b0, b1);
}
static inline void mma_f16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1)
{
    multiply<half_of>(c, a, b0, b1);
}

static inline uint32_t shared_address(const void *p)
{
    return (uint32_t)((const unsigned char *)p - arena);
}

static inline void load_matrix(uint32_t r[4], uint32_t address)
{
    const struct brought *all = meet(~0u, &address, sizeof address);
    for (int32_t i = 0; i < 4; i++)
        memcpy(&r[i], (const char *)pointer_of(all->words[8 * i + lane() / 4][0], 16) + lane() % 4 * 4, 4);
}

static inline void load_matrix_transposed(uint32_t r[4], uint32_t address)
{
    const struct brought *all = meet(~0u, &address, sizeof address);
    for (int32_t i = 0; i < 4; i++)
        for (int32_t j = 0; j < 2; j++)
            memcpy((char *)&r[i] + 2 * j,
                   (const char *)pointer_of(all->words[8 * i + lane() % 4 * 2 + j][0], 16) + lane() / 4 * 2,
                   2);
}

static inline void store_matrix(uint32_t address, const uint32_t r[4])
{
    const struct brought *all = meet(~0u, &address, sizeof address);
    for (int32_t i = 0; i < 4; i++)
        memcpy((char *)pointer_of(all->words[8 * i + lane() / 4][0], 16) + lane() % 4 * 4, &r[i], 4);
    meet(~0u, NULL, 0);
}

/* Copies of a thread that are under way; a group ends when it is waited for. */
void copy_later(void *to, const void *from, bool valid);
void close_copies(void);
void end_copies(int32_t groups_left);

static inline void copy_async(uint32_t to, const void *from, bool valid)
{
    copy_later(pointer_of(to, 16), from, valid);
}
static inline void copy_commit(void)
{
    close_copies();
}
template <int PENDING> void copy_wait(void)
{
    end_copies(PENDING);
}

static inline void store_zeros(uint32_t to)
{
    memset(pointer_of(to, 16), 0, 16);
}
static inline float reciprocal_fast(float x)
{
    return 1 / x;
}
static inline float tanh_fast(float x)
{
    return tanhf(x);
}
static inline float exp2_fast(float x)
{
    return exp2f(x);
}
static inline float load_shared(uint32_t at)
{
    return *(const float *)pointer_of(at);
}
static inline float4 load_shared_4(uint32_t at)
{
    return *(const float4 *)pointer_of(at);
}
static inline float2 load_shared_pair(uint32_t at)
{
    return *(const float2 *)pointer_of(at);
}
static inline void load_4(uint32_t (&to)[4], uint32_t at)
{
    memcpy(to, pointer_of(at, 16), 16);
}
static inline uint32_t load_1(uint32_t at)
{
    return *(const uint32_t *)pointer_of(at);
}
static inline int32_t add_acquire_release(int32_t *counter, int32_t count)
{
    return atomicAdd(counter, count);
}
[[noreturn]] void trap_kernel(void);

/* ---- hopper.cuh: barriers ---- */

/* In the 8 bytes of a barrier: arrivals that a phase wants, those that are missing, bytes that are missing, the phase. */
struct barrier {
    uint16_t wanted, missing : 15, phase : 1;
    int32_t bytes;
};

static inline struct barrier *barrier_of(uint32_t at)
{
    return (struct barrier *)pointer_of(at, 8);
}

static inline void turn_over(struct barrier *b)
{
    if (b->missing > 0 || b->bytes != 0) return;
    b->missing = b->wanted;
    b->phase ^= 1;
    tell();
}

static inline void barrier_init(uint32_t at, uint32_t arrivals)
{
    *barrier_of(at) = {(uint16_t)arrivals, (uint16_t)arrivals, 0, 0};
}

static inline void barrier_init_fence(void) {}
static inline void barrier_expect(uint32_t at, uint32_t bytes)
{
    barrier_of(at)->bytes += (int32_t)bytes;
}

static inline void barrier_arrive(uint32_t at)
{
    barrier_of(at)->missing--;
    turn_over(barrier_of(at));
}

static inline void barrier_arrive_expect(uint32_t at, uint32_t bytes)
{
    barrier_expect(at, bytes);
    barrier_arrive(at);
}

static inline void barrier_arrive_after_copies(uint32_t at)
{
    close_copies();
    end_copies(0);
    barrier_arrive(at);
}

static inline void barrier_wait(uint32_t at, uint32_t parity)
{
    while (barrier_of(at)->phase == (parity & 1)) yield();
}

static inline void come(uint32_t barrier, uint32_t bytes)
{
    barrier_of(barrier)->bytes -= (int32_t)bytes;
    turn_over(barrier_of(barrier));
}

/* ---- hopper.cuh: the copy engine. Boxes are swizzled: the bits of an address that say which 16 bytes of a row, by those of the row. ---- */

/* What a CUtensorMap holds here. */
struct tensor_map {
    unsigned char *data;
    uint32_t rank, box[5], swizzle_bits;
    uint64_t sizes[5], strides[5]; /* bytes; the first dimension's is that of an element */
};

static inline unsigned char *swizzled(uint32_t address, uint32_t bits)
{
    return (unsigned char *)pointer_of(address ^ ((address >> 7 & ((1u << bits) - 1)) << 4));
}

/* Bytes of the box between shared memory and the tensor; what lies outside is read as zeros, and not written. */
uint32_t copy_box(const CUtensorMap *map, uint32_t shared, const int32_t at[5], bool to_shared);

static inline void load_box(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x, int32_t y,
                            int32_t z, int32_t w)
{
    const int32_t at[5] = {x, y, z, w, 0};
    come(barrier, copy_box(map, to, at, true));
}

static inline void tensor_load_2d(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x, int32_t y)
{
    load_box(to, map, barrier, x, y, 0, 0);
}

static inline void tensor_stream_2d(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x,
                                    int32_t y)
{
    load_box(to, map, barrier, x, y, 0, 0);
}

static inline void tensor_load_3d(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x, int32_t y,
                                  int32_t z)
{
    load_box(to, map, barrier, x, y, z, 0);
}

static inline void tensor_stream_3d(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x,
                                    int32_t y, int32_t z)
{
    load_box(to, map, barrier, x, y, z, 0);
}

static inline void tensor_load_4d(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x, int32_t y,
                                  int32_t z, int32_t w)
{
    load_box(to, map, barrier, x, y, z, w);
}

static inline void tensor_stream_4d(uint32_t to, const CUtensorMap *map, uint32_t barrier, int32_t x,
                                    int32_t y, int32_t z, int32_t w)
{
    load_box(to, map, barrier, x, y, z, w);
}

static inline void bulk_load(uint32_t to, const void *from, uint32_t barrier, uint32_t bytes)
{
    want_aligned(from, 16);
    if (bytes % 16) fail("a copy of %u bytes", bytes);
    memcpy(pointer_of(to, 16), from, bytes);
    come(barrier, bytes);
}

static inline void bulk_stream(uint32_t to, const void *from, uint32_t barrier, uint32_t bytes)
{
    bulk_load(to, from, barrier, bytes);
}

static inline void tensor_store_2d(const CUtensorMap *map, uint32_t from, int32_t x, int32_t y)
{
    const int32_t at[5] = {x, y, 0, 0, 0};
    copy_box(map, from, at, false);
}

static inline void bulk_commit(void) {}
template <int PENDING> void bulk_wait_read(void) {}
static inline void tensor_map_prefetch(const CUtensorMap *) {}
static inline void shared_writes_fence(void) {}
static inline bool elect_lane(void)
{
    return lane() == 0;
}
static inline void dependency_wait(void)
{
    wait_for_dependency();
}
static inline void dependents_launch(void) {}

/* Clusters are not there: nothing is launched that has one (runtime.cc). */
[[noreturn]] void no_clusters(void);
static inline void barrier_arrive_at(uint32_t, uint32_t)
{
    no_clusters();
}
static inline void cluster_sync(void)
{
    no_clusters();
}
static inline void tensor_multicast_2d(uint32_t, const CUtensorMap *, uint32_t, int32_t, int32_t, uint32_t)
{
    no_clusters();
}

/* ---- load_kept.cuh ---- */

template <typename T> T load_kept(const T *from)
{
    return *from;
}

/* ---- wgmma.cuh, fp8.cuh ---- */

static inline void wgmma_fence(void) {}
static inline void wgmma_commit(void) {}
template <int PENDING> void wgmma_wait(void) {}
template <int N, typename T> void wgmma_hold(T (&)[N]) {}
template <int REGISTERS> void registers_raise(void) {}
template <int REGISTERS> void registers_lower(void) {}
static inline void named_barrier_sync(int id, int threads)
{
    meet_some(id, threads, true);
}
static inline void named_barrier_arrive(int id, int threads)
{
    meet_some(id, threads, false);
}

/* Of a descriptor: K major (row, and byte of 32 of the row's), with a swizzle or without, or transposed (row of K, column). */
static inline const unsigned char *operand_at(uint64_t descriptor, uint32_t row, uint32_t byte)
{
    uint32_t first = (uint32_t)(descriptor & 0x3fff) << 4, rows = (uint32_t)(descriptor >> 32 & 0x3fff) << 4,
             columns = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
    if (descriptor >> 62 == 0)
        return (const unsigned char *)pointer_of(first + row / 8 * rows + row % 8 * 16 + byte / 16 * columns +
                                                 byte % 16);
    return swizzled(first + row / 8 * rows + row % 8 * 128 + byte, 3);
}

static inline const unsigned char *transposed_at(uint64_t descriptor, uint32_t k, uint32_t column)
{
    uint32_t first = (uint32_t)(descriptor & 0x3fff) << 4, rows = (uint32_t)(descriptor >> 32 & 0x3fff) << 4,
             columns = (uint32_t)(descriptor >> 16 & 0x3fff) << 4;
    return swizzled(first + k / 8 * rows + column / 64 * columns + k % 8 * 128 + column % 64 * 2, 3);
}

static inline double e4m3_at(const void *p)
{
    __nv_fp8_e4m3 x;
    memcpy((void *)&x, p, 1);
    return (double)(float)x;
}

/* a[i][k]: the thread's two rows. B: column and place in K. */
template <int COUNT, typename T, typename B>
void multiply_rows(T (&d)[COUNT], const double *const a[2], int32_t depth, int add, B b)
{
    for (int32_t n = 0; n < COUNT / 4; n++)
        for (int32_t j = 0; j < 2; j++) {
            double column[32];
            for (int32_t k = 0; k < depth; k++) column[k] = b(8 * n + 2 * (lane() % 4) + j, k);
            for (int32_t i = 0; i < 2; i++) {
                double sum = add ? d[4 * n + 2 * i + j] : 0;
                for (int32_t k = 0; k < depth; k++) sum += a[i][k] * column[k];
                d[4 * n + 2 * i + j] = (T)sum;
            }
        }
}

static inline int32_t group_row(void)
{
    return (int32_t)threadIdx.x % 128 / 32 * 16 + lane() / 4;
}

/* b(column, place in K) */
template <int COUNT, typename B> void multiply_shared(float (&d)[COUNT], uint64_t a, int add, B b)
{
    double rows[2][16];
    for (int32_t i = 0; i < 2; i++)
        for (int32_t k = 0; k < 16; k++)
            rows[i][k] = bf16_at(operand_at(a, (uint32_t)(group_row() + 8 * i), (uint32_t)k * 2));
    const double *const both[2] = {rows[0], rows[1]};
    multiply_rows(d, both, 16, add, b);
}

template <int COUNT> void wgmma_shared(float (&d)[COUNT], uint64_t a, uint64_t b, int add)
{
    multiply_shared(d, a, add, [=](int32_t n, int32_t k) {
        return bf16_at(operand_at(b, (uint32_t)n, (uint32_t)k * 2));
    });
}

template <int COUNT> void wgmma_shared_transposed(float (&d)[COUNT], uint64_t a, uint64_t b, int add)
{
    multiply_shared(
        d, a, add, [=](int32_t n, int32_t k) { return bf16_at(transposed_at(b, (uint32_t)k, (uint32_t)n)); });
}

static inline double int8_at(const void *p)
{
    return *(const int8_t *)p;
}

/* value(where a byte is) */
template <int COUNT, typename T, typename VALUE>
void multiply_bytes(T (&d)[COUNT], uint64_t a, uint64_t b, int add, VALUE value)
{
    double rows[2][32];
    for (int32_t i = 0; i < 2; i++)
        for (int32_t k = 0; k < 32; k++)
            rows[i][k] = value(operand_at(a, (uint32_t)(group_row() + 8 * i), (uint32_t)k));
    const double *const both[2] = {rows[0], rows[1]};
    multiply_rows(d, both, 32, add,
                  [=](int32_t n, int32_t k) { return value(operand_at(b, (uint32_t)n, (uint32_t)k)); });
}

template <int COUNT> void wgmma_e4m3(float (&d)[COUNT], uint64_t a, uint64_t b, int add)
{
    multiply_bytes(d, a, b, add, e4m3_at);
}

template <int COUNT> void wgmma_int8(int32_t (&d)[COUNT], uint64_t a, uint64_t b, int add)
{
    multiply_bytes(d, a, b, add, int8_at);
}

template <int TRANSPOSED, int COUNT>
void wgmma_registers(float (&d)[COUNT], const uint32_t *a, uint64_t b, int add)
{
    const struct brought *all = meet(~0u, a, 16);
    double rows[2][16];
    for (int32_t i = 0; i < 2; i++)
        for (int32_t k = 0; k < 16; k++)
            rows[i][k] =
                bf16_at((const char *)&all->words[lane() / 4 * 4 + k % 8 / 2][k / 8 * 2 + i] + k % 2 * 2);
    const double *const both[2] = {rows[0], rows[1]};
    multiply_rows(d, both, 16, add, [=](int32_t n, int32_t k) {
        return bf16_at(TRANSPOSED ? transposed_at(b, (uint32_t)k, (uint32_t)n)
                                  : operand_at(b, (uint32_t)n, (uint32_t)k * 2));
    });
}

/* ---- share.cu: launches come one after the other, so that what has not come never does ---- */

static inline void store_flag(uint32_t *flag, uint32_t value)
{
    *flag = value;
}

static inline uint32_t load_flag(const uint32_t *flag)
{
    static const uint32_t *last;
    static int num;
    num = flag == last ? num + 1 : 0;
    last = flag;
    if (num > 1000) fail("a wait for a flag that nobody has set");
    return *flag;
}

static inline void send(uint4 *to, uint2 values, uint32_t number)
{
    *to = make_uint4(values.x, number, values.y, number);
}

static inline uint2 receive(const uint4 *from, uint32_t number)
{
    if (from->y != number || from->w != number) fail("a wait for what nobody has sent");
    return make_uint2(from->x, from->z);
}

} // namespace emulated

#endif
