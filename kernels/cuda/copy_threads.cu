/* copy_threads.cu - one job at a time, of which whoever is free takes the next piece. */
#include "kernels/cuda/copy_threads.cuh"

#include <string.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace
{

enum { THREADS_MAX = 16, PIECE_BYTES = 256 << 10 };

} // namespace

struct copy_threads {
    std::vector<std::thread> threads;
    std::mutex lock;
    std::condition_variable begins, ends;
    unsigned num_jobs; /* so far */
    size_t num_busy;   /* threads that have not ended the current one */
    bool is_over;
    unsigned char *to; /* the current one */
    const unsigned char *from;
    size_t num_bytes;
    std::atomic<size_t> taken;
};

namespace
{

void copy_pieces(struct copy_threads *c)
{
    for (size_t at; (at = c->taken.fetch_add(PIECE_BYTES)) < c->num_bytes;)
        memcpy(c->to + at, c->from + at, std::min((size_t)PIECE_BYTES, c->num_bytes - at));
}

void work(struct copy_threads *c)
{
    unsigned seen = 0;
    std::unique_lock<std::mutex> held(c->lock);
    for (;;) {
        c->begins.wait(held, [&] { return c->is_over || c->num_jobs != seen; });
        if (c->is_over) return;
        seen = c->num_jobs;
        held.unlock();
        copy_pieces(c);
        held.lock();
        if (--c->num_busy == 0) c->ends.notify_one();
    }
}

} // namespace

struct copy_threads *copy_threads_begin(void)
{
    struct copy_threads *c = new struct copy_threads();
    unsigned num_threads = std::min(std::thread::hardware_concurrency(), (unsigned)THREADS_MAX);
    try {
        for (unsigned i = 1; i < num_threads; i++) c->threads.emplace_back(work, c);
    } catch (const std::system_error &) { /* those that there are do it, or the caller alone */
    }
    return c;
}

void copy_threads_copy(struct copy_threads *c, void *to, const void *from, size_t num_bytes)
{
    if (num_bytes <= PIECE_BYTES || c->threads.empty()) {
        memcpy(to, from, num_bytes);
        return;
    }
    {
        std::lock_guard<std::mutex> held(c->lock);
        c->to = (unsigned char *)to;
        c->from = (const unsigned char *)from;
        c->num_bytes = num_bytes;
        c->taken = 0;
        c->num_busy = c->threads.size();
        c->num_jobs++;
    }
    c->begins.notify_all();
    copy_pieces(c);
    std::unique_lock<std::mutex> held(c->lock);
    c->ends.wait(held, [c] { return c->num_busy == 0; });
}

void copy_threads_end(struct copy_threads *c)
{
    if (!c) return;
    {
        std::lock_guard<std::mutex> held(c->lock);
        c->is_over = true;
    }
    c->begins.notify_all();
    for (std::thread &t : c->threads) t.join();
    delete c;
}
