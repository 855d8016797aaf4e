"""Remote definitions: a part of our query that another node keeps ready, authorised in advance.

``KeepRemote`` brings the spec, once. It is checked as an ``Install`` is, and against what that node offers
to the participant of who brings it: ``[offers]`` in its configuration, nothing by default; nodes of one
participant take anything of each other. From then on a deployment sends the name and the inputs
(``Instantiate``) where it would send the spec. That is the only way to run anything at a node of another
participant. The offer is looked at again each time; who revoked a definition, or it never was one, nothing
runs. What runs goes on: it ends when its query is undeployed, or stopped here (``nodes.remote.stopping``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import msgspec

from medusa.errors import QueryError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.kept_definitions import (
    EXPIRES_MAX_US,
    MappedDefinition,
    said_of,
    template_of,
)
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.config.settings import Settings
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.deploy.admission import OWN_MAX
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.deploy.query_plan import DeployRequest, check_name, plan_of
from medusa.nodes.message_table import Heard
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.remote.keeper import RemoteKeeper
from medusa.nodes.remote.revocation import RemoteRevocations
from medusa.nodes.remote.stopping import StoppedParts
from medusa.nodes.requests import Requests
from medusa.nodes.security.registry import Caller, no_deploy
from medusa.nodes.security.sessions import refusal_of
from medusa.nodes.spec.fragment_spec import FragmentSpec, fragment_to
from medusa.ports import SKEW_US, Buffer
from medusa.query.suggest import did_you_mean
from medusa.wire.messages.commands import Install, Reply
from medusa.wire.messages.remote import (
    DefineRemote,
    DropRemote,
    Instantiate,
    KeepRemote,
    RemoteMessage,
    RevokeRemote,
    StoppedRemote,
)
from medusa.wire.outbox import Outbox

__all__ = ["RemoteDefinitions"]

LOOK_EVERY_US = 1_000_000
"""Whether a definition has expired is looked at so often."""

ASKED_MAX = 64
"""Questions under way at once: each definition holds its spec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What a node is asked for a client.

    Attributes:
        after: the write that must be durable before it is asked.
    """

    name: str
    message: KeepRemote | DropRemote
    payload: bytes | None
    mapped: MappedDefinition
    after: int


class RemoteDefinitions:
    """Remote definitions of a node: those it keeps, and those that it has elsewhere.

    Args:
        number: gives numbers for questions to nodes; they grow over all lives.
        parsing: reads graphs that others send.
        install: runs a checked fragment here, for a node.
        drop: forgets fragments of a query here: see ``StoppedParts``.
        count: told the code of what a node may not do here.
        wall: the time of the node, for definitions that expire.
        peers: what the links are, ``up`` or not.
        whose: the participant of a node; None: unknown.

    Attributes:
        offers: what other participants may have us keep and run, by participant.
        revoking: what other nodes have still to forget.
        stopping: parts that were ended by who runs their node.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        number: Callable[[], int],
        parsing: BackgroundParsing,
        install: Callable[[int, FragmentSpec, str], Reply | None],
        drop: Callable[[str, list[str], str, str], None],
        count: Callable[[str], None],
        wall: WallClock,
        peers: Mapping[str, str],
        whose: Callable[[str], str | None],
    ) -> None:
        self._settings = settings
        self.offers: Mapping[str, OfferRules] = settings.offers
        self._wall = wall
        self._look_at_us = 0
        self._catalog = catalog
        self._kept = catalog.remote
        self._outbox = outbox
        self._saver = saver
        self._number = number
        self._parsing = parsing
        self._count = count
        self._asked: Requests[_Asked] = Requests()
        self.revoking = RemoteRevocations(self._kept, outbox=outbox, number=number, peers=peers)
        self.stopping = StoppedParts(
            catalog,
            outbox=outbox,
            saver=saver,
            number=number,
            drop=drop,
            count=count,
            peers=peers,
            whose=whose,
        )
        self._keeper = RemoteKeeper(
            settings,
            catalog,
            self.stopping,
            parsing,
            outbox=outbox,
            saver=saver,
            offers=lambda: self.offers,
            time=self._time,
            install=install,
            refuse=self._refuse_node,
        )

    def receive(self, heard: Heard) -> None:
        """Take a message about these; a refusal is answered."""
        now_us, peer, message, caller = heard.now_us, heard.peer, heard.message, heard.caller
        participant = caller.participant if caller is not None else self._settings.participant
        assert isinstance(message, RemoteMessage)
        try:
            match message:
                case DefineRemote():
                    self._define(now_us, peer, message, heard.payload or b"", caller)
                case RevokeRemote():
                    self._revoke(now_us, peer, message, caller)
                case KeepRemote():
                    self._keeper.keep(now_us, peer, participant, message, heard.payload or b"", caller)
                case DropRemote():
                    self._keeper.drop(peer, participant, message)
                case Instantiate():
                    self._keeper.instantiate(now_us, peer, participant, message, caller)
                case StoppedRemote():
                    self.stopping.heard(peer, message)
        except QueryError as error:
            (self._refuse if heard.client else self._refuse_node)(peer, message.request, error)

    def change_offers(self, offers: Mapping[str, OfferRules]) -> None:
        """Other participants may have us keep and run this from now on; what runs goes on."""
        self.offers = offers

    def _refuse_node(self, node: str, request: int, error: QueryError) -> None:
        self._count(error.code)
        self._refuse(node, request, error)

    def _refuse(self, peer: str, request: int, error: QueryError) -> None:
        self._outbox.send(peer, refusal_of(request, error.code, error.message, error.hint))

    # --- what clients ask -------------------------------------------------------------------------

    def _define(
        self, now_us: int, client: str, message: DefineRemote, payload: Buffer, caller: Caller | None
    ) -> None:
        graph = bytes(payload)
        check_name(graph, caller)
        if not self._asked.waits((client, message.request)):
            self._check_room()
        asked = DeployRequest(graph=graph, at=message.at, caller=caller)

        def take(now_us: int, plan: PlacementPlan) -> None:
            try:
                self._take(now_us, client, message, plan)
            except QueryError as error:
                self._refuse(client, message.request, error)

        self._parsing.read(
            now_us,
            client,
            caller,
            ("define-remote", message.request),
            nbytes=len(graph),
            read=partial(plan_of, asked, self._settings),
            then=take,
            refuse=partial(self._refuse, client, message.request),
        )

    def _take(self, now_us: int, client: str, message: DefineRemote, plan: PlacementPlan) -> None:
        found = plan.at(message.node)
        if len(found) != 1 or message.node == self._settings.name:
            others = [node for node, _ in message.at if node != self._settings.name]
            near = "" if found else did_you_mean(message.node, others)
            raise QueryError(
                f"{len(found)} fragments of the query would stand at {message.node!r}",
                hint=near or "a definition is one connected part of a query, at another node",
                code="query.placement",
            )
        fragment = found[0]
        template = template_of(fragment)
        if self._is_asked(client, message, KeepRemote, template):
            return
        known = self._kept.mapped.get(message.name)
        if known is not None and (known.node, known.template) != (message.node, template):
            raise QueryError(
                f"{message.name!r} is defined already, at node {known.node!r}",
                hint="revoke it first, or give this another name",
                code="E_DEFINED",
            )
        self._check_free(message.name)
        if known is None and len(self._kept.mapped) + len(self._kept.revoking) >= OWN_MAX:
            raise QueryError(f"{OWN_MAX:,} definitions were made here already", code="E_LIMIT")
        terms = message.terms(lambda: self._time(now_us))
        if terms.expires_us > EXPIRES_MAX_US:
            raise QueryError("it would expire in too many years", code="E_LIMIT")
        number = self._number()
        mapped = MappedDefinition(
            node=message.node,
            query=fragment.query,
            fragment=fragment.name,
            template=template,
            asked=number,
            **msgspec.structs.asdict(terms),
        )
        keep = KeepRemote(request=number, name=message.name, **msgspec.structs.asdict(terms))
        if known is None:
            self._kept.revoking[message.name] = mapped  # If we die before it has answered.
        self._ask(now_us, client, message.request, keep, fragment_to(fragment), mapped)

    def _is_asked(
        self,
        client: str,
        message: DefineRemote | RevokeRemote,
        kind: type[KeepRemote | DropRemote],
        template: bytes,
    ) -> bool:
        """Whether a client repeats what we are asking for it."""
        cause, about = (client, message.request), (message.name, template)
        return any(
            each.cause == cause
            and (each.order.name, each.order.mapped.template) == about
            and isinstance(each.order.message, kind)
            for each in self._asked
        )

    def _check_settled(self, name: str) -> None:
        """One name leads to one keeper, so what is asked of that is settled before more is begun."""
        self._check_room()
        asked = next((each for each in self._asked if each.order.name == name), None)
        if asked is not None:
            what = "defined" if isinstance(asked.order.message, KeepRemote) else "revoked"
            text = f"{name!r} is being {what} at node {asked.to!r}"
            raise QueryError(text, hint="try again in a moment", code="E_BUSY")

    def _check_room(self) -> None:
        if len(self._asked) >= ASKED_MAX:
            text, hint = f"{ASKED_MAX} definitions are being made or revoked already", "try again in a moment"
            raise QueryError(text, hint=hint, code="E_LIMIT")

    def _check_free(self, name: str) -> None:
        self._check_settled(name)
        gone = self._kept.revoking.get(name)
        if gone is not None:
            text = f"{name!r} was revoked, but node {gone.node!r} keeps it until it hears so"
            hint = "give this another name, or wait until that node is there"
            raise QueryError(text, hint=hint, code="E_BUSY")

    def _revoke(self, now_us: int, client: str, message: RevokeRemote, caller: Caller | None) -> None:
        held, mapped = self._kept.held.get(message.name), self._kept.mapped.get(message.name)
        mapped = mapped or self._kept.revoking.get(message.name)
        query = held.fragment.query if held is not None else mapped.query if mapped is not None else ""
        running = self.stopping.running(message.name) if message.stop else []
        for each in self.stopping.queries(running) or [query]:
            if caller is not None and not caller.may("deploy", each):
                why = no_deploy(caller, each)
                raise QueryError(why.text, hint=why.hint, code=why.code)
        if message.stop and held is None and mapped is not None and not running:
            text = f"{message.name!r} runs at node {mapped.node!r}, for a query of this node"
            raise QueryError(
                text, hint=f"undeploy {query}; stop=True is for who keeps a part", code="E_QUERY"
            )
        if held is not None or running:
            self._keeper.revoke(message.name)
            self.stopping.stop(running)
            self._saver.send(client, Reply(request=message.request), after=self._saver.save())
            return
        if mapped is None:
            raise QueryError(
                f"no remote definition {message.name[:100]!r} at node {self._settings.name!r}",
                hint=did_you_mean(message.name, [*self._kept.mapped, *self._kept.held]),
                code="E_NO_DEFINITION",
            )
        if self._is_asked(client, message, DropRemote, mapped.template):
            return
        self._check_settled(message.name)
        mapped = self._kept.begin_revoking(message.name)
        self._ask(now_us, client, message.request, self.revoking.word(message.name), None, mapped)

    def _ask(
        self,
        now_us: int,
        client: str,
        request: int,
        message: KeepRemote | DropRemote,
        payload: bytes | None,
        mapped: MappedDefinition,
    ) -> None:
        after = self._saver.save()
        self._asked.open(
            now_us,
            message.request,
            mapped.node,
            _Asked(name=message.name, message=message, payload=payload, mapped=mapped, after=after),
            cause=(client, request),
            deadline_us=now_us + self._settings.limits.deploy_timeout_us,
        )
        self._saver.send(mapped.node, message, payload, after=after)

    def answered(self, node: str, reply: Reply) -> bool:
        """Take an answer; whether it was to a question of ours."""
        found = self._asked.get(reply.request, node)
        if found is None:
            if self.stopping.answered(node, reply):
                return True
            if not self.revoking.answered(node, reply):
                return False
            self._saver.save()
            return True
        self._asked.close(found)
        asked, (client, request) = found.order, found.cause
        told = Reply(request=request, code=reply.code, text=reply.text, hint=reply.hint)
        if isinstance(asked.message, KeepRemote):
            self.revoking.end(asked.name)
            if not reply.code:
                self._kept.mapped[asked.name] = msgspec.structs.replace(asked.mapped, asked=0)
        elif not reply.code:
            self.revoking.end(asked.name)
        self._saver.send(client, told, after=self._saver.save())
        return True

    # --- what deployments ask ---------------------------------------------------------------------

    def way(self, number: int, fragment: FragmentSpec) -> tuple[Install | Instantiate, bytes | None]:
        """How a node is told to run a fragment: by a name where it keeps the spec, else by the spec."""
        if fragment.node != self._settings.name and self._kept.mapped:
            template = template_of(fragment)
            for name, each in self._kept.mapped.items():
                if (each.node, each.fragment, each.template) == (fragment.node, fragment.name, template):
                    inputs = tuple((feed.source, feed.node, feed.stream) for feed in fragment.feeds)
                    readers = tuple(fragment.readers.items())
                    return Instantiate(
                        request=number,
                        query=fragment.query,
                        fragment=fragment.name,
                        name=name,
                        inputs=inputs,
                        readers=readers,
                    ), None
        return Install(request=number, query=fragment.query, fragment=fragment.name), fragment_to(fragment)

    def status(self) -> dict[str, Any]:
        """``status()["remote"]``."""
        return {
            **said_of(self._kept),
            "revoking": {name: each.node for name, each in self._kept.revoking.items()},
            "offers": {name: asdict(each) for name, each in self.offers.items()},
        }

    # --- time -------------------------------------------------------------------------------------

    def _time(self, now_us: int) -> int:
        wall_us = self._wall.at(now_us)
        if wall_us is None:
            raise QueryError("nobody has told this node the time yet", code="E_EXPIRED")
        return wall_us

    def tick(self, now_us: int) -> None:
        """Ask again; give up what took too long. A definition that nobody confirmed is taken back."""
        for each in self._asked.due(now_us):
            if each.expired(now_us):
                self._asked.close(each)
                seconds = self._settings.limits.deploy_timeout_us / 1e6
                text = f"no answer from {each.to!r} in {seconds:g} s"
                client, request = each.cause
                self._outbox.send(client, Reply(request=request, code="E_TIMEOUT", text=text))
            else:
                each.said(now_us)
                asked = each.order
                self._saver.send(each.to, asked.message, asked.payload, after=asked.after)
        self.revoking.tick(now_us, {each.order.name for each in self._asked})
        self.stopping.tick(now_us)
        if now_us >= self._look_at_us:
            self._look_at_us = now_us + LOOK_EVERY_US
            self._forget_expired(self._wall.at(now_us))

    def _forget_expired(self, wall_us: int | None) -> None:
        """What has expired is as if it had been revoked, here and at the node that keeps it."""
        held, mapped = self._kept.held, self._kept.mapped
        if wall_us is None:
            return
        old = [name for name, each in held.items() if 0 < each.expires_us < wall_us - SKEW_US]
        gone = [name for name, each in mapped.items() if 0 < each.expires_us < wall_us]
        for name in old:
            del held[name]
        for name in gone:
            del mapped[name]
        if self.revoking.forget_expired(wall_us) or old or gone:
            self._saver.save()

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        kept = self._kept
        if not (self._asked or kept.held or kept.mapped or kept.revoking or kept.stopped):
            return None
        times = []
        if any(each.expires_us for some in (kept.held, kept.mapped, kept.revoking) for each in some.values()):
            times.append(self._look_at_us)
        again_us = self.revoking.wake_at_us({each.order.name for each in self._asked})
        others = self._asked.wake_at_us(), again_us, self.stopping.wake_at_us()
        times += [each for each in others if each is not None]
        return min(times, default=None)
