/* Sliding windows: suffixes and prefixes of blocks.
 *
 *   block k                        block k + 1
 *   | p0 | p1 | p2 | p3 | p4 |     | p5 | p6 | p7 | p8 | p9 |
 *             '---- window ------------------'
 *             suffix: p2 (p3 p4)   prefix: (p5 p6) p7          a window = suffix merged with prefix
 *
 * The suffix is combined from its end, once per block: p4, then p3 before it, then p2 ... Each step keeps
 * what it overwrote (md_undo), so that when the window moves on and p2 leaves, the suffix (p3 p4) comes back
 * bit by bit: nothing is ever subtracted. The prefix is combined from its start as panes complete. So every
 * pane is merged once as suffix and once as prefix: time and memory don't grow with the overlap.
 *
 * The groups of both sides are numbered in one universe, which lives as long as the block: md_keys over the
 * keys of the panes combined. A side holds identities, and first position MD_ABSENT, where a group is not
 * there, so that merging needs no case.
 *
 * All of it is derived from the panes: after a failure or a load it is forgotten and built anew, with the
 * same bits. */
#include "base/md_alloc.h"
#include "window/window.h"
#include "window/window_private.h"

void md_undo_free(const md_plan *plan, md_undo *undo) {
    md_free(undo->universe);
    md_free(undo->first);
    md_free(undo->order);
    md_table_free(plan, &undo->before);
    for (int32_t d = 0; undo->owned != NULL && d < plan->n_distinct; d++) md_free(undo->owned[d].entries);
    md_free(undo->owned);
    *undo = (md_undo){0};
}

void md_slide_forget(md_window *w) {
    w->slide.valid = false;
    for (int64_t i = 0; i < w->n_panes; i++) md_undo_free(w->plan, &w->panes[i]->undo);
}

static void side_free(const md_plan *plan, md_side *side) {
    md_table_free(plan, &side->table);
    md_free(side->first);
    md_free(side->order);
}

void md_slide_free(md_window *w) {
    md_slide *s = &w->slide;
    md_keys_free(s->universe);
    side_free(w->plan, &s->suffix);
    side_free(w->plan, &s->prefix);
    md_free(s->first);
    md_free(s->order);
    md_table_free(w->plan, &s->merged);
    for (int32_t d = 0; s->sets != NULL && d < w->plan->n_distinct; d++) md_distinct_free(s->sets[d]);
    md_free(s->sets);
    md_trackers_free(w);
    *s = (md_slide){0};
}

size_t md_slide_nbytes(const md_window *w) {
    const md_slide *s = &w->slide;
    if (s->universe == NULL) return 0;
    size_t n = md_keys_nbytes(s->universe) + (size_t)s->capacity * (3 * 8 + 3 * 4);
    n += md_table_nbytes(w->plan, &s->suffix.table) + md_table_nbytes(w->plan, &s->prefix.table);
    n += md_table_nbytes(w->plan, &s->merged);
    for (int32_t d = 0; s->sets != NULL && d < w->plan->n_distinct; d++) n += md_keys_nbytes(s->sets[d]->keys);
    n += md_trackers_nbytes(w);
    for (int64_t i = 0; i < w->n_panes; i++)
        if (w->panes[i]->undo.first != NULL) n += md_table_nbytes(w->plan, &w->panes[i]->undo.before);
    return n;
}

/* A table in which every input has its own n, so that sides with and without nulls merge. */
static md_rc full_table(const md_plan *plan, md_table *table, int64_t capacity) {
    md_rc rc = MD_OK;
    if (table->columns == NULL) rc = md_table_init(plan, table);
    if (rc == MD_OK) rc = md_table_reserve(plan, table, capacity);
    for (int32_t i = 0; rc == MD_OK && i < plan->n_inputs; i++) rc = md_table_split(plan, table, i, 0);
    return rc;
}

static bool room_i64(int64_t **block, int64_t n) {
    int64_t *bigger = md_realloc(*block, (size_t)n * sizeof **block);
    if (bigger != NULL) *block = bigger;
    return bigger != NULL;
}

static bool room_i32(int32_t **block, int64_t n) {
    int32_t *bigger = md_realloc(*block, (size_t)n * sizeof **block);
    if (bigger != NULL) *block = bigger;
    return bigger != NULL;
}

static md_rc side_room(const md_plan *plan, md_side *side, int64_t from, int64_t to) {
    md_rc rc = full_table(plan, &side->table, to);
    if (rc != MD_OK) return rc;
    if (!room_i64(&side->first, to) || !room_i32(&side->order, to + 1)) return MD_NOMEM; /* + 1: merge_orders */
    md_table_clear(plan, &side->table, from, to);
    for (int64_t u = from; u < to; u++) side->first[u] = MD_ABSENT;
    return MD_OK;
}

/* Room for the universe's groups everywhere. */
static md_rc slide_room(md_window *w) {
    md_slide *s = &w->slide;
    int64_t n = s->universe->capacity;
    if (n <= s->capacity) return MD_OK;
    md_rc rc = side_room(w->plan, &s->suffix, s->capacity, n);
    if (rc == MD_OK) rc = side_room(w->plan, &s->prefix, s->capacity, n);
    if (rc == MD_OK) rc = full_table(w->plan, &s->merged, n);
    if (rc != MD_OK) return rc;
    if (!room_i64(&s->first, n) || !room_i32(&s->order, n + 1)) return MD_NOMEM;
    for (int64_t u = s->capacity; u < n; u++) s->first[u] = MD_ABSENT;
    rc = md_trackers_room(w, s->capacity, n);
    if (rc != MD_OK) return rc;
    s->capacity = n;
    return MD_OK;
}

static md_rc make_sets(md_window *w) {
    md_slide *s = &w->slide;
    if (s->sets == NULL && w->plan->n_distinct > 0) {
        s->sets = md_calloc((size_t)w->plan->n_distinct, sizeof *s->sets);
        if (s->sets == NULL) return MD_NOMEM;
    }
    for (int32_t i = 0; i < w->plan->n_inputs; i++) {
        int32_t d = w->plan->inputs[i].distinct;
        if (d < 0 || s->sets[d] != NULL) continue;
        md_rc rc = md_distinct_new(w->plan->inputs[i].type, w->seed + 3, &s->sets[d]);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

static md_rc slide_start(md_window *w, int64_t block) {
    md_slide *s = &w->slide;
    md_slide_forget(w);
    if (s->universe == NULL) {
        md_rc made = md_keys_new(w->key_types, w->n_keys, w->seed + 2, &s->universe);
        if (made != MD_OK) return made;
    }
    md_rc rc = w->stage == MD_PARTIAL ? make_sets(w) : md_trackers_start(w);
    if (rc != MD_OK) return rc;
    md_keys_reset(s->universe);
    for (int32_t k = 0; k < 2; k++) {
        md_side *side = k == 0 ? &s->suffix : &s->prefix;
        side->n_order = 0;
        if (s->capacity > 0) md_table_clear(w->plan, &side->table, 0, s->capacity);
        for (int64_t u = 0; u < s->capacity; u++) side->first[u] = MD_ABSENT;
    }
    s->block = block;
    s->prefix_end = block + w->size;
    return MD_OK;
}

/* Two lists of groups, each by its own first positions, into one by the smaller: each group at its first
 * encounter. out is neither list, and has room for one more than there are groups: a group met again is
 * written past the last and not counted. Returns their number. */
static int64_t merge_orders(int32_t *out, const int32_t *a, int64_t n_a, const int64_t *first_a, const int32_t *b,
                            int64_t n_b, const int64_t *first_b) {
    int64_t n = 0, i = 0, j = 0;
    while (i < n_a || j < n_b) {
        if (j >= n_b || (i < n_a && first_a[a[i]] < first_b[b[j]])) {
            int32_t u = a[i++];
            out[n] = u;
            n += first_a[u] < first_b[u]; /* else it came from b */
        } else {
            int32_t u = b[j++];
            out[n] = u;
            n += first_b[u] <= first_a[u];
        }
    }
    return n;
}

static void replace_order(md_slide *s, md_side *side, int64_t n) {
    int32_t *old = side->order;
    side->order = s->order;
    s->order = old;
    side->n_order = n;
}

/* The pane's groups in the universe, room for them, and their first positions in s->first. */
static md_rc number_groups(md_window *w, md_pane *pane) {
    md_slide *s = &w->slide;
    int64_t n = pane->keys->count;
    pane->undo.universe = md_malloc((size_t)n * sizeof *pane->undo.universe);
    if (pane->undo.universe == NULL) return MD_NOMEM;
    md_rc rc = md_keys_map_keys(s->universe, pane->keys, 0, n, pane->undo.universe);
    if (rc == MD_OK) rc = slide_room(w);
    return rc;
}

static void lay_first(md_slide *s, const md_pane *pane) {
    for (int64_t k = 0; k < pane->keys->count; k++) s->first[pane->undo.universe[k]] = pane->keys->first[k];
}

static void take_first(md_slide *s, const md_pane *pane) {
    for (int64_t k = 0; k < pane->keys->count; k++) s->first[pane->undo.universe[k]] = MD_ABSENT;
}

static void lower_first(md_side *side, const md_pane *pane) {
    for (int64_t k = 0; k < pane->keys->count; k++) {
        int32_t u = pane->undo.universe[k];
        if (pane->keys->first[k] < side->first[u]) side->first[u] = pane->keys->first[k];
    }
}

/* Put a pane before the suffix. */
static md_rc suffix_push(md_window *w, md_pane *pane) {
    md_slide *s = &w->slide;
    md_side *side = &s->suffix;
    md_undo *undo = &pane->undo;
    int64_t n = pane->keys->count;
    md_rc rc = number_groups(w, pane);
    if (rc == MD_OK) rc = full_table(w->plan, &undo->before, n);
    if (rc != MD_OK) return rc;
    undo->first = md_malloc((size_t)n * sizeof *undo->first);
    undo->order = md_malloc((size_t)n * sizeof *undo->order);
    if (undo->first == NULL || undo->order == NULL) return MD_NOMEM;
    rc = md_trackers_suffix(w, pane);
    if (rc != MD_OK) return rc;

    const int32_t *u = undo->universe;
    md_copy(w->plan, &undo->before, NULL, &side->table, u, n);
    for (int64_t k = 0; k < n; k++) undo->first[k] = side->first[u[k]];
    rc = md_merge_flat(w->plan, &side->table, u, &pane->table, NULL, &side->table, u, n);
    if (rc != MD_OK) return rc;
    lay_first(s, pane);
    undo->n_order = 0;
    for (int64_t k = 0; k < side->n_order; k++)
        if (s->first[side->order[k]] != MD_ABSENT) undo->order[undo->n_order++] = side->order[k];
    int64_t m = merge_orders(s->order, side->order, side->n_order, side->first, u, n, s->first);
    replace_order(s, side, m);
    take_first(s, pane);
    lower_first(side, pane);
    return MD_OK;
}

/* Take the foremost pane off the suffix again. */
static void suffix_pop(md_window *w, md_pane *pane) {
    md_slide *s = &w->slide;
    md_side *side = &s->suffix;
    md_undo *undo = &pane->undo;
    int64_t n = pane->keys->count, kept = 0, m = 0;
    md_trackers_pop(w, pane);
    md_copy(w->plan, &side->table, undo->universe, &undo->before, NULL, n);
    for (int64_t k = 0; k < n; k++) side->first[undo->universe[k]] = undo->first[k];
    lay_first(s, pane);
    for (int64_t k = 0; k < side->n_order; k++)
        if (s->first[side->order[k]] == MD_ABSENT) side->order[kept++] = side->order[k];
    take_first(s, pane);
    for (int64_t i = 0, j = 0; i < kept || j < undo->n_order;) {
        bool from_kept = j >= undo->n_order || (i < kept && side->first[side->order[i]] < side->first[undo->order[j]]);
        s->order[m++] = from_kept ? side->order[i++] : undo->order[j++];
    }
    replace_order(s, side, m);
    md_undo_free(w->plan, undo);
}

/* Put a pane behind the prefix. */
static md_rc prefix_push(md_window *w, md_pane *pane) {
    md_slide *s = &w->slide;
    md_side *side = &s->prefix;
    int64_t n = pane->keys->count;
    md_rc rc = number_groups(w, pane);
    if (rc == MD_OK) rc = md_trackers_prefix(w, pane);
    if (rc != MD_OK) return rc;
    const int32_t *u = pane->undo.universe;
    rc = md_merge_flat(w->plan, &side->table, u, &side->table, u, &pane->table, NULL, n);
    if (rc != MD_OK) return rc;
    lay_first(s, pane);
    int64_t m = merge_orders(s->order, side->order, side->n_order, side->first, u, n, s->first);
    replace_order(s, side, m);
    take_first(s, pane);
    lower_first(side, pane);
    return MD_OK;
}

/* Bring suffix and prefix to the window that starts at `start`. */
static md_rc slide_to(md_window *w, int64_t start) {
    md_slide *s = &w->slide;
    int64_t block = md_floor_to(start, w->size), middle = block + w->size;
    if (!s->valid || s->block != block) {
        md_rc rc = slide_start(w, block);
        int64_t last = 0;
        while (last < w->n_panes && w->panes[last]->start < middle) last++;
        for (int64_t i = last - 1; rc == MD_OK && i >= 0; i--) rc = suffix_push(w, w->panes[i]);
        if (rc != MD_OK) return rc;
        s->valid = true;
    }
    for (int64_t i = 0; i < w->n_panes && w->panes[i]->start < start + w->size; i++) {
        if (w->panes[i]->start < s->prefix_end) continue;
        md_rc rc = prefix_push(w, w->panes[i]);
        if (rc != MD_OK) {
            s->valid = false;
            return rc;
        }
    }
    if (s->prefix_end < start + w->size) s->prefix_end = start + w->size;
    return MD_OK;
}

/* The sets themselves, for the partial stage: those of the window's panes in time order, in each by first
 * appearance. This does grow with the overlap, as what leaves does. */
static md_rc merge_sets(md_window *w, int64_t start) {
    for (int32_t d = 0; w->stage == MD_PARTIAL && d < w->plan->n_distinct; d++) {
        md_keys_reset(w->slide.sets[d]->keys);
        for (int64_t i = 0; i < w->n_panes && w->panes[i]->start < start + w->size; i++) {
            md_pane *pane = w->panes[i];
            md_rc rc = md_distinct_merge(w->slide.sets[d], pane->sets[d], pane->undo.universe, NULL,
                                         w->distinct_scratch);
            if (rc != MD_OK) return rc;
        }
    }
    return MD_OK;
}

/* Values of exact quantiles, from the window's panes in time order: grows with the overlap, as what has to be
 * looked at does; sides that kept them for every pane would grow with its square. */
static md_rc merge_values(md_window *w, int64_t start, int64_t n) {
    md_slide *s = &w->slide;
    bool any = false;
    for (int32_t c = 0; c < w->plan->n_columns; c++) any |= w->plan->cells[c] == MD_CELL_VALUES;
    if (!any) return MD_OK;
    int32_t *place = md_malloc((size_t)s->capacity * sizeof *place), *out = md_malloc((size_t)n * sizeof *out);
    md_rc rc = place != NULL && out != NULL ? MD_OK : MD_NOMEM;
    for (int64_t k = 0; rc == MD_OK && k < n; k++) place[s->order[k]] = (int32_t)k;
    for (int64_t i = 0; rc == MD_OK && i < w->n_panes && w->panes[i]->start < start + w->size; i++) {
        const md_pane *pane = w->panes[i];
        for (int64_t k = 0; k < pane->keys->count; k++) out[k] = place[pane->undo.universe[k]];
        rc = md_merge_values(w->plan, &s->merged, out, &pane->table, NULL, pane->keys->count);
    }
    md_free(place);
    md_free(out);
    return rc;
}

static md_rc slide_emit(md_window *w, int64_t start) {
    md_slide *s = &w->slide;
    md_rc rc = slide_to(w, start);
    if (rc == MD_OK) rc = merge_sets(w, start);
    if (rc != MD_OK) return rc;
    int64_t n = merge_orders(s->order, s->suffix.order, s->suffix.n_order, s->suffix.first, s->prefix.order,
                             s->prefix.n_order, s->prefix.first);
    if (w->plan->n_objects > 0) md_table_clear(w->plan, &s->merged, 0, s->merged.capacity);
    rc = md_merge_flat(w->plan, &s->merged, NULL, &s->suffix.table, s->order, &s->prefix.table, s->order, n);
    if (rc == MD_OK) rc = merge_values(w, start, n);
    if (rc != MD_OK) return rc;
    md_emission e = {.start = start, .end = start + w->size, .n = n, .keys = s->universe, .table = &s->merged,
                     .sets = s->sets, .trackers = w->stage == MD_PARTIAL ? NULL : s->trackers, .key_order = s->order,
                     .first = s->suffix.first, .other_first = s->prefix.first};
    return md_emit(w, e);
}

/* Panes that no window from `start` on needs, which are the foremost. */
static void drop_before(md_window *w, int64_t start) {
    int64_t n = 0;
    while (n < w->n_panes && w->panes[n]->end <= start) {
        md_pane *pane = w->panes[n++];
        if (!w->slide.valid) continue;
        if (pane->undo.first != NULL) suffix_pop(w, pane);
        else w->slide.valid = false; /* it was in a prefix, or nowhere */
    }
    md_panes_drop(w, n);
    if (!w->slide.valid) md_slide_forget(w);
}

md_rc md_slide_close(md_window *w, int64_t boundary) {
    int64_t closed = w->boundary > -MD_TIME_LIMIT ? w->boundary : -MD_TIME_LIMIT;
    while (w->n_panes > 0) {
        int64_t start = md_floor_to(w->panes[0]->start - w->size, w->advance) + w->advance;
        int64_t next = closed < MD_TIME_LIMIT ? md_floor_to(closed - w->size, w->advance) + w->advance : start;
        if (next > start) start = next;
        if (start + w->size > boundary) break;
        md_rc rc = slide_emit(w, start);
        if (rc != MD_OK) {
            md_slide_forget(w);
            return rc;
        }
        closed = w->boundary = start + w->size;
        drop_before(w, start + w->advance);
    }
    return MD_OK;
}
