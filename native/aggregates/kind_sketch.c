/* approx_count_distinct, quantile, approx_quantile: of the sketches of sketch_kinds.h */
#include "aggregates/accumulate.h"
#include "aggregates/accumulate_objects.h"
#include "base/hash.h"
#include "base/md_alloc.h"
#include "keys/keys.h"

/* ---- approx_count_distinct ---- */

/* Fixed: all nodes have to agree on it, unlike on hash_table. The finish is that of splitmix64, variant 13 of
 * D. Stafford; it maps different words to different hashes. */
#define HLL_SEED UINT64_C(0x6d656475736137)
static uint64_t finish_hash(uint64_t h) {
    h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 31;
}

static void add_hll(md_type type, const int32_t *ids, const uint8_t *values, int64_t n, md_word *const *columns) {
    for (int64_t i = 0; i < n; i++) {
        md_word w = md_load_word(values, i);
        uint64_t word = type == MD_F64 ? md_canonical(w.f) : w.u;
        md_hll_add(columns[0][(uint32_t)ids[i]].blob, finish_hash(word + HLL_SEED));
    }
}

static void add_hll_text(const md_column *c, const int32_t *ids, const uint32_t *rows, int64_t start, int64_t n,
                         md_word *const *columns) {
    for (int64_t i = 0; i < n; i++) {
        int64_t row = rows != NULL ? (int64_t)rows[i] : start + i;
        if (md_column_null(c, row)) continue;
        uint32_t size;
        const uint8_t *bytes = md_column_bytes(c, row, &size);
        md_hll_add(columns[0][(uint32_t)ids[i]].blob, finish_hash(md_hash_bytes(HLL_SEED, bytes, size)));
    }
}

const md_summary md_summary_hll = {.columns = 1, .cell = MD_CELL_HLL, .add = add_hll, .add_text = add_hll_text};

static void plan_hll(md_plan *plan, int32_t g, md_plan_input *in) {
    md_plan_state(plan, g, "hll", MD_BINARY, md_plan_summary(plan, in, MD_HLL));
}

static md_rc finish_hll(md_finishing f) {
    const md_word *column = f.table->columns[f.in->summaries[MD_HLL]];
    for (int64_t k = 0; k < f.n; k++) {
        f.out[k].i = md_hll_count(column[MD_AT(f.order, k)].blob);
        if (f.valid != NULL) f.valid[k] = 1;
    }
    return MD_OK;
}

const md_aggregate_kind md_kind_approx_distinct = {
    .takes = "lLgbuz", .never_null = true, .plan = plan_hll, .type = md_type_integer, .finish = finish_hll};

/* ---- quantile ---- */

static void add_values(md_type type, const int32_t *ids, const uint8_t *values, int64_t n, md_word *const *columns) {
    for (int64_t i = 0; i < n; i++)
        md_values_add(columns[0][(uint32_t)ids[i]].blob, md_as_double(type, md_load_word(values, i)));
}

const md_summary md_summary_values = {.columns = 1, .cell = MD_CELL_VALUES, .add = add_values};

static void plan_values(md_plan *plan, int32_t g, md_plan_input *in) {
    md_plan_state(plan, g, "values", MD_BINARY, md_plan_summary(plan, in, MD_VALUES));
}

static md_rc finish_values(md_finishing f) {
    const md_word *column = f.table->columns[f.in->summaries[MD_VALUES]];
    size_t largest = 0;
    for (int64_t k = 0; k < f.n; k++) {
        const md_blob *blob = column[MD_AT(f.order, k)].blob;
        if (blob != NULL && blob->size > largest) largest = blob->size;
    }
    uint64_t *scratch = md_malloc(largest);
    if (scratch == NULL) return MD_NOMEM;
    for (int64_t k = 0; k < f.n; k++)
        f.valid[k] = md_values_quantile(column[MD_AT(f.order, k)].blob, f.parameter, scratch, &f.out[k].f);
    md_free(scratch);
    return MD_OK;
}

const md_aggregate_kind md_kind_quantile = {
    .takes = "lLg", .fraction = true, .plan = plan_values, .type = md_type_float, .finish = finish_values};

/* ---- approx_quantile ---- */

static void add_buckets(md_type type, const int32_t *ids, const uint8_t *values, int64_t n, md_word *const *columns) {
    for (int64_t i = 0; i < n; i++)
        md_buckets_add(columns[0][(uint32_t)ids[i]].blob, md_as_double(type, md_load_word(values, i)));
}

const md_summary md_summary_buckets = {.columns = 1, .cell = MD_CELL_BUCKETS, .add = add_buckets};

static void plan_buckets(md_plan *plan, int32_t g, md_plan_input *in) {
    md_plan_state(plan, g, "buckets", MD_BINARY, md_plan_summary(plan, in, MD_BUCKETS));
}

static md_rc finish_buckets(md_finishing f) {
    const md_word *column = f.table->columns[f.in->summaries[MD_BUCKETS]];
    for (int64_t k = 0; k < f.n; k++)
        f.valid[k] = md_buckets_quantile(column[MD_AT(f.order, k)].blob, f.parameter, &f.out[k].f);
    return MD_OK;
}

const md_aggregate_kind md_kind_approx_quantile = {
    .takes = "lLg", .fraction = true, .plan = plan_buckets, .type = md_type_float, .finish = finish_buckets};
