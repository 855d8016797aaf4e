/* Rows to be mapped by keys.c, a block at a time: canonical words, nulls and hashes of their keys.
 * Internal to keys.c. */
#ifndef MD_KEYS_BLOCK_H
#define MD_KEYS_BLOCK_H

#include "base/hash.h"
#include "keys/keys.h"

#define MD_KEYS_BLOCK 256 /* rows hashed ahead of probing: their slots are fetched meanwhile */

MD_INLINE uint32_t tag_of(uint64_t hash) { return (uint32_t)(hash >> 32) ^ (uint32_t)hash; }

/* The same value that block_tags computes for a row with this key. */
static inline uint32_t stored_tag(const md_keys *keys, int64_t id) {
    uint64_t h = keys->seed;
    for (int32_t k = 0; k < keys->n_columns; k++) {
        const md_key_column *c = &keys->columns[k];
        if (md_key_null(c, id)) h = md_hash_word(h ^ MD_HASH_NULL, MD_HASH_B);
        else if (md_type_is_text(c->type))
            h = md_hash_bytes(h, c->data + c->offsets[id], (uint32_t)(c->offsets[id + 1] - c->offsets[id]));
        else h = md_hash_word(h, c->words[id]);
    }
    return tag_of(h);
}

/* Where the rows to map come from: columns (through `rows`, if any), or another index. */
typedef struct source {
    const md_column *columns;
    const uint32_t *rows;
    int64_t start;
    int64_t position;
    const md_keys *other;
} source;

MD_INLINE int64_t source_row(const source *s, int64_t i) {
    return s->rows != NULL ? (int64_t)s->rows[s->start + i] : s->start + i;
}

static inline const uint8_t *source_bytes(const source *s, int32_t k, int64_t i, uint32_t *size) {
    if (s->other == NULL) return md_column_bytes(&s->columns[k], source_row(s, i), size);
    const md_key_column *c = &s->other->columns[k];
    int64_t id = s->start + i;
    *size = (uint32_t)(c->offsets[id + 1] - c->offsets[id]);
    return c->data + c->offsets[id];
}

static inline int64_t source_first(const source *s, int64_t i) {
    return s->other != NULL ? s->other->first[s->start + i] : s->position + source_row(s, i);
}

/* The canonical words of rows [from, from + n), n <= MD_KEYS_BLOCK, of a column that is not text. They are in
 * `out`, or where they lie already. */
static inline const uint64_t *fetch_words(const source *s, int32_t k, int64_t from, int64_t n, uint64_t *out) {
    if (s->other != NULL) return s->other->columns[k].words + s->start + from;
    const md_column *c = &s->columns[k];
    if (c->type == MD_BOOL) {
        for (int64_t i = 0; i < n; i++) out[i] = md_column_bool(c, source_row(s, from + i));
    } else if (c->type == MD_F64) {
        for (int64_t i = 0; i < n; i++) out[i] = md_canonical(md_column_f64(c, source_row(s, from + i)));
    } else if (s->rows != NULL) {
        for (int64_t i = 0; i < n; i++) out[i] = md_load_u64(c->values + 8 * (int64_t)s->rows[s->start + from + i]);
    } else {
        const uint8_t *values = c->values + 8 * (s->start + from);
        if ((uintptr_t)values % sizeof(uint64_t) == 0) return (const uint64_t *)(const void *)values;
        memcpy(out, values, (size_t)n * 8);
    }
    return out;
}

/* out[i] = 1 where the row is null; false when none of the column can be. */
static inline bool fetch_nulls(const source *s, int32_t k, int64_t from, int64_t n, uint8_t *out) {
    if (s->other != NULL) {
        const md_key_column *c = &s->other->columns[k];
        if (c->validity == NULL) return false;
        for (int64_t i = 0; i < n; i++) out[i] = !md_bit(c->validity, s->start + from + i);
    } else {
        const md_column *c = &s->columns[k];
        if (c->validity == NULL) return false;
        for (int64_t i = 0; i < n; i++) out[i] = !md_bit(c->validity, c->shift + source_row(s, from + i));
    }
    return true;
}

/* A block of rows, as the probe reads it. */
typedef struct block {
    const source *from;
    int64_t start; /* of the block, counted in the source */
    const uint64_t *words[MD_KEYS_COLUMNS_MAX];
    const uint8_t *nulls[MD_KEYS_COLUMNS_MAX]; /* NULL: none */
    uint32_t tags[MD_KEYS_BLOCK];
} block;

static inline void block_fill(const md_keys *keys, const source *s, int64_t from, int64_t n, block *b) {
    b->from = s;
    b->start = from;
    for (int32_t k = 0; k < keys->n_columns; k++) {
        uint8_t *nulls = keys->nulls + (size_t)k * MD_KEYS_BLOCK;
        b->nulls[k] = fetch_nulls(s, k, from, n, nulls) ? nulls : NULL;
        b->words[k] = NULL;
        if (!md_type_is_text(keys->columns[k].type))
            b->words[k] = fetch_words(s, k, from, n, keys->scratch + (size_t)k * MD_KEYS_BLOCK);
    }
}

static inline void block_tags(const md_keys *keys, block *b, int64_t n) {
    uint64_t hashes[MD_KEYS_BLOCK];
    for (int64_t i = 0; i < n; i++) hashes[i] = keys->seed;
    for (int32_t k = 0; k < keys->n_columns; k++) {
        const uint64_t *words = b->words[k];
        const uint8_t *nulls = b->nulls[k];
        if (words != NULL && nulls == NULL) {
            for (int64_t i = 0; i < n; i++) hashes[i] = md_hash_word(hashes[i], words[i]);
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            if (nulls != NULL && nulls[i]) {
                hashes[i] = md_hash_word(hashes[i] ^ MD_HASH_NULL, MD_HASH_B);
            } else if (words != NULL) {
                hashes[i] = md_hash_word(hashes[i], words[i]);
            } else {
                uint32_t size;
                const uint8_t *bytes = source_bytes(b->from, k, b->start + i, &size);
                hashes[i] = md_hash_bytes(hashes[i], bytes, size);
            }
        }
    }
    for (int64_t i = 0; i < n; i++) b->tags[i] = tag_of(hashes[i]);
}

static inline bool row_equals(const md_keys *keys, const block *b, int64_t i, int64_t id) {
    for (int32_t k = 0; k < keys->n_columns; k++) {
        const md_key_column *c = &keys->columns[k];
        bool null = b->nulls[k] != NULL && b->nulls[k][i];
        if (null != md_key_null(c, id)) return false;
        if (null) continue;
        if (b->words[k] != NULL) {
            if (b->words[k][i] != c->words[id]) return false;
            continue;
        }
        uint32_t size;
        const uint8_t *bytes = source_bytes(b->from, k, b->start + i, &size);
        if (size != (uint32_t)(c->offsets[id + 1] - c->offsets[id])) return false;
        if (memcmp(bytes, c->data + c->offsets[id], size) != 0) return false;
    }
    return true;
}

#endif
