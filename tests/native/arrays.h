/* Arrow arrays over a test's own buffers: nothing is copied, and releasing them frees nothing. */
#ifndef MD_ARRAYS_H
#define MD_ARRAYS_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

static void arrays_keep_array(struct ArrowArray *array) { array->release = NULL; }
static void arrays_keep_schema(struct ArrowSchema *schema) { schema->release = NULL; }

/* A column over buffers[0..n_buffers), which must outlive it; its nulls are not counted (-1). */
static inline struct ArrowArray array_over(const void **buffers, int64_t n_buffers, int64_t offset, int64_t length) {
    return (struct ArrowArray){.length = length, .null_count = buffers[0] != NULL ? -1 : 0, .offset = offset,
                               .n_buffers = n_buffers, .buffers = buffers, .release = arrays_keep_array};
}

static inline struct ArrowSchema schema_of(const char *format) {
    return (struct ArrowSchema){.format = format, .name = "", .release = arrays_keep_schema};
}

/* A struct of the columns whose addresses stand in children[0..n). */
static inline struct ArrowArray struct_over(struct ArrowArray **children, int64_t n, int64_t offset, int64_t length) {
    static const void *none[1] = {NULL};
    return (struct ArrowArray){.length = length, .offset = offset, .n_buffers = 1, .n_children = n,
                               .buffers = none, .children = children, .release = arrays_keep_array};
}

static inline struct ArrowSchema struct_schema(struct ArrowSchema **children, int64_t n) {
    return (struct ArrowSchema){.format = "+s", .name = "", .n_children = n, .children = children,
                                .release = arrays_keep_schema};
}

#endif
