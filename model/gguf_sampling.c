#include "model/gguf_sampling.h"

#include "base/check.h"
#include "files/gguf.h"
#include "model/model_config.h"

struct range {
    double least, most;
};

static int fail(const char *path, const char *key, struct range range, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s: %s must be from %g to %g", path, key, range.least, range.most);
}

static int read_real(const struct gguf *g, const char *path, const char *key, struct range range,
                     float *value, struct error *err)
{
    double real;
    if (!gguf_find_real(g, key, &real)) return STATUS_OK;
    if (!(real >= range.least && real <= range.most)) return fail(path, key, range, err);
    *value = (float)real;
    return STATUS_OK;
}

static int read_top_k(const struct gguf *g, const char *path, struct generation_defaults *d,
                      struct error *err)
{
    static const struct range range = {-1, INT32_MAX};
    static const char key[] = "general.sampling.top_k";
    int64_t whole;
    if (!gguf_find_int(g, key, &whole)) return STATUS_OK;
    if (whole < (int64_t)range.least || whole > (int64_t)range.most) return fail(path, key, range, err);
    d->top_k = (int32_t)whole;
    return STATUS_OK;
}

int gguf_sampling_read(const struct gguf *g, const char *path, struct generation_defaults *d,
                       struct error *err)
{
    *d = generation_defaults_none;
    const struct {
        const char *key;
        float *value;
        struct range range;
    } reals[] = {{"general.sampling.temp", &d->temperature, {0, 1e6}},
                 {"general.sampling.top_p", &d->top_p, {0, 1}},
                 {"general.sampling.min_p", &d->min_p, {0, 1}},
                 {"general.sampling.penalty_repeat", &d->repetition_penalty, {1e-3, 1e6}}};
    int status = read_top_k(g, path, d, err);
    for (size_t i = 0; i < array_length(reals) && !status; i++)
        status = read_real(g, path, reals[i].key, reals[i].range, reals[i].value, err);
    if (d->top_p == 0) d->top_p = 1e-6f; /* as of generation_config.json */
    return status;
}
