/* Distinct values of sliding windows, counted as the window moves.
 *
 * A value of a group is in the window when the suffix or the prefix holds it. The suffix holds it as long as the
 * last of its panes with that value stays; since panes enter the suffix from the block's end, that pane is the
 * first to bring it, and owns it. So each pane's values are looked at once when it enters the suffix, once when
 * it leaves, and once when it enters the prefix: nothing grows with the overlap. Counts are integers, so taking
 * away is exact. */
#include "base/md_alloc.h"
#include "window/window.h"
#include "window/window_private.h"

enum { IN_SUFFIX = 1, IN_PREFIX = 2 };

void md_trackers_free(md_window *w) {
    md_slide *s = &w->slide;
    for (int32_t d = 0; s->trackers != NULL && d < w->plan->n_distinct; d++) {
        md_distinct_free(s->trackers[d].set);
        md_free(s->trackers[d].held);
        md_free(s->trackers[d].counts);
    }
    md_free(s->trackers);
    s->trackers = NULL;
}

size_t md_trackers_nbytes(const md_window *w) {
    const md_slide *s = &w->slide;
    size_t n = 0;
    for (int32_t d = 0; s->trackers != NULL && d < w->plan->n_distinct; d++) {
        const md_tracker *t = &s->trackers[d];
        n += sizeof *t + (size_t)t->held_capacity + (size_t)s->capacity * sizeof *t->counts;
        if (t->set != NULL) n += md_keys_nbytes(t->set->keys);
    }
    return n;
}

/* Make what is missing, empty the rest. */
md_rc md_trackers_start(md_window *w) {
    md_slide *s = &w->slide;
    if (w->plan->n_distinct == 0) return MD_OK;
    if (s->trackers == NULL) s->trackers = md_calloc((size_t)w->plan->n_distinct, sizeof *s->trackers);
    if (s->trackers == NULL) return MD_NOMEM;
    for (int32_t i = 0; i < w->plan->n_inputs; i++) {
        if (w->plan->inputs[i].distinct < 0) continue;
        md_tracker *t = &s->trackers[w->plan->inputs[i].distinct];
        if (t->set == NULL) {
            md_rc rc = md_distinct_new(w->plan->inputs[i].type, w->seed + 3, &t->set);
            if (rc != MD_OK) return rc;
        }
        md_keys_reset(t->set->keys);
        if (t->held != NULL) memset(t->held, 0, (size_t)t->held_capacity);
        if (t->counts != NULL) memset(t->counts, 0, (size_t)s->capacity * sizeof *t->counts);
    }
    return MD_OK;
}

/* Counts of 0 for the universe's groups [from, to). */
md_rc md_trackers_room(md_window *w, int64_t from, int64_t to) {
    for (int32_t d = 0; w->slide.trackers != NULL && d < w->plan->n_distinct; d++) {
        md_tracker *t = &w->slide.trackers[d];
        md_word *counts = md_realloc(t->counts, (size_t)to * sizeof *counts);
        if (counts == NULL) return MD_NOMEM;
        memset(counts + from, 0, (size_t)(to - from) * sizeof *counts);
        t->counts = counts;
    }
    return MD_OK;
}

/* The pane's entries as entries of the tracker; *out is the caller's. */
static md_rc enter(md_window *w, md_tracker *t, const md_pane *pane, int32_t d, int32_t **out) {
    const md_distinct *set = pane->sets[d];
    int32_t *entries = md_malloc((size_t)set->keys->count * sizeof *entries);
    if (entries == NULL) return MD_NOMEM;
    md_rc rc = md_distinct_merge(t->set, set, pane->undo.universe, entries, w->distinct_scratch);
    int64_t before = t->held_capacity;
    if (rc == MD_OK && !md_grow(&t->held, &t->held_capacity, t->set->keys->count, 1)) rc = MD_NOMEM;
    if (rc != MD_OK) {
        md_free(entries);
        return rc;
    }
    if (t->held_capacity > before) memset(t->held + before, 0, (size_t)(t->held_capacity - before));
    *out = entries;
    return MD_OK;
}

/* Mark the entries as held; those that were not held there before are moved to the front. Their number. */
static int64_t hold(md_tracker *t, int32_t *entries, int64_t n, uint8_t where) {
    const uint64_t *groups = t->set->keys->columns[0].words;
    int64_t fresh = 0;
    for (int64_t k = 0; k < n; k++) {
        int32_t e = entries[k];
        if (t->held[e] & where) continue;
        t->counts[groups[e]].i += t->held[e] == 0;
        t->held[e] |= where;
        entries[fresh++] = e;
    }
    return fresh;
}

md_rc md_trackers_suffix(md_window *w, md_pane *pane) {
    if (w->slide.trackers == NULL) return MD_OK;
    pane->undo.owned = md_calloc((size_t)w->plan->n_distinct, sizeof *pane->undo.owned);
    if (pane->undo.owned == NULL) return MD_NOMEM;
    for (int32_t d = 0; d < w->plan->n_distinct; d++) {
        md_tracker *t = &w->slide.trackers[d];
        struct md_owned *owned = &pane->undo.owned[d];
        md_rc rc = enter(w, t, pane, d, &owned->entries);
        if (rc != MD_OK) return rc;
        owned->n = hold(t, owned->entries, pane->sets[d]->keys->count, IN_SUFFIX);
    }
    return MD_OK;
}

md_rc md_trackers_prefix(md_window *w, md_pane *pane) {
    for (int32_t d = 0; w->slide.trackers != NULL && d < w->plan->n_distinct; d++) {
        md_tracker *t = &w->slide.trackers[d];
        int32_t *entries;
        md_rc rc = enter(w, t, pane, d, &entries);
        if (rc != MD_OK) return rc;
        (void)hold(t, entries, pane->sets[d]->keys->count, IN_PREFIX);
        md_free(entries);
    }
    return MD_OK;
}

void md_trackers_pop(md_window *w, md_pane *pane) {
    for (int32_t d = 0; w->slide.trackers != NULL && d < w->plan->n_distinct; d++) {
        md_tracker *t = &w->slide.trackers[d];
        const uint64_t *groups = t->set->keys->columns[0].words;
        const struct md_owned *owned = &pane->undo.owned[d];
        for (int64_t k = 0; k < owned->n; k++) {
            int32_t e = owned->entries[k];
            t->held[e] &= (uint8_t)~IN_SUFFIX;
            t->counts[groups[e]].i -= t->held[e] == 0;
        }
    }
}
