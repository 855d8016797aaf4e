#include "batches.h"
#include "base/hash.h"
#include "keys/keys.h"
#include "keys/keys_rows.h"

#define N 3000

/* Ids by comparing each row with all earlier ones: too simple to be wrong. */
static bool same_row(const md_column *columns, int32_t n, int64_t a, int64_t b) {
    for (int32_t k = 0; k < n; k++) {
        const md_column *c = &columns[k];
        if (md_column_null(c, a) != md_column_null(c, b)) return false;
        if (md_column_null(c, a)) continue;
        uint32_t size_a = 0, size_b = 0;
        if (c->type == MD_BOOL) {
            if (md_column_bool(c, a) != md_column_bool(c, b)) return false;
        } else if (md_type_is_text(c->type)) {
            const uint8_t *x = md_column_bytes(c, a, &size_a), *y = md_column_bytes(c, b, &size_b);
            if (size_a != size_b || memcmp(x, y, size_a) != 0) return false;
        } else if (c->type == MD_F64) {
            double x = md_column_f64(c, a), y = md_column_f64(c, b);
            if (!(x == y || (x != x && y != y))) return false;
        } else if (md_column_i64(c, a) != md_column_i64(c, b)) {
            return false;
        }
    }
    return true;
}

static int check_against_brute_force(const char *types, int64_t n, bool nulls) {
    char all[16];
    md_type key_types[8];
    int32_t width = (int32_t)strlen(types);
    snprintf(all, sizeof all, "l%s", types);
    for (int32_t k = 0; k < width; k++) key_types[k] = (md_type)types[k];
    batch b = batch_random(all, n, 0, 1, nulls);
    md_column views[8];
    int64_t length, distinct = 0;
    CHECK(md_columns_view(&b.schema, &b.array, width + 1, views, &length, NULL) == MD_OK && length == n);
    md_keys *keys = NULL;
    CHECK(md_keys_new(key_types, width, check_random(), &keys) == MD_OK);
    int32_t *ids = calloc((size_t)n, sizeof *ids), *want = calloc((size_t)n, sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        int64_t j = 0;
        while (j < i && !same_row(views + 1, width, i, j)) j++;
        want[i] = j < i ? want[j] : (int32_t)distinct++;
    }
    for (int64_t at = 0; at < n;) { /* in random pieces */
        int64_t m = 1 + (int64_t)check_below((uint64_t)(n - at));
        CHECK(md_keys_map(keys, views + 1, NULL, at, m, 100, true, ids + at) == MD_OK);
        at += m;
    }
    CHECK(keys->count == distinct);
    CHECK(memcmp(ids, want, (size_t)n * sizeof *ids) == 0);
    for (int64_t g = 0, i = 0; g < distinct; g++, i++) {
        while (want[i] != g) i++;
        CHECK(keys->first[g] == 100 + i);
    }
    /* Forgetting the last half, then mapping again without and with inserting. */
    md_keys_truncate(keys, distinct / 2);
    CHECK(md_keys_map(keys, views + 1, NULL, 0, n, 200, false, ids) == MD_OK && keys->count == distinct / 2);
    for (int64_t i = 0; i < n; i++) CHECK(ids[i] == (want[i] < distinct / 2 ? want[i] : -1));
    CHECK(md_keys_map(keys, views + 1, NULL, 0, n, 200, true, ids) == MD_OK);
    CHECK(memcmp(ids, want, (size_t)n * sizeof *ids) == 0);
    /* Another index, from this one. */
    md_keys *copy = NULL;
    CHECK(md_keys_new(key_types, width, check_random(), &copy) == MD_OK);
    CHECK(md_keys_map_keys(copy, keys, 0, distinct, ids) == MD_OK && copy->count == distinct);
    for (int64_t g = 0; g < distinct; g++) CHECK(ids[g] == g && copy->first[g] == keys->first[g]);
    md_keys_reset(copy);
    CHECK(copy->count == 0 && md_keys_map_keys(copy, keys, distinct / 2, distinct - distinct / 2, ids) == MD_OK);
    CHECK(copy->count == distinct - distinct / 2);
    md_keys_free(copy);
    md_keys_free(keys);
    free(ids);
    free(want);
    batch_free(&b);
    return 0;
}

static int test_equals_brute_force(void) {
    static const char *const types[] = {"l", "L", "g", "b", "u", "z", "lu", "gb", "ulg"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        CHECK_OK(check_against_brute_force(types[i], 1, false));
        CHECK_OK(check_against_brute_force(types[i], 700, false));
        CHECK_OK(check_against_brute_force(types[i], 700, true));
    }
    return 0;
}

/* Integers that move from a narrow range to a wide one: the direct table grows, then gives up. */
static int test_ranges_that_grow(void) {
    static const uint64_t spans[] = {1, 500, 5000, 20000, 3000000, UINT64_MAX};
    for (int sign = 0; sign < 2; sign++) {
        md_type type = sign ? MD_I64 : MD_U64;
        md_keys *keys = NULL;
        CHECK(md_keys_new(&type, 1, 5, &keys) == MD_OK);
        uint64_t *values = calloc(6 * N, sizeof *values);
        int32_t *ids = calloc(6 * N, sizeof *ids);
        for (int64_t i = 0; i < 6 * N; i++)
            values[i] = check_below(spans[i / N]) - (sign && i / N > 1 ? spans[i / N] / 2 : 0);
        md_column column = {.type = type, .length = 6 * N, .values = (const uint8_t *)values};
        for (int64_t at = 0; at < 6 * N; at += 500)
            CHECK(md_keys_map(keys, &column, NULL, at, 500, 0, true, ids + at) == MD_OK);
        int32_t next = 0;
        for (int64_t i = 0; i < 6 * N; i++) {
            CHECK(ids[i] <= next && keys->columns[0].words[ids[i]] == values[i]);
            next += ids[i] == next;
        }
        CHECK(next == keys->count);
        for (int64_t g = 1; g < keys->count; g++) CHECK(keys->first[g] > keys->first[g - 1]);
        md_keys_free(keys);
        free(values);
        free(ids);
    }
    return 0;
}

static int test_floats_that_are_one_key(void) {
    double values[6] = {0.0, -0.0, __builtin_nan(""), -__builtin_nan("7"), 1.0, 0.0};
    md_type type = MD_F64;
    md_keys *keys = NULL;
    int32_t ids[6];
    md_column column = {.type = MD_F64, .length = 6, .values = (const uint8_t *)values};
    CHECK(md_keys_new(&type, 1, 0, &keys) == MD_OK && md_keys_map(keys, &column, NULL, 0, 6, 0, true, ids) == MD_OK);
    CHECK(ids[0] == 0 && ids[1] == 0 && ids[2] == 1 && ids[3] == 1 && ids[4] == 2 && ids[5] == 0);
    CHECK(md_keys_compare(keys, 0, 1) < 0 && md_keys_compare(keys, 1, 2) > 0 && md_keys_compare(keys, 1, 1) == 0);
    md_keys_free(keys);
    return 0;
}

static int test_bad_types_are_refused(void) {
    md_type types[2] = {MD_I64, MD_I32};
    md_keys *keys = NULL;
    CHECK(md_keys_new(types, 2, 0, &keys) == MD_BADARG && md_keys_new(types, -1, 0, &keys) == MD_BADARG);
    CHECK(md_keys_new(types, MD_KEYS_COLUMNS_MAX + 1, 0, &keys) == MD_BADARG && keys == NULL);
    md_keys_free(NULL);
    return 0;
}

static md_rc map_twice(md_keys *keys, const batch *a, const batch *b, struct ArrowArray *ids) {
    int64_t n;
    md_error err;
    md_rc rc = md_keys_map_rows(keys, &a->schema, &a->array, 0, true, ids, &n, &err);
    if (rc != MD_OK) return rc;
    md_array_release(ids);
    int64_t before = keys->count;
    rc = md_keys_map_rows(keys, &b->schema, &b->array, n, true, ids, &n, &err);
    if (rc != MD_OK && keys->count != before) return MD_BADARG; /* it must be as before */
    return rc;
}

static md_rc map_and_export(const batch *a, const batch *b, md_keys **keys, struct ArrowArray *ids, batch *out) {
    static const md_type types[2] = {MD_I64, MD_UTF8};
    md_rc rc = md_keys_new(types, 2, 1, keys);
    if (rc == MD_OK) rc = map_twice(*keys, a, b, ids);
    if (rc == MD_OK) rc = md_keys_export(*keys, &out->schema, &out->array, NULL);
    return rc;
}

/* Whoever chooses all bytes of a key, but doesn't know the seed, can't make keys collide: not by making a
 * factor of the hash zero, and not by taking over what it holds. */
static int test_chosen_bytes_do_not_collide(void) {
    enum { KEYS = 2000, SIZE = 40 };
    static const uint64_t CHOSEN[] = {MD_HASH_A, MD_HASH_B, 0, UINT64_MAX, MD_HASH_NULL};
    for (int seed = 0; seed < 2; seed++) {
        uint64_t h = check_random();
        for (size_t c = 0; c < sizeof CHOSEN / sizeof *CHOSEN; c++) {
            for (int place = 0; place < SIZE; place += 8) {
                static uint64_t found[KEYS];
                for (uint64_t i = 0; i < KEYS; i++) {
                    uint8_t key[SIZE] = {0};
                    for (int at = 0; at < SIZE; at += 8) memcpy(key + at, at == place ? &i : &CHOSEN[c], 8);
                    found[i] = md_hash_bytes(h, key, SIZE) >> 32; /* the tag: what an index looks at */
                }
                int64_t equal = 0;
                for (int i = 0; i < KEYS; i++)
                    for (int j = 0; j < i; j++) equal += found[i] == found[j];
                CHECK(equal < 4);
            }
        }
    }
    return 0;
}

static int test_the_secret_goes_into_every_index(void) {
    md_type type = MD_U64;
    uint64_t before = md_keys_secret(5), seeds[3];
    for (int i = 0; i < 3; i++) {
        md_keys *keys = NULL;
        md_keys_secret(i < 2 ? 5 : 6);
        CHECK(md_keys_new(&type, 1, 7, &keys) == MD_OK);
        seeds[i] = keys->seed;
        md_keys_free(keys);
    }
    CHECK(seeds[0] == seeds[1] && seeds[0] != seeds[2]);
    CHECK(md_keys_secret(before) == 6);
    return 0;
}

static int test_every_allocation_may_fail(void) {
    batch a = batch_random("lu", 50, 0, 20, false), b = batch_random("lu", 200, 0, 50, true), out = {0};
    md_keys *keys = NULL;
    struct ArrowArray ids = {0};
    CHECK_EVERY_ALLOC(map_and_export(&a, &b, &keys, &ids, &out), {
        md_keys_free(keys);
        keys = NULL;
        md_array_release(&ids);
        batch_free(&out);
    });
    batch_free(&a);
    batch_free(&b);
    return 0;
}

TEST_MAIN(TEST(test_equals_brute_force), TEST(test_ranges_that_grow), TEST(test_floats_that_are_one_key),
          TEST(test_bad_types_are_refused), TEST(test_chosen_bytes_do_not_collide),
          TEST(test_the_secret_goes_into_every_index), TEST(test_every_allocation_may_fail))
