"""The part of a node's configuration that says how single streams are treated.

[streams."netmon.*"]        # patterns as for clients; the first one in the file that fits counts
weight = 4                  # share of a busy link
retention = "64 MiB"        # default: limits.retention
at_limit = "slow"           # what happens when so much is kept
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medusa.errors import ConfigError
from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.security.registry import matches
from medusa.query.suggest import did_you_mean
from medusa.units import byte_count, size_text
from medusa.wire.link.automaton import AT_LIMIT

if TYPE_CHECKING:
    from medusa.nodes.config.settings import Settings

__all__ = ["RETENTION", "StreamRule", "StreamSettings", "read_streams", "stream_settings"]

WEIGHT_MAX = 1000
RETENTION = (1 << 20, 1 << 36)
"""Least and most bytes kept of a stream."""

PATTERNS_MAX = 1000
PATTERN_CHARS_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """How one stream is treated."""

    weight: int = 1
    """Share of a link on which more streams want to go than fit. In [1, 1000].

    Too large: the others of that link wait; a stream alone has all of it whatever its weight.
    """

    retention_bytes: int
    """Bytes kept until its receivers hold them durably. In [1 MiB, 64 GiB]; see ``Limits``."""

    at_limit: str = "slow"
    """One of ``medusa.wire.link.automaton.AT_LIMIT``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRule:
    """What is said of the streams that a pattern fits; None: what holds for all."""

    pattern: str
    weight: int = 1
    retention_bytes: int | None = None
    at_limit: str = "slow"


def stream_settings(settings: Settings, stream: str) -> StreamSettings:
    """How a node treats a stream, ``query.sink``: the first rule that fits counts, alone."""
    everyone = settings.limits.retention_bytes
    for rule in settings.streams:
        if matches(rule.pattern, stream):
            kept = everyone if rule.retention_bytes is None else rule.retention_bytes
            return StreamSettings(weight=rule.weight, retention_bytes=kept, at_limit=rule.at_limit)
    return StreamSettings(retention_bytes=everyone)


def read_streams(file: ConfigFile, *, store: str) -> tuple[StreamRule, ...]:
    """The tables ``[streams."PATTERN"]``, in their order.

    Args:
        store: of the node.

    Raises:
        ConfigError: says the line, the field and what is allowed.
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
    file.known(table, fields, ("weight", "retention", "at_limit"))
    weight = fields.get("weight", 1)
    if isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= WEIGHT_MAX:
        hint = f"allowed: 1 to {WEIGHT_MAX}"
        raise file.error(table, f"{weight!r:.80} is no weight", hint=hint, within="weight")
    at_limit = fields.get("at_limit", "slow")
    if at_limit not in AT_LIMIT:
        allowed = ", ".join(f'"{each}"' for each in AT_LIMIT)
        hint = did_you_mean(at_limit, AT_LIMIT) if isinstance(at_limit, str) else ""
        raise file.error(
            table, f"there is no {at_limit!r:.80}", hint=hint or f"allowed: {allowed}", within="at_limit"
        )
    if at_limit == "spill" and store == "memory":
        why = 'a node with store = "memory" has no disk to spill to'
        hint = 'write "slow" or "shed", or run this node with store = "disk"'
        raise file.error(table, why, hint=hint, within="at_limit")
    kept = _retention(file, table, fields["retention"]) if "retention" in fields else None
    return StreamRule(pattern=pattern, weight=weight, retention_bytes=kept, at_limit=at_limit)


def _retention(file: ConfigFile, table: str, value: Any) -> int:
    least, most = RETENTION
    what = f"{file.at(table, 'retention')}: {table}.retention"
    number = byte_count(value, what=what, error=ConfigError)
    if not least <= number <= most:
        hint = f"allowed: {size_text(least)} to {size_text(most)}"
        raise file.error(table, f"{value!r} is out of range", hint=hint, within="retention")
    return number


_PATTERN_RULE = 'write [streams."netmon.*"], where * is any text'
