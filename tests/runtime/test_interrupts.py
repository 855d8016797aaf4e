"""Ctrl-C at every moment of the calls of a run: nothing is lost or doubled, and the run goes on.

CPython handles signals where a Python function begins and after a call of a C function, which is what the
profiler is told of. Here each of these moments gets a real signal, or ``interrupt_main``, and for calls
that give nothing back each bytecode too. The answer must be that of a run that nobody disturbed.
"""

from __future__ import annotations

import _thread
import asyncio
import itertools
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import medusa as md
from medusa.runtime.machine.interrupts import INTERRUPTS
from tests.engine.queries import numbers
from tests.runtime.pressing import Press, disturbed
from tests.runtime.test_embedded import SINKS, query, rows, takes

DEADLINE_S = 240


class Late(BaseException):
    pass


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    """What hangs, hangs in this thread: alarms end it, also where they are deferred."""

    def late(number: int, frame: Any) -> None:
        raise Late(f"nothing for {DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE_S, 2)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever happens, handlers are put back, and nothing is held."""
    kinds = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    before = [signal.getsignal(each) for each in kinds]
    yield
    assert not INTERRUPTS.held
    assert [signal.getsignal(each) for each in kinds] == before


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> int:
    """Of the moments that a test would try, one in so many: all with ``--full``."""
    return 1 if request.config.getoption("--full") else 3


def users(batch: pa.RecordBatch) -> dict[str, Any]:
    return {"vid": batch.column("vid"), "twice": [2 * each for each in batch.column("speed").to_pylist()]}


class Runs:
    """Adds what a key has."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int, input: str = "") -> dict[str, Any]:
        state.n = (state.n or 0) + batch.num_rows
        return {"vid": [key], "n": [state.n]}


class Longest:
    def zero(self) -> float:
        return 0.0

    def add(self, value: Any, column: pa.Array) -> float:
        return max([value, *column.to_pylist()])

    def merge(self, value: float, other: float) -> float:
        return max(value, other)

    def result(self, value: float) -> float:
        return value


def with_users() -> md.Query:
    """Functions of users of every kind, a connection point, an idle source."""
    q = md.Query("users")
    cars = q.source(
        "cars", {"ts": "timestamp", "vid": "int64", "speed": "float64"}, time="ts", slack=5, idle="1 min"
    )
    q.connection_point("recent", cars, keep="1h")
    q.sink("applied", cars.apply(users, {"vid": "int64", "twice": "float64"}))
    q.sink("kept", cars.process(Runs, {"vid": "int64", "n": "int64"}, by="vid"))
    return q


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "threads": {"threads": 2},
    "queue": {"queue": "1 MiB"},
    "ordered": {"queue": "1 MiB", "threads": 2},
    "checkpoints": {"checkpoint": "state", "checkpoint_every": 1},
    "spilling": {"spill": "disk", "memory": "4 KiB"},
}


def started(kind: str, folder: Path) -> Any:
    """A run of a kind, whose folders are new."""
    options = {
        name: folder / value if name in ("checkpoint", "spill", "history") else value
        for name, value in KINDS[kind].items()
    }
    return md.start(query(), **options)


def part(number: int) -> pa.Table:
    return rows(8 * number, 8)


def undisturbed(pushes: int) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    with md.start(query()) as run:
        for number in range(pushes):
            for source in ("cars", "vans"):
                run.push(source, part(number))
        run.finish()
        takes(run, out)
    return out


def entered(run: Any, press: Press, source: str, before: int, count: int) -> bool:
    """Rows of a push are in, all or none of them, as ``positions`` says."""
    found = run.positions()[source] - before
    assert found in (0, count)
    assert found == count or press.raised
    return bool(found == count)


@pytest.mark.filterwarnings("ignore::medusa.LateWarning", "ignore::medusa.DeadRowWarning")
class TestPush:
    @pytest.mark.parametrize(
        ("kind", "every"),
        [("plain", 3), ("threads", 3), ("queue", 1), ("ordered", 1), ("checkpoints", 701), ("spilling", 3)],
    )
    def test_at_each_moment(self, kind: str, every: int, sample: int, tmp_path: Path) -> None:
        check_pushes(kind, tmp_path, every=every * sample)

    def test_at_each_bytecode(self, sample: int, tmp_path: Path) -> None:
        check_pushes("plain", tmp_path, every=13 * sample, everywhere=True)

    @pytest.mark.full
    @pytest.mark.parametrize("everywhere", [False, True])
    @pytest.mark.parametrize("kind", KINDS)
    def test_all_moments(self, kind: str, everywhere: bool, tmp_path: Path) -> None:
        signal.setitimer(signal.ITIMER_REAL, 40 * DEADLINE_S, 2)
        check_pushes(kind, tmp_path, every=7 if kind == "checkpoints" else 1, everywhere=everywhere)


def check_pushes(kind: str, folder: Path, **how: Any) -> None:
    out: dict[str, list[Any]] = {}
    with started(kind, folder) as run:
        pushes = 0

        def prepare(number: int) -> Callable[[], object]:
            nonlocal pushes
            pushes = number + 1
            if number:
                run.push("vans", part(number - 1))
            return lambda: run.push("cars", part(number))

        for press in disturbed(prepare, **how):
            if not entered(run, press, "cars", 8 * (pushes - 1), 8):
                run.push("cars", part(pushes - 1))
        run.push("vans", part(pushes - 1))
        run.finish()
        takes(run, out)
    assert out == undisturbed(pushes)
    if "checkpoint" in KINDS[kind]:
        with md.restore(folder / "state") as again:
            assert again.positions() == {"cars": 8 * pushes, "vans": 8 * pushes}


@pytest.mark.filterwarnings("ignore::medusa.LateWarning", "ignore::medusa.DeadRowWarning")
class TestOtherCalls:
    @pytest.mark.parametrize("kind", ["plain", "threads", "queue", "checkpoints"])
    def test_take_at_each_moment(self, kind: str, sample: int, tmp_path: Path) -> None:
        """What a take that was interrupted had out comes with the next one."""
        out: dict[str, list[Any]] = {}
        sink, pushed = SINKS[0], 0
        with started(kind, tmp_path) as run:

            def prepare(number: int) -> Callable[[], object]:
                nonlocal pushed
                for source in ("cars", "vans"):
                    run.push(source, part(number))
                if "queue" in KINDS[kind]:
                    run.flush()
                pushed = number + 1
                return lambda: run.take(sink)

            interrupted = 0
            for press in disturbed(prepare, every=sample):
                interrupted += press.raised
                assert run.taken(sink) == len(out.get(sink, ())) or not press.raised
                out.setdefault(sink, []).extend(numbers(run.take(sink) if press.raised else press.result))
            assert interrupted > 20 // sample
            run.finish()
            takes(run, out)
        want = undisturbed(pushed)
        assert {name: sorted(map(str, each)) for name, each in out.items()} == {
            name: sorted(map(str, each)) for name, each in want.items()
        }

    @pytest.mark.parametrize("kind", ["plain", "queue", "checkpoints"])
    def test_boundary_tick_and_stats(self, kind: str, sample: int, tmp_path: Path) -> None:
        out: dict[str, list[Any]] = {}
        every = sample * (701 if kind == "checkpoints" else 5)
        with started(kind, tmp_path) as run:
            for call in (
                lambda number: run.boundary("cars", number),
                lambda number: run.tick(),
                lambda number: run.stats(),
                lambda number: run.positions(),
            ):
                list(disturbed(lambda number, call=call: lambda: call(number), every=every))
            for source in ("cars", "vans"):
                run.push(source, rows(5000, 400))
            run.finish()
            takes(run, out)
        with md.start(query()) as run:
            for source in ("cars", "vans"):
                run.push(source, rows(5000, 400))
            run.finish()
            want: dict[str, list[Any]] = {}
            takes(run, want)
        assert out == want

    def test_checkpoint_at_each_moment(self, sample: int, tmp_path: Path) -> None:
        """It is written whole, or isn't there; and the run goes on from the newest."""
        with md.start(query(), checkpoint=tmp_path / "state", checkpoint_every=None) as run:
            pushed = 0

            def prepare(number: int) -> Callable[[], object]:
                nonlocal pushed
                run.push("cars", part(number))
                pushed += 8
                return run.checkpoint

            for _ in disturbed(prepare, every=401 * sample):
                assert run.positions()["cars"] == pushed
            run.push("vans", part(0))
        with md.restore(tmp_path / "state") as again:
            assert again.positions() == {"cars": pushed, "vans": 8}

    @pytest.mark.parametrize("kind", ["plain", "queue"])
    @pytest.mark.parametrize("call", ["finish", "close"])
    def test_the_end(self, kind: str, call: str, tmp_path: Path) -> None:
        """Closed and finished are what they are after one Ctrl-C: the last checkpoint is there, or a second
        call writes it."""
        every = 401 if call == "close" else 41 if kind == "plain" else 5
        for number in itertools.count():
            folder = tmp_path / str(number)
            run = md.start(query(), checkpoint=folder, checkpoint_every=None, **KINDS[kind])
            run.push("cars", part(0))
            press = Press(getattr(run, call), number * every)
            if call == "finish" and not run.ended:
                run.finish()
            run.close()
            with md.restore(folder) as again:
                assert again.positions() == {"cars": 8, "vans": 0}
                assert again.ended == (call == "finish")
            if not press.made:
                assert number > 2
                return

    def test_callbacks_are_told_each_row_once(self) -> None:
        told: list[Any] = []
        with md.start(query()) as run:
            run.on(SINKS[0], lambda table: told.extend(numbers(table)))
            pushes = 0

            def prepare(number: int) -> Callable[[], object]:
                nonlocal pushes
                pushes = number + 1
                return lambda: run.push("cars", part(number))

            for press in disturbed(prepare, every=3):
                assert entered(run, press, "cars", 8 * (pushes - 1), 8) or not run.push(
                    "cars", part(pushes - 1)
                )
            for number in range(pushes):
                run.push("vans", part(number))
            run.finish()
        assert told == undisturbed(pushes)[SINKS[0]]

    def test_functions_of_users(self, sample: int) -> None:
        """Also in the middle of them: they return, and then the interrupt is raised."""
        out: dict[str, list[Any]] = {"applied": [], "kept": []}
        with md.start(with_users()) as run:
            pushes = 0

            def prepare(number: int) -> Callable[[], object]:
                nonlocal pushes
                pushes = number + 1
                return lambda: run.push("cars", part(number))

            for press in disturbed(prepare, every=5 * sample):
                if not entered(run, press, "cars", 8 * (pushes - 1), 8):
                    run.push("cars", part(pushes - 1))
            run.finish()
            for name, each in out.items():
                each.extend(numbers(run.take(name)))
            assert len(run.view("recent")) == 8 * pushes
        want = {}
        with md.start(with_users()) as run:
            for number in range(pushes):
                run.push("cars", part(number))
            run.finish()
            want = {name: numbers(run.take(name)) for name in out}
        assert out == want

    def test_asyncio(self) -> None:
        """The first Ctrl-C cancels the task, as ``asyncio.run`` has it; the push is whole."""

        async def pushes(run: Any, number: int) -> None:
            await run.push_async("cars", part(number))

        with md.start(query()) as run:
            pushed = 0
            for number in range(120):
                press = Press(lambda number=number: asyncio.run(pushes(run, number)), 5 * number)  # type: ignore[misc]
                after = run.positions()["cars"]
                assert after - pushed in (0, 8)
                assert after - pushed == 8 or press.raised
                pushed = after
                assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
            run.push("cars", part(200))

    def test_a_storm_of_signals(self) -> None:
        """From another thread, whenever they come."""

        class Storm(Exception):
            pass

        armed = False

        def storm(number: int, frame: Any) -> None:
            if armed:
                raise Storm

        done, rng, main = threading.Event(), random.Random(7), threading.get_ident()

        def blow() -> None:
            while not done.wait(rng.uniform(0, 1e-4)):
                signal.pthread_kill(main, signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, storm)
        out: dict[str, list[Any]] = {}
        stormed = number = 0
        thread = threading.Thread(target=blow)
        thread.start()
        try:
            with md.start(query()) as run:
                while stormed < 100:
                    for source in ("cars", "vans"):
                        while run.positions()[source] < 8 * (number + 1):
                            try:
                                armed = True
                                run.push(source, part(number))
                                armed = False
                            except Storm:
                                armed = False
                                stormed += 1
                            assert run.positions()[source] in (8 * number, 8 * number + 8)
                    number += 1
                run.finish()
                takes(run, out)
        finally:
            armed = False
            done.set()
            thread.join()
            signal.signal(signal.SIGUSR1, before)
        assert out == undisturbed(number)


def interrupted_once(
    call: Callable[[], object], every_s: float, begin: threading.Event | None = None
) -> bool:
    """Press Ctrl-C again and again until one has been raised; whether the call raised it."""
    done = threading.Event()

    def once(number: int, frame: Any) -> None:
        if not done.is_set():
            done.set()
            raise KeyboardInterrupt

    def press() -> None:
        assert begin is None or begin.wait(DEADLINE_S)
        while not done.wait(every_s):
            _thread.interrupt_main()

    before = signal.signal(signal.SIGINT, once)
    presser = threading.Thread(target=press)
    presser.start()
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        done.set()
        presser.join()
        signal.signal(signal.SIGINT, before)
    return False


class TestGivingUp:
    def test_an_endless_function_is_given_up(self, tmp_path: Path) -> None:
        """One Ctrl-C waits for it, another one a second later doesn't; the run has stopped, and its last
        checkpoint is whole."""
        hangs = False
        inside = threading.Event()

        @md.register("test.interrupts.hangs")
        def maybe(batch: pa.RecordBatch) -> dict[str, Any]:
            while hangs:
                inside.set()
            return {"vid": batch.column("vid")}

        q = md.Query("hangs")
        cars = q.source("cars", {"ts": "timestamp", "vid": "int64", "speed": "float64"}, time="ts", slack=9)
        q.sink("o", cars.apply(maybe, {"vid": "int64"}))
        run = md.start(q, checkpoint=tmp_path / "state", checkpoint_every=None)
        run.push("cars", part(0))
        run.checkpoint()
        hangs = True
        assert interrupted_once(lambda: run.push("cars", part(1)), 0.2, inside)
        with pytest.raises(md.DataError, match=r"has stopped.*broken off by KeyboardInterrupt") as refused:
            run.push("cars", part(1))
        assert refused.value.code == "data.stopped"
        assert "restore" in refused.value.hint
        run.close()
        hangs = False
        with md.restore(tmp_path / "state") as again:
            assert again.positions() == {"cars": 8}
            again.push("cars", part(1), first=8)
            assert len(again.take("o")) == 16

    def test_a_wait_ends_at_once(self) -> None:
        """Nothing is half done while a push waits for room."""
        full = rows(0, 400)
        with md.start(query(), queue=full.nbytes) as run:
            inside, go = threading.Event(), threading.Event()
            run.on(SINKS[0], lambda table: (inside.set(), go.wait(DEADLINE_S)))
            run.push("cars", full)
            assert inside.wait(DEADLINE_S)
            before = run.positions()
            assert interrupted_once(lambda: run.push("cars", full), 0.1)
            go.set()
            assert run.positions() == before
            run.flush()
