"""The part of a node's configuration that says how long a lost owner is waited for.

[recovery]
wait = "2s"              # before a fragment goes on elsewhere without what its owner had
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import duration, read_fields

__all__ = ["RecoveryRules", "read_recovery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRules:
    """How this node takes over what others had."""

    wait_us: int = duration("2s", "0s", "10 min")
    """An owner of a fragment that is recovered by amnesia or upstream backup may be silent for so long before
    this node takes it over. Too small: a short cut of the network costs rows; too large: so long nothing
    comes of it."""


def read_recovery(file: ConfigFile) -> RecoveryRules:
    """The table ``[recovery]``.

    Raises:
        ConfigError: see ``fields.read_fields``.
    """
    return RecoveryRules(**read_fields(file, "recovery", file.table("recovery"), RecoveryRules))
