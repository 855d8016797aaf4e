#include "batches.h"
#include "join/join.h"
#include "arrow/take.h"

#define N 400

typedef struct feed {
    batch rows;
    int64_t first;
} feed;

/* Rows of time in [low, low + span) and one int64 key; some keys are null. */
static feed feed_random(int64_t n, int64_t low, int64_t span, int64_t first) {
    return (feed){.rows = batch_random("ll", n, low, span, true), .first = first};
}

static md_rc new_join(md_join_how how, int64_t within, bool judged, md_join **j) {
    static const md_type KEYS[] = {MD_I64};
    md_join_config config = {.keys = KEYS, .n_keys = 1, .how = how, .within_us = within, .judged = judged};
    return md_join_new(&config, j, NULL);
}

static int64_t value(const batch *b, int64_t column, int64_t i) {
    return md_load_i64((const uint8_t *)b->array.children[column]->buffers[1] + 8 * i);
}
static bool null_key(const batch *b, int64_t i) {
    const uint8_t *bits = b->array.children[1]->buffers[0];
    return bits != NULL && !md_bit(bits, i);
}

typedef struct result {
    int64_t release, left, right;
} result;

static int by_place(const void *a, const void *b) {
    const result *x = a, *y = b;
    if (x->release != y->release) return x->release < y->release ? -1 : 1;
    int64_t xl = x->left < 0 ? INT64_MAX : x->left, yl = y->left < 0 ? INT64_MAX : y->left;
    if (xl != yl) return xl < yl ? -1 : 1;
    int64_t xr = x->right < 0 ? INT64_MAX : x->right, yr = y->right < 0 ? INT64_MAX : y->right;
    return xr < yr ? -1 : xr > yr;
}

/* Every pair is looked at. `keep` rows alone of left (1) and right (2). Returns how many results. */
static int64_t slow(const batch *a, const batch *b, int64_t within, md_join_how how, result *out) {
    int64_t n = 0, rows[2] = {a->array.length, b->array.length};
    static bool matched[2][N];
    memset(matched, 0, sizeof matched);
    for (int64_t i = 0; i < rows[0]; i++) {
        int64_t first = INT64_MAX;
        for (int64_t k = 0; k < rows[1]; k++) {
            if (null_key(a, i) || null_key(b, k) || value(a, 1, i) != value(b, 1, k)) continue;
            int64_t t = value(a, 0, i), u = value(b, 0, k), apart = t > u ? t - u : u - t, later = t > u ? t : u;
            if (apart > within) continue;
            matched[0][i] = matched[1][k] = true;
            if (later < first) first = later;
            if (how != MD_JOIN_SEMI && how != MD_JOIN_ANTI) out[n++] = (result){later, i, k};
        }
        if (how == MD_JOIN_SEMI && matched[0][i]) out[n++] = (result){first, i, -1};
        if (!matched[0][i] && (how == MD_JOIN_LEFT || how == MD_JOIN_FULL || how == MD_JOIN_ANTI))
            out[n++] = (result){value(a, 0, i) + within, i, -1};
    }
    for (int64_t k = 0; k < rows[1]; k++)
        if (!matched[1][k] && (how == MD_JOIN_RIGHT || how == MD_JOIN_FULL))
            out[n++] = (result){value(b, 0, k) + within, -1, k};
    qsort(out, (size_t)n, sizeof *out, by_place);
    return n;
}

static int64_t *most_pairs;
/* Where it isn't NULL: the most pairs that one step gave. */

/* Run to the boundary; results go to out[*n ...). An allocation may fail: then the call is made again. */
static int run_to(md_join *j, int64_t boundary, int64_t pairs_max, result *out, int64_t *n) {
    bool more = true;
    md_rc rc;
    while ((rc = md_join_advance(j, boundary, NULL)) == MD_NOMEM) {}
    CHECK(rc == MD_OK);
    while (more) {
        batch b = {0};
        while ((rc = md_join_step(j, pairs_max, &more, NULL)) == MD_NOMEM) {}
        CHECK(rc == MD_OK);
        while ((rc = md_join_results(j, &b.schema, &b.array, NULL)) == MD_NOMEM) {}
        CHECK(rc == MD_OK || rc == MD_EMPTY);
        if (most_pairs != NULL && rc == MD_OK) {
            int64_t pairs = 0;
            for (int64_t i = 0; i < b.array.length; i++) pairs += value(&b, 2, i) >= 0 && value(&b, 3, i) >= 0;
            if (pairs > *most_pairs) *most_pairs = pairs;
        }
        for (int64_t i = 0; rc == MD_OK && i < b.array.length; i++)
            out[(*n)++] = (result){value(&b, 0, i), value(&b, 2, i), value(&b, 3, i)};
        batch_free(&b);
    }
    return 0;
}

static const md_join_how HOWS[] = {MD_JOIN_INNER, MD_JOIN_LEFT, MD_JOIN_RIGHT, MD_JOIN_FULL, MD_JOIN_SEMI, MD_JOIN_ANTI};

static int test_all_pairs_in_order(void) {
    static result got[N * N + 2 * N], wanted[N * N + 2 * N];
    for (int round = 0; round < 60; round++) {
        md_join_how how = HOWS[round % 6];
        int64_t span = 1 + (int64_t)check_below(300), within = (int64_t)check_below(40), n = 0;
        batch a = batch_random("ll", (int64_t)check_below(N), 0, span, true);
        batch b = batch_random("ll", (int64_t)check_below(N), 0, span, true);
        md_join *j;
        CHECK(new_join(how, within, false, &j) == MD_OK);
        CHECK(md_join_add(j, 0, &a.schema, &a.array, 0, NULL, NULL) == MD_OK);
        CHECK(md_join_add(j, 1, &b.schema, &b.array, 0, NULL, NULL) == MD_OK);
        int64_t pairs_max = round % 2 ? 1 : 1 << 20;
        for (int64_t boundary = 0; boundary < span; boundary += 1 + (int64_t)check_below(50))
            CHECK_OK(run_to(j, boundary, pairs_max, got, &n));
        CHECK_OK(run_to(j, INT64_MAX, pairs_max, got, &n));
        CHECK(n == slow(&a, &b, within, how, wanted));
        for (int64_t i = 0; i < n; i++) CHECK(by_place(&got[i], &wanted[i]) == 0);
        CHECK(md_join_held(j, 0) == 0 && md_join_held(j, 1) == 0);
        md_join_free(j);
        batch_free(&a);
        batch_free(&b);
    }
    return 0;
}

/* Few times, few keys, and steps that end anywhere among the pairs of one time. */
static int test_steps_end_within_a_time(void) {
    static result got[N * N + 2 * N], wanted[N * N + 2 * N];
    static const int64_t SIZES[] = {1, 2, 3, 17, 100, 1000};
    int64_t most;
    most_pairs = &most;
    for (int round = 0; round < 360; round++) {
        md_join_how how = HOWS[round % 6];
        int64_t span = 1 + (int64_t)check_below(round % 4 == 0 ? 1 : 6), within = (int64_t)check_below(8), n = 0;
        batch a = batch_random("ll", (int64_t)check_below(N / 4), 0, span, true);
        batch b = batch_random("ll", (int64_t)check_below(N / 4), 0, span, true);
        md_join *j;
        CHECK(new_join(how, within, false, &j) == MD_OK);
        CHECK(md_join_add(j, 0, &a.schema, &a.array, 0, NULL, NULL) == MD_OK);
        CHECK(md_join_add(j, 1, &b.schema, &b.array, 0, NULL, NULL) == MD_OK);
        int64_t pairs_max = SIZES[(round / 6) % 6];
        most = 0;
        CHECK_OK(run_to(j, span / 2, pairs_max, got, &n));
        CHECK_OK(run_to(j, INT64_MAX, pairs_max, got, &n));
        CHECK(most <= 2 * pairs_max);
        CHECK(n == slow(&a, &b, within, how, wanted));
        for (int64_t i = 0; i < n; i++) CHECK(by_place(&got[i], &wanted[i]) == 0);
        CHECK(md_join_held(j, 0) == 0 && md_join_held(j, 1) == 0);
        md_join_free(j);
        batch_free(&a);
        batch_free(&b);
    }
    most_pairs = NULL;
    return 0;
}

/* Between two such steps there is no state to take: half of the pairs of a time would come again. */
static int test_no_state_within_a_time(void) {
    batch a = batch_random("ll", 60, 5, 1, false), b = batch_random("ll", 60, 5, 1, false), out = {0};
    md_join *j;
    bool more = false;
    CHECK(new_join(MD_JOIN_LEFT, 3, false, &j) == MD_OK);
    CHECK(md_join_add(j, 0, &a.schema, &a.array, 0, NULL, NULL) == MD_OK);
    CHECK(md_join_add(j, 1, &b.schema, &b.array, 0, NULL, NULL) == MD_OK);
    CHECK(md_join_advance(j, 6, NULL) == MD_OK);
    CHECK(md_join_step(j, 1, &more, NULL) == MD_OK && more);
    CHECK(md_join_results(j, &out.schema, &out.array, NULL) == MD_OK);
    batch_free(&out);
    out = (batch){0};
    CHECK(md_join_rows(j, 0, &out.schema, &out.array, NULL) == MD_BADARG);
    CHECK(md_join_renumber(j, 0, NULL, 0, NULL) == MD_BADARG);
    while (more) {
        CHECK(md_join_step(j, 1, &more, NULL) == MD_OK);
        md_rc rc = md_join_results(j, &out.schema, &out.array, NULL);
        CHECK(rc == MD_OK || rc == MD_EMPTY);
        if (rc == MD_OK) batch_free(&out);
        out = (batch){0};
    }
    CHECK(md_join_rows(j, 0, &out.schema, &out.array, NULL) == MD_OK);
    batch_free(&out);
    md_join_free(j);
    batch_free(&a);
    batch_free(&b);
    return 0;
}

/* Whatever allocation fails, calls made again give the same results. */
static int test_every_allocation_may_fail(void) {
    static result got[N * N + 2 * N], wanted[N * N + 2 * N];
    batch a = batch_random("ll", 150, 0, 60, true), b = batch_random("ll", 150, 0, 60, true);
    for (size_t h = 0; h < 6; h++) {
        int64_t count = slow(&a, &b, 9, HOWS[h], wanted);
        for (long k = 0;; k++) {
            md_join *j = NULL;
            int64_t n = 0;
            md_rc rc;
            md_alloc_fail_at = k;
            while ((rc = new_join(HOWS[h], 9, false, &j)) == MD_NOMEM) {}
            CHECK(rc == MD_OK);
            while ((rc = md_join_add(j, 0, &a.schema, &a.array, 0, NULL, NULL)) == MD_NOMEM) {}
            CHECK(rc == MD_OK);
            while ((rc = md_join_add(j, 1, &b.schema, &b.array, 0, NULL, NULL)) == MD_NOMEM) {}
            CHECK(rc == MD_OK);
            CHECK_OK(run_to(j, 30, k % 2 ? 7 : 1, got, &n));
            CHECK_OK(run_to(j, INT64_MAX, k % 3 ? 1 << 20 : 2, got, &n));
            bool failed = md_alloc_fail_at == -1;
            md_alloc_fail_at = -1;
            CHECK(n == count);
            for (int64_t i = 0; i < n; i++) CHECK(by_place(&got[i], &wanted[i]) == 0);
            md_join_free(j);
            if (!failed) break;
            CHECK(k < 10000);
        }
    }
    batch_free(&a);
    batch_free(&b);
    return 0;
}

/* The latest right row not after the left one, the last by number among equal times. */
static int test_as_of(void) {
    static result got[N * N];
    for (int round = 0; round < 40; round++) {
        int64_t span = 1 + (int64_t)check_below(200), within = round % 2 ? -1 : (int64_t)check_below(60), n = 0;
        feed a = feed_random(N, 0, span, 0), b = feed_random(N, 0, span, 0);
        md_join *j;
        CHECK(new_join(MD_JOIN_ASOF_LEFT, within, false, &j) == MD_OK);
        CHECK(md_join_add(j, 0, &a.rows.schema, &a.rows.array, 0, NULL, NULL) == MD_OK);
        CHECK(md_join_add(j, 1, &b.rows.schema, &b.rows.array, 0, NULL, NULL) == MD_OK);
        CHECK_OK(run_to(j, span / 2, 5, got, &n));
        CHECK_OK(run_to(j, INT64_MAX, 1 << 20, got, &n));
        CHECK(n == N);
        for (int64_t i = 0; i < n; i++) {
            int64_t left = got[i].left, t = value(&a.rows, 0, left), best = -1;
            for (int64_t k = 0; k < N && !null_key(&a.rows, left); k++) {
                int64_t u = value(&b.rows, 0, k);
                if (null_key(&b.rows, k) || value(&a.rows, 1, left) != value(&b.rows, 1, k) || u > t) continue;
                if (within >= 0 && t - u > within) continue;
                if (best < 0 || u >= value(&b.rows, 0, best)) best = k;
            }
            CHECK(got[i].right == best && got[i].release == t);
            CHECK(i == 0 || by_place(&got[i - 1], &got[i]) < 0);
        }
        CHECK(within >= 0 || md_join_held(j, 1) <= 12); /* one of each key */
        md_join_free(j);
        batch_free(&a.rows);
        batch_free(&b.rows);
    }
    return 0;
}

static int test_what_is_refused(void) {
    md_join *j, *none = NULL;
    batch a = batch_random("ll", 10, 100, 10, false), wrong = batch_random("lg", 10, 100, 10, false);
    CHECK(new_join(MD_JOIN_INNER, -1, false, &none) == MD_BADARG);
    CHECK(new_join(MD_JOIN_ASOF, -1, true, &none) == MD_BADARG);
    CHECK(new_join(MD_JOIN_INNER, 5, false, &j) == MD_OK);
    CHECK(md_join_add(j, 0, &wrong.schema, &wrong.array, 0, NULL, NULL) == MD_BADARG);
    CHECK(md_join_add(j, 0, &a.schema, &a.array, 7, NULL, NULL) == MD_OK);
    CHECK(md_join_add(j, 0, &a.schema, &a.array, 16, NULL, NULL) == MD_BADARG); /* numbers ascend */
    CHECK(md_join_advance(j, 101, NULL) == MD_OK);
    CHECK(md_join_advance(j, 100, NULL) == MD_BADARG);
    CHECK(md_join_add(j, 1, &a.schema, &a.array, 0, NULL, NULL) == MD_BADARG || md_join_held(j, 1) == 10);
    CHECK(md_join_resume(j, 101, NULL) == MD_BADARG);
    bool more;
    struct ArrowSchema schema;
    struct ArrowArray array;
    CHECK(md_join_results(j, &schema, &array, NULL) == MD_BADARG); /* there was no step */
    CHECK(md_join_step(j, 1, &more, NULL) == MD_OK);
    CHECK(md_join_step(j, 1, &more, NULL) == MD_BADARG); /* its results were not taken */
    md_join_free(j);
    batch_free(&a);
    batch_free(&wrong);
    return 0;
}

static int test_take(void) {
    for (int round = 0; round < 30; round++) {
        batch b[2] = {batch_random("lgubz", 50, 0, 9, true), batch_random("lgubz", 70, 0, 9, true)};
        md_chunk chunks[] = {{&b[0].array, 10}, {&b[1].array, 100}};
        int64_t numbers[64];
        for (int i = 0; i < 64; i++) {
            uint64_t r = check_below(121);
            numbers[i] = r == 120 ? -1 : r < 50 ? 10 + (int64_t)r : 50 + (int64_t)r;
        }
        const int32_t columns[] = {2, 0, 4, 3};
        batch out = {0};
        CHECK(md_chunk_check(&b[0].schema, &b[0].array, NULL) == MD_OK);
        CHECK_EVERY_ALLOC(md_take_rows(&b[0].schema, chunks, 2, columns, 4, numbers, 64, &out.schema, &out.array, NULL),
                          (batch_free(&out)));
        CHECK(md_take_rows(&b[0].schema, chunks, 2, columns, 4, numbers, 64, &out.schema, &out.array, NULL) == MD_OK);
        for (int64_t i = 0; i < 64; i++) {
            for (int c = 0; c < 4; c++) {
                const struct ArrowArray *made = out.array.children[c];
                const uint8_t *valid = made->buffers[0];
                bool is_valid = valid == NULL || md_bit(valid, i);
                if (numbers[i] < 0) {
                    CHECK(!is_valid);
                    continue;
                }
                const struct ArrowArray *from = b[numbers[i] >= 100].array.children[columns[c]];
                int64_t at = numbers[i] - (numbers[i] >= 100 ? 100 : 10);
                CHECK(is_valid == (from->buffers[0] == NULL || md_bit(from->buffers[0], at)));
                if (!is_valid) continue;
                if (columns[c] == 0) CHECK(memcmp((const char *)made->buffers[1] + 8 * i, (const char *)from->buffers[1] + 8 * at, 8) == 0);
                if (columns[c] == 3) CHECK(md_bit(made->buffers[1], i) == md_bit(from->buffers[1], at));
                if (columns[c] == 2 || columns[c] == 4) {
                    const int32_t *o = made->buffers[1], *p = from->buffers[1];
                    CHECK(o[i + 1] - o[i] == p[at + 1] - p[at]);
                    CHECK(memcmp((const char *)made->buffers[2] + o[i], (const char *)from->buffers[2] + p[at], (size_t)(o[i + 1] - o[i])) == 0);
                }
            }
        }
        batch_free(&out);
        numbers[3] = 60; /* of no chunk */
        CHECK(md_take_rows(&b[0].schema, chunks, 2, columns, 4, numbers, 64, &out.schema, &out.array, NULL) == MD_BADARG);
        batch_free(&b[0]);
        batch_free(&b[1]);
    }
    return 0;
}

TEST_MAIN(TEST(test_all_pairs_in_order), TEST(test_steps_end_within_a_time), TEST(test_no_state_within_a_time),
          TEST(test_every_allocation_may_fail), TEST(test_as_of), TEST(test_what_is_refused), TEST(test_take))
