/* The rows of md_window_state, copied bit by bit while the window goes on.
 *
 *   begin       notes the panes and how many groups each has; copies nothing
 *   copy        copies the next groups, in order                            ... between adds, until done
 *   md_pane_keep, before an add changes a group that isn't copied yet: copies the 64 groups around it
 *   finish      hands the rows over
 *
 *   pane   [ copied, in order | 64 | .. |xx| .. | .. |xx| .. | groups that came later ]
 *                             next      kept ahead           n
 *
 * Of a window that was captured before, only the groups that changed since (changes.h).
 *
 * Keys and first positions of a group never change, so only the accumulators are kept ahead. What comes out
 * has the bytes of md_window_state at the time of begin. Not for the combine stage, windows without keys, and
 * accumulators that are objects or sets, whose memory isn't in the table. */
#ifndef MD_SNAPSHOT_H
#define MD_SNAPSHOT_H

#include "window/window.h"

typedef struct md_snapshot md_snapshot;

/* Begin one; it is the caller's, ended by md_snapshot_free. MD_EMPTY: this window's state
 * isn't copied in pieces; MD_BADARG: another snapshot of it is under way.
 *
 * number: under which later ones ask for what changed since, larger than all before; 0: none will. base: only the
 * groups that changed since that one are copied, where it is known and at most half of them did; 0: all. */
md_rc md_snapshot_begin(md_window *w, int64_t number, int64_t base, md_snapshot **out, md_error *err);

/* Rows of `base`, where only the groups that changed since are copied; -1: all are. */
int64_t md_snapshot_base_rows(const md_snapshot *snapshot);

/* *n pairs (start, length): how the whole table is made of the rows of `base` and, behind them, of those that are
 * copied; for snapshots that have a base. In any thread, while the snapshot lives and whatever becomes of the window.
 * *pairs is ended by md_free. MD_NOMEM: call again. */
md_rc md_snapshot_runs(const md_snapshot *snapshot, int64_t **pairs, int64_t *n);

/* Copy so many groups more, or a few above. MD_NOMEM: nothing is lost, call again; MD_BADARG: the window was freed. */
md_rc md_snapshot_copy(md_snapshot *snapshot, int64_t groups, md_error *err);

int64_t md_snapshot_left(const md_snapshot *snapshot); /* groups still to be copied, in order */

/* Hand the rows over, once nothing is left (else MD_BADARG). Afterwards only md_snapshot_free. */
md_rc md_snapshot_finish(md_snapshot *snapshot, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err);

/* Whatever is not copied yet will not be. NULL is allowed. */
void md_snapshot_free(md_snapshot *snapshot);

#endif
