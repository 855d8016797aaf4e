#include "arrow/block.h"

#include <stdatomic.h>

#include "arrow/column.h"
#include "base/md_alloc.h"

typedef struct block {
    atomic_long arrays; /* not released yet */
} block;

static void leave(block *b) {
    if (atomic_fetch_sub_explicit(&b->arrays, 1, memory_order_acq_rel) == 1) md_free(b);
}

static void release_column(struct ArrowArray *array) {
    array->release = NULL;
    leave(array->private_data);
}

static void release_rows(struct ArrowArray *array) {
    for (int64_t k = 0; k < array->n_children; k++) md_array_release(array->children[k]);
    array->release = NULL;
    leave(array->private_data);
}

bool md_block_reserve(size_t *end, size_t size, size_t *at) {
    size_t room;
    if (!md_add_size(*end, MD_BLOCK_ALIGN - 1, &room)) return false;
    *at = room / MD_BLOCK_ALIGN * MD_BLOCK_ALIGN;
    return md_add_size(*at, size, end);
}

md_rc md_block_make(int64_t count, size_t data_size, struct ArrowArray *out, uint8_t **data) {
    size_t columns = (size_t)count, size, more;
    const size_t each = sizeof(struct ArrowArray) + sizeof(struct ArrowArray *) + 3 * sizeof(void *);
    if (!md_mul_size(columns, each, &size) ||
        !md_add_size(size, sizeof(block) + sizeof(void *) + MD_BLOCK_ALIGN, &more) ||
        !md_add_size(more, data_size, &more))
        return MD_NOMEM;
    block *b = md_malloc(more);
    if (b == NULL) return MD_NOMEM;
    atomic_init(&b->arrays, count + 1);
    struct ArrowArray *nodes = (struct ArrowArray *)(void *)(b + 1);
    struct ArrowArray **pointers = (struct ArrowArray **)(void *)(nodes + columns);
    const void **buffers = (const void **)(void *)(pointers + columns);
    uintptr_t behind = (uintptr_t)(buffers + 3 * columns + 1);
    memset(buffers, 0, (3 * columns + 1) * sizeof *buffers);
    for (size_t k = 0; k < columns; k++) {
        pointers[k] = &nodes[k];
        nodes[k] = (struct ArrowArray){
            .n_buffers = 2, .buffers = buffers + 1 + 3 * k, .release = release_column, .private_data = b};
    }
    *out = (struct ArrowArray){.n_buffers = 1, .buffers = buffers, .n_children = count,
                               .children = count != 0 ? pointers : NULL, .release = release_rows,
                               .private_data = b};
    *data = (uint8_t *)(buffers + 3 * columns + 1) + (MD_BLOCK_ALIGN - behind % MD_BLOCK_ALIGN) % MD_BLOCK_ALIGN;
    return MD_OK;
}
