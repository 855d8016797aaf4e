"""The part of a node's configuration that says what outputs with `delay=` may hold while a failure lasts.

[delay]
tentative = "4 MiB"      # under way to each reader of a stream
memory = "32 MiB"        # what a fragment holds that waits for a missing input
disk = "1 GiB"           # and what waits beyond that
"""

from __future__ import annotations

from dataclasses import dataclass

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import read_fields, size

__all__ = ["DelayRules", "read_delay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRules:
    """What outputs with `delay=` may hold while a failure lasts."""

    tentative_bytes: int = size("4 MiB", "64 KiB", "1 GiB")
    """Tentative rows that may be under way to each reader of a stream. Too small: what a slow reader has no
    room for is dropped, and counted; it comes with the corrections. Too large: that much memory for each."""

    memory_bytes: int = size("32 MiB", "64 KiB", "1024 GiB")
    """By so much the state of a fragment may grow while an input is missing. Beyond it what waits for that
    goes to disk. Too small: it is written and read back in short failures already; too large: the query holds
    more than `query_memory`, and ends."""

    disk_bytes: int = size("1 GiB", "0 B", "1024 GiB")
    """So much of each fragment may wait on disk. Beyond it, and at a node that keeps nothing, the rest is
    held back at its senders: nothing new shows, and status says so. Too small: so it is in a failure that
    lasts; too large: the disk is full."""


def read_delay(file: ConfigFile) -> DelayRules:
    """The table ``[delay]``.

    Raises:
        ConfigError: see ``fields.read_fields``.
    """
    return DelayRules(**read_fields(file, "delay", file.table("delay"), DelayRules))
