/* tensor_map.cu - the driver's encoder, found at run time: the CUDA driver library is not linked. */
#include "kernels/cuda/tensor_map.cuh"

#include <map>
#include <tuple>

namespace
{

typedef CUresult encode_function(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                                 const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                                 CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill);

} // namespace

struct tensor_maps {
    encode_function *encode; /* NULL: the driver has none */
    std::map<std::tuple<const void *, int32_t, int32_t, int32_t>, CUtensorMap> matrices;
};

void tensor_maps_open(struct cuda_device *d)
{
    cudaDriverEntryPointQueryResult found;
    d->tensor_maps = new struct tensor_maps();
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&d->tensor_maps->encode, 12000,
                                         cudaEnableDefault, &found) != cudaSuccess)
        cudaGetLastError(); /* an old driver is no error where nobody wants maps */
}

void tensor_maps_close(struct cuda_device *d)
{
    delete d->tensor_maps;
    d->tensor_maps = NULL;
}

bool tensor_map_encode(const struct cuda_device *d, CUtensorMap *map, const void *data, uint32_t rank,
                       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                       CUtensorMapL2promotion promotion)
{
    encode_function *encode = d->tensor_maps->encode;
    assert_always(rank >= 2 && rank <= 4);
    assert_always(box[0] == 64 || box[0] == 32 || box[0] == 16); /* as wide as a swizzle */
    for (uint32_t i = 0; i < rank; i++)
        assert_always(sizes[i] > 0 && box[i] > 0 && box[i] <= 256 && (i == 0 || strides[i - 1] % 16 == 0));
    const cuuint32_t steps[] = {1, 1, 1, 1};
    CUtensorMapSwizzle swizzle = box[0] == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                 : box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                : CU_TENSOR_MAP_SWIZZLE_32B;
    return encode && encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, (void *)data, sizes, strides, box,
                            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool tensor_map_encode_matrix(const struct cuda_device *d, CUtensorMap *map, const void *data, int32_t rows,
                              int32_t columns, int32_t box_rows, CUtensorMapL2promotion promotion)
{
    cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[] = {(cuuint64_t)columns * 2};
    cuuint32_t box[] = {64, (cuuint32_t)box_rows};
    return tensor_map_encode(d, map, data, 2, sizes, strides, box, promotion);
}

const CUtensorMap *tensor_map_of_matrix(struct cuda_device *d, const void *data, int32_t rows,
                                        int32_t columns, int32_t box_rows)
{
    auto &matrices = d->tensor_maps->matrices;
    auto key = std::make_tuple(data, rows, columns, box_rows);
    auto it = matrices.find(key);
    if (it != matrices.end()) return &it->second;
    CUtensorMap map;
    if (!tensor_map_encode_matrix(d, &map, data, rows, columns, box_rows, CU_TENSOR_MAP_L2_PROMOTION_L2_128B))
        return NULL;
    return &matrices.emplace(key, map).first->second;
}
