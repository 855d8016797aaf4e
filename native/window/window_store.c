#include "window/window_store.h"

#include "base/md_alloc.h"
#include "window/window_private.h"

static void drop_ready(md_window *w, int64_t from) {
    while (w->n_ready > from) {
        w->n_ready--;
        md_schema_release(&w->ready[w->n_ready].schema);
        md_array_release(&w->ready[w->n_ready].array);
    }
}

static md_rc emit_all(md_window *w, const md_pane *pane, const int32_t *ids, int64_t n) {
    for (int64_t at = 0; at < n; at += MD_SHARED_ROWS) {
        int64_t m = n - at < MD_SHARED_ROWS ? n - at : MD_SHARED_ROWS;
        md_emission e = {.start = pane->start, .end = pane->end, .n = m, .keys = pane->keys, .table = &pane->table,
                         .sets = pane->sets, .key_order = ids + at, .table_order = ids + at};
        md_rc rc = md_emit(w, e);
        if (rc != MD_OK) return rc;
    }
    return md_window_flush(w);
}

/* Rows for state columns, to stand in for w->shared. */
static md_rc state_rows(md_window *w, md_rows **out) {
    md_rc rc = md_rows_new(2 + w->n_keys + w->plan->n_state, out);
    if (rc != MD_OK) return rc;
    for (int32_t i = 0; i < 2; i++)
        md_rows_define(*out, i, "tsu:UTC", i == 0 ? "window_start" : "window_end", false);
    md_define_keys(*out, 2, w);
    md_state_define(w->plan, *out, 2 + w->n_keys);
    return MD_OK;
}

/* The groups of slots, to be freed by the caller. */
static md_rc groups_of(md_window *w, const int64_t *slots, int64_t n, int32_t **out, md_error *err) {
    if (w->n_keys != 1 || w->key_types[0] != MD_I64 || w->stage == MD_COMBINE || w->n_panes > 1)
        return md_fail(err, MD_BADARG, "not a store: one int64 key and one pane");
    if (n > 0 && w->n_panes == 0) return md_fail(err, MD_BADARG, "slot %lld is not held", (long long)slots[0]);
    md_column column = {.type = MD_I64, .length = n, .values = (const uint8_t *)slots};
    size_t size;
    int32_t *ids = md_mul_size((size_t)n, sizeof *ids, &size) ? md_malloc(size) : NULL;
    if (ids == NULL) return md_nomem(err);
    md_rc rc = n > 0 ? md_keys_map(w->panes[0]->keys, &column, NULL, 0, n, 0, false, ids) : MD_OK;
    for (int64_t i = 0; rc == MD_OK && i < n; i++)
        if (ids[i] < 0) rc = md_fail(err, MD_BADARG, "slot %lld is not held", (long long)slots[i]);
    if (rc == MD_OK) *out = ids;
    else md_free(ids);
    return rc;
}

md_rc md_window_leave(md_window *w, const int64_t *slots, int64_t n, md_error *err) {
    int32_t *ids;
    md_rc rc = groups_of(w, slots, n, &ids, err);
    if (rc != MD_OK || n == 0) {
        if (rc == MD_OK) md_free(ids);
        return rc;
    }
    struct md_marks *marks = &w->panes[0]->marks;
    int64_t words = (w->panes[0]->keys->count + 63) >> 6, before = marks->gone_words;
    if (words > before) {
        int64_t wanted = before + before / 2 > words ? before + before / 2 : words;
        uint64_t *gone = md_realloc(marks->gone, (size_t)wanted * sizeof *gone);
        if (gone == NULL) {
            md_free(ids);
            return md_nomem(err);
        }
        memset(gone + before, 0, (size_t)(wanted - before) * sizeof *gone);
        marks->gone = gone;
        marks->gone_words = wanted;
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t bit = UINT64_C(1) << (ids[i] & 63), *word = &marks->gone[ids[i] >> 6];
        marks->n_gone += !(*word & bit);
        *word |= bit;
    }
    md_free(ids);
    return MD_OK;
}

int64_t md_window_living(const md_window *w) {
    int64_t n = md_window_groups_open(w);
    for (int64_t i = 0; i < w->n_panes; i++) n -= w->panes[i]->marks.n_gone;
    return n;
}

md_rc md_window_pick(md_window *w, const int64_t *slots, int64_t n, bool states, md_error *err) {
    int32_t *ids;
    md_rc rc = groups_of(w, slots, n, &ids, err);
    if (rc != MD_OK) return rc;
    if (n == 0) {
        md_free(ids);
        return MD_OK;
    }
    const md_pane *pane = w->panes[0];
    md_rows *own = w->shared, *other = NULL;
    md_stage stage = w->stage;
    int64_t ready = w->n_ready, failed = w->failed->length, shared = w->shared->length;
    if (rc == MD_OK && states) rc = state_rows(w, &other);
    if (rc == MD_OK) {
        if (states) {
            w->shared = other;
            w->stage = MD_PARTIAL;
        }
        rc = emit_all(w, pane, ids, n);
        w->shared = own;
        w->stage = stage;
    }
    if (rc == MD_NOMEM) {
        drop_ready(w, ready);
        w->failed->length = failed;
        if (!states) w->shared->length = shared <= w->shared->length ? shared : 0;
        md_nomem(err);
    }
    md_rows_free(other);
    md_free(ids);
    return rc;
}

md_rc md_keys_pick(const md_keys *keys, const int64_t *ids, int64_t n, struct ArrowSchema *schema,
                   struct ArrowArray *array, md_error *err) {
    md_rows *rows;
    size_t size;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= keys->count)
            return md_fail(err, MD_BADARG, "there is no group %lld", (long long)ids[i]);
    if (!md_mul_size((size_t)n, sizeof(md_word), &size) || md_rows_new(keys->n_columns, &rows) != MD_OK)
        return md_nomem(err);
    uint8_t *flags = md_malloc((size_t)n);
    md_word *scratch = md_malloc(size);
    int32_t *order = md_malloc((size_t)n * sizeof *order);
    md_rc rc = flags != NULL && scratch != NULL && order != NULL ? MD_OK : MD_NOMEM;
    for (int64_t i = 0; rc == MD_OK && i < n; i++) order[i] = (int32_t)ids[i];
    for (int32_t k = 0; k < keys->n_columns; k++) {
        char name[24], format[2] = {(char)keys->columns[k].type, 0};
        snprintf(name, sizeof name, "k%d", k);
        md_rows_define(rows, k, format, name, true);
    }
    if (rc == MD_OK) rc = md_rows_reserve(rows, n);
    if (rc == MD_OK) rc = md_rows_put_keys(rows, 0, keys, order, n, flags, scratch);
    if (rc == MD_OK) {
        md_rows_commit(rows, n);
        rc = md_rows_finish(rows, schema, array);
    }
    md_free(flags);
    md_free(scratch);
    md_free(order);
    md_rows_free(rows);
    return rc == MD_OK ? MD_OK : md_fail(err, rc, "out of memory");
}
