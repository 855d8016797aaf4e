/* A bounded queue of train ids with a cursor per reader.
 *
 * It holds ids and sizes, not rows: what an id stands for is the caller's. A train stays until every
 * reader has passed it and the caller trims.
 *
 *   position:     head                                   tail
 *                   v                                      v
 *     dropped ... [ 17 | 18 | 19 | 20 | 21 | 22 | 23 | 24 ) ... to come
 *                             ^              ^         ^
 *                             |              reader 1  reader 3 (has read everything)
 *                             reader 0: 17 and 18 are passed by all, so they can be trimmed
 *
 *   The trains stand in a ring: position p is slot p mod capacity, capacity a power of two that grows.
 *
 * Invariants: head <= cursor <= tail for each reader; tail - head <= min(capacity, trains_max);
 * bytes = sum of the sizes of [head, tail); bytes <= bytes_max unless exactly one train is held.
 * Positions only grow; a reader's number is never given twice.
 *
 * One thread at a time. */
#ifndef MD_QUEUE_H
#define MD_QUEUE_H

#include "base/md_base.h"

typedef struct md_queue md_queue;

/* Make an empty queue. bytes_max >= 1, trains_max in [1, 2^32].
 * MD_BADARG: a bound out of its range. On MD_OK *out is the caller's and ends with md_queue_free. */
md_rc md_queue_new(uint64_t bytes_max, uint64_t trains_max, md_queue **out, md_error *err);
void md_queue_free(md_queue *q);

/* Append a train. MD_FULL: it would exceed a bound, and nothing was stored; trim and try again. A
 * train larger than bytes_max enters an empty queue, so that it can pass at all. */
md_rc md_queue_push(md_queue *q, uint64_t train_id, uint64_t nbytes, md_error *err);

/* A new reader, at the oldest train held; its number into *reader. */
md_rc md_queue_reader(md_queue *q, uint32_t *reader, md_error *err);

/* The reader's next train into *train_id, and move on. MD_EMPTY: it has read everything.
 * MD_BADARG: no such reader (or closed). */
md_rc md_queue_next(md_queue *q, uint32_t reader, uint64_t *train_id, md_error *err);

/* End a reader: it holds nothing back any more. MD_BADARG: no such reader. */
md_rc md_queue_close(md_queue *q, uint32_t reader, md_error *err);

/* How many trains every reader has passed: all held when there is no reader. */
uint64_t md_queue_passed(const md_queue *q);

/* Drop the n oldest and write their ids, oldest first, to train_ids[0..n).
 * MD_BADARG: n > md_queue_passed(q). */
md_rc md_queue_trim(md_queue *q, uint64_t n, uint64_t *train_ids, md_error *err);

/* Bytes and trains held. */
uint64_t md_queue_bytes(const md_queue *q);
uint64_t md_queue_trains(const md_queue *q);

#endif
