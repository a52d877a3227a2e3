/* lab_cuda.cu - the GPU of the lab: problems in device memory, timings by events, and the read rate (lab_device.h). */
#include <math.h>
#include <stdlib.h>

#include <vector>

#include "base/check.h"
#include "lab/attention/cuda/tile.cuh"
extern "C" {
#include "lab/attention/lab_device.h"
}

extern "C" __attribute__((visibility("default"))) int lab_cuda_open(struct lab_device **out,
                                                                    struct error *err);

namespace
{

enum { READ_TRIES = 5 };
const size_t READ_BYTES = (size_t)2 << 30;

struct lab_cuda {
    struct lab_device base;
    struct problem *problem;
    struct lab_problem device;
    std::vector<void *> memory;
};

lab_cuda *cuda_of(struct lab_device *d)
{
    return (lab_cuda *)d;
}

int check(cudaError_t result, const char *what, struct error *err)
{
    if (result == cudaSuccess) return STATUS_OK;
    return error_set(err, STATUS_DEVICE, "the lab's %s: %s", what, cudaGetErrorString(result));
}

void release(lab_cuda *c)
{
    for (void *p : c->memory) cudaFree(p);
    c->memory.clear();
}

/* NULL where there is no room; released with the problem. */
template <class T> bool allocate(lab_cuda *c, T *&to, size_t count)
{
    void *p = NULL;
    if (cudaMalloc(&p, count * sizeof(T) + 16)) return false;
    c->memory.push_back(p);
    to = (T *)p;
    return true;
}

bool upload(lab_cuda *c, const __nv_bfloat16 *&to, const float *from, size_t count)
{
    std::vector<__nv_bfloat16> narrow(count);
    __nv_bfloat16 *p;
    for (size_t i = 0; i < count; i++) narrow[i] = __float2bfloat16(from[i]);
    if (!allocate(c, p, count)) return false;
    to = p;
    return cudaMemcpy(p, narrow.data(), count * sizeof *p, cudaMemcpyHostToDevice) == cudaSuccess;
}

bool allocate_results(lab_cuda *c, const struct shape &s)
{
    struct lab_problem &d = c->device;
    size_t rows = (size_t)s.num_heads * s.num_queries, keys = (size_t)s.num_heads * s.num_keys,
           dim = s.head_dim;
    size_t splits = (s.num_keys + LAB_SPLIT - 1) / LAB_SPLIT, tiles = (s.num_keys + LAB_TILE - 1) / LAB_TILE;
    bool fine =
        allocate(c, d.out, rows * dim) && allocate(c, d.d_k, keys * dim) && allocate(c, d.d_v, keys * dim);
    fine = fine && allocate(c, d.out_f32, rows * dim) && allocate(c, d.d_q, rows * dim) &&
           allocate(c, d.lse, rows);
    fine =
        fine && allocate(c, d.row_max, rows) && allocate(c, d.row_sum, rows) && allocate(c, d.row_dots, rows);
    fine = fine && allocate(c, d.partials, (size_t)s.num_heads * splits * (dim + 1)) &&
           allocate(c, d.bounds, tiles);
    return fine && allocate(c, d.fallbacks, (size_t)s.num_heads) && allocate(c, d.traffic, 2);
}

bool upload_problem(lab_cuda *c, const struct problem *p)
{
    const struct shape &s = p->shape;
    struct lab_problem &d = c->device;
    size_t q = (size_t)s.num_heads * s.num_queries * s.head_dim,
           k = (size_t)s.num_heads * s.num_keys * s.head_dim;
    int32_t *hidden = NULL;
    bool fine = upload(c, d.q, p->q, q) && upload(c, d.d_out, p->d_out, q) && upload(c, d.k, p->k, k);
    fine = fine && upload(c, d.v, p->v, k) && allocate(c, hidden, 4 * (size_t)s.num_keys);
    d.hidden = hidden;
    return fine && cudaMemcpy(hidden, p->hidden.lower_start, 4 * (size_t)s.num_keys * sizeof *hidden,
                              cudaMemcpyHostToDevice) == cudaSuccess;
}

/* Both matrices, only for rows that want them: they are most of the memory. */
bool allocate_matrices(lab_cuda *c)
{
    struct lab_problem &d = c->device;
    size_t count = (size_t)d.num_heads * d.num_queries * d.row_stride;
    return d.scores || (allocate(c, d.scores, count) && allocate(c, d.weights, count));
}

int load(struct lab_device *device, struct problem *p, struct error *err)
{
    lab_cuda *c = cuda_of(device);
    const struct shape &s = p->shape;
    release(c);
    cudaGetLastError();
    c->problem = p;
    c->device = {};
    c->device.num_heads = s.num_heads;
    c->device.num_queries = s.num_queries;
    c->device.num_keys = s.num_keys;
    c->device.row_stride = (s.num_keys + 7) / 8 * 8;
    c->device.mask = s.mask;
    c->device.scale_log2 = p->scale * 1.44269504f;
    c->device.unified_max = p->unified_max;
    if (s.head_dim != 64 && s.head_dim != 128)
        return error_set(err, STATUS_UNSUPPORTED, "the lab's GPU kernels have heads of 64 and 128, not %d",
                         s.head_dim);
    if (!upload_problem(c, p) || !allocate_results(c, s))
        return error_set(err, STATUS_NO_MEMORY, "no GPU memory for %d tokens: %s", s.num_keys,
                         cudaGetErrorString(cudaGetLastError()));
    return STATUS_OK;
}

void launch(lab_cuda *c, enum lab_id id, bool count)
{
    const struct lab_problem *p = &c->device;
    int32_t dim = c->problem->shape.head_dim;
    if (id == LAB_STANDARD || id == LAB_ONLINE_SOFTMAX)
        lab_launch_standard(p, dim, id == LAB_ONLINE_SOFTMAX, count);
    if (id == LAB_FLASH1) lab_launch_flash1(p, dim, count);
    if (id == LAB_FLASH2) lab_launch_flash2(p, dim, false, count);
    if (id == LAB_FLASH2_BACKWARD) lab_launch_backward(p, dim, count);
    if (id == LAB_FLASH_MASK) lab_launch_flash2(p, dim, true, count);
    if (id == LAB_FLASH_DECODING) lab_launch_decoding(p, dim, false, count);
    if (id == LAB_FLASH_DECODING_PLUS) lab_launch_decoding(p, dim, true, count);
}

int prepare(lab_cuda *c, enum lab_id id, struct error *err)
{
    bool whole = id == LAB_STANDARD || id == LAB_ONLINE_SOFTMAX;
    if (!whole || allocate_matrices(c)) return STATUS_OK;
    return error_set(err, STATUS_NO_MEMORY, "no GPU memory for the N x N matrices of %d tokens",
                     c->problem->shape.num_keys);
}

int run(struct lab_device *device, enum lab_id id, int times, double *seconds, struct error *err)
{
    lab_cuda *c = cuda_of(device);
    cudaEvent_t begin, end;
    float ms = 0;
    int status = prepare(c, id, err);
    if (status) return status;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    cudaEventRecord(begin);
    for (int i = 0; i < times; i++) launch(c, id, false);
    cudaEventRecord(end);
    cudaError_t result = cudaEventSynchronize(end);
    if (!result) result = cudaEventElapsedTime(&ms, begin, end);
    if (!result) result = cudaGetLastError();
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    *seconds = (double)ms * 1e-3;
    return check(result, "kernel", err);
}

int count(struct lab_device *device, enum lab_id id, struct traffic *t, struct error *err)
{
    lab_cuda *c = cuda_of(device);
    unsigned long long sums[2] = {};
    int status = prepare(c, id, err);
    if (status) return status;
    cudaMemset(c->device.traffic, 0, sizeof sums);
    launch(c, id, true);
    cudaError_t result = cudaMemcpy(sums, c->device.traffic, sizeof sums, cudaMemcpyDeviceToHost);
    t->loaded = sums[0];
    t->stored = sums[1];
    return check(result, "kernel", err);
}

cudaError_t download(float *to, const __nv_bfloat16 *from, size_t count)
{
    std::vector<__nv_bfloat16> narrow(count);
    cudaError_t result = cudaMemcpy(narrow.data(), from, count * sizeof *from, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < count; i++) to[i] = __bfloat162float(narrow[i]);
    return result;
}

int fetch(struct lab_device *device, enum lab_id id, struct error *err)
{
    lab_cuda *c = cuda_of(device);
    struct problem *p = c->problem;
    const struct lab_problem &d = c->device;
    size_t q = (size_t)d.num_heads * d.num_queries * p->shape.head_dim,
           k = (size_t)d.num_heads * d.num_keys * p->shape.head_dim;
    cudaError_t result = cudaSuccess;
    if (id == LAB_FLASH2_BACKWARD) {
        result = cudaMemcpy(p->d_q, d.d_q, q * sizeof(float), cudaMemcpyDeviceToHost);
        if (!result) result = download(p->d_k, d.d_k, k);
        if (!result) result = download(p->d_v, d.d_v, k);
    } else if (id == LAB_FLASH1) {
        result = cudaMemcpy(p->out, d.out_f32, q * sizeof(float), cudaMemcpyDeviceToHost);
    } else {
        result = download(p->out, d.out, q);
    }
    if (!result && id == LAB_FLASH_DECODING_PLUS) {
        std::vector<int32_t> flags(d.num_heads);
        result =
            cudaMemcpy(flags.data(), d.fallbacks, flags.size() * sizeof(int32_t), cudaMemcpyDeviceToHost);
        p->num_fallbacks = 0;
        for (int32_t flag : flags) p->num_fallbacks += flag;
    }
    return check(result, "results", err);
}

__global__ void read_all(const uint4 *words, size_t num_words, unsigned *sum)
{
    unsigned sums = 0;
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i + 3 * stride < num_words;
         i += 4 * stride) {
        uint4 w[4];
#pragma unroll
        for (int k = 0; k < 4; k++) w[k] = __ldcs(words + i + k * stride);
#pragma unroll
        for (int k = 0; k < 4; k++) sums += w[k].x ^ w[k].y ^ w[k].z ^ w[k].w;
    }
    if (sums == 12345) atomicAdd(sum, sums); /* or nothing would be read */
}

double bytes_per_second(struct lab_device *device)
{
    lab_cuda *c = cuda_of(device);
    uint4 *words = NULL;
    unsigned *sum = NULL;
    double best = 0;
    if (!allocate(c, words, READ_BYTES / sizeof *words) || !allocate(c, sum, 1)) return 0;
    cudaMemset(words, 1, READ_BYTES);
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < READ_TRIES; i++) {
        float ms = 1;
        cudaEventRecord(begin);
        read_all<<<2048, 512>>>(words, READ_BYTES / sizeof *words, sum);
        cudaEventRecord(end);
        cudaEventSynchronize(end);
        cudaEventElapsedTime(&ms, begin, end);
        best = max_of(best, READ_BYTES * 1e3 / (double)ms);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    release(c);
    return best;
}

void close(struct lab_device *device)
{
    release(cuda_of(device));
    delete cuda_of(device);
}

} // namespace

int lab_cuda_open(struct lab_device **out, struct error *err)
{
    /* The server's device, when it was closed, has reset the GPU: this library's runtime must learn of it, and comes first. */
    int status = check(cudaDeviceReset(), "GPU", err);
    if (status) return status;
    lab_cuda *c = new lab_cuda();
    c->base.bytes_per_second = bytes_per_second;
    c->base.load = load;
    c->base.run = run;
    c->base.count = count;
    c->base.fetch = fetch;
    c->base.close = close;
    for (int i = 0; i < NUM_LAB_ALGORITHMS; i++)
        if (!algorithm_is_servers((enum lab_id)i))
            c->base.geometries[i] = geometry{sizeof(__nv_bfloat16), sizeof(float), LAB_TILE, LAB_SPLIT};
    *out = &c->base;
    return STATUS_OK;
}
