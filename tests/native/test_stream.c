#include <errno.h>
#include <string.h>

#include "arrays.h"
#include "check.h"
#include "arrow/stream.h"

enum { BATCHES = 20, ROWS = 4 };

/* A stream of batches of one column of text; some call of it fails, or some batch is harmed. */
typedef struct source {
    struct ArrowSchema field, *fields[1];
    struct ArrowArray columns[BATCHES], *children[BATCHES][1];
    const void *buffers[3];
    int64_t next, fails_at, harmed_at;
    void (*harm)(struct ArrowArray *batch, struct ArrowArray *column);
    void (*harm_schema)(struct ArrowSchema *schema);
    int code, released, schemas_released;
} source;

static source *counted;

static void released_array(struct ArrowArray *array) {
    counted->released++;
    array->release = NULL;
}

static void released_schema(struct ArrowSchema *schema) {
    counted->schemas_released++;
    schema->release = NULL;
}

static int source_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
    source *s = stream->private_data;
    if (s->fails_at < 0) return s->code;
    *out = struct_schema(s->fields, 1);
    out->release = released_schema;
    if (s->harm_schema != NULL) s->harm_schema(out);
    return 0;
}

static int source_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
    source *s = stream->private_data;
    if (s->next == s->fails_at) return s->code;
    out->release = NULL;
    if (s->next == BATCHES) return 0;
    *out = struct_over(s->children[s->next], 1, 0, ROWS);
    out->release = released_array;
    if (s->next == s->harmed_at) s->harm(out, s->children[s->next][0]);
    s->next++;
    return 0;
}

static const char *source_error(struct ArrowArrayStream *stream) {
    (void)stream;
    return "the disk is %s gone";
}

static void source_release(struct ArrowArrayStream *stream) { stream->release = NULL; }

static struct ArrowArrayStream stream_of(source *s) {
    static const int32_t offsets[ROWS + 1] = {0, 1, 2, 3, 4};
    *s = (source){.buffers = {NULL, offsets, "abcd"}, .fails_at = BATCHES + 1, .harmed_at = BATCHES + 1};
    s->field = schema_of("u");
    s->field.name = "k";
    s->fields[0] = &s->field;
    for (int i = 0; i < BATCHES; i++) {
        s->columns[i] = array_over(s->buffers, 3, 0, ROWS);
        s->children[i][0] = &s->columns[i];
    }
    counted = s;
    return (struct ArrowArrayStream){source_schema, source_next, source_error, source_release, s};
}

static int test_the_arrays_come_in_order(void) {
    source s;
    md_error err;
    int code;
    for (int taken = 0; taken <= BATCHES; taken += 5) {
        struct ArrowArrayStream from = stream_of(&s), out;
        struct ArrowSchema schema;
        CHECK(md_stream_read(&from, true, &out, &code, &err) == MD_OK);
        CHECK(s.next == BATCHES && s.released == 0 && from.release != NULL);
        CHECK(out.get_schema(&out, &schema) == 0 && strcmp(schema.children[0]->name, "k") == 0);
        CHECK(out.get_schema(&out, &schema) != 0 && out.get_last_error(&out) != NULL);
        for (int i = 0; i < taken; i++) {
            struct ArrowArray array;
            CHECK(out.get_next(&out, &array) == 0 && array.children[0] == &s.columns[i]);
            array.release(&array);
        }
        if (taken == BATCHES) {
            struct ArrowArray array;
            CHECK(out.get_next(&out, &array) == 0 && array.release == NULL);
        }
        out.release(&out);
        CHECK(out.release == NULL && s.released == BATCHES);
    }
    return 0;
}

static int test_a_stream_that_fails(void) {
    for (int64_t at = -1; at <= BATCHES; at++) {
        source s;
        md_error err;
        int code;
        struct ArrowArrayStream from = stream_of(&s), out;
        s.fails_at = at;
        s.code = at % 2 ? EIO : ENOMEM;
        CHECK(md_stream_read(&from, true, &out, &code, &err) == (at % 2 ? MD_BADARG : MD_NOMEM));
        CHECK(code == s.code);
        if (at % 2) CHECK(strcmp(err.text, "the disk is %s gone") == 0);
        CHECK(s.released == (at < 0 ? 0 : at) && s.schemas_released == (at >= 0));
    }
    return 0;
}

static void harm_length(struct ArrowArray *batch, struct ArrowArray *column) {
    (void)batch;
    column->length = INT64_C(1) << 40;
}
static void harm_offset(struct ArrowArray *batch, struct ArrowArray *column) {
    (void)batch;
    column->offset = -1;
}
static void harm_buffers(struct ArrowArray *batch, struct ArrowArray *column) {
    (void)batch;
    column->buffers = NULL;
}
static void harm_children(struct ArrowArray *batch, struct ArrowArray *column) {
    (void)batch;
    column->n_children = 3;
}
static void harm_columns(struct ArrowArray *batch, struct ArrowArray *column) {
    (void)column;
    batch->n_children = 2;
}
static void harm_child(struct ArrowArray *batch, struct ArrowArray *column) {
    (void)column;
    batch->children[0] = NULL;
}

static int test_what_can_not_be_is_told_and_nothing_of_it_followed(void) {
    static const struct {
        void (*harm)(struct ArrowArray *, struct ArrowArray *);
        const char *words;
        int walks; /* so it is released too */
    } cases[] = {
        {harm_length, "'k': length 1099511627776 in a batch of 4 rows", 1},
        {harm_offset, "'k': length 4, offset -1", 1},
        {harm_buffers, "'k': 3 buffers", 1},
        {harm_children, "'k': 3 children, the schema has 0", 0},
        {harm_columns, "'': 2 children, the schema has 1", 0},
        {harm_child, "'': child 0 is missing", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int at = 0; at < BATCHES; at += 9) {
            source s;
            md_error err;
            int code;
            struct ArrowArrayStream from = stream_of(&s), out;
            s.harmed_at = at;
            s.harm = cases[i].harm;
            CHECK(md_stream_read(&from, true, &out, &code, &err) == MD_BADDATA);
            CHECK(strcmp(err.text, cases[i].words) == 0);
            CHECK(s.released == at + cases[i].walks && s.schemas_released == 1);
        }
    return 0;
}

static void harm_format(struct ArrowSchema *schema) { schema->children[0]->format = NULL; }
static void harm_fields(struct ArrowSchema *schema) { schema->children = NULL; }
static void harm_field(struct ArrowSchema *schema) { schema->children[0] = NULL; }
static void harm_count(struct ArrowSchema *schema) { schema->n_children = -1; }
static void harm_depth(struct ArrowSchema *schema) { schema->children[0] = schema; }

static int test_a_schema_that_can_not_be(void) {
    void (*harms[])(struct ArrowSchema *) = {harm_format, harm_fields, harm_field, harm_count, harm_depth};
    for (size_t i = 0; i < sizeof harms / sizeof harms[0]; i++) {
        source s;
        md_error err;
        int code;
        struct ArrowArrayStream from = stream_of(&s), out;
        s.harm_schema = harms[i];
        CHECK(md_stream_read(&from, true, &out, &code, &err) == MD_BADDATA);
        CHECK(s.next == 0 && s.schemas_released == 1);
    }
    return 0;
}

static int test_a_released_stream(void) {
    source s;
    md_error err;
    int code;
    struct ArrowArrayStream from = stream_of(&s), out;
    from.release(&from);
    CHECK(md_stream_read(&from, true, &out, &code, &err) == MD_BADDATA);
    return 0;
}

static md_rc read_and_end(bool *whole) {
    source s;
    md_error err;
    int code;
    struct ArrowArrayStream from = stream_of(&s), out;
    md_rc rc = md_stream_read(&from, true, &out, &code, &err);
    if (rc == MD_OK) out.release(&out);
    *whole &= s.released == s.next;
    return rc;
}

static int test_every_allocation_fails(void) {
    bool whole = true;
    CHECK_EVERY_ALLOC(read_and_end(&whole), (void)0);
    CHECK(whole);
    return 0;
}

TEST_MAIN(TEST(test_the_arrays_come_in_order), TEST(test_a_stream_that_fails),
          TEST(test_what_can_not_be_is_told_and_nothing_of_it_followed), TEST(test_a_schema_that_can_not_be),
          TEST(test_a_released_stream), TEST(test_every_allocation_fails))
