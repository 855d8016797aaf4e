#include "keys/split.h"

#include "base/hash.h"
#include "keys/keys.h"
#include "base/md_alloc.h"
#include "arrow/take.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BLOCK 512
#define NULL_MIX 0x8ebc6af1u
#define MIX 0x9e3779b1u

typedef struct chunk_info {
    int64_t least, largest;
    uint16_t counts[MD_SPLIT_PARTS_MAX];
} chunk_info;

struct md_split {
    int32_t n_keys, n_parts, first_key;
    md_type types[MD_KEYS_COLUMNS_MAX];
    md_column *views;
    int64_t views_capacity;
    uint64_t lanes[256]; /* the numbers of the bits that are set in the index, a byte each; for halve_avx2 */
    int64_t n, n_chunks;
    uint32_t *lists; /* [(part * n_chunks + chunk) * MD_SPLIT_CHUNK] */
    int64_t lists_capacity;
    chunk_info *infos;
    int64_t infos_capacity;
};

md_rc md_split_new(const md_type *keys, int32_t n_keys, int32_t n_parts, md_split **out, md_error *err) {
    if (n_keys < 1 || n_keys > MD_KEYS_COLUMNS_MAX || n_parts < 1 || n_parts > MD_SPLIT_PARTS_MAX)
        return md_fail(err, MD_BADARG, "%d keys, %d parts: 1 to %d and 1 to %d", n_keys, n_parts, MD_KEYS_COLUMNS_MAX,
                       MD_SPLIT_PARTS_MAX);
    for (int32_t k = 0; k < n_keys; k++)
        if (keys[k] == 0 || strchr("lLgbuz", (char)keys[k]) == NULL)
            return md_fail(err, MD_BADARG, "key %d is not of a native type", k);
    md_split *s = md_calloc(1, sizeof *s);
    if (s == NULL) return md_nomem(err);
    s->n_keys = n_keys;
    s->n_parts = n_parts;
    for (int32_t k = 0; k < n_keys; k++) s->types[k] = keys[k];
    for (uint32_t mask = 0; mask < 256; mask++) {
        uint8_t lanes[8] = {0};
        for (uint32_t i = 0, n = 0; i < 8; i++)
            if (mask >> i & 1) lanes[n++] = (uint8_t)i;
        memcpy(&s->lanes[mask], lanes, 8);
    }
    *out = s;
    return MD_OK;
}

void md_split_free(md_split *s) {
    if (s == NULL) return;
    md_free(s->views);
    md_free(s->lists);
    md_free(s->infos);
    md_free(s);
}

static bool room(void *block_pointer, int64_t *capacity, int64_t count, size_t element) {
    size_t size;
    void *block;
    if (count <= *capacity) return true;
    if (!md_mul_size((size_t)count, element, &size) || (block = md_malloc(size)) == NULL) return false;
    void *old;
    memcpy(&old, block_pointer, sizeof old);
    md_free(old);
    memcpy(block_pointer, &block, sizeof block);
    *capacity = count;
    return true;
}

md_rc md_split_begin(md_split *s, const struct ArrowSchema *schema, const struct ArrowArray *array,
                     int32_t first_key, md_error *err) {
    int64_t n, width = schema->release != NULL ? schema->n_children : 0;
    s->n = s->n_chunks = 0;
    if (first_key < 1 || width < first_key + s->n_keys) return md_fail(err, MD_BADARG, "a batch without the keys");
    if (!room(&s->views, &s->views_capacity, width, sizeof *s->views)) return md_nomem(err);
    md_rc rc = md_columns_view(schema, array, width, s->views, &n, err);
    if (rc != MD_OK) return rc;
    if (s->views[0].type != MD_I64 || md_column_nulls(&s->views[0]) != 0)
        return md_fail(err, MD_BADARG, "the first column must be times without nulls");
    for (int32_t k = 0; k < s->n_keys; k++) {
        md_column *c = &s->views[first_key + k];
        if (c->type != s->types[k])
            return md_fail(err, MD_BADARG, "key %d is of type '%c', expected '%c'", k, (char)c->type, (char)s->types[k]);
        if (c->validity != NULL && md_column_nulls(c) == 0) c->validity = NULL;
    }
    if (n > UINT32_MAX) return md_fail(err, MD_BADARG, "more than 2^32 rows at once");
    int64_t chunks = (n + MD_SPLIT_CHUNK - 1) / MD_SPLIT_CHUNK;
    if (!room(&s->lists, &s->lists_capacity, chunks * s->n_parts, MD_SPLIT_CHUNK * sizeof *s->lists) ||
        !room(&s->infos, &s->infos_capacity, chunks, sizeof *s->infos))
        return md_nomem(err);
    s->first_key = first_key;
    s->n = n;
    s->n_chunks = chunks;
    return MD_OK;
}

int64_t md_split_chunks(const md_split *s) { return s->n_chunks; }
int64_t md_split_length(const md_split *s) { return s->n; }

const uint32_t *md_split_rows(const md_split *s, int32_t part, int64_t chunk, int64_t *n) {
    *n = s->infos[chunk].counts[part];
    return s->lists + ((int64_t)part * s->n_chunks + chunk) * MD_SPLIT_CHUNK;
}

void md_split_extent(const md_split *s, int64_t chunk, int64_t *least, int64_t *largest) {
    *least = s->infos[chunk].least;
    *largest = s->infos[chunk].largest;
}

/* ---- loops that have a faster form on some machines: the same C, compiled twice ---- */

MD_INLINE uint32_t mixed(uint32_t h, uint64_t word) { return (h ^ (uint32_t)word ^ (uint32_t)(word >> 32)) * MIX; }

MD_INLINE void mix_words_body(uint32_t *restrict h, const uint8_t *restrict values, int64_t n) {
    for (int64_t i = 0; i < n; i++) h[i] = mixed(h[i], md_load_u64(values + 8 * i));
}

MD_INLINE void extent_body(const uint8_t *times, int64_t n, int64_t *least, int64_t *largest) {
    int64_t low = md_load_i64(times), high = low;
    for (int64_t i = 1; i < n; i++) {
        int64_t t = md_load_i64(times + 8 * i);
        low = t < low ? t : low;
        high = t > high ? t : high;
    }
    *least = low;
    *largest = high;
}

/* To the parts 0 .. n_parts - 1, as alike as the hashes are. */
MD_INLINE uint32_t part_of(uint32_t h, uint32_t n_parts) { return (uint32_t)(((uint64_t)(h ^ h >> 15) * n_parts) >> 32); }

static void mix_words_baseline(uint32_t *h, const uint8_t *values, int64_t n) { mix_words_body(h, values, n); }
static void extent_baseline(const uint8_t *times, int64_t n, int64_t *least, int64_t *largest) {
    extent_body(times, n, least, largest);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) static void mix_words_avx2(uint32_t *h, const uint8_t *values, int64_t n) {
    mix_words_body(h, values, n);
}
__attribute__((target("avx2"))) static void extent_avx2(const uint8_t *times, int64_t n, int64_t *least,
                                                        int64_t *largest) {
    extent_body(times, n, least, largest);
}

/* Rows row .. row + n by the top bit of their mixed hashes, eight at a time (Lemire's "despacing" by table); n is a
 * multiple of 8. Up to eight entries beyond each end are overwritten: they lie in the room of the chunk, as no
 * list is longer than the rows looked at. */
__attribute__((target("avx2"))) static void halve_avx2(const uint32_t *h, const uint64_t *lanes, uint32_t row, int64_t n,
                                                       uint32_t **first, uint32_t **second) {
    uint32_t *a = *first, *b = *second;
    __m256i rows = _mm256_set1_epi32((int)row);
    for (int64_t i = 0; i < n; i += 8) {
        __m256i hashes = _mm256_loadu_si256((const __m256i *)(const void *)(h + i));
        hashes = _mm256_xor_si256(hashes, _mm256_srli_epi32(hashes, 15));
        uint32_t mask = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(hashes)), other = ~mask & 0xff;
        __m256i of_b = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lanes[mask]));
        __m256i of_a = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)lanes[other]));
        _mm256_storeu_si256((__m256i *)(void *)a, _mm256_add_epi32(rows, of_a));
        _mm256_storeu_si256((__m256i *)(void *)b, _mm256_add_epi32(rows, of_b));
        uint32_t count = (uint32_t)__builtin_popcount(mask);
        a += 8 - count;
        b += count;
        rows = _mm256_add_epi32(rows, _mm256_set1_epi32(8));
    }
    *first = a;
    *second = b;
}
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#else
#define HAS_AVX2 false
#define halve_avx2(h, lanes, row, n, first, second) ((void)(lanes))
#define mix_words_avx2 mix_words_baseline
#define extent_avx2 extent_baseline
#endif

/* ---- one chunk ---- */

static void mix_column(const md_column *c, int64_t start, int64_t n, uint32_t *h) {
    if (c->validity == NULL && (c->type == MD_I64 || c->type == MD_U64)) {
        const uint8_t *values = c->values + 8 * start;
        if (HAS_AVX2) mix_words_avx2(h, values, n);
        else mix_words_baseline(h, values, n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t row = start + i;
        uint32_t size;
        if (md_column_null(c, row)) {
            h[i] = (h[i] ^ NULL_MIX) * MIX;
        } else if (md_type_is_text(c->type)) {
            const uint8_t *bytes = md_column_bytes(c, row, &size);
            h[i] = mixed(h[i], md_hash_bytes(MD_HASH_A, bytes, size));
        } else if (c->type == MD_BOOL) {
            h[i] = mixed(h[i], md_column_bool(c, row));
        } else {
            h[i] = mixed(h[i], c->type == MD_F64 ? md_canonical(md_column_f64(c, row)) : (uint64_t)md_column_i64(c, row));
        }
    }
}

static void split_chunk(md_split *s, int64_t chunk) {
    int64_t start = chunk * MD_SPLIT_CHUNK, left = s->n - start, n = left < MD_SPLIT_CHUNK ? left : MD_SPLIT_CHUNK;
    chunk_info *info = &s->infos[chunk];
    uint32_t *lists[MD_SPLIT_PARTS_MAX], *ends[MD_SPLIT_PARTS_MAX], h[BLOCK];
    for (int32_t p = 0; p < s->n_parts; p++)
        lists[p] = ends[p] = s->lists + ((int64_t)p * s->n_chunks + chunk) * MD_SPLIT_CHUNK;
    const uint8_t *times = s->views[0].values + 8 * start;
    if (HAS_AVX2) extent_avx2(times, n, &info->least, &info->largest);
    else extent_baseline(times, n, &info->least, &info->largest);
    for (int64_t from = 0; from < n; from += BLOCK) {
        int64_t m = n - from < BLOCK ? n - from : BLOCK;
        memset(h, 0, sizeof h);
        for (int32_t k = 0; k < s->n_keys; k++) mix_column(&s->views[s->first_key + k], start + from, m, h);
        uint32_t row = (uint32_t)(start + from);
        if (s->n_parts == 2) { /* the usual number, without counters in memory */
            uint32_t *a = ends[0], *b = ends[1];
            int64_t i = 0;
            if (HAS_AVX2) {
                i = m / 8 * 8;
                halve_avx2(h, s->lanes, row, i, &a, &b);
                row += (uint32_t)i;
            }
            for (; i < m; i++, row++) {
                uint32_t second = part_of(h[i], 2);
                *a = *b = row; /* to both lists, in which there is room; one keeps it */
                a += 1 - second;
                b += second;
            }
            ends[0] = a;
            ends[1] = b;
        } else {
            for (int64_t i = 0; i < m; i++, row++) *ends[part_of(h[i], (uint32_t)s->n_parts)]++ = row;
        }
    }
    for (int32_t p = 0; p < s->n_parts; p++) info->counts[p] = (uint16_t)(ends[p] - lists[p]);
}

void md_split_run(md_split *s, int64_t from, int64_t to) {
    for (int64_t chunk = from; chunk < to; chunk++) split_chunk(s, chunk);
}

md_rc md_split_take(const md_split *s, const struct ArrowSchema *schema, const struct ArrowArray *array, int32_t part,
                    int64_t first, struct ArrowSchema *out_schema, struct ArrowArray *out, struct ArrowArray *numbers,
                    md_error *err) {
    int64_t total = 0, m, at = 0;
    if (array->length != s->n) return md_fail(err, MD_BADARG, "the rows of another batch are split");
    md_rc rc = md_chunk_check(schema, array, err);
    if (rc != MD_OK) return rc;
    for (int64_t chunk = 0; chunk < s->n_chunks; chunk++) total += s->infos[chunk].counts[part];
    size_t width = (size_t)schema->n_children;
    int64_t *list = md_malloc((size_t)total * sizeof *list);
    int32_t *columns = md_malloc(width * sizeof *columns);
    if (list != NULL && columns != NULL) {
        for (int64_t chunk = 0; chunk < s->n_chunks; chunk++) {
            const uint32_t *rows = md_split_rows(s, part, chunk, &m);
            for (int64_t i = 0; i < m; i++) list[at++] = first + rows[i];
        }
        for (size_t k = 0; k < width; k++) columns[k] = (int32_t)k;
        md_chunk chunk = {.array = array, .first = first};
        rc = md_take_rows(schema, &chunk, 1, columns, (int32_t)width, list, total, out_schema, out, err);
        if (rc == MD_OK && md_array_of(numbers, total, 0, NULL, list) != MD_OK) {
            md_schema_release(out_schema);
            md_array_release(out);
            rc = md_nomem(err);
        }
    } else {
        rc = md_nomem(err);
    }
    if (rc != MD_OK) md_free(list);
    md_free(columns);
    return rc;
}
