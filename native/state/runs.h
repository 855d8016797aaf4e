/* How a table is made of an earlier one: pairs (start, length) of rows of [ the earlier one | what is fresh ]. */
#ifndef MD_RUNS_H
#define MD_RUNS_H

#include "base/md_base.h"

typedef struct md_runs {
    int64_t n_base;     /* rows of the earlier table */
    int64_t old, fresh; /* rows of both that are passed */
    int64_t *pairs, n, capacity; /* ended by md_free */
} md_runs;

/* The next rows of the table; no run has rows of both parts. false: no memory. */
bool md_runs_put(md_runs *r, int64_t start, int64_t length);

static inline bool md_runs_old(md_runs *r, int64_t rows) {
    int64_t start = r->old;
    r->old += rows;
    return md_runs_put(r, start, rows);
}
static inline bool md_runs_fresh(md_runs *r, int64_t rows) {
    int64_t start = r->n_base + r->fresh;
    r->fresh += rows;
    return md_runs_put(r, start, rows);
}

/* 64 things of a row each, or none: which have one then and now, and which changed. false: no memory. */
bool md_runs_word(md_runs *r, uint64_t changed, uint64_t then, uint64_t now);

#endif
