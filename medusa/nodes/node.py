"""One node: messages, time and reports come in; what is to be done goes out. No IO.

A driver has this face of it: ``receive`` a message, ``tick``, ``report`` what became of effects and what only
a driver sees, and perform the ``outbox`` in order. It asks four things: whether a caller may come in
(``admit``, ``earlier``), when to come again (``wake_at_us``), and for the ``status``.

The node decides nothing about a protocol. It makes its parts in the order in which they need each other, asks
the table of messages (``nodes.message_table``) whether a sender may say what it says, and brings that to its
owner.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from msgspec import UNSET

from medusa.errors import LocalProtocolError, RemoteProtocolError
from medusa.nodes.abroad.abroad_moves import AbroadMoves
from medusa.nodes.abroad.permits import Permits
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.directory import Directory
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.client_queries import ClientQueries
from medusa.nodes.clock.wall_clock import WallClock
from medusa.nodes.completions import Completions
from medusa.nodes.config.settings import Settings, link_settings, stream_link
from medusa.nodes.config.settings_offers import OfferRules
from medusa.nodes.deploy.admission import Admission
from medusa.nodes.deploy.background_parsing import LOOP_BYTES_MAX, BackgroundParsing
from medusa.nodes.deploy.coordinator import DeploymentCoordinator
from medusa.nodes.deploy.cross_query_reads import CrossQueryReads
from medusa.nodes.deploy.standby_nodes import standby_nodes
from medusa.nodes.deploy.taken_over import TakenOverDeployments
from medusa.nodes.deploy.unfinished_deployments import UnfinishedDeployments
from medusa.nodes.diskless.host import MemoryOnlyFragmentHost
from medusa.nodes.diskless.sealed_cuts import CutSealer
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.durability import policy_of
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.fragments import Fragments, opening
from medusa.nodes.lanes import Lanes
from medusa.nodes.load.load_status import node_load
from medusa.nodes.load.loads import NodeLoads
from medusa.nodes.market.lent_fragments import LentFragments
from medusa.nodes.market.node_market import ContentReader, NodeMarket
from medusa.nodes.message_table import MESSAGES, Heard, MessageOwner, check_payload
from medusa.nodes.migration.incoming import IncomingMoves
from medusa.nodes.migration.outgoing import OutgoingMoves
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.migration.standby import StandbyFragment
from medusa.nodes.move_orders import MoveOrders
from medusa.nodes.names.definitions import Definitions
from medusa.nodes.names.lookup import NameLookup
from medusa.nodes.names.names import NodeNames
from medusa.nodes.names.participant_catalog import ParticipantCatalog
from medusa.nodes.placement.standby_plan import StandbyNode
from medusa.nodes.recovery.coordination import CoordinatorRole
from medusa.nodes.recovery.query_fence import QueryFence
from medusa.nodes.recovery.recovery import Hosting, Recovery
from medusa.nodes.remote.definitions import RemoteDefinitions
from medusa.nodes.repair.resolution import DoubtResolution
from medusa.nodes.repartition.coordinator import RepartitionCoordinator
from medusa.nodes.repartition.parallel_restore import ParallelRestore
from medusa.nodes.reports import (
    LaneChanged,
    Listening,
    Logged,
    NodeReport,
    NotLetIn,
    PeerLost,
    Persisted,
    Ran,
    RulesRead,
    SentToItself,
    Started,
    Stats,
    StopRequested,
    Surroundings,
)
from medusa.nodes.scaling.node_scaler import NodeScaler
from medusa.nodes.scaling.policy import ScalePolicy, ScaleRules, WorkPolicy
from medusa.nodes.security.guard import Guard, may_say
from medusa.nodes.security.registry import Caller, Refusal, visible
from medusa.nodes.security.sessions import check_caller, makes_room, say_no
from medusa.nodes.shedding.node_shedder import NodeShedder
from medusa.nodes.spec.fragment_spec import FragmentSpec, SoldStream
from medusa.nodes.status.blocking_reasons import UnmovedBoundaries, explained
from medusa.nodes.status.fragment_status import (
    FragmentRates,
    encoded,
    fragment_status,
    queries_of,
    sources_of,
    totals,
)
from medusa.nodes.status.held_backups import backups_status
from medusa.nodes.streams import StreamRouter
from medusa.ports import Buffer, Signer, Verify
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.link.session import SESSION, PeerSession, PeerState, SessionSettings
from medusa.wire.messages import Message
from medusa.wire.messages.commands import Declare, Reply, StatusRequest
from medusa.wire.messages.links import Ack, Boundary, Data, Heartbeat, Hello, Progress, Refuse
from medusa.wire.messages.load import Load
from medusa.wire.messages.move import Got
from medusa.wire.messages.rerouting import DivertMessage
from medusa.wire.messages.tentative import TentativeBoundary, TentativeRows, TentativeTaken
from medusa.wire.outbox import CutPeer, Introduce, Outbox, Owned, Stopped
from medusa.wire.status_and_metrics import FragmentStatus, NodeStatus, plain

__all__ = ["NodeMind"]

ROWS = (Data, Boundary, Progress, Ack, TentativeRows, TentativeBoundary, TentativeTaken, Heartbeat)
"""What is about rows alone, or about nothing; unless it tells that a peer is back."""

ROWS_DONE = Ran | Logged
"""What becomes of rows alone."""

NO_MARKET = Refusal(
    code="E_NO_CONTRACT", text="this node doesn't trade", hint="its configuration would have to have [market]"
)

MARKET_FIRST_US = 10_000_000
"""So long after there is too much, partners have to take some before rows are left out. Too small: rows are
lost that somebody would have taken; too large: rows wait that long."""

LOOK_US = 100_000
"""While only rows come all parts are looked at in the first turn after so long. Each says when it has work.
Too small: CPU of a node with few rows; too large: so late is done what a part hasn't said."""


class NodeMind:
    """One node.

    Args:
        settings: its configuration.
        incarnation: larger than in any earlier life of this node.
        catalog: what was found on disk; None: nothing.
        saved: the newest checkpoint of each fragment that has one.
        first_token: larger than any token of an earlier life.
        verify: checks signatures; needed where the settings have keys.
        signer: of the own participant; None: nothing is published between participants.
        certificate: a signed statement about our own key, said to peers; empty: none.
        note_key: secret; seals what a node without a disk leaves with its neighbours.
        session: when a peer counts as silent.
        papers: file -> its text: contracts by which it trades, and their ends.
        content: reads those about rows of streams; None: they don't count.
        accepting: whether fragments are taken here; None: all for which there is room.
        loop_bytes_max: a larger graph is read beside the loop.
        scale_policy: makes what decides in how many parts boxes of a query run; asked only with [scale].

    Attributes:
        peers: node that we know -> ``up`` or ``silent``.
        clients: clients we know -> since when they are silent (0: they are there).
        abroad: fragments at other participants' nodes, and guests of theirs here; ``permits`` says which may
            be.
        refusals: messages that broke a rule, or that their sender may not say, by code.
        guard: keys and rules; None: who reaches us, on this machine alone, may do everything.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        incarnation: int,
        catalog: Catalog | None = None,
        saved: Mapping[str, SavedCheckpoint] | None = None,
        first_token: int = 1,
        verify: Verify | None = None,
        signer: Signer | None = None,
        certificate: bytes = b"",
        note_key: bytes = b"",
        papers: Mapping[str, str] | None = None,
        content: ContentReader | None = None,
        session: SessionSettings = SESSION,
        accepting: Admission | None = None,
        loop_bytes_max: int = LOOP_BYTES_MAX,
        scale_policy: Callable[[ScaleRules], ScalePolicy] = WorkPolicy,
    ) -> None:
        self.outbox = outbox = Outbox()
        self.settings = settings
        self.catalog = catalog = catalog or Catalog(settings.name)
        self.incarnation = incarnation
        self.refusals: dict[str, int] = {}
        self._link = link_settings(settings)
        self._token = first_token - 1
        self._patience = session
        self._me = Hello.ours(settings.name, incarnation, memory=settings.forgets)
        self.sessions = {peer: self._session(peer, calls=True) for peer in settings.peers}
        self.peers = dict.fromkeys(settings.peers, "silent")
        self.clients: dict[str, int] = {}
        self._stopping = self._said_stopped = False
        self._forgets = settings.forgets
        self._seal = CutSealer(note_key)
        self.wall = WallClock()
        self._now_us = self._started_us = 0
        self._wake_at_us: int | None = 0
        """When there is something to do; None: it hasn't been looked since something happened."""
        self._others_at_us: int | None = None
        """When there is something to do that isn't about rows, as far as was looked."""
        self._only_rows_flow = False
        """Nothing was moving then that rows may get on."""
        self._others_may_act = True
        """Something came since the last look at all parts that isn't about rows."""
        self._look_at_us = 0
        """By then all parts are looked at again, whatever came."""
        self._door: Mapping[str, int] = {}
        self._saver = saver = CatalogWriter(catalog, outbox=outbox, next_token=self._next_token)
        self.guard: Guard | None = None
        if settings.security is not None:
            self.guard = Guard(
                settings,
                catalog,
                outbox=outbox,
                saver=saver,
                verify=verify,
                certificate=certificate,
                wall=self.wall,
                count=self._count,
                permits=lambda caller, message: self.abroad.against(caller, message),
            )
        self.fragments: dict[str, FragmentHost] = {}
        self.rates, self._unmoved = FragmentRates(), UnmovedBoundaries()
        self.loads = NodeLoads(settings, outbox, self.fragments)
        self.accepting = accepting or Admission()
        self.parsing = BackgroundParsing(settings.name, outbox, loop_bytes_max)
        self._make_parts(verify, signer)
        self._content = content
        self.market = self._market(verify, signer, papers or {})
        self.shedding = NodeShedder(
            settings.name,
            settings.load,
            self.fragments,
            self.loads,
            is_elsewhere=settings.spark is not None,
            own=self._own_fragments,
            others_may_take=self.market_may_take,
            outbox=outbox,
        )
        self.scaling = NodeScaler(
            settings,
            catalog,
            self.naming.names,
            self.loads,
            outbox=outbox,
            number=self.diverting.number,
            is_up=self._is_linked,
            nodes=self._known_nodes,
            own_status=self._status,
            policy=scale_policy,
        )
        self._owners: dict[MessageOwner, Callable[[Heard], None]] = {
            MessageOwner.SESSION: lambda heard: None,  # It has heard it before all others.
            MessageOwner.KEYS: self._declared,
            MessageOwner.STREAMS: self._streams.receive,
            MessageOwner.PEERS: self.naming.greeted,
            MessageOwner.NAMES: self.naming.asked,
            MessageOwner.CATALOG: self.naming.told,
            MessageOwner.DHT: self.naming.told_between,
            MessageOwner.QUERIES: self._queries.receive,
            MessageOwner.FRAGMENTS: self.installed.receive,
            MessageOwner.ORDERS: self.orders.receive,
            MessageOwner.COMING: self.orders.from_owner,
            MessageOwner.GOING: self.orders.from_target,
            MessageOwner.REROUTING: self._rerouted,
            MessageOwner.AGREEMENT: self.recovery.agreement.receive,
            MessageOwner.FOLLOWING: self.recovery.followings.receive,
            MessageOwner.REMOTE: self.remotes.receive,
            MessageOwner.LOADS: self._load_said,
            MessageOwner.MARKET: self._traded,
            MessageOwner.STATUS: self._status_asked,
            MessageOwner.ANSWERS: self._answered,
        }
        self._resolving.begin(saved or {}, self.guard)

    def _make_parts(self, verify: Verify | None, signer: Signer | None) -> None:
        """Each part is given those that it needs. Where two need each other the first is given a question
        that the second answers, below: is a fragment on its way, install this one."""
        settings, catalog, fragments = self.settings, self.catalog, self.fragments
        outbox, saver, parsing = self.outbox, self._saver, self.parsing
        incarnation, count = self.incarnation, self._count
        shared: dict[str, Any] = {"outbox": outbox, "saver": saver}
        self.naming = naming = NodeNames(
            settings,
            catalog,
            incarnation=incarnation,
            fragments=fragments,
            count=count,
            wall=self.wall,
            moving=self._on_its_way,
            accepting=self.accepting,
            known_before=self._known_before,
            successors=lambda fragment: self.recovery.successors(fragment),
            between=self._between(verify, signer),
            **shared,
        )
        names = naming.names
        self.diverting = diverting = Rerouting(
            settings,
            catalog,
            fragments,
            incarnation=incarnation,
            is_up=self._is_linked,
            count=count,
            moving=self._on_its_way,
            gives_way=self._gives_way,
            whose=self._participant_of if self.guard is None else self.guard.registry.owner,
            offers=self._offers_to,
            sold=self._sells_to,
            naming=naming,
            **shared,
        )
        number = diverting.number
        self._reading = CrossQueryReads(
            settings,
            catalog,
            number=number,
            whose=diverting.participant_of,
            install=lambda *pending: self.installed.install_read(*pending),
            **shared,
        )
        self.remotes = RemoteDefinitions(
            settings,
            catalog,
            number=number,
            parsing=parsing,
            install=lambda *asked: self.installed.install(*asked),
            drop=lambda *dropped: self.installed.drop(*dropped),
            count=count,
            wall=self.wall,
            peers=self.peers,
            whose=diverting.participant_of,
            **shared,
        )
        self.installed = Fragments(
            settings,
            catalog,
            fragments,
            host=self._host,
            seal=self._seal,
            accepting=self.accepting,
            parsing=parsing,
            reading=self._reading,
            stopping=self.remotes.stopping,
            loads=self.loads,
            abroad=naming.abroad,
            removes=self._removes,
            removed=self._removed,
            undone=lambda query, life: self.recovery.undone(query, life),
            answered=lambda now_us, node, reply: self.coordinator.reply(now_us, node, reply),
            **shared,
        )
        self.coordinator = DeploymentCoordinator(
            catalog,
            timeout_us=settings.limits.deploy_timeout_us,
            incarnation=incarnation,
            install=self.installed.install,
            way=self.remotes.way,
            remove=lambda message, over: self.installed.remove(message, settings.name, over),
            elsewhere=names.deployed_at,
            outranks=names.outranks,
            readers=names.readers_of,
            abroad=naming.abroad,
            unfinished=UnfinishedDeployments(catalog, naming),
            succeeded=TakenOverDeployments(catalog, outbox=self.outbox, number=number, is_up=self._is_linked),
            guarded=lambda now_us, plan, request: self.recovery.deployed(now_us, plan, request),
            unguarded=lambda query: self.recovery.undeploys(query),
            is_up=self._is_linked,
            **shared,
        )
        self.permits = Permits(
            catalog.permits,
            me=settings.name,
            participant=settings.participant,
            wall=self.wall,
            save=saver.save,
            whose=diverting.participant_of,
        )
        self.recovery = Recovery(
            settings,
            catalog,
            fragments,
            parsing=parsing,
            diverting=diverting,
            is_up=self._is_linked,
            broken_since_us=self._broken_since_us,
            heard_at_us=self._heard_at_us,
            life_of=self._life_of,
            make=partial(self._host, secondary=True),
            check=self.installed.check_room,
            memory=self.installed.check_memory,
            empty=self._empty,
            owned=self._owned,
            next_token=self._next_token,
            role=CoordinatorRole(
                took_over=self.coordinator.took_over,
                handed_over=self.coordinator.handed_over,
                ended=self.coordinator.ended,
                placed=lambda *placed: self.orders.arrivals.coordinated(*placed),
            ),
            nodes=self._known_nodes,
            regrouped=lambda fragment: self.orders.alone(fragment),
            restored_here=lambda *of: self.orders.keeps_here(*of),
            hosting=Hosting(
                is_abroad=lambda node: bool(naming.abroad(node)),
                permitted=self.permits.goes_to,
                admits=lambda *spec: self.abroad.admits(*spec),
                told_by=lambda *told: self.abroad.told_by(*told),
                comes_home=lambda replicas: self.abroad.comes_home(replicas),
                decided=lambda *decided: self.abroad.decided(*decided),
                put_out=self.loads.put_out,
            ),
            **shared,
        )
        self.abroad = AbroadMoves(
            settings,
            catalog,
            fragments,
            permits=self.permits,
            recovery=self.recovery,
            number=number,
            whose=diverting.participant_of,
            is_up=self._is_linked,
            **shared,
        )
        moving: dict[str, Any] = {**shared, "diverting": diverting, "next_token": self._next_token}
        moves = OutgoingMoves(settings, catalog, fragments, **moving)
        arrivals = IncomingMoves(
            settings,
            catalog,
            fragments,
            parsing=parsing,
            make=self._host,
            check=self.installed.check_room,
            owned=self._owned,
            orphaned=self.installed.drop,
            **moving,
        )
        splits = RepartitionCoordinator(
            settings,
            catalog,
            fragments,
            make=self._host,
            room=self.installed.check_room,
            moving=moves.moving,
            guards=self.recovery.guards,
            away=moves.away,
            elsewhere=self.naming.fragments_elsewhere,
            **moving,
        )
        restoring = ParallelRestore(
            settings.name,
            settings.recovery.restore_parts,
            fragments,
            outbox=outbox,
            splits=splits,
            handovers=self.recovery.handovers,
            replication=self.recovery.replication,
            succession=self.recovery.succession,
            siblings=self.recovery.fragments_of,
            number=number,
            is_up=self._is_linked,
        )
        self.orders = MoveOrders(
            settings.name,
            catalog,
            moves,
            arrivals,
            splits,
            restoring,
            outbox=outbox,
            number=number,
            names=names,
            early=naming.early,
            own_peer=lambda node: node == settings.name or node in settings.own_peers,
            recovery=self.recovery,
            handovers=self.recovery.handovers,
            unheard=self.recovery.unheard,
            abroad=self.abroad,
            by_plan=lambda *signal: self.market is not None and self.market.signal(*signal),
        )
        self._definitions = Definitions(
            settings, catalog, naming.directory, self.coordinator, fragments, parsing=parsing, outbox=outbox
        )
        self._queries = ClientQueries(
            settings,
            catalog,
            self.coordinator,
            self._definitions,
            self.installed,
            parsing=parsing,
            outbox=outbox,
            nodes=self._known_nodes,
            deployed_at=names.deployed_at,
            away=moves.away,
            number=number,
            noticed_us=self._patience.timeout_us,
        )
        self._resolving = DoubtResolution(
            settings,
            catalog,
            fragments,
            incarnation=incarnation,
            host=self._host,
            naming=naming,
            moves=moves,
            coordinator=self.coordinator,
            diverting=diverting,
            without_state=self.recovery.without_state,
            was_returned=self.recovery.was_returned,
            taken_up=self.recovery.taken_up,
            **shared,
        )
        self.lanes = Lanes(self._me, settings, fragments)
        self._streams = StreamRouter(
            settings,
            catalog,
            self.installed,
            self.clients,
            lanes=self.lanes,
            diverting=diverting,
            outbox=outbox,
            count=count,
        )
        self._completions = Completions(
            self.installed,
            self.orders,
            recovery=self.recovery,
            parsing=parsing,
            stopping=self.remotes.stopping,
            abroad=self.abroad,
            wall=self.wall,
        )

    def _between(
        self, verify: Verify | None, signer: Signer | None
    ) -> Callable[[NameLookup], ParticipantCatalog] | None:
        """Makes the part in the catalog between participants, if the configuration says that there is one."""
        if self.settings.dht is None or self.guard is None or verify is None:
            return None
        return partial(
            ParticipantCatalog,
            self.settings,
            self.guard.registry,
            outbox=self.outbox,
            wall=self.wall,
            verify=verify,
            signer=signer,
            count=self._count,
        )

    def _market(
        self, verify: Verify | None, signer: Signer | None, papers: Mapping[str, str]
    ) -> NodeMarket | None:
        """Trades for the participant, if the configuration says so."""
        rules, security = self.settings.market, self.settings.security
        if rules is None or security is None or verify is None or signer is None:
            return None
        return NodeMarket(
            self.settings.participant,
            self.settings.name,
            rules,
            security,
            papers,
            incarnation=self.incarnation,
            catalog=self.catalog,
            saver=self._saver,
            outbox=self.outbox,
            signer=signer,
            verify=verify,
            loads=self.loads,
            moves=LentFragments(self.abroad, self.permits, self.fragments),
            fragments=self._own_fragments,
            hosts=self.fragments,
            content=self._content,
            whose=self.diverting.participant_of,
            streams=self.diverting,
            wall=self.wall.at,
            peers=self.peers,
            number=self.diverting.number,
            count=self._count,
            cluster=self.accepting.cluster,
        )

    def _own_fragments(self) -> dict[str, FragmentSpec]:
        """Those that run here for our participant."""
        whose, own = self.diverting.participant_of, self.settings.participant
        return {
            name: hosted.spec
            for name, hosted in self.fragments.items()
            if (whose(self.catalog.coordinator_of(hosted.spec.query)) or own) == own
        }

    def market_may_take(self, since_us: int) -> bool:
        """Whether a partner may still take some of what has been too much since then: of what is ours, or
        what is its own; for that we wait ``MARKET_FIRST_US`` at most, since it may be silent."""
        rules = self.settings.market
        if self.market is None or rules is None or rules.shadow:
            return False
        first_us = self._now_us - MARKET_FIRST_US
        return self.market.is_selling or since_us > first_us or self.market.is_giving_back(first_us)

    # --- what parts ask of each other -----------------------------------------------------------------

    def _known_before(self, peer: str, version: int) -> None:
        """A peer says up to which version it knows what this node wrote."""
        life = Directory.life_of(version)
        if not self._forgets and 0 < life < self.catalog.birth.life:
            self._resolving.has_forgotten(peer, life)

    def _on_its_way(self, fragment: str) -> bool:
        return self.orders.on_its_way(fragment)

    def _removes(self) -> None:
        if self.market is not None:
            self.market.count_rows()

    def _removed(self, query: str, gone: list[str], whole: bool) -> None:
        self.orders.removed(query, gone, whole=whole)
        if whole:
            self.recovery.removed(query)

    def _gives_way(self, fragment: str) -> bool:
        return self.orders.gives_way(fragment)

    def _sells_to(self, participant: str, stream: str, columns: tuple[str, ...]) -> SoldStream | None:
        return None if self.market is None else self.market.sells(participant, stream, columns)

    def _offers_to(self, participant: str) -> OfferRules | None:
        return self.remotes.offers.get(participant)

    def _participant_of(self, node: str) -> str | None:
        """Without keys all nodes are ours."""
        return self.settings.participant

    def _known_nodes(self) -> dict[str, StandbyNode]:
        """As those that may stand by for a fragment."""
        naming = self.naming
        return standby_nodes(self.settings, naming.directory, self.loads, self.sessions, naming.abroad)

    def _is_linked(self, node: str) -> bool:
        return node == self.settings.name or self.peers.get(node) == "up"

    def _life_of(self, node: str) -> int:
        session = self.sessions.get(node)
        return 0 if session is None else session.incarnation or 0

    def _session(self, peer: str, *, calls: bool) -> PeerSession:
        return PeerSession(self._me, peer, outbox=self.outbox, settings=self._patience, calls=calls)

    def _host(
        self,
        spec: FragmentSpec,
        saved: SavedCheckpoint | None = None,
        owner: str = "",
        make: Callable[..., FragmentHost] = FragmentHost,
        *,
        secondary: bool = False,
        begins: bool = True,
    ) -> Any:
        node = self.catalog.coordinator_of(spec.query) or owner or self.settings.name
        whose = self.diverting.participant_of(node) or self.settings.participant
        self.outbox.append(Owned(query=spec.query, owner=whose))
        if owner:
            abroad = whose == self.settings.participant and bool(self.naming.abroad(owner))
            make = partial(StandbyFragment, owner=owner, secondary=secondary, abroad=abroad)
        forgets = self._forgets or spec.keeps_nothing
        if forgets:
            make = partial(
                MemoryOnlyFragmentHost,
                seal=CutSealer(spec.note_key) if spec.note_key else self._seal,
                now_us=self._now_us,
                born_us=self._started_us if begins else self._now_us,
                leads=partial(self.recovery.leads, spec.query),
                begins=begins,
            )
        hosted = make(
            spec,
            incarnation=self.incarnation,
            outbox=self.outbox,
            link=self._link,
            link_of=partial(stream_link, self.settings),
            durability=policy_of(
                disk=not forgets,
                guarded=bool(spec.standby) and not forgets,
                decisions=not spec.reads_again,
            ),
            checkpoint_every_us=self._checkpoint_every_us(spec, whose),
            next_token=self._next_token,
            wall=self.wall,
            clean=self.guard is not None,  # With keys, who reads may be another owner.
            saved=saved,
            fence=QueryFence(self.recovery.agreement, spec.query),
            epoch=partial(self.catalog.ownership.surely, spec.name),
            held=partial(self.catalog.held, spec.name, spec.query),
            broken_since_us=self._broken_since_us,
            is_foreign=lambda node: (self.diverting.participant_of(node) or whose) != whose,
        )
        for output in hosted.outputs.values() if not forgets else ():
            output.begun(self.catalog.installed.get(spec.name, 0))
        self._links_up(self._now_us, hosted)
        return hosted

    def _empty(self, spec: FragmentSpec) -> FragmentHost:
        """What succeeds another node's with nothing; it begins once it is ours."""
        hosted: FragmentHost = self._host(spec, begins=False)
        self.outbox.append(opening(spec))
        return hosted

    def _checkpoint_every_us(self, spec: FragmentSpec, owner: str) -> int:
        """Of a fragment here. Another participant's never writes more often than our own would, unless we
        have permitted that."""
        own = self.settings.limits.checkpoint_every_us
        wished = spec.checkpoint_every_us or own
        if owner == self.settings.participant:
            return wished
        permit = self.permits.into(spec.name)
        calm, agreed = max(wished, own), 0 if permit is None else permit.checkpoint_every_us
        return min(calm, agreed) if agreed else calm

    def _owned(self, now_us: int, hosted: FragmentHost, secondaries: Collection[str] = ()) -> None:
        """What followed another node's fragment is ours now, or what was moved is ours again; the words of
        these secondaries count."""
        hosted.own(now_us, secondaries)
        self._links_up(now_us, hosted)

    def _links_up(self, now_us: int, hosted: FragmentHost) -> None:
        for peer in (self.settings.name, *self.sessions):
            if self._is_up(peer):
                hosted.peer_event(now_us, peer, LinkEvent.PEER_UP)

    def _is_up(self, peer: str) -> bool:
        return peer == self.settings.name or self.sessions[peer].state is PeerState.UP

    def _broken_since_us(self, peer: str) -> int | None:
        """Since when we and a node or client don't hear each other; None: we do, or never have."""
        session = self.sessions.get(peer)
        return None if session is None else session.broken_since_us

    def _heard_at_us(self, peer: str) -> int | None:
        """When a node or client was heard last; None: it never was."""
        session = self.sessions.get(peer)
        return None if session is None else session.heard_at_us

    def _next_token(self) -> int:
        self._token += 1
        return self._token

    def _count(self, code: str) -> None:
        self.refusals[code] = self.refusals.get(code, 0) + 1

    # --- who calls ------------------------------------------------------------------------------------

    def admit(self, hello: Hello, *, key: str = "") -> None:
        """Whether who calls us so may do that; before its first message is received.

        Args:
            key: that the transport authenticated; empty: it knows none.

        Raises:
            RemoteProtocolError: no peer of ours, a client under the name of a node, or another's key.
        """
        try:
            if self.guard is not None:  # Who isn't let in throws nobody out.
                self.guard.registry.caller(hello.node, key, client=hello.client)
            same = self.guard.bound(key) if self.guard is not None else ()
            if hello.client and (gone := makes_room(self._now_us, hello.node, self.clients, same)):
                self._forget(gone)
            check_caller(hello, self.settings, self.clients)
            self.lanes.admit(hello)  # Only who it is may say how its streams come.
            if self.guard is not None:
                self.guard.admit(hello.node, key, client=hello.client)
        except RemoteProtocolError as error:
            self._count(error.code)
            raise

    def earlier(self, now_us: int, hello: Hello, *, key: str = "") -> tuple[bool, Refuse | None]:
        """Whether a caller that was admitted is an earlier life of a peer, and what it is told then, once.

        A slow connection of an earlier life doesn't replace the one that stands: what came by it would count
        as said in this life, and this life would go unheard.
        """
        session = self.sessions.get(hello.node)
        if session is None or not session.is_earlier(hello):
            return False, None
        told = session.told_earlier
        if not hello.lane:
            self.receive(now_us, hello.node, hello, key=key)
        return True, session.told_earlier if session.told_earlier is not told else None

    # --- messages -------------------------------------------------------------------------------------

    def receive(
        self,
        now_us: int,
        peer: str,
        message: Message,
        payload: Buffer | None = None,
        *,
        key: str = "",
        lane: int = 0,
    ) -> None:
        """Take one message of a peer that was admitted.

        Args:
            key: that the transport authenticated for this message; empty: it knows none.
            lane: of the connection that brought it; one for streams (1 and up) says nothing of whether
                the peer is there.

        Raises:
            RemoteProtocolError: it broke a rule that concerns the whole link: end it.
        """
        caller: Caller | None = None
        if self.guard is not None:
            try:
                caller = self.guard.caller(peer, key)
            except RemoteProtocolError as error:
                self._count(error.code)
                raise
        if peer not in self.sessions:
            if not (isinstance(message, Hello) and message.client):
                self._count("E_STALE")  # Left over from a client that we have forgotten.
                return
            self.sessions[peer] = self._session(peer, calls=False)
            self.clients[peer] = now_us  # Silent until it is up: what it says may not hold.
        self._now_us = now_us
        client = peer in self.clients
        event: LinkEvent | None = None
        try:
            if lane == 0:
                event = self._heard(now_us, peer, message)
            if may_say(self.guard, peer, caller, message, client=client):
                self._dispatch(Heard(now_us, peer, message, payload, client, caller, lane))
        except RemoteProtocolError as error:
            self._count(error.code)
            raise
        finally:
            self._turned(now_us, rows=event is None and self._is_about_rows(peer, message))

    def _heard(self, now_us: int, peer: str, message: Message) -> LinkEvent | None:
        """The last thing that the message says of whether its peer is there.

        Where streams say how they are, what came while this node stood still isn't to hide that nobody was
        heard. Elsewhere it is of use as it is: nothing has to come again.
        """
        session, silence = self.sessions[peer], None
        if session.is_overdue(now_us) and any(each.bound is not None for each in self.fragments.values()):
            silence = session.look(now_us)
            self._spread(now_us, peer, silence)
        event = session.receive(now_us, message)
        self._spread(now_us, peer, event)
        return event or silence

    def _is_about_rows(self, peer: str, message: Message) -> bool:
        return type(message) in ROWS or (isinstance(message, Got) and self.recovery.is_routine(peer, message))

    def _dispatch(self, heard: Heard) -> None:
        check_payload(heard.peer, heard.message, heard.payload)
        if not self._resolving.absorbs(heard):
            self._owners[MESSAGES[type(heard.message)].owner](heard)

    def _declared(self, heard: Heard) -> None:
        assert isinstance(heard.message, Declare)
        if self.guard is None:
            text = f"node {self.settings.name!r} has no keys, so nobody's statements count here"
            raise RemoteProtocolError(text, peer=heard.peer, code="E_ROLE")
        self.guard.declare(heard.now_us, heard.peer, heard.message)
        self._cut_off(heard.now_us)

    def _rerouted(self, heard: Heard) -> None:
        assert isinstance(heard.message, DivertMessage)
        self.diverting.receive(heard.now_us, heard.peer, heard.message)

    def _load_said(self, heard: Heard) -> None:
        assert isinstance(heard.message, Load)
        self.loads.heard(heard.now_us, heard.peer, heard.message)

    def _traded(self, heard: Heard) -> None:
        if self.market is not None:
            self.market.receive(heard)
        else:
            self._count("E_NO_CONTRACT")
            say_no(self.outbox, heard.peer, heard.message, NO_MARKET)

    def _status_asked(self, heard: Heard) -> None:
        assert isinstance(heard.message, StatusRequest)
        status, caller = self._status(heard.now_us), heard.caller
        limited = caller is not None and caller.rules is not None and not caller.rules.status
        shown = visible(status, caller, heard.peer) if caller is not None and limited else status
        self.outbox.send(heard.peer, Reply(request=heard.message.request), encoded(shown))

    def _answered(self, heard: Heard) -> None:
        """The part that asked knows the number of its question."""
        now_us, peer, reply = heard.now_us, heard.peer, heard.message
        assert isinstance(reply, Reply)
        if not (
            self.orders.answered(now_us, peer, reply, heard.payload)
            or self.remotes.answered(peer, reply)
            or self._reading.answered(now_us, peer, reply)
            or self.recovery.answered(now_us, peer, reply)
            or self._queries.answered(now_us, peer, reply)
            or (self.market is not None and self.market.answered(peer, reply))
            or self.coordinator.has_parts(now_us, peer, reply)
            or self.scaling.answered(now_us, peer, reply, heard.payload)
            or self.diverting.answered(now_us, peer, reply)
        ):
            self.coordinator.reply(now_us, peer, reply)

    # --- reports --------------------------------------------------------------------------------------

    def report(self, now_us: int, report: NodeReport) -> None:
        """Take what became of an effect, or what only a driver sees.

        Raises:
            LocalProtocolError: rules were read for a node that has no keys.
            RemoteProtocolError: what the node has sent to itself broke a rule.
        """
        if not isinstance(report, ROWS_DONE | Stats | Surroundings):
            self._others_may_act = True
        match report:
            case SentToItself():
                self._sent_to_itself(now_us, report)
            case PeerLost():
                self._lost(now_us, report.peer)
            case LaneChanged():
                self._lane_changed(now_us, report)
            case Persisted():
                self._persisted(now_us, report)
                self._turned(now_us)
            case Surroundings():
                self.wall.told(now_us, report.wall_us)
                self._door = report.door
                if report.usage is not None:
                    self.loads.used(now_us, report.usage)
            case NotLetIn():
                self.orders.not_let_in(now_us, report.peer, report.why)
            case RulesRead():
                self._configure(now_us, report)
            case Listening():
                self.naming.listens_at(report.address, report.server_key)
                for session in self.sessions.values():
                    session.listens_at(report.address)
            case Started():
                self._start(now_us)
            case StopRequested():
                self._stop(now_us)
            case _:
                if self._completions.take(now_us, report):
                    self._turned(now_us, rows=isinstance(report, ROWS_DONE))

    def _sent_to_itself(self, now_us: int, report: SentToItself) -> None:
        self._now_us = now_us
        try:
            self._dispatch(Heard(now_us, self.settings.name, report.message, report.payload))
        finally:
            self._turned(now_us)

    def _lost(self, now_us: int, peer: str) -> None:
        """Nothing that it asked and that hasn't been looked at is done any more."""
        self.naming.lost(peer)
        self.parsing.lost(peer)
        self._streams.lost(peer)
        if peer in self.sessions:
            self._spread(now_us, peer, self.sessions[peer].lost())
            self._turned(now_us)

    def _lane_changed(self, now_us: int, report: LaneChanged) -> None:
        peer, lane = report.peer, report.lane
        if report.up:
            self.outbox.append(Introduce(peer=peer, lane=lane, hello=self.lanes.hello(lane)))
        self.lanes.changed(now_us, peer, lane, flowing=report.up and self._is_up(peer))
        self._turned(now_us)

    def _persisted(self, now_us: int, report: Persisted) -> None:
        if not self._saver.written(now_us, report.token, report.ok, report.why):
            self._completions.take(now_us, report)
            return
        self.recovery.written(now_us)
        self.orders.splits.tick(now_us)  # What is there from now on is listed too.
        self.naming.written(now_us)
        if self.market is not None:
            self.market.written(now_us)
        if self.guard is not None:
            self.guard.written([peer for peer in self.settings.peers if self._is_up(peer)])
        self.orders.tick(now_us)

    def _configure(self, now_us: int, rules: RulesRead) -> None:
        """Who counts no more is cut off, who may do other things begins anew."""
        if self.guard is None:
            raise LocalProtocolError("a node gets keys when it starts, or never")
        if rules.offers is not None:
            self.remotes.change_offers(rules.offers)
        for peer in self.guard.configure(rules.security):
            self.outbox.append(CutPeer(peer=peer))
            self._lost(now_us, peer)
        if self.market is not None:
            self.market.rules_read(now_us, rules.security, rules.papers, rules.suggest)
        self._cut_off(now_us)
        self._turned(now_us)

    def _start(self, now_us: int) -> None:
        """Call the peers, go on with what was installed, undo what was half deployed."""
        self._started_us = now_us
        if self.guard is not None:
            self.guard.start()
        for hosted in self.fragments.values():
            hosted.begin(now_us)
        self._streams.start(now_us)
        self.coordinator.resume(now_us)
        self.diverting.start(now_us)
        self.orders.start(now_us)
        self.recovery.start(now_us)
        self._resolving.start(now_us)
        if self.market is not None:
            self.market.start(now_us)
        self.tick(now_us)

    def _stop(self, now_us: int) -> None:
        self._stopping = True
        self.orders.stop(now_us)
        self.recovery.stop()
        self.naming.stop(now_us)
        for hosted in self.fragments.values():
            hosted.stop(now_us)
        self._say_stopped()

    @property
    def stopped(self) -> bool:
        """It was to end, and all that happened is on disk."""
        return self._stopping and all(hosted.at_rest for hosted in self.fragments.values())

    def _say_stopped(self) -> None:
        if self.stopped and not self._said_stopped:
            self._said_stopped = True
            hosted = self.fragments.values()
            self.outbox.append(Stopped(fragments=len(hosted), rows_in=sum(each.rows_in for each in hosted)))

    @property
    def saved(self) -> bool:
        """The catalog is on disk as it is."""
        return self._saver.idle

    # --- peers ----------------------------------------------------------------------------------------

    def _spread(self, now_us: int, peer: str, event: LinkEvent | None) -> None:
        if event is None:
            return
        self._others_may_act = True
        if peer in self.clients:
            self.clients[peer] = now_us if event is LinkEvent.PEER_DOWN else 0
        else:
            self.peers[peer] = "silent" if event is LinkEvent.PEER_DOWN else "up"
            self.outbox.report("info", event.value, peer=peer)
            self.naming.peer_event(now_us, peer, event)
            if event is not LinkEvent.PEER_DOWN:
                self.loads.came_up(peer)
                self.coordinator.came_up(now_us, peer, forgets=self.sessions[peer].forgets)
            if self.guard is not None and event is not LinkEvent.PEER_DOWN:
                self.guard.came_up(peer)
        self._streams.lost(peer)
        for hosted in self.fragments.values():
            hosted.peer_event(now_us, peer, event)
        if peer not in self.clients:
            self.orders.peer_event(now_us, peer, event)
            self.recovery.peer_event(now_us, peer, event)

    def _cut_off(self, now_us: int) -> None:
        """End the links of callers whose keys count no more."""
        for peer in self.guard.to_cut() if self.guard is not None else ():
            self._lost(now_us, peer)
            if peer in self.clients:
                del self.sessions[peer], self.clients[peer]

    def _forget(self, client: str) -> None:
        # Its positions stay with the fragments; should it come back it says Hello again.
        del self.sessions[client], self.clients[client]
        if self.guard is not None:
            self.guard.forget(client)
        self.outbox.append(CutPeer(peer=client))

    # --- time -----------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what is due, take note of how it goes."""
        self._now_us = now_us
        self._completions.tick(now_us)
        for peer, session in list(self.sessions.items()):
            self._spread(now_us, peer, session.tick(now_us))
        for peer, silent_us in list(self.clients.items()):
            if silent_us and now_us - silent_us >= self._link.idle_us:
                self._forget(peer)
        for hosted in self.fragments.values():
            hosted.tick(now_us)
        rows = not self._others_are_due(now_us)
        if not rows:
            self._saver.tick(now_us)
        if self.guard is not None:
            self.guard.tick(now_us)
            self._cut_off(now_us)
        if not rows:
            self.coordinator.tick(now_us)
            self._definitions.tick(now_us)
            self._queries.tick(now_us)
            self.diverting.tick(now_us)
            self._reading.tick(now_us)
            self.remotes.tick(now_us)
            self.orders.tick(now_us)
            self.abroad.tick(now_us)
        self.recovery.tick(now_us, rows=rows)
        if not rows:
            self._resolving.tick(now_us)
            self.naming.tick(now_us)
            if self.market is not None and not self._stopping:
                self.market.tick(now_us)
        self.rates.tick(now_us, self.fragments.values(), self.installed.counts)
        self.loads.tick(now_us, (peer for peer in self.settings.own_peers if self.peers[peer] == "up"))
        if not self._stopping:
            self.shedding.tick(now_us)
            self.scaling.tick(now_us)
        self._unmoved.tick(now_us, self.installed.counts)
        self._turned(now_us, rows=rows)
        if not rows:
            self._others_may_act, self._look_at_us = False, now_us + LOOK_US

    def _others_are_due(self, now_us: int) -> bool:
        """Whether parts that rows don't concern may have something to do.

        Most ticks send a heartbeat, an acknowledgement or what was gathered for a secondary.
        """
        at_us = self._others_at_us
        if self._others_may_act or not self._only_rows_flow or now_us >= self._look_at_us:
            return True
        return at_us is not None and now_us >= at_us

    def _turned(self, now_us: int, *, rows: bool = False) -> None:
        """Something happened: send what was gathered, and note that there may be something to do at another
        time.

        Args:
            rows: only rows came, were fed or acknowledged. That is most of what happens, and what isn't about
                rows has something to do when it had before.
        """
        self.naming.flush()
        self._streams.flush(now_us)
        self.recovery.flush(now_us)
        if not (rows and self._only_rows_flow):
            self._others_at_us, self._others_may_act = self._others_wake_at_us(now_us), True
        self._wake_at_us = None
        self._say_stopped()

    def wake_at_us(self, now_us: int) -> int:
        """When ``tick`` has work. A driver asks once it has brought all that it had: it costs as much as a
        message."""
        if self._wake_at_us is None:
            self._wake_at_us = self._next_at_us(now_us)
        return self._wake_at_us

    def _next_at_us(self, now_us: int) -> int:
        times = [session.wake_at_us(now_us) for session in self.sessions.values()]
        times += [hosted.wake_at_us() for hosted in self.fragments.values()]
        times += [silent_us + self._link.idle_us for silent_us in self.clients.values() if silent_us]
        times += [self._others_at_us, self.recovery.rows_wake_at_us(now_us)]
        return min((time_us for time_us in times if time_us is not None), default=now_us + 1_000_000)

    def _others_wake_at_us(self, now_us: int) -> int | None:
        """When there is something to do that isn't about rows."""
        moving = [self.orders.wake_at_us(now_us), self.diverting.wake_at_us()]
        self._only_rows_flow = moving == [None, None] and not self.recovery.waits_for_rows
        times = [*moving, self._saver.wake_at_us(), self.coordinator.wake_at_us()]
        times += [self._definitions.wake_at_us(), self._reading.wake_at_us(), self.remotes.wake_at_us()]
        times += [self._resolving.wake_at_us(), self.naming.wake_at_us(), self.recovery.wake_at_us(now_us)]
        times += [self._queries.wake_at_us(), self.abroad.wake_at_us(now_us), self.shedding.wake_at_us()]
        times.append(self.scaling.wake_at_us())
        if self.market is not None:
            times.append(self.market.wake_at_us(now_us))
        return min((time_us for time_us in times if time_us is not None), default=None)

    # --- status ---------------------------------------------------------------------------------------

    def _fragment_status(self, now_us: int, name: str, hosted: FragmentHost) -> FragmentStatus:
        known = self.installed.counts.get(name, {})
        why = explained(
            hosted,
            known.get("boxes", {}),
            self._unmoved,
            now_us,
            self.orders.moves.away,
            undecided=self.recovery.why_undecided(hosted.spec.query),
            leads=self.recovery.leads(hosted.spec.query),
        )
        guarded = self.recovery.guarded(now_us, hosted.spec)
        method = self.recovery.method(hosted.spec)
        return fragment_status(hosted, self.rates, now_us, known, self.loads, why, method, guarded)

    def status(self, now_us: int) -> dict[str, Any]:
        """What ``medusa status`` shows, as JSON has it: docs/nodes.md describes each field."""
        return plain(self._status(now_us))

    def _status(self, now_us: int) -> NodeStatus:
        fragments = tuple(self._fragment_status(now_us, name, each) for name, each in self.fragments.items())
        disk = (self._saver.disk_error, *(each.disk_error for each in fragments))
        return NodeStatus(
            node=self.settings.name,
            **self.naming.owners(),
            **totals(fragments),
            load=node_load(self.loads, now_us),
            shedding=self.shedding.status(now_us),
            peers=dict(self.peers),
            parsing=self.parsing.status(),
            away=self.orders.away_status(now_us),
            refused=dict(self.refusals),
            door=dict(self._door),
            disk_error=next(filter(None, disk), ""),
            fragments=fragments,
            sources=sources_of(self.catalog.fragments.values()),
            streams=tuple(self.catalog.stream_names()),
            moves=self.orders.status(),
            splits=self.orders.splits_status(),
            backups=backups_status(
                now_us, self.recovery.held_for_others(), self.settings.limits.backups_bytes
            ),
            remote=self.remotes.status(),
            dht=self.naming.between.status() if self.naming.between else None,
            elsewhere=self.catalog.elsewhere(),
            queries=queries_of(
                self.catalog.deployments.values(),
                partial(self.recovery.status, now_us),
                partial(self.scaling.status, now_us),
            ),
            undecided=self.recovery.undecided(now_us),
            without_state=self.recovery.stateless(),
            in_doubt=self._resolving.status(),
            runs_on=self.accepting.status(),
            market=UNSET if self.market is None else self.market.status(now_us),
        )
