/* Counted blocks of bytes: the objects of a table (accumulate.h).
 *
 * A block that several tables hold (references > 1) is never changed: md_blob_room makes a copy first.
 *
 *   | references | size | capacity | promised | bytes ... |     size <= capacity
 *
 * promised: what md_blob_room was asked for and has not been used; several requests add up, and each addition
 * takes its share back. A promise that nobody uses costs room, nothing else. */
#ifndef MD_BLOB_H
#define MD_BLOB_H

#include "base/md_alloc.h"
#include "base/md_base.h"

typedef struct md_blob {
    int64_t references;
    size_t size, capacity, promised;
    uint8_t bytes[];
} md_blob;

/* Give one reference back; NULL is allowed. */
MD_INLINE void md_blob_release(md_blob *blob) {
    if (blob != NULL && --blob->references == 0) md_free(blob);
}

MD_INLINE md_blob *md_blob_share(md_blob *blob) {
    if (blob != NULL) blob->references++;
    return blob;
}

/* Make *blob, which may be NULL, the caller's alone, with room for `capacity` bytes. On MD_NOMEM unchanged. */
md_rc md_blob_room(md_blob **blob, size_t capacity);

MD_INLINE size_t md_blob_nbytes(const md_blob *blob) { return blob != NULL ? sizeof *blob + blob->capacity : 0; }

#endif
