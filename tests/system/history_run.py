"""A program that keeps history on disk and kills itself in the middle of a call of the system.

    python -m tests.system.history_run FOLDER MOMENTS SEED

It lives MOMENTS times and once more, each time in a new process: starts or restores, compares the whole
history with a list of the rows, then pushes and checkpoints until a call that writes, syncs, cuts, renames
or removes, drawn by chance, is its last; of a write only the beginning happens. Every life prints what it
saw; the last one comes to the end of the rows.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import medusa as md

warnings.simplefilter("ignore", md.LateWarning)

CALLS = ("write", "fsync", "ftruncate", "unlink", "rename", "mkdir", "open", "rmdir")
TOTAL = 20_000


def query() -> md.Query:
    q = md.Query("roads")
    cars = q.source("cars", {"ts": "int64", "vid": "int64", "name": "utf8"}, time="ts", unit="s", slack="5s")
    seen = cars.filter("vid >= 0")
    small = q.connection_point("small", seen, keep="1000s", keep_bytes="256 KiB")
    long = q.connection_point("long", small, keep="300s")
    q.sink("counts", long.window("10s").group_by("vid").aggregate(n=md.count()))
    return q


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = range(first, first + count)
    times = [max(0, n // 10 + n * 7 % 5 - (40 if n % 31 == 30 else 0)) for n in numbers]
    return pa.record_batch(
        {
            "ts": pa.array(times, pa.int64()),
            "vid": pa.array([-1 if n % 11 == 10 else n % 3 for n in numbers], pa.int64()),
            "name": pa.array([None if n % 13 == 0 else "n" * (n % 5) for n in numbers], pa.string()),
        }
    )


def far(folder: Path) -> int:
    """The rows that the life that came furthest began to push."""
    return int((folder / "far").read_text()) if (folder / "far").exists() else 0


def compare(run: Any, folder: Path) -> str:
    """Retention isn't undone by going back: it goes by how far any life came."""
    at = run.positions()["cars"]
    whole = pa.Table.from_batches([rows(0, max(1, at))]).slice(0, at)
    seen = whole.filter(pc.greater_equal(whole["vid"], 0))
    told = [str(at)]
    for name in ("small", "long"):
        info = run.history(name)
        assert info.next == len(seen), f"{name}: {info.next} rows of {len(seen)}"
        assert run.view(name).equals(seen.slice(info.first)), f"{name}: other rows"
        told.append(str(info.rows))
    assert run.history("small").nbytes <= 1 << 18
    gone = seen.slice(0, run.history("long").first)
    assert not len(gone) or pc.max(gone["ts"]).as_py() < far(folder) // 10 - 300, "long: trimmed too early"
    return " ".join(told)


def die_in_call(number: int, chance: random.Random) -> None:
    """Let call ``number`` from now on be the last."""
    left = [number]

    def wrap(plain: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] > 0:
                return plain(*given, **named)
            if name == "write":
                plain(given[0], given[1][: chance.randint(0, len(given[1]))])
            elif chance.random() < 0.5:
                plain(*given, **named)
            os.kill(os.getpid(), signal.SIGKILL)
            return None

        return call

    for name in CALLS:
        setattr(os, name, wrap(getattr(os, name), name))


def live(folder: Path, number: int, chance: random.Random) -> None:
    os.fsync = lambda number: None  # a kill loses nothing that was written; it is still a call to die in
    if number:
        die_in_call(number, chance)
    if any(folder.glob("state/checkpoint-*[0-9]")):
        run = md.restore(folder / "state", history=folder / "history")
    else:
        for half in ("state", "history"):  # killed before its first checkpoint
            if (folder / half).exists():
                (folder / half).rename(folder / f"{half}-of-{os.getpid()}")
        run = md.start(
            query(), checkpoint=folder / "state", checkpoint_every=None, history=folder / "history"
        )
        run.checkpoint()
    print(compare(run, folder), flush=True)
    while (at := run.positions()["cars"]) < TOTAL:
        count = chance.choice([1, 7, 100, 700])
        (folder / "far").write_text(str(max(at + count, far(folder))))
        run.push("cars", rows(at, count), first=at)
        dice = chance.random()
        if dice < 0.1:
            run._fragment.connections.sync()
        elif dice < 0.2:
            run.checkpoint()
            compare(run, folder)
    run.close()


def main(folder: Path, moments: int, seed: int) -> int:
    chance = random.Random(seed)
    md.start(query()).close()  # whose modules all lives share
    for moment in range(moments + 1):
        number = 0 if moment == moments else 1 + int(chance.random() ** 2 * 400)
        luck = random.Random(chance.random())
        child = os.fork()
        if not child:
            try:
                live(folder, number, luck)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) not in (0, -signal.SIGKILL):
            return 1
        if not status:  # it came to the end: the next begins anew
            for each in ("state", "history", "far"):
                (folder / each).rename(folder / f"{each}-{moment}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
