"""A disk on which the process dies at a step of the test's choice, and the power with it."""

from __future__ import annotations

from collections.abc import Mapping

from medusa.errors import StateError
from medusa.ports import Buffer, Content, pieces_of

ENDS = ("before", "lost", "torn", "kept")
"""How a death leaves the step at which it comes: not begun, or done and of what isn't synced nothing, half or
all is there."""


class DiedError(BaseException):
    """Nobody catches it by mistake: the process is gone."""


class DyingDisk:
    """The ports ``Store`` and ``Journal`` of one folder.

    Attributes:
        steps: how many there were.
        die_at: the step, counted from 0, at which it dies; None: never.
        end: one of ``ENDS``.
        fails: the step raises ``StateError`` instead, and the process goes on.
    """

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, bytes]] = {}
        self.logs: dict[int, bytearray] = {}
        self.synced: dict[int, int] = {}
        self.steps = 0
        self.die_at: int | None = None
        self.end = "before"
        self.fails = False

    def _step(self) -> bool:
        """Whether the step is to be done and then died at."""
        self.steps += 1
        if self.die_at is None or self.steps - 1 != self.die_at:
            return False
        if self.end == "before":
            self._die()
        return True

    def _die(self) -> None:
        self.die_at = None
        if self.fails:
            raise StateError("the disk failed", code="state.io")
        raise DiedError

    def power_fails(self) -> None:
        """What wasn't synced goes, as ``end`` says."""
        for number, log in list(self.logs.items()):
            more = len(log) - self.synced.get(number, 0)
            kept = {"lost": 0, "torn": more // 2, "kept": more}.get(self.end, 0)
            del log[self.synced.get(number, 0) + kept :]
            self.synced[number] = len(log)

    # Store

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        dies = self._step()
        assert name not in self.groups, "a group is written once"
        if not dies or self.end == "kept":
            self.groups[name] = {file: b"".join(pieces_of(data)) for file, data in files.items()}
        if dies:
            if self.fails:  # Then it isn't there, says the port.
                self.groups.pop(name, None)
            self._die()

    def write_all(self, groups: Mapping[str, Mapping[str, Content]]) -> None:
        for name, files in groups.items():
            self.write(name, files)

    def read(self, name: str) -> dict[str, Buffer]:
        if name not in self.groups:
            raise StateError(f"no group {name}", code="state.io")
        return dict(self.groups[name])

    def size(self, name: str, file: str) -> int:
        return len(self.groups[name].get(file, b""))

    def names(self) -> list[str]:
        return sorted(self.groups)

    def delete(self, name: str) -> None:
        dies = self._step()
        self.groups.pop(name, None)
        if dies:
            self._die()

    def where(self, name: str | int, file: str = "") -> str:
        return f"disk:/{name}"

    # Journal

    def numbers(self) -> list[int]:
        return sorted(self.logs)

    def append(self, number: int, data: Buffer) -> None:
        dies = self._step()
        content = bytes(data)
        self.logs.setdefault(number, bytearray()).extend(
            content[: len(content) // 2] if dies and self.end == "torn" else content
        )
        if dies:
            self._die()

    def sync(self, number: int) -> None:
        dies = self._step()
        if not dies or self.end == "kept":
            self.synced[number] = len(self.logs[number])
        if dies:
            self._die()

    def cut(self, number: int, length: int) -> None:
        del self.logs[number][length:]
        self.synced[number] = length

    def remove(self, number: int) -> None:
        dies = self._step()
        self.logs.pop(number, None)
        self.synced.pop(number, None)
        if dies:
            self._die()


class Logs:
    """The same disk as ``Journal``: ``read`` is of another type there."""

    def __init__(self, disk: DyingDisk) -> None:
        self._disk = disk
        self.numbers, self.append, self.sync = disk.numbers, disk.append, disk.sync
        self.cut, self.remove, self.where = disk.cut, disk.remove, disk.where

    def read(self, number: int) -> Buffer:
        return bytes(self._disk.logs[number])
