#include "aggregates/sketch_kinds.h"

#include <math.h>

#include "keys/keys.h"

#define HASHES_MAX (8 * (size_t)MD_HLL_SPARSE)
#define ENTRY 16 /* of buckets: int64 bucket, uint64 count */
#define NAN_BUCKET INT64_MAX

static uint64_t word_at(const uint8_t *bytes, size_t i) { return md_load_u64(bytes + 8 * i); }
static void put_word(uint8_t *bytes, size_t i, uint64_t word) { memcpy(bytes + 8 * i, &word, 8); }

/* ---- room ---- */

/* The most that n more bytes can need. */
static size_t bound(md_cell kind, size_t size, size_t more) {
    size_t whole = 0;
    if (!md_add_size(size, more, &whole)) return SIZE_MAX;
    if (kind == MD_CELL_HLL) return whole > HASHES_MAX ? MD_HLL_REGISTERS : whole;
    if (kind == MD_CELL_BUCKETS && whole > 8 + (size_t)ENTRY * MD_BUCKETS_MAX) return 8 + (size_t)ENTRY * MD_BUCKETS_MAX;
    return whole;
}

static md_rc promise(md_cell kind, md_blob **blob, size_t more) {
    size_t size = *blob != NULL ? (*blob)->size : 0, promised = *blob != NULL ? (*blob)->promised : 0;
    if (!md_add_size(promised, more, &promised)) return MD_NOMEM;
    if (kind == MD_CELL_BUCKETS && size == 0) size = 8; /* its resolution */
    md_rc rc = md_blob_room(blob, bound(kind, size, promised));
    if (rc == MD_OK) (*blob)->promised = promised;
    return rc;
}

static void keep_promise(md_blob *blob, size_t used) { blob->promised -= used < blob->promised ? used : blob->promised; }

md_rc md_sketch_room(md_cell kind, md_blob **blob) { return promise(kind, blob, kind == MD_CELL_BUCKETS ? ENTRY : 8); }

md_rc md_sketch_room_merge(md_cell kind, md_blob **blob, size_t size) { return promise(kind, blob, size); }

/* ---- distinct values, about ---- */

static bool is_dense(const md_blob *blob) { return blob->size == MD_HLL_REGISTERS; }

static void raise_register(uint8_t *registers, uint64_t hash) {
    uint64_t rest = hash << MD_HLL_BITS;
    uint8_t rank = (uint8_t)(rest != 0 ? __builtin_clzll(rest) + 1 : 64 - MD_HLL_BITS + 1);
    uint8_t *r = registers + (hash >> (64 - MD_HLL_BITS));
    if (rank > *r) *r = rank;
}

static void make_dense(md_blob *blob) {
    uint8_t hashes[HASHES_MAX];
    size_t n = blob->size / 8;
    memcpy(hashes, blob->bytes, blob->size);
    memset(blob->bytes, 0, MD_HLL_REGISTERS);
    for (size_t i = 0; i < n; i++) raise_register(blob->bytes, word_at(hashes, i));
    blob->size = MD_HLL_REGISTERS;
}

static void hll_take(md_blob *blob, uint64_t hash) {
    if (!is_dense(blob)) {
        size_t low = 0, n = blob->size / 8, high = n;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (word_at(blob->bytes, middle) < hash) low = middle + 1;
            else high = middle;
        }
        if (low < n && word_at(blob->bytes, low) == hash) return;
        if (n < MD_HLL_SPARSE) {
            memmove(blob->bytes + 8 * (low + 1), blob->bytes + 8 * low, 8 * (n - low));
            put_word(blob->bytes, low, hash);
            blob->size += 8;
            return;
        }
        make_dense(blob);
    }
    raise_register(blob->bytes, hash);
}

void md_hll_add(md_blob *blob, uint64_t hash) {
    hll_take(blob, hash);
    keep_promise(blob, 8);
}

static void hll_merge(md_blob *blob, const uint8_t *bytes, size_t size) {
    if (size != MD_HLL_REGISTERS) {
        for (size_t i = 0; i < size / 8; i++) hll_take(blob, word_at(bytes, i));
        return;
    }
    if (!is_dense(blob)) make_dense(blob);
    for (size_t i = 0; i < MD_HLL_REGISTERS; i++)
        if (bytes[i] > blob->bytes[i]) blob->bytes[i] = bytes[i];
}

/* Ertl's sigma and tau: sums until a term changes nothing. */
static double sigma(double x) {
    if (x == 1) return INFINITY;
    double y = 1, z = x, before;
    do {
        x *= x;
        before = z;
        z += x * y;
        y += y;
    } while (z != before);
    return z;
}

static double tau(double x) {
    if (x == 0 || x == 1) return 0;
    double y = 1, z = 1 - x, before;
    do {
        x = sqrt(x);
        before = z;
        y *= 0.5;
        z -= (1 - x) * (1 - x) * y;
    } while (z != before);
    return z / 3;
}

int64_t md_hll_count(const md_blob *blob) {
    enum { Q = 64 - MD_HLL_BITS };
    const double m = MD_HLL_REGISTERS;
    if (blob == NULL) return 0;
    if (!is_dense(blob)) return (int64_t)(blob->size / 8);
    int32_t counts[Q + 2] = {0};
    for (size_t i = 0; i < MD_HLL_REGISTERS; i++) counts[blob->bytes[i]]++;
    double z = m * tau(1 - counts[Q + 1] / m);
    for (int k = Q; k >= 1; k--) z = 0.5 * (z + counts[k]);
    z += m * sigma(counts[0] / m);
    return (int64_t)(0.72134752044448170368 * m * m / z + 0.5); /* 1 / (2 ln 2) */
}

static bool hll_ok(const uint8_t *bytes, size_t size) {
    if (size == MD_HLL_REGISTERS) {
        for (size_t i = 0; i < size; i++)
            if (bytes[i] > 64 - MD_HLL_BITS + 1) return false;
        return true;
    }
    if (size > HASHES_MAX || size % 8 != 0) return false;
    for (size_t i = 1; i < size / 8; i++)
        if (word_at(bytes, i - 1) >= word_at(bytes, i)) return false;
    return true;
}

/* ---- values ---- */

void md_values_add(md_blob *blob, double v) {
    put_word(blob->bytes, blob->size / 8, md_canonical(v));
    blob->size += 8;
    keep_promise(blob, 8);
}

static bool values_ok(const uint8_t *bytes, size_t size) {
    if (size % 8 != 0) return false;
    for (size_t i = 0; i < size / 8; i++)
        if (md_canonical(md_load_f64(bytes + 8 * i)) != word_at(bytes, i)) return false;
    return true;
}

/* Words that compare unsigned as the floats do, NaN (positive, canonical) greatest. */
static uint64_t ordered(uint64_t word) { return word >> 63 ? ~word : word | UINT64_C(1) << 63; }
static double unordered(uint64_t word) {
    uint64_t bits = word >> 63 ? word & ~(UINT64_C(1) << 63) : ~word;
    return md_load_f64(&bits);
}

/* The word of rank r among n: byte by byte from the top, keeping those that may still be it. Never more than
 * eight passes. The words are left in another order, those kept in front. */
static uint64_t select_rank(uint64_t *words, size_t n, size_t r) {
    for (int shift = 56; shift >= 0; shift -= 8) {
        size_t counts[256] = {0}, below = 0, kept = 0;
        for (size_t i = 0; i < n; i++) counts[words[i] >> shift & 255]++;
        unsigned digit = 0;
        while (r >= below + counts[digit]) below += counts[digit++];
        if (counts[digit] < n)
            for (size_t i = 0; i < n; i++) {
                uint64_t w = words[i];
                if ((w >> shift & 255) != digit) continue;
                words[i] = words[kept];
                words[kept++] = w;
            }
        else kept = n;
        n = kept;
        r -= below;
        if (n == 1) break;
    }
    return words[0];
}

static void insertion_sort(uint64_t *words, size_t n) {
    for (size_t i = 1; i < n; i++) {
        uint64_t w = words[i];
        size_t j = i;
        for (; j > 0 && words[j - 1] > w; j--) words[j] = words[j - 1];
        words[j] = w;
    }
}

/* The words of ranks r and r + 1 (or r again, when it is the last). */
static void two_ranks(uint64_t *words, size_t n, size_t r, uint64_t *low, uint64_t *high) {
    if (n <= 32) {
        insertion_sort(words, n);
        *low = words[r];
        *high = words[r + 1 < n ? r + 1 : r];
        return;
    }
    *low = *high = select_rank(words, n, r);
    size_t at_most = 0;
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        if (words[i] <= *low) at_most++;
        else if (words[i] < next) next = words[i];
    }
    if (at_most <= r + 1 && r + 1 < n) *high = next;
}

bool md_values_quantile(const md_blob *blob, double q, uint64_t *scratch, double *out) {
    size_t n = blob != NULL ? blob->size / 8 : 0;
    if (n == 0) return false;
    for (size_t i = 0; i < n; i++) scratch[i] = ordered(word_at(blob->bytes, i));
    double rank = q * (double)(n - 1), below = floor(rank), part = rank - below;
    uint64_t low, high;
    two_ranks(scratch, n, (size_t)below, &low, &high);
    double a = unordered(low), b = unordered(high);
    *out = part == 0 || low == high ? a : a * (1 - part) + b * part;
    return true;
}

/* ---- buckets ---- */

static int64_t bucket_of(double v, uint64_t resolution) {
    uint64_t word = md_canonical(v);
    if (v != v) return NAN_BUCKET;
    int64_t magnitude = (int64_t)((word & ~(UINT64_C(1) << 63)) >> (52 - resolution));
    return word >> 63 ? ~magnitude : magnitude;
}

/* The middle of a bucket; 0 for the one at 0. */
static double bucket_value(int64_t bucket, uint64_t resolution) {
    if (bucket == NAN_BUCKET) return NAN;
    uint64_t magnitude = (uint64_t)(bucket < 0 ? ~bucket : bucket), edge = magnitude << (52 - resolution);
    double low = md_load_f64(&edge), sign = bucket < 0 ? -1 : 1;
    if (magnitude == 0 || isinf(low)) return sign * low + 0.0;
    edge += (UINT64_C(1) << (52 - resolution)) - 1;
    return sign * (low + (md_load_f64(&edge) - low) / 2);
}

static int64_t joined(int64_t bucket, uint64_t by) { return bucket == NAN_BUCKET ? bucket : bucket >> by; }

static int64_t bucket_at(const uint8_t *bytes, size_t i) { return md_load_i64(bytes + 8 + ENTRY * i); }
static uint64_t count_at(const uint8_t *bytes, size_t i) { return md_load_u64(bytes + 16 + ENTRY * i); }
static size_t n_buckets(size_t size) { return size < 8 ? 0 : (size - 8) / ENTRY; }

static void put_entry(uint8_t *bytes, size_t i, int64_t bucket, uint64_t count) {
    memcpy(bytes + 8 + ENTRY * i, &bucket, 8);
    memcpy(bytes + 16 + ENTRY * i, &count, 8);
}

/* Join neighbours: one bit of resolution less. */
static void coarsen(md_blob *blob, uint64_t by) {
    size_t n = n_buckets(blob->size), kept = 0;
    for (size_t i = 0; by > 0 && i < n; i++) {
        int64_t bucket = joined(bucket_at(blob->bytes, i), by);
        uint64_t count = count_at(blob->bytes, i);
        if (kept > 0 && bucket_at(blob->bytes, kept - 1) == bucket) {
            put_entry(blob->bytes, kept - 1, bucket, count_at(blob->bytes, kept - 1) + count);
            continue;
        }
        put_entry(blob->bytes, kept++, bucket, count);
    }
    if (by > 0) blob->size = 8 + ENTRY * kept;
    put_word(blob->bytes, 0, word_at(blob->bytes, 0) - by);
}

static void buckets_start(md_blob *blob, uint64_t resolution) {
    if (blob->size > 0) return;
    blob->size = 8;
    put_word(blob->bytes, 0, resolution);
}

void md_buckets_add(md_blob *blob, double v) {
    buckets_start(blob, MD_BUCKETS_RESOLUTION);
    keep_promise(blob, ENTRY);
    for (;;) {
        int64_t bucket = bucket_of(v, word_at(blob->bytes, 0));
        size_t low = 0, n = n_buckets(blob->size), high = n;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (bucket_at(blob->bytes, middle) < bucket) low = middle + 1;
            else high = middle;
        }
        if (low < n && bucket_at(blob->bytes, low) == bucket) {
            put_entry(blob->bytes, low, bucket, count_at(blob->bytes, low) + 1);
            return;
        }
        if (n == MD_BUCKETS_MAX) { /* at resolution 0 there can't be as many */
            coarsen(blob, 1);
            continue;
        }
        uint8_t *at = blob->bytes + 8 + ENTRY * low;
        memmove(at + ENTRY, at, ENTRY * (n - low));
        put_entry(blob->bytes, low, bucket, 1);
        blob->size += ENTRY;
        return;
    }
}

/* Entries i < n whose bucket, joined, is that of entry `at`; their counts added up. */
static size_t run_of(const uint8_t *bytes, size_t n, size_t at, uint64_t by, int64_t *bucket, uint64_t *count) {
    *bucket = joined(bucket_at(bytes, at), by);
    *count = 0;
    for (; at < n && joined(bucket_at(bytes, at), by) == *bucket; at++) *count += count_at(bytes, at);
    return at;
}

static size_t union_size(const md_blob *blob, const uint8_t *bytes, size_t m, uint64_t by) {
    size_t n = n_buckets(blob->size), i = 0, j = 0, both = 0;
    int64_t b = 0;
    uint64_t count;
    while (i < n || j < m) {
        size_t after = j < m ? run_of(bytes, m, j, by, &b, &count) : j;
        bool mine = i < n && (j >= m || bucket_at(blob->bytes, i) <= b);
        if (j < m && (!mine || bucket_at(blob->bytes, i) == b)) j = after;
        i += mine;
        both++;
    }
    return both;
}

static void buckets_merge(md_blob *blob, const uint8_t *bytes, size_t size) {
    size_t m = n_buckets(size);
    if (m == 0) return;
    uint64_t theirs = word_at(bytes, 0), by = 0;
    buckets_start(blob, theirs);
    uint64_t mine = word_at(blob->bytes, 0);
    if (mine > theirs) coarsen(blob, mine - theirs);
    else by = theirs - mine;
    size_t both;
    while ((both = union_size(blob, bytes, m, by)) > MD_BUCKETS_MAX) {
        coarsen(blob, 1);
        by++;
    }
    /* From the back, where there is room: what is written is never ahead of what is still to be read. */
    size_t i = n_buckets(blob->size), j = m, out = both;
    while (j > 0) {
        int64_t bucket = joined(bucket_at(bytes, j - 1), by);
        while (i > 0 && bucket_at(blob->bytes, i - 1) > bucket) {
            i--;
            put_entry(blob->bytes, --out, bucket_at(blob->bytes, i), count_at(blob->bytes, i));
        }
        uint64_t count = 0;
        for (; j > 0 && joined(bucket_at(bytes, j - 1), by) == bucket; j--) count += count_at(bytes, j - 1);
        if (i > 0 && bucket_at(blob->bytes, i - 1) == bucket) count += count_at(blob->bytes, --i);
        put_entry(blob->bytes, --out, bucket, count);
    }
    blob->size = 8 + ENTRY * both;
}

bool md_buckets_quantile(const md_blob *blob, double q, double *out) {
    size_t n = blob != NULL ? n_buckets(blob->size) : 0;
    uint64_t total = 0, seen = 0;
    for (size_t i = 0; i < n; i++) total += count_at(blob->bytes, i);
    if (total == 0) return false;
    double rank = floor(q * (double)(total - 1));
    size_t i = 0;
    for (; i + 1 < n; i++) {
        seen += count_at(blob->bytes, i);
        if ((double)seen > rank) break;
    }
    *out = bucket_value(bucket_at(blob->bytes, i), word_at(blob->bytes, 0));
    return true;
}

static bool buckets_ok(const uint8_t *bytes, size_t size) {
    if (size == 0) return true;
    size_t n = n_buckets(size);
    if (size < 8 || (size - 8) % ENTRY != 0 || n == 0 || n > MD_BUCKETS_MAX) return false;
    uint64_t resolution = word_at(bytes, 0), total = 0;
    if (resolution > MD_BUCKETS_RESOLUTION) return false;
    int64_t greatest = (int64_t)(UINT64_C(2047) << resolution);
    for (size_t i = 0; i < n; i++) {
        int64_t bucket = bucket_at(bytes, i);
        uint64_t count = count_at(bytes, i);
        if (bucket != NAN_BUCKET && (bucket > greatest || bucket < ~greatest)) return false;
        if (i > 0 && bucket_at(bytes, i - 1) >= bucket) return false;
        if (count == 0 || count > INT64_MAX || (total += count) > INT64_MAX) return false;
    }
    return true;
}

/* ---- by kind ---- */

md_rc md_sketch_check(md_cell kind, const uint8_t *bytes, size_t size, md_error *err) {
    bool ok = kind == MD_CELL_HLL ? hll_ok(bytes, size)
              : kind == MD_CELL_VALUES ? values_ok(bytes, size) : buckets_ok(bytes, size);
    return ok ? MD_OK : md_fail(err, MD_BADDATA, "not the bytes of a sketch");
}

void md_sketch_merge(md_cell kind, md_blob *blob, const uint8_t *bytes, size_t size) {
    if (kind == MD_CELL_HLL) hll_merge(blob, bytes, size);
    else if (kind == MD_CELL_BUCKETS) buckets_merge(blob, bytes, size);
    else {
        if (size > 0) memcpy(blob->bytes + blob->size, bytes, size);
        blob->size += size;
    }
    keep_promise(blob, size);
}
