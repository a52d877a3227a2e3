#include "files/dtype_grids.h"

#include <stdbool.h>

#include "base/check.h"
#include "files/dtype_blocks.h"
#include "files/grid_codes.h"

#define CODE(code) code,
static const uint16_t iq2_xxs[256] = {GRID_IQ2_XXS(CODE)}, iq2_xs[512] = {GRID_IQ2_XS(CODE)},
                      iq2_s[1024] = {GRID_IQ2_S(CODE)}, iq1_s[2048] = {GRID_IQ1_S(CODE)},
                      iq3_xxs[256] = {GRID_IQ3_XXS(CODE)}, iq3_s[512] = {GRID_IQ3_S(CODE)};
#undef CODE

struct grid {
    const uint16_t *codes;
    int16_t values[8]; /* of each code */
};

#define IQ2_VALUES                                                                                           \
    {                                                                                                        \
        8, 25, 43                                                                                            \
    }
#define IQ1_VALUES                                                                                           \
    {                                                                                                        \
        -8, 0, 8                                                                                             \
    }
static const struct grid grids[DTYPE_COUNT] = {
    [DTYPE_IQ2_XXS] = {iq2_xxs, IQ2_VALUES},
    [DTYPE_IQ2_XS] = {iq2_xs, IQ2_VALUES},
    [DTYPE_IQ2_S] = {iq2_s, IQ2_VALUES},
    [DTYPE_IQ3_XXS] = {iq3_xxs, {4, 12, 20, 28, 36, 44, 52, 62}},
    [DTYPE_IQ3_S] = {iq3_s, {1, 3, 5, 7, 9, 11, 13, 15}},
    [DTYPE_IQ1_S] = {iq1_s, IQ1_VALUES},
    [DTYPE_IQ1_M] = {iq1_s, IQ1_VALUES},
};

static uint8_t nibble_of(const uint8_t *p, int i)
{
    return p[i / 2] >> (i % 2 * 4) & 15;
}

/* Seven signs, and an eighth that makes their number even. */
static uint32_t eight_signs(uint32_t seven)
{
    seven &= 127;
    return seven | (uint32_t)__builtin_parity(seven) << 7;
}

static void take_signs(struct grid_group *g, uint32_t four_times_seven)
{
    for (int i = 0; i < 4; i++) g->signs |= eight_signs(four_times_seven >> (7 * i)) << (8 * i);
}

/* d, then for each group four bytes of entries, and four times seven signs below a scale. */
static void read_iq2_xxs(const uint8_t *block, int i, struct grid_group *g)
{
    const uint8_t *const p = block + 2 + 8 * i;
    const uint32_t rest = load_u32(p + 4);
    for (int j = 0; j < 4; j++) g->entries[j] = p[j];
    take_signs(g, rest);
    g->scales[0] = g->scales[1] = (uint8_t)(rest >> 28);
}

/* d, four words for each group, of which nine bits are an entry and seven are signs, then scales. */
static void read_iq2_xs(const uint8_t *block, int i, struct grid_group *g)
{
    for (int j = 0; j < 4; j++) {
        const uint16_t word = load_u16(block + 2 + 8 * i + 2 * j);
        g->entries[j] = word & 511;
        g->signs |= eight_signs(word >> 9) << (8 * j);
    }
    g->scales[0] = nibble_of(block + 66 + i, 0);
    g->scales[1] = nibble_of(block + 66 + i, 1);
}

/* d, four bytes of entries for each group, four of signs, a byte of the entries' upper bits, scales. */
static void read_iq2_s(const uint8_t *block, int i, struct grid_group *g)
{
    for (int j = 0; j < 4; j++)
        g->entries[j] = (uint16_t)(block[2 + 4 * i + j] | (block[66 + i] >> (2 * j) & 3) << 8);
    g->signs = load_u32(block + 34 + 4 * i);
    g->scales[0] = nibble_of(block + 74 + i, 0);
    g->scales[1] = nibble_of(block + 74 + i, 1);
}

/* d, eight bytes of entries for each group, then four times seven signs below a scale. */
static void read_iq3_xxs(const uint8_t *block, int i, struct grid_group *g)
{
    const uint32_t rest = load_u32(block + 66 + 4 * i);
    for (int j = 0; j < 8; j++) g->entries[j] = block[2 + 8 * i + j];
    take_signs(g, rest);
    g->scales[0] = g->scales[1] = (uint8_t)(rest >> 28);
}

/* d, eight bytes of entries for each group, a byte of their ninth bits, four of signs, scales. */
static void read_iq3_s(const uint8_t *block, int i, struct grid_group *g)
{
    for (int j = 0; j < 8; j++)
        g->entries[j] = (uint16_t)(block[2 + 8 * i + j] | (block[66 + i] >> j & 1) << 8);
    g->signs = load_u32(block + 74 + 4 * i);
    g->scales[0] = g->scales[1] = nibble_of(block + 106, i);
}

/* d, four bytes of entries for each group, then a word: four times three upper bits, a scale, a sign for all. */
static void read_iq1_s(const uint8_t *block, int i, struct grid_group *g)
{
    const uint16_t word = load_u16(block + 34 + 2 * i);
    for (int j = 0; j < 4; j++) g->entries[j] = (uint16_t)(block[2 + 4 * i + j] | (word >> (3 * j) & 7) << 8);
    g->signs = word >> 15 ? UINT32_MAX : 0;
    g->scales[0] = g->scales[1] = word >> 12 & 7;
}

/* Four bytes of entries for each group, a nibble for each entry of three upper bits and a sign, and four words of four
 * scales and a quarter of d. */
static void read_iq1_m(const uint8_t *block, int i, struct grid_group *g)
{
    for (int j = 0; j < 4; j++) {
        const uint8_t high = nibble_of(block + 32 + 2 * i, j);
        g->entries[j] = (uint16_t)(block[4 * i + j] | (high & 7) << 8);
        if (high & 8) g->signs |= 0xffu << (8 * j);
    }
    for (int half = 0; half < 2; half++)
        g->scales[half] = load_u16(block + 48 + i / 2 * 2) >> (i % 2 * 6 + half * 3) & 7;
}

struct grid_group dtype_grid_group(enum dtype dtype, const uint8_t *block, int i)
{
    static void (*const read[DTYPE_COUNT])(const uint8_t *block, int i, struct grid_group *g) = {
        [DTYPE_IQ2_XXS] = read_iq2_xxs, [DTYPE_IQ2_XS] = read_iq2_xs, [DTYPE_IQ2_S] = read_iq2_s,
        [DTYPE_IQ3_XXS] = read_iq3_xxs, [DTYPE_IQ3_S] = read_iq3_s,   [DTYPE_IQ1_S] = read_iq1_s,
        [DTYPE_IQ1_M] = read_iq1_m,
    };
    struct grid_group g = {.signs = 0};
    assert_debug(dtype_is_grid(dtype) && i >= 0 && i < 8);
    read[dtype](block, i, &g);
    return g;
}

uint16_t dtype_grid_scale(enum dtype dtype, const uint8_t *block)
{
    uint16_t scale = 0;
    if (dtype != DTYPE_IQ1_M) return load_u16(block);
    for (int i = 0; i < 4; i++) scale |= (uint16_t)(load_u16(block + 48 + 2 * i) >> 12 << (4 * i));
    return scale;
}

void dtype_grid_values(enum dtype dtype, const struct grid_group *g, int16_t values[GRID_COLUMNS])
{
    const struct grid *const grid = &grids[dtype];
    const int width = dtype_grid_width(dtype), bits = 16 / width, mask = width == 8 ? 3 : 7;
    const bool adds_one = dtype == DTYPE_IQ1_S || dtype == DTYPE_IQ1_M;
    for (int k = 0; k < GRID_COLUMNS; k++) {
        const int code = grid->codes[g->entries[k / width]] >> (k % width * bits) & mask;
        const bool negative = g->signs >> k & 1;
        const int16_t value = grid->values[code];
        if (adds_one)
            values[k] = (int16_t)(negative ? value - 1 : value + 1);
        else
            values[k] = (int16_t)(negative ? -value : value);
    }
}
