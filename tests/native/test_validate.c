#include <stdlib.h>

#include "arrays.h"
#include "check.h"
#include "base/utf8.h"
#include "arrow/validate.h"

/* Decoded code point by code point, the slow way; what it encodes again must be the same bytes. */
static bool decodes(const uint8_t *data, int64_t n) {
    for (int64_t i = 0; i < n;) {
        int size = data[i] < 0x80 ? 1 : (data[i] & 0xE0) == 0xC0 ? 2 : (data[i] & 0xF0) == 0xE0 ? 3
                   : (data[i] & 0xF8) == 0xF0 ? 4 : 0;
        if (size == 0 || i + size > n) return false;
        uint32_t point = size == 1 ? data[i] : data[i] & (0x7Fu >> size);
        for (int j = 1; j < size; j++) {
            if (data[i + j] >> 6 != 2) return false;
            point = point << 6 | (data[i + j] & 0x3Fu);
        }
        uint32_t least = size == 1 ? 0 : size == 2 ? 0x80 : size == 3 ? 0x800 : 0x10000;
        if (point < least || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) return false;
        i += size;
    }
    return true;
}

static int test_utf8_by_random_bytes(void) {
    static const uint8_t odd[] = {0x00, 'a', 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF,
                                  0xE0, 0xE1, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
    int valid = 0, invalid = 0;
    for (int round = 0; round < 200000; round++) {
        /* Exactly as long as the offsets say, so that a sanitizer sees a byte that is read beyond. */
        int64_t rows = 1 + (int64_t)check_below(3), offset = (int64_t)check_below(2);
        int32_t *offsets = malloc((size_t)(offset + rows + 1) * 4);
        offsets[0] = 0;
        for (int64_t i = 0; i < offset + rows; i++) offsets[i + 1] = offsets[i] + (int32_t)check_below(round % 2 ? 12 : 40);
        size_t size = (size_t)offsets[offset + rows];
        uint8_t *data = malloc(size + (size == 0));
        for (size_t i = 0; i < size; i++)
            data[i] = check_below(8) ? 'x' : odd[check_below(sizeof odd)];
        /* Whole characters too, which random bytes seldom are. */
        static const char *points[] = {"\xC3\xA9", "\xE6\xBC\xA2", "\xED\x9F\xBF", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"};
        for (size_t i = 0; i + 4 < size; i += 1 + check_below(7)) {
            const char *point = points[check_below(5)];
            memcpy(data + i, point, strlen(point));
        }
        uint8_t validity = (uint8_t)check_random();
        const void *buffers[3] = {check_below(2) ? &validity : NULL, offsets, data};
        struct ArrowArray array = array_over(buffers, 3, offset, rows);
        struct ArrowSchema schema = schema_of("u");
        int64_t want = -1, row = -1;
        for (int64_t i = 0; i < rows && want < 0; i++) {
            bool null = buffers[0] != NULL && !(validity >> (offset + i) & 1);
            int32_t start = offsets[offset + i], end = offsets[offset + i + 1];
            if (!null && !decodes(data + start, end - start)) want = i;
        }
        md_validity found = md_validate(&schema, &array, &row);
        CHECK(found == (want < 0 ? MD_VALID : MD_INVALID_UTF8));
        CHECK(want < 0 || row == want);
        schema = schema_of("z");
        CHECK(md_validate(&schema, &array, &row) == MD_VALID);
        *(want < 0 ? &valid : &invalid) += 1;
        free(offsets);
        free(data);
    }
    CHECK(valid > 20000 && invalid > 20000);
    return 0;
}

static int test_long_texts(void) {
    /* 32 bytes are looked at together: what is wrong may lie across two of them, or at the end. */
    static const char *points[] = {"x", "\xC3\xA9", "\xE6\xBC\xA2", "\xED\x9F\xBF", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"};
    int valid = 0, invalid = 0;
    for (int round = 0; round < 200000; round++) {
        uint8_t text[400];
        int64_t n = 0, wanted = (int64_t)check_below(300);
        int kinds = 1 + (int)check_below(6);
        while (n < wanted) {
            const char *point = points[check_below((uint64_t)kinds)];
            memcpy(text + n, point, strlen(point));
            n += (int64_t)strlen(point);
        }
        for (uint64_t left = check_below(3); left > 0 && n > 0; left--) {
            if (check_below(2)) text[check_below((uint64_t)n)] = (uint8_t)check_random();
            else n--;
        }
        uint8_t *exact = malloc((size_t)n + (n == 0)); /* so that a sanitizer sees a byte that is read beyond */
        memcpy(exact, text, (size_t)n);
        bool ascii = true, good = decodes(exact, n);
        for (int64_t i = 0; i < n; i++) ascii &= exact[i] < 0x80;
        md_utf8 want = !good ? MD_UTF8_INVALID : ascii ? MD_UTF8_ASCII : MD_UTF8_VALID;
        CHECK(md_utf8_look(exact, n) == want);
        CHECK(md_utf8_by_character(exact, n) == good);
        *(good ? &valid : &invalid) += 1;
        free(exact);
    }
    CHECK(valid > 20000 && invalid > 20000);
    return 0;
}

/* Every two bytes, and each third and fourth that matters, at every place of a vector. */
static int test_every_beginning(void) {
    static const uint8_t ends[] = {'x', 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC2, 0xE1};
    for (int first = 0x80; first < 0x100; first++)
        for (int second = 0; second < 0x100; second += second < 0x7F ? 0x7F : 1)
            for (size_t third = 0; third < sizeof ends; third++)
                for (size_t fourth = 0; fourth < sizeof ends; fourth++) {
                    uint8_t text[96];
                    memset(text, 'x', sizeof text);
                    size_t at = 28 + (size_t)(first + second + (int)third + (int)fourth) % 8;
                    text[at] = (uint8_t)first, text[at + 1] = (uint8_t)second;
                    text[at + 2] = ends[third], text[at + 3] = ends[fourth];
                    bool good = decodes(text, sizeof text);
                    CHECK((md_utf8_look(text, sizeof text) != MD_UTF8_INVALID) == good);
                    CHECK(md_utf8_by_character(text, sizeof text) == good);
                }
    return 0;
}

static int test_offsets(void) {
    static const char *formats[] = {"u", "z", "U", "Z"};
    for (int round = 0; round < 20000; round++) {
        int kind = (int)check_below(4);
        bool wide = kind >= 2;
        int64_t rows = 1 + (int64_t)check_below(40), shift = (int64_t)check_below(5), want = -1;
        int64_t values[64];
        values[0] = (int64_t)check_below(3);
        for (int64_t i = 0; i < shift + rows; i++) values[i + 1] = values[i] + (int64_t)check_below(3);
        if (check_below(2)) values[shift + (int64_t)check_below((uint64_t)rows + 1)] = (int64_t)check_below(90) - 5;
        if (values[shift] < 0) want = 0;
        for (int64_t i = 0; i < rows && want < 0; i++)
            if (values[shift + i + 1] < values[shift + i]) want = i;
        uint8_t *offsets = malloc((size_t)(shift + rows + 1) * (wide ? 8 : 4));
        for (int64_t i = 0; i <= shift + rows; i++) {
            int32_t narrow = (int32_t)values[i];
            memcpy(offsets + (wide ? 8 : 4) * i, wide ? (void *)&values[i] : (void *)&narrow, wide ? 8 : 4);
        }
        uint8_t data[400];
        memset(data, 'x', sizeof data);
        const void *buffers[3] = {NULL, offsets, data};
        struct ArrowArray array = array_over(buffers, 3, shift, rows);
        struct ArrowSchema schema = schema_of(formats[kind]);
        int64_t row = -1;
        md_validity found = md_validate(&schema, &array, &row);
        CHECK(found == (want < 0 ? MD_VALID : MD_INVALID_OFFSETS));
        CHECK(want < 0 || row == want);
        free(offsets);
    }
    return 0;
}

static int test_missing_buffers(void) {
    int32_t offsets[3] = {0, 0, 4};
    const void *buffers[3] = {NULL, offsets, NULL};
    struct ArrowArray array = array_over(buffers, 3, 0, 1);
    struct ArrowSchema schema = schema_of("u");
    int64_t row;
    CHECK(md_validate(&schema, &array, &row) == MD_VALID);
    array.length = 2;
    CHECK(md_validate(&schema, &array, &row) == MD_INVALID_OFFSETS);
    buffers[1] = NULL;
    CHECK(md_validate(&schema, &array, &row) == MD_INVALID_OFFSETS);
    array.length = 0;
    CHECK(md_validate(&schema, &array, &row) == MD_VALID);
    array.length = 1, array.n_buffers = 2;
    CHECK(md_validate(&schema, &array, &row) == MD_INVALID_OFFSETS);
    return 0;
}

static int test_decimals(void) {
    __int128 ten = 1;
    for (int precision = 1; precision <= 38; precision++) {
        ten *= 10;
        char format[16];
        snprintf(format, sizeof format, precision % 2 ? "d:%d,2" : "d:%d,0,128", precision);
        struct ArrowSchema schema = schema_of(format);
        for (int bad = 0; bad < 6; bad++) {
            __int128 values[4] = {0, ten - 1, 1 - ten, 7};
            __int128 wrong[6] = {ten, -ten, ten - 1, 1 - ten, (__int128)1 << 126, -((__int128)1 << 126) * 2};
            values[2] = wrong[bad];
            uint8_t validity = 0xF;
            const void *buffers[2] = {&validity, values};
            struct ArrowArray array = array_over(buffers, 2, 1, 3);
            int64_t row = -1;
            bool within = bad == 2 || bad == 3 || (bad == 4 && ten > values[2]);
            CHECK(md_validate(&schema, &array, &row) == (within ? MD_VALID : MD_INVALID_DECIMAL));
            CHECK(within || row == 1);
            validity = 0xB;
            CHECK(md_validate(&schema, &array, &row) == MD_VALID);
        }
    }
    return 0;
}

static int test_counts_of_nulls(void) {
    for (int round = 0; round < 20000; round++) {
        uint64_t bits[6];
        for (int i = 0; i < 6; i++) bits[i] = check_random();
        const void *buffers[2] = {bits, bits};
        struct ArrowArray array = array_over(buffers, 2, (int64_t)check_below(20), (int64_t)check_below(300));
        struct ArrowSchema schema = schema_of("b");
        int64_t nulls = 0, row = -1;
        for (int64_t i = 0; i < array.length; i++) {
            int64_t at = array.offset + i;
            nulls += !(bits[at / 64] >> (at % 64) & 1);
        }
        CHECK(md_validate(&schema, &array, &row) == MD_VALID);
        array.null_count = nulls;
        CHECK(md_validate(&schema, &array, &row) == MD_VALID);
        array.null_count = nulls + 1 - 2 * (int64_t)check_below(2);
        CHECK(array.null_count < 0 || md_validate(&schema, &array, &row) == MD_INVALID_NULLS);
        buffers[0] = NULL, array.null_count = 0;
        CHECK(md_validate(&schema, &array, &row) == MD_VALID);
        array.null_count = 1;
        CHECK(md_validate(&schema, &array, &row) == MD_INVALID_NULLS);
    }
    return 0;
}

static int test_structs(void) {
    int64_t values[4] = {0};
    const void *buffers[2] = {NULL, values};
    struct ArrowArray good = array_over(buffers, 2, 1, 3), column = good, *columns[1] = {&column};
    struct ArrowSchema plain = schema_of("l"), field = plain, *fields[1] = {&field};
    struct ArrowArray whole = struct_over(columns, 1, 0, 3);
    struct ArrowSchema schema = struct_schema(fields, 1);
    md_error err;
#define STRUCTS(want, words) \
    do { \
        CHECK(md_structs_check(&schema, &whole, &err) == (want)); \
        CHECK((want) == MD_OK || strstr(err.text, words) != NULL); \
        column = good, field = plain; \
    } while (0)
    STRUCTS(MD_OK, "");
    column.length = -1;
    STRUCTS(MD_BADARG, "length -1");
    column.offset = -1;
    STRUCTS(MD_BADARG, "offset -1");
    column.offset = INT64_MAX;
    STRUCTS(MD_BADARG, "offset 9223372036854775807");
    column.null_count = 4;
    STRUCTS(MD_BADARG, "4 nulls in 3 rows");
    column.null_count = -2;
    STRUCTS(MD_BADARG, "-2 nulls");
    column.buffers = NULL;
    STRUCTS(MD_BADARG, "2 buffers");
    column.n_buffers = 1;
    STRUCTS(MD_BADARG, "no buffer of values");
    buffers[1] = NULL;
    STRUCTS(MD_BADARG, "no buffer of values");
    column.length = 0;
    STRUCTS(MD_OK, "");
    buffers[1] = values;
    column.dictionary = &good;
    STRUCTS(MD_BADARG, "a dictionary");
    field.dictionary = &plain, column.dictionary = &column;
    STRUCTS(MD_BADARG, "a dictionary"); /* for its dictionary is itself: without end, were it not for that */
    field.format = NULL;
    STRUCTS(MD_BADARG, "without a format");
    int32_t offsets[5] = {0, 0, 1, 2, 3};
    const void *texts[3] = {NULL, offsets, values};
    struct ArrowArray text = array_over(texts, 3, 1, 3);
    column = text, field.format = "u";
    STRUCTS(MD_OK, "");
    column = text, field.format = "u", texts[2] = NULL;
    STRUCTS(MD_BADARG, "no buffer of bytes");
    column = text, field.format = "u", column.length = 0, column.offset = 0;
    STRUCTS(MD_OK, "");
    column = text, field.format = "u", column.n_buffers = 2, texts[2] = values;
    STRUCTS(MD_BADARG, "2 buffers");
    int64_t sizes[1] = {8};
    const void *views[4] = {NULL, values, values, sizes};
    struct ArrowArray view = array_over(views, 4, 1, 1);
    column = view, field.format = "vu";
    STRUCTS(MD_OK, "");
    column = view, field.format = "vu", views[2] = NULL;
    STRUCTS(MD_BADARG, "no buffer of bytes");
    column = view, field.format = "vu", views[2] = values, sizes[0] = -1;
    STRUCTS(MD_BADARG, "no buffer of bytes");
    column = view, field.format = "vu", views[3] = NULL;
    STRUCTS(MD_BADARG, "no buffer of bytes");
    column = view, field.format = "vu", column.n_buffers = 2;
    STRUCTS(MD_BADARG, "2 buffers");
    columns[0] = NULL;
    STRUCTS(MD_BADARG, "child 0");
    columns[0] = &column, whole.n_children = 0;
    STRUCTS(MD_BADARG, "0 children, the schema has 1");
    whole.n_children = 1, whole.release = NULL;
    STRUCTS(MD_BADARG, "released");
#undef STRUCTS
    return 0;
}

TEST_MAIN(TEST(test_utf8_by_random_bytes), TEST(test_long_texts), TEST(test_every_beginning), TEST(test_offsets),
          TEST(test_missing_buffers), TEST(test_decimals), TEST(test_counts_of_nulls), TEST(test_structs))
