#include "window/window.h"

#include "base/md_alloc.h"
#include "window/window_private.h"

bool md_grow(void *block_pointer, int64_t *capacity, int64_t count, size_t element) {
    if (count <= *capacity) return true;
    int64_t wanted = count + count / 2 + 16;
    size_t size;
    void *block;
    if (!md_mul_size((size_t)wanted, element, &size)) return false;
    memcpy(&block, block_pointer, sizeof block);
    block = md_realloc(block, size);
    if (block == NULL) return false;
    memcpy(block_pointer, &block, sizeof block);
    *capacity = wanted;
    return true;
}

/* ---- panes ---- */

static void pane_free(const md_window *w, md_pane *pane) {
    if (pane == NULL) return;
    md_keys_free(pane->keys);
    md_table_free(w->plan, &pane->table);
    for (int32_t d = 0; pane->sets != NULL && d < w->plan->n_distinct; d++) md_distinct_free(pane->sets[d]);
    md_free(pane->sets);
    md_free(pane->set_marks);
    md_undo_free(w->plan, &pane->undo);
    md_free(pane->marks.epochs);
    md_free(pane->marks.gone);
    md_free(pane);
}

static md_rc pane_new(md_window *w, md_pane **out) {
    md_pane *pane = md_calloc(1, sizeof *pane);
    if (pane == NULL) return MD_NOMEM;
    md_rc rc = md_keys_new(w->key_types, w->n_keys, w->seed, &pane->keys);
    if (rc == MD_OK) rc = md_table_init(w->plan, &pane->table);
    if (rc == MD_OK && w->plan->n_distinct > 0) {
        pane->sets = md_calloc((size_t)w->plan->n_distinct, sizeof *pane->sets);
        pane->set_marks = md_calloc((size_t)w->plan->n_distinct, sizeof *pane->set_marks);
        if (pane->sets == NULL || pane->set_marks == NULL) rc = MD_NOMEM;
    }
    for (int32_t i = 0; rc == MD_OK && i < w->plan->n_inputs; i++) {
        int32_t d = w->plan->inputs[i].distinct;
        if (d >= 0) rc = md_distinct_new(w->plan->inputs[i].type, w->seed + 1, &pane->sets[d]);
    }
    if (rc != MD_OK) {
        pane_free(w, pane);
        return rc;
    }
    *out = pane;
    return MD_OK;
}

static size_t pane_nbytes(const md_window *w, const md_pane *pane) {
    size_t n = sizeof *pane + md_keys_nbytes(pane->keys) + md_table_nbytes(w->plan, &pane->table);
    n += (size_t)pane->marks.capacity + (size_t)pane->marks.gone_words * sizeof *pane->marks.gone;
    for (int32_t d = 0; d < w->plan->n_distinct; d++) n += md_keys_nbytes(pane->sets[d]->keys);
    return n;
}

void md_pane_retire(md_window *w, md_pane *pane) {
    if (w->last == pane) w->last = NULL;
    if (w->n_spare >= (pane_nbytes(w, pane) > 1 << 20 ? 2 : MD_FREE_PANES)) {
        pane_free(w, pane);
        return;
    }
    if (w->plan->n_objects > 0) md_table_clear(w->plan, &pane->table, 0, pane->table.capacity);
    md_keys_reset(pane->keys);
    for (int32_t d = 0; d < w->plan->n_distinct; d++) md_keys_reset(pane->sets[d]->keys);
    for (int32_t i = 0; i < w->plan->n_inputs; i++) {
        int32_t n = w->plan->inputs[i].n;
        if (n < 0) continue;
        md_free(pane->table.columns[n]);
        pane->table.columns[n] = NULL; /* no null so far, again */
    }
    md_undo_free(w->plan, &pane->undo);
    pane->rows = 0;
    pane->touched = false;
    pane->marks.n = 0;
    if (pane->marks.n_gone > 0) memset(pane->marks.gone, 0, (size_t)pane->marks.gone_words * sizeof *pane->marks.gone);
    pane->marks.n_gone = 0;
    w->spare[w->n_spare++] = pane;
}

void md_panes_drop(md_window *w, int64_t n) {
    if (n == 0) return;
    for (int64_t i = 0; i < n; i++) md_pane_retire(w, w->panes[i]);
    w->n_panes -= n;
    memmove(w->panes, w->panes + n, (size_t)w->n_panes * sizeof *w->panes);
}

/* Number of panes that start before t. */
static int64_t panes_before(const md_window *w, int64_t t) {
    int64_t low = 0, high = w->n_panes;
    if (high > 0 && w->panes[high - 1]->start < t) return high; /* the usual case */
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (w->panes[middle]->start < t) low = middle + 1;
        else high = middle;
    }
    return low;
}

md_rc md_pane_open(md_window *w, int64_t start, int64_t end, md_pane **out) {
    if (w->last != NULL && w->last->start == start) {
        *out = w->last;
        return MD_OK;
    }
    int64_t at = panes_before(w, start);
    if (at < w->n_panes && w->panes[at]->start == start) {
        *out = w->last = w->panes[at];
        return MD_OK;
    }
    if (!md_grow(&w->panes, &w->panes_capacity, w->n_panes + 1, sizeof *w->panes)) return MD_NOMEM;
    md_pane *pane;
    if (w->n_spare > 0) {
        pane = w->spare[--w->n_spare];
    } else {
        md_rc rc = pane_new(w, &pane);
        if (rc != MD_OK) return rc;
    }
    pane->start = start;
    pane->end = end;
    pane->number = ++w->panes_opened;
    memmove(w->panes + at + 1, w->panes + at, (size_t)(w->n_panes - at) * sizeof *w->panes);
    w->panes[at] = pane;
    w->n_panes++;
    *out = w->last = pane;
    /* The last large pane tells how large this one will be. */
    return w->groups_hint > 0 ? md_keys_reserve(pane->keys, w->groups_hint + w->groups_hint / 16) : MD_OK;
}

void md_pane_bounds(const md_window *w, int64_t t, int64_t *start, int64_t *end) {
    int64_t size = w->size, advance = w->advance;
    if (w->stage == MD_COMBINE || advance == size) {
        *start = md_floor_to(t, size);
        *end = *start + size;
        return;
    }
    /* Cuts: k advance, k advance + size, k size. */
    int64_t a = md_floor_to(t, advance), b = md_floor_to(t - size, advance) + size, c = md_floor_to(t, size);
    int64_t low = a > b ? a : b, high = a + advance < b + advance ? a + advance : b + advance;
    *start = low > c ? low : c;
    *end = high < c + size ? high : c + size;
}

/* ---- making, asking ---- */

static md_rc make_parts(md_window *w, const md_window_config *c) {
    size_t n_views = 2 + (size_t)c->n_keys + (size_t)c->n_inputs + (size_t)w->plan->n_state;
    w->views = md_calloc(n_views, sizeof *w->views);
    w->key_types = md_malloc((size_t)c->n_keys * sizeof *w->key_types);
    w->scratch = md_malloc(sizeof *w->scratch);
    if (w->views == NULL || w->key_types == NULL || w->scratch == NULL) return MD_NOMEM;
    if (c->n_keys > 0) memcpy(w->key_types, c->keys, (size_t)c->n_keys * sizeof *c->keys);
    w->n_keys = c->n_keys;
    if (w->plan->n_distinct > 0 && (w->distinct_scratch = md_malloc(sizeof *w->distinct_scratch)) == NULL)
        return MD_NOMEM;
    md_rc rc = md_table_init(w->plan, &w->incoming);
    if (rc == MD_OK) rc = md_rows_new(3 + c->n_keys + c->positions, &w->failed);
    bool partial = c->stage == MD_PARTIAL;
    int32_t width = 2 + c->n_keys + (partial ? w->plan->n_state : c->n_aggregates);
    if (rc == MD_OK) rc = md_rows_new(width + c->positions, &w->shared);
    if (rc != MD_OK) return rc;
    if (c->positions) {
        md_rows_define(w->shared, width, "l", "first", false);
        md_rows_define(w->failed, 3 + c->n_keys, "l", "first", false);
    }
    md_define_keys(w->failed, 2, w);
    md_define_keys(w->shared, 2, w);
    for (int32_t i = 0; i < 2; i++) {
        md_rows_define(w->shared, i, "tsu:UTC", i == 0 ? "window_start" : "window_end", false);
        md_rows_define(w->failed, i, "tsu:UTC", i == 0 ? "window_start" : "window_end", false);
    }
    md_rows_define(w->failed, 2 + c->n_keys, "l", "aggregate", false);
    if (partial) md_state_define(w->plan, w->shared, 2 + c->n_keys);
    for (int32_t g = 0; !partial && g < c->n_aggregates; g++) {
        char name[24], format[2] = {(char)md_finish_type(w->plan, g), 0};
        snprintf(name, sizeof name, "a%d", g);
        md_rows_define(w->shared, 2 + c->n_keys + g, format, name, !md_kind_of(w->plan, g)->never_null);
    }
    return MD_OK;
}

md_rc md_window_new(const md_window_config *c, md_window **out, md_error *err) {
    if (c->advance_us < 1 || c->advance_us > c->size_us || c->size_us > MD_SIZE_LIMIT)
        return md_fail(err, MD_BADARG, "advance %lld us, size %lld us: 1 <= advance <= size <= 2^60",
                       (long long)c->advance_us, (long long)c->size_us);
    if (c->n_keys < 0 || c->n_keys > MD_KEYS_COLUMNS_MAX)
        return md_fail(err, MD_BADARG, "%d key columns, at most %d", c->n_keys, MD_KEYS_COLUMNS_MAX);
    if (c->positions && c->stage == MD_COMBINE) return md_fail(err, MD_BADARG, "partial states have no positions");
    for (int32_t k = 0; k < c->n_keys; k++)
        if (c->keys[k] == 0 || strchr("lLgbuz", (char)c->keys[k]) == NULL)
            return md_fail(err, MD_BADARG, "key %d is not of a native type", k);
    md_window *w = md_calloc(1, sizeof *w);
    if (w == NULL) return md_nomem(err);
    w->size = c->size_us;
    w->advance = c->advance_us;
    w->stage = c->stage;
    w->seed = c->seed;
    w->positions = c->positions;
    w->boundary = INT64_MIN;
    md_rc rc = md_plan_new(c->inputs, c->n_inputs, c->aggregates, c->n_aggregates, &w->plan, err);
    if (rc == MD_OK && (rc = make_parts(w, c)) != MD_OK) md_fail(err, rc, "out of memory");
    if (rc != MD_OK) {
        md_window_free(w);
        return rc;
    }
    *out = w;
    return MD_OK;
}

void md_window_free(md_window *w) {
    if (w == NULL) return;
    if (w->snapshot != NULL) md_snapshot_abandon(w->snapshot);
    if (w->plan != NULL) {
        for (int64_t i = 0; i < w->n_panes; i++) pane_free(w, w->panes[i]);
        for (int32_t i = 0; i < w->n_spare; i++) pane_free(w, w->spare[i]);
        md_table_free(w->plan, &w->incoming);
        md_slide_free(w);
        md_early_free(w);
        md_spread_free(w->spread);
    }
    for (int64_t i = w->first_ready; i < w->n_ready; i++) {
        md_schema_release(&w->ready[i].schema);
        md_array_release(&w->ready[i].array);
    }
    md_changes_free(w->changes);
    md_rows_free(w->shared);
    md_rows_free(w->failed);
    void *blocks[] = {w->panes, w->views, w->key_types, w->ids, w->rows, w->segments, w->touched, w->scratch,
                      w->distinct_scratch, w->saved, w->ready, w->valid, w->words, w->order};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) md_free(blocks[i]);
    md_plan_free(w->plan);
    md_free(w);
}

int64_t md_window_next_end(const md_window *w) {
    if (w->boundary < -MD_TIME_LIMIT) return INT64_MIN;
    if (w->boundary > MD_TIME_LIMIT) return INT64_MAX;
    return md_floor_to(w->boundary - w->size, w->advance) + w->advance + w->size;
}

bool md_window_oldest_open(const md_window *w, int64_t *start) {
    if (w->n_panes == 0) return false;
    int64_t first = w->panes[0]->start;
    if (w->stage != MD_COMBINE) first = md_floor_to(first - w->size, w->advance) + w->advance;
    int64_t next = md_window_next_end(w); /* windows before it are closed, though their panes may stay */
    if (next != INT64_MIN && next != INT64_MAX && first < next - w->size) first = next - w->size;
    *start = first;
    return true;
}

int64_t md_window_rows_open(const md_window *w) {
    int64_t rows = 0;
    for (int64_t i = 0; i < w->n_panes; i++) rows += w->panes[i]->rows;
    return rows;
}

int64_t md_window_groups_open(const md_window *w) {
    int64_t groups = 0;
    for (int64_t i = 0; i < w->n_panes; i++) groups += w->panes[i]->keys->count;
    return groups;
}

int64_t md_window_taken(const md_window *w) { return w->taken; }
int64_t md_window_boundary(const md_window *w) { return w->boundary; }

void md_window_trim(md_window *w) {
    while (w->n_spare > 0) pane_free(w, w->spare[--w->n_spare]);
    md_slide_forget(w);
    md_slide_free(w); /* made again of the panes, as after a restore */
}

size_t md_window_nbytes(const md_window *w) {
    size_t n = sizeof *w + sizeof *w->scratch + (w->distinct_scratch != NULL ? sizeof *w->distinct_scratch : 0);
    for (int64_t i = 0; i < w->n_panes; i++) n += pane_nbytes(w, w->panes[i]);
    for (int32_t i = 0; i < w->n_spare; i++) n += pane_nbytes(w, w->spare[i]);
    n += (size_t)w->rows_capacity * 8 + (size_t)w->segments_capacity * sizeof *w->segments;
    n += (size_t)w->valid_capacity * 13 + md_rows_nbytes(w->shared) + md_rows_nbytes(w->failed);
    return n + md_table_nbytes(w->plan, &w->incoming) + md_slide_nbytes(w) + md_early_nbytes(w) + md_changes_nbytes(w->changes);
}
