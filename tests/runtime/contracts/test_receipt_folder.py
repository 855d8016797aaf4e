"""What both parties have signed is added to a file, durably, and each document once."""

from __future__ import annotations

import errno

import pytest

from medusa.errors import ConfigError, ContractError
from medusa.runtime.contracts import receipt_files
from medusa.runtime.contracts.contract_folder import read_folder
from medusa.runtime.contracts.example_receipts import write_example
from medusa.runtime.contracts.receipt_files import ReceiptFolder, read_receipts
from medusa.wire.outbox import AddReceipt


def document(data, kind="receipt"):
    return AddReceipt(partner="bob", contract="c", kind=kind, data=data)


def test_lines_are_added_and_read_back(tmp_path):
    folder = ReceiptFolder(str(tmp_path))
    folder.add(document(b"one"))
    folder.add(document(b"two"))
    folder.add(document(b"all", "settlement"))
    found = read_receipts([tmp_path / "bob.c.receipts"])
    assert found.receipts == (b"one", b"two")
    assert found.settlements == (b"all",)


def test_what_comes_again_is_there_once_also_after_a_restart(tmp_path):
    for _ in range(2):
        folder = ReceiptFolder(str(tmp_path))
        for _ in range(2):
            folder.add(document(b"one"))
            folder.add(document(b"all", "settlement"))
    found = read_receipts([tmp_path / "bob.c.receipts"])
    assert (found.receipts, found.settlements) == ((b"one",), (b"all",))


def test_a_folder_that_cant_be_written_says_which(tmp_path):
    with pytest.raises(ContractError, match=r"bob\.c\.receipts can't be written"):
        ReceiptFolder(str(tmp_path / "nowhere")).add(document(b"one"))


@pytest.fixture
def signed(tmp_path_factory):
    """Bytes of receipts and of a settlement, as both parties sign them."""
    found = read_receipts([write_example(tmp_path_factory.mktemp("example"), 1_700_000_000_000_000).receipts])
    return [document(data) for data in found.receipts[:3]] + [document(found.settlements[0], "settlement")]


def test_a_line_that_a_crash_cut_off_costs_neither_the_file_nor_the_next_line(tmp_path, signed):
    """Cut to every length of the last line, and then what a node that starts says again, and a new one."""
    whole, path = tmp_path / "whole", tmp_path / "bob.c.receipts"
    whole.mkdir()
    for each in signed[:2]:
        ReceiptFolder(str(whole)).add(each)
    text = (whole / path.name).read_bytes()
    for cut in range(text.index(b"\n") + 1, len(text) + 1):
        path.write_bytes(text[:cut])
        folder = ReceiptFolder(str(tmp_path))
        for each in signed[1:]:
            folder.add(each)
        found = read_receipts([path])
        assert (*found.receipts, *found.settlements) == tuple(each.data for each in signed)


@pytest.mark.parametrize("end", [bytes(64), b"receipt AAAA", b"receipt AAAA\0\0", b"settlement", b"rec"])
def test_what_is_no_document_at_the_end_goes(tmp_path, signed, end):
    path = tmp_path / "bob.c.receipts"
    ReceiptFolder(str(tmp_path)).add(signed[0])
    path.write_bytes(path.read_bytes() + end)
    ReceiptFolder(str(tmp_path)).add(signed[1])
    assert read_receipts([path]).receipts == (signed[0].data, signed[1].data)


def test_an_old_settlement_that_is_said_again_with_a_receipt_is_there_once(tmp_path, signed):
    """A node says the last of each again when it starts; many receipts have come since the settlement."""
    *receipts, settlement = signed
    later = [document(b"%d" % each) for each in range(100)]
    folder = ReceiptFolder(str(tmp_path))
    for each in (settlement, *later):
        folder.add(each)
    folder = ReceiptFolder(str(tmp_path))
    for each in (receipts[0], settlement):
        folder.add(each)
    found = read_receipts([tmp_path / "bob.c.receipts"])
    assert found.receipts == (*(each.data for each in later), receipts[0].data)
    assert found.settlements == (settlement.data,)


def test_what_a_full_disk_refused_is_added_with_the_next_one(tmp_path, signed, monkeypatch):
    """Also where a part of a line got there."""
    folder, path = ReceiptFolder(str(tmp_path)), tmp_path / "bob.c.receipts"
    folder.add(signed[0])

    def full(path, lines):
        with path.open("ab") as file:
            file.write(lines[: len(lines) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(receipt_files, "_append", full)
        for each in (signed[1], signed[2], signed[1]):
            with pytest.raises(ContractError, match="No space left"):
                folder.add(each)
    folder.add(signed[3])
    found = read_receipts([path])
    assert (*found.receipts, *found.settlements) == tuple(each.data for each in signed)


def test_contracts_and_revocations_are_read_and_nothing_else(tmp_path):
    for name in ("a.contract", "b.revoked", "bob.c.receipts", "terms.toml"):
        (tmp_path / name).write_text(name)
    (tmp_path / "c.contract").mkdir()
    assert read_folder(str(tmp_path)) == {
        "a.contract": "a.contract",
        "b.revoked": "b.revoked",
        "c.contract": "",
    }


def test_no_folder(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_folder(str(tmp_path / "nowhere"))
    assert "nowhere can't be read" in caught.value.message
    assert "medusa contract accept" in caught.value.hint
