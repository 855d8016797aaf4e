#include "arrays.h"
#include "check.h"
#include "keys/partition.h"

/* Computed with the reference implementation of xxHash. */
static int test_xxh64_vectors(void) {
    uint8_t up[101];
    for (int i = 0; i < 101; i++) up[i] = (uint8_t)i;
    CHECK(md_xxh64(NULL, 0, 0) == 0xef46db3751d8e999u);
    CHECK(md_xxh64("abc", 3, 0) == 0x44bc2cf5ad770999u);
    CHECK(md_xxh64(up, 101, 2654435761u) == 0xa1c6d4174c37136du);
    return 0;
}

/* Hash n columns of one or more rows. */
static md_rc hash(const char **formats, struct ArrowArray *columns, int64_t n, int64_t offset, int64_t rows,
                  uint64_t *hashes, md_error *err) {
    struct ArrowSchema schemas[4], *schema_children[4];
    struct ArrowArray *children[4];
    for (int64_t i = 0; i < n; i++) {
        schemas[i] = schema_of(formats[i]);
        schema_children[i] = &schemas[i];
        children[i] = &columns[i];
    }
    struct ArrowSchema schema = struct_schema(schema_children, n);
    struct ArrowArray array = struct_over(children, n, offset, rows);
    return md_hash_partition(&schema, &array, hashes, err);
}

static int one(const char *format, const void *values, uint64_t expected) {
    const void *buffers[] = {NULL, values};
    struct ArrowArray column = array_over(buffers, 2, 0, 1);
    uint64_t h = 0;
    CHECK(hash(&format, &column, 1, 0, 1, &h, NULL) == MD_OK);
    CHECK(h == expected);
    return 0;
}

static int test_a_number_hashes_by_its_value_whatever_its_width(void) {
    const uint64_t minus_one = 0xe4a42358fe73e0b6u, plus_one = 0x7b2075f90a671183u;
    int8_t c = -1;
    int16_t s = -1;
    int32_t i = -1;
    int64_t l = -1;
    CHECK_OK(one("c", &c, minus_one));
    CHECK_OK(one("s", &s, minus_one));
    CHECK_OK(one("i", &i, minus_one));
    CHECK_OK(one("l", &l, minus_one));
    CHECK_OK(one("tdD", &i, minus_one));
    CHECK_OK(one("tDu", &l, minus_one));
    CHECK_OK(one("tsu:", &l, minus_one));
    CHECK_OK(one("tsu:UTC", &l, minus_one));
    uint8_t uc = 1;
    uint16_t us = 1;
    uint32_t ui = 1;
    uint64_t ul = 1, half = (uint64_t)1 << 63, all = UINT64_MAX;
    CHECK_OK(one("C", &uc, plus_one));
    CHECK_OK(one("S", &us, plus_one));
    CHECK_OK(one("I", &ui, plus_one));
    CHECK_OK(one("L", &ul, plus_one));
    CHECK_OK(one("L", &half, 0x81bffbfef93f057du));
    CHECK_OK(one("L", &all, 0xc26335d35c8ef180u));
    uint8_t yes = 1, no = 0;
    CHECK_OK(one("b", &yes, 0xc06dbb2c26dcc6d6u));
    CHECK_OK(one("b", &no, 0x4cf90c867d984a54u));
    return 0;
}

static int test_zeros_and_nans_are_one_value_each(void) {
    const uint64_t zero = 0x72707b1835bd39c5u, nan = 0x54977fd7cc44f650u;
    double minus = -0.0, half = 1.5;
    float minus32 = -0.0f, half32 = 1.5f;
    uint64_t odd_nan = 0xfff8dead00000001u;
    uint32_t odd_nan32 = 0xffc00123u;
    CHECK_OK(one("g", &minus, zero));
    CHECK_OK(one("f", &minus32, zero));
    CHECK_OK(one("g", &odd_nan, nan));
    CHECK_OK(one("f", &odd_nan32, nan));
    CHECK_OK(one("g", &half, 0x37decba307c98f65u));
    CHECK_OK(one("f", &half32, 0x37decba307c98f65u));
    return 0;
}

/* "medusa" and a text of 40 letters in each layout; nulls; a slice. */
static int test_text_hashes_by_its_bytes_whatever_its_layout(void) {
    const uint64_t expected[] = {0x0d7b279148718b0du, 0xe934a84adb052768u, 0x2b1a2eb117e00773u, 0x0e813e63735e711eu};
    char bytes[47] = "medusa";
    memset(bytes + 6, 'a', 40);
    uint8_t validity = 1 << 1 | 1 << 3 | 1 << 4; /* the first is left out by the slice, the third is null */
    int32_t offsets[] = {0, 0, 6, 6, 46, 46};
    int64_t large[] = {0, 0, 6, 6, 46, 46};
    struct { int32_t size, words[3]; } views[5] = {{0}, {6, {0}}, {0}, {40, {0, 0, 6}}, {0}};
    memcpy(views[1].words, "medusa", 6);
    int64_t sizes[] = {47};
    const void *plain[] = {&validity, offsets, bytes}, *big[] = {&validity, large, bytes};
    const void *view[] = {&validity, views, bytes, sizes};
    const char *formats[] = {"u", "U", "vu"};
    struct ArrowArray columns[] = {array_over(plain, 3, 0, 5), array_over(big, 3, 0, 5), array_over(view, 4, 0, 5)};
    for (int i = 0; i < 3; i++) {
        uint64_t h[4];
        CHECK(hash(&formats[i], &columns[i], 1, 1, 4, h, NULL) == MD_OK);
        CHECK(memcmp(h, expected, sizeof h) == 0);
    }
    const char *binary = "z";
    uint64_t h[5];
    CHECK(hash(&binary, columns, 1, 0, 5, h, NULL) == MD_OK && h[1] == 0x687b8d1f548e439cu);
    return 0;
}

static int test_columns_stand_one_after_the_other(void) {
    int64_t numbers[] = {7, 1};
    uint8_t validity = 0, bits = 3;
    int32_t offsets[] = {0, 0, 1};
    const void *a[] = {NULL, numbers}, *b[] = {NULL, offsets, "a"}, *c[] = {&validity, numbers}, *d[] = {NULL, &bits};
    struct ArrowArray text[] = {array_over(a, 2, 0, 2), array_over(b, 3, 0, 2)};
    struct ArrowArray mixed[] = {array_over(a, 2, 0, 2), array_over(c, 2, 0, 2), array_over(d, 2, 0, 2)};
    const char *text_formats[] = {"l", "u"}, *mixed_formats[] = {"l", "l", "b"};
    uint64_t h[2];
    CHECK(hash(text_formats, text, 2, 0, 2, h, NULL) == MD_OK && h[1] == 0x13a418e189336361u);
    CHECK(hash(mixed_formats, mixed, 3, 0, 2, h, NULL) == MD_OK && h[1] == 0xc4f1d8ac8ed93c43u);
    CHECK(hash(mixed_formats, mixed, 0, 0, 2, h, NULL) == MD_OK && h[0] == 0xef46db3751d8e999u && h[1] == h[0]);
    return 0;
}

static int refused(const char *format, const void **buffers, int64_t n_buffers, const char *word) {
    struct ArrowArray column = array_over(buffers, n_buffers, 0, 1);
    uint64_t h;
    md_error err = {.text = ""};
    CHECK(hash(&format, &column, 1, 0, 1, &h, &err) == MD_BADARG);
    CHECK(strstr(err.text, word) != NULL);
    return 0;
}

static int test_what_cannot_be_hashed_is_refused(void) {
    int64_t value[4] = {0};
    int32_t falling[] = {3, 1}, below[] = {-1, 2};
    int32_t view[] = {20, 0, 5, 0}, past_view[] = {20, 0, 0, 0};
    const void *fixed[] = {NULL, value}, *fall[] = {NULL, falling, "abc"}, *minus[] = {NULL, below, "abc"};
    int64_t size[] = {19};
    const void *far[] = {NULL, view, "abc", value}, *past[] = {NULL, past_view, "abc", size}, *nothing[] = {NULL, NULL};
    CHECK_OK(refused("tsm:UTC", fixed, 2, "tsm:UTC"));
    CHECK_OK(refused("d:10,2", fixed, 2, "d:10,2"));
    CHECK_OK(refused("l", nothing, 2, "values"));
    CHECK_OK(refused("l", fixed, 1, "buffers"));
    CHECK_OK(refused("u", fixed, 2, "buffers"));
    CHECK_OK(refused("u", fall, 3, "offsets"));
    CHECK_OK(refused("u", minus, 3, "offsets"));
    CHECK_OK(refused("vu", far, 4, "offsets"));
    CHECK_OK(refused("vu", past, 4, "offsets"));
    struct ArrowSchema schema = schema_of("l");
    struct ArrowArray array = array_over(fixed, 2, 0, 1);
    uint64_t h;
    CHECK(md_hash_partition(&schema, &array, &h, NULL) == MD_BADARG);
    const char *format = "l";
    CHECK(hash(&format, &array, 1, 1, 1, &h, NULL) == MD_BADARG); /* the struct is longer than its column */
    return 0;
}

static md_rc hash_text(void) {
    int32_t offsets[] = {0, 3, 6};
    const void *buffers[] = {NULL, offsets, "abcdef"};
    struct ArrowArray column = array_over(buffers, 3, 0, 2);
    const char *format = "u";
    uint64_t h[2];
    return hash(&format, &column, 1, 0, 2, h, NULL);
}

static int test_every_allocation_can_fail(void) {
    CHECK_EVERY_ALLOC(hash_text(), (void)0);
    return 0;
}

TEST_MAIN(TEST(test_xxh64_vectors), TEST(test_a_number_hashes_by_its_value_whatever_its_width),
          TEST(test_zeros_and_nans_are_one_value_each), TEST(test_text_hashes_by_its_bytes_whatever_its_layout),
          TEST(test_columns_stand_one_after_the_other), TEST(test_what_cannot_be_hashed_is_refused),
          TEST(test_every_allocation_can_fail))
