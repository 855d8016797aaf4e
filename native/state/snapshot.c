#include "state/snapshot.h"

#include "base/md_alloc.h"
#include "state/changes.h"
#include "state/runs.h"
#include "state/state_rows.h"
#include "window/window_private.h"

enum { KEPT_SHIFT = 6, KEPT = 1 << KEPT_SHIFT };

struct md_frozen {
    md_snapshot *snapshot;
    md_pane *pane;
    int64_t groups; /* when it began */
    int64_t n;      /* those to be copied */
    int64_t at;     /* row of the first one */
    int64_t next;   /* how many have been copied with their keys and first positions, in order */
    int64_t block;  /* the next 64 groups in order */
    const uint64_t *wanted; /* n bits of groups; NULL: all groups */
    int32_t *starts;        /* how many are wanted before each 64 groups, and of all; NULL: all groups */
    uint64_t *kept; /* a bit per 64 groups: their accumulators are copied */
};

struct md_snapshot {
    md_window *w;
    md_rows *rows;
    md_frozen *panes;
    int64_t n_panes, first; /* the first that isn't copied whole */
    int64_t left, total;
    bool partial, some; /* only what changed; not all groups */
    md_changed changed;
    uint64_t *held;     /* of all panes: groups that haven't left, where some have */
    uint64_t *kept;
    int32_t *starts;
    bool locked;             /* atomic: what follows, and the rows, while threads that fill panes keep some of theirs */
    int32_t order[MD_CHUNK]; /* scratch */
    md_word words[MD_CHUNK];
    uint8_t valid[MD_CHUNK];
};

static int64_t blocks_of(int64_t groups) { return (groups + KEPT - 1) >> KEPT_SHIFT; }

static bool is_kept(const md_frozen *f, int64_t block) { return f->kept[block / 64] >> (block % 64) & 1; }

/* Where the rows of a block begin. */
static int64_t row_of(const md_frozen *f, int64_t block) {
    if (f->starts != NULL) return f->starts[block];
    return block << KEPT_SHIFT < f->n ? block << KEPT_SHIFT : f->n;
}

/* The groups of the blocks [from, to) of a pane, at most MD_CHUNK. */
static const int32_t *order_of(md_frozen *f, int64_t from, int64_t to) {
    int32_t *order = f->snapshot->order;
    int64_t n = 0;
    if (f->wanted == NULL)
        for (int64_t group = from << KEPT_SHIFT, end = group + row_of(f, to) - row_of(f, from); group < end; group++)
            order[n++] = (int32_t)group;
    else
        for (int64_t block = from; block < to; block++)
            for (uint64_t bits = f->wanted[block]; bits != 0; bits &= bits - 1)
                order[n++] = (int32_t)((block << KEPT_SHIFT) + __builtin_ctzll(bits));
    return order;
}

/* Accumulators of the blocks [from, to), at most MD_CHUNK groups. There is room, and a bitmap where there may be
 * nulls: this can't fail. */
static void keep_blocks(md_frozen *f, int64_t from, int64_t to) {
    md_snapshot *s = f->snapshot;
    int64_t start = row_of(f, from), n = row_of(f, to) - start;
    s->rows->length = f->at + start;
    (void)md_state_words(s->w, f->pane, s->rows, order_of(f, from, to), n, s->words, s->valid);
    for (int64_t block = from; block < to; block++) f->kept[block / 64] |= UINT64_C(1) << (block % 64);
}

/* A pane is filled by one thread at a time, so nobody else looks at its bits; the rows are those of all panes. A block
 * is kept once per copy, and takes microseconds. */
static void keep_alone(md_frozen *f, int64_t block) {
    bool *locked = &f->snapshot->locked;
    while (__atomic_test_and_set(locked, __ATOMIC_ACQUIRE)) {}
    keep_blocks(f, block, block + 1);
    __atomic_clear(locked, __ATOMIC_RELEASE);
}

void md_frozen_keep(md_frozen *f, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        int64_t block = ids[i] >> KEPT_SHIFT;
        if (ids[i] < f->groups && !is_kept(f, block)) keep_alone(f, block);
    }
}

/* The blocks up to `end`, at most MD_CHUNK groups. */
static md_rc copy_blocks(md_frozen *f, int64_t end) {
    md_snapshot *s = f->snapshot;
    int64_t n = row_of(f, end) - f->next;
    s->rows->length = f->at + f->next;
    md_rc rc = md_state_keys(f->pane, s->rows, order_of(f, f->block, end), n, s->words, s->valid);
    if (rc != MD_OK) return rc;
    for (int64_t from = f->block, to; from < end; from = to) {
        for (to = from; to < end && !is_kept(f, to); to++) {}
        if (to > from) keep_blocks(f, from, to);
        else to++;
    }
    f->block = end;
    f->next += n;
    s->left -= n;
    return MD_OK;
}

static md_rc copy_pane(md_frozen *f, int64_t *groups) {
    int64_t blocks = blocks_of(f->groups);
    while (f->next < f->n && *groups > 0) {
        int64_t end = f->block, most = *groups < MD_CHUNK ? *groups : MD_CHUNK, before = f->next;
        while (end < blocks && row_of(f, end) - before < most && row_of(f, end + 1) - before <= MD_CHUNK) end++;
        md_rc rc = copy_blocks(f, end);
        if (rc != MD_OK) return rc;
        *groups -= f->next - before;
    }
    return MD_OK;
}

static void leave(md_frozen *f) {
    if (f->pane != NULL) f->pane->frozen = NULL;
    f->pane = NULL;
}

md_rc md_snapshot_copy(md_snapshot *s, int64_t groups, md_error *err) {
    md_rc rc = MD_OK;
    while (rc == MD_OK && s->first < s->n_panes && groups > 0) {
        md_frozen *f = &s->panes[s->first];
        if (s->w == NULL) return md_fail(err, MD_BADARG, "the window is gone");
        if (f->pane != NULL) rc = copy_pane(f, &groups);
        if (rc == MD_OK && f->next == f->n) {
            leave(f);
            s->first++;
        }
    }
    return rc == MD_OK ? MD_OK : md_nomem(err);
}

md_rc md_snapshot_close(md_snapshot *s, int64_t end) {
    md_rc rc = MD_OK;
    for (int64_t i = s->first; rc == MD_OK && i < s->n_panes; i++) {
        md_frozen *f = &s->panes[i];
        int64_t all = INT64_MAX;
        if (f->pane == NULL || f->pane->end > end) continue;
        rc = copy_pane(f, &all);
        if (rc == MD_OK) leave(f);
    }
    return rc;
}

static bool fits(const md_window *w) {
    return w->stage != MD_COMBINE && w->n_keys > 0 && w->plan->n_objects == 0 && w->plan->n_distinct == 0;
}

static bool has_gone(const md_window *w) {
    for (int64_t i = 0; i < w->n_panes; i++)
        if (w->panes[i]->marks.n_gone > 0) return true;
    return false;
}

static md_rc make_room(md_snapshot *s) {
    md_window *w = s->w;
    int64_t words = 0, blocks = 0, rows = 0;
    for (int64_t i = 0; i < w->n_panes; i++) {
        blocks += blocks_of(w->panes[i]->keys->count);
        words += (blocks_of(w->panes[i]->keys->count) + 63) / 64;
        rows += w->panes[i]->keys->count - w->panes[i]->marks.n_gone;
    }
    s->total = s->left = s->partial ? s->changed.count : rows;
    s->some = s->partial || has_gone(w);
    s->kept = md_calloc((size_t)words, sizeof *s->kept);
    s->panes = md_calloc((size_t)w->n_panes, sizeof *s->panes);
    if (s->some) s->starts = md_malloc((size_t)(blocks + w->n_panes) * sizeof *s->starts);
    if (s->some && !s->partial) s->held = md_malloc((size_t)blocks * sizeof *s->held);
    if (s->kept == NULL || s->panes == NULL || (s->some && s->starts == NULL)) return MD_NOMEM;
    if (s->some && !s->partial && s->held == NULL) return MD_NOMEM;
    md_rc rc = md_state_rows(w, &s->rows);
    if (rc == MD_OK) rc = md_rows_reserve(s->rows, s->total);
    for (int32_t i = 0; rc == MD_OK && i < w->plan->n_state; i++)
        if (w->plan->state[i].nullable) rc = md_rows_nullable(s->rows, s->rows->n_columns - w->plan->n_state + i);
    return rc;
}

static void fill_starts(md_frozen *f) {
    int64_t row = 0, blocks = blocks_of(f->groups);
    for (int64_t block = 0; block < blocks; block++) {
        f->starts[block] = (int32_t)row;
        row += md_bits(f->wanted[block]);
    }
    f->starts[blocks] = (int32_t)row;
}

/* All groups of a pane that haven't left. */
static void fill_held(const md_pane *pane, uint64_t *held) {
    int64_t groups = pane->keys->count;
    for (int64_t word = 0; word < md_group_words(groups); word++)
        held[word] = md_groups_held(groups, pane->marks.gone, pane->marks.gone_words, word);
}

static void freeze_panes(md_snapshot *s) {
    md_window *w = s->w;
    uint64_t *kept = s->kept, *wanted = s->partial ? s->changed.groups : s->held;
    int32_t *starts = s->starts;
    int64_t at = 0;
    for (int64_t i = 0; i < w->n_panes; i++) {
        md_pane *pane = w->panes[i];
        md_frozen *f = &s->panes[i];
        int64_t groups = pane->keys->count, n = s->partial ? s->changed.counts[i] : groups - pane->marks.n_gone;
        *f = (md_frozen){.snapshot = s, .pane = pane, .groups = groups, .n = n, .at = at, .kept = kept};
        if (s->some) {
            if (!s->partial) fill_held(pane, wanted);
            f->wanted = wanted;
            f->starts = starts;
            fill_starts(f);
            wanted += blocks_of(groups);
            starts += blocks_of(groups) + 1;
        }
        pane->frozen = f;
        at += n;
        kept += (blocks_of(groups) + 63) / 64;
    }
    s->n_panes = w->n_panes;
    w->snapshot = s;
}

md_rc md_snapshot_begin(md_window *w, int64_t number, int64_t base, md_snapshot **out, md_error *err) {
    if (!fits(w)) return MD_EMPTY;
    if (w->snapshot != NULL) return md_fail(err, MD_BADARG, "a snapshot is under way");
    md_snapshot *s = md_calloc(1, sizeof *s);
    if (s == NULL) return md_nomem(err);
    s->w = w;
    md_panes *now = number > 0 || base > 0 ? md_panes_of(w) : NULL;
    md_rc rc = (number > 0 || base > 0) && now == NULL ? MD_NOMEM : MD_EMPTY;
    if (rc == MD_EMPTY && base > 0) rc = md_changes_find(w, base, now, &s->changed);
    s->partial = rc == MD_OK;
    if (rc != MD_NOMEM) rc = make_room(s);
    if (rc == MD_OK && number > 0) rc = md_changes_note(w, number, base, now);
    md_panes_let_go(now);
    if (rc != MD_OK) {
        md_snapshot_free(s);
        return md_nomem(err);
    }
    freeze_panes(s);
    *out = s;
    return MD_OK;
}

int64_t md_snapshot_base_rows(const md_snapshot *s) { return s->partial ? md_panes_rows(s->changed.then) : -1; }

md_rc md_snapshot_runs(const md_snapshot *s, int64_t **pairs, int64_t *n) {
    return md_changes_runs(&s->changed, pairs, n);
}

int64_t md_snapshot_left(const md_snapshot *s) { return s->left; }

md_rc md_snapshot_finish(md_snapshot *s, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err) {
    if (s->left > 0) return md_fail(err, MD_BADARG, "%lld groups are not copied yet", (long long)s->left);
    if (s->rows == NULL) return md_fail(err, MD_BADARG, "the rows were handed over");
    s->rows->length = s->total;
    if (md_rows_finish(s->rows, schema, array) != MD_OK) return md_nomem(err);
    md_rows_free(s->rows);
    s->rows = NULL;
    md_snapshot_abandon(s);
    return MD_OK;
}

void md_snapshot_abandon(md_snapshot *s) {
    for (int64_t i = s->first; i < s->n_panes; i++) leave(&s->panes[i]);
    if (s->w != NULL) s->w->snapshot = NULL;
    s->w = NULL;
}

void md_snapshot_free(md_snapshot *s) {
    if (s == NULL) return;
    md_snapshot_abandon(s);
    md_rows_free(s->rows);
    md_changed_free(&s->changed);
    md_free(s->panes);
    md_free(s->starts);
    md_free(s->held);
    md_free(s->kept);
    md_free(s);
}
