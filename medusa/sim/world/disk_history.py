"""What a disk in memory has taken and was harmed in: checks compare it with what a node makes of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from medusa.runtime.engine_host.group_names import GroupName

__all__ = ["DiskHistory"]

KEPT = 2
"""Checkpoints of each fragment that a node keeps: where one is damaged the other is used."""


class DiskHistory:
    """Kept by the disk itself, beside its groups; no damage changes it.

    Attributes:
        catalog: number and files of the last catalog of which both copies were durable; 0: none.
        checkpoints: per owner, the numbers of its last two durable checkpoints, oldest first.
        harmed: names of groups that were damaged or taken away, and not written since.
        lost: so often was the whole disk lost.
    """

    def __init__(self) -> None:
        self.catalog: tuple[int, Mapping[str, bytes]] = 0, {}
        self.checkpoints: dict[str, list[int]] = {}
        self.harmed: set[str] = set()
        self.lost = 0
        self._single: int | None = None
        """Number of the catalog of which a copy was written last."""

    def forget_after(self, owner: str, number: int) -> None:
        """Checkpoints of an owner after this one can't be read: they refer to what is damaged."""
        if known := self.checkpoints.get(owner):
            known[:] = [each for each in known if each <= number]

    def wrote(self, name: str, files: Mapping[str, bytes]) -> None:
        """A group is durable."""
        group = GroupName.of(name)
        self.harmed.discard(name)
        if group.kind == "catalog":
            if self._single == group.number:
                self.catalog = group.number, files
            self._single = group.number
        elif group.kind == "checkpoint":
            before = [number for number in self.checkpoints.get(group.owner, ()) if number < group.number]
            self.checkpoints[group.owner] = [*before, group.number][-KEPT:]
        elif group.kind == "first checkpoint mark":
            # One before it, whose mark couldn't be written, never counted.
            known = self.checkpoints.get(group.owner, ())
            self.checkpoints[group.owner] = [number for number in known if number >= group.number]

    def deleted(self, name: str, left: Iterable[str]) -> None:
        """The node has deleted a group. A fragment goes with the mark of its first checkpoint, or its last
        group.

        Args:
            left: names of the groups that lie there still.
        """
        group = GroupName.of(name)
        if group.kind == "first checkpoint mark" or not any(each.startswith(group.owner) for each in left):
            self.checkpoints.pop(group.owner, None)
        elif group.kind == "catalog" and self._single == group.number:
            self._single = None

    def harm(self, name: str) -> None:
        """A group isn't what was written."""
        self.harmed.add(name)

    def lose(self) -> None:
        """The whole disk is gone."""
        self.catalog, self._single = (0, {}), None
        self.checkpoints.clear()
        self.harmed.clear()
        self.lost += 1
