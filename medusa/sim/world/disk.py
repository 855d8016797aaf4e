"""A disk in memory: named groups of files, written whole or not at all; a ``Store`` that tests can break."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from medusa.errors import StateError
from medusa.ports import Buffer, Content, pieces_of
from medusa.runtime.engine_host.group_names import GroupName
from medusa.sim.world.disk_history import DiskHistory
from medusa.sim.world.file_damage import damaged
from medusa.sim.world.journal import DiskJournal

__all__ = ["Disk"]


class Disk:
    """Named groups; survives crashes of its host.

    ``write`` is synced when it returns (the ``Store`` port). ``begin`` and ``sync`` are its two
    halves, between which a crash decides what becomes of the group.

    Attributes:
        fail_next: so many of the next writes fail.
        fail_at: this write from now on fails, counted from 1; 0: none.
        fail_kind: the next write of this kind fails, a kind of ``GroupName`` or ``decision log``.
        fail_all: so do those after it.
        when_fails: called when it does.
        full: every write fails.
        tearing: writes end half done, as when the power goes; the first of its owner leaves nothing.
        journal: the decision logs on it.
        damaged: a file was harmed of which there is no other copy.
        changes: counts whatever changed what can be read.
        history: what it took, and what was harmed.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self.changes = 0
        self.history = DiskHistory()
        self._groups: dict[str, dict[str, bytes]] = {}
        self._unsynced: dict[str, dict[str, bytes]] = {}
        self._deleted: dict[str, dict[str, bytes]] = {}
        self._older: dict[str, tuple[str, dict[str, bytes]]] = {}
        """Beginning of a name -> the group with it that was deleted last."""
        self.fail_next = 0
        self.fail_at = 0
        self.fail_kind, self.fail_all = "", False
        self.when_fails: Callable[[], None] | None = None
        self.full = False
        self.tearing = False
        self.damaged = False
        self.journal = DiskJournal(
            host, fails=lambda: self._fails("decision log"), tears=lambda: self.tearing
        )

    def begin(self, name: str, files: Mapping[str, Content]) -> None:
        """Start to write a group; nobody can read it yet."""
        self._unsynced[name] = {file: b"".join(pieces_of(data)) for file, data in files.items()}

    def sync(self, name: str) -> bool:
        """End the write; whether the group exists now."""
        files = self._unsynced.pop(name, None)
        if files is None or self._fails(GroupName.of(name).kind):
            return False
        self.changes += 1
        if self.tearing:  # whoever writes dies in the middle of it
            if any(other.rpartition("-")[0] == name.rpartition("-")[0] for other in self._groups):
                self._groups[name] = torn(files)
            return False
        self._groups[name] = files
        self.history.wrote(name, files)
        return True

    def groups(self) -> dict[str, dict[str, bytes]]:
        """All that lies there, whole or not."""
        return dict(self._groups)

    @property
    def fails(self) -> bool:
        """Some write will fail."""
        return bool(self.full or self.tearing or self.fail_next or self.fail_at or self.fail_kind)

    @property
    def writing(self) -> bool:
        """A write has begun and isn't synced."""
        return bool(self._unsynced)

    def _fails(self, kind: str) -> bool:
        if self.fail_kind == kind:
            self.fail_kind = kind if self.fail_all else ""
            return True
        if self.fail_at:
            self.fail_at -= 1
            if not self.fail_at:
                then, self.when_fails = self.when_fails, None
                if then is not None:
                    then()
                return True
        if self.fail_next:
            self.fail_next -= 1
            return True
        return self.full

    # --- what goes wrong ----------------------------------------------------------------------

    def crash(self, unsynced: str = "lost") -> None:
        """The host dies in the middle of its writes: they are ``lost``, ``kept`` (on disk, though
        nobody was told), or ``torn``."""
        self.changes += 1
        for name, files in self._unsynced.items():
            if unsynced == "kept":
                self._groups[name] = files
            elif unsynced == "torn":
                self._groups[name] = torn(files)
        self._unsynced.clear()
        self.journal.crash(unsynced)

    def lose(self) -> None:
        """The whole disk is gone."""
        self.changes += 1
        self._groups.clear()
        self._unsynced.clear()
        self._deleted.clear()
        self._older.clear()
        self.journal.lose()
        self.history.lose()

    def flip(self, bit: int, *, prefix: str = "") -> None:
        """One bit of the newest group turns over."""
        name, files = self._newest(prefix)
        if not files:
            return
        self.history.harm(name)
        file = sorted(files)[bit % len(files)]
        data = bytearray(files[file])
        if data:
            place = bit % (8 * len(data))
            data[place // 8] ^= 1 << (place % 8)
        self._groups[name] = {**files, file: bytes(data)}

    def truncate(self, *, prefix: str = "") -> None:
        """The longest file of the newest group loses its end."""
        name, files = self._newest(prefix)
        if files:
            self.history.harm(name)
            self._groups[name] = torn(files)

    def roll_back(self, *, prefix: str = "") -> None:
        """The newest group is gone and the one that was deleted last is back: an old version."""
        name, files = self._newest(prefix)
        if files:
            self.history.harm(name)
            del self._groups[name]
        if not self._newest(prefix)[1]:
            self._groups |= {old: kept for old, kept in self._deleted.items() if old.startswith(prefix)}

    def damage(self, what: str, how: str, pick: int) -> str:
        """Harm one file; where it was, empty where there is none of that kind.

        Args:
            what: ``catalog copy`` or ``life copy`` (one of the two of the newest number), ``catalog`` or
                ``life`` (both), another kind of ``GroupName``, or ``decision log``.
            how: one of ``file_damage.HOW``.
            pick: which file, and where in it.
        """
        self.changes += 1
        if what == "decision log":
            where = self.journal.damage(how, pick)
            self.damaged = self.damaged or bool(where)
            return where
        groups = [
            each for name in self.names() if (each := GroupName.of(name)).kind == what.partition(" copy")[0]
        ]
        if not groups:
            return ""
        owner = groups[pick % len(groups)].owner
        newest = max(each.number for each in groups if each.owner == owner)
        names = [each.name for each in groups if (each.owner, each.number) == (owner, newest)]
        if what.endswith(" copy"):
            names = [names[pick // 7 % len(names)]]
        for name in names:
            self._damage(name, how, pick)
        self.damaged = self.damaged or not what.endswith(" copy")
        return " ".join(self.where(name) for name in names)

    def _damage(self, name: str, how: str, pick: int) -> None:
        files = self._groups.pop(name)
        self.history.harm(name)
        if how == "older":
            older = self._older.get(name.rpartition("-")[0])
            if older is not None:  # The newest was never written, or that one lies in its place.
                self._groups[older[0] if pick % 2 else name] = older[1]
        elif how != "gone" and files:
            file = sorted(files)[pick % len(files)]
            self._groups[name] = {**files, file: damaged(files[file], how, pick // 11)}

    def fail_later(self, writes: int, then: Callable[[], None] | None = None) -> None:
        """This write from now on fails, counted from 1.

        Args:
            then: called, once, when it does.
        """
        self.fail_at = writes
        if then is not None:
            self.when_fails = then

    def fail_writes_of(self, kind: str, *, all: bool) -> None:
        """The next write of a kind fails, or all of them until ``mend``."""
        self.fail_kind, self.fail_all = kind, all

    def fill(self) -> None:
        """Every write fails from now on."""
        self.full = True

    def make_room(self) -> None:
        """It isn't full any more."""
        self.full = False

    @contextmanager
    def power_going(self, *, torn: bool) -> Iterator[None]:
        """Meanwhile the power goes: writes end half done where they are torn, else as always."""
        self.tearing = torn
        yield
        self.tearing = False

    def mend(self) -> None:
        """No write fails any more."""
        self.fail_next = self.fail_at = 0
        self.fail_kind, self.fail_all = "", False
        self.when_fails = None
        self.full = self.tearing = False

    def _newest(self, prefix: str) -> tuple[str, dict[str, bytes]]:
        self.changes += 1
        names = [name for name in self.names() if name.startswith(prefix)]
        return (names[-1], self._groups[names[-1]]) if names else ("", {})

    # --- the Store port -----------------------------------------------------------------------

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        self.begin(name, files)
        if not self.sync(name):
            raise StateError(f"can't write {self.where(name)}: the disk failed")

    def write_all(self, groups: Mapping[str, Mapping[str, Content]]) -> None:
        """One after the other: who dies in between has the first."""
        made: list[str] = []
        try:
            for name, files in groups.items():
                self.write(name, files)
                made.append(name)
        except BaseException:
            for name in made:
                self.delete(name)
            raise

    def read(self, name: str) -> dict[str, Buffer]:
        try:
            return dict(self._groups[name])
        except KeyError:
            raise StateError(f"no group {self.where(name)}") from None

    def names(self) -> list[str]:
        return sorted(self._groups)

    def delete(self, name: str) -> None:
        if name in self._groups:
            self.changes += 1
            self._deleted = {name: self._groups.pop(name)}
            self._older[name.rpartition("-")[0]] = name, self._deleted[name]
            self.history.deleted(name, self._groups)

    def where(self, name: str, file: str = "") -> str:
        return f"{self._host}:/{name}/{file}".rstrip("/")


def torn(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The longest file ends in its middle."""
    if not files:
        return {}
    longest = max(sorted(files), key=lambda file: len(files[file]))
    return {**files, longest: files[longest][: len(files[longest]) // 2]}
