"""What opens each place where a node may keep checkpoints and its catalog: see ``settings_store.STORES``."""

from __future__ import annotations

from collections.abc import Callable

from medusa.nodes.config.settings import Settings
from medusa.ports import Clock, NodeStore
from medusa.runtime.store.no_store import open_nothing
from medusa.runtime.store.node_folder import open_folder

__all__ = ["OPENERS", "open_store"]

OPENERS: dict[str, Callable[[Settings, Clock, bool], NodeStore]] = {
    "disk": open_folder,
    "memory": open_nothing,
}
"""``store`` of the configuration -> what opens it, as ``open_store`` does."""


def open_store(settings: Settings, clock: Clock, *, existing: bool = False) -> NodeStore:
    """Where the node with this configuration keeps what it keeps.

    Args:
        existing: the node is stopped, and only what it left is looked at: nothing is made or removed.

    Raises:
        StateError: it can't be made or opened, or another process has it (``state.locked``).
    """
    return OPENERS[settings.store](settings, clock, existing)
