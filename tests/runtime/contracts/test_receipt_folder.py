"""What both parties have signed is added to a file, durably, and each document once."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError, ContractError
from medusa.runtime.contracts.contract_folder import read_folder
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
