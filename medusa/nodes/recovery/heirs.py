"""Fragments of other nodes that this one could begin anew, with nothing: recovered by amnesia. No IO.

    owner ── Seed ──> can we? ── Ready ──> the spec is here, and nothing else ever comes

Whoever has the spec counts as a secondary at once: there is nothing that it would have to have before.
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.move import Ready
from medusa.wire.outbox import Outbox

__all__ = ["Heir"]

WINDOW = 1
"""Bytes that may be under way to one who is sent nothing."""


@dataclass(slots=True, kw_only=True)
class Heir:
    """What this node knows of a fragment that it may begin anew.

    Attributes:
        spec: as it would run here.
        owner: the node that has it.
        attempt: of the owner to have us.
    """

    spec: FragmentSpec
    owner: str
    attempt: int
    ticket: int
    failed: str = ""

    def ready(self, outbox: Outbox) -> None:
        """Tell the owner, or again."""
        message = Ready(fragment=self.spec.name, attempt=self.attempt, ticket=self.ticket, window=WINDOW)
        outbox.send(self.owner, message)

    def rewired(self, now_us: int, spec: FragmentSpec) -> None:
        """What it reads comes from other nodes now, or other nodes read it."""
        self.spec = spec
