"""Folders of a run that was killed, damaged in every way, and what a restore makes of them.

A story is pushed and taken until the process is killed (its folders are copied). What must come out is said
by plain Python: rows that were taken before the kill come again unchanged, whatever the order in which they
are pushed again; all others come once; counts and sums fit them; the history is those rows, numbered so.
"""

from __future__ import annotations

import random
import re
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import medusa as md

ROWS = {"ts": "int64", "k": "int64", "v": "int64"}
LOCKS = {"lock", ".lock", "spill.lock"}
SMALL_BYTES = 700
"""Files up to this are cut at every length."""
KEYS = 1_500
WINDOW_S = 1_000


def query() -> md.Query:
    q = md.Query("story")
    a, b = (q.source(each, ROWS, time="ts", unit="s", slack="1h") for each in "ab")
    both = q.connection_point("recent", a.union(b, name="both"), keep="100h", keep_bytes="512 KiB")
    q.sink("out", both)
    q.sink("sums", both.running(s=md.sum("v")))
    q.sink("counts", both.window(f"{WINDOW_S}s").group_by("k").aggregate(n=md.count(), name="per_k"))
    return q


def rows(source: str, first: int, count: int) -> dict[str, list[int]]:
    """Rows of a source, by their numbers; every value is another."""
    numbers = range(first, first + count)
    return {
        "ts": [n // 8 for n in numbers],
        "k": [(2 * n + (source == "b")) * 7 % KEYS for n in numbers],
        "v": [2 * n + (source == "b") for n in numbers],
    }


STORY: list[tuple[str, Any]] = [
    ("push", ("a", 1_200)),
    ("push", ("b", 1_200)),
    ("checkpoint", None),
    ("push", ("b", 3)),
    ("push", ("a", 2)),
    ("take", None),
    ("older", None),
    ("push", ("a", 1)),
    ("checkpoint", None),
    ("push", ("a", 4)),
    ("push", ("b", 1)),
    ("take", None),
    ("push", ("b", 6)),
    ("checkpoint", None),
    ("push", ("b", 2)),
    ("push", ("a", 3)),
    ("take", None),
    ("boundary", 1),
    ("push", ("a", 2)),
    ("push", ("b", 3)),
    ("take", None),
]
EXTRA = 4_000
"""Rows of a that nobody takes before the kill: some of what comes of them is in the spill folder."""
MORE = 900
"""Rows of each source that come after the kill, besides."""


@dataclass(frozen=True)
class Killed:
    """What a killed run left.

    Attributes:
        folders: state, history and spill, and a recording.
        older: the same at an earlier moment.
        had: by sink, what had been taken.
        pushed: by source, how many rows.
    """

    folders: Path
    older: Path
    had: dict[str, list[dict[str, int]]]
    pushed: dict[str, int]


@dataclass(frozen=True)
class Damage:
    """What becomes of a file.

    Attributes:
        file: below the folders.
        how: ``bit``, ``short``, ``zeros``, ``gone`` or ``older``.
        at: which bit, or from which byte on.
    """

    file: str
    how: str
    at: int = 0

    def do(self, folders: Path, older: Path) -> None:
        path = folders / self.file
        data = bytearray(path.read_bytes()) if path.is_file() else bytearray()
        if self.how == "gone":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            return
        if self.how == "bit":
            data[self.at // 8] ^= 1 << self.at % 8
        elif self.how == "older":
            data = bytearray((older / self.file).read_bytes())
        else:
            data[self.at :] = bytes(len(data) - self.at) if self.how == "zeros" else b""
        path.write_bytes(data)


def opened(folders: Path, **options: Any) -> Any:
    places = {"history": folders / "history", "spill": folders / "spill"}
    return md.restore(folders / "state", **places, **options)


def killed(folder: Path) -> Killed:
    """Live the story."""
    live, had = folder / "live", {sink: [] for sink in ("out", "sums", "counts")}
    live.mkdir()
    pushed = dict.fromkeys("ab", 0)
    run = md.start(
        query(),
        checkpoint=live / "state",
        checkpoint_every=None,
        history=live / "history",
        spill=live / "spill",
        memory="160 KiB",
    )
    for what, value in STORY:
        if what == "push":
            source, count = value
            run.push(source, rows(source, pushed[source], count))
            pushed[source] += count
        elif what == "checkpoint":
            run.checkpoint()
        elif what == "boundary":
            run.boundary("a", value)
        elif what == "take":
            for sink, have in had.items():
                have += run.take(sink).to_pylist()
        else:
            run._fragment.connections.sync()
            shutil.copytree(live, folder / "older")
    run.record("recent", 0, 10**15, live / "recording")
    for first in range(0, EXTRA, 500):
        run.push("a", rows("a", pushed["a"] + first, 500))
    run._fragment.connections.sync()
    shutil.copytree(live, folder / "killed")
    run._give_up()
    return Killed(folder / "killed", folder / "older", had, pushed)


def content(folder: Path) -> dict[str, bytes]:
    """All files that say something, and all folders."""
    found = [each for each in sorted(folder.rglob("*")) if each.name not in LOCKS]
    return {
        str(each.relative_to(folder)): each.read_bytes() if each.is_file() else b"(folder)" for each in found
    }


def damages(killed: Killed, chance: random.Random) -> Iterator[Damage]:
    """All there are to be tried, of every file: every length of small ones, a sample of large ones."""
    for path in sorted(killed.folders.rglob("*")):
        name = str(path.relative_to(killed.folders))
        if path.name in LOCKS:
            continue
        if path.is_dir():
            if path.name.startswith("checkpoint-"):
                yield Damage(name, "gone")
            continue
        size = path.stat().st_size
        small = size <= SMALL_BYTES
        lengths = range(size) if small else sorted(chance.sample(range(size), 12))
        yield from (Damage(name, "short", at) for at in lengths)
        yield from (Damage(name, "zeros", at) for at in sorted(chance.sample(range(size), min(size, 6))))
        bits = chance.sample(range(8 * size), min(8 * size, 24))
        yield from (Damage(name, "bit", at) for at in sorted(bits))
        yield Damage(name, "gone")
        if (killed.older / name).is_file() and (killed.older / name).read_bytes() != path.read_bytes():
            yield Damage(name, "older")


def outcome(killed: Killed, damage: Damage, folder: Path) -> str:
    """Damage a copy, restore it, and go on to the end: ``exact``, ``refused``, or ``told`` where rows of the
    history can't be read and that is said. Anything else fails.
    """
    shutil.copytree(killed.folders, folder)
    damage.do(folder, killed.older)
    before = content(folder)
    try:
        if damage.file.startswith("recording"):
            return _replayed(killed, folder)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            run = opened(folder)
    except md.StateError as error:
        _names(damage, f"{error}")
        assert content(folder) == before, f"{damage}: a refused call changed something"
        if offered := re.search(r"restore\(\.\.\., checkpoint='(.*)'\)", error.hint):
            with opened(folder, checkpoint=offered[1]) as run:
                _goes_on(killed, damage, run)
        return "refused"
    told = [f"{each.message}" for each in said]
    for each in told:
        _names(damage, each)
    with run:
        missing = _goes_on(killed, damage, run)
    return "told" if missing or told else "exact"


def _names(damage: Damage, words: str) -> None:
    """What is said names the file: for a person, its folder and, but for an index or a mark, the file."""
    where = damage.file
    if damage.how == "gone" and "/checkpoint-" in where and where.count("/") == 1:
        where = where.split("/")[0]
    stem = re.sub(r"\.(synced|log|index|index-copy|arrows)$", "", where)
    stem = (
        re.sub(r"/(manifest\.\w+|[^/]*)$", "", stem)
        if "/checkpoint-" in stem or "recording" in stem
        else stem
    )
    assert stem in words, f"{damage}: {words}"


def _replayed(killed: Killed, folder: Path) -> str:
    """The recording was of all rows that the history has."""
    q = md.Query("again")
    q.sink("rows", q.source("recent", ROWS, time="ts", unit="s"))
    table = md.replay(folder / "recording", q).only
    order = [row["v"] for row in table.to_pylist()]
    had = [row["v"] for row in killed.had["out"]]
    assert order[: len(had)] == had
    assert len(order) == sum(killed.pushed.values())
    return "exact"


def _goes_on(killed: Killed, damage: Damage, run: Any) -> int:
    """Push the rest, in another order than before, and look at all that comes; rows of the history that can't
    be read.
    """
    got: dict[str, list[dict[str, int]]] = {sink: list(have) for sink, have in killed.had.items()}
    ends = {source: count + EXTRA + MORE for source, count in killed.pushed.items()}
    for source in "ba":
        at = run.positions()[source]
        assert at <= killed.pushed[source], f"{damage}: nobody was told that more was durable"
        run.push(source, rows(source, at, ends[source] - at), first=at)
        _take(run, got, damage)
    run.finish()
    _take(run, got, damage)
    out = [row["v"] for row in got["out"]]
    assert sorted(out) == sorted(v for source in "ab" for v in rows(source, 0, ends[source])["v"]), (
        f"{damage}: rows are missing or come twice"
    )
    assert got["out"] == [_row(v) for v in out]
    for each in (0, 1):  # of each source in its order
        mine = [v for v in out if v % 2 == each]
        assert mine == sorted(mine), damage
    sums, total = [], 0
    for v in out:
        total += v
        sums.append(total)
    assert [row["s"] for row in got["sums"]] == sums, f"{damage}: sums of other rows"
    counts = Counter((_row(v)["ts"] // WINDOW_S * WINDOW_S * 1_000_000, _row(v)["k"]) for v in out)
    found = {(_us(row["window_start"]), row["k"]): row["n"] for row in got["counts"]}
    assert len(found) == len(got["counts"])
    assert found == counts, f"{damage}: other counts"
    return _history(run, damage, out)


def _us(value: Any) -> int:
    return value if isinstance(value, int) else round(value.timestamp() * 1e6)


def _row(v: int) -> dict[str, int]:
    return {"ts": v // 2 // 8, "k": v * 7 % KEYS, "v": v}


def _take(run: Any, got: dict[str, list[Any]], damage: Damage) -> None:
    for sink, have in got.items():
        number = run.taken(sink)
        assert number <= len(have), f"{damage}: {sink}: a gap"
        for row in run.take(sink).to_pylist():
            if number < len(have):
                assert have[number] == row, f"{damage}: {sink}: row {number} came again, but changed"
            else:
                have.append(row)
            number += 1


def _history(run: Any, damage: Damage, out: list[int]) -> int:
    """All rows that are kept are those that came, or are said to be damaged; how many are."""
    info = run.history("recent")
    assert (info.first, info.next) == (0, len(out)), f"{damage}: rows of the history went"
    at = missing = 0
    while at < len(out):
        try:
            seen = run.view("recent", rows=(at, len(out)))["v"].to_pylist()
        except md.StateError as error:
            said = re.search(r"rows (\d+) to (\d+) are damaged", error.message)
            if said is None:  # the file is gone
                _names(damage, error.message)
                following = [
                    int(each.name[:18])
                    for each in Path(error.message.split(" ")[0]).parent.iterdir()
                    if each.name[:18].isdigit()
                ]
                end = min((each for each in following if each > at), default=len(out))
                missing += end - at
                at = end
                continue
            _names(damage, error.message)
            first, last = int(said[1]), int(said[2])
            assert at <= first <= last < len(out)
            assert run.view("recent", rows=(at, first))["v"].to_pylist() == out[at:first], damage
            missing += last + 1 - first
            at = last + 1
            continue
        assert seen == out[at:], f"{damage}: other rows in the history"
        break
    return missing
