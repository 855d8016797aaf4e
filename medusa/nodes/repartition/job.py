"""One split or merge, from the question to the coordinator until the new fragments go on. No IO.

``coordinator`` takes orders and checks them; ``catch_up`` feeds the new fragments while the old ones go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from medusa.automaton import next_state
from medusa.elements import Element
from medusa.errors import LinkError, QueryError, RemoteProtocolError, StateError
from medusa.nodes.catalog.catalog import Catalog, PendingReplacement
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings, stream_link
from medusa.nodes.fragment.change_feed import ChangeFeed
from medusa.nodes.fragment.checkpointing import SavedCheckpoint
from medusa.nodes.fragment.clock_decisions import decides
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.names.unreachable_peers import UnreachablePeers
from medusa.nodes.placement.repartition_plan import Replan
from medusa.nodes.recovery.guards import Guards
from medusa.nodes.repartition.automaton import SPLIT, SplitEvent, SplitState
from medusa.nodes.repartition.catch_up import CatchUp
from medusa.nodes.repartition.completed_orders import CompletedOrders, cuts_ordered, refuse
from medusa.nodes.repartition.followers_room import FollowersRoom
from medusa.nodes.repartition.successor import SuccessorFragment, begins_with, stands
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.query.boxes import Aggregate
from medusa.query.rewrite.split import cuts_of, find_split
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.rerouting import Placed
from medusa.wire.messages.split import Merge, Split
from medusa.wire.outbox import CloseFragment, Outbox, Regroup, Weigh
from medusa.wire.status_and_metrics import SplitStatus

__all__ = ["RepartitionJob", "RepartitionPlanner", "NodeServices", "has_all"]

ASK_AGAIN_US = 500_000
"""An unanswered question is asked again after this."""

ASK_US = 5_000_000
"""The coordinator has so long to answer."""

DRAIN_US = 10_000_000
"""What is on its way between the parts arrives within this, or they go on as they were."""

_S, _E = SplitState, SplitEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeServices:
    """What splits and merges use of their node.

    Attributes:
        fragments: what runs here, by name.
        make: makes a fragment from what it begins with.
        guards: say whether others stand by for a fragment.
        away: peers that are not reachable.
        completed: orders that were done here.
    """

    settings: Settings
    catalog: Catalog
    fragments: MutableMapping[str, FragmentHost]
    outbox: Outbox
    saver: CatalogWriter
    diverting: Rerouting
    next_token: Callable[[], int]
    make: Callable[..., Any]
    guards: Guards
    away: UnreachablePeers
    completed: CompletedOrders

    @property
    def name(self) -> str:
        """Of the node."""
        return self.settings.name

    def have_become(self, pending: PendingReplacement) -> None:
        """Fragments have replaced others, or never will."""
        self.catalog.has_become(pending)

    def told_away(self, now_us: int, node: str) -> str:
        """What users hear of a node that doesn't answer; empty: it is there."""
        return self.away.told(now_us, [node])


class RepartitionPlanner(Protocol):
    """Says what takes the place of what, and whether there is room for it."""

    def plan(self, order: Split | Merge, cuts: Sequence[int] | None) -> Replan:
        """Raises: QueryError, LinkError: it can't be."""

    def check_room(self, plan: Replan) -> None:
        """Raises: LinkError: there is no room, beside what other jobs make."""


class RepartitionJob:
    """One split or merge.

    Args:
        gone: names of the fragments that it replaces.
        room: asks those that stand by for them.
        coordinator: the node that coordinates the query.
        ended: told when it is over, before anything follows from that.

    Attributes:
        state: how far it is; ``SPLIT`` has every step.
        agreed: the coordinator says that the query runs, and there is room at those that stand by.
        plan: what takes the place of what; None: not before the engine cuts.
        follows: the old ones go on after they were copied; else they rest until they are no more.
        olds, news: the old fragments, and the new ones by name, as soon as they rest or are made.
        following: feeds the new ones; None: they aren't there yet, or the old ones rest.
    """

    def __init__(
        self,
        node: NodeServices,
        planner: RepartitionPlanner,
        order: Split | Merge,
        *,
        client: str,
        gone: tuple[str, ...],
        room: FollowersRoom,
        coordinator: str,
        now_us: int,
        ended: Callable[[RepartitionJob], None],
    ) -> None:
        self.order = order
        self.client = client
        self.gone = gone
        self.state = _S.ASKING
        self.agreed = False
        self.plan: Replan | None = None
        self.follows = False
        self.olds: list[FragmentHost] = []
        self.news: dict[str, SuccessorFragment] = {}
        self.following: CatchUp | None = None
        self._node = node
        self._outbox = node.outbox
        self._saver = node.saver
        self._planner = planner
        self._ended = ended
        self._room = room
        self._runs = False
        """As the coordinator says."""
        self._coordinator = coordinator
        self._question = Placed(
            request=node.diverting.number(), query=self._query, fragment=order.fragment, node=node.name
        )
        self._begun_us = self._asked_us = now_us
        self._stopped_us = 0
        self._paused_us = 0
        """The longest time for which nothing was fed, so far."""
        self._token = 0
        """Of what the next step waits for."""
        self._cuts: Sequence[int] | None = None
        """Where ranges end; None: they are even."""
        self._shares: list[float] = []
        """Of what the box held, by part."""
        self._writing: set[int] = set()
        self._becoming: PendingReplacement | None = None
        self._stands: list[tuple[FragmentSpec, SavedCheckpoint]] = []
        """The old ones, and where they stood when they were copied."""

    @property
    def _query(self) -> str:
        return self._first.spec.query

    @property
    def _first(self) -> FragmentHost:
        """The old one that gets what comes from outside."""
        return self._node.fragments[self.order.fragment]

    def status(self) -> SplitStatus:
        """As the status of the node has it."""
        query, _, _ = self.order.fragment.partition("/")
        return SplitStatus(
            box=f"{query}/{self.order.box}",
            what="merge" if isinstance(self.order, Merge) else "split",
            state=self.state.value,
            fragments=tuple(self.gone),
        )

    def _step(self, event: SplitEvent) -> None:
        self.state = next_state(SPLIT, self.state, event, of=f"the split of {self.order.box!r}")
        if self.state is _S.OVER:
            self._ended(self)
            if self._becoming is not None:
                self._node.have_become(self._becoming)

    # --- the coordinator --------------------------------------------------------------------------

    def ask(self, now_us: int) -> None:
        """Ask the coordinator, and those that stand by, also again."""
        self._asked_us = now_us
        if not self._runs:
            self._outbox.send(self._coordinator, self._question)
        self._room.ask()

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """Whether this is the answer of the coordinator, or of one that stands by."""
        asked = self._coordinator, self._question.request
        if self.state is not _S.ASKING:
            return False
        if self._room.answered(peer, reply):
            self._look(now_us)
            return True
        if (peer, reply.request) != asked:
            return False
        if reply.code:
            self._fail(now_us, reply.code, f"node {peer!r}: {reply.text}", reply.hint)
            return True
        self._runs = True
        self._look(now_us)
        return True

    def _look_at_guards(self, now_us: int) -> None:
        """What others stand by for waits until they have room for what takes its place, and it is decided
        that they don't."""
        guards = self._node.guards
        if self._room.refusal is not None:
            node, reply = self._room.refusal
            text = f"node {node!r}, which stands by for fragment {self.gone[0]!r}, has no room for its parts"
            self._fail(now_us, reply.code, f"{text}: {reply.text}", reply.hint)
            return
        self.agreed = self.agreed or (self._runs and not self._room.silent)
        if lost := next((name for name in self.gone if guards.lost(name)), ""):
            text = f"fragment {lost!r} left node {self._node.name!r} before"
            self._fail(now_us, "E_BROKEN", text, "order it again")
        elif self.agreed and all(map(guards.left, self.gone)):
            self._begin(now_us)

    def _begin(self, now_us: int) -> None:
        """Nobody but this node may have the old ones."""
        order, self._cuts = self.order, cuts_ordered(self.order)
        if not isinstance(order, Split) or order.ranges != "weight":
            self._step(_E.AGREED)
            self._drain(now_us)
            return
        self._step(_E.AGREED_BY_WEIGHT)
        self._token = self._node.next_token()
        self._outbox.append(
            Weigh(token=self._token, fragment=order.fragment, box=order.box, parts=order.parts)
        )

    def weighed(self, now_us: int, token: int, cuts: tuple[int, ...], why: str) -> None:
        """The engine has found where ranges end, or there are none: ``why``."""
        if (self.state, self._token) != (_S.WEIGHING, token):
            return
        if why:
            self._fail(now_us, "query.split", why)
        else:
            self._cuts = cuts
            self._step(_E.WEIGHED)
            self._drain(now_us)

    # --- to rest ----------------------------------------------------------------------------------

    def _drain(self, now_us: int) -> None:
        """No more rows from outside; those that are on their way between the fragments arrive."""
        self._begun_us = now_us
        self.olds = [self._node.fragments[name] for name in self.gone]
        self.follows = self._may_follow()
        self._rest(now_us)
        self._look(now_us)

    def _may_follow(self) -> bool:
        """Whether new fragments that are fed the same give the same, bit for bit, whatever comes between."""
        try:
            plan = self._planner.plan(self.order, self._cuts)
        except QueryError:
            return False  # The next step says so.
        boxes = find_split(plan.whole, plan.box).merges
        partial = any(isinstance(each, Aggregate) and each.stage == "combine" for each in boxes)
        if any(old.spec.guests for old in self.olds):
            return False  # Their streams begin at rows of their own, and they may leave meanwhile.
        known = {stream for old in self.olds for stream in old.spec.streams.values()}
        inner = [s for each in plan.made for s in each.streams.values() if s not in known]
        if any(stream_link(self._node.settings, stream).at_limit == "shed" for stream in inner):
            return False  # All that they give each other is kept until they take over.
        decided = any(old.mixed for old in self.olds) or any(decides(each.graph) for each in plan.made)
        return not (partial or decided)

    def _rest(self, now_us: int) -> None:
        """What gets rows from outside is fed nothing more."""
        held_us = self.following.held_us if self.following is not None else None
        self._stopped_us = now_us if held_us is None else held_us
        self._first.rest(now_us)
        for hosted in self.olds:
            hosted.settle()  # A part that came just now may not have attached yet.

    def _look(self, now_us: int) -> None:
        """Whether the next step can be taken."""
        if self.following is not None and not self._goes_on(now_us, self.following):
            return
        match self.state:
            case SplitState.ASKING:
                self._look_at_guards(now_us)
            case SplitState.DRAINING:
                if any(hosted.failed for hosted in self.olds):
                    self._fail(now_us, "E_FAILED", "a fragment has failed")
                elif self._at_rest(now_us):
                    self._cut(now_us)
            case SplitState.WRITING:
                if not self._writing:
                    self._step(_E.WRITTEN)
                    self._look(now_us)
            case SplitState.FOLLOWING:
                if self.following is None or self.following.near:
                    self._switch(now_us)
            case SplitState.SWITCHING:
                if self._saver.durable >= self._token:
                    self._settle(now_us)
                elif self._saver.resting:
                    self._unwritable(now_us)
            case _:
                pass

    def _at_rest(self, now_us: int) -> bool:
        """Nothing is under way in the fragments nor between them."""
        for hosted in self.olds:
            if not has_all(self._node.name, hosted, self.olds):
                return False
            if not hosted.frozen:
                if hosted.under_way or hosted.waiting() or hosted.rested.disk_bytes:
                    return False
                hosted.rest(now_us)
            if hosted.under_way or not (hosted.quiet or self.follows):
                return False
        return True

    # --- new ones ---------------------------------------------------------------------------------

    def _cut(self, now_us: int) -> None:
        try:
            plan = self._planner.plan(self.order, self._cuts)
            self._planner.check_room(plan)
        except (QueryError, LinkError) as error:
            self._fail(now_us, error.code, error.message, error.hint)
            return
        if any(output.spilling.away for old in self.olds for output in old.outputs.values()):
            text = f"output of fragment {self.gone[0]!r} waits on disk for readers that are behind"
            self._fail(now_us, "E_BUSY", text, "try again in a moment")
            return
        self._step(_E.AT_REST)
        self.plan, self._token = plan, self._node.next_token()
        self._stands = [
            (old.spec, stands(old, number, whole=self.follows))
            for number, old in enumerate(self.olds, start=1)
        ]
        effect = Regroup(
            token=self._token,
            box=plan.box,
            merges=plan.merges,
            gone=plan.gone,
            whole=plan.whole,
            opened={each.name: each.graph for each in plan.made},
            arcs=plan.arcs,
            aside=self.follows,
        )
        self._outbox.append(effect)
        if self.follows:
            tap = ChangeFeed()
            self._first.tapped(tap)
            tap.begins(self._token, self._first.decided.at)
            self._paused_us = max(self._paused_us, now_us - self._stopped_us)
            for hosted in self.olds:
                hosted.thaw(now_us)

    def remade(
        self,
        now_us: int,
        token: int,
        reached_us: Mapping[str, Mapping[str, int]],
        outputs: Sequence[tuple[str, Element]],
        rows: Sequence[int],
        why: str,
    ) -> None:
        """The engine has the new fragments, or can't have them: ``why``."""
        if (self.state, self._token) != (_S.CUTTING, token) or self.plan is None:
            return
        if why:
            self._fail(now_us, "query.split", why)
            return
        self._shares = [each / sum(rows) for each in rows] if any(rows) else []
        try:
            for spec in self.plan.made:
                inner = reached_us.get(spec.name, {})
                saved = begins_with(spec, self._stands, self.plan.gone_ends, inner, self._node.name)
                hosted = self._node.make(spec, saved, make=SuccessorFragment)
                assert isinstance(hosted, SuccessorFragment)
                if self.follows:
                    hosted.follow_on(inner, outputs)
                else:
                    hosted.adopt(self.olds, inner, outputs)
                self.news[spec.name] = hosted
                self._writing.add(hosted.base(now_us))
        except (StateError, RemoteProtocolError) as error:
            self._fail(now_us, error.code, error.message)
            return
        self._step(_E.MADE)
        self._stands = []
        if self.follows:
            self.following = CatchUp(self._first, self.olds, self.news)
            self._look(now_us)

    def shadow(self, fragment: str) -> FragmentHost | None:
        """What follows under this name."""
        return self.news.get(fragment) if self.follows else None

    def persisted(self, now_us: int, token: int, ok: bool, why: str) -> bool:
        """A checkpoint or a segment was written, or not; whether it was of a new fragment."""
        news = self.news.values()
        if token not in self._writing:
            return self.follows and any(each.persisted(now_us, token, ok, why) for each in news)
        self._writing.discard(token)
        if ok and self.follows:
            any(hosted.persisted(now_us, token, ok) for hosted in news)
        if ok:
            self._look(now_us)
        else:
            self._fail(now_us, "E_DISK", why)
        return True

    # --- following --------------------------------------------------------------------------------

    def _goes_on(self, now_us: int, following: CatchUp) -> bool:
        """Feed the new ones; whether nothing is in the way."""
        first = self._first
        try:
            following.step(now_us)
        except RemoteProtocolError as error:
            if self.state is _S.SWITCHING:
                raise
            self._fail(now_us, error.code, error.message)
            return False
        if self.state is _S.SWITCHING:
            return True  # The disk may say already that the new ones are there.
        if first.tap is not None and first.tap.broken:
            text = f"fragment {first.spec.name!r}: {first.tap.broken}"
            self._fail(now_us, "E_BUSY", text, "try again in a moment")
            return False
        failed = next((each for each in (*self.olds, *self.news.values()) if each.failed), None)
        if failed is not None:
            self._fail(now_us, "E_FAILED", f"fragment {failed.spec.name!r} has failed: {failed.failed}")
        return failed is None

    # --- the switch -------------------------------------------------------------------------------

    def _switch(self, now_us: int) -> None:
        """One record says that the new ones are there, and the old ones are not."""
        node = self._node
        if self._saver.disk_error:
            self._unwritable(now_us)
            return
        self._step(_E.NEAR)
        self._becoming = PendingReplacement(
            gone=self.gone,
            made=tuple(hosted.spec for hosted in self.news.values()),
            epoch=max(node.catalog.ownership.epoch(name) for name in self.gone) + 1,
        )
        node.catalog.becomes(self._becoming)
        self._token = self._saver.save()
        if (tap := self._first.tap) is not None:
            tap.close()

    def _settle(self, now_us: int) -> None:
        """It is on disk. Those that follow are fed the rest, while nothing comes after it."""
        if self.following is not None:
            if not self._first.frozen:
                self._rest(now_us)
                for hosted in self.olds:
                    hosted.rest(now_us)  # What is between them has been made by the new ones too.
                self.following.step(now_us)
            busy = any(hosted.under_way and not hosted.failed for hosted in self.olds)
            if busy or not self.following.done:
                return
        self._go(now_us)

    def _go(self, now_us: int) -> None:
        """The new ones go on, and nothing is left of the old ones."""
        assert self.plan is not None
        assert self._becoming is not None
        node, plan = self._node, self.plan
        catalog, kept = node.catalog, node.catalog.ownership
        self._step(_E.DONE)
        kept.replace(self.gone, [*self.news])
        for name in self.gone:
            del node.fragments[name]
            catalog.fragments.pop(name, None)
            kept.epochs.pop(name, None)
            self._outbox.append(CloseFragment(fragment=name))
        owner = catalog.owners[plan.made[0].query]
        for name, hosted in self.news.items():
            node.diverting.back(name)
            hosted.take_over(now_us, self.olds, plan.gone_ends)
            catalog.add(hosted.spec, owner)
            kept.epochs[name] = self._becoming.epoch
            node.fragments[name] = hosted
        for hosted in self.news.values():
            hosted.go(now_us, node.name)
        what = "box merged" if plan.merges else "box split"
        self._outbox.report("info", what, box=plan.box, fragments=", ".join(self.news))
        pause_us = max(self._paused_us, now_us - self._stopped_us, 1)  # 0 says that it was so already.
        if self.follows:
            self._token = self._saver.save()  # They are listed with it: only now they are here.
        told = {"node": node.name, "fragments": list(self.news), "pause_us": pause_us}
        if not plan.merges:
            told |= {"ranges": cuts_of(plan.whole, plan.box), "shares": self._shares}
        node.completed.done(self.client, self.order.request, self._token, msgspec.json.encode(told))

    # --- ends -------------------------------------------------------------------------------------

    def _fail(self, now_us: int, code: str, text: str, hint: str = "", event: SplitEvent = _E.FAILED) -> None:
        """It can't be: the old ones go on as if nothing had been."""
        self._step(event)
        self._room.give_back()
        for fragment in self.plan.made if self.plan is not None else ():
            self._outbox.append(CloseFragment(fragment=fragment.name))
        for hosted in self.olds:
            hosted.tapped(None)
            for output in hosted.outputs.values():
                output.spilling.resume()
            hosted.thaw(now_us)
        self._refuse(code, text, hint)

    def _unwritable(self, now_us: int) -> None:
        text = f"node {self._node.name!r} can't write its catalog: {self._saver.disk_error}"
        self._fail(now_us, "E_DISK", text, "make room in its data folder, then ask again", _E.UNWRITABLE)

    def _refuse(self, code: str, text: str, hint: str = "") -> None:
        refuse(self._outbox, self.client, self.order.request, code, text, hint)

    def removed(self, fragments: Sequence[str]) -> None:
        """A query is no more; these of its fragments were here."""
        if not set(self.gone) & set(fragments):
            return
        self._step(_E.REMOVED)
        made = () if self.plan is None else (*self.plan.gone, *(each.name for each in self.plan.made))
        for name in made:
            if name not in fragments:
                self._outbox.append(CloseFragment(fragment=name))
        self._refuse("E_REMOVED", f"fragment {self.gone[0]!r} was removed")

    def stop(self, now_us: int) -> None:
        """The node ends: what isn't on its way to the catalog stays as it was."""
        if self.state is not _S.SWITCHING:
            self._fail(now_us, "E_BROKEN", f"node {self._node.name!r} ends")
            return
        for hosted in self.olds:
            hosted.freeze()  # A last checkpoint would let upstream forget what the new ones need.
        for hosted in self.news.values():
            hosted.stop(now_us)

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what is due; also after anything was fed or written."""
        asking, waited_us = self.state is _S.ASKING, now_us - self._begun_us
        if asking and waited_us >= ASK_US:
            node, about = self._coordinator, self._question.query
            if self.agreed:
                text = f"more than half of the voters of query {about!r} haven't agreed in time"
                self._fail(now_us, "E_TIMEOUT", text, "order it again when they are there")
                return
            if self._runs:
                names = ", ".join(map(repr, self._room.silent))
                text = (
                    f"no answer from {names} in {ASK_US // 1_000_000} s: whether there is room for the parts"
                )
                self._fail(now_us, "E_TIMEOUT", text, "order it again")
                return
            silent = f"no answer from {node!r} in {ASK_US // 1_000_000} s"
            text = f"{self._node.told_away(now_us, node) or silent}: it coordinates query {about!r}"
            self._fail(now_us, "E_TIMEOUT", text, "order it again when it is back")
        elif self.state is _S.DRAINING and waited_us >= DRAIN_US:
            text = f"rows on their way did not arrive in {DRAIN_US // 1_000_000} s"
            self._fail(now_us, "E_TIMEOUT", text, "try again in a moment")
        else:
            if asking and not self.agreed and now_us - self._asked_us >= ASK_AGAIN_US:
                self.ask(now_us)
            self._look(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        if self.state is _S.ASKING:
            return self._begun_us + ASK_US if self.agreed else self._asked_us + ASK_AGAIN_US
        return self._begun_us + DRAIN_US if self.state is _S.DRAINING else None


def has_all(node: str, hosted: FragmentHost, olds: Sequence[FragmentHost]) -> bool:
    """Whether a fragment was fed all that these fragments of its node have sent."""
    sent = {output.stream: output.sender.log for old in olds for output in old.outputs.values()}
    reads = [each for each in hosted.inputs.values() if each.peer == node and each.stream in sent]
    return all(
        (each.fed_seq, each.fed_us) == (sent[each.stream].next_seq, sent[each.stream].boundary_us)
        for each in reads
    )
