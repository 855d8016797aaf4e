"""How a node stands with another, as its status has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medusa.nodes.names.unreachable_peers import away_text

__all__ = ["away_of", "link_state", "with_away"]


def link_state(status: Mapping[str, Any], peer: str) -> str:
    """``up`` or ``silent`` of a node in the configuration, ``here`` of the node itself, else ``client``."""
    state: str = status["peers"].get(peer, "here" if peer == status["node"] else "client")
    return state


def away_of(status: Mapping[str, Any], peer: str) -> str:
    """``seen 26 s ago``, or why it refuses us, of a node that isn't there; empty: it is, or who knows."""
    away = status.get("away", {}).get(peer)
    return "" if away is None else away_text(away)


def with_away(status: Mapping[str, Any], peer: str) -> str:
    """The name of a node, and in brackets since when it isn't there, where it isn't."""
    why = away_of(status, peer)
    return f"{peer} ({why})" if why else peer
