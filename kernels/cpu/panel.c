#include "kernels/cpu/panel.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"
#include "files/dtype_blocks.h"
#include "files/dtype_grids.h"
#include "files/weight_codes.h"
#include "kernels/cpu/panel_grid.h"

uint64_t panel_bytes(enum dtype dtype, int64_t cols)
{
    const struct panel_layout l = panel_layout_of(dtype);
    if (cols <= 0 || cols > INT32_MAX || dtype_row_bytes(dtype, (uint64_t)cols) == 0) return 0;
    const uint64_t num_supers = (uint64_t)div_up(panel_num_blocks(cols), l.blocks_per_super);
    return num_supers * (uint64_t)(l.header_bytes + l.blocks_per_super * l.block_bytes);
}

/* ---- packing: one row's share of one block ---- */

/* flip changes the sign bits of signed bytes, which adds 128. */
static void put_dwords(uint8_t *quants, int row, const uint8_t *from, int num_dwords, uint32_t flip)
{
    for (int i = 0; i < num_dwords; i++) {
        const uint32_t v = load_u32(from + i * 4) ^ flip;
        memcpy(quants + i * 64 + row * 4, &v, 4);
    }
}

/* bits: bit k is the fifth bit of column k. */
static void put_fifth_bits(uint8_t *high, int row, uint32_t bits)
{
    for (int i = 0; i < 8; i++) {
        const uint8_t nibble = (uint8_t)(bits >> (4 * i) & 15);
        high[i * 8 + row / 2] |= (uint8_t)(nibble << (row % 2 * 4));
    }
}

static void put_f16(uint8_t *scales, int row, const uint8_t *from)
{
    memcpy(scales + row * 2, from, 2);
}

/* Scale and minimum number j of a Q4_K or Q5_K super-block: 6 bits each, 8 of both in 12 bytes. */
static void get_k_scale(const uint8_t *packed, int j, uint8_t *scale, uint8_t *minimum)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *minimum = packed[j + 4] & 63;
        return;
    }
    *scale = (uint8_t)((packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4);
    *minimum = (uint8_t)(packed[j + 4] >> 4 | (packed[j] >> 6) << 4);
}

/* Block j of a K-quant takes the low (even j) or high (odd j) nibbles of 32 bytes. */
static void put_k_nibbles(uint8_t *quants, int row, const uint8_t *from, bool high)
{
    for (int i = 0; i < 4; i++) {
        const uint32_t first = load_u32(from + i * 4), second = load_u32(from + 16 + i * 4);
        const uint32_t v = high ? (first >> 4 & 0x0f0f0f0fu) | (second & 0xf0f0f0f0u)
                                : (first & 0x0f0f0f0fu) | (second << 4 & 0xf0f0f0f0u);
        memcpy(quants + i * 64 + row * 4, &v, 4);
    }
}

/* d f16, dmin f16, scales 12, (Q5_K: fifth bits 32), nibbles 128. */
static void put_super_45k(enum dtype dtype, uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const uint8_t *const fifth = from + 16, *const nibbles = from + (dtype == DTYPE_Q5_K ? 48 : 16);
    put_f16(header, row, from);
    put_f16(header + 32, row, from + 2);
    for (int j = 0; j < 8; j++) {
        uint8_t *const block = header + l.header_bytes + j * l.block_bytes;
        get_k_scale(from + 4, j, &block[l.scales + row], &block[l.minimums + row]);
        put_k_nibbles(block, row, nibbles + j / 2 * 32, j % 2);
        if (dtype != DTYPE_Q5_K) continue;
        uint32_t bits = 0;
        for (int k = 0; k < 32; k++) bits |= (uint32_t)(fifth[k] >> j & 1) << k;
        put_fifth_bits(block + l.high_bits, row, bits);
    }
}

/* Two bits of each of 32 columns: bits shift, shift + 1 of the bytes at from. */
static void put_two_bits(uint8_t *to, int row, const uint8_t *from, int shift)
{
    for (int j = 0; j < 2; j++) {
        uint32_t v = 0;
        for (int s = 0; s < 4; s++) v |= (load_u32(from + j * 16 + s * 4) >> shift & 0x03030303u) << (2 * s);
        memcpy(to + j * 64 + row * 4, &v, 4);
    }
}

/* scales and minimums 16, two bits 64, d f16, dmin f16. Column k of block j: bits 2 (j % 4) on of byte j / 4 * 32 + k. */
static void put_super_2k(uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(DTYPE_Q2_K);
    put_f16(header, row, from + 80);
    put_f16(header + 32, row, from + 82);
    for (int j = 0; j < 8; j++) {
        uint8_t *const block = header + l.header_bytes + j * l.block_bytes;
        put_two_bits(block, row, from + 16 + j / 4 * 32, j % 4 * 2);
        block[l.scales + row] = from[2 * j];
        block[l.minimums + row] = from[2 * j + 1];
    }
}

/* third bits 32 (bit j of byte k: column k of block j), two bits 64 as in Q2_K, scales 12, d f16. */
static void put_super_3k(uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(DTYPE_Q3_K);
    put_f16(header, row, from + 108);
    for (int j = 0; j < 8; j++) {
        uint8_t *const block = header + l.header_bytes + j * l.block_bytes;
        uint32_t third = 0;
        put_two_bits(block, row, from + 32 + j / 4 * 32, j % 4 * 2);
        for (int i = 0; i < 8; i++) third |= (load_u32(from + i * 4) >> j & 0x01010101u) << i;
        memcpy(block + l.high_bits + row * 4, &third, 4);
        block[l.scales + row] = (uint8_t)dtype_q3_k_scale(from, 2 * j);
        block[l.minimums + row] = (uint8_t)dtype_q3_k_scale(from, 2 * j + 1);
    }
}

static void put_super_grid(enum dtype dtype, uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const uint16_t scale = dtype_grid_scale(dtype, from);
    memcpy(header + row * 2, &scale, sizeof scale);
    for (int j = 0; j < 8; j++) {
        const struct grid_group g = dtype_grid_group(dtype, from, j);
        panel_grid_put(dtype, header + l.header_bytes + j * l.block_bytes, row, &g);
    }
}

/* two bits 64 as in Q2_K, d f16; of TQ1_0 digits of three. */
static void put_super_ternary(enum dtype dtype, uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(dtype);
    put_f16(header, row, from + dtype_infos[dtype].block_bytes - 2);
    for (int j = 0; j < 8; j++) {
        uint8_t *const block = header + l.header_bytes + j * l.block_bytes, codes[PANEL_BLOCK];
        for (int k = 0; k < PANEL_BLOCK && dtype == DTYPE_TQ1_0; k++)
            codes[k] = (uint8_t)dtype_tq1_0_code(from, j * PANEL_BLOCK + k);
        if (dtype == DTYPE_TQ1_0)
            put_two_bits(block, row, codes, 0);
        else
            put_two_bits(block, row, from + j / 4 * 32, j % 4 * 2);
    }
}

/* d f16, a bit of each column. */
static void put_super_q1_0(uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(DTYPE_Q1_0);
    put_f16(header, row, from);
    for (int j = 0; j < l.blocks_per_super; j++)
        put_fifth_bits(header + l.header_bytes + j * l.block_bytes, row, load_u32(from + 2 + 4 * j));
}

/* d f16, two bits of each column, four in a byte. */
static void put_super_q2_0(uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(DTYPE_Q2_0);
    put_f16(header, row, from);
    for (int j = 0; j < l.blocks_per_super; j++) {
        uint8_t codes[PANEL_BLOCK];
        for (int k = 0; k < PANEL_BLOCK; k++)
            codes[k] = from[2 + j * PANEL_BLOCK / 4 + k / 4] >> (k % 4 * 2) & 3;
        put_two_bits(header + l.header_bytes + j * l.block_bytes, row, codes, 0);
    }
}

/* d f16, scales 6, nibbles 128. */
static void put_super_iq4_xs(uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(DTYPE_IQ4_XS);
    put_f16(header, row, from);
    for (int j = 0; j < 8; j++) {
        uint8_t *const block = header + l.header_bytes + j * l.block_bytes;
        put_dwords(block, row, from + 8 + j * 16, 4, 0);
        block[l.scales + row] = (uint8_t)dtype_iq4_xs_scale(from, j);
    }
}

/* low nibbles 128, upper bits 64, scales 16 (one for 16 columns), d f16. Of each half of 128 columns, column
 * 32 g + k (g < 4) has its nibble in byte 32 (g % 2) + k, low or high by g / 2, and its upper bits in byte k.
 */
static void put_super_6k(uint8_t *header, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(DTYPE_Q6_K);
    put_f16(header, row, from + 208);
    for (int j = 0; j < 8; j++) {
        const int g = j % 4;
        const uint8_t *const low = from + j / 4 * 64 + g % 2 * 32, *const upper = from + 128 + j / 4 * 32;
        uint8_t *const block = header + l.header_bytes + j * l.block_bytes;
        put_k_nibbles(block, row, low, g / 2);
        put_two_bits(block + l.high_bits, row, upper, 2 * g);
        block[l.scales + row] = from[192 + 2 * j];
        block[l.minimums + row] = from[192 + 2 * j + 1];
    }
}

/* d f16, (m f16), (fifth bits 4), nibbles 16 or signed bytes 32. */
static void put_block_legacy(enum dtype dtype, uint8_t *block, int row, const uint8_t *from)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const bool five = dtype == DTYPE_Q5_0 || dtype == DTYPE_Q5_1;
    put_f16(block + l.scales, row, from);
    from += 2;
    if (l.minimums) {
        put_f16(block + l.minimums, row, from);
        from += 2;
    }
    if (five) {
        put_fifth_bits(block + l.high_bits, row, load_u32(from));
        from += 4;
    }
    if (dtype == DTYPE_Q8_0)
        put_dwords(block, row, from, 8, 0x80808080u);
    else
        put_dwords(block, row, from, 4, 0);
}

/* bytes is a constant, so that the copies are loads and stores. */
static inline __attribute__((always_inline)) void put_columns(uint8_t *block, int row, const uint8_t *from,
                                                              int num_cols, size_t bytes)
{
    for (int k = 0; k < num_cols; k++)
        memcpy(block + (size_t)(k * PANEL_ROWS + row) * bytes, from + (size_t)k * bytes, bytes);
}

static void put_floats(enum dtype dtype, uint8_t *block, int row, const uint8_t *from, int num_cols)
{
    if (dtype == DTYPE_F32)
        put_columns(block, row, from, num_cols, 4);
    else
        put_columns(block, row, from, num_cols, 2);
}

/* Row's share of the block (where there is a header: of the super-block) that starts at column col. */
static void put_block(enum dtype dtype, uint8_t *to, int row, const uint8_t *row_data, int64_t col,
                      int64_t cols)
{
    const struct dtype_info *const info = &dtype_infos[dtype];
    const uint8_t *const from = row_data + col / info->block_values * info->block_bytes;
    switch (dtype) {
    case DTYPE_F32:
    case DTYPE_F16:
    case DTYPE_BF16:
        put_floats(dtype, to, row, from, (int)min_of(cols - col, PANEL_BLOCK));
        break;
    case DTYPE_Q4_K:
    case DTYPE_Q5_K:
        put_super_45k(dtype, to, row, from);
        break;
    case DTYPE_Q6_K:
        put_super_6k(to, row, from);
        break;
    case DTYPE_Q2_K:
        put_super_2k(to, row, from);
        break;
    case DTYPE_Q3_K:
        put_super_3k(to, row, from);
        break;
    case DTYPE_IQ4_XS:
        put_super_iq4_xs(to, row, from);
        break;
    case DTYPE_IQ2_XXS:
    case DTYPE_IQ2_XS:
    case DTYPE_IQ2_S:
    case DTYPE_IQ3_XXS:
    case DTYPE_IQ3_S:
    case DTYPE_IQ1_S:
    case DTYPE_IQ1_M:
        put_super_grid(dtype, to, row, from);
        break;
    case DTYPE_TQ1_0:
    case DTYPE_TQ2_0:
        put_super_ternary(dtype, to, row, from);
        break;
    case DTYPE_Q1_0:
        put_super_q1_0(to, row, from);
        break;
    case DTYPE_Q2_0:
        put_super_q2_0(to, row, from);
        break;
    default:
        put_block_legacy(dtype, to, row, from);
        break;
    }
}

void panel_pack(enum dtype dtype, const void *rows, uint64_t row_bytes, int num_rows, int64_t cols,
                uint8_t *panel)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const int cols_step = l.blocks_per_super * PANEL_BLOCK;
    const size_t step_bytes = (size_t)(l.header_bytes + l.blocks_per_super * l.block_bytes);
    for (int64_t col = 0; col < cols; col += cols_step, panel += step_bytes) {
        memset(panel, 0, step_bytes);
        for (int r = 0; r < num_rows; r++)
            put_block(dtype, panel, r, (const uint8_t *)rows + (uint64_t)r * row_bytes, col, cols);
    }
}

/* ---- packing codes ---- */

static bool is_nan(enum dtype dtype, uint8_t code)
{
    return dtype == DTYPE_F8_E4M3 && (code & 0x7f) == 0x7f;
}

/* Scales of a block's codes, as the panel has them; NaN where is_nan says so. */
static void put_scales(const struct code_block *b, int64_t col, float *to, uint8_t *zeros)
{
    float scales[CODE_ROWS] = {0};
    weight_read_scales(b, col, scales, zeros);
    memcpy(to, scales, sizeof scales);
}

static void put_block_scales(const struct code_block *b, int64_t block_idx, uint8_t *header, uint8_t *block,
                             uint8_t zeros[CODE_ROWS])
{
    const enum dtype dtype = b->view->dtype;
    const struct panel_layout l = panel_layout_of(dtype);
    const int64_t col = block_idx * PANEL_BLOCK;
    float scales[CODE_ROWS];
    if (l.header_bytes && block_idx % l.blocks_per_super) return;
    put_scales(b, col, scales, zeros);
    if (dtype == DTYPE_MXFP4) {
        for (int r = 0; r < CODE_ROWS; r++) {
            const uint16_t half = dtype_f32_to_bf16(scales[r]);
            memcpy(block + l.scales + r * 2, &half, sizeof half);
        }
        return;
    }
    memcpy(l.header_bytes ? header : block + l.scales, scales, sizeof scales);
    if (dtype == DTYPE_U4) memcpy(block + l.minimums, zeros, CODE_ROWS);
    if (dtype != DTYPE_F4_E2M1) return;
    if (col + PANEL_BLOCK / 2 < b->view->cols) put_scales(b, col + PANEL_BLOCK / 2, scales, zeros);
    memcpy(block + l.minimums, scales, sizeof scales);
}

static void put_codes(enum dtype dtype, uint8_t *block, uint8_t codes[PANEL_BLOCK][CODE_ROWS])
{
    if (dtype == DTYPE_F8_E4M3 || dtype == DTYPE_I8) {
        memcpy(block, codes, PANEL_BLOCK * CODE_ROWS);
        return;
    }
    for (int k = 0; k < PANEL_BLOCK; k += 2)
        for (int r = 0; r < CODE_ROWS; r++)
            block[k / 2 * PANEL_ROWS + r] = (uint8_t)(codes[k][r] | codes[k + 1][r] << 4);
}

static void spoil_nans(const uint8_t codes[PANEL_BLOCK][CODE_ROWS], uint8_t *header)
{
    const float nan = __builtin_nanf("");
    for (int k = 0; k < PANEL_BLOCK; k++)
        for (int r = 0; r < CODE_ROWS; r++)
            if (is_nan(DTYPE_F8_E4M3, codes[k][r])) memcpy(header + r * 4, &nan, sizeof nan);
}

void panel_pack_codes(const struct weight_view *v, const int32_t *order, int64_t row, int num_rows,
                      uint8_t *panel)
{
    const struct code_block b = {.view = v, .order = order, .row = row, .num_rows = num_rows};
    memset(panel, 0, panel_bytes(v->dtype, v->cols));
    for (int64_t i = 0; i < panel_num_blocks(v->cols); i++) {
        uint8_t *const header = (uint8_t *)(uintptr_t)panel_header(v->dtype, panel, i),
                       *const block = (uint8_t *)(uintptr_t)panel_block(v->dtype, panel, i);
        uint8_t codes[PANEL_BLOCK][CODE_ROWS] = {0}, zeros[CODE_ROWS] = {0};
        const int num_cols = (int)min_of(v->cols - i * PANEL_BLOCK, (int64_t)PANEL_BLOCK);
        weight_read_codes(&b, i * PANEL_BLOCK, num_cols, codes);
        put_block_scales(&b, i, header, block, zeros);
        for (int k = num_cols; k < PANEL_BLOCK; k++) memcpy(codes[k], zeros, CODE_ROWS); /* weights 0 */
        put_codes(v->dtype, block, codes);
        if (v->dtype == DTYPE_F8_E4M3) spoil_nans((const uint8_t(*)[CODE_ROWS])codes, header);
    }
}

/* ---- unpacking: lanes [first, first + num) of a block, to [k * num + lane] ---- */

#define INLINE static inline __attribute__((always_inline))

struct lanes {
    int first, num;
};

INLINE void unpack_floats(enum dtype dtype, const uint8_t *header, const uint8_t *block, struct lanes lanes,
                          float *out)
{
    (void)header;
    for (int i = 0; i < PANEL_BLOCK * lanes.num; i++) {
        const int at = i / lanes.num * PANEL_ROWS + lanes.first + i % lanes.num;
        uint16_t half;
        if (dtype == DTYPE_F32) {
            memcpy(&out[i], block + at * 4, 4);
            continue;
        }
        memcpy(&half, block + at * 2, 2);
        out[i] = dtype == DTYPE_F16 ? dtype_f16_to_f32(half) : dtype_bf16_to_f32(half);
    }
}

/* Scale of column half (0: k < 16, 1: the rest). */
INLINE float scale_of(enum dtype dtype, const uint8_t *header, const uint8_t *block, int row, int half)
{
    const struct panel_layout l = panel_layout_of(dtype);
    uint16_t d;
    memcpy(&d, (l.header_bytes ? header : block + l.scales) + row * 2, 2);
    const float super = dtype_f16_to_f32(d);
    if (panel_has_one_scale(dtype)) return super;
    if (dtype_is_grid(dtype)) return super * dtype_grid_step(dtype, block[l.scales + row] >> (4 * half) & 15);
    const uint8_t small = block[(half && panel_has_two_scales(dtype) ? l.minimums : l.scales) + row];
    if (dtype == DTYPE_Q2_K) return super * (float)(small & 15);
    if (panel_has_two_scales(dtype) || dtype == DTYPE_IQ4_XS) return super * (float)(int8_t)small;
    return l.header_bytes ? super * (float)small : super;
}

INLINE bool has_minimums(enum dtype dtype)
{
    return dtype == DTYPE_Q2_K || (panel_layout_of(dtype).minimums && !panel_has_two_scales(dtype));
}

/* What is added to d * q. */
INLINE float minimum_of(enum dtype dtype, const uint8_t *header, const uint8_t *block, int row, int half)
{
    const struct panel_layout l = panel_layout_of(dtype);
    uint16_t m;
    memcpy(&m, l.header_bytes ? header + 32 + row * 2 : block + l.minimums + row * 2, 2);
    if (dtype == DTYPE_Q2_K)
        return -(dtype_f16_to_f32(m) * (float)(block[(half ? l.minimums : l.scales) + row] >> 4));
    return l.header_bytes ? -(dtype_f16_to_f32(m) * (float)block[l.minimums + row]) : dtype_f16_to_f32(m);
}

/* The packed bytes or nibbles. */
INLINE void unpack_integers(enum dtype dtype, const uint8_t *block, struct lanes lanes, int32_t *out)
{
    const int bits = dtype == DTYPE_Q8_0 ? 8 : 4;
    for (int i = 0; i < bits; i++) {
        uint32_t dwords[PANEL_ROWS];
        memcpy(dwords, block + i * 64 + lanes.first * 4, (size_t)lanes.num * 4);
        for (int c = 0; c < 4; c++) {
            int32_t *const low = out + (4 * i + c) * lanes.num, *const high = low + 16 * lanes.num;
            for (int r = 0; r < lanes.num; r++) low[r] = (int32_t)(dwords[r] >> (8 * c) & ((1u << bits) - 1));
            for (int r = 0; r < lanes.num && bits == 4; r++)
                high[r] = (int32_t)(dwords[r] >> (8 * c + 4) & 15);
        }
    }
}

/* A bit of each integer, worth 1 << shift. */
INLINE void add_one_bit(const uint8_t *high, struct lanes lanes, int shift, int32_t *out)
{
    for (int i = 0; i < PANEL_BLOCK * lanes.num; i++) {
        const int k = i / lanes.num, row = lanes.first + i % lanes.num;
        out[i] += (high[k / 4 * 8 + row / 2] >> (row % 2 * 4 + k % 4) & 1) << shift;
    }
}

/* Two bits of each integer, worth 1 << shift. */
INLINE void add_two_bits(const uint8_t *from, struct lanes lanes, int shift, int32_t *out)
{
    for (int j = 0; j < 2; j++) {
        uint32_t dwords[PANEL_ROWS];
        memcpy(dwords, from + j * 64 + lanes.first * 4, (size_t)lanes.num * 4);
        for (int k = 0; k < 16; k++)
            for (int r = 0; r < lanes.num; r++)
                out[(16 * j + k) * lanes.num + r] += (int32_t)(dwords[r] >> (k % 4 * 8 + k / 4 * 2) & 3)
                                                     << shift;
    }
}

INLINE void add_third_bits(const uint8_t *high, struct lanes lanes, int32_t *out)
{
    for (int i = 0; i < PANEL_BLOCK * lanes.num; i++) {
        const int k = i / lanes.num, row = lanes.first + i % lanes.num;
        out[i] += (high[row * 4 + k % 4] >> (k / 4) & 1) << 2;
    }
}

INLINE void unpack_grid(enum dtype dtype, const uint8_t *block, struct lanes lanes, int32_t *out)
{
    for (int r = 0; r < lanes.num; r++) {
        const struct grid_group g = panel_grid_get(dtype, block, lanes.first + r);
        int16_t values[GRID_COLUMNS];
        dtype_grid_values(dtype, &g, values);
        for (int k = 0; k < GRID_COLUMNS; k++) out[k * lanes.num + r] = values[k];
    }
}

/* The integers of a block, bias taken off; or what the table has for them. */
INLINE void unpack_signed(enum dtype dtype, const uint8_t *block, struct lanes lanes, int32_t *out)
{
    const uint8_t *const high = block + panel_layout_of(dtype).high_bits;
    const int num = PANEL_BLOCK * lanes.num;
    if (dtype_is_grid(dtype)) {
        unpack_grid(dtype, block, lanes, out);
        return;
    }
    if (dtype == DTYPE_Q1_0) {
        memset(out, 0, (size_t)num * sizeof *out);
        add_one_bit(block, lanes, 1, out);
    } else if (panel_has_two_bits(dtype)) {
        memset(out, 0, (size_t)num * sizeof *out);
        add_two_bits(block, lanes, 0, out);
        if (dtype == DTYPE_Q3_K) add_third_bits(high, lanes, out);
    } else {
        unpack_integers(dtype, block, lanes, out);
        if (dtype == DTYPE_Q6_K)
            add_two_bits(high, lanes, 4, out);
        else if (panel_layout_of(dtype).high_bits)
            add_one_bit(high, lanes, 4, out);
    }
    for (int i = 0; i < num; i++)
        out[i] = panel_has_table(dtype) ? dtype_iq4_values[out[i]] : out[i] - panel_unsigned_bias(dtype);
}

INLINE void unpack_quants(enum dtype dtype, const uint8_t *header, const uint8_t *block, struct lanes lanes,
                          float *out)
{
    int32_t integers[PANEL_BLOCK * PANEL_ROWS];
    unpack_signed(dtype, block, lanes, integers);
    for (int half = 0; half < 2; half++) {
        float scales[PANEL_ROWS], minimums[PANEL_ROWS];
        for (int i = 0; i < lanes.num; i++) {
            scales[i] = scale_of(dtype, header, block, lanes.first + i, half);
            minimums[i] = has_minimums(dtype) ? minimum_of(dtype, header, block, lanes.first + i, half) : 0;
        }
        for (int k = half * 16; k < half * 16 + 16; k++) {
            for (int i = 0; i < lanes.num; i++) {
                const float v = scales[i] * (float)integers[k * lanes.num + i];
                out[k * lanes.num + i] = has_minimums(dtype) ? v + minimums[i] : v;
            }
        }
    }
}

INLINE float code_value(enum dtype dtype, const uint8_t *block, int k, int row)
{
    const uint8_t byte = block[k * PANEL_ROWS + row], pair = block[k / 2 * PANEL_ROWS + row];
    const int nibble = pair >> (k % 2 * 4) & 15;
    if (dtype == DTYPE_F8_E4M3) return dtype_e4m3_to_f32(byte);
    if (dtype == DTYPE_I8) return (float)(int8_t)byte;
    if (dtype == DTYPE_U4) return (float)(nibble - block[panel_layout_of(dtype).minimums + row]);
    return dtype_e2m1_values[nibble];
}

INLINE float code_scale(enum dtype dtype, const uint8_t *header, const uint8_t *block, int k, int row)
{
    const struct panel_layout l = panel_layout_of(dtype);
    const bool second = dtype == DTYPE_F4_E2M1 && k >= PANEL_BLOCK / 2;
    uint16_t half;
    float scale;
    memcpy(&half, block + l.scales + row * 2, sizeof half);
    if (dtype == DTYPE_MXFP4) return dtype_bf16_to_f32(half);
    memcpy(&scale, (l.header_bytes ? header : block + (second ? l.minimums : l.scales)) + row * 4,
           sizeof scale);
    return scale;
}

INLINE void unpack_codes(enum dtype dtype, const uint8_t *header, const uint8_t *block, struct lanes lanes,
                         float *out)
{
    for (int i = 0; i < PANEL_BLOCK * lanes.num; i++) {
        const int k = i / lanes.num, row = lanes.first + i % lanes.num;
        out[i] = code_value(dtype, block, k, row) * code_scale(dtype, header, block, k, row);
    }
}

INLINE void unpack_block(enum dtype dtype, const uint8_t *panel, int64_t block_idx, struct lanes lanes,
                         float *out)
{
    const uint8_t *const header = panel_header(dtype, panel, block_idx);
    const uint8_t *const block = panel_block(dtype, panel, block_idx);
    switch (dtype) { /* each case with its own constant, so that each has its own loops */
#define CASE(kind, dtype)                                                                                    \
    case dtype:                                                                                              \
        unpack_##kind(dtype, header, block, lanes, out);                                                     \
        break;
        CASE(floats, DTYPE_F32)
        CASE(floats, DTYPE_F16)
        CASE(floats, DTYPE_BF16)
        CASE(quants, DTYPE_Q4_0)
        CASE(quants, DTYPE_Q4_1)
        CASE(quants, DTYPE_Q5_0)
        CASE(quants, DTYPE_Q5_1)
        CASE(quants, DTYPE_Q8_0)
        CASE(quants, DTYPE_Q4_K)
        CASE(quants, DTYPE_Q5_K)
        CASE(quants, DTYPE_Q6_K)
        CASE(quants, DTYPE_Q2_K)
        CASE(quants, DTYPE_Q3_K)
        CASE(quants, DTYPE_IQ4_NL)
        CASE(quants, DTYPE_IQ4_XS)
        CASE(quants, DTYPE_IQ2_XXS)
        CASE(quants, DTYPE_IQ2_XS)
        CASE(quants, DTYPE_IQ2_S)
        CASE(quants, DTYPE_IQ3_XXS)
        CASE(quants, DTYPE_IQ3_S)
        CASE(quants, DTYPE_IQ1_S)
        CASE(quants, DTYPE_IQ1_M)
        CASE(quants, DTYPE_TQ1_0)
        CASE(quants, DTYPE_TQ2_0)
        CASE(quants, DTYPE_Q1_0)
        CASE(quants, DTYPE_Q2_0)
        CASE(codes, DTYPE_MXFP4)
        CASE(codes, DTYPE_F8_E4M3)
        CASE(codes, DTYPE_I8)
        CASE(codes, DTYPE_U4)
        CASE(codes, DTYPE_F4_E2M1)
#undef CASE
    case DTYPE_COUNT:
        break;
    }
}

void panel_block_to_f32(enum dtype dtype, const uint8_t *panel, int64_t block_idx,
                        float out[PANEL_BLOCK][PANEL_ROWS])
{
    unpack_block(dtype, panel, block_idx, (struct lanes){0, PANEL_ROWS}, &out[0][0]);
}

void panel_row_to_f32(enum dtype dtype, const uint8_t *panel, int row, int64_t cols, float *out)
{
    for (int64_t b = 0; b < panel_num_blocks(cols); b++) {
        float values[PANEL_BLOCK];
        unpack_block(dtype, panel, b, (struct lanes){row, 1}, values);
        const int64_t left = min_of(cols - b * PANEL_BLOCK, (int64_t)PANEL_BLOCK);
        memcpy(out + b * PANEL_BLOCK, values, (size_t)left * sizeof *values);
    }
}
