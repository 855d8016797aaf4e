/* Which rows of a batch belong to which of n copies of a box, by key: equal keys always go together.
 *
 *   batch   chunk 0: rows 0..4095          chunk 1: rows 4096..8191       ...
 *   part 0  lists[0 ..): 1 2 5 9 ...       lists[4096 ..): 4097 4100 ...
 *   part 1  lists[0 ..): 0 3 4 6 ...       lists[4096 ..): 4096 4098 ...
 *
 * Chunks are split independently of each other, so several threads may run over ranges that don't overlap.
 * The extent of the times of a chunk is found on the way. Nulls are keys like others; -0.0 = 0.0 and all NaN
 * are one key. The part of a key depends on nothing but the key and n; no output depends on it.
 *
 * Calls: begin with a batch, run over all chunks, then rows and extent; the batch stays alive till then. */
#ifndef MD_SPLIT_H
#define MD_SPLIT_H

#include "arrow/arrow_abi.h"
#include "arrow/column.h"
#include "base/md_base.h"

#define MD_SPLIT_CHUNK 4096
#define MD_SPLIT_PARTS_MAX 64

typedef struct md_split md_split;

/* n_parts in [1, MD_SPLIT_PARTS_MAX], at least one key, of types l L g b u z. MD_BADARG: others. */
md_rc md_split_new(const md_type *keys, int32_t n_keys, int32_t n_parts, md_split **out, md_error *err);
void md_split_free(md_split *s);

/* Look at a struct array: a time (no nulls) in its first column, the keys from column first_key on. Only
 * borrowed. MD_BADARG: other types. On failure there are no chunks. */
md_rc md_split_begin(md_split *s, const struct ArrowSchema *schema, const struct ArrowArray *array,
                     int32_t first_key, md_error *err);

int64_t md_split_chunks(const md_split *s);
int64_t md_split_length(const md_split *s); /* rows of the batch */

/* Split the chunks [from, to). Can't fail. */
void md_split_run(md_split *s, int64_t from, int64_t to);

/* The rows of a chunk that belong to a part, ascending; *n of them. */
const uint32_t *md_split_rows(const md_split *s, int32_t part, int64_t chunk, int64_t *n);

/* The rows of a part as a batch with the columns of the array that was begun with, and their numbers, the first
 * row of the array being `first`, as an int64 array; both are the caller's. MD_BADARG: a column that take.h
 * doesn't know. */
md_rc md_split_take(const md_split *s, const struct ArrowSchema *schema, const struct ArrowArray *array, int32_t part,
                    int64_t first, struct ArrowSchema *out_schema, struct ArrowArray *out, struct ArrowArray *numbers,
                    md_error *err);

/* Least and largest time of a chunk. */
void md_split_extent(const md_split *s, int64_t chunk, int64_t *least, int64_t *largest);

#endif
