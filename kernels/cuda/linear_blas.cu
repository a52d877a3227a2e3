/* linear_blas.cu - products x W^T by cuBLASLt. What its algorithms do is not promised anywhere: each is compared with a product of our
 * own that walks K in order (linear_plain.cu) before it is used. */
#include "kernels/cuda/linear_blas.cuh"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "kernels/cuda/linear_plain.cuh"

namespace
{

enum { ALGORITHMS_MAX = 8, BLAS_COLUMNS_MIN = 1024 /* of 16 rows each is compared */ };

struct shape {
    int32_t n, k, rows;
    bool wide_output;
    const void *weight; /* NULL: not there yet */
};

} // namespace

/* Shapes on their way to the thread that loads their kernels. */
struct blas_loader {
    std::mutex lock;
    std::condition_variable changed;
    std::deque<struct shape> shapes;
    bool is_last; /* no more will come */
    std::thread thread;
};

namespace
{

struct blas_plan describe(const struct shape &s)
{
    struct blas_plan p = {};
    cudaDataType_t out_type = s.wide_output ? CUDA_R_32F : CUDA_R_16BF;
    cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
    cublasLtMatmulDescCreate(&p.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed);
    cublasLtMatmulDescSetAttribute(p.desc, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain);
    cublasLtMatrixLayoutCreate(&p.a, CUDA_R_16BF, (uint64_t)s.k, (uint64_t)s.n, s.k);
    cublasLtMatrixLayoutCreate(&p.b, CUDA_R_16BF, (uint64_t)s.k, (uint64_t)s.rows, s.k);
    cublasLtMatrixLayoutCreate(&p.c, out_type, (uint64_t)s.n, (uint64_t)s.rows, s.n);
    return p;
}

void forget(struct blas_plan *p)
{
    cublasLtMatrixLayoutDestroy(p->a);
    cublasLtMatrixLayoutDestroy(p->b);
    cublasLtMatrixLayoutDestroy(p->c);
    cublasLtMatmulDescDestroy(p->desc);
}

/* From what cuBLASLt holds to be the fastest on; returns how many. */
int find_algorithms(const struct cuda_device *d, const struct blas_plan &p,
                    cublasLtMatmulHeuristicResult_t results[ALGORITHMS_MAX])
{
    cublasLtMatmulPreference_t preference;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE; /* no split K */
    int found = 0;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &d->blas_workspace_bytes, sizeof d->blas_workspace_bytes);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions,
                                         sizeof reductions);
    cublasLtMatmulAlgoGetHeuristic(d->blas, p.desc, p.a, p.b, p.c, p.c, preference, ALGORITHMS_MAX, results,
                                   &found);
    cublasLtMatmulPreferenceDestroy(preference);
    return found;
}

bool run(const struct cuda_device *d, const struct blas_plan &p, void *out, const void *x, const void *w,
         cudaStream_t stream)
{
    float one = 1, zero = 0;
    return cublasLtMatmul(d->blas, p.desc, &one, w, p.a, x, p.b, &zero, out, p.c, out, p.c, &p.algo,
                          d->blas_workspace, d->blas_workspace_bytes, stream) == CUBLAS_STATUS_SUCCESS;
}

/* The first algorithm that computes this product in order. Until a stream is recorded: comparing waits for it. */
void choose_algorithm(struct cuda_device *d, struct blas_plan *p, int32_t rows, void *out, const void *x,
                      const struct linear *w)
{
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS_MAX];
    cudaStreamCaptureStatus recording = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(d->stream, &recording);
    if (recording != cudaStreamCaptureStatusNone) return;
    int found = find_algorithms(d, *p, results);
    for (int i = 0; i < found && !p->usable; i++) {
        p->algo = results[i].algo;
        p->usable = run(d, *p, out, x, w->weight, d->stream) && cuda_linear_is_plain(d, rows, out, x, w);
    }
}

} // namespace

bool cuda_blas_is_compared(const struct linear *w)
{
    return w->n % 8 == 0 && w->k % 8 == 0 && w->n >= BLAS_COLUMNS_MIN;
}

bool cuda_blas(struct cuda_device *d, blas_plans *plans, int32_t rows, void *out, const void *x,
               const struct linear *w)
{
    auto it = plans->find(rows);
    if (it == plans->end()) {
        cuda_blas_loaded(d); /* who loads kernels has the workspace */
        it = plans->emplace(rows, describe({w->n, w->k, rows, w->wide_output, w->weight})).first;
        choose_algorithm(d, &it->second, rows, out, x, w);
    }
    if (!it->second.usable) return false;
    if (!run(d, it->second, out, x, w->weight, d->stream)) cuda_check(d, cudaErrorUnknown, "cublasLtMatmul");
    return true;
}

/* ---- loading ---- */

namespace
{

/* What a product that is run for its kernel's sake reads and writes: nobody wants the values. */
struct scratch {
    void *data;
    size_t num_bytes;
};

bool reserve(struct scratch *s, size_t num_bytes)
{
    if (num_bytes <= s->num_bytes) return true;
    cudaFree(s->data); /* waits for who uses it */
    *s = {};
    if (cudaMalloc(&s->data, num_bytes) != cudaSuccess) return false;
    s->num_bytes = num_bytes;
    return true;
}

/* Run, not recorded: while a stream of one thread is recorded launches of others that load their kernel, too, were seen to fail. */
void load(const struct cuda_device *d, const struct shape &s, struct scratch *scratch, cudaStream_t stream)
{
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS_MAX];
    struct blas_plan p = describe(s);
    const size_t w_bytes = s.weight ? 0 : (size_t)s.n * s.k * 2, x_bytes = (size_t)s.rows * s.k * 2,
                 out_bytes = (size_t)s.rows * s.n * (s.wide_output ? 4 : 2);
    if (find_algorithms(d, p, results) > 0 &&
        reserve(scratch, std::max(w_bytes, std::max(x_bytes, out_bytes)))) {
        p.algo = results[0].algo;
        run(d, p, scratch->data, scratch->data, s.weight ? s.weight : scratch->data, stream);
    }
    forget(&p);
}

/* False at the end. */
bool take_shape(struct blas_loader *l, struct shape *out)
{
    std::unique_lock<std::mutex> held(l->lock);
    l->changed.wait(held, [l] { return l->is_last || !l->shapes.empty(); });
    if (l->shapes.empty()) return false;
    *out = l->shapes.front();
    l->shapes.pop_front();
    return true;
}

/* What fails here fails again where it is told. */
void load_all(const struct cuda_device *d, struct blas_loader *l)
{
    struct shape s;
    struct scratch scratch = {};
    cudaStream_t stream;
    if (cudaSetDevice(d->ordinal) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        return;
    while (take_shape(l, &s)) load(d, s, &scratch, stream);
    cudaStreamSynchronize(stream);
    cudaFree(scratch.data);
    cudaStreamDestroy(stream);
}

struct blas_loader *begin_loader(const struct cuda_device *d)
{
    struct blas_loader *l = new struct blas_loader();
    try {
        l->thread = std::thread([d, l] { load_all(d, l); });
    } catch (const std::system_error &) { /* then the first products load what they need */
    }
    return l;
}

} // namespace

void cuda_blas_load(struct cuda_device *d, const struct linear *w, const std::vector<int32_t> &rows)
{
    if (!d->blas_loader) d->blas_loader = begin_loader(d);
    std::lock_guard<std::mutex> held(d->blas_loader->lock);
    for (int32_t r : rows) d->blas_loader->shapes.push_back({w->n, w->k, r, w->wide_output, w->weight});
    d->blas_loader->changed.notify_one();
}

void cuda_blas_loaded(struct cuda_device *d)
{
    struct blas_loader *l = d->blas_loader;
    if (!l) return;
    {
        std::lock_guard<std::mutex> held(l->lock);
        l->is_last = true;
        l->changed.notify_one();
    }
    if (l->thread.joinable()) l->thread.join();
    delete l;
    d->blas_loader = NULL;
}
