#include "aggregates/accumulate.h"

#include "base/md_alloc.h"

static int32_t add_column(md_plan *plan, md_word identity) {
    plan->identity[plan->n_columns] = identity;
    plan->cells[plan->n_columns] = MD_CELL_WORD;
    return plan->n_columns++;
}

static int32_t add_objects(md_plan *plan, md_cell kind) {
    int32_t column = add_column(plan, (md_word){.blob = NULL});
    plan->cells[column] = kind;
    plan->n_objects++;
    return column;
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
    if (in->type == MD_BINARY) in->top = add_column(plan, zero);
}

static void add_state(md_plan *plan, int32_t g, const char *suffix, md_type type, int32_t column, bool nullable) {
    plan->state[plan->n_state++] = (md_state_column){.suffix = suffix, .type = type, .aggregate = g, .column = column,
                                                     .input = plan->aggregates[g].input, .at = -1, .nullable = nullable};
}

/* first and last: the place and the value, null where there is none. */
static void add_placed(md_plan *plan, int32_t g, md_plan_input *in, bool last, bool text) {
    int32_t *at = last ? &in->last_at : &in->first_at, *value = last ? &in->last : &in->first;
    if (*at < 0) {
        *at = add_column(plan, (md_word){.i = last ? INT64_MIN : INT64_MAX});
        *value = text ? add_objects(plan, MD_CELL_TEXT) : add_column(plan, zero);
    }
    plan->ordered = true;
    add_state(plan, g, "at", MD_I64, *at, true);
    plan->state[plan->n_state - 1].at = *at;
    add_state(plan, g, "value", in->type, *value, true);
    plan->state[plan->n_state - 1].at = *at;
}

static void add_extreme(md_plan *plan, int32_t g, md_plan_input *in, bool max, bool text) {
    int32_t *column = max ? &in->max : &in->min;
    if (*column < 0)
        *column = text ? add_objects(plan, MD_CELL_TEXT) : add_column(plan, max ? least(in->type) : greatest(in->type));
    add_state(plan, g, "value", in->type, *column, true);
}

static md_rc add_sketch(md_plan *plan, int32_t g, md_plan_input *in, md_error *err) {
    md_aggregate a = plan->aggregates[g];
    if (a.function == MD_APPROX_DISTINCT) {
        if (in->hll < 0) in->hll = add_objects(plan, MD_CELL_HLL);
        add_state(plan, g, "hll", MD_BINARY, in->hll, false);
        return MD_OK;
    }
    if (strchr("lLg", (char)in->type) == NULL)
        return md_fail(err, MD_BADARG, "aggregate %d: quantiles are of numbers", g);
    if (!(a.parameter >= 0 && a.parameter <= 1))
        return md_fail(err, MD_BADARG, "aggregate %d: a quantile's fraction is from 0 to 1", g);
    if (a.function == MD_QUANTILE) {
        if (in->values < 0) in->values = add_objects(plan, MD_CELL_VALUES);
        add_state(plan, g, "values", MD_BINARY, in->values, false);
    } else {
        if (in->buckets < 0) in->buckets = add_objects(plan, MD_CELL_BUCKETS);
        add_state(plan, g, "buckets", MD_BINARY, in->buckets, false);
    }
    return MD_OK;
}

static bool has(md_type type, md_function f) {
    bool text = type == MD_UTF8 || type == MD_BINARY;
    if (f == MD_VARIANCE || f == MD_STDDEV) return !text;
    return (f != MD_SUM && f != MD_AVG) || type != MD_UTF8;
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
    if (!has(in->type, a.function)) return md_fail(err, MD_BADARG, "aggregate %d: not of text", g);
    if (a.function == MD_APPROX_DISTINCT || a.function == MD_QUANTILE || a.function == MD_APPROX_QUANTILE)
        return add_sketch(plan, g, in, err);
    if (a.function == MD_COUNT_DISTINCT) {
        if (in->distinct < 0) in->distinct = plan->n_distinct++;
        add_state(plan, g, "set", MD_BINARY, -1, false);
        return MD_OK;
    }
    if (a.function == MD_VARIANCE || a.function == MD_STDDEV) {
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
    if (a.function == MD_FIRST || a.function == MD_LAST) {
        add_placed(plan, g, in, a.function == MD_LAST, text);
        return MD_OK;
    }
    if (!text || (a.function != MD_MIN && a.function != MD_MAX)) need_n(plan, in);
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
            if (in->top >= 0) add_state(plan, g, "top", MD_I64, in->top, false);
        }
        return MD_OK;
    case MD_MIN:
    case MD_MAX:
        add_extreme(plan, g, in, a.function == MD_MAX, text);
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
    size_t columns = 1 + MD_COLUMNS_PER_INPUT * (size_t)n_inputs;
    md_plan *plan = md_calloc(1, sizeof *plan);
    if (plan == NULL) return md_nomem(err);
    plan->inputs = md_malloc((size_t)n_inputs * sizeof *plan->inputs);
    plan->aggregates = md_malloc((size_t)n_aggregates * sizeof *plan->aggregates);
    plan->identity = md_malloc(columns * sizeof *plan->identity);
    plan->cells = md_malloc(columns * sizeof *plan->cells);
    plan->state = md_malloc(4 * (size_t)n_aggregates * sizeof *plan->state);
    if (plan->inputs == NULL || plan->aggregates == NULL || plan->identity == NULL || plan->cells == NULL ||
        plan->state == NULL) {
        md_plan_free(plan);
        return md_nomem(err);
    }
    for (int32_t i = 0; i < n_inputs; i++)
        plan->inputs[i] = (md_plan_input){.type = inputs[i], .n = -1, .sum = -1, .hi = -1, .top = -1, .min = -1,
                                          .max = -1, .vn = -1, .mean = -1, .m2 = -1, .distinct = -1, .first = -1,
                                          .first_at = -1, .last = -1, .last_at = -1, .hll = -1, .values = -1,
                                          .buckets = -1};
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
    md_free(plan->cells);
    md_free(plan->state);
    md_free(plan);
}

