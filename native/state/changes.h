/* Which groups of a window changed since a capture: what a delta holds.
 *
 *   md_changes_find    before a capture: the groups that changed since an earlier one
 *   md_changes_note    the table of now was captured: its number, its panes and how many groups each has
 *   md_changes_runs    while it is written: the runs of rows by which the table of now is made of the table of then
 *                      and of those that changed
 *
 *   pane   epochs [ 1 | 3 | 0 | 0 | 3 | .. ]  the epoch in which a group changed last; a capture ends an epoch
 *                                      n      groups at the last capture; those that came later have no epoch yet
 *          gone     .   1   .   .   .         groups that have left a store (window_store.h): they are in no table
 *
 * A group changed since a capture if its epoch is a later one, if it came later, or if it has left since. So a capture whose file was never
 * written costs nothing and loses nothing: the next one asks for the changes since the one before.
 * One byte per group, from the first capture on, and a bit of a store. Not for others than snapshot.c. */
#ifndef MD_CHANGES_H
#define MD_CHANGES_H

#include "window/window_private.h"

#define MD_CAPTURES 4 /* remembered at most: the one that is on disk, and those that may get there */

/* The panes of a window at some moment. It never changes, so copies may hold it in any thread. */
typedef struct md_panes md_panes;

typedef struct md_changed {
    int64_t count;      /* rows that changed */
    uint64_t *groups;   /* which: a bit for each, pane by pane, each from a word on */
    int64_t *counts;    /* per pane: how many */
    md_panes *then, *now;
} md_changed;

/* Words of bits of so many groups. */
MD_INLINE int64_t md_group_words(int64_t groups) { return (groups + 63) >> 6; }
/* Of 64 groups of a pane from 64 * word on: those that there are and that haven't left. gone: n words; NULL: none. */
MD_INLINE uint64_t md_groups_held(int64_t groups, const uint64_t *gone, int64_t n, int64_t word) {
    uint64_t all = ~UINT64_C(0);
    if (groups < 64 * (word + 1)) all = groups > 64 * word ? (UINT64_C(1) << (groups & 63)) - 1 : 0;
    return word < n ? all & ~gone[word] : all;
}

/* The panes as they are; the caller's, ended by md_panes_let_go. NULL without memory. */
md_panes *md_panes_of(const md_window *w);
void md_panes_let_go(md_panes *panes); /* NULL is allowed */
int64_t md_panes_rows(const md_panes *panes);

/* What changed since capture number `base`. now: the panes as they are. *out is ended by md_changed_free. MD_EMPTY:
 * nothing is known of that capture, or more than half of all rows changed; MD_NOMEM: nothing was made. The window is
 * unchanged. */
md_rc md_changes_find(const md_window *w, int64_t base, md_panes *now, md_changed *out);
void md_changed_free(md_changed *changed);

/* *n pairs (start, length) of [ rows of then | those that changed ], as runs.h says; in any thread, whatever becomes of
 * the window: it waits for md_changes_find, not for this. *pairs is ended by md_free. MD_NOMEM: nothing was made. */
md_rc md_changes_runs(const md_changed *changed, int64_t **pairs, int64_t *n);

/* The window is captured as it is, with these panes, under this number, larger than all before; captures before `base`
 * won't be asked for any more. MD_NOMEM: nothing is noted, and earlier captures stay. */
md_rc md_changes_note(md_window *w, int64_t number, int64_t base, md_panes *now);

#endif
