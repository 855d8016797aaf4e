"""The number of a query's configuration, as one end of a link knows it. Pure.

A configuration says who has which fragment (docs/standby.md), and no two nodes hear of the next one in the
same moment. So ``Attach``, ``Attached`` and ``Ack`` say by which one their sender goes, as a fencing token:
while two ends go by different ones neither takes the other's word.
"""

from __future__ import annotations

from medusa.wire.messages.links import Ack, Attach, Attached, Refuse

__all__ = ["OUTDATED", "Fence"]

OUTDATED = "E_CONFIGURATION"
"""One of two ends goes by an older configuration. It is being told the newer one: what was refused is said
again then."""


class Fence:
    """Of an end that is told of no configuration: it says 0, and takes what anybody says."""

    @property
    def number(self) -> int:
        """Of the newest configuration that is known here; 0: none is."""
        return 0

    def refusal(self, now_us: int, peer: str, message: Attach | Attached | Ack) -> Refuse | None:
        """What a peer hears that goes by another configuration; None: its message is taken."""
        return None
