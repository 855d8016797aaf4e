/* A program into a window gives what the program and then the window give, or leaves the window as it was. */
#include <math.h>

#include "arrays.h"
#include "check.h"
#include "program/program.h"
#include "state/state.h"

enum { ROWS = 3000, COLUMNS = 4 };

/* Columns time, k (int64), x (float64), p (bool); all but the times with nulls. */
typedef struct rows {
    int64_t time[ROWS], k[ROWS];
    double x[ROWS];
    uint8_t p[ROWS / 8 + 16], validity[COLUMNS][ROWS / 8 + 16];
    const void *buffers[COLUMNS][2];
    struct ArrowArray columns[COLUMNS], *children[COLUMNS], array;
    struct ArrowSchema fields[COLUMNS], *pointers[COLUMNS], schema;
    int64_t extent[2];
} rows;

static const md_type TYPES[] = {MD_I64, MD_I64, MD_F64, MD_BOOL};

/* Times go up by `step` every 100 rows, with some disorder. */
static void make(rows *r, int64_t n, int64_t start, int64_t step, bool nulls) {
    static const char *const FORMATS[] = {"l", "l", "g", "b"};
    const void *values[] = {r->time, r->k, r->x, r->p};
    r->extent[0] = INT64_MAX;
    r->extent[1] = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        r->time[i] = start + i / 100 * step + (step > 0 ? (int64_t)check_below(4) : 0);
        r->k[i] = (int64_t)check_below(7) - 3;
        r->x[i] = check_below(40) == 0 ? NAN : ((double)check_below(90) - 40) / 8;
        if (r->time[i] < r->extent[0]) r->extent[0] = r->time[i];
        if (r->time[i] > r->extent[1]) r->extent[1] = r->time[i];
    }
    for (size_t i = 0; i < sizeof r->p; i++) r->p[i] = (uint8_t)check_random();
    for (int c = 0; c < COLUMNS; c++) {
        for (size_t i = 0; i < sizeof r->validity[c]; i++) r->validity[c][i] = (uint8_t)(check_random() | check_random());
        r->buffers[c][0] = nulls && c > 0 ? r->validity[c] : NULL;
        r->buffers[c][1] = values[c];
        r->columns[c] = array_over(r->buffers[c], 2, 0, n);
        r->children[c] = &r->columns[c];
        r->fields[c] = schema_of(FORMATS[c]);
        r->pointers[c] = &r->fields[c];
    }
    r->array = struct_over(r->children, COLUMNS, 0, n);
    r->schema = struct_schema(r->pointers, COLUMNS);
}

/* filter x > -2.0; k + k, x * x; filter p or not p (p is not null): the times, k, k + k, x * x, x, p. */
static const md_step STEPS[] = {
    {MD_P_COLUMN, 0, 0, 0, 0}, {MD_P_COLUMN, 1, 1, 0, 0}, {MD_P_COLUMN, 2, 2, 0, 0}, {MD_P_COLUMN, 3, 3, 0, 0},
    {MD_P_CONST, 4, 0, 0, 0},  {MD_P_GT, 5, 2, 4, 0},     {MD_P_FILTER, 0, 5, 0, 0}, {MD_P_ADD, 6, 1, 1, 0},
    {MD_P_MUL, 7, 2, 2, 0},    {MD_P_NOT, 8, 3, 0, 0},    {MD_P_OR, 9, 3, 8, 0},     {MD_P_FILTER, 0, 9, 0, 0},
};
static const md_output OUTPUTS[] = {{0, "l", "t"}, {1, "l", "k"}, {6, "l", "kk"},
                                    {7, "g", "xx"}, {2, "g", "x"}, {3, "b", "p"}};

static md_rc program_of(bool key, md_program **out) {
    static const md_register kind = MD_R_F64;
    double value = -2.0;
    int64_t bits;
    memcpy(&bits, &value, 8);
    md_output outputs[6];
    int32_t n = 0;
    for (int i = 0; i < 6; i++)
        if (i != 1 || key) outputs[n++] = OUTPUTS[i];
    md_program_config config = {.steps = STEPS, .n_steps = sizeof STEPS / sizeof STEPS[0], .columns = TYPES,
                                .n_columns = COLUMNS, .constants = &bits, .constant_kinds = &kind, .n_constants = 1,
                                .outputs = outputs, .n_outputs = n};
    return md_program_new(&config, out, NULL);
}

/* Of inputs kk, xx, x, p. */
static const md_aggregate CALLS[] = {
    {MD_COUNT, -1, 0}, {MD_SUM, 1, 0}, {MD_SUM, 0, 0},      {MD_MIN, 2, 0},  {MD_MAX, 2, 0},  {MD_AVG, 2, 0},
    {MD_COUNT, 0, 0},  {MD_MAX, 3, 0}, {MD_VARIANCE, 2, 0}, {MD_FIRST, 1, 0}, {MD_COUNT_DISTINCT, 0, 0}};
enum { PLAIN = 2, WORDS_ONLY = 9, ORDERED = 10, ALL = 11 };

static md_rc window_of(int32_t keys, int32_t calls, int64_t advance, md_window **out) {
    static const md_type key = MD_I64, inputs[] = {MD_I64, MD_F64, MD_F64, MD_BOOL};
    md_window_config config = {.size_us = 30, .advance_us = advance, .keys = &key, .n_keys = keys, .inputs = inputs,
                               .n_inputs = 4, .aggregates = CALLS, .n_aggregates = calls};
    return md_window_new(&config, out, NULL);
}

static bool same_values(const struct ArrowArray *a, const struct ArrowArray *b, const char *format) {
    if (a->length != b->length) return false;
    for (int64_t i = 0; i < a->length; i++) {
        bool valid = a->buffers[0] == NULL || md_bit(a->buffers[0], i);
        if (valid != (b->buffers[0] == NULL || md_bit(b->buffers[0], i))) return false;
        if (!valid) continue;
        if (format[0] == 'b' ? md_bit(a->buffers[1], i) != md_bit(b->buffers[1], i)
                             : md_load_u64((const uint8_t *)a->buffers[1] + 8 * i) !=
                                   md_load_u64((const uint8_t *)b->buffers[1] + 8 * i))
            return false;
    }
    return true;
}

/* The state of both, column by column (of 8 bytes or bits). */
static bool same_windows(md_window *a, md_window *b) {
    md_window *both[] = {a, b};
    struct ArrowSchema schemas[2];
    struct ArrowArray arrays[2];
    for (int i = 0; i < 2; i++)
        if (md_window_state(both[i], &schemas[i], &arrays[i], NULL) != MD_OK) return false;
    bool same = md_window_taken(a) == md_window_taken(b) && md_window_rows_open(a) == md_window_rows_open(b);
    for (int64_t c = 0; c < arrays[0].n_children; c++) {
        const char *format = schemas[0].children[c]->format;
        if (strchr("lgbt", format[0]) == NULL) continue; /* sets: their counts are in other tests */
        same &= same_values(arrays[0].children[c], arrays[1].children[c], format);
    }
    for (int i = 0; i < 2; i++) {
        schemas[i].release(&schemas[i]);
        arrays[i].release(&arrays[i]);
    }
    return same;
}

static md_rc one_by_one(md_program *p, const rows *r, md_window *w, int64_t *kept) {
    struct ArrowSchema schema;
    struct ArrowArray out;
    md_rc rc = md_program_run(p, &r->schema, &r->array, &schema, &out, kept, NULL);
    if (rc != MD_OK) return rc;
    rc = md_window_add(w, &schema, &out, NULL);
    schema.release(&schema);
    out.release(&out);
    return rc;
}

typedef struct pair {
    md_program *p;
    md_window *into, *after;
} pair;

static bool pair_make(pair *q, int32_t keys, int32_t calls, int64_t advance) {
    return program_of(keys > 0, &q->p) == MD_OK && window_of(keys, calls, advance, &q->into) == MD_OK &&
           window_of(keys, calls, advance, &q->after) == MD_OK;
}

static void pair_free(pair *q) {
    md_program_free(q->p);
    md_window_free(q->into);
    md_window_free(q->after);
}

static int check_pair(rows *r, pair *q) {
    static const int64_t lengths[] = {0, 1, 1023, 1024, 1025, 2500, ROWS};
    int64_t start = 0, kept[2][2];
    for (int train = 0; train < 5; train++) {
        int64_t step = (int64_t)check_below(3);
        make(r, lengths[check_below(7)], start, step * step * 3, check_below(3) == 0);
        const int64_t *extent = check_below(2) == 0 ? r->extent : NULL;
        CHECK(md_program_into(q->p, &r->schema, &r->array, q->into, extent, kept[0], NULL) == MD_OK);
        CHECK(one_by_one(q->p, r, q->after, kept[1]) == MD_OK);
        CHECK(memcmp(kept[0], kept[1], sizeof kept[0]) == 0);
        CHECK(same_windows(q->into, q->after));
        start += (int64_t)check_below(30);
    }
    return 0;
}

static int test_into_a_window_equals_one_by_one(void) {
    static rows r;
    static const int32_t calls[] = {PLAIN, WORDS_ONLY, ORDERED, ALL};
    for (int times = 0; times < 48; times++) {
        pair q = {0};
        CHECK(pair_make(&q, times / 2 % 2, calls[times / 4 % 4], times % 3 == 0 ? 12 : 30));
        if (times % 2 == 0) md_program_baseline(q.p);
        CHECK_OK(check_pair(&r, &q));
        pair_free(&q);
    }
    return 0;
}

/* A row of the last chunk that overflows, a time below the boundary: also where earlier chunks were added. */
static int test_a_failure_leaves_the_window_as_it_was(void) {
    static rows r;
    int64_t kept[2];
    for (int times = 0; times < 16; times++) {
        pair q = {0};
        CHECK(pair_make(&q, times % 2, WORDS_ONLY, times % 4 < 2 ? 12 : 30));
        make(&r, 1500, 50, times % 8 < 4 ? 0 : 5, false);
        for (int before = 0; before < times / 8; before++) { /* some: into groups and panes that are there */
            CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, NULL, kept, NULL) == MD_OK);
            CHECK(one_by_one(q.p, &r, q.after, kept) == MD_OK);
        }
        CHECK(md_window_close(q.into, 45, NULL) == MD_OK && md_window_close(q.after, 45, NULL) == MD_OK);
        make(&r, ROWS, 60, times % 8 < 4 ? 0 : 5, times % 2 == 0);
        int64_t last = ROWS - 3;
        r.x[last] = 1;
        for (int c = 0; c < COLUMNS; c++) md_bit_set(r.validity[c], last);
        r.k[last] = INT64_MAX;
        CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, NULL, kept, NULL) == MD_EMPTY);
        CHECK(same_windows(q.into, q.after));
        r.k[last] = 1;
        r.time[last] = 44;
        CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, NULL, kept, NULL) == MD_BADARG);
        CHECK(same_windows(q.into, q.after));
        r.time[last] = 45;
        CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, NULL, kept, NULL) == MD_OK);
        CHECK(one_by_one(q.p, &r, q.after, kept) == MD_OK);
        CHECK(same_windows(q.into, q.after));
        pair_free(&q);
    }
    return 0;
}

/* The first chunk has no null, a later one of the same pane has; the next pane begins with a chunk, at its first time. */
static int test_chunks_that_differ(void) {
    static rows r;
    for (int times = 0; times < 4; times++) {
        pair q = {0};
        int64_t kept[2];
        CHECK(pair_make(&q, 0, WORDS_ONLY, 30));
        make(&r, ROWS, 30, 0, true);
        memset(r.validity, 0xff, sizeof r.validity);
        for (int64_t i = 0; i < ROWS; i++) {
            if (r.x[i] < -1) r.x[i] = 2;
            if (i >= 2048) r.time[i] = times % 2 == 0 ? 60 : 30;
            if (i >= 1024 && i < 2048 && i % 3 == 0) md_bit_clear(r.validity[1], i);
        }
        CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, NULL, kept, NULL) == MD_OK);
        CHECK(one_by_one(q.p, &r, q.after, kept) == MD_OK);
        CHECK(same_windows(q.into, q.after));
        /* A boundary in the middle of a pane: no time of the pane below it. */
        CHECK(md_window_close(q.into, 75, NULL) == MD_OK && md_window_close(q.after, 75, NULL) == MD_OK);
        for (int64_t i = 0; i < ROWS; i++) r.time[i] = 75;
        r.time[times < 2 ? ROWS - 1 : 5] = 74;
        md_bit_set(r.validity[1], 5);
        int64_t extent[] = {74, 75};
        CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, times % 2 == 0 ? extent : NULL, kept, NULL) == MD_BADARG);
        CHECK(same_windows(q.into, q.after));
        pair_free(&q);
    }
    return 0;
}

/* All rows but the last are in one pane; that is at its end, or one before. */
static int test_an_extent_up_to_the_end_of_a_pane(void) {
    static rows r;
    static const int32_t calls[] = {PLAIN, WORDS_ONLY, ORDERED, ALL};
    int64_t kept[2];
    for (int times = 0; times < 16; times++) {
        pair q = {0};
        CHECK(pair_make(&q, times % 2, calls[times / 4], 30));
        make(&r, times % 4 < 2 ? ROWS : 100, 30, 0, false);
        int64_t last = r.array.length - 1;
        r.x[last] = 1;
        for (int64_t end = 59; end <= 60; end++) {
            r.time[last] = r.extent[1] = end;
            CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, r.extent, kept, NULL) == MD_OK);
            CHECK(one_by_one(q.p, &r, q.after, kept) == MD_OK);
            CHECK(same_windows(q.into, q.after));
        }
        pair_free(&q);
    }
    return 0;
}

/* One time is null, with a value of the pane of all others below: it is refused, unless a filter drops the row. */
static int test_a_null_time_is_refused(void) {
    static rows r;
    static const int32_t calls[] = {PLAIN, WORDS_ONLY, ORDERED, ALL};
    static const int64_t places[] = {0, 5, 1024, ROWS - 1};
    int64_t kept[2];
    for (int times = 0; times < 64; times++) {
        pair q = {0};
        int64_t at = places[times / 16];
        CHECK(pair_make(&q, times % 2, calls[times / 4 % 4], 30));
        make(&r, ROWS, 30, 0, false);
        memset(r.validity[0], 0xff, sizeof r.validity[0]);
        md_bit_clear(r.validity[0], at);
        r.buffers[0][0] = r.validity[0];
        r.columns[0].null_count = times % 8 < 4 ? -1 : 1; /* not counted, or counted */
        const int64_t *extent = times / 2 % 2 == 0 ? r.extent : NULL;
        r.x[at] = 1;
        CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, extent, kept, NULL) == MD_BADARG);
        CHECK(one_by_one(q.p, &r, q.after, kept) == MD_BADARG);
        CHECK(same_windows(q.into, q.after) && md_window_taken(q.into) == 0);
        r.x[at] = -3;
        CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, extent, kept, NULL) == MD_OK);
        CHECK(one_by_one(q.p, &r, q.after, kept) == MD_OK);
        CHECK(same_windows(q.into, q.after) && md_window_taken(q.into) > 0);
        pair_free(&q);
    }
    return 0;
}

/* Rows that a filter drops may have any time. */
static int test_times_of_dropped_rows_are_not_asked(void) {
    static rows r;
    int64_t kept[2];
    pair q = {0};
    CHECK(pair_make(&q, 0, WORDS_ONLY, 30));
    CHECK(md_window_close(q.into, 45, NULL) == MD_OK && md_window_close(q.after, 45, NULL) == MD_OK);
    make(&r, ROWS, 60, 0, false);
    r.x[7] = r.x[2000] = -3;
    r.time[7] = INT64_MIN;
    r.time[2000] = INT64_MAX;
    CHECK(md_program_into(q.p, &r.schema, &r.array, q.into, NULL, kept, NULL) == MD_OK);
    CHECK(one_by_one(q.p, &r, q.after, kept) == MD_OK);
    CHECK(same_windows(q.into, q.after));
    pair_free(&q);
    return 0;
}

/* The k-th allocation of the run fails: the window is as it was, and takes the rows when asked again. */
static int check_allocation(rows *r, int variant, long k, md_rc *rc) {
    int64_t kept[2];
    pair q = {0};
    long live = md_alloc_live;
    CHECK(pair_make(&q, variant % 2, variant < 4 ? WORDS_ONLY : ALL, 12));
    for (int before = 0; before < variant % 4 / 2; before++) {
        make(r, 2100, 50, 1, false);
        CHECK(md_program_into(q.p, &r->schema, &r->array, q.into, NULL, kept, NULL) == MD_OK);
        CHECK(one_by_one(q.p, r, q.after, kept) == MD_OK);
    }
    make(r, ROWS, 60, 7, true);
    md_alloc_fail_at = k;
    *rc = md_program_into(q.p, &r->schema, &r->array, q.into, NULL, kept, NULL);
    md_alloc_fail_at = -1;
    CHECK(*rc == MD_OK || *rc == MD_NOMEM);
    if (*rc != MD_OK) CHECK(same_windows(q.into, q.after));
    if (*rc != MD_OK) CHECK(md_program_into(q.p, &r->schema, &r->array, q.into, NULL, kept, NULL) == MD_OK);
    CHECK(one_by_one(q.p, r, q.after, kept) == MD_OK);
    CHECK(same_windows(q.into, q.after));
    pair_free(&q);
    CHECK(md_alloc_live == live);
    return 0;
}

static int test_every_allocation_can_fail(void) {
    static rows r;
    for (int variant = 0; variant < 8; variant++) {
        md_rc rc = MD_NOMEM;
        long k = 0;
        for (; rc != MD_OK; k++) CHECK_OK(check_allocation(&r, variant, k, &rc));
        CHECK(k > 3);
    }
    return 0;
}

static int test_a_window_of_other_columns_is_refused(void) {
    static rows r;
    int64_t kept[2];
    make(&r, 10, 0, 1, false);
    md_program *p;
    md_window *w;
    CHECK(program_of(true, &p) == MD_OK && window_of(0, PLAIN, 30, &w) == MD_OK);
    CHECK(md_program_into(p, &r.schema, &r.array, w, NULL, kept, NULL) == MD_BADARG);
    md_window_free(w);
    static const md_type inputs[] = {MD_I64, MD_I64, MD_F64, MD_F64, MD_BOOL}, wrong[] = {MD_I64, MD_I64, MD_F64, MD_F64, MD_I64};
    md_window_config config = {.size_us = 30, .advance_us = 30, .inputs = inputs, .n_inputs = 5, .aggregates = CALLS,
                               .n_aggregates = 1};
    CHECK(md_window_new(&config, &w, NULL) == MD_OK);
    CHECK(md_program_into(p, &r.schema, &r.array, w, NULL, kept, NULL) == MD_OK && md_window_taken(w) > 0);
    md_window_free(w);
    config.inputs = wrong;
    CHECK(md_window_new(&config, &w, NULL) == MD_OK);
    CHECK(md_program_into(p, &r.schema, &r.array, w, NULL, kept, NULL) == MD_BADARG);
    md_window_free(w);
    config.inputs = inputs;
    config.stage = MD_COMBINE;
    CHECK(md_window_new(&config, &w, NULL) == MD_OK);
    CHECK(md_program_into(p, &r.schema, &r.array, w, NULL, kept, NULL) == MD_BADARG);
    md_window_free(w);
    md_program_free(p);
    return 0;
}

TEST_MAIN(TEST(test_into_a_window_equals_one_by_one), TEST(test_a_failure_leaves_the_window_as_it_was),
          TEST(test_chunks_that_differ), TEST(test_an_extent_up_to_the_end_of_a_pane),
          TEST(test_a_null_time_is_refused), TEST(test_times_of_dropped_rows_are_not_asked),
          TEST(test_every_allocation_can_fail),
          TEST(test_a_window_of_other_columns_is_refused))
