"""Documents have one form in bytes, and one kind each."""

from __future__ import annotations

import pytest

from medusa.errors import RemoteProtocolError
from medusa.market.ledger.receipts import (
    READING_CONTEXT,
    REFUSAL_CONTEXT,
    SETTLEMENT_CONTEXT,
    canonical,
    read_reading,
    read_receipt,
    read_settlement,
    refusal_bytes,
)
from tests.market.ledger.pair import Pair


@pytest.fixture
def receipt() -> bytes:
    pair = Pair()
    pair.begin()
    pair.run(12)
    return pair.receipts["host"][0]


def test_what_is_read_is_written_alike(receipt):
    assert canonical(read_receipt(receipt)) == receipt
    reading = read_receipt(receipt).reading
    assert canonical(read_reading(reading)) == reading


def test_another_form_of_the_same_is_refused(receipt):
    """Interval 0 is one byte behind the consumer and the number; as two bytes it says the same."""
    reading = read_receipt(receipt).reading
    assert reading.count(b"\xa5owner\x00\x00") == 1
    longer = reading.replace(b"\xa5owner\x00\x00", b"\xa5owner\x00\xcc\x00")
    for wrong in (longer, reading + b"\0", reading[:-1], b""):
        with pytest.raises(RemoteProtocolError) as caught:
            read_reading(wrong)
        assert caught.value.code == "E_MESSAGE"


def test_a_document_of_one_kind_is_none_of_another(receipt):
    reading = read_receipt(receipt).reading
    for read in (read_receipt, read_settlement):
        with pytest.raises(RemoteProtocolError):
            read(reading)
    contexts = (READING_CONTEXT, REFUSAL_CONTEXT, SETTLEMENT_CONTEXT)
    assert not any(one != other and one.startswith(other) for one in contexts for other in contexts)


def test_a_refusal_is_of_one_reading_and_one_reason():
    found = {refusal_bytes(reading, code) for reading in (b"a", b"b") for code in ("E_PRICE", "E_BILLING")}
    assert len(found) == 4
    assert all(each.startswith(REFUSAL_CONTEXT) for each in found)
