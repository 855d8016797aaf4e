#include "arrow/gather.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define WORD MD_GATHER_WORD
#define SPARSE 10 /* rows of a word; up to here going from bit to bit beats storing all 64 */

static inline uint64_t little(uint64_t word) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(word);
#else
    return word;
#endif
}

uint64_t md_bits_at(const uint8_t *bits, int64_t at, int64_t n) {
    const uint8_t *p = bits + (at >> 3);
    int by = (int)(at & 7);
    if (MD_LIKELY(n == WORD)) {
        uint64_t word = little(md_load_u64(p)) >> by;
        return by == 0 ? word : word | (uint64_t)p[8] << (WORD - by);
    }
    uint64_t word = 0;
    for (int64_t i = 0; i < n; i++) word |= (uint64_t)md_bit(bits, at + i) << i;
    return word;
}

/* ---- values of fixed width ---- */

/* The rows of one word, from set bit to set bit. */
MD_INLINE uint8_t *keep_few(uint8_t *to, const uint8_t *from, size_t width, uint64_t word) {
    for (; word != 0; word &= word - 1) {
        memcpy(to, from + width * (size_t)__builtin_ctzll(word), width);
        to += width;
    }
    return to;
}

/* The rows of one whole word, without a branch. */
MD_INLINE uint8_t *keep_many(uint8_t *to, const uint8_t *from, size_t width, uint64_t word) {
    for (size_t i = 0; i < WORD; i++) {
        memcpy(to, from + width * i, width);
        to += width * (word >> i & 1);
    }
    return to;
}

typedef uint8_t *keep_word(uint8_t *to, const uint8_t *from, size_t width, uint64_t word);

MD_INLINE uint8_t *keep_fixed(uint8_t *to, const uint8_t *from, size_t width, const uint64_t *words, int64_t n,
                              keep_word *many) {
    int64_t whole = n / WORD;
    for (int64_t w = 0; w < whole; w++, from += WORD * width) {
        uint64_t word = words[w];
        if (word == 0) continue;
        if (word == UINT64_MAX) {
            memcpy(to, from, WORD * width);
            to += WORD * width;
        } else if (__builtin_popcountll(word) <= SPARSE) {
            to = keep_few(to, from, width, word);
        } else {
            to = many(to, from, width, word);
        }
    }
    return n % WORD != 0 ? keep_few(to, from, width, words[whole]) : to;
}

static uint8_t *keep_baseline(uint8_t *to, const uint8_t *from, int64_t width, const uint64_t *words, int64_t n) {
    switch (width) {
    case 1: return keep_fixed(to, from, 1, words, n, keep_many);
    case 2: return keep_fixed(to, from, 2, words, n, keep_many);
    case 4: return keep_fixed(to, from, 4, words, n, keep_many);
    case 8: return keep_fixed(to, from, 8, words, n, keep_many);
    default: return keep_fixed(to, from, 16, words, n, keep_many);
    }
}

#if defined(__x86_64__)
#define AVX2 __attribute__((target("avx2,popcnt,bmi")))

/* Of each four bits: where the rows kept stand, then anything. */
#define FOURS(X) \
    X(0, 0, 0, 0), X(0, 0, 0, 0), X(1, 0, 0, 0), X(0, 1, 0, 0), X(2, 0, 0, 0), X(0, 2, 0, 0), X(1, 2, 0, 0), \
    X(0, 1, 2, 0), X(3, 0, 0, 0), X(0, 3, 0, 0), X(1, 3, 0, 0), X(0, 1, 3, 0), X(2, 3, 0, 0), X(0, 2, 3, 0), \
    X(1, 2, 3, 0), X(0, 1, 2, 3)
#define OF_4(a, b, c, d) {a, b, c, d}
#define OF_8(a, b, c, d) {2 * a, 2 * a + 1, 2 * b, 2 * b + 1, 2 * c, 2 * c + 1, 2 * d, 2 * d + 1}
static const int32_t PLACES_4[16][4] = {FOURS(OF_4)};
static const int32_t PLACES_8[16][8] = {FOURS(OF_8)};

/* The bits set in each nibble of a word. */
static inline uint64_t counts_of(uint64_t word) {
    word -= word >> 1 & 0x5555555555555555u;
    return (word & 0x3333333333333333u) + (word >> 2 & 0x3333333333333333u);
}

AVX2 MD_INLINE uint8_t *shuffle_4(uint8_t *to, const uint8_t *from, size_t width, uint64_t word) {
    uint64_t counts = counts_of(word);
    for (size_t i = 0; i < WORD; i += 4) {
        __m128 rows = _mm_loadu_ps((const float *)(const void *)(from + width * i));
        __m128i places = _mm_loadu_si128((const __m128i *)(const void *)PLACES_4[word >> i & 15]);
        _mm_storeu_ps((float *)(void *)to, _mm_permutevar_ps(rows, places));
        to += width * (counts >> i & 7);
    }
    return to;
}

AVX2 MD_INLINE uint8_t *shuffle_8(uint8_t *to, const uint8_t *from, size_t width, uint64_t word) {
    uint64_t counts = counts_of(word);
    for (size_t i = 0; i < WORD; i += 4) {
        __m256i rows = _mm256_loadu_si256((const __m256i *)(const void *)(from + width * i));
        __m256i places = _mm256_loadu_si256((const __m256i *)(const void *)PLACES_8[word >> i & 15]);
        _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permutevar8x32_epi32(rows, places));
        to += width * (counts >> i & 7);
    }
    return to;
}

AVX2 static uint8_t *keep_4_avx2(uint8_t *to, const uint8_t *from, const uint64_t *words, int64_t n) {
    return keep_fixed(to, from, 4, words, n, shuffle_4);
}

AVX2 static uint8_t *keep_8_avx2(uint8_t *to, const uint8_t *from, const uint64_t *words, int64_t n) {
    return keep_fixed(to, from, 8, words, n, shuffle_8);
}

/* Up to FEW columns of 8 bytes. `count` is a constant where this is inlined. */
enum { FEW = 4, AHEAD = 512 }; /* AHEAD: rows that are fetched into the cache beforehand */
AVX2 MD_INLINE int64_t shuffle_columns(uint8_t *const *to, const uint8_t *const *from, int32_t count,
                                       const uint64_t *words, int64_t n) {
    uint8_t *out[FEW];
    const uint8_t *in[FEW];
    for (int32_t c = 0; c < count; c++) out[c] = to[c], in[c] = from[c];
    size_t at = 0;
    for (size_t base = 0; base < (size_t)n; base += WORD) {
        uint64_t word = *words++;
        if (word == UINT64_MAX) {
            for (int32_t c = 0; c < count; c++) memcpy(out[c] + 8 * at, in[c] + 8 * base, 8 * WORD);
            at += WORD;
        } else if (__builtin_popcountll(word) <= SPARSE) {
            for (; word != 0; word &= word - 1, at++) {
                size_t row = base + (size_t)__builtin_ctzll(word);
                for (int32_t c = 0; c < count; c++) memcpy(out[c] + 8 * at, in[c] + 8 * row, 8);
            }
        } else {
            uint64_t counts = counts_of(word);
            for (int32_t c = 0; c < count; c++)
                for (size_t i = 0; i < WORD; i += 8) MD_PREFETCH(in[c] + 8 * (base + AHEAD + i));
            for (size_t i = base; i < base + WORD; i += 4, word >>= 4, counts >>= 4) {
                __m256i places = _mm256_loadu_si256((const __m256i *)(const void *)PLACES_8[word & 15]);
                for (int32_t c = 0; c < count; c++) {
                    __m256i rows = _mm256_loadu_si256((const __m256i *)(const void *)(in[c] + 8 * i));
                    _mm256_storeu_si256((__m256i *)(void *)(out[c] + 8 * at),
                                        _mm256_permutevar8x32_epi32(rows, places));
                }
                at += counts & 7;
            }
        }
    }
    return (int64_t)at;
}

AVX2 static int64_t few_columns(uint8_t *const *to, const uint8_t *const *from, int32_t count, const uint64_t *words,
                                int64_t n) {
    switch (count) {
    case 1: return shuffle_columns(to, from, 1, words, n);
    case 2: return shuffle_columns(to, from, 2, words, n);
    case 3: return shuffle_columns(to, from, 3, words, n);
    default: return shuffle_columns(to, from, FEW, words, n);
    }
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("bmi");
}
#endif

uint8_t *md_gather_fixed(uint8_t *to, const uint8_t *from, int64_t width, const uint64_t *words, int64_t n,
                         bool shuffle) {
#if defined(__x86_64__)
    if (shuffle && width == 4 && has_avx2()) return keep_4_avx2(to, from, words, n);
    if (shuffle && width == 8 && has_avx2()) return keep_8_avx2(to, from, words, n);
#endif
    (void)shuffle;
    return keep_baseline(to, from, width, words, n);
}

int64_t md_gather_columns(uint8_t *const *to, const uint8_t *const *from, int32_t count, const uint64_t *words,
                          int64_t n, bool shuffle) {
    int64_t kept = 0;
#if defined(__x86_64__)
    if (shuffle && has_avx2()) {
        for (int32_t c = 0; c < count; c += FEW)
            kept = few_columns(to + c, from + c, count - c < FEW ? count - c : FEW, words, n);
        return kept;
    }
#endif
    (void)shuffle;
    for (int32_t c = 0; c < count; c++) kept = (keep_baseline(to[c], from[c], 8, words, n) - to[c]) / 8;
    return kept;
}

/* ---- bits ---- */

/* The bits of x under the mask, moved together at the low end (Hacker's Delight 7-4). */
static inline uint64_t compress(uint64_t x, uint64_t mask) {
    uint64_t kept = x & mask, gaps = ~mask << 1;
    for (int step = 0; step < 6; step++) {
        uint64_t odd = gaps; /* bit i: the number of gaps below it is odd */
        for (int by = 1; by < WORD; by *= 2) odd ^= odd << by;
        uint64_t moving = odd & mask, moved = kept & moving;
        mask = (mask ^ moving) | moving >> (1 << step);
        kept = (kept ^ moved) | moved >> (1 << step);
        gaps &= ~odd;
    }
    return kept;
}

int64_t md_gather_bits(uint8_t *to, const uint8_t *bits, int64_t shift, const uint64_t *words, int64_t n) {
    uint64_t open = 0; /* the word being filled */
    int fill = 0;
    int64_t set = 0;
    for (int64_t i = 0; i < n; i += WORD) {
        uint64_t mask = words[i / WORD];
        if (mask == 0) continue;
        uint64_t found = md_bits_at(bits, shift + i, n - i < WORD ? n - i : WORD);
        int count = __builtin_popcountll(mask);
        if (mask != UINT64_MAX) found = compress(found, mask);
        set += __builtin_popcountll(found);
        open |= found << fill;
        if (fill + count >= WORD) {
            open = little(open);
            memcpy(to, &open, 8);
            to += 8;
            open = fill != 0 ? found >> (WORD - fill) : 0;
        }
        fill = (fill + count) % WORD;
    }
    open = little(open);
    memcpy(to, &open, 8);
    return set;
}
