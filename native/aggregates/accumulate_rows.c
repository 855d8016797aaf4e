/* md_accumulate: the loops over rows. Each kernel is one inlined loop, made once per set of columns it
 * serves, so that a row's id and value are loaded once for all of them. */
#include "aggregates/accumulate.h"

#include "aggregates/accumulate_objects.h"
#include "base/kernels.h"
#include "keys/keys.h"

typedef struct targets {
    md_word *rows, *lo, *hi, *min, *max; /* lo: the sum of floats too */
} targets;

enum { ROWS = 1, SUM = 2, MIN = 4, MAX = 8 };

/* careful: NaN may be among the values. Without one, `m < v ? m : v` gives v for an m that is NaN and
 * `v > m ? v : m` keeps it, which is what "NaN is greatest" asks for: one instruction each. */
MD_INLINE void loop_f64(const int32_t *ids, const uint8_t *values, int64_t n, targets t, int what, bool one,
                        bool careful) {
    md_word *restrict rows = t.rows, *restrict sum = t.lo, *restrict min = t.min, *restrict max = t.max;
    if (one) {
        double s = what & SUM ? sum[0].f : 0, lo = what & MIN ? min[0].f : 0, hi = what & MAX ? max[0].f : 0;
        for (int64_t i = 0; i < n; i++) {
            double v = md_load_word(values, i).f;
            if (what & SUM) s += v;
            if (what & MIN) lo = lo < v || (careful && v != v) ? lo : v;
            if (what & MAX) hi = v > hi || (careful && v != v) ? v : hi;
        }
        if (what & ROWS) rows[0].i += n;
        if (what & SUM) sum[0].f = s;
        if (what & MIN) min[0].f = lo;
        if (what & MAX) max[0].f = hi;
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        uint32_t g = (uint32_t)ids[i];
        double v = md_load_word(values, i).f;
        if (what & ROWS) rows[g].i++;
        if (what & SUM) sum[g].f += v;
        if (what & MIN) {
            double m = min[g].f;
            min[g].f = m < v || (careful && v != v) ? m : v;
        }
        if (what & MAX) {
            double m = max[g].f;
            max[g].f = v > m || (careful && v != v) ? v : m;
        }
    }
}

MD_INLINE void loop_integer(const int32_t *ids, const uint8_t *values, int64_t n, targets t, int what, bool one,
                            bool is_signed) {
    md_word *restrict rows = t.rows, *restrict lo = t.lo, *restrict hi = t.hi, *restrict min = t.min,
                     *restrict max = t.max;
    for (int64_t i = 0; i < n; i++) {
        uint32_t g = one ? 0 : (uint32_t)ids[i];
        md_word v = md_load_word(values, i);
        if (what & ROWS) rows[g].i++;
        if (what & SUM) {
            uint64_t low = lo[g].u + v.u;
            hi[g].u += (is_signed ? (uint64_t)(v.i >> 63) : 0) + (low < v.u);
            lo[g].u = low;
        }
        if (what & MIN) {
            md_word m = min[g];
            min[g] = (is_signed ? m.i < v.i : m.u < v.u) ? m : v;
        }
        if (what & MAX) {
            md_word m = max[g];
            max[g] = (is_signed ? v.i > m.i : v.u > m.u) ? v : m;
        }
    }
}

#define CASES(LOOP, ONE, LAST)                                                          \
    switch (what) {                                                                     \
    case 0: break;                                                                      \
    case 1: LOOP(ids, values, n, t, 1, ONE, LAST); break;                               \
    case 2: LOOP(ids, values, n, t, 2, ONE, LAST); break;                               \
    case 3: LOOP(ids, values, n, t, 3, ONE, LAST); break;                               \
    case 4: LOOP(ids, values, n, t, 4, ONE, LAST); break;                               \
    case 5: LOOP(ids, values, n, t, 5, ONE, LAST); break;                               \
    case 6: LOOP(ids, values, n, t, 6, ONE, LAST); break;                               \
    case 7: LOOP(ids, values, n, t, 7, ONE, LAST); break;                               \
    case 8: LOOP(ids, values, n, t, 8, ONE, LAST); break;                               \
    case 9: LOOP(ids, values, n, t, 9, ONE, LAST); break;                               \
    case 10: LOOP(ids, values, n, t, 10, ONE, LAST); break;                             \
    case 11: LOOP(ids, values, n, t, 11, ONE, LAST); break;                             \
    case 12: LOOP(ids, values, n, t, 12, ONE, LAST); break;                             \
    case 13: LOOP(ids, values, n, t, 13, ONE, LAST); break;                             \
    case 14: LOOP(ids, values, n, t, 14, ONE, LAST); break;                             \
    default: LOOP(ids, values, n, t, 15, ONE, LAST); break;                             \
    }

static void run_f64(const int32_t *ids, const uint8_t *values, int64_t n, targets t, int what, bool one) {
    if (what & (MIN | MAX) && md_any_nan(values, n)) {
        if (one) CASES(loop_f64, true, true)
        else CASES(loop_f64, false, true)
    } else if (one) {
        CASES(loop_f64, true, false)
    } else {
        CASES(loop_f64, false, false)
    }
}

static void run_integer(md_type type, const int32_t *ids, const uint8_t *values, int64_t n, targets t, int what,
                        bool one) {
    if (one) {
        if (type == MD_I64) CASES(loop_integer, true, true)
        else CASES(loop_integer, true, false)
    } else {
        if (type == MD_I64) CASES(loop_integer, false, true)
        else CASES(loop_integer, false, false)
    }
}

static void run_count(const int32_t *ids, int64_t n, md_word *rows) {
    for (int64_t i = 0; i < n; i++) rows[(uint32_t)ids[i]].i++;
}

/* The value at the least place (of equal ones the first), or at the greatest (the last). */
static void run_placed(bool last, const int32_t *ids, const uint8_t *values, const uint8_t *order, int64_t n,
                       md_word *at, md_word *value) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t g = (uint32_t)ids[i];
        md_word place = md_load_word(order, i);
        if (last ? place.i < at[g].i : place.i >= at[g].i) continue;
        at[g] = place;
        value[g] = md_load_word(values, i);
    }
}

/* Values, places and ids of the rows that aren't null, side by side; their number. `order` NULL: no places. */
static int64_t compress(const md_column *c, const md_column *order, const int32_t *ids, const uint32_t *rows,
                        int64_t start, int64_t n, bool values, md_scratch *scratch) {
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rows != NULL ? (int64_t)rows[i] : start + i;
        scratch->ids[m] = ids[i];
        if (values) {
            if (c->type == MD_BOOL) scratch->words[m].u = md_column_bool(c, row);
            else scratch->words[m] = md_load_word(c->values, row);
        }
        if (order != NULL) scratch->order[m] = md_load_word(order->values, row);
        m += c->validity == NULL || md_bit(c->validity, c->shift + row);
    }
    return m;
}

/* The same of rows without nulls and places: values only. */
static void gather(const uint8_t *restrict values, const uint32_t *restrict rows, int64_t n, md_word *restrict out) {
    for (int64_t i = 0; i < n; i++) out[i] = md_load_word(values, rows[i]);
}

/* What isn't a sum or an extreme. */
static void accumulate_others(md_table *table, const md_plan_input *in, const int32_t *ids, const uint8_t *values,
                              const uint8_t *places, int64_t n) {
    md_word **columns = table->columns;
    if (in->first >= 0) run_placed(false, ids, values, places, n, columns[in->first_at], columns[in->first]);
    if (in->last >= 0) run_placed(true, ids, values, places, n, columns[in->last_at], columns[in->last]);
    for (int32_t p = 0; in->has_summaries && p < MD_N_SUMMARIES; p++)
        if (in->summaries[p] >= 0) md_summary_kinds[p]->add(in->type, ids, values, n, columns + in->summaries[p]);
}

static void accumulate_input(const md_plan *plan, md_table *table, const md_plan_input *in, const md_column *c,
                             const md_column *order, const int32_t *ids, const uint32_t *rows, int64_t start,
                             int64_t n, bool one, bool *rows_counted, md_scratch *scratch) {
    bool text = md_type_is_text(c->type), placed = !text && (in->first >= 0 || in->last >= 0);
    bool basic = in->sum >= 0 || in->min >= 0 || in->max >= 0;
    bool others = placed || in->has_summaries;
    bool wants_values = !text && (basic || others);
    bool own_n = in->n >= 0 && table->columns[in->n] != NULL;
    if (text) md_accumulate_text(plan, table, in, c, order, ids, rows, start, n);
    if (!wants_values && !own_n) return;
    const uint8_t *values = wants_values ? c->values + 8 * start : NULL;
    const uint8_t *places = placed ? order->values + 8 * start : NULL;
    int64_t m = n;
    if (c->validity == NULL && wants_values && rows != NULL && c->type != MD_BOOL && !placed) {
        gather(c->values, rows, n, scratch->words);
        values = (const uint8_t *)scratch->words;
    } else if (c->validity != NULL || (wants_values && (rows != NULL || c->type == MD_BOOL))) {
        m = compress(c, placed ? order : NULL, ids, rows, start, n, wants_values, scratch);
        ids = scratch->ids;
        values = (const uint8_t *)scratch->words;
        places = (const uint8_t *)scratch->order;
    }
    if (own_n) run_count(ids, m, table->columns[in->n]);
    if (!wants_values) return;
    targets t = {.rows = table->columns[0]};
    int what = 0;
    if (!*rows_counted && m == n && basic) {
        what |= ROWS;
        *rows_counted = true;
    }
    if (in->sum >= 0) {
        what |= SUM;
        t.lo = table->columns[in->sum];
        if (in->hi >= 0) t.hi = table->columns[in->hi];
    }
    if (in->min >= 0) {
        what |= MIN;
        t.min = table->columns[in->min];
    }
    if (in->max >= 0) {
        what |= MAX;
        t.max = table->columns[in->max];
    }
    if (c->type == MD_F64) run_f64(ids, values, m, t, what, one);
    else run_integer(c->type, ids, values, m, t, what, one);
    if (others) accumulate_others(table, in, ids, values, places, m);
}

/* ---- sums side by side ---- */

enum { SIDES = 4 };

typedef struct sides {
    const uint8_t *values[SIDES];
    md_word *sums[SIDES];
    int32_t count;
} sides;

/* One after the other each addition would wait for the one before it; each sum still adds its rows in their order. */
MD_INLINE void add_sides(const sides *s, int64_t n, const int32_t count) {
    const uint8_t *values[SIDES];
    double sums[SIDES];
    for (int32_t k = 0; k < count; k++) {
        values[k] = s->values[k];
        sums[k] = s->sums[k]->f;
    }
    for (int64_t i = 0; i < n; i++)
        for (int32_t k = 0; k < count; k++) sums[k] += md_load_word(values[k], i).f;
    for (int32_t k = 0; k < count; k++) s->sums[k]->f = sums[k];
}

static void run_sides(sides *s, int64_t n) {
    switch (s->count) {
    case 0: break;
    case 1: add_sides(s, n, 1); break;
    case 2: add_sides(s, n, 2); break;
    case 3: add_sides(s, n, 3); break;
    default: add_sides(s, n, SIDES); break;
    }
    s->count = 0;
}

/* Whether an input of one group is a plain sum of floats, none of them null; then it is put among the sides. */
static bool is_side(const md_table *table, const md_plan_input *in, const md_column *c, int64_t start, sides *s) {
    bool plain = c->type == MD_F64 && c->validity == NULL && in->sum >= 0 && in->min < 0 && in->max < 0 &&
                 in->first < 0 && in->last < 0 && !in->has_summaries &&
                 (in->n < 0 || table->columns[in->n] == NULL);
    if (!plain) return false;
    s->values[s->count] = c->values + 8 * start;
    s->sums[s->count++] = table->columns[in->sum];
    return true;
}

void md_accumulate(const md_plan *plan, md_table *table, const int32_t *ids, const md_column *inputs,
                   const md_column *order, const uint32_t *rows, int64_t start, int64_t n, bool one,
                   md_scratch *scratch) {
    bool rows_counted = false;
    sides s = {.count = 0};
    for (int32_t k = 0; k < plan->n_inputs; k++) {
        if (one && rows == NULL && is_side(table, &plan->inputs[k], &inputs[k], start, &s)) {
            if (s.count == SIDES) run_sides(&s, n);
            continue;
        }
        accumulate_input(plan, table, &plan->inputs[k], &inputs[k], order, ids, rows, start, n, one, &rows_counted,
                         scratch);
    }
    run_sides(&s, n);
    if (rows_counted) return;
    if (one) table->columns[0][0].i += n;
    else run_count(ids, n, table->columns[0]);
}
