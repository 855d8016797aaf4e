/* Everything a window holds, as rows, and back.
 *
 *   pane_start | pane_end | first | rows | k0 ... | a0.n ... | one row per group
 *
 * pane_start, pane_end: int64 microseconds. first: position of the group's first row among all rows ever
 * taken. rows: its rows. Then keys and the state columns of the `partial` stage (accumulate.h; sets packed
 * as sketch.h says). Panes ascend; within one, groups stand in order of first appearance.
 *
 * With md_window_boundary and md_window_taken beside it this is all: what goes on from a loaded window has
 * the same bits as what goes on from the one that was saved. Batches that were closed and not taken yet,
 * and failed groups, are not in it: take them first. */
#ifndef MD_STATE_H
#define MD_STATE_H

#include "window/window.h"

/* Make the rows; they are the caller's. The window is unchanged. MD_NOMEM also when one set or all text
 * of a column passes 2 GiB. */
md_rc md_window_state(md_window *w, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err);

/* Take the rows into a window that never took any and was never closed. The contents are not trusted:
 * MD_BADARG or MD_BADDATA names the row that can't have come from md_window_state with this configuration,
 * boundary and taken. On failure the window is as before. */
md_rc md_window_load(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array,
                     int64_t boundary, int64_t taken, md_error *err);

#endif
