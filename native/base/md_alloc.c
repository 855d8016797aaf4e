#include "base/md_alloc.h"

#include <stdlib.h>

#ifdef MD_ALLOC_TEST
long md_alloc_fail_at = -1;
long md_alloc_live = 0;

static bool refuse(void) {
    if (md_alloc_fail_at < 0) return false;
    return md_alloc_fail_at-- == 0;
}
#define COUNT(block) ((block) != NULL ? md_alloc_live++ : 0)
#else
#define refuse() false
#define COUNT(block) ((void)0)
#endif

void *md_malloc(size_t size) {
    if (refuse()) return NULL;
    void *block = malloc(size != 0 ? size : 1);
    COUNT(block);
    return block;
}

void *md_calloc(size_t count, size_t size) {
    if (refuse()) return NULL;
    void *block = calloc(count != 0 ? count : 1, size != 0 ? size : 1);
    COUNT(block);
    return block;
}

void *md_realloc(void *block, size_t size) {
    if (block == NULL) return md_malloc(size);
    if (refuse()) return NULL;
    return realloc(block, size != 0 ? size : 1);
}

void md_free(void *block) {
#ifdef MD_ALLOC_TEST
    if (block != NULL) md_alloc_live--;
#endif
    free(block);
}
