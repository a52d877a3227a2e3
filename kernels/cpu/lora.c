#include "kernels/cpu/lora.h"

#include <stdlib.h>

#include "base/check.h"
#include "kernels/cpu/device.h"

/* For the largest step, and the linear whose adapters have the most ranks. */
struct lora_scratch {
    int32_t *adapters;    /* [rows] */
    const float **narrow; /* [rows] */
    float *values;        /* [rows][num_ranks] */
    int32_t num_ranks;
};

/* ---- making them ---- */

static bool make_up(float **out, const struct lora_part *p, const struct part *part)
{
    const int64_t rank = p->up.cols;
    float *row_values = calloc((size_t)rank, sizeof *row_values),
          *up = *out = calloc((size_t)(part->num_panels * rank) * PANEL_ROWS, sizeof *up);
    for (int64_t row = 0; row < p->up.rows && row_values && up; row++) {
        weight_view_row_to_f32(&p->up, row, row_values);
        for (int64_t r = 0; r < rank; r++)
            up[(row / PANEL_ROWS * rank + r) * PANEL_ROWS + row % PANEL_ROWS] = p->scale * row_values[r];
    }
    free(row_values);
    return row_values && up;
}

static void check_part(const struct lora_part *p, const struct linear *w, int i)
{
    assert_always(p->down.cols == w->cols && p->up.rows == w->parts[i].num_rows);
    assert_always(p->down.rows == p->up.cols && p->up.cols > 0 && p->up.cols <= LORA_RANK_MAX);
}

static int make_item(struct cpu_device *c, struct lora_item *item, const struct lora_part *parts,
                     const struct linear *w, struct error *err)
{
    struct linear_desc down = {.kind = LINEAR_PLAIN};
    for (int i = 0; i < w->num_parts; i++) {
        if (!parts[i].down.data) continue;
        check_part(&parts[i], w, i);
        if (!make_up(&item->up[i], &parts[i], &w->parts[i]))
            return error_set(err, STATUS_NO_MEMORY, "no memory for an adapter");
        down.parts[down.num_parts++] = parts[i].down;
        item->ranks[i] = (int32_t)parts[i].down.rows;
        item->num_ranks += item->ranks[i];
    }
    return down.num_parts == 0 ? STATUS_OK : cpu_linear_create(&down, c->level, c->pool, &item->down, err);
}

static void clear_item(struct lora_item *item)
{
    cpu_linear_destroy(item->down);
    for (int part = 0; part < LINEAR_PARTS_MAX; part++) free(item->up[part]);
    *item = (struct lora_item){.down = NULL};
}

static void lora_destroy(struct lora *l)
{
    for (int32_t i = 0; i < l->num_items; i++) clear_item(&l->items[i]);
    free(l->items);
    free(l);
}

/* Memory of the device, which is given back with it: what was too small before is little. */
static bool make_room(struct cpu_device *c, int32_t num_ranks)
{
    struct device_memory *m = &c->memory;
    struct lora_scratch *s = c->lora_scratch;
    const uint64_t num_rows = (uint64_t)c->limits.num_tokens;
    if (!s) {
        s = c->lora_scratch = device_memory_alloc(m, sizeof *s);
        c->batch.loras = device_memory_alloc_array(m, num_rows, sizeof *c->batch.loras);
        if (!s || !c->batch.loras) return false;
        s->adapters = device_memory_alloc_array(m, num_rows, sizeof *s->adapters);
        s->narrow = device_memory_alloc_array(m, num_rows, sizeof *s->narrow);
        if (!s->adapters || !s->narrow) return false;
    }
    if (num_ranks <= s->num_ranks) return true;
    s->num_ranks = num_ranks;
    s->values = device_memory_alloc_array(m, num_rows * (uint64_t)num_ranks, sizeof *s->values);
    return s->values;
}

static int make_items(struct cpu_device *c, struct lora *l, const struct linear *w,
                      const struct lora_desc *desc, struct error *err)
{
    int status = STATUS_OK;
    l->cols = w->cols;
    l->num_items = desc->num_adapters;
    l->num_ranks = desc->max_rank * w->num_parts;
    for (int32_t i = 0; i < desc->num_adapters && !status; i++) {
        status = make_item(c, &l->items[i], desc->parts[i], w, err);
        l->num_ranks = max_of(l->num_ranks, l->items[i].num_ranks);
    }
    if (!status && !make_room(c, l->num_ranks))
        status = error_set(err, STATUS_NO_MEMORY, "no memory for what adapters compute");
    return status;
}

int cpu_lora_create(struct device *d, const struct linear *w, const struct lora_desc *desc, struct lora **out,
                    struct error *err)
{
    struct cpu_device *c = cpu_device_of(d);
    struct lora **list = realloc(c->loras, ((size_t)c->num_loras + 1) * sizeof(struct lora *)),
                *l = calloc(1, sizeof *l);
    if (list) c->loras = list;
    if (l) l->items = calloc((size_t)desc->num_adapters, sizeof *l->items);
    if (!list || !l || !l->items) {
        free(l);
        return error_set(err, STATUS_NO_MEMORY, "no memory for adapters");
    }
    *out = c->loras[c->num_loras++] = l;
    return make_items(c, l, w, desc, err);
}

int cpu_lora_set(struct device *d, const struct linear *w, struct lora *l, int32_t i,
                 const struct lora_part parts[LINEAR_PARTS_MAX], struct error *err)
{
    struct lora_item *item = &l->items[i];
    assert_always(i >= 0 && i < l->num_items);
    clear_item(item);
    int status = make_item(cpu_device_of(d), item, parts, w, err);
    assert_always(item->num_ranks <= l->num_ranks);
    return status;
}

void cpu_loras_destroy(struct cpu_device *c)
{
    for (int i = 0; i < c->num_loras; i++) lora_destroy(c->loras[i]);
    free(c->loras);
}

/* ---- steps ---- */

/* Rows with one adapter that follow each other: a prompt's, or decoding ones. */
static void run_down(struct cpu_device *c, const struct lora *l, const float *x, int32_t begin, int32_t end)
{
    const struct lora_scratch *s = c->lora_scratch;
    const struct lora_item *item = &l->items[s->adapters[begin] - 1];
    float *to = s->values + (int64_t)begin * l->num_ranks;
    for (int32_t row = begin; row < end; row++)
        s->narrow[row] = to + (int64_t)(row - begin) * item->num_ranks;
    if (item->down)
        cpu_linear_run(item->down, c->pool, c->linear_scratch, end - begin, x + (int64_t)begin * l->cols, to);
}

void lora_add(const struct lora_rows *rows, const struct linear_kernels *kernels, int part, int64_t panel,
              int32_t first_row, int num_rows, float *sums)
{
    for (int32_t row = first_row; row < first_row + num_rows; row++, sums += PANEL_ROWS) {
        if (rows->adapters[row] == 0) continue;
        const struct lora_item *item = &rows->lora->items[rows->adapters[row] - 1];
        const int32_t rank = item->ranks[part];
        const float *narrow = rows->narrow[row];
        for (int before = 0; before < part; before++) narrow += item->ranks[before];
        if (rank > 0) kernels->lora_add_row(sums, item->up[part] + panel * rank * PANEL_ROWS, narrow, rank);
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
    for (int32_t row = 0, end; row < num_rows; row = end) {
        for (end = row + 1; end < num_rows && s->adapters[end] == s->adapters[row];) end++;
        if (s->adapters[row] > 0) run_down(c, lora, x, row, end);
    }
    const struct lora_rows of_rows = {lora, s->adapters, s->narrow};
    cpu_linear_run_lora(w, c->pool, c->linear_scratch, num_rows, x, out, &of_rows);
}
