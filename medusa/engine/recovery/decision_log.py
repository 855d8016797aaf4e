"""The decision log of a run: entries gathered in memory, written and synced before a row leaves.

Logs are numbered. A checkpoint names the one that begins after it; a new one begins with each
checkpoint, and those that no checkpoint needs any more are removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from medusa.engine.recovery.decisions import Batch, Entry, is_framed, pack, unpack
from medusa.engine.recovery.synced_length import Damage, damage_in
from medusa.errors import StateError
from medusa.ports import Journal

__all__ = ["GATHERED_MAX", "DecisionLog", "FoundLogs", "find_logs"]

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

    def go_on(self, number: int) -> bool:
        """Write what is decided from now on into that log, though its checkpoint isn't durable yet.

        Should it never be, all that was decided since the one before is in the logs up to this one.

        Returns:
            False: what was decided before couldn't be written, so only the checkpoint will have it. Nothing
            changed.
        """
        if self._broken is not None:
            return False
        assert not self.behind, "turned, and nothing decided since"
        self.number = number
        return True

    def turned(self, number: int, needed: int) -> None:
        """The checkpoint that names this log is durable; logs before ``needed`` aren't needed any more."""
        if number != self.number:  # else it has been written to since
            self.number = number
            self._gathered, self._written, self._broken = [], False, None
        for each in self._journal.numbers():
            if each < needed:
                self._journal.remove(each)


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """What the logs of earlier lives say; nothing of them has been changed.

    Attributes:
        entries: what was decided, in order: all, or what comes before the damage.
        number: of a log that may be written next.
        damage: what of them was synced and can't be read; None: nothing is missing.
    """

    entries: list[Entry]
    number: int
    damage: StateError | None
    _lengths: dict[int, int]
    """Of each log: the bytes that count."""
    _torn: frozenset[int]
    """Logs with bytes behind those."""

    def settle(self, journal: Journal) -> None:
        """Cut torn ends, on which nothing depends, and sync the rest, on which rows will.

        Raises:
            StateError: something is damaged, so nothing is changed; or a log can't be cut or synced.
        """
        if self.damage is not None:
            raise self.damage
        for number, length in self._lengths.items():
            if number in self._torn:
                journal.cut(number, length)
            else:
                journal.sync(number)


def find_logs(journal: Journal, first: int) -> FoundLogs:
    """What was decided from a log on. Nothing is changed.

    Raises:
        StateError: a log can't be read.
    """
    entries: list[Entry] = []
    lengths: dict[int, int] = {}
    torn: list[int] = []
    numbers = [each for each in journal.numbers() if each >= first]
    damage: StateError | None = None
    for number in numbers:
        data = journal.read(number)
        batches, length = unpack(data)
        live = [each for batch in batches if _counts(batch, number == first) for each in batch.entries]
        found = damage_in(data, length, journal.synced(number), is_framed)
        if found is None and torn and live:
            # Each life cuts what is torn before it writes another log.
            last = torn[-1]
            found = Damage(lengths[last], 0, f"is damaged at byte {lengths[last]}, and later logs follow it")
            damage = _missing(journal.where(last), found, entries)
            break
        if found is not None:
            entries += live
            damage = _missing(journal.where(number), found, entries)
            break
        lengths[number] = length
        if length < memoryview(data).nbytes:
            torn.append(number)
        entries += live
    return FoundLogs(entries, max(numbers, default=first) + 1, damage, lengths, frozenset(torn))


def _missing(where: str, damage: Damage, entries: Sequence[Entry]) -> StateError:
    return StateError(
        f"{where}: {damage.what}, so decisions are missing on which rows that left may depend"
        f" ({damage.lost} bytes; {len(entries)} decisions before them are whole)",
        hint="put the file back from a copy of the folder; or go on without them: restore(...,"
        ' decisions="readable"), and rows may come in another order than before',
        code="state.corrupt",
    )


def _counts(batch: Batch, first: bool) -> bool:
    return first or not batch.carried
