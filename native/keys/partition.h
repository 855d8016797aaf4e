/* hash_partition: which part of the key space a row belongs to, the same on every node, in every
 * version, and for every Arrow layout of the same values. docs/hash_partition.md is this contract for
 * those who write another implementation; it has the test vectors.
 *
 * The hash is XXH64 with seed 0 over the canonical bytes of the key columns, one after the other:
 *
 *   value                                          bytes (integers little-endian)
 *   null                                           00
 *   integer below 2^63, date, timestamp, duration  01, the value in 8 bytes two's complement
 *   unsigned integer from 2^63 on                  02, the value in 16 bytes
 *   float                                          03, the IEEE double in 8 bytes; -0.0 as 0.0, any NaN
 *                                                  as 7ff8000000000000
 *   bool                                           04, one byte 0 or 1
 *   text                                           05, length in 8 bytes, the UTF-8 bytes
 *   binary                                         06, length in 8 bytes, the bytes
 *
 * Each value says its own length, so ("ab", "c") and ("a", "bc") differ. A float32 is widened first.
 * Timestamps and durations count in microseconds, dates in days: other units are refused, since equal
 * times would hash differently. No column at all gives XXH64 of nothing.
 *
 * Arrow types taken: c C s S i I l L f g b, u U vu, z Z vz, tdD, tsu:*, tDu; struct and columns may be
 * sliced. Not dictionaries. Any thread. */
#ifndef MD_PARTITION_H
#define MD_PARTITION_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

/* XXH64 (Yann Collet, xxHash specification 0.1.1) of data[0..size). */
uint64_t md_xxh64(const void *data, size_t size, uint64_t seed);

/* One hash per row of the struct array into hashes[0..length), length being the array's.
 * MD_BADARG: not a struct, or a column of a type not in the list; MD_NOMEM: rows of long text need a
 * buffer. On failure hashes[] holds nothing of use. */
md_rc md_hash_partition(const struct ArrowSchema *schema, const struct ArrowArray *array, uint64_t *hashes,
                        md_error *err);

#endif
