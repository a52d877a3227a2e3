/* attention_masked.cuh - masks of a step's sequences (kernels/mask.h) as the device has them: words of the step's buffer.
 *
 * struct batch, sequence_masks: for each sequence where its words begin, counted from struct batch, tables; 0: it is causal.
 *
 *   words:   [num_keys] struct mask_rows | [num_tiles] struct mask_tile     num_keys: seqlens_k */
#ifndef KERNELS_CUDA_ATTENTION_MASKED_CUH
#define KERNELS_CUDA_ATTENTION_MASKED_CUH

#include "kernels/cuda/device.cuh"

enum {
    MASK_KEY_WORDS = sizeof(struct mask_rows) / 4,
    MASK_TILE_WORDS = sizeof(struct mask_tile) / 4,
    SEQUENCE_MASK_WORDS_MAX = 16 << 20 /* of a step */
};

static inline size_t sequence_mask_words(int32_t num_keys)
{
    return (size_t)num_keys * MASK_KEY_WORDS + (size_t)mask_num_tiles(num_keys) * MASK_TILE_WORDS;
}

#endif
