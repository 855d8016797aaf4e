"""New fragments that follow old ones on their node, so that these rest only for a moment in the end. No IO.

    what the old ones are fed ── Tap ──> the first of the new ones ──> those that read it ──> ...
                                                    └── what leaves the set is kept back

The links between the new ones aren't there yet: what one gives is fed to the next as it would be by a link,
and stays in its output log, since nobody has it durably.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from medusa.nodes.fragment.change_feed import ChangeFeed, FedElement
from medusa.nodes.fragment.host import RUNNING_MAX, FragmentHost
from medusa.nodes.fragment.inputs import FragmentInput
from medusa.nodes.repartition.successor import SuccessorFragment

__all__ = ["CatchUp"]

KEPT_MAX = 256 << 20
"""Of what the new ones gave each other, which is in memory until they take over. With as much the old ones
are fed nothing more until then. Too small: they rest long where a disk is slow; too large: memory."""


class CatchUp:
    """Feeds a set of new fragments what the old ones were fed since they were copied.

    Args:
        first: the old one that gets what comes from outside.
        news: the new ones, by name; exactly one of them takes what comes from outside.

    Attributes:
        held_us: since when the old ones are fed nothing, as too much is kept; None: they are fed.
    """

    def __init__(
        self, first: FragmentHost, olds: Collection[FragmentHost], news: Mapping[str, SuccessorFragment]
    ) -> None:
        assert first.tap is not None
        self._first = first
        self._tap: ChangeFeed = first.tap
        self._olds = olds
        self._news = news
        [self._outer] = [hosted for hosted in news.values() if hosted.outer]
        self._reads: dict[str, list[tuple[SuccessorFragment, FragmentInput]]] = {}
        """Stream between them -> who reads it."""
        for hosted in news.values():
            for input in hosted.inputs.values():
                if input.source not in hosted.outer:
                    self._reads.setdefault(input.stream, []).append((hosted, input))
        self.held_us: int | None = None
        self._costs: deque[int] = deque()
        """Of what the outer one was told to feed and hasn't fed."""
        self._tap.opened()

    @property
    def near(self) -> bool:
        """Little is left to do."""
        return self._tap.near

    @property
    def done(self) -> bool:
        """All is fed that the old ones were fed; of one that failed, all that can be."""
        behind = any(hosted.behind for hosted in self._news.values() if not hosted.failed)
        return not (behind or self._tap.queue)

    def step(self, now_us: int) -> None:
        """Go on as far as that is possible now."""
        full = self._tap.full
        while self._passed_on(now_us) or self._fed():
            pass
        while len(self._costs) > self._outer.behind:
            self._tap.done(self._costs.popleft())
        outputs = {sink: output for old in self._olds for sink, output in old.outputs.items()}
        for hosted in self._news.values():
            hosted.sent(outputs)
        if self.held_us is None and sum(each.kept_bytes for each in self._news.values()) >= KEPT_MAX:
            self.held_us = now_us
            self._tap.hold()
        if full and not self._tap.full:
            self._first.tick(now_us)

    def _passed_on(self, now_us: int) -> bool:
        """What one of them gave goes to the next; whether there was anything."""
        found = [each for hosted in self._news.values() for each in hosted.came_out(now_us)]
        for stream, pieces in found:
            for hosted, input in self._reads[stream]:
                for piece in pieces:
                    hosted.follow_link(input, piece)
        return bool(found)

    def _fed(self) -> bool:
        """The next that the old ones were fed; whether there was anything that may be fed now."""
        behind = sum(hosted.behind for hosted in self._news.values() if not hosted.failed)
        if not self._tap.queue or behind >= RUNNING_MAX:
            return False
        tapped = self._tap.queue.popleft()
        assert isinstance(tapped, FedElement), "no secondary is fed by this"
        if self._outer.follow(tapped):
            self._costs.append(tapped.cost)
        else:
            self._tap.done(tapped.cost)
        return True
