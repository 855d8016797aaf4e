"""How a node stands with another, as its status has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["link_state"]


def link_state(status: Mapping[str, Any], peer: str) -> str:
    """``up`` or ``silent`` of a node in the configuration, ``here`` of the node itself, else ``client``."""
    state: str = status["peers"].get(peer, "here" if peer == status["node"] else "client")
    return state
