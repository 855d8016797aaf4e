"""Definitions that are to go from the nodes that keep them: told again until each has said that it has.

A name stands here, on disk, from before a node is first asked to keep a definition until that node has said
that it does; and from when it is revoked until that node has said that it keeps it no more. So whatever is
lost, and whoever was away or died between, no node is left with a definition that nobody knows of.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from medusa.nodes.catalog.kept_definitions import RemoteKept
from medusa.ports import SKEW_US
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.remote import DropRemote
from medusa.wire.outbox import Outbox

__all__ = ["RemoteRevocations"]

AGAIN_US = 1_000_000


class RemoteRevocations:
    """What a node has still to take back elsewhere.

    Args:
        number: gives numbers for questions to nodes; they grow over all lives.
        peers: what the links are, ``up`` or not; who isn't there is told when it is.
    """

    def __init__(
        self, kept: RemoteKept, *, outbox: Outbox, number: Callable[[], int], peers: Mapping[str, str]
    ) -> None:
        self._peers = peers
        self._kept = kept
        self._outbox = outbox
        self._number = number
        self._numbers: dict[str, int] = {}
        self._said_us: dict[str, int] = {}

    def word(self, name: str) -> DropRemote:
        """What its keeper is told; the same however often."""
        if name not in self._numbers:
            self._numbers[name] = self._number()
        return DropRemote(request=self._numbers[name], name=name, since=self._kept.revoking[name].asked)

    def answered(self, node: str, reply: Reply) -> bool:
        """Whether a keeper said that it has forgotten one; who refuses is told again."""
        for name, number in self._numbers.items():
            each = self._kept.revoking.get(name)
            if number == reply.request and each is not None and each.node == node and not reply.code:
                self.end(name)
                return True
        return False

    def end(self, name: str) -> None:
        """Nothing is to be taken back under this name."""
        self._kept.end_revoking(name)
        self._numbers.pop(name, None)
        self._said_us.pop(name, None)

    def forget_expired(self, wall_us: int) -> bool:
        """Whether some have expired at their keepers too, whatever their clocks say."""
        old = [n for n, each in self._kept.revoking.items() if 0 < each.expires_us < wall_us - 2 * SKEW_US]
        for name in old:
            self.end(name)
        return bool(old)

    def tick(self, now_us: int, asked: Container[str]) -> None:
        """Tell keepers that are there.

        Args:
            asked: names about which their keepers are being asked for a client.
        """
        for name in self._due(asked):
            if now_us >= self._said_us.get(name, now_us - AGAIN_US) + AGAIN_US:
                self._said_us[name] = now_us
                self._outbox.send(self._kept.revoking[name].node, self.word(name))

    def wake_at_us(self, asked: Container[str]) -> int | None:
        """When ``tick`` has work."""
        times = [self._said_us[name] + AGAIN_US if name in self._said_us else 0 for name in self._due(asked)]
        return min(times, default=None)

    def _due(self, asked: Container[str]) -> list[str]:
        revoking = self._kept.revoking
        return [n for n, each in revoking.items() if n not in asked and self._peers.get(each.node) == "up"]
