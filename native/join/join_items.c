/* The rows of a side as numbered items: what a capture copies, in the order of their numbers. From the first capture
 * on; the rows themselves stand in the order of their times, so what is copied of them is kept by number here. */
#include "join/join_private.h"
#include "base/md_alloc.h"
#include "state/items.h"

struct join_track {
    md_items items;
    int64_t *times;    /* [number - origin of the items] */
    uint8_t *matched;  /* the same: rows that have had a partner */
    int64_t capacity;  /* of both */
};

static void put(const void *owner, int64_t number, int64_t *const *columns, int64_t at) {
    const join_track *t = owner;
    columns[0][at] = number;
    columns[1][at] = t->times[number - t->items.origin];
    columns[2][at] = t->matched[number - t->items.origin];
}

static const char *const NAMES[] = {"row", "time", "matched"};
static const md_items_kind KIND = {.width = 3, .names = NAMES, .put = put};

void join_track_free(join_side *s) {
    if (s->track == NULL) return;
    md_items_free(&s->track->items);
    md_free(s->track->times);
    md_free(s->track->matched);
    md_free(s->track);
    s->track = NULL;
}

size_t join_track_nbytes(const join_side *s) {
    if (s->track == NULL) return 0;
    return sizeof *s->track + md_items_nbytes(&s->track->items) +
           (size_t)s->track->capacity * (sizeof *s->track->times + sizeof *s->track->matched);
}

/* What no row in front needs any more makes room. */
static void trim(join_track *t, int64_t end) {
    int64_t before = t->items.origin, gone = md_items_trim(&t->items) - before, used = end - before;
    if (gone == 0) return;
    if (used > t->capacity) used = t->capacity;
    if (used <= gone) return;
    memmove(t->times, t->times + gone, (size_t)(used - gone) * sizeof *t->times);
    memmove(t->matched, t->matched + gone, (size_t)(used - gone) * sizeof *t->matched);
}

md_rc join_track_reserve(join_side *s, int64_t end) {
    join_track *t = s->track;
    if (t == NULL) return MD_OK;
    if (end - t->items.origin > t->capacity) trim(t, end);
    int64_t need = end - t->items.origin, capacity = t->capacity + t->capacity / 2;
    if (need > t->capacity) {
        if (capacity < need) capacity = need;
        if (capacity < 1024) capacity = 1024;
        int64_t *times = md_realloc(t->times, (size_t)capacity * sizeof *times);
        if (times == NULL) return MD_NOMEM;
        t->times = times;
        uint8_t *matched = md_realloc(t->matched, (size_t)capacity * sizeof *matched);
        if (matched == NULL) return MD_NOMEM;
        t->matched = matched;
        t->capacity = capacity;
    }
    return md_items_reserve(&t->items, end);
}

void join_track_row(join_side *s, const join_row *r) {
    join_track *t = s->track;
    md_items_open(&t->items, r->row);
    t->times[r->row - t->items.origin] = r->time;
    t->matched[r->row - t->items.origin] = (r->flags & JOIN_MATCHED) != 0;
}

void join_track_match(join_side *s, const join_row *r) {
    md_items_touch(&s->track->items, r->row);
    s->track->matched[r->row - s->track->items.origin] = 1;
}

void join_track_drop(join_side *s, const join_row *r) { md_items_close(&s->track->items, r->row); }

void join_track_rows(join_side *s, const join_row *rows, int64_t n, bool matched) {
    join_track *t = s->track;
    if (n <= 0) return;
    int64_t first = rows[0].row, at = first - t->items.origin;
    if (rows[n - 1].row - first != n - 1) { /* not all of those that came are kept */
        for (int64_t i = 0; i < n; i++) join_track_row(s, &rows[i]);
        return;
    }
    md_items_open_range(&t->items, first, first + n);
    for (int64_t i = 0; i < n; i++) t->times[at + i] = rows[i].time;
    memset(t->matched + at, 0, (size_t)n);
    for (int64_t i = 0; matched && i < n; i++) t->matched[at + i] = (rows[i].flags & JOIN_MATCHED) != 0;
}

void join_track_forget(join_side *s, int64_t n) {
    const join_row *rows = join_at(s, s->base);
    for (int64_t i = 0, end; i < n; i = end) { /* mostly in the order in which they came */
        end = i + 1;
        if (rows[i].flags & JOIN_SUPERSEDED) continue;
        while (end < n && rows[end].row == rows[end - 1].row + 1 && !(rows[end].flags & JOIN_SUPERSEDED)) end++;
        md_items_close_range(&s->track->items, rows[i].row, rows[end - 1].row + 1);
    }
}

void join_track_end(join_side *s) {
    if (s->track == NULL) return;
    md_items_clear(&s->track->items);
    join_track_free(s);
}

static md_rc begin(join_side *s) {
    int64_t first = s->last_number + 1;
    join_track *t = s->track = md_calloc(1, sizeof *t);
    if (t == NULL) return MD_NOMEM;
    md_items_init(&t->items, &KIND, t);
    for (int64_t i = 0; i < s->count; i++) {
        const join_row *r = join_at(s, s->base + i);
        if (r->row < first) first = r->row;
    }
    md_items_begin_at(&t->items, first);
    md_rc rc = join_track_reserve(s, s->last_number + 1);
    if (rc != MD_OK) {
        join_track_free(s);
        return rc;
    }
    for (int64_t i = 0; i < s->count; i++) {
        const join_row *r = join_at(s, s->base + i);
        if (!(r->flags & JOIN_SUPERSEDED)) join_track_row(s, r);
    }
    return MD_OK;
}

md_rc md_join_track(md_join *j, int side) {
    join_side *s = &j->sides[side];
    return s->track == NULL ? begin(s) : MD_OK;
}

int64_t md_join_span(const md_join *j, int side) {
    const join_side *s = &j->sides[side];
    int64_t first = s->track != NULL ? md_items_first(&s->track->items) : INT64_MAX;
    return first > s->last_number ? 0 : s->last_number + 1 - first;
}

md_rc md_join_items(md_join *j, int side, md_items **out, md_error *err) {
    join_side *s = &j->sides[side];
    if (j->dense.on) return md_fail(err, MD_BADARG, "pairs of a time are still to come");
    if (md_join_track(j, side) != MD_OK) return md_nomem(err);
    *out = &s->track->items;
    return MD_OK;
}
