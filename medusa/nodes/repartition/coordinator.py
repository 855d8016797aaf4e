"""Boxes of this node's fragments that are split, or merged again, while rows flow. No IO.

    asking ── the coordinator agrees ──> draining ── all is at rest ──> cutting ── the engine has made the new
    fragments ──> writing ── their checkpoints are on disk ──> switching ── the catalog is ──> they go on

Where ranges go by weight the engine finds them before draining (weighing), while rows flow on.
Until the catalog that names the new fragments is on disk, the old ones are what there is: whatever goes wrong
before, they go on, and a node that dies finds them. So the names change here when it is, not before: a write
that fails is as if it had never been tried. After it there are only the new ones. Their streams to
and from others are those of the old ones, at the same rows, so no neighbour notices (docs/splitting.md).
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import msgspec

from medusa.errors import LinkError, QueryError
from medusa.nodes.catalog.catalog import Catalog
from medusa.nodes.catalog.persistence import Saver
from medusa.nodes.config.settings import Settings
from medusa.nodes.fragment.host import Hosted
from medusa.nodes.migration.rerouting import Diverting
from medusa.nodes.names.unreachable_peers import Away
from medusa.nodes.placement.repartition_plan import Replan, replan_merge, replan_split, set_of
from medusa.nodes.repartition.completed_orders import already, cuts_ordered
from medusa.nodes.repartition.steps import Job, Step, Steps
from medusa.nodes.spec.fragment_spec import Fragment
from medusa.wire import limits
from medusa.wire.messages.links_and_commands import Reply
from medusa.wire.messages.rerouting import Placed
from medusa.wire.messages.split import Merge, Split
from medusa.wire.outbox import CloseFragment, Outbox, Weigh
from medusa.wire.status import SplitStatus

__all__ = ["Splits", "Step"]

ASK_AGAIN_US = 500_000
"""An unanswered question is asked again after this."""

ASK_US = 5_000_000
"""The coordinator has so long to answer."""

DRAIN_US = 10_000_000
"""What is on its way between the parts arrives within this, or they go on as they were."""


class Splits(Steps):
    """What a node does when boxes of its fragments are split or merged.

    Args:
        fragments: what runs here, by name.
        make: makes the mind of a fragment from what it begins with.
        room: refuses these fragments instead of those that are ``gone`` with a ``LinkError``.
        moving: whether a fragment is on its way elsewhere.
    """

    def __init__(
        self,
        settings: Settings,
        catalog: Catalog,
        fragments: MutableMapping[str, Hosted],
        *,
        outbox: Outbox,
        saver: Saver,
        diverting: Diverting,
        next_token: Callable[[], int],
        make: Callable[..., Any],
        room: Callable[..., None],
        moving: Callable[[str], bool],
        away: Away,
    ) -> None:
        self._me = settings.name
        self._settings = settings
        self._catalog = catalog
        self._kept = catalog.ownership
        self._fragments = fragments
        self._outbox = outbox
        self._saver = saver
        self._diverting = diverting
        self._next_token = next_token
        self._make = make
        self._room = room
        self._moving = moving
        self._away = away
        self._jobs = []
        self._done = {}

    def busy(self, fragment: str) -> bool:
        """Whether it is just being split or merged."""
        return any(fragment in job.gone for job in self._jobs)

    def status(self) -> tuple[SplitStatus, ...]:
        """What is under way."""
        return tuple(
            SplitStatus(
                box=f"{job.order.fragment.partition('/')[0]}/{job.order.box}",
                what="merge" if isinstance(job.order, Merge) else "split",
                state=job.step.value,
                fragments=tuple(job.gone),
            )
            for job in self._jobs
        )

    # --- orders -----------------------------------------------------------------------------------

    def known(self, peer: str, request: int) -> bool:
        """Whether this very order is done, or under way; then its answer comes (again)."""
        if (done := self._done.get((peer, request))) is not None:
            self._saver.send(peer, Reply(request=request), done[1], after=done[0])
        return done is not None or any((peer, request) in job.answers for job in self._jobs)

    def already(self, peer: str, order: Split | Merge) -> bool:
        """Whether all is as ordered, since it was done and who ordered it didn't hear so; then it does."""
        specs = {name: hosted.spec for name, hosted in self._fragments.items() if not self.busy(name)}
        try:
            told = already(order, specs, self._kept.replaced, self._me)
        except LinkError as error:
            self._refuse(peer, order.request, error.code, error.message, error.hint)
            return True
        if told is not None:
            self._outbox.send(peer, Reply(request=order.request), msgspec.json.encode(told))
        return told is not None

    def order(self, now_us: int, peer: str, order: Split | Merge) -> None:
        """Somebody wants a box of a fragment of ours split or merged; hears when it is done, or why not."""
        try:
            gone = self._check(order)
        except (QueryError, LinkError) as error:
            self._refuse(peer, order.request, error.code, error.message, error.hint)
            return
        number, query = self._diverting.number(), self._fragments[order.fragment].spec.query
        question = Placed(request=number, query=query, fragment=order.fragment, node=self._me)
        coordinator = self._catalog.owners.get(query, self._me)
        job = Job(order=order, answers=[(peer, order.request)], gone=gone, begun_us=now_us, asked_us=now_us)
        job.question = coordinator, question
        self._jobs.append(job)
        self._outbox.send(coordinator, question)

    def _check(self, order: Split | Merge) -> tuple[str, ...]:
        """The fragments that it is about.

        Raises:
            QueryError, LinkError: it can't be, or not now.
        """
        if self._settings.store == "memory":
            raise LinkError(
                f"node {self._me!r} keeps nothing over its end, so its boxes stay as they are",
                hint="deploy the query split",
                code="E_STORE",
            )
        plan = self._plan(order, cuts_ordered(order))
        for name in plan.gone:
            hosted = self._fragments[name]
            if hosted.failed:
                raise LinkError(f"fragment {name!r} has failed: {hosted.failed}", code="E_FAILED")
            why = self._diverting.busy(hosted.spec)
            if self.busy(name):
                why = f"fragment {name!r} is being split or merged"
            elif self._moving(name) or name in self._kept.unplaced:
                why = f"fragment {name!r} is being moved"
            elif any(output.spilling.away for output in hosted.outputs.values()):
                why = f"output of fragment {name!r} waits on disk for readers that are behind"
            if why:
                raise LinkError(why, hint="try again in a moment", code="E_BUSY")
        self._check_room(plan)
        return plan.gone

    def _check_room(self, plan: Replan) -> None:
        """Whether there is room for all of them, and those of other boxes that are just being split."""
        if not plan.merges:
            plans = [plan, *(job.plan for job in self._jobs if job.plan is not None and not job.plan.merges)]
            gone = [self._fragments[name].spec for each in plans for name in each.gone]
            self._room(*(made for each in plans for made in each.made), gone=gone)

    def _plan(self, order: Split | Merge, cuts: Sequence[int] | None) -> Replan:
        spec, taken = self._fragments[order.fragment].spec, self._fragments.keys()
        if isinstance(order, Split):
            self._check_ours(spec, order.box)
            epoch = self._kept.epoch(order.fragment) + 1
            return replan_split(
                spec, order.box, order.parts, cuts=cuts, node=self._me, epoch=epoch, taken=taken
            )
        specs = set_of((each.spec for each in self._fragments.values()), spec, order.box, self._me)
        return replan_merge(specs, order.box, node=self._me, taken=taken)

    def _check_ours(self, spec: Fragment, box: str) -> None:
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

    def _refuse(self, peer: str, request: int, code: str, text: str, hint: str) -> None:
        most = limits.TEXT_CHARS_MAX
        self._outbox.send(peer, Reply(request=request, code=code, text=text[:most], hint=hint[:most]))

    # --- steps ------------------------------------------------------------------------------------

    def answered(self, now_us: int, peer: str, reply: Reply) -> bool:
        """The coordinator answers; whether the question was ours."""
        for job in self._jobs:
            if job.question is None or (job.question[0], job.question[1].request) != (peer, reply.request):
                continue
            if reply.code:
                self._end(now_us, job, reply.code, f"node {peer!r}: {reply.text}", reply.hint)
            elif job.step is Step.ASKING:
                job.question = None
                self._weigh(now_us, job)
            return True
        return False

    def _weigh(self, now_us: int, job: Job) -> None:
        """Where its ranges end, if that goes by what the box holds now."""
        order, job.cuts = job.order, cuts_ordered(job.order)
        if not isinstance(order, Split) or order.ranges != "weight":
            self._drain(now_us, job)
            return
        job.step, job.token = Step.WEIGHING, self._next_token()
        self._outbox.append(Weigh(token=job.token, fragment=order.fragment, box=order.box, parts=order.parts))

    def weighed(self, now_us: int, token: int, cuts: tuple[int, ...], why: str) -> None:
        """The engine has found where ranges end, or there are none: ``why``."""
        for job in [each for each in self._jobs if (each.step, each.token) == (Step.WEIGHING, token)]:
            if why:
                self._end(now_us, job, "query.split", why)
            else:
                job.cuts = cuts
                self._drain(now_us, job)

    # --- ends -------------------------------------------------------------------------------------

    def _forget(self, job: Job) -> None:
        self._jobs.remove(job)
        if job.becoming is not None:
            self._catalog.becoming.remove(job.becoming)

    def _end(self, now_us: int, job: Job, code: str, text: str, hint: str = "") -> None:
        """It can't be: the old ones go on as if nothing had been."""
        self._forget(job)
        self._close_new(job)
        for hosted in job.olds:
            hosted.tap = None
            for output in hosted.outputs.values():
                output.spilling.resume()
            hosted.thaw(now_us)
        for peer, request in job.answers:
            self._refuse(peer, request, code, text, hint)

    def removed(self, fragments: Sequence[str]) -> None:
        """A query is no more; these of its fragments were here."""
        for job in [each for each in self._jobs if set(each.gone) & set(fragments)]:
            self._forget(job)
            made = () if job.plan is None else (*job.plan.gone, *(each.name for each in job.plan.made))
            for name in made:
                if name not in fragments:
                    self._outbox.append(CloseFragment(fragment=name))
            for peer, request in job.answers:
                self._refuse(peer, request, "E_REMOVED", f"fragment {job.gone[0]!r} was removed", "")

    def stop(self, now_us: int) -> None:
        """The node ends: what isn't on its way to the catalog stays as it was."""
        for job in list(self._jobs):
            if job.step is not Step.SWITCHING:
                self._end(now_us, job, "E_BROKEN", f"node {self._me!r} ends")
                continue
            for hosted in job.olds:
                hosted.freeze()  # A last checkpoint would let upstream forget what the new ones need.
            for hosted in job.news.values():
                hosted.stop(now_us)

    # --- time -------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Do what is due; also after anything was fed or written."""
        for job in list(self._jobs):
            if job.question is not None and now_us - job.begun_us >= ASK_US:
                node, about = job.question[0], job.question[1].query
                silent = f"no answer from {node!r} in {ASK_US // 1_000_000} s"
                text = f"{self._away.told(now_us, [node]) or silent}: it coordinates query {about!r}"
                self._end(now_us, job, "E_TIMEOUT", text, "order it again when it is back")
            elif job.step is Step.DRAINING and now_us - job.begun_us >= DRAIN_US:
                text = f"rows on their way did not arrive in {DRAIN_US // 1_000_000} s"
                self._end(now_us, job, "E_TIMEOUT", text, "try again in a moment")
            else:
                if job.question is not None and now_us - job.asked_us >= ASK_AGAIN_US:
                    job.asked_us = now_us
                    self._outbox.send(*job.question)
                self._look(now_us, job)

    def wake_at_us(self) -> int | None:
        """When ``tick`` has work."""
        if not self._jobs:
            return None
        times = [job.asked_us + ASK_AGAIN_US for job in self._jobs if job.question is not None]
        times += [job.begun_us + DRAIN_US for job in self._jobs if job.step is Step.DRAINING]
        return min(times, default=None)
