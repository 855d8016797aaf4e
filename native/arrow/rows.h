/* Rows growing into an Arrow struct array.
 *
 *   column of 8-byte words    values   [ w0 | w1 | ... | w(length-1) | room ]
 *   bool                      values   bits
 *   text                      offsets  [ 0 | e0 | e1 | ... ], data: the rows' bytes
 *   nulls                     validity bits, ones beyond the last null; NULL: no nulls so far
 *
 * Appending: reserve (may fail), fill rows [length, length + n) of every column, then commit (can't
 * fail). What was filled but not committed never happened. */
#ifndef MD_ROWS_H
#define MD_ROWS_H

#include "aggregates/accumulate.h"
#include "arrow/column.h"
#include "base/md_base.h"

typedef struct md_rows_column {
    char format[12], name[24];
    md_type type;
    bool nullable;
    void *values; /* words, bits, or int32 offsets */
    uint8_t *data;
    size_t data_capacity;
    uint8_t *validity;
} md_rows_column;

typedef struct md_rows {
    int32_t n_columns;
    int64_t length, capacity;
    md_rows_column *columns;
} md_rows;

/* Rows without columns' definitions: md_rows_define each of the n before use. */
md_rc md_rows_new(int32_t n_columns, md_rows **out);
void md_rows_free(md_rows *rows);

/* format: an Arrow format of a native type or "tsu:UTC". Names longer than 23 bytes are cut. */
void md_rows_define(md_rows *rows, int32_t column, const char *format, const char *name, bool nullable);

/* Room for n more rows in all fixed-width parts. */
md_rc md_rows_reserve(md_rows *rows, int64_t n);
/* The column's words; write from [length] on. */
MD_INLINE md_word *md_rows_words(md_rows *rows, int32_t column) { return (md_word *)rows->columns[column].values + rows->length; }
/* Allocate the bitmap, so that md_rows_set_valid may be called; all rows so far are valid. */
md_rc md_rows_nullable(md_rows *rows, int32_t column);
/* Whether row `length + i` of a column with a bitmap is valid. */
MD_INLINE void md_rows_set_valid(md_rows *rows, int32_t column, int64_t i, bool valid) {
    uint8_t *bits = rows->columns[column].validity;
    if (valid) md_bit_set(bits, rows->length + i);
    else md_bit_clear(bits, rows->length + i);
}
/* Append n values with flags (0: null; else valid); flags NULL: all valid. Words of a bool are 0 or 1. */
md_rc md_rows_put(md_rows *rows, int32_t column, const md_word *words, const uint8_t *valid, int64_t n);
/* Fill row `length + i` of a text column; rows in order of i. */
md_rc md_rows_put_bytes(md_rows *rows, int32_t column, int64_t i, const uint8_t *bytes, size_t size);
MD_INLINE void md_rows_commit(md_rows *rows, int64_t n) { rows->length += n; }

/* Give a block of md_malloc as values (words) of a column of rows that are empty but for such gifts. */
void md_rows_give_words(md_rows *rows, int32_t column, md_word *block);

/* Hand all rows over; afterwards rows are empty and usable again. On failure unchanged. */
md_rc md_rows_finish(md_rows *rows, struct ArrowSchema *schema, struct ArrowArray *array);

/* Forget the rows, keep the memory. */
void md_rows_clear(md_rows *rows);

size_t md_rows_nbytes(const md_rows *rows);

#endif
