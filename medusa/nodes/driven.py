"""What the driver of a node tells its mind of the engine and the disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from medusa.elements import Element
from medusa.engine.held_rows_count import NOTHING, Held
from medusa.errors import QueryError
from medusa.nodes.clock.wall_clock import Wall
from medusa.nodes.commands import Commands
from medusa.nodes.fragment.host import Hosted
from medusa.ports import Buffer

__all__ = ["Driven"]

EARLY_MAX = 100


class Driven(ABC):
    """The part of a brain that hears of fragments."""

    commands: Commands
    wall: Wall
    fragments: dict[str, Hosted]
    _early: dict[str, Mapping[str, Any]]
    """What was counted in fragments that aren't ours, yet."""

    @abstractmethod
    def _wake(self, now_us: int) -> None:
        """Say when there is something to do."""

    def _running(self, fragment: str) -> Hosted | None:
        """What runs under this name, be it only to follow another node's."""
        return self.fragments.get(fragment) or self.commands.sliding.shadow(fragment)

    def fragment_ran(
        self,
        now_us: int,
        fragment: str,
        outputs: list[tuple[str, Element]],
        refused: str = "",
        dying: Held = NOTHING,
    ) -> None:
        """The oldest ``RunFragment`` of this fragment was done; (sink, element) came out.

        Args:
            refused: why the engine took nothing of it; empty where it did.
            dying: what would die with the node.
        """
        if (hosted := self._running(fragment)) is not None:
            hosted.ran(now_us, outputs, refused, dying)
            self.commands.sliding.ran(now_us, fragment)
            self._wake(now_us)

    def fragment_stats(self, now_us: int, fragment: str, stats: Mapping[str, Any]) -> None:
        """What the boxes of a fragment count, for status."""
        if fragment in self.fragments:
            self.commands.told(now_us, fragment, stats)
            return
        self._early.pop(fragment, None)
        self._early[fragment] = stats
        if len(self._early) > EARLY_MAX:
            del self._early[next(iter(self._early))]

    def _tell_early(self, now_us: int) -> None:
        """Of fragments that were opened before they were ours: without rows nothing else would be said."""
        for fragment in [name for name in self._early if name in self.fragments]:
            self.commands.told(now_us, fragment, self._early.pop(fragment))

    def parsed(self, now_us: int, token: int, found: object, error: QueryError | None) -> None:
        """A ``Parse`` was done: this came of it, or this is why nothing did."""
        self.commands.parsing.parsed(now_us, token, found, error)
        self._wake(now_us)

    def fragment_failed(self, now_us: int, fragment: str, why: str, code: str = "") -> None:
        """The engine can't run this fragment any more.

        Args:
            code: ``E_MEMORY``, ``E_BUSY``: its query took more than it may; empty: its own mistake.
        """
        if code and fragment in self.fragments:
            self.commands.remotes.stopping.end(fragment, code, why, self.wall.at(now_us) or 0)
            self.commands.sliding.splits.tick(now_us)
            self._wake(now_us)
        elif (hosted := self._running(fragment)) is not None:
            hosted.fail(why)
            self.commands.sliding.failed(fragment, why, code)
            self.commands.sliding.splits.tick(now_us)
            self._wake(now_us)

    def copied(self, now_us: int, fragment: str, token: int, files: dict[str, Buffer], why: str = "") -> None:
        """A ``Copy`` was done, or could not be: ``why`` says so."""
        self.commands.sliding.copied(now_us, fragment, token, files, why)
        self._wake(now_us)

    def fetched(self, now_us: int, fragment: str, token: int, payloads: Sequence[Buffer], why: str) -> None:
        """A ``Fetch`` was done, or could not be: ``why`` says so."""
        if (hosted := self._running(fragment)) is not None:
            any(output.spilling.fetched(now_us, token, payloads, why) for output in hosted.outputs.values())
            self._wake(now_us)

    def logged(self, now_us: int, fragment: str, ok: bool, why: str = "") -> None:
        """A ``Log`` of this fragment is durable, or failed."""
        if (hosted := self._running(fragment)) is not None:
            hosted.logged(now_us, ok, why)
            self.commands.sliding.tick(now_us)
            self._wake(now_us)

    def remade(
        self,
        now_us: int,
        token: int,
        reached_us: Mapping[str, Mapping[str, int]],
        outputs: Sequence[tuple[str, Element]],
        rows: Sequence[int],
        why: str,
    ) -> None:
        """A ``Regroup`` was done, or could not be: ``why`` says so."""
        self.commands.sliding.splits.remade(now_us, token, reached_us, outputs, rows, why)
        self._wake(now_us)

    def weighed(self, now_us: int, token: int, cuts: tuple[int, ...], why: str) -> None:
        """A ``Weigh`` was done, or could not be: ``why`` says so."""
        self.commands.sliding.splits.weighed(now_us, token, cuts, why)
        self._wake(now_us)
