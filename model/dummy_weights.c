/* dummy_weights.c - a tile of random values is made once; each row of a matrix is a stretch of it.
 *
 * Drawing 8 billion numbers one by one takes minutes; copying takes as long as the memory needs. Row r starts
 * r odd strides after a place drawn from (seed, stream), around the tile of about two million values: no two
 * rows of a matrix start at one place, and neighbours are unrelated. Values in the tile have variance 1 and
 * are scaled while they are copied. Mapping one tile many times would need no memory at all, but a CPU would
 * then compute from its caches. */
#include "model/dummy_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/parallel.h"
#include "base/rng.h"

enum {
    TILE_VALUES = 1 << 21,
    ROW_STRIDE = 1296143, /* odd, so that 2^21 rows have distinct places; TILE_VALUES / golden ratio, so that
                             they spread */
    THREAD_BYTES_MIN = 4 << 20, /* below that, starting a thread costs more than it brings */
};

_Static_assert(ROW_STRIDE % 2 == 1, "else rows would share places");
_Static_assert((TILE_VALUES & (TILE_VALUES - 1)) == 0,
               "an odd stride reaches every place of a power of two only");

static const float UNIFORM_WIDTH =
    3.4641016f; /* sqrt(12): a uniform distribution of that width has variance 1 */

struct mapping {
    struct mapping *next;
    void *data;
    size_t num_bytes;
};

struct dummy_weights {
    uint64_t seed;
    struct mapping *mappings;
    float tile[TILE_VALUES];
    uint8_t codes[TILE_VALUES];    /* of e4m3 and of integers, made when first asked for */
    float codes_deviation;         /* of e4m3; 0: they were not */
    uint8_t bytes[TILE_VALUES];    /* of codes */
    uint8_t balanced[TILE_VALUES]; /* the same with 8 for 0: of two codes each, whose mean is 8 */
};

/* All codes are drawn alike, but NaN. */
static void fill_codes(struct dummy_weights *d)
{
    double sum = 0;
    for (size_t i = 0; i < TILE_VALUES; i++) {
        const uint32_t bits = rng_philox(d->seed, i / 4, 1).word[i % 4];
        d->codes[i] = (uint8_t)((bits & 0x80) | (bits >> 8) % 0x7f);
        const double value = (double)dtype_e4m3_to_f32(d->codes[i]);
        sum += value * value;
    }
    d->codes_deviation = (float)sqrt(sum / TILE_VALUES);
}

/* Of two codes. */
static uint8_t with_8_for_0(uint8_t byte)
{
    return (uint8_t)(byte | (byte & 0x0f ? 0 : 0x08) | (byte & 0xf0 ? 0 : 0x80));
}

struct dummy_weights *dummy_weights_create(uint64_t seed)
{
    struct dummy_weights *d = malloc(sizeof *d);
    if (!d) return NULL;
    d->seed = seed;
    d->mappings = NULL;
    d->codes_deviation = 0;
    for (size_t i = 0; i < TILE_VALUES; i += 4) {
        struct rng_block random = rng_philox(seed, i, 0);
        for (size_t j = 0; j < 4; j++)
            d->tile[i + j] = ((float)(random.word[j] >> 8) * 0x1p-24f - 0.5f) * UNIFORM_WIDTH;
        for (size_t j = 0; j < 4; j++) d->bytes[i + j] = (uint8_t)random.word[j];
        for (size_t j = 0; j < 4; j++) d->balanced[i + j] = with_8_for_0(d->bytes[i + j]);
    }
    return d;
}

void dummy_weights_clear(struct dummy_weights *d)
{
    for (struct mapping *m = d->mappings, *next; m; m = next) {
        next = m->next;
        munmap(m->data, m->num_bytes);
        free(m);
    }
    d->mappings = NULL;
}

void dummy_weights_destroy(struct dummy_weights *d)
{
    if (!d) return;
    dummy_weights_clear(d);
    free(d);
}

static void *allocate(struct dummy_weights *d, size_t num_bytes)
{
    struct mapping *m = malloc(sizeof *m);
    if (!m) return NULL;
    *m = (struct mapping){.next = d->mappings, .num_bytes = num_bytes};
    m->data = mmap(NULL, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m->data == MAP_FAILED) {
        free(m);
        return NULL;
    }
    madvise(m->data, num_bytes, MADV_HUGEPAGE); /* a hint: fewer page faults */
    d->mappings = m;
    return m->data;
}

struct fill {
    const struct dummy_weights *d;
    uint64_t stream;
    uint16_t *out;  /* or */
    uint8_t *codes; /* if not NULL: bytes of */
    const uint8_t *tile;
    int64_t cols; /* values, or bytes */
    float center, scale;
};

static void copy_codes(const struct fill *f, uint8_t *out, size_t at)
{
    for (int64_t done = 0; done < f->cols; at = 0) {
        int64_t n = min_of(f->cols - done, (int64_t)(TILE_VALUES - at));
        memcpy(out + done, f->tile + at, (size_t)n);
        done += n;
    }
}

static void fill_row(const struct fill *f, int64_t row)
{
    uint16_t *out = f->out + row * f->cols;
    size_t at = (rng_philox(f->d->seed, 0, f->stream + 1).word[0] + (uint64_t)row * ROW_STRIDE) % TILE_VALUES;
    if (f->codes) {
        copy_codes(f, f->codes + row * f->cols, at);
        return;
    }
    for (int64_t done = 0; done < f->cols; at = 0) {
        int64_t n = min_of(f->cols - done, (int64_t)(TILE_VALUES - at));
        const float *tile = f->d->tile + at;
        for (int64_t i = 0; i < n; i++) {
            float value = f->center + tile[i] * f->scale;
            uint32_t bits; /* never NaN: the conversion is two operations and vectorises */
            memcpy(&bits, &value, sizeof bits);
            out[done + i] = (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
        }
        done += n;
    }
}

static void fill_rows(void *context, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++) fill_row(context, row);
}

static void fill_in_parallel(struct fill *f, int64_t rows)
{
    int64_t row_bytes = f->cols * (int64_t)sizeof *f->out;
    parallel_ranges(rows, max_of(THREAD_BYTES_MIN / row_bytes, (int64_t)1), fill_rows, f);
}

static struct weight_view make(struct dummy_weights *d, uint64_t stream, int64_t rows, int64_t cols,
                               float center, float scale)
{
    uint64_t num_bytes;
    assert_debug(rows > 0 && cols > 0);
    if (!checked_mul((uint64_t)rows, (uint64_t)cols * sizeof(uint16_t), &num_bytes))
        return (struct weight_view){0};
    uint16_t *data = allocate(d, num_bytes);
    if (!data) return (struct weight_view){0};
    fill_in_parallel(
        &(struct fill){.d = d, .stream = stream, .out = data, .cols = cols, .center = center, .scale = scale},
        rows);
    return weight_view_plain(data, DTYPE_BF16, rows, cols);
}

struct weight_view dummy_weights_matrix(struct dummy_weights *d, uint64_t stream, int64_t rows, int64_t cols)
{
    return make(d, stream, rows, cols, 0, (float)(1 / sqrt((double)cols)));
}

struct weight_view dummy_weights_bytes(struct dummy_weights *d, enum dtype dtype, uint64_t stream,
                                       int64_t rows, int64_t cols, int64_t scale_rows, int64_t scale_cols)
{
    const int64_t rows_of_scales = (rows + scale_rows - 1) / scale_rows,
                  cols_of_scales = (cols + scale_cols - 1) / scale_cols;
    uint8_t *codes = allocate(d, (size_t)rows * (size_t)cols);
    float *scales = allocate(d, (size_t)rows_of_scales * (size_t)cols_of_scales * sizeof *scales);
    if (!codes || !scales) return (struct weight_view){0};
    if (d->codes_deviation == 0) fill_codes(d);
    fill_in_parallel(&(struct fill){.d = d, .stream = stream, .codes = codes, .tile = d->codes, .cols = cols},
                     rows);
    const float deviation = dtype == DTYPE_I8 ? 255 / UNIFORM_WIDTH : d->codes_deviation;
    for (int64_t i = 0; i < rows_of_scales * cols_of_scales; i++)
        scales[i] = 1 / (sqrtf((float)cols) * deviation);
    struct weight_view v = weight_view_plain(codes, dtype, rows, cols);
    v.scheme = WEIGHT_SCALED;
    v.codes = (struct weight_codes){
        .scales = {.data = scales, .type = SCALE_F32, .rows = rows_of_scales, .cols = cols_of_scales},
        .scale_rows = scale_rows,
        .scale_cols = scale_cols,
        .scale_factor = 1,
        .scale_divisor = 1};
    return v;
}

static void *make_bytes(struct dummy_weights *d, uint64_t stream, size_t num_bytes)
{
    uint8_t *out = allocate(d, num_bytes);
    size_t at = rng_philox(d->seed, 1, stream + 1).word[0] % TILE_VALUES, n;
    for (size_t done = 0; out && done < num_bytes; done += n, at = 0) {
        n = min_of(num_bytes - done, TILE_VALUES - at);
        memcpy(out + done, d->bytes + at, n);
    }
    return out;
}

/* Two bytes each, that give codes of such a deviation the variance of all dummy weights. */
static uint16_t *make_scales(struct dummy_weights *d, int64_t num_scales, int64_t cols, float deviation,
                             uint16_t (*round)(float))
{
    uint16_t *scales = allocate(d, (size_t)num_scales * sizeof *scales);
    for (int64_t i = 0; scales && i < num_scales; i++)
        scales[i] = round((1 + 0.1f * d->tile[i % TILE_VALUES]) / (deviation * sqrtf((float)cols)));
    return scales;
}

struct weight_view dummy_weights_awq(struct dummy_weights *d, uint64_t stream, int64_t rows, int64_t cols,
                                     int64_t group)
{
    static const float deviation = 6.5f; /* of the difference of two uniform codes */
    const int64_t num_groups = div_up(cols, group), num_scales = num_groups * rows;
    struct weight_view v =
        weight_view_plain(make_bytes(d, stream, (size_t)(rows * cols / 2)), DTYPE_U4, rows, cols);
    void *zeros = make_bytes(d, stream + 1, (size_t)(num_scales / 2));
    uint16_t *scales = make_scales(d, num_scales, cols, deviation, dtype_f32_to_f16);
    if (!v.data || !zeros || !scales) return (struct weight_view){0};
    v.scheme = WEIGHT_AWQ;
    v.codes = (struct weight_codes){.scales = {scales, SCALE_F16, num_groups, rows},
                                    .zeros = {.data = zeros, .rows = num_groups, .cols = rows},
                                    .scale_rows = 1,
                                    .scale_cols = group,
                                    .scale_factor = 1,
                                    .scale_divisor = 1};
    return v;
}

struct weight_view dummy_weights_symmetric(struct dummy_weights *d, uint64_t stream, int64_t rows,
                                           int64_t cols, int64_t group)
{
    static const float deviation = 4.2f; /* of a balanced code */
    const int64_t num_groups = div_up(cols, group);
    uint8_t *codes = allocate(d, (size_t)(rows * cols / 2));
    uint16_t *scales = make_scales(d, num_groups * rows, cols, deviation, dtype_f32_to_bf16);
    if (!codes || !scales) return (struct weight_view){0};
    fill_in_parallel(
        &(struct fill){.d = d, .stream = stream, .codes = codes, .tile = d->balanced, .cols = cols / 2},
        rows);
    struct weight_view v = weight_view_plain(codes, DTYPE_U4, rows, cols);
    v.scheme = WEIGHT_SCALED;
    v.codes = (struct weight_codes){.scales = {scales, SCALE_BF16, rows, num_groups},
                                    .scale_rows = 1,
                                    .scale_cols = group,
                                    .scale_factor = 1,
                                    .scale_divisor = 1,
                                    .zero = 8};
    return v;
}

struct weight_view dummy_weights_mxfp4(struct dummy_weights *d, uint64_t stream, int64_t rows, int64_t cols)
{
    static const float deviation = 2.93f; /* of all codes alike */
    const int64_t num_groups = cols / 32;
    struct weight_view v =
        weight_view_plain(make_bytes(d, stream, (size_t)(rows * cols / 2)), DTYPE_MXFP4, rows, cols);
    uint8_t *scales = allocate(d, (size_t)(rows * num_groups));
    if (!v.data || !scales) return (struct weight_view){0};
    memset(scales, 127 - (int)lroundf(log2f(deviation * sqrtf((float)cols))), (size_t)(rows * num_groups));
    v.scheme = WEIGHT_SCALED;
    v.codes = (struct weight_codes){.scales = {scales, SCALE_E8M0, rows, num_groups},
                                    .scale_rows = 1,
                                    .scale_cols = 32,
                                    .scale_factor = 1,
                                    .scale_divisor = 1};
    return v;
}

struct weight_view dummy_weights_vector(struct dummy_weights *d, uint64_t stream, int64_t cols, float center)
{
    return make(d, stream, 1, cols, center, 0.1f);
}
