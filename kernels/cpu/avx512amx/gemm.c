/* gemm.c - panel kernels for AVX-512 with VNNI and AMX: 16 rows of activations at once.
 *
 * A tile register holds 16 rows of 64 bytes. The product of a tile of activations (16 rows, a block of
 * columns) and one of weights (dword i of a panel's rows in its row i, as a panel has them) is the exact
 * integer sum for 16 x 16 outputs, the sums of the VNNI set; scales are applied as there. So the bits are the
 * same, and rows that do not fill a tile go the way of the VNNI set.
 *
 * int16: activations are taken as bytes, low ones unsigned, high ones signed, in one tile as they lie. The
 * 16-bit weights (low byte the weight, high byte zero) meet the low bytes, and shifted by a byte the high
 * ones: sum = low sum + 256 high sum, which stays below 2^29. */
#include "kernels/cpu/avx512vnni/dot.h"

enum { TILE_ROWS = 16, TILE_BYTES = 64, INT8_BLOCK_DWORDS = 8 };

/* Tile registers. The instructions take no variables. */
#define WEIGHTS_0 0
#define WEIGHTS_1 1
#define WEIGHTS_2 2
#define WEIGHTS_3 3
#define COLUMNS 4
#define SUMS_0 5
#define SUMS_1 6
enum { NUM_TILES = 7 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t num_rows[16];
};

/* What tiles are loaded from and stored to, for one block. int8: [panel], sums of two scales [2 panel + of the high columns].
 * int16: weights for the low bytes, weights for the high ones; sums likewise, and after these two those of Q6_K's high
 * columns. */
struct workspace {
    _Alignas(64) __m512i weights[PANELS_MAX][TILE_ROWS];
    __m512i sums[4][ACT_TILE_ROWS];
};

/* The compiler does not know how much memory tile instructions read: what lies at p is written before. */
INLINE void finish_stores(const void *p)
{
    __asm__ volatile("" ::"r"(p) : "memory");
}

/* Two scales have sums over 16 columns: of int16 as many bytes as 32 columns of int8. */
INLINE void configure_tiles(enum dtype dtype)
{
    struct tile_config c = {.palette = 1};
    const int block_dwords = takes_int16(dtype) ? TILE_ROWS : INT8_BLOCK_DWORDS,
              dwords = panel_has_two_scales(dtype) ? block_dwords / 2 : block_dwords;
    for (int i = 0; i < NUM_TILES; i++) {
        c.row_bytes[i] = TILE_BYTES;
        c.num_rows[i] = TILE_ROWS;
    }
    for (int i = WEIGHTS_0; i <= WEIGHTS_3; i++) c.num_rows[i] = (uint8_t)dwords;
    c.row_bytes[COLUMNS] = (uint16_t)(dwords * 4);
    finish_stores(&c);
    _tile_loadconfig(&c);
}

INLINE void store_weights(enum dtype dtype, const __m512i from[16], int panel, struct workspace *w)
{
    const int num = takes_int16(dtype) ? 16 : 8;
    for (int i = 0; i < num; i++) {
        w->weights[panel][i] = from[i];
        if (takes_int16(dtype)) w->weights[1][i] = _mm512_slli_epi16(from[i], 8);
    }
}

/* Of the columns of a tile that lie in 16 bytes of each of the rows. */
INLINE void multiply_half_int8(int num_panels, int half, const uint8_t *columns, int num_rows,
                               struct workspace *w)
{
    const int first = half * INT8_BLOCK_DWORDS / 2;
    finish_stores(w);
    _tile_loadd(WEIGHTS_0, w->weights[0] + first, TILE_BYTES);
    if (num_panels == 2) _tile_loadd(WEIGHTS_1, w->weights[1] + first, TILE_BYTES);
    for (int t = 0; t < num_rows; t += TILE_ROWS) {
        _tile_loadd(COLUMNS, columns + t * PANEL_BLOCK + half * PANEL_BLOCK / 2, PANEL_BLOCK);
        _tile_zero(SUMS_0);
        _tile_dpbsud(SUMS_0, COLUMNS, WEIGHTS_0);
        _tile_stored(SUMS_0, w->sums[half] + t, TILE_BYTES);
        if (num_panels == 1) continue;
        _tile_zero(SUMS_1);
        _tile_dpbsud(SUMS_1, COLUMNS, WEIGHTS_1);
        _tile_stored(SUMS_1, w->sums[2 + half] + t, TILE_BYTES);
    }
}

INLINE void multiply_int8(enum dtype dtype, int num_panels, const uint8_t *columns, int num_rows,
                          struct workspace *w)
{
    if (panel_has_two_scales(dtype)) {
        multiply_half_int8(num_panels, 0, columns, num_rows, w);
        multiply_half_int8(num_panels, 1, columns, num_rows, w);
        return;
    }
    finish_stores(w);
    _tile_loadd(WEIGHTS_0, w->weights[0], TILE_BYTES);
    if (num_panels == 2) _tile_loadd(WEIGHTS_1, w->weights[1], TILE_BYTES);
    for (int t = 0; t < num_rows; t += TILE_ROWS) {
        _tile_loadd(COLUMNS, columns + t * PANEL_BLOCK, PANEL_BLOCK);
        _tile_zero(SUMS_0);
        _tile_dpbsud(SUMS_0, COLUMNS, WEIGHTS_0);
        _tile_stored(SUMS_0, w->sums[0] + t, TILE_BYTES);
        if (num_panels == 1) continue;
        _tile_zero(SUMS_1);
        _tile_dpbsud(SUMS_1, COLUMNS, WEIGHTS_1);
        _tile_stored(SUMS_1, w->sums[1] + t, TILE_BYTES);
    }
}

INLINE void multiply_int16(enum dtype dtype, const uint8_t *columns, int num_rows, struct workspace *w)
{
    finish_stores(w);
    _tile_loadd(WEIGHTS_0, w->weights[0], TILE_BYTES);
    _tile_loadd(WEIGHTS_1, w->weights[1], TILE_BYTES);
    if (dtype == DTYPE_Q6_K) {
        _tile_loadd(WEIGHTS_2, w->weights[0] + 8, TILE_BYTES);
        _tile_loadd(WEIGHTS_3, w->weights[1] + 8, TILE_BYTES);
    }
    for (int t = 0; t < num_rows; t += TILE_ROWS) {
        _tile_loadd(COLUMNS, columns + t * 2 * PANEL_BLOCK, 2 * PANEL_BLOCK);
        _tile_zero(SUMS_0);
        _tile_zero(SUMS_1);
        _tile_dpbuud(SUMS_0, COLUMNS, WEIGHTS_0);
        _tile_dpbsud(SUMS_1, COLUMNS, WEIGHTS_1);
        _tile_stored(SUMS_0, w->sums[0] + t, TILE_BYTES);
        _tile_stored(SUMS_1, w->sums[1] + t, TILE_BYTES);
        if (dtype != DTYPE_Q6_K) continue;
        _tile_loadd(COLUMNS, columns + t * 2 * PANEL_BLOCK + PANEL_BLOCK, 2 * PANEL_BLOCK);
        _tile_zero(SUMS_0);
        _tile_zero(SUMS_1);
        _tile_dpbuud(SUMS_0, COLUMNS, WEIGHTS_2);
        _tile_dpbsud(SUMS_1, COLUMNS, WEIGHTS_3);
        _tile_stored(SUMS_0, w->sums[2] + t, TILE_BYTES);
        _tile_stored(SUMS_1, w->sums[3] + t, TILE_BYTES);
    }
}

/* Of one row and panel, from the tiles. */
INLINE struct block_sums tile_sums(enum dtype dtype, const struct workspace *w, int panel, int row)
{
    if (!takes_int16(dtype) && panel_has_two_scales(dtype))
        return (struct block_sums){w->sums[2 * panel][row], w->sums[2 * panel + 1][row]};
    if (!takes_int16(dtype)) return (struct block_sums){w->sums[panel][row], _mm512_setzero_si512()};
    const __m512i low = _mm512_add_epi32(w->sums[0][row], _mm512_slli_epi32(w->sums[1][row], 8));
    if (dtype != DTYPE_Q6_K) return (struct block_sums){low, low};
    return (struct block_sums){low, _mm512_add_epi32(w->sums[2][row], _mm512_slli_epi32(w->sums[3][row], 8))};
}

INLINE void product_tiles_of(enum dtype dtype, int num_panels, const uint8_t *const *panels,
                             int64_t num_blocks, const struct act_tile *x, float *const *acc)
{
    const int row_bytes = act_block_bytes(takes_int16(dtype) ? ACT_INT16 : ACT_INT8);
    const int num_rows = x->num_rows, num_tiled = num_rows / TILE_ROWS * TILE_ROWS;
    const uint8_t *columns = x->columns;
    const struct act_scale *scales = x->scales;
    struct workspace w;
    configure_tiles(dtype);
    for (int p = 0; p < num_panels; p++) memset(acc[p], 0, (size_t)num_rows * PANEL_ROWS * sizeof(float));
    for (int64_t b = 0; b < num_blocks; b++, columns += num_rows * row_bytes, scales += num_rows) {
        struct block_scales s[PANELS_MAX];
#pragma GCC unroll 2
        for (int p = 0; p < num_panels; p++) {
            const uint8_t *const block = panel_block(dtype, panels[p], b);
            __m512i weights[16];
            prefetch_ahead(block, panel_layout_of(dtype).block_bytes);
            s[p] = load_scales(dtype, panel_header(dtype, panels[p], b), block);
            load_weights(dtype, block, weights);
            store_weights(dtype, weights, p, &w);
        }
        if (takes_int16(dtype))
            multiply_int16(dtype, columns, num_tiled, &w);
        else
            multiply_int8(dtype, num_panels, columns, num_tiled, &w);
        for (int t = 0; t < num_rows; t++) {
#pragma GCC unroll 2
            for (int p = 0; p < num_panels; p++) {
                const struct block_sums sums = t < num_tiled
                                                   ? tile_sums(dtype, &w, p, t)
                                                   : dot_row(dtype, w.weights[p], columns + t * row_bytes);
                float *const at = acc[p] + t * PANEL_ROWS;
                _mm512_store_ps(at, add_sums(dtype, &s[p], sums, scales + t, _mm512_load_ps(at)));
            }
        }
    }
    _tile_release();
}

INLINE void product_tiles(enum dtype dtype, const struct panels *p, int64_t num_blocks,
                          const struct act_tile *x)
{
    if (x->num_rows < TILE_ROWS) {
        product_integers(dtype, p, num_blocks, x);
    } else if (p->num == 2 && !takes_int16(dtype)) {
        product_tiles_of(dtype, 2, p->data, num_blocks, x, p->acc);
    } else {
        for (int i = 0; i < p->num; i++) product_tiles_of(dtype, 1, p->data + i, num_blocks, x, p->acc + i);
    }
}

DEFINE_KERNELS(linear_kernels_avx512amx, tiles);
