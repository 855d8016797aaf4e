#include "window/window_session.h"

#include "base/md_alloc.h"
#include "window/window_private.h"

#define NONE (-1)

typedef struct session {
    int64_t first, last, position, slot;
    int32_t key;        /* NONE: joined to another, still in the heap */
    int32_t next;       /* of the key's chain, or of the free ones */
    int32_t part, tail; /* the other slots, in order; NONE */
} session;

typedef struct part {
    int64_t slot;
    int32_t next;
} part;

typedef struct entry {
    int64_t end;
    int32_t session;
} entry;

struct md_sessions {
    int64_t gap, next_slot, taken, n_open, n_parts;
    int32_t *heads; /* per key */
    int64_t n_heads, heads_capacity;
    session *sessions;
    int64_t n_sessions, sessions_capacity;
    part *parts;
    int64_t parts_used, parts_capacity;
    int32_t free_session, free_part;
    entry *heap;
    int64_t n_heap, heap_capacity;
    md_items items; /* the sessions, by where they stand in `sessions` */
};

enum { KEY, FIRST, LAST, POSITION, SLOT, SESSION, WIDTH };

static int64_t rows_of(const void *owner, int64_t at) {
    const md_sessions *s = owner;
    int64_t n = 1;
    for (int32_t p = s->sessions[at].part; p != NONE; p = s->parts[p].next) n++;
    return n;
}

static void put_rows(const void *owner, int64_t at, int64_t *const *columns, int64_t row) {
    const md_sessions *s = owner;
    const session *each = &s->sessions[at];
    int64_t slot = each->slot;
    for (int32_t p = each->part;; p = s->parts[p].next) {
        const int64_t values[WIDTH] = {each->key, each->first, each->last, each->position, slot, at};
        for (int32_t c = 0; c < WIDTH; c++) columns[c][row] = values[c];
        row++;
        if (p == NONE) return;
        slot = s->parts[p].slot;
    }
}

static const char *const NAMES[WIDTH] = {"key", "first", "last", "position", "slot", "session"};
static const md_items_kind KIND = {.width = WIDTH, .names = NAMES, .rows = rows_of, .put = put_rows};

md_rc md_sessions_new(int64_t gap, md_sessions **out, md_error *err) {
    if (gap < 1 || gap > MD_SIZE_LIMIT) return md_fail(err, MD_BADARG, "a gap of %lld us", (long long)gap);
    md_sessions *s = md_calloc(1, sizeof *s);
    if (s == NULL) return md_nomem(err);
    s->gap = gap;
    s->free_session = s->free_part = NONE;
    md_items_init(&s->items, &KIND, s);
    *out = s;
    return MD_OK;
}

void md_sessions_free(md_sessions *s) {
    if (s == NULL) return;
    md_free(s->heads);
    md_free(s->sessions);
    md_free(s->parts);
    md_free(s->heap);
    md_items_free(&s->items);
    md_free(s);
}

/* ---- heap ---- */

/* By end, then number: so what leaves after a call that failed and was undone leaves in the same order. */
static inline bool before(entry a, entry b) { return a.end < b.end || (a.end == b.end && a.session < b.session); }

static void sift_down(md_sessions *s, int64_t at) {
    entry moved = s->heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= s->n_heap) break;
        if (child + 1 < s->n_heap && before(s->heap[child + 1], s->heap[child])) child++;
        if (!before(s->heap[child], moved)) break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = moved;
}

static void heap_push(md_sessions *s, entry e) {
    int64_t at = s->n_heap++;
    while (at > 0 && before(e, s->heap[(at - 1) / 2])) {
        s->heap[at] = s->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    s->heap[at] = e;
}

static void heap_pop(md_sessions *s) {
    s->heap[0] = s->heap[--s->n_heap];
    if (s->n_heap > 0) sift_down(s, 0);
}

static void free_session(md_sessions *s, int32_t at) {
    s->sessions[at].next = s->free_session;
    s->free_session = at;
}

/* The top becomes an open session with its end as it is now; false: there is none. */
static bool settle_top(md_sessions *s) {
    while (s->n_heap > 0) {
        int32_t at = s->heap[0].session;
        const session *top = &s->sessions[at];
        if (top->key == NONE) {
            heap_pop(s);
            free_session(s, at);
        } else if (top->last + s->gap > s->heap[0].end) {
            s->heap[0].end = top->last + s->gap;
            sift_down(s, 0);
        } else {
            return true;
        }
    }
    return false;
}

/* ---- rows in ---- */

static md_rc heads_up_to(md_sessions *s, int64_t n) {
    if (!md_grow(&s->heads, &s->heads_capacity, n, sizeof *s->heads)) return MD_NOMEM;
    while (s->n_heads < n) s->heads[s->n_heads++] = NONE;
    return MD_OK;
}

static md_rc open_session(md_sessions *s, session made, int32_t *out) {
    if (!md_grow(&s->heap, &s->heap_capacity, s->n_heap + 1, sizeof *s->heap)) return MD_NOMEM;
    int32_t at = s->free_session;
    if (at != NONE) {
        s->free_session = s->sessions[at].next;
    } else {
        if (s->n_sessions >= INT32_MAX || md_items_reserve(&s->items, s->n_sessions + 1) != MD_OK ||
            !md_grow(&s->sessions, &s->sessions_capacity, s->n_sessions + 1, sizeof *s->sessions))
            return MD_NOMEM;
        at = (int32_t)s->n_sessions++;
    }
    md_items_open(&s->items, at);
    made.next = s->heads[made.key];
    made.part = made.tail = NONE;
    s->sessions[at] = made;
    s->heads[made.key] = at;
    heap_push(s, (entry){.end = made.last + s->gap, .session = at});
    s->n_open++;
    s->n_parts++;
    *out = at;
    return MD_OK;
}

static void unlink_session(md_sessions *s, int32_t at) {
    int32_t *link = &s->heads[s->sessions[at].key];
    while (*link != at) link = &s->sessions[*link].next;
    *link = s->sessions[at].next;
}

/* Room for one more part; false: there is no memory for it, and nothing changed. */
static bool part_room(md_sessions *s) {
    return s->free_part != NONE ||
           (s->parts_used < INT32_MAX && md_grow(&s->parts, &s->parts_capacity, s->parts_used + 1, sizeof *s->parts));
}

/* There is room for it. */
static void add_part(md_sessions *s, session *to, int64_t slot) {
    int32_t at = s->free_part;
    if (at != NONE) s->free_part = s->parts[at].next;
    else at = (int32_t)s->parts_used++;
    s->parts[at] = (part){.slot = slot, .next = NONE};
    if (to->tail == NONE) to->part = at;
    else s->parts[to->tail].next = at;
    to->tail = at;
}

/* The later session becomes a part of the earlier one; there is room for it. */
static void join(md_sessions *s, int32_t earlier, int32_t later) {
    session *a = &s->sessions[earlier], *b = &s->sessions[later];
    md_items_grow(&s->items, earlier);
    md_items_close(&s->items, later);
    add_part(s, a, b->slot);
    if (b->part != NONE) {
        s->parts[a->tail].next = b->part;
        a->tail = b->tail;
    }
    if (b->last > a->last) a->last = b->last;
    if (b->position < a->position) a->position = b->position;
    unlink_session(s, later);
    b->key = NONE;
    s->n_open--;
}

static md_rc place(md_sessions *s, int32_t key, int64_t t, int64_t position, int64_t *slot) {
    int32_t found = NONE, other = NONE;
    for (int32_t at = s->heads[key]; at != NONE; at = s->sessions[at].next) {
        const session *each = &s->sessions[at];
        if (t <= each->first - s->gap || t >= each->last + s->gap) continue;
        if (found == NONE) {
            found = at;
            if (t >= each->first && t <= each->last) break;
        } else {
            other = at;
            break;
        }
    }
    if (found == NONE) {
        session made = {.first = t, .last = t, .position = position, .slot = s->next_slot, .key = key};
        md_rc rc = open_session(s, made, &found);
        if (rc != MD_OK) return rc;
        s->next_slot++;
    } else {
        if (other != NONE && !part_room(s)) return MD_NOMEM;
        if (other != NONE && s->sessions[other].first < s->sessions[found].first) {
            int32_t swapped = found;
            found = other;
            other = swapped;
        }
        session *to = &s->sessions[found];
        md_items_touch(&s->items, found);
        if (t < to->first) to->first = t;
        if (t > to->last) to->last = t;
        if (other != NONE) join(s, found, other);
    }
    *slot = s->sessions[found].slot;
    return MD_OK;
}

md_rc md_sessions_assign(md_sessions *s, const md_column *ids, const md_column *times, int64_t n, int64_t *slots,
                         md_error *err) {
    int32_t largest = NONE;
    for (int64_t i = 0; i < n; i++) {
        int32_t key = md_load_i32(ids->values + 4 * i);
        int64_t t = md_column_i64(times, i);
        if (key < 0 || t < -MD_TIME_LIMIT || t >= MD_TIME_LIMIT)
            return md_fail(err, MD_BADARG, "row %lld: key %d at %lld us", (long long)i, key, (long long)t);
        if (key > largest) largest = key;
    }
    md_rc rc = heads_up_to(s, (int64_t)largest + 1);
    for (int64_t i = 0; rc == MD_OK && i < n; i++) {
        int32_t key = md_load_i32(ids->values + 4 * i), at = s->heads[key];
        int64_t t = md_column_i64(times, i);
        session *only = at != NONE ? &s->sessions[at] : NULL;
        if (MD_LIKELY(only != NULL && t >= only->first && t < only->last + s->gap && only->next == NONE)) {
            if (t > only->last) { /* the usual case */
                md_items_touch(&s->items, at);
                only->last = t;
            }
            slots[i] = only->slot;
            continue;
        }
        rc = place(s, key, t, s->taken + i, &slots[i]);
    }
    if (rc != MD_OK) return md_nomem(err);
    s->taken += n;
    return MD_OK;
}

/* ---- rows out ---- */

static md_rc new_rows(md_rows **out) {
    md_rc rc = md_rows_new(WIDTH, out);
    for (int32_t c = 0; rc == MD_OK && c < WIDTH; c++) md_rows_define(*out, c, "l", NAMES[c], false);
    return rc;
}

static md_rc put_session(const md_sessions *s, md_rows *rows, int32_t at) {
    const session *each = &s->sessions[at];
    int64_t slot = each->slot;
    for (int32_t p = each->part;; p = s->parts[p].next) {
        md_rc rc = md_rows_reserve(rows, 1);
        if (rc != MD_OK) return rc;
        const int64_t values[WIDTH] = {each->key, each->first, each->last, each->position, slot, at};
        for (int32_t c = 0; c < WIDTH; c++) md_rows_words(rows, c)->i = values[c];
        md_rows_commit(rows, 1);
        if (p == NONE) return MD_OK;
        slot = s->parts[p].slot;
    }
}

/* Take a session out of its chain; the heap has let it go. */
static void end_session(md_sessions *s, int32_t at) {
    session *each = &s->sessions[at];
    md_items_close(&s->items, at);
    unlink_session(s, at);
    s->n_open--;
    s->n_parts--;
    for (int32_t p = each->part; p != NONE;) {
        int32_t next = s->parts[p].next;
        s->parts[p].next = s->free_part;
        s->free_part = p;
        s->n_parts--;
        p = next;
    }
    free_session(s, at);
}

static md_rc close_rows(md_sessions *s, int64_t boundary, int64_t most, md_rows *rows, entry **closed, int64_t *n) {
    int64_t capacity = 0;
    while (settle_top(s) && s->heap[0].end <= boundary) {
        if (*n >= most && s->heap[0].end != (*closed)[*n - 1].end) return MD_OK;
        if (!md_grow(closed, &capacity, *n + 1, sizeof **closed)) return MD_NOMEM;
        md_rc rc = put_session(s, rows, s->heap[0].session);
        if (rc != MD_OK) return rc;
        (*closed)[(*n)++] = s->heap[0];
        heap_pop(s);
    }
    return MD_OK;
}

md_rc md_sessions_rows(md_sessions *s, bool close, int64_t boundary, int64_t most, struct ArrowSchema *schema,
                       struct ArrowArray *array, md_error *err) {
    md_rows *rows = NULL;
    entry *closed = NULL;
    int64_t n = 0;
    md_rc rc = new_rows(&rows);
    if (rc == MD_OK && close) rc = close_rows(s, boundary, most, rows, &closed, &n);
    for (int64_t key = 0; rc == MD_OK && !close && key < s->n_heads; key++)
        for (int32_t at = s->heads[key]; rc == MD_OK && at != NONE; at = s->sessions[at].next)
            rc = put_session(s, rows, at);
    if (rc == MD_OK) rc = md_rows_finish(rows, schema, array);
    for (int64_t i = 0; i < n; i++) {
        if (rc == MD_OK) end_session(s, closed[i].session);
        else heap_push(s, closed[i]);
    }
    md_free(closed);
    md_rows_free(rows);
    return rc == MD_OK ? MD_OK : md_fail(err, rc, "out of memory");
}

/* ---- loading ---- */

static md_rc bad_row(md_error *err, int64_t row, const char *what) {
    return md_fail(err, MD_BADDATA, "row %lld of the sessions: %s", (long long)row, what);
}

static md_rc load_row(md_sessions *s, const md_column *c, int64_t i, int32_t *open, int64_t *number, int64_t n_keys,
                      int64_t next_slot, int64_t taken, md_error *err) {
    int64_t v[WIDTH];
    for (int32_t k = 0; k < WIDTH; k++) v[k] = md_column_i64(&c[k], i);
    if (v[SLOT] < 0 || v[SLOT] >= next_slot) return bad_row(err, i, "a slot that was never given");
    if (i > 0 && v[SESSION] == *number) {
        session *to = &s->sessions[*open];
        if (v[KEY] != to->key || v[FIRST] != to->first || v[LAST] != to->last || v[POSITION] != to->position)
            return bad_row(err, i, "parts of one session differ");
        if (!part_room(s)) return md_nomem(err);
        s->n_parts++;
        md_items_grow(&s->items, *open);
        add_part(s, to, v[SLOT]);
        return MD_OK;
    }
    if (v[KEY] < 0 || v[KEY] >= n_keys) return bad_row(err, i, "a key that isn't there");
    if (v[FIRST] < -MD_TIME_LIMIT || v[FIRST] > v[LAST] || v[LAST] >= MD_TIME_LIMIT)
        return bad_row(err, i, "times out of order or out of range");
    if (v[POSITION] < 0 || v[POSITION] >= taken) return bad_row(err, i, "a position beyond the rows taken");
    for (int32_t at = s->heads[v[KEY]]; at != NONE; at = s->sessions[at].next)
        if (v[FIRST] < s->sessions[at].last + s->gap && s->sessions[at].first < v[LAST] + s->gap)
            return bad_row(err, i, "two sessions of one key are less than the gap apart");
    session made = {.first = v[FIRST], .last = v[LAST], .position = v[POSITION], .slot = v[SLOT], .key = (int32_t)v[KEY]};
    *number = v[SESSION];
    return open_session(s, made, open) == MD_OK ? MD_OK : md_nomem(err);
}

md_rc md_sessions_load(md_sessions *s, const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int64_t n_keys, int64_t next_slot, int64_t taken, md_error *err) {
    md_column columns[WIDTH];
    int64_t n, number = 0;
    int32_t open = NONE;
    if (s->taken != 0 || s->n_open != 0) return md_fail(err, MD_BADARG, "only sessions that never took a row can load");
    if (n_keys < 0 || n_keys > INT32_MAX || next_slot < 0 || taken < 0)
        return md_fail(err, MD_BADARG, "a negative number of keys, slots or rows");
    md_rc rc = md_columns_view(schema, array, WIDTH, columns, &n, err);
    if (rc != MD_OK) return rc;
    for (int32_t c = 0; c < WIDTH; c++)
        if (columns[c].type != MD_I64 || md_column_nulls(&columns[c]) != 0)
            return md_fail(err, MD_BADARG, "column %d of the sessions isn't int64 without nulls", c);
    if (heads_up_to(s, n_keys) != MD_OK) return md_nomem(err);
    for (int64_t i = 0; rc == MD_OK && i < n; i++)
        rc = load_row(s, columns, i, &open, &number, n_keys, next_slot, taken, err);
    if (rc != MD_OK) { /* as before it */
        s->n_heads = s->n_sessions = s->parts_used = s->n_heap = s->n_open = s->n_parts = 0;
        md_items_clear(&s->items);
        return rc;
    }
    s->next_slot = next_slot;
    s->taken = taken;
    return MD_OK;
}

md_rc md_sessions_renumber(md_sessions *s, const int64_t *ids, int64_t n, md_error *err) {
    int64_t used = 0, at = 0;
    for (int64_t key = 0; key < s->n_heads; key++) used += s->heads[key] != NONE;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= s->n_heads || s->heads[ids[i]] == NONE || (i > 0 && ids[i] <= ids[i - 1]))
            return md_fail(err, MD_BADARG, "key %lld has no session or is out of order", (long long)ids[i]);
    if (used != n) return md_fail(err, MD_BADARG, "%lld keys of %lld", (long long)n, (long long)used);
    (void)md_items_keep_all(&s->items); /* else that copy has failed; keys and numbers go together */
    for (; at < n; at++) {
        s->heads[at] = s->heads[ids[at]];
        for (int32_t each = s->heads[at]; each != NONE; each = s->sessions[each].next) s->sessions[each].key = (int32_t)at;
    }
    s->n_heads = n;
    return MD_OK;
}

md_items *md_sessions_items(md_sessions *s) { return &s->items; }

int64_t md_sessions_next_end(md_sessions *s) { return settle_top(s) ? s->heap[0].end : INT64_MAX; }
int64_t md_sessions_open(const md_sessions *s) { return s->n_open; }
int64_t md_sessions_parts(const md_sessions *s) { return s->n_parts; }
int64_t md_sessions_next_slot(const md_sessions *s) { return s->next_slot; }
int64_t md_sessions_taken(const md_sessions *s) { return s->taken; }

size_t md_sessions_nbytes(const md_sessions *s) {
    return sizeof *s + (size_t)s->heads_capacity * sizeof *s->heads + (size_t)s->sessions_capacity * sizeof *s->sessions +
           (size_t)s->parts_capacity * sizeof *s->parts + (size_t)s->heap_capacity * sizeof *s->heap +
           md_items_nbytes(&s->items);
}
