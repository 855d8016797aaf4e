/* Rows into panes by several threads: a pane is filled by one of them, in the order of its rows, so that
 * neither groups nor bits depend on how many there are.
 *
 *   begin    segments of every pane, in their order        one thread
 *   run      groups and room of each pane                  may fail; threads take the next pane that is left
 *   fill     values of each pane                           can't fail; the same
 *   end      keep, or as before begin                      one thread
 */
#include <stdlib.h>

#include "base/kernels.h"
#include "base/md_alloc.h"
#include "window/window.h"
#include "window/window_private.h"

typedef struct share { /* of one pane */
    md_pane *pane;
    int64_t first, last, rows; /* segments */
} share;

typedef struct slot { /* of one thread */
    md_scratch *scratch;
    md_distinct_scratch *distinct;
} slot;

struct md_spread {
    share *shares;
    int64_t n_shares, shares_capacity;
    slot *slots;
    int64_t n_slots, slots_capacity;
    int64_t rows;      /* of the add under way */
    int64_t mapped, filled; /* shares taken so far; atomic */
    int failed;        /* the first md_rc that isn't MD_OK; atomic */
};

void md_spread_free(md_spread *spread) {
    if (spread == NULL) return;
    for (int64_t i = 0; i < spread->n_slots; i++) {
        md_free(spread->slots[i].scratch);
        md_free(spread->slots[i].distinct);
    }
    md_free(spread->slots);
    md_free(spread->shares);
    md_free(spread);
}

static md_rc make_slots(md_window *w, int32_t n) {
    if (w->spread == NULL && (w->spread = md_calloc(1, sizeof *w->spread)) == NULL) return MD_NOMEM;
    md_spread *spread = w->spread;
    if (!md_grow(&spread->slots, &spread->slots_capacity, n, sizeof *spread->slots)) return MD_NOMEM;
    while (spread->n_slots < n) {
        slot made = {.scratch = md_malloc(sizeof *made.scratch)};
        if (w->plan->n_distinct > 0) made.distinct = md_malloc(sizeof *made.distinct);
        if (made.scratch == NULL || (w->plan->n_distinct > 0 && made.distinct == NULL)) {
            md_free(made.scratch);
            md_free(made.distinct);
            return MD_NOMEM;
        }
        spread->slots[spread->n_slots++] = made;
    }
    return MD_OK;
}

/* Behind the others of its pane. */
static md_rc list_segment(md_window *w, md_segment s, const md_column *keys) {
    (void)keys;
    md_spread *spread = w->spread;
    if (!md_grow(&w->segments, &w->segments_capacity, w->n_segments + 1, sizeof *w->segments)) return MD_NOMEM;
    if (!s.pane->touched) {
        if (!md_grow(&spread->shares, &spread->shares_capacity, w->n_touched + 1, sizeof *spread->shares))
            return MD_NOMEM;
        int64_t number = w->n_touched;
        md_rc rc = md_pane_touch(w, s.pane);
        if (rc != MD_OK) return rc;
        s.pane->share = number;
        spread->shares[number] = (share){.pane = s.pane, .first = -1, .last = -1};
        /* What can be foreseen is allocated here: threads that allocate have heaps of their own, which give
         * memory back to the system and fetch it again. */
        rc = md_table_reserve(w->plan, &s.pane->table, s.pane->keys->capacity);
        if (rc != MD_OK) return rc;
    }
    share *mine = &spread->shares[s.pane->share];
    s.next = -1;
    if (mine->last >= 0) w->segments[mine->last].next = w->n_segments;
    else mine->first = w->n_segments;
    mine->last = w->n_segments;
    mine->rows += s.n;
    w->segments[w->n_segments++] = s;
    return MD_OK;
}

/* Many rows first: whoever takes the last share then has little to do. */
static int by_rows(const void *a, const void *b) {
    const share *x = a, *y = b;
    if (x->rows != y->rows) return x->rows < y->rows ? 1 : -1;
    return x->first < y->first ? -1 : x->first > y->first;
}

md_rc md_window_spread(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, int32_t n_slots,
                      int64_t *largest, md_error *err) {
    int64_t n;
    if (w->stage == MD_COMBINE) return md_fail(err, MD_BADARG, "partial states are not spread");
    md_rc rc = md_window_views(w, schema, array, &n, err);
    if (rc == MD_OK) rc = md_window_check_rows(w, n, err);
    if (rc != MD_OK) return rc;
    rc = make_slots(w, n_slots);
    if (rc == MD_OK) rc = md_window_segments(w, w->views, n, list_segment);
    if (rc != MD_OK) {
        md_touched_settle(w, false);
        return md_nomem(err);
    }
    md_spread *spread = w->spread;
    spread->n_shares = w->n_touched;
    spread->rows = n;
    spread->mapped = spread->filled = 0;
    spread->failed = MD_OK;
    if (spread->n_shares > 1) qsort(spread->shares, (size_t)spread->n_shares, sizeof *spread->shares, by_rows);
    *largest = spread->n_shares > 0 ? spread->shares[0].rows : 0;
    return MD_OK;
}

static md_rc map_share(md_window *w, const share *mine, slot *slot) {
    md_rc rc = MD_OK;
    for (int64_t k = mine->first; rc == MD_OK && k >= 0; k = w->segments[k].next)
        rc = md_segment_map(w, w->segments[k], w->views + 1);
    if (rc == MD_OK) rc = md_pane_nulls(w, mine->pane, w->views);
    for (int64_t k = mine->first; rc == MD_OK && k >= 0; k = w->segments[k].next)
        rc = md_segment_room(w, w->segments[k], w->views, slot->distinct);
    return rc;
}

void md_window_spread_map(md_window *w, int32_t place) {
    md_spread *spread = w->spread;
    for (;;) {
        int64_t next = __atomic_fetch_add(&spread->mapped, 1, __ATOMIC_RELAXED);
        if (next >= spread->n_shares || __atomic_load_n(&spread->failed, __ATOMIC_RELAXED) != MD_OK) return;
        md_rc rc = map_share(w, &spread->shares[next], &spread->slots[place]);
        if (rc != MD_OK) __atomic_store_n(&spread->failed, (int)rc, __ATOMIC_RELAXED);
    }
}

bool md_window_spread_mapped(const md_window *w) {
    return w->spread->failed == MD_OK && w->spread->mapped >= w->spread->n_shares;
}

void md_window_spread_fill(md_window *w, int32_t place) {
    md_spread *spread = w->spread;
    for (;;) {
        int64_t next = __atomic_fetch_add(&spread->filled, 1, __ATOMIC_RELAXED);
        if (next >= spread->n_shares) return;
        const share *mine = &spread->shares[next];
        for (int64_t k = mine->first; k >= 0; k = w->segments[k].next)
            md_segment_fill(w, w->segments[k], w->views, spread->slots[place].scratch);
    }
}

md_rc md_window_spread_end(md_window *w, md_error *err) {
    md_spread *spread = w->spread;
    bool keep = spread->filled >= spread->n_shares && spread->failed == MD_OK;
    md_touched_settle(w, keep);
    if (keep) w->taken += spread->rows;
    spread->n_shares = 0;
    if (spread->failed == MD_BADARG) return md_fail(err, MD_BADARG, "a decimal that is not of 16 bytes");
    if (spread->failed != MD_OK) return md_fail(err, (md_rc)spread->failed, "out of memory");
    return MD_OK;
}
