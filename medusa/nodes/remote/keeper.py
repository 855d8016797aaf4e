"""Definitions that other nodes have this one keep, and run by their name: see
``nodes.remote.definitions``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from medusa.errors import QueryError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_definitions import (
    EXPIRES_MAX_US,
    HeldDefinition,
    template_of,
)
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.deploy.admission import check_another, check_part, check_room
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.deploy.stale_requests import StaleRequests
from medusa.nodes.remote.stopping import StoppedParts
from medusa.nodes.security.registry import Caller
from medusa.nodes.spec.fragment_spec import Feed, FragmentSpec
from medusa.ports import SKEW_US, Buffer
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.remote import DropRemote, Instantiate, KeepRemote
from medusa.wire.outbox import Outbox

__all__ = ["RemoteKeeper"]


class RemoteKeeper:
    """What this node keeps for others.

    Args:
        offers: what other participants may have us keep and run, by participant; as it is now.
        time: since the Unix epoch, in microseconds; raises QueryError where nobody has told it.
        install: runs a checked fragment here, for a node.
        refuse: answers a message of a node that is refused.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        stopping: StoppedParts,
        parsing: BackgroundParsing,
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        offers: Callable[[], Mapping[str, OfferRules]],
        time: Callable[[int], int],
        install: Callable[[int, FragmentSpec, str], Reply | None],
        refuse: Callable[[str, int, QueryError], None],
    ) -> None:
        self._settings = settings
        self._kept = catalog.remote
        self._stopping = stopping
        self._parsing = parsing
        self._outbox = outbox
        self._saver = saver
        self._offers = offers
        self._time = time
        self._install = install
        self._refuse = refuse
        self._late = StaleRequests()

    def _check_time(self, now_us: int, name: str, expires_us: int) -> None:
        if expires_us and self._time(now_us) > expires_us + SKEW_US:
            text = f"{name!r} has expired"
            raise QueryError(text, hint="define it anew; or set the clock right", code="E_EXPIRED")

    def keep(
        self,
        now_us: int,
        peer: str,
        participant: str,
        message: KeepRemote,
        payload: Buffer,
        caller: Caller | None,
    ) -> None:
        """A node brings a definition. What it may not, or can't, is refused before the spec is read.

        Raises:
            QueryError: refused; nothing changed.
        """
        self._check(now_us, peer, participant, message)

        def take(now_us: int, fragment: FragmentSpec) -> None:
            try:
                self._check(now_us, peer, participant, message)
                self._take(peer, participant, message, fragment)
            except QueryError as error:
                self._refuse(peer, message.request, error)

        self._parsing.read_fragment(
            now_us,
            peer,
            caller,
            ("keep", message.request),
            bytes(payload),
            then=take,
            refuse=partial(self._refuse, peer, message.request),
        )

    def _check(self, now_us: int, peer: str, participant: str, message: KeepRemote) -> None:
        """Whether a node may have us keep anything under this name, whatever it is."""
        full = f"{participant}/{message.name}"
        if self._late.install(peer, full, message.request):
            raise QueryError(f"{full!r} was revoked after that", code="E_STALE")
        if self._settings.forgets:
            raise QueryError("this node keeps nothing over its end, so no definition either", code="E_STORE")
        if message.expires_us > EXPIRES_MAX_US:
            raise QueryError("it would expire in too many years", code="E_LIMIT")
        self._check_time(now_us, full, message.expires_us)
        check_another(self._settings, self._offers(), self._kept, participant, message)

    def _take(self, peer: str, participant: str, message: KeepRemote, fragment: FragmentSpec) -> None:
        full = f"{participant}/{message.name}"
        if fragment.node != self._settings.name:
            raise QueryError(f"the fragment is for node {fragment.node!r}", code="E_IDENTITY")
        check_part(self._settings, self._offers(), participant, fragment)
        known = self._kept.held.get(full)
        new = HeldDefinition(
            participant=participant,
            node=peer,
            fragment=fragment,
            asked=message.request if known is None else known.asked,
            **msgspec.structs.asdict(message.terms),
        )
        if known is not None and (known.node, template_of(known.fragment)) != (peer, template_of(fragment)):
            text = f"{full!r} is kept already, for node {known.node!r}"
            raise QueryError(text, hint="revoke it first", code="E_DEFINED")
        check_room(self._settings, self._kept, participant, message, fragment)
        self._kept.held[full] = new
        self._saver.send(peer, Reply(request=message.request), after=self._saver.save())

    def revoke(self, full: str) -> None:
        """Forget one by our own decision; a repeated word of the node that had us keep it changes nothing."""
        held = self._kept.forget_held(full)
        if held is not None:
            self._late.end(held.node, full)

    def drop(self, peer: str, participant: str, message: DropRemote) -> None:
        """A node has a definition revoked that it had us keep."""
        full = f"{participant}/{message.name}"
        if not self._late.remove(peer, full, message.request):
            held = self._kept.held.get(full)
            if held is not None and held.node == peer and message.since in (0, held.asked):
                self._kept.forget_held(full)
        self._saver.send(peer, Reply(request=message.request), after=self._saver.save())

    def instantiate(
        self, now_us: int, peer: str, participant: str, message: Instantiate, caller: Caller | None
    ) -> None:
        """A node has us run what we keep for it.

        Raises:
            QueryError: refused; nothing changed.
        """
        full = f"{participant}/{message.name}"
        held = self._kept.held.get(full)
        if held is None or held.node != peer or held.fragment.name != message.fragment:
            raise QueryError(
                f"node {self._settings.name!r} keeps no {message.fragment!r} as {full!r} for node {peer!r}",
                hint="it was revoked there, has expired or never was; revoke it where it was defined, too",
                code="E_NO_DEFINITION",
            )
        self._check_time(now_us, full, held.expires_us)
        check_part(self._settings, self._offers(), participant, held.fragment)
        feeds = tuple(
            Feed(source=source, node=node, stream=stream) for source, node, stream in message.inputs
        )
        places = {(feed.node, feed.stream) for feed in feeds}
        readers = dict(message.readers)
        known = [feed.source for feed in held.fragment.feeds]
        if (
            [feed.source for feed in feeds] != known
            or len(places) != len(feeds)
            or any(feed.node == self._settings.name for feed in feeds)
            or list(readers) != list(held.fragment.readers)
            or message.query != held.fragment.query
        ):
            text = f"{full!r} has the inputs {', '.join(known) or '(none)'}, each of another stream elsewhere"
            raise QueryError(text, code="E_SPEC")
        fragment = msgspec.structs.replace(held.fragment, feeds=feeds, readers=readers)
        self._parsing.read(
            now_us,
            peer,
            caller,
            ("instantiate", message.request),
            nbytes=len(held.fragment.packed),
            read=fragment.check,
            then=lambda now_us, fragment: self._run(peer, full, message, fragment),
            refuse=lambda error: self._refuse(peer, message.request, error),
        )

    def _run(self, peer: str, full: str, message: Instantiate, fragment: FragmentSpec) -> None:
        held = self._kept.held.get(full)
        if held is None or held.node != peer or held.fragment.name != message.fragment:
            text = f"{full!r} was revoked meanwhile"
            self._refuse(peer, message.request, QueryError(text, code="E_NO_DEFINITION"))
            return
        reply = self._install(message.request, fragment, peer)
        assert reply is not None, "it reads no other query"
        if reply.code:
            self._outbox.send(peer, reply)
        else:
            self._stopping.begun(message.fragment, full)
            self._saver.send(peer, reply, after=self._saver.save())
