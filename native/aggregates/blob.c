#include "aggregates/blob.h"

md_rc md_blob_room(md_blob **blob, size_t capacity) {
    md_blob *old = *blob;
    size_t whole, size = old != NULL ? old->size : 0;
    if (old != NULL && old->references == 1 && capacity <= old->capacity) return MD_OK;
    if (capacity < size) capacity = size;
    if (old != NULL && capacity > old->capacity && capacity < old->capacity + old->capacity / 2)
        capacity = old->capacity + old->capacity / 2;
    if (!md_add_size(sizeof *old, capacity, &whole)) return MD_NOMEM;
    md_blob *made;
    if (old != NULL && old->references == 1) {
        made = md_realloc(old, whole);
        if (made == NULL) return MD_NOMEM;
    } else {
        made = md_malloc(whole);
        if (made == NULL) return MD_NOMEM;
        *made = (md_blob){.references = 1, .size = size, .promised = old != NULL ? old->promised : 0};
        if (size > 0) memcpy(made->bytes, old->bytes, size);
        md_blob_release(old);
    }
    made->capacity = capacity;
    *blob = made;
    return MD_OK;
}
