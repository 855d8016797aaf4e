/* Groups of one pane leaving one by one, for windows that close group by group (sessions, row and value windows).
 *
 *   slot 17 18 19 20 ...    one int64 key: the number of an open thing; never used again
 *        [  ][  ][  ][  ]   its accumulators, in the one pane of a window
 *
 * The window is an ordinary md_window of one int64 key whose rows all fall into one pane, and that nobody closes.
 * A slot that has left stays until the owner moves the living ones into a new window (md_window_state, load). Copies
 * (snapshot.h) leave it out once they are told. */
#ifndef MD_WINDOW_STORE_H
#define MD_WINDOW_STORE_H

#include "keys/keys.h"
#include "window/window.h"

/* Make the groups of n slots ready, in this order (md_window_take): window_start and window_end of the pane, the
 * slot, then one column per aggregate or, when states is true, the state columns. Groups that fail are left out
 * and told by md_window_failed; with states none does. The window keeps all groups.
 * MD_BADARG: another kind of window, or a slot that no row has. On failure nothing is ready. */
md_rc md_window_pick(md_window *w, const int64_t *slots, int64_t n, bool states, md_error *err);

/* So many slots have left: rows of them, if any still come, are in no copy. MD_BADARG: another kind of window, or a slot
 * that no row has; MD_NOMEM. On failure none has. */
md_rc md_window_leave(md_window *w, const int64_t *slots, int64_t n, md_error *err);

/* Groups that are open, but for those that have left. */
int64_t md_window_living(const md_window *w);

/* The keys k0, k1 ... of the groups ids[i], as a batch that is the caller's. MD_BADARG: there is no such group. */
md_rc md_keys_pick(const md_keys *keys, const int64_t *ids, int64_t n, struct ArrowSchema *schema,
                   struct ArrowArray *array, md_error *err);

#endif
