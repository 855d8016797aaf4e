#include "state/changes.h"

#include "base/md_alloc.h"
#include "state/runs.h"

enum { EPOCHS = 128 }; /* so that a byte has a bit to spare: see later_of */

typedef struct held { /* a pane, when it was captured */
    int64_t start, number, groups, rows; /* rows: groups that had not left */
    uint64_t *gone;                      /* those that had */
    int64_t gone_words;
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

static void panes_free(held *panes, int64_t n) {
    for (int64_t i = 0; panes != NULL && i < n; i++) md_free(panes[i].gone);
    md_free(panes);
}

static void forget(md_changes *c, int32_t at) {
    panes_free(c->captures[at].panes, c->captures[at].n_panes);
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
    md_free(changed->groups);
    md_free(changed->counts);
    md_free(changed->runs);
    *changed = (md_changed){0};
}

/* Of n <= 64 groups: those with a later epoch. */
static uint64_t later_of(const uint8_t *epochs, int64_t n, uint8_t epoch) {
    const uint64_t ones = UINT64_C(0x0101010101010101), more = ones * (uint64_t)(EPOCHS - 1 - epoch);
    uint64_t any = 0, found = 0;
    if (n < 64) {
        for (int64_t k = 0; k < n; k++) found |= (uint64_t)(epochs[k] > epoch) << k;
        return found;
    }
    /* Eight at a time: the high bit of a byte is set where more than the epoch stood there. In most words none has. */
    for (int64_t k = 0; k < 8; k++) any |= md_load_u64(epochs + 8 * k) + more;
    if ((any & ones << 7) == 0) return 0;
    for (int64_t k = 0; k < 8; k++) {
        uint64_t high = (md_load_u64(epochs + 8 * k) + more) >> 7 & ones;
        found |= (high * UINT64_C(0x0102040810204080) >> 56) << (8 * k); /* the eight bits side by side */
    }
    return found;
}

/* The groups of a pane that changed since it was captured (NULL: it wasn't there), as bits, and their runs. */
static md_rc find_in(const md_pane *pane, const held *then, uint8_t epoch, int64_t most, md_runs *runs,
                     uint64_t *changed) {
    int64_t groups = pane->keys->count, known = then != NULL ? then->groups : 0;
    for (int64_t word = 0; word < md_group_words(groups); word++) {
        int64_t n = known - 64 * word;
        uint64_t was = then != NULL ? md_groups_held(known, then->gone, then->gone_words, word) : 0;
        uint64_t is = md_groups_held(groups, pane->marks.gone, pane->marks.gone_words, word);
        uint64_t found = n > 0 ? later_of(pane->marks.epochs + 64 * word, n < 64 ? n : 64, epoch) : 0;
        found |= was ^ is;
        if (!md_runs_word(runs, found, was, is)) return MD_NOMEM;
        if (runs->fresh > most) return MD_EMPTY;
        changed[word] = found & is;
    }
    return MD_OK;
}

typedef struct cursor { /* in the panes of a capture */
    int64_t next, at;
} cursor;

/* The pane as it was then, NULL if it wasn't there; its rows begin at c->at. */
static const held *then_of(const capture *base, const md_pane *pane, cursor *c) {
    while (c->next < base->n_panes && base->panes[c->next].start < pane->start) c->at += base->panes[c->next++].rows;
    bool same = c->next < base->n_panes && base->panes[c->next].number == pane->number;
    return same ? &base->panes[c->next] : NULL;
}

static md_rc find_all(const md_window *w, const capture *base, md_changed *out, md_runs *runs) {
    int64_t words = 0, at = 0;
    cursor c = {0};
    for (int64_t i = 0; i < w->n_panes; i++) words += md_group_words(w->panes[i]->keys->count);
    out->counts = md_malloc((size_t)w->n_panes * sizeof *out->counts);
    out->groups = md_malloc((size_t)words * sizeof *out->groups);
    if (out->counts == NULL || out->groups == NULL) return MD_NOMEM;
    for (int64_t i = 0; i < w->n_panes; i++) {
        const held *then = then_of(base, w->panes[i], &c);
        int64_t before = runs->fresh;
        if (then != NULL && !md_runs_seek(runs, c.at)) return MD_NOMEM;
        md_rc rc = find_in(w->panes[i], then, base->epoch, out->total / 2, runs, out->groups + at);
        if (rc != MD_OK) return rc;
        out->counts[i] = runs->fresh - before;
        at += md_group_words(w->panes[i]->keys->count);
    }
    return md_runs_flush(runs) ? MD_OK : MD_NOMEM;
}

md_rc md_changes_find(const md_window *w, int64_t number, md_changed *out) {
    const capture *base = capture_of(w, number);
    md_runs runs = {0};
    *out = (md_changed){0};
    if (base == NULL) return MD_EMPTY;
    for (int64_t i = 0; i < base->n_panes; i++) runs.n_base += base->panes[i].rows;
    for (int64_t i = 0; i < w->n_panes; i++) out->total += w->panes[i]->keys->count - w->panes[i]->marks.n_gone;
    md_rc rc = find_all(w, base, out, &runs);
    if (rc == MD_OK && runs.pairs == NULL && (runs.pairs = md_malloc(1)) == NULL) rc = MD_NOMEM;
    out->n_old = runs.n_base;
    out->count = runs.fresh;
    out->runs = runs.pairs;
    out->n_runs = runs.n;
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

/* Which groups have left by now; false without memory. */
static bool keep_gone(const md_window *w, held *panes) {
    for (int64_t i = 0; i < w->n_panes; i++) {
        const struct md_marks *marks = &w->panes[i]->marks;
        if (marks->n_gone == 0) continue;
        panes[i].gone = md_malloc((size_t)marks->gone_words * sizeof *panes[i].gone);
        if (panes[i].gone == NULL) return false;
        memcpy(panes[i].gone, marks->gone, (size_t)marks->gone_words * sizeof *panes[i].gone);
        panes[i].gone_words = marks->gone_words;
    }
    return true;
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
    made.panes = md_calloc((size_t)w->n_panes, sizeof *made.panes);
    if (made.panes == NULL || reserve(w) != MD_OK || !keep_gone(w, made.panes)) {
        panes_free(made.panes, w->n_panes);
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
        made.panes[i] = (held){.start = pane->start, .number = pane->number, .groups = groups,
                               .rows = groups - pane->marks.n_gone, .gone = made.panes[i].gone,
                               .gone_words = made.panes[i].gone_words};
        memset(pane->marks.epochs + pane->marks.n, 0, (size_t)(groups - pane->marks.n) + 1);
        pane->marks.n = groups;
        pane->marks.now = c->now;
    }
    c->captures[c->n++] = made;
    return MD_OK;
}
