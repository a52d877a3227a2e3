/* call_timer.cuh - how long calls take: replayed from a recorded graph, as steps are, or in turns with others. */
#ifndef TESTS_GPU_CALL_TIMER_CUH
#define TESTS_GPU_CALL_TIMER_CUH

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
[[maybe_unused]] static double time_graph(struct cuda_device *device, int num_calls,
                                          const std::function<bool(int)> &call)
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

/* Microseconds of a call of each kind, num_calls of it in a row, the median over turns behind a first one, so that all see the same
 * clocks. */
[[maybe_unused]] static std::vector<double> time_in_turns(struct cuda_device *device,
                                                          const std::vector<std::function<bool(void)>> &calls,
                                                          int num_calls, int num_turns)
{
    std::vector<std::vector<float>> times(calls.size());
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    for (int turn = 0; turn < num_turns + 1; turn++)
        for (size_t c = 0; c < calls.size(); c++) {
            float ms = 0;
            check(cudaEventRecord(begin, device->stream), "event");
            for (int i = 0; i < num_calls; i++) calls[c]();
            check(cudaEventRecord(end, device->stream), "event");
            check(cudaEventSynchronize(end), "calls");
            check(cudaEventElapsedTime(&ms, begin, end), "event");
            if (turn > 0) times[c].push_back(ms * 1e3f / (float)num_calls);
        }
    std::vector<double> medians;
    for (auto &t : times) {
        std::sort(t.begin(), t.end());
        medians.push_back(t[t.size() / 2]);
    }
    check(device->first_error, device->first_error_where);
    return medians;
}

#endif
