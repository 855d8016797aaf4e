"""By which configuration a node goes on the links of a query, and what a peer hears that goes by another."""

from __future__ import annotations

from medusa.nodes.agreement.agreement import Agreement
from medusa.wire.link.fence import OUTDATED, Fence
from medusa.wire.messages.links import Ack, Attach, Attached, Refuse

__all__ = ["QueryFence"]


class QueryFence(Fence):
    """Of one query at one node.

    Who is behind is told by who isn't: it steps down if its fragment is another's by then, and else says
    again what was refused. Clients, nodes of other participants and older releases say 0, which is taken:
    they are told of no configuration.
    """

    def __init__(self, agreement: Agreement, query: str) -> None:
        self._agreement = agreement
        self._query = query

    @property
    def number(self) -> int:
        current = self._agreement.current(self._query)
        return 0 if current is None else current.number

    def refusal(self, now_us: int, peer: str, message: Attach | Attached | Ack) -> Refuse | None:
        ours, theirs = self.number, message.configuration
        if ours == theirs or not ours or not theirs:
            return None
        self._agreement.differs(now_us, self._query, peer)
        text = f"configuration {ours} of query {self._query!r} is the newest known here, you go by {theirs}"
        return Refuse(code=OUTDATED, text=text, stream=message.stream, epoch=message.epoch)
