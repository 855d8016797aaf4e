/* Which groups of a window changed since a capture: what a delta holds.
 *
 *   md_changes_find    before a capture: the groups that changed since an earlier one, and the runs of rows by which
 *                      the table of now is made of the table of then and of those
 *   md_changes_note    the table of now was captured: its number, its panes and how many groups each has
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

typedef struct md_changed {
    int64_t n_old, total, count; /* rows of the table then and now; how many of those changed */
    uint64_t *groups;            /* which: a bit for each, pane by pane, each from a word on */
    int64_t *counts;             /* per pane: how many */
    int64_t *runs, n_runs;       /* pairs (start, length) of [ rows of then | those ], as runs.h says */
} md_changed;

/* Words of bits of so many groups. */
MD_INLINE int64_t md_group_words(int64_t groups) { return (groups + 63) >> 6; }
/* Of 64 groups of a pane from 64 * word on: those that there are and that haven't left. gone: n words; NULL: none. */
MD_INLINE uint64_t md_groups_held(int64_t groups, const uint64_t *gone, int64_t n, int64_t word) {
    uint64_t all = ~UINT64_C(0);
    if (groups < 64 * (word + 1)) all = groups > 64 * word ? (UINT64_C(1) << (groups & 63)) - 1 : 0;
    return word < n ? all & ~gone[word] : all;
}

/* What changed since capture number `base`. *out is ended by md_changed_free. MD_EMPTY: nothing is known of that
 * capture, or more than half of all rows changed; MD_NOMEM: nothing was made. The window is unchanged. */
md_rc md_changes_find(const md_window *w, int64_t base, md_changed *out);
void md_changed_free(md_changed *changed);

/* The window is captured as it is, under this number, larger than all before; captures before `base` won't be asked
 * for any more. MD_NOMEM: nothing is noted, and earlier captures stay. */
md_rc md_changes_note(md_window *w, int64_t number, int64_t base);

#endif
