#include "arrays.h"
#include "check.h"
#include "lateness.h"

static md_column column(const int64_t *times, int64_t n) {
    return (md_column){.type = MD_I64, .length = n, .values = (const uint8_t *)times};
}

static int test_the_drawing_of_the_header(void) {
    int64_t times[] = {10, 14, 12, 9, 20, 13};
    md_column c = column(times, 6);
    md_lateness l;
    md_late_rows late;
    CHECK(md_lateness_init(&l, 4, NULL) == MD_OK);
    CHECK(md_lateness_boundary(&l) == INT64_MIN);
    CHECK(md_lateness_judge(&l, &c, &late, NULL) == MD_OK);
    CHECK(late.count == 2 && late.worst_us == 3);
    CHECK(late.mask[0] == (1 << 3 | 1 << 5));
    CHECK(l.max_us == 20 && md_lateness_boundary(&l) == 16);
    md_free(late.mask);
    return 0;
}

static int test_promises_only_grow(void) {
    int64_t times[] = {5, 9};
    md_column c = column(times, 2);
    md_lateness l;
    md_late_rows late;
    CHECK(md_lateness_init(&l, 0, NULL) == MD_OK);
    CHECK(md_lateness_promise(&l, 7, NULL) == MD_OK && md_lateness_boundary(&l) == 7);
    CHECK(md_lateness_promise(&l, 6, NULL) == MD_BADARG && md_lateness_boundary(&l) == 7);
    CHECK(md_lateness_judge(&l, &c, &late, NULL) == MD_OK);
    CHECK(late.count == 1 && late.worst_us == 2 && late.mask[0] == 1);
    md_free(late.mask);
    CHECK(md_lateness_promise(&l, 8, NULL) == MD_OK && md_lateness_boundary(&l) == 9);
    return 0;
}

static int test_bad_arguments_change_nothing(void) {
    int64_t times[] = {5, 9};
    uint8_t validity = 1;
    md_column c = column(times, 2), nulls = c, text = c;
    nulls.validity = &validity;
    text.type = MD_F64;
    md_lateness l;
    md_late_rows late = {.count = -7};
    CHECK(md_lateness_init(&l, -1, NULL) == MD_BADARG);
    CHECK(md_lateness_init(&l, 1, NULL) == MD_OK);
    CHECK(md_lateness_judge(&l, &nulls, &late, NULL) == MD_BADARG);
    CHECK(md_lateness_judge(&l, &text, &late, NULL) == MD_BADARG);
    CHECK(late.count == -7 && !l.seen && l.max_us == INT64_MIN);
    c.length = 0;
    CHECK(md_lateness_judge(&l, &c, &late, NULL) == MD_OK && late.count == 0 && late.mask == NULL && !l.seen);
    return 0;
}

static int test_the_ends_of_int64(void) {
    int64_t times[] = {INT64_MIN, INT64_MAX, INT64_MIN, 0};
    int64_t slacks[] = {0, 1, INT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        md_column c = column(times, 4);
        md_lateness l;
        md_late_rows late;
        CHECK(md_lateness_init(&l, slacks[i], NULL) == MD_OK);
        CHECK(md_lateness_judge(&l, &c, &late, NULL) == MD_OK);
        CHECK(late.count == (i == 2 ? 1 : 2));
        CHECK(late.worst_us == UINT64_MAX - (uint64_t)slacks[i]);
        md_free(late.mask);
    }
    return 0;
}

enum { ROWS = 5000 };

/* The rule as it is written, row by row, in 128 bits. */
static int64_t plain(const int64_t *times, int64_t n, int64_t slack, int64_t promised, bool *out, uint64_t *worst) {
    int64_t count = 0;
    __int128 max = -((__int128)1 << 100), limit;
    *worst = 0;
    for (int64_t i = 0; i < n; i++) {
        limit = max - slack > promised ? max - slack : promised;
        out[i] = times[i] < limit;
        count += out[i];
        if (out[i] && (uint64_t)(limit - times[i]) > *worst) *worst = (uint64_t)(limit - times[i]);
        if (times[i] > max) max = times[i];
    }
    return count;
}

/* Disorder from none to much, in blocks so that all three looks at a chunk are taken; cut at random;
 * at addresses that are not aligned. */
static int test_random_rows_cut_anyhow_equal_the_plain_rule(void) {
    static uint8_t bytes[ROWS * 8 + 8];
    static int64_t times[ROWS];
    static bool expected[ROWS];
    int64_t total = 0;
    for (int round = 0; round < 60; round++) {
        int64_t n = 1 + (int64_t)check_below(ROWS), slack = (int64_t)check_below(200), worst_of_cuts = 0;
        int64_t promised = check_below(2) ? INT64_MIN : (int64_t)check_below(3000);
        uint64_t disorder = 1;
        for (int64_t i = 0; i < n; i++) {
            if (i % 700 == 0) disorder = (uint64_t[]){1, 50, 150, 400}[check_below(4)];
            times[i] = i - (int64_t)check_below(disorder);
        }
        uint64_t worst;
        int64_t count = plain(times, n, slack, promised, expected, &worst), found = 0;
        uint8_t *moved = bytes + check_below(8);
        memcpy(moved, times, (size_t)n * 8);
        md_lateness l;
        CHECK(md_lateness_init(&l, slack, NULL) == MD_OK);
        CHECK(md_lateness_promise(&l, promised, NULL) == MD_OK);
        for (int64_t start = 0, rows; start < n; start += rows) {
            rows = 1 + (int64_t)check_below((uint64_t)(n - start));
            md_column c = {.type = MD_I64, .length = rows, .values = moved + 8 * start};
            md_late_rows late;
            CHECK(md_lateness_judge(&l, &c, &late, NULL) == MD_OK);
            CHECK((late.mask == NULL) == (late.count == 0));
            for (int64_t i = 0; i < rows; i++)
                CHECK(expected[start + i] == (late.mask != NULL && md_bit(late.mask, i)));
            found += late.count;
            if ((int64_t)late.worst_us > worst_of_cuts) worst_of_cuts = (int64_t)late.worst_us;
            md_free(late.mask);
        }
        CHECK(found == count && (uint64_t)worst_of_cuts == worst);
        total += found;
    }
    CHECK(total > 1000);
    return 0;
}

static md_rc judge_once(md_lateness *l, md_late_rows *late) {
    static int64_t times[3000];
    for (int64_t i = 0; i < 3000; i++) times[i] = i == 2500 ? 0 : i;
    md_column c = column(times, 3000);
    md_rc rc = md_lateness_init(l, 10, NULL);
    if (rc == MD_OK) rc = md_lateness_judge(l, &c, late, NULL);
    return rc == MD_NOMEM && l->seen ? MD_BADDATA : rc; /* a failed call must leave it as it was */
}

static int test_every_allocation_can_fail(void) {
    md_lateness l;
    md_late_rows late = {0};
    CHECK_EVERY_ALLOC(judge_once(&l, &late), (md_free(late.mask), late.mask = NULL));
    CHECK(late.count == 1);
    return 0;
}

TEST_MAIN(TEST(test_the_drawing_of_the_header), TEST(test_promises_only_grow),
          TEST(test_bad_arguments_change_nothing), TEST(test_the_ends_of_int64),
          TEST(test_random_rows_cut_anyhow_equal_the_plain_rule), TEST(test_every_allocation_can_fail))
