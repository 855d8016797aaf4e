#include "batches.h"
#include "state/slots.h"

enum { SLOTS = 900, KEPT = 4 };

/* Who holds the rows: a value by slot, there or not. */
typedef struct holder {
    bool there[SLOTS];
    int64_t values[SLOTS];
} holder;

typedef struct table {
    int64_t rows[SLOTS][2], n, number;
} table;

static holder h;
static table whole, got, made, known[KEPT];
static int64_t ahead[SLOTS], n_ahead; /* what was kept for the copy under way */

static void table_of(table *t) {
    t->n = 0;
    for (int64_t slot = 0; slot < SLOTS; slot++)
        if (h.there[slot]) {
            t->rows[t->n][0] = slot;
            t->rows[t->n++][1] = h.values[slot];
        }
}

static bool same(const table *a, const table *b) {
    return a->n == b->n && memcmp(a->rows, b->rows, (size_t)a->n * sizeof *a->rows) == 0;
}

static void keep(const int64_t *slots, int64_t n) {
    for (int64_t i = 0; i < n; i++) ahead[n_ahead++] = h.values[slots[i]];
}

/* Some rows come, change and go; a slot may be named twice. */
static int some_change(md_slots *s, int64_t n) {
    int64_t slots[64], kept[64], n_kept = 0;
    for (; n > 0; n--) {
        md_slots_how how = (md_slots_how)check_below(3);
        int64_t count = 1 + (int64_t)check_below(40), m = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t slot = (int64_t)check_below(SLOTS);
            if (how != MD_SLOTS_TOUCH || h.there[slot]) slots[m++] = slot;
        }
        CHECK(md_slots_change(s, how, slots, m, n_ahead, md_slots_copying(s) ? kept : NULL, &n_kept) == MD_OK);
        keep(kept, n_kept);
        for (int64_t i = 0; i < m; i++) {
            h.there[slots[i]] = how != MD_SLOTS_CLOSE;
            h.values[slots[i]] = (int64_t)check_random();
        }
    }
    return 0;
}

static int keep_all(md_slots *s) {
    int64_t *kept = NULL, n = 0;
    CHECK(md_slots_keep_all(s, n_ahead, &kept, &n) == MD_OK);
    keep(kept, n);
    md_free(kept);
    CHECK(!md_slots_copying(s));
    return 0;
}

static int take(md_items_copy *c, int64_t rows, table *t) {
    batch b;
    CHECK(md_items_copy_next(c, rows, &b.schema, &b.array, NULL) == MD_OK);
    const int64_t *slots = b.array.children[0]->buffers[1], *kept = b.array.children[1]->buffers[1];
    for (int64_t i = 0; i < b.array.length; i++, t->n++) {
        CHECK(kept[i] >= -1 && kept[i] < n_ahead);
        t->rows[t->n][0] = slots[i];
        t->rows[t->n][1] = kept[i] < 0 ? h.values[slots[i]] : ahead[kept[i]];
    }
    batch_free(&b);
    return 0;
}

/* A copy in pieces, with changes and new numbers in between, is the table of when it began. */
static int test_what_is_kept_and_what_stands_make_the_table(void) {
    int64_t partial = 0, taken_ahead = 0;
    for (int round = 0; round < 40; round++) {
        md_slots *s = NULL;
        h = (holder){0};
        memset(known, 0, sizeof known);
        CHECK(md_slots_new(&s) == MD_OK);
        CHECK_OK(some_change(s, 30));
        for (int64_t number = 1; number <= 40; number++) {
            const table *base = &known[check_below(KEPT)];
            md_items_copy *c = NULL;
            CHECK_OK(some_change(s, (int64_t)check_below(3)));
            CHECK_OK(keep_all(s));
            table_of(&whole);
            n_ahead = got.n = 0;
            CHECK(md_items_copy_begin(md_slots_items(s), number, base->number, &c, NULL) == MD_OK);
            bool cleared = false;
            while (md_items_copy_left(c) > 0) {
                CHECK_OK(some_change(s, (int64_t)check_below(4)));
                if (check_below(20) == 0) { /* all rows get other slots */
                    CHECK_OK(keep_all(s));
                    md_slots_clear(s);
                    h = (holder){0};
                    CHECK_OK(some_change(s, 20));
                    cleared = true;
                }
                CHECK_OK(take(c, 1 + (int64_t)check_below(200), &got));
            }
            taken_ahead += n_ahead;
            if (md_items_copy_base_rows(c) >= 0) {
                int64_t *runs = NULL, n_runs = 0;
                CHECK(md_items_copy_runs(c, &runs, &n_runs) == MD_OK);
                made.n = 0;
                for (int64_t r = 0; r < n_runs; r++)
                    for (int64_t row = runs[2 * r]; row < runs[2 * r] + runs[2 * r + 1]; row++)
                        memcpy(made.rows[made.n++], row < base->n ? base->rows[row] : got.rows[row - base->n],
                               sizeof *made.rows);
                md_free(runs);
                CHECK(same(&made, &whole));
                partial++;
            } else {
                CHECK(same(&got, &whole));
            }
            md_items_copy_free(c);
            if (cleared) memset(known, 0, sizeof known);
            else {
                whole.number = number;
                known[check_below(KEPT)] = whole;
            }
        }
        md_slots_free(s);
    }
    CHECK(partial > 200 && taken_ahead > 1000);
    return 0;
}

static int test_what_is_refused(void) {
    md_slots *s = NULL;
    md_items_copy *c = NULL;
    batch b;
    int64_t bad[] = {1, -1}, good[] = {0, 5}, far = INT64_MAX, kept[2], n = 7;
    CHECK(md_slots_new(&s) == MD_OK);
    CHECK(md_slots_change(s, MD_SLOTS_OPEN, bad, 2, 0, NULL, &n) == MD_BADARG && n == 0);
    CHECK(md_slots_change(s, MD_SLOTS_OPEN, &far, 1, 0, NULL, &n) == MD_BADARG);
    CHECK(md_slots_change(s, MD_SLOTS_CLOSE, good, 2, 0, NULL, &n) == MD_OK); /* none is there */
    CHECK(md_slots_change(s, MD_SLOTS_OPEN, good, 2, 0, NULL, &n) == MD_OK && n == 0);
    CHECK(md_items_copy_begin(md_slots_items(s), 1, 0, &c, NULL) == MD_OK && md_items_copy_left(c) == 2);
    CHECK(md_slots_change(s, MD_SLOTS_TOUCH, good, 2, 3, kept, &n) == MD_OK && n == 2 && kept[1] == 5);
    CHECK(md_slots_change(s, MD_SLOTS_CLOSE, good, 2, 5, kept, &n) == MD_OK && n == 0); /* once is enough */
    md_alloc_fail_at = 0;
    int64_t *all = NULL;
    CHECK(md_slots_keep_all(s, 5, &all, &n) == MD_NOMEM && !md_slots_copying(s));
    CHECK(md_items_copy_next(c, 9, &b.schema, &b.array, NULL) == MD_NOMEM);
    md_items_copy_free(c);
    CHECK(md_items_copy_begin(md_slots_items(s), 2, 1, &c, NULL) == MD_OK && md_items_copy_left(c) == 0);
    md_items_copy_free(c);
    md_slots_free(s);
    return 0;
}

static int test_memory_that_runs_out(void) {
    bool failed = true;
    for (long k = 0; failed; k++) {
        md_slots *s = NULL;
        int64_t slots[] = {3, 700}, kept[2], n = 0;
        md_alloc_fail_at = k;
        md_rc rc = md_slots_new(&s);
        if (rc == MD_OK) rc = md_slots_change(s, MD_SLOTS_OPEN, slots, 2, 0, NULL, &n);
        md_items_copy *c = NULL;
        if (rc == MD_OK) rc = md_items_copy_begin(md_slots_items(s), 1, 0, &c, NULL);
        if (rc == MD_OK) {
            CHECK(md_slots_change(s, MD_SLOTS_TOUCH, slots, 1, 0, kept, &n) == MD_OK);
            CHECK(n == 1 || !md_slots_copying(s)); /* kept, or the copy has failed */
            int64_t *all = NULL;
            rc = md_slots_keep_all(s, n, &all, &n);
            CHECK(!md_slots_copying(s));
            md_free(all);
        }
        failed = md_alloc_fail_at < 0;
        md_alloc_fail_at = -1;
        CHECK(rc == MD_OK || rc == MD_NOMEM);
        md_items_copy_free(c);
        md_slots_free(s);
        CHECK(md_alloc_live == 0);
    }
    return 0;
}

TEST_MAIN(TEST(test_what_is_kept_and_what_stands_make_the_table), TEST(test_what_is_refused),
          TEST(test_memory_that_runs_out))
