/* moe_weights.cu - experts' weights and biases on their way in. On a Hopper e4m3 stays as it is where x is to be quantised, too
 * (linear_fp8.cuh), and floats of four bits stay packed where their layout allows it (packed.cuh), those of all experts one after another
 * as if they were rows of one matrix. Where that is wanted, what a GGUF file has in blocks stays as it is (blocks.cuh), an expert's
 * matrix after another's. All else becomes bf16. */
#include <vector>

#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/moe.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/weight_codes.cuh"

namespace
{

enum {
    QUAD_ROWS = PACKED_ROWS * PACKED_STRIPS,
    FP8_ROWS = 32,               /* of an expert, a multiple of which the kernels of moe_fp8_*.cu take */
    SCALES_TAIL = MOE_LARGE_ROWS /* of a tile, read behind the last row */
};

template <typename T> bool allocate(struct cuda_device *d, T **out, size_t count)
{
    *out = (T *)cuda_alloc(&d->base, count * sizeof(T), "weights");
    return *out != NULL;
}

/* ---- bf16 ---- */

bool upload_bf16(struct cuda_device *d, struct moe *m, const struct expert_desc *experts)
{
    const size_t one = (size_t)m->own_hidden * (size_t)m->inner,
                 both = (size_t)moe_rows_of_gate_up(m) * (size_t)m->hidden;
    bool ok = allocate(d, &m->gate_up, both * (size_t)m->num_experts) &&
              allocate(d, &m->down, one * (size_t)m->num_experts);
    for (int32_t e = 0; e < m->num_experts && ok; e++) {
        __nv_bfloat16 *to = m->gate_up + both * (size_t)e;
        ok = (!m->has_gate || cuda_upload_weight(d, to, &experts[e].gate, true, 0)) &&
             cuda_upload_weight(d, to, &experts[e].up, m->has_gate, m->has_gate ? 1 : 0) &&
             cuda_upload_weight(d, m->down + one * (size_t)e, &experts[e].down, false, 0);
    }
    return ok;
}

/* ---- bytes ---- */

/* Whether the kernels take a product's weights in this form. */
bool fits_fp8(const struct weight_view *v, int32_t n, enum byte_form form)
{
    return n % FP8_ROWS == 0 && cuda_fp8_fits(v) && cuda_byte_form(v) == form;
}

bool can_be_fp8(const struct cuda_device *d, const struct moe *m, const struct moe_desc *desc)
{
    if (!d->is_hopper || !desc->quantise_input || m->scale_input || (m->has_gate && m->gate != GATE_SILU))
        return false;
    const enum byte_form gate_up = cuda_byte_form(&desc->experts[0].up),
                         down = cuda_byte_form(&desc->experts[0].down);
    for (int32_t e = 0; e < m->num_experts; e++) {
        const struct expert_desc *expert = &desc->experts[e];
        if ((m->has_gate && !fits_fp8(&expert->gate, m->own_inner, gate_up)) ||
            !fits_fp8(&expert->up, m->own_inner, gate_up) || !fits_fp8(&expert->down, m->own_hidden, down))
            return false;
    }
    return true;
}

bool reserve_fp8_rows(struct cuda_device *d, const struct moe *m)
{
    struct moe_scratch *s = d->moe_scratch;
    const int32_t num_pairs = max(d->limits.num_tokens, d->limits.num_logits) * s->num_chosen,
                  rows = moe_rows_max(num_pairs, s->num_experts), columns = max(m->hidden, s->inner);
    if (rows <= s->fp8.pitch && columns <= s->fp8_columns) return true;
    s->fp8.pitch = max(s->fp8.pitch, rows);
    s->fp8_columns = max(s->fp8_columns, columns);
    const size_t pitch = (size_t)s->fp8.pitch;
    return allocate(d, &s->fp8.codes, pitch * (size_t)s->fp8_columns) &&
           allocate(d, &s->fp8.scales, pitch * (size_t)(s->fp8_columns / FP8_BLOCK) + SCALES_TAIL);
}

bool upload_fp8(struct cuda_device *d, struct moe *m, const struct expert_desc *experts)
{
    const int64_t both = moe_rows_of_gate_up(m);
    bool ok = cuda_alloc_fp8(d, &m->fp8_gate_up, both * m->num_experts, m->hidden,
                             cuda_byte_form(&experts[0].up)) &&
              cuda_alloc_fp8(d, &m->fp8_down, (int64_t)m->own_hidden * m->num_experts, m->inner,
                             cuda_byte_form(&experts[0].down)) &&
              reserve_fp8_rows(d, m);
    for (int32_t e = 0; e < m->num_experts && ok; e++)
        ok =
            (!m->has_gate || cuda_upload_fp8(d, &m->fp8_gate_up, &experts[e].gate, both * e, true, 0)) &&
            cuda_upload_fp8(d, &m->fp8_gate_up, &experts[e].up, both * e, m->has_gate, m->has_gate ? 1 : 0) &&
            cuda_upload_fp8(d, &m->fp8_down, &experts[e].down, (int64_t)m->own_hidden * e, false, 0);
    cuda_fp8_rows_expect(d, m->hidden, m->fp8_gate_up.form);
    return ok;
}

/* ---- packed ---- */

struct linear_desc gate_up_of(const struct expert_desc *e)
{
    struct linear_desc desc = {};
    desc.kind = e->gate.data ? LINEAR_GATE_UP : LINEAR_PLAIN;
    if (e->gate.data) desc.parts[desc.num_parts++] = e->gate;
    desc.parts[desc.num_parts++] = e->up;
    return desc;
}

struct linear_desc down_of(const struct expert_desc *e)
{
    struct linear_desc desc = {};
    desc.num_parts = 1;
    desc.parts[0] = e->down;
    return desc;
}

/* The form that all experts' weights of a product have: into w. False: there is none. */
template <typename DESC_OF>
bool find_form(const struct cuda_device *d, struct linear *w, const struct moe *m,
               const struct expert_desc *experts, DESC_OF desc_of)
{
    for (int32_t e = 0; e < m->num_experts; e++) {
        const struct linear_desc desc = desc_of(&experts[e]);
        int32_t scales;
        const enum linear_format format = packed_format(d, &desc, &scales);
        if (e == 0) {
            w->format = format;
            w->packed_scales = scales;
        }
        if (format == LINEAR_BF16 || format != w->format || scales != w->packed_scales) return false;
    }
    return true;
}

/* moe_packed.cu has biases and clamped gates of MXFP4 alone. */
bool has_packed_epilogues(const struct moe *m, const struct linear *w)
{
    return m->gate != GATE_CLAMPED_SWISH || (w->format == LINEAR_E2M1 && w->packed_scales == 4);
}

/* Whether no two experts have rows in one quad, and all are of four bits alike. */
bool can_be_packed(const struct cuda_device *d, struct moe *m, const struct expert_desc *experts)
{
    if (moe_rows_of_gate_up(m) % QUAD_ROWS != 0 || m->own_hidden % QUAD_ROWS != 0) return false;
    return find_form(d, &m->packed_gate_up, m, experts, gate_up_of) &&
           find_form(d, &m->packed_down, m, experts, down_of) &&
           has_packed_epilogues(m, &m->packed_gate_up) && has_packed_epilogues(m, &m->packed_down);
}

/* Of a form that has been found. */
bool allocate_packed(struct cuda_device *d, struct linear *w, int32_t num_experts, int32_t n, int32_t k)
{
    w->n = num_experts * n;
    w->k = k;
    /* an expert's last tile may end behind its rows, and behind all of them */
    return allocate(d, &w->packed, packed_bytes(w) + packed_offset(w, PACKED_TILE_ROWS));
}

/* Expert e's n rows of the stack. */
bool put_expert(struct cuda_device *d, const struct linear *stack, int32_t e, int32_t n,
                const struct linear_desc &desc)
{
    struct linear own = *stack;
    own.packed += packed_offset(stack, e * n);
    for (int i = 0; i < desc.num_parts; i++)
        if (!cuda_upload_packed(d, &own, &desc.parts[i], 0, desc.kind == LINEAR_GATE_UP, i, false))
            return false;
    return true;
}

/* True also where a scale turns out to be one that the layout cannot hold: *is_inexact. */
bool upload_packed(struct cuda_device *d, struct moe *m, const struct expert_desc *experts, bool *is_inexact)
{
    bool ok = allocate_packed(d, &m->packed_gate_up, m->num_experts, moe_rows_of_gate_up(m), m->hidden) &&
              allocate_packed(d, &m->packed_down, m->num_experts, m->own_hidden, m->inner) &&
              cuda_packed_begin(d);
    for (int32_t e = 0; e < m->num_experts && ok; e++)
        ok = put_expert(d, &m->packed_gate_up, e, moe_rows_of_gate_up(m), gate_up_of(&experts[e])) &&
             put_expert(d, &m->packed_down, e, m->own_hidden, down_of(&experts[e]));
    *is_inexact = ok && !cuda_packed_is_exact(d);
    return ok && d->first_error == cudaSuccess;
}

void forget_packed(struct moe *m)
{
    cudaFree(m->packed_gate_up.packed);
    cudaFree(m->packed_down.packed);
    m->packed_gate_up = m->packed_down = {};
}

/* For products of many rows, which take bf16: either of the two. */
void expect_unpacked(struct cuda_device *d, const struct moe *m)
{
    const size_t gate_up = (size_t)moe_rows_of_gate_up(m) * (size_t)m->hidden,
                 down = (size_t)m->own_hidden * (size_t)m->inner,
                 count = (size_t)m->num_experts * max(gate_up, down);
    d->unpacked_count = max(d->unpacked_count, count);
}

/* ---- in blocks ---- */

/* Whether all weights can be in blocks. A GGUF file has one tensor for all experts' gate, one for up and one for down: what fits of the
 * first expert does of all. */
bool fit_blocks(const struct expert_desc *experts)
{
    const struct linear_desc gate_up = gate_up_of(experts), down = down_of(experts);
    return blocks_fit(&gate_up) && blocks_fit(&down);
}

template <typename DESC_OF>
bool upload_blocks(struct cuda_device *d, struct linear *w, const struct moe *m,
                   const struct expert_desc *experts, DESC_OF desc_of)
{
    const struct linear_desc first = desc_of(&experts[0]);
    *w = {};
    w->format = LINEAR_BLOCKS;
    w->kind = first.kind;
    w->k = (int32_t)first.parts[0].cols;
    blocks_place(w, &first);
    for (const struct block_part &p : w->blocks) w->n += p.num_rows;
    const size_t bytes = blocks_bytes(w);
    bool ok = allocate(d, &w->packed, bytes * (size_t)m->num_experts);
    for (int32_t e = 0; e < m->num_experts && ok; e++) {
        const struct linear_desc desc = desc_of(&experts[e]);
        ok = cuda_upload_blocks(d, w, &desc, w->packed + bytes * (size_t)e);
    }
    return ok;
}

/* In blocks where that is wanted, or as bf16. */
bool upload_unpacked(struct cuda_device *d, struct moe *m, const struct expert_desc *experts)
{
    if (!blocks_are_wanted(d) || !fit_blocks(experts)) return upload_bf16(d, m, experts);
    expect_unpacked(d, m);
    return upload_blocks(d, &m->packed_gate_up, m, experts, gate_up_of) &&
           upload_blocks(d, &m->packed_down, m, experts, down_of);
}

/* ---- biases ---- */

/* Zeros where there is none. */
std::vector<float> bias_values(const struct weight_view *bias, int32_t n)
{
    std::vector<float> values((size_t)n);
    if (bias->data) weight_view_vector_to_f32(bias, values.data());
    return values;
}

/* Gate and up alternate as the rows of gate_up. */
bool upload_biases(struct cuda_device *d, struct moe *m, const struct expert_desc *experts)
{
    size_t num = (size_t)m->num_experts, inner = (size_t)m->own_inner;
    std::vector<float> gate_up(2 * inner * num), down;
    for (size_t e = 0; e < num; e++) {
        const std::vector<float> parts[] = {bias_values(&experts[e].gate_bias, m->own_inner),
                                            bias_values(&experts[e].up_bias, m->own_inner)},
                                 own = bias_values(&experts[e].down_bias, m->own_hidden);
        for (size_t i = 0; i < inner; i++)
            for (size_t part = 0; part < 2; part++)
                gate_up[2 * inner * e + i / 8 * 16 + part * 8 + i % 8] = parts[part][i];
        down.insert(down.end(), own.begin(), own.end());
    }
    return allocate(d, &m->gate_up_bias, gate_up.size()) && allocate(d, &m->down_bias, down.size()) &&
           cuda_upload(&d->base, m->gate_up_bias, gate_up.data(), gate_up.size() * 4) == STATUS_OK &&
           cuda_upload(&d->base, m->down_bias, down.data(), down.size() * 4) == STATUS_OK;
}

} // namespace

bool cuda_moe_upload_experts(struct cuda_device *d, struct moe *m, const struct moe_desc *desc)
{
    bool is_inexact = true;
    if (m->gate == GATE_CLAMPED_SWISH && !upload_biases(d, m, desc->experts)) return false;
    if (can_be_fp8(d, m, desc)) return upload_fp8(d, m, desc->experts);
    if (!can_be_packed(d, m, desc->experts)) return upload_unpacked(d, m, desc->experts);
    if (!upload_packed(d, m, desc->experts, &is_inexact)) return false;
    if (is_inexact) {
        forget_packed(m);
        return upload_unpacked(d, m, desc->experts);
    }
    expect_unpacked(d, m);
    return true;
}
