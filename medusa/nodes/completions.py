"""What the engine, the disk and the parser have done, brought to the part of the node that waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medusa.errors import LocalProtocolError
from medusa.nodes.abroad.abroad_moves import AbroadMoves
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragments import Fragments
from medusa.nodes.move_orders import MoveOrders
from medusa.nodes.recovery.recovery import Recovery
from medusa.nodes.remote.stopping import StoppedParts
from medusa.nodes.reports import (
    Completion,
    Copied,
    Fetched,
    Forked,
    FragmentFailed,
    Logged,
    Parsed,
    Persisted,
    Ran,
    Remade,
    Stats,
    Weighed,
)
from medusa.wire.fork_names import forked_of

__all__ = ["Completions"]

EARLY_MAX = 100


class Completions:
    """Brings completions to fragments, and to what moves or splits them.

    Args:
        recovery: has what this node follows as a secondary.
        stopping: ends a fragment whose query took more than it may.
        abroad: gives a guest back that can't go on.
    """

    def __init__(
        self,
        fragments: Fragments,
        orders: MoveOrders,
        *,
        recovery: Recovery,
        parsing: BackgroundParsing,
        stopping: StoppedParts,
        abroad: AbroadMoves,
        wall: WallClock,
    ) -> None:
        self._recovery = recovery
        self._fragments = fragments
        self._orders = orders
        self._splits = orders.splits
        self._parsing = parsing
        self._stopping = stopping
        self._abroad = abroad
        self._wall = wall
        self._early: dict[str, Mapping[str, Any]] = {}
        """What was counted in fragments that aren't ours, yet."""

    def take(self, now_us: int, done: Completion) -> bool:
        """Take one; whether there may be something to do at another time than before."""
        match done:
            case Ran() | Forked() | FragmentFailed() if self._of_fork(now_us, done):
                pass
            case Ran() | Fetched() | Logged():
                hosted = self._hosted(done.fragment)
                if hosted is None:
                    return False
                self._of_fragment(now_us, hosted, done)
            case FragmentFailed():
                return self._failed(now_us, done)
            case Stats():
                return self._counted(now_us, done)
            case Persisted():
                self._persisted(now_us, done)
            case Copied():
                self._orders.copied(now_us, done)
                self._recovery.copied(now_us, done)
            case Remade():
                reached, rows = done.reached_us, done.rows
                self._splits.remade(now_us, done.token, reached, done.outputs, rows, done.why)
            case Weighed():
                self._splits.weighed(now_us, done.token, done.cuts, done.why)
            case Parsed():
                self._parsing.parsed(now_us, done.token, done.found, done.error)
        return True

    def _of_fork(self, now_us: int, done: Ran | Forked | FragmentFailed) -> bool:
        """Whether it is about a fork: then its fragment takes it. Of one that is gone nobody does."""
        fork = done.fork if isinstance(done, Forked) else done.fragment
        if (name := forked_of(fork)) is None:
            return False
        hosted = self._fragments.running.get(name)
        if hosted is None or hosted.bound is None:
            return True
        match done:
            case Ran():
                hosted.bound.ran(now_us, fork, done.outputs)
            case Forked():
                hosted.bound.forked(now_us, fork, done.why)
            case FragmentFailed():
                hosted.bound.failed(now_us, fork, done.why)
        return True

    def _hosted(self, fragment: str) -> FragmentHost | None:
        """What runs here, or follows another node's, under this name."""
        running = self._fragments.running.get(fragment)
        return running or self._orders.shadow(fragment) or self._recovery.shadow(fragment)

    def tick(self, now_us: int) -> None:
        """Of fragments that were opened before they were ours: without rows nothing else would be said."""
        for fragment in [name for name in self._early if name in self._fragments.running]:
            self._fragments.counted(now_us, fragment, self._early.pop(fragment))

    def _of_fragment(self, now_us: int, hosted: FragmentHost, done: Ran | Fetched | Logged) -> None:
        match done:
            case Ran():
                try:
                    hosted.ran(now_us, done.outputs, done.refused, done.dying, done.shed)
                except LocalProtocolError as error:
                    # State that came from another may say of its streams what its boxes don't keep to.
                    if not hosted.failed:
                        self._failed(now_us, FragmentFailed(done.fragment, error.message))
                    return
                self._orders.ran(now_us, done.fragment)
                self._recovery.ran(now_us, done.fragment)
            case Fetched():
                hosted.fetched(now_us, done.token, done.payloads, done.why)
            case Logged():
                hosted.logged(now_us, done.ok, done.why)
                self._recovery.logged(now_us)
                self._orders.tick(now_us)

    def _counted(self, now_us: int, done: Stats) -> bool:
        if done.fragment in self._fragments.running:
            return self._fragments.counted(now_us, done.fragment, done.counts)
        self._early.pop(done.fragment, None)
        self._early[done.fragment] = done.counts
        if len(self._early) > EARLY_MAX:
            del self._early[next(iter(self._early))]
        self._fragments.counted_beside(now_us, done.fragment, done.counts)
        return False

    def _failed(self, now_us: int, done: FragmentFailed) -> bool:
        running = self._fragments.running.get(done.fragment)
        is_guest = self._abroad.gives_back(now_us, done.fragment, done.why)
        if done.code and running is not None and not is_guest:
            self._stopping.end(done.fragment, done.code, done.why, self._wall.at(now_us) or 0)
        elif (hosted := self._hosted(done.fragment)) is not None:
            hosted.fail(done.why)
            self._orders.failed(done.fragment, done.why, done.code)
            self._recovery.failed(done.fragment, done.why, done.code)
        else:
            return False
        self._splits.tick(now_us)
        return True

    def _persisted(self, now_us: int, done: Persisted) -> None:
        """A checkpoint or a segment of a fragment, where it isn't the catalog."""
        hosted = self._fragments.running.values()
        if any(each.persisted(now_us, done.token, done.ok, done.why) for each in hosted):
            pass
        elif not self._recovery.persisted(now_us, done.token, done.ok, done.why):
            self._orders.persisted(now_us, done.token, done.ok, done.why)
        self._orders.tick(now_us)
