/* streams.h - copies and memsets of a stream as late as they may be: when a kernel of the same stream is launched, or somebody waits for
 * the stream or an event behind them. So what only happens to come in order (a copy on the default stream, which waits for no stream that
 * was made with cudaStreamNonBlocking, behind a memset that another stream has not got to) comes in the other one. Kernels are not
 * kept: machine.h says when they run. From any thread. */
#ifndef TESTS_EMULATOR_STREAMS_H
#define TESTS_EMULATOR_STREAMS_H

#include <cuda_runtime.h>

#include <functional>

namespace emulated
{

/* Behind what the stream has put off, which is not the default one. */
void put_off(cudaStream_t stream, std::function<void()> work);
/* What a stream has put off is done. NULL: the default stream, which puts nothing off. */
void catch_up(cudaStream_t stream);
void catch_up_all(void);

cudaStream_t make_stream(void);
cudaEvent_t make_event(void);
void record(cudaEvent_t event, cudaStream_t stream);
void wait_for(cudaEvent_t event);
/* The stream goes on when what was recorded last is done. */
void put_off_until(cudaStream_t stream, cudaEvent_t event);

/* Memory that the GPU reads and writes where it is, of the host or its own: other memory is read while a copy is called. */
void add_known(const void *begin, size_t bytes);
void remove_known(const void *begin);
bool is_known(const void *p);

} // namespace emulated

#endif
