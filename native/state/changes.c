#include "state/changes.h"

#include "base/md_alloc.h"
#include "state/runs.h"

enum { EPOCHS = 128 }; /* so that a byte has a bit to spare: see later_of */

typedef struct held { /* a pane, when it was captured */
    int64_t start, number, groups, rows; /* rows: groups that had not left */
    uint64_t *gone;                      /* those that had */
    int64_t gone_words;
} held;

struct md_panes {
    held *panes;
    int64_t n, rows;
    int32_t holders; /* captures and copies, whose last one may go in another thread */
};

typedef struct capture {
    int64_t number;
    uint8_t epoch; /* what changed later has a later one */
    md_panes *panes;
} capture;

struct md_changes {
    capture captures[MD_CAPTURES]; /* the oldest first */
    int32_t n;
    uint8_t now;
};

/* ---- panes of a moment ---- */

static md_panes *hold(md_panes *p) {
    __atomic_add_fetch(&p->holders, 1, __ATOMIC_RELAXED);
    return p;
}

void md_panes_let_go(md_panes *p) {
    if (p == NULL || __atomic_sub_fetch(&p->holders, 1, __ATOMIC_ACQ_REL) > 0) return;
    for (int64_t i = 0; p->panes != NULL && i < p->n; i++) md_free(p->panes[i].gone);
    md_free(p->panes);
    md_free(p);
}

int64_t md_panes_rows(const md_panes *p) { return p->rows; }

/* Which groups have left by now; false without memory. */
static bool keep_gone(const struct md_marks *marks, held *pane) {
    if (marks->n_gone == 0) return true;
    pane->gone = md_malloc((size_t)marks->gone_words * sizeof *pane->gone);
    if (pane->gone == NULL) return false;
    memcpy(pane->gone, marks->gone, (size_t)marks->gone_words * sizeof *pane->gone);
    pane->gone_words = marks->gone_words;
    return true;
}

md_panes *md_panes_of(const md_window *w) {
    md_panes *p = md_calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    *p = (md_panes){.panes = md_calloc((size_t)w->n_panes, sizeof *p->panes), .n = w->n_panes, .holders = 1};
    bool kept = p->panes != NULL;
    for (int64_t i = 0; kept && i < p->n; i++) {
        const md_pane *pane = w->panes[i];
        int64_t groups = pane->keys->count, rows = groups - pane->marks.n_gone;
        p->panes[i] = (held){.start = pane->start, .number = pane->number, .groups = groups, .rows = rows};
        p->rows += rows;
        kept = keep_gone(&pane->marks, &p->panes[i]);
    }
    if (kept) return p;
    md_panes_let_go(p);
    return NULL;
}

static void forget(md_changes *c, int32_t at) {
    md_panes_let_go(c->captures[at].panes);
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
    for (int32_t i = 0; i < c->n; i++) n += (size_t)c->captures[i].panes->n * sizeof(held);
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
    md_panes_let_go(changed->then);
    md_panes_let_go(changed->now);
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

/* Of 64 groups of a pane as it was, NULL where it wasn't there: those that were held. */
static uint64_t was_held(const held *then, int64_t word) {
    return then != NULL ? md_groups_held(then->groups, then->gone, then->gone_words, word) : 0;
}

/* The groups of a pane that are there and changed since it was captured (NULL: it wasn't there), as bits, and how many;
 * more than `most`: not all were looked at. */
static int64_t find_in(const md_pane *pane, const held *then, uint8_t epoch, int64_t most, uint64_t *changed) {
    int64_t groups = pane->keys->count, known = then != NULL ? then->groups : 0, count = 0;
    for (int64_t word = 0; word < md_group_words(groups) && count <= most; word++) {
        int64_t n = known - 64 * word;
        uint64_t is = md_groups_held(groups, pane->marks.gone, pane->marks.gone_words, word);
        uint64_t found = n > 0 ? later_of(pane->marks.epochs + 64 * word, n < 64 ? n : 64, epoch) : 0;
        changed[word] = (found | (was_held(then, word) ^ is)) & is;
        count += md_bits(changed[word]);
    }
    return count;
}

typedef struct cursor { /* in the panes of a capture */
    int64_t next, at;
} cursor;

/* A pane as it was then, NULL if it wasn't there; its rows begin at c->at. */
static const held *then_of(const md_panes *then, int64_t start, int64_t number, cursor *c) {
    while (c->next < then->n && then->panes[c->next].start < start) c->at += then->panes[c->next++].rows;
    bool same = c->next < then->n && then->panes[c->next].number == number;
    return same ? &then->panes[c->next] : NULL;
}

static md_rc find_all(const md_window *w, const capture *base, md_changed *out) {
    int64_t words = 0, at = 0, most = out->now->rows / 2;
    cursor c = {0};
    for (int64_t i = 0; i < w->n_panes; i++) words += md_group_words(w->panes[i]->keys->count);
    out->counts = md_malloc((size_t)w->n_panes * sizeof *out->counts);
    out->groups = md_malloc((size_t)words * sizeof *out->groups);
    if (out->counts == NULL || out->groups == NULL) return MD_NOMEM;
    for (int64_t i = 0; i < w->n_panes; i++) {
        const held *then = then_of(out->then, w->panes[i]->start, w->panes[i]->number, &c);
        out->counts[i] = find_in(w->panes[i], then, base->epoch, most - out->count, out->groups + at);
        out->count += out->counts[i];
        if (out->count > most) return MD_EMPTY;
        at += md_group_words(w->panes[i]->keys->count);
    }
    return MD_OK;
}

md_rc md_changes_find(const md_window *w, int64_t number, md_panes *now, md_changed *out) {
    const capture *base = capture_of(w, number);
    *out = (md_changed){0};
    if (base == NULL) return MD_EMPTY;
    *out = (md_changed){.then = hold(base->panes), .now = hold(now)};
    md_rc rc = find_all(w, base, out);
    if (rc != MD_OK) md_changed_free(out);
    return rc;
}

/* ---- runs ---- */

/* Those that are there and changed, and those that were there and aren't now. */
static bool put_pane(md_runs *r, const held *now, const held *then, const uint64_t *changed) {
    for (int64_t word = 0; word < md_group_words(now->groups); word++) {
        uint64_t was = was_held(then, word), is = md_groups_held(now->groups, now->gone, now->gone_words, word);
        if (!md_runs_word(r, changed[word] | (was & ~is), was, is)) return false;
    }
    return true;
}

md_rc md_changes_runs(const md_changed *changed, int64_t **pairs, int64_t *n) {
    const md_panes *now = changed->now;
    md_runs r = {.n_base = changed->then->rows};
    const uint64_t *groups = changed->groups;
    cursor c = {0};
    bool put = true;
    for (int64_t i = 0; put && i < now->n; i++) {
        const held *pane = &now->panes[i], *then = then_of(changed->then, pane->start, pane->number, &c);
        put = (then == NULL || md_runs_seek(&r, c.at)) && put_pane(&r, pane, then, groups);
        groups += md_group_words(pane->groups);
    }
    put = put && md_runs_flush(&r);
    if (put && r.pairs == NULL) put = (r.pairs = md_malloc(1)) != NULL;
    if (!put) {
        md_free(r.pairs);
        return MD_NOMEM;
    }
    *pairs = r.pairs;
    *n = r.n;
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

md_rc md_changes_note(md_window *w, int64_t number, int64_t base, md_panes *now) {
    if (w->changes == NULL && (w->changes = md_calloc(1, sizeof *w->changes)) == NULL) return MD_NOMEM;
    md_changes *c = w->changes;
    if (reserve(w) != MD_OK) return MD_NOMEM;
    while (c->n > 0 && c->captures[0].number < base) forget(c, 0);
    /* The base is the oldest now, and stays. */
    if (c->n == MD_CAPTURES) forget(c, c->captures[0].number == base ? 1 : 0);
    if (c->now == EPOCHS - 1) begin_anew(w);
    c->captures[c->n++] = (capture){.number = number, .epoch = c->now++, .panes = hold(now)};
    for (int64_t i = 0; i < w->n_panes; i++) {
        md_pane *pane = w->panes[i];
        int64_t groups = pane->keys->count;
        memset(pane->marks.epochs + pane->marks.n, 0, (size_t)(groups - pane->marks.n) + 1);
        pane->marks.n = groups;
        pane->marks.now = c->now;
    }
    return MD_OK;
}
