"""CRC-32C of any buffer, whole or in pieces."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from medusa._native import crc32c


def bitwise(data: bytes) -> int:
    """The polynomial, one bit at a time."""
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def test_published_vectors() -> None:
    """RFC 3720, appendix B.4."""
    assert crc32c(b"") == 0
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E


@given(st.binary(max_size=200), st.integers(0, 200))
def test_pieces_give_what_the_whole_gives(data: bytes, cut: int) -> None:
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data) == bitwise(data)


def test_any_buffer_is_taken() -> None:
    data = bytes(range(100))
    expected = crc32c(data)
    assert crc32c(memoryview(bytearray(data))) == expected
    assert crc32c(np.arange(100, dtype=np.uint8)) == expected
    assert crc32c(pa.py_buffer(data)) == expected
    assert crc32c(memoryview(data)[1:]) == crc32c(data[1:])
    with pytest.raises(TypeError):
        crc32c("text")
    with pytest.raises(BufferError):
        crc32c(memoryview(data)[::2])
