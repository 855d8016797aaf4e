/* min, max */
#include "aggregates/accumulate.h"
#include "aggregates/accumulate_objects.h"
#include "keys/keys.h"

static md_word greatest(md_type type) {
    if (type == MD_F64) return (md_word){.u = 0x7ff8000000000000ull};
    return type == MD_I64 ? (md_word){.i = INT64_MAX} : (md_word){.u = UINT64_MAX};
}

static md_word least(md_type type) {
    if (type == MD_F64) return (md_word){.f = -__builtin_inf()};
    return type == MD_I64 ? (md_word){.i = INT64_MIN} : (md_word){.u = 0};
}

static void plan_extreme(md_plan *plan, int32_t g, md_plan_input *in, int32_t *column, md_word identity) {
    bool text = md_type_is_text(in->type);
    if (!text) md_plan_n(plan, in);
    if (*column < 0) *column = text ? md_plan_objects(plan, MD_CELL_TEXT) : md_plan_column(plan, identity);
    md_plan_nullable(plan, g, "value", in->type, *column, -1);
}

static void plan_min(md_plan *plan, int32_t g, md_plan_input *in) {
    plan_extreme(plan, g, in, &in->min, greatest(in->type));
}

static void plan_max(md_plan *plan, int32_t g, md_plan_input *in) {
    plan_extreme(plan, g, in, &in->max, least(in->type));
}

static md_rc finish(md_finishing f, const md_word *from) {
    if (md_type_is_text(f.in->type)) {
        for (int64_t k = 0; k < f.n; k++) f.valid[k] = md_text_holds(from[MD_AT(f.order, k)].blob);
        return MD_OK;
    }
    for (int64_t k = 0; k < f.n; k++) f.valid[k] = f.counts[MD_AT(f.order, k)].i > 0;
    for (int64_t k = 0; k < f.n; k++) f.out[k] = from[MD_AT(f.order, k)];
    return MD_OK;
}

static md_rc finish_min(md_finishing f) { return finish(f, f.table->columns[f.in->min]); }
static md_rc finish_max(md_finishing f) { return finish(f, f.table->columns[f.in->max]); }

static const uint8_t *bytes_min(const md_plan_input *in, const md_table *table, int64_t id, uint8_t buffer[16],
                                size_t *size) {
    (void)buffer;
    return md_text_bytes(table->columns[in->min][id].blob, size);
}

static const uint8_t *bytes_max(const md_plan_input *in, const md_table *table, int64_t id, uint8_t buffer[16],
                                size_t *size) {
    (void)buffer;
    return md_text_bytes(table->columns[in->max][id].blob, size);
}

static int32_t as_is_min(const md_plan_input *in) { return in->min; }
static int32_t as_is_max(const md_plan_input *in) { return in->max; }

const md_aggregate_kind md_kind_min = {.takes = "lLgbuz", .plan = plan_min, .type = md_type_same, .finish = finish_min,
                                       .bytes = bytes_min, .as_is = as_is_min};
const md_aggregate_kind md_kind_max = {.takes = "lLgbuz", .plan = plan_max, .type = md_type_same, .finish = finish_max,
                                       .bytes = bytes_max, .as_is = as_is_max};
