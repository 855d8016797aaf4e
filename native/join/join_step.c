/* Rows become done, merged by time, and find their partners. */
#include "join/join_private.h"
#include "base/md_alloc.h"
#include "arrow/rows.h"

#define AHEAD 12 /* rows whose heads are asked for before they are read */

/* MD_EMPTY: one time has more pairs than a step may give. */
static MD_NOINLINE md_rc grow_pairs(md_join *j) {
    int64_t capacity = j->pairs_capacity < 256 ? 512 : 2 * j->pairs_capacity;
    if (j->n_pairs >= j->pairs_most) return MD_EMPTY;
    if (capacity > (INT64_C(1) << 40)) return MD_NOMEM;
    join_pair *pairs = md_realloc(j->pairs, (size_t)capacity * sizeof *pairs);
    if (pairs == NULL) return MD_NOMEM;
    j->pairs = pairs;
    j->pairs_capacity = capacity;
    join_make_room(j);
    return MD_OK;
}

void join_supersede(md_join *j, int64_t seq, join_row *r) {
    if (r->id < 0) return;
    join_side *right = &j->sides[MD_JOIN_RIGHT_SIDE];
    int64_t *head = &j->heads[2 * (int64_t)r->id + MD_JOIN_RIGHT_SIDE];
    if (*head >= right->base) {
        join_row *before = join_at(right, *head);
        if (right->track != NULL) join_track_drop(right, before);
        before->flags |= JOIN_SUPERSEDED;
        right->superseded++;
    }
    r->prev = *head; /* to find back, should the step fail */
    *head = seq;
}

/* ---- the pairs of one time, by (left, right) ---- */

static bool pair_before(const join_pair *a, const join_pair *b) {
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static void sift(join_pair *pairs, int64_t n, int64_t at) {
    join_pair moved = pairs[at];
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && pair_before(&pairs[child], &pairs[child + 1])) child++;
        if (!pair_before(&moved, &pairs[child])) break;
        pairs[at] = pairs[child];
    }
    pairs[at] = moved;
}

/* Chains are followed back in time, so the pairs of one probe come in about descending order. */
static void sort_pairs(join_pair *pairs, int64_t n) {
    for (int64_t i = 0, k = n - 1; i < k; i++, k--) {
        join_pair swap = pairs[i];
        pairs[i] = pairs[k];
        pairs[k] = swap;
    }
    int64_t moves = 0;
    for (int64_t i = 1; i < n && moves <= 8 * n; i++) {
        join_pair moved = pairs[i];
        int64_t k = i;
        for (; k > 0 && pair_before(&moved, &pairs[k - 1]); k--) pairs[k] = pairs[k - 1];
        pairs[k] = moved;
        moves += i - k;
    }
    if (moves <= 8 * n) return;
    for (int64_t i = n / 2; i-- > 0;) sift(pairs, n, i);
    for (int64_t i = n - 1; i > 0; i--) {
        join_pair swap = pairs[0];
        pairs[0] = pairs[i];
        pairs[i] = swap;
        sift(pairs, i, 0);
    }
}

/* ---- interval joins ---- */

MD_INLINE md_rc put_pair(md_join *j, int64_t release, int64_t left_seq, int64_t right_seq, const join_row *left,
                         const join_row *right) {
    if (MD_UNLIKELY(j->n_pairs == j->pairs_room)) {
        md_rc rc = grow_pairs(j);
        if (rc != MD_OK) return rc;
    }
    j->pairs[j->n_pairs++] = (join_pair){release, left->row, right->row, left_seq, right_seq};
    return MD_OK;
}

/* The pairs of a row of `side` that becomes done with rows of the other side that are. Rows are done in order
 * of time, so those from `live` on, and no others, are young enough: the rest of a chain isn't even read. */
MD_INLINE md_rc probe(md_join *j, int side, int64_t seq, const join_row *r, int64_t live) {
    if (r->id < 0) return MD_OK;
    const join_side *other = &j->sides[1 - side];
    for (int64_t at = j->heads[2 * (int64_t)r->id + 1 - side]; at >= live;) {
        const join_row *o = join_at(other, at);
        md_rc rc = side == MD_JOIN_LEFT_SIDE ? put_pair(j, r->time, seq, at, r, o)
                                             : put_pair(j, r->time, at, seq, o, r);
        if (MD_UNLIKELY(rc != MD_OK)) return rc;
        at = o->prev;
    }
    return MD_OK;
}

/* All rows of a side of time t: probe, then link. */
MD_INLINE md_rc probe_time(md_join *j, int side, int64_t t) {
    join_side *s = &j->sides[side];
    if (s->done == s->sorted || join_at(s, s->done)->time != t) return MD_OK;
    const join_side *other = &j->sides[1 - side];
    const int64_t live = join_live_from(j, &j->sides[1 - side], t);
    while (s->done < s->sorted) {
        join_row *r = join_at(s, s->done);
        if (r->time != t) break;
        if (s->done + AHEAD < s->sorted) {
            if (r[AHEAD].id >= 0) MD_PREFETCH_WRITE(&j->heads[2 * (int64_t)r[AHEAD].id]);
            if (r[AHEAD / 3].id >= 0) {
                int64_t head = j->heads[2 * (int64_t)r[AHEAD / 3].id + 1 - side];
                if (head >= live) MD_PREFETCH(join_at(other, head));
            }
        }
        md_rc rc = probe(j, side, s->done, r, live);
        if (MD_UNLIKELY(rc != MD_OK)) return rc;
        join_link(j, side, s->done, r);
        s->done++;
    }
    return MD_OK;
}

MD_INLINE void mark_row(join_side *s, int64_t seq) {
    join_row *r = join_at(s, seq);
    if (r->flags & JOIN_MATCHED) return;
    if (s->track != NULL) join_track_match(s, r);
    r->flags |= JOIN_MATCHED;
}

static void mark(md_join *j, const join_pair *p) {
    mark_row(&j->sides[0], p->left_seq);
    mark_row(&j->sides[1], p->right_seq);
}

void join_count_pairs(md_join *j, int64_t first) {
    int64_t kept = first;
    for (int64_t i = first; i < j->n_pairs; i++) {
        bool fresh = !(join_at(&j->sides[0], j->pairs[i].left_seq)->flags & JOIN_MATCHED);
        mark(j, &j->pairs[i]);
        if (j->how == MD_JOIN_ANTI || (j->how == MD_JOIN_SEMI && !fresh)) continue;
        j->pairs[kept++] = j->pairs[i];
    }
    j->n_pairs = kept;
}

/* ---- as-of joins ---- */

static md_rc probe_asof(md_join *j, int64_t seq, const join_row *r) {
    if (r->id < 0) return MD_OK;
    const join_side *right = &j->sides[MD_JOIN_RIGHT_SIDE];
    const int64_t least = j->within_us < 0 ? INT64_MIN : join_earlier(r->time, j->within_us);
    for (int64_t at = j->heads[2 * (int64_t)r->id + MD_JOIN_RIGHT_SIDE]; at >= right->base;) {
        const join_row *o = join_at(right, at);
        if (o->time < least) break;
        md_rc rc = put_pair(j, r->time, seq, at, r, o);
        if (rc != MD_OK || !j->judged) return rc;
        at = o->prev;
    }
    return MD_OK;
}

/* Left rows of a time may be left for the next step. */
static md_rc asof_time(md_join *j, int64_t t, int64_t pairs_max) {
    join_side *left = &j->sides[MD_JOIN_LEFT_SIDE], *right = &j->sides[MD_JOIN_RIGHT_SIDE];
    for (; right->done < right->sorted; right->done++) {
        join_row *r = join_at(right, right->done);
        if (r->time != t) break;
        if (j->judged) join_link(j, MD_JOIN_RIGHT_SIDE, right->done, r);
        else join_supersede(j, right->done, r);
    }
    for (; left->done < left->sorted; left->done++) {
        const join_row *r = join_at(left, left->done);
        if (r->time != t || j->n_pairs >= pairs_max) break;
        md_rc rc = probe_asof(j, left->done, r);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

/* ---- steps ---- */

void join_undo(md_join *j, const int64_t *seqs, int64_t n_pairs) {
    for (int side = 0; side < 2; side++) {
        join_side *s = &j->sides[side];
        bool linked = side == MD_JOIN_RIGHT_SIDE || !join_is_asof(j);
        while (s->done > seqs[side]) {
            const join_row *r = join_at(s, --s->done);
            if (!linked || r->id < 0) continue;
            j->heads[2 * (int64_t)r->id + side] = r->prev;
            if (join_is_asof(j) && !j->judged && r->prev >= s->base) {
                join_at(s, r->prev)->flags &= ~(uint32_t)JOIN_SUPERSEDED;
                if (s->track != NULL) join_track_row(s, join_at(s, r->prev));
                s->superseded--;
            }
        }
    }
    j->n_pairs = n_pairs;
}

MD_INLINE int64_t next_time(const join_side *s) { return s->done < s->sorted ? join_at(s, s->done)->time : INT64_MAX; }

/* The time of the next rows below the boundary; whether there are any. */
MD_INLINE bool next_below(const md_join *j, int64_t *t) {
    int64_t left = next_time(&j->sides[0]), right = next_time(&j->sides[1]);
    *t = left < right ? left : right;
    if (MD_LIKELY(*t < j->boundary)) return true;
    return j->boundary == INT64_MAX && (j->sides[0].done < j->sides[0].sorted || j->sides[1].done < j->sides[1].sorted);
}

/* The rows of a time; all of its pairs, or the first of many. On failure they aren't done. */
MD_INLINE md_rc step_time(md_join *j, bool asof, int64_t t, int64_t pairs_max) {
    int64_t seqs[2] = {j->sides[0].done, j->sides[1].done}, n_pairs = j->n_pairs;
    md_rc rc = asof ? asof_time(j, t, pairs_max) : probe_time(j, MD_JOIN_LEFT_SIDE, t);
    if (!asof && rc == MD_OK) rc = probe_time(j, MD_JOIN_RIGHT_SIDE, t);
    if (MD_UNLIKELY(rc != MD_OK)) {
        join_undo(j, seqs, n_pairs);
        return rc == MD_EMPTY ? join_dense_begin(j, t) : rc;
    }
    if (asof) return MD_OK;
    if (j->n_pairs - n_pairs > 1) sort_pairs(j->pairs + n_pairs, j->n_pairs - n_pairs);
    if (j->how != MD_JOIN_INNER && !j->judged) join_count_pairs(j, n_pairs);
    return MD_OK;
}

md_rc md_join_step(md_join *j, int64_t pairs_max, bool *more, md_error *err) {
    if (j->stepped) return md_fail(err, MD_BADARG, "results of a step are still to be taken");
    j->n_pairs = 0;
    /* As-of joins stop between left rows, so one row's partners are all that can come on top. */
    const bool asof = join_is_asof(j);
    j->pairs_most = asof || pairs_max > (INT64_MAX >> 1) ? INT64_MAX : 2 * pairs_max;
    join_make_room(j);
    int64_t passed = j->boundary, t = passed;
    *more = false;
    while (j->dense.on || next_below(j, &t)) {
        md_rc rc = MD_OK;
        if (!j->dense.on && j->n_pairs < pairs_max) rc = step_time(j, asof, t, pairs_max);
        else if (!j->dense.on) *more = true;
        if (rc == MD_OK && j->dense.on) {
            t = j->dense.time;
            rc = join_dense_step(j, pairs_max);
            *more = j->dense.on;
        }
        if (MD_UNLIKELY(rc != MD_OK)) {
            if (j->n_pairs == 0) return md_nomem(err);
            *more = true; /* what there is goes out first, and makes room */
        }
        if (*more) {
            passed = t;
            break;
        }
    }
    j->passed = passed;
    j->stepped = true;
    j->judge_due = j->judged;
    return MD_OK;
}

md_rc md_join_pairs(md_join *j, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err) {
    md_rows *rows = NULL;
    if (!j->judge_due) return md_fail(err, MD_BADARG, "there are no pairs to judge");
    md_rc rc = md_rows_new(2, &rows);
    if (rc == MD_OK) {
        md_rows_define(rows, 0, "l", "left", false);
        md_rows_define(rows, 1, "l", "right", false);
        rc = md_rows_reserve(rows, j->n_pairs);
    }
    if (rc == MD_OK) {
        md_word *left = md_rows_words(rows, 0), *right = md_rows_words(rows, 1);
        for (int64_t i = 0; i < j->n_pairs; i++) {
            left[i].i = j->pairs[i].left;
            right[i].i = j->pairs[i].right;
        }
        md_rows_commit(rows, j->n_pairs);
        rc = md_rows_finish(rows, schema, array);
    }
    md_rows_free(rows);
    return rc == MD_OK ? MD_OK : md_fail(err, rc, "out of memory");
}

md_rc md_join_judge(md_join *j, const struct ArrowSchema *schema, const struct ArrowArray *mask, md_error *err) {
    md_column keep;
    if (!j->judge_due) return md_fail(err, MD_BADARG, "there are no pairs to judge");
    md_rc rc = md_column_view(schema, mask, &keep, err);
    if (rc != MD_OK) return rc;
    if (keep.type != MD_BOOL || keep.length != j->n_pairs)
        return md_fail(err, MD_BADARG, "expected %lld bools", (long long)j->n_pairs);
    int64_t kept = 0;
    for (int64_t i = 0; i < j->n_pairs; i++)
        if (!md_column_null(&keep, i) && md_column_bool(&keep, i)) j->pairs[kept++] = j->pairs[i];
    j->n_pairs = kept;
    if (j->how != MD_JOIN_INNER && !join_is_asof(j)) join_count_pairs(j, 0);
    j->judge_due = false;
    return MD_OK;
}
