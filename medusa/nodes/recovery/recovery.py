"""The parts that keep guarded fragments alive, as the node drives them. No IO."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from medusa.nodes.abroad.host_view import hosts_of, told_to
from medusa.nodes.agreement.agreement import Agreement
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.deploy.background_parsing import BackgroundParsing
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.migration.standby import StandbyFragment
from medusa.nodes.migration.state_receiver import Carried
from medusa.nodes.placement.placement import PlacementPlan
from medusa.nodes.placement.standby_plan import StandbyNode
from medusa.nodes.recovery.audience import audience
from medusa.nodes.recovery.backup_holders import relieves
from medusa.nodes.recovery.coordination import Coordination, CoordinatorRole
from medusa.nodes.recovery.first_configuration import first_configuration, life_of
from medusa.nodes.recovery.followings import Followings
from medusa.nodes.recovery.guards import Guards
from medusa.nodes.recovery.handovers import Handovers
from medusa.nodes.recovery.last_copies import LastCopies
from medusa.nodes.recovery.missing_voters import MissingVoters
from medusa.nodes.recovery.proposals import Proposals
from medusa.nodes.recovery.replication import Replication
from medusa.nodes.recovery.standby_kind import is_idle
from medusa.nodes.recovery.succession import Succession
from medusa.nodes.recovery.unheard_senders import UnheardSenders
from medusa.nodes.reports import Copied
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.ports import Buffer
from medusa.query.recovery import ACTIVE, PASSIVE
from medusa.wire.link.automaton import LinkEvent
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.configuration import Configuration, Replicas
from medusa.wire.messages.move import GiveUp, Got, Ready
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import (
    FOLLOWING,
    MISSING,
    SEEDING,
    AgreementStatus,
    ConfigurationStatus,
    ReplicasStatus,
    SecondaryStatus,
    StatelessStatus,
)

__all__ = ["Hosting", "Recovery"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """What nodes of other participants may have of ours, and ours of theirs: ``nodes.abroad`` answers.

    Attributes:
        is_abroad: whether a node is of another participant; not where nobody knows.
        permitted: whether a fragment of ours may run at such a node now.
        admits: raises LinkError if a fragment with this spec may not run here for that owner.
        told_by: raises LinkError if a node may not have us go by a configuration.
        comes_home: whether a fragment that is abroad is to be ours again.
        decided: told of each configuration that is current from now on, and which was before.
        put_out: stream -> next row, as a node of ours tells of those that go to others; None: it can't say.
    """

    is_abroad: Callable[[str], bool]
    permitted: Callable[[int, str, str], bool]
    admits: Callable[[int, str, FragmentSpec], None]
    told_by: Callable[[str, Configuration], None]
    comes_home: Callable[[Replicas], bool]
    decided: Callable[[int, Configuration | None, Configuration], None]
    put_out: Callable[[str], Mapping[str, int] | None]


class Recovery:
    """Of one node.

    Args:
        fragments: what runs here, by name.
        is_up: whether a node is heard here.
        broken_since_us: since when a node isn't heard here, or doesn't hear us; None: all is well.
        heard_at_us: when a node was heard last; None: it never was.
        life_of: the newest life of a node that was heard of; 0: it wasn't.
        number: gives numbers for questions to nodes.
        make: makes the mind of a fragment that follows (spec, checkpoint, owner).
        check: raises LinkError if there is no room for a fragment.
        empty: makes what succeeds a lost owner with nothing.
        owned: called when a fragment that was taken over, or is ours again, may begin.
        memory: raises LinkError if there is no room for so many streams more.
        next_token: gives tokens and numbers of attempts: larger than any before.
        role: told who coordinates what, where that changes.
        nodes: as they are known here, by name.
        restored_here: whether a fragment of ours, whose state we held for others, is being restored in parts.
        hosting: what this node has to do with other participants' nodes in this.

    Attributes:
        agreement: on the configuration of each query.
        replication: what this node sends its secondaries.
        followings: what it follows.
        handovers: takeovers that are ordered.
        unheard: has what misses a sender here go to a node that hears it.
        succession: what it does of what is decided.
        proposals: what it would have decided.
        coordination: who coordinates.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: dict[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        parsing: BackgroundParsing,
        diverting: Rerouting,
        is_up: Callable[[str], bool],
        broken_since_us: Callable[[str], int | None],
        heard_at_us: Callable[[str], int | None],
        life_of: Callable[[str], int],
        make: Callable[[FragmentSpec, SavedCheckpoint, str], StandbyFragment],
        check: Callable[[FragmentSpec], None],
        memory: Callable[[int], None],
        empty: Callable[[FragmentSpec], FragmentHost],
        owned: Callable[[int, FragmentHost, Collection[str]], None],
        next_token: Callable[[], int],
        role: CoordinatorRole,
        nodes: Callable[[], Mapping[str, StandbyNode]],
        regrouped: Callable[[str], bool],
        restored_here: Callable[[FragmentSpec, Replicas], bool],
        hosting: Hosting,
    ) -> None:
        me = settings.name
        self._hosting = hosting
        self._own_peers = settings.own_peers
        self._me = me
        self._catalog = catalog
        self._fragments = fragments
        self._is_up = is_up
        self._outbox = outbox
        self._relieved: dict[str, int] = {}
        """Fragment -> the epoch in which we took it from a node that only held it, until it runs here."""
        self.agreement = agreement = Agreement(
            settings,
            catalog,
            outbox=outbox,
            saver=saver,
            number=diverting.number,
            is_up=is_up,
            decided=self._decided,
            audience=self._audience,
            ended=lambda now_us, query: self.coordination.ended(now_us, query),
            life_of=life_of,
            lost=self._lost,
            owner_lost=self._owner_lost,
            told_abroad=self._told_abroad,
            told_by=hosting.told_by,
        )
        self._missing_voters = MissingVoters(me, catalog, agreement, outbox=outbox, is_up=is_up)
        self.coordination = Coordination(
            settings, catalog, outbox=outbox, agreement=agreement, is_up=is_up, role=role
        )
        shared: dict[str, Any] = {
            "outbox": outbox,
            "configuration": agreement.current,
            "next_token": next_token,
        }
        self.replication = Replication(
            me,
            catalog,
            fragments,
            is_up=is_up,
            abroad=hosting.is_abroad,
            to=lambda fragment: self.handovers.target(fragment),
            keeps_here=restored_here,
            **shared,
        )
        self.followings = Followings(
            settings,
            catalog,
            fragments,
            saver=saver,
            parsing=parsing,
            leaving=lambda fragment: self.succession.leaving(fragment),
            make=make,
            check=check,
            memory=memory,
            abroad=hosting.is_abroad,
            admits=hosting.admits,
            rests=lambda fragment: self.succession.stands_by(fragment),
            closes=lambda fragment: self.succession.closes(fragment),
            step_aside=lambda now_us, fragment: self.succession.step_aside(now_us, fragment),
            put_out=hosting.put_out,
            **shared,
        )
        self.handovers = Handovers(
            settings,
            fragments,
            outbox=outbox,
            saver=saver,
            agreement=agreement,
            replication=self.replication,
            number=diverting.number,
            is_up=is_up,
            leaves=lambda fragment: self.succession.stands_by(fragment),
            nodes=nodes,
            room=self.followings.promise_room,
            permitted=hosting.permitted,
            abroad=hosting.is_abroad,
        )
        self.succession = Succession(
            me,
            catalog,
            fragments,
            outbox=outbox,
            saver=saver,
            agreement=agreement,
            replication=self.replication,
            followings=self.followings,
            diverting=diverting,
            empty=empty,
            owned=owned,
            foreign=self.foreign,
        )
        self.unheard = UnheardSenders(
            me,
            fragments,
            outbox=outbox,
            handovers=self.handovers,
            replication=self.replication,
            succession=self.succession,
            number=diverting.number,
            is_up=is_up,
            broken_since_us=broken_since_us,
            heard_at_us=heard_at_us,
        )
        self.proposals = Proposals(
            me,
            catalog,
            fragments,
            outbox=outbox,
            agreement=agreement,
            replication=self.replication,
            followings=self.followings,
            succession=self.succession,
            wait_us=settings.recovery.wait_us,
            wanted=lambda each: (
                self.handovers.wanted(each) or hosting.comes_home(each) or self._relieves(each)
            ),
            guest=self.handovers.guest,
            lends=self.handovers.lends,
            abroad=hosting.is_abroad,
            regrouped=regrouped,
            is_up=is_up,
        )
        self._last_copies = LastCopies(
            me,
            outbox=outbox,
            configuration=agreement.current,
            without_state=self.succession.without_state,
            emptied=self.proposals.emptied,
            could_have=self._could_have,
            keeps=catalog.in_doubt.keeps,
        )
        self.guards = Guards(me, catalog, agreement, self.handovers, self.succession, is_up)

    def _audience(self, query: str) -> Collection[str]:
        return audience(self._catalog, query, [taking.spec for _, _, taking in self.followings.followed()])

    def _told_abroad(self, configuration: Configuration, node: str) -> Configuration | None:
        """What a host may hear: from those alone who vote on it."""
        votes = self._me in configuration.voters
        if not votes or not self._hosting.is_abroad(node) or node not in hosts_of(configuration):
            return None
        return told_to(configuration, node)

    def successors(self, fragment: str) -> tuple[str, ...]:
        """Nodes of ours that may have a fragment next, in their order, as far as it is known here."""
        current = self.agreement.current(fragment.partition("/")[0])
        replicas = None if current is None else current.replicas(fragment)
        if replicas is None or replicas.abroad:
            return ()
        nodes = dict.fromkeys((*replicas.secondaries, *replicas.followers))
        return tuple(node for node in nodes if node != replicas.owner)

    def foreign(self, query: str) -> bool:
        """Whether a query of which something is here, or is known, is another participant's."""
        current = self.agreement.current(query)
        known = "" if current is None else current.coordinator
        return self._hosting.is_abroad(self._catalog.coordinator_of(query, known))

    def fragments_of(self, query: str) -> tuple[str, ...]:
        """Names of the fragments of a query that others stand by for, as far as is known here."""
        current = self.agreement.current(query)
        return () if current is None else tuple(each.fragment for each in current.fragments if not each.gone)

    def leads(self, query: str) -> bool:
        """Whether, as far as is heard here, no majority without us can have given away what is ours."""
        current = self.agreement.current(query)
        if current is None or self._me not in current.voters:
            return True
        heard = sum(node == self._me or self._is_up(node) for node in current.voters)
        return heard >= current.majority or len(current.voters) - 1 < current.majority

    def undecided(self, now_us: int) -> dict[str, AgreementStatus]:
        """What of each query waits for the word of voters, and why."""
        return self._missing_voters.undecided(now_us)

    def stateless(self) -> dict[str, StatelessStatus]:
        """Fragments of which their owner has nothing, as far as this node has to do with them."""
        return self._last_copies.status()

    def why_undecided(self, query: str) -> str:
        """Why nothing of a query can be taken over, as too many of its voters are away; empty: it can."""
        return self._missing_voters.why().get(query, "")

    def _decided(self, now_us: int, old: Configuration | None, new: Configuration) -> None:
        self.coordination.decided(now_us, new)
        self.succession.decided(now_us, old, new)
        if self._catalog.birth.rebuilt:
            lost = self._lost(new)
            for each in new.fragments:
                if each.fragment in lost:
                    self.succession.lost(each)
        self.handovers.decided(now_us, new)
        self._hosting.decided(now_us, old, new)

    # --- messages -----------------------------------------------------------------------------------

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Take an answer; whether it was to something that was told of a configuration."""
        return self.agreement.answered(now_us, peer, reply)

    def concerns(self, peer: str, message: Carried | Ready | Got | GiveUp) -> bool:
        """Whether a frame, or an answer to one, is of a secondary and not of a move: the attempt tells."""
        of = peer, message.fragment, message.attempt
        return self.followings.has(*of) or self.replication.has(*of)

    def is_routine(self, peer: str, message: Got) -> bool:
        """Whether it is of a secondary whose word counts already, and nothing waits for it but rows."""
        fragment = message.fragment
        current = self.agreement.current(fragment.partition("/")[0])
        replicas = None if current is None else current.replicas(fragment)
        counts = replicas is not None and peer in replicas.secondaries and replicas.owner == self._me
        return counts and self.replication.follows(fragment, peer)

    @property
    def waits_for_rows(self) -> bool:
        """Rows may bring work that ``wake_at_us`` doesn't speak of: a takeover is ordered, say, and waits for
        who is to have the fragment to come near."""
        if self.handovers.wake_at_us() is not None or self.succession.waits_for_rows:
            return True
        return self.proposals.waits_for_rows

    def gave_up(self, peer: str, message: GiveUp) -> None:
        """An owner doesn't need the room that it asked for, if it is that."""
        self.followings.gave_up(peer, message)

    def frame(
        self, now_us: int, peer: str, message: Carried | Ready | Got | GiveUp, payload: Buffer | None
    ) -> None:
        """Take one that ``concerns`` us."""
        if self.replication.has(peer, message.fragment, message.attempt):
            assert isinstance(message, Ready | Got | GiveUp)
            self.replication.receive(now_us, peer, message)
        elif isinstance(message, GiveUp):
            self.followings.gave_up(peer, message)
        else:
            assert not isinstance(message, Ready | Got)
            self.followings.frame(now_us, peer, message, payload)

    # --- status ----------------------------------------------------------------------------------------

    def status(self, now_us: int, query: str) -> ConfigurationStatus | UnsetType:
        """Who has what of a query and who stands by, as far as it is known here; unset: nobody stands by."""
        current = self.agreement.current(query)
        if current is None:
            return UNSET
        return ConfigurationStatus(
            number=current.number,
            coordinator=current.coordinator,
            voters=current.voters,
            away=self._missing_voters.away(current),
            not_voting=self._missing_voters.not_voting(current),
            without_state=tuple(
                each.fragment
                for each in current.fragments
                if (each.fragment, each.epoch) in self.proposals.emptied() and not each.gone
            ),
            fragments={
                each.fragment: self._replicas_status(now_us, each)
                for each in current.fragments
                if not each.gone
            },
        )

    def guarded(self, now_us: int, spec: FragmentSpec) -> tuple[int, ReplicasStatus] | None:
        """The number of the configuration of a fragment of this node, and who stands by for it; None: nobody
        should, or it is another's by now."""
        current = self.agreement.current(spec.query)
        replicas = None if current is None else current.replicas(spec.name)
        if current is None or replicas is None or replicas.owner != self._me:
            return None
        return current.number, self._replicas_status(now_us, replicas)

    def method(self, spec: FragmentSpec) -> tuple[str, str]:
        """How who stands by for a fragment of this node goes on, and why that isn't as an output wishes that
        it feeds; empty: nobody was to, and it is."""
        current = self.agreement.current(spec.query) if spec.standby else None
        replicas = None if current is None else current.replicas(spec.name)
        if replicas is not None and is_idle(spec, replicas) and not spec.idle_standby:
            return PASSIVE, "who lends it holds its checkpoints, and computes nothing of it"
        return (spec.method or ACTIVE) if spec.standby else "", spec.method_reason

    def _replicas_status(self, now_us: int, replicas: Replicas) -> ReplicasStatus:
        return ReplicasStatus(
            owner=replicas.owner,
            epoch=replicas.epoch,
            secondaries={
                node: self._secondary_status(now_us, replicas, node)
                for node in replicas.followers
                if node != replicas.owner
            },
            alone_us=self.succession.alone_us(now_us, replicas),
            taken_over_us=self.succession.taken_over_us(now_us, replicas),
            taken_over_from=self.succession.taken_over_from(replicas),
        )

    def _secondary_status(self, now_us: int, replicas: Replicas, node: str) -> SecondaryStatus:
        if replicas.owner == self._me and not self._is_up(node):  # Its link is kept: it may be back at once.
            return SecondaryStatus(state=MISSING, since_us=self.proposals.silent_us(now_us, node))
        if replicas.owner == self._me:
            told = self.replication.status(now_us, replicas.fragment, node)
            early = told.state == FOLLOWING and node not in replicas.secondaries
            return replace(told, state=SEEDING) if early else told
        return SecondaryStatus(state=FOLLOWING if node in replicas.secondaries else MISSING)

    # --- what the engine and the disk have done ----------------------------------------------------

    def shadow(self, fragment: str) -> FragmentHost | None:
        """What follows a fragment of this name here."""
        return self.followings.shadow(fragment)

    def successor(self, fragment: str) -> FragmentHost | None:
        """What could take this fragment over here: what follows it, or what it was until it was moved; None:
        nothing."""
        kept = self._fragments.get(fragment) if self.succession.stands_by(fragment) else None
        return kept or self.followings.shadow(fragment)

    def ran(self, now_us: int, fragment: str) -> None:
        """What follows fed its oldest element."""
        self.followings.ran(now_us, fragment)

    def failed(self, fragment: str, why: str, code: str = "") -> None:
        """The engine can't run what follows; ``code``: there is no room for it here."""
        self.followings.failed(fragment, why, code)

    def persisted(self, now_us: int, token: int, ok: bool, why: str) -> bool:
        """A checkpoint of what follows is on disk, or isn't; whether it was of one."""
        ours = self.followings.persisted(now_us, token, ok, why)
        if ours:
            self.succession.logged(now_us)
        return ours

    def logged(self, now_us: int) -> None:
        """Decisions of a fragment are on disk, or aren't."""
        self.succession.logged(now_us)

    def copied(self, now_us: int, done: Copied) -> None:
        """A checkpoint was read to be sent."""
        self.replication.copied(now_us, done)

    def written(self, now_us: int) -> None:
        """The catalog is on disk, as far as its writer says."""
        self.agreement.written(now_us)
        self.tick(now_us)

    # --- life ---------------------------------------------------------------------------------------

    def start(self, now_us: int) -> None:
        """The node starts: do what configurations say that were learned before."""
        self.coordination.start(now_us)
        self.succession.start(now_us)
        self.proposals.start(now_us)

    def stop(self) -> None:
        """The node ends."""
        self.handovers.stop()
        self.replication.stop()

    def peer_event(self, now_us: int, peer: str, event: LinkEvent) -> None:
        """A node came, went or restarted."""
        if event is LinkEvent.PEER_RESTARTED:
            self.followings.restarted(peer)
        self._missing_voters.peer_event(now_us, event)
        self.agreement.peer_event(now_us, peer, event)
        self.replication.peer_event(now_us, peer, event)
        self.proposals.peer_event(now_us, peer, event)
        self.tick(now_us)

    def deployed(self, now_us: int, plan: PlacementPlan, request: int) -> None:
        """This node deploys a query by a request and those after it: where it has standbys, its first
        configuration goes out."""
        life = life_of(self._me, request)
        configuration = first_configuration(plan, self._me, life, self._own_peers)
        if configuration is not None:
            self.agreement.install(now_us, configuration)

    def undeploys(self, query: str) -> Collection[str]:
        """Its removal begins here, and nobody takes any of it over from now on; the fragments that this node
        may have taken over while it was deployed."""
        current = self.agreement.current(query)
        found = () if current is None else self.undone(query, current.life)
        self.removed(query)
        return found

    def undone(self, query: str, life: int) -> Collection[str]:
        """The deployment that gave a query this life is undone; the fragments that others may have taken
        over meanwhile, so that nobody looks for them where they were."""
        current = self.agreement.current(query)
        if current is None or current.life != life:
            return ()
        self.removed(query)
        names = [each.fragment for each in current.fragments]
        left = self._catalog.left
        for name in names:
            left.pop(name, None)
        return names

    def was_returned(self, fragment: str) -> bool:
        """Whether its newest state is damaged here, and nobody who stood by for it has it."""
        return self.succession.was_returned(fragment)

    def taken_up(self, now_us: int, query: str) -> None:
        """A fragment of it that was in doubt is here again: it is what the configuration says."""
        if (current := self.agreement.current(query)) is not None:
            self.succession.decided(now_us, None, current)

    def without_state(self, runs: Callable[[str, str], bool]) -> dict[str, tuple[str, ...]]:
        """Of a node whose disk was lost: fragments that are its own and that nobody else has, with their
        streams. Those that others stand by for go to the next in order.

        Args:
            runs: whether a query runs, and isn't being deployed, as its coordinator says.
        """
        found: dict[str, tuple[str, ...]] = {}
        for query, kept in self._catalog.configurations.items():
            current = kept.current
            if not runs(query, current.coordinator):
                continue
            for each in current.fragments:
                if each.owner == self._me and not each.gone and not self._has(each.fragment):
                    if each.secondaries:
                        self.succession.lost(each)
                    else:
                        found[each.fragment] = each.streams
            streams = (
                [name for name, node in current.parts.streams if node == self._me] if current.parts else []
            )
            if missing := tuple(name for name in streams if not self._catalog.has_name(name)):
                found[query] = missing
        return found

    def _owner_lost(
        self, now_us: int, current: Configuration, owner: str, fragments: Collection[str]
    ) -> None:
        self.proposals.owner_lost(now_us, current, owner, fragments)
        self.succession.tick(now_us)
        self.proposals.tick(now_us)

    def _lost(self, current: Configuration) -> tuple[str, ...]:
        """Of a node whose disk was lost: what it owns and doesn't have, and others could take over."""
        return tuple(
            each.fragment
            for each in current.fragments
            if each.owner == self._me and each.secondaries and not each.gone and not self._has(each.fragment)
        )

    def _has(self, fragment: str) -> bool:
        return (
            fragment in self._fragments
            or self.followings.shadow(fragment) is not None
            or self.succession.changes(fragment)
        )

    def _relieves(self, replicas: Replicas) -> bool:
        """Whether what we hold is to be ours since its owner only held it too. If it was given back before,
        as we couldn't open it, it stays there for the life of this node."""
        name = replicas.fragment
        spec = self.followings.spec_of(name)
        if spec is None or not self._is_up(replicas.owner) or not relieves(spec, replicas, self._me):
            return False
        return self._relieved.setdefault(name, replicas.epoch) == replicas.epoch

    def _could_have(self, fragment: str) -> bool:
        return self._has(fragment) or self.followings.spec_of(fragment) is not None

    def leave(self, query: str) -> None:
        """Nothing of another participant's query is here any more, and what it decides is no matter of
        ours."""
        self.agreement.leave(query)
        self.removed(query)

    def removed(self, query: str) -> None:
        """The query is no more."""
        for name in [name for name in self._fragments if name.partition("/")[0] == query]:
            self.replication.drop(name)
        self.followings.removed(query)
        for name in [name for name in self._relieved if name.partition("/")[0] == query]:
            del self._relieved[name]
        self.handovers.removed(query)
        self.succession.removed(query)
        self.proposals.removed(query)
        self.coordination.removed(query)
        self.agreement.forget(query)
        self._missing_voters.removed(query)

    def flush(self, now_us: int) -> None:
        """Send what was fed since the last call."""
        self.replication.flush(now_us)

    def tick(self, now_us: int, *, rows: bool = False) -> None:
        """Do what is due; also after anything was written.

        Args:
            rows: only what ``rows_wake_at_us`` speaks of.
        """
        self.agreement.tick(now_us)
        for name in [name for name in self._relieved if name in self._fragments]:
            hosted = self._fragments[name]
            if not (hosted.frozen or hosted.failed):
                del self._relieved[name]
        self.followings.tick(now_us)
        self.replication.tick(now_us)
        if rows:
            return
        self.succession.tick(now_us)
        self.followings.take_held(now_us)
        self.proposals.tick(now_us)
        self._last_copies.tick()
        self.unheard.tick(now_us)
        self.handovers.tick(now_us)
        self.coordination.tick(now_us)

    def rows_wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has work that rows can bring.

        Secondaries are sent what was fed, and acknowledge it; who goes by an older configuration is told.
        """
        times = [self.replication.wake_at_us(now_us), self.followings.wake_at_us()]
        times.append(self.agreement.wake_at_us())
        return min((time for time in times if time is not None), default=None)

    def wake_at_us(self, now_us: int) -> int | None:
        """When ``tick`` has other work."""
        times = [self.proposals.wake_at_us(now_us), self.handovers.wake_at_us(), self.unheard.wake_at_us()]
        times.append(self.coordination.wake_at_us(now_us))
        return min((time for time in times if time is not None), default=None)
