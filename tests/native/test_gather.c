#include "arrays.h"
#include "check.h"
#include "arrow/column.h"
#include "arrow/gather.h"

enum { ROWS = 900, SLACK = 200 };

static const struct {
    const char *format;
    int64_t width; /* 0: bits; -1: text */
} KINDS[] = {{"b", 0},  {"c", 1},  {"S", 2},    {"i", 4},   {"f", 4},       {"tdD", 4}, {"l", 8},
             {"g", 8},  {"tsu:UTC", 8}, {"tDu", 8}, {"d:38,10", 16}, {"u", -1},  {"z", -1}};
enum { COLUMNS = sizeof KINDS / sizeof KINDS[0] };

/* A struct of all kinds over random bytes at odd addresses, and a mask. */
typedef struct rows {
    uint8_t values[COLUMNS][(ROWS + SLACK) * 16 + 16], validity[COLUMNS][(ROWS + SLACK) / 8 + 8];
    int32_t offsets[COLUMNS][ROWS + SLACK + 1];
    uint8_t mask_bits[(ROWS + SLACK) / 8 + 8], mask_valid[(ROWS + SLACK) / 8 + 8];
    const void *buffers[COLUMNS][3], *mask_buffers[2];
    struct ArrowArray columns[COLUMNS], *children[COLUMNS], array, mask;
    struct ArrowSchema fields[COLUMNS], *field_pointers[COLUMNS], schema, mask_schema;
} rows;

static void random_bits(uint8_t *bits, size_t bytes, uint64_t kind) {
    for (size_t i = 0; i < bytes; i++) {
        uint64_t byte = check_random();
        if (kind == 1) byte = check_below(12) == 0 ? byte & check_random() & check_random() : 0;
        if (kind == 2) byte = 0xff;
        if (kind == 3) byte = i / 16 % 2 == 0 ? 0xff : 0;
        if (kind == 4) byte = check_below(20) == 0 ? byte : 0xff;
        bits[i] = (uint8_t)byte;
    }
}

static void make(rows *r, int64_t n) {
    for (size_t k = 0; k < COLUMNS; k++) {
        bool text = KINDS[k].width < 0, nulls = check_below(2) == 0;
        size_t odd = check_below(8);
        for (size_t i = 0; i < sizeof r->values[k]; i++) r->values[k][i] = (uint8_t)check_random();
        random_bits(r->validity[k], sizeof r->validity[k], check_below(5));
        r->offsets[k][0] = (int32_t)check_below(5);
        for (int i = 0; i < ROWS + SLACK; i++) r->offsets[k][i + 1] = r->offsets[k][i] + (int32_t)check_below(9);
        r->buffers[k][0] = nulls ? r->validity[k] + check_below(2) : NULL;
        r->buffers[k][1] = text ? (const void *)r->offsets[k] : r->values[k] + odd;
        r->buffers[k][2] = r->values[k] + odd;
        r->columns[k] = array_over(r->buffers[k], text ? 3 : 2, (int64_t)check_below(70), n + 70);
        r->children[k] = &r->columns[k];
        r->fields[k] = schema_of(KINDS[k].format);
        r->fields[k].flags = k % 2 == 0 ? ARROW_FLAG_NULLABLE : 0;
        r->field_pointers[k] = &r->fields[k];
    }
    r->array = struct_over(r->children, COLUMNS, (int64_t)check_below(70), n);
    r->schema = struct_schema(r->field_pointers, COLUMNS);
    random_bits(r->mask_bits, sizeof r->mask_bits, check_below(5));
    random_bits(r->mask_valid, sizeof r->mask_valid, check_below(5));
    r->mask_buffers[0] = check_below(2) == 0 ? r->mask_valid : NULL;
    r->mask_buffers[1] = r->mask_bits;
    r->mask = array_over(r->mask_buffers, 2, (int64_t)check_below(70), n);
    r->mask_schema = schema_of("b");
}

static md_rc keep(const rows *r, struct ArrowSchema *schema, struct ArrowArray *out, md_error *err) {
    return md_filter_rows(&r->schema, &r->array, &r->mask_schema, &r->mask, schema, out, err);
}

static bool stays(const rows *r, int64_t i) {
    int64_t at = r->mask.offset + i;
    return md_bit(r->mask_bits, at) && (r->mask_buffers[0] == NULL || md_bit(r->mask_valid, at));
}

/* Whether row `to` of the result is row `from` of the column. */
static int check_value(const rows *r, size_t k, int64_t from, const struct ArrowArray *out, int64_t to) {
    int64_t at = r->columns[k].offset + r->array.offset + from;
    const void *const *in = r->buffers[k];
    CHECK((in[0] == NULL || md_bit(in[0], at)) == (out->buffers[0] == NULL || md_bit(out->buffers[0], to)));
    const uint8_t *values = in[1], *made = out->buffers[1];
    if (KINDS[k].width == 0) {
        CHECK(md_bit(values, at) == md_bit(made, to));
    } else if (KINDS[k].width > 0) {
        size_t width = (size_t)KINDS[k].width;
        CHECK(memcmp(values + width * (size_t)at, made + width * (size_t)to, width) == 0);
    } else {
        int32_t start = md_load_i32(made + 4 * to), size = md_load_i32(made + 4 * to + 4) - start;
        CHECK(size == r->offsets[k][at + 1] - r->offsets[k][at]);
        CHECK(memcmp((const uint8_t *)in[2] + r->offsets[k][at], (const uint8_t *)out->buffers[2] + start,
                     (size_t)size) == 0);
    }
    return 0;
}

static int test_random_rows_equal_the_plain_rule(void) {
    static rows r;
    int64_t total = 0;
    for (int round = 0; round < 120; round++) {
        int64_t n = (int64_t)check_below(3) == 0 ? (int64_t)check_below(130) : (int64_t)check_below(ROWS - 70);
        make(&r, n);
        struct ArrowSchema schema;
        struct ArrowArray out;
        CHECK(keep(&r, &schema, &out, NULL) == MD_OK);
        CHECK(out.n_children == COLUMNS && strcmp(schema.format, "+s") == 0);
        for (size_t k = 0; k < COLUMNS; k++) {
            const struct ArrowArray *column = out.children[k];
            int64_t to = 0, nulls = 0;
            for (int64_t i = 0; i < n; i++) {
                if (!stays(&r, i)) continue;
                CHECK_OK(check_value(&r, k, i, column, to));
                nulls += column->buffers[0] != NULL && !md_bit(column->buffers[0], to);
                to++;
            }
            CHECK(column->length == to && out.length == to && column->offset == 0);
            CHECK(column->null_count == nulls && (nulls != 0) == (column->buffers[0] != NULL));
            CHECK(strcmp(schema.children[k]->format, KINDS[k].format) == 0);
            CHECK(schema.children[k]->flags == r.fields[k].flags);
            total += to;
        }
        md_schema_release(&schema);
        md_array_release(&out);
    }
    CHECK(total > 10000);
    return 0;
}

/* The loops of a machine with AVX2 and without it, over every width and density. */
static int test_both_forms_copy_the_same(void) {
    enum { N = 64 * 9 + 17, WORDS = N / 64 + 1 };
    static uint8_t from[N * 16 + 8], one[N * 16 + MD_GATHER_PAD + 8], other[N * 16 + MD_GATHER_PAD + 8];
    uint64_t words[WORDS];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (uint8_t)check_random();
    for (int round = 0; round < 400; round++) {
        int64_t width = 1 << check_below(5), n = 1 + (int64_t)check_below(N);
        uint8_t *start = from + check_below(8);
        random_bits((uint8_t *)words, sizeof words, check_below(5));
        for (int64_t i = n; i < WORDS * 64; i++) words[i / 64] &= ~((uint64_t)1 << (i % 64));
        size_t first = (size_t)(md_gather_fixed(one, start, width, words, n, true) - one);
        size_t second = (size_t)(md_gather_fixed(other, start, width, words, n, false) - other);
        CHECK(first == second && memcmp(one, other, first) == 0);
        size_t to = 0;
        for (int64_t i = 0; i < n; i++) {
            if (!(words[i / 64] >> (i % 64) & 1)) continue;
            CHECK(memcmp(one + to, start + width * i, (size_t)width) == 0);
            to += (size_t)width;
        }
        CHECK(to == first);
    }
    return 0;
}

/* Several columns of 8 bytes at once, in both forms; up to more than are moved together. */
static int test_columns_together_equal_one_by_one(void) {
    enum { N = 64 * 20, K = 9 };
    static uint8_t from[K][N * 8], to[K][N * 8 + MD_GATHER_PAD], one[N * 8 + MD_GATHER_PAD];
    uint64_t words[N / 64];
    for (int times = 0; times < 40; times++) {
        int64_t n = (int64_t)check_below(N + 1), kept = 0;
        int32_t count = 1 + (int32_t)check_below(K);
        uint8_t *into[K];
        const uint8_t *of[K];
        random_bits((uint8_t *)words, sizeof words, (uint64_t)times % 5);
        for (int64_t i = 0; i < N; i++)
            if (i >= n) words[i / 64] &= ~(UINT64_C(1) << i % 64);
        for (int64_t w = 0; w < N / 64; w++) kept += __builtin_popcountll(words[w]);
        for (int32_t c = 0; c < K; c++) {
            for (size_t i = 0; i < sizeof from[c]; i++) from[c][i] = (uint8_t)check_random();
            into[c] = to[c];
            of[c] = from[c];
        }
        CHECK(md_gather_columns(into, of, count, words, n, times % 2 == 0) == kept);
        for (int32_t c = 0; c < count; c++) {
            md_gather_fixed(one, from[c], 8, words, n, false);
            CHECK(memcmp(to[c], one, 8 * (size_t)kept) == 0);
        }
    }
    return 0;
}

static int test_a_column_may_outlive_its_struct(void) {
    static rows r;
    struct ArrowSchema schema;
    struct ArrowArray out;
    make(&r, 500);
    CHECK(keep(&r, &schema, &out, NULL) == MD_OK);
    struct ArrowArray moved = *out.children[6];
    out.children[6]->release = NULL;
    md_array_release(&out);
    md_schema_release(&schema);
    int64_t to = 0;
    for (int64_t i = 0; i < 500; i++)
        if (stays(&r, i)) CHECK_OK(check_value(&r, 6, i, &moved, to++));
    md_array_release(&moved);
    CHECK(moved.release == NULL);
    return 0;
}

static int test_bad_arguments_change_nothing(void) {
    static rows r;
    struct ArrowSchema schema = {.n_children = -7};
    struct ArrowArray out = {.length = -7};
    md_error err;
    const char *refused[] = {"w:16", "d:5,2,256", "+l", "tdx", "", " "};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        make(&r, 100);
        r.fields[3].format = refused[i];
        CHECK(keep(&r, &schema, &out, &err) == MD_BADARG);
    }
    make(&r, 100);
    r.mask.length = 99;
    CHECK(keep(&r, &schema, &out, &err) == MD_BADARG && strstr(err.text, "99") != NULL);
    make(&r, 100);
    r.mask_schema.format = "c";
    CHECK(keep(&r, &schema, &out, &err) == MD_BADARG);
    make(&r, 100);
    r.columns[2].length = 99;
    CHECK(keep(&r, &schema, &out, &err) == MD_BADARG);
    make(&r, 100);
    r.array.offset = INT64_MAX;
    CHECK(keep(&r, &schema, &out, &err) == MD_BADARG);
    make(&r, 100);
    r.offsets[11][r.columns[11].offset + r.array.offset + 50] = 0;
    CHECK(keep(&r, &schema, &out, &err) == MD_BADARG && strstr(err.text, "offsets") != NULL);
    make(&r, 100);
    r.buffers[11][2] = NULL;
    CHECK(keep(&r, &schema, &out, &err) == MD_BADARG);
    make(&r, 100);
    r.schema.format = "l";
    CHECK(keep(&r, &schema, &out, &err) == MD_BADARG);
    CHECK(schema.n_children == -7 && out.length == -7);
    return 0;
}

static int test_every_allocation_can_fail(void) {
    static rows r;
    make(&r, 300);
    struct ArrowSchema schema = {0};
    struct ArrowArray out = {0};
    CHECK_EVERY_ALLOC(keep(&r, &schema, &out, NULL), (md_schema_release(&schema), md_array_release(&out)));
    return 0;
}

TEST_MAIN(TEST(test_random_rows_equal_the_plain_rule), TEST(test_both_forms_copy_the_same),
          TEST(test_columns_together_equal_one_by_one),
          TEST(test_a_column_may_outlive_its_struct), TEST(test_bad_arguments_change_nothing),
          TEST(test_every_allocation_can_fail))
