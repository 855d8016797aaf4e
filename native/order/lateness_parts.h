/* Lateness judged apart for each partition of one source, row by row, so that cuts never matter.
 *
 * A row of partition p is late when its time is below the limit that stands before it:
 *
 *     limit(p) = max(largest time of earlier rows of p - slack, floor(p), explicit boundary)
 *     boundary = min over all partitions of limit(p)
 *
 *   floor(p) of a partition that is seen for the first time is the boundary at that moment (of one that
 *   is listed from the start: the least int64, so it holds the boundary until it is seen); md_parts_lift
 *   raises it, for a partition that is idle.
 *
 *   heap  [ (limit, p) | ... ]   one entry a partition, a heap by limit. Limits only grow, so an entry may
 *                                lie below the true limit: only what comes to the top is brought up to date.
 *
 * Invariants: limits and boundary never decrease; partitions are numbered 0 .. count - 1 in the order in
 * which they were seen; slack_us >= 0. One thread at a time. */
#ifndef MD_LATENESS_PARTS_H
#define MD_LATENESS_PARTS_H

#include "arrow/column.h"
#include "order/lateness.h"
#include "base/md_base.h"

typedef struct md_part {
    int64_t max_us;   /* largest time seen; INT64_MIN before the first row */
    int64_t floor_us; /* INT64_MIN: none */
} md_part;

typedef struct md_parts_entry {
    int64_t limit_us;
    int64_t part;
} md_parts_entry;

typedef struct md_parts {
    int64_t slack_us, promised_us;
    int64_t count, capacity;
    md_part *parts;
    md_parts_entry *heap;
} md_parts;

/* An empty set; ended by md_parts_free. MD_BADARG: slack_us < 0. */
md_rc md_parts_init(md_parts *l, int64_t slack_us, md_error *err);
void md_parts_free(md_parts *l);

/* Room for partitions up to `count`, so that what follows can't fail. */
md_rc md_parts_reserve(md_parts *l, int64_t count);

/* One more partition that has been seen up to max_us (INT64_MIN: not at all), with its floor: how a list, or
 * state, enters. */
md_rc md_parts_append(md_parts *l, int64_t max_us, int64_t floor_us);

/* Judge times (MD_I64 without nulls); ids: the partition of each row, a new one being `count`, then
 * `count + 1` and so on. MD_BADARG: types, nulls, or an id that skips one. On anything but MD_OK *l and *out
 * are unchanged. */
md_rc md_parts_judge(md_parts *l, const md_column *times, const int32_t *ids, md_late_rows *out, md_error *err);

/* Take an explicit boundary for all. MD_BADARG: it is below an earlier one. */
md_rc md_parts_promise(md_parts *l, int64_t boundary_us, md_error *err);

/* Raise the floor of one partition; a lower one changes nothing. MD_BADARG: no such partition. */
md_rc md_parts_lift(md_parts *l, int64_t part, int64_t floor_us, md_error *err);

/* Partition p has been idle since active_us[p], of which there are `count`. Those idle since `since_us` or longer are
 * lifted to the least limit of the others. True: all are idle, and nothing was lifted. */
bool md_parts_rest(md_parts *l, const int64_t *active_us, int64_t since_us);

int64_t md_parts_limit(const md_parts *l, int64_t part);

/* The boundary; INT64_MIN when nothing is known. *holder: the partition that holds it; -1: none does. */
int64_t md_parts_boundary(md_parts *l, int64_t *holder);

size_t md_parts_nbytes(const md_parts *l);

#endif
