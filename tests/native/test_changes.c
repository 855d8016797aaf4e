#include "base/digest.h"
#include "base/md_alloc.h"
#include "batches.h"
#include "state/snapshot.h"
#include "window/window_feed.h"
#include "window/window_store.h"

static const md_type KEYS[] = {MD_UTF8, MD_I64};
static const md_type INPUTS[] = {MD_F64, MD_I64, MD_BOOL};
static const md_aggregate AGGREGATES[] = {
    {.function = MD_SUM, .input = 0}, {.function = MD_AVG, .input = 1},    {.function = MD_MIN, .input = 2},
    {.function = MD_COUNT, .input = -1}, {.function = MD_LAST, .input = 1}, {.function = MD_VARIANCE, .input = 0},
};
static const uint64_t SEED[2] = {3, 5};

static md_window_config config(int64_t advance) {
    return (md_window_config){.size_us = 10, .advance_us = advance, .keys = KEYS, .n_keys = 2, .inputs = INPUTS,
                              .n_inputs = 3, .aggregates = AGGREGATES,
                              .n_aggregates = sizeof AGGREGATES / sizeof *AGGREGATES};
}

typedef struct table { /* the rows of a state, two words each */
    uint64_t *rows;
    int64_t n, number;
} table;

static table digests(const batch *b) {
    table t = {.n = b->array.length, .rows = calloc((size_t)b->array.length + 1, 16)};
    if (t.rows == NULL || md_row_digests(&b->schema, &b->array, SEED, t.rows, NULL) != MD_OK) abort();
    return t;
}

static table state_of(md_window *w) {
    batch b;
    if (md_window_state(w, &b.schema, &b.array, NULL) != MD_OK) abort();
    table t = digests(&b);
    batch_free(&b);
    return t;
}

/* The table that the runs make of an earlier one and of what was copied. */
static table patched(const table *old, const table *fresh, const int64_t *runs, int64_t n_runs) {
    table t = {0};
    for (int64_t r = 0; r < n_runs; r++) t.n += runs[2 * r + 1];
    t.rows = calloc((size_t)t.n + 1, 16);
    for (int64_t r = 0, at = 0; r < n_runs; r++) {
        for (int64_t k = 0; k < runs[2 * r + 1]; k++, at++) {
            int64_t row = runs[2 * r] + k;
            if (row < 0 || row >= old->n + fresh->n) abort();
            memcpy(t.rows + 2 * at, row < old->n ? old->rows + 2 * row : fresh->rows + 2 * (row - old->n), 16);
        }
    }
    return t;
}

/* The same with the runs of a snapshot, which may be asked for whatever became of its window. */
static table patched_by(const md_snapshot *s, const table *old, const table *fresh) {
    int64_t *runs = NULL, n = 0;
    if (md_snapshot_runs(s, &runs, &n) != MD_OK) abort();
    table t = patched(old, fresh, runs, n);
    md_free(runs);
    return t;
}

static bool same(const table *a, const table *b) {
    return a->n == b->n && memcmp(a->rows, b->rows, (size_t)a->n * 16) == 0;
}

enum { KEPT = 4 };

/* Captures in any number of pieces, with rows and closes in between, on any of the last captures: the table before
 * with what changed is the state of when the capture began. As is the state of a window that nobody captured. */
static int test_what_changed_and_the_table_before_make_the_table(void) {
    int64_t partial = 0, small = 0;
    for (int round = 0; round < 60; round++) {
        md_window_config c = config(1 + round % 10);
        md_window *w = NULL, *plain = NULL;
        table known[KEPT] = {0};
        CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_new(&c, &plain, NULL) == MD_OK);
        int64_t now = 0, captures = 40;
        for (int64_t number = 1; number <= captures; number++) {
            int64_t base = known[check_below(KEPT)].number;
            if (number % 11 == 0) base = 0;
            md_snapshot *s = NULL;
            table whole = state_of(w);
            CHECK(md_snapshot_begin(w, number, base, &s, NULL) == MD_OK);
            int64_t n_base = md_snapshot_base_rows(s);
            CHECK(base != 0 || n_base < 0);
            while (md_snapshot_left(s) > 0 || check_below(4) != 0) {
                int64_t span = check_below(4) == 0 ? 30 : 4, rows = (int64_t)check_below(number % 3 == 0 ? 300 : 12);
                batch b = batch_random("lulglb", rows, now, span, round % 2 == 0);
                CHECK(md_window_add(w, &b.schema, &b.array, NULL) == MD_OK);
                CHECK(md_window_add(plain, &b.schema, &b.array, NULL) == MD_OK);
                batch_free(&b);
                CHECK(md_snapshot_copy(s, (int64_t)check_below(200), NULL) == MD_OK);
                if (check_below(5) == 0) {
                    now += (int64_t)check_below(6);
                    CHECK(md_window_close(w, now, NULL) == MD_OK && md_window_close(plain, now, NULL) == MD_OK);
                    CHECK(digest_ready(1, w) == digest_ready(1, plain));
                }
            }
            CHECK(md_snapshot_copy(s, INT64_MAX, NULL) == MD_OK);
            batch made;
            CHECK(md_snapshot_finish(s, &made.schema, &made.array, NULL) == MD_OK);
            table fresh = digests(&made), found = fresh;
            if (n_base >= 0) {
                for (int k = 0; k < KEPT; k++)
                    if (known[k].number == base && known[k].n == n_base) found = patched_by(s, &known[k], &fresh);
                partial++;
                small += fresh.n < whole.n / 4;
                free(fresh.rows);
            }
            CHECK(same(&found, &whole));
            batch_free(&made);
            md_snapshot_free(s);
            free(found.rows);
            whole.number = number;
            int slot = (int)check_below(KEPT);
            free(known[slot].rows);
            known[slot] = whole;
        }
        table a = state_of(w), b = state_of(plain);
        CHECK(same(&a, &b));
        free(a.rows);
        free(b.rows);
        for (int k = 0; k < KEPT; k++) free(known[k].rows);
        md_window_free(w);
        md_window_free(plain);
    }
    CHECK(partial > 500 && small > 100);
    return 0;
}

/* More captures than there are epochs. */
static int test_epochs_begin_anew(void) {
    md_window_config c = config(10);
    md_window *w = NULL;
    CHECK(md_window_new(&c, &w, NULL) == MD_OK);
    batch first = batch_random("lulglb", 2000, 0, 10, false);
    CHECK(md_window_add(w, &first.schema, &first.array, NULL) == MD_OK);
    batch_free(&first);
    table before = {0};
    int whole = 0;
    for (int64_t number = 1; number < 600; number++) {
        md_snapshot *s = NULL;
        batch made;
        table now = state_of(w);
        CHECK(md_snapshot_begin(w, number, number - 1, &s, NULL) == MD_OK);
        bool all = md_snapshot_base_rows(s) < 0;
        CHECK(md_snapshot_copy(s, INT64_MAX, NULL) == MD_OK);
        CHECK(md_snapshot_finish(s, &made.schema, &made.array, NULL) == MD_OK);
        table fresh = digests(&made), found = all ? fresh : patched_by(s, &before, &fresh);
        CHECK(same(&found, &now) && (all || fresh.n <= 3));
        whole += all;
        if (!all) free(fresh.rows);
        free(found.rows);
        free(before.rows);
        before = now;
        batch_free(&made);
        md_snapshot_free(s);
        batch b = batch_random("lulglb", (int64_t)check_below(4), 0, 10, false);
        CHECK(md_window_add(w, &b.schema, &b.array, NULL) == MD_OK);
        batch_free(&b);
    }
    CHECK(whole == 1);
    free(before.rows);
    md_window_free(w);
    return 0;
}

/* A capture that nobody knows, or that another window took: whole. One that fails for want of memory is none. */
static int test_an_unknown_base_is_a_whole_copy(void) {
    md_window_config c = config(3);
    batch a = batch_random("lulglb", 800, 0, 30, true);
    md_window *w = NULL;
    int64_t *runs, n;
    CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_add(w, &a.schema, &a.array, NULL) == MD_OK);
    for (int64_t number = 1; number < 9; number++) {
        md_snapshot *s = NULL;
        CHECK(md_snapshot_begin(w, number, 1, &s, NULL) == MD_OK);
        CHECK((md_snapshot_base_rows(s) < 0) == (number == 1));
        if (number > 1) { /* the base stays, however many came since */
            CHECK(md_snapshot_left(s) == 0 && md_snapshot_runs(s, &runs, &n) == MD_OK && n == 1);
            md_free(runs);
        }
        md_snapshot_free(s);
    }
    md_snapshot *s = NULL, *last = NULL;
    CHECK(md_snapshot_begin(w, 9, 5, &s, NULL) == MD_OK && md_snapshot_base_rows(s) < 0); /* forgotten */
    md_snapshot_free(s);
    CHECK(md_snapshot_begin(w, 0, 9, &last, NULL) == MD_OK); /* one on which none will stand */
    batch_free(&a);
    md_window_free(w);
    CHECK(md_snapshot_runs(last, &runs, &n) == MD_OK && n == 1 && runs[0] == 0); /* it needs no window */
    CHECK(runs[1] == md_snapshot_base_rows(last) && runs[1] > 0);
    md_free(runs);
    md_snapshot_free(last);
    return 0;
}

static int test_every_allocation_may_fail(void) {
    md_window_config c = config(3);
    for (long k = 0, failures = 1; failures > 0; k++) {
        batch a = batch_random("lulglb", 2000, 0, 30, true), b = batch_random("lulglb", 20, 0, 30, true), made;
        md_window *w = NULL;
        md_snapshot *s = NULL;
        CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_add(w, &a.schema, &a.array, NULL) == MD_OK);
        table before = state_of(w);
        md_alloc_fail_at = k;
        failures = 0;
        for (int64_t number = 1; number <= 2; number++) {
            md_rc rc;
            while ((rc = md_snapshot_begin(w, number, number - 1, &s, NULL)) == MD_NOMEM) failures++;
            CHECK(rc == MD_OK);
            if (number == 1) {
                md_snapshot_free(s);
                while ((rc = md_window_add(w, &b.schema, &b.array, NULL)) == MD_NOMEM) failures++;
                CHECK(rc == MD_OK);
                continue;
            }
            int64_t *runs = NULL, n_runs = 0;
            CHECK(md_snapshot_base_rows(s) >= 0);
            while (md_snapshot_runs(s, &runs, &n_runs) == MD_NOMEM) failures++;
            while (md_snapshot_copy(s, INT64_MAX, NULL) == MD_NOMEM) failures++;
            while ((rc = md_snapshot_finish(s, &made.schema, &made.array, NULL)) == MD_NOMEM) failures++;
            md_alloc_fail_at = -1;
            CHECK(rc == MD_OK);
            table fresh = digests(&made), found = patched(&before, &fresh, runs, n_runs), now = state_of(w);
            CHECK(failures < 2 && same(&found, &now));
            md_free(runs);
            free(fresh.rows);
            free(found.rows);
            free(now.rows);
            batch_free(&made);
            md_snapshot_free(s);
        }
        free(before.rows);
        md_window_free(w);
        batch_free(&a);
        batch_free(&b);
    }
    return 0;
}

/* ---- stores, whose groups leave one by one ---- */

enum { SLOTS = 1500 };

/* The rows of the state whose slots have not left. */
static table living_of(md_window *w, const bool *left) {
    batch b;
    if (md_window_state(w, &b.schema, &b.array, NULL) != MD_OK) abort();
    table all = digests(&b), t = {.rows = calloc((size_t)b.array.length + 1, 16)};
    const int64_t *slots = b.array.children[4]->buffers[1];
    for (int64_t i = 0; i < all.n; i++)
        if (!left[slots[i]]) memcpy(t.rows + 2 * t.n++, all.rows + 2 * i, 16);
    free(all.rows);
    batch_free(&b);
    return t;
}

/* A row of each of n slots of those below *end that haven't left, or of new ones. */
static md_rc add_slots(md_window *w, const bool *left, int64_t *end, int64_t n) {
    int64_t times[64] = {0}, slots[64], at = 0;
    double values[64];
    for (int64_t i = 0; i < n; i++) {
        int64_t slot = *end < SLOTS && check_below(3) == 0 ? (*end)++ : (int64_t)check_below((uint64_t)*end + 1);
        if (slot >= *end || left[slot]) continue;
        slots[at] = slot;
        values[at++] = (double)check_below(1000);
    }
    md_column views[] = {{.type = MD_I64, .length = at, .values = (const uint8_t *)times},
                         {.type = MD_I64, .length = at, .values = (const uint8_t *)slots},
                         {.type = MD_F64, .length = at, .values = (const uint8_t *)values}};
    return at == 0 ? MD_OK : md_window_add_views(w, views, at, NULL, NULL);
}

/* Groups leave before, between and behind the pieces of copies: they are in none that begins then. */
static int test_what_has_left_is_in_no_copy(void) {
    static const md_aggregate sums[] = {{.function = MD_SUM, .input = 0}, {.function = MD_COUNT, .input = -1}};
    static const md_type slot[] = {MD_I64}, value[] = {MD_F64};
    int64_t partial = 0, small = 0;
    for (int round = 0; round < 30; round++) {
        md_window_config c = {.size_us = INT64_C(1) << 60, .advance_us = INT64_C(1) << 60, .keys = slot, .n_keys = 1,
                              .inputs = value, .n_inputs = 1, .aggregates = sums, .n_aggregates = 2, .seed = 7};
        md_window *w = NULL;
        table known[KEPT] = {0};
        static bool left[SLOTS];
        int64_t end = 0;
        memset(left, 0, sizeof left);
        CHECK(md_window_new(&c, &w, NULL) == MD_OK && md_window_living(w) == 0);
        while (end < 400) CHECK(add_slots(w, left, &end, 60) == MD_OK);
        for (int64_t number = 1; number <= 30; number++) {
            int64_t base = known[check_below(KEPT)].number;
            md_snapshot *s = NULL;
            table whole = living_of(w, left);
            CHECK(md_window_living(w) == whole.n);
            CHECK(md_snapshot_begin(w, number, base, &s, NULL) == MD_OK);
            int64_t n_base = md_snapshot_base_rows(s);
            do {
                CHECK(add_slots(w, left, &end, (int64_t)check_below(60)) == MD_OK);
                int64_t going[8], n = 0;
                for (int64_t i = (int64_t)check_below(number % 4 == 0 ? 8 : 3); i > 0; i--) {
                    int64_t one = (int64_t)check_below((uint64_t)end);
                    if (!left[one]) going[n++] = one;
                    left[one] = true;
                }
                CHECK(md_window_leave(w, going, n, NULL) == MD_OK);
                CHECK(md_snapshot_copy(s, (int64_t)check_below(200), NULL) == MD_OK);
            } while (md_snapshot_left(s) > 0 || check_below(4) != 0);
            batch made;
            CHECK(md_snapshot_finish(s, &made.schema, &made.array, NULL) == MD_OK);
            table fresh = digests(&made), found = fresh;
            if (n_base >= 0) {
                for (int k = 0; k < KEPT; k++)
                    if (known[k].number == base && known[k].n == n_base) found = patched_by(s, &known[k], &fresh);
                partial++;
                small += fresh.n < whole.n / 4;
                free(fresh.rows);
            }
            CHECK(same(&found, &whole));
            batch_free(&made);
            md_snapshot_free(s);
            free(found.rows);
            whole.number = number;
            int place = (int)check_below(KEPT);
            free(known[place].rows);
            known[place] = whole;
        }
        const int64_t unknown[] = {1 << 20};
        int64_t living = md_window_living(w);
        CHECK(md_window_leave(w, unknown, 1, NULL) == MD_BADARG && md_window_living(w) == living);
        for (int k = 0; k < KEPT; k++) free(known[k].rows);
        md_window_free(w);
    }
    CHECK(partial > 200 && small > 50);
    return 0;
}

TEST_MAIN(TEST(test_what_has_left_is_in_no_copy), TEST(test_what_changed_and_the_table_before_make_the_table), TEST(test_epochs_begin_anew),
          TEST(test_an_unknown_base_is_a_whole_copy), TEST(test_every_allocation_may_fail))
