#include "keys/partition.h"

#include "base/md_alloc.h"

/* ---- XXH64 ---- */

#define P1 0x9E3779B185EBCA87u
#define P2 0xC2B2AE3D27D4EB4Fu
#define P3 0x165667B19E3779F9u
#define P4 0x85EBCA77C2B2AE63u
#define P5 0x27D4EB2F165667C5u

static inline uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }
static inline uint64_t round_of(uint64_t lane, uint64_t input) { return rotate(lane + input * P2, 31) * P1; }
static inline uint64_t merge(uint64_t h, uint64_t lane) { return (h ^ round_of(0, lane)) * P1 + P4; }

static inline uint64_t load64(const uint8_t *p) {
    uint64_t v = md_load_u64(p);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static inline uint64_t load32(const uint8_t *p) {
    uint32_t v = md_load_u32(p);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap32(v);
#endif
    return v;
}

static inline uint64_t avalanche(uint64_t h) {
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

static inline uint64_t step8(uint64_t h, uint64_t word) { return rotate(h ^ round_of(0, word), 27) * P1 + P4; }
static inline uint64_t step1(uint64_t h, uint64_t byte) { return rotate(h ^ byte * P5, 11) * P1; }

uint64_t md_xxh64(const void *data, size_t size, uint64_t seed) {
    const uint8_t *p = data;
    size_t left = size;
    uint64_t h = seed + P5;
    if (size >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; left >= 32; p += 32, left -= 32) {
            a = round_of(a, load64(p));
            b = round_of(b, load64(p + 8));
            c = round_of(c, load64(p + 16));
            d = round_of(d, load64(p + 24));
        }
        h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
        h = merge(merge(merge(merge(h, a), b), c), d);
    }
    h += size;
    for (; left >= 8; p += 8, left -= 8) h = step8(h, load64(p));
    if (left >= 4) {
        h = rotate(h ^ load32(p) * P1, 23) * P2 + P3;
        p += 4;
        left -= 4;
    }
    for (; left > 0; p++, left--) h = step1(h, *p);
    return avalanche(h);
}

/* XXH64 of the nine bytes tag, value: the common row of one key column, without a buffer. */
static inline uint64_t hash_word(uint8_t tag, uint64_t value) {
    return avalanche(step1(step8(P5 + 9, value << 8 | tag), value >> 56));
}

/* ---- key columns ---- */

enum { TAG_NULL, TAG_INT, TAG_BIG, TAG_FLOAT, TAG_BOOL, TAG_TEXT, TAG_BINARY };

/* How a column is laid out in memory. */
typedef enum { I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, BOOL, TEXT32, TEXT64, VIEW } layout;

typedef struct keycol {
    layout layout;
    uint8_t tag;
    int64_t shift;           /* array offset + struct offset: row i is element shift + i */
    const uint8_t *validity; /* NULL: no nulls */
    const uint8_t *values;   /* offsets of TEXT32 and TEXT64, the 16-byte views of VIEW */
    const uint8_t *data;     /* bytes of TEXT32 and TEXT64; of VIEW the sizes of its buffers, int64 each */
    const uint8_t *const *buffers; /* data buffers of VIEW */
    int64_t buffer_count;
} keycol;

static const struct {
    const char *format;
    layout layout;
    uint8_t tag;
} TYPES[] = {
    {"c", I8, TAG_INT},      {"s", I16, TAG_INT},     {"i", I32, TAG_INT},     {"l", I64, TAG_INT},
    {"C", U8, TAG_INT},      {"S", U16, TAG_INT},     {"I", U32, TAG_INT},     {"L", U64, TAG_INT},
    {"f", F32, TAG_FLOAT},   {"g", F64, TAG_FLOAT},   {"b", BOOL, TAG_BOOL},   {"tdD", I32, TAG_INT},
    {"tDu", I64, TAG_INT},   {"u", TEXT32, TAG_TEXT}, {"U", TEXT64, TAG_TEXT}, {"vu", VIEW, TAG_TEXT},
    {"z", TEXT32, TAG_BINARY}, {"Z", TEXT64, TAG_BINARY}, {"vz", VIEW, TAG_BINARY},
};

static bool type_of(const char *format, keycol *out) {
    if (strncmp(format, "tsu:", 4) == 0) {
        out->layout = I64;
        out->tag = TAG_INT;
        return true;
    }
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        if (strcmp(format, TYPES[i].format) != 0) continue;
        out->layout = TYPES[i].layout;
        out->tag = TYPES[i].tag;
        return true;
    }
    return false;
}

static md_rc view(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t start, int64_t length,
                  keycol *out, md_error *err) {
    keycol c = {0};
    if (schema->format == NULL || schema->dictionary != NULL || !type_of(schema->format, &c))
        return md_fail(err, MD_BADARG, "hash_partition takes no column of type '%.40s'",
                       schema->dictionary != NULL ? "dictionary" : schema->format != NULL ? schema->format : "");
    if (array->offset < 0 || array->length < 0 || start > array->length || array->length - start < length)
        return md_fail(err, MD_BADARG, "a column is shorter than its struct");
    int64_t buffers = c.layout == VIEW ? 3 : c.layout == TEXT32 || c.layout == TEXT64 ? 3 : 2;
    if (array->buffers == NULL || array->n_buffers < buffers)
        return md_fail(err, MD_BADARG, "a column with %lld buffers", (long long)array->n_buffers);
    c.shift = array->offset + start;
    if (array->null_count != 0) c.validity = array->buffers[0];
    c.values = array->buffers[1];
    if (length > 0 && c.values == NULL) return md_fail(err, MD_BADARG, "a column without its values");
    if (c.layout == VIEW) {
        /* validity, views, data buffers ..., and last the sizes of the data buffers */
        c.buffers = (const uint8_t *const *)array->buffers + 2;
        c.buffer_count = array->n_buffers - 3;
        c.data = array->buffers[array->n_buffers - 1];
    } else if (buffers == 3) {
        c.data = array->buffers[2];
    }
    *out = c;
    return MD_OK;
}

static inline bool is_null(const keycol *c, int64_t i) { return c->validity != NULL && !md_bit(c->validity, i); }

/* A NaN of any payload is one value, and so are the two zeros. */
static inline uint64_t float_bits(double v) {
    if (v != v) return 0x7ff8000000000000u;
    v = v == 0 ? 0.0 : v;
    return md_load_u64(&v);
}

static inline float load_f32(const uint8_t *p) {
    float v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline int64_t load_i16(const uint8_t *p) {
    int16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* Element i of a column that is no text, as the 8 bytes that are hashed. */
static inline uint64_t word_of(const keycol *c, layout layout, int64_t i) {
    const uint8_t *p = c->values;
    switch (layout) {
    case I8: return (uint64_t)(int64_t)(int8_t)p[i];
    case I16: return (uint64_t)load_i16(p + 2 * i);
    case I32: return (uint64_t)(int64_t)md_load_i32(p + 4 * i);
    case U8: return p[i];
    case U16: return (uint16_t)load_i16(p + 2 * i);
    case U32: return md_load_u32(p + 4 * i);
    case F32: return float_bits(load_f32(p + 4 * i));
    case F64: return float_bits(md_load_f64(p + 8 * i));
    case BOOL: return md_bit(p, i);
    default: return md_load_u64(p + 8 * i);
    }
}

typedef struct span {
    const uint8_t *data;
    int64_t size; /* below 0: the column's offsets or views can't be */
} span;

/* data[start .. end); data may be NULL where it is empty. */
static inline span cut(const uint8_t *data, int64_t start, int64_t end) {
    if (start < 0 || end < start || (data == NULL && end > start)) return (span){NULL, -1};
    return (span){data == NULL ? NULL : data + start, end - start};
}

static inline span text_of(const keycol *c, int64_t i) {
    const uint8_t *p = c->values;
    if (c->layout == TEXT32) return cut(c->data, md_load_i32(p + 4 * i), md_load_i32(p + 4 * i + 4));
    if (c->layout == TEXT64) return cut(c->data, md_load_i64(p + 8 * i), md_load_i64(p + 8 * i + 8));
    /* A view: size, then either up to 12 bytes in place, or a prefix, the buffer's number and the start. */
    const uint8_t *v = p + 16 * i;
    int32_t size = md_load_i32(v);
    if (size <= 12) return (span){v + 4, size};
    int32_t buffer = md_load_i32(v + 8), start = md_load_i32(v + 12);
    if (buffer < 0 || buffer >= c->buffer_count || c->data == NULL) return (span){NULL, -1};
    if ((int64_t)start + size > md_load_i64(c->data + 8 * (int64_t)buffer)) return (span){NULL, -1};
    return cut(c->buffers[buffer], start, (int64_t)start + size);
}

static inline bool is_text(const keycol *c) { return c->tag >= TAG_TEXT; }

/* ---- one key column, fixed width: no buffer ---- */

MD_INLINE void hash_words(const keycol *c, layout layout, int64_t n, uint64_t *hashes) {
    const uint8_t nothing = TAG_NULL;
    uint64_t of_null = md_xxh64(&nothing, 1, 0);
    for (int64_t r = 0; r < n; r++) {
        int64_t i = c->shift + r;
        uint64_t h = hash_word(c->tag, word_of(c, layout, i));
        hashes[r] = is_null(c, i) ? of_null : h;
    }
}

/* The layout as a constant, so that each gets its own loop. False: has none of its own. */
static bool hash_alone(const keycol *c, int64_t n, uint64_t *hashes) {
    switch (c->layout) {
    case I8: hash_words(c, I8, n, hashes); return true;
    case I16: hash_words(c, I16, n, hashes); return true;
    case I32: hash_words(c, I32, n, hashes); return true;
    case I64: hash_words(c, I64, n, hashes); return true;
    case U8: hash_words(c, U8, n, hashes); return true;
    case U16: hash_words(c, U16, n, hashes); return true;
    case U32: hash_words(c, U32, n, hashes); return true;
    case F32: hash_words(c, F32, n, hashes); return true;
    case F64: hash_words(c, F64, n, hashes); return true;
    default: return false;
    }
}

/* ---- any key columns: each row's bytes in a buffer ---- */

static inline uint8_t *put64(uint8_t *to, uint64_t v) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    memcpy(to, &v, 8);
    return to + 8;
}

static uint8_t *put_value(uint8_t *to, const keycol *c, int64_t i) {
    if (is_null(c, i)) {
        *to++ = TAG_NULL;
        return to;
    }
    if (is_text(c)) {
        span s = text_of(c, i);
        *to++ = c->tag;
        to = put64(to, (uint64_t)s.size);
        if (s.size > 0) memcpy(to, s.data, (size_t)s.size);
        return to + s.size;
    }
    uint64_t word = word_of(c, c->layout, i);
    if (c->layout == BOOL) {
        *to++ = TAG_BOOL;
        *to++ = (uint8_t)word;
        return to;
    }
    if (c->layout == U64 && word >> 63) {
        *to++ = TAG_BIG;
        return put64(put64(to, word), 0);
    }
    *to++ = c->tag;
    return put64(to, word);
}

/* The most bytes a row takes. MD_BADARG: text that can't be. */
static md_rc longest_row(const keycol *columns, int64_t count, int64_t n, size_t *out, md_error *err) {
    size_t total = 0;
    for (int64_t k = 0; k < count; k++) {
        const keycol *c = &columns[k];
        int64_t longest = 8; /* 17 bytes with tag: enough for a value that is no text */
        for (int64_t r = 0; is_text(c) && r < n; r++) {
            int64_t i = c->shift + r;
            if (is_null(c, i)) continue;
            span s = text_of(c, i);
            if (s.size < 0) return md_fail(err, MD_BADARG, "offsets of a text column can't be");
            longest = s.size > longest ? s.size : longest;
        }
        if (!md_add_size(total, (size_t)longest + 9, &total)) return md_nomem(err);
    }
    *out = total;
    return MD_OK;
}

static md_rc hash_rows(const keycol *columns, int64_t count, int64_t n, uint64_t *hashes, md_error *err) {
    size_t longest = 0;
    md_rc rc = longest_row(columns, count, n, &longest, err);
    if (rc != MD_OK) return rc;
    uint8_t *row = md_malloc(longest);
    if (row == NULL) return md_nomem(err);
    for (int64_t r = 0; r < n; r++) {
        uint8_t *end = row;
        for (int64_t k = 0; k < count; k++) end = put_value(end, &columns[k], columns[k].shift + r);
        hashes[r] = md_xxh64(row, (size_t)(end - row), 0);
    }
    md_free(row);
    return MD_OK;
}

md_rc md_hash_partition(const struct ArrowSchema *schema, const struct ArrowArray *array, uint64_t *hashes,
                        md_error *err) {
    if (schema->release == NULL || array->release == NULL) return md_fail(err, MD_BADARG, "a released array");
    if (schema->format == NULL || strcmp(schema->format, "+s") != 0 || schema->n_children != array->n_children)
        return md_fail(err, MD_BADARG, "rows must be a struct array (a record batch)");
    if (array->length < 0 || array->offset < 0)
        return md_fail(err, MD_BADARG, "an array of negative length or offset");
    int64_t count = array->n_children;
    keycol *columns = md_calloc((size_t)count, sizeof *columns);
    if (columns == NULL) return md_nomem(err);
    md_rc rc = MD_OK;
    for (int64_t k = 0; k < count && rc == MD_OK; k++)
        rc = view(schema->children[k], array->children[k], array->offset, array->length, &columns[k], err);
    if (rc == MD_OK && !(count == 1 && hash_alone(&columns[0], array->length, hashes)))
        rc = hash_rows(columns, count, array->length, hashes, err);
    md_free(columns);
    return rc;
}
