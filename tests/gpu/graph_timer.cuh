/* graph_timer.cuh - how long calls take that are replayed from a recorded graph, as steps are. */
#ifndef TESTS_GPU_GRAPH_TIMER_CUH
#define TESTS_GPU_GRAPH_TIMER_CUH

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "kernels/cuda/device.cuh"

/* Ends the program where something failed. */
static void check(cudaError_t result, const char *what)
{
    if (result == cudaSuccess) return;
    fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
    exit(1);
}

/* Microseconds of one of num_calls calls, the median of so many replays; call(i) queues the i-th on the device's stream.
 * Negative: a call was refused. */
static double time_graph(struct cuda_device *device, int num_calls, const std::function<bool(int)> &call)
{
    enum { REPLAYS = 9, FIRST_REPLAYS = 2 };
    cudaStream_t stream = device->stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    if (!call(0)) return -1;
    check(cudaStreamSynchronize(stream), "call");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < num_calls; i++) call(i);
    check(cudaStreamEndCapture(stream, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int i = 0; i < FIRST_REPLAYS + REPLAYS; i++) {
        float ms = 0;
        check(cudaEventRecord(begin, stream), "event");
        check(cudaGraphLaunch(exec, stream), "replay");
        check(cudaEventRecord(end, stream), "event");
        check(cudaEventSynchronize(end), "replay");
        check(cudaEventElapsedTime(&ms, begin, end), "event");
        if (i >= FIRST_REPLAYS) times.push_back(ms * 1e3f / (float)num_calls);
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    check(device->first_error, device->first_error_where);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

#endif
