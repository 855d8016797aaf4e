/* How a table is made of an earlier one: pairs (start, length) of rows of [ the earlier one | what is fresh ]. */
#ifndef MD_RUNS_H
#define MD_RUNS_H

#include "base/md_base.h"

typedef struct md_runs {
    int64_t n_base;     /* rows of the earlier table */
    int64_t old, fresh; /* rows of both that are passed */
    int64_t from;       /* rows of the earlier one up to `old` are wanted, but in no run so far */
    int64_t *pairs, n, capacity; /* ended by md_free */
} md_runs;

/* Bits that are set; not every machine that this may run on has an instruction for it. */
MD_INLINE int64_t md_bits(uint64_t bits) {
    if (bits + 1 <= 1) return bits == 0 ? 0 : 64;
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (int64_t)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* The next rows of the table are the next of the earlier one. */
MD_INLINE void md_runs_keep(md_runs *r, int64_t rows) { r->old += rows; }

/* These are false without memory. */
bool md_runs_flush(md_runs *r);                 /* what is kept is in the runs; also at the end */
bool md_runs_fresh(md_runs *r, int64_t rows);   /* the next rows of the table are fresh */
bool md_runs_seek(md_runs *r, int64_t old);     /* rows of the earlier table up to this one are gone, or changed */

bool md_runs_changed(md_runs *r, uint64_t changed, uint64_t then, uint64_t now); /* for md_runs_word */
/* 64 things of a row each, or none: which have one then and now, and which changed. */
MD_INLINE bool md_runs_word(md_runs *r, uint64_t changed, uint64_t then, uint64_t now) {
    if (changed & (then | now)) return md_runs_changed(r, changed, then, now);
    md_runs_keep(r, md_bits(then));
    return true;
}

#endif
