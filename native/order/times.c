#include "order/times.h"

#include "base/md_alloc.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BLOCK MD_TIMES_BLOCK
#define PAUSE 15 /* blocks that aren't asked whether they are sorted, after one that wasn't */

MD_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
MD_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* True when no time is below the one before it. */
MD_INLINE bool sorted_body(const uint8_t *times, int64_t n) {
    int64_t falls = 0;
    for (int64_t i = 1; i < n; i++) falls |= -(int64_t)(md_load_i64(times + 8 * i) < md_load_i64(times + 8 * i - 8));
    return falls == 0;
}

MD_INLINE md_times_block extent_body(const uint8_t *times, int64_t n) {
    md_times_block found = {.least = md_load_i64(times), .largest = md_load_i64(times)};
    for (int64_t i = 1; i < n; i++) {
        found.least = smaller(found.least, md_load_i64(times + 8 * i));
        found.largest = larger(found.largest, md_load_i64(times + 8 * i));
    }
    return found;
}

/* The kernels of whole blocks. */
static bool sorted_baseline(const uint8_t *times) { return sorted_body(times, BLOCK); }
static md_times_block extent_baseline(const uint8_t *times) { return extent_body(times, BLOCK); }

typedef bool sorted_kernel(const uint8_t *times);
typedef md_times_block extent_kernel(const uint8_t *times);

MD_INLINE void look_body(const uint8_t *times, int64_t n, md_times_block *blocks, sorted_kernel *sorted,
                         extent_kernel *extent) {
    int pause = 0;
    int64_t whole = n - n % BLOCK;
    for (int64_t start = 0; start < whole; start += BLOCK, times += 8 * BLOCK, blocks++) {
        if (pause == 0 && sorted(times)) {
            *blocks = (md_times_block){md_load_i64(times), md_load_i64(times + 8 * (BLOCK - 1)), true};
        } else {
            pause = pause == 0 ? PAUSE : pause - 1;
            *blocks = extent(times);
        }
    }
    if (whole < n) {
        *blocks = extent_body(times, n - whole);
        blocks->sorted = sorted_body(times, n - whole);
    }
}

static void look_baseline(const uint8_t *times, int64_t n, md_times_block *blocks) {
    look_body(times, n, blocks, sorted_baseline, extent_baseline);
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2"), always_inline)) static inline
#define LOAD(i) _mm256_loadu_si256((const __m256i *)(times + 32 * (i)))

AVX2 bool sorted_avx2(const uint8_t *times) {
    __m256i falls = _mm256_setzero_si256();
    for (int i = 0; i < BLOCK / 4 - 1; i++) {
        __m256i next = _mm256_loadu_si256((const __m256i *)(times + 32 * i + 8));
        falls = _mm256_or_si256(falls, _mm256_cmpgt_epi64(LOAD(i), next));
    }
    return _mm256_testz_si256(falls, falls) && sorted_body(times + 8 * (BLOCK - 4), 4);
}

AVX2 __m256i smaller_avx2(__m256i a, __m256i b) { return _mm256_blendv_epi8(a, b, _mm256_cmpgt_epi64(a, b)); }
AVX2 __m256i larger_avx2(__m256i a, __m256i b) { return _mm256_blendv_epi8(b, a, _mm256_cmpgt_epi64(a, b)); }

/* Two accumulators for each end, so that few comparisons wait for the one before them. */
AVX2 md_times_block extent_avx2(const uint8_t *times) {
    __m256i least = LOAD(0), least2 = LOAD(1), largest = least, largest2 = least2;
    for (int i = 2; i < BLOCK / 4; i += 2) {
        __m256i t = LOAD(i), t2 = LOAD(i + 1);
        least = smaller_avx2(least, t);
        least2 = smaller_avx2(least2, t2);
        largest = larger_avx2(largest, t);
        largest2 = larger_avx2(largest2, t2);
    }
    int64_t lanes[8];
    _mm256_storeu_si256((__m256i *)lanes, smaller_avx2(least, least2));
    _mm256_storeu_si256((__m256i *)(lanes + 4), larger_avx2(largest, largest2));
    return (md_times_block){.least = smaller(smaller(lanes[0], lanes[1]), smaller(lanes[2], lanes[3])),
                            .largest = larger(larger(lanes[4], lanes[5]), larger(lanes[6], lanes[7]))};
}

__attribute__((target("avx2"))) static void look_avx2(const uint8_t *times, int64_t n, md_times_block *blocks) {
    look_body(times, n, blocks, sorted_avx2, extent_avx2);
}
#endif

md_rc md_times_look(const uint8_t *values, int64_t n, md_times *out) {
    size_t size;
    if (!md_mul_size((size_t)(n / BLOCK + 1), sizeof(md_times_block), &size)) return MD_NOMEM;
    md_times_block *blocks = md_malloc(size);
    if (blocks == NULL) return MD_NOMEM;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) look_avx2(values, n, blocks);
    else look_baseline(values, n, blocks);
#else
    look_baseline(values, n, blocks);
#endif
    *out = (md_times){.values = values, .length = n, .blocks = blocks};
    return MD_OK;
}

void md_times_free(md_times *t) {
    md_free((void *)t->blocks);
    *t = (md_times){0};
}

bool md_times_part(const md_times *t, int64_t start, int64_t n, md_times *out) {
    if (start < 0 || n < 0 || start > t->length || n > t->length - start) return false;
    if (start % BLOCK != 0 || ((start + n) % BLOCK != 0 && start + n != t->length)) return false;
    const uint8_t *values = n > 0 ? t->values + 8 * start : t->values;
    *out = (md_times){.values = values, .length = n, .blocks = t->blocks + start / BLOCK};
    return true;
}

void md_times_extent(const md_times *t, int64_t *least, int64_t *largest) {
    md_times_block all = t->blocks[0];
    for (int64_t b = 1; b < (t->length + BLOCK - 1) / BLOCK; b++) {
        all.least = smaller(all.least, t->blocks[b].least);
        all.largest = larger(all.largest, t->blocks[b].largest);
    }
    *least = all.least;
    *largest = all.largest;
}
