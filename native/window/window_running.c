#include "window/window_running.h"

#include "base/md_alloc.h"
#include "state/items.h"
#include "window/window_private.h"

/* Entries of each set and of each group in it, so that distinct values need not be counted anew for every row. */
typedef struct counters {
    md_tracker *trackers;
    int64_t *known;
} counters;

static void counters_free(const md_window *w, counters *c) {
    for (int32_t d = 0; c->trackers != NULL && d < w->plan->n_distinct; d++) md_free(c->trackers[d].counts);
    md_free(c->trackers);
    md_free(c->known);
}

static md_rc counters_new(const md_window *w, const md_pane *pane, counters *c) {
    int32_t n = w->plan->n_distinct;
    if (n == 0) return MD_OK;
    c->trackers = md_calloc((size_t)n, sizeof *c->trackers);
    c->known = md_calloc((size_t)n, sizeof *c->known);
    if (c->trackers == NULL || c->known == NULL) return MD_NOMEM;
    for (int32_t d = 0; d < n; d++) {
        c->trackers[d].counts = md_malloc((size_t)pane->keys->count * sizeof(md_word));
        if (c->trackers[d].counts == NULL) return MD_NOMEM;
        md_distinct_count(pane->sets[d], pane->keys->count, c->trackers[d].counts);
        c->known[d] = pane->sets[d]->keys->count;
    }
    return MD_OK;
}

static md_rc add_row(md_window *w, md_pane *pane, const md_column *views, int64_t i, const int32_t *id, counters *c) {
    const md_plan *plan = w->plan;
    const md_column *inputs = views + 2;
    for (int32_t k = 0; k < plan->n_inputs; k++) {
        int32_t d = plan->inputs[k].distinct;
        if (d < 0) continue;
        md_rc rc = md_distinct_add(pane->sets[d], id, &inputs[k], NULL, i, 1, w->distinct_scratch);
        if (rc != MD_OK) return rc;
        c->trackers[d].counts[*id].i += pane->sets[d]->keys->count - c->known[d];
        c->known[d] = pane->sets[d]->keys->count;
    }
    md_rc rc = md_table_room(plan, &pane->table, id, inputs, &views[0], NULL, i, 1);
    md_pane_keep(pane, id, 1);
    if (rc == MD_OK) md_accumulate(plan, &pane->table, id, inputs, &views[0], NULL, i, 1, false, w->scratch);
    return rc;
}

static md_rc run_rows(md_window *w, const md_column *views, int64_t n, int32_t *ids) {
    md_pane *pane;
    counters c = {0};
    md_rc rc = md_pane_open(w, 0, w->size, &pane);
    if (rc != MD_OK) return rc;
    int64_t before = pane->keys->count;
    rc = md_keys_map(pane->keys, views + 1, NULL, 0, n, w->taken, true, ids);
    if (rc == MD_OK) rc = md_pane_room(w, pane, before);
    for (int32_t k = 0; rc == MD_OK && k < w->plan->n_inputs; k++)
        if (views[2 + k].validity != NULL) rc = md_table_split(w->plan, &pane->table, k, pane->keys->count);
    if (rc == MD_OK) rc = counters_new(w, pane, &c);
    for (int64_t i = 0; rc == MD_OK && i < n; i++) {
        rc = add_row(w, pane, views, i, &ids[i], &c);
        md_emission e = {.start = i, .end = i, .n = 1, .keys = pane->keys, .table = &pane->table, .sets = pane->sets,
                         .trackers = c.trackers, .key_order = &ids[i], .table_order = &ids[i]};
        if (rc == MD_OK) rc = md_emit(w, e);
    }
    if (rc == MD_OK) rc = md_window_flush(w);
    counters_free(w, &c);
    pane->rows += n;
    w->taken += n;
    return rc;
}

md_rc md_window_run(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err) {
    int64_t n;
    if (w->n_keys != 1 || w->key_types[0] != MD_I64 || w->stage != MD_WHOLE || w->n_panes > 1)
        return md_fail(err, MD_BADARG, "not a store: one int64 key and one pane");
    md_rc rc = md_columns_view(schema, array, 2 + w->plan->n_inputs, w->views, &n, err);
    for (int32_t c = 0; rc == MD_OK && c < 2 + w->plan->n_inputs; c++) {
        md_type type = c < 2 ? MD_I64 : w->plan->inputs[c - 2].type;
        bool nulls = md_column_nulls(&w->views[c]) != 0;
        if (w->views[c].type != type || (c < 2 && nulls)) rc = md_fail(err, MD_BADARG, "column %d is of another type", c);
        if (!nulls) w->views[c].validity = NULL;
    }
    if (rc != MD_OK || n == 0) return rc;
    int32_t *ids = md_malloc((size_t)n * sizeof *ids);
    rc = ids == NULL ? MD_NOMEM : run_rows(w, w->views, n, ids);
    md_free(ids);
    return rc == MD_OK ? MD_OK : rc == MD_NOMEM ? md_nomem(err) : md_fail(err, rc, "a row that can't be");
}

/* ---- expiry ---- */

typedef struct expiring {
    int64_t latest, slot;
} expiring;

struct md_expiry {
    int64_t limit, next_slot, n, capacity;
    expiring *keys;
    md_items items; /* the keys */
    int64_t *left;  /* slots of which the key has a new one */
    int64_t n_left, left_capacity;
};

static void put_key(const void *owner, int64_t key, int64_t *const *columns, int64_t at) {
    const md_expiry *e = owner;
    columns[0][at] = key;
    columns[1][at] = e->keys[key].latest;
    columns[2][at] = e->keys[key].slot;
}

static const char *const KEY_NAMES[] = {"key", "latest", "slot"};
static const md_items_kind KEYS = {.width = 3, .names = KEY_NAMES, .put = put_key};

md_rc md_expiry_new(int64_t limit_us, md_expiry **out, md_error *err) {
    if (limit_us < 1 || limit_us > MD_SIZE_LIMIT) return md_fail(err, MD_BADARG, "a limit of %lld us", (long long)limit_us);
    md_expiry *e = md_calloc(1, sizeof *e);
    if (e == NULL) return md_nomem(err);
    e->limit = limit_us;
    md_items_init(&e->items, &KEYS, e);
    *out = e;
    return MD_OK;
}

void md_expiry_free(md_expiry *e) {
    if (e == NULL) return;
    md_items_free(&e->items);
    md_free(e->keys);
    md_free(e->left);
    md_free(e);
}

md_rc md_expiry_assign(md_expiry *e, const md_column *ids, const md_column *times, int64_t n, int64_t *slots,
                       md_error *err) {
    int64_t largest = -1;
    for (int64_t i = 0; i < n; i++) {
        int32_t key = md_load_i32(ids->values + 4 * i);
        int64_t t = md_column_i64(times, i);
        if (key < 0 || t < -MD_TIME_LIMIT || t >= MD_TIME_LIMIT)
            return md_fail(err, MD_BADARG, "row %lld: key %d at %lld us", (long long)i, key, (long long)t);
        if (key > largest) largest = key;
    }
    if (!md_grow(&e->keys, &e->capacity, largest + 1, sizeof *e->keys) ||
        !md_grow(&e->left, &e->left_capacity, e->n_left + n, sizeof *e->left) ||
        md_items_reserve(&e->items, largest + 1) != MD_OK)
        return md_nomem(err);
    if (largest >= e->n) md_items_open_range(&e->items, e->n, largest + 1);
    while (e->n <= largest) e->keys[e->n++] = (expiring){.latest = INT64_MIN, .slot = -1};
    for (int64_t i = 0; i < n; i++) {
        int32_t number = md_load_i32(ids->values + 4 * i);
        expiring *key = &e->keys[number];
        int64_t t = md_column_i64(times, i);
        md_items_touch(&e->items, number);
        if (key->slot >= 0 && t - key->latest > e->limit) {
            e->left[e->n_left++] = key->slot;
            key->slot = -1;
        }
        if (key->slot < 0) key->slot = e->next_slot++;
        if (t > key->latest) key->latest = t;
        slots[i] = key->slot;
    }
    return MD_OK;
}

int64_t md_expiry_keys(const md_expiry *e) { return e->n; }

void md_expiry_read(const md_expiry *e, int64_t *latest, int64_t *slots) {
    for (int64_t k = 0; k < e->n; k++) {
        latest[k] = e->keys[k].latest;
        slots[k] = e->keys[k].slot;
    }
}

md_rc md_expiry_load(md_expiry *e, const int64_t *latest, const int64_t *slots, int64_t n, int64_t next_slot) {
    if (!md_grow(&e->keys, &e->capacity, n, sizeof *e->keys)) return MD_NOMEM;
    md_items_clear(&e->items);
    if (md_items_reserve(&e->items, n) != MD_OK) return MD_NOMEM;
    if (n > 0) md_items_open_range(&e->items, 0, n);
    for (int64_t k = 0; k < n; k++) e->keys[k] = (expiring){.latest = latest[k], .slot = slots[k]};
    e->n = n;
    e->next_slot = next_slot;
    return MD_OK;
}

int64_t md_expiry_next_slot(const md_expiry *e) { return e->next_slot; }

md_items *md_expiry_items(md_expiry *e) { return &e->items; }

const int64_t *md_expiry_left(const md_expiry *e, int64_t *n) {
    *n = e->n_left;
    return e->n_left > 0 ? e->left : NULL;
}

void md_expiry_forget_left(md_expiry *e) { e->n_left = 0; }

size_t md_expiry_nbytes(const md_expiry *e) {
    return sizeof *e + (size_t)e->capacity * sizeof *e->keys + (size_t)e->left_capacity * sizeof *e->left +
           md_items_nbytes(&e->items);
}
