/* device_memory.cu - memory of the device, and copies to it and from it. */
#include "kernels/cuda/device.cuh"

uint64_t cuda_free_bytes(struct device *device)
{
    size_t free_now = 0, total = 0;
    CUDA_CHECK(cuda_enter(device), cudaMemGetInfo(&free_now, &total));
    return free_now;
}

void *cuda_alloc(struct device *device, size_t bytes, const char *what)
{
    struct cuda_device *d = cuda_enter(device);
    assert_always(!d->is_sealed);
    (void)what;
    void *p = NULL;
    if (cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) {
        cudaGetLastError(); /* no room is the caller's to report, not a device fault */
        return NULL;
    }
    CUDA_CHECK(d, cudaMemsetAsync(p, 0, bytes, d->stream));
    return p;
}

/* On the device's own stream: cudaMemcpy may return while its last part is still on the way, and that stream does not wait
 * for the default one. */
int cuda_upload(struct device *device, void *to, const void *from, size_t bytes)
{
    struct cuda_device *d = cuda_enter(device);
    if (d->weight_stages) return cuda_upload_staged(d, to, from, bytes) ? STATUS_OK : STATUS_DEVICE;
    CUDA_CHECK(d, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, d->stream));
    return CUDA_CHECK(d, cudaStreamSynchronize(d->stream)) ? STATUS_OK : STATUS_DEVICE;
}

int cuda_download(struct device *device, void *to, const void *from, size_t bytes)
{
    struct cuda_device *d = cuda_enter(device);
    CUDA_CHECK(d, cudaStreamSynchronize(d->stream));
    return CUDA_CHECK(d, cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost)) ? STATUS_OK : STATUS_DEVICE;
}

int cuda_write_f32(struct device *device, void *to, const float *from, size_t count, bool res)
{
    if (res) return cuda_upload(device, to, from, count * 4);
    __nv_bfloat16 *values = new __nv_bfloat16[count];
    for (size_t i = 0; i < count; i++) values[i] = __float2bfloat16_rn(from[i]);
    int status = cuda_upload(device, to, values, count * 2);
    delete[] values;
    return status;
}

int cuda_read_f32(struct device *device, float *to, const void *from, size_t count, bool res)
{
    if (res) return cuda_download(device, to, from, count * 4);
    __nv_bfloat16 *values = new __nv_bfloat16[count];
    int status = cuda_download(device, values, from, count * 2);
    for (size_t i = 0; i < count; i++) to[i] = __bfloat162float(values[i]);
    delete[] values;
    return status;
}
