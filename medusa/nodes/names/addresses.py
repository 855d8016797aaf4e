"""At which address a peer is called: as configured, or where it listens now, if it doesn't hear us there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from medusa.wire.messages.links import Hello
from medusa.wire.outbox import CallAt, Outbox

__all__ = ["PeerAddresses", "reachable"]

IN_VAIN = 5
"""So often in a row a peer asks who we are, before we call it elsewhere: it has heard none of our answers."""

IN_A_ROW_US = 1_000_000

AWAY_US = 2_000_000
"""A peer that is silent for so long is called where the catalog knows it, then again where it was."""


@dataclass(slots=True)
class _Asking:
    times: int
    last_us: int


class PeerAddresses:
    """Watches which peers ask in vain.

    Args:
        peers: node -> address, as configured.
    """

    def __init__(self, peers: Mapping[str, str], outbox: Outbox) -> None:
        self._peers = peers
        self._outbox = outbox
        self._called = dict(peers)
        self._asking: dict[str, _Asking] = {}
        self._silent: dict[str, int] = dict.fromkeys(peers, 0)
        """Those that aren't there -> since when."""
        self._switched: dict[str, int] = {}
        """When a peer was last called elsewhere."""

    def greeted(self, now_us: int, peer: str, hello: Hello) -> None:
        """A peer said ``Hello``; with ``answer`` it doesn't hear us, or hasn't yet."""
        asking = self._asking.setdefault(peer, _Asking(0, now_us - IN_A_ROW_US))
        in_row = hello.answer and now_us - asking.last_us < IN_A_ROW_US
        asking.times = asking.times + 1 if in_row else 0
        asking.last_us = now_us
        if asking.times < IN_VAIN or peer not in self._peers:
            return
        asking.times = 0
        self._call(now_us, peer, hello.address)

    def peer_is(self, now_us: int, peer: str, *, up: bool) -> None:
        """A peer came or went."""
        if up:
            self._silent.pop(peer, None)
        elif peer in self._peers:
            self._silent.setdefault(peer, now_us)

    def tick(self, now_us: int, known: Callable[[str], str]) -> None:
        """Look for those that are away.

        Args:
            known: where the catalog knows a node; empty: nowhere.
        """
        for peer, since_us in self._silent.items():
            if now_us - since_us >= AWAY_US:
                self._call(now_us, peer, known(peer))

    def _call(self, now_us: int, peer: str, listens: str) -> None:
        """Where it says that it listens; where it was called there already, as configured."""
        if now_us - self._switched.get(peer, -AWAY_US) < AWAY_US:
            return  # It hasn't had the time to hear us where we call now.
        configured = self._peers[peer]
        said = reachable(listens, configured)
        address = said if said and self._called[peer] == configured else configured
        if address != self._called[peer]:
            self._called[peer] = address
            self._switched[peer] = now_us
            self._outbox.append(CallAt(peer=peer, address=address))
            self._outbox.report("info", "peer called elsewhere", peer=peer, address=address)


def reachable(address: str, called: str) -> str:
    """Of a node that listens at all addresses of its machine, the one at which it is called."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if host not in ("*", "0.0.0.0", "[::]"):
        return address
    found = called.removeprefix("tcp://").rpartition(":")[0] if called.startswith("tcp://") else ""
    return f"tcp://{found}:{port}" if found else ""
