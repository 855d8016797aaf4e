/* Joins of two streams by key and time: rows in, in any order; row numbers of results out, in order.
 *
 * The join holds no columns but the keys. Each side's rows have ascending numbers, which the caller gives
 * and gets back: whoever holds the columns gathers them (take.h). So copies over disjoint keys can run in
 * threads of their own, and their results, each sorted by (release, left, right), merge into one order.
 *
 *   one side        seq   base          settled      done        sorted      end
 *                         | still wanted |  partners | may come  | waiting   | just came, unsorted
 *                         +-----------------by (time, row)-------------------+
 *
 *   key id -> head: the last row of that key that is done, on either side; prev leads to older ones
 *
 * Rows of both sides become done merged by time. A row that becomes done looks for partners among the rows
 * of the other side that are done, from the head of its key back until `within` is passed: the later row of
 * a pair finds it, so pairs come by release. A link to a row before base is the end of its chain: forgetting
 * rows needs no search.
 *
 * Interval join: pairs at most `within` apart; their release is the later time. A row without a pair is
 * settled when its time + within is passed, which is its release. As-of join: the latest right row not after
 * the left one; a right row that a later one supersedes is dropped at once, unless a condition on both sides
 * is to choose (`judged`).
 *
 * Calls: add as rows come; advance when the boundary grows, then until there is no more: step, pairs and
 * judge if judged, results. */
#ifndef MD_JOIN_H
#define MD_JOIN_H

#include "arrow/column.h"
#include "base/md_base.h"
#include "state/items.h"

typedef enum {
    MD_JOIN_INNER,
    MD_JOIN_LEFT,
    MD_JOIN_RIGHT,
    MD_JOIN_FULL,
    MD_JOIN_SEMI,
    MD_JOIN_ANTI,
    MD_JOIN_ASOF,      /* left rows without a partner are left out */
    MD_JOIN_ASOF_LEFT, /* or come with none */
} md_join_how;

enum { MD_JOIN_LEFT_SIDE = 0, MD_JOIN_RIGHT_SIDE = 1 };

typedef struct md_join_config {
    const md_type *keys;
    int32_t n_keys; /* at least 1 */
    md_join_how how;
    int64_t within_us;  /* >= 0; -1, of an as-of join only: however old */
    bool judged;        /* the caller decides which pairs count */
    int64_t keys_spare; /* keys remembered beyond twice the rows held */
    uint64_t seed;      /* of the hash table; never influences results */
} md_join_config;

typedef struct md_join md_join;

/* MD_BADARG: a type that is no key, or a number out of range. */
md_rc md_join_new(const md_join_config *config, md_join **out, md_error *err);
void md_join_free(md_join *j);

/* Take rows of a side: a struct of time (no nulls), the keys and, when a state is loaded, `matched` (bool).
 * Row i has number numbers[i], or first + i without them; numbers ascend over all calls. A row with a null
 * key has no partner. MD_BADARG: other columns, numbers that don't ascend, a time below the boundary. On
 * failure nothing was taken. */
md_rc md_join_add(md_join *j, int side, const struct ArrowSchema *schema, const struct ArrowArray *array,
                  int64_t first, const int64_t *numbers, md_error *err);

/* No row below `boundary` comes any more: those there are can become done. MD_BADARG: it decreases. */
md_rc md_join_advance(md_join *j, int64_t boundary, md_error *err);

/* Let rows become done until there are `pairs_max` pairs or more (at most twice as many, but for one left
 * row's of a judged as-of join), or as many were looked at, or nothing is left below the boundary (then
 * *more is false). A time with more pairs is gone through in several steps; which steps there are changes
 * neither results nor their order. Only after the results of the step before were taken. On MD_NOMEM the step
 * can be called again. */
md_rc md_join_step(md_join *j, int64_t pairs_max, bool *more, md_error *err);

/* Of a judged join: the pairs of the step, in order, as a batch (left, right). */
md_rc md_join_pairs(md_join *j, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err);

/* Which of them count: a bool array; null is false. MD_BADARG: another length or type. */
md_rc md_join_judge(md_join *j, const struct ArrowSchema *schema, const struct ArrowArray *mask, md_error *err);

/* Results of the step as a batch that is the caller's: release (int64), time (timestamp[us, UTC]), left, right
 * (int64, -1: none), by (release, left, right), none last. MD_EMPTY: there are none. On MD_NOMEM it can be
 * called again. */
md_rc md_join_results(md_join *j, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err);

/* The rows a side holds, as a batch (row int64, time timestamp[us, UTC], matched bool) by row.
 * MD_BADARG: between steps, while the pairs of one time are still to come. */
md_rc md_join_rows(const md_join *j, int side, struct ArrowSchema *schema, struct ArrowArray *array,
                   md_error *err);

/* From now on the rows of a side are known by their numbers, as copies of them need it: where many are held already,
 * all are looked at. MD_NOMEM: they aren't. */
md_rc md_join_track(md_join *j, int side);

/* The rows of a side by their numbers, for copies of them: row, time (us), matched (0 or 1); they are known by these from
 * the first call on. Lives until md_join_renumber, and only the join changes it. MD_BADARG: as md_join_rows. */
md_rc md_join_items(md_join *j, int side, md_items **out, md_error *err);

/* Number the rows that a side holds anew, in the order of md_join_rows: 0, 1, 2 ... or, where that isn't NULL, by
 * the n numbers, which ascend from 0 on. MD_BADARG: others, or another n. */
md_rc md_join_renumber(md_join *j, int side, const int64_t *numbers, int64_t n, md_error *err);

/* How many numbers there are from the first row held to the last one taken, where the rows are known by them
 * (md_join_items): what that takes grows with it, however few rows are held. Else 0. */
int64_t md_join_span(const md_join *j, int side);

/* After rows of a state were added to a fresh join: go on from that boundary. The rows are not trusted:
 * MD_BADDATA when they can't have been held then. */
md_rc md_join_resume(md_join *j, int64_t boundary, md_error *err);

int64_t md_join_held(const md_join *j, int side);    /* rows, waiting ones included */
int64_t md_join_waiting(const md_join *j, int side); /* rows at or above the boundary */
size_t md_join_nbytes(const md_join *j);

#endif
