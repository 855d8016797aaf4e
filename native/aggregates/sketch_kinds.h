/* Summaries of a group's values that grow, as the bytes of an object (blob.h). The bytes are also what links
 * and checkpoints carry; little-endian; no bytes at all: no values.
 *
 *   HLL      sparse: up to 256 hashes, uint64 each, ascending, each once       exact
 *            dense: 4096 registers, one byte each, 0 .. 53                     HyperLogLog, error 1.04 / sqrt(4096)
 *   VALUES   the values, float64 each, canonical, in the order they came       for exact quantiles
 *   BUCKETS  uint64 resolution r in 0 .. 7, then (int64 bucket, uint64 count) each, buckets ascending, each once
 *
 * HLL: Flajolet, Fusy, Gandouet, Meunier: HyperLogLog, 2007; the estimate is O. Ertl's: New cardinality
 * estimation algorithms for HyperLogLog sketches, 2017, algorithm 6, which needs no correction tables.
 *
 * BUCKETS: DDSketch (Masson, Rim, Lee, VLDB 2019) with its linearly interpolated logarithm: a bucket is sign,
 * exponent and the first r bits of the mantissa, so no libm is asked and all nodes agree. A value is told within
 * 2^-(r+1) of itself. When more than MD_BUCKETS_MAX buckets are in use, neighbours join (r falls by one), as in
 * UDDSketch (Epicoco et al., 2020). What comes out depends on the multiset of values only.
 *
 * All three merge in any order to the same counts; nothing is taken away again. */
#ifndef MD_SKETCH_KINDS_H
#define MD_SKETCH_KINDS_H

#include "aggregates/accumulate.h"
#include "aggregates/blob.h"

#define MD_HLL_BITS 12
#define MD_HLL_REGISTERS (1 << MD_HLL_BITS)
#define MD_HLL_SPARSE 256
#define MD_BUCKETS_MAX 4104
#define MD_BUCKETS_RESOLUTION 7

/* Untrusted bytes: MD_BADDATA unless they are of this kind. */
md_rc md_sketch_check(md_cell kind, const uint8_t *bytes, size_t size, md_error *err);

/* Promise room for one more value in *blob, or for merging other bytes into it. On MD_NOMEM as before. */
md_rc md_sketch_room(md_cell kind, md_blob **blob);
md_rc md_sketch_room_merge(md_cell kind, md_blob **blob, size_t size);

/* Add; room was promised. The word is a hash (HLL) or a float64. */
void md_hll_add(md_blob *blob, uint64_t hash);
void md_values_add(md_blob *blob, double v);
void md_buckets_add(md_blob *blob, double v);

/* Take over what other bytes (checked, or another object's) hold; room was promised. */
void md_sketch_merge(md_cell kind, md_blob *blob, const uint8_t *bytes, size_t size);

/* How many different values, rounded to the nearest integer; exactly while sparse. */
int64_t md_hll_count(const md_blob *blob);

/* The quantile, with linear interpolation between neighbours; false: no values. `scratch` has room for
 * blob->size bytes. */
bool md_values_quantile(const md_blob *blob, double q, uint64_t *scratch, double *out);

/* An estimate of the value at rank floor(q (n - 1)); false: no values. */
bool md_buckets_quantile(const md_blob *blob, double q, double *out);

#endif
