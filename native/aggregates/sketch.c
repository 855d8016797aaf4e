#include "aggregates/sketch.h"

#include "base/md_alloc.h"

md_rc md_distinct_new(md_type type, uint64_t seed, md_distinct **out) {
    md_distinct *set = md_calloc(1, sizeof *set);
    if (set == NULL) return MD_NOMEM;
    md_type types[2] = {MD_I64, type};
    md_rc rc = md_keys_new(types, 2, seed, &set->keys);
    if (rc != MD_OK) {
        md_free(set);
        return rc;
    }
    set->type = type;
    *out = set;
    return MD_OK;
}

void md_distinct_free(md_distinct *set) {
    if (set == NULL) return;
    md_keys_free(set->keys);
    md_free(set);
}

/* The same column from row `start` on. */
static md_column advanced(const md_column *c, int64_t start) {
    md_column out = *c;
    out.length -= start;
    out.shift += start;
    if (md_type_is_text(c->type)) out.offsets += 4 * start;
    else if (c->type != MD_BOOL) out.values += 8 * start;
    return out;
}

md_rc md_distinct_add(md_distinct *set, const int32_t *ids, const md_column *column, const uint32_t *rows,
                      int64_t start, int64_t n, md_distinct_scratch *scratch) {
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = rows != NULL ? (int64_t)rows[i] - start : i;
        scratch->groups[at] = ids[i];
        scratch->rows[m] = (uint32_t)at;
        m += column->validity == NULL || md_bit(column->validity, column->shift + start + at);
    }
    md_column columns[2] = {{.type = MD_I64, .length = MD_CHUNK, .values = (const uint8_t *)scratch->groups},
                            advanced(column, start)};
    /* The positions of entries only have to ascend; what they count is nobody's business. */
    return md_keys_map(set->keys, columns, scratch->rows, 0, m, 0, true, scratch->entries);
}

md_rc md_distinct_merge(md_distinct *set, const md_distinct *other, const int32_t *map, int32_t *entries,
                        md_distinct_scratch *scratch) {
    const md_keys *from = other->keys;
    const md_key_column *values = &from->columns[1];
    int64_t before = set->keys->count;
    for (int64_t start = 0; start < from->count; start += MD_CHUNK) {
        int64_t n = from->count - start < MD_CHUNK ? from->count - start : MD_CHUNK;
        for (int64_t i = 0; i < n; i++) scratch->groups[i] = map[from->columns[0].words[start + i]];
        md_column columns[2] = {{.type = MD_I64, .length = n, .values = (const uint8_t *)scratch->groups},
                                {.type = set->type, .length = n}};
        uint8_t bits[MD_CHUNK / 8];
        if (md_type_is_text(set->type)) {
            columns[1].offsets = (const uint8_t *)(values->offsets + start);
            columns[1].data = values->data;
        } else if (set->type == MD_BOOL) {
            memset(bits, 0, sizeof bits);
            for (int64_t i = 0; i < n; i++)
                if (values->words[start + i]) md_bit_set(bits, i);
            columns[1].values = bits;
        } else {
            columns[1].values = (const uint8_t *)(values->words + start);
        }
        md_rc rc = md_keys_map(set->keys, columns, NULL, 0, n, 0, true,
                               entries != NULL ? entries + start : scratch->entries);
        if (rc != MD_OK) {
            md_keys_truncate(set->keys, before);
            return rc;
        }
    }
    return MD_OK;
}

/* One value into the set; *entry as md_keys_map gives it. */
static md_rc add_one(md_distinct *set, int64_t group, const uint8_t *bytes, uint32_t size, bool fresh, md_error *err) {
    int32_t offsets[2] = {0, (int32_t)size}, entry;
    uint8_t bit = 0;
    md_column columns[2] = {{.type = MD_I64, .length = 1, .values = (const uint8_t *)&group},
                            {.type = set->type, .length = 1}};
    if (md_type_is_text(set->type)) {
        columns[1].offsets = (const uint8_t *)offsets;
        columns[1].data = bytes;
    } else if (set->type == MD_BOOL) {
        if (md_load_u64(bytes) > 1) return md_fail(err, MD_BADDATA, "a packed set of bool holds another value");
        bit = (uint8_t)md_load_u64(bytes);
        columns[1].values = &bit;
    } else {
        if (set->type == MD_F64 && md_canonical(md_load_f64(bytes)) != md_load_u64(bytes))
            return md_fail(err, MD_BADDATA, "a packed set holds a float that is not canonical");
        columns[1].values = bytes;
    }
    int64_t before = set->keys->count;
    md_rc rc = md_keys_map(set->keys, columns, NULL, 0, 1, 0, true, &entry);
    if (rc != MD_OK) return md_fail(err, rc, "out of memory");
    if (fresh && entry < before) return md_fail(err, MD_BADDATA, "a packed set holds a value twice");
    return MD_OK;
}

md_rc md_distinct_unpack(md_distinct *set, int64_t group, const uint8_t *bytes, size_t size, bool fresh,
                         md_error *err) {
    int64_t before = set->keys->count;
    md_rc rc = MD_OK;
    for (size_t at = 0; rc == MD_OK && at < size;) {
        uint32_t length = 8;
        if (md_type_is_text(set->type)) {
            if (size - at < 4) {
                rc = md_fail(err, MD_BADDATA, "a packed set ends within a length");
                break;
            }
            length = md_load_u32(bytes + at);
            at += 4;
        }
        if (length > INT32_MAX || size - at < length) {
            rc = md_fail(err, MD_BADDATA, "a packed set ends within a value");
            break;
        }
        rc = add_one(set, group, bytes + at, length, fresh, err);
        at += length;
    }
    if (rc != MD_OK) md_keys_truncate(set->keys, before);
    return rc;
}

void md_distinct_count(const md_distinct *set, int64_t groups, md_word *counts) {
    memset(counts, 0, (size_t)groups * sizeof *counts);
    for (int64_t e = 0; e < set->keys->count; e++) counts[set->keys->columns[0].words[e]].i++;
}

/* Entries grouped by their group, each group's in order: entry list[begin[g]] .. list[begin[g + 1] - 1]. */
static int64_t *sort_by_group(const md_distinct *set, int64_t groups) {
    int64_t entries = set->keys->count;
    int64_t *begin = md_calloc((size_t)(groups + 2 + entries), sizeof *begin);
    if (begin == NULL) return NULL;
    const uint64_t *group = set->keys->columns[0].words;
    int64_t *list = begin + groups + 2;
    for (int64_t e = 0; e < entries; e++) begin[group[e] + 2]++;
    for (int64_t g = 0; g < groups; g++) begin[g + 2] += begin[g + 1];
    for (int64_t e = 0; e < entries; e++) list[begin[group[e] + 1]++] = e;
    return begin;
}

static size_t packed_size(const md_distinct *set, const int64_t *list, int64_t from, int64_t to) {
    if (!md_type_is_text(set->type)) return 8 * (size_t)(to - from);
    const int32_t *offsets = set->keys->columns[1].offsets;
    size_t size = 4 * (size_t)(to - from);
    for (int64_t k = from; k < to; k++) size += (size_t)(offsets[list[k] + 1] - offsets[list[k]]);
    return size;
}

static void pack_group(const md_distinct *set, const int64_t *list, int64_t from, int64_t to, uint8_t *out) {
    const md_key_column *c = &set->keys->columns[1];
    for (int64_t k = from; k < to; k++) {
        int64_t e = list[k];
        if (md_type_is_text(set->type)) {
            uint32_t size = (uint32_t)(c->offsets[e + 1] - c->offsets[e]);
            memcpy(out, &size, 4);
            memcpy(out + 4, c->data + c->offsets[e], size);
            out += 4 + size;
        } else {
            memcpy(out, &c->words[e], 8);
            out += 8;
        }
    }
}

md_rc md_distinct_pack(const md_distinct *set, int64_t groups, const int32_t *order, int64_t n, md_rows *rows,
                       int32_t column) {
    int64_t *begin = sort_by_group(set, groups);
    if (begin == NULL) return MD_NOMEM;
    const int64_t *list = begin + groups + 2;
    uint8_t *buffer = NULL;
    size_t capacity = 0;
    md_rc rc = MD_OK;
    for (int64_t k = 0; rc == MD_OK && k < n; k++) {
        int64_t g = order != NULL ? order[k] : k;
        size_t size = packed_size(set, list, begin[g], begin[g + 1]);
        if (size > capacity) {
            md_free(buffer);
            buffer = md_malloc(2 * size);
            capacity = buffer != NULL ? 2 * size : 0;
            if (buffer == NULL) rc = MD_NOMEM;
        }
        if (rc != MD_OK) break;
        pack_group(set, list, begin[g], begin[g + 1], buffer);
        rc = md_rows_put_bytes(rows, column, k, buffer, size);
    }
    md_free(buffer);
    md_free(begin);
    return rc;
}
