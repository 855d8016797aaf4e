#include "state/changes.h"

#include "base/md_alloc.h"

enum { EPOCHS = 255 };

typedef struct held { /* a pane, when it was captured */
    int64_t start, number, groups;
} held;

typedef struct capture {
    int64_t number, n_panes;
    uint8_t epoch; /* what changed later has a later one */
    held *panes;
} capture;

struct md_changes {
    capture captures[MD_CAPTURES]; /* the oldest first */
    int32_t n;
    uint8_t now;
};

static void forget(md_changes *c, int32_t at) {
    md_free(c->captures[at].panes);
    c->n--;
    memmove(c->captures + at, c->captures + at + 1, (size_t)(c->n - at) * sizeof *c->captures);
}

void md_changes_free(md_changes *c) {
    if (c == NULL) return;
    while (c->n > 0) forget(c, 0);
    md_free(c);
}

size_t md_changes_nbytes(const md_changes *c) {
    size_t n = 0;
    if (c == NULL) return 0;
    for (int32_t i = 0; i < c->n; i++) n += (size_t)c->captures[i].n_panes * sizeof(held);
    return n + sizeof *c;
}

/* ---- finding ---- */

static const capture *capture_of(const md_window *w, int64_t number) {
    for (int32_t i = 0; w->changes != NULL && i < w->changes->n; i++)
        if (w->changes->captures[i].number == number) return &w->changes->captures[i];
    return NULL;
}

void md_changed_free(md_changed *changed) {
    md_free(changed->ids);
    md_free(changed->counts);
    md_free(changed->runs);
    *changed = (md_changed){0};
}

enum { LOOK = 32 };

/* Groups of the pane at or after `from` that have not changed: where they end. */
static int64_t unchanged_to(const uint8_t *epochs, int64_t from, int64_t n, uint8_t epoch) {
    int64_t id = from;
    for (; id + LOOK <= n; id += LOOK) { /* many at a time: few have changed */
        uint8_t latest = 0;
        for (int64_t k = 0; k < LOOK; k++) latest = epochs[id + k] > latest ? epochs[id + k] : latest;
        if (latest > epoch) break;
    }
    while (id < n && epochs[id] <= epoch) id++;
    return id;
}

/* Behind the others; false without memory. */
static bool put_ids(md_changed *out, int64_t *capacity, int64_t first, int64_t n) {
    if (!md_grow(&out->ids, capacity, out->count + n, sizeof *out->ids)) return false;
    for (int64_t k = 0; k < n; k++) out->ids[out->count++] = (int32_t)(first + k);
    return true;
}

/* The groups of a pane that changed, of the `known` it had, and those that came later. Stops at more than `most`. */
static md_rc find_in(const md_pane *pane, int64_t known, uint8_t epoch, int64_t most, md_changed *out,
                     int64_t *capacity) {
    const uint8_t *epochs = pane->marks.epochs;
    for (int64_t id = 0; (id = unchanged_to(epochs, id, known, epoch)) < known; id++) {
        if (!put_ids(out, capacity, id, 1)) return MD_NOMEM;
        if (out->count > most) return MD_EMPTY;
    }
    int64_t later = pane->keys->count - known;
    if (out->count + later > most) return MD_EMPTY;
    return put_ids(out, capacity, known, later) ? MD_OK : MD_NOMEM;
}

static void put_run(md_changed *out, int64_t start, int64_t length) {
    if (length == 0) return;
    int64_t *last = out->n_runs > 0 ? out->runs + 2 * (out->n_runs - 1) : NULL;
    if (last != NULL && last[0] + last[1] == start && start != out->n_old) { /* no run has rows of both */
        last[1] += length;
        return;
    }
    out->runs[2 * out->n_runs] = start;
    out->runs[2 * out->n_runs++ + 1] = length;
}

/* The pane had `known` groups, from row `at` of the table on. */
static void put_runs(int64_t at, int64_t known, int64_t first, int64_t end, md_changed *out) {
    int64_t next = 0; /* group */
    for (int64_t k = first; k < end; k++) {
        int64_t id = out->ids[k];
        put_run(out, at + next, (id < known ? id : known) - next);
        put_run(out, out->n_old + k, 1);
        next = id < known ? id + 1 : known;
    }
    put_run(out, at + next, known - next);
}

typedef struct cursor { /* in the panes of a capture */
    int64_t next, at;
} cursor;

/* How many groups the pane had then; their rows begin at c->at. */
static int64_t known_of(const capture *base, const md_pane *pane, cursor *c) {
    while (c->next < base->n_panes && base->panes[c->next].start < pane->start) c->at += base->panes[c->next++].groups;
    bool same = c->next < base->n_panes && base->panes[c->next].number == pane->number;
    return same ? base->panes[c->next].groups : 0;
}

static md_rc find_all(const md_window *w, const capture *base, md_changed *out) {
    int64_t capacity = 0, first = 0;
    cursor c = {0}, again = {0};
    out->counts = md_malloc((size_t)w->n_panes * sizeof *out->counts);
    if (out->counts == NULL) return MD_NOMEM;
    for (int64_t i = 0; i < w->n_panes; i++) {
        int64_t before = out->count, known = known_of(base, w->panes[i], &c);
        md_rc rc = find_in(w->panes[i], known, base->epoch, out->total / 2, out, &capacity);
        if (rc != MD_OK) return rc;
        out->counts[i] = out->count - before;
    }
    /* A run of its own for each, one before each, and one that ends each pane. */
    out->runs = md_malloc((size_t)(2 * out->count + w->n_panes + 1) * 2 * sizeof *out->runs);
    if (out->runs == NULL) return MD_NOMEM;
    for (int64_t i = 0; i < w->n_panes; i++) {
        int64_t known = known_of(base, w->panes[i], &again);
        put_runs(again.at, known, first, first + out->counts[i], out);
        first += out->counts[i];
    }
    return MD_OK;
}

md_rc md_changes_find(const md_window *w, int64_t number, md_changed *out) {
    const capture *base = capture_of(w, number);
    *out = (md_changed){0};
    if (base == NULL) return MD_EMPTY;
    for (int64_t i = 0; i < base->n_panes; i++) out->n_old += base->panes[i].groups;
    out->total = md_window_groups_open(w);
    md_rc rc = find_all(w, base, out);
    if (rc != MD_OK) md_changed_free(out);
    return rc;
}

/* ---- noting ---- */

/* Room for the epochs of all groups; those that are there already stay. */
static md_rc reserve(const md_window *w) {
    for (int64_t i = 0; i < w->n_panes; i++) {
        struct md_marks *marks = &w->panes[i]->marks;
        if (!md_grow(&marks->epochs, &marks->capacity, w->panes[i]->keys->count + 1, 1)) return MD_NOMEM;
    }
    return MD_OK;
}

/* The epochs are used up: what was captured before is not known any more. */
static void begin_anew(md_window *w) {
    while (w->changes->n > 0) forget(w->changes, 0);
    for (int64_t i = 0; i < w->n_panes; i++) w->panes[i]->marks.n = 0;
    w->changes->now = 0;
}

md_rc md_changes_note(md_window *w, int64_t number, int64_t base) {
    if (w->changes == NULL && (w->changes = md_calloc(1, sizeof *w->changes)) == NULL) return MD_NOMEM;
    md_changes *c = w->changes;
    capture made = {.number = number, .n_panes = w->n_panes};
    made.panes = md_malloc((size_t)w->n_panes * sizeof *made.panes);
    if (made.panes == NULL || reserve(w) != MD_OK) {
        md_free(made.panes);
        return MD_NOMEM;
    }
    while (c->n > 0 && c->captures[0].number < base) forget(c, 0);
    /* The base is the oldest now, and stays. */
    if (c->n == MD_CAPTURES) forget(c, c->captures[0].number == base ? 1 : 0);
    if (c->now == EPOCHS - 1) begin_anew(w);
    made.epoch = c->now++;
    for (int64_t i = 0; i < w->n_panes; i++) {
        md_pane *pane = w->panes[i];
        int64_t groups = pane->keys->count;
        made.panes[i] = (held){.start = pane->start, .number = pane->number, .groups = groups};
        memset(pane->marks.epochs + pane->marks.n, 0, (size_t)(groups - pane->marks.n) + 1);
        pane->marks.n = groups;
        pane->marks.now = c->now;
    }
    c->captures[c->n++] = made;
    return MD_OK;
}
