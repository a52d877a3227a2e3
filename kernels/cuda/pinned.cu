/* pinned.cu - pinned memory of the host. Huge pages take half of the time that the driver's own memory does, most of it the kernel's
 * zeros: 64 MB in 22 to 24 ms where cudaHostAlloc takes 46 (one H200). */
#include "kernels/cuda/pinned.cuh"

#include <sys/mman.h>

#include <vector>

namespace
{

enum { HUGE_PAGE_BYTES = 2 << 20 };

struct mapping {
    void *data;
    size_t num_bytes; /* 0: cudaHostAlloc's */
};

/* Whole huge pages, or NULL. */
void *map_huge_pages(size_t num_bytes)
{
    unsigned char *begin = (unsigned char *)mmap(NULL, num_bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED) return NULL;
    size_t before = align_up((size_t)begin, HUGE_PAGE_BYTES) - (size_t)begin;
    if (before > 0) munmap(begin, before);
    munmap(begin + before + num_bytes, HUGE_PAGE_BYTES - before);
    madvise(begin + before, num_bytes, MADV_HUGEPAGE); /* where there are none, small ones do */
    return begin + before;
}

bool pin_huge_pages(struct mapping *m, size_t num_bytes)
{
    m->num_bytes = align_up(num_bytes, HUGE_PAGE_BYTES);
    m->data = map_huge_pages(m->num_bytes);
    if (!m->data) return false;
    if (cudaHostRegister(m->data, m->num_bytes, cudaHostRegisterDefault) == cudaSuccess) return true;
    cudaGetLastError(); /* it is not the device's: cudaHostAlloc is asked next */
    munmap(m->data, m->num_bytes);
    return false;
}

void unpin(const struct mapping &m)
{
    if (m.num_bytes == 0) {
        cudaFreeHost(m.data);
        return;
    }
    cudaHostUnregister(m.data);
    munmap(m.data, m.num_bytes);
}

} // namespace

struct pinned {
    std::vector<struct mapping> mappings;
};

void *cuda_pinned_alloc(struct cuda_device *d, size_t num_bytes)
{
    struct mapping m = {};
    if (!d->pinned) d->pinned = new struct pinned();
    if (num_bytes < HUGE_PAGE_BYTES || !pin_huge_pages(&m, num_bytes)) {
        m.num_bytes = 0;
        if (!CUDA_CHECK(d, cudaHostAlloc(&m.data, num_bytes, cudaHostAllocDefault))) return NULL;
    }
    d->pinned->mappings.push_back(m);
    return m.data;
}

void cuda_pinned_free(struct cuda_device *d, void *data)
{
    if (!data) return;
    std::vector<struct mapping> &mappings = d->pinned->mappings;
    size_t i = 0;
    while (mappings[i].data != data) i++;
    unpin(mappings[i]);
    mappings.erase(mappings.begin() + (ptrdiff_t)i);
}

void cuda_pinned_forget(struct cuda_device *d)
{
    if (!d->pinned) return;
    for (const struct mapping &m : d->pinned->mappings) unpin(m);
    delete d->pinned;
    d->pinned = NULL;
}
