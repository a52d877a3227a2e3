/* panel.h - the layout in which the CPU keeps packed weights: 16 rows side by side.
 *
 * A panel holds PANEL_ROWS = 16 rows of a weight, cut along K into blocks of 32 columns:
 *
 *     panel  = block 0, block 1, ... block ceil(K/32) - 1            (one stream of memory)
 *     block  = 32 columns of 16 rows: quants, then one scale (and minimum) for each row
 *
 * so that one vector register holds the same column(s) of 16 rows, feeds 16 outputs, and no product needs
 * a sum across lanes. The bytes of a block are those of the file, regrouped; nothing is expanded:
 *
 *     dword i of row r stands at byte i * 64 + r * 4, and its byte c is column
 *       Q8_0                4i + c                                                       i < 8; plus 128: unsigned
 *       Q4_*, Q5_*, Q6_K    4i + c in the low nibble, 16 + 4i + c in the high one        i < 4
 *     Q5_*: the fifth bits: bit 4r + c of the i-th 64-bit word is column 4i + c          i < 8
 *     Q6_K: the upper two bits: bits 2s, 2s + 1 of byte j * 64 + r * 4 + c are column 16j + 4s + c
 *     Q2_K, Q3_K: so the lower two, which come first                                     j < 2, s < 4
 *     Q3_K: the third bits: bit i of byte r * 4 + c is column 4i + c                      i < 8
 *     TQ1_0, TQ2_0, Q2_0: two bits of each column as Q2_K has them
 *     Q1_0: a bit of each column as Q5_* have their fifth, set where the weight is not negative
 *     IQ1_*, IQ2_*, IQ3_*: entries of a grid, panel_grid.h
 *     F32, F16, BF16: column k of row r at element k * 16 + r
 *
 *     codes of 8 bits: that of column k of row r in byte k * 16 + r; of 4 bits in byte k / 2 * 16 + r, even columns low
 *     (F8_E4M3, I8, U4, F4_E2M1 and MXFP4). Weights are (code - zero) * scale, as weight_view.h has it, with one scale
 *     and zero of a row for panel_scale_cols columns: F8_E4M3 and I8 have f32 scales before four blocks, U4 f32 scales
 *     and u8 zeros behind each, F4_E2M1 f32 scales of each half, MXFP4 bf16 scales, which hold any power of two
 *
 * The K-quants, IQ1_* to IQ4_XS and TQ* keep f16 scales for 256 columns, Q1_0 for 128 and Q2_0 for 64: eight, four or two blocks follow one header of those, and each block has
 * scales of 4 to 8 bits: one of a row, and a minimum (Q4_K, Q5_K); one (IQ4_XS); or one for the low 16 columns and one for
 * the others (Q6_K, Q3_K, Q2_K; in Q2_K each is a nibble of a byte, with its minimum in the high one; in the grids' types both are nibbles of one byte); or
 * none (TQ*, Q1_0, Q2_0). These types need K to be a multiple of those columns, the other quants of 32, floats of nothing: columns past K are zero. Rows past N in the last panel are zero as well; nobody reads their
 * outputs.
 *
 * One layout serves all instruction sets (an AVX2 kernel takes each vector in two halves). */
#ifndef KERNELS_CPU_PANEL_H
#define KERNELS_CPU_PANEL_H

#include <stdint.h>

#include "files/weight_view.h"

enum { PANEL_ROWS = 16, PANEL_BLOCK = 32 };

/* Always: what is asked of a constant dtype is a constant, however large the function that asks. */
#define PANEL_INLINE static inline __attribute__((always_inline))

/* Where things stand in a block (offsets from its start) and in a super-block (from its header). */
struct panel_layout {
    int blocks_per_super; /* 1, 2, 4 or 8 */
    int header_bytes;     /* before the blocks of a super-block */
    int block_bytes;
    int high_bits; /* offset of the third bits, the fifth bits or the upper two bits */
    int scales;    /* offset of d (f16 [16]); where there is a header, of the small scales (u8 or i8 [16]) */
    int minimums; /* offset of m (f16 [16]); where there is a header, of the small minimums, or of the second scales */
};

PANEL_INLINE struct panel_layout panel_layout_of(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return (struct panel_layout){1, 0, 2048, 0, 0, 0};
    case DTYPE_F16:
    case DTYPE_BF16:
        return (struct panel_layout){1, 0, 1024, 0, 0, 0};
    case DTYPE_Q4_0:
    case DTYPE_IQ4_NL:
        return (struct panel_layout){1, 0, 288, 0, 256, 0};
    case DTYPE_Q4_1:
        return (struct panel_layout){1, 0, 320, 0, 256, 288};
    case DTYPE_Q5_0:
        return (struct panel_layout){1, 0, 352, 256, 320, 0};
    case DTYPE_Q5_1:
        return (struct panel_layout){1, 0, 384, 256, 320, 352};
    case DTYPE_Q8_0:
        return (struct panel_layout){1, 0, 544, 0, 512, 0};
    case DTYPE_Q4_K:
        return (struct panel_layout){8, 64, 288, 0, 256, 272};
    case DTYPE_Q5_K:
        return (struct panel_layout){8, 64, 352, 256, 320, 336};
    case DTYPE_Q6_K:
        return (struct panel_layout){8, 32, 416, 256, 384, 400};
    case DTYPE_IQ4_XS:
        return (struct panel_layout){8, 32, 272, 0, 256, 0};
    case DTYPE_Q2_K:
        return (struct panel_layout){8, 64, 160, 0, 128, 144};
    case DTYPE_Q3_K:
        return (struct panel_layout){8, 32, 224, 128, 192, 208};
    case DTYPE_IQ2_XXS:
        return (struct panel_layout){8, 32, 144, 0, 128, 0};
    case DTYPE_IQ2_XS:
    case DTYPE_IQ2_S:
        return (struct panel_layout){8, 32, 160, 128, 144, 0};
    case DTYPE_IQ3_XXS:
        return (struct panel_layout){8, 32, 208, 0, 192, 0};
    case DTYPE_IQ3_S:
        return (struct panel_layout){8, 32, 224, 192, 208, 0};
    case DTYPE_IQ1_S:
    case DTYPE_IQ1_M:
        return (struct panel_layout){8, 32, 112, 64, 96, 0};
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0:
        return (struct panel_layout){8, 32, 128, 0, 0, 0};
    case DTYPE_Q1_0:
        return (struct panel_layout){4, 32, 64, 0, 0, 0};
    case DTYPE_Q2_0:
        return (struct panel_layout){2, 32, 128, 0, 0, 0};
    case DTYPE_MXFP4:
        return (struct panel_layout){1, 0, 288, 0, 256, 0};
    case DTYPE_F8_E4M3:
    case DTYPE_I8:
        return (struct panel_layout){4, 64, 512, 0, 0, 0};
    case DTYPE_U4:
        return (struct panel_layout){1, 0, 336, 0, 256, 320};
    case DTYPE_F4_E2M1:
        return (struct panel_layout){1, 0, 384, 0, 256, 320};
    case DTYPE_COUNT:
        break;
    }
    return (struct panel_layout){.blocks_per_super = 1};
}

/* What was added to the signed integers of a dtype to make them unsigned. */
PANEL_INLINE int panel_unsigned_bias(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_Q4_0:
        return 8;
    case DTYPE_Q5_0:
        return 16;
    case DTYPE_Q6_K:
        return 32;
    case DTYPE_Q3_K:
        return 4;
    case DTYPE_IQ2_XXS:
    case DTYPE_IQ2_XS:
    case DTYPE_IQ2_S:
        return 43;
    case DTYPE_IQ3_XXS:
        return 62;
    case DTYPE_IQ3_S:
        return 15;
    case DTYPE_IQ1_S:
    case DTYPE_IQ1_M:
        return 9;
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0:
    case DTYPE_Q1_0:
    case DTYPE_Q2_0:
        return 1;
    case DTYPE_Q8_0:
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS:
        return 128;
    default:
        return 0;
    }
}

/* Whether a block's low and high 16 columns have scales of their own. */
PANEL_INLINE bool panel_has_two_scales(enum dtype dtype)
{
    return dtype == DTYPE_Q6_K || dtype == DTYPE_Q3_K || dtype == DTYPE_Q2_K || dtype == DTYPE_IQ2_XS ||
           dtype == DTYPE_IQ2_S || dtype == DTYPE_IQ1_M;
}

/* Whether a super-block's scales are those of all its columns: they are small integers, from -1 on. */
PANEL_INLINE bool panel_has_one_scale(enum dtype dtype)
{
    return dtype == DTYPE_TQ1_0 || dtype == DTYPE_TQ2_0 || dtype == DTYPE_Q1_0 || dtype == DTYPE_Q2_0;
}

/* Whether unsigned integers begin with two bits of their own. */
PANEL_INLINE bool panel_has_two_bits(enum dtype dtype)
{
    return dtype == DTYPE_Q2_K || dtype == DTYPE_Q3_K || (panel_has_one_scale(dtype) && dtype != DTYPE_Q1_0);
}

/* Whether unsigned integers are of 6 or 7 bits: two products with int8 fit into 16 bits, and no more. */
PANEL_INLINE bool panel_has_seven_bits(enum dtype dtype)
{
    return dtype_is_grid(dtype) && panel_unsigned_bias(dtype) > 15;
}

/* Whether nibbles stand for values of a table, dtype_iq4_values. */
PANEL_INLINE bool panel_has_table(enum dtype dtype)
{
    return dtype == DTYPE_IQ4_NL || dtype == DTYPE_IQ4_XS;
}

/* Whether a panel holds codes, which panel_pack_codes packs. */
PANEL_INLINE bool panel_has_codes(enum dtype dtype)
{
    return dtype >= DTYPE_MXFP4;
}

/* Columns of codes that have one scale in a panel: a weight's scales must be of a multiple, or of whole rows. */
PANEL_INLINE int panel_scale_cols(enum dtype dtype)
{
    if (dtype == DTYPE_F4_E2M1) return PANEL_BLOCK / 2;
    return panel_layout_of(dtype).blocks_per_super * PANEL_BLOCK;
}

/* The header of block block_idx's super-block. */
PANEL_INLINE const uint8_t *panel_header(enum dtype dtype, const uint8_t *panel, int64_t block_idx)
{
    const struct panel_layout l = panel_layout_of(dtype);
    return panel + block_idx / l.blocks_per_super * (l.header_bytes + l.blocks_per_super * l.block_bytes);
}

PANEL_INLINE const uint8_t *panel_block(enum dtype dtype, const uint8_t *panel, int64_t block_idx)
{
    const struct panel_layout l = panel_layout_of(dtype);
    return panel_header(dtype, panel, block_idx) + l.header_bytes +
           block_idx % l.blocks_per_super * l.block_bytes;
}

/* Blocks along K. */
PANEL_INLINE int64_t panel_num_blocks(int64_t cols)
{
    return (cols + PANEL_BLOCK - 1) / PANEL_BLOCK;
}

/* Bytes of a panel of cols columns; 0 when cols is 0, no multiple of the dtype's block, or too large. */
uint64_t panel_bytes(enum dtype dtype, int64_t cols);

/* Packs num_rows <= 16 rows of dtype, row_bytes apart and aligned to nothing, into a panel. */
void panel_pack(enum dtype dtype, const void *rows, uint64_t row_bytes, int num_rows, int64_t cols,
                uint8_t *panel);

/* Packs rows [row, row + num_rows), num_rows <= 16, of a view whose panels have codes. order: column k of the panel is the
 * view's column order[k]; NULL: k. A group of F8_E4M3 that has a NaN is NaN as a whole. */
void panel_pack_codes(const struct weight_view *v, const int32_t *order, int64_t row, int num_rows,
                      uint8_t *panel);

/* out[k][r] = the exact f32 values of one block, as dtype_row_to_f32 computes them. */
void panel_block_to_f32(enum dtype dtype, const uint8_t *panel, int64_t block_idx,
                        float out[PANEL_BLOCK][PANEL_ROWS]);

/* out[cols] = one row of the panel, the same values. */
void panel_row_to_f32(enum dtype dtype, const uint8_t *panel, int row, int64_t cols, float *out);

#endif
