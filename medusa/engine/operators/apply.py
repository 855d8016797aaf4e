"""Apply: a user's function from batches to batches, called at once or many times concurrently."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from medusa.elements import END_US, Kind, Train
from medusa.engine.core.box import Operator, Stateless, show_time
from medusa.engine.core.dead_letters import DeadLetters
from medusa.engine.core.rows import take_array
from medusa.engine.core.site import Site
from medusa.engine.recovery.decisions import CallAnswer
from medusa.engine.udf.answers import AnsweredRows, answer_of, read_answers
from medusa.engine.udf.calls import CallOutput, bury, error_text, read_output, row_of
from medusa.errors import DataError, QueryError
from medusa.ports import Task, Tasks
from medusa.query.boxes import Apply, Schema
from medusa.query.user import is_async

__all__ = ["ApplyBox", "AsyncApplyBox", "make_apply"]


class _Calls(Stateless):
    """What both forms share: output is checked on every call; times and late marks follow the rows."""

    kind = "apply"
    takes_tentative = True

    def __init__(self, spec: Apply, *, function: Any, letters: DeadLetters) -> None:
        super().__init__(spec.id, inputs=1)
        self._function = function
        self._letters = letters
        self._schema: Schema = spec.schema
        self._place = spec.position

    def _checked(self, made: Any, rows: int) -> CallOutput:
        output = read_output(made, self._schema, rows=rows)
        if output.rows is None and output.batch.num_rows != rows:
            raise DataError(
                f"returned {output.batch.num_rows} rows for {rows}",
                hint="as many as came, or a column _row with the row from which each comes",
                code="data.function",
            )
        return output

    def _seen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What the function sees: of a part of a split not the numbers of the rows."""
        return batch if self._place is None else batch.select(range(batch.num_columns - 1))

    def _send(self, train: Train, parts: Sequence[AnsweredRows]) -> None:
        for part in parts:
            if part.output is None:
                if train.kind is not Kind.STABLE:
                    continue  # an early row that fails comes again when it is final
                bury(self, self._letters, row_of(self._seen(train.batch), part.first), part.error)
                continue
            index = part.output.rows
            numbers = None if self._place is None else train.batch.columns[-1]
            times, late, places = (
                None
                if array is None
                else array.slice(part.first, part.rows)
                if index is None
                else take_array(array, pa.array(index + part.first))
                for array in (train.times, train.late, numbers)
            )
            batch = part.output.batch
            if places is not None:
                batch = batch.append_column(pa.field(self._place, pa.int64()), places)
            self.emit_train(Train(batch=batch, times=times, late=late, kind=train.kind))


class ApplyBox(_Calls):
    """One call for each train; a call that fails is repeated on halves, down to single rows."""

    def on_train(self, input: int, train: Train) -> None:
        parts: list[AnsweredRows] = []
        self._attempt(self._seen(train.batch), 0, parts)
        self._send(train, parts)

    def _attempt(self, batch: pa.RecordBatch, first: int, parts: list[AnsweredRows]) -> None:
        rows = batch.num_rows
        try:
            parts.append(AnsweredRows(first, rows, self._checked(self._function(batch), rows)))
        except Exception as error:
            if rows == 1:
                parts.append(AnsweredRows(first, 1, error=error_text(error)))
                return
            half = rows // 2
            self._attempt(batch.slice(0, half), first, parts)
            self._attempt(batch.slice(half), first + half, parts)


class AsyncApplyBox(_Calls):
    """A call for each train, several at a time; what they give leaves in the order of the input.

    A boundary waits behind the calls before it. Nothing here knows threads: ``tasks`` runs the calls,
    and the fragment asks ``poll`` whether the first have ended.

    What calls gave can be written down (``given``) and used again (``again``): then nothing is called,
    and answers leave when ``answers`` is told.

    Args:
        tasks: runs coroutines.

    Attributes:
        calls: trains whose output hasn't left.
        given: the answers that left since somebody took note of them; None: nobody does.
    """

    def __init__(self, spec: Apply, *, function: Any, letters: DeadLetters, tasks: Tasks) -> None:
        super().__init__(spec, function=function, letters=letters)
        self._tasks = tasks
        self._most = spec.in_flight or 1
        self._waiting: deque[tuple[Train, Task | _Later | None] | int] = deque()
        self._later: deque[_Later] = deque()  # the last of those that wait
        self.calls = 0
        self.given: list[tuple[CallAnswer, ...]] | None = None
        self._known = 0
        self._again = False
        self._answers: deque[tuple[CallAnswer, ...]] = deque()

    def on_train(self, input: int, train: Train) -> None:
        self.poll()
        task: Task | _Later | None = None
        if self._known:
            self._known -= 1
        elif self._has_room():
            task = self._tasks.start(self._attempts(train.batch))
        else:
            task = _Later(train.batch)
            self._later.append(task)
        self._waiting.append((train, task))
        self.calls += 1
        self.poll()

    def on_boundary(self, time_us: int) -> None:
        self._waiting.append(time_us)
        self.poll()

    def _has_room(self) -> bool:
        """Wait until one more may be called; False: an interrupt came, and it must be called later."""
        while self.calls >= self._most and not self._again:
            first = self._waiting[0]
            if not isinstance(first, int) and not _done(first[1]):
                if self._tasks.hurried:
                    return False
                self._rest(first[1])
            else:
                self._next()
        return True

    def _rest(self, task: Task | _Later | None) -> None:
        """A moment's wait for one that was called."""
        begun = task.task if isinstance(task, _Later) else task
        if begun is not None:
            self._tasks.rest(begun)

    def _catch_up(self) -> None:
        """Call what had to wait, as far as there is room."""
        if not self._later:
            return
        busy = sum(1 for entry in self._waiting if not isinstance(entry, int) and not _done(entry[1]))
        for _ in range(min(len(self._later), self._most - busy + len(self._later))):
            later = self._later.popleft()
            later.begin(self._tasks.start(self._attempts(later.batch)))

    def note_answers(self) -> None:
        """From now on keep the answers that leave, as ``given``."""
        self.given = []

    # Answers of an earlier life

    def again(self, known: int) -> None:
        """The next ``known`` trains have answers already; until the last of them nothing leaves by itself."""
        self._known, self._again = known, True

    def answer(self, answers: Sequence[tuple[CallAnswer, ...]]) -> None:
        """What leaves until ``answered``."""
        self._answers.extend(answers)

    def answered(self) -> bool:
        """Whether all of that has left."""
        return not self._answers

    def go_on(self) -> None:
        """From now on as usual."""
        self._again = False

    async def _attempts(self, batch: pa.RecordBatch) -> list[AnsweredRows]:
        parts: list[AnsweredRows] = []
        await self._attempt(batch, 0, parts)
        return parts

    async def _attempt(self, batch: pa.RecordBatch, first: int, parts: list[AnsweredRows]) -> None:
        rows = batch.num_rows
        try:
            parts.append(AnsweredRows(first, rows, self._checked(await self._function(batch), rows)))
        except Exception as error:
            if rows == 1:
                parts.append(AnsweredRows(first, 1, error=error_text(error)))
                return
            half = rows // 2
            await self._attempt(batch.slice(0, half), first, parts)
            await self._attempt(batch.slice(half), first + half, parts)

    def poll(self) -> bool:
        """Send on what is complete from the front; whether anything was."""
        before = len(self._waiting)
        self._catch_up()
        while self._waiting:
            first = self._waiting[0]
            if not isinstance(first, int) and not (self._answers if self._again else _done(first[1])):
                break
            self._next()
        return len(self._waiting) < before

    def wait(self) -> None:
        """Wait for every call, and send on what they gave; not those that have answers already."""
        while self._waiting and not self._again:
            self._next()

    def rest(self) -> bool:
        """Whether every call has ended, as far as ``wait`` waits for them; else after a moment's wait."""
        if self._again:
            return True
        self._catch_up()
        for entry in self._waiting:
            if not isinstance(entry, int) and entry[1] is not None and not entry[1].done():
                self._rest(entry[1])
                return False
        return True

    def _next(self) -> None:
        first = self._waiting[0]
        if isinstance(first, int):
            self._waiting.popleft()
            self.advance(first)
            return
        train, task = first
        self._catch_up()
        if self._again:
            parts = read_answers(self._answers.popleft(), self._schema, train.batch.num_rows)
        else:
            assert task is not None, "all answers have left by then"
            parts = task.result()
            if self.given is not None:
                self.given.append(tuple(map(answer_of, parts)))
        self._waiting.popleft()
        self.calls -= 1
        self._send(train, parts)

    def queue_bytes(self) -> int:
        return sum(entry[0].batch.nbytes for entry in self._waiting if not isinstance(entry, int))

    def queue_rows(self) -> int:
        return sum(len(entry[0]) for entry in self._waiting if not isinstance(entry, int))

    def waits_for(self, names: Sequence[str]) -> str:
        if self.boundary_us >= END_US:
            return "finished"
        if self.calls:
            return f"waits for {self.calls} calls; its boundary stands at {show_time(self.boundary_us)}"
        return super().waits_for(names)


class _Later:
    """A call that an interrupt didn't let wait for room.

    Attributes:
        task: the call, once it was begun.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.task: Task | None = None

    def begin(self, task: Task) -> None:
        """It was called."""
        self.task = task

    def done(self) -> bool:
        return self.task is not None and self.task.done()

    def result(self) -> Any:
        assert self.task is not None, "when all before it have left there is room"
        return self.task.result()


def _done(task: Task | _Later | None) -> bool:
    return task is not None and task.done()


def make_apply(spec: Apply, site: Site) -> Operator:
    """The box for an ordinary or an async function.

    Raises:
        QueryError: the function isn't of the kind that the box was written for, or nothing runs calls.
    """
    label = f"apply {spec.id!r}"
    function, letters, tasks = site.function(spec, label=label), site.letters, site.tasks
    if is_async(function) != (spec.in_flight is not None):
        was = "an async function" if spec.in_flight is not None else "an ordinary function"
        raise QueryError(
            f"{label}: was written for {was}, which its function isn't any more",
            hint="register a changed function with a higher version=",
            code="query.function",
        )
    if spec.in_flight is None:
        return ApplyBox(spec, function=function, letters=letters)
    if tasks is None:
        raise QueryError(
            f"{label}: async functions run in md.start and md.collect only: a node can't repeat their"
            " results after a restart yet",
            code="query.later",
        )
    return AsyncApplyBox(spec, function=function, letters=letters, tasks=tasks)
