/* memory.h - the emulated GPU's memory, in which nothing lies behind what a kernel may touch and nothing is aligned better than
 * it has to be: on a GPU a neighbour may stand there, or nothing at all.
 *
 * An access that the alignment of its type forbids, an index beyond an array, and an access to no memory (memory.cc) end the
 * process with a sentence and the calls that led there. */
#ifndef EMULATOR_MEMORY_H
#define EMULATOR_MEMORY_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace emulated
{

/* SHARED_BYTES: of a CTA; of GPUs like 8.6 and 8.9 FEW. ARENA_BYTES: what addresses of 32 bits count in, from its beginning; a product's descriptor has 18 bits. */
enum { SHARED_BYTES = 227 << 10, SHARED_BYTES_FEW = 99 << 10, ARENA_BYTES = 256 << 10 };

extern unsigned char arena[];

/* Says where on the emulated GPU it happened, and what called it. */
[[noreturn]] void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Of addresses that are a multiple of alignment and of no higher power of two the last one from which bytes end before end. */
static inline uintptr_t last_place(uintptr_t end, size_t bytes, size_t alignment)
{
    uintptr_t place = (end - bytes) & ~(uintptr_t)(alignment - 1);
    return place & alignment ? place : place - alignment;
}

/* A __shared__ variable, for the process's life. */
void *shared_variable(size_t bytes, size_t alignment);
template <typename T, size_t ALIGNMENT = 1> T &shared(void)
{
    return *(T *)shared_variable(sizeof(T), alignof(T) > ALIGNMENT ? alignof(T) : ALIGNMENT);
}

/* Dynamic shared memory: so many bytes for the launches from here on, and their address for a kernel that declares it so aligned. */
void set_dynamic_shared(size_t bytes);
unsigned char *dynamic_shared(size_t alignment);

/* Around each CTA: all shared memory is NaNs when it begins, and nothing has been written behind the dynamic one when it ends. */
void forget_shared(void);
void check_shared(void);

/* All shared memory, while another CTA has its place. */
struct shared_image {
    size_t dynamic_bytes;
    uintptr_t dynamic_end;
    std::vector<unsigned char> bytes;
};
struct shared_image save_shared(void);
void restore_shared(const struct shared_image &image);

/* Device memory and what of the host's a GPU reads. The end is rounded up to 16 bytes, which is then the address's alignment;
 * CUDA's is 256. What nobody has written is NaNs. NULL: none. What has been released is never used again;
 * release says how many bytes it was. */
void *device_memory(size_t bytes);
size_t release_device_memory(void *p);

/* While it lives an access to no memory is reported; a test's framework may have a handler of its own. */
class watch
{
  public:
    watch(void);
    ~watch(void);
    watch(const watch &) = delete;

  private:
    alignas(16) unsigned char before[256]; /* struct sigaction */
};

/* For accesses that are no C++: of so many bytes, at a multiple of them. */
static inline void want_aligned(const void *p, size_t alignment)
{
    if ((uintptr_t)p % alignment != 0) fail("%p is no multiple of %zu", p, alignment);
}

} // namespace emulated

#endif
