#include "keys/keys.h"

#include "base/hash.h"
#include "keys/keys_block.h"
#include "base/md_alloc.h"

#define AHEAD 16           /* slots asked for before they are probed: about as many misses as a core keeps open */
#define GROUPS_MAX (INT64_C(1) << 30)
#define DIRECT_FIRST 1024  /* smallest direct table */
#define DIRECT_LIMIT 16384 /* a direct table may have this many entries, or 8 per group */

static uint64_t secret;

uint64_t md_keys_secret(uint64_t word) {
    uint64_t before = secret;
    secret = word;
    return before;
}

md_rc md_keys_new(const md_type *types, int32_t n_columns, uint64_t seed, md_keys **out) {
    if (n_columns < 0 || n_columns > MD_KEYS_COLUMNS_MAX) return MD_BADARG;
    for (int32_t i = 0; i < n_columns; i++)
        if (types[i] == 0 || strchr("lLgbuz", (char)types[i]) == NULL) return MD_BADARG;
    md_keys *keys = md_calloc(1, sizeof *keys);
    if (keys == NULL) return MD_NOMEM;
    size_t n = (size_t)n_columns;
    keys->columns = md_calloc(n, sizeof *keys->columns);
    keys->scratch = md_malloc(n * MD_KEYS_BLOCK * sizeof *keys->scratch);
    keys->nulls = md_malloc(n * MD_KEYS_BLOCK);
    if (keys->columns == NULL || keys->scratch == NULL || keys->nulls == NULL) {
        md_keys_free(keys);
        return MD_NOMEM;
    }
    for (size_t i = 0; i < n; i++) keys->columns[i].type = types[i];
    keys->n_columns = n_columns;
    keys->seed = md_fold(seed ^ secret ^ MD_HASH_A, MD_HASH_B ^ secret) | 1;
    keys->hashed = n_columns != 1 || (types[0] != MD_I64 && types[0] != MD_U64 && types[0] != MD_BOOL);
    *out = keys;
    return MD_OK;
}

void md_keys_free(md_keys *keys) {
    if (keys == NULL) return;
    for (int32_t i = 0; i < keys->n_columns; i++) {
        md_free(keys->columns[i].words);
        md_free(keys->columns[i].offsets);
        md_free(keys->columns[i].data);
        md_free(keys->columns[i].validity);
    }
    md_free(keys->columns);
    md_free(keys->first);
    md_free(keys->direct);
    md_free(keys->slots);
    md_free(keys->scratch);
    md_free(keys->nulls);
    md_free(keys);
}

/* ---- room ---- */

/* *block gets `size` bytes, its contents kept; false and unchanged without memory. */
static bool regrow(void *block_pointer, size_t size) {
    void *block;
    memcpy(&block, block_pointer, sizeof block);
    block = md_realloc(block, size);
    if (block == NULL) return false;
    memcpy(block_pointer, &block, sizeof block);
    return true;
}

static bool regrow_validity(uint8_t **validity, int64_t before, int64_t capacity) {
    size_t old_size = (size_t)(before + 7) / 8, size = (size_t)(capacity + 7) / 8;
    if (!regrow(validity, size)) return false;
    memset(*validity + old_size, 0xff, size - old_size);
    return true;
}

/* A block that grew while a later one could not stays grown: capacity says what all of them hold. */
md_rc md_keys_reserve(md_keys *keys, int64_t capacity) {
    if (capacity <= keys->capacity) return MD_OK;
    if (capacity > GROUPS_MAX) return MD_NOMEM;
    size_t n = (size_t)capacity;
    if (!regrow(&keys->first, n * sizeof *keys->first)) return MD_NOMEM;
    for (int32_t i = 0; i < keys->n_columns; i++) {
        md_key_column *c = &keys->columns[i];
        if (md_type_is_text(c->type)) {
            bool fresh = c->offsets == NULL;
            if (!regrow(&c->offsets, (n + 1) * sizeof *c->offsets)) return MD_NOMEM;
            if (fresh) c->offsets[0] = 0;
        } else if (!regrow(&c->words, n * sizeof *c->words)) {
            return MD_NOMEM;
        }
        if (c->validity != NULL && !regrow_validity(&c->validity, keys->capacity, capacity)) return MD_NOMEM;
    }
    keys->capacity = capacity;
    return MD_OK;
}

static void slot_put(uint64_t *slots, uint32_t bits, uint64_t slot) {
    size_t mask = ((size_t)1 << bits) - 1, i = (size_t)(slot >> 32 >> (32 - bits));
    while (slots[i] != 0) i = (i + 1) & mask;
    slots[i] = slot;
}

/* At least twice as many slots as `groups`. */
static md_rc grow_slots(md_keys *keys, int64_t groups) {
    uint32_t bits = keys->slots != NULL ? keys->bits : 5;
    while ((INT64_C(1) << bits) < 2 * groups) bits++;
    if (keys->slots != NULL && bits == keys->bits) return MD_OK;
    if (bits > 31) return MD_NOMEM;
    uint64_t *slots = md_calloc((size_t)1 << bits, sizeof *slots);
    if (slots == NULL) return MD_NOMEM;
    for (size_t i = 0; keys->slots != NULL && i < (size_t)1 << keys->bits; i++)
        if (keys->slots[i] != 0) slot_put(slots, bits, keys->slots[i]);
    md_free(keys->slots);
    keys->slots = slots;
    keys->bits = bits;
    return MD_OK;
}

/* ---- inserting ---- */

static bool append_text(md_key_column *c, int64_t id, const uint8_t *bytes, uint32_t size) {
    size_t used = (size_t)c->offsets[id], need = used + size;
    if (need > INT32_MAX) return false;
    if (need > c->data_capacity || c->data == NULL) {
        size_t capacity = need + need / 2 + 64;
        if (!regrow(&c->data, capacity)) return false;
        c->data_capacity = capacity;
    }
    memcpy(c->data + used, bytes, size);
    c->offsets[id + 1] = (int32_t)need;
    return true;
}

/* Store row i of the block as a new group, without touching the index; its id, or -1 without memory. */
static MD_NOINLINE int64_t append_group(md_keys *keys, const block *b, int64_t i) {
    int64_t id = keys->count;
    if (id == keys->capacity && md_keys_reserve(keys, id < 8 ? 16 : id + id / 2 + id / 4) != MD_OK) return -1;
    for (int32_t k = 0; k < keys->n_columns; k++) {
        md_key_column *c = &keys->columns[k];
        bool null = b->nulls[k] != NULL && b->nulls[k][i];
        if (null && c->validity == NULL && !regrow_validity(&c->validity, 0, keys->capacity)) return -1;
        if (c->validity != NULL) {
            if (null) md_bit_clear(c->validity, id);
            else md_bit_set(c->validity, id);
        }
        if (b->words[k] != NULL) {
            c->words[id] = null ? 0 : b->words[k][i];
        } else {
            uint32_t size = 0;
            const uint8_t *bytes = (const uint8_t *)"";
            if (!null) bytes = source_bytes(b->from, k, b->start + i, &size);
            if (!append_text(c, id, bytes, size)) return -1;
        }
    }
    keys->first[id] = source_first(b->from, b->start + i);
    keys->count = id + 1;
    return id;
}

MD_INLINE md_rc map_block(md_keys *keys, block *b, int64_t n, bool insert, bool one_word, int32_t *ids) {
    block_tags(keys, b, n);
    const uint64_t *words = b->words[0];
    for (int64_t i = 0; i < n && i < AHEAD; i++) MD_PREFETCH_WRITE(&keys->slots[b->tags[i] >> (32 - keys->bits)]);
    for (int64_t i = 0; i < n; i++) {
        uint32_t tag = b->tags[i];
        if (i + AHEAD < n) MD_PREFETCH_WRITE(&keys->slots[b->tags[i + AHEAD] >> (32 - keys->bits)]);
        size_t mask = ((size_t)1 << keys->bits) - 1, at = tag >> (32 - keys->bits);
        for (;; at = (at + 1) & mask) {
            uint64_t slot = keys->slots[at];
            if (slot == 0) {
                if (!insert) {
                    ids[i] = -1;
                    break;
                }
                int64_t id = append_group(keys, b, i);
                if (id < 0) return MD_NOMEM;
                ids[i] = (int32_t)id;
                keys->slots[at] = (uint64_t)tag << 32 | (uint64_t)(id + 1);
                if ((INT64_C(1) << keys->bits) < 2 * (id + 2) && grow_slots(keys, id + 2) != MD_OK) return MD_NOMEM;
                break;
            }
            if ((uint32_t)(slot >> 32) != tag) continue;
            int64_t id = (int64_t)(uint32_t)slot - 1;
            if (one_word ? keys->columns[0].words[id] == words[i] : row_equals(keys, b, i, id)) {
                ids[i] = (int32_t)id;
                break;
            }
        }
    }
    return MD_OK;
}

/* ---- the direct table ---- */

/* Give up the direct table: all groups go into slots. */
static md_rc move_to_slots(md_keys *keys) {
    md_rc rc = grow_slots(keys, keys->count + 1);
    if (rc != MD_OK) return rc;
    for (int64_t id = 0; id < keys->count; id++)
        slot_put(keys->slots, keys->bits, (uint64_t)stored_tag(keys, id) << 32 | (uint64_t)(id + 1));
    md_free(keys->direct);
    keys->direct = NULL;
    keys->direct_size = 0;
    keys->hashed = true;
    return MD_OK;
}

/* Make the direct table cover these words too, or give it up when the range is too wide for `room`. */
static md_rc widen_direct(md_keys *keys, const uint64_t *words, int64_t n, int64_t room) {
    uint64_t bias = keys->columns[0].type == MD_I64 ? UINT64_C(1) << 63 : 0; /* so that unsigned order is value order */
    uint64_t low = UINT64_MAX, high = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t w = words[i] ^ bias;
        low = w < low ? w : low;
        high = w > high ? w : high;
    }
    if (keys->direct != NULL && keys->count != 0) {
        uint64_t base = keys->direct_base ^ bias, last = base + (keys->direct_size - 1);
        low = base < low ? base : low;
        high = last > high ? last : high;
    }
    uint64_t limit = (uint64_t)(room > DIRECT_LIMIT ? room : DIRECT_LIMIT);
    if (high - low >= limit) return move_to_slots(keys);
    size_t size = (size_t)(high - low) + 1, wanted = size + size / 2;
    if (wanted < DIRECT_FIRST) wanted = DIRECT_FIRST;
    /* The spare room goes to both ends, as far as numbers reach. */
    uint64_t below = (wanted - size) / 2;
    if (below > low) below = low;
    low -= below;
    if (wanted - 1 > UINT64_MAX - low) wanted = (size_t)(UINT64_MAX - low) + 1;
    uint32_t *direct = md_calloc(wanted, sizeof *direct);
    if (direct == NULL) return MD_NOMEM;
    for (int64_t id = 0; id < keys->count; id++) direct[(keys->columns[0].words[id] ^ bias) - low] = (uint32_t)id + 1;
    md_free(keys->direct);
    keys->direct = direct;
    keys->direct_base = low ^ bias;
    keys->direct_size = wanted;
    return MD_OK;
}

/* Words minus base wraps the same way for signed and unsigned. Rows done, or -1 without memory; fewer
 * than n: the next row's key is outside the table. */
static int64_t map_direct(md_keys *keys, const block *b, int64_t n, bool insert, int32_t *ids) {
    const uint64_t *words = b->words[0];
    uint32_t *direct = keys->direct;
    uint64_t base = keys->direct_base, size = keys->direct_size;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = words[i] - base;
        if (MD_UNLIKELY(at >= size)) {
            if (insert) return i;
            ids[i] = -1;
            continue;
        }
        uint32_t id = direct[at];
        if (MD_UNLIKELY(id == 0) && insert) {
            if (append_group(keys, b, i) < 0) return -1;
            id = direct[at] = (uint32_t)keys->count;
        }
        ids[i] = (int32_t)id - 1;
    }
    return n;
}

static md_rc map_some(md_keys *keys, const source *s, int64_t n, bool insert, int32_t *ids) {
    block b;
    for (int64_t from = 0; from < n;) {
        int64_t m = n - from < MD_KEYS_BLOCK ? n - from : MD_KEYS_BLOCK;
        block_fill(keys, s, from, m, &b);
        if (!keys->hashed && b.nulls[0] != NULL && memchr(b.nulls[0], 1, (size_t)m) != NULL) {
            md_rc rc = move_to_slots(keys); /* the direct table has no place for null */
            if (rc != MD_OK) return rc;
        }
        if (!keys->hashed) {
            b.nulls[0] = NULL;
            int64_t done = keys->direct != NULL ? map_direct(keys, &b, m, insert, ids + from) : 0;
            if (done < 0) return MD_NOMEM;
            from += done;
            if (done == m) continue;
            int64_t room = keys->count == 0 ? 4 * n : 8 * keys->count;
            md_rc rc = widen_direct(keys, b.words[0] + done, m - done, room);
            if (rc != MD_OK) return rc;
            continue; /* the rest of the block, anew */
        }
        if (keys->slots == NULL) {
            md_rc rc = grow_slots(keys, 16);
            if (rc != MD_OK) return rc;
        }
        bool one_word = keys->n_columns == 1 && b.words[0] != NULL && b.nulls[0] == NULL &&
                        keys->columns[0].validity == NULL;
        md_rc rc = one_word ? map_block(keys, &b, m, insert, true, ids + from)
                            : map_block(keys, &b, m, insert, false, ids + from);
        if (rc != MD_OK) return rc;
        from += m;
    }
    return MD_OK;
}

static md_rc map_source(md_keys *keys, const source *s, int64_t n, bool insert, int32_t *ids) {
    int64_t before = keys->count;
    if (n == 0) return MD_OK;
    if (keys->n_columns == 0) {
        if (before == 0 && insert) {
            block b = {.from = s};
            if (append_group(keys, &b, 0) < 0) return MD_NOMEM;
        }
        for (int64_t i = 0; i < n; i++) ids[i] = keys->count != 0 ? 0 : -1;
        return MD_OK;
    }
    md_rc rc = map_some(keys, s, n, insert, ids);
    if (rc != MD_OK) md_keys_truncate(keys, before);
    return rc;
}

md_rc md_keys_map(md_keys *keys, const md_column *columns, const uint32_t *rows, int64_t start, int64_t n,
                  int64_t position, bool insert, int32_t *ids) {
    source s = {.columns = columns, .rows = rows, .start = start, .position = position};
    return map_source(keys, &s, n, insert, ids);
}

md_rc md_keys_map_keys(md_keys *keys, const md_keys *other, int64_t start, int64_t n, int32_t *ids) {
    source s = {.start = start, .other = other};
    return map_source(keys, &s, n, true, ids);
}

/* ---- forgetting, comparing ---- */

void md_keys_truncate(md_keys *keys, int64_t count) {
    if (count >= keys->count) return;
    if (keys->direct != NULL) {
        /* Without the words they were given away, and the whole table has to be wiped. */
        if (count == 0 && ((size_t)keys->count > keys->direct_size / 8 || keys->columns[0].words == NULL)) {
            memset(keys->direct, 0, keys->direct_size * sizeof *keys->direct);
        } else {
            for (int64_t id = count; id < keys->count; id++)
                keys->direct[keys->columns[0].words[id] - keys->direct_base] = 0;
        }
    }
    keys->count = count;
    if (keys->slots != NULL) {
        memset(keys->slots, 0, sizeof *keys->slots << keys->bits);
        for (int64_t id = 0; id < count; id++)
            slot_put(keys->slots, keys->bits, (uint64_t)stored_tag(keys, id) << 32 | (uint64_t)(id + 1));
    }
}

void md_keys_reset(md_keys *keys) {
    int64_t count = keys->count;
    if (keys->slots != NULL && (INT64_C(1) << keys->bits) > 64 && (INT64_C(1) << keys->bits) > 16 * count) {
        md_free(keys->slots); /* many more than the last pane needed */
        keys->slots = NULL;
    }
    md_keys_truncate(keys, 0);
    for (int32_t k = 0; k < keys->n_columns; k++) {
        md_free(keys->columns[k].validity);
        keys->columns[k].validity = NULL;
    }
}

static int compare_column(const md_key_column *c, int64_t a, int64_t b) {
    bool null_a = md_key_null(c, a), null_b = md_key_null(c, b);
    if (null_a || null_b) return null_a ? (null_b ? 0 : -1) : 1;
    if (md_type_is_text(c->type)) {
        size_t size_a = (size_t)(c->offsets[a + 1] - c->offsets[a]), size_b = (size_t)(c->offsets[b + 1] - c->offsets[b]);
        int order = memcmp(c->data + c->offsets[a], c->data + c->offsets[b], size_a < size_b ? size_a : size_b);
        if (order != 0) return order < 0 ? -1 : 1;
        return (size_a > size_b) - (size_a < size_b);
    }
    uint64_t va = c->words[a], vb = c->words[b];
    if (c->type == MD_F64) {
        double da = md_load_f64(&va), db = md_load_f64(&vb);
        if (da != da || db != db) return (da != da) - (db != db);
        return (da > db) - (da < db);
    }
    if (c->type == MD_I64) return ((int64_t)va > (int64_t)vb) - ((int64_t)va < (int64_t)vb);
    return (va > vb) - (va < vb);
}

int md_keys_compare(const md_keys *keys, int64_t a, int64_t b) {
    for (int32_t k = 0; k < keys->n_columns; k++) {
        int order = compare_column(&keys->columns[k], a, b);
        if (order != 0) return order;
    }
    return 0;
}

size_t md_keys_nbytes(const md_keys *keys) {
    size_t n = sizeof *keys + (size_t)keys->n_columns * (sizeof *keys->columns + MD_KEYS_BLOCK * 9);
    n += (size_t)keys->capacity * sizeof *keys->first + keys->direct_size * sizeof *keys->direct;
    if (keys->slots != NULL) n += sizeof *keys->slots << keys->bits;
    for (int32_t k = 0; k < keys->n_columns; k++) {
        const md_key_column *c = &keys->columns[k];
        n += (size_t)keys->capacity * (md_type_is_text(c->type) ? sizeof *c->offsets : sizeof *c->words);
        n += c->data_capacity + (c->validity != NULL ? (size_t)(keys->capacity + 7) / 8 : 0);
    }
    return n;
}
