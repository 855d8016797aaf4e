#include "arrow/rows.h"

#include "base/md_alloc.h"

static bool is_text(md_type type) { return type == MD_UTF8 || type == MD_BINARY; }

md_rc md_rows_new(int32_t n_columns, md_rows **out) {
    md_rows *rows = md_calloc(1, sizeof *rows);
    if (rows == NULL) return MD_NOMEM;
    rows->columns = md_calloc((size_t)n_columns, sizeof *rows->columns);
    if (rows->columns == NULL) {
        md_free(rows);
        return MD_NOMEM;
    }
    rows->n_columns = n_columns;
    *out = rows;
    return MD_OK;
}

void md_rows_free(md_rows *rows) {
    if (rows == NULL) return;
    for (int32_t c = 0; c < rows->n_columns; c++) {
        md_free(rows->columns[c].values);
        md_free(rows->columns[c].data);
        md_free(rows->columns[c].validity);
    }
    md_free(rows->columns);
    md_free(rows);
}

void md_rows_define(md_rows *rows, int32_t column, const char *format, const char *name, bool nullable) {
    md_rows_column *c = &rows->columns[column];
    snprintf(c->format, sizeof c->format, "%s", format);
    snprintf(c->name, sizeof c->name, "%s", name);
    c->type = format[0] == 't' ? MD_I64 : (md_type)format[0];
    c->nullable = nullable;
}

static size_t bits_size(int64_t n) { return (size_t)(n + 7) / 8; }

static bool grow_bits(void **bits, int64_t before, int64_t capacity, int fill) {
    uint8_t *block = md_realloc(*bits, bits_size(capacity));
    if (block == NULL) return false;
    size_t old_size = *bits != NULL ? bits_size(before) : 0;
    memset(block + old_size, fill, bits_size(capacity) - old_size);
    *bits = block;
    return true;
}

static bool grow_column(md_rows_column *c, int64_t before, int64_t capacity) {
    if (c->validity != NULL) {
        void *bits = c->validity;
        if (!grow_bits(&bits, before, capacity, 0xff)) return false;
        c->validity = bits;
    }
    if (c->type == MD_BOOL) return grow_bits(&c->values, before, capacity, 0);
    bool fresh = c->values == NULL;
    size_t width = is_text(c->type) ? 4 : 8;
    void *block = md_realloc(c->values, ((size_t)capacity + 1) * width);
    if (block == NULL) return false;
    c->values = block;
    if (fresh && is_text(c->type)) *(int32_t *)block = 0;
    return true;
}

md_rc md_rows_reserve(md_rows *rows, int64_t n) {
    int64_t need;
    if (__builtin_add_overflow(rows->length, n, &need) || need > (INT64_C(1) << 40)) return MD_NOMEM;
    if (need <= rows->capacity) return MD_OK;
    int64_t capacity = need;
    if (rows->capacity > 0 && capacity < rows->capacity + rows->capacity / 2)
        capacity = rows->capacity + rows->capacity / 2;
    for (int32_t c = 0; c < rows->n_columns; c++)
        if (!grow_column(&rows->columns[c], rows->capacity, capacity)) return MD_NOMEM;
    rows->capacity = capacity;
    return MD_OK;
}

md_rc md_rows_nullable(md_rows *rows, int32_t column) {
    md_rows_column *c = &rows->columns[column];
    if (c->validity != NULL) return MD_OK;
    void *bits = NULL;
    int64_t capacity = rows->capacity > rows->length ? rows->capacity : rows->length;
    if (!grow_bits(&bits, 0, capacity, 0xff)) return MD_NOMEM;
    c->validity = bits;
    return MD_OK;
}

md_rc md_rows_put(md_rows *rows, int32_t column, const md_word *words, const uint8_t *valid, int64_t n) {
    md_rows_column *c = &rows->columns[column];
    if (n > 0 && valid != NULL && c->validity == NULL && memchr(valid, 0, (size_t)n) != NULL) {
        md_rc rc = md_rows_nullable(rows, column);
        if (rc != MD_OK) return rc;
    }
    if (c->validity != NULL)
        for (int64_t i = 0; i < n; i++) md_rows_set_valid(rows, column, i, valid == NULL || valid[i] != 0);
    if (c->type == MD_BOOL) {
        for (int64_t i = 0; i < n; i++) {
            if (words[i].u & 1) md_bit_set(c->values, rows->length + i);
            else md_bit_clear(c->values, rows->length + i);
        }
        return MD_OK;
    }
    md_word *to = md_rows_words(rows, column);
    if (n > 0 && to != words) memcpy(to, words, (size_t)n * sizeof *to);
    /* What lies under a null is zero, so that equal answers have equal bytes. */
    for (int64_t i = 0; valid != NULL && c->validity != NULL && i < n; i++)
        if (valid[i] == 0) to[i].u = 0;
    return MD_OK;
}

md_rc md_rows_put_bytes(md_rows *rows, int32_t column, int64_t i, const uint8_t *bytes, size_t size) {
    md_rows_column *c = &rows->columns[column];
    int32_t *offsets = (int32_t *)c->values + rows->length + i;
    size_t used = (size_t)offsets[0], need;
    if (!md_add_size(used, size, &need) || need > INT32_MAX) return MD_NOMEM;
    if (need > c->data_capacity || c->data == NULL) {
        size_t capacity = need + need / 2 + 64;
        uint8_t *data = md_realloc(c->data, capacity);
        if (data == NULL) return MD_NOMEM;
        c->data = data;
        c->data_capacity = capacity;
    }
    if (size > 0) memcpy(c->data + used, bytes, size);
    offsets[1] = (int32_t)need;
    return MD_OK;
}

void md_rows_give_words(md_rows *rows, int32_t column, md_word *block) {
    md_free(rows->columns[column].values);
    rows->columns[column].values = block;
}

/* Zeros among the first n bits. */
static int64_t count_nulls(const uint8_t *bits, int64_t n) {
    int64_t nulls = 0, i = 0;
    for (; i + 64 <= n; i += 64) nulls += 64 - __builtin_popcountll(md_load_u64(bits + i / 8));
    for (; i < n; i++) nulls += !md_bit(bits, i);
    return nulls;
}

static void hand_over(md_rows_column *c, struct ArrowArray *array, int64_t length) {
    array->length = length;
    array->null_count = c->validity != NULL ? count_nulls(c->validity, length) : 0;
    if (array->null_count > 0) array->buffers[0] = c->validity;
    else md_free(c->validity);
    array->buffers[1] = c->values;
    if (is_text(c->type)) array->buffers[2] = c->data;
    c->values = c->data = c->validity = NULL;
    c->data_capacity = 0;
}

md_rc md_rows_finish(md_rows *rows, struct ArrowSchema *schema, struct ArrowArray *array) {
    md_rc rc = rows->capacity == 0 && rows->length == 0 ? md_rows_reserve(rows, 1) : MD_OK;
    if (rc != MD_OK || (rc = md_schema_make(schema, "+s", "", false, rows->n_columns)) != MD_OK) return rc;
    rc = md_array_make(array, 1, rows->n_columns);
    for (int32_t i = 0; rc == MD_OK && i < rows->n_columns; i++) {
        md_rows_column *c = &rows->columns[i];
        rc = md_schema_make(schema->children[i], c->format, c->name, c->nullable, 0);
        if (rc == MD_OK) rc = md_array_make(array->children[i], is_text(c->type) ? 3 : 2, 0);
    }
    if (rc != MD_OK) {
        md_schema_release(schema);
        md_array_release(array);
        return rc;
    }
    for (int32_t i = 0; i < rows->n_columns; i++) hand_over(&rows->columns[i], array->children[i], rows->length);
    array->length = rows->length;
    rows->length = rows->capacity = 0;
    return MD_OK;
}

void md_rows_clear(md_rows *rows) { rows->length = 0; }

size_t md_rows_nbytes(const md_rows *rows) {
    size_t n = sizeof *rows + (size_t)rows->n_columns * sizeof *rows->columns;
    for (int32_t i = 0; i < rows->n_columns; i++) {
        const md_rows_column *c = &rows->columns[i];
        size_t width = is_text(c->type) ? 4 : 8;
        if (c->values != NULL) n += c->type == MD_BOOL ? bits_size(rows->capacity) : (size_t)rows->capacity * width;
        n += c->data_capacity + (c->validity != NULL ? bits_size(rows->capacity) : 0);
    }
    return n;
}
