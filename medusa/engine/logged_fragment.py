"""A fragment that writes down what it decides outside its data, and does so again after a restore.

Without a log it is a plain fragment. With one, every decision becomes an entry
(``medusa.engine.recovery.decisions``), which is durable before a row that depends on it leaves. What was
decided in an earlier life is done again first, at the same rows: those that come too early wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from medusa._native import Times
from medusa.elements import START_US
from medusa.engine.core.box import Operator
from medusa.engine.fragment import Fragment
from medusa.engine.operators.source import SourceBox
from medusa.engine.overload.drop_set import DropSet
from medusa.engine.recovery.decision_log import DecisionLog
from medusa.engine.recovery.decisions import (
    AnswersReleased,
    Entry,
    Lifts,
    Promise,
    Released,
    Rest,
    RowsEntered,
    Sheds,
)
from medusa.engine.recovery.replay import DecisionReplay, HeldInput
from medusa.engine.state.background_copy import BackgroundCopy
from medusa.engine.state.capture import Capture
from medusa.errors import DataError, FullError, StateError
from medusa.query.boxes import Graph
from medusa.query.graph import CheckedGraph, order_dependent, reads_dead_of_several
from medusa.units import size_text

__all__ = ["LoggedFragment"]


class LoggedFragment(Fragment):
    """A fragment with a decision log, once ``record`` has given it one."""

    log: DecisionLog | None = None
    drops: DropSet | None = None
    """What is left out under overload; set by ``shed``."""
    _replay: DecisionReplay | None = None

    def record(
        self,
        log: DecisionLog,
        again: Sequence[Entry] = (),
        *,
        known: Mapping[str, int] | None = None,
        held_bytes: int | None = None,
    ) -> None:
        """From now on note what is decided.

        Args:
            known: of checkpoints, the number of the log that begins after each.
            again: what was decided after the state that this fragment was restored from. As much of it is
                done at once as needs no rows.
            held_bytes: of rows that may wait for others that were taken before them; None: any.

        Raises:
            StateError: what was decided can't be about this query.
        """
        self.log, self._held_bytes, self._logs = log, held_bytes, dict(known or {})
        self._run: RowsEntered | None = None
        self._repeated: dict[str, int] = {}
        self._look()
        if again:
            self._check(again)
            self._replay = DecisionReplay(again, ordered=self._ordered)
            for name in self.sources:
                self._repeated[name] = self._replay.promised_us(name)
            for box in self._async:
                box.again(sum(len(each.calls) for e in again for each in e.released if each.box == box.id))
        self._work()

    def _look(self) -> None:
        """See what of this query has to be noted."""
        merged = bool(order_dependent(self.graph)) or reads_dead_of_several(self.graph)
        merged |= self.drops is not None and self.drops.merges
        self._ordered = merged or bool(self._async)
        # What came before a decision to leave rows out was let through, and may have been taken.
        self._counts = self._ordered or (self.drops is not None and bool(self.drops.valves))
        self._whole = bool(self._async) or (merged and _meets_itself(self.graph))
        for box in self._async:
            box.note_answers()

    def wire(self, checked: CheckedGraph, boxes: list[Operator], functions: Mapping[str, object]) -> None:
        super().wire(checked, boxes, functions)
        if self.drops is not None:
            self.drops.install(checked, self.boxes)
        if self.log is not None:
            self._look()

    def quiesce(self) -> None:
        if self._replay is not None:
            raise StateError(
                "what was decided before the restore has not been done again: the query can't change now",
                hint=self._missing(),
                code="state.replay",
            )
        super().quiesce()
        if self.log is not None:
            self._close_run()

    def _check(self, again: Sequence[Entry]) -> None:
        boxes = {box.id for box in self._async}
        for entry in again:
            named: list[str] = []
            if isinstance(entry, Lifts | Sheds):
                named = [source for source, _, _ in entry.sources]
            elif not isinstance(entry, AnswersReleased):
                named = [entry.source]
            if not boxes.issuperset(r.box for r in entry.released) or not self.sources.keys() >= {*named}:
                raise _unfit()

    def shed(self, state: Any = None) -> None:
        """Be ready to leave rows out under overload; before ``record``.

        Args:
            state: of what was ready so in an earlier life, as ``DropSet.save`` gave it.

        Raises:
            StateError: it can't have come from there.
        """
        self.drops = DropSet(self.checked, self.boxes, decided=self._note_sheds)
        if state is not None:
            self.drops.load(state)
        if self.log is not None:
            self._look()

    # Decisions are noted

    def _enter(
        self, box: SourceBox, batch: pa.RecordBatch, times: Times | None, arrival_us: int | None
    ) -> None:
        # As Fragment._enter: every push comes here, and ``super()`` takes longer than what it does.
        try:
            box.accept(batch, times, arrival_us)
            self._settle()
        finally:
            if self.log is not None and (self._counts or arrival_us is not None):
                self._note_rows(box, arrival_us)

    def _note_rows(self, box: SourceBox, arrival_us: int | None) -> None:
        run, entry = self._run, RowsEntered(box.id, box.accepted, arrival_us, self._released())
        if run is not None and (self._whole or run.source != box.id or run.arrival_us != arrival_us):
            self._close_run()
        self._run = entry  # of several in a row, what the last says is true of all

    def _close_run(self) -> None:
        run, self._run = self._run, None
        if run is not None and self.log is not None:
            self.log.note(run)

    def _run_promise(self, box: SourceBox, time_us: int) -> None:
        try:
            super()._run_promise(box, time_us)
        finally:
            self._note(lambda released: Promise(box.id, box.accepted, time_us, released))

    def _rest(self, box: SourceBox, now_us: int) -> None:
        parts, before = box.resting(now_us), box.boundary_us
        try:
            super()._rest(box, now_us)
        finally:
            if box.boundary_us > before:
                self._note(lambda released: Rest(box.id, box.accepted, parts, released))

    def _lift(self, asked: Sequence[tuple[SourceBox, int]]) -> None:
        try:
            super()._lift(asked)
        finally:
            lifts = tuple((box.id, box.accepted, time_us) for box, time_us in asked)
            self._note(lambda released: Lifts(lifts, released))

    def _go_on(self, move: Callable[[], object]) -> None:
        try:
            super()._go_on(move)
        finally:
            released = self._released()
            if released and self.log is not None:
                self._close_run()
                self.log.note(AnswersReleased(released))

    def _note_sheds(self, shares: Mapping[str, float]) -> None:
        assert self.drops is not None, "they decided"
        parts: dict[str, dict[str, float]] = {}
        for key, share in shares.items():
            parts.setdefault(self.drops.sources[key][0], {})[key] = share
        sources = tuple((name, self.sources[name].accepted, each) for name, each in parts.items())
        self._note(lambda released: Sheds(sources, released))

    def _note(self, make: Callable[[tuple[Released, ...]], Entry]) -> None:
        if self.log is not None:
            self._close_run()
            self.log.note(make(self._released()))

    def _released(self) -> tuple[Released, ...]:
        """What async boxes gave since the last entry."""
        if not self._async:
            return ()
        made = tuple(Released(box.id, tuple(box.given)) for box in self._async if box.given)
        for box in self._async:
            if box.given is not None:
                box.given.clear()
        return made

    # Durable

    @property
    def behind(self) -> bool:
        """Something has been decided that isn't durable: rows may not leave before ``sync``."""
        return self.log is not None and (self._run is not None or self.log.behind)

    def sync(self) -> None:
        """Make all decisions durable.

        Raises:
            StateError: they couldn't be written; no row may leave.
        """
        if self.log is not None:
            self._close_run()
            self.log.sync()

    def turn(self) -> int:
        """A checkpoint of this moment is about to be written: the number of the log that begins after it.

        Raises:
            StateError: decisions couldn't be written.
        """
        assert self.log is not None, "only a run with a log has checkpoints"
        self._close_run()
        return self.log.turn(list(self._replay.entries()) if self._replay is not None else [])

    def go_on_after(self, number: int) -> bool:
        """That checkpoint, of this moment, is written while rows come. As ``DecisionLog.go_on``."""
        assert self.log is not None, "only a run with a log has checkpoints"
        return self.log.go_on(number)

    def turned(self, number: int, name: str, checkpoints: Sequence[str]) -> None:
        """The checkpoint is durable.

        Args:
            name: of the checkpoint.
            checkpoints: all there are.
        """
        assert self.log is not None, "only a run with a log has checkpoints"
        self._logs[name] = number
        self._logs = {each: first for each, first in self._logs.items() if each in checkpoints}
        with suppress(StateError):  # what can't be removed now is removed later
            self.log.turned(number, min(self._logs.get(each, 0) for each in checkpoints))

    def _copying(self, *, patient: bool, capture: Capture | None = None) -> BackgroundCopy:
        if self.stuck:
            raise StateError(
                "calls of async functions wait for rows that were pushed before: no checkpoint can be made",
                hint=self._missing(),
                code="state.replay",
            )
        return super()._copying(patient=patient, capture=capture)

    # What was decided is done again

    def push(
        self,
        box: SourceBox,
        batches: Sequence[pa.RecordBatch],
        times: Sequence[Times | None],
        arrival_us: int | None = None,
    ) -> None:
        replay = self._replay
        if replay is None:
            Fragment.push(self, box, batches, times, arrival_us)  # without ``super()``, as in _enter
            return
        ends, rows = replay.ends(box.id), sum(batch.num_rows for batch in batches)
        if ends is not None and box.accepted + replay.count(box.id) + rows > ends:
            raise DataError(f"source {box.id!r} ended after its row {ends}", code="data.finished")
        if not replay.holds(box.id):
            super().push(box, batches, times, arrival_us)
            return
        held = 0 if self._held_bytes is None else replay.nbytes()
        if held > (self._held_bytes or 0) and box.id not in replay.missing(self.accepted()):
            raise FullError(
                f"{size_text(held)} of rows wait for others that were taken before them",
                hint=self._missing(),
                code="full.replay",
            )
        replay.hold(box.id, batches, times, arrival_us)
        self._work()

    def _missing(self) -> str:
        missing = {} if self._replay is None else self._replay.missing(self.accepted())
        rows = [f"rows {have} to {stop - 1} of source {name!r}" for name, (have, stop) in missing.items()]
        return f"push {' and '.join(rows)}" if rows else ""

    def promise(self, source: str, time_us: int) -> None:
        self._refuse_after_failure()
        box = self.source(source)
        replay = self._replay
        if self._repeats(box, time_us):
            return  # it comes back by itself, or has
        if replay is None or not replay.holds(box.id):
            super().promise(source, time_us)
            return
        box.check_promise(time_us)
        replay.promise(box.id, time_us)

    def check_promise(self, box: SourceBox, time_us: int) -> None:
        """DataError for an explicit boundary that decreases, unless it is said again after a restore."""
        if not self._repeats(box, time_us):
            box.check_promise(time_us)

    def _repeats(self, box: SourceBox, time_us: int) -> bool:
        return self.log is not None and START_US < time_us <= self._repeated.get(box.id, START_US)

    def finish(self, look: Callable[[], object] | None = None) -> None:
        self._refuse_after_failure()
        if self._replay is not None:
            raise StateError(
                "the input can't end yet: rows that were taken before the restore haven't come again",
                hint=self._missing(),
                code="run.replay",
            )
        super().finish(look)

    def tick(self, now_us: int) -> None:
        if self._replay is None:
            super().tick(now_us)
        else:
            self.at(now_us)  # what was idle has been decided

    def poll(self) -> None:
        if self._replay is None:
            super().poll()

    def wait(self, look: Callable[[], object] | None = None) -> bool:
        return self._replay is None and super().wait(look)

    @property
    def stuck(self) -> bool:
        """Calls wait for rows that were pushed before: there can be no checkpoint, and none is needed."""
        return self._replay is not None and any(box.calls for box in self._async)

    @property
    def replays(self) -> bool:
        """Decisions of an earlier life are left: rows that were taken then haven't come again."""
        return self._replay is not None

    def positions(self) -> dict[str, int]:
        """Rows that came, of each source, also those that wait."""
        replay = self._replay
        if replay is None:
            return self.accepted()
        return {name: at + replay.count(name) for name, at in self.accepted().items()}

    def explain(self, now_us: int | None = None) -> str:
        text = super().explain(now_us)
        if self._replay is None:
            return text
        why = "rows wait until those have come again that were taken before the restore"
        return f"{text}\n  {why}: {self._missing()}"

    def accepted(self) -> dict[str, int]:
        """Rows that entered, of each source: what a checkpoint of this moment covers."""
        return super().positions()

    def _work(self) -> None:
        """Do what was decided, as far as there are rows; then go on as usual."""
        replay = self._replay
        if replay is None:
            return
        moved = True
        while moved and replay.lanes:
            moved = False
            for name, lane in list(replay.lanes.items()):
                while lane and self._step(replay, lane[0]):
                    lane.popleft()
                    moved = True
                if not lane:
                    if len(replay.lanes) == 1:
                        self._replay = None
                        for box in self._async:
                            box.go_on()
                    for each in replay.leave(name):
                        self._take(each)

    def _take(self, held: HeldInput) -> None:
        box = self.sources[held.source]
        if held.batch is not None:
            super().push(box, [held.batch], [held.times], held.arrival_us)
        elif held.time_us > self._repeated[held.source]:
            self._run_promise(box, held.time_us)

    def _step(self, replay: DecisionReplay, entry: Entry) -> bool:
        """Do what an entry says; False: rows are missing."""
        if isinstance(entry, RowsEntered):
            if not self._feed(replay, entry):
                return False
        else:
            places: Sequence[tuple[str, int]] = ()
            if isinstance(entry, Lifts | Sheds):
                places = [(source, at) for source, at, _ in entry.sources]
            elif not isinstance(entry, AnswersReleased):
                places = [(entry.source, entry.at)]
            # Of a run whose order shows the rows before are in entries of their own.
            if not self._ordered and not all(self._reach(replay, *place) for place in places):
                return False
            if any(self.sources[source].accepted != at for source, at in places):
                raise _unfit()
            self._again(entry.released, partial(self._decide, entry))
        return True

    def _reach(self, replay: DecisionReplay, source: str, at: int) -> bool:
        """Take rows of a source up to a number."""
        box = self.sources[source]
        for held in replay.rows(source, max(0, at - box.accepted)):
            assert held.batch is not None
            super()._enter(box, held.batch, held.times, held.arrival_us)
        return box.accepted >= at

    def _feed(self, replay: DecisionReplay, entry: RowsEntered) -> bool:
        box = self.sources[entry.source]
        wanted = entry.stop - box.accepted
        if wanted <= 0:
            raise _unfit()
        if self._whole and replay.count(entry.source) < wanted:
            return False
        held = replay.rows(entry.source, wanted)
        batches = [each.batch for each in held if each.batch is not None]
        if self._whole and len(batches) > 1:
            batches = [pa.Table.from_batches(batches).combine_chunks().to_batches()[0]]
        enter = super()._enter
        for batch in batches:
            self._again(entry.released, partial(enter, box, batch, box.times_of(batch), entry.arrival_us))
        return box.accepted == entry.stop

    def _decide(self, entry: Entry) -> None:
        if isinstance(entry, Promise):
            box = self.sources[entry.source]
            try:
                box.check_promise(entry.time_us)
            except DataError:
                raise _unfit() from None
            super()._run_promise(box, entry.time_us)
        elif isinstance(entry, Lifts):
            super()._lift([(self.sources[source], time_us) for source, _, time_us in entry.sources])
        elif isinstance(entry, Sheds):
            assert self.drops is not None, "seen to before the log was read"
            for _, _, shares in entry.sources:
                self.drops.set(shares)
        elif isinstance(entry, Rest):
            try:
                self.sources[entry.source].let_go(entry.parts)
            except ValueError:
                raise _unfit() from None
            self._settle()
        else:
            # The first is the one whose calls had ended; what it gave made others go on.
            first = next(box for box in self._async if box.id == entry.released[0].box)
            super()._go_on(first.poll)

    def _again(self, released: Sequence[Released], move: Callable[[], None]) -> None:
        """Do something, with async boxes releasing what they released then."""
        boxes = {box.id: box for box in self._async}
        for each in released:
            boxes[each.box].answer(each.calls)
        move()
        if not all(box.answered() for box in self._async):
            raise _unfit()


def _meets_itself(graph: Graph) -> bool:
    """Whether rows of one source come over several inputs to a box that shows how they were cut."""
    dead = {arc.box for box in graph.boxes for arc in box.inputs if arc.port == "dead"}
    above: dict[str, set[str]] = {}
    for box in graph.boxes:
        inputs = [above[arc.box] for arc in box.inputs]
        above[box.id] = {box.id} if not inputs else set().union(*inputs)
        merges = box.determinism == "arbitrary" or box.id in dead
        if merges and sum(map(len, inputs)) > len(above[box.id]):
            return True
    return False


def _unfit() -> StateError:
    return StateError(
        "the decision log doesn't fit the checkpoint and its query",
        hint="restore another checkpoint=, or without the log: it is beside the checkpoints",
        code="state.corrupt",
    )
