"""The decision log of a run: entries gathered in memory, written and synced before a row leaves.

Logs are numbered. A checkpoint names the one that begins after it; a new one begins with each
checkpoint, and those that no checkpoint needs any more are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from medusa.engine.decisions import Batch, Entry, pack, unpack
from medusa.errors import StateError
from medusa.ports import Journal

__all__ = ["GATHERED_MAX", "DecisionLog", "read_log"]

GATHERED_MAX = 1_000
"""Entries after which they are written, though not yet synced."""


class DecisionLog:
    """What has been decided since the last checkpoint.

    Args:
        number: of the log that is written.

    Attributes:
        number: of the log that is written.
    """

    def __init__(self, journal: Journal, number: int = 1) -> None:
        self._journal = journal
        self.number = number
        self._gathered: list[Entry] = []
        self._written = False  # something that isn't synced
        self._broken: StateError | None = None

    @property
    def behind(self) -> bool:
        """Something has been decided that isn't durable."""
        return bool(self._gathered) or self._written

    def note(self, entry: Entry) -> None:
        """Take an entry; it is durable after the next ``sync``, which tells when it couldn't be written."""
        self._gathered.append(entry)
        if len(self._gathered) >= GATHERED_MAX:
            if self._broken is not None:
                self._gathered.clear()  # only a checkpoint helps now, and it has all that was decided
                return
            with suppress(StateError):
                self._write()

    def _write(self) -> None:
        gathered, self._gathered = self._gathered, []
        self._written = True
        try:
            self._journal.append(self.number, pack(gathered))
        except StateError as error:
            self._broken = error
            raise

    def sync(self) -> None:
        """Make all entries durable: one write and one sync for all that have gathered.

        Raises:
            StateError: they couldn't be written. Nothing is tried again in the same place, so no row that
                depends on them may leave until a checkpoint has been written.
        """
        if self._broken is not None:
            raise StateError(
                f"what this run has decided can't be logged, so its rows can't leave: {self._broken.message}",
                hint="run.checkpoint() makes a new start of the log",
                code="state.log",
            )
        if self._gathered:
            self._write()
        if self._written:
            try:
                self._journal.sync(self.number)
            except StateError as error:
                self._broken = error
                raise
            self._written = False

    # Checkpoints

    def turn(self, carried: Sequence[Entry]) -> int:
        """A checkpoint is about to be written: the number of the log that begins after it.

        What was decided until now is synced, so that an earlier checkpoint can be gone back to.

        Args:
            carried: what was decided in an earlier life, but whose rows haven't been pushed again.

        Raises:
            StateError: what is carried couldn't be written.
        """
        if self._broken is None and self.behind:
            self.sync()
        number = self.number + 1
        if carried:
            self._journal.remove(number)
            self._journal.append(number, pack(carried, carried=True))
            self._journal.sync(number)
        return number

    def turned(self, number: int, needed: int) -> None:
        """The checkpoint that names this log is durable; logs before ``needed`` aren't needed any more."""
        self.number = number
        self._gathered, self._written, self._broken = [], False, None
        for each in self._journal.numbers():
            if each < needed:
                self._journal.remove(each)


def read_log(journal: Journal, first: int) -> tuple[list[Entry], int]:
    """What was decided from a log on, and the number of a log that may be written next.

    The end of the last one is cut where a record isn't whole: it wasn't synced, so nothing depends on it.

    Raises:
        StateError: a record in the middle is damaged.
    """
    entries: list[Entry] = []
    torn: str | None = None
    last = first
    for number in (each for each in journal.numbers() if each >= first):
        data = journal.read(number)
        batches, length = unpack(data)
        live = [each for batch in batches if _counts(batch, number == first) for each in batch.entries]
        if torn is not None and live:
            raise StateError(f"{torn}: is damaged, so decisions are missing", code="state.corrupt")
        if length < len(memoryview(data).cast("B")):
            torn = journal.where(number)
            journal.cut(number, length)
        entries += live
        last = number
    return entries, last + 1


def _counts(batch: Batch, first: bool) -> bool:
    return first or not batch.carried
