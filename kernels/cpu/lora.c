#include "kernels/cpu/lora.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/norm.h"

/* For the largest step, and the linear whose adapters have the most ranks. */
struct lora_scratch {
    int32_t *adapters; /* [rows] */
    float *narrow;     /* [rows][num_ranks] */
    int32_t num_ranks;
};

/* ---- making them ---- */

static float *floats_of(const struct weight_view *v)
{
    float *values = calloc((size_t)v->rows * (size_t)v->cols, sizeof *values);
    for (int64_t row = 0; row < v->rows && values; row++)
        weight_view_row_to_f32(v, row, values + row * v->cols);
    return values;
}

static float *make_up(const struct lora_part *p, const struct part *part)
{
    const int64_t rank = p->up.cols;
    float *values = floats_of(&p->up),
          *up = calloc((size_t)(part->num_panels * rank) * PANEL_ROWS, sizeof *up);
    for (int64_t row = 0; row < p->up.rows && values && up; row++)
        for (int64_t r = 0; r < rank; r++)
            up[(row / PANEL_ROWS * rank + r) * PANEL_ROWS + row % PANEL_ROWS] =
                p->scale * values[row * rank + r];
    free(values);
    return up;
}

static bool make_part(struct lora_item *item, int i, const struct lora_part *p, const struct linear *w)
{
    const int64_t rank = p->down.rows;
    float *down = floats_of(&p->down),
          *all = realloc(item->down, (size_t)(item->num_ranks + rank) * (size_t)w->cols * sizeof *all);
    if (all) item->down = all;
    item->up[i] = make_up(p, &w->parts[i]);
    if (all && down && item->up[i]) {
        memcpy(all + (int64_t)item->num_ranks * w->cols, down, (size_t)rank * (size_t)w->cols * sizeof *all);
        item->ranks[i] = (int32_t)rank;
        item->num_ranks += (int32_t)rank;
    }
    free(down);
    return item->ranks[i] > 0;
}

static void lora_destroy(struct lora *l)
{
    for (int32_t i = 0; i < l->num_items; i++) {
        free(l->items[i].down);
        for (int part = 0; part < LINEAR_PARTS_MAX; part++) free(l->items[i].up[part]);
    }
    free(l->items);
    free(l);
}

static void check_part(const struct lora_part *p, const struct linear *w, int i)
{
    assert_always(p->down.cols == w->cols && p->up.rows == w->parts[i].num_rows);
    assert_always(p->down.rows == p->up.cols && p->up.cols > 0 && p->up.cols <= LORA_RANK_MAX);
}

static struct lora *lora_new(const struct linear *w, const struct lora_desc *desc)
{
    struct lora *l = calloc(1, sizeof *l);
    if (l) l->items = calloc((size_t)desc->num_adapters, sizeof *l->items);
    if (!l || !l->items) {
        free(l);
        return NULL;
    }
    l->cols = w->cols;
    for (; l->num_items < desc->num_adapters; l->num_items++) {
        struct lora_item *item = &l->items[l->num_items];
        for (int i = 0; i < w->num_parts; i++) {
            const struct lora_part *p = &desc->parts[l->num_items][i];
            if (!p->down.data) continue;
            check_part(p, w, i);
            if (make_part(item, i, p, w)) continue;
            l->num_items++;
            lora_destroy(l);
            return NULL;
        }
        l->num_ranks = max_of(l->num_ranks, item->num_ranks);
    }
    return l;
}

/* Memory of the device, which is given back with it: what was too small before is few. */
static bool make_room(struct cpu_device *c, int32_t num_ranks)
{
    struct device_memory *m = &c->memory;
    struct lora_scratch *s = c->lora_scratch;
    const uint64_t num_rows = (uint64_t)c->limits.num_tokens;
    if (!s) s = c->lora_scratch = device_memory_alloc(m, sizeof *s);
    if (s && !s->adapters) s->adapters = device_memory_alloc_array(m, num_rows, sizeof *s->adapters);
    if (s && !c->batch.loras) c->batch.loras = device_memory_alloc_array(m, num_rows, sizeof(int32_t));
    if (!s || !s->adapters || !c->batch.loras) return false;
    if (num_ranks <= s->num_ranks) return true;
    s->num_ranks = num_ranks;
    s->narrow = device_memory_alloc_array(m, num_rows * (uint64_t)num_ranks, sizeof *s->narrow);
    return s->narrow;
}

int cpu_lora_create(struct device *d, const struct linear *w, const struct lora_desc *desc, struct lora **out,
                    struct error *err)
{
    struct cpu_device *c = cpu_device_of(d);
    struct lora **list = realloc(c->loras, ((size_t)c->num_loras + 1) * sizeof *list);
    if (list) c->loras = list;
    *out = list ? lora_new(w, desc) : NULL;
    if (!*out) return error_set(err, STATUS_NO_MEMORY, "no memory for adapters");
    c->loras[c->num_loras++] = *out;
    if (make_room(c, (*out)->num_ranks)) return STATUS_OK;
    return error_set(err, STATUS_NO_MEMORY, "no memory for what adapters compute");
}

void cpu_loras_destroy(struct cpu_device *c)
{
    for (int i = 0; i < c->num_loras; i++) lora_destroy(c->loras[i]);
    free(c->loras);
}

/* ---- steps ---- */

struct narrow_task {
    const struct lora *lora;
    const int32_t *adapters;
    const float *x;
    float *narrow;
    int32_t num_rows;
};

static void run_narrow(void *context, int thread_idx, int num_threads)
{
    const struct narrow_task *t = context;
    const struct lora *l = t->lora;
    int64_t begin, end;
    thread_pool_range(t->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        if (t->adapters[row] == 0) continue;
        const struct lora_item *item = &l->items[t->adapters[row] - 1];
        for (int32_t r = 0; r < item->num_ranks; r++)
            t->narrow[row * l->num_ranks + r] =
                row_dot(item->down + (int64_t)r * l->cols, t->x + row * l->cols, l->cols);
    }
}

static void add_row(float *sums, const float *up, const float *narrow, int32_t rank)
{
    float added[PANEL_ROWS] = {0};
    for (int32_t r = 0; r < rank; r++)
        for (int i = 0; i < PANEL_ROWS; i++) added[i] += narrow[r] * up[r * PANEL_ROWS + i];
    for (int i = 0; i < PANEL_ROWS; i++) sums[i] += added[i];
}

void lora_add(const struct lora_rows *rows, int part, int64_t panel, int32_t first_row, int num_rows,
              float *sums)
{
    const struct lora *l = rows->lora;
    for (int32_t t = 0; t < num_rows; t++) {
        const int32_t row = first_row + t;
        if (rows->adapters[row] == 0) continue;
        const struct lora_item *item = &l->items[rows->adapters[row] - 1];
        const int32_t rank = item->ranks[part];
        const float *narrow = rows->narrow + (int64_t)row * l->num_ranks;
        for (int before = 0; before < part; before++) narrow += item->ranks[before];
        if (rank > 0)
            add_row(sums + t * PANEL_ROWS, item->up[part] + panel * rank * PANEL_ROWS, narrow, rank);
    }
}

void cpu_linear_lora(struct device *d, const struct batch *b, enum row_set rows, void *out, const void *x,
                     const struct linear *w, const struct lora *lora)
{
    struct cpu_device *c = cpu_device_of(d);
    const struct lora_scratch *s = c->lora_scratch;
    const int32_t num_rows = batch_num_rows(b, rows);
    assert_always(b->step->loras);
    for (int32_t row = 0; row < num_rows; row++)
        s->adapters[row] = b->loras[rows == ROWS_LOGITS ? b->step->logit_rows[row] : row];
    struct narrow_task t = {lora, s->adapters, x, s->narrow, num_rows};
    cpu_device_run(c, (int64_t)num_rows * lora->num_ranks * lora->cols, run_narrow, &t);
    const struct lora_rows of_rows = {lora, s->adapters, s->narrow};
    cpu_linear_run_lora(w, c->pool, c->linear_scratch, num_rows, x, out, &of_rows);
}
