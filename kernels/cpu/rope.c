/* rope.c - what happens between the QKV product and attention: per-head norms, rotation, the K/V write.
 *
 * A token's cosines and sines are spread out once to full vectors c and s, so that all heads do, per element,
 *     y[i] = x[i] * c[i] + x[partner(i)] * s[i]
 * with partner i +- rotary_dim/2 (ROPE_HALVES) or i +- 1 (ROPE_PAIRS), and the sign of the sine folded in.
 * Nothing is summed here, so the order of operations cannot change a bit. */
#include "base/check.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/kv_pool.h"
#include "kernels/cpu/norm.h"

enum { ROTARY_DIM_MAX = 512, VALUE_DIM_MAX = 1024 };

struct rotation {
    float cos[ROTARY_DIM_MAX], sin[ROTARY_DIM_MAX];
    float value[VALUE_DIM_MAX]; /* room for a head of v that is shorter than one of k */
};

struct rope_task {
    const struct step *step;
    const int32_t *slot_mapping; /* the step's, of the layer's group */
    const struct rope_args *args;
    float *qkv;
    struct kv_pool *pool;
    struct kv_layer kv;
};

static void rotation_at(struct rotation *r, const struct rope_args *args, int32_t position)
{
    int32_t half = args->rotary_dim / 2;
    const float *cos_sin = args->cos_sin + (int64_t)position * args->rotary_dim;
    for (int32_t i = 0; i < half; i++) {
        int32_t low = args->style == ROPE_HALVES ? i : 2 * i;
        int32_t high = args->style == ROPE_HALVES ? i + half : 2 * i + 1;
        r->cos[low] = r->cos[high] = cos_sin[2 * i];
        r->sin[low] = -cos_sin[2 * i + 1];
        r->sin[high] = cos_sin[2 * i + 1];
    }
}

static void rotate_halves(float *x, const struct rotation *r, int32_t rotary_dim)
{
    int32_t half = rotary_dim / 2;
    for (int32_t i = 0; i < half; i++) {
        float low = x[i], high = x[i + half];
        x[i] = low * r->cos[i] + high * r->sin[i];
        x[i + half] = high * r->cos[i + half] + low * r->sin[i + half];
    }
}

static void rotate_pairs(float *x, const struct rotation *r, int32_t rotary_dim)
{
    for (int32_t i = 0; i < rotary_dim; i += 2) {
        float low = x[i], high = x[i + 1];
        x[i] = low * r->cos[i] + high * r->sin[i]; /* NOLINT: rotary_dim is even, all of r is filled in */
        x[i + 1] = high * r->cos[i + 1] + low * r->sin[i + 1];
    }
}

static void rope_head(float *x, const struct rotation *r, const float *norm, const struct rope_args *args)
{
    const bool has_norm = norm && !args->norm_all_heads && !args->norm_by_head;
    if (has_norm && !args->norm_follows) norm_row(x, x, norm, args->norm_eps, args->head_dim);
    if (args->style == ROPE_HALVES)
        rotate_halves(x, r, args->rotary_dim);
    else
        rotate_pairs(x, r, args->rotary_dim);
    if (has_norm && args->norm_follows) norm_row(x, x, norm, args->norm_eps, args->head_dim);
}

/* Each with weights of its own. */
static void layer_norm_heads(float *x, const float *weights, int32_t num_heads, const struct rope_args *a)
{
    for (int32_t h = 0; h < num_heads; h++) {
        float *head = x + h * a->head_dim;
        layer_norm_row(head, head, weights + h * a->head_dim, NULL, a->norm_eps, a->head_dim);
    }
}

/* All as one; biases NULL: RMSNorm. */
static void norm_all_heads(float *x, const float *weights, const float *biases, int32_t num_heads,
                           const struct rope_args *a)
{
    const int32_t n = num_heads * a->head_dim;
    if (biases)
        layer_norm_row(x, x, weights, biases, a->norm_eps, n);
    else
        norm_row(x, x, weights, a->norm_eps, n);
}

/* As the pool gets it; room: [head_dim]. */
static const float *value_head(const struct rope_args *a, float *v, int32_t v_dim, float *room)
{
    if (a->v_norm) norm_row(v, v, a->v_norm, a->norm_eps, v_dim);
    for (int32_t i = 0; i < v_dim && a->v_scale != 0; i++) v[i] *= a->v_scale;
    if (v_dim == a->head_dim) return v;
    for (int32_t i = 0; i < a->head_dim; i++) room[i] = i < v_dim ? v[i] : 0;
    return room;
}

static void clip_row(float *x, float bound, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = x[i] > bound ? bound : x[i] < -bound ? -bound : x[i];
}

static void rope_token(const struct rope_task *t, int64_t token, struct rotation *r)
{
    const struct rope_args *a = t->args;
    const int32_t num_kv_heads = a->q_alone ? 0 : a->num_kv_heads,
                  v_dim = a->v_dim > 0 ? a->v_dim : a->head_dim;
    int64_t stride = (int64_t)(a->num_heads + num_kv_heads) * a->head_dim + num_kv_heads * v_dim;
    float *q = t->qkv + token * stride, *k = q + a->num_heads * a->head_dim,
          *v = k + num_kv_heads * a->head_dim;
    rotation_at(r, a, t->step->positions[token]);
    if (a->clip > 0) clip_row(q, a->clip, stride);
    if (a->norm_all_heads) {
        norm_all_heads(q, a->q_norm, a->q_norm_bias, a->num_heads, a);
        if (!a->q_alone) norm_all_heads(k, a->k_norm, a->k_norm_bias, num_kv_heads, a);
    }
    if (a->norm_by_head) {
        layer_norm_heads(q, a->q_norm, a->num_heads, a);
        layer_norm_heads(k, a->k_norm, num_kv_heads, a);
    }
    for (int32_t h = 0; h < a->num_heads; h++) rope_head(q + h * a->head_dim, r, a->q_norm, a);
    for (int32_t h = 0; h < num_kv_heads; h++) {
        rope_head(k + h * a->head_dim, r, a->k_norm, a);
        kv_pool_write(t->pool, &t->kv, t->slot_mapping[token], h, k + h * a->head_dim,
                      value_head(a, v + h * v_dim, v_dim, r->value));
    }
}

static void rope_tokens(void *context, int thread_idx, int num_threads)
{
    const struct rope_task *t = context;
    struct rotation r;
    int64_t begin, end;
    thread_pool_range(t->step->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int64_t token = begin; token < end; token++) rope_token(t, token, &r);
}

void cpu_rope_kv_write(struct device *d, const struct batch *b, void *qkv, struct kv_pool *pool,
                       int32_t layer, const struct rope_args *args)
{
    assert_always(args->rotary_dim <= ROTARY_DIM_MAX && args->rotary_dim <= args->head_dim &&
                  args->rotary_dim % 2 == 0 && args->head_dim <= VALUE_DIM_MAX &&
                  args->v_dim <= args->head_dim);
    struct rope_task t = {.step = b->step,
                          .slot_mapping = step_slot_mapping(b->step, args->kv_group),
                          .args = args,
                          .qkv = qkv,
                          .pool = pool,
                          .kv = kv_pool_layer(pool, layer, args->num_kv_heads, args->head_dim)};
    int64_t values_per_token = (int64_t)(args->num_heads + 2 * args->num_kv_heads) * args->head_dim;
    cpu_device_run(cpu_device_of(d), b->step->num_tokens * values_per_token, rope_tokens, &t);
}
