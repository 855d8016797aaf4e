#include "state/runs.h"

#include "base/md_alloc.h"

bool md_runs_put(md_runs *r, int64_t start, int64_t length) {
    if (length == 0) return true;
    int64_t *last = r->n > 0 ? r->pairs + 2 * (r->n - 1) : NULL;
    if (last != NULL && last[0] + last[1] == start && start != r->n_base) {
        last[1] += length;
        return true;
    }
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

bool md_runs_word(md_runs *r, uint64_t changed, uint64_t then, uint64_t now) {
    uint64_t rest = ~UINT64_C(0);
    for (uint64_t bits = changed & (then | now); bits != 0; bits &= bits - 1) {
        uint64_t bit = bits & -bits;
        if (!md_runs_old(r, __builtin_popcountll(then & (bit - 1) & rest))) return false;
        r->old += (then & bit) != 0;
        if (!md_runs_fresh(r, (now & bit) != 0)) return false;
        rest = ~(bit | (bit - 1));
    }
    return md_runs_old(r, __builtin_popcountll(then & rest));
}
