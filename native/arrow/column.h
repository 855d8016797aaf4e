/* Checked views over Arrow arrays, and making arrays to hand out.
 *
 * A view has the array's offset already applied where that is possible:
 *
 *   fixed width (l L g i I)   values -> [ v0 | v1 | v2 | ... ]      one past: values + width * length
 *   text (u z)                offsets -> [ o0 | o1 | ... | oN ]     int32; row i is data[o(i) .. o(i+1))
 *   bool (b)                  values is the bitmap's start; row i is bit `shift + i`
 *   nulls                     validity is the bitmap's start, NULL: no nulls; row i is bit `shift + i`
 *
 * Invariants: length >= 0, shift >= 0; a text column's offsets never decrease and start at >= 0.
 * Addresses need not be aligned; use md_load_*. The lengths of buffers can't be checked: the
 * interface doesn't carry them. */
#ifndef MD_COLUMN_H
#define MD_COLUMN_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

/* Native types are their Arrow format letters. */
typedef enum {
    MD_I64 = 'l',
    MD_U64 = 'L',
    MD_F64 = 'g',
    MD_UTF8 = 'u',
    MD_BINARY = 'z',
    MD_BOOL = 'b',
    MD_I32 = 'i',
} md_type;

typedef struct md_column {
    md_type type;
    int64_t length;
    int64_t shift;           /* the array's offset in bits, for validity and bool values */
    const uint8_t *validity; /* NULL: no nulls */
    const uint8_t *values;   /* NULL for text, and for length 0 perhaps */
    const uint8_t *offsets;  /* int32 each, length + 1 of them; text only */
    const uint8_t *data;     /* bytes of text; may be NULL when all rows are empty */
} md_column;

MD_INLINE bool md_column_null(const md_column *c, int64_t i) {
    return c->validity != NULL && !md_bit(c->validity, c->shift + i);
}
MD_INLINE bool md_column_bool(const md_column *c, int64_t i) { return md_bit(c->values, c->shift + i); }
MD_INLINE int64_t md_column_i64(const md_column *c, int64_t i) { return md_load_i64(c->values + 8 * i); }
MD_INLINE double md_column_f64(const md_column *c, int64_t i) { return md_load_f64(c->values + 8 * i); }
/* The bytes of row i; *size is their number. */
MD_INLINE const uint8_t *md_column_bytes(const md_column *c, int64_t i, uint32_t *size) {
    int32_t start = md_load_i32(c->offsets + 4 * i);
    *size = (uint32_t)(md_load_i32(c->offsets + 4 * i + 4) - start);
    return c->data + start;
}

/* View one array. Timestamps in microseconds ("tsu:...") and durations ("tDu") are MD_I64.
 * MD_BADARG: a type that is not native, a dictionary, or a structure that can't be. */
md_rc md_column_view(const struct ArrowSchema *schema, const struct ArrowArray *array, md_column *out,
                     md_error *err);

/* View the n children of a struct array (offset and length of the struct applied) into out[0..n).
 * *length is the struct's. MD_BADARG: not a struct, another number of children, null structs, or a
 * child that md_column_view refuses. */
md_rc md_columns_view(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t n,
                      md_column *out, int64_t *length, md_error *err);

/* Number of nulls, counted. */
int64_t md_column_nulls(const md_column *c);

/* ---- making ----
 *
 * A schema and an array are made empty with their children in place, filled by the caller, and end by
 * their release callback, at every moment from their making on. */

/* A schema node of `format` (copied) and `name` (copied), nullable or not, with n_children children
 * that are released shells (release == NULL) to be made in turn. On failure *out is a released shell. */
md_rc md_schema_make(struct ArrowSchema *out, const char *format, const char *name, bool nullable,
                     int64_t n_children);

/* An array node with n_buffers NULL buffers and n_children children that are released shells.
 * length and null_count 0. On failure *out is a released shell. */
md_rc md_array_make(struct ArrowArray *out, int64_t n_buffers, int64_t n_children);

/* Give a block of md_malloc to the array as buffer i, in place of what is there (which is freed). */
void md_array_give(struct ArrowArray *array, int64_t i, void *block);

/* Release if not released yet. */
void md_schema_release(struct ArrowSchema *schema);
void md_array_release(struct ArrowArray *array);

/* One array node of a fixed-width or bool type over blocks of md_malloc, which it takes over:
 * validity (NULL: no nulls) and values. On failure the blocks are still the caller's. */
md_rc md_array_of(struct ArrowArray *out, int64_t length, int64_t null_count, void *validity, void *values);

#endif
