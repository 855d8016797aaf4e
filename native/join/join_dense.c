/* A time with very many pairs: they are found left row by left row, so that any of them can be the last of a step. */
#include <stdlib.h>

#include "join/join_private.h"
#include "base/md_alloc.h"

static int by_row(const void *a, const void *b) {
    int64_t x = ((const join_found *)a)->row, y = ((const join_found *)b)->row;
    return (x > y) - (x < y);
}

static md_rc put(join_found **found, int64_t *n, int64_t *capacity, int64_t row, int64_t seq) {
    if (*n == *capacity) {
        int64_t wider = *capacity < 32 ? 64 : 2 * *capacity;
        join_found *made = md_realloc(*found, (size_t)wider * sizeof *made);
        if (made == NULL) return MD_NOMEM;
        *found = made;
        *capacity = wider;
    }
    (*found)[(*n)++] = (join_found){row, seq};
    return MD_OK;
}

static void sort_found(join_found *found, int64_t n) {
    bool ascending = true;
    for (int64_t i = 1; i < n && ascending; i++) ascending = found[i - 1].row <= found[i].row;
    if (!ascending) qsort(found, (size_t)n, sizeof *found, by_row);
}

static md_rc put_left(join_dense *d, const join_row *r, int64_t seq) {
    return put(&d->left, &d->n_left, &d->left_capacity, r->row, seq);
}

static void link_time(md_join *j, int side, int64_t t) {
    join_side *s = &j->sides[side];
    for (; s->done < s->sorted && join_at(s, s->done)->time == t; s->done++)
        join_link(j, side, s->done, join_at(s, s->done));
}

/* Left rows of this time that have a key, and older ones of the keys of its right rows. */
static md_rc find_left(md_join *j, const int64_t *seqs, int64_t live) {
    join_dense *d = &j->dense;
    const join_side *left = &j->sides[MD_JOIN_LEFT_SIDE], *right = &j->sides[MD_JOIN_RIGHT_SIDE];
    md_rc rc = MD_OK;
    for (int64_t seq = seqs[0]; seq < left->done && rc == MD_OK; seq++)
        if (join_at(left, seq)->id >= 0) rc = put_left(d, join_at(left, seq), seq);
    for (int64_t seq = seqs[1]; seq < right->done && rc == MD_OK; seq++) {
        const join_row *r = join_at(right, seq);
        /* The last of its key stands for all of them. */
        if (r->id < 0 || j->heads[2 * (int64_t)r->id + MD_JOIN_RIGHT_SIDE] != seq) continue;
        for (int64_t at = j->heads[2 * (int64_t)r->id + MD_JOIN_LEFT_SIDE]; at >= live && rc == MD_OK;) {
            const join_row *o = join_at(left, at);
            if (at < seqs[0]) rc = put_left(d, o, at);
            at = o->prev;
        }
    }
    return rc;
}

md_rc join_dense_begin(md_join *j, int64_t t) {
    join_dense *d = &j->dense;
    int64_t seqs[2] = {j->sides[0].done, j->sides[1].done}, n_pairs = j->n_pairs;
    int64_t live = join_live_from(j, &j->sides[MD_JOIN_LEFT_SIDE], t);
    (void)join_live_from(j, &j->sides[MD_JOIN_RIGHT_SIDE], t);
    d->n_left = d->at = d->n_right = d->next = 0;
    d->scanned = false;
    d->right_id = -1;
    d->time = t;
    link_time(j, MD_JOIN_LEFT_SIDE, t);
    link_time(j, MD_JOIN_RIGHT_SIDE, t);
    if (find_left(j, seqs, live) != MD_OK) {
        join_undo(j, seqs, n_pairs);
        return MD_NOMEM;
    }
    sort_found(d->left, d->n_left);
    d->on = true;
    return MD_OK;
}

/* The partners of left[at]. */
static md_rc find_right(md_join *j) {
    join_dense *d = &j->dense;
    const join_side *right = &j->sides[MD_JOIN_RIGHT_SIDE];
    const join_row *l = join_at(&j->sides[MD_JOIN_LEFT_SIDE], d->left[d->at].seq);
    const bool all = l->time == d->time;
    d->next = 0;
    if (d->right_id == l->id && d->right_all == all) return MD_OK;
    d->right_id = -1;
    d->n_right = 0;
    for (int64_t at = j->heads[2 * (int64_t)l->id + MD_JOIN_RIGHT_SIDE]; at >= right->live;) {
        const join_row *r = join_at(right, at);
        if (!all && r->time != d->time) break;
        if (put(&d->right, &d->n_right, &d->right_capacity, r->row, at) != MD_OK) return MD_NOMEM;
        at = r->prev;
    }
    sort_found(d->right, d->n_right);
    d->right_id = l->id;
    d->right_all = all;
    return MD_OK;
}

/* Room for so many more pairs. */
static md_rc reserve(md_join *j, int64_t n) {
    if (j->n_pairs + n <= j->pairs_capacity) return MD_OK;
    join_pair *pairs = md_realloc(j->pairs, (size_t)(j->n_pairs + n) * sizeof *pairs);
    if (pairs == NULL) return MD_NOMEM;
    j->pairs = pairs;
    j->pairs_capacity = j->n_pairs + n;
    join_make_room(j);
    return MD_OK;
}

/* Pairs of left[at]: at most so many; how many were looked at. */
static md_rc take_pairs(md_join *j, int64_t most, int64_t *looked) {
    join_dense *d = &j->dense;
    const join_found *l = &d->left[d->at];
    int64_t n = d->n_right - d->next;
    if (n > most) n = most;
    if (reserve(j, n) != MD_OK) return MD_NOMEM;
    const int64_t first = j->n_pairs;
    for (int64_t i = 0; i < n; i++) {
        const join_found *r = &d->right[d->next++];
        j->pairs[j->n_pairs++] = (join_pair){d->time, l->row, r->row, l->seq, r->seq};
    }
    *looked += n;
    if (j->how != MD_JOIN_INNER && !j->judged) join_count_pairs(j, first);
    return MD_OK;
}

md_rc join_dense_step(md_join *j, int64_t pairs_max) {
    join_dense *d = &j->dense;
    int64_t looked = j->n_pairs;
    while (d->at < d->n_left && looked < pairs_max) {
        if (!d->scanned && find_right(j) != MD_OK) return MD_NOMEM;
        d->scanned = true;
        if (take_pairs(j, pairs_max - looked, &looked) != MD_OK) return MD_NOMEM;
        if (d->next < d->n_right) break;
        d->at++;
        d->scanned = false;
        looked++; /* a row without partners is work too */
    }
    if (d->at < d->n_left) return MD_OK;
    d->on = false;
    md_free(d->left);
    md_free(d->right);
    d->left = d->right = NULL;
    d->n_left = d->left_capacity = d->n_right = d->right_capacity = 0;
    return MD_OK;
}
