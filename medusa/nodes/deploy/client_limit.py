"""How many deployments one client may have under way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from medusa.wire.messages.commands import Reply
from medusa.wire.statement import client_key

__all__ = ["UNDER_WAY_MAX", "PendingAnswers", "no_room"]

UNDER_WAY_MAX = 4
"""Of one key; without keys, of one program. Each takes turns of the engine and of the disk: more, and other
clients wait for those of one; fewer, and a program with several threads is refused."""


class ClientRequest(Protocol):
    """A deployment or removal, and who asked for it."""

    client: str


def no_room(
    client: str, request: int, attempts: Iterable[ClientRequest], answered: Iterable[str]
) -> Reply | None:
    """The refusal of one more deployment; None: it may begin.

    Args:
        attempts: what isn't done yet.
        answered: for each that is done, who is told so once that is on disk.
    """
    key = client_key(client)
    under_way = (*(each.client for each in attempts), *answered)
    if sum(client_key(each) == key for each in under_way) < UNDER_WAY_MAX:
        return None
    text = f"{UNDER_WAY_MAX} deployments and removals of this client are under way"
    return Reply(request=request, code="E_BUSY", text=text, hint="wait for the answer to one of them")


class PendingAnswers:
    """Of deployments and removals that are over: who hears so once that is on disk.

    Args:
        durable: the newest token whose write is on disk.
    """

    def __init__(self, durable: Callable[[], int]) -> None:
        self._durable = durable
        self._after: dict[tuple[str, int], int] = {}

    def wait(self, client: str, request: int, token: int) -> None:
        """A client is answered after the write of this token."""
        self._forget()
        self._after[client, request] = token

    def waiting(self) -> list[str]:
        """The clients, once for each answer."""
        self._forget()
        return [client for client, _ in self._after]

    def _forget(self) -> None:
        durable = self._durable()
        self._after = {key: token for key, token in self._after.items() if token > durable}
