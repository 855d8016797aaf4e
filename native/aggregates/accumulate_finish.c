#include "aggregates/accumulate.h"

#include <math.h>

#include "aggregates/accumulate_objects.h"
#include "base/md_alloc.h"

#define AT(list, k) ((list) != NULL ? (int64_t)(list)[k] : (k))

md_type md_finish_type(const md_plan *plan, int32_t g) {
    md_aggregate a = plan->aggregates[g];
    switch (a.function) {
    case MD_AVG:
    case MD_VARIANCE:
    case MD_STDDEV:
    case MD_QUANTILE:
    case MD_APPROX_QUANTILE:
        return MD_F64;
    case MD_SUM:
        if (plan->inputs[a.input].type == MD_BINARY) return MD_BINARY;
        return plan->inputs[a.input].type == MD_F64 ? MD_F64 : MD_I64;
    case MD_MIN:
    case MD_MAX:
    case MD_FIRST:
    case MD_LAST:
        return plan->inputs[a.input].type;
    default:
        return MD_I64;
    }
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

const uint8_t *md_finish_bytes(const md_plan *plan, const md_table *table, int32_t g, int64_t id, uint8_t buffer[16],
                               size_t *size) {
    md_aggregate a = plan->aggregates[g];
    const md_plan_input *in = &plan->inputs[a.input];
    if (a.function == MD_SUM) {
        __int128 sum;
        decimal_fits(table, in, id, &sum);
        md_decimal_bytes(sum, buffer);
        *size = 16;
        return buffer;
    }
    int32_t column = a.function == MD_MIN ? in->min : a.function == MD_MAX ? in->max
                     : a.function == MD_FIRST ? in->first : in->last;
    const md_blob *blob = table->columns[column][id].blob;
    *size = blob->size;
    return blob->bytes;
}

/* ---- finish ---- */

static md_rc finish_quantile(const md_table *table, const md_plan_input *in, md_aggregate a, const int32_t *order,
                             int64_t n, md_word *out, uint8_t *valid) {
    if (a.function == MD_APPROX_QUANTILE) {
        for (int64_t k = 0; k < n; k++)
            valid[k] = md_buckets_quantile(table->columns[in->buckets][AT(order, k)].blob, a.parameter, &out[k].f);
        return MD_OK;
    }
    size_t largest = 0;
    for (int64_t k = 0; k < n; k++) {
        const md_blob *blob = table->columns[in->values][AT(order, k)].blob;
        if (blob != NULL && blob->size > largest) largest = blob->size;
    }
    uint64_t *scratch = md_malloc(largest);
    if (scratch == NULL) return MD_NOMEM;
    for (int64_t k = 0; k < n; k++)
        valid[k] = md_values_quantile(table->columns[in->values][AT(order, k)].blob, a.parameter, scratch, &out[k].f);
    md_free(scratch);
    return MD_OK;
}

static void finish_placed(const md_table *table, const md_plan_input *in, bool last, bool text, const int32_t *order,
                          int64_t n, md_word *out, uint8_t *valid) {
    const md_word *at = table->columns[last ? in->last_at : in->first_at];
    const md_word *value = table->columns[last ? in->last : in->first];
    for (int64_t k = 0; k < n; k++) {
        int64_t id = AT(order, k);
        valid[k] = at[id].i != (last ? INT64_MIN : INT64_MAX);
        if (!text) out[k] = value[id];
    }
}

static void finish_text(const md_word *column, const int32_t *order, int64_t n, uint8_t *valid) {
    for (int64_t k = 0; k < n; k++) valid[k] = md_text_holds(column[AT(order, k)].blob);
}

static void finish_decimal(const md_table *table, const md_plan_input *in, md_aggregate a, const md_word *counts,
                           const int32_t *order, int64_t n, md_word *out, uint8_t *valid, int64_t *failed) {
    __int128 sum;
    for (int64_t k = 0; k < n; k++) {
        int64_t id = AT(order, k), count = counts[id].i;
        valid[k] = count > 0;
        if (a.function == MD_AVG) {
            out[k].f = decimal_mean(table, in, id, count > 0 ? count : 1) / (a.parameter > 0 ? a.parameter : 1);
        } else if (count > 0 && !decimal_fits(table, in, id, &sum)) {
            valid[k] = 2;
            ++*failed;
        }
    }
}

md_rc md_finish(const md_plan *plan, const md_table *table, int32_t g, const int32_t *order, int64_t n, md_word *out,
                uint8_t *valid, int64_t *failed) {
    md_aggregate a = plan->aggregates[g];
    const md_word *rows = md_table_n(plan, table, a.input);
    if (a.function == MD_COUNT) {
        for (int64_t k = 0; k < n; k++) {
            out[k] = rows[AT(order, k)];
            if (valid != NULL) valid[k] = 1;
        }
        return MD_OK;
    }
    const md_plan_input *in = &plan->inputs[a.input];
    bool text = in->type == MD_UTF8 || in->type == MD_BINARY;
    if (a.function == MD_QUANTILE || a.function == MD_APPROX_QUANTILE)
        return finish_quantile(table, in, a, order, n, out, valid);
    if (a.function == MD_APPROX_DISTINCT) {
        for (int64_t k = 0; k < n; k++) {
            out[k].i = md_hll_count(table->columns[in->hll][AT(order, k)].blob);
            if (valid != NULL) valid[k] = 1;
        }
        return MD_OK;
    }
    if (a.function == MD_FIRST || a.function == MD_LAST) {
        finish_placed(table, in, a.function == MD_LAST, text, order, n, out, valid);
        return MD_OK;
    }
    if (text && (a.function == MD_MIN || a.function == MD_MAX)) {
        finish_text(table->columns[a.function == MD_MIN ? in->min : in->max], order, n, valid);
        return MD_OK;
    }
    if (in->top >= 0 && (a.function == MD_SUM || a.function == MD_AVG)) {
        finish_decimal(table, in, a, rows, order, n, out, valid, failed);
        return MD_OK;
    }
    if (a.function == MD_VARIANCE || a.function == MD_STDDEV) {
        const md_word *vn = table->columns[in->vn], *m2 = table->columns[in->m2];
        for (int64_t k = 0; k < n; k++) {
            int64_t id = AT(order, k), count = vn[id].i;
            valid[k] = count >= 2;
            out[k].f = m2[id].f / (double)(count >= 2 ? count - 1 : 1);
            if (a.function == MD_STDDEV) out[k].f = sqrt(out[k].f);
        }
        return MD_OK;
    }
    for (int64_t k = 0; k < n; k++) valid[k] = rows[AT(order, k)].i > 0;
    if (a.function == MD_MIN || a.function == MD_MAX) {
        const md_word *from = table->columns[a.function == MD_MIN ? in->min : in->max];
        for (int64_t k = 0; k < n; k++) out[k] = from[AT(order, k)];
        return MD_OK;
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
    return MD_OK;
}
