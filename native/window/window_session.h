/* Which session each row is in: rows of a key less than the gap apart belong together.
 *
 *   key ----> session { first, last, slot, parts } -> session ...      a chain per key, in no order
 *   heap      (end as it was, session): the top is the earliest end, once what has grown was put back
 *
 * A row that comes between two sessions joins them: the earlier one takes over the slot of the later one as one
 * more part, so accumulators are merged when the session closes, in this order, and what comes out depends on
 * the order of the rows only. Times within +-2^61 us, gap at most 2^60 us.
 *
 * Invariants: sessions of one key are at least the gap apart; every open session stands in the heap once, and is an
 * open item by its number. */
#ifndef MD_WINDOW_SESSION_H
#define MD_WINDOW_SESSION_H

#include "arrow/arrow_abi.h"
#include "arrow/column.h"
#include "base/md_base.h"
#include "state/items.h"

typedef struct md_sessions md_sessions;

/* On MD_OK *out is the caller's, ended by md_sessions_free. MD_BADARG: a gap out of range. */
md_rc md_sessions_new(int64_t gap_us, md_sessions **out, md_error *err);
void md_sessions_free(md_sessions *s);

/* slots[i] = where row i, of key ids[i] at times[i], is to be accumulated. A session without rows so far gets the
 * next number. MD_BADARG: a negative key or a time out of range, and nothing changed. After MD_NOMEM the object is
 * good for nothing but md_sessions_free. */
md_rc md_sessions_assign(md_sessions *s, const md_column *ids, const md_column *times, int64_t n, int64_t *slots,
                         md_error *err);

/* Rows of sessions, one per part: key, first, last, position (of its first row among all rows), slot, session (its
 * number here; parts of one stand together in order). close: those with last + gap <= boundary, which end here, by
 * their ends: `most` of them, and the others that end as the last of these; otherwise all, and nothing changes. The
 * batch is the caller's. MD_NOMEM: nothing changed. */
md_rc md_sessions_rows(md_sessions *s, bool close, int64_t boundary, int64_t most, struct ArrowSchema *schema,
                       struct ArrowArray *array, md_error *err);

/* Take what md_sessions_rows gave, into an object that never took a row; keys are below n_keys, slots below
 * next_slot, positions below taken. MD_BADDATA says which row can't be. */
md_rc md_sessions_load(md_sessions *s, const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int64_t n_keys, int64_t next_slot, int64_t taken, md_error *err);

/* Keys get new numbers: that of ids[i] is i. ids: all keys that have a session, ascending; MD_BADARG otherwise. */
md_rc md_sessions_renumber(md_sessions *s, const int64_t *ids, int64_t n, md_error *err);

/* The sessions by their numbers, for copies of them with the rows of md_sessions_rows. Keys of a copy under way have
 * the numbers of when it began. Lives as long as the object, and only this changes it. */
md_items *md_sessions_items(md_sessions *s);

int64_t md_sessions_next_end(md_sessions *s); /* earliest end of an open session; INT64_MAX: none */
int64_t md_sessions_open(const md_sessions *s);
int64_t md_sessions_parts(const md_sessions *s); /* slots in use */
int64_t md_sessions_next_slot(const md_sessions *s);
int64_t md_sessions_taken(const md_sessions *s);
size_t md_sessions_nbytes(const md_sessions *s);

#endif
