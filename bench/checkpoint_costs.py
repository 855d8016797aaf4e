"""Question: what does a checkpoint of a million keys cost, whole and as a delta, for each box with keys?

    python -m bench.checkpoint_costs [--keys 1000000] [--rounds 5] [--boxes window,running] [--node]
    python -m bench.checkpoint_costs --pushes 10 [--keys 1000000] [--boxes window,running]
    python -m bench.checkpoint_costs --begins 200 [--keys 1000000] [--boxes window,running]
    python -m bench.checkpoint_costs --disk 5 [--keys 1000000] [--boxes window,running]

Data: int64 keys with a count and a sum; between two checkpoints the rows of 1 % of the keys, at random. A
checkpoint goes into a folder on disk, synced. The peer of a delta is the whole checkpoint of the same state:
both are made in turn, and the ratio of their medians is what is asked. CPU of a checkpoint is that of the
whole process. *begin* and *piece* are of the engine's thread on a node, where state is copied in pieces: CPU
to begin a whole one and a delta, and of the longest piece of either: medians, and the worst of all. With
``--node`` the checkpoints are those of a node's host instead of a program's run.

``--pushes``: how long a push of a program takes by the clock while checkpoints fall due each second: 100 rows
of keys at random every 2 ms for so many seconds, and the same pushes of a run without checkpoints.

``--begins``: for how long the rows of a program rest, at so many deltas and a quarter as many whole ones: CPU
of the engine's thread to begin each, just after a push, and of every piece. p50, p99 and worst. A full
collection of Python's comes whenever it comes, and takes longer than these: those in which one came are told
apart, how many and the longest.

``--disk``: MB/s at which so many whole checkpoints come to the disk, by the clock, beside a plain write of as
many bytes into one new file, synced: in turn, so that a disk that is slower now is so for both. *written* is
from when all is copied until it is durable, *all* has the copying too; neither has the deletion of an older
one. *sums* is how fast the bytes are summed, which a plain write doesn't do.

What it does not show: a disk that is slower than its cache; memory.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md
from medusa._native import crc32c
from medusa.elements import Train
from medusa.engine.state.checkpoint import DeltaChain
from medusa.nodes.reports import Persisted
from medusa.ports import Content, Store
from medusa.runtime.engine_host.group_names import group_name
from medusa.runtime.engine_host.host import EngineHost
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.store.folder_store import FolderStore
from medusa.wire.outbox import Persist

SHARE = 100
"""One key of so many changes between two checkpoints."""

DELTAS = 4
"""After each whole checkpoint. The first also deletes the whole one before."""

COLUMNS = {"ts": "int64", "k": "int64", "v": "float64"}

Shape = Callable[[Any], Any]
CALLS: dict[str, Any] = {"n": md.count(), "total": "sum(v)"}

BOXES: dict[str, Shape] = {
    "window": lambda s: s.window("1 h").group_by("k").aggregate(**CALLS),
    "sliding window": lambda s: s.window("1 h", "10 min").group_by("k").aggregate(**CALLS),
    "running": lambda s: s.group_by("k").running(**CALLS),
    "running with lag": lambda s: s.group_by("k").running(n=md.count(), before=md.lag("v")),
    "sessions": lambda s: s.session("1 h").group_by("k").aggregate(**CALLS),
    "windows of rows": lambda s: s.group_by("k").window_rows(1000).aggregate(**CALLS),
    "windows of 2 rows": lambda s: s.group_by("k").window_rows(2).aggregate(**CALLS),  # they close
    "join": lambda s: s.join(s.select("k", w="v"), on="k", within="1 h"),
    "join with a band": lambda s: s.join(
        s.select("k", w="v"), on="k", within="1 h", where="right.w < left.v + 1"
    ),
    "as-of join": lambda s: s.asof_join(s.select("k", w="v"), on="k", within="1 h"),
    "running that expires": lambda s: s.group_by("k").running(expire="1 h", **CALLS),
    "lag that expires": lambda s: s.group_by("k").running(expire="1 h", before=md.lag("v")),
    "distinct": lambda s: s.distinct("k", "v", within="1 h"),  # with new keys each time
    "table": lambda s: updated(s),
    "look-up": lambda s: updated(s, looked_up=True),
    "process": lambda s: s.process(Tally, {"n": "int64"}, by="k", state={"n": "int64", "v": "float64"}),
}


@md.register("bench.checkpoint_costs.Tally")
class Tally:
    """How many rows each key had, and its last value."""

    def rows(self, key: Any, batch: pa.RecordBatch, state: Any, now: int) -> None:
        state.n = (state.n or 0) + batch.num_rows
        state.v = batch.column("v")[-1].as_py()

    def boundary(self, key: Any, time: int, state: Any) -> None:
        """Nothing wakes it."""


def updated(s: Any, *, looked_up: bool = False) -> Any:
    """What a table holds after each row, or what a row sees of it: a copy of its own."""
    table = s.query.table("t", key="k", schema={"k": "int64", "n": "int64", "total": "float64"})
    made = s.update(
        table, set={"n": "table.n + 1", "total": "table.total + v"}, insert={"n": "1", "total": "v"}
    )
    return s.lookup(table) if looked_up else made


def query(shape: Shape) -> md.Query:
    q = md.Query("q")
    q.sink("o", shape(q.source("s", COLUMNS, time="ts", unit="us", slack=0)))
    return q


def push(run: Any, at: int, keys: Any) -> None:
    run.push("s", {"ts": np.full(len(keys), at), "k": keys, "v": keys * 0.5 + at})
    run.take("o")


def written(folder: Path, name: str) -> int:
    return sum(file.stat().st_size for file in (folder / name).iterdir())


def cost(work: Callable[[], str], folder: Path) -> dict[str, float]:
    """Of one checkpoint: bytes, CPU and time by the clock in ms."""
    cpu, clock = time.process_time(), time.perf_counter()
    name = work()
    made = {"ms": (time.perf_counter() - clock) * 1e3, "cpu_ms": (time.process_time() - cpu) * 1e3}
    return {**made, "bytes": written(folder, name)}


def pieces(run: Any) -> dict[str, float]:
    """CPU of the engine's thread for a copy in pieces, begun and the longest piece. Nothing is written."""
    begun = time.thread_time()
    copying = run._fragment.captured(run._checkpoints._store.capture(), patient=True)
    found = {"begin_ms": (time.thread_time() - begun) * 1e3, "piece_ms": 0.0}
    done = False
    while not done:
        before = time.thread_time()
        done = copying.step()
        found["piece_ms"] = max(found["piece_ms"], (time.thread_time() - before) * 1e3)
    return found


class AtOnce:
    """A worker of a host that does each job when it is given."""

    idle = False

    def __init__(self, name: str) -> None:
        """Whatever its name."""

    def give(self, job: Callable[[], None]) -> None:
        job()

    def cpu_us(self) -> None:
        """Nobody asks."""

    def stop(self, timeout_s: float | None = None, *, last: Callable[[], None] | None = None) -> bool:
        return True


def on_a_node(shape: Shape, keys: int, rounds: int) -> Iterator[tuple[str, dict[str, float]]]:
    """As ``measured``, of the host of a node, in one thread."""
    draw = np.random.default_rng(3)
    with tempfile.TemporaryDirectory(prefix="medusa-bench-") as name:
        store = FolderStore(Path(name) / "data")
        host: Any = EngineHost(store, SystemClock(), wake=lambda: None, worker=AtOnce)
        host.open("f", query(shape).graph)
        fragment, tokens = host._running["f"].fragment, count(1)

        def feed(at: int, k: Any) -> None:
            times = pa.array(np.full(len(k), at), pa.timestamp("us", "UTC"))
            batch = pa.record_batch({"ts": times.cast(pa.int64()), "k": k, "v": k * 0.5 + at})
            fragment.feed("s", Train(batch=batch, times=times))
            fragment.drain("o")

        def persist() -> str:
            token = next(tokens)
            host.persist(Persist(token=token, fragment="f"))
            assert all(each.ok for each in host.finished() if isinstance(each, Persisted))
            return group_name("f", token)

        feed(0, np.arange(keys))
        persist()
        for turn in range(1, rounds + 1):
            host._running["f"].chain = DeltaChain(whole_bytes=1 << 30)
            yield "whole", {**cost(persist, Path(name) / "data"), "begin_ms": 0.0, "piece_ms": 0.0}
            for step in range(DELTAS):
                feed(turn * DELTAS + step, draw.choice(keys, keys // SHARE, replace=False))
                yield "delta", {**cost(persist, Path(name) / "data"), "begin_ms": 0.0, "piece_ms": 0.0}
        store.close()


def measured(shape: Shape, keys: int, rounds: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Whole ones and deltas, in turn."""
    draw = np.random.default_rng(3)
    with tempfile.TemporaryDirectory(prefix="medusa-bench-") as name:
        folder = Path(name)
        with md.start(query(shape), checkpoint=folder, checkpoint_every=None, memory="4 GiB") as run:
            store = run._checkpoints._store
            push(run, 0, np.arange(keys))
            run.checkpoint()
            for turn in range(1, rounds + 1):
                store._chain = type(store._chain)()
                found = pieces(run)
                yield "whole", {**cost(run.checkpoint, folder), **found}
                for step in range(DELTAS):
                    push(run, turn * DELTAS + step, draw.choice(keys, keys // SHARE, replace=False))
                    found = pieces(run)
                    yield "delta", {**cost(run.checkpoint, folder), **found}


def paces(shape: Shape, keys: int, seconds: float, every: str | None) -> list[float]:
    """Of each push of a program: how long it took in ms."""
    draw, found = np.random.default_rng(3), []
    with tempfile.TemporaryDirectory(prefix="medusa-bench-") as name:
        options = {} if every is None else {"checkpoint": name, "checkpoint_every": every}
        with md.start(query(shape), memory="4 GiB", **options) as run:
            push(run, 0, np.arange(keys))
            end = time.perf_counter() + seconds
            for at in count(1):
                rows = draw.integers(0, keys, 100)
                began = time.perf_counter()
                if began > end:
                    return found
                push(run, at, rows)
                found.append((time.perf_counter() - began) * 1e3)
                time.sleep(max(0.0, began + 0.002 - time.perf_counter()))
    return found


Begins = dict[str, list[float]]
"""ms of CPU by what is begun or copied; ``collected``: any of these, in a full collection of Python's."""


class _Spans:
    """ms of CPU of what is done in between; those with a full collection apart."""

    def __init__(self) -> None:
        self.found = Begins(delta=[], whole=[], piece=[], collected=[])
        self._full = 0
        gc.callbacks.append(self._collects)

    def _collects(self, phase: str, info: dict[str, int]) -> None:
        self._full += phase == "start" and info["generation"] == 2

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        before, began = self._full, time.thread_time()
        yield
        took = (time.thread_time() - began) * 1e3
        self.found[kind if self._full == before else "collected"].append(took)

    def end(self) -> Begins:
        gc.callbacks.remove(self._collects)
        return self.found


def begins(shape: Shape, keys: int, deltas: int) -> Begins:
    """Of a program: beginnings of deltas and of whole ones, and all pieces of either."""
    draw, spans = np.random.default_rng(3), _Spans()
    options = {"checkpoint_every": None, "memory": "4 GiB"}
    with (
        tempfile.TemporaryDirectory(prefix="medusa-bench-") as name,
        md.start(query(shape), checkpoint=name, **options) as run,
    ):
        checkpoints: Any = run._checkpoints
        store = checkpoints._store
        push(run, 0, np.arange(keys))
        run.checkpoint()
        for turn in range(deltas + deltas // 4):
            push(run, turn + 1, draw.choice(keys, keys // SHARE, replace=False))
            chain, kind = store._chain, "whole" if turn % 5 == 4 else "delta"
            if kind == "whole":
                store._chain = type(chain)()
            with spans.of(kind):
                copying = checkpoints._begin(store, patient=True).copying
            while not copying.done:
                with spans.of("piece"):
                    copying.step()
            copying.drop()
            store._chain = chain
            if kind == "whole":
                run.checkpoint()
    return spans.end()


def print_begins(names: list[str], keys: int, deltas: int) -> None:
    print(
        "| state | a delta begins: p50, p99, worst ms | a whole one | a piece of either"
        " | in full collections: n, worst |\n|---|---|---|---|---|"
    )
    for name in names:
        found = begins(BOXES[name], keys, deltas)
        collected = found.pop("collected")
        cells = [
            ", ".join(f"{x:.2f}" for x in (*np.percentile(v, (50, 99)), max(v))) if v else ""
            for v in found.values()
        ]
        cells.append(f"{len(collected)}, {max(collected, default=0):.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def plainly_written(path: Path, data: bytes) -> float:
    """Seconds for one new file of these bytes, synced."""
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
        os.fsync(file.fileno())
    took = time.perf_counter() - began
    path.unlink()
    return took


class DurableAt:
    """A store that notes when a group of it is durable."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.clock = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, name: str, files: Mapping[str, Content]) -> None:
        self._store.write(name, files)
        self.clock = time.perf_counter()


def to_disk(shape: Shape, keys: int, rounds: int) -> dict[str, list[float]]:
    """MB/s of plain files and of whole checkpoints of a program, in turn; ``size`` is in MB."""
    found: dict[str, list[float]] = {key: [] for key in ("size", "plain", "written", "all", "sums")}
    options = {"checkpoint_every": None, "memory": "4 GiB"}
    with (
        tempfile.TemporaryDirectory(prefix="medusa-bench-") as name,
        md.start(query(shape), checkpoint=name, **options) as run,
    ):
        checkpoints: Any = run._checkpoints
        store = checkpoints._store
        store._store = durable = DurableAt(store._store)
        push(run, 0, np.arange(keys))
        run.checkpoint()
        for turn in range(rounds + 1):
            store._chain = type(store._chain)()
            began = time.perf_counter()
            begun = checkpoints._begin(store, patient=True)
            begun.copying.finish()
            copied = time.perf_counter()
            size = written(Path(name), checkpoints._write_now(store, begun))
            data = np.random.default_rng(turn).bytes(size)
            plain = plainly_written(Path(name) / "plain", data)
            summed = time.perf_counter()
            crc32c(data)
            summed = time.perf_counter() - summed
            spans = {"plain": plain, "written": durable.clock - copied, "all": durable.clock - began}
            if turn:  # the first warms both up
                for key, took in {**spans, "sums": summed}.items():
                    found[key].append(size / took / 1e6)
                found["size"].append(size / 1e6)
    return found


def print_to_disk(names: list[str], keys: int, rounds: int) -> None:
    head = ("MB", "plain MB/s", "written MB/s", "written of plain", "all of plain", "sums alone MB/s")
    print("| state | " + " | ".join(head) + " |\n|---|" + "---|" * len(head))
    for name in names:
        found = to_disk(BOXES[name], keys, rounds)
        middle = {key: statistics.median(values) for key, values in found.items()}
        shares = [
            statistics.median(mine / plain for mine, plain in zip(found[key], found["plain"], strict=True))
            for key in ("written", "all")
        ]
        rates = (f"{middle[key]:.0f}" for key in ("size", "plain", "written"))
        cells = (*rates, *(f"{share:.0%}" for share in shares), f"{middle['sums']:.0f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def print_paces(names: list[str], keys: int, seconds: float) -> None:
    print("| a push | without: p50, p99, worst ms | with checkpoints: p50, p99, worst ms |\n|---|---|---|")
    for name in names:
        cells = []
        for every in (None, "1s"):
            took = np.array(paces(BOXES[name], keys, seconds, every))
            cells.append(", ".join(f"{value:.2f}" for value in (*np.percentile(took, (50, 99)), took.max())))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--node", action="store_true", help="of a node in place of a program")
    parser.add_argument("--boxes", help="some of: " + ", ".join(BOXES))
    parser.add_argument("--pushes", type=float, help="how long pushes take, for so many seconds")
    parser.add_argument("--begins", type=int, help="how long copies take to begin, of so many")
    parser.add_argument("--disk", type=int, help="how fast whole ones come to the disk, of so many")
    asked = parser.parse_args()
    names = [name.strip() for name in asked.boxes.split(",")] if asked.boxes else list(BOXES)
    if asked.pushes:
        print_paces(names, asked.keys, asked.pushes)
        return
    if asked.begins:
        print_begins(names, asked.keys, asked.begins)
        return
    if asked.disk:
        print_to_disk(names, asked.keys, asked.disk)
        return
    head = ("whole MB", "delta MB", "share", "whole CPU ms", "delta CPU ms", "share")
    head += ("begin whole ms", "begin delta ms", "piece ms", "worst ms")
    print("| state | " + " | ".join(head) + " |\n|---|" + "---|" * len(head))
    for name in names:
        found: dict[str, list[dict[str, float]]] = {"whole": [], "delta": []}
        for kind, each in (on_a_node if asked.node else measured)(BOXES[name], asked.keys, asked.rounds):
            found[kind].append(each)
        whole, delta = (
            {key: statistics.median(each[key] for each in found[kind]) for key in found[kind][0]}
            for kind in ("whole", "delta")
        )
        worst = max(each[key] for kind in found.values() for each in kind for key in ("begin_ms", "piece_ms"))
        figures = (
            f"{whole['bytes'] / 1e6:.1f}",
            f"{delta['bytes'] / 1e6:.2f}",
            f"{delta['bytes'] / whole['bytes']:.1%}",
            f"{whole['cpu_ms']:.0f}",
            f"{delta['cpu_ms']:.1f}",
            f"{delta['cpu_ms'] / whole['cpu_ms']:.0%}",
            f"{whole['begin_ms']:.2f}",
            f"{delta['begin_ms']:.2f}",
            f"{max(whole['piece_ms'], delta['piece_ms']):.2f}",
            f"{worst:.2f}",
        )
        print(f"| {name} | " + " | ".join(figures) + " |", flush=True)


if __name__ == "__main__":
    main()
