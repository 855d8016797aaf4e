"""What a client orders of fragments that run: where they shall go."""

from __future__ import annotations

from typing import Any

from medusa.errors import LinkError
from medusa.runtime.client.asking import ask
from medusa.runtime.client.client_loop import ClientLoop
from medusa.runtime.client.followed_names import FollowedNames
from medusa.units import Duration, duration_us
from medusa.wire import limits
from medusa.wire.messages.links_and_commands import StatusRequest
from medusa.wire.messages.move import Grant, Move

__all__ = ["MoveMethods"]

ANSWER_US = 20_000_000
"""So long after the last attempt may begin the answer comes: it may have to be undone or settled first."""


class MoveMethods:
    """The methods of a ``Federation`` that move fragments."""

    _loop: ClientLoop
    _following: FollowedNames

    def move(self, fragment: str, to: str, timeout: Duration = "60s") -> dict[str, Any]:
        """Move a fragment to another node while it runs; returns when that has taken it.

        Nothing is lost and nothing comes twice: readers and publishers go on with the new node by
        themselves. Whatever dies meanwhile, the fragment is at one node in the end; ordered again, the same
        move is done only once. docs/moving.md tells how. What others stand by for goes to one of these, which
        has its state already, and its owner stands by then: docs/standby.md.

        Args:
            fragment: its name, ``query/first-box``, as ``status`` shows it; at any node of the participant.
            to: the node that shall have it.
            timeout: how long attempts that break are begun anew.

        Returns:
            ``node``, ``bytes`` that were sent, ``pause_us`` in which nothing of it was fed, ``attempts``.

        Raises:
            LinkError: it can't be moved there, and is where it was: no such fragment (``E_FRAGMENT``), no
                such peer (``E_PEER``), a node without a disk (``E_STORE``), it or a neighbour is just being
                moved (``E_BUSY``), others stand by for it and that one doesn't (``E_STANDBY``), no attempt
                got through in time (``E_TIMEOUT``, ``E_BROKEN``). Without an
                answer in time (``E_TIMEOUT``) it may still be on its way: ask again.
        """
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
        """Say that the node that may have taken a fragment is lost for good, so that ``to`` goes on with it.

        Needed where a node handed a fragment over and the target never came back to say whether it took it:
        then the fragment waits, since two owners would be worse. **If the target comes back after all, and
        had taken it, both run it**: only who knows that it never will may say this.

        Args:
            to: the node that handed it over.

        Raises:
            LinkError: that fragment waits for nobody there (``E_GRANT``), or its node is away, with the time
                since it was seen (``E_TIMEOUT``).
        """
        _check(fragment, to, "grant")
        fragment = self._following.own(fragment, 1)
        timeout_us = max(self._loop.timeout_us, ANSWER_US)  # Who passes it on says who doesn't answer.
        ask(self._loop, lambda number: Grant(request=number, fragment=fragment, to=to), timeout_us=timeout_us)


def _check(fragment: str, to: str, what: str) -> None:
    for name, value in (("fragment", fragment), ("to", to)):
        if not isinstance(value, str) or not 1 <= len(value) <= limits.NAME_CHARS_MAX:
            raise LinkError(
                f"{what}: {name} is a name, came {value!r:.80}",
                hint='fed.move("query/box", to="node")',
                code="E_FRAGMENT",
            )
