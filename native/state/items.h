/* Numbered items whose rows make a table: which changed since a capture, and a copy of their rows piece by piece.
 *
 *   item      0  1  2  3  4  5  6       the table has their rows in the order of their numbers
 *   open      1  1  .  1  1  1  1       it has rows
 *   watch     1  .  1  1  .  1  1       not touched since the last capture: the touch that comes says so,
 *                                       and copies its rows where a copy under way hasn't come that far
 *   changed   .  1  .  .  1  .  .       per capture: touched after it, up to the next
 *
 * The owner touches an item before its rows change, come or go: a look at one bit, and at none before the first
 * capture. So a capture costs the items that changed, and four bits for each of the others. A capture whose file was
 * never written costs nothing and loses nothing: the next one asks for the changes since the one before.
 *
 * Rows are int64 columns. A copy has the rows of the time at which it began, however many touches come in between. */
#ifndef MD_ITEMS_H
#define MD_ITEMS_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

#define MD_ITEMS_CAPTURES 4 /* remembered at most: the one that is on disk, and those that may get there */
#define MD_ITEMS_WIDTH 8

typedef struct md_items_kind {
    int32_t width; /* columns, at most MD_ITEMS_WIDTH */
    const char *const *names;
    int64_t (*rows)(const void *owner, int64_t item); /* how many an open one has; NULL: one each */
    /* Write its rows to columns[0 .. width), from row `at` on. */
    void (*put)(const void *owner, int64_t item, int64_t *const *columns, int64_t at);
} md_items_kind;

typedef struct md_items_copy md_items_copy;
typedef struct md_items_capture md_items_capture;

typedef struct md_items {
    const md_items_kind *kind;
    const void *owner;
    uint64_t *open, *many, *watch; /* bit 0 is item `origin`; many: it has more than one row */
    int64_t origin, words, capacity;
    int64_t watched; /* items below it have a bit of `watch`; 0: nobody asks */
    md_items_capture *captures[MD_ITEMS_CAPTURES]; /* the oldest first */
    int32_t n_captures;
    md_items_copy *copy; /* under way; NULL: none */
} md_items;

/* No items; `owner` is what the functions of `kind` are given. */
void md_items_init(md_items *m, const md_items_kind *kind, const void *owner);
/* A copy under way fails from now on. */
void md_items_free(md_items *m);
size_t md_items_nbytes(const md_items *m);

/* There are none so far, and will be none below `first`. */
void md_items_begin_at(md_items *m, int64_t first);
/* Room for items below `end`. MD_NOMEM: unchanged. */
md_rc md_items_reserve(md_items *m, int64_t end);
/* No item in front is open or will be touched: forget their bits. The first item that has one now. */
int64_t md_items_trim(md_items *m);
/* The first open item; where none is, as many as there is room for. */
int64_t md_items_first(const md_items *m);

/* Whether a bit of an item is set; for those with room. */
MD_INLINE bool md_items_bit(const md_items *m, const uint64_t *bits, int64_t item) {
    return bits[(item - m->origin) >> 6] >> (item & 63) & 1;
}

void md_items_touched(md_items *m, int64_t item); /* for md_items_touch */
/* Its rows are about to change. This can't fail: without memory it is a copy under way that does. */
MD_INLINE void md_items_touch(md_items *m, int64_t item) {
    if (MD_UNLIKELY(item < m->watched) && md_items_bit(m, m->watch, item)) md_items_touched(m, item);
}

/* It is about to have a first row; its number is below what was reserved. */
MD_INLINE void md_items_open(md_items *m, int64_t item) {
    md_items_touch(m, item);
    m->open[(item - m->origin) >> 6] |= UINT64_C(1) << (item & 63);
}
/* It is about to have none. */
MD_INLINE void md_items_close(md_items *m, int64_t item) {
    md_items_touch(m, item);
    m->open[(item - m->origin) >> 6] &= ~(UINT64_C(1) << (item & 63));
    if (m->many != NULL) m->many[(item - m->origin) >> 6] &= ~(UINT64_C(1) << (item & 63));
}
/* The same of all items from `first` on, below `end`. */
void md_items_open_range(md_items *m, int64_t first, int64_t end);
void md_items_close_range(md_items *m, int64_t first, int64_t end);
/* It is about to have more than one. */
MD_INLINE void md_items_grow(md_items *m, int64_t item) {
    md_items_touch(m, item);
    m->many[(item - m->origin) >> 6] |= UINT64_C(1) << (item & 63);
}

/* What the owner says of items is about to mean something else: a copy under way has all that it needs before, and
 * goes on. MD_NOMEM: it fails. */
md_rc md_items_keep_all(md_items *m);
/* The same, and no item is there any more, nor a capture known. */
void md_items_clear(md_items *m);
/* A copy under way fails: what it needs can't be had any more. */
void md_items_give_up(md_items *m);

/* Begin a copy; it is the caller's, ended by md_items_copy_free. One that is under way goes on, with all that it needs
 * copied now.
 *
 * number: under which later ones ask for what changed since, larger than all before; 0: none will. base: only what
 * changed since that one is copied, where it is known and at most half of all rows are; captures before it won't be
 * asked for any more. 0: all. MD_NOMEM: nothing was noted. */
md_rc md_items_copy_begin(md_items *m, int64_t number, int64_t base, md_items_copy **out, md_error *err);

/* Rows of `base`, where only what changed since is copied; -1: all is. */
int64_t md_items_copy_base_rows(const md_items_copy *copy);

/* *n pairs (start, length): how the table is made of the rows of `base` and, behind them, of those that are copied; for
 * copies that have a base. In any thread, while the copy lives and whatever becomes of the items: they are found only
 * now, since the owner waits for a copy to begin. *pairs is ended by md_free. MD_NOMEM: call again. */
md_rc md_items_copy_runs(const md_items_copy *copy, int64_t **pairs, int64_t *n);

int64_t md_items_copy_left(const md_items_copy *copy); /* rows still to be copied */

/* The next rows: so many, or a few above, and none when none is left. The batch is the caller's. MD_NOMEM: call again,
 * or it has failed for good; MD_BADARG: the owner was freed. */
md_rc md_items_copy_next(md_items_copy *copy, int64_t rows, struct ArrowSchema *schema, struct ArrowArray *array,
                         md_error *err);

void md_items_copy_free(md_items_copy *copy);

#endif
