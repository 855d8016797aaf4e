"""Two queries, one reads the other, over nodes that die and parts that move: the answer is that of one query.

p: cars ── u, v: kept, all ══ r, s: read, counted ── e: out
"""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

import medusa as md
from medusa.query.boxes import Field
from medusa.query.published import PublishedStream
from medusa.sim.checkers import check_node
from medusa.sim.federation import Federation
from medusa.wire.messages import Reply
from medusa.wire.messages_move import Move

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
