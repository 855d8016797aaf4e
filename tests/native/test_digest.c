#include "arrays.h"
#include "check.h"
#include "base/digest.h"
#include "base/md_alloc.h"

static const uint64_t SEED[2] = {0x1234567890abcdefu, 0xfedcba0987654321u};

/* Digests of one column of n rows from offset on. */
static md_rc column_digests(const char *format, const void **buffers, int64_t n_buffers, int64_t offset, int64_t n,
                            uint64_t *out, md_error *err) {
    struct ArrowSchema child = schema_of(format), *children[] = {&child};
    struct ArrowArray column = array_over(buffers, n_buffers, offset, n), *columns[] = {&column};
    struct ArrowSchema schema = struct_schema(children, 1);
    struct ArrowArray array = struct_over(columns, 1, 0, n);
    return md_row_digests(&schema, &array, SEED, out, err);
}

static bool same(const uint64_t *a, const uint64_t *b) { return a[0] == b[0] && a[1] == b[1]; }

static int test_equal_rows_and_no_others_look_alike(void) {
    int64_t values[] = {5, -5, 5, 0};
    uint8_t valid[] = {0x0b}; /* row 2 is null */
    const void *buffers[] = {NULL, values}, *nulls[] = {valid, values};
    uint64_t d[8], e[8];
    CHECK(column_digests("l", buffers, 2, 0, 4, d, NULL) == MD_OK);
    CHECK(same(d, d + 4) && !same(d, d + 2) && !same(d, d + 6));
    CHECK(column_digests("l", nulls, 2, 0, 4, e, NULL) == MD_OK);
    CHECK(same(d, e) && same(d + 6, e + 6) && !same(e, e + 4) && !same(e + 4, e + 6));
    CHECK(column_digests("l", nulls, 2, 1, 3, d, NULL) == MD_OK);
    CHECK(same(d, e + 2) && same(d + 2, e + 4) && same(d + 4, e + 6));
    return 0;
}

static int test_every_width(void) {
    uint8_t bytes[64];
    for (int i = 0; i < 64; i++) bytes[i] = (uint8_t)i;
    const char *formats[] = {"c", "S", "tdD", "g", "tsu:UTC", "d:38,2", "d:50,2,256", "w:3", "w:16", "b"};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        const void *buffers[] = {NULL, bytes};
        uint64_t d[4];
        CHECK(column_digests(formats[f], buffers, 2, 0, 2, d, NULL) == MD_OK);
        CHECK(!same(d, d + 2) || formats[f][0] == 'b');
    }
    return 0;
}

static int test_text_and_what_is_refused(void) {
    int32_t offsets[] = {0, 2, 2, 4, 5};
    const void *text[] = {NULL, offsets, "abab" "c"};
    uint64_t d[8];
    CHECK(column_digests("u", text, 3, 0, 4, d, NULL) == MD_OK);
    CHECK(same(d, d + 4) && !same(d, d + 2) && !same(d, d + 6));
    md_error err;
    CHECK(column_digests("vu", text, 3, 0, 4, d, &err) == MD_BADARG);
    CHECK(strstr(err.text, "'vu'") != NULL);
    CHECK(column_digests("u", text, 2, 0, 4, d, &err) == MD_BADARG);
    CHECK(column_digests("", text, 3, 0, 4, d, &err) == MD_BADARG);
    CHECK(column_digests("d:x", text, 3, 0, 0, d, &err) == MD_OK);
    CHECK(column_digests("+l", text, 2, 0, 4, d, &err) == MD_BADARG);
    return 0;
}

/* Digests whose first word is the number: what runs see of rows. */
static void rows_of(const int64_t *numbers, int64_t n, uint64_t *out) {
    for (int64_t i = 0; i < n; i++) {
        out[2 * i] = (uint64_t)numbers[i] * 16; /* many meet in the index */
        out[2 * i + 1] = (uint64_t)numbers[i];
    }
}

static int runs(const int64_t *old_rows, int64_t n_old, const int64_t *new_rows, int64_t n_new,
                const int64_t *expected, int64_t n_expected) {
    uint64_t before[64], after[64];
    int64_t *made = NULL, n = 0;
    rows_of(old_rows, n_old, before);
    rows_of(new_rows, n_new, after);
    CHECK(md_row_runs(before, n_old, after, n_new, &made, &n, NULL) == MD_OK);
    CHECK(n == n_expected);
    for (int64_t i = 0; i < 2 * n; i++) CHECK(made[i] == expected[i]);
    md_free(made);
    return 0;
}

static int test_runs(void) {
    const int64_t abcd[] = {1, 2, 3, 4};
    CHECK_OK(runs(abcd, 4, abcd, 4, (int64_t[]){0, 4}, 1));
    CHECK_OK(runs(abcd, 4, (int64_t[]){2, 3, 9, 4}, 4, (int64_t[]){1, 2, 4, 1, 3, 1}, 3));
    CHECK_OK(runs(abcd, 4, (int64_t[]){4, 3, 3}, 3, (int64_t[]){3, 1, 2, 1, 2, 1}, 3));
    /* The last old row and the first fresh one stand side by side, but are two runs. */
    CHECK_OK(runs(abcd, 4, (int64_t[]){1, 2, 3, 4, 8, 9}, 6, (int64_t[]){0, 4, 4, 2}, 2));
    CHECK_OK(runs(NULL, 0, abcd, 4, (int64_t[]){0, 4}, 1));
    CHECK_OK(runs(abcd, 4, NULL, 0, NULL, 0));
    CHECK_OK(runs((int64_t[]){7, 7, 7}, 3, (int64_t[]){7, 7, 5, 7}, 4, (int64_t[]){0, 2, 3, 1, 0, 1}, 3));
    return 0;
}

static int test_memory_may_run_out_anywhere(void) {
    int64_t numbers[32];
    uint64_t before[64], after[64];
    for (int64_t i = 0; i < 32; i++) numbers[i] = i;
    rows_of(numbers, 32, before);
    for (int64_t i = 0; i < 32; i++) numbers[i] = 31 - i; /* a run for each */
    rows_of(numbers, 32, after);
    for (long k = 0;; k++) {
        int64_t *made = NULL, n = 0;
        md_alloc_fail_at = k;
        md_rc rc = md_row_runs(before, 32, after, 32, &made, &n, NULL);
        md_alloc_fail_at = -1;
        if (rc == MD_OK) {
            CHECK(n == 32 && k > 1);
            md_free(made);
            CHECK(md_alloc_live == 0);
            break;
        }
        CHECK(rc == MD_NOMEM && made == NULL && md_alloc_live == 0);
    }
    uint64_t d[2];
    int64_t value = 3;
    const void *buffers[] = {NULL, &value};
    md_alloc_fail_at = 0;
    CHECK(column_digests("l", buffers, 2, 0, 1, d, NULL) == MD_NOMEM);
    CHECK(md_alloc_live == 0);
    return 0;
}

TEST_MAIN(TEST(test_equal_rows_and_no_others_look_alike), TEST(test_every_width),
          TEST(test_text_and_what_is_refused), TEST(test_runs), TEST(test_memory_may_run_out_anywhere))
