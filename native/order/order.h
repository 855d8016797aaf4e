/* Bounded-pass sort, Aurora's BSort (Abadi et al., VLDB Journal 2003, section 3): per group a buffer of
 * slack + 1 rows; when it is full, the smallest leaves. This here decides which rows leave and when;
 * the rows themselves, known by their positions, are held elsewhere.
 *
 *   slack 2          in:    5   3   9   4   1   7
 *                    held:  5  35 359 459 459 579       (before each row; the smallest of it and the new)
 *                    out:               3   1   4       then, at the end, 5 7 9
 *
 * Each group is a binary heap of (key, null or not, position). Null is below every key; equal keys leave
 * in order of position. Groups are numbered from 0 and made when a row names them.
 *
 * Invariants: 0 <= count <= slack in every group between calls; no position is held twice. */
#ifndef MD_ORDER_H
#define MD_ORDER_H

#include "arrow/column.h"
#include "base/md_base.h"

typedef struct md_bsort md_bsort;

/* An empty sort. MD_BADARG: slack < 0. On MD_OK *out is the caller's, ended by md_bsort_free. */
md_rc md_bsort_new(int64_t slack, md_bsort **out, md_error *err);
void md_bsort_free(md_bsort *sort);

/* Take the rows of `keys` (MD_I64, nulls allowed), in order; row i is of group groups[i] (MD_I32, no
 * nulls, >= 0; NULL: all of group 0) and has the position `position` + i, above those of earlier calls.
 * leave[0..*n) are the positions of rows that leave, in the order in which they do; room for keys->length.
 * MD_BADARG: a column of another type, or a negative group. On failure nothing was taken. */
md_rc md_bsort_add(md_bsort *sort, const md_column *keys, const md_column *groups, int64_t position,
                   int64_t *leave, int64_t *n, md_error *err);

/* Rows held. */
int64_t md_bsort_held(const md_bsort *sort);

/* At most `most` rows leave, the first of all groups together by (null first, key, position): leave[0..*n).
 * From the first call on there are no groups any more: nothing may be added before all have left.
 * MD_BADARG: most < 0. On MD_NOMEM nothing left. */
md_rc md_bsort_drain(md_bsort *sort, int64_t most, int64_t *leave, int64_t *n, md_error *err);

size_t md_bsort_nbytes(const md_bsort *sort);

#endif
