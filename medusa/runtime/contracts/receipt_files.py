"""Receipts and settlements in files: a line for each, its kind and its bytes in base64.

Lines are added at the end; what begins with # says nothing. Files of one contract can be put together in any
order: what is in them is numbered and signed.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from medusa.errors import ContractError
from medusa.market.ledger.receipts import READING_BYTES_MAX, LoadReceipt, SignedSettlement, canonical
from medusa.wire.outbox import AddReceipt

__all__ = ["ReceiptsOfFile", "ReceiptFolder", "read_receipts", "receipt_lines"]

LINE_CHARS_MAX = 2 * READING_BYTES_MAX

LINES_KNOWN = 8
"""A node that was restarted says the last receipt and the last settlement again."""

TAIL_BYTES = 4 * LINE_CHARS_MAX


class ReceiptsOfFile(NamedTuple):
    """Bytes of ``LoadReceipt`` and of ``SignedSettlement``, as they stand in files."""

    receipts: tuple[bytes, ...]
    settlements: tuple[bytes, ...]


def receipt_lines(documents: Iterable[LoadReceipt | SignedSettlement]) -> str:
    """Lines to be added to a file."""
    return "".join(
        f"{'receipt' if isinstance(each, LoadReceipt) else 'settlement'}"
        f" {base64.b64encode(canonical(each)).decode()}\n"
        for each in documents
    )


def read_receipts(paths: Iterable[Path]) -> ReceiptsOfFile:
    """All that is in some files. Whether anybody signed it, the statement says.

    Raises:
        ContractError: a file can't be read, or has a line that is none; says which.
    """
    found: dict[str, list[bytes]] = {"receipt": [], "settlement": []}
    for path in paths:
        try:
            with path.open(encoding="ascii", errors="replace") as file:
                lines = iter(partial(file.readline, LINE_CHARS_MAX + 1), "")
                for number, line in enumerate(lines, start=1):
                    if len(line) > LINE_CHARS_MAX:  # The rest of it isn't read.
                        raise _no_line(path, number, line)
                    words = line.split(None, 2)
                    if not words or words[0].startswith("#"):
                        continue
                    if len(words) != 2 or words[0] not in found:
                        raise _no_line(path, number, line)
                    try:
                        found[words[0]].append(base64.b64decode(words[1], validate=True))
                    except (ValueError, binascii.Error):
                        raise _no_line(path, number, line) from None
        except OSError as error:
            raise ContractError(f"{path} can't be read: {error.strerror}", code="contract.file") from None
    return ReceiptsOfFile(tuple(found["receipt"]), tuple(found["settlement"]))


def _no_line(path: Path, number: int, line: str) -> ContractError:
    return ContractError(
        f"{path} line {number}: expected `receipt` or `settlement`, and its bytes in base64, got"
        f" {line[:40]!r}",
        hint="leave the line out: the statement names the receipt that is missing",
        code="contract.receipts",
    )


class ReceiptFolder:
    """Where a node keeps what both parties of its contracts have signed: a file of each contract, to which
    lines are only added."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._last: dict[Path, set[bytes]] = {}
        """Of each file the last lines: what comes again is there already."""

    def add(self, document: AddReceipt) -> None:
        """Add one, durably, unless it is among the last that are there.

        Raises:
            ContractError: the file can't be written; names it.
        """
        path = self._folder / f"{document.partner}.{document.contract}.receipts"
        line = f"{document.kind} {base64.b64encode(document.data).decode()}\n".encode()
        try:
            if path not in self._last:
                self._last[path] = _last_lines(path)
            if line in self._last[path]:
                return
            with path.open("ab") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise ContractError(f"{path} can't be written: {error.strerror}", code="contract.file") from None
        known = self._last[path]
        if len(known) >= LINES_KNOWN:
            known.clear()
        known.add(line)


def _last_lines(path: Path) -> set[bytes]:
    if not path.exists():
        return set()
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - TAIL_BYTES, 0))
        return set(file.read().splitlines(keepends=True))
