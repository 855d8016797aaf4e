#include "arrow/gather.h"

#include "arrow/block.h"
#include "arrow/column.h"
#include "arrow/layout.h"
#include "base/md_alloc.h"


#define WORD MD_GATHER_WORD

static inline int64_t words_of(int64_t n) { return n / WORD + (n % WORD != 0); }

/* ---- what comes in ---- */

typedef struct source {
    md_layout layout;
    int64_t shift;           /* row i is element shift + i of each buffer */
    const uint8_t *validity; /* NULL: no nulls */
    const uint8_t *values;   /* of TEXT its offsets */
    const uint8_t *data;     /* of TEXT */
    size_t at[3];            /* where the buffers of the result stand in its block */
} source;

/* Which rows stay. */
typedef struct choice {
    int64_t n, kept;
    uint64_t *words;
} choice;

static md_rc check_offsets(const source *s, int64_t n, md_error *err) {
    const uint8_t *offsets = s->values + 4 * s->shift;
    int32_t before = md_load_i32(offsets), bad = before < 0;
    for (int64_t i = 1; i <= n; i++) {
        int32_t now = md_load_i32(offsets + 4 * i);
        bad |= now < before;
        before = now;
    }
    if (bad) return md_fail(err, MD_BADARG, "offsets of a text column decrease");
    if (before > 0 && s->data == NULL) return md_fail(err, MD_BADARG, "a text column without its bytes");
    return MD_OK;
}

/* View rows [start, start + n) of a column. */
static md_rc view(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t start, int64_t n,
                  source *out, md_error *err) {
    source s = {0};
    if (schema->format == NULL || schema->dictionary != NULL || !md_layout_of(schema->format, &s.layout))
        return md_fail(err, MD_BADARG, "filter_rows takes no column of type '%.40s'",
                       schema->dictionary != NULL ? "dictionary" : schema->format != NULL ? schema->format : "");
    if (array->offset < 0 || array->length < 0 || start > array->length || array->length - start < n)
        return md_fail(err, MD_BADARG, "a column is shorter than its struct");
    if (__builtin_add_overflow(array->offset, start, &s.shift) || s.shift > INT64_MAX / 16 - n - 1)
        return md_fail(err, MD_BADARG, "an array of too great length or offset");
    if (array->buffers == NULL || array->n_buffers != (s.layout.kind == MD_TEXT ? 3 : 2))
        return md_fail(err, MD_BADARG, "a column with %lld buffers", (long long)array->n_buffers);
    if (array->null_count != 0) s.validity = array->buffers[0];
    s.values = array->buffers[1];
    if (n > 0 && s.values == NULL) return md_fail(err, MD_BADARG, "a column without its values");
    if (s.layout.kind == MD_TEXT) {
        s.data = array->buffers[2];
        md_rc rc = n > 0 ? check_offsets(&s, n, err) : MD_OK;
        if (rc != MD_OK) return rc;
    }
    *out = s;
    return MD_OK;
}

static md_rc choose(const struct ArrowSchema *schema, const struct ArrowArray *mask, int64_t n, choice *out,
                    md_error *err) {
    if (schema->release == NULL || mask->release == NULL) return md_fail(err, MD_BADARG, "a released mask");
    if (schema->format == NULL || strcmp(schema->format, "b") != 0)
        return md_fail(err, MD_BADARG, "the mask must be a bool array");
    if (mask->length != n)
        return md_fail(err, MD_BADARG, "a mask of %lld rows for %lld", (long long)mask->length, (long long)n);
    source s = {0};
    md_rc rc = view(schema, mask, 0, n, &s, err);
    if (rc != MD_OK) return rc;
    uint64_t *words = md_malloc((size_t)words_of(n) * sizeof *words);
    if (words == NULL) return md_nomem(err);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i += WORD) {
        int64_t rows = n - i < WORD ? n - i : WORD;
        uint64_t word = md_bits_at(s.values, s.shift + i, rows);
        if (s.validity != NULL) word &= md_bits_at(s.validity, s.shift + i, rows);
        words[i / WORD] = word;
        kept += __builtin_popcountll(word);
    }
    *out = (choice){.n = n, .kept = kept, .words = words};
    return MD_OK;
}

/* ---- text ---- */

/* The next run of rows that stay, from row *end on: [*first, *end). False: none is left. */
static bool next_run(const choice *c, int64_t *first, int64_t *end) {
    int64_t w = *end / WORD;
    if (*end >= c->n) return false;
    uint64_t word = c->words[w] >> (*end % WORD) << (*end % WORD);
    while (word == 0) {
        if (++w == words_of(c->n)) return false;
        word = c->words[w];
    }
    int start = __builtin_ctzll(word);
    uint64_t rest = ~(word >> start);
    int rows = rest == 0 ? WORD : __builtin_ctzll(rest);
    *first = w * WORD + start;
    *end = *first + rows; /* a run that goes on in the next word is another one */
    return true;
}

/* The bytes of all rows that stay. */
static size_t text_size(const source *s, const choice *c) {
    const uint8_t *from = s->values + 4 * s->shift;
    size_t size = 0;
    for (int64_t first, end = 0; next_run(c, &first, &end);)
        size += (size_t)(md_load_i32(from + 4 * end) - md_load_i32(from + 4 * first));
    return size;
}

static void keep_text(const source *s, const choice *c, uint8_t *offsets, uint8_t *bytes) {
    const uint8_t *from = s->values + 4 * s->shift;
    int32_t at = 0;
    memcpy(offsets, &at, 4);
    for (int64_t first, end = 0; next_run(c, &first, &end);) {
        int32_t start = md_load_i32(from + 4 * first), size = md_load_i32(from + 4 * end) - start;
        for (int64_t r = first + 1; r <= end; r++) {
            int32_t moved = md_load_i32(from + 4 * r) - start + at;
            memcpy(offsets += 4, &moved, 4);
        }
        if (size != 0) memcpy(bytes + at, s->data + start, (size_t)size);
        at += size;
    }
}

/* ---- the result ---- */

/* Places for the buffers of a column behind *end. */
static bool place(source *s, const choice *c, size_t *end) {
    size_t kept = (size_t)c->kept, bits = (kept / WORD + 1) * 8, size = bits;
    if (s->validity != NULL && !md_block_reserve(end, bits, &s->at[0])) return false;
    if (s->layout.kind == MD_FIXED &&
        (!md_mul_size(kept, (size_t)s->layout.width, &size) || !md_add_size(size, MD_GATHER_PAD, &size)))
        return false;
    if (s->layout.kind == MD_TEXT) size = (kept + 1) * 4;
    return md_block_reserve(end, size, &s->at[1]) && (s->layout.kind != MD_TEXT || md_block_reserve(end, text_size(s, c), &s->at[2]));
}

static void keep_column(const source *s, const choice *c, uint8_t *data, struct ArrowArray *out) {
    const void **buffers = out->buffers;
    out->length = c->kept;
    out->n_buffers = s->layout.kind == MD_TEXT ? 3 : 2;
    if (s->validity != NULL) {
        out->null_count = c->kept - md_gather_bits(data + s->at[0], s->validity, s->shift, c->words, c->n);
        if (out->null_count != 0) buffers[0] = data + s->at[0];
    }
    buffers[1] = data + s->at[1];
    if (s->layout.kind == MD_TEXT) {
        buffers[2] = data + s->at[2];
        if (c->n != 0) keep_text(s, c, data + s->at[1], data + s->at[2]);
        else memset(data + s->at[1], 0, 4);
    } else if (s->layout.kind == MD_BITS) {
        md_gather_bits(data + s->at[1], s->values, s->shift, c->words, c->n);
    } else if (c->kept != 0) {
        md_gather_fixed(data + s->at[1], s->values + s->layout.width * s->shift, s->layout.width, c->words, c->n, true);
    }
}

/* sources have their places; `end` is the size of all buffers. */
static md_rc keep_columns(const source *sources, int64_t count, const choice *c, size_t end,
                          struct ArrowArray *out) {
    uint8_t *data;
    struct ArrowArray made;
    if (md_block_make(count, end, &made, &data) != MD_OK) return MD_NOMEM;
    made.length = c->kept;
    for (int64_t k = 0; k < count; k++) keep_column(&sources[k], c, data, made.children[k]);
    *out = made;
    return MD_OK;
}

static md_rc copy_schema(const struct ArrowSchema *schema, struct ArrowSchema *out) {
    struct ArrowSchema made;
    md_rc rc = md_schema_make(&made, "+s", "", false, schema->n_children);
    for (int64_t k = 0; rc == MD_OK && k < schema->n_children; k++) {
        const struct ArrowSchema *field = schema->children[k];
        rc = md_schema_make(made.children[k], field->format, field->name != NULL ? field->name : "",
                            (field->flags & ARROW_FLAG_NULLABLE) != 0, 0);
    }
    if (rc == MD_OK) *out = made;
    else md_schema_release(&made);
    return rc;
}

/* ---- rows ---- */

static md_rc check_struct(const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err) {
    if (schema->release == NULL || array->release == NULL) return md_fail(err, MD_BADARG, "a released array");
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0 || schema->n_children != array->n_children)
        return md_fail(err, MD_BADARG, "rows must be a struct array (a record batch)");
    if (array->length < 0 || array->offset < 0)
        return md_fail(err, MD_BADARG, "an array of negative length or offset");
    if (array->n_buffers > 0 && array->null_count != 0 && array->buffers[0] != NULL) {
        for (int64_t i = 0; i < array->length; i++)
            if (!md_bit(array->buffers[0], array->offset + i))
                return md_fail(err, MD_BADARG, "a row that is null as a whole");
    }
    return MD_OK;
}

/* `sources` has room for the columns. */
static md_rc keep_rows(const struct ArrowSchema *schema, const struct ArrowArray *array, const choice *c,
                       source *sources, struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err) {
    size_t end = 0;
    for (int64_t k = 0; k < array->n_children; k++) {
        md_rc rc = view(schema->children[k], array->children[k], array->offset, c->n, &sources[k], err);
        if (rc != MD_OK) return rc;
        if (!place(&sources[k], c, &end)) return md_nomem(err);
    }
    struct ArrowSchema made;
    if (copy_schema(schema, &made) != MD_OK) return md_nomem(err);
    if (keep_columns(sources, array->n_children, c, end, out) != MD_OK) {
        md_schema_release(&made);
        return md_nomem(err);
    }
    *out_schema = made;
    return MD_OK;
}

md_rc md_filter_rows(const struct ArrowSchema *schema, const struct ArrowArray *array,
                     const struct ArrowSchema *mask_schema, const struct ArrowArray *mask,
                     struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err) {
    md_rc rc = check_struct(schema, array, err);
    if (rc != MD_OK) return rc;
    choice c = {0};
    rc = choose(mask_schema, mask, array->length, &c, err);
    if (rc != MD_OK) return rc;
    source *sources = md_calloc((size_t)array->n_children, sizeof *sources);
    rc = sources == NULL ? md_nomem(err) : keep_rows(schema, array, &c, sources, out_schema, out, err);
    md_free(sources);
    md_free(c.words);
    return rc;
}
