/* first, last */
#include "aggregates/accumulate.h"
#include "aggregates/accumulate_objects.h"
#include "keys/keys.h"

/* The place and the value, null where there is none. */
static void plan_placed(md_plan *plan, int32_t g, md_plan_input *in, int32_t *at, int32_t *value, int64_t nowhere) {
    if (*at < 0) {
        *at = md_plan_column(plan, (md_word){.i = nowhere});
        *value = md_type_is_text(in->type) ? md_plan_objects(plan, MD_CELL_TEXT)
                                           : md_plan_column(plan, (md_word){.i = 0});
    }
    plan->ordered = true;
    md_plan_nullable(plan, g, "at", MD_I64, *at, *at);
    md_plan_nullable(plan, g, "value", in->type, *value, *at);
}

static void plan_first(md_plan *plan, int32_t g, md_plan_input *in) {
    plan_placed(plan, g, in, &in->first_at, &in->first, INT64_MAX);
}

static void plan_last(md_plan *plan, int32_t g, md_plan_input *in) {
    plan_placed(plan, g, in, &in->last_at, &in->last, INT64_MIN);
}

static md_rc finish(md_finishing f, const md_word *at, const md_word *value, int64_t nowhere) {
    bool text = md_type_is_text(f.in->type);
    for (int64_t k = 0; k < f.n; k++) {
        int64_t id = MD_AT(f.order, k);
        f.valid[k] = at[id].i != nowhere;
        if (!text) f.out[k] = value[id];
    }
    return MD_OK;
}

static md_rc finish_first(md_finishing f) {
    return finish(f, f.table->columns[f.in->first_at], f.table->columns[f.in->first], INT64_MAX);
}

static md_rc finish_last(md_finishing f) {
    return finish(f, f.table->columns[f.in->last_at], f.table->columns[f.in->last], INT64_MIN);
}

static const uint8_t *bytes_first(const md_plan_input *in, const md_table *table, int64_t id, uint8_t buffer[16],
                                  size_t *size) {
    (void)buffer;
    return md_text_bytes(table->columns[in->first][id].blob, size);
}

static const uint8_t *bytes_last(const md_plan_input *in, const md_table *table, int64_t id, uint8_t buffer[16],
                                 size_t *size) {
    (void)buffer;
    return md_text_bytes(table->columns[in->last][id].blob, size);
}

const md_aggregate_kind md_kind_first = {.takes = "lLgbuz", .plan = plan_first, .type = md_type_same,
                                         .finish = finish_first, .bytes = bytes_first};
const md_aggregate_kind md_kind_last = {.takes = "lLgbuz", .plan = plan_last, .type = md_type_same,
                                        .finish = finish_last, .bytes = bytes_last};
