/* tensor_map.cu - the driver's encoder, found at run time: the CUDA driver library is not linked. */
#include <cuda_runtime.h>

#include "kernels/cuda/tensor_map.cuh"

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

bool tensor_map_encode(CUtensorMap *map, const void *data, uint32_t rank, const cuuint64_t *sizes,
                       const cuuint64_t *strides, const cuuint32_t *box, CUtensorMapL2promotion promotion)
{
    static encode_function *encode;
    cudaDriverEntryPointQueryResult found;
    if (!encode)
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault,
                                         &found);
    const cuuint32_t steps[] = {1, 1, 1, 1};
    CUtensorMapSwizzle swizzle = box[0] == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                 : box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                : CU_TENSOR_MAP_SWIZZLE_32B;
    return encode && encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, (void *)data, sizes, strides, box,
                            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool tensor_map_encode_matrix(CUtensorMap *map, const void *data, int32_t rows, int32_t columns,
                              int32_t box_rows, CUtensorMapL2promotion promotion)
{
    cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[] = {(cuuint64_t)columns * 2};
    cuuint32_t box[] = {64, (cuuint32_t)box_rows};
    return tensor_map_encode(map, data, 2, sizes, strides, box, promotion);
}
