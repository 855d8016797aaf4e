"""How much of a log was synced: a mark beside it, and the damage that it shows.

A record that isn't whole at the end of a log was torn by a crash, or damaged after it had been synced; the
log alone can't tell which. So each log has a mark: its synced length and the CRC-32C of those bytes.

    slot:  "MDSY" | version (4) | number of the log (8) | length (8) | CRC-32C of it (4) | of the slot (4)

Two slots are written in turn, each after a sync of the log, so a mark never says more than was synced, and a
torn write leaves the other slot. The mark isn't synced each time: what it says after ``kill -9`` is exact,
after a power cut a lower bound. It costs one small write, and no second sync.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from medusa._native import crc32c
from medusa.ports import Buffer, Synced

__all__ = ["SLOT_BYTES", "Damage", "damage_in", "extended", "pack_slot", "read_slots"]

_SLOT = struct.Struct("<4sIQQII")
SLOT_BYTES = _SLOT.size
_MAGIC, _VERSION = b"MDSY", 1

SEARCH_BYTES_MAX = 1 << 22
"""Behind the first record that isn't whole, where a log without a mark is searched for later ones."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a log that were synced and can't be read.

    Attributes:
        at: the offset of the first.
        lost: how many, from there to the end of what was synced; of a log without a mark, to its end.
        what: what is wrong, to be read after the name of the file.
    """

    at: int
    lost: int
    what: str


def extended(synced: Synced, data: Buffer) -> Synced:
    """The same log with these bytes behind."""
    return Synced(synced.length + memoryview(data).nbytes, crc32c(data, synced.crc))


def pack_slot(number: int, synced: Synced) -> bytes:
    """One slot of the mark of a log."""
    plain = _SLOT.pack(_MAGIC, _VERSION, number, synced.length, synced.crc, 0)[:-4]
    return plain + crc32c(plain).to_bytes(4, "little")


def read_slots(data: Buffer, number: int) -> tuple[Synced | None, int]:
    """What the mark of a log says, and which slot is to be written next; None: neither slot is whole."""
    found: Synced | None = None
    following = 0
    for slot in range(2):
        part = bytes(memoryview(data)[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
        if len(part) < SLOT_BYTES or crc32c(part[:-4]) != int.from_bytes(part[-4:], "little"):
            continue
        magic, version, of, length, crc, _ = _SLOT.unpack(part)
        if (magic, version, of) == (_MAGIC, _VERSION, number) and (found is None or length >= found.length):
            found, following = Synced(length, crc), 1 - slot
    return found, following


def damage_in(
    data: Buffer, whole: int, synced: Synced | None, is_record: Callable[[memoryview], bool]
) -> Damage | None:
    """What is damaged in a log; None: it ends with its last whole record, or torn behind that.

    Args:
        whole: bytes of the records that are whole, from the beginning.
        synced: what its mark says; None: it has none, as logs of earlier versions. Then a whole record behind
            one that isn't shows damage, since each was written after the one before it.
        is_record: whether bytes begin with a whole record.
    """
    view = memoryview(data).cast("B")
    if synced is None:
        left = view[whole : whole + SEARCH_BYTES_MAX]
        later = next((at for at in range(1, len(left)) if is_record(left[at:])), None)
        if later is None:
            return None
        return Damage(whole, len(view) - whole, f"is damaged at byte {whole}, before a record that is whole")
    if whole < synced.length:
        what = f"is damaged at byte {whole}"
        if not len(view):
            what = "is missing or empty"
        elif len(view) == whole:
            what = f"ends at byte {whole}"
        return Damage(whole, synced.length - whole, f"{what}, and {synced.length} bytes of it were synced")
    if crc32c(view[: synced.length]) != synced.crc:
        return Damage(0, synced.length, f"isn't the log of which {synced.length} bytes were synced")
    return None
