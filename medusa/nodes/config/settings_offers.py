"""The part of a node's configuration that says what other participants may have it keep and run.

[offers.bob]                              # nothing is offered to who isn't named
boxes = ["filter", "select", "aggregate"] # kinds; sources and sinks belong to each part
definitions = 100                         # kept for bob at once
streams = ["traffic.out"]                 # of these sinks bob's queries may read
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import get_args

from medusa.nodes.config.config_file import ConfigFile
from medusa.query.boxes import Box
from medusa.query.suggest import did_you_mean

__all__ = ["OfferRules", "read_offers"]

KINDS = tuple(sorted(str(kind.__struct_config__.tag) for kind in get_args(Box)))
ALWAYS = ("source", "sink")
DEFINITIONS_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRules:
    """What one participant may have us run, and which streams its queries may read."""

    boxes: tuple[str, ...]
    definitions: int = 100
    streams: tuple[str, ...] = ()


def read_offers(file: ConfigFile, *, own: str, participants: Collection[str]) -> dict[str, OfferRules]:
    """The table ``[offers]``.

    Args:
        participants: those that the configuration knows.

    Raises:
        ConfigError: says the line, the field and what is allowed.
    """
    found: dict[str, OfferRules] = {}
    for name, given in file.table("offers").items():
        table = f"offers.{name}"
        if name == own or name not in participants:
            hint = "nodes of our own participant may do it anyway" if name == own else ""
            hint = hint or did_you_mean(name, participants) or f"add [participants.{name}]"
            raise file.error("offers", f"{name!r} is no other participant", hint=hint, within=name)
        if not isinstance(given, dict):
            raise file.error(
                "offers", f"expected a table, got {given!r:.80}", hint=f"[offers.{name}]", within=name
            )
        file.known(table, given, ("boxes", "definitions", "streams"))
        boxes = given.get("boxes", [])
        wrong = [each for each in boxes if each not in KINDS] if isinstance(boxes, list) else [boxes]
        if wrong:
            hint = did_you_mean(str(wrong[0]), KINDS) or 'boxes = ["filter", "aggregate"]'
            raise file.error(table, f"{wrong[0]!r:.80} is no kind of box", hint=hint, within="boxes")
        count = given.get("definitions", 100)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= DEFINITIONS_MAX:
            hint = f"allowed: 1 to {DEFINITIONS_MAX:,}"
            raise file.error(table, f"{count!r:.80} is no such number", hint=hint, within="definitions")
        streams = given.get("streams", [])
        if not isinstance(streams, list) or not all(isinstance(each, str) and each for each in streams):
            hint = 'streams = ["traffic.out"]'
            raise file.error(table, f"{streams!r:.80} is no list of names", hint=hint, within="streams")
        found[name] = OfferRules(boxes=tuple(boxes), definitions=count, streams=tuple(streams))
    return found
