"""Runs fragments and writes checkpoints beside the loop, so that heartbeats go on meanwhile.

One thread runs the engine, one writes to disk, one deletes there what isn't needed, and one does what would
hold these up. Each works in the
order in which it was asked; ``finished`` fetches what came of it. So a fragment has one owner at a time, and
a checkpoint has its state between two elements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property, partial

from medusa.elements import Silent
from medusa.engine.core.graph_size import opening_bytes
from medusa.engine.fragment import Fragment
from medusa.engine.held_rows_count import NOTHING, HeldRowsCount
from medusa.engine.regrouping import Regrouped
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.engine.state.delta import DeltaFiles, whole_bytes
from medusa.errors import DataError, StateError
from medusa.nodes.reports import Completion, Forked, FragmentFailed, Persisted, Ran, Remade, Stats
from medusa.ports import Buffer, Clock, Journal, Store
from medusa.query.boxes import Graph
from medusa.runtime.engine_host.budgets import UNBOUNDED, Budgets, EngineBounds
from medusa.runtime.engine_host.fair_turns import FairTurns
from medusa.runtime.engine_host.forks import Forks
from medusa.runtime.engine_host.host_disk import HostDisk
from medusa.runtime.engine_host.hosted import HostedFragment
from medusa.runtime.engine_host.openings import Made, Openings
from medusa.runtime.engine_host.repartition_jobs import RepartitionJobs, why_of
from medusa.runtime.engine_host.slice_watch import SliceWatch
from medusa.runtime.engine_host.turn_watch import TurnWatch
from medusa.runtime.machine.garbage import collect_after
from medusa.runtime.machine.short_turns import ShortTurns
from medusa.runtime.machine.worker import Worker
from medusa.runtime.machine.worker_thread import WorkerThread
from medusa.units import duration_text
from medusa.wire.fork_names import forked_of
from medusa.wire.outbox import (
    Copy,
    Fetch,
    Fork,
    Log,
    Owned,
    Persist,
    Regroup,
    ReportLine,
    RunFragment,
    Weigh,
    WriteSegment,
)
from medusa.wire.status_and_metrics import EngineHeld

__all__ = ["EngineHost"]

STATS_EVERY_US = 200_000

WEIGH_EVERY_US = 5_000
"""A fragment says so often how much it holds. Too seldom: it grows beyond its budget."""

WEIGH_SHARE = 10
"""...and that takes at most this part of its time: with a thousand boxes it takes a while."""

Done = Completion | ReportLine
"""What the host says of its work; a report is for whoever runs the node."""

Run = Callable[[Callable[[], bool]], bool]
"""Runs a slice until its argument says that it ends; whether the element is done."""


class EngineHost:
    """Does ``OpenFragment``, ``RunFragment``, ``Fork``, ``Persist``, ``Log``, ``WriteSegment``, ``Fetch``,
    ``CloseFragment``.

    Args:
        journal: where decision logs are; None: none can be written, and checkpoints do instead.
        wake: called from another thread when something has finished.
        worker: makes the thread of this name; a simulator gives one in virtual time.
        counts: fragments count the rows that they hold, since those die with the node.
        bounds: what queries may take of memory, and of the engine's thread.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        wake: Callable[[], None],
        worker: Callable[[str], Worker] | None = None,
        journal: Journal | None = None,
        counts: bool = False,
        bounds: EngineBounds = UNBOUNDED,
    ) -> None:
        self._counts = counts
        self._kept = HostDisk(store, journal, self._tell, lambda job: self._sweeper.give(job))
        """The disk's thread owns it."""
        self._clock = clock
        self._wake = wake
        self._lives: dict[str, int] = {}
        """Fragment -> the number of its life, which no other has."""
        self._lives_begun = 0
        self._counting: set[tuple[str, int]] = set()
        """Fragments that are being made, and their lives, that count what they hold."""
        self._done: deque[tuple[str, int, Done]] = deque()
        self._woken = False
        self._broken: BaseException | None = None
        self._make_worker: Callable[[str], Worker] = worker or partial(WorkerThread, failed=self._break)
        self._engine = self._make_worker("medusa-engine")
        self._disk = self._make_worker("medusa-disk")
        self._sweeper = self._make_worker("medusa-sweep")
        self._running: dict[str, HostedFragment] = {"": HostedFragment(None, 0, self._give)}
        self._openings = Openings(clock, self._opened, self._give, lambda job: self._beside.give(job))
        self._budgets = Budgets(bounds)
        self._regroups = RepartitionJobs(
            self._running,
            clock,
            tell=self._tell_node,
            give=self._give,
            beside=lambda job: self._beside.give(job),
            begin=self._begin,
        )
        self._forks = Forks(
            self._running,
            clock,
            give=self._give,
            beside=lambda job: self._beside.give(job),
            room=self._room_for_fork,
            begin=self._begin_fork,
        )
        self._turns = FairTurns()
        self._watch = TurnWatch(clock, bounds.piece_us)
        self._turn_given = False
        """The engine's thread will take the next turn once it has done what it was given before."""
        self._untold: set[str] = set()
        """Fragments that ran since their counts were told; the engine's thread owns it."""

    # --- the loop's side ------------------------------------------------------------------------

    def stands(self, catalog: int, marked: Iterable[str]) -> None:
        """Before all else: the catalog's number on disk (0: none), and owners with a first checkpoint."""
        self._kept.stands(catalog, marked)

    def resume(
        self,
        name: str,
        fragment: Fragment | None,
        needed: Mapping[int, tuple[int, ...]],
        logs: Iterable[int] = (),
        *,
        counts: bool = False,
    ) -> None:
        """Take over a restored fragment, or what the node itself keeps (no name), before all else."""
        life = self._new_life(name)
        holding = HeldRowsCount(fragment) if counts and fragment is not None else None
        self._running[name] = HostedFragment(fragment, life, self._give, needed=dict(needed), holding=holding)
        self._kept.resume(name, life, logs)
        if fragment is not None:
            self._done.append((name, life, Stats.of(name, fragment)))
            # What it holds counts before it is fed: others come beside it. The engine has nothing to do yet.
            self._budgets.found(name, fragment.graph.name, self._used_bytes(self._running[name]))

    def open(
        self,
        name: str,
        graph: Graph,
        files: Mapping[str, Buffer] | None = None,
        *,
        counts: bool = False,
        deltas: tuple[DeltaFiles, ...] = (),
    ) -> None:
        """Make it from nothing, or from the state that it had at another node.

        Args:
            counts: it counts the rows that it holds, whatever others do.
            deltas: on that state, the oldest first.
        """
        life = self._new_life(name)
        if counts:
            self._counting.add((name, life))
        self._give(lambda: self._open(name, life, graph, files, deltas))

    def regroup(self, effect: Regroup) -> None:
        """Make fragments of others; those stay, and rest, or go on."""
        lives = {name: self._new_life(name) for name in effect.opened}
        do = self._copy_aside if effect.aside else self._regroup
        self._give(lambda: self._at_rest(effect.gone, lambda: do(effect, lives)))

    def weigh(self, effect: Weigh) -> None:
        """Say where ranges end that share what a box holds now."""
        self._give(lambda: self._in_turn(effect.fragment, lambda: self._weigh(effect)))

    def fork(self, effect: Fork) -> None:
        """Make a second instance of a fragment; that one goes on."""
        life = self._new_life(effect.fork)
        self._give(lambda: self._fork(effect, life))

    def run(self, effect: RunFragment) -> None:
        self._give(lambda: self._in_turn(effect.fragment, lambda: self._run(effect)))

    def persist(self, effect: Persist) -> None:
        self._give(lambda: self._in_turn(effect.fragment, lambda: self._persist(effect)))

    def log(self, effect: Log) -> None:
        life = self._lives.get(effect.fragment, 0)
        self._disk.give(lambda: self._kept.log(effect, life))

    def spill(self, effect: WriteSegment) -> None:
        life = self._lives.get(effect.fragment, 0)
        self._disk.give(lambda: self._kept.spill(effect, life))

    def fetch(self, effect: Fetch) -> None:
        life = self._lives.get(effect.fragment, 0)
        self._disk.give(lambda: self._kept.fetch(effect, life))

    def copy(self, effect: Copy) -> None:
        life = self._lives.get(effect.fragment, 0)
        self._disk.give(lambda: self._kept.copy(effect, life))

    def owned(self, effect: Owned) -> None:
        """Count what this query takes for its owner."""
        self._give(partial(self._owned, effect))

    def close(self, name: str) -> None:
        """Stop it and delete its groups; what it still has under way is never reported."""
        self._lives.pop(name, None)
        self._give(lambda: self._close(name))

    def _new_life(self, name: str) -> int:
        self._lives_begun += 1
        self._lives[name] = self._lives_begun
        return self._lives_begun

    def finished(self) -> list[Done]:
        """What has come to an end since the last call, in order per fragment.

        Raises:
            RuntimeError: a job of a thread raised, so nothing can be relied on any more: end the process.
        """
        self._refuse_broken()
        out: list[Done] = []
        self._woken = False  # Before it is looked: what comes after that wakes again.
        while self._done:
            name, life, done = self._done.popleft()
            if self._lives.get(name, 0) == life or isinstance(done, Persisted):
                out.append(done)
                if isinstance(done, Forked) and done.why:
                    self._lives.pop(name, None)  # There is none to be closed.
        return out

    def engine_us(self) -> int | None:
        """CPU time that the engine has taken so far; None: unknown."""
        return self._engine.cpu_us()

    def held(self) -> EngineHeld | None:
        """Which fragment has had the engine's thread for too long, and has it still; None: none."""
        return self._watch.held()

    def stop(self, timeout_s: float | None = None, *, last: Callable[[], None] | None = None) -> bool:
        """Finish what was given, then end the threads.

        Args:
            timeout_s: how long to wait for each; after that they end by themselves, when they can.
            last: closes the store, once nothing writes there any more.

        Returns:
            whether both have ended.

        Raises:
            RuntimeError: as ``finished``; they have ended then.
        """
        ended = self._engine.stop(timeout_s, last=self._settle)
        if "_beside" in vars(self):
            ended = self._beside.stop(timeout_s) and ended
        ended = self._sweeper.stop(timeout_s) and ended
        ended = self._disk.stop(timeout_s, last=last) and ended
        self._refuse_broken()
        return ended

    def _break(self, error: BaseException) -> None:
        self._broken = error
        self._wake()

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise RuntimeError(f"a thread of this node has failed: {why_of(self._broken)}") from self._broken

    @cached_property
    def _beside(self) -> Worker:
        """For what takes long and nobody else should wait for; most nodes never need it."""
        return ShortTurns(self._make_worker("medusa-beside"))

    def _give(self, job: Callable[[], None]) -> None:
        self._engine.give(partial(self._work, job))

    # --- the engine's thread ----------------------------------------------------------------------

    def _work(self, job: Callable[[], None]) -> None:
        job()
        while self._untold and self._engine.idle:  # Whatever it was: perhaps nothing follows it.
            self._tell_counts(min(self._untold))

    def _in_turn(self, name: str, job: Callable[[], None]) -> None:
        """When the fragment is done with the elements given before, and it is its turn."""
        running = self._running.get(name)
        again = partial(self._in_turn, name, job)
        if self._openings.defers(name, again) or self._forks.defers(name, again):
            return
        if running is None or not name:
            job()
            return
        running.slices.put(job)
        self._turns.enter(name, owner=self._budgets.owner(running.query), query=running.query)
        if not self._turn_given:
            if self._engine.idle:
                self._take_turn()
            else:  # first what else was given: somebody who had less of the thread may be among it
                self._turn_given = True
                self._give(self._take_turn)

    def _take_turn(self) -> None:
        """Do a step of whoever has had least of the thread."""
        self._turn_given = False
        name = self._turns.next()
        if name is None:
            return
        running, began_us = self._running[name], self._engine.cpu_us() or 0
        if running.slices.busy:
            try:
                with self._watch.turn(name, running.fragment):
                    running.slices.step()
            except Exception as error:
                running.slices.drop()
                self._fail(running, name, error)
        self._turns.used(name, max((self._engine.cpu_us() or 0) - began_us, 1))
        if not running.slices.busy:
            self._turns.leave(name)
        if self._turns:
            self._turn_given = True
            self._give(self._take_turn)

    def _at_rest(self, names: Collection[str], job: Callable[[], None]) -> None:
        """Once these fragments are done with all that they were given, which isn't sliced then."""
        if any(self._openings.defers(name, lambda: self._at_rest(names, job)) for name in names):
            return
        for name in names:
            if (running := self._running.get(name)) is not None:
                running.slices.finish()
                self._turns.leave(name)
        job()

    def _tell(self, name: str, life: int, done: Done) -> None:
        self._done.append((name, life, done))
        if not self._woken:  # By how much there is two threads would each take the other for the first.
            self._woken = True
            self._wake()

    def _open(
        self,
        name: str,
        life: int,
        graph: Graph,
        files: Mapping[str, Buffer] | None = None,
        deltas: tuple[DeltaFiles, ...] = (),
    ) -> None:
        # What a former fragment of that name could not delete would be found as this one's after a crash.
        self._disk.give(lambda: self._kept.sweep(name))
        query = graph.name
        if why := self._budgets.admit(name, query, opening_bytes(graph, whole_bytes(files or {}, deltas))):
            self._not_opened(name, life, query, why, "E_MEMORY")
        elif not self._openings.open(
            name, life, graph, files, deltas=deltas, owner=self._budgets.owner(query)
        ):
            self._running[name] = HostedFragment(None, life, self._give, query=query)

    def _opened(self, name: str, life: int, graph: Graph, made: Made) -> None:
        query = graph.name
        try:
            if isinstance(made, str):
                raise StateError(made, code="state.failed")
            counts = self._counts or (name, life) in self._counting
            self._counting.discard((name, life))
            holding = HeldRowsCount(made) if counts else None
            hosted = HostedFragment(made, life, self._give, holding=holding)
            if why := self._budgets.admit(name, query, self._used_bytes(hosted)):
                self._not_opened(name, life, query, why, "E_MEMORY")
                return
            hosted.fragment = fragment = self._installed(name, made)
            self._running[name] = hosted
            self._tell(name, life, Stats.of(name, fragment))
        except Exception as error:
            self._not_opened(name, life, query, why_of(error))

    def _not_opened(self, name: str, life: int, query: str, why: str, code: str = "") -> None:
        self._budgets.forget(name, query)
        self._running[name] = HostedFragment(None, life, self._give, failed=True, query=query)
        self._tell(name, life, FragmentFailed(name, why, code))

    def _installed(self, name: str, fragment: Fragment) -> Fragment:
        """What runs under that name."""
        return fragment

    def _regroup(self, effect: Regroup, lives: Mapping[str, int]) -> None:
        self._regroups.at_rest(effect, lives)

    def _copy_aside(self, effect: Regroup, lives: Mapping[str, int]) -> None:
        self._regroups.aside(effect, lives)

    def _begin(
        self, effect: Regroup, lives: Mapping[str, int], found: Regrouped, begun: Mapping[str, BackgroundCopy]
    ) -> None:
        """The new ones are the engine's, but those that were closed meanwhile. If they don't fit none is."""
        made: dict[str, HostedFragment] = {}
        for name, fragment in found.made.items():
            if self._lives.get(name) == lives[name]:
                self._budgets.follows(name, effect.gone)
                made[name] = HostedFragment(fragment, lives[name], self._give, copied=begun.get(name))
                if why := self._budgets.admit(name, made[name].query, self._used_bytes(made[name])):
                    for each, hosted in made.items():
                        self._budgets.forget(each, hosted.query)
                    self._regroups.refuse(effect, why)
                    return
        for name, hosted in made.items():
            self._disk.give(partial(self._kept.sweep, name))
            self._running[name] = hosted
            self._tell(name, lives[name], Stats.of(name, found.made[name]))
        self._tell_node(Remade(effect.token, found.reached_us, found.outputs, rows=found.rows))

    def _fork(self, effect: Fork, life: int) -> None:
        self._forks.expect(effect, life)
        self._in_turn(effect.fragment, partial(self._forks.copy, effect.fork))

    def _room_for_fork(self, name: str, life: int, before: HostedFragment) -> str:
        """Why there is none for one as large as the fragment; else it counts."""
        if why := self._budgets.admit(name, before.query, self._used_bytes(before)):
            return why
        self._budgets.forks(name)
        self._running[name] = HostedFragment(None, life, self._give, query=before.query, is_fork=True)
        return ""

    def _begin_fork(self, effect: Fork, life: int, made: Made) -> None:
        name, why = effect.fork, made if isinstance(made, str) else ""
        if isinstance(made, Fragment):
            hosted = self._running[name] = HostedFragment(made, life, self._give, is_fork=True)
            why = self._budgets.admit(name, hosted.query, self._used_bytes(hosted))
        if why and (none := self._running.pop(name, None)) is not None:
            collect_after(self._budgets.forget(name, none.query), lambda job: self._beside.give(job))
        self._tell(name, life, Forked(effect.token, name, why))

    def _owned(self, effect: Owned) -> None:
        for text in self._budgets.owned(effect.query, effect.owner):
            self._tell_node(ReportLine(level="warning", what=text))

    def _tell_node(self, done: Done) -> None:
        self._tell("", self._running[""].life, done)

    def _weigh(self, effect: Weigh) -> None:
        self._regroups.weigh(effect)

    def _run(self, effect: RunFragment) -> None:
        name = effect.fragment
        running = self._running.get(name)
        if running is None or running.failed or running.fragment is None:
            return
        fragment = running.fragment
        running.changes()
        if isinstance(effect.element, Silent):
            try:
                asked = fragment.held_up(effect.element.sources, missing=running.is_fork)
                self._tell(name, running.life, Ran(name, asked))
            except Exception as error:
                self._fail(running, name, error)
            return
        if running.holding is not None:
            running.holding.feeds(effect.stream)
        feed = partial(fragment.feed_slice, effect.stream, effect.element)
        if not self._slice(running, fragment, name, feed):
            running.slices.begin(lambda: self._slice(running, fragment, name, fragment.go_on))

    def _slice(self, running: HostedFragment, fragment: Fragment, name: str, run: Run) -> bool:
        """Run a slice of an element, and tell what came of it when it was the last; whether it was."""
        refused = ""
        watch = SliceWatch(self._clock, self._engine.cpu_us, self._budgets.bounds.piece_us)

        def rests() -> bool:
            """It has had its time, holds too much, or nobody wants it any more."""
            ended = watch.ended()
            return self._weighed_over(running, name) or ended or self._lives.get(name) != running.life

        try:
            try:
                done = run(rests)
            except DataError as error:
                done, refused = True, str(error)
            running.took(watch.took_cpu_us())
            if (held_us := watch.held_us()) is not None:
                why = (
                    f"query {running.query!r} held the engine for {held_us / 1e6:.3g} s without a pause,"
                    f" allowed are {duration_text(self._budgets.bounds.piece_us)} (piece_time)"
                )
                self._end(name, "E_BUSY", why)
            if done:
                self._weighed_over(running, name)
            if running.failed or not done:
                return running.failed
            outputs = [(sink, element) for sink in fragment.sinks for element in fragment.drain(sink)]
        except Exception as error:
            self._fail(running, name, error)
            return True
        dying = running.holding.held() if running.holding is not None else NOTHING
        self._tell(name, running.life, Ran(name, outputs, refused, dying, fragment.ruled.take()))
        if not running.is_fork:
            self._counts_change(name, running)
        return True

    def _fail(self, running: HostedFragment, name: str, error: Exception) -> None:
        """A broken invariant stops this fragment; the node and its other fragments live on."""
        running.fail()
        self._tell(name, running.life, FragmentFailed(name, f"{type(error).__name__}: {error}"))

    def _weighed_over(self, running: HostedFragment, name: str) -> bool:
        """Whether it has ended: it, or all that its owner has here, holds more than it may."""
        now_us = self._clock.monotonic_us()
        if not running.failed and now_us >= running.weigh_at_us:
            began_us, held = self._engine.cpu_us() or 0, self._used_bytes(running)
            took_us = (self._engine.cpu_us() or 0) - began_us
            running.weigh_again_at(now_us + max(WEIGH_EVERY_US, WEIGH_SHARE * took_us))
            if (over := self._budgets.held(name, running.query, held)) is not None:
                for each in over.fragments:
                    self._end(each, "E_MEMORY", over.why)
        return running.failed

    def _used_bytes(self, running: HostedFragment) -> int:
        """What a fragment holds."""
        return 0 if running.fragment is None else running.graph_bytes + running.fragment.used_bytes()

    def _end(self, name: str, code: str, why: str) -> None:
        """Its query took more than it may: this fragment gives back what it holds, and does nothing more."""
        if self._forks.refuse(name, why):
            return
        if (running := self._running.get(name)) is None or running.failed:
            return
        self._let_go(name, running, why)
        self._tell(name, running.life, FragmentFailed(name, why, code))

    def _let_go(self, name: str, running: HostedFragment, why: str) -> None:
        """Of what it holds, in the middle of an element too."""
        running.let_go()
        running.slices.drop()
        if not running.slices.busy:
            self._turns.leave(name)
        running.pieces.abandon(why)
        collect_after(self._budgets.forget(name, running.query), lambda job: self._beside.give(job))

    def _counts_change(self, name: str, running: HostedFragment) -> None:
        """They are told once the engine is idle, and now and then while it isn't."""
        self._untold.add(name)
        if self._clock.monotonic_us() - running.stats_at_us >= STATS_EVERY_US:
            self._tell_counts(name)

    def _tell_counts(self, name: str) -> None:
        self._untold.discard(name)
        running = self._running.get(name)
        if running is not None and running.fragment is not None and not running.failed:
            running.told_counts(self._clock.monotonic_us())
            self._tell(name, running.life, Stats.of(name, running.fragment, running.cpu_us))

    def _persist(self, effect: Persist) -> None:
        running = self._running.get(effect.fragment)
        if running is None:
            return
        try:
            if running.failed:
                raise StateError("the fragment has failed", code="state.failed")
            before = running.chain
            copying = running.begin_copy(before)
        except Exception as error:
            self._tell(effect.fragment, running.life, Persisted(effect.token, False, str(error)))
            return

        def copied(why: str) -> None:
            if not why:
                if not effect.fragment:
                    self._kept.catalog_comes(effect.token)
                self._disk.give(lambda: self._kept.write(running, effect, copying, before))
                return
            self._tell(effect.fragment, running.life, Persisted(effect.token, False, why))

        running.pieces.begin(copying, copied, yields=True)

    def _settle(self) -> None:
        """Make what isn't made yet but forks, end the elements under way, and copy what is left of all
        states."""
        self._forks.give_up_all()
        self._openings.finish()
        for running in self._running.values():
            running.slices.finish()
            running.pieces.finish()

    def _close(self, name: str) -> None:
        running, life = self._running.get(name), 0
        self._forks.give_up(name)
        if running is not None:
            life = running.life
            self._let_go(name, running, "it was closed")
            self._openings.give_up(name)
            running.slices.finish()  # who asked for a checkpoint hears that there is none
            del self._running[name]
        self._turns.forget(name)
        if forked_of(name) is None:
            self._disk.give(lambda: self._kept.forget(name, life))
