#include "model/task_embedding.h"

#include <stdlib.h>

#include "base/check.h"
#include "model/lora_files.h"
#include "model/model_files.h"

enum { WIDTH_MULTIPLE = 64 }; /* what devices multiply at once */

struct task_embedding {
    int32_t num_tasks, rank, width; /* rank: of a token's and its type's together */
    int64_t num_tokens, hidden_size;
    float scale;
    float *table, *zeros; /* [num_tokens][width] [hidden_size][width] */
    float *downs, *ups;   /* [num_tasks][rank][width] [num_tasks][hidden_size][rank] */
};

/* One task's: down is a row of r values for each token, up r rows; into the task's columns from at on. */
static void put_table(struct task_embedding *e, int32_t task, int32_t at, const struct lora_part *part)
{
    const int64_t r = part->down.cols;
    if (!part->down.data) return;
    for (int64_t i = 0; i < e->num_tokens; i++) {
        const int64_t row = part->down.rows > 1 ? i : 0; /* a type's is the same for all */
        weight_view_row_to_f32(&part->down, row, e->table + i * e->width + task * e->rank + at);
    }
    for (int64_t k = 0; k < r; k++) {
        float *out = e->ups + task * e->hidden_size * e->rank + at + k;
        float *row = e->zeros; /* [hidden_size] values of room, until they are zeros */
        weight_view_row_to_f32(&part->up, k, row);
        for (int64_t i = 0; i < e->hidden_size; i++) out[i * e->rank] = row[i];
    }
}

static bool allocate(struct task_embedding *e)
{
    const size_t width = (size_t)e->width, hidden = (size_t)e->hidden_size, rank = (size_t)e->rank,
                 tasks = (size_t)e->num_tasks;
    e->table = calloc((size_t)e->num_tokens * width, sizeof *e->table);
    e->zeros = calloc(hidden * width, sizeof *e->zeros);
    e->downs = calloc(tasks * rank * width, sizeof *e->downs);
    e->ups = calloc(tasks * hidden * rank, sizeof *e->ups);
    return e->table && e->zeros && e->downs && e->ups;
}

static void fill(struct task_embedding *e, const struct model_files *model)
{
    for (int32_t t = 0; t < e->num_tasks; t++) {
        const struct lora_files *f = model_files_lora(model, t);
        const struct lora_part token = lora_files_part(f, WEIGHT_TOKEN_EMBEDDING, 0),
                               type = lora_files_part(f, WEIGHT_TYPE_EMBEDDING, 0);
        put_table(e, t, 0, &token);
        put_table(e, t, (int32_t)token.down.cols, &type);
        for (int32_t i = 0; i < e->rank; i++)
            e->downs[((int64_t)t * e->rank + i) * e->width + t * e->rank + i] = 1;
    }
    for (int64_t i = 0; i < e->hidden_size; i++) e->zeros[i] = 0;
}

int task_embedding_create(const struct model_files *model, struct task_embedding **out, struct error *err)
{
    const struct model_config *c = model_files_config(model);
    *out = NULL;
    if (c->tasks.num == 0) return STATUS_OK; /* else the first adapters are theirs */
    const struct lora_part token = lora_files_part(model_files_lora(model, 0), WEIGHT_TOKEN_EMBEDDING, 0),
                           type = lora_files_part(model_files_lora(model, 0), WEIGHT_TYPE_EMBEDDING, 0);
    if (!token.down.data && !type.down.data) return STATUS_OK;
    struct task_embedding *e = calloc(1, sizeof *e);
    if (!e) return error_set(err, STATUS_NO_MEMORY, "no memory for tasks");
    *e = (struct task_embedding){.num_tasks = c->tasks.num,
                                 .rank = (int32_t)(token.down.cols + type.down.cols),
                                 .num_tokens = c->vocab_size,
                                 .hidden_size = c->hidden_size,
                                 .scale = c->task_scale};
    e->width = (int32_t)div_up(e->num_tasks * e->rank, WIDTH_MULTIPLE) * WIDTH_MULTIPLE;
    if (!allocate(e)) {
        task_embedding_destroy(e);
        return error_set(err, STATUS_NO_MEMORY, "no memory for tasks");
    }
    fill(e, model);
    *out = e;
    return STATUS_OK;
}

void task_embedding_destroy(struct task_embedding *e)
{
    if (!e) return;
    free(e->table);
    free(e->zeros);
    free(e->downs);
    free(e->ups);
    free(e);
}

struct weight_view task_embedding_table(const struct task_embedding *e)
{
    return weight_view_plain(e->table, DTYPE_F32, e->num_tokens, e->width);
}

struct weight_view task_embedding_zeros(const struct task_embedding *e)
{
    return weight_view_plain(e->zeros, DTYPE_F32, e->hidden_size, e->width);
}

struct lora_part task_embedding_part(const struct task_embedding *e, int32_t task)
{
    const float *down = e->downs + (int64_t)task * e->rank * e->width,
                *up = e->ups + (int64_t)task * e->hidden_size * e->rank;
    return (struct lora_part){weight_view_plain(down, DTYPE_F32, e->rank, e->width),
                              weight_view_plain(up, DTYPE_F32, e->hidden_size, e->rank), e->scale};
}
