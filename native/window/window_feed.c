#include "window/window_feed.h"

#include "base/kernels.h"
#include "window/window_private.h"

bool md_window_feeds(const md_window *w) {
    return w->stage != MD_COMBINE && w->n_keys == 0 && w->plan->n_objects == 0 && w->plan->n_distinct == 0;
}

bool md_window_ordered(const md_window *w) { return w->plan->ordered; }
int32_t md_window_columns(const md_window *w) {
    return w->stage == MD_COMBINE ? -1 : 1 + w->n_keys + w->plan->n_inputs;
}

md_type md_window_column(const md_window *w, int32_t column) {
    if (column == 0) return MD_I64;
    return column <= w->n_keys ? w->key_types[column - 1] : w->plan->inputs[column - 1 - w->n_keys].type;
}

/* ---- panes of many rows ---- */

/* The times that may come beside `time`; false: not even this one. */
static bool pane_around(const md_window *w, int64_t time, int64_t *low, int64_t *high) {
    int64_t least = w->boundary > -MD_TIME_LIMIT ? w->boundary : -MD_TIME_LIMIT;
    if (time < least || time >= MD_TIME_LIMIT) return false;
    md_pane_bounds(w, time, low, high);
    if (*low < least) *low = least;
    if (*high > MD_TIME_LIMIT) *high = MD_TIME_LIMIT;
    return true;
}

bool md_window_one_pane(const md_window *w, const uint8_t *times, int64_t n) {
    int64_t low, high;
    return n > 0 && pane_around(w, md_load_i64(times), &low, &high) && md_all_within(times, n, low, high);
}

bool md_window_one_pane_of(const md_window *w, int64_t least, int64_t largest) {
    int64_t low, high;
    return pane_around(w, least, &low, &high) && least <= largest && largest < high;
}

/* ---- rows ---- */

/* `pane` will be number n_touched. */
md_rc md_feed_save(md_window *w, const md_pane *pane) {
    int64_t width = 1 + w->plan->n_columns;
    if (!md_grow(&w->saved, &w->saved_capacity, (w->n_touched + 1) * width, sizeof *w->saved)) return MD_NOMEM;
    md_word *to = w->saved + w->n_touched * width;
    to[0].i = pane->rows;
    for (int32_t c = 0; c < w->plan->n_columns && pane->keys->count > 0; c++)
        to[1 + c] = pane->table.columns[c != 0 && pane->table.columns[c] == NULL ? 0 : c][0]; /* not split: rows */
    return MD_OK;
}

void md_window_feed_start(md_window *w) {
    w->feeding = true;
    w->taken_before = w->taken;
}

/* The pane is open and has its group and room: nothing can fail. */
static bool is_ready(const md_window *w, const md_column *views, int64_t time) {
    const md_pane *pane = w->last;
    if (pane == NULL || !pane->touched || time < pane->start || time >= pane->end) return false;
    for (int32_t i = 1; i <= w->plan->n_inputs; i++)
        if (views[i].validity != NULL) return false;
    return true;
}

md_rc md_window_feed(md_window *w, const md_column *views, int64_t n, const int64_t *time, md_error *err) {
    static const int32_t FIRST_GROUP[MD_CHUNK] = {0};
    if (n == 0) return MD_OK;
    if (time != NULL && is_ready(w, views, *time)) {
        md_accumulate(w->plan, &w->last->table, FIRST_GROUP, views + 1, &views[0], NULL, 0, n, true, w->scratch);
        w->last->rows += n;
        w->taken += n;
        return MD_OK;
    }
    md_rc rc = md_window_prepare(w, views, n, time, err);
    if (rc == MD_OK) md_window_accumulate(w, views, n);
    return rc;
}

void md_window_feed_end(md_window *w, bool keep) {
    for (int64_t i = 0; !keep && i < w->n_touched; i++) {
        md_pane *pane = w->touched[i];
        const md_word *from = w->saved + i * (1 + w->plan->n_columns);
        pane->rows = from[0].i;
        for (int32_t c = 0; c < w->plan->n_columns && pane->mark > 0; c++)
            if (pane->table.columns[c] != NULL) pane->table.columns[c][0] = from[1 + c];
    }
    md_touched_settle(w, keep);
    if (!keep) w->taken = w->taken_before;
    w->feeding = false;
}

md_rc md_window_add_views(md_window *w, const md_column *views, int64_t n, const int64_t *time, md_error *err) {
    if (n == 0) return MD_OK;
    md_rc rc = md_window_prepare(w, views, n, time, err);
    md_touched_settle(w, rc == MD_OK);
    if (rc == MD_OK) md_window_accumulate(w, views, n);
    return rc;
}
