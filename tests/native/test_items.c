#include "batches.h"
#include "state/items.h"

enum { ITEMS = 700, ROWS = 3, KEPT = 4 };

/* An owner as plain as can be: rows of (item, value), one to three of an open item. */
typedef struct owner {
    int64_t rows[ITEMS], values[ITEMS][ROWS];
    int64_t first, end; /* items that there may be */
} owner;

static int64_t rows_of(const void *given, int64_t item) { return ((const owner *)given)->rows[item]; }

static void put(const void *given, int64_t item, int64_t *const *columns, int64_t at) {
    const owner *o = given;
    for (int64_t k = 0; k < o->rows[item]; k++) {
        columns[0][at + k] = item;
        columns[1][at + k] = o->values[item][k];
    }
}

static const char *const NAMES[] = {"item", "value"};
static const md_items_kind MANY = {.width = 2, .names = NAMES, .rows = rows_of, .put = put};
static const md_items_kind ONE = {.width = 2, .names = NAMES, .put = put};

typedef struct table {
    int64_t rows[ITEMS * ROWS][2], n, number;
} table;

static void table_of(const owner *o, table *t) {
    t->n = 0;
    for (int64_t item = 0; item < ITEMS; item++)
        for (int64_t k = 0; k < o->rows[item]; k++, t->n++) {
            t->rows[t->n][0] = item;
            t->rows[t->n][1] = o->values[item][k];
        }
}

static void change(owner *o, md_items *m, int64_t item) {
    if (o->rows[item] == 0) {
        md_items_open(m, item);
        o->rows[item] = 1;
    } else if (m->kind->rows != NULL && o->rows[item] < ROWS && check_below(4) == 0) {
        md_items_grow(m, item);
        o->rows[item]++;
    } else if (check_below(3) == 0) {
        md_items_close(m, item);
        o->rows[item] = 0;
    } else {
        md_items_touch(m, item);
    }
    for (int64_t k = 0; k < o->rows[item]; k++) o->values[item][k] = (int64_t)check_random();
}

/* Some items change; others come behind, and those in front may go for good. */
static int some_change(owner *o, md_items *m, int64_t n) {
    if (check_below(3) == 0 && o->end < ITEMS) {
        int64_t end = o->end + 1 + (int64_t)check_below(40);
        if (end > ITEMS) end = ITEMS;
        CHECK(md_items_reserve(m, end) == MD_OK);
        bool at_once = check_below(2) == 0;
        if (at_once) md_items_open_range(m, o->end, end);
        for (; o->end < end; o->end++) {
            if (!at_once) md_items_open(m, o->end);
            o->rows[o->end] = 1;
            o->values[o->end][0] = (int64_t)check_random();
        }
    }
    if (check_below(8) == 0) {
        int64_t gone = (int64_t)check_below(90);
        bool at_once = check_below(2) == 0;
        if (gone > o->end - o->first) gone = o->end - o->first;
        if (at_once) md_items_close_range(m, o->first, o->first + gone);
        for (; gone > 0; gone--, o->first++) {
            if (!at_once && o->rows[o->first] > 0) md_items_close(m, o->first);
            o->rows[o->first] = 0;
        }
        CHECK(md_items_trim(m) <= (o->end + 63) / 64 * 64);
        CHECK(m->origin % 64 == 0 && m->origin + 64 * m->words >= o->end);
        if (o->first < m->origin) o->first = m->origin; /* those in between were closed and have no bit now */
    }
    for (int64_t i = 0; i < n && o->first < o->end; i++)
        change(o, m, o->first + (int64_t)check_below((uint64_t)(o->end - o->first)));
    return 0;
}

static int take(md_items_copy *c, int64_t rows, table *t) {
    batch b;
    int64_t left = md_items_copy_left(c);
    CHECK(md_items_copy_next(c, rows, &b.schema, &b.array, NULL) == MD_OK);
    CHECK(md_items_copy_left(c) == left - b.array.length);
    CHECK(b.array.length >= (rows < left ? rows : left) && b.array.length <= rows + 64 * ROWS);
    for (int64_t i = 0; i < b.array.length; i++, t->n++)
        for (int k = 0; k < 2; k++) t->rows[t->n][k] = ((const int64_t *)b.array.children[k]->buffers[1])[i];
    batch_free(&b);
    return 0;
}

static int patched(const table *old, const table *fresh, const int64_t *runs, int64_t n_runs, table *made) {
    made->n = 0;
    for (int64_t r = 0; r < n_runs; r++) {
        int64_t start = runs[2 * r], length = runs[2 * r + 1];
        CHECK(length > 0 && start >= 0 && start + length <= old->n + fresh->n);
        CHECK(start >= old->n || start + length <= old->n);
        for (int64_t row = start; row < start + length; row++)
            memcpy(made->rows[made->n++], row < old->n ? old->rows[row] : fresh->rows[row - old->n], sizeof *made->rows);
    }
    return 0;
}

static bool same(const table *a, const table *b) {
    return a->n == b->n && memcmp(a->rows, b->rows, (size_t)a->n * sizeof *a->rows) == 0;
}

static owner o;
static table whole, fresh, made, now, got, known[KEPT];

/* Copies in any number of pieces with changes in between, on any of the last captures: the table before with what
 * changed is the table of when the copy began. */
static int copies_of(const md_items_kind *kind, int64_t *partial, int64_t *small) {
    md_items m;
    o = (owner){0};
    memset(known, 0, sizeof known);
    md_items_init(&m, kind, &o);
    for (int64_t number = 1; number <= 60; number++) {
        CHECK_OK(some_change(&o, &m, (int64_t)check_below(number % 5 == 0 ? 300 : 8)));
        if (check_below(25) == 0) { /* all begins anew */
            md_items_clear(&m);
            o = (owner){0};
            memset(known, 0, sizeof known);
            CHECK_OK(some_change(&o, &m, 200));
        }
        const table *base = &known[check_below(KEPT)];
        int64_t n_runs = 0;
        bool nameless = check_below(6) == 0, ask = base->number > 0 && check_below(10) != 0;
        md_items_copy *c = NULL;
        table_of(&o, &whole);
        CHECK(md_items_copy_begin(&m, nameless ? 0 : number, ask ? base->number : 0, &c, NULL) == MD_OK);
        bool delta = md_items_copy_base_rows(c) >= 0;
        CHECK(ask || !delta);
        if (!delta) CHECK(md_items_copy_left(c) == whole.n);
        fresh.n = 0;
        bool cleared = false;
        while (md_items_copy_left(c) > 0) {
            CHECK_OK(some_change(&o, &m, (int64_t)check_below(40)));
            if (check_below(20) == 0) CHECK(md_items_keep_all(&m) == MD_OK);
            if (check_below(20) == 0) { /* another one is made in between, and the first goes on */
                md_items_copy *other = NULL;
                table_of(&o, &now);
                got.n = 0;
                CHECK(md_items_copy_begin(&m, 0, 0, &other, NULL) == MD_OK);
                CHECK_OK(some_change(&o, &m, 20));
                CHECK_OK(take(other, 1 << 20, &got));
                CHECK(same(&got, &now));
                md_items_copy_free(other);
            }
            if (check_below(60) == 0) {
                md_items_clear(&m);
                o = (owner){0};
                cleared = true;
            }
            if (check_below(40) == 0) break; /* given up */
            CHECK_OK(take(c, 1 + (int64_t)check_below(90), &fresh));
        }
        if (md_items_copy_left(c) == 0) {
            CHECK_OK(take(c, 5, &fresh)); /* nothing more */
            if (delta) {
                int64_t *runs = NULL; /* those of when it began, whatever came and went since */
                CHECK(md_items_copy_runs(c, &runs, &n_runs) == MD_OK);
                CHECK(md_items_copy_base_rows(c) == base->n && fresh.n <= whole.n / 2);
                CHECK_OK(patched(base, &fresh, runs, n_runs, &made));
                md_free(runs);
                ++*partial;
                *small += fresh.n < whole.n / 4;
            }
            CHECK(same(delta ? &made : &fresh, &whole));
        }
        md_items_copy_free(c);
        if (cleared) memset(known, 0, sizeof known);
        else if (!nameless) {
            whole.number = number;
            known[check_below(KEPT)] = whole;
        }
    }
    md_items_free(&m);
    return 0;
}

static int test_what_changed_and_the_table_before_make_the_table(void) {
    int64_t partial = 0, small = 0;
    for (int round = 0; round < 60; round++) CHECK_OK(copies_of(round % 2 == 0 ? &MANY : &ONE, &partial, &small));
    CHECK(partial > 300 && small > 50);
    return 0;
}

/* None but the first gets to the disk: each of the others has all that changed since that one, and no more. */
static int test_a_base_asked_for_stays_however_many_follow(void) {
    md_items m;
    o = (owner){0};
    md_items_init(&m, &ONE, &o);
    CHECK(md_items_reserve(&m, ITEMS) == MD_OK);
    md_items_open_range(&m, 0, ITEMS);
    for (; o.end < ITEMS; o.end++) o.rows[o.end] = 1;
    for (int64_t number = 1; number < 40; number++) {
        md_items_copy *c = NULL;
        CHECK(md_items_copy_begin(&m, number, number == 1 ? 0 : 1, &c, NULL) == MD_OK);
        CHECK((md_items_copy_base_rows(c) >= 0) == (number > 1));
        if (number > 1) CHECK(md_items_copy_left(c) == number - 1);
        md_items_copy_free(c);
        md_items_touch(&m, 7 * number);
    }
    md_items_free(&m);
    return 0;
}

/* The same with items that come and go, and numbers in front that are forgotten. */
static int on_one_base(const md_items_kind *kind, int64_t *partial) {
    md_items m;
    o = (owner){0};
    md_items_init(&m, kind, &o);
    while (o.end < ITEMS / 2) CHECK_OK(some_change(&o, &m, 20));
    for (int64_t number = 1; number < 20; number++) {
        int64_t n_runs = 0;
        md_items_copy *c = NULL;
        table_of(&o, &whole);
        CHECK(md_items_copy_begin(&m, number, number == 1 ? 0 : 1, &c, NULL) == MD_OK);
        bool delta = md_items_copy_base_rows(c) >= 0;
        fresh.n = 0;
        CHECK_OK(take(c, 1 << 20, &fresh));
        if (number == 1) known[0] = whole;
        if (delta) {
            int64_t *runs = NULL;
            CHECK(md_items_copy_base_rows(c) == known[0].n);
            CHECK(md_items_copy_runs(c, &runs, &n_runs) == MD_OK);
            CHECK_OK(patched(&known[0], &fresh, runs, n_runs, &made));
            md_free(runs);
            *partial += number > MD_ITEMS_CAPTURES + 1;
        }
        CHECK(same(delta ? &made : &fresh, &whole));
        md_items_copy_free(c);
        CHECK_OK(some_change(&o, &m, (int64_t)check_below(6)));
    }
    md_items_free(&m);
    return 0;
}

static int test_what_changed_since_a_base_is_known_however_many_follow(void) {
    int64_t partial = 0;
    for (int round = 0; round < 60; round++) CHECK_OK(on_one_base(round % 2 == 0 ? &MANY : &ONE, &partial));
    CHECK(partial > 100);
    return 0;
}

/* Without memory a copy doesn't begin, and nothing was noted; one under way fails, and says so. */
static int test_memory_that_runs_out(void) {
    bool failed = true, lost = false;
    for (long k = 0; failed; k++) {
        md_items m;
        md_items_copy *c = NULL;
        batch b;
        failed = false;
        check_state = 3;
        o = (owner){0};
        md_items_init(&m, &MANY, &o);
        CHECK_OK(some_change(&o, &m, 0));
        while (o.end < ITEMS) CHECK_OK(some_change(&o, &m, 30));
        CHECK(md_items_copy_begin(&m, 1, 0, &c, NULL) == MD_OK);
        md_items_copy_free(c);
        for (int64_t i = m.origin; i < m.origin + 20; i++) change(&o, &m, i);
        table_of(&o, &whole);
        md_alloc_fail_at = k;
        md_rc rc = md_items_copy_begin(&m, 2, 1, &c, NULL);
        if (rc != MD_OK) {
            CHECK(rc == MD_NOMEM && m.n_captures == 1 && m.copy == NULL);
            failed = true;
            CHECK(md_items_copy_begin(&m, 2, 1, &c, NULL) == MD_OK);
        }
        CHECK(md_items_copy_base_rows(c) >= 0);
        for (int64_t i = m.origin; i < m.origin + 40; i++) change(&o, &m, i);
        rc = md_items_copy_next(c, 1000, &b.schema, &b.array, NULL);
        if (rc == MD_NOMEM) {
            failed = true;
            rc = md_items_copy_next(c, 1000, &b.schema, &b.array, NULL);
            lost |= rc == MD_NOMEM;
            CHECK((rc == MD_NOMEM) == (m.copy == NULL && md_items_copy_left(c) > 0));
        }
        if (rc == MD_OK) batch_free(&b);
        int64_t *runs = NULL, n_runs = 0;
        rc = md_items_copy_runs(c, &runs, &n_runs);
        failed |= md_alloc_fail_at < 0;
        md_alloc_fail_at = -1;
        CHECK(rc == MD_OK || (rc == MD_NOMEM && md_items_copy_runs(c, &runs, &n_runs) == MD_OK)); /* call again */
        CHECK(n_runs > 0);
        md_free(runs);
        md_items_copy_free(c);
        CHECK(md_items_copy_begin(&m, 3, 1, &c, NULL) == MD_OK);
        md_items_free(&m);
        CHECK(md_items_copy_next(c, 1, &b.schema, &b.array, NULL) == MD_BADARG);
        CHECK(md_items_copy_runs(c, &runs, &n_runs) == MD_OK); /* it needs no items */
        md_free(runs);
        md_items_copy_free(c);
        CHECK(md_alloc_live == 0);
    }
    CHECK(lost);
    return 0;
}

TEST_MAIN(TEST(test_what_changed_and_the_table_before_make_the_table),
          TEST(test_a_base_asked_for_stays_however_many_follow),
          TEST(test_what_changed_since_a_base_is_known_however_many_follow), TEST(test_memory_that_runs_out))
