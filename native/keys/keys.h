/* Key columns to dense group ids 0, 1, 2 ... in order of first appearance.
 *
 * An index lives and dies with its pane: one index for ever would scan dead slots (semantics 9).
 * Its memory may live on in md_keys_reset, emptied.
 *
 *   groups, one row each, in Arrow-ready buffers          index, one of
 *     first[id]     position of the group's first row       direct[key - base] = id + 1   (0: none)
 *     words[id]     l L g b: the key, canonical             slots[i] = tag << 32 | id + 1 (0: none)
 *     offsets, data u z: the key's bytes
 *     validity      bit id; NULL: no null key so far
 *
 * direct: one integer key in a small range; moves to slots for good when the range grows too wide.
 * slots:  2^bits of them, at most half full, probed linearly from tag's top bits; tag: 32 bits of
 *         the hash, so growing needs no key. A key that is null is hashed like any other.
 *
 * Invariants: 0 <= count <= capacity < 2^31; first ascends strictly; no two groups are equal.
 * Equal: null = null; NaN = NaN; -0.0 = 0.0 (kept as 0.0 and one NaN); text by its bytes.
 * Without key columns every row is in group 0. */
#ifndef MD_KEYS_H
#define MD_KEYS_H

#include "arrow/column.h"
#include "base/md_base.h"

#define MD_KEYS_COLUMNS_MAX 64

typedef struct md_key_column {
    md_type type;
    uint64_t *words;   /* not for text */
    int32_t *offsets;  /* text: count + 1 of them (none while capacity is 0) */
    uint8_t *data;     /* text */
    size_t data_capacity;
    uint8_t *validity; /* capacity bits, ones beyond count; NULL: no nulls */
} md_key_column;

typedef struct md_keys {
    int32_t n_columns;
    int64_t count, capacity;
    int64_t *first;
    md_key_column *columns;
    uint32_t *direct; /* not NULL: the direct table is in use */
    uint64_t direct_base;
    size_t direct_size;
    uint64_t *slots;
    uint32_t bits; /* slots has 1 << bits entries, when not NULL */
    bool hashed;   /* slots it is, for good */
    uint64_t seed;
    uint64_t *scratch; /* per column, the words of a block of rows */
    uint8_t *nulls;    /* per column, 1 where a row of the block is null */
} md_keys;

/* An empty index over n_columns in [0, MD_KEYS_COLUMNS_MAX] key columns of types l L g b u z.
 * On MD_OK *out is the caller's, ended by md_keys_free. MD_BADARG: another type or number. */
md_rc md_keys_new(const md_type *types, int32_t n_columns, uint64_t seed, md_keys **out);

/* A word that goes into the hash of every index made from now on, beside its seed; the one before. Chosen at
 * random once per process, before other threads: who sends keys then can't prepare some that collide. */
uint64_t md_keys_secret(uint64_t word);
void md_keys_free(md_keys *keys);

/* ids[i] = the group of row i for n rows, i in [0, n): row `start + i` of the columns or, when rows is
 * not NULL, row `rows[start + i]`. Unknown keys become new groups (insert) or get -1. The first position of
 * a new group is `position` + its row's number in the columns; it must exceed those of the groups held.
 * On failure there are the same groups as before (MD_NOMEM; also when a text column would pass 2 GiB). */
md_rc md_keys_map(md_keys *keys, const md_column *columns, const uint32_t *rows, int64_t start, int64_t n,
                  int64_t position, bool insert, int32_t *ids);

/* The same for the groups [start, start + n) of another index with columns of the same types. First
 * positions of new groups are those in `other`, and need not ascend. */
md_rc md_keys_map_keys(md_keys *keys, const md_keys *other, int64_t start, int64_t n, int32_t *ids);

/* Forget the groups from `count` on. Can't fail. */
void md_keys_truncate(md_keys *keys, int64_t count);

/* Forget all groups; memory and what was learnt about the keys stay. Buffers that were taken away
 * (set to NULL by the taker, together with capacity = 0) are made anew when needed. */
void md_keys_reset(md_keys *keys);

/* Make room for that many groups, so that the next insertions up to there only fill in. */
md_rc md_keys_reserve(md_keys *keys, int64_t capacity);

/* -1, 0, 1: group a before, at, behind group b in value order, column by column: null first, numbers
 * numerically with NaN greatest, false before true, text by bytes. */
int md_keys_compare(const md_keys *keys, int64_t a, int64_t b);

MD_INLINE bool md_key_null(const md_key_column *c, int64_t id) { return c->validity != NULL && !md_bit(c->validity, id); }
MD_INLINE bool md_type_is_text(md_type type) { return type == MD_UTF8 || type == MD_BINARY; }

/* The canonical word of a float: one NaN, no -0.0. */
MD_INLINE uint64_t md_canonical(double v) {
    uint64_t word;
    if (v != v) return 0x7ff8000000000000ull;
    v += 0.0; /* -0.0 + 0.0 is 0.0 */
    memcpy(&word, &v, sizeof word);
    return word;
}

size_t md_keys_nbytes(const md_keys *keys);

#endif
