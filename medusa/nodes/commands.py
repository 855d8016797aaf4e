"""Commands to a node: deploy, undeploy, install, remove, status. Each is answered once, or refused whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from medusa.errors import LinkError, QueryError, RemoteProtocolError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import Saver
from medusa.nodes.client_queries import ClientQueries, refusal_of
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.admission import Accepting
from medusa.nodes.deploy.background_parsing import Parsing
from medusa.nodes.deploy.coordinator import Coordinator
from medusa.nodes.deploy.cross_query_reads import Pending, Readings
from medusa.nodes.deploy.install_checks import check_place
from medusa.nodes.deploy.stale_requests import Late
from medusa.nodes.deploy.unfinished_deployments import Unfinished
from medusa.nodes.deploy.wording import CONTENDED, there_already
from medusa.nodes.fragment.host import Hosted
from medusa.nodes.load.load_status import node_load
from medusa.nodes.load.loads import Loads
from medusa.nodes.migration.incoming import Arrivals
from medusa.nodes.migration.outgoing import Moves
from medusa.nodes.migration.rerouting import Diverting
from medusa.nodes.move_orders import Sliding
from medusa.nodes.names.definitions import Definitions
from medusa.nodes.names.names import Naming
from medusa.nodes.remote.definitions import Remotes
from medusa.nodes.repair.resolution import Resolving
from medusa.nodes.repartition.coordinator import Splits
from medusa.nodes.security.registry import Caller, no_deploy, visible
from medusa.nodes.security.sessions import check_memory
from medusa.nodes.spec.fragment_spec import Fragment, fragment_from
from medusa.nodes.status.blocking_reasons import Unmoved, explained
from medusa.nodes.status.status import Rates, encoded, fragment_status, queries_of, sources_of, totals
from medusa.ports import Buffer
from medusa.wire.messages.links_and_commands import (
    Define,
    Deploy,
    Forget,
    Install,
    Load,
    Message,
    Remove,
    Reply,
    StatusRequest,
)
from medusa.wire.messages.rerouting import Expect, Follow, Moved, Placed, Read, Release, Unexpect
from medusa.wire.outbox import CloseFragment, OpenFragment, Outbox
from medusa.wire.status import (
    FragmentStatus,
    NodeStatus,
)

__all__ = ["Commands"]

FRAGMENTS_MAX = 1000
SPECS_BYTES_MAX = 64 << 20
"""Of all fragments together: each takes some 20 times as much memory, and the catalog is written whole."""


class Commands:
    """Answers commands; keeps the fragments of the node.

    Args:
        host: makes the mind of a fragment.
        incarnation: of this node.
        saver: makes the catalog durable.
        refusals: what the node refused so far, by code; the brain counts, told by ``count``.

    Attributes:
        fragments: what runs here, by name.
        engine: what the driver last said of each fragment's boxes.
        loads: how much there is to do, here and at peers.
        peers: node that we know -> ``up`` or ``silent``; the brain keeps it.
        naming: where things are, by name.
        parsing: graphs that were sent and haven't been read.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        *,
        outbox: Outbox,
        host: Callable[..., Any],
        incarnation: int,
        saver: Saver,
        refusals: Mapping[str, int],
        count: Callable[[str], None] = lambda code: None,
        next_token: Callable[[], int],
        owned: Callable[[int, Hosted], None],
    ) -> None:
        self.fragments: dict[str, Hosted] = {}
        self.engine: dict[str, Mapping[str, Any]] = {}
        self.rates = Rates()
        self.loads = Loads(settings, outbox, self.fragments)
        self._unmoved = Unmoved()
        self.peers = dict.fromkeys(settings.peers, "silent")
        self._own = settings.own_peers
        self.door: Mapping[str, int] = {}
        self.accepting = Accepting()
        self.parsing = Parsing(settings.name, outbox)
        self._settings, self._catalog, self._outbox = settings, catalog, outbox
        self._host, self._saver = host, saver
        self._refusals = refusals
        self.coordinator = Coordinator(
            catalog,
            outbox=outbox,
            timeout_us=settings.limits.deploy_timeout_us,
            incarnation=incarnation,
            saver=saver,
            install=self._install,
            way=lambda number, fragment: self.remotes.way(number, fragment),
            remove=lambda message: self._remove(message, settings.name),
        )
        self._late = Late()
        self.diverting = Diverting(
            settings,
            catalog,
            self.fragments,
            incarnation=incarnation,
            outbox=outbox,
            saver=saver,
            is_up=lambda node: node == settings.name or self.peers.get(node) == "up",
            count=count,
        )
        self.reading = Readings(
            settings,
            catalog,
            outbox=outbox,
            saver=saver,
            number=self.diverting.number,
            whose=self.diverting.participant_of,
            install=self._install_read,
        )
        self.naming = Naming(
            settings,
            catalog,
            incarnation=incarnation,
            outbox=outbox,
            fragments=self.fragments,
            saver=saver,
            count=count,
        )
        self._definitions = Definitions(
            settings,
            catalog,
            self.naming.directory,
            self.coordinator,
            self.fragments,
            parsing=self.parsing,
            outbox=outbox,
        )
        self.remotes = Remotes(
            settings,
            catalog,
            outbox=outbox,
            saver=saver,
            number=self.diverting.number,
            parsing=self.parsing,
            install=self._install,
            drop=self._drop,
            count=count,
        )
        self.naming.listing.accepting = self.accepting
        self.accepting.ended = self.remotes.stopping.refuse_ended
        self.sliding = self._slides(outbox, saver, host, next_token, owned)
        self._queries = ClientQueries(
            settings,
            catalog,
            self.coordinator,
            parsing=self.parsing,
            outbox=outbox,
            deployed_at=self.naming.names.deployed_at,
            away=self.sliding.moves.away,
        )
        shared: dict[str, Any] = {"outbox": outbox, "saver": saver, "host": host, "naming": self.naming}
        shared |= {"moves": self.sliding.moves, "coordinator": self.coordinator, "diverting": self.diverting}
        self.resolving = Resolving(settings, catalog, self.fragments, incarnation=incarnation, **shared)
        self.diverting.moving = self.naming.versions.moving = self.sliding.on_its_way
        self.diverting.gives_way = self.sliding.moves.prepares
        self.remotes.stopping.whose = self.diverting.participant_of
        self.diverting.guests.offers = lambda participant: self.remotes.offers.get(participant)
        self.diverting.seeking.ask(self.naming.directory, self.naming.seek)
        self.coordinator.ask(self.naming.names.deployed_at, self.naming.names.outranks)
        self.coordinator.readers = self.naming.names.readers_of
        self.coordinator.unfinished = Unfinished(catalog, self.naming)

    def _slides(
        self,
        outbox: Outbox,
        saver: Saver,
        host: Callable[..., Any],
        next_token: Callable[[], int],
        owned: Callable[[int, Hosted], None],
    ) -> Sliding:
        about = self._settings, self._catalog, self.fragments
        shared: dict[str, Any] = {
            "outbox": outbox,
            "saver": saver,
            "diverting": self.diverting,
            "next_token": next_token,
        }
        moves = Moves(*about, **shared)
        return Sliding(
            self._settings.name,
            self._catalog,
            moves,
            Arrivals(
                *about,
                **shared,
                parsing=self.parsing,
                make=host,
                check=self._room_for,
                owned=owned,
                orphaned=self._drop,
            ),
            Splits(*about, **shared, make=host, room=self._room_for, moving=moves.moving, away=moves.away),
            outbox=outbox,
            number=self.diverting.number,
            names=self.naming.names,
            early=self.naming.early,
            own_peer=lambda node: node == self._settings.name or node in self._own,
        )

    def _room_for(self, *fragments: Fragment, gone: Collection[Fragment] = ()) -> None:
        if len(self.fragments) + len(fragments) - len(gone) > FRAGMENTS_MAX:
            raise LinkError(f"no more than {FRAGMENTS_MAX} fragments run here", code="E_LIMIT")
        self.accepting.check(*fragments)
        self.check_memory(sum(len(each.feeds) for each in fragments) - sum(len(each.feeds) for each in gone))

    def receive(
        self,
        now_us: int,
        peer: str,
        message: Message,
        payload: Buffer | None,
        *,
        client: bool,
        caller: Caller | None = None,
    ) -> None:
        """Take a command.

        Args:
            client: ``peer`` is a client, not a node.
            caller: who has its key, where there are keys.

        Raises:
            RemoteProtocolError: who sent it may not say that.
        """
        waits = self.resolving.absorbs(now_us, peer, message, payload, client)
        if waits or self.naming.receive(now_us, peer, message, payload, client, caller):
            return
        if self.sliding.receive(now_us, peer, message, payload, client, caller):
            return
        if self.remotes.receive(now_us, peer, message, payload, client, caller):
            return
        match message:
            case Reply() if not client:
                mine = self.reading.answered(now_us, peer, message)
                if not (mine or self.diverting.answered(now_us, peer, message)):
                    self.coordinator.reply(now_us, peer, message)
            case Expect() | Unexpect() | Release() | Follow() | Moved() | Placed() | Read() if not client:
                self.diverting.receive(now_us, peer, message)
            case Install() if not client and payload is not None:
                self._install_from(now_us, peer, message, bytes(payload), caller)
            case Remove() if not client:
                self._reply(peer, self._remove(message, peer))
            case Remove():
                self._queries.undeploy(now_us, peer, message)
            case Forget() if client:
                self._forget(now_us, peer, message, caller)
            case Define() if client and payload is not None:
                self._definitions.define(now_us, peer, message, payload, caller)
            case Deploy() if client and payload is not None:
                self._queries.deploy(now_us, peer, message, bytes(payload), caller)
            case Load() if not client:
                self.loads.heard(now_us, peer, message)
            case StatusRequest():
                status = self.status(now_us)
                limited = caller is not None and caller.rules is not None and not caller.rules.status
                shown = visible(status, caller, peer) if caller is not None and limited else status
                self._outbox.send(peer, Reply(request=message.request), encoded(shown))
            case _:
                what = type(message).__name__
                raise RemoteProtocolError(f"{what} is not for it to say", peer=peer, code="E_ROLE")

    def lost(self, peer: str) -> None:
        """A peer went away: nothing that it asked and that hasn't been looked at is done any more."""
        self.naming.early.drop(peer)
        self.parsing.lost(peer)

    def _reply(self, peer: str, reply: Reply) -> None:
        """After the catalog is durable, so that what was promised survives."""
        if reply.code:
            self._outbox.send(peer, reply)
        else:
            self._saver.send(peer, reply, after=self._saver.save())

    # --- queries of clients -------------------------------------------------------------------

    def _forget(self, now_us: int, client: str, message: Forget, caller: Caller | None) -> None:
        found = self._catalog.entry if message.publisher else self._catalog.sink
        try:
            fragment, at = found(message.stream)
        except LinkError as error:
            self._outbox.send(client, refusal_of(message.request, error.code, error.message, error.hint))
            return
        hosted = self.fragments[fragment]
        owner = caller.called if caller is not None else ""
        if message.owner and caller is not None and not caller.may("deploy", hosted.spec.query):
            why = no_deploy(caller, hosted.spec.query)
            self._outbox.send(client, refusal_of(message.request, why.code, why.text, why.hint))
            return
        ending = hosted.publishers if message.publisher else hosted.subscribers
        ending.forget(now_us, at, client, message.owner or owner, message)

    # --- fragments ------------------------------------------------------------------------------

    def _install_from(
        self, now_us: int, owner: str, message: Install, spec: bytes, caller: Caller | None
    ) -> None:
        def refuse(error: QueryError) -> None:
            code = error.code if error.code == "E_BUSY" else "E_SPEC"
            self._reply(owner, refusal_of(message.request, code, error.message, error.hint))

        def take(now_us: int, fragment: Fragment) -> None:
            if (fragment.name, fragment.query) != (message.fragment, message.query) or fragment.guests:
                refuse(QueryError(f"the spec is of {fragment.name!r}", code="query.placement"))
            elif (reply := self._install(message.request, fragment, owner)) is not None:
                self._reply(owner, reply)

        self.parsing.read(
            now_us,
            owner,
            caller,
            ("install", message.request),
            nbytes=len(spec),
            read=partial(fragment_from, spec),
            then=take,
            refuse=refuse,
        )

    def _install_read(self, now_us: int, pending: Pending, reply: Reply | None) -> None:
        """What a fragment reads of other queries is there for it, or was refused."""
        if reply is None:
            reply = self._install(pending.request, pending.fragment, pending.owner)
        if reply is not None and pending.owner == self._settings.name:
            self.coordinator.reply(now_us, pending.owner, reply)
        elif reply is not None:
            self._reply(pending.owner, reply)

    def _install(self, request: int, fragment: Fragment, owner: str) -> Reply | None:
        """Install a checked fragment; the same one twice is no error. Refused, nothing changed.

        Returns:
            None: what it reads of other queries is asked for first.
        """
        known = self._catalog.fragments.get(fragment.name)
        if self._late.install(owner, fragment.query, request):
            text = f"query {fragment.query!r} was removed after node {owner!r} asked for it"
            return refusal_of(request, "E_STALE", text, "")
        if known and known.as_deployed == fragment and self._catalog.owners[fragment.query] == owner:
            return Reply(request=request)
        if known is not None or self._catalog.owners.get(fragment.query, owner) != owner:
            where = self._catalog.owners[fragment.query]
            code = CONTENDED if owner < where else "E_DEPLOYED"
            return there_already(request, fragment.query, where, self.naming.abroad(where), code)
        try:
            check_place(fragment, self._settings, self._catalog)
        except LinkError as error:
            return refusal_of(request, error.code, error.message, error.hint)
        if len(self.fragments) >= FRAGMENTS_MAX:
            return refusal_of(request, "E_LIMIT", f"{FRAGMENTS_MAX} fragments run here already", "")
        if (
            sum(len(each.spec.packed) for each in self.fragments.values()) + len(fragment.packed)
            > SPECS_BYTES_MAX
        ):
            text = f"the specs of all fragments here would have more than {SPECS_BYTES_MAX:,} bytes"
            return refusal_of(
                request, "E_LIMIT", text, "undeploy a query first, or deploy this one elsewhere"
            )
        try:
            self.accepting.check(fragment)
            self.check_memory(len(fragment.feeds))
            if not self.reading.ready(request, fragment, owner):
                return None
        except LinkError as error:
            return refusal_of(request, error.code, error.message, error.hint)
        self._catalog.add(fragment, owner, request)
        self.fragments[fragment.name] = self._host(fragment)
        self._outbox.append(OpenFragment(fragment=fragment.name, graph=fragment.graph))
        self._saver.save()
        return Reply(request=request)

    def check_memory(self, streams: int, caller: Caller | None = None) -> None:
        """Whether so many more incoming streams may be given credit; see ``admission.check_memory``."""
        check_memory(self._settings, self.fragments.values(), streams, caller)

    def _remove(self, message: Remove, owner: str) -> Reply:
        """Forget a query's fragments here, if there are any that this node asked for."""
        query, request = message.query, message.request
        done = Reply(request=request)
        if self._late.remove(owner, query, request) or self._catalog.owners.get(query, owner) != owner:
            return done
        self.remotes.stopping.undeployed(query)
        came = self._catalog.came_by(query, range(message.since, request)) if message.since else None
        self._drop(query, came, undoes=bool(message.since))
        return done

    def _drop(
        self,
        query: str,
        only: Collection[str] | None = None,
        why: str = "",
        code: str = "",
        *,
        undoes: bool = False,
    ) -> None:
        """Nothing of a query is here any more, or not these of its fragments."""
        known = query in self._catalog.owners
        if only is None or undoes:  # What others have kept here reads no other query.
            specs = (s for s in self._catalog.fragments.values() if s.query == query)
            self.reading.removed(query, [s for s in specs if only is None or s.name in only])
        gone = self._catalog.remove(query, only, undoes=undoes)
        for name in gone:
            hosted = self.fragments.pop(name)
            self.engine.pop(name, None)
            hosted.close(why or f"query {query!r} was removed", code or "E_REMOVED")
            self._outbox.append(CloseFragment(fragment=name))
        self.sliding.removed(query, gone, whole=only is None and not undoes)
        if known:
            self._saver.save()

    # --- status ---------------------------------------------------------------------------------

    def start(self, now_us: int) -> None:
        """Go on with what was begun in an earlier life."""
        self.coordinator.resume(now_us)
        self.diverting.start(now_us)
        self.sliding.start(now_us)
        self.resolving.start(now_us)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work that can't wait; None: not before something else happens."""
        times = [self.coordinator.wake_at_us(), self._definitions.wake_at_us(), self.reading.wake_at_us()]
        times += [self.diverting.wake_at_us(), self.remotes.wake_at_us(), self.resolving.wake_at_us()]
        times += [self.naming.wake_at_us(), self.sliding.wake_at_us(now_us)]
        return min((time_us for time_us in times if time_us is not None), default=None)

    def told(self, now_us: int, fragment: str, stats: Mapping[str, Any]) -> None:
        """What the boxes of a fragment count now."""
        self.engine[fragment] = stats
        self.loads.told(now_us, fragment, stats["boxes"])

    def tick(self, now_us: int) -> None:
        """Do what is due, take note of how it goes."""
        self.coordinator.tick(now_us)
        self._definitions.tick(now_us)
        self.diverting.tick(now_us)
        self.reading.tick(now_us)
        self.remotes.tick(now_us)
        self.sliding.tick(now_us)
        self.resolving.tick(now_us)
        self.naming.tick(now_us)
        self.rates.tick(now_us, self.fragments.values(), self.engine)
        self.loads.tick(now_us, (peer for peer in self._own if self.peers[peer] == "up"))
        self._unmoved.tick(now_us, self.engine)

    def _fragment(self, now_us: int, name: str, hosted: Hosted) -> FragmentStatus:
        known = self.engine.get(name, {})
        why = explained(hosted, known.get("boxes", {}), self._unmoved, now_us, self.sliding.moves.away)
        return fragment_status(hosted, self.rates, now_us, known, self.loads, why)

    def status(self, now_us: int) -> NodeStatus:
        """What this node runs and how it goes: docs/nodes.md describes each field."""
        fragments = tuple(self._fragment(now_us, name, hosted) for name, hosted in self.fragments.items())
        disk = (self._saver.disk_error, *(each.disk_error for each in fragments))
        return NodeStatus(
            node=self._settings.name,
            **self.naming.owners(),
            **totals(fragments),
            load=node_load(self.loads, now_us),
            peers=dict(self.peers),
            parsing=self.parsing.status(),
            away=self.sliding.moves.away.status(now_us),
            refused=dict(self._refusals),
            door=dict(self.door),
            disk_error=next(filter(None, disk), ""),
            fragments=fragments,
            sources=sources_of(self._catalog.fragments.values()),
            streams=tuple(self._catalog.stream_names()),
            moves=self.sliding.status(),
            splits=self.sliding.splits.status(),
            remote=self.remotes.status(),
            dht=self.naming.between.status() if self.naming.between else None,
            elsewhere=self._catalog.elsewhere(),
            queries=queries_of(self._catalog.deployments.values()),
            in_doubt=self.resolving.status(),
            runs_on=self.accepting.status(),
        )
