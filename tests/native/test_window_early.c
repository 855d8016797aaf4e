#include "batches.h"

static const md_type KEYS[] = {MD_I64};
static const md_type INPUTS[] = {MD_I64, MD_F64, MD_UTF8};
static const md_aggregate AGGREGATES[] = {
    {.function = MD_COUNT, .input = -1}, {.function = MD_SUM, .input = 0}, {.function = MD_MIN, .input = 1},
    {.function = MD_COUNT_DISTINCT, .input = 2}, {.function = MD_LAST, .input = 2},
    {.function = MD_QUANTILE, .input = 1, .parameter = 0.5},
};

static md_window_config config(int64_t size, int64_t advance, md_stage stage) {
    return (md_window_config){.size_us = size, .advance_us = advance, .keys = KEYS, .n_keys = 1, .inputs = INPUTS,
                              .n_inputs = 3, .aggregates = AGGREGATES, .n_aggregates = 6, .stage = stage, .seed = 3};
}

static md_rc add(md_window *w, const batch *b) { return md_window_add(w, &b->schema, &b->array, NULL); }

/* The sum over all ready rows of (count + sum + distinct values), and their number. */
static void totals(md_window *w, int64_t *rows, int64_t *sum) {
    batch out;
    *rows = *sum = 0;
    while (md_window_take(w, &out.schema, &out.array) == MD_OK) {
        *rows += out.array.length;
        for (int64_t k = 0; k < out.array.length; k++)
            for (int c = 3; c < 7; c++)
                if (c != 5) *sum += ((const int64_t *)out.array.children[c]->buffers[1])[k + out.array.children[c]->offset];
        batch_free(&out);
    }
}

/* What early results say last of everything is what closing says, as nothing came between. */
static int check_last_word(md_window_config c, bool nulls) {
    for (int round = 0; round < 20; round++) {
        md_window *w = NULL;
        CHECK(md_window_new(&c, &w, NULL) == MD_OK);
        for (int i = 0; i < 4; i++) {
            batch b = batch_random("lllgu", (int64_t)check_below(60), 20 * i, 60, nulls);
            CHECK(add(w, &b) == MD_OK);
            batch_free(&b);
            int64_t rows, sum;
            if (check_below(2) == 0) {
                CHECK(md_window_early(w, NULL) == MD_OK);
                totals(w, &rows, &sum);
                CHECK(md_window_early(w, NULL) == MD_OK); /* nothing has changed since */
                totals(w, &rows, &sum);
                CHECK(rows == 0);
            }
            CHECK(md_window_close(w, 20 * i, NULL) == MD_OK);
            totals(w, &rows, &sum);
        }
        /* A fresh object tells of everything: what it says is what closing says. */
        batch state = {0};
        md_window *again = NULL;
        CHECK(md_window_state(w, &state.schema, &state.array, NULL) == MD_OK);
        CHECK(md_window_new(&c, &again, NULL) == MD_OK);
        CHECK(md_window_load(again, &state.schema, &state.array, md_window_boundary(w), md_window_taken(w), NULL) ==
              MD_OK);
        batch_free(&state);
        int64_t rows, sum, final_rows, final_sum;
        CHECK(md_window_early(again, NULL) == MD_OK);
        totals(again, &rows, &sum);
        CHECK(md_window_close(again, INT64_MAX, NULL) == MD_OK);
        totals(again, &final_rows, &final_sum);
        CHECK(rows == final_rows && sum == final_sum);
        md_window_free(again);
        md_window_free(w);
    }
    return 0;
}

static int test_tumbling(void) { return check_last_word(config(10, 10, MD_WHOLE), true); }
static int test_sliding(void) { return check_last_word(config(12, 4, MD_WHOLE), true); }
static int test_sliding_unevenly(void) { return check_last_word(config(10, 3, MD_WHOLE), false); }

static int test_only_whole_windows_that_are_taken(void) {
    md_window *w = NULL;
    md_window_config c = config(10, 10, MD_PARTIAL);
    CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_early(w, NULL) == MD_BADARG);
    md_window_free(w);
    c = config(10, 10, MD_WHOLE);
    batch b = batch_random("lllgu", 50, 0, 30, false);
    CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_early(w, NULL) == MD_OK && add(w, &b) == MD_OK);
    CHECK(md_window_close(w, 10, NULL) == MD_OK && md_window_early(w, NULL) == MD_BADARG);
    int64_t rows, sum;
    totals(w, &rows, &sum);
    CHECK(md_window_early(w, NULL) == MD_OK);
    totals(w, &rows, &sum);
    CHECK(rows > 0 && md_window_nbytes(w) > 0);
    batch_free(&b);
    md_window_free(w);
    return 0;
}

static int test_a_sum_that_does_not_fit_fails_once(void) {
    md_rows *rows = NULL;
    batch b = {0};
    CHECK(md_rows_new(5, &rows) == MD_OK);
    const char *formats[] = {"l", "l", "l", "g", "u"};
    for (int32_t c = 0; c < 5; c++) md_rows_define(rows, c, formats[c], "c", true);
    CHECK(md_rows_reserve(rows, 3) == MD_OK);
    for (int64_t i = 0; i < 3; i++) {
        md_rows_words(rows, 0)[i].i = 1;
        md_rows_words(rows, 1)[i].i = i == 2;
        md_rows_words(rows, 2)[i].i = i == 2 ? 5 : INT64_MAX;
        md_rows_words(rows, 3)[i].f = 0.5;
        CHECK(md_rows_put_bytes(rows, 4, i, (const uint8_t *)"x", 1) == MD_OK);
    }
    md_rows_commit(rows, 3);
    CHECK(md_rows_finish(rows, &b.schema, &b.array) == MD_OK);
    md_rows_free(rows);
    md_window *w = NULL;
    md_window_config c = config(10, 10, MD_WHOLE);
    int64_t n, sum;
    batch failed;
    CHECK(md_window_new(&c, &w, NULL) == MD_OK && add(w, &b) == MD_OK && md_window_early(w, NULL) == MD_OK);
    totals(w, &n, &sum);
    CHECK(n == 1 && sum == 1 + 5 + 1);
    CHECK(md_window_failed(w, &failed.schema, &failed.array) == MD_EMPTY);
    CHECK(md_window_close(w, 10, NULL) == MD_OK);
    CHECK(md_window_failed(w, &failed.schema, &failed.array) == MD_OK && failed.array.length == 1);
    batch_free(&failed);
    batch_free(&b);
    md_window_free(w);
    return 0;
}

static md_rc tell_twice(const batch *b, md_window **w, int64_t *rows) {
    md_window_config c = config(12, 4, MD_WHOLE);
    int64_t sum, more;
    md_rc rc = md_window_new(&c, w, NULL);
    if (rc == MD_OK) rc = add(*w, &b[0]);
    if (rc == MD_OK) rc = md_window_early(*w, NULL);
    if (rc != MD_OK) return rc;
    totals(*w, rows, &sum);
    rc = add(*w, &b[1]);
    for (int tries = 0; tries < 2; tries++) {
        rc = rc == MD_OK ? md_window_early(*w, NULL) : rc;
        if (rc == MD_OK) break;
    }
    totals(*w, &more, &sum);
    *rows += more;
    return rc;
}

static int test_every_allocation_may_fail(void) {
    batch b[2] = {batch_random("lllgu", 60, 0, 30, true), batch_random("lllgu", 60, 10, 40, false)};
    md_window *w = NULL;
    int64_t rows = 0;
    CHECK_EVERY_ALLOC(tell_twice(b, &w, &rows), {
        md_window_free(w);
        w = NULL;
    });
    CHECK(rows > 60);
    for (int i = 0; i < 2; i++) batch_free(&b[i]);
    return 0;
}

TEST_MAIN(TEST(test_tumbling), TEST(test_sliding), TEST(test_sliding_unevenly),
          TEST(test_only_whole_windows_that_are_taken), TEST(test_a_sum_that_does_not_fit_fails_once),
          TEST(test_every_allocation_may_fail))
