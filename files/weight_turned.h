/* weight_turned.h - codes that lie transposed (WEIGHT_TURNED) become rows of codes (WEIGHT_SCALED). Thread: any. */
#ifndef FILES_WEIGHT_TURNED_H
#define FILES_WEIGHT_TURNED_H

#include "files/weight_view.h"

/* What the rows that v means take: codes [rows][cols], of four bits two in a byte, and behind them their scales. */
uint64_t weight_turned_code_bytes(const struct weight_view *v);
uint64_t weight_turned_bytes(const struct weight_view *v);
/* Codes of rows [begin, end) of those. */
void weight_turned_codes(const struct weight_view *v, int64_t begin, int64_t end, uint8_t *codes);
/* All scales; the view of both, which is valid as long as memory, of weight_turned_bytes. */
struct weight_view weight_turned_view(const struct weight_view *v, uint8_t *memory);

#endif
