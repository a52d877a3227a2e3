/* weights.c - takes weights in: checks, plans and packs them, in parallel. */
#include "kernels/cpu/linear.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
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

static int check_shapes(const struct linear_desc *desc, struct error *err)
{
    if (desc->num_parts < 1 || desc->num_parts > LINEAR_PARTS_MAX)
        return error_set(err, STATUS_INVALID, "a linear of %d parts; 1 to %d are possible", desc->num_parts,
                         LINEAR_PARTS_MAX);
    for (int i = 0; i < desc->num_parts; i++) {
        const struct weight_view *w = &desc->parts[i], *bias = &desc->biases[i], *first = &desc->parts[0];
        int status = weight_view_check_plain(w, err);
        if (!status) status = weight_view_check_plain(bias, err);
        if (status) return status;
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
    l->softcap = desc->softcap;
    l->num_blocks = panel_num_blocks(l->cols);
    l->kernels = kernels;
    l->gate_mul = desc->gate == GATE_SILU ? kernels->silu_mul : kernels->gelu_mul;
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

float cpu_linear_softcap(const struct linear *l)
{
    return l->softcap;
}

uint64_t cpu_linear_bytes(const struct linear *l)
{
    return l->bytes;
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
