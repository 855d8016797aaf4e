"""A fragment at a host, and what is known of its groups on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from medusa.engine.core.graph_size import compiled_bytes
from medusa.engine.fragment import Fragment
from medusa.engine.held_rows_count import HeldRowsCount
from medusa.engine.state.background_copy import BackgroundCopy
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
        needed: token of a durable group -> tokens of the groups it refers to; the last two.
    """

    fragment: Fragment | None
    life: int
    give: Callable[[Callable[[], None]], None]
    failed: bool = False
    stats_at_us: int = 0
    weigh_at_us: int = 0
    holding: HeldRowsCount | None = None
    copied: BackgroundCopy | None = None
    needed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    pieces: StatePieces = field(init=False)
    slices: Slices = field(init=False)
    query: str = ""
    graph_bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.fragment is not None:
            graph = self.fragment.graph
            self.query, self.graph_bytes = graph.name, compiled_bytes(graph)
        self.pieces, self.slices = StatePieces(self.give), Slices()

    def begin_copy(self) -> BackgroundCopy:
        """A copy of its state as it is now; that of its beginning where it is still so."""
        copying, self.copied = self.copied or self.pieces.of(self.fragment), None
        return copying

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

    def told_counts(self, now_us: int) -> None:
        """Its counts were told."""
        self.stats_at_us = now_us
