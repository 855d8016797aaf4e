/* count, count_distinct */
#include "aggregates/accumulate.h"

static void plan_count(md_plan *plan, int32_t g, md_plan_input *in) {
    md_plan_state(plan, g, "n", MD_I64, in == NULL ? 0 : md_plan_n(plan, in));
}

static md_rc finish_count(md_finishing f) {
    for (int64_t k = 0; k < f.n; k++) {
        f.out[k] = f.counts[MD_AT(f.order, k)];
        if (f.valid != NULL) f.valid[k] = 1;
    }
    return MD_OK;
}

const md_aggregate_kind md_kind_count = {
    .takes = "lLgbuz", .of_rows = true, .never_null = true, .plan = plan_count, .type = md_type_integer,
    .finish = finish_count};

static void plan_distinct(md_plan *plan, int32_t g, md_plan_input *in) {
    if (in->distinct < 0) in->distinct = plan->n_distinct++;
    md_plan_state(plan, g, "set", MD_BINARY, -1);
}

const md_aggregate_kind md_kind_count_distinct = {
    .takes = "lLgbuz", .never_null = true, .plan = plan_distinct, .type = md_type_integer};
