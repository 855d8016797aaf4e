#include "state/state.h"

#include "base/md_alloc.h"
#include "state/state_rows.h"
#include "window/window_private.h"

enum { PANE_START, PANE_END, FIRST, ROWS, KEYS };

md_rc md_state_rows(const md_window *w, md_rows **out) {
    static const char *const names[] = {"pane_start", "pane_end", "first", "rows"};
    md_rc rc = md_rows_new(KEYS + w->n_keys + w->plan->n_state, out);
    if (rc != MD_OK) return rc;
    for (int32_t c = 0; c < KEYS; c++) md_rows_define(*out, c, "l", names[c], false);
    md_define_keys(*out, KEYS, w);
    md_state_define(w->plan, *out, KEYS + w->n_keys);
    return MD_OK;
}

md_rc md_state_keys(const md_pane *pane, md_rows *rows, const int32_t *order, int64_t n, md_word *words,
                    uint8_t *valid) {
    md_word *starts = md_rows_words(rows, PANE_START), *ends = md_rows_words(rows, PANE_END);
    md_word *first = md_rows_words(rows, FIRST);
    for (int64_t k = 0; k < n; k++) {
        starts[k].i = pane->start;
        ends[k].i = pane->end;
        first[k].i = pane->keys->first[order[k]];
    }
    return md_rows_put_keys(rows, KEYS, pane->keys, order, n, valid, words);
}

md_rc md_state_words(md_window *w, const md_pane *pane, md_rows *rows, const int32_t *order, int64_t n, md_word *words,
                     uint8_t *valid) {
    md_word *to = md_rows_words(rows, ROWS);
    for (int64_t k = 0; k < n; k++) to[k] = pane->table.columns[0][order != NULL ? order[k] : k];
    return md_state_put(w->plan, &pane->table, rows, KEYS + w->n_keys, order, n, words, valid);
}

/* In pieces that stay in the processor's cache. */
static md_rc put_pane(md_window *w, md_pane *pane, md_rows *rows) {
    int64_t n = pane->keys->count, before = rows->length;
    md_emission e = {.n = n, .keys = pane->keys, .table = &pane->table, .sets = pane->sets};
    md_rc rc = md_emission_scratch(w, n < MD_CHUNK ? n : MD_CHUNK);
    if (rc == MD_OK) rc = md_rows_reserve(rows, n);
    for (int64_t at = 0; rc == MD_OK && at < n; at += MD_CHUNK) {
        int64_t m = n - at < MD_CHUNK ? n - at : MD_CHUNK;
        for (int64_t k = 0; k < m; k++) w->order[k] = (int32_t)(at + k);
        rc = md_state_keys(pane, rows, w->order, m, w->words, w->valid);
        if (rc == MD_OK) rc = md_state_words(w, pane, rows, w->order, m, w->words, w->valid);
        rows->length += m;
    }
    rows->length = before;
    if (rc == MD_OK) rc = md_rows_of_sets(rows, KEYS + w->n_keys, w, &e);
    if (rc == MD_OK) md_rows_commit(rows, n);
    return rc;
}

md_rc md_window_state(md_window *w, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err) {
    md_rows *rows = NULL;
    int64_t groups = 0;
    for (int64_t i = 0; i < w->n_panes; i++) groups += w->panes[i]->keys->count;
    md_rc rc = md_state_rows(w, &rows);
    if (rc == MD_OK) rc = md_rows_reserve(rows, groups);
    for (int64_t i = 0; rc == MD_OK && i < w->n_panes; i++) rc = put_pane(w, w->panes[i], rows);
    if (rc == MD_OK) rc = md_rows_finish(rows, schema, array);
    md_rows_free(rows);
    return rc == MD_OK ? MD_OK : md_fail(err, rc, "out of memory");
}

/* ---- loading ---- */

static md_rc bad_row(md_error *err, int64_t row, const char *what) {
    return md_fail(err, MD_BADDATA, "row %lld of the state: %s", (long long)row, what);
}

/* Bounds of the pane that row `row` begins. */
static md_rc check_pane(const md_window *w, int64_t row, int64_t start, int64_t end, int64_t boundary, md_error *err) {
    int64_t low, high, needed = boundary;
    if (start < -MD_TIME_LIMIT - w->size || start >= MD_TIME_LIMIT) return bad_row(err, row, "a pane out of range");
    md_pane_bounds(w, start, &low, &high);
    if (w->stage == MD_COMBINE) {
        low = md_floor_to(start, w->advance);
        high = start + w->size;
    }
    if (low != start || high != end) return bad_row(err, row, "not a pane of this window");
    if (w->n_panes > 0 && w->panes[w->n_panes - 1]->start >= start) return bad_row(err, row, "panes don't ascend");
    /* A sliding window needs a pane until the last window that holds it has closed. */
    if (w->stage != MD_COMBINE && w->advance != w->size && boundary > -MD_TIME_LIMIT)
        needed = boundary >= MD_TIME_LIMIT ? INT64_MAX : md_floor_to(boundary - w->size, w->advance) + w->advance;
    if (end <= needed) return bad_row(err, row, "a pane that is closed already");
    return MD_OK;
}

static bool counts_rows(const md_plan *plan) {
    for (int32_t i = 0; i < plan->n_state; i++)
        if (plan->state[i].column == 0) return true;
    return false;
}

/* Rows [start, start + n), all of the pane, n <= MD_CHUNK. */
static md_rc load_chunk(md_window *w, md_pane *pane, const md_column *views, int64_t start, int64_t n, int64_t taken,
                        md_error *err) {
    const md_plan *plan = w->plan;
    const md_column *state = views + KEYS + w->n_keys;
    int64_t before = pane->keys->count;
    int32_t *ids = w->scratch->ids;
    md_rc rc = md_state_read(plan, &w->incoming, state, start, n, err);
    if (rc != MD_OK) return rc;
    rc = md_keys_map(pane->keys, views + KEYS, NULL, start, n, 0, true, ids);
    if (rc == MD_OK) rc = md_pane_room(w, pane, before);
    for (int32_t i = 0; rc == MD_OK && i < plan->n_inputs; i++) rc = md_table_split(plan, &pane->table, i, 0);
    if (rc == MD_OK) rc = md_state_room(plan, &pane->table, ids, state, start, n);
    if (rc != MD_OK) return md_nomem(err);
    for (int64_t k = 0; k < n; k++) {
        int64_t first = md_column_i64(&views[FIRST], start + k), rows = md_column_i64(&views[ROWS], start + k);
        if (ids[k] != before + k) return bad_row(err, start + k, "a key stands twice in one pane");
        if (first < 0 || first >= taken || (ids[k] > 0 && pane->keys->first[ids[k] - 1] >= first))
            return bad_row(err, start + k, "first positions don't ascend below the rows taken");
        pane->keys->first[ids[k]] = first;
        if (rows < 0 || (rows != w->incoming.columns[0][k].i && counts_rows(plan)))
            return bad_row(err, start + k, "an impossible number of rows");
        w->incoming.columns[0][k].i = rows;
        if (w->stage == MD_COMBINE) { /* its rows are sums that others sent, and it counts groups */
            pane->rows++;
            continue;
        }
        if (rows < 1 || rows > taken - pane->rows) return bad_row(err, start + k, "an impossible number of rows");
        pane->rows += rows;
        for (int32_t i = 0; i < plan->n_inputs; i++)
            if (plan->inputs[i].n >= 0 && w->incoming.columns[plan->inputs[i].n][k].i > rows)
                return bad_row(err, start + k, "more values than rows");
    }
    for (int32_t i = 0; i < plan->n_state; i++) {
        if (plan->state[i].column >= 0) continue;
        md_distinct *set = pane->sets[plan->inputs[plan->state[i].input].distinct];
        bool again = false; /* two aggregates share the set */
        for (int32_t j = 0; j < i; j++) again |= plan->state[j].column < 0 && plan->state[j].input == plan->state[i].input;
        for (int64_t k = 0; k < n; k++) {
            uint32_t size;
            if (md_column_null(&state[i], start + k)) return bad_row(err, start + k, "a set is null");
            const uint8_t *bytes = md_column_bytes(&state[i], start + k, &size);
            rc = md_distinct_unpack(set, ids[k], bytes, size, !again, err);
            if (rc != MD_OK) return rc;
        }
    }
    md_state_merge(plan, &pane->table, ids, state, start, n);
    md_copy_words(plan, &pane->table, ids, &w->incoming, NULL, n);
    return MD_OK;
}

static md_rc load_rows(md_window *w, const md_column *views, int64_t n, int64_t boundary, int64_t taken, md_error *err) {
    int64_t open = 0;
    for (int64_t k = 0, m; k < n; k += m) {
        int64_t start = md_column_i64(&views[PANE_START], k), end = md_column_i64(&views[PANE_END], k);
        md_pane *pane;
        md_rc rc = check_pane(w, k, start, end, boundary, err);
        if (rc != MD_OK) return rc;
        if (md_pane_open(w, start, end, &pane) != MD_OK) return md_nomem(err);
        for (m = 0; k + m < n && md_column_i64(&views[PANE_START], k + m) == start &&
                    md_column_i64(&views[PANE_END], k + m) == end;) {
            int64_t chunk = 0;
            while (chunk < MD_CHUNK && k + m + chunk < n && md_column_i64(&views[PANE_START], k + m + chunk) == start &&
                   md_column_i64(&views[PANE_END], k + m + chunk) == end)
                chunk++;
            rc = load_chunk(w, pane, views, k + m, chunk, taken, err);
            if (rc != MD_OK) return rc;
            m += chunk;
        }
        if (__builtin_add_overflow(open, pane->rows, &open) || open > taken)
            return bad_row(err, k, "more rows open than were taken");
    }
    return MD_OK;
}

md_rc md_window_load(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array,
                     int64_t boundary, int64_t taken, md_error *err) {
    int32_t n_columns = KEYS + w->n_keys + w->plan->n_state;
    int64_t n;
    if (w->n_panes != 0 || w->taken != 0 || w->boundary != INT64_MIN || w->n_ready != 0 || w->failed->length != 0)
        return md_fail(err, MD_BADARG, "only a window that never took a row can load");
    if (taken < 0) return md_fail(err, MD_BADARG, "%lld rows taken", (long long)taken);
    md_column *views = md_calloc((size_t)n_columns, sizeof *views);
    if (views == NULL) return md_nomem(err);
    md_rc rc = md_columns_view(schema, array, n_columns, views, &n, err);
    for (int32_t c = 0; rc == MD_OK && c < n_columns; c++) {
        int32_t k = c - KEYS;
        md_type type = k < 0 ? MD_I64 : k < w->n_keys ? w->key_types[k] : w->plan->state[k - w->n_keys].type;
        if (views[c].type != type)
            rc = md_fail(err, MD_BADARG, "column %d is of type '%c', expected '%c'", c, (char)views[c].type, (char)type);
        else if (c < KEYS && md_column_nulls(&views[c]) != 0)
            rc = md_fail(err, MD_BADDATA, "column %d of the state holds a null", c);
    }
    if (rc == MD_OK) rc = load_rows(w, views, n, boundary, taken, err);
    md_free(views);
    if (rc != MD_OK) {
        md_panes_drop(w, w->n_panes);
        return rc;
    }
    w->boundary = boundary;
    w->taken = taken;
    return MD_OK;
}
