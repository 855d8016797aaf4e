#include "arrays.h"
#include "check.h"
#include "order/lateness.h"

/* Looked at, then judged. */
static md_rc judge(md_lateness *l, const void *times, int64_t n, md_late_rows *out) {
    md_times looked;
    md_rc rc = md_times_look(times, n, &looked);
    if (rc != MD_OK) return rc;
    rc = md_lateness_judge(l, &looked, out, NULL);
    md_times_free(&looked);
    return rc;
}

static int test_the_drawing_of_the_header(void) {
    int64_t times[] = {10, 14, 12, 9, 20, 13};
    md_lateness l;
    md_late_rows late;
    CHECK(md_lateness_init(&l, 4, NULL) == MD_OK);
    CHECK(md_lateness_boundary(&l) == INT64_MIN);
    CHECK(judge(&l, times, 6, &late) == MD_OK);
    CHECK(late.count == 2 && late.worst_us == 3);
    CHECK(late.mask[0] == (1 << 3 | 1 << 5));
    CHECK(l.max_us == 20 && md_lateness_boundary(&l) == 16);
    md_free(late.mask);
    return 0;
}

static int test_promises_only_grow(void) {
    int64_t times[] = {5, 9};
    md_lateness l;
    md_late_rows late;
    CHECK(md_lateness_init(&l, 0, NULL) == MD_OK);
    CHECK(md_lateness_promise(&l, 7, NULL) == MD_OK && md_lateness_boundary(&l) == 7);
    CHECK(md_lateness_promise(&l, 6, NULL) == MD_BADARG && md_lateness_boundary(&l) == 7);
    CHECK(judge(&l, times, 2, &late) == MD_OK);
    CHECK(late.count == 1 && late.worst_us == 2 && late.mask[0] == 1);
    md_free(late.mask);
    CHECK(md_lateness_promise(&l, 8, NULL) == MD_OK && md_lateness_boundary(&l) == 9);
    return 0;
}

static int test_bad_arguments_and_no_rows_change_nothing(void) {
    md_lateness l;
    md_late_rows late = {.count = -7};
    CHECK(md_lateness_init(&l, -1, NULL) == MD_BADARG);
    CHECK(md_lateness_init(&l, 1, NULL) == MD_OK);
    CHECK(judge(&l, NULL, 0, &late) == MD_OK && late.count == 0 && late.mask == NULL && !l.seen);
    return 0;
}

static int test_the_ends_of_int64(void) {
    int64_t times[] = {INT64_MIN, INT64_MAX, INT64_MIN, 0};
    int64_t slacks[] = {0, 1, INT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        md_lateness l;
        md_late_rows late;
        CHECK(md_lateness_init(&l, slacks[i], NULL) == MD_OK);
        CHECK(judge(&l, times, 4, &late) == MD_OK);
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

/* Disorder from none to much, so that blocks pass in both ways or are judged by rows; cut at random, mostly where
 * blocks end, so that parts of one look are judged; at addresses that are not aligned. */
static int test_random_rows_cut_anyhow_equal_the_plain_rule(void) {
    static uint8_t bytes[ROWS * 8 + 8];
    static int64_t times[ROWS];
    static bool expected[ROWS];
    int64_t total = 0, parts = 0;
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
        md_times whole, part;
        CHECK(md_times_look(moved, n, &whole) == MD_OK);
        for (int64_t start = 0, rows; start < n; start += rows) {
            rows = 1 + (int64_t)check_below((uint64_t)(n - start));
            if (check_below(8) != 0 && start + (rows + 63) / 64 * 64 <= n) rows = (rows + 63) / 64 * 64;
            md_late_rows late;
            bool shared = md_times_part(&whole, start, rows, &part);
            CHECK(shared == (start % 64 == 0 && (rows % 64 == 0 || start + rows == n)));
            parts += shared;
            if (shared) CHECK(md_lateness_judge(&l, &part, &late, NULL) == MD_OK);
            else CHECK(judge(&l, moved + 8 * start, rows, &late) == MD_OK);
            CHECK((late.mask == NULL) == (late.count == 0));
            for (int64_t i = 0; i < rows; i++)
                CHECK(expected[start + i] == (late.mask != NULL && md_bit(late.mask, i)));
            found += late.count;
            if ((int64_t)late.worst_us > worst_of_cuts) worst_of_cuts = (int64_t)late.worst_us;
            md_free(late.mask);
        }
        md_times_free(&whole);
        CHECK(found == count && (uint64_t)worst_of_cuts == worst);
        total += found;
    }
    CHECK(total > 1000 && parts > 50);
    return 0;
}

static int test_a_look_finds_the_extents_of_blocks_and_parts(void) {
    static uint8_t bytes[300 * 8 + 8];
    int64_t times[300];
    bool found[2] = {false};
    for (int round = 0; round < 400; round++) {
        int64_t n = 1 + (int64_t)check_below(300), least, largest;
        uint64_t disorder = check_below(2) ? 1 : 90;
        for (int64_t i = 0; i < n; i++) times[i] = i - (int64_t)check_below(disorder);
        if (check_below(4) == 0) times[check_below((uint64_t)n)] = check_below(2) ? INT64_MIN : INT64_MAX;
        uint8_t *moved = bytes + check_below(8);
        memcpy(moved, times, (size_t)n * 8);
        md_times whole, part;
        CHECK(md_times_look(moved, n, &whole) == MD_OK && whole.length == n);
        for (int64_t start = 0; start < n; start += 64) {
            int64_t stop = start + 64 < n ? start + 64 : n, low = times[start], high = low;
            bool sorted = true;
            for (int64_t i = start + 1; i < stop; i++) {
                sorted &= times[i - 1] <= times[i];
                low = times[i] < low ? times[i] : low;
                high = times[i] > high ? times[i] : high;
            }
            const md_times_block *block = &whole.blocks[start / 64];
            CHECK(block->least == low && block->largest == high && (sorted || !block->sorted));
            found[block->sorted] = true;
            CHECK(md_times_part(&whole, start, stop - start, &part) && part.length == stop - start);
            md_times_extent(&part, &least, &largest);
            CHECK(least == low && largest == high);
        }
        CHECK(!md_times_part(&whole, 0, n + 1, &part) && !md_times_part(&whole, -64, 64, &part));
        CHECK(!md_times_part(&whole, n + 1, 0, &part) && !md_times_part(&whole, 0, INT64_MAX, &part));
        if (n > 64) CHECK(!md_times_part(&whole, 1, 64, &part) && !md_times_part(&whole, 0, 63, &part));
        md_times_free(&whole);
    }
    CHECK(found[0] && found[1]);
    return 0;
}

static md_rc judge_once(md_lateness *l, md_late_rows *late) {
    static int64_t times[3000];
    for (int64_t i = 0; i < 3000; i++) times[i] = i == 2500 ? 0 : i;
    md_rc rc = md_lateness_init(l, 10, NULL);
    if (rc == MD_OK) rc = judge(l, times, 3000, late);
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
          TEST(test_bad_arguments_and_no_rows_change_nothing), TEST(test_the_ends_of_int64),
          TEST(test_random_rows_cut_anyhow_equal_the_plain_rule),
          TEST(test_a_look_finds_the_extents_of_blocks_and_parts), TEST(test_every_allocation_can_fail))
