#include "batches.h"
#include "aggregates/sketch.h"

#define N 2000
#define GROUPS 5

/* The packed sets of a set, as a batch of one binary column. */
static int packed(const md_distinct *set, const int32_t *order, batch *out) {
    md_rows *rows = NULL;
    CHECK(md_rows_new(1, &rows) == MD_OK);
    md_rows_define(rows, 0, "z", "set", false);
    CHECK(md_rows_reserve(rows, GROUPS) == MD_OK);
    CHECK(md_distinct_pack(set, GROUPS, order, GROUPS, rows, 0) == MD_OK);
    md_rows_commit(rows, GROUPS);
    CHECK(md_rows_finish(rows, &out->schema, &out->array) == MD_OK);
    md_rows_free(rows);
    return 0;
}

static int check_type(md_type type) {
    static md_distinct_scratch scratch;
    static int32_t ids[N];
    char types[3] = {'l', (char)type, 0};
    batch b = batch_random(types, N, 0, 1, true), first, second;
    md_column views[2];
    int64_t n;
    CHECK(md_columns_view(&b.schema, &b.array, 2, views, &n, NULL) == MD_OK);
    md_distinct *set = NULL, *loaded = NULL, *merged = NULL;
    CHECK(md_distinct_new(type, 1, &set) == MD_OK && md_distinct_new(type, 2, &loaded) == MD_OK);
    CHECK(md_distinct_new(type, 3, &merged) == MD_OK);
    for (int i = 0; i < N; i++) ids[i] = (int32_t)check_below(GROUPS);
    CHECK(md_distinct_add(set, ids, &views[1], NULL, 0, N, &scratch) == MD_OK);
    md_word counts[GROUPS];
    md_distinct_count(set, GROUPS, counts);
    for (int g = 0; g < GROUPS; g++) CHECK(counts[g].i == (type == MD_BOOL ? 2 : type == MD_F64 ? 40 : 12));
    /* Packed, unpacked, packed again: the same; and so merged with a permutation there and back. */
    CHECK_OK(packed(set, NULL, &first));
    md_column sets;
    CHECK(md_column_view(first.schema.children[0], first.array.children[0], &sets, NULL) == MD_OK);
    for (int64_t g = 0; g < GROUPS; g++) {
        uint32_t size;
        const uint8_t *bytes = md_column_bytes(&sets, g, &size);
        CHECK(md_distinct_unpack(loaded, g, bytes, size, true, NULL) == MD_OK);
        CHECK(md_distinct_unpack(loaded, g, bytes, size, true, NULL) == MD_BADDATA); /* every value twice */
        CHECK(md_distinct_unpack(loaded, g, bytes, size, false, NULL) == MD_OK);
        CHECK(md_distinct_unpack(loaded, g, bytes, size - 1, false, NULL) == MD_BADDATA);
    }
    CHECK_OK(packed(loaded, NULL, &second));
    CHECK(digest(1, &first) == digest(1, &second));
    batch_free(&second);
    static const int32_t there[GROUPS] = {3, 1, 4, 0, 2};
    CHECK(md_distinct_merge(merged, set, there, NULL, &scratch) == MD_OK);
    CHECK_OK(packed(merged, there, &second));
    CHECK(digest(1, &first) == digest(1, &second));
    batch_free(&first);
    batch_free(&second);
    batch_free(&b);
    md_distinct_free(set);
    md_distinct_free(loaded);
    md_distinct_free(merged);
    return 0;
}

static int test_every_type(void) {
    static const md_type types[] = {MD_I64, MD_U64, MD_F64, MD_BOOL, MD_UTF8, MD_BINARY};
    for (int i = 0; i < 6; i++) CHECK_OK(check_type(types[i]));
    return 0;
}

static int test_bytes_that_are_no_set(void) {
    md_distinct *set = NULL;
    uint64_t two = 2, odd_nan = 0x7ff8000000000001u, minus_zero = UINT64_C(1) << 63;
    uint8_t text[6] = {200, 0, 0, 0, 'a', 'b'};
    CHECK(md_distinct_new(MD_BOOL, 0, &set) == MD_OK);
    CHECK(md_distinct_unpack(set, 0, (const uint8_t *)&two, 8, false, NULL) == MD_BADDATA);
    md_distinct_free(set);
    CHECK(md_distinct_new(MD_F64, 0, &set) == MD_OK);
    CHECK(md_distinct_unpack(set, 0, (const uint8_t *)&odd_nan, 8, false, NULL) == MD_BADDATA);
    CHECK(md_distinct_unpack(set, 0, (const uint8_t *)&minus_zero, 8, false, NULL) == MD_BADDATA);
    md_distinct_free(set);
    CHECK(md_distinct_new(MD_UTF8, 0, &set) == MD_OK);
    CHECK(md_distinct_unpack(set, 0, text, 6, false, NULL) == MD_BADDATA);
    CHECK(md_distinct_unpack(set, 0, text, 3, false, NULL) == MD_BADDATA);
    text[0] = 2;
    CHECK(md_distinct_unpack(set, 0, text, 6, false, NULL) == MD_OK && set->keys->count == 1);
    md_distinct_free(set);
    return 0;
}

static md_rc add_and_pack(const md_column *column, md_distinct **set, md_rows **rows) {
    static md_distinct_scratch scratch;
    static int32_t ids[N];
    for (int i = 0; i < N; i++) ids[i] = i % GROUPS;
    md_rc rc = md_distinct_new(MD_UTF8, 1, set);
    if (rc == MD_OK && (rc = md_distinct_add(*set, ids, column, NULL, 0, N, &scratch)) != MD_OK && (*set)->keys->count > 0)
        return MD_BADARG; /* it must be as before */
    if (rc == MD_OK) rc = md_rows_new(1, rows);
    if (rc != MD_OK) return rc;
    md_rows_define(*rows, 0, "z", "set", false);
    rc = md_rows_reserve(*rows, GROUPS);
    return rc == MD_OK ? md_distinct_pack(*set, GROUPS, NULL, GROUPS, *rows, 0) : rc;
}

static int test_every_allocation_may_fail(void) {
    batch b = batch_random("lu", N, 0, 1, true);
    md_column column;
    md_distinct *set = NULL;
    md_rows *rows = NULL;
    CHECK(md_column_view(b.schema.children[1], b.array.children[1], &column, NULL) == MD_OK);
    CHECK_EVERY_ALLOC(add_and_pack(&column, &set, &rows), {
        md_distinct_free(set);
        md_rows_free(rows);
        set = NULL;
        rows = NULL;
    });
    batch_free(&b);
    return 0;
}

TEST_MAIN(TEST(test_every_type), TEST(test_bytes_that_are_no_set), TEST(test_every_allocation_may_fail))
