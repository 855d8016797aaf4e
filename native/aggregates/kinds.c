#include "aggregates/kinds.h"

#include "aggregates/accumulate.h"

#define DECLARE(id, name, kind) extern const md_aggregate_kind kind;
MD_AGGREGATE_KINDS(DECLARE)
#define KIND(id, name, kind) &kind,
const md_aggregate_kind *const md_aggregate_kinds[MD_N_FUNCTIONS] = {MD_AGGREGATE_KINDS(KIND)};
#define NAME(id, name, kind) name,
const char *const md_aggregate_names[MD_N_FUNCTIONS] = {MD_AGGREGATE_KINDS(NAME)};

#define DECLARE_SUMMARY(id, summary) extern const md_summary summary;
MD_SUMMARIES(DECLARE_SUMMARY)
#define SUMMARY(id, summary) &summary,
const md_summary *const md_summary_kinds[MD_N_SUMMARIES] = {MD_SUMMARIES(SUMMARY)};

md_type md_type_float(md_type input) {
    (void)input;
    return MD_F64;
}

md_type md_type_integer(md_type input) {
    (void)input;
    return MD_I64;
}

md_type md_type_same(md_type input) { return input; }

/* ---- finish ---- */

const md_aggregate_kind *md_kind_of(const md_plan *plan, int32_t g) {
    return md_aggregate_kinds[plan->aggregates[g].function];
}

static const md_plan_input *input_of(const md_plan *plan, int32_t g) {
    int32_t input = plan->aggregates[g].input;
    return input < 0 ? NULL : &plan->inputs[input];
}

md_type md_finish_type(const md_plan *plan, int32_t g) {
    const md_plan_input *in = input_of(plan, g);
    return md_kind_of(plan, g)->type(in != NULL ? in->type : MD_I64);
}

md_rc md_finish(const md_plan *plan, const md_table *table, int32_t g, const int32_t *order, int64_t n, md_word *out,
                uint8_t *valid, int64_t *failed) {
    const md_finishing f = {.in = input_of(plan, g), .table = table,
                            .counts = md_table_n(plan, table, plan->aggregates[g].input),
                            .parameter = plan->aggregates[g].parameter, .order = order, .n = n, .out = out,
                            .valid = valid, .failed = failed};
    return md_kind_of(plan, g)->finish(f);
}

const uint8_t *md_finish_bytes(const md_plan *plan, const md_table *table, int32_t g, int64_t id, uint8_t buffer[16],
                               size_t *size) {
    return md_kind_of(plan, g)->bytes(input_of(plan, g), table, id, buffer, size);
}

int32_t md_finish_as_is(const md_plan *plan, int32_t g) {
    const md_aggregate_kind *kind = md_kind_of(plan, g);
    return kind->as_is != NULL ? kind->as_is(input_of(plan, g)) : -1;
}

bool md_finish_may_fail(const md_plan *plan, int32_t g) {
    const md_aggregate_kind *kind = md_kind_of(plan, g);
    return kind->may_fail != NULL && kind->may_fail(input_of(plan, g));
}
