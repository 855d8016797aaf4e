"""Peers that aren't there, and since when. No IO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from medusa.wire.link.automaton import LinkEvent
from medusa.wire.status_and_metrics import AwayStatus

__all__ = ["UnreachablePeers"]

REFUSED_US = 10_000_000
"""Who refuses us says so each time that we call, at least once a second; after so long it is just away."""


class UnreachablePeers:
    """What a node tells of those that it waits for.

    Args:
        peers: all; at the start nothing was heard of any.
    """

    def __init__(self, peers: Iterable[str]) -> None:
        self._since_us: dict[str, int | None] = dict.fromkeys(peers)
        """Those that are away -> when they were last heard of."""
        self._refusals: dict[str, tuple[str, int, int]] = {}
        """Those that answer and let us not in -> why, since when, when last."""

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A peer came, went or restarted."""
        if event is LinkEvent.PEER_DOWN:
            self._since_us[peer] = now_us
        else:
            self._since_us.pop(peer, None)
            self._refusals.pop(peer, None)

    def refused(self, now_us: int, peer: str, why: str) -> None:
        """A peer was called, and let us not in.

        Args:
            why: goes on after its name: ``refuses our key``.
        """
        before = self._refusals.get(peer)
        goes_on = before is not None and before[0] == why and now_us - before[2] < REFUSED_US
        self._refusals[peer] = why, before[1] if before is not None and goes_on else now_us, now_us

    def status(self, now_us: int) -> dict[str, AwayStatus]:
        """Each that is away."""
        return {node: self._told(now_us, node) for node in self._since_us}

    def _told(self, now_us: int, node: str) -> AwayStatus:
        since_us = self._since_us[node]
        why, first_us, last_us = self._refusals.get(node, ("", now_us, now_us))
        refuses = why != "" and now_us - last_us < REFUSED_US
        return AwayStatus(
            seen_us=None if since_us is None else now_us - since_us,
            refusal=why if refuses else "",
            refused_us=now_us - first_us if refuses else None,
        )

    def why(self, now_us: int, node: str) -> str:
        """Why a node that answers lets us not in, and for how long; empty: it isn't so."""
        if node not in self._since_us or not (told := self._told(now_us, node)).refusal:
            return ""
        return told.text

    def among(self, nodes: Iterable[str]) -> list[str]:
        """Those of some nodes that are away, each once."""
        return [node for node in dict.fromkeys(nodes) if node in self._since_us]

    def told(self, now_us: int, nodes: Iterable[str], coordinates: Mapping[str, str] | None = None) -> str:
        """The same as a sentence; empty: none is away.

        Args:
            coordinates: node -> the query that it coordinates, which is why it is waited for.
        """
        of = coordinates or {}
        return "; ".join(
            self._sentence(now_us, node) + (f": it coordinates query {of[node]!r}" if node in of else "")
            for node in self.among(nodes)
        )

    def _sentence(self, now_us: int, node: str) -> str:
        told = self._told(now_us, node)
        silent = "" if told.refusal else "doesn't answer, "
        return f"node {node!r} {silent}{told.text}"
