#include "batches.h"

static const md_type KEYS[] = {MD_I64, MD_UTF8};
static const md_type INPUTS[] = {MD_F64, MD_I64, MD_UTF8};
static const md_aggregate AGGREGATES[] = {
    {.function = MD_COUNT, .input = -1}, {.function = MD_SUM, .input = 0}, {.function = MD_MIN, .input = 0}, {.function = MD_MAX, .input = 1}, {.function = MD_AVG, .input = 1}, {.function = MD_VARIANCE, .input = 0}, {.function = MD_COUNT_DISTINCT, .input = 2},
    {.function = MD_STDDEV, .input = 0}, {.function = MD_FIRST, .input = 2}, {.function = MD_LAST, .input = 2},
    {.function = MD_MIN, .input = 2}, {.function = MD_MAX, .input = 2}, {.function = MD_LAST, .input = 1},
    {.function = MD_FIRST, .input = 0}, {.function = MD_APPROX_DISTINCT, .input = 2},
    {.function = MD_APPROX_DISTINCT, .input = 1}, {.function = MD_QUANTILE, .input = 1, .parameter = 0.3},
    {.function = MD_QUANTILE, .input = 1, .parameter = 1}, {.function = MD_APPROX_QUANTILE, .input = 0, .parameter = 0.5},
};

static md_window_config config(int64_t size, int64_t advance, md_stage stage) {
    return (md_window_config){.size_us = size, .advance_us = advance, .keys = KEYS, .n_keys = 2, .inputs = INPUTS,
                              .n_inputs = 3, .aggregates = AGGREGATES, .n_aggregates = sizeof AGGREGATES / sizeof *AGGREGATES, .stage = stage, .seed = 3};
}

#define STEPS 5
#define LAST INT64_MAX

/* An add of all rows; `spread`: by panes, as two threads do it, one after the other. */
static md_rc add(md_window *w, const batch *b, bool spread) {
    int64_t largest;
    if (!spread) return md_window_add(w, &b->schema, &b->array, NULL);
    md_rc rc = md_window_spread(w, &b->schema, &b->array, 2, &largest, NULL);
    if (rc != MD_OK) return rc;
    for (int32_t place = 0; place < 2; place++) md_window_spread_map(w, place);
    for (int32_t place = 2; place-- > 0 && md_window_spread_mapped(w);) md_window_spread_fill(w, place);
    return md_window_spread_end(w, NULL);
}

/* Five batches and closings; in step `step` the k-th allocation fails, after which the step is done again.
 * The digest of all that came out, and whether anything failed. */
static int feed(const md_window_config *c, const batch *batches, bool spread, int step, long k, uint64_t *h,
                bool *failed) {
    md_window *w = NULL;
    *h = 1;
    *failed = false;
    CHECK(md_window_new(c, &w, NULL) == MD_OK);
    for (int i = 0; i < STEPS; i++) {
        int64_t taken = md_window_taken(w), open = md_window_rows_open(w);
        md_alloc_fail_at = i == step ? k : -1;
        md_rc rc = add(w, &batches[i], spread);
        if (rc != MD_OK) {
            CHECK(rc == MD_NOMEM && md_window_taken(w) == taken && md_window_rows_open(w) == open);
            *failed = true;
            CHECK(add(w, &batches[i], spread) == MD_OK);
        }
        int64_t boundary = i == STEPS - 1 ? LAST : 10 * i;
        rc = md_window_close(w, boundary, NULL);
        if (rc != MD_OK) {
            CHECK(rc == MD_NOMEM);
            *failed = true;
            CHECK(md_window_close(w, boundary, NULL) == MD_OK);
        }
        md_alloc_fail_at = -1;
        *h = digest_ready(*h, w);
    }
    CHECK(md_window_rows_open(w) == 0);
    md_window_free(w);
    return 0;
}

static int check_failures(md_window_config c, int64_t n, bool spread) {
    batch batches[STEPS];
    for (int i = 0; i < STEPS; i++) batches[i] = batch_random("llugl" "u", n, 10 * i, 25, i % 2 == 1);
    uint64_t want, got;
    bool failed;
    CHECK_OK(feed(&c, batches, false, -1, -1, &want, &failed));
    for (int step = 0; step < STEPS; step++) {
        long k = 0;
        do {
            CHECK_OK(feed(&c, batches, spread, step, k++, &got, &failed));
            CHECK(got == want);
        } while (failed);
        CHECK(k > 1);
    }
    for (int i = 0; i < STEPS; i++) batch_free(&batches[i]);
    return 0;
}

static int test_every_allocation_may_fail_tumbling(void) { return check_failures(config(10, 10, MD_WHOLE), 40, false); }
static int test_every_allocation_may_fail_sliding(void) { return check_failures(config(10, 3, MD_WHOLE), 20, false); }
static int test_every_allocation_may_fail_partial(void) { return check_failures(config(12, 4, MD_PARTIAL), 20, false); }
static int test_every_allocation_may_fail_spread(void) {
    CHECK_OK(check_failures(config(10, 10, MD_WHOLE), 40, true));
    CHECK_OK(check_failures(config(10, 3, MD_WHOLE), 20, true));
    return check_failures(config(12, 4, MD_PARTIAL), 20, true);
}

/* Without a fill an end takes everything back; what can't be spread is refused. */
static int test_a_spread_that_stops(void) {
    md_window_config c = config(10, 10, MD_WHOLE), states = config(10, 10, MD_COMBINE);
    batch first = batch_random("llugl" "u", 30, 0, 25, false), second = batch_random("llugl" "u", 30, 0, 25, true);
    md_window *w = NULL, *other = NULL;
    int64_t largest;
    CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_new(&c, &other, NULL) == MD_OK);
    CHECK(add(w, &first, true) == MD_OK && add(other, &first, false) == MD_OK);
    CHECK(md_window_spread(w, &second.schema, &second.array, 3, &largest, NULL) == MD_OK);
    CHECK(largest >= 10 && largest < 30);
    CHECK(!md_window_spread_mapped(w));
    for (int32_t place = 0; place < 3; place++) md_window_spread_map(w, place);
    CHECK(md_window_spread_mapped(w));
    CHECK(md_window_spread_end(w, NULL) == MD_OK);
    CHECK(md_window_taken(w) == 30 && md_window_rows_open(w) == 30);
    CHECK(md_window_close(w, LAST, NULL) == MD_OK && md_window_close(other, LAST, NULL) == MD_OK);
    CHECK(digest_ready(1, w) == digest_ready(1, other));
    CHECK(md_window_spread(w, &second.schema, &second.array, 2, &largest, NULL) == MD_BADARG); /* all has closed */
    md_window_free(other);
    CHECK(md_window_new(&states, &other, NULL) == MD_OK);
    CHECK(md_window_spread(other, &second.schema, &second.array, 2, &largest, NULL) == MD_BADARG);
    md_window_free(w);
    md_window_free(other);
    batch_free(&first);
    batch_free(&second);
    return 0;
}

#define LARGE 9000

static batch large_batch(int round) {
    static md_word words[3][LARGE];
    batch b = {0};
    md_rows *rows = NULL;
    if (md_rows_new(3, &rows) != MD_OK) abort();
    for (int64_t i = 0; i < LARGE; i++) {
        words[0][i].i = 10 * round + i % 10;
        words[1][i].i = i * 7919;
        words[2][i].f = (double)i / 3;
    }
    for (int32_t c = 0; c < 3; c++) md_rows_define(rows, c, c == 2 ? "g" : "l", "c", false);
    if (md_rows_reserve(rows, LARGE) != MD_OK) abort();
    for (int32_t c = 0; c < 3; c++)
        if (md_rows_put(rows, c, words[c], NULL, LARGE) != MD_OK) abort();
    md_rows_commit(rows, LARGE);
    if (md_rows_finish(rows, &b.schema, &b.array) != MD_OK) abort();
    md_rows_free(rows);
    return b;
}

/* Two large windows; the k-th allocation of their closing fails (-1: none). */
static int feed_large(long k, const batch *batches, uint64_t *h, bool *failed) {
    static const md_type key = MD_I64, input = MD_F64;
    static const md_aggregate aggregates[] = {{.function = MD_COUNT, .input = -1}, {.function = MD_SUM, .input = 0}, {.function = MD_AVG, .input = 0}, {.function = MD_COUNT, .input = 0}, {.function = MD_MAX, .input = 0}};
    md_window_config c = {.size_us = 10, .advance_us = 10, .keys = &key, .n_keys = 1, .inputs = &input, .n_inputs = 1,
                          .aggregates = aggregates, .n_aggregates = 5};
    md_window *w = NULL;
    *h = 1;
    *failed = false;
    CHECK(md_window_new(&c, &w, NULL) == MD_OK);
    for (int round = 0; round < 2; round++) {
        CHECK(md_window_add(w, &batches[round].schema, &batches[round].array, NULL) == MD_OK);
        md_alloc_fail_at = k;
        if (md_window_close(w, 10 * round + 10, NULL) != MD_OK) {
            *failed = true;
            CHECK(md_window_close(w, 10 * round + 10, NULL) == MD_OK);
        }
        k = md_alloc_fail_at; /* goes on counting in the second round */
        md_alloc_fail_at = -1;
        *h = digest_ready(*h, w);
    }
    md_window_free(w);
    return 0;
}

/* Large windows hand their buffers over, and must have them back when that fails. */
static int test_every_allocation_may_fail_large(void) {
    batch batches[2] = {large_batch(0), large_batch(1)};
    uint64_t want, got;
    bool failed;
    long k = 0;
    CHECK_OK(feed_large(-1, batches, &want, &failed));
    do {
        CHECK_OK(feed_large(k++, batches, &got, &failed));
        CHECK(got == want);
    } while (failed);
    CHECK(k > 20);
    batch_free(&batches[0]);
    batch_free(&batches[1]);
    return 0;
}

static md_rc make(md_window_config c, md_window **w) { return md_window_new(&c, w, NULL); }

static int test_every_allocation_may_fail_when_made(void) {
    md_window *w = NULL;
    CHECK_EVERY_ALLOC(make(config(10, 3, MD_PARTIAL), &w), {
        md_window_free(w);
        w = NULL;
    });
    return 0;
}

static md_rc combine(const batch *parts, md_window **w, uint64_t *h) {
    md_window_config c = config(12, 4, MD_COMBINE);
    md_rc rc = md_window_new(&c, w, NULL);
    *h = 1;
    for (int i = 0; rc == MD_OK && i < 2; i++) rc = md_window_add(*w, &parts[i].schema, &parts[i].array, NULL);
    if (rc == MD_OK) rc = md_window_close(*w, LAST, NULL);
    if (rc == MD_OK) *h = digest_ready(*h, *w);
    return rc;
}

static int test_every_allocation_may_fail_combining(void) {
    batch parts[2];
    for (int i = 0; i < 2; i++) {
        batch b = batch_random("llugl" "u", 80, 0, 30, i == 1);
        md_window_config c = config(12, 4, MD_PARTIAL);
        md_window *w = NULL;
        CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_add(w, &b.schema, &b.array, NULL) == MD_OK);
        CHECK(md_window_close(w, LAST, NULL) == MD_OK);
        CHECK(md_window_take(w, &parts[i].schema, &parts[i].array) == MD_OK);
        md_window_free(w);
        batch_free(&b);
    }
    md_window *w = NULL;
    uint64_t h;
    CHECK_EVERY_ALLOC(combine(parts, &w, &h), {
        md_window_free(w);
        w = NULL;
    });
    CHECK(h != 1);
    for (int i = 0; i < 2; i++) batch_free(&parts[i]);
    return 0;
}

static int test_a_million_windows_of_a_microsecond(void) {
    static const md_aggregate count = {.function = MD_COUNT, .input = -1};
    md_window_config c = {.size_us = 1, .advance_us = 1, .aggregates = &count, .n_aggregates = 1};
    md_window *w = NULL;
    int64_t n = 0;
    CHECK(md_window_new(&c, &w, NULL) == MD_OK);
    for (int i = 0; i < 20; i++) {
        batch b = batch_random("l", 5000, 5000 * i, 5000, false), out;
        CHECK(md_window_add(w, &b.schema, &b.array, NULL) == MD_OK);
        CHECK(md_window_close(w, 5000 * (i + 1), NULL) == MD_OK);
        while (md_window_take(w, &out.schema, &out.array) == MD_OK) {
            const int64_t *counts = out.array.children[2]->buffers[1];
            for (int64_t k = 0; k < out.array.length; k++) n += counts[k];
            batch_free(&out);
        }
        batch_free(&b);
    }
    CHECK(n == 100000);
    md_window_free(w);
    return 0;
}

TEST_MAIN(TEST(test_every_allocation_may_fail_tumbling), TEST(test_every_allocation_may_fail_sliding),
          TEST(test_every_allocation_may_fail_partial), TEST(test_every_allocation_may_fail_spread),
          TEST(test_a_spread_that_stops), TEST(test_every_allocation_may_fail_large),
          TEST(test_every_allocation_may_fail_when_made), TEST(test_every_allocation_may_fail_combining),
          TEST(test_a_million_windows_of_a_microsecond))
