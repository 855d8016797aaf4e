/* The only door to malloc.
 *
 * In shipped code these are malloc, realloc and free themselves, so they are thread safe.
 * With -DMD_ALLOC_TEST they count and can be made to fail, for tests of one thread:
 *
 *     for (long k = 0;; k++) {
 *         md_alloc_fail_at = k;              the k-th call from now on fails (0: the next one); -1: none
 *         rc = md_thing_new(&thing);
 *         md_thing_free(thing);
 *         CHECK(md_alloc_live == 0);         blocks not freed yet
 *         if (rc == MD_OK) break;
 *         CHECK(rc == MD_NOMEM);
 *     }
 *
 * Only one call fails: after it md_alloc_fail_at is -1 again. */
#ifndef MD_ALLOC_H
#define MD_ALLOC_H

#include "base/md_base.h"

#ifdef MD_ALLOC_TEST
extern long md_alloc_fail_at; /* calls left until one fails; -1: none will */
extern long md_alloc_live;    /* blocks allocated and not freed */
#endif

/* A block of `size` bytes aligned to 16, owned by the caller, ended by md_free; NULL: no memory.
 * Size 0 gives a block too, so NULL always means failure. */
void *md_malloc(size_t size);

/* The same, of count * size bytes set to zero; NULL also when the product doesn't fit. */
void *md_calloc(size_t count, size_t size);

/* Resize; on NULL the old block is still owned by the caller and unchanged. block NULL: md_malloc. */
void *md_realloc(void *block, size_t size);

void md_free(void *block);

#endif
