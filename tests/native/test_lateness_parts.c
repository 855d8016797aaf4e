#include "arrays.h"
#include "check.h"
#include "order/lateness_parts.h"

#define ROWS 300
#define PARTS 40

static md_column column(const int64_t *times, int64_t n) {
    return (md_column){.type = MD_I64, .length = n, .values = (const uint8_t *)times};
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The rule of the header with plain loops over all partitions. */
typedef struct slow {
    int64_t max_us[PARTS], floor_us[PARTS], count, slack_us, promised_us;
} slow;

static int64_t slow_limit(const slow *s, int64_t p) {
    int64_t limit = s->max_us[p] == INT64_MIN ? INT64_MIN : s->max_us[p] - s->slack_us;
    return larger(larger(limit, s->floor_us[p]), s->promised_us);
}

static int64_t slow_boundary(const slow *s) {
    int64_t least = s->count > 0 ? INT64_MAX : s->promised_us;
    for (int64_t p = 0; p < s->count; p++) least = slow_limit(s, p) < least ? slow_limit(s, p) : least;
    return least;
}

static int test_against_plain_loops(void) {
    for (int round = 0; round < 200; round++) {
        md_parts l;
        slow s = {.slack_us = (int64_t)check_below(20), .promised_us = INT64_MIN};
        CHECK(md_parts_init(&l, s.slack_us, NULL) == MD_OK);
        int64_t now = 0;
        for (int step = 0; step < 12; step++) {
            int64_t times[ROWS], n = (int64_t)check_below(ROWS), late = 0;
            int32_t ids[ROWS];
            bool flags[ROWS];
            int64_t before = s.count;
            slow t = s;
            for (int64_t i = 0; i < n; i++) {
                now += (int64_t)check_below(3);
                times[i] = now - (int64_t)check_below(40);
                int64_t top = t.count < PARTS - 1 ? t.count + 1 : t.count;
                ids[i] = (int32_t)check_below((uint64_t)(check_below(8) == 0 ? top : larger(1, t.count)));
                if (ids[i] == t.count) {
                    t.max_us[t.count] = INT64_MIN;
                    t.floor_us[t.count] = slow_boundary(&t);
                    t.count++;
                }
                flags[i] = times[i] < slow_limit(&t, ids[i]);
                late += flags[i];
                t.max_us[ids[i]] = larger(t.max_us[ids[i]], times[i]);
            }
            s = t;
            md_column c = column(times, n);
            md_late_rows found;
            CHECK(md_parts_judge(&l, &c, ids, &found, NULL) == MD_OK);
            CHECK(found.count == late && (found.mask != NULL) == (late > 0) && l.count >= before);
            for (int64_t i = 0; late > 0 && i < n; i++) CHECK(md_bit(found.mask, i) == flags[i]);
            md_free(found.mask);
            if (s.count > 0 && check_below(3) == 0) {
                int64_t p = (int64_t)check_below((uint64_t)s.count), floor_us = now - (int64_t)check_below(10);
                s.floor_us[p] = larger(s.floor_us[p], floor_us);
                CHECK(md_parts_lift(&l, p, floor_us, NULL) == MD_OK);
            }
            if (check_below(5) == 0) {
                s.promised_us = larger(s.promised_us, now - 30);
                CHECK(md_parts_promise(&l, s.promised_us, NULL) == MD_OK);
            }
            int64_t holder;
            CHECK(md_parts_boundary(&l, &holder) == slow_boundary(&s));
            CHECK((holder < 0) == (s.count == 0));
            CHECK(holder < 0 || slow_limit(&s, holder) == slow_boundary(&s));
        }
        md_parts_free(&l);
    }
    return 0;
}

static int test_one_not_seen_holds_the_boundary(void) {
    md_parts l;
    int64_t times[] = {100, 90}, holder;
    int32_t ids[] = {1, 1}, other = 0;
    md_column c = column(times, 2), one = column(times, 1);
    md_late_rows late;
    CHECK(md_parts_init(&l, 5, NULL) == MD_OK);
    CHECK(md_parts_append(&l, INT64_MIN, INT64_MIN) == MD_OK && md_parts_append(&l, INT64_MIN, INT64_MIN) == MD_OK);
    CHECK(md_parts_judge(&l, &c, ids, &late, NULL) == MD_OK && late.count == 1 && late.worst_us == 5);
    md_free(late.mask);
    CHECK(md_parts_boundary(&l, &holder) == INT64_MIN && holder == 0);
    CHECK(md_parts_judge(&l, &one, &other, &late, NULL) == MD_OK && late.count == 0);
    CHECK(md_parts_boundary(&l, &holder) == 95);
    md_parts_free(&l);
    return 0;
}

static int test_idle_partitions_are_lifted_to_the_others(void) {
    md_parts l;
    int64_t maxima[] = {100, 50, 80, 20}, holder;
    CHECK(md_parts_init(&l, 10, NULL) == MD_OK);
    for (int p = 0; p < 4; p++) CHECK(md_parts_append(&l, maxima[p], INT64_MIN) == MD_OK);
    int64_t active[] = {9, 5, 9, 5};
    CHECK(!md_parts_rest(&l, active, 4) && md_parts_boundary(&l, &holder) == 10 && holder == 3);
    CHECK(!md_parts_rest(&l, active, 5) && md_parts_boundary(&l, &holder) == 70);
    CHECK(md_parts_limit(&l, 1) == 70 && md_parts_limit(&l, 3) == 70 && md_parts_limit(&l, 0) == 90);
    CHECK(md_parts_rest(&l, active, 9) && md_parts_boundary(&l, &holder) == 70);
    md_parts_free(&l);
    return 0;
}

static int test_bad_arguments_change_nothing(void) {
    md_parts l;
    int64_t times[] = {5, 9}, holder;
    int32_t skips[] = {0, 2}, negative[] = {-1, 0}, good[] = {0, 1};
    uint8_t validity = 1;
    md_column c = column(times, 2), nulls = c, text = c;
    nulls.validity = &validity;
    text.type = MD_F64;
    md_late_rows late = {.count = -7};
    CHECK(md_parts_init(&l, -1, NULL) == MD_BADARG && md_parts_init(&l, 0, NULL) == MD_OK);
    CHECK(md_parts_judge(&l, &c, skips, &late, NULL) == MD_BADARG);
    CHECK(md_parts_judge(&l, &c, negative, &late, NULL) == MD_BADARG);
    CHECK(md_parts_judge(&l, &nulls, good, &late, NULL) == MD_BADARG);
    CHECK(md_parts_judge(&l, &text, good, &late, NULL) == MD_BADARG);
    CHECK(late.count == -7 && l.count == 0);
    CHECK(md_parts_lift(&l, 0, 1, NULL) == MD_BADARG);
    CHECK(md_parts_promise(&l, 7, NULL) == MD_OK && md_parts_promise(&l, 6, NULL) == MD_BADARG);
    CHECK(md_parts_boundary(&l, &holder) == 7 && holder == -1);
    md_parts_free(&l);
    return 0;
}

static md_rc judge_all(md_parts *l, int64_t *late_rows) {
    static int64_t times[ROWS];
    static int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++) {
        times[i] = 1000 - i;
        ids[i] = i + 1;
    }
    md_column c = column(times, ROWS);
    md_late_rows late;
    md_rc rc = md_parts_append(l, 995, INT64_MIN);
    if (rc == MD_OK) rc = md_parts_judge(l, &c, ids, &late, NULL);
    if (rc != MD_OK) return rc;
    *late_rows = late.count;
    md_free(late.mask);
    return MD_OK;
}

static int test_every_allocation_may_fail(void) {
    md_parts l;
    int64_t late = -1, count = 0;
    CHECK(md_parts_init(&l, 0, NULL) == MD_OK);
    CHECK_EVERY_ALLOC(judge_all(&l, &late), {
        CHECK(late >= 0 || l.count <= 1); /* failed: nothing of the rows */
        count = l.count;
        md_parts_free(&l);
    });
    CHECK(count == ROWS + 1 && late == ROWS - 6);
    return 0;
}

TEST_MAIN(TEST(test_against_plain_loops), TEST(test_one_not_seen_holds_the_boundary),
          TEST(test_idle_partitions_are_lifted_to_the_others),
          TEST(test_bad_arguments_change_nothing), TEST(test_every_allocation_may_fail))
