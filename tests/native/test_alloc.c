#include "check.h"

static int test_the_kth_call_fails_once(void) {
    md_alloc_fail_at = 2;
    void *a = md_malloc(1), *b = md_calloc(1, 1), *c = md_malloc(1), *d = md_malloc(1);
    CHECK(a != NULL && b != NULL && c == NULL && d != NULL);
    CHECK(md_alloc_fail_at == -1 && md_alloc_live == 3);
    md_free(a);
    md_free(b);
    md_free(d);
    md_free(NULL);
    CHECK(md_alloc_live == 0);
    return 0;
}

static int test_a_failing_realloc_keeps_the_block(void) {
    char *a = md_malloc(4);
    memcpy(a, "abc", 4);
    md_alloc_fail_at = 0;
    CHECK(md_realloc(a, 1000) == NULL);
    CHECK(strcmp(a, "abc") == 0 && md_alloc_live == 1);
    a = md_realloc(a, 1000);
    CHECK(a != NULL && strcmp(a, "abc") == 0 && md_alloc_live == 1);
    md_free(a);
    return 0;
}

static int test_sizes_of_nothing_and_too_much(void) {
    void *a = md_malloc(0), *b = md_calloc(0, 8), *c = md_realloc(NULL, 0);
    CHECK(a != NULL && b != NULL && c != NULL);
    md_free(a);
    md_free(b);
    md_free(c);
    CHECK(md_calloc(SIZE_MAX / 2, 3) == NULL);
    size_t size;
    CHECK(!md_mul_size(SIZE_MAX / 2, 3, &size) && !md_add_size(SIZE_MAX, 1, &size));
    CHECK(md_mul_size(3, 4, &size) && size == 12);
    return 0;
}

TEST_MAIN(TEST(test_the_kth_call_fails_once), TEST(test_a_failing_realloc_keeps_the_block),
          TEST(test_sizes_of_nothing_and_too_much))
