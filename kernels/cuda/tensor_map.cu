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
    /* by data, rows, columns, rows of a box, and its blocks, or its columns of floats less than 0, or 0 */
    std::map<std::tuple<const void *, int32_t, int32_t, int32_t, int32_t>, CUtensorMap> kept;
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

namespace
{

/* What is copied is words of two bytes, whatever they are. */
bool encode(const struct cuda_device *d, CUtensorMap *map, const void *data, uint32_t rank,
            const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
            CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion)
{
    encode_function *driver = d->tensor_maps->encode;
    assert_always(rank >= 2 && rank <= 4);
    for (uint32_t i = 0; i < rank; i++)
        assert_always(sizes[i] > 0 && box[i] > 0 && box[i] <= 256 && (i == 0 || strides[i - 1] % 16 == 0));
    const cuuint32_t steps[] = {1, 1, 1, 1};
    return driver && driver(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank, (void *)data, sizes, strides, box,
                            steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, promotion,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

} // namespace

bool tensor_map_encode(const struct cuda_device *d, CUtensorMap *map, const void *data, uint32_t rank,
                       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                       CUtensorMapL2promotion promotion)
{
    assert_always(box[0] == 64 || box[0] == 32 || box[0] == 16); /* as wide as a swizzle */
    CUtensorMapSwizzle swizzle = box[0] == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                 : box[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                : CU_TENSOR_MAP_SWIZZLE_32B;
    return encode(d, map, data, rank, sizes, strides, box, swizzle, promotion);
}

bool tensor_map_encode_matrix(const struct cuda_device *d, CUtensorMap *map, const void *data, int32_t rows,
                              int32_t columns, int32_t box_rows, CUtensorMapL2promotion promotion)
{
    cuuint64_t sizes[] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[] = {(cuuint64_t)columns * 2};
    cuuint32_t box[] = {64, (cuuint32_t)box_rows};
    return tensor_map_encode(d, map, data, 2, sizes, strides, box, promotion);
}

bool tensor_map_encode_groups(const struct cuda_device *d, CUtensorMap *map, const void *data,
                              int32_t num_groups, int32_t columns, int32_t box_groups)
{
    const cuuint64_t row_bytes = (cuuint64_t)columns * 2,
                     sizes[] = {64, 8, (cuuint64_t)columns / 64, (cuuint64_t)num_groups},
                     strides[] = {row_bytes, 128, 8 * row_bytes};
    const cuuint32_t box[] = {64, 8, (cuuint32_t)columns / 64, (cuuint32_t)box_groups};
    assert_always(columns % 64 == 0);
    return tensor_map_encode(d, map, data, 4, sizes, strides, box);
}

namespace
{

/* encode(&map): whether it could be made. */
template <typename ENCODE>
const CUtensorMap *find(struct cuda_device *d, const void *data, int32_t rows, int32_t columns,
                        int32_t box_rows, int32_t kind, ENCODE encode)
{
    auto &kept = d->tensor_maps->kept;
    auto key = std::make_tuple(data, rows, columns, box_rows, kind);
    auto it = kept.find(key);
    if (it != kept.end()) return &it->second;
    CUtensorMap map;
    return encode(&map) ? &kept.emplace(key, map).first->second : NULL;
}

} // namespace

const CUtensorMap *tensor_map_of_matrix(struct cuda_device *d, const void *data, int32_t rows,
                                        int32_t columns, int32_t box_rows)
{
    return find(d, data, rows, columns, box_rows, 0, [&](CUtensorMap *map) {
        return tensor_map_encode_matrix(d, map, data, rows, columns, box_rows,
                                        CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
    });
}

const CUtensorMap *tensor_map_of_blocks(struct cuda_device *d, const void *data, int32_t rows,
                                        int32_t columns, int32_t box_rows, int32_t box_blocks)
{
    const cuuint64_t row_bytes = (cuuint64_t)columns * 2,
                     sizes[] = {64, (cuuint64_t)rows, (cuuint64_t)columns / 64}, strides[] = {row_bytes, 128};
    const cuuint32_t box[] = {64, (cuuint32_t)box_rows, (cuuint32_t)box_blocks};
    assert_always(columns % 64 == 0);
    return find(d, data, rows, columns, box_rows, box_blocks, [&](CUtensorMap *map) {
        return tensor_map_encode(d, map, data, 3, sizes, strides, box, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
    });
}

const CUtensorMap *tensor_map_of_floats(struct cuda_device *d, const float *data, int32_t rows,
                                        int32_t columns, int32_t box_rows, int32_t box_columns)
{
    const cuuint64_t sizes[] = {(cuuint64_t)columns * 2, (cuuint64_t)rows},
                     strides[] = {(cuuint64_t)columns * 4};
    const cuuint32_t box[] = {(cuuint32_t)box_columns * 2, (cuuint32_t)box_rows};
    return find(d, data, rows, columns, box_rows, -box_columns, [&](CUtensorMap *map) {
        return encode(d, map, data, 2, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_NONE,
                      CU_TENSOR_MAP_L2_PROMOTION_NONE);
    });
}
