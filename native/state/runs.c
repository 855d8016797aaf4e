#include "state/runs.h"

#include "base/md_alloc.h"

static bool put(md_runs *r, int64_t start, int64_t length) {
    if (r->n == r->capacity) {
        int64_t capacity = 2 * r->capacity + 64;
        int64_t *pairs = md_realloc(r->pairs, 2 * (size_t)capacity * sizeof *pairs);
        if (pairs == NULL) return false;
        r->pairs = pairs;
        r->capacity = capacity;
    }
    r->pairs[2 * r->n] = start;
    r->pairs[2 * r->n++ + 1] = length;
    return true;
}

bool md_runs_flush(md_runs *r) {
    if (r->old == r->from) return true;
    if (!put(r, r->from, r->old - r->from)) return false;
    r->from = r->old;
    return true;
}

bool md_runs_seek(md_runs *r, int64_t old) {
    if (old == r->old) return true;
    if (!md_runs_flush(r)) return false;
    r->old = r->from = old;
    return true;
}

bool md_runs_fresh(md_runs *r, int64_t rows) {
    int64_t start = r->n_base + r->fresh;
    if (rows == 0) return true;
    if (!md_runs_flush(r)) return false;
    r->fresh += rows;
    int64_t *last = r->n > 0 ? r->pairs + 2 * (r->n - 1) : NULL;
    if (last == NULL || last[0] < r->n_base || last[0] + last[1] != start) return put(r, start, rows);
    last[1] += rows;
    return true;
}

bool md_runs_changed(md_runs *r, uint64_t changed, uint64_t then, uint64_t now) {
    uint64_t rest = ~UINT64_C(0);
    for (uint64_t bits = changed & (then | now); bits != 0; bits &= bits - 1) {
        uint64_t bit = bits & -bits;
        md_runs_keep(r, md_bits(then & (bit - 1) & rest));
        if (then & bit && !md_runs_seek(r, r->old + 1)) return false;
        if (now & bit && !md_runs_fresh(r, 1)) return false;
        rest = ~(bit | (bit - 1));
    }
    md_runs_keep(r, md_bits(then & rest));
    return true;
}
