/* The combine stage: rows are partial states of windows; equal (window, key) merge. */
#include "base/md_alloc.h"
#include "window/window.h"
#include "window/window_private.h"

static md_rc bad_state(md_error *err, md_state_column s, int64_t row, const char *what) {
    return md_fail(err, MD_BADDATA, "row %lld: state '%s' of aggregate %d %s", (long long)row, s.suffix, s.aggregate,
                   what);
}

/* ---- adding ---- */

static md_rc check_bounds(const md_window *w, const md_column *views, int64_t row, md_error *err) {
    if (md_column_null(&views[0], row) || md_column_null(&views[1], row))
        return md_fail(err, MD_BADARG, "row %lld: a bound of the window is null", (long long)row);
    int64_t start = md_column_i64(&views[0], row), end = md_column_i64(&views[1], row);
    if (start < -MD_TIME_LIMIT || start >= MD_TIME_LIMIT || end != start + w->size || md_floor_to(start, w->advance) != start)
        return md_fail(err, MD_BADARG, "row %lld: [%lld, %lld) is not one of the windows", (long long)row,
                       (long long)start, (long long)end);
    if (end <= w->boundary)
        return md_fail(err, MD_BADARG, "row %lld: the window that ends at %lld us is closed (boundary %lld us)",
                       (long long)row, (long long)end, (long long)w->boundary);
    return MD_OK;
}

/* Groups and sets of rows [start, start + n), which are of one window. */
static md_rc prepare_run(md_window *w, const md_column *views, int64_t start, int64_t n, md_error *err) {
    const md_plan *plan = w->plan;
    const md_column *state = views + 2 + w->n_keys;
    md_segment s = {.start = start, .at = start, .n = n};
    int64_t begin = md_column_i64(&views[0], start);
    if (!md_grow(&w->segments, &w->segments_capacity, w->n_segments + 1, sizeof *w->segments)) return md_nomem(err);
    md_rc rc = md_pane_open(w, begin, begin + w->size, &s.pane);
    if (rc == MD_OK) rc = md_pane_touch(w, s.pane);
    if (rc != MD_OK) return md_nomem(err);
    int64_t before = s.pane->keys->count;
    rc = md_keys_map(s.pane->keys, views + 2, NULL, start, n, w->taken, true, w->ids + start);
    if (rc == MD_OK) rc = md_pane_room(w, s.pane, before);
    for (int32_t i = 0; rc == MD_OK && i < plan->n_inputs; i++) rc = md_table_split(plan, &s.pane->table, i, 0);
    if (rc == MD_OK) rc = md_state_room(plan, &s.pane->table, w->ids + start, state, start, n);
    if (rc != MD_OK) return md_nomem(err);
    for (int32_t i = 0; i < plan->n_state; i++) {
        md_distinct *set = plan->state[i].column < 0 ? s.pane->sets[plan->inputs[plan->state[i].input].distinct] : NULL;
        for (int64_t k = start; set != NULL && k < start + n; k++) {
            uint32_t size;
            if (md_column_null(&state[i], k)) return bad_state(err, plan->state[i], k, "is null");
            const uint8_t *bytes = md_column_bytes(&state[i], k, &size);
            rc = md_distinct_unpack(set, w->ids[k], bytes, size, false, err);
            if (rc != MD_OK) return rc;
        }
    }
    w->segments[w->n_segments++] = s;
    return MD_OK;
}

md_rc md_window_add_states(md_window *w, const md_column *views, int64_t n, md_error *err) {
    const md_column *state = views + 2 + w->n_keys;
    int64_t capacity = w->rows_capacity;
    if (n > INT32_MAX) return md_fail(err, MD_BADARG, "more than 2^31 rows at once");
    if (!md_grow(&w->ids, &capacity, n, sizeof *w->ids)) return md_nomem(err);
    if (!md_grow(&w->rows, &w->rows_capacity, n, sizeof *w->rows)) return md_nomem(err);
    md_rc rc = MD_OK;
    for (int64_t k = 0; rc == MD_OK && k < n; k++) rc = check_bounds(w, views, k, err);
    for (int64_t k = 0; rc == MD_OK && k < n; k += MD_CHUNK)
        rc = md_state_read(w->plan, &w->incoming, state, k, n - k < MD_CHUNK ? n - k : MD_CHUNK, err);
    w->n_segments = 0;
    for (int64_t k = 0, m; rc == MD_OK && k < n; k += m) {
        int64_t start = md_column_i64(&views[0], k);
        for (m = 1; m < MD_CHUNK && k + m < n && md_column_i64(&views[0], k + m) == start;) m++;
        rc = prepare_run(w, views, k, m, err);
    }
    md_touched_settle(w, rc == MD_OK);
    if (rc != MD_OK) return rc;
    for (int64_t k = 0; k < w->n_segments; k++) {
        md_segment s = w->segments[k];
        const int32_t *ids = w->ids + s.at;
        /* Room and contents were seen to above. */
        (void)md_state_read(w->plan, &w->incoming, state, s.start, s.n, NULL);
        md_state_merge(w->plan, &s.pane->table, ids, state, s.start, s.n);
        md_merge_words(w->plan, &s.pane->table, ids, &s.pane->table, ids, &w->incoming, NULL, s.n);
        s.pane->rows = s.pane->keys->count;
    }
    w->taken += n;
    return MD_OK;
}
