#include <math.h>

#include "arrays.h"
#include "check.h"
#include "program/program.h"

enum { ROWS = 2300, ODD = 3 };

/* Columns a, b (int64), x (float64), p (bool), i (int32), all with nulls, at odd addresses and offsets. */
typedef struct rows {
    uint8_t values[5][(ROWS + ODD) * 8 + 16], validity[5][ROWS / 8 + 16];
    const void *buffers[5][2];
    struct ArrowArray columns[5], *children[5], array;
    struct ArrowSchema fields[5], *field_pointers[5], schema;
} rows;

static const char *const FORMATS[] = {"l", "l", "g", "b", "i"};
static const md_type TYPES[] = {MD_I64, MD_I64, MD_F64, MD_BOOL, MD_I32};

static void make(rows *r, int64_t n, bool nulls) {
    size_t odd = check_below(8);
    for (int k = 0; k < 5; k++) {
        for (size_t i = 0; i < sizeof r->validity[k]; i++) r->validity[k][i] = (uint8_t)check_random();
        for (int64_t i = 0; i < n + ODD; i++) {
            int64_t whole = (int64_t)check_below(9) - 4;
            double real = check_below(10) == 0 ? NAN : (double)whole / 2;
            int32_t small = (int32_t)whole;
            uint8_t *to = r->values[k] + odd;
            if (k == 2) memcpy(to + 8 * i, &real, 8);
            else if (k == 4) memcpy(to + 4 * i, &small, 4);
            else if (k != 3) memcpy(to + 8 * i, &whole, 8);
        }
        if (k == 3)
            for (size_t i = 0; i < sizeof r->values[k]; i++) r->values[k][i] = (uint8_t)check_random();
        r->buffers[k][0] = nulls ? r->validity[k] : NULL;
        r->buffers[k][1] = r->values[k] + odd;
        r->columns[k] = array_over(r->buffers[k], 2, ODD, n);
        r->children[k] = &r->columns[k];
        r->fields[k] = schema_of(FORMATS[k]);
        r->field_pointers[k] = &r->fields[k];
    }
    r->array = struct_over(r->children, 5, 0, n);
    r->schema = struct_schema(r->field_pointers, 5);
}

/* filter p or (x > 0.5); then a + b, x * float(i), not p, a. */
static const md_step STEPS[] = {
    {MD_P_COLUMN, 0, 0, 0, 0}, {MD_P_COLUMN, 1, 1, 0, 0}, {MD_P_COLUMN, 2, 2, 0, 0}, {MD_P_COLUMN, 3, 3, 0, 0},
    {MD_P_COLUMN, 4, 4, 0, 0}, {MD_P_CONST, 5, 0, 0, 0},  {MD_P_GT, 6, 2, 5, 0},     {MD_P_OR, 7, 3, 6, 0},
    {MD_P_FILTER, 0, 7, 0, 0}, {MD_P_ADD, 8, 0, 1, 0},    {MD_P_FLOAT, 9, 4, 0, 0},  {MD_P_MUL, 10, 2, 9, 0},
    {MD_P_NOT, 11, 3, 0, 0},
};
static const md_output OUTPUTS[] = {{8, "l", "sum"}, {10, "g", "product"}, {11, "b", "not"}, {0, "tsu:UTC", "a"}};

static md_program_config config_of(void) {
    static const md_register kind = MD_R_F64;
    static int64_t half;
    double value = 0.5;
    memcpy(&half, &value, 8);
    return (md_program_config){.steps = STEPS, .n_steps = sizeof STEPS / sizeof STEPS[0], .columns = TYPES,
                               .n_columns = 5, .constants = &half, .constant_kinds = &kind, .n_constants = 1,
                               .outputs = OUTPUTS, .n_outputs = 4};
}

static bool valid(const rows *r, int k, int64_t i) {
    return r->buffers[k][0] == NULL || md_bit(r->validity[k], ODD + i);
}

static int check_run(const rows *r, int64_t n, bool baseline) {
    md_program_config config = config_of();
    md_program *p;
    CHECK(md_program_new(&config, &p, NULL) == MD_OK);
    if (baseline) md_program_baseline(p);
    struct ArrowSchema schema;
    struct ArrowArray out;
    int64_t kept[1], at = 0;
    CHECK(md_program_filters(p) == 1);
    CHECK(md_program_run(p, &r->schema, &r->array, &schema, &out, kept, NULL) == MD_OK);
    struct ArrowArray **c = out.children;
    int64_t nulls = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint8_t *const *v = (const uint8_t *const[]){r->buffers[0][1], r->buffers[1][1], r->buffers[2][1],
                                                           r->buffers[3][1], r->buffers[4][1]};
        int64_t a = md_load_i64(v[0] + 8 * (ODD + i)), b = md_load_i64(v[1] + 8 * (ODD + i));
        double x = md_load_f64(v[2] + 8 * (ODD + i));
        bool q = md_bit(v[3], ODD + i);
        int32_t s = md_load_i32(v[4] + 4 * (ODD + i));
        bool keep = (valid(r, 3, i) && q) || (valid(r, 2, i) && (x > 0.5 || isnan(x)));
        if (!keep) continue;
        bool sum = valid(r, 0, i) && valid(r, 1, i), product = valid(r, 2, i) && valid(r, 4, i);
        nulls += !sum;
        CHECK((c[0]->buffers[0] == NULL || md_bit(c[0]->buffers[0], at)) == sum);
        if (sum) CHECK(md_load_i64((const uint8_t *)c[0]->buffers[1] + 8 * at) == a + b);
        CHECK((c[1]->buffers[0] == NULL || md_bit(c[1]->buffers[0], at)) == product);
        double got = md_load_f64((const uint8_t *)c[1]->buffers[1] + 8 * at);
        if (product) CHECK(got == x * s || (isnan(got) && isnan(x)));
        CHECK((c[2]->buffers[0] == NULL || md_bit(c[2]->buffers[0], at)) == valid(r, 3, i));
        if (valid(r, 3, i)) CHECK(md_bit(c[2]->buffers[1], at) == !q);
        CHECK((c[3]->buffers[0] == NULL || md_bit(c[3]->buffers[0], at)) == valid(r, 0, i));
        at++;
    }
    CHECK(out.length == at && kept[0] == at && c[0]->length == at && c[0]->null_count == nulls);
    CHECK(strcmp(schema.children[3]->format, "tsu:UTC") == 0 && strcmp(schema.children[1]->name, "product") == 0);
    schema.release(&schema);
    out.release(&out);
    md_program_free(p);
    return 0;
}

static int test_random_rows_equal_the_plain_rule(void) {
    static rows r;
    static const int64_t lengths[] = {0, 1, 63, 64, 65, 511, 512, 513, 1023, 1024, 1025, 2048, ROWS};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int times = 0; times < 8; times++) {
            make(&r, lengths[i], times % 2 == 0);
            CHECK_OK(check_run(&r, lengths[i], times % 4 < 2));
        }
    }
    return 0;
}

/* One row of the last chunk overflows: nothing is made; under a null it doesn't count. */
static int test_a_failed_row_gives_up(void) {
    static rows r;
    md_program_config config = config_of();
    md_program *p;
    CHECK(md_program_new(&config, &p, NULL) == MD_OK);
    make(&r, ROWS, true);
    int64_t large = INT64_MAX, one = 1;
    struct ArrowSchema schema = {.n_children = -7};
    struct ArrowArray out = {.length = -7};
    int64_t kept[1];
    int64_t at = ODD + ROWS - 1;
    memcpy((uint8_t *)(uintptr_t)r.buffers[0][1] + 8 * at, &large, 8);
    memcpy((uint8_t *)(uintptr_t)r.buffers[1][1] + 8 * at, &one, 8);
    md_bit_set((uint8_t *)(uintptr_t)r.buffers[3][1], at);
    md_bit_set(r.validity[3], at);
    md_bit_set(r.validity[0], at);
    md_bit_set(r.validity[1], at);
    CHECK(md_program_run(p, &r.schema, &r.array, &schema, &out, kept, NULL) == MD_EMPTY);
    CHECK(schema.n_children == -7 && out.length == -7);
    md_bit_clear(r.validity[1], at);
    CHECK(md_program_run(p, &r.schema, &r.array, &schema, &out, kept, NULL) == MD_OK);
    schema.release(&schema);
    out.release(&out);
    md_program_free(p);
    return 0;
}

static md_rc whole(const rows *r) {
    md_program_config config = config_of();
    md_program *p;
    md_rc rc = md_program_new(&config, &p, NULL);
    if (rc != MD_OK) return rc;
    struct ArrowSchema schema;
    struct ArrowArray out;
    int64_t kept[1];
    rc = md_program_run(p, &r->schema, &r->array, &schema, &out, kept, NULL);
    if (rc == MD_OK) {
        schema.release(&schema);
        out.release(&out);
    }
    md_program_free(p);
    return rc;
}

static int test_every_allocation_can_fail(void) {
    static rows r;
    make(&r, 700, true);
    CHECK_EVERY_ALLOC(whole(&r), (void)0);
    return 0;
}

static int test_few_rows_left_take_little_room(void) {
    static rows r;
    make(&r, ROWS, false);
    static const md_step steps[] = {
        {MD_P_COLUMN, 0, 0, 0, 0}, {MD_P_CONST, 1, 0, 0, 0}, {MD_P_EQ, 2, 0, 1, 0}, {MD_P_FILTER, 0, 2, 0, 0}};
    static const md_output outputs[] = {{0, "l", "a"}, {2, "b", "e"}};
    static const md_register kind = MD_R_I64;
    int64_t four = 4;
    md_program_config config = {.steps = steps, .n_steps = 4, .columns = TYPES, .n_columns = 5, .constants = &four,
                                .constant_kinds = &kind, .n_constants = 1, .outputs = outputs, .n_outputs = 2};
    md_program *p;
    CHECK(md_program_new(&config, &p, NULL) == MD_OK);
    struct ArrowSchema schema;
    struct ArrowArray out;
    int64_t kept[1];
    CHECK(md_program_run(p, &r.schema, &r.array, &schema, &out, kept, NULL) == MD_OK);
    CHECK(out.length > 0 && out.length < ROWS / 4 && out.children[0]->length == out.length);
    for (int64_t i = 0; i < out.length; i++) {
        CHECK(md_load_i64((const uint8_t *)out.children[0]->buffers[1] + 8 * i) == 4);
        CHECK(md_bit(out.children[1]->buffers[1], i));
    }
    schema.release(&schema);
    out.release(&out);
    md_program_free(p);
    return 0;
}

enum { PROGRAMS = 100, BLOCKS = 8 };

/* a = constant, which reads one word of it again and again; a + constant, which reads it row by row. */
static md_program *with_constant(const int64_t *constant) {
    static const md_step steps[] = {
        {MD_P_COLUMN, 0, 0, 0, 0}, {MD_P_CONST, 1, 0, 0, 0}, {MD_P_EQ, 2, 0, 1, 0}, {MD_P_CONST, 3, 0, 0, 0},
        {MD_P_ADD, 4, 0, 3, 0}};
    static const md_output outputs[] = {{2, "b", "equal"}, {4, "l", "sum"}};
    static const md_register kind = MD_R_I64;
    md_program_config config = {.steps = steps, .n_steps = 5, .columns = TYPES, .n_columns = 5, .constants = constant,
                                .constant_kinds = &kind, .n_constants = 1, .outputs = outputs, .n_outputs = 2};
    md_program *p;
    return md_program_new(&config, &p, NULL) == MD_OK ? p : NULL;
}

/* Programs that run one after the other share what their registers need, and read their own constants. */
static int test_programs_share_their_registers(void) {
    static rows r;
    static md_program *programs[PROGRAMS];
    make(&r, ROWS, false);
    for (int64_t c = 0; c < PROGRAMS; c++) {
        int64_t constant = c % 9 - 4;
        programs[c] = with_constant(&constant);
        CHECK(programs[c] != NULL && md_program_bytes(programs[c]) < 2000);
    }
    long idle = md_alloc_live;
    for (int64_t c = 0; c < PROGRAMS; c++) {
        struct ArrowSchema schema;
        struct ArrowArray out;
        int64_t kept[1], length = c % 2 == 0 ? ROWS : 50;
        r.array.length = length;
        CHECK(md_program_run(programs[c], &r.schema, &r.array, &schema, &out, kept, NULL) == MD_OK);
        for (int64_t i = 0; i < length; i++) {
            int64_t a = md_load_i64((const uint8_t *)r.buffers[0][1] + 8 * (ODD + i));
            CHECK(md_bit(out.children[0]->buffers[1], i) == (a == c % 9 - 4));
            CHECK(md_load_i64((const uint8_t *)out.children[1]->buffers[1] + 8 * i) == a + c % 9 - 4);
        }
        schema.release(&schema);
        out.release(&out);
        CHECK(md_alloc_live <= idle + BLOCKS);
    }
    for (int64_t c = 0; c < PROGRAMS; c++) md_program_free(programs[c]);
    CHECK(md_alloc_live == 0);
    return 0;
}

/* A program that ran over few rows, and runs over more in the same registers, has its constants for all of them. */
static int test_a_longer_run_has_its_constants_too(void) {
    static rows r;
    make(&r, ROWS, false);
    int64_t constant = 7;
    md_program *p = with_constant(&constant);
    CHECK(p != NULL);
    static const int64_t lengths[] = {3, 70, 3, ROWS};
    for (int run = 0; run < 4; run++) {
        struct ArrowSchema schema;
        struct ArrowArray out;
        int64_t kept[1];
        r.array.length = lengths[run];
        CHECK(md_program_run(p, &r.schema, &r.array, &schema, &out, kept, NULL) == MD_OK);
        for (int64_t i = 0; i < lengths[run]; i++) {
            int64_t a = md_load_i64((const uint8_t *)r.buffers[0][1] + 8 * (ODD + i));
            CHECK(md_load_i64((const uint8_t *)out.children[1]->buffers[1] + 8 * i) == a + 7);
        }
        schema.release(&schema);
        out.release(&out);
    }
    md_program_free(p);
    CHECK(md_alloc_live == 0);
    return 0;
}

TEST_MAIN(TEST(test_programs_share_their_registers), TEST(test_a_longer_run_has_its_constants_too),
          TEST(test_random_rows_equal_the_plain_rule),
          TEST(test_a_failed_row_gives_up), TEST(test_every_allocation_can_fail), TEST(test_few_rows_left_take_little_room))
