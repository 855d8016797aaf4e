/* variance, stddev: of the summary moments, which has rows, mean and squared deviations */
#include "aggregates/accumulate.h"

#include <math.h>

/* B. P. Welford, Note on a method for calculating corrected sums of squares and products, 1962. */
static void add(md_type type, const int32_t *ids, const uint8_t *values, int64_t n, md_word *const *columns) {
    md_word *rows = columns[0], *mean = columns[1], *m2 = columns[2];
    for (int64_t i = 0; i < n; i++) {
        uint32_t g = (uint32_t)ids[i];
        double v = md_as_double(type, md_load_word(values, i)), before = v - mean[g].f;
        mean[g].f += before / (double)++rows[g].i;
        m2[g].f += before * (v - mean[g].f);
    }
}

/* Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979. */
static void merge(md_word *const *out, md_word *const *a, md_word *const *b, md_merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) {
        int64_t i = MD_AT(l.i, k), j = MD_AT(l.j, k), o = MD_AT(l.o, k);
        md_word na = a[0][i], nb = b[0][j], ma = a[1][i], mb = b[1][j], sa = a[2][i], sb = b[2][j];
        if (na.i == 0) {
            ma = mb;
            sa = sb;
        } else if (nb.i != 0) {
            double x = (double)na.i, y = (double)nb.i, delta = mb.f - ma.f;
            ma.f += delta * (y / (x + y));
            sa.f += sb.f + delta * delta * (x * y / (x + y));
        }
        out[0][o].u = na.u + nb.u;
        out[1][o] = ma;
        out[2][o] = sa;
    }
}

const md_summary md_summary_moments = {.columns = 3, .add = add, .merge = merge};

static void plan(md_plan *plan, int32_t g, md_plan_input *in) {
    int32_t first = md_plan_summary(plan, in, MD_MOMENTS);
    md_plan_state(plan, g, "n", MD_I64, first);
    md_plan_state(plan, g, "mean", MD_F64, first + 1);
    md_plan_state(plan, g, "m2", MD_F64, first + 2);
}

MD_INLINE md_rc finish(md_finishing f, bool root) {
    md_word *const *columns = f.table->columns + f.in->summaries[MD_MOMENTS];
    const md_word *rows = columns[0], *m2 = columns[2];
    for (int64_t k = 0; k < f.n; k++) {
        int64_t id = MD_AT(f.order, k), count = rows[id].i;
        f.valid[k] = count >= 2;
        f.out[k].f = m2[id].f / (double)(count >= 2 ? count - 1 : 1);
        if (root) f.out[k].f = sqrt(f.out[k].f);
    }
    return MD_OK;
}

static md_rc finish_variance(md_finishing f) { return finish(f, false); }
static md_rc finish_stddev(md_finishing f) { return finish(f, true); }

const md_aggregate_kind md_kind_variance = {
    .takes = "lLgb", .plan = plan, .type = md_type_float, .finish = finish_variance};
const md_aggregate_kind md_kind_stddev = {
    .takes = "lLgb", .plan = plan, .type = md_type_float, .finish = finish_stddev};
