/* A test is a function that returns 0, or prints where it failed and returns 1. See run_c.py.
 *
 *     static int test_first_in_first_out(void) { ...; CHECK(x == 1); return 0; }
 *     TEST_MAIN(TEST(test_first_in_first_out), TEST(test_that))
 *
 * Random tests draw from check_random(); CHECK prints the seed, and CHECK_SEED=n ./test_x repeats it. */
#ifndef MD_CHECK_H
#define MD_CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/md_alloc.h"

static uint64_t check_seed = 20260101;
static uint64_t check_state;

/* splitmix64 */
static inline uint64_t check_random(void) {
    uint64_t z = check_state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* In [0, n), n >= 1. */
static inline uint64_t check_below(uint64_t n) { return check_random() % n; }

#define CHECK(c) do { if (!(c)) { \
    fprintf(stderr, "%s:%d: %s (CHECK_SEED=%" PRIu64 ")\n", __FILE__, __LINE__, #c, check_seed); \
    return 1; } } while (0)

/* Run `call`, which must give 0 (pass on a failed CHECK of a helper). */
#define CHECK_OK(call) do { if ((call) != 0) { \
    fprintf(stderr, "  from %s:%d\n", __FILE__, __LINE__); \
    return 1; } } while (0)

/* `body` (an expression of md_rc) with the k-th allocation failing, for every k: MD_NOMEM each time until
 * there are fewer than k allocations, then MD_OK; `undo` frees what body made. No block may be left. */
#define CHECK_EVERY_ALLOC(body, undo) do { \
    long live_before = md_alloc_live; \
    for (long k = 0;; k++) { \
        md_alloc_fail_at = k; \
        md_rc every_rc = (body); \
        md_alloc_fail_at = -1; \
        undo; \
        CHECK(md_alloc_live == live_before); \
        CHECK(every_rc == MD_OK || every_rc == MD_NOMEM); \
        CHECK(k < 100000); \
        if (every_rc == MD_OK) break; \
    } } while (0)

typedef struct check_test {
    const char *name;
    int (*run)(void);
} check_test;

#define TEST(f) {#f, f}
#define TEST_MAIN(...) \
    int main(void) { \
        static const check_test tests[] = {__VA_ARGS__}; \
        const char *seed = getenv("CHECK_SEED"); \
        if (seed != NULL) check_seed = strtoull(seed, NULL, 10); \
        size_t count = sizeof tests / sizeof tests[0], failed = 0; \
        for (size_t i = 0; i < count; i++) { \
            check_state = check_seed; \
            long live = md_alloc_live; \
            int bad = tests[i].run(); \
            md_alloc_fail_at = -1; \
            if (!bad && md_alloc_live != live) { \
                fprintf(stderr, "%s: %ld blocks left\n", tests[i].name, md_alloc_live - live); \
                bad = 1; \
            } \
            if (bad) fprintf(stderr, "FAILED %s\n", tests[i].name); \
            failed += bad != 0; \
        } \
        printf("%zu of %zu C tests passed (%s)\n", count - failed, count, __FILE__); \
        return failed != 0; \
    }

#endif
