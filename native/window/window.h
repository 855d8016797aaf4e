/* Tumbling and sliding windows over event time, in panes; groups by key; closed by boundaries.
 *
 *   time  ----|---------|----|---------|----|--------->      panes: cut at every window start, every
 *             p0        p1   p2        p3   p4               window end, every multiple of the size
 *
 *   window -> panes[]  ascending by start -> pane { start, end, keys, table, sets }
 *                                                   keys    key -> group (keys.h)
 *                                                   table   accumulators of each group (accumulate.h)
 *                                                   sets    distinct values of each group (sketch.h)
 *          -> ready[]  batches closed and not taken yet
 *          -> shared   rows of small windows, gathering into one batch
 *
 * Tumbling: a window is a pane, and its buffers leave without a copy when it is large. Sliding: panes
 * stand in epoch-aligned blocks of one window length; a window is the suffix of a block, combined from
 * its end, merged with the prefix of the next one, combined from its start (window_slide.c).
 * Combine: a pane is a window, filled with partial states, emitted by key.
 *
 * Invariants: every pane holds at least one row between calls; no pane ends at or before the boundary
 * in a tumbling window; taken counts all rows ever added and is the position of the next row.
 *
 * Not told by the types: one thread at a time; times within +-2^61 us; at most 2^30 groups a pane. */
#ifndef MD_WINDOW_H
#define MD_WINDOW_H

#include "aggregates/accumulate.h"
#include "arrow/arrow_abi.h"
#include "base/md_base.h"
#include "keys/split.h"

typedef enum { MD_WHOLE, MD_PARTIAL, MD_COMBINE } md_stage;

typedef struct md_window_config {
    int64_t size_us, advance_us; /* 1 <= advance <= size <= 2^60 */
    const md_type *keys;
    int32_t n_keys;
    const md_type *inputs;
    int32_t n_inputs;
    const md_aggregate *aggregates;
    int32_t n_aggregates;
    md_stage stage;
    bool positions; /* batches end with a column `first`: the first position of the group; not for combine */
    uint64_t seed; /* of the hash tables; never influences order or output */
} md_window_config;

typedef struct md_window md_window;

/* Make an empty window. On MD_OK *out is the caller's, ended by md_window_free. MD_BADARG says what. */
md_rc md_window_new(const md_window_config *config, md_window **out, md_error *err);
void md_window_free(md_window *w);

/* Take the rows of a struct array: time, keys, inputs (whole, partial) or window_start, window_end, keys,
 * state columns (combine). The array is only borrowed. MD_BADARG: types, a null time, a time below the
 * boundary or out of range, a window that isn't one; MD_BADDATA: state that can't be. On failure nothing
 * of the rows was taken. */
md_rc md_window_add(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err);

/* The same of the rows of one part of a split, which has looked at this array and run over all of it. Positions
 * are those in the whole array, so that windows which take one part each agree about them. Whole and partial
 * stages only. */
md_rc md_window_add_part(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array,
                         const md_split *split, int32_t part, md_error *err);

/* The same of rows that were kept aside while others came: the position of each (int64, ascending, none below those
 * taken), and how many rows have been taken with them. Whole and partial stages only. */
md_rc md_window_add_at(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array,
                       const md_column *positions, int64_t taken, md_error *err);

/* The same of all rows, by several threads; whole and partial stages only. Begin looks at the rows and says how
 * many of them the fullest pane gets: that pane is one thread's. Then each of n_slots threads runs, with a place of
 * its own in [0, n_slots); when all have ended and unless one failed, each fills; then end, in any case: without a
 * fill nothing was taken. The array stays alive till then, and nothing else is called. */
md_rc md_window_spread(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, int32_t n_slots,
                      int64_t *largest, md_error *err);
void md_window_spread_map(md_window *w, int32_t place);
bool md_window_spread_mapped(const md_window *w);
void md_window_spread_fill(md_window *w, int32_t place); /* only if md_window_ran */
md_rc md_window_spread_end(md_window *w, md_error *err);

/* Close all windows with an end <= boundary_us, in order; md_window_take gives their rows. A boundary
 * at or below the last one changes nothing. On MD_NOMEM some windows may be closed and ready, none is
 * lost: take them, or close again. */
md_rc md_window_close(md_window *w, int64_t boundary_us, md_error *err);

/* Hand over the oldest ready batch; MD_EMPTY: there is none. Columns: window_start, window_end, keys, then
 * one per aggregate (partial: its state columns). Rows by (window_end, first appearance of the key in the
 * window); combine: by (window_end, key). */
md_rc md_window_take(md_window *w, struct ArrowSchema *schema, struct ArrowArray *array);

/* Hand over the groups that failed since the last call (a sum that doesn't fit 64 bits): window_start,
 * window_end, keys, aggregate (its number); MD_EMPTY: none did. */
md_rc md_window_failed(md_window *w, struct ArrowSchema *schema, struct ArrowArray *array);

/* Make ready what open windows would give if they closed now, for the groups that got rows since the last such
 * call (or since the window was made or loaded); md_window_take gives the rows, by (window_end, first appearance
 * of the key in the window's panes by time). Groups whose sum doesn't fit are left out. Whole windows only, and
 * all that closed must have been taken (else MD_BADARG). On MD_NOMEM nothing is ready and nothing was told. With
 * positions, `first` is that in the pane where the group appeared, and window_start the start of this pane: rows
 * come by (window_end, window_start, first). */
md_rc md_window_early(md_window *w, md_error *err);

/* The earliest window_end still to be closed, given the last boundary; INT64_MIN before the first
 * boundary, INT64_MAX when no window can follow. */
int64_t md_window_next_end(const md_window *w);

/* *start = window_start of the oldest window that holds rows; false: there is none. */
bool md_window_oldest_open(const md_window *w, int64_t *start);

int64_t md_window_groups_open(const md_window *w); /* groups of all panes; no window that closes has more */
int64_t md_window_rows_open(const md_window *w); /* rows in panes that an open window needs; combine: groups */
int64_t md_window_taken(const md_window *w);     /* rows taken so far, or as loaded */
int64_t md_window_boundary(const md_window *w);  /* of the last close, or as loaded; INT64_MIN: none */
size_t md_window_nbytes(const md_window *w);

/* Gives back memory that is kept for what comes and that no open window needs; results stay the same. */
void md_window_trim(md_window *w);

#endif
