/* How a column of an Arrow type lies in memory, for code that moves values without looking at them. */
#ifndef MD_LAYOUT_H
#define MD_LAYOUT_H

#include "base/md_base.h"

typedef struct md_layout {
    enum { MD_FIXED, MD_BITS, MD_TEXT } kind;
    int64_t width; /* bytes of a value, or of an offset of text */
} md_layout;

/* Types taken: b | c C s S e i I f l L g | tdD tdm, tts ttm ttu ttn, ts*, tD* | d:p,s of 128 bits | u z. */
static inline bool md_layout_of(const char *format, md_layout *out) {
    static const struct {
        const char *formats; /* each after a space */
        md_layout layout;
    } TYPES[] = {{" b", {MD_BITS, 0}},
                 {" c C", {MD_FIXED, 1}},
                 {" s S e", {MD_FIXED, 2}},
                 {" i I f tdD tts ttm", {MD_FIXED, 4}},
                 {" l L g tdm ttu ttn", {MD_FIXED, 8}},
                 {" u z", {MD_TEXT, 4}}};
    size_t size = strlen(format);
    if (strncmp(format, "ts", 2) == 0 || strncmp(format, "tD", 2) == 0) {
        *out = (md_layout){MD_FIXED, 8};
        return true;
    }
    if (strncmp(format, "d:", 2) == 0) {
        /* d:precision,scale or with a third number, the bits when they aren't 128 */
        const char *comma = strchr(format, ',');
        *out = (md_layout){MD_FIXED, 16};
        return comma != NULL && strchr(comma + 1, ',') == NULL;
    }
    for (size_t i = 0; i < sizeof TYPES / sizeof TYPES[0]; i++) {
        for (const char *p = TYPES[i].formats; *p != 0;) {
            size_t word = strcspn(++p, " ");
            if (word == size && memcmp(p, format, size) == 0) {
                *out = TYPES[i].layout;
                return true;
            }
            p += word;
        }
    }
    return false;
}

#endif
