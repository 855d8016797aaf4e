"""Three node processes, killed within a second of an event; one file of one of them is damaged; they start.

    e: left [right both] first ──> m: box ──> c: last, out

One story, many folders: what the processes left behind is copied, damaged and started again and again. A
publisher with a name goes on where it is told to, a reader where it was, and the end is compared with what
one program gives.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import medusa as md
from medusa.errors import MedusaError, StateError
from medusa.runtime.engine_host.group_names import GroupName
from medusa.runtime.machine.clock import SystemClock
from medusa.runtime.repair.startup import recover
from medusa.runtime.store.folder_store import FolderStore
from medusa.runtime.store.journal import FolderJournal
from tests.runtime.damaged import KINDS, harm, intact, named
from tests.system.nodes import DEADLINE_S, ForkedNodes, ordered, until

NAMES = ["e", "m", "c"]
EVENTS = ("deploy", "move", "split", "merge", "quiet", "undeploy")
SCHEMA = {"ts": "int64", "side": "int64", "k": "int64", "v": "int64"}
ROWS = 400
"""Of each source; half of them before the event."""

LIMITS = 'checkpoint_every = "50ms"\nsubscriber_timeout = "1s"\ndeploy_timeout = "15s"'
TOLD = ("rows missing", "rows lost", "can't be used", "isn't used", "is lost", "in doubt", " error: ")
"""What a log says of a loss; that a copy was used instead is none."""


def query(kind: str) -> tuple[md.Query, dict[str, list[str]]]:
    """The query, and where its boxes are; its rows bear numbers."""
    q = md.Query("q")
    left = q.source("left", SCHEMA, time="ts", unit="us")
    if kind == "union":
        first = left.union(q.source("right", SCHEMA, time="ts", unit="us"), name="first")
        box = first.filter("v >= 0", name="box").running(t=md.sum("v"), name="sums")
        at = {"e": ["left", "right", "first"], "m": ["box", "sums"]}
    else:
        first = left.filter("v >= 0", name="first")
        box = first.window("10us").group_by("k").aggregate(t=md.sum("v"), n=md.count(), name="box")
        at = {"e": ["left", "first"], "m": ["box"]}
    q.sink("out", box.running(seq=md.count(), name="last"))
    return q, {**at, "c": ["last", "out"]}


def rows(side: int, first: int, count: int) -> dict[str, list[int]]:
    numbers = range(first, min(first + count, ROWS))
    return {
        "ts": list(numbers),
        "side": [side] * len(numbers),
        "k": [n * n % 7 for n in numbers],
        "v": [n * 37 % 101 for n in numbers],
    }


@dataclass
class Ended:
    """How one damaged folder ended.

    Attributes:
        wrong: what differs from one program; empty: it is exact.
        said: what nodes, readers and publishers said of a loss.
        deleted: intact groups of fragments that the newest catalog names, deleted by a start.
    """

    what: str
    wrong: str = ""
    said: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        return "silent" if self.wrong and not self.said else "told" if self.wrong else "exact"


class Story:
    """The nodes up to ``kill -9``, shortly after an event.

    Attributes:
        read: rows that a reader had by then.
    """

    def __init__(self, folder: Path, seed: int, event: str | None = None) -> None:
        self.dice = random.Random(f"killed {seed}")
        self.event = event or EVENTS[seed % len(EVENTS)]
        self.kind = "union" if self.event == "quiet" else "window"
        self.q, self.at = query(self.kind)
        self.sides = list(self.q.sources)
        self.folder = folder
        self.nodes = ForkedNodes(folder, NAMES, limits=LIMITS)
        self.read: list[dict[str, Any]] = []
        self._refused: list[str] = []
        self.saved, self.before = folder / "saved", folder / "before"
        try:
            self._happen()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.nodes.close()

    def _happen(self) -> None:
        self.nodes.start()
        reader: threading.Thread | None = None
        with self._connected("e") as fed, self._connected("c") as core:
            fed.deploy(self.q, at=self.at)
            if self.event != "deploy":
                with contextlib.ExitStack() as stack:
                    for number, side in enumerate(self.sides):
                        out = stack.enter_context(fed.publisher(f"q.{side}", durable=f"pump-{side}"))
                        for first in range(0, ROWS // 2, 10):
                            out.publish(rows(number, first, 10))
                            out.boundary(first)
                        out.flush("30s")
                    reader = threading.Thread(target=self._read, args=(core,))
                    reader.start()
                    until(lambda: self.read, what="rows are read")
                if self.event == "merge":
                    with self._connected("m") as middle:
                        ordered(lambda: middle.split("q/box", 2, at=["m", "c"]))
            copy_folders(self.folder, self.before)
            self._order(fed)
            self._kill()
            core.close()
            if reader is not None:
                reader.join(DEADLINE_S)
                assert not reader.is_alive()
        copy_folders(self.folder, self.saved)

    def _connected(self, name: str) -> md.Federation:
        return md.connect(self.nodes.addresses[name], timeout="20s")

    def _order(self, fed: md.Federation) -> None:
        """The event begins, or has just ended."""
        orders = {
            "move": lambda: ordered(lambda: fed.move("q/box", to="c")),
            "split": lambda: ordered(lambda: fed.split("q/box", 2, at=["m", "c"])),
            "merge": lambda: ordered(lambda: fed.merge("q/box")),
            "undeploy": lambda: ordered(lambda: fed.undeploy("q")),
        }
        if (order := orders.get(self.event)) is None:
            threading.Event().wait(self.dice.choice([0, 0.01, 0.1, 0.5]))
            return
        order()
        threading.Event().wait(self.dice.choice([0, 0.005, 0.02, 0.1, 0.6]))

    def _kill(self) -> None:
        for name in self.dice.sample(NAMES, len(NAMES)):
            self.nodes.kill(name)

    def _read(self, core: md.Federation) -> None:
        with contextlib.suppress(MedusaError):
            for train in core.subscribe("q.out", from_="oldest"):
                self.read += train.batch.to_pylist()

    # --- one damaged folder -----------------------------------------------------------------------------

    def damaged(self, seed: int, *, damage: str | None = None, victim: str | None = None) -> Ended:
        """Damage a copy, start, go on to the end."""
        dice = random.Random(f"{self.event} {seed}")
        victim = victim or dice.choice(NAMES)
        for name in NAMES:
            shutil.rmtree(self.nodes.data(name))
            shutil.copytree(self.saved / name, self.nodes.data(name))
            (self.folder / f"{name}.log").unlink(missing_ok=True)
        what = harm(self.nodes.data(victim), dice, damage or dice.choice(KINDS), self._older)
        ended = Ended(f"{self.event}, {victim}: {what}")
        ended.deleted = self._deleted(victim)
        try:
            for name in NAMES:
                self.nodes._launch(name)
            ended.wrong = self._end()
            self._collect(ended)
        finally:
            for name in list(self.nodes.processes):
                self.nodes.kill(name)
        return ended

    def _older(self, file: Path) -> Mapping[str, bytes] | None:
        """Of a file, what was there before the event."""
        relative = file.relative_to(self.folder)
        folder = self.before / relative.parts[0].removesuffix(".data")
        if len(relative.parts) == 2:
            log = folder / relative.parts[1]
            return {log.name: log.read_bytes()} if log.exists() else None
        mine = GroupName.of(relative.parts[1])
        groups = [GroupName.of(name) for name in os.listdir(folder)] if folder.exists() else []
        same = [g for g in groups if (g.kind, g.owner) == (mine.kind, mine.owner) and g.number < mine.number]
        if not same:
            return None
        newest = folder / max(same, key=lambda group: group.number).name
        return {each.name: each.read_bytes() for each in newest.iterdir()}

    def _deleted(self, victim: str) -> list[str]:
        """What a start deletes of what is whole and named: tried on a copy."""
        copy = self.folder / "tried"
        shutil.copytree(self.nodes.data(victim), copy)
        try:
            before, needed = intact(copy), named(copy, victim)
            with contextlib.suppress(StateError), contextlib.ExitStack() as stack:
                store = FolderStore(copy)
                stack.callback(store.close)
                journal = FolderJournal(copy)
                stack.callback(journal.close)
                recover(store, SystemClock(), node=victim, warn=lambda text: None, journal=journal)
            after = set(os.listdir(copy))
            return [each for each in before if each not in after and GroupName.of(each).owner in needed]
        finally:
            shutil.rmtree(copy)

    def _end(self) -> str:
        """All rows are published, and all results read; what is wrong with them."""
        for name in NAMES:
            self._starts(name)
        if len(self.nodes.processes) < len(NAMES):
            return "a node doesn't start"
        if self.event == "undeploy":
            return self._undeployed()
        self._refused.clear()
        publishing = [threading.Thread(target=self._publish, args=each) for each in enumerate(self.sides)]
        for each in publishing:
            each.start()
        got = list(self.read)
        wrong = ""
        try:
            with self._connected("c") as core:
                wrong = self._until_end(core, got)
        except MedusaError as error:
            wrong = f"the reader: {error}"
        for each in publishing:
            each.join(DEADLINE_S)
            assert not each.is_alive()
        wrong = wrong or self._difference(got)
        return "; ".join((wrong, *self._refused)) if wrong else ""

    def _starts(self, name: str) -> None:
        process = self.nodes.processes[name]
        end = time.monotonic() + DEADLINE_S
        while not process.said():
            assert time.monotonic() < end, self.nodes.log(name)
            if "\nerror:" in f"\n{self.nodes.log(name)}":
                del self.nodes.processes[name]
                process.wait()
                process.stdout.close()
                return
            threading.Event().wait(0.01)

    def _publish(self, number: int, side: str) -> None:
        with self._tolerant(), self._connected("e") as fed:
            out = fed.publisher(f"q.{side}", durable=f"pump-{side}")
            while (at := out.next_row) < ROWS:
                out.publish(rows(number, at, 10))
                out.boundary(at)
            out.finish()
            out.flush("20s")

    @contextlib.contextmanager
    def _tolerant(self) -> Iterator[None]:
        """A publisher that can't go on says why."""
        try:
            yield
        except MedusaError as error:
            self._refused.append(f"a publisher: {error}")

    def _until_end(self, core: md.Federation, got: list[dict[str, Any]]) -> str:
        """Read on to the end, or until it is known that none will come."""
        trains: md.Subscription | None = None
        end = time.monotonic() + DEADLINE_S / 2
        while time.monotonic() < end:
            try:
                trains = trains or core.subscribe("q.out", from_=len(got))
                train = trains.next("2s")
            except MedusaError as error:
                # The node isn't back where it was, or, on a busy machine, we didn't read for a second.
                if error.code in ("E_SEQ", "E_CUT_OFF"):
                    if trains is not None:
                        trains.close()
                    trains = None
                    threading.Event().wait(0.05)
                elif error.code != "link.timeout" or any("an operator" in text for text in self._logs()):
                    return f"the reader: {error}"
                continue
            if train is None:
                return f"{trains.lost_rows} rows lost" if trains.lost_rows else ""
            got += train.batch.to_pylist()
            end = time.monotonic() + DEADLINE_S / 2
        return "it hasn't ended"

    def _undeployed(self) -> str:
        """Nothing of the query comes back."""
        with self._connected("e") as e, self._connected("m") as m, self._connected("c") as c:
            feds = (e, m, c)

            def gone() -> bool:
                found = [fed.status() for fed in feds]
                return not any(each["fragments"] or each["queries"] for each in found)

            with contextlib.suppress(AssertionError):
                until(gone, what="it is removed")
                return ""
            return f"it is back: {[fed.status()['queries'] for fed in feds]}"

    def _difference(self, got: list[dict[str, Any]]) -> str:
        if self.kind == "window":
            whole = {side: pa.table(rows(n, 0, ROWS)) for n, side in enumerate(self.sides)}
            want = md.collect(self.q, **whole)["out"].to_pylist()
            if got == want:
                return ""
            at = next((n for n, (a, b) in enumerate(zip(got, want, strict=False)) if a != b), len(want))
            return f"{len(got)} rows, not {len(want)}; row {at}: {got[at : at + 1]}, not {want[at : at + 1]}"
        total = 0
        seen: dict[int, int] = dict.fromkeys(range(len(self.sides)), 0)
        for number, row in enumerate(got, start=1):
            side = row["side"]
            total += row["v"]
            if (row["ts"], row["seq"], row["t"]) != (seen[side], number, total):
                return f"row {number}: {row}, not row {seen[side]} of its side with the sum {total}"
            seen[side] += 1
        return "" if set(seen.values()) == {ROWS} else f"rows of each side: {seen}"

    # --- what is said -------------------------------------------------------------------------------------

    def _logs(self) -> list[str]:
        return [f"{name}: {line}" for name in NAMES for line in self.nodes.log(name).splitlines()]

    def _collect(self, ended: Ended) -> None:
        ended.said += [line[:300] for line in self._logs() if any(text in line for text in TOLD)]
        if "rows lost" in ended.wrong:
            ended.said.append(ended.wrong)
        for name in self.nodes.processes:
            with contextlib.suppress(MedusaError), self._connected(name) as fed:
                status = fed.status()
                if status["in_doubt"]:
                    ended.said.append(f"{name} in doubt: {status['in_doubt']}")
                if status["lost_rows"]:
                    ended.said.append(f"{name}: {status['lost_rows']} rows lost")


def copy_folders(folder: Path, to: Path) -> None:
    """The data folders of all nodes as they are; what is deleted meanwhile isn't in the copy."""
    shutil.rmtree(to, ignore_errors=True)
    for name in NAMES:
        with contextlib.suppress(shutil.Error):
            shutil.copytree(folder / f"{name}.data", to / name)
