#include "arrays.h"
#include "check.h"
#include "order/order.h"

static md_column numbers(const int64_t *keys, int64_t n) {
    return (md_column){.type = MD_I64, .length = n, .values = (const uint8_t *)keys};
}

static md_column of_groups(const int32_t *groups, int64_t n) {
    return (md_column){.type = MD_I32, .length = n, .values = (const uint8_t *)groups};
}

static int test_the_drawing_of_the_header(void) {
    int64_t keys[] = {5, 3, 9, 4, 1, 7}, leave[6], n = -1;
    md_column c = numbers(keys, 6);
    md_bsort *sort;
    CHECK(md_bsort_new(2, &sort, NULL) == MD_OK);
    CHECK(md_bsort_add(sort, &c, NULL, 0, leave, &n, NULL) == MD_OK);
    CHECK(n == 4 && leave[0] == 1 && leave[1] == 3 && leave[2] == 4 && leave[3] == 0);
    CHECK(md_bsort_held(sort) == 2);
    CHECK(md_bsort_drain(sort, 0, leave, &n, NULL) == MD_OK && n == 0 && md_bsort_held(sort) == 2);
    CHECK(md_bsort_drain(sort, 9, leave, &n, NULL) == MD_OK);
    CHECK(n == 2 && leave[0] == 5 && leave[1] == 2 && md_bsort_held(sort) == 0);
    CHECK(md_bsort_drain(sort, 9, leave, &n, NULL) == MD_OK && n == 0);
    md_bsort_free(sort);
    return 0;
}

static int test_bad_arguments_change_nothing(void) {
    int64_t keys[] = {5, 9}, leave[2], n = -7;
    int32_t groups[] = {0, -1};
    uint8_t validity = 1;
    md_column c = numbers(keys, 2), text = c, g = of_groups(groups, 2), few = of_groups(groups, 1);
    md_column wide = c, nulls = of_groups(groups, 2);
    text.type = MD_F64;
    nulls.validity = &validity;
    md_bsort *sort = NULL;
    CHECK(md_bsort_new(-1, &sort, NULL) == MD_BADARG && sort == NULL);
    CHECK(md_bsort_new(1, &sort, NULL) == MD_OK);
    CHECK(md_bsort_add(sort, &text, NULL, 0, leave, &n, NULL) == MD_BADARG);
    CHECK(md_bsort_add(sort, &c, &g, 0, leave, &n, NULL) == MD_BADARG);
    CHECK(md_bsort_add(sort, &c, &few, 0, leave, &n, NULL) == MD_BADARG);
    CHECK(md_bsort_add(sort, &c, &nulls, 0, leave, &n, NULL) == MD_BADARG);
    CHECK(md_bsort_add(sort, &c, &wide, 0, leave, &n, NULL) == MD_BADARG);
    CHECK(md_bsort_add(sort, &c, NULL, -1, leave, &n, NULL) == MD_BADARG);
    CHECK(md_bsort_drain(sort, -1, leave, &n, NULL) == MD_BADARG);
    CHECK(n == -7 && md_bsort_held(sort) == 0);
    md_bsort_free(sort);
    md_bsort_free(NULL);
    return 0;
}

/* The rule as it is written: hold rows in a list, and let the least of slack + 1 leave. */
enum { ROWS = 600, GROUPS = 5 };

typedef struct plain {
    int64_t at[ROWS], n;
} plain;

static int64_t keys[ROWS];
static int32_t groups[ROWS];
static uint8_t validity[ROWS / 8 + 1];

static bool plain_before(int64_t a, int64_t b) {
    bool x = md_bit(validity, a), y = md_bit(validity, b);
    if (x != y) return !x;
    if (x && keys[a] != keys[b]) return keys[a] < keys[b];
    return a < b;
}

static int64_t plain_least(const plain *held) {
    int64_t least = 0;
    for (int64_t i = 1; i < held->n; i++) least = plain_before(held->at[i], held->at[least]) ? i : least;
    return least;
}

static int test_random_rows_cut_anyhow_equal_the_plain_rule(void) {
    static plain held[GROUPS];
    static int64_t expected[ROWS], found[ROWS];
    for (int round = 0; round < 300; round++) {
        int64_t n = 1 + (int64_t)check_below(ROWS), slack = (int64_t)check_below(12), left = 0, got = 0;
        bool grouped = check_below(2);
        memset(held, 0, sizeof held);
        memset(validity, 0, sizeof validity);
        for (int64_t i = 0; i < n; i++) {
            keys[i] = check_below(20) == 0 ? INT64_MIN : (int64_t)check_below(30) - 9;
            groups[i] = grouped ? (int32_t)check_below(GROUPS) : 0;
            if (check_below(5)) md_bit_set(validity, i);
            plain *of = &held[groups[i]];
            of->at[of->n++] = i;
            if (of->n <= slack) continue;
            int64_t least = plain_least(of);
            expected[left++] = of->at[least];
            of->at[least] = of->at[--of->n];
        }
        md_bsort *sort;
        CHECK(md_bsort_new(slack, &sort, NULL) == MD_OK);
        for (int64_t start = 0, rows; start < n; start += rows) {
            rows = 1 + (int64_t)check_below((uint64_t)(n - start));
            md_column c = numbers(keys + start, rows), g = of_groups(groups + start, rows);
            c.validity = validity;
            c.shift = start;
            int64_t now;
            CHECK(md_bsort_add(sort, &c, grouped ? &g : NULL, start, found + got, &now, NULL) == MD_OK);
            got += now;
        }
        CHECK(got == left && md_bsort_held(sort) == n - left);
        for (int64_t i = 0; i < got; i++) CHECK(found[i] == expected[i]);
        int64_t rest = n - left;
        for (int64_t gone = 0, now; gone < rest; gone += now) {
            int64_t most = 1 + (int64_t)check_below((uint64_t)rest);
            CHECK(md_bsort_drain(sort, most, found + gone, &now, NULL) == MD_OK);
            CHECK(now == (most < rest - gone ? most : rest - gone));
            CHECK(md_bsort_held(sort) == rest - gone - now);
        }
        for (int64_t i = 1; i < rest; i++) CHECK(plain_before(found[i - 1], found[i]));
        md_bsort_free(sort);
    }
    return 0;
}

static md_bsort *failing;
static int64_t leaving[ROWS];

static md_rc sort_once(void) {
    for (int64_t i = 0; i < ROWS; i++) keys[i] = -i, groups[i] = (int32_t)(i % GROUPS);
    md_column c = numbers(keys, ROWS), g = of_groups(groups, ROWS);
    int64_t n;
    md_rc rc = md_bsort_new(20, &failing, NULL);
    if (rc == MD_OK) rc = md_bsort_add(failing, &c, &g, 0, leaving, &n, NULL);
    if (rc == MD_OK && md_bsort_nbytes(failing) < 20 * GROUPS * 16) return MD_BADDATA;
    if (rc == MD_OK) rc = md_bsort_drain(failing, ROWS, leaving, &n, NULL);
    else if (rc == MD_NOMEM && failing != NULL && md_bsort_held(failing) != 0) rc = MD_BADDATA;
    return rc;
}

static int test_every_allocation_can_fail(void) {
    CHECK_EVERY_ALLOC(sort_once(), (md_bsort_free(failing), failing = NULL));
    CHECK(leaving[0] == 20 * GROUPS - 1);
    md_bsort_free(failing);
    failing = NULL;
    return 0;
}

TEST_MAIN(TEST(test_the_drawing_of_the_header), TEST(test_bad_arguments_change_nothing),
          TEST(test_random_rows_cut_anyhow_equal_the_plain_rule), TEST(test_every_allocation_can_fail))
