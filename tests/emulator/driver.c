/* driver.c - of libcuda.so.1 what is asked before the CUDA device is loaded (kernels/device.c): there is one GPU. */
int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);

int cuInit(unsigned flags)
{
    (void)flags;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}
