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

/* Without room only counts. The pane had `known` groups, from row `at` of the table on. */
static void find_in(const md_pane *pane, int64_t at, int64_t known, uint8_t epoch, md_changed *out, bool room) {
    int64_t count = pane->keys->count;
    for (int64_t id = 0; id < count;) {
        int64_t end = id < known ? unchanged_to(pane->marks.epochs, id, known, epoch) : id;
        if (room) put_run(out, at + id, end - id);
        if (end < count && room) {
            put_run(out, out->n_old + out->count, 1);
            out->ids[out->count] = (int32_t)end;
        }
        if (end < count) out->count++;
        id = end + 1;
    }
}

static void find_all(const md_window *w, const capture *base, md_changed *out, bool room) {
    int64_t at = 0, next = 0;
    out->count = 0;
    for (int64_t i = 0; i < w->n_panes; i++) {
        const md_pane *pane = w->panes[i];
        while (next < base->n_panes && base->panes[next].start < pane->start) at += base->panes[next++].groups;
        bool known = next < base->n_panes && base->panes[next].number == pane->number;
        int64_t before = out->count;
        find_in(pane, at, known ? base->panes[next].groups : 0, base->epoch, out, room);
        if (room) out->counts[i] = out->count - before;
    }
}

md_rc md_changes_find(const md_window *w, int64_t number, md_changed *out) {
    const capture *base = capture_of(w, number);
    *out = (md_changed){0};
    if (base == NULL) return MD_EMPTY;
    for (int64_t i = 0; i < base->n_panes; i++) out->n_old += base->panes[i].groups;
    out->total = md_window_groups_open(w);
    find_all(w, base, out, false);
    if (out->count > out->total / 2) return MD_EMPTY;
    out->ids = md_malloc((size_t)out->count * sizeof *out->ids);
    out->counts = md_malloc((size_t)w->n_panes * sizeof *out->counts);
    /* A run of its own for each, one before each, and one that ends each pane. */
    out->runs = md_malloc((size_t)(2 * out->count + w->n_panes + 1) * 2 * sizeof *out->runs);
    if (out->ids == NULL || out->counts == NULL || out->runs == NULL) {
        md_changed_free(out);
        return MD_NOMEM;
    }
    find_all(w, base, out, true);
    return MD_OK;
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
