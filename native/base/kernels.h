/* Scans of whole columns that have a faster form on some machines, chosen at run time.
 *
 * The library is compiled for baseline x86-64; __builtin_cpu_supports says what this machine has. Both forms
 * are the same C, so they can't differ in what they answer. */
#ifndef MD_KERNELS_H
#define MD_KERNELS_H

#include "base/md_base.h"

/* "avx2" or "baseline". */
const char *md_kernels(void);

/* Whether all n int64 at `values` (any address) lie in [low, high), both within +-2^61. */
bool md_all_within(const uint8_t *values, int64_t n, int64_t low, int64_t high);

/* Whether one of n float64 at `values` (any address) is NaN. */
bool md_any_nan(const uint8_t *values, int64_t n);

/* Whether none of the n + 1 int32 at `values` (any address) is less than the one before it. */
bool md_ascend_i32(const uint8_t *values, int64_t n);

/* Whether none of n bytes has its highest bit. */
bool md_all_ascii(const uint8_t *bytes, int64_t n);

#endif
