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
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from medusa.errors import ContractError, RemoteProtocolError
from medusa.market.ledger.receipts import (
    READING_BYTES_MAX,
    LoadReceipt,
    SignedSettlement,
    canonical,
    read_receipt,
    read_signed_settlement,
)
from medusa.runtime.store.history_files import sync_folder
from medusa.wire.outbox import AddReceipt

__all__ = ["ReceiptsOfFile", "ReceiptFolder", "read_receipts", "receipt_lines"]

LINE_CHARS_MAX = 2 * READING_BYTES_MAX

LINES_KNOWN = 4096
"""Of each file. A node that was restarted says the last receipt and the last settlement again, and many
receipts may have come since the settlement."""

LINES_WAITING_MAX = 256
"""Of one contract, while its file can't be written. One comes in an interval: hours of them."""

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
    lines are only added. What a crash left of a line is cut off before the next one is added."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._last: dict[Path, dict[bytes, None]] = {}
        """Of each file the last lines, in order, as hashes: what comes again is there already."""
        self._waiting: dict[Path, list[bytes]] = {}
        """Of each file the lines that couldn't be written yet."""

    def add(self, document: AddReceipt) -> None:
        """Add one, durably, unless it is among the last that are there; before it what couldn't be added.

        Raises:
            ContractError: the file can't be written; names it. What wasn't added is added with the next one.
        """
        path = self._folder / f"{document.partner}.{document.contract}.receipts"
        line = f"{document.kind} {base64.b64encode(document.data).decode()}\n".encode()
        waiting = self._waiting.setdefault(path, [])
        if line not in waiting:
            waiting.append(line)
            del waiting[:-LINES_WAITING_MAX]
        try:
            if path not in self._last:
                self._last[path] = _mended(path)
            last = self._last[path]
            new = [each for each in waiting if _hash(each) not in last]
            if new:
                _append(path, b"".join(new))
        except OSError as error:
            self._last.pop(path, None)  # A part of a line may be there: the end is looked at anew.
            raise ContractError(
                f"{path} can't be written: {error.strerror}",
                hint="make room, or give the node the right to write there; it tries again with the next one",
                code="contract.file",
            ) from None
        waiting.clear()
        for each in new:
            if len(last) >= LINES_KNOWN:
                del last[next(iter(last))]
            last[_hash(each)] = None


def _append(path: Path, lines: bytes) -> None:
    """Durably, the file's name too."""
    new = not path.exists()
    with path.open("ab") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
    if new:
        sync_folder(str(path.parent))


def _mended(path: Path) -> dict[bytes, None]:
    """Hashes of the last lines of a file, of which the last one is whole then.

    A line that a crash or a full disk cut off would make the next one unreadable, and the file with it. A
    node says its last documents again when it starts, so nothing is lost with it.
    """
    if not path.exists():
        return {}
    with path.open("r+b") as file:
        size = path.stat().st_size
        file.seek(max(size - TAIL_BYTES, 0))
        *lines, torn = file.read().split(b"\n")
        if torn and _is_whole(torn):  # Somebody's editor leaves out the end of the last line.
            file.seek(0, os.SEEK_END)
            file.write(b"\n")
            lines.append(torn)
        elif torn:
            file.truncate(size - len(torn))
        file.flush()
        os.fsync(file.fileno())
    return dict.fromkeys(_hash(line + b"\n") for line in lines)


def _hash(line: bytes) -> bytes:
    return blake2b(line, digest_size=16).digest()


def _is_whole(line: bytes) -> bool:
    kind, _, text = line.partition(b" ")
    read = {b"receipt": read_receipt, b"settlement": read_signed_settlement}.get(kind)
    try:
        if read is not None:
            read(base64.b64decode(text.strip(), validate=True))
    except (ValueError, binascii.Error, RemoteProtocolError):
        return False
    return read is not None or line.startswith(b"#")
