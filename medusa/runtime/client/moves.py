"""What a client orders of fragments that run: where they shall go."""

from __future__ import annotations

from typing import Any

from medusa.errors import LinkError
from medusa.runtime.client.client_loop import ask
from medusa.runtime.client.followed_names import FollowedNames
from medusa.units import Duration, duration_us
from medusa.wire import limits
from medusa.wire.messages.commands import StatusRequest
from medusa.wire.messages.move import Grant, Move

__all__ = ["Moves"]

ANSWER_US = 20_000_000
"""So long after the last attempt may begin the answer comes: it may have to be undone or settled first."""


class Moves:
    """Orders fragments from node to node."""

    def __init__(self, following: FollowedNames) -> None:
        self._following = following

    def move(self, fragment: str, to: str, timeout: Duration) -> dict[str, Any]:
        """As ``Federation.move``."""
        _check(fragment, to, "move")
        fragment = self._following.own(fragment, 1)
        timeout_us = duration_us(timeout, what="move: timeout", minimum_us=1_000, error=LinkError)
        timeout_ms = min(timeout_us // 1000, 86_400_000)
        try:
            found: dict[str, Any] = self._following.order(
                lambda number: Move(request=number, fragment=fragment, to=to, timeout_ms=timeout_ms),
                timeout_us + ANSWER_US,
            )
        except LinkError as error:
            if error.code == "link.timeout" and (waits_for := self._waits_for(fragment)):
                hint = "the order stands: status()['moves'] at its node shows it"
                raise LinkError(f"{error.message}: {waits_for}", hint=hint, code="E_TIMEOUT") from None
            raise
        return found

    def _waits_for(self, fragment: str) -> str:
        """Whom the order waits for; empty: nobody who is known to be away."""
        try:
            loop = self._following.loop_at(self._following.lookup(fragment, "fragment"))
            status = ask(loop, lambda number: StatusRequest(request=number), timeout_us=loop.timeout_us)
        except LinkError:
            return ""
        going = status["moves"]["going"].get(fragment)
        return "" if going is None else str(going["waits_for"])

    def grant(self, fragment: str, to: str) -> None:
        """As ``Federation.grant``."""
        _check(fragment, to, "grant")
        fragment = self._following.own(fragment, 1)
        loop = self._following.orders
        timeout_us = max(loop.timeout_us, ANSWER_US)  # Who passes it on says who doesn't answer.
        ask(loop, lambda number: Grant(request=number, fragment=fragment, to=to), timeout_us=timeout_us)


def _check(fragment: str, to: str, what: str) -> None:
    for name, value in (("fragment", fragment), ("to", to)):
        if not isinstance(value, str) or not 1 <= len(value) <= limits.NAME_CHARS_MAX:
            raise LinkError(
                f"{what}: {name} is a name, came {value!r:.80}",
                hint='fed.move("query/box", to="node")',
                code="E_FRAGMENT",
            )
