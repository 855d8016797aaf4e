#include "arrow/validate.h"

#include <stdlib.h>

#include "base/kernels.h"
#include "base/utf8.h"

typedef struct {
    const uint8_t *validity;
    int64_t shift, length;
} md_slots;

static bool is_null(const md_slots *s, int64_t i) {
    return s->validity != NULL && !md_bit(s->validity, s->shift + i);
}

MD_INLINE int64_t offset_at(const uint8_t *offsets, int64_t i, bool wide) {
    return wide ? md_load_i64(offsets + 8 * i) : md_load_i32(offsets + 4 * i);
}

/* Only of bad ones is the place asked. */
static bool ascend(const uint8_t *offsets, int64_t n, bool wide) {
    if (offset_at(offsets, 0, wide) < 0) return false;
    if (!wide) return md_ascend_i32(offsets, n);
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= md_load_i64(offsets + 8 * i + 8) < md_load_i64(offsets + 8 * i);
    return !bad;
}

static int64_t first_descent(const uint8_t *offsets, int64_t n, bool wide) {
    if (offset_at(offsets, 0, wide) < 0) return 0;
    for (int64_t i = 0; i < n; i++)
        if (offset_at(offsets, i + 1, wide) < offset_at(offsets, i, wide)) return i;
    return n;
}

/* Of bytes that are UTF-8 as a whole: no value begins within a character, so that all values are. */
MD_INLINE bool begin_characters(const uint8_t *data, const uint8_t *offsets, int64_t n, bool wide) {
    int64_t last = offset_at(offsets, n, wide);
    while (n > 0 && offset_at(offsets, n - 1, wide) == last) n--;
    uint8_t within = 0;
    for (int64_t i = 0; i < n; i++) within |= (data[offset_at(offsets, i, wide)] & 0xC0) == 0x80;
    return within == 0;
}

static md_validity validate_text(const struct ArrowArray *array, const md_slots *s, bool wide, bool utf8,
                                 int64_t *row) {
    *row = 0;
    if (array->n_buffers != 3 || array->buffers[1] == NULL) return MD_INVALID_OFFSETS;
    const uint8_t *offsets = (const uint8_t *)array->buffers[1] + (wide ? 8 : 4) * s->shift;
    const uint8_t *data = array->buffers[2];
    if (!ascend(offsets, s->length, wide)) {
        *row = first_descent(offsets, s->length, wide);
        return MD_INVALID_OFFSETS;
    }
    int64_t first = offset_at(offsets, 0, wide), last = offset_at(offsets, s->length, wide);
    if (last > first && data == NULL) return MD_INVALID_OFFSETS;
    if (!utf8 || last == first) return MD_VALID;
    md_utf8 whole = md_utf8_look(data + first, last - first);
    if (whole == MD_UTF8_ASCII) return MD_VALID;
    if (whole == MD_UTF8_VALID && (wide ? begin_characters(data, offsets, s->length, true)
                                        : begin_characters(data, offsets, s->length, false)))
        return MD_VALID;
    for (int64_t i = 0; i < s->length; i++) {
        int64_t start = offset_at(offsets, i, wide), end = offset_at(offsets, i + 1, wide);
        if (!is_null(s, i) && md_utf8_look(data + start, end - start) == MD_UTF8_INVALID) {
            *row = i;
            return MD_INVALID_UTF8;
        }
    }
    return MD_VALID;
}

static md_validity validate_decimals(const struct ArrowArray *array, const md_slots *s, int precision, int64_t *row) {
    *row = 0;
    if (array->n_buffers != 2 || array->buffers[1] == NULL) return MD_INVALID_DECIMAL;
    const uint8_t *values = (const uint8_t *)array->buffers[1] + 16 * s->shift;
    unsigned __int128 limit = 1;
    for (int i = 0; i < precision; i++) limit *= 10;
    for (int64_t i = 0; i < s->length; i++) {
        unsigned __int128 v =
            (unsigned __int128)md_load_u64(values + 16 * i + 8) << 64 | md_load_u64(values + 16 * i);
        unsigned __int128 size = v >> 127 ? -v : v;
        if (size >= limit && !is_null(s, i)) {
            *row = i;
            return MD_INVALID_DECIMAL;
        }
    }
    return MD_VALID;
}

/* The digits of "d:precision,scale", 128 bits; 0: another type. */
static int decimal_precision(const char *format) {
    if (strncmp(format, "d:", 2) != 0) return 0;
    char *end;
    long precision = strtol(format + 2, &end, 10);
    if (*end != ',' || precision < 1 || precision > 38) return 0;
    strtol(end + 1, &end, 10);
    return *end == 0 || strcmp(end, ",128") == 0 ? (int)precision : 0;
}

static bool nulls_agree(const struct ArrowArray *array) {
    const uint8_t *validity = array->n_buffers > 0 && array->buffers != NULL ? array->buffers[0] : NULL;
    if (array->null_count < 0) return true;
    if (validity == NULL) return array->null_count == 0;
    int64_t nulls = 0, i = 0;
    for (; i < array->length && ((array->offset + i) & 7) != 0; i++) nulls += !md_bit(validity, array->offset + i);
    const uint8_t *bytes = validity + (array->offset + i) / 8;
    for (; i + 64 <= array->length; i += 64, bytes += 8) nulls += 64 - __builtin_popcountll(md_load_u64(bytes));
    for (; i < array->length; i++) nulls += !md_bit(validity, array->offset + i);
    return nulls == array->null_count;
}

md_validity md_validate(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t *row) {
    const char *format = schema->format;
    *row = 0;
    bool nested = format[0] == '+' || format[0] == 'n';
    if (!nested && !nulls_agree(array)) return MD_INVALID_NULLS;
    if (schema->dictionary != NULL || array->length == 0) return MD_VALID;
    md_slots s = {.shift = array->offset, .length = array->length};
    if (array->null_count != 0 && array->n_buffers > 0) s.validity = array->buffers[0];
    int precision = decimal_precision(format);
    if (precision > 0) return validate_decimals(array, &s, precision, row);
    if (format[0] == 0 || format[1] != 0 || strchr("uzUZ", format[0]) == NULL) return MD_VALID;
    bool wide = format[0] == 'U' || format[0] == 'Z', utf8 = format[0] == 'u' || format[0] == 'U';
    return validate_text(array, &s, wide, utf8, row);
}

/* ---- structs ---- */

enum { DEPTH_MAX = 16 };

/* The buffers of text, binary and views of them beside that of offsets or views, which is there. */
static md_rc check_bytes(const char *name, const char *format, const struct ArrowArray *array, md_error *err) {
    bool view = format[0] == 'v' && format[1] != 0 && strchr("uz", format[1]) != NULL && format[2] == 0;
    bool text = format[0] != 0 && strchr("uzUZ", format[0]) != NULL && format[1] == 0;
    if (!view && !text) return MD_OK;
    if (array->n_buffers < 3 || (text && array->n_buffers > 3))
        return md_fail(err, MD_BADARG, "'%.60s': %lld buffers", name, (long long)array->n_buffers);
    if (array->length == 0) return MD_OK;
    bool missing = false;
    if (text) {
        bool wide = format[0] == 'U' || format[0] == 'Z';
        missing = array->buffers[2] == NULL && offset_at(array->buffers[1], array->offset + array->length, wide) != 0;
    } else {
        const uint8_t *sizes = array->buffers[array->n_buffers - 1];
        for (int64_t i = 2; i < array->n_buffers - 1; i++) {
            int64_t size = sizes == NULL ? -1 : md_load_i64(sizes + 8 * (i - 2));
            missing |= size < 0 || (size > 0 && array->buffers[i] == NULL);
        }
    }
    return missing ? md_fail(err, MD_BADARG, "'%.60s': no buffer of bytes", name) : MD_OK;
}

static md_rc check_structs(const struct ArrowSchema *schema, const struct ArrowArray *array, int depth, md_error *err) {
    const char *name = schema->name != NULL ? schema->name : "";
    if (depth > DEPTH_MAX) return md_fail(err, MD_BADARG, "'%.60s': nested deeper than %d", name, DEPTH_MAX);
    if (schema->format == NULL) return md_fail(err, MD_BADARG, "'%.60s': a schema without a format", name);
    int64_t end;
    if (array->length < 0 || array->offset < 0 || __builtin_add_overflow(array->length, array->offset, &end) ||
        end > INT64_MAX / 64)
        return md_fail(err, MD_BADARG, "'%.60s': length %lld, offset %lld", name, (long long)array->length,
                       (long long)array->offset);
    if (array->null_count < -1 || array->null_count > array->length)
        return md_fail(err, MD_BADARG, "'%.60s': %lld nulls in %lld rows", name, (long long)array->null_count,
                       (long long)array->length);
    if (array->n_buffers < 0 || (array->n_buffers > 0 && array->buffers == NULL))
        return md_fail(err, MD_BADARG, "'%.60s': %lld buffers", name, (long long)array->n_buffers);
    bool list = schema->format[0] == '+' && schema->format[1] != 0 && strchr("lLmv", schema->format[1]) != NULL;
    bool has_values = list || (schema->format[0] != 'n' && schema->format[0] != '+');
    if (has_values && array->length > 0 && (array->n_buffers < 2 || array->buffers[1] == NULL))
        return md_fail(err, MD_BADARG, "'%.60s': no buffer of values for %lld rows", name, (long long)array->length);
    if (schema->dictionary == NULL && check_bytes(name, schema->format, array, err) != MD_OK) return MD_BADARG;
    if (schema->n_children != array->n_children || array->n_children < 0 ||
        (array->n_children > 0 && (array->children == NULL || schema->children == NULL)))
        return md_fail(err, MD_BADARG, "'%.60s': %lld children, the schema has %lld", name,
                       (long long)array->n_children, (long long)schema->n_children);
    if ((schema->dictionary == NULL) != (array->dictionary == NULL))
        return md_fail(err, MD_BADARG, "'%.60s': a dictionary in the array or in the schema, not in both", name);
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i] == NULL || schema->children[i] == NULL)
            return md_fail(err, MD_BADARG, "'%.60s': child %lld is missing", name, (long long)i);
        md_rc rc = check_structs(schema->children[i], array->children[i], depth + 1, err);
        if (rc != MD_OK) return rc;
    }
    return schema->dictionary == NULL ? MD_OK : check_structs(schema->dictionary, array->dictionary, depth + 1, err);
}

md_rc md_structs_check(const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err) {
    if (schema->release == NULL || array->release == NULL) return md_fail(err, MD_BADARG, "a released array");
    return check_structs(schema, array, 0, err);
}

md_rc md_batch_check(const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err) {
    bool batch = schema->release != NULL && array->release != NULL && schema->format != NULL &&
                 strcmp(schema->format, "+s") == 0 && schema->n_children == array->n_children &&
                 array->children != NULL && schema->children != NULL;
    for (int64_t i = 0; batch && i < array->n_children; i++) {
        const struct ArrowArray *column = array->children[i];
        const struct ArrowSchema *field = schema->children[i];
        if (column == NULL || field == NULL || column->length == array->length) continue;
        return md_fail(err, MD_BADARG, "'%.60s': length %lld in a batch of %lld rows",
                       field->name != NULL ? field->name : "", (long long)column->length, (long long)array->length);
    }
    return md_structs_check(schema, array, err);
}

static md_rc check_schema(const struct ArrowSchema *schema, int depth, md_error *err) {
    const char *name = schema->name != NULL ? schema->name : "";
    if (depth > DEPTH_MAX) return md_fail(err, MD_BADARG, "'%.60s': nested deeper than %d", name, DEPTH_MAX);
    if (schema->format == NULL) return md_fail(err, MD_BADARG, "'%.60s': a schema without a format", name);
    if (schema->n_children < 0 || (schema->n_children > 0 && schema->children == NULL))
        return md_fail(err, MD_BADARG, "'%.60s': %lld children", name, (long long)schema->n_children);
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i] == NULL)
            return md_fail(err, MD_BADARG, "'%.60s': child %lld is missing", name, (long long)i);
        md_rc rc = check_schema(schema->children[i], depth + 1, err);
        if (rc != MD_OK) return rc;
    }
    return schema->dictionary == NULL ? MD_OK : check_schema(schema->dictionary, depth + 1, err);
}

md_rc md_schema_check(const struct ArrowSchema *schema, md_error *err) {
    if (schema->release == NULL) return md_fail(err, MD_BADARG, "a released schema");
    return check_schema(schema, 0, err);
}

bool md_array_walks(const struct ArrowSchema *schema, const struct ArrowArray *array) {
    if (array->n_children != schema->n_children || (array->n_children > 0 && array->children == NULL)) return false;
    if ((array->dictionary == NULL) != (schema->dictionary == NULL)) return false;
    for (int64_t i = 0; i < array->n_children; i++)
        if (array->children[i] == NULL || !md_array_walks(schema->children[i], array->children[i])) return false;
    return array->dictionary == NULL || md_array_walks(schema->dictionary, array->dictionary);
}
