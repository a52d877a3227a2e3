/* memory.cc - memory between pages that nobody may touch: see memory.h. x86-64, Linux. */
#include "tests/emulator/machine.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <execinfo.h>
#include <map>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace emulated
{

namespace
{

/* GUARD_BYTES: on either side of device memory. VARIABLES_BYTES: for __shared__ variables, those of each instance of a template. */
enum {
    PAGE = 4096,
    GUARD_BYTES = 1 << 20,
    VARIABLES_BYTES = 64 << 20,
    DYNAMIC_ALIGNMENT_MAX = 128,
    FRAMES_MAX = 32
};

struct piece {
    size_t bytes;
    const char *what;
};

/* By address. It is there when the first __shared__ variable is, which is before main. */
std::map<uintptr_t, struct piece> &pieces(void)
{
    static auto *all = new std::map<uintptr_t, struct piece>();
    return *all;
}
std::vector<std::pair<void *, size_t>> &variables_of_all(void)
{
    static auto *all = new std::vector<std::pair<void *, size_t>>();
    return *all;
}
std::mutex lock;

size_t dynamic_bytes;
uintptr_t dynamic_end; /* as the kernel that runs has it */

uintptr_t rounded_up(uintptr_t x, uintptr_t to)
{
    return (x + to - 1) / to * to;
}

void protect(uintptr_t from, uintptr_t to, int how)
{
    if (to > from && mprotect((void *)from, to - from, how) != 0) fail("mprotect: %m");
}

/* The instruction that has made the fault that is being reported. */
const void *faulty;

/* The calls that led here, by file and line. */
void show_stack(void)
{
    void *frames[FRAMES_MAX];
    Dl_info here, there;
    if (!dladdr((void *)show_stack, &here)) return;
    std::string command = std::string("addr2line -ipe ") + here.dli_fname;
    for (int i = 0, num = backtrace(frames, FRAMES_MAX); i < num; i++) {
        char text[32];
        if (!dladdr(frames[i], &there) || there.dli_fbase != here.dli_fbase) continue;
        const size_t at = (size_t)((char *)frames[i] - (char *)here.dli_fbase);
        snprintf(text, sizeof text, " %#zx",
                 frames[i] == faulty ? at : at - 1); /* behind a call is the next line */
        command += text;
    }
    command += " | grep -v '/c++/\\|tests/emulator/m' 1>&2"; /* what is not the emulator's own */
    if (system(command.c_str()) != 0) fprintf(stderr, "(no addr2line)\n");
}

/* What is nearest to an address that is nobody's. */
void describe(char *text, size_t room, uintptr_t at)
{
    auto next = pieces().upper_bound(at);
    snprintf(text, room, "%p is nobody's", (void *)at);
    if (next != pieces().begin()) {
        auto before = std::prev(next);
        const uintptr_t end = before->first + before->second.bytes;
        if (at >= end && at - end < GUARD_BYTES) {
            snprintf(text, room, "%zu bytes behind %s of %zu bytes", (size_t)(at - end), before->second.what,
                     before->second.bytes);
            return;
        }
    }
    if (next != pieces().end() && next->first - at < GUARD_BYTES)
        snprintf(text, room, "%zu bytes in front of %s of %zu bytes", (size_t)(next->first - at),
                 next->second.what, next->second.bytes);
}

void on_fault(int, siginfo_t *info, void *context)
{
    char text[160];
    faulty = (const void *)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    describe(text, sizeof text, (uintptr_t)info->si_addr);
    fail("an access to no memory: %s", text);
}

/* Whether all bytes are as device_memory has left them. */
bool untouched(uintptr_t from, uintptr_t to)
{
    while (from < to && *(unsigned char *)from == 0xff) from++;
    return from == to;
}

} // namespace

alignas(PAGE) unsigned char arena[ARENA_BYTES + PAGE];
alignas(PAGE) static unsigned char variables[VARIABLES_BYTES];

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "the emulated GPU: ");
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    show_place();
    show_stack();
    abort();
}

void *shared_variable(size_t bytes, size_t alignment)
{
    static size_t used;
    const size_t room = rounded_up(bytes + 2 * alignment, PAGE);
    const uintptr_t begin = (uintptr_t)variables + used, end = begin + room,
                    p = last_place(end, bytes, alignment);
    used += room + PAGE;
    if (used > VARIABLES_BYTES) fail("too many __shared__ variables");
    protect(end, end + PAGE, PROT_NONE);
    memset((void *)begin, 0xff, room);
    std::lock_guard<std::mutex> guard(lock);
    pieces()[p] = {bytes, "a variable in shared memory"};
    variables_of_all().push_back({(void *)p, bytes});
    return (void *)p;
}

unsigned char *dynamic_shared(size_t alignment)
{
    if (alignment > DYNAMIC_ALIGNMENT_MAX)
        fail("dynamic shared memory that wants an alignment of %zu", alignment);
    const uintptr_t p = last_place((uintptr_t)arena + ARENA_BYTES, dynamic_bytes, alignment);
    dynamic_end = p + dynamic_bytes;
    return (unsigned char *)p;
}

void forget_shared(void)
{
    const size_t bytes = dynamic_bytes + 2 * DYNAMIC_ALIGNMENT_MAX;
    dynamic_end = (uintptr_t)arena + ARENA_BYTES;
    memset(arena + ARENA_BYTES - bytes, 0xff, bytes);
    for (const auto &one : variables_of_all()) memset(one.first, 0xff, one.second);
}

struct shared_image save_shared(void)
{
    struct shared_image image = {dynamic_bytes, dynamic_end, {}};
    const unsigned char *end = arena + ARENA_BYTES;
    image.bytes.assign(end - (dynamic_bytes + 2 * DYNAMIC_ALIGNMENT_MAX), end);
    for (const auto &one : variables_of_all())
        image.bytes.insert(image.bytes.end(), (unsigned char *)one.first,
                           (unsigned char *)one.first + one.second);
    return image;
}

/* Variables that have come since then are of kernels that had not begun. */
void restore_shared(const struct shared_image &image)
{
    const size_t dynamic = image.dynamic_bytes + 2 * DYNAMIC_ALIGNMENT_MAX;
    const unsigned char *from = image.bytes.data() + dynamic, *end = image.bytes.data() + image.bytes.size();
    set_dynamic_shared(image.dynamic_bytes);
    dynamic_end = image.dynamic_end;
    memcpy(arena + ARENA_BYTES - dynamic, image.bytes.data(), dynamic);
    for (const auto &one : variables_of_all()) {
        if (from == end) break;
        memcpy(one.first, from, one.second);
        from += one.second;
    }
}

void check_shared(void)
{
    if (!untouched(dynamic_end, (uintptr_t)arena + ARENA_BYTES))
        fail("somebody has written behind dynamic shared memory of %zu bytes", dynamic_bytes);
}

void set_dynamic_shared(size_t bytes)
{
    static bool ready;
    if (ready && bytes == dynamic_bytes) return;
    const uintptr_t begin = (uintptr_t)arena, end = begin + ARENA_BYTES;
    std::lock_guard<std::mutex> guard(lock);
    pieces().erase(end - dynamic_bytes);
    pieces()[end - bytes] = {bytes, "dynamic shared memory"};
    dynamic_bytes = bytes;
    ready = true;
    protect(begin, end, PROT_READ | PROT_WRITE);
    protect(begin, (end - bytes - 2 * DYNAMIC_ALIGNMENT_MAX) / PAGE * PAGE, PROT_NONE);
    protect(end, end + PAGE, PROT_NONE);
}

void *device_memory(size_t bytes)
{
    const size_t rounded = rounded_up(bytes, 16), room = rounded_up(rounded, PAGE);
    void *all =
        mmap(NULL, room + 2 * GUARD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return NULL;
    const uintptr_t begin = (uintptr_t)all + GUARD_BYTES, p = begin + room - rounded;
    protect(begin, begin + room, PROT_READ | PROT_WRITE);
    memset((void *)begin, 0xff, room);
    std::lock_guard<std::mutex> guard(lock);
    pieces()[p] = {bytes, "device memory"};
    return (void *)p;
}

size_t release_device_memory(void *p)
{
    if (!p) return 0;
    std::lock_guard<std::mutex> guard(lock);
    auto found = pieces().find((uintptr_t)p);
    if (found == pieces().end()) fail("%p was not allocated, or is free already", p);
    const size_t bytes = found->second.bytes;
    const uintptr_t at = (uintptr_t)p, behind = at + bytes, end = rounded_up(behind, 16),
                    begin = at / PAGE * PAGE;
    if (!untouched(begin, at)) fail("somebody has written in front of device memory of %zu bytes", bytes);
    if (!untouched(behind, end)) fail("somebody has written behind device memory of %zu bytes", bytes);
    pieces().erase(found);
    if (mmap((void *)begin, end - begin, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0) == MAP_FAILED)
        fail("mmap: %m");
    return bytes;
}

watch::watch(void)
{
    static_assert(sizeof(struct sigaction) <= sizeof before);
    struct sigaction ours = {};
    ours.sa_sigaction = on_fault;
    ours.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &ours, (struct sigaction *)before);
}

watch::~watch(void)
{
    sigaction(SIGSEGV, (struct sigaction *)before, NULL);
}

} // namespace emulated

/* ---- what the compiler calls (-fsanitize=alignment,bounds) ---- */

struct source {
    const char *file;
    uint32_t line, column;
};
struct type {
    uint16_t kind, info;
    char name[];
};
struct misfit {
    struct source at;
    const struct type *type;
    unsigned char log_alignment, kind;
};
struct overrun {
    struct source at;
    const struct type *array, *index;
};

extern "C" {

[[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(void *data, void *p)
{
    const struct misfit *m = (const struct misfit *)data;
    emulated::fail("%s:%u: %p is no multiple of %u: %s", m->at.file, m->at.line, p, 1u << m->log_alignment,
                   m->type->name);
}

[[noreturn]] void __ubsan_handle_out_of_bounds_abort(void *data, void *index)
{
    const struct overrun *o = (const struct overrun *)data;
    emulated::fail("%s:%u: index %ld of %s", o->at.file, o->at.line, (long)index, o->array->name);
}
}
