#include "batches.h"
#include "window/window_running.h"
#include "window/window_session.h"
#include "window/window_span.h"
#include "window/window_store.h"

static const md_type SLOT[] = {MD_I64};
static const md_type INPUTS[] = {MD_F64, MD_I64, MD_UTF8};
static const md_aggregate AGGREGATES[] = {
    {.function = MD_COUNT, .input = -1}, {.function = MD_SUM, .input = 0}, {.function = MD_MAX, .input = 1},
    {.function = MD_COUNT_DISTINCT, .input = 2}, {.function = MD_MIN, .input = 2},
};

static md_window *new_store(void) {
    md_window_config c = {.size_us = INT64_C(1) << 60, .advance_us = INT64_C(1) << 60, .keys = SLOT, .n_keys = 1,
                          .inputs = INPUTS, .n_inputs = 3, .aggregates = AGGREGATES, .n_aggregates = 5, .seed = 7};
    md_window *w = NULL;
    if (md_window_new(&c, &w, NULL) != MD_OK) abort();
    return w;
}

#define N 300

static int test_groups_leave_in_the_order_asked(void) {
    batch b = batch_random("llglu", N, 0, 50, true);
    for (int states = 0; states < 2; states++) {
        uint64_t want = 0;
        bool failed = true;
        for (long k = -1; failed; k++) {
            /* Slots of batch_random are 0 .. 11 or null, which is 0 here. */
            md_window *w = new_store();
            struct ArrowArray *slots = b.array.children[1];
            const void *validity = slots->buffers[0];
            slots->buffers[0] = NULL;
            CHECK(md_window_add(w, &b.schema, &b.array, NULL) == MD_OK);
            slots->buffers[0] = validity;
            const int64_t asked[] = {7, 0, 7, 3};
            md_alloc_fail_at = k;
            md_rc rc = md_window_pick(w, asked, 4, states != 0, NULL);
            md_alloc_fail_at = -1;
            failed = rc != MD_OK || k < 0;
            if (rc != MD_OK) {
                CHECK(rc == MD_NOMEM);
                struct ArrowSchema schema;
                struct ArrowArray array;
                CHECK(md_window_take(w, &schema, &array) == MD_EMPTY);
                CHECK(md_window_pick(w, asked, 4, states != 0, NULL) == MD_OK);
            }
            uint64_t got = digest_ready(1, w);
            if (k < 0) want = got;
            CHECK(got == want);
            const int64_t none[] = {99};
            CHECK(md_window_pick(w, none, 1, false, NULL) == MD_BADARG);
            md_window_free(w);
        }
    }
    batch_free(&b);
    return 0;
}

static int test_running_tells_every_row(void) {
    batch b = batch_random("llglu", N, 0, 50, true);
    struct ArrowArray *slots = b.array.children[1];
    const void *validity = slots->buffers[0];
    slots->buffers[0] = NULL;
    bool failed = true;
    for (long k = 0; failed; k += 1 + k / 8) {
        md_window *w = new_store();
        md_alloc_fail_at = k;
        md_rc rc = md_window_run(w, &b.schema, &b.array, NULL);
        md_alloc_fail_at = -1;
        failed = rc != MD_OK;
        CHECK(rc == MD_OK || rc == MD_NOMEM);
        if (rc == MD_OK) {
            batch out;
            CHECK(md_window_take(w, &out.schema, &out.array) == MD_OK);
            CHECK(out.array.length == N);
            const int64_t *row = out.array.children[0]->buffers[1];
            for (int64_t i = 0; i < N; i++) CHECK(row[i] == i);
            batch_free(&out);
        }
        md_window_free(w);
    }
    slots->buffers[0] = validity;
    batch_free(&b);
    return 0;
}

static md_column numbers(const void *values, md_type type, int64_t n) {
    return (md_column){.type = type, .length = n, .values = values};
}

/* Sessions of some rows, closed one after the other; after a failed call that is done again where it may be. */
static int feed_sessions(long k, uint64_t *h, bool *failed) {
    md_sessions *s = NULL;
    int32_t ids[N];
    int64_t times[N], slots[N];
    check_state = 5;
    for (int i = 0; i < N; i++) {
        ids[i] = (int32_t)check_below(4);
        times[i] = 3 * i + (int64_t)check_below(60);
    }
    *h = 1;
    *failed = false;
    CHECK(md_sessions_new(10, &s, NULL) == MD_OK);
    md_column keys = numbers(ids, MD_I32, N), clock = numbers(times, MD_I64, N);
    md_alloc_fail_at = k;
    md_rc rc = md_sessions_assign(s, &keys, &clock, N, slots, NULL);
    if (rc != MD_OK) {
        md_alloc_fail_at = -1;
        CHECK(rc == MD_NOMEM);
        *failed = true;
        md_sessions_free(s);
        return 0;
    }
    CHECK(md_sessions_parts(s) >= md_sessions_open(s));
    for (int64_t boundary = 100; md_sessions_open(s) > 0; boundary += 100) {
        batch out;
        int64_t open = md_sessions_open(s);
        rc = md_sessions_rows(s, true, boundary, INT64_MAX, &out.schema, &out.array, NULL);
        if (rc != MD_OK) {
            CHECK(rc == MD_NOMEM && md_sessions_open(s) == open);
            *failed = true;
            CHECK(md_sessions_rows(s, true, boundary, INT64_MAX, &out.schema, &out.array, NULL) == MD_OK);
        }
        *h = digest(*h, &out);
        batch_free(&out);
        CHECK(md_sessions_next_end(s) > boundary);
    }
    md_alloc_fail_at = -1;
    CHECK(md_sessions_parts(s) == 0);
    md_sessions_free(s);
    return 0;
}

static int test_sessions_close_whatever_fails(void) {
    uint64_t want, got;
    bool failed;
    CHECK_OK(feed_sessions(-1, &want, &failed));
    long k = 0, late = 0;
    do {
        CHECK_OK(feed_sessions(k++, &got, &failed));
        if (got != 1) {
            CHECK(got == want);
            late++;
        }
    } while (failed);
    CHECK(late > 1);
    CHECK(md_alloc_live == 0);
    return 0;
}

/* In parts by their ends: together what all at once gives, and none is cut where sessions end together. */
static int test_sessions_close_in_parts(void) {
    enum { KEYS = 40 };
    int32_t ids[KEYS];
    int64_t times[KEYS], slots[KEYS];
    for (int i = 0; i < KEYS; i++) {
        ids[i] = i;
        times[i] = i * 7 % KEYS / 4; /* four of them end at each moment */
    }
    md_column keys = numbers(ids, MD_I32, KEYS), clock = numbers(times, MD_I64, KEYS);
    md_sessions *s = NULL;
    CHECK(md_sessions_new(10, &s, NULL) == MD_OK);
    CHECK(md_sessions_assign(s, &keys, &clock, KEYS, slots, NULL) == MD_OK);
    int64_t closed = 0, end = -1;
    for (int parts = 0; md_sessions_open(s) > 0; parts++) {
        batch out;
        CHECK(parts < KEYS / 8 && md_sessions_rows(s, true, 100, 5, &out.schema, &out.array, NULL) == MD_OK);
        CHECK(out.array.length == 8);
        const uint8_t *last = out.array.children[2]->buffers[1];
        for (int64_t i = 0; i < out.array.length; i++) {
            CHECK(md_load_i64(last + 8 * i) == closed / 4 && md_load_i64(last + 8 * i) >= end);
            end = md_load_i64(last + 8 * i);
            closed++;
        }
        batch_free(&out);
    }
    CHECK(closed == KEYS);
    md_sessions_free(s);
    return 0;
}

/* A row that joins two sessions, without memory for it: both are as they were, and so a copy has them. */
static int test_sessions_that_cannot_be_joined_stay_two(void) {
    const int32_t ids[] = {0, 0};
    const int64_t times[] = {0, 15}, between[] = {8};
    int64_t slots[2];
    md_column keys = numbers(ids, MD_I32, 2), clock = numbers(times, MD_I64, 2);
    md_column key = numbers(ids, MD_I32, 1), joins = numbers(between, MD_I64, 1);
    for (int full = 0; full < 2; full++) {
        md_sessions *s = NULL;
        md_items_copy *c = NULL;
        batch all, copied;
        CHECK(md_sessions_new(10, &s, NULL) == MD_OK);
        CHECK(md_sessions_assign(s, &keys, &clock, 2, slots, NULL) == MD_OK && md_sessions_open(s) == 2);
        md_alloc_fail_at = full ? 0 : -1; /* all but the part has room */
        CHECK(md_sessions_assign(s, &key, &joins, 1, slots, NULL) == (full ? MD_NOMEM : MD_OK));
        CHECK(md_alloc_fail_at == -1 && md_sessions_open(s) == (full ? 2 : 1));
        CHECK(md_items_copy_begin(md_sessions_items(s), 0, 0, &c, NULL) == MD_OK);
        CHECK(md_items_copy_next(c, 9, &copied.schema, &copied.array, NULL) == MD_OK);
        CHECK(md_sessions_rows(s, false, 0, 0, &all.schema, &all.array, NULL) == MD_OK);
        CHECK(all.array.length == 2 && copied.array.length == 2); /* two sessions, or one of two parts */
        for (int column = 0; column < 6; column++)
            for (int64_t i = 0; i < 2; i++) /* in a chain the last comes first */
                CHECK(((const int64_t *)copied.array.children[column]->buffers[1])[i] ==
                      ((const int64_t *)all.array.children[column]->buffers[1])[full ? 1 - i : i]);
        CHECK(((const int64_t *)all.array.children[2]->buffers[1])[0] == 15);
        batch_free(&all);
        batch_free(&copied);
        md_items_copy_free(c);
        md_sessions_free(s);
    }
    return 0;
}

static int test_sessions_refuse_what_cannot_be(void) {
    md_sessions *s = NULL, *t = NULL;
    CHECK(md_sessions_new(0, &s, NULL) == MD_BADARG);
    CHECK(md_sessions_new(10, &s, NULL) == MD_OK && md_sessions_new(10, &t, NULL) == MD_OK);
    const int32_t ids[] = {0, 0, -1};
    const int64_t times[] = {0, 5, 7};
    int64_t slots[3];
    md_column keys = numbers(ids, MD_I32, 3), clock = numbers(times, MD_I64, 3);
    CHECK(md_sessions_assign(s, &keys, &clock, 3, slots, NULL) == MD_BADARG && md_sessions_open(s) == 0);
    CHECK(md_sessions_assign(s, &keys, &clock, 2, slots, NULL) == MD_OK && slots[0] == 0 && slots[1] == 0);
    batch rows;
    CHECK(md_sessions_rows(s, false, 0, 0, &rows.schema, &rows.array, NULL) == MD_OK);
    CHECK(md_sessions_load(t, &rows.schema, &rows.array, 0, 1, 2, NULL) == MD_BADDATA); /* no such key */
    CHECK(md_sessions_load(t, &rows.schema, &rows.array, 1, 0, 2, NULL) == MD_BADDATA); /* no such slot */
    CHECK(md_sessions_load(t, &rows.schema, &rows.array, 1, 1, 0, NULL) == MD_BADDATA); /* no such row */
    CHECK(md_sessions_load(t, &rows.schema, &rows.array, 1, 1, 2, NULL) == MD_OK && md_sessions_open(t) == 1);
    CHECK(md_sessions_next_end(t) == 15);
    const int64_t wrong[] = {1};
    CHECK(md_sessions_renumber(t, wrong, 1, NULL) == MD_BADARG && md_sessions_renumber(t, wrong, 0, NULL) == MD_BADARG);
    batch_free(&rows);
    md_sessions_free(s);
    md_sessions_free(t);
    return 0;
}

static md_rc feed_spans(md_span_kind kind, uint64_t *h) {
    md_spans *s = NULL;
    md_number size = {.i = 7}, advance = {.i = 3};
    if (kind == MD_SPAN_F64) {
        size.f = 0.7;
        advance.f = 0.3;
    }
    int32_t ids[N];
    int64_t slots[N];
    md_word values[N];
    check_state = 9;
    for (int i = 0; i < N; i++) {
        ids[i] = (int32_t)check_below(3);
        if (kind == MD_SPAN_F64) values[i].f = i * 0.05;
        else values[i].i = i / 2;
    }
    *h = 1;
    md_rc rc = md_spans_new(kind, size, advance, &s, NULL);
    md_column keys = numbers(ids, MD_I32, N), column = numbers(values, kind == MD_SPAN_F64 ? MD_F64 : MD_I64, N);
    if (rc == MD_OK) rc = md_spans_assign(s, &keys, kind == MD_SPAN_ROWS ? NULL : &column, N, slots, NULL);
    if (rc == MD_OK && kind != MD_SPAN_ROWS) rc = md_spans_finish(s, NULL);
    batch out;
    if (rc == MD_OK && (rc = md_spans_closed(s, &out.schema, &out.array, NULL)) == MD_OK) {
        *h = digest(*h, &out);
        batch_free(&out);
    }
    md_spans_free(s);
    return rc;
}

static int test_spans_whatever_fails(void) {
    static const md_span_kind kinds[] = {MD_SPAN_ROWS, MD_SPAN_I64, MD_SPAN_F64};
    for (int i = 0; i < 3; i++) {
        uint64_t want, got;
        CHECK(feed_spans(kinds[i], &want) == MD_OK);
        CHECK_EVERY_ALLOC(feed_spans(kinds[i], &got), (void)0);
        CHECK(got == want && want != 1);
    }
    return 0;
}

static int test_bounds_of_floats_are_those_that_are_told(void) {
    md_spans *s = NULL;
    CHECK(md_spans_new(MD_SPAN_F64, (md_number){.f = 0.1}, (md_number){.f = 0.1}, &s, NULL) == MD_OK);
    int32_t ids[1000] = {0};
    double values[1000];
    int64_t slots[1000];
    for (int i = 0; i < 1000; i++) values[i] = i * 0.1;
    md_column keys = numbers(ids, MD_I32, 1000), column = numbers(values, MD_F64, 1000);
    CHECK(md_spans_assign(s, &keys, &column, 1000, slots, NULL) == MD_OK);
    batch panes;
    CHECK(md_spans_finish(s, NULL) == MD_OK);
    CHECK(md_spans_closed(s, &panes.schema, &panes.array, NULL) == MD_OK);
    const int64_t *window = panes.array.children[0]->buffers[1], *slot = panes.array.children[4]->buffers[1];
    for (int64_t p = 0; p < panes.array.length; p++) {
        for (int i = 0; i < 1000; i++) {
            if (slots[i] != slot[p]) continue;
            CHECK((double)window[p] * 0.1 <= values[i] && values[i] < (double)window[p] * 0.1 + 0.1);
        }
    }
    batch_free(&panes);
    md_spans_free(s);
    const double bad[] = {__builtin_nan(""), __builtin_inf(), 1e300};
    CHECK(md_spans_new(MD_SPAN_F64, (md_number){.f = 0.1}, (md_number){.f = 0.1}, &s, NULL) == MD_OK);
    keys = numbers(ids, MD_I32, 3);
    column = numbers(bad, MD_F64, 3);
    CHECK(md_spans_assign(s, &keys, &column, 3, slots, NULL) == MD_OK);
    for (int i = 0; i < 3; i++) CHECK(slots[i] == MD_SPAN_BAD);
    md_spans_free(s);
    CHECK(md_spans_new(MD_SPAN_I64, (md_number){.i = 2}, (md_number){.i = 3}, &s, NULL) == MD_BADARG);
    return 0;
}

static int test_expiry(void) {
    md_expiry *e = NULL;
    CHECK(md_expiry_new(0, &e, NULL) == MD_BADARG);
    CHECK_EVERY_ALLOC(md_expiry_new(10, &e, NULL), (md_expiry_free(e), e = NULL));
    CHECK(md_expiry_new(10, &e, NULL) == MD_OK);
    const int32_t ids[] = {0, 0, 1, 0, 0};
    const int64_t times[] = {0, 10, 0, 5, 21}, want[] = {0, 0, 1, 0, 2};
    int64_t slots[5];
    md_column keys = numbers(ids, MD_I32, 5), clock = numbers(times, MD_I64, 5);
    md_alloc_fail_at = 0;
    CHECK(md_expiry_assign(e, &keys, &clock, 5, slots, NULL) == MD_NOMEM && md_expiry_keys(e) == 0);
    md_alloc_fail_at = -1;
    CHECK(md_expiry_assign(e, &keys, &clock, 5, slots, NULL) == MD_OK);
    for (int i = 0; i < 5; i++) CHECK(slots[i] == want[i]);
    md_expiry_free(e);
    return 0;
}

TEST_MAIN(TEST(test_groups_leave_in_the_order_asked), TEST(test_running_tells_every_row),
          TEST(test_sessions_close_whatever_fails), TEST(test_sessions_close_in_parts),
          TEST(test_sessions_that_cannot_be_joined_stay_two), TEST(test_sessions_refuse_what_cannot_be),
          TEST(test_spans_whatever_fails), TEST(test_bounds_of_floats_are_those_that_are_told), TEST(test_expiry))
