#include "state/items.h"

#include "arrow/rows.h"
#include "base/md_alloc.h"
#include "state/runs.h"

typedef struct many_rows {
    int64_t item, rows;
} many_rows;

/* Of those below only `changed` changes, in the owner's thread: a copy reads the others in any. */
struct md_items_capture {
    int64_t number, origin, words, end;
    uint64_t *open, *changed; /* then; after it, up to the next capture. One block */
    many_rows *many;          /* those with more than one row, ascending */
    int64_t n_many, rows;
    int32_t holders; /* the items, and copies, whose last one may go in another thread */
};

struct md_items_copy {
    md_items *items; /* NULL: it needs none any more, or it failed */
    const md_items_kind *kind;
    int64_t origin, words, next; /* next: word */
    uint64_t *left;              /* to be copied; those before `next` are */
    uint64_t *kept;              /* of those: its rows are in `store`. NULL: none is */
    int64_t *place;              /* of kept ones: where in the store; else anything */
    int64_t *store;              /* how many rows, and those, one after the other */
    int64_t stored, store_capacity;
    int64_t rows_left;
    md_items_capture *then, *now; /* what it is a delta on, and of what; NULL: all is copied */
    /* Known no more since it began: given back with it. The allocator may take ten milliseconds, when such a block lay
     * behind many that went before it, and whoever begins a copy is waited for. */
    md_items_capture *gone[MD_ITEMS_CAPTURES + 1];
    int32_t n_gone;
    bool failed, orphaned;
};

#define BIT(item) (UINT64_C(1) << ((item) & 63))

void md_items_init(md_items *m, const md_items_kind *kind, const void *owner) {
    *m = (md_items){.kind = kind, .owner = owner};
}

static md_items_capture *hold(md_items_capture *c) {
    __atomic_add_fetch(&c->holders, 1, __ATOMIC_RELAXED);
    return c;
}

static void let_go(md_items_capture *c) {
    if (c == NULL || __atomic_sub_fetch(&c->holders, 1, __ATOMIC_ACQ_REL) > 0) return;
    md_free(c->open);
    md_free(c->many);
    md_free(c);
}

static md_items_capture *take_out(md_items *m, int32_t at) {
    md_items_capture *c = m->captures[at];
    m->n_captures--;
    memmove(m->captures + at, m->captures + at + 1, (size_t)(m->n_captures - at) * sizeof *m->captures);
    return c;
}

static void forget_all(md_items *m) {
    while (m->n_captures > 0) let_go(take_out(m, m->n_captures - 1));
}

/* Of the captures that there were when a copy began. */
static void forget(md_items *m, int32_t at, md_items_copy *begun) { begun->gone[begun->n_gone++] = take_out(m, at); }

static void leave(md_items *m) {
    if (m->copy != NULL) m->copy->items = NULL;
    m->copy = NULL;
}

void md_items_free(md_items *m) {
    if (m->copy != NULL) m->copy->orphaned = true;
    leave(m);
    forget_all(m);
    md_free(m->open);
    md_free(m->many);
    md_free(m->watch);
    *m = (md_items){0};
}

size_t md_items_nbytes(const md_items *m) {
    size_t n = (size_t)m->capacity * (m->kind->rows != NULL ? 24 : 16);
    for (int32_t i = 0; i < m->n_captures; i++)
        n += (size_t)m->captures[i]->words * 16 + (size_t)m->captures[i]->n_many * sizeof(many_rows);
    return n;
}

static bool widen(uint64_t **bits, int64_t words, int64_t capacity) {
    uint64_t *made = md_realloc(*bits, (size_t)capacity * sizeof *made);
    if (made == NULL) return false;
    memset(made + words, 0, (size_t)(capacity - words) * sizeof *made);
    *bits = made;
    return true;
}

void md_items_begin_at(md_items *m, int64_t first) { m->origin = first & ~INT64_C(63); }

md_rc md_items_reserve(md_items *m, int64_t end) {
    int64_t words = (end - m->origin + 63) >> 6;
    if (words <= m->words) return MD_OK;
    if (words > m->capacity) {
        int64_t capacity = m->capacity + m->capacity / 2;
        if (capacity < words) capacity = words;
        if (capacity < 16) capacity = 16;
        if (!widen(&m->open, m->words, capacity) || !widen(&m->watch, m->words, capacity) ||
            (m->kind->rows != NULL && !widen(&m->many, m->words, capacity)))
            return MD_NOMEM; /* what became wider is no harm */
        m->capacity = capacity;
    }
    m->words = words;
    return MD_OK;
}

static void shift(uint64_t *bits, int64_t words, int64_t by) {
    memmove(bits, bits + by, (size_t)(words - by) * sizeof *bits);
    memset(bits + words - by, 0, (size_t)by * sizeof *bits);
}

int64_t md_items_trim(md_items *m) {
    int64_t gone = 0;
    while (gone < m->words - 1 && m->open[gone] == 0) gone++; /* the last one may be of items to come */
    if (gone == 0) return m->origin;
    shift(m->open, m->words, gone);
    shift(m->watch, m->words, gone);
    if (m->many != NULL) shift(m->many, m->words, gone);
    m->words -= gone;
    m->origin += 64 * gone;
    return m->origin;
}

int64_t md_items_first(const md_items *m) {
    int64_t word = 0;
    while (word < m->words && m->open[word] == 0) word++;
    return m->origin + 64 * word + (word < m->words ? __builtin_ctzll(m->open[word]) : 0);
}

/* ---- touches ---- */

static bool is_kept(const md_items_copy *c, int64_t item) {
    return c->kept != NULL && c->kept[(item - c->origin) >> 6] & BIT(item);
}

/* Room for what is kept, once it is needed: most of it is never touched. */
static bool make_store(md_items_copy *c) {
    c->kept = md_calloc((size_t)c->words, sizeof *c->kept);
    c->place = md_malloc(64 * (size_t)c->words * sizeof *c->place);
    if (c->kept != NULL && c->place != NULL) return true;
    md_free(c->kept);
    md_free(c->place);
    c->kept = NULL;
    c->place = NULL;
    return false;
}

/* Its rows as they are now; false without memory. */
static bool keep(md_items *m, md_items_copy *c, int64_t item) {
    if (c->kept == NULL && !make_store(c)) return false;
    int64_t rows = m->kind->rows != NULL ? m->kind->rows(m->owner, item) : 1, width = c->kind->width;
    int64_t *columns[MD_ITEMS_WIDTH], need = c->stored + 1 + rows * width;
    if (need > c->store_capacity) {
        int64_t capacity = need + need / 2 + 64;
        int64_t *store = md_realloc(c->store, (size_t)capacity * sizeof *store);
        if (store == NULL) return false;
        c->store = store;
        c->store_capacity = capacity;
    }
    c->store[c->stored] = rows;
    for (int64_t k = 0; k < width; k++) columns[k] = c->store + c->stored + 1 + k * rows;
    m->kind->put(m->owner, item, columns, 0);
    c->place[item - c->origin] = c->stored;
    c->kept[(item - c->origin) >> 6] |= BIT(item);
    c->stored = need;
    return true;
}

static void fail(md_items *m) {
    m->copy->failed = true;
    leave(m);
}

void md_items_give_up(md_items *m) {
    if (m->copy != NULL) fail(m);
}

static bool is_in(int64_t item, int64_t origin, int64_t words) { return item >= origin && item < origin + 64 * words; }

void md_items_touched(md_items *m, int64_t item) {
    m->watch[(item - m->origin) >> 6] &= ~BIT(item);
    if (m->n_captures > 0) {
        md_items_capture *last = m->captures[m->n_captures - 1];
        if (is_in(item, last->origin, last->words)) last->changed[(item - last->origin) >> 6] |= BIT(item);
    }
    md_items_copy *c = m->copy;
    if (c == NULL || !is_in(item, c->origin, c->words)) return;
    int64_t word = (item - c->origin) >> 6;
    if (word >= c->next && c->left[word] & BIT(item) && !is_kept(c, item) && !keep(m, c, item)) fail(m);
}

/* 64 at a time: bits [from, to) of a word. */
static uint64_t mask_of(int64_t from, int64_t to) {
    return (to < 64 ? (UINT64_C(1) << to) - 1 : ~UINT64_C(0)) & ~((UINT64_C(1) << from) - 1);
}

static void set_range(md_items *m, int64_t first, int64_t end, bool open) {
    for (int64_t at = first & ~INT64_C(63); at < end; at += 64) {
        uint64_t mask = mask_of(first > at ? first - at : 0, end - at);
        int64_t word = (at - m->origin) >> 6;
        if (at < m->watched)
            for (uint64_t bits = m->watch[word] & mask; bits != 0; bits &= bits - 1)
                md_items_touched(m, at + __builtin_ctzll(bits));
        m->open[word] = open ? m->open[word] | mask : m->open[word] & ~mask;
        if (m->many != NULL && !open) m->many[word] &= ~mask;
    }
}

void md_items_open_range(md_items *m, int64_t first, int64_t end) { set_range(m, first, end, true); }
void md_items_close_range(md_items *m, int64_t first, int64_t end) { set_range(m, first, end, false); }

md_rc md_items_keep_all(md_items *m) {
    md_items_copy *c = m->copy;
    if (c == NULL) return MD_OK;
    for (int64_t word = c->next; word < c->words; word++) {
        for (uint64_t bits = c->left[word] & ~(c->kept != NULL ? c->kept[word] : 0); bits != 0; bits &= bits - 1) {
            if (keep(m, c, c->origin + 64 * word + __builtin_ctzll(bits))) continue;
            fail(m);
            return MD_NOMEM;
        }
    }
    leave(m); /* nothing more is asked of the owner */
    return MD_OK;
}

void md_items_clear(md_items *m) {
    (void)md_items_keep_all(m); /* else that copy has failed */
    leave(m);
    forget_all(m);
    if (m->words > 0) {
        memset(m->open, 0, (size_t)m->words * sizeof *m->open);
        memset(m->watch, 0, (size_t)m->words * sizeof *m->watch);
        if (m->many != NULL) memset(m->many, 0, (size_t)m->words * sizeof *m->many);
    }
    m->origin = m->words = m->watched = 0;
}

/* ---- captures ---- */

/* Those with more than one row, ascending; *rows: of all. NULL without memory. */
static many_rows *find_many(const md_items *m, int64_t *n, int64_t *rows) {
    int64_t count = 0, at = 0, total = 0;
    for (int64_t w = 0; w < m->words; w++) {
        total += md_bits(m->open[w]);
        if (m->many != NULL) count += md_bits(m->many[w]);
    }
    many_rows *made = md_malloc((size_t)count * sizeof *made);
    if (made == NULL) return NULL;
    for (int64_t w = 0; count > 0 && w < m->words; w++) {
        for (uint64_t bits = m->many[w]; bits != 0; bits &= bits - 1) {
            int64_t item = m->origin + 64 * w + __builtin_ctzll(bits);
            made[at] = (many_rows){.item = item, .rows = m->kind->rows(m->owner, item)};
            total += made[at++].rows - 1;
        }
    }
    *n = count;
    *rows = total;
    return made;
}

/* All items as they are; NULL without memory. */
static md_items_capture *capture_of(const md_items *m, int64_t number) {
    md_items_capture *c = md_calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    *c = (md_items_capture){.number = number, .origin = m->origin, .words = m->words, .holders = 1};
    c->end = m->origin + 64 * m->words;
    c->open = md_calloc(2 * (size_t)m->words, sizeof *c->open);
    c->many = find_many(m, &c->n_many, &c->rows);
    if (c->open == NULL || c->many == NULL) {
        let_go(c);
        return NULL;
    }
    c->changed = c->open + m->words;
    if (m->words > 0) memcpy(c->open, m->open, (size_t)m->words * sizeof *c->open);
    return c;
}

/* What was touched after a capture was touched after the one before it too. */
static void forget_into(md_items *m, int32_t at, md_items_copy *begun) {
    md_items_capture *to = m->captures[at - 1], *c = m->captures[at];
    int64_t by = (c->origin - to->origin) >> 6; /* not negative: numbers only grow */
    for (int64_t w = 0; w < c->words && by + w < to->words; w++) to->changed[by + w] |= c->changed[w];
    forget(m, at, begun);
}

static void note(md_items *m, md_items_capture *made, int64_t base, md_items_copy *begun) {
    while (m->n_captures > 0 && m->captures[0]->number < base) forget(m, 0, begun);
    /* The base is the oldest now, and stays, with what was touched since. */
    if (m->n_captures == MD_ITEMS_CAPTURES) {
        if (m->captures[0]->number == base) forget_into(m, 1, begun);
        else forget(m, 0, begun);
    }
    m->captures[m->n_captures++] = made;
}

/* ---- what changed ---- */

static uint64_t word_of(const uint64_t *bits, int64_t origin, int64_t words, int64_t at) {
    int64_t w = (at - origin) >> 6;
    return w >= 0 && w < words ? bits[w] : 0;
}

/* Those touched since a capture, or that came behind it: bits of the items from `origin` on. */
static void changed_since(const md_items *m, int32_t base, int64_t origin, int64_t words, uint64_t *changed) {
    for (int32_t i = base; i < m->n_captures; i++) {
        const md_items_capture *c = m->captures[i];
        int64_t from = (c->origin - origin) >> 6; /* of `changed`; negative where that begins later */
        int64_t first = from > 0 ? from : 0, end = from + c->words < words ? from + c->words : words;
        for (int64_t w = first; w < end; w++) changed[w] |= c->changed[w - from];
    }
    for (int64_t w = (m->captures[base]->end - origin) >> 6; w < words; w++)
        if (w >= 0) changed[w] = ~UINT64_C(0);
}

typedef struct counter { /* of rows, item by item */
    const many_rows *many;
    int64_t n;
} counter;

/* Rows of the items of a word; its many come next. */
static int64_t count(counter *c, int64_t at, uint64_t open) {
    int64_t rows = md_bits(open);
    for (; c->n > 0 && c->many->item < at + 64; c->many++, c->n--)
        if (c->many->item >= at && open & BIT(c->many->item)) rows += c->many->rows - 1;
    return rows;
}

/* The items of a word, of which some have more than one row: up to each that changed, then that one. */
static bool put_word(md_runs *r, int64_t at, uint64_t changed, uint64_t then, uint64_t now, counter *before,
                     counter *after) {
    uint64_t rest = ~UINT64_C(0);
    for (uint64_t bits = changed & (then | now); bits != 0; bits &= bits - 1) {
        uint64_t bit = bits & -bits;
        counter old = *before, gone = *before, fresh = *after;
        md_runs_keep(r, count(&old, at, then & (bit - 1) & rest));
        if (!md_runs_seek(r, r->old + count(&gone, at, then & bit))) return false;
        if (!md_runs_fresh(r, count(&fresh, at, now & bit))) return false;
        rest = ~(bit | (bit - 1));
    }
    md_runs_keep(r, count(before, at, then & rest));
    (void)count(after, at, 0);
    return true;
}

static bool has_many(const counter *c, int64_t at) { return c->n > 0 && c->many->item < at + 64; }

/* Up to where those go of which some are open then, but none is now. */
static bool skip_gone(md_runs *r, const md_items_capture *then, int64_t end, counter *before) {
    int64_t old = r->old;
    for (int64_t at = then->origin; at < end && at < then->end; at += 64)
        old += count(before, at, word_of(then->open, then->origin, then->words, at));
    return md_runs_seek(r, old);
}

/* What changed since a capture becomes what is left; false: more than half of all rows. How the table is made of that
 * is for who writes it (md_items_copy_runs): the owner waits for this. */
static bool find(md_items *m, int32_t base, md_items_capture *now, md_items_copy *c) {
    counter after = {now->many, now->n_many};
    changed_since(m, base, now->origin, now->words, c->left);
    for (int64_t w = 0; w < now->words; w++) {
        c->left[w] &= now->open[w];
        c->rows_left += count(&after, now->origin + 64 * w, c->left[w]);
    }
    if (c->rows_left > now->rows / 2) return false;
    c->then = hold(m->captures[base]);
    c->now = hold(now);
    return true;
}

/* Of a word of items: those that are left, and those that were open then and aren't now, are what changed. */
static bool put_runs(const md_items_copy *c, md_runs *r) {
    const md_items_capture *then = c->then, *now = c->now;
    counter before = {then->many, then->n_many}, after = {now->many, now->n_many};
    if (!skip_gone(r, then, now->origin, &before)) return false; /* what was trimmed has gone */
    for (int64_t w = 0; w < now->words; w++) {
        int64_t at = now->origin + 64 * w;
        uint64_t was = word_of(then->open, then->origin, then->words, at), is = now->open[w];
        uint64_t changed = c->left[w] | (was & ~is);
        bool put = has_many(&before, at) || has_many(&after, at) ? put_word(r, at, changed, was, is, &before, &after)
                                                                 : md_runs_word(r, changed, was, is);
        if (!put) return false;
    }
    return md_runs_flush(r);
}

/* ---- copies ---- */

static md_items_copy *copy_new(md_items *m) {
    md_items_copy *c = md_calloc(1, sizeof *c);
    if (c == NULL) return NULL;
    *c = (md_items_copy){.items = m, .kind = m->kind, .origin = m->origin, .words = m->words};
    c->left = md_calloc((size_t)m->words, sizeof *c->left);
    if (c->left != NULL) return c;
    md_free(c);
    return NULL;
}

md_rc md_items_copy_begin(md_items *m, int64_t number, int64_t base, md_items_copy **out, md_error *err) {
    (void)md_items_keep_all(m);
    leave(m);
    md_items_copy *c = copy_new(m);
    md_items_capture *now = c != NULL ? capture_of(m, number) : NULL;
    if (now == NULL) {
        if (c != NULL) c->items = NULL;
        md_items_copy_free(c);
        return md_nomem(err);
    }
    bool partial = false;
    for (int32_t i = 0; !partial && base > 0 && i < m->n_captures; i++)
        partial = m->captures[i]->number == base && find(m, i, now, c);
    if (!partial) {
        if (m->words > 0) memcpy(c->left, m->open, (size_t)m->words * sizeof *c->left);
        c->rows_left = now->rows;
    }
    if (number > 0) note(m, now, base, c);
    else c->gone[c->n_gone++] = now;
    if (m->words > 0) memset(m->watch, 0xff, (size_t)m->words * sizeof *m->watch);
    m->watched = m->origin + 64 * m->words;
    m->copy = *out = c;
    return MD_OK;
}

int64_t md_items_copy_base_rows(const md_items_copy *c) { return c->then != NULL ? c->then->rows : -1; }

md_rc md_items_copy_runs(const md_items_copy *c, int64_t **pairs, int64_t *n) {
    md_runs r = {.n_base = c->then->rows};
    bool put = put_runs(c, &r);
    if (put && r.pairs == NULL) put = (r.pairs = md_malloc(1)) != NULL;
    if (!put) {
        md_free(r.pairs);
        return MD_NOMEM;
    }
    *pairs = r.pairs;
    *n = r.n;
    return MD_OK;
}

int64_t md_items_copy_left(const md_items_copy *c) { return c->rows_left; }

static int64_t rows_of(const md_items_copy *c, int64_t item) {
    if (is_kept(c, item)) return c->store[c->place[item - c->origin]];
    return c->kind->rows != NULL ? c->kind->rows(c->items->owner, item) : 1;
}

/* Whole words, until there are `rows`: where they end, and their rows. */
static int64_t end_of(const md_items_copy *c, int64_t rows, int64_t *n) {
    int64_t word = c->next;
    for (*n = 0; word < c->words && *n < rows; word++) {
        if (c->kind->rows == NULL) {
            *n += md_bits(c->left[word]);
            continue;
        }
        for (uint64_t bits = c->left[word]; bits != 0; bits &= bits - 1)
            *n += rows_of(c, c->origin + 64 * word + __builtin_ctzll(bits));
    }
    return word;
}

static int64_t put_item(const md_items_copy *c, int64_t item, int64_t *const *columns, int64_t at) {
    int64_t rows = rows_of(c, item);
    if (!is_kept(c, item)) {
        c->kind->put(c->items->owner, item, columns, at);
        return rows;
    }
    const int64_t *from = c->store + c->place[item - c->origin] + 1;
    for (int32_t k = 0; k < c->kind->width; k++)
        memcpy(columns[k] + at, from + k * rows, (size_t)rows * sizeof *from);
    return rows;
}

md_rc md_items_copy_next(md_items_copy *c, int64_t rows, struct ArrowSchema *schema, struct ArrowArray *array,
                         md_error *err) {
    md_rows *made = NULL;
    int64_t *columns[MD_ITEMS_WIDTH], n, at = 0;
    if (c->orphaned) return md_fail(err, MD_BADARG, "whose rows these are is gone");
    if (c->failed) return md_fail(err, MD_NOMEM, "out of memory for rows that changed during a copy");
    int64_t end = end_of(c, rows, &n);
    md_rc rc = md_rows_new(c->kind->width, &made);
    if (rc == MD_OK) {
        for (int32_t k = 0; k < c->kind->width; k++) md_rows_define(made, k, "l", c->kind->names[k], false);
        rc = md_rows_reserve(made, n);
    }
    if (rc == MD_OK) {
        for (int32_t k = 0; k < c->kind->width; k++) columns[k] = (int64_t *)(void *)md_rows_words(made, k);
        for (int64_t word = c->next; word < end; word++)
            for (uint64_t bits = c->left[word]; bits != 0; bits &= bits - 1)
                at += put_item(c, c->origin + 64 * word + __builtin_ctzll(bits), columns, at);
        md_rows_commit(made, n);
        rc = md_rows_finish(made, schema, array);
    }
    md_rows_free(made);
    if (rc != MD_OK) return md_nomem(err);
    c->next = end;
    c->rows_left -= n;
    if (c->rows_left == 0 && c->items != NULL) leave(c->items);
    return MD_OK;
}

void md_items_copy_free(md_items_copy *c) {
    if (c == NULL) return;
    if (c->items != NULL && c->items->copy == c) leave(c->items);
    md_free(c->left);
    md_free(c->kept);
    md_free(c->place);
    md_free(c->store);
    let_go(c->then);
    let_go(c->now);
    for (int32_t i = 0; i < c->n_gone; i++) let_go(c->gone[i]);
    md_free(c);
}
