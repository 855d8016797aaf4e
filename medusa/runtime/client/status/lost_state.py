"""How much went into fragments whose state nobody has, out of what other nodes say. Pure.

Whoever feeds such a fragment knows how many rows there were for it, and from which on they are kept still.
Those before had been acknowledged: they were in its state, or had left it. Whoever reads it knows how many
had come out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from medusa.wire.status_and_metrics import NodeStatus, StatelessStatus

__all__ = ["LostState", "lost_states"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostState:
    """Of one fragment; rows since each stream began.

    Attributes:
        went_in: stream that it read -> rows that there were for it, and how many of them, the first, nobody
            keeps any more.
        came_out: stream of it -> rows that nodes that read it have.
    """

    went_in: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    came_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """``q.some: 300 rows, and nobody keeps the first 200; q.kind: 120 rows had come out``; empty: nobody
        says how many."""
        went = [
            f"{name}: {rows:,} rows, and " + (f"nobody keeps the first {gone:,}" if gone else "all are kept")
            for name, (rows, gone) in self.went_in.items()
        ]
        return "; ".join(
            [*went, *(f"{name}: {rows:,} rows had come out" for name, rows in self.came_out.items())]
        )


def lost_states(statuses: Iterable[NodeStatus]) -> dict[tuple[str, str], LostState]:
    """Participant and fragment -> how much it had, as far as the nodes that say these feed or read it."""
    known = list(statuses)
    lost: dict[tuple[str, str], StatelessStatus] = {}
    for status in known:
        lost |= {(status.participant, name): each for name, each in status.without_state.items() if each.lost}
    return {
        about: _found(each, [status for status in known if status.participant == about[0]])
        for about, each in lost.items()
    }


def _found(lost: StatelessStatus, statuses: Iterable[NodeStatus]) -> LostState:
    went_in: dict[str, tuple[int, int]] = {}
    came_out: dict[str, int] = {}
    for fragment in (each for status in statuses for each in status.fragments):
        for output in fragment.outputs:
            if output.stream in lost.reads:
                told = output.rows, output.oldest_row
                went_in[output.stream] = max(told, went_in.get(output.stream, told))
        for input in fragment.inputs:
            if input.stream in lost.streams:
                came_out[input.stream] = max(input.next_row, came_out.get(input.stream, 0))
    return LostState(went_in=went_in, came_out=came_out)
