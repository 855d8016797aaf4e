"""The part of a node's configuration that says how single streams are treated.

[streams."netmon.*"]        # patterns as for clients; the first one in the file that fits counts
weight = 4                  # share of a busy link
retention = "64 MiB"        # default: limits.retention
at_limit = "slow"           # what happens when so much is kept
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import choice, matches, number, read_fields, size
from medusa.nodes.config.settings_store import forgets
from medusa.nodes.spec.stream_names import output_of
from medusa.wire.link.automaton import AT_LIMIT

if TYPE_CHECKING:
    from medusa.nodes.config.settings import Settings

__all__ = ["StreamRule", "StreamSettings", "read_streams", "stream_settings"]

PATTERNS_MAX = 1000
PATTERN_CHARS_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """How one stream is treated; see ``StreamRule``."""

    weight: int = 1
    retention_bytes: int
    at_limit: str = "slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRule:
    """What is said of the streams that a pattern fits; None: what holds for all."""

    pattern: str
    weight: int = number(1, 1, 1000, noun="weight")
    """Share of a link on which more streams want to go than fit. Too large: the others of that link wait; a
    stream alone has all of it whatever its weight."""

    retention_bytes: int | None = size(None, "1 MiB", "64 GiB")
    """Bytes kept until its receivers hold them durably, instead of `limits.retention`."""

    at_limit: str = choice("slow", AT_LIMIT)
    """What happens when so much is kept."""


def stream_settings(settings: Settings, stream: str) -> StreamSettings:
    """How a node treats a stream, ``query.sink``: the first rule that fits counts, alone. What goes to one
    reader alone is treated as its output is."""
    everyone, output = settings.limits.retention_bytes, output_of(stream)
    for rule in settings.streams:
        if matches(rule.pattern, stream) or matches(rule.pattern, output):
            kept = everyone if rule.retention_bytes is None else rule.retention_bytes
            return StreamSettings(weight=rule.weight, retention_bytes=kept, at_limit=rule.at_limit)
    return StreamSettings(retention_bytes=everyone)


def read_streams(file: ConfigFile, *, store: str) -> tuple[StreamRule, ...]:
    """The tables ``[streams."PATTERN"]``, in their order.

    Args:
        store: of the node.

    Raises:
        ConfigError: see ``fields.read_fields``.
    """
    rules: list[StreamRule] = []
    given = file.table("streams")
    if len(given) > PATTERNS_MAX:
        raise file.error("streams", f"{len(given):,} patterns", hint=f"at most {PATTERNS_MAX:,}")
    for pattern, fields in given.items():
        if not 1 <= len(pattern) <= PATTERN_CHARS_MAX or not pattern.isprintable():
            raise file.error("streams", f"{pattern[:80]!r} is no pattern", hint=_PATTERN_RULE, within=pattern)
        if not isinstance(fields, dict) or any(isinstance(each, dict) for each in fields.values()):
            # Without quotes the dot of a name makes a table within a table.
            raise file.error(
                "streams", "expected a table of plain fields", hint=_PATTERN_RULE, within=pattern
            )
        rules.append(_rule(file, pattern, fields, store))
    return tuple(rules)


def _rule(file: ConfigFile, pattern: str, fields: dict[str, Any], store: str) -> StreamRule:
    table = f"streams.{pattern}"
    rule = StreamRule(pattern=pattern, **read_fields(file, table, fields, StreamRule))
    if rule.at_limit == "spill" and forgets(store):
        why = f'a node with store = "{store}" has no disk to spill to'
        hint = 'write "slow" or "shed", or run this node with store = "disk"'
        raise file.error(table, why, hint=hint, within="at_limit")
    return rule


_PATTERN_RULE = 'write [streams."netmon.*"], where * is any text'
