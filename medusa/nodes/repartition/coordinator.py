"""Boxes of this node's fragments that are split, or merged again, while rows flow. No IO.

Orders are checked and answered here; ``RepartitionJob`` takes each through the steps of ``automaton``. The
streams of the new fragments to and from others are those of the old ones, at the same rows, so no neighbour
notices (docs/splitting.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import msgspec

from medusa.elements import Element
from medusa.errors import LinkError, QueryError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import CatalogWriter
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.host import FragmentHost
from medusa.nodes.migration.rerouting import Rerouting
from medusa.nodes.names.unreachable_peers import UnreachablePeers
from medusa.nodes.placement.repartition_plan import Replan, replan_merge, replan_split, set_of
from medusa.nodes.recovery.guards import Guards
from medusa.nodes.repartition.completed_orders import CompletedOrders, already, cuts_ordered, refuse
from medusa.nodes.repartition.followers_room import FollowersRoom
from medusa.nodes.repartition.job import NodeServices, RepartitionJob
from medusa.nodes.spec.fragment_spec import FragmentSpec
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.split import Merge, Split
from medusa.wire.outbox import Outbox
from medusa.wire.status_and_metrics import SplitStatus

__all__ = ["RepartitionCoordinator"]


class RepartitionCoordinator:
    """What a node does when boxes of its fragments are split or merged.

    Args:
        fragments: what runs here, by name.
        make: makes a fragment from what it begins with.
        room: refuses these fragments instead of those that are ``gone`` with a ``LinkError``.
        moving: whether a fragment is on its way elsewhere.
        guards: of those that others stand by for.
        elsewhere: names of a query's fragments at other nodes, as far as they are known here.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: MutableMapping[str, FragmentHost],
        *,
        outbox: Outbox,
        saver: CatalogWriter,
        diverting: Rerouting,
        next_token: Callable[[], int],
        make: Callable[..., Any],
        room: Callable[..., None],
        moving: Callable[[str], bool],
        guards: Guards,
        away: UnreachablePeers,
        elsewhere: Callable[[str], Collection[str]],
    ) -> None:
        self._elsewhere = elsewhere
        self._me = settings.name
        self._settings = settings
        self._catalog = catalog
        self._kept = catalog.ownership
        self._fragments = fragments
        self._outbox = outbox
        self._diverting = diverting
        self._room = room
        self._moving = moving
        self._guards = guards
        self._jobs: list[RepartitionJob] = []
        self._completed = CompletedOrders(saver)
        self._node = NodeServices(
            settings=settings,
            catalog=catalog,
            fragments=fragments,
            outbox=outbox,
            saver=saver,
            diverting=diverting,
            next_token=next_token,
            make=make,
            guards=guards,
            away=away,
            completed=self._completed,
        )

    def busy(self, fragment: str) -> bool:
        """Whether it is just being split or merged."""
        return any(fragment in job.gone for job in self._jobs)

    def alone(self, fragment: str) -> bool:
        """Whether it is to be split or merged once nobody stands by for it."""
        return any(fragment in job.gone and job.agreed for job in self._jobs)

    def status(self) -> tuple[SplitStatus, ...]:
        """What is under way."""
        return tuple(job.status() for job in self._jobs)

    # --- orders -----------------------------------------------------------------------------------

    def known(self, peer: str, request: int) -> bool:
        """Whether this very order is done, or under way; then its answer comes (again)."""
        under_way = any((peer, request) == (job.client, job.order.request) for job in self._jobs)
        return self._completed.repeat(peer, request) or under_way

    def already(self, peer: str, order: Split | Merge) -> bool:
        """Whether all is as ordered, since it was done and who ordered it didn't hear so; then it does."""
        specs = {name: hosted.spec for name, hosted in self._fragments.items() if not self.busy(name)}
        try:
            told = already(order, specs, self._kept.replaced, self._me)
        except LinkError as error:
            refuse(self._outbox, peer, order.request, error.code, error.message, error.hint)
            return True
        if told is not None:
            self._outbox.send(peer, Reply(request=order.request), msgspec.json.encode(told))
        return told is not None

    def order(self, now_us: int, peer: str, order: Split | Merge) -> None:
        """Somebody wants a box of a fragment of ours split or merged; hears when it is done, or why not."""
        try:
            plan = self._check(order)
        except (QueryError, LinkError) as error:
            refuse(self._outbox, peer, order.request, error.code, error.message, error.hint)
            return
        query = self._fragments[order.fragment].spec.query
        coordinator = self._catalog.coordinator_of(query, self._me)
        job = RepartitionJob(
            self._node,
            self,
            order,
            client=peer,
            gone=plan.gone,
            room=self._room_elsewhere(order, plan),
            coordinator=coordinator,
            now_us=now_us,
            ended=self._jobs.remove,
        )
        self._jobs.append(job)
        with self._outbox.caused_by(peer, order.request):
            job.ask(now_us)

    def _room_elsewhere(self, order: Split | Merge, plan: Replan) -> FollowersRoom:
        nodes = self._guards.followers(order.fragment)
        return FollowersRoom(
            outbox=self._outbox,
            number=self._diverting.number() if nodes else 0,
            fragment=order.fragment,
            plan=plan,
            nodes=nodes,
            is_up=self._guards.is_up,
        )

    def _check(self, order: Split | Merge) -> Replan:
        """What it would make of what.

        Raises:
            QueryError, LinkError: it can't be, or not now.
        """
        if self._settings.forgets:
            raise LinkError(
                f"node {self._me!r} keeps nothing over its end, so its boxes stay as they are",
                hint="deploy the query split",
                code="E_STORE",
            )
        plan = self.plan(order, cuts_ordered(order))
        for name in plan.gone:
            hosted = self._fragments[name]
            if hosted.failed:
                raise LinkError(f"fragment {name!r} has failed: {hosted.failed}", code="E_FAILED")
            if hosted.forgets:
                text = f"fragment {name!r} is recovered by amnesia, so its boxes stay as they are"
                raise LinkError(text, hint="deploy the query split", code="E_STORE")
            if hosted.spec.reads_again:
                text = f"fragment {name!r} is recovered by upstream backup, so its boxes stay as they are"
                raise LinkError(text, hint="deploy the query split", code="E_STORE")
            why = self._diverting.busy(hosted.spec)
            if self.busy(name):
                why = f"fragment {name!r} is being split or merged"
            elif self._moving(name) or name in self._kept.unplaced:
                why = f"fragment {name!r} is being moved"
            elif any(output.spilling.away for output in hosted.outputs.values()):
                why = f"output of fragment {name!r} waits on disk for readers that are behind"
            elif hosted.rested.disk_bytes:
                why = f"input of fragment {name!r} waits on disk for one that is missing"
            if why:
                raise LinkError(why, hint="try again in a moment", code="E_BUSY")
            self._guards.check(hosted.spec)
        self._guards.check_room(plan.gone, plan.made)
        self.check_room(plan)
        return plan

    def check_room(self, plan: Replan) -> None:
        """Whether there is room for all of them, and those of other boxes that are just being split."""
        if not plan.merges:
            plans = [plan, *(job.plan for job in self._jobs if job.plan is not None and not job.plan.merges)]
            gone = [self._fragments[name].spec for each in plans for name in each.gone]
            self._room(*(made for each in plans for made in each.made), gone=gone)

    def plan(self, order: Split | Merge, cuts: Sequence[int] | None) -> Replan:
        """What takes the place of what.

        Raises:
            QueryError, LinkError: it can't be.
        """
        spec, taken = self._fragments[order.fragment].spec, {*self._fragments}
        if spec.standby:  # Who has a guarded fragment is decided by its name, over all nodes of the query.
            taken |= {*self._elsewhere(spec.query)}
        if isinstance(order, Split):
            self._check_ours(spec, order.box)
            epoch = self._kept.epoch(order.fragment) + 1
            return replan_split(
                spec, order.box, order.parts, cuts=cuts, node=self._me, epoch=epoch, taken=taken
            )
        specs = set_of((each.spec for each in self._fragments.values()), spec, order.box, self._me)
        return replan_merge(specs, order.box, node=self._me, taken=taken)

    def _check_ours(self, spec: FragmentSpec, box: str) -> None:
        """What bears the name of the box here may only read what that sends, from another participant's node.

        Raises:
            QueryError: it does.
        """
        feed = next((feed for feed in spec.feeds if feed.source == box and box not in spec.reads()), None)
        whose = self._settings.participant if feed is None else self._diverting.participant_of(feed.node)
        if feed is not None and whose != self._settings.participant:
            text = (
                f"box {box!r} runs at node {feed.node!r} of participant {whose!r}, for query {spec.query!r}"
            )
            hint = f"what {whose} runs can't be split from here; deploy the query split"
            raise QueryError(text, hint=hint, code="query.split")

    # --- what jobs wait for -----------------------------------------------------------------------

    def _each(self) -> Iterator[RepartitionJob]:
        """What is under way; what comes of it while the caller looks at a job is caused by its order."""
        for job in list(self._jobs):
            with self._outbox.caused_by(job.client, job.order.request):
                yield job

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """A node answers; whether the question was of a job."""
        ours = [job.answered(now_us, peer, reply) for job in self._each()]
        return any(ours)

    def weighed(self, now_us: int, token: int, cuts: tuple[int, ...], why: str) -> None:
        """The engine has found where ranges end, or there are none: ``why``."""
        for job in self._each():
            job.weighed(now_us, token, cuts, why)

    def remade(
        self,
        now_us: int,
        token: int,
        reached_us: Mapping[str, Mapping[str, int]],
        outputs: Sequence[tuple[str, Element]],
        rows: Sequence[int],
        why: str,
    ) -> None:
        """The engine has the new fragments of a job, or can't have them: ``why``."""
        for job in self._each():
            job.remade(now_us, token, reached_us, outputs, rows, why)

    def shadow(self, fragment: str) -> FragmentHost | None:
        """What follows under this name."""
        return next((found for job in self._jobs if (found := job.shadow(fragment)) is not None), None)

    def persisted(self, now_us: int, token: int, ok: bool, why: str) -> bool:
        """A checkpoint or a segment was written, or not; whether it was of a new fragment."""
        ours = [job.persisted(now_us, token, ok, why) for job in self._each()]
        return any(ours)

    def removed(self, fragments: Sequence[str]) -> None:
        """A query is no more; these of its fragments were here."""
        for job in self._each():
            job.removed(fragments)

    def stop(self, now_us: int) -> None:
        """The node ends."""
        for job in self._each():
            job.stop(now_us)

    def tick(self, now_us: int) -> None:
        """Do what is due; also after anything was fed or written."""
        for job in self._each():
            job.tick(now_us)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        times = (job.wake_at_us() for job in self._jobs)
        return min((time for time in times if time is not None), default=None)
