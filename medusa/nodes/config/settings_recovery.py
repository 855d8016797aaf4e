"""The part of a node's configuration that says how long a lost owner is waited for, and on how
many nodes what it had goes on.

[recovery]
wait = "2s"              # before a fragment goes on elsewhere without what its owner had
restore_parts = 1        # of a fragment whose state this node holds, once its owner is lost
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import duration, number, read_fields

__all__ = ["RecoveryRules", "read_recovery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRules:
    """How this node takes over what others had."""

    wait_us: int = duration("2s", "0s", "10 min")
    """An owner of a fragment that is recovered by amnesia or upstream backup may be silent for so long before
    this node takes it over. Too small: a short cut of the network costs rows; too large: so long nothing
    comes of it."""
    restore_parts: int = number(1, 1, 16)
    """A fragment whose state this node holds for others (``method="state_backup"``) is split by the keys of a
    box once its owner is lost, and each part goes on at a node of its own: in so many parts, if as many nodes
    stand by that hold nothing. 1: it goes on as a whole, at one. Too small: a large state comes to one node;
    too large: rows go over more links than they need."""


def read_recovery(file: ConfigFile) -> RecoveryRules:
    """The table ``[recovery]``.

    Raises:
        ConfigError: see ``fields.read_fields``.
    """
    return RecoveryRules(**read_fields(file, "recovery", file.table("recovery"), RecoveryRules))
