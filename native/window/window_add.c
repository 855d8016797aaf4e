/* Rows into panes: groups, sets and room first, which may fail; then the values, which can't. */
#include "base/kernels.h"
#include "base/md_alloc.h"
#include "window/window.h"
#include "window/window_private.h"

/* ---- the transaction of an add ---- */

md_rc md_pane_touch(md_window *w, md_pane *pane) {
    if (pane->touched) return MD_OK;
    if (!md_grow(&w->touched, &w->touched_capacity, w->n_touched + 1, sizeof *w->touched)) return MD_NOMEM;
    if (w->feeding && md_feed_save(w, pane) != MD_OK) return MD_NOMEM;
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

md_rc md_segment_map(md_window *w, md_segment s, const md_column *keys) {
    int64_t before = s.pane->keys->count;
    md_rc rc = md_keys_map(s.pane->keys, keys, s.rows, s.rows != NULL ? 0 : s.start, s.n, w->taken, true, w->ids + s.at);
    return rc == MD_OK ? md_pane_room(w, s.pane, before) : rc;
}

static md_rc add_segment(md_window *w, md_segment s, const md_column *keys) {
    if (!md_grow(&w->segments, &w->segments_capacity, w->n_segments + 1, sizeof *w->segments)) return MD_NOMEM;
    md_rc rc = md_pane_touch(w, s.pane);
    if (rc == MD_OK) rc = md_segment_map(w, s, keys);
    if (rc == MD_OK) w->segments[w->n_segments++] = s;
    return rc;
}

/* n <= MD_CHUNK rows that lie in several panes, start + i or rows[i]: lists of rows per pane, in order of first
 * appearance. Their ids and the lists stand from `at` on. */
static md_rc split_chunk(md_window *w, const md_column *time, const md_column *keys, const uint32_t *rows,
                         int64_t start, int64_t at, int64_t n, md_segment_add *add) {
    md_pane *panes[MD_CHUNK];
    int32_t which[MD_CHUNK], counts[MD_CHUNK + 1];
    int32_t n_panes = 0, current = 0;
    int64_t low = 0, high = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = md_column_i64(time, rows != NULL ? (int64_t)rows[i] : start + i);
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
    int32_t before = 0;
    for (int32_t p = 0; p < n_panes; p++) {
        int32_t count = counts[p];
        counts[p] = before;
        before += count;
    }
    for (int64_t i = 0; i < n; i++) w->rows[at + counts[which[i]]++] = rows != NULL ? rows[i] : (uint32_t)(start + i);
    int32_t from = 0;
    for (int32_t p = 0; p < n_panes; p++) {
        md_segment s = {.pane = panes[p], .rows = w->rows + at + from, .start = start, .at = at + from,
                        .n = counts[p] - from};
        from = counts[p];
        md_rc rc = add(w, s, keys);
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

/* n <= MD_CHUNK rows, start + i or rows[i], whose times lie in [least, largest]. */
static md_rc add_chunk(md_window *w, const md_column *views, const uint32_t *rows, int64_t start, int64_t at,
                       int64_t n, int64_t least, int64_t largest, md_segment_add *add) {
    const md_column *keys = views + 1;
    int64_t low, high;
    md_pane_bounds(w, least, &low, &high);
    if (largest >= high) return split_chunk(w, &views[0], keys, rows, start, at, n, add);
    md_segment s = {.rows = rows, .start = start, .at = at, .n = n};
    md_rc rc = md_pane_open(w, low, high, &s.pane);
    return rc == MD_OK ? add(w, s, keys) : rc;
}

md_rc md_segment_room(md_window *w, md_segment s, const md_column *views, md_distinct_scratch *scratch) {
    const md_column *inputs = views + 1 + w->n_keys;
    for (int32_t i = 0; i < w->plan->n_inputs; i++) {
        int32_t d = w->plan->inputs[i].distinct;
        if (d < 0) continue;
        md_rc rc = md_distinct_add(s.pane->sets[d], w->ids + s.at, &inputs[i], s.rows, s.start, s.n, scratch);
        if (rc != MD_OK) return rc;
    }
    return md_table_room(w->plan, &s.pane->table, w->ids + s.at, inputs, &views[0], s.rows, s.start, s.n);
}

md_rc md_pane_nulls(md_window *w, md_pane *pane, const md_column *views) {
    for (int32_t i = 0; i < w->plan->n_inputs; i++) {
        if (views[1 + w->n_keys + i].validity == NULL) continue;
        md_rc rc = md_table_split(w->plan, &pane->table, i, pane->keys->count);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

/* Sets and room for all rows of the segments: after this nothing can fail. */
static md_rc make_room(md_window *w, const md_column *views) {
    for (int64_t k = 0; k < w->n_touched; k++) {
        md_rc rc = md_pane_nulls(w, w->touched[k], views);
        if (rc != MD_OK) return rc;
    }
    for (int64_t k = 0; k < w->n_segments; k++) {
        md_rc rc = md_segment_room(w, w->segments[k], views, w->distinct_scratch);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

md_rc md_window_segments(md_window *w, const md_column *views, int64_t n, md_segment_add *add) {
    for (int64_t start = 0; start < n; start += MD_CHUNK) {
        int64_t m = n - start < MD_CHUNK ? n - start : MD_CHUNK, low, high;
        const uint8_t *times = views[0].values + 8 * start;
        md_pane_bounds(w, md_column_i64(&views[0], start), &low, &high);
        bool one = md_all_within(times, m, low, high);
        md_rc rc = add_chunk(w, views, NULL, start, start, m, low, one ? low : high, add);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

/* Panes, groups, sets and room: all that can fail. */
static md_rc prepare_rows(md_window *w, const md_column *views, int64_t n) {
    md_rc rc = md_window_segments(w, views, n, add_segment);
    return rc == MD_OK ? make_room(w, views) : rc;
}

static md_rc prepare_one(md_window *w, const md_column *views, int64_t n, int64_t time) {
    for (int64_t start = 0; start < n; start += MD_CHUNK) {
        int64_t m = n - start < MD_CHUNK ? n - start : MD_CHUNK;
        md_rc rc = add_chunk(w, views, NULL, start, start, m, time, time, add_segment);
        if (rc != MD_OK) return rc;
    }
    return make_room(w, views);
}

static md_rc prepare_part(md_window *w, const md_column *views, const md_split *split, int32_t part) {
    int64_t at = 0;
    for (int64_t chunk = 0; chunk < md_split_chunks(split); chunk++) {
        int64_t n, least, largest;
        const uint32_t *rows = md_split_rows(split, part, chunk, &n);
        md_split_extent(split, chunk, &least, &largest);
        md_rc rc = n > 0 ? add_chunk(w, views, rows, chunk * MD_CHUNK, at, n, least, largest, add_segment) : MD_OK;
        if (rc != MD_OK) return rc;
        at += n;
    }
    return make_room(w, views);
}

void md_segment_fill(md_window *w, md_segment s, const md_column *views, md_scratch *scratch) {
    md_pane_keep(s.pane, w->ids + s.at, s.n);
    md_accumulate(w->plan, &s.pane->table, w->ids + s.at, views + 1 + w->n_keys, &views[0], s.rows, s.start, s.n,
                  w->n_keys == 0, scratch);
    s.pane->rows += s.n;
}

void md_window_accumulate(md_window *w, const md_column *views, int64_t n) {
    for (int64_t k = 0; k < w->n_segments; k++) md_segment_fill(w, w->segments[k], views, w->scratch);
    w->taken += n;
}

static bool times_fit(const md_window *w, const md_column *time, int64_t n, const md_split *split) {
    int64_t low = w->boundary > -MD_TIME_LIMIT ? w->boundary : -MD_TIME_LIMIT;
    if (low >= MD_TIME_LIMIT) return false;
    if (split == NULL) return md_all_within(time->values, n, low, MD_TIME_LIMIT);
    bool fit = true;
    for (int64_t chunk = 0; chunk < md_split_chunks(split); chunk++) {
        int64_t least, largest;
        md_split_extent(split, chunk, &least, &largest);
        fit &= least >= low && largest < MD_TIME_LIMIT;
    }
    return fit;
}

/* Times within what the window takes, unless the one pane of all is known, and room for the ids of n rows. */
static md_rc check_rows(md_window *w, const md_column *views, int64_t n, bool one, const md_split *split,
                        md_error *err) {
    if (!one && md_column_nulls(&views[0]) != 0) return md_fail(err, MD_BADARG, "a time is null");
    bool fit = one || times_fit(w, &views[0], n, split);
    md_rc rc = fit ? MD_OK : check_times(w, &views[0], n, err);
    if (rc != MD_OK) return rc;
    if (n > UINT32_MAX) return md_fail(err, MD_BADARG, "more than 2^32 rows at once");
    int64_t capacity = w->rows_capacity;
    if (!md_grow(&w->ids, &capacity, n, sizeof *w->ids)) return md_nomem(err);
    if (!md_grow(&w->rows, &w->rows_capacity, n, sizeof *w->rows)) return md_nomem(err);
    w->n_segments = 0;
    return MD_OK;
}

md_rc md_window_check_rows(md_window *w, int64_t n, md_error *err) {
    return check_rows(w, w->views, n, false, NULL, err);
}

/* The rows of a part of the split; without one, all. */
static md_rc prepare(md_window *w, const md_column *views, int64_t n, const int64_t *time, const md_split *split,
                     int32_t part, md_error *err) {
    md_rc rc = check_rows(w, views, n, time != NULL, split, err);
    if (rc != MD_OK) return rc;
    rc = time != NULL    ? prepare_one(w, views, n, *time)
         : split != NULL ? prepare_part(w, views, split, part)
                         : prepare_rows(w, views, n);
    if (rc == MD_BADARG) return md_fail(err, rc, "a decimal that is not of 16 bytes");
    return rc == MD_OK ? MD_OK : md_fail(err, rc, "out of memory");
}

md_rc md_window_prepare(md_window *w, const md_column *views, int64_t n, const int64_t *time, md_error *err) {
    return prepare(w, views, n, time, NULL, 0, err);
}

static md_rc add_rows(md_window *w, const md_column *views, int64_t n, const md_split *split, int32_t part,
                      md_error *err) {
    md_rc rc = prepare(w, views, n, NULL, split, part, err);
    md_touched_settle(w, rc == MD_OK);
    if (rc == MD_OK) md_window_accumulate(w, views, n);
    return rc;
}

md_rc md_window_check_type(const md_column *view, md_type type, int32_t column, md_error *err) {
    if (view->type == type) return MD_OK;
    return md_fail(err, MD_BADARG, "column %d is of type '%c', expected '%c'", column, (char)view->type, (char)type);
}

md_rc md_window_views(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t *n,
                      md_error *err) {
    const md_plan *plan = w->plan;
    bool states = w->stage == MD_COMBINE;
    int32_t n_before = (states ? 2 : 1), n_after = states ? plan->n_state : plan->n_inputs;
    md_rc rc = md_columns_view(schema, array, n_before + w->n_keys + n_after, w->views, n, err);
    for (int32_t c = 0; rc == MD_OK && c < n_before + w->n_keys + n_after; c++) {
        int32_t k = c - n_before;
        md_type type = k < 0 ? MD_I64
                       : k < w->n_keys ? w->key_types[k]
                       : states ? plan->state[k - w->n_keys].type : plan->inputs[k - w->n_keys].type;
        rc = md_window_check_type(&w->views[c], type, c, err);
        if (w->views[c].validity != NULL && md_column_nulls(&w->views[c]) == 0) w->views[c].validity = NULL;
    }
    return rc;
}

static md_rc add(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, const md_split *split,
                 int32_t part, md_error *err) {
    int64_t n;
    md_rc rc = md_window_views(w, schema, array, &n, err);
    if (rc != MD_OK || n == 0) return rc;
    return w->stage == MD_COMBINE ? md_window_add_states(w, w->views, n, err)
                                  : add_rows(w, w->views, n, split, part, err);
}

md_rc md_window_add(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err) {
    return add(w, schema, array, NULL, 0, err);
}

md_rc md_window_add_part(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array,
                         const md_split *split, int32_t part, md_error *err) {
    if (w->stage == MD_COMBINE) return md_fail(err, MD_BADARG, "partial states are not split");
    if (array->length != md_split_length(split)) return md_fail(err, MD_BADARG, "the rows of another batch are split");
    return add(w, schema, array, split, part, err);
}
