"""A run whose folder is memory that loses what wasn't synced: killed at any moment, restored at once."""

from __future__ import annotations

import random
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import medusa as md
from medusa.engine.logged_fragment import LoggedFragment
from medusa.engine.recovery.synced_length import extended
from medusa.engine.state.checkpoint import Checkpoints
from medusa.engine.state.evolve import plan
from medusa.ports import Buffer, Clock, Content, Jobs, Synced, Tasks, pieces_of
from medusa.query.codec import graph_from_json
from medusa.runtime.embedded.decision_log import begin_log, first_log, go_on_with_log, logs_of
from medusa.runtime.embedded.run import Run
from medusa.runtime.machine.interrupts import INTERRUPTS
from medusa.runtime.machine.job_threads import JobThreads
from medusa.runtime.machine.run_lock import OneTurn

SETTINGS = {"memory_bytes": 1 << 30, "on_error": "dead", "checkpoint_every_us": None, "history": False}


class MemoryStore:
    """The port ``Store``.

    Attributes:
        fails: asked before each write whether it does.
    """

    def __init__(self) -> None:
        self.groups: dict[str, dict[str, Buffer]] = {}
        self.fails: Callable[[], bool] = lambda: False

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        if self.fails():
            raise md.StateError("the disk is full", code="state.io")
        self.groups[name] = {file: b"".join(pieces_of(data)) for file, data in files.items()}

    def write_all(self, groups: Mapping[str, Mapping[str, Content]]) -> None:
        for name, files in groups.items():
            self.write(name, files)

    def read(self, name: str) -> dict[str, Buffer]:
        return dict(self.groups[name])

    def names(self) -> list[str]:
        return sorted(self.groups)

    def delete(self, name: str) -> None:
        self.groups.pop(name, None)

    def where(self, name: str, file: str = "") -> str:
        return f"{name}/{file}"


class MemoryJournal:
    """The port ``Journal``."""

    def __init__(self) -> None:
        self.files: dict[int, bytearray] = {}
        self.marks: dict[int, Synced] = {}
        self.fails = False
        self.syncs = 0

    def numbers(self) -> list[int]:
        return sorted(self.files)

    def read(self, number: int) -> Buffer:
        return bytes(self.files[number])

    def append(self, number: int, data: Buffer) -> None:
        self._fail()
        self.files.setdefault(number, bytearray()).extend(data)

    def sync(self, number: int) -> None:
        self._fail()
        self.syncs += 1
        self.marks[number] = extended(Synced(0, 0), bytes(self.files[number]))

    def synced(self, number: int) -> Synced | None:
        return self.marks.get(number)

    def _fail(self) -> None:
        if self.fails:
            raise md.StateError("the disk is full", code="state.io")

    def cut(self, number: int, length: int) -> None:
        del self.files[number][length:]
        self.marks[number] = extended(Synced(0, 0), bytes(self.files[number]))

    def remove(self, number: int) -> None:
        self.files.pop(number, None)
        self.marks.pop(number, None)

    def where(self, number: int) -> str:
        return f"decisions-{number}"

    def kill(self, rng: random.Random) -> None:
        """Lose what wasn't synced, but for a part of it that the system had written already."""
        for number, data in list(self.files.items()):
            kept = self.marks.get(number, Synced(0, 0)).length
            left = rng.choice([kept, rng.randint(kept, len(data)), len(data)])
            del data[left:]
            if left > kept and rng.random() < 0.3:
                data[rng.randrange(kept, left)] ^= 1
            if not data:
                self.remove(number)


class Folder:
    """What outlives a run.

    Args:
        settings: of the run, besides ``SETTINGS``.
    """

    def __init__(self, **settings: Any) -> None:
        self.store, self.journal = MemoryStore(), MemoryJournal()
        self.settings = {**SETTINGS, **settings}

    def start(
        self,
        q: md.Query,
        *,
        clock: Clock | None = None,
        tasks: Tasks | None = None,
        jobs: Jobs | None = None,
    ) -> Run:
        """As ``md.start(q, checkpoint=...)``; where there is a checkpoint, as ``md.restore``."""
        clock = clock or md.testing.ManualClock()
        checkpoints = Checkpoints(self.store, secret=(1, 2))
        if checkpoints.names():
            manifest, files = checkpoints.load()
            graph = graph_from_json(md.Query.from_json(q.to_json()).to_json())
            made = plan(graph, files, before=graph, raw=manifest["query"])
            fragment = LoggedFragment.restore(graph, files, clock=clock, tasks=tasks, plan=made)
            name = checkpoints.names()[-1]
            first = first_log(manifest, name)
            logs = logs_of(self.journal, first, "all")
            go_on_with_log(
                fragment,
                self.journal,
                logs,
                self.settings,
                manifest=manifest,
                known={name: first},
                made=made,
                strict=True,
            )
            logs.settle(self.journal)
        else:
            fragment = LoggedFragment(q.graph, clock=clock, tasks=tasks, functions=q.functions)
            begin_log(fragment, self.journal, self.settings)
        return Run(
            fragment,
            clock=clock,
            memory_bytes=1 << 30,
            settings=dict(self.settings),
            turns=OneTurn(),
            state=threading.RLock(),
            interrupts=INTERRUPTS,
            jobs=jobs or JobThreads(),
            checkpoints=checkpoints,
            checkpoint_every_us=self.settings["checkpoint_every_us"],
        )

    def kill(self, rng: random.Random) -> None:
        """The process is gone."""
        self.journal.kill(rng)


class JobsByHand:
    """The port ``Jobs``, in the caller's thread: a job is done when somebody waits for it, or asks often.

    Args:
        patience: of the next job: how often somebody asks before it is done.
    """

    def __init__(self, patience: Callable[[], int]) -> None:
        self._patience = patience
        self.begun = 0

    def start(self, work: Callable[[], Any]) -> _JobByHand:
        self.begun += 1
        return _JobByHand(work, self._patience())

    def pause(self) -> None: ...  # there is nobody else


class _JobByHand:
    def __init__(self, work: Callable[[], Any], asks: int) -> None:
        self._future: Future[Any] = Future()
        self._work, self._asks = work, asks

    def done(self) -> bool:
        self._asks -= 1
        if self._asks < 0:
            self._do()
        return self._future.done()

    def result(self) -> Any:
        self._do()
        return self._future.result()

    def _do(self) -> None:
        if not self._future.done():
            try:
                self._future.set_result(self._work())
            except md.StateError as error:
                self._future.set_exception(error)


class Consumer:
    """Takes rows, drops repeats by their number; a gap or a row that comes again changed fails."""

    def __init__(self, sinks: Sequence[str]) -> None:
        self.rows: dict[str, list[Any]] = {sink: [] for sink in sinks}

    def take(self, run: Run) -> None:
        for sink, have in self.rows.items():
            number = run.taken(sink)
            assert number <= len(have), f"{sink}: row {number} after {len(have)}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", md.LateWarning)
                rows = run.take(sink).to_pylist()
            for row in rows:
                if number < len(have):
                    assert repr(have[number]) == repr(row), f"{sink}: row {number} came again, but changed"
                else:
                    have.append(row)
                number += 1
