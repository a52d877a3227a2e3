/* weight_view.h - a weight where its file keeps it. */
#ifndef FILES_WEIGHT_VIEW_H
#define FILES_WEIGHT_VIEW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "files/dtype.h"

/* How a matrix's values stand for weights. In all but the first and WEIGHT_TABLE, WEIGHT_NVFP4, WEIGHT_TRANSPOSED and the last three a
 * weight is (code - zero) * scale, in f32: the difference is exact, the product is rounded. */
enum weight_scheme {
    WEIGHT_PLAIN, /* as the dtype says; blocks of GGUF's types carry their own scales */
    WEIGHT_SCALED, /* rows of codes; scales [rows / scale_rows][cols / scale_cols], rounded up; zeros, for scale_rows
                      1, in words of eight rows [rows / 8][cols / scale_cols], of bytes in words of four */
    WEIGHT_GPTQ, /* words of eight columns [cols / 8][rows]; scales [groups][rows], zeros [groups][rows / 8] */
    WEIGHT_BITS, /* words of codes of other than four bits, or with offsets, weight_bits.h */
    WEIGHT_AWQ, /* words of eight rows, in AWQ's order, [cols][rows / 8]; scales and zeros as GPTQ has them, zeros in
                      that order */
    WEIGHT_TABLE, /* rows of nibbles, the first in the high half of a byte; weight_table.h says what they stand for */
    WEIGHT_NVFP4,      /* GGUF's blocks of NVFP4, weight_nvfp4.h */
    WEIGHT_TRANSPOSED, /* plain values [cols][rows], none of them in blocks */
    WEIGHT_TURNED, /* WEIGHT_SCALED the other way round, without zeros, which weight_turned.h makes of it: codes [cols][rows], of four
                      bits two columns' in a byte; scales [cols / scale_cols][rows / scale_rows], whose side counts as there */
    WEIGHT_HQQ,    /* codes of groups that need not be of one row, weight_hqq.h */
    WEIGHT_TERNARY,        /* -1, 0 and 1 in two bits, weight_ternary.h */
    WEIGHT_TERNARY_FLOATS, /* plain values that become such */
};

enum scale_type {
    SCALE_F32,
    SCALE_F16,
    SCALE_BF16,
    SCALE_E4M3,
    SCALE_E8M0,
};

/* Scales, or zero points of four bits in little-endian words of 32, the first in the lowest bits. They lie apart from
 * the values, row-major; data NULL: none. */
struct weight_side {
    const void *data;
    enum scale_type type; /* of scales */
    int64_t rows, cols;   /* values, not words */
};

uint64_t weight_scale_bytes(enum scale_type type);

/* Rows row_begin, row_begin + row_step, ... before row_end, each with those behind it that make a run of row_run, and columns [col_begin,
 * col_end): the part that is meant. Products take runs of 1. */
struct weight_slice {
    int64_t row_begin, row_end, col_begin, col_end, row_step, row_run;
};

/* Of WEIGHT_TABLE, floats of 32 bits: what the 16 codes stand for, and, where scales are codes of bytes, what those 256 do, in a unit of
 * each scale_block scales, and what is added. */
struct weight_table {
    const void *values, *scale_values, *scale_units;
    int64_t scale_block;
    float scale_offset;
};

/* What codes mean. */
struct weight_codes {
    struct weight_side scales, zeros;
    struct weight_side factors; /* [cols][1]: weight_factors.h */
    struct weight_side
        offsets; /* of WEIGHT_BITS: as scales; what is added to each product; of WEIGHT_HQQ: zeros */
    int64_t scale_rows, scale_cols;    /* values of a column, or of a row, that have one scale */
    float scale_factor, scale_divisor; /* each scale is scale * scale_factor / scale_divisor */
    uint8_t zero;                      /* without zeros: of all; with them: is added to each */
    uint8_t flip;                      /* bits of a code that the file has the other way round */
    const void *groups;                /* int32_t [cols]: the group of each column; NULL: col / scale_cols */
    struct weight_table table;
    uint8_t bits;   /* of WEIGHT_BITS and WEIGHT_HQQ */
    bool rows_lead; /* of WEIGHT_BITS and WEIGHT_TERNARY: weight_bits.h, weight_ternary.h */
    bool is_tiled;  /* of WEIGHT_BITS: tinygemm's, weight_bits.h */
    bool
        is_paired; /* of WEIGHT_BITS, four: rows 2 i and 2 i + 1 share bytes [rows / 2][cols], the first in the low half */
    bool sides_turned;    /* of WEIGHT_BITS whose rows lead: scales and offsets [cols / scale_cols][rows] */
    bool groups_lie_down; /* of WEIGHT_HQQ */
    bool zeros_are_apart; /* of bytes: zeros [rows][cols / scale_cols] */
};

/* A matrix as a model file holds it: rows x cols, row-major, rows of dtype_row_bytes(dtype, cols) unless the scheme says
 * otherwise. data may be unaligned. Borrowed: valid until the model file is closed. All zero: no weight.
 * A vector has one row, or one column, of whose rows a slice may be meant. */
struct weight_view {
    const void *data; /* NULL: this weight does not exist (a bias that the model has not) */
    enum dtype dtype;
    int64_t rows, cols;
    enum weight_scheme scheme;
    struct weight_codes codes; /* of codes */
    struct weight_slice slice;
};

/* A whole matrix of plain values. */
struct weight_view weight_view_plain(const void *data, enum dtype dtype, int64_t rows, int64_t cols);
/* The same of values that lie [cols][rows]. */
struct weight_view weight_view_transposed(const void *data, enum dtype dtype, int64_t rows, int64_t cols);
static inline bool weight_view_has_codes(const struct weight_view *v)
{
    return v->scheme != WEIGHT_PLAIN && v->scheme != WEIGHT_TRANSPOSED;
}
/* Whether no row has codes, scales or zeros in common with others. */
bool weight_view_has_own_rows(const struct weight_view *v);
/* Rows [first_row, first_row + rows) of one; as a whole matrix where all of its rows are meant, and are their own. */
struct weight_view weight_view_rows(const struct weight_view *v, int64_t first_row, int64_t rows);
/* Every step-th row of one, from row first (below step) on. */
struct weight_view weight_view_every(const struct weight_view *v, int64_t first, int64_t step);
/* Of all rows, a multiple of step, each run that begins at row first of so many. */
struct weight_view weight_view_runs(const struct weight_view *v, int64_t first, int64_t step, int64_t run);
/* Where row i of the part that is meant lies among all. */
static inline int64_t weight_view_file_row(const struct weight_view *v, int64_t i)
{
    const struct weight_slice *s = &v->slice;
    return s->row_begin + i / s->row_run * s->row_step + i % s->row_run;
}
/* Of the part that is meant; 0: there is no weight. */
int64_t weight_view_num_rows(const struct weight_view *v);
/* Of that part: of values, scales and zeros; rounded where it shares them. */
uint64_t weight_view_bytes(const struct weight_view *v);

/* STATUS_UNSUPPORTED and a sentence unless v is whole and plain. */
int weight_view_check_whole(const struct weight_view *v, struct error *err) must_check;
/* For a vector: the same, and none of the types of quantised checkpoints, MXFP4 and codes. */
int weight_view_check_plain(const struct weight_view *v, struct error *err) must_check;
/* STATUS_INVALID and a sentence unless v is a plain vector of num values, or none. */
int weight_view_check_vector(const struct weight_view *v, int64_t num, struct error *err) must_check;
/* One row of values that lie as they are, or in blocks. */
void weight_view_row_to_f32(const struct weight_view *v, int64_t row, float *out);
/* All values of a plain vector. */
void weight_view_vector_to_f32(const struct weight_view *v, float *out);

#endif
