/* A look at the times of rows, of which what follows needs only the outcome: it reads them once.
 *
 *   times    [ 64 rows | 64 rows | ... | the rest ]
 *   blocks   [ least, largest, sorted of each     ]
 *
 * Invariants: blocks[b] is of the rows 64 b up to the next block or the end; `sorted` says that no time of the
 * block is below the one before it, without it nobody knows. The values are borrowed: whoever made the look keeps
 * them alive and unchanged. Changes nothing after it was made, so any threads may read it. */
#ifndef MD_TIMES_H
#define MD_TIMES_H

#include "arrow/column.h"
#include "base/md_base.h"

#define MD_TIMES_BLOCK 64

typedef struct md_times_block {
    int64_t least, largest;
    bool sorted;
} md_times_block;

typedef struct md_times {
    const uint8_t *values; /* int64 at any address */
    int64_t length;
    const md_times_block *blocks;
} md_times;

/* Look at n int64; ended by md_times_free. MD_NOMEM. */
md_rc md_times_look(const uint8_t *values, int64_t n, md_times *out);
void md_times_free(md_times *t);

/* The rows from `start`, n of them, of another look, which must live as long; never freed. False, and *out is
 * untouched: its blocks don't begin at `start`, or the last of them doesn't end where the rows do. */
bool md_times_part(const md_times *t, int64_t start, int64_t n, md_times *out);

/* *least and *largest of a look at one row or more. */
void md_times_extent(const md_times *t, int64_t *least, int64_t *largest);

#endif
