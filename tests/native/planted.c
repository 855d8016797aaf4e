/* Two planted bugs: sanitize.py must see both found, or its silence means nothing. */
#include <stdint.h>
#include <stdlib.h>

/* Reads one byte past a block of `size` bytes. */
int planted_overflow(int size) {
    volatile uint8_t *block = calloc((size_t)size, 1);
    int past = block == NULL ? 0 : block[size];
    free((void *)(uintptr_t)block);
    return past;
}

/* Overflows a signed number for value INT32_MAX. */
int planted_signed(int value) { return value + 1; }
