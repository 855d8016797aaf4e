/* Results of a step: pairs and rows without one, by (release, left, right), and what can be forgotten then. */
#include "join/join_private.h"
#include "base/md_alloc.h"
#include "arrow/rows.h"

#define NONE INT64_C(-1)

typedef struct writer {
    md_word *release, *time, *left, *right;
    int64_t n;
} writer;

MD_INLINE void put(writer *w, int64_t release, int64_t time, int64_t left, int64_t right) {
    w->release[w->n].i = release;
    w->time[w->n].i = time;
    w->left[w->n].i = left;
    w->right[w->n++].i = right;
}

/* Whether a row that is done finds no partner any more. */
MD_INLINE bool settles(const md_join *j, const join_row *r) {
    return join_later(r->time, j->within_us) < j->passed || (j->passed == INT64_MAX && !j->dense.on);
}

/* The same of a left row while the pairs of a time are gone through by left row: all of its own have been. */
static bool settles_within(const md_join *j, int side, const join_row *r) {
    const join_dense *d = &j->dense;
    return d->on && side == MD_JOIN_LEFT_SIDE && r->row < d->left[d->at].row &&
           join_later(r->time, j->within_us) == d->time;
}

/* The next row of a side from *seq on that is settled now and has no pair; NULL: there is none. */
static const join_row *next_alone(const md_join *j, int side, int64_t *seq) {
    const join_side *s = &j->sides[side];
    for (; join_keeps(j->how, side) && *seq < s->done; ++*seq) {
        const join_row *r = join_at(s, *seq);
        if (!settles(j, r) && !settles_within(j, side, r)) break;
        if (!(r->flags & JOIN_MATCHED)) return r;
    }
    return NULL;
}

/* Three lists, each in order, become one: pairs, left rows alone, right rows alone. */
static void write_interval(const md_join *j, writer *w, int64_t *settled) {
    const bool semi = j->how == MD_JOIN_SEMI;
    const join_row *left = next_alone(j, 0, &settled[0]), *right = next_alone(j, 1, &settled[1]);
    for (int64_t i = 0; i < j->n_pairs || left != NULL || right != NULL;) {
        int64_t at_left = left != NULL ? join_later(left->time, j->within_us) : INT64_MAX;
        int64_t at_right = right != NULL ? join_later(right->time, j->within_us) : INT64_MAX;
        if (i < j->n_pairs) {
            const join_pair *p = &j->pairs[i];
            bool before_left = left == NULL || p->release < at_left || (p->release == at_left && p->left < left->row);
            /* A row without its left one is last among its time. */
            if (before_left && (right == NULL || p->release <= at_right)) {
                int64_t time = semi ? join_at(&j->sides[0], p->left_seq)->time : p->release;
                put(w, p->release, time, p->left, semi ? NONE : p->right);
                i++;
                continue;
            }
        }
        if (left != NULL && (right == NULL || at_left <= at_right)) {
            put(w, at_left, left->time, left->row, NONE);
            settled[0]++;
            left = next_alone(j, 0, &settled[0]);
        } else {
            put(w, at_right, right->time, NONE, right->row);
            settled[1]++;
            right = next_alone(j, 1, &settled[1]);
        }
    }
}

static void write_asof(const md_join *j, writer *w) {
    const join_side *s = &j->sides[MD_JOIN_LEFT_SIDE];
    int64_t i = 0;
    for (int64_t seq = s->base; seq < s->done; seq++) {
        const join_row *r = join_at(s, seq);
        if (i < j->n_pairs && j->pairs[i].left_seq == seq) {
            put(w, r->time, r->time, r->row, j->pairs[i].right);
            while (i < j->n_pairs && j->pairs[i].left_seq == seq) i++; /* the first is the latest */
        } else if (j->how == MD_JOIN_ASOF_LEFT) {
            put(w, r->time, r->time, r->row, NONE);
        }
    }
}

static int64_t results_most(const md_join *j) {
    int64_t most = j->n_pairs;
    for (int side = 0; side < 2; side++) {
        int64_t seq = j->sides[side].settled;
        if (join_is_asof(j)) most += side == 0 && join_keeps(j->how, 0) ? j->sides[0].done - j->sides[0].base : 0;
        else if (join_keeps(j->how, side))
            for (; next_alone(j, side, &seq) != NULL; seq++) most++;
    }
    return most;
}

static void forget(md_join *j) {
    for (int side = 0; side < 2; side++) {
        join_side *s = &j->sides[side];
        int64_t n = 0;
        if (join_is_asof(j) && side == MD_JOIN_LEFT_SIDE) n = s->done - s->base;
        else if (j->within_us >= 0)
            while (s->base + n < s->done && settles(j, join_at(s, s->base + n))) n++;
        for (int64_t i = 0; s->superseded > 0 && i < n; i++)
            s->superseded -= (join_at(s, s->base + i)->flags & JOIN_SUPERSEDED) != 0;
        if (s->track != NULL) join_track_forget(s, n);
        join_drop(s, n);
        if (s->superseded > 64 && s->superseded > s->count / 2) join_compact(j, side);
    }
}

md_rc md_join_results(md_join *j, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err) {
    static const char *const NAMES[] = {"release", "time", "left", "right"};
    if (!j->stepped || j->judge_due)
        return md_fail(err, MD_BADARG, j->judge_due ? "its pairs are to be judged first" : "there was no step");
    int64_t most = results_most(j), settled[2] = {j->sides[0].settled, j->sides[1].settled};
    md_rc rc = MD_EMPTY;
    writer w = {0};
    if (most > 0) {
        md_rows *rows = NULL;
        rc = md_rows_new(4, &rows);
        if (rc == MD_OK) {
            for (int32_t c = 0; c < 4; c++) md_rows_define(rows, c, c == 1 ? "tsu:UTC" : "l", NAMES[c], false);
            rc = md_rows_reserve(rows, most);
        }
        if (rc == MD_OK) {
            w = (writer){md_rows_words(rows, 0), md_rows_words(rows, 1), md_rows_words(rows, 2),
                         md_rows_words(rows, 3), 0};
            if (join_is_asof(j)) write_asof(j, &w);
            else write_interval(j, &w, settled);
            md_rows_commit(rows, w.n);
            rc = md_rows_finish(rows, schema, array);
        }
        md_rows_free(rows);
        if (rc != MD_OK) return md_nomem(err);
    }
    for (int side = 0; side < 2; side++) {
        if (join_is_asof(j)) break;
        int64_t seq = settled[side];
        next_alone(j, side, &seq); /* rows with a pair at the end are settled too */
        j->sides[side].settled = seq;
    }
    j->n_pairs = 0;
    j->stepped = false;
    forget(j);
    return rc;
}
