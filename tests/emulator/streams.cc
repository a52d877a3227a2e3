/* streams.cc - see streams.h. Streams and events are kept until the process ends: an event may outlive its stream. */
#include "tests/emulator/streams.h"

#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

struct CUstream_st {
    std::deque<std::function<void()>> work;
    size_t num_done; /* of all that was ever put off */
};

struct CUevent_st {
    cudaStream_t stream; /* NULL: nothing was recorded, or of the default stream */
    size_t place;        /* how many pieces of work are ahead of it */
};

namespace
{

/* Work may wait for another stream's. */
std::recursive_mutex lock;
std::vector<cudaStream_t> streams;
std::map<uintptr_t, size_t> known; /* bytes, by where they begin */

void catch_up_to(cudaStream_t stream, size_t place)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    while (stream && stream->num_done < place && !stream->work.empty()) {
        const std::function<void()> work = std::move(stream->work.front());
        stream->work.pop_front();
        stream->num_done++;
        work();
    }
}

} // namespace

namespace emulated
{

void put_off(cudaStream_t stream, std::function<void()> work)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    stream->work.push_back(std::move(work));
}

void catch_up(cudaStream_t stream)
{
    catch_up_to(stream, SIZE_MAX);
}

void catch_up_all(void)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    for (cudaStream_t s : streams) catch_up(s);
}

cudaStream_t make_stream(void)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    streams.push_back(new CUstream_st());
    return streams.back();
}

cudaEvent_t make_event(void)
{
    return new CUevent_st();
}

void record(cudaEvent_t event, cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    *event = {stream, stream ? stream->num_done + stream->work.size() : 0};
}

void wait_for(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    catch_up_to(event->stream, event->place);
}

void put_off_until(cudaStream_t stream, cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    const CUevent_st at = *event;
    put_off(stream, [=] { catch_up_to(at.stream, at.place); });
}

void add_known(const void *begin, size_t bytes)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    known[(uintptr_t)begin] = bytes;
}

void remove_known(const void *begin)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    known.erase((uintptr_t)begin);
}

bool is_known(const void *p)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    auto behind = known.upper_bound((uintptr_t)p);
    if (behind == known.begin()) return false;
    --behind;
    return (uintptr_t)p < behind->first + behind->second;
}

} // namespace emulated
