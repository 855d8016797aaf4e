/* Streams of others, read to their end, and looked at before anything follows the pointers in them. */
#ifndef MD_STREAM_H
#define MD_STREAM_H

#include "arrow/arrow_abi.h"
#include "base/md_base.h"

/* Read all arrays of a stream and make another of them, which gives its schema once. `from` stays the caller's
 * to release. With `rows`, arrays of structs are batches: md_batch_check.
 *
 * MD_BADDATA: a schema or an array that can't be; says which. MD_BADARG: the stream failed; *code is its errno,
 * the error its own text. On failure what was read has been released and `out` isn't written. */
md_rc md_stream_read(struct ArrowArrayStream *from, bool rows, struct ArrowArrayStream *out, int *code,
                     md_error *err);

#endif
