/* Early results: what open windows would give if they closed now, for the groups that got rows since the last
 * time. Nothing of the windows changes.
 *
 *   told[]   by pane start -> rows[]   how many rows each group of the pane had when it was told of
 *
 * A group of a window has changed when it has in any of the window's panes. Panes are merged in order of time,
 * so sums of floats may differ in their last bits from those of the closed sliding window. */
#include "base/md_alloc.h"
#include "window/window.h"
#include "window/window_private.h"

typedef struct md_told {
    int64_t start, n, capacity;
    int64_t *rows;
} md_told;

struct md_early {
    md_told *told; /* as many as there are panes while a call runs */
    int64_t n_told, told_capacity;
    md_keys *keys; /* of the window under way, where it has several panes */
    md_table table;
    md_distinct **sets;
    uint8_t *changed; /* per group of it */
    int64_t *starts;  /* with positions: the start of the pane in which the group appeared */
    int64_t changed_capacity, starts_capacity;
    int32_t *ids, *order;
    int64_t ids_capacity, order_capacity;
};

void md_early_free(md_window *w) {
    md_early *e = w->early;
    if (e == NULL) return;
    for (int64_t i = 0; i < e->n_told; i++) md_free(e->told[i].rows);
    for (int32_t d = 0; e->sets != NULL && d < w->plan->n_distinct; d++) md_distinct_free(e->sets[d]);
    md_keys_free(e->keys);
    md_table_free(w->plan, &e->table);
    void *blocks[] = {e->told, e->sets, e->changed, e->starts, e->ids, e->order, e};
    w->early = NULL;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) md_free(blocks[i]);
}

size_t md_early_nbytes(const md_window *w) {
    const md_early *e = w->early;
    if (e == NULL) return 0;
    size_t n = sizeof *e + (size_t)e->told_capacity * sizeof *e->told + (size_t)e->changed_capacity;
    n += (size_t)e->starts_capacity * sizeof *e->starts;
    for (int64_t i = 0; i < e->n_told; i++) n += (size_t)e->told[i].capacity * sizeof *e->told[i].rows;
    for (int32_t d = 0; e->sets != NULL && d < w->plan->n_distinct; d++)
        if (e->sets[d] != NULL) n += md_keys_nbytes(e->sets[d]->keys);
    n += (size_t)(e->ids_capacity + e->order_capacity) * sizeof *e->ids;
    if (e->keys != NULL) n += md_keys_nbytes(e->keys) + md_table_nbytes(w->plan, &e->table);
    return n;
}

static md_rc early_make(md_window *w) {
    const md_plan *plan = w->plan;
    md_early *e = w->early;
    if (e == NULL && (e = w->early = md_calloc(1, sizeof *e)) == NULL) return MD_NOMEM;
    md_rc rc = e->keys != NULL ? MD_OK : md_keys_new(w->key_types, w->n_keys, w->seed + 4, &e->keys);
    if (rc == MD_OK && e->table.columns == NULL) rc = md_table_init(plan, &e->table);
    if (rc == MD_OK && e->sets == NULL && plan->n_distinct > 0) {
        e->sets = md_calloc((size_t)plan->n_distinct, sizeof *e->sets);
        if (e->sets == NULL) rc = MD_NOMEM;
    }
    for (int32_t i = 0; rc == MD_OK && i < plan->n_inputs; i++) {
        int32_t d = plan->inputs[i].distinct;
        if (d >= 0 && e->sets[d] == NULL) rc = md_distinct_new(plan->inputs[i].type, w->seed + 5, &e->sets[d]);
        if (rc == MD_OK && plan->inputs[i].n >= 0) rc = md_table_split(plan, &e->table, i, 0);
    }
    return rc;
}

/* One entry for each pane, in the same order, with room for its groups; those of panes that are gone go. */
static md_rc told_follow(md_window *w) {
    md_early *e = w->early;
    int64_t kept = 0;
    for (int64_t i = 0, p = 0; i < e->n_told; i++) {
        while (p < w->n_panes && w->panes[p]->start < e->told[i].start) p++;
        if (p < w->n_panes && w->panes[p]->start == e->told[i].start) e->told[kept++] = e->told[i];
        else md_free(e->told[i].rows);
    }
    e->n_told = kept;
    if (!md_grow(&e->told, &e->told_capacity, w->n_panes, sizeof *e->told)) return MD_NOMEM;
    for (int64_t p = 0; p < w->n_panes; p++) {
        if (p == e->n_told || e->told[p].start != w->panes[p]->start) {
            memmove(e->told + p + 1, e->told + p, (size_t)(e->n_told - p) * sizeof *e->told);
            e->told[p] = (md_told){.start = w->panes[p]->start};
            e->n_told++;
        }
        md_told *t = &e->told[p];
        if (!md_grow(&t->rows, &t->capacity, w->panes[p]->keys->count, sizeof *t->rows)) return MD_NOMEM;
    }
    return MD_OK;
}

MD_INLINE bool group_changed(const md_pane *pane, const md_told *t, int64_t k) {
    return k >= t->n || t->rows[k] != pane->table.columns[0][k].i;
}

static bool pane_changed(const md_pane *pane, const md_told *t) {
    for (int64_t k = 0; k < pane->keys->count; k++)
        if (group_changed(pane, t, k)) return true;
    return false;
}

static md_rc emit_changed(md_window *w, md_emission out, const uint8_t *changed) {
    md_early *e = w->early;
    if (!md_grow(&e->order, &e->order_capacity, out.keys->count, sizeof *e->order)) return MD_NOMEM;
    for (int64_t k = 0; k < out.keys->count; k++)
        if (changed[k]) e->order[out.n++] = (int32_t)k;
    out.key_order = out.table_order = e->order;
    return out.n > 0 ? md_emit(w, out) : MD_OK;
}

/* A window that is one pane. */
static md_rc early_pane(md_window *w, int64_t start, int64_t p) {
    md_early *e = w->early;
    const md_pane *pane = w->panes[p];
    if (!md_grow(&e->changed, &e->changed_capacity, pane->keys->count, 1)) return MD_NOMEM;
    for (int64_t k = 0; k < pane->keys->count; k++) e->changed[k] = group_changed(pane, &e->told[p], k);
    md_emission out = {.start = w->positions ? pane->start : start, .end = start + w->size, .keys = pane->keys,
                       .table = &pane->table, .sets = pane->sets, .first = pane->keys->first};
    return emit_changed(w, out, e->changed);
}

/* Merge a pane into the window under way. */
static md_rc early_add(md_window *w, int64_t p) {
    md_early *e = w->early;
    const md_pane *pane = w->panes[p];
    int64_t n = pane->keys->count, before = e->keys->count;
    if (!md_grow(&e->ids, &e->ids_capacity, n, sizeof *e->ids)) return MD_NOMEM;
    md_rc rc = md_keys_map_keys(e->keys, pane->keys, 0, n, e->ids);
    if (rc == MD_OK) rc = md_table_reserve(w->plan, &e->table, e->keys->capacity);
    if (rc == MD_OK && !md_grow(&e->changed, &e->changed_capacity, e->keys->count, 1)) rc = MD_NOMEM;
    if (rc == MD_OK && !md_grow(&e->starts, &e->starts_capacity, e->keys->count, sizeof *e->starts)) rc = MD_NOMEM;
    if (rc != MD_OK) return rc;
    md_table_clear(w->plan, &e->table, before, e->keys->count);
    memset(e->changed + before, 0, (size_t)(e->keys->count - before));
    for (int64_t k = before; k < e->keys->count; k++) e->starts[k] = pane->start;
    for (int64_t k = 0; k < n; k++) e->changed[e->ids[k]] |= group_changed(pane, &e->told[p], k);
    rc = md_merge(w->plan, &e->table, e->ids, &e->table, e->ids, &pane->table, NULL, n);
    for (int32_t d = 0; rc == MD_OK && d < w->plan->n_distinct; d++)
        rc = md_distinct_merge(e->sets[d], pane->sets[d], e->ids, NULL, w->distinct_scratch);
    return rc;
}

static md_rc early_panes(md_window *w, int64_t start, int64_t from, int64_t to) {
    md_early *e = w->early;
    md_rc rc = MD_OK;
    md_keys_reset(e->keys);
    for (int32_t d = 0; d < w->plan->n_distinct; d++) md_keys_reset(e->sets[d]->keys);
    for (int64_t p = from; rc == MD_OK && p < to; p++) rc = early_add(w, p);
    if (rc != MD_OK) return rc;
    md_emission out = {.start = start, .end = start + w->size, .keys = e->keys, .table = &e->table, .sets = e->sets,
                       .first = e->keys->first, .starts = w->positions ? e->starts : NULL};
    return emit_changed(w, out, e->changed);
}

/* All open windows that hold a changed group, by their end. */
static md_rc early_windows(md_window *w, const bool *changed) {
    int64_t size = w->size, advance = w->advance, next = md_window_next_end(w), start = INT64_MIN;
    if (next != INT64_MIN && next != INT64_MAX) start = next - size;
    md_rc rc = MD_OK;
    for (int64_t from = 0; rc == MD_OK && from < w->n_panes;) {
        int64_t first = md_floor_to(w->panes[from]->start - size, advance) + advance;
        if (start < first) start = first; /* no window before it holds this pane */
        if (w->panes[from]->start < start) {
            from++;
            continue;
        }
        int64_t to = from;
        bool any = false;
        for (; to < w->n_panes && w->panes[to]->start < start + size; to++) any |= changed[to];
        if (any) rc = to - from == 1 ? early_pane(w, start, from) : early_panes(w, start, from, to);
        start += advance;
    }
    return rc;
}

static void forget_output(md_window *w) {
    md_rows_clear(w->shared);
    for (int64_t i = w->first_ready; i < w->n_ready; i++) {
        md_schema_release(&w->ready[i].schema);
        md_array_release(&w->ready[i].array);
    }
    w->first_ready = w->n_ready = 0;
}

md_rc md_window_early(md_window *w, md_error *err) {
    if (w->stage != MD_WHOLE) return md_fail(err, MD_BADARG, "only whole windows give early results");
    if (w->first_ready != w->n_ready || w->shared->length > 0)
        return md_fail(err, MD_BADARG, "closed windows have not been taken yet");
    int64_t failed = w->failed->length;
    bool *changed = NULL;
    md_rc rc = early_make(w);
    if (rc == MD_OK) rc = told_follow(w);
    if (rc == MD_OK && (changed = md_malloc((size_t)w->n_panes * sizeof *changed)) == NULL) rc = MD_NOMEM;
    for (int64_t p = 0; rc == MD_OK && p < w->n_panes; p++) changed[p] = pane_changed(w->panes[p], &w->early->told[p]);
    if (rc == MD_OK) rc = early_windows(w, changed);
    if (rc == MD_OK) rc = md_window_flush(w);
    md_free(changed);
    w->failed->length = failed; /* a sum that doesn't fit yet fails when its window closes */
    if (rc != MD_OK) {
        forget_output(w);
        return md_fail(err, rc, "out of memory");
    }
    for (int64_t p = 0; p < w->n_panes; p++) {
        md_told *t = &w->early->told[p];
        t->n = w->panes[p]->keys->count;
        for (int64_t k = 0; k < t->n; k++) t->rows[k] = w->panes[p]->table.columns[0][k].i;
    }
    return MD_OK;
}
