/* Aggregates as they stand after each row: running aggregates, in a store (window_store.h).
 *
 *   rows   time, slot, inputs   ->   row number, -, slot, aggregates of the slot with this row included
 *
 * And which slot a key's rows go to when its state expires: a row more than the limit after the key's latest row
 * gets a new slot, so the old state isn't seen again. */
#ifndef MD_WINDOW_RUNNING_H
#define MD_WINDOW_RUNNING_H

#include "state/items.h"
#include "window/window.h"

/* Take the rows as md_window_add does, one by one, and make ready (md_window_take) one row for each: window_start is
 * the row's number in this call, then window_end, the slot, the aggregates. A row whose sum doesn't fit is left out
 * and told by md_window_failed, by its number as window_start. MD_BADARG: nothing changed. After MD_NOMEM the window
 * is good for nothing but md_window_free. */
md_rc md_window_run(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err);

typedef struct md_expiry md_expiry;

/* limit_us in [1, 2^60]. On MD_OK *out is the caller's, ended by md_expiry_free. */
md_rc md_expiry_new(int64_t limit_us, md_expiry **out, md_error *err);
void md_expiry_free(md_expiry *e);

/* slots[i] of row i, of key ids[i] at times[i]. MD_BADARG (a negative key), MD_NOMEM: nothing changed. */
md_rc md_expiry_assign(md_expiry *e, const md_column *ids, const md_column *times, int64_t n, int64_t *slots,
                       md_error *err);

/* latest time and slot of key i, i in [0, n); n is the number of keys that had a row. */
int64_t md_expiry_keys(const md_expiry *e);
void md_expiry_read(const md_expiry *e, int64_t *latest, int64_t *slots);

/* Replace everything by these keys; slots of new ones begin at next_slot. MD_NOMEM: only md_expiry_free is left. */
md_rc md_expiry_load(md_expiry *e, const int64_t *latest, const int64_t *slots, int64_t n, int64_t next_slot);
int64_t md_expiry_next_slot(const md_expiry *e);

/* The keys as numbered items, whose rows are (key, latest, slot): see state/items.h. */
md_items *md_expiry_items(md_expiry *e);

/* Slots that no row will have any more, since their keys have new ones; NULL: none. Valid until the next call. */
const int64_t *md_expiry_left(const md_expiry *e, int64_t *n);
void md_expiry_forget_left(md_expiry *e);
size_t md_expiry_nbytes(const md_expiry *e);

#endif
