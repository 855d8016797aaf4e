/* Whether bytes are UTF-8. */
#ifndef MD_UTF8_H
#define MD_UTF8_H

#include "base/md_base.h"

typedef enum {
    MD_UTF8_INVALID,
    MD_UTF8_ASCII, /* valid, and every byte is a character */
    MD_UTF8_VALID,
} md_utf8;

/* Unicode 15, table 3-7: no surrogates, nothing beyond U+10FFFF, no longer form than needed. */
md_utf8 md_utf8_look(const uint8_t *data, int64_t n);

/* The same one character at a time: for few bytes, for machines without AVX2, and for the test of the other. */
bool md_utf8_by_character(const uint8_t *data, int64_t n);

#endif
