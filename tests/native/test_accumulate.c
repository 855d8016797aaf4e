#include <math.h>

#include "aggregates/accumulate.h"
#include "check.h"

#define N 3000
#define GROUPS 7

static const md_aggregate ALL[] = {{.function = MD_COUNT, .input = 0}, {.function = MD_SUM, .input = 0}, {.function = MD_MIN, .input = 0}, {.function = MD_MAX, .input = 0}, {.function = MD_AVG, .input = 0}, {.function = MD_VARIANCE, .input = 0}};

static int make(md_type type, md_plan **plan, md_table *table) {
    CHECK(md_plan_new(&type, 1, ALL, 6, plan, NULL) == MD_OK);
    CHECK(md_table_init(*plan, table) == MD_OK && md_table_reserve(*plan, table, GROUPS) == MD_OK);
    md_table_clear(*plan, table, 0, GROUPS);
    return 0;
}

static int test_columns_are_shared(void) {
    md_type types[2] = {MD_F64, MD_I64};
    md_aggregate aggregates[4] = {{.function = MD_AVG, .input = 0}, {.function = MD_SUM, .input = 0}, {.function = MD_COUNT, .input = -1}, {.function = MD_AVG, .input = 1}};
    md_plan *plan = NULL;
    CHECK(md_plan_new(types, 2, aggregates, 4, &plan, NULL) == MD_OK);
    CHECK(plan->n_columns == 1 + 2 + 3); /* rows; n, sum; n, lo, hi */
    CHECK(plan->n_state == 2 + 2 + 1 + 3);
    md_plan_free(plan);
    return 0;
}

static int test_what_a_type_does_not_have_is_refused(void) {
    md_type text = MD_UTF8, odd = MD_I32;
    md_aggregate sum = {.function = MD_SUM, .input = 0}, far = {.function = MD_COUNT, .input = 3}, rows = {.function = MD_SUM, .input = -1};
    md_plan *plan = NULL;
    md_error err;
    CHECK(md_plan_new(&text, 1, &sum, 1, &plan, &err) == MD_BADARG && strstr(err.text, "text") != NULL);
    CHECK(md_plan_new(&text, 1, &far, 1, &plan, NULL) == MD_BADARG && md_plan_new(&odd, 1, &far, 1, &plan, NULL) == MD_BADARG);
    CHECK(md_plan_new(&text, 1, &rows, 1, &plan, NULL) == MD_BADARG && plan == NULL);
    return 0;
}

/* One row at a time, as the definitions say. */
typedef struct reference {
    int64_t n;
    double sum, min, max;
    long double total, squares;
    __int128 wide;
} reference;

static void reference_add(reference *r, double v, __int128 wide) {
    bool first = r->n++ == 0;
    r->sum += v;
    r->wide += wide;
    r->total += v;
    r->squares += (long double)v * v;
    if (first || isnan(r->min) || v < r->min) r->min = first || !isnan(v) ? v : r->min;
    if (first || isnan(v) || v > r->max) r->max = first || !isnan(r->max) ? v : r->max;
}

static int check_kernels(md_type type, bool nulls, bool lists, bool one, bool nan) {
    static md_scratch scratch;
    static md_word values[N + 1];
    static uint8_t validity[N / 8 + 1];
    static int32_t ids[N];
    static uint32_t rows[N];
    md_plan *plan = NULL;
    md_table table;
    reference want[GROUPS] = {0};
    CHECK_OK(make(type, &plan, &table));
    uint8_t raw[8 * N + 1]; /* values at an odd address */
    int64_t m = 0;
    for (int64_t i = 0; i < N; i++) {
        if (type == MD_F64) values[i].f = nan && check_below(9) == 0 ? NAN : (double)check_below(1000) / 7 - 60;
        else values[i].i = (int64_t)check_below(2000) - (type == MD_I64 ? 1000 : 0);
        memcpy(raw + 1 + 8 * i, &values[i], 8);
        if (!nulls || check_below(4) != 0) md_bit_set(validity, i);
        else md_bit_clear(validity, i);
        if (lists && check_below(3) == 0) continue;
        rows[m] = (uint32_t)i;
        ids[m++] = one ? 0 : (int32_t)check_below(GROUPS);
    }
    md_column column = {.type = type, .length = N, .values = raw + 1, .validity = nulls ? validity : NULL};
    if (nulls) CHECK(md_table_split(plan, &table, 0, GROUPS) == MD_OK);
    for (int64_t at = 0; at < m;) {
        int64_t k = 1 + (int64_t)check_below((uint64_t)(m - at < MD_CHUNK ? m - at : MD_CHUNK));
        md_accumulate(plan, &table, ids + at, &column, NULL, lists ? rows + at : NULL, at, k, one, &scratch);
        at += k;
    }
    for (int64_t k = 0; k < m; k++) {
        md_word v = values[rows[k]];
        double number = type == MD_F64 ? v.f : (double)v.i;
        if (!nulls || md_bit(validity, rows[k])) reference_add(&want[ids[k]], number, type == MD_F64 ? 0 : v.i);
    }
    md_word out[GROUPS];
    uint8_t valid[GROUPS];
    int64_t failed = 0;
    for (int32_t g = 0; g < 6; g++) {
        md_finish(plan, &table, g, NULL, GROUPS, out, valid, &failed);
        for (int k = 0; k < (one ? 1 : GROUPS); k++) {
            const reference *r = &want[k];
            double mean = (double)(r->total / (long double)r->n);
            bool ok = true;
            if (g == 0) ok = out[k].i == r->n;
            else if (g == 1 && type == MD_F64) ok = memcmp(&out[k], &r->sum, 8) == 0 || isnan(r->sum);
            else if (g == 1) ok = out[k].i == (int64_t)r->wide;
            else if (g < 4) {
                double best = g == 2 ? r->min : r->max, got = type == MD_F64 ? out[k].f : (double)out[k].i;
                ok = got == best || (isnan(got) && isnan(best));
            } else if (g == 4) ok = fabs(out[k].f - mean) < 1e-9 || isnan(mean);
            else {
                double v = (double)((r->squares - r->total * r->total / r->n) / (r->n - 1));
                ok = fabs(out[k].f - v) <= 1e-9 * fabs(v) || isnan(v);
            }
            CHECK(ok && valid[k] == 1);
        }
    }
    CHECK(failed == 0);
    md_table_free(plan, &table);
    md_plan_free(plan);
    return 0;
}

static int test_kernels(void) {
    static const md_type types[] = {MD_F64, MD_I64, MD_U64};
    for (int i = 0; i < 3 * 16; i++)
        CHECK_OK(check_kernels(types[i / 16], i & 1, i & 2, i & 4, (i & 8) && types[i / 16] == MD_F64));
    return 0;
}

/* Merging halves gives what accumulating all gives: counts, wide sums, extremes exactly; merging a group that
 * isn't there changes no bit. */
static int test_merge_and_identity(void) {
    static md_scratch scratch;
    static double values[N];
    static int32_t ids[N];
    md_plan *plan = NULL;
    md_table a, b, all, empty;
    CHECK_OK(make(MD_F64, &plan, &a));
    CHECK(md_table_init(plan, &b) == MD_OK && md_table_reserve(plan, &b, GROUPS) == MD_OK);
    CHECK(md_table_init(plan, &all) == MD_OK && md_table_reserve(plan, &all, GROUPS) == MD_OK);
    CHECK(md_table_init(plan, &empty) == MD_OK && md_table_reserve(plan, &empty, GROUPS) == MD_OK);
    md_table_clear(plan, &b, 0, GROUPS);
    md_table_clear(plan, &all, 0, GROUPS);
    md_table_clear(plan, &empty, 0, GROUPS);
    for (int i = 0; i < N; i++) {
        values[i] = (double)check_below(1000);
        ids[i] = (int32_t)check_below(GROUPS);
    }
    md_column column = {.type = MD_F64, .length = N, .values = (const uint8_t *)values};
    md_accumulate(plan, &a, ids, &column, NULL, NULL, 0, N / 2, false, &scratch);
    md_accumulate(plan, &b, ids + N / 2, &column, NULL, NULL, N / 2, N / 2, false, &scratch);
    md_accumulate(plan, &all, ids, &column, NULL, NULL, 0, N, false, &scratch);
    md_word before[16][GROUPS];
    for (int32_t c = 0; c < plan->n_columns; c++)
        if (a.columns[c] != NULL) memcpy(before[c], a.columns[c], sizeof before[c]);
    md_merge(plan, &a, NULL, &a, NULL, &empty, NULL, GROUPS);
    md_merge(plan, &a, NULL, &empty, NULL, &a, NULL, GROUPS);
    for (int32_t c = 0; c < plan->n_columns; c++)
        if (a.columns[c] != NULL) CHECK(memcmp(before[c], a.columns[c], sizeof before[c]) == 0);
    md_merge(plan, &a, NULL, &a, NULL, &b, NULL, GROUPS);
    const md_plan_input *in = &plan->inputs[0];
    int32_t rows = in->summaries[MD_MOMENTS], m2 = rows + 2;
    for (int k = 0; k < GROUPS; k++) {
        CHECK(a.columns[0][k].i == all.columns[0][k].i && a.columns[in->sum][k].f == all.columns[in->sum][k].f);
        CHECK(a.columns[in->min][k].f == all.columns[in->min][k].f && a.columns[in->max][k].f == all.columns[in->max][k].f);
        CHECK(a.columns[rows][k].i == all.columns[rows][k].i);
        CHECK(fabs(a.columns[m2][k].f / all.columns[m2][k].f - 1) < 1e-9);
    }
    md_table_free(plan, &a);
    md_table_free(plan, &b);
    md_table_free(plan, &all);
    md_table_free(plan, &empty);
    md_plan_free(plan);
    return 0;
}

static int test_sums_of_128_bits(void) {
    static md_scratch scratch;
    static int64_t values[4] = {INT64_MAX, INT64_MAX, INT64_MIN, INT64_MIN};
    static int32_t ids[4] = {0, 0, 0, 0};
    md_plan *plan = NULL;
    md_table table;
    md_word out[GROUPS];
    uint8_t valid[GROUPS];
    CHECK_OK(make(MD_I64, &plan, &table));
    md_column column = {.type = MD_I64, .length = 4, .values = (const uint8_t *)values};
    int64_t failed = 0;
    md_accumulate(plan, &table, ids, &column, NULL, NULL, 0, 2, false, &scratch);
    md_finish(plan, &table, 1, NULL, 1, out, valid, &failed);
    CHECK(failed == 1 && valid[0] == 2);
    md_finish(plan, &table, 4, NULL, 1, out, valid, &failed);
    CHECK(out[0].f == 9223372036854775807.0);
    md_accumulate(plan, &table, ids, &column, NULL, NULL, 2, 2, false, &scratch);
    failed = 0;
    md_finish(plan, &table, 1, NULL, 1, out, valid, &failed);
    CHECK(failed == 0 && valid[0] == 1 && out[0].i == -2);
    md_table_free(plan, &table);
    md_plan_free(plan);
    return 0;
}

static md_rc plan_and_table(md_plan **plan, md_table *table) {
    md_type types[2] = {MD_F64, MD_I64};
    md_aggregate aggregates[3] = {{.function = MD_AVG, .input = 0}, {.function = MD_VARIANCE, .input = 1}, {.function = MD_MAX, .input = 1}};
    md_rc rc = md_plan_new(types, 2, aggregates, 3, plan, NULL);
    if (rc == MD_OK) rc = md_table_init(*plan, table);
    if (rc == MD_OK) rc = md_table_reserve(*plan, table, 10);
    if (rc == MD_OK) rc = md_table_split(*plan, table, 0, 3);
    if (rc == MD_OK && (rc = md_table_reserve(*plan, table, 100)) != MD_OK && table->capacity != 10) rc = MD_BADARG;
    return rc;
}

static int test_every_allocation_may_fail(void) {
    md_plan *plan = NULL;
    md_table table = {0};
    CHECK_EVERY_ALLOC(plan_and_table(&plan, &table), {
        if (plan != NULL) md_table_free(plan, &table);
        md_plan_free(plan);
        plan = NULL;
    });
    return 0;
}

TEST_MAIN(TEST(test_columns_are_shared), TEST(test_what_a_type_does_not_have_is_refused), TEST(test_kernels),
          TEST(test_merge_and_identity), TEST(test_sums_of_128_bits), TEST(test_every_allocation_may_fail))
