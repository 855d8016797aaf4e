"""The node that a client is a client of, and what only that one is asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from medusa.errors import LinkError
from medusa.runtime.client.client_loop import ask
from medusa.runtime.client.followed_names import FollowedNames
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Declare, StatusRequest
from medusa.wire.statement import from_text

__all__ = ["HomeNode"]

SPREAD_TIMEOUT_US = 15_000_000
"""Commands that a node passes on wait at least so long: longer than it waits for the others."""


class HomeNode:
    """Asks the home of a client's connections, be it away."""

    def __init__(self, following: FollowedNames) -> None:
        self._following = following

    @property
    def name(self) -> str:
        """What it calls itself."""
        return self._following.home.node

    @property
    def spread_us(self) -> int:
        """How long to wait for the answer to a command that a node passes on to others."""
        return max(self._following.orders.timeout_us, SPREAD_TIMEOUT_US)

    def ask(
        self, make: Callable[[int], Message], payload: bytes | None = None, *, spread: bool = False
    ) -> Any:
        """Send a command and wait for its answer.

        Args:
            spread: it is passed on to other nodes.

        Raises:
            LinkError, QueryError: refused, or no answer in time.
        """
        return ask(self._following.home, make, payload, timeout_us=self.spread_us if spread else None)

    def status(self) -> dict[str, Any]:
        """As ``Federation.status``."""
        while True:
            home = self._following.home
            try:
                return dict(
                    ask(
                        home,
                        lambda number: StatusRequest(request=number),
                        lost=lambda home=home: home is not self._following.home,  # type: ignore[misc]
                    )
                )
            except LinkError as error:
                if error.code != "link.lost":
                    raise

    def declare(self, statement: str) -> None:
        """As ``Federation.declare``."""
        data = from_text(statement)
        self.ask(lambda number: Declare(request=number, statement=data))
