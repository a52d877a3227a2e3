#include "model/gguf_scales.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"

enum { NAME_BYTES_MAX = 160 };

static struct weight_view find_scales(const struct gguf *g, const char *name, char found[NAME_BYTES_MAX])
{
    static const char ending[] = ".weight";
    const size_t n = strlen(name), tail = sizeof ending - 1;
    struct weight_view view = {0};
    if (n < tail || strcmp(name + n - tail, ending) != 0) return view;
    snprintf(found, NAME_BYTES_MAX, "%.*s.scale", (int)(n - tail), name);
    view = gguf_find_tensor(g, found);
    if (view.data) return view;
    snprintf(found, NAME_BYTES_MAX, "%s.scale", name);
    return gguf_find_tensor(g, found);
}

static float scale_at(const struct weight_view *scales, int64_t i)
{
    float f;
    memcpy(&f, (const uint8_t *)scales->data + i * 4, sizeof f);
    return f;
}

int gguf_scales_apply(const struct gguf *g, const char *path, const char *name, int32_t expert, int32_t num,
                      struct weight_view *view, struct error *err)
{
    char found[NAME_BYTES_MAX];
    const struct weight_view scales = find_scales(g, name, found);
    const int64_t count = scales.rows * scales.cols;
    if (!scales.data) return STATUS_OK;
    if (scales.scheme != WEIGHT_PLAIN || scales.dtype != DTYPE_F32 || (count != 1 && count != num))
        return error_set(err, STATUS_INVALID,
                         "%s: tensor %s should be a number of type F32, or one for each of %d experts", path,
                         found, num);
    const float scale = scale_at(&scales, count == 1 ? 0 : expert);
    if (!isfinite(scale))
        return error_set(err, STATUS_INVALID, "%s: tensor %s has what is no number", path, found);
    if (view->scheme != WEIGHT_NVFP4 && scale != 1)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: tensor %s multiplies %s, which is supported of type NVFP4 alone", path, found,
                         name);
    view->codes.scale_factor = scale;
    return STATUS_OK;
}
