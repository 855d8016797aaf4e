"""A fragment at a host, and what is known of its groups on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from medusa.engine.core.graph_size import compiled_bytes
from medusa.engine.fragment import Fragment
from medusa.engine.held_rows_count import HeldRowsCount
from medusa.engine.state import checkpoint
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.engine.state.checkpoint import KEPT, DeltaChain
from medusa.runtime.engine_host.group_names import GroupName
from medusa.runtime.engine_host.slices import Slices
from medusa.runtime.machine.state_pieces import StatePieces

__all__ = ["HostedFragment"]


@dataclass(slots=True)
class HostedFragment:
    """The engine's thread owns it.

    Attributes:
        give: does a job in the engine's thread after all that it was given before.
        copied: its state as it begins, until it is fed: the first checkpoint needn't copy it.
        weigh_at_us: when it is asked again how much it holds.
        query: that it is a part of; told by the fragment, where there is one.
        graph_bytes: what it took to make it, before any row.
        is_fork: it is the second instance of another one, and has nothing on disk.
        needed: token of a durable group -> tokens of the groups it refers to; the last two, and one that
            doesn't stand on the same whole group as both do.
        chain: what the next checkpoint may be a delta on. The disk's thread changes it.
    """

    fragment: Fragment | None
    life: int
    give: Callable[[Callable[[], None]], None]
    failed: bool = False
    stats_at_us: int = 0
    weigh_at_us: int = 0
    cpu_us: int | None = 0
    holding: HeldRowsCount | None = None
    copied: BackgroundCopy | None = None
    needed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    pieces: StatePieces = field(init=False)
    slices: Slices = field(init=False)
    chain: DeltaChain = field(default_factory=DeltaChain)
    query: str = ""
    is_fork: bool = False
    graph_bytes: int = field(init=False, default=0)
    _whole: dict[int, int] = field(init=False, default_factory=dict)
    """Token of a durable group -> the whole group that it stands on."""

    def __post_init__(self) -> None:
        if self.fragment is not None:
            graph = self.fragment.graph
            self.query, self.graph_bytes = graph.name, compiled_bytes(graph)
        self.pieces, self.slices = StatePieces(self.give), Slices()

    def begin_copy(self, before: DeltaChain) -> BackgroundCopy:
        """A copy of its state as it is now, or of what changed; that of its beginning where it is still so.

        Args:
            before: ``chain``, as it is now.
        """
        capture = before.next_capture() if before.whole_bytes >= checkpoint.FULL_BYTES_MIN else None
        copying, self.copied = self.copied or self.pieces.of(self.fragment, capture), None
        return copying

    def keeps(self, before: DeltaChain) -> bool:
        """What a delta would stand on is on disk, and will be."""
        return bool(before.names) and GroupName.of(before.names[-1]).number in self.needed

    def wrote(self, token: int, keep: tuple[int, ...], chain: DeltaChain) -> None:
        """A group is durable, which refers to others; only the disk's thread says so."""
        stands_on = tuple(GroupName.of(name).number for name in chain.names)
        self.chain = chain
        self.needed[token] = (*keep, *stands_on)
        self._whole[token] = min(stands_on, default=token)
        tokens = sorted(self.needed)
        last = tokens[-KEPT:]
        wholes = {self._whole.get(each, each) for each in last}
        # One damaged file must not take all with it: the last that doesn't need it stays too.
        other = [each for each in tokens if self._whole.get(each, each) not in wholes][-1:]
        kept = [*other, *last] if len(wholes) == 1 else last
        for old in set(tokens) - set(kept):
            del self.needed[old]
            self._whole.pop(old, None)

    def changes(self) -> None:
        """It isn't any more as it began."""
        self.copied = None

    def fail(self) -> None:
        """It does nothing more."""
        self.failed = True

    def let_go(self) -> None:
        """It does nothing more, and holds nothing."""
        self.failed = True
        self.fragment = self.holding = self.copied = None

    def weigh_again_at(self, us: int) -> None:
        """So long it isn't asked how much it holds."""
        self.weigh_at_us = us

    def took(self, cpu_us: int | None) -> None:
        """A slice of an element took so much CPU time; None: unknown, and so is that of all."""
        self.cpu_us = None if cpu_us is None or self.cpu_us is None else self.cpu_us + cpu_us

    def told_counts(self, now_us: int) -> None:
        """Its counts were told."""
        self.stats_at_us = now_us
