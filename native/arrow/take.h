/* Rows by number out of several batches, some of their columns.
 *
 *   chunk 0: rows 0..4    chunk 1: rows 7..9    numbers 8 -1 2 2   ->   one batch of 4 rows
 *
 * A number of -1 gives a row of nulls. Types as in layout.h; what lies under a null is zero. Text beyond
 * 2 GiB in one column is MD_NOMEM. Any thread. */
#ifndef MD_TAKE_H
#define MD_TAKE_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

typedef struct md_chunk {
    const struct ArrowArray *array; /* a struct array, borrowed */
    int64_t first;                  /* number of its first row; ascending, chunks don't overlap */
} md_chunk;

/* Check that a batch can be a chunk of rows with that schema. MD_BADARG: it can't. */
md_rc md_chunk_check(const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err);

/* The columns columns[0..n_columns) of the rows numbers[0..n), as a batch that is the caller's. Chunks have
 * passed md_chunk_check with this schema. MD_BADARG: a number of no chunk, or a column that isn't there. */
md_rc md_take_rows(const struct ArrowSchema *schema, const md_chunk *chunks, int64_t n_chunks,
                   const int32_t *columns, int32_t n_columns, const int64_t *numbers, int64_t n,
                   struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err);

/* The same where it is known where each row stands: row rows[i] of chunk places[i], none missing. */
md_rc md_take_places(const struct ArrowSchema *schema, const md_chunk *chunks, int64_t n_chunks,
                     const int32_t *columns, int32_t n_columns, uint32_t *places, uint32_t *rows, int64_t n,
                     struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err);

#endif
