/* runtime.cc - of CUDA's runtime and cuBLASLt what the CUDA device calls. Copies and memsets are done as late as they may (streams.h), a
 * kernel when something follows or is waited for (run_grid); what is queued while a stream is captured is the graph's. In the environment EMULATED_GPU: 80 (the default), a GPU of compute capability 8.0, or 90; EMULATED_SMS:
 * how many SMs it has. */
#include "tests/emulator/machine.h"
#include "tests/emulator/streams.h"

#include <atomic>
#include <cstdlib>
#include <vector>

struct CUgraph_st {
    std::vector<std::function<void()>> work;
};

namespace
{

thread_local CUgraph_st *captured;
enum { NUM_SMS = 6 }; /* unless it is said */

const size_t TOTAL_BYTES = (size_t)4 << 30;
std::atomic<size_t> taken; /* of device memory */

int capability(void)
{
    const char *text = getenv("EMULATED_GPU");
    return text ? atoi(text) : 80;
}

/* Of a CTA: 8.0, 9.0 and 10.0 have as much as there is, or little less. */
size_t shared_bytes(void)
{
    return capability() % 10 == 0 && capability() <= 100 ? emulated::SHARED_BYTES
                                                         : emulated::SHARED_BYTES_FEW;
}

int num_sms(void)
{
    const char *text = getenv("EMULATED_SMS");
    return text ? atoi(text) : NUM_SMS;
}

/* Of the default stream at once. */
void put_off(cudaStream_t stream, std::function<void()> work)
{
    if (captured || !stream)
        emulated::queue(stream, std::move(work));
    else
        emulated::put_off(stream, std::move(work));
}

void move(void *to, const void *from, size_t bytes)
{
    emulated::finish_grids();
    emulated::watch until_it_ends;
    memmove(to, from, bytes);
}

/* What of the host is not pinned is read before this returns, and written, too. */
cudaError_t copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    const bool is_late = stream && !captured;
    if (is_late && !emulated::is_known(to)) {
        emulated::catch_up(stream);
        move(to, from, bytes);
    } else if (!is_late || emulated::is_known(from)) {
        put_off(stream, [=] { move(to, from, bytes); });
    } else {
        const std::vector<unsigned char> taken((const unsigned char *)from,
                                               (const unsigned char *)from + bytes);
        emulated::put_off(stream, [=] { move(to, taken.data(), bytes); });
    }
    return cudaSuccess;
}

CUresult encode(CUtensorMap *map, CUtensorMapDataType, cuuint32_t rank, void *data, const cuuint64_t *sizes,
                const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *, CUtensorMapInterleave,
                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill)
{
    emulated::tensor_map m = {};
    static_assert(sizeof m <= sizeof *map);
    if ((uintptr_t)data % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i + 1 < rank; i++)
        if (strides[i] % 16 != 0) return CUDA_ERROR_INVALID_VALUE;
    m.data = (unsigned char *)data;
    m.rank = rank;
    m.swizzle_bits = swizzle == CU_TENSOR_MAP_SWIZZLE_128B  ? 3
                     : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 2
                     : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 1
                                                            : 0;
    for (cuuint32_t i = 0; i < rank; i++) {
        m.box[i] = box[i];
        m.sizes[i] = sizes[i];
        m.strides[i] = i == 0 ? 2 : strides[i - 1];
    }
    memcpy(map, &m, sizeof m);
    return CUDA_SUCCESS;
}

} // namespace

void emulated::queue(cudaStream_t stream, std::function<void()> work)
{
    if (captured) {
        captured->work.push_back(std::move(work));
        return;
    }
    catch_up(stream);
    work();
}

extern "C" {

/* ---- devices ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    *p = {};
    strcpy(p->name, "an emulated GPU");
    p->major = capability() / 10;
    p->minor = capability() % 10;
    p->multiProcessorCount = num_sms();
    p->sharedMemPerBlockOptin = shared_bytes();
    p->totalGlobalMem = TOTAL_BYTES;
    return cudaSuccess;
}

/* Clocks and widths, of which it has none. */
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr, int)
{
    *value = 0;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_now, size_t *total)
{
    *total = TOTAL_BYTES;
    *free_now = taken < TOTAL_BYTES ? TOTAL_BYTES - taken : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int)
{
    *can = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}
cudaError_t cudaDeviceReset(void)
{
    emulated::catch_up_all();
    emulated::finish_grids();
    taken = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void)
{
    emulated::catch_up_all();
    emulated::finish_grids();
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}
cudaError_t cudaPeekAtLastError(void)
{
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t)
{
    return "an error of the emulated GPU";
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *found)
{
    *function = (void *)encode;
    *found = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *)
{
    *a = {};
    a->ptxVersion = 90;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *, cudaFuncAttribute, int)
{
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveClusters(int *num, const void *, const cudaLaunchConfig_t *)
{
    *num = 0;
    return cudaSuccess;
}

/* ---- memory ---- */

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    *p = bytes > (size_t)8 << 30 ? NULL : emulated::device_memory(bytes);
    if (*p) emulated::add_known(*p, bytes);
    return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFreeHost(void *p)
{
    emulated::catch_up_all();
    emulated::finish_grids();
    emulated::remove_known(p);
    emulated::release_device_memory(p);
    return cudaSuccess;
}

/* More than there is is no error: tests of large indices want it. */
cudaError_t cudaMalloc(void **p, size_t bytes)
{
    cudaError_t result = cudaHostAlloc(p, bytes, 0);
    if (result == cudaSuccess) taken += bytes;
    return result;
}

cudaError_t cudaFree(void *p)
{
    emulated::catch_up_all();
    emulated::finish_grids();
    emulated::remove_known(p);
    taken -= emulated::release_device_memory(p);
    return cudaSuccess;
}
cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned)
{
    emulated::add_known(p, bytes);
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p)
{
    emulated::catch_up_all();
    emulated::remove_known(p);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind)
{
    return copy(to, from, bytes, NULL);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream)
{
    return copy(to, from, bytes, stream);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream)
{
    put_off(stream, [=] {
        emulated::finish_grids();
        emulated::watch until_it_ends;
        memset(p, value, bytes);
    });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *p, int value, size_t bytes)
{
    return cudaMemsetAsync(p, value, bytes, NULL);
}

/* ---- streams, events, graphs ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned)
{
    *s = emulated::make_stream();
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    emulated::catch_up(s);
    emulated::finish_grids();
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s)
{
    return cudaStreamSynchronize(s);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    if (!captured) emulated::put_off_until(s, e);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned)
{
    *e = emulated::make_event();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *e)
{
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t)
{
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    if (!captured) emulated::record(e, s);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    emulated::wait_for(e);
    emulated::finish_grids();
    return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t e)
{
    return cudaEventSynchronize(e);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t, cudaEvent_t)
{
    *ms = 1;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus *status)
{
    *status = captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode)
{
    captured = new CUgraph_st();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t *graph)
{
    *graph = captured;
    captured = NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = (cudaGraphExec_t) new CUgraph_st(*graph);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete (CUgraph_st *)exec;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s)
{
    emulated::catch_up(s);
    for (const auto &work : ((CUgraph_st *)exec)->work) work();
    return cudaSuccess;
}

/* ---- cuBLASLt has no algorithm for anything: products are our own ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t,
                                              const void *, size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t)
{
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                    cublasLtMatmulPreferenceAttributes_t, const void *,
                                                    size_t)
{
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                              cublasLtMatmulHeuristicResult_t *, int *num)
{
    *num = 0;
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,
                              cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *,
                              const void *, cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t,
                              const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t)
{
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

} // extern "C"
