/* hf_altup.c - of a config.json with AltUp: streams, LAuReL, and which layers cut their gates. */
#include <math.h>

#include "base/bit_set.h"
#include "base/check.h"
#include "model/hf_parts.h"

/* So many standard deviations above the mean a normal value is below with the probability p, 0 < p < 1: by Newton's steps from 0, which
 * do not pass it. */
static double normal_quantile(double p)
{
    enum { STEPS_MAX = 200 };
    double x = 0, step = 1;
    for (int i = 0; i < STEPS_MAX && fabs(step) > 1e-12; i++) {
        step = (p - erfc(-x * M_SQRT1_2) / 2) * sqrt(2 * M_PI) * exp(x * x / 2);
        x += step;
    }
    return x;
}

/* Of each layer which part of its gates is 0, or of all; the first ten's are where nothing is said. Where gates are normal they are those
 * below so many deviations. */
static int read_sparse_gates(struct json_reader *r, struct model_config *c)
{
    const char *key = "activation_sparsity_pattern";
    const cJSON *list = json_find(r, key), *item = cJSON_IsArray(list) ? list->child : list;
    double part = 0;
    if (cJSON_IsArray(list) && cJSON_GetArraySize(list) != c->num_layers)
        return error_set(r->err, STATUS_INVALID, "%s: %s has %d entries for %d layers", r->path, key,
                         cJSON_GetArraySize(list), c->num_layers);
    for (int32_t i = 0; i < c->num_layers; i++, item = cJSON_IsArray(list) ? item->next : item) {
        const double own = !list                  ? (i < 10 && c->num_layers > 10 ? 0.95 : 0)
                           : cJSON_IsNumber(item) ? item->valuedouble
                                                  : -1;
        if (!(own >= 0 && own < 1))
            return error_set(r->err, STATUS_INVALID, "%s: %s is no list of parts of 1", r->path, key);
        if (own == 0) continue;
        if (part > 0 && own != part)
            return error_set(r->err, STATUS_UNSUPPORTED,
                             "%s: %s differs between layers that have it, which is not supported", r->path,
                             key);
        part = own;
        bit_set_add(c->sparse_gates, (size_t)i);
    }
    c->gate_cut = part > 0 ? (float)normal_quantile((double)(float)part) : 0;
    return r->status;
}

int hf_read_altup(struct json_reader *r, struct model_config *c)
{
    c->laurel_rank = hf_size(r, "laurel_rank", 64);
    if (json_int(r, "altup_num_inputs", ALTUP_STREAMS, 1, INT32_MAX) != ALTUP_STREAMS ||
        json_int(r, "altup_active_idx", 0, 0, INT32_MAX) != 0 || !json_bool(r, "altup_correct_scale", true))
        return error_set(r->err, STATUS_UNSUPPORTED,
                         "%s: altup_num_inputs other than %d, altup_active_idx other than 0 and "
                         "altup_correct_scale false are not supported",
                         r->path, ALTUP_STREAMS);
    return read_sparse_gates(r, c);
}
