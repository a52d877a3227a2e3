/* Kernels with a fault, each beside the same one without: the emulated GPU ends the process at the fault, and says what it was. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
extern "C" {
#include <cmocka.h>
}

#include <functional>

#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum { THREADS = 32, FLOATS = 100 };

/* As nvcc has them. */
static_assert(alignof(float2) == 8 && alignof(uint2) == 8 && alignof(float4) == 16 && alignof(int4) == 16 &&
              alignof(uint4) == 16 && alignof(__nv_bfloat162) == 4 && alignof(__half2) == 4);

struct {
    cudaStream_t stream;
} device, *const d = &device;

/* Of an array of floats behind a byte, as a mixture's logits once were: stored in pairs. */
__global__ void pairs_behind_a_byte(float *out)
{
    __shared__ bool is_last;
    __shared__ float sums[2 * THREADS];
    is_last = true;
    *(float2 *)&sums[2 * threadIdx.x] = {1, 2};
    __syncthreads();
    if (is_last) out[threadIdx.x] = sums[threadIdx.x];
}

__global__ void aligned_pairs_behind_a_byte(float *out)
{
    __shared__ bool is_last;
    __shared__ __align__(8) float sums[2 * THREADS];
    is_last = true;
    *(float2 *)&sums[2 * threadIdx.x] = {1, 2};
    __syncthreads();
    if (is_last) out[threadIdx.x] = sums[threadIdx.x];
}

/* From the bytes on that one block of 16 lies behind. */
__global__ void read_words(const unsigned char *from, uint4 *to)
{
    to[0] = *(const uint4 *)from;
}

__global__ void write_float(float *x, int32_t at)
{
    x[at] = 1;
}

__global__ void read_float(const float *x, int32_t at, float *out)
{
    out[0] = x[at];
}

/* One array of known size, and another through a pointer. */
__global__ void index_shared(int32_t row, int32_t column, float *out)
{
    __shared__ float rows[2][THREADS];
    out[0] = rows[row][column];
}

__global__ void pass_shared(int32_t at, float *out)
{
    __shared__ float row[THREADS], other[THREADS];
    float *volatile p = row;
    other[0] = 1;
    out[0] = p[at] + other[0];
}

__global__ void write_dynamic(int32_t at)
{
    extern __shared__ __align__(16) unsigned char shared[];
    ((float *)shared)[at] = 1;
}

/* Of what nobody has written; then it is. */
__global__ void read_first(float *out)
{
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float one;
    out[blockIdx.x] = *(float *)shared * 0 + one * 0;
    *(float *)shared = one = 1;
}

/* Rows that ldmatrix wants at a multiple of 16. */
__global__ void load_rows(uint32_t offset, uint32_t *out)
{
    extern __shared__ __align__(128) unsigned char shared[];
    uint32_t r[4];
    load_matrix(r, shared_address(shared) + threadIdx.x % 8 * 16 + offset);
    out[threadIdx.x] = r[0];
}

__global__ void copy_to_shared(const unsigned char *from, uint32_t bytes)
{
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ uint64_t barrier;
    uint32_t at = shared_address(&barrier);
    if (threadIdx.x > 0) return;
    barrier_init(at, 1);
    barrier_arrive_expect(at, bytes);
    bulk_load(shared_address(shared), from, at, bytes);
    barrier_wait(at, 0);
}

__global__ void copy_16(const unsigned char *from)
{
    extern __shared__ __align__(128) unsigned char shared[];
    copy_async(shared_address(shared) + threadIdx.x * 16, from + threadIdx.x * 16, true);
    copy_commit();
    copy_wait<0>();
}

/* What the kernel behind it wants; it uses shared memory, too. */
__global__ void write_last(float *x)
{
    __shared__ float twice[THREADS];
    dependency_wait();
    twice[threadIdx.x] = 2.0f * x[0];
    __syncthreads();
    if (threadIdx.x == 0) x[0] = twice[THREADS - 1];
}

__global__ void read_ahead(const float *x, float *out)
{
    const float seen = x[0];
    dependency_wait();
    if (threadIdx.x == 0) out[blockIdx.x] = seen;
}

/* What it has put into shared memory ahead is still there. */
__global__ void read_behind(const float *x, float *out)
{
    __shared__ float ahead[THREADS];
    ahead[threadIdx.x] = (float)threadIdx.x;
    if (threadIdx.x < 16) dependency_wait();
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = x[0] + ahead[THREADS - 1];
}

float *new_floats(size_t count)
{
    float *x = NULL;
    assert_int_equal(cudaMalloc(&x, count * sizeof *x), cudaSuccess);
    return x;
}

/* Runs f in a process of its own, which has to end with a sentence that has text in it; NULL: has to go well. */
void expect(const char *text, const std::function<void()> &f)
{
    int ends[2], status;
    static char said[1 << 16];
    size_t length = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        f();
        cudaDeviceSynchronize();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t n;
         length < sizeof said - 1 && (n = read(ends[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)n;
    said[length] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    bool as_expected = text ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(said, text)
                            : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!as_expected) fail_msg("status %#x, not \"%s\": %s", status, text ? text : "", said);
}

void test_alignment(void **)
{
    float *out = new_floats(FLOATS);
    unsigned char *bytes = (unsigned char *)new_floats(FLOATS);
    expect("is no multiple of 8", [=] { pairs_behind_a_byte<<<1, THREADS, 0, d->stream>>>(out); });
    expect(NULL, [=] { aligned_pairs_behind_a_byte<<<1, THREADS, 0, d->stream>>>(out); });
    expect("tests/emulator/test_emulator.cu:",
           [=] { read_words<<<1, 1, 0, d->stream>>>(bytes + 8, (uint4 *)out); });
    expect(NULL, [=] { read_words<<<1, 1, 0, d->stream>>>(bytes + 16, (uint4 *)out); });
    expect("is no multiple of 16", [=] { load_rows<<<1, THREADS, 256, d->stream>>>(8u, (uint32_t *)out); });
    expect(NULL, [=] { load_rows<<<1, THREADS, 256, d->stream>>>(16u, (uint32_t *)out); });
    expect("is no multiple of 16", [=] { copy_16<<<1, 8, 128, d->stream>>>(bytes + 4); });
    expect(NULL, [=] { copy_16<<<1, 8, 128, d->stream>>>(bytes + 16); });
    expect("is no multiple of 16", [=] { copy_to_shared<<<1, THREADS, 128, d->stream>>>(bytes + 8, 64u); });
}

/* The largest power of two that variables are aligned to is their type's, or what they ask for. */
void test_variables_are_aligned_as_declared(void **)
{
    for (size_t alignment = 1; alignment <= 128; alignment *= 2) {
        assert_int_equal((uintptr_t)emulated::shared_variable(3 * alignment, alignment) % (2 * alignment),
                         alignment);
        for (size_t bytes = 0; bytes < 600; bytes += 100) {
            emulated::set_dynamic_shared(bytes);
            assert_int_equal((uintptr_t)emulated::dynamic_shared(alignment) % (2 * alignment), alignment);
        }
    }
}

void test_device_memory(void **)
{
    float *x = new_floats(FLOATS), *out = new_floats(1), *odd = new_floats(FLOATS + 1);
    auto write = [=](float *to, int32_t at) { write_float<<<1, 1, 0, d->stream>>>(to, at); };
    auto load = [=](int32_t at) { read_float<<<1, 1, 0, d->stream>>>(x, at, out); };
    expect(NULL, [=] { write(x, FLOATS - 1), load(0), cudaFree(x); });
    expect("0 bytes behind device memory of 400 bytes", [=] { write(x, FLOATS); });
    expect("0 bytes behind device memory of 400 bytes", [=] { load(FLOATS); });
    expect("65536 bytes behind device memory of 400 bytes", [=] { load(FLOATS + (64 << 8)); });
    expect("65536 bytes in front of device memory of 400 bytes", [=] { load(-(64 << 8)); });
    expect("in front of device memory of 400 bytes", [=] { write(x, -1), cudaFree(x); });
    expect("behind device memory of 404 bytes", [=] { write(odd, FLOATS + 1), cudaFree(odd); });
    expect("no memory", [=] { cudaFree(x), load(0); });
    expect("free already", [=] { cudaFree(x), cudaFree(x); });
    expect("behind device memory", [=] {
        float host[FLOATS + 1];
        cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
    });
    expect("behind device memory",
           [=] { copy_to_shared<<<1, THREADS, 1024, d->stream>>>((unsigned char *)x, 512u); });
}

/* What another CTA or another kernel has left there is not what is found. */
void test_shared_memory_is_nans_at_first(void **)
{
    float *out = new_floats(2);
    for (int turn = 0; turn < 2; turn++) {
        read_first<<<2, 1, 400, d->stream>>>(out);
        cudaDeviceSynchronize();
        for (int i = 0; i < 2; i++) assert_true(isnan(out[i]));
    }
}

void test_shared_memory(void **)
{
    float *out = new_floats(1);
    auto index = [=](int32_t row, int32_t column) { index_shared<<<1, 1, 0, d->stream>>>(row, column, out); };
    auto pass = [=](int32_t at) { pass_shared<<<1, 1, 0, d->stream>>>(at, out); };
    auto write = [=](int32_t at) { write_dynamic<<<1, 1, 400, d->stream>>>(at); };
    expect(NULL, [=] { index(1, THREADS - 1), pass(THREADS - 1), write(FLOATS - 1), write(0); });
    expect("index 32 of 'float [32]'", [=] { index(0, THREADS); });
    expect("index 2 of 'float [2][32]'", [=] { index(2, 0); });
    expect("behind a variable in shared memory of 128 bytes", [=] { pass(THREADS + 1); });
    expect("behind dynamic shared memory of 400 bytes", [=] { write(FLOATS + 8); });
    expect("somebody has written behind dynamic shared memory of 396 bytes",
           [=] { write_dynamic<<<1, 1, 396, d->stream>>>(FLOATS - 1); });
    expect("in front of dynamic shared memory of 400 bytes", [=] { write(-2048); });
}

/* Of a dependent launch one CTA begins before the kernel ahead has run, the others behind it. */
void test_dependent_launches(void **)
{
    enum { CTAS = 3 };
    float *x = new_floats(1), *out = new_floats(CTAS);
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(CTAS);
    config.blockDim = dim3(THREADS);
    config.attrs = &attribute;
    config.numAttrs = 1;
    auto count = [=](float value) { return (out[0] == value) + (out[1] == value) + (out[2] == value); };
    for (float turn = 1; turn < 10; turn++) {
        cudaDeviceSynchronize();
        x[0] = turn;
        write_last<<<1, THREADS, 0, d->stream>>>(x);
        cudaLaunchKernelEx(&config, read_behind, x, out);
        cudaDeviceSynchronize();
        assert_int_equal(count(2 * turn + THREADS - 1), CTAS);
        x[0] = turn;
        write_last<<<1, THREADS, 0, d->stream>>>(x);
        cudaLaunchKernelEx(&config, read_ahead, x, out);
        cudaDeviceSynchronize();
        assert_int_equal(count(turn), 1);
        assert_int_equal(count(2 * turn), CTAS - 1);
    }
}

} // namespace

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignment),     cmocka_unit_test(test_variables_are_aligned_as_declared),
        cmocka_unit_test(test_device_memory), cmocka_unit_test(test_shared_memory_is_nans_at_first),
        cmocka_unit_test(test_shared_memory), cmocka_unit_test(test_dependent_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
