/* CRC-32C (Castagnoli): reflected polynomial 0x82F63B78, start and end inverted, as in iSCSI (RFC 3720)
 * and ext4. The nine bytes "123456789" give 0xE3069283.
 *
 * The processor's own instruction is used where it has one (SSE4.2, asked at run time), else tables.
 * Any thread. */
#ifndef MD_CRC_H
#define MD_CRC_H

#include "base/md_base.h"

/* The CRC of what came before (whose CRC is `value`; 0 for nothing) followed by data[0..size). */
uint32_t md_crc32c(uint32_t value, const void *data, size_t size);

/* The same by tables only: what processors without the instruction run. */
uint32_t md_crc32c_table(uint32_t value, const void *data, size_t size);

#endif
