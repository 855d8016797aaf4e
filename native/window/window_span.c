#include "window/window_span.h"

#include "base/md_alloc.h"
#include "window/window_private.h"

#define NONE (-1)
#define INTEGER_MAX (INT64_C(1) << 62)
#define NUMBER_MAX 4503599627370496.0 /* 2^52 */

typedef struct pane {
    int64_t low, high, slot, position;
    int32_t next; /* younger; of the free ones */
    int32_t key;
} pane;

typedef struct key_state {
    md_word last;  /* rows counted, or the last value */
    int64_t next;  /* windows below it are closed */
    int32_t head, tail;
    bool known;    /* has had a row */
} key_state;

struct md_spans {
    md_span_kind kind;
    md_number size, advance;
    int64_t next_slot, taken, n_parts, n_closed;
    key_state *keys;
    int64_t n_keys, keys_capacity;
    pane *panes;
    int64_t panes_used, panes_capacity;
    int32_t free_pane;
    md_rows *closed;
    md_items key_items, pane_items; /* by where they stand in `keys` and `panes` */
    int64_t *left; /* slots of panes that were dropped */
    int64_t n_left, left_capacity;
    bool left_lost;
};

enum { KEY_WIDTH = 1 + MD_SPAN_KEY_COLUMNS };

static void put_key(const void *owner, int64_t at, int64_t *const *columns, int64_t row) {
    const key_state *key = &((const md_spans *)owner)->keys[at];
    const int64_t values[KEY_WIDTH] = {at, key->last.i, key->next};
    for (int32_t c = 0; c < KEY_WIDTH; c++) columns[c][row] = values[c];
}

static void put_pane(const void *owner, int64_t at, int64_t *const *columns, int64_t row) {
    const pane *p = &((const md_spans *)owner)->panes[at];
    const int64_t values[MD_SPAN_PANE_COLUMNS] = {p->key, p->low, p->high, p->slot, p->position};
    for (int32_t c = 0; c < MD_SPAN_PANE_COLUMNS; c++) columns[c][row] = values[c];
}

static const char *const KEY_NAMES[] = {"key", "last", "next_window"};
static const char *const PANE_NAMES[] = {"key", "low", "high", "slot", "position"};
static const md_items_kind KEY_KIND = {.width = KEY_WIDTH, .names = KEY_NAMES, .put = put_key};
static const md_items_kind PANE_KIND = {.width = MD_SPAN_PANE_COLUMNS, .names = PANE_NAMES, .put = put_pane};

enum { WINDOW, KEY, ROW, POSITION, SLOT, NUMBER, WIDTH };

static md_rc rows_of(const char *const *names, int32_t n, md_rows **out) {
    md_rc rc = md_rows_new(n, out);
    for (int32_t c = 0; rc == MD_OK && c < n; c++) md_rows_define(*out, c, "l", names[c], false);
    return rc;
}

md_rc md_spans_new(md_span_kind kind, md_number size, md_number advance, md_spans **out, md_error *err) {
    static const char *const names[WIDTH] = {"window", "key", "row", "position", "slot", "number"};
    bool good = kind == MD_SPAN_F64 ? advance.f > 0 && advance.f <= size.f && size.f < 1e300 && size.f / advance.f < 1e6
                                    : advance.i > 0 && advance.i <= size.i && size.i <= MD_SIZE_LIMIT;
    if (!good) return md_fail(err, MD_BADARG, "expected 0 < advance <= size");
    md_spans *s = md_calloc(1, sizeof *s);
    if (s == NULL) return md_nomem(err);
    s->kind = kind;
    s->size = size;
    s->advance = advance;
    s->free_pane = NONE;
    md_items_init(&s->key_items, &KEY_KIND, s);
    md_items_init(&s->pane_items, &PANE_KIND, s);
    if (rows_of(names, WIDTH, &s->closed) != MD_OK) {
        md_spans_free(s);
        return md_nomem(err);
    }
    *out = s;
    return MD_OK;
}

void md_spans_free(md_spans *s) {
    if (s == NULL) return;
    md_free(s->keys);
    md_free(s->panes);
    md_rows_free(s->closed);
    md_items_free(&s->key_items);
    md_items_free(&s->pane_items);
    md_free(s->left);
    md_free(s);
}

/* ---- numbers of windows ---- */

static void windows_of_i64(const md_spans *s, int64_t v, int64_t *low, int64_t *high) {
    int64_t advance = s->advance.i;
    *high = md_floor_to(v, advance) / advance;
    *low = md_floor_to(v - s->size.i, advance) / advance + 1;
}

static bool windows_of_f64(const md_spans *s, double v, int64_t *low, int64_t *high) {
    double advance = s->advance.f, size = s->size.f;
    double h = __builtin_floor(v / advance), l = __builtin_floor((v - size) / advance) + 1;
    if (!(h > -NUMBER_MAX && h < NUMBER_MAX && l > -NUMBER_MAX && l < NUMBER_MAX)) return false;
    /* What counts are the bounds as they will be told. */
    while (h * advance > v) h--;
    while ((h + 1) * advance <= v) h++;
    while ((l - 1) * advance + size > v) l--;
    while (l * advance + size <= v) l++;
    *low = (int64_t)l;
    *high = (int64_t)(h > l ? h : l);
    return true;
}

/* ---- panes ---- */

static md_rc add_pane(md_spans *s, key_state *key, pane made) {
    int32_t at = s->free_pane;
    if (at != NONE) {
        s->free_pane = s->panes[at].next;
    } else {
        if (s->panes_used >= INT32_MAX || md_items_reserve(&s->pane_items, s->panes_used + 1) != MD_OK ||
            !md_grow(&s->panes, &s->panes_capacity, s->panes_used + 1, sizeof *s->panes))
            return MD_NOMEM;
        at = (int32_t)s->panes_used++;
    }
    md_items_open(&s->pane_items, at);
    made.next = NONE;
    s->panes[at] = made;
    if (key->tail == NONE) key->head = at;
    else s->panes[key->tail].next = at;
    key->tail = at;
    s->n_parts++;
    return MD_OK;
}

static void drop_head(md_spans *s, key_state *key) {
    int32_t at = key->head;
    md_items_close(&s->pane_items, at);
    if (s->n_left < s->left_capacity || md_grow(&s->left, &s->left_capacity, s->n_left + 1, sizeof *s->left)) s->left[s->n_left++] = s->panes[at].slot;
    else s->left_lost = true;
    key->head = s->panes[at].next;
    if (key->head == NONE) key->tail = NONE;
    s->panes[at].next = s->free_pane;
    s->free_pane = at;
    s->n_parts--;
}

static md_rc put_window(md_spans *s, int64_t window, int64_t key_id, const key_state *key, int64_t row) {
    int64_t position = s->panes[key->head].position;
    for (int32_t at = key->head; at != NONE && s->panes[at].low <= window; at = s->panes[at].next) {
        md_rc rc = md_rows_reserve(s->closed, 1);
        if (rc != MD_OK) return rc;
        const int64_t values[WIDTH] = {window, key_id, row, position, s->panes[at].slot, s->n_closed};
        for (int32_t c = 0; c < WIDTH; c++) md_rows_words(s->closed, c)->i = values[c];
        md_rows_commit(s->closed, 1);
    }
    s->n_closed++;
    return MD_OK;
}

/* Close the windows of a key below `until`. */
static md_rc close_until(md_spans *s, int64_t key_id, int64_t until, int64_t row) {
    key_state *key = &s->keys[key_id];
    int64_t window = key->next;
    while (key->head != NONE) {
        const pane *head = &s->panes[key->head];
        if (head->high < window) { /* no open window needs it */
            drop_head(s, key);
            continue;
        }
        if (head->low > window) window = head->low;
        if (window >= until) break;
        md_rc rc = put_window(s, window, key_id, key, row);
        if (rc != MD_OK) return rc;
        window++;
    }
    if (until > key->next) key->next = until;
    return MD_OK;
}

/* ---- rows in ---- */

static md_rc keys_up_to(md_spans *s, int64_t n) {
    if (!md_grow(&s->keys, &s->keys_capacity, n, sizeof *s->keys) || md_items_reserve(&s->key_items, n) != MD_OK)
        return MD_NOMEM;
    for (; s->n_keys < n; s->n_keys++) {
        md_items_open(&s->key_items, s->n_keys);
        s->keys[s->n_keys] = (key_state){.next = s->kind == MD_SPAN_ROWS ? 0 : INT64_MIN, .head = NONE, .tail = NONE};
    }
    return MD_OK;
}

static md_rc place(md_spans *s, int64_t key_id, int64_t low, int64_t high, int64_t i, int64_t *slot) {
    key_state *key = &s->keys[key_id];
    const pane *tail = key->tail != NONE ? &s->panes[key->tail] : NULL;
    if (tail == NULL || tail->low != low || tail->high != high) {
        pane made = {.low = low, .high = high, .slot = s->next_slot, .position = s->taken + i, .key = (int32_t)key_id};
        md_rc rc = add_pane(s, key, made);
        if (rc != MD_OK) return rc;
        s->next_slot++;
        tail = &s->panes[key->tail];
    }
    *slot = tail->slot;
    return MD_OK;
}

static md_rc count_row(md_spans *s, int64_t key_id, int64_t i, int64_t *slot) {
    key_state *key = &s->keys[key_id];
    int64_t low, high, until, ignored, at = key->last.i;
    md_items_touch(&s->key_items, key_id);
    if (MD_LIKELY(s->advance.i == s->size.i && key->tail != NONE)) { /* tumbling, inside a window */
        *slot = s->panes[key->tail].slot;
        key->last.i = at + 1;
        if (at + 1 < (key->next + 1) * s->size.i) return MD_OK;
        return close_until(s, key_id, key->next + 1, i);
    }
    windows_of_i64(s, at, &low, &high);
    md_rc rc = place(s, key_id, low > 0 ? low : 0, high, i, slot);
    if (rc != MD_OK) return rc;
    key->last.i = at + 1;
    key->known = true;
    windows_of_i64(s, at + 1, &until, &ignored);
    return until > key->next ? close_until(s, key_id, until, i) : MD_OK;
}

static md_rc value_row(md_spans *s, int64_t key_id, const md_column *values, int64_t i, int64_t *slot) {
    key_state *key = &s->keys[key_id];
    int64_t low, high;
    md_word v;
    *slot = MD_SPAN_BAD;
    if (md_column_null(values, i)) return MD_OK;
    v.u = md_load_u64(values->values + 8 * i);
    if (s->kind == MD_SPAN_F64) {
        if (!windows_of_f64(s, v.f, &low, &high)) return MD_OK;
        if (key->known && v.f < key->last.f) *slot = MD_SPAN_LATE;
    } else {
        if (s->kind == MD_SPAN_U64 ? v.u > (uint64_t)INTEGER_MAX : v.i > INTEGER_MAX || v.i < -INTEGER_MAX) return MD_OK;
        windows_of_i64(s, v.i, &low, &high);
        if (key->known && v.i < key->last.i) *slot = MD_SPAN_LATE;
    }
    if (*slot == MD_SPAN_LATE) return MD_OK;
    md_items_touch(&s->key_items, key_id);
    key->last = v;
    key->known = true;
    md_rc rc = low > key->next ? close_until(s, key_id, low, i) : MD_OK;
    return rc == MD_OK ? place(s, key_id, low, high, i, slot) : rc;
}

md_rc md_spans_assign(md_spans *s, const md_column *ids, const md_column *values, int64_t n, int64_t *slots,
                      md_error *err) {
    int32_t largest = NONE;
    for (int64_t i = 0; i < n; i++) {
        int32_t key = md_load_i32(ids->values + 4 * i);
        if (key < 0) return md_fail(err, MD_BADARG, "row %lld: key %d", (long long)i, key);
        if (key > largest) largest = key;
    }
    md_rc rc = keys_up_to(s, (int64_t)largest + 1);
    for (int64_t i = 0; rc == MD_OK && i < n; i++) {
        int64_t key = md_load_i32(ids->values + 4 * i);
        rc = s->kind == MD_SPAN_ROWS ? count_row(s, key, i, &slots[i]) : value_row(s, key, values, i, &slots[i]);
    }
    if (rc != MD_OK) return md_nomem(err);
    s->taken += n;
    return MD_OK;
}

md_rc md_spans_finish(md_spans *s, md_error *err) {
    md_rc rc = MD_OK;
    for (int64_t key = 0; rc == MD_OK && key < s->n_keys; key++) {
        md_items_touch(&s->key_items, key);
        rc = close_until(s, key, INT64_MAX, -1);
    }
    return rc == MD_OK ? MD_OK : md_nomem(err);
}

md_rc md_spans_closed(md_spans *s, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err) {
    if (md_rows_finish(s->closed, schema, array) != MD_OK) return md_nomem(err);
    s->n_closed = 0;
    return MD_OK;
}

/* ---- state ---- */

md_rc md_spans_panes(const md_spans *s, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err) {
    md_rows *rows = NULL;
    int64_t n = 0, *columns[MD_SPAN_PANE_COLUMNS];
    md_rc rc = rows_of(PANE_NAMES, MD_SPAN_PANE_COLUMNS, &rows);
    if (rc == MD_OK) rc = md_rows_reserve(rows, s->n_parts);
    for (int32_t c = 0; rc == MD_OK && c < MD_SPAN_PANE_COLUMNS; c++)
        columns[c] = (int64_t *)(void *)md_rows_words(rows, c);
    for (int64_t k = 0; rc == MD_OK && k < s->n_keys; k++)
        for (int32_t at = s->keys[k].head; at != NONE; at = s->panes[at].next) put_pane(s, at, columns, n++);
    if (rc == MD_OK) {
        md_rows_commit(rows, n);
        rc = md_rows_finish(rows, schema, array);
    }
    md_rows_free(rows);
    return rc == MD_OK ? MD_OK : md_nomem(err);
}

static md_rc bad_row(md_error *err, int64_t row, const char *what) {
    return md_fail(err, MD_BADDATA, "row %lld of the panes: %s", (long long)row, what);
}

static md_rc load_key(md_spans *s, int64_t k, md_word last, int64_t next, md_error *err) {
    int64_t low, high;
    bool good;
    if (s->kind != MD_SPAN_ROWS && last.i == 0 && next == INT64_MIN) return MD_OK; /* only values that can't be so far */
    if (s->kind == MD_SPAN_ROWS) {
        good = last.i >= 1 && last.i <= INTEGER_MAX;
        if (good) windows_of_i64(s, last.i, &low, &high);
        good = good && next == (low > 0 ? low : 0);
    } else {
        good = s->kind == MD_SPAN_F64 ? windows_of_f64(s, last.f, &low, &high)
                                      : last.i >= (s->kind == MD_SPAN_U64 ? 0 : -INTEGER_MAX) && last.i <= INTEGER_MAX;
        if (good && s->kind != MD_SPAN_F64) windows_of_i64(s, last.i, &low, &high);
        good = good && (next == low || next == INT64_MAX);
    }
    if (!good) return md_fail(err, MD_BADDATA, "key %lld of the state: no such number", (long long)k);
    s->keys[k].last = last;
    s->keys[k].next = next;
    s->keys[k].known = true;
    return MD_OK;
}

static md_rc load_pane(md_spans *s, const md_column *c, int64_t i, int64_t next_slot, int64_t taken, md_error *err) {
    int64_t key_id = md_column_i64(&c[0], i);
    pane made = {.low = md_column_i64(&c[1], i), .high = md_column_i64(&c[2], i), .slot = md_column_i64(&c[3], i),
                 .position = md_column_i64(&c[4], i), .key = (int32_t)key_id};
    if (key_id < 0 || key_id >= s->n_keys) return bad_row(err, i, "a key that isn't there");
    key_state *key = &s->keys[key_id];
    if (made.slot < 0 || made.slot >= next_slot) return bad_row(err, i, "a slot that was never given");
    if (made.position < 0 || made.position >= taken) return bad_row(err, i, "a position beyond the rows taken");
    if (made.low > made.high || made.high < key->next) return bad_row(err, i, "a pane that no open window needs");
    if (key->tail != NONE) {
        const pane *tail = &s->panes[key->tail];
        bool same = tail->low == made.low && tail->high == made.high;
        if (same || tail->low > made.low || tail->high > made.high || tail->position >= made.position)
            return bad_row(err, i, "panes of a key don't ascend");
    }
    return add_pane(s, key, made) == MD_OK ? MD_OK : md_nomem(err);
}

md_rc md_spans_load(md_spans *s, const md_column *keys, int64_t n_keys, const md_column *panes, int64_t n_panes,
                    int64_t next_slot, int64_t taken, md_error *err) {
    if (s->taken != 0 || s->n_keys != 0) return md_fail(err, MD_BADARG, "only spans that never took a row can load");
    for (int32_t c = 0; c < MD_SPAN_KEY_COLUMNS + MD_SPAN_PANE_COLUMNS; c++) {
        const md_column *column = c < MD_SPAN_KEY_COLUMNS ? &keys[c] : &panes[c - MD_SPAN_KEY_COLUMNS];
        if (column->type != MD_I64 || md_column_nulls(column) != 0)
            return md_fail(err, MD_BADARG, "a column of the state isn't int64 without nulls");
    }
    if (n_keys > INT32_MAX || next_slot < 0 || taken < 0) return md_fail(err, MD_BADARG, "a number out of range");
    if (keys_up_to(s, n_keys) != MD_OK) return md_nomem(err);
    md_rc rc = MD_OK;
    for (int64_t k = 0; rc == MD_OK && k < n_keys; k++)
        rc = load_key(s, k, (md_word){.i = md_column_i64(&keys[0], k)}, md_column_i64(&keys[1], k), err);
    for (int64_t i = 0; rc == MD_OK && i < n_panes; i++) rc = load_pane(s, panes, i, next_slot, taken, err);
    if (rc != MD_OK) { /* as before it */
        s->n_keys = s->panes_used = s->n_parts = 0;
        md_items_clear(&s->key_items);
        md_items_clear(&s->pane_items);
        return rc;
    }
    s->next_slot = next_slot;
    s->taken = taken;
    return MD_OK;
}

md_items *md_spans_key_items(md_spans *s) { return &s->key_items; }
md_items *md_spans_pane_items(md_spans *s) { return &s->pane_items; }

const int64_t *md_spans_left(const md_spans *s, int64_t *n) {
    static const int64_t none;
    *n = s->n_left;
    return s->left_lost ? NULL : s->left != NULL ? s->left : &none;
}

void md_spans_forget_left(md_spans *s) {
    s->n_left = 0;
    s->left_lost = false;
}

int64_t md_spans_n_keys(const md_spans *s) { return s->n_keys; }
int64_t md_spans_parts(const md_spans *s) { return s->n_parts; }
int64_t md_spans_next_slot(const md_spans *s) { return s->next_slot; }
int64_t md_spans_taken(const md_spans *s) { return s->taken; }

size_t md_spans_nbytes(const md_spans *s) {
    return sizeof *s + (size_t)s->keys_capacity * sizeof *s->keys + (size_t)s->panes_capacity * sizeof *s->panes +
           md_rows_nbytes(s->closed) + (size_t)s->left_capacity * sizeof *s->left + md_items_nbytes(&s->key_items) + md_items_nbytes(&s->pane_items);
}
