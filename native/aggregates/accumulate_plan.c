#include "aggregates/accumulate.h"

#include "base/md_alloc.h"
#include "keys/keys.h"

int32_t md_plan_column(md_plan *plan, md_word identity) {
    plan->identity[plan->n_columns] = identity;
    plan->cells[plan->n_columns] = MD_CELL_WORD;
    return plan->n_columns++;
}

int32_t md_plan_objects(md_plan *plan, md_cell kind) {
    int32_t column = md_plan_column(plan, (md_word){.blob = NULL});
    plan->cells[column] = kind;
    plan->n_objects++;
    return column;
}

int32_t md_plan_summary(md_plan *plan, md_plan_input *in, int32_t summary) {
    const md_summary *p = md_summary_kinds[summary];
    if (in->summaries[summary] >= 0) return in->summaries[summary];
    in->has_summaries = true;
    in->summaries[summary] = plan->n_columns;
    if (p->cell != MD_CELL_WORD) return md_plan_objects(plan, p->cell);
    for (int32_t c = 0; c < p->columns; c++) md_plan_column(plan, p->identity[c]);
    return in->summaries[summary];
}

static const md_word zero = {.i = 0};

int32_t md_plan_n(md_plan *plan, md_plan_input *in) {
    if (in->n < 0) in->n = md_plan_column(plan, zero);
    return in->n;
}

static void add_state(md_plan *plan, md_state_column s) {
    s.input = plan->aggregates[s.aggregate].input;
    plan->state[plan->n_state++] = s;
}

void md_plan_state(md_plan *plan, int32_t g, const char *suffix, md_type type, int32_t column) {
    add_state(plan, (md_state_column){.suffix = suffix, .type = type, .aggregate = g, .column = column, .at = -1});
}

void md_plan_nullable(md_plan *plan, int32_t g, const char *suffix, md_type type, int32_t column, int32_t at) {
    add_state(plan, (md_state_column){.suffix = suffix, .type = type, .aggregate = g, .column = column, .at = at,
                                      .nullable = true});
}

static md_rc plan_aggregate(md_plan *plan, int32_t g, md_error *err) {
    md_aggregate a = plan->aggregates[g];
    if ((int)a.function < 0 || a.function >= MD_N_FUNCTIONS)
        return md_fail(err, MD_BADARG, "aggregate %d: unknown function %d", g, (int)a.function);
    const md_aggregate_kind *kind = md_aggregate_kinds[a.function];
    if (a.input >= plan->n_inputs || (a.input < 0 && !kind->of_rows))
        return md_fail(err, MD_BADARG, "aggregate %d reads input %d of %d", g, a.input, plan->n_inputs);
    md_plan_input *in = a.input < 0 ? NULL : &plan->inputs[a.input];
    if (in != NULL && strchr(kind->takes, (char)in->type) == NULL)
        return md_fail(err, MD_BADARG, "aggregate %d: there is no %s of %s", g, md_aggregate_names[a.function],
                       md_type_is_text(in->type) ? "text" : "this type");
    if (kind->fraction && !(a.parameter >= 0 && a.parameter <= 1))
        return md_fail(err, MD_BADARG, "aggregate %d: the fraction of a quantile is from 0 to 1", g);
    kind->plan(plan, g, in);
    return MD_OK;
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
    plan->state = md_malloc(MD_STATE_COLUMNS * (size_t)n_aggregates * sizeof *plan->state);
    if (plan->inputs == NULL || plan->aggregates == NULL || plan->identity == NULL || plan->cells == NULL ||
        plan->state == NULL) {
        md_plan_free(plan);
        return md_nomem(err);
    }
    for (int32_t i = 0; i < n_inputs; i++) {
        plan->inputs[i] = (md_plan_input){.type = inputs[i], .n = -1, .sum = -1, .hi = -1, .top = -1, .min = -1,
                                          .max = -1, .first = -1, .first_at = -1, .last = -1, .last_at = -1,
                                          .distinct = -1};
        for (int32_t p = 0; p < MD_N_SUMMARIES; p++) plan->inputs[i].summaries[p] = -1;
    }
    plan->n_inputs = n_inputs;
    plan->n_aggregates = n_aggregates;
    if (n_aggregates > 0) memcpy(plan->aggregates, aggregates, (size_t)n_aggregates * sizeof *aggregates);
    md_plan_column(plan, zero); /* rows */
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

