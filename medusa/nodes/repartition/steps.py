"""The steps of one split or merge, once it is agreed on. No IO.

``splits`` takes orders, checks them and answers; ``following`` feeds the new fragments while the old ones go
on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec

from medusa.elements import Element
from medusa.errors import LinkError, QueryError, RemoteProtocolError, StateError
from medusa.nodes.catalog.catalog import Becoming, Catalog
from medusa.nodes.catalog.kept_moves import Ownership
from medusa.nodes.catalog.persistence import Saver
from medusa.nodes.config.settings import Settings, stream_link
from medusa.nodes.fragment.change_feed import Tap
from medusa.nodes.fragment.checkpointing import Saved
from medusa.nodes.fragment.clock_decisions import decides
from medusa.nodes.fragment.host import Hosted
from medusa.nodes.migration.rerouting import Diverting
from medusa.nodes.placement.repartition_plan import Arcs, Replan
from medusa.nodes.repartition.catch_up import Following
from medusa.nodes.repartition.successor import Regrouped, begins_with, stands
from medusa.nodes.spec.fragment_spec import Fragment
from medusa.query.boxes import Aggregate
from medusa.query.rewrite.split import cuts_of, find_split
from medusa.wire.messages.links_and_commands import Reply
from medusa.wire.messages.rerouting import Placed
from medusa.wire.messages.split import Merge, Split
from medusa.wire.outbox import CloseFragment, Outbox, Regroup

__all__ = ["ANSWERS_KEPT", "Job", "Step", "Steps"]

ANSWERS_KEPT = 100
"""Orders that were done and are remembered, since a client whose answer was lost asks again."""


class Step(Enum):
    """How far a split or merge is."""

    ASKING = "asking"
    WEIGHING = "weighing"
    DRAINING = "draining"
    CUTTING = "cutting"
    WRITING = "writing"
    FOLLOWING = "following"
    SWITCHING = "switching"


@dataclass(slots=True, kw_only=True)
class Job:
    """One split or merge.

    Attributes:
        token: of what the next step waits for.
        cuts: where ranges end; None: they are even.
        shares: of what the box held, by part.
        follows: the old ones go on after they were copied; else they rest until they are no more.
        stands: where they stood then.
        paused_us: the longest time for which nothing was fed, so far.
    """

    order: Split | Merge
    answers: list[tuple[str, int]]
    gone: tuple[str, ...]
    begun_us: int
    asked_us: int
    step: Step = Step.ASKING
    question: tuple[str, Placed] | None = None
    stopped_us: int = 0
    paused_us: int = 0
    token: int = 0
    cuts: Sequence[int] | None = None
    shares: list[float] = field(default_factory=list)
    plan: Replan | None = None
    olds: list[Hosted] = field(default_factory=list)
    news: dict[str, Regrouped] = field(default_factory=dict)
    writing: set[int] = field(default_factory=set)
    becoming: Becoming | None = None
    follows: bool = False
    stands: list[tuple[Fragment, Saved]] = field(default_factory=list)
    following: Following | None = None

    @property
    def gone_ends(self) -> Arcs:
        """Of the old ones, those that aren't any more."""
        return self.plan.arcs if self.plan is not None and self.plan.merges else {}


class Steps(ABC):
    """What is done with a job, step by step."""

    _me: str
    _settings: Settings
    _catalog: Catalog
    _kept: Ownership
    _fragments: MutableMapping[str, Hosted]
    _outbox: Outbox
    _saver: Saver
    _diverting: Diverting
    _next_token: Callable[[], int]
    _make: Callable[..., Any]
    _jobs: list[Job]
    _done: dict[tuple[str, int], tuple[int, bytes]]
    """Who ordered what is done -> the token that holds it, and the answer."""

    @abstractmethod
    def _plan(self, order: Split | Merge, cuts: Sequence[int] | None) -> Replan:
        """What takes the place of what."""

    @abstractmethod
    def _check_room(self, plan: Replan) -> None:
        """Refuse what there is no room for."""

    @abstractmethod
    def _end(self, now_us: int, job: Job, code: str, text: str, hint: str = "") -> None:
        """It can't be: the old ones go on as if nothing had been."""

    def _no_disk(self, now_us: int, job: Job) -> None:
        text = f"node {self._me!r} can't write its catalog: {self._saver.disk_error}"
        self._end(now_us, job, "E_DISK", text, "make room in its data folder, then ask again")

    # --- to rest ----------------------------------------------------------------------------------

    def _drain(self, now_us: int, job: Job) -> None:
        """No more rows from outside; those that are on their way between the fragments arrive."""
        job.step, job.begun_us = Step.DRAINING, now_us
        job.olds = [self._fragments[name] for name in job.gone]
        job.follows = self._may_follow(job)
        self._rest(now_us, job)
        self._look(now_us, job)

    def _may_follow(self, job: Job) -> bool:
        """Whether new fragments that are fed the same give the same, bit for bit, whatever comes between."""
        try:
            plan = self._plan(job.order, job.cuts)
        except QueryError:
            return False  # The next step says so.
        boxes = find_split(plan.whole, plan.box).merges
        partial = any(isinstance(each, Aggregate) and each.stage == "combine" for each in boxes)
        if any(old.spec.guests for old in job.olds):
            return False  # Their streams begin at rows of their own, and they may leave meanwhile.
        known = {stream for old in job.olds for stream in old.spec.streams.values()}
        inner = [s for each in plan.made for s in each.streams.values() if s not in known]
        if any(stream_link(self._settings, stream).at_limit == "shed" for stream in inner):
            return False  # All that they give each other is kept until they take over.
        decided = any(old.mixed for old in job.olds) or any(decides(each.graph) for each in plan.made)
        return not (partial or decided)

    def _rest(self, now_us: int, job: Job) -> None:
        """What gets rows from outside is fed nothing more."""
        held_us = job.following.held_us if job.following is not None else None
        job.stopped_us = now_us if held_us is None else held_us
        _rest(now_us, self._fragments[job.order.fragment])
        for hosted in job.olds:
            hosted.settling = True  # A part that came just now may not have attached yet.
            for output in hosted.outputs.values():
                output.spilling.paused = True

    def _look(self, now_us: int, job: Job) -> None:
        """Whether the next step can be taken."""
        if job.following is not None and not self._goes_on(now_us, job, job.following):
            return
        match job.step:
            case Step.DRAINING:
                if any(hosted.failed for hosted in job.olds):
                    self._end(now_us, job, "E_FAILED", "a fragment has failed")
                elif self._at_rest(now_us, job):
                    self._cut(now_us, job)
            case Step.WRITING:
                if not job.writing and job.following is None:
                    self._switch(now_us, job)
                elif not job.writing:
                    job.step = Step.FOLLOWING
                    self._look(now_us, job)
            case Step.FOLLOWING:
                if job.following is not None and job.following.near:
                    self._switch(now_us, job)
            case Step.SWITCHING:
                if self._saver.durable >= job.token:
                    self._settle(now_us, job)
                elif self._saver.resting:
                    self._no_disk(now_us, job)
            case _:
                pass

    def _at_rest(self, now_us: int, job: Job) -> bool:
        """Nothing is under way in the fragments nor between them."""
        for hosted in job.olds:
            if not self._has_all(hosted, job.olds):
                return False
            if not hosted.frozen:
                if hosted.under_way or hosted.waiting():
                    return False
                _rest(now_us, hosted)
            if hosted.under_way or not (hosted.quiet or job.follows):
                return False
        return True

    def _has_all(self, hosted: Hosted, olds: Sequence[Hosted]) -> bool:
        """It was fed all that others of the set have sent."""
        sent = {output.stream: output.sender.log for old in olds for output in old.outputs.values()}
        reads = [each for each in hosted.inputs.values() if each.peer == self._me and each.stream in sent]
        return all(
            (each.fed_seq, each.fed_us) == (sent[each.stream].next_seq, sent[each.stream].boundary_us)
            for each in reads
        )

    # --- new ones ---------------------------------------------------------------------------------

    def _cut(self, now_us: int, job: Job) -> None:
        try:
            plan = self._plan(job.order, job.cuts)
            self._check_room(plan)
        except (QueryError, LinkError) as error:
            self._end(now_us, job, error.code, error.message, error.hint)
            return
        if any(output.spilling.away for old in job.olds for output in old.outputs.values()):
            text = f"output of fragment {job.gone[0]!r} waits on disk for readers that are behind"
            self._end(now_us, job, "E_BUSY", text, "try again in a moment")
            return
        job.plan = plan
        job.step, job.token = Step.CUTTING, self._next_token()
        job.stands = [
            (old.spec, stands(old, number, whole=job.follows)) for number, old in enumerate(job.olds, start=1)
        ]
        effect = Regroup(
            token=job.token,
            box=plan.box,
            merges=plan.merges,
            gone=plan.gone,
            whole=plan.whole,
            opened={each.name: each.graph for each in plan.made},
            arcs=plan.arcs,
            aside=job.follows,
        )
        self._outbox.append(effect)
        if job.follows:
            tap = self._fragments[job.order.fragment].tap = Tap()
            tap.begins(job.token)
            self._go_on(now_us, job)

    def _go_on(self, now_us: int, job: Job) -> None:
        """The old ones have been copied and may be fed again."""
        job.paused_us = max(job.paused_us, now_us - job.stopped_us)
        for hosted in job.olds:
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
        job = next((each for each in self._jobs if (each.step, each.token) == (Step.CUTTING, token)), None)
        if job is None or job.plan is None:
            return
        if why:
            self._end(now_us, job, "query.split", why)
            return
        job.shares = [each / sum(rows) for each in rows] if any(rows) else []
        try:
            for spec in job.plan.made:
                inner = reached_us.get(spec.name, {})
                saved = begins_with(spec, job.stands, job.gone_ends, inner, self._me)
                hosted = self._make(spec, saved, make=Regrouped)
                assert isinstance(hosted, Regrouped)
                if job.follows:
                    hosted.follow_on(inner, outputs)
                else:
                    hosted.adopt(job.olds, inner, outputs)
                job.news[spec.name] = hosted
                job.writing.add(hosted.base(now_us))
        except (StateError, RemoteProtocolError) as error:
            self._end(now_us, job, error.code, error.message)
            return
        job.step, job.stands = Step.WRITING, []
        if job.follows:
            first = self._fragments[job.order.fragment]
            job.following = Following(first, job.olds, job.news)
            self._look(now_us, job)

    def shadow(self, fragment: str) -> Hosted | None:
        """What follows under this name."""
        found = (job.news[fragment] for job in self._jobs if job.follows and fragment in job.news)
        return next(found, None)

    def persisted(self, now_us: int, token: int, ok: bool, why: str) -> bool:
        """A checkpoint or a segment was written, or not; whether it was of a new fragment."""
        for job in list(self._jobs):
            if token in job.writing:
                job.writing.discard(token)
                if ok and job.follows:
                    any(hosted.persisted(now_us, token, ok) for hosted in job.news.values())
                if ok:
                    self._look(now_us, job)
                else:
                    self._end(now_us, job, "E_DISK", why)
                return True
            if job.follows and any(each.persisted(now_us, token, ok, why) for each in job.news.values()):
                return True
        return False

    # --- following --------------------------------------------------------------------------------

    def _goes_on(self, now_us: int, job: Job, following: Following) -> bool:
        """Feed the new ones; whether nothing is in the way."""
        first = self._fragments[job.order.fragment]
        try:
            following.step(now_us)
        except RemoteProtocolError as error:
            if job.step is Step.SWITCHING:
                raise
            self._end(now_us, job, error.code, error.message)
            return False
        if job.step is Step.SWITCHING:
            return True  # The disk may say already that the new ones are there.
        if first.tap is not None and first.tap.broken:
            text = f"fragment {first.spec.name!r}: {first.tap.broken}"
            self._end(now_us, job, "E_BUSY", text, "try again in a moment")
            return False
        failed = next((each for each in (*job.olds, *job.news.values()) if each.failed), None)
        if failed is not None:
            self._end(now_us, job, "E_FAILED", f"fragment {failed.spec.name!r} has failed: {failed.failed}")
        return failed is None

    def _close_new(self, job: Job) -> None:
        for fragment in job.plan.made if job.plan is not None else ():
            self._outbox.append(CloseFragment(fragment=fragment.name))

    # --- the switch -------------------------------------------------------------------------------

    def _switch(self, now_us: int, job: Job) -> None:
        """One record says that the new ones are there, and the old ones are not."""
        if self._saver.disk_error:
            self._no_disk(now_us, job)
            return
        job.becoming = Becoming(
            gone=job.gone,
            made=tuple(hosted.spec for hosted in job.news.values()),
            epoch=max(self._kept.epoch(name) for name in job.gone) + 1,
        )
        self._catalog.becoming.append(job.becoming)
        job.step, job.token = Step.SWITCHING, self._saver.save()
        tap = self._fragments[job.order.fragment].tap
        if tap is not None:
            tap.closed = True

    def _settle(self, now_us: int, job: Job) -> None:
        """It is on disk. Those that follow are fed the rest, while nothing comes after it."""
        first = self._fragments[job.order.fragment]
        if job.following is not None:
            if not first.frozen:
                self._rest(now_us, job)
                for hosted in job.olds:
                    _rest(now_us, hosted)  # What is between them has been made by the new ones too.
                job.following.step(now_us)
            busy = any(hosted.under_way and not hosted.failed for hosted in job.olds)
            if busy or not job.following.done:
                return
        self._go(now_us, job)

    def _go(self, now_us: int, job: Job) -> None:
        """The new ones go on, and nothing is left of the old ones."""
        assert job.plan is not None
        assert job.becoming is not None
        self._jobs.remove(job)
        self._catalog.becoming.remove(job.becoming)
        self._kept.replaced = self._kept.replaced_by(job.gone, [*job.news])
        for name in job.gone:
            del self._fragments[name]
            self._catalog.fragments.pop(name, None)
            self._kept.epochs.pop(name, None)
            self._outbox.append(CloseFragment(fragment=name))
        owner = self._catalog.owners[job.plan.made[0].query]
        for name, hosted in job.news.items():
            self._diverting.back(name)
            self._catalog.add(hosted.spec, owner)
            self._kept.epochs[name] = job.becoming.epoch
            self._fragments[name] = hosted
            hosted.take_over(now_us, job.olds, job.gone_ends)
        for hosted in job.news.values():
            hosted.go(now_us, self._me)
        what = "box merged" if job.plan.merges else "box split"
        self._outbox.report("info", what, box=job.plan.box, fragments=", ".join(job.news))
        pause_us = max(job.paused_us, now_us - job.stopped_us, 1)  # 0 says that it was so already.
        if job.follows:
            job.token = self._saver.save()  # They are listed with it: only now they are here.
        told = {"node": self._me, "fragments": list(job.news), "pause_us": pause_us}
        if not job.plan.merges:
            told |= {"ranges": cuts_of(job.plan.whole, job.plan.box), "shares": job.shares}
        content = msgspec.json.encode(told)
        for peer, request in job.answers:
            self._done[peer, request] = job.token, content
            self._saver.send(peer, Reply(request=request), content, after=job.token)
        while len(self._done) > ANSWERS_KEPT:
            del self._done[next(iter(self._done))]


def _rest(now_us: int, hosted: Hosted) -> None:
    """It is fed nothing more; what came out of it before goes on its way."""
    hosted.freeze()
    for output in hosted.outputs.values():
        output.sender.muted = False
        output.sender.settle(now_us)
