#include "arrow/column.h"

#include "base/md_alloc.h"

static md_rc type_of(const char *format, md_type *out) {
    if (strncmp(format, "tsu:", 4) == 0 || strcmp(format, "tDu") == 0) {
        *out = MD_I64;
        return MD_OK;
    }
    if (format[0] == 0 || format[1] != 0 || strchr("lLguzbi", format[0]) == NULL) return MD_BADARG;
    *out = (md_type)format[0];
    return MD_OK;
}

static md_rc check_offsets(const md_column *c, md_error *err) {
    int32_t before = md_load_i32(c->offsets);
    int32_t bad = before < 0;
    for (int64_t i = 1; i <= c->length; i++) {
        int32_t now = md_load_i32(c->offsets + 4 * i);
        bad |= now < before;
        before = now;
    }
    if (bad) return md_fail(err, MD_BADARG, "offsets of a text column decrease");
    if (before > 0 && c->data == NULL) return md_fail(err, MD_BADARG, "a text column without its bytes");
    return MD_OK;
}

/* View rows [start, start + length) of the array, counted beyond its own offset. */
static md_rc view_range(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t start,
                        int64_t length, md_column *out, md_error *err) {
    md_column c = {.length = length};
    if (schema->format == NULL || schema->dictionary != NULL || array->dictionary != NULL ||
        type_of(schema->format, &c.type) != MD_OK)
        return md_fail(err, MD_BADARG, "a column of type '%.40s' is not a native one",
                       schema->dictionary != NULL ? "dictionary" : schema->format != NULL ? schema->format : "");
    bool text = c.type == MD_UTF8 || c.type == MD_BINARY;
    int64_t shift;
    if (array->offset < 0 || start < 0 || length < 0 || __builtin_add_overflow(array->offset, start, &shift) ||
        shift > INT64_MAX / 8 - length - 1)
        return md_fail(err, MD_BADARG, "an array of negative or too great length or offset");
    if (array->length < 0 || start > array->length || array->length - start < length)
        return md_fail(err, MD_BADARG, "a column is shorter than its struct");
    if (array->n_buffers != (text ? 3 : 2) || array->buffers == NULL)
        return md_fail(err, MD_BADARG, "a column with %lld buffers", (long long)array->n_buffers);
    c.shift = shift;
    if (array->null_count != 0) c.validity = array->buffers[0];
    if (length == 0) {
        *out = c;
        return MD_OK;
    }
    const uint8_t *values = array->buffers[1];
    if (values == NULL) return md_fail(err, MD_BADARG, "a column without its values");
    if (text) {
        c.offsets = values + 4 * shift;
        c.data = array->buffers[2];
        md_rc rc = check_offsets(&c, err);
        if (rc != MD_OK) return rc;
        /* Rows that are all empty may come without bytes; their pointer is never read. */
        if (c.data == NULL) c.data = (const uint8_t *)"";
    } else if (c.type == MD_BOOL) {
        c.values = values;
    } else {
        c.values = values + (c.type == MD_I32 ? 4 : 8) * shift;
    }
    *out = c;
    return MD_OK;
}

md_rc md_column_view(const struct ArrowSchema *schema, const struct ArrowArray *array, md_column *out,
                     md_error *err) {
    if (schema->release == NULL || array->release == NULL) return md_fail(err, MD_BADARG, "a released array");
    return view_range(schema, array, 0, array->length, out, err);
}

md_rc md_columns_view(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t n,
                      md_column *out, int64_t *length, md_error *err) {
    if (schema->release == NULL || array->release == NULL) return md_fail(err, MD_BADARG, "a released array");
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0)
        return md_fail(err, MD_BADARG, "rows must be a struct array (a record batch)");
    if (schema->n_children != n || array->n_children != n)
        return md_fail(err, MD_BADARG, "rows have %lld columns, expected %lld", (long long)array->n_children,
                       (long long)n);
    if (array->length < 0 || array->offset < 0)
        return md_fail(err, MD_BADARG, "an array of negative length or offset");
    if (array->n_buffers > 0 && array->null_count != 0 && array->buffers[0] != NULL) {
        const uint8_t *validity = array->buffers[0];
        for (int64_t i = 0; i < array->length; i++)
            if (!md_bit(validity, array->offset + i)) return md_fail(err, MD_BADARG, "a row that is null as a whole");
    }
    for (int64_t i = 0; i < n; i++) {
        md_rc rc = view_range(schema->children[i], array->children[i], array->offset, array->length, &out[i], err);
        if (rc != MD_OK) return rc;
    }
    *length = array->length;
    return MD_OK;
}

int64_t md_column_nulls(const md_column *c) {
    if (c->validity == NULL) return 0;
    int64_t n = 0;
    for (int64_t i = 0; i < c->length; i++) n += !md_bit(c->validity, c->shift + i);
    return n;
}

/* ---- making ---- */

void md_schema_release(struct ArrowSchema *schema) {
    if (schema->release != NULL) schema->release(schema);
}

void md_array_release(struct ArrowArray *array) {
    if (array->release != NULL) array->release(array);
}

/* One block holds the children's pointers, the children, the format and the name. */
static void release_schema(struct ArrowSchema *schema) {
    for (int64_t i = 0; i < schema->n_children; i++) md_schema_release(schema->children[i]);
    schema->release = NULL;
    md_free(schema->private_data);
}

md_rc md_schema_make(struct ArrowSchema *out, const char *format, const char *name, bool nullable,
                     int64_t n_children) {
    memset(out, 0, sizeof *out);
    size_t format_size = strlen(format) + 1, name_size = strlen(name) + 1;
    size_t children = (size_t)n_children, size;
    if (!md_mul_size(children, sizeof(struct ArrowSchema *) + sizeof(struct ArrowSchema), &size) ||
        !md_add_size(size, format_size + name_size, &size))
        return MD_NOMEM;
    uint8_t *block = md_malloc(size);
    if (block == NULL) return MD_NOMEM;
    struct ArrowSchema **pointers = (struct ArrowSchema **)(void *)block;
    struct ArrowSchema *nodes = (struct ArrowSchema *)(void *)(pointers + children);
    for (size_t i = 0; i < children; i++) {
        memset(&nodes[i], 0, sizeof nodes[i]);
        pointers[i] = &nodes[i];
    }
    char *text = (char *)(nodes + children);
    memcpy(text, format, format_size);
    memcpy(text + format_size, name, name_size);
    out->format = text;
    out->name = text + format_size;
    out->flags = nullable ? ARROW_FLAG_NULLABLE : 0;
    out->n_children = n_children;
    out->children = children != 0 ? pointers : NULL;
    out->private_data = block;
    out->release = release_schema;
    return MD_OK;
}

/* One block holds the pointers of buffers and children, and the children. */
static void release_array(struct ArrowArray *array) {
    for (int64_t i = 0; i < array->n_children; i++) md_array_release(array->children[i]);
    for (int64_t i = 0; i < array->n_buffers; i++) md_free((void *)(uintptr_t)array->buffers[i]);
    array->release = NULL;
    md_free(array->private_data);
}

md_rc md_array_make(struct ArrowArray *out, int64_t n_buffers, int64_t n_children) {
    memset(out, 0, sizeof *out);
    size_t buffers = (size_t)n_buffers, children = (size_t)n_children, size, more;
    if (!md_mul_size(children, sizeof(struct ArrowArray *) + sizeof(struct ArrowArray), &size) ||
        !md_mul_size(buffers, sizeof(void *), &more) || !md_add_size(size, more, &size))
        return MD_NOMEM;
    uint8_t *block = md_malloc(size);
    if (block == NULL) return MD_NOMEM;
    const void **slots = (const void **)(void *)block;
    struct ArrowArray **pointers = (struct ArrowArray **)(void *)(slots + buffers);
    struct ArrowArray *nodes = (struct ArrowArray *)(void *)(pointers + children);
    for (size_t i = 0; i < buffers; i++) slots[i] = NULL;
    for (size_t i = 0; i < children; i++) {
        memset(&nodes[i], 0, sizeof nodes[i]);
        pointers[i] = &nodes[i];
    }
    out->n_buffers = n_buffers;
    out->n_children = n_children;
    out->buffers = slots;
    out->children = children != 0 ? pointers : NULL;
    out->private_data = block;
    out->release = release_array;
    return MD_OK;
}

void md_array_give(struct ArrowArray *array, int64_t i, void *block) {
    md_free((void *)(uintptr_t)array->buffers[i]);
    array->buffers[i] = block;
}

md_rc md_array_of(struct ArrowArray *out, int64_t length, int64_t null_count, void *validity, void *values) {
    md_rc rc = md_array_make(out, 2, 0);
    if (rc != MD_OK) return rc;
    out->length = length;
    out->null_count = null_count;
    out->buffers[0] = validity;
    out->buffers[1] = values;
    return MD_OK;
}
