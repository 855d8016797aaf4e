#include "window.h"

#include "kernels.h"
#include "md_alloc.h"
#include "window_private.h"

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

/* ---- the transaction of an add ---- */

md_rc md_pane_touch(md_window *w, md_pane *pane) {
    if (pane->touched) return MD_OK;
    if (!md_grow(&w->touched, &w->touched_capacity, w->n_touched + 1, sizeof *w->touched)) return MD_NOMEM;
    w->touched[w->n_touched++] = pane;
    pane->touched = true;
    pane->mark = pane->keys->count;
    for (int32_t d = 0; d < w->plan->n_distinct; d++) pane->set_marks[d] = pane->sets[d]->keys->count;
    return MD_OK;
}

md_rc md_pane_room(md_window *w, md_pane *pane, int64_t before) {
    md_rc rc = md_table_reserve(w->plan, &pane->table, pane->keys->capacity);
    if (rc == MD_OK) md_table_clear(w->plan, &pane->table, before, pane->keys->count);
    return rc;
}

void md_touched_settle(md_window *w, bool keep) {
    for (int64_t i = 0; i < w->n_touched; i++) {
        md_pane *pane = w->touched[i];
        pane->touched = false;
        if (keep) continue;
        md_keys_truncate(pane->keys, pane->mark);
        for (int32_t d = 0; d < w->plan->n_distinct; d++) md_keys_truncate(pane->sets[d]->keys, pane->set_marks[d]);
    }
    w->n_touched = 0;
    int64_t kept = 0;
    for (int64_t i = 0; !keep && i < w->n_panes; i++) {
        if (w->panes[i]->rows > 0) w->panes[kept++] = w->panes[i];
        else md_pane_retire(w, w->panes[i]); /* made by this add */
    }
    if (!keep) {
        w->n_panes = kept;
        w->last = NULL;
    }
}

static md_rc add_segment(md_window *w, md_segment s, const md_column *keys) {
    if (!md_grow(&w->segments, &w->segments_capacity, w->n_segments + 1, sizeof *w->segments)) return MD_NOMEM;
    md_rc rc = md_pane_touch(w, s.pane);
    if (rc != MD_OK) return rc;
    int64_t before = s.pane->keys->count;
    rc = md_keys_map(s.pane->keys, keys, s.mixed ? w->rows : NULL, s.mixed ? s.at : s.start, s.n, w->taken, true,
                     w->ids + s.at);
    if (rc == MD_OK) rc = md_pane_room(w, s.pane, before);
    if (rc == MD_OK) w->segments[w->n_segments++] = s;
    return rc;
}

/* A chunk whose rows lie in several panes: lists of rows per pane, in order of first appearance. */
static md_rc split_chunk(md_window *w, const md_column *time, const md_column *keys, int64_t start, int64_t n) {
    md_pane *panes[MD_CHUNK];
    int32_t which[MD_CHUNK], counts[MD_CHUNK + 1];
    int32_t n_panes = 0, current = 0;
    int64_t low = 0, high = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = md_column_i64(time, start + i);
        if (i == 0 || t < low || t >= high) {
            md_pane *pane;
            md_pane_bounds(w, t, &low, &high);
            md_rc rc = md_pane_open(w, low, high, &pane);
            if (rc != MD_OK) return rc;
            if (pane->segment >= n_panes || panes[pane->segment] != pane) {
                counts[n_panes] = 0;
                pane->segment = n_panes;
                panes[n_panes++] = pane;
            }
            current = pane->segment;
        }
        which[i] = current;
        counts[current]++;
    }
    int32_t at = 0;
    for (int32_t p = 0; p < n_panes; p++) {
        int32_t count = counts[p];
        counts[p] = at;
        at += count;
    }
    for (int64_t i = 0; i < n; i++) w->rows[start + counts[which[i]]++] = (uint32_t)(start + i);
    int32_t from = 0;
    for (int32_t p = 0; p < n_panes; p++) {
        md_segment s = {.pane = panes[p], .start = start, .at = start + from, .n = counts[p] - from, .mixed = true};
        from = counts[p];
        md_rc rc = add_segment(w, s, keys);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

static md_rc check_times(const md_window *w, const md_column *time, int64_t n, md_error *err) {
    int64_t low = w->boundary > -MD_TIME_LIMIT ? w->boundary : -MD_TIME_LIMIT;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = md_column_i64(time, i);
        if (t < -MD_TIME_LIMIT || t >= MD_TIME_LIMIT)
            return md_fail(err, MD_BADARG, "row %lld: time %lld us is out of range", (long long)i, (long long)t);
        if (t < low)
            return md_fail(err, MD_BADARG, "row %lld: time %lld us is below the boundary %lld us", (long long)i,
                           (long long)t, (long long)w->boundary);
    }
    return MD_OK;
}

/* First half of an add: panes, groups, sets and room for all rows. All that can fail. */
static md_rc prepare_rows(md_window *w, const md_column *views, int64_t n) {
    const md_column *keys = views + 1, *inputs = views + 1 + w->n_keys;
    for (int64_t start = 0; start < n; start += MD_CHUNK) {
        int64_t m = n - start < MD_CHUNK ? n - start : MD_CHUNK, low, high;
        md_pane_bounds(w, md_column_i64(&views[0], start), &low, &high);
        md_rc rc;
        if (md_all_within(views[0].values + 8 * start, m, low, high)) {
            md_segment s = {.start = start, .at = start, .n = m};
            rc = md_pane_open(w, low, high, &s.pane);
            if (rc == MD_OK) rc = add_segment(w, s, keys);
        } else {
            rc = split_chunk(w, &views[0], keys, start, m);
        }
        if (rc != MD_OK) return rc;
    }
    for (int32_t i = 0; i < w->plan->n_inputs; i++) {
        const md_plan_input *in = &w->plan->inputs[i];
        for (int64_t k = 0; in->distinct >= 0 && k < w->n_segments; k++) {
            md_segment s = w->segments[k];
            md_rc rc = md_distinct_add(s.pane->sets[in->distinct], w->ids + s.at, &inputs[i],
                                       s.mixed ? w->rows + s.at : NULL, s.start, s.n, w->distinct_scratch);
            if (rc != MD_OK) return rc;
        }
        for (int64_t k = 0; inputs[i].validity != NULL && k < w->n_touched; k++) {
            md_rc rc = md_table_split(w->plan, &w->touched[k]->table, i, w->touched[k]->keys->count);
            if (rc != MD_OK) return rc;
        }
    }
    for (int64_t k = 0; k < w->n_segments; k++) {
        md_segment s = w->segments[k];
        md_rc rc = md_table_room(w->plan, &s.pane->table, w->ids + s.at, inputs, &views[0],
                                 s.mixed ? w->rows + s.at : NULL, s.start, s.n);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

static md_rc add_rows(md_window *w, const md_column *views, int64_t n, md_error *err) {
    int64_t low = w->boundary > -MD_TIME_LIMIT ? w->boundary : -MD_TIME_LIMIT;
    if (md_column_nulls(&views[0]) != 0) return md_fail(err, MD_BADARG, "a time is null");
    md_rc rc = low < MD_TIME_LIMIT && md_all_within(views[0].values, n, low, MD_TIME_LIMIT) ? MD_OK : MD_BADARG;
    if (rc != MD_OK && (rc = check_times(w, &views[0], n, err)) != MD_OK) return rc;
    if (n > UINT32_MAX) return md_fail(err, MD_BADARG, "more than 2^32 rows at once");
    int64_t capacity = w->rows_capacity;
    if (!md_grow(&w->ids, &capacity, n, sizeof *w->ids)) return md_nomem(err);
    if (!md_grow(&w->rows, &w->rows_capacity, n, sizeof *w->rows)) return md_nomem(err);
    w->n_segments = 0;
    rc = prepare_rows(w, views, n);
    md_touched_settle(w, rc == MD_OK);
    if (rc == MD_BADARG) return md_fail(err, rc, "a decimal that is not of 16 bytes");
    if (rc != MD_OK) return md_fail(err, rc, "out of memory");
    for (int64_t k = 0; k < w->n_segments; k++) {
        md_segment s = w->segments[k];
        md_accumulate(w->plan, &s.pane->table, w->ids + s.at, views + 1 + w->n_keys, &views[0],
                      s.mixed ? w->rows + s.at : NULL, s.start, s.n, w->n_keys == 0, w->scratch);
        s.pane->rows += s.n;
    }
    w->taken += n;
    return MD_OK;
}

static md_rc check_type(const md_column *view, md_type type, int32_t column, md_error *err) {
    if (view->type == type) return MD_OK;
    return md_fail(err, MD_BADARG, "column %d is of type '%c', expected '%c'", column, (char)view->type, (char)type);
}

md_rc md_window_add(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err) {
    const md_plan *plan = w->plan;
    bool states = w->stage == MD_COMBINE;
    int32_t n_before = (states ? 2 : 1), n_after = states ? plan->n_state : plan->n_inputs;
    int64_t n;
    md_rc rc = md_columns_view(schema, array, n_before + w->n_keys + n_after, w->views, &n, err);
    for (int32_t c = 0; rc == MD_OK && c < n_before + w->n_keys + n_after; c++) {
        int32_t k = c - n_before;
        md_type type = k < 0 ? MD_I64
                       : k < w->n_keys ? w->key_types[k]
                       : states ? plan->state[k - w->n_keys].type : plan->inputs[k - w->n_keys].type;
        rc = check_type(&w->views[c], type, c, err);
        if (w->views[c].validity != NULL && md_column_nulls(&w->views[c]) == 0) w->views[c].validity = NULL;
    }
    if (rc != MD_OK || n == 0) return rc;
    return states ? md_window_add_states(w, w->views, n, err) : add_rows(w, w->views, n, err);
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
    if (rc == MD_OK) rc = md_rows_new(3 + c->n_keys, &w->failed);
    bool partial = c->stage == MD_PARTIAL;
    if (rc == MD_OK) rc = md_rows_new(2 + c->n_keys + (partial ? w->plan->n_state : c->n_aggregates), &w->shared);
    if (rc != MD_OK) return rc;
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
        md_function f = w->plan->aggregates[g].function;
        snprintf(name, sizeof name, "a%d", g);
        md_rows_define(w->shared, 2 + c->n_keys + g, format, name, f != MD_COUNT && f != MD_COUNT_DISTINCT && f != MD_APPROX_DISTINCT);
    }
    return MD_OK;
}

md_rc md_window_new(const md_window_config *c, md_window **out, md_error *err) {
    if (c->advance_us < 1 || c->advance_us > c->size_us || c->size_us > MD_SIZE_LIMIT)
        return md_fail(err, MD_BADARG, "advance %lld us, size %lld us: 1 <= advance <= size <= 2^60",
                       (long long)c->advance_us, (long long)c->size_us);
    if (c->n_keys < 0 || c->n_keys > MD_KEYS_COLUMNS_MAX)
        return md_fail(err, MD_BADARG, "%d key columns, at most %d", c->n_keys, MD_KEYS_COLUMNS_MAX);
    for (int32_t k = 0; k < c->n_keys; k++)
        if (c->keys[k] == 0 || strchr("lLgbuz", (char)c->keys[k]) == NULL)
            return md_fail(err, MD_BADARG, "key %d is not of a native type", k);
    md_window *w = md_calloc(1, sizeof *w);
    if (w == NULL) return md_nomem(err);
    w->size = c->size_us;
    w->advance = c->advance_us;
    w->stage = c->stage;
    w->seed = c->seed;
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
    if (w->plan != NULL) {
        for (int64_t i = 0; i < w->n_panes; i++) pane_free(w, w->panes[i]);
        for (int32_t i = 0; i < w->n_spare; i++) pane_free(w, w->spare[i]);
        md_table_free(w->plan, &w->incoming);
        md_slide_free(w);
        md_early_free(w);
    }
    for (int64_t i = w->first_ready; i < w->n_ready; i++) {
        md_schema_release(&w->ready[i].schema);
        md_array_release(&w->ready[i].array);
    }
    md_rows_free(w->shared);
    md_rows_free(w->failed);
    void *blocks[] = {w->panes, w->views, w->key_types, w->ids, w->rows, w->segments, w->touched, w->scratch,
                      w->distinct_scratch, w->ready, w->valid, w->words, w->order};
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

int64_t md_window_taken(const md_window *w) { return w->taken; }
int64_t md_window_boundary(const md_window *w) { return w->boundary; }

size_t md_window_nbytes(const md_window *w) {
    size_t n = sizeof *w + sizeof *w->scratch + (w->distinct_scratch != NULL ? sizeof *w->distinct_scratch : 0);
    for (int64_t i = 0; i < w->n_panes; i++) n += pane_nbytes(w, w->panes[i]);
    for (int32_t i = 0; i < w->n_spare; i++) n += pane_nbytes(w, w->spare[i]);
    n += (size_t)w->rows_capacity * 8 + (size_t)w->segments_capacity * sizeof *w->segments;
    n += (size_t)w->valid_capacity * 13 + md_rows_nbytes(w->shared) + md_rows_nbytes(w->failed);
    return n + md_table_nbytes(w->plan, &w->incoming) + md_slide_nbytes(w) + md_early_nbytes(w);
}
