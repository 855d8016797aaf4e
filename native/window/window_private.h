/* What the files of window.h share. Not for others. */
#ifndef MD_WINDOW_PRIVATE_H
#define MD_WINDOW_PRIVATE_H

#include "aggregates/accumulate_objects.h"
#include "aggregates/accumulate_state.h"
#include "keys/keys.h"
#include "keys/keys_rows.h"
#include "arrow/rows.h"
#include "aggregates/sketch.h"
#include "window/window.h"

#define MD_TIME_LIMIT (INT64_C(1) << 61)
#define MD_SIZE_LIMIT (INT64_C(1) << 60)
#define MD_HANDOVER 8192     /* groups from which a window's buffers are handed over, not copied */
#define MD_SHARED_ROWS 65536 /* rows at which the shared batch is full */
#define MD_FREE_PANES 8      /* empty panes kept for their memory; 2 of those above a MiB */
#define MD_ABSENT INT64_MAX  /* first position of a group that isn't there */

/* Beside a pane that a slide has combined: see window_slide.c. */
typedef struct md_undo {
    int32_t *universe;  /* per group of the pane: its number in the slide's universe */
    md_table before;    /* suffix panes: what the suffix held for these groups without this pane */
    int64_t *first;     /* and their first positions; MD_ABSENT: not there */
    int32_t *order;     /* those that were there, by first position */
    int64_t n_order;
    struct md_owned {   /* suffix panes, per distinct input: the values whose last pane in the suffix this is, */
        int32_t *entries; /* as entries of the slide's tracker */
        int64_t n;
    } *owned;
} md_undo;

typedef struct md_pane {
    int64_t start, end, rows;
    md_keys *keys;
    md_table table;
    md_distinct **sets;  /* per distinct input of the plan */
    bool touched;        /* by the add under way */
    int64_t mark;        /* groups before it */
    int64_t *set_marks;  /* entries before it */
    int32_t segment;     /* scratch of the split of a mixed chunk */
    int64_t share;       /* of an add by panes */
    md_undo undo;
    struct md_frozen *frozen; /* while it is copied (snapshot.h); NULL: it isn't */
    int64_t number;           /* of all panes that this window ever opened */
    struct md_marks {         /* when each group changed last (changes.h) */
        uint8_t *epochs;      /* n + 1 of them, the last for all groups that came later; NULL: nobody asks */
        int64_t n, capacity;
        uint8_t now;
        uint64_t *gone;       /* of a store: bits of the groups that have left, those behind haven't; NULL: none */
        int64_t n_gone, gone_words;
    } marks;
} md_pane;

typedef struct md_frozen md_frozen; /* snapshot.c */
typedef struct md_changes md_changes; /* changes.c */

/* n <= MD_CHUNK rows that belong to one pane: ids[at .. at + n); the rows themselves are start .. start + n or,
 * when it is not NULL, rows[0 .. n), ascending. */
typedef struct md_segment {
    md_pane *pane;
    const uint32_t *rows;
    int64_t start, at, n;
    int64_t next; /* of the same pane, where panes are filled apart (window_panes.c); -1: none */
} md_segment;

typedef struct md_side { /* of a slide: the suffix or the prefix, per group of the universe */
    md_table table;
    int64_t *first;
    int32_t *order; /* groups present, by first position */
    int64_t n_order;
} md_side;

/* Distinct values of the window under way, per distinct input (slide_sets.c). */
typedef struct md_tracker {
    md_distinct *set;   /* of both blocks, by universe */
    uint8_t *held;      /* per entry: 1 in the suffix, 2 in the prefix */
    int64_t held_capacity;
    md_word *counts;    /* per group of the universe: entries held by either */
} md_tracker;

typedef struct md_slide {
    bool valid;            /* false: build anew from the panes */
    int64_t block;         /* start of the suffix's block */
    int64_t prefix_end;    /* panes of the next block below this time are in the prefix */
    md_keys *universe;
    int64_t capacity;      /* groups that all arrays below have room for */
    md_side suffix, prefix;
    int64_t *first;        /* scratch, MD_ABSENT everywhere between uses */
    int32_t *order;        /* scratch */
    md_table merged;       /* of the window being emitted */
    md_tracker *trackers;
    md_distinct **sets;    /* partial stage: of the window being emitted */
} md_slide;

typedef struct md_ready {
    struct ArrowSchema schema;
    struct ArrowArray array;
} md_ready;

typedef struct md_early md_early; /* window_early.c */
typedef struct md_spread md_spread; /* window_panes.c */

struct md_window {
    int64_t size, advance;
    md_stage stage;
    md_plan *plan;
    int32_t n_keys;
    md_type *key_types;
    bool positions;
    uint64_t seed;
    int64_t boundary, taken;

    md_pane **panes;
    int64_t n_panes, panes_capacity;
    md_pane *last; /* cache of find; NULL allowed */
    md_pane *spare[MD_FREE_PANES];
    int32_t n_spare;
    int64_t groups_hint; /* of the last large pane that closed */

    /* scratch of an add */
    md_column *views;
    int32_t *ids;
    uint32_t *rows;
    int64_t rows_capacity;
    md_segment *segments;
    int64_t n_segments, segments_capacity;
    md_pane **touched;
    int64_t n_touched, touched_capacity;
    md_scratch *scratch;
    md_distinct_scratch *distinct_scratch; /* only with distinct inputs */
    md_table incoming;                     /* combine: states as they came */
    bool feeding;                          /* window_feed.h: an add in parts is under way */
    int64_t taken_before;                  /* it */
    md_word *saved;                        /* per touched pane: its rows, then the columns of its one group */
    int64_t saved_capacity;

    md_slide slide;
    md_early *early; /* NULL before the first early results */
    md_spread *spread; /* NULL before the first add by panes */
    struct md_snapshot *snapshot; /* under way; NULL: none */
    md_changes *changes;          /* since earlier captures; NULL: none was taken */
    int64_t panes_opened;

    /* output */
    md_rows *shared, *failed;
    md_ready *ready;
    int64_t n_ready, first_ready, ready_capacity;
    uint8_t *valid;
    md_word *words;
    int32_t *order;
    int64_t valid_capacity;
};

/* What is to be emitted: n groups, in the keys and sets numbered key_order[k], in the table table_order[k]
 * (NULL: k). */
typedef struct md_emission {
    int64_t start, end, n;
    const md_keys *keys;
    const md_table *table;
    md_distinct *const *sets;
    const md_tracker *trackers; /* NULL: count the sets */
    const int32_t *key_order, *table_order;
    const int64_t *first, *other_first; /* by key_order: the smaller is the first position; the second may be NULL */
    const int64_t *starts;              /* by key_order: in place of `start`; NULL: `start` */
} md_emission;

static inline int64_t md_floor_to(int64_t t, int64_t step) {
    int64_t r = t % step;
    return t - r - (r < 0 ? step : 0);
}

/* block = realloc'd to count elements, doubling; false without memory and then unchanged. */
bool md_grow(void *block_pointer, int64_t *capacity, int64_t count, size_t element);

/* panes (window.c) */
md_rc md_pane_open(md_window *w, int64_t start, int64_t end, md_pane **out); /* finds or makes */
void md_pane_retire(md_window *w, md_pane *pane);                            /* to the spares, or freed */
void md_panes_drop(md_window *w, int64_t n);                                 /* the first n */
md_rc md_pane_touch(md_window *w, md_pane *pane);
md_rc md_pane_room(md_window *w, md_pane *pane, int64_t before); /* the table follows the keys */
void md_touched_settle(md_window *w, bool keep);                 /* end of an add: keep, or as before it */
void md_pane_bounds(const md_window *w, int64_t t, int64_t *start, int64_t *end);

/* adding (window_add.c) */
/* Rows of a struct array as w->views, *n of them, checked but for their values. */
md_rc md_window_views(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t *n,
                      md_error *err);
/* Times of w->views within what the window takes, and room for the ids of n rows. */
md_rc md_window_check_rows(md_window *w, int64_t n, md_error *err);
/* Give every segment of a chunk to `add`: of one pane, or of several in order of first appearance. */
typedef md_rc md_segment_add(md_window *w, md_segment s, const md_column *keys);
md_rc md_window_segments(md_window *w, const md_column *views, int64_t n, md_segment_add *add);
/* The parts of an add for one segment: its groups; room for the rest; its values, which can't fail. */
md_rc md_segment_map(md_window *w, md_segment s, const md_column *keys);
md_rc md_segment_room(md_window *w, md_segment s, const md_column *views, md_distinct_scratch *scratch);
md_rc md_pane_nulls(md_window *w, md_pane *pane, const md_column *views);
void md_segment_fill(md_window *w, md_segment s, const md_column *views, md_scratch *scratch);

/* An add of checked views in two halves (window_add.c). All rows lie in the pane of *time, which is none of a closed
 * window, and views[0] is read only where the plan is ordered; NULL: by views[0]. After the first half, and
 * md_touched_settle or more of such adds, the second can't fail. */
md_rc md_window_prepare(md_window *w, const md_column *views, int64_t n, const int64_t *time, md_error *err);
void md_window_accumulate(md_window *w, const md_column *views, int64_t n);
md_rc md_window_check_type(const md_column *view, md_type type, int32_t column, md_error *err);

void md_spread_free(md_spread *spread); /* window_panes.c */

/* adds in parts (window_feed.c) */
md_rc md_feed_save(md_window *w, const md_pane *pane);

/* combine (window_combine.c) */
md_rc md_window_add_states(md_window *w, const md_column *views, int64_t n, md_error *err);
/* emission (window_close.c) */
md_rc md_emit(md_window *w, md_emission e);
md_rc md_window_flush(md_window *w);
md_rc md_rows_of_state(md_rows *rows, int32_t column, md_window *w, const md_emission *e);
md_rc md_rows_of_sets(md_rows *rows, int32_t column, const md_window *w, const md_emission *e); /* those of them */
void md_define_keys(md_rows *rows, int32_t column, const md_window *w);
static inline void md_define_state(md_rows *rows, int32_t column, const md_window *w) {
    md_state_define(w->plan, rows, column);
}
md_rc md_emission_scratch(md_window *w, int64_t n);

/* copies in pieces (snapshot.c) */
/* Accumulators of n groups of a pane are about to change: those that are still to be copied are copied first, and
 * it is noted that they changed. */
void md_frozen_keep(md_frozen *frozen, const int32_t *ids, int64_t n);
static inline void md_pane_keep(const md_pane *pane, const int32_t *ids, int64_t n) {
    if (pane->frozen != NULL) md_frozen_keep(pane->frozen, ids, n);
    uint8_t *epochs = pane->marks.epochs;
    if (epochs == NULL) return;
    int64_t known = pane->marks.n;
    uint8_t now = pane->marks.now;
    for (int64_t i = 0; i < n; i++) epochs[ids[i] < known ? ids[i] : known] = now;
}
/* Panes that end at or before `end` are about to go: they are copied first. MD_NOMEM: call again. */
md_rc md_snapshot_close(struct md_snapshot *snapshot, int64_t end);
void md_snapshot_abandon(struct md_snapshot *snapshot); /* the window goes */

/* what changed (changes.c) */
void md_changes_free(md_changes *changes);
size_t md_changes_nbytes(const md_changes *changes);

/* sliding (window_slide.c) */
md_rc md_slide_close(md_window *w, int64_t boundary);
void md_slide_forget(md_window *w);
void md_slide_free(md_window *w);
void md_undo_free(const md_plan *plan, md_undo *undo);

/* distinct values of sliding windows (slide_sets.c); the pane's groups are numbered in the universe */
md_rc md_trackers_start(md_window *w);
md_rc md_trackers_room(md_window *w, int64_t from, int64_t to);
md_rc md_trackers_suffix(md_window *w, md_pane *pane);
md_rc md_trackers_prefix(md_window *w, md_pane *pane);
void md_trackers_pop(md_window *w, md_pane *pane);
void md_trackers_free(md_window *w);
size_t md_trackers_nbytes(const md_window *w);
size_t md_slide_nbytes(const md_window *w);

/* early results (window_early.c) */
void md_early_free(md_window *w);
size_t md_early_nbytes(const md_window *w);

#endif
