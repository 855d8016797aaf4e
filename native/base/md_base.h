/* Result codes, error text, and the rules that every header of this library keeps.
 *
 * API rules
 * - A function that can fail returns md_rc. On anything but MD_OK its outputs are untouched, unless
 *   its contract says otherwise, and its object is as it was: prepare, then change.
 * - Sizes are computed with the checked helpers below; lengths are int64_t as in Arrow.
 * - `md_error *err` may be NULL. It is written only when the result is not MD_OK.
 * - `..._free(NULL)` is allowed everywhere.
 * - Input arrays (arrow_abi.h) are borrowed for the time of the call and never released here.
 *   Output arrays are owned by the caller and end with their own release callback, on any thread.
 * - Buffers may start at any address: they are read through md_load_*.
 *
 * Thread rules
 * - An object is used by one thread at a time; different objects need no lock.
 * - There are no globals that change (md_alloc's counters exist only in test builds), no thread is
 *   started, no file opened, no signal or environment read.
 */
#ifndef MD_BASE_H
#define MD_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef enum {
    MD_OK = 0,
    MD_FULL,    /* a bounded object is at its bound; nothing was stored */
    MD_EMPTY,   /* nothing there */
    MD_NOMEM,   /* an allocation failed; the object is unchanged */
    MD_BADARG,  /* the caller broke a stated precondition that we can check */
    MD_BADDATA, /* contents that can't be: from untrusted input; the object is unchanged */
} md_rc;

typedef struct md_error {
    char text[240]; /* one sentence, always ended by a zero byte */
} md_error;

#if defined(__GNUC__)
#define MD_PRINTF(a, b) __attribute__((format(printf, a, b)))
#define MD_LIKELY(c) __builtin_expect(!!(c), 1)
#define MD_UNLIKELY(c) __builtin_expect(!!(c), 0)
#define MD_INLINE static inline __attribute__((always_inline))
#define MD_NOINLINE __attribute__((noinline))
#define MD_PREFETCH(p) __builtin_prefetch(p)
#define MD_PREFETCH_WRITE(p) __builtin_prefetch((p), 1)
#else
#error "a compiler with the GNU extensions (gcc or clang) is needed"
#endif

/* Write the sentence into err (if any) and give back rc, so that failures are one line. */
MD_PRINTF(3, 4)
static inline md_rc md_fail(md_error *err, md_rc rc, const char *format, ...) {
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return rc;
}

static inline md_rc md_nomem(md_error *err) { return md_fail(err, MD_NOMEM, "out of memory"); }

/* *out = a * b or a + b; false when it doesn't fit, and then *out is not to be used. */
static inline bool md_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool md_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

/* Loads and stores at any address; one instruction each on x86-64 and aarch64. */
MD_INLINE int64_t md_load_i64(const void *p) { int64_t v; memcpy(&v, p, sizeof v); return v; }
MD_INLINE uint64_t md_load_u64(const void *p) { uint64_t v; memcpy(&v, p, sizeof v); return v; }
MD_INLINE double md_load_f64(const void *p) { double v; memcpy(&v, p, sizeof v); return v; }
MD_INLINE int32_t md_load_i32(const void *p) { int32_t v; memcpy(&v, p, sizeof v); return v; }
MD_INLINE uint32_t md_load_u32(const void *p) { uint32_t v; memcpy(&v, p, sizeof v); return v; }

/* Bitmaps as in Arrow: bit i is bit (i mod 8) of byte i / 8. */
MD_INLINE bool md_bit(const uint8_t *bits, int64_t i) { return (bits[i >> 3] >> (i & 7)) & 1; }
MD_INLINE void md_bit_set(uint8_t *bits, int64_t i) { bits[i >> 3] |= (uint8_t)(1u << (i & 7)); }
MD_INLINE void md_bit_clear(uint8_t *bits, int64_t i) { bits[i >> 3] &= (uint8_t)~(1u << (i & 7)); }

#endif
