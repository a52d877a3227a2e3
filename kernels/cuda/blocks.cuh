/* blocks.cuh - weights that stay as a GGUF file has them, of any of its types, since as bf16 there would be no room for them. Few rows
 * are multiplied by them as they are (linear_blocks.cu, moe_blocks.cu), as are any number for logits. Before each other product of many
 * the whole matrix becomes bf16, in memory that all share (linear.cu). Rows of an embedding become f32 as they are looked up (embed.cu).
 * The bits are those of a weight that became bf16 when it was loaded. */
#ifndef KERNELS_CUDA_BLOCKS_CUH
#define KERNELS_CUDA_BLOCKS_CUH

#include "kernels/cuda/linear.cuh"

/* Whether weights are to stay so where they can: there is no room for more, or that is asked for. */
bool blocks_are_wanted(const struct cuda_device *d);
/* Whether these parts can stay so, and take less than bf16. */
bool blocks_fit(const struct linear_desc *desc);
/* Where the parts' rows lie, each part's one after another: w->blocks. */
void blocks_place(struct linear *w, const struct linear_desc *desc);
/* Of all parts that have a place. */
size_t blocks_bytes(const struct linear *w);
/* weights.cu: the parts' rows to their places in a weight that begins at to. */
bool cuda_upload_blocks(struct cuda_device *d, const struct linear *w, const struct linear_desc *desc,
                        unsigned char *to);
/* All of w as bf16, [N][K]; or of so many weights like it, blocks_bytes apart. */
void blocks_unpack(struct cuda_device *d, const struct linear *w, int32_t num_weights, __nv_bfloat16 *out);

#endif
