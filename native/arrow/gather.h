/* Keeps the rows of a struct array for which a mask is true, all columns in one call.
 *
 *   mask    1 0 null 1 1 0        a row stays when its bit is set and not null
 *   column  a b  c   d e f   ->   a d e
 *
 * Order is kept. Struct, columns and mask may be sliced anywhere and start at any address. What lies
 * under a null is copied like any other value.
 *
 * Types taken: b | c C s S e i I f l L g | tdD tdm, tts ttm ttu ttn, ts*, tD* | d:p,s of 128 bits |
 * u z. A column without a null left comes out without a bitmap.
 *
 * How it is fast: the mask becomes 64-bit words once, for all columns. A word of zeros costs one
 * compare, one of ones one memcpy, one with few rows goes from set bit to set bit. All others store each
 * row and move on by its bit, without a branch; of 4 and 8 bytes four rows at a time by one shuffle where
 * the machine has AVX2 (Lemire's "despacing" by table). Bitmaps are compressed 64 rows at a time (Hacker's
 * Delight 7-4). The result is one block of memory. Any thread. */
#ifndef MD_GATHER_H
#define MD_GATHER_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

/* The kept rows as a new struct array with the names, types and nullability of `schema`, owned by the
 * caller. `mask` is a bool array as long as the rows. MD_BADARG: not a struct, a row that is null as a
 * whole, a column of another type, or a mask that doesn't fit; MD_NOMEM. Then the outputs are untouched. */
md_rc md_filter_rows(const struct ArrowSchema *schema, const struct ArrowArray *array,
                     const struct ArrowSchema *mask_schema, const struct ArrowArray *mask,
                     struct ArrowSchema *out_schema, struct ArrowArray *out, md_error *err);

/* ---- the loops below it ----
 *
 * words[0 .. (n + 63) / 64) is the mask; its bits from n on are zero. */

#define MD_GATHER_WORD 64
#define MD_GATHER_PAD 32

/* n <= 64 bits of a bitmap from bit `at` on, the rest zero. No byte without such a bit is read. */
uint64_t md_bits_at(const uint8_t *bits, int64_t at, int64_t n);

/* Copy the values of `width` 1, 2, 4, 8 or 16 bytes whose bits are set. Returns the end of what it wrote;
 * MD_GATHER_PAD bytes after it may be overwritten. `shuffle`: in the form for AVX2, if this machine has it
 * and the width one; false is for tests. */
uint8_t *md_gather_fixed(uint8_t *to, const uint8_t *from, int64_t width, const uint64_t *words, int64_t n,
                         bool shuffle);

/* The same for `count` columns of 8-byte values at once: a word is looked at once for all of them. Rows up to a
 * whole word of them can be read. Returns how many rows were kept; nothing but padding behind them. */
int64_t md_gather_columns(uint8_t *const *to, const uint8_t *const *from, int32_t count, const uint64_t *words,
                          int64_t n, bool shuffle);

/* Copy the bits, from bit `shift` on, whose bits are set in words; `to` has room for 8 * (count / 64 + 1)
 * bytes and all of them that hold a bit are written. Returns how many of the bits are one. */
int64_t md_gather_bits(uint8_t *to, const uint8_t *bits, int64_t shift, const uint64_t *words, int64_t n);

#endif
