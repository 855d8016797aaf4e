/* Row digests, and what a table has in common with an earlier one: how a checkpoint finds out which
 * rows changed since the last one without keeping that one in memory.
 *
 * A digest is 128 bits under a seed of 128 bits. Rows are equal when every value is equal bit for bit
 * (floats too: -0.0 and 0.0 differ, NaNs by their payload); what lies under a null doesn't count. Two
 * unequal rows have the same digest with probability about 2^-128, as long as the seed is secret. */
#ifndef MD_DIGEST_H
#define MD_DIGEST_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

#define MD_DIGEST_DEPTH 16 /* of lists and structs inside each other */

/* Two words per row of the struct array into out[0 .. 2 * length), row by row.
 *
 * Types: null, bool, every type of a fixed width, utf8 and binary (large too), list, large list, list of
 * a fixed size, struct. MD_BADARG: another type (dictionary, view, union, map), or no struct; MD_NOMEM.
 * On failure out[] holds nothing of use. Any thread. */
md_rc md_row_digests(const struct ArrowSchema *schema, const struct ArrowArray *array, const uint64_t seed[2],
                     uint64_t *out, md_error *err);

/* How n_new rows are made of n_old rows and fresh ones, by their digests (two words each).
 *
 * *runs becomes *n_runs pairs (start, length), to be ended by md_free: the new table is, run by run, the
 * rows start .. start + length of [ the old rows | the fresh rows ], where the fresh rows are those new
 * ones that stand nowhere in the old table, in their order; no run has rows of both:
 *
 *     old  A B C D      new  B C x D      runs (1, 2) (4, 1) (3, 1)      fresh  x
 *
 * Time is linear. MD_NOMEM: nothing was made. */
md_rc md_row_runs(const uint64_t *old_rows, int64_t n_old, const uint64_t *new_rows, int64_t n_new, int64_t **runs,
                  int64_t *n_runs, md_error *err);

#endif
