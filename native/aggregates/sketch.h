/* Exact distinct values per group: one set for all groups of a pane.
 *
 *   keys   (group, value) -> entry 0, 1, 2 ... in order of first appearance       an md_keys of two columns
 *   entries with column 0 == g are group g's values
 *
 * Null is not in it; NaN is one value; -0.0 is 0.0.
 *
 * A packed set is what links and checkpoints carry, in order of first appearance:
 *   l L g b   8 bytes each, little-endian (g: bits of the canonical value; b: 0 or 1)
 *   u z       uint32 length, little-endian, then that many bytes, each
 * Packing is deterministic; unpacking checks everything and refuses repeated values. */
#ifndef MD_SKETCH_H
#define MD_SKETCH_H

#include "keys/keys.h"
#include "base/md_base.h"
#include "arrow/rows.h"

typedef struct md_distinct {
    md_type type;
    md_keys *keys;
} md_distinct;

/* On MD_OK *out is the caller's, ended by md_distinct_free. */
md_rc md_distinct_new(md_type type, uint64_t seed, md_distinct **out);
void md_distinct_free(md_distinct *set);

/* Take n <= MD_CHUNK rows: row i is start + i of the column (rows NULL) or rows[i], of group ids[i]; nulls
 * are skipped. On failure the set is as before. rows[i] >= start, < start + MD_CHUNK. */
typedef struct md_distinct_scratch {
    int64_t groups[MD_CHUNK];
    uint32_t rows[MD_CHUNK];
    int32_t entries[MD_CHUNK];
} md_distinct_scratch;
md_rc md_distinct_add(md_distinct *set, const int32_t *ids, const md_column *column, const uint32_t *rows,
                      int64_t start, int64_t n, md_distinct_scratch *scratch);

/* Take all entries of another set of the same type, its group g being ours map[g]. entries[e], unless NULL,
 * gets what its entry e is in ours. On failure the set is as before. */
md_rc md_distinct_merge(md_distinct *set, const md_distinct *other, const int32_t *map, int32_t *entries,
                        md_distinct_scratch *scratch);

/* Take a packed set into a group. MD_BADDATA: not a packed set of this type, or (fresh) a value twice.
 * Values that the group holds already are skipped unless `fresh`. On failure as before. */
md_rc md_distinct_unpack(md_distinct *set, int64_t group, const uint8_t *bytes, size_t size, bool fresh,
                         md_error *err);

/* counts[g] = distinct values of group g, g in [0, groups). */
void md_distinct_count(const md_distinct *set, int64_t groups, md_word *counts);

/* Fill rows [length, length + n) of a binary column with the packed sets of the groups order[k] (NULL: k)
 * out of `groups`. */
md_rc md_distinct_pack(const md_distinct *set, int64_t groups, const int32_t *order, int64_t n, md_rows *rows,
                       int32_t column);

#endif
