/* weight_codes.h - reads quantised weights out of the layouts that checkpoints have: codes and what they mean.
 *
 * Rows are those of the view's slice. A code stands in the low bits of a byte; what it is the code of says the view's
 * dtype. Thread: any. */
#ifndef FILES_WEIGHT_CODES_H
#define FILES_WEIGHT_CODES_H

#include "files/weight_view.h"

enum { CODE_ROWS = 16 };

/* Rows [row, row + num_rows), num_rows <= CODE_ROWS, of some columns of a view. */
struct code_block {
    const struct weight_view *view;
    const int32_t *order; /* column c is the file's column order[c]; NULL: c */
    int64_t row;
    int num_rows;
};

/* codes[c - col][r] for num_cols columns from col on; of num_rows rows, the others are left alone. */
void weight_read_codes(const struct code_block *b, int64_t col, int num_cols, uint8_t (*codes)[CODE_ROWS]);

/* scales[r], zeros[r]: of the codes in column col. */
void weight_read_scales(const struct code_block *b, int64_t col, float *scales, uint8_t *zeros);

/* One of a matrix of scales. */
float weight_scale_at(const struct weight_side *scales, int64_t row, int64_t col);

/* That a weight is whole and plain, or codes with all that they need. STATUS_UNSUPPORTED and a sentence otherwise, or what
 * weight_check_groups says. */
int weight_check(const struct weight_view *v, struct error *err) must_check;

/* That of a column. */
int64_t weight_group_of(const struct weight_view *v, int64_t col);

/* Whether the columns' groups follow one another in the order of columns, as scale_cols says. */
bool weight_groups_ascend(const struct weight_view *v);

/* Columns in the order of their groups, those of a group ascending: order[cols]. Every group then has scale_cols columns
 * next to each other, which weight_check_groups has made sure of. */
void weight_order_columns(const struct weight_view *v, int32_t *order);

/* That each group has the columns that scale_cols gives it. STATUS_INVALID otherwise; the sentence goes on behind the
 * tensor's name. */
int weight_check_groups(const struct weight_view *v, struct error *err) must_check;

#endif
