/* embed.c - rows gathered: of the embedding table, of learned positions, and those that logits are wanted of. */
#include "kernels/cpu/device.h"
#include "kernels/cpu/linear.h"

#include <string.h>

struct embed_task {
    const int32_t *token_ids;
    int32_t num_tokens;
    int64_t hidden_size;
    const struct linear *table;
    float scale;
    float *out;
};

static void embed_rows(void *context, int thread_idx, int num_threads)
{
    const struct embed_task *t = context;
    const int32_t num_rows = cpu_linear_num_rows(t->table);
    int64_t begin, end;
    thread_pool_range(t->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        float *row = t->out + i * t->hidden_size;
        const int32_t id = t->token_ids[i];
        cpu_linear_embed_row(t->table, id < num_rows ? id : 0, row);
        for (int64_t j = 0; j < t->hidden_size && t->scale != 1; j++) row[j] *= t->scale;
    }
}

void cpu_embed(struct device *d, const struct batch *b, void *out, const struct linear *table, float scale)
{
    struct embed_task t = {.token_ids = b->token_ids, .table = table, .scale = scale, .out = out};
    t.num_tokens = b->step->num_tokens;
    t.hidden_size = cpu_linear_num_cols(table);
    cpu_device_run(cpu_device_of(d), t.num_tokens * t.hidden_size, embed_rows, &t);
}

struct multiply_task {
    float *x;
    const float *y;
    int32_t num_rows, width, stride;
};

static void multiply_rows(void *context, int thread_idx, int num_threads)
{
    const struct multiply_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const float *y = t->y + i * t->stride;
        float *x = t->x + i * t->width;
        for (int32_t j = 0; j < t->width; j++) x[j] *= y[j];
    }
}

void cpu_multiply(struct device *d, const struct batch *b, enum row_set rows, void *x, const void *y,
                  int32_t width, int32_t stride)
{
    struct multiply_task t = {
        .x = x, .y = y, .num_rows = batch_num_rows(b, rows), .width = width, .stride = stride};
    cpu_device_run(cpu_device_of(d), (int64_t)t.num_rows * width, multiply_rows, &t);
}

struct position_task {
    const struct step *step;
    int64_t hidden_size;
    const float *table;
    float *x;
};

static void add_positions(void *context, int thread_idx, int num_threads)
{
    const struct position_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->step->num_tokens, thread_idx, num_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const float *row = t->table + t->step->positions[i] * t->hidden_size;
        float *x = t->x + i * t->hidden_size;
        for (int64_t j = 0; j < t->hidden_size; j++) x[j] += row[j];
    }
}

void cpu_embed_positions(struct device *d, const struct batch *b, void *x, const float *table)
{
    struct cpu_device *c = cpu_device_of(d);
    struct position_task t = {.step = b->step, .hidden_size = c->hidden_size, .table = table, .x = x};
    cpu_device_run(c, b->step->num_tokens * t.hidden_size, add_positions, &t);
}

struct pick_task {
    const struct step *step;
    char *out;
    const char *x;
    size_t row_bytes;
};

static void pick_rows(void *context, int thread_idx, int num_threads)
{
    const struct pick_task *t = context;
    int64_t begin, end;
    thread_pool_range(t->step->num_logits, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++)
        memcpy(t->out + (size_t)row * t->row_bytes, t->x + (size_t)t->step->logit_rows[row] * t->row_bytes,
               t->row_bytes);
}

void cpu_pick_logit_rows(struct device *d, const struct batch *b, void *out, const void *x, size_t row_bytes)
{
    struct pick_task t = {.step = b->step, .out = out, .x = x, .row_bytes = row_bytes};
    cpu_device_run(cpu_device_of(d), b->step->num_logits * (int64_t)(row_bytes / sizeof(float)), pick_rows,
                   &t);
}
