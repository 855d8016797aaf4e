#include "base/kernels.h"

#if defined(__x86_64__)
#define HAS_AVX2 __builtin_cpu_supports("avx2")
#define AVX2 __attribute__((target("avx2")))
#else
#define HAS_AVX2 false
#define AVX2
#endif

const char *md_kernels(void) { return HAS_AVX2 ? "avx2" : "baseline"; }

/* The sign bit of t - low or of high - 1 - t is set for a t outside: at most one of them can wrap, and then
 * the other is negative. So their disjunction over all rows tells, without a compare (which SSE2 lacks for
 * 64 bits). */
MD_INLINE bool all_within(const uint8_t *values, int64_t n, int64_t low, int64_t high) {
    uint64_t outside = 0;
    for (int64_t i = 0; i < n; i++) {
        uint64_t t = md_load_u64(values + 8 * i);
        outside |= (t - (uint64_t)low) | ((uint64_t)(high - 1) - t);
    }
    return (int64_t)outside >= 0;
}

MD_INLINE bool any_nan(const uint8_t *values, int64_t n) {
    uint64_t nan = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = md_load_f64(values + 8 * i);
        nan |= v != v ? UINT64_MAX : 0;
    }
    return nan != 0;
}

MD_INLINE bool ascend_i32(const uint8_t *values, int64_t n) {
    int32_t bad = 0;
    for (int64_t i = 0; i < n; i++) bad |= md_load_i32(values + 4 * i + 4) < md_load_i32(values + 4 * i);
    return !bad;
}

MD_INLINE bool all_ascii(const uint8_t *bytes, int64_t n) {
    uint64_t high = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) high |= md_load_u64(bytes + i);
    for (; i < n; i++) high |= bytes[i];
    return (high & 0x8080808080808080u) == 0;
}

static AVX2 bool all_within_avx2(const uint8_t *values, int64_t n, int64_t low, int64_t high) {
    return all_within(values, n, low, high);
}

static AVX2 bool any_nan_avx2(const uint8_t *values, int64_t n) { return any_nan(values, n); }

bool md_all_within(const uint8_t *values, int64_t n, int64_t low, int64_t high) {
    return HAS_AVX2 ? all_within_avx2(values, n, low, high) : all_within(values, n, low, high);
}

bool md_any_nan(const uint8_t *values, int64_t n) { return HAS_AVX2 ? any_nan_avx2(values, n) : any_nan(values, n); }

static AVX2 bool ascend_i32_avx2(const uint8_t *values, int64_t n) { return ascend_i32(values, n); }

bool md_ascend_i32(const uint8_t *values, int64_t n) {
    return HAS_AVX2 ? ascend_i32_avx2(values, n) : ascend_i32(values, n);
}

static AVX2 bool all_ascii_avx2(const uint8_t *bytes, int64_t n) { return all_ascii(bytes, n); }

bool md_all_ascii(const uint8_t *bytes, int64_t n) {
    return HAS_AVX2 ? all_ascii_avx2(bytes, n) : all_ascii(bytes, n);
}
