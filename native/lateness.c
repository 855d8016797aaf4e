#include "lateness.h"

#include "md_alloc.h"

#define CHUNK 1024 /* rows; a multiple of 64, 8 KiB: stays in the first cache over its three looks */

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* The limit after rows up to max_us. */
static inline int64_t limit_of(const md_lateness *l, bool seen, int64_t max_us) {
    if (!seen) return l->promised_us;
    int64_t floor_us = __builtin_sub_overflow(max_us, l->slack_us, &floor_us) ? INT64_MIN : floor_us;
    return larger(floor_us, l->promised_us);
}

typedef struct extent {
    int64_t least, largest;
} extent;

/* True when no time is below the one before it. */
MD_INLINE bool sorted_body(const uint8_t *times, int64_t n) {
    int64_t falls = 0;
    for (int64_t i = 1; i < n; i++) falls |= -(int64_t)(md_load_i64(times + 8 * i) < md_load_i64(times + 8 * i - 8));
    return falls == 0;
}

MD_INLINE extent extent_body(const uint8_t *times, int64_t n) {
    int64_t least = md_load_i64(times), largest = least;
    for (int64_t i = 1; i < n; i++) {
        int64_t t = md_load_i64(times + 8 * i);
        least = t < least ? t : least;
        largest = t > largest ? t : largest;
    }
    return (extent){least, largest};
}

static bool sorted_baseline(const uint8_t *times, int64_t n) { return sorted_body(times, n); }
static extent extent_baseline(const uint8_t *times, int64_t n) { return extent_body(times, n); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) static bool sorted_avx2(const uint8_t *times, int64_t n) {
    return sorted_body(times, n);
}
__attribute__((target("avx2"))) static extent extent_avx2(const uint8_t *times, int64_t n) {
    return extent_body(times, n);
}
#endif

typedef struct kernels {
    bool (*sorted)(const uint8_t *times, int64_t n);
    extent (*extent)(const uint8_t *times, int64_t n);
} kernels;

static kernels choose(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return (kernels){sorted_avx2, extent_avx2};
#endif
    return (kernels){sorted_baseline, extent_baseline};
}

void md_times_extent(const uint8_t *times, int64_t n, int64_t *least, int64_t *largest) {
    extent found = choose().extent(times, n);
    *least = found.least;
    *largest = found.largest;
}

/* A whole call's state; copied into md_lateness and md_late_rows only when everything went well. */
typedef struct judging {
    const md_lateness *rule;
    int64_t max_us;
    bool seen;
    int32_t skip; /* chunks that are not tried as a whole, after one that failed so */
    int64_t count;
    uint64_t worst_us;
    uint64_t *words; /* the mask; NULL until a row is late */
    size_t words_size;
} judging;

/* Judge up to 64 rows one by one; bit i of the result: row i is late. */
static uint64_t judge_word(judging *j, const uint8_t *times, int64_t n) {
    int64_t max_us = j->max_us, promised_us = j->rule->promised_us;
    /* max_us - slack without a check in the loop: below this no slack is taken off any more. */
    int64_t slack_us = j->rule->slack_us, least_max = INT64_MIN + slack_us;
    uint64_t worst_us = j->worst_us, late = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t t = md_load_i64(times + 8 * i);
        int64_t limit = larger(larger(max_us, least_max) - slack_us, promised_us);
        uint64_t by = t < limit ? (uint64_t)limit - (uint64_t)t : 0;
        worst_us = by > worst_us ? by : worst_us;
        late |= (uint64_t)(by != 0) << i;
        max_us = larger(max_us, t);
    }
    j->max_us = max_us;
    j->worst_us = worst_us;
    return late;
}

static md_rc judge_rows(judging *j, const kernels *kernel, const uint8_t *times, int64_t start, int64_t n) {
    for (int64_t i = 0; i < n; i += 64) {
        int64_t rows = n - i < 64 ? n - i : 64;
        /* Rows delayed by nearly the slack fail the test of a whole chunk, seldom that of so few rows. */
        extent range = kernel->extent(times + 8 * i, rows);
        int64_t max_us = larger(j->max_us, range.largest);
        if (range.least >= limit_of(j->rule, true, max_us)) {
            j->max_us = max_us;
            continue;
        }
        uint64_t late = judge_word(j, times + 8 * i, rows);
        if (late == 0) continue;
        if (j->words == NULL) {
            j->words = md_calloc(j->words_size, 8);
            if (j->words == NULL) return MD_NOMEM;
        }
        j->count += __builtin_popcountll(late);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        late = __builtin_bswap64(late);
#endif
        j->words[(start + i) / 64] = late;
    }
    return MD_OK;
}

static md_rc judge_chunk(judging *j, const kernels *kernel, const uint8_t *times, int64_t start, int64_t n) {
    if (j->skip > 0 && j->seen) {
        j->skip--;
        return judge_rows(j, kernel, times, start, n);
    }
    int64_t limit = limit_of(j->rule, j->seen, j->max_us);
    int64_t first = md_load_i64(times), last = md_load_i64(times + 8 * (n - 1));
    if (first >= limit && kernel->sorted(times, n)) {
        j->max_us = larger(j->max_us, last);
    } else {
        extent range = kernel->extent(times, n);
        int64_t max_us = larger(j->max_us, range.largest);
        if (range.least >= limit_of(j->rule, true, max_us)) {
            j->max_us = max_us;
        } else {
            j->skip = 15;
            md_rc rc = judge_rows(j, kernel, times, start, n);
            if (rc != MD_OK) return rc;
        }
    }
    j->seen = true;
    return MD_OK;
}

md_rc md_lateness_init(md_lateness *l, int64_t slack_us, md_error *err) {
    if (slack_us < 0) return md_fail(err, MD_BADARG, "slack_us must not be negative");
    *l = (md_lateness){.slack_us = slack_us, .max_us = INT64_MIN, .promised_us = INT64_MIN};
    return MD_OK;
}

md_rc md_lateness_judge(md_lateness *l, const md_column *times, md_late_rows *out, md_error *err) {
    if (times->type != MD_I64) return md_fail(err, MD_BADARG, "times must be int64 or timestamp[us]");
    if (md_column_nulls(times) != 0) return md_fail(err, MD_BADARG, "a time is null");
    int64_t n = times->length;
    judging j = {.rule = l, .max_us = l->max_us, .seen = l->seen, .words_size = (size_t)(n / 64 + 1)};
    kernels kernel = choose();
    for (int64_t start = 0; start < n; start += CHUNK) {
        int64_t rows = n - start < CHUNK ? n - start : CHUNK;
        if (judge_chunk(&j, &kernel, times->values + 8 * start, start, rows) != MD_OK) {
            md_free(j.words);
            return md_nomem(err);
        }
    }
    l->max_us = j.max_us;
    l->seen = j.seen;
    *out = (md_late_rows){.count = j.count, .worst_us = j.worst_us, .mask = (uint8_t *)j.words};
    return MD_OK;
}

md_rc md_lateness_promise(md_lateness *l, int64_t boundary_us, md_error *err) {
    if (boundary_us < l->promised_us) return md_fail(err, MD_BADARG, "an explicit boundary must not decrease");
    l->promised_us = boundary_us;
    return MD_OK;
}

int64_t md_lateness_boundary(const md_lateness *l) { return limit_of(l, l->seen, l->max_us); }
