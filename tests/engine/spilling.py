"""A disk in memory that may be full, lose bytes, and knows what was asked of it."""

from __future__ import annotations

from collections.abc import Sequence

from medusa.engine.core.memory_bounds import Storage
from medusa.engine.core.spool import Spool
from medusa.errors import StateError
from medusa.ports import Buffer


class MemorySpill:
    """Implements ``medusa.ports.Spill``."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.room = 1 << 60
        self.appends = 0

    def append(self, name: str, parts: Sequence[Buffer]) -> None:
        data = b"".join(bytes(part) for part in parts)
        if sum(map(len, self.files.values())) + len(data) > self.room:
            raise StateError(f"memory/{name} couldn't be written: No space left on device", code="state.io")
        self.appends += 1
        self.files.setdefault(name, bytearray()).extend(data)

    def read(self, name: str, start: int, length: int) -> Buffer:
        data = self.files[name][start : start + length]
        assert len(data) == length
        return data

    def map(self, name: str) -> Buffer:
        return bytes(self.files[name])

    def remove(self, name: str) -> None:
        del self.files[name]

    def where(self, name: str) -> str:
        return f"memory/{name}"


def storage_of(port: MemorySpill, budget_bytes: int, memory_bytes: int = 1 << 60) -> Storage:
    return Storage(spool=Spool(port), memory_bytes=memory_bytes, budget_bytes=budget_bytes, spills_state=True)
