/* tensor_map.cuh - descriptions of matrices for the bulk tensor copy engine. */
#ifndef KERNELS_CUDA_TENSOR_MAP_CUH
#define KERNELS_CUDA_TENSOR_MAP_CUH

#include <cuda.h>

#include "kernels/cuda/device.cuh"

/* With the device. */
void tensor_maps_open(struct cuda_device *d);
void tensor_maps_close(struct cuda_device *d);

/* bf16: rank sizes and box sizes, rank - 1 strides in bytes; the innermost box is 64, 32 or 16 columns, and the swizzle is as
 * wide: 128, 64 or 32 bytes.
 * What lies beyond the sizes reads as zeros. False where the driver cannot. */
bool tensor_map_encode(const struct cuda_device *d, CUtensorMap *map, const void *data, uint32_t rank,
                       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                       CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B);

/* A matrix [rows][columns] in boxes of box_rows rows and 64 columns. */
bool tensor_map_encode_matrix(const struct cuda_device *d, CUtensorMap *map, const void *data, int32_t rows,
                              int32_t columns, int32_t box_rows,
                              CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B);

/* Rows of columns columns, a multiple of 64, in groups of 8, {64 columns, 8 rows, blocks of 64 columns, groups}: a box is box_groups
 * of them, whole. */
bool tensor_map_encode_groups(const struct cuda_device *d, CUtensorMap *map, const void *data,
                              int32_t num_groups, int32_t columns, int32_t box_groups);

/* A matrix [rows][columns] as above, made once for each matrix and box and kept until the device is closed, as all below; NULL where the driver cannot. 128 bytes
 * at a time: where more are fetched into the L2 the memory gives 3 to 4 % less. */
const CUtensorMap *tensor_map_of_matrix(struct cuda_device *d, const void *data, int32_t rows,
                                        int32_t columns, int32_t box_rows);

/* The same in three dimensions, {64 columns, rows, blocks of 64 columns, of which columns is a multiple}: a box is so many boxes of the
 * matrix, one after another. */
const CUtensorMap *tensor_map_of_blocks(struct cuda_device *d, const void *data, int32_t rows,
                                        int32_t columns, int32_t box_rows, int32_t box_blocks);

/* Floats [rows][columns], columns a multiple of 4. Boxes have no swizzle, and columns count by halves of a float. */
const CUtensorMap *tensor_map_of_floats(struct cuda_device *d, const float *data, int32_t rows,
                                        int32_t columns, int32_t box_rows, int32_t box_columns);

#endif
