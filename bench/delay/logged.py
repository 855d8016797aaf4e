"""What the authors logged and published, beside which ours stand; seconds, and tentative rows."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHAIN", "NOTHING", "PAIR", "SWEEP", "CHAIN_OF_FOUR", "Logged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """Of one of their runs; empty: not known.

    Attributes:
        calm, latest, after: largest latency of new rows before, during and after the failure.
        first: latency of the first tentative row.
        undo: latency of the undo, which is the length of the failure and what it took to begin.
        begun: from healing until corrections began.
    """

    calm: str = ""
    first: str = ""
    latest: str = ""
    undo: str = ""
    begun: str = ""
    after: str = ""


NOTHING = Logged()
PAIR = Logged(calm="0.72", first="1.83", latest="1.83", undo="7.07", begun="1.07", after="0.67 to 0.60")
CHAIN = {
    "process&process": Logged(
        calm="0.17", first="1.94", latest="2.22", undo="11.16", begun="1.16", after="0.19"
    ),
    "delay&delay": Logged(calm="0.17", first="1.83", latest="3.74", undo="10.98", begun="0.98", after="0.16"),
}
SWEEP = Logged(latest="below 3")
CHAIN_OF_FOUR = Logged(latest="below 8")
