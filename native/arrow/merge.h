/* Batches whose rows are in order, as one batch in order: what copies of a box over disjoint keys gave.
 *
 *   batch 0   (1, 2) (1, 5) (2, 1)        key columns, int64 without nulls, compared one after the other
 *   batch 1   (1, 3) (2, 0) (2, 7)   ->   (1, 2) (1, 3) (1, 5) (2, 0) (2, 1) (2, 7)
 *
 * Among equal keys the rows of the earlier batch come first. To let several threads merge, cut the work by
 * keys: md_merge_cut finds the rows of each batch that stand before some row of one of them. */
#ifndef MD_MERGE_H
#define MD_MERGE_H

#include "arrow/take.h"

#define MD_MERGE_KEYS_MAX 4
#define MD_MERGE_BATCHES_MAX 64

typedef struct md_merge_key {
    int32_t column;
    bool is_unsigned; /* -1 stands behind all others */
} md_merge_key;

typedef struct md_merging {
    const struct ArrowSchema *schema;
    const struct ArrowArray *const *batches; /* each has passed md_chunk_check with this schema; borrowed */
    int32_t n_batches;
    md_merge_key keys[MD_MERGE_KEYS_MAX];
    int32_t n_keys;
} md_merging;

/* Whether there are 1 .. MAX batches and keys, which are columns of int64 or timestamp[us] without nulls, and at
 * most 2^31 rows in each. MD_BADARG: says what isn't so. That rows are in order isn't checked: others come in
 * some order, and none is lost. */
md_rc md_merge_check(const md_merging *m, md_error *err);

/* at[b] = how many rows of batch b stand before row `row` of batch `batch` in the merged order. */
void md_merge_cut(const md_merging *m, int32_t batch, int64_t row, int64_t *at);

/* The rows from[b] .. to[b] of all batches, merged; the columns columns[0..n_columns). */
md_rc md_merge_rows(const md_merging *m, const int64_t *from, const int64_t *to, const int32_t *columns,
                    int32_t n_columns, struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err);

#endif
