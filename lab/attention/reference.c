#include "lab/attention/reference.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"

/* w[Nk] = the weights of a query. */
static void weigh(const struct problem *p, int head, int32_t query, double *w)
{
    int32_t dim = p->shape.head_dim, keys = p->shape.num_keys;
    const float *q = p->q + ((int64_t)head * p->shape.num_queries + query) * dim;
    const float *k = p->k + (int64_t)head * keys * dim;
    double top = -INFINITY, sum = 0;
    for (int32_t j = 0; j < keys; j++) {
        double score = 0;
        for (int32_t d = 0; d < dim; d++) score += (double)q[d] * (double)k[(int64_t)j * dim + d];
        w[j] = problem_sees(p, query, j) ? score * (double)p->scale : -INFINITY;
        top = fmax(top, w[j]);
    }
    for (int32_t j = 0; j < keys; j++) {
        w[j] = w[j] == -INFINITY ? 0 : exp(w[j] - top);
        sum += w[j];
    }
    for (int32_t j = 0; j < keys && sum > 0; j++) w[j] /= sum;
}

static double dot(const float *a, const float *b, int32_t dim)
{
    double sum = 0;
    for (int32_t d = 0; d < dim; d++) sum += (double)a[d] * (double)b[d];
    return sum;
}

static void add(double *sum, double factor, const float *x, int32_t dim)
{
    for (int32_t d = 0; d < dim; d++) sum[d] += factor * (double)x[d];
}

/* The chain rule: with dP = dO V^T, dS = P (dP - sum_j P dP) is what the softmax hands back. */
static void add_gradients(struct reference *r, const struct problem *p, int head, int32_t query,
                          const double *w)
{
    int32_t dim = p->shape.head_dim, keys = p->shape.num_keys;
    int64_t row = ((int64_t)head * p->shape.num_queries + query) * dim,
            first_key = (int64_t)head * keys * dim;
    double mean = 0;
    for (int32_t j = 0; j < keys; j++)
        if (w[j] > 0) mean += w[j] * dot(p->d_out + row, p->v + first_key + (int64_t)j * dim, dim);
    for (int32_t j = 0; j < keys; j++) {
        int64_t key = (int64_t)j * dim;
        if (!(w[j] > 0)) continue;
        double d_s = w[j] * (dot(p->d_out + row, p->v + first_key + key, dim) - mean) * (double)p->scale;
        add(r->d_v + key, w[j], p->d_out + row, dim);
        add(r->d_q + (int64_t)query * dim, d_s, p->k + first_key + key, dim);
        add(r->d_k + key, d_s, p->q + row, dim);
    }
}

int reference_init(struct reference *r, const struct problem *p, int head, bool backward, struct error *err)
{
    size_t dim = (size_t)p->shape.head_dim, rows = (size_t)p->shape.num_queries,
           keys = (size_t)p->shape.num_keys;
    double *w = malloc(keys * sizeof *w);
    *r = (struct reference){.out = calloc(2 * (rows + keys) * dim, sizeof *r->out)};
    if (!w || !r->out) {
        free(w);
        reference_free(r);
        return error_set(err, STATUS_NO_MEMORY, "no memory for a reference over %zu keys", keys);
    }
    r->d_q = r->out + rows * dim;
    r->d_k = r->d_q + rows * dim;
    r->d_v = r->d_k + keys * dim;
    const float *v = p->v + (size_t)head * keys * dim;
    for (size_t i = 0; i < rows; i++) {
        weigh(p, head, (int32_t)i, w);
        for (size_t j = 0; j < keys; j++)
            if (w[j] > 0) add(r->out + i * dim, w[j], v + j * dim, (int32_t)dim);
        if (backward) add_gradients(r, p, head, (int32_t)i, w);
    }
    free(w);
    return STATUS_OK;
}

void reference_free(struct reference *r)
{
    free(r->out);
    *r = (struct reference){.out = NULL};
}

static double error_of(const float *x, const double *expected, int64_t count)
{
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) return INFINITY;
        largest = fmax(largest, fabs(expected[i]));
        difference = fmax(difference, fabs((double)x[i] - expected[i]));
    }
    return largest > 0 ? difference / largest : difference;
}

double reference_forward_error(const struct reference *r, const struct problem *p, int head)
{
    int64_t count = (int64_t)p->shape.num_queries * p->shape.head_dim;
    return error_of(p->out + head * count, r->out, count);
}

double reference_backward_error(const struct reference *r, const struct problem *p, int head)
{
    int64_t q = (int64_t)p->shape.num_queries * p->shape.head_dim,
            k = (int64_t)p->shape.num_keys * p->shape.head_dim;
    double d_k = error_of(p->d_k + head * k, r->d_k, k), d_v = error_of(p->d_v + head * k, r->d_v, k);
    return fmax(error_of(p->d_q + head * q, r->d_q, q), fmax(d_k, d_v));
}
