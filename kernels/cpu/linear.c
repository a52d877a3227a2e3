/* linear.c - shares a product's panels out among the threads.
 *
 * Loops of a product, outermost first: chunks of panels (taken by the threads as they come free), tiles of at
 * most ACT_TILE_ROWS activation rows, panels of the chunk, and inside the panel kernel blocks of K and rows.
 * So a decode step reads each weight once for all its rows, and a prefill finds a chunk's weights in L2 again
 * for each tile. A chunk is sized for both: small enough that the threads finish together, at most
 * CHUNK_BYTES_MAX. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/linear_parts.h"
#include "kernels/cpu/lora.h"

enum {
    CHUNK_BYTES_MAX = 256 << 10,
    CHUNKS_PER_THREAD = 8,
    PANEL_COLS = (1 << PANEL_ROWS) - 1,
    SERIAL_PACK_VALUES = 8192,    /* packing fewer activations takes less time than waking the threads */
    SERIAL_PRODUCT_TERMS = 32768, /* so does a product of fewer rows x columns x rows of W */
};

/* Packed activations in one form; tiles of rows follow one another. */
struct packed {
    uint8_t *columns;
    struct act_scale *scales;
};

struct run {
    const struct linear *l;
    int32_t num_rows;
    const float *x;
    float *out;                   /* NULL: the results go to argmax */
    struct argmax *argmax;        /* [threads][num_rows] */
    const uint64_t *forbidden;    /* columns that argmax leaves out; NULL: none */
    const struct lora_rows *lora; /* NULL: no row has an adapter */
    struct packed packed[ACT_FORM_COUNT];
    int64_t num_units,
        units_per_chunk; /* unit: PANELS_MAX panels of a part, or a gate panel with its up panel */
    _Atomic int64_t next_unit;
};

static size_t columns_bytes(enum act_form form, int64_t num_rows, int64_t num_blocks)
{
    return align_up((size_t)num_rows * (size_t)num_blocks * (size_t)act_block_bytes(form), LINEAR_ALIGNMENT);
}

static size_t scales_bytes(enum act_form form, int64_t num_rows, int64_t num_blocks)
{
    if (form == ACT_F32) return 0;
    return align_up((size_t)num_rows * (size_t)num_blocks * sizeof(struct act_scale), LINEAR_ALIGNMENT);
}

size_t cpu_linear_scratch_bytes(int32_t max_rows, int32_t max_k)
{
    const int64_t num_blocks = panel_num_blocks(max_k);
    size_t bytes = 0;
    for (int form = 0; form < ACT_FORM_COUNT; form++)
        bytes += columns_bytes(form, max_rows, num_blocks) + scales_bytes(form, max_rows, num_blocks);
    return bytes;
}

static void run_place_scratch(struct run *run, uint8_t *scratch)
{
    for (int form = 0; form < ACT_FORM_COUNT; form++) {
        if (!run->l->pack[form]) continue;
        run->packed[form].columns = scratch;
        scratch += columns_bytes(form, run->num_rows, run->l->num_blocks);
        run->packed[form].scales = (struct act_scale *)(void *)scratch;
        scratch += scales_bytes(form, run->num_rows, run->l->num_blocks);
    }
}

static struct act_tile tile_at(const struct run *run, enum act_form form, int32_t first_row)
{
    const int64_t first_block = first_row * run->l->num_blocks;
    return (struct act_tile){
        .num_rows = min_of(run->num_rows - first_row, ACT_TILE_ROWS),
        .columns = run->packed[form].columns + first_block * act_block_bytes(form),
        .scales = run->packed[form].scales + first_block,
    };
}

/* In the order of the panels' columns. Such panels take f32. */
static void pack_ordered_row(const struct linear *l, const float *x, int row, const struct act_tile *tile)
{
    float *to = (float *)(void *)tile->columns;
    for (int64_t col = 0; col < l->cols; col += PANEL_BLOCK, to += (int64_t)tile->num_rows * PANEL_BLOCK) {
        const int64_t num = min_of(l->cols - col, (int64_t)PANEL_BLOCK);
        float block[PANEL_BLOCK];
        for (int64_t k = 0; k < num; k++) block[k] = x[l->order[col + k]];
        l->pack[ACT_F32](block, num, row, tile->num_rows, to, NULL);
    }
}

static void pack_activation_row(const struct run *run, int32_t row)
{
    const struct linear *l = run->l;
    const int in_tile = row % ACT_TILE_ROWS;
    for (int form = 0; form < ACT_FORM_COUNT; form++) {
        if (!l->pack[form]) continue;
        const struct act_tile tile = tile_at(run, form, row - in_tile);
        if (l->order) {
            pack_ordered_row(l, run->x + (int64_t)row * l->cols, in_tile, &tile);
            continue;
        }
        l->pack[form](run->x + (int64_t)row * l->cols, l->cols, in_tile, tile.num_rows, (void *)tile.columns,
                      (struct act_scale *)tile.scales);
    }
}

static void pack_activations_task(void *context, int thread_idx, int num_threads)
{
    const struct run *run = context;
    int64_t begin, end;
    thread_pool_range(run->num_rows, thread_idx, num_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) pack_activation_row(run, (int32_t)row);
}

static void add_bias(const float *bias, int num_rows, float *acc)
{
    for (int t = 0; t < num_rows; t++)
        for (int r = 0; r < PANEL_ROWS; r++) acc[t * PANEL_ROWS + r] += bias[r];
}

/* A panel of a part. */
struct panel_place {
    const struct part *part;
    int64_t panel;
    float *acc;
};

/* acc of each place = its panel times the tile of rows that starts at first_row, bias and adapters added; returns the
 * number of rows. The places' parts have one kernel. */
static int panels_run(const struct run *run, const struct panel_place *places, int num, int32_t first_row)
{
    const struct linear *l = run->l;
    const struct act_tile tile = tile_at(run, places->part->kernel.form, first_row);
    struct panels p = {.num = num};
    for (int i = 0; i < num; i++) {
        p.data[i] = places[i].part->panels + (uint64_t)places[i].panel * places[i].part->panel_bytes;
        p.acc[i] = places[i].acc;
    }
    places->part->kernel.product(&p, l->num_blocks, &tile);
    for (int i = 0; i < num && l->bias; i++)
        add_bias(l->bias + (places[i].part->first_panel + places[i].panel) * PANEL_ROWS, tile.num_rows,
                 places[i].acc);
    for (int i = 0; i < num && run->lora; i++)
        lora_add(run->lora, l->kernels, (int)(places[i].part - l->parts), places[i].panel, first_row,
                 tile.num_rows, places[i].acc);
    return tile.num_rows;
}

static void store(const float *acc, int num_rows, int num_cols, int64_t out_stride, float *out)
{
    for (int t = 0; t < num_rows; t++, acc += PANEL_ROWS, out += out_stride) {
        if (num_cols == PANEL_ROWS)
            memcpy(out, acc, PANEL_ROWS * sizeof *out);
        else
            memcpy(out, acc, (size_t)num_cols * sizeof *out);
    }
}

/* Of the panel from first_col on, which does not straddle a word. */
static uint32_t forbidden_cols(const struct run *run, int32_t first_col)
{
    return run->forbidden ? (uint32_t)(run->forbidden[first_col / 64] >> (first_col % 64)) & PANEL_COLS : 0;
}

/* A NaN or a +infinity still spoils its row. */
static void leave_out(float *acc, int num_rows, uint32_t cols)
{
    for (int t = 0; t < num_rows; t++)
        for (int r = 0; r < PANEL_ROWS; r++)
            if ((cols >> r & 1) && acc[t * PANEL_ROWS + r] < INFINITY) acc[t * PANEL_ROWS + r] = -INFINITY;
}

/* Instead of storing them: the highest of each row so far. Columns past N are out of the race. */
static void add_to_argmax(const struct run *run, struct argmax *rows, float *acc, int num_rows, int num_cols,
                          int32_t first_col)
{
    const uint32_t forbidden = forbidden_cols(run, first_col);
    if (forbidden) leave_out(acc, num_rows, forbidden);
    for (int t = 0; t < num_rows && num_cols < PANEL_ROWS; t++)
        for (int r = num_cols; r < PANEL_ROWS; r++) acc[t * PANEL_ROWS + r] = -INFINITY;
    run->l->kernels->argmax_add(num_rows, acc, first_col, rows);
}

/* Of results that nothing multiplies. */
static void gate_alone(const struct linear *l, float *acc, int num_rows)
{
    static const float ones[PANEL_ROWS] = {[0 ... PANEL_ROWS - 1] = 1};
    const float *values = l->has_gate_values ? l->gate_values : ones;
    for (int t = 0; t < num_rows; t++) l->gate_mul(PANEL_ROWS, acc + t * PANEL_ROWS, values);
}

static void unit_run_plain(const struct run *run, int64_t unit, int32_t first_row, struct argmax *argmax)
{
    const struct linear *l = run->l;
    const struct part *p = l->parts;
    _Alignas(LINEAR_ALIGNMENT) float acc[PANELS_MAX][ACT_TILE_ROWS * PANEL_ROWS];
    for (; unit >= div_up(p->num_panels, PANELS_MAX); p++) unit -= div_up(p->num_panels, PANELS_MAX);
    assert_debug(p < l->parts + l->num_parts);
    const int64_t panel = unit * PANELS_MAX;
    const struct panel_place places[PANELS_MAX] = {{p, panel, acc[0]}, {p, panel + 1, acc[1]}};
    const int num = (int)min_of(p->num_panels - panel, PANELS_MAX);
    const int num_rows = panels_run(run, places, num, first_row);
    for (int i = 0; i < num; i++) {
        const int64_t col = (panel + i) * PANEL_ROWS, out_col = p->first_row + col;
        const int num_cols = (int)min_of(p->num_rows - col, (int64_t)PANEL_ROWS);
        if (l->kind == LINEAR_UP) gate_alone(l, acc[i], num_rows);
        if (run->out)
            store(acc[i], num_rows, num_cols, l->rows, run->out + (int64_t)first_row * l->rows + out_col);
        else
            add_to_argmax(run, argmax + first_row, acc[i], num_rows, num_cols, (int32_t)out_col);
    }
}

static void unit_run_gate_up(const struct run *run, int64_t panel, int32_t first_row)
{
    const struct part *const gate = &run->l->parts[0], *const up = &run->l->parts[1];
    const int64_t num_cols = gate->num_rows, col = panel * PANEL_ROWS;
    _Alignas(LINEAR_ALIGNMENT) float gate_acc[ACT_TILE_ROWS * PANEL_ROWS], up_acc[ACT_TILE_ROWS * PANEL_ROWS];
    const struct panel_place places[] = {{gate, panel, gate_acc}, {up, panel, up_acc}};
    const bool together = gate->dtype == up->dtype;
    const int num_rows = panels_run(run, places, together ? 2 : 1, first_row);
    if (!together) panels_run(run, places + 1, 1, first_row);
    run->l->gate_mul(num_rows * PANEL_ROWS, gate_acc, up_acc);
    store(gate_acc, num_rows, (int)min_of(num_cols - col, (int64_t)PANEL_ROWS), num_cols,
          run->out + first_row * num_cols + col);
}

static void chunk_run(const struct run *run, int64_t begin, int64_t end, struct argmax *argmax)
{
    for (int32_t row = 0; row < run->num_rows; row += ACT_TILE_ROWS) {
        for (int64_t unit = begin; unit < end; unit++) {
            if (run->l->kind == LINEAR_GATE_UP)
                unit_run_gate_up(run, unit, row);
            else
                unit_run_plain(run, unit, row, argmax);
        }
    }
}

static void product_task(void *context, int thread_idx, int num_threads)
{
    struct run *run = context;
    (void)num_threads;
    struct argmax *const argmax = run->out ? NULL : run->argmax + (int64_t)thread_idx * run->num_rows;
    for (int32_t row = 0; row < run->num_rows && argmax; row++) argmax_clear(&argmax[row]);
    for (;;) {
        const int64_t begin =
            atomic_fetch_add_explicit(&run->next_unit, run->units_per_chunk, memory_order_relaxed);
        if (begin >= run->num_units) return;
        chunk_run(run, begin, min_of(begin + run->units_per_chunk, run->num_units), argmax);
    }
}

static int64_t num_units(const struct linear *l)
{
    if (l->kind == LINEAR_GATE_UP) return l->parts[0].num_panels;
    int64_t units = 0;
    for (int i = 0; i < l->num_parts; i++) units += div_up(l->parts[i].num_panels, PANELS_MAX);
    return units;
}

static int64_t units_per_chunk(const struct linear *l, int64_t units, int num_threads)
{
    assert_always(units > 0); /* creation refuses a linear without rows */
    const int64_t unit_bytes = (int64_t)(l->bytes / (uint64_t)units) + 1;
    const int64_t even = div_up(units, (int64_t)num_threads * CHUNKS_PER_THREAD);
    return max_of(min_of(even, CHUNK_BYTES_MAX / unit_bytes), 1);
}

/* Returns how many threads have multiplied. */
static int run_all(struct run *run, struct thread_pool *pool, void *scratch)
{
    assert_debug((uintptr_t)scratch % LINEAR_ALIGNMENT == 0);
    const int64_t num_values = (int64_t)run->num_rows * run->l->cols;
    const bool is_serial = num_values * run->l->rows < SERIAL_PRODUCT_TERMS;
    const int num_threads = is_serial ? 1 : thread_pool_num_threads(pool);
    run->num_units = num_units(run->l);
    run->units_per_chunk = units_per_chunk(run->l, run->num_units, num_threads);
    run_place_scratch(run, scratch);
    if (num_values < SERIAL_PACK_VALUES)
        pack_activations_task(run, 0, 1);
    else
        thread_pool_run(pool, pack_activations_task, run);
    if (is_serial)
        product_task(run, 0, 1);
    else
        thread_pool_run(pool, product_task, run);
    return num_threads;
}

void cpu_linear_run(const struct linear *l, struct thread_pool *pool, void *scratch, int32_t num_rows,
                    const float *x, float *out)
{
    if (num_rows <= 0) return;
    run_all(&(struct run){.l = l, .num_rows = num_rows, .x = x, .out = out}, pool, scratch);
}

void cpu_linear_run_lora(const struct linear *l, struct thread_pool *pool, void *scratch, int32_t num_rows,
                         const float *x, float *out, const struct lora_rows *lora)
{
    run_all(&(struct run){.l = l, .num_rows = num_rows, .x = x, .out = out, .lora = lora}, pool, scratch);
}

void cpu_linear_argmax(const struct linear *l, struct thread_pool *pool, void *scratch, struct argmax *shares,
                       int32_t num_rows, const float *x, const uint64_t *forbidden, int32_t *cols)
{
    assert_debug(l->kind == LINEAR_PLAIN && l->num_parts == 1);
    struct run run = {.l = l, .num_rows = num_rows, .x = x, .argmax = shares, .forbidden = forbidden};
    const int num_threads = run_all(&run, pool, scratch);
    for (int32_t row = 0; row < num_rows; row++) cols[row] = argmax_col(shares + row, num_threads, num_rows);
}
