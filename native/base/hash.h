/* hash_table: the keyed hash of our tables. Its seed differs per process, so nobody can prepare keys
 * that collide; it never influences order or output. (hash_partition, which is fixed for all nodes,
 * is in partition.h.)
 *
 * Built on the folded 64 x 64 -> 128 bit product, as in wyhash (Wang Yi, public domain). */
#ifndef MD_HASH_H
#define MD_HASH_H

#include "base/md_base.h"

#define MD_HASH_A 0x9e3779b97f4a7c15ull
#define MD_HASH_B 0xe7037ed1a0b428dbull
#define MD_HASH_NULL 0x8ebc6af09c88c6e3ull /* the word that stands for null */

MD_INLINE uint64_t md_fold(uint64_t a, uint64_t b) {
    unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Mix one word into h; the first word goes into the seed. */
MD_INLINE uint64_t md_hash_word(uint64_t h, uint64_t word) { return md_fold(word ^ h, h ^ MD_HASH_A) ^ word; }

/* Mix size bytes at p into h, which must be secret where keys come from strangers. No factor of a product is
 * theirs alone: one that they could make zero would end in the same hash whatever the seed. */
static inline uint64_t md_hash_bytes(uint64_t h, const uint8_t *p, uint32_t size) {
    uint64_t a, b;
    h ^= md_fold(size ^ MD_HASH_B, h ^ MD_HASH_A);
    for (; size > 16; size -= 16, p += 16)
        h = md_fold(md_load_u64(p) ^ h, md_load_u64(p + 8) ^ MD_HASH_B ^ (h >> 32 | h << 32));
    if (size >= 8) {
        a = md_load_u64(p);
        b = md_load_u64(p + size - 8);
    } else if (size >= 4) {
        a = md_load_u32(p);
        b = md_load_u32(p + size - 4);
    } else if (size > 0) {
        a = (uint64_t)p[0] << 16 | (uint64_t)p[size >> 1] << 8 | p[size - 1];
        b = 0;
    } else {
        a = b = 0;
    }
    return md_fold(a ^ h, b ^ MD_HASH_B ^ (h >> 32 | h << 32));
}

#endif
