"""Peers that aren't there, and since when. No IO."""

from __future__ import annotations

from collections.abc import Iterable

from medusa.wire.link import LinkEvent

__all__ = ["Away"]


class Away:
    """What a node tells of those that it waits for.

    Args:
        peers: all; at the start nothing was heard of any.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        self._since_us: dict[str, int | None] = dict.fromkeys(peers)
        """Those that are away -> when they were last heard of."""

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A peer came, went or restarted."""
        if event is LinkEvent.PEER_DOWN:
            self._since_us[peer] = now_us
        else:
            self._since_us.pop(peer, None)

    def among(self, nodes: Iterable[str]) -> list[str]:
        """Those of some nodes that are away, each once."""
        return [node for node in dict.fromkeys(nodes) if node in self._since_us]

    def told(self, now_us: int, nodes: Iterable[str]) -> str:
        """The same as a sentence; empty: none is away."""
        return "; ".join(
            f"node {node!r} doesn't answer, {self._seen(now_us, node)}" for node in self.among(nodes)
        )

    def _seen(self, now_us: int, node: str) -> str:
        since_us = self._since_us[node]
        return (
            "never seen since our start"
            if since_us is None
            else f"seen {(now_us - since_us) // 1_000_000} s ago"
        )
