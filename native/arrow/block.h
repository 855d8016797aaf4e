/* A struct array whose columns stand in one block of memory.
 *
 *   block [ counter | column nodes | pointers | ... data, aligned to 64 ... ]
 *
 * Four columns of half a train are 2 MB. As blocks of their own malloc gave them back to the system after
 * each train and faulted them in again; that took longer than the filter that made them. The block ends with
 * the last of its arrays: a taker may move columns out of the struct. Release on any thread. */
#ifndef MD_BLOCK_H
#define MD_BLOCK_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

#define MD_BLOCK_ALIGN 64

/* A struct array of `count` columns, each of length 0 with 2 buffers and room for a third, all NULL; *data is
 * room for `size` bytes, to which the caller points the buffers. On failure nothing is touched. */
md_rc md_block_make(int64_t count, size_t size, struct ArrowArray *out, uint8_t **data);

/* Room for `size` bytes at a multiple of MD_BLOCK_ALIGN behind *end, which moves; false: too much. */
bool md_block_reserve(size_t *end, size_t size, size_t *at);

#endif
