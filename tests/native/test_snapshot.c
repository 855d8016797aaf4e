#include "batches.h"
#include "state/snapshot.h"

static const md_type KEYS[] = {MD_UTF8, MD_I64};
static const md_type INPUTS[] = {MD_F64, MD_I64, MD_BOOL};
static const md_aggregate AGGREGATES[] = {
    {.function = MD_SUM, .input = 0},  {.function = MD_VARIANCE, .input = 0}, {.function = MD_AVG, .input = 1},
    {.function = MD_MIN, .input = 2},  {.function = MD_COUNT, .input = -1},   {.function = MD_LAST, .input = 1},
    {.function = MD_FIRST, .input = 0}, {.function = MD_MAX, .input = 1},
};

static md_window_config config(int64_t advance) {
    return (md_window_config){.size_us = 10, .advance_us = advance, .keys = KEYS, .n_keys = 2, .inputs = INPUTS,
                              .n_inputs = 3, .aggregates = AGGREGATES,
                              .n_aggregates = sizeof AGGREGATES / sizeof *AGGREGATES};
}

/* Rows come and windows close while the groups are copied, any number at a time: what comes out is the state of
 * when it began, and the window is one that nobody copied. */
static int test_what_comes_meanwhile_is_not_in_it(void) {
    for (int round = 0; round < 60; round++) {
        md_window_config c = config(1 + round % 10);
        md_window *w = NULL, *plain = NULL;
        md_snapshot *s = NULL;
        batch state, made, again;
        batch a = batch_random("lulglb", 1 + (int64_t)check_below(3000), 0, 30, round % 3 != 0);
        CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_add(w, &a.schema, &a.array, NULL) == MD_OK);
        CHECK(md_window_new(&c, &plain, NULL) == MD_OK && md_window_add(plain, &a.schema, &a.array, NULL) == MD_OK);
        batch_free(&a);
        CHECK(md_window_state(plain, &state.schema, &state.array, NULL) == MD_OK);
        CHECK(md_snapshot_begin(w, 0, 0, &s, NULL) == MD_OK && md_snapshot_left(s) == state.array.length);
        int64_t now = 0;
        for (int step = 0; step < 12 && md_snapshot_left(s) > 0; step++) {
            batch b = batch_random("lulglb", (int64_t)check_below(200), now, 40, round % 2 == 0);
            CHECK(md_window_add(w, &b.schema, &b.array, NULL) == md_window_add(plain, &b.schema, &b.array, NULL));
            batch_free(&b);
            if (check_below(3) == 0) CHECK(md_snapshot_copy(s, (int64_t)check_below(400), NULL) == MD_OK);
            if (check_below(6) == 0) {
                now += (int64_t)check_below(9);
                CHECK(md_window_close(w, now, NULL) == MD_OK && md_window_close(plain, now, NULL) == MD_OK);
                CHECK(digest_ready(1, w) == digest_ready(1, plain));
            }
        }
        CHECK(md_snapshot_copy(s, INT64_MAX, NULL) == MD_OK && md_snapshot_left(s) == 0);
        CHECK(md_snapshot_finish(s, &made.schema, &made.array, NULL) == MD_OK);
        CHECK(made.array.length == state.array.length && digest(1, &made) == digest(1, &state));
        md_snapshot_free(s);
        batch_free(&made);
        batch_free(&state);
        CHECK(md_window_state(w, &made.schema, &made.array, NULL) == MD_OK);
        CHECK(md_window_state(plain, &again.schema, &again.array, NULL) == MD_OK);
        CHECK(digest(1, &made) == digest(1, &again));
        batch_free(&made);
        batch_free(&again);
        md_window_free(w);
        md_window_free(plain);
    }
    return 0;
}

/* Where memory ran out nothing is lost: the same call goes on. */
static int test_every_allocation_may_fail(void) {
    md_window_config c = config(3);
    batch a = batch_random("lulglb", 2000, 0, 30, true), state;
    md_window *w = NULL;
    CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_add(w, &a.schema, &a.array, NULL) == MD_OK);
    CHECK(md_window_state(w, &state.schema, &state.array, NULL) == MD_OK);
    for (long k = 0, failures = 1; failures > 0; k++) {
        md_snapshot *s = NULL;
        batch made;
        md_rc rc;
        md_alloc_fail_at = k;
        for (failures = 0; (rc = md_snapshot_begin(w, 0, 0, &s, NULL)) == MD_NOMEM; failures++) {}
        while (rc == MD_OK && md_snapshot_left(s) > 0)
            if (md_snapshot_copy(s, 100, NULL) == MD_NOMEM) failures++;
        while (rc == MD_OK && (rc = md_snapshot_finish(s, &made.schema, &made.array, NULL)) == MD_NOMEM) {
            failures++;
            rc = MD_OK;
        }
        md_alloc_fail_at = -1;
        CHECK(rc == MD_OK && failures < 2 && digest(1, &made) == digest(1, &state));
        md_snapshot_free(s);
        batch_free(&made);
    }
    batch_free(&state);
    batch_free(&a);
    md_window_free(w);
    return 0;
}

/* Either may be freed first. */
static int test_a_window_that_goes_before_its_copy(void) {
    md_window_config c = config(10);
    batch a = batch_random("lulglb", 500, 0, 30, true), made;
    for (int which = 0; which < 2; which++) {
        md_window *w = NULL;
        md_snapshot *s = NULL, *other = NULL;
        md_error err;
        CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_add(w, &a.schema, &a.array, NULL) == MD_OK);
        CHECK(md_snapshot_begin(w, 0, 0, &s, NULL) == MD_OK && md_snapshot_begin(w, 0, 0, &other, &err) == MD_BADARG);
        CHECK(md_snapshot_copy(s, 70, NULL) == MD_OK);
        if (which == 0) {
            md_window_free(w);
            CHECK(md_snapshot_copy(s, 70, &err) == MD_BADARG);
            CHECK(md_snapshot_finish(s, &made.schema, &made.array, &err) == MD_BADARG);
            md_snapshot_free(s);
        } else {
            md_snapshot_free(s);
            CHECK(md_window_add(w, &a.schema, &a.array, NULL) == MD_OK);
            CHECK(md_snapshot_begin(w, 0, 0, &other, NULL) == MD_OK);
            md_snapshot_free(other);
            md_window_free(w);
        }
    }
    batch_free(&a);
    return 0;
}

TEST_MAIN(TEST(test_what_comes_meanwhile_is_not_in_it), TEST(test_every_allocation_may_fail),
          TEST(test_a_window_that_goes_before_its_copy))
