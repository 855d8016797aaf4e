"""Question: how long does a reader see nothing while a fragment with much state goes to another node?

    python -m bench.moves [--quick] [--rounds 6]

Data: 10^3 to 10^6 open groups (a keyed window of an hour: count, sum), published before anything is timed;
then 100 rows of random keys each 5 ms. The same fragment has a window of 10 ms, whose rows a reader takes
from another client. *pause*: the longest gap between two arrivals from the order to move until half a second
after its answer, less the usual gap (p50 of those while nothing moves). ``longest, resting``: the longest gap
in 4 s in which nothing was moved: what the machine does by itself, with a checkpoint each second. *at the
switch*: of the pause what lies around the time in which the owner had stopped; before that the state goes
ahead while the owner runs, and only the processor is shared.
A split's peer is the same split by which the fragment rests while its whole state is cut and written.
The peer stops and copies: end the node (its last checkpoint is written), copy its data folder, start a
process on the copy (forked, so Python's imports don't count); clients reconnect by themselves.
Exact first: each round counts only if all rows of both outputs come once and are right, at the end.
Not shown: nodes on two machines, where the bytes take as long as the network does.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import medusa as md
from bench import machine, report
from tests.system.nodes import ForkedNodes, until

SIZES = (1_000, 10_000, 100_000, 1_000_000)
QUICK = SIZES[:2]
RESULTS = Path(__file__).parent / "results"
ROWS = 100
GAP_S = 0.005
SMALL_US = 10_000
ROW_US = 50
FILL = 65_536
SETTLE_S = 0.5
EDGE_S = 0.05
ROUNDS = 6
"""Moves, there and back in turns."""

STOPS = 3
SPLITS = 3
RESTS = '[streams."q.groups-*"]\nat_limit = "shed"\n'
"""New fragments whose streams might shed don't follow the old one: it rests (docs/splitting.md)."""


def query() -> md.Query:
    """State that stays, and output that shows when the fragment rests."""
    q = md.Query("q")
    rows = q.source("rows", {"ts": "int64", "k": "int64", "v": "int64"}, time="ts", unit="us")
    held = rows.window("1h").group_by("k").aggregate(n=md.count(), v=md.sum("v"), name="groups")
    shown = rows.window(f"{SMALL_US}us").aggregate(n=md.count(), v=md.sum("v"), name="total")
    q.sink("held", held)
    q.sink("shown", shown)
    return q


class Stream:
    """A publisher at its pace, and a reader that notes when rows came."""

    def __init__(self, fed: md.Federation, other: md.Federation, keys: int) -> None:
        self.fed, self.other, self.keys = fed, other, keys
        self.random = np.random.default_rng(keys)
        self.at = 0
        self.counts = np.zeros(keys, dtype=np.int64)
        self.sums = np.zeros(keys, dtype=np.int64)
        self.came: list[float] = []
        self.got: list[pa.RecordBatch] = []
        self.failed: list[BaseException] = []
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(do,)) for do in (self._publish, self._read)
        ]
        for start in range(0, keys, FILL):
            self._push(np.arange(start, min(start + FILL, keys)))
        fed.flush("300s")

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def _guard(self, do: Any) -> None:
        try:
            do()
        except BaseException as error:
            self.failed.append(error)

    def _push(self, keys: np.ndarray) -> None:
        """In time, each row is 50 us after the one before: as they come, once all groups are there."""
        times = np.arange(self.at, self.at + len(keys), dtype=np.int64)
        np.add.at(self.counts, keys, 1)
        np.add.at(self.sums, keys, times)
        self.fed.publish("q.rows", pa.record_batch({"ts": times * ROW_US, "k": keys, "v": times}))
        self.at += len(keys)

    def _publish(self) -> None:
        due = time.perf_counter()
        while not self._over.is_set():
            self._push(self.random.integers(0, self.keys, ROWS))
            due += GAP_S
            time.sleep(max(due - time.perf_counter(), 0))
        self.fed.finish("q.rows")

    def _read(self) -> None:
        for train in self.other.subscribe("q.shown", from_="oldest", timeout="120s"):
            self.came.append(time.perf_counter())
            self.got.append(train.batch)

    def going_on(self) -> None:
        """Until rows come again."""
        seen = len(self.came)
        until(lambda: self.failed or len(self.came) > seen + 20, what="rows come", deadline_s=120)
        assert not self.failed, self.failed

    def longest(self, begin: float, end: float) -> float:
        """Of the gaps between arrivals that lie between these times in part, seconds."""
        times = np.array(self.came)
        inside = times[(times >= begin) & (times <= end)]
        before = times[times < begin][-1:]
        after = times[times > end][:1]
        return float(np.diff(np.concatenate([before, inside, after])).max())

    def usual(self, begin: float, end: float) -> float:
        """p50 of the gaps between these times, seconds."""
        times = np.array(self.came)
        return float(np.median(np.diff(times[(times >= begin) & (times <= end)])))

    def end(self) -> None:
        """Nothing more is published, and all that came is right.

        Raises:
            AssertionError: a row is missing, came twice or is wrong.
        """
        self._over.set()
        for thread in self._threads:
            thread.join(300)
            assert not thread.is_alive(), "the reader waits for rows that never come"
        assert not self.failed, self.failed
        shown = pa.Table.from_batches(self.got)
        every = SMALL_US // ROW_US
        starts = np.arange(0, self.at, every)
        ends = np.minimum(starts + every, self.at)
        assert (shown["n"].to_numpy() == ends - starts).all(), "windows with other rows"
        assert (shown["v"].to_numpy() == (starts + ends - 1) * (ends - starts) // 2).all()
        held = pa.Table.from_batches(
            [train.batch for train in self.other.subscribe("q.held", from_="oldest", timeout="120s")]
        ).sort_by("k")
        assert (held["k"].to_numpy() == np.arange(self.keys)).all(), "groups are missing or came twice"
        assert (held["n"].to_numpy() == self.counts).all()
        assert (held["v"].to_numpy() == self.sums).all()


@contextlib.contextmanager
def flowing(keys: int, limits: str = "") -> Iterator[tuple[ForkedNodes, md.Federation, Stream]]:
    """Three nodes with the query at ``a``, a client for orders, and rows that flow; in the end all is right.

    Args:
        limits: TOML for the configuration of each node.
    """
    with (
        tempfile.TemporaryDirectory(prefix="md") as folder,
        contextlib.closing(ForkedNodes(Path(folder), ["a", "b", "c"], limits=limits)) as nodes,
    ):
        nodes.start()
        with (
            md.connect(nodes.addresses["a"], timeout="60s") as fed,
            md.connect(nodes.addresses["c"], timeout="60s") as other,
            md.connect(nodes.addresses["c"], timeout="60s") as orders,
        ):
            until(lambda: set(orders.status()["peers"].values()) == {"up"})
            fed.deploy(query(), at={"a": ["rows"]})
            stream = Stream(fed, other, keys)
            stream.begin()
            stream.going_on()
            yield nodes, orders, stream
            stream.end()


def undisturbed(stream: Stream, seconds: float) -> tuple[float, float]:
    """The usual and the longest gap while nothing is ordered, in seconds."""
    begin = time.perf_counter()
    time.sleep(seconds)
    end = time.perf_counter()
    return stream.usual(begin, end), stream.longest(begin, end)


def measure_size(keys: int, rounds: int, stops: int) -> dict[str, Any]:
    """All ways with so many groups."""
    with flowing(keys) as (nodes, orders, stream):
        usual, resting = undisturbed(stream, 4)
        moves = [move(stream, orders, usual, to="ba"[number % 2]) for number in range(rounds)]
        if rounds % 2:
            orders.move("q/rows", to="a")
        data, peers = nodes.data("a"), []
        for number in range(stops):
            copied = nodes.data("a").with_name(f"a{number}.data")
            peers.append(stop_and_copy(stream, nodes, usual, data, copied))
            data = copied
        splits = [split_and_merge(stream, orders, usual, data) for _ in range(SPLITS)]
    # Here a fragment that is split rests, from the copy of its state to the new ones. Merges don't.
    with flowing(keys, limits=RESTS) as (nodes, orders, stream):
        at_rest, _ = undisturbed(stream, 2)
        rests = [split_and_merge(stream, orders, at_rest, nodes.data("a")) for _ in range(SPLITS)]
    return {
        "usual_s": usual,
        "resting_s": resting,
        "moves": moves,
        "stops": peers,
        "splits": splits,
        "rests": rests,
    }


def move(stream: Stream, orders: md.Federation, usual: float, to: str) -> dict[str, Any]:
    """The fragment goes to another node."""
    stream.going_on()
    begin = time.perf_counter()
    answer = orders.move("q/rows", to=to)
    answered = time.perf_counter()
    time.sleep(SETTLE_S)
    stream.going_on()
    gap = stream.longest(begin, answered + SETTLE_S)
    switch = stream.longest(answered - answer["pause_us"] / 1e6 - EDGE_S, answered + SETTLE_S)
    return {
        "switch_s": switch - usual,
        "pause_s": gap - usual,
        "owner_s": answer["pause_us"] / 1e6,
        "took_s": answered - begin,
        "bytes": answer["bytes"],
        "attempts": answer["attempts"],
    }


def stop_and_copy(
    stream: Stream, nodes: ForkedNodes, usual: float, data: Path, copied: Path
) -> dict[str, float]:
    """The node ends, and starts on a copy of its data."""
    time.sleep(1)
    stream.going_on()
    begin = time.perf_counter()
    assert nodes.stop("a") == 0
    shutil.copytree(data, copied)
    nbytes = sum(path.stat().st_size for path in copied.rglob("*") if path.is_file())
    text = nodes.config("a").read_text()
    nodes.config("a").write_text(text.replace(f'"{data.name}"', f'"{copied.name}"'))
    nodes.start("a")
    stream.going_on()
    return {"pause_s": stream.longest(begin, time.perf_counter()) - usual, "bytes": nbytes}


def split_and_merge(stream: Stream, orders: md.Federation, usual: float, data: Path) -> dict[str, float]:
    """The keyed window in two parts on its node, and one again: pauses in seconds, bytes of what the node has
    written when it answers (checkpoints of the new fragments, and its catalog)."""
    found = {}
    for name, do in (
        ("split", lambda: orders.split("q/groups", 2)),
        ("merge", lambda: orders.merge("q/groups")),
    ):
        time.sleep(SETTLE_S)
        stream.going_on()
        before = _sizes(data)
        begin = time.perf_counter()
        answer = do()
        end = time.perf_counter() + SETTLE_S
        found[f"{name}_bytes"] = sum(size for path, size in _sizes(data).items() if path not in before)
        time.sleep(SETTLE_S)
        stream.going_on()
        found[f"{name}_s"] = stream.longest(begin, end) - usual
        found[f"{name}_owner_s"] = answer["pause_us"] / 1e6
    return found


def _sizes(data: Path) -> dict[str, int]:
    """Bytes by file. Files come and go meanwhile."""
    found = {}
    for folder, _, names in os.walk(data):
        for path in (os.path.join(folder, name) for name in names if not name.endswith(".tmp")):
            with contextlib.suppress(FileNotFoundError):
                found[path] = os.path.getsize(path)
    return found


def measure(sizes: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """Figures by number of groups."""
    found: dict[str, Any] = {"rate": int(ROWS / GAP_S), "rounds": rounds, **machine.describe(), "sizes": {}}
    for keys in sizes:
        found["sizes"][str(keys)] = measure_size(keys, rounds, STOPS)
    found["load"] = os.getloadavg()[2]
    return found


def table(found: dict[str, Any]) -> str:
    """Markdown."""
    lines = [
        f"{report.machine_line(found)} {found['rate']:,} rows/s, {found['rounds']} moves and {STOPS} stops "
        f"each. Load while it ran: {found['load']:.1f}.",
        "",
        "| groups | usual gap p50 | longest, resting | pause of a move p50 | max | at the switch p50 | max "
        "| owner stopped p50 | max | took p50 | MB | stop, copy, start: pause p50 | max | MB |",
        f"|{'---|' * 14}",
    ]
    for size, at in found["sizes"].items():
        names = ("pause_s", "switch_s", "owner_s", "took_s", "bytes")
        pause, switch, owner, took, nbytes = ([each[key] for each in at["moves"]] for key in names)
        stop, copied = ([each[key] for each in at["stops"]] for key in ("pause_s", "bytes"))
        cells = [
            f"{int(size):,}",
            *(f"{each * 1e3:.0f} ms" for each in (at["usual_s"], at["resting_s"])),
            *(f"{each * 1e3:.0f} ms" for each in (np.median(pause), max(pause))),
            *(f"{each * 1e3:.0f} ms" for each in (np.median(switch), max(switch))),
            *(f"{each * 1e3:.0f} ms" for each in (np.median(owner), max(owner), np.median(took))),
            f"{np.median(nbytes) / 1e6:.1f}",
            *(f"{each * 1e3:,.0f} ms" for each in (np.median(stop), max(stop))),
            f"{np.median(copied) / 1e6:.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    heads = ["groups"]
    for what in ("split", "merge"):
        heads += [f"pause of a {what} p50", "max", "stopped p50", "MB"]
    heads += ["split at rest: pause p50", "max", "stopped p50"]
    lines += ["", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for size, at in found["sizes"].items():
        cells = [f"{int(size):,}"]
        for name, each in (("split", at["splits"]), ("merge", at["splits"]), ("split", at["rests"])):
            pause = [one[f"{name}_s"] for one in each]
            owner = np.median([one[f"{name}_owner_s"] for one in each])
            cells += [f"{took * 1e3:,.0f} ms" for took in (np.median(pause), max(pause), owner)]
            if each is at["splits"]:
                cells.append(f"{np.median([one[f'{name}_bytes'] for one in each]) / 1e6:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write(found: dict[str, Any], folder: Path) -> str:
    return report.save("moves", found, table(found), folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="up to 10,000 groups")
    parser.add_argument("--sizes", default="", help="instead: numbers of groups, by commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    sizes = tuple(int(size) for size in options.sizes.split(",") if size) or (
        QUICK if options.quick else SIZES
    )
    sys.stdout.write(write(measure(sizes, options.rounds), options.out))


if __name__ == "__main__":
    main()
