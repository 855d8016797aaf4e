/* Which pane of its key each row is in, for windows over a number that never decreases within a key: its rows
 * counted, or the values of a column.
 *
 *   key ---> last value, pane -> pane -> pane          oldest first
 *            pane { low, high, slot }                  its rows are in the windows low .. high, and in no other
 *
 * Window k is [k advance, k advance + size). A new pane begins where low or high changes: at every start and end of
 * a window, and nowhere else. A window closes when its key passes its end: rows counted: with its last row; values:
 * with the first row at or beyond its end. Windows without rows don't exist.
 *
 * Numbers: integers within +-2^62; floats whose window has a number within +-2^52, bounds as computed in float64. */
#ifndef MD_WINDOW_SPAN_H
#define MD_WINDOW_SPAN_H

#include "arrow/arrow_abi.h"
#include "arrow/column.h"
#include "base/md_base.h"
#include "state/items.h"

typedef enum { MD_SPAN_ROWS, MD_SPAN_I64, MD_SPAN_U64, MD_SPAN_F64 } md_span_kind;

typedef struct md_spans md_spans;

/* size and advance: .i of rows and integers, .f of floats; 0 < advance <= size. On MD_OK *out is the caller's. */
typedef union md_number {
    int64_t i;
    double f;
} md_number;
md_rc md_spans_new(md_span_kind kind, md_number size, md_number advance, md_spans **out, md_error *err);
void md_spans_free(md_spans *s);

#define MD_SPAN_LATE (-1) /* below an earlier value of its key */
#define MD_SPAN_BAD (-2)  /* null, NaN or out of range */

/* slots[i] = where row i, of key ids[i] with values[i] (NULL when rows are counted), is to be accumulated, or one of
 * the two above, and then the row changes nothing. Windows that close wait for md_spans_closed. MD_BADARG: a negative
 * key, and nothing changed. After MD_NOMEM the object is good for nothing but md_spans_free. */
md_rc md_spans_assign(md_spans *s, const md_column *ids, const md_column *values, int64_t n, int64_t *slots,
                      md_error *err);

/* Close every window that holds rows, key by key; only of values. */
md_rc md_spans_finish(md_spans *s, md_error *err);

/* Hand over the windows that closed since, one row per pane: window (its number), key, row (of the last assign, that
 * closed it; -1: md_spans_finish), position (of its first row among all rows), slot, number (counted from 0; panes of
 * one window stand together, oldest first). In the order in which they closed. MD_NOMEM: nothing changed. */
md_rc md_spans_closed(md_spans *s, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err);

/* Everything held, for copies: per key its number, `last` (rows counted, or the last value as a word) and the next
 * window; per pane key, low, high, slot, position. What has closed must be taken before. Both live as long as the
 * object, and only this changes them. */
md_items *md_spans_key_items(md_spans *s);
md_items *md_spans_pane_items(md_spans *s);
/* The panes again, key by key. */
md_rc md_spans_panes(const md_spans *s, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err);

/* Take both back, into an object that never took a row: last and next window of keys 0 .. n_keys, and panes, those of a
 * key the oldest first. MD_BADDATA says what can't be. */
md_rc md_spans_load(md_spans *s, const md_column *keys, int64_t n_keys, const md_column *panes, int64_t n_panes,
                    int64_t next_slot, int64_t taken, md_error *err);
#define MD_SPAN_KEY_COLUMNS 2
#define MD_SPAN_PANE_COLUMNS 5

/* The slots of panes that no open window needs any more, since md_spans_forget_left; NULL: there was no memory to note
 * them all. Until the next call. */
const int64_t *md_spans_left(const md_spans *s, int64_t *n);
void md_spans_forget_left(md_spans *s);

int64_t md_spans_n_keys(const md_spans *s);
int64_t md_spans_parts(const md_spans *s); /* slots in use */
int64_t md_spans_next_slot(const md_spans *s);
int64_t md_spans_taken(const md_spans *s);
size_t md_spans_nbytes(const md_spans *s);

#endif
