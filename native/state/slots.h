/* Rows by slot that are held elsewhere, by a box in Python: which of them a capture takes, as numbered items (items.h).
 *
 *   a row is about to change     md_slots_change   ->  the slots of those that the caller has to keep now: a copy
 *                                                      under way hasn't come to them
 *   a piece of a copy            slot | kept       kept: the row is what the caller kept as number so-and-so; -1: it
 *                                                  stands in its slot still
 *
 * Who holds the rows counts what it keeps: `first` is the number of the next. */
#ifndef MD_SLOTS_H
#define MD_SLOTS_H

#include "state/items.h"

typedef struct md_slots md_slots;

typedef enum md_slots_how { MD_SLOTS_TOUCH, MD_SLOTS_OPEN, MD_SLOTS_CLOSE } md_slots_how;

/* None is there. On MD_OK *out is the caller's, ended by md_slots_free: a copy under way fails then. */
md_rc md_slots_new(md_slots **out);
void md_slots_free(md_slots *s);
size_t md_slots_nbytes(const md_slots *s);

/* Rows of some slots are about to change, to come (or change), to go; one that isn't there can't go, and nothing
 * happens. kept: room for n, NULL where md_slots_copying says that none will be; *n_kept of them must be kept before
 * they change. MD_BADARG (a negative slot), MD_NOMEM: nothing happened. */
md_rc md_slots_change(md_slots *s, md_slots_how how, const int64_t *slots, int64_t n, int64_t first, int64_t *kept,
                      int64_t *n_kept);

/* Whether a copy is under way, and so rows may have to be kept. */
bool md_slots_copying(const md_slots *s);

/* All that a copy under way still needs must be kept: *kept of *n_kept slots, ended by md_free. MD_NOMEM: the copy
 * fails. */
md_rc md_slots_keep_all(md_slots *s, int64_t first, int64_t **kept, int64_t *n_kept);

/* No row is there any more, and no capture is known; after md_slots_keep_all, so that a copy under way goes on. */
void md_slots_clear(md_slots *s);

/* For md_items_copy_begin. */
md_items *md_slots_items(md_slots *s);

#endif
