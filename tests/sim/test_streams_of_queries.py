"""Two queries, one reads the other, over nodes that die and parts that move: the answer is that of one query.

p: cars ── u, v: kept, all ══ r, s: read, counted ── e: out
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import medusa as md
from medusa.query.boxes import Field
from medusa.query.published_stream import PublishedStream
from medusa.sim.actors.federation import Federation
from medusa.sim.checkers.delivery import check_node
from medusa.sim.world.network import Faults
from medusa.wire.messages.commands import Reply
from medusa.wire.messages.move import Move

COLUMNS = (Field("ts", "int64"), Field("v", "int64"))
SCHEMA = {field.name: field.type for field in COLUMNS}
STREAM = PublishedStream(name="local/up.all", columns=COLUMNS, timed=True)
READS = [("read", "u", "up.all", 1)]
UP_AT = {"p": ["cars"], "u": ["kept", "all"]}
DOWN_AT = {"r": ["read", "counted"], "e": ["out"]}


def up():
    q = md.Query("up")
    cars = q.source("cars", SCHEMA, time="ts", unit="us", slack="20us")
    q.sink("all", cars.filter("v % 7 <> 0", name="kept"))
    return q


def counted(stream):
    return stream.window("50us").group_by("v").aggregate(n=md.count(), name="counted")


def down():
    q = md.Query("down")
    q.sink("out", counted(q.source("read", of=STREAM)))
    return q


def rows(seed, count):
    """In disorder beyond the slack, so that some are late."""
    dice = random.Random(seed)
    return pa.table(
        {
            "ts": [n + dice.randrange(60) for n in range(count)],
            "v": [dice.randrange(20) for _ in range(count)],
        }
    )


class Trial:
    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.federation = Federation(seed, ["p", "u", "v", "r", "s", "e"], watch=check_node)
        self.federation.start()
        self.publisher = self.federation.client("publisher", "p")
        self.reader = self.federation.client("reader", "e")
        assert self.asked(self.reader.deploy(up(), UP_AT)) == ""
        self.settle()
        assert self.asked(self.reader.deploy(down(), DOWN_AT, READS)) == ""
        self.reader.read("down.out")

    def asked(self, number, client=None) -> str:
        reply, _ = self.federation.answer(client or self.reader, number)
        assert isinstance(reply, Reply)
        return reply.code

    def settle(self, us=300_000):
        self.federation.run(for_us=us)

    def trouble(self, what):
        """One thing goes wrong, or moves."""
        nodes = self.federation.nodes
        if what == "kill":
            node = nodes[self.dice.choice(list(nodes))]
            if node.alive:
                node.crash()
                self.federation.world.after(self.dice.randrange(50_000, 400_000), node.restart)
        else:
            fragment, places = self.dice.choice([("up/kept", "uv"), ("down/read", "rs")])
            to, by = self.dice.choice(places), self.dice.choice("pe")
            client = {"p": self.publisher, "e": self.reader}[by]
            client.do(
                lambda mind: mind.request(
                    lambda n: Move(request=n, fragment=fragment, to=to, timeout_ms=2000)
                )
            )

    def publish(self, table, troubles):
        schema = COLUMNS
        for begin in range(0, len(table), 40):
            self.publisher.publish("up.cars", table.slice(begin, 40), schema)
            if troubles and self.dice.random() < 0.5:
                self.trouble(self.dice.choice(troubles))
            self.settle(self.dice.randrange(20_000, 200_000))
        self.publisher.finish("up.cars", schema)
        self.settle(500_000)
        self.federation.heal()

    def got(self):
        assert self.federation.run(lambda: "down.out" in self.reader.ended), self.federation.last()
        assert not self.reader.lost
        found = [row for batch in self.reader.rows["down.out"] for row in batch.to_pylist()]
        return [(row["window_start"].microsecond, row["v"], row["n"]) for row in found]


def answer(table):
    """(window, v, count) in the order of one query: rows are judged once, where they enter."""
    windows, largest = {}, None
    for row in table.to_pylist():
        late = largest is not None and row["ts"] < largest - 20
        largest = row["ts"] if largest is None else max(largest, row["ts"])
        if not late and row["v"] % 7 != 0:
            window = windows.setdefault(row["ts"] // 50, {})
            window[row["v"]] = window.get(row["v"], 0) + 1
    return [(start * 50, v, n) for start, found in sorted(windows.items()) for v, n in found.items()]


@pytest.mark.parametrize("troubles", [(), ("kill",), ("move",), ("kill", "move")], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_a_query_that_reads_another_gives_what_one_query_gives(seed, troubles):
    table = rows(seed, 1500)
    trial = Trial(seed)
    trial.publish(table, troubles)
    assert trial.got() == answer(table)


def kept(federation):
    """(node, stream) of what is kept for queries that read others, and of who may have asked for it."""
    brains = {name: node.brain for name, node in federation.nodes.items()}
    specs = [(name, spec) for name, brain in brains.items() for spec in brain.catalog.fragments.values()]
    found = [(name, spec.streams[id]) for name, spec in specs for id in spec.guests]
    return found, [(name, stream) for name, brain in brains.items() for stream in brain.catalog.reading]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_dies_while_it_is_deployed_all_of_it_runs_or_nothing_is_kept_for_it(seed):
    dice = random.Random(seed)
    faults = (
        Faults(jitter_us=3000, loss_permille=20, duplicate_permille=100, reorder_permille=100)
        if seed % 2
        else Faults()
    )
    federation = Federation(seed, ["p", "u", "r", "e"], faults=faults)
    federation.start()
    client = federation.client("client", "e")
    assert federation.answer(client, client.deploy(up(), UP_AT))[0].code == ""
    federation.run(for_us=300_000)
    code = None
    for _ in range(2):  # Once more, where it was refused since somebody was away.
        request = client.deploy(down(), DOWN_AT, READS)
        federation.run(for_us=dice.randrange(30_000))
        victim = federation.nodes[dice.choice("ure")]
        victim.crash()
        federation.run(for_us=dice.randrange(1, 3_000_000))
        federation.heal()
        code = federation.answer(client, request)[0].code
        runs = ["down/read" in node.brain.fragments for node in federation.nodes.values()]
        if code == "":
            assert any(runs)
            assert len(kept(federation)[0]) == 1
            break
        assert federation.run(lambda: kept(federation) == ([], [])), (code, kept(federation))
    if code == "":
        assert federation.answer(client, client.undeploy("down"))[0].code == ""
    assert federation.run(lambda: kept(federation) == ([], [])), kept(federation)
    outputs = [
        id for node in federation.nodes.values() for h in node.brain.fragments.values() for id in h.outputs
    ]
    assert sorted(outputs) == ["all", "cars-out"]
