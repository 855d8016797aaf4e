"""What other participants may have a node keep, run and read: the table of its configuration, and its checks.

[offers.bob]                              # nothing is offered to who isn't named
boxes = ["filter", "select", "aggregate"] # kinds; sources and sinks belong to each part
definitions = 100                         # kept for bob at once
streams = ["traffic.out"]                 # of these sinks bob's queries may read

A new rule is a field and its check here. What is asked of a node, a price too, comes in ``KeepRemote``
(``wire/messages/remote.py``); ``nodes/deploy/admission`` asks in time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from medusa.errors import LinkError, QueryError
from medusa.nodes.config.config_file import ConfigFile
from medusa.nodes.config.fields import matches, names, number, read_fields
from medusa.query.boxes import Box
from medusa.query.ids import kind_of
from medusa.query.suggest import did_you_mean

if TYPE_CHECKING:
    from medusa.nodes.spec.fragment_spec import FragmentSpec
    from medusa.wire.messages.remote import KeepRemote

__all__ = ["OfferRules", "check_one_more", "check_part", "check_stream", "read_offers"]

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


def check_one_more(rules: OfferRules, participant: str, asked: KeepRemote, kept: int) -> None:
    """Whether a participant may have us keep what it asks for, before the spec is read.

    Args:
        kept: definitions that are kept for it, to which this is one more; 0 where this one is kept already.

    Raises:
        QueryError: it has no more than these here (``E_LIMIT``).
    """
    if kept >= rules.definitions:
        text = f"{rules.definitions:,} definitions are kept for {participant!r} already"
        raise QueryError(text, code="E_LIMIT")


def check_part(rules: OfferRules | None, node: str, participant: str, fragment: FragmentSpec) -> None:
    """Whether a participant may have this kept and run at our node.

    Args:
        rules: what is offered to it; None: nothing.

    Raises:
        QueryError: a box isn't offered to it, or a fork of it (``E_OFFER``).
    """
    if fragment.delay_us:
        text = f"node {node!r} offers no tentative streams to participant {participant!r}"
        raise QueryError(text, hint="leave delay= out of the outputs that it feeds", code="E_OFFER")
    offered = (*rules.boxes, *ALWAYS) if rules is not None else ()
    wrong = next((kind for box in fragment.graph.boxes if (kind := kind_of(box)) not in offered), None)
    if wrong is not None:
        raise QueryError(
            f"node {node!r} doesn't offer {wrong!r} to participant {participant!r}",
            hint=f"its configuration would have to say so in [offers.{participant}]",
            code="E_OFFER",
        )


def check_stream(rules: OfferRules | None, node: str, participant: str, stream: str) -> None:
    """Whether queries of a participant may read this stream of our node.

    Args:
        rules: what is offered to it; None: nothing.

    Raises:
        LinkError: they may not (``E_NO_CONTRACT``).
    """
    if rules is None or not any(matches(pattern, stream) for pattern in rules.streams):
        raise LinkError(
            f"node {node!r} doesn't offer stream {stream[:100]!r} to participant {participant!r}",
            hint=f'its configuration would have to say streams = ["{stream[:100]}"] in '
            f"[offers.{participant}]",
            code="E_NO_CONTRACT",
        )
