/* Rows that were kept aside: their positions are those that they had when they came. */
#include "window/window.h"
#include "window/window_private.h"

static md_rc check_positions(const md_window *w, const md_column *positions, int64_t n, int64_t taken, md_error *err) {
    if (positions->type != MD_I64 || positions->length != n || md_column_nulls(positions) != 0)
        return md_fail(err, MD_BADARG, "one position (int64) for each row");
    int64_t least = w->taken;
    for (int64_t i = 0; i < n; i++) {
        int64_t position = md_column_i64(positions, i);
        if (position < least)
            return md_fail(err, MD_BADARG, "row %lld: position %lld, where %lld is the least", (long long)i,
                           (long long)position, (long long)least);
        least = position + 1;
    }
    return taken >= least ? MD_OK
                          : md_fail(err, MD_BADARG, "%lld rows taken, where %lld is the least", (long long)taken,
                                    (long long)least);
}

md_rc md_window_add_at(md_window *w, const struct ArrowSchema *schema, const struct ArrowArray *array,
                       const md_column *positions, int64_t taken, md_error *err) {
    int64_t n;
    if (w->stage == MD_COMBINE) return md_fail(err, MD_BADARG, "partial states have no positions");
    md_rc rc = md_window_views(w, schema, array, &n, err);
    if (rc == MD_OK) rc = check_positions(w, positions, n, taken, err);
    if (rc != MD_OK) return rc;
    if (n > 0) {
        rc = md_window_prepare(w, w->views, n, NULL, err);
        for (int64_t i = 0; rc == MD_OK && i < w->n_touched; i++) {
            md_keys *keys = w->touched[i]->keys;
            for (int64_t id = w->touched[i]->mark; id < keys->count; id++)
                keys->first[id] = md_column_i64(positions, keys->first[id] - w->taken);
        }
        md_touched_settle(w, rc == MD_OK);
        if (rc != MD_OK) return rc;
        md_window_accumulate(w, w->views, n);
    }
    w->taken = taken;
    return MD_OK;
}
