/* A stream of arrays that somebody else gives, each looked at before anybody follows its pointers. */
#ifndef MD_CHECKED_STREAM_H
#define MD_CHECKED_STREAM_H

#include "arrow_abi.h"
#include "md_base.h"

/* Moves `from` into a stream that gives the same arrays. One whose structs can't be (md_structs_check) ends it
 * with EINVAL and a last error that says where; so does a schema that can't be. On failure `from` is untouched. */
md_rc md_checked_stream(struct ArrowArrayStream *from, struct ArrowArrayStream *out);

#endif
