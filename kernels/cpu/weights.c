/* weights.c - takes weights in: checks, plans and packs them, in parallel. */
#include "kernels/cpu/linear.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "files/weight_codes.h"
#include "kernels/cpu/linear_memory.h"
#include "kernels/cpu/linear_parts.h"

static const struct linear_kernels *kernels_of(enum cpu_isa_level isa)
{
    switch (isa) {
    case CPU_ISA_PORTABLE:
        break;
    case CPU_ISA_AVX2:
        return &linear_kernels_avx2;
    case CPU_ISA_AVX2_VNNI:
        return &linear_kernels_avx2vnni;
    case CPU_ISA_AVX512:
        return &linear_kernels_avx512;
    case CPU_ISA_AVX512_VNNI:
        return &linear_kernels_avx512vnni;
    case CPU_ISA_AVX512_AMX:
        return &linear_kernels_avx512amx;
    case CPU_ISA_COUNT:
        break;
    }
    return &linear_kernels_portable;
}

/* Codes, whose scales a panel can hold. */
static int check_codes(const struct weight_view *w, struct error *err)
{
    const struct weight_codes *c = &w->codes;
    const int granularity = panel_scale_cols(w->dtype);
    if (w->scheme == WEIGHT_TRANSPOSED) return STATUS_OK;
    int status = weight_check(w, err);
    if (status || w->scheme == WEIGHT_PLAIN || c->scale_cols % granularity == 0 || c->scale_cols >= w->cols)
        return status;
    return error_set(err, STATUS_UNSUPPORTED,
                     "a scale for %lld columns of type %s is not supported; multiples of %d are",
                     (long long)c->scale_cols, dtype_infos[w->dtype].text, granularity);
}

static bool is_ordered(const struct weight_view *w)
{
    return weight_view_has_codes(w) && !weight_groups_ascend(w);
}

/* Parts share their activations, and so the order of columns. */
static int check_order(const struct linear_desc *desc, struct error *err)
{
    const struct weight_view *first = &desc->parts[0];
    bool any = false, equal = true;
    for (int i = 0; i < desc->num_parts; i++) {
        const struct weight_view *w = &desc->parts[i];
        any |= is_ordered(w);
        equal &= w->codes.groups && first->codes.groups &&
                 !memcmp(w->codes.groups, first->codes.groups, (size_t)w->cols * sizeof(int32_t));
    }
    if (!any || (equal && !desc->also_embedding)) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "weights that share an input have different orders of columns (g_idx), which is not "
                     "supported");
}

static int check_shapes(const struct linear_desc *desc, struct error *err)
{
    if (desc->num_parts < 1 || desc->num_parts > LINEAR_PARTS_MAX)
        return error_set(err, STATUS_INVALID, "a linear of %d parts; 1 to %d are possible", desc->num_parts,
                         LINEAR_PARTS_MAX);
    for (int i = 0; i < desc->num_parts; i++) {
        const struct weight_view *w = &desc->parts[i], *bias = &desc->biases[i], *first = &desc->parts[0];
        const int64_t rows = w->data ? weight_view_num_rows(w) : 0;
        int status = check_codes(w, err);
        if (!status) status = weight_view_check_vector(bias, rows, err);
        if (status) return status;
        if (rows <= 0 || rows > INT32_MAX || w->cols != first->cols ||
            dtype_row_bytes(w->dtype, (uint64_t)w->cols) == 0 || panel_bytes(w->dtype, w->cols) == 0)
            return error_set(
                err, STATUS_INVALID, "a %s weight of %lld x %lld cannot be part of a linear of %lld columns",
                dtype_infos[w->dtype].text, (long long)rows, (long long)w->cols, (long long)first->cols);
    }
    if (desc->kind == LINEAR_GATE_UP && (desc->num_parts != 2 || weight_view_num_rows(&desc->parts[0]) !=
                                                                     weight_view_num_rows(&desc->parts[1])))
        return error_set(err, STATUS_INVALID, "gate and up must be two weights of one shape");
    if (desc->kind == LINEAR_UP && desc->num_parts != 1)
        return error_set(err, STATUS_INVALID, "up without a gate must be one weight");
    if (desc->kind == LINEAR_GATE_UP && desc->gate == GATE_XIELU)
        return error_set(err, STATUS_INVALID, "xIELU is of an MLP without a gate");
    return check_order(desc, err);
}

static void part_init(struct part *p, const struct weight_view *w, const struct linear_kernels *kernels)
{
    *p = (struct part){
        .dtype = w->dtype,
        .kernel = kernels->of[w->dtype],
        .num_rows = (int32_t)weight_view_num_rows(w),
        .num_panels = div_up(weight_view_num_rows(w), PANEL_ROWS),
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
    l->softcap = desc->softcap;
    l->num_blocks = panel_num_blocks(l->cols);
    l->kernels = kernels;
    l->gate_mul = kernels->gate_mul[desc->gate];
    l->has_gate_values = desc->gate == GATE_XIELU;
    memcpy(l->gate_values, desc->gate_values, sizeof l->gate_values);
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
    if (has_bias) l->bias = aligned_alloc(LINEAR_ALIGNMENT, bias_bytes);
    if (is_ordered(&desc->parts[0])) {
        l->order = malloc((size_t)l->cols * sizeof *l->order);
        if (l->order) weight_order_columns(&desc->parts[0], l->order);
    }
    if (!l->memory || (has_bias && !l->bias) || (is_ordered(&desc->parts[0]) && !l->order))
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
        if (bias->data) weight_view_vector_to_f32(bias, l->bias + p->first_panel * PANEL_ROWS);
    }
    return 0;
}

struct pack_context {
    const struct linear *l;
    const struct linear_desc *desc;
    uint8_t *rows; /* of a panel, for each thread; NULL: no part lies transposed */
};

/* Rows of a matrix that lies transposed, as they would lie in a plain one. */
static void gather_rows(const struct weight_view *w, int64_t row, int num_rows, uint8_t *to)
{
    const uint64_t bytes = dtype_row_bytes(w->dtype, 1);
    const uint64_t step = (uint64_t)w->slice.row_step * bytes;
    const uint8_t *from =
        (const uint8_t *)w->data + (uint64_t)w->slice.row_begin * bytes + (uint64_t)row * step;
    for (int64_t col = 0; col < w->cols; col++, from += (uint64_t)w->rows * bytes)
        for (int r = 0; r < num_rows; r++)
            memcpy(to + (uint64_t)(r * w->cols + col) * bytes, from + (uint64_t)r * step, bytes);
}

static void pack_panel(const struct pack_context *c, int part, int64_t panel, uint8_t *rows)
{
    const struct part *const p = &c->l->parts[part];
    const struct weight_view *const w = &c->desc->parts[part];
    const uint64_t row_bytes = dtype_row_bytes(w->dtype, (uint64_t)c->l->cols);
    const int64_t row = panel * PANEL_ROWS;
    const int num_rows = (int)min_of(p->num_rows - row, (int64_t)PANEL_ROWS);
    uint8_t *const to = p->panels + (uint64_t)panel * p->panel_bytes;
    if (panel_has_codes(p->dtype))
        panel_pack_codes(w, c->l->order, row, num_rows, to);
    else if (w->scheme == WEIGHT_TRANSPOSED) {
        assert_always(rows);
        gather_rows(w, row, num_rows, rows);
        panel_pack(w->dtype, rows, row_bytes, num_rows, c->l->cols, to);
    } else
        panel_pack(w->dtype, (const uint8_t *)w->data + (uint64_t)row * row_bytes, row_bytes, num_rows,
                   c->l->cols, to);
}

/* Room for the rows of a panel of any part. */
static uint64_t panel_rows_bytes(const struct linear_desc *desc)
{
    return PANEL_ROWS * (uint64_t)desc->parts[0].cols * sizeof(float);
}

static void pack_task(void *context, int thread_idx, int num_threads)
{
    const struct pack_context *c = context;
    uint8_t *rows = c->rows ? c->rows + (uint64_t)thread_idx * panel_rows_bytes(c->desc) : NULL;
    for (int i = 0; i < c->l->num_parts; i++) {
        int64_t begin, end;
        thread_pool_range(c->l->parts[i].num_panels, thread_idx, num_threads, &begin, &end);
        for (int64_t panel = begin; panel < end; panel++) pack_panel(c, i, panel, rows);
    }
}

static int pack(struct linear *l, const struct linear_desc *desc, struct thread_pool *pool, struct error *err)
{
    struct pack_context c = {.l = l, .desc = desc};
    bool any = false;
    for (int i = 0; i < desc->num_parts; i++) any |= desc->parts[i].scheme == WEIGHT_TRANSPOSED;
    if (any) c.rows = calloc((size_t)thread_pool_num_threads(pool), panel_rows_bytes(desc));
    if (any && !c.rows)
        return error_set(err, STATUS_NO_MEMORY, "no memory to transpose a weight of %d rows", l->rows);
    thread_pool_run(pool, pack_task, &c);
    free(c.rows);
    return STATUS_OK;
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
    if (!status) status = pack(l, desc, pool, err);
    if (status) {
        cpu_linear_destroy(l);
        return status;
    }
    *out = l;
    return 0;
}

void cpu_linear_destroy(struct linear *l)
{
    if (!l) return;
    linear_memory_free(l->memory);
    free(l->bias);
    free(l->order);
    free(l);
}

float cpu_linear_softcap(const struct linear *l)
{
    return l->softcap;
}

uint64_t cpu_linear_bytes(const struct linear *l)
{
    return l->bytes;
}

void cpu_gate_mul(enum cpu_isa_level level, enum gate_function gate, int count, float *gates,
                  const float *ups)
{
    kernels_of(level)->gate_mul[gate](count, gates, ups);
}

int32_t cpu_linear_num_rows(const struct linear *l)
{
    return l->rows;
}

int32_t cpu_linear_num_cols(const struct linear *l)
{
    return l->cols;
}

void cpu_linear_embed_row(const struct linear *l, int32_t row, float *out)
{
    assert_debug(row >= 0 && row < l->rows);
    const struct part *p = l->parts;
    while (row >= p->first_row + p->num_rows) p++;
    row -= p->first_row;
    panel_row_to_f32(p->dtype, p->panels + (uint64_t)(row / PANEL_ROWS) * p->panel_bytes, row % PANEL_ROWS,
                     l->cols, out);
}
