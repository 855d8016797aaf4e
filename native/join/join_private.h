/* What the files of the join share. Internal to join*.c. */
#ifndef MD_JOIN_PRIVATE_H
#define MD_JOIN_PRIVATE_H

#include "join/join.h"
#include "keys/keys.h"

enum { JOIN_MATCHED = 1, JOIN_SUPERSEDED = 2 };

typedef struct join_row {
    int64_t time, row;
    int64_t prev; /* seq of the row of this key that was done before it, on its side */
    int32_t id;   /* of the key; -1: none, nothing matches it */
    uint32_t flags;
} join_row;

typedef struct join_track join_track; /* join_items.c */

typedef struct join_side {
    join_row *block;
    int64_t capacity, start; /* rows[0] is block[start] */
    int64_t base;            /* seq of the first row */
    int64_t count;
    int64_t settled, done, sorted; /* seqs, base <= settled <= done <= sorted <= base + count */
    int64_t last_number;
    int64_t live;       /* of an interval join: rows before it are too old for what becomes done now */
    int64_t superseded; /* rows with that flag */
    join_track *track;  /* NULL: none of it was captured so far */
} join_side;

typedef struct join_pair {
    int64_t release, left, right;
    int64_t left_seq, right_seq;
} join_pair;

typedef struct join_found {
    int64_t row, seq;
} join_found;

/* A time with more pairs than one step may give: they are listed left row by left row, so that a step can stop
 * at any of them. */
typedef struct join_dense {
    bool on;
    bool scanned;      /* partners are those of left[at] */
    int64_t time;
    join_found *left;  /* left rows that may have a pair of this release, by row */
    int64_t n_left, left_capacity, at;
    join_found *right; /* partners of left[at], by row */
    int64_t n_right, right_capacity, next;
    int32_t right_id;  /* `right` is of this key, and holds the rows of this time alone or all: */
    bool right_all;
} join_dense;

struct md_join {
    md_keys *keys;
    int64_t *heads; /* [2 * id + side]: seq, or below base: none */
    int64_t heads_capacity;
    join_side sides[2];
    join_pair *pairs;
    int64_t n_pairs, pairs_capacity;
    int64_t pairs_most; /* of a step; beyond it a time is gone through in pieces */
    int64_t pairs_room; /* the smaller of the two */
    md_join_how how;
    int64_t within_us;
    int64_t boundary;
    int64_t passed; /* all releases below it are in the results taken, or in those of the step */
    int64_t keys_spare, taken;
    uint64_t seed;
    join_dense dense;
    bool judged, stepped, judge_due;
    md_type types[MD_KEYS_COLUMNS_MAX];
};

/* Within what a row is still wanted when everything below `passed` is done. */
MD_INLINE int64_t join_later(int64_t time, int64_t us) {
    int64_t sum;
    return __builtin_add_overflow(time, us, &sum) ? INT64_MAX : sum;
}
MD_INLINE int64_t join_earlier(int64_t time, int64_t us) {
    int64_t sum;
    return __builtin_sub_overflow(time, us, &sum) ? INT64_MIN : sum;
}

MD_INLINE join_row *join_at(const join_side *s, int64_t seq) { return s->block + s->start + (seq - s->base); }
MD_INLINE int64_t join_end(const join_side *s) { return s->base + s->count; }
MD_INLINE bool join_is_asof(const md_join *j) { return j->how >= MD_JOIN_ASOF; }

/* Rows of that side without a partner are results. */
MD_INLINE bool join_keeps(md_join_how how, int side) {
    if (side == MD_JOIN_LEFT_SIDE)
        return how == MD_JOIN_LEFT || how == MD_JOIN_FULL || how == MD_JOIN_ANTI || how == MD_JOIN_ASOF_LEFT;
    return how == MD_JOIN_RIGHT || how == MD_JOIN_FULL;
}

/* ---- join_side.c ---- */

/* Room for n more rows at the end. */
md_rc join_reserve(join_side *s, int64_t n);
/* Sort what came since the last time into its place. */
md_rc join_sort(join_side *s);
/* Numbers 0 .. n-1 such that key[order[i]] ascends, equal ones in their order. `order` has room for n. */
md_rc join_order(const join_row *rows, int64_t n, bool by_row, uint32_t *order);
/* Drop the first n rows. */
void join_drop(join_side *s, int64_t n);
/* Drop the superseded rows; seqs change, and so the heads do. */
void join_compact(md_join *j, int side);
/* Forget keys of which no row is held, when they are many. */
md_rc join_forget_keys(md_join *j);

/* ---- join_items.c ---- */

/* Room for rows with numbers below `end`. */
md_rc join_track_reserve(join_side *s, int64_t end);
/* The rest is for sides that are tracked, and can't fail. A row is there (again); it is about to be matched, or to
 * go. */
void join_track_row(join_side *s, const join_row *r);
void join_track_match(join_side *s, const join_row *r);
void join_track_drop(join_side *s, const join_row *r);
/* The same of n rows that have come, by number (matched: some may be); of the first n of the side, which go. */
void join_track_rows(join_side *s, const join_row *rows, int64_t n, bool matched);
void join_track_forget(join_side *s, int64_t n);
/* Its rows are about to get other numbers: copies under way have all that they need, captures are known no more. */
void join_track_end(join_side *s);
void join_track_free(join_side *s);
size_t join_track_nbytes(const join_side *s);

/* ---- join_dense.c ---- */

MD_INLINE void join_make_room(md_join *j) {
    j->pairs_room = j->pairs_capacity < j->pairs_most ? j->pairs_capacity : j->pairs_most;
}

/* Go through the pairs of time t by (left, right): its rows become done on both sides. On failure nothing
 * changed. */
md_rc join_dense_begin(md_join *j, int64_t t);
/* Add pairs until there are about pairs_max, or as many were looked at, or none is left: then dense.on is false. */
md_rc join_dense_step(md_join *j, int64_t pairs_max);

/* ---- join_step.c ---- */

/* As if the rows from those seqs on had not become done, nor the pairs behind n_pairs been found. */
void join_undo(md_join *j, const int64_t *seqs, int64_t n_pairs);
/* What pairs from `first` on mean for a join that isn't inner: marks, and which of them are results. */
void join_count_pairs(md_join *j, int64_t first);
/* Rows of that side before its result are too old for time t. */
MD_INLINE int64_t join_live_from(const md_join *j, join_side *s, int64_t t) {
    const int64_t least = join_earlier(t, j->within_us);
    if (s->live < s->base) s->live = s->base;
    while (s->live < s->done && join_at(s, s->live)->time < least) s->live++;
    return s->live;
}

/* Make a row the last of its key that is done. */
MD_INLINE void join_link(md_join *j, int side, int64_t seq, join_row *r) {
    if (r->id < 0) return;
    int64_t *head = &j->heads[2 * (int64_t)r->id + side];
    r->prev = *head;
    *head = seq;
}
/* The same of a right row of an as-of join: the one before it is wanted no more, if `drop`. */
void join_supersede(md_join *j, int64_t seq, join_row *r);

#endif
