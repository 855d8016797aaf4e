"""Nodes in virtual time whose data folders are real: killed, damaged on disk, and started again.

One run, one damaged folder. The end is compared with what one program gives, and what was on disk before the
start with what is there after it.
"""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

import medusa as md
from medusa.engine.state.checkpoint import unseal
from medusa.errors import StateError
from medusa.nodes.catalog.catalog import CATALOG, Catalog
from medusa.nodes.config.settings import Limits
from medusa.nodes.config.settings_streams import StreamRule
from medusa.query.types import schema_to_arrow
from medusa.runtime.embedded.embedded_run import collect
from medusa.runtime.engine_host.group_names import GroupName, owner_of
from medusa.runtime.store.folder_store import FolderStore
from medusa.runtime.store.journal import FolderJournal
from medusa.sim.actors.federation import Federation
from medusa.sim.trials.queries import difference
from medusa.wire.messages.move import Move
from medusa.wire.messages.split import Merge, Split

NODES = ["e", "m", "c"]
SCHEMA = {"ts": "timestamp", "k": "int64", "v": "int64"}
ROWS = 160
EVERY_US = 2_000
SLOW = StreamRule(pattern="*", retention_bytes=20_000, at_limit="spill")

EVENTS = ("quiet", "deploy", "move", "split", "merge", "undeploy")
KINDS = ("bit", "truncated", "zeroed", "deleted", "older", "group deleted")


LOSSES = ("damaged", "missing", "can't be used", "isn't used", "lost")
HARMLESS = ("the other copy of number",)
"""Reports of damage that cost nothing: they excuse no wrong end."""


class FolderDisk:
    """What a simulated node needs of its disk, in a real folder.

    Attributes:
        gone: the last group of each kind and owner that was deleted: an older version to put back.
    """

    tearing = full = False
    fail_next = fail_at = 0

    def __init__(self, path):
        self.path = path
        self.gone = {}
        self._store = self._journal = None

    @property
    def store(self):
        if self._store is None:
            self._store = FolderStore(self.path)
        return self._store

    @property
    def journal(self):
        if self._journal is None:
            self._journal = FolderJournal(self.store.where(""))
        return self._journal

    def write(self, name, files):
        self.store.write(name, files)

    def write_all(self, groups):
        self.store.write_all(groups)

    def read(self, name):
        return self.store.read(name)

    def names(self):
        return self.store.names()

    def delete(self, name):
        if name in self.store.names():
            group = GroupName.of(name)
            self.gone[group.kind, group.owner] = dict(self.store.read(name))
        self.store.delete(name)

    def where(self, name, file=""):
        return self.store.where(name, file)

    def crash(self, unsynced="lost"):
        self.close()

    def mend(self):
        """It fails only by being damaged."""

    def close(self):
        for each in (self._store, self._journal):
            if each is not None:
                each.close()
        self._store = self._journal = None


@lru_cache(maxsize=2)
def known(kind):
    """The query, where its boxes are, the columns of its source, the rows, and what they give."""
    q = md.Query("q")
    if kind == "union":
        left, right = (q.source(name, SCHEMA, time="ts") for name in ("left", "right"))
        both = left.union(right, name="both")
        q.sink("out", both.filter("v >= 0", name="last"))
        at = {"e": ["left", "right", "both"], "c": ["last", "out"]}
    else:
        rows = q.source("left", SCHEMA, time="ts").filter("v >= 0", name="first")
        box = rows.window("5s").group_by("k").aggregate(t=md.sum("v"), n=md.count(), name="box")
        q.sink("out", box.filter("n > 0", name="last"))
        at = {"e": ["left", "first"], "m": ["box"], "c": ["last", "out"]}
    schema = next(box.schema for box in q.graph.boxes if box.id == "left")
    tables = {
        source: pa.table(
            {
                "ts": pa.array([n * 250_000 for n in range(ROWS)], pa.timestamp("us", "UTC")),
                "k": [n * n % 11 for n in range(ROWS)],
                "v": [n * 37 % 101 + 1000 * number for n in range(ROWS)],
            }
        ).cast(schema_to_arrow(schema))
        for number, source in enumerate(q.sources)
    }
    return q, at, schema, tables, collect(q, **tables)["out"]


@dataclass
class Ended:
    """How a run ended.

    Attributes:
        what: what was damaged.
        exact: the reader has all rows, each once, and nobody said that any are lost.
        said: what nodes, readers and publishers said of a loss.
        deleted: intact groups that the start deleted although they were needed.
    """

    what: str
    exact: bool
    wrong: str = ""
    said: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)


class Damaged:
    """One run: ``victim`` dies shortly after an event, its folder is damaged, and it starts again.

    Args:
        event, damage, kind, victim: drawn where they aren't given.
        only: says of a kind of group whether it may be damaged.
        copies: instead, a bit of each of these copies of the newest catalog, 0 and 1.

    Attributes:
        missing: intact groups that the start deleted, those of lives apart.
        deleted: of these, those of fragments that the newest catalog named before the damage.
        waiting: fragments that were in doubt just after the start.
    """

    def __init__(
        self,
        folder,
        seed,
        *,
        event=None,
        damage=None,
        kind=None,
        only=None,
        victim=None,
        coordinator="e",
        copies=(),
        checkpoint_every_us=60_000,
    ):
        self.dice = random.Random(f"damaged {seed}")
        self.event = event or self.dice.choice(EVENTS)
        self.damage = damage or self.dice.choice(KINDS)
        self.only, self.wanted, self.copies = only, victim, copies
        self.kind = kind or ("union" if self.event == "quiet" and self.dice.random() < 0.5 else "window")
        self.q, self.at, self.schema, self.tables, self.want = known(self.kind)
        self.folder = Path(folder)
        self.fed = Federation(
            seed,
            NODES,
            limits=Limits(checkpoint_every_us=checkpoint_every_us),
            streams=(SLOW,) if seed % 2 else (),
        )
        for name, node in self.fed.nodes.items():
            node.disk = FolderDisk(self.folder / name)
        self.fed.start()
        self.publishers = {}
        self.named = self.dice.random() < 0.5
        self.deployer = self.fed.client("deployer", coordinator)
        self.reader = self.fed.client("reader", "c")

    # --- the story ------------------------------------------------------------------------------------

    def deploy(self):
        reply, _ = self.fed.answer(self.deployer, self.deployer.deploy(self.q, self.at))
        assert reply.code == "", reply

    def begin(self):
        for source in self.tables:
            client = self.publishers[source] = self.fed.client(f"publisher-{source}", "e")
            if self.named:
                client.names[f"q.{source}"] = f"pump-{source}"
            client.publish(f"q.{source}", self.tables[source].slice(0, 0), self.schema)
        self.reader.read("q.out")
        now_us = self.fed.world.now_us + 600_000  # Who asked for a stream too early asks again after a while.
        for source in self.tables:
            for first in range(0, ROWS, 4):
                self.fed.world.at(now_us + 1 + first * EVERY_US, lambda s=source, f=first: self.publish(s, f))
        self.fed.world.at(now_us + ROWS * EVERY_US + 1000, self.finish)

    def publish(self, source, first):
        rows = self.tables[source].slice(first, 4)
        self.publishers[source].publish(f"q.{source}", rows, self.schema)

    def finish(self):
        for source, client in self.publishers.items():
            client.finish(f"q.{source}", self.schema)

    def ask(self, make, node="m"):
        client = self.fed.clients.get(f"orders-{node}") or self.fed.client(f"orders-{node}", node)
        number = client.mind.request(make)
        client.do(lambda mind: None)
        return client, number

    def order(self):
        """The event; when it is over, or has just begun."""
        wait_us = self.dice.choice([0, 1_000, 5_000, 20_000, 100_000, 700_000])
        if self.event == "move":
            self.ask(lambda n: Move(request=n, fragment="q/box", to="c", timeout_ms=2000))
        elif self.event in ("split", "merge"):
            asked = self.ask(lambda n: Split(request=n, fragment="q/box", box="box", parts=2, ranges="even"))
            if self.event == "merge":
                reply, _ = self.fed.answer(*asked)
                assert reply.code == "", reply
                self.fed.run(for_us=60_000)
                self.ask(lambda n: Merge(request=n, fragment="q/box-router", box="box"))
        self.fed.run(for_us=wait_us)

    def run(self):
        """The whole of it; how it ended."""
        if self.event == "undeploy":
            return self.run_undeployed()
        self.deploy()
        self.begin()
        if self.event != "deploy":
            self.fed.run(for_us=600_000 + self.dice.randrange(20_000, 200_000))
        self.order()
        victims = {"deploy": NODES, "quiet": NODES, "move": ["m", "c"]}.get(self.event, ["m"])
        self.victim = self.fed.nodes[self.wanted or self.dice.choice(victims)]
        what = self.strike()
        self.fed.run(lambda: "q.out" in self.reader.ended, for_us=8_000_000)
        return self.judge(what)

    def run_undeployed(self):
        """A query that was removed: nothing of it comes back, whichever file is damaged."""
        self.deploy()
        self.begin()
        self.fed.run(for_us=600_000 + self.dice.randrange(100_000, 200_000))
        self.reader.dead = True
        for client in self.publishers.values():
            client.dead = True
        reply, _ = self.fed.answer(self.deployer, self.deployer.undeploy("q"))
        assert reply.code == "", reply
        self.victim = self.fed.nodes[self.wanted or self.dice.choice(NODES)]
        what = self.strike()
        self.fed.run(for_us=1_500_000)
        brain = self.victim.brain
        return self.said(Ended(what, exact=not brain.fragments and "q" not in brain.catalog.owners))

    # --- the damage -----------------------------------------------------------------------------------

    def strike(self):
        """Kill, damage, start, and compare what is on disk."""
        node = self.victim
        node.reports.clear()
        node.crash()
        path = self.folder / node.name
        needed = named(path, node.name)
        what = self.break_copies(path) if self.copies else self.break_something(path, node.disk)
        before = intact(path)
        node.disk.close()
        node.restart()
        node.disk.store  # noqa: B018 - it may not have started
        after = set(os.listdir(path))
        self.missing = [name for name in before if name not in after and GroupName.of(name).kind != "life"]
        self.waiting = set(node.brain.catalog.in_doubt.fragments) if node.alive else set()
        self.deleted = [
            name
            for name in before
            if name not in after and GroupName.of(name).owner in needed and GroupName.of(name).owner
        ]
        return what

    def break_copies(self, path):
        """One bit of the content of these copies of the newest catalog: two are of no help to each other."""
        groups = [each for each in map(GroupName.of, sorted(os.listdir(path))) if each.kind == "catalog"]
        newest = max(each.number for each in groups)
        broken = [each.name for each in groups if each.number == newest]
        assert len(broken) == 2, groups
        for copy in self.copies:
            flip(path / broken[copy] / CATALOG, self.dice)
        return f"copies {self.copies} of catalog {newest}"

    def break_something(self, path, disk):
        def older(file):
            group = GroupName.of(file.parent.name)
            return disk.gone.get((group.kind, group.owner))

        return harm(path, self.dice, self.damage, older, self.only)

    # --- the end --------------------------------------------------------------------------------------

    def judge(self, what):
        got = pa.Table.from_batches(self.reader.rows.get("q.out", []), self.want.schema)
        wrong = str(difference(got, self.want) or "")
        if not wrong and "q.out" not in self.reader.ended:
            wrong = "it hasn't ended"
        return self.said(Ended(what, exact=not wrong, wrong=wrong[:300]))

    def said(self, ended):
        ended.deleted = self.deleted
        lost = sum(self.reader.lost.values())
        if lost:
            ended.said.append(f"the reader: {lost} rows lost")
        for name, node in self.fed.nodes.items():
            if not node.alive:
                ended.said.append(f"{name} doesn't start: {node.unable}")
                continue
            status = node.brain.status(node.clock.monotonic_us())
            if status["in_doubt"]:
                ended.said.append(f"{name} in doubt: {status['in_doubt']}")
            for fragment in status["fragments"]:
                rows = sum(each.get("lost_rows", 0) for each in fragment["inputs"])
                if rows:
                    ended.said.append(f"{name}: {rows} rows lost")
            bad = [r.what for r in node.reports if r.level in ("warning", "error")]
            ended.said += [
                f"{name}: {text[:200]}"
                for text in bad
                if any(word in text for word in LOSSES) and not any(word in text for word in HARMLESS)
            ]
        return ended


def files_in(path, only=None):
    """What can be damaged: files of groups, and logs; ``only`` says of a kind whether it may be."""
    found = []
    for group in sorted(os.listdir(path)):
        if (path / group).is_dir():
            found += [path / group / file for file in sorted(os.listdir(path / group))] or [path / group]
        elif group != "lock":
            found.append(path / group)
    if only is not None:
        found = [each for each in found if only(kind_of(each, path))] or found
    return found


def harm(path, dice, damage, older, only=None):
    """Damage one file of a node's folder, mostly one of the newest of its kind; what was done.

    Args:
        older: of a file, what its folder held before, by name; None: nothing is known.
    """
    places = {}
    for each in files_in(path, only):
        places.setdefault(kind_of(each, path), []).append(each)
    kind = dice.choice(sorted(places))
    newest = max(number_of(each, path) for each in places[kind])
    mine = (
        places[kind]
        if dice.random() < 0.3
        else [each for each in places[kind] if number_of(each, path) == newest]
    )
    file = dice.choice(mine)
    what = f"{damage} {kind} {file.relative_to(path)}"
    data = bytearray(file.read_bytes()) if file.is_file() else bytearray()
    if damage == "group deleted" or not file.is_file():
        group = file.parent if file.parent != path else file
        shutil.rmtree(group) if group.is_dir() else group.unlink()
    elif damage == "deleted":
        file.unlink()
    elif damage == "older":
        before = older(file)
        if before is None:
            file.write_bytes(data[: len(data) // 2])
        else:
            for name, content in before.items():
                (file.parent / name).write_bytes(bytes(content))
    elif not data:
        file.unlink()
    elif damage == "bit":
        flip(file, dice)
    elif damage == "truncated":
        file.write_bytes(data[: dice.randrange(len(data))])
    else:
        at = dice.randrange(len(data))
        file.write_bytes(data[:at] + bytes(len(data) - at))
    return what


def flip(file, dice):
    """Turn one bit over."""
    data = bytearray(file.read_bytes())
    place = dice.randrange(8 * len(data))
    data[place // 8] ^= 1 << (place % 8)
    file.write_bytes(data)


def kind_of(file, path):
    """The kind of file that it is."""
    group = file.relative_to(path).parts[0]
    if group.startswith("decisions-"):
        return "decision log"
    return f"{GroupName.of(group).kind}"


def number_of(file, path):
    group = file.relative_to(path).parts[0]
    if group.startswith("decisions-"):
        return int(group[10:].partition(".")[0])
    return GroupName.of(group).number


def intact(path):
    """Names of the groups that are whole, by themselves."""
    found = []
    for group in os.listdir(path):
        if not (path / group).is_dir() or GroupName.of(group).kind == "unknown":
            continue
        try:
            unseal({file.name: file.read_bytes() for file in (path / group).iterdir()}, group)
        except StateError:
            continue
        found.append(group)
    return found


def named(path, node):
    """Owners of the fragments that the newest catalog names, of which a copy can be read."""
    found = {}
    for group in os.listdir(path):
        if GroupName.of(group).kind == "catalog":
            try:
                facts, files = unseal({f.name: f.read_bytes() for f in (path / group).iterdir()}, group)
                if facts.get("token") != GroupName.of(group).number:
                    continue  # An older one, put in its place.
                catalog = Catalog.from_bytes(files[CATALOG], node=node, where=group)
            except (StateError, KeyError):
                continue
            found.setdefault(GroupName.of(group).number, set()).update(map(owner_of, catalog.fragments))
    return found[max(found)] if found else set()
