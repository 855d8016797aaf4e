"""How much each box of a query would have to do at the rates that its sources offer. Pure.

A box that waits half of the time could do twice as much: its *true rate* is rows per second of useful time,
whatever holds it up (Kalavri et al., "Three steps is all you need", OSDI 2018). With it one pass over the
graph says what every box needs, also those behind a box that is too slow today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["BoxRates", "work_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxRates:
    """What was measured of a box, all of its parts together.

    Attributes:
        rows_in_per_s: that it processed.
        rows_out_per_s: that it made of them.
        busy_share: useful time per second: 1 is one thread, two busy parts make 2.
    """

    rows_in_per_s: float
    rows_out_per_s: float
    busy_share: float


def work_of(
    inputs: Mapping[str, Sequence[str]], offered: Mapping[str, float], rates: Mapping[str, BoxRates]
) -> dict[str, float]:
    """Box -> threads that it would keep busy if all that is offered came through.

    Args:
        inputs: box -> those that it reads, which come before it.
        offered: source -> rows per second, also those that wait.
        rates: what was measured; nothing follows for a box of which nothing was, nor for those behind it.
    """
    leaves = dict(offered)
    work: dict[str, float] = {}
    for box, above in inputs.items():
        of = rates.get(box)
        if of is None or of.rows_in_per_s <= 0:
            continue
        if any(each not in leaves for each in above):
            continue
        comes = sum(leaves[each] for each in above)
        work[box] = comes * of.busy_share / of.rows_in_per_s
        leaves[box] = comes * of.rows_out_per_s / of.rows_in_per_s
    return work
