/* Keys from and to whole Arrow arrays. */
#ifndef MD_KEYS_ROWS_H
#define MD_KEYS_ROWS_H

#include "keys/keys.h"
#include "arrow/rows.h"

/* Fill rows [length, length + n) of the key columns from `column` on with the groups order[k] (NULL: k).
 * flags and scratch have room for n. What was filled is not committed. */
md_rc md_rows_put_keys(md_rows *rows, int32_t column, const md_keys *keys, const int32_t *order, int64_t n,
                       uint8_t *flags, md_word *scratch);

/* md_keys_map over all rows of a struct array with exactly the key columns. *out: an int32 array of ids,
 * the caller's; *length: its length. MD_BADARG: other columns. On failure nothing changed. */
md_rc md_keys_map_rows(md_keys *keys, const struct ArrowSchema *schema, const struct ArrowArray *array,
                       int64_t position, bool insert, struct ArrowArray *out, int64_t *length, md_error *err);

/* The keys k0, k1 ... in order of their ids, as a batch that is the caller's. */
md_rc md_keys_export(const md_keys *keys, struct ArrowSchema *schema, struct ArrowArray *array, md_error *err);

#endif
