#include "arrow/take.h"

#include "arrow/column.h"
#include "arrow/layout.h"
#include "base/md_alloc.h"

#define NOWHERE UINT32_MAX

/* Where the rows stand: chunk and row in it; chunk NOWHERE is a missing one. */
typedef struct places {
    uint32_t *chunk, *row;
    int64_t n;
    bool missing;
} places;

/* A column in every chunk. */
typedef struct part {
    const uint8_t *validity, *values, *data;
    int64_t shift;
} part;

static md_rc check_text(const uint8_t *offsets, const void *data, int64_t n, md_error *err) {
    int32_t before = md_load_i32(offsets), bad = before < 0;
    for (int64_t i = 1; i <= n; i++) {
        int32_t now = md_load_i32(offsets + 4 * i);
        bad |= now < before;
        before = now;
    }
    if (bad) return md_fail(err, MD_BADARG, "offsets of a text column decrease");
    if (before > 0 && data == NULL) return md_fail(err, MD_BADARG, "a text column without its bytes");
    return MD_OK;
}

static md_rc check_column(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t start, int64_t n,
                          md_error *err) {
    md_layout layout;
    if (schema->format == NULL || schema->dictionary != NULL || !md_layout_of(schema->format, &layout))
        return md_fail(err, MD_BADARG, "no rows are taken from a column of type '%.40s'",
                       schema->dictionary != NULL ? "dictionary" : schema->format != NULL ? schema->format : "");
    int64_t shift;
    if (array->offset < 0 || array->length < 0 || start > array->length || array->length - start < n)
        return md_fail(err, MD_BADARG, "a column is shorter than its struct");
    if (__builtin_add_overflow(array->offset, start, &shift) || shift > INT64_MAX / 16 - n - 1)
        return md_fail(err, MD_BADARG, "an array of too great length or offset");
    if (array->buffers == NULL || array->n_buffers != (layout.kind == MD_TEXT ? 3 : 2))
        return md_fail(err, MD_BADARG, "a column with %lld buffers", (long long)array->n_buffers);
    if (n > 0 && array->buffers[1] == NULL) return md_fail(err, MD_BADARG, "a column without its values");
    if (layout.kind != MD_TEXT || n == 0) return MD_OK;
    return check_text((const uint8_t *)array->buffers[1] + 4 * shift, array->buffers[2], n, err);
}

md_rc md_chunk_check(const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err) {
    if (schema->release == NULL || array->release == NULL) return md_fail(err, MD_BADARG, "a released array");
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0 || schema->n_children != array->n_children)
        return md_fail(err, MD_BADARG, "rows must be a struct array (a record batch)");
    if (array->length < 0 || array->offset < 0 || array->length >= UINT32_MAX)
        return md_fail(err, MD_BADARG, "an array of negative or too great length or offset");
    if (array->n_buffers > 0 && array->null_count != 0 && array->buffers[0] != NULL) {
        for (int64_t i = 0; i < array->length; i++)
            if (!md_bit(array->buffers[0], array->offset + i))
                return md_fail(err, MD_BADARG, "a row that is null as a whole");
    }
    for (int64_t k = 0; k < schema->n_children; k++) {
        md_rc rc = check_column(schema->children[k], array->children[k], array->offset, array->length, err);
        if (rc != MD_OK) return rc;
    }
    return MD_OK;
}

/* ---- finding the rows ---- */

static int64_t chunk_of(const md_chunk *chunks, int64_t n_chunks, int64_t number) {
    int64_t low = 0, high = n_chunks; /* the last chunk that starts at or before it */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (chunks[middle].first <= number) low = middle;
        else high = middle;
    }
    return low;
}

static md_rc find(const md_chunk *chunks, int64_t n_chunks, const int64_t *numbers, places *p, md_error *err) {
    int64_t at = 0;
    for (int64_t i = 0; i < p->n; i++) {
        int64_t number = md_load_i64(numbers + i);
        if (number == -1) {
            p->chunk[i] = NOWHERE;
            p->row[i] = 0;
            p->missing = true;
            continue;
        }
        /* The next one is mostly of the same chunk. */
        if (n_chunks == 0 || number < chunks[at].first || number - chunks[at].first >= chunks[at].array->length)
            at = chunk_of(chunks, n_chunks, number);
        if (n_chunks == 0 || number < chunks[at].first || number - chunks[at].first >= chunks[at].array->length)
            return md_fail(err, MD_BADARG, "there is no row %lld", (long long)number);
        p->chunk[i] = (uint32_t)at;
        p->row[i] = (uint32_t)(number - chunks[at].first);
    }
    return MD_OK;
}

/* ---- one column ---- */

#define TAKE_FIXED(type)                                                               \
    for (int64_t i = 0; i < p->n; i++) {                                               \
        type value;                                                                    \
        memset(&value, 0, sizeof value);                                               \
        if (!p->missing || p->chunk[i] != NOWHERE)                                     \
            memcpy(&value, parts[p->chunk[i]].values + sizeof value * p->row[i], sizeof value); \
        memcpy(to + sizeof value * (size_t)i, &value, sizeof value);                   \
    }

typedef struct wide {
    uint64_t low, high;
} wide;

/* 8 bytes of each row, none missing, of few chunks: what merging copies runs through. */
#define FEW_CHUNKS 64
static void take_words(const part *parts, const places *p, int64_t n_chunks, uint8_t *to) {
    const uint8_t *bases[FEW_CHUNKS];
    for (int64_t c = 0; c < n_chunks; c++) bases[c] = parts[c].values;
    const uint32_t *chunk = p->chunk, *row = p->row;
    int64_t n = p->n;
    for (int64_t i = 0; i < n; i++) {
        uint64_t value;
        memcpy(&value, bases[chunk[i]] + 8 * (size_t)row[i], 8);
        memcpy(to + 8 * i, &value, 8);
    }
}

static void take_fixed(const part *parts, const places *p, int64_t width, uint8_t *to) {
    if (width == 1) TAKE_FIXED(uint8_t)
    else if (width == 2) TAKE_FIXED(uint16_t)
    else if (width == 4) TAKE_FIXED(uint32_t)
    else if (width == 8) TAKE_FIXED(uint64_t)
    else TAKE_FIXED(wide)
}

static void take_bits(const part *parts, const places *p, uint8_t *to) {
    memset(to, 0, (size_t)(p->n + 7) / 8);
    for (int64_t i = 0; i < p->n; i++) {
        if (p->chunk[i] == NOWHERE) continue;
        const part *from = &parts[p->chunk[i]];
        if (md_bit(from->values, from->shift + p->row[i])) md_bit_set(to, i);
    }
}

MD_INLINE bool is_null(const part *parts, const places *p, int64_t i) {
    if (p->chunk[i] == NOWHERE) return true;
    const part *from = &parts[p->chunk[i]];
    return from->validity != NULL && !md_bit(from->validity, from->shift + p->row[i]);
}

/* Values under nulls become zero: equal answers have equal bytes. */
static int64_t take_nulls(const part *parts, const places *p, md_layout layout, uint8_t *bits, uint8_t *values) {
    int64_t nulls = 0;
    memset(bits, 0xff, (size_t)(p->n + 7) / 8);
    for (int64_t i = 0; i < p->n; i++) {
        if (!is_null(parts, p, i)) continue;
        md_bit_clear(bits, i);
        if (layout.kind == MD_FIXED) memset(values + layout.width * i, 0, (size_t)layout.width);
        if (layout.kind == MD_BITS) md_bit_clear(values, i);
        nulls++;
    }
    return nulls;
}

static const uint8_t *text_at(const part *parts, const places *p, int64_t i, size_t *size) {
    *size = 0;
    if (is_null(parts, p, i)) return NULL;
    const part *from = &parts[p->chunk[i]];
    const uint8_t *offsets = from->values + 4 * (int64_t)p->row[i];
    int32_t start = md_load_i32(offsets);
    *size = (size_t)(md_load_i32(offsets + 4) - start);
    return from->data + start;
}

/* Offsets and bytes; the blocks are the caller's on MD_OK. */
static md_rc take_text(const part *parts, const places *p, int32_t **offsets_out, uint8_t **bytes_out) {
    size_t total = 0, size;
    for (int64_t i = 0; i < p->n; i++) {
        text_at(parts, p, i, &size);
        total += size;
    }
    if (total > INT32_MAX) return MD_NOMEM;
    int32_t *offsets = md_malloc(((size_t)p->n + 1) * sizeof *offsets);
    uint8_t *bytes = md_malloc(total);
    if (offsets == NULL || bytes == NULL) {
        md_free(offsets);
        md_free(bytes);
        return MD_NOMEM;
    }
    size_t at = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const uint8_t *from = text_at(parts, p, i, &size);
        offsets[i] = (int32_t)at;
        if (size > 0) memcpy(bytes + at, from, size);
        at += size;
    }
    offsets[p->n] = (int32_t)at;
    *offsets_out = offsets;
    *bytes_out = bytes;
    return MD_OK;
}

/* `parts` has room for a part per chunk. *out is a released shell unless MD_OK. */
static md_rc take_column(const struct ArrowSchema *schema, const md_chunk *chunks, int64_t n_chunks, int32_t column,
                         const places *p, part *parts, struct ArrowArray *out) {
    md_layout layout = {0};
    md_layout_of(schema->format, &layout);
    bool nulls = p->missing;
    for (int64_t c = 0; c < n_chunks; c++) {
        const struct ArrowArray *a = chunks[c].array->children[column];
        int64_t shift = a->offset + chunks[c].array->offset;
        parts[c] = (part){.validity = a->null_count != 0 ? a->buffers[0] : NULL, .values = a->buffers[1],
                          .data = layout.kind == MD_TEXT ? a->buffers[2] : NULL, .shift = shift};
        if (parts[c].values != NULL && layout.kind != MD_BITS) parts[c].values += layout.width * shift;
        nulls |= parts[c].validity != NULL;
    }
    md_rc rc = md_array_make(out, layout.kind == MD_TEXT ? 3 : 2, 0);
    if (rc != MD_OK) return rc;
    out->length = p->n;
    size_t bits = (size_t)(p->n + 7) / 8;
    uint8_t *values = NULL;
    if (layout.kind == MD_TEXT) {
        int32_t *offsets;
        uint8_t *bytes;
        if ((rc = take_text(parts, p, &offsets, &bytes)) == MD_OK) {
            md_array_give(out, 1, offsets);
            md_array_give(out, 2, bytes);
        }
    } else {
        values = md_malloc(layout.kind == MD_BITS ? bits : (size_t)(layout.width * p->n));
        rc = values != NULL ? MD_OK : MD_NOMEM;
        if (rc == MD_OK && layout.kind == MD_BITS) take_bits(parts, p, values);
        else if (rc == MD_OK && layout.width == 8 && !p->missing && n_chunks <= FEW_CHUNKS)
            take_words(parts, p, n_chunks, values);
        else if (rc == MD_OK) take_fixed(parts, p, layout.width, values);
        md_array_give(out, 1, values);
    }
    if (rc == MD_OK && nulls) {
        uint8_t *validity = md_malloc(bits);
        if (validity == NULL) rc = MD_NOMEM;
        else out->null_count = take_nulls(parts, p, layout, validity, values);
        if (rc == MD_OK && out->null_count == 0) md_free(validity);
        else if (rc == MD_OK) md_array_give(out, 0, validity);
    }
    if (rc != MD_OK) md_array_release(out);
    return rc;
}

static md_rc check_columns(const struct ArrowSchema *schema, const int32_t *columns, int32_t n_columns,
                           md_error *err) {
    for (int32_t k = 0; k < n_columns; k++)
        if (columns[k] < 0 || columns[k] >= schema->n_children)
            return md_fail(err, MD_BADARG, "there is no column %d", columns[k]);
    return MD_OK;
}

/* `parts` has room for a part per chunk. */
static md_rc take_all(const struct ArrowSchema *schema, const md_chunk *chunks, int64_t n_chunks,
                      const int32_t *columns, int32_t n_columns, const places *p, part *parts,
                      struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err) {
    struct ArrowSchema made = {0};
    struct ArrowArray array = {0};
    md_rc rc = md_schema_make(&made, "+s", "", false, n_columns);
    if (rc == MD_OK) rc = md_array_make(&array, 1, n_columns);
    for (int32_t k = 0; rc == MD_OK && k < n_columns; k++) {
        const struct ArrowSchema *field = schema->children[columns[k]];
        rc = md_schema_make(made.children[k], field->format, field->name != NULL ? field->name : "", true, 0);
        if (rc == MD_OK) rc = take_column(field, chunks, n_chunks, columns[k], p, parts, array.children[k]);
    }
    if (rc != MD_OK) {
        md_schema_release(&made);
        md_array_release(&array);
        return md_nomem(err);
    }
    array.length = p->n;
    *out_schema = made;
    *out = array;
    return MD_OK;
}

md_rc md_take_rows(const struct ArrowSchema *schema, const md_chunk *chunks, int64_t n_chunks,
                   const int32_t *columns, int32_t n_columns, const int64_t *numbers, int64_t n,
                   struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err) {
    md_rc rc = check_columns(schema, columns, n_columns, err);
    if (rc != MD_OK) return rc;
    size_t rows = (size_t)n, size, parts_size;
    if (!md_mul_size((size_t)n_chunks, sizeof(part), &parts_size) || !md_mul_size(rows, 2 * sizeof(uint32_t), &size) ||
        !md_add_size(size, parts_size, &size))
        return md_nomem(err);
    part *parts = md_malloc(size);
    if (parts == NULL) return md_nomem(err);
    places p = {.chunk = (uint32_t *)(void *)(parts + n_chunks), .n = n};
    p.row = p.chunk + n;
    rc = find(chunks, n_chunks, numbers, &p, err);
    if (rc == MD_OK) rc = take_all(schema, chunks, n_chunks, columns, n_columns, &p, parts, out_schema, out, err);
    md_free(parts);
    return rc;
}

md_rc md_take_places(const struct ArrowSchema *schema, const md_chunk *chunks, int64_t n_chunks,
                     const int32_t *columns, int32_t n_columns, uint32_t *at, uint32_t *rows, int64_t n,
                     struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err) {
    md_rc rc = check_columns(schema, columns, n_columns, err);
    if (rc != MD_OK) return rc;
    part *parts = md_calloc((size_t)n_chunks, sizeof *parts);
    if (parts == NULL) return md_nomem(err);
    places p = {.chunk = at, .row = rows, .n = n};
    rc = take_all(schema, chunks, n_chunks, columns, n_columns, &p, parts, out_schema, out, err);
    md_free(parts);
    return rc;
}
