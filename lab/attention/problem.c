#include "lab/attention/problem.h"

#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/rng.h"
#include "files/dtype.h"
#include "lab/attention/chip.h"

enum { ALIGNED_FLOATS = 16, NUM_TENSORS = 10 };

/* The sum of a word's four bytes, shifted and scaled to deviation 1, rounded to bf16. */
static void fill_random(float *x, int64_t count, uint64_t seed, uint64_t stream)
{
    struct rng_block block = {{0}};
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0) block = rng_philox(seed, (uint64_t)i, stream);
        uint32_t word = block.word[i % 4];
        int sum = (int)((word & 0xff) + (word >> 8 & 0xff) + (word >> 16 & 0xff) + (word >> 24));
        x[i] = dtype_bf16_to_f32(dtype_f32_to_bf16((float)(sum - 510) / 147.8f));
    }
}

/* Causal within documents: a key is hidden from the rows behind its document, and from those before itself. */
static void hide_documents(const struct shape *s, struct intervals *hidden)
{
    int32_t document = s->mask == MASK_DOCUMENTS ? s->document : s->num_keys;
    for (int32_t key = 0; key < s->num_keys; key++) {
        hidden->lower_start[key] = min_of((key / document + 1) * document, s->num_keys);
        hidden->lower_end[key] = s->num_keys;
        hidden->upper_start[key] = 0;
        hidden->upper_end[key] = s->mask == MASK_NONE ? 0 : key;
    }
}

/* Whichever needs the most. */
static int64_t num_work_floats(const struct shape *s)
{
    int64_t rows = (int64_t)s->num_heads * s->num_queries;
    int64_t matrices = 2 * (int64_t)s->num_queries * s->num_keys;
    int64_t partials = s->num_queries == 1 ? rows * div_up(s->num_keys, SPLIT_KEYS) * (s->head_dim + 1) : 0;
    int64_t bounds = 8 * div_up(s->num_keys, TILE); /* of a mask */
    return max_of(max_of(matrices, partials), max_of(2 * rows, bounds));
}

static int64_t aligned_floats(int64_t count)
{
    return (int64_t)align_up((size_t)count, ALIGNED_FLOATS);
}

static bool allocate_tensors(struct problem *p)
{
    const struct shape *s = &p->shape;
    int64_t rows = (int64_t)s->num_heads * s->num_queries, q = rows * s->head_dim;
    int64_t k = (int64_t)s->num_heads * s->num_keys * s->head_dim;
    float **tensors[NUM_TENSORS] = {&p->q,   &p->k,   &p->v,   &p->d_out, &p->out,
                                    &p->lse, &p->d_q, &p->d_k, &p->d_v,   &p->work};
    int64_t counts[NUM_TENSORS] = {q, k, k, q, q, rows, q, k, k, num_work_floats(s)}, total = 0;
    for (int i = 0; i < NUM_TENSORS; i++) total += aligned_floats(counts[i]);
    p->memory = aligned_alloc(64, (size_t)total * sizeof *p->memory);
    float *at = p->memory;
    for (int i = 0; at && i < NUM_TENSORS; i++) {
        *tensors[i] = at;
        at += aligned_floats(counts[i]);
    }
    return p->memory != NULL;
}

static bool allocate_intervals(struct problem *p)
{
    size_t keys = (size_t)p->shape.num_keys;
    struct intervals *h = &p->hidden;
    h->lower_start = calloc(4 * keys, sizeof *h->lower_start);
    if (!h->lower_start) return false;
    h->lower_end = h->lower_start + keys;
    h->upper_start = h->lower_end + keys;
    h->upper_end = h->upper_start + keys;
    return true;
}

int problem_init(struct problem *p, const struct shape *s, uint64_t seed, struct error *err)
{
    *p = (struct problem){.shape = *s, .scale = 1.0f / sqrtf((float)s->head_dim)};
    assert_always(s->head_dim <= LAB_DIM_MAX && (s->num_queries == s->num_keys || s->num_queries == 1));
    if (!allocate_tensors(p) || !allocate_intervals(p)) {
        problem_free(p);
        return error_set(err, STATUS_NO_MEMORY, "no memory for attention over %d keys", s->num_keys);
    }
    int64_t q = (int64_t)s->num_heads * s->num_queries * s->head_dim,
            k = (int64_t)s->num_heads * s->num_keys * s->head_dim;
    fill_random(p->q, q, seed, 0);
    fill_random(p->k, k, seed, 1);
    fill_random(p->v, k, seed, 2);
    fill_random(p->d_out, q, seed, 3);
    hide_documents(s, &p->hidden);
    return STATUS_OK;
}

void problem_free(struct problem *p)
{
    free(p->memory);
    free(p->hidden.lower_start);
    *p = (struct problem){.memory = NULL};
}

double problem_pairs(const struct problem *p)
{
    const struct shape *s = &p->shape;
    const struct intervals *h = &p->hidden;
    double pairs = (double)s->num_queries * s->num_keys;
    for (int32_t key = 0; key < s->num_keys && s->mask != MASK_NONE; key++)
        pairs -= h->lower_end[key] - h->lower_start[key] + h->upper_end[key] - h->upper_start[key];
    return pairs * s->num_heads;
}
