"""What a start does with a data folder: it deletes nothing that is needed, and says what it can't know.

The start reads what the folder holds; this also knows what it held before anything was damaged.
"""

from __future__ import annotations

from collections.abc import Mapping

from medusa.engine.state.checkpoint import unseal
from medusa.errors import StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.fragment.input_log_records import unpack
from medusa.runtime.engine_host.group_names import GroupName, catalog_names, owner_of
from medusa.runtime.repair.startup import StartupState
from medusa.sim.world.disk import Disk
from medusa.sim.world.virtual_time import SimulationError

__all__ = ["StartCheck", "check_marks", "lacks_newest"]

OF_FRAGMENTS = ("checkpoint", "output segment", "first checkpoint mark")


class StartCheck:
    """One start of one node. Made before it reads its folder; ``end`` once it has tidied that.

    Raises:
        SimulationError: of the last two checkpoints of a fragment one is gone, and nobody damaged it.
    """

    def __init__(self, node: str, disk: Disk) -> None:
        self._node = node
        self._disk = disk
        self._fails = disk.fails
        self._before = disk.groups()
        for owner, numbers in disk.history.checkpoints.items():
            for number in numbers:
                name = f"{owner}-{number:012d}"
                if name not in disk.history.harmed and _facts(self._before, name) is None:
                    self._fail(f"checkpoint {name}, one of the last two, is gone, and nobody damaged it")

    def end(self, found: StartupState) -> bool:
        """It has started.

        Returns:
            Whether it goes by an older catalog than it had, and nothing on its disk tells of the newer one.

        Raises:
            SimulationError: it deleted what is needed, didn't write what is missing, took what doesn't belong
                together, or doesn't say what it can't know.
        """
        self._catalogs(found)
        self._deleted(found)
        self._logs(found)
        for name in found.catalog.fragments:
            self._begins(found, name)
        history = self._disk.history
        for name, saved in found.saved.items():
            if saved.record is not None:
                history.forget_after(owner_of(name), saved.record.token)
        return not found.catalog.in_doubt.newest and found.token < history.catalog[0]

    # --- the catalog --------------------------------------------------------------------------------

    def _catalogs(self, found: StartupState) -> None:
        """A newer catalog than the one that is used was lost: then it says so. Else both copies are there."""
        whole = self._whole_catalog()
        witness = max((self._witness(name) for name in self._before), default=0)
        known, files = self._disk.history.catalog
        if found.catalog.in_doubt.newest or found.catalog.to_bytes() == files.get(CATALOG):
            return  # It says so; or each copy was damaged in another place, and one was made of both.
        if witness > whole:
            self._fail(
                f"a checkpoint saw catalog {witness}, number {whole} is used (the newest was {known}), and "
                "it doesn't say so"
            )
        if found.token and not self._fails:
            now = self._disk.groups()
            for name in catalog_names(found.token):
                if _facts(now, name) is None:
                    self._fail(f"{name}, a copy of its catalog, isn't whole after the start")

    def _whole_catalog(self) -> int:
        groups = (GroupName.of(name) for name in self._before)
        numbers = (g.number for g in groups if g.kind == "catalog" and _facts(self._before, g.name))
        return max(numbers, default=0)

    def _witness(self, name: str) -> int:
        if GroupName.of(name).kind != "checkpoint":
            return 0
        facts = _facts(self._before, name) or {}
        catalog = facts.get("catalog", 0)
        return catalog if isinstance(catalog, int) else 0

    # --- what is deleted -----------------------------------------------------------------------------

    def _deleted(self, found: StartupState) -> None:
        """Nothing whole of a fragment that the newest catalog named; nothing at all where that was lost."""
        now = self._disk.groups()
        gone = [
            name
            for name in self._before
            if name not in now
            and GroupName.of(name).kind in OF_FRAGMENTS
            and _facts(self._before, name) is not None
        ]
        if not gone:
            return
        if found.catalog.in_doubt.newest and not self._was_in_doubt():
            self._fail(f"the newest catalog was lost, and the start deletes {gone}")
        needed = {owner_of(name) for name in self._named()}
        for name in gone:
            if GroupName.of(name).owner in needed:
                self._fail(f"the start deletes {name}, and the newest catalog names its fragment")

    def _was_in_doubt(self) -> bool:
        newest = self._newest()
        return newest is not None and bool(newest.in_doubt.newest)

    def _named(self) -> set[str]:
        newest = self._newest()
        return set() if newest is None else {*newest.fragments, *newest.in_doubt.fragments}

    def _newest(self) -> Catalog | None:
        """The newest catalog there was, damaged since or not."""
        number, files = self._disk.history.catalog
        if (whole := self._whole_catalog()) > number:  # Its other copy wasn't written before the crash.
            name = next(n for n in catalog_names(whole) if _facts(self._before, n) is not None)
            files = self._before[name]
        return Catalog.from_bytes(files[CATALOG], node=self._node, where="") if files else None

    # --- fragments ----------------------------------------------------------------------------------

    def _begins(self, found: StartupState, name: str) -> None:
        """A fragment that has had two checkpoints never begins anew, unless nothing tells of them."""
        saved, owner = found.saved.get(name), owner_of(name)
        if (saved is not None and saved.record is not None) or owner not in self._disk.history.checkpoints:
            return
        told = [n for n in self._before if GroupName.of(n).owner == owner]
        harmed = any(GroupName.of(each).owner == owner for each in self._disk.history.harmed)
        if told or not harmed:
            self._fail(f"{name} begins anew, and had checkpoints: {told}")

    def _logs(self, found: StartupState) -> None:
        """What is read of a decision log follows the checkpoint without a gap, and the files hold no more."""
        journal = self._disk.journal
        for name, numbers in found.logs.items():
            saved = found.saved.get(name)
            at = saved.record.decided if saved is not None and saved.record is not None else 0
            for number in numbers:
                data = journal.read(number)
                records, length = unpack(data)
                if length != len(bytes(data)):
                    self._fail(f"decision log {number} of {name} goes on behind byte {length}, which is torn")
                for record in records:
                    if record.first > at:
                        self._fail(f"decisions {at} to {record.first} of {name} are missing, later ones used")
                    at = max(at, record.end)

    def _fail(self, what: str) -> None:
        raise SimulationError(f"start: {self._node}: {what}")


def check_marks(node: str, disk: Disk) -> None:
    """Of a node at rest: each fragment that has had two checkpoints has the mark of the first.

    Raises:
        SimulationError: its loss would look like a fragment that was just deployed.
    """
    groups = [GroupName.of(name) for name in (*disk.names(), *disk.history.harmed)]
    marked = {each.owner for each in groups if each.kind == "first checkpoint mark"}
    for owner, numbers in disk.history.checkpoints.items():
        if len(numbers) > 1 and owner not in marked:
            raise SimulationError(f"disk: {node} has checkpoints {owner}-*, and no mark of the first")


def lacks_newest(disk: Disk, fragment: str) -> bool:
    """Whether the newest checkpoint of a fragment lies there and isn't whole."""
    groups, owner = disk.groups(), owner_of(fragment)
    checkpoints = (g for g in map(GroupName.of, groups) if (g.owner, g.kind) == (owner, "checkpoint"))
    newest = max(checkpoints, key=lambda group: group.number, default=None)
    return newest is not None and _facts(groups, newest.name) is None


def _facts(groups: Mapping[str, Mapping[str, bytes]], name: str) -> dict[str, object] | None:
    """What the manifest of a group says; None: it isn't whole, or isn't there."""
    if name not in groups:
        return None
    try:
        return unseal(dict(groups[name]), name)[0]
    except StateError:
        return None
