"""Whether a node takes what is brought to it: the one place where that is decided. No IO.

A deployment, a move and a split ask before anything changes. A node that runs fragments itself takes all for
which it has room; one that has them run elsewhere says by ``accept`` what it can run, in time.

What another participant may have kept and run here is judged by what is offered to it, in
``nodes.config.settings_offers``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType

from medusa.errors import QueryError
from medusa.nodes.catalog.kept_definitions import RemoteKept
from medusa.nodes.config import settings_offers
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_offers import OfferRules, check_one_more
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.published_stream import reads_of
from medusa.wire.messages.remote import KeepRemote
from medusa.wire.status_and_metrics import RunsOnStatus

__all__ = ["OWN_MAX", "Admission", "ClusterNow", "check_another", "check_part", "check_room"]

OWN_MAX = 1_000
"""Definitions kept for nodes of our own participant, and by others for us."""

KEPT_BYTES_MAX = 8 << 20
"""Specs kept for another participant, together. Each takes some 20 times as much memory."""

OWN_BYTES_MAX = 64 << 20
"""For nodes of our own participant."""


@dataclass(frozen=True, slots=True)
class ClusterNow:
    """What runs the fragments of a node in its place, as it is now.

    Attributes:
        overhead_us: of a trigger, beside the work in it.
        down: why it runs nothing any more; empty: it runs.
    """

    overhead_us: int
    down: str = ""


class Admission:
    """What a node says of fragments that are offered, and of itself to who might offer some.

    Attributes:
        accept: raises LinkError, with the reason, for one that it won't take.
        told: what the catalog and the status say of where its fragments run; empty: in the node.
        cluster: what runs them in its place; None: they run in the node.
    """

    def __init__(
        self,
        accept: Callable[[FragmentSpec], None] = lambda fragment: None,
        told: Callable[[], dict[str, Any]] = dict,
        cluster: Callable[[], ClusterNow | None] = lambda: None,
    ) -> None:
        self.accept = accept
        self.told = told
        self.cluster = cluster

    def status(self) -> RunsOnStatus | UnsetType:
        """For the status of the node; unset: its fragments run here."""
        told = self.told()
        return RunsOnStatus(**told) if told else UNSET


def check_another(
    settings: Settings,
    offers: Mapping[str, OfferRules],
    kept: RemoteKept,
    participant: str,
    message: KeepRemote,
) -> None:
    """Whether a participant may have us keep one more definition, before its spec is read.

    Raises:
        QueryError: nothing is offered to it (``E_OFFER``), or no more than it has here (``E_LIMIT``).
    """
    rules = offers.get(participant)
    if participant != settings.participant and rules is None:
        raise QueryError(
            f"node {settings.name!r} offers nothing to participant {participant!r}",
            hint=f"its configuration would have to say so in [offers.{participant}]",
            code="E_OFFER",
        )
    full = f"{participant}/{message.name}"
    count = 0 if full in kept.held else sum(each.participant == participant for each in kept.held.values())
    if rules is not None:
        check_one_more(rules, participant, message, count)
    elif count >= OWN_MAX:
        raise QueryError(f"{OWN_MAX:,} definitions are kept for {participant!r} already", code="E_LIMIT")


def check_part(
    settings: Settings, offers: Mapping[str, OfferRules], participant: str, fragment: FragmentSpec
) -> None:
    """Whether a participant may have this kept and run here.

    Raises:
        QueryError: a box isn't offered to it, or a fork of it (``E_OFFER``), or it reads streams of other
            queries.
    """
    if reads_of(fragment.graph) or fragment.guests:
        text = "a part that reads a stream of another query is deployed in full"
        raise QueryError(text, hint="leave the source with of= out of it", code="E_SPEC")
    if participant != settings.participant:
        settings_offers.check_part(offers.get(participant), settings.name, participant, fragment)


def check_room(
    settings: Settings, kept: RemoteKept, participant: str, message: KeepRemote, fragment: FragmentSpec
) -> None:
    """Whether this one more isn't more than we keep for a participant.

    Raises:
        QueryError: it is (``E_LIMIT``).
    """
    full = f"{participant}/{message.name}"
    others = sum(
        len(each.fragment.packed)
        for name, each in kept.held.items()
        if each.participant == participant and name != full
    )
    most = OWN_BYTES_MAX if participant == settings.participant else KEPT_BYTES_MAX
    if others + len(fragment.packed) > most:
        text = f"definitions kept for {participant!r} would have more than {most:,} bytes"
        raise QueryError(text, hint="revoke one of them first", code="E_LIMIT")
