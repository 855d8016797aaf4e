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
from medusa.nodes.config.fields import names, number, read_fields
from medusa.query.boxes import Box
from medusa.query.suggest import did_you_mean

__all__ = ["OfferRules", "read_offers"]

KINDS = tuple(sorted(str(kind.__struct_config__.tag) for kind in get_args(Box)))
ALWAYS = ("source", "sink")


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferRules:
    """What one participant may have us run, and which streams its queries may read."""

    boxes: tuple[str, ...] = names('["filter", "aggregate"]', noun="kind of box", of=KINDS)
    """Kinds that it may have run here."""

    definitions: int = number(100, 1, 10000)
    """Kept for it at once."""

    streams: tuple[str, ...] = names('["traffic.out"]', noun="names")
    """Of these sinks its queries may read."""


def read_offers(file: ConfigFile, *, own: str, participants: Collection[str]) -> dict[str, OfferRules]:
    """The table ``[offers]``.

    Args:
        participants: those that the configuration knows.

    Raises:
        ConfigError: see ``fields.read_fields``.
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
        found[name] = OfferRules(**read_fields(file, table, given, OfferRules))
    return found
