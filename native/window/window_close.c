/* Closing windows and making their rows. */
#include "base/md_alloc.h"
#include "window/window.h"
#include "window/window_private.h"

/* ---- definitions ---- */

void md_define_keys(md_rows *rows, int32_t column, const md_window *w) {
    for (int32_t k = 0; k < w->n_keys; k++) {
        char name[24], format[2] = {(char)w->key_types[k], 0};
        snprintf(name, sizeof name, "k%d", k);
        md_rows_define(rows, column + k, format, name, true);
    }
}

/* ---- columns of rows ---- */

md_rc md_emission_scratch(md_window *w, int64_t n) {
    if (n <= w->valid_capacity) return MD_OK;
    int64_t capacity = w->valid_capacity;
    if (!md_grow(&w->valid, &capacity, n, sizeof *w->valid)) return MD_NOMEM;
    capacity = w->valid_capacity;
    if (!md_grow(&w->words, &capacity, n, sizeof *w->words)) return MD_NOMEM;
    return md_grow(&w->order, &w->valid_capacity, n, sizeof *w->order) ? MD_OK : MD_NOMEM;
}

md_rc md_rows_of_state(md_rows *rows, int32_t column, md_window *w, const md_emission *e) {
    md_rc rc = md_state_put(w->plan, e->table, rows, column, e->table_order, e->n, w->words, w->valid);
    return rc == MD_OK ? md_rows_of_sets(rows, column, w, e) : rc;
}

md_rc md_rows_of_sets(md_rows *rows, int32_t column, const md_window *w, const md_emission *e) {
    md_rc rc = MD_OK;
    for (int32_t i = 0; rc == MD_OK && i < w->plan->n_state; i++) {
        md_state_column s = w->plan->state[i];
        if (s.column >= 0) continue;
        const md_distinct *set = e->sets[w->plan->inputs[s.input].distinct];
        rc = md_distinct_pack(set, e->keys->count, e->key_order, e->n, rows, column + i);
    }
    return rc;
}

/* Text of groups, null where w->valid says so. */
static md_rc put_text(md_rows *rows, int32_t column, md_window *w, const md_emission *e, int32_t g) {
    md_rc rc = MD_OK;
    if (e->n > 0 && memchr(w->valid, 0, (size_t)e->n) != NULL) rc = md_rows_nullable(rows, column);
    for (int64_t k = 0; rc == MD_OK && k < e->n; k++) {
        uint8_t buffer[16];
        size_t size = 0;
        const uint8_t *bytes = NULL;
        if (w->valid[k])
            bytes = md_finish_bytes(w->plan, e->table, g, e->table_order != NULL ? e->table_order[k] : k, buffer, &size);
        rc = md_rows_put_bytes(rows, column, k, bytes, size);
        if (rows->columns[column].validity != NULL) md_rows_set_valid(rows, column, k, w->valid[k]);
    }
    return rc;
}

static md_rc put_aggregates(md_rows *rows, int32_t column, md_window *w, const md_emission *e) {
    int64_t failed = 0;
    for (int32_t g = 0; g < w->plan->n_aggregates; g++) {
        md_aggregate a = w->plan->aggregates[g];
        md_rc rc;
        if (a.function == MD_COUNT_DISTINCT) {
            int32_t d = w->plan->inputs[a.input].distinct;
            md_word *counted = NULL;
            if (e->trackers == NULL) {
                counted = md_malloc((size_t)e->keys->count * sizeof *counted);
                if (counted == NULL) return MD_NOMEM;
                md_distinct_count(e->sets[d], e->keys->count, counted);
            }
            const md_word *counts = counted != NULL ? counted : e->trackers[d].counts;
            for (int64_t k = 0; k < e->n; k++) w->words[k] = counts[e->key_order != NULL ? e->key_order[k] : k];
            md_free(counted);
            rc = md_rows_put(rows, column + g, w->words, NULL, e->n);
        } else {
            md_type type = md_finish_type(w->plan, g);
            bool direct = type != MD_BOOL && !md_type_is_text(type);
            md_word *out = direct ? md_rows_words(rows, column + g) : w->words;
            rc = md_finish(w->plan, e->table, g, e->table_order, e->n, out, w->valid, &failed);
            if (rc == MD_OK)
                rc = md_type_is_text(type) ? put_text(rows, column + g, w, e, g)
                                           : md_rows_put(rows, column + g, out, w->valid, e->n);
        }
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

static void put_bounds(md_rows *rows, const md_emission *e) {
    md_word *start = md_rows_words(rows, 0), *end = md_rows_words(rows, 1);
    for (int64_t k = 0; k < e->n; k++)
        start[k].i = e->starts == NULL ? e->start : e->starts[e->key_order != NULL ? e->key_order[k] : k];
    for (int64_t k = 0; k < e->n; k++) end[k].i = e->end;
}

static int64_t first_of(const md_emission *e, int64_t id) {
    return e->other_first != NULL && e->other_first[id] < e->first[id] ? e->other_first[id] : e->first[id];
}

static void put_first(md_rows *rows, const md_emission *e) {
    md_word *first = md_rows_words(rows, rows->n_columns - 1);
    for (int64_t k = 0; k < e->n; k++) first[k].i = first_of(e, e->key_order != NULL ? e->key_order[k] : k);
}

/* ---- batches ---- */

static md_rc ready_slot(md_window *w) {
    return md_grow(&w->ready, &w->ready_capacity, w->n_ready + 1, sizeof *w->ready) ? MD_OK : MD_NOMEM;
}

static md_rc make_ready(md_window *w, md_rows *rows) {
    md_rc rc = ready_slot(w);
    if (rc == MD_OK) rc = md_rows_finish(rows, &w->ready[w->n_ready].schema, &w->ready[w->n_ready].array);
    if (rc == MD_OK) w->n_ready++;
    return rc;
}

md_rc md_window_flush(md_window *w) { return w->shared->length == 0 ? MD_OK : make_ready(w, w->shared); }

md_rc md_window_take(md_window *w, struct ArrowSchema *schema, struct ArrowArray *array) {
    if (w->first_ready == w->n_ready) return MD_EMPTY;
    *schema = w->ready[w->first_ready].schema;
    *array = w->ready[w->first_ready++].array;
    if (w->first_ready == w->n_ready) w->first_ready = w->n_ready = 0;
    return MD_OK;
}

md_rc md_window_failed(md_window *w, struct ArrowSchema *schema, struct ArrowArray *array) {
    return w->failed->length == 0 ? MD_EMPTY : md_rows_finish(w->failed, schema, array);
}

/* ---- groups whose sum doesn't fit ---- */

static int64_t sums_failed(md_window *w, const md_emission *e, int32_t g) {
    int64_t failed = 0;
    if (md_finish_may_fail(w->plan, g)) /* a sum, which needs no memory */
        (void)md_finish(w->plan, e->table, g, e->table_order, e->n, w->words, w->valid, &failed);
    return failed;
}

/* Their rows for md_window_failed, filled but not committed; *n of them. Every group that failed is marked
 * in bad[]. */
static md_rc list_failed(md_window *w, const md_emission *e, uint8_t *bad, int64_t *n) {
    for (int32_t g = 0; g < w->plan->n_aggregates; g++) {
        int64_t m = sums_failed(w, e, g);
        if (m == 0) continue;
        md_rc rc = md_rows_reserve(w->failed, m);
        if (rc != MD_OK) return rc;
        int64_t at = 0;
        for (int64_t k = 0; k < e->n; k++) {
            if (w->valid[k] != 2) continue;
            bad[k] = 1;
            w->order[at++] = e->key_order != NULL ? e->key_order[k] : (int32_t)k;
        }
        for (int64_t i = 0; i < m; i++) {
            md_rows_words(w->failed, 0)[i].i = e->start;
            md_rows_words(w->failed, 1)[i].i = e->end;
            md_rows_words(w->failed, 2 + w->n_keys)[i].i = g;
            if (w->positions) md_rows_words(w->failed, 3 + w->n_keys)[i].i = first_of(e, w->order[i]);
        }
        rc = md_rows_put_keys(w->failed, 2, e->keys, w->order, m, w->valid, w->words);
        if (rc != MD_OK) return rc;
        md_rows_commit(w->failed, m);
        *n += m;
    }
    return MD_OK;
}

static md_rc append(md_window *w, const md_emission *e);

static md_rc append_without_failed(md_window *w, const md_emission *e) {
    int64_t before = w->failed->length, n_failed = 0, n = 0;
    uint8_t *bad = md_calloc((size_t)e->n, 1);
    int32_t *keys = md_malloc((size_t)e->n * sizeof *keys), *table = md_malloc((size_t)e->n * sizeof *table);
    md_rc rc = bad != NULL && keys != NULL && table != NULL ? list_failed(w, e, bad, &n_failed) : MD_NOMEM;
    if (rc == MD_OK) {
        for (int64_t k = 0; k < e->n; k++) {
            if (bad[k]) continue;
            keys[n] = e->key_order != NULL ? e->key_order[k] : (int32_t)k;
            table[n++] = e->table_order != NULL ? e->table_order[k] : (int32_t)k;
        }
        md_emission good = *e;
        good.key_order = keys;
        good.table_order = table;
        good.n = n;
        rc = append(w, &good);
    }
    if (rc != MD_OK) w->failed->length = before;
    md_free(bad);
    md_free(keys);
    md_free(table);
    return rc;
}

static bool any_failed(md_window *w, const md_emission *e) {
    for (int32_t g = 0; w->stage != MD_PARTIAL && g < w->plan->n_aggregates; g++)
        if (sums_failed(w, e, g) > 0) return true;
    return false;
}

/* ---- emission ---- */

static md_rc append(md_window *w, const md_emission *e) {
    md_rc rc = md_rows_reserve(w->shared, e->n);
    if (rc == MD_OK) rc = md_rows_put_keys(w->shared, 2, e->keys, e->key_order, e->n, w->valid, w->words);
    if (rc == MD_OK)
        rc = w->stage == MD_PARTIAL ? md_rows_of_state(w->shared, 2 + w->n_keys, w, e)
                                    : put_aggregates(w->shared, 2 + w->n_keys, w, e);
    if (rc != MD_OK) return rc;
    put_bounds(w->shared, e);
    if (w->positions) put_first(w->shared, e);
    md_rows_commit(w->shared, e->n);
    return MD_OK;
}

md_rc md_emit(md_window *w, md_emission e) {
    md_rc rc = md_emission_scratch(w, e.n);
    if (rc == MD_OK && w->shared->length + e.n > MD_SHARED_ROWS) rc = md_window_flush(w);
    if (rc != MD_OK) return rc;
    return any_failed(w, &e) ? append_without_failed(w, &e) : append(w, &e);
}

/* A column of the table that is the answer as it stands; -1: none. */
static int32_t column_as_is(const md_window *w, const md_table *table, int32_t g) {
    md_aggregate a = w->plan->aggregates[g];
    if (a.function == MD_COUNT && a.input < 0) return 0;
    const md_plan_input *in = &w->plan->inputs[a.input];
    bool split = in->n >= 0 && table->columns[in->n] != NULL;
    if (a.function == MD_COUNT) return split ? in->n : 0;
    return split || in->type == MD_BOOL || md_type_is_text(in->type) ? -1 : md_finish_as_is(w->plan, g);
}

/* Everything of a large batch that has to be made, in blocks of its own: bounds, and what isn't as it is. */
static md_rc fill_large(md_window *w, md_pane *pane, md_rows *rows, int32_t *from) {
    int64_t n = pane->keys->count, failed = 0;
    for (int32_t c = 0; c < rows->n_columns; c++) {
        int32_t g = c - 2 - w->n_keys;
        from[c] = -1;
        if ((c >= 2 && g < 0) || g == w->plan->n_aggregates) continue; /* a key, or the first positions */
        if (g >= 0 && (from[c] = column_as_is(w, &pane->table, g)) >= 0) {
            bool again = false;
            for (int32_t d = 0; d < c; d++) again |= from[d] == from[c];
            if (!again) continue;
            from[c] = -1; /* the second copy of a column is a copy */
        }
        md_word *block = md_malloc((size_t)n * sizeof *block);
        if (block == NULL) return MD_NOMEM;
        md_rows_give_words(rows, c, block);
        if (c < 2) {
            for (int64_t k = 0; k < n; k++) block[k].i = c == 0 ? pane->start : pane->end;
            continue;
        }
        if (w->plan->aggregates[g].function == MD_COUNT_DISTINCT) {
            md_distinct_count(pane->sets[w->plan->inputs[w->plan->aggregates[g].input].distinct], n, block);
            continue;
        }
        md_rc rc = md_finish(w->plan, &pane->table, g, NULL, n, block, w->valid, &failed);
        if (rc != MD_OK) return rc;
        if (memchr(w->valid, 0, (size_t)n) == NULL) continue;
        rc = md_rows_nullable(rows, c);
        if (rc != MD_OK) return rc;
        for (int64_t k = 0; k < n; k++) {
            md_rows_set_valid(rows, c, k - rows->length, w->valid[k]);
            if (!w->valid[k]) block[k].u = 0;
        }
    }
    return MD_OK;
}

/* Exchange the pane's own blocks with those of rows; twice is as never. */
static void swap_blocks(md_window *w, md_pane *pane, md_rows *rows, const int32_t *from) {
    for (int32_t c = 2; c < rows->n_columns; c++) {
        md_rows_column *to = &rows->columns[c];
        void *values = to->values;
        if (c < 2 + w->n_keys) {
            md_key_column *key = &pane->keys->columns[c - 2];
            uint8_t *bits = to->validity, *data = to->data;
            to->validity = key->validity;
            key->validity = bits;
            if (md_type_is_text(key->type)) {
                to->values = key->offsets;
                to->data = key->data;
                key->offsets = values;
                key->data = data;
            } else {
                to->values = key->words;
                key->words = values;
            }
        } else if (w->positions && c == rows->n_columns - 1) {
            to->values = pane->keys->first;
            pane->keys->first = values;
        } else if (from[c] >= 0) {
            to->values = pane->table.columns[from[c]];
            pane->table.columns[from[c]] = values;
        }
    }
}

/* A large window leaves with the pane's own buffers. */
static md_rc emit_large(md_window *w, md_pane *pane) {
    int64_t n = pane->keys->count;
    md_rows *rows = NULL;
    int32_t from[2 + MD_KEYS_COLUMNS_MAX + MD_AGGREGATES_MAX];
    md_rc rc = md_window_flush(w);
    if (rc == MD_OK) rc = md_rows_new(w->shared->n_columns, &rows);
    if (rc != MD_OK) return rc;
    for (int32_t c = 0; c < rows->n_columns; c++) {
        const md_rows_column *d = &w->shared->columns[c];
        md_rows_define(rows, c, d->format, d->name, d->nullable);
    }
    rows->length = rows->capacity = n;
    rc = fill_large(w, pane, rows, from);
    if (rc == MD_OK) {
        swap_blocks(w, pane, rows, from);
        rc = make_ready(w, rows);
        if (rc != MD_OK) swap_blocks(w, pane, rows, from);
    }
    if (rc == MD_OK) {
        pane->table.capacity = 0;
        pane->keys->capacity = 0;
        for (int32_t k = 0; k < w->n_keys; k++) pane->keys->columns[k].data_capacity = 0;
        w->groups_hint = n;
    }
    md_rows_free(rows);
    return rc;
}

static bool may_hand_over(md_window *w, md_pane *pane) {
    if (w->stage != MD_WHOLE || pane->keys->count < MD_HANDOVER || w->plan->n_objects > 0) return false;
    for (int32_t k = 0; k < w->n_keys; k++)
        if (w->key_types[k] == MD_BOOL) return false;
    for (int32_t g = 0; g < w->plan->n_aggregates; g++)
        if (md_finish_type(w->plan, g) == MD_BOOL || md_type_is_text(md_finish_type(w->plan, g))) return false;
    md_emission e = {.keys = pane->keys, .table = &pane->table, .n = pane->keys->count};
    return !any_failed(w, &e);
}

static void merge_sort(const md_keys *keys, int32_t *order, int32_t *scratch, int64_t n) {
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            int64_t middle = low + width < n ? low + width : n, high = low + 2 * width < n ? low + 2 * width : n;
            int64_t i = low, j = middle;
            for (int64_t k = low; k < high; k++)
                scratch[k] = j >= high || (i < middle && md_keys_compare(keys, order[i], order[j]) <= 0) ? order[i++]
                                                                                                          : order[j++];
        }
        memcpy(order, scratch, (size_t)n * sizeof *order);
    }
}

static md_rc emit_pane(md_window *w, md_pane *pane) {
    md_rc rc = md_emission_scratch(w, pane->keys->count);
    if (rc != MD_OK) return rc;
    if (may_hand_over(w, pane)) return emit_large(w, pane);
    int64_t n = pane->keys->count;
    md_emission e = {.start = pane->start, .end = pane->end, .n = n, .keys = pane->keys, .table = &pane->table,
                     .sets = pane->sets, .first = pane->keys->first};
    if (w->stage != MD_COMBINE) return md_emit(w, e);
    int32_t *order = md_malloc(2 * (size_t)n * sizeof *order);
    if (order == NULL) return MD_NOMEM;
    for (int64_t k = 0; k < n; k++) order[k] = (int32_t)k;
    merge_sort(pane->keys, order, order + n, n);
    e.key_order = e.table_order = order;
    rc = md_emit(w, e);
    md_free(order);
    return rc;
}

md_rc md_window_close(md_window *w, int64_t boundary, md_error *err) {
    int64_t dropped; /* panes up to here are needed by no window that stays open */
    md_rc rc = MD_OK;
    if (w->snapshot != NULL && !__builtin_sub_overflow(boundary, w->size - w->advance, &dropped))
        rc = md_snapshot_close(w->snapshot, dropped);
    if (rc != MD_OK) return md_nomem(err);
    if (boundary <= w->boundary) {
        rc = MD_OK; /* nothing to close; what an earlier call couldn't flush is flushed below */
    } else if (w->stage != MD_COMBINE && w->advance != w->size) {
        rc = md_slide_close(w, boundary);
    } else {
        int64_t closed = 0;
        while (rc == MD_OK && closed < w->n_panes && w->panes[closed]->end <= boundary) {
            rc = emit_pane(w, w->panes[closed]);
            if (rc == MD_OK) w->boundary = w->panes[closed++]->end;
        }
        md_panes_drop(w, closed);
    }
    if (rc == MD_OK) rc = md_window_flush(w);
    if (rc != MD_OK) return md_fail(err, rc, "out of memory");
    if (boundary > w->boundary) w->boundary = boundary;
    return MD_OK;
}
