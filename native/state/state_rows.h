/* The rows of state.h, piece by piece. Not for others than state.c and snapshot.c. */
#ifndef MD_STATE_ROWS_H
#define MD_STATE_ROWS_H

#include "window/window_private.h"

/* Empty rows with the columns of md_window_state. */
md_rc md_state_rows(const md_window *w, md_rows **out);

/* Fill the bounds, first positions and keys of groups order[0 .. n) of a pane into the rows from their length on,
 * where there is room; words and valid are scratch for n. MD_NOMEM: text needs more. */
md_rc md_state_keys(const md_pane *pane, md_rows *rows, const int32_t *order, int64_t n, md_word *words,
                    uint8_t *valid);

/* The same of their counts of rows and accumulators (those in the table): of groups order[0 .. n), NULL: of 0 .. n.
 * MD_NOMEM only where a column that may be null has no bitmap yet, or holds objects. */
md_rc md_state_words(md_window *w, const md_pane *pane, md_rows *rows, const int32_t *order, int64_t n, md_word *words,
                     uint8_t *valid);

#endif
