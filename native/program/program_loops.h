/* The steps of a program as loops; included once for each set of instructions, by program_loops.c.
 *
 * LOOPS(name) gives each function its own name, TARGET the attribute of the set. Loops run over whole words
 * of 64 rows, so that their inner length is known: what lies beyond the last row is computed and not read. */

#define VALUES_I(r) ((const int64_t *)(const void *)(r)->values)
#define VALUES_F(r) ((const double *)(const void *)(r)->values)
#define ROOM_I(r) ((int64_t *)(void *)(r)->room[(r)->turn])
#define ROOM_F(r) ((double *)(void *)(r)->room[(r)->turn])
#define ROOM_B(r) ((uint64_t *)(void *)(r)->room[(r)->turn])
#define VALUES_B(r) ((const uint64_t *)(const void *)(r)->values)

/* How far on the next word of a register stands: a constant is the same word again, which stays in the cache. */
#define STRIDE(r) ((r)->constant ? 0 : WORD)

/* ---- comparisons: 64 rows become a word ---- */

#if defined(USE_AVX2)
#define WORD_OF(bits4)                                                     \
    uint64_t word = 0;                                                     \
    for (int i = 0; i < WORD; i += 4) word |= (uint64_t)(uint32_t)(bits4) << i; \
    return word
#define F4(p) _mm256_loadu_pd((p) + i)
#define I4(p) _mm256_loadu_si256((const __m256i *)(const void *)((p) + i))
#define COMPARE_F(NAME, PREDICATE)                                                          \
    TARGET static uint64_t LOOPS(NAME)(const double *a, const double *b) {                  \
        WORD_OF(_mm256_movemask_pd(_mm256_cmp_pd(F4(a), F4(b), PREDICATE)));                \
    }
#define COMPARE_I(NAME, X, Y, CMP)                                                          \
    TARGET static uint64_t LOOPS(NAME)(const int64_t *a, const int64_t *b) {                \
        WORD_OF(_mm256_movemask_pd(_mm256_castsi256_pd(CMP(I4(X), I4(Y)))));                \
    }
COMPARE_F(lt_f, _CMP_LT_OQ)
COMPARE_F(le_f, _CMP_LE_OQ)
COMPARE_F(eq_f, _CMP_EQ_OQ)
COMPARE_F(unordered_f, _CMP_UNORD_Q)
COMPARE_I(lt_i, b, a, _mm256_cmpgt_epi64)
COMPARE_I(eq_i, a, b, _mm256_cmpeq_epi64)
#undef COMPARE_F
#undef COMPARE_I
#undef WORD_OF
#undef F4
#undef I4
#else
#define COMPARE(NAME, TYPE, CONDITION)                                     \
    TARGET static uint64_t LOOPS(NAME)(const TYPE *a, const TYPE *b) {     \
        uint64_t word = 0;                                                 \
        for (int i = 0; i < WORD; i++) word |= (uint64_t)(CONDITION) << i; \
        return word;                                                       \
    }
COMPARE(lt_f, double, a[i] < b[i])
COMPARE(le_f, double, a[i] <= b[i])
COMPARE(eq_f, double, a[i] == b[i])
COMPARE(unordered_f, double, a[i] != a[i] || b[i] != b[i])
COMPARE(lt_i, int64_t, a[i] < b[i])
COMPARE(eq_i, int64_t, a[i] == b[i])
#undef COMPARE
#endif

/* NaN is equal to itself and greater than all others. */
TARGET static uint64_t LOOPS(compare_loose)(int32_t op, const double *a, const double *b) {
    uint64_t nan_a = LOOPS(unordered_f)(a, a), nan_b = LOOPS(unordered_f)(b, b);
    switch (op) {
    case MD_P_EQ: return LOOPS(eq_f)(a, b) | (nan_a & nan_b);
    case MD_P_NE: return ~(LOOPS(eq_f)(a, b) | (nan_a & nan_b));
    case MD_P_LT: return LOOPS(lt_f)(a, b) | (nan_b & ~nan_a);
    case MD_P_LE: return LOOPS(le_f)(a, b) | nan_b;
    case MD_P_GT: return LOOPS(lt_f)(b, a) | (nan_a & ~nan_b);
    default: return LOOPS(le_f)(b, a) | nan_a;
    }
}

/* Where b is no NaN, one compare tells: its opposite is false for an a that is NaN. */
TARGET static uint64_t LOOPS(compare_strict)(int32_t op, const double *a, const double *b) {
    switch (op) {
    case MD_P_EQ: return LOOPS(eq_f)(a, b);
    case MD_P_NE: return ~LOOPS(eq_f)(a, b);
    case MD_P_LT: return LOOPS(lt_f)(a, b);
    case MD_P_LE: return LOOPS(le_f)(a, b);
    case MD_P_GT: return ~LOOPS(le_f)(a, b);
    default: return ~LOOPS(lt_f)(a, b);
    }
}

TARGET static void LOOPS(compare_f)(int32_t op, const md_reg *x, const md_reg *y, uint64_t *to, int64_t words) {
    const double *a = VALUES_F(x), *b = VALUES_F(y);
    bool number = y->constant && b[0] == b[0];
    for (int64_t w = 0; w < words; w++, a += STRIDE(x), b += STRIDE(y)) {
        for (int64_t i = 0; i < WORD; i += 8) MD_PREFETCH(a + AHEAD + i);
        to[w] = number || LOOPS(unordered_f)(b, b) == 0 ? LOOPS(compare_strict)(op, a, b)
                                                        : LOOPS(compare_loose)(op, a, b);
    }
}

TARGET static void LOOPS(compare_i)(int32_t op, const md_reg *x, const md_reg *y, uint64_t *to, int64_t words) {
    const int64_t *a = VALUES_I(x), *b = VALUES_I(y);
    for (int64_t w = 0; w < words; w++, a += STRIDE(x), b += STRIDE(y)) {
        switch (op) {
        case MD_P_EQ: to[w] = LOOPS(eq_i)(a, b); break;
        case MD_P_NE: to[w] = ~LOOPS(eq_i)(a, b); break;
        case MD_P_LT: to[w] = LOOPS(lt_i)(a, b); break;
        case MD_P_LE: to[w] = ~LOOPS(lt_i)(b, a); break;
        case MD_P_GT: to[w] = LOOPS(lt_i)(b, a); break;
        default: to[w] = ~LOOPS(lt_i)(a, b); break;
        }
    }
}

/* ---- arithmetic ---- */

/* Written out for AVX2: left to itself the compiler loads and stores unaligned vectors by halves. */
#if defined(USE_AVX2)
#define EACH(SCALAR, VECTOR)                                                              \
    for (; words > 0; words--, to += WORD, x += next_x, y += next_y)                      \
        for (int64_t i = 0; i < WORD; i += 4) {                                           \
            __m256d a = _mm256_loadu_pd(x + i), b = _mm256_loadu_pd(y + i);               \
            (void)b;                                                                      \
            _mm256_storeu_pd(to + i, VECTOR);                                             \
        }                                                                                 \
    break
#else
#define EACH(SCALAR, VECTOR)                                                              \
    for (; words > 0; words--, to += WORD, x += next_x, y += next_y)                      \
        for (int64_t i = 0; i < WORD; i++) to[i] = (SCALAR);                              \
    break
#endif

TARGET static void LOOPS(arithmetic_f)(int32_t op, double *restrict to, const md_reg *first, const md_reg *second,
                                       int64_t words) {
    const double *x = VALUES_F(first), *y = VALUES_F(second);
    int64_t next_x = STRIDE(first), next_y = STRIDE(second);
    switch (op) {
    case MD_P_ADD: EACH(x[i] + y[i], _mm256_add_pd(a, b));
    case MD_P_SUB: EACH(x[i] - y[i], _mm256_sub_pd(a, b));
    case MD_P_MUL: EACH(x[i] * y[i], _mm256_mul_pd(a, b));
    case MD_P_DIV: EACH(x[i] / y[i], _mm256_div_pd(a, b));
    case MD_P_NEG: EACH(-x[i], _mm256_xor_pd(a, _mm256_set1_pd(-0.0)));
    case MD_P_ABS: EACH(__builtin_fabs(x[i]), _mm256_andnot_pd(_mm256_set1_pd(-0.0), a));
    default: EACH(__builtin_sqrt(x[i]), _mm256_sqrt_pd(a));
    }
}

/* The nearest double of each int64, by its halves: each half is exact in a double whose exponent is put there,
 * and the one addition rounds. */
TARGET static void LOOPS(to_float)(double *restrict to, const int64_t *x, int64_t words) {
#if defined(USE_AVX2)
    const __m256i low = _mm256_set1_epi64x(0x4330000000000000), high = _mm256_set1_epi64x(0x4530000080000000);
    const __m256d both = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530000080100000));
    for (int64_t i = 0; i < words * WORD; i += 4) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)(x + i));
        __m256i lows = _mm256_blend_epi32(low, v, 0x55);
        __m256i highs = _mm256_xor_si256(_mm256_srli_epi64(v, 32), high);
        __m256d sum = _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(highs), both), _mm256_castsi256_pd(lows));
        _mm256_storeu_pd(to + i, sum);
    }
#else
    for (int64_t i = 0; i < words * WORD; i++) to[i] = (double)x[i];
#endif
}

/* The sign bit of the answer tells of an overflow somewhere in the words. */
TARGET static uint64_t LOOPS(add_i)(int64_t *restrict to, const int64_t *x, const int64_t *y, int64_t words) {
    uint64_t wrapped = 0;
    for (int64_t i = 0; i < words * WORD; i++) {
        uint64_t a = (uint64_t)x[i], b = (uint64_t)y[i], sum = a + b;
        wrapped |= (a ^ sum) & (b ^ sum);
        to[i] = (int64_t)sum;
    }
    return wrapped;
}

TARGET static uint64_t LOOPS(sub_i)(int64_t *restrict to, const int64_t *x, const int64_t *y, int64_t words) {
    uint64_t wrapped = 0;
    for (int64_t i = 0; i < words * WORD; i++) {
        uint64_t a = (uint64_t)x[i], b = (uint64_t)y[i], difference = a - b;
        wrapped |= (a ^ b) & (a ^ difference);
        to[i] = (int64_t)difference;
    }
    return wrapped;
}

/* Of n rows; false: an overflow among them. */
TARGET static bool LOOPS(mul_i)(int64_t *restrict to, const int64_t *x, const int64_t *y, int64_t n) {
    bool failed = false;
    for (int64_t i = 0; i < n; i++) {
        long long product;
        failed |= __builtin_mul_overflow(x[i], y[i], &product);
        to[i] = product;
    }
    md_program_clear((uint8_t *)to, n);
    return !failed;
}

#undef EACH
#undef STRIDE
