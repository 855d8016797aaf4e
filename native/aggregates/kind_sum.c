/* sum, avg: of floats one word, of integers 128 bits, of decimals 192 */
#include "aggregates/accumulate.h"
#include "aggregates/accumulate_objects.h"

static const md_word zero = {.i = 0};

static void plan_sum(md_plan *plan, int32_t g, md_plan_input *in) {
    int32_t n = md_plan_n(plan, in);
    if (in->sum < 0) {
        in->sum = md_plan_column(plan, zero);
        if (in->type != MD_F64) in->hi = md_plan_column(plan, zero);
        if (in->type == MD_BINARY) in->top = md_plan_column(plan, zero);
    }
    md_plan_state(plan, g, "n", MD_I64, n);
    if (in->type == MD_F64) {
        md_plan_state(plan, g, "sum", MD_F64, in->sum);
        return;
    }
    md_plan_state(plan, g, "lo", MD_I64, in->sum);
    md_plan_state(plan, g, "hi", MD_I64, in->hi);
    if (in->top >= 0) md_plan_state(plan, g, "top", MD_I64, in->top);
}

/* ---- decimals ---- */

static const __int128 TEN_19 = (__int128)10000000000000000000ull;

static bool decimal_fits(const md_table *table, const md_plan_input *in, int64_t id, __int128 *sum) {
    *sum = (__int128)((unsigned __int128)table->columns[in->hi][id].u << 64 | table->columns[in->sum][id].u);
    return table->columns[in->top][id].i == (*sum < 0 ? -1 : 0) && *sum < TEN_19 * TEN_19 && *sum > -(TEN_19 * TEN_19);
}

static double decimal_mean(const md_table *table, const md_plan_input *in, int64_t id, int64_t count) {
    __int128 sum;
    if (decimal_fits(table, in, id, &sum)) return (double)sum / (double)count;
    unsigned __int128 low = (unsigned __int128)sum;
    return ((double)table->columns[in->top][id].i * 0x1p128 + (double)low) / (double)count;
}

void md_decimal_bytes(__int128 value, uint8_t bytes[16]) {
    unsigned __int128 v = (unsigned __int128)value;
    uint64_t high = __builtin_bswap64((uint64_t)(v >> 64) ^ UINT64_C(1) << 63), low = __builtin_bswap64((uint64_t)v);
    memcpy(bytes, &high, 8);
    memcpy(bytes + 8, &low, 8);
}

static const uint8_t *sum_bytes(const md_plan_input *in, const md_table *table, int64_t id, uint8_t buffer[16],
                                size_t *size) {
    __int128 sum;
    decimal_fits(table, in, id, &sum);
    md_decimal_bytes(sum, buffer);
    *size = 16;
    return buffer;
}

static void sum_of_decimals(md_finishing f) {
    __int128 sum;
    for (int64_t k = 0; k < f.n; k++) {
        int64_t id = MD_AT(f.order, k);
        f.valid[k] = f.counts[id].i > 0;
        if (f.valid[k] && !decimal_fits(f.table, f.in, id, &sum)) {
            f.valid[k] = 2;
            ++*f.failed;
        }
    }
}

/* ---- finish ---- */

static md_rc finish_sum(md_finishing f) {
    const md_word *lo = f.table->columns[f.in->sum];
    if (f.in->top >= 0) {
        sum_of_decimals(f);
        return MD_OK;
    }
    for (int64_t k = 0; k < f.n; k++) f.valid[k] = f.counts[MD_AT(f.order, k)].i > 0;
    for (int64_t k = 0; k < f.n; k++) f.out[k] = lo[MD_AT(f.order, k)];
    if (f.in->hi < 0) return MD_OK;
    const md_word *hi = f.table->columns[f.in->hi];
    for (int64_t k = 0; k < f.n; k++) {
        int64_t id = MD_AT(f.order, k);
        bool fits = hi[id].i == (lo[id].i < 0 ? -1 : 0);
        if (!fits && f.valid[k]) {
            f.valid[k] = 2;
            ++*f.failed;
        }
    }
    return MD_OK;
}

static md_rc finish_avg(md_finishing f) {
    const md_plan_input *in = f.in;
    const md_word *lo = f.table->columns[in->sum], *hi = in->hi >= 0 ? f.table->columns[in->hi] : NULL;
    for (int64_t k = 0; k < f.n; k++) f.valid[k] = f.counts[MD_AT(f.order, k)].i > 0;
    if (in->top >= 0) {
        double one = f.parameter > 0 ? f.parameter : 1;
        for (int64_t k = 0; k < f.n; k++) {
            int64_t id = MD_AT(f.order, k), count = f.counts[id].i;
            f.out[k].f = decimal_mean(f.table, in, id, count > 0 ? count : 1) / one;
        }
    } else if (hi == NULL) {
        for (int64_t k = 0; k < f.n; k++) {
            int64_t id = MD_AT(f.order, k), count = f.counts[id].i;
            f.out[k].f = lo[id].f / (double)(count > 0 ? count : 1);
        }
    } else {
        for (int64_t k = 0; k < f.n; k++) {
            int64_t id = MD_AT(f.order, k), count = f.counts[id].i;
            __int128 sum = (__int128)((unsigned __int128)hi[id].u << 64 | lo[id].u);
            f.out[k].f = (double)sum / (double)(count > 0 ? count : 1);
        }
    }
    return MD_OK;
}

static md_type sum_type(md_type input) { return input == MD_BINARY || input == MD_F64 ? input : MD_I64; }
static int32_t sum_as_is(const md_plan_input *in) { return in->sum; }
static bool sum_may_fail(const md_plan_input *in) { return in->hi >= 0; }

const md_aggregate_kind md_kind_sum = {.takes = "lLgbz", .plan = plan_sum, .type = sum_type, .finish = finish_sum,
                                       .bytes = sum_bytes, .as_is = sum_as_is, .may_fail = sum_may_fail};
const md_aggregate_kind md_kind_avg = {.takes = "lLgbz", .plan = plan_sum, .type = md_type_float, .finish = finish_avg};
