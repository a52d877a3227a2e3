/* linear.c - takes weights in, and shares a product's panels out among the threads.
 *
 * Loops of a product, outermost first: chunks of panels (taken by the threads as they come free), tiles of at
 * most ACT_TILE_ROWS activation rows, panels of the chunk, and inside the panel kernel blocks of K and rows.
 * So a decode step reads each weight once for all its rows, and a prefill finds a chunk's weights in L2 again
 * for each tile. A chunk is sized for both: small enough that the threads finish together, at most
 * CHUNK_BYTES_MAX. */
#include "kernels/cpu/linear.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "kernels/cpu/linear_kernels.h"
#include "kernels/cpu/linear_memory.h"

enum {
    ALIGNMENT = 64,
    CHUNK_BYTES_MAX = 256 << 10,
    CHUNKS_PER_THREAD = 8,
    SERIAL_PACK_VALUES = 8192, /* packing fewer activations takes less time than waking the threads */
};

struct part {
    enum dtype dtype;
    struct panel_kernel kernel;
    int32_t num_rows, first_row; /* rows of the stacked weight */
    int64_t num_panels, first_panel;
    uint64_t panel_bytes;
    uint8_t *panels;
};

struct linear {
    enum linear_kind kind;
    int num_parts;
    struct part parts[LINEAR_PARTS_MAX];
    int32_t rows, cols; /* N, K */
    int64_t num_blocks, num_panels;
    act_pack *pack[ACT_FORM_COUNT]; /* NULL: no part takes this form */
    const struct linear_kernels *kernels;
    float *bias; /* [num_panels][PANEL_ROWS], NULL: none */
    uint8_t *memory;
    uint64_t bytes;
};

/* ---- creation ---- */

static const struct linear_kernels *kernels_of(enum cpu_isa_level isa)
{
    switch (isa) {
    case CPU_ISA_PORTABLE:
        break;
    case CPU_ISA_AVX2:
        return &linear_kernels_avx2;
    case CPU_ISA_AVX512:
        return &linear_kernels_avx512;
    case CPU_ISA_AVX512_VNNI:
        return &linear_kernels_avx512vnni;
    }
    return &linear_kernels_portable;
}

static int check_shapes(const struct linear_desc *desc, struct error *err)
{
    if (desc->num_parts < 1 || desc->num_parts > LINEAR_PARTS_MAX)
        return error_set(err, STATUS_INVALID, "a linear of %d parts; 1 to %d are possible", desc->num_parts,
                         LINEAR_PARTS_MAX);
    for (int i = 0; i < desc->num_parts; i++) {
        const struct weight_view *w = &desc->parts[i], *bias = &desc->biases[i], *first = &desc->parts[0];
        if (w->rows <= 0 || w->rows > INT32_MAX || w->cols != first->cols ||
            panel_bytes(w->dtype, w->cols) == 0)
            return error_set(
                err, STATUS_INVALID, "a %s weight of %lld x %lld cannot be part of a linear of %lld columns",
                dtype_infos[w->dtype].text, (long long)w->rows, (long long)w->cols, (long long)first->cols);
        if (bias->data && (bias->rows != 1 || bias->cols != w->rows))
            return error_set(err, STATUS_INVALID, "a bias of %lld values for a weight of %lld rows",
                             (long long)(bias->rows * bias->cols), (long long)w->rows);
    }
    if (desc->kind == LINEAR_GATE_UP && (desc->num_parts != 2 || desc->parts[0].rows != desc->parts[1].rows))
        return error_set(err, STATUS_INVALID, "gate and up must be two weights of one shape");
    return 0;
}

static void part_init(struct part *p, const struct weight_view *w, const struct linear_kernels *kernels)
{
    *p = (struct part){
        .dtype = w->dtype,
        .kernel = kernels->of[w->dtype],
        .num_rows = (int32_t)w->rows,
        .num_panels = div_up(w->rows, PANEL_ROWS),
        .panel_bytes = panel_bytes(w->dtype, w->cols),
    };
}

/* Sizes and places; the parts' panels are offsets from NULL until there is memory. */
static int linear_plan(struct linear *l, const struct linear_desc *desc, const struct linear_kernels *kernels,
                       struct error *err)
{
    int64_t rows = 0;
    l->kind = desc->kind;
    l->num_parts = desc->num_parts;
    l->cols = (int32_t)desc->parts[0].cols;
    l->num_blocks = panel_num_blocks(l->cols);
    l->kernels = kernels;
    for (int i = 0; i < desc->num_parts; i++) {
        struct part *p = &l->parts[i];
        uint64_t bytes;
        part_init(p, &desc->parts[i], kernels);
        p->first_row = (int32_t)rows;
        p->first_panel = l->num_panels;
        rows += p->num_rows;
        l->num_panels += p->num_panels;
        l->pack[p->kernel.form] = kernels->pack[p->kernel.form];
        if (rows > INT32_MAX || !checked_mul((uint64_t)p->num_panels, p->panel_bytes, &bytes) ||
            !checked_add(l->bytes, bytes, &l->bytes) || l->bytes > SIZE_MAX / 2)
            return error_set(err, STATUS_LIMIT, "a linear of %lld rows is too large", (long long)rows);
    }
    l->rows = (int32_t)rows;
    return 0;
}

static int linear_alloc(struct linear *l, const struct linear_desc *desc, struct error *err)
{
    bool has_bias = false;
    for (int i = 0; i < desc->num_parts; i++) has_bias |= desc->biases[i].data != NULL;
    const size_t bias_bytes = (size_t)l->num_panels * PANEL_ROWS * sizeof *l->bias;
    l->memory = linear_memory_alloc(l->bytes);
    if (has_bias) l->bias = aligned_alloc(ALIGNMENT, bias_bytes);
    if (!l->memory || (has_bias && !l->bias))
        return error_set(err, STATUS_NO_MEMORY, "no memory for a weight of %llu bytes",
                         (unsigned long long)l->bytes);
    if (has_bias) {
        memset(l->bias, 0, bias_bytes);
        l->bytes += bias_bytes;
    }
    uint8_t *at = l->memory;
    for (int i = 0; i < l->num_parts; i++) {
        struct part *p = &l->parts[i];
        const struct weight_view *bias = &desc->biases[i];
        p->panels = at;
        at += (uint64_t)p->num_panels * p->panel_bytes;
        if (bias->data)
            dtype_row_to_f32(bias->dtype, bias->data, bias->cols, l->bias + p->first_panel * PANEL_ROWS);
    }
    return 0;
}

struct pack_context {
    const struct linear *l;
    const struct linear_desc *desc;
};

static void pack_task(void *context, int thread_idx, int num_threads)
{
    const struct pack_context *c = context;
    for (int i = 0; i < c->l->num_parts; i++) {
        const struct part *p = &c->l->parts[i];
        const uint64_t row_bytes = dtype_row_bytes(p->dtype, (uint64_t)c->l->cols);
        int64_t begin, end;
        thread_pool_range(p->num_panels, thread_idx, num_threads, &begin, &end);
        for (int64_t panel = begin; panel < end; panel++) {
            const int64_t row = panel * PANEL_ROWS;
            panel_pack(p->dtype, (const uint8_t *)c->desc->parts[i].data + (uint64_t)row * row_bytes,
                       row_bytes, (int)min_of(p->num_rows - row, (int64_t)PANEL_ROWS), c->l->cols,
                       p->panels + (uint64_t)panel * p->panel_bytes);
        }
    }
}

int cpu_linear_create(const struct linear_desc *desc, enum cpu_isa_level isa, struct thread_pool *pool,
                      struct linear **out, struct error *err)
{
    *out = NULL;
    int status = check_shapes(desc, err);
    if (status) return status;
    struct linear *l = calloc(1, sizeof *l);
    if (!l) return error_set(err, STATUS_NO_MEMORY, "no memory for a linear");
    status = linear_plan(l, desc, kernels_of(isa), err);
    if (!status) status = linear_alloc(l, desc, err);
    if (status) {
        cpu_linear_destroy(l);
        return status;
    }
    thread_pool_run(pool, pack_task, &(struct pack_context){l, desc});
    *out = l;
    return 0;
}

void cpu_linear_destroy(struct linear *l)
{
    if (!l) return;
    linear_memory_free(l->memory);
    free(l->bias);
    free(l);
}

uint64_t cpu_linear_bytes(const struct linear *l)
{
    return l->bytes;
}

/* ---- product ---- */

/* Packed activations in one form; tiles of rows follow one another. */
struct packed {
    uint8_t *columns;
    struct act_scale *scales;
};

struct run {
    const struct linear *l;
    int32_t num_rows;
    const float *x;
    float *out;
    struct packed packed[ACT_FORM_COUNT];
    int64_t num_units,
        units_per_chunk; /* unit: PANELS_MAX panels of a part, or a gate panel with its up panel */
    _Atomic int64_t next_unit;
};

static size_t columns_bytes(enum act_form form, int64_t num_rows, int64_t num_blocks)
{
    return align_up((size_t)num_rows * (size_t)num_blocks * (size_t)act_block_bytes(form), ALIGNMENT);
}

static size_t scales_bytes(enum act_form form, int64_t num_rows, int64_t num_blocks)
{
    if (form == ACT_F32) return 0;
    return align_up((size_t)num_rows * (size_t)num_blocks * sizeof(struct act_scale), ALIGNMENT);
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

static void pack_activation_row(const struct run *run, int32_t row)
{
    const struct linear *l = run->l;
    const int in_tile = row % ACT_TILE_ROWS;
    for (int form = 0; form < ACT_FORM_COUNT; form++) {
        if (!l->pack[form]) continue;
        const struct act_tile tile = tile_at(run, form, row - in_tile);
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

/* acc of each place = its panel times the tile of rows that starts at first_row, bias added; returns the
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

static void unit_run_plain(const struct run *run, int64_t unit, int32_t first_row)
{
    const struct linear *l = run->l;
    const struct part *p = l->parts;
    _Alignas(ALIGNMENT) float acc[PANELS_MAX][ACT_TILE_ROWS * PANEL_ROWS];
    for (; unit >= div_up(p->num_panels, PANELS_MAX); p++) unit -= div_up(p->num_panels, PANELS_MAX);
    const int64_t panel = unit * PANELS_MAX;
    const struct panel_place places[PANELS_MAX] = {{p, panel, acc[0]}, {p, panel + 1, acc[1]}};
    const int num = (int)min_of(p->num_panels - panel, PANELS_MAX);
    const int num_rows = panels_run(run, places, num, first_row);
    for (int i = 0; i < num; i++) {
        const int64_t col = (panel + i) * PANEL_ROWS;
        store(acc[i], num_rows, (int)min_of(p->num_rows - col, (int64_t)PANEL_ROWS), l->rows,
              run->out + (int64_t)first_row * l->rows + p->first_row + col);
    }
}

static void unit_run_gate_up(const struct run *run, int64_t panel, int32_t first_row)
{
    const struct part *const gate = &run->l->parts[0], *const up = &run->l->parts[1];
    const int64_t num_cols = gate->num_rows, col = panel * PANEL_ROWS;
    _Alignas(ALIGNMENT) float gate_acc[ACT_TILE_ROWS * PANEL_ROWS], up_acc[ACT_TILE_ROWS * PANEL_ROWS];
    const struct panel_place places[] = {{gate, panel, gate_acc}, {up, panel, up_acc}};
    const bool together = gate->dtype == up->dtype;
    const int num_rows = panels_run(run, places, together ? 2 : 1, first_row);
    if (!together) panels_run(run, places + 1, 1, first_row);
    run->l->kernels->silu_mul(num_rows * PANEL_ROWS, gate_acc, up_acc);
    store(gate_acc, num_rows, (int)min_of(num_cols - col, (int64_t)PANEL_ROWS), num_cols,
          run->out + first_row * num_cols + col);
}

static void chunk_run(const struct run *run, int64_t begin, int64_t end)
{
    for (int32_t row = 0; row < run->num_rows; row += ACT_TILE_ROWS) {
        for (int64_t unit = begin; unit < end; unit++) {
            if (run->l->kind == LINEAR_GATE_UP)
                unit_run_gate_up(run, unit, row);
            else
                unit_run_plain(run, unit, row);
        }
    }
}

static void product_task(void *context, int thread_idx, int num_threads)
{
    struct run *run = context;
    (void)thread_idx, (void)num_threads;
    for (;;) {
        const int64_t begin =
            atomic_fetch_add_explicit(&run->next_unit, run->units_per_chunk, memory_order_relaxed);
        if (begin >= run->num_units) return;
        chunk_run(run, begin, min_of(begin + run->units_per_chunk, run->num_units));
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
    const int64_t unit_bytes = (int64_t)(l->bytes / (uint64_t)units) + 1;
    const int64_t even = div_up(units, (int64_t)num_threads * CHUNKS_PER_THREAD);
    return max_of(min_of(even, CHUNK_BYTES_MAX / unit_bytes), 1);
}

void cpu_linear_run(const struct linear *l, struct thread_pool *pool, void *scratch, int32_t num_rows,
                    const float *x, float *out)
{
    if (num_rows <= 0) return;
    struct run run = {.l = l, .num_rows = num_rows, .x = x, .out = out};
    run.num_units = num_units(l);
    run.units_per_chunk = units_per_chunk(l, run.num_units, thread_pool_num_threads(pool));
    run_place_scratch(&run, scratch);
    if ((int64_t)num_rows * l->cols < SERIAL_PACK_VALUES)
        pack_activations_task(&run, 0, 1);
    else
        thread_pool_run(pool, pack_activations_task, &run);
    thread_pool_run(pool, product_task, &run);
}

void cpu_linear_embed_row(const struct linear *l, int32_t row, float *out)
{
    const struct part *p = l->parts;
    while (row >= p->first_row + p->num_rows) p++;
    row -= p->first_row;
    panel_row_to_f32(p->dtype, p->panels + (uint64_t)(row / PANEL_ROWS) * p->panel_bytes, row % PANEL_ROWS,
                     l->cols, out);
}
