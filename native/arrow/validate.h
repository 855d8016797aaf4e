/* Values of columns that came from outside: what the Arrow layout promises of them, looked at. */
#ifndef MD_VALIDATE_H
#define MD_VALIDATE_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

typedef enum {
    MD_VALID,
    MD_INVALID_OFFSETS, /* negative or decreasing; or without buffers */
    MD_INVALID_UTF8,
    MD_INVALID_DECIMAL, /* more digits than its type has */
    MD_INVALID_NULLS,   /* another count than its bitmap has */
} md_validity;

/* The structs of an array, before anything follows their pointers: lengths, offsets and counts that can be, the
 * children and the dictionary of its schema, and the buffers that its length needs. MD_BADARG: says where. */
md_rc md_structs_check(const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err);

/* The same of a batch of rows, a struct (of other arrays just that): its columns are as long as it. What a column's
 * length says is taken for true otherwise, and its last offset is read. */
md_rc md_batch_check(const struct ArrowSchema *schema, const struct ArrowArray *array, md_error *err);

/* Whether the children and dictionaries of an array are those of its schema, which md_schema_check has passed. Of
 * another one `release` may follow pointers that aren't there: whoever gave it has lost its memory. */
bool md_array_walks(const struct ArrowSchema *schema, const struct ArrowArray *array);

/* The structs of a schema alone. MD_BADARG: says where. */
md_rc md_schema_check(const struct ArrowSchema *schema, md_error *err);

/* The count of nulls of any column without children; text, binary (32 and 64 bits of offsets) and decimal128 by
 * all their values, where nulls may hold anything but offsets. The caller knows that md_structs_check passed,
 * and that buffers are as long as the first and last offset and the length say.
 *
 * row: of the first invalid value, from the start of the array. */
md_validity md_validate(const struct ArrowSchema *schema, const struct ArrowArray *array, int64_t *row);

#endif
