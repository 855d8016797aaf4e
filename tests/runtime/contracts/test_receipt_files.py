"""Files of receipts: what is too long is refused before it is read."""

from __future__ import annotations

import base64
import tracemalloc

import pytest

from medusa.errors import ContractError
from medusa.runtime.contracts.receipt_files import LINE_CHARS_MAX, read_receipts


def test_lines_of_both_kinds_are_read_in_order_and_comments_are_not(tmp_path):
    path = tmp_path / "r"
    path.write_text(f"# one\n\nreceipt {base64.b64encode(b'a').decode()}\nsettlement Yg==\nreceipt Yw==")
    found = read_receipts([path, path])
    assert (found.receipts, found.settlements) == ((b"a", b"c") * 2, (b"b", b"b"))


@pytest.mark.parametrize("begin", ["receipt ", "# "])
def test_a_line_that_is_too_long_is_not_read_as_a_whole(tmp_path, begin):
    path = tmp_path / "r"
    path.write_text("# one\n" + begin + "A" * (64 * LINE_CHARS_MAX))
    tracemalloc.start()
    try:
        with pytest.raises(ContractError, match="r line 2: expected") as caught:
            read_receipts([path])
        assert tracemalloc.get_traced_memory()[1] < 16 * LINE_CHARS_MAX
    finally:
        tracemalloc.stop()
    assert caught.value.code == "contract.receipts"


def test_a_line_of_the_most_characters_is_read(tmp_path):
    path = tmp_path / "r"
    text = "receipt " + "A" * ((LINE_CHARS_MAX - 9) // 4 * 4)
    path.write_text(text + "\n")
    assert len(read_receipts([path]).receipts[0]) == (len(text) - 8) // 4 * 3
