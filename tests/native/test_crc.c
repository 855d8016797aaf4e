#include "check.h"
#include "base/crc.h"

/* RFC 3720 B.4, and the check value of the polynomial. */
static int test_published_vectors(void) {
    uint8_t zeros[32] = {0}, ones[32], up[32], down[32];
    for (int i = 0; i < 32; i++) {
        ones[i] = 0xff;
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
    }
    CHECK(md_crc32c(0, "123456789", 9) == 0xE3069283u);
    CHECK(md_crc32c(0, zeros, 32) == 0x8A9136AAu);
    CHECK(md_crc32c(0, ones, 32) == 0x62A8AB43u);
    CHECK(md_crc32c(0, up, 32) == 0x46DD794Eu);
    CHECK(md_crc32c(0, down, 32) == 0x113FDB5Cu);
    CHECK(md_crc32c_table(0, up, 32) == 0x46DD794Eu);
    CHECK(md_crc32c(0, NULL, 0) == 0);
    return 0;
}

/* The polynomial bit by bit. */
static uint32_t slow(uint32_t value, const uint8_t *data, size_t size) {
    uint32_t c = ~value;
    for (size_t i = 0; i < size; i++) {
        c ^= data[i];
        for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
    }
    return ~c;
}

static int test_any_length_address_and_cut(void) {
    uint8_t data[300];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)check_random();
    for (int round = 0; round < 3000; round++) {
        size_t start = check_below(20), size = check_below(sizeof data - 20), cut = check_below(size + 1);
        uint32_t expected = slow(0, data + start, size);
        CHECK(md_crc32c(0, data + start, size) == expected);
        CHECK(md_crc32c_table(0, data + start, size) == expected);
        CHECK(md_crc32c(md_crc32c(0, data + start, cut), data + start + cut, size - cut) == expected);
    }
    return 0;
}

TEST_MAIN(TEST(test_published_vectors), TEST(test_any_length_address_and_cut))
