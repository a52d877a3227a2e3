/* history.cuh - the tokens of each batch slot that count for penalties. */
#ifndef KERNELS_CUDA_HISTORY_CUH
#define KERNELS_CUDA_HISTORY_CUH

#include "kernels/cuda/device.cuh"

/* Pinned words on their way to the device, in two halves: one is filled while the copies out of the other end. */
struct staging {
    int32_t *halves[2];
    cudaEvent_t copied[2];
    size_t half_words, taken;
    int current;
};

struct history {
    int32_t *tokens;      /* [num_batch_slots][max_model_len]: the prompt's, then generated ones */
    int32_t *num_prompts; /* [num_batch_slots]: of the first kind */
    struct staging staging;
};

int cuda_history_prepare(struct cuda_device *d, struct error *err);

#endif
