#include "base/utf8.h"

#include "base/kernels.h"

/* ---- one character at a time ---- */

/* The length of the character whose first four bytes are `w`, the first one lowest; 0: it is none. */
MD_INLINE int64_t character_length(uint32_t w) {
    if ((w & 0x80) == 0) return 1;
    if ((w & 0xC0E0) == 0x80C0) return (w & 0x1E) != 0 ? 2 : 0;
    if ((w & 0xC0C0F0) == 0x8080E0) {
        uint32_t top = w & 0x200F; /* the first five bits of 16 */
        return top != 0 && top != 0x200D ? 3 : 0;
    }
    if ((w & 0xC0C0C0F8) == 0x808080F0) {
        uint32_t lead = w & 7, next = w & 0x3000; /* the first five bits of 21 */
        return (lead == 0 ? next != 0 : lead < 4 || (lead == 4 && next == 0)) ? 4 : 0;
    }
    return 0;
}

MD_INLINE uint32_t word(const uint8_t *data, int64_t n) {
    uint32_t w = 0;
    if (n >= 4) return md_load_u32(data);
    for (int64_t i = 0; i < 4 && i < n; i++) w |= (uint32_t)data[i] << 8 * i;
    return w;
}

bool md_utf8_by_character(const uint8_t *data, int64_t n) {
    int64_t i = 0;
    while (i < n) {
        if (data[i] < 0x80) {
            i += i + 8 <= n && (md_load_u64(data + i) & 0x8080808080808080u) == 0 ? 8 : 1;
            continue;
        }
        int64_t length = character_length(word(data + i, n - i));
        if (length == 0) return false;
        i += length;
    }
    return true;
}

/* ---- 32 bytes at a time: Keiser and Lemire, "Validating UTF-8 in less than one instruction per byte" ---- */

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* What may be wrong with two bytes: an error where the halves of the first and the upper half of the second all
 * allow it. TWO_CONTS is none where the bytes two and three before say that a character has more of them. */
enum {
    TOO_SHORT = 1 << 0,
    TOO_LONG = 1 << 1,
    OVERLONG_3 = 1 << 2,
    TOO_LARGE = 1 << 3,
    SURROGATE = 1 << 4,
    OVERLONG_2 = 1 << 5,
    TOO_LARGE_1000 = 1 << 6,
    OVERLONG_4 = 1 << 6,
    TWO_CONTS = 1 << 7,
    ANY = TOO_SHORT | TOO_LONG | TWO_CONTS,
    LARGE = ANY | TOO_LARGE | TOO_LARGE_1000,
    CONT = TOO_LONG | OVERLONG_2 | TWO_CONTS,
};

#define TWICE(...) _mm256_setr_epi8(__VA_ARGS__, __VA_ARGS__)
#define BYTE(flags) ((char)(flags))

static AVX2 __m256i flaws(__m256i in, __m256i before) {
    const __m256i first_high = TWICE(
        TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, TOO_LONG, BYTE(TWO_CONTS),
        BYTE(TWO_CONTS), BYTE(TWO_CONTS), BYTE(TWO_CONTS), TOO_SHORT | OVERLONG_2, TOO_SHORT,
        TOO_SHORT | OVERLONG_3 | SURROGATE, TOO_SHORT | TOO_LARGE | TOO_LARGE_1000 | OVERLONG_4);
    const __m256i first_low = TWICE(
        BYTE(ANY | OVERLONG_3 | OVERLONG_2 | OVERLONG_4), BYTE(ANY | OVERLONG_2), BYTE(ANY), BYTE(ANY),
        BYTE(ANY | TOO_LARGE), BYTE(LARGE), BYTE(LARGE), BYTE(LARGE), BYTE(LARGE), BYTE(LARGE), BYTE(LARGE),
        BYTE(LARGE), BYTE(LARGE), BYTE(LARGE | SURROGATE), BYTE(LARGE), BYTE(LARGE));
    const __m256i second_high = TWICE(
        TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT, TOO_SHORT,
        BYTE(CONT | OVERLONG_3 | TOO_LARGE_1000 | OVERLONG_4), BYTE(CONT | OVERLONG_3 | TOO_LARGE),
        BYTE(CONT | SURROGATE | TOO_LARGE), BYTE(CONT | SURROGATE | TOO_LARGE), TOO_SHORT, TOO_SHORT, TOO_SHORT,
        TOO_SHORT);
    const __m256i half = _mm256_set1_epi8(0x0F);
    const __m256i joint = _mm256_permute2x128_si256(before, in, 0x21);
    const __m256i one = _mm256_alignr_epi8(in, joint, 15), two = _mm256_alignr_epi8(in, joint, 14);
    const __m256i three = _mm256_alignr_epi8(in, joint, 13);
    __m256i found = _mm256_shuffle_epi8(first_high, _mm256_and_si256(_mm256_srli_epi16(one, 4), half));
    found = _mm256_and_si256(found, _mm256_shuffle_epi8(first_low, _mm256_and_si256(one, half)));
    found = _mm256_and_si256(
        found, _mm256_shuffle_epi8(second_high, _mm256_and_si256(_mm256_srli_epi16(in, 4), half)));
    /* The upper bit is set where a third or fourth byte must stand. */
    const __m256i third = _mm256_subs_epu8(two, _mm256_set1_epi8(BYTE(0xE0 - 0x80)));
    const __m256i fourth = _mm256_subs_epu8(three, _mm256_set1_epi8(BYTE(0xF0 - 0x80)));
    const __m256i wanted = _mm256_and_si256(_mm256_or_si256(third, fourth), _mm256_set1_epi8(BYTE(0x80)));
    return _mm256_xor_si256(wanted, found);
}

/* Not zero where a character of these bytes goes on behind them. */
static AVX2 __m256i unfinished(__m256i in) {
    const __m256i most = _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                          -1, -1, -1, -1, -1, -1, -1, -1, -1, BYTE(0xF0 - 1), BYTE(0xE0 - 1),
                                          BYTE(0xC0 - 1));
    return _mm256_subs_epu8(in, most);
}

static AVX2 md_utf8 look_avx2(const uint8_t *data, int64_t n) {
    __m256i before = _mm256_setzero_si256(), open = before, error = before, high = before;
    uint8_t rest[32] = {0}; /* what is missing at the end is ASCII: an open character is an error there too */
    for (int64_t i = 0; i < n; i += 32) {
        const uint8_t *from = data + i;
        if (n - i < 32) from = memcpy(rest, from, (size_t)(n - i));
        const __m256i in = _mm256_loadu_si256((const __m256i *)from);
        if (_mm256_movemask_epi8(in) == 0) {
            error = _mm256_or_si256(error, open);
            open = _mm256_setzero_si256();
        } else {
            error = _mm256_or_si256(error, flaws(in, before));
            open = unfinished(in);
            high = _mm256_or_si256(high, in);
        }
        before = in;
    }
    error = _mm256_or_si256(error, open);
    if (!_mm256_testz_si256(error, error)) return MD_UTF8_INVALID;
    return _mm256_movemask_epi8(high) == 0 ? MD_UTF8_ASCII : MD_UTF8_VALID;
}
#endif

enum { FEW = 64 }; /* bytes, below which a look at each character is faster */

md_utf8 md_utf8_look(const uint8_t *data, int64_t n) {
#if defined(__x86_64__)
    if (n >= FEW && __builtin_cpu_supports("avx2")) {
        int64_t ascii = 0; /* mostly all of it: four vectors at a time */
        while (ascii < n && md_all_ascii(data + ascii, n - ascii < 4096 ? n - ascii : 4096)) ascii += 4096;
        return ascii >= n ? MD_UTF8_ASCII : look_avx2(data + ascii, n - ascii);
    }
#endif
    if (md_all_ascii(data, n)) return MD_UTF8_ASCII;
    return md_utf8_by_character(data, n) ? MD_UTF8_VALID : MD_UTF8_INVALID;
}
