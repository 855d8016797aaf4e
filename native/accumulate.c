#include "accumulate.h"

#include "md_alloc.h"

/* ---- plan ---- */

static int32_t add_column(md_plan *plan, md_word identity) {
    plan->identity[plan->n_columns] = identity;
    return plan->n_columns++;
}

static const md_word zero = {.i = 0};

static md_word greatest(md_type type) {
    if (type == MD_F64) return (md_word){.u = 0x7ff8000000000000ull};
    return type == MD_I64 ? (md_word){.i = INT64_MAX} : (md_word){.u = UINT64_MAX};
}

static md_word least(md_type type) {
    if (type == MD_F64) return (md_word){.f = -__builtin_inf()};
    return type == MD_I64 ? (md_word){.i = INT64_MIN} : (md_word){.u = 0};
}

static void need_n(md_plan *plan, md_plan_input *in) {
    if (in->n < 0) in->n = add_column(plan, zero);
}

static void need_sum(md_plan *plan, md_plan_input *in) {
    if (in->sum >= 0) return;
    in->sum = add_column(plan, zero);
    if (in->type != MD_F64) in->hi = add_column(plan, zero);
}

static void add_state(md_plan *plan, int32_t g, const char *suffix, md_type type, int32_t column, bool nullable) {
    plan->state[plan->n_state++] = (md_state_column){.suffix = suffix, .type = type, .aggregate = g, .column = column,
                                                     .input = plan->aggregates[g].input, .nullable = nullable};
}

static md_rc plan_aggregate(md_plan *plan, int32_t g, md_error *err) {
    md_aggregate a = plan->aggregates[g];
    if (a.input < 0 && a.function == MD_COUNT) {
        add_state(plan, g, "n", MD_I64, 0, false);
        return MD_OK;
    }
    if (a.input < 0 || a.input >= plan->n_inputs)
        return md_fail(err, MD_BADARG, "aggregate %d reads input %d of %d", g, a.input, plan->n_inputs);
    md_plan_input *in = &plan->inputs[a.input];
    bool text = in->type == MD_UTF8 || in->type == MD_BINARY;
    if (text && a.function != MD_COUNT && a.function != MD_COUNT_DISTINCT)
        return md_fail(err, MD_BADARG, "aggregate %d: text can only be counted", g);
    if (a.function == MD_COUNT_DISTINCT) {
        if (in->distinct < 0) in->distinct = plan->n_distinct++;
        add_state(plan, g, "set", MD_BINARY, -1, false);
        return MD_OK;
    }
    if (a.function == MD_VARIANCE) {
        if (in->vn < 0) {
            in->vn = add_column(plan, zero);
            in->mean = add_column(plan, zero);
            in->m2 = add_column(plan, zero);
        }
        add_state(plan, g, "n", MD_I64, in->vn, false);
        add_state(plan, g, "mean", MD_F64, in->mean, false);
        add_state(plan, g, "m2", MD_F64, in->m2, false);
        return MD_OK;
    }
    need_n(plan, in);
    switch (a.function) {
    case MD_COUNT:
        add_state(plan, g, "n", MD_I64, in->n, false);
        return MD_OK;
    case MD_SUM:
    case MD_AVG:
        need_sum(plan, in);
        add_state(plan, g, "n", MD_I64, in->n, false);
        if (in->type == MD_F64) {
            add_state(plan, g, "sum", MD_F64, in->sum, false);
        } else {
            add_state(plan, g, "lo", MD_I64, in->sum, false);
            add_state(plan, g, "hi", MD_I64, in->hi, false);
        }
        return MD_OK;
    case MD_MIN:
        if (in->min < 0) in->min = add_column(plan, greatest(in->type));
        add_state(plan, g, "value", in->type, in->min, true);
        return MD_OK;
    case MD_MAX:
        if (in->max < 0) in->max = add_column(plan, least(in->type));
        add_state(plan, g, "value", in->type, in->max, true);
        return MD_OK;
    default:
        return md_fail(err, MD_BADARG, "aggregate %d: unknown function %d", g, (int)a.function);
    }
}

md_rc md_plan_new(const md_type *inputs, int32_t n_inputs, const md_aggregate *aggregates, int32_t n_aggregates,
                  md_plan **out, md_error *err) {
    if (n_inputs < 0 || n_inputs > MD_INPUTS_MAX || n_aggregates < 0 || n_aggregates > MD_AGGREGATES_MAX)
        return md_fail(err, MD_BADARG, "%d inputs and %d aggregates; at most %d of each", n_inputs, n_aggregates,
                       MD_INPUTS_MAX);
    for (int32_t i = 0; i < n_inputs; i++)
        if (inputs[i] == 0 || strchr("lLgbuz", (char)inputs[i]) == NULL)
            return md_fail(err, MD_BADARG, "input %d is not of a native type", i);
    size_t columns = 1 + 8 * (size_t)n_inputs;
    md_plan *plan = md_calloc(1, sizeof *plan);
    if (plan == NULL) return md_nomem(err);
    plan->inputs = md_malloc((size_t)n_inputs * sizeof *plan->inputs);
    plan->aggregates = md_malloc((size_t)n_aggregates * sizeof *plan->aggregates);
    plan->identity = md_malloc(columns * sizeof *plan->identity);
    plan->state = md_malloc(3 * (size_t)n_aggregates * sizeof *plan->state);
    if (plan->inputs == NULL || plan->aggregates == NULL || plan->identity == NULL || plan->state == NULL) {
        md_plan_free(plan);
        return md_nomem(err);
    }
    for (int32_t i = 0; i < n_inputs; i++)
        plan->inputs[i] = (md_plan_input){.type = inputs[i], .n = -1, .sum = -1, .hi = -1, .min = -1, .max = -1,
                                          .vn = -1, .mean = -1, .m2 = -1, .distinct = -1};
    plan->n_inputs = n_inputs;
    plan->n_aggregates = n_aggregates;
    if (n_aggregates > 0) memcpy(plan->aggregates, aggregates, (size_t)n_aggregates * sizeof *aggregates);
    add_column(plan, zero); /* rows */
    for (int32_t g = 0; g < n_aggregates; g++) {
        md_rc rc = plan_aggregate(plan, g, err);
        if (rc != MD_OK) {
            md_plan_free(plan);
            return rc;
        }
    }
    *out = plan;
    return MD_OK;
}

void md_plan_free(md_plan *plan) {
    if (plan == NULL) return;
    md_free(plan->inputs);
    md_free(plan->aggregates);
    md_free(plan->identity);
    md_free(plan->state);
    md_free(plan);
}

/* ---- table ---- */

md_rc md_table_init(const md_plan *plan, md_table *table) {
    table->capacity = 0;
    table->columns = md_calloc((size_t)plan->n_columns, sizeof *table->columns);
    return table->columns != NULL ? MD_OK : MD_NOMEM;
}

void md_table_free(const md_plan *plan, md_table *table) {
    if (table->columns == NULL) return;
    for (int32_t c = 0; c < plan->n_columns; c++) md_free(table->columns[c]);
    md_free(table->columns);
    *table = (md_table){0};
}

static bool is_n(const md_plan *plan, int32_t column) {
    for (int32_t i = 0; i < plan->n_inputs; i++)
        if (plan->inputs[i].n == column) return true;
    return false;
}

md_rc md_table_reserve(const md_plan *plan, md_table *table, int64_t capacity) {
    size_t size;
    if (capacity <= table->capacity) return MD_OK;
    if (!md_mul_size((size_t)capacity, sizeof(md_word), &size)) return MD_NOMEM;
    for (int32_t c = 0; c < plan->n_columns; c++) {
        if (table->columns[c] == NULL && is_n(plan, c)) continue; /* not split */
        md_word *column = md_realloc(table->columns[c], size);
        if (column == NULL) return MD_NOMEM;
        table->columns[c] = column;
    }
    table->capacity = capacity;
    return MD_OK;
}

void md_table_clear(const md_plan *plan, md_table *table, int64_t from, int64_t to) {
    for (int32_t c = 0; c < plan->n_columns; c++) {
        md_word *column = table->columns[c], identity = plan->identity[c];
        if (column == NULL) continue;
        if (identity.u == 0) {
            memset(column + from, 0, (size_t)(to - from) * sizeof *column);
        } else {
            for (int64_t k = from; k < to; k++) column[k] = identity;
        }
    }
}

md_rc md_table_split(const md_plan *plan, md_table *table, int32_t input, int64_t count) {
    int32_t c = plan->inputs[input].n;
    if (c < 0 || table->columns[c] != NULL) return MD_OK;
    md_word *n = md_calloc((size_t)table->capacity, sizeof *n);
    if (n == NULL) return MD_NOMEM;
    if (count > 0) memcpy(n, table->columns[0], (size_t)count * sizeof *n);
    table->columns[c] = n;
    return MD_OK;
}

size_t md_table_nbytes(const md_plan *plan, const md_table *table) {
    size_t n = (size_t)plan->n_columns * sizeof *table->columns;
    for (int32_t c = 0; c < plan->n_columns; c++)
        if (table->columns[c] != NULL) n += (size_t)table->capacity * sizeof(md_word);
    return n;
}

/* ---- merge ---- */

#define AT(list, k) ((list) != NULL ? (int64_t)(list)[k] : (k))

/* NaN is the greatest; of equal ones min takes the later and max the earlier, as the loops over rows do. */
MD_INLINE double min_f64(double m, double v) { return m < v || v != v ? m : v; }
MD_INLINE double max_f64(double m, double v) { return v > m || v != v ? v : m; }

typedef struct merge_lists {
    const int32_t *o, *i, *j;
    int64_t n;
} merge_lists;

static void merge_add(md_word *out, const md_word *a, const md_word *b, merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) out[AT(l.o, k)].u = a[AT(l.i, k)].u + b[AT(l.j, k)].u;
}

static void merge_sum(md_word *out, const md_word *a, const md_word *b, merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) out[AT(l.o, k)].f = a[AT(l.i, k)].f + b[AT(l.j, k)].f;
}

static void merge_wide(const md_plan_input *in, md_table *out, const md_table *a, const md_table *b, merge_lists l) {
    md_word *lo = out->columns[in->sum], *hi = out->columns[in->hi];
    const md_word *alo = a->columns[in->sum], *ahi = a->columns[in->hi];
    const md_word *blo = b->columns[in->sum], *bhi = b->columns[in->hi];
    for (int64_t k = 0; k < l.n; k++) {
        int64_t i = AT(l.i, k), j = AT(l.j, k), o = AT(l.o, k);
        uint64_t low = alo[i].u + blo[j].u;
        uint64_t high = ahi[i].u + bhi[j].u + (low < blo[j].u);
        lo[o].u = low;
        hi[o].u = high;
    }
}

static void merge_extreme(md_type type, bool max, md_word *out, const md_word *a, const md_word *b, merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) {
        md_word x = a[AT(l.i, k)], y = b[AT(l.j, k)], z;
        if (type == MD_F64) z.f = max ? max_f64(x.f, y.f) : min_f64(x.f, y.f);
        else if (type == MD_I64) z = (x.i < y.i) != max ? x : y;
        else z = (x.u < y.u) != max ? x : y;
        out[AT(l.o, k)] = z;
    }
}

/* Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979. */
static void merge_variance(const md_plan_input *in, md_table *out, const md_table *a, const md_table *b, merge_lists l) {
    for (int64_t k = 0; k < l.n; k++) {
        int64_t i = AT(l.i, k), j = AT(l.j, k), o = AT(l.o, k);
        md_word na = a->columns[in->vn][i], nb = b->columns[in->vn][j];
        md_word ma = a->columns[in->mean][i], mb = b->columns[in->mean][j];
        md_word sa = a->columns[in->m2][i], sb = b->columns[in->m2][j];
        if (na.i == 0) {
            ma = mb;
            sa = sb;
        } else if (nb.i != 0) {
            double x = (double)na.i, y = (double)nb.i, delta = mb.f - ma.f;
            ma.f += delta * (y / (x + y));
            sa.f += sb.f + delta * delta * (x * y / (x + y));
        }
        out->columns[in->vn][o].u = na.u + nb.u;
        out->columns[in->mean][o] = ma;
        out->columns[in->m2][o] = sa;
    }
}

void md_merge(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i,
              const md_table *b, const int32_t *j, int64_t n) {
    merge_lists l = {.o = o, .i = i, .j = j, .n = n};
    for (int32_t k = 0; k < plan->n_inputs; k++) { /* before rows, which stand in for n */
        const md_plan_input *in = &plan->inputs[k];
        if (in->n >= 0 && out->columns[in->n] != NULL)
            merge_add(out->columns[in->n], md_table_n(plan, a, k), md_table_n(plan, b, k), l);
        if (in->hi >= 0) merge_wide(in, out, a, b, l);
        else if (in->sum >= 0) merge_sum(out->columns[in->sum], a->columns[in->sum], b->columns[in->sum], l);
        if (in->min >= 0)
            merge_extreme(in->type, false, out->columns[in->min], a->columns[in->min], b->columns[in->min], l);
        if (in->max >= 0)
            merge_extreme(in->type, true, out->columns[in->max], a->columns[in->max], b->columns[in->max], l);
        if (in->vn >= 0) merge_variance(in, out, a, b, l);
    }
    merge_add(out->columns[0], a->columns[0], b->columns[0], l);
}

void md_copy(const md_plan *plan, md_table *out, const int32_t *o, const md_table *a, const int32_t *i, int64_t n) {
    for (int32_t k = 0; k < plan->n_inputs; k++) {
        int32_t c = plan->inputs[k].n;
        if (c < 0 || out->columns[c] == NULL || a->columns[c] != NULL) continue;
        const md_word *from = a->columns[0];
        for (int64_t m = 0; m < n; m++) out->columns[c][AT(o, m)] = from[AT(i, m)];
    }
    for (int32_t c = 0; c < plan->n_columns; c++) {
        md_word *to = out->columns[c];
        const md_word *from = a->columns[c];
        if (to == NULL || from == NULL) continue;
        for (int64_t m = 0; m < n; m++) to[AT(o, m)] = from[AT(i, m)];
    }
}

/* ---- finish ---- */

md_type md_finish_type(const md_plan *plan, int32_t g) {
    md_aggregate a = plan->aggregates[g];
    switch (a.function) {
    case MD_AVG:
    case MD_VARIANCE:
        return MD_F64;
    case MD_SUM:
        return plan->inputs[a.input].type == MD_F64 ? MD_F64 : MD_I64;
    case MD_MIN:
    case MD_MAX:
        return plan->inputs[a.input].type;
    default:
        return MD_I64;
    }
}

void md_finish(const md_plan *plan, const md_table *table, int32_t g, const int32_t *order, int64_t n, md_word *out,
               uint8_t *valid, int64_t *failed) {
    md_aggregate a = plan->aggregates[g];
    const md_word *rows = md_table_n(plan, table, a.input);
    if (a.function == MD_COUNT) {
        for (int64_t k = 0; k < n; k++) {
            out[k] = rows[AT(order, k)];
            if (valid != NULL) valid[k] = 1;
        }
        return;
    }
    const md_plan_input *in = &plan->inputs[a.input];
    if (a.function == MD_VARIANCE) {
        const md_word *vn = table->columns[in->vn], *m2 = table->columns[in->m2];
        for (int64_t k = 0; k < n; k++) {
            int64_t id = AT(order, k), count = vn[id].i;
            valid[k] = count >= 2;
            out[k].f = m2[id].f / (double)(count >= 2 ? count - 1 : 1);
        }
        return;
    }
    for (int64_t k = 0; k < n; k++) valid[k] = rows[AT(order, k)].i > 0;
    if (a.function == MD_MIN || a.function == MD_MAX) {
        const md_word *from = table->columns[a.function == MD_MIN ? in->min : in->max];
        for (int64_t k = 0; k < n; k++) out[k] = from[AT(order, k)];
        return;
    }
    const md_word *lo = table->columns[in->sum], *hi = in->hi >= 0 ? table->columns[in->hi] : NULL;
    if (hi == NULL && a.function == MD_SUM) {
        for (int64_t k = 0; k < n; k++) out[k] = lo[AT(order, k)];
    } else if (hi == NULL) {
        for (int64_t k = 0; k < n; k++) {
            int64_t id = AT(order, k), count = rows[id].i;
            out[k].f = lo[id].f / (double)(count > 0 ? count : 1);
        }
    } else if (a.function == MD_SUM) {
        for (int64_t k = 0; k < n; k++) {
            int64_t id = AT(order, k);
            bool fits = hi[id].i == (lo[id].i < 0 ? -1 : 0);
            if (!fits && valid[k]) {
                valid[k] = 2;
                ++*failed;
            }
            out[k] = lo[id];
        }
    } else {
        for (int64_t k = 0; k < n; k++) {
            int64_t id = AT(order, k), count = rows[id].i;
            __int128 sum = (__int128)((unsigned __int128)hi[id].u << 64 | lo[id].u);
            out[k].f = (double)sum / (double)(count > 0 ? count : 1);
        }
    }
}
