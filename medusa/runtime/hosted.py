"""A fragment at a host, and what is known of its groups on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from medusa.engine.fragment import Fragment
from medusa.engine.holding import Holding
from medusa.engine.later import Copying
from medusa.runtime.pieces import Pieces
from medusa.runtime.slices import Slices

__all__ = ["Hosted"]


@dataclass(slots=True)
class Hosted:
    """The engine's thread owns it.

    Attributes:
        give: does a job in the engine's thread after all that it was given before.
        copied: its state as it begins, until it is fed: the first checkpoint needn't copy it.
        weigh_at_us: when it is asked again how much it holds.
        query: that it is a part of.
        needed: token of a durable group -> tokens of the groups it refers to; the last two.
    """

    fragment: Fragment | None
    life: int
    give: Callable[[Callable[[], None]], None]
    failed: bool = False
    stats_at_us: int = 0
    weigh_at_us: int = 0
    holding: Holding | None = None
    copied: Copying | None = None
    needed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    pieces: Pieces = field(init=False)
    slices: Slices = field(init=False)
    query: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.query = "" if self.fragment is None else self.fragment.graph.name
        self.pieces, self.slices = Pieces(self.give), Slices()
