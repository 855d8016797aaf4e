#include "batches.h"

static const md_type KEYS[] = {MD_UTF8};
static const md_type INPUTS[] = {MD_F64, MD_U64, MD_BOOL, MD_UTF8};
static const md_aggregate AGGREGATES[] = {
    {.function = MD_SUM, .input = 0}, {.function = MD_VARIANCE, .input = 0}, {.function = MD_AVG, .input = 1}, {.function = MD_MIN, .input = 2}, {.function = MD_COUNT_DISTINCT, .input = 1}, {.function = MD_COUNT, .input = 2},
    {.function = MD_STDDEV, .input = 0}, {.function = MD_FIRST, .input = 3}, {.function = MD_LAST, .input = 3},
    {.function = MD_MIN, .input = 3}, {.function = MD_MAX, .input = 3}, {.function = MD_LAST, .input = 1},
    {.function = MD_FIRST, .input = 0}, {.function = MD_APPROX_DISTINCT, .input = 3},
    {.function = MD_APPROX_DISTINCT, .input = 1}, {.function = MD_QUANTILE, .input = 1, .parameter = 0.3},
    {.function = MD_QUANTILE, .input = 1, .parameter = 1}, {.function = MD_APPROX_QUANTILE, .input = 0, .parameter = 0.5},
};

static md_window_config config(int64_t advance) {
    return (md_window_config){.size_us = 10, .advance_us = advance, .keys = KEYS, .n_keys = 1, .inputs = INPUTS,
                              .n_inputs = 4, .aggregates = AGGREGATES,
                              .n_aggregates = sizeof AGGREGATES / sizeof *AGGREGATES};
}

/* Two batches, closed at 14 in between; saved and loaded there when `reload`. */
static int run(int64_t advance, const batch *a, const batch *b, bool reload, uint64_t *h) {
    md_window_config c = config(advance);
    md_window *w = NULL;
    batch state;
    *h = 1;
    CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_add(w, &a->schema, &a->array, NULL) == MD_OK);
    CHECK(md_window_close(w, 14, NULL) == MD_OK);
    *h = digest_ready(*h, w);
    if (reload) {
        md_window *before = w;
        int64_t open = md_window_rows_open(w);
        CHECK(md_window_state(w, &state.schema, &state.array, NULL) == MD_OK);
        c.seed = 77;
        CHECK(md_window_new(&c, &w, NULL) == MD_OK);
        CHECK(md_window_load(w, &state.schema, &state.array, md_window_boundary(before), md_window_taken(before), NULL) ==
              MD_OK);
        CHECK(md_window_rows_open(w) == open);
        batch again;
        CHECK(md_window_state(w, &again.schema, &again.array, NULL) == MD_OK);
        CHECK(digest(1, &again) == digest(1, &state));
        batch_free(&again);
        batch_free(&state);
        md_window_free(before);
    }
    CHECK(md_window_add(w, &b->schema, &b->array, NULL) == MD_OK && md_window_close(w, INT64_MAX, NULL) == MD_OK);
    *h = digest_ready(*h, w);
    md_window_free(w);
    return 0;
}

static int test_going_on_from_a_loaded_state_gives_the_same_bits(void) {
    for (int64_t advance = 1; advance <= 10; advance++) {
        batch a = batch_random("lugLbu", 300, 0, 30, true), b = batch_random("lugLbu", 300, 14, 30, false);
        uint64_t straight, reloaded;
        CHECK_OK(run(advance, &a, &b, false, &straight));
        CHECK_OK(run(advance, &a, &b, true, &reloaded));
        CHECK(straight == reloaded);
        batch_free(&a);
        batch_free(&b);
    }
    return 0;
}

static md_rc save_and_load(const batch *a, md_window **w, md_window **loaded, batch *state) {
    md_window_config c = config(3);
    if (*w == NULL) {
        long k = md_alloc_fail_at;
        md_alloc_fail_at = -1;
        if (md_window_new(&c, w, NULL) != MD_OK || md_window_add(*w, &a->schema, &a->array, NULL) != MD_OK) return MD_BADARG;
        md_alloc_fail_at = k;
    }
    md_rc rc = md_window_state(*w, &state->schema, &state->array, NULL);
    if (rc == MD_OK) rc = md_window_new(&c, loaded, NULL);
    if (rc == MD_OK) rc = md_window_load(*loaded, &state->schema, &state->array, INT64_MIN, 200, NULL);
    if (rc == MD_NOMEM && *loaded != NULL && md_window_rows_open(*loaded) != 0) return MD_BADARG; /* it must be empty */
    return rc;
}

static int test_every_allocation_may_fail(void) {
    batch a = batch_random("lugLbu", 200, 0, 30, true), state = {0};
    md_window *w = NULL, *loaded = NULL;
    CHECK_EVERY_ALLOC(save_and_load(&a, &w, &loaded, &state), {
        md_window_free(w);
        md_window_free(loaded);
        w = loaded = NULL;
        batch_free(&state);
    });
    batch_free(&a);
    return 0;
}

/* Any byte of the fixed-width buffers may be wrong: the load refuses or takes it, and never reads astray. */
static int test_damaged_states(void) {
    batch a = batch_random("lugLbu", 40, 0, 30, true);
    int refused = 0;
    for (int round = 0; round < 3000; round++) {
        md_window_config c = config(1 + round % 10);
        md_window *w = NULL, *loaded = NULL;
        batch state, out;
        CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_add(w, &a.schema, &a.array, NULL) == MD_OK);
        CHECK(md_window_state(w, &state.schema, &state.array, NULL) == MD_OK);
        struct ArrowArray *column = state.array.children[check_below((uint64_t)state.array.n_children)];
        char type = state.schema.children[column - state.array.children[0]]->format[0];
        uint8_t *buffer = (uint8_t *)(uintptr_t)column->buffers[type == 'z' ? 2 : 1];
        int64_t size = type == 'b' ? (column->length + 7) / 8 : 8 * column->length;
        if (type == 'z') size = ((const int32_t *)column->buffers[1])[column->length];
        if (type != 'u' && size > 0) buffer[check_below((uint64_t)size)] ^= (uint8_t)(1u << check_below(8));
        CHECK(md_window_new(&c, &loaded, NULL) == MD_OK);
        md_rc rc = md_window_load(loaded, &state.schema, &state.array, INT64_MIN, 40, NULL);
        CHECK(rc == MD_OK || rc == MD_BADDATA || rc == MD_BADARG);
        if (rc != MD_OK) {
            refused++;
            CHECK(md_window_rows_open(loaded) == 0 && md_window_taken(loaded) == 0);
        }
        CHECK(md_window_close(loaded, INT64_MAX, NULL) == MD_OK);
        while (md_window_take(loaded, &out.schema, &out.array) == MD_OK) batch_free(&out);
        if (md_window_failed(loaded, &out.schema, &out.array) == MD_OK) batch_free(&out);
        batch_free(&state);
        md_window_free(loaded);
        md_window_free(w);
    }
    CHECK(refused > 500);
    batch_free(&a);
    return 0;
}

TEST_MAIN(TEST(test_going_on_from_a_loaded_state_gives_the_same_bits), TEST(test_every_allocation_may_fail),
          TEST(test_damaged_states))
