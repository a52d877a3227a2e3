/* machine.cc - fibers: see machine.h. x86-64. */
#include "tests/emulator/machine.h"

#include <cstdio>
#include <mutex>
#include <sys/mman.h>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulated
{

namespace
{

enum { STACK_BYTES = 256 << 10, STACK_GUARD_BYTES = 4096, NAMED_BARRIERS = 16 };
enum state { RUNS, WAITS, ENDED };

/* Lanes that meet under one mask; most often it is that of all. Of what they bring two generations are kept: nobody brings a third before all have read the first. */
struct meeting {
    uint32_t mask, arrived, generation;
    struct brought brought[2];
};

struct copy {
    void *to;
    const void *from;
};

struct fiber {
    void *stack_pointer, *stack;
    enum state state;
    uint3 index;
    std::vector<struct copy> copies; /* under way */
    std::vector<size_t> group_ends;  /* of those that are closed: how many copies there are up to their end */
};

/* Threads that wait at a barrier of the CTA. */
struct gathering {
    int32_t num, sum, last_sum;
    std::vector<struct fiber *> waiting;
};

struct cta {
    std::vector<struct fiber> fibers;
    std::vector<std::vector<struct meeting>> warps;
    struct gathering barriers[NAMED_BARRIERS];
    int32_t num_threads, num_alive, current;
    bool moved;                       /* somebody did something since the last round */
    bool is_early;                    /* the kernel ahead has not ended */
    std::vector<struct fiber *> held; /* that wait for it */
    void *scheduler;
    const std::function<void()> *body;
} cta;

std::mutex one_at_a_time;

/* Saves what a call keeps and the stack pointer to *from, and goes on at to. */
extern "C" void emulator_switch(void **from, void *to);
asm(".text\n.globl emulator_switch\n.hidden emulator_switch\nemulator_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n");

struct fiber *self(void)
{
    return &cta.fibers[(size_t)cta.current];
}

void to_scheduler(void)
{
    emulator_switch(&self()->stack_pointer, cta.scheduler);
}

void wait(void)
{
    self()->state = WAITS;
    to_scheduler();
}

void wake(struct fiber *f)
{
    f->state = RUNS;
    cta.moved = true;
}

void release(struct gathering *g)
{
    g->last_sum = g->sum;
    g->num = g->sum = 0;
    for (struct fiber *f : g->waiting) wake(f);
    g->waiting.clear();
}

void end_of_fiber(void)
{
    struct fiber *f = self();
    f->state = ENDED;
    cta.moved = true;
    if (--cta.num_alive > 0 && cta.barriers[0].num == cta.num_alive) release(&cta.barriers[0]);
    to_scheduler();
}

void begin_of_fiber(void)
{
    (*cta.body)();
    end_of_fiber();
}

void prepare(struct fiber *f)
{
    if (!f->stack) {
        f->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(f->stack, STACK_GUARD_BYTES, PROT_NONE);
    }
    void **top = (void **)((char *)f->stack + STACK_BYTES) - 2; /* aligned as at a call */
    *top = (void *)begin_of_fiber;
    f->stack_pointer = top - 6;
    f->state = RUNS;
    f->copies.clear();
    f->group_ends.clear();
}

/* One round: every thread that can goes on until it waits. */
void run_round(void)
{
    for (int32_t i = 0; i < cta.num_threads; i++) {
        struct fiber *f = &cta.fibers[(size_t)i];
        if (f->state != RUNS) continue;
        cta.current = i;
        threadIdx = f->index;
        emulator_switch(&cta.scheduler, f->stack_pointer);
    }
}

void begin_cta(void)
{
    cta.num_alive = cta.num_threads;
    forget_shared();
    cta.warps.resize(CTA_THREADS_MAX / WARP_LANES);
    for (auto &warp : cta.warps)
        for (struct meeting &m : warp) m.arrived = m.generation = 0;
    for (struct gathering &g : cta.barriers) g = {};
    for (int32_t i = 0; i < cta.num_threads; i++) prepare(&cta.fibers[(size_t)i]);
}

void end_cta(void)
{
    while (cta.num_alive > 0) {
        cta.moved = false;
        run_round();
        if (!cta.moved) fail("nobody can go on");
    }
    check_shared();
}

} // namespace

void show_place(void)
{
    if (cta.num_alive > 0)
        fprintf(stderr, "; CTA %u %u %u, thread %d of %d", blockIdx.x, blockIdx.y, blockIdx.z, cta.current,
                cta.num_threads);
    fputc('\n', stderr);
}

int32_t lane(void)
{
    return cta.current % WARP_LANES;
}

static struct meeting *meeting_of(uint32_t mask)
{
    auto &warp = cta.warps[(size_t)cta.current / WARP_LANES];
    if (warp.empty()) warp.reserve(WARP_LANES); /* pointers to them are held while lanes wait */
    for (struct meeting &m : warp)
        if (m.mask == mask) return &m;
    if (warp.size() == WARP_LANES) fail("too many masks");
    warp.push_back({});
    warp.back().mask = mask;
    return &warp.back();
}

const struct brought *meet(uint32_t mask, const void *mine, size_t bytes)
{
    struct meeting *m = meeting_of(mask);
    int32_t left = cta.num_threads - cta.current / WARP_LANES * WARP_LANES;
    uint32_t all = left < WARP_LANES ? mask & ((1u << left) - 1) : mask, bit = 1u << lane();
    struct brought *brought = &m->brought[m->generation % 2];
    if (!(mask & bit)) fail("a lane that the mask has not");
    if (bytes) memcpy(brought->words[lane()], mine, bytes);
    m->arrived |= bit;
    if (m->arrived != all) {
        wait();
        return brought;
    }
    m->arrived = 0;
    m->generation++;
    int32_t first = cta.current - lane();
    for (int32_t i = 0; i < WARP_LANES; i++)
        if (all >> i & 1 && first + i != cta.current) wake(&cta.fibers[(size_t)(first + i)]);
    return brought;
}

int32_t meet_all(int32_t mine)
{
    struct gathering *g = &cta.barriers[0];
    g->num++;
    g->sum += mine;
    if (g->num == cta.num_alive)
        release(g);
    else {
        g->waiting.push_back(self());
        wait();
    }
    return g->last_sum;
}

void meet_some(int32_t barrier, int32_t threads, bool waits)
{
    struct gathering *g = &cta.barriers[barrier];
    cta.moved = true;
    if (++g->num == threads)
        release(g);
    else if (waits) {
        g->waiting.push_back(self());
        wait();
    }
}

void yield(void)
{
    to_scheduler();
}

void wait_for_dependency(void)
{
    if (!cta.is_early) return;
    cta.held.push_back(self());
    wait();
}

void tell(void)
{
    cta.moved = true;
}

void copy_later(void *to, const void *from, bool valid)
{
    want_aligned(from, 16);
    self()->copies.push_back({to, valid ? from : NULL});
}

void close_copies(void)
{
    self()->group_ends.push_back(self()->copies.size());
}

void end_copies(int32_t groups_left)
{
    auto &copies = self()->copies;
    auto &ends = self()->group_ends;
    if ((int32_t)ends.size() <= groups_left) return;
    const size_t num_groups = ends.size() - (size_t)groups_left, num = ends[num_groups - 1];
    for (size_t i = 0; i < num; i++)
        if (copies[i].from)
            memcpy(copies[i].to, copies[i].from, 16);
        else
            memset(copies[i].to, 0, 16);
    copies.erase(copies.begin(), copies.begin() + (int64_t)num);
    ends.erase(ends.begin(), ends.begin() + (int64_t)num_groups);
    for (size_t &end : ends) end -= num;
}

uint32_t copy_box(const CUtensorMap *map, uint32_t shared, const int32_t at[5], bool to_shared)
{
    const struct tensor_map *m = (const struct tensor_map *)map;
    const uint32_t element = (uint32_t)m->strides[0];
    uint32_t count = 1, bytes = 0;
    want_aligned(pointer_of(shared), 128);
    for (uint32_t i = 0; i < m->rank; i++) count *= m->box[i];
    for (uint32_t i = 0; i < count; i++, bytes += element) {
        unsigned char *there = m->data, *here = swizzled(shared + bytes, m->swizzle_bits);
        bool inside = true;
        for (uint32_t dimension = 0, rest = i; dimension < m->rank; rest /= m->box[dimension++]) {
            int64_t x = at[dimension] + (int64_t)(rest % m->box[dimension]);
            inside = inside && x >= 0 && x < (int64_t)m->sizes[dimension];
            there += x * (int64_t)m->strides[dimension];
        }
        if (!to_shared && inside)
            memcpy(there, here, element);
        else if (to_shared && inside)
            memcpy(here, there, element);
        else if (to_shared)
            memset(here, 0, element);
    }
    return bytes;
}

void trap_kernel(void)
{
    fail("a trap");
}

void no_clusters(void)
{
    fail("a cluster");
}

namespace
{

/* A launch, and the CTA of it that has begun before the others. */
struct grid {
    dim3 size, block;
    size_t shared_bytes;
    std::function<void()> body;
    bool has_early;
    uint3 early_index;
    struct cta early;
    struct shared_image early_shared;
};

struct grid *last;            /* the launch that has not run */
std::vector<struct cta> idle; /* stacks of early ones, to be used again */
uint64_t num_launches;

void set_grid(const struct grid *g)
{
    set_dynamic_shared(g->shared_bytes);
    blockDim = g->block;
    gridDim = g->size;
}

/* For a CTA of g. */
void set_threads(const struct grid *g)
{
    const dim3 block = g->block;
    cta.num_threads = (int32_t)(block.x * block.y * block.z);
    cta.body = &g->body;
    if (cta.fibers.empty()) cta.fibers.resize(CTA_THREADS_MAX);
    for (uint32_t i = 0; i < (uint32_t)cta.num_threads; i++)
        cta.fibers[i].index = {i % block.x, i / block.x % block.y, i / block.x / block.y};
}

/* One CTA of g, whichever: until its threads wait for the kernel ahead, or for each other. */
void begin_early(struct grid *g)
{
    const uint32_t number =
        (uint32_t)(num_launches * 2654435761u >> 16) % (g->size.x * g->size.y * g->size.z);
    g->has_early = true;
    g->early_index = {number % g->size.x, number / g->size.x % g->size.y, number / g->size.x / g->size.y};
    if (!idle.empty()) {
        g->early = std::move(idle.back());
        idle.pop_back();
    }
    std::swap(cta, g->early);
    set_grid(g);
    set_threads(g);
    blockIdx = g->early_index;
    begin_cta();
    cta.is_early = true;
    do {
        cta.moved = false;
        run_round();
    } while (cta.moved && cta.num_alive > 0);
    g->early_shared = save_shared();
    std::swap(cta, g->early);
}

void finish_early(struct grid *g)
{
    std::swap(cta, g->early);
    restore_shared(g->early_shared);
    cta.is_early = false;
    for (struct fiber *f : cta.held) wake(f);
    cta.held.clear();
    end_cta();
    std::swap(cta, g->early);
    idle.push_back(std::move(g->early));
}

void run(struct grid *g)
{
    watch until_it_ends;
    set_grid(g);
    set_threads(g);
    for (blockIdx.z = 0; blockIdx.z < g->size.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < g->size.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < g->size.x; blockIdx.x++)
                if (g->has_early && !memcmp(&blockIdx, &g->early_index, sizeof blockIdx)) {
                    finish_early(g);
                } else {
                    begin_cta();
                    end_cta();
                }
}

void finish_last(void)
{
    if (!last) return;
    run(last);
    delete last;
    last = NULL;
}

} // namespace

void run_grid(dim3 size, dim3 block, size_t shared_bytes, bool begins_early, std::function<void()> body)
{
    std::lock_guard<std::mutex> guard(one_at_a_time);
    if (shared_bytes > SHARED_BYTES || block.x * block.y * block.z > CTA_THREADS_MAX)
        fail("a launch that is too large");
    struct grid *g = new grid{size, block, shared_bytes, std::move(body), false, {}, {}, {}};
    num_launches++;
    if (last && begins_early) {
        watch until_it_waits;
        begin_early(g);
    }
    finish_last();
    last = g;
}

void finish_grids(void)
{
    std::lock_guard<std::mutex> guard(one_at_a_time);
    finish_last();
}

} // namespace emulated
