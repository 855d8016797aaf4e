/* Judges lateness row by row, so that how rows are cut into arrays never matters.
 *
 * A row is late when its time is below the limit that stands before it:
 *
 *     limit = max(largest time of all earlier rows - slack, explicit boundary)
 *
 *   times   10   14   12    9   20   13  ...            slack 4, no explicit boundary
 *   limit    -    6   10   10   10   16
 *                            ^         ^  late by 1 and by 3
 *
 * Late rows count as earlier rows like any other (they can't raise the limit). The limit never falls.
 * Subtracting the slack stops at the least int64.
 *
 * Invariants: slack_us >= 0; after a row or a promise md_lateness_boundary never decreases.
 *
 * How it is fast: a look (times.h) has told the extents of blocks of rows. A block whose least time is not below
 * the limit at its end holds no late row, nor does one that is sorted and starts at the limit or above. Only the
 * rows of other blocks are read. One thread at a time. */
#ifndef MD_LATENESS_H
#define MD_LATENESS_H

#include "arrow/column.h"
#include "base/md_base.h"
#include "order/times.h"

typedef struct md_lateness {
    int64_t slack_us;
    int64_t max_us;      /* largest time seen; INT64_MIN before the first row */
    int64_t promised_us; /* largest explicit boundary; INT64_MIN before the first */
    bool seen;           /* a row has been seen */
} md_lateness;

/* What a call found. `mask` is a bitmap of md_malloc, 1 = late, bits from the count of rows on zero;
 * NULL when no row is late. The caller frees it. */
typedef struct md_late_rows {
    int64_t count;
    uint64_t worst_us; /* the greatest (limit - time) of a late row; 0: none */
    uint8_t *mask;
} md_late_rows;

/* Nothing to free: the struct holds no memory. MD_BADARG: slack_us < 0. */
md_rc md_lateness_init(md_lateness *l, int64_t slack_us, md_error *err);

/* Judge times that were looked at. On anything but MD_OK *l and *out are unchanged. */
md_rc md_lateness_judge(md_lateness *l, const md_times *times, md_late_rows *out, md_error *err);

/* Take an explicit boundary. MD_BADARG: it is below an earlier one. */
md_rc md_lateness_promise(md_lateness *l, int64_t boundary_us, md_error *err);

/* The limit for the next row, which is the boundary that follows from the rows and promises so far;
 * INT64_MIN when there were none. */
int64_t md_lateness_boundary(const md_lateness *l);

#endif
