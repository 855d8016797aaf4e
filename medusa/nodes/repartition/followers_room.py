"""Whether those that stand by for a fragment have room for what takes its place. No IO.

    owner ── Move: is there room for so many? ──> each that stands by ── Reply ──> owner

It is asked before anything changes: one that had no room would follow none of them, and the output that
wanted a standby would have one less for ever. Who says yes keeps that room until they come, or until it is
given back (``nodes.deploy.room_promises``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from medusa.nodes.placement.repartition_plan import Replan
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import GiveUp, Move
from medusa.wire.outbox import Outbox

__all__ = ["FollowersRoom"]

TIMEOUT_MS = 5_000
"""As long as whoever ordered it waits for the coordinator."""


class FollowersRoom:
    """Of one split.

    Args:
        number: of the question.
        plan: what takes the place of what.
        nodes: those that stand by.
        is_up: whether a node is heard. One that isn't is not waited for: it follows once it is there.

    Attributes:
        refusal: who has no room, and its answer; None: nobody has said so.
    """

    def __init__(
        self,
        *,
        outbox: Outbox,
        number: int,
        fragment: str,
        plan: Replan,
        nodes: Collection[str],
        is_up: Callable[[str], bool],
    ) -> None:
        self.refusal: tuple[str, Reply] | None = None
        self._outbox = outbox
        self._number = number
        self._fragment = fragment
        self._made = [spec for spec in plan.made if spec.standby]
        self._is_up = is_up
        more = len(self._made) > len(plan.gone)
        self._nodes = tuple(nodes) if more else ()
        self._open = dict.fromkeys(self._nodes)

    @property
    def silent(self) -> tuple[str, ...]:
        """Nodes that are there and haven't answered."""
        return tuple(node for node in self._open if self._is_up(node))

    def ask(self) -> None:
        """All that haven't answered."""
        streams = sum(len(spec.feeds) for spec in self._made)
        for node in self.silent:
            question = Move(
                request=self._number,
                fragment=self._fragment,
                to=node,
                timeout_ms=TIMEOUT_MS,
                reads=(),
                fragments=len(self._made),
                streams=streams,
            )
            self._outbox.send(node, question)

    def give_back(self) -> None:
        """None of them needs it: also of those whose answer is still on its way."""
        for node in filter(self._is_up, self._nodes):  # Of others it expires.
            self._outbox.send(node, GiveUp(fragment=self._fragment, attempt=self._number))

    def answered(self, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was one."""
        if reply.request != self._number or peer not in self._open:
            return False
        del self._open[peer]
        if reply.code and reply.code != "E_FRAGMENT":  # A release that doesn't know the question says that.
            self.refusal = self.refusal or (peer, reply)
        return True
